//! The two timers: delayed acknowledgement, and one for retransmission, probing or TIME-WAIT.

use super::config::LossHalves;
use super::connection::{RareTcpState, TcpConnection, TcpState, TcpTimer};
use usher_core::{CloseReason, Duration, Instant};

/// Slots of each of the wheel's levels (`LVL_SIZE`).
const SLOTS: u64 = 64;
/// A level's slots are eight times as long as those of the one below (`LVL_CLK_SHIFT`).
const SHIFT: u32 = 3;
/// Number of levels (`LVL_DEPTH` with CONFIG_HZ=250).
const LEVELS: u32 = 9;

/// Returns the expiration of a timer on Linux's wheel (`calc_wheel_index()`). The time in whole ticks, rounded
/// up, selects the first level that reaches it. The timer expires at the end of one of that level's slots.
#[cold]
pub(super) fn timer_wheel_expiry(now: Instant, wait: Duration, tick: Duration) -> Instant {
    let tick = tick.as_nanos().max(1);
    let ticks = wait.as_nanos().div_ceil(tick);
    let level =
        (1..LEVELS).take_while(|level| ticks >= (SLOTS - 1) << ((level - 1) * SHIFT)).last().unwrap_or(0);
    let slot = ((now.as_nanos() / tick).saturating_add(ticks) >> (level * SHIFT)) + 1;
    Instant::from_nanos((slot << (level * SHIFT)).saturating_mul(tick))
}

impl TcpConnection {
    /// Handles the timeout of [`poll_timeout`](Self::poll_timeout); early calls are harmless. Then drain
    /// [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit).
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.ack_at <= now {
            self.ack_at = Instant::FAR_FUTURE;
            self.ack_now = true;
            self.wake = true;
            if let (Some(acks), Some(delayed)) =
                (RareTcpState::delayed_ack_state_mut(&mut self.rare_state), self.config.delayed_ack)
            {
                acks.handle_ack_delay_expiry(delayed.timeout, self.rtt.rto(&self.config));
            }
        }
        if let Some(bbr) = self.congestion.bbr()
            && bbr.pacing_release_time() <= now
        {
            bbr.is_waiting = false;
            self.wake = true;
        }
        self.ns3_release_deferred_writes(now);
        if self.rack().is_some_and(|rack| rack.reorder_at <= now) {
            self.handle_reorder_timeout(now);
        }
        if self.rack().is_some_and(|rack| rack.probe_at <= now) {
            self.handle_tail_probe_timeout(now);
        }
        if self.timer_at > now {
            return;
        }
        match self.timer {
            TcpTimer::Off => {}
            TcpTimer::Retransmit => self.handle_retransmission_timeout(now),
            TcpTimer::Persist => self.handle_persist_timeout(),
            TcpTimer::TimeWait => {
                self.state = TcpState::Closed;
                self.stop_timer();
            }
        }
    }

    /// RFC 6298 §5.4 to §5.7, RFC 5681 §3.1.
    fn handle_retransmission_timeout(&mut self, now: Instant) {
        self.stats_mut().timeouts += 1;
        let handshake = matches!(self.state, TcpState::SynSent | TcpState::SynReceived);
        let limit =
            if handshake { self.config.max_syn_retransmissions } else { self.config.max_retransmissions };
        // RFC 9293, 3.8.3: closes after a settable number of retransmissions.
        if limit.is_some_and(|limit| self.retries >= limit) {
            self.fail(CloseReason::TimedOut);
            return;
        }
        self.retries += 1;
        // RFC 9293, 3.8.2: exponential backoff.
        self.rtt.back_off(&self.config);
        self.timed_at = Instant::FAR_FUTURE;
        if handshake {
            self.syn_timeouts = self.syn_timeouts.saturating_add(1);
            self.syn_now = true;
        } else if self.congestion.is_full_tcp() {
            self.full_tcp_handle_timeout();
        } else if self.congestion.is_ns3() {
            self.ns3_handle_timeout(now);
        } else {
            // If the same segment is lost again, the threshold is not halved again.
            if self.config.loss_halves == LossHalves::Window {
                self.reduce_threshold(0);
            } else if self.retries == 1 {
                let flight = self.max.wrapping_sub(self.una).saturating_sub(self.limited);
                if self.in_recovery {
                    // Remove the window inflation of fast recovery, because the sender had no use of it.
                    self.congestion.set_cwnd(self.congestion.ssthresh);
                }
                self.reduce_threshold(flight);
            }
            self.congestion.on_timeout(self.mss);
            // RFC 6675, 5.1: ends recovery; none begins until this data is acknowledged.
            self.in_recovery = false;
            self.recover = self.max;
            self.dup_acks = 0;
            self.limited = 0;
            // RFC 2018, 5: the peer may have dropped SACKed data.
            self.scoreboard = None;
            if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
                rack.on_timeout();
            }
            self.nxt = self.una;
            // RFC 2018, 5: retransmits the first segment, SACKed or not.
            self.resend_now = true;
        }
        self.timer_at = self.timer_expiry(now, self.rtt.rto(&self.config));
        self.wake = true;
    }

    /// RFC 9293 §3.8.6.1.
    fn handle_persist_timeout(&mut self) {
        self.stop_timer();
        if self.config.max_retransmissions.is_some_and(|limit| self.retries >= limit) {
            self.fail(CloseReason::TimedOut);
            return;
        }
        self.retries += 1;
        self.probe_now = true;
        self.wake = true;
    }

    /// Returns the expiration of a timer armed now.
    #[inline]
    pub(super) fn timer_expiry(&self, now: Instant, wait: Duration) -> Instant {
        if self.config.timer_tick.is_zero() {
            now + wait
        } else {
            timer_wheel_expiry(now, wait, self.config.timer_tick)
        }
    }

    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        self.timer = TcpTimer::Retransmit;
        self.timer_at = self.timer_expiry(now, self.rtt.rto(&self.config));
    }
    /// Arms the persist timer: the first probe after a retransmission timeout, each next one after twice the time.
    pub(super) fn arm_persist(&mut self, now: Instant) {
        let interval = self.rtt.rto(&self.config) * (1 << self.probes.min(16));
        self.timer = TcpTimer::Persist;
        self.timer_at =
            self.timer_expiry(now, interval.min(self.config.max_rto).max(Duration::from_nanos(1)));
    }
    pub(super) fn arm_time_wait(&mut self, now: Instant) {
        self.timer = TcpTimer::TimeWait;
        self.timer_at = now + self.config.time_wait;
    }
    /// Makes the next transmission restart the retransmission timer.
    pub(super) fn restart_timer_on_next_send(&mut self) {
        self.timer = TcpTimer::Off;
        self.timer_at = Instant::FAR_FUTURE;
    }
    pub(super) fn stop_timer(&mut self) {
        self.timer = TcpTimer::Off;
        self.timer_at = Instant::FAR_FUTURE;
        if let Some(rack) = RareTcpState::rack_mut(&mut self.rare_state) {
            rack.stop_timers();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::timer_wheel_expiry;
    use usher_core::{Duration, Instant};

    /// Calculated from kernel/time/timer.c with HZ=250: 62 ticks are on the first level, 63 on the second with slots
    /// of 8 ticks.
    #[test]
    fn timers_of_a_wheel_expire_late_and_never_early() {
        let ms = |ms| Duration::from_millis(ms);
        let at = |from: u64, wait: u64| {
            timer_wheel_expiry(Instant::ZERO + ms(from), ms(wait), ms(4)) - Instant::ZERO
        };
        assert_eq!(at(0, 40), ms(44), "ten ticks and the begun one");
        assert_eq!(at(3, 40), ms(44));
        assert_eq!(at(4, 40), ms(48));
        assert_eq!(at(0, 41), ms(48), "rounded up");
        assert_eq!(at(0, 248), ms(252));
        assert_eq!(at(0, 252), ms(256), "63 ticks end with the eighth slot of 32 ms");
        assert_eq!(at(4, 252), ms(288));
        assert_eq!(at(0, 2016), ms(2048), "504 ticks are the third level's, of 256 ms");
        for (from, wait) in (0..400).map(|n| (n * 7 % 1000, n * n)) {
            let late = at(from, wait).as_nanos() - ms(from + wait).as_nanos();
            assert!(late <= ms(8 + wait / 8 + wait / 16).as_nanos(), "{from} {wait}: {late}");
        }
    }
}
