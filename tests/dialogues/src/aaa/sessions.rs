//! Accounting, restarts, and what is looked at after each operation.

use super::RunOutcome;
use super::wire::{self, ACCESS_SERVERS};
use super::world::{AccountedSession, LoginState, MOST_HALF_OPEN, MOST_HELD, MOST_USERS, World, server};
use crate::{InvariantBreach, Person, ensure};
use std::net::IpAddr;
use usher_aaa::Command;
use usher_core::{Duration, Machine, bench::EPOCH};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::radsec::Framer;

const START: u32 = 1;
const STOP: u32 = 2;
const INTERIM: u32 = 3;
const ON: u32 = 7;

/// An access server whose Accounting-Start is not acknowledged so long after the accept gives the session up: the ledger holds what it
/// admitted for 60 s.
const PATIENCE: Duration = Duration::from_secs(50);
/// For how long an accounting request is sent again.
const RETRANSMISSION: Duration = Duration::from_secs(15);

/// Counters of requests that get no answer. The protocols ask for each: what cannot be trusted or read is discarded (RFC 2865 §3, RFC 3579
/// §3.2), what is being worked on is not begun again (RFC 5080 §2.2.2), what is not recorded is not acknowledged (RFC 2866 §4.1).
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
    "connections_spoilt",
];

impl World {
    pub(super) fn account(&mut self, slot: usize, [how, _]: [u8; 2]) -> Result<(), InvariantBreach> {
        match how % 4 {
            0 => self.start(slot),
            1 => self.record(slot, INTERIM),
            2 => self.stop(slot),
            _ => self.record_again(slot),
        }
    }

    /// An access server begins a session of somebody whom it was told to let in.
    fn start(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let Some(login) = self.slots[slot].as_mut().filter(|login| login.session.is_none()) else {
            return Ok(());
        };
        let LoginState::Accepted { request, .. } = &login.standing else { return Ok(()) };
        let Some(grant) = self.oracle.grant(*request).filter(|grant| grant.at + PATIENCE > self.now) else {
            return Ok(());
        };
        self.begun += 1;
        let id = format!("s{}", self.begun);
        self.oracle.sessions.insert(id.clone(), grant.person);
        login.session = Some(AccountedSession { id, acknowledged: false, ended: false, last: None });
        self.record(slot, START)
    }

    /// A session ends, if there is one.
    pub(super) fn stop(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        self.record(slot, STOP)?;
        if let Some(session) = self.slots[slot].as_mut().and_then(|login| login.session.as_mut()) {
            session.ended = true;
        }
        Ok(())
    }

    /// An access server tells of a session that it has begun, and that the server knows of.
    fn record(&mut self, slot: usize, status: u32) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        let (LoginState::Accepted { attributes, request }, Some(session)) = (&login.standing, &login.session)
        else {
            return Ok(());
        };
        if session.ended || (status != START && !session.acknowledged) {
            return Ok(());
        }
        let mut record = self.head(login.access_server, status, &session.id);
        record.push_u32(kind::NAS_PORT, slot as u32);
        // As it was told, or else as it has asked.
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
        let dialogue = self.oracle.dialogue();
        let sent = self.sign(slot, attempt, access_server, Code::ACCOUNTING_REQUEST, dialogue, record);
        if let Some(session) = self.slots[slot].as_mut().and_then(|login| login.session.as_mut()) {
            session.last = sent;
        }
        sent.map_or(Ok(()), |sent| self.send(sent, 0))
    }

    fn head(&self, access_server: usize, status: u32, id: &str) -> Attributes {
        let mut record = Attributes::new();
        record.push_u32(kind::ACCT_STATUS_TYPE, status);
        let _ = record.push_text(kind::ACCT_SESSION_ID, id);
        record.push_ipv4(kind::NAS_IP_ADDRESS, wire::address(access_server));
        // The first has a clock.
        if access_server == 0 {
            record.push_u32(kind::EVENT_TIMESTAMP, self.now.wall(EPOCH).unix_secs() as u32);
        }
        record
    }

    /// The last record is sent again, since its answer did not come.
    fn record_again(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let session = self.slots[slot].as_ref().and_then(|login| login.session.as_ref());
        let last = session.and_then(|session| session.last);
        match last.filter(|last| self.sent[*last].at + RETRANSMISSION > self.now) {
            Some(last) => self.send(last, 0),
            None => Ok(()),
        }
    }

    /// An access server has lost all sessions, and says so.
    pub(super) fn restart_access_server(&mut self, [which, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let which = usize::from(which) % ACCESS_SERVERS;
        for login in &mut self.slots {
            login.take_if(|login| login.access_server == which);
        }
        // Diameter has no word for it.
        if which == wire::DIAMETER {
            return Ok(());
        }
        self.begun += 1;
        let record = self.head(which, ON + u32::from(how & 1), &format!("r{}", self.begun));
        let dialogue = self.oracle.dialogue();
        let sent = self.sign(0, 0, which, Code::ACCOUNTING_REQUEST, dialogue, record);
        sent.map_or(Ok(()), |sent| self.send(sent, 0))
    }

    pub(super) fn toggle_store(&mut self) {
        self.store_is_away = !self.store_is_away;
        self.service.store_mut().set_away(self.store_is_away);
    }

    pub(super) fn forget(&mut self, [who, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        let command = match how % 3 {
            0 => Command::Forget { name: None },
            1 => Command::Forget { name: Some(Person::numbered(who).name().into()) },
            _ => Command::Reload(Box::new(self.config.clone())),
        };
        let done = self.server.command(self.now, command);
        ensure(done.is_ok(), || format!("a command that holds together is refused: {done:?}"))?;
        self.drain()
    }

    /// The server and its ledger begin anew with what the store has. Whoever was let in and has not begun a session is sent away.
    pub(super) fn restart(&mut self) -> Result<(), InvariantBreach> {
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
        self.begun += 1;
        self.server = server(&self.config, self.begun);
        self.service.restart(self.now);
        self.jobs.clear();
        self.oracle.restarted();
        self.work.clear();
        self.part();
        self.connect();
        self.pass(Duration::from_secs(1))?;
        (self.given, self.answered, self.framer) = (0, 0, Framer::new());
        self.drain()
    }

    /// What must hold after each operation.
    pub(super) fn check(&self) -> Result<(), InvariantBreach> {
        let server = &self.server;
        ensure(server.half_open() <= MOST_HALF_OPEN, || {
            format!("{} sessions are half open", server.half_open())
        })?;
        ensure(server.held() <= MOST_HELD, || format!("{} rejects are held back", server.held()))?;
        ensure(server.cached_users() <= MOST_USERS, || format!("{} users are kept", server.cached_users()))?;
        self.check_answers()?;
        self.check_work()?;
        let open = self.service.store().sessions().filter(|row| row.acctstoptime.is_none());
        let to_come = self.slots.iter().flatten().filter_map(|login| {
            let LoginState::Accepted { request, attributes } = &login.standing else { return None };
            let grant = self.oracle.grant(*request).filter(|grant| grant.at + PATIENCE > self.now)?;
            let address = attributes.get_ipv4(kind::FRAMED_IP_ADDRESS)?;
            let new = login.session.is_none();
            new.then(|| (IpAddr::V4(address), grant.person, login.station.address.clone()))
        });
        self.oracle.sessions(open, to_come)
    }

    /// Each request was answered, waits for its answer, or moved a counter.
    fn check_answers(&self) -> Result<(), InvariantBreach> {
        let counters = self.server.radius_counters();
        let dropped: u64 = counters
            .into_iter()
            .flat_map(|counters| counters.iter())
            .filter(|(name, _)| DROPS.contains(name))
            .map(|(_, n)| n)
            .sum();
        let (given, answered, owed) = (self.given, self.answered, self.server.owed() as u64);
        ensure(given <= answered + dropped + owed, || {
            format!(
                "of {given} requests {answered} were answered, {dropped} dropped, and {owed} wait: one is lost"
            )
        })
    }

    /// What somebody may cost who has proved nothing: a handshake for each login that was begun, a digest or two for each request.
    fn check_work(&self) -> Result<(), InvariantBreach> {
        let begun = self.server.counters().sessions;
        for (label, most) in [
            ("tls.sign", begun),
            ("tls.key_exchange", begun),
            ("tls.verify", 4 * begun),
            ("eap.tls", self.given),
            ("eap.md5", 2 * self.given),
            ("eap.mschapv2", 2 * self.given),
            ("aaa.verdict", self.given),
        ] {
            let done = self.work.get(label).copied().unwrap_or_default();
            ensure(done <= most, || format!("{done} units of {label}, and {most} may be"))?;
        }
        Ok(())
    }

    /// All that is under way comes to its end.
    pub(super) fn finish(mut self) -> Result<RunOutcome, InvariantBreach> {
        self.holds_jobs = false;
        self.drain()?;
        self.pass(Duration::from_secs(600))?;
        self.check()?;
        let left = (self.server.half_open(), self.server.owed());
        ensure(left == (0, 0), || format!("{left:?} sessions and requests are left"))?;
        self.outcome.accepted = self.oracle.granted();
        Ok(self.outcome)
    }
}
