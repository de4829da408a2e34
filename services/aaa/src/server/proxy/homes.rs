//! Home servers that speak RADIUS, and what waits for them.

use super::passed::Passed;
use super::translation::answer_diameter;
use crate::proxy::{Conversation, ForwardOutcome, HomeServers, ProxyError, relay};
use crate::server::HOMES;
use crate::server::answer::Asker;
use crate::server::api::{Event, HomeServerState, Job};
use crate::server::config::Config;
use crate::server::context::Context;
use crate::server::fronts::Fronts;
use crate::server::reason::Reason;
use usher_core::table::SessionTable;
use usher_core::{Child, CommandError, Input, Instant, Machine, Outputs, SecureRng, StreamOp, Transmit};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, Response};
use usher_radius::packet::Code;

/// The home servers of now and those of before the last change, with what each owes an answer to.
#[derive(Debug)]
pub(in crate::server) struct Homes {
    current: Option<HomeServers>,
    /// What these were asked they may still answer.
    past: Option<HomeServers>,
    passed: SessionTable<Passed>,
}

impl Homes {
    /// Draws from `rng` only where there are home servers.
    pub(in crate::server) fn new(config: &Config, rng: &mut SecureRng) -> Result<Self, ProxyError> {
        let current = match &config.proxy {
            Some(proxy) => HomeServers::new(proxy, HOMES[0], 0, SecureRng::from_seed(rng.array()))?,
            None => None,
        };
        Ok(Self { current, past: None, passed: SessionTable::new() })
    }
    pub(in crate::server) const fn current(&self) -> Option<&HomeServers> {
        self.current.as_ref()
    }
    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.passed.len()
    }
    /// Who asks the home servers of now, and who asked those of before.
    fn clients(&mut self) -> impl Iterator<Item = &mut Child<Client>> {
        self.current.iter_mut().chain(&mut self.past).map(HomeServers::client_mut)
    }
    /// The client in a slot.
    pub(in crate::server) fn client(&mut self, slot: u16) -> Option<&mut Child<Client>> {
        self.clients().find(|client| client.slot() == Some(slot))
    }
    pub(in crate::server) fn timeout(&mut self, now: Instant) {
        self.clients().for_each(|client| client.handle(now, Input::Timeout));
    }
    pub(in crate::server) fn poll_timeout(&mut self) -> Option<Instant> {
        self.clients().filter_map(|client| client.poll_timeout()).min()
    }
    /// Another server found out how a home server is.
    pub(in crate::server) fn told(&mut self, now: Instant, state: &HomeServerState) {
        if let Some(homes) = &mut self.current {
            homes.told(now, &state.name, state.service, state.health);
        }
    }

    /// The home servers of another configuration; `None`: they are those that there are.
    pub(in crate::server) fn others(
        &self,
        ctx: &mut Context,
        config: &Config,
    ) -> Result<Option<Option<HomeServers>>, CommandError> {
        let Some(proxy) = &config.proxy else { return Ok(self.current.is_some().then_some(None)) };
        if ctx.config.proxy.as_ref().is_some_and(|p| p.same_servers(proxy)) {
            // Realms may lead elsewhere among them all the same.
            let contradiction = CommandError::Invalid("a realm leads to a pool that does not exist");
            return proxy.leads_nowhere().map_or(Ok(None), |_| Err(contradiction));
        }
        let clients = self.current.iter().chain(&self.past).map(HomeServers::client);
        // Two generations have sockets at the same time.
        let taken = clients.clone().next().and_then(Child::slot);
        let slot = if taken == Some(HOMES[0]) { HOMES[1] } else { HOMES[0] };
        // A connection of the client that had this slot before may still be on its way out at the host.
        let first = clients.map(|client| client.connections().1).max().unwrap_or(0);
        let rng = SecureRng::from_seed(ctx.rng.array());
        let contradiction = CommandError::Invalid("the realms and home servers contradict each other");
        HomeServers::new(proxy, slot, first, rng).map(Some).map_err(|_| contradiction)
    }

    /// Goes on with other home servers. What the former ones were asked they still answer; who waits for those before
    /// them is not answered, and asks again.
    pub(in crate::server) fn replace(&mut self, fronts: &mut Fronts, homes: Option<HomeServers>) {
        let former = core::mem::replace(&mut self.current, homes);
        if let Some(past) = core::mem::replace(&mut self.past, former) {
            abandon(past.client(), &mut fronts.ctx.outputs);
            for token in past.client().waiting() {
                let Some(passed) = self.passed.remove(token) else { continue };
                if let Some(asker) = passed.asker {
                    fronts.discard(asker);
                }
                fronts.recycle(passed.request);
            }
        }
        self.let_past_go(&mut fronts.ctx);
    }
    /// Ends with the former home servers when nothing is waited for any more.
    fn let_past_go(&mut self, ctx: &mut Context) {
        if let Some(past) = self.past.take_if(|past| past.client().outstanding() == 0) {
            abandon(past.client(), &mut ctx.outputs);
        }
    }

    /// Asks a pool, on behalf of whoever `passed` names.
    pub(super) fn ask(&mut self, fronts: &mut Fronts, pool: u16, out: Attributes, passed: Passed) {
        let (code, owner) = (passed.code, passed.owner);
        let token = self.passed.insert(fronts.ctx.now, passed);
        let (Some(homes), Some(passed)) = (&mut self.current, self.passed.get(token)) else { return };
        let a = &passed.request;
        let conversation = Conversation {
            owner,
            name: a.get(kind::USER_NAME).unwrap_or_default(),
            station: a.get(kind::CALLING_STATION_ID).unwrap_or_default(),
            state: a.get(kind::STATE),
        };
        match homes.ask(fronts.ctx.now, token, pool, code, out, conversation) {
            ForwardOutcome::UnderWay => fronts.ctx.counters.proxied += 1,
            ForwardOutcome::NobodyAlive => self.silent(fronts, token),
            ForwardOutcome::Impossible => {
                fronts.ctx.counters.proxy_overload += 1;
                if let Some(passed) = self.passed.remove(token) {
                    passed.cut_short(fronts, Reason::Busy);
                }
            }
        }
    }

    /// No home server answers.
    fn silent(&mut self, fronts: &mut Fronts, token: u64) {
        if let Some(passed) = self.passed.remove(token) {
            passed.unanswered(fronts);
        }
    }

    /// A home server answered; `current`: one of those of now, which may be asked again.
    fn answered(&mut self, fronts: &mut Fronts, mut response: Response, current: bool) {
        let Some(passed) = self.passed.remove(response.token) else { return };
        fronts.ctx.counters.proxy_answered += 1;
        response.attributes = passed.sift(&mut fronts.ctx, response.code, &response.attributes);
        if current
            && response.code == Code::ACCESS_CHALLENGE
            && let Some(state) = response.attributes.get(kind::STATE)
            && let Some(homes) = &mut self.current
        {
            homes.remember(passed.owner, state, response.server);
        }
        // A home server that keeps no accounting says so by what looks like an acknowledgement (RFC 6614 §2.5).
        let unwanted = response.code == Code::ACCOUNTING_RESPONSE
            && response.attributes.get(kind::ERROR_CAUSE).is_some();
        fronts.ctx.counters.proxy_unwanted += u64::from(unwanted);
        match passed.asker {
            None => {}
            Some(asker) if unwanted => fronts.discard(asker),
            Some(asker @ Asker::Radius(token)) => {
                let mut attributes = fronts.attributes();
                if relay::response(&response, &mut attributes).is_err()
                    || response.code == Code::PROTOCOL_ERROR
                {
                    fronts.ctx.counters.proxy_unreadable += 1;
                    fronts.recycle(attributes);
                    fronts.discard(asker);
                } else {
                    fronts.respond(token, response.code, attributes);
                }
            }
            Some(Asker::Diameter(token, request_type)) => {
                answer_diameter(fronts, token, request_type, &response);
            }
        }
        passed.answered(fronts, response.code);
    }

    /// Hears what home servers say; whether anything was said.
    pub(in crate::server) fn drain(&mut self, fronts: &mut Fronts) -> bool {
        let mut heard = false;
        while let Some(event) =
            self.past.as_mut().and_then(|past| fronts.ctx.outputs.next_event(past.client_mut()))
        {
            heard = true;
            self.hear(fronts, event, false);
        }
        self.let_past_go(&mut fronts.ctx);
        while let Some(event) =
            self.current.as_mut().and_then(|homes| fronts.ctx.outputs.next_event(homes.client_mut()))
        {
            heard = true;
            self.hear(fronts, event, true);
        }
        heard
    }
    fn hear(&mut self, fronts: &mut Fronts, event: client::Event, current: bool) {
        match event {
            client::Event::Response(response) => self.answered(fronts, response, current),
            client::Event::TimedOut { token } => self.silent(fronts, token),
            client::Event::Server { server, health, cause } => {
                let Some(homes) = self.current.as_ref().filter(|_| current) else { return };
                let Some((server, service)) = homes.home(server) else { return };
                let name = homes.name(server).unwrap_or_default().into();
                fronts.ctx.outputs.event(Event::HomeServer(HomeServerState { name, service, health, cause }));
            }
        }
    }
}

/// Gives up the connections of a client that is to go.
fn abandon(client: &Child<Client>, outputs: &mut Outputs<Event, Job>) {
    for conn in client.connections().0 {
        outputs.operate_for(client, Transmit::Stream { conn, op: StreamOp::Abort });
    }
}
