//! The authenticator's machine.

use super::keyings::Keyings;
use super::ports::{Ports, Status};
use super::session::{Session, identity};
use super::{Command, Config, Counters, EndCause, Event, FailReason};
use crate::aaa::{ACCOUNTING, AaaClient, Answer, Ask, ConfigError, Facts, Failure, Record};
use crate::frame::{self, Access, StationFrame, Unheard};
use crate::station_id::StationId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::collections::hash_state;
use usher_core::table::SessionTable;
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, PortId, SecureRng, Transmit,
    Work,
};
use usher_crypto::Key;
use usher_eap::authenticator::{Answer as Verdict, Authenticator as Conversation, End};
use usher_pkm::eap::BaseSide;
use usher_pkm::keying;
use usher_pkm::keys::AuthKey;

/// An authenticator; see the [module](super).
#[derive(Debug)]
pub struct Authenticator {
    config: Config,
    aaa: AaaClient,
    ports: Ports,
    sessions: SessionTable<Session>,
    keyings: Keyings,
    /// Records of accounting without an answer: the host's tokens by the AAA client's.
    records: BTreeMap<u64, u64>,
    next_record: u64,
    /// Retransmissions to stations, by session.
    resend: TimerQueue<u64>,
    outputs: Outputs<Event>,
    counters: Counters,
    rng: SecureRng,
    /// An answer's EAP packet and note on their way through.
    eap: Vec<u8>,
    note: Vec<u8>,
}

impl Authenticator {
    /// An authenticator without stations. EAP identifiers, and what its AAA client draws, come from
    /// `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        if config.nas.identifier.len() > 253 {
            return Err(ConfigError::Identifier(config.nas.identifier.len()));
        }
        if config.nas.identifier.is_empty() && config.nas.address.is_none() {
            return Err(ConfigError::Nameless);
        }
        if config.max_sessions == 0 {
            return Err(ConfigError::NoSessions);
        }
        let aaa = AaaClient::new(config.aaa.clone(), SecureRng::from_seed(rng.array()))?;
        Ok(Self {
            aaa,
            ports: Ports::new(hash_state(&mut rng)),
            sessions: SessionTable::new(),
            keyings: Keyings::default(),
            records: BTreeMap::new(),
            next_record: 0,
            resend: TimerQueue::new(),
            outputs: Outputs::default(),
            counters: Counters::default(),
            eap: Vec::new(),
            note: Vec::new(),
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
        match &self.aaa {
            AaaClient::Radius(r) => Some(r.client.counters()),
            AaaClient::Diameter(_) => None,
        }
    }
    /// The Diameter nodes' counters, where that is how it asks: their sum, those included that are gone.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<usher_diameter::node::Counters> {
        match &self.aaa {
            AaaClient::Radius(_) => None,
            AaaClient::Diameter(d) => Some(d.counters()),
        }
    }
    /// What exchanges of keys did and dropped.
    #[must_use]
    pub fn keying_counters(&self) -> keying::Counters {
        self.keyings.counters()
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
        match self.ports.get(station) {
            Some(Status::Running(_)) => {
                self.counters.restarted += 1;
                self.forget(now, station);
            }
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
        let first = self.rng.next_u32() as u8;
        let policy = self.config.retransmission;
        // Without retransmission the sessions' order of age keeps the station's time.
        let patience = Duration::MAX;
        let session = match identity {
            None => {
                let eap = Conversation::new(first, policy, patience, now);
                Session::new(station, Vec::new(), pkm, eap)
            }
            Some(name) => {
                let eap = Conversation::with_identity(&name, first, policy, patience, now);
                Session::new(station, name, pkm, eap)
            }
        };
        let token = self.sessions.insert(now, session);
        self.ports.set(station, Status::Running(token));
        self.pump(now, token);
        Ok(())
    }

    /// Ends a session without a word.
    fn drop_session(&mut self, now: Instant, token: u64) -> Option<Session> {
        let session = self.sessions.remove(token)?;
        if let Some(at) = session.resend_at {
            self.resend.remove(at, token);
        }
        self.aaa.end(now, token, session.asking);
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
            let ask = Ask {
                token,
                name: &session.name,
                port: session.station.nas_port(),
                calling: session.station.mac(),
                note: &session.note,
                eap: response,
            };
            session.asking = self.aaa.ask(now, &self.config.nas, &ask).is_ok();
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
            self.fail(now, token, FailReason::AaaUnavailable);
        }
    }

    fn hear(
        &mut self,
        now: Instant,
        station: StationId,
        pkm: BaseSide,
        packet: &[u8],
    ) -> Result<(), CommandError> {
        let Some(Status::Running(token)) = self.ports.get(station) else {
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
        while let Some(answer) = self.aaa.poll(now, &mut self.outputs, &mut self.eap, &mut self.note) {
            match answer {
                Answer::Challenge { token } => self.challenged(now, token),
                Answer::Accept { token, msk, facts } => self.accepted(now, token, msk, facts),
                Answer::Reject { token } => self.rejected(now, token),
                Answer::Kept { token } => self.accounted(token, true),
                Answer::Failed { token, .. } if token & ACCOUNTING != 0 => self.accounted(token, false),
                Answer::Peer { peer, up } => self.outputs.event(Event::DiameterPeer { peer, up }),
                Answer::Failed { token, failure } => {
                    if let Some(session) = self.sessions.get_mut(token) {
                        session.asking = false;
                        self.fail(
                            now,
                            token,
                            match failure {
                                Failure::Timeout => FailReason::AaaTimeout,
                                Failure::Unavailable => FailReason::AaaUnavailable,
                                Failure::Protocol | Failure::BadKey => FailReason::AaaProtocol,
                            },
                        );
                    }
                }
            }
        }
    }

    fn account(&mut self, now: Instant, token: u64, record: &Record) -> Result<(), CommandError> {
        let ours = ACCOUNTING | self.next_record;
        self.aaa.account(now, &self.config.nas, ours, record)?;
        self.next_record += 1;
        self.records.insert(ours, token);
        self.counters.records += 1;
        Ok(())
    }

    fn accounted(&mut self, ours: u64, kept: bool) {
        let Some(token) = self.records.remove(&ours) else { return };
        self.counters.kept += u64::from(kept);
        self.outputs.event(Event::Accounted { token, kept });
    }

    fn challenged(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.asking = false;
        core::mem::swap(&mut session.note, &mut self.note);
        if session.challenge(now, &self.eap) {
            self.sessions.touch(now, token);
            self.pump(now, token);
        } else {
            self.fail(now, token, FailReason::AaaProtocol);
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

    fn accepted(&mut self, now: Instant, token: u64, msk: Option<Key<[u8; 64]>>, facts: Facts) {
        let Some(station) = self.sessions.get_mut(token).map(|session| session.station) else { return };
        let until = facts.session_timeout.map(|t| now + t);
        let key = msk.as_ref().map(|msk| self.key(station, msk));
        let say = |session: &mut Session| Event::Authenticated {
            station,
            name: core::mem::take(&mut session.name),
            msk,
            facts: Facts { rounds: session.rounds, ..facts },
        };
        let Some(session) = self.conclude(now, token, true, say) else { return };
        self.counters.authenticated += 1;
        self.remember(session.station, Status::In(until));
        if let (Some(config), StationId::Frame { .. }, Access::Wimax) =
            (self.config.keying, session.station, self.config.access)
        {
            match key.flatten() {
                Some(key) if self.keyings.len() < self.config.max_remembered => {
                    self.outputs.work(Work { label: usher_pkm::work::DERIVE, units: 1 });
                    let base = keying::Base::new(config, key, &mut self.rng, now);
                    self.keyings.insert(session.station, base);
                    self.pump_keying(session.station);
                }
                _ => self.unkeyed(session.station),
            }
        }
    }

    /// The authorization key of a station that is let in.
    fn key(&self, station: StationId, msk: &Key<[u8; 64]>) -> Option<AuthKey> {
        self.config.keying?;
        Some(AuthKey::new(msk, station.mac()?.0, self.config.mac.0, 0))
    }

    fn unkeyed(&mut self, station: StationId) {
        self.counters.unkeyed += 1;
        self.keyings.remove(station);
        self.ports.remove(station);
        self.outputs.event(Event::Ended { station, cause: EndCause::Unkeyed });
    }

    /// Takes out what a station's exchange of keys wants.
    fn pump_keying(&mut self, station: StationId) {
        let StationId::Frame { port, mac } = station else { return };
        let Self { keyings, outputs, config, .. } = self;
        let carry = |buf: &mut Vec<u8>, message: &[u8]| frame::carry(buf, (mac, config.mac), message);
        match keyings.pump(station, outputs, port, carry) {
            Some(keying::Event::Keyed(_)) => {
                self.counters.keyed += 1;
                self.outputs.event(Event::Keyed { station });
            }
            Some(keying::Event::Failed(_)) => self.unkeyed(station),
            None => {}
        }
    }

    fn rejected(&mut self, now: Instant, token: u64) {
        let say = |session: &mut Session| Event::Rejected {
            station: session.station,
            name: core::mem::take(&mut session.name),
        };
        let Some(session) = self.conclude(now, token, false, say) else { return };
        self.counters.rejected += 1;
        self.turned_away(now, session.station);
    }

    fn fail(&mut self, now: Instant, token: u64, reason: FailReason) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.give_up(now, reason);
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
        if self.config.quiet_period.is_zero() {
            self.ports.remove(station);
        } else {
            self.remember(station, Status::Quiet(now + self.config.quiet_period));
        }
    }

    /// Notes where a station stands after its session; one of the host's is the host's to remember.
    fn remember(&mut self, station: StationId, status: Status) {
        self.ports.remove(station);
        if matches!(station, StationId::Host(_)) {
            return;
        }
        if self.ports.remembered() < self.config.max_remembered {
            self.ports.set(station, status);
        } else {
            self.counters.not_remembered += 1;
        }
    }

    fn forget(&mut self, now: Instant, station: StationId) -> Option<Status> {
        self.keyings.remove(station);
        let status = self.ports.remove(station)?;
        if let Status::Running(token) = status {
            self.drop_session(now, token);
        }
        Some(status)
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
                    self.pump_keying(station);
                } else {
                    self.counters.unknown_pkm += 1;
                }
                Ok(())
            }
            StationFrame::Eap(packet) => self.hear(now, station, pkm, packet),
            StationFrame::Start => self.begin(now, station, pkm, None),
            StationFrame::Logoff => {
                if let Some(Status::In(_)) = self.forget(now, station) {
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
                self.fail(now, token, FailReason::StationTimeout);
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
                self.fail(now, token, FailReason::StationTimeout);
            }
        }
        while let Some(station) = self.keyings.expire(now) {
            self.pump_keying(station);
        }
        while let Some((station, status)) = self.ports.pop_due(now) {
            self.keyings.remove(station);
            if let Status::In(_) = status {
                self.outputs.event(Event::Ended { station, cause: EndCause::SessionTimeout });
            }
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
                self.forget(now, station).map(|_| ()).ok_or(CommandError::UnknownToken)
            }
            Command::Account { token, record } => self.account(now, token, &record),
            Command::Diameter(command) => match &mut self.aaa {
                AaaClient::Diameter(d) => d.command(now, command),
                AaaClient::Radius(_) => Err(CommandError::Invalid("this NAS asks by RADIUS")),
            },
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
