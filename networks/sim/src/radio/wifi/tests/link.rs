//! Stations that enter, leave, scan and associate.

use super::*;

const INTERVAL: u64 = 102_400_000;
/// A beacon of 65 octets at 2 Mb/s.
const BEACON: u64 = 192_000 + 260_000;

/// Stations that are not associated at the start.
fn outside_config() -> WifiConfig {
    WifiConfig { associated: false, ..WifiConfig::default() }
}
/// Returns the duration of a management frame of this length at 2 Mb/s.
fn management_duration(octets: u64) -> u64 {
    192_000 + octets * 4000
}
fn link_down(why: LinkDownReason) -> LinkEvent {
    LinkEvent::Down(why)
}

#[test]
fn a_leaving_station_warns_and_goes_down_after_three_beacons() {
    for seed in 0..10 {
        // From the centre at 1 m/s.
        let mut bss = moving_bss(WifiConfig::default(), vec![eastward_walk(0.0, 1.0)], seed);
        let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
        let said = link_events(&told, 0);
        let within = Duration::from_secs(9);
        assert_eq!(
            said[..2],
            [(0, LinkEvent::Up), (41_000_000_000, LinkEvent::GoingDown { time_left: within })]
        );
        let [(at, LinkEvent::Down(LinkDownReason::OutOfReach))] = said[2..] else { panic!("{said:?}") };
        // The third beacon that ends after the crossing.
        let after = at - 50_000_000_000;
        assert!((2 * INTERVAL..=3 * INTERVAL).contains(&after), "{after}");
    }
}

#[test]
fn without_beacons_it_is_gone_at_the_edge() {
    let mut bss = moving_bss(quiet_config(), vec![eastward_walk(-60.0, 1.0), eastward_walk(0.0, 2.0)], 1);
    let (told, timeouts) = run_until(&mut bss, Instant::FAR_FUTURE);
    assert_eq!(link_events(&told, 0), [(10_000_000_000, LinkEvent::Detected)]);
    let going = LinkEvent::GoingDown { time_left: Duration::from_millis(4500) };
    assert_eq!(
        link_events(&told, 1),
        [
            (0, LinkEvent::Up),
            (20_500_000_000, going),
            (25_000_000_000, link_down(LinkDownReason::OutOfReach))
        ]
    );
    assert!(timeouts <= 7, "{timeouts}");
}

#[test]
fn who_comes_is_told_by_the_first_beacon() {
    for seed in 0..10 {
        let mut bss =
            moving_bss(outside_config(), vec![eastward_walk(-52.0, 1.0), eastward_walk(0.0, 0.0)], seed);
        let (told, _) = run_until(&mut bss, at_seconds(10.0));
        let [(at, LinkEvent::Detected)] = link_events(&told, 0)[..] else { panic!("{told:?}") };
        assert!((2_000_000_000..=2_000_000_000 + INTERVAL).contains(&at), "{at}");
        let [(first, LinkEvent::Detected)] = link_events(&told, 1)[..] else { panic!("{told:?}") };
        assert!(first <= INTERVAL + DIFS + BEACON, "{first}");
        // The same beacon clock for both.
        assert_eq!((at - first) % INTERVAL, 0);
        assert_eq!(bss.poll_timeout().filter(|at| *at < at_seconds(11.0)), None, "no beacon is waited for");
    }
}

#[test]
fn a_forecast_is_for_those_who_go_away() {
    let config = WifiConfig { beacons: None, ..WifiConfig::default() };
    // Between threshold and edge: inward, outward, still, and along the edge.
    let along =
        Trajectory { start: Position { x: -20.0, y: 45.0 }, velocity: (1.0, 0.0), departs: at_nanos(0) };
    let ways = vec![eastward_walk(-45.0, 1.0), eastward_walk(45.0, 1.0), eastward_walk(45.0, 0.0), along];
    let mut bss = moving_bss(config, ways, 1);
    let said_at_once = start_bss(&mut bss);
    let going = |millis| LinkEvent::GoingDown { time_left: Duration::from_millis(millis) };
    let edge = at_seconds(20.0 + libm::sqrt(50.0 * 50.0 - 45.0 * 45.0)).duration_since(Instant::ZERO);
    assert_eq!(
        said_at_once,
        [
            (0, LinkEvent::Up),
            (1, LinkEvent::Up),
            (1, going(5000)),
            (2, LinkEvent::Up),
            (3, LinkEvent::Up),
            (3, LinkEvent::GoingDown { time_left: edge }),
        ]
    );
    let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
    assert_eq!(
        link_events(&told, 0),
        [(86_000_000_000, going(9000)), (95_000_000_000, link_down(LinkDownReason::OutOfReach))]
    );
}

#[test]
fn an_association_is_four_frames_to_the_nanosecond() {
    let mut bss = test_bss(WifiConfig { associated: false, ..quiet_config() }, 1);
    assert_eq!(start_bss(&mut bss), [(0, LinkEvent::Detected)]);
    bss.send(at_nanos(0), RadioDirection::Up(0), 100, 0);
    bss.send(at_nanos(0), RadioDirection::Down(0), 100, 1);
    bss.command(at_nanos(1_000_000), 0, LinkCommand::Connect);
    let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
    let refused = |way, handle| (0, BssOutput::Dropped(way, handle, DropReason::OutOfReach));
    assert_eq!(told[..2], [refused(RadioDirection::Up(0), 0), refused(RadioDirection::Down(0), 1)]);
    let [(at, LinkEvent::Up)] = link_events(&told, 0)[..] else { panic!("{told:?}") };
    // Authentication 28 + 6 octets both ways; association 28 + 4 + 16 and 28 + 6 + 6. Three of the frames find the
    // medium busy with the acknowledgement of the frame that they answer, and draw a back-off.
    let frames =
        management_duration(34) + management_duration(34) + management_duration(48) + management_duration(40);
    let slots = at - (1_000_000 + 4 * DIFS + frames + 3 * ACK);
    assert!(slots.is_multiple_of(SLOT) && slots <= 3 * 31 * SLOT, "{slots}");
    let c = bss.counters();
    assert_eq!((c.management, c.acks, c.associations, c.out_of_reach), (4, 4, 1, 2));
    bss.send(at_seconds(1.0), RadioDirection::Up(0), 100, 2);
    bss.send(at_seconds(2.0), RadioDirection::Down(0), 100, 3);
    assert_eq!(arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0).len(), 2);
}

#[test]
fn association_survives_noise_but_needs_an_access_point() {
    // Half of the frames are lost: seven transmissions are enough for nearly all.
    let mut up = 0;
    for seed in 0..200 {
        let config = WifiConfig { frame_loss: 0.5, associated: false, ..quiet_config() };
        let mut bss = seeded_bss(config, 1, seed);
        start_bss(&mut bss);
        bss.command(at_nanos(0), 0, LinkCommand::Connect);
        let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
        match link_events(&told, 0)[..] {
            [(_, LinkEvent::Up)] => up += 1,
            [(at, LinkEvent::Down(LinkDownReason::EntryFailed))] => assert_eq!(at, 500_000_000),
            ref other => panic!("{other:?}"),
        }
    }
    // (1 - 2^-7)^4 = 0.969: 194 of 200, give or take 3.5 standard errors of 2.4.
    assert!((186..=200).contains(&up), "{up}");
    let mut bss = moving_bss(outside_config(), vec![eastward_walk(100.0, 0.0)], 1);
    start_bss(&mut bss);
    bss.command(at_nanos(5), 0, LinkCommand::Connect);
    let (told, _) = run_until(&mut bss, at_seconds(1.0));
    assert_eq!(link_events(&told, 0), [(500_000_005, link_down(LinkDownReason::EntryFailed))]);
    assert_eq!(bss.counters().management, 7);
}

#[test]
fn who_disconnects_is_gone_at_once_and_may_come_back() {
    let mut bss = test_bss(WifiConfig::default(), 2);
    start_bss(&mut bss);
    for i in 0..4 {
        bss.send(at_nanos(0), if i < 2 { RadioDirection::Up(0) } else { RadioDirection::Down(0) }, 1500, i);
    }
    bss.send(at_nanos(0), RadioDirection::Down(1), 1500, 4);
    bss.command(at_nanos(100_000), 0, LinkCommand::Disconnect);
    let (told, _) = run_until(&mut bss, at_seconds(1.0));
    assert_eq!(told.len(), 6);
    let dropped = told.iter().filter(|(_, t)| matches!(t, BssOutput::Dropped(_, _, DropReason::OutOfReach)));
    assert_eq!(dropped.count(), 4);
    assert_eq!(link_events(&told, 0), [(0, link_down(LinkDownReason::Disconnected))]);
    assert_eq!(arrived_packets(&told).iter().map(|(_, handle)| *handle).collect::<Vec<_>>(), [4]);
    bss.command(at_seconds(2.0), 0, LinkCommand::Connect);
    let (told, _) = run_until(&mut bss, at_seconds(3.0));
    let [(at, LinkEvent::Up)] = link_events(&told, 0)[..] else { panic!("{told:?}") };
    assert!(at < 2_010_000_000, "{at}");
    // After a requested disconnection a station in reach is not detected again.
    bss.command(at_seconds(4.0), 0, LinkCommand::Disconnect);
    let (told, _) = run_until(&mut bss, at_seconds(6.0));
    assert_eq!(link_events(&told, 0), [(0, link_down(LinkDownReason::Disconnected))]);
}

#[test]
fn a_scan_stays_longer_where_it_hears_something() {
    let scan = |config: WifiConfig, x: f64| {
        let mut bss = moving_bss(config, vec![eastward_walk(x, 0.0)], 1);
        start_bss(&mut bss);
        bss.command(at_seconds(1.0), 0, LinkCommand::Scan);
        let told = link_events(&run_until(&mut bss, at_seconds(3.0)).0, 0);
        (told, *bss.counters())
    };
    let scanned = |millis: u64, found| (1_000_000_000 + millis * 1_000_000, LinkEvent::Scanned { found });
    // Ten channels of 20 ms and one of 60.
    let (told, counters) = scan(WifiConfig { associated: false, ..quiet_config() }, 0.0);
    assert_eq!(told, [scanned(260, true)]);
    assert_eq!((counters.management, counters.acks), (2, 1));
    let (told, counters) = scan(outside_config(), 100.0);
    assert_eq!(told, [scanned(220, false)]);
    assert_eq!((counters.management, counters.acks), (1, 0));
    let one = WifiConfig { channels: 1, channel: 1, ..quiet_config() };
    assert_eq!(scan(one, 0.0).0, [scanned(60, true)]);
    assert_eq!(scan(one, 100.0).0, [scanned(20, false)]);
    let last = WifiConfig { channels: 3, channel: 3, ..quiet_config() };
    assert_eq!(scan(last, 0.0).0, [scanned(100, true)]);
}

#[test]
fn a_scan_finds_what_no_beacon_has_told_yet() {
    let config =
        WifiConfig { associated: false, beacons: Some(Duration::from_secs(1000)), ..WifiConfig::default() };
    let mut bss = test_bss(config, 1);
    start_bss(&mut bss);
    bss.command(at_nanos(0), 0, LinkCommand::Scan);
    let told = link_events(&run_until(&mut bss, at_seconds(1.0)).0, 0);
    // Channels 1 to 5 take 100 ms; then the probe of 28 + 16 octets, and the response of 28 + 31 at once, since the
    // probe is not acknowledged.
    let detected = 100_000_000 + DIFS + management_duration(44) + DIFS + management_duration(59);
    assert_eq!(told, [(detected, LinkEvent::Detected), (260_000_000, LinkEvent::Scanned { found: true })]);
}

#[test]
fn who_scans_is_away() {
    let mut bss = test_bss(WifiConfig::default(), 1);
    start_bss(&mut bss);
    bss.command(at_nanos(0), 0, LinkCommand::Scan);
    bss.send(at_nanos(1_000_000), RadioDirection::Up(0), 100, 0);
    bss.send(at_nanos(1_000_000), RadioDirection::Down(0), 100, 1);
    bss.command(at_nanos(2_000_000), 0, LinkCommand::Scan);
    let (told, _) = run_until(&mut bss, at_seconds(5.0));
    let spent = told
        .iter()
        .find(|(_, t)| matches!(t, BssOutput::Dropped(RadioDirection::Down(0), 1, DropReason::OutOfReach)));
    assert!(spent.is_some_and(|(at, _)| *at < 100_000_000), "{told:?}");
    let scanned = 260_000_000;
    assert_eq!(
        link_events(&told, 0),
        [(scanned, LinkEvent::Scanned { found: true })],
        "and it stays associated"
    );
    assert_eq!(arrived_packets(&told), [(scanned + DIFS + frame_nanos(100), 0)]);
    assert_eq!(bss.counters().ignored_commands, 1);
}

#[test]
fn who_is_told_to_connect_during_a_scan_does_so_after_it() {
    let mut bss = test_bss(WifiConfig { associated: false, ..quiet_config() }, 1);
    start_bss(&mut bss);
    bss.command(at_nanos(0), 0, LinkCommand::Scan);
    bss.command(at_nanos(1), 0, LinkCommand::Connect);
    let told = link_events(&run_until(&mut bss, at_seconds(5.0)).0, 0);
    assert_eq!(told[0], (260_000_000, LinkEvent::Scanned { found: true }));
    assert!(matches!(told[1..], [(_, LinkEvent::Up)]), "{told:?}");
    // And not at all after a disconnection.
    bss.command(at_seconds(6.0), 0, LinkCommand::Disconnect);
    bss.command(at_seconds(6.0), 0, LinkCommand::Scan);
    bss.command(at_seconds(6.0), 0, LinkCommand::Connect);
    bss.command(at_seconds(6.1), 0, LinkCommand::Disconnect);
    let told: Vec<_> =
        link_events(&run_until(&mut bss, at_seconds(8.0)).0, 0).into_iter().map(|(_, e)| e).collect();
    let gone = link_down(LinkDownReason::Disconnected);
    assert_eq!(told, [gone, gone, LinkEvent::Scanned { found: true }]);
    for command in [LinkCommand::Disconnect, LinkCommand::Connect, LinkCommand::Connect, LinkCommand::Scan] {
        bss.command(at_seconds(9.0), 0, command);
    }
    bss.command(at_seconds(9.0), 1, LinkCommand::Scan);
    assert_eq!(bss.counters().ignored_commands, 4);
}

#[test]
fn out_of_reach_nothing_arrives() {
    // Out of reach after ten seconds, which is detected a third of a second later.
    let mut bss = moving_bss(WifiConfig::default(), vec![eastward_walk(40.0, 1.0)], 1);
    start_bss(&mut bss);
    let mut told = Vec::new();
    for i in 0..120 {
        let at = at_seconds(f64::from(i) / 10.0);
        told.extend(run_until(&mut bss, at).0);
        bss.send(at, if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) }, 100, i as u32);
    }
    told.extend(run_until(&mut bss, at_seconds(20.0)).0);
    let last = arrived_packets(&told).iter().map(|(_, handle)| *handle).collect::<Vec<_>>();
    assert_eq!(last, (0..100).collect::<Vec<_>>());
    let c = bss.counters();
    assert_eq!((c.out_of_reach, c.given_up), (20, 0));
    // Packets of the last third of a second before the detection were sent seven times.
    assert!((2 * 6..=4 * 6).contains(&c.retries), "{}", c.retries);
}

#[test]
fn a_station_that_misses_beacons_goes_down_and_detects_the_next() {
    let mut bss = test_bss(WifiConfig { frame_loss: 0.6, beacons_missed: 3, ..WifiConfig::default() }, 1);
    let told = link_events(&run_until(&mut bss, at_seconds(10.0)).0, 0);
    let events: Vec<_> = told.iter().map(|(_, e)| *e).collect();
    assert_eq!(events, [LinkEvent::Up, link_down(LinkDownReason::OutOfReach), LinkEvent::Detected]);
    assert_eq!((told[2].0 - told[1].0) % INTERVAL, 0);
}

#[test]
fn beacons_that_are_lost_do_not_cost_a_link_that_is_in_use() {
    let mut bss = test_bss(WifiConfig { frame_loss: 0.6, beacons_missed: 3, ..WifiConfig::default() }, 2);
    let mut told = Vec::new();
    for i in 0..2000 {
        let at = at_nanos(u64::from(i) * 50_000_000);
        told.extend(run_until(&mut bss, at).0);
        bss.send(at, if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) }, 100, i);
    }
    // Its neighbour receives only beacons; three in a row are lost every other second.
    assert_eq!(link_events(&told, 0), [(0, LinkEvent::Up)]);
    assert!(link_events(&told, 1).iter().any(|(_, event)| *event == link_down(LinkDownReason::OutOfReach)));
}
