//! A run of the server, its access servers and stations.

use super::RunOutcome;
use super::diameter;
use super::oracle::{FAILURES, ProofOracle};
use super::station::{LoginStation, ProofMethod};
use super::wire::{self, ACCESS_SERVERS, NUMBER, SentRequest};
use crate::{
    DialogueOperation, InvariantBreach, OracleBelief, TestUser, ensure, main_pool, respell_text,
    service_parts, tunnels,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_aaa::ledger::{LedgerConfig, LoginFailureLimit};
use usher_aaa::service::{CertificateChecker, JobRunner};
use usher_aaa::store::MemoryStore;
use usher_aaa::{
    AaaServer, AaaServerConfig, AaaServerEvent, AaaServerJob, AuthMethod, CertificateVerdict, IdentityKey,
    RADSEC_LISTENER, UserCacheConfig, UserSource, radius_socket,
};
use usher_core::bench::EPOCH;
use usher_core::timer::earliest_deadline;
use usher_core::{
    ConnId, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput, Seed, StreamEvent,
    StreamOp, Transmit,
};
use usher_diameter::node::DiameterNode;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::auth::{MessageAuthenticator, check_reply};
use usher_radius::packet::{PacketCode, RadiusPacket};
use usher_radius::radsec::PacketFramer;
use usher_radius::server::ClientConfig;

/// The number of access-server ports.
pub(super) const SLOTS: usize = 4;
pub(super) const MOST_HALF_OPEN: usize = 6;
pub(super) const MAX_DELAYED_REJECTS: usize = 4;
pub(super) const MOST_USERS: usize = 2;
/// The maximum number of requests of a login. No method needs as many.
const ROUNDS: usize = 32;

/// The state of a login, as its access server sees it.
#[derive(Debug)]
pub(super) enum LoginState {
    Open,
    Rejected,
    /// Accepted by this request, with these attributes.
    Accepted {
        request: usize,
        attributes: AttributeList,
    },
}

/// A session that an access server accounts for.
#[derive(Debug)]
pub(super) struct AccountedSession {
    pub(super) id: String,
    pub(super) acknowledged: bool,
    pub(super) has_ended: bool,
    /// The last record sent.
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

/// The mutation of a login's next request.
#[derive(Default)]
struct RequestMutation {
    eap: Option<(Vec<u8>, Option<TestUser>)>,
    state: Option<Vec<u8>>,
}

/// An authority that attributes all certificates of a run to Ann.
#[derive(Debug)]
struct TestAuthority;

impl CertificateChecker for TestAuthority {
    fn check_chain(&self, name: Option<&[u8]>, _: &[Vec<u8>], _: bool) -> CertificateVerdict {
        match name {
            None => CertificateVerdict::Good,
            Some(name) if name == TestUser::Ann.name().as_bytes() => CertificateVerdict::Good,
            Some(_) => CertificateVerdict::NameMismatch,
        }
    }
    fn certificate_user(&self, _: &[u8], _: &[Vec<u8>]) -> Option<Vec<u8>> {
        Some(TestUser::Ann.name().into())
    }
}

/// The server and its dialogues.
pub(super) struct AaaTestNetwork {
    pub(super) now: Instant,
    pub(super) config: AaaServerConfig,
    pub(super) server: AaaServer,
    pub(super) service: JobRunner<MemoryStore>,
    pub(super) oracle: ProofOracle,
    pub(super) slots: [Option<PortLogin>; SLOTS],
    pub(super) sent: Vec<SentRequest>,
    /// The dialogue of each State.
    states: BTreeMap<Vec<u8>, usize>,
    pub(super) jobs: VecDeque<usher_core::JobRequest<AaaServerJob>>,
    pub(super) is_worker_paused: bool,
    pub(super) store_is_away: bool,
    pub(super) framer: PacketFramer,
    /// The access server that speaks Diameter.
    pub(super) diameter: DiameterNode,
    pub(super) connection: Option<ConnId>,
    pub(super) connections: u32,
    pub(super) is_peer_up: bool,
    /// Replies that access servers have not received yet, by request number.
    pub(super) replies: Vec<(usize, PacketCode, AttributeList)>,
    /// The number of logins, sessions and servers so far.
    pub(super) start_count: u64,
    /// Requests delivered to the server since it started.
    pub(super) delivered_requests: u64,
    pub(super) answered: u64,
    /// Units of work by label, since the server started.
    pub(super) work: BTreeMap<&'static str, u64>,
    pub(super) outcome: RunOutcome,
}

fn aaa_config() -> AaaServerConfig {
    let mut config = AaaServerConfig::new(UserSource::Host(UserCacheConfig {
        entries: MOST_USERS,
        ..UserCacheConfig::default()
    }));
    let client = |n| {
        let address = IpAddr::V4(wire::access_server_address(n));
        match n {
            wire::RADSEC => ClientConfig::for_radsec(address, 32, Vec::new()),
            _ => ClientConfig::new(address, 32, wire::access_server_secret(n)),
        }
    };
    let mut radius = usher_radius::server::RadiusServerConfig::new((0..wire::DIAMETER).map(client).collect());
    radius.retain = Duration::from_secs(20);
    radius.max_entries = 64;
    config.radius = Some(radius);
    config.diameter = Some(diameter::diameter_server_config());
    config.methods = AuthMethod::ALL.into();
    tunnels::add_tunnel_methods(&mut config);
    config.identity_key = Some(IdentityKey::new(b"a key that nobody guesses"));
    config.inner_names = vec![0];
    config.max_half_open = MOST_HALF_OPEN;
    config.max_delayed_rejects = MAX_DELAYED_REJECTS;
    config.max_steps_waiting = 2;
    config.reject_delay = Duration::from_secs(1);
    config.failures = Some(failure_limit());
    config.mab = true;
    config.certificate_status = true;
    config
}

fn failure_limit() -> LoginFailureLimit {
    let (count, within) = FAILURES;
    LoginFailureLimit::new(count, within, within)
}

pub(super) fn build_server(config: &AaaServerConfig, seed: u64) -> AaaServer {
    AaaServer::new(config.clone(), Seed::new(seed).derive_secure_rng("aaa", 0))
        .expect("the configuration holds together")
}

impl AaaTestNetwork {
    pub(super) fn new(belief: OracleBelief) -> Self {
        let config = aaa_config();
        let ledger = LedgerConfig {
            pools: vec![main_pool()],
            failures: Some(failure_limit()),
            ..LedgerConfig::default()
        };
        let mut parts = service_parts(ledger);
        parts.certificates = Some(Arc::new(TestAuthority));
        let mut world = Self {
            now: Instant::ZERO,
            server: build_server(&config, 0),
            service: JobRunner::new(parts, &mut Seed::new(1).derive_secure_rng("known", 0)),
            config,
            oracle: ProofOracle::new(belief),
            slots: Default::default(),
            sent: Vec::new(),
            states: BTreeMap::new(),
            jobs: VecDeque::new(),
            is_worker_paused: false,
            store_is_away: false,
            framer: PacketFramer::new(),
            diameter: diameter::client_node(Instant::ZERO),
            connection: None,
            connections: 0,
            is_peer_up: false,
            replies: Vec::new(),
            start_count: 0,
            delivered_requests: 0,
            answered: 0,
            work: BTreeMap::new(),
            outcome: RunOutcome::default(),
        };
        world.accept_radsec();
        // Waits for the capabilities exchange.
        let done = world.run_for(Duration::from_secs(1));
        debug_assert!(done.is_ok(), "nobody has asked anything");
        (world.delivered_requests, world.answered) = (0, 0);
        world
    }

    /// Accepts the connection of the RadSec access server.
    pub(super) fn accept_radsec(&mut self) {
        self.server.set_epoch(Instant::ZERO, EPOCH);
        let remote = SocketAddr::new(IpAddr::V4(wire::access_server_address(wire::RADSEC)), 50_000);
        let (listener, local, certificate) = (RADSEC_LISTENER, None, None);
        let event = StreamEvent::Accepted { listener, remote, local, certificate };
        self.server.handle_input(self.now, MachineInput::Stream { conn: wire::radsec_connection(), event });
    }

    pub(super) fn start_login(
        &mut self,
        slot: usize,
        operation: DialogueOperation,
    ) -> Result<(), InvariantBreach> {
        self.stop_session(slot)?;
        self.start_count += 1;
        let station = LoginStation::from_operation(operation, self.start_count, self.now);
        self.slots[slot] = Some(PortLogin {
            attempt: self.start_count,
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

    pub(super) fn step_login(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        self.send_next_request(slot, RequestMutation::default())
    }

    pub(super) fn play_login(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        for _ in 0..ROUNDS {
            let open = |world: &Self| {
                world.slots[slot].as_ref().filter(|l| matches!(l.standing, LoginState::Open)).map(|l| l.last)
            };
            let Some(before) = open(self) else { break };
            let heard = self.outcome;
            self.step_login(slot)?;
            // A reject may be delayed, and jobs may be pending.
            if open(self).is_some_and(|last| last == before) || heard != self.outcome {
                break;
            }
        }
        Ok(())
    }

    /// Sends the next request of an undecided login.
    fn send_next_request(&mut self, slot: usize, oddity: RequestMutation) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        if !matches!(login.standing, LoginState::Open) {
            return Ok(());
        }
        let (station, access_server, attempt) = (&login.station, login.access_server, login.attempt);
        let mut attributes = AttributeList::new();
        let name = login.user_name.as_ref().unwrap_or(&station.outer);
        let _ = attributes.push_text(kind::USER_NAME, name);
        attributes.push_ipv4(kind::NAS_IP_ADDRESS, wire::access_server_address(access_server));
        attributes.push_u32(kind::NAS_PORT, slot as u32);
        let _ = attributes.push_text(NUMBER, &self.sent.len().to_string());
        if !station.address.is_empty() {
            let _ = attributes.push_text(kind::CALLING_STATION_ID, &station.address);
        }
        let seen = usher_aaa::canonical_name(station.address.as_bytes()).into_owned();
        let mut bears = station.proven_user();
        match oddity.eap {
            Some((eap, whose)) => {
                attributes.push_eap(&eap);
                bears = whose;
            }
            None => station.add_proof(&mut attributes),
        }
        let state = oddity.state.or_else(|| login.state.clone());
        if let Some(state) = &state {
            let _ = attributes.push_bytes(kind::STATE, state);
        }
        let known = state.and_then(|state| self.states.get(&state).copied());
        let dialogue = known.unwrap_or_else(|| self.oracle.start_dialogue());
        bears.into_iter().for_each(|person| self.oracle.record_proof(dialogue, person));
        // The access server sees the printer's address.
        if !login.station.speaks_eap() && seen == TestUser::Printer.name().as_bytes() {
            self.oracle.record_proof(dialogue, TestUser::Printer);
        }
        let sent = self.prepare_request(
            slot,
            attempt,
            access_server,
            PacketCode::ACCESS_REQUEST,
            dialogue,
            attributes,
        );
        if let (Some(sent), Some(login)) = (sent, &mut self.slots[slot]) {
            (login.last, login.user_name) = (Some(sent), None);
            self.deliver_request(sent, 0)?;
        }
        Ok(())
    }

    pub(super) fn prepare_request(
        &mut self,
        slot: usize,
        attempt: u64,
        access_server: usize,
        code: PacketCode,
        dialogue: usize,
        attributes: AttributeList,
    ) -> Option<usize> {
        let number = self.sent.len();
        let identifier = number as u8;
        let (mut authenticator, mut octets, mut message) = ([0; 16], Vec::new(), None);
        let user_name = attributes.get(kind::USER_NAME).unwrap_or_default().to_vec();
        if access_server == wire::DIAMETER {
            let station = self.slots[slot].as_ref().map(|login| &login.station);
            let password = station.filter(|s| s.method == ProofMethod::Pap).map(|s| s.owner.password());
            let session = format!("nas.example.org;{attempt};{slot}");
            message = Some(diameter::build_message(number as u64, session, code, &attributes, password)?);
        } else {
            (authenticator, octets) =
                wire::sign_request(access_server, code, identifier, number as u64, attributes)?;
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
            sent_at: at,
            code,
            user_name,
        });
        Some(number)
    }

    /// Delivers a request, from its port plus `further`.
    pub(super) fn deliver_request(&mut self, number: usize, further: u16) -> Result<(), InvariantBreach> {
        let Some(request) = self.sent.get(number) else { return Ok(()) };
        if request.message.is_some() {
            self.send_by_diameter(number)?;
            return self.drain_outputs();
        }
        self.delivered_requests += 1;
        if request.access_server == wire::RADSEC {
            // In two pieces, since a stream has no boundaries.
            let (first, rest) = request.octets.split_at(request.octets.len() / 3);
            for piece in [first, rest] {
                let (conn, event) = (wire::radsec_connection(), StreamEvent::Data(piece));
                self.server.handle_input(self.now, MachineInput::Stream { conn, event });
            }
        } else {
            let local = SocketAddr::new(wire::SERVER.into(), 1812);
            let path =
                DatagramPath { socket: radius_socket(0), local, remote: request.source_address(further) };
            self.server.handle_input(self.now, MachineInput::Datagram { path, data: &request.octets });
        }
        self.drain_outputs()
    }

    /// Carries out the server's outputs and does its jobs.
    pub(super) fn drain_outputs(&mut self) -> Result<(), InvariantBreach> {
        let mut buf = Vec::new();
        self.carry_diameter()?;
        loop {
            while let Some(output) = self.server.poll_output(&mut buf) {
                match output {
                    MachineOutput::Transmit(Transmit::Datagram { path }) => {
                        self.read_reply(path.remote.ip(), Some(path.remote.port()), &buf)?;
                    }
                    MachineOutput::Transmit(Transmit::Stream { conn, op })
                        if conn == wire::radsec_connection() =>
                    {
                        self.read_stream(op, &buf)?;
                    }
                    MachineOutput::Transmit(Transmit::Stream { op: StreamOp::Data, .. }) => {
                        if let Some(conn) = self.connection {
                            let event = StreamEvent::Data(&buf);
                            self.diameter.handle_input(self.now, MachineInput::Stream { conn, event });
                            self.carry_diameter()?;
                        }
                    }
                    MachineOutput::Transmit(_) => self.disconnect_diameter(),
                    MachineOutput::Event(event) => self.handle_event(event)?,
                    MachineOutput::Work(work) => {
                        *self.work.entry(work.label.name()).or_default() += u64::from(work.units);
                    }
                    MachineOutput::Job(job) => self.jobs.push_back(job),
                }
            }
            if self.is_worker_paused {
                break;
            }
            // A step of a handshake waits for its turn, which comes at once.
            let turn = self.server.poll_timeout().is_some_and(|at| at <= self.now);
            if turn {
                self.server.handle_input(self.now, MachineInput::Timeout);
            }
            if !self.answer_job(0)? && !turn {
                break;
            }
        }
        for (number, code, attributes) in std::mem::take(&mut self.replies) {
            self.apply_reply(number, code, attributes)?;
        }
        Ok(())
    }

    /// Does one pending job. Returns false if there is none.
    fn answer_job(&mut self, which: usize) -> Result<bool, InvariantBreach> {
        let Some(job) = self.jobs.remove(which) else { return Ok(false) };
        let answer = self.service.run_job(self.now, self.now.to_wall_time(EPOCH), job);
        // The login may have ended meanwhile.
        let _ = self.server.handle_command(self.now, answer);
        Ok(true)
    }

    fn handle_event(&mut self, event: AaaServerEvent) -> Result<(), InvariantBreach> {
        if let Some((_, name, _)) = event.counted_failure_identity() {
            self.oracle.record_failure(self.now, name)?;
        }
        for command in self.service.handle_event(self.now, self.now.to_wall_time(EPOCH), &event) {
            let _ = self.server.handle_command(self.now, command);
        }
        if let AaaServerEvent::Accepted(login) = event {
            let number = login.request.get_text(NUMBER).and_then(|n| n.parse().ok());
            let request = number.and_then(|n: usize| Some((n, self.sent.get(n)?)));
            self.oracle.record_accept(self.now, request, &login)?;
        }
        Ok(())
    }

    fn read_stream(&mut self, op: StreamOp, octets: &[u8]) -> Result<(), InvariantBreach> {
        ensure(op == StreamOp::Data, || format!("the server wants {op:?} of a connection of RadSec"))?;
        let (mut framer, mut data) = (std::mem::take(&mut self.framer), octets);
        while let Ok(Some(packet)) = framer.next_packet(&mut data) {
            self.read_reply(wire::access_server_address(wire::RADSEC).into(), None, packet)?;
        }
        self.framer = framer;
        Ok(())
    }
    /// Delivers a RADIUS reply to an access server.
    fn read_reply(&mut self, from: IpAddr, port: Option<u16>, octets: &[u8]) -> Result<(), InvariantBreach> {
        self.answered += 1;
        let packet = RadiusPacket::parse(octets)
            .map_err(|fault| InvariantBreach(format!("an answer is no packet: {fault}")))?;
        let asked = self.sent.iter().rposition(|sent| {
            let (right, code) =
                check_reply(&packet, &sent.authenticator, &wire::access_server_secret(sent.access_server));
            sent.may_be_answered(from, port, packet.identifier())
                && right
                && code != MessageAuthenticator::Bad
        });
        let number = asked.ok_or_else(|| InvariantBreach("an answer to nothing that was asked".into()))?;
        self.replies.push((number, packet.code(), packet.to_owned().attributes));
        Ok(())
    }
    /// An access server handles the reply to a request.
    fn apply_reply(
        &mut self,
        number: usize,
        code: PacketCode,
        attributes: AttributeList,
    ) -> Result<(), InvariantBreach> {
        let sent = &self.sent[number];
        let (slot, attempt, accounting) =
            (sent.slot, sent.attempt, sent.code == PacketCode::ACCOUNTING_REQUEST);
        let state = attributes.get(kind::STATE).map(<[u8]>::to_vec);
        self.states.extend(state.clone().map(|state| (state, sent.dialogue)));
        if code == PacketCode::ACCESS_ACCEPT {
            self.check_accept(number, &attributes)?;
        }
        let Some(login) = self.slots[slot].as_mut().filter(|login| login.attempt == attempt) else {
            return Ok(());
        };
        if accounting {
            let session = login.session.as_mut().filter(|session| session.last == Some(number));
            if let (Some(session), PacketCode::ACCOUNTING_RESPONSE) = (session, code) {
                self.outcome.started += usize::from(!session.acknowledged);
                session.acknowledged = true;
            }
            return Ok(());
        }
        if std::mem::take(&mut login.loses) || login.last != Some(number) {
            return Ok(());
        }
        let mut eap = Vec::new();
        if attributes.read_eap_packet(&mut eap) {
            login.station.receive_eap(self.now, &eap);
        }
        match code {
            PacketCode::ACCESS_ACCEPT => {
                login.standing = LoginState::Accepted { request: number, attributes }
            }
            PacketCode::ACCESS_REJECT => {
                login.standing = LoginState::Rejected;
                self.outcome.rejected += 1;
            }
            _ => login.state = state,
        }
        Ok(())
    }

    /// Checks that an Access-Accept has the attributes of the accepted user.
    fn check_accept(&mut self, number: usize, attributes: &AttributeList) -> Result<(), InvariantBreach> {
        let grant = self.oracle.find_grant(number);
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

    pub(super) fn repeat_request(
        &mut self,
        slot: usize,
        [further, _]: [u8; 2],
    ) -> Result<(), InvariantBreach> {
        let last = self.slots[slot].as_ref().and_then(|login| login.last);
        last.map_or(Ok(()), |last| self.deliver_request(last, u16::from(further & 1) * wire::FURTHER))
    }

    pub(super) fn replay_request(&mut self, [high, low]: [u8; 2]) -> Result<(), InvariantBreach> {
        let access: Vec<_> =
            (0..self.sent.len()).filter(|n| self.sent[*n].code == PacketCode::ACCESS_REQUEST).collect();
        let which = usize::from(u16::from_be_bytes([high, low]));
        match access.len() {
            0 => Ok(()),
            n => self.deliver_request(access[which % n], 0),
        }
    }

    pub(super) fn lose_reply(&mut self, slot: usize) {
        if let Some(login) = &mut self.slots[slot] {
            login.loses = true;
        }
    }

    pub(super) fn splice_request(
        &mut self,
        slot: usize,
        [other, what]: [u8; 2],
    ) -> Result<(), InvariantBreach> {
        let Some(other) = &self.slots[usize::from(other) % SLOTS] else { return Ok(()) };
        let mut oddity = RequestMutation::default();
        if what & 1 == 0 && other.station.speaks_eap() {
            oddity.eap = Some((other.station.response.clone(), other.station.proven_user()));
        }
        if what & 3 != 0 {
            oddity.state.clone_from(&other.state);
        }
        self.send_next_request(slot, oddity)
    }

    pub(super) fn send_stale(&mut self, slot: usize) -> Result<(), InvariantBreach> {
        let Some(login) = &self.slots[slot] else { return Ok(()) };
        let station = &login.station;
        let eap = station.speaks_eap().then(|| (station.previous.clone(), Some(station.owner)));
        self.send_next_request(slot, RequestMutation { eap, state: None })
    }

    pub(super) fn rename_user(&mut self, slot: usize, [who, how]: [u8; 2]) -> Result<(), InvariantBreach> {
        if let Some(login) = &mut self.slots[slot] {
            let name = respell_text(TestUser::from_number(who).name(), how);
            login.user_name = Some(name);
        }
        self.step_login(slot)
    }

    pub(super) fn move_login(&mut self, slot: usize, [to, _]: [u8; 2]) {
        if let Some(login) = self.slots[slot].as_mut().filter(|login| login.session.is_none()) {
            login.access_server = usize::from(to) % ACCESS_SERVERS;
        }
    }

    pub(super) fn wait_span(&mut self, [how, _]: [u8; 2]) -> Result<(), InvariantBreach> {
        const SPANS: [u64; 8] = [10, 1_000, 1_100, 6_000, 21_000, 31_000, 61_000, 301_000];
        self.run_for(Duration::from_millis(SPANS[usize::from(how) % SPANS.len()]))
    }

    pub(super) fn run_for(&mut self, span: Duration) -> Result<(), InvariantBreach> {
        let end = self.now + span;
        for _ in 0..10_000 {
            let due = [self.server.poll_timeout(), self.service.poll_timeout(), self.diameter.poll_timeout()];
            let due = earliest_deadline(due);
            let at = due.filter(|at| *at <= end).unwrap_or(end).max(self.now);
            self.now = at;
            self.server.handle_input(at, MachineInput::Timeout);
            self.service.handle_timeout(at);
            self.diameter.handle_input(at, MachineInput::Timeout);
            self.drain_outputs()?;
            if due.is_none_or(|due| due > end) {
                return Ok(());
            }
        }
        Err(InvariantBreach("the server wants a turn again and again at one time".into()))
    }

    pub(super) fn control_jobs(&mut self, [how, which]: [u8; 2]) -> Result<(), InvariantBreach> {
        match how % 3 {
            0 => self.is_worker_paused = true,
            1 => {
                let waiting = self.jobs.len().max(1);
                self.answer_job(usize::from(which) % waiting)?;
            }
            _ => self.is_worker_paused = false,
        }
        self.drain_outputs()
    }
}
