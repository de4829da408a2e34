//! Over associations.

use super::world::*;
use crate::codes;
use crate::codes::command::{CAPABILITIES_EXCHANGE, DEVICE_WATCHDOG, DIAMETER_EAP, DISCONNECT_PEER};
use crate::eap::Der;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::*;
use crate::peer::automaton::State;
use crate::stream::StreamPolicy;
use usher_core::bench::Tap;
use usher_core::{Duration, ListenerId, MessageEvent, MessageOp, Seed, Transmit};

fn pair(streams: u16, policy: StreamPolicy) -> World {
    let transport = Transport::Message { streams, policy };
    let mut server = config("s.example").accept("c.example");
    if policy == StreamPolicy::Unordered {
        server.accept_policy = policy;
    }
    World::new(vec![config("c.example").connect_over("s.example", addr(1), transport), server])
}

/// A request of session `session`.
fn request(token: u64, session: u32) -> Command {
    let der = Der {
        request_type: AuthRequestType::AuthenticateOnly,
        eap: b"x",
        user_name: None,
        state: None,
        nas: NasInfo::default(),
    };
    der.request(token, format!("c.example;1;{session}"), "example".into(), None).into()
}

/// Asks `n` questions of as many sessions and answers them all: their ways, then the answers'.
fn ask(w: &mut World, n: u32) -> (Vec<Way>, Vec<Way>) {
    w.run_secs(1);
    for i in 0..n {
        w.command(0, request(i.into(), i));
    }
    w.run_secs(2);
    assert_eq!(answer_all(w, 1, ResultCode::SUCCESS), n as usize);
    w.run_secs(3);
    assert_eq!(answers(&w.take(0)).len(), n as usize);
    let ways = |request| {
        w.ways().iter().filter(|m| m.command == DIAMETER_EAP && m.request == request).copied().collect()
    };
    (ways(true), ways(false))
}

#[test]
fn an_association_is_set_up_and_left_in_good_order_on_stream_zero() {
    for policy in [StreamPolicy::One, StreamPolicy::BySession, StreamPolicy::Unordered] {
        let mut w = pair(8, policy);
        w.run_secs(60);
        assert_eq!((w.state(0), w.state(1)), (State::IOpen, State::ROpen));
        let cause = DisconnectCause::DoNotWantToTalkToYou;
        w.command(0, Command::Disconnect { peer: PeerId(0), cause });
        w.run_secs(100);
        assert_eq!((w.state(0), w.state(1)), (State::Closed, State::Closed));
        assert!(w.ways().iter().all(|m| (m.stream, m.unordered, m.ppid) == (0, false, 46)), "{:?}", w.ways());
        for command in [CAPABILITIES_EXCHANGE, DEVICE_WATCHDOG, DISCONNECT_PEER] {
            let n = w.ways().iter().filter(|m| m.command == command).count();
            assert!(n >= 2, "command {command}: {n}");
        }
        assert_eq!(w[0].counters().total() + w[1].counters().total(), 0);
        assert_eq!((w[0].connections(), w[1].connections()), (0, 0));
    }
}

#[test]
fn one_stream_in_order() {
    let (asked, answered) = ask(&mut pair(8, StreamPolicy::One), 20);
    assert!(asked.iter().chain(&answered).all(|m| (m.stream, m.unordered) == (0, false)));
}

#[test]
fn a_session_keeps_its_stream_and_is_answered_on_it() {
    let mut w = pair(8, StreamPolicy::BySession);
    let (asked, answered) = ask(&mut w, 40);
    let streams = |ways: &[Way]| ways.iter().map(|m| m.stream).collect::<Vec<_>>();
    assert_eq!(streams(&asked), streams(&answered));
    assert!(asked.iter().chain(&answered).all(|m| m.stream < 8 && !m.unordered && m.ppid == 46));
    assert_eq!(streams(&asked), (0..40).map(|i| i % 8).collect::<Vec<u16>>());
    let before = w.ways().len();
    for i in 0..40 {
        w.command(0, request(100 + i, i as u32));
    }
    assert_eq!(streams(&w.ways()[before..]), streams(&asked));
}

#[test]
fn fewer_streams_than_asked_for_bound_the_choice() {
    let mut w = pair(8, StreamPolicy::BySession);
    w.net.grant(3);
    let (asked, answered) = ask(&mut w, 40);
    assert!(asked.iter().chain(&answered).all(|m| m.stream < 3));
    assert!((0..3).all(|s| asked.iter().any(|m| m.stream == s)));
    let mut w = pair(0, StreamPolicy::BySession);
    let (asked, _) = ask(&mut w, 10);
    assert!(asked.iter().all(|m| m.stream == 0));
}

#[test]
fn an_answer_goes_by_a_stream_that_there_is() {
    let mut w = pair(8, StreamPolicy::BySession);
    w.run_secs(1);
    let theirs = w.conns(1)[0];
    w.command(0, request(1, 1));
    let bytes = w.sent().last().unwrap().1.to_vec();
    w.net.clear();
    w.feed_message(1, theirs, MessageEvent::Data { stream: 21, ppid: 46, data: &bytes });
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    assert_eq!(w.ways().last().map(|m| (m.from, m.stream)), Some((1, 5)));
}

#[test]
fn unordered_messages_overtake_each_other_and_all_arrive() {
    let mut w = pair(1, StreamPolicy::Unordered);
    // The first are the slowest, so that all arrive in reverse.
    w.net.meddle(|n, sent| match sent.transmit {
        Transmit::Message { op: MessageOp::Data { unordered: true, .. }, .. } => {
            vec![Duration::from_millis(300 - n as u64)]
        }
        _ => vec![Duration::ZERO],
    });
    w.run_secs(1);
    for i in 0..30 {
        w.command(0, request(i, i as u32));
    }
    w.run(Duration::from_millis(1500));
    let sessions: Vec<_> = w
        .net
        .events(w.nodes[1])
        .iter()
        .filter_map(|(_, e)| match e {
            Event::Request { message, .. } => message.avps.view().get(codes::SESSION_ID)?.utf8().ok(),
            _ => None,
        })
        .map(str::to_string)
        .collect();
    let expected: Vec<_> = (0..30).rev().map(|i| format!("c.example;1;{i}")).collect();
    assert_eq!(sessions, expected);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 30);
    w.run_secs(3);
    assert_eq!(answers(&w.take(0)).len(), 30);
    assert!(w.ways().iter().all(|m| m.unordered == (m.command == DIAMETER_EAP) && m.stream == 0));
}

#[test]
fn a_responder_lets_nothing_overtake_its_cea() {
    // Both can ask; the responder's first request is ready before its peer is known to be open.
    let transport = Transport::Message { streams: 8, policy: StreamPolicy::Unordered };
    for policy in [StreamPolicy::Unordered, StreamPolicy::BySession] {
        let mut server = config("s.example").accept("c.example");
        server.accept_policy = policy;
        let mut w =
            World::new(vec![config("c.example").connect_over("s.example", addr(1), transport), server]);
        w.command(1, request(1, 3));
        w.run_secs(1);
        let Command::Request(r) = request(2, 3) else { unreachable!() };
        w.command(1, Request { destination_host: Some("c.example".into()), ..r.clone() }.into());
        let early = *w.ways().last().unwrap();
        assert_eq!((early.from, early.stream, early.unordered), (1, 0, false));
        // The watchdogs prove both sides.
        w.run_secs(60);
        w.command(1, Request { token: 3, destination_host: Some("c.example".into()), ..r }.into());
        let late = *w.ways().last().unwrap();
        assert_ne!((late.stream, late.unordered), (0, false));
    }
}

#[test]
fn a_lost_association_sends_its_requests_again_with_the_t_flag() {
    let transport = Transport::Message { streams: 4, policy: StreamPolicy::BySession };
    let client = config("c.example").connect_over("s1.example", addr(1), transport).connect_over(
        "s2.example",
        addr(2),
        transport,
    );
    let servers = ["s1.example", "s2.example"].map(|s| config(s).accept("c.example"));
    let mut w = World::new([vec![client], servers.to_vec()].concat());
    w.run_secs(1);
    for i in 0..5 {
        w.command(0, request(i, i as u32));
    }
    let first: Vec<_> = w.ways()[w.ways().len() - 5..].to_vec();
    w.run_secs(2);
    w.cut(1);
    let second: Vec<_> = w.ways()[w.ways().len() - 5..].to_vec();
    assert_eq!(first, second);
    w.run_secs(3);
    assert_eq!(answer_all(&mut w, 2, ResultCode::SUCCESS), 5);
    w.run_secs(4);
    assert_eq!(answers(&w.take(0)).len(), 5);
    let flags: Vec<_> = w.sent_by(0, DIAMETER_EAP).iter().map(|h| h.flags.is_retransmitted()).collect();
    assert_eq!(flags, [[false; 5], [true; 5]].concat());
    assert_eq!(w[0].counters().retransmitted, 5);
    assert_eq!(w[0].peer_state(PeerId(0)), Some(State::Closed));
}

#[test]
fn both_call_at_once_and_the_higher_name_keeps_the_association_it_was_called_on() {
    let transport = Transport::Message { streams: 4, policy: StreamPolicy::Unordered };
    let mut w = World::new(vec![
        config("a.example").connect_over("b.example", addr(1), transport),
        config("b.example").connect_over("a.example", addr(0), transport),
    ]);
    w.run_secs(5);
    assert_eq!((w.state(0), w.state(1)), (State::IOpen, State::ROpen));
    assert_eq!([0, 1].map(|i| (w.conns(i).len(), w[i].connections())), [(1, 1); 2]);
    w.command(0, request(1, 1));
    w.run_secs(6);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
}

#[test]
fn an_association_that_does_not_come_up_is_tried_again() {
    let mut w = pair(4, StreamPolicy::One);
    w.dead(1, true);
    w.run_secs(20);
    assert_eq!((w.state(0), w[0].counters().connect_failed), (State::Closed, 1));
    w.dead(1, false);
    w.run_secs(40);
    assert_eq!((w.state(0), w.state(1)), (State::IOpen, State::ROpen));
}

#[test]
fn a_user_message_that_is_not_one_message_is_counted_and_the_association_stays() {
    let mut w = pair(8, StreamPolicy::BySession);
    ask(&mut w, 1);
    let theirs = w.conns(1)[0];
    w.command(0, request(1, 1));
    let good = w.sent().last().unwrap().1.to_vec();
    w.net.clear();
    let two = [&good[..], &good[..]].concat();
    let long = vec![1; w[1].config.max_message + 4];
    let answered = w.sent_by(1, DIAMETER_EAP).len();
    for (malformed, data) in
        [(1, &good[..good.len() - 4]), (2, &two), (3, b""), (4, b"GET / HTTP/1.1"), (5, &long)]
    {
        w.feed_message(1, theirs, MessageEvent::Data { stream: 3, ppid: 46, data });
        assert_eq!(w[1].counters().malformed, malformed);
    }
    // The header of a request tells whom to answer, and that goes where it came from.
    let said = w.sent_by(1, DIAMETER_EAP);
    assert_eq!(said.len(), answered + 2);
    assert_eq!(w.ways().last().map(|m| m.stream), Some(3));
    for ppid in [47, 3, u32::MAX] {
        w.feed_message(1, theirs, MessageEvent::Data { stream: 0, ppid, data: &good });
    }
    assert_eq!((w[1].counters().foreign_payload, w.take(1).len()), (3, 0));
    for ppid in [46, 0] {
        w.feed_message(1, theirs, MessageEvent::Data { stream: 0, ppid, data: &good });
    }
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 2);
    assert_eq!(w.state(1), State::ROpen);
}

#[test]
fn garbage_before_the_capabilities_ends_nothing_but_a_silent_association_goes() {
    let mut w = pair(8, StreamPolicy::One);
    w.run_secs(1);
    let assoc = ConnId::accepted(99);
    w.feed_message(
        1,
        assoc,
        MessageEvent::Accepted { listener: ListenerId::own(0), remote: addr(0), streams: 2 },
    );
    w.feed_message(1, assoc, MessageEvent::Data { stream: 1, ppid: 46, data: &[7; 40] });
    assert_eq!((w[1].counters().malformed, w[1].connections()), (1, 2));
    w.run_secs(20);
    assert_eq!((w[1].counters().not_a_cer, w[1].connections()), (1, 1));
}

#[test]
fn bytes_on_an_association_and_messages_on_a_stream_are_out_of_place() {
    let mut w = pair(8, StreamPolicy::One);
    w.run_secs(1);
    let theirs = w.conns(1)[0];
    w.feed(1, theirs, StreamEvent::Data(b"bytes"));
    let stream = ConnId::accepted(99);
    w.feed(1, stream, accepted(0));
    w.feed_message(1, stream, MessageEvent::Data { stream: 0, ppid: 46, data: b"message" });
    w.feed_message(1, stream, MessageEvent::Up { remote: addr(0), streams: 4 });
    assert_eq!(w[1].counters().out_of_state, 3);
    assert_eq!((w.state(1), w[1].counters().malformed), (State::ROpen, 0));
}

#[test]
fn a_stream_and_an_association_have_different_numbers() {
    let transport = Transport::Message { streams: 4, policy: StreamPolicy::BySession };
    let config =
        config("c.example").connect_to("s1.example", addr(1)).connect_over("s2.example", addr(2), transport);
    let mut node = Tap::new(Node::new(config, Instant::ZERO, Seed::new(1).secure("node", 0)));
    node.handle(Instant::ZERO, Input::Timeout);
    let (mut ids, mut buf) = (Vec::new(), Vec::new());
    while let Some(t) = node.poll_transmit(&mut buf) {
        ids.push(match t {
            Transmit::Stream { conn, .. } => conn,
            Transmit::Message { assoc, .. } => assoc,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(ids, [ConnId::opened(0), ConnId::opened(1)]);
}

#[test]
fn an_answer_of_memory_goes_where_the_request_came_from_last() {
    let mut w = pair(8, StreamPolicy::BySession);
    w[0].config.request_timeout = None;
    w.run_secs(1);
    w.command(0, request(1, 1));
    w.run(Duration::from_millis(1006));
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    let asked = *w.ways().iter().rfind(|m| m.command == DIAMETER_EAP).unwrap();
    w.cut(0);
    w.net.clear();
    w.run_secs(60);
    assert_eq!(answers(&w.take(0)), [(1, ResultCode::SUCCESS)]);
    assert_eq!(w[1].counters().duplicate_request, 1);
    let again = *w.ways().iter().rfind(|m| m.command == DIAMETER_EAP && !m.request).unwrap();
    assert_eq!(again.stream, asked.stream);
}

proptest::proptest! {
    #[test]
    fn arbitrary_user_messages_never_panic_nor_end_the_association(
        data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80),
        command in 260u32..300, stream in proptest::prelude::any::<u16>(),
    ) {
        let mut w = pair(4, StreamPolicy::BySession);
        w.run_secs(1);
        let theirs = w.conns(1)[0];
        let mut bytes = data.clone();
        bytes.resize(20 + data.len() / 4 * 4, 0);
        bytes[0] = 1;
        let n = (bytes.len() as u32).to_be_bytes();
        bytes[1..4].copy_from_slice(&n[1..]);
        bytes[5..8].copy_from_slice(&command.to_be_bytes()[1..]);
        if command == DISCONNECT_PEER {
            bytes[7] = 0;
        }
        w.feed_message(1, theirs, MessageEvent::Data { stream, ppid: 46, data: &bytes });
        w.feed_message(1, theirs, MessageEvent::Data { stream, ppid: 46, data: &data });
        w.run_secs(2);
        proptest::prop_assert_eq!(w.state(1), State::ROpen);
    }
}
