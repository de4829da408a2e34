//! Invariants under any actions.

use super::*;
use proptest::prelude::*;

/// An action on a set at a time.
#[derive(Clone, Copy, Debug)]
enum BssAction {
    Send {
        up: bool,
        station: u32,
        octets: u32,
    },
    Command(u32, LinkCommand),
    /// Only advances the time.
    Look,
}

fn any_action() -> impl Strategy<Value = BssAction> {
    let command =
        prop::sample::select(vec![LinkCommand::Scan, LinkCommand::Connect, LinkCommand::Disconnect]);
    prop_oneof![
        8 => (any::<bool>(), 0u32..5, 0u32..2500)
            .prop_map(|(up, station, octets)| BssAction::Send { up, station, octets }),
        2 => (0u32..5, command).prop_map(|(station, command)| BssAction::Command(station, command)),
        1 => Just(BssAction::Look),
    ]
}
fn any_trajectory() -> impl Strategy<Value = Trajectory> {
    let start = (-80.0..80.0f64, -80.0..80.0f64).prop_map(|(x, y)| Position { x, y });
    let velocity = prop_oneof![Just((0.0, 0.0)), (-60.0..60.0f64, -60.0..60.0f64)];
    (start, velocity, 0u64..2_000_000_000).prop_map(|(start, velocity, departs)| Trajectory {
        start,
        velocity,
        departs: at_nanos(departs),
    })
}
fn any_config() -> impl Strategy<Value = WifiConfig> {
    let beacons = prop::option::of((10u64..200).prop_map(Duration::from_millis));
    let probability = prop_oneof![Just(0.0), 0.0..0.6f64];
    (beacons, probability.clone(), probability, any::<bool>(), 0u8..8, 1usize..20, 0.0..50.0f64, 1u32..12)
        .prop_map(
            |(beacons, frame_loss, packet_loss, associated, retransmissions, queue, going_down, channel)| {
                WifiConfig {
                    beacons,
                    frame_loss,
                    packet_loss,
                    associated,
                    retransmissions,
                    queue,
                    going_down,
                    channel,
                    ..WifiConfig::default()
                }
            },
        )
}

const END: f64 = 10.0;

/// Runs these actions at these times, in microseconds; `looks`: with or without those that only advance the time.
fn run_actions(
    config: WifiConfig,
    ways: &[Trajectory],
    deeds: &[(u64, BssAction)],
    looks: bool,
) -> (Vec<(u64, BssOutput)>, Bss) {
    let mut bss = moving_bss(config, ways.to_vec(), 9);
    let mut told = Vec::new();
    let mut deeds: Vec<_> = deeds.to_vec();
    deeds.sort_by_key(|d| d.0);
    for (handle, (at, deed)) in deeds.into_iter().enumerate() {
        let at = at_nanos(at * 1000);
        if matches!(deed, BssAction::Look) && !looks {
            continue;
        }
        // Events due now precede actions of now.
        told.extend(run_until(&mut bss, at).0);
        match deed {
            BssAction::Send { up, station, octets } => {
                let way = if up { RadioDirection::Up(station) } else { RadioDirection::Down(station) };
                bss.send(at, way, octets, handle as u32);
            }
            BssAction::Command(station, command) => bss.command(at, station, command),
            BssAction::Look => bss.handle_timeout(at),
        }
        drain_outputs(&mut bss, at, &mut told);
    }
    told.extend(run_until(&mut bss, at_seconds(END)).0);
    bss.handle_timeout(at_seconds(END));
    (told, bss)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_packet_is_told_of_once(
        config in any_config(),
        ways in prop::collection::vec(any_trajectory(), 4),
        deeds in prop::collection::vec((0u64..4_000_000, any_action()), 1..150),
    ) {
        let (told, bss) = run_actions(config, &ways, &deeds, true);
        let mut sent: Vec<(RadioDirection, u32)> = Vec::new();
        let mut sorted = deeds.clone();
        sorted.sort_by_key(|d| d.0);
        for (handle, (_, deed)) in sorted.iter().enumerate() {
            if let BssAction::Send { up, station, .. } = *deed {
                sent.push((if up { RadioDirection::Up(station) } else { RadioDirection::Down(station) }, handle as u32));
            }
        }
        let mut got: Vec<(RadioDirection, u32)> = told.iter().filter_map(|(_, told)| match told {
            BssOutput::Arrived(way, handle) | BssOutput::Dropped(way, handle, _) => Some((*way, *handle)),
            BssOutput::Link(..) => None,
        }).collect();
        got.sort_unstable_by_key(|(_, handle)| *handle);
        prop_assert_eq!(&got, &sent);

        let c = *bss.counters();
        let ends = c.packets_up + c.packets_down + c.queue_full + c.packet_losses + c.given_up + c.out_of_reach;
        prop_assert_eq!(ends, sent.len() as u64);
        prop_assert_eq!(c.acks >= c.packets_up + c.packets_down + c.packet_losses, true);

        // The same seed gives the same run, however often the time advances.
        let (again, bss) = run_actions(config, &ways, &deeds, true);
        prop_assert_eq!((&again, *bss.counters()), (&told, c));
        let (unlooked, bss) = run_actions(config, &ways, &deeds, false);
        prop_assert_eq!((&unlooked, *bss.counters()), (&told, c));
    }

    #[test]
    fn links_go_up_and_down_in_turn(
        config in any_config(),
        ways in prop::collection::vec(any_trajectory(), 4),
        deeds in prop::collection::vec((0u64..4_000_000, any_action()), 1..80),
    ) {
        let (told, _) = run_actions(config, &ways, &deeds, true);
        for (station, way) in ways.iter().enumerate() {
            let mut up = false;
            for (at, event) in link_events(&told, station as u32) {
                match event {
                    LinkEvent::Up => {
                        prop_assert!(!up);
                        up = true;
                        prop_assert!(way.distance_at(CENTRE, at_nanos(at)) <= config.radius + 1e-6);
                    }
                    LinkEvent::Down(LinkDownReason::OutOfReach) => {
                        prop_assert!(up);
                        up = false;
                    }
                    LinkEvent::Down(_) => up = false,
                    LinkEvent::GoingDown { time_left: within } => {
                        prop_assert!(up);
                        let gone = at_nanos(at) + within;
                        prop_assert!((way.distance_at(CENTRE, gone) - config.radius).abs() < 1e-4);
                        prop_assert!(way.distance_at(CENTRE, at_nanos(at)) >= config.going_down - 1e-4);
                    }
                    LinkEvent::Detected => {
                        prop_assert!(!up);
                        prop_assert!(way.distance_at(CENTRE, at_nanos(at)) <= config.radius + 1e-6);
                    }
                    LinkEvent::Scanned { .. } => {}
                }
            }
        }
    }
}

#[test]
fn another_seed_is_another_run() {
    let told = |seed| {
        let mut bss = seeded_bss(quiet_config(), 2, seed);
        start_bss(&mut bss);
        for i in 0..20 {
            bss.send(at_nanos(0), RadioDirection::Up(i % 2), 100, i);
        }
        run_until(&mut bss, Instant::FAR_FUTURE).0
    };
    assert_eq!(told(1), told(1));
    assert_ne!(told(1), told(2));
}
