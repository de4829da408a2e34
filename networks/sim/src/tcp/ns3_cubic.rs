//! ns-3's CUBIC (tcp-cubic.cc of ns-3.37): in whole segments, regardless of window use, with hybrid slow start.

use super::seq;
use usher_core::{Duration, Instant};

/// `C`, in segments per second³.
const C: f64 = 0.4;
/// `Beta`.
const BETA: f64 = 0.7;
/// `CntClamp`: maximum acknowledged segments per window increase before the first loss.
const CLAMP: u32 = 20;
/// `CubicDelta`: after a loss, round trips are ignored for this time.
const DEAF: Duration = Duration::from_millis(10);
/// `HyStartLowWindow`, in segments.
const LOW_WINDOW: u32 = 16;
/// `HyStartAckDelta`: acknowledgements at most this far apart form a train.
const TRAIN: Duration = Duration::from_millis(2);
/// `HyStartMinSamples`.
const SAMPLES: u8 = 8;
/// `HyStartDelayMin` and `HyStartDelayMax`.
const DELAY: (Duration, Duration) = (Duration::from_millis(4), Duration::from_secs(1));

/// The state of the sender's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ns3WindowState {
    pub(super) now: Instant,
    /// Congestion window and threshold in octets.
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    pub(super) mss: u32,
    /// The smoothed round trip, which ns-3 gives its controls as the last one.
    pub(super) rtt: Duration,
    pub(super) ack: u32,
    /// End of the sent data.
    pub(super) max: u32,
}

/// State beside window and threshold.
#[derive(Clone, Debug, Default)]
pub(super) struct Ns3Cubic {
    /// Acknowledged segments that have not increased the window yet (`m_cWndCnt`).
    credit: u32,
    /// In segments; zero before a loss (`m_lastMaxCwnd`).
    w_max: u32,
    /// Plateau of the function in segments (`m_bicOriginPoint`), and its time in seconds (`m_bicK`).
    origin: u32,
    k: f64,
    epoch: Option<Instant>,
    min_rtt: Option<Duration>,
    /// True if hybrid slow start has ended slow start (`m_found`).
    found: bool,
    round_start: Instant,
    last_ack: Instant,
    /// End of the round; `None` before the first (`m_endSeq`).
    round_end: Option<u32>,
    round_rtt: Option<Duration>,
    samples: u8,
}

impl Ns3Cubic {
    /// Handles acknowledged segments; true if slow start is over (`PktsAcked()`, `HystartUpdate()`).
    pub(super) fn on_acknowledged(&mut self, at: Ns3WindowState) -> bool {
        if self.epoch.is_some_and(|epoch| at.now - epoch < DEAF) {
            return false;
        }
        let min_rtt = self.min_rtt.map_or(at.rtt, |least| least.min(at.rtt));
        self.min_rtt = Some(min_rtt);
        if self.found || at.cwnd > at.ssthresh || at.cwnd < LOW_WINDOW * at.mss {
            return false;
        }
        if at.now - self.last_ack <= TRAIN {
            self.last_ack = at.now;
            self.found = at.now - self.round_start > min_rtt;
        }
        if self.samples < SAMPLES {
            self.round_rtt = Some(self.round_rtt.map_or(at.rtt, |least| least.min(at.rtt)));
            self.samples += 1;
        } else if self.round_rtt.is_some_and(|rtt| rtt > min_rtt + min_rtt.max(DELAY.0).min(DELAY.1)) {
            self.found = true;
        }
        self.found
    }

    fn start_hystart_round(&mut self, at: Ns3WindowState) {
        (self.round_start, self.last_ack) = (at.now, at.now);
        self.round_end = Some(at.max);
        self.round_rtt = None;
        self.samples = 0;
    }

    /// Returns the window after this number of acknowledged whole segments (`IncreaseWindow()`).
    pub(super) fn increase_window(&mut self, at: Ns3WindowState, segments: u32) -> u32 {
        if at.cwnd < at.ssthresh {
            if self.round_end.is_none_or(|end| seq::lt(end, at.ack)) {
                self.start_hystart_round(at);
            }
            return at.cwnd.saturating_add(segments.saturating_mul(at.mss));
        }
        if segments == 0 {
            return at.cwnd;
        }
        self.credit += segments;
        let price = self.segments_per_increase(at);
        if self.credit < price {
            return at.cwnd;
        }
        self.credit -= price;
        at.cwnd.saturating_add(at.mss)
    }

    /// Returns the acknowledged segments per window increase (`Update()`).
    fn segments_per_increase(&mut self, at: Ns3WindowState) -> u32 {
        let window = at.cwnd / at.mss;
        let epoch = *self.epoch.get_or_insert_with(|| {
            let below = self.w_max.saturating_sub(window);
            self.k = libm::cbrt(f64::from(below) / C);
            self.origin = self.w_max.max(window);
            at.now
        });
        let t = (at.now + self.min_rtt.unwrap_or_default() - epoch).as_secs_f64();
        let d = (t - self.k).abs();
        let moved = (C * (d * d * d)) as u32;
        let target =
            if t < self.k { self.origin.saturating_sub(moved) } else { self.origin.saturating_add(moved) };
        let price = if target > window { window / (target - window) } else { window.saturating_mul(100) };
        let most = if self.w_max == 0 { CLAMP } else { u32::MAX };
        price.min(most).max(2)
    }

    /// Handles a loss; returns the threshold in octets (`GetSsThresh()`).
    pub(super) fn on_loss(&mut self, cwnd: u32, mss: u32) -> u32 {
        let window = cwnd / mss;
        let falling = window < self.w_max;
        self.w_max = if falling { (f64::from(window) * (1.0 + BETA) / 2.0) as u32 } else { window };
        self.epoch = None;
        ((f64::from(window) * BETA) as u32).max(2) * mss
    }

    /// Resets all but the loss at a timeout (`CubicReset()`, `HystartReset()`).
    pub(super) fn on_timeout(&mut self, at: Ns3WindowState) {
        (self.w_max, self.origin, self.k) = (0, 0, 0.0);
        self.min_rtt = None;
        self.found = false;
        self.start_hystart_round(at);
    }
}
