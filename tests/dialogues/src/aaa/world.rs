//! A run: the server, whoever speaks to it, and time.

use super::RunOutcome;
use super::diameter;
use super::oracle::{FAILURES, ProofOracle};
use super::station::{LoginStation, ProofMethod};
use super::wire::{self, ACCESS_SERVERS, NUMBER, SentRequest};
use crate::{InvariantBreach, Operation, OracleBelief, Person, ensure, main_pool, parts, respell, tunnels};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_aaa::ledger::{FailureLimit, LedgerConfig};
use usher_aaa::service::{Certificates, Service};
use usher_aaa::store::Memory;
use usher_aaa::{
    AaaServer, CacheConfig, CertificateVerdict, Config, Event, IdentityKey, Job, Method, RADSEC_LISTENER,
    UserSource, radius_socket,
};
use usher_core::bench::EPOCH;
use usher_core::timer::earliest;
use usher_core::{
    ConnId, Duration, Input, Instant, Machine, Output, Path, Seed, StreamEvent, StreamOp, Transmit,
};
use usher_diameter::node::Node;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::auth::{MessageAuthenticator, check_reply};
use usher_radius::packet::{Code, Packet};
use usher_radius::radsec::Framer;
use usher_radius::server::ClientConfig;

/// How many ports of access servers there are.
pub(super) const SLOTS: usize = 4;
pub(super) const MOST_HALF_OPEN: usize = 6;
pub(super) const MOST_HELD: usize = 4;
pub(super) const MOST_USERS: usize = 2;
/// The most requests of one login: more than any method takes.
const ROUNDS: usize = 32;

/// Where a login stands, as its access server sees it.
#[derive(Debug)]
pub(super) enum LoginState {
    Open,
    Rejected,
    /// Accepted by this request, with these attributes.
    Accepted {
        request: usize,
        attributes: Attributes,
    },
}

/// A session that an access server tells of.
#[derive(Debug)]
pub(super) struct AccountedSession {
    pub(super) id: String,
    pub(super) acknowledged: bool,
    pub(super) ended: bool,
    /// The record that was sent last.
    pub(super) last: Option<usize>,
}

/// A login at a port of an access server.
#[derive(Debug)]
pub(super) struct PortLogin {
    pub(super) attempt: u64,
    pub(super) access_server: usize,
    pub(super) station: LoginStation,
    state: Option<Vec<u8>>,
    user_name: Option<String>,
    last: Option<usize>,
    loses: bool,
    pub(super) standing: LoginState,
    pub(super) session: Option<AccountedSession>,
}

/// A request that lets a login go on, and what is odd about it.
#[derive(Default)]
struct RequestMutation {
    eap: Option<(Vec<u8>, Option<Person>)>,
    state: Option<Vec<u8>>,
}

/// Whom certificates name: all of this run are Ann's.
#[derive(Debug)]
struct TestAuthority;

impl Certificates for TestAuthority {
    fn verdict(&self, name: Option<&[u8]>, _: &[Vec<u8>], _: bool) -> CertificateVerdict {
        match name {
            None => CertificateVerdict::Good,
            Some(name) if name == Person::Ann.name().as_bytes() => CertificateVerdict::Good,
            Some(_) => CertificateVerdict::OtherName,
        }
    }
    fn user(&self, _: &[u8], _: &[Vec<u8>]) -> Option<Vec<u8>> {
        Some(Person::Ann.name().into())
    }
}

/// The server's dialogues with everybody.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) config: Config,
    pub(super) server: AaaServer,
    pub(super) service: Service<Memory>,
    pub(super) oracle: ProofOracle,
    pub(super) slots: [Option<PortLogin>; SLOTS],
    pub(super) sent: Vec<SentRequest>,
    /// By State: the dialogue that it names.
    states: BTreeMap<Vec<u8>, usize>,
    pub(super) jobs: VecDeque<usher_core::Job<Job>>,
    pub(super) holds_jobs: bool,
    pub(super) store_is_away: bool,
    pub(super) framer: Framer,
    /// The access server that speaks Diameter, its connection, and how many it has had.
    pub(super) diameter: Node,
    pub(super) connection: Option<ConnId>,
    pub(super) connections: u32,
    pub(super) is_peer_up: bool,
    /// Answers to requests, by their numbers, that access servers have not heard yet.
    pub(super) replies: Vec<(usize, Code, Attributes)>,
    /// Logins, sessions and servers begun: each has a number of its own.
    pub(super) begun: u64,
    /// Requests that the server was given and answers that it gave since it began.
    pub(super) given: u64,
    pub(super) answered: u64,
    /// Units of work by label, since the server began.
    pub(super) work: BTreeMap<&'static str, u64>,
    pub(super) outcome: RunOutcome,
}

fn config() -> Config {
    let mut config =
        Config::new(UserSource::Host(CacheConfig { entries: MOST_USERS, ..CacheConfig::default() }));
    let client = |n| {
        let address = IpAddr::V4(wire::address(n));
        match n {
            wire::RADSEC => ClientConfig::radsec(address, 32, Vec::new()),
            _ => ClientConfig::new(address, 32, wire::secret(n)),
        }
    };
    let mut radius = usher_radius::server::Config::new((0..wire::DIAMETER).map(client).collect());
    radius.retain = Duration::from_secs(20);
    radius.max_entries = 64;
    config.radius = Some(radius);
    config.diameter = Some(diameter::serving());
    config.methods = Method::ALL.into();
    tunnels::serve(&mut config);
    config.identity_key = Some(IdentityKey::new(b"a key that nobody guesses"));
    config.inner_names = vec![0];
    config.max_half_open = MOST_HALF_OPEN;
    config.max_held = MOST_HELD;
    config.max_steps_waiting = 2;
    config.reject_delay = Duration::from_secs(1);
    config.failures = Some(failure_limit());
    config.mab = true;
    config.certificate_status = true;
    config
}

fn failure_limit() -> FailureLimit {
    let (count, within) = FAILURES;
    FailureLimit::new(count, within, within)
}

pub(super) fn server(config: &Config, seed: u64) -> AaaServer {
    AaaServer::new(config.clone(), Seed::new(seed).secure("aaa", 0))
        .expect("the configuration holds together")
}

impl World {
    pub(super) fn new(belief: OracleBelief) -> Self {
        let config = config();
        let ledger = LedgerConfig {
            pools: vec![main_pool()],
            failures: Some(failure_limit()),
            ..LedgerConfig::default()
        };
        let mut parts = parts(ledger);
        parts.certificates = Some(Arc::new(TestAuthority));
        let mut world = Self {
            now: Instant::ZERO,
            server: server(&config, 0),
            service: Service::new(parts, &mut Seed::new(1).secure("known", 0)),
            config,
            oracle: ProofOracle::new(belief),
            slots: Default::default(),
            sent: Vec::new(),
            states: BTreeMap::new(),
            jobs: VecDeque::new(),
            holds_jobs: false,
            store_is_away: false,
            framer: Framer::new(),
            diameter: diameter::client(Instant::ZERO),
            connection: None,
            connections: 0,
            is_peer_up: false,
            replies: Vec::new(),
            begun: 0,
            given: 0,
            answered: 0,
            work: BTreeMap::new(),
            outcome: RunOutcome::default(),
        };
        world.connect();
        // Capabilities are exchanged.
        let done = world.pass(Duration::from_secs(1));
        debug_assert!(done.is_ok(), "nobody has asked anything");
        (world.given, world.answered) = (0, 0);
        world
    }

    /// The last access server's connection is accepted.
    pub(super) fn connect(&mut self) {
        self.server.set_epoch(Instant::ZERO, EPOCH);
        let remote = SocketAddr::new(IpAddr::V4(wire::address(wire::RADSEC)), 50_000);
        let (listener, local, certificate) = (RADSEC_LISTENER, None, None);
        let event = StreamEvent::Accepted { listener, remote, local, certificate };
        self.server.handle(self.now, Input::Stream { conn: wire::connection(), event });
    }

    pub(super) fn begin(&mut self, slot: usize, operation: Operation) -> Result<(), InvariantBreach> {
        self.stop(slot)?;
        self.begun += 1;
        let station = LoginStation::of(operation, self.begun, self.now);
        self.slots[slot] = Some(PortLogin {
            attempt: self.begun,
            access_server: usize::from(operation.how[1]) % ACCESS_SERVERS,
            station,
            state: None,
            user_name: None,
            last: None,
            loses: false,
            standing: LoginState::Open,
            session: None,
        });
        Ok(())
    }

    pub(super) fn step(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        self.ask(slot, RequestMutation::default())
    }

    pub(super) fn play(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        for _ in 0..ROUNDS {
            let open = |world: &Self| {
                world.slots[slot].as_ref().filter(|l| matches!(l.standing, LoginState::Open)).map(|l| l.last)
            };
            let Some(before) = open(self) else { break };
            let heard = self.outcome;
            self.step(slot)?;
            // A reject is held back for a while, and jobs may wait.
            if open(self).is_some_and(|last| last == before) || heard != self.outcome {
                break;
            }
        }
        Ok(())
    }

    /// Sends the next request of a login that is not decided.
    fn ask(&mut self, slot: usize, oddity: RequestMutation) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        if !matches!(login.standing, LoginState::Open) {
            return Ok(());
        }
        let (station, access_server, attempt) = (&login.station, login.access_server, login.attempt);
        let mut attributes = Attributes::new();
        let name = login.user_name.as_ref().unwrap_or(&station.outer);
        let _ = attributes.push_text(kind::USER_NAME, name);
        attributes.push_ipv4(kind::NAS_IP_ADDRESS, wire::address(access_server));
        attributes.push_u32(kind::NAS_PORT, slot as u32);
        let _ = attributes.push_text(NUMBER, &self.sent.len().to_string());
        if !station.address.is_empty() {
            let _ = attributes.push_text(kind::CALLING_STATION_ID, &station.address);
        }
        let seen = usher_aaa::canonical_name(station.address.as_bytes()).into_owned();
        let mut bears = station.bears();
        match oddity.eap {
            Some((eap, whose)) => {
                attributes.push_eap(&eap);
                bears = whose;
            }
            None => station.prove(&mut attributes),
        }
        let state = oddity.state.or_else(|| login.state.clone());
        if let Some(state) = &state {
            let _ = attributes.push_bytes(kind::STATE, state);
        }
        let known = state.and_then(|state| self.states.get(&state).copied());
        let dialogue = known.unwrap_or_else(|| self.oracle.dialogue());
        bears.into_iter().for_each(|person| self.oracle.shown(dialogue, person));
        // The printer is known by the address that its access server sees.
        if !login.station.speaks_eap() && seen == Person::Printer.name().as_bytes() {
            self.oracle.shown(dialogue, Person::Printer);
        }
        let sent = self.sign(slot, attempt, access_server, Code::ACCESS_REQUEST, dialogue, attributes);
        if let (Some(sent), Some(login)) = (sent, &mut self.slots[slot]) {
            (login.last, login.user_name) = (Some(sent), None);
            self.send(sent, 0)?;
        }
        Ok(())
    }

    pub(super) fn sign(
        &mut self,
        slot: usize,
        attempt: u64,
        access_server: usize,
        code: Code,
        dialogue: usize,
        attributes: Attributes,
    ) -> Option<usize> {
        let number = self.sent.len();
        let identifier = number as u8;
        let (mut authenticator, mut octets, mut message) = ([0; 16], Vec::new(), None);
        let user_name = attributes.get(kind::USER_NAME).unwrap_or_default().to_vec();
        if access_server == wire::DIAMETER {
            let station = self.slots[slot].as_ref().map(|login| &login.station);
            let password = station.filter(|s| s.method == ProofMethod::Pap).map(|s| s.owner.password());
            let session = format!("nas.example.org;{attempt};{slot}");
            message = Some(diameter::message(number as u64, session, code, &attributes, password)?);
        } else {
            (authenticator, octets) =
                wire::signed(access_server, code, identifier, number as u64, attributes)?;
        }
        let port = 50_000 + slot as u16;
        let at = self.now;
        self.sent.push(SentRequest {
            slot,
            attempt,
            access_server,
            port,
            identifier,
            authenticator,
            octets,
            message,
            dialogue,
            at,
            code,
            user_name,
        });
        Some(number)
    }

    /// A request arrives, from a port that is so much further.
    pub(super) fn send(&mut self, number: usize, further: u16) -> Result<(), InvariantBreach> {
        let Some(request) = self.sent.get(number) else { return Ok(()) };
        if request.message.is_some() {
            self.send_by_diameter(number)?;
            return self.drain();
        }
        self.given += 1;
        if request.access_server == wire::RADSEC {
            // In two pieces, since a stream has no boundaries.
            let (first, rest) = request.octets.split_at(request.octets.len() / 3);
            for piece in [first, rest] {
                let (conn, event) = (wire::connection(), StreamEvent::Data(piece));
                self.server.handle(self.now, Input::Stream { conn, event });
            }
        } else {
            let local = SocketAddr::new(wire::SERVER.into(), 1812);
            let path = Path { socket: radius_socket(0), local, remote: request.source(further) };
            self.server.handle(self.now, Input::Datagram { path, data: &request.octets });
        }
        self.drain()
    }

    /// Carries out what the server wants, and answers what it asks.
    pub(super) fn drain(&mut self) -> Result<(), InvariantBreach> {
        let mut buf = Vec::new();
        self.carry_diameter()?;
        loop {
            while let Some(output) = self.server.poll_output(&mut buf) {
                match output {
                    Output::Transmit(Transmit::Datagram { path }) => {
                        self.read(path.remote.ip(), Some(path.remote.port()), &buf)?;
                    }
                    Output::Transmit(Transmit::Stream { conn, op }) if conn == wire::connection() => {
                        self.read_stream(op, &buf)?;
                    }
                    Output::Transmit(Transmit::Stream { op: StreamOp::Data, .. }) => {
                        if let Some(conn) = self.connection {
                            let event = StreamEvent::Data(&buf);
                            self.diameter.handle(self.now, Input::Stream { conn, event });
                            self.carry_diameter()?;
                        }
                    }
                    Output::Transmit(_) => self.part(),
                    Output::Event(event) => self.event(event)?,
                    Output::Work(work) => {
                        *self.work.entry(work.label.name()).or_default() += u64::from(work.units);
                    }
                    Output::Job(job) => self.jobs.push_back(job),
                }
            }
            if self.holds_jobs {
                break;
            }
            // A step of a handshake waits for its turn, which comes at once.
            let turn = self.server.poll_timeout().is_some_and(|at| at <= self.now);
            if turn {
                self.server.handle(self.now, Input::Timeout);
            }
            if !self.answer_job(0)? && !turn {
                break;
            }
        }
        for (number, code, attributes) in std::mem::take(&mut self.replies) {
            self.hear(number, code, attributes)?;
        }
        Ok(())
    }

    /// Answers one of the jobs that wait; false where there is none.
    fn answer_job(&mut self, which: usize) -> Result<bool, InvariantBreach> {
        let Some(job) = self.jobs.remove(which) else { return Ok(false) };
        let answer = self.service.answer(self.now, self.now.wall(EPOCH), job);
        // The login may be over meanwhile.
        let _ = self.server.command(self.now, answer);
        Ok(true)
    }

    fn event(&mut self, event: Event) -> Result<(), InvariantBreach> {
        if let Some((_, name, _)) = event.failure() {
            self.oracle.failure(self.now, name)?;
        }
        for command in self.service.heed(self.now, self.now.wall(EPOCH), &event) {
            let _ = self.server.command(self.now, command);
        }
        if let Event::Accepted(login) = event {
            let number = login.request.get_text(NUMBER).and_then(|n| n.parse().ok());
            let request = number.and_then(|n: usize| Some((n, self.sent.get(n)?)));
            self.oracle.accepted(self.now, request, &login)?;
        }
        Ok(())
    }

    fn read_stream(&mut self, op: StreamOp, octets: &[u8]) -> Result<(), InvariantBreach> {
        ensure(op == StreamOp::Data, || format!("the server wants {op:?} of a connection of RadSec"))?;
        let (mut framer, mut data) = (std::mem::take(&mut self.framer), octets);
        while let Ok(Some(packet)) = framer.next(&mut data) {
            self.read(wire::address(wire::RADSEC).into(), None, packet)?;
        }
        self.framer = framer;
        Ok(())
    }
    /// An access server gets an answer by RADIUS.
    fn read(&mut self, from: IpAddr, port: Option<u16>, octets: &[u8]) -> Result<(), InvariantBreach> {
        self.answered += 1;
        let packet = Packet::parse(octets)
            .map_err(|fault| InvariantBreach(format!("an answer is no packet: {fault}")))?;
        let asked = self.sent.iter().rposition(|sent| {
            let (right, code) = check_reply(&packet, &sent.authenticator, &wire::secret(sent.access_server));
            sent.may_be_answered(from, port, packet.identifier())
                && right
                && code != MessageAuthenticator::Bad
        });
        let number = asked.ok_or_else(|| InvariantBreach("an answer to nothing that was asked".into()))?;
        self.replies.push((number, packet.code(), packet.to_owned().attributes));
        Ok(())
    }
    /// An access server hears an answer to a request.
    fn hear(&mut self, number: usize, code: Code, attributes: Attributes) -> Result<(), InvariantBreach> {
        let sent = &self.sent[number];
        let (slot, attempt, accounting) = (sent.slot, sent.attempt, sent.code == Code::ACCOUNTING_REQUEST);
        let state = attributes.get(kind::STATE).map(<[u8]>::to_vec);
        self.states.extend(state.clone().map(|state| (state, sent.dialogue)));
        if code == Code::ACCESS_ACCEPT {
            self.check_accept(number, &attributes)?;
        }
        let Some(login) = self.slots[slot].as_mut().filter(|login| login.attempt == attempt) else {
            return Ok(());
        };
        if accounting {
            let session = login.session.as_mut().filter(|session| session.last == Some(number));
            if let (Some(session), Code::ACCOUNTING_RESPONSE) = (session, code) {
                self.outcome.started += usize::from(!session.acknowledged);
                session.acknowledged = true;
            }
            return Ok(());
        }
        if std::mem::take(&mut login.loses) || login.last != Some(number) {
            return Ok(());
        }
        let mut eap = Vec::new();
        if attributes.eap(&mut eap) {
            login.station.hear(self.now, &eap);
        }
        match code {
            Code::ACCESS_ACCEPT => login.standing = LoginState::Accepted { request: number, attributes },
            Code::ACCESS_REJECT => {
                login.standing = LoginState::Rejected;
                self.outcome.rejected += 1;
            }
            _ => login.state = state,
        }
        Ok(())
    }

    /// An Access-Accept says what is said to the one who was let in.
    fn check_accept(&mut self, number: usize, attributes: &Attributes) -> Result<(), InvariantBreach> {
        let grant = self.oracle.grant(number);
        let person = grant.map(|grant| grant.person).ok_or_else(|| {
            InvariantBreach(
                "an Access-Accept of which the host was not told before it had all outputs".into(),
            )
        })?;
        let whose = attributes.get_text(kind::FILTER_ID);
        ensure(whose == Some(person.name()), || {
            format!("{person:?} is let in with the attributes of {whose:?}")
        })
    }

    pub(super) fn repeat(&mut self, slot: usize, [further, _]: [u8; 2]) -> Result<(), InvariantBreach> {
        let last = self.slots[slot].as_ref().and_then(|login| login.last);
        last.map_or(Ok(()), |last| self.send(last, u16::from(further & 1) * wire::FURTHER))
    }

    pub(super) fn replay(&mut self, [high, low]: [u8; 2]) -> Result<(), InvariantBreach> {
        let access: Vec<_> =
            (0..self.sent.len()).filter(|n| self.sent[*n].code == Code::ACCESS_REQUEST).collect();
        let which = usize::from(u16::from_be_bytes([high, low]));
        match access.len() {
            0 => Ok(()),
            n => self.send(access[which % n], 0),
        }
    }

    pub(super) fn lose(&mut self, slot: usize) {
        if let Some(login) = &mut self.slots[slot] {
            login.loses = true;
        }
    }

    pub(super) fn splice(&mut self, slot: usize, [other, what]: [u8; 2]) -> Result<(), InvariantBreach> {
        let Some(other) = &self.slots[usize::from(other) % SLOTS] else { return Ok(()) };
        let mut oddity = RequestMutation::default();
        if what & 1 == 0 && other.station.speaks_eap() {
            oddity.eap = Some((other.station.response.clone(), other.station.bears()));
        }
        if what & 3 != 0 {
            oddity.state.clone_from(&other.state);
        }
        self.ask(slot, oddity)
    }

    pub(super) fn stale(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        let station = &login.station;
        let eap = station.speaks_eap().then(|| (station.previous.clone(), Some(station.owner)));
        self.ask(slot, RequestMutation { eap, state: None })
    }

    pub(super) fn rename(&mut self, slot: usize, [who, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        if let Some(login) = &mut self.slots[slot] {
            let name = respell(Person::numbered(who).name(), how);
            login.user_name = Some(name);
        }
        self.step(slot)
    }

    pub(super) fn roam(&mut self, slot: usize, [to, _]: [u8; 2]) {
        if let Some(login) = self.slots[slot].as_mut().filter(|login| login.session.is_none()) {
            login.access_server = usize::from(to) % ACCESS_SERVERS;
        }
    }

    pub(super) fn wait(&mut self, [how, _]: [u8; 2]) -> Result<(), InvariantBreach> {
        const SPANS: [u64; 8] = [10, 1_000, 1_100, 6_000, 21_000, 31_000, 61_000, 301_000];
        self.pass(Duration::from_millis(SPANS[usize::from(how) % SPANS.len()]))
    }

    pub(super) fn pass(&mut self, span: Duration) -> Result<(), InvariantBreach> {
        let end = self.now + span;
        for _ in 0..10_000 {
            let due = [self.server.poll_timeout(), self.service.poll_timeout(), self.diameter.poll_timeout()];
            let due = earliest(due);
            let at = due.filter(|at| *at <= end).unwrap_or(end).max(self.now);
            self.now = at;
            self.server.handle(at, Input::Timeout);
            self.service.handle_timeout(at);
            self.diameter.handle(at, Input::Timeout);
            self.drain()?;
            if due.is_none_or(|due| due > end) {
                return Ok(());
            }
        }
        Err(InvariantBreach("the server wants a turn again and again at one time".into()))
    }

    pub(super) fn jobs(&mut self, [how, which]: [u8; 2]) -> Result<(), InvariantBreach> {
        match how % 3 {
            0 => self.holds_jobs = true,
            1 => {
                let waiting = self.jobs.len().max(1);
                self.answer_job(usize::from(which) % waiting)?;
            }
            _ => self.holds_jobs = false,
        }
        self.drain()
    }
}
