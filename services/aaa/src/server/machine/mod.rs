//! The server's machine.

mod accounting;
mod diameter;
mod flow;
mod handover;
mod outward;
mod proxied;
mod radius;
mod traces;
mod translate;
mod turns;
mod verdict;

use super::api::{Command, Event, Job};
use super::cache::UserCache;
use super::config::{Config, ConfigError, UserSource};
use super::counters::Counters;
use super::half_open::{HalfOpen, Source};
use super::held::Held;
use super::held_back::HeldBack;
use super::session::Session;
use super::shard::{ShardConfig, ShardKey};
use super::stand_in::StandIns;
use super::trace::Tracers;
use crate::users::canonical_name;
use accounting::Accounting;
use alloc::vec::Vec;
use handover::Foreign;
use outward::Outward;
use usher_core::fair::FairQueue;
use usher_core::{
    Child, CommandError, Input, Instant, ListenerId, Machine, OutputOf, Outputs, Owner, Path, SecureRng,
    SocketId,
};
use usher_diameter::dictionary::Dictionary;
use usher_diameter::node::{self, Node};
use usher_radius::attribute::Attributes;
use usher_radius::server as radius_server;

/// The slots of what a server is made of.
const RADIUS: u16 = 0;
const DIAMETER: u16 = 1;
/// Who asks home servers; a new configuration's asks by the other.
const HOMES: [u16; 2] = [2, 3];
/// Who asks access servers (RFC 5176).
const DYNAMIC: u16 = 4;

/// The `n`-th socket of the RADIUS front, whose purpose is in [`radius_server::Config::roles`].
#[must_use]
pub const fn radius_socket(n: u32) -> SocketId {
    SocketId::own(n).within(RADIUS)
}
/// Where RadSec connections are accepted.
pub const RADSEC_LISTENER: ListenerId = ListenerId { owner: Owner::slot(RADIUS), n: 0 };
/// Where Diameter connections and associations are accepted.
pub const DIAMETER_LISTENER: ListenerId = ListenerId { owner: Owner::slot(DIAMETER), n: 0 };

/// An AAA server; see the [module](super).
#[derive(Debug)]
pub struct AaaServer {
    config: Config,
    shard: ShardConfig,
    radius: Option<Child<radius_server::Server>>,
    diameter: Option<Child<Node>>,
    /// What Diameter requests are held against.
    dictionary: Option<Dictionary>,
    sessions: HalfOpen<Session>,
    /// Sessions with a step that waits for its turn.
    turns: FairQueue<Source, u64>,
    cache: UserCache,
    stand_ins: StandIns,
    held: Held,
    held_back: HeldBack,
    accounting: Accounting,
    outward: Outward,
    foreign: Foreign,
    outputs: Outputs<Event, Job>,
    counters: Counters,
    tracers: Tracers,
    rng: SecureRng,
    /// The EAP packet that came, and the one that goes out.
    packet: Vec<u8>,
    out: Vec<u8>,
}

impl AaaServer {
    /// A server without sessions. Session names and challenges are drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let radius = match config.radius.clone() {
            Some(c) => {
                let server = radius_server::Server::new(c, SecureRng::from_seed(rng.array()))?;
                Some(Child::new(RADIUS, server))
            }
            None => None,
        };
        let mut node = |c| Node::new(c, Instant::ZERO, SecureRng::from_seed(rng.array()));
        let diameter = config.diameter.clone().map(|c| Child::new(DIAMETER, node(c)));
        let alone = || ShardConfig { number: 0, key: ShardKey::new(&rng.array()) };
        let shard = config.shard.clone().unwrap_or_else(alone);
        let cache = match config.users {
            UserSource::Memory(_) => UserCache::none(&mut rng),
            UserSource::Host(cache) => UserCache::new(cache, &mut rng),
        };
        let sessions = HalfOpen::new(&mut rng);
        let outward = Outward::new(&config, &mut rng)?;
        let held_back = HeldBack::new(config.failures, &mut rng);
        Ok(Self {
            outward,
            foreign: Foreign::default(),
            stand_ins: StandIns::new(&shard.key),
            held_back,
            shard,
            radius,
            dictionary: diameter.is_some().then(Dictionary::base),
            diameter,
            sessions,
            turns: FairQueue::new(),
            cache,
            held: Held::default(),
            accounting: Accounting::default(),
            outputs: Outputs::default(),
            counters: Counters::default(),
            tracers: Tracers::default(),
            packet: Vec::new(),
            out: Vec::new(),
            config,
            rng,
        })
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The RADIUS server's counters.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&radius_server::Counters> {
        self.radius.as_ref().map(|server| server.counters())
    }
    /// Whether a datagram from an address is a RADIUS request of a client with a right Message-Authenticator.
    #[must_use]
    pub fn is_signed(&self, source: core::net::IpAddr, datagram: &[u8]) -> bool {
        self.radius.as_ref().is_some_and(|server| server.is_signed(source, datagram))
    }
    /// The Diameter node's counters.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<&node::Counters> {
        self.diameter.as_ref().map(|node| node.counters())
    }
    /// Unfinished sessions.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.sessions.len()
    }
    /// About how many octets of memory unfinished sessions hold.
    #[must_use]
    pub fn half_open_octets(&self) -> usize {
        self.sessions.octets()
    }
    /// Users kept from look-ups.
    #[must_use]
    pub fn cached_users(&self) -> usize {
        self.cache.len()
    }
    /// Requests that wait for an answer: of unfinished sessions, rejects held back, records that are not durable yet,
    /// requests passed on to a home server.
    #[must_use]
    pub fn owed(&self) -> usize {
        let outward = self.outward.passed.len() + self.outward.translated.len();
        self.sessions.len() + self.held.len() + self.accounting_waiting() + outward
    }
    /// Takes back the request of a [`Login`](super::Login) that was told: a host that keeps none of them has none
    /// allocated.
    pub fn reuse(&mut self, request: Attributes) {
        self.recycle(request);
    }
    /// Rejects held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

impl AaaServer {
    /// Asks something of the host.
    fn assign(&mut self, token: u64, what: Job) {
        self.outputs.job(usher_core::Job { token, what });
    }

    /// Gives an input to the part whose socket or connection it is of. Who connects where nobody serves is refused.
    fn give(&mut self, now: Instant, input: Input<'_>) {
        let refusal = input.refusal();
        match (input.enter(), &mut self.radius, &mut self.diameter) {
            (Some((RADIUS, input)), Some(server), _) => return server.handle(now, input),
            (Some((DIAMETER, input)), _, Some(node)) => return node.handle(now, input),
            (Some((slot, input)), ..) => match self.outward.client(slot) {
                Some(client) => return client.handle(now, input),
                None => self.counters.no_front += 1,
            },
            (None, ..) => self.counters.no_front += 1,
        }
        if let Some(refusal) = refusal {
            self.outputs.operate(refusal);
        }
    }

    fn obey(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Found { token, user } => self.on_found(now, token, user),
            Command::Verified { token, right } => self.on_verified(now, token, right),
            Command::Admitted { token, admission } => self.on_admitted(now, token, admission),
            Command::Accounted { token, durable } => self.on_accounted(now, token, durable),
            Command::Certificate { token, verdict } => self.on_certificate(now, token, verdict),
            Command::Unable { token } => self.on_unable(now, token),
            Command::Clock { epoch } => {
                self.config.epoch = epoch;
                Ok(())
            }
            Command::Reload(config) => {
                let homes = self.other_homes(&config)?;
                self.reload(*config)?;
                if let Some(homes) = homes {
                    self.replace_homes(now, homes);
                }
                Ok(())
            }
            Command::Forget { name } => {
                self.cache.forget(name.as_deref());
                if let Some(name) = &name {
                    self.stand_ins.forget(name);
                }
                let name = name.as_deref().map(canonical_name);
                let whose =
                    |subject: &[u8]| name.as_ref().is_none_or(|name| canonical_name(subject) == *name);
                let methods = [&self.config.tls, &self.config.peap, &self.config.ttls];
                methods.into_iter().flatten().for_each(|method| method.end_sessions(&whose));
                Ok(())
            }
            Command::HoldBack { name, station } => {
                self.held_back.hold(now, &name, &station);
                Ok(())
            }
            Command::Trace { slot, filter } => self.set_trace(slot, filter),
            Command::HomeServer(state) => {
                if let Some(homes) = &mut self.outward.homes {
                    homes.told(now, &state.name, state.service, state.health);
                }
                Ok(())
            }
            Command::Dynamic { token, to, code, attributes } => {
                self.dynamic(now, token, to, code, attributes)
            }
            Command::Handed { from, handed } => {
                self.handed(now, from, handed);
                Ok(())
            }
            Command::HandedBack(back) => {
                self.handed_back(now, back);
                Ok(())
            }
            Command::Diameter(command) => match &mut self.diameter {
                Some(node) => node.command(now, command),
                None => Err(CommandError::Invalid("this server has no Diameter side")),
            },
        }
    }
}

impl Machine for AaaServer {
    type Command = Command;
    type Event = Event;
    type Job = Job;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                if let Some(server) = &mut self.radius {
                    server.handle(now, input);
                }
                if let Some(node) = &mut self.diameter {
                    node.handle(now, input);
                }
                self.outward.timeout(now);
                self.expire(now);
                self.release(now);
                self.take_turn(now);
            }
            _ => self.give(now, input),
        }
        self.drain_parts(now);
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(Path, &[u8])]) {
        for &(path, data) in datagrams {
            self.give(now, Input::Datagram { path, data });
        }
        self.drain_parts(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let done = self.obey(now, command);
        self.drain_parts(now);
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        if !self.turns.is_empty() {
            return Some(Instant::ZERO);
        }
        let idle = self.sessions.oldest().map(|(_, since)| since + self.config.session_timeout);
        let accounting = self.accounting.oldest().map(|since| since + self.config.session_timeout);
        let radius = self.radius.as_mut().and_then(|server| server.poll_timeout());
        let diameter = self.diameter.as_mut().and_then(|node| node.poll_timeout());
        let outward = self.outward.poll_timeout();
        [idle, accounting, self.held.next(), radius, diameter, outward].into_iter().flatten().min()
    }
}
