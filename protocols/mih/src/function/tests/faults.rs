//! Losses, duplicates, delays, limits and bad input.

use super::*;
use crate::{Bits, TransactionId};
use usher_core::TransportProtocol;

const PROCESSING: Duration = Duration::from_millis(200);

fn pair(ack: bool) -> Pair {
    Pair::new(TransportProtocol::Udp, ack, |_| ())
}

#[test]
fn a_lost_request_is_sent_again() {
    let mut pair = pair(true).lose(&[0]);
    pair.send(STATION, 1, request());
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.done(), [(140, 1, "response".into())]);
    assert_eq!(pair.counters(STATION).retransmissions, 1);
}

#[test]
fn a_lost_response_is_sent_again_by_its_own_timer() {
    let mut pair = pair(true).lose(&[2]);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    let expected = [
        "0 mn request+req",
        "20 pos ack",
        "220 pos response+req+rsp",
        "320 pos response+req+rsp",
        "340 mn ack",
    ];
    assert_eq!(pair.log(), expected);
    assert_eq!(pair.done(), [(340, 1, "response".into())]);
}

#[test]
fn a_response_acknowledges_although_the_acknowledgement_without_payload_was_lost() {
    let settings = |c: &mut Config| c.timing.retransmission = Duration::from_millis(300);
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings).lose(&[1]);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    assert_eq!(pair.log().len(), 4);
    assert_eq!(pair.done(), [(240, 1, "response".into())]);
}

#[test]
fn a_request_that_comes_again_after_its_response_gets_the_response_again() {
    // The response and the duplicate request cross each other.
    let settings = |c: &mut Config| c.timing.retransmission = Duration::from_millis(210);
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings).lose(&[1, 3]);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    let expected = [
        "0 mn request+req",
        "20 pos ack",
        "210 mn request+req",
        "220 pos response+req+rsp",
        "230 pos response+req+rsp",
        "250 mn ack",
    ];
    assert_eq!(pair.log(), expected);
    assert_eq!(pair.counters(POS).repeated_responses, 1);
    assert_eq!(pair.delivered(POS), 1);
}

#[test]
fn a_response_that_comes_again_is_acknowledged_again_and_not_given_again() {
    let mut pair = pair(true).lose(&[3]);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(1000));
    assert_eq!(pair.log()[3..], ["240 mn ack", "320 pos response+req+rsp", "340 mn ack"]);
    assert_eq!(pair.done().len(), 1);
    assert_eq!(pair.counters(STATION).duplicates, 1);
}

#[test]
fn a_late_response_is_dropped_and_not_acknowledged() {
    let mut pair = pair(true).lose(&[1, 3, 5]);
    pair.send(STATION, 1, request());
    pair.serve(Duration::from_millis(400), at(5000));
    assert_eq!(pair.log()[..6].iter().filter(|l| l.ends_with("ack")).count(), 3);
    let answers = ["420 pos response+req+rsp", "520 pos response+req+rsp", "620 pos response+req+rsp"];
    assert_eq!(pair.log()[6..], answers);
    assert_eq!(pair.done(), [(300, 1, "NoAcknowledgement".into())]);
    assert_eq!(pair.counters(STATION).late_responses, 3);
    assert_eq!((pair.counters(STATION).gave_up, pair.counters(POS).gave_up), (1, 1));
    let packets = pair.counters(STATION).packets + pair.counters(POS).packets;
    let messages = pair.counters(STATION).messages + pair.counters(POS).messages;
    assert_eq!((packets, messages), (9, 2), "the limit of 4.5 packets a message");
}

#[test]
fn after_the_lifetime_a_late_response_is_of_an_unknown_transaction() {
    let settings = |c: &mut Config| c.lifetime = Duration::from_millis(50);
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings).lose(&[1, 3, 5]);
    pair.send(STATION, 1, request());
    pair.serve(Duration::from_millis(400), at(5000));
    let c = pair.counters(STATION);
    assert_eq!((c.late_responses, c.unknown_transaction), (0, 3));
}

#[test]
fn duplicates_are_known_within_the_lifetime_and_not_after_it() {
    for (apart, given) in [(14_999, 1), (15_001, 2)] {
        let mut pair = pair(true);
        pair.fate(move |side, _| match side {
            STATION => vec![Duration::ZERO, Duration::from_millis(apart)],
            _ => vec![Duration::ZERO],
        });
        pair.send(STATION, 1, indication());
        pair.run(at(40_000));
        assert_eq!(pair.delivered(POS), given);
        assert_eq!(pair.counters(POS).acks, 2);
        assert_eq!(pair.counters(POS).duplicates, 2 - given as u64);
    }
}

/// What becomes of a request that was acknowledged and not answered: its log after the acknowledgement, and when
/// it was done.
fn unanswered(ack: bool, unanswered: Unanswered) -> (Vec<String>, Vec<(u64, u64, String)>) {
    let settings = move |c: &mut Config| {
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = unanswered;
        c.transaction = None;
    };
    let mut pair = Pair::new(TransportProtocol::Udp, ack, settings);
    pair.send(STATION, 1, request());
    pair.run(at(100_000));
    let skip = if ack { 2 } else { 1 };
    (pair.log()[skip..].to_vec(), pair.done())
}

#[test]
fn what_to_do_when_no_response_comes_is_a_setting() {
    assert_eq!(unanswered(true, Unanswered::Wait), (vec![], vec![]));
    assert_eq!(unanswered(true, Unanswered::Abort), (vec![], vec![(540, 1, "NoResponse".into())]));
    let (log, done) = unanswered(true, Unanswered::Retransmit);
    assert_eq!(log, ["540 mn request+req", "560 pos ack", "1040 mn request+req", "1060 pos ack"]);
    assert_eq!(done, [(1540, 1, "NoResponse".into())]);
    let (log, done) = unanswered(false, Unanswered::Retransmit);
    assert_eq!(log, ["500 mn request", "1000 mn request"]);
    assert_eq!(done, [(1500, 1, "NoResponse".into())]);
}

#[test]
fn a_request_sent_again_for_want_of_a_response_gets_the_lost_response_again() {
    let settings = |c: &mut Config| {
        c.timing.response = Some(Duration::from_millis(500));
        c.timing.unanswered = Unanswered::Retransmit;
    };
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings).lose(&[1]);
    pair.send(STATION, 1, request());
    pair.serve(PROCESSING, at(2000));
    assert_eq!(pair.log(), ["0 mn request", "220 pos response", "500 mn request", "520 pos response"]);
    assert_eq!(pair.done(), [(540, 1, "response".into())]);
    assert_eq!(pair.delivered(POS), 1);
}

#[test]
fn the_transactions_lifetime_ends_a_wait() {
    let settings = |c: &mut Config| c.transaction = Some(Duration::from_secs(2));
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings);
    pair.send(STATION, 1, request());
    pair.run(at(10_000));
    assert_eq!(pair.done(), [(2000, 1, "NoResponse".into())]);
    assert_eq!(pair.counters(POS).expired, 1);
    let Some((_, _, Event::Request { transaction, message, .. })) =
        pair.events.iter().find(|e| matches!(e.2, Event::Request { .. })).cloned()
    else {
        panic!("no request")
    };
    let message = Message::new(message.id.response(), [Tlv::Status(Status::Success)]);
    let late = pair.command(POS, Command::Respond { transaction, message });
    assert!(matches!(late, Err(CommandError::WrongState(_))));
}

#[test]
fn timers_are_by_service_and_by_message() {
    let timing = |ms, retransmissions| Timing {
        retransmission: Duration::from_millis(ms),
        retransmissions,
        ..Timing::default()
    };
    let settings = |c: &mut Config| {
        c.by_service[crate::Service::Information.index()] = Some(timing(50, 1));
        c.by_message.insert((crate::Service::Information, 2), timing(70, 0));
    };
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings);
    pair.fate(|_, _| vec![]);
    pair.send(STATION, 1, request());
    pair.send(STATION, 2, indication());
    pair.send(STATION, 3, Message::new(MessageId::DEREGISTER_REQUEST, []));
    pair.run(at(1000));
    let failed = |ms, token| (ms, token, "NoAcknowledgement".to_owned());
    assert_eq!(pair.done(), [failed(70, 2), failed(100, 1), failed(300, 3)]);
}

#[test]
fn what_is_abandoned_is_not_heard_of_again() {
    let mut pair = pair(true);
    pair.send(STATION, 1, request());
    pair.run(at(50));
    pair.command(STATION, Command::Abandon { token: 1 }).unwrap();
    assert_eq!(pair.command(STATION, Command::Abandon { token: 1 }), Err(CommandError::UnknownToken));
    pair.serve(PROCESSING, at(5000));
    assert!(pair.done().is_empty());
    assert_eq!(pair.counters(STATION).late_responses, 3);
}

#[test]
fn a_route_that_changes_takes_transactions_with_it() {
    // The first route is dead.
    let mut pair = pair(true).lose(&[0]);
    let new = IpAddr::from([10, 0, 9, 1]);
    pair.send(STATION, 1, request());
    pair.run(at(50));
    let moved = Route { local: Some(new), ..route(TransportProtocol::Udp, POS) };
    pair.command(STATION, Command::Peer(Peer { id: id(POS), route: moved, ack: true })).unwrap();
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.done(), [(140, 1, "response".into())]);
    let way = |path: Path| (path.socket.n, path.local, path.remote);
    let unspecified = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), PORT);
    let pos = SocketAddr::new(ip(POS), PORT);
    assert_eq!(way(pair.paths()[0]), (0, unspecified, pos));
    assert_eq!(way(pair.paths()[1]), (1, SocketAddr::new(new, PORT), pos));
}

#[test]
fn an_answer_goes_by_the_new_route_if_it_changed_since_the_request() {
    let mut pair = pair(true);
    pair.send(STATION, 1, request());
    pair.run(at(100));
    let remote = SocketAddr::from(([10, 0, 9, 1], PORT));
    let moved = Route { remote, ..route(TransportProtocol::Udp, STATION) };
    pair.command(POS, Command::Peer(Peer { id: id(STATION), route: moved, ack: true })).unwrap();
    pair.serve(PROCESSING, at(1000));
    assert_eq!(pair.paths()[1].remote, SocketAddr::new(ip(STATION), PORT));
    assert_eq!(pair.paths()[2].remote, remote);
}

#[test]
fn identifiers_wrap_and_an_open_one_is_not_given_again() {
    let settings = |c: &mut Config| c.transaction = None;
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings);
    let identifiers = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = identifiers.clone();
    pair.fate(move |_, decoded| {
        seen.borrow_mut().push(decoded.header.transaction.get());
        vec![]
    });
    for token in 0..4096 {
        pair.send(STATION, token, request());
    }
    let mut given = identifiers.borrow().clone();
    let first = given[0];
    given.sort_unstable();
    assert_eq!(given, (0..4096).collect::<Vec<u16>>());
    // All are open: the one that waits longest makes room.
    pair.send(STATION, 4096, request());
    assert_eq!(pair.done(), [(0, 0, "NoResponse".into())]);
    assert_eq!(pair.counters(STATION).displaced, 1);
    assert_eq!(*identifiers.borrow().last().unwrap(), first);
    // One in the middle ends: it is the next.
    pair.command(STATION, Command::Abandon { token: 100 }).unwrap();
    pair.send(STATION, 5000, request());
    assert_eq!(*identifiers.borrow().last().unwrap(), TransactionId::new(first + 100).get());
}

#[test]
fn memory_for_transactions_is_bounded() {
    let settings = |c: &mut Config| c.max_transactions = 3;
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings);
    for token in 0..5 {
        pair.send(STATION, token, indication());
    }
    pair.run(at(100));
    assert_eq!((pair.side(POS).remembered(), pair.side(POS).most_remembered()), (3, 3));
    assert_eq!((pair.counters(POS).forgotten_early, pair.counters(POS).refused), (2, 0));
    for token in 5..8 {
        pair.send(STATION, token, request());
    }
    let full = pair.command(STATION, Command::Send { token: 8, to: id(POS), message: request() });
    assert!(matches!(full, Err(CommandError::Full(_))));
    pair.run(at(200));
    assert_eq!(pair.side(POS).remembered(), 3);
    let octets = octets(200, false, &indication(), &id(POS));
    pair.inject(POS, &octets);
    assert_eq!((pair.delivered(POS), pair.counters(POS).refused), (8, 1));
    pair.run(at(40_000));
    pair.inject(POS, &octets);
    assert_eq!(pair.side(POS).remembered(), 1);
}

fn octets(transaction: u16, ack_req: bool, message: &Message, to: &MihfId) -> Vec<u8> {
    let mut octets = Vec::new();
    let bits = Bits { ack_req, ..Bits::default() };
    message.encode(bits, TransactionId::new(transaction), &id(STATION), to, &mut octets).unwrap();
    octets
}

#[test]
fn what_the_standard_does_not_have_is_refused_or_dropped() {
    let mut pair = pair(true);
    let unknown = |opcode| MessageId { service: crate::Service::Command, opcode, action: 0x155 };
    pair.inject(POS, &octets(1, true, &Message::new(unknown(Opcode::Request), []), &id(POS)));
    pair.inject(POS, &octets(2, true, &Message::new(unknown(Opcode::Indication), []), &id(POS)));
    assert_eq!(pair.log(), ["0 pos unknown response"]);
    assert_eq!((pair.counters(POS).unknown_message, pair.delivered(POS)), (2, 0));
    let mine = Command::Send { token: 1, to: id(POS), message: Message::new(unknown(Opcode::Request), []) };
    assert!(matches!(pair.command(STATION, mine), Err(CommandError::Invalid(_))));
}

#[test]
fn a_request_that_cannot_be_read_has_failed() {
    let mut pair = pair(true);
    let no_link = Message::new(MessageId::EVENT_SUBSCRIBE_REQUEST, []);
    pair.inject(POS, &octets(1, false, &no_link, &id(POS)));
    let no_reason = Message::new(MessageId::LINK_DOWN_INDICATION, []);
    pair.inject(POS, &octets(2, true, &no_reason, &id(POS)));
    assert_eq!(pair.log(), ["0 pos response+req"]);
    assert_eq!(pair.counters(POS).malformed, 2);
}

#[test]
fn unknown_parameters_are_given_to_the_user() {
    let mut pair = pair(false);
    let odd = Tlv::Other { kind: 200, value: vec![1, 2, 3] };
    pair.send(STATION, 1, Message::new(MessageId::PUSH_INFORMATION_INDICATION, [odd]));
    pair.run(at(100));
    assert_eq!((pair.counters(POS).unknown_tlv, pair.delivered(POS)), (1, 1));
}

#[test]
fn what_is_for_another_function_is_dropped_and_what_is_for_all_is_not_acknowledged() {
    let mut pair = pair(true);
    let other = MihfId::new("other").unwrap();
    pair.inject(POS, &octets(1, true, &indication(), &other));
    assert_eq!((pair.counters(POS).misaddressed, pair.delivered(POS)), (1, 0));
    pair.inject(POS, &octets(1, true, &indication(), &MihfId::multicast()));
    assert_eq!(pair.delivered(POS), 1);
    assert!(pair.log().is_empty());
}

#[test]
fn an_indication_goes_to_all_where_that_has_a_route() {
    let mut pair = pair(true);
    let all = SocketAddr::from(([224, 0, 0, 1], PORT));
    let route = Route { remote: all, ..route(TransportProtocol::Udp, POS) };
    let to = MihfId::multicast();
    pair.command(STATION, Command::Peer(Peer { id: to.clone(), route, ack: true })).unwrap();
    let send = |message| Command::Send { token: 1, to: to.clone(), message };
    pair.command(STATION, send(indication())).unwrap();
    assert_eq!((&pair.log()[..], pair.paths()[0].remote), (&["0 mn indication".to_owned()][..], all));
    assert!(matches!(pair.command(STATION, send(request())), Err(CommandError::Invalid(_))));
}

#[test]
fn a_response_to_another_request_is_none() {
    let mut pair = pair(true);
    pair.send(STATION, 1, request());
    let status = [Tlv::Status(Status::Success)];
    // The identifier of what was asked, whatever it is, but not its kind; and no response at all.
    for number in 0..TransactionId::COUNT {
        let other = Message::new(MessageId::DEREGISTER_RESPONSE, status.clone());
        let mut octets = Vec::new();
        other
            .encode(Bits::default(), TransactionId::new(number), &id(POS), &id(STATION), &mut octets)
            .unwrap();
        pair.inject(STATION, &octets);
    }
    assert_eq!(pair.counters(STATION).unknown_transaction, u64::from(TransactionId::COUNT));
    pair.serve(Duration::ZERO, at(1000));
    assert_eq!(pair.done().len(), 1);
}

#[test]
fn replies_to_nothing_are_dropped() {
    let mut pair = pair(true);
    let response = Message::new(MessageId::GET_INFORMATION_RESPONSE, [Tlv::Status(Status::Success)]);
    pair.inject(POS, &octets(1, true, &response, &id(POS)));
    let mut ack = Vec::new();
    let bits = Bits { ack_rsp: true, ..Bits::default() };
    let none = Message::acknowledgement(MessageId::PUSH_INFORMATION_INDICATION);
    none.encode(bits, TransactionId::new(3), &id(STATION), &id(POS), &mut ack).unwrap();
    pair.inject(POS, &ack);
    assert_eq!(pair.counters(POS).unknown_transaction, 2);
    assert!(pair.log().is_empty());
}

#[test]
fn long_messages_go_in_fragments() {
    let mut pair = Pair::new(TransportProtocol::Udp, true, |c| c.max_message = 300);
    let long = indication().padded_to(1000, &id(STATION), &id(POS)).unwrap();
    pair.send(STATION, 1, long);
    pair.run(at(1000));
    let expected = ["0 mn fragment 0", "0 mn fragment 1", "0 mn fragment 2", "0 mn fragment 3", "20 pos ack"];
    assert_eq!(pair.log(), expected);
    assert_eq!(pair.done(), [(40, 1, "done".into())]);
    assert_eq!((pair.counters(STATION).packets, pair.counters(STATION).messages), (4, 1));
    let longer = indication().padded_to(60_000, &id(STATION), &id(POS)).unwrap();
    let refused = pair.command(STATION, Command::Send { token: 2, to: id(POS), message: longer });
    assert!(matches!(refused, Err(CommandError::Invalid(_))));
}

#[test]
fn the_rest_of_a_message_is_not_waited_for_for_ever() {
    let settings = |c: &mut Config| (c.max_message, c.patience) = (300, Duration::from_secs(2));
    let mut pair = Pair::new(TransportProtocol::Udp, false, settings);
    let long = indication().padded_to(1000, &id(STATION), &id(POS)).unwrap();
    let mut octets = Vec::new();
    long.encode(Bits::default(), TransactionId::new(1), &id(STATION), &id(POS), &mut octets).unwrap();
    let pieces = crate::fragment::fragment(&octets, 300).unwrap();
    pair.inject(POS, &pieces[0]);
    assert_eq!(pair.side(POS).poll_timeout(), Some(at(2000)));
    pair.run(at(1999));
    assert_eq!((pair.counters(POS).fragments_dropped, pair.side(POS).reassembly.incomplete()), (0, 1));
    pair.run(at(2000));
    assert_eq!((pair.counters(POS).fragments_dropped, pair.side(POS).reassembly.incomplete()), (1, 0));
    assert_eq!(pair.side(POS).poll_timeout(), None);
}

/// They are forgotten at once, and so is that they have ended.
#[test]
fn indications_without_acknowledgement_leave_nothing_behind() {
    let mut pair = pair(false);
    for token in 0..1000 {
        pair.send(STATION, token, indication());
    }
    assert_eq!((pair.side(STATION).remembered(), pair.side(STATION).table.queued()), (0, 0));
    let mut with = self::pair(true);
    with.send(STATION, 0, indication());
    with.run(at(1000));
    assert_eq!((with.side(STATION).remembered(), with.side(STATION).table.queued()), (1, 1));
}

#[test]
fn messages_longer_than_may_be_are_dropped() {
    let settings = |c: &mut Config| (c.max_message, c.max_reassembled) = (300, 500);
    let mut pair = Pair::new(TransportProtocol::Udp, true, settings);
    let long = indication().padded_to(1000, &id(STATION), &id(POS)).unwrap();
    pair.send(STATION, 1, long);
    pair.run(at(50));
    assert_eq!((pair.counters(POS).oversize, pair.delivered(POS)), (1, 0));
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let mut pair = pair(false);
    let response = Message::new(MessageId::GET_INFORMATION_RESPONSE, [Tlv::Status(Status::Success)]);
    let send = |token, message| Command::Send { token, to: id(POS), message };
    assert!(matches!(pair.command(STATION, send(1, response.clone())), Err(CommandError::Invalid(_))));
    pair.command(STATION, send(1, request())).unwrap();
    assert!(matches!(pair.command(STATION, send(1, request())), Err(CommandError::Invalid(_))));
    pair.run(at(50));
    let Some((_, _, Event::Request { transaction, .. })) = pair.events.last().cloned() else { panic!() };
    let respond = |message| Command::Respond { transaction, message };
    let wrong = Message::new(MessageId::DEREGISTER_RESPONSE, [Tlv::Status(Status::Success)]);
    assert!(matches!(pair.command(POS, respond(wrong)), Err(CommandError::Invalid(_))));
    let nothing = Message::new(MessageId::GET_INFORMATION_RESPONSE, []);
    assert!(matches!(pair.command(POS, respond(nothing)), Err(CommandError::Invalid(_))));
    pair.command(POS, respond(response.clone())).unwrap();
    assert!(matches!(pair.command(POS, respond(response.clone())), Err(CommandError::WrongState(_))));
    pair.run(at(60_000));
    pair.inject(POS, &octets(9, false, &indication(), &id(POS)));
    assert_eq!(pair.command(POS, respond(response)), Err(CommandError::UnknownToken));
}
