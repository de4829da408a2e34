//! The client's machine.

use super::identifier::{Identifiers, Slot};
use super::{Command, Config, ConfigError, Counters, Event, Response, Target};
use crate::attribute::{Attributes, kind};
use crate::auth::{self, MessageAuthenticator, check_reply, sign_request};
use crate::packet::{self, Code, HEADER_LEN, Packet, TooLong};
use crate::work::WorkMeter;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, Path, SecureRng, SocketId, Transmit, Work,
};

/// How many lists and buffers are kept for reuse.
const SPARE: usize = 64;

/// A request that waits for its answer.
#[derive(Debug)]
struct Pending {
    token: u64,
    /// The packet; its authenticator is the one that the reply proves.
    bytes: Vec<u8>,
    /// What to encode again: kept only where a retransmission may differ.
    source: Option<Box<Source>>,
    slot: Slot,
    tries: u32,
    start: Instant,
    deadline: Instant,
    wait: Duration,
    /// The transmission waits in the ready list.
    queued: bool,
}

#[derive(Debug)]
struct Source {
    attributes: Attributes,
    group: Option<u16>,
    tries_here: u32,
    /// The Acct-Delay-Time that the caller gave, and what was sent last.
    delay: Option<(u32, u32)>,
}

/// Which server of a group new requests start with.
#[derive(Clone, Copy, Debug, Default)]
struct GroupState {
    position: usize,
    until: Instant,
}

/// A RADIUS client; see the [module](super).
#[derive(Debug)]
pub struct Client {
    config: Config,
    rng: SecureRng,
    identifiers: Identifiers,
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    by_token: HashMap<u64, u32>,
    by_slot: HashMap<u64, u32>,
    groups: Vec<GroupState>,
    timers: TimerQueue<u32>,
    ready: VecDeque<u32>,
    events: VecDeque<Event>,
    work: WorkMeter,
    counters: Counters,
    spare_buffers: Vec<Vec<u8>>,
    spare_lists: Vec<Attributes>,
}

impl Client {
    /// A client of these servers. Authenticators, first identifiers and jitter are drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
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
        Ok(Self {
            identifiers: Identifiers::new(servers, config.max_sockets),
            pending: Vec::new(),
            free: Vec::new(),
            by_token: HashMap::with_hasher(hash_state(&mut rng)),
            by_slot: HashMap::with_hasher(hash_state(&mut rng)),
            groups: alloc::vec![GroupState::default(); config.groups.len()],
            timers: TimerQueue::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            work: WorkMeter::default(),
            counters: Counters::default(),
            spare_buffers: Vec::new(),
            spare_lists: Vec::new(),
            config,
            rng,
        })
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Requests that wait for an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.by_token.len()
    }
    /// An empty list, reused from an earlier command where there is one.
    #[must_use]
    pub fn attributes(&mut self) -> Attributes {
        self.spare_lists.pop().unwrap_or_default()
    }
    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn encode(
        &mut self,
        out: &mut Vec<u8>,
        slot: Slot,
        code: Code,
        attributes: &Attributes,
    ) -> Result<(), TooLong> {
        let secret = &self.config.servers[usize::from(slot.server)].secret;
        let sign = matches!(code, Code::ACCESS_REQUEST | Code::STATUS_SERVER);
        let authenticator = if sign { self.rng.array() } else { [0; 16] };
        out.clear();
        packet::begin(out, code, slot.identifier, &authenticator);
        if sign {
            auth::reserve(out);
        }
        let salt = if attributes.has_hidden() { self.rng.next_u32() as u16 } else { 0 };
        attributes.emit(out, secret.as_bytes(), &authenticator, salt);
        packet::finish(out, 0)?;
        sign_request(out, sign, secret);
        Ok(())
    }

    fn request(
        &mut self,
        now: Instant,
        token: u64,
        target: Target,
        code: Code,
        attributes: Attributes,
    ) -> Result<(), CommandError> {
        if !code.is_request() {
            return Err(CommandError::Invalid("the code is not one of a request"));
        }
        if self.by_token.contains_key(&token) {
            return Err(CommandError::Invalid("the token is already in use"));
        }
        if attributes.get(kind::MESSAGE_AUTHENTICATOR).is_some() {
            return Err(CommandError::Invalid("the client puts the Message-Authenticator in"));
        }
        let (server, group) = self.choose(now, target)?;
        let full = CommandError::Full("all identifiers of all sockets are in use");
        let slot = self.identifiers.take(now, server, &mut self.rng).ok_or(full)?;
        let mut bytes = self.spare_buffers.pop().unwrap_or_default();
        if self.encode(&mut bytes, slot, code, &attributes).is_err() {
            self.identifiers.free(slot);
            self.spare_buffers.push(bytes);
            return Err(CommandError::Invalid("the attributes do not fit a packet of 4096 octets"));
        }
        let delay = match code {
            Code::ACCOUNTING_REQUEST => attributes.get_u32(kind::ACCT_DELAY_TIME).map(|d| (d, d)),
            _ => None,
        };
        let source = if delay.is_some() || group.is_some() {
            Some(Box::new(Source { attributes, group, tries_here: 1, delay }))
        } else {
            self.recycle_list(attributes);
            None
        };
        let wait = self.config.retransmission.first(&mut self.rng);
        let deadline = (now + wait).min(now + self.config.retransmission.max_duration());
        let pending =
            Pending { token, bytes, source, slot, tries: 1, start: now, deadline, wait, queued: true };
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
        self.by_token.insert(token, index);
        self.by_slot.insert(slot.key(), index);
        self.timers.insert(deadline, index);
        self.ready.push_back(index);
        self.counters.requests += 1;
        Ok(())
    }

    /// The server for a new request, and the group where a change of server is possible.
    fn choose(&mut self, now: Instant, target: Target) -> Result<(u16, Option<u16>), CommandError> {
        match target {
            Target::Server(s) if usize::from(s) < self.config.servers.len() => Ok((s, None)),
            Target::Server(_) => Err(CommandError::Invalid("no server of this index")),
            Target::Group(g) => {
                let members = self.config.groups.get(usize::from(g));
                let members = members.ok_or(CommandError::Invalid("no group of this index"))?;
                let state = &mut self.groups[usize::from(g)];
                if state.position != 0 && state.until <= now {
                    state.position = 0;
                }
                let movable = self.config.failover.is_some() && members.len() > 1;
                Ok((members[state.position], movable.then_some(g)))
            }
            Target::From { group, server } => {
                let members = self.config.groups.get(usize::from(group));
                let members = members.ok_or(CommandError::Invalid("no group of this index"))?;
                if !members.contains(&server) {
                    return Err(CommandError::Invalid("this server is not of the group"));
                }
                let movable = self.config.failover.is_some() && members.len() > 1;
                Ok((server, movable.then_some(group)))
            }
        }
    }

    fn recycle_list(&mut self, mut list: Attributes) {
        if self.spare_lists.len() < SPARE {
            list.clear();
            self.spare_lists.push(list);
        }
    }

    /// Ends a request: forgets everything about it. Its identifier rests where a late reply may come.
    fn release(&mut self, now: Instant, index: u32, rest: bool) -> Option<Pending> {
        let mut p = self.pending.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.by_token.remove(&p.token);
        self.timers.remove(p.deadline, index);
        if p.queued {
            self.ready.retain(|&i| i != index);
        }
        self.vacate(now, p.slot, rest);
        if let Some(source) = p.source.take() {
            self.recycle_list(source.attributes);
        }
        Some(p)
    }
    fn recycle(&mut self, p: Pending) {
        if self.spare_buffers.len() < SPARE {
            self.spare_buffers.push(p.bytes);
        }
    }
    fn vacate(&mut self, now: Instant, slot: Slot, rest: bool) {
        self.by_slot.remove(&slot.key());
        if rest {
            self.identifiers.rest(now + self.config.identifier_rest, slot);
        } else {
            self.identifiers.free(slot);
        }
    }

    fn receive(&mut self, now: Instant, path: Path, data: &[u8]) {
        self.work.response();
        let Ok(reply) = Packet::parse(data) else {
            self.counters.malformed += 1;
            return;
        };
        let socket = path.socket.0.wrapping_sub(self.config.first_socket.0);
        let (mut known, mut found) = (false, None);
        for (server, config) in self.config.servers.iter().enumerate() {
            if same_address(config.address, path.remote) {
                known = true;
                let slot = Slot { server: server as u16, socket, identifier: reply.identifier() };
                found = found.or_else(|| {
                    let index = self.by_slot.get(&slot.key()).copied()?;
                    let p = self.pending.get(index as usize)?.as_ref()?;
                    (p.slot == slot).then_some((index, p, config))
                });
            }
        }
        let Some((index, p, server)) = found else {
            if known {
                self.counters.unknown_identifier += 1;
            } else {
                self.counters.wrong_source += 1;
            }
            return;
        };
        let request = Code(p.bytes[0]);
        let mut request_authenticator = [0; 16];
        request_authenticator.copy_from_slice(&p.bytes[4..HEADER_LEN]);
        if !reply.code().answers(request) {
            self.counters.wrong_code += 1;
            return;
        }
        let (genuine, message_authenticator) = check_reply(&reply, &request_authenticator, &server.secret);
        if !genuine {
            self.counters.bad_authenticator += 1;
            return;
        }
        match message_authenticator {
            MessageAuthenticator::Good => {}
            MessageAuthenticator::Bad => {
                self.counters.bad_message_authenticator += 1;
                return;
            }
            MessageAuthenticator::Absent => {
                let policy = request == Code::ACCESS_REQUEST && server.require_message_authenticator;
                if policy || reply.get(kind::EAP_MESSAGE).is_some() {
                    self.counters.missing_message_authenticator += 1;
                    return;
                }
            }
        }
        let (secret, repeated) = (server.secret.clone(), p.tries > 1);
        let Some(p) = self.release(now, index, repeated) else { return };
        let mut attributes = self.attributes();
        attributes.refill(reply.attribute_bytes());
        self.counters.responses += 1;
        self.events.push_back(Event::Response(Response {
            token: p.token,
            server: p.slot.server,
            code: reply.code(),
            attributes,
            request_authenticator,
            secret,
        }));
        self.recycle(p);
    }

    /// The wait of a request is over: send again or give up.
    fn expire(&mut self, now: Instant, index: u32) {
        let Some(p) = self.pending.get(index as usize).and_then(Option::as_ref) else { return };
        let policy = self.config.retransmission;
        if p.tries >= policy.max_count() || now.since(p.start) >= policy.max_duration() {
            if let Some(p) = self.release(now, index, true) {
                self.counters.timeouts += 1;
                self.events.push_back(Event::TimedOut { token: p.token });
                self.recycle(p);
            }
            return;
        }
        let Some(mut p) = self.pending[index as usize].take() else { return };
        let moved = self.renew(now, &mut p, index);
        p.tries += 1;
        p.wait = if moved { policy.first(&mut self.rng) } else { policy.next(p.wait, &mut self.rng) };
        p.deadline = (now + p.wait).min(p.start + policy.max_duration());
        if !p.queued {
            p.queued = true;
            self.ready.push_back(index);
        }
        self.counters.retransmissions += 1;
        self.timers.insert(p.deadline, index);
        self.pending[index as usize] = Some(p);
    }

    /// Encodes a retransmission that is not the same octets again; true where it goes to another server.
    fn renew(&mut self, now: Instant, p: &mut Pending, index: u32) -> bool {
        let Some(mut source) = p.source.take() else { return false };
        let current = p.slot.server;
        let next = match (self.config.failover, source.group) {
            (Some(f), Some(g)) if source.tries_here >= f.after => {
                let members = &self.config.groups[usize::from(g)];
                let at = members.iter().position(|&s| s == current).unwrap_or(0);
                let next = (at + 1) % members.len();
                let state = &mut self.groups[usize::from(g)];
                if state.position == at {
                    *state = GroupState { position: next, until: now + f.revive };
                }
                members[next]
            }
            _ => current,
        };
        let delay = source.delay.map(|(given, sent)| {
            let elapsed = now.since(p.start).as_secs().min(u64::from(u32::MAX)) as u32;
            (given, sent, given.saturating_add(elapsed))
        });
        let changed = delay.is_some_and(|(_, sent, due)| sent != due);
        if (next != current || changed)
            && let Some(slot) = self.identifiers.take(now, next, &mut self.rng)
        {
            if let Some((given, _, due)) = delay {
                source.attributes.replace(kind::ACCT_DELAY_TIME, &due.to_be_bytes());
                source.delay = Some((given, due));
            }
            let code = Code(p.bytes[0]);
            let fits = self.encode(&mut p.bytes, slot, code, &source.attributes);
            debug_assert!(fits.is_ok(), "it fitted before, and no length has changed");
            self.vacate(now, p.slot, true);
            p.slot = slot;
            self.by_slot.insert(slot.key(), index);
            self.counters.renewals += 1;
        }
        let moved = p.slot.server != current;
        if moved {
            source.tries_here = 0;
            self.counters.failovers += 1;
        }
        source.tries_here += 1;
        p.source = Some(source);
        moved
    }
}

/// Whether a datagram came from a server: scope and flow label aside.
fn same_address(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
}

impl Machine for Client {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Datagram { path, data } => self.receive(now, path, data),
            Input::Timeout => {
                while let Some((_, index)) = self.timers.pop_due(now) {
                    self.expire(now, index);
                }
            }
            Input::Stream { .. } | Input::Message { .. } | Input::Frame { .. } => {
                self.counters.not_a_datagram += 1;
            }
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Request { token, target, code, attributes } => {
                self.request(now, token, target, code, attributes)
            }
            Command::Cancel { token } => {
                let index = self.by_token.get(&token).copied().ok_or(CommandError::UnknownToken)?;
                if let Some(p) = self.release(now, index, true) {
                    self.recycle(p);
                }
                self.counters.cancelled += 1;
                Ok(())
            }
        }
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        let p = loop {
            let index = self.ready.pop_front()?;
            if let Some(p) = self.pending.get_mut(index as usize).and_then(Option::as_mut) {
                break p;
            }
        };
        p.queued = false;
        self.work.request();
        buf.clear();
        buf.extend_from_slice(&p.bytes);
        let server = &self.config.servers[usize::from(p.slot.server)];
        let path = Path {
            socket: SocketId(self.config.first_socket.0.wrapping_add(p.slot.socket)),
            local: SocketAddr::new(server.local, 0),
            remote: server.address,
        };
        Some(Transmit::Datagram { path })
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.work.poll()
    }
}

#[cfg(test)]
mod tests;
