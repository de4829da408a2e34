//! Linux's delayed acknowledgements: quick-ack mode, the dialogue that ends it, and the delay by the sender's
//! rate (net/ipv4/tcp_input.c, tcp_output.c, tcp_timer.c and tcp.c of Linux 6.18).

use usher_core::{Duration, Instant};

/// Most immediate acknowledgements at the start of a connection, or after silence or duplicate data
/// (`TCP_MAX_QUICKACKS`).
pub(super) const QUICK: u32 = 16;
/// Maximum delay of a one-way connection without a round-trip measurement.
pub(super) const MAX_ONE_WAY_DELAY: Duration = Duration::from_millis(500);

/// A receiver's estimate of the sender's rate.
#[derive(Debug, Default)]
pub(super) struct DelayedAckState {
    /// Delay of an acknowledgement by the rate (`icsk_ack.ato`); zero before the first data.
    pub(super) ato: Duration,
    /// Time of the last data in order.
    pub(super) last_data_at: Instant,
    /// Immediate acknowledgements left (`icsk_ack.quick`).
    pub(super) quick: u8,
    /// True if data in both directions alternates: an acknowledgement will have data to ride on
    /// (`icsk_ack.pingpong`).
    pub(super) dialogue: bool,
    /// Segments that ended a write since the last acknowledgement, at most 2 (`ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    pub(super) small: u8,
}

impl DelayedAckState {
    /// Requires immediate acknowledgements: half as many as the window has segments.
    pub(super) fn require_immediate_acks(&mut self, window: u32, segment: u32) {
        let quick = (window / (2 * segment.max(1))).clamp(2, QUICK);
        self.quick = self.quick.max(quick as u8);
    }
    /// Handles data in order (`tcp_event_data_recv()`).
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        least: Duration,
        rto: Duration,
        window: u32,
        segment: u32,
    ) {
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
    pub(super) fn ack_delay(
        &self,
        least: Duration,
        most: Option<Duration>,
        srtt: Option<Duration>,
    ) -> Duration {
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
    pub(super) fn does_read_trigger_ack(&self) -> bool {
        self.small >= 2 || (self.small == 1 && !self.dialogue)
    }
}
