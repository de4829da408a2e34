//! Compares the relay's treatment of packets with the channels in virtual time.

use crate::support::{
    CapturedPacket, RunningLab, TEST_TIMEOUT, in_virtual_time, test_link, test_topology, v4_address,
};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as Elapsed, Instant as Moment};
use usher_core::Duration;
use usher_core::impair::{ChannelConfig, ContinuousGilbertElliott, LossModel, QueueLimit};

/// The outer capture point is where packets leave the first host, the inner one where they reach the second.
const LEAVES: u16 = 1;
const ARRIVES: u16 = 2;

/// The allowed ratio of the relay's lateness to that of an ordinary thread's timers.
const LATER_THAN_TIMERS: f64 = 4.0;

/// Sends datagrams of these sizes with these pauses over a link. Returns the channel's results in virtual time and
/// the relay's.
fn compare_channel(
    channel: &ChannelConfig,
    sizes: &[usize],
    pause: Elapsed,
) -> (Vec<CapturedPacket>, RelayedTraffic) {
    let mut over = test_link(0, 1, channel.clone());
    over.capture = [Some(LEAVES), Some(ARRIVES)];
    let mut running = RunningLab::new(test_topology(&[v4_address(0), v4_address(1)], vec![over]));
    let (from, to) = (running.udp_socket(0, 9000), running.udp_socket(1, 9000));
    for (n, size) in sizes.iter().enumerate() {
        let mut text = (n as u32).to_be_bytes().to_vec();
        text.resize(*size, 0);
        from.send_to(&text, (v4_address(1), 9000)).unwrap();
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    running.wait_until_idle(sizes.len());
    let (outcome, crossed) = running.stop();
    let (offered, arrived): (Vec<CapturedPacket>, Vec<CapturedPacket>) =
        crossed.into_iter().partition(|c| c.outward);
    assert_eq!(offered.len(), sizes.len(), "the kernel sent each datagram as one packet");
    assert_eq!(outcome.links[0][0].offered, sizes.len() as u64);
    let counted: u64 = offered.iter().map(|c| u64::from(c.link_bytes())).sum();
    assert_eq!(outcome.links[0][0].offered_bytes, counted);
    let faultless = usher_lab::RelayReport {
        real_time: outcome.relay.real_time,
        frames: sizes.len() as u64,
        delays: outcome.relay.delays,
        ignored: outcome.relay.ignored,
        watched: outcome.relay.watched,
        processor: outcome.relay.processor,
        ..Default::default()
    };
    assert_eq!(outcome.relay, faultless);
    let stats = outcome.links[0][0];
    let received = receive_all(&to, arrived.len() - stats.corrupted as usize);
    (offered, RelayedTraffic { stats, delays: outcome.relay.delays, arrived, received })
}

/// Receives exactly `count` datagrams.
fn receive_all(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut buffer = [0; 2000];
    let mut next = || socket.recv(&mut buffer).map(|length| buffer[..length].to_vec());
    let received = (0..count).map(|n| next().unwrap_or_else(|e| panic!("{n} of {count}: {e}"))).collect();
    socket.set_nonblocking(true).unwrap();
    assert_eq!(next().map_err(|e| e.kind()), Err(ErrorKind::WouldBlock), "more than {count}");
    received
}

/// Returns the median lateness of an ordinary thread's timers until the end, in seconds.
fn timer_lateness(ended: &AtomicBool) -> f64 {
    let pause = Elapsed::from_millis(1);
    let (first, mut late) = (Moment::now(), Vec::new());
    // A failing test does not set the flag.
    while late.is_empty() || !ended.load(Ordering::Relaxed) && first.elapsed() < TEST_TIMEOUT {
        let begun = Moment::now();
        std::thread::sleep(pause);
        late.push(begun.elapsed() - pause);
    }
    late.sort_unstable();
    late[late.len() / 2].as_secs_f64()
}

struct RelayedTraffic {
    stats: usher_sim::LinkStats,
    delays: usher_lab::DelayStats,
    arrived: Vec<CapturedPacket>,
    received: Vec<Vec<u8>>,
}

impl RelayedTraffic {
    /// True if the arrivals match the channel in virtual time: the same packets in the same order, with the same
    /// damage, and none early.
    fn is_as_in_virtual_time(&self, channel: &ChannelConfig, offered: &[CapturedPacket]) {
        let expected = in_virtual_time(channel, 0, &offered.iter().collect::<Vec<_>>());
        assert_eq!(self.arrived.len(), expected.len());
        for (got, (at, octets, damaged)) in self.arrived.iter().zip(&expected) {
            let mut octets = octets.clone();
            if *damaged {
                *octets.last_mut().unwrap() ^= 1;
            }
            assert!(
                got.octets == octets,
                "datagram {} for {}",
                datagram_number(&got.octets[42..]),
                datagram_number(&octets[42..])
            );
            assert!(got.captured_at >= *at, "{:?} before {at:?}", got.captured_at);
        }
        let damaged = expected.iter().filter(|(.., damaged)| *damaged).count();
        assert_eq!(self.stats.corrupted, damaged as u64);
        // The kernel drops a damaged datagram because of its checksum.
        let whole = expected
            .iter()
            .filter(|(.., damaged)| !*damaged)
            .map(|(_, octets, _)| octets[14 + 28..].to_vec());
        assert_eq!(self.received, whole.collect::<Vec<_>>());
    }
}

/// Returns a datagram's number.
fn datagram_number(text: &[u8]) -> u32 {
    u32::from_be_bytes(text[..4].try_into().unwrap())
}

#[test]
fn the_delay_is_the_links_and_hardly_more() {
    let channel = ChannelConfig { delay: Duration::from_millis(5), ..Default::default() };
    let ended = AtomicBool::new(false);
    let ((offered, relayed), timers) = std::thread::scope(|scope| {
        let timers = scope.spawn(|| timer_lateness(&ended));
        let relayed = compare_channel(&channel, &[100; 200], Elapsed::from_millis(1));
        ended.store(true, Ordering::Relaxed);
        (relayed, timers.join().unwrap())
    });
    relayed.is_as_in_virtual_time(&channel, &offered);
    println!("{:?}, timers {timers}", relayed.delays);
    // The relay has priority over ordinary threads, and forwards packets when due.
    assert!(relayed.delays.median < LATER_THAN_TIMERS * timers, "{:?}, timers {timers}", relayed.delays);
}

#[test]
fn rate_and_queue_are_those_of_virtual_time() {
    for queue in [QueueLimit::Unlimited, QueueLimit::Packets(5), QueueLimit::Bytes(4000)] {
        let channel = ChannelConfig {
            rate: Some(1_000_000),
            delay: Duration::from_millis(1),
            queue,
            ..Default::default()
        };
        let sizes: Vec<usize> = (0..40).map(|n| 100 + n * 25).collect();
        let (offered, relayed) = compare_channel(&channel, &sizes, Elapsed::ZERO);
        relayed.is_as_in_virtual_time(&channel, &offered);
        assert_eq!(relayed.stats.queue_full > 0, queue != QueueLimit::Unlimited);
        // All packets were sent at once, so the gap between two arrivals is the second one's transmission time.
        let last = relayed.arrived.last().unwrap().captured_at.duration_since(offered[0].captured_at);
        let bytes: u32 = relayed.arrived.iter().map(CapturedPacket::link_bytes).sum();
        let least = Duration::from_nanos(u64::from(bytes) * 8000) + Duration::from_millis(1);
        assert!(last >= least, "{last:?} for {least:?}");
    }
}

#[test]
fn the_same_packets_are_lost_as_in_virtual_time() {
    let bursts = LossModel::GilbertElliott { to_bad: 0.1, to_good: 0.3, good: 0.0, bad: 0.9 };
    for loss in [LossModel::Bernoulli(0.1), bursts, LossModel::Script(vec![0, 7, 399])] {
        let channel = ChannelConfig { loss, ..Default::default() };
        let (offered, relayed) = compare_channel(&channel, &[60; 400], Elapsed::ZERO);
        relayed.is_as_in_virtual_time(&channel, &offered);
        assert!((3..200).contains(&relayed.stats.lost), "{:?}", relayed.stats);
        assert_eq!(relayed.stats.lost as usize, 400 - relayed.received.len());
    }
}

#[test]
fn bursts_of_time_are_those_of_virtual_time() {
    let states = ContinuousGilbertElliott {
        good_time: Duration::from_millis(3),
        bad_time: Duration::from_millis(1),
        good: 0.0,
        bad: 1.0,
    };
    let channel = ChannelConfig { loss: LossModel::TimedGilbertElliott(states), ..Default::default() };
    let (offered, relayed) = compare_channel(&channel, &[60; 400], Elapsed::from_micros(200));
    relayed.is_as_in_virtual_time(&channel, &offered);
    assert!((3..300).contains(&relayed.stats.lost), "{:?}", relayed.stats);
}

#[test]
fn everything_at_once_is_as_in_virtual_time() {
    let channel = ChannelConfig {
        rate: Some(5_000_000),
        delay: Duration::from_millis(3),
        jitter: Duration::from_millis(2),
        queue: QueueLimit::Packets(20),
        loss: LossModel::Bernoulli(0.05),
        duplicate: 0.1,
        reorder: 0.1,
        reorder_delay: Duration::from_millis(4),
        corrupt: 0.1,
        ..Default::default()
    };
    let sizes: Vec<usize> = (0..300).map(|n| 40 + n % 700).collect();
    let (offered, relayed) = compare_channel(&channel, &sizes, Elapsed::from_micros(200));
    relayed.is_as_in_virtual_time(&channel, &offered);
    let stats = relayed.stats;
    assert!(stats.lost > 0 && stats.duplicated > 0 && stats.corrupted > 0, "{stats:?}");
}

#[test]
fn impairments_wait_for_their_time_by_the_clock_of_the_run() {
    // A machine that does not send in time gets another run with a longer duration.
    let seen = [300, 1_200, 4_800, 19_200].into_iter().any(|millis| {
        let impaired_from = usher_core::Instant::ZERO + Duration::from_millis(millis);
        let channel = ChannelConfig { loss: LossModel::Bernoulli(1.0), impaired_from, ..Default::default() };
        let mut over = test_link(0, 1, channel);
        over.capture = [Some(LEAVES), Some(ARRIVES)];
        let mut running = RunningLab::new(test_topology(&[v4_address(0), v4_address(1)], vec![over]));
        let (a, _b) = (running.udp_socket(0, 9000), running.udp_socket(1, 9000));
        let (begun, mut sent) = (Moment::now(), 0);
        while running.lab.link_stats()[0][0].lost == 0 {
            assert!(begun.elapsed() < TEST_TIMEOUT, "nothing is lost");
            a.send_to(b"datagram", (v4_address(1), 9000)).unwrap();
            sent += 1;
            std::thread::sleep(Elapsed::from_millis(10));
        }
        running.wait_until_idle(sent);
        let (outcome, crossed) = running.stop();
        let (offered, arrived): (Vec<CapturedPacket>, Vec<CapturedPacket>) =
            crossed.into_iter().partition(|c| c.outward);
        let early = offered.iter().filter(|c| c.captured_at < impaired_from).count();
        assert_eq!((offered.len(), arrived.len()), (sent, early));
        assert_eq!(outcome.links[0][0].lost as usize, sent - early);
        early > 0
    });
    assert!(seen, "no datagram left before the impairments");
}

#[test]
fn traffic_of_the_background_is_counted_as_such() {
    let mut running = RunningLab::new(test_topology(
        &[v4_address(0), v4_address(1)],
        vec![test_link(0, 1, ChannelConfig::default())],
    ));
    let a = running.udp_socket(0, 9000);
    let _sink = running.udp_socket(1, 9);
    for to in [9, 9, 10] {
        a.send_to(&[0; 100], (v4_address(1), to)).unwrap();
    }
    running.wait_until_idle(3);
    let (outcome, _) = running.stop();
    let stats = outcome.links[0][0];
    assert_eq!((stats.offered, stats.background, stats.background_bytes), (3, 2, 2 * 146));
}
