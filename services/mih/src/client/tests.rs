use super::*;
use alloc::string::ToString;
use core::net::SocketAddr;
use usher_core::{Seed, SocketId, TransportProtocol};

fn client(question: Question, to: Option<&str>) -> Client {
    let mut function = mih::Config::new(MihfId::new("asker").unwrap());
    function.by_transport = true;
    function.timing.response = Some(Duration::from_secs(1));
    function.timing.unanswered = mih::Unanswered::Retransmit;
    let remote = SocketAddr::from(([192, 0, 2, 1], mih::PORT));
    let route = Route { transport: TransportProtocol::Udp, local: None, remote };
    let to = to.map(|to| MihfId::new(to).unwrap());
    let config = Config { mih: function, route, to, question, links: Vec::new(), follow: false };
    Client::new(config, Seed::new(1).stream("mih", 0))
}

fn drain(client: &mut Client) -> (Vec<Event>, Vec<mih::Decoded>) {
    let (mut events, mut sent, mut buf) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        buf.clear();
        match client.poll_output(&mut buf) {
            Some(usher_core::Output::Event(event)) => events.push(event),
            Some(usher_core::Output::Transmit(_)) => sent.push(Message::decode(&buf).unwrap()),
            Some(_) => {}
            None => return (events, sent),
        }
    }
}

fn answer(client: &mut Client, asked: &mih::Decoded, from: &str, params: Vec<Tlv>) {
    let from = MihfId::new(from).unwrap();
    let message = Message::new(asked.message.id.response(), params);
    let mut octets = Vec::new();
    let bits = mih::Bits { ack_rsp: asked.header.ack_req, ..mih::Bits::default() };
    message.encode(bits, asked.header.transaction, &from, &asked.source, &mut octets).unwrap();
    let remote = SocketAddr::from(([192, 0, 2, 1], mih::PORT));
    let local = SocketAddr::from(([192, 0, 2, 9], 40_000));
    let path = usher_core::Path { socket: SocketId::own(0), local, remote };
    client.handle(Instant::ZERO, Input::Datagram { path, data: &octets });
}

#[test]
fn whoever_answers_discovery_is_asked_the_rest() {
    let mut client = client(Question::Register, None);
    client.command(Instant::ZERO, Command::Start).unwrap();
    assert!(client.command(Instant::ZERO, Command::Start).is_err());
    let (_, sent) = drain(&mut client);
    let discovery = &sent[0];
    assert!(discovery.destination.is_multicast() && !discovery.header.ack_req);
    answer(&mut client, discovery, "pos", alloc::vec![Tlv::Status(Status::Success)]);
    let (events, sent) = drain(&mut client);
    assert!(matches!(&events[0], Event::Discovered { peer, .. } if peer.to_string() == "pos"));
    assert_eq!((sent[0].message.id, &sent[0].destination), (MessageId::REGISTER_REQUEST, &client.peer));
    let refused = alloc::vec![Tlv::Status(Status::Rejected), Tlv::ValidTimeInterval(0)];
    answer(&mut client, &sent[0], "pos", refused);
    let (events, _) = drain(&mut client);
    assert!(matches!(events[..], [Event::Answered { .. }, Event::Finished]), "{events:?}");
}

#[test]
fn who_has_no_link_cannot_be_asked_about_any_and_who_does_not_answer_fails() {
    let mut one = client(Question::Parameters, Some("pos"));
    one.command(Instant::ZERO, Command::Start).unwrap();
    let (_, sent) = drain(&mut one);
    assert!(!sent[0].destination.is_multicast() && sent[0].header.ack_req);
    answer(&mut one, &sent[0], "pos", alloc::vec![Tlv::Status(Status::Success)]);
    assert!(matches!(drain(&mut one).0[..], [Event::Discovered { .. }, Event::NoLinks, Event::Finished]));

    let mut other = client(Question::Parameters, None);
    other.command(Instant::ZERO, Command::Start).unwrap();
    let mut sent = drain(&mut other).1.len();
    let mut said = Vec::new();
    while let Some(at) = other.poll_timeout() {
        other.handle(at, Input::Timeout);
        let (events, again) = drain(&mut other);
        sent += again.len();
        said.extend(events);
        if said.contains(&Event::Finished) {
            break;
        }
    }
    let failed =
        Event::Failed { request: MessageId::CAPABILITY_DISCOVER_REQUEST, failure: mih::Failure::NoResponse };
    assert_eq!((sent, said), (3, alloc::vec![failed, Event::Finished]));
}

#[test]
fn a_client_that_is_told_to_leave_before_it_is_done_ends_at_once() {
    let mut client = client(Question::Register, None);
    client.command(Instant::ZERO, Command::Start).unwrap();
    client.command(Instant::ZERO, Command::Leave).unwrap();
    client.command(Instant::ZERO, Command::Leave).unwrap();
    assert_eq!(drain(&mut client).0, [Event::Finished]);
}

/// RFC 5677, 6.4: in half the time that it holds for, and at the end it is given up.
#[test]
fn a_registration_is_renewed_before_it_ends_and_given_up_by_who_leaves() {
    let mut client = client(Question::Register, Some("pos"));
    client.config.follow = true;
    client.command(Instant::ZERO, Command::Start).unwrap();
    let (_, sent) = drain(&mut client);
    answer(&mut client, &sent[0], "pos", alloc::vec![Tlv::Status(Status::Success)]);
    let (_, sent) = drain(&mut client);
    let code = |sent: &mih::Decoded| sent.message.get(kind::REGISTER_REQUEST_CODE).cloned();
    assert_eq!(code(&sent[0]), Some(Tlv::RegisterCode(RegisterCode::Register)));
    let granted = alloc::vec![Tlv::Status(Status::Success), Tlv::ValidTimeInterval(100)];
    answer(&mut client, &sent[0], "pos", granted);
    assert!(matches!(drain(&mut client).0[..], [Event::Answered { .. }]));
    let mut renewed = Vec::new();
    while renewed.is_empty() {
        let now = client.poll_timeout().expect("a registration ends");
        client.handle(now, Input::Timeout);
        renewed.extend(drain(&mut client).1.into_iter().map(|sent| (now, code(&sent))));
    }
    let half = Instant::ZERO + Duration::from_secs(50);
    assert_eq!(renewed, [(half, Some(Tlv::RegisterCode(RegisterCode::Reregister)))]);
    client.command(half, Command::Leave).unwrap();
    assert_eq!(drain(&mut client).1[0].message.id, MessageId::DEREGISTER_REQUEST);
}
