//! Steps of logins that cost public-key operations, a millisecond each: they wait in a queue of their own, the clients
//! served in turn, and one is done each time that the host calls. Between two calls the host hands in what came, so that
//! a request that costs microseconds waits for one such step and not for all of them.

use super::AaaServer;
use crate::server::session::{Stage, Wait};
use alloc::vec::Vec;
use usher_core::Instant;

impl AaaServer {
    /// Steps that wait for their turn: the host is to call at once, after it has handed in what came.
    #[must_use]
    pub fn steps_waiting(&self) -> usize {
        self.turns.len()
    }

    /// Has a session's packet wait for its turn.
    pub(super) fn put_off(&mut self, now: Instant, token: u64, packet: Vec<u8>) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let (Stage::Eap(conversation), Some(pending)) = (&mut session.stage, &session.pending) else {
            return;
        };
        conversation.wait = Some(Wait::Turn(packet));
        let displaced = self.turns.push(pending.source, token, self.config.max_steps_waiting);
        if let Some((_, token)) = displaced
            && self.its_turn(token).is_some()
        {
            self.counters.steps_dropped += 1;
            self.trace(now, token, || "dropped: too many handshakes wait for the processor".into());
            if let Some(pending) = self.sessions.get_mut(token).and_then(|s| s.pending.take()) {
                self.drop_request(now, pending);
            }
        }
    }

    /// Does the step whose turn it is.
    pub(super) fn take_turn(&mut self, now: Instant) {
        while let Some((_, token)) = self.turns.pop() {
            // The session may have been pushed out, or have ended by its age.
            if let Some(packet) = self.its_turn(token) {
                return self.advance(now, token, &packet);
            }
        }
    }

    /// The packet of a session that waits for its turn, and does so no more.
    fn its_turn(&mut self, token: u64) -> Option<Vec<u8>> {
        let Stage::Eap(conversation) = &mut self.sessions.get_mut(token)?.stage else { return None };
        match conversation.wait.take() {
            Some(Wait::Turn(packet)) => Some(packet),
            other => {
                conversation.wait = other;
                None
            }
        }
    }
}
