//! Loss detection of a connection by time.

use super::{RareTcpState, TcpConnection, TcpState, TcpTimer};
use crate::tcp::config::WindowUnit;
use crate::tcp::output::OutgoingSegment;
use crate::tcp::rack::{LEAST, Rack, RackAckReport, UNMEASURED};
use crate::tcp::segment::Segment;
use crate::tcp::seq;
use crate::tcp::timers::timer_wheel_expiry;
use usher_core::Instant;

impl TcpConnection {
    /// Starts RACK on an established connection if the settings require it.
    pub(in crate::tcp) fn start_rack_if_enabled(&mut self) {
        let counts = self.config.window_unit == WindowUnit::Segments && self.congestion.bbr().is_none();
        if self.sack_ok && (self.config.rack || self.config.tail_loss_probe || counts) {
            let rack = Rack::new(self.una, self.rtt.srtt(), counts);
            self.rare_state.get_or_insert_default().rack = Some(rack);
        }
    }

    /// Records a round-trip measurement, after which a probe may be sent.
    #[inline]
    pub(in crate::tcp) fn mark_rtt_measured(&mut self) {
        if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
            rack.measured = true;
        }
    }

    /// Returns the record if the congestion window counts segments.
    #[inline]
    pub(in crate::tcp) fn segment_counting_rack(&self) -> Option<&Rack> {
        if self.config.window_unit == WindowUnit::Bytes {
            return None;
        }
        self.rack().filter(|rack| rack.counts)
    }

    /// True if RACK, not the duplicate threshold, detects losses.
    #[inline]
    pub(in crate::tcp) fn by_time(&self) -> bool {
        self.config.rack && self.rack().is_some()
    }

    /// Handles an acknowledgement after the scoreboard. `before` is the previous acknowledgement; `recovering` is
    /// true in a recovery.
    #[cold]
    pub(in crate::tcp) fn update_rack_by_ack(
        &mut self,
        now: Instant,
        s: &Segment,
        before: u32,
        recovering: bool,
    ) {
        let echo = s.options.as_ref().and_then(|o| o.timestamps).map(|(_, echo)| echo);
        let (una, next, news) = (self.una, self.max, self.una != before);
        let first = s.options.as_ref().and_then(|o| o.sack.as_slice().first().copied());
        let duplicate = first.filter(|&(left, _)| seq::lt(left, s.ack)).map(|(_, right)| right);
        let recovered = recovering && !self.in_recovery;
        let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) else { return };
        let delivered = rack.on_ack(&RackAckReport { now, una, echo }, self.scoreboard.as_deref());
        rack.adapt_reordering_window(una, next, duplicate.is_some(), recovered);
        if rack.finish_tail_loss_probe(s, before, duplicate) && !recovering {
            let flight = self.max.wrapping_sub(before);
            self.reduce_threshold(flight);
            self.congestion.set_cwnd(self.congestion.cwnd.min(self.congestion.ssthresh));
        }
        if self.una == self.max {
            if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
                rack.stop_timers();
            }
            return;
        }
        let lost = self.detect_losses(now);
        if delivered > 0 {
            self.update_recovery_window(delivered, news && !lost);
        }
        if news {
            self.schedule_tail_loss_probe(now);
        }
    }

    /// RACK_detect_loss_and_arm_timer() of §6.2, at the timer's expiration.
    pub(in crate::tcp) fn handle_reorder_timeout(&mut self, now: Instant) {
        let recovering = self.in_recovery;
        self.detect_losses(now);
        if !recovering {
            self.update_recovery_window(1, false);
        }
    }

    /// Updates the window after deliveries in a recovery.
    fn update_recovery_window(&mut self, delivered: u32, progress: bool) {
        let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) else { return };
        let flight = rack.in_flight(self.max);
        let Some(reduction) = &mut rack.reduction else { return };
        let more = reduction.update_rate_reduction(delivered, flight, progress);
        self.congestion.set_cwnd((flight + more).saturating_mul(self.mss));
        self.wake = true;
    }

    /// RACK_detect_loss_and_arm_timer() of §6.2; true if more segments count as lost.
    fn detect_losses(&mut self, now: Instant) -> bool {
        let recovering = self.in_recovery || seq::lt(self.una, self.recover);
        let (threshold, srtt) = (self.config.dup_threshold, self.rtt.srtt());
        let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state).filter(|_| self.config.rack) else {
            return false;
        };
        let window = rack.reordering_window(recovering, threshold, srtt);
        let found = rack.detect_losses(now, window);
        if rack.reorder_at != Instant::FAR_FUTURE {
            let tick = self.config.timer_tick;
            if !tick.is_zero() {
                rack.reorder_at = timer_wheel_expiry(now, rack.reorder_at - now + LEAST, tick);
            }
            rack.probe_at = Instant::FAR_FUTURE;
        } else if found {
            rack.probe_at = Instant::FAR_FUTURE;
        }
        if !found {
            return false;
        }
        let first = rack.first_is_lost();
        self.wake = true;
        if !self.in_recovery && seq::le(self.recover, self.una) {
            rack.probe_end = None;
            self.enter_recovery();
            self.resend_now = first;
        } else if !self.in_recovery {
            // After a timeout all data is sent again in order. Segments of it that RACK finds lost again go first.
            self.resend_now |= first;
        }
        true
    }

    /// §7.2: schedules a probe after new data and after its acknowledgement.
    pub(in crate::tcp) fn schedule_tail_loss_probe(&mut self, now: Instant) {
        let quiet = !self.in_recovery && !seq::lt(self.una, self.recover) && self.scoreboard.is_none();
        let wanted = self.config.tail_loss_probe && quiet && self.timer == TcpTimer::Retransmit;
        let synchronized = !matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        let (srtt, slack, rto_at) = (self.rtt.srtt(), self.config.min_rto, self.timer_at);
        if !wanted || !synchronized {
            if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
                rack.probe_at = Instant::FAR_FUTURE;
            }
            return;
        }
        let alone = self.rack().is_some_and(|rack| rack.sent.len() == 1);
        let wait = match srtt {
            // The acknowledgement of a single segment may be delayed, so allow for that delay.
            Some(srtt) => srtt * 2 + if alone { slack } else { LEAST },
            None => UNMEASURED,
        };
        let at = self.timer_expiry(now, wait);
        let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) else { return };
        rack.probe_at = at.min(rto_at);
    }

    /// TLP_send_probe() of §7.3, the part at the timer's expiration.
    pub(in crate::tcp) fn handle_tail_probe_timeout(&mut self, now: Instant) {
        let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) else { return };
        rack.probe_at = Instant::FAR_FUTURE;
        if rack.probe_end.is_none() && rack.measured && self.una != self.max {
            self.tail_now = true;
            self.wake = true;
            self.arm_retransmission(now);
        }
    }

    /// Returns the probe: the next segment, regardless of the congestion window and Nagle, or the last one again.
    #[cold]
    pub(in crate::tcp) fn next_tail_probe_segment(&mut self, now: Instant) -> Option<OutgoingSegment> {
        let room = self.max_payload();
        let window = self.wnd.saturating_sub(self.nxt.wrapping_sub(self.una));
        let len = seq::octets_ahead(self.nxt, self.end).min(window).min(room);
        let again = len == 0;
        let outgoing = if again {
            let (start, end) = self.rack()?.last_segment()?;
            let fin = self.fin_sent && seq::lt(self.end, end);
            let data_end = seq::min(end, self.end);
            let start = if data_end.wrapping_sub(start) > room { data_end.wrapping_sub(room) } else { start };
            self.send_data(now, start, seq::octets_ahead(start, data_end), fin)
        } else {
            let fin = self.fin_queued && self.nxt.wrapping_add(len) == self.end;
            self.send_data(now, self.nxt, len, fin)
        };
        let end = self.max;
        if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
            rack.record_tail_loss_probe(end, again);
        }
        Some(outgoing)
    }
}
