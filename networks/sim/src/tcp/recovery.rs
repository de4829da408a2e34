//! Acknowledgements: window, congestion control and loss recovery.

use super::config::{BackoffReset, LossHalves, LossRecoveryAlgorithm, RtoRestart, WindowGrowth};
use super::connection::{RareTcpState, TcpConnection, TcpState, TcpTimer};
use super::cubic::CubicAck;
use super::reduction::ProportionalRateReduction;
use super::scoreboard::SackLossRule;
use super::segment::{Segment, SegmentFlags, timestamp_value};
use super::{bbr, seq};
use usher_core::{CloseReason, Duration, Instant};

impl TcpConnection {
    /// Handles the segment's acknowledgement and window (RFC 9293 §3.10.7.4, fifth check). False drops the rest.
    #[inline]
    pub(super) fn handle_ack(&mut self, now: Instant, s: &Segment) -> bool {
        let ack = s.ack;
        if seq::lt(self.max, ack) || seq::lt(ack, self.una.wrapping_sub(self.max_wnd)) {
            // RFC 5961, 5.2: drops and answers an acknowledgement of unsent or too old data.
            self.stats_mut().unacceptable += 1;
            self.queue_challenge_ack(now);
            return false;
        }
        let (old_wnd, news) = (self.wnd, seq::lt(self.una, ack));
        let (before, recovering) = (self.una, self.in_recovery);
        self.update_window(s);
        if self.congestion.is_full_tcp() {
            self.full_tcp_handle_ack(now, s);
            return self.state != TcpState::Closed;
        }
        if self.congestion.is_ns3() {
            self.ns3_ack(now, s);
            return self.state != TcpState::Closed;
        }
        let mut sacked = 0;
        if let Some(options) = &s.options
            && self.sack_ok
            && !options.sack.is_empty()
        {
            let board = self.scoreboard.get_or_insert_default();
            sacked = board.add_sack_blocks(seq::max(self.una, ack), self.max, options.sack.as_slice());
        }
        if news {
            self.handle_new_ack(now, s);
        }
        let empty = s.len == 0 && !s.flags.intersects(SegmentFlags::FIN | SegmentFlags::SYN);
        let alone = empty && !news && ack == self.una;
        let duplicate = if self.sack_ok {
            // RFC 6675, 5 and RFC 3042, 2: new SACK blocks decide, in a new or old acknowledgement.
            sacked > 0 && (alone || self.config.advancing_duplicates)
        } else {
            // RFC 5681, 2: without data, news or a new window.
            alone && self.wnd == old_wnd
        };
        if duplicate && self.una != self.max && self.timer != TcpTimer::Persist {
            self.handle_duplicate_ack();
        }
        if self.rack().is_some() && self.timer != TcpTimer::Persist {
            self.update_rack_by_ack(now, s, before, recovering);
        }
        if self.wnd == 0 {
            // RFC 9293, 3.8.6.1: a closed window of a live peer does not end the connection.
            self.retries = 0;
        }
        if !self.congestion.is_reno() {
            self.update_bbr_by_ack(now);
        }
        self.state != TcpState::Closed
    }

    /// BBR handles every acknowledgement, also in recovery.
    #[cold]
    fn update_bbr_by_ack(&mut self, now: Instant) {
        let flight = self.max.wrapping_sub(self.una);
        let above = if self.sack_ok {
            self.scoreboard.as_ref().map_or(0, |b| b.sacked_octets())
        } else {
            self.dup_acks.saturating_mul(self.mss).min(flight)
        };
        let (una, mss, cwnd, recovering) = (self.una, self.mss, self.congestion.cwnd, self.in_recovery);
        if let Some(bbr) = self.congestion.bbr() {
            let flight = flight.saturating_sub(above);
            let next = bbr.on_ack(bbr::BbrAck { now, una, above, flight, mss, recovering, cwnd });
            self.congestion.set_cwnd(next);
            self.wake = true;
        }
    }

    #[inline]
    fn update_window(&mut self, s: &Segment) {
        let newer = seq::lt(self.wl1, s.seq) || (self.wl1 == s.seq && seq::le(self.wl2, s.ack));
        if !newer || seq::lt(s.ack, self.una) {
            return;
        }
        self.set_send_window(s);
    }

    /// Sets SND.WND, SND.WL1 and SND.WL2 from a segment; the window of a SYN is not scaled (RFC 7323 §2.2).
    #[inline]
    pub(super) fn set_send_window(&mut self, s: &Segment) {
        let scale = if s.flags.contains(SegmentFlags::SYN) { 0 } else { self.snd_scale };
        // RFC 9293, 3.1: the window is unsigned.
        let wnd = u32::from(s.window) << scale;
        self.wl1 = s.seq;
        self.wl2 = s.ack;
        if wnd != self.wnd {
            self.wnd = wnd;
            self.max_wnd = self.max_wnd.max(wnd);
            self.wake = true;
        }
    }

    #[inline]
    pub(super) fn handle_new_ack(&mut self, now: Instant, s: &Segment) {
        let ack = s.ack;
        let acked = ack.wrapping_sub(self.una);
        let held = self.rtt.rto(&self.config);
        if self.retries > 0 && self.config.backoff_reset == BackoffReset::EitherAcknowledgement {
            self.rtt.reset_rto_backoff(&self.config);
        }
        let counted =
            self.segment_counting_rack().map(|rack| (rack.newly_acknowledged(ack), rack.in_flight(self.max)));
        self.measure_rtt(now, s);
        let backed_off = self.release_acknowledged(ack);
        if let Some(board) = &mut self.scoreboard {
            board.advance_to(ack);
            if board.is_empty() && !self.in_recovery {
                self.scoreboard = None;
            }
        }
        let restart = if self.in_recovery {
            self.handle_recovery_ack(acked)
        } else {
            match counted {
                None if self.congestion.is_reno() => self.grow_window(acked),
                None => {
                    let flight = self.max.wrapping_sub(self.una).saturating_add(acked);
                    self.on_ack_timed(now, acked, flight);
                }
                Some((acked, in_flight)) => self.grow_counted_window(now, acked, in_flight),
            }
            true
        };
        if !self.in_recovery && seq::lt(self.recover, ack) {
            self.recover = ack.wrapping_sub(1);
        }
        // RFC 6675, 5: an acknowledgement of new data restarts the count.
        self.dup_acks = 0;
        self.limited = 0;
        // RFC 6298, 5.2 and 5.3: stops the timer without data in flight, else restarts it.
        if self.una == self.max {
            self.stop_timer();
        } else if restart && self.timer == TcpTimer::Retransmit {
            let rto = match self.config.rto_restart {
                RtoRestart::NewTimeout => self.rtt.rto(&self.config),
                RtoRestart::OldTimeout => held,
            };
            self.timer_at = self.timer_expiry(now, rto);
        }
        if backed_off && self.config.backoff_reset == BackoffReset::Acknowledgement {
            self.rtt.reset_rto_backoff(&self.config);
        }
        // The acknowledgement may permit pending data now.
        self.wake |= self.nxt != self.end.wrapping_add(u32::from(self.fin_sent)) || self.resend_now;
        if self.fin_sent && self.una == self.end.wrapping_add(1) {
            self.handle_acknowledged_fin(now);
        }
    }

    /// Releases data before `ack`; true if the timer had expired for it.
    #[inline]
    pub(super) fn release_acknowledged(&mut self, ack: u32) -> bool {
        self.una = ack;
        self.nxt = seq::max(self.nxt, ack);
        // RFC 2018, 8 and RFC 6675, 4: keeps SACKed data until it is acknowledged.
        if let Some(buffer) = &mut self.send_buffer {
            buffer.release_before(ack);
            if buffer.is_empty() {
                self.send_buffer = None;
            }
        }
        std::mem::take(&mut self.retries) > 0
    }

    #[inline]
    fn grow_window(&mut self, acked: u32) {
        match self.config.window_growth {
            WindowGrowth::Bytes => self.congestion.on_ack(acked, self.mss),
            WindowGrowth::Acknowledgements => self.congestion.grow_by_counted_ack(self.mss),
        }
    }

    /// Grows a full window counted in segments, by acknowledged and in-flight segments.
    #[cold]
    fn grow_counted_window(&mut self, now: Instant, acked: u32, in_flight: u32) {
        let bytes = |segments: u32| segments.saturating_mul(self.mss);
        let (acked, flight) = (bytes(acked), bytes(in_flight));
        if !self.congestion.is_reno() {
            self.on_ack_timed(now, acked, flight);
        } else if flight >= self.congestion.cwnd {
            self.grow_window(acked);
        }
    }

    /// Sets the slow-start threshold after a loss with `flight` octets in flight.
    pub(super) fn reduce_threshold(&mut self, flight: u32) {
        if self.config.loss_halves == LossHalves::Window && self.congestion.is_reno() {
            self.congestion.reduce_by_usable_window(self.congestion.cwnd.min(self.wnd), self.mss);
        } else if self.segment_counting_rack().is_some() {
            self.congestion.on_loss(self.congestion.cwnd, self.mss);
            self.congestion.ssthresh -= self.congestion.ssthresh % self.mss;
        } else {
            self.congestion.on_loss(flight, self.mss);
        }
    }

    #[cold]
    fn on_ack_timed(&mut self, now: Instant, bytes: u32, flight: u32) {
        self.congestion.on_ack_timed(CubicAck {
            now,
            bytes,
            flight,
            mss: self.mss,
            srtt: self.rtt.srtt().unwrap_or_default(),
            counted: self.segment_counting_rack().is_some(),
        });
    }

    pub(super) fn handle_acknowledged_fin(&mut self, now: Instant) {
        match self.state {
            TcpState::FinWait1 => self.state = TcpState::FinWait2,
            TcpState::Closing => self.enter_time_wait(now),
            TcpState::LastAck => {
                self.state = TcpState::Closed;
                self.pending.closed = Some(CloseReason::Closed);
            }
            _ => {}
        }
    }

    /// Takes a round-trip measurement if possible: never from a retransmission (Karn), or from any acknowledgement
    /// that echoes a timestamp (RFC 7323 §4).
    #[inline]
    fn measure_rtt(&mut self, now: Instant, s: &Segment) {
        if self.timestamps.is_some() {
            let Some((_, echo)) = s.options.as_ref().and_then(|o| o.timestamps) else { return };
            let ticks = timestamp_value(now).wrapping_sub(echo);
            if ticks < 1 << 31 {
                let flight = u64::from(self.max.wrapping_sub(self.una));
                let per_window = flight.div_ceil(2 * u64::from(self.mss));
                self.rtt.add_sample(&self.config, Duration::from_millis(ticks.into()), per_window);
                self.mark_rtt_measured();
            }
        } else if self.timed_at != Instant::FAR_FUTURE && seq::lt(self.timed_seq, s.ack) {
            self.rtt.add_sample(&self.config, self.measured_round_trip(now), 1);
            self.timed_at = Instant::FAR_FUTURE;
            self.mark_rtt_measured();
        }
    }

    /// Returns the elapsed time of the current measurement, in ticks if the clock has them. The phase of the ticks
    /// differs between connections.
    pub(super) fn measured_round_trip(&self, now: Instant) -> Duration {
        self.tick_rounded_time(self.timed_at, now).max(self.config.rtt_tick)
    }

    /// Returns the time between two instants, in ticks if the clock has them.
    pub(super) fn tick_rounded_time(&self, from: Instant, to: Instant) -> Duration {
        let tick = self.config.rtt_tick.as_nanos();
        if tick == 0 {
            return to - from;
        }
        let phase = u64::from(self.iss) % tick;
        let count = |at: Instant| (at.as_nanos() + phase) / tick;
        Duration::from_nanos((count(to) - count(from)) * tick)
    }

    /// Handles new data acknowledged in fast recovery; true if the timer restarts.
    fn handle_recovery_ack(&mut self, acked: u32) -> bool {
        // RFC 6675, 5: recovery ends when all earlier data is acknowledged.
        let full = seq::le(self.recover, self.una);
        let mss = self.mss;
        if self.sack_ok {
            self.in_recovery = !full;
            if full
                && let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state)
                && rack.reduction.take().is_some()
            {
                self.congestion.set_cwnd(self.congestion.ssthresh);
            }
            if full && self.scoreboard.as_ref().is_some_and(|b| b.is_empty()) {
                self.scoreboard = None;
            }
            self.wake = true;
            return true;
        }
        if self.config.recovery == LossRecoveryAlgorithm::Reno {
            // RFC 5681, 3.2 step 6: deflates the window.
            self.congestion.set_cwnd(self.congestion.ssthresh);
            self.in_recovery = false;
            if self.config.window_growth == WindowGrowth::Acknowledgements {
                self.grow_window(acked);
            }
            return true;
        }
        if full {
            // RFC 6582, 3.2 step 3, option 1: no burst with little data in flight.
            let flight = self.max.wrapping_sub(self.una);
            self.congestion.set_cwnd(self.congestion.ssthresh.min(flight.max(mss) + mss));
            self.in_recovery = false;
            return true;
        }
        let deflated = self.congestion.cwnd.saturating_sub(acked) + if acked >= mss { mss } else { 0 };
        self.congestion.set_cwnd(deflated.max(mss));
        self.resend_now = true;
        !std::mem::replace(&mut self.partial_seen, true)
    }

    pub(super) fn loss_rule(&self) -> SackLossRule {
        SackLossRule { threshold: self.config.dup_threshold, mss: self.mss }
    }

    fn handle_duplicate_ack(&mut self) {
        self.stats_mut().duplicate_acks += 1;
        self.dup_acks += 1;
        self.wake = true;
        if self.in_recovery {
            if !self.sack_ok {
                // RFC 5681, 3.2 step 4: inflates the window by a segment.
                self.congestion.set_cwnd(self.congestion.cwnd + self.mss);
            }
            return;
        }
        if self.by_time() {
            return;
        }
        let threshold = u32::from(self.config.dup_threshold);
        let lost = if self.sack_ok {
            let sure = self.scoreboard.as_ref().is_some_and(|b| b.first_is_lost(self.una, self.loss_rule()));
            (self.dup_acks >= threshold || sure) && seq::le(self.recover, self.una)
        } else {
            // RFC 6582, 3.2 step 2: ignore duplicates of data that a timeout retransmitted.
            self.dup_acks == threshold
                && (seq::lt(self.recover, self.una)
                    || (self.config.recovery == LossRecoveryAlgorithm::Reno && !self.config.reno_recover))
        };
        if lost {
            self.enter_recovery();
        }
    }

    pub(super) fn enter_recovery(&mut self) {
        self.stats_mut().fast_retransmits += 1;
        // RFC 5681, 3.2 step 2: data of limited transmit does not count as in flight.
        let flight = self.max.wrapping_sub(self.una).saturating_sub(self.limited);
        let before = self.congestion.cwnd;
        self.reduce_threshold(flight);
        if self.config.fast_retransmit_restarts && !self.by_time() {
            // With RACK, the first segment may not be lost, so that perhaps no segment is sent. Then its timer must not
            // restart.
            self.restart_timer_on_next_send();
        }
        // RFC 5681, 4.3: the threshold falls once per window of data.
        self.recover = self.max;
        self.in_recovery = true;
        self.partial_seen = false;
        self.limited = 0;
        self.timed_at = Instant::FAR_FUTURE;
        self.resend_now = true;
        if self.sack_ok {
            let (mss, ssthresh) = (self.mss, self.congestion.ssthresh);
            match RareTcpState::rack_mut(&mut self.rare_state)
                .filter(|rack| rack.counts && self.config.rate_reduction)
            {
                Some(rack) => {
                    rack.reduction = Some(ProportionalRateReduction::new(before / mss, ssthresh / mss))
                }
                None => self.congestion.set_cwnd(ssthresh),
            }
            self.scoreboard.get_or_insert_default().start_recovery(self.una);
        } else {
            let left_the_network = u32::from(self.config.dup_threshold) * self.mss;
            // RFC 5681, 3.2 step 3: inflates the window.
            self.congestion.set_cwnd(self.congestion.ssthresh + left_the_network);
        }
    }
}
