//! The machine: passes each input to its part, and the output of one part to the next.

use super::access_request::{LoginRequest, PendingRequest};
use super::accounting::PendingAccounting;
use super::answer::RequestToken;
use super::api::LoginOwner;
use super::api::{AaaServerCommand, AaaServerEvent, AaaServerJob, ShardRequest};
use super::cache::UserCache;
use super::config::{AaaServerConfig, ConfigError, UserSource};
use super::context::ServerContext;
use super::counters::AaaServerCounters;
use super::dynamic::DynamicAuthClient;
use super::fronts::ProtocolFrontends;
use super::half_open::SessionFairnessKey;
use super::lockout::ServerLockout;
use super::logins::PendingLogins;
use super::proof::RequestCredentials;
use super::proxy::RealmProxy;
use super::reason::RejectCause;
use super::shard::{InterShardKey, ShardConfig};
use super::stand_in::StandInUserFactory;
use super::trace::LoginTraceTable;
use super::{DIAMETER, DYNAMIC, RADIUS};
use crate::proxy::HomeServers;
use crate::users::canonical_name;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, DatagramPath, Instant, ListenerId, Machine, MachineInput, MachineOutputOf,
    MachineOwnerPath, OutputQueue, SecureRng, SocketId, WallTime,
};
use usher_diameter::codes::{self, application, command};
use usher_diameter::eap::DiameterEapRequest;
use usher_diameter::nasreq::AaRequest;
use usher_diameter::node::{self, DiameterNode, PeerId};
use usher_diameter::peer::{automaton, watchdog};
use usher_diameter::{DiameterError, DiameterMessage, ResultCode};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;
use usher_radius::server::{self as radius, ClientConfig, RadiusRequest};

/// Returns the `n`-th socket of the RADIUS side. [`radius::RadiusServerConfig::roles`] has its purpose.
#[must_use]
pub const fn radius_socket(n: u32) -> SocketId {
    SocketId::from_number(n).with_outer_slot(RADIUS)
}
/// Listener of RadSec connections.
pub const RADSEC_LISTENER: ListenerId = ListenerId { owner: MachineOwnerPath::from_slot(RADIUS), n: 0 };
/// Listener of Diameter connections and associations.
pub const DIAMETER_LISTENER: ListenerId = ListenerId { owner: MachineOwnerPath::from_slot(DIAMETER), n: 0 };

/// An AAA server; see the [module](super).
#[derive(Debug)]
pub struct AaaServer {
    fronts: ProtocolFrontends,
    logins: PendingLogins,
    accounting: PendingAccounting,
    proxy: RealmProxy,
    dynamic: DynamicAuthClient,
}

impl AaaServer {
    /// Creates a server without sessions. `rng` provides session names and challenges.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: AaaServerConfig, mut rng: SecureRng) -> Result<Self, ConfigError> {
        let mut seed = || SecureRng::from_seed(rng.random_array());
        let radius = config.radius.clone().map(|c| radius::RadiusServer::new(c, seed())).transpose()?;
        let diameter = config.diameter.clone().map(|c| DiameterNode::new(c, Instant::ZERO, seed()));
        let alone = || ShardConfig { number: 0, key: InterShardKey::new(&rng.random_array()) };
        let shard = config.shard.clone().unwrap_or_else(alone);
        let cache = match config.users {
            UserSource::Memory(_) => UserCache::with_zero_capacity(&mut rng),
            UserSource::Host(cache) => UserCache::new(cache, &mut rng),
        };
        let logins = PendingLogins::new(&mut rng);
        let proxy = RealmProxy::new(&config, &mut rng)?;
        let ctx = ServerContext {
            now: Instant::ZERO,
            epoch: WallTime::UNIX_EPOCH,
            cache,
            stand_ins: StandInUserFactory::new(&shard.key),
            lockout: ServerLockout::new(config.failures, &mut rng),
            shard,
            outputs: OutputQueue::default(),
            counters: AaaServerCounters::default(),
            tracers: LoginTraceTable::default(),
            out: Vec::new(),
            list: AttributeList::new(),
            config,
            rng,
        };
        let (accounting, dynamic) = (PendingAccounting::default(), DynamicAuthClient::default());
        Ok(Self { fronts: ProtocolFrontends::new(radius, diameter, ctx), logins, accounting, proxy, dynamic })
    }
    /// The server's counters.
    #[must_use]
    pub const fn counters(&self) -> &AaaServerCounters {
        &self.fronts.ctx.counters
    }
    /// The RADIUS server's counters.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&radius::RadiusServerCounters> {
        self.fronts.radius.as_ref().map(|server| server.counters())
    }
    /// The sources of recently dropped RADIUS packets.
    #[must_use]
    pub fn radius_drop_sources(&self) -> Option<&radius::LatestDropSources> {
        self.fronts.radius.as_ref().map(|server| server.drop_sources())
    }
    /// True if a datagram is a RADIUS request of a client with a valid Message-Authenticator.
    #[must_use]
    pub fn is_signed(&self, source: IpAddr, datagram: &[u8]) -> bool {
        self.fronts.radius.as_ref().is_some_and(|server| server.is_signed(source, datagram))
    }
    /// True if a client or peer with this address may connect to the listener.
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
    pub fn diameter_counters(&self) -> Option<&node::DiameterNodeCounters> {
        self.fronts.diameter.as_ref().map(|node| node.counters())
    }
    /// Returns the name of a Diameter peer.
    #[must_use]
    pub fn diameter_peer_name(&self, peer: PeerId) -> Option<&str> {
        self.fronts.diameter.as_ref()?.peer_host(peer)
    }
    /// Returns the state of a Diameter peer connection (RFC 6733 §5.6).
    #[must_use]
    pub fn diameter_peer_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.fronts.diameter.as_ref()?.peer_state(peer)
    }
    /// Returns the Diameter peers to which this server connects. `true`: the connection is open and not suspect, so
    /// requests go to it (RFC 3539 §3.4).
    pub fn diameter_servers(&self) -> impl Iterator<Item = (&str, bool)> {
        self.fronts.diameter.iter().flat_map(|node| {
            let connects = node.configured_peers().filter(|(_, config)| config.address.is_some());
            connects.map(|(peer, config)| {
                let okay = node.watchdog_state(peer) == Some(watchdog::State::Okay);
                (config.host.as_str(), okay)
            })
        })
    }
    /// Returns the realms of a home server.
    pub fn realms_of(&self, home: &str) -> impl Iterator<Item = &str> {
        let proxy = self.fronts.ctx.config.proxy.as_ref();
        let index = proxy.and_then(|p| p.servers.iter().position(|s| s.name == home));
        let found = proxy.zip(index).map(|(proxy, index)| proxy.realms_of(index as u16));
        found.into_iter().flatten()
    }
    /// The home servers and the client that asks them.
    #[must_use]
    pub const fn home_servers(&self) -> Option<&HomeServers> {
        self.proxy.homes.current_servers()
    }
    /// Number of half-open sessions.
    #[must_use]
    pub fn half_open(&self) -> usize {
        self.logins.sessions().len()
    }
    /// Approximate memory of half-open sessions in octets.
    #[must_use]
    pub fn half_open_octets(&self) -> usize {
        self.logins.sessions().total_octets()
    }
    /// Number of queued steps. If there are any, the host passes its input and then calls again at once.
    #[must_use]
    pub fn steps_waiting(&self) -> usize {
        self.logins.steps_waiting()
    }
    /// Number of cached users.
    #[must_use]
    pub fn cached_users(&self) -> usize {
        self.fronts.ctx.cache.len()
    }
    /// Number of delayed rejects.
    #[must_use]
    pub fn delayed_reject_count(&self) -> usize {
        self.logins.delayed_reject_count()
    }
    /// Number of accounting requests whose records are not yet durable.
    #[must_use]
    pub fn pending_accounting_count(&self) -> usize {
        self.accounting.pending_count()
    }
    /// Number of unanswered requests: of half-open sessions, delayed rejects, records that are not durable, and
    /// requests proxied to home servers.
    #[must_use]
    pub fn pending_request_count(&self) -> usize {
        self.half_open()
            + self.delayed_reject_count()
            + self.pending_accounting_count()
            + self.proxy.pending_count()
    }
    /// Reuses the request of a [`FinishedLogin`](super::FinishedLogin) from an event, to save an allocation.
    pub fn recycle_request(&mut self, request: AttributeList) {
        self.fronts.recycle_attributes(request);
    }
}

/// Dispatch to parts.
impl AaaServer {
    /// Passes an input to the part that owns its socket or connection. A connection without an owner is refused.
    fn dispatch_input(&mut self, now: Instant, input: MachineInput<'_>) {
        let refusal = input.refusal();
        if let Some((slot, input)) = input.split_outer_slot() {
            if self.fronts.handle(now, slot, input) {
                return;
            }
            if let Some(client) =
                self.proxy.homes.client_in_slot(slot).or_else(|| self.dynamic.client_in_slot(slot))
            {
                return client.handle_input(now, input);
            }
        }
        self.fronts.ctx.counters.no_front += 1;
        if let Some(refusal) = refusal {
            self.fronts.ctx.outputs.push_operation(refusal);
        }
    }

    fn apply_command(&mut self, command: AaaServerCommand) -> Result<(), CommandError> {
        let Self { fronts, logins, accounting, proxy, dynamic } = self;
        match command {
            AaaServerCommand::Found { token, user } => {
                logins.apply_job_result(fronts, token, |session, ctx| session.handle_lookup_result(ctx, user))
            }
            AaaServerCommand::Verified { token, right } => {
                logins.apply_job_result(fronts, token, |session, ctx| {
                    session.handle_password_result(ctx, right)
                })
            }
            AaaServerCommand::Admitted { token, admission } => {
                logins
                    .apply_job_result(fronts, token, |session, _| session.handle_admission_verdict(admission))
            }
            AaaServerCommand::Named { token, name } => {
                logins.apply_job_result(fronts, token, |session, ctx| {
                    session.handle_certificate_name(ctx, name)
                })
            }
            AaaServerCommand::Certificate { token, verdict } => {
                logins.apply_job_result(fronts, token, |session, ctx| {
                    session.handle_certificate_verdict(ctx, verdict)
                })
            }
            AaaServerCommand::Unable { token } => {
                logins.apply_job_result(fronts, token, |session, _| session.handle_failed_job())
            }
            AaaServerCommand::Accounted { token, durable } => {
                accounting.finish_record(fronts, token, durable)
            }
            AaaServerCommand::Reload(config) => self.apply_config(*config),
            AaaServerCommand::EvictUsers { name } => {
                evict_user(&mut fronts.ctx, name.as_deref());
                Ok(())
            }
            AaaServerCommand::LockOut { name, station } => {
                fronts.ctx.lockout.lock_out(fronts.ctx.now, &name, &station);
                Ok(())
            }
            AaaServerCommand::Trace { slot, filter } => {
                if !fronts.ctx.tracers.set_filter(slot, filter, fronts.ctx.config.dictionary.as_ref()) {
                    return Err(CommandError::Invalid("no trace has this number"));
                }
                // A login in progress is checked against the new filter at its next request, so its old traces are
                // removed.
                logins.for_each(|session| session.remove_traces(1 << slot));
                Ok(())
            }
            AaaServerCommand::HomeServer(state) => {
                proxy.homes.set_health(fronts.ctx.now, &state);
                Ok(())
            }
            AaaServerCommand::Dynamic { token, to, code, attributes } => {
                dynamic.send_request(fronts, (token, to), code, attributes)
            }
            AaaServerCommand::ShardRequest { from, request: handed } => {
                match handed {
                    ShardRequest::Radius(mut request) => {
                        request.token = fronts.foreign.assign_cross_shard_token(from, request.token);
                        self.process_radius_request(*request);
                    }
                    ShardRequest::Diameter { token, peer, origin, message } => {
                        let token = fronts.foreign.assign_cross_shard_token(from, token);
                        self.process_diameter_request(token, peer, origin, &message);
                    }
                }
                Ok(())
            }
            AaaServerCommand::ShardDecision(back) => {
                fronts.handle_shard_decision(back);
                Ok(())
            }
            AaaServerCommand::Diameter(command) => match &mut fronts.diameter {
                Some(node) => node.handle_command(fronts.ctx.now, command),
                None => Err(CommandError::Invalid("this server has no Diameter node")),
            },
        }
    }

    /// Applies a new configuration. The RADIUS side and the Diameter node are not added or removed.
    fn apply_config(&mut self, config: AaaServerConfig) -> Result<(), CommandError> {
        let Self { fronts, logins, proxy, .. } = self;
        let homes = proxy.homes.servers_for_config(&mut fronts.ctx, &config)?;
        if let (Some(server), Some(radius)) = (&mut fronts.radius, &config.radius) {
            let contradiction = CommandError::Invalid("the RADIUS clients contradict each other");
            server.reload_config(radius.clone()).map_err(|_| contradiction)?;
            let before = fronts.ctx.config.radius.as_ref().map_or(&[][..], |r| &r.clients);
            let same = |a: &ClientConfig, b: &ClientConfig| {
                a.network == b.network && a.prefix == b.prefix && a.transport == b.transport
            };
            let numbers: Vec<u32> = before
                .iter()
                .map(|b| radius.clients.iter().position(|a| same(a, b)).map_or(u32::MAX, |i| i as u32))
                .collect();
            let number = |client| numbers.get(client as usize).copied().unwrap_or(u32::MAX);
            logins.for_each(|session| session.update_client_index(number));
        }
        if let UserSource::Host(cache) = config.users {
            fronts.ctx.cache.reconfigure(cache);
        }
        if let Some(shard) = &config.shard {
            fronts.ctx.shard = shard.clone();
        }
        fronts.ctx.config = config;
        fronts.ctx.stand_ins.invalidate_user_kinds();
        if let Some(homes) = homes {
            proxy.homes.replace_servers(fronts, homes);
        }
        Ok(())
    }

    /// Drains the outputs of the parts until none has any: output of a home server or Diameter peer can cause
    /// output of another part.
    fn drain_children(&mut self) {
        loop {
            while let Some(radius::RadiusServerEvent::Request(request)) = self.fronts.next_radius_event() {
                self.dispatch_radius_request(request);
            }
            let mut heard = false;
            while let Some(event) = self.fronts.diameter_event() {
                heard = true;
                self.diameter_event(event);
            }
            heard |= self.dynamic.drain_events(&mut self.fronts.ctx);
            heard |= self.proxy.homes.drain_events(&mut self.fronts);
            if !heard {
                return;
            }
        }
    }

    /// Handles a request from the RADIUS server.
    fn dispatch_radius_request(&mut self, request: RadiusRequest) {
        // For a datagram, the owning shard was already checked on receipt.
        let by_connection = request.conn.is_some() && request.code == PacketCode::ACCESS_REQUEST;
        let state = request.attributes.get(kind::STATE).filter(|_| by_connection);
        match self.fronts.ctx.other_shard_for_state(state) {
            Some(shard) => self.fronts.ctx.hand_over(shard, ShardRequest::Radius(Box::new(request))),
            None => self.process_radius_request(request),
        }
    }

    fn process_radius_request(&mut self, request: RadiusRequest) {
        let Self { fronts, logins, accounting, proxy, .. } = self;
        let Some(request) = proxy.route_request(fronts, request) else { return };
        match request.code {
            PacketCode::ACCESS_REQUEST => logins.access_request(fronts, request),
            PacketCode::ACCOUNTING_REQUEST => accounting.handle_request(fronts, request),
            _ => {
                fronts.ctx.counters.unsupported += 1;
                fronts.discard_radius_request(request.token);
                fronts.recycle_attributes(request.attributes);
            }
        }
    }

    fn diameter_event(&mut self, event: node::DiameterNodeEvent) {
        let Self { fronts, proxy, .. } = self;
        match event {
            node::DiameterNodeEvent::Request { token, peer, origin, message } => {
                let of_eap = (message.header.application, message.header.command)
                    == (application::EAP, command::DIAMETER_EAP);
                let state = message.avps.as_sequence().get(codes::STATE).filter(|_| of_eap);
                match fronts.ctx.other_shard_for_state(state.map(|state| state.data)) {
                    Some(shard) => {
                        let message = Box::new(message);
                        fronts.ctx.hand_over(shard, ShardRequest::Diameter { token, peer, origin, message });
                    }
                    None => self.process_diameter_request(token, peer, origin, &message),
                }
            }
            node::DiameterNodeEvent::PeerUp { peer } => {
                fronts.ctx.outputs.push_event(AaaServerEvent::DiameterPeer { peer, up: true })
            }
            node::DiameterNodeEvent::PeerDown { peer } => {
                fronts.ctx.outputs.push_event(AaaServerEvent::DiameterPeer { peer, up: false })
            }
            node::DiameterNodeEvent::Answer { token, result, avps } => {
                proxy.translation.handle_answer(fronts, token, result, &avps);
            }
            node::DiameterNodeEvent::Failed { token, .. } => proxy.translation.handle_silence(fronts, token),
        }
    }

    fn process_diameter_request(
        &mut self,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: &DiameterMessage,
    ) {
        if let Err(fault) = self.route_diameter_request(token, peer, origin, message) {
            self.fronts.ctx.counters.unsupported += 1;
            self.fronts.refuse_diameter(token, fault);
        }
    }

    fn route_diameter_request(
        &mut self,
        token: u64,
        peer: PeerId,
        origin: Arc<str>,
        message: &DiameterMessage,
    ) -> Result<(), DiameterError> {
        let Self { fronts, logins, accounting, proxy, .. } = self;
        fronts.check_request(message).inspect_err(|_| {
            if message.header.command == command::ACCOUNTING {
                fronts.ctx.counters.accounting += 1;
                fronts.ctx.counters.bad_accounting += 1;
            }
        })?;
        let avps = message.avps.as_sequence();
        if message.header.command == command::ACCOUNTING {
            return accounting.handle_acr(&mut fronts.ctx, token, &origin, message);
        }
        let arrived = fronts.ctx.now;
        let ask = |fronts: &mut ProtocolFrontends, request_type| {
            let (asker, source) =
                (RequestToken::Diameter(token, request_type), SessionFairnessKey::Peer(peer));
            let pending =
                PendingRequest { asker, source, arrived, request: fronts.request_avps_as_attributes(avps) };
            LoginRequest { owner: LoginOwner::Diameter(origin), pending }
        };
        match (message.header.application, message.header.command) {
            (application::EAP, command::DIAMETER_EAP) => {
                let der = DiameterEapRequest::parse(avps)?;
                let ask = ask(fronts, der.request_type);
                let Some(ask) = proxy.route_der(fronts, ask, &der) else { return Ok(()) };
                let token = der.state.map(|state| fronts.ctx.shard.token_from_state(state));
                logins.handle_eap(fronts, ask, token, der.eap);
            }
            (application::NASREQ, command::AA) => {
                let aar = AaRequest::parse(avps)?;
                let ask = ask(fronts, aar.request_type);
                let pap = aar.password.map(|password| RequestCredentials::Pap(password.into()));
                let proof = pap.or_else(|| aar.chap.as_ref().map(RequestCredentials::from_chap));
                let ask = match proof {
                    Some(_) => proxy.route_aar(fronts, ask),
                    None => Some(ask),
                };
                let Some(ask) = ask else { return Ok(()) };
                logins.handle_single_request_login(fronts, ask, proof.ok_or(RejectCause::NoProof));
            }
            // RFC 6733, 8.1, 8.4: the server keeps no session of an accepted user. As a translation agent, it keeps no
            // session of a home server either.
            (_, command::SESSION_TERMINATION | command::ABORT_SESSION | command::RE_AUTH) => {
                return Err(DiameterError::new(
                    ResultCode::UNKNOWN_SESSION_ID,
                    "this server keeps no sessions",
                ));
            }
            _ => {
                return Err(DiameterError::new(
                    ResultCode::COMMAND_UNSUPPORTED,
                    "this command is not supported",
                ));
            }
        }
        Ok(())
    }
}

/// Evicts the cached user of a name, or all, and ends the TLS sessions that could resume their logins.
fn evict_user(ctx: &mut ServerContext, name: Option<&[u8]>) {
    ctx.cache.evict_user(name);
    if let Some(name) = name {
        ctx.stand_ins.remove_user(name);
    }
    let name = name.map(canonical_name);
    let whose = |subject: &[u8]| name.as_ref().is_none_or(|name| canonical_name(subject) == *name);
    let methods = [&ctx.config.tls, &ctx.config.peap, &ctx.config.ttls];
    methods.into_iter().flatten().for_each(|method| method.end_sessions(&whose));
}

impl Machine for AaaServer {
    type Command = AaaServerCommand;
    type Event = AaaServerEvent;
    type Job = AaaServerJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        let Self { fronts, dynamic, .. } = self;
        fronts.ctx.epoch = epoch;
        if let Some(client) = dynamic.client_in_slot(DYNAMIC) {
            client.set_epoch(now, epoch);
        }
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.fronts.ctx.now = now;
        match input {
            MachineInput::Timeout => {
                let Self { fronts, logins, accounting, proxy, dynamic } = self;
                fronts.handle_timeout(now);
                proxy.homes.handle_timeout(now);
                dynamic.handle_timeout(now);
                logins.expire_sessions(fronts);
                accounting.expire_accounting_requests(fronts);
                logins.send_due_rejects(fronts);
                logins.run_next_queued_step(fronts);
            }
            _ => self.dispatch_input(now, input),
        }
        self.drain_children();
    }

    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(DatagramPath, &[u8])]) {
        self.fronts.ctx.now = now;
        for &(path, data) in datagrams {
            self.dispatch_input(now, MachineInput::Datagram { path, data });
        }
        self.drain_children();
    }

    fn handle_command(&mut self, now: Instant, command: AaaServerCommand) -> Result<(), CommandError> {
        self.fronts.ctx.now = now;
        let done = self.apply_command(command);
        self.drain_children();
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.fronts.ctx.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let accounting = self.accounting.oldest().map(|since| since + self.fronts.ctx.config.session_timeout);
        earliest_deadline([
            self.fronts.poll_timeout(),
            self.proxy.homes.poll_timeout(),
            self.dynamic.poll_timeout(),
            self.logins.next_due(&self.fronts.ctx),
            accounting,
        ])
    }
}
