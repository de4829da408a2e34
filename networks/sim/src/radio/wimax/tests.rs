use super::*;
use crate::radio::motion::{Position, Trajectory};
use proptest::prelude::*;
use usher_core::{Duration, Instant, Seed};

mod reach;

/// The numbers of the default frame, in nanoseconds.
const FRAME: u64 = 5_000_000;
const SYMBOL: u64 = 102_857;
const UPLINK: u64 = 29 * SYMBOL + 105_714;
const UPLINK_END: u64 = UPLINK + 18 * SYMBOL;

fn at_nanos(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Stations in the cell, which request in the first opportunity.
fn calm_config() -> WimaxConfig {
    let at_once = ContentionBackoffConfig { start: 0, end: 10, tries: 16 };
    WimaxConfig {
        entry: NetworkEntryTrigger::Done,
        request: at_once,
        ranging: at_once,
        ..WimaxConfig::default()
    }
}

fn test_cell(config: WimaxConfig, stations: u32) -> WimaxCell {
    let still = vec![Trajectory::default(); stations as usize];
    WimaxCell::new(config, Seed::new(1).derive_rng("cell", 0), Position::default(), still).unwrap()
}

/// Runs until no event is left; returns arrivals and their times.
fn run_to_rest(cell: &mut WimaxCell) -> Vec<(u64, RadioDirection, u32)> {
    let mut arrived = Vec::new();
    let mut before = Instant::ZERO;
    for _ in 0..1_000_000 {
        let Some(now) = cell.poll_timeout() else { return arrived };
        assert!(now >= before, "{before:?} {now:?}");
        before = now;
        cell.handle_timeout(now);
        while let Some((way, handle)) = cell.poll_delivery(now) {
            arrived.push((now.as_nanos(), way, handle));
        }
    }
    panic!("the cell does not come to rest");
}

#[test]
fn a_packet_goes_down_in_the_next_frame() {
    let mut cell = test_cell(calm_config(), 2);
    assert_eq!(cell.poll_timeout(), None, "an idle cell has no events");
    cell.send(at_nanos(1_000_000), RadioDirection::Down(1), 100, 7);
    assert_eq!(cell.poll_timeout(), Some(at_nanos(FRAME)));
    // FCH: 4 slots. DL-MAP: 10 + 13 octets and 60 bits, four times at 48 bits a slot: 21. UL-MAP: 10 + 8 octets and
    // 104 bits: 21.
    assert_eq!(calm_config().map_overhead(1, 0), 46);
    // 110 octets take 19 slots, 46 to 64; slot 64 is in the third pair of symbols after the preamble.
    assert_eq!(run_to_rest(&mut cell), [(FRAME + 7 * SYMBOL, RadioDirection::Down(1), 7)]);
    let c = cell.counters();
    assert_eq!((c.frames, c.downlink_bursts, c.packets_down, c.octets_down), (1, 1, 1, 110));
    assert_eq!(cell.poll_timeout(), None);
}

#[test]
fn a_packet_goes_up_after_a_request_and_a_grant() {
    let mut cell = test_cell(calm_config(), 1);
    cell.send(at_nanos(1_000_000), RadioDirection::Up(0), 100, 7);
    assert_eq!(cell.poll_timeout(), Some(at_nanos(UPLINK)));
    // Asked in frame 0's uplink, granted by frame 1's map for frame 2's uplink.
    assert_eq!(run_to_rest(&mut cell), [(2 * FRAME + UPLINK_END, RadioDirection::Up(0), 7)]);
    let c = cell.counters();
    assert_eq!((c.requests, c.grants, c.piggybacked, c.packets_up, c.octets_up), (1, 1, 0, 1, 110));
    let mut soon = self::test_cell(WimaxConfig { uplink_lead: 0, ..calm_config() }, 1);
    // After frame 8's uplink began.
    soon.send(at_nanos(8 * FRAME + UPLINK + 1), RadioDirection::Up(0), 100, 8);
    assert_eq!(run_to_rest(&mut soon), [(10 * FRAME + UPLINK_END, RadioDirection::Up(0), 8)]);
}

#[test]
fn a_burst_carries_the_request_for_the_next() {
    let mut cell = test_cell(calm_config(), 1);
    cell.send(at_nanos(0), RadioDirection::Up(0), 100, 1);
    while cell.counters().requests == 0 {
        let now = cell.poll_timeout().unwrap();
        cell.handle_timeout(now);
    }
    // Not part of the request.
    cell.send(at_nanos(UPLINK + 1), RadioDirection::Up(0), 50, 2);
    let arrived = run_to_rest(&mut cell);
    // The second packet begins in the rest of the first one's burst: 114 octets in 19 slots, 2 of them the request.
    assert_eq!(
        arrived,
        [
            (2 * FRAME + UPLINK_END, RadioDirection::Up(0), 1),
            (4 * FRAME + UPLINK_END, RadioDirection::Up(0), 2)
        ]
    );
    let c = cell.counters();
    assert_eq!((c.requests, c.piggybacked, c.grants), (1, 1, 2));
}

#[test]
fn a_station_ranges_before_its_first_packet() {
    let mut cell = test_cell(WimaxConfig { entry: NetworkEntryTrigger::AtFirstPacket, ..calm_config() }, 2);
    cell.send(at_nanos(0), RadioDirection::Up(0), 100, 1);
    let arrived = run_to_rest(&mut cell);
    // RNG-REQ received in frame 0, in the cell from frame 3 on: requests there, granted in 4 for 5.
    assert_eq!(arrived, [(5 * FRAME + UPLINK_END, RadioDirection::Up(0), 1)]);
    cell.send(at_nanos(10 * FRAME), RadioDirection::Up(0), 100, 2);
    assert_eq!(run_to_rest(&mut cell), [(12 * FRAME + UPLINK_END, RadioDirection::Up(0), 2)]);
    // A downlink packet starts network entry.
    cell.send(at_nanos(20 * FRAME), RadioDirection::Down(1), 100, 3);
    assert_eq!(run_to_rest(&mut cell), [(23 * FRAME + 7 * SYMBOL, RadioDirection::Down(1), 3)]);
    let c = cell.counters();
    assert_eq!((c.entered, c.ranging_attempts, c.ranging_collisions), (2, 2, 0));
}

#[test]
fn who_meets_another_waits_and_tries_again() {
    let config = WimaxConfig { request_opportunities: 1, ..calm_config() };
    let mut cell = test_cell(config, 2);
    cell.send(at_nanos(0), RadioDirection::Up(0), 10, 0);
    cell.send(at_nanos(0), RadioDirection::Up(1), 10, 1);
    let arrived = run_to_rest(&mut cell);
    let c = cell.counters();
    assert!(c.request_collisions >= 2 && c.requests == c.request_collisions + 2);
    // The first try was at frame 0; T16 is ten frames.
    assert!(arrived.len() == 2 && arrived[0].0 >= 12 * FRAME + UPLINK_END, "{arrived:?}");
}

#[test]
fn who_is_never_heard_gives_up() {
    let never = ContentionBackoffConfig { start: 0, end: 0, tries: 3 };
    let config = WimaxConfig { request: never, ..calm_config() };
    let mut requests = test_cell(config, 2);
    let mut ranging =
        test_cell(WimaxConfig { entry: NetworkEntryTrigger::AtFirstPacket, ranging: never, ..config }, 2);
    for cell in [&mut requests, &mut ranging] {
        for station in [0, 1] {
            cell.send(at_nanos(0), RadioDirection::Up(station), 10, station);
        }
        assert_eq!(run_to_rest(cell), []);
        let dropped: Vec<_> = std::iter::from_fn(|| cell.poll_drop()).collect();
        let gave_up = |station| (RadioDirection::Up(station), station, DropReason::RetriesExhausted);
        assert_eq!(dropped, [gave_up(0), gave_up(1)]);
        assert_eq!(cell.counters().gave_up, 2);
    }
    assert_eq!((requests.counters().requests, ranging.counters().ranging_collisions), (6, 6));
}

#[test]
fn a_hundred_at_once_are_all_served() {
    let mut cell = test_cell(WimaxConfig::default(), 100);
    for station in 0..100 {
        cell.send(at_nanos(0), RadioDirection::Up(station), 60, station);
    }
    let arrived = run_to_rest(&mut cell);
    assert_eq!(arrived.len(), 100);
    let c = cell.counters();
    assert_eq!((c.entered, c.packets_up, c.gave_up), (100, 100, 0));
    assert!(c.ranging_collisions > 50 && c.ranging_attempts == c.ranging_collisions + 100);
}

#[test]
fn stations_share_the_downlink_evenly() {
    let mut cell = test_cell(calm_config(), 4);
    for i in 0..400 {
        cell.send(at_nanos(0), RadioDirection::Down(i % 4), 1000, i);
    }
    let arrived = run_to_rest(&mut cell);
    for quarter in arrived.chunks(100) {
        for station in 0..4 {
            let own = quarter.iter().filter(|(_, way, _)| *way == RadioDirection::Down(station)).count();
            assert!((23..=27).contains(&own), "{own} of 100");
        }
    }
    // 420 slots without FCH and maps for four bursts, of 6 octets.
    let overhead = calm_config().map_overhead(4, 0);
    let frames = cell.counters().octets_down.div_ceil(u64::from((420 - overhead) * 6));
    assert!((frames..=frames + 2).contains(&cell.counters().frames), "{frames} {:?}", cell.counters());
}

/// A downlink of 90 slots: three pairs of symbols after the preamble, of 30 subchannels.
fn narrow_config() -> WimaxConfig {
    WimaxConfig { downlink_symbols: 7, ..calm_config() }
}

#[test]
fn a_frame_has_no_more_downlink_bursts_than_its_map_can_list() {
    let mut cell = test_cell(narrow_config(), 10);
    for station in 0..10 {
        cell.send(at_nanos(0), RadioDirection::Down(station), 5, station);
    }
    // Six bursts of three slots beside 4 slots of FCH, 46 of DL-MAP and 21 of UL-MAP; with seven it would be 97.
    assert_eq!((narrow_config().map_overhead(6, 0), narrow_config().map_overhead(7, 0)), (71, 76));
    cell.handle_timeout(at_nanos(FRAME));
    assert_eq!(cell.counters().downlink_bursts, 6);
    assert_eq!(run_to_rest(&mut cell).len(), 10);
    assert_eq!(cell.counters().frames, 2);
}

#[test]
fn a_frame_grants_no_more_than_its_map_has_room_for() {
    // More requests in the first frame than grants in the next.
    let request = ContentionBackoffConfig { start: 6, ..calm_config().request };
    let mut cell = test_cell(WimaxConfig { request, request_opportunities: 64, ..narrow_config() }, 40);
    for station in 0..40 {
        cell.send(at_nanos(0), RadioDirection::Up(station), 5, station);
    }
    // Beside a downlink burst of three slots: 4 slots of FCH, 21 of DL-MAP, 61 of UL-MAP.
    assert_eq!((narrow_config().map_overhead(1, 15), narrow_config().map_overhead(1, 16)), (86, 89));
    let mut granted = Vec::new();
    let mut before = 0;
    while let Some(now) = cell.poll_timeout() {
        cell.handle_timeout(now);
        while cell.poll_delivery(now).is_some() {}
        let grants = cell.counters().grants;
        granted.extend(Some(grants - before).filter(|n| *n > 0));
        before = grants;
    }
    assert_eq!((granted[0], granted.iter().max()), (15, Some(&15)), "{granted:?}");
    assert_eq!(cell.counters().packets_up, 40);
}

#[test]
fn a_better_modulation_takes_fewer_frames() {
    let frames = |modulation| {
        let mut cell = test_cell(calm_config(), 1);
        cell.set_modulation(0, (modulation, modulation));
        for i in 0..90 {
            cell.send(at_nanos(0), RadioDirection::Up(0), 1400, i);
        }
        run_to_rest(&mut cell).last().unwrap().0 / FRAME
    };
    let all = Modulation::ALL.map(frames);
    // 126,900 octets and 14 more for each frame that ends within a packet, at 175 slots a frame, from the third
    // frame on. Some frames pass between the end of the request and the grant for the fragments' headers.
    let full = 2 + 126_900 / (1050 - 14);
    assert!((full..full + 6).contains(&all[0]), "{all:?}");
    assert!(all.windows(2).all(|w| w[1] <= w[0]), "{all:?}");
}

#[test]
fn queues_are_bounded() {
    let mut cell = test_cell(WimaxConfig { queue: 3, ..calm_config() }, 1);
    for i in 0..5 {
        cell.send(at_nanos(0), RadioDirection::Up(0), 10, i);
    }
    cell.send(at_nanos(0), RadioDirection::Up(9), 10, 5);
    let dropped: Vec<_> = std::iter::from_fn(|| cell.poll_drop()).collect();
    let full = |handle| (RadioDirection::Up(0), handle, DropReason::QueueFull);
    assert_eq!(dropped, [full(3), full(4), (RadioDirection::Up(9), 5, DropReason::RetriesExhausted)]);
    assert_eq!(run_to_rest(&mut cell).len(), 3);
}

#[test]
fn packets_are_lost_as_often_as_is_set() {
    let mut cell = test_cell(WimaxConfig { loss: 0.3, queue: 10_000, ..calm_config() }, 1);
    for i in 0..10_000 {
        cell.send(
            at_nanos(0),
            if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) },
            20,
            i,
        );
    }
    let arrived = run_to_rest(&mut cell).len() as u64;
    let c = cell.counters();
    assert_eq!((arrived + c.lost, c.packets_up + c.packets_down), (10_000, arrived));
    assert!((2800..3200).contains(&c.lost), "{}", c.lost);
}

#[test]
fn a_configuration_that_cannot_be_says_why() {
    let why = |change: fn(&mut WimaxConfig)| {
        let mut config = WimaxConfig::default();
        change(&mut config);
        config.check().unwrap_err()
    };
    assert!(matches!(why(|c| c.uplink_symbols = 21), ConfigError::FrameTooShort(_)));
    assert_eq!(why(|c| c.downlink_symbols = 2), ConfigError::SubframeFull("downlink"));
    assert_eq!(why(|c| c.contention_symbols = 17), ConfigError::SubframeFull("uplink"));
    assert_eq!(why(|c| c.ranging_opportunities = 0), ConfigError::NoOpportunity("ranging"));
    assert_eq!(why(|c| c.request_opportunities = 0), ConfigError::NoOpportunity("requests"));
    assert_eq!(why(|c| c.request.start = 11), ConfigError::Exponents(11, 10));
    assert_eq!(why(|c| c.ranging.end = 16), ConfigError::Exponents(3, 16));
    assert_eq!(why(|c| c.loss = -0.1), ConfigError::Loss);
    assert_eq!(WimaxConfig::default().check(), Ok(()));
}

/// Runs a cell with packets at these times, in microseconds; returns the outputs in order.
fn run_packets(
    config: WimaxConfig,
    packets: &[(u64, bool, u32, u32)],
) -> (Vec<(Option<u64>, u32)>, CellCounters) {
    let mut cell = test_cell(config, 5);
    let mut told = Vec::new();
    let mut packets: Vec<_> = packets.to_vec();
    packets.sort_by_key(|p| p.0);
    let mut next = packets.iter().enumerate().peekable();
    for _ in 0..1_000_000 {
        let event = cell.poll_timeout();
        let due = next.peek().map(|(_, p)| at_nanos(p.0 * 1000));
        let now = match (event, due) {
            (None, None) => break,
            (event, due) => event.into_iter().chain(due).min().unwrap(),
        };
        if due == Some(now) {
            let (i, (_, up, station, octets)) = next.next().unwrap();
            let way = if *up { RadioDirection::Up(*station) } else { RadioDirection::Down(*station) };
            cell.send(now, way, *octets, i as u32);
        } else {
            cell.handle_timeout(now);
        }
        while let Some((_, handle)) = cell.poll_delivery(now) {
            told.push((Some(now.as_nanos()), handle));
        }
        told.extend(std::iter::from_fn(|| cell.poll_drop()).map(|(_, handle, _)| (None, handle)));
    }
    assert_eq!(cell.poll_timeout(), None, "the cell comes to rest");
    (told, *cell.counters())
}

proptest! {
    #[test]
    fn every_packet_is_told_of_once(
        packets in prop::collection::vec((0u64..300_000, any::<bool>(), 0u32..5, 0u32..2500), 1..120),
        entry: bool, lead in 0u32..3, loss in 0.0..0.2f64, start in 0u8..4, t16 in 6u64..40,
    ) {
        let config = WimaxConfig {
            entry: if entry { NetworkEntryTrigger::AtFirstPacket } else { NetworkEntryTrigger::Done },
            uplink_lead: lead,
            loss,
            queue: 10,
            request: ContentionBackoffConfig { start, end: 6, tries: 8 },
            request_timeout: Duration::from_millis(t16),
            ..WimaxConfig::default()
        };
        let (told, counters) = run_packets(config, &packets);
        let mut handles: Vec<u32> = told.iter().map(|(_, handle)| *handle).collect();
        handles.sort_unstable();
        prop_assert_eq!(handles, (0..packets.len() as u32).collect::<Vec<_>>());
        prop_assert_eq!(run_packets(config, &packets), (told, counters), "the same seed gives the same run");
    }
}
