//! Single frames, to the nanosecond.

use super::*;

#[test]
fn a_lone_packet_takes_its_frame_and_no_more() {
    let mut bss = test_bss(quiet_config(), 1);
    assert_eq!(start_bss(&mut bss), [(0, LinkEvent::Up)]);
    assert_eq!(bss.poll_timeout(), None, "an idle set has no events");
    bss.send(at_nanos(1_000_000), RadioDirection::Up(0), 200, 7);
    // DIFS 50 µs, preamble 192 µs, 236 octets at 11 Mb/s 171.636364 µs.
    let end = 1_000_000 + 50_000 + 192_000 + 171_637;
    assert_eq!(frame_nanos(200), 192_000 + 171_637);
    assert_eq!(bss.poll_timeout(), Some(at_nanos(end)));
    let (told, timeouts) = run_until(&mut bss, Instant::FAR_FUTURE);
    assert_eq!((told, timeouts), (vec![(end, BssOutput::Arrived(RadioDirection::Up(0), 7))], 1));
    let c = bss.counters();
    assert_eq!((c.data, c.acks, c.packets_up, c.retries, c.collisions), (1, 1, 1, 0, 0));
    // A much later one waits only for DIFS.
    bss.send(at_nanos(500_000_000), RadioDirection::Down(0), 1000, 8);
    let end = 500_000_000 + DIFS + 192_000 + 753_455;
    assert_eq!(arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0), [(end, 8)]);
}

#[test]
fn rates_and_preambles_are_those_of_the_settings() {
    let arrival = |config: WifiConfig| {
        let mut bss = test_bss(config, 1);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Down(0), 64, 0);
        bss.send(at_nanos(0), RadioDirection::Down(0), 64, 1);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
        (at[0].0, at[1].0 - at[0].0)
    };
    // One hundred octets; the second after acknowledgement, DIFS and a back-off.
    let at_11 = arrival(quiet_config());
    assert_eq!(at_11.0, 50_000 + 192_000 + 72_728);
    let slots = at_11.1 - (10_000 + 192_000 + 56_000 + 50_000 + 192_000 + 72_728);
    assert!(slots.is_multiple_of(SLOT) && slots / SLOT <= 31, "{slots}");
    let rates =
        [(WifiDataRate::One, 800_000), (WifiDataRate::Two, 400_000), (WifiDataRate::FiveAndHalf, 145_455)];
    for (rate, time) in rates {
        let config = WifiConfig { rate, basic_rate: WifiDataRate::One, ..quiet_config() };
        let at = arrival(config);
        assert_eq!(at.0, 50_000 + 192_000 + time);
        let between = 10_000 + 192_000 + 112_000 + 50_000 + 192_000 + time;
        assert_eq!(at.1, between + slots, "the same draw");
    }
    let short = arrival(WifiConfig { preamble: PreambleLength::Short, ..quiet_config() });
    assert_eq!(short, (at_11.0 - 96_000, at_11.1 - 2 * 96_000));
}

/// IEEE 802.11a-1999, 17.4.3: an OFDM frame takes 16 + 4 µs, and 4 µs per symbol of 16 + 8 LENGTH + 6 bits;
/// 802.11g adds 6 µs.
#[test]
fn frames_by_ofdm_take_whole_symbols() {
    let cell = |rate| WifiConfig {
        rate,
        basic_rate: WifiDataRate::Six,
        slot: SlotTime::Short,
        cw_min: 15,
        ..quiet_config()
    };
    let arrival = |config: WifiConfig, octets| {
        let mut bss = test_bss(config, 1);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Down(0), octets, 0);
        bss.send(at_nanos(0), RadioDirection::Down(0), octets, 1);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
        (at[0].0, at[1].0 - at[0].0)
    };
    // DIFS is 10 + 2 * 9 = 28 µs. 1500 + 36 octets are 12310 bits: 57 symbols of 216 at 54 Mb/s, 513 of 24 at 6 Mb/s.
    let (first, second) = arrival(cell(WifiDataRate::FiftyFour), 1500);
    assert_eq!(first, 28_000 + 20_000 + 57 * 4_000 + 6_000);
    assert_eq!(arrival(cell(WifiDataRate::Six), 1500).0, 28_000 + 20_000 + 513 * 4_000 + 6_000);
    // An acknowledgement of 14 octets is 134 bits: 6 symbols at 6 Mb/s, two at 24 Mb/s.
    let others = 10_000 + 20_000 + 6 * 4_000 + 6_000 + first;
    let slots = second - others;
    assert!(slots.is_multiple_of(9_000) && slots / 9_000 <= 15, "{slots}");
    let faster = WifiConfig { basic_rate: WifiDataRate::TwentyFour, ..cell(WifiDataRate::FiftyFour) };
    assert_eq!(arrival(faster, 1500), (first, second - 4 * 4_000), "the same draw");
    // 64 + 36 octets are 822 bits, by each rate: 24, 36, 48, 72, 96, 144, 192, 216 to a symbol.
    let rates = [
        (WifiDataRate::Six, 35),
        (WifiDataRate::Nine, 23),
        (WifiDataRate::Twelve, 18),
        (WifiDataRate::Eighteen, 12),
        (WifiDataRate::TwentyFour, 9),
        (WifiDataRate::ThirtySix, 6),
        (WifiDataRate::FortyEight, 5),
        (WifiDataRate::FiftyFour, 4),
    ];
    for (rate, symbols) in rates {
        assert_eq!(arrival(cell(rate), 64).0, 28_000 + 26_000 + symbols * 4_000, "{rate:?}");
    }
}

#[test]
fn who_finds_the_medium_busy_waits_for_its_end_and_a_back_off() {
    for seed in 0..20 {
        let mut bss = seeded_bss(quiet_config(), 2, seed);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Up(0), 1500, 0);
        // On the air since 50 µs.
        bss.send(at_nanos(60_000), RadioDirection::Up(1), 1500, 1);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
        assert_eq!(at[0], (DIFS + frame_nanos(1500), 0));
        let slots = at[1].0 - (at[0].0 + ACK + DIFS + frame_nanos(1500));
        assert!(slots.is_multiple_of(SLOT) && slots <= 31 * SLOT, "{slots}");
        assert_eq!(bss.counters().collisions, 0);
    }
}

#[test]
fn who_is_overtaken_while_it_senses_draws_a_back_off() {
    let mut bss = test_bss(quiet_config(), 2);
    start_bss(&mut bss);
    bss.send(at_nanos(0), RadioDirection::Up(0), 100, 0);
    // It would send at 80 µs, thirty after the other.
    bss.send(at_nanos(30_000), RadioDirection::Up(1), 100, 1);
    let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
    assert_eq!(at[0], (DIFS + frame_nanos(100), 0));
    let slots = at[1].0 - (at[0].0 + ACK + DIFS + frame_nanos(100));
    assert!(slots.is_multiple_of(SLOT) && slots <= 31 * SLOT, "{slots}");
    assert_eq!(bss.counters().collisions, 0);
}

#[test]
fn frames_that_begin_less_than_a_slot_apart_collide() {
    for (apart, collide) in [(0, true), (19_999, true), (20_000, false)] {
        let mut bss = test_bss(quiet_config(), 2);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Up(0), 100, 0);
        bss.send(at_nanos(apart), RadioDirection::Up(1), 100, 1);
        let first_end = DIFS + frame_nanos(100);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
        let c = bss.counters();
        assert_eq!(at.len(), 2);
        assert_eq!(at[0].0 == first_end, !collide, "{apart}");
        assert_eq!(c.collisions > 0, collide, "{apart}");
        if collide {
            // EIFS after the end of the last one, slots count again.
            let slots = at[0].0 - (first_end + apart + EIFS + frame_nanos(100));
            assert!(slots.is_multiple_of(SLOT) && slots <= 63 * SLOT || c.collisions > 1, "{slots}");
            assert_eq!((c.data, c.collided), (2, 2 * c.collisions));
        }
    }
}

#[test]
fn a_back_off_goes_on_where_it_stopped() {
    // Both draw after the first frame; the one with more slots continues its count after the other's frame.
    for seed in 0..50 {
        let mut bss = seeded_bss(quiet_config(), 3, seed);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Up(0), 500, 0);
        bss.send(at_nanos(60_000), RadioDirection::Up(1), 500, 1);
        bss.send(at_nanos(60_000), RadioDirection::Up(2), 500, 2);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0);
        if bss.counters().collisions > 0 {
            continue;
        }
        let free = at[0].0 + ACK + DIFS;
        let first = (at[1].0 - frame_nanos(500) - free) / SLOT;
        let rest = (at[2].0 - frame_nanos(500) - (at[1].0 + ACK + DIFS)) / SLOT;
        assert!(rest >= 1 && first + rest <= 31, "{first} {rest}");
    }
}

#[test]
fn after_a_frame_its_sender_waits_even_if_it_has_nothing_yet() {
    let mut waited = [0u32; 2];
    for seed in 0..200 {
        let mut bss = seeded_bss(quiet_config(), 1, seed);
        start_bss(&mut bss);
        bss.send(at_nanos(0), RadioDirection::Up(0), 100, 0);
        run_until(&mut bss, Instant::FAR_FUTURE);
        let free = DIFS + frame_nanos(100) + ACK + DIFS;
        // In the middle of the slot that follows 15 slots of back-off.
        let sent = free + 15 * SLOT + SLOT / 2;
        bss.send(at_nanos(sent), RadioDirection::Up(0), 100, 1);
        let at = arrived_packets(&run_until(&mut bss, Instant::FAR_FUTURE).0)[0].0 - frame_nanos(100);
        let through = at == sent + DIFS;
        waited[usize::from(through)] += 1;
        assert!(
            through || (at - free).is_multiple_of(SLOT) && (16..=31).contains(&((at - free) / SLOT)),
            "{at}"
        );
    }
    // 0 to 15 of 32 are over: half of 200, give or take 3.5 standard errors of 7.
    assert!(waited[0].abs_diff(100) <= 25, "{waited:?}");
}

#[test]
fn a_frame_that_is_never_acknowledged_is_sent_seven_times() {
    let mut bss = test_bss(WifiConfig { frame_loss: 1.0, ..quiet_config() }, 1);
    start_bss(&mut bss);
    bss.send(at_nanos(0), RadioDirection::Up(0), 100, 0);
    let (told, timeouts) = run_until(&mut bss, Instant::FAR_FUTURE);
    let [(at, BssOutput::Dropped(RadioDirection::Up(0), 0, DropReason::RetriesExhausted))] = told[..] else {
        panic!("{told:?}")
    };
    let slots = at - (DIFS + 7 * frame_nanos(100) + 6 * EIFS);
    assert!(slots.is_multiple_of(SLOT) && slots / SLOT <= 63 + 127 + 255 + 511 + 1023 + 1023, "{slots}");
    let c = bss.counters();
    assert_eq!((c.data, c.retries, c.frame_losses, c.given_up, timeouts), (1, 6, 7, 1, 7));
}

#[test]
fn queues_are_bounded() {
    let mut bss = test_bss(WifiConfig { queue: 3, ..quiet_config() }, 2);
    start_bss(&mut bss);
    for i in 0..5 {
        bss.send(at_nanos(0), RadioDirection::Down(i % 2), 10, i);
    }
    bss.send(at_nanos(0), RadioDirection::Down(2), 10, 5);
    let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
    let dropped = |way, handle, why| (0, BssOutput::Dropped(way, handle, why));
    assert_eq!(
        told[..3],
        [
            dropped(RadioDirection::Down(1), 3, DropReason::QueueFull),
            dropped(RadioDirection::Down(0), 4, DropReason::QueueFull),
            dropped(RadioDirection::Down(2), 5, DropReason::OutOfReach),
        ]
    );
    assert_eq!(arrived_packets(&told).iter().map(|(_, handle)| *handle).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_beacon_goes_before_what_waits_and_takes_its_time() {
    let mut bss = test_bss(WifiConfig { basic_rate: WifiDataRate::One, ..WifiConfig::default() }, 1);
    start_bss(&mut bss);
    for i in 0..100 {
        bss.send(at_nanos(0), RadioDirection::Down(0), 1500, i);
    }
    let (told, _) = run_until(&mut bss, at_seconds(0.19));
    let at = arrived_packets(&told);
    assert_eq!(bss.counters().collisions, 0);
    let between: Vec<u64> = at.windows(2).map(|w| w[1].0 - w[0].0 - frame_nanos(1500) - DIFS).collect();
    // 65 octets at 1 Mb/s, after DIFS and a back-off; then the packet's own.
    let (beacon, ack) = (192_000 + 8 * 65_000, 10_000 + 192_000 + 112_000);
    let is_plain = |gap: &u64| (gap - ack).is_multiple_of(SLOT) && *gap <= ack + 31 * SLOT;
    let long: Vec<_> = between.iter().filter(|gap| !is_plain(gap)).collect();
    let beacons = bss.counters().beacons;
    assert!(!long.is_empty() && (beacons - 1..=beacons).contains(&(long.len() as u64)), "{long:?}");
    for gap in long {
        let slots = gap - (ack + DIFS + beacon);
        assert!(slots.is_multiple_of(SLOT) && slots <= 62 * SLOT, "{slots}");
    }
}

#[test]
fn beacons_that_everybody_expects_are_no_events() {
    let mut bss = test_bss(WifiConfig::default(), 3);
    start_bss(&mut bss);
    assert_eq!(bss.poll_timeout(), None);
    bss.send(at_seconds(100.0), RadioDirection::Up(0), 100, 0);
    let (told, timeouts) = run_until(&mut bss, Instant::FAR_FUTURE);
    assert_eq!(arrived_packets(&told).len(), 1);
    assert!(timeouts <= 2, "{timeouts}");
    assert!((976..=977).contains(&bss.counters().beacons), "one each 102.4 ms, made up for");
}

#[test]
fn a_configuration_that_cannot_be_says_why() {
    let why = |change: fn(&mut WifiConfig)| {
        let mut config = WifiConfig::default();
        change(&mut config);
        config.check().unwrap_err()
    };
    assert_eq!(why(|c| c.frame_loss = 1.1), ConfigError::Probability("frame_loss"));
    assert_eq!(why(|c| c.packet_loss = f64::NAN), ConfigError::Probability("packet_loss"));
    assert_eq!(why(|c| c.cw_min = 30), ConfigError::Windows(30, 1023));
    assert_eq!(why(|c| c.cw_max = 15), ConfigError::Windows(31, 15));
    assert_eq!(why(|c| c.cw_max = u32::MAX), ConfigError::Windows(31, u32::MAX));
    assert_eq!(why(|c| c.radius = 0.0), ConfigError::Coverage);
    assert_eq!(why(|c| c.radius = f64::INFINITY), ConfigError::Coverage);
    assert_eq!(why(|c| c.going_down = 51.0), ConfigError::Coverage);
    let short = |c: &mut WifiConfig| (c.preamble, c.basic_rate) = (PreambleLength::Short, WifiDataRate::One);
    assert_eq!(why(short), ConfigError::Preamble);
    assert_eq!(why(|c| c.rate = WifiDataRate::One), ConfigError::BasicRate);
    assert_eq!(why(|c| c.beacons = Some(Duration::from_millis(9))), ConfigError::Beacons);
    assert_eq!(why(|c| c.beacons_missed = 0), ConfigError::Beacons);
    assert_eq!(why(|c| c.channel = 0), ConfigError::Scan);
    assert_eq!(why(|c| c.channel = 12), ConfigError::Scan);
    assert_eq!(why(|c| c.max_channel_time = Duration::ZERO), ConfigError::Scan);
    assert_eq!(WifiConfig::default().check(), Ok(()));
}
