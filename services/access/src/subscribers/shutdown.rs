//! The shutdown: the AAA servers acknowledge the records of all sessions, then that of the access server.

use super::config::ServerRecords;
use super::{
    ShutdownPhase, SubscriberEvent, SubscriberKey, SubscriberManager, SubscriberTimer, UnacknowledgedRecord,
};
use crate::AccountingRecordKind;
use core::fmt;
use usher_core::{Duration, Instant};

/// Maximum wait for acknowledgements: once for the records of sessions, once for Accounting-Off.
const ACKNOWLEDGEMENT_WAIT: Duration = Duration::from_secs(5);

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    /// Refuses new logins from now on.
    pub const fn refuse_logins(&mut self) {
        self.is_leaving = true;
    }

    /// Waits for the acknowledgement of all records. The service has ended all sessions.
    /// [`SubscriberEvent::Left`] follows.
    pub fn shut_down(&mut self, now: Instant) {
        if self.shutdown.is_none() {
            self.begin_phase(now, ShutdownPhase::Sessions);
        }
        self.drain_client(now);
        self.continue_shutdown(now, false);
        self.drain_client(now);
    }

    fn begin_phase(&mut self, now: Instant, phase: ShutdownPhase) {
        if let Some((_, end)) = self.shutdown {
            self.timers.remove(end, SubscriberTimer::Farewell);
        }
        let end = now + ACKNOWLEDGEMENT_WAIT;
        if phase != ShutdownPhase::Finished {
            self.timers.insert(end, SubscriberTimer::Farewell);
        }
        self.shutdown = Some((phase, end));
    }

    /// Continues the shutdown once all sessions are closed and all records acknowledged, or the wait is `over`. Accounting-Off follows the
    /// records of sessions, because it ends all sessions that the AAA server knows (RFC 2866 §5.1).
    pub(super) fn continue_shutdown(&mut self, now: Instant, over: bool) {
        let is_done = self.records.is_empty() && self.closing.is_empty();
        let Some((phase, _)) = self.shutdown.filter(|_| over || is_done) else { return };
        if phase == ShutdownPhase::Sessions {
            self.begin_phase(now, ShutdownPhase::Off);
            self.give_up_records();
            if self.config.server_records == ServerRecords::OnAndOff {
                self.send_server_record(now, AccountingRecordKind::Off);
            }
            if !self.records.is_empty() {
                return;
            }
        }
        if phase != ShutdownPhase::Finished {
            self.begin_phase(now, ShutdownPhase::Finished);
            self.give_up_records();
            self.outputs.push_event(SubscriberEvent::Left);
        }
    }

    fn give_up_records(&mut self) {
        for UnacknowledgedRecord { session, is_logged } in core::mem::take(&mut self.records).into_values() {
            *(if is_logged { &mut self.counters.stops_left } else { &mut self.counters.records_lost }) += 1;
            self.outputs.push_event(SubscriberEvent::Unaccounted { session, is_logged });
        }
    }
}
