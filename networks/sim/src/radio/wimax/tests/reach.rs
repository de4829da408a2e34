//! Stations that enter and leave.

use super::*;
use crate::radio::{LinkCommand, LinkDownReason, LinkEvent};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// The end of a frame's downlink.
const DOWNLINK: u64 = 29 * SYMBOL;

fn eastward_walk(from: f64, speed: f64) -> Trajectory {
    let start = Position { x: from, y: 0.0 };
    Trajectory { start, velocity: (speed, 0.0), departs: Instant::ZERO }
}

/// A range of 500 m, with a threshold of 490 m.
fn disc_config(entry: NetworkEntryTrigger) -> WimaxConfig {
    WimaxConfig { entry, radius: Some(500.0), going_down: Some(490.0), ..calm_config() }
}

fn cell_with_station(config: WimaxConfig, way: Trajectory) -> WimaxCell {
    WimaxCell::new(config, Seed::new(1).derive_rng("cell", 0), Position::default(), vec![way]).unwrap()
}

/// Runs until no event is left, or until a time; returns the events of the only station's link.
fn collect_link_events(cell: &mut WimaxCell, until: u64) -> Vec<(u64, LinkEvent)> {
    let mut said = Vec::new();
    let mut now = 0;
    loop {
        said.extend(std::iter::from_fn(|| cell.poll_link_event()).map(|(_, event)| (now, event)));
        let Some(at) = cell.poll_timeout().filter(|at| at.as_nanos() <= until) else { return said };
        now = at.as_nanos();
        cell.handle_timeout(at);
        while cell.poll_delivery(at).is_some() {}
    }
}

fn dropped_packets(cell: &mut WimaxCell) -> Vec<(RadioDirection, u32, DropReason)> {
    std::iter::from_fn(|| cell.poll_drop()).collect()
}

#[test]
fn who_walks_out_says_so_before() {
    let mut cell = cell_with_station(disc_config(NetworkEntryTrigger::Done), eastward_walk(470.0, 1.0));
    let going = LinkEvent::GoingDown { time_left: Duration::from_secs(10) };
    let down = LinkEvent::Down(LinkDownReason::OutOfReach);
    let expected = [(0, LinkEvent::Up), (20 * SECOND, going), (30 * SECOND, down)];
    assert_eq!(collect_link_events(&mut cell, u64::MAX), expected);
    // Not without a threshold, nor without an edge.
    let mut silent = cell_with_station(
        WimaxConfig { going_down: None, ..disc_config(NetworkEntryTrigger::Done) },
        eastward_walk(470.0, 1.0),
    );
    assert_eq!(collect_link_events(&mut silent, u64::MAX), [(0, LinkEvent::Up), (30 * SECOND, down)]);
    let mut endless = cell_with_station(calm_config(), eastward_walk(470.0, 1.0));
    assert_eq!(collect_link_events(&mut endless, u64::MAX), []);
}

#[test]
fn who_comes_by_far_out_says_it_from_where_it_is_nearest() {
    // A chord 495 m from the middle: half of it is the square root of 500² - 495².
    let way =
        Trajectory { start: Position { x: -100.0, y: 495.0 }, velocity: (1.0, 0.0), departs: Instant::ZERO };
    let mut cell = cell_with_station(disc_config(NetworkEntryTrigger::OnCommand), way);
    let half = 70.533_679_9;
    assert_eq!(collect_link_events(&mut cell, 40 * SECOND), []);
    cell.command(at_nanos(40 * SECOND), 0, LinkCommand::Connect);
    let said = collect_link_events(&mut cell, u64::MAX);
    let [(_, LinkEvent::Up), (at, LinkEvent::GoingDown { time_left: within }), (end, LinkEvent::Down(_))] =
        said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(at, 100 * SECOND);
    assert!((within.as_secs_f64() - half).abs() < 1e-6, "{within:?}");
    assert_eq!(end, at + within.as_nanos());
}

#[test]
fn nothing_passes_out_of_reach() {
    for entry in [NetworkEntryTrigger::Done, NetworkEntryTrigger::AtFirstPacket] {
        let mut cell = cell_with_station(disc_config(entry), eastward_walk(600.0, 0.0));
        cell.send(at_nanos(1), RadioDirection::Up(0), 100, 1);
        cell.send(at_nanos(1), RadioDirection::Down(0), 100, 2);
        let lost = |way, handle| (way, handle, DropReason::OutOfReach);
        assert_eq!(
            dropped_packets(&mut cell),
            [lost(RadioDirection::Up(0), 1), lost(RadioDirection::Down(0), 2)]
        );
        assert_eq!((run_to_rest(&mut cell), cell.counters().out_of_reach), (vec![], 2));
    }
}

#[test]
fn what_is_under_way_is_lost_at_the_edge() {
    // It leaves in the uplink in which the packet would arrive. A second uplink packet never starts; a downlink one
    // waits too.
    let config = WimaxConfig { going_down: None, ..disc_config(NetworkEntryTrigger::Done) };
    let mut cell = cell_with_station(config, eastward_walk(500.0 - 0.0131, 1.0));
    assert_eq!(collect_link_events(&mut cell, 0), [(0, LinkEvent::Up)]);
    cell.send(at_nanos(0), RadioDirection::Up(0), 100, 1);
    assert_eq!(collect_link_events(&mut cell, 12 * MS), []);
    cell.send(at_nanos(13 * MS), RadioDirection::Up(0), 1000, 2);
    cell.send(at_nanos(13 * MS), RadioDirection::Down(0), 1000, 3);
    assert_eq!(collect_link_events(&mut cell, u64::MAX).len(), 1);
    let mut lost = dropped_packets(&mut cell);
    lost.sort_by_key(|l| l.1);
    let out = DropReason::OutOfReach;
    assert_eq!(
        lost,
        [(RadioDirection::Up(0), 1, out), (RadioDirection::Up(0), 2, out), (RadioDirection::Down(0), 3, out)]
    );
    let c = cell.counters();
    assert_eq!((c.packets_up, c.packets_down, c.out_of_reach), (0, 0, 3));
}

#[test]
fn who_comes_in_is_to_say_so() {
    // In reach from 10 s on; both kinds of entry need it.
    let mut commanded =
        cell_with_station(disc_config(NetworkEntryTrigger::OnCommand), eastward_walk(-510.0, 1.0));
    let mut lazy =
        cell_with_station(disc_config(NetworkEntryTrigger::AtFirstPacket), eastward_walk(-510.0, 1.0));
    for cell in [&mut commanded, &mut lazy] {
        assert_eq!(collect_link_events(cell, 11 * SECOND), []);
        cell.send(at_nanos(11 * SECOND), RadioDirection::Up(0), 100, 1);
    }
    assert_eq!(dropped_packets(&mut commanded), [(RadioDirection::Up(0), 1, DropReason::OutOfReach)]);
    assert_eq!(dropped_packets(&mut lazy), []);
    // RNG-REQ received in the first frame, in the cell after three.
    let up = 11 * SECOND + 3 * FRAME;
    assert_eq!(collect_link_events(&mut lazy, 12 * SECOND), [(up, LinkEvent::Up)]);
    assert_eq!(lazy.counters().packets_up, 1);
}

#[test]
fn a_scan_waits_for_its_channels_a_frame_and_the_descriptors() {
    let config = WimaxConfig {
        descriptor_interval: Duration::from_millis(101),
        ..disc_config(NetworkEntryTrigger::OnCommand)
    };
    let mut cell = cell_with_station(config, eastward_walk(0.0, 0.0));
    // On the second channel after 20 ms, at 341 ms: frame 69; descriptors from 404 ms: frame 81.
    cell.command(at_nanos(321 * MS), 0, LinkCommand::Scan);
    let found = 81 * FRAME + DOWNLINK;
    let expected = [(found, LinkEvent::Detected), (found, LinkEvent::Scanned { found: true })];
    assert_eq!(collect_link_events(&mut cell, u64::MAX), expected);
    // In the very frame that has them: from 1212 ms.
    cell.command(at_nanos(1195 * MS), 0, LinkCommand::Scan);
    let found = 243 * FRAME + DOWNLINK;
    assert_eq!(collect_link_events(&mut cell, u64::MAX)[1], (found, LinkEvent::Scanned { found: true }));
    // Described from 50 ms on: at 353 ms, frame 71.
    let mut shifted = cell_with_station(config, eastward_walk(0.0, 0.0));
    shifted.set_descriptor_phase(Duration::from_millis(50));
    shifted.command(at_nanos(321 * MS), 0, LinkCommand::Scan);
    assert_eq!(collect_link_events(&mut shifted, u64::MAX)[0], (71 * FRAME + DOWNLINK, LinkEvent::Detected));
    // In every frame.
    let mut soon = cell_with_station(
        WimaxConfig { descriptor_interval: Duration::ZERO, ..config },
        eastward_walk(0.0, 0.0),
    );
    soon.command(at_nanos(321 * MS), 0, LinkCommand::Scan);
    assert_eq!(collect_link_events(&mut soon, u64::MAX)[0], (69 * FRAME + DOWNLINK, LinkEvent::Detected));
    // Out of reach: all channels in vain.
    let mut far = cell_with_station(config, eastward_walk(501.0, 0.0));
    far.command(at_nanos(321 * MS), 0, LinkCommand::Scan);
    assert_eq!(collect_link_events(&mut far, u64::MAX), [(361 * MS, LinkEvent::Scanned { found: false })]);
    assert_eq!((cell.counters().scans, far.counters().scans), (2, 1));
}

#[test]
fn on_command_a_station_comes_in_with_registration() {
    let config =
        WimaxConfig { descriptor_interval: Duration::ZERO, ..disc_config(NetworkEntryTrigger::OnCommand) };
    let mut cell = cell_with_station(config, eastward_walk(0.0, 0.0));
    cell.command(at_nanos(0), 0, LinkCommand::Scan);
    // Frame 4's preamble after the first channel.
    let found = 4 * FRAME + DOWNLINK;
    assert_eq!(collect_link_events(&mut cell, SECOND).last().unwrap().0, found);
    // RNG-REQ received in frame 200, in the cell from 205 on.
    cell.command(at_nanos(SECOND), 0, LinkCommand::Connect);
    cell.send(at_nanos(SECOND), RadioDirection::Up(0), 100, 1);
    assert_eq!(dropped_packets(&mut cell).len(), 1, "not before it is in");
    assert_eq!(collect_link_events(&mut cell, 2 * SECOND), [(205 * FRAME, LinkEvent::Up)]);
    cell.send(at_nanos(2 * SECOND), RadioDirection::Up(0), 100, 2);
    assert_eq!(run_to_rest(&mut cell), [(402 * FRAME + UPLINK_END, RadioDirection::Up(0), 2)]);
    // A station in the cell has found it.
    cell.command(at_nanos(3 * SECOND), 0, LinkCommand::Scan);
    cell.command(at_nanos(3 * SECOND), 0, LinkCommand::Connect);
    let at_once = [(0, LinkEvent::Scanned { found: true }), (0, LinkEvent::Up)];
    assert_eq!(collect_link_events(&mut cell, 0), at_once);
    cell.command(at_nanos(3 * SECOND), 0, LinkCommand::Disconnect);
    cell.command(at_nanos(3 * SECOND), 0, LinkCommand::Disconnect);
    assert_eq!(collect_link_events(&mut cell, 0), [(0, LinkEvent::Down(LinkDownReason::Disconnected))]);
    assert_eq!(cell.counters().ignored_commands, 1);
    // It still knows the cell.
    cell.command(at_nanos(4 * SECOND), 0, LinkCommand::Connect);
    assert_eq!(collect_link_events(&mut cell, u64::MAX), [(805 * FRAME, LinkEvent::Up)]);
}

#[test]
fn who_does_not_know_the_cell_looks_for_it_first() {
    let config =
        WimaxConfig { descriptor_interval: Duration::ZERO, ..disc_config(NetworkEntryTrigger::OnCommand) };
    let mut cell = cell_with_station(config, eastward_walk(0.0, 0.0));
    cell.command(at_nanos(0), 0, LinkCommand::Connect);
    // The preamble of frame 4, ranging in frame 4's uplink.
    assert_eq!(collect_link_events(&mut cell, u64::MAX), [(9 * FRAME, LinkEvent::Up)]);
    let mut both = cell_with_station(config, eastward_walk(0.0, 0.0));
    both.command(at_nanos(0), 0, LinkCommand::Scan);
    both.command(at_nanos(1), 0, LinkCommand::Connect);
    both.command(at_nanos(2), 0, LinkCommand::Scan);
    let scanned =
        [LinkEvent::Detected, LinkEvent::Scanned { found: true }].map(|e| (4 * FRAME + DOWNLINK, e));
    assert_eq!(
        collect_link_events(&mut both, u64::MAX),
        [scanned[0], scanned[1], (9 * FRAME, LinkEvent::Up)]
    );
    assert_eq!(both.counters().ignored_commands, 1);
    let mut far = cell_with_station(config, eastward_walk(501.0, 0.0));
    far.command(at_nanos(0), 0, LinkCommand::Connect);
    assert_eq!(
        collect_link_events(&mut far, u64::MAX),
        [(40 * MS, LinkEvent::Down(LinkDownReason::EntryFailed))]
    );
    let mut changed = cell_with_station(config, eastward_walk(0.0, 0.0));
    changed.command(at_nanos(0), 0, LinkCommand::Connect);
    changed.command(at_nanos(1), 0, LinkCommand::Disconnect);
    assert_eq!(
        collect_link_events(&mut changed, u64::MAX),
        [(0, LinkEvent::Down(LinkDownReason::Disconnected))]
    );
}

#[test]
fn entry_fails_at_the_edge_and_when_nobody_hears() {
    let config =
        WimaxConfig { descriptor_interval: Duration::ZERO, ..disc_config(NetworkEntryTrigger::OnCommand) };
    let failed = LinkEvent::Down(LinkDownReason::EntryFailed);
    // Out of reach 30 ms later, while it waits for registration.
    let mut cell = cell_with_station(config, eastward_walk(500.0 - 0.03, 1.0));
    cell.command(at_nanos(0), 0, LinkCommand::Connect);
    assert_eq!(collect_link_events(&mut cell, u64::MAX), [(30 * MS, failed)]);
    // Out of reach during the search.
    let mut cell = cell_with_station(config, eastward_walk(500.0 - 0.01, 1.0));
    cell.command(at_nanos(0), 0, LinkCommand::Connect);
    assert_eq!(collect_link_events(&mut cell, u64::MAX), [(4 * FRAME + DOWNLINK, failed)]);
    // Two stations that always collide.
    let never = WimaxConfig { ranging: ContentionBackoffConfig { start: 0, end: 0, tries: 2 }, ..config };
    let still = vec![Trajectory::default(); 2];
    let mut cell =
        WimaxCell::new(never, Seed::new(1).derive_rng("cell", 0), Position::default(), still).unwrap();
    for station in [0, 1] {
        cell.command(at_nanos(0), station, LinkCommand::Connect);
    }
    let said: Vec<_> = collect_link_events(&mut cell, u64::MAX).iter().map(|(_, event)| *event).collect();
    assert_eq!(said, [failed, failed]);
    assert_eq!(cell.counters().ranging_collisions, 4);
}

#[test]
fn a_coverage_that_cannot_be_says_so() {
    let with = |radius, going_down| WimaxConfig { radius: Some(radius), going_down, ..calm_config() }.check();
    for (radius, going_down) in [(0.0, None), (f64::NAN, None), (f64::INFINITY, None), (10.0, Some(11.0))] {
        assert_eq!(with(radius, going_down), Err(ConfigError::Coverage));
    }
    assert_eq!(with(10.0, Some(10.0)), Ok(()));
    assert_eq!(WimaxConfig { scan_channels: 0, ..calm_config() }.check(), Err(ConfigError::Scan));
}

proptest! {
    #[test]
    fn whatever_is_commanded_every_packet_is_told_of_once(
        steps in prop::collection::vec((0u64..40, 0u8..6, 20u32..2000), 1..200),
        from in -510.0..-490.0f64, speed in 0.0..200.0f64, entry in 0usize..3,
    ) {
        let entry = [NetworkEntryTrigger::Done, NetworkEntryTrigger::AtFirstPacket, NetworkEntryTrigger::OnCommand][entry];
        let interval = Duration::from_millis(50);
        let mut cell = cell_with_station(WimaxConfig { descriptor_interval: interval, ..disc_config(entry) }, eastward_walk(from, speed));
        let (mut now, mut told, mut sent) = (Instant::ZERO, Vec::new(), 0);
        for (wait, what, octets) in steps {
            let then = now + Duration::from_millis(wait);
            while let Some(at) = cell.poll_timeout().filter(|at| *at <= then) {
                prop_assert!(at >= now);
                now = at;
                cell.handle_timeout(at);
                told.extend(std::iter::from_fn(|| cell.poll_delivery(at)).map(|(_, handle)| handle));
            }
            now = then;
            match what {
                0 => cell.command(now, 0, LinkCommand::Scan),
                1 => cell.command(now, 0, LinkCommand::Connect),
                2 => cell.command(now, 0, LinkCommand::Disconnect),
                _ => {
                    cell.send(now, if what == 3 { RadioDirection::Down(0) } else { RadioDirection::Up(0) }, octets, sent);
                    sent += 1;
                }
            }
        }
        told.extend(run_to_rest(&mut cell).iter().map(|(.., handle)| *handle));
        told.extend(dropped_packets(&mut cell).iter().map(|(_, handle, _)| *handle));
        told.sort_unstable();
        prop_assert_eq!(told, (0..sent).collect::<Vec<_>>());
    }
}
