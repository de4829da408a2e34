//! BBR (draft-cardwell-iccrg-bbr-congestion-control-00, version 1): window and pacing rate follow the measured
//! bottleneck bandwidth and round trip, not losses.
//!
//! Delivery rates are sampled as in draft-cheng-iccrg-delivery-rate-estimation-00, at acknowledgements of new
//! data. Rates are octets per second and gains are thousandths, all integers. Simplifications: pacing is per
//! segment; packet conservation lasts until recovery ends, not a round trip; policers are not detected.

use super::seq;
use std::collections::VecDeque;
use usher_core::{Duration, Instant};

/// 2/ln 2, the minimum gain that doubles the rate each round trip.
const HIGH_GAIN: u64 = 2885;
/// Its inverse: drains the queue of start-up in one round trip.
const DRAIN_GAIN: u64 = 347;
/// The window is two bandwidth-delay products, for late or aggregated acknowledgements.
const CWND_GAIN: u64 = 2000;
/// Pacing gains of the phases of ProbeBW, a round trip each.
const CYCLE: [u64; 8] = [1250, 750, 1000, 1000, 1000, 1000, 1000, 1000];
/// Round trips of the bandwidth's maximum filter.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Lifetime of the minimum round trip.
const RTT_LIFE: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Minimum window, in segments.
const MIN_SEGMENTS: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// A segment in flight, by its last transmission.
#[derive(Clone, Copy, Debug)]
struct BbrSegment {
    end: u32,
    sent_at: Instant,
    is_retransmitted: bool,
    app_limited: bool,
    /// The counters at its transmission.
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
}

/// A transmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentDeparture {
    pub(super) now: Instant,
    pub(super) start: u32,
    pub(super) end: u32,
    /// Octets in flight before it.
    pub(super) flight: u32,
    /// True if no data is pending behind it.
    pub(super) last: bool,
    pub(super) cwnd: u32,
}

/// An acknowledgement, after loss recovery has handled it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BbrAck {
    pub(super) now: Instant,
    pub(super) una: u32,
    /// SACKed octets above `una`.
    pub(super) above: u32,
    /// Octets in flight, less those.
    pub(super) flight: u32,
    pub(super) mss: u32,
    pub(super) recovering: bool,
    pub(super) cwnd: u32,
}

/// State of BBR beside the window.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    mode: BbrMode,
    sent: VecDeque<BbrSegment>,
    /// C.delivered, its time, and the counted end of sequence space.
    delivered: u64,
    delivered_at: Instant,
    counted: u32,
    first_sent: Instant,
    /// Samples are application-limited until this much is delivered; 0 if they are not.
    app_limited: u64,
    /// When all written data was sent and the window was not full.
    dry_at: Option<Instant>,

    round: u64,
    round_ends: u64,
    round_start: bool,
    /// Rates and their rounds, both without a larger later one: the first is the maximum.
    rates: VecDeque<(u64, u64)>,
    min_rtt: Duration,
    min_rtt_at: Instant,

    full_rate: u64,
    full_count: u8,
    pipe_is_full: bool,
    phase: usize,
    phase_at: Instant,
    loss_in_phase: bool,
    probe_until: Option<Instant>,
    probe_round: u64,
    idle_restart: bool,
    /// The window to restore after recovery or ProbeRTT.
    prior_cwnd: u32,
    initial_cwnd: u32,

    /// Octets per second; 0 for no pacing.
    pacing_rate: u64,
    next_send: Instant,
    /// True if data waits for `next_send`.
    pub(super) is_waiting: bool,
}

impl Bbr {
    /// Creates it. `iss` also selects the first phase of ProbeBW, which the draft draws at random.
    pub(super) fn new(iss: u32) -> Self {
        Self {
            mode: BbrMode::Startup,
            sent: VecDeque::new(),
            delivered: 0,
            delivered_at: Instant::ZERO,
            counted: iss.wrapping_add(1),
            first_sent: Instant::ZERO,
            app_limited: 0,
            dry_at: None,
            round: 0,
            round_ends: 0,
            round_start: false,
            rates: VecDeque::new(),
            min_rtt: Duration::MAX,
            min_rtt_at: Instant::ZERO,
            full_rate: 0,
            full_count: 0,
            pipe_is_full: false,
            // Start in any phase of the gain cycle except phase 1, which drains the queue.
            phase: [0, 2, 3, 4, 5, 6, 7][iss as usize % 7],
            phase_at: Instant::ZERO,
            loss_in_phase: false,
            probe_until: None,
            probe_round: 0,
            idle_restart: false,
            prior_cwnd: 0,
            initial_cwnd: 0,
            pacing_rate: 0,
            next_send: Instant::ZERO,
            is_waiting: false,
        }
    }

    /// Starts it after the handshake.
    pub(super) fn start(&mut self, cwnd: u32, srtt: Option<Duration>) {
        self.initial_cwnd = cwnd;
        let rtt = srtt.unwrap_or(Duration::from_millis(1)).as_nanos().max(1);
        self.pacing_rate = scale_rate(u64::from(cwnd) * 1_000_000_000 / rtt, HIGH_GAIN);
    }

    /// BBR.BtlBw.
    pub(super) fn bandwidth(&self) -> u64 {
        self.rates.front().map_or(0, |&(_, rate)| rate)
    }

    /// BBR.RTprop; [`Duration::MAX`] before the first measurement.
    #[cfg(test)]
    pub(super) fn min_rtt(&self) -> Duration {
        self.min_rtt
    }

    fn pacing_gain(&self) -> u64 {
        match self.mode {
            BbrMode::Startup => HIGH_GAIN,
            BbrMode::Drain => DRAIN_GAIN,
            BbrMode::ProbeBandwidth => CYCLE[self.phase],
            BbrMode::ProbeRtt => 1000,
        }
    }

    /// BBRInflight: returns this many thousandths of the bandwidth-delay product, plus three segments in host queues;
    /// the initial window before a measurement.
    fn target_inflight(&self, gain: u64, mss: u32) -> u32 {
        if self.min_rtt == Duration::MAX || self.bandwidth() == 0 {
            return self.initial_cwnd;
        }
        let bytes = u128::from(self.bandwidth()) * u128::from(self.min_rtt.as_nanos()) * u128::from(gain)
            / 1_000_000_000_000;
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(3 * mss)
    }

    /// True if pacing delays the next segment; it then waits.
    pub(super) fn is_held_by_pacing(&mut self, now: Instant) -> bool {
        self.is_waiting = now < self.next_send;
        self.is_waiting
    }
    /// Returns when a delayed segment may be sent.
    pub(super) fn pacing_release_time(&self) -> Instant {
        if self.is_waiting { self.next_send } else { Instant::FAR_FUTURE }
    }

    /// Handles a transmission of data or FIN.
    pub(super) fn on_sent(&mut self, s: SegmentDeparture) {
        if s.flight == 0 {
            (self.first_sent, self.delivered_at) = (s.now, s.now);
        }
        if self.dry_at.take().is_some_and(|at| at < s.now) {
            self.app_limited = (self.delivered + u64::from(s.flight)).max(1);
            if s.flight == 0 {
                self.idle_restart = true;
                if self.mode == BbrMode::ProbeBandwidth {
                    self.pacing_rate = self.bandwidth();
                }
            }
        }
        if s.last && s.flight + s.end.wrapping_sub(s.start) < s.cwnd {
            self.dry_at = Some(s.now);
        }
        let mut sent = BbrSegment {
            end: s.end,
            sent_at: s.now,
            is_retransmitted: false,
            app_limited: self.app_limited != 0,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
        };
        if self.sent.back().is_none_or(|b| seq::lt(b.end, s.end)) {
            self.sent.push_back(sent);
        } else {
            sent.is_retransmitted = true;
            let from = self.sent.partition_point(|r| seq::le(r.end, s.start));
            let to = self.sent.partition_point(|r| seq::le(r.end, s.end));
            for record in self.sent.range_mut(from..to) {
                *record = BbrSegment { end: record.end, ..sent };
            }
        }
        let bytes = u64::from(s.end.wrapping_sub(s.start));
        let gap = (bytes * 1_000_000_000).checked_div(self.pacing_rate).unwrap_or(0);
        self.next_send = s.now + Duration::from_nanos(gap);
    }

    /// Saves the window at the start of recovery or at a timeout.
    pub(super) fn on_loss(&mut self, cwnd: u32) {
        self.loss_in_phase = true;
        if self.mode != BbrMode::ProbeRtt {
            self.prior_cwnd = self.prior_cwnd.max(cwnd);
        }
    }
    /// Restarts the window from the minimum after a timeout.
    pub(super) fn on_timeout(&mut self) {
        self.prior_cwnd = 0;
    }

    /// Handles an acknowledgement; returns the window.
    pub(super) fn on_ack(&mut self, a: BbrAck) -> u32 {
        let mark = a.una.wrapping_add(a.above);
        let newly = seq::octets_ahead(self.counted, mark);
        if newly > 0 {
            self.counted = mark;
            self.delivered += u64::from(newly);
            self.delivered_at = a.now;
        }
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let mut latest: Option<BbrSegment> = None;
        while let Some(sent) = self.sent.pop_front_if(|s| seq::le(s.end, a.una)) {
            if latest.is_none_or(|l| l.sent_at <= sent.sent_at) {
                latest = Some(sent);
            }
        }
        let before = a.flight.saturating_add(newly);
        if let Some(sent) = latest {
            self.take_rate_sample(a, sent, before);
        }
        self.update_window(a, newly)
    }

    /// Takes a rate sample and updates the model (BBRUpdateModelAndState).
    fn take_rate_sample(&mut self, a: BbrAck, sent: BbrSegment, before: u32) {
        self.round_start = sent.delivered >= self.round_ends;
        if self.round_start {
            self.round_ends = self.delivered;
            self.round += 1;
        }
        let rtt = (!sent.is_retransmitted).then(|| a.now - sent.sent_at);
        // Use the longer of the sending and acknowledging intervals, because the shorter one may have been compressed.
        let interval = (sent.sent_at - sent.first_sent).max(self.delivered_at - sent.delivered_at);
        self.first_sent = sent.sent_at;
        let floor = rtt.unwrap_or(Duration::MAX).min(self.min_rtt);
        if !interval.is_zero() && (interval >= floor || floor == Duration::MAX) {
            let bytes = u128::from(self.delivered - sent.delivered);
            let rate = (bytes * 1_000_000_000 / u128::from(interval.as_nanos())) as u64;
            if !sent.app_limited || rate >= self.bandwidth() {
                self.record_bandwidth_sample(rate);
            }
        }
        self.advance_gain_cycle(a, before);
        self.detect_full_pipe(sent.app_limited);
        let drained = a.flight <= self.target_inflight(1000, a.mss);
        if self.mode == BbrMode::Startup && self.pipe_is_full {
            self.mode = BbrMode::Drain;
        }
        if self.mode == BbrMode::Drain && drained {
            self.enter_probe_bandwidth(a.now);
        }
        self.update_min_rtt(a, rtt);
        self.idle_restart = false;
        let rate = scale_rate(self.bandwidth(), self.pacing_gain());
        if rate > 0 && (self.pipe_is_full || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// Drops old rates when a sample of the path arrives: application-limited samples show nothing of it.
    fn record_bandwidth_sample(&mut self, rate: u64) {
        while self.rates.pop_back_if(|(_, last)| *last <= rate).is_some() {}
        self.rates.push_back((self.round, rate));
        let round = self.round;
        while self.rates.pop_front_if(|(first, _)| *first + BANDWIDTH_ROUNDS <= round).is_some() {}
    }

    fn enter_probe_bandwidth(&mut self, now: Instant) {
        self.mode = BbrMode::ProbeBandwidth;
        self.phase_at = now;
        self.loss_in_phase = false;
    }

    fn advance_gain_cycle(&mut self, a: BbrAck, before: u32) {
        if self.mode != BbrMode::ProbeBandwidth {
            return;
        }
        let whole = a.now - self.phase_at > self.min_rtt;
        let next = match CYCLE[self.phase] {
            1000 => whole,
            1250 => whole && (self.loss_in_phase || before >= self.target_inflight(1250, a.mss)),
            _ => whole || before <= self.target_inflight(1000, a.mss),
        };
        if next {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.enter_probe_bandwidth(a.now);
        }
    }

    /// The pipe is full after three round trips without a quarter more bandwidth.
    fn detect_full_pipe(&mut self, app_limited: bool) {
        if self.pipe_is_full || !self.round_start || app_limited {
            return;
        }
        let rate = self.bandwidth();
        if rate >= scale_rate(self.full_rate, 1250) {
            (self.full_rate, self.full_count) = (rate, 0);
            return;
        }
        self.full_count += 1;
        self.pipe_is_full = self.full_count >= 3;
    }

    /// Updates the minimum round trip, and enters ProbeRTT when it has expired.
    fn update_min_rtt(&mut self, a: BbrAck, rtt: Option<Duration>) {
        let expired = self.min_rtt != Duration::MAX && a.now - self.min_rtt_at > RTT_LIFE;
        if let Some(rtt) = rtt
            && (rtt <= self.min_rtt || expired)
        {
            (self.min_rtt, self.min_rtt_at) = (rtt, a.now);
        }
        if expired && self.mode != BbrMode::ProbeRtt && !self.idle_restart {
            self.mode = BbrMode::ProbeRtt;
            self.prior_cwnd = self.prior_cwnd.max(a.cwnd);
            self.probe_until = None;
        }
        if self.mode != BbrMode::ProbeRtt {
            return;
        }
        // Mark the samples as limited by the application: with so small a window, their rates do not show the path's
        // rate.
        self.app_limited = (self.delivered + u64::from(a.flight)).max(1);
        match self.probe_until {
            None if a.flight <= MIN_SEGMENTS * a.mss => {
                self.probe_until = Some(a.now + PROBE_RTT);
                self.probe_round = self.round + 1;
            }
            Some(until) if a.now > until && self.round >= self.probe_round => {
                self.min_rtt_at = a.now;
                if self.pipe_is_full {
                    self.phase = 2;
                    self.enter_probe_bandwidth(a.now);
                } else {
                    self.mode = BbrMode::Startup;
                }
            }
            _ => {}
        }
    }

    /// BBRSetCwnd outside recovery, which has its own window.
    fn update_window(&mut self, a: BbrAck, newly: u32) -> u32 {
        if a.recovering {
            return a.cwnd;
        }
        let least = MIN_SEGMENTS * a.mss;
        if self.mode == BbrMode::ProbeRtt {
            return a.cwnd.min(least);
        }
        let cwnd = a.cwnd.max(std::mem::take(&mut self.prior_cwnd));
        let starting = matches!(self.mode, BbrMode::Startup | BbrMode::Drain);
        let target = self.target_inflight(if starting { HIGH_GAIN } else { CWND_GAIN }, a.mss);
        let grown = cwnd.saturating_add(newly);
        let next = if self.pipe_is_full {
            grown.min(target)
        } else if cwnd < target || self.delivered < u64::from(self.initial_cwnd) {
            grown
        } else {
            cwnd
        };
        next.max(least)
    }
}

fn scale_rate(rate: u64, gain: u64) -> u64 {
    rate.saturating_mul(gain) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    fn at_millis(n: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(n)
    }
    fn test_ack(at: u64, una: u32, flight: u32) -> BbrAck {
        BbrAck { now: at_millis(at), una, above: 0, flight, mss: MSS, recovering: false, cwnd: 100_000 }
    }
    fn test_departure(at: u64, start: u32, flight: u32) -> SegmentDeparture {
        SegmentDeparture { now: at_millis(at), start, end: start + MSS, flight, last: false, cwnd: 100_000 }
    }

    #[test]
    fn the_bandwidth_is_the_largest_of_ten_rounds() {
        let mut b = Bbr::new(0);
        for (round, rate, expected) in
            [(1, 500, 500), (2, 700, 700), (3, 600, 700), (11, 100, 700), (12, 100, 600), (13, 100, 100)]
        {
            b.round = round;
            b.record_bandwidth_sample(rate);
            assert_eq!(b.bandwidth(), expected, "round {round}");
        }
    }

    #[test]
    fn the_gains_double_and_drain() {
        assert_eq!(scale_rate(1000, HIGH_GAIN), 2885);
        // 2/ln 2 and ln 2/2, to the thousandth.
        assert_eq!((2000.0 / core::f64::consts::LN_2).round() as u64, HIGH_GAIN);
        assert_eq!((500.0 * core::f64::consts::LN_2).round() as u64, DRAIN_GAIN);
        // The rates of a cycle are the bandwidth on average.
        assert_eq!(CYCLE.iter().sum::<u64>(), 8000);
        for iss in 0..7 {
            assert_ne!(CYCLE[Bbr::new(iss).phase], 750);
        }
    }

    #[test]
    fn a_sample_spans_the_longer_of_sending_and_acknowledging() {
        let mut b = Bbr::new(0);
        // Four segments leave within 3 ms; the first is acknowledged at 40 ms, the others together at 46 ms.
        for i in 0..4 {
            b.on_sent(test_departure(u64::from(i), 1 + i * MSS, i * MSS));
        }
        b.on_ack(test_ack(40, 1001, 3000));
        // 1000 bytes in the 40 ms since the flight began.
        assert_eq!(b.bandwidth(), 25_000);
        b.on_ack(test_ack(46, 4001, 0));
        // 4000 bytes since the last of them was sent, when nothing was delivered: 46 ms.
        assert_eq!(b.bandwidth(), 4000 * 1000 / 46);
        assert_eq!(b.min_rtt(), Duration::from_millis(40));
    }

    #[test]
    fn what_was_sent_again_measures_no_round_trip() {
        let mut b = Bbr::new(0);
        b.on_sent(test_departure(0, 1, 0));
        b.on_sent(test_departure(200, 1, 1000));
        b.on_ack(test_ack(210, 1001, 0));
        assert_eq!(b.min_rtt(), Duration::MAX);
        assert!(b.sent.is_empty());
    }

    #[test]
    fn the_pipe_is_full_after_three_rounds_without_a_quarter_more() {
        let mut b = Bbr::new(0);
        for (rate, full) in [(100, false), (125, false), (150, false), (155, false), (150, true)] {
            b.round += 1;
            b.round_start = true;
            b.record_bandwidth_sample(rate);
            b.detect_full_pipe(false);
            assert_eq!(b.pipe_is_full, full, "{rate}");
        }
        let mut b = Bbr::new(0);
        b.round_start = true;
        (0..9).for_each(|_| b.detect_full_pipe(true));
        assert!(!b.pipe_is_full, "an application that sends little does not tell");
    }

    #[test]
    fn cycle_phases_last_a_round_trip_and_draining_ends_early() {
        let mut b = Bbr::new(0);
        (b.min_rtt, b.pipe_is_full) = (Duration::from_millis(100), true);
        b.record_bandwidth_sample(1_000_000);
        b.enter_probe_bandwidth(at_millis(0));
        // One product is 100 kB; with three segments 103 kB, and 128 kB at gain 1.25.
        b.advance_gain_cycle(test_ack(101, 1, 0), 127_000);
        assert_eq!(b.phase, 0, "not seen to be filled");
        b.advance_gain_cycle(test_ack(150, 1, 0), 128_000);
        assert_eq!(b.phase, 1);
        b.advance_gain_cycle(test_ack(160, 1, 0), 104_000);
        assert_eq!(b.phase, 1);
        b.advance_gain_cycle(test_ack(170, 1, 0), 103_000);
        assert_eq!(b.phase, 2, "drained");
        b.advance_gain_cycle(test_ack(270, 1, 0), 0);
        assert_eq!(b.phase, 2);
        b.advance_gain_cycle(test_ack(271, 1, 0), 0);
        assert_eq!(b.phase, 3);
    }

    #[test]
    fn a_segment_takes_its_time_at_the_pace() {
        let mut b = Bbr::new(0);
        b.start(10_000, Some(Duration::from_millis(100)));
        assert_eq!(b.pacing_rate, 288_500);
        b.on_sent(test_departure(0, 1, 0));
        assert!(b.is_held_by_pacing(at_millis(3)));
        // 1000 bytes / 288 500 B/s = 3.466 ms.
        assert_eq!(b.pacing_release_time().as_nanos(), 3_466_204);
        assert!(!b.is_held_by_pacing(at_millis(4)));
        assert_eq!(b.pacing_release_time(), Instant::FAR_FUTURE);
    }
}
