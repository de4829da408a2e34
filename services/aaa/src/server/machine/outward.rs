//! What the server asks of others: home servers by RADIUS and by Diameter, access servers by RFC 5176.

use super::proxied::Begun;
use super::{AaaServer, DYNAMIC, HOMES};
use crate::proxy::{HomeServers, Terms};
use crate::server::answer::Asker;
use crate::server::api::{DynamicResult, Event, HomeServerState, Job};
use crate::server::config::Config;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::table::SessionTable;
use usher_core::{Child, CommandError, Input, Instant, Machine, Outputs, SecureRng, StreamOp, Transmit};
use usher_diameter::node::PeerId;
use usher_diameter::peer::{automaton, watchdog};
use usher_diameter::session::SessionIds;
use usher_radius::Freshness;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::packet::Code;

/// Which session of which access server is meant (RFC 5176 §3), in a Disconnect-Request (§3.6).
const IDENTIFICATION: [u8; 12] = [
    kind::USER_NAME,
    kind::NAS_IP_ADDRESS,
    kind::NAS_PORT,
    kind::VENDOR_SPECIFIC,
    kind::CALLED_STATION_ID,
    kind::CALLING_STATION_ID,
    kind::NAS_IDENTIFIER,
    kind::ACCT_SESSION_ID,
    kind::ACCT_MULTI_SESSION_ID,
    kind::NAS_PORT_ID,
    kind::CHARGEABLE_USER_IDENTITY,
    kind::NAS_IPV6_ADDRESS,
];
/// A Service-Type (RFC 5176 §3.2): the access server is to ask for its authorisation anew.
const AUTHORIZE_ONLY: u32 = 17;

/// A request that was passed on.
#[derive(Debug)]
pub(super) struct Passed {
    /// Who waits for the answer; `None`: nobody, it was acknowledged when it was kept.
    pub(super) asker: Option<Asker>,
    pub(super) code: Code,
    /// The client, or [`Passed::DIAMETER`].
    pub(super) owner: u32,
    /// Identifier of the EAP response that it carried.
    pub(super) eap: Option<u8>,
    pub(super) begun: Instant,
    /// What it said.
    pub(super) request: Attributes,
    /// What holds of it by its user's realm.
    pub(super) terms: Terms,
    /// Its conversation with a Diameter server.
    pub(super) dialog: Option<u64>,
}

impl Passed {
    /// The owner of what came over Diameter: no client has this index.
    pub(super) const DIAMETER: u32 = u32::MAX;

    /// When it began, and whose it is.
    pub(super) fn whence(&self) -> Begun {
        Begun { at: self.begun, asker: self.asker, client: self.client() }
    }

    /// The RADIUS client; `None` over Diameter.
    pub(super) fn client(&self) -> Option<u32> {
        Some(self.owner).filter(|owner| *owner != Self::DIAMETER)
    }
}

/// A conversation that is passed on to a Diameter server.
#[derive(Debug)]
pub(super) struct Dialog {
    pub(super) owner: u32,
    pub(super) session_id: String,
    /// The server that answered first.
    pub(super) host: Option<String>,
    /// Its State.
    pub(super) state: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Outward {
    pub(super) homes: Option<HomeServers>,
    /// Home servers of before the last change: what they were asked they may still answer.
    past: Option<HomeServers>,
    /// What waits for home servers that speak RADIUS.
    pub(super) passed: SessionTable<Passed>,
    /// What waits for Diameter servers.
    pub(super) translated: SessionTable<Passed>,
    pub(super) dialogs: SessionTable<Dialog>,
    pub(super) sessions: Option<SessionIds>,
    /// Who asks access servers, once one was asked.
    dynamic: Option<Child<Client>>,
}

impl Outward {
    /// Draws from `rng` only where there are home servers.
    pub(super) fn new(config: &Config, rng: &mut SecureRng) -> Result<Self, crate::proxy::ProxyError> {
        let homes = match &config.proxy {
            Some(proxy) => HomeServers::new(proxy, HOMES[0], 0, SecureRng::from_seed(rng.array()))?,
            None => None,
        };
        Ok(Self { homes, ..Self::default() })
    }
    /// The client in a slot.
    pub(super) fn client(&mut self, slot: u16) -> Option<&mut Child<Client>> {
        let own = |client: &&mut Child<Client>| client.slot() == Some(slot);
        self.homes
            .iter_mut()
            .chain(&mut self.past)
            .map(HomeServers::client_mut)
            .chain(&mut self.dynamic)
            .find(own)
    }
    /// Who asks the home servers of now, and who asked those of before.
    fn homes_clients(&mut self) -> impl Iterator<Item = &mut Child<Client>> {
        self.homes.iter_mut().chain(&mut self.past).map(HomeServers::client_mut)
    }
    /// Ends with the former home servers when nothing is waited for any more.
    fn let_past_go(&mut self, outputs: &mut Outputs<Event, Job>) {
        if let Some(past) = self.past.take_if(|past| past.client().outstanding() == 0) {
            abandon(past.client(), outputs);
        }
    }
    pub(super) fn timeout(&mut self, now: Instant) {
        self.homes_clients().for_each(|client| client.handle(now, Input::Timeout));
        if let Some(client) = &mut self.dynamic {
            client.handle(now, Input::Timeout);
        }
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let homes = self.homes_clients().filter_map(|client| client.poll_timeout()).min();
        let dynamic = self.dynamic.as_mut().and_then(|client| client.poll_timeout());
        homes.into_iter().chain(dynamic).min()
    }
}

/// Gives up the connections of a client that is to go.
fn abandon(client: &Child<Client>, outputs: &mut Outputs<Event, Job>) {
    for conn in client.connections().0 {
        outputs.operate_for(client, Transmit::Stream { conn, op: StreamOp::Abort });
    }
}

impl AaaServer {
    /// The home servers of another configuration; `None`: they are those that there are.
    pub(super) fn other_homes(
        &mut self,
        config: &Config,
    ) -> Result<Option<Option<HomeServers>>, CommandError> {
        let Some(proxy) = &config.proxy else {
            return Ok(self.outward.homes.is_some().then_some(None));
        };
        if self.config.proxy.as_ref().is_some_and(|p| p.same_servers(proxy)) {
            // Realms may lead elsewhere among them all the same.
            let contradiction = CommandError::Invalid("a realm leads to a pool that does not exist");
            return proxy.leads_nowhere().map_or(Ok(None), |_| Err(contradiction));
        }
        let current = self.outward.homes.as_ref().or(self.outward.past.as_ref()).map(HomeServers::client);
        // A connection of the client that had this slot before may still be on its way out at the host.
        let clients = self.outward.homes.iter().chain(&self.outward.past).map(HomeServers::client);
        let first = clients.map(|client| client.connections().1).max().unwrap_or(0);
        // Two generations have sockets at the same time.
        let slot =
            if current.is_some_and(|client| client.slot() == Some(HOMES[0])) { HOMES[1] } else { HOMES[0] };
        let rng = SecureRng::from_seed(self.rng.array());
        let contradiction = CommandError::Invalid("the realms and home servers contradict each other");
        HomeServers::new(proxy, slot, first, rng).map(Some).map_err(|_| contradiction)
    }

    /// Goes on with other home servers. What the former ones were asked they still answer; who waits for those before
    /// them is not answered, and asks again.
    pub(super) fn replace_homes(&mut self, now: Instant, homes: Option<HomeServers>) {
        let former = core::mem::replace(&mut self.outward.homes, homes);
        let Some(past) = core::mem::replace(&mut self.outward.past, former) else {
            return self.outward.let_past_go(&mut self.outputs);
        };
        abandon(past.client(), &mut self.outputs);
        for token in past.client().waiting() {
            let Some(passed) = self.outward.passed.remove(token) else { continue };
            if let Some(asker) = passed.asker {
                self.discard(now, asker);
            }
            self.recycle(passed.request);
        }
        self.outward.let_past_go(&mut self.outputs);
    }

    /// What a Diameter peer is called.
    #[must_use]
    pub fn diameter_peer(&self, peer: PeerId) -> Option<&str> {
        self.diameter.as_ref()?.host(peer)
    }
    /// How the connection of a Diameter peer stands (RFC 6733 §5.6), if there is such a peer.
    #[must_use]
    pub fn diameter_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.diameter.as_ref()?.peer_state(peer)
    }
    /// The Diameter peers that this server connects to, and whether requests are sent to them: they are open, and their
    /// watchdog finds nothing amiss (RFC 3539 §3.4).
    pub fn diameter_servers(&self) -> impl Iterator<Item = (&str, bool)> {
        self.diameter.iter().flat_map(|node| {
            let connects = node.configured().filter(|(_, config)| config.address.is_some());
            connects.map(|(peer, config)| {
                let okay = node.watchdog_state(peer) == Some(watchdog::State::Okay);
                (config.host.as_str(), okay)
            })
        })
    }
    /// The realms whose users a home server of this name knows.
    pub fn realms_of(&self, home: &str) -> impl Iterator<Item = &str> {
        let proxy = self.config.proxy.as_ref();
        let index = proxy.and_then(|p| p.servers.iter().position(|s| s.name == home));
        let found = proxy.zip(index).map(|(proxy, index)| proxy.realms_of(index as u16));
        found.into_iter().flatten()
    }
    /// The home servers and the client that asks them.
    #[must_use]
    pub fn home_servers(&self) -> Option<&HomeServers> {
        self.outward.homes.as_ref()
    }

    /// Asks an access server (RFC 5176).
    pub(super) fn dynamic(
        &mut self,
        now: Instant,
        token: u64,
        to: SocketAddr,
        code: Code,
        mut attributes: Attributes,
    ) -> Result<(), CommandError> {
        if !matches!(code, Code::COA_REQUEST | Code::DISCONNECT_REQUEST) {
            return Err(CommandError::Invalid(
                "an access server is asked by CoA-Request or Disconnect-Request",
            ));
        }
        let identifies = |kind| IDENTIFICATION.contains(&kind) || kind == kind::EVENT_TIMESTAMP;
        if code == Code::DISCONNECT_REQUEST && !attributes.iter().all(|a| identifies(a.kind)) {
            return Err(CommandError::Invalid("a Disconnect-Request says which session, and nothing else"));
        }
        if attributes.get_u32(kind::SERVICE_TYPE) == Some(AUTHORIZE_ONLY) {
            return Err(CommandError::Invalid(
                "Authorize Only asks for a login that this server does not serve",
            ));
        }
        let known = self.radius.as_ref().and_then(|s| s.client_at(to.ip()));
        let (_, known) = known.ok_or(CommandError::Invalid("this address is no RADIUS client of ours"))?;
        let server = ServerConfig::new(to, known.secret.clone());
        let index = match &mut self.outward.dynamic {
            Some(client) => client.add_server(server),
            none => {
                let config = client::Config {
                    freshness: Some(Freshness::new(self.config.epoch)),
                    ..client::Config::single(server)
                };
                let rng = SecureRng::from_seed(self.rng.array());
                Client::new(config, rng).map(|client| {
                    *none = Some(Child::new(DYNAMIC, client));
                    0
                })
            }
        };
        let index = index.map_err(|_| CommandError::Full("access servers that are asked"))?;
        if attributes.get(kind::EVENT_TIMESTAMP).is_none() {
            // By it an access server tells a new request from an old one (RFC 5176 §6.3).
            let wall = self.config.epoch + now.since(Instant::ZERO);
            attributes.push_u32(kind::EVENT_TIMESTAMP, wall.unix_secs() as u32);
        }
        let Some(client) = &mut self.outward.dynamic else { return Err(CommandError::UnknownToken) };
        client.set_clock(self.config.epoch);
        let target = Target::Server(index);
        client.command(now, client::Command::Request { token, target, code, attributes })
    }

    /// Hears what the machines say that this one is made of. What a home server or a Diameter peer says may have another
    /// part say something in its turn.
    pub(super) fn drain_parts(&mut self, now: Instant) {
        loop {
            self.drain_radius(now);
            let heard = self.drain_diameter(now);
            if !self.drain_outward(now) && !heard {
                return;
            }
        }
    }

    /// Whether anything was said.
    fn drain_outward(&mut self, now: Instant) -> bool {
        let mut heard = false;
        while let Some(event) = self.outward.dynamic.as_mut().and_then(|child| self.outputs.next_event(child))
        {
            heard = true;
            let (token, result) = match event {
                client::Event::Response(r) => match r.code {
                    Code::COA_ACK | Code::DISCONNECT_ACK => (r.token, DynamicResult::Ack),
                    _ => (r.token, DynamicResult::Nak(r.attributes.get_u32(kind::ERROR_CAUSE))),
                },
                client::Event::TimedOut { token } => (token, DynamicResult::TimedOut),
                client::Event::Server { .. } => continue,
            };
            self.outputs.event(Event::Dynamic { token, result });
        }
        while let Some(event) =
            self.outward.past.as_mut().and_then(|past| self.outputs.next_event(past.client_mut()))
        {
            heard = true;
            match event {
                client::Event::Response(response) => self.home_answered(now, response, false),
                client::Event::TimedOut { token } => {
                    if let Some(passed) = self.outward.passed.remove(token) {
                        self.home_silent(now, passed);
                    }
                }
                client::Event::Server { .. } => {}
            }
        }
        self.outward.let_past_go(&mut self.outputs);
        while let Some(event) =
            self.outward.homes.as_mut().and_then(|homes| self.outputs.next_event(homes.client_mut()))
        {
            heard = true;
            match event {
                client::Event::Response(response) => self.home_answered(now, response, true),
                client::Event::TimedOut { token } => {
                    if let Some(passed) = self.outward.passed.remove(token) {
                        self.home_silent(now, passed);
                    }
                }
                client::Event::Server { server, health, cause } => {
                    let Some(homes) = &self.outward.homes else { continue };
                    let Some((server, service)) = homes.home(server) else { continue };
                    let name = homes.name(server).unwrap_or_default().into();
                    let state = HomeServerState { name, service, health, cause };
                    self.outputs.event(Event::HomeServer(state));
                }
            }
        }
        heard
    }
}
