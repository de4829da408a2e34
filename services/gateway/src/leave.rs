//! How a gateway ends: its IKE_SAs first, then, when the AAA servers have acknowledged that, itself.

use crate::Event;
use crate::service::{Gateway, Timer};
use alloc::vec::Vec;
use usher_access::TerminateCause;
use usher_core::{Duration, Instant};
use usher_ike::machine::{self as ike, EndReason, SaId};

/// How long a gateway that leaves waits for AAA servers to acknowledge its last records.
const FAREWELL: Duration = Duration::from_secs(5);

impl Gateway {
    /// Ends all IKE_SAs, and says when that is done.
    pub(crate) fn leave(&mut self, now: Instant) {
        self.leaving = true;
        for session in self.sessions.values_mut() {
            session.cause = TerminateCause::AdminReboot;
        }
        let closing: Vec<SaId> = self.closing.keys().copied().collect();
        closing.into_iter().for_each(|sa| self.close(now, sa));
        let all: Vec<SaId> = self.sessions.keys().copied().collect();
        for sa in all {
            self.tell(now, ike::Command::Delete(sa));
            self.drain(now);
            // The other side's answer is not waited for, and the AAA server hears of the end now.
            self.over(now, sa, EndReason::Deleted);
            self.close(now, sa);
        }
        self.parting = true;
        self.timers.insert(now + FAREWELL, Timer::Farewell);
        self.drain(now);
        self.say_farewell(false);
    }

    /// All has ended: that is said when AAA servers have acknowledged the last records, or the time for that is `over`.
    pub(crate) fn say_farewell(&mut self, over: bool) {
        if self.parting && (over || self.records.is_empty()) {
            self.parting = false;
            for session in core::mem::take(&mut self.records).into_values() {
                self.counters.records_lost += 1;
                self.outputs.event(Event::Unaccounted { session });
            }
            self.outputs.event(Event::Left);
        }
    }
}
