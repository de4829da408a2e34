//! Over TCP and SCTP.

use super::*;
use usher_core::TransportProtocol;

fn pair(transport: TransportProtocol, ack: bool) -> Pair {
    Pair::new(transport, ack, |_| ())
}

const PROCESSING: Duration = Duration::from_millis(200);

#[test]
fn the_first_message_opens_a_connection_which_is_kept_and_answered_on() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = pair(transport, false);
        pair.send(STATION, 1, request());
        pair.serve(PROCESSING, at(1000));
        pair.send(STATION, 2, indication());
        pair.send(POS, 3, indication());
        pair.run(at(2000));
        let expected = [
            "0 mn connect",
            "40 mn request",
            "260 pos response",
            "1000 mn indication",
            "1000 pos indication",
        ];
        assert_eq!(pair.log(), expected, "{transport:?}");
        let done = [(280, 1, "response".into()), (1000, 2, "done".into()), (1000, 3, "done".into())];
        assert_eq!(pair.done(), done);
        assert_eq!((pair.delivered(STATION), pair.delivered(POS)), (1, 2));
        assert_eq!(pair.counters(STATION).unreliable, 0);
    }
}

#[test]
fn acknowledgements_go_over_connections_too() {
    let mut pair = pair(TransportProtocol::Tcp, true);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    let expected =
        ["0 mn connect", "40 mn request+req", "60 pos ack", "260 pos response+req+rsp", "280 mn ack"];
    assert_eq!(pair.log(), expected);
}

#[test]
fn what_is_sent_again_while_a_connection_opens_waits_as_well() {
    let mut pair = pair(TransportProtocol::Tcp, true);
    let slow = |config: &mut Config| config.timing.retransmission = Duration::from_millis(15);
    *pair.side(STATION) = {
        let mut config = Config::new(id(STATION));
        slow(&mut config);
        Mihf::new(config, Seed::new(7).stream("mihf", 0))
    };
    let peer = Peer { id: id(POS), route: route(TransportProtocol::Tcp, POS), ack: true };
    pair.command(STATION, Command::Peer(peer)).unwrap();
    pair.send(STATION, 1, indication());
    pair.run(at(1000));
    assert_eq!(
        pair.log()[..4],
        ["0 mn connect", "40 mn indication+req", "40 mn indication+req", "40 mn indication+req"]
    );
    assert_eq!(pair.delivered(POS), 1);
    assert_eq!(pair.done(), [(45, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).late_acks, 3);
}

#[test]
fn messages_are_cut_out_of_a_stream_wherever_its_segments_end() {
    for chunk in 1..80 {
        let mut pair = pair(TransportProtocol::Tcp, true);
        pair.net.segment(chunk);
        for token in 0..5 {
            pair.send(STATION, token, indication());
        }
        pair.send(STATION, 5, request());
        pair.serve(PROCESSING, at(1000));
        assert_eq!(pair.delivered(POS), 6, "{chunk}");
        let mut done = pair.done();
        done.sort();
        assert_eq!(done.len(), 6);
        assert_eq!(done[5], (280, 5, "response".into()), "{chunk}");
    }
}

#[test]
fn a_connection_that_closed_is_opened_again_when_there_is_something_to_send() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = pair(transport, true);
        pair.send(STATION, 1, indication());
        pair.run(at(500));
        pair.cut();
        pair.run(at(1000));
        pair.send(STATION, 2, indication());
        pair.run(at(2000));
        assert_eq!(pair.log()[3..5], ["1000 mn connect", "1040 mn indication+req"]);
        assert_eq!(pair.done().len(), 2);
    }
}

#[test]
fn what_was_under_way_is_sent_again_by_the_rules_of_mih_alone() {
    let mut with = pair(TransportProtocol::Tcp, true);
    with.send(STATION, 1, indication());
    with.run(at(50));
    with.cut();
    with.run(at(1000));
    let expected =
        ["0 mn connect", "40 mn indication+req", "100 mn connect", "140 mn indication+req", "160 pos ack"];
    assert_eq!(with.log(), expected);
    assert_eq!(with.done(), [(180, 1, "done".into())]);
    let mut without = pair(TransportProtocol::Tcp, false);
    without.send(STATION, 1, request());
    without.run(at(50));
    without.cut();
    without.run(at(20_000));
    assert_eq!(without.log(), ["0 mn connect", "40 mn request"]);
    assert_eq!(without.done(), [(50, 1, "Transport".into())]);
}

#[test]
fn a_request_without_acknowledgements_ends_with_the_connection_by_which_it_last_went() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let settings = |c: &mut Config| c.transaction = None;
        let mut pair = Pair::new(transport, false, settings);
        pair.send(STATION, 1, request());
        pair.serve(PROCESSING, at(500));
        pair.send(STATION, 2, request());
        pair.send(STATION, 3, indication());
        pair.send(STATION, 4, request());
        pair.command(STATION, Command::Abandon { token: 4 }).unwrap();
        pair.run(at(510));
        pair.cut();
        pair.run(at(60_000));
        let expected = [(280, 1, "response".into()), (500, 3, "done".into()), (510, 2, "Transport".into())];
        assert_eq!(pair.done(), expected, "{transport:?}");
        // What has gone by another way since is nothing to it.
        let mut pair = Pair::new(transport, false, settings);
        pair.send(STATION, 1, request());
        pair.run(at(10));
        let route = Route { local: Some(IpAddr::from([10, 0, 9, 1])), ..route(transport, POS) };
        pair.command(STATION, Command::Peer(Peer { id: id(POS), route, ack: false })).unwrap();
        let aborted = ConnId::opened(0);
        let down = match transport {
            TransportProtocol::Sctp => {
                Input::Message { assoc: aborted, event: MessageEvent::Down(CloseReason::Reset) }
            }
            _ => Input::Stream { conn: aborted, event: StreamEvent::Closed(CloseReason::Reset) },
        };
        pair.give(STATION, down);
        pair.run(at(60));
        assert!(pair.done().is_empty());
        pair.cut();
        pair.run(at(60_000));
        assert_eq!(pair.done(), [(60, 1, "Transport".into())], "{transport:?}");
    }
}

/// Where requests are sent again for want of a response, a lost connection is no end before the last of them.
#[test]
fn a_request_that_is_to_be_sent_again_outlives_its_connection() {
    let settings = |c: &mut Config| {
        c.transaction = None;
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = Unanswered::Retransmit;
    };
    let mut pair = Pair::new(TransportProtocol::Tcp, false, settings);
    pair.send(STATION, 1, request());
    pair.run(at(50));
    pair.cut();
    pair.serve(PROCESSING, at(1500));
    let expected = ["0 mn connect", "40 mn request", "500 mn connect", "540 mn request"];
    assert_eq!(pair.log()[..4], expected);
    assert_eq!(pair.done().len(), 1);
    assert_eq!(pair.done()[0].2, "response");
    let mut pair = Pair::new(TransportProtocol::Tcp, false, settings);
    pair.net.refuse(pair.sides[POS], true);
    pair.send(STATION, 1, request());
    pair.run(at(5000));
    assert_eq!(pair.log(), ["0 mn connect", "500 mn connect", "1000 mn connect"]);
    assert_eq!(pair.done(), [(1040, 1, "Transport".into())]);
}

#[test]
fn a_connection_that_was_given_up_is_none_when_it_comes_up_after_all() {
    let mut pair = pair(TransportProtocol::Tcp, true);
    pair.send(STATION, 1, indication());
    pair.run(at(10));
    let moved = Route { local: Some(IpAddr::from([10, 0, 9, 1])), ..route(TransportProtocol::Tcp, POS) };
    pair.command(STATION, Command::Peer(Peer { id: id(POS), route: moved, ack: true })).unwrap();
    pair.run(at(40));
    let remote = SocketAddr::new(ip(POS), PORT);
    let event = StreamEvent::Connected { remote, local: None, certificate: None };
    pair.give(STATION, Input::Stream { conn: ConnId::opened(0), event });
    pair.run(at(1000));
    let mut open = |n| pair.side(STATION).net.is_open(Way::Connection(ConnId::opened(n)));
    assert_eq!([open(0), open(1)], [false, true]);
}

#[test]
fn without_acknowledgements_a_refused_connection_ends_a_request() {
    for transport in [TransportProtocol::Tcp, TransportProtocol::Sctp] {
        let mut pair = pair(transport, false);
        pair.net.refuse(pair.sides[POS], true);
        pair.send(STATION, 1, request());
        pair.run(at(1000));
        assert_eq!(pair.done(), [(40, 1, "Transport".into())]);
        assert_eq!(pair.counters(STATION).not_connected, 1);
    }
}

#[test]
fn with_acknowledgements_it_is_tried_again() {
    let mut pair = pair(TransportProtocol::Tcp, true);
    pair.net.refuse(pair.sides[POS], true);
    pair.send(STATION, 1, request());
    pair.run(at(90));
    pair.net.refuse(pair.sides[POS], false);
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.log()[..3], ["0 mn connect", "100 mn connect", "140 mn request+req"]);
    assert_eq!(pair.done(), [(180, 1, "response".into())]);
}

#[test]
fn what_waits_for_a_connection_is_bounded() {
    let mut one = Vec::new();
    let (bits, tid) = (crate::Bits::default(), crate::TransactionId::new(0));
    request().encode(bits, tid, &id(STATION), &id(POS), &mut one).unwrap();
    let room = 4 * one.len() - 1;
    let mut pair = Pair::new(TransportProtocol::Tcp, false, |c| c.max_queue = room);
    for token in 0..5 {
        pair.send(STATION, token, request());
    }
    let failed = vec![(0, 3, "Transport".to_owned()), (0, 4, "Transport".into())];
    assert_eq!(pair.done(), failed);
    assert_eq!(pair.counters(STATION).queue_full, 2);
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.done().len(), 5);
    // A message has the room that its octets need.
    let mut pair = Pair::new(TransportProtocol::Tcp, false, |c| c.max_queue = room);
    pair.send(STATION, 1, request().padded_to(room + 1, &id(STATION), &id(POS)).unwrap());
    pair.send(STATION, 2, request().padded_to(room, &id(STATION), &id(POS)).unwrap());
    assert_eq!(pair.done(), [(0, 1, "Transport".into())]);
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.done().len(), 2);
}

#[test]
fn a_stream_that_cannot_be_cut_into_messages_is_closed() {
    let mut pair = pair(TransportProtocol::Tcp, false);
    let remote = SocketAddr::new(ip(STATION), 50_000);
    pair.stream(POS, 9, accepted(remote));
    pair.stream(POS, 9, StreamEvent::Data(&[0x70, 0, 0, 0, 0, 0, 0]));
    assert!(pair.log().is_empty(), "less than a header says nothing");
    pair.stream(POS, 9, StreamEvent::Data(&[0, 1, 2, 3]));
    assert_eq!(pair.log(), ["0 pos abort"]);
    assert_eq!(pair.counters(POS).broken_streams, 1);
    pair.stream(POS, 9, StreamEvent::Data(&[1, 2, 3]));
    assert_eq!(pair.counters(POS).received, 0);
}

#[test]
fn a_malformed_message_does_not_end_its_stream() {
    let mut pair = pair(TransportProtocol::Tcp, false);
    let remote = SocketAddr::new(ip(STATION), 50_000);
    let mut octets = vec![0x10, 0, 0x34, 7, 0, 1, 0, 1, 0xff];
    indication()
        .encode(crate::Bits::default(), crate::TransactionId::new(5), &id(STATION), &id(POS), &mut octets)
        .unwrap();
    pair.stream(POS, 9, accepted(remote));
    pair.stream(POS, 9, StreamEvent::Data(&octets));
    let c = pair.counters(POS);
    assert_eq!((c.malformed, c.broken_streams, pair.delivered(POS)), (1, 0, 1));
}

#[test]
fn each_service_has_its_stream_of_an_association() {
    let mut pair = pair(TransportProtocol::Sctp, false);
    let down = Message::new(MessageId::DEREGISTER_REQUEST, []);
    pair.send(STATION, 1, down);
    pair.send(STATION, 2, indication());
    pair.run(at(1000));
    assert_eq!(pair.streams(), [0, 3, 0]);
}

#[test]
fn another_route_is_another_connection_and_takes_what_waits_with_it() {
    let mut pair = pair(TransportProtocol::Tcp, true);
    let moved = |transport| Route { local: Some(IpAddr::from([10, 0, 9, 1])), ..route(transport, POS) };
    pair.send(STATION, 1, indication());
    pair.run(at(10));
    let peer = |route| Command::Peer(Peer { id: id(POS), route, ack: true });
    pair.command(STATION, peer(moved(TransportProtocol::Tcp))).unwrap();
    pair.run(at(1000));
    let expected = ["0 mn connect", "10 mn abort", "10 mn connect", "50 mn indication+req", "70 pos ack"];
    assert_eq!(pair.log(), expected);
    pair.send(STATION, 2, indication());
    pair.run(at(2000));
    pair.command(STATION, peer(route(TransportProtocol::Tcp, POS))).unwrap();
    pair.send(STATION, 3, indication());
    pair.run(at(2010));
    pair.command(STATION, peer(moved(TransportProtocol::Udp))).unwrap();
    pair.run(at(3000));
    let expected = [
        "1000 mn indication+req",
        "1020 pos ack",
        "2000 mn connect",
        "2010 mn abort",
        "2010 mn indication+req",
        "2030 pos ack",
    ];
    assert_eq!(pair.log()[5..], expected);
    assert_eq!(pair.done().len(), 3);
}

#[test]
fn by_transport_nothing_on_a_stream_is_cut_or_acknowledged() {
    let cases = [
        (TransportProtocol::Tcp, true, vec!["0 mn connect", "40 mn indication"]),
        (TransportProtocol::Udp, false, vec!["0 mn fragment 0", "0 mn fragment 1", "20 pos ack"]),
    ];
    for (transport, ack, expected) in cases {
        let mut pair = Pair::new(transport, ack, |config| {
            (config.by_transport, config.max_message) = (true, 300);
        });
        let message = Message::new(MessageId::PUSH_INFORMATION_INDICATION, [Tlv::padding(400)]);
        pair.send(STATION, 1, message);
        pair.run(at(90));
        assert_eq!(pair.log(), expected, "{transport:?}, whatever the peer's own setting says");
        assert_eq!(pair.delivered(POS), 1);
    }
}
