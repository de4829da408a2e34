//! Each row of the table, and each setting, on the machine.

use super::*;
use crate::station::{MIH_SERVING, MIH_TARGET, StationTable, StationTransitionRow};
use crate::step::Step;
use core::net::IpAddr;
use usher_core::bench::TestMachine;
use usher_core::{Seed, SocketId, TransportProtocol};
use usher_mih::{
    HandoverStatus, HeaderFlags, LinkAddr, LinkId, LinkTupleId, LinkType, PeerRoute, Tlv, TransactionId,
};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const HOME: [u8; 4] = [10, 0, 1, 2];
const CARE_OF: [u8; 4] = [10, 0, 2, 2];
const SERVING: [u8; 4] = [10, 0, 10, 1];

fn mihf_id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}

fn test_config() -> StationConfig {
    let route = |local: [u8; 4], remote: [u8; 4]| PeerRoute {
        transport: TransportProtocol::Udp,
        local: Some(local.into()),
        remote: SocketAddr::new(remote.into(), mih::PORT),
    };
    let link = |technology, n| LinkTupleId {
        link: LinkId::from_mac(technology, [2, 0, 0, 0, n, 2]),
        poa: Some(LinkAddr::Mac([2, 0, 0, 0, n, 1])),
    };
    StationConfig {
        mih: mih::MihfConfig::new(mihf_id("mn")),
        serving: MihfPeer { id: mihf_id("serving"), route: route(HOME, SERVING), ack: false },
        serving_after: route(CARE_OF, SERVING),
        target: None,
        serving_address: HOME.into(),
        target_address: CARE_OF.into(),
        serving_link: link(LinkType::Ieee80211, 1),
        target_link: link(LinkType::Ieee80216, 2),
        correspondent: SocketAddr::new([10, 0, 9, 9].into(), usher_mip::PORT),
        initiation: HandoverInitiatingSide::Network,
        on_failure: OnFailure::WaitForLinkDown,
        commit_answer: CommitAnswer::AfterProcessing,
        processing: Duration::ZERO,
        retry: Duration::from_secs(1),
        binding: usher_mip::RegistrationTimerConfig::default(),
        max_requests: 4,
    }
}

/// Returns a registered station with drained outputs.
fn started_station(config: StationConfig) -> TestMachine<MobileStation> {
    let mut station = TestMachine::new(MobileStation::new(config, Seed::new(1).derive_rng("station", 0)));
    station.handle_command(NOW, StationCommand::Start).unwrap();
    drain_messages(&mut station);
    station
}

/// Returns the sent messages with their sockets.
fn drain_messages(station: &mut TestMachine<MobileStation>) -> Vec<(SocketId, Option<MihfMessage>)> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = station.poll_transmit(&mut buf) {
        let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
        sent.push((path.socket, MihfMessage::decode(&buf).ok().map(|d| d.message)));
    }
    sent
}

fn from_serving(message: &MihfMessage, transaction: u16) -> Vec<u8> {
    let mut octets = Vec::new();
    let (serving, mn) = (mihf_id("serving"), mihf_id("mn"));
    message
        .encode(HeaderFlags::default(), TransactionId::new(transaction), &serving, &mn, &mut octets)
        .unwrap();
    octets
}

fn receive_now(station: &mut TestMachine<MobileStation>, octets: &[u8]) {
    receive_at(station, NOW, octets);
}

fn receive_at(station: &mut TestMachine<MobileStation>, now: Instant, octets: &[u8]) {
    let path = DatagramPath {
        socket: MIH_SERVING,
        local: SocketAddr::new(HOME.into(), mih::PORT),
        remote: SocketAddr::new(SERVING.into(), mih::PORT),
    };
    station.handle_input(now, MachineInput::Datagram { path, data: octets });
}

/// Delivers a query of the network, and takes it from the queue of requests.
fn queued_query(
    station: &mut TestMachine<MobileStation>,
    transaction: u16,
) -> (IncomingRequestId, MessageId) {
    let query = messages::net_candidate_query_request(&station.config.target_link.clone());
    receive_now(station, &from_serving(&query, transaction));
    let request = station.requests.pop_due(NOW).unwrap();
    (request.transaction, request.message.id)
}

fn count_events(events: &[StationEvent], wanted: &StationEvent) -> usize {
    events.iter().filter(|event| *event == wanted).count()
}

/// Returns the step that a row ends.
fn step_of(row: &StationTransitionRow) -> Option<Step> {
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
        let mut station = started_station(test_config());
        station.detached = detached;
        station.state = row.from;
        station.subscribed = true;
        if row.from != State::Resting {
            station.start_handover(NOW - Duration::from_millis(7));
            station.out = None;
        }
        if matches!(row.from, State::Querying | State::Committing | State::Reporting | State::Completing) {
            let query = messages::mn_commit_request(&station.config.target_link.clone());
            station.send_message(NOW, mihf_id("serving"), query);
        }
        if row.from == State::Surveying || row.on == On::Asked {
            station.pending_candidate_query = Some(queued_query(&mut station, 77));
        }
        if row.from == State::Redirecting {
            station.registration.start_registration(NOW);
        }
        station.drain_mihf_events(NOW);
        let began = station.counters.began;
        while station.poll_event().is_some() {}
        drain_messages(&mut station);

        assert!(station.apply_event(NOW, row.on), "{row:?}");
        station.drain_mihf_events(NOW);
        assert_eq!(station.state, row.to, "{row:?}");
        let events: Vec<StationEvent> = core::iter::from_fn(|| station.poll_event()).collect();
        let sent = drain_messages(&mut station);
        let has = |action| row.actions.contains(&action);
        let times = |action| usize::from(has(action));

        let step = step_of(row).map(|step| {
            let took = if row.from == State::Resting { Duration::ZERO } else { Duration::from_millis(7) };
            StationEvent::Step { step, duration: took }
        });
        let steps: Vec<&StationEvent> =
            events.iter().filter(|e| matches!(e, StationEvent::Step { .. })).collect();
        assert_eq!(steps, step.iter().collect::<Vec<_>>(), "{row:?}");
        let command = |interface, command| StationEvent::LinkCommand { interface, command };
        let commands = [
            (Action::Scan, command(StationInterface::Target, LinkCommand::Scan)),
            (Action::Enter, command(StationInterface::Target, LinkCommand::Connect)),
            (Action::Release, command(StationInterface::Serving, LinkCommand::Disconnect)),
            (Action::Cancel, StationEvent::HandoverCancelled),
        ];
        for (action, event) in commands {
            // A link that is down needs no release.
            let spared = action == Action::Release && detached;
            assert_eq!(count_events(&events, &event), if spared { 0 } else { times(action) }, "{row:?}");
        }
        let done = |event: &&StationEvent| matches!(event, StationEvent::HandoverDone { .. });
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
            // By the new link, which the flow uses.
            assert_eq!(sent[0].0, MIH_TARGET, "{row:?}");
        }
        if has(Action::Withdraw) {
            assert_eq!(station.registration.poll_timeout(), None);
        }
        if has(Action::Abandon) {
            assert_eq!(station.out, None, "{row:?}");
        }
        // A query has one answer: the network found, no network, or a rejection.
        let answers: Vec<&MihfMessage> = sent
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

/// An event without a row does not change the state.
#[test]
fn other_events_change_nothing() {
    for state in State::ALL {
        for on in On::ALL.iter().filter(|on| StationTable::find(*state, **on, |_| true).is_none()) {
            let mut station = started_station(test_config());
            station.state = *state;
            assert!(!station.apply_event(NOW, *on));
            assert_eq!((station.state, station.poll_event()), (*state, None));
            assert_eq!(drain_messages(&mut station), []);
        }
    }
}

/// A station rejects requests that do not fit its state, and those for other roles.
#[test]
fn requests_out_of_place_are_refused() {
    let refusal = |station: &mut TestMachine<MobileStation>, message: &MihfMessage| {
        receive_now(station, &from_serving(message, 5));
        station.handle_input(NOW, MachineInput::Timeout);
        let sent = drain_messages(station);
        let answer = sent.iter().filter_map(|(_, m)| m.as_ref()).find(|m| m.status().is_some());
        answer.unwrap_or_else(|| panic!("no answer: {sent:?}")).status()
    };
    let target = test_config().target_link;
    let cases = [
        (State::Moved, messages::net_candidate_query_request(&target)),
        (State::Querying, messages::net_commit_request(&target)),
        (State::Resting, messages::query_resources_request(&mihf_id("mn"), &target)),
    ];
    for (state, message) in cases {
        let mut station = started_station(test_config());
        station.state = state;
        assert_eq!(refusal(&mut station, &message), Some(Status::Rejected), "{state:?}");
        assert_eq!((station.state, station.counters.refused), (state, 1));
    }
    // A second query during the scan: the scan answers the first.
    let mut station = started_station(test_config());
    let first = messages::net_candidate_query_request(&target);
    receive_now(&mut station, &from_serving(&first, 4));
    station.handle_input(NOW, MachineInput::Timeout);
    assert_eq!(station.state, State::Surveying);
    assert_eq!(refusal(&mut station, &first), Some(Status::Rejected));
    let found = LinkEvent::Scanned { found: true };
    station
        .handle_command(NOW, StationCommand::Link { interface: StationInterface::Target, event: found })
        .unwrap();
    assert_eq!((station.counters.answered, station.state), (1, State::Answered));
    // Without room for requests, the station rejects even the first.
    let mut station = self::started_station(StationConfig { max_requests: 0, ..test_config() });
    assert_eq!(refusal(&mut station, &first), Some(Status::UnspecifiedFailure));
    assert_eq!(station.counters.overloaded, 1);
}

#[test]
fn the_registration_is_tried_until_it_succeeds() {
    let mut config = test_config();
    config.mih.transaction = Some(Duration::from_secs(3));
    let mut station = started_station(config);
    assert!(station.handle_command(NOW, StationCommand::Start).is_err());
    let registered = |station: &mut TestMachine<MobileStation>| {
        drain_messages(station)
            .iter()
            .any(|(_, m)| m.as_ref().is_some_and(|m| m.id == MessageId::REGISTER_REQUEST))
    };
    for (after, again) in [(3, false), (4, true), (7, false), (8, true)] {
        let now = NOW + Duration::from_secs(after);
        station.handle_input(now, MachineInput::Timeout);
        assert_eq!(registered(&mut station), again, "{after}");
    }
    assert_eq!(station.counters.registrations_repeated, 2);
}

/// The station repeats a rejected refresh of its binding, before and after the completion and across its end.
/// The old binding may expire before one is accepted.
#[test]
fn a_refused_refreshment_is_tried_again() {
    let at = |s: u64| NOW + Duration::from_secs(s);
    let updates = |station: &mut TestMachine<MobileStation>, now| {
        station.handle_input(now, MachineInput::Timeout);
        drain_messages(station).iter().filter(|(socket, _)| *socket == BINDING_SOCKET).count()
    };
    let answer_from = |station: &mut TestMachine<MobileStation>, remote, now, sequence, status| {
        let ack = usher_mip::BindingAcknowledgement {
            status,
            key_management: false,
            sequence,
            lifetime: usher_mip::BindingLifetime(5),
            options: Vec::new(),
        };
        let (source, destination) =
            (usher_mip::to_inner_address([10, 0, 9, 9].into()), usher_mip::to_inner_address(HOME.into()));
        let message = usher_mip::MobilityMessage::Acknowledgement(ack);
        let mut data = Vec::new();
        MobilityPacket { source, destination, message }.emit(&mut data);
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let path = DatagramPath { socket: BINDING_SOCKET, local: any, remote };
        station.handle_input(now, MachineInput::Datagram { path, data: &data });
    };
    let answer = |station: &mut TestMachine<MobileStation>, now, sequence, status| {
        answer_from(station, test_config().correspondent, now, sequence, status);
    };
    let refused = usher_mip::BindingStatus(130);
    for (before, ends) in [(State::Completing, true), (State::Completing, false), (State::Moved, false)] {
        let mut station = started_station(test_config());
        station.start_handover(NOW);
        station.state = before;
        let first = station.registration.start_registration(NOW).sequence;
        // A binding of twenty seconds, refreshed after fifteen and rejected. An acknowledgement from another
        // address is ignored.
        let elsewhere = SocketAddr::new([10, 0, 9, 66].into(), usher_mip::PORT);
        answer_from(&mut station, elsewhere, NOW, first, usher_mip::BindingStatus::ACCEPTED);
        assert_eq!(station.counters.stale_bindings, 1);
        answer(&mut station, NOW, first, usher_mip::BindingStatus::ACCEPTED);
        assert_eq!(updates(&mut station, at(14)), 0);
        assert_eq!(updates(&mut station, at(15)), 1);
        answer(&mut station, at(15), first + 1, refused);
        assert_eq!((station.counters.bindings_refused, station.state), (1, before));
        if ends {
            assert!(station.apply_event(at(15), On::Granted));
        }
        assert_eq!(station.poll_timeout(), Some(at(16)), "{before:?} {ends}");
        assert_eq!(updates(&mut station, at(16)), 1, "{before:?} {ends}");
        answer(&mut station, at(16), first + 2, usher_mip::BindingStatus::ACCEPTED);
        assert_eq!(station.registration.poll_timeout(), Some(at(31)), "{before:?} {ends}");
    }
}

/// A link that was never up cannot be lost.
#[test]
fn before_the_start_links_mean_nothing() {
    let mut station =
        TestMachine::new(MobileStation::new(test_config(), Seed::new(1).derive_rng("station", 0)));
    for event in [LinkEvent::Down, LinkEvent::Up, LinkEvent::GoingDown { time_to_loss: Duration::ZERO }] {
        station
            .handle_command(NOW, StationCommand::Link { interface: StationInterface::Serving, event })
            .unwrap();
    }
    assert_eq!((station.state(), station.poll_event()), (State::Resting, None));
    assert_eq!(station.counters.ignored_link_events, 3);
}

/// Received octets that are no packet are counted.
#[test]
fn odd_input_is_dropped() {
    let mut station = started_station(test_config());
    let datagram = |station: &mut TestMachine<MobileStation>, socket, data: &[u8]| {
        let any = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0);
        let path = DatagramPath { socket, local: any, remote: any };
        station.handle_input(NOW, MachineInput::Datagram { path, data });
    };
    datagram(&mut station, FLOW_SERVING, &[1, 2, 3]);
    datagram(&mut station, FLOW_TARGET, &[0, 0, 0, 9]);
    datagram(&mut station, BINDING_SOCKET, &[0; 50]);
    let stray = usher_mip::BindingAcknowledgement {
        status: usher_mip::BindingStatus::ACCEPTED,
        key_management: false,
        sequence: 1,
        lifetime: usher_mip::BindingLifetime(9),
        options: Vec::new(),
    };
    let mut octets = Vec::new();
    let (source, destination) =
        (usher_mip::to_inner_address([10, 0, 9, 9].into()), usher_mip::to_inner_address(HOME.into()));
    let message = usher_mip::MobilityMessage::Acknowledgement(stray);
    MobilityPacket { source, destination, message }.emit(&mut octets);
    datagram(&mut station, BINDING_SOCKET, &octets);
    let counters = station.counters;
    assert_eq!((counters.malformed_data, counters.received), (1, 1));
    assert_eq!((counters.malformed_bindings, counters.stale_bindings), (1, 1));
    let received = StationEvent::Received { sequence: 9, interface: StationInterface::Target };
    assert_eq!(station.poll_event(), Some(received));
    assert_eq!(station.poll_event(), None);
}

/// For any order of events, the controller runs one handover at a time and becomes idle.
#[test]
fn no_order_of_events_is_too_odd() {
    let target = test_config().target_link;
    let requests = [messages::net_candidate_query_request(&target), messages::net_commit_request(&target)];
    let within = Duration::from_secs(9);
    let events = [
        LinkEvent::Detected,
        LinkEvent::Up,
        LinkEvent::Down,
        LinkEvent::GoingDown { time_to_loss: within },
        LinkEvent::Scanned { found: true },
        LinkEvent::Scanned { found: false },
    ];
    let mut reached = alloc::collections::BTreeSet::new();
    for seed in 0..300 {
        let mut rng = Seed::new(seed).derive_rng("order", 0);
        let initiation = if rng.sample_bool(0.5) {
            HandoverInitiatingSide::Station
        } else {
            HandoverInitiatingSide::Network
        };
        let on_failure =
            [OnFailure::WaitForLinkDown, OnFailure::OtherInterface, OnFailure::OtherInterfaceIfUnanswered]
                [rng.sample_below(3) as usize];
        let mut station = started_station(StationConfig { initiation, on_failure, ..test_config() });
        let mut now = NOW;
        let mut ends = 0;
        for n in 0..60 {
            now += Duration::from_millis(rng.sample_below(2000));
            match rng.sample_below(4) {
                0 => receive_at(&mut station, now, &from_serving(&requests[rng.sample_below(2) as usize], n)),
                1 => station.handle_input(now, MachineInput::Timeout),
                _ => {
                    let interface = if rng.sample_bool(0.4) {
                        StationInterface::Serving
                    } else {
                        StationInterface::Target
                    };
                    let event = events[rng.sample_below(6) as usize];
                    station.handle_command(now, StationCommand::Link { interface, event }).unwrap();
                }
            }
            drain_messages(&mut station);
            while let Some(event) = station.poll_event() {
                ends += u32::from(matches!(event, StationEvent::HandoverDone { .. }));
            }
            reached.insert(station.state());
        }
        assert!(ends <= 1, "{seed}");
        let counters = station.counters();
        assert!(counters.succeeded + counters.failed + counters.cancelled <= counters.began, "{seed}");
    }
    // Without answers, some states are out of reach.
    let unreached = [State::Committing, State::Completing, State::Moved];
    let expected = State::ALL.iter().copied().filter(|state| !unreached.contains(state)).collect();
    assert_eq!(reached, expected);
}
