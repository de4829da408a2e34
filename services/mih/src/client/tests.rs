use super::*;
use alloc::string::ToString;
use core::net::SocketAddr;
use usher_core::{Seed, SocketId, TransportProtocol};

fn test_client(question: MihClientRequest, to: Option<&str>) -> MihClient {
    let mut function = mih::MihfConfig::new(MihfId::new("asker").unwrap());
    function.by_transport = true;
    function.timing.response = Some(Duration::from_secs(1));
    function.timing.unanswered = mih::ResponseTimeoutPolicy::Retransmit;
    let remote = SocketAddr::from(([192, 0, 2, 1], mih::PORT));
    let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote };
    let to = to.map(|to| MihfId::new(to).unwrap());
    let config = MihClientConfig { mih: function, route, to, question, links: Vec::new(), follow: false };
    MihClient::new(config, Seed::new(1).derive_rng("mih", 0))
}

fn drain_client(client: &mut MihClient) -> (Vec<MihClientEvent>, Vec<mih::DecodedMessage>) {
    let (mut events, mut sent, mut buf) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        buf.clear();
        match client.poll_output(&mut buf) {
            Some(usher_core::MachineOutput::Event(event)) => events.push(event),
            Some(usher_core::MachineOutput::Transmit(_)) => sent.push(MihfMessage::decode(&buf).unwrap()),
            Some(_) => {}
            None => return (events, sent),
        }
    }
}

fn inject_response(client: &mut MihClient, asked: &mih::DecodedMessage, from: &str, params: Vec<Tlv>) {
    let from = MihfId::new(from).unwrap();
    let message = MihfMessage::new(asked.message.id.to_response(), params);
    let mut octets = Vec::new();
    let bits = mih::HeaderFlags { ack_rsp: asked.header.ack_req, ..mih::HeaderFlags::default() };
    message.encode(bits, asked.header.transaction, &from, &asked.source, &mut octets).unwrap();
    let remote = SocketAddr::from(([192, 0, 2, 1], mih::PORT));
    let local = SocketAddr::from(([192, 0, 2, 9], 40_000));
    let path = usher_core::DatagramPath { socket: SocketId::from_number(0), local, remote };
    client.handle_input(Instant::ZERO, MachineInput::Datagram { path, data: &octets });
}

#[test]
fn whoever_answers_discovery_is_asked_the_rest() {
    let mut client = test_client(MihClientRequest::Register, None);
    client.handle_command(Instant::ZERO, MihClientCommand::Start).unwrap();
    assert!(client.handle_command(Instant::ZERO, MihClientCommand::Start).is_err());
    let (_, sent) = drain_client(&mut client);
    let discovery = &sent[0];
    assert!(discovery.destination.is_multicast() && !discovery.header.ack_req);
    inject_response(&mut client, discovery, "pos", alloc::vec![Tlv::Status(Status::Success)]);
    let (events, sent) = drain_client(&mut client);
    assert!(matches!(&events[0], MihClientEvent::Discovered { peer, .. } if peer.to_string() == "pos"));
    assert_eq!((sent[0].message.id, &sent[0].destination), (MessageId::REGISTER_REQUEST, &client.peer));
    let refused = alloc::vec![Tlv::Status(Status::Rejected), Tlv::ValidTimeInterval(0)];
    inject_response(&mut client, &sent[0], "pos", refused);
    let (events, _) = drain_client(&mut client);
    assert!(matches!(events[..], [MihClientEvent::Answered { .. }, MihClientEvent::Finished]), "{events:?}");
}

#[test]
fn a_query_fails_without_links_or_without_a_response() {
    let mut one = test_client(MihClientRequest::Parameters, Some("pos"));
    one.handle_command(Instant::ZERO, MihClientCommand::Start).unwrap();
    let (_, sent) = drain_client(&mut one);
    assert!(!sent[0].destination.is_multicast() && sent[0].header.ack_req);
    inject_response(&mut one, &sent[0], "pos", alloc::vec![Tlv::Status(Status::Success)]);
    assert!(matches!(
        drain_client(&mut one).0[..],
        [MihClientEvent::Discovered { .. }, MihClientEvent::NoLinks, MihClientEvent::Finished]
    ));

    let mut other = test_client(MihClientRequest::Parameters, None);
    other.handle_command(Instant::ZERO, MihClientCommand::Start).unwrap();
    let mut sent = drain_client(&mut other).1.len();
    let mut said = Vec::new();
    while let Some(at) = other.poll_timeout() {
        other.handle_input(at, MachineInput::Timeout);
        let (events, again) = drain_client(&mut other);
        sent += again.len();
        said.extend(events);
        if said.contains(&MihClientEvent::Finished) {
            break;
        }
    }
    let failed = MihClientEvent::Failed {
        request: MessageId::CAPABILITY_DISCOVER_REQUEST,
        failure: mih::TransactionError::NoResponse,
    };
    assert_eq!((sent, said), (3, alloc::vec![failed, MihClientEvent::Finished]));
}

#[test]
fn a_client_that_leaves_early_ends_at_once() {
    let mut client = test_client(MihClientRequest::Register, None);
    client.handle_command(Instant::ZERO, MihClientCommand::Start).unwrap();
    client.handle_command(Instant::ZERO, MihClientCommand::Leave).unwrap();
    client.handle_command(Instant::ZERO, MihClientCommand::Leave).unwrap();
    assert_eq!(drain_client(&mut client).0, [MihClientEvent::Finished]);
}

/// RFC 5677, 6.4: in half the time that it holds for, and at the end it is given up.
#[test]
fn a_registration_is_renewed_in_time_and_ended_on_leaving() {
    let mut client = test_client(MihClientRequest::Register, Some("pos"));
    client.config.follow = true;
    client.handle_command(Instant::ZERO, MihClientCommand::Start).unwrap();
    let (_, sent) = drain_client(&mut client);
    inject_response(&mut client, &sent[0], "pos", alloc::vec![Tlv::Status(Status::Success)]);
    let (_, sent) = drain_client(&mut client);
    let code = |sent: &mih::DecodedMessage| sent.message.get(kind::REGISTER_REQUEST_CODE).cloned();
    assert_eq!(code(&sent[0]), Some(Tlv::RegisterCode(RegisterCode::Register)));
    let granted = alloc::vec![Tlv::Status(Status::Success), Tlv::ValidTimeInterval(100)];
    inject_response(&mut client, &sent[0], "pos", granted);
    assert!(matches!(drain_client(&mut client).0[..], [MihClientEvent::Answered { .. }]));
    let mut renewed = Vec::new();
    while renewed.is_empty() {
        let now = client.poll_timeout().expect("a registration ends");
        client.handle_input(now, MachineInput::Timeout);
        renewed.extend(drain_client(&mut client).1.into_iter().map(|sent| (now, code(&sent))));
    }
    let half = Instant::ZERO + Duration::from_secs(50);
    assert_eq!(renewed, [(half, Some(Tlv::RegisterCode(RegisterCode::Reregister)))]);
    client.handle_command(half, MihClientCommand::Leave).unwrap();
    assert_eq!(drain_client(&mut client).1[0].message.id, MessageId::DEREGISTER_REQUEST);
}
