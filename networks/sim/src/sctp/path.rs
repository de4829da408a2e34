//! The state of a path: round-trip time (RFC 9260 §6.3), congestion window (§7.2), and reachability (§8.2).

use super::config::{LossRecovery, SctpConfig};
use usher_core::{Duration, Instant};

/// Clock granularity G: smaller variations count as G (§6.3.1 G1).
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time, its variation, and the resulting timeout (RFC 9260 §6.3.1).
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
                // RFC 9260, 6.3.1 C2: the first measurement.
                self.var = rtt / 2;
                rtt
            }
            Some(srtt) => {
                let (s, r, var) = (srtt.as_nanos(), rtt.as_nanos(), self.var.as_nanos());
                // RFC 9260, 6.3.1 C3: the variation first, by the former mean.
                self.var = Duration::from_nanos(var - var / 4 + s.abs_diff(r) / 4);
                Duration::from_nanos(s - s / 8 + r / 8)
            }
        };
        self.srtt = Some(srtt);
        self.var = self.var.max(GRANULARITY);
        let rto = srtt + self.var * 4;
        // RFC 9260, 6.3.1 C6 and C7: within RTO.Min and RTO.Max.
        self.rto = rto.max(config.rto_min).min(config.rto_max);
    }
    /// Doubles the timeout (§6.3.3 E2) until the next measurement.
    pub(super) fn back_off(&mut self, config: &SctpConfig) {
        self.rto = (self.rto * 2).min(config.rto_max);
    }
}

/// The report of one SACK on a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PathSackReport {
    /// Octets of newly acknowledged DATA chunks, headers and padding included.
    pub(super) acked: u32,
    /// Part of them acknowledged only by gap blocks.
    pub(super) by_gaps: u32,
    /// Flight size before the SACK.
    pub(super) flight_before: u32,
    /// True if the earliest chunk in flight was checked and acknowledged.
    pub(super) is_earliest_checked: bool,
    pub(super) earliest_acked: bool,
    /// True if fast retransmit reduced the window.
    pub(super) halved: bool,
}

/// A pair of addresses, local and remote.
#[derive(Debug)]
pub(super) struct SctpPath {
    // RFC 9260, 7.1 and 7.2: per path; the receiver's window is the association's.
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    partial_bytes_acked: u32,
    /// Octets of DATA chunks in flight, headers and padding included.
    pub(super) flight: u32,
    pub(super) rtt: PathRtt,
    /// T3-rtx.
    pub(super) t3_at: Instant,
    /// The TSN of the current round-trip measurement, and when it was sent.
    pub(super) timed: Option<(u32, Instant)>,
    last_data_at: Instant,
    /// Consecutive timeouts and lost heartbeats.
    pub(super) errors: u32,
    pub(super) active: bool,
    /// Time of the next heartbeat.
    pub(super) heartbeat_at: Instant,
    /// When the heartbeat in flight was sent, and when it counts as lost.
    pub(super) heartbeat_sent: Option<Instant>,
    pub(super) heartbeat_lost_at: Instant,
    /// After an expiration of T3-rtx until an acknowledgement of later data: one packet may be in flight (§7.2.3).
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
    /// Starts idle time when the association is established.
    pub(super) fn start(&mut self, config: &SctpConfig, now: Instant) {
        self.last_data_at = self.last_data_at.max(now);
        self.arm_heartbeat(config, now);
        if self.flight > 0 {
            self.arm_t3(now);
        }
    }
    /// Schedules the next heartbeat from now (§8.3).
    pub(super) fn arm_heartbeat(&mut self, config: &SctpConfig, now: Instant) {
        self.heartbeat_at =
            config.heartbeat_interval.map_or(Instant::FAR_FUTURE, |every| now + every + self.rtt.rto);
    }
    /// Stops the timers at the end of the association.
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

    /// Reduces the window of an idle path, once per RTO (§7.2.1).
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
    /// Records that a chunk of `size` octets is sent.
    pub(super) fn record_sent(&mut self, now: Instant, size: u32) {
        self.flight += size;
        self.last_data_at = now;
    }
    /// True if the congestion window permits another packet.
    pub(super) fn is_window_open(&self) -> bool {
        // RFC 9260, 6.1 B: no new DATA while the window is full.
        self.flight < self.cwnd && !(self.allows_one_packet && self.flight > 0)
    }
    /// Records that a chunk is no longer in flight.
    pub(super) fn remove_octets_in_flight(&mut self, size: u32) {
        self.flight = self.flight.saturating_sub(size);
    }

    /// Grows the window by the octets that a SACK acknowledged, cumulatively or by gap blocks (§7.2.1, §7.2.2). The
    /// cumulative TSN need not advance, unlike before RFC 8540.
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
    /// Handles a loss detected by gap reports (§7.2.3).
    pub(super) fn handle_fast_retransmit_loss(&mut self, config: &SctpConfig) {
        self.halve_threshold(config);
        self.cwnd = self.ssthresh;
    }
    /// Handles a loss detected by T3-rtx (§7.2.3).
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
