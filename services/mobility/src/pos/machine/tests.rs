//! Each row of the table, and each request, on the machine.

use super::*;
use crate::pos::{self, NeighbourPos, PointOfServiceTable, PosTransitionRow};
use crate::step::Step;
use core::net::SocketAddr;
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Seed, SocketId, Transmit, TransportProtocol};
use usher_mih::{HeaderFlags, LinkAddr, LinkId, LinkType, MihfPeer, Opcode, PeerRoute, TransactionId};

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn mihf_id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}
fn test_poa(n: u8) -> LinkAddr {
    LinkAddr::Mac([2, 0, 0, 0, n, 1])
}
fn test_link(technology: LinkType, n: u8) -> LinkTupleId {
    LinkTupleId { link: LinkId::from_mac(technology, [2, 0, 0, 0, n, 2]), poa: Some(test_poa(n)) }
}
/// Returns the address of a function by its last octet.
fn host_address(host: u8) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host].into(), mih::PORT)
}
fn test_peer(name: &str, host: u8) -> MihfPeer {
    let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote: host_address(host) };
    MihfPeer { id: mihf_id(name), route, ack: false }
}

fn test_config() -> PosConfig {
    let neighbour =
        NeighbourPos { peer: test_peer("target", 2), technology: LinkType::Ieee80216, poa: test_poa(2) };
    PosConfig {
        mih: mih::MihfConfig::new(mihf_id("serving")),
        poa: test_poa(1),
        clients: vec![pos::ServedStation {
            peer: test_peer("mn", 9),
            link: test_link(LinkType::Ieee80211, 1),
        }],
        neighbour: Some(neighbour),
        trigger: HandoverTrigger::Remote,
        processing: Duration::ZERO,
        capacity: 2,
        reserve: Duration::from_secs(5),
        handover_expiry: Duration::from_secs(60),
        max_requests: 4,
    }
}

fn started_pos(config: PosConfig) -> TestMachine<PointOfService> {
    let mut pos = TestMachine::new(PointOfService::new(config, Seed::new(1).derive_rng("pos", 0)));
    pos.handle_command(NOW, PosCommand::Start).unwrap();
    pos
}

/// Returns the sent messages with their destinations.
fn drain_messages(pos: &mut TestMachine<PointOfService>) -> Vec<(SocketAddr, MihfMessage)> {
    let mut sent = Vec::new();
    let mut buf = Vec::new();
    while let Some(transmit) = pos.poll_transmit(&mut buf) {
        let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
        let decoded = MihfMessage::decode(&buf).unwrap();
        if !decoded.is_acknowledgement() {
            sent.push((path.remote, decoded.message));
        }
    }
    sent
}

fn inject_message(
    pos: &mut TestMachine<PointOfService>,
    now: Instant,
    from: (&str, u8),
    message: &MihfMessage,
    transaction: u16,
) {
    let mut octets = Vec::new();
    let transaction = TransactionId::new(transaction);
    message
        .encode(HeaderFlags::default(), transaction, &mihf_id(from.0), &mihf_id("serving"), &mut octets)
        .unwrap();
    let path = DatagramPath {
        socket: SocketId::from_number(0),
        local: host_address(1),
        remote: host_address(from.1),
    };
    pos.handle_input(now, MachineInput::Datagram { path, data: &octets });
}

/// Processes a request at once, and returns the status of its only answer.
fn request_status(
    pos: &mut TestMachine<PointOfService>,
    from: (&str, u8),
    message: &MihfMessage,
    transaction: u16,
) -> Status {
    inject_message(pos, NOW, from, message, transaction);
    pos.handle_input(NOW, MachineInput::Timeout);
    let sent = drain_messages(pos);
    let answers: Vec<_> = sent.iter().filter(|(to, _)| *to == host_address(from.1)).collect();
    assert_eq!(answers.len(), 1, "{sent:?}");
    answers[0].1.status().unwrap()
}

/// Returns the step that a row ends.
fn step_of(row: &PosTransitionRow) -> Option<Step> {
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
    let target = test_link(LinkType::Ieee80216, 2);
    let serving = test_link(LinkType::Ieee80211, 1);
    for row in PointOfServiceTable::ROWS {
        let mut pos = started_pos(test_config());
        let mn = mihf_id("mn");
        let asks =
            matches!(row.from, State::Inquiring | State::Booking) || matches!(row.on, On::Query | On::Commit);
        if asks {
            let commits = row.from == State::Booking || row.on == On::Commit;
            let request = if commits {
                messages::mn_commit_request(&target)
            } else {
                messages::mn_candidate_query_request(&serving, &target)
            };
            inject_message(&mut pos, NOW, ("mn", 9), &request, 3);
            let request = pos.requests.pop_due(NOW).unwrap();
            pos.clients.get_mut(&mn).unwrap().pending_request =
                Some((request.transaction, request.message.id));
        }
        // A request is pending in each state that has a result.
        if PointOfServiceTable::find(row.from, On::Granted, |_| true).is_some() {
            pos.send_handover_request(
                NOW,
                &mn,
                Some(mihf_id("target")),
                Some(messages::n2n_commit_request(&mn, &target)),
            );
        }
        pos.drain_mihf_events(NOW);
        drain_messages(&mut pos);
        let client = pos.clients.get_mut(&mn).unwrap();
        client.state = row.from;
        client.mark = NOW - Duration::from_millis(7);

        assert!(pos.apply_station_event(NOW, &mn, row.on), "{row:?}");
        pos.drain_mihf_events(NOW);
        assert_eq!(pos.handover_state(&mn), Some(row.to), "{row:?}");
        let has = |action| row.actions.contains(&action);
        let times = |action| usize::from(has(action));
        let events: Vec<PosEvent> = core::iter::from_fn(|| pos.poll_event()).collect();
        let mut expected = Vec::new();
        if let Some(step) = step_of(row) {
            expected.push(PosEvent::Step { station: mn.clone(), step, duration: Duration::from_millis(7) });
        }
        if has(Action::Begin) {
            expected.push(PosEvent::HandoverStarted { station: mn.clone() });
        }
        if has(Action::BreakOff) {
            expected.push(PosEvent::BrokenOff { station: mn.clone() });
        }
        assert_eq!(events, expected, "{row:?}");
        let counters = *pos.counters();
        let counted = [counters.began, counters.broken_off, counters.forgotten];
        let wanted = [Action::Begin, Action::BreakOff, Action::Forget].map(|a| times(a) as u64);
        assert_eq!(counted, wanted, "{row:?}");

        let sent = drain_messages(&mut pos);
        let said = |to: u8, wanted: MessageId| {
            sent.iter()
                .filter(|(remote, message)| *remote == host_address(to) && message.id == wanted)
                .count()
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
            client.expires_at.is_some(),
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
            let mut pos = started_pos(test_config());
            pos.clients.get_mut(&mihf_id("mn")).unwrap().state = *state;
            assert!(!pos.apply_station_event(NOW, &mihf_id("mn"), *on));
            assert_eq!((pos.handover_state(&mihf_id("mn")), pos.poll_event()), (Some(*state), None));
            assert_eq!(drain_messages(&mut pos), []);
        }
    }
    assert!(!started_pos(test_config()).apply_station_event(NOW, &mihf_id("stranger"), On::Trigger));
}

#[test]
fn a_target_has_room_for_as_many_as_it_has() {
    let mut pos = started_pos(test_config());
    let here = test_link(LinkType::Ieee80211, 1);
    let reserve = |pos: &mut TestMachine<PointOfService>, name: &str, transaction| {
        request_status(pos, ("target", 2), &messages::n2n_commit_request(&mihf_id(name), &here), transaction)
    };
    assert_eq!(reserve(&mut pos, "a", 1), Status::Success);
    let query = |name: &str| messages::query_resources_request(&mihf_id(name), &here);
    assert_eq!(request_status(&mut pos, ("target", 2), &query("b"), 2), Status::Success);
    assert_eq!(reserve(&mut pos, "b", 3), Status::Success);
    assert_eq!(reserve(&mut pos, "c", 4), Status::Rejected);
    assert_eq!(request_status(&mut pos, ("target", 2), &query("c"), 5), Status::Rejected);
    assert_eq!(request_status(&mut pos, ("target", 2), &query("a"), 6), Status::Success);
    assert_eq!((pos.counters.reserved, pos.counters.no_resources), (2, 2));
    // After five seconds the reservations have expired.
    let later = NOW + Duration::from_secs(5);
    pos.handle_input(later, MachineInput::Timeout);
    assert_eq!((pos.admission().reserved_station_count(), pos.counters.expired), (0, 2));
}

#[test]
fn who_is_not_known_is_refused() {
    let mut pos = started_pos(test_config());
    let (here, there) = (test_link(LinkType::Ieee80211, 1), test_link(LinkType::Ieee80216, 2));
    let stranger = ("stranger", 77);
    let query = messages::mn_candidate_query_request(&here, &there);
    assert_eq!(request_status(&mut pos, stranger, &query, 1), Status::AuthorizationFailure);
    assert_eq!(
        request_status(&mut pos, stranger, &messages::mn_commit_request(&there), 2),
        Status::AuthorizationFailure
    );
    assert_eq!(pos.counters.unknown_stations, 2);
    // The station reports its arrival without a reservation.
    inject_message(&mut pos, NOW, stranger, &messages::mn_complete_request(&there, &here), 3);
    pos.handle_input(NOW, MachineInput::Timeout);
    assert_eq!((pos.counters.unknown_stations, pos.admission().attached_station_count()), (3, 0));
    // A request that no point of service accepts.
    let request = messages::net_commit_request(&there);
    assert_eq!(request_status(&mut pos, ("mn", 9), &request, 4), Status::Rejected);
    assert_eq!(pos.counters.unknown_requests, 1);
    let going = messages::going_down(&here, Duration::from_secs(100));
    inject_message(&mut pos, NOW, stranger, &going, 5);
    assert_eq!(pos.counters.ignored_indications, 1);
}

#[test]
fn a_network_without_neighbours_leads_nowhere() {
    let mut pos = started_pos(PosConfig { neighbour: None, ..test_config() });
    let (here, there) = (test_link(LinkType::Ieee80211, 1), test_link(LinkType::Ieee80216, 2));
    let query = messages::mn_candidate_query_request(&here, &there);
    assert_eq!(request_status(&mut pos, ("mn", 9), &query, 1), Status::NetworkError);
    inject_message(&mut pos, NOW, ("mn", 9), &messages::going_down(&here, Duration::from_secs(1)), 2);
    assert_eq!((pos.counters.began, pos.counters.broken_off), (1, 1));
    // The completion has no receiver.
    assert_eq!(
        request_status(&mut pos, ("mn", 9), &messages::mn_complete_request(&here, &there), 3),
        Status::Success
    );
    assert_eq!(pos.counters.gone, 1);
}

/// Events of the own link, or of the station, start a handover only if the setting says so.
#[test]
fn triggers_are_a_setting() {
    let going = LinkEvent::GoingDown { time_to_loss: Duration::from_secs(9) };
    for (trigger, local, remote) in
        [(HandoverTrigger::Never, 0, 0), (HandoverTrigger::Local, 1, 0), (HandoverTrigger::Remote, 0, 1)]
    {
        let mut own = started_pos(PosConfig { trigger, ..test_config() });
        for event in [LinkEvent::Up, going, LinkEvent::Down] {
            own.handle_command(NOW, PosCommand::Link { station: mihf_id("mn"), event }).unwrap();
        }
        assert_eq!((own.counters.began, own.counters.ignored_link_events), (local, 3 - local));
        let mut told = started_pos(PosConfig { trigger, ..test_config() });
        let message = messages::going_down(&test_link(LinkType::Ieee80211, 1), Duration::from_secs(9));
        inject_message(&mut told, NOW, ("mn", 9), &message, 1);
        assert_eq!((told.counters.began, told.counters.ignored_indications), (remote, 1 - remote));
    }
    assert!(started_pos(test_config()).handle_command(NOW, PosCommand::Start).is_err());
}
