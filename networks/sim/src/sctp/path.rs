//! What is known of one path: its round-trip time (RFC 9260 §6.3), its congestion window (§7.2), and
//! whether it works (§8.2).

use super::config::{LossRecovery, SctpConfig};
use usher_core::{Duration, Instant};

/// Clock granularity G: a variation that is less is none, and counts as G (§6.3.1 G1).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time, its variation, and the timeout that follows from them (RFC 9260 §6.3.1).
#[derive(Clone, Debug)]
pub(super) struct PathRtt {
    srtt: Option<Duration>,
    var: Duration,
    pub(super) rto: Duration,
}

impl PathRtt {
    fn new(config: &SctpConfig) -> Self {
        Self { srtt: None, var: Duration::ZERO, rto: config.rto_initial }
    }
    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }
    pub(super) fn add_sample(&mut self, config: &SctpConfig, rtt: Duration) {
        let srtt = match self.srtt {
            None => {
                self.var = rtt / 2;
                rtt
            }
            Some(srtt) => {
                let (s, r, var) = (srtt.as_nanos(), rtt.as_nanos(), self.var.as_nanos());
                self.var = Duration::from_nanos(var - var / 4 + s.abs_diff(r) / 4);
                Duration::from_nanos(s - s / 8 + r / 8)
            }
        };
        self.srtt = Some(srtt);
        self.var = self.var.max(GRANULARITY);
        let rto = srtt + self.var * 4;
        self.rto = rto.max(config.rto_min).min(config.rto_max);
    }
    /// Doubles the timeout (§6.3.3 E2); it stays so until the next measurement.
    pub(super) fn back_off(&mut self, config: &SctpConfig) {
        self.rto = (self.rto * 2).min(config.rto_max);
    }
}

/// What one SACK said of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathSackReport {
    /// Bytes of DATA chunks that it newly acknowledged, headers and padding included.
    pub(super) acked: u32,
    /// Of these, what only gap blocks acknowledged.
    pub(super) by_gaps: u32,
    /// Flight size before it came.
    pub(super) flight_before: u32,
    /// The earliest chunk in flight was looked at, and acknowledged.
    pub(super) is_earliest_checked: bool,
    pub(super) earliest_acked: bool,
    /// It made fast retransmit shrink the window.
    pub(super) halved: bool,
}

/// A pair of addresses, ours and theirs.
#[derive(Debug)]
pub(super) struct SctpPath {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    partial_bytes_acked: u32,
    /// Bytes of DATA chunks in flight, headers and padding included.
    pub(super) flight: u32,
    pub(super) rtt: PathRtt,
    /// T3-rtx.
    pub(super) t3_at: Instant,
    /// The TSN whose acknowledgement is being timed, and when it left.
    pub(super) timed: Option<(u32, Instant)>,
    last_data_at: Instant,
    /// Timeouts and lost heartbeats in a row.
    pub(super) errors: u32,
    pub(super) active: bool,
    /// When the next heartbeat is due.
    pub(super) heartbeat_at: Instant,
    /// When the one under way was sent, and when it counts for lost.
    pub(super) heartbeat_sent: Option<Instant>,
    pub(super) heartbeat_lost_at: Instant,
    /// T3-rtx has expired, and nothing sent since was acknowledged: one packet may be in flight (§7.2.3).
    pub(super) allows_one_packet: bool,
    pub(super) report: PathSackReport,
}

impl SctpPath {
    pub(super) fn new(config: &SctpConfig) -> Self {
        Self {
            cwnd: config.initial_window.window_bytes(config.pmdcs()),
            ssthresh: u32::MAX,
            partial_bytes_acked: 0,
            flight: 0,
            rtt: PathRtt::new(config),
            t3_at: Instant::FAR_FUTURE,
            timed: None,
            last_data_at: Instant::ZERO,
            errors: 0,
            active: true,
            heartbeat_at: Instant::FAR_FUTURE,
            heartbeat_sent: None,
            heartbeat_lost_at: Instant::FAR_FUTURE,
            allows_one_packet: false,
            report: PathSackReport::default(),
        }
    }

    pub(super) fn arm_t3(&mut self, now: Instant) {
        self.t3_at = now + self.rtt.rto;
    }
    /// The association is up: idle time counts from now.
    pub(super) fn start(&mut self, config: &SctpConfig, now: Instant) {
        self.last_data_at = self.last_data_at.max(now);
        self.arm_heartbeat(config, now);
        if self.flight > 0 {
            self.arm_t3(now);
        }
    }
    /// The next heartbeat, counted from now (§8.3).
    pub(super) fn arm_heartbeat(&mut self, config: &SctpConfig, now: Instant) {
        self.heartbeat_at =
            config.heartbeat_interval.map_or(Instant::FAR_FUTURE, |every| now + every + self.rtt.rto);
    }
    /// The association is over.
    pub(super) fn stop(&mut self) {
        self.flight = 0;
        self.t3_at = Instant::FAR_FUTURE;
        self.heartbeat_at = Instant::FAR_FUTURE;
        self.heartbeat_sent = None;
        self.heartbeat_lost_at = Instant::FAR_FUTURE;
    }
    pub(super) fn next_timeout(&self) -> Instant {
        self.t3_at.min(self.heartbeat_at).min(self.heartbeat_lost_at)
    }

    /// Shrinks the window of a path that was idle, once for each RTO (§7.2.1).
    pub(super) fn decay_idle_window(&mut self, config: &SctpConfig, now: Instant) {
        let floor = 4 * config.pmdcs();
        if self.flight > 0 || self.cwnd <= floor {
            return;
        }
        let idle = (now - self.last_data_at).as_nanos() / self.rtt.rto.as_nanos().max(1);
        if idle > 0 {
            self.ssthresh = self.cwnd;
            self.cwnd = self.cwnd.checked_shr(idle.min(31) as u32).unwrap_or(0).max(floor);
            self.last_data_at = now;
        }
    }
    /// A chunk of `size` bytes leaves.
    pub(super) fn record_sent(&mut self, now: Instant, size: u32) {
        self.flight += size;
        self.last_data_at = now;
    }
    /// Whether the congestion window lets another packet leave.
    pub(super) fn is_window_open(&self) -> bool {
        self.flight < self.cwnd && !(self.allows_one_packet && self.flight > 0)
    }
    /// A chunk is no longer in flight.
    pub(super) fn record_landed(&mut self, size: u32) {
        self.flight = self.flight.saturating_sub(size);
    }

    /// Grows the window by what a SACK acknowledged, cumulatively or by gap blocks (§7.2.1, §7.2.2). That
    /// the cumulative TSN advances is no condition, as it was before RFC 8540.
    pub(super) fn grow_window(&mut self, config: &SctpConfig, in_recovery: bool) {
        let PathSackReport { acked, by_gaps, flight_before, .. } = self.report;
        let full = flight_before >= self.cwnd;
        let pmdcs = config.pmdcs();
        if self.cwnd <= self.ssthresh {
            if full && !in_recovery {
                self.cwnd = self.cwnd.saturating_add(acked.min(pmdcs));
            }
        } else {
            let counted = if config.cumulative_growth && !full { by_gaps } else { acked };
            self.partial_bytes_acked = self.partial_bytes_acked.saturating_add(counted);
            if full && !in_recovery && self.partial_bytes_acked >= self.cwnd {
                self.partial_bytes_acked -= self.cwnd;
                self.cwnd = self.cwnd.saturating_add(pmdcs);
            } else if !full && !config.cumulative_growth {
                self.partial_bytes_acked = self.partial_bytes_acked.min(self.cwnd);
            }
        }
        if self.flight == 0 {
            self.partial_bytes_acked = 0;
        }
    }
    fn halve_threshold(&mut self, config: &SctpConfig) {
        self.ssthresh = (self.cwnd / 2).max(4 * config.pmdcs());
        self.partial_bytes_acked = 0;
    }
    /// A loss that gap reports found (§7.2.3).
    pub(super) fn on_fast_retransmit(&mut self, config: &SctpConfig) {
        self.halve_threshold(config);
        self.cwnd = self.ssthresh;
    }
    /// A loss that T3-rtx found (§7.2.3).
    pub(super) fn on_timeout(&mut self, config: &SctpConfig) {
        if config.loss_recovery == LossRecovery::Rfc9260 || self.cwnd > config.pmdcs() {
            self.halve_threshold(config);
        }
        self.cwnd = config.pmdcs();
        self.allows_one_packet = config.one_packet_after_timeout;
        self.rtt.back_off(config);
        self.timed = None;
        self.t3_at = Instant::FAR_FUTURE;
    }
}
