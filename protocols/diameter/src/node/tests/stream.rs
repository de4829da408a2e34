//! Nodes over byte streams.

use super::world::*;
use crate::codes;
use crate::eap::{DiameterEapAnswer, DiameterEapRequest};
use crate::message::MessageView;
use crate::node::*;
use crate::peer::automaton::State;
use crate::peer::capabilities::DiameterApplication;
use usher_core::Duration;

#[test]
fn two_rounds_of_eap_even_in_single_bytes() {
    for piece in [usize::MAX, 1] {
        let mut w = connected_pair();
        w.net.set_segment_size(piece);
        w.send_command(0, eap_request(1, b"identity"));
        w.run_secs(1);
        assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
        assert_eq!(answer_all(&mut w, 1, ResultCode::MULTI_ROUND_AUTH), 1);
        w.run_secs(2);
        assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::MULTI_ROUND_AUTH)]);
        w.send_command(0, eap_request(2, b"response"));
        w.run_secs(3);
        assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
        w.run_secs(4);
        let events = w.take_events(0);
        let [DiameterNodeEvent::Answer { token: 2, result: ResultCode::SUCCESS, avps }] = &events[..] else {
            panic!("{events:?}")
        };
        let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
        assert_eq!((dea.eap, dea.origin_host), (Some(&b"reply"[..]), Some("s.example")));
        assert_eq!(avps.as_sequence().next().map(|a| a.code), Some(codes::SESSION_ID.code));
        assert_eq!(w[0].counters().total() + w[1].counters().total(), 0);
        assert_eq!(w[0].pending_count(), 0);
        let dictionary = crate::dictionary::DiameterDictionary::builtin();
        for (_, bytes) in &w.sent_messages() {
            let view = MessageView::parse(bytes).unwrap();
            assert_eq!(dictionary.check_message(&view), Ok(()), "{}", dictionary.display_message(&view));
        }
    }
}

#[test]
fn a_node_that_was_told_no_address_names_each_connections_own() {
    let mut configs = vec![
        test_config("c.example").connect_to("s.example", node_address(1)),
        test_config("s.example").accept_from("c.example"),
    ];
    configs.iter_mut().for_each(|c| c.local.addresses.clear());
    let mut w = NodeTestNetwork::new(configs);
    w.run_secs(1);
    for (node, other) in [(0, 1), (1, 0)] {
        let capabilities = w[node].peer_capabilities(PeerId(0)).unwrap();
        assert_eq!(capabilities.addresses, [node_address(other).ip()]);
    }
}

#[test]
fn watchdogs_keep_an_idle_connection() {
    let mut w = connected_pair();
    w.run_secs(300);
    // Each side's watchdog postpones the other's, so there is about one for each Tw.
    let dwrs = [0, 1].map(|i| w.sent_by(i, 280).iter().filter(|h| h.flags.is_request()).count());
    assert!((9..=20).contains(&(dwrs[0] + dwrs[1])), "{dwrs:?}");
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
    assert_eq!(w[0].watchdog_state(PeerId(0)), Some(watchdog::State::Okay));
}

#[test]
pub(super) fn a_silent_peer_is_left_for_the_alternate_with_the_t_flag() {
    let mut c = test_config("c.example")
        .connect_to("s1.example", node_address(1))
        .connect_to("s2.example", node_address(2));
    c.request_timeout = None;
    let servers = ["s1.example", "s2.example"].map(|s| test_config(s).accept_from("c.example"));
    let mut w = NodeTestNetwork::new([vec![c], servers.to_vec()].concat());
    w.run_secs(1);
    w.set_dead(1, true);
    w.send_command(0, eap_request(1, b"x"));
    w.run_secs(100);
    assert_eq!(w[0].counters().watchdog_timeout, 1);
    assert_eq!(answer_all(&mut w, 2, ResultCode::SUCCESS), 1);
    w.run_secs(101);
    assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::SUCCESS)]);
    let sent = w.sent_by(0, 268);
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].end_to_end, sent[1].end_to_end);
    assert_ne!(sent[0].hop_by_hop, sent[1].hop_by_hop);
    assert!(!sent[0].flags.is_retransmitted() && sent[1].flags.is_retransmitted());
    assert_eq!(w[0].watchdog_state(PeerId(0)), Some(watchdog::State::Down));
}

#[test]
pub(super) fn a_lost_connection_comes_back_after_tc_with_its_requests() {
    let mut w = connected_pair();
    w[0].config.request_timeout = None;
    w.run_secs(1);
    w.send_command(0, eap_request(1, b"x"));
    w.run_secs(2);
    w.reset_connections(0);
    assert_eq!(w.first_peer_state(0), State::Closed);
    w.run_secs(31);
    assert_eq!(w.first_peer_state(0), State::Closed);
    w.run_secs(33);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
    assert_eq!(w[0].watchdog_state(PeerId(0)), Some(watchdog::State::Reopen));
    assert_eq!(w[1].counters().duplicate_request, 1);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    w.run_secs(34);
    assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::SUCCESS)]);
    w.run_secs(120);
    assert_eq!(w[0].watchdog_state(PeerId(0)), Some(watchdog::State::Okay));
}

#[test]
fn an_answered_request_that_comes_again_is_answered_from_memory() {
    let mut w = connected_pair();
    w[0].config.request_timeout = None;
    w.run_secs(1);
    w.send_command(0, eap_request(1, b"x"));
    w.run_until(Duration::from_millis(1006));
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    w.reset_connections(0);
    w.net.drop_in_flight();
    w.run_secs(60);
    assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::SUCCESS)]);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 0);
    assert_eq!(w[1].counters().duplicate_request, 1);
}

#[test]
fn without_resending_a_lost_connection_fails_its_requests() {
    let mut w = connected_pair();
    w[0].config.resend_to_same_peer = false;
    w.run_secs(1);
    w.send_command(0, eap_request(1, b"x"));
    w.run_secs(2);
    w.reset_connections(0);
    assert!(
        w.take_events(0)
            .contains(&DiameterNodeEvent::Failed { token: 1, reason: FailReason::ConnectionLost })
    );
    assert_eq!(w[0].pending_count(), 0);
}

#[test]
pub(super) fn disconnection_in_good_order() {
    let mut w = connected_pair();
    w.run_secs(1);
    w.send_command(
        0,
        DiameterNodeCommand::Disconnect { peer: PeerId(0), cause: DisconnectCause::DoNotWantToTalkToYou },
    );
    assert_eq!(w.first_peer_state(0), State::Closing);
    w.run_secs(100);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::Closed, State::Closed));
    assert_eq!(w.sent_by(1, 282).len(), 1);
    assert_eq!(w.sent_by(0, 257).len(), 1);
    assert!(w.take_events(1).contains(&DiameterNodeEvent::PeerDown { peer: PeerId(0) }));
    w.send_command(0, DiameterNodeCommand::Connect { peer: PeerId(0) });
    w.run_secs(101);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
}

#[test]
fn both_call_at_once_and_the_higher_name_wins() {
    let mut w = NodeTestNetwork::new(vec![
        test_config("a.example").connect_to("b.example", node_address(1)),
        test_config("b.example").connect_to("a.example", node_address(0)),
    ]);
    w.run_secs(5);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
    assert_eq!([0, 1].map(|i| w.connections(i).len()), [1, 1]);
    w.send_command(0, eap_request(1, b"x"));
    w.run_secs(6);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
}

#[test]
fn strangers_and_nodes_without_common_ground_are_refused() {
    let mut w = NodeTestNetwork::new(vec![
        test_config("x.example").connect_to("s.example", node_address(1)),
        test_config("s.example"),
    ]);
    w.run_secs(1);
    assert_eq!((w[1].counters().unknown_peer, w[0].counters().unknown_peer), (1, 1));
    assert_eq!(w.first_peer_state(0), State::Closed);

    let mut s = test_config("s.example").accept_from("c.example");
    s.local.applications = vec![DiameterApplication::for_accounting(3)];
    let mut w =
        NodeTestNetwork::new(vec![test_config("c.example").connect_to("s.example", node_address(1)), s]);
    w.run_secs(1);
    assert_eq!((w[1].counters().no_common_application, w[0].counters().no_common_application), (1, 1));
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::Closed, State::Closed));

    let mut s = test_config("s.example");
    s.accept_unknown = true;
    let mut w =
        NodeTestNetwork::new(vec![test_config("c.example").connect_to("s.example", node_address(1)), s]);
    w.run_secs(1);
    assert_eq!((w.first_peer_state(0), w.first_peer_state(1)), (State::IOpen, State::ROpen));
}

#[test]
fn requests_time_out_and_are_bounded() {
    let mut w = connected_pair();
    w.set_dead(1, true);
    w[0].config.max_pending = 2;
    w.send_command(0, eap_request(1, b"x"));
    w.send_command(0, eap_request(2, b"x"));
    assert!(matches!(w.net.send_command(w.nodes[0], eap_request(3, b"x")), Err(CommandError::Full(_))));
    w.run_secs(31);
    let failed = |token| DiameterNodeEvent::Failed { token, reason: FailReason::TimedOut };
    assert_eq!(w.take_events(0), [failed(1), failed(2)]);
    assert_eq!(w[0].pending_count(), 0);
    assert!(w[0].counters().connect_failed >= 1);
}

#[test]
fn requests_that_are_not_for_us_get_the_rfcs_answer() {
    let mut w = connected_pair();
    w.run_secs(1);
    let DiameterNodeCommand::Request(base) = eap_request(0, b"x") else { unreachable!() };
    let mut looped = base.avps.clone();
    looped.push_str(codes::ROUTE_RECORD, "S.example");
    for (token, request) in [
        (3003, DiameterRequest { destination_realm: "elsewhere".into(), ..base.clone() }),
        (3002, DiameterRequest { destination_host: Some("other.example".into()), ..base.clone() }),
        (3005, DiameterRequest { avps: looped, ..base.clone() }),
    ] {
        w.send_command(0, DiameterRequest { token, ..request }.into());
    }
    w[1].config.max_inbound = 0;
    let host = Some("s.example".into());
    w.send_command(0, DiameterRequest { token: 3004, destination_host: host, ..base.clone() }.into());
    w.send_command(0, DiameterRequest { token: 1, application: 4, ..base }.into());
    w.run_secs(2);
    let events = w.take_events(0);
    assert!(events.contains(&DiameterNodeEvent::Failed { token: 1, reason: FailReason::NoRoute }));
    let got = received_answers(&events);
    assert_eq!(got.len(), 4);
    assert!(got.iter().all(|(token, code)| u64::from(code.0) == *token), "{got:?}");
    assert!(w.sent_by(1, 268).iter().all(|h| h.flags.is_error()));
    assert_eq!((w[1].counters().not_for_us, w[1].counters().loop_detected), (2, 1));
}

#[test]
fn a_service_rejects_with_failed_avp() {
    let mut w = connected_pair();
    w.run_secs(1);
    let DiameterNodeCommand::Request(r) = eap_request(5, b"x") else { unreachable!() };
    w.send_command(0, DiameterRequest { avps: AvpBuf::new(), ..r }.into());
    w.run_secs(2);
    let Some(DiameterNodeEvent::Request { token, message, .. }) = w.take_events(1).pop() else { panic!() };
    let fault = DiameterEapRequest::parse(message.avps.as_sequence()).unwrap_err();
    w.send_command(1, DiameterNodeCommand::Reject { token, fault: fault.clone() });
    assert_eq!(
        w.net.send_command(w.nodes[1], DiameterNodeCommand::Reject { token, fault }),
        Err(CommandError::UnknownToken)
    );
    w.run_secs(3);
    let events = w.take_events(0);
    let Some(DiameterNodeEvent::Answer { result: ResultCode::MISSING_AVP, avps, .. }) = events.last() else {
        panic!("{events:?}")
    };
    let failed = avps.as_sequence().get(codes::FAILED_AVP).unwrap().as_group().unwrap().next().unwrap();
    assert_eq!(failed.code, codes::AUTH_REQUEST_TYPE.code);
}

#[test]
fn garbage_ends_a_connection_and_is_counted() {
    let mut w = connected_pair();
    w.run_secs(1);
    let conn = ConnId::nth_accepted_connection(99);
    w.feed_stream(1, conn, accepted_event(0));
    w.feed_stream(1, conn, StreamEvent::Data(b"GET / HTTP/1.1\r\n\r\n"));
    assert_eq!(w[1].counters().unframable, 1);
    let silent = ConnId::nth_accepted_connection(100);
    w.feed_stream(1, silent, accepted_event(0));
    w.run_secs(20);
    assert_eq!(w[1].counters().not_a_cer, 1);
    assert_eq!(w.first_peer_state(1), State::ROpen);
}

#[test]
fn without_watchdog_nothing_is_sent_while_idle() {
    let mut configs = vec![
        test_config("c.example").connect_to("s.example", node_address(1)),
        test_config("s.example").accept_from("c.example"),
    ];
    configs.iter_mut().for_each(|c| c.watchdog = None);
    let mut w = NodeTestNetwork::new(configs);
    w.run_secs(600);
    assert!(w.sent_by(0, 280).is_empty());
    w.reset_connections(0);
    w.run_secs(700);
    assert_eq!(w[0].watchdog_state(PeerId(0)), Some(watchdog::State::Okay));
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_on_an_open_connection_never_panic(data in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), command in 0u32..300) {
        let mut w = connected_pair();
        w.run_secs(1);
        let conn = w.connections(1)[0];
        let mut bytes = data.clone();
        bytes.resize(20 + data.len() / 4 * 4, 0);
        bytes[0] = 1;
        let n = (bytes.len() as u32).to_be_bytes();
        bytes[1..4].copy_from_slice(&n[1..]);
        bytes[5..8].copy_from_slice(&command.to_be_bytes()[1..]);
        w.feed_stream(1, conn, StreamEvent::Data(&bytes));
        w.feed_stream(1, conn, StreamEvent::Data(&data));
        w.run_secs(2);
    }
}
