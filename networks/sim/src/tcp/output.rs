//! Output (RFC 9293 §3.8.6 and §3.10.2): which segments may be sent now, and their contents.

use super::bbr::SegmentDeparture;
use super::connection::{RareTcpState, TcpConnection, TcpState, TcpTimer};
use super::segment::{Segment, SegmentFlags, TcpOptions, timestamp_value};
use super::{
    BackoffReset, IdleRestart, LossRecoveryAlgorithm, NagleVariant, ReceiveWindowUpdateRule, TimestampEcho,
    WindowGrowth, seq,
};
use usher_core::{Duration, Instant};

/// SACK blocks in a segment of ns-2 (`max_sack_blocks_`).
const REPORTED_BY_NS2: usize = 3;

/// A decision to send. The segment is built at the end, in its caller's memory: to build it earlier and pass it
/// up costs more than to build it.
#[derive(Clone, Copy)]
pub(super) struct OutgoingSegment {
    sequence: u32,
    len: u32,
    flags: SegmentFlags,
}

impl OutgoingSegment {
    /// Returns its sequence space.
    pub(super) fn sequence_len(self) -> u32 {
        self.len + u32::from(self.flags.contains(SegmentFlags::FIN))
    }
}

/// The next step of loss recovery.
enum LossRecoveryStep {
    /// Retransmit this.
    Retransmit(OutgoingSegment),
    /// Send this number of new octets, if permitted otherwise.
    New(u32),
    Nothing,
}

impl TcpConnection {
    /// False if [`poll_transmit`](Self::poll_transmit) would return `None`; cheaper than that.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.wake
    }

    /// Returns the next segment to send; poll until `None`.
    #[inline]
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        if !self.wake {
            return None;
        }
        let handshake = self.syn_now && matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        if self.has_stray_reply() || handshake {
            return Some(self.next_reply_or_handshake(now));
        }
        let Some(outgoing) = self.next_output(now) else {
            self.wake = false;
            return None;
        };
        let segment = self.build_segment(now, outgoing);
        self.record_segment_sent();
        Some(segment)
    }

    #[inline(always)]
    fn record_segment_sent(&mut self) {
        self.segments_sent += 1;
        // If nothing else is pending, clear the flag: a dialogue, the common case, then needs no second check.
        self.wake = self.nxt != self.end
            || self.fin_queued
            || self.ack_now
            || self.resend_now
            || self.tail_now
            || self.in_recovery
            || self.has_stray_reply();
    }

    #[cold]
    fn next_reply_or_handshake(&mut self, now: Instant) -> Segment {
        let segment = if self.has_stray_reply() { self.extras_mut().answer.take() } else { None };
        let segment = segment.unwrap_or_else(|| self.handshake_segment(now));
        self.ns3_prepare_retransmission();
        self.record_segment_sent();
        segment
    }

    #[inline]
    fn next_output(&mut self, now: Instant) -> Option<OutgoingSegment> {
        if !matches!(self.state, TcpState::Closed | TcpState::SynSent | TcpState::SynReceived) {
            let data = self.next_data_segment(now);
            if data.is_some() {
                return data;
            }
        }
        self.next_pure_ack(now)
    }

    /// Returns the SYN or SYN-ACK.
    fn handshake_segment(&mut self, now: Instant) -> Segment {
        self.syn_now = false;
        let answer = self.state == TcpState::SynReceived;
        let config = &self.config;
        let mut options = TcpOptions {
            // RFC 9293, 3.7.1 and 3.2: a SYN has this option, and no other segment.
            mss: Some(config.mss).filter(|_| config.variants.options),
            window_scale: config.window_scale.map(|s| s.min(14)).filter(|_| !answer || self.scale_ok),
            // RFC 2018, 2: only a SYN has this option.
            sack_permitted: if answer {
                self.sack_ok
            } else {
                config.recovery == LossRecoveryAlgorithm::Sack
            },
            timestamps: (if answer { self.timestamps.is_some() } else { config.timestamps })
                .then(|| (timestamp_value(now), self.timestamps.as_ref().map_or(0, |t| t.recent))),
            ..Default::default()
        };
        let with_data = self.data_on_syn(options.wire_len());
        options.fast_open = with_data.map(|(cookie, _)| Box::new(cookie));
        let len = with_data.map_or(0, |(_, len)| len);
        let first = self.iss.wrapping_add(1);
        let payload = match &self.send_buffer {
            Some(buffer) if len > 0 => buffer.segment_payload(first, len),
            _ => None,
        };
        let some = options != TcpOptions::default();
        if self.max == self.iss {
            self.timed_seq = self.iss;
            self.timed_at = now;
        } else {
            self.stats_mut().retransmitted += 1;
            self.timed_at = Instant::FAR_FUTURE;
        }
        self.nxt = first.wrapping_add(len);
        self.max = seq::max(self.max, self.nxt);
        if self.timer == TcpTimer::Off {
            self.arm_retransmission(now);
        }
        self.ack_now = false;
        Segment {
            seq: self.iss,
            ack: if answer { self.rcv_nxt } else { 0 },
            // RFC 7323, 2.2: the window of a SYN is never scaled.
            window: self.config.receive_buffer.min(0xffff) as u16,
            flags: if answer { SegmentFlags::SYN | SegmentFlags::ACK } else { SegmentFlags::SYN },
            len,
            payload,
            options: some.then(|| Box::new(options)),
        }
    }

    /// Returns the next data or FIN segment, if one may be sent.
    #[inline]
    fn next_data_segment(&mut self, now: Instant) -> Option<OutgoingSegment> {
        if !self.congestion.is_reno() {
            if self.congestion.is_full_tcp() {
                return self.full_tcp_output(now);
            }
            if self.congestion.is_ns3() {
                return self.ns3_output(now);
            }
            if self.is_pacing_blocked(now) {
                return None;
            }
        }
        if std::mem::take(&mut self.resend_now) && self.una != self.max {
            return Some(self.retransmit_first(now));
        }
        if std::mem::take(&mut self.tail_now) && self.una != self.max {
            return self.next_tail_probe_segment(now);
        }
        let repairs = self.in_recovery && self.sack_ok;
        let allowed = if repairs {
            match self.next_sack_retransmission(now) {
                LossRecoveryStep::Retransmit(outgoing) => return Some(outgoing),
                LossRecoveryStep::New(allowed) => allowed,
                LossRecoveryStep::Nothing => return None,
            }
        } else {
            self.congestion_window_allowance(now)?
        };
        let outgoing = self.next_new_data_segment(now, allowed);
        if repairs && outgoing.is_none() {
            return self.retransmit_by_rescue_rules(now);
        }
        outgoing
    }

    /// Returns the octets beyond `nxt` that congestion control permits, if data is pending.
    #[inline]
    fn congestion_window_allowance(&mut self, now: Instant) -> Option<u32> {
        if let Some(end) = self.scoreboard.as_ref().and_then(|b| b.sacked_end(self.nxt)) {
            self.nxt = end;
        }
        if !self.has_unsent() {
            return None;
        }
        if self.una == self.max && self.config.restart_after_idle {
            self.restart_after_idle(now);
        }
        if let Some(rack) = self.segment_counting_rack() {
            return Some(self.segment_allowance(rack.in_flight(self.nxt)));
        }
        let in_flight = self.nxt.wrapping_sub(self.una);
        let mut cwnd = self.congestion.cwnd;
        if self.config.window_growth == WindowGrowth::Acknowledgements {
            cwnd -= cwnd % self.mss;
        }
        if self.config.limited_transmit && self.nxt == self.max && !self.in_recovery {
            // RFC 3042, 2: two segments beyond the congestion window, which stays.
            cwnd += self.dup_acks.min(2) * self.mss;
        }
        Some(cwnd.saturating_sub(in_flight))
    }

    /// Returns the octets that a window counted in segments permits with `in_flight`: one segment or none.
    #[cold]
    fn segment_allowance(&self, in_flight: u32) -> u32 {
        if in_flight.saturating_mul(self.mss) < self.congestion.cwnd { self.mss } else { 0 }
    }

    /// True if BBR's pacing delays pending data.
    #[cold]
    fn is_pacing_blocked(&mut self, now: Instant) -> bool {
        let waiting = self.resend_now || self.in_recovery || self.has_unsent();
        waiting && self.congestion.bbr().is_some_and(|bbr| bbr.is_held_by_pacing(now))
    }

    /// True if data or a FIN is pending beyond `nxt`.
    #[inline]
    fn has_unsent(&self) -> bool {
        self.nxt != self.end.wrapping_add(1) && (self.nxt != self.end || self.fin_queued)
    }

    /// RFC 5681 §4.1.
    pub(super) fn restart_after_idle(&mut self, now: Instant) {
        // Keep BBR's window: after an idle period BBR paces at its measured rate.
        if self.congestion.bbr().is_some() {
            return;
        }
        let idle = now - self.last_data_at;
        let most = match self.config.idle_restart {
            IdleRestart::Rto if idle > self.rtt.rto(&self.config) => self.congestion.cwnd,
            IdleRestart::MeasuredRto
                if self.measured_idle(now) > self.rtt.rto_without_backoff(&self.config) =>
            {
                u32::MAX
            }
            _ => return,
        };
        let window = self.config.initial_window.window_bytes(self.mss).min(most);
        self.congestion.set_cwnd(window);
        self.full_tcp_set_window(window);
    }

    /// Returns the time since the last transmission, as its sender measures it: ns-2 in clock ticks.
    fn measured_idle(&self, now: Instant) -> Duration {
        match self.congestion.is_full_tcp() {
            true => self.tick_rounded_time(self.last_data_at, now),
            false => now - self.last_data_at,
        }
    }

    /// Returns the largest payload now: SACK blocks reduce it.
    #[inline]
    pub(super) fn max_payload(&self) -> u32 {
        if self.sack_ok && self.reassembly.is_some() { self.sack_segment_capacity() } else { self.mss }
    }

    #[cold]
    fn sack_segment_capacity(&self) -> u32 {
        let len = self.segment_options(Instant::ZERO, true).map_or(0, |o| o.wire_len());
        let base = if self.timestamps.is_some() { 12 } else { 0 };
        self.mss - (len - base).min(self.mss / 2)
    }

    /// Sends data from `nxt` if congestion control, the window, silly window avoidance and Nagle permit it (RFC 9293
    /// §3.8.6.2.1). Congestion control permits `allowed` octets.
    #[inline]
    fn next_new_data_segment(&mut self, now: Instant, allowed: u32) -> Option<OutgoingSegment> {
        let waiting = seq::octets_ahead(self.nxt, self.end);
        let room = self.max_payload();
        // RFC 7323, 2.4 and RFC 9293, 3.8.6: new data stays within the window, which may have shrunk.
        let window = self.wnd.saturating_sub(self.nxt.wrapping_sub(self.una));
        // RFC 5681, 2: beyond neither the congestion window nor the peer's.
        let mut len = waiting.min(allowed).min(window).min(room);
        let again = seq::lt(self.nxt, self.max) && self.timer != TcpTimer::Persist;
        if again && let Some(start) = self.scoreboard.as_ref().and_then(|b| b.next_start(self.nxt)) {
            len = len.min(start.wrapping_sub(self.nxt));
        }
        let last = len == waiting;
        let fin = last && self.fin_queued;
        let quiet = self.una == self.nxt;
        // RFC 9293, 3.7.4: Nagle's algorithm can be off.
        let may = if len == 0 {
            fin
        } else {
            len == room
                || again
                || fin
                || ((last || len >= self.max_wnd / 2 || !self.config.silly_window_avoidance)
                    && (quiet || !self.config.nagle || self.does_nagle_permit()))
        };
        if may {
            self.probe_now = false;
            if self.nxt == self.max && len > allowed.min(self.unlimited_share()) {
                self.limited += len;
                self.stats_mut().limited_transmits += 1;
            }
            if len < room && self.nxt == self.max {
                self.small_end = self.nxt.wrapping_add(len);
            }
            return Some(self.send_data(now, self.nxt, len, fin));
        }
        if quiet && (self.timer == TcpTimer::Off || self.probe_now) {
            return self.handle_closed_window(now, waiting.min(window).min(room));
        }
        None
    }

    /// True if Nagle's algorithm permits a small segment although data is unacknowledged.
    #[cold]
    fn does_nagle_permit(&self) -> bool {
        match self.config.nagle_variant {
            NagleVariant::Rfc896 => false,
            NagleVariant::Bsd => self.ack_now,
            NagleVariant::Minshall => seq::le(self.small_end, self.una),
        }
    }

    /// Returns the octets that the congestion window permits, without limited transmit.
    fn unlimited_share(&self) -> u32 {
        if self.in_recovery {
            return u32::MAX;
        }
        self.congestion.cwnd.saturating_sub(self.nxt.wrapping_sub(self.una))
    }

    /// Handles a window that permits no data: arms the persist timer, or sends the probe that it requested.
    pub(super) fn handle_closed_window(&mut self, now: Instant, sendable: u32) -> Option<OutgoingSegment> {
        if !std::mem::take(&mut self.probe_now) {
            self.arm_persist(now);
            return None;
        }
        if sendable > 0 {
            // RFC 9293, 3.8.6.2.1, case 4: silly window avoidance has waited long enough.
            return Some(self.send_data(now, self.nxt, sendable, false));
        }
        self.stats_mut().window_probes += 1;
        self.probes = self.probes.saturating_add(1);
        // RFC 9293, 3.8.6.1: one octet beyond the window probes it.
        let probe = self.outgoing_segment(self.nxt, 1, SegmentFlags::ACK);
        self.max = seq::max(self.max, self.nxt.wrapping_add(1));
        self.arm_persist(now);
        Some(probe)
    }

    /// Retransmits from the first unacknowledged octet.
    fn retransmit_first(&mut self, now: Instant) -> OutgoingSegment {
        let mut to = seq::min(self.end, self.max);
        if self.config.nagle_variant == NagleVariant::Bsd {
            // A retransmitted segment is filled up with pending data, as far as the peer's window permits.
            to = seq::max(to, seq::min(self.end, self.una.wrapping_add(self.wnd)));
        }
        if let Some(start) = self.scoreboard.as_ref().and_then(|b| b.next_start(self.una)) {
            to = seq::min(to, start);
        }
        let len = seq::octets_ahead(self.una, to).min(self.max_payload());
        let fin = self.fin_sent && self.una.wrapping_add(len) == self.end;
        if self.in_recovery && self.config.fast_retransmit_restarts && self.by_time() {
            self.restart_timer_on_next_send();
        }
        let outgoing = self.retransmit_range(now, self.una, len, fin);
        let sent = self.una.wrapping_add(outgoing.sequence_len());
        if let Some(board) = self.scoreboard.as_mut().filter(|b| b.rescue_rxt == self.una) {
            board.rescue_rxt = sent;
        }
        if seq::lt(self.max, sent) {
            self.max = sent;
            self.nxt = seq::max(self.nxt, sent);
        }
        outgoing
    }

    fn retransmit_range(&mut self, now: Instant, at: u32, len: u32, fin: bool) -> OutgoingSegment {
        let outgoing = self.send_data(now, at, len, fin);
        if let Some(board) = &mut self.scoreboard {
            board.high_rxt = seq::max(board.high_rxt, at.wrapping_add(outgoing.sequence_len()));
        }
        outgoing
    }

    /// RFC 6675 §5 step (C): while the pipe permits a segment, the next one by NextSeg().
    #[cold]
    fn next_sack_retransmission(&mut self, now: Instant) -> LossRecoveryStep {
        if self.by_time() {
            return self.retransmit_rack_losses(now).unwrap_or(LossRecoveryStep::Nothing);
        }
        let (rule, room) = (self.loss_rule(), self.max_payload());
        let Some(board) = self.scoreboard.as_ref() else { return LossRecoveryStep::Nothing };
        let pipe = board.pipe(self.una, self.max, rule);
        let allowed = self.congestion.cwnd.saturating_sub(pipe);
        if allowed < self.mss {
            return LossRecoveryStep::Nothing;
        }
        if let Some((at, end)) = board.next_gap(self.una, rule, true) {
            return LossRecoveryStep::Retransmit(self.retransmit_range(
                now,
                at,
                end.wrapping_sub(at).min(room),
                false,
            ));
        }
        if self.has_unsent() {
            return LossRecoveryStep::New(allowed);
        }
        self.retransmit_by_rescue_rules(now).map_or(LossRecoveryStep::Nothing, LossRecoveryStep::Retransmit)
    }

    /// Rules (3) and (4) of NextSeg(), when no new data may be sent.
    #[cold]
    fn retransmit_by_rescue_rules(&mut self, now: Instant) -> Option<OutgoingSegment> {
        if self.by_time() {
            return None;
        }
        let (rule, room) = (self.loss_rule(), self.max_payload());
        let (recover, board) = (self.recover, self.scoreboard.as_mut()?);
        if let Some((at, end)) = board.next_gap(self.una, rule, false) {
            return Some(self.retransmit_range(now, at, end.wrapping_sub(at).min(room), false));
        }
        if !seq::lt(board.rescue_rxt, self.una) {
            return None;
        }
        let (at, end) = board.rescue_retransmission_range(self.una, self.max, room)?;
        board.rescue_rxt = recover;
        let len = seq::min(end, self.end).wrapping_sub(at);
        let fin = self.fin_sent && at.wrapping_add(len) == self.end;
        Some(self.send_data(now, at, len, fin))
    }

    /// The same by RFC 8985: lost segments first.
    #[cold]
    fn retransmit_rack_losses(&mut self, now: Instant) -> Option<LossRecoveryStep> {
        let rack = self.rack()?;
        let allowed = if rack.counts {
            self.segment_allowance(rack.in_flight(self.max))
        } else {
            self.congestion.cwnd.saturating_sub(rack.pipe())
        };
        if allowed < self.mss {
            return None;
        }
        if let Some((start, end)) = rack.next_lost() {
            let room = self.max_payload();
            let end = if self.config.retransmit_collapse {
                seq::max(end, rack.collapsed_segment_end(start, room))
            } else {
                end
            };
            let data_end = seq::min(end, self.end);
            let len = seq::octets_ahead(start, data_end).min(room);
            let fin = self.fin_sent && start.wrapping_add(len) == self.end;
            if self.config.fast_retransmit_restarts && start == self.una {
                self.restart_timer_on_next_send();
            }
            return Some(LossRecoveryStep::Retransmit(self.retransmit_range(now, start, len, fin)));
        }
        self.has_unsent().then_some(LossRecoveryStep::New(allowed))
    }

    /// Sends data at `at`, new or not.
    #[inline]
    pub(super) fn send_data(&mut self, now: Instant, at: u32, len: u32, fin: bool) -> OutgoingSegment {
        let mut flags = SegmentFlags::ACK;
        let data_end = at.wrapping_add(len);
        // RFC 9293, 3.9.1.2: the last segment has PSH, and no data waits for it.
        if len > 0 && data_end == self.end {
            flags |= SegmentFlags::PSH;
        }
        if fin {
            flags |= SegmentFlags::FIN;
            self.fin_sent = true;
            match self.state {
                TcpState::Established => self.state = TcpState::FinWait1,
                TcpState::CloseWait => self.state = TcpState::LastAck,
                _ => {}
            }
        }
        if !self.congestion.is_reno() {
            self.pace_sent_segment(now, at, data_end.wrapping_add(u32::from(fin)));
        }
        let outgoing = self.outgoing_segment(at, len, flags);
        let new = !seq::lt(at, self.max);
        if seq::lt(at, self.max) && self.timer != TcpTimer::Persist {
            self.stats_mut().retransmitted += 1;
            // RFC 9293, 3.8.1 and RFC 6298, 3: retransmissions are not timed (Karn), except in BSD with new data.
            self.timed_at = Instant::FAR_FUTURE;
            let fills = self.config.nagle_variant == NagleVariant::Bsd && self.timestamps.is_none();
            if fills && seq::lt(self.max, data_end) {
                self.timed_seq = at;
                self.timed_at = now;
            }
        } else if self.timed_at == Instant::FAR_FUTURE && self.timestamps.is_none() {
            // RFC 6298, 3: one measurement at a time.
            self.timed_seq = at;
            self.timed_at = now;
        }
        if at == self.nxt {
            self.nxt = data_end.wrapping_add(u32::from(fin));
            self.max = seq::max(self.max, self.nxt);
        }
        self.last_data_at = now;
        self.probes = 0;
        if self.timer == TcpTimer::Persist {
            // Probes of a closed window that were not answered do not count as transmissions of this segment.
            self.retries = 0;
        }
        // RFC 6298, 5.1: data starts the timer unless it runs.
        if self.timer != TcpTimer::Retransmit {
            self.arm_retransmission(now);
        }
        if self.rare_state.is_some() {
            self.record_data_sent(now, at, len, data_end.wrapping_add(u32::from(fin)), new);
        }
        outgoing
    }

    /// Records that `len` octets of data from `at` to `end` were sent, in the rare state.
    #[cold]
    fn record_data_sent(&mut self, now: Instant, at: u32, len: u32, end: u32, new: bool) {
        if len > 0
            && let Some(acks) = RareTcpState::delayed_ack_state_mut(&mut self.rare_state)
        {
            acks.update_dialogue_on_send(now);
        }
        if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
            rack.on_sent(now, at, end);
            if new {
                self.schedule_tail_loss_probe(now);
            }
        }
    }

    /// Records an acknowledgement in the rare state.
    #[cold]
    fn record_ack_sent(&mut self) {
        if let (Some(acks), Some(delayed)) =
            (RareTcpState::delayed_ack_state_mut(&mut self.rare_state), self.config.delayed_ack)
        {
            acks.on_acknowledged(self.ack_now || self.unacked_segments > 0, delayed.timeout);
        }
    }

    #[cold]
    fn pace_sent_segment(&mut self, now: Instant, start: u32, end: u32) {
        let (flight, cwnd) = (self.max.wrapping_sub(self.una), self.congestion.cwnd);
        let last = seq::le(self.end.wrapping_add(u32::from(self.fin_queued)), end);
        if let Some(bbr) = self.congestion.bbr() {
            bbr.on_sent(SegmentDeparture { now, start, end, flight, last, cwnd });
        }
    }

    fn next_pure_ack(&mut self, now: Instant) -> Option<OutgoingSegment> {
        if !self.ack_now {
            if !self.config.silly_window_avoidance {
                self.schedule_window_announcement(now);
            }
            return None;
        }
        self.pure_acks_sent += 1;
        if self.config.backoff_reset == BackoffReset::EitherAcknowledgement {
            self.rtt.reset_rto_backoff(&self.config);
        }
        Some(self.outgoing_segment(self.snd_nxt(), 0, SegmentFlags::ACK))
    }

    /// Returns the decision that becomes a [segment](Self::build_segment) with our acknowledgement.
    #[inline]
    pub(super) fn outgoing_segment(&mut self, at: u32, len: u32, flags: SegmentFlags) -> OutgoingSegment {
        if self.rare_state.is_some() {
            self.record_ack_sent();
        }
        OutgoingSegment { sequence: at, len, flags }
    }

    /// Builds a segment with the current acknowledgement and window, and records them as announced.
    #[inline(always)]
    pub(super) fn build_segment(&mut self, now: Instant, outgoing: OutgoingSegment) -> Segment {
        let OutgoingSegment { sequence: at, len, flags } = outgoing;
        // RFC 9293, 3.10.7.4 and RFC 5681, 4.2: one acknowledgement for all that has arrived.
        self.ack_now = false;
        self.ack_at = Instant::FAR_FUTURE;
        self.unacked_segments = 0;
        self.unacked_bytes = 0;
        let window = self.advance_announced_window();
        let options = if self.timestamps.is_some() || self.reassembly.is_some() {
            // ns-3 sends no SACK blocks with data.
            let reports = len == 0 || !self.congestion.is_ns3();
            let options = self.segment_options(now, reports).map(Box::new);
            if let Some(held) = &mut self.reassembly
                && held.duplicate.take().is_some()
                && held.is_empty()
            {
                self.reassembly = None;
            }
            options
        } else {
            None
        };
        if let Some(ts) = &mut self.timestamps
            && (len == 0 || self.config.timestamp_echo == TimestampEcho::Rfc7323)
        {
            ts.last_ack_sent = self.rcv_nxt;
        }
        let payload = match &self.send_buffer {
            Some(buffer) if len > 0 => buffer.segment_payload(at, len),
            _ => None,
        };
        Segment { seq: at, ack: self.rcv_nxt, len, window, flags, options, payload }
    }

    fn segment_options(&self, now: Instant, reports: bool) -> Option<TcpOptions> {
        let mut options = TcpOptions {
            // RFC 7323, 3.2: in every segment except resets, once agreed.
            timestamps: self.timestamps.as_ref().map(|t| (timestamp_value(now), t.recent)),
            ..Default::default()
        };
        // RFC 2018, 4: no blocks without permission. Data of a SYN waits at the acknowledgement, not beyond it.
        let beyond = reports && self.sack_ok && self.state != TcpState::SynReceived;
        if let (true, Some(held)) = (beyond, &self.reassembly) {
            for &(left, right) in held.duplicate.iter().chain(held.runs()) {
                options.sack.push(left, right);
            }
            let fitting = options.fitting_sack_block_count();
            let most = if self.congestion.is_full_tcp() { REPORTED_BY_NS2 } else { fitting };
            options.sack.truncate(fitting.min(most));
        }
        (options != TcpOptions::default()).then_some(options)
    }

    /// Returns the maximum receive window: the buffer, limited by the window field.
    pub(super) fn receive_limit(&self) -> u32 {
        self.receive_buffer().min(0xffff << self.rcv_scale)
    }

    /// Returns the right edge that the buffer permits, and the minimum advance worth an announcement (RFC 9293
    /// §3.8.6.2.2).
    fn offerable_window_edge(&self) -> (u32, u32) {
        let limit = self.receive_limit();
        if self.auto_read {
            return (self.rcv_nxt.wrapping_add(limit), 0);
        }
        if !self.config.silly_window_avoidance {
            return (self.rcv_nxt.wrapping_add(limit.saturating_sub(self.unread)), 0);
        }
        if self.config.variants.window_update == ReceiveWindowUpdateRule::Bsd {
            let buffer = self.receive_buffer();
            let free = buffer.saturating_sub(self.unread);
            let silly = free < buffer / 4 && free < self.mss;
            return (self.rcv_nxt.wrapping_add(if silly { 0 } else { free.min(limit) }), 0);
        }
        let free = limit.saturating_sub(self.unread);
        (self.rcv_nxt.wrapping_add(free), (limit / 2).min(self.mss))
    }

    fn advance_announced_window(&mut self) -> u16 {
        let (edge, step) = self.offerable_window_edge();
        let gain = seq::octets_ahead(self.rcv_edge, edge);
        if gain > 0 && gain >= step {
            self.rcv_edge = edge;
        }
        (self.rcv_edge.wrapping_sub(self.rcv_nxt) >> self.rcv_scale).min(0xffff) as u16
    }

    /// Announces the window after a read if it has grown enough.
    pub(super) fn announce_window_after_read(&mut self) {
        let (edge, step) = self.offerable_window_edge();
        let avoid = self.config.silly_window_avoidance;
        // BSD sends a window update as a separate segment only if the window grew by at least two segments.
        let bsd = avoid && self.config.variants.window_update == ReceiveWindowUpdateRule::Bsd;
        let step = if bsd { 2 * self.mss } else { step };
        if self.is_receiving() && seq::octets_ahead(self.rcv_edge, edge) >= step.max(1) && !self.auto_read {
            self.ack_now |= avoid || self.config.delayed_ack.is_none();
            self.wake = true;
        }
    }

    /// True if the peer may still send.
    fn is_receiving(&self) -> bool {
        matches!(self.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2)
    }

    /// Without silly window avoidance: announces reads since the last segment when a delayed acknowledgement would be
    /// sent.
    #[cold]
    fn schedule_window_announcement(&mut self, now: Instant) {
        let Some(delayed) = self.config.delayed_ack else { return };
        let (edge, _) = self.offerable_window_edge();
        let read = seq::octets_ahead(self.rcv_edge, edge) > 0 && !self.auto_read;
        if read && self.is_receiving() && self.ack_at == Instant::FAR_FUTURE {
            self.ack_at = self.delayed_ack_time(now, delayed.timeout);
        }
    }
}
