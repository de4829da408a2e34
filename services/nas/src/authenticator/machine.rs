//! The authenticator's machine.

use super::admitted::{Admitted, meant};
use super::keyings::Keyings;
use super::ports::{Ports, Status};
use super::session::{Session, identity};
use super::{Authentication, Command, Config, ConfigError, Counters, EndCause, Event, FailReason};
use crate::frame::{self, Access, StationFrame, Unheard};
use crate::record::Record;
use crate::station_id::StationId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_access::{
    AccessClient, Continuation, DynamicKind, DynamicRequest, ErrorCause, Failure, FramedAddress, Proof,
    RecordKind, Reply, Request, TerminateCause,
};
use usher_core::collections::hash_state;
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    Child, CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, PortId, SecureRng,
    Transmit, WallTime, Work,
};
use usher_crypto::Key;
use usher_eap::authenticator::{Answer as Verdict, Authenticator as Conversation, End};
use usher_pkm::eap::BaseSide;
use usher_pkm::keying;
use usher_pkm::keys::AuthKey;
use usher_radius::attribute::kind;

/// An authenticator; see the [module](super).
#[derive(Debug)]
pub struct Authenticator {
    config: Config,
    aaa: Child<AccessClient>,
    ports: Ports,
    sessions: SessionTable<Session>,
    keyings: Keyings,
    /// Who is in, where the AAA server may ask something of them.
    admitted: BTreeMap<StationId, Admitted>,
    /// What the AAA server wants to be told when a station is authenticated again.
    again: BTreeMap<StationId, Continuation>,
    /// Records of accounting without an answer: the host's tokens by the AAA client's.
    records: BTreeMap<u64, u64>,
    next_record: u64,
    /// Retransmissions to stations, by session.
    resend: TimerQueue<u64>,
    outputs: Outputs<Event>,
    counters: Counters,
    rng: SecureRng,
    /// An answer's EAP packet on its way through.
    eap: Vec<u8>,
}

impl Authenticator {
    /// An authenticator without stations. EAP identifiers, and what its AAA client draws, come from
    /// `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        if config.max_sessions == 0 {
            return Err(ConfigError::NoSessions);
        }
        let aaa =
            AccessClient::new(config.nas.clone(), config.aaa.clone(), SecureRng::from_seed(rng.array()))?;
        Ok(Self {
            aaa: Child::only(aaa),
            admitted: BTreeMap::new(),
            again: BTreeMap::new(),
            ports: Ports::new(hash_state(&mut rng)),
            sessions: SessionTable::new(),
            keyings: Keyings::default(),
            records: BTreeMap::new(),
            next_record: 0,
            resend: TimerQueue::new(),
            outputs: Outputs::default(),
            counters: Counters::default(),
            eap: Vec::new(),
            config,
            rng,
        })
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The RADIUS client's counters, where that is how it asks.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::Counters> {
        self.aaa.radius_counters()
    }
    /// The Diameter nodes' counters, where that is how it asks: their sum, those included that are gone.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<usher_diameter::node::Counters> {
        self.aaa.diameter_counters()
    }
    /// What exchanges of keys did and dropped.
    #[must_use]
    pub fn keying_counters(&self) -> keying::Counters {
        self.keyings.counters()
    }
    /// Takes back the reply of [`Event::Authenticated`] once it is not needed any more: its memory serves the next request.
    pub fn recycle(&mut self, reply: Reply) {
        self.aaa.recycle(reply);
    }
    /// Sessions in progress.
    #[must_use]
    pub fn in_progress(&self) -> usize {
        self.sessions.len()
    }

    fn begin(
        &mut self,
        now: Instant,
        station: StationId,
        pkm: BaseSide,
        identity: Option<Vec<u8>>,
    ) -> Result<(), CommandError> {
        // Whoever is in stays in until there is a verdict, and no longer than was said.
        let (mut until, mut unsaid) = (None, None);
        match self.ports.get(station) {
            Some(Status::Running(token, before)) => {
                self.counters.restarted += 1;
                until = before;
                let session = self.drop_session(now, token);
                unsaid = session.filter(|s| s.rounds == 0).map(|s| s.next);
            }
            Some(Status::In(before)) => until = before,
            Some(Status::Again(at)) => until = Some(at.max(now) + AGAIN_WITHIN),
            Some(Status::Quiet(until)) if until > now => {
                self.counters.quiet += 1;
                return Err(CommandError::WrongState("the station was turned away a moment ago"));
            }
            _ => {}
        }
        if self.sessions.len() >= self.config.max_sessions {
            self.counters.full += 1;
            return Err(CommandError::Full("sessions in progress"));
        }
        self.counters.sessions += 1;
        self.keyings.remove(station);
        let next = self.again.remove(&station).or(unsaid).unwrap_or_default();
        let first = self.rng.next_u32() as u8;
        let policy = self.config.retransmission;
        // Without retransmission the sessions' order of age keeps the station's time.
        let patience = Duration::MAX;
        let session = match identity {
            None => {
                let eap = Conversation::new(first, policy, patience, now);
                Session::new(station, Vec::new(), pkm, next, eap)
            }
            Some(name) => {
                let eap = Conversation::with_identity(&name, first, policy, patience, now);
                Session::new(station, name, pkm, next, eap)
            }
        };
        let token = self.sessions.insert(now, session);
        self.ports.set(station, Status::Running(token, until));
        self.pump(now, token);
        Ok(())
    }

    /// Ends a session without a word.
    fn drop_session(&mut self, now: Instant, token: u64) -> Option<Session> {
        let session = self.sessions.remove(token)?;
        if let Some(at) = session.resend_at {
            self.resend.remove(at, token);
        }
        // It knows every question.
        let _ = self.aaa.command(now, usher_access::Command::Cancel { token });
        Some(session)
    }

    /// Takes out what a session's automaton wants: a question asked, a packet sent, its timer armed.
    fn pump(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let mut refused = false;
        if let Some(response) = session.eap.poll_aaa() {
            if session.rounds == 0 && session.name.is_empty() {
                session.name = identity(response);
            }
            let (name, proof, continues) = (&session.name, Proof::Eap(response), Some(&session.next));
            session.asking = session.station.with_port(|port| {
                let request = Request { port, continues, ..Request::new(name, proof) };
                self.aaa.ask(now, token, &request).is_ok()
            });
            session.rounds = session.rounds.saturating_add(1);
            refused = !session.asking;
        }
        if let Some(packet) = session.eap.poll_transmit() {
            let to = (session.station, session.pkm);
            send(&mut self.outputs, &self.config, to, packet);
        }
        if self.config.retransmission.is_some() {
            let due = session.eap.poll_timeout();
            if due != session.resend_at {
                if let Some(at) = session.resend_at {
                    self.resend.remove(at, token);
                }
                if let Some(at) = due {
                    self.resend.insert(at, token);
                }
                session.resend_at = due;
            }
        }
        if refused {
            self.fail(now, token, FailReason::AaaUnavailable, true);
        }
    }

    fn hear(
        &mut self,
        now: Instant,
        station: StationId,
        pkm: BaseSide,
        packet: &[u8],
    ) -> Result<(), CommandError> {
        let Some(Status::Running(token, _)) = self.ports.get(station) else {
            self.counters.no_session += 1;
            return Err(CommandError::UnknownToken);
        };
        let Some(session) = self.sessions.get_mut(token) else { return Ok(()) };
        session.pkm = pkm;
        if session.eap.handle(now, packet) {
            self.sessions.touch(now, token);
            self.pump(now, token);
        } else {
            self.counters.bad_eap += 1;
        }
        Ok(())
    }

    /// Acts on what the AAA client has to say.
    fn drain_aaa(&mut self, now: Instant) {
        while let Some(event) = self.outputs.next_event(&mut self.aaa) {
            match event {
                usher_access::Event::Challenge { token, reply } => self.challenged(now, token, reply),
                usher_access::Event::Accept { token, reply } => self.accepted(now, token, reply),
                usher_access::Event::Reject { token, reply } => self.rejected(now, token, reply),
                usher_access::Event::Accounted { token, kept } => self.accounted(token, kept.is_ok()),
                usher_access::Event::Peer { peer, up } => {
                    self.outputs.event(Event::DiameterPeer { peer, up })
                }
                usher_access::Event::Dynamic(request) => self.dynamic(now, &request),
                // The client itself turns to another server.
                usher_access::Event::Server { .. } => {}
                usher_access::Event::Failed { token, failure } => {
                    let reason = match failure {
                        Failure::Timeout => FailReason::AaaTimeout,
                        Failure::Unavailable | Failure::ConnectionLost | Failure::Fault(_) => {
                            FailReason::AaaUnavailable
                        }
                        Failure::BadAnswer => FailReason::AaaProtocol,
                    };
                    // RFC 3579 §2.1: no EAP-Failure as the result of a timeout.
                    let last_word = reason == FailReason::AaaProtocol || self.config.canned_failure;
                    if let Some(session) = self.sessions.get_mut(token) {
                        session.asking = false;
                        self.fail(now, token, reason, last_word);
                    }
                }
            }
        }
    }

    /// The AAA server wants something of stations that are in (RFC 5176). Of all that are meant, or of none.
    fn dynamic(&mut self, now: Instant, request: &DynamicRequest) {
        let stations = meant(&self.admitted, request);
        let planned = match Change::of(request) {
            _ if stations.is_empty() => Err(ErrorCause::SessionContextNotFound),
            Err(cause) => Err(cause),
            Ok(change) => {
                let plan = |&station| Ok((station, self.plan(now, request.kind, station, &change)?));
                let all: Result<Vec<_>, _> = stations.iter().map(plan).collect();
                all.map(|all| (all, change.state))
            }
        };
        // An Abort-Session-Request is answered before the server is told that the session has ended (RFC 6733 §8.1). It was
        // asked just now.
        let answer = planned.as_ref().map_or_else(|cause| Err(*cause), |_| Ok(()));
        let command = usher_access::Command::AnswerDynamic { token: request.token, answer };
        let _ = self.aaa.command(now, command);
        let Ok((planned, state)) = planned else {
            // Whoever is not authenticated again where that is wanted is out (RFC 6733 §8.1).
            if request.kind == DynamicKind::Reauthenticate {
                stations.into_iter().for_each(|station| self.disconnect(now, station));
            }
            return;
        };
        for (station, status) in planned {
            match request.kind {
                DynamicKind::Disconnect => self.disconnect(now, station),
                DynamicKind::Change => {
                    self.counters.changed += 1;
                    if let Some(status) = status {
                        self.ports.set(station, status);
                    }
                    match (status, &state) {
                        (Some(Status::In(_)), _) => drop(self.again.remove(&station)),
                        (_, Some(next)) => drop(self.again.insert(station, next.clone())),
                        _ => {}
                    }
                    self.outputs.event(Event::Changed { station });
                }
                DynamicKind::Reauthenticate => match status {
                    // That it is under way serves as well.
                    Some(Status::Running(token, until)) => {
                        let latest = now + AGAIN_WITHIN;
                        let until = until.map_or(latest, |until| until.min(latest));
                        self.ports.set(station, Status::Running(token, Some(until)));
                    }
                    _ => drop(self.authenticate_again(now, station)),
                },
            }
        }
    }

    /// Sends a station away because the AAA server wants it.
    fn disconnect(&mut self, now: Instant, station: StationId) {
        self.counters.disconnected += 1;
        self.forget(now, station, TerminateCause::AdminReset);
        self.outputs.event(Event::Ended { station, cause: EndCause::Disconnected });
    }

    /// Where a station stands after what is wanted of it, or why that cannot be.
    fn plan(
        &mut self,
        now: Instant,
        kind: DynamicKind,
        station: StationId,
        change: &Change,
    ) -> Result<Option<Status>, ErrorCause> {
        let status = self.ports.get(station);
        match (kind, status) {
            (DynamicKind::Disconnect, _) => Ok(None),
            // Its times are the host's to keep.
            (_, None) => Err(ErrorCause::AdministrativelyProhibited),
            (DynamicKind::Change, Some(status)) => change.of_status(now, status).map(Some),
            (DynamicKind::Reauthenticate, Some(Status::Running(..))) => Ok(status),
            (DynamicKind::Reauthenticate, _) if self.sessions.len() >= self.config.max_sessions => {
                self.counters.full += 1;
                Err(ErrorCause::ResourcesUnavailable)
            }
            (DynamicKind::Reauthenticate, _) => Ok(status),
        }
    }

    /// Whether there is room for it now. It stays in until its session would have ended anyway, and no longer than it takes.
    fn authenticate_again(&mut self, now: Instant, station: StationId) -> bool {
        self.counters.reauthentications += 1;
        let latest = now + AGAIN_WITHIN;
        match self.ports.get(station) {
            Some(Status::In(Some(until))) if until < latest => {}
            _ => self.ports.set(station, Status::Again(now)),
        }
        self.begin(now, station, BaseSide::new(), None).is_ok()
    }

    /// Notes until when a station is in, and what is then; whether it is remembered.
    fn stay(&mut self, now: Instant, station: StationId, stay: Stay) -> bool {
        self.again.remove(&station);
        let status = match &stay.again {
            Some((after, _)) => Status::Again(now + *after),
            None => Status::In(stay.ends.map(|after| now + after)),
        };
        let remembered = self.remember(station, status);
        if remembered && let Some((_, next)) = stay.again {
            self.again.insert(station, next);
        }
        remembered
    }

    fn account(&mut self, now: Instant, token: u64, record: &Record) -> Result<(), CommandError> {
        let classes: Vec<&[u8]> = record.classes.iter().map(|class| &class[..]).collect();
        record.station.with_port(|port| {
            let record = usher_access::Record {
                name: &record.name,
                port,
                lasted: record.lasted,
                traffic: record.traffic,
                cause: record.cause,
                classes: &classes,
                framed_ip: record.framed_ip,
                ..usher_access::Record::new(record.kind, &record.session, record.number)
            };
            self.aaa.account(now, self.next_record, &record)
        })?;
        // The record of an end may be that of the session before.
        if record.kind != RecordKind::Stop
            && let Some(admitted) = self.admitted.get_mut(&record.station)
        {
            admitted.session = Some(record.session.clone());
        }
        self.records.insert(self.next_record, token);
        self.next_record += 1;
        self.counters.records += 1;
        Ok(())
    }

    fn accounted(&mut self, ours: u64, kept: bool) {
        let Some(token) = self.records.remove(&ours) else { return };
        self.counters.kept += u64::from(kept);
        self.outputs.event(Event::Accounted { token, kept });
    }

    fn challenged(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.asking = false;
        reply.eap(&mut self.eap);
        reply.continuation(&mut session.next);
        self.aaa.recycle(reply);
        if session.challenge(now, &self.eap) {
            self.sessions.touch(now, token);
            self.pump(now, token);
        } else {
            self.fail(now, token, FailReason::AaaProtocol, true);
        }
    }

    /// Gives a session the AAA server's verdict, says so, sends the station what follows from it, and ends it. Who opens
    /// the port and installs the key has heard of it when EAP-Success leaves.
    fn conclude(
        &mut self,
        now: Instant,
        token: u64,
        success: bool,
        say: impl FnOnce(&mut Session) -> Event,
    ) -> Option<Session> {
        let session = self.sessions.get_mut(token)?;
        session.asking = false;
        let verdict = if success { Verdict::Success(&self.eap) } else { Verdict::Failure(&self.eap) };
        session.eap.answer(now, verdict);
        self.outputs.event(say(session));
        self.pump(now, token);
        self.sessions.remove(token)
    }

    fn accepted(&mut self, now: Instant, token: u64, reply: Reply) {
        let Some(session) = self.sessions.get_mut(token) else {
            return self.release(now, token, TerminateCause::NasError);
        };
        let (station, rounds) = (session.station, session.rounds);
        let Ok(msk) = reply.msk() else {
            session.asking = false;
            self.release(now, token, TerminateCause::NasError);
            return self.fail(now, token, FailReason::AaaProtocol, true);
        };
        let key = msk.as_ref().map(|msk| self.key(station, msk));
        reply.eap(&mut self.eap);
        let (stay, admitted) = (Stay::of(&reply), self.admitted(token, &reply));
        let say = |session: &mut Session| {
            let name = core::mem::take(&mut session.name);
            Event::Authenticated(Box::new(Authentication { station, name, msk, reply, rounds }))
        };
        let Some(session) = self.conclude(now, token, true, say) else { return };
        self.counters.authenticated += 1;
        let before = self.left(now, station, TerminateCause::NasRequest);
        let remembered = self.stay(now, station, stay);
        if let Some(admitted) = admitted {
            self.admit(now, station, admitted.after(before), remembered);
        }
        if let (Some(config), StationId::Frame { .. }, Access::Wimax) =
            (self.config.keying, session.station, self.config.access)
        {
            match key.flatten() {
                Some(key) if self.keyings.len() < self.config.max_remembered => {
                    self.outputs.work(Work { label: usher_pkm::work::DERIVE, units: 1 });
                    let base = keying::Base::new(config, key, &mut self.rng, now);
                    self.keyings.insert(session.station, base);
                    self.pump_keying(now, session.station);
                }
                _ => self.unkeyed(now, session.station),
            }
        }
    }

    /// What a station is known by that is let in by this question; `None`: nothing can be asked of it later.
    fn admitted(&self, token: u64, reply: &Reply) -> Option<Admitted> {
        let session = self.sessions.get(token).filter(|_| self.aaa.hears_requests())?;
        let framed_ip = match reply.framed_ip_address() {
            Some(FramedAddress::Address(address)) => Some(address),
            _ => None,
        };
        let names = [session.name.clone(), reply.user_name().unwrap_or_default().to_vec()];
        Some(Admitted { token, names, session: None, framed_ip })
    }

    /// Keeps what a station that was let in is known by, if there is room; otherwise no server keeps its session.
    fn admit(&mut self, now: Instant, station: StationId, admitted: Admitted, mut remembered: bool) {
        if matches!(station, StationId::Host(_)) {
            remembered = self.admitted.len() < self.config.max_remembered;
            self.counters.not_remembered += u64::from(!remembered);
        }
        if remembered {
            self.admitted.insert(station, admitted);
        } else {
            self.release(now, admitted.token, TerminateCause::NasError);
        }
    }

    /// A session of a station that was let in is over: what it was known by.
    fn left(&mut self, now: Instant, station: StationId, cause: TerminateCause) -> Option<Admitted> {
        let admitted = self.admitted.remove(&station)?;
        self.release(now, admitted.token, cause);
        Some(admitted)
    }

    /// The session that this question let in is over, or never came about.
    fn release(&mut self, now: Instant, token: u64, cause: TerminateCause) {
        // Whether a server keeps the session is known there.
        let _ = self.aaa.command(now, usher_access::Command::Terminate { token, cause });
    }

    /// The authorization key of a station that is let in.
    fn key(&self, station: StationId, msk: &Key<[u8; 64]>) -> Option<AuthKey> {
        self.config.keying?;
        Some(AuthKey::new(msk, station.mac()?.0, self.config.mac.0, 0))
    }

    fn unkeyed(&mut self, now: Instant, station: StationId) {
        self.counters.unkeyed += 1;
        self.keyings.remove(station);
        self.ports.remove(station);
        self.left(now, station, TerminateCause::NasError);
        self.outputs.event(Event::Ended { station, cause: EndCause::Unkeyed });
    }

    /// Takes out what a station's exchange of keys wants.
    fn pump_keying(&mut self, now: Instant, station: StationId) {
        let StationId::Frame { port, mac } = station else { return };
        let Self { keyings, outputs, config, .. } = self;
        let carry = |buf: &mut Vec<u8>, message: &[u8]| frame::carry(buf, (mac, config.mac), message);
        match keyings.pump(station, outputs, port, carry) {
            Some(keying::Event::Keyed(_)) => {
                self.counters.keyed += 1;
                self.outputs.event(Event::Keyed { station });
            }
            Some(keying::Event::Failed(_)) => self.unkeyed(now, station),
            None => {}
        }
    }

    fn rejected(&mut self, now: Instant, token: u64, reply: Reply) {
        reply.eap(&mut self.eap);
        self.aaa.recycle(reply);
        let say = |session: &mut Session| Event::Rejected {
            station: session.station,
            name: core::mem::take(&mut session.name),
        };
        let Some(session) = self.conclude(now, token, false, say) else { return };
        self.counters.rejected += 1;
        self.turned_away(now, session.station);
    }

    fn fail(&mut self, now: Instant, token: u64, reason: FailReason, last_word: bool) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.give_up(now, reason, last_word);
        self.outputs.event(Event::Failed { station: session.station, reason });
        self.pump(now, token);
        let Some(session) = self.drop_session(now, token) else { return };
        let count = match reason {
            FailReason::StationTimeout => &mut self.counters.station_timeouts,
            FailReason::AaaTimeout => &mut self.counters.aaa_timeouts,
            FailReason::AaaUnavailable => &mut self.counters.aaa_unavailable,
            FailReason::AaaProtocol => &mut self.counters.aaa_protocol,
        };
        *count += 1;
        self.turned_away(now, session.station);
    }

    fn turned_away(&mut self, now: Instant, station: StationId) {
        self.left(now, station, TerminateCause::NasRequest);
        if self.config.quiet_period.is_zero() {
            self.ports.remove(station);
        } else {
            self.remember(station, Status::Quiet(now + self.config.quiet_period));
        }
    }

    /// Notes where a station stands after its session, if there is room; one of the host's is the host's to remember.
    fn remember(&mut self, station: StationId, status: Status) -> bool {
        self.ports.remove(station);
        if matches!(station, StationId::Host(_)) {
            return false;
        }
        let room = self.ports.remembered() < self.config.max_remembered;
        if room {
            self.ports.set(station, status);
        } else {
            self.counters.not_remembered += 1;
        }
        room
    }

    /// Whether the station was in; `None`: nothing was known of it.
    fn forget(&mut self, now: Instant, station: StationId, cause: TerminateCause) -> Option<bool> {
        self.keyings.remove(station);
        self.again.remove(&station);
        let was_admitted = self.left(now, station, cause).is_some();
        let status = self.ports.remove(station);
        if let Some(Status::Running(token, _)) = status {
            self.drop_session(now, token);
        }
        let was_in = was_admitted || status.is_some_and(Status::is_in);
        (was_in || status.is_some()).then_some(was_in)
    }

    fn frame(&mut self, now: Instant, port: PortId, data: &[u8]) {
        let received = match self.config.access.hear_station(data) {
            Ok(received) => received,
            Err(why) => {
                *match why {
                    Unheard::NotForUs | Unheard::StalePkm => &mut self.counters.not_for_us,
                    Unheard::Malformed => &mut self.counters.malformed,
                    Unheard::UnknownEapol => &mut self.counters.unknown_eapol,
                    Unheard::UnknownPkm => &mut self.counters.unknown_pkm,
                } += 1;
                return;
            }
        };
        let for_us = received.destination == self.config.mac || received.destination == frame::PAE_GROUP;
        if !for_us || received.source.is_group() {
            self.counters.not_for_us += 1;
            return;
        }
        let station = StationId::Frame { port, mac: received.source };
        // What is refused here is counted there.
        let (said, pkm) = received.body;
        let _ = match said {
            StationFrame::Keying(message) => {
                if self.keyings.handle(now, station, message) {
                    self.pump_keying(now, station);
                } else {
                    self.counters.unknown_pkm += 1;
                }
                Ok(())
            }
            StationFrame::Eap(packet) => self.hear(now, station, pkm, packet),
            StationFrame::Start => self.begin(now, station, pkm, None),
            StationFrame::Logoff => {
                if self.forget(now, station, TerminateCause::UserRequest) == Some(true) {
                    self.outputs.event(Event::Ended { station, cause: EndCause::LoggedOff });
                }
                Ok(())
            }
        };
    }

    fn expire(&mut self, now: Instant) {
        while let Some((_, token)) = self.resend.pop_due(now) {
            let Some(session) = self.sessions.get_mut(token) else { continue };
            session.resend_at = None;
            let before = session.eap.retransmissions();
            session.eap.handle_timeout(now);
            if session.eap.poll_end() == Some(End::PeerTimeout) {
                self.fail(now, token, FailReason::StationTimeout, false);
            } else {
                self.counters.retransmissions += u64::from(session.eap.retransmissions() > before);
                self.pump(now, token);
            }
        }
        while let Some((token, since)) = self.sessions.oldest() {
            if since + self.config.station_timeout > now {
                break;
            }
            // The AAA client keeps the time of its own questions.
            if self.sessions.get(token).is_some_and(|s| s.asking) {
                self.sessions.touch(now, token);
            } else {
                self.fail(now, token, FailReason::StationTimeout, false);
            }
        }
        while let Some(station) = self.keyings.expire(now) {
            self.pump_keying(now, station);
        }
        while let Some((station, status)) = self.ports.pop_due(now) {
            match status {
                Status::Again(_) if self.authenticate_again(now, station) => {}
                Status::In(_) | Status::Again(_) | Status::Running(..) => {
                    if let Status::Running(token, _) = status {
                        self.drop_session(now, token);
                    }
                    self.forget(now, station, TerminateCause::SessionTimeout);
                    self.outputs.event(Event::Ended { station, cause: EndCause::SessionTimeout });
                }
                Status::Quiet(_) => self.keyings.remove(station),
            }
        }
    }
}

/// How long a station that is to be authenticated again is in at most without having proved itself, however often it begins
/// anew.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);

/// When a station is authenticated again that is to be at once, by an Authorization-Lifetime of zero (RFC 6733 §8.9): whoever
/// says so of each verdict has a station authenticated without end, but not without a pause.
const AT_ONCE: Duration = Duration::from_secs(10);

/// What a reply says of the end of a session: when it is, or when the station is authenticated again, with what the AAA
/// server is to be told then.
struct Stay {
    ends: Option<Duration>,
    again: Option<(Duration, Continuation)>,
}

impl Stay {
    fn of(reply: &Reply) -> Self {
        let ends = reply.session_timeout();
        let again = reply.reauthentication().filter(|again| ends.is_none_or(|ends| *again <= ends));
        let again = again.map(|after| {
            let mut next = Continuation::new();
            reply.continuation(&mut next);
            (if after.is_zero() { AT_ONCE } else { after }, next)
        });
        Self { ends, again }
    }
}

/// What a CoA-Request may change: Session-Timeout, and with Termination-Action what is then; State goes with that (RFC 5176
/// §3.3).
const CHANGEABLE: [u8; 3] = [kind::SESSION_TIMEOUT, kind::TERMINATION_ACTION, kind::STATE];

/// What a CoA-Request changes; what it leaves out remains as it is (RFC 5176 §3.6, note 3).
#[derive(Default)]
struct Change {
    lasts: Option<Duration>,
    /// Whether the station is authenticated again then.
    again: Option<bool>,
    /// What the AAA server is to be told then.
    state: Option<Continuation>,
}

impl Change {
    fn of(request: &DynamicRequest) -> Result<Self, ErrorCause> {
        let content = &request.content;
        if request.kind != DynamicKind::Change {
            return Ok(Self::default());
        }
        if !request.changes().all(|kind| CHANGEABLE.contains(&kind)) {
            return Err(ErrorCause::UnsupportedAttribute);
        }
        let again = match content.value(kind::TERMINATION_ACTION) {
            None => None,
            Some([0, 0, 0, action @ 0..=1]) => Some(*action == 1),
            Some(_) => return Err(ErrorCause::InvalidAttributeValue),
        };
        let state = content.value(kind::STATE).map(|_| {
            let mut next = Continuation::new();
            content.continuation(&mut next);
            next
        });
        if state.is_some() && again != Some(true) {
            return Err(ErrorCause::InvalidRequest);
        }
        Ok(Self { lasts: content.session_timeout(), again, state })
    }

    fn of_status(&self, now: Instant, status: Status) -> Result<Status, ErrorCause> {
        let (until, again) = match status {
            _ if self.lasts.is_none() && self.again.is_none() => return Ok(status),
            Status::In(until) => (until, false),
            Status::Again(at) => (Some(at), true),
            // The verdict that is awaited says all that anew.
            Status::Running(..) | Status::Quiet(_) => return Err(ErrorCause::ResourcesUnavailable),
        };
        let until = self.lasts.map(|lasts| now + lasts).or(until);
        match (self.again.unwrap_or(again), until) {
            (false, _) => Ok(Status::In(until)),
            (true, Some(at)) => Ok(Status::Again(at)),
            // A session without an end has no moment for it.
            (true, None) => Err(ErrorCause::MissingAttribute),
        }
    }
}

/// Hands a packet to its station: in a frame, or through the host.
fn send(outputs: &mut Outputs<Event>, config: &Config, (station, pkm): (StationId, BaseSide), packet: &[u8]) {
    match station {
        StationId::Host(_) => outputs.event(Event::EapToStation { station, packet: packet.to_vec() }),
        StationId::Frame { port, mac } => {
            let mut buf = outputs.buffer();
            config.access.tell_station(&mut buf, (mac, config.mac), pkm, packet);
            outputs.transmit(Transmit::Frame { port }, buf);
        }
    }
}

impl Machine for Authenticator {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.aaa.set_epoch(now, epoch);
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Frame { port, data } => self.frame(now, port, data),
            Input::Datagram { .. } | Input::Stream { .. } | Input::Message { .. } => {
                self.aaa.handle(now, input);
            }
            Input::Timeout => {
                self.aaa.handle(now, input);
                self.expire(now);
            }
        }
        self.drain_aaa(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let done = match command {
            Command::Begin { station, identity } => self.begin(now, station, BaseSide::new(), identity),
            Command::EapFromStation { station, packet } => self.hear(now, station, BaseSide::new(), &packet),
            Command::Forget { station } => {
                let known = self.forget(now, station, TerminateCause::LostCarrier);
                known.map(|_| ()).ok_or(CommandError::UnknownToken)
            }
            Command::Account { token, record } => self.account(now, token, &record),
            Command::Diameter(command) => self.aaa.command(now, usher_access::Command::Diameter(command)),
        };
        self.drain_aaa(now);
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let idle = self.sessions.oldest().map(|(_, since)| since + self.config.station_timeout);
        [self.aaa.poll_timeout(), self.resend.next(), self.ports.next(), self.keyings.next(), idle]
            .into_iter()
            .flatten()
            .min()
    }
}
