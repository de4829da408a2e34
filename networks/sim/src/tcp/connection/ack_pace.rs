//! Delayed acknowledgements of a connection, as Linux sends them.

use super::{RareTcpState, TcpConnection};
use usher_core::Instant;

impl TcpConnection {
    /// Handles `len` octets in order, the end of a write if `pushed`: acknowledges them like Linux.
    #[cold]
    pub(in crate::tcp) fn schedule_linux_ack(&mut self, now: Instant, len: u32, enough: bool) {
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
    pub(in crate::tcp) fn initial_largest_segment(&self) -> u32 {
        536.min(self.mss).min(self.receive_limit() / 2)
    }

    /// Handles duplicate data: the peer has missed an acknowledgement (`tcp_enter_quickack_mode()`).
    #[cold]
    pub(in crate::tcp) fn enter_quick_ack_mode(&mut self) {
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
    pub(in crate::tcp) fn acknowledge_after_read(&mut self) {
        let asked = self.config.ack_on_read && self.unread == 0 && self.unacked_segments > 0;
        if asked && self.ack_pace().is_some_and(|acks| acks.does_read_trigger_ack()) {
            self.ack_now = true;
            self.wake = true;
        }
    }
}
