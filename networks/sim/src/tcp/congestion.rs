//! How the congestion window grows and shrinks (RFC 5681 §3.1).
//!
//! Another law (CUBIC) is another variant behind these methods; loss recovery does not know which it is.

use super::config::Config;

/// The largest congestion window, half the sequence space's comparable range.
const MAX_CWND: u32 = 1 << 30;

/// Congestion window and slow-start threshold in bytes.
#[derive(Clone, Debug)]
pub(super) struct Congestion {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    /// Bytes acknowledged in congestion avoidance since the window last grew.
    acked: u32,
}

impl Congestion {
    pub(super) fn new(config: &Config) -> Self {
        Self { cwnd: 0, ssthresh: config.initial_ssthresh, acked: 0 }
    }
    /// Sets the initial window once the segment size is known.
    pub(super) fn open(&mut self, cwnd: u32) {
        self.cwnd = cwnd.min(MAX_CWND);
        self.acked = 0;
    }
    /// New data was acknowledged outside of recovery.
    #[inline]
    pub(super) fn on_ack(&mut self, acked: u32, mss: u32) {
        if self.cwnd < self.ssthresh {
            self.cwnd = (self.cwnd + acked.min(mss)).min(MAX_CWND);
        } else {
            self.acked = self.acked.saturating_add(acked);
            if self.acked >= self.cwnd {
                self.acked -= self.cwnd;
                self.cwnd = (self.cwnd + mss).min(MAX_CWND);
            }
        }
    }
    /// A loss was seen with this much in flight: halves the threshold (equation 4).
    pub(super) fn on_loss(&mut self, flight: u32, mss: u32) {
        self.ssthresh = (flight / 2).max(2 * mss);
        self.acked = 0;
    }
    /// The retransmission timer expired: the loss window of one segment.
    pub(super) fn on_timeout(&mut self, mss: u32) {
        self.cwnd = mss;
        self.acked = 0;
    }
    /// Lets recovery inflate or set the window.
    pub(super) fn set_cwnd(&mut self, cwnd: u32) {
        self.cwnd = cwnd.min(MAX_CWND);
    }
}
