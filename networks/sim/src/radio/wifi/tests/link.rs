//! Stations that come, go, scan and get associated.

use super::*;

const INTERVAL: u64 = 102_400_000;
/// A beacon of 65 octets at 2 Mb/s.
const BEACON: u64 = 192_000 + 260_000;

/// Stations that are outside at the beginning.
fn outside() -> WifiConfig {
    WifiConfig { associated: false, ..WifiConfig::default() }
}
/// Management frames at 2 Mb/s with so many octets.
fn management(octets: u64) -> u64 {
    192_000 + octets * 4000
}
fn down(why: LinkDownReason) -> LinkEvent {
    LinkEvent::Down(why)
}

#[test]
fn who_walks_away_says_so_and_is_gone_when_it_has_missed_three_beacons() {
    for seed in 0..10 {
        // From the centre at 1 m/s.
        let mut bss = walking(WifiConfig::default(), vec![walk(0.0, 1.0)], seed);
        let (told, _) = run(&mut bss, Instant::FAR_FUTURE);
        let said = said(&told, 0);
        let within = Duration::from_secs(9);
        assert_eq!(said[..2], [(0, LinkEvent::Up), (41_000_000_000, LinkEvent::GoingDown { within })]);
        let [(at, LinkEvent::Down(LinkDownReason::OutOfReach))] = said[2..] else { panic!("{said:?}") };
        // The third beacon that ends after the crossing.
        let after = at - 50_000_000_000;
        assert!((2 * INTERVAL..=3 * INTERVAL).contains(&after), "{after}");
    }
}

#[test]
fn without_beacons_it_is_gone_at_the_edge() {
    let mut bss = walking(quiet(), vec![walk(-60.0, 1.0), walk(0.0, 2.0)], 1);
    let (told, timeouts) = run(&mut bss, Instant::FAR_FUTURE);
    assert_eq!(said(&told, 0), [(10_000_000_000, LinkEvent::Detected)]);
    let going = LinkEvent::GoingDown { within: Duration::from_millis(4500) };
    assert_eq!(
        said(&told, 1),
        [(0, LinkEvent::Up), (20_500_000_000, going), (25_000_000_000, down(LinkDownReason::OutOfReach))]
    );
    assert!(timeouts <= 7, "{timeouts}");
}

#[test]
fn who_comes_is_told_by_the_first_beacon() {
    for seed in 0..10 {
        let mut bss = walking(outside(), vec![walk(-52.0, 1.0), walk(0.0, 0.0)], seed);
        let (told, _) = run(&mut bss, seconds(10.0));
        let [(at, LinkEvent::Detected)] = said(&told, 0)[..] else { panic!("{told:?}") };
        assert!((2_000_000_000..=2_000_000_000 + INTERVAL).contains(&at), "{at}");
        let [(first, LinkEvent::Detected)] = said(&told, 1)[..] else { panic!("{told:?}") };
        assert!(first <= INTERVAL + DIFS + BEACON, "{first}");
        // The same clock for both.
        assert_eq!((at - first) % INTERVAL, 0);
        assert_eq!(bss.poll_timeout().filter(|at| *at < seconds(11.0)), None, "no beacon is waited for");
    }
}

#[test]
fn a_forecast_is_for_those_who_go_away() {
    let config = WifiConfig { beacons: None, ..WifiConfig::default() };
    // Between threshold and edge: inward, outward, still, and along the edge.
    let along = Trajectory { start: Position { x: -20.0, y: 45.0 }, velocity: (1.0, 0.0), departs: t(0) };
    let ways = vec![walk(-45.0, 1.0), walk(45.0, 1.0), walk(45.0, 0.0), along];
    let mut bss = walking(config, ways, 1);
    let said_at_once = begin(&mut bss);
    let going = |millis| LinkEvent::GoingDown { within: Duration::from_millis(millis) };
    let edge = seconds(20.0 + libm::sqrt(50.0 * 50.0 - 45.0 * 45.0)).since(Instant::ZERO);
    assert_eq!(
        said_at_once,
        [
            (0, LinkEvent::Up),
            (1, LinkEvent::Up),
            (1, going(5000)),
            (2, LinkEvent::Up),
            (3, LinkEvent::Up),
            (3, LinkEvent::GoingDown { within: edge }),
        ]
    );
    let (told, _) = run(&mut bss, Instant::FAR_FUTURE);
    assert_eq!(
        said(&told, 0),
        [(86_000_000_000, going(9000)), (95_000_000_000, down(LinkDownReason::OutOfReach))]
    );
}

#[test]
fn an_association_is_four_frames_to_the_nanosecond() {
    let mut bss = bss(WifiConfig { associated: false, ..quiet() }, 1);
    assert_eq!(begin(&mut bss), [(0, LinkEvent::Detected)]);
    bss.send(t(0), Way::Up(0), 100, 0);
    bss.send(t(0), Way::Down(0), 100, 1);
    bss.command(t(1_000_000), 0, LinkCommand::Connect);
    let (told, _) = run(&mut bss, Instant::FAR_FUTURE);
    let refused = |way, handle| (0, Seen::Dropped(way, handle, DropReason::OutOfReach));
    assert_eq!(told[..2], [refused(Way::Up(0), 0), refused(Way::Down(0), 1)]);
    let [(at, LinkEvent::Up)] = said(&told, 0)[..] else { panic!("{told:?}") };
    // Authentication 28 + 6 octets both ways; association 28 + 4 + 16 and 28 + 6 + 6. The three answers find the medium busy
    // with the acknowledgement of what they answer, and draw a back-off.
    let frames = management(34) + management(34) + management(48) + management(40);
    let slots = at - (1_000_000 + 4 * DIFS + frames + 3 * ACK);
    assert!(slots.is_multiple_of(SLOT) && slots <= 3 * 31 * SLOT, "{slots}");
    let c = bss.counters();
    assert_eq!((c.management, c.acks, c.associations, c.out_of_reach), (4, 4, 1, 2));
    bss.send(seconds(1.0), Way::Up(0), 100, 2);
    bss.send(seconds(2.0), Way::Down(0), 100, 3);
    assert_eq!(arrived(&run(&mut bss, Instant::FAR_FUTURE).0).len(), 2);
}

#[test]
fn an_association_survives_noise_and_fails_without_an_access_point() {
    // Half of the frames are lost: seven transmissions are enough for nearly all.
    let mut up = 0;
    for seed in 0..200 {
        let config = WifiConfig { frame_loss: 0.5, associated: false, ..quiet() };
        let mut bss = seeded(config, 1, seed);
        begin(&mut bss);
        bss.command(t(0), 0, LinkCommand::Connect);
        let (told, _) = run(&mut bss, Instant::FAR_FUTURE);
        match said(&told, 0)[..] {
            [(_, LinkEvent::Up)] => up += 1,
            [(at, LinkEvent::Down(LinkDownReason::EntryFailed))] => assert_eq!(at, 500_000_000),
            ref other => panic!("{other:?}"),
        }
    }
    // (1 - 2^-7)^4 = 0.969: 194 of 200, give or take 3.5 standard errors of 2.4.
    assert!((186..=200).contains(&up), "{up}");
    let mut bss = walking(outside(), vec![walk(100.0, 0.0)], 1);
    begin(&mut bss);
    bss.command(t(5), 0, LinkCommand::Connect);
    let (told, _) = run(&mut bss, seconds(1.0));
    assert_eq!(said(&told, 0), [(500_000_005, down(LinkDownReason::EntryFailed))]);
    assert_eq!(bss.counters().management, 7);
}

#[test]
fn who_disconnects_is_gone_at_once_and_may_come_back() {
    let mut bss = bss(WifiConfig::default(), 2);
    begin(&mut bss);
    for i in 0..4 {
        bss.send(t(0), if i < 2 { Way::Up(0) } else { Way::Down(0) }, 1500, i);
    }
    bss.send(t(0), Way::Down(1), 1500, 4);
    bss.command(t(100_000), 0, LinkCommand::Disconnect);
    let (told, _) = run(&mut bss, seconds(1.0));
    assert_eq!(told.len(), 6);
    let dropped = told.iter().filter(|(_, t)| matches!(t, Seen::Dropped(_, _, DropReason::OutOfReach)));
    assert_eq!(dropped.count(), 4);
    assert_eq!(said(&told, 0), [(0, down(LinkDownReason::Disconnected))]);
    assert_eq!(arrived(&told).iter().map(|(_, handle)| *handle).collect::<Vec<_>>(), [4]);
    bss.command(seconds(2.0), 0, LinkCommand::Connect);
    let (told, _) = run(&mut bss, seconds(3.0));
    let [(at, LinkEvent::Up)] = said(&told, 0)[..] else { panic!("{told:?}") };
    assert!(at < 2_010_000_000, "{at}");
    // A link that was given up on purpose is not news while the station stays.
    bss.command(seconds(4.0), 0, LinkCommand::Disconnect);
    let (told, _) = run(&mut bss, seconds(6.0));
    assert_eq!(said(&told, 0), [(0, down(LinkDownReason::Disconnected))]);
}

#[test]
fn a_scan_stays_longer_where_it_hears_something() {
    let scan = |config: WifiConfig, x: f64| {
        let mut bss = walking(config, vec![walk(x, 0.0)], 1);
        begin(&mut bss);
        bss.command(seconds(1.0), 0, LinkCommand::Scan);
        let told = said(&run(&mut bss, seconds(3.0)).0, 0);
        (told, *bss.counters())
    };
    let scanned = |millis: u64, found| (1_000_000_000 + millis * 1_000_000, LinkEvent::Scanned { found });
    // Ten channels of 20 ms and one of 60.
    let (told, counters) = scan(WifiConfig { associated: false, ..quiet() }, 0.0);
    assert_eq!(told, [scanned(260, true)]);
    assert_eq!((counters.management, counters.acks), (2, 1));
    let (told, counters) = scan(outside(), 100.0);
    assert_eq!(told, [scanned(220, false)]);
    assert_eq!((counters.management, counters.acks), (1, 0));
    let one = WifiConfig { channels: 1, channel: 1, ..quiet() };
    assert_eq!(scan(one, 0.0).0, [scanned(60, true)]);
    assert_eq!(scan(one, 100.0).0, [scanned(20, false)]);
    let last = WifiConfig { channels: 3, channel: 3, ..quiet() };
    assert_eq!(scan(last, 0.0).0, [scanned(100, true)]);
}

#[test]
fn a_scan_finds_what_no_beacon_has_told_yet() {
    let config =
        WifiConfig { associated: false, beacons: Some(Duration::from_secs(1000)), ..WifiConfig::default() };
    let mut bss = bss(config, 1);
    begin(&mut bss);
    bss.command(t(0), 0, LinkCommand::Scan);
    let told = said(&run(&mut bss, seconds(1.0)).0, 0);
    // Channels 1 to 5 take 100 ms; probe of 28 + 16 octets, answer of 28 + 31 at once, as the probe is not acknowledged.
    let detected = 100_000_000 + DIFS + management(44) + DIFS + management(59);
    assert_eq!(told, [(detected, LinkEvent::Detected), (260_000_000, LinkEvent::Scanned { found: true })]);
}

#[test]
fn who_scans_is_away() {
    let mut bss = bss(WifiConfig::default(), 1);
    begin(&mut bss);
    bss.command(t(0), 0, LinkCommand::Scan);
    bss.send(t(1_000_000), Way::Up(0), 100, 0);
    bss.send(t(1_000_000), Way::Down(0), 100, 1);
    bss.command(t(2_000_000), 0, LinkCommand::Scan);
    let (told, _) = run(&mut bss, seconds(5.0));
    let spent =
        told.iter().find(|(_, t)| matches!(t, Seen::Dropped(Way::Down(0), 1, DropReason::OutOfReach)));
    assert!(spent.is_some_and(|(at, _)| *at < 100_000_000), "{told:?}");
    let scanned = 260_000_000;
    assert_eq!(said(&told, 0), [(scanned, LinkEvent::Scanned { found: true })], "and it stays associated");
    assert_eq!(arrived(&told), [(scanned + DIFS + frame(100), 0)]);
    assert_eq!(bss.counters().ignored_commands, 1);
}

#[test]
fn who_is_told_to_connect_during_a_scan_does_so_after_it() {
    let mut bss = bss(WifiConfig { associated: false, ..quiet() }, 1);
    begin(&mut bss);
    bss.command(t(0), 0, LinkCommand::Scan);
    bss.command(t(1), 0, LinkCommand::Connect);
    let told = said(&run(&mut bss, seconds(5.0)).0, 0);
    assert_eq!(told[0], (260_000_000, LinkEvent::Scanned { found: true }));
    assert!(matches!(told[1..], [(_, LinkEvent::Up)]), "{told:?}");
    // And not at all if it is told otherwise.
    bss.command(seconds(6.0), 0, LinkCommand::Disconnect);
    bss.command(seconds(6.0), 0, LinkCommand::Scan);
    bss.command(seconds(6.0), 0, LinkCommand::Connect);
    bss.command(seconds(6.1), 0, LinkCommand::Disconnect);
    let told: Vec<_> = said(&run(&mut bss, seconds(8.0)).0, 0).into_iter().map(|(_, e)| e).collect();
    let gone = down(LinkDownReason::Disconnected);
    assert_eq!(told, [gone, gone, LinkEvent::Scanned { found: true }]);
    for command in [LinkCommand::Disconnect, LinkCommand::Connect, LinkCommand::Connect, LinkCommand::Scan] {
        bss.command(seconds(9.0), 0, command);
    }
    bss.command(seconds(9.0), 1, LinkCommand::Scan);
    assert_eq!(bss.counters().ignored_commands, 4);
}

#[test]
fn out_of_reach_nothing_arrives() {
    // Gone after ten seconds, and known to be so a third of a second later.
    let mut bss = walking(WifiConfig::default(), vec![walk(40.0, 1.0)], 1);
    begin(&mut bss);
    let mut told = Vec::new();
    for i in 0..120 {
        let at = seconds(f64::from(i) / 10.0);
        told.extend(run(&mut bss, at).0);
        bss.send(at, if i % 2 == 0 { Way::Up(0) } else { Way::Down(0) }, 100, i as u32);
    }
    told.extend(run(&mut bss, seconds(20.0)).0);
    let last = arrived(&told).iter().map(|(_, handle)| *handle).collect::<Vec<_>>();
    assert_eq!(last, (0..100).collect::<Vec<_>>());
    let c = bss.counters();
    assert_eq!((c.out_of_reach, c.given_up), (20, 0));
    // Those of the last third of a second before it is known were sent seven times.
    assert!((2 * 6..=4 * 6).contains(&c.retries), "{}", c.retries);
}

#[test]
fn a_station_that_hears_no_beacon_for_noise_is_gone_and_detects_the_next() {
    let mut bss = bss(WifiConfig { frame_loss: 0.6, beacons_missed: 3, ..WifiConfig::default() }, 1);
    let told = said(&run(&mut bss, seconds(10.0)).0, 0);
    let events: Vec<_> = told.iter().map(|(_, e)| *e).collect();
    assert_eq!(events, [LinkEvent::Up, down(LinkDownReason::OutOfReach), LinkEvent::Detected]);
    assert_eq!((told[2].0 - told[1].0) % INTERVAL, 0);
}

#[test]
fn beacons_that_are_lost_do_not_cost_a_link_that_is_in_use() {
    let mut bss = bss(WifiConfig { frame_loss: 0.6, beacons_missed: 3, ..WifiConfig::default() }, 2);
    let mut told = Vec::new();
    for i in 0..2000 {
        let at = t(u64::from(i) * 50_000_000);
        told.extend(run(&mut bss, at).0);
        bss.send(at, if i % 2 == 0 { Way::Up(0) } else { Way::Down(0) }, 100, i);
    }
    // Its neighbour has only the beacons, of which three in a row are lost every other second.
    assert_eq!(said(&told, 0), [(0, LinkEvent::Up)]);
    assert!(said(&told, 1).iter().any(|(_, event)| *event == down(LinkDownReason::OutOfReach)));
}
