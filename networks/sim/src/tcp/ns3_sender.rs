//! ns-3's TCP sender with SACK, CUBIC and proportional rate reduction (tcp-socket-base.cc, tcp-tx-buffer.cc and
//! tcp-prr-recovery.cc of ns-3.37).
//!
//! It counts segments as sent: one is lost after three above it are SACKed, however small they are.
//! `docs/reference/transports.md` lists its other differences from RFC 6675.

use super::connection::{TcpConnection, TcpTimer};
use super::ns3_cubic::{Ns3Cubic, Ns3WindowState};
use super::output::OutgoingSegment;
use super::recovery::timestamp_value;
use super::segment::Segment;
use super::seq;
use std::collections::VecDeque;
use usher_core::{Duration, Instant};

/// `TcpCongState_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Ns3CongestionState {
    #[default]
    Open,
    Disorder,
    Recovery,
    Loss,
}

/// A segment in flight (`TcpTxItem`).
#[derive(Clone, Copy, Debug)]
struct SentSegment {
    start: u32,
    end: u32,
    reported: bool,
    lost: bool,
    /// True if it was retransmitted after the last timeout.
    is_retransmitted: bool,
}

impl SentSegment {
    fn len(&self) -> u32 {
        self.end.wrapping_sub(self.start)
    }
    /// Returns its copies in flight: a retransmission adds one, a SACK or a loss subtracts one.
    fn copies_in_flight(&self) -> i64 {
        1 + i64::from(self.is_retransmitted) - i64::from(self.reported) - i64::from(self.lost)
    }
}

/// A segment for round-trip measurement (`RttHistory`).
#[derive(Clone, Copy, Debug)]
struct RttTimedSegment {
    start: u32,
    end: u32,
    sent_at: Instant,
    is_retransmitted: bool,
}

/// State beside that of every connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Ns3Sender {
    sent: VecDeque<SentSegment>,
    /// Start of the highest SACKed segment, or of one SACKed later that ends there (`m_highestSack`).
    highest: Option<u32>,
    timed: VecDeque<RttTimedSegment>,
    phase: Ns3CongestionState,
    /// True until the recovery point is acknowledged (`m_recoverActive`).
    repairing: bool,
    /// True after a partial acknowledgement in this recovery (the inverse of `m_isFirstPartialAck`).
    has_partial_ack: bool,
    /// Acknowledged octets below a whole segment (`m_bytesAckedNotProcessed`).
    rest: u32,
    /// Octets in flight at the last update (`m_bytesInFlight`).
    in_flight: i64,
    /// `m_prrDelivered`, `m_prrOut` and `m_recoveryFlightSize`, in octets.
    delivered: u32,
    out: u32,
    flight_before: u32,
    cubic: Ns3Cubic,
    /// Further retransmissions that an acknowledgement requested, beside the first.
    ready: VecDeque<Segment>,
    /// When written data is sent, unless another event sends it before (`m_sendPendingDataEvent`).
    pub(super) written_at: Option<Instant>,
}

impl Ns3Sender {
    /// `BytesInFlight()`.
    fn update_in_flight(&mut self) -> i64 {
        self.in_flight = self.sent.iter().map(|one| one.copies_in_flight() * i64::from(one.len())).sum();
        self.in_flight
    }
    /// Records SACK blocks; returns the number of new octets (`Update()`, `UpdateLostCount()`).
    fn record_sacked(&mut self, blocks: &[(u32, u32)], threshold: u32) -> u32 {
        let mut news = 0;
        for &(left, right) in blocks {
            let covered = |one: &&mut SentSegment| seq::le(left, one.start) && seq::le(one.end, right);
            for one in self.sent.iter_mut().filter(covered).filter(|one| !one.reported) {
                (one.reported, one.lost) = (true, false);
                news += one.len();
                if self.highest.is_none_or(|highest| seq::le(highest, one.end)) {
                    self.highest = Some(one.start);
                }
            }
        }
        if let Some(highest) = self.highest.filter(|_| news > 0) {
            let mut above = 0;
            for one in self.sent.iter_mut().rev().filter(|one| seq::le(one.start, highest)) {
                above += u32::from(one.reported);
                one.lost |= above >= threshold && !one.reported;
            }
        }
        news
    }
    /// Drops acknowledged segments; returns their octets that were not SACKed (`DiscardUpTo()`).
    fn discard_acked(&mut self, ack: u32) -> u32 {
        let mut news = 0;
        while let Some(first) = self.sent.front_mut()
            && seq::lt(first.start, ack)
        {
            if seq::lt(ack, first.end) {
                first.start = ack;
                break;
            }
            news += if first.reported { 0 } else { first.len() };
            self.sent.pop_front();
        }
        self.highest = self.highest.filter(|highest| seq::lt(ack, *highest));
        news
    }
    /// True if a retransmission ends here and is not SACKed (`IsRetransmittedDataAcked()`).
    fn is_unsacked_retransmission_end(&self, end: u32) -> bool {
        self.sent.iter().any(|one| one.end == end && one.is_retransmitted && !one.reported)
    }
    /// True if the first lost or SACKed segment from `at` on is a lost one (`IsLost()`).
    fn is_lost(&self, at: u32) -> bool {
        let mut above = self.sent.iter().filter(|one| seq::le(at, one.start));
        self.highest.is_some_and(|highest| seq::lt(at, highest))
            && above.find(|one| one.lost || one.reported).is_some_and(|one| one.lost)
    }
    /// Returns the first lost segment that was not retransmitted (rule 1 of `NextSeg()`).
    fn next_lost(&self) -> Option<u32> {
        self.sent.iter().find(|one| one.lost && !one.is_retransmitted && !one.reported).map(|one| one.start)
    }
    /// Returns the first segment that may be lost (rule 3).
    fn next_possibly_lost_start(&self) -> Option<u32> {
        self.sent.iter().find(|one| !one.is_retransmitted && !one.reported).map(|one| one.start)
    }
    /// Cuts at most `most` octets from `start`, from at most two segments, and returns their end
    /// (`GetTransmittedSegment()`).
    fn cut_sent_segments(&mut self, start: u32, most: u32) -> u32 {
        let at = self.sent.partition_point(|one| seq::lt(one.start, start));
        let Some(&one) = self.sent.get(at) else { return start };
        let next = self.sent.get(at + 1).filter(|next| !next.reported && next.lost == one.lost).copied();
        let len = most.min(one.len() + next.map_or(0, |next| next.len()));
        if len > one.len()
            && let Some(next) = next
        {
            self.sent[at] = SentSegment {
                end: next.end,
                is_retransmitted: one.is_retransmitted && next.is_retransmitted,
                ..one
            };
            self.sent.remove(at + 1);
        }
        let (whole, end) = (self.sent[at], start.wrapping_add(len));
        if end != whole.end {
            self.sent.insert(at + 1, SentSegment { start: end, ..whole });
        }
        self.sent[at] = SentSegment { end, is_retransmitted: true, ..whole };
        end
    }
    /// Returns the congestion window of a recovery (`TcpPrrRecovery::DoRecovery()`). Its numbers are unsigned: a
    /// negative one wraps to a large one.
    fn reduced_window(&mut self, delivered: u32, ssthresh: u32, mss: u32, repaired: bool) -> u32 {
        self.delivered = self.delivered.wrapping_add(delivered);
        let room = i64::from(ssthresh) - self.in_flight;
        let may = if room < 0 {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            share.div_ceil(u64::from(self.flight_before.max(1))) as i64 - i64::from(self.out)
        } else {
            let limit = if repaired {
                self.delivered.wrapping_sub(self.out).max(delivered).wrapping_add(mss)
            } else {
                delivered
            };
            i64::from(limit as i32).min(room)
        };
        let least = if self.out > 0 { 0 } else { mss };
        (self.in_flight + may.max(i64::from(least))).max(0) as u32
    }
    /// `UpdateRttHistory()`.
    fn record_segment_timing(&mut self, now: Instant, start: u32, end: u32, again: bool) {
        if !again {
            self.timed.push_back(RttTimedSegment { start, end, sent_at: now, is_retransmitted: again });
        } else if let Some(one) =
            self.timed.iter_mut().find(|one| seq::le(one.start, start) && seq::lt(start, one.end))
        {
            one.is_retransmitted = true;
            one.end = end;
        }
    }
}

impl TcpConnection {
    /// True if written data waits until all events of this instant are handled: ns-3 sends it a nanosecond later, in
    /// as few segments as possible.
    pub fn defer_written_data(&mut self, now: Instant) -> bool {
        let Some(sender) = self.congestion.ns3() else { return false };
        sender.written_at.get_or_insert(now);
        true
    }

    /// Sends written data.
    pub(super) fn ns3_release_deferred_writes(&mut self, now: Instant) {
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
    pub(super) fn ns3_ack(&mut self, now: Instant, s: &Segment) {
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
    pub(super) fn ns3_prepare_retransmission(&mut self) {
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
    pub(super) fn ns3_output(&mut self, now: Instant) -> Option<OutgoingSegment> {
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
    pub(super) fn ns3_handle_timeout(&mut self, now: Instant) {
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
