//! What holds whatever happens.

use super::*;
use proptest::prelude::*;

/// Something that is done to a set at a time.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Send {
        up: bool,
        station: u32,
        octets: u32,
    },
    Command(u32, LinkCommand),
    /// Only looks what time it is.
    Look,
}

fn deed() -> impl Strategy<Value = Deed> {
    let command =
        prop::sample::select(vec![LinkCommand::Scan, LinkCommand::Connect, LinkCommand::Disconnect]);
    prop_oneof![
        8 => (any::<bool>(), 0u32..5, 0u32..2500)
            .prop_map(|(up, station, octets)| Deed::Send { up, station, octets }),
        2 => (0u32..5, command).prop_map(|(station, command)| Deed::Command(station, command)),
        1 => Just(Deed::Look),
    ]
}
fn way() -> impl Strategy<Value = Trajectory> {
    let start = (-80.0..80.0f64, -80.0..80.0f64).prop_map(|(x, y)| Position { x, y });
    let velocity = prop_oneof![Just((0.0, 0.0)), (-60.0..60.0f64, -60.0..60.0f64)];
    (start, velocity, 0u64..2_000_000_000).prop_map(|(start, velocity, departs)| Trajectory {
        start,
        velocity,
        departs: t(departs),
    })
}
fn config() -> impl Strategy<Value = WifiConfig> {
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

/// Does these deeds at these times, in microseconds; `looks`: with or without those that only look.
fn under(
    config: WifiConfig,
    ways: &[Trajectory],
    deeds: &[(u64, Deed)],
    looks: bool,
) -> (Vec<(u64, Seen)>, Bss) {
    let mut bss = walking(config, ways.to_vec(), 9);
    let mut told = Vec::new();
    let mut deeds: Vec<_> = deeds.to_vec();
    deeds.sort_by_key(|d| d.0);
    for (handle, (at, deed)) in deeds.into_iter().enumerate() {
        let at = t(at * 1000);
        if matches!(deed, Deed::Look) && !looks {
            continue;
        }
        // Nothing that is due now comes after what is done now.
        told.extend(run(&mut bss, at).0);
        match deed {
            Deed::Send { up, station, octets } => {
                let way = if up { Way::Up(station) } else { Way::Down(station) };
                bss.send(at, way, octets, handle as u32);
            }
            Deed::Command(station, command) => bss.command(at, station, command),
            Deed::Look => bss.handle_timeout(at),
        }
        drain(&mut bss, at, &mut told);
    }
    told.extend(run(&mut bss, seconds(END)).0);
    bss.handle_timeout(seconds(END));
    (told, bss)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_packet_is_told_of_once(
        config in config(),
        ways in prop::collection::vec(way(), 4),
        deeds in prop::collection::vec((0u64..4_000_000, deed()), 1..150),
    ) {
        let (told, bss) = under(config, &ways, &deeds, true);
        let mut sent: Vec<(Way, u32)> = Vec::new();
        let mut sorted = deeds.clone();
        sorted.sort_by_key(|d| d.0);
        for (handle, (_, deed)) in sorted.iter().enumerate() {
            if let Deed::Send { up, station, .. } = *deed {
                sent.push((if up { Way::Up(station) } else { Way::Down(station) }, handle as u32));
            }
        }
        let mut got: Vec<(Way, u32)> = told.iter().filter_map(|(_, told)| match told {
            Seen::Arrived(way, handle) | Seen::Dropped(way, handle, _) => Some((*way, *handle)),
            Seen::Link(..) => None,
        }).collect();
        got.sort_unstable_by_key(|(_, handle)| *handle);
        prop_assert_eq!(&got, &sent);

        let c = *bss.counters();
        let ends = c.packets_up + c.packets_down + c.queue_full + c.packet_losses + c.given_up + c.out_of_reach;
        prop_assert_eq!(ends, sent.len() as u64);
        prop_assert_eq!(c.acks >= c.packets_up + c.packets_down + c.packet_losses, true);

        // The same seed gives the same run, and it does not matter how often the time is told.
        let (again, bss) = under(config, &ways, &deeds, true);
        prop_assert_eq!((&again, *bss.counters()), (&told, c));
        let (unlooked, bss) = under(config, &ways, &deeds, false);
        prop_assert_eq!((&unlooked, *bss.counters()), (&told, c));
    }

    #[test]
    fn links_go_up_and_down_in_turn(
        config in config(),
        ways in prop::collection::vec(way(), 4),
        deeds in prop::collection::vec((0u64..4_000_000, deed()), 1..80),
    ) {
        let (told, _) = under(config, &ways, &deeds, true);
        for (station, way) in ways.iter().enumerate() {
            let mut up = false;
            for (at, event) in said(&told, station as u32) {
                match event {
                    LinkEvent::Up => {
                        prop_assert!(!up);
                        up = true;
                        prop_assert!(way.distance(CENTRE, t(at)) <= config.radius + 1e-6);
                    }
                    LinkEvent::Down(LinkDownReason::OutOfReach) => {
                        prop_assert!(up);
                        up = false;
                    }
                    LinkEvent::Down(_) => up = false,
                    LinkEvent::GoingDown { within } => {
                        prop_assert!(up);
                        let gone = t(at) + within;
                        prop_assert!((way.distance(CENTRE, gone) - config.radius).abs() < 1e-4);
                        prop_assert!(way.distance(CENTRE, t(at)) >= config.going_down - 1e-4);
                    }
                    LinkEvent::Detected => {
                        prop_assert!(!up);
                        prop_assert!(way.distance(CENTRE, t(at)) <= config.radius + 1e-6);
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
        let mut bss = seeded(quiet(), 2, seed);
        begin(&mut bss);
        for i in 0..20 {
            bss.send(t(0), Way::Up(i % 2), 100, i);
        }
        run(&mut bss, Instant::FAR_FUTURE).0
    };
    assert_eq!(told(1), told(1));
    assert_ne!(told(1), told(2));
}
