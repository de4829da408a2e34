//! How long Linux lets an acknowledgement wait: its quick-ack mode, the dialogue that ends it, and the delay that follows the
//! sender's pace (net/ipv4/tcp_input.c, tcp_output.c, tcp_timer.c and tcp.c of Linux 6.18).

use super::connection::{RareState, TcpConnection};
use usher_core::{Duration, Instant};

/// Acknowledgements that leave at once when a connection begins, or has lost its order (`TCP_MAX_QUICKACKS`).
const QUICK: u32 = 16;
/// The longest delay of a connection that carries data one way only, where nothing has measured the round trip.
const MAX_ONE_WAY_DELAY: Duration = Duration::from_millis(500);

/// What a receiver remembers of the sender's pace.
#[derive(Debug, Default)]
pub(super) struct AckPace {
    /// How long an acknowledgement waits by the pace (`icsk_ack.ato`); zero before the first data.
    ato: Duration,
    /// When data last came in order.
    last_data_at: Instant,
    /// Acknowledgements that are still to leave at once (`icsk_ack.quick`).
    quick: u8,
    /// Data goes both ways, each an answer to the other: an acknowledgement will have something to ride on
    /// (`icsk_ack.pingpong`).
    dialogue: bool,
    /// Segments since the last acknowledgement that ended a write, 2 at most (`ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    small: u8,
}

impl AckPace {
    /// So many acknowledgements are to leave at once, at least; half as many as the window has segments.
    fn be_quick(&mut self, window: u32, segment: u32) {
        let quick = (window / (2 * segment.max(1))).clamp(2, QUICK);
        self.quick = self.quick.max(quick as u8);
    }
    /// Data came in order (`tcp_event_data_recv()`).
    fn on_data(&mut self, now: Instant, least: Duration, rto: Duration, window: u32, segment: u32) {
        if self.ato.is_zero() {
            self.be_quick(window, segment);
            self.ato = least;
        } else {
            let gap = now - self.last_data_at;
            if gap <= least / 2 {
                self.ato = self.ato / 2 + least / 2;
            } else if gap < self.ato {
                self.ato = (self.ato / 2 + gap).min(rto);
            } else if gap > rto {
                self.be_quick(window, segment);
            }
        }
        self.last_data_at = now;
    }
    /// How long an acknowledgement waits now (`tcp_send_delayed_ack()`).
    fn ack_delay(&self, least: Duration, most: Option<Duration>, srtt: Option<Duration>) -> Duration {
        let Some(most) = most else { return least };
        let (most, mut ato) = (most.max(least), self.ato);
        if ato > least {
            let bound = if self.dialogue || self.small > 0 { most } else { MAX_ONE_WAY_DELAY };
            ato = ato.min(srtt.map_or(bound, |srtt| srtt.max(least).min(bound)));
        }
        ato.min(most)
    }
    /// A segment left that acknowledges; `due` where an acknowledgement waited (`tcp_dec_quickack_mode()`).
    pub(super) fn on_acknowledged(&mut self, due: bool, least: Duration) {
        self.small = 0;
        if due && self.quick > 0 {
            self.quick -= 1;
            if self.quick == 0 {
                self.ato = least;
            }
        }
    }
    /// Data left; soon after data came, it is an answer (`tcp_event_data_sent()`).
    pub(super) fn on_data_sent(&mut self, now: Instant) {
        self.dialogue |= now - self.last_data_at < self.ato;
    }
    /// Nothing came for an acknowledgement to ride on (`tcp_delack_timer_handler()`).
    pub(super) fn on_waited(&mut self, least: Duration, rto: Duration) {
        self.ato = if self.dialogue { least } else { (self.ato * 2).min(rto) };
        self.dialogue = false;
    }
    /// An application that has read all that came has it acknowledged: after a second small segment, or after the first
    /// where there is no dialogue (`tcp_cleanup_rbuf()`).
    fn read_acknowledges(&self) -> bool {
        self.small >= 2 || (self.small == 1 && !self.dialogue)
    }
}

impl TcpConnection {
    /// `len` bytes came in order, the last of a write where it was `pushed`: acknowledges them as Linux does.
    #[cold]
    pub(super) fn pace_ack(&mut self, now: Instant, len: u32, enough: bool) {
        let full = self.opens_window();
        let Some(least) = self.config.delayed_ack.map(|delayed| delayed.timeout) else { return };
        let (rto, window) = (self.rtt.rto(&self.config), self.receive_limit());
        let segment = u32::from(self.largest).max(self.least_segment());
        let Some(acks) = RareState::acks_mut(&mut self.rare_state) else { return };
        acks.on_data(now, least, rto, window, segment);
        if len < segment {
            acks.small = (acks.small + 1).min(2);
        } else if self.pushed {
            acks.small = acks.small.max(1);
        }
        let quick = self.config.quick_ack && acks.quick > 0 && !acks.dialogue;
        let read = self.config.ack_on_read && self.auto_read && acks.read_acknowledges();
        let wait = acks.ack_delay(least, self.config.delayed_ack_max, self.rtt.srtt());
        // What would leave shortly leaves now.
        let soon = self.config.delayed_ack_max.is_some() && self.ack_at <= now + wait / 4;
        if enough || full || quick || read || soon {
            self.ack_now = true;
        } else {
            self.ack_at = self.ack_at.min(self.delayed_until(now, wait));
        }
    }

    /// What counts as the largest segment before one came (`tcp_initialize_rcv_mss()`).
    pub(super) fn least_segment(&self) -> u32 {
        536.min(self.mss).min(self.receive_limit() / 2)
    }

    /// Data came again: the other side has not heard what it waits for (`tcp_enter_quickack_mode()`).
    #[cold]
    pub(super) fn hurry_acks(&mut self) {
        let (window, segment) = (self.receive_limit(), u32::from(self.largest).max(self.least_segment()));
        if let (Some(acks), Some(delayed)) =
            (RareState::acks_mut(&mut self.rare_state), self.config.delayed_ack)
        {
            acks.be_quick(window, segment);
            acks.dialogue = false;
            acks.ato = delayed.timeout;
        }
    }

    /// An application that reads by itself has read all.
    pub(super) fn acknowledge_read(&mut self) {
        let asked = self.config.ack_on_read && self.unread == 0 && self.unacked_segments > 0;
        if asked && self.ack_pace().is_some_and(|acks| acks.read_acknowledges()) {
            self.ack_now = true;
            self.wake = true;
        }
    }
}
