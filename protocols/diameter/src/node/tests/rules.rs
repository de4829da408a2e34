//! RFC 6733's rules for every answer and for connecting peers.

use super::world::*;
use crate::avp::{AvpId, AvpSequence, AvpView};
use crate::codes;
use crate::codes::command::{
    ABORT_SESSION, CAPABILITIES_EXCHANGE, DIAMETER_EAP, RE_AUTH, SESSION_TERMINATION,
};
use crate::message::{CommandFlags, MessageHeader, MessageView};
use crate::node::*;
use crate::peer::automaton::State;
use crate::peer::capabilities::DiameterApplication;
use usher_core::bench::TestMachine;
use usher_core::{StreamOp, Transmit};

const HEADER: MessageHeader = MessageHeader {
    // RFC 6733 §3: the reserved bits in the lower half are ignored.
    flags: CommandFlags(CommandFlags::REQUEST | CommandFlags::PROXIABLE | CommandFlags::RETRANSMITTED | 0x0f),
    command: DIAMETER_EAP,
    application: 5,
    hop_by_hop: 77,
    end_to_end: 88,
};

/// A request that the server accepts, with Proxy-Info of two agents.
fn request_avps() -> AvpBuf {
    let mut avps = AvpBuf::new();
    avps.push_str(codes::SESSION_ID, "c.example;1;2")
        .push_str(codes::ORIGIN_HOST, "c.example")
        .push_str(codes::ORIGIN_REALM, "example")
        .push_str(codes::DESTINATION_REALM, "example");
    for agent in ["one.example", "two.example"] {
        avps.push_group(codes::PROXY_INFO, |g| {
            g.push_str(codes::PROXY_HOST, agent).push_str(codes::PROXY_STATE, "x");
        });
    }
    avps
}

/// Passes bytes to the server on the open connection, and returns its transmissions.
fn send_to_server(w: &mut NodeTestNetwork, bytes: &[u8]) -> Vec<Vec<u8>> {
    let conn = w.connections(1)[0];
    let before = w.sent_messages().len();
    w.feed_stream(1, conn, StreamEvent::Data(bytes));
    w.sent_messages()[before..].iter().map(|(_, bytes)| bytes.to_vec()).collect()
}

fn encode_message(header: MessageHeader, avps: &AvpBuf) -> Vec<u8> {
    let mut wire = Vec::new();
    crate::DiameterMessage { header, avps: avps.clone() }.encode_into(&mut wire).unwrap();
    wire
}

/// The Result-Code of the only answer, after checks that hold for every answer.
fn result_of(answer: &[u8]) -> u32 {
    let answer = MessageView::parse(answer).unwrap();
    let (h, avps) = (answer.header(), answer.avps());
    let all = |id: AvpId| avps.get_all(id).collect::<Vec<AvpView<'_>>>();
    let [result] = all(codes::RESULT_CODE)[..] else { panic!("{answer}") };
    let result = result.as_u32().unwrap();
    let error = if result / 1000 == 3 { CommandFlags::ERROR } else { 0 };
    assert_eq!(
        h,
        MessageHeader { flags: CommandFlags(CommandFlags::PROXIABLE | error), ..HEADER },
        "{answer}"
    );
    assert_eq!(avps.clone().next().map(|a| (a.code, a.data)), Some((263, &b"c.example;1;2"[..])));
    assert_eq!(all(codes::SESSION_ID).len(), 1);
    let agents: Vec<_> = avps
        .get_all(codes::PROXY_INFO)
        .map(|a| a.as_group().unwrap().get(codes::PROXY_HOST).unwrap().as_identity().unwrap())
        .collect();
    assert_eq!(agents, ["one.example", "two.example"], "{answer}");
    assert_eq!(avps.get(codes::ORIGIN_HOST).map(|a| a.data), Some(&b"s.example"[..]));
    assert_eq!(avps.get(codes::ORIGIN_REALM).map(|a| a.data), Some(&b"example"[..]));
    assert!(avps.get(codes::DESTINATION_HOST).is_none() && avps.get(codes::DESTINATION_REALM).is_none());
    assert!(avps.get(codes::ROUTE_RECORD).is_none());
    result
}

/// RFC 6733 §3, §6.2, §7.1, §7.2: identifiers and flags, Session-Id first, Proxy-Info in its order, one Result-Code.
/// The E flag is set exactly for protocol errors.
#[test]
fn every_answer_is_as_the_rfc_wants_it() {
    // The node's own results.
    let with = |id, text| {
        let mut avps = request_avps();
        avps.push_str(id, text);
        avps
    };
    let mut other_realm = AvpBuf::new();
    for a in request_avps().as_sequence() {
        let realm = a.has_id(codes::DESTINATION_REALM);
        let data = if realm { b"elsewhere" } else { a.data };
        other_realm.push(AvpId::must(a.code), data);
    }
    // After the AVPs to echo: an AVP that exceeds the message, and the beginning of a header.
    let cut = |tail: &[u8]| {
        let mut bytes = encode_message(HEADER, &request_avps());
        bytes.extend_from_slice(tail);
        let length = (bytes.len() as u32).to_be_bytes();
        bytes[1..4].copy_from_slice(&length[1..]);
        bytes
    };
    for (expected, bytes) in [
        (3002, encode_message(HEADER, &with(codes::DESTINATION_HOST, "other.example"))),
        (3003, encode_message(HEADER, &other_realm)),
        (3005, encode_message(HEADER, &with(codes::ROUTE_RECORD, "s.example"))),
        (3007, encode_message(MessageHeader { application: 9, ..HEADER }, &request_avps())),
        (5014, cut(&[0, 0, 1, 8, 0x40, 0, 0, 99])),
        (5014, cut(&[0, 0, 1, 8])),
    ] {
        let mut w = connected_pair();
        w.run_secs(1);
        let mut answers = send_to_server(&mut w, &bytes);
        assert_eq!(answers.len(), 1, "{expected}");
        if expected == 3007 {
            answers[0][8..12].copy_from_slice(&HEADER.application.to_be_bytes());
        }
        assert_eq!(result_of(&answers[0]), expected);
    }
    // The service's results.
    for code in [1001, 2001, 2002, 3001, 4001, 4002, 5002, 5003, 5012] {
        let mut w = connected_pair();
        w.run_secs(1);
        assert!(send_to_server(&mut w, &encode_message(HEADER, &request_avps())).is_empty());
        let Some(DiameterNodeEvent::Request { token, .. }) = w.take_events(1).pop() else { panic!("{code}") };
        let command = match code {
            5003.. => {
                DiameterNodeCommand::Reject { token, fault: DiameterError::new(ResultCode(code), "no") }
            }
            _ => DiameterNodeCommand::Answer { token, result: ResultCode(code), avps: AvpBuf::new() },
        };
        w.send_command(1, command);
        assert_eq!(result_of(w.sent_messages().last().unwrap().1), code);
    }
}

/// RFC 6733 §7.1.3: TOO_BUSY is only for requests with Destination-Host.
#[test]
fn busy_says_so_to_who_names_this_server() {
    for (named, expected) in [(false, 3002), (true, 3004)] {
        let mut avps = request_avps();
        if named {
            avps.push_str(codes::DESTINATION_HOST, "s.example");
        }
        let mut w = connected_pair();
        w.run_secs(1);
        // The service is full.
        let _ = send_to_server(&mut w, &encode_message(HEADER, &avps));
        let Some(DiameterNodeEvent::Request { token, .. }) = w.take_events(1).pop() else {
            panic!("{expected}")
        };
        let fault = DiameterError::new(ResultCode::TOO_BUSY, "later");
        w.send_command(1, DiameterNodeCommand::Reject { token, fault });
        assert_eq!(result_of(w.sent_messages().last().unwrap().1), expected);
        // The node is full.
        w[1].config.max_inbound = 0;
        let answers =
            send_to_server(&mut w, &encode_message(MessageHeader { end_to_end: 89, ..HEADER }, &avps));
        let answer = MessageView::parse(&answers[0]).unwrap();
        assert_eq!(answer.avps().get(codes::RESULT_CODE).unwrap().as_u32(), Ok(expected));
    }
}

/// RFC 6733 §7.1.3: a Destination-Host needs its Destination-Realm.
#[test]
fn a_host_without_its_realm_is_not_found() {
    let mut avps = AvpBuf::new();
    for a in request_avps().as_sequence().filter(|a| !a.has_id(codes::DESTINATION_REALM)) {
        avps.push_view(a);
    }
    avps.push_str(codes::DESTINATION_HOST, "s.example");
    let mut w = connected_pair();
    w.run_secs(1);
    assert_eq!(result_of(&send_to_server(&mut w, &encode_message(HEADER, &avps))[0]), 3002);
}

/// Common messages have their session's application (RFC 6733 §2.5) or none (RFC 4072 §3).
#[test]
fn common_messages_reach_the_service_under_either_application() {
    for command in [SESSION_TERMINATION, ABORT_SESSION, RE_AUTH] {
        for (application, taken) in [(0, true), (5, true), (9, false)] {
            let mut w = connected_pair();
            w.run_secs(1);
            let answers = send_to_server(
                &mut w,
                &encode_message(MessageHeader { command, application, ..HEADER }, &request_avps()),
            );
            assert_eq!(answers.is_empty(), taken, "{command} of {application}");
            assert_eq!(
                w.take_events(1).iter().any(|e| matches!(e, DiameterNodeEvent::Request { .. })),
                taken
            );
        }
    }
    let mut w = connected_pair();
    w.run_secs(1);
    assert_eq!(
        send_to_server(&mut w, &encode_message(MessageHeader { application: 0, ..HEADER }, &request_avps()))
            .len(),
        1
    );
}

/// Sends a CER with further AVPs on a new connection. Returns the CEA and the code in its Failed-AVP.
fn exchange_capabilities(
    certificate: Option<&[u8]>,
    more: impl FnOnce(&mut AvpBuf),
) -> (u32, Option<Vec<u8>>, State) {
    let mut server = test_config("s.example");
    server.accept_unknown = true;
    let mut w = NodeTestNetwork::new(vec![test_config("c.example"), server]);
    let mut avps = AvpBuf::new();
    avps.push_str(codes::ORIGIN_HOST, "c.example")
        .push_str(codes::ORIGIN_REALM, "example")
        .push_address(codes::HOST_IP_ADDRESS, [10, 0, 0, 9].into())
        .push_u32(codes::VENDOR_ID, 0)
        .push_str(codes::PRODUCT_NAME, "test")
        .push_u32(codes::AUTH_APPLICATION_ID, 5);
    more(&mut avps);
    let header = MessageHeader {
        flags: CommandFlags(CommandFlags::REQUEST),
        command: CAPABILITIES_EXCHANGE,
        application: 0,
        ..HEADER
    };
    let conn = ConnId::nth_accepted_connection(9);
    let listener = usher_core::ListenerId::from_number(0);
    w.feed_stream(
        1,
        conn,
        StreamEvent::Accepted { listener, remote: node_address(9), local: None, certificate },
    );
    w.feed_stream(1, conn, StreamEvent::Data(&encode_message(header, &avps)));
    let (_, cea) = w.sent_messages().pop().expect("a CEA");
    let cea = MessageView::parse(cea).unwrap();
    let failed = cea.avps().get(codes::FAILED_AVP).map(|a| a.data.to_vec());
    let state = w[1].peer_state(PeerId(0)).unwrap_or(State::Closed);
    (cea.avps().get(codes::RESULT_CODE).unwrap().as_u32().unwrap(), failed, state)
}

/// RFC 6733 §5.3.2: a failed or incomplete CEA opens no peer, and is counted by its kind.
#[test]
fn a_cea_that_opens_nothing_is_counted() {
    for (result, whole, expected) in
        [(3010, true, [1, 0, 0]), (5010, true, [0, 1, 0]), (5012, true, [0, 0, 1]), (2001, false, [0, 0, 1])]
    {
        let mut w = NodeTestNetwork::new(vec![
            test_config("c.example").connect_to("s.example", node_address(1)),
            test_config("s.example"),
        ]);
        // Wait for the CER before the other node answers.
        while w.sent_by(0, CAPABILITIES_EXCHANGE).is_empty() {
            w.net.run_next_arrival_or_timer();
        }
        let cer = w.sent_by(0, CAPABILITIES_EXCHANGE)[0];
        let mut avps = AvpBuf::new();
        avps.push_u32(codes::RESULT_CODE, result).push_str(codes::ORIGIN_HOST, "s.example");
        if whole {
            avps.push_str(codes::ORIGIN_REALM, "example")
                .push_address(codes::HOST_IP_ADDRESS, [10, 0, 0, 1].into())
                .push_u32(codes::VENDOR_ID, 0)
                .push_str(codes::PRODUCT_NAME, "test");
        }
        let conn = w.connections(0)[0];
        w.feed_stream(
            0,
            conn,
            StreamEvent::Data(&encode_message(MessageHeader { flags: CommandFlags(0), ..cer }, &avps)),
        );
        let c = w[0].counters();
        assert_eq!([c.unknown_peer, c.no_common_application, c.bad_capabilities], expected, "{result}");
        assert_eq!(w.first_peer_state(0), State::Closed);
    }
}

/// RFC 6733 §5.3, §6.10: a peer that requires TLS after the exchange gets NO_COMMON_SECURITY.
#[test]
fn security_that_begins_within_a_connection_is_not_spoken() {
    for (asked, expected) in [(&[][..], 2001), (&[0], 2001), (&[0, 1], 2001), (&[1], 5017)] {
        let (result, _, state) = exchange_capabilities(None, |avps| {
            for id in asked {
                avps.push_u32(codes::INBAND_SECURITY_ID, *id);
            }
        });
        assert_eq!((result, state == State::ROpen), (expected, expected == 2001), "{asked:?}");
    }
}

/// RFC 6733 §6.11: one application in each group, and the faulty group returns in Failed-AVP.
#[test]
fn a_vendor_specific_application_names_exactly_one() {
    for (ids, expected) in [
        (&[codes::AUTH_APPLICATION_ID][..], 2001),
        (&[codes::ACCT_APPLICATION_ID], 2001),
        (&[], 5005),
        (&[codes::AUTH_APPLICATION_ID, codes::ACCT_APPLICATION_ID], 5009),
    ] {
        let (result, failed, _) = exchange_capabilities(None, |avps| {
            avps.push_group(codes::VENDOR_SPECIFIC_APPLICATION_ID, |g| {
                g.push_u32(codes::VENDOR_ID, 10_415);
                for id in ids {
                    g.push_u32(*id, 16_777_251);
                }
            });
        });
        assert_eq!(result, expected);
        if expected == 2001 {
            assert_eq!(failed, None);
            continue;
        }
        let failed = failed.expect("a Failed-AVP");
        let group = crate::AvpSequence::parse(&failed).unwrap().next().unwrap();
        assert_eq!(group.code, 260);
        let inner = group.as_group().unwrap();
        for id in [codes::AUTH_APPLICATION_ID, codes::ACCT_APPLICATION_ID] {
            assert!(inner.get(id).is_some_and(|a| a.as_u32().is_ok()), "{expected}");
        }
    }
}

/// RFC 6733 §7.1.5, §7.5: Failed-AVP for an invalid length and for a missing AVP.
#[test]
fn failed_avp_shows_a_header_and_zeros() {
    // Eight octets are a complete header, seven are not.
    let cut = [0, 0, 1, 8, 0x40, 0, 0, 99];
    for (octets, what) in [(8, "AVP length beyond its bounds"), (7, "AVP header cut short")] {
        assert_eq!(AvpSequence::parse(&cut[..octets]).unwrap_err().description, what);
    }
    let fault = |tail: &[u8]| {
        let mut bytes = encode_message(HEADER, &request_avps());
        bytes.extend_from_slice(tail);
        let length = (bytes.len() as u32).to_be_bytes();
        bytes[1..4].copy_from_slice(&length[1..]);
        let fault = MessageView::parse(&bytes).unwrap_err();
        let avp = fault.avp.expect("the AVP at fault");
        (fault.code.0, avp.code, avp.flags, avp.data)
    };
    // Too long; too short; at least four octets; a header with the code only.
    assert_eq!(fault(&[0, 0, 1, 8, 0x40, 0, 0, 99]), (5014, 264, 0x40, vec![]));
    assert_eq!(fault(&[0, 0, 0, 27, 0x40, 0, 0, 7]), (5014, 27, 0x40, vec![0; 4]));
    assert_eq!(fault(&[0, 0, 1, 31]), (5014, 287, 0, vec![0; 8]));
    let avps = request_avps();
    for (id, zeros) in [
        (codes::AUTH_REQUEST_TYPE, 4),
        (codes::ACCOUNTING_INPUT_OCTETS, 8),
        (codes::HOST_IP_ADDRESS, 6),
        (codes::EAP_PAYLOAD, 0),
    ] {
        let fault = avps.as_sequence().require_avp(id).unwrap_err();
        let avp = fault.avp.unwrap();
        assert_eq!((fault.code.0, avp.code, avp.data), (5005, id.code, vec![0; zeros]));
    }
}

/// RFC 6733 §2.9: the route of a request, and the agents that may relay it.
#[test]
fn a_request_by_an_untrusted_route_is_refused() {
    for (agents, taken) in [
        (&["*"][..], true),
        (&["agent.example.net"], true),
        (&["AGENT.example.NET"], true),
        (&["*.example.net"], true),
        (&["*.example.org", "other.example.net"], false),
        (&[], false),
    ] {
        let mut w = connected_pair();
        w[1].config.agents = agents.iter().map(ToString::to_string).collect();
        w.run_secs(1);
        // A directly connected peer is no agent: without Route-Record the route is the peer itself.
        assert!(send_to_server(&mut w, &encode_message(HEADER, &request_avps())).is_empty());
        let mut avps = request_avps();
        avps.push_str(codes::ROUTE_RECORD, "agent.example.net");
        let answers =
            send_to_server(&mut w, &encode_message(MessageHeader { end_to_end: 89, ..HEADER }, &avps));
        assert_eq!(answers.is_empty(), taken, "{agents:?}");
        assert_eq!(w[1].counters().untrusted_route, u64::from(!taken));
        if let Some(answer) = answers.first() {
            let answer = MessageView::parse(answer).unwrap();
            assert_eq!(answer.avps().get(codes::RESULT_CODE).unwrap().as_u32(), Ok(5003));
        }
    }
}

/// RFC 6733 §7.2: an invalid answer gets no reply.
#[test]
fn a_bad_answer_is_not_answered() {
    let mut w = connected_pair();
    w.run_secs(1);
    let mut bytes = encode_message(
        MessageHeader { flags: CommandFlags(CommandFlags::PROXIABLE), ..HEADER },
        &request_avps(),
    );
    bytes.extend_from_slice(&[0, 0, 1, 8, 0x40, 0, 0, 99]);
    let length = (bytes.len() as u32).to_be_bytes();
    bytes[1..4].copy_from_slice(&length[1..]);
    assert!(send_to_server(&mut w, &bytes).is_empty());
    assert_eq!((w[1].counters().malformed, w.first_peer_state(1)), (1, State::ROpen));
}

/// RFC 6733 §2.1, §5.6.1: a stream without valid framing is reset, and so is a connection that does not begin with a
/// CER.
#[test]
fn what_cannot_be_followed_is_reset() {
    let not_a_cer = encode_message(HEADER, &request_avps());
    for bytes in [&b"GET / HTTP/1.1"[..], &[1, 0, 0, 3], &[2, 0, 0, 20], &not_a_cer] {
        let mut node = TestMachine::new(DiameterNode::new(
            test_config("s.example").accept_from("c.example"),
            Instant::ZERO,
            test_rng(),
        ));
        let conn = ConnId::nth_accepted_connection(1);
        let up = accepted_event(0);
        node.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: up });
        node.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: StreamEvent::Data(bytes) });
        let reset = Transmit::Stream { conn, op: StreamOp::Abort };
        assert_eq!(node.poll_transmit(&mut Vec::new()), Some(reset));
        assert_eq!(node.connection_count(), 0);
    }
}

fn test_rng() -> usher_core::SecureRng {
    usher_core::Seed::new(7).derive_secure_rng("node", 9)
}

/// RFC 6733 §2.1, §5.6: one connection for each peer.
#[test]
fn a_second_connection_of_an_open_peer_is_refused() {
    let mut w = connected_pair();
    w.run_secs(1);
    let cer = w.sent_messages().iter().find(|(from, _)| *from == 0).unwrap().1.to_vec();
    let conn = ConnId::nth_accepted_connection(9);
    w.feed_stream(1, conn, accepted_event(0));
    let before = w.sent_messages().len();
    w.feed_stream(1, conn, StreamEvent::Data(&cer));
    assert_eq!(
        (w.sent_messages().len(), w[1].connection_count(), w.first_peer_state(1)),
        (before, 1, State::ROpen)
    );
    assert_eq!(w[1].counters().connection_rejected, 1);
}

/// RFC 6733 §2.5, §5.3, §5.4.3, §6.1: messages between neighbours use the base protocol and are not relayed. A DPR has
/// a cause, and repeated requests have different identifiers.
#[test]
fn messages_between_neighbours_are_for_them_alone() {
    let mut w = connected_pair();
    w.run_secs(100);
    w.send_command(1, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause: DisconnectCause::Busy });
    w.run_secs(101);
    let mut asked = Vec::new();
    for (from, bytes) in &w.sent_messages() {
        let message = MessageView::parse(bytes).unwrap();
        let h = message.header();
        assert_eq!((h.application, h.flags.is_proxiable(), h.flags.is_error()), (0, false, false));
        let says = |id: AvpId| message.avps().get(id).is_some();
        let others = [codes::SESSION_ID, codes::DESTINATION_HOST, codes::DESTINATION_REALM];
        assert!(!others.into_iter().any(says) && says(codes::ORIGIN_HOST) && says(codes::ORIGIN_REALM));
        assert!(!says(codes::INBAND_SECURITY_ID));
        if h.flags.is_request() {
            assert_eq!(says(codes::DISCONNECT_CAUSE), h.command == codes::command::DISCONNECT_PEER);
            assert!(!asked.contains(&(*from, h.hop_by_hop)) && !asked.contains(&(*from, h.end_to_end)));
            asked.extend([(*from, h.hop_by_hop), (*from, h.end_to_end)]);
        }
    }
    let commands = [CAPABILITIES_EXCHANGE, codes::command::DEVICE_WATCHDOG, codes::command::DISCONNECT_PEER];
    assert!(commands.iter().all(|c| !w.sent_by(0, *c).is_empty() && !w.sent_by(1, *c).is_empty()));
}

/// RFC 6733 §5.4.3: a node reconnects to a peer that restarts, but not to a busy or unwilling one.
#[test]
fn a_peer_is_connected_to_again_as_its_cause_says() {
    for (cause, again) in [
        (DisconnectCause::Rebooting, true),
        (DisconnectCause::Busy, false),
        (DisconnectCause::DoNotWantToTalkToYou, false),
    ] {
        let mut w = connected_pair();
        w.run_secs(1);
        w.send_command(1, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause });
        w.run_secs(100);
        assert_eq!(w.first_peer_state(0) == State::IOpen, again, "{cause:?}");
    }
}

/// RFC 6733 §2.7, §6.1: routing by realm, then by application. A request without a host has no Destination-Host.
#[test]
fn requests_go_by_realm_then_by_application() {
    let mut client = test_config("c.example");
    for n in 1..=3 {
        client = client.connect_to(&format!("s{n}.example"), node_address(n));
    }
    let route =
        |realm: &str, application, peer| RealmRoute { realm: realm.into(), application, peers: vec![peer] };
    client.routes = vec![route("a.example", Some(1), 0), route("A.example", None, 1), route("*", None, 2)];
    let servers = (1..=3).map(|n| {
        let mut server = test_config(&format!("s{n}.example")).accept_from("c.example");
        server.realms.push("*".into());
        server
    });
    let mut w = NodeTestNetwork::new([client].into_iter().chain(servers).collect());
    w.run_secs(1);
    let DiameterNodeCommand::Request(base) = eap_request(0, b"x") else { unreachable!() };
    for (realm, host, to) in [
        ("a.EXAMPLE", None, 2),
        ("b.example", None, 3),
        // A host that is a peer gets the request directly.
        ("b.example", Some("s1.example"), 1),
    ] {
        let (destination_realm, destination_host) = (realm.to_string(), host.map(ToString::to_string));
        w.send_command(0, DiameterRequest { destination_realm, destination_host, ..base.clone() }.into());
        w.net.run_for(DELAY);
        for n in 1..=3 {
            let asked =
                w.take_events(n).iter().filter(|e| matches!(e, DiameterNodeEvent::Request { .. })).count();
            assert_eq!(asked, usize::from(n == to), "{realm} {host:?} at {n}");
        }
        let sent = MessageView::parse(w.sent_messages().last().unwrap().1).unwrap();
        assert_eq!(sent.avps().get(codes::DESTINATION_REALM).unwrap().data, realm.as_bytes());
        assert_eq!(sent.avps().get(codes::DESTINATION_HOST).map(|a| a.data), host.map(str::as_bytes));
    }
}

/// RFC 6733 §6.8, §6.9, RFC 7155 §1.5, §3.10: an answer has the application of its request's header.
#[test]
fn every_answer_names_its_application() {
    for (application, command, id) in [
        (1, codes::command::AA, codes::AUTH_APPLICATION_ID),
        (5, DIAMETER_EAP, codes::AUTH_APPLICATION_ID),
        (3, codes::command::ACCOUNTING, codes::ACCT_APPLICATION_ID),
        (1, codes::command::ACCOUNTING, codes::ACCT_APPLICATION_ID),
    ] {
        let mut w = connected_pair();
        w[1].config
            .local
            .applications
            .extend([DiameterApplication::for_authentication(1), DiameterApplication::for_accounting(3)]);
        w.run_secs(1);
        let _ = send_to_server(
            &mut w,
            &encode_message(MessageHeader { application, command, ..HEADER }, &request_avps()),
        );
        let Some(DiameterNodeEvent::Request { token, .. }) = w.take_events(1).pop() else {
            panic!("{command}")
        };
        w.send_command(
            1,
            DiameterNodeCommand::Answer { token, result: ResultCode::SUCCESS, avps: AvpBuf::new() },
        );
        let answer = MessageView::parse(w.sent_messages().last().unwrap().1).unwrap();
        let named: Vec<_> = answer.avps().get_all(id).map(|a| a.as_u32()).collect();
        assert_eq!((answer.header().application, named), (application, vec![Ok(application)]));
    }
}
