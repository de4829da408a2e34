//! Each row of the table, and each request, on the machine itself.

use super::*;
use crate::pos::{self, Neighbour, PointOfServiceTable, Row};
use crate::step::Step;
use core::net::SocketAddr;
use usher_core::bench::Tap;
use usher_core::{Duration, Path, Seed, SocketId, Transmit, TransportProtocol};
use usher_mih::{Bits, LinkAddr, LinkId, LinkType, Opcode, Peer, Route, TransactionId};

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}
fn poa(n: u8) -> LinkAddr {
    LinkAddr::Mac([2, 0, 0, 0, n, 1])
}
fn link(technology: LinkType, n: u8) -> LinkTupleId {
    LinkTupleId { link: LinkId::mac(technology, [2, 0, 0, 0, n, 2]), poa: Some(poa(n)) }
}
/// Where a function is: by the last octet of its address.
fn at(host: u8) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host].into(), mih::PORT)
}
fn peer(name: &str, host: u8) -> Peer {
    let route = Route { transport: TransportProtocol::Udp, local: None, remote: at(host) };
    Peer { id: id(name), route, ack: false }
}

fn config() -> Config {
    let neighbour = Neighbour { peer: peer("target", 2), technology: LinkType::Ieee80216, poa: poa(2) };
    Config {
        mih: mih::Config::new(id("serving")),
        poa: poa(1),
        clients: vec![pos::Client { peer: peer("mn", 9), link: link(LinkType::Ieee80211, 1) }],
        neighbour: Some(neighbour),
        trigger: Trigger::Remote,
        processing: Duration::ZERO,
        capacity: 2,
        reserve: Duration::from_secs(5),
        forget: Duration::from_secs(60),
        max_requests: 4,
    }
}

fn pos(config: Config) -> Tap<PointOfService> {
    let mut pos = Tap::new(PointOfService::new(config, Seed::new(1).stream("pos", 0)));
    pos.command(NOW, Command::Start).unwrap();
    pos
}

/// What it sends: to which host, and what.
fn drain(pos: &mut Tap<PointOfService>) -> Vec<(SocketAddr, Message)> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = pos.poll_transmit(&mut buf) {
        let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
        let decoded = Message::decode(&buf).unwrap();
        if !decoded.is_acknowledgement() {
            sent.push((path.remote, decoded.message));
        }
    }
    sent
}

fn receive(
    pos: &mut Tap<PointOfService>,
    now: Instant,
    from: (&str, u8),
    message: &Message,
    transaction: u16,
) {
    let mut octets = Vec::new();
    let transaction = TransactionId::new(transaction);
    message.encode(Bits::default(), transaction, &id(from.0), &id("serving"), &mut octets).unwrap();
    let path = Path { socket: SocketId::own(0), local: at(1), remote: at(from.1) };
    pos.handle(now, Input::Datagram { path, data: &octets });
}

/// The status of the only answer to a request, which is acted upon at once.
fn answer(pos: &mut Tap<PointOfService>, from: (&str, u8), message: &Message, transaction: u16) -> Status {
    receive(pos, NOW, from, message, transaction);
    pos.handle(NOW, Input::Timeout);
    let sent = drain(pos);
    let answers: Vec<_> = sent.iter().filter(|(to, _)| *to == at(from.1)).collect();
    assert_eq!(answers.len(), 1, "{sent:?}");
    answers[0].1.status().unwrap()
}

/// The step that a row says is over.
fn step_of(row: &Row) -> Option<Step> {
    row.actions.iter().find_map(|action| match action {
        Action::Over(step) => Some(*step),
        _ => None,
    })
}

#[test]
fn every_row_is_taken() {
    PointOfServiceTable::cover(rows_do_what_they_say);
}

fn rows_do_what_they_say() {
    let target = link(LinkType::Ieee80216, 2);
    let serving = link(LinkType::Ieee80211, 1);
    for row in PointOfServiceTable::ROWS {
        let mut pos = pos(config());
        let mn = id("mn");
        let asks =
            matches!(row.from, State::Inquiring | State::Booking) || matches!(row.on, On::Query | On::Commit);
        if asks {
            let commits = row.from == State::Booking || row.on == On::Commit;
            let request = if commits {
                messages::mn_commit(&target)
            } else {
                messages::mn_candidate_query(&serving, &target)
            };
            receive(&mut pos, NOW, ("mn", 9), &request, 3);
            let request = pos.requests.pop_due(NOW).unwrap();
            pos.clients.get_mut(&mn).unwrap().asked = Some((request.transaction, request.message.id));
        }
        // Something is out wherever a result can come.
        if PointOfServiceTable::find(row.from, On::Granted, |_| true).is_some() {
            pos.send(NOW, &mn, Some(id("target")), Some(messages::n2n_commit(&mn, &target)));
        }
        pos.settle(NOW);
        drain(&mut pos);
        let client = pos.clients.get_mut(&mn).unwrap();
        client.state = row.from;
        client.mark = NOW - Duration::from_millis(7);

        assert!(pos.happen(NOW, &mn, row.on), "{row:?}");
        pos.settle(NOW);
        assert_eq!(pos.state(&mn), Some(row.to), "{row:?}");
        let has = |action| row.actions.contains(&action);
        let times = |action| usize::from(has(action));
        let events: Vec<Event> = core::iter::from_fn(|| pos.poll_event()).collect();
        let mut expected = Vec::new();
        if let Some(step) = step_of(row) {
            expected.push(Event::Step { station: mn.clone(), step, took: Duration::from_millis(7) });
        }
        if has(Action::Begin) {
            expected.push(Event::HandoverBegan { station: mn.clone() });
        }
        if has(Action::BreakOff) {
            expected.push(Event::BrokenOff { station: mn.clone() });
        }
        assert_eq!(events, expected, "{row:?}");
        let counters = *pos.counters();
        let counted = [counters.began, counters.broken_off, counters.forgotten];
        let wanted = [Action::Begin, Action::BreakOff, Action::Forget].map(|a| times(a) as u64);
        assert_eq!(counted, wanted, "{row:?}");

        let sent = drain(&mut pos);
        let said = |to: u8, wanted: MessageId| {
            sent.iter().filter(|(remote, message)| *remote == at(to) && message.id == wanted).count()
        };
        let requests = [
            (Action::Inquire, 2, MessageId::N2N_HO_QUERY_RESOURCES_REQUEST),
            (Action::Book, 2, MessageId::N2N_HO_COMMIT_REQUEST),
            (Action::Ask, 9, MessageId::NET_HO_CANDIDATE_QUERY_REQUEST),
            (Action::Tell, 9, MessageId::NET_HO_COMMIT_REQUEST),
            (Action::Offer, 9, MessageId::MN_HO_CANDIDATE_QUERY_RESPONSE),
            (Action::Grant, 9, MessageId::MN_HO_COMMIT_RESPONSE),
        ];
        for (action, to, message) in requests {
            // A denial is a response of the same name.
            let denied = message.opcode == Opcode::Response && (has(Action::Deny) || has(Action::Regret));
            if !denied {
                assert_eq!(said(to, message), times(action), "{row:?} {message}");
            }
        }
        let statuses: Vec<Status> = sent.iter().filter_map(|(_, message)| message.status()).collect();
        let status = [
            (Action::Offer, Status::Success),
            (Action::Grant, Status::Success),
            (Action::Deny, Status::Rejected),
            (Action::Regret, Status::NetworkError),
        ];
        let expected: Vec<Status> = status.into_iter().filter(|(a, _)| has(*a)).map(|(_, s)| s).collect();
        assert_eq!(statuses, expected, "{row:?}");
        let client = &pos.clients[&mn];
        assert_eq!(
            client.forget_at.is_some(),
            PointOfServiceTable::find(row.to, On::Forgotten, |_| true).is_some(),
            "{row:?}"
        );
        if has(Action::Abandon) {
            assert_eq!((client.out, pos.open.len()), (None, 0), "{row:?}");
        }
    }
}

#[test]
fn other_events_change_nothing() {
    for state in State::ALL {
        for on in On::ALL.iter().filter(|on| PointOfServiceTable::find(*state, **on, |_| true).is_none()) {
            let mut pos = pos(config());
            pos.clients.get_mut(&id("mn")).unwrap().state = *state;
            assert!(!pos.happen(NOW, &id("mn"), *on));
            assert_eq!((pos.state(&id("mn")), pos.poll_event()), (Some(*state), None));
            assert_eq!(drain(&mut pos), []);
        }
    }
    assert!(!pos(config()).happen(NOW, &id("stranger"), On::Trigger));
}

#[test]
fn a_target_has_room_for_as_many_as_it_has() {
    let mut pos = pos(config());
    let here = link(LinkType::Ieee80211, 1);
    let reserve = |pos: &mut Tap<PointOfService>, name: &str, transaction| {
        answer(pos, ("target", 2), &messages::n2n_commit(&id(name), &here), transaction)
    };
    assert_eq!(reserve(&mut pos, "a", 1), Status::Success);
    let query = |name: &str| messages::query_resources(&id(name), &here);
    assert_eq!(answer(&mut pos, ("target", 2), &query("b"), 2), Status::Success);
    assert_eq!(reserve(&mut pos, "b", 3), Status::Success);
    assert_eq!(reserve(&mut pos, "c", 4), Status::Rejected);
    assert_eq!(answer(&mut pos, ("target", 2), &query("c"), 5), Status::Rejected);
    assert_eq!(answer(&mut pos, ("target", 2), &query("a"), 6), Status::Success);
    assert_eq!((pos.counters.reserved, pos.counters.no_resources), (2, 2));
    // After five seconds the places are free again.
    let later = NOW + Duration::from_secs(5);
    pos.handle(later, Input::Timeout);
    assert_eq!((pos.admission().reserved(), pos.counters.expired), (0, 2));
}

#[test]
fn who_is_not_known_is_refused() {
    let mut pos = pos(config());
    let (here, there) = (link(LinkType::Ieee80211, 1), link(LinkType::Ieee80216, 2));
    let stranger = ("stranger", 77);
    let query = messages::mn_candidate_query(&here, &there);
    assert_eq!(answer(&mut pos, stranger, &query, 1), Status::AuthorizationFailure);
    assert_eq!(answer(&mut pos, stranger, &messages::mn_commit(&there), 2), Status::AuthorizationFailure);
    assert_eq!(pos.counters.unknown_stations, 2);
    // It says that it came here, where nothing is reserved for it.
    receive(&mut pos, NOW, stranger, &messages::mn_complete(&there, &here), 3);
    pos.handle(NOW, Input::Timeout);
    assert_eq!((pos.counters.unknown_stations, pos.admission().attached()), (3, 0));
    // What no point of service is asked.
    let request = messages::net_commit(&there);
    assert_eq!(answer(&mut pos, ("mn", 9), &request, 4), Status::Rejected);
    assert_eq!(pos.counters.unknown_requests, 1);
    let going = messages::going_down(&here, Duration::from_secs(100));
    receive(&mut pos, NOW, stranger, &going, 5);
    assert_eq!(pos.counters.ignored_indications, 1);
}

#[test]
fn a_network_without_neighbours_leads_nowhere() {
    let mut pos = pos(Config { neighbour: None, ..config() });
    let (here, there) = (link(LinkType::Ieee80211, 1), link(LinkType::Ieee80216, 2));
    let query = messages::mn_candidate_query(&here, &there);
    assert_eq!(answer(&mut pos, ("mn", 9), &query, 1), Status::NetworkError);
    receive(&mut pos, NOW, ("mn", 9), &messages::going_down(&here, Duration::from_secs(1)), 2);
    assert_eq!((pos.counters.began, pos.counters.broken_off), (1, 1));
    // A completion has nobody to be told to.
    assert_eq!(answer(&mut pos, ("mn", 9), &messages::mn_complete(&here, &there), 3), Status::Success);
    assert_eq!(pos.counters.gone, 1);
}

/// Events of its own link begin a handover where they shall, and nowhere else.
#[test]
fn triggers_are_a_setting() {
    let going = LinkEvent::GoingDown { within: Duration::from_secs(9) };
    for (trigger, local, remote) in [(Trigger::Never, 0, 0), (Trigger::Local, 1, 0), (Trigger::Remote, 0, 1)]
    {
        let mut own = pos(Config { trigger, ..config() });
        for event in [LinkEvent::Up, going, LinkEvent::Down] {
            own.command(NOW, Command::Link { station: id("mn"), event }).unwrap();
        }
        assert_eq!((own.counters.began, own.counters.ignored_link_events), (local, 3 - local));
        let mut told = pos(Config { trigger, ..config() });
        let message = messages::going_down(&link(LinkType::Ieee80211, 1), Duration::from_secs(9));
        receive(&mut told, NOW, ("mn", 9), &message, 1);
        assert_eq!((told.counters.began, told.counters.ignored_indications), (remote, 1 - remote));
    }
    assert!(pos(config()).command(NOW, Command::Start).is_err());
}
