//! Messages over TCP and SCTP.

use super::*;
use usher_core::TransportProtocol;

fn stream_pair(transport: TransportProtocol, ack: bool) -> MihfPair {
    MihfPair::new(transport, ack, |_| ())
}

const PROCESSING: Duration = Duration::from_millis(200);

#[test]
fn the_first_message_opens_a_connection_that_responses_reuse() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = stream_pair(transport, false);
        pair.send_message(STATION, 1, test_request());
        pair.serve_until(PROCESSING, at_millis(1000));
        pair.send_message(STATION, 2, test_indication());
        pair.send_message(POS, 3, test_indication());
        pair.run_until(at_millis(2000));
        let expected = [
            "0 mn connect",
            "40 mn request",
            "260 pos response",
            "1000 mn indication",
            "1000 pos indication",
        ];
        assert_eq!(pair.sent_log(), expected, "{transport:?}");
        let done = [(280, 1, "response".into()), (1000, 2, "done".into()), (1000, 3, "done".into())];
        assert_eq!(pair.done_events(), done);
        assert_eq!((pair.delivered_count(STATION), pair.delivered_count(POS)), (1, 2));
        assert_eq!(pair.counters(STATION).unreliable, 0);
    }
}

#[test]
fn acknowledgements_go_over_connections_too() {
    let mut pair = stream_pair(TransportProtocol::Tcp, true);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    let expected =
        ["0 mn connect", "40 mn request+req", "60 pos ack", "260 pos response+req+rsp", "280 mn ack"];
    assert_eq!(pair.sent_log(), expected);
}

#[test]
fn what_is_sent_again_while_a_connection_opens_waits_as_well() {
    let mut pair = stream_pair(TransportProtocol::Tcp, true);
    let slow = |config: &mut MihfConfig| config.timing.retransmission = Duration::from_millis(15);
    *pair.mihf_mut(STATION) = {
        let mut config = MihfConfig::new(mihf_id(STATION));
        slow(&mut config);
        Mihf::new(config, Seed::new(7).derive_rng("mihf", 0))
    };
    let peer = MihfPeer { id: mihf_id(POS), route: route_to(TransportProtocol::Tcp, POS), ack: true };
    pair.issue_command(STATION, MihfCommand::Peer(peer)).unwrap();
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(
        pair.sent_log()[..4],
        ["0 mn connect", "40 mn indication+req", "40 mn indication+req", "40 mn indication+req"]
    );
    assert_eq!(pair.delivered_count(POS), 1);
    assert_eq!(pair.done_events(), [(45, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).late_acks, 3);
}

#[test]
fn messages_are_cut_out_of_a_stream_wherever_its_segments_end() {
    for chunk in 1..80 {
        let mut pair = stream_pair(TransportProtocol::Tcp, true);
        pair.net.set_segment_size(chunk);
        for token in 0..5 {
            pair.send_message(STATION, token, test_indication());
        }
        pair.send_message(STATION, 5, test_request());
        pair.serve_until(PROCESSING, at_millis(1000));
        assert_eq!(pair.delivered_count(POS), 6, "{chunk}");
        let mut done = pair.done_events();
        done.sort();
        assert_eq!(done.len(), 6);
        assert_eq!(done[5], (280, 5, "response".into()), "{chunk}");
    }
}

#[test]
fn a_closed_connection_is_reopened_for_the_next_message() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = stream_pair(transport, true);
        pair.send_message(STATION, 1, test_indication());
        pair.run_until(at_millis(500));
        pair.reset_connections();
        pair.run_until(at_millis(1000));
        pair.send_message(STATION, 2, test_indication());
        pair.run_until(at_millis(2000));
        assert_eq!(pair.sent_log()[3..5], ["1000 mn connect", "1040 mn indication+req"]);
        assert_eq!(pair.done_events().len(), 2);
    }
}

#[test]
fn what_was_under_way_is_sent_again_by_the_rules_of_mih_alone() {
    let mut with = stream_pair(TransportProtocol::Tcp, true);
    with.send_message(STATION, 1, test_indication());
    with.run_until(at_millis(50));
    with.reset_connections();
    with.run_until(at_millis(1000));
    let expected =
        ["0 mn connect", "40 mn indication+req", "100 mn connect", "140 mn indication+req", "160 pos ack"];
    assert_eq!(with.sent_log(), expected);
    assert_eq!(with.done_events(), [(180, 1, "done".into())]);
    let mut without = stream_pair(TransportProtocol::Tcp, false);
    without.send_message(STATION, 1, test_request());
    without.run_until(at_millis(50));
    without.reset_connections();
    without.run_until(at_millis(20_000));
    assert_eq!(without.sent_log(), ["0 mn connect", "40 mn request"]);
    assert_eq!(without.done_events(), [(50, 1, "Transport".into())]);
}

#[test]
fn a_request_without_acks_ends_with_its_last_connection() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let settings = |c: &mut MihfConfig| c.transaction = None;
        let mut pair = MihfPair::new(transport, false, settings);
        pair.send_message(STATION, 1, test_request());
        pair.serve_until(PROCESSING, at_millis(500));
        pair.send_message(STATION, 2, test_request());
        pair.send_message(STATION, 3, test_indication());
        pair.send_message(STATION, 4, test_request());
        pair.issue_command(STATION, MihfCommand::Abandon { token: 4 }).unwrap();
        pair.run_until(at_millis(510));
        pair.reset_connections();
        pair.run_until(at_millis(60_000));
        let expected = [(280, 1, "response".into()), (500, 3, "done".into()), (510, 2, "Transport".into())];
        assert_eq!(pair.done_events(), expected, "{transport:?}");
        // The closed connection does not affect messages sent by another route since.
        let mut pair = MihfPair::new(transport, false, settings);
        pair.send_message(STATION, 1, test_request());
        pair.run_until(at_millis(10));
        let route = PeerRoute { local: Some(IpAddr::from([10, 0, 9, 1])), ..route_to(transport, POS) };
        pair.issue_command(STATION, MihfCommand::Peer(MihfPeer { id: mihf_id(POS), route, ack: false }))
            .unwrap();
        let aborted = ConnId::nth_opened_connection(0);
        let down = match transport {
            TransportProtocol::Sctp => MachineInput::Message {
                assoc: aborted,
                event: MessageAssociationEvent::Down(CloseReason::Reset),
            },
            _ => MachineInput::Stream { conn: aborted, event: StreamEvent::Closed(CloseReason::Reset) },
        };
        pair.feed_input(STATION, down);
        pair.run_until(at_millis(60));
        assert!(pair.done_events().is_empty());
        pair.reset_connections();
        pair.run_until(at_millis(60_000));
        assert_eq!(pair.done_events(), [(60, 1, "Transport".into())], "{transport:?}");
    }
}

/// A lost connection does not fail a request that has retransmissions for a missing response left.
#[test]
fn a_request_that_is_to_be_sent_again_outlives_its_connection() {
    let settings = |c: &mut MihfConfig| {
        c.transaction = None;
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = ResponseTimeoutPolicy::Retransmit;
    };
    let mut pair = MihfPair::new(TransportProtocol::Tcp, false, settings);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(50));
    pair.reset_connections();
    pair.serve_until(PROCESSING, at_millis(1500));
    let expected = ["0 mn connect", "40 mn request", "500 mn connect", "540 mn request"];
    assert_eq!(pair.sent_log()[..4], expected);
    assert_eq!(pair.done_events().len(), 1);
    assert_eq!(pair.done_events()[0].2, "response");
    let mut pair = MihfPair::new(TransportProtocol::Tcp, false, settings);
    pair.net.set_refusing_connections(pair.sides[POS], true);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(5000));
    assert_eq!(pair.sent_log(), ["0 mn connect", "500 mn connect", "1000 mn connect"]);
    assert_eq!(pair.done_events(), [(1040, 1, "Transport".into())]);
}

#[test]
fn an_abandoned_connection_stays_closed_if_it_comes_up_late() {
    let mut pair = stream_pair(TransportProtocol::Tcp, true);
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(10));
    let moved =
        PeerRoute { local: Some(IpAddr::from([10, 0, 9, 1])), ..route_to(TransportProtocol::Tcp, POS) };
    pair.issue_command(STATION, MihfCommand::Peer(MihfPeer { id: mihf_id(POS), route: moved, ack: true }))
        .unwrap();
    pair.run_until(at_millis(40));
    let remote = SocketAddr::new(side_ip(POS), PORT);
    let event = StreamEvent::Connected { remote, local: None, certificate: None };
    pair.feed_input(STATION, MachineInput::Stream { conn: ConnId::nth_opened_connection(0), event });
    pair.run_until(at_millis(1000));
    let mut open =
        |n| pair.mihf_mut(STATION).net.is_open(ReplyPath::Connection(ConnId::nth_opened_connection(n)));
    assert_eq!([open(0), open(1)], [false, true]);
}

#[test]
fn without_acknowledgements_a_refused_connection_ends_a_request() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = stream_pair(transport, false);
        pair.net.set_refusing_connections(pair.sides[POS], true);
        pair.send_message(STATION, 1, test_request());
        pair.run_until(at_millis(1000));
        assert_eq!(pair.done_events(), [(40, 1, "Transport".into())]);
        assert_eq!(pair.counters(STATION).not_connected, 1);
    }
}

#[test]
fn with_acknowledgements_it_is_tried_again() {
    let mut pair = stream_pair(TransportProtocol::Tcp, true);
    pair.net.set_refusing_connections(pair.sides[POS], true);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(90));
    pair.net.set_refusing_connections(pair.sides[POS], false);
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.sent_log()[..3], ["0 mn connect", "100 mn connect", "140 mn request+req"]);
    assert_eq!(pair.done_events(), [(180, 1, "response".into())]);
}

#[test]
fn what_waits_for_a_connection_is_bounded() {
    let mut one = Vec::new();
    let (bits, tid) = (crate::HeaderFlags::default(), crate::TransactionId::new(0));
    test_request().encode(bits, tid, &mihf_id(STATION), &mihf_id(POS), &mut one).unwrap();
    let room = 4 * one.len() - 1;
    let mut pair = MihfPair::new(TransportProtocol::Tcp, false, |c| c.max_queue = room);
    for token in 0..5 {
        pair.send_message(STATION, token, test_request());
    }
    let failed = vec![(0, 3, "Transport".to_owned()), (0, 4, "Transport".into())];
    assert_eq!(pair.done_events(), failed);
    assert_eq!(pair.counters(STATION).queue_full, 2);
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.done_events().len(), 5);
    // The queue counts the octets of a message.
    let mut pair = MihfPair::new(TransportProtocol::Tcp, false, |c| c.max_queue = room);
    pair.send_message(
        STATION,
        1,
        test_request().with_padding_to_length(room + 1, &mihf_id(STATION), &mihf_id(POS)).unwrap(),
    );
    pair.send_message(
        STATION,
        2,
        test_request().with_padding_to_length(room, &mihf_id(STATION), &mihf_id(POS)).unwrap(),
    );
    assert_eq!(pair.done_events(), [(0, 1, "Transport".into())]);
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.done_events().len(), 2);
}

#[test]
fn a_stream_that_cannot_be_cut_into_messages_is_closed() {
    let mut pair = stream_pair(TransportProtocol::Tcp, false);
    let remote = SocketAddr::new(side_ip(STATION), 50_000);
    pair.inject_stream_event(POS, 9, accepted_event(remote));
    pair.inject_stream_event(POS, 9, StreamEvent::Data(&[0x70, 0, 0, 0, 0, 0, 0]));
    assert!(pair.sent_log().is_empty(), "less than a header says nothing");
    pair.inject_stream_event(POS, 9, StreamEvent::Data(&[0, 1, 2, 3]));
    assert_eq!(pair.sent_log(), ["0 pos abort"]);
    assert_eq!(pair.counters(POS).broken_streams, 1);
    pair.inject_stream_event(POS, 9, StreamEvent::Data(&[1, 2, 3]));
    assert_eq!(pair.counters(POS).received, 0);
}

#[test]
fn a_malformed_message_does_not_end_its_stream() {
    let mut pair = stream_pair(TransportProtocol::Tcp, false);
    let remote = SocketAddr::new(side_ip(STATION), 50_000);
    let mut octets = vec![0x10, 0, 0x34, 7, 0, 1, 0, 1, 0xff];
    test_indication()
        .encode(
            crate::HeaderFlags::default(),
            crate::TransactionId::new(5),
            &mihf_id(STATION),
            &mihf_id(POS),
            &mut octets,
        )
        .unwrap();
    pair.inject_stream_event(POS, 9, accepted_event(remote));
    pair.inject_stream_event(POS, 9, StreamEvent::Data(&octets));
    let c = pair.counters(POS);
    assert_eq!((c.malformed, c.broken_streams, pair.delivered_count(POS)), (1, 0, 1));
}

#[test]
fn each_service_has_its_stream_of_an_association() {
    let mut pair = stream_pair(TransportProtocol::Sctp, false);
    let down = MihfMessage::new(MessageId::DEREGISTER_REQUEST, []);
    pair.send_message(STATION, 1, down);
    pair.send_message(STATION, 2, test_indication());
    pair.run_until(at_millis(1000));
    assert_eq!(pair.used_streams(), [0, 3, 0]);
}

#[test]
fn a_new_route_opens_a_connection_and_takes_waiting_messages() {
    let mut pair = stream_pair(TransportProtocol::Tcp, true);
    let moved =
        |transport| PeerRoute { local: Some(IpAddr::from([10, 0, 9, 1])), ..route_to(transport, POS) };
    pair.send_message(STATION, 1, test_indication());
    pair.run_until(at_millis(10));
    let peer = |route| MihfCommand::Peer(MihfPeer { id: mihf_id(POS), route, ack: true });
    pair.issue_command(STATION, peer(moved(TransportProtocol::Tcp))).unwrap();
    pair.run_until(at_millis(1000));
    let expected = ["0 mn connect", "10 mn abort", "10 mn connect", "50 mn indication+req", "70 pos ack"];
    assert_eq!(pair.sent_log(), expected);
    pair.send_message(STATION, 2, test_indication());
    pair.run_until(at_millis(2000));
    pair.issue_command(STATION, peer(route_to(TransportProtocol::Tcp, POS))).unwrap();
    pair.send_message(STATION, 3, test_indication());
    pair.run_until(at_millis(2010));
    pair.issue_command(STATION, peer(moved(TransportProtocol::Udp))).unwrap();
    pair.run_until(at_millis(3000));
    let expected = [
        "1000 mn indication+req",
        "1020 pos ack",
        "2000 mn connect",
        "2010 mn abort",
        "2010 mn indication+req",
        "2030 pos ack",
    ];
    assert_eq!(pair.sent_log()[5..], expected);
    assert_eq!(pair.done_events().len(), 3);
}

#[test]
fn by_transport_nothing_on_a_stream_is_cut_or_acknowledged() {
    let cases = [
        (TransportProtocol::Tcp, true, vec!["0 mn connect", "40 mn indication"]),
        (TransportProtocol::Udp, false, vec!["0 mn fragment 0", "0 mn fragment 1", "20 pos ack"]),
    ];
    for (transport, ack, expected) in cases {
        let mut pair = MihfPair::new(transport, ack, |config| {
            (config.by_transport, config.max_message) = (true, 300);
        });
        let message = MihfMessage::new(MessageId::PUSH_INFORMATION_INDICATION, [Tlv::padding(400)]);
        pair.send_message(STATION, 1, message);
        pair.run_until(at_millis(90));
        assert_eq!(pair.sent_log(), expected, "{transport:?}, whatever the peer's own setting says");
        assert_eq!(pair.delivered_count(POS), 1);
    }
}
