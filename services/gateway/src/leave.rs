//! Shutdown of a gateway: ends its IKE_SAs, then waits for the AAA servers to acknowledge their accounting records.

use crate::GatewayEvent;
use crate::service::{GatewayTimer, IkeGateway};
use alloc::vec::Vec;
use usher_access::TerminateCause;
use usher_core::{Duration, Instant};
use usher_ike::machine::{self as ike, EndReason, IkeSaId};

/// The longest wait for the acknowledgement of the last accounting records.
const FAREWELL: Duration = Duration::from_secs(5);

impl IkeGateway {
    /// Begins the shutdown: ends all IKE_SAs.
    pub(crate) fn start_shutdown(&mut self, now: Instant) {
        self.leaving = true;
        for session in self.sessions.values_mut() {
            session.cause = TerminateCause::AdminReboot;
        }
        let closing: Vec<IkeSaId> = self.closing.keys().copied().collect();
        closing.into_iter().for_each(|sa| self.close_session(now, sa));
        let all: Vec<IkeSaId> = self.sessions.keys().copied().collect();
        for sa in all {
            self.send_ike_command(now, ike::IkeCommand::Delete(sa));
            self.drain_outputs(now);
            // The session ends without the peer's response, so that the AAA server gets its stop record now.
            self.end_session(now, sa, EndReason::Deleted);
            self.close_session(now, sa);
        }
        self.parting = true;
        self.timers.insert(now + FAREWELL, GatewayTimer::Farewell);
        self.drain_outputs(now);
        self.finish_shutdown(false);
    }

    /// Reports the end of the shutdown when the AAA servers have acknowledged all records, or when the wait is
    /// `over`.
    pub(crate) fn finish_shutdown(&mut self, over: bool) {
        if self.parting && (over || self.records.is_empty()) {
            self.parting = false;
            for session in core::mem::take(&mut self.records).into_values() {
                self.counters.records_lost += 1;
                self.outputs.push_event(GatewayEvent::Unaccounted { session });
            }
            self.outputs.push_event(GatewayEvent::Left);
        }
    }
}
