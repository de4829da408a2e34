//! Arriving segments (RFC 9293 §3.10.7).

use super::config::LossHalves;
use super::connection::{TcpConnection, TcpState};
use super::receive_buffer::{UnreadData, cut_bytes};
use super::segment::{Segment, SegmentFlags};
use super::{AckEvery, AckTimer, InitialWindow, TimestampEcho, WindowUpdate, seq};
use std::sync::Arc;
use usher_core::{CloseReason, Duration, Instant};

/// TS.Recent is invalid after this idle time (RFC 7323 §5.5).
const TIMESTAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

impl TcpConnection {
    /// Handles a segment of this connection. Then drain [`poll_event`](Self::poll_event) and
    /// [`poll_transmit`](Self::poll_transmit), in this order.
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment) {
        self.segments_received += 1;
        if segment.is_malformed() {
            self.stats_mut().malformed += 1;
            return;
        }
        match self.state {
            TcpState::Closed => {
                self.set_answer(segment.reset_for());
                self.wake = true;
            }
            TcpState::SynSent => self.in_syn_sent(now, segment),
            _ => self.in_synchronized(now, segment),
        }
    }

    /// §3.10.7.3.
    fn in_syn_sent(&mut self, now: Instant, s: &Segment) {
        let acks = s.flags.contains(SegmentFlags::ACK);
        if acks && (seq::le(s.ack, self.iss) || seq::lt(self.max, s.ack)) {
            self.stats_mut().unacceptable += 1;
            self.set_answer(s.reset_for());
            self.wake = true;
            return;
        }
        if s.flags.contains(SegmentFlags::RST) {
            if acks {
                self.fail(CloseReason::Refused);
            }
            return;
        }
        if !s.flags.contains(SegmentFlags::SYN) {
            self.stats_mut().unacceptable += 1;
            return;
        }
        self.take_syn(now, s);
        if !acks {
            self.hold_text(s);
            self.state = TcpState::SynReceived;
            self.syn_now = true;
            self.wake = true;
            return;
        }
        self.enter_established(now, s.ack);
        let theirs = s.options.as_deref();
        self.take_syn_ack(
            s.ack,
            theirs.and_then(|o| o.mss),
            theirs.and_then(|o| o.fast_open.as_deref().copied()),
        );
        self.ack_now = true;
        if s.len > 0 || s.flags.contains(SegmentFlags::FIN) {
            self.take_text(now, s.seq.wrapping_add(1), s, s.flags.contains(SegmentFlags::FIN));
        }
    }

    /// Handles the acknowledgement of the own SYN.
    fn enter_established(&mut self, now: Instant, ack: u32) {
        self.una = ack;
        if self.timed_at != Instant::FAR_FUTURE {
            self.rtt.add_sample(&self.config, self.timed_duration(now), 1);
            self.timed_at = Instant::FAR_FUTURE;
        }
        self.stop_timer();
        self.retries = 0;
        self.state = TcpState::Established;
        self.pending.connected = true;
        if self.syn_timeouts > 0 {
            self.rtt.syn_was_lost(&self.config);
            if self.congestion.is_full_tcp() {
                self.full_tcp_syn_lost();
            } else if self.config.loss_halves == LossHalves::Window {
                self.reduce_threshold(0);
            }
        }
        // RFC 5681 §3.1: after a lost SYN or SYN-ACK the initial window is one segment. RFC 6928 §2: a single timeout
        // of a second may have been spurious, so its window is kept after one.
        let spared = u8::from(self.config.initial_window == InitialWindow::Rfc6928);
        let one = self.config.syn_loss_shrinks && self.syn_timeouts > spared;
        let window = if one { self.mss } else { self.config.initial_window.window_bytes(self.mss) };
        self.congestion.set_initial_window(window, self.rtt.srtt());
        self.full_tcp_open(window);
        if self.congestion.is_ns3() && !self.active_open {
            // The first data is acknowledged at once (ProcessSynRcvd()).
            self.unacked_segments = u8::MAX;
        }
        self.begin_rack();
        self.wake = true;
        if let Some(mut held) = self.reassembly.take() {
            let start = self.rcv_nxt;
            self.rcv_nxt = held.advance_to(start, |len, data| self.deliver_data(len, data));
            self.acknowledge_later(now, self.rcv_nxt.wrapping_sub(start));
        }
    }

    /// §3.10.7.4: all states in which the peer's numbers are known.
    #[inline]
    fn in_synchronized(&mut self, now: Instant, s: &Segment) {
        let (mut start, mut flags) = (s.seq, s.flags);
        if self.state == TcpState::SynReceived
            && flags.contains(SegmentFlags::SYN)
            && !flags.contains(SegmentFlags::RST)
            && start == self.irs
        {
            if !flags.contains(SegmentFlags::ACK) {
                // The peer has not received our SYN-ACK.
                self.syn_now = true;
                self.wake = true;
                return;
            }
            // Simultaneous open: the peer's SYN is known; only the acknowledgement is new.
            start = start.wrapping_add(1);
            flags = SegmentFlags(flags.0 & !SegmentFlags::SYN.0);
        }
        if self.timestamps.is_some()
            && !flags.contains(SegmentFlags::RST)
            && !self.timestamp_is_good(now, start, s)
        {
            return;
        }
        let space = s.len
            + u32::from(flags.contains(SegmentFlags::FIN))
            + u32::from(flags.contains(SegmentFlags::SYN));
        if start != self.rcv_nxt && !self.in_window(start, space) {
            self.handle_unacceptable(now, s, start, flags, space);
            return;
        }
        if flags.intersects(SegmentFlags::RST | SegmentFlags::SYN) {
            self.reset_or_challenge(now, start, flags);
            return;
        }
        if !flags.contains(SegmentFlags::ACK) {
            self.stats_mut().malformed += 1;
            return;
        }
        if self.state == TcpState::SynReceived {
            if seq::le(s.ack, self.una) || seq::lt(self.max, s.ack) {
                self.stats_mut().unacceptable += 1;
                self.set_answer(s.reset_for());
                self.wake = true;
                return;
            }
            self.enter_established(now, s.ack);
            self.take_window(s);
        }
        if !self.handle_ack(now, s) {
            return;
        }
        if space > 0 {
            self.take_text(now, start, s, flags.contains(SegmentFlags::FIN));
        }
    }

    /// True if any part of `[start, start + space)` lies in the announced window (§3.10.7.4, first check).
    #[inline]
    fn in_window(&self, start: u32, space: u32) -> bool {
        let window = self.acceptable_end().wrapping_sub(self.rcv_nxt);
        let offset = start.wrapping_sub(self.rcv_nxt);
        if offset < window {
            return true;
        }
        seq::lt(start, self.rcv_nxt) && seq::lt(self.rcv_nxt, start.wrapping_add(space))
    }

    /// Returns the end of the acceptable sequence space.
    #[inline]
    fn acceptable_end(&self) -> u32 {
        // BSD accepts only what it announced, without the buffer, before an accepted connection is established and in
        // TIME-WAIT.
        let small =
            self.state == TcpState::TimeWait || (self.state == TcpState::SynReceived && !self.active_open);
        if small || self.config.variants.window_update == WindowUpdate::Rfc9293 {
            return self.rcv_edge;
        }
        let free = self.receive_buffer().saturating_sub(self.unread);
        if self.config.variants.window_update == WindowUpdate::Ns2 {
            return self.rcv_edge.wrapping_add(free);
        }
        seq::max(self.rcv_edge, self.rcv_nxt.wrapping_add(free))
    }

    /// Records the duplicate part of a segment for the next acknowledgement (RFC 2883 §4).
    fn note_duplicate(&mut self, start: u32, len: u32) {
        if !self.config.variants.duplicate_sack || !self.sack_ok || len == 0 {
            return;
        }
        let end = start.wrapping_add(len);
        let duplicate = if seq::lt(start, self.rcv_nxt) {
            Some((start, seq::min(end, self.rcv_nxt)))
        } else {
            self.reassembly.as_ref().and_then(|held| held.first_buffered_range(start, end))
        };
        if duplicate.is_some() {
            self.reassembly.get_or_insert_default().duplicate = duplicate;
            self.ack_now = true;
        }
    }

    fn handle_unacceptable(
        &mut self,
        now: Instant,
        s: &Segment,
        start: u32,
        flags: SegmentFlags,
        space: u32,
    ) {
        if flags.contains(SegmentFlags::RST) {
            self.stats_mut().unacceptable += 1;
            return;
        }
        if flags.contains(SegmentFlags::SYN) {
            self.stats_mut().unacceptable += 1;
            self.queue_challenge_ack(now);
            return;
        }
        self.ack_now = true;
        self.wake = true;
        if space == 0 || !seq::lt(start, self.rcv_nxt) {
            self.stats_mut().unacceptable += 1;
            return;
        }
        // A complete duplicate: our acknowledgement was lost. Its own acknowledgement still counts.
        self.stats_mut().duplicate_data += 1;
        self.hurry_acks();
        self.note_duplicate(start, s.len);
        if self.state == TcpState::TimeWait && flags.contains(SegmentFlags::FIN) {
            self.arm_time_wait(now);
        }
        if flags.contains(SegmentFlags::ACK) && self.state != TcpState::SynReceived {
            self.handle_ack(now, s);
        }
    }

    /// RFC 7323 §5.3: false drops the segment. The timestamp to echo is chosen before the window check (§4.3,
    /// appendix D). A segment retransmitted after the loss of our acknowledgement lies before the window. An echo of
    /// its first copy would include the peer's timeout in the measurement.
    fn timestamp_is_good(&mut self, now: Instant, start: u32, s: &Segment) -> bool {
        let Some(ts) = &mut self.timestamps else { return true };
        let Some((val, _)) = s.options.as_ref().and_then(|o| o.timestamps) else {
            self.stats_mut().malformed += 1;
            return false;
        };
        let old = seq::lt(val, ts.recent);
        if old && now - ts.recent_at < TIMESTAMP_LIFE {
            self.stats_mut().old_timestamps += 1;
            self.ack_now = true;
            self.wake = true;
            return false;
        }
        let echoed = match self.config.timestamp_echo {
            TimestampEcho::Rfc7323 => true,
            TimestampEcho::PureAcknowledgements => start == self.rcv_nxt,
        };
        if old || (echoed && seq::le(start, ts.last_ack_sent)) {
            ts.recent = val;
            ts.recent_at = now;
        }
        true
    }

    /// RFC 5961 §3.2 and §4.2: only the exact number resets; a SYN never does.
    fn reset_or_challenge(&mut self, now: Instant, start: u32, flags: SegmentFlags) {
        let variants = self.config.variants;
        if !flags.contains(SegmentFlags::RST) && self.state == TcpState::SynReceived && !self.active_open {
            // A listener returns to LISTEN (RFC 9293 §3.10.7.4, fourth check).
            self.stats_mut().unacceptable += 1;
            self.enter_closed();
            return;
        }
        if !flags.contains(SegmentFlags::RST) && !variants.strict_syn {
            self.set_answer(Some(self.reset_segment()));
            self.fail(CloseReason::Reset);
            return;
        }
        if !flags.contains(SegmentFlags::RST) || (start != self.rcv_nxt && variants.strict_rst) {
            self.stats_mut().unacceptable += 1;
            self.queue_challenge_ack(now);
            return;
        }
        match self.state {
            TcpState::TimeWait if variants.time_wait_ignores_rst => self.stats_mut().unacceptable += 1,
            TcpState::TimeWait => {
                self.state = TcpState::Closed;
                self.stop_timer();
            }
            TcpState::SynReceived if self.active_open => self.fail(CloseReason::Refused),
            _ => self.fail(CloseReason::Reset),
        }
    }

    /// Queues a challenge acknowledgement, unless one was sent recently (RFC 5961 §7).
    pub(super) fn queue_challenge_ack(&mut self, now: Instant) {
        let interval = self.config.challenge_ack_interval;
        let aside = self.extras_mut();
        let recent = aside.challenged_at != Instant::FAR_FUTURE && now - aside.challenged_at < interval;
        if !recent {
            aside.challenged_at = now;
            aside.stats.challenge_acks += 1;
            self.ack_now = true;
            self.wake = true;
        }
    }

    /// Handles the segment's data and FIN (§3.10.7.4, seventh and eighth checks).
    #[inline]
    fn take_text(&mut self, now: Instant, start: u32, s: &Segment, fin: bool) {
        if !matches!(self.state, TcpState::Established | TcpState::FinWait1 | TcpState::FinWait2) {
            if fin && self.state == TcpState::TimeWait {
                self.arm_time_wait(now);
            }
            self.ack_now = true;
            self.wake = true;
            return;
        }
        self.pushed = s.flags.contains(SegmentFlags::PSH);
        let whole_end = start.wrapping_add(s.len);
        self.note_duplicate(start, s.len);
        let from = seq::max(start, self.rcv_nxt);
        let to = seq::min(whole_end, seq::max(self.acceptable_end(), self.rcv_nxt));
        if seq::lt(from, to) {
            let len = to.wrapping_sub(from);
            let data = s.payload.as_ref().map(|p| cut_bytes(p, from.wrapping_sub(start), len));
            if from == self.rcv_nxt {
                self.take_in_order(now, to, len, data);
                if self.config.receive_buffer_max.is_some() {
                    self.tune_buffer(now, s);
                }
            } else {
                self.stats_mut().out_of_order += 1;
                let moves = !self.congestion.is_full_tcp();
                self.reassembly.get_or_insert_default().insert(from, to, data, moves);
                self.acknowledge_gap(0);
            }
        } else if s.len > 0 {
            // A duplicate, or a probe of a closed window.
            if !seq::lt(self.rcv_nxt, whole_end) {
                self.stats_mut().duplicate_data += 1;
                self.hurry_acks();
            }
            self.ack_now = true;
        }
        if to != whole_end {
            self.ack_now = true;
        } else if fin && !seq::lt(whole_end, self.rcv_nxt) {
            self.reassembly.get_or_insert_default().fin = Some(whole_end);
        }
        if self.reassembly.is_some() {
            self.take_fin(now);
        }
        self.wake |= self.ack_now;
    }

    #[inline]
    fn take_in_order(&mut self, now: Instant, to: u32, len: u32, data: Option<Arc<[u8]>>) {
        self.rcv_nxt = to;
        self.deliver_data(len, data);
        if self.reassembly.as_ref().is_some_and(|r| r.has_data()) {
            if let Some(mut held) = self.reassembly.take() {
                self.rcv_nxt = held.advance_to(to, |len, data| self.deliver_data(len, data));
                self.reassembly = (!held.is_empty()).then_some(held);
            }
            // RFC 5681 §4.2: a segment that fills a gap is acknowledged at once.
            self.acknowledge_gap(len.wrapping_add(self.rcv_nxt.wrapping_sub(to)));
            return;
        }
        self.acknowledge_later(now, len);
    }

    /// Handles `len` octets received in order: acknowledges them at once or after the delay.
    // A call would take twice as long, for every segment.
    #[inline(always)]
    fn acknowledge_later(&mut self, now: Instant, len: u32) {
        let Some(delayed) = self.config.delayed_ack else {
            self.ack_now = true;
            return;
        };
        self.unacked_segments = self.unacked_segments.saturating_add(1);
        self.unacked_bytes = self.unacked_bytes.saturating_add(len);
        let enough = match delayed.every {
            AckEvery::Segments(n) => self.unacked_segments >= n,
            AckEvery::FullSized(n) => self.unacked_bytes >= u32::from(n) * self.mss,
            AckEvery::LargestSeen(n) => self.more_than_largest(n, len),
        };
        if self.ack_pace().is_some() {
            self.pace_ack(now, len, enough);
        } else if enough || self.opens_window() {
            self.ack_now = true;
        } else if self.ack_at == Instant::FAR_FUTURE {
            self.ack_at = self.delayed_until(now, delayed.timeout);
        }
    }

    /// True if an acknowledgement now would open the window by half of the buffer.
    #[inline]
    pub(super) fn opens_window(&self) -> bool {
        let gain = self.rcv_nxt.wrapping_add(self.receive_limit()).wrapping_sub(self.rcv_edge);
        self.auto_read && gain >= self.receive_limit() / 2
    }

    /// Returns when an acknowledgement that is delayed now is sent.
    pub(super) fn delayed_until(&self, now: Instant, timeout: Duration) -> Instant {
        match self.config.ack_timer {
            AckTimer::FromArrival => self.timer_expiry(now, timeout),
            AckTimer::Tick => {
                let tick = timeout.as_nanos().max(1);
                Instant::from_nanos((now.as_nanos() / tick + 1) * tick)
            }
        }
    }

    /// Implements [`AckEvery::LargestSeen`] for a segment of `len` octets.
    #[cold]
    fn more_than_largest(&mut self, n: u8, len: u32) -> bool {
        self.largest = self.largest.max(len.min(self.mss) as u16);
        let segment = self.least_segment().max(u32::from(self.largest));
        self.unacked_bytes > u32::from(n.saturating_sub(1)) * segment
    }

    /// Delivers in-order data to the application.
    #[inline(always)]
    fn deliver_data(&mut self, len: u32, data: Option<Arc<[u8]>>) {
        if data.is_some() || self.chunks.is_some() {
            self.store_chunk(len, data);
        }
        self.unread += len;
    }

    #[cold]
    fn store_chunk(&mut self, len: u32, data: Option<Arc<[u8]>>) {
        let unread = self.unread;
        let chunks = self.chunks.get_or_insert_with(|| {
            let mut chunks = Box::<UnreadData>::default();
            if unread > 0 {
                chunks.push(unread, None);
            }
            chunks
        });
        chunks.push(len, data);
    }

    /// Handles the FIN after all data before it is received.
    fn take_fin(&mut self, now: Instant) {
        let Some(held) = &self.reassembly else { return };
        let Some(at) = held.fin else {
            if held.is_empty() {
                self.reassembly = None;
            }
            return;
        };
        self.ack_now = true;
        if at != self.rcv_nxt {
            return;
        }
        self.reassembly = None;
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.rcv_edge = seq::max(self.rcv_edge, self.rcv_nxt);
        self.peer_fin = true;
        self.pending.peer_closed = true;
        match self.state {
            TcpState::Established => self.state = TcpState::CloseWait,
            // If our FIN were acknowledged, the state would be FIN-WAIT-2.
            TcpState::FinWait1 => {
                self.state = TcpState::Closing;
                if self.config.variants.fin_again {
                    self.stats_mut().retransmitted += 1;
                    let answer = self.outgoing_segment(self.end, 0, SegmentFlags::ACK | SegmentFlags::FIN);
                    let answer = self.build_segment(now, answer);
                    self.set_answer(Some(answer));
                    self.wake = true;
                }
            }
            _ => self.enter_time_wait(now),
        }
    }

    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.state = TcpState::TimeWait;
        self.pending.closed = Some(CloseReason::Closed);
        self.arm_time_wait(now);
    }
}
