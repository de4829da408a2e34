//! Losses, duplicates, delays, limits and bad input.

use super::*;
use crate::{HeaderFlags, TransactionId};
use usher_core::TransportProtocol;

const PROCESSING: Duration = Duration::from_millis(200);

fn udp_pair(ack: bool) -> MihfPair {
    MihfPair::new(TransportProtocol::Udp, ack, |_| ())
}

#[test]
fn a_lost_request_is_sent_again() {
    let mut pair = udp_pair(true).lose_packets(&[0]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.done_events(), [(140, 1, "response".into())]);
    assert_eq!(pair.counters(STATION).retransmissions, 1);
}

#[test]
fn a_lost_response_is_sent_again_by_its_own_timer() {
    let mut pair = udp_pair(true).lose_packets(&[2]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    let expected = [
        "0 mn request+req",
        "20 pos ack",
        "220 pos response+req+rsp",
        "320 pos response+req+rsp",
        "340 mn ack",
    ];
    assert_eq!(pair.sent_log(), expected);
    assert_eq!(pair.done_events(), [(340, 1, "response".into())]);
}

#[test]
fn a_response_acknowledges_its_request_if_the_bare_ack_is_lost() {
    let settings = |c: &mut MihfConfig| c.timing.retransmission = Duration::from_millis(300);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings).lose_packets(&[1]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    assert_eq!(pair.sent_log().len(), 4);
    assert_eq!(pair.done_events(), [(240, 1, "response".into())]);
}

#[test]
fn a_request_retransmitted_after_its_response_gets_it_again() {
    // The response and the duplicate request cross each other.
    let settings = |c: &mut MihfConfig| c.timing.retransmission = Duration::from_millis(210);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings).lose_packets(&[1, 3]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    let expected = [
        "0 mn request+req",
        "20 pos ack",
        "210 mn request+req",
        "220 pos response+req+rsp",
        "230 pos response+req+rsp",
        "250 mn ack",
    ];
    assert_eq!(pair.sent_log(), expected);
    assert_eq!(pair.counters(POS).repeated_responses, 1);
    assert_eq!(pair.delivered_count(POS), 1);
}

#[test]
fn a_retransmitted_response_is_acknowledged_but_not_delivered() {
    let mut pair = udp_pair(true).lose_packets(&[3]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(1000));
    assert_eq!(pair.sent_log()[3..], ["240 mn ack", "320 pos response+req+rsp", "340 mn ack"]);
    assert_eq!(pair.done_events().len(), 1);
    assert_eq!(pair.counters(STATION).duplicates, 1);
}

#[test]
fn a_late_response_is_dropped_and_not_acknowledged() {
    let mut pair = udp_pair(true).lose_packets(&[1, 3, 5]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::from_millis(400), at_millis(5000));
    assert_eq!(pair.sent_log()[..6].iter().filter(|l| l.ends_with("ack")).count(), 3);
    let answers = ["420 pos response+req+rsp", "520 pos response+req+rsp", "620 pos response+req+rsp"];
    assert_eq!(pair.sent_log()[6..], answers);
    assert_eq!(pair.done_events(), [(300, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).late_responses, 3);
    assert_eq!((pair.counters(STATION).gave_up, pair.counters(POS).gave_up), (1, 1));
    let packets = pair.counters(STATION).packets + pair.counters(POS).packets;
    let messages = pair.counters(STATION).messages + pair.counters(POS).messages;
    assert_eq!((packets, messages), (9, 2), "the limit of 4.5 packets a message");
}

#[test]
fn a_response_after_the_lifetime_has_an_unknown_transaction() {
    let settings = |c: &mut MihfConfig| c.lifetime = Duration::from_millis(50);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings).lose_packets(&[1, 3, 5]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(Duration::from_millis(400), at_millis(5000));
    let c = pair.counters(STATION);
    assert_eq!((c.late_responses, c.unknown_transaction), (0, 3));
}

#[test]
fn duplicates_are_known_within_the_lifetime_and_not_after_it() {
    for (apart, given) in [(14_999, 1), (15_001, 2)] {
        let mut pair = udp_pair(true);
        pair.set_datagram_fate(move |side, _| match side {
            STATION => vec![Duration::ZERO, Duration::from_millis(apart)],
            _ => vec![Duration::ZERO],
        });
        pair.send_message(STATION, 1, test_indication());
        pair.run_until(at_millis(40_000));
        assert_eq!(pair.delivered_count(POS), given);
        assert_eq!(pair.counters(POS).acks, 2);
        assert_eq!(pair.counters(POS).duplicates, 2 - given as u64);
    }
}

/// The fate of a request that is acknowledged and not answered: its log after the acknowledgement, and its end.
fn run_unanswered(ack: bool, unanswered: ResponseTimeoutPolicy) -> (Vec<String>, Vec<(u64, u64, String)>) {
    let settings = move |c: &mut MihfConfig| {
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = unanswered;
        c.transaction = None;
    };
    let mut pair = MihfPair::new(TransportProtocol::Udp, ack, settings);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(100_000));
    let skip = if ack { 2 } else { 1 };
    (pair.sent_log()[skip..].to_vec(), pair.done_events())
}

#[test]
fn what_to_do_when_no_response_comes_is_a_setting() {
    assert_eq!(run_unanswered(true, ResponseTimeoutPolicy::Wait), (vec![], vec![]));
    assert_eq!(
        run_unanswered(true, ResponseTimeoutPolicy::Abort),
        (vec![], vec![(540, 1, "NoResponse".into())])
    );
    let (log, done) = run_unanswered(true, ResponseTimeoutPolicy::Retransmit);
    assert_eq!(log, ["540 mn request+req", "560 pos ack", "1040 mn request+req", "1060 pos ack"]);
    assert_eq!(done, [(1540, 1, "NoResponse".into())]);
    let (log, done) = run_unanswered(false, ResponseTimeoutPolicy::Retransmit);
    assert_eq!(log, ["500 mn request", "1000 mn request"]);
    assert_eq!(done, [(1500, 1, "NoResponse".into())]);
}

#[test]
fn a_request_retried_for_its_response_gets_the_lost_one_again() {
    let settings = |c: &mut MihfConfig| {
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = ResponseTimeoutPolicy::Retransmit;
    };
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings).lose_packets(&[1]);
    pair.send_message(STATION, 1, test_request());
    pair.serve_until(PROCESSING, at_millis(2000));
    assert_eq!(pair.sent_log(), ["0 mn request", "220 pos response", "500 mn request", "520 pos response"]);
    assert_eq!(pair.done_events(), [(540, 1, "response".into())]);
    assert_eq!(pair.delivered_count(POS), 1);
}

#[test]
fn the_transactions_lifetime_ends_a_wait() {
    let settings = |c: &mut MihfConfig| c.transaction = Some(Duration::from_secs(2));
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(10_000));
    assert_eq!(pair.done_events(), [(2000, 1, "NoResponse".into())]);
    assert_eq!(pair.counters(POS).expired, 1);
    let Some((_, _, MihfEvent::Request { transaction, message, .. })) =
        pair.events.iter().find(|e| matches!(e.2, MihfEvent::Request { .. })).cloned()
    else {
        panic!("no request")
    };
    let message = MihfMessage::new(message.id.to_response(), [Tlv::Status(Status::Success)]);
    let late = pair.issue_command(POS, MihfCommand::Respond { transaction, message });
    assert!(matches!(late, Err(CommandError::WrongState(_))));
}

#[test]
fn timers_are_by_service_and_by_message() {
    let timing = |ms, retransmissions| TransactionTimerConfig {
        retransmission: Duration::from_millis(ms),
        retransmissions,
        ..TransactionTimerConfig::default()
    };
    let settings = |c: &mut MihfConfig| {
        c.by_service[crate::ServiceId::Information.index()] = Some(timing(50, 1));
        c.by_message.insert((crate::ServiceId::Information, 2), timing(70, 0));
    };
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings);
    pair.set_datagram_fate(|_, _| vec![]);
    pair.send_message(STATION, 1, test_request());
    pair.send_message(STATION, 2, test_indication());
    pair.send_message(STATION, 3, MihfMessage::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run_until(at_millis(1000));
    let failed = |ms, token| (ms, token, "NoAcknowledgement".to_owned());
    assert_eq!(pair.done_events(), [failed(70, 2), failed(100, 1), failed(300, 3)]);
}

#[test]
fn what_is_abandoned_is_not_heard_of_again() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(50));
    pair.issue_command(STATION, MihfCommand::Abandon { token: 1 }).unwrap();
    assert_eq!(
        pair.issue_command(STATION, MihfCommand::Abandon { token: 1 }),
        Err(CommandError::UnknownToken)
    );
    pair.serve_until(PROCESSING, at_millis(5000));
    assert!(pair.done_events().is_empty());
    assert_eq!(pair.counters(STATION).late_responses, 3);
}

#[test]
fn a_route_that_changes_takes_transactions_with_it() {
    // The first route is dead.
    let mut pair = udp_pair(true).lose_packets(&[0]);
    let new = IpAddr::from([10, 0, 9, 1]);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(50));
    let moved = PeerRoute { local: Some(new), ..route_to(TransportProtocol::Udp, POS) };
    pair.issue_command(STATION, MihfCommand::Peer(MihfPeer { id: mihf_id(POS), route: moved, ack: true }))
        .unwrap();
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.done_events(), [(140, 1, "response".into())]);
    let way = |path: DatagramPath| (path.socket.n, path.local, path.remote);
    let unspecified = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    let pos = SocketAddr::new(side_ip(POS), PORT);
    assert_eq!(way(pair.used_paths()[0]), (0, unspecified, pos));
    assert_eq!(way(pair.used_paths()[1]), (1, SocketAddr::new(new, PORT), pos));
}

#[test]
fn a_response_takes_a_route_that_changed_since_the_request() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_request());
    pair.run_until(at_millis(100));
    let remote = SocketAddr::from(([10, 0, 9, 1], PORT));
    let moved = PeerRoute { remote, ..route_to(TransportProtocol::Udp, STATION) };
    pair.issue_command(POS, MihfCommand::Peer(MihfPeer { id: mihf_id(STATION), route: moved, ack: true }))
        .unwrap();
    pair.serve_until(PROCESSING, at_millis(1000));
    assert_eq!(pair.used_paths()[1].remote, SocketAddr::new(side_ip(STATION), PORT));
    assert_eq!(pair.used_paths()[2].remote, remote);
}

#[test]
fn identifiers_wrap_and_an_open_one_is_not_given_again() {
    let settings = |c: &mut MihfConfig| c.transaction = None;
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings);
    let identifiers = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = identifiers.clone();
    pair.set_datagram_fate(move |_, decoded| {
        seen.borrow_mut().push(decoded.header.transaction.get());
        vec![]
    });
    for token in 0..4096 {
        pair.send_message(STATION, token, test_request());
    }
    let mut given = identifiers.borrow().clone();
    let first = given[0];
    given.sort_unstable();
    assert_eq!(given, (0..4096).collect::<Vec<u16>>());
    // All are open: the one with the longest wait makes room.
    pair.send_message(STATION, 4096, test_request());
    assert_eq!(pair.done_events(), [(0, 0, "NoResponse".into())]);
    assert_eq!(pair.counters(STATION).displaced, 1);
    assert_eq!(*identifiers.borrow().last().unwrap(), first);
    // One in the middle ends: it is the next to make room.
    pair.issue_command(STATION, MihfCommand::Abandon { token: 100 }).unwrap();
    pair.send_message(STATION, 5000, test_request());
    assert_eq!(*identifiers.borrow().last().unwrap(), TransactionId::new(first + 100).get());
}

#[test]
fn memory_for_transactions_is_bounded() {
    let settings = |c: &mut MihfConfig| c.max_transactions = 3;
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings);
    for token in 0..5 {
        pair.send_message(STATION, token, test_indication());
    }
    pair.run_until(at_millis(100));
    assert_eq!((pair.mihf_mut(POS).transaction_count(), pair.mihf_mut(POS).peak_transactions()), (3, 3));
    assert_eq!((pair.counters(POS).forgotten_early, pair.counters(POS).refused), (2, 0));
    for token in 5..8 {
        pair.send_message(STATION, token, test_request());
    }
    let full = pair
        .issue_command(STATION, MihfCommand::Send { token: 8, to: mihf_id(POS), message: test_request() });
    assert!(matches!(full, Err(CommandError::Full(_))));
    pair.run_until(at_millis(200));
    assert_eq!(pair.mihf_mut(POS).transaction_count(), 3);
    let octets = encode_from_station(200, false, &test_indication(), &mihf_id(POS));
    pair.inject_datagram(POS, &octets);
    assert_eq!((pair.delivered_count(POS), pair.counters(POS).refused), (8, 1));
    pair.run_until(at_millis(40_000));
    pair.inject_datagram(POS, &octets);
    assert_eq!(pair.mihf_mut(POS).transaction_count(), 1);
}

fn encode_from_station(transaction: u16, ack_req: bool, message: &MihfMessage, to: &MihfId) -> Vec<u8> {
    let mut octets = Vec::new();
    let bits = HeaderFlags { ack_req, ..HeaderFlags::default() };
    message.encode(bits, TransactionId::new(transaction), &mihf_id(STATION), to, &mut octets).unwrap();
    octets
}

#[test]
fn what_the_standard_does_not_have_is_refused_or_dropped() {
    let mut pair = udp_pair(true);
    let unknown = |opcode| MessageId { service: crate::ServiceId::Command, opcode, action: 0x155 };
    pair.inject_datagram(
        POS,
        &encode_from_station(1, true, &MihfMessage::new(unknown(Opcode::Request), []), &mihf_id(POS)),
    );
    pair.inject_datagram(
        POS,
        &encode_from_station(2, true, &MihfMessage::new(unknown(Opcode::Indication), []), &mihf_id(POS)),
    );
    assert_eq!(pair.sent_log(), ["0 pos unknown response"]);
    assert_eq!((pair.counters(POS).unknown_message, pair.delivered_count(POS)), (2, 0));
    let mine = MihfCommand::Send {
        token: 1,
        to: mihf_id(POS),
        message: MihfMessage::new(unknown(Opcode::Request), []),
    };
    assert!(matches!(pair.issue_command(STATION, mine), Err(CommandError::Invalid(_))));
}

#[test]
fn a_request_that_cannot_be_read_has_failed() {
    let mut pair = udp_pair(true);
    let no_link = MihfMessage::new(MessageId::EVENT_SUBSCRIBE_REQUEST, []);
    pair.inject_datagram(POS, &encode_from_station(1, false, &no_link, &mihf_id(POS)));
    let no_reason = MihfMessage::new(MessageId::LINK_DOWN_INDICATION, []);
    pair.inject_datagram(POS, &encode_from_station(2, true, &no_reason, &mihf_id(POS)));
    assert_eq!(pair.sent_log(), ["0 pos response+req"]);
    assert_eq!(pair.counters(POS).malformed, 2);
}

#[test]
fn unknown_parameters_are_given_to_the_user() {
    let mut pair = udp_pair(false);
    let odd = Tlv::Other { kind: 200, value: vec![1, 2, 3] };
    pair.send_message(STATION, 1, MihfMessage::new(MessageId::PUSH_INFORMATION_INDICATION, [odd]));
    pair.run_until(at_millis(100));
    assert_eq!((pair.counters(POS).unknown_tlv, pair.delivered_count(POS)), (1, 1));
}

#[test]
fn foreign_messages_are_dropped_and_multicasts_not_acknowledged() {
    let mut pair = udp_pair(true);
    let other = MihfId::new("other").unwrap();
    pair.inject_datagram(POS, &encode_from_station(1, true, &test_indication(), &other));
    assert_eq!((pair.counters(POS).misaddressed, pair.delivered_count(POS)), (1, 0));
    pair.inject_datagram(POS, &encode_from_station(1, true, &test_indication(), &MihfId::multicast()));
    assert_eq!(pair.delivered_count(POS), 1);
    assert!(pair.sent_log().is_empty());
}

#[test]
fn an_indication_goes_to_all_where_that_has_a_route() {
    let mut pair = udp_pair(true);
    let all = SocketAddr::from(([224, 0, 0, 1], PORT));
    let route = PeerRoute { remote: all, ..route_to(TransportProtocol::Udp, POS) };
    let to = MihfId::multicast();
    pair.issue_command(STATION, MihfCommand::Peer(MihfPeer { id: to.clone(), route, ack: true })).unwrap();
    let send = |message| MihfCommand::Send { token: 1, to: to.clone(), message };
    pair.issue_command(STATION, send(test_indication())).unwrap();
    assert_eq!(
        (&pair.sent_log()[..], pair.used_paths()[0].remote),
        (&["0 mn indication".to_owned()][..], all)
    );
    assert!(matches!(pair.issue_command(STATION, send(test_request())), Err(CommandError::Invalid(_))));
}

#[test]
fn a_response_to_another_request_is_none() {
    let mut pair = udp_pair(true);
    pair.send_message(STATION, 1, test_request());
    let status = [Tlv::Status(Status::Success)];
    // Responses with every identifier, one of them the request's, but with another action.
    for number in 0..TransactionId::COUNT {
        let other = MihfMessage::new(MessageId::DEREGISTER_RESPONSE, status.clone());
        let mut octets = Vec::new();
        other
            .encode(
                HeaderFlags::default(),
                TransactionId::new(number),
                &mihf_id(POS),
                &mihf_id(STATION),
                &mut octets,
            )
            .unwrap();
        pair.inject_datagram(STATION, &octets);
    }
    assert_eq!(pair.counters(STATION).unknown_transaction, u64::from(TransactionId::COUNT));
    pair.serve_until(Duration::ZERO, at_millis(1000));
    assert_eq!(pair.done_events().len(), 1);
}

#[test]
fn replies_to_nothing_are_dropped() {
    let mut pair = udp_pair(true);
    let response = MihfMessage::new(MessageId::GET_INFORMATION_RESPONSE, [Tlv::Status(Status::Success)]);
    pair.inject_datagram(POS, &encode_from_station(1, true, &response, &mihf_id(POS)));
    let mut ack = Vec::new();
    let bits = HeaderFlags { ack_rsp: true, ..HeaderFlags::default() };
    let none = MihfMessage::acknowledgement(MessageId::PUSH_INFORMATION_INDICATION);
    none.encode(bits, TransactionId::new(3), &mihf_id(STATION), &mihf_id(POS), &mut ack).unwrap();
    pair.inject_datagram(POS, &ack);
    assert_eq!(pair.counters(POS).unknown_transaction, 2);
    assert!(pair.sent_log().is_empty());
}

#[test]
fn long_messages_go_in_fragments() {
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, |c| c.max_message = 300);
    let long = test_indication().with_padding_to_length(1000, &mihf_id(STATION), &mihf_id(POS)).unwrap();
    pair.send_message(STATION, 1, long);
    pair.run_until(at_millis(1000));
    let expected = ["0 mn fragment 0", "0 mn fragment 1", "0 mn fragment 2", "0 mn fragment 3", "20 pos ack"];
    assert_eq!(pair.sent_log(), expected);
    assert_eq!(pair.done_events(), [(40, 1, "done".into())]);
    assert_eq!((pair.counters(STATION).packets, pair.counters(STATION).messages), (4, 1));
    let longer = test_indication().with_padding_to_length(60_000, &mihf_id(STATION), &mihf_id(POS)).unwrap();
    let refused =
        pair.issue_command(STATION, MihfCommand::Send { token: 2, to: mihf_id(POS), message: longer });
    assert!(matches!(refused, Err(CommandError::Invalid(_))));
}

#[test]
fn the_rest_of_a_message_is_not_waited_for_for_ever() {
    let settings = |c: &mut MihfConfig| (c.max_message, c.reassembly_timeout) = (300, Duration::from_secs(2));
    let mut pair = MihfPair::new(TransportProtocol::Udp, false, settings);
    let long = test_indication().with_padding_to_length(1000, &mihf_id(STATION), &mihf_id(POS)).unwrap();
    let mut octets = Vec::new();
    long.encode(HeaderFlags::default(), TransactionId::new(1), &mihf_id(STATION), &mihf_id(POS), &mut octets)
        .unwrap();
    let pieces = crate::fragment::fragment_message(&octets, 300).unwrap();
    pair.inject_datagram(POS, &pieces[0]);
    assert_eq!(pair.mihf_mut(POS).poll_timeout(), Some(at_millis(2000)));
    pair.run_until(at_millis(1999));
    assert_eq!(
        (pair.counters(POS).fragments_dropped, pair.mihf_mut(POS).reassembly.incomplete_count()),
        (0, 1)
    );
    pair.run_until(at_millis(2000));
    assert_eq!(
        (pair.counters(POS).fragments_dropped, pair.mihf_mut(POS).reassembly.incomplete_count()),
        (1, 0)
    );
    assert_eq!(pair.mihf_mut(POS).poll_timeout(), None);
}

/// Neither the indication nor its end stays in memory.
#[test]
fn indications_without_acknowledgement_leave_nothing_behind() {
    let mut pair = udp_pair(false);
    for token in 0..1000 {
        pair.send_message(STATION, token, test_indication());
    }
    assert_eq!(
        (pair.mihf_mut(STATION).transaction_count(), pair.mihf_mut(STATION).table.ended_count()),
        (0, 0)
    );
    let mut with = self::udp_pair(true);
    with.send_message(STATION, 0, test_indication());
    with.run_until(at_millis(1000));
    assert_eq!(
        (with.mihf_mut(STATION).transaction_count(), with.mihf_mut(STATION).table.ended_count()),
        (1, 1)
    );
}

#[test]
fn messages_longer_than_may_be_are_dropped() {
    let settings = |c: &mut MihfConfig| (c.max_message, c.max_reassembled) = (300, 500);
    let mut pair = MihfPair::new(TransportProtocol::Udp, true, settings);
    let long = test_indication().with_padding_to_length(1000, &mihf_id(STATION), &mihf_id(POS)).unwrap();
    pair.send_message(STATION, 1, long);
    pair.run_until(at_millis(50));
    assert_eq!((pair.counters(POS).oversize, pair.delivered_count(POS)), (1, 0));
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let mut pair = udp_pair(false);
    let response = MihfMessage::new(MessageId::GET_INFORMATION_RESPONSE, [Tlv::Status(Status::Success)]);
    let send = |token, message| MihfCommand::Send { token, to: mihf_id(POS), message };
    assert!(matches!(pair.issue_command(STATION, send(1, response.clone())), Err(CommandError::Invalid(_))));
    pair.issue_command(STATION, send(1, test_request())).unwrap();
    assert!(matches!(pair.issue_command(STATION, send(1, test_request())), Err(CommandError::Invalid(_))));
    pair.run_until(at_millis(50));
    let Some((_, _, MihfEvent::Request { transaction, .. })) = pair.events.last().cloned() else { panic!() };
    let respond = |message| MihfCommand::Respond { transaction, message };
    let wrong = MihfMessage::new(MessageId::DEREGISTER_RESPONSE, [Tlv::Status(Status::Success)]);
    assert!(matches!(pair.issue_command(POS, respond(wrong)), Err(CommandError::Invalid(_))));
    let nothing = MihfMessage::new(MessageId::GET_INFORMATION_RESPONSE, []);
    assert!(matches!(pair.issue_command(POS, respond(nothing)), Err(CommandError::Invalid(_))));
    pair.issue_command(POS, respond(response.clone())).unwrap();
    assert!(matches!(pair.issue_command(POS, respond(response.clone())), Err(CommandError::WrongState(_))));
    pair.run_until(at_millis(60_000));
    pair.inject_datagram(POS, &encode_from_station(9, false, &test_indication(), &mihf_id(POS)));
    assert_eq!(pair.issue_command(POS, respond(response)), Err(CommandError::UnknownToken));
}
