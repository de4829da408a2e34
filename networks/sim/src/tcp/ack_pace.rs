//! Linux's delayed acknowledgements: quick-ack mode, the dialogue that ends it, and the delay by the sender's
//! rate (net/ipv4/tcp_input.c, tcp_output.c, tcp_timer.c and tcp.c of Linux 6.18).

use super::connection::{RareTcpState, TcpConnection};
use usher_core::{Duration, Instant};

/// Most immediate acknowledgements at the start of a connection, or after silence or duplicate data
/// (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// Maximum delay of a one-way connection without a round-trip measurement.
const MAX_ONE_WAY_DELAY: Duration = Duration::from_millis(500);

/// A receiver's estimate of the sender's rate.
#[derive(Debug, Default)]
pub(super) struct DelayedAckState {
    /// Delay of an acknowledgement by the rate (`icsk_ack.ato`); zero before the first data.
    ato: Duration,
    /// Time of the last data in order.
    last_data_at: Instant,
    /// Immediate acknowledgements left (`icsk_ack.quick`).
    quick: u8,
    /// True if data in both directions alternates: an acknowledgement will have data to ride on
    /// (`icsk_ack.pingpong`).
    dialogue: bool,
    /// Segments that ended a write since the last acknowledgement, at most 2 (`ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    small: u8,
}

impl DelayedAckState {
    /// Requires immediate acknowledgements: half as many as the window has segments.
    fn require_immediate_acks(&mut self, window: u32, segment: u32) {
        let quick = (window / (2 * segment.max(1))).clamp(2, QUICK);
        self.quick = self.quick.max(quick as u8);
    }
    /// Handles data in order (`tcp_event_data_recv()`).
    fn on_data(&mut self, now: Instant, least: Duration, rto: Duration, window: u32, segment: u32) {
        if self.ato.is_zero() {
            self.require_immediate_acks(window, segment);
            self.ato = least;
        } else {
            let gap = now - self.last_data_at;
            if gap <= least / 2 {
                self.ato = self.ato / 2 + least / 2;
            } else if gap < self.ato {
                self.ato = (self.ato / 2 + gap).min(rto);
            } else if gap > rto {
                self.require_immediate_acks(window, segment);
            }
        }
        self.last_data_at = now;
    }
    /// Returns the current delay of an acknowledgement (`tcp_send_delayed_ack()`).
    fn ack_delay(&self, least: Duration, most: Option<Duration>, srtt: Option<Duration>) -> Duration {
        let Some(most) = most else { return least };
        let (most, mut ato) = (most.max(least), self.ato);
        if ato > least {
            let bound = if self.dialogue || self.small > 0 { most } else { MAX_ONE_WAY_DELAY };
            ato = ato.min(srtt.map_or(bound, |srtt| srtt.max(least).min(bound)));
        }
        ato.min(most)
    }
    /// Handles a sent acknowledgement; `due` if one was pending (`tcp_dec_quickack_mode()`).
    pub(super) fn on_acknowledged(&mut self, due: bool, least: Duration) {
        self.small = 0;
        if due && self.quick > 0 {
            self.quick -= 1;
            if self.quick == 0 {
                self.ato = least;
            }
        }
    }
    /// Handles sent data, a reply if soon after received data (`tcp_event_data_sent()`).
    pub(super) fn update_dialogue_on_send(&mut self, now: Instant) {
        self.dialogue |= now - self.last_data_at < self.ato;
    }
    /// Handles an expired delay without data to ride on (`tcp_delack_timer_handler()`).
    pub(super) fn handle_ack_delay_expiry(&mut self, least: Duration, rto: Duration) {
        self.ato = if self.dialogue { least } else { (self.ato * 2).min(rto) };
        self.dialogue = false;
    }
    /// True if a read of all data sends an acknowledgement: after a second small segment, or after the first outside
    /// a dialogue (`tcp_cleanup_rbuf()`).
    fn does_read_trigger_ack(&self) -> bool {
        self.small >= 2 || (self.small == 1 && !self.dialogue)
    }
}

impl TcpConnection {
    /// Handles `len` octets in order, the end of a write if `pushed`: acknowledges them like Linux.
    #[cold]
    pub(super) fn schedule_linux_ack(&mut self, now: Instant, len: u32, enough: bool) {
        let full = self.would_ack_open_window();
        let Some(least) = self.config.delayed_ack.map(|delayed| delayed.timeout) else { return };
        let (rto, window) = (self.rtt.rto(&self.config), self.receive_limit());
        let segment = u32::from(self.largest).max(self.initial_largest_segment());
        let Some(acks) = RareTcpState::delayed_ack_state_mut(&mut self.rare_state) else { return };
        acks.on_data(now, least, rto, window, segment);
        if len < segment {
            acks.small = (acks.small + 1).min(2);
        } else if self.pushed {
            acks.small = acks.small.max(1);
        }
        let quick = self.config.quick_ack && acks.quick > 0 && !acks.dialogue;
        let read = self.config.ack_on_read && self.auto_read && acks.does_read_trigger_ack();
        let wait = acks.ack_delay(least, self.config.delayed_ack_max, self.rtt.srtt());
        // If the delayed acknowledgement is due within a quarter of its delay, it is sent now.
        let soon = self.config.delayed_ack_max.is_some() && self.ack_at <= now + wait / 4;
        if enough || full || quick || read || soon {
            self.ack_now = true;
        } else {
            self.ack_at = self.ack_at.min(self.delayed_ack_time(now, wait));
        }
    }

    /// Returns the assumed largest segment before the first one (`tcp_initialize_rcv_mss()`).
    pub(super) fn initial_largest_segment(&self) -> u32 {
        536.min(self.mss).min(self.receive_limit() / 2)
    }

    /// Handles duplicate data: the peer has missed an acknowledgement (`tcp_enter_quickack_mode()`).
    #[cold]
    pub(super) fn enter_quick_ack_mode(&mut self) {
        let (window, segment) =
            (self.receive_limit(), u32::from(self.largest).max(self.initial_largest_segment()));
        if let (Some(acks), Some(delayed)) =
            (RareTcpState::delayed_ack_state_mut(&mut self.rare_state), self.config.delayed_ack)
        {
            acks.require_immediate_acks(window, segment);
            acks.dialogue = false;
            acks.ato = delayed.timeout;
        }
    }

    /// Handles an application with explicit reads that has read all data.
    pub(super) fn acknowledge_after_read(&mut self) {
        let asked = self.config.ack_on_read && self.unread == 0 && self.unacked_segments > 0;
        if asked && self.ack_pace().is_some_and(|acks| acks.does_read_trigger_ack()) {
            self.ack_now = true;
            self.wake = true;
        }
    }
}
