//! Accounting, restarts, and the checks after each operation.

use super::RunOutcome;
use super::wire::{self, ACCESS_SERVERS};
use super::world::{
    AaaTestNetwork, AccountedSession, LoginState, MAX_DELAYED_REJECTS, MOST_HALF_OPEN, MOST_USERS,
    build_server,
};
use crate::{InvariantBreach, TestUser, ensure};
use std::net::IpAddr;
use usher_aaa::AaaServerCommand;
use usher_core::{Duration, Machine, bench::EPOCH};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::radsec::PacketFramer;

const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM: u32 = 3;
const ON: u32 = 7;

/// An access server drops a session if its Accounting-Start is not acknowledged within this time of the accept. The
/// ledger keeps an accepted login for 60 s.
const START_TIMEOUT: Duration = Duration::from_secs(50);
/// The time for which an accounting request is retransmitted.
const RETRANSMISSION: Duration = Duration::from_secs(15);

/// Counters of requests without a reply, which the protocols require: an untrusted or malformed request is discarded
/// (RFC 2865 §3, RFC 3579 §3.2). A retransmission of a pending request is not processed again (RFC 5080 §2.2.2). An
/// unrecorded record is not acknowledged (RFC 2866 §4.1).
const DROPS: [&str; 16] = [
    "discarded",
    "duplicates_dropped",
    "superseded",
    "expired",
    "overload",
    "malformed",
    "unknown_client",
    "unknown_code",
    "wrong_code",
    "too_many_attributes",
    "client_overload",
    "stale",
    "bad_authenticator",
    "bad_message_authenticator",
    "missing_message_authenticator",
    "connections_malformed",
];

impl AaaTestNetwork {
    pub(super) fn run_accounting(&mut self, slot: usize, [how, _]: [u8; 2]) -> Result<(), InvariantBreach> {
        match how % 4 {
            0 => self.start_session(slot),
            1 => self.send_record(slot, INTERIM),
            2 => self.stop_session(slot),
            _ => self.resend_record(slot),
        }
    }

    /// An access server starts the session of an accepted user.
    fn start_session(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let Some(login) = self.slots[slot].as_mut().filter(|login| login.session.is_none()) else {
            return Ok(());
        };
        let LoginState::Accepted { request, .. } = &login.standing else { return Ok(()) };
        let Some(grant) =
            self.oracle.find_grant(*request).filter(|grant| grant.granted_at + START_TIMEOUT > self.now)
        else {
            return Ok(());
        };
        self.start_count += 1;
        let id = format!("s{}", self.start_count);
        self.oracle.sessions.insert(id.clone(), grant.person);
        login.session = Some(AccountedSession { id, acknowledged: false, has_ended: false, last: None });
        self.send_record(slot, START)
    }

    /// Ends a session, if there is one.
    pub(super) fn stop_session(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        self.send_record(slot, STOP)?;
        if let Some(session) = self.slots[slot].as_mut().and_then(|login| login.session.as_mut()) {
            session.has_ended = true;
        }
        Ok(())
    }

    /// An access server sends a record of a session that the server knows.
    fn send_record(&mut self, slot: usize, status: u32) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        let (LoginState::Accepted { attributes, request }, Some(session)) = (&login.standing, &login.session)
        else {
            return Ok(());
        };
        if session.has_ended || (status != START && !session.acknowledged) {
            return Ok(());
        }
        let mut record = self.accounting_attributes(login.access_server, status, &session.id);
        record.push_u32(kind::NAS_PORT, slot as u32);
        // The User-Name of the accept, or else of the request.
        let name = attributes.get(kind::USER_NAME).unwrap_or(&self.sent[*request].user_name);
        let _ = record.push_bytes(kind::USER_NAME, name);
        for kind in [kind::CLASS, kind::FRAMED_IP_ADDRESS] {
            for value in attributes.get_all(kind) {
                let _ = record.push_bytes(kind, value);
            }
        }
        if !login.station.address.is_empty() {
            let _ = record.push_text(kind::CALLING_STATION_ID, &login.station.address);
        }
        let (attempt, access_server) = (login.attempt, login.access_server);
        let dialogue = self.oracle.start_dialogue();
        let sent = self.prepare_request(
            slot,
            attempt,
            access_server,
            PacketCode::ACCOUNTING_REQUEST,
            dialogue,
            record,
        );
        if let Some(session) = self.slots[slot].as_mut().and_then(|login| login.session.as_mut()) {
            session.last = sent;
        }
        sent.map_or(Ok(()), |sent| self.deliver_request(sent, 0))
    }

    fn accounting_attributes(&self, access_server: usize, status: u32, id: &str) -> AttributeList {
        let mut record = AttributeList::new();
        record.push_u32(kind::ACCT_STATUS_TYPE, status);
        let _ = record.push_text(kind::ACCT_SESSION_ID, id);
        record.push_ipv4(kind::NAS_IP_ADDRESS, wire::access_server_address(access_server));
        // The first access server has a clock.
        if access_server == 0 {
            record.push_u32(kind::EVENT_TIMESTAMP, self.now.to_wall_time(EPOCH).unix_secs() as u32);
        }
        record
    }

    /// Retransmits the last record, whose reply did not arrive.
    fn resend_record(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let session = self.slots[slot].as_ref().and_then(|login| login.session.as_ref());
        let last = session.and_then(|session| session.last);
        match last.filter(|last| self.sent[*last].sent_at + RETRANSMISSION > self.now) {
            Some(last) => self.deliver_request(last, 0),
            None => Ok(()),
        }
    }

    /// An access server has lost all sessions and reports that.
    pub(super) fn restart_access_server(&mut self, [which, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let which = usize::from(which) % ACCESS_SERVERS;
        for login in &mut self.slots {
            login.take_if(|login| login.access_server == which);
        }
        // Diameter has no such message.
        if which == wire::DIAMETER {
            return Ok(());
        }
        self.start_count += 1;
        let record =
            self.accounting_attributes(which, ON + u32::from(how & 1), &format!("r{}", self.start_count));
        let dialogue = self.oracle.start_dialogue();
        let sent = self.prepare_request(0, 0, which, PacketCode::ACCOUNTING_REQUEST, dialogue, record);
        sent.map_or(Ok(()), |sent| self.deliver_request(sent, 0))
    }

    pub(super) fn toggle_store(&mut self) {
        self.store_is_away = !self.store_is_away;
        self.service.store_mut().set_store_unavailable(self.store_is_away);
    }

    pub(super) fn evict_or_reload(&mut self, [who, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let command = match how % 3 {
            0 => AaaServerCommand::EvictUsers { name: None },
            1 => AaaServerCommand::EvictUsers { name: Some(TestUser::from_number(who).name().into()) },
            _ => AaaServerCommand::Reload(Box::new(self.config.clone())),
        };
        let done = self.server.handle_command(self.now, command);
        ensure(done.is_ok(), || format!("a command that holds together is refused: {done:?}"))?;
        self.drain_outputs()
    }

    /// Restarts the server and its ledger from the store. Accepted users without a session are dropped.
    pub(super) fn restart_server(&mut self) -> Result<(), InvariantBreach> {
        for login in &mut self.slots {
            let waits =
                |login: &mut super::world::PortLogin| login.session.as_ref().is_none_or(|s| !s.acknowledged);
            login.take_if(waits);
            if let Some(session) = login.as_mut().and_then(|login| login.session.as_mut()) {
                session.last = None;
            }
        }
        if self.store_is_away {
            self.toggle_store();
        }
        self.start_count += 1;
        self.server = build_server(&self.config, self.start_count);
        self.service.restart(self.now);
        self.jobs.clear();
        self.oracle.clear_failures();
        self.work.clear();
        self.disconnect_diameter();
        self.accept_radsec();
        self.run_for(Duration::from_secs(1))?;
        (self.delivered_requests, self.answered, self.framer) = (0, 0, PacketFramer::new());
        self.drain_outputs()
    }

    /// Checks the invariants after an operation.
    pub(super) fn check_invariants(&self) -> Result<(), InvariantBreach> {
        let server = &self.server;
        ensure(server.half_open() <= MOST_HALF_OPEN, || {
            format!("{} sessions are half open", server.half_open())
        })?;
        ensure(server.delayed_reject_count() <= MAX_DELAYED_REJECTS, || {
            format!("{} rejects are held back", server.delayed_reject_count())
        })?;
        ensure(server.cached_users() <= MOST_USERS, || format!("{} users are kept", server.cached_users()))?;
        self.check_answers()?;
        self.check_work()?;
        let open = self.service.store().sessions().filter(|row| row.acctstoptime.is_none());
        let to_come = self.slots.iter().flatten().filter_map(|login| {
            let LoginState::Accepted { request, attributes } = &login.standing else { return None };
            let grant = self
                .oracle
                .find_grant(*request)
                .filter(|grant| grant.granted_at + START_TIMEOUT > self.now)?;
            let address = attributes.get_ipv4(kind::FRAMED_IP_ADDRESS)?;
            let new = login.session.is_none();
            new.then(|| (IpAddr::V4(address), grant.person, login.station.address.clone()))
        });
        self.oracle.check_sessions(open, to_come)
    }

    /// Checks that each request was answered, is pending, or moved a counter.
    fn check_answers(&self) -> Result<(), InvariantBreach> {
        let counters = self.server.radius_counters();
        let dropped: u64 = counters
            .into_iter()
            .flat_map(|counters| counters.iter())
            .filter(|(name, _)| DROPS.contains(name))
            .map(|(_, n)| n)
            .sum();
        let (given, answered, owed) =
            (self.delivered_requests, self.answered, self.server.pending_request_count() as u64);
        ensure(given <= answered + dropped + owed, || {
            format!(
                "of {given} requests {answered} were answered, {dropped} dropped, and {owed} wait: one is lost"
            )
        })
    }

    /// Checks the cost of unauthenticated stations: a handshake for each login begun, and one or two digests for each
    /// request.
    fn check_work(&self) -> Result<(), InvariantBreach> {
        let begun = self.server.counters().sessions;
        for (label, most) in [
            ("tls.sign", begun),
            ("tls.key_exchange", begun),
            ("tls.verify", 4 * begun),
            ("eap.tls", self.delivered_requests),
            ("eap.md5", 2 * self.delivered_requests),
            ("eap.mschapv2", 2 * self.delivered_requests),
            ("aaa.verdict", self.delivered_requests),
        ] {
            let done = self.work.get(label).copied().unwrap_or_default();
            ensure(done <= most, || format!("{done} units of {label}, and {most} may be"))?;
        }
        Ok(())
    }

    /// Completes everything that is pending.
    pub(super) fn finish_run(mut self) -> Result<RunOutcome, InvariantBreach> {
        self.is_worker_paused = false;
        self.drain_outputs()?;
        self.run_for(Duration::from_secs(600))?;
        self.check_invariants()?;
        let left = (self.server.half_open(), self.server.pending_request_count());
        ensure(left == (0, 0), || format!("{left:?} sessions and requests are left"))?;
        self.outcome.accepted = self.oracle.grant_count();
        Ok(self.outcome)
    }
}
