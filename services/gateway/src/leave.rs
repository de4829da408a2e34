//! How a gateway ends: its IKE_SAs first, then, when the AAA servers have acknowledged that, itself.

use crate::GatewayEvent;
use crate::service::{GatewayTimer, IkeGateway};
use alloc::vec::Vec;
use usher_access::TerminateCause;
use usher_core::{Duration, Instant};
use usher_ike::machine::{self as ike, EndReason, SaId};

/// How long a gateway that leaves waits for AAA servers to acknowledge its last records.
const FAREWELL: Duration = Duration::from_secs(5);

impl IkeGateway {
    /// Ends all IKE_SAs, and says when that is done.
    pub(crate) fn start_shutdown(&mut self, now: Instant) {
        self.leaving = true;
        for session in self.sessions.values_mut() {
            session.cause = TerminateCause::AdminReboot;
        }
        let closing: Vec<SaId> = self.closing.keys().copied().collect();
        closing.into_iter().for_each(|sa| self.close_session(now, sa));
        let all: Vec<SaId> = self.sessions.keys().copied().collect();
        for sa in all {
            self.send_ike_command(now, ike::IkeCommand::Delete(sa));
            self.drain_outputs(now);
            // The other side's answer is not waited for, and the AAA server hears of the end now.
            self.end_session(now, sa, EndReason::Deleted);
            self.close_session(now, sa);
        }
        self.parting = true;
        self.timers.insert(now + FAREWELL, GatewayTimer::Farewell);
        self.drain_outputs(now);
        self.finish_shutdown(false);
    }

    /// All has ended: that is said when AAA servers have acknowledged the last records, or the time for that is `over`.
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
