//! Failures of handovers. The old link is down 9 s after its announcement, unless a test sets another time.

use crate::world::{GOING, HandoverTestConfig, HandoverTestNetwork, millis, mn_id};
use usher_core::Duration;
use usher_mih::{MessageId, ResponseTimeoutPolicy};
use usher_mobility::station::{HandoverFailure, OnFailure, State};
use usher_mobility::{HandoverInitiatingSide, LinkCommand, LinkEvent, StationInterface, pos, station};

/// Duration of a failed handover from the announcement: the old link is lost, then entry and redirection, maybe
/// after a scan.
const KNOWN: u64 = 9000 + 100 + 60;
const UNKNOWN: u64 = 9000 + 150 + 100 + 60;

/// Returns the settings: a machine waits for a response until one second after the acknowledgement.
fn test_config(initiation: HandoverInitiatingSide) -> HandoverTestConfig {
    let mut setting = HandoverTestConfig::new(initiation);
    setting.timing.response = Some(Duration::from_secs(1));
    setting.timing.unanswered = ResponseTimeoutPolicy::Abort;
    setting
}

fn run_handover(setting: HandoverTestConfig) -> HandoverTestNetwork {
    let mut world = HandoverTestNetwork::new(setting);
    world.run_for(Duration::from_secs(25));
    world
}

/// Runs a handover that loses all messages of this name from its start.
fn run_losing(setting: HandoverTestConfig, lost: MessageId) -> HandoverTestNetwork {
    let mut world = HandoverTestNetwork::new(setting);
    world.lose_messages(move |id, ack| id == lost && !ack);
    world.run_for(Duration::from_secs(25));
    world
}

#[test]
fn a_station_that_leads_may_lose_any_message() {
    use HandoverFailure::{MessageLost, Refused};
    let expected = [
        (MessageId::MN_HO_CANDIDATE_QUERY_REQUEST, Some(MessageLost)),
        // The serving network reports that the other one does not answer.
        (MessageId::N2N_HO_QUERY_RESOURCES_REQUEST, Some(Refused)),
        (MessageId::N2N_HO_QUERY_RESOURCES_RESPONSE, Some(MessageLost)),
        (MessageId::MN_HO_CANDIDATE_QUERY_RESPONSE, Some(MessageLost)),
        (MessageId::MN_HO_COMMIT_REQUEST, Some(MessageLost)),
        (MessageId::N2N_HO_COMMIT_REQUEST, Some(Refused)),
        (MessageId::N2N_HO_COMMIT_RESPONSE, Some(MessageLost)),
        (MessageId::MN_HO_COMMIT_RESPONSE, Some(MessageLost)),
        (MessageId::MN_HO_COMPLETE_REQUEST, None),
        (MessageId::N2N_HO_COMPLETE_REQUEST, None),
        (MessageId::N2N_HO_COMPLETE_RESPONSE, None),
        (MessageId::MN_HO_COMPLETE_RESPONSE, None),
    ];
    for (lost, failure) in expected {
        let world = run_losing(test_config(HandoverInitiatingSide::Station), lost);
        let took = if failure.is_some() { KNOWN } else { 1230 };
        assert_eq!(world.handover_result(), (failure.is_none(), failure, millis(took)), "{lost}");
        let incomplete = u64::from(failure.is_none());
        assert_eq!(world.station().counters().incomplete, incomplete, "{lost}");
        assert_eq!(world.station().state(), State::Moved, "{lost}");
    }
}

#[test]
fn a_network_that_leads_may_lose_any_message() {
    use HandoverFailure::{LinkDown, MessageLost};
    let expected = [
        (MessageId::LINK_GOING_DOWN_INDICATION, Some(MessageLost), UNKNOWN),
        (MessageId::N2N_HO_QUERY_RESOURCES_REQUEST, Some(LinkDown), UNKNOWN),
        (MessageId::N2N_HO_QUERY_RESOURCES_RESPONSE, Some(LinkDown), UNKNOWN),
        (MessageId::NET_HO_CANDIDATE_QUERY_REQUEST, Some(LinkDown), UNKNOWN),
        (MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE, Some(LinkDown), KNOWN),
        (MessageId::N2N_HO_COMMIT_REQUEST, Some(LinkDown), KNOWN),
        (MessageId::N2N_HO_COMMIT_RESPONSE, Some(LinkDown), KNOWN),
        (MessageId::NET_HO_COMMIT_REQUEST, Some(LinkDown), KNOWN),
        (MessageId::NET_HO_COMMIT_RESPONSE, None, 1030),
        (MessageId::MN_HO_COMPLETE_REQUEST, None, 1030),
        (MessageId::N2N_HO_COMPLETE_REQUEST, None, 1030),
        (MessageId::N2N_HO_COMPLETE_RESPONSE, None, 1030),
        (MessageId::MN_HO_COMPLETE_RESPONSE, None, 1030),
    ];
    for (lost, failure, took) in expected {
        let world = run_losing(test_config(HandoverInitiatingSide::Network), lost);
        assert_eq!(world.handover_result(), (failure.is_none(), failure, millis(took)), "{lost}");
        assert_eq!(world.station().state(), State::Moved, "{lost}");
        let broken = world.serving_pos().counters().broken_off;
        // A station can have received the commit although its acknowledgement was lost.
        let known_to_fail = failure == Some(LinkDown) && lost != MessageId::NET_HO_COMMIT_REQUEST;
        assert_eq!(broken, u64::from(known_to_fail), "{lost}");
    }
}

/// The station uses the other interface as soon as the exchange has failed.
#[test]
fn a_station_need_not_wait_for_the_link_to_go_down() {
    // A scan, then three waits of 100 ms for an acknowledgement.
    let mut setting = test_config(HandoverInitiatingSide::Station);
    setting.on_failure = OnFailure::OtherInterface;
    let world = run_losing(setting, MessageId::MN_HO_CANDIDATE_QUERY_REQUEST);
    assert_eq!(
        world.handover_result(),
        (false, Some(HandoverFailure::MessageLost), millis(150 + 300 + 100 + 60))
    );
    assert_eq!(world.step_times()[1], ("wait", 300));
    let mut setting = self::test_config(HandoverInitiatingSide::Network);
    setting.on_failure = OnFailure::OtherInterface;
    let world = run_losing(setting, MessageId::LINK_GOING_DOWN_INDICATION);
    assert_eq!(
        world.handover_result(),
        (false, Some(HandoverFailure::MessageLost), millis(300 + 150 + 100 + 60))
    );
}

/// With that setting, only a received but unanswered request moves the station to the other interface.
#[test]
fn a_station_may_leave_only_what_does_not_answer() {
    let mut setting = test_config(HandoverInitiatingSide::Station);
    setting.on_failure = OnFailure::OtherInterfaceIfUnanswered;
    let lost = Some(HandoverFailure::MessageLost);
    // A scan, a round trip of 40 ms for the acknowledgement, and one second. The commitment follows the answer
    // to the query.
    let world = run_losing(setting.clone(), MessageId::MN_HO_CANDIDATE_QUERY_RESPONSE);
    assert_eq!(world.handover_result(), (false, lost, millis(150 + 40 + 1000 + 100 + 60)));
    assert_eq!(world.step_times()[1], ("wait", 1040));
    let world = run_losing(setting.clone(), MessageId::MN_HO_COMMIT_RESPONSE);
    assert_eq!(world.handover_result(), (false, lost, millis(150 + 460 + 40 + 1000 + 100 + 60)));
    // Without an acknowledgement the station waits for the loss of the link, whether the message or its
    // acknowledgement is lost.
    for request in [MessageId::MN_HO_CANDIDATE_QUERY_REQUEST, MessageId::MN_HO_COMMIT_REQUEST] {
        assert_eq!(
            run_losing(setting.clone(), request).handover_result(),
            (false, lost, millis(KNOWN)),
            "{request}"
        );
    }
    let mut world = HandoverTestNetwork::new(setting.clone());
    world.lose_messages(|id, ack| ack && id == MessageId::MN_HO_CANDIDATE_QUERY_REQUEST);
    world.run_for(Duration::from_secs(25));
    assert_eq!(world.handover_result(), (false, lost, millis(KNOWN)));
    // The station waits likewise after a rejection and after a scan without a result.
    let mut full = setting.clone();
    full.capacity = 0;
    assert_eq!(run_handover(full).handover_result(), (false, Some(HandoverFailure::Refused), millis(KNOWN)));
    let mut blind = setting;
    blind.blind_scans = 1;
    assert_eq!(
        run_handover(blind).handover_result(),
        (false, Some(HandoverFailure::NoNetwork), millis(UNKNOWN))
    );
    // If the network leads, the station sends no request: an indication has no response.
    let mut network = self::test_config(HandoverInitiatingSide::Network);
    network.on_failure = OnFailure::OtherInterfaceIfUnanswered;
    let world = run_losing(network, MessageId::LINK_GOING_DOWN_INDICATION);
    assert_eq!(world.handover_result(), (false, lost, millis(UNKNOWN)));
}

/// The steps of a failed handover add up to its duration.
#[test]
fn steps_add_up_whatever_happens() {
    for lost in [
        MessageId::MN_HO_CANDIDATE_QUERY_REQUEST,
        MessageId::MN_HO_COMMIT_RESPONSE,
        MessageId::MN_HO_COMPLETE_REQUEST,
    ] {
        let world = run_losing(test_config(HandoverInitiatingSide::Station), lost);
        let sum: u64 =
            world.step_times().iter().filter(|(name, _)| *name != "completion").map(|(_, ms)| ms).sum();
        assert_eq!(millis(sum), world.handover_result().2, "{lost}");
    }
}

/// Packets to a detached station are lost. The flow has a packet every 500 ms from 250 ms on.
#[test]
fn the_flow_is_lost_until_it_is_redirected() {
    // Down at 9.2 s, entered at 9.3 s, redirected at 9.33 s.
    let mut setting = test_config(HandoverInitiatingSide::Station);
    setting.leaves = millis(9200);
    let world = run_losing(setting.clone(), MessageId::MN_HO_COMMIT_REQUEST);
    assert_eq!(world.lost_packet_times(), [9250]);
    // Two more attempts to enter take a second and 100 ms each.
    setting.failed_entries = 2;
    let world = run_losing(setting, MessageId::MN_HO_COMMIT_REQUEST);
    assert_eq!(world.lost_packet_times(), [9250, 9750, 10250, 10750, 11250]);
}

/// Only acknowledgements are lost: the network received the message that the station counts as lost, and continues.
#[test]
fn the_network_may_have_heard_what_seemed_lost() {
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Network));
    world.lose_messages(|id, ack| ack && id == MessageId::LINK_GOING_DOWN_INDICATION);
    world.run_for(millis(350));
    assert_eq!(world.station().state(), State::Waiting);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.handover_result(), (true, None, millis(1030)));
    assert_eq!(world.station().counters().broken_off, 1);
}

/// The station ignores a response after it has given up.
#[test]
fn late_responses_come_in_vain() {
    // Two requests with two processing times each; or one processing time above the limit of a second.
    let patient = 150 + 2 * (2 * 300 + 60) + 160;
    for (processing, took, failure) in
        [(1100, KNOWN, Some(HandoverFailure::MessageLost)), (300, patient, None)]
    {
        let mut setting = test_config(HandoverInitiatingSide::Station);
        setting.processing = millis(processing);
        let world = run_handover(setting);
        assert_eq!(world.handover_result(), (failure.is_none(), failure, millis(took)), "{processing}");
        let late = world.station().mihf().counters().late_responses;
        assert_eq!(late > 0, failure.is_some(), "{processing}");
    }
}

/// The station may lose its link at any time, in either flow. The flow is redirected in any case. The handover
/// succeeds exactly if the commitment arrived before the loss.
#[test]
fn a_station_may_leave_amid_any_step() {
    for initiation in [HandoverInitiatingSide::Station, HandoverInitiatingSide::Network] {
        let told = if initiation == HandoverInitiatingSide::Station { 1070 } else { 870 };
        for leaves in (0..1600).step_by(5) {
            let mut setting = test_config(initiation);
            setting.leaves = millis(leaves);
            let world = run_handover(setting);
            let (success, failure, took) = world.handover_result();
            let expected = (leaves <= told).then_some(HandoverFailure::LinkDown);
            assert_eq!((success, failure), (expected.is_none(), expected), "{initiation:?} {leaves}");
            if success {
                assert_eq!(took, millis(told + 160), "{initiation:?} {leaves}");
            } else {
                // Entry and redirection follow the loss at once, or after a scan.
                let scan = took.saturating_sub(millis(leaves + 160));
                assert!(scan <= millis(150), "{initiation:?} {leaves}: {took:?}");
            }
            assert_eq!(world.station().state(), State::Moved);
            let left = world.station_events().iter().find_map(|(_, event)| match event {
                station::StationEvent::HandoverDone { left, .. } => Some(*left),
                _ => None,
            });
            assert_eq!(left.flatten().is_some(), millis(leaves) <= took, "{initiation:?} {leaves}");
        }
    }
}

/// Without resources in the target network, the query ends the handover.
#[test]
fn a_target_without_resources_refuses() {
    let mut full = test_config(HandoverInitiatingSide::Station);
    full.capacity = 0;
    let world = run_handover(full.clone());
    assert_eq!(world.handover_result(), (false, Some(HandoverFailure::Refused), millis(KNOWN)));
    assert_eq!(world.step_times()[1].0, "wait");
    assert_eq!((world.target_pos().counters().no_resources, world.target_pos().counters().reserved), (1, 0));
    full.on_failure = OnFailure::OtherInterface;
    assert_eq!(
        run_handover(full).handover_result(),
        (false, Some(HandoverFailure::Refused), millis(150 + 460 + 100 + 60))
    );
    let mut full = test_config(HandoverInitiatingSide::Network);
    full.capacity = 0;
    let world = run_handover(full);
    assert_eq!(world.handover_result(), (false, Some(HandoverFailure::LinkDown), millis(UNKNOWN)));
    assert_eq!(world.serving_pos().counters().broken_off, 1);
}

/// The station repeats scans, entries and redirections that fail.
#[test]
fn the_new_network_is_tried_again() {
    let mut blind = test_config(HandoverInitiatingSide::Station);
    blind.blind_scans = 1;
    let world = run_handover(blind);
    assert_eq!(world.handover_result(), (false, Some(HandoverFailure::NoNetwork), millis(UNKNOWN)));
    // The second scan without a result follows the loss; the next one starts a second later.
    let mut blind = test_config(HandoverInitiatingSide::Station);
    blind.blind_scans = 2;
    assert_eq!(run_handover(blind).handover_result().2, millis(UNKNOWN + 150 + 1000));
    let mut blind = test_config(HandoverInitiatingSide::Network);
    blind.blind_scans = 1;
    let world = run_handover(blind);
    assert_eq!(world.handover_result(), (false, Some(HandoverFailure::NoNetwork), millis(UNKNOWN)));
    assert_eq!(world.serving_pos().counters().broken_off, 1);

    let mut shut = test_config(HandoverInitiatingSide::Station);
    shut.failed_entries = 2;
    let world = run_handover(shut);
    assert_eq!(world.handover_result(), (true, None, millis(1230 + 2 * (100 + 1000))));

    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.lose_updates(2);
    world.run_for(Duration::from_secs(20));
    // Retransmissions after 1.5 s and after 3 s more (RFC 6275 §11.8).
    assert_eq!(world.handover_result(), (true, None, millis(1230 + 1500 + 3000)));
    assert_eq!(world.station().counters().binding_updates, 3);
}

/// The station enters a new link again that it loses during the redirection.
#[test]
fn the_new_link_may_be_lost_again() {
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.at_link(GOING + millis(1190), StationInterface::Target, LinkEvent::Down);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.handover_result(), (true, None, millis(1190 + 1000 + 100 + 60)));
    // After the redirection the station only keeps the old link.
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.at_link(GOING + millis(1300), StationInterface::Target, LinkEvent::Down);
    world.run_for(millis(5000));
    assert_eq!(world.handover_result(), (true, None, millis(1230)));
    assert_eq!(world.station().state(), State::Moved);
    let released = |(_, event): &(_, station::StationEvent)| {
        matches!(event, station::StationEvent::LinkCommand { command: LinkCommand::Disconnect, .. })
    };
    assert!(!world.station_events().iter().any(released));
}

/// The old link recovers while the station waits for its loss: the handover ends, and a later one is possible.
#[test]
fn a_link_may_come_back() {
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.lose_messages(|id, _| id == MessageId::MN_HO_CANDIDATE_QUERY_REQUEST);
    world.at_link(GOING + millis(2000), StationInterface::Serving, LinkEvent::Up);
    world.run_for(millis(2500));
    assert_eq!(world.station().state(), State::Resting);
    assert_eq!(world.station().counters().cancelled, 1);
    world.lose_messages(|_, _| false);
    let within = Duration::from_secs(6);
    world.at_link(
        GOING + millis(3000),
        StationInterface::Serving,
        LinkEvent::GoingDown { time_to_loss: within },
    );
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.handover_result(), (true, None, millis(1230)));
}

/// A link is lost without an announcement.
#[test]
fn a_link_may_be_lost_out_of_the_blue() {
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.at_link(GOING - millis(1000), StationInterface::Serving, LinkEvent::Down);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.handover_result(), (false, Some(HandoverFailure::LinkDown), millis(150 + 100 + 60)));
    assert_eq!(world.step_times()[0], ("scan", 150));
}

/// Requests beyond the processing limit are rejected at once.
#[test]
fn too_many_requests_are_refused() {
    let mut setting = test_config(HandoverInitiatingSide::Station);
    setting.max_requests = 0;
    let world = run_handover(setting);
    assert_eq!(world.handover_result().1, Some(HandoverFailure::Refused));
    assert_eq!(world.serving_pos().counters().overloaded, 1);
}

/// A reservation without its station expires, and so does its handover.
#[test]
fn what_nobody_comes_for_is_given_back() {
    let mut setting = test_config(HandoverInitiatingSide::Network);
    // The station never leaves 802.11, nor answers the commitment.
    setting.leaves = Duration::from_secs(1000);
    let mut world = HandoverTestNetwork::new(setting);
    world.lose_messages(|id, _| id == MessageId::NET_HO_COMMIT_REQUEST);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.target_pos().admission().reserved_station_count(), 1);
    assert_eq!(world.serving_pos().handover_state(&mn_id()), Some(pos::State::Leaving));
    world.run_for(Duration::from_secs(90));
    assert_eq!(world.target_pos().admission().reserved_station_count(), 0);
    assert_eq!(world.target_pos().counters().expired, 1);
    assert_eq!(world.serving_pos().handover_state(&mn_id()), Some(pos::State::Idle));
    assert_eq!(world.serving_pos().counters().forgotten, 1);
}

/// The user informs the point of service of a station that leaves silently.
#[test]
fn a_station_may_leave_without_a_handover() {
    let mut world = HandoverTestNetwork::new(test_config(HandoverInitiatingSide::Station));
    world.run_to(GOING - millis(1000));
    assert_eq!(world.serving_pos().admission().attached_station_count(), 1);
    world.net.send_command(world.serving, pos::PosCommand::Leave { station: mn_id() }).unwrap();
    assert_eq!(world.serving_pos().admission().attached_station_count(), 0);
}

/// Frame loss from light to heavy: every handover ends once, in the new network, and so does the flow.
#[test]
fn every_handover_ends_whatever_is_lost() {
    let mut successes = [0; 2];
    for seed in 0..60 {
        for (i, loss) in [0.1, 0.5].into_iter().enumerate() {
            for initiation in [HandoverInitiatingSide::Station, HandoverInitiatingSide::Network] {
                let mut setting = test_config(initiation);
                (setting.seed, setting.loss) = (seed, loss);
                setting.ack = seed % 3 > 0;
                let world = run_handover(setting);
                let (success, _, took) = world.handover_result();
                assert!(took <= millis(UNKNOWN), "{took:?}");
                assert_eq!(world.station().state(), State::Moved);
                assert_eq!(world.received.values().last(), Some(&StationInterface::Target));
                successes[i] += u32::from(success);
            }
        }
    }
    assert!(successes[0] > successes[1] && successes[1] > 0, "{successes:?}");
}
