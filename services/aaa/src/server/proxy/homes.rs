//! RADIUS home servers, and the requests pending at them.

use super::proxied_request::ForwardedRequest;
use super::translation::answer_diameter;
use crate::proxy::{ForwardOutcome, HomeServers, ProxiedConversation, ProxyError, relay};
use crate::server::HOMES;
use crate::server::answer::RequestToken;
use crate::server::api::{AaaServerEvent, AaaServerJob, HomeServerState};
use crate::server::config::AaaServerConfig;
use crate::server::context::ServerContext;
use crate::server::fronts::ProtocolFrontends;
use crate::server::reason::RejectCause;
use usher_core::table::SessionTable;
use usher_core::{
    ChildMachine, CommandError, Instant, Machine, MachineInput, OutputQueue, SecureRng, StreamOp, Transmit,
};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, RadiusClient, RadiusReply};
use usher_radius::packet::PacketCode;

/// The current home servers, and those before the last reload with their pending requests.
#[derive(Debug)]
pub(in crate::server) struct HomeServerSet {
    current: Option<HomeServers>,
    /// The former home servers, which may still answer.
    past: Option<HomeServers>,
    passed: SessionTable<ForwardedRequest>,
}

impl HomeServerSet {
    /// Uses `rng` only if there are home servers.
    pub(in crate::server) fn new(config: &AaaServerConfig, rng: &mut SecureRng) -> Result<Self, ProxyError> {
        let current = match &config.proxy {
            Some(proxy) => HomeServers::new(proxy, HOMES[0], 0, SecureRng::from_seed(rng.random_array()))?,
            None => None,
        };
        Ok(Self { current, past: None, passed: SessionTable::new() })
    }
    pub(in crate::server) const fn current_servers(&self) -> Option<&HomeServers> {
        self.current.as_ref()
    }
    /// Number of pending requests.
    pub(super) fn pending_count(&self) -> usize {
        self.passed.len()
    }
    /// The clients of the current and the former home servers.
    fn clients(&mut self) -> impl Iterator<Item = &mut ChildMachine<RadiusClient>> {
        self.current.iter_mut().chain(&mut self.past).map(HomeServers::home_client_mut)
    }
    /// Returns the client in a slot.
    pub(in crate::server) fn client_in_slot(&mut self, slot: u16) -> Option<&mut ChildMachine<RadiusClient>> {
        self.clients().find(|client| client.slot() == Some(slot))
    }
    pub(in crate::server) fn handle_timeout(&mut self, now: Instant) {
        self.clients().for_each(|client| client.handle_input(now, MachineInput::Timeout));
    }
    pub(in crate::server) fn poll_timeout(&mut self) -> Option<Instant> {
        self.clients().filter_map(|client| client.poll_timeout()).min()
    }
    /// Sets the health of a home server that another shard found.
    pub(in crate::server) fn set_health(&mut self, now: Instant, state: &HomeServerState) {
        if let Some(homes) = &mut self.current {
            homes.set_health(now, &state.name, state.service, state.health);
        }
    }

    /// Returns the home servers of a new configuration. `None`: they are unchanged.
    pub(in crate::server) fn servers_for_config(
        &self,
        ctx: &mut ServerContext,
        config: &AaaServerConfig,
    ) -> Result<Option<Option<HomeServers>>, CommandError> {
        let Some(proxy) = &config.proxy else { return Ok(self.current.is_some().then_some(None)) };
        if ctx.config.proxy.as_ref().is_some_and(|p| p.has_same_servers(proxy)) {
            // The servers are the same, but a realm may now name a pool that does not exist.
            let contradiction = CommandError::Invalid("a realm names a pool that does not exist");
            return proxy.realm_with_missing_pool().map_or(Ok(None), |_| Err(contradiction));
        }
        let clients = self.current.iter().chain(&self.past).map(HomeServers::client);
        // The current client and the former one have sockets at the same time, so each needs its own slot.
        let taken = clients.clone().next().and_then(ChildMachine::slot);
        let slot = if taken == Some(HOMES[0]) { HOMES[1] } else { HOMES[0] };
        // The host may still be closing a connection of the slot's former client, so connection numbers are not used
        // again.
        let first = clients.map(|client| client.connection_ids().1).max().unwrap_or(0);
        let rng = SecureRng::from_seed(ctx.rng.random_array());
        let contradiction = CommandError::Invalid("the realms and home servers contradict each other");
        HomeServers::new(proxy, slot, first, rng).map(Some).map_err(|_| contradiction)
    }

    /// Replaces the home servers. The former ones may still answer. Requests pending at those before them get no
    /// reply and are retransmitted by their clients.
    pub(in crate::server) fn replace_servers(
        &mut self,
        fronts: &mut ProtocolFrontends,
        homes: Option<HomeServers>,
    ) {
        let former = core::mem::replace(&mut self.current, homes);
        if let Some(past) = core::mem::replace(&mut self.past, former) {
            abort_connections(past.client(), &mut fronts.ctx.outputs);
            for token in past.client().outstanding_tokens() {
                let Some(passed) = self.passed.remove(token) else { continue };
                if let Some(asker) = passed.asker {
                    fronts.end_request_without_verdict(asker);
                }
                fronts.recycle_attributes(passed.request);
            }
        }
        self.drop_idle_former_servers(&mut fronts.ctx);
    }
    /// Drops the former home servers when no request is pending there.
    fn drop_idle_former_servers(&mut self, ctx: &mut ServerContext) {
        if let Some(past) = self.past.take_if(|past| past.client().outstanding_count() == 0) {
            abort_connections(past.client(), &mut ctx.outputs);
        }
    }

    /// Forwards a request to a pool, for the client in `passed`.
    pub(super) fn forward_request(
        &mut self,
        fronts: &mut ProtocolFrontends,
        pool: u16,
        out: AttributeList,
        passed: ForwardedRequest,
    ) {
        let (code, owner) = (passed.code, passed.owner);
        let token = self.passed.insert(fronts.ctx.now, passed);
        let (Some(homes), Some(passed)) = (&mut self.current, self.passed.get(token)) else { return };
        let a = &passed.request;
        let conversation = ProxiedConversation {
            owner,
            name: a.get(kind::USER_NAME).unwrap_or_default(),
            station: a.get(kind::CALLING_STATION_ID).unwrap_or_default(),
            state: a.get(kind::STATE),
        };
        match homes.forward_request(fronts.ctx.now, token, pool, code, out, conversation) {
            ForwardOutcome::Forwarded => fronts.ctx.counters.proxied += 1,
            ForwardOutcome::NoLiveServer => self.handle_silence(fronts, token),
            ForwardOutcome::Impossible => {
                fronts.ctx.counters.proxy_overload += 1;
                if let Some(passed) = self.passed.remove(token) {
                    passed.cut_short(fronts, RejectCause::Busy);
                }
            }
        }
    }

    /// Handles a request that no home server answered.
    fn handle_silence(&mut self, fronts: &mut ProtocolFrontends, token: u64) {
        if let Some(passed) = self.passed.remove(token) {
            passed.finish_unanswered(fronts);
        }
    }

    /// Handles a home server's answer. `current`: it is of the current ones, which may get further requests.
    fn handle_response(&mut self, fronts: &mut ProtocolFrontends, mut response: RadiusReply, current: bool) {
        let Some(passed) = self.passed.remove(response.token) else { return };
        fronts.ctx.counters.proxy_answered += 1;
        response.attributes = passed.filter_answer(&mut fronts.ctx, response.code, &response.attributes);
        if current
            && response.code == PacketCode::ACCESS_CHALLENGE
            && let Some(state) = response.attributes.get(kind::STATE)
            && let Some(homes) = &mut self.current
        {
            homes.remember_state_server(passed.owner, state, response.server);
        }
        // RFC 6614, 2.5: a home server without accounting says so in an Accounting-Response.
        let unwanted = response.code == PacketCode::ACCOUNTING_RESPONSE
            && response.attributes.get(kind::ERROR_CAUSE).is_some();
        fronts.ctx.counters.proxy_unwanted += u64::from(unwanted);
        match passed.asker {
            None => {}
            Some(asker) if unwanted => fronts.end_request_without_verdict(asker),
            Some(asker @ RequestToken::Radius(token)) => {
                let mut attributes = fronts.take_attributes();
                if relay::relay_response(&response, &mut attributes).is_err()
                    || response.code == PacketCode::PROTOCOL_ERROR
                {
                    fronts.ctx.counters.proxy_unreadable += 1;
                    fronts.recycle_attributes(attributes);
                    fronts.end_request_without_verdict(asker);
                } else {
                    fronts.answer_radius(token, response.code, attributes);
                }
            }
            Some(RequestToken::Diameter(token, request_type)) => {
                answer_diameter(fronts, token, request_type, &response);
            }
        }
        passed.finish_answered(fronts, response.code);
    }

    /// Handles the clients' events. True if there were any.
    pub(in crate::server) fn drain_events(&mut self, fronts: &mut ProtocolFrontends) -> bool {
        let mut heard = false;
        while let Some(event) =
            self.past.as_mut().and_then(|past| fronts.ctx.outputs.next_event(past.home_client_mut()))
        {
            heard = true;
            self.handle_event(fronts, event, false);
        }
        self.drop_idle_former_servers(&mut fronts.ctx);
        while let Some(event) =
            self.current.as_mut().and_then(|homes| fronts.ctx.outputs.next_event(homes.home_client_mut()))
        {
            heard = true;
            self.handle_event(fronts, event, true);
        }
        heard
    }
    fn handle_event(
        &mut self,
        fronts: &mut ProtocolFrontends,
        event: client::RadiusClientEvent,
        current: bool,
    ) {
        match event {
            client::RadiusClientEvent::Response(response) => self.handle_response(fronts, response, current),
            client::RadiusClientEvent::TimedOut { token } => self.handle_silence(fronts, token),
            client::RadiusClientEvent::Server { server, health, cause } => {
                let Some(homes) = self.current.as_ref().filter(|_| current) else { return };
                let Some((server, service)) = homes.server_for_client_index(server) else { return };
                let name = homes.server_name(server).unwrap_or_default().into();
                fronts.ctx.outputs.push_event(AaaServerEvent::HomeServer(HomeServerState {
                    name,
                    service,
                    health,
                    cause,
                }));
            }
        }
    }
}

/// Closes the connections of a client that is being dropped.
fn abort_connections(
    client: &ChildMachine<RadiusClient>,
    outputs: &mut OutputQueue<AaaServerEvent, AaaServerJob>,
) {
    for conn in client.connection_ids().0 {
        outputs.push_child_operation(client, Transmit::Stream { conn, op: StreamOp::Abort });
    }
}
