use super::*;
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkCommand, LinkDownReason, LinkEvent, RadioDirection};
use usher_core::{Duration, Instant, Seed};

mod exchange;
mod link;
mod model;
mod whole;

const CENTRE: Position = Position { x: 0.0, y: 0.0 };

/// The numbers of 802.11b, in nanoseconds.
const DIFS: u64 = 50_000;
const SLOT: u64 = 20_000;
const EIFS: u64 = 364_000;
/// SIFS, and an acknowledgement at 2 Mb/s.
const ACK: u64 = 10_000 + 192_000 + 56_000;

fn at_nanos(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}
fn at_seconds(n: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(n)
}

/// A packet's frame at 11 Mb/s, rounded up.
fn frame_nanos(octets: u64) -> u64 {
    192_000 + ((octets + 36) * 8_000).div_ceil(11)
}

/// Only packets: no beacons.
fn quiet_config() -> WifiConfig {
    WifiConfig { beacons: None, ..WifiConfig::default() }
}
fn test_bss(config: WifiConfig, stations: usize) -> Bss {
    seeded_bss(config, stations, 1)
}
fn seeded_bss(config: WifiConfig, stations: usize, seed: u64) -> Bss {
    moving_bss(config, vec![Trajectory::default(); stations], seed)
}
fn moving_bss(config: WifiConfig, ways: Vec<Trajectory>, seed: u64) -> Bss {
    Bss::new(config, Seed::new(seed).derive_rng("bss", 0), CENTRE, ways).unwrap()
}
/// A walk eastward from `x`, in metres and metres per second.
fn eastward_walk(x: f64, speed: f64) -> Trajectory {
    Trajectory { start: Position { x, y: 0.0 }, velocity: (speed, 0.0), departs: Instant::ZERO }
}

/// An output of a set.
#[derive(Clone, Copy, PartialEq, Debug)]
enum BssOutput {
    Arrived(RadioDirection, u32),
    Dropped(RadioDirection, u32, DropReason),
    Link(u32, LinkEvent),
}

/// Takes all outputs.
fn drain_outputs(bss: &mut Bss, now: Instant, told: &mut Vec<(u64, BssOutput)>) {
    while let Some((way, handle)) = bss.poll_delivery(now) {
        told.push((now.as_nanos(), BssOutput::Arrived(way, handle)));
    }
    while let Some((way, handle, why)) = bss.poll_drop() {
        told.push((now.as_nanos(), BssOutput::Dropped(way, handle, why)));
    }
    while let Some((station, event)) = bss.poll_link_event() {
        told.push((now.as_nanos(), BssOutput::Link(station, event)));
    }
}

/// Runs until no event is left, or until `end`. Returns the outputs with their times, and the number of timeouts.
fn run_until(bss: &mut Bss, end: Instant) -> (Vec<(u64, BssOutput)>, u64) {
    let (mut told, mut timeouts, mut before) = (Vec::new(), 0, Instant::ZERO);
    drain_outputs(bss, Instant::ZERO, &mut told);
    while let Some(now) = bss.poll_timeout().filter(|now| *now <= end) {
        assert!(now >= before, "{before:?} {now:?}");
        before = now;
        bss.handle_timeout(now);
        timeouts += 1;
        assert!(timeouts < 10_000_000, "the set does not come to rest");
        drain_outputs(bss, now, &mut told);
    }
    (told, timeouts)
}
/// Starts it: links that are up from the start report it.
fn start_bss(bss: &mut Bss) -> Vec<(u32, LinkEvent)> {
    bss.handle_timeout(Instant::ZERO);
    std::iter::from_fn(|| bss.poll_link_event()).collect()
}
/// The packets that arrived, by handle.
fn arrived_packets(told: &[(u64, BssOutput)]) -> Vec<(u64, u32)> {
    let packet = |(at, told): &(u64, BssOutput)| match told {
        BssOutput::Arrived(_, handle) => Some((*at, *handle)),
        _ => None,
    };
    told.iter().filter_map(packet).collect()
}
/// Returns the events of a station's link.
fn link_events(told: &[(u64, BssOutput)], station: u32) -> Vec<(u64, LinkEvent)> {
    let event = |(at, told): &(u64, BssOutput)| match told {
        BssOutput::Link(s, event) if *s == station => Some((*at, *event)),
        _ => None,
    };
    told.iter().filter_map(event).collect()
}
