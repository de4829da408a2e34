//! Shutdown of a gateway: ends its IKE_SAs, then waits for the AAA servers to acknowledge their accounting records.

use crate::service::IkeGateway;
use alloc::vec::Vec;
use usher_access::TerminateCause;
use usher_core::Instant;
use usher_ike::machine::{self as ike, EndReason, IkeSaId};

impl IkeGateway {
    /// Begins the shutdown: ends all IKE_SAs.
    pub(crate) fn start_shutdown(&mut self, now: Instant) {
        self.leaving = true;
        self.subscribers.refuse_logins();
        for session in self.sessions.values_mut() {
            session.cause = TerminateCause::AdminReboot;
        }
        self.close_sessions_now(now);
        let all: Vec<IkeSaId> = self.sessions.keys().copied().collect();
        for sa in all {
            self.send_ike_command(now, ike::IkeCommand::Delete(sa));
            self.drain_children(now);
            // The session ends without the peer's response, so that the AAA server gets its stop record now.
            self.end_session(now, sa, EndReason::Deleted);
            self.close_sessions_now(now);
        }
        self.drain_children(now);
        self.subscribers.shut_down(now);
        self.drain_children(now);
    }

    fn close_sessions_now(&mut self, now: Instant) {
        for id in self.subscribers.stop_waiting_for_all_traffic() {
            self.close_session(now, id);
        }
    }
}
