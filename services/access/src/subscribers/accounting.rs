//! Accounting records of subscribers and of the access server (RFC 2866, RFC 6733 §9).

use super::config::ServerRecords;
use super::session::SubscriberSession;
use super::{SubscriberEvent, SubscriberKey, SubscriberManager, UnacknowledgedRecord};
use crate::client::AaaRequestFailure;
use crate::{AccountingRecord, AccountingRecordKind, ipv6_prefix, session_id};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use usher_core::Instant;
use usher_radius::attribute::kind;

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    /// True if the AAA servers get records.
    #[must_use]
    pub fn is_accounting_enabled(&self) -> bool {
        self.config.aaa.as_ref().is_some_and(|aaa| aaa.accounting)
    }

    /// Sends the Start of a session, once. A session after the shutdown has no accounting.
    pub fn start_accounting(&mut self, now: Instant, id: u64) {
        if self.shutdown.is_some() {
            return;
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if !core::mem::replace(&mut session.has_sent_start, true) {
            self.account_session(now, id, AccountingRecordKind::Start);
        }
    }
    pub(super) fn send_interim(&mut self, now: Instant, id: u64) {
        if self.schedule_interim(now, id) {
            self.account_session(now, id, AccountingRecordKind::Interim);
        }
    }
    fn account_session(&mut self, now: Instant, id: u64, kind: AccountingRecordKind) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        self.send_session_record(now, &mut session, kind);
        self.sessions.insert(id, session);
        self.drain_client(now);
    }
    /// Ends the accounting of a closed session: sends its Stop if it had a Start, and ends it at the server.
    pub fn stop_accounting(&mut self, now: Instant, session: &mut SubscriberSession<A>) {
        if session.has_sent_start {
            self.send_session_record(now, session, AccountingRecordKind::Stop);
        }
        self.terminate_at_server(now, session.grant.token, session.cause());
        self.continue_shutdown(now, false);
        self.drain_client(now);
    }

    fn send_session_record(
        &mut self,
        now: Instant,
        session: &mut SubscriberSession<A>,
        kind: AccountingRecordKind,
    ) {
        if !session.is_accounted || !self.is_accounting_enabled() {
            return;
        }
        let mut attributes = session.place.attributes.clone();
        if let Some((prefix, bits)) = session.addresses.delegated {
            // A prefix always fits an attribute.
            let _ = attributes.push_bytes(kind::DELEGATED_IPV6_PREFIX, &ipv6_prefix(prefix, bits));
        }
        let classes: Vec<&[u8]> = session.grant.classes.iter().map(|class| &class[..]).collect();
        let record = AccountingRecord {
            name: session.grant.accounting_name(),
            port: session.place.nas_port(),
            lasted: session.duration(now),
            traffic: self.config.is_metered.then_some(session.traffic),
            cause: session.cause(),
            classes: &classes,
            framed_ip: session.addresses.ipv4,
            framed_ipv6_prefix: session.addresses.ipv6,
            attributes: Some(&attributes),
            start: self.config.logs_stops.then_some(self.start),
            ..AccountingRecord::new(kind, &session.acct, session.record_count)
        };
        let is_logged = self.config.logs_stops && kind == AccountingRecordKind::Stop;
        if self.send_record(now, &record, is_logged) {
            session.record_count += 1;
        }
    }

    /// Sends a record; returns false if it cannot be sent. The service has logged `is_logged` records until their
    /// acknowledgement.
    fn send_record(&mut self, now: Instant, record: &AccountingRecord<'_>, is_logged: bool) -> bool {
        let token = self.allocate_token();
        let Some(client) = &mut self.client else { return false };
        self.counters.records += 1;
        let session: String = record.session.into();
        let is_sent = client.send_record(now, token, record).is_ok();
        if is_sent {
            self.records.insert(token, UnacknowledgedRecord { session, is_logged });
        } else {
            self.counters.records_lost += 1;
            self.outputs.push_event(SubscriberEvent::Unaccounted { session, is_logged: false });
        }
        is_sent
    }

    /// Sends the Stop of a session of an earlier start, which the service has logged.
    pub fn account_earlier_stop(&mut self, now: Instant, record: &AccountingRecord<'_>) {
        self.send_record(now, record, self.config.logs_stops);
        self.drain_client(now);
    }

    /// Sends Accounting-On: it ends all sessions that the AAA server knows (RFC 2866 §5.1).
    pub fn account_server_start(&mut self, now: Instant) {
        if self.config.server_records != ServerRecords::Never {
            self.send_server_record(now, AccountingRecordKind::On);
        }
        self.drain_client(now);
    }
    pub(super) fn send_server_record(&mut self, now: Instant, kind: AccountingRecordKind) {
        // Diameter has no equivalent.
        if self.is_accounting_enabled() && self.radius_counters().is_some() {
            let name = session_id(self.start, 0);
            self.send_record(now, &AccountingRecord::new(kind, &name, 0), false);
        }
    }

    pub(super) fn handle_record_result(
        &mut self,
        now: Instant,
        token: u64,
        result: Result<(), AaaRequestFailure>,
    ) {
        let Some(UnacknowledgedRecord { session, is_logged }) = self.records.remove(&token) else { return };
        if result.is_err() {
            self.counters.records_lost += 1;
            self.outputs.push_event(SubscriberEvent::Unaccounted { session, is_logged: false });
        } else if is_logged {
            self.outputs.push_event(SubscriberEvent::StopAcknowledged { session });
        }
        self.continue_shutdown(now, false);
    }
}
