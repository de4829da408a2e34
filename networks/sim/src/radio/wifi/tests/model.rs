//! Contention compared with Bianchi's model, and random draws with their distributions.

use super::*;

const OCTETS: u64 = 1000;

/// Bianchi's model (2000): each transmission of a station collides with probability p, and a station sends in a
/// slot with probability τ. With limited transmissions (Wu et al., 2002) a frame has Σ pⁱ of them, and before the
/// i-th a mean of W·2ⁱ/2 - 1/2 slots.
struct BianchiModel {
    /// Probability that a transmission collides.
    p: f64,
    /// Packets per second.
    throughput: f64,
}

fn bianchi_model(stations: u32) -> BianchiModel {
    let tau = |p: f64| {
        let (mut sent, mut waited) = (0.0, 0.0);
        for i in 0..7 {
            let reached = libm::pow(p, f64::from(i));
            sent += reached;
            waited += reached * (f64::from((32u32 << i).min(1024)) - 1.0) / 2.0;
        }
        sent / (sent + waited)
    };
    let others = |tau: f64| 1.0 - libm::pow(1.0 - tau, f64::from(stations) - 1.0);
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let p = (low + high) / 2.0;
        if others(tau(p)) > p { low = p } else { high = p }
    }
    let (p, tau) = (low, tau(low));
    let n = f64::from(stations);
    let idle = libm::pow(1.0 - tau, n);
    let success = n * tau * libm::pow(1.0 - tau, n - 1.0);
    let time = |nanos: u64| nanos as f64 / 1e9;
    let slot = idle * time(SLOT)
        + success * time(frame_nanos(OCTETS) + ACK + DIFS)
        + (1.0 - idle - success) * time(frame_nanos(OCTETS) + EIFS);
    BianchiModel { p, throughput: success / slot }
}

/// These directions always have packets, for this time in seconds. Returns the arrivals of each.
fn run_saturated(ways: &[RadioDirection], time: f64, seed: u64) -> (Bss, Vec<u64>) {
    let mut bss = seeded_bss(quiet_config(), ways.len(), seed);
    start_bss(&mut bss);
    for (i, way) in (0..).zip(ways) {
        bss.send(at_nanos(0), *way, OCTETS as u32, i);
        bss.send(at_nanos(0), *way, OCTETS as u32, i);
    }
    let mut arrived = vec![0; ways.len()];
    while let Some(now) = bss.poll_timeout().filter(|now| *now <= at_seconds(time)) {
        bss.handle_timeout(now);
        let mut next = Vec::new();
        while let Some((way, handle)) = bss.poll_delivery(now) {
            arrived[handle as usize] += 1;
            next.push((way, handle));
        }
        next.extend(std::iter::from_fn(|| bss.poll_drop()).map(|(way, handle, _)| (way, handle)));
        for (way, handle) in next {
            bss.send(now, way, OCTETS as u32, handle);
        }
    }
    (bss, arrived)
}
fn uplinks(stations: u32) -> Vec<RadioDirection> {
    (0..stations).map(RadioDirection::Up).collect()
}

#[test]
fn a_station_alone_sends_as_fast_as_its_back_off_lets_it() {
    let (bss, _) = run_saturated(&uplinks(1), 100.0, 1);
    let cycle = (frame_nanos(OCTETS) + ACK + DIFS) as f64 / 1e9 + 15.5 * SLOT as f64 / 1e9;
    let c = bss.counters();
    // The mean of n draws from 32 slots, each of standard error 9.2 slots.
    let n = c.packets_up as f64;
    let error = 9.24 * SLOT as f64 / 1e9 / libm::sqrt(n);
    assert!((100.0 / n - cycle).abs() < 3.5 * error + 1e-8, "{} {cycle}", 100.0 / n);
    assert_eq!((c.retries, c.collisions, c.queue_full), (0, 0, 0));
    assert!((bianchi_model(1).throughput * cycle - 1.0).abs() < 1e-9, "the model says the same");
}

#[test]
fn saturated_stations_send_and_collide_as_bianchi_predicts() {
    for stations in [2, 3, 5, 10, 20, 50] {
        let (bss, _) = run_saturated(&uplinks(stations), 300.0, u64::from(stations));
        let (c, model) = (bss.counters(), bianchi_model(stations));
        let throughput = c.packets_up as f64 / 300.0 / model.throughput;
        let p = c.collided as f64 / (c.data + c.retries) as f64 / model.p;
        // In the model others' frames also count as slots, so it waits a little less.
        assert!((0.98..1.0).contains(&throughput), "{stations}: {throughput}");
        assert!((p - 1.0).abs() < 0.08, "{stations}: {p}");
    }
}

#[test]
fn all_get_the_same_share() {
    let even = |ways: &[RadioDirection], within: f64| {
        let (_, arrived) = run_saturated(ways, 200.0, 3);
        let mean = arrived.iter().sum::<u64>() as f64 / ways.len() as f64;
        // The share of a station in one second says little about the next.
        assert!(arrived.iter().all(|n| (*n as f64 / mean - 1.0).abs() < within), "{arrived:?}");
    };
    even(&uplinks(8), 0.05);
    even(&[RadioDirection::Up(0), RadioDirection::Down(1)], 0.01);
}

#[test]
fn noise_makes_a_geometric_number_of_transmissions() {
    let (loss, packets) = (0.4f64, 20_000u32);
    let mut bss = test_bss(WifiConfig { frame_loss: loss, ..quiet_config() }, 1);
    start_bss(&mut bss);
    // Packets by their retransmissions; the last entry counts dropped ones.
    let mut histogram = [0u32; 8];
    for i in 0..packets {
        let before = bss.counters().retries;
        let way = if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) };
        bss.send(at_nanos(u64::from(i) * 1_000_000_000), way, 100, i);
        let (told, _) = run_until(&mut bss, Instant::FAR_FUTURE);
        let retries = (bss.counters().retries - before) as usize;
        match told[..] {
            [(_, BssOutput::Arrived(w, h))] => {
                assert_eq!((w, h), (way, i));
                histogram[retries] += 1;
            }
            [(_, BssOutput::Dropped(w, h, DropReason::RetriesExhausted))] => {
                assert_eq!((w, h, retries), (way, i, 6));
                histogram[7] += 1;
            }
            _ => panic!("{told:?}"),
        }
    }
    for (k, count) in histogram.into_iter().enumerate() {
        let p = libm::pow(loss, k as f64) * if k < 7 { 1.0 - loss } else { 1.0 };
        let n = f64::from(packets);
        let error = libm::sqrt(n * p * (1.0 - p));
        assert!((f64::from(count) - n * p).abs() < 3.5 * error, "{k}: {count} of {}", n * p);
    }
}

#[test]
fn packets_are_lost_once_beyond_the_mac() {
    let (loss, packets) = (0.3, 20_000u32);
    for from in [LossFrom::Always, LossFrom::GoingDown] {
        // Half of them near, half of them beyond the threshold.
        let config = WifiConfig { packet_loss: loss, packet_loss_from: from, ..quiet_config() };
        let mut bss = moving_bss(config, vec![eastward_walk(31.0, 0.01)], 1);
        start_bss(&mut bss);
        let mut lost = [0u32; 2];
        for i in 0..packets {
            let way = if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) };
            bss.send(at_nanos(u64::from(i) * 90_000_000), way, 100, i);
            let dropped = |t: &(u64, BssOutput)| matches!(t.1, BssOutput::Dropped(_, _, DropReason::Lost));
            let before = u64::from(i) * 90_000_000;
            let (told, _) = run_until(&mut bss, at_nanos(before + 89_000_000));
            lost[usize::from(before >= 1_000_000_000_000)] += told.iter().any(dropped) as u32;
        }
        let (near, far) = (11_112.0, 8_888.0);
        let expected = if from == LossFrom::Always { near * loss } else { 0.0 };
        for (count, mean) in [(lost[0], expected), (lost[1], far * loss)] {
            let error = libm::sqrt(mean * (1.0 - loss));
            assert!((f64::from(count) - mean).abs() <= 3.5 * error, "{from:?} {count} {mean}");
        }
        let c = bss.counters();
        assert_eq!(c.packet_losses, u64::from(lost[0] + lost[1]));
        assert_eq!((c.data, c.retries, c.acks), (20_000, 0, 20_000), "the MAC knows nothing of it");
    }
}

/// Each of a packet's seven transmissions is lost independently, only beyond the threshold: p^7 remains. Beacons
/// are received while the station is in reach.
#[test]
fn frame_loss_starts_at_going_down_and_precedes_mac_retries() {
    let (loss, packets) = (0.6f64, 20_000u32);
    for of in [FrameLoss::All, FrameLoss::Data] {
        let config = WifiConfig {
            frame_loss: loss,
            frame_loss_from: LossFrom::GoingDown,
            frame_loss_of: of,
            beacons: of.eq(&FrameLoss::Data).then(|| Duration::from_micros(102_400)),
            ..quiet_config()
        };
        // Half of them near, half of them beyond the threshold.
        let mut bss = moving_bss(config, vec![eastward_walk(31.0, 0.01)], 1);
        start_bss(&mut bss);
        let (mut given_up, mut near_retries) = ([0u32; 2], 0);
        for i in 0..packets {
            let at = u64::from(i) * 90_000_000;
            let way = if i % 2 == 0 { RadioDirection::Up(0) } else { RadioDirection::Down(0) };
            bss.send(at_nanos(at), way, 100, i);
            let (told, _) = run_until(&mut bss, at_nanos(at + 89_000_000));
            let dropped =
                |t: &(u64, BssOutput)| matches!(t.1, BssOutput::Dropped(_, _, DropReason::RetriesExhausted));
            given_up[usize::from(at >= 1_000_000_000_000)] += told.iter().any(dropped) as u32;
            let down = |t: &(u64, BssOutput)| matches!(t.1, BssOutput::Link(_, LinkEvent::Down(_)));
            assert!(!told.iter().any(down), "{of:?} {told:?}");
            if at < 999_000_000_000 {
                near_retries = bss.counters().retries;
            }
        }
        let far = 8_888.0;
        let mean = far * libm::pow(loss, 7.0);
        let error = libm::sqrt(mean);
        assert_eq!((given_up[0], near_retries), (0, 0), "{of:?}");
        assert!((f64::from(given_up[1]) - mean).abs() < 3.5 * error, "{of:?} {given_up:?} {mean}");
    }
}

#[test]
fn beacons_are_lost_with_all_frames_and_not_with_data() {
    for (of, lost) in [(FrameLoss::All, true), (FrameLoss::Data, false)] {
        let config =
            WifiConfig { frame_loss: 0.6, frame_loss_of: of, beacons_missed: 3, ..WifiConfig::default() };
        let mut bss = test_bss(config, 1);
        let (told, _) = run_until(&mut bss, at_nanos(10_000_000_000));
        let down = told.iter().any(|(_, told)| matches!(told, BssOutput::Link(_, LinkEvent::Down(_))));
        assert_eq!(down, lost, "{of:?}");
    }
}
