//! A receive buffer that grows with the data read per round trip: Linux's dynamic right-sizing
//! (net/ipv4/tcp_input.c: `tcp_rcv_space_adjust()`, `tcp_rcv_rtt_measure()`, `tcp_rcv_rtt_measure_ts()`,
//! `tcp_grow_window()`).
//!
//! Packet overhead in memory is left out: the buffer equals the maximum window.

use super::seq;
use usher_core::{Duration, Instant};

/// Assumed segments read in the first round trip (`TCP_INIT_CWND`).
pub(super) const FIRST: u32 = 10;

/// The buffer and the state of its growth.
#[derive(Debug)]
pub(super) struct ReceiveBufferTuning {
    /// Maximum window (`window_clamp`).
    pub(super) buffer: u32,
    /// Announced window: it grows towards the buffer by two segments per full segment received (`rcv_ssthresh`).
    pub(super) announced: u32,
    /// Round trip seen by the receiver; zero if unknown (`rcv_rtt_est`).
    pub(super) round_trip: Duration,
    /// End and start time of the window that is timed without timestamps.
    pub(super) window: Option<(u32, Instant)>,
    /// The last echoed timestamp: each is measured once.
    pub(super) echoed: Option<u32>,
    /// Octets read in the last round trip (`rcvq_space.space`), and the start of the next count.
    pub(super) read: u32,
    pub(super) read_from: u32,
    pub(super) since: Instant,
}

impl ReceiveBufferTuning {
    /// Creates it with a buffer in octets, before data from `start` in segments of at most `mss`.
    pub(super) fn new(buffer: u32, start: u32, mss: u32, now: Instant) -> Self {
        Self {
            buffer,
            announced: buffer,
            round_trip: Duration::ZERO,
            window: None,
            echoed: None,
            read: buffer.min(FIRST * mss).max(1),
            read_from: start,
            since: now,
        }
    }
    /// Returns the window to announce.
    pub(super) fn announced_window(&self) -> u32 {
        self.announced
    }
    /// Records a round trip. With timestamps an eighth of it counts. Without, the minimum: a window takes longer if
    /// the sender does not fill it (`tcp_rcv_rtt_update()`).
    pub(super) fn record_round_trip(&mut self, sample: Duration, by_window: bool) {
        self.round_trip = if self.round_trip.is_zero() {
            sample
        } else if by_window {
            self.round_trip.min(sample)
        } else {
            self.round_trip - self.round_trip / 8 + sample / 8
        };
    }
    /// Times the arrival of a full window.
    pub(super) fn time_window(&mut self, now: Instant, next: u32) {
        if self.window.is_some_and(|(end, _)| seq::lt(next, end)) {
            return;
        }
        if let Some((_, began)) = self.window {
            self.record_round_trip(now - began, true);
        }
        self.window = Some((next.wrapping_add(self.announced), now));
    }
    /// Handles a read of all data before `upto`. Once per round trip, the buffer becomes twice the data read in the
    /// last one, times its growth: the sender may double its rate again before the larger window reaches it.
    pub(super) fn adjust_buffer(&mut self, now: Instant, upto: u32, mss: u32, most: u32) {
        if self.round_trip.is_zero() || now - self.since < self.round_trip {
            return;
        }
        let read = seq::octets_ahead(self.read_from, upto);
        if read > self.read {
            let twice = 2 * u64::from(read) + 16 * u64::from(mss);
            let growth = twice * u64::from(read - self.read) / u64::from(self.read);
            let wanted = twice + 2 * growth;
            self.buffer = self.buffer.max(wanted.min(u64::from(most)) as u32);
            self.read = read;
        }
        self.read_from = upto;
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::ReceiveBufferTuning;
    use usher_core::{Duration, Instant};

    const MSS: u32 = 1000;
    const MOST: u32 = 3_000_000;

    fn at_millis(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Calculated: ten segments read first are as assumed; then 20 in a round trip, twice that.
    #[test]
    fn the_buffer_is_twice_the_reading_and_more_as_that_grows() {
        let mut tuning = ReceiveBufferTuning::new(65_536, 0, MSS, at_millis(0));
        tuning.adjust_buffer(at_millis(50), 10_000, MSS, MOST);
        assert_eq!(tuning.buffer, 65_536, "no round trip is known");
        tuning.record_round_trip(Duration::from_millis(100), false);
        tuning.adjust_buffer(at_millis(99), 20_000, MSS, MOST);
        assert_eq!(tuning.read, 10_000, "it is not over");
        tuning.adjust_buffer(at_millis(100), 20_000, MSS, MOST);
        // 2 * 20,000 + 16 segments are 56,000, and twice that for what it grew by.
        assert_eq!((tuning.read, tuning.buffer), (20_000, 168_000));
        tuning.adjust_buffer(at_millis(200), 40_000, MSS, MOST);
        assert_eq!(tuning.buffer, 168_000, "as much as before");
        tuning.adjust_buffer(at_millis(300), 640_000, MSS, MOST);
        assert_eq!(tuning.buffer, MOST);
        tuning.adjust_buffer(at_millis(400), 650_000, MSS, MOST);
        assert_eq!(tuning.buffer, MOST, "it never shrinks");
    }

    #[test]
    fn without_timestamps_the_shortest_window_is_the_round_trip() {
        let mut tuning = ReceiveBufferTuning::new(10_000, 0, MSS, at_millis(0));
        tuning.time_window(at_millis(0), 0);
        tuning.time_window(at_millis(70), 9_999);
        assert!(tuning.round_trip.is_zero());
        tuning.time_window(at_millis(80), 10_000);
        assert_eq!(tuning.round_trip, Duration::from_millis(80));
        tuning.time_window(at_millis(180), 20_000);
        assert_eq!(tuning.round_trip, Duration::from_millis(80));
        tuning.time_window(at_millis(240), 30_000);
        assert_eq!(tuning.round_trip, Duration::from_millis(60));
    }
}
