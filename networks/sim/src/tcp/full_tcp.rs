//! The sender of ns-2's Agent/TCP/FullTcp (tcp-full.cc of ns-2.35): plain, Newreno and Sack.
//!
//! Three differences from the RFCs make it slower at high loss. After a timeout three duplicates start a recovery
//! without retransmission or window growth. SACK's window in a recovery may be one segment. Segments that fast
//! retransmission permits wait for the next packet.

use super::scoreboard::Scoreboard;

/// Segments that Newreno sends at once in a recovery (`recov_maxburst_`).
pub(super) const BURST: u8 = 2;
/// Consecutive timeouts after which the next round trip counts as the first (`t_backoff_` above 8).
pub(super) const FORGETFUL: u32 = 4;

/// The last reduction of the window (`last_cwnd_action_`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum LastWindowReductionCause {
    #[default]
    None,
    Duplicates,
    Timeout,
}

/// State of a FullTcp beside that of every connection.
#[derive(Clone, Debug, Default)]
pub(super) struct FullTcp {
    /// The congestion window in segments, with its fraction (`cwnd_`).
    pub(super) window: f64,
    /// Threshold in segments; zero before the first loss (`ssthresh_`).
    pub(super) threshold: u32,
    /// True after three duplicates, with or without a retransmission (`fastrecov_`).
    pub(super) recovering: bool,
    /// True if the pipe, not the window, limits output (`pipectrl_`).
    pub(super) by_pipe: bool,
    /// Decreases by segments and increases by octets, so it may be negative (`pipe_`).
    pub(super) pipe: i64,
    /// Start of the search for the next hole (`h_seqno_`).
    pub(super) hole: u32,
    pub(super) last_cut: LastWindowReductionCause,
    /// SACKed ranges of the peer (`sq_`).
    pub(super) reported: Scoreboard,
    /// The next segment ignores the window (`send_much()` with `force`).
    pub(super) forced: bool,
    /// No other output in this call: `recv()` ends with the fast retransmission.
    pub(super) suppresses_output: bool,
    /// An acknowledgement follows the application's reply (`TF_ACKNOW` is set after `recvBytes()`).
    pub(super) is_ack_pending: bool,
    /// True if the next round trip counts as the first.
    pub(super) remeasures: bool,
    /// Segments that may still be sent in this burst, if it is limited.
    pub(super) burst: Option<u8>,
}

impl FullTcp {
    /// Returns the usable window in segments, limited by the peer's (`windowd()`).
    pub(super) fn usable_window(&self, offered: u32) -> f64 {
        self.window.min(f64::from(offered))
    }
    /// Sets the threshold to half the usable window; returns the half (`slowdown()`).
    pub(super) fn halve_threshold(&mut self, offered: u32) -> f64 {
        let half = self.usable_window(offered) / 2.0;
        self.threshold = (half as u32).max(2);
        half.max(1.0)
    }
    /// `opencwnd()`.
    pub(super) fn grow_window(&mut self) {
        let slow_start = self.threshold == 0 || self.window < f64::from(self.threshold);
        self.window += if slow_start { 1.0 } else { 1.0 / self.window };
    }
    /// Plain and Newreno: ends the recovery (`FullTcpAgent::ack_action()`).
    pub(super) fn deflate_window(&mut self) {
        if self.recovering && self.threshold > 0 {
            self.window = self.window.min(f64::from(self.threshold));
        }
        self.recovering = false;
    }
}
