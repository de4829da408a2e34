//! Removal of cancelled requests and of peers outside the configuration.

use super::world::*;
use crate::node::*;
use usher_core::Duration;

#[test]
fn a_forgotten_request_is_not_sent_again() {
    let client = test_config("c.example")
        .connect_to("s1.example", node_address(1))
        .connect_to("s2.example", node_address(2));
    let servers = ["s1.example", "s2.example"].map(|s| test_config(s).accept_from("c.example"));
    let mut w = NodeTestNetwork::new([vec![client], servers.to_vec()].concat());
    w.run_secs(1);
    for i in 0..3 {
        w.send_command(0, eap_request(i, b"x"));
    }
    w.send_command(0, DiameterNodeCommand::CancelRequest { token: 1 });
    assert_eq!(w[0].pending_count(), 2);
    let twice = w.net.send_command(w.nodes[0], DiameterNodeCommand::CancelRequest { token: 1 });
    assert_eq!(twice, Err(CommandError::UnknownToken));
    w.run_secs(2);
    w.reset_connections(1);
    assert_eq!(w[0].counters().retransmitted, 2);
    w.run_secs(3);
    assert_eq!(answer_all(&mut w, 2, ResultCode::SUCCESS), 2);
    w.run_secs(100);
    assert_eq!(received_answers(&w.take_events(0)), [(0, ResultCode::SUCCESS), (2, ResultCode::SUCCESS)]);
    assert_eq!(w[0].pending_count(), 0);
}

#[test]
fn a_forgotten_waiting_request_never_leaves_and_frees_its_slot() {
    let mut w = NodeTestNetwork::new(vec![
        test_config("c.example").connect_to("s.example", node_address(1)),
        test_config("s.example").accept_from("c.example"),
    ]);
    w[0].config.max_pending = 2;
    w.send_command(0, eap_request(1, b"x"));
    w.send_command(0, eap_request(2, b"x"));
    w.send_command(0, DiameterNodeCommand::CancelRequest { token: 1 });
    w.send_command(0, eap_request(3, b"x"));
    w.run_secs(1);
    assert_eq!(w.sent_by(0, 268).len(), 2);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 2);
    w.run_secs(2);
    assert_eq!(received_answers(&w.take_events(0)), [(2, ResultCode::SUCCESS), (3, ResultCode::SUCCESS)]);
}

#[test]
fn the_late_answer_to_a_forgotten_request_matches_nothing() {
    let mut w = NodeTestNetwork::new(vec![
        test_config("c.example").connect_to("s.example", node_address(1)),
        test_config("s.example").accept_from("c.example"),
    ]);
    w.run_secs(1);
    w.send_command(0, eap_request(1, b"x"));
    w.run_secs(2);
    w.send_command(0, DiameterNodeCommand::CancelRequest { token: 1 });
    // Its token may be reused at once.
    w.send_command(0, eap_request(1, b"y"));
    assert_eq!(answer_all(&mut w, 1, ResultCode::TOO_BUSY), 1);
    w.run_secs(3);
    assert_eq!(answer_all(&mut w, 1, ResultCode::SUCCESS), 1);
    w.run_secs(4);
    assert_eq!(received_answers(&w.take_events(0)), [(1, ResultCode::SUCCESS)]);
    assert_eq!(w[0].counters().unmatched_answer, 1);
}

#[test]
fn peers_that_came_unasked_are_forgotten_once_gone() {
    let mut server = test_config("s.example").accept_from("known.example");
    server.accept_unknown = true;
    server.max_peers = 3;
    let client = |i| test_config(&format!("c{i}.example")).connect_to("s.example", node_address(0));
    let mut w = NodeTestNetwork::new([vec![server], (0..2).map(client).collect()].concat());
    w.run_secs(1);
    assert_eq!((w[0].known_peer_count(), w[0].connection_count()), (3, 2));
    // More peers than the limit, in sequence. Some disconnect by DPR and some do not.
    for round in 0..200u64 {
        w.run_until(Duration::from_secs(1 + round));
        for i in [1, 2] {
            if round % 3 == 0 {
                w.reset_connections(i);
            } else {
                let cause = DisconnectCause::DoNotWantToTalkToYou;
                w.send_command(i, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause });
            }
        }
        w.run_until(Duration::from_millis(1000 * (1 + round) + 500));
        assert_eq!((w[0].known_peer_count(), w[0].connection_count()), (1, 0));
        for i in [1, 2] {
            w.send_command(i, DiameterNodeCommand::Connect { peer: PeerId(0) });
        }
    }
    w.run_secs(201);
    assert_eq!(w[0].known_peer_count(), 3);
    assert_eq!(w[0].counters().unknown_peer, 0);
    // Each connection has a new peer number.
    let mut ups: Vec<_> = w
        .take_events(0)
        .iter()
        .filter_map(|e| if let DiameterNodeEvent::PeerUp { peer } = e { Some(*peer) } else { None })
        .collect();
    assert_eq!(ups.len(), 402);
    ups.sort_unstable();
    ups.dedup();
    assert_eq!((ups.len(), w[0].peer_state(ups[0])), (402, None));
    assert_eq!(ups.first(), Some(&PeerId(1)));
}

#[test]
fn a_peer_that_is_forgotten_leaves_no_timer_behind() {
    let mut server = test_config("s.example");
    server.accept_unknown = true;
    let mut w =
        NodeTestNetwork::new(vec![server, test_config("c.example").connect_to("s.example", node_address(0))]);
    w.run_secs(100);
    let cause = DisconnectCause::DoNotWantToTalkToYou;
    w.send_command(1, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause });
    w.run_secs(101);
    assert_eq!((w[0].poll_timeout(), w[1].poll_timeout()), (None, None));
}

proptest::proptest! {
    /// Peers connect, disconnect, break and send requests in any order. No event names them after their removal.
    #[test]
    fn any_coming_and_going_is_survived(
        steps in proptest::collection::vec((0u8..6, 0usize..3, 1u64..9_000), 0..60), messages: bool,
    ) {
        let mut server = test_config("s.example").accept_from("known.example");
        server.accept_unknown = true;
        server.max_peers = 3;
        let transport = if messages {
            PeerTransportConfig::Message { streams: 4, policy: crate::stream::StreamPolicy::Unordered }
        } else {
            PeerTransportConfig::Stream
        };
        let client = |i| {
            let mut c = test_config(&format!("c{i}.example")).with_outbound_peer("s.example", node_address(0), transport);
            c.watchdog = Some(Duration::from_secs(6));
            c
        };
        let mut w = NodeTestNetwork::new([vec![server], (0..3).map(client).collect()].concat());
        let (mut t, mut dead) = (Duration::ZERO, [false; 4]);
        for (token, (what, i, wait)) in (0u64..).zip(steps) {
            let (node, peer) = (i + 1, PeerId(0));
            let cause = DisconnectCause::Rebooting;
            match what {
                0 => w.send_command(node, DiameterNodeCommand::Connect { peer }),
                1 => w.send_command(node, DiameterNodeCommand::Disconnect { peer, cause }),
                2 => w.reset_connections(node),
                3 => w.send_command(node, eap_request(token, b"x")),
                4 => {
                    dead[node] = !dead[node];
                    w.set_dead(node, dead[node]);
                }
                _ => {
                    let guest = PeerId(token as u32 % 8);
                    let _ = w.net.send_command(w.nodes[0], DiameterNodeCommand::Disconnect { peer: guest, cause });
                    answer_all(&mut w, 0, ResultCode::SUCCESS);
                }
            }
            t += Duration::from_millis(wait);
            w.run_until(t);
            proptest::prop_assert!(w[0].known_peer_count() <= 3);
        }
        for node in 1..4 {
            w.set_dead(node, false);
            w.reset_connections(node);
            w.send_command(node, DiameterNodeCommand::Disconnect { peer: PeerId(0), cause: DisconnectCause::Busy });
        }
        w.run_until(t + Duration::from_secs(60));
        proptest::prop_assert_eq!((w[0].known_peer_count(), w[0].connection_count()), (1, 0));
    }
}
