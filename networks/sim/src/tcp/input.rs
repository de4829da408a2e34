//! Arriving segments (RFC 9293 §3.10.7).

use super::config::LossHalves;
use super::connection::{TcpConnection, TcpState};
use super::receive_buffer::{UnreadData, cut_bytes};
use super::segment::{Segment, SegmentFlags};
use super::{AckThreshold, AckTimer, InitialWindow, ReceiveWindowUpdateRule, TimestampEcho, seq};
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
                // RFC 9293, 3.5.2: resets a segment without a connection.
                self.set_stray_reply(segment.reset_reply());
                self.wake = true;
            }
            TcpState::SynSent => self.handle_segment_in_syn_sent(now, segment),
            _ => self.handle_segment_when_synchronized(now, segment),
        }
    }

    /// §3.10.7.3.
    fn handle_segment_in_syn_sent(&mut self, now: Instant, s: &Segment) {
        let acks = s.flags.contains(SegmentFlags::ACK);
        if acks && (seq::le(s.ack, self.iss) || seq::lt(self.max, s.ack)) {
            // RFC 9293, 3.5.2: resets an acknowledgement of nothing sent.
            self.stats_mut().unacceptable += 1;
            self.set_stray_reply(s.reset_reply());
            self.wake = true;
            return;
        }
        if s.flags.contains(SegmentFlags::RST) {
            // RFC 5961, 3.2: drops a reset that does not acknowledge our SYN.
            if acks {
                self.fail(CloseReason::Refused);
            }
            return;
        }
        if !s.flags.contains(SegmentFlags::SYN) {
            self.stats_mut().unacceptable += 1;
            return;
        }
        self.apply_peer_syn(now, s);
        if !acks {
            // RFC 9293, 3.5: simultaneous open.
            self.buffer_syn_data(s);
            self.state = TcpState::SynReceived;
            self.syn_now = true;
            self.wake = true;
            return;
        }
        self.enter_established(now, s.ack);
        let theirs = s.options.as_deref();
        self.apply_fast_open_syn_ack(
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
            self.rtt.add_sample(&self.config, self.measured_round_trip(now), 1);
            self.timed_at = Instant::FAR_FUTURE;
        }
        self.stop_timer();
        self.retries = 0;
        self.state = TcpState::Established;
        self.pending.connected = true;
        if self.syn_timeouts > 0 {
            self.rtt.handle_syn_loss(&self.config);
            if self.congestion.is_full_tcp() {
                self.full_tcp_handle_syn_loss();
            } else if self.config.loss_halves == LossHalves::Window {
                self.reduce_threshold(0);
            }
        }
        // RFC 5681, 3.1: after a lost SYN or SYN-ACK the initial window is one segment. RFC 6928, 2: a single timeout
        // of a second may have been spurious, so its window is kept after one.
        let spared = u8::from(self.config.initial_window == InitialWindow::Rfc6928);
        let one = self.config.syn_loss_shrinks && self.syn_timeouts > spared;
        let window = if one { self.mss } else { self.config.initial_window.window_bytes(self.mss) };
        // RFC 5681, 3.1: acknowledgements of the handshake do not widen it.
        self.congestion.set_initial_window(window, self.rtt.srtt());
        self.full_tcp_handle_established(window);
        if self.congestion.is_ns3() && !self.active_open {
            // Like ns-3's ProcessSynRcvd(), acknowledge the first data at once.
            self.unacked_segments = u8::MAX;
        }
        self.start_rack_if_enabled();
        self.wake = true;
        if let Some(mut held) = self.reassembly.take() {
            let start = self.rcv_nxt;
            self.rcv_nxt = held.advance_to(start, |len, data| self.deliver_data(len, data));
            self.schedule_delayed_ack(now, self.rcv_nxt.wrapping_sub(start));
        }
    }

    /// §3.10.7.4: all states in which the peer's numbers are known.
    #[inline]
    fn handle_segment_when_synchronized(&mut self, now: Instant, s: &Segment) {
        let (mut start, mut flags) = (s.seq, s.flags);
        if self.state == TcpState::SynReceived
            && flags.contains(SegmentFlags::SYN)
            && !flags.contains(SegmentFlags::RST)
            && start == self.irs
        {
            if !flags.contains(SegmentFlags::ACK) {
                // The peer repeats its SYN, so it has not received our SYN-ACK. Send that again.
                self.syn_now = true;
                self.wake = true;
                return;
            }
            // Simultaneous open: the peer's SYN is known; only the acknowledgement is new.
            start = start.wrapping_add(1);
            flags = SegmentFlags(flags.0 & !SegmentFlags::SYN.0);
        }
        // RFC 7323, 5.2: a reset's timestamp is not checked.
        if self.timestamps.is_some()
            && !flags.contains(SegmentFlags::RST)
            && !self.check_segment_timestamp(now, start, s)
        {
            return;
        }
        let space = s.len
            + u32::from(flags.contains(SegmentFlags::FIN))
            + u32::from(flags.contains(SegmentFlags::SYN));
        // RFC 9293, 3.10.7.4: a reset or acknowledgement at RCV.NXT counts even if the window is closed.
        if start != self.rcv_nxt && !self.overlaps_receive_window(start, space) {
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
                // RFC 9293, 3.5.2: resets an acknowledgement of nothing sent.
                self.stats_mut().unacceptable += 1;
                self.set_stray_reply(s.reset_reply());
                self.wake = true;
                return;
            }
            self.enter_established(now, s.ack);
            self.set_send_window(s);
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
    fn overlaps_receive_window(&self, start: u32, space: u32) -> bool {
        let window = self.acceptable_sequence_end().wrapping_sub(self.rcv_nxt);
        let offset = start.wrapping_sub(self.rcv_nxt);
        if offset < window {
            return true;
        }
        seq::lt(start, self.rcv_nxt) && seq::lt(self.rcv_nxt, start.wrapping_add(space))
    }

    /// Returns the end of the acceptable sequence space.
    #[inline]
    fn acceptable_sequence_end(&self) -> u32 {
        // In two states BSD accepts only the announced window, not the whole buffer: in TIME-WAIT, and before an
        // accepted connection is established.
        let small =
            self.state == TcpState::TimeWait || (self.state == TcpState::SynReceived && !self.active_open);
        if small || self.config.variants.window_update == ReceiveWindowUpdateRule::Rfc9293 {
            // RFC 7323, 2.4: all that an earlier window allowed.
            return self.rcv_edge;
        }
        let free = self.receive_buffer().saturating_sub(self.unread);
        if self.config.variants.window_update == ReceiveWindowUpdateRule::Ns2 {
            return self.rcv_edge.wrapping_add(free);
        }
        seq::max(self.rcv_edge, self.rcv_nxt.wrapping_add(free))
    }

    /// Records the duplicate part of a segment for the next acknowledgement (RFC 2883 §4).
    fn record_duplicate_range(&mut self, start: u32, len: u32) {
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
            // RFC 5961, 3.2: drops a reset outside the window.
            self.stats_mut().unacceptable += 1;
            return;
        }
        if flags.contains(SegmentFlags::SYN) {
            // RFC 5961, 4.2: challenges a SYN outside the window, too.
            self.stats_mut().unacceptable += 1;
            self.queue_challenge_ack(now);
            return;
        }
        // RFC 9293, 3.5.2: an empty acknowledgement answers an unacceptable segment.
        self.ack_now = true;
        self.wake = true;
        if space == 0 || !seq::lt(start, self.rcv_nxt) {
            self.stats_mut().unacceptable += 1;
            return;
        }
        // The whole segment is a duplicate, so our acknowledgement was lost. The acknowledgement in the segment still
        // counts.
        self.stats_mut().duplicate_data += 1;
        self.enter_quick_ack_mode();
        self.record_duplicate_range(start, s.len);
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
    fn check_segment_timestamp(&mut self, now: Instant, start: u32, s: &Segment) -> bool {
        let Some(ts) = &mut self.timestamps else { return true };
        let Some((val, _)) = s.options.as_ref().and_then(|o| o.timestamps) else {
            // RFC 7323, 3.2: drops a segment without timestamps; the connection stays.
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
            // A connection from a listener ends here, because the listener itself is still in LISTEN (RFC 9293
            // §3.10.7.4, fourth check).
            self.stats_mut().unacceptable += 1;
            self.enter_closed();
            return;
        }
        if !flags.contains(SegmentFlags::RST) && !variants.strict_syn {
            self.set_stray_reply(Some(self.reset_segment()));
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
        self.record_duplicate_range(start, s.len);
        let from = seq::max(start, self.rcv_nxt);
        let to = seq::min(whole_end, seq::max(self.acceptable_sequence_end(), self.rcv_nxt));
        if seq::lt(from, to) {
            let len = to.wrapping_sub(from);
            let data = s.payload.as_ref().map(|p| cut_bytes(p, from.wrapping_sub(start), len));
            if from == self.rcv_nxt {
                self.accept_in_order_data(now, to, len, data);
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
            // The segment is a duplicate, or probes a closed window.
            if !seq::lt(self.rcv_nxt, whole_end) {
                self.stats_mut().duplicate_data += 1;
                self.enter_quick_ack_mode();
            }
            self.ack_now = true;
        }
        if to != whole_end {
            self.ack_now = true;
        } else if fin && !seq::lt(whole_end, self.rcv_nxt) {
            self.reassembly.get_or_insert_default().fin = Some(whole_end);
        }
        if self.reassembly.is_some() {
            self.accept_fin(now);
        }
        self.wake |= self.ack_now;
    }

    #[inline]
    fn accept_in_order_data(&mut self, now: Instant, to: u32, len: u32, data: Option<Arc<[u8]>>) {
        self.rcv_nxt = to;
        self.deliver_data(len, data);
        if self.reassembly.as_ref().is_some_and(|r| r.has_data()) {
            if let Some(mut held) = self.reassembly.take() {
                self.rcv_nxt = held.advance_to(to, |len, data| self.deliver_data(len, data));
                self.reassembly = (!held.is_empty()).then_some(held);
            }
            // RFC 5681, 4.2: a segment that fills a gap is acknowledged at once.
            self.acknowledge_gap(len.wrapping_add(self.rcv_nxt.wrapping_sub(to)));
            return;
        }
        self.schedule_delayed_ack(now, len);
    }

    /// Handles `len` octets received in order: acknowledges them at once or after the delay.
    // Always inline: as a call, this function would take twice as long, and it runs for every segment.
    #[inline(always)]
    fn schedule_delayed_ack(&mut self, now: Instant, len: u32) {
        let Some(delayed) = self.config.delayed_ack else {
            self.ack_now = true;
            return;
        };
        self.unacked_segments = self.unacked_segments.saturating_add(1);
        self.unacked_bytes = self.unacked_bytes.saturating_add(len);
        let enough = match delayed.every {
            AckThreshold::Segments(n) => self.unacked_segments >= n,
            AckThreshold::FullSized(n) => self.unacked_bytes >= u32::from(n) * self.mss,
            AckThreshold::LargestSeen(n) => self.exceeds_largest_segments(n, len),
        };
        if self.ack_pace().is_some() {
            self.schedule_linux_ack(now, len, enough);
        } else if enough || self.would_ack_open_window() {
            self.ack_now = true;
        } else if self.ack_at == Instant::FAR_FUTURE {
            self.ack_at = self.delayed_ack_time(now, delayed.timeout);
        }
    }

    /// True if an acknowledgement now would open the window by half of the buffer.
    #[inline]
    pub(super) fn would_ack_open_window(&self) -> bool {
        let gain = self.rcv_nxt.wrapping_add(self.receive_limit()).wrapping_sub(self.rcv_edge);
        self.auto_read && gain >= self.receive_limit() / 2
    }

    /// Returns when an acknowledgement that is delayed now is sent.
    pub(super) fn delayed_ack_time(&self, now: Instant, timeout: Duration) -> Instant {
        match self.config.ack_timer {
            AckTimer::FromArrival => self.timer_expiry(now, timeout),
            AckTimer::Tick => {
                let tick = timeout.as_nanos().max(1);
                Instant::from_nanos((now.as_nanos() / tick + 1) * tick)
            }
        }
    }

    /// Implements [`AckThreshold::LargestSeen`] for a segment of `len` octets.
    #[cold]
    fn exceeds_largest_segments(&mut self, n: u8, len: u32) -> bool {
        self.largest = self.largest.max(len.min(self.mss) as u16);
        let segment = self.initial_largest_segment().max(u32::from(self.largest));
        self.unacked_bytes > u32::from(n.saturating_sub(1)) * segment
    }

    /// Delivers in-order data to the application.
    #[inline(always)]
    fn deliver_data(&mut self, len: u32, data: Option<Arc<[u8]>>) {
        if data.is_some() || self.chunks.is_some() {
            self.store_unread_chunk(len, data);
        }
        self.unread += len;
    }

    #[cold]
    fn store_unread_chunk(&mut self, len: u32, data: Option<Arc<[u8]>>) {
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
    fn accept_fin(&mut self, now: Instant) {
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
            // Our FIN is not acknowledged, because the state would then be FIN-WAIT-2.
            TcpState::FinWait1 => {
                self.state = TcpState::Closing;
                if self.config.variants.fin_again {
                    self.stats_mut().retransmitted += 1;
                    let answer = self.outgoing_segment(self.end, 0, SegmentFlags::ACK | SegmentFlags::FIN);
                    let answer = self.build_segment(now, answer);
                    self.set_stray_reply(Some(answer));
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
