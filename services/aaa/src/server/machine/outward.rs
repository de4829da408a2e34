//! What the server asks of others: home servers by RADIUS and by Diameter, access servers by RFC 5176.
//!
//! Sockets and connections of what it asks by are numbered beside those that it listens on, each kind in a range of its
//! own.

use super::AaaServer;
use super::proxied::Begun;
use crate::proxy::{HomeServers, Terms};
use crate::server::answer::Asker;
use crate::server::api::{DynamicResult, Event, HomeServerState};
use crate::server::config::Config;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::table::SessionTable;
use usher_core::{
    CommandError, ConnId, Input, Instant, Machine, Path, SecureRng, SocketId, StreamEvent, StreamOp,
    Transmit, Work,
};
use usher_diameter::node::PeerId;
use usher_diameter::peer::watchdog;
use usher_diameter::session::SessionIds;
use usher_radius::Freshness;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::packet::Code;

/// The first socket by which access servers are asked.
const DYNAMIC: u32 = 1 << 20;
/// What is added to the first socket by which home servers are asked, of every second generation of them.
const OTHER: u32 = 1 << 18;
/// What is added to the numbers of connections to home servers.
const HOME: u32 = 1 << 30;

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
    ACCT_MULTI_SESSION_ID,
    kind::NAS_PORT_ID,
    CHARGEABLE_USER_IDENTITY,
    kind::NAS_IPV6_ADDRESS,
];
/// RFC 2866 §5.11.
const ACCT_MULTI_SESSION_ID: u8 = 50;
/// RFC 4372 §2.2.
const CHARGEABLE_USER_IDENTITY: u8 = 89;
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
    dynamic: Option<Client>,
    /// Accepted connections that speak RADIUS.
    radsec: BTreeSet<ConnId>,
    /// Connections to former home servers, to be given up.
    former: Vec<ConnId>,
}

impl Outward {
    /// Draws from `rng` only where there are home servers.
    pub(super) fn new(config: &Config, rng: &mut SecureRng) -> Result<Self, crate::proxy::ProxyError> {
        let homes = match &config.proxy {
            Some(proxy) => HomeServers::new(proxy, 0, SecureRng::from_seed(rng.array()))?,
            None => None,
        };
        Ok(Self { homes, ..Self::default() })
    }
    /// Which client's datagram this is, by its socket; `None`: it is for the server.
    fn asks_by(&mut self, socket: SocketId) -> Option<&mut Client> {
        if socket.0 >= DYNAMIC {
            return self.dynamic.as_mut();
        }
        self.homes_clients().find(|client| {
            let config = client.config();
            socket.0.wrapping_sub(config.first_socket.0) < config.max_sockets
        })
    }
    /// Who asks the home servers of now, and who asked those of before.
    fn homes_clients(&mut self) -> impl Iterator<Item = &mut Client> {
        self.homes.iter_mut().chain(&mut self.past).map(HomeServers::client_mut)
    }
    /// Who asks which home servers by a connection: each begins with numbers that no earlier one had.
    fn homes_of(&mut self, conn: ConnId) -> Option<&mut Client> {
        self.homes_clients().find(|client| conn.index() >= client.config().first_connection)
    }
    /// Ends with the former home servers when nothing is waited for any more.
    fn let_past_go(&mut self) {
        if let Some(past) = self.past.take_if(|past| past.client().outstanding() == 0) {
            self.former.extend(past.client().connections().0);
        }
    }
    pub(super) fn timeout(&mut self, now: Instant) {
        self.homes_clients().for_each(|client| client.handle(now, Input::Timeout));
        if let Some(client) = &mut self.dynamic {
            client.handle(now, Input::Timeout);
        }
    }
    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(conn) = self.former.pop() {
            buf.clear();
            return Some(Transmit::Stream {
                conn: ConnId::outgoing(conn.index() | HOME),
                op: StreamOp::Abort,
            });
        }
        let of_homes = self.homes_clients().find_map(|client| client.poll_transmit(now, buf));
        match of_homes.or_else(|| self.dynamic.as_mut()?.poll_transmit(now, buf))? {
            Transmit::Stream { conn, op } => {
                Some(Transmit::Stream { conn: ConnId::outgoing(conn.index() | HOME), op })
            }
            other => Some(other),
        }
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let homes = self.homes_clients().filter_map(Machine::poll_timeout).min();
        let dynamic = self.dynamic.as_mut().and_then(Machine::poll_timeout);
        homes.into_iter().chain(dynamic).min()
    }
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        let homes = self.homes_clients().find_map(Machine::poll_work);
        homes.or_else(|| self.dynamic.as_mut()?.poll_work())
    }
    /// A connection was accepted that speaks RADIUS.
    pub(super) fn accept_radsec(&mut self, conn: ConnId) {
        self.radsec.insert(conn);
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
        let first = current.map_or(0, |client| client.connections().1);
        // Two generations have sockets at the same time.
        let taken = current.is_some_and(|client| client.config().first_socket == proxy.first_socket);
        let mut proxy = proxy.clone();
        if taken {
            proxy.first_socket.0 += OTHER;
        }
        let rng = SecureRng::from_seed(self.rng.array());
        let contradiction = CommandError::Invalid("the realms and home servers contradict each other");
        HomeServers::new(&proxy, first, rng).map(Some).map_err(|_| contradiction)
    }

    /// Goes on with other home servers. What the former ones were asked they still answer; who waits for those before
    /// them is not answered, and asks again.
    pub(super) fn replace_homes(&mut self, now: Instant, homes: Option<HomeServers>) {
        let former = core::mem::replace(&mut self.outward.homes, homes);
        let Some(past) = core::mem::replace(&mut self.outward.past, former) else {
            return self.outward.let_past_go();
        };
        self.outward.former.extend(past.client().connections().0);
        for token in past.client().waiting() {
            let Some(passed) = self.outward.passed.remove(token) else { continue };
            if let Some(asker) = passed.asker {
                self.discard(now, asker);
            }
            self.recycle(passed.request);
        }
        self.outward.let_past_go();
    }

    /// What a Diameter peer is called.
    #[must_use]
    pub fn diameter_peer(&self, peer: PeerId) -> Option<&str> {
        self.diameter.as_ref()?.host(peer)
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

    pub(super) fn datagram(&mut self, now: Instant, path: Path, data: &[u8]) {
        let input = Input::Datagram { path, data };
        if let Some(client) = self.outward.asks_by(path.socket) {
            return client.handle(now, input);
        }
        match &mut self.radius {
            Some(server) => server.handle(now, input),
            None => self.counters.no_front += 1,
        }
    }

    pub(super) fn stream(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        if !conn.is_incoming() && conn.index() & HOME != 0 {
            let conn = ConnId::outgoing(conn.index() & !HOME);
            if let Some(client) = self.outward.homes_of(conn) {
                client.handle(now, Input::Stream { conn, event });
            }
            return;
        }
        let radsec = match event {
            StreamEvent::Closed(_) => self.outward.radsec.remove(&conn),
            _ => self.outward.radsec.contains(&conn),
        };
        let input = Input::Stream { conn, event };
        match (radsec, &mut self.radius, &mut self.diameter) {
            (true, Some(server), _) => server.handle(now, input),
            (false, _, Some(node)) => node.handle(now, input),
            _ => self.counters.no_front += 1,
        }
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
                    first_socket: SocketId(DYNAMIC),
                    freshness: Some(Freshness::new(self.config.epoch)),
                    ..client::Config::single(server)
                };
                let rng = SecureRng::from_seed(self.rng.array());
                Client::new(config, rng).map(|client| {
                    *none = Some(client);
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

    /// Hears what the machines say that this one is made of.
    pub(super) fn drain_parts(&mut self, now: Instant) {
        self.drain_radius(now);
        self.drain_diameter(now);
        self.drain_outward(now);
    }

    pub(super) fn drain_outward(&mut self, now: Instant) {
        while let Some(event) = self.outward.dynamic.as_mut().and_then(Machine::poll_event) {
            let (token, result) = match event {
                client::Event::Response(r) => match r.code {
                    Code::COA_ACK | Code::DISCONNECT_ACK => (r.token, DynamicResult::Ack),
                    _ => (r.token, DynamicResult::Nak(r.attributes.get_u32(kind::ERROR_CAUSE))),
                },
                client::Event::TimedOut { token } => (token, DynamicResult::TimedOut),
                client::Event::Server { .. } => continue,
            };
            self.events.push_back(Event::Dynamic { token, result });
        }
        while let Some(event) = self.outward.past.as_mut().and_then(|past| past.client_mut().poll_event()) {
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
        self.outward.let_past_go();
        while let Some(event) = self.outward.homes.as_mut().and_then(|h| h.client_mut().poll_event()) {
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
                    self.events.push_back(Event::HomeServer(state));
                }
            }
        }
    }
}
