//! Transfers over a bottleneck with a drop-tail queue, to a receiver whose buffer grows as in Linux.

use super::*;
use std::collections::VecDeque;

/// Ten megabits a second, in octets a millisecond.
const RATE: u64 = 1250;
/// Milliseconds each way. A window of 25,000 octets fills the link.
const DELAY: u64 = 10;
/// Half of the third value of Linux's `tcp_rmem`.
const MOST: u32 = 3_145_728;

/// The relevant settings of Linux's preset.
fn linux_config(receive_buffer_max: Option<u32>) -> Arc<TcpConfig> {
    Arc::new(TcpConfig {
        mss: 1448,
        recovery: LossRecoveryAlgorithm::Sack,
        congestion: CongestionControl::Cubic,
        initial_window: InitialWindow::Rfc6928,
        window_scale: Some(7),
        timestamps: true,
        receive_buffer: 65_536,
        receive_buffer_max,
        delayed_ack: None,
        ..TcpConfig::default()
    })
}

/// The outcome of a transfer: the longest queueing delay, and the final receive buffer.
struct TransferOutcome {
    max_queue_delay: Duration,
    buffer: u32,
}

/// Sends `bytes` octets through a queue of `queue` segments, over a link of `delay` milliseconds.
fn run_transfer(bytes: u32, queue: usize, delay: u64, receive_buffer_max: Option<u32>) -> TransferOutcome {
    let delay = Duration::from_millis(delay);
    let config = linux_config(receive_buffer_max);
    let mut now = Instant::ZERO;
    let mut sender = TcpConnection::connect(config.clone(), 0, now);
    let syn = sender.poll_transmit(now).unwrap();
    let mut receiver = TcpConnection::accept(config, 0, &syn, now).unwrap();
    // Segments in flight in both directions, and when the bottleneck's queue is empty.
    let (mut up, mut down) = (VecDeque::<(Instant, Segment)>::new(), VecDeque::<(Instant, Segment)>::new());
    let mut leaves = VecDeque::<Instant>::new();
    let (mut waited, mut came) = (Duration::ZERO, 0);
    sender.write(StreamData::Count(bytes)).unwrap();
    while came < bytes {
        while let Some(segment) = sender.poll_transmit(now) {
            leaves.retain(|at| *at > now);
            let begins = leaves.back().copied().unwrap_or(now).max(now);
            if leaves.len() > queue {
                continue;
            }
            waited = waited.max(begins - now);
            let left = begins + Duration::from_micros(u64::from(segment.len + 52) * 1000 / RATE);
            leaves.push_back(left);
            up.push_back((left + delay, segment));
        }
        while let Some(segment) = receiver.poll_transmit(now) {
            down.push_back((now + delay, segment));
        }
        let arrivals = [up.front().map(|(at, _)| *at), down.front().map(|(at, _)| *at)];
        let timers = [sender.poll_timeout(), receiver.poll_timeout()];
        now = arrivals.into_iter().chain(timers).flatten().min().unwrap().max(now);
        while let Some((_, segment)) = up.pop_front_if(|(at, _)| *at <= now) {
            receiver.handle_segment(now, &segment);
        }
        while let Some((_, segment)) = down.pop_front_if(|(at, _)| *at <= now) {
            sender.handle_segment(now, &segment);
        }
        for c in [&mut sender, &mut receiver] {
            if c.poll_timeout().is_some_and(|at| at <= now) {
                c.handle_timeout(now);
            }
        }
        for event in std::iter::from_fn(|| receiver.poll_event()) {
            if let TcpEvent::Data { len, .. } = event {
                came += len;
            }
        }
        while sender.poll_event().is_some() {}
    }
    TransferOutcome { max_queue_delay: waited, buffer: receiver.receive_buffer() }
}

#[test]
fn a_standing_queue_outgrows_a_tuned_buffer_but_not_a_fixed_one() {
    let fixed = run_transfer(10_000_000, usize::MAX, DELAY, None);
    // 65,536 octets are under way at most, and 25,000 of them on the link.
    assert!(fixed.max_queue_delay < Duration::from_millis(55), "{}", fixed.max_queue_delay);
    assert_eq!(fixed.buffer, 65_536);
    let grown = run_transfer(10_000_000, usize::MAX, DELAY, Some(MOST));
    assert!(grown.max_queue_delay > Duration::from_millis(1000), "{}", grown.max_queue_delay);
    assert_eq!(grown.buffer, MOST);
}

#[test]
fn the_expected_data_of_a_first_round_trip_keeps_the_buffer() {
    assert_eq!(run_transfer(14_000, usize::MAX, DELAY, Some(MOST)).buffer, 65_536);
}
