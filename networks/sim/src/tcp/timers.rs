//! The two timers: delayed acknowledgement, and one for retransmission, probing or TIME-WAIT.

use super::config::LossHalves;
use super::connection::{Connection, Rare, State, Timer};
use usher_core::{CloseReason, Duration, Instant};

impl Connection {
    /// The time that [`poll_timeout`](Self::poll_timeout) asked for has come; early calls are harmless.
    /// Then drain [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ack_at <= now {
            self.ack_at = Instant::FAR_FUTURE;
            self.ack_now = true;
            self.wake = true;
            if let (Some(acks), Some(delayed)) = (Rare::acks_mut(&mut self.rare), self.config.delayed_ack) {
                acks.on_waited(delayed.timeout, self.rtt.rto(&self.config));
            }
        }
        if let Some(bbr) = self.congestion.bbr()
            && bbr.wakes_at() <= now
        {
            bbr.held = false;
            self.wake = true;
        }
        if self.rack().is_some_and(|rack| rack.reorder_at <= now) {
            self.detect_losses(now);
        }
        if self.rack().is_some_and(|rack| rack.probe_at <= now) {
            self.probe_timeout(now);
        }
        if self.timer_at > now {
            return;
        }
        match self.timer {
            Timer::Off => {}
            Timer::Retransmit => self.retransmission_timeout(now),
            Timer::Persist => self.persist_timeout(),
            Timer::TimeWait => {
                self.state = State::Closed;
                self.stop_timer();
            }
        }
    }

    /// RFC 6298 §5.4 to §5.7, RFC 5681 §3.1.
    fn retransmission_timeout(&mut self, now: Instant) {
        self.stats.timeouts += 1;
        let handshake = matches!(self.state, State::SynSent | State::SynReceived);
        let limit =
            if handshake { self.config.max_syn_retransmissions } else { self.config.max_retransmissions };
        if limit.is_some_and(|limit| self.retries >= limit) {
            self.fail(CloseReason::TimedOut);
            return;
        }
        self.retries += 1;
        self.rtt.back_off(&self.config);
        self.timed_at = Instant::FAR_FUTURE;
        if handshake {
            self.syn_timeouts = self.syn_timeouts.saturating_add(1);
            self.syn_now = true;
        } else {
            // A segment that is lost again halves nothing again.
            if self.config.loss_halves == LossHalves::Window {
                self.halve(0);
            } else if self.retries == 1 {
                let flight = self.max.wrapping_sub(self.una).saturating_sub(self.limited);
                if self.in_recovery {
                    // What fast recovery inflated the window by was never in use.
                    self.congestion.set_cwnd(self.congestion.ssthresh);
                }
                self.halve(flight);
            }
            self.congestion.on_timeout(self.mss);
            self.in_recovery = false;
            self.recover = self.max;
            self.dup_acks = 0;
            self.limited = 0;
            // RFC 2018 §8: the other side may have dropped what it SACKed.
            self.scoreboard = None;
            if let Some(rack) = Rare::rack_mut(&mut self.rare) {
                rack.on_timeout();
            }
            self.nxt = self.una;
            self.resend_now = true;
        }
        self.timer_at = now + self.rtt.rto(&self.config);
        self.wake = true;
    }

    /// RFC 9293 §3.8.6.1.
    fn persist_timeout(&mut self) {
        self.stop_timer();
        if self.config.max_retransmissions.is_some_and(|limit| self.retries >= limit) {
            self.fail(CloseReason::TimedOut);
            return;
        }
        self.retries += 1;
        self.probe_now = true;
        self.wake = true;
    }

    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        self.timer = Timer::Retransmit;
        self.timer_at = now + self.rtt.rto(&self.config);
    }
    /// The first probe leaves a retransmission timeout after the window closed, the next ones after twice
    /// the time each.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        let interval = self.rtt.rto(&self.config) * (1 << self.probes.min(16));
        self.timer = Timer::Persist;
        self.timer_at = now + interval.min(self.config.max_rto).max(Duration::from_nanos(1));
    }
    pub(super) fn arm_time_wait(&mut self, now: Instant) {
        self.timer = Timer::TimeWait;
        self.timer_at = now + self.config.time_wait;
    }
    /// What is sent next arms the retransmission timer anew.
    pub(super) fn rearm_by_sending(&mut self) {
        self.timer = Timer::Off;
        self.timer_at = Instant::FAR_FUTURE;
    }
    pub(super) fn stop_timer(&mut self) {
        self.timer = Timer::Off;
        self.timer_at = Instant::FAR_FUTURE;
        if let Some(rack) = Rare::rack_mut(&mut self.rare) {
            rack.stop();
        }
    }
}
