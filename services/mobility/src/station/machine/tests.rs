//! Each row of the table, and each setting, on the machine itself.

use super::*;
use crate::station::{MIH_SERVING, MIH_TARGET, Row, StationTable};
use crate::step::Step;
use core::net::IpAddr;
use usher_core::bench::Tap;
use usher_core::{Seed, SocketId, TransportProtocol};
use usher_mih::{Bits, HandoverStatus, LinkAddr, LinkId, LinkTupleId, LinkType, Route, Tlv, TransactionId};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const HOME: [u8; 4] = [10, 0, 1, 2];
const CARE_OF: [u8; 4] = [10, 0, 2, 2];
const SERVING: [u8; 4] = [10, 0, 10, 1];

fn id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}

fn config() -> Config {
    let route = |local: [u8; 4], remote: [u8; 4]| Route {
        transport: TransportProtocol::Udp,
        local: Some(local.into()),
        remote: SocketAddr::new(remote.into(), mih::PORT),
    };
    let link = |technology, n| LinkTupleId {
        link: LinkId::mac(technology, [2, 0, 0, 0, n, 2]),
        poa: Some(LinkAddr::Mac([2, 0, 0, 0, n, 1])),
    };
    Config {
        mih: mih::Config::new(id("mn")),
        serving: Peer { id: id("serving"), route: route(HOME, SERVING), ack: false },
        serving_after: route(CARE_OF, SERVING),
        target: None,
        serving_address: HOME.into(),
        target_address: CARE_OF.into(),
        serving_link: link(LinkType::Ieee80211, 1),
        target_link: link(LinkType::Ieee80216, 2),
        correspondent: SocketAddr::new([10, 0, 9, 9].into(), usher_mip::PORT),
        initiation: Initiation::Network,
        on_failure: OnFailure::WaitForLinkDown,
        commit_answer: CommitAnswer::AfterProcessing,
        processing: Duration::ZERO,
        retry: Duration::from_secs(1),
        binding: usher_mip::Timing::default(),
        max_requests: 4,
    }
}

/// A station that has registered and said all it had to say.
fn station(config: Config) -> Tap<Station> {
    let mut station = Tap::new(Station::new(config, Seed::new(1).stream("station", 0)));
    station.command(NOW, Command::Start).unwrap();
    drain(&mut station);
    station
}

/// Messages and sockets of what it sends.
fn drain(station: &mut Tap<Station>) -> Vec<(SocketId, Option<Message>)> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = station.poll_transmit(&mut buf) {
        let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
        sent.push((path.socket, Message::decode(&buf).ok().map(|d| d.message)));
    }
    sent
}

fn from_serving(message: &Message, transaction: u16) -> Vec<u8> {
    let mut octets = Vec::new();
    let (serving, mn) = (id("serving"), id("mn"));
    message.encode(Bits::default(), TransactionId::new(transaction), &serving, &mn, &mut octets).unwrap();
    octets
}

fn receive(station: &mut Tap<Station>, octets: &[u8]) {
    receive_at(station, NOW, octets);
}

fn receive_at(station: &mut Tap<Station>, now: Instant, octets: &[u8]) {
    let path = Path {
        socket: MIH_SERVING,
        local: SocketAddr::new(HOME.into(), mih::PORT),
        remote: SocketAddr::new(SERVING.into(), mih::PORT),
    };
    station.handle(now, Input::Datagram { path, data: octets });
}

/// A query of the network, processed but not acted upon.
fn asked(station: &mut Tap<Station>, transaction: u16) -> (Incoming, MessageId) {
    let query = messages::net_candidate_query(&station.config.target_link.clone());
    receive(station, &from_serving(&query, transaction));
    let request = station.requests.pop_due(NOW).unwrap();
    (request.transaction, request.message.id)
}

fn count(events: &[Event], wanted: &Event) -> usize {
    events.iter().filter(|event| *event == wanted).count()
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
    StationTable::cover(rows_do_what_they_say);
}

fn rows_do_what_they_say() {
    for (row, detached) in StationTable::ROWS.iter().flat_map(|row| [(row, false), (row, true)]) {
        let mut station = station(config());
        station.detached = detached;
        station.state = row.from;
        station.subscribed = true;
        if row.from != State::Resting {
            station.begin(NOW - Duration::from_millis(7));
            station.out = None;
        }
        if matches!(row.from, State::Querying | State::Committing | State::Reporting | State::Completing) {
            let query = messages::mn_commit(&station.config.target_link.clone());
            station.send(NOW, id("serving"), query);
        }
        if row.from == State::Surveying || row.on == On::Asked {
            station.asked = Some(asked(&mut station, 77));
        }
        if row.from == State::Redirecting {
            station.registration.begin(NOW);
        }
        station.settle(NOW);
        let began = station.counters.began;
        while station.poll_event().is_some() {}
        drain(&mut station);

        assert!(station.happen(NOW, row.on), "{row:?}");
        station.settle(NOW);
        assert_eq!(station.state, row.to, "{row:?}");
        let events: Vec<Event> = core::iter::from_fn(|| station.poll_event()).collect();
        let sent = drain(&mut station);
        let has = |action| row.actions.contains(&action);
        let times = |action| usize::from(has(action));

        let step = step_of(row).map(|step| {
            let took = if row.from == State::Resting { Duration::ZERO } else { Duration::from_millis(7) };
            Event::Step { step, took }
        });
        let steps: Vec<&Event> = events.iter().filter(|e| matches!(e, Event::Step { .. })).collect();
        assert_eq!(steps, step.iter().collect::<Vec<_>>(), "{row:?}");
        let command = |interface, command| Event::LinkCommand { interface, command };
        let commands = [
            (Action::Scan, command(Interface::Target, LinkCommand::Scan)),
            (Action::Enter, command(Interface::Target, LinkCommand::Connect)),
            (Action::Release, command(Interface::Serving, LinkCommand::Disconnect)),
            (Action::Cancel, Event::HandoverCancelled),
        ];
        for (action, event) in commands {
            // A link that is down need not be released.
            let spared = action == Action::Release && detached;
            assert_eq!(count(&events, &event), if spared { 0 } else { times(action) }, "{row:?}");
        }
        let done = |event: &&Event| matches!(event, Event::HandoverDone { .. });
        assert_eq!(events.iter().filter(done).count(), times(Action::Finish), "{row:?}");
        assert_eq!(station.counters.began - began, times(Action::Begin) as u64, "{row:?}");
        assert_eq!(station.counters.broken_off, times(Action::BreakOff) as u64, "{row:?}");
        let incomplete = row.from == State::Completing && row.to == State::Moved && row.on != On::Granted;
        assert_eq!(station.counters.incomplete, u64::from(incomplete), "{row:?}");
        assert_eq!(station.retry_at.is_some(), has(Action::Later), "{row:?}");

        let said = |wanted: MessageId| {
            sent.iter().filter(|(_, m)| m.as_ref().is_some_and(|m| m.id == wanted)).count()
        };
        let messages = [
            (Action::Report, MessageId::LINK_GOING_DOWN_INDICATION),
            (Action::Query, MessageId::MN_HO_CANDIDATE_QUERY_REQUEST),
            (Action::Commit, MessageId::MN_HO_COMMIT_REQUEST),
            (Action::Complete, MessageId::MN_HO_COMPLETE_REQUEST),
        ];
        for (action, message) in messages {
            assert_eq!(said(message), times(action), "{row:?}");
        }
        let updates = sent.iter().filter(|(socket, _)| *socket == BINDING_SOCKET).count();
        assert_eq!(updates, times(Action::Redirect), "{row:?}");
        if has(Action::Complete) {
            // By the new link, to which the flow has gone.
            assert_eq!(sent[0].0, MIH_TARGET, "{row:?}");
        }
        if has(Action::Withdraw) {
            assert_eq!(station.registration.poll_timeout(), None);
        }
        if has(Action::Abandon) {
            assert_eq!(station.out, None, "{row:?}");
        }
        // A query is answered once: with the network that was found, without one, or with a refusal.
        let answers: Vec<&Message> = sent
            .iter()
            .filter_map(|(_, message)| message.as_ref())
            .filter(|message| message.id == MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE)
            .collect();
        let due = (row.from == State::Surveying || row.on == On::Asked) && row.to != State::Surveying;
        assert_eq!(answers.len(), usize::from(due), "{row:?}");
        for answer in answers {
            let status = answer.params.iter().find_map(|p| match p {
                Tlv::HandoverStatus(status) => Some(*status),
                _ => None,
            });
            let expected = match (has(Action::Answer), has(Action::AnswerNone)) {
                (true, _) => Some(HandoverStatus::Permitted),
                (_, true) => Some(HandoverStatus::Declined),
                _ => None,
            };
            assert_eq!(status, expected, "{row:?}");
            assert_eq!(answer.status() == Some(Status::Success), expected.is_some(), "{row:?}");
        }
    }
}

/// What has no row changes nothing.
#[test]
fn other_events_change_nothing() {
    for state in State::ALL {
        for on in On::ALL.iter().filter(|on| StationTable::find(*state, **on, |_| true).is_none()) {
            let mut station = station(config());
            station.state = *state;
            assert!(!station.happen(NOW, *on));
            assert_eq!((station.state, station.poll_event()), (*state, None));
            assert_eq!(drain(&mut station), []);
        }
    }
}

/// Requests that do not fit are refused, and those that are none of a station's.
#[test]
fn requests_out_of_place_are_refused() {
    let refusal = |station: &mut Tap<Station>, message: &Message| {
        receive(station, &from_serving(message, 5));
        station.handle(NOW, Input::Timeout);
        let sent = drain(station);
        let answer = sent.iter().filter_map(|(_, m)| m.as_ref()).find(|m| m.status().is_some());
        answer.unwrap_or_else(|| panic!("no answer: {sent:?}")).status()
    };
    let target = config().target_link;
    let cases = [
        (State::Moved, messages::net_candidate_query(&target)),
        (State::Querying, messages::net_commit(&target)),
        (State::Resting, messages::query_resources(&id("mn"), &target)),
    ];
    for (state, message) in cases {
        let mut station = station(config());
        station.state = state;
        assert_eq!(refusal(&mut station, &message), Some(Status::Rejected), "{state:?}");
        assert_eq!((station.state, station.counters.refused), (state, 1));
    }
    // A second query during the scan: the first is the one that the scan answers.
    let mut station = station(config());
    let first = messages::net_candidate_query(&target);
    receive(&mut station, &from_serving(&first, 4));
    station.handle(NOW, Input::Timeout);
    assert_eq!(station.state, State::Surveying);
    assert_eq!(refusal(&mut station, &first), Some(Status::Rejected));
    let found = LinkEvent::Scanned { found: true };
    station.command(NOW, Command::Link { interface: Interface::Target, event: found }).unwrap();
    assert_eq!((station.counters.answered, station.state), (1, State::Answered));
    // Without room for requests, even the first is refused.
    let mut station = self::station(Config { max_requests: 0, ..config() });
    assert_eq!(refusal(&mut station, &first), Some(Status::UnspecifiedFailure));
    assert_eq!(station.counters.overloaded, 1);
}

#[test]
fn the_registration_is_tried_until_it_succeeds() {
    let mut config = config();
    config.mih.transaction = Some(Duration::from_secs(3));
    let mut station = station(config);
    assert!(station.command(NOW, Command::Start).is_err());
    let registered = |station: &mut Tap<Station>| {
        drain(station).iter().any(|(_, m)| m.as_ref().is_some_and(|m| m.id == MessageId::REGISTER_REQUEST))
    };
    for (after, again) in [(3, false), (4, true), (7, false), (8, true)] {
        let now = NOW + Duration::from_secs(after);
        station.handle(now, Input::Timeout);
        assert_eq!(registered(&mut station), again, "{after}");
    }
    assert_eq!(station.counters.registrations_repeated, 2);
}

/// A refreshment that is refused is tried again, before and after the completion and across its end; until it is
/// accepted the binding of before may run out.
#[test]
fn a_refused_refreshment_is_tried_again() {
    let at = |s: u64| NOW + Duration::from_secs(s);
    let updates = |station: &mut Tap<Station>, now| {
        station.handle(now, Input::Timeout);
        drain(station).iter().filter(|(socket, _)| *socket == BINDING_SOCKET).count()
    };
    let answer_from = |station: &mut Tap<Station>, remote, now, sequence, status| {
        let ack = usher_mip::BindingAcknowledgement {
            status,
            key_management: false,
            sequence,
            lifetime: usher_mip::Lifetime(5),
            options: Vec::new(),
        };
        let (source, destination) = (usher_mip::inner([10, 0, 9, 9].into()), usher_mip::inner(HOME.into()));
        let message = usher_mip::Message::Acknowledgement(ack);
        let mut data = Vec::new();
        Packet { source, destination, message }.emit(&mut data);
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let path = Path { socket: BINDING_SOCKET, local: any, remote };
        station.handle(now, Input::Datagram { path, data: &data });
    };
    let answer = |station: &mut Tap<Station>, now, sequence, status| {
        answer_from(station, config().correspondent, now, sequence, status);
    };
    let refused = usher_mip::Status(130);
    for (before, ends) in [(State::Completing, true), (State::Completing, false), (State::Moved, false)] {
        let mut station = station(config());
        station.begin(NOW);
        station.state = before;
        let first = station.registration.begin(NOW).sequence;
        // Of twenty seconds; refreshed after fifteen, and refused. What somebody else says is nothing.
        let elsewhere = SocketAddr::new([10, 0, 9, 66].into(), usher_mip::PORT);
        answer_from(&mut station, elsewhere, NOW, first, usher_mip::Status::ACCEPTED);
        assert_eq!(station.counters.stale_bindings, 1);
        answer(&mut station, NOW, first, usher_mip::Status::ACCEPTED);
        assert_eq!(updates(&mut station, at(14)), 0);
        assert_eq!(updates(&mut station, at(15)), 1);
        answer(&mut station, at(15), first + 1, refused);
        assert_eq!((station.counters.bindings_refused, station.state), (1, before));
        if ends {
            assert!(station.happen(at(15), On::Granted));
        }
        assert_eq!(station.poll_timeout(), Some(at(16)), "{before:?} {ends}");
        assert_eq!(updates(&mut station, at(16)), 1, "{before:?} {ends}");
        answer(&mut station, at(16), first + 2, usher_mip::Status::ACCEPTED);
        assert_eq!(station.registration.poll_timeout(), Some(at(31)), "{before:?} {ends}");
    }
}

/// A link that has not come up yet is not lost.
#[test]
fn before_the_start_links_mean_nothing() {
    let mut station = Tap::new(Station::new(config(), Seed::new(1).stream("station", 0)));
    for event in [LinkEvent::Down, LinkEvent::Up, LinkEvent::GoingDown { within: Duration::ZERO }] {
        station.command(NOW, Command::Link { interface: Interface::Serving, event }).unwrap();
    }
    assert_eq!((station.state(), station.poll_event()), (State::Resting, None));
    assert_eq!(station.counters.ignored_link_events, 3);
}

/// What comes from outside and is no packet is counted.
#[test]
fn odd_input_is_dropped() {
    let mut station = station(config());
    let datagram = |station: &mut Tap<Station>, socket, data: &[u8]| {
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let path = Path { socket, local: any, remote: any };
        station.handle(NOW, Input::Datagram { path, data });
    };
    datagram(&mut station, FLOW_SERVING, &[1, 2, 3]);
    datagram(&mut station, FLOW_TARGET, &[0, 0, 0, 9]);
    datagram(&mut station, BINDING_SOCKET, &[0; 50]);
    let stray = usher_mip::BindingAcknowledgement {
        status: usher_mip::Status::ACCEPTED,
        key_management: false,
        sequence: 1,
        lifetime: usher_mip::Lifetime(9),
        options: Vec::new(),
    };
    let mut octets = Vec::new();
    let (source, destination) = (usher_mip::inner([10, 0, 9, 9].into()), usher_mip::inner(HOME.into()));
    let message = usher_mip::Message::Acknowledgement(stray);
    Packet { source, destination, message }.emit(&mut octets);
    datagram(&mut station, BINDING_SOCKET, &octets);
    let counters = station.counters;
    assert_eq!((counters.malformed_data, counters.received), (1, 1));
    assert_eq!((counters.malformed_bindings, counters.stale_bindings), (1, 1));
    let received = Event::Received { sequence: 9, interface: Interface::Target };
    assert_eq!(station.poll_event(), Some(received));
    assert_eq!(station.poll_event(), None);
}

/// Whatever happens in whatever order, the controller stays in its states, one handover at a time, and comes to rest.
#[test]
fn no_order_of_events_is_too_odd() {
    let target = config().target_link;
    let requests = [messages::net_candidate_query(&target), messages::net_commit(&target)];
    let within = Duration::from_secs(9);
    let events = [
        LinkEvent::Detected,
        LinkEvent::Up,
        LinkEvent::Down,
        LinkEvent::GoingDown { within },
        LinkEvent::Scanned { found: true },
        LinkEvent::Scanned { found: false },
    ];
    let mut reached = alloc::collections::BTreeSet::new();
    for seed in 0..300 {
        let mut rng = Seed::new(seed).stream("order", 0);
        let initiation = if rng.chance(0.5) { Initiation::Station } else { Initiation::Network };
        let on_failure =
            [OnFailure::WaitForLinkDown, OnFailure::OtherInterface, OnFailure::OtherInterfaceIfUnanswered]
                [rng.below(3) as usize];
        let mut station = station(Config { initiation, on_failure, ..config() });
        let mut now = NOW;
        let mut ends = 0;
        for n in 0..60 {
            now += Duration::from_millis(rng.below(2000));
            match rng.below(4) {
                0 => receive_at(&mut station, now, &from_serving(&requests[rng.below(2) as usize], n)),
                1 => station.handle(now, Input::Timeout),
                _ => {
                    let interface = if rng.chance(0.4) { Interface::Serving } else { Interface::Target };
                    let event = events[rng.below(6) as usize];
                    station.command(now, Command::Link { interface, event }).unwrap();
                }
            }
            drain(&mut station);
            while let Some(event) = station.poll_event() {
                ends += u32::from(matches!(event, Event::HandoverDone { .. }));
            }
            reached.insert(station.state());
        }
        assert!(ends <= 1, "{seed}");
        let counters = station.counters();
        assert!(counters.succeeded + counters.failed + counters.cancelled <= counters.began, "{seed}");
    }
    // Without answers from anybody, not all states are reached.
    let unreached = [State::Committing, State::Completing, State::Moved];
    let expected = State::ALL.iter().copied().filter(|state| !unreached.contains(state)).collect();
    assert_eq!(reached, expected);
}
