//! Both flows, without loss.

use crate::world::{GOING, HandoverTestConfig, HandoverTestNetwork, millis, mn_id};
use usher_core::Duration;
use usher_mih::MessageId;
use usher_mobility::pos::HandoverTrigger;
use usher_mobility::station::CommitAnswer;
use usher_mobility::{HandoverInitiatingSide, LinkCommand, LinkEvent, StationInterface, pos, station};

fn run_handover(setting: HandoverTestConfig) -> HandoverTestNetwork {
    let mut world = HandoverTestNetwork::new(setting);
    world.run_for(Duration::from_secs(20));
    world
}

/// Checks the results that both flows share.
#[track_caller]
fn all_is_well(world: &HandoverTestNetwork) {
    assert_eq!(world.station().state(), station::State::Moved);
    let counters = world.station().counters();
    let counted = (counters.began, counters.succeeded, counters.failed, counters.incomplete);
    assert_eq!(counted, (1, 1, 0, 0));
    assert_eq!((counters.refused, counters.late_results, counters.unknown_requests), (0, 0, 0));
    // The station released the old link, and with it the old network's resources.
    let released = |(_, event): &(_, station::StationEvent)| {
        *event
            == station::StationEvent::LinkCommand {
                interface: StationInterface::Serving,
                command: LinkCommand::Disconnect,
            }
    };
    assert!(world.station_events().iter().any(released));
    let places = |pos: &usher_mobility::PointOfService| {
        (pos.admission().attached_station_count(), pos.admission().reserved_station_count())
    };
    assert_eq!((places(world.serving_pos()), places(world.target_pos())), ((0, 0), (1, 0)));
    assert_eq!((world.target_pos().counters().reserved, world.target_pos().counters().arrived), (1, 1));
    assert_eq!(world.serving_pos().counters().gone, 1);
    assert_eq!(world.serving_pos().handover_state(&mn_id()), Some(pos::State::Idle));
    // No packet of the flow was lost, and at the end all use the new link.
    assert_eq!(world.lost_packet_times(), [] as [u64; 0]);
    assert_eq!(world.received.values().last(), Some(&StationInterface::Target));
    assert_eq!(world.received.values().next(), Some(&StationInterface::Serving));
}

/// Sums by hand. The resource check and the commitment cross 802.11 (20 ms) and the wire (10 ms) in both
/// directions. The serving and the target network process them (200 ms each): 460 ms. The redirection crosses
/// 802.16 (30 ms) in both directions. The completion crosses 802.16 and the wire in both directions, with two
/// processing times: 480 ms.
#[test]
fn a_station_leads() {
    let world = run_handover(HandoverTestConfig::new(HandoverInitiatingSide::Station));
    assert_eq!(world.handover_result(), (true, None, millis(150 + 460 + 460 + 100 + 60)));
    let expected = [
        ("scan", 150),
        ("resources", 460),
        ("commit", 460),
        ("entry", 100),
        ("redirection", 60),
        ("completion", 480),
    ];
    assert_eq!(world.step_times(), expected);
    assert_eq!(world.serving_steps(), []);
    all_is_well(&world);
}

#[test]
fn messages_are_those_of_the_flow() {
    let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Station);
    setting.ack = false;
    let world = run_handover(setting);
    let expected = [
        MessageId::REGISTER_REQUEST,
        MessageId::REGISTER_RESPONSE,
        MessageId::MN_HO_CANDIDATE_QUERY_REQUEST,
        MessageId::N2N_HO_QUERY_RESOURCES_REQUEST,
        MessageId::N2N_HO_QUERY_RESOURCES_RESPONSE,
        MessageId::MN_HO_CANDIDATE_QUERY_RESPONSE,
        MessageId::MN_HO_COMMIT_REQUEST,
        MessageId::N2N_HO_COMMIT_REQUEST,
        MessageId::N2N_HO_COMMIT_RESPONSE,
        MessageId::MN_HO_COMMIT_RESPONSE,
        MessageId::MN_HO_COMPLETE_REQUEST,
        MessageId::N2N_HO_COMPLETE_REQUEST,
        MessageId::N2N_HO_COMPLETE_RESPONSE,
        MessageId::MN_HO_COMPLETE_RESPONSE,
    ];
    assert_eq!(world.sent_messages(), expected);
    all_is_well(&world);
    let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Network);
    setting.ack = false;
    let world = run_handover(setting);
    let expected = [
        MessageId::REGISTER_REQUEST,
        MessageId::REGISTER_RESPONSE,
        MessageId::EVENT_SUBSCRIBE_REQUEST,
        MessageId::EVENT_SUBSCRIBE_RESPONSE,
        MessageId::LINK_GOING_DOWN_INDICATION,
        MessageId::N2N_HO_QUERY_RESOURCES_REQUEST,
        MessageId::N2N_HO_QUERY_RESOURCES_RESPONSE,
        MessageId::NET_HO_CANDIDATE_QUERY_REQUEST,
        MessageId::NET_HO_CANDIDATE_QUERY_RESPONSE,
        MessageId::N2N_HO_COMMIT_REQUEST,
        MessageId::N2N_HO_COMMIT_RESPONSE,
        MessageId::NET_HO_COMMIT_REQUEST,
        // The station is on the new link before it has processed the commitment.
        MessageId::MN_HO_COMPLETE_REQUEST,
        MessageId::NET_HO_COMMIT_RESPONSE,
        MessageId::N2N_HO_COMPLETE_REQUEST,
        MessageId::N2N_HO_COMPLETE_RESPONSE,
        MessageId::MN_HO_COMPLETE_RESPONSE,
    ];
    assert_eq!(world.sent_messages(), expected);
    all_is_well(&world);
}

/// Preparation: the indication (20 ms), the resource check (10 + 200 + 10 ms), the query (20 + 200 ms).
/// Decision: the answer (20 ms), the reservation (10 + 200 + 10 ms), the commitment (20 ms), which the station
/// follows at once.
#[test]
fn the_network_leads_and_is_told() {
    let world = run_handover(HandoverTestConfig::new(HandoverInitiatingSide::Network));
    assert_eq!(world.handover_result(), (true, None, millis(460 + 150 + 260 + 100 + 60)));
    let expected = [
        ("preparation", 460),
        ("scan", 150),
        ("decision", 260),
        ("entry", 100),
        ("redirection", 60),
        ("completion", 480),
    ];
    assert_eq!(world.step_times(), expected);
    // The query: 20 ms, 200 ms of processing, 150 ms of the scan, 20 ms.
    assert_eq!(world.serving_steps()[..3], [("resources", 220), ("candidate", 390), ("reservation", 220)]);
    all_is_well(&world);
}

/// An access point that detects the loss itself saves the 20 ms of the indication.
#[test]
fn the_network_leads_and_hears_by_itself() {
    let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Network);
    setting.trigger = HandoverTrigger::Local;
    let world = run_handover(setting);
    assert_eq!(world.handover_result(), (true, None, millis(440 + 150 + 260 + 100 + 60)));
    assert_eq!(world.step_times()[0], ("preparation", 440));
    assert_eq!(world.station().counters().unsubscribed, 1);
    assert!(!world.sent_messages().contains(&MessageId::LINK_GOING_DOWN_INDICATION));
    all_is_well(&world);
}

#[test]
fn the_commitment_can_be_answered_by_the_new_link() {
    for (answer, wait) in [(CommitAnswer::AfterProcessing, 200), (CommitAnswer::AfterRedirection, 160)] {
        let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Network);
        setting.commit_answer = answer;
        let world = run_handover(setting);
        // The request crosses 802.11; the answer takes the new link, which is up after 160 ms.
        assert_eq!(world.serving_steps()[3], ("commit", 20 + wait + 30), "{answer:?}");
        all_is_well(&world);
    }
}

#[test]
fn the_serving_network_can_hear_of_the_completion_first() {
    for initiation in [HandoverInitiatingSide::Station, HandoverInitiatingSide::Network] {
        let mut setting = HandoverTestConfig::new(initiation);
        setting.completes_with_target = false;
        let world = run_handover(setting);
        assert!(world.handover_result().0);
        assert_eq!(world.step_times().last(), Some(&("completion", 480)));
        all_is_well(&world);
    }
}

/// The access point announces the loss one second before the station: the handover starts with the query. Later
/// announcements of either side have no effect.
#[test]
fn the_network_may_know_before_the_station() {
    let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Network);
    setting.trigger = HandoverTrigger::Local;
    let mut world = HandoverTestNetwork::new(setting);
    let early = GOING - Duration::from_secs(1);
    world.run_to(early);
    let event = LinkEvent::GoingDown { time_to_loss: Duration::from_secs(10) };
    world.net.send_command(world.serving, pos::PosCommand::Link { station: mn_id(), event }).unwrap();
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.handover_result(), (true, None, millis(150 + 260 + 100 + 60)));
    assert_eq!(world.step_times()[0], ("preparation", 0));
    assert_eq!(world.serving_pos().counters().began, 1);
    assert_eq!(world.station().counters().ignored_link_events, 1);
}

#[test]
fn work_is_told_by_label() {
    let labels: Vec<&str> = run_handover(HandoverTestConfig::new(HandoverInitiatingSide::Network))
        .net
        .take_work()
        .into_keys()
        .collect();
    let own = ["mobility.binding", "mobility.data", "mobility.link", "mobility.request"];
    assert_eq!(labels.iter().filter(|l| l.starts_with("mobility")).copied().collect::<Vec<_>>(), own);
    assert!(labels.iter().any(|l| l.starts_with("mih.")));
}

/// Two runs of the same network have the same events.
#[test]
fn worlds_repeat() {
    let mut setting = HandoverTestConfig::new(HandoverInitiatingSide::Network);
    setting.loss = 0.3;
    let (a, b) = (run_handover(setting.clone()), run_handover(setting));
    assert_eq!((a.station_events(), a.pos_events()), (b.station_events(), b.pos_events()));
}

/// As on real links. The flow moves a round trip later (60 ms), when the care-of address has repeated a number.
/// The target accepts the station after the address has answered two probes (120 ms).
#[test]
fn a_handover_goes_on_where_addresses_prove_themselves() {
    for initiation in [HandoverInitiatingSide::Station, HandoverInitiatingSide::Network] {
        let world = run_handover(HandoverTestConfig { proofs: true, ..HandoverTestConfig::new(initiation) });
        all_is_well(&world);
        let took = |name| world.step_times().iter().find(|(step, _)| *step == name).map(|(_, took)| *took);
        assert_eq!(took("redirection"), Some(120), "{initiation:?}");
        assert_eq!(world.target_pos().mihf().counters().addresses_proven, 1, "{initiation:?}");
        if initiation == HandoverInitiatingSide::Station {
            assert_eq!(took("completion"), Some(480 + 120));
        }
    }
}
