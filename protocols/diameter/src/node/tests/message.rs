//! Nodes over associations.

use super::world::*;
use crate::codes;
use crate::codes::command::{CAPABILITIES_EXCHANGE, DEVICE_WATCHDOG, DIAMETER_EAP, DISCONNECT_PEER};
use crate::eap::DiameterEapRequest;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::*;
use crate::peer::automaton::State;
use crate::stream::StreamPolicy;
use usher_core::bench::TestMachine;
use usher_core::{Duration, ListenerId, MessageAssociationEvent, MessageAssociationOp, Seed, Transmit};

fn associated_pair(streams: u16, policy: StreamPolicy) -> NodeTestNetwork {
    let transport = PeerTransportConfig::Message { streams, policy };
    let mut server = test_config("s.example").accept_from("c.example");
    if policy == StreamPolicy::Unordered {
        server.accept_policy = policy;
    }
    NodeTestNetwork::new(vec![
        test_config("c.example").with_outbound_peer("s.example", node_address(1), transport),
        server,
    ])
}

/// A request of session `session`.
fn session_request(token: u64, session: u32) -> DiameterNodeCommand {
    let der = DiameterEapRequest {
        request_type: AuthRequestType::AuthenticateOnly,
        eap: b"x",
        user_name: None,
        state: None,
        nas: NasInfo::default(),
    };
    der.to_request(token, format!("c.example;1;{session}"), "example".into(), None).into()
}

/// Sends `n` requests of `n` sessions and answers them. Returns the streams of requests and of answers.
fn exchange_requests(w: &mut NodeTestNetwork, n: u32) -> (Vec<SentMessage>, Vec<SentMessage>) {
    w.run_secs(1);
    for i in 0..n {
        w.send_command(0, session_request(i.into(), i));
    }
    w.run_secs(2);
    assert_eq!(answer_all(w, 1, ResultCode::SUCCESS), n as usize);
    w.run_secs(3);
    assert_eq!(received_answers(&w.take_events(0)).len(), n as usize);
    let ways = |request| {
        w.sent_user_messages()
            .iter()
            .filter(|m| m.command == DIAMETER_EAP && m.request == request)
            .copied()
            .collect()
    };
    (ways(true), ways(false))
}

#[test]
fn an_association_opens_and_closes_in_order_on_stream_zero() {
    for policy in [StreamPolicy::SingleStream, StreamPolicy::BySession, StreamPolicy::Unordered] {
        let mut w = associated_pair(8, policy);
        w.run_secs(60);
        assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
        let cause = DisconnectCause::DoNotWantToTalkToYou;
        w.send_command(0, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause });
        w.run_secs(100);
        assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::Closed, State::Closed));
        assert!(
            w.sent_user_messages().iter().all(|m| (m.stream, m.unordered, m.ppid) == (0, false, 46)),
            "{:?}",
            w.sent_user_messages()
        );
        for command in [CAPABILITIES_EXCHANGE, DEVICE_WATCHDOG, DISCONNECT_PEER] {
            let n = w.sent_user_messages().iter().filter(|m| m.command == command).count();
            assert!(n >= 2, "command {command}: {n}");
        }
        assert_eq!(w[0].counters().total() + w[1].counters().total(), 0);
        assert_eq!((w[0].connection_count(), w[1].connection_count()), (0, 0));
    }
}

#[test]
fn one_stream_in_order() {
    let (asked, answered) = exchange_requests(&mut associated_pair(8, StreamPolicy::SingleStream), 20);
    assert!(asked.iter().chain(&answered).all(|m| (m.stream, m.unordered) == (0, false)));
}

#[test]
fn a_session_keeps_its_stream_and_is_answered_on_it() {
    let mut w = associated_pair(8, StreamPolicy::BySession);
    let (asked, answered) = exchange_requests(&mut w, 40);
    let streams = |ways: &[SentMessage]| ways.iter().map(|m| m.stream).collect::<Vec<_>>();
    assert_eq!(streams(&asked), streams(&answered));
    assert!(asked.iter().chain(&answered).all(|m| m.stream < 8 && !m.unordered && m.ppid == 46));
    assert_eq!(streams(&asked), (0..40).map(|i| i % 8).collect::<Vec<u16>>());
    let before = w.sent_user_messages().len();
    for i in 0..40 {
        w.send_command(0, session_request(100 + i, i as u32));
    }
    assert_eq!(streams(&w.sent_user_messages()[before..]), streams(&asked));
}

#[test]
fn fewer_streams_than_asked_for_bound_the_choice() {
    let mut w = associated_pair(8, StreamPolicy::BySession);
    w.net.limit_streams(3);
    let (asked, answered) = exchange_requests(&mut w, 40);
    assert!(asked.iter().chain(&answered).all(|m| m.stream < 3));
    assert!((0..3).all(|s| asked.iter().any(|m| m.stream == s)));
    let mut w = associated_pair(0, StreamPolicy::BySession);
    let (asked, _) = exchange_requests(&mut w, 10);
    assert!(asked.iter().all(|m| m.stream == 0));
}

#[test]
fn an_answer_goes_by_a_stream_that_there_is() {
    let mut w = associated_pair(8, StreamPolicy::BySession);
    w.run_secs(1);
    let theirs = w.connections(1)[0];
    w.send_command(0, session_request(1, 1));
    let bytes = w.sent_messages().last().unwrap().1.to_vec();
    w.net.drop_in_flight();
    w.feed_message(1, theirs, MessageAssociationEvent::Data { stream: 21, ppid: 46, data: &bytes });
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    assert_eq!(w.sent_user_messages().last().map(|m| (m.from, m.stream)), Some((1, 5)));
}

#[test]
fn unordered_messages_overtake_each_other_and_all_arrive() {
    let mut w = associated_pair(1, StreamPolicy::Unordered);
    // The first messages are the slowest, so that all arrive in reverse.
    w.net.intercept_transmits(|n, sent| match sent.transmit {
        Transmit::Message { op: MessageAssociationOp::Data { unordered: true, .. }, .. } => {
            vec![Duration::from_millis(300 - n as u64)]
        }
        _ => vec![Duration::ZERO],
    });
    w.run_secs(1);
    for i in 0..30 {
        w.send_command(0, session_request(i, i as u32));
    }
    w.run_until(Duration::from_millis(1500));
    let sessions: Vec<_> = w
        .net
        .recorded_events(w.nodes[1])
        .iter()
        .filter_map(|(_, e)| match e {
            DiameterNodeEvent::Request { message, .. } => {
                message.avps.as_sequence().get(codes::SESSION_ID)?.as_utf8().ok()
            }
            _ => None,
        })
        .map(str::to_string)
        .collect();
    let expected: Vec<_> = (0..30).rev().map(|i| format!("c.example;1;{i}")).collect();
    assert_eq!(sessions, expected);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 30);
    w.run_secs(3);
    assert_eq!(received_answers(&w.take_events(0)).len(), 30);
    assert!(
        w.sent_user_messages().iter().all(|m| m.unordered == (m.command == DIAMETER_EAP) && m.stream == 0)
    );
}

#[test]
fn a_responder_lets_nothing_overtake_its_cea() {
    // Both sides send requests. The responder's first is ready before its peer is known to be open.
    let transport = PeerTransportConfig::Message { streams: 8, policy: StreamPolicy::Unordered };
    for policy in [StreamPolicy::Unordered, StreamPolicy::BySession] {
        let mut server = test_config("s.example").accept_from("c.example");
        server.accept_policy = policy;
        let mut w = NodeTestNetwork::new(vec![
            test_config("c.example").with_outbound_peer("s.example", node_address(1), transport),
            server,
        ]);
        w.send_command(1, session_request(1, 3));
        w.run_secs(1);
        let DiameterNodeCommand::Request(r) = session_request(2, 3) else { unreachable!() };
        w.send_command(1, DiameterRequest { destination_host: Some("c.example".into()), ..r.clone() }.into());
        let early = *w.sent_user_messages().last().unwrap();
        assert_eq!((early.from, early.stream, early.unordered), (1, 0, false));
        // The watchdogs show both sides that the peer is open.
        w.run_secs(60);
        w.send_command(
            1,
            DiameterRequest { token: 3, destination_host: Some("c.example".into()), ..r }.into(),
        );
        let late = *w.sent_user_messages().last().unwrap();
        assert_ne!((late.stream, late.unordered), (0, false));
    }
}

#[test]
fn a_lost_association_sends_its_requests_again_with_the_t_flag() {
    let transport = PeerTransportConfig::Message { streams: 4, policy: StreamPolicy::BySession };
    let client = test_config("c.example")
        .with_outbound_peer("s1.example", node_address(1), transport)
        .with_outbound_peer("s2.example", node_address(2), transport);
    let servers = ["s1.example", "s2.example"].map(|s| test_config(s).accept_from("c.example"));
    let mut w = NodeTestNetwork::new([vec![client], servers.to_vec()].concat());
    w.run_secs(1);
    for i in 0..5 {
        w.send_command(0, session_request(i, i as u32));
    }
    let first: Vec<_> = w.sent_user_messages()[w.sent_user_messages().len() - 5..].to_vec();
    w.run_secs(2);
    w.reset_connections(1);
    let second: Vec<_> = w.sent_user_messages()[w.sent_user_messages().len() - 5..].to_vec();
    assert_eq!(first, second);
    w.run_secs(3);
    assert_eq!(answer_all(&mut w, 2, ResultCode::SUCCESS), 5);
    w.run_secs(4);
    assert_eq!(received_answers(&w.take_events(0)).len(), 5);
    let flags: Vec<_> = w.sent_by(0, DIAMETER_EAP).iter().map(|h| h.flags.is_retransmitted()).collect();
    assert_eq!(flags, [[false; 5], [true; 5]].concat());
    assert_eq!(w[0].counters().retransmitted, 5);
    assert_eq!(w[0].peer_state(PeerId(0)), Some(State::Closed));
}

#[test]
fn election_keeps_the_association_accepted_by_the_higher_name() {
    let transport = PeerTransportConfig::Message { streams: 4, policy: StreamPolicy::Unordered };
    let mut w = NodeTestNetwork::new(vec![
        test_config("a.example").with_outbound_peer("b.example", node_address(1), transport),
        test_config("b.example").with_outbound_peer("a.example", node_address(0), transport),
    ]);
    w.run_secs(5);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
    assert_eq!([0, 1].map(|i| (w.connections(i).len(), w[i].connection_count())), [(1, 1); 2]);
    w.send_command(0, session_request(1, 1));
    w.run_secs(6);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
}

#[test]
fn an_association_that_does_not_come_up_is_tried_again() {
    let mut w = associated_pair(4, StreamPolicy::SingleStream);
    w.set_dead(1, true);
    w.run_secs(20);
    assert_eq!((w.first_peer_state(0), w[0].counters().connect_failed), (State::Closed, 1));
    w.set_dead(1, false);
    w.run_secs(40);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
}

#[test]
fn a_malformed_user_message_is_counted_and_ends_no_association() {
    let mut w = associated_pair(8, StreamPolicy::BySession);
    exchange_requests(&mut w, 1);
    let theirs = w.connections(1)[0];
    w.send_command(0, session_request(1, 1));
    let good = w.sent_messages().last().unwrap().1.to_vec();
    w.net.drop_in_flight();
    let two = [&good[..], &good[..]].concat();
    let long = vec![1; w[1].config.max_message + 4];
    let answered = w.sent_by(1, DIAMETER_EAP).len();
    for (malformed, data) in
        [(1, &good[..good.len() - 4]), (2, &two), (3, b""), (4, b"GET / HTTP/1.1"), (5, &long)]
    {
        w.feed_message(1, theirs, MessageAssociationEvent::Data { stream: 3, ppid: 46, data });
        assert_eq!(w[1].counters().malformed, malformed);
    }
    // A request's header suffices for an answer, which goes on the request's stream.
    let said = w.sent_by(1, DIAMETER_EAP);
    assert_eq!(said.len(), answered + 2);
    assert_eq!(w.sent_user_messages().last().map(|m| m.stream), Some(3));
    for ppid in [47, 3, u32::MAX] {
        w.feed_message(1, theirs, MessageAssociationEvent::Data { stream: 0, ppid, data: &good });
    }
    assert_eq!((w[1].counters().foreign_payload, w.take_events(1).len()), (3, 0));
    for ppid in [46, 0] {
        w.feed_message(1, theirs, MessageAssociationEvent::Data { stream: 0, ppid, data: &good });
    }
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 2);
    assert_eq!(w.first_peer_state(1), State::ROpen);
}

#[test]
fn early_garbage_ends_no_association_but_silence_does() {
    let mut w = associated_pair(8, StreamPolicy::SingleStream);
    w.run_secs(1);
    let assoc = ConnId::nth_accepted_connection(99);
    w.feed_message(
        1,
        assoc,
        MessageAssociationEvent::Accepted {
            listener: ListenerId::from_number(0),
            remote: node_address(0),
            streams: 2,
        },
    );
    w.feed_message(1, assoc, MessageAssociationEvent::Data { stream: 1, ppid: 46, data: &[7; 40] });
    assert_eq!((w[1].counters().malformed, w[1].connection_count()), (1, 2));
    w.run_secs(20);
    assert_eq!((w[1].counters().not_a_cer, w[1].connection_count()), (1, 1));
}

#[test]
fn events_of_the_wrong_transport_are_counted_as_out_of_state() {
    let mut w = associated_pair(8, StreamPolicy::SingleStream);
    w.run_secs(1);
    let theirs = w.connections(1)[0];
    w.feed_stream(1, theirs, StreamEvent::Data(b"bytes"));
    let stream = ConnId::nth_accepted_connection(99);
    w.feed_stream(1, stream, accepted_event(0));
    w.feed_message(1, stream, MessageAssociationEvent::Data { stream: 0, ppid: 46, data: b"message" });
    w.feed_message(1, stream, MessageAssociationEvent::Up { remote: node_address(0), streams: 4 });
    assert_eq!(w[1].counters().out_of_state, 3);
    assert_eq!((w.first_peer_state(1), w[1].counters().malformed), (State::ROpen, 0));
}

#[test]
fn a_stream_and_an_association_have_different_numbers() {
    let transport = PeerTransportConfig::Message { streams: 4, policy: StreamPolicy::BySession };
    let config = test_config("c.example").connect_to("s1.example", node_address(1)).with_outbound_peer(
        "s2.example",
        node_address(2),
        transport,
    );
    let mut node =
        TestMachine::new(DiameterNode::new(config, Instant::ZERO, Seed::new(1).derive_secure_rng("node", 0)));
    node.handle_input(Instant::ZERO, MachineInput::Timeout);
    let (mut ids, mut buf) = (Vec::new(), Vec::new());
    while let Some(t) = node.poll_transmit(&mut buf) {
        ids.push(match t {
            Transmit::Stream { conn, .. } => conn,
            Transmit::Message { assoc, .. } => assoc,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(ids, [ConnId::nth_opened_connection(0), ConnId::nth_opened_connection(1)]);
}

#[test]
fn an_answer_of_memory_goes_where_the_request_came_from_last() {
    let mut w = associated_pair(8, StreamPolicy::BySession);
    w[0].config.request_timeout = None;
    w.run_secs(1);
    w.send_command(0, session_request(1, 1));
    w.run_until(Duration::from_millis(1006));
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    let asked = *w.sent_user_messages().iter().rfind(|m| m.command == DIAMETER_EAP).unwrap();
    w.reset_connections(0);
    w.net.drop_in_flight();
    w.run_secs(60);
    assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::SUCCESS)]);
    assert_eq!(w[1].counters().duplicate_request, 1);
    let again = *w.sent_user_messages().iter().rfind(|m| m.command == DIAMETER_EAP && !m.request).unwrap();
    assert_eq!(again.stream, asked.stream);
}

proptest::proptest! {
    #[test]
    fn arbitrary_user_messages_never_panic_nor_end_the_association(
        data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80),
        command in 260u32..300, stream in proptest::prelude::any::<u16>(),
    ) {
        let mut w = associated_pair(4, StreamPolicy::BySession);
        w.run_secs(1);
        let theirs = w.connections(1)[0];
        let mut bytes = data.clone();
        bytes.resize(20 + data.len() / 4 * 4, 0);
        bytes[0] = 1;
        let n = (bytes.len() as u32).to_be_bytes();
        bytes[1..4].copy_from_slice(&n[1..]);
        bytes[5..8].copy_from_slice(&command.to_be_bytes()[1..]);
        if command == DISCONNECT_PEER {
            bytes[7] = 0;
        }
        w.feed_message(1, theirs, MessageAssociationEvent::Data { stream, ppid: 46, data: &bytes });
        w.feed_message(1, theirs, MessageAssociationEvent::Data { stream, ppid: 46, data: &data });
        w.run_secs(2);
        proptest::prop_assert_eq!(w.first_peer_state(1), State::ROpen);
    }
}
