//! The congestion window: Reno (RFC 5681 §3.1), or another algorithm in its place.
//!
//! Loss recovery does not depend on the algorithm.

use super::bbr::Bbr;
use super::config::{CongestionControl, LossRecovery, LossRecoveryAlgorithm, TcpConfig};
use super::cubic::{self, Cubic};
use super::full_tcp::FullTcp;
use super::ns3_sender::Ns3Sender;
use usher_core::{Duration, Instant};

/// Maximum congestion window, half of the comparable sequence space.
const MAX_CWND: u32 = 1 << 30;

/// Congestion window and slow-start threshold in octets.
#[derive(Clone, Debug)]
pub(super) struct CongestionWindow {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    /// Octets acknowledged in congestion avoidance since the last growth.
    acked: u32,
    /// State of another algorithm than Reno.
    control: Option<Box<CongestionAlgorithm>>,
}

#[derive(Clone, Debug)]
enum CongestionAlgorithm {
    Cubic(Cubic),
    Bbr(Bbr),
    FullTcp(FullTcp),
    Ns3(Ns3Sender),
}

impl CongestionWindow {
    pub(super) fn new(config: &TcpConfig, iss: u32) -> Self {
        let control = match config.congestion {
            CongestionControl::Reno if config.loss_recovery == LossRecovery::Ns2 => {
                Some(Box::new(CongestionAlgorithm::FullTcp(FullTcp::default())))
            }
            CongestionControl::Reno => None,
            CongestionControl::Cubic
                if config.loss_recovery == LossRecovery::Ns3
                    && config.recovery == LossRecoveryAlgorithm::Sack =>
            {
                Some(Box::new(CongestionAlgorithm::Ns3(Ns3Sender::default())))
            }
            CongestionControl::Cubic => Some(Box::new(CongestionAlgorithm::Cubic(Cubic::default()))),
            CongestionControl::Bbr => Some(Box::new(CongestionAlgorithm::Bbr(Bbr::new(iss)))),
        };
        Self { cwnd: 0, ssthresh: config.initial_ssthresh, acked: 0, control }
    }
    /// Sets the initial window when the segment size is known, and maybe the round-trip time.
    pub(super) fn set_initial_window(&mut self, cwnd: u32, srtt: Option<Duration>) {
        self.cwnd = cwnd.min(MAX_CWND);
        self.acked = 0;
        if let Some(bbr) = self.bbr() {
            bbr.start(cwnd, srtt);
        }
    }
    /// True for Reno, which needs [`on_ack`](Self::on_ack).
    #[inline]
    pub(super) fn is_reno(&self) -> bool {
        self.control.is_none()
    }
    /// Returns BBR's model, if BBR is in use.
    #[inline]
    pub(super) fn bbr(&mut self) -> Option<&mut Bbr> {
        match self.control.as_deref_mut() {
            Some(CongestionAlgorithm::Bbr(bbr)) => Some(bbr),
            _ => None,
        }
    }
    /// Returns the state of ns-2's sender, if it is in use.
    #[inline]
    pub(super) fn full_tcp(&mut self) -> Option<&mut FullTcp> {
        match self.control.as_deref_mut() {
            Some(CongestionAlgorithm::FullTcp(full)) => Some(full),
            _ => None,
        }
    }
    /// True if ns-2's sender is in use.
    #[inline]
    pub(super) fn is_full_tcp(&self) -> bool {
        matches!(self.control.as_deref(), Some(CongestionAlgorithm::FullTcp(_)))
    }
    /// Returns the state of ns-3's sender, if it is in use.
    #[inline]
    pub(super) fn ns3(&mut self) -> Option<&mut Ns3Sender> {
        match self.control.as_deref_mut() {
            Some(CongestionAlgorithm::Ns3(sender)) => Some(sender),
            _ => None,
        }
    }
    /// True if ns-3's sender is in use.
    #[inline]
    pub(super) fn is_ns3(&self) -> bool {
        matches!(self.control.as_deref(), Some(CongestionAlgorithm::Ns3(_)))
    }
    /// Returns when a segment paced by BBR, or data written to ns-3's sender, may be sent.
    #[cold]
    pub(super) fn earliest_paced_send(&self) -> Instant {
        match self.control.as_deref() {
            Some(CongestionAlgorithm::Bbr(bbr)) => bbr.pacing_release_time(),
            Some(CongestionAlgorithm::Ns3(sender)) => sender.written_at.unwrap_or(Instant::FAR_FUTURE),
            _ => Instant::FAR_FUTURE,
        }
    }
    /// Handles an acknowledgement of new data outside recovery.
    #[inline]
    pub(super) fn on_ack(&mut self, acked: u32, mss: u32) {
        // RFC 9293, 3.8.2: slow start, then congestion avoidance.
        if self.cwnd < self.ssthresh {
            // RFC 5681, 3.1: at most a segment per acknowledgement.
            self.cwnd = (self.cwnd + acked.min(mss)).min(MAX_CWND);
        } else {
            self.acked = self.acked.saturating_add(acked);
            // RFC 5681, 3.1: a segment per acknowledged window.
            if self.acked >= self.cwnd {
                self.acked -= self.cwnd;
                self.cwnd = (self.cwnd + mss).min(MAX_CWND);
            }
        }
    }
    /// As [`Self::on_ack`], counting acknowledgements, not octets.
    pub(super) fn grow_by_counted_ack(&mut self, mss: u32) {
        let share = if self.cwnd < self.ssthresh { mss } else { (mss * mss / self.cwnd.max(1)).max(1) };
        self.cwnd = (self.cwnd + share).min(MAX_CWND);
    }
    /// As [`Self::on_ack`], for CUBIC.
    #[cold]
    pub(super) fn on_ack_timed(&mut self, ack: cubic::CubicAck) {
        if let Some(CongestionAlgorithm::Cubic(cubic)) = self.control.as_deref_mut() {
            let grown = cubic.on_ack(self.cwnd, self.ssthresh, ack);
            self.cwnd = self.cwnd.saturating_add(grown).min(MAX_CWND);
        }
    }
    /// Handles a loss with this much in flight. The threshold is half of it (equation 4), or CUBIC's share. With BBR
    /// it is all of it, so that recovery sends as much as arrives.
    pub(super) fn on_loss(&mut self, flight: u32, mss: u32) {
        let kept = match self.control.as_deref_mut() {
            None | Some(CongestionAlgorithm::FullTcp(_) | CongestionAlgorithm::Ns3(_)) => flight / 2,
            Some(CongestionAlgorithm::Cubic(cubic)) => {
                cubic.on_loss(self.cwnd, mss);
                cubic::reduced_window(flight)
            }
            Some(CongestionAlgorithm::Bbr(bbr)) => {
                bbr.on_loss(self.cwnd);
                flight
            }
        };
        // RFC 5681, 3.1: two segments at least.
        self.ssthresh = kept.max(2 * mss);
        self.acked = 0;
    }
    /// As [`Self::on_loss`], from the usable `window` instead of data in flight.
    pub(super) fn reduce_by_usable_window(&mut self, window: u32, mss: u32) {
        self.ssthresh = (window / 2 / mss).max(2) * mss;
        self.acked = 0;
    }
    /// Sets the loss window of one segment at a retransmission timeout.
    pub(super) fn on_timeout(&mut self, mss: u32) {
        self.cwnd = mss;
        self.acked = 0;
        match self.control.as_deref_mut() {
            None | Some(CongestionAlgorithm::FullTcp(_) | CongestionAlgorithm::Ns3(_)) => {}
            Some(CongestionAlgorithm::Cubic(cubic)) => cubic.on_timeout(),
            Some(CongestionAlgorithm::Bbr(bbr)) => bbr.on_timeout(),
        }
    }
    /// Sets the window, for recovery.
    pub(super) fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.min(MAX_CWND);
    }
}
