//! A receive buffer that grows with the data read per round trip: Linux's dynamic right-sizing
//! (net/ipv4/tcp_input.c: `tcp_rcv_space_adjust()`, `tcp_rcv_rtt_measure()`, `tcp_rcv_rtt_measure_ts()`,
//! `tcp_grow_window()`).
//!
//! Packet overhead in memory is left out: the buffer equals the maximum window.

use super::connection::TcpConnection;
use super::recovery::timestamp_value;
use super::segment::Segment;
use super::seq;
use usher_core::{Duration, Instant};

/// Assumed segments read in the first round trip (`TCP_INIT_CWND`).
const FIRST: u32 = 10;

/// The buffer and the state of its growth.
#[derive(Debug)]
pub(super) struct ReceiveBufferTuning {
    /// Maximum window (`window_clamp`).
    buffer: u32,
    /// Announced window: it grows towards the buffer by two segments per full segment received (`rcv_ssthresh`).
    announced: u32,
    /// Round trip seen by the receiver; zero if unknown (`rcv_rtt_est`).
    round_trip: Duration,
    /// End and start time of the window that is timed without timestamps.
    window: Option<(u32, Instant)>,
    /// The last echoed timestamp: each is measured once.
    echoed: Option<u32>,
    /// Octets read in the last round trip (`rcvq_space.space`), and the start of the next count.
    read: u32,
    read_from: u32,
    since: Instant,
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
    fn record_round_trip(&mut self, sample: Duration, by_window: bool) {
        self.round_trip = if self.round_trip.is_zero() {
            sample
        } else if by_window {
            self.round_trip.min(sample)
        } else {
            self.round_trip - self.round_trip / 8 + sample / 8
        };
    }
    /// Times the arrival of a full window.
    fn time_window(&mut self, now: Instant, next: u32) {
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
    fn adjust_buffer(&mut self, now: Instant, upto: u32, mss: u32, most: u32) {
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

impl TcpConnection {
    /// Returns the present receive buffer.
    #[inline]
    pub(super) fn receive_buffer(&self) -> u32 {
        if self.config.receive_buffer_max.is_none() {
            return self.config.receive_buffer;
        }
        let tuning = self.rare_state.as_ref().and_then(|rare| rare.tuning.as_ref());
        tuning.map_or(self.config.receive_buffer, |tuning| tuning.announced_window())
    }

    /// Starts tuning when the peer's numbers are known.
    pub(super) fn start_receive_buffer_tuning(&mut self, now: Instant) {
        if self.config.receive_buffer_max.is_some() {
            let tuning = ReceiveBufferTuning::new(self.config.receive_buffer, self.rcv_nxt, self.mss, now);
            self.rare_state.get_or_insert_default().tuning = Some(Box::new(tuning));
        }
    }

    /// Handles data in order.
    #[cold]
    pub(super) fn tune_buffer(&mut self, now: Instant, s: &Segment) {
        let Some(most) = self.config.receive_buffer_max else { return };
        let full = s.len >= u32::from(self.largest).max(self.initial_largest_segment());
        let echo = s.options.as_ref().and_then(|o| o.timestamps).map(|(_, echo)| echo);
        let stamps = self.timestamps.is_some();
        let unread = if self.auto_read { 0 } else { self.unread };
        let (next, upto, mss) = (self.rcv_nxt, self.rcv_nxt.wrapping_sub(unread), self.mss);
        let Some(tuning) = self.rare_state.as_mut().and_then(|rare| rare.tuning.as_mut()) else { return };
        match echo.filter(|_| stamps) {
            Some(echo) if full && tuning.echoed != Some(echo) => {
                tuning.echoed = Some(echo);
                let ticks = timestamp_value(now).wrapping_sub(echo).max(1);
                if ticks < 1 << 31 {
                    tuning.record_round_trip(Duration::from_millis(ticks.into()), false);
                }
            }
            Some(_) => {}
            None => tuning.time_window(now, next),
        }
        tuning.adjust_buffer(now, upto, mss, most);
        if full {
            tuning.announced = tuning.announced.saturating_add(2 * mss).min(tuning.buffer);
        }
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
