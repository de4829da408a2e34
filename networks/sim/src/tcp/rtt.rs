//! The retransmission timeout of RFC 6298.

use super::config::Config;
use usher_core::Duration;

/// Smoothed round-trip time, its variation, and the timeout that follows from them.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    srtt: Duration,
    var: Duration,
    rto: Duration,
    measured: bool,
    /// The timeout is no longer the initial one, so that slop is added.
    changed: bool,
}

impl Rtt {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            srtt: Duration::ZERO,
            var: Duration::ZERO,
            rto: config.initial_rto,
            measured: false,
            changed: false,
        }
    }
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.measured.then_some(self.srtt)
    }
    pub(super) fn rto(&self, config: &Config) -> Duration {
        if self.changed { self.rto + config.variants.rto_slop } else { self.rto }
    }
    /// Takes a measurement, one of `per_window` that are made in a round trip (RFC 7323 appendix G: with
    /// several, each weighs less).
    #[inline]
    pub(super) fn sample(&mut self, config: &Config, rtt: Duration, per_window: u64) {
        let rtt = rtt.as_nanos();
        let (mut srtt, mut var) = (self.srtt.as_nanos(), self.var.as_nanos());
        if !self.measured {
            self.measured = true;
            (srtt, var) = (rtt, rtt / 2);
        } else if per_window <= 1 {
            var = var - var / 4 + srtt.abs_diff(rtt) / 4;
            srtt = srtt - srtt / 8 + rtt / 8;
        } else {
            var = var - var / (4 * per_window) + srtt.abs_diff(rtt) / (4 * per_window);
            srtt = srtt - srtt / (8 * per_window) + rtt / (8 * per_window);
        }
        self.srtt = Duration::from_nanos(srtt);
        self.var = Duration::from_nanos(var);
        self.changed = true;
        let rto = self.srtt + (self.var * 4).max(config.granularity);
        self.rto = rto.max(config.min_rto).min(config.max_rto);
    }
    /// The timer expired: doubles the timeout (§5.5). It stays so until the next measurement.
    pub(super) fn back_off(&mut self, config: &Config) {
        self.changed = true;
        self.rto = (self.rto * 2).min(config.max_rto);
    }
    /// The handshake lost a SYN (§5.7): what was backed off for it does not bind the data.
    pub(super) fn syn_was_lost(&mut self, config: &Config) {
        if !self.measured {
            self.rto = config.rto_after_syn_loss;
        }
    }
}
