//! The server's machine: what comes goes to the part that it is for, and what one part says to the next.

use super::accounting::Accounting;
use super::answer::Asker;
use super::api::LoginOwner;
use super::api::{Command, Event, Handed, Job};
use super::ask::{Ask, Pending};
use super::cache::UserCache;
use super::config::{Config, ConfigError, UserSource};
use super::context::Context;
use super::counters::Counters;
use super::dynamic::Dynamic;
use super::fronts::Fronts;
use super::half_open::Source;
use super::held_back::HeldBack;
use super::logins::Logins;
use super::proof::Proof;
use super::proxy::Proxy;
use super::reason::Reason;
use super::shard::{ShardConfig, ShardKey};
use super::stand_in::StandIns;
use super::trace::Tracers;
use super::{DIAMETER, DYNAMIC, RADIUS};
use crate::proxy::HomeServers;
use crate::users::canonical_name;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::timer::earliest;
use usher_core::{
    CommandError, Input, Instant, ListenerId, Machine, OutputOf, Outputs, Owner as Slot, Path, SecureRng,
    SocketId, WallTime,
};
use usher_diameter::codes::{self, application, command};
use usher_diameter::eap::Der;
use usher_diameter::nasreq::Aar;
use usher_diameter::node::{self, Node, PeerId};
use usher_diameter::peer::{automaton, watchdog};
use usher_diameter::{Fault, Message, ResultCode};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::packet::Code;
use usher_radius::server::{self as radius, ClientConfig, Request};

/// The `n`-th socket of the RADIUS front, whose purpose is in [`radius::Config::roles`].
#[must_use]
pub const fn radius_socket(n: u32) -> SocketId {
    SocketId::own(n).within(RADIUS)
}
/// Where RadSec connections are accepted.
pub const RADSEC_LISTENER: ListenerId = ListenerId { owner: Slot::slot(RADIUS), n: 0 };
/// Where Diameter connections and associations are accepted.
pub const DIAMETER_LISTENER: ListenerId = ListenerId { owner: Slot::slot(DIAMETER), n: 0 };

/// An AAA server; see the [module](super).
#[derive(Debug)]
pub struct AaaServer {
    fronts: Fronts,
    logins: Logins,
    accounting: Accounting,
    proxy: Proxy,
    dynamic: Dynamic,
}

impl AaaServer {
    /// A server without sessions. Session names and challenges are drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let mut seed = || SecureRng::from_seed(rng.array());
        let radius = config.radius.clone().map(|c| radius::Server::new(c, seed())).transpose()?;
        let diameter = config.diameter.clone().map(|c| Node::new(c, Instant::ZERO, seed()));
        let alone = || ShardConfig { number: 0, key: ShardKey::new(&rng.array()) };
        let shard = config.shard.clone().unwrap_or_else(alone);
        let cache = match config.users {
            UserSource::Memory(_) => UserCache::none(&mut rng),
            UserSource::Host(cache) => UserCache::new(cache, &mut rng),
        };
        let logins = Logins::new(&mut rng);
        let proxy = Proxy::new(&config, &mut rng)?;
        let ctx = Context {
            now: Instant::ZERO,
            epoch: WallTime::UNIX_EPOCH,
            cache,
            stand_ins: StandIns::new(&shard.key),
            held_back: HeldBack::new(config.failures, &mut rng),
            shard,
            outputs: Outputs::default(),
            counters: Counters::default(),
            tracers: Tracers::default(),
            out: Vec::new(),
            list: Attributes::new(),
            config,
            rng,
        };
        let (accounting, dynamic) = (Accounting::default(), Dynamic::default());
        Ok(Self { fronts: Fronts::new(radius, diameter, ctx), logins, accounting, proxy, dynamic })
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.fronts.ctx.counters
    }
    /// The RADIUS server's counters.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&radius::Counters> {
        self.fronts.radius.as_ref().map(|server| server.counters())
    }
    /// Where the newest RADIUS packets came from that were dropped.
    #[must_use]
    pub fn radius_drop_sources(&self) -> Option<&radius::DropSources> {
        self.fronts.radius.as_ref().map(|server| server.drop_sources())
    }
    /// Whether a datagram from an address is a RADIUS request of a client with a right Message-Authenticator.
    #[must_use]
    pub fn is_signed(&self, source: IpAddr, datagram: &[u8]) -> bool {
        self.fronts.radius.as_ref().is_some_and(|server| server.is_signed(source, datagram))
    }
    /// Whether some client or peer may connect to a listener from an address.
    #[must_use]
    pub fn may_connect(&self, listener: ListenerId, address: IpAddr) -> bool {
        match listener {
            RADSEC_LISTENER => self.fronts.radius.as_ref().is_some_and(|server| server.may_connect(address)),
            DIAMETER_LISTENER => self.fronts.diameter.as_ref().is_some_and(|node| node.may_connect(address)),
            _ => true,
        }
    }
    /// The Diameter node's counters.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<&node::Counters> {
        self.fronts.diameter.as_ref().map(|node| node.counters())
    }
    /// What a Diameter peer is called.
    #[must_use]
    pub fn diameter_peer(&self, peer: PeerId) -> Option<&str> {
        self.fronts.diameter.as_ref()?.host(peer)
    }
    /// How the connection of a Diameter peer stands (RFC 6733 §5.6), if there is such a peer.
    #[must_use]
    pub fn diameter_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.fronts.diameter.as_ref()?.peer_state(peer)
    }
    /// The Diameter peers that this server connects to, and whether requests are sent to them: they are open, and their
    /// watchdog finds nothing amiss (RFC 3539 §3.4).
    pub fn diameter_servers(&self) -> impl Iterator<Item = (&str, bool)> {
        self.fronts.diameter.iter().flat_map(|node| {
            let connects = node.configured().filter(|(_, config)| config.address.is_some());
            connects.map(|(peer, config)| {
                let okay = node.watchdog_state(peer) == Some(watchdog::State::Okay);
                (config.host.as_str(), okay)
            })
        })
    }
    /// The realms whose users a home server of this name knows.
    pub fn realms_of(&self, home: &str) -> impl Iterator<Item = &str> {
        let proxy = self.fronts.ctx.config.proxy.as_ref();
        let index = proxy.and_then(|p| p.servers.iter().position(|s| s.name == home));
        let found = proxy.zip(index).map(|(proxy, index)| proxy.realms_of(index as u16));
        found.into_iter().flatten()
    }
    /// The home servers and the client that asks them.
    #[must_use]
    pub const fn home_servers(&self) -> Option<&HomeServers> {
        self.proxy.homes.current()
    }
    /// Unfinished sessions.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.logins.sessions().len()
    }
    /// About how many octets of memory unfinished sessions hold.
    #[must_use]
    pub fn half_open_octets(&self) -> usize {
        self.logins.sessions().octets()
    }
    /// Steps that wait for their turn: the host is to call at once, after it has handed in what came.
    #[must_use]
    pub fn steps_waiting(&self) -> usize {
        self.logins.steps_waiting()
    }
    /// Users kept from look-ups.
    #[must_use]
    pub fn cached_users(&self) -> usize {
        self.fronts.ctx.cache.len()
    }
    /// Rejects held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.logins.held()
    }
    /// Accounting requests that wait for their records to be durable.
    #[must_use]
    pub fn accounting_waiting(&self) -> usize {
        self.accounting.waiting()
    }
    /// Requests that wait for an answer: of unfinished sessions, rejects held back, records that are not durable yet,
    /// requests passed on to a home server.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.half_open() + self.held() + self.accounting_waiting() + self.proxy.waiting()
    }
    /// Takes back the request of a [`Login`](super::Login) that was told: a host that keeps none of them has none
    /// allocated.
    pub fn reuse(&mut self, request: Attributes) {
        self.fronts.recycle(request);
    }
}

/// Which part what comes is for.
impl AaaServer {
    /// Gives an input to the part whose socket or connection it is of. Who connects where nobody serves is refused.
    fn give(&mut self, now: Instant, input: Input<'_>) {
        let refusal = input.refusal();
        if let Some((slot, input)) = input.enter() {
            if self.fronts.handle(now, slot, input) {
                return;
            }
            if let Some(client) = self.proxy.homes.client(slot).or_else(|| self.dynamic.client(slot)) {
                return client.handle(now, input);
            }
        }
        self.fronts.ctx.counters.no_front += 1;
        if let Some(refusal) = refusal {
            self.fronts.ctx.outputs.operate(refusal);
        }
    }

    fn obey(&mut self, command: Command) -> Result<(), CommandError> {
        let Self { fronts, logins, accounting, proxy, dynamic } = self;
        match command {
            Command::Found { token, user } => {
                logins.answered(fronts, token, |session, ctx| session.on_found(ctx, user))
            }
            Command::Verified { token, right } => {
                logins.answered(fronts, token, |session, ctx| session.on_verified(ctx, right))
            }
            Command::Admitted { token, admission } => {
                logins.answered(fronts, token, |session, _| session.on_admitted(admission))
            }
            Command::Named { token, name } => {
                logins.answered(fronts, token, |session, ctx| session.on_named(ctx, name))
            }
            Command::Certificate { token, verdict } => {
                logins.answered(fronts, token, |session, ctx| session.on_certificate(ctx, verdict))
            }
            Command::Unable { token } => logins.answered(fronts, token, |session, _| session.on_unable()),
            Command::Accounted { token, durable } => accounting.written(fronts, token, durable),
            Command::Reload(config) => self.reload(*config),
            Command::Forget { name } => {
                forget(&mut fronts.ctx, name.as_deref());
                Ok(())
            }
            Command::HoldBack { name, station } => {
                fronts.ctx.held_back.hold(fronts.ctx.now, &name, &station);
                Ok(())
            }
            Command::Trace { slot, filter } => {
                if !fronts.ctx.tracers.set(slot, filter, fronts.ctx.config.dictionary.as_ref()) {
                    return Err(CommandError::Invalid("there is no trace of this number"));
                }
                // Logins under way are told of from their next request on.
                logins.for_each(|session| session.untrace(1 << slot));
                Ok(())
            }
            Command::HomeServer(state) => {
                proxy.homes.told(fronts.ctx.now, &state);
                Ok(())
            }
            Command::Dynamic { token, to, code, attributes } => {
                dynamic.ask(fronts, (token, to), code, attributes)
            }
            Command::Handed { from, handed } => {
                match handed {
                    Handed::Radius(mut request) => {
                        request.token = fronts.foreign.admit(from, request.token);
                        self.decide_radius(*request);
                    }
                    Handed::Diameter { token, peer, origin, message } => {
                        let token = fronts.foreign.admit(from, token);
                        self.decide_diameter(token, peer, origin, &message);
                    }
                }
                Ok(())
            }
            Command::HandedBack(back) => {
                fronts.handed_back(back);
                Ok(())
            }
            Command::Diameter(command) => match &mut fronts.diameter {
                Some(node) => node.command(fronts.ctx.now, command),
                None => Err(CommandError::Invalid("this server has no Diameter side")),
            },
        }
    }

    /// Goes on with another configuration. Which fronts there are and the Diameter node stay as they were at start.
    fn reload(&mut self, config: Config) -> Result<(), CommandError> {
        let Self { fronts, logins, proxy, .. } = self;
        let homes = proxy.homes.others(&mut fronts.ctx, &config)?;
        if let (Some(server), Some(radius)) = (&mut fronts.radius, &config.radius) {
            let contradiction = CommandError::Invalid("the RADIUS clients contradict each other");
            server.reload(radius.clone()).map_err(|_| contradiction)?;
            let before = fronts.ctx.config.radius.as_ref().map_or(&[][..], |r| &r.clients);
            let same = |a: &ClientConfig, b: &ClientConfig| {
                a.network == b.network && a.prefix == b.prefix && a.transport == b.transport
            };
            let numbers: Vec<u32> = before
                .iter()
                .map(|b| radius.clients.iter().position(|a| same(a, b)).map_or(u32::MAX, |i| i as u32))
                .collect();
            let number = |client| numbers.get(client as usize).copied().unwrap_or(u32::MAX);
            logins.for_each(|session| session.renumber_client(number));
        }
        if let UserSource::Host(cache) = config.users {
            fronts.ctx.cache.reconfigure(cache);
        }
        if let Some(shard) = &config.shard {
            fronts.ctx.shard = shard.clone();
        }
        fronts.ctx.config = config;
        fronts.ctx.stand_ins.reconfigure();
        if let Some(homes) = homes {
            proxy.homes.replace(fronts, homes);
        }
        Ok(())
    }

    /// Hears what the machines say that this one is made of. What a home server or a Diameter peer says may have another
    /// part say something in its turn.
    fn drain_parts(&mut self) {
        loop {
            while let Some(radius::Event::Request(request)) = self.fronts.radius_event() {
                self.radius_request(request);
            }
            let mut heard = false;
            while let Some(event) = self.fronts.diameter_event() {
                heard = true;
                self.diameter_event(event);
            }
            heard |= self.dynamic.drain(&mut self.fronts.ctx);
            heard |= self.proxy.homes.drain(&mut self.fronts);
            if !heard {
                return;
            }
        }
    }

    /// A request came to the RADIUS server.
    fn radius_request(&mut self, request: Request) {
        // A datagram was looked at before it came here.
        let by_connection = request.conn.is_some() && request.code == Code::ACCESS_REQUEST;
        let state = request.attributes.get(kind::STATE).filter(|_| by_connection);
        match self.fronts.ctx.elsewhere(state) {
            Some(shard) => self.fronts.ctx.hand_over(shard, Handed::Radius(Box::new(request))),
            None => self.decide_radius(request),
        }
    }

    fn decide_radius(&mut self, request: Request) {
        let Self { fronts, logins, accounting, proxy, .. } = self;
        let Some(request) = proxy.route(fronts, request) else { return };
        match request.code {
            Code::ACCESS_REQUEST => logins.access_request(fronts, request),
            Code::ACCOUNTING_REQUEST => accounting.request(fronts, request),
            _ => {
                fronts.ctx.counters.unsupported += 1;
                fronts.stay_silent(request.token);
                fronts.recycle(request.attributes);
            }
        }
    }

    fn diameter_event(&mut self, event: node::Event) {
        let Self { fronts, proxy, .. } = self;
        match event {
            node::Event::Request { token, peer, origin, message } => {
                let of_eap = (message.header.application, message.header.command)
                    == (application::EAP, command::DIAMETER_EAP);
                let state = message.avps.view().get(codes::STATE).filter(|_| of_eap);
                match fronts.ctx.elsewhere(state.map(|state| state.data)) {
                    Some(shard) => {
                        let message = Box::new(message);
                        fronts.ctx.hand_over(shard, Handed::Diameter { token, peer, origin, message });
                    }
                    None => self.decide_diameter(token, peer, origin, &message),
                }
            }
            node::Event::PeerUp { peer } => fronts.ctx.outputs.event(Event::DiameterPeer { peer, up: true }),
            node::Event::PeerDown { peer } => {
                fronts.ctx.outputs.event(Event::DiameterPeer { peer, up: false })
            }
            node::Event::Answer { token, result, avps } => {
                proxy.translation.answered(fronts, token, result, &avps);
            }
            node::Event::Failed { token, .. } => proxy.translation.silent(fronts, token),
        }
    }

    fn decide_diameter(&mut self, token: u64, peer: PeerId, origin: Arc<str>, message: &Message) {
        if let Err(fault) = self.diameter_request(token, peer, origin, message) {
            self.fronts.ctx.counters.unsupported += 1;
            self.fronts.refuse(token, fault);
        }
    }

    fn diameter_request(
        &mut self,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: &Message,
    ) -> Result<(), Fault> {
        let Self { fronts, logins, accounting, proxy, .. } = self;
        fronts.check(message).inspect_err(|_| {
            if message.header.command == command::ACCOUNTING {
                fronts.ctx.counters.accounting += 1;
                fronts.ctx.counters.bad_accounting += 1;
            }
        })?;
        let avps = message.avps.view();
        if message.header.command == command::ACCOUNTING {
            return accounting.message(&mut fronts.ctx, token, &origin, message);
        }
        let arrived = fronts.ctx.now;
        let ask = |fronts: &mut Fronts, request_type| {
            let (asker, source) = (Asker::Diameter(token, request_type), Source::Peer(peer));
            let pending = Pending { asker, source, arrived, request: fronts.as_attributes(avps) };
            Ask { owner: LoginOwner::Diameter(origin), pending }
        };
        match (message.header.application, message.header.command) {
            (application::EAP, command::DIAMETER_EAP) => {
                let der = Der::parse(avps)?;
                let ask = ask(fronts, der.request_type);
                let Some(ask) = proxy.route_der(fronts, ask, &der) else { return Ok(()) };
                let token = der.state.map(|state| fronts.ctx.shard.token(state));
                logins.eap(fronts, ask, token, der.eap);
            }
            (application::NASREQ, command::AA) => {
                let aar = Aar::parse(avps)?;
                let ask = ask(fronts, aar.request_type);
                let pap = aar.password.map(|password| Proof::Pap(password.into()));
                let proof = pap.or_else(|| aar.chap.as_ref().map(Proof::chap));
                let ask = match proof {
                    Some(_) => proxy.route_aar(fronts, ask),
                    None => Some(ask),
                };
                let Some(ask) = ask else { return Ok(()) };
                logins.prove(fronts, ask, proof.ok_or(Reason::NoProof));
            }
            // As a server we keep no session of whom we let in (Auth-Session-State); as a translator, none of whom a home
            // server let in.
            (_, command::SESSION_TERMINATION | command::ABORT_SESSION | command::RE_AUTH) => {
                return Err(Fault::new(ResultCode::UNKNOWN_SESSION_ID, "no session is kept here"));
            }
            _ => return Err(Fault::new(ResultCode::COMMAND_UNSUPPORTED, "not a request for admission")),
        }
        Ok(())
    }
}

/// Forgets what is known of the user of a name, or of all, and ends the TLS sessions that would let them in.
fn forget(ctx: &mut Context, name: Option<&[u8]>) {
    ctx.cache.forget(name);
    if let Some(name) = name {
        ctx.stand_ins.forget(name);
    }
    let name = name.map(canonical_name);
    let whose = |subject: &[u8]| name.as_ref().is_none_or(|name| canonical_name(subject) == *name);
    let methods = [&ctx.config.tls, &ctx.config.peap, &ctx.config.ttls];
    methods.into_iter().flatten().for_each(|method| method.end_sessions(&whose));
}

impl Machine for AaaServer {
    type Command = Command;
    type Event = Event;
    type Job = Job;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        let Self { fronts, dynamic, .. } = self;
        fronts.ctx.epoch = epoch;
        if let Some(client) = dynamic.client(DYNAMIC) {
            client.set_epoch(now, epoch);
        }
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.fronts.ctx.now = now;
        match input {
            Input::Timeout => {
                let Self { fronts, logins, accounting, proxy, dynamic } = self;
                fronts.timeout(now);
                proxy.homes.timeout(now);
                dynamic.timeout(now);
                logins.expire(fronts);
                accounting.expire(fronts);
                logins.release(fronts);
                logins.take_turn(fronts);
            }
            _ => self.give(now, input),
        }
        self.drain_parts();
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(Path, &[u8])]) {
        self.fronts.ctx.now = now;
        for &(path, data) in datagrams {
            self.give(now, Input::Datagram { path, data });
        }
        self.drain_parts();
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.fronts.ctx.now = now;
        let done = self.obey(command);
        self.drain_parts();
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.fronts.ctx.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let accounting = self.accounting.oldest().map(|since| since + self.fronts.ctx.config.session_timeout);
        earliest([
            self.fronts.poll_timeout(),
            self.proxy.homes.poll_timeout(),
            self.dynamic.poll_timeout(),
            self.logins.due(&self.fronts.ctx),
            accounting,
        ])
    }
}
