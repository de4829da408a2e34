//! A connection with ns-3's sender.

use super::{TcpConnection, TcpTimer};
use crate::tcp::ns3_cubic::Ns3WindowState;
use crate::tcp::ns3_sender::{Ns3CongestionState, SentSegment};
use crate::tcp::output::OutgoingSegment;
use crate::tcp::segment::{Segment, timestamp_value};
use crate::tcp::seq;
use usher_core::{Duration, Instant};

impl TcpConnection {
    /// True if written data waits until all events of this instant are handled: ns-3 sends it a nanosecond later, in
    /// as few segments as possible.
    pub fn defer_written_data(&mut self, now: Instant) -> bool {
        let Some(sender) = self.congestion.ns3() else { return false };
        sender.written_at.get_or_insert(now);
        true
    }

    /// Sends written data.
    pub(in crate::tcp) fn ns3_release_deferred_writes(&mut self, now: Instant) {
        if let Some(sender) = self.congestion.ns3()
            && sender.written_at.is_some_and(|at| at <= now)
        {
            sender.written_at = None;
            self.wake = true;
        }
    }

    fn ns3_state(&self, now: Instant) -> Ns3WindowState {
        Ns3WindowState {
            now,
            cwnd: self.congestion.cwnd,
            ssthresh: self.congestion.ssthresh,
            mss: self.mss,
            rtt: self.rtt.srtt().unwrap_or_default(),
            ack: self.una,
            max: self.max,
        }
    }

    /// `EstimateRtt()`: only the earliest segment gives a measurement, unless it was retransmitted.
    fn ns3_estimate_rtt(&mut self, now: Instant, s: &Segment) {
        let Some(sender) = self.congestion.ns3() else { return };
        let first =
            sender.timed.front().filter(|one| !one.is_retransmitted && seq::le(one.end, s.ack)).copied();
        while sender.timed.front().is_some_and(|one| seq::le(one.end, s.ack)) {
            sender.timed.pop_front();
        }
        let Some(first) = first else { return };
        let echo = s.options.as_ref().and_then(|o| o.timestamps).filter(|_| self.timestamps.is_some());
        let rtt = match echo {
            Some((_, echo)) => {
                let ticks = timestamp_value(now).wrapping_sub(echo);
                if ticks == 0 { Duration::from_micros(1) } else { Duration::from_millis(ticks.into()) }
            }
            None => now - first.sent_at,
        };
        self.rtt.add_sample(&self.config, rtt, 1);
    }

    /// `ReceivedAck()`, with all its calls.
    #[cold]
    pub(in crate::tcp) fn ns3_ack(&mut self, now: Instant, s: &Segment) {
        let (ack, before, recover, mss) = (s.ack, self.una, self.recover, self.mss);
        self.wake = true;
        self.tail_now = true;
        self.ns3_estimate_rtt(now, s);
        if seq::lt(ack, before) {
            return;
        }
        let threshold = u32::from(self.config.dup_threshold);
        let Some(sender) = self.congestion.ns3() else { return };
        let blocks = s.options.as_ref().map_or(&[][..], |o| o.sack.as_slice());
        let reported = sender.record_sacked(blocks, threshold);
        let repaired = sender.phase == Ns3CongestionState::Recovery
            && seq::lt(ack, recover)
            && (0..ack.wrapping_sub(before) / mss)
                .any(|i| sender.is_unsacked_retransmission_end(ack.wrapping_sub(i * mss)));
        let delivered = reported + sender.discard_acked(ack);
        sender.update_in_flight();
        if ack != before {
            self.release_acknowledged(ack);
        }
        let duplicates = self.dup_acks;
        if reported > 0 {
            self.stats_mut().duplicate_acks += 1;
            self.ns3_handle_duplicate_ack(now, delivered, repaired);
        }
        if ack == before {
            if ack != self.max {
                self.ns3_update_hystart(now);
            }
            return;
        }
        self.ns3_handle_new_ack(now, before, reported > 0, duplicates, (delivered, repaired));
        if self.fin_sent && self.una == self.end.wrapping_add(1) {
            self.handle_acknowledged_fin(now);
        }
    }

    /// `PktsAcked()`.
    fn ns3_update_hystart(&mut self, now: Instant) {
        let state = self.ns3_state(now);
        if self.congestion.ns3().is_some_and(|sender| sender.cubic.on_acknowledged(state)) {
            self.congestion.ssthresh = self.congestion.cwnd;
        }
    }

    /// `IncreaseWindow()`.
    fn ns3_increase_window(&mut self, now: Instant, segments: u32) {
        let state = self.ns3_state(now);
        let Some(sender) = self.congestion.ns3() else { return };
        let window = sender.cubic.increase_window(state, segments);
        self.congestion.set_cwnd(window);
    }

    /// Handles an acknowledgement with new SACKed data (`DupAck()`).
    fn ns3_handle_duplicate_ack(&mut self, now: Instant, delivered: u32, repaired: bool) {
        let (una, recover, mss) = (self.una, self.recover, self.mss);
        let (threshold, ssthresh) = (u32::from(self.config.dup_threshold), self.congestion.ssthresh);
        let Some(sender) = self.congestion.ns3() else { return };
        match sender.phase {
            Ns3CongestionState::Loss => {}
            Ns3CongestionState::Recovery => {
                let window = sender.reduced_window(delivered, ssthresh, mss, repaired);
                self.congestion.set_cwnd(window);
            }
            Ns3CongestionState::Open | Ns3CongestionState::Disorder => {
                sender.phase = Ns3CongestionState::Disorder;
                let beyond = !sender.repairing || seq::le(recover, una);
                let lost = sender.is_lost(una.wrapping_add(mss));
                self.dup_acks += 1;
                if (self.dup_acks == threshold && beyond) || lost {
                    self.ns3_enter_recovery(now, delivered, repaired);
                }
            }
        }
    }

    /// `EnterRecovery()`.
    fn ns3_enter_recovery(&mut self, now: Instant, delivered: u32, repaired: bool) {
        self.stats_mut().fast_retransmits += 1;
        let (una, max, mss, cwnd) = (self.una, self.max, self.mss, self.congestion.cwnd);
        self.recover = max;
        let Some(sender) = self.congestion.ns3() else { return };
        if !sender.is_lost(una)
            && let Some(first) = sender.sent.front_mut()
        {
            (first.lost, first.is_retransmitted, first.reported) = (true, false, false);
        }
        sender.repairing = true;
        sender.phase = Ns3CongestionState::Recovery;
        sender.update_in_flight();
        let ssthresh = sender.cubic.on_loss(cwnd, mss);
        (sender.delivered, sender.out, sender.flight_before) = (0, 0, max.wrapping_sub(una));
        let window = sender.reduced_window(delivered, ssthresh, mss, repaired);
        self.congestion.ssthresh = ssthresh;
        self.congestion.set_cwnd(window);
        self.ns3_retransmit_now(now);
    }

    /// Handles acknowledged new data (the rest of `ProcessAck()`).
    fn ns3_handle_new_ack(
        &mut self,
        now: Instant,
        before: u32,
        duplicate: bool,
        duplicates: u32,
        (delivered, repaired): (u32, bool),
    ) {
        let (ack, recover, mss, ssthresh) = (self.una, self.recover, self.mss, self.congestion.ssthresh);
        let acked = ack.wrapping_sub(before);
        let below = seq::lt(ack, recover);
        if !duplicate {
            self.dup_acks = 0;
        }
        let Some(sender) = self.congestion.ns3() else { return };
        sender.rest += acked % mss;
        let mut segments = acked / mss + sender.rest / mss;
        sender.rest %= mss;
        match sender.phase {
            Ns3CongestionState::Recovery if below => {
                if segments > 0 {
                    let window = sender.reduced_window(delivered, ssthresh, mss, repaired);
                    self.congestion.set_cwnd(window);
                }
                let repeated = self
                    .congestion
                    .ns3()
                    .is_some_and(|s| s.is_unsacked_retransmission_end(ack.wrapping_add(mss)));
                if !repeated {
                    self.ns3_retransmit_now(now);
                }
                self.ns3_update_hystart(now);
                let first =
                    self.congestion.ns3().is_some_and(|s| !std::mem::replace(&mut s.has_partial_ack, true));
                self.ns3_restart_timer(now, first);
                return;
            }
            Ns3CongestionState::Loss if below => {
                self.ns3_update_hystart(now);
                self.ns3_increase_window(now, segments);
                self.ns3_restart_timer(now, true);
                return;
            }
            Ns3CongestionState::Open => self.ns3_update_hystart(now),
            Ns3CongestionState::Disorder => {
                if !duplicate {
                    sender.phase = Ns3CongestionState::Open;
                }
                if segments >= duplicates {
                    self.ns3_update_hystart(now);
                }
            }
            Ns3CongestionState::Recovery => {
                sender.has_partial_ack = false;
                segments = acked / mss;
                self.ns3_update_hystart(now);
                self.dup_acks = 0;
                if let Some(sender) = self.congestion.ns3() {
                    sender.phase = Ns3CongestionState::Open;
                }
                self.congestion.set_cwnd(self.congestion.ssthresh);
            }
            Ns3CongestionState::Loss => {
                sender.has_partial_ack = false;
                sender.phase = Ns3CongestionState::Open;
                segments = ack.wrapping_sub(recover) / mss;
                self.ns3_update_hystart(now);
            }
        }
        let Some(sender) = self.congestion.ns3() else { return };
        sender.repairing &= below;
        // While duplicate acknowledgements continue, ns-3 changes neither the window nor the timer.
        if sender.phase == Ns3CongestionState::Open {
            self.ns3_increase_window(now, segments);
            self.ns3_restart_timer(now, true);
        } else if self.una == self.end.wrapping_add(u32::from(self.fin_sent)) {
            self.stop_timer();
        }
    }

    /// `NewAck()`: recalculates the timeout, and may restart the timer.
    fn ns3_restart_timer(&mut self, now: Instant, restarts: bool) {
        if restarts {
            self.rtt.reset_rto_backoff(&self.config);
            self.arm_retransmission(now);
        }
        if self.una == self.end.wrapping_add(u32::from(self.fin_sent)) {
            self.stop_timer();
        }
    }

    /// Sends a segment at once regardless of the window: lost data, new data, or the first segment again
    /// (`DoRetransmit()`).
    fn ns3_retransmit_now(&mut self, now: Instant) {
        let (una, mss) = (self.una, self.mss);
        let lost = self.congestion.ns3().and_then(|sender| sender.next_lost());
        let (start, most) =
            lost.map(|at| (at, mss)).or_else(|| self.ns3_new_data_range()).unwrap_or((una, mss));
        let Some(outgoing) = self.ns3_send(now, start, most) else { return };
        let segment = self.build_segment(now, outgoing);
        if self.has_stray_reply() {
            if let Some(sender) = self.congestion.ns3() {
                sender.ready.push_back(segment);
            }
        } else {
            self.set_stray_reply(Some(segment));
        }
    }

    /// Prepares the next retransmission that an acknowledgement requested.
    pub(in crate::tcp) fn ns3_prepare_retransmission(&mut self) {
        if let Some(segment) = self.congestion.ns3().and_then(|sender| sender.ready.pop_front()) {
            self.set_stray_reply(Some(segment));
        }
    }

    /// Returns new data within the peer's window (rule 2 of `NextSeg()`).
    fn ns3_new_data_range(&self) -> Option<(u32, u32)> {
        let room = self.wnd.saturating_sub(self.max.wrapping_sub(self.una)).min(self.mss);
        let fin = self.fin_queued && !self.fin_sent;
        (room > 0 && (seq::lt(self.nxt, self.end) || (fin && self.nxt == self.end)))
            .then_some((self.nxt, room))
    }

    /// Sends at most `most` octets from `start` (`SendDataPacket()`).
    fn ns3_send(&mut self, now: Instant, start: u32, most: u32) -> Option<OutgoingSegment> {
        let (end, nxt) = (self.end, self.nxt);
        let sender = self.congestion.ns3()?;
        sender.update_in_flight();
        let again = seq::lt(start, nxt);
        let to = if again {
            sender.cut_sent_segments(start, most)
        } else {
            start.wrapping_add(seq::octets_ahead(start, end).min(most))
        };
        let fin = if again { seq::lt(end, to) } else { to == end && self.fin_queued };
        let data_end = if again && fin { end } else { to };
        let outgoing = self.send_data(now, start, data_end.wrapping_sub(start), fin);
        let to = start.wrapping_add(outgoing.sequence_len());
        let sender = self.congestion.ns3()?;
        if !again {
            sender.sent.push_back(SentSegment {
                start,
                end: to,
                reported: false,
                lost: false,
                is_retransmitted: again,
            });
        }
        sender.record_segment_timing(now, start, to, again);
        if sender.phase == Ns3CongestionState::Recovery {
            sender.out = sender.out.wrapping_add(to.wrapping_sub(start));
        }
        Some(outgoing)
    }

    /// Returns the next permitted segment (`SendPendingData()`). A due acknowledgement precedes it.
    #[cold]
    pub(in crate::tcp) fn ns3_output(&mut self, now: Instant) -> Option<OutgoingSegment> {
        self.tail_now = self.ack_now;
        if self.ack_now {
            return None;
        }
        let (mss, end) = (self.mss, self.end.wrapping_add(u32::from(self.fin_queued)));
        let window = i64::from(self.wnd.min(self.congestion.cwnd));
        let sender = self.congestion.ns3()?;
        let available = (window - sender.update_in_flight()).max(0) as u32;
        let doubtful =
            sender.next_possibly_lost_start().filter(|_| sender.phase == Ns3CongestionState::Recovery);
        let lost = sender.next_lost();
        let next = lost
            .map(|at| (at, mss))
            .or_else(|| self.ns3_new_data_range())
            .or(doubtful.map(|at| (at, mss)))
            .filter(|_| available > 0);
        let Some((start, most)) = next else { return self.ns3_probe_closed_window(now) };
        let waiting = seq::octets_ahead(start, end);
        let silly = available < mss && waiting > available && self.config.silly_window_avoidance;
        let nagle = self.config.nagle && self.una != self.max && waiting < mss;
        if silly || nagle {
            return self.ns3_probe_closed_window(now);
        }
        let outgoing = self.ns3_send(now, start, most.min(available))?;
        // Like ns-3, attempt output again after each segment.
        self.tail_now = true;
        Some(outgoing)
    }

    /// Probes a closed window.
    fn ns3_probe_closed_window(&mut self, now: Instant) -> Option<OutgoingSegment> {
        let waits = seq::octets_ahead(self.nxt, self.end);
        let quiet = self.una == self.nxt && self.una == self.max;
        let asks = waits > 0 && quiet && (self.timer == TcpTimer::Off || self.probe_now);
        if asks { self.handle_closed_window(now, waits.min(self.wnd).min(self.mss)) } else { None }
    }

    /// Handles the retransmission timeout, and doubles it (`ReTxTimeout()`).
    #[cold]
    pub(in crate::tcp) fn ns3_handle_timeout(&mut self, now: Instant) {
        let (state, mss) = (self.ns3_state(now), self.mss);
        self.recover = self.max;
        self.dup_acks = 0;
        self.tail_now = true;
        let Some(sender) = self.congestion.ns3() else { return };
        for one in &mut sender.sent {
            one.lost |= !one.reported;
            one.is_retransmitted = false;
        }
        sender.timed.clear();
        sender.ready.clear();
        sender.repairing = true;
        sender.phase = Ns3CongestionState::Loss;
        let ssthresh = sender.cubic.on_loss(state.cwnd, mss);
        sender.cubic.on_timeout(state);
        self.congestion.ssthresh = ssthresh;
        self.congestion.set_cwnd(mss);
    }
}
