//! A connection with ns-2's sender.

use super::{TcpConnection, TcpTimer};
use crate::tcp::config::LossRecoveryAlgorithm;
use crate::tcp::full_tcp::{BURST, FORGETFUL, LastWindowReductionCause};
use crate::tcp::output::OutgoingSegment;
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::segment::Segment;
use crate::tcp::seq;
use usher_core::Instant;

impl TcpConnection {
    /// Returns the peer's window in segments (`wnd_`).
    fn offered_segments(&self) -> u32 {
        (self.wnd / self.mss).max(1)
    }

    /// Copies the window to the getters in octets.
    fn copy_window_to_octets(&mut self) {
        let mss = f64::from(self.mss);
        let Some(full) = self.congestion.full_tcp() else { return };
        let (window, threshold) = ((full.window * mss) as u32, full.threshold);
        self.congestion.set_cwnd(window);
        if threshold > 0 {
            self.congestion.ssthresh = threshold.saturating_mul(self.mss);
        }
    }

    /// Handles the established connection, with a window in octets.
    pub(in crate::tcp) fn full_tcp_handle_established(&mut self, window: u32) {
        let una = self.una;
        if let Some(full) = self.congestion.full_tcp() {
            full.hole = una;
        }
        self.full_tcp_set_window(window);
    }

    /// Sets the window in octets after idle time.
    pub(in crate::tcp) fn full_tcp_set_window(&mut self, window: u32) {
        let segments = f64::from(window) / f64::from(self.mss);
        if let Some(full) = self.congestion.full_tcp() {
            full.window = segments.max(1.0);
        }
    }

    /// Halves the threshold after a lost SYN.
    pub(in crate::tcp) fn full_tcp_handle_syn_loss(&mut self) {
        let offered = self.offered_segments();
        if let Some(full) = self.congestion.full_tcp() {
            full.halve_threshold(offered);
            full.last_cut = LastWindowReductionCause::Timeout;
        }
        self.copy_window_to_octets();
    }

    /// Handles an acknowledgement, or data with one (`recv()`).
    #[cold]
    pub(in crate::tcp) fn full_tcp_handle_ack(&mut self, now: Instant, s: &Segment) {
        let (ack, una, mss) = (s.ack, self.una, i64::from(self.mss));
        let news = seq::lt(una, ack);
        // `fresh` is how much of the segment's data is new; `again` is true if the segment has only old data.
        let fresh = seq::octets_ahead(self.rcv_nxt, s.seq.wrapping_add(s.len)).min(s.len);
        let again = s.len > 0 && fresh == 0;
        let reports = self.sack_ok && s.options.as_ref().is_some_and(|o| !o.sack.is_empty());
        let predicted = s.seq == self.rcv_nxt && self.nxt == self.max && !reports;
        let (offered, max, dup_acks) = (self.offered_segments(), self.max, self.dup_acks);
        if predicted && s.len > 0 && ack == una && self.reassembly.is_none() {
            // ns-2's header prediction handles this data segment and ignores its acknowledgement.
            return;
        }
        let measured = self.timed_at != Instant::FAR_FUTURE && seq::lt(self.timed_seq, ack);
        let Some(full) = self.congestion.full_tcp() else { return };
        if let Some(options) = s.options.as_ref().filter(|_| reports) {
            full.reported.add_sack_blocks(una, max, options.sack.as_slice());
        }
        if full.recovering && (fresh == 0 || news) {
            full.pipe -= mss;
        }
        self.wake = true;
        if !news {
            if fresh == 0 && !again {
                self.full_tcp_handle_duplicate_ack(now, ack);
            }
            return;
        }
        // Header prediction: the window does not grow, and the duplicate count stays.
        let in_stride =
            predicted && s.len == 0 && ack != max && full.window >= f64::from(offered) && !full.recovering;
        if measured && std::mem::take(&mut full.remeasures) {
            self.rtt.reset_rtt_measurement();
        }
        self.handle_new_ack(now, s);
        self.dup_acks = dup_acks;
        if !in_stride {
            self.full_tcp_handle_new_ack(now, ack);
        }
        self.copy_window_to_octets();
    }

    /// Handles an acknowledgement of new data (`pack_action()`, `ack_action()`, `opencwnd()`).
    fn full_tcp_handle_new_ack(&mut self, now: Instant, ack: u32) {
        let (mss, una, sack) = (i64::from(self.mss), self.una, self.sack_ok);
        let plain = self.config.recovery == LossRecoveryAlgorithm::Reno;
        let below = seq::lt(ack, self.recover);
        let Some(full) = self.congestion.full_tcp() else { return };
        let partial = full.recovering && below;
        if sack {
            full.reported.advance_to(una);
            if seq::lt(full.hole, una) {
                full.hole = una;
            }
            if partial {
                full.pipe -= mss;
            } else {
                (full.recovering, full.by_pipe) = (false, false);
            }
        } else if partial && !plain {
            full.burst = Some(BURST);
            self.full_tcp_retransmit(now);
            if let Some(full) = self.congestion.full_tcp() {
                full.window = f64::from(full.threshold.max(1));
            }
            return;
        } else {
            full.deflate_window();
            full.burst = None;
        }
        if !partial || plain {
            full.grow_window();
        }
        if !partial || (!sack && plain) {
            self.dup_acks = 0;
        }
    }

    /// Handles a duplicate acknowledgement without data.
    fn full_tcp_handle_duplicate_ack(&mut self, now: Instant, ack: u32) {
        if self.timer != TcpTimer::Retransmit || seq::lt(ack, self.una) {
            self.dup_acks = 0;
            return;
        }
        self.stats_mut().duplicate_acks += 1;
        self.dup_acks += 1;
        let threshold = u32::from(self.config.dup_threshold);
        if self.dup_acks == threshold {
            self.full_tcp_enter_recovery(now);
        } else if self.dup_acks > threshold
            && !self.sack_ok
            && let Some(full) = self.congestion.full_tcp()
        {
            full.window += 1.0;
        }
        self.copy_window_to_octets();
    }

    /// Handles the duplicate that reaches the threshold (`dupack_action()`).
    fn full_tcp_enter_recovery(&mut self, now: Instant) {
        let (una, max, sack, offered) = (self.una, self.max, self.sack_ok, self.offered_segments());
        let dup_acks = f64::from(self.dup_acks);
        let behind = seq::lt(self.recover, una) || !self.config.reno_recover;
        let Some(full) = self.congestion.full_tcp() else { return };
        full.recovering = true;
        full.suppresses_output = true;
        if sack {
            full.pipe = i64::from(max.wrapping_sub(una)) - i64::from(full.reported.sacked_octets());
        }
        if !behind && (sack || full.last_cut != LastWindowReductionCause::Duplicates) {
            // ns-2's `bugFix_`: ignore duplicates that data retransmitted after a timeout causes.
            return;
        }
        let half = full.halve_threshold(offered);
        full.by_pipe = sack;
        // With SACK, output continues at once, as far as the pipe permits.
        full.suppresses_output = !sack;
        full.window = half;
        self.stats_mut().fast_retransmits += 1;
        self.timed_at = Instant::FAR_FUTURE;
        if self.config.fast_retransmit_restarts {
            self.restart_timer_on_next_send();
        }
        self.full_tcp_retransmit(now);
        if let Some(full) = self.congestion.full_tcp().filter(|_| !sack) {
            full.window = f64::from(full.threshold) + dup_acks;
        }
    }

    /// Retransmits the first unacknowledged segment at once, before data of the current segment is acknowledged
    /// (`fast_retransmit()`).
    fn full_tcp_retransmit(&mut self, now: Instant) {
        let nxt = self.nxt;
        self.recover = self.max;
        let Some(outgoing) = self.full_tcp_build_segment(now, self.una) else { return };
        // Restore `nxt`, because a fast retransmission is not part of the data sent in order.
        self.nxt = nxt;
        let hole = self.una.wrapping_add(outgoing.sequence_len());
        if let Some(full) = self.congestion.full_tcp() {
            full.hole = hole;
            full.last_cut = LastWindowReductionCause::Duplicates;
        }
        let segment = self.build_segment(now, outgoing);
        self.set_stray_reply(Some(segment));
    }

    /// Handles the retransmission timeout (`timeout_action()`).
    #[cold]
    pub(in crate::tcp) fn full_tcp_handle_timeout(&mut self) {
        let (offered, retries) = (self.offered_segments(), self.retries);
        self.recover = self.max;
        self.nxt = self.una;
        self.dup_acks = 0;
        if let Some(full) = self.congestion.full_tcp() {
            full.halve_threshold(offered);
            full.window = 1.0;
            full.last_cut = LastWindowReductionCause::Timeout;
            full.recovering = false;
            full.suppresses_output = false;
            full.forced = true;
            full.remeasures |= retries >= FORGETFUL;
            full.reported = Scoreboard::default();
        }
        self.copy_window_to_octets();
    }

    /// Sends the acknowledgement that waited until the application had all data.
    #[cold]
    pub(in crate::tcp) fn full_tcp_release_pending_ack(&mut self) {
        if self.congestion.full_tcp().is_some_and(|full| std::mem::take(&mut full.is_ack_pending)) {
            self.ack_now = true;
            self.wake = true;
        }
    }

    /// Handles data beyond a gap, or that fills one with `len` more octets in order. It is acknowledged at once,
    /// after the application's reply.
    pub(in crate::tcp) fn acknowledge_gap(&mut self, len: u32) {
        let first = self.config.deliver_first;
        match self.congestion.full_tcp() {
            Some(full) if first => {
                full.is_ack_pending = true;
                self.unacked_bytes = self.unacked_bytes.saturating_add(len);
            }
            _ => self.ack_now = true,
        }
    }

    /// `nxt_tseq()`: returns the next sequence number to send, if anything may be sent.
    fn full_tcp_next_sequence(&mut self) -> u32 {
        let (nxt, in_recovery) = (self.nxt, seq::lt(self.una, self.recover));
        let sack = self.sack_ok && in_recovery;
        let Some(full) = self.congestion.full_tcp().filter(|_| sack) else { return nxt };
        let Some(at) = full.reported.hole_at(full.hole) else { return nxt };
        full.hole = seq::max(full.hole, at);
        at
    }

    /// `send_much()`: returns the next segment, or ends the output.
    #[cold]
    pub(in crate::tcp) fn full_tcp_output(&mut self, now: Instant) -> Option<OutgoingSegment> {
        self.tail_now = false;
        let ack_now = self.ack_now;
        let full = self.congestion.full_tcp()?;
        let forced = std::mem::take(&mut full.forced) || ack_now;
        let over = full.burst == Some(0);
        if over {
            full.burst = Some(BURST);
        }
        if (std::mem::take(&mut full.suppresses_output) || over) && !forced {
            return None;
        }
        let at = self.full_tcp_next_sequence();
        let (una, end, wnd, mss, offered) = (self.una, self.end, self.wnd, self.mss, self.offered_segments());
        let full = self.congestion.full_tcp()?;
        let may = if full.by_pipe {
            seq::lt(at, una.wrapping_add(wnd)) && full.pipe < i64::from(full.window as u32 * mss)
        } else {
            let window = full.usable_window(offered) as u32 * mss;
            seq::lt(at, seq::min(end, una.wrapping_add(window))) || at == end
        };
        let outgoing = if may || forced { self.full_tcp_build_segment(now, at) } else { None };
        let len = outgoing.map_or(0, OutgoingSegment::sequence_len);
        if let Some(full) = self.congestion.full_tcp() {
            if let Some(left) = &mut full.burst {
                *left = if len > 0 { left.saturating_sub(1) } else { BURST };
            }
            if at == full.hole {
                full.hole = at.wrapping_add(len);
            }
            full.pipe += i64::from(len);
        }
        outgoing.or_else(|| self.full_tcp_probe_closed_window(now))
    }

    /// `foutput()`: returns a segment at `at`, if there is a reason for it.
    fn full_tcp_build_segment(&mut self, now: Instant, at: u32) -> Option<OutgoingSegment> {
        let (una, end, mss, offered) = (self.una, self.end, self.mss, self.offered_segments());
        let full = self.congestion.full_tcp()?;
        let window = full.usable_window(offered) as u32 * mss;
        // Pipe-controlled output ignores the peer's window unless that is closed.
        let limit = match full.by_pipe {
            true if self.wnd > 0 => end,
            _ => seq::min(end, una.wrapping_add(window.min(self.wnd))),
        };
        let len = seq::octets_ahead(at, limit).min(mss);
        let quiet = una == self.max;
        if quiet && len > 0 && self.config.restart_after_idle {
            self.restart_after_idle(now);
        }
        let empties = at.wrapping_add(len) == end;
        let fin = empties && self.fin_queued;
        let again = seq::lt(at, self.max);
        let may = len == mss
            || again
            || ((quiet || !self.config.nagle) && empties)
            || len >= self.max_wnd / 2
            || self.ack_now
            // This condition is ns-2's need_send().
            || self.unacked_bytes >= mss;
        if (len == 0 || !may) && !fin {
            return None;
        }
        let (timed_at, timed_seq, max) = (self.timed_at, self.timed_seq, self.max);
        let outgoing = self.send_data(now, at, len, fin);
        let sent = at.wrapping_add(outgoing.sequence_len());
        self.max = seq::max(self.max, sent);
        // A retransmission does not cancel a running RTT measurement, and starts one only if it includes new data.
        if timed_at != Instant::FAR_FUTURE {
            (self.timed_at, self.timed_seq) = (timed_at, timed_seq);
        } else if seq::lt(max, sent) {
            (self.timed_at, self.timed_seq) = (now, at);
        } else {
            self.timed_at = Instant::FAR_FUTURE;
        }
        // Like ns-2, attempt output again after each segment.
        self.tail_now = true;
        Some(outgoing)
    }

    /// Probes a closed window; ns-2 has no closed windows.
    fn full_tcp_probe_closed_window(&mut self, now: Instant) -> Option<OutgoingSegment> {
        let waits = seq::octets_ahead(self.nxt, self.end);
        let quiet = self.una == self.nxt && self.una == self.max;
        let asks = waits > 0 && quiet && (self.timer == TcpTimer::Off || self.probe_now);
        if asks { self.handle_closed_window(now, waits.min(self.wnd).min(self.mss)) } else { None }
    }
}
