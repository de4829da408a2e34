//! The state machine of the client.

use super::connection::ServerConnection;
use super::identifier::{AllocatedIdentifier, IdentifierTable};
use super::liveness::ServerWatchdog;
use super::{
    ConfigError, RadiusClientCommand, RadiusClientConfig, RadiusClientCounters, RadiusClientEvent,
    RequestTarget, ServerConfig, ServerCounts, ServerTransport,
};
use crate::attribute::{AttributeList, kind};
use crate::auth::{self, sign_request};
use crate::packet::{self, PacketCode, TooLong};
use crate::work::WorkMeter;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, ConnId, DatagramPath, Duration, Instant, Machine, MachineInput, MachineOutput,
    MachineOutputOf, NoJob, SecureRng, SocketId, StreamOp, Transmit, WallTime,
};

/// The number of lists and buffers kept for reuse.
const SPARE: usize = 64;

/// An outstanding request.
#[derive(Debug)]
pub(super) struct PendingRequest {
    /// The token of the caller; `None`: a Status-Server of the client itself.
    pub(super) token: Option<u64>,
    /// The packet. Its authenticator verifies the reply.
    pub(super) bytes: Vec<u8>,
    /// The source of a new encoding, kept only if a retransmission may differ.
    pub(super) source: Option<Box<RetransmissionTemplate>>,
    pub(super) slot: AllocatedIdentifier,
    pub(super) tries: u32,
    pub(super) start: Instant,
    pub(super) deadline: Instant,
    /// The time of the first transmission to the current server.
    pub(super) here: Instant,
    pub(super) wait: Duration,
    /// True if the transmission waits in the ready list.
    pub(super) queued: bool,
}

#[derive(Debug)]
pub(super) struct RetransmissionTemplate {
    pub(super) attributes: AttributeList,
    pub(super) group: Option<u16>,
    pub(super) server_attempts: u32,
    /// The caller's Acct-Delay-Time, and the value last sent.
    pub(super) delay: Option<(u32, u32)>,
}

/// A timer of the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ClientTimer {
    /// A request by index: its retransmission or timeout.
    Request(u32),
    /// The next connection attempt: server and lane.
    ServerConnection(u16, u32),
    /// The liveness check of a server.
    Watch(u16),
}

/// The server of a group at which new requests start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupPreferredServer {
    pub(super) position: usize,
    pub(super) until: Instant,
}

/// An output that is decided and not yet carried out.
#[derive(Debug)]
pub(super) enum QueuedClientOutput {
    /// Transmits a request, the first time or again.
    Request(u32),
    /// Opens or closes a connection.
    Operation(ConnId, StreamOp),
    /// An event.
    Event,
}

/// A RADIUS client; see the [module](super).
#[derive(Debug)]
pub struct RadiusClient {
    pub(super) config: RadiusClientConfig,
    /// The wall time at [`Instant::ZERO`].
    pub(super) epoch: WallTime,
    pub(super) rng: SecureRng,
    pub(super) identifiers: IdentifierTable,
    pub(super) pending: Vec<Option<PendingRequest>>,
    free: Vec<u32>,
    by_token: HashMap<u64, u32>,
    pub(super) by_slot: HashMap<u64, u32>,
    /// Servers by their address, an IPv4-mapped one as IPv4.
    pub(super) by_address: HashMap<SocketAddr, Vec<u16>>,
    pub(super) groups: Vec<GroupPreferredServer>,
    /// The connections of each server, by lane; empty for UDP.
    pub(super) links: Vec<Vec<ServerConnection>>,
    pub(super) by_conn: HashMap<ConnId, (u16, u32)>,
    pub(super) next_conn: u32,
    pub(super) watches: Vec<Option<ServerWatchdog>>,
    /// The number of requests that wait for each server.
    pub(super) pending_counts: Vec<u32>,
    /// The statistics of each server.
    pub(super) counts_by_server: Vec<ServerCounts>,
    pub(super) timers: TimerQueue<ClientTimer>,
    pub(super) ready: VecDeque<QueuedClientOutput>,
    /// The events of the ready list, kept beside it. Its entries stay small: an enum moves every entry at the size of
    /// the largest.
    pub(super) events: VecDeque<RadiusClientEvent>,
    pub(super) work: WorkMeter,
    pub(super) counters: RadiusClientCounters,
    spare_buffers: Vec<Vec<u8>>,
    spare_lists: Vec<AttributeList>,
}

impl RadiusClient {
    /// A client of these servers. It draws authenticators, first identifiers and jitter from `rng`.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: RadiusClientConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let servers = config.servers.len();
        if servers == 0 || servers > usize::from(u16::MAX) {
            return Err(ConfigError::Servers(servers));
        }
        let broken = |g: &Vec<u16>| g.is_empty() || g.iter().any(|&s| usize::from(s) >= servers);
        if let Some(i) = config.groups.iter().position(broken) {
            return Err(ConfigError::Group(i));
        }
        if config.max_sockets == 0 || config.max_sockets > 1 << 24 {
            return Err(ConfigError::Sockets);
        }
        if config.failover.is_some_and(|f| f.after == 0) {
            return Err(ConfigError::Failover);
        }
        if !config.retransmission.is_valid() {
            return Err(ConfigError::Retransmission);
        }
        if config.max_connections == 0 {
            return Err(ConfigError::Connections);
        }
        if config
            .servers
            .iter()
            .any(|s| s.liveness.is_some_and(|l| l.window.is_zero() || l.interval.is_zero() || l.answers == 0))
        {
            return Err(ConfigError::Liveness);
        }
        let mut client = Self {
            identifiers: IdentifierTable::new(),
            pending: Vec::new(),
            free: Vec::new(),
            by_token: HashMap::with_hasher(hash_state(&mut rng)),
            by_slot: HashMap::with_hasher(hash_state(&mut rng)),
            by_address: HashMap::with_hasher(hash_state(&mut rng)),
            groups: alloc::vec![GroupPreferredServer::default(); config.groups.len()],
            links: Vec::new(),
            by_conn: HashMap::with_hasher(hash_state(&mut rng)),
            next_conn: config.first_connection,
            watches: Vec::new(),
            pending_counts: Vec::new(),
            counts_by_server: Vec::new(),
            timers: TimerQueue::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            work: WorkMeter::default(),
            counters: RadiusClientCounters::default(),
            spare_buffers: Vec::new(),
            spare_lists: Vec::new(),
            config,
            epoch: WallTime::UNIX_EPOCH,
            rng,
        };
        (0..servers).for_each(|i| client.register_server(i as u16));
        Ok(client)
    }
    /// Creates the state of a server that is new in the configuration.
    fn register_server(&mut self, server: u16) {
        let config = &self.config.servers[usize::from(server)];
        let lanes = match config.transport {
            ServerTransport::Udp => self.config.max_sockets,
            ServerTransport::Tls => self.config.max_connections,
        };
        self.identifiers.add_server(lanes, config.transport == ServerTransport::Tls);
        // RFC 5997, 4.3: each address and port is a server of its own.
        self.by_address.entry(canonical_address(config.address)).or_default().push(server);
        self.links.push(Vec::new());
        self.pending_counts.push(0);
        self.counts_by_server.push(ServerCounts::default());
        self.watches.push(config.liveness.map(ServerWatchdog::new));
    }
    /// Adds a server without a group and returns its index. A server with the same address, transport and secret is not
    /// added again.
    ///
    /// # Errors
    /// If there are 65,535 servers already.
    pub fn add_server(&mut self, server: ServerConfig) -> Result<u16, ConfigError> {
        let same = |&&i: &&u16| {
            let s = &self.config.servers[usize::from(i)];
            s.transport == server.transport && s.secret.as_bytes() == server.secret.as_bytes()
        };
        let known = self.by_address.get(&canonical_address(server.address));
        if let Some(&i) = known.and_then(|all| all.iter().find(same)) {
            return Ok(i);
        }
        let index = u16::try_from(self.config.servers.len()).ok().filter(|&i| i < u16::MAX);
        let index = index.ok_or(ConfigError::Servers(self.config.servers.len() + 1))?;
        self.config.servers.push(server);
        self.register_server(index);
        Ok(index)
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &RadiusClientCounters {
        &self.counters
    }
    /// The statistics of a server.
    #[must_use]
    pub fn server_counts(&self, server: u16) -> ServerCounts {
        self.counts_by_server.get(usize::from(server)).copied().unwrap_or_default()
    }
    /// The number of outstanding requests.
    #[must_use]
    pub fn outstanding_count(&self) -> usize {
        self.by_token.len()
    }
    /// The tokens of outstanding requests, in ascending order.
    #[must_use]
    pub fn outstanding_tokens(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.by_token.keys().copied().collect();
        all.sort_unstable();
        all
    }
    /// Returns an empty list, reused from an earlier command if possible.
    #[must_use]
    pub fn take_attributes(&mut self) -> AttributeList {
        self.spare_lists.pop().unwrap_or_default()
    }
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &RadiusClientConfig {
        &self.config
    }

    pub(super) fn encode_request(
        &mut self,
        out: &mut Vec<u8>,
        slot: AllocatedIdentifier,
        code: PacketCode,
        attributes: &AttributeList,
    ) -> Result<(), TooLong> {
        let secret = &self.config.servers[usize::from(slot.server)].secret;
        let random = matches!(code, PacketCode::ACCESS_REQUEST | PacketCode::STATUS_SERVER);
        // RFC 5176, 3.4: for these requests the authenticator is only an MD5 of content that an attacker may choose, so
        // they are signed, too.
        let sign = random || matches!(code, PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST);
        // RFC 2865, 3, 4.1; RFC 5997, 3: each request has a new random authenticator.
        let authenticator = if random { self.rng.random_array() } else { [0; 16] };
        out.clear();
        packet::write_header(out, code, slot.identifier, &authenticator);
        // RFC 3579, 3.2; RFC 5997, 3: these requests have a Message-Authenticator.
        if sign {
            auth::reserve_authenticator(out);
        }
        let salt = if attributes.has_hidden() { self.rng.next_u32() as u16 } else { 0 };
        attributes.encode_into(out, secret.as_bytes(), &authenticator, salt);
        packet::finish_packet(out, 0)?;
        sign_request(out, sign, secret);
        Ok(())
    }

    fn start_request(
        &mut self,
        now: Instant,
        token: u64,
        target: RequestTarget,
        code: PacketCode,
        attributes: AttributeList,
    ) -> Result<(), CommandError> {
        if !code.is_request() {
            return Err(CommandError::Invalid("the packet code is not a request"));
        }
        if self.by_token.contains_key(&token) {
            return Err(CommandError::Invalid("the token is already in use"));
        }
        if attributes.get(kind::MESSAGE_AUTHENTICATOR).is_some() {
            return Err(CommandError::Invalid("the client itself adds the Message-Authenticator"));
        }
        let (server, group) = self.choose_server(now, target)?;
        self.open_request(now, Some(token), server, group, code, attributes)?;
        self.counters.requests += 1;
        self.counts_by_server[usize::from(server)].requests += 1;
        Ok(())
    }

    /// Opens a request and returns its index.
    pub(super) fn open_request(
        &mut self,
        now: Instant,
        token: Option<u64>,
        server: u16,
        group: Option<u16>,
        code: PacketCode,
        attributes: AttributeList,
    ) -> Result<u32, CommandError> {
        let full = CommandError::Full("all identifiers of all sockets are in use");
        let slot = match token {
            Some(_) => self.identifiers.take_identifier(now, server, &mut self.rng),
            None => self.identifiers.take_status_server_identifier(now, server, &mut self.rng),
        };
        let slot = slot.ok_or(full)?;
        let mut bytes = self.spare_buffers.pop().unwrap_or_default();
        if self.encode_request(&mut bytes, slot, code, &attributes).is_err() {
            self.identifiers.free_identifier(slot);
            self.spare_buffers.push(bytes);
            return Err(CommandError::Invalid("the attributes do not fit a packet of 4096 octets"));
        }
        let delay = match code {
            PacketCode::ACCOUNTING_REQUEST => attributes.get_u32(kind::ACCT_DELAY_TIME).map(|d| (d, d)),
            _ => None,
        };
        let source = if delay.is_some() || group.is_some() {
            Some(Box::new(RetransmissionTemplate { attributes, group, server_attempts: 1, delay }))
        } else {
            self.recycle_list(attributes);
            None
        };
        let mut pending = PendingRequest {
            token,
            bytes,
            source,
            slot,
            tries: 1,
            start: now,
            deadline: now,
            here: now,
            wait: Duration::ZERO,
            queued: false,
        };
        self.restart_reply_wait(now, &mut pending);
        let deadline = pending.deadline;
        let index = match self.free.pop() {
            Some(i) => {
                self.pending[i as usize] = Some(pending);
                i
            }
            None => {
                self.pending.push(Some(pending));
                self.pending.len() as u32 - 1
            }
        };
        if let Some(token) = token {
            self.by_token.insert(token, index);
        }
        self.register_pending_identifier(slot, index);
        self.timers.insert(deadline, ClientTimer::Request(index));
        self.dispatch_request(now, index);
        Ok(index)
    }

    /// Starts the wait for the first reply of a server: by UDP the first retransmission time, by RadSec the whole
    /// remaining time.
    pub(super) fn restart_reply_wait(&mut self, now: Instant, p: &mut PendingRequest) {
        if p.token.is_none() {
            p.deadline = now + self.status_server_wait(p.slot.server);
            return;
        }
        p.here = now;
        let policy = self.config.retransmission;
        let end = (p.start + policy.max_duration()).max(now + self.response_window(p.slot.server));
        match self.server_transport(p.slot.server) {
            ServerTransport::Udp => {
                p.wait = policy.first_retransmission_wait(&mut self.rng);
                p.deadline = (now + p.wait).min(end);
            }
            ServerTransport::Tls => {
                let patience = p.start + policy.single_transmission_wait();
                p.deadline = end.min(patience.max(now + self.response_window(p.slot.server)));
            }
        }
    }

    pub(super) fn server_transport(&self, server: u16) -> ServerTransport {
        self.config.servers[usize::from(server)].transport
    }

    /// Sends a request, or queues it until its connection is up.
    pub(super) fn dispatch_request(&mut self, now: Instant, index: u32) {
        let Some(p) = self.pending.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let slot = p.slot;
        if self.config.servers[usize::from(slot.server)].transport == ServerTransport::Udp
            || self.ensure_connected(now, slot)
        {
            self.enqueue_request(index);
        }
        self.record_reply_expectation(now, slot.server);
    }
    pub(super) fn push_event(&mut self, event: RadiusClientEvent) {
        self.ready.push_back(QueuedClientOutput::Event);
        self.events.push_back(event);
    }
    pub(super) fn push_operation(&mut self, conn: ConnId, op: StreamOp) {
        self.ready.push_back(QueuedClientOutput::Operation(conn, op));
    }
    pub(super) fn enqueue_request(&mut self, index: u32) {
        if let Some(p) = self.pending.get_mut(index as usize).and_then(Option::as_mut)
            && !p.queued
        {
            p.queued = true;
            self.ready.push_back(QueuedClientOutput::Request(index));
        }
    }

    /// Returns the server for a new request, and its group if failover is possible.
    fn choose_server(
        &mut self,
        now: Instant,
        target: RequestTarget,
    ) -> Result<(u16, Option<u16>), CommandError> {
        match target {
            RequestTarget::Server(s) if usize::from(s) < self.config.servers.len() => Ok((s, None)),
            RequestTarget::Server(_) => Err(CommandError::Invalid("there is no server with this index")),
            RequestTarget::Group(g) => {
                let members = self.config.groups.get(usize::from(g));
                let members = members.ok_or(CommandError::Invalid("there is no group with this index"))?;
                let state = &mut self.groups[usize::from(g)];
                if state.position != 0 && state.until <= now {
                    state.position = 0;
                }
                let first = members[state.position];
                let movable = self.can_fail_over(g);
                Ok((
                    if movable { self.healthiest_server_from(members, first) } else { first },
                    movable.then_some(g),
                ))
            }
            RequestTarget::From { group, server } => {
                let members = self.config.groups.get(usize::from(group));
                let members = members.ok_or(CommandError::Invalid("there is no group with this index"))?;
                if !members.contains(&server) {
                    return Err(CommandError::Invalid("the server is not in the group"));
                }
                let movable = self.can_fail_over(group);
                let other = movable && !self.is_server_usable(server);
                let server = if other { self.healthiest_server_from(members, server) } else { server };
                Ok((server, movable.then_some(group)))
            }
        }
    }

    /// True if a request to a group may fail over.
    fn can_fail_over(&self, group: u16) -> bool {
        self.config.failover.is_some() && self.config.groups[usize::from(group)].len() > 1
    }

    /// Returns the first server of best health in a group, from one of its servers on.
    pub(super) fn healthiest_server_from(&self, members: &[u16], first: u16) -> u16 {
        let at = members.iter().position(|&s| s == first).unwrap_or(0);
        let order = members[at..].iter().chain(&members[..at]);
        order.copied().min_by_key(|&s| self.server_health(s)).unwrap_or(first)
    }

    /// Ends a request with a timeout.
    pub(super) fn give_up(&mut self, now: Instant, index: u32) {
        let Some(p) = self.release_request(now, index, true) else { return };
        match p.token {
            Some(token) => {
                self.counters.timeouts += 1;
                self.counts_by_server[usize::from(p.slot.server)].timeouts += 1;
                self.push_event(RadiusClientEvent::TimedOut { token });
            }
            None => self.clear_status_server_probe(p.slot.server),
        }
        self.recycle_buffer(p);
    }

    fn recycle_list(&mut self, mut list: AttributeList) {
        if self.spare_lists.len() < SPARE {
            list.clear();
            self.spare_lists.push(list);
        }
    }

    /// Removes a request. Its identifier rests if a late reply may arrive.
    pub(super) fn release_request(&mut self, now: Instant, index: u32, rest: bool) -> Option<PendingRequest> {
        let mut p = self.pending.get_mut(index as usize)?.take()?;
        self.free.push(index);
        if let Some(token) = p.token {
            self.by_token.remove(&token);
        }
        self.timers.remove(p.deadline, ClientTimer::Request(index));
        if p.queued {
            self.ready.retain(|o| !matches!(o, QueuedClientOutput::Request(i) if *i == index));
        }
        self.release_pending_identifier(now, p.slot, rest);
        if let Some(source) = p.source.take() {
            self.recycle_list(source.attributes);
        }
        Some(p)
    }
    pub(super) fn recycle_buffer(&mut self, p: PendingRequest) {
        if self.spare_buffers.len() < SPARE {
            self.spare_buffers.push(p.bytes);
        }
    }
    pub(super) fn register_pending_identifier(&mut self, slot: AllocatedIdentifier, index: u32) {
        self.by_slot.insert(slot.lookup_key(), index);
        self.pending_counts[usize::from(slot.server)] += 1;
    }
    pub(super) fn release_pending_identifier(&mut self, now: Instant, slot: AllocatedIdentifier, rest: bool) {
        self.by_slot.remove(&slot.lookup_key());
        self.pending_counts[usize::from(slot.server)] -= 1;
        if rest {
            self.identifiers.schedule_identifier_release(now + self.config.identifier_rest, slot);
        } else {
            self.identifiers.free_identifier(slot);
        }
    }
}

impl Machine for RadiusClient {
    type Command = RadiusClientCommand;
    type Event = RadiusClientEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Datagram { path, data } => self.receive_datagram(now, path, data),
            MachineInput::Timeout => {
                while let Some((_, timer)) = self.timers.pop_due(now) {
                    match timer {
                        ClientTimer::Request(index) => self.expire_request(now, index),
                        ClientTimer::ServerConnection(server, lane) => {
                            self.retry_connection(now, server, lane)
                        }
                        ClientTimer::Watch(server) => self.check_server(now, server),
                    }
                }
            }
            MachineInput::Stream { conn, event } => self.handle_stream_event(now, conn, event),
            MachineInput::Message { .. } | MachineInput::Frame { .. } => {
                self.counters.not_a_datagram += 1;
            }
        }
    }

    fn handle_command(&mut self, now: Instant, command: RadiusClientCommand) -> Result<(), CommandError> {
        match command {
            RadiusClientCommand::Request { token, target, code, attributes } => {
                self.start_request(now, token, target, code, attributes)
            }
            RadiusClientCommand::Cancel { token } => {
                let index = self.by_token.get(&token).copied().ok_or(CommandError::UnknownToken)?;
                if let Some(p) = self.release_request(now, index, true) {
                    self.recycle_buffer(p);
                }
                self.counters.cancelled += 1;
                Ok(())
            }
        }
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        let (p, transmit) = loop {
            let index = match self.ready.pop_front() {
                Some(QueuedClientOutput::Event) => return self.events.pop_front().map(MachineOutput::Event),
                Some(QueuedClientOutput::Operation(conn, op)) => {
                    buf.clear();
                    return Some(MachineOutput::Transmit(Transmit::Stream { conn, op }));
                }
                Some(QueuedClientOutput::Request(index)) => index,
                None => return self.work.take_work().map(MachineOutput::Work),
            };
            let Some(p) = self.pending.get_mut(index as usize).and_then(Option::as_mut) else { continue };
            p.queued = false;
            let server = &self.config.servers[usize::from(p.slot.server)];
            match server.transport {
                ServerTransport::Udp => {
                    let path = DatagramPath {
                        socket: SocketId::from_number(p.slot.socket),
                        local: SocketAddr::new(server.local, 0),
                        remote: server.address,
                    };
                    break (p, Transmit::Datagram { path });
                }
                ServerTransport::Tls => {
                    let link = self.links[usize::from(p.slot.server)].get(p.slot.socket as usize);
                    // The connection was lost meanwhile, so the request waits for the next connection.
                    let Some(conn) = link.and_then(ServerConnection::live_connection) else { continue };
                    break (p, Transmit::Stream { conn, op: StreamOp::Data });
                }
            }
        };
        self.work.count_request();
        buf.clear();
        buf.extend_from_slice(&p.bytes);
        Some(MachineOutput::Transmit(transmit))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

/// Returns an address for lookup, without scope, flow label and IPv4 mapping.
pub(super) fn canonical_address(a: SocketAddr) -> SocketAddr {
    SocketAddr::new(a.ip().to_canonical(), a.port())
}

#[cfg(test)]
mod tests;
