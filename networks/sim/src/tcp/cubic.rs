//! CUBIC (RFC 9438): in congestion avoidance the window is a cubic function of the time since the last loss.
//!
//! Windows are in segments and times in seconds, as in the RFC. It uses only floating-point operations with IEEE
//! 754 rounding, and `libm`'s cube root, so results do not depend on the machine. Slow start is Reno's (§4.10
//! permits it). HyStart++ and the undo of spurious reductions (§4.9) are left out.

use usher_core::{Duration, Instant};

/// C, in segments per second³ (§5.1).
const C: f64 = 0.4;
/// β_cubic (§4.6), which [`reduced_window`] applies.
const BETA: f64 = 0.7;
/// α_cubic, segments per round trip in the Reno-friendly region (§4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// Returns the window after a loss with `flight` octets in flight (§4.6).
pub(super) fn reduced_window(flight: u32) -> u32 {
    (u64::from(flight) * 7 / 10) as u32
}

/// Returns K: the time of the cubic function from `cwnd_epoch` to `w_max` (§4.2, equation 2).
fn time_to_w_max(w_max: f64, cwnd_epoch: f64) -> f64 {
    libm::cbrt((w_max - cwnd_epoch).max(0.0) / C)
}

/// Returns the window `t` seconds into a stage (§4.2, equation 1).
fn w_cubic(t: f64, k: f64, w_max: f64) -> f64 {
    let d = t - k;
    C * (d * d * d) + w_max
}

/// A stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct AvoidanceStage {
    k: f64,
    w_est: f64,
    /// t: the time in this stage during which the window, not the application, limited the sender.
    elapsed: Duration,
}

/// An acknowledgement of new data outside recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct CubicAck {
    pub(super) now: Instant,
    /// Acknowledged octets.
    pub(super) bytes: u32,
    /// Octets in flight before it.
    pub(super) flight: u32,
    /// Largest segment in octets.
    pub(super) mss: u32,
    /// Smoothed round-trip time; zero before a measurement.
    pub(super) srtt: Duration,
    /// True if the window counts segments, as in Linux. α_cubic then stays below 1 beyond the window before the loss
    /// (RFC 8312 §4.2).
    pub(super) counted: bool,
}

/// State of CUBIC beside window and threshold.
#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// Window before the last reduction, lower after fast convergence; `None` before the first one.
    w_max: Option<f64>,
    cwnd_prior: f64,
    /// True after a timeout that followed the last stage of congestion avoidance.
    timed_out: bool,
    stage: Option<AvoidanceStage>,
    /// Growth below a whole segment.
    credit: f64,
    last_ack: Instant,
    /// True if the last acknowledgement left no data in flight.
    quiet: bool,
}

impl Cubic {
    /// Handles a loss with a window of `cwnd` octets (§4.6, §4.7).
    pub(super) fn on_loss(&mut self, cwnd: u32, mss: u32) {
        let cwnd = f64::from(cwnd) / f64::from(mss);
        let falling = self.w_max.is_some_and(|w_max| cwnd < w_max);
        self.w_max = Some(if falling { cwnd * (1.0 + BETA) / 2.0 } else { cwnd });
        self.cwnd_prior = cwnd;
        self.timed_out = false;
        self.leave_avoidance();
    }

    /// Handles a retransmission timeout; [`on_loss`](Self::on_loss) precedes the first one.
    pub(super) fn on_timeout(&mut self) {
        self.timed_out = true;
        self.leave_avoidance();
    }

    fn leave_avoidance(&mut self) {
        self.stage = None;
        self.credit = 0.0;
    }

    /// Handles acknowledged new data; returns the growth of the window in octets.
    pub(super) fn on_ack(&mut self, cwnd: u32, ssthresh: u32, ack: CubicAck) -> u32 {
        let gap = ack.now - self.last_ack;
        // If a whole flight was acknowledged, a longer gap is the application's idle time and does not count.
        let gap = if self.quiet { gap.min(ack.srtt) } else { gap };
        self.last_ack = ack.now;
        self.quiet = ack.bytes >= ack.flight;
        // The application or the receiver limits the sender, so the window does not grow (§5.8).
        if ack.flight.saturating_add(ack.mss) <= cwnd {
            return 0;
        }
        if cwnd < ssthresh {
            self.leave_avoidance();
            return ack.bytes.min(ack.mss);
        }
        let window = f64::from(cwnd) / f64::from(ack.mss) + self.credit;
        let mut stage = match self.stage {
            Some(stage) => AvoidanceStage { elapsed: stage.elapsed + gap, ..stage },
            None => self.enter_avoidance(window),
        };
        let segments = f64::from(ack.bytes) / f64::from(ack.mss);
        let alpha = if stage.w_est >= self.cwnd_prior && !ack.counted { 1.0 } else { ALPHA };
        stage.w_est += alpha * segments / window;
        self.stage = Some(stage);
        self.credit += self.window_growth(window, stage, ack.srtt);
        let whole = libm::floor(self.credit);
        self.credit -= whole;
        whole as u32 * ack.mss
    }

    /// Starts congestion avoidance with `window` segments. The function starts at its inflection point without an
    /// earlier loss, after a timeout (§4.10, §4.8), or if the window exceeds the last maximum.
    fn enter_avoidance(&mut self, window: f64) -> AvoidanceStage {
        let w_max = match self.w_max {
            None => {
                self.cwnd_prior = window;
                window
            }
            Some(_) if self.timed_out => window,
            Some(w_max) => w_max.max(window),
        };
        self.timed_out = false;
        self.w_max = Some(w_max);
        AvoidanceStage { k: time_to_w_max(w_max, window), w_est: window, elapsed: Duration::ZERO }
    }

    /// Returns the growth of a window of `window` segments by one acknowledgement: in the Reno-friendly region up to
    /// W_est (§4.3), else (target - cwnd) / cwnd (§4.4, §4.5).
    fn window_growth(&self, window: f64, stage: AvoidanceStage, srtt: Duration) -> f64 {
        let w_max = self.w_max.unwrap_or(window);
        let t = stage.elapsed.as_secs_f64();
        if w_cubic(t, stage.k, w_max) < stage.w_est {
            return (stage.w_est - window).max(0.0);
        }
        let target = w_cubic(t + srtt.as_secs_f64(), stage.k, w_max);
        // Not `clamp`, which panics if a bound is NaN.
        (target.max(window).min(1.5 * window) - window) / window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }
    const MSS: u32 = 1000;

    /// A limited sender's acknowledgement of one segment, this many milliseconds after the epoch.
    fn test_ack(ms: u64, cwnd: u32) -> CubicAck {
        let now = Instant::ZERO + Duration::from_millis(ms);
        CubicAck { now, bytes: MSS, flight: cwnd, mss: MSS, srtt: Duration::from_millis(100), counted: false }
    }

    #[test]
    fn the_function_rises_to_its_maximum_in_k_and_goes_on_beyond() {
        // 108 segments, of which 75.6 are kept: K = cbrt(32.4 / 0.4) = cbrt(81).
        let k = time_to_w_max(108.0, 75.6);
        assert!(is_near(k, 4.326_748_710_922_225), "{k}");
        assert!(is_near(w_cubic(0.0, k, 108.0), 75.6));
        assert!(is_near(w_cubic(k, k, 108.0), 108.0));
        // Simple numbers: 0.4 · 5³ = 50 segments below, K = 5 s.
        let k = time_to_w_max(150.0, 100.0);
        assert!(is_near(k, 5.0));
        let at = [0.0, 1.0, 3.0, 5.0, 7.0, 10.0].map(|t| w_cubic(t, k, 150.0));
        let by_hand = [100.0, 124.4, 146.8, 150.0, 153.2, 200.0];
        assert!(at.iter().zip(by_hand).all(|(a, b)| is_near(*a, b)), "{at:?}");
        assert_eq!(time_to_w_max(10.0, 12.0), 0.0);
    }

    #[test]
    fn alpha_gives_renos_average_window() {
        assert!(is_near(ALPHA, 9.0 / 17.0));
        // Equation 3: α (1 + β) / (1 - β) is 3 for AIMD(1, 0.5).
        assert!(is_near(ALPHA * (1.0 + BETA) / (1.0 - BETA), 3.0));
    }

    #[test]
    fn a_loss_below_the_last_maximum_gives_room_to_others() {
        let mut c = Cubic::default();
        c.on_loss(100_000, MSS);
        assert_eq!((c.w_max, c.cwnd_prior), (Some(100.0), 100.0));
        // Fast convergence: 0.85 of 80.
        c.on_loss(80_000, MSS);
        assert!(is_near(c.w_max.unwrap(), 68.0));
        assert_eq!(c.cwnd_prior, 80.0);
        // 70 is above 68: no convergence.
        c.on_loss(70_000, MSS);
        assert_eq!(c.w_max, Some(70.0));
    }

    #[test]
    fn the_concave_region_aims_at_the_window_of_the_next_round_trip() {
        let mut c = Cubic::default();
        c.on_loss(1_000_000, MSS);
        // Stage from 700 segments: K = cbrt(300 / 0.4) = cbrt(750).
        assert_eq!(c.on_ack(700_000, 700_000, test_ack(0, 700_000)), 0);
        let k = libm::cbrt(750.0);
        assert!(is_near(c.stage.unwrap().k, k));
        assert!((k - 9.0856).abs() < 1e-4);
        // At t = 0 the function is not above W_est, which this acknowledgement has increased.
        assert!(is_near(c.credit, 9.0 / 17.0 / 700.0));
        let window = 700.0 + c.credit;
        c.on_ack(700_000, 700_000, test_ack(100, 700_000));
        // W(0.2) = 1000 - 0.4 · 8.8856³.
        let target = 1000.0 - 0.4 * (k - 0.2) * (k - 0.2) * (k - 0.2);
        assert!((target - 719.38).abs() < 0.01, "{target}");
        assert!(is_near(c.credit, window - 700.0 + (target - window) / window), "{}", c.credit);
    }

    #[test]
    fn the_convex_region_is_bounded_by_half_the_window_a_round_trip() {
        let mut c = Cubic::default();
        c.on_loss(100_000, MSS);
        c.enter_avoidance(70.0);
        let stage = AvoidanceStage { k: 0.0, w_est: 70.0, elapsed: Duration::from_secs(10) };
        // W(10.1 s) = 0.4 · 10.1³ + 100 = 512.12, more than 1.5 · 200.
        assert!(is_near(c.window_growth(200.0, stage, Duration::from_millis(100)), 0.5));
        assert!(is_near(
            c.window_growth(400.0, stage, Duration::from_millis(100)),
            (512.1204 - 400.0) / 400.0
        ));
        // Never down: the window may exceed the function.
        assert_eq!(c.window_growth(600.0, stage, Duration::from_millis(100)), 0.0);
    }

    #[test]
    fn small_windows_grow_as_reno_does_at_the_same_average() {
        let mut c = Cubic::default();
        c.on_loss(10_000, MSS);
        let mut cwnd = 7000;
        // Ten acknowledgements of a segment each in no time: W_cubic stays at 7, W_est gains 9/17 a window.
        for _ in 0..10 {
            cwnd += c.on_ack(cwnd, 7000, test_ack(0, cwnd));
        }
        let w_est = c.stage.unwrap().w_est;
        assert!(is_near(f64::from(cwnd) / 1000.0 + c.credit, w_est), "{w_est}");
        assert_eq!(cwnd, 7000);
        // dW/dn = α/W, so W² grows by 2α an acknowledgement: sqrt(49 + 20 · 9/17) = 7.72.
        assert!((w_est - 7.72).abs() < 0.01, "{w_est}");
    }

    #[test]
    fn beyond_the_prior_window_w_est_gains_a_segment_a_round_trip() {
        let mut c = Cubic { w_max: Some(20.0), cwnd_prior: 20.0, ..Default::default() };
        c.stage = Some(AvoidanceStage { k: 0.0, w_est: 20.0, elapsed: Duration::ZERO });
        c.on_ack(20_000, 2000, test_ack(0, 20_000));
        assert!(is_near(c.stage.unwrap().w_est, 20.05));
        c.stage = Some(AvoidanceStage { k: 0.0, w_est: 19.9, elapsed: Duration::ZERO });
        c.credit = 0.0;
        c.on_ack(20_000, 2000, test_ack(0, 20_000));
        assert!(is_near(c.stage.unwrap().w_est, 19.9 + 9.0 / 17.0 / 20.0));
    }

    /// Linux: 9/17 of a segment per round trip beyond it, too.
    #[test]
    fn a_window_of_segments_gains_no_more_beyond_it() {
        let mut c = Cubic { w_max: Some(2.0), cwnd_prior: 2.0, ..Default::default() };
        let grown: Vec<u32> =
            (0..5).map(|_| c.on_ack(2000, 2000, CubicAck { counted: true, ..test_ack(0, 2000) })).collect();
        assert_eq!(grown, [0, 0, 0, 0, 1000], "at a segment a round trip three acknowledgements would do");
    }

    #[test]
    fn after_a_timeout_the_function_starts_at_its_inflection() {
        let mut c = Cubic::default();
        c.on_loss(100_000, MSS);
        c.on_timeout();
        assert_eq!(c.on_ack(1000, 70_000, test_ack(0, 100_000)), 1000, "slow start");
        c.on_ack(70_000, 70_000, test_ack(500, 70_000));
        let stage = c.stage.unwrap();
        assert_eq!((stage.k, c.w_max), (0.0, Some(70.0)));
        assert!(is_near(stage.w_est, 70.0 + 9.0 / 17.0 / 70.0));
        // The next loss is at the same maximum.
        c.on_loss(90_000, MSS);
        c.on_ack(63_000, 63_000, test_ack(600, 63_000));
        assert!(is_near(c.stage.unwrap().k, libm::cbrt(27.0 / 0.4)));
    }

    #[test]
    fn a_threshold_that_was_set_begins_a_stage_without_loss() {
        let mut c = Cubic::default();
        c.on_ack(8000, 8000, test_ack(0, 8000));
        assert_eq!((c.w_max, c.cwnd_prior, c.stage.unwrap().k), (Some(8.0), 8.0, 0.0));
        // α is 1 at once: W_est has reached the window at which slow start ended.
        assert!(is_near(c.stage.unwrap().w_est, 8.125));
    }

    #[test]
    fn time_and_window_stand_still_while_the_application_limits() {
        let mut c = Cubic::default();
        c.on_loss(100_000, MSS);
        c.on_ack(70_000, 70_000, test_ack(0, 70_000));
        let before = c.credit;
        // Two segments in flight for an hour.
        assert_eq!(c.on_ack(70_000, 70_000, CubicAck { flight: 2000, ..test_ack(3_600_000, 0) }), 0);
        assert_eq!((c.credit, c.stage.unwrap().elapsed), (before, Duration::ZERO));
        // Then full again: only the time since the last acknowledgement counts.
        c.on_ack(70_000, 70_000, test_ack(3_600_040, 70_000));
        assert_eq!(c.stage.unwrap().elapsed, Duration::from_millis(40));
        // All acknowledged, an hour idle, full again: a round trip at most.
        c.on_ack(70_000, 70_000, CubicAck { bytes: 70_000, ..test_ack(3_600_050, 70_000) });
        c.on_ack(70_000, 70_000, test_ack(7_200_000, 70_000));
        assert_eq!(c.stage.unwrap().elapsed, Duration::from_millis(150));
        // Slow start does not grow either.
        assert_eq!(c.on_ack(4000, 70_000, CubicAck { flight: 2000, ..test_ack(7_200_001, 0) }), 0);
    }
}
