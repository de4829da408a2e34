//! The receive buffer of a connection, as it grows.

use super::TcpConnection;
use crate::tcp::receive_tuning::ReceiveBufferTuning;
use crate::tcp::segment::{Segment, timestamp_value};
use usher_core::{Duration, Instant};

impl TcpConnection {
    /// Returns the present receive buffer.
    #[inline]
    pub(in crate::tcp) fn receive_buffer(&self) -> u32 {
        if self.config.receive_buffer_max.is_none() {
            return self.config.receive_buffer;
        }
        let tuning = self.rare_state.as_ref().and_then(|rare| rare.tuning.as_ref());
        tuning.map_or(self.config.receive_buffer, |tuning| tuning.announced_window())
    }

    /// Starts tuning when the peer's numbers are known.
    pub(in crate::tcp) fn start_receive_buffer_tuning(&mut self, now: Instant) {
        if self.config.receive_buffer_max.is_some() {
            let tuning = ReceiveBufferTuning::new(self.config.receive_buffer, self.rcv_nxt, self.mss, now);
            self.rare_state.get_or_insert_default().tuning = Some(Box::new(tuning));
        }
    }

    /// Handles data in order.
    #[cold]
    pub(in crate::tcp) fn tune_buffer(&mut self, now: Instant, s: &Segment) {
        let Some(most) = self.config.receive_buffer_max else { return };
        let full = s.len >= u32::from(self.largest).max(self.initial_largest_segment());
        let echo = s.options.as_ref().and_then(|o| o.timestamps).map(|(_, echo)| echo);
        let stamps = self.timestamps.is_some();
        let unread = if self.auto_read { 0 } else { self.unread };
        let (next, upto, mss) = (self.rcv_nxt, self.rcv_nxt.wrapping_sub(unread), self.mss);
        let Some(tuning) = self.rare_state.as_mut().and_then(|rare| rare.tuning.as_mut()) else { return };
        match echo.filter(|_| stamps) {
            Some(echo) if full && tuning.echoed != Some(echo) => {
                tuning.echoed = Some(echo);
                let ticks = timestamp_value(now).wrapping_sub(echo).max(1);
                if ticks < 1 << 31 {
                    tuning.record_round_trip(Duration::from_millis(ticks.into()), false);
                }
            }
            Some(_) => {}
            None => tuning.time_window(now, next),
        }
        tuning.adjust_buffer(now, upto, mss, most);
        if full {
            tuning.announced = tuning.announced.saturating_add(2 * mss).min(tuning.buffer);
        }
    }
}
