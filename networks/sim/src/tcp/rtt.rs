//! The retransmission timeout of RFC 6298.

use super::config::{BackoffReset, LossRecovery, TcpConfig};
use usher_core::Duration;

/// Smoothed round-trip time, its variation, and the resulting timeout.
#[derive(Clone, Debug)]
pub(super) struct RttEstimator {
    /// [`UNMEASURED`] before the first measurement.
    srtt: Duration,
    var: Duration,
    rto: Duration,
}

/// Stands for no round trip, so that a connection stays small.
const UNMEASURED: Duration = Duration::from_nanos(u64::MAX);

impl RttEstimator {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self { srtt: UNMEASURED, var: Duration::ZERO, rto: config.initial_rto }
    }
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.is_measured().then_some(self.srtt)
    }
    fn is_measured(&self) -> bool {
        self.srtt != UNMEASURED
    }
    pub(super) fn rto(&self, config: &TcpConfig) -> Duration {
        let initial = !self.is_measured() && self.rto == config.initial_rto;
        if initial { self.rto } else { self.rto + config.variants.rto_slop }
    }
    /// Adds a measurement, one of `per_window` per round trip (RFC 7323 appendix G: with several, each weighs less).
    #[inline]
    pub(super) fn add_sample(&mut self, config: &TcpConfig, rtt: Duration, per_window: u64) {
        let rtt = rtt.as_nanos();
        let (mut srtt, mut var) = (self.srtt.as_nanos(), self.var.as_nanos());
        let tick = config.rtt_tick.as_nanos();
        if !self.is_measured() {
            // RFC 6298, 2.2: the first measurement.
            (srtt, var) = (rtt, rtt / 2);
        } else if tick > 0 {
            // BSD computes with integers: SRTT in eighths of a tick, RTTVAR in quarters.
            let (eighth, quarter) = (tick / 8, tick / 4);
            let off = (rtt / tick) as i64 - (srtt / tick) as i64;
            srtt = (srtt as i64 + off * eighth as i64).max(eighth as i64) as u64;
            let off = off.abs() - (var / tick) as i64;
            var = (var as i64 + off * quarter as i64).max(quarter as i64) as u64;
        } else if per_window <= 1 {
            // RFC 6298, 2.3: the variation first, by the former mean.
            var = var - var / 4 + srtt.abs_diff(rtt) / 4;
            srtt = srtt - srtt / 8 + rtt / 8;
        } else {
            var = var - var / (4 * per_window) + srtt.abs_diff(rtt) / (4 * per_window);
            srtt = srtt - srtt / (8 * per_window) + rtt / (8 * per_window);
        }
        self.srtt = Duration::from_nanos(srtt);
        self.var = Duration::from_nanos(var);
        self.rto = self.measured_rto(config);
    }
    /// Returns the timeout from the measurements (§2.3, §2.4).
    fn measured_rto(&self, config: &TcpConfig) -> Duration {
        let rto = self.unbounded_rto(config).max(config.min_rto);
        // ns-3 applies the maximum only to the doubled timeout, not to this one.
        if config.loss_recovery == LossRecovery::Ns3 { rto } else { rto.min(config.max_rto) }
    }
    fn unbounded_rto(&self, config: &TcpConfig) -> Duration {
        let tick = config.rtt_tick.as_nanos();
        let part = if tick > 0 { self.srtt.as_nanos() % tick } else { 0 };
        // RFC 6298, 4: the variation counts as the clock's granularity at least.
        self.srtt - Duration::from_nanos(part) + (self.var * 4).max(config.granularity)
    }
    /// Returns the timeout from the measurements, without bounds and back-off; the initial one before the first.
    pub(super) fn rto_without_backoff(&self, config: &TcpConfig) -> Duration {
        if self.is_measured() { self.unbounded_rto(config) } else { config.initial_rto }
    }
    /// Resets the back-off without a measurement.
    pub(super) fn reset_rto_backoff(&mut self, config: &TcpConfig) {
        self.rto = if self.is_measured() { self.measured_rto(config) } else { config.initial_rto };
    }
    /// Makes the next measurement count as the first; the timeout stays until then.
    pub(super) fn reset_rtt_measurement(&mut self) {
        self.srtt = UNMEASURED;
    }
    /// Doubles the timeout after an expiration (§5.5), until the next measurement or
    /// [`reset_rto_backoff`](Self::reset_rto_backoff).
    pub(super) fn back_off(&mut self, config: &TcpConfig) {
        self.rto = (self.rto * 2).min(config.max_rto);
    }
    /// Handles the loss of a SYN (§5.7): its back-off does not apply to data if it began below the 3 s that then
    /// apply.
    pub(super) fn handle_syn_loss(&mut self, config: &TcpConfig) {
        if self.is_measured() {
            return;
        }
        if config.initial_rto < config.rto_after_syn_loss {
            self.rto = config.rto_after_syn_loss;
        } else if config.backoff_reset != BackoffReset::Measurement {
            self.reset_rto_backoff(config);
        }
    }
}
