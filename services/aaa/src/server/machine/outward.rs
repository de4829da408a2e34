//! What the server asks of others: home servers by RADIUS and by Diameter, access servers by RFC 5176.
//!
//! Sockets and connections of what it asks by are numbered beside those that it listens on, each kind in a range of its
//! own.

use super::AaaServer;
use crate::proxy::HomeServers;
use crate::server::answer::Asker;
use crate::server::api::{DynamicResult, Event};
use crate::server::config::Config;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::table::SessionTable;
use usher_core::{
    CommandError, ConnId, Input, Instant, Machine, SecureRng, SocketId, StreamEvent, StreamOp, Transmit, Work,
};
use usher_diameter::session::SessionIds;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::packet::Code;

/// The first socket by which access servers are asked.
const DYNAMIC: u32 = 1 << 20;
/// What is added to the numbers of connections to home servers.
const HOME: u32 = 1 << 30;

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
    /// Its conversation with a Diameter server.
    pub(super) dialog: Option<u64>,
}

impl Passed {
    /// The owner of what came over Diameter: no client has this index.
    pub(super) const DIAMETER: u32 = u32::MAX;
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
        let homes = self.homes.as_mut()?;
        (socket >= homes.client().config().first_socket).then(|| homes.client_mut())
    }
    pub(super) fn timeout(&mut self, now: Instant) {
        let homes = self.homes.as_mut().map(HomeServers::client_mut);
        for client in homes.into_iter().chain(&mut self.dynamic) {
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
        let of_homes = self.homes.as_mut().and_then(|h| h.client_mut().poll_transmit(now, buf));
        match of_homes.or_else(|| self.dynamic.as_mut()?.poll_transmit(now, buf))? {
            Transmit::Stream { conn, op } => {
                Some(Transmit::Stream { conn: ConnId::outgoing(conn.index() | HOME), op })
            }
            other => Some(other),
        }
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        let homes = self.homes.as_mut().and_then(|h| h.client_mut().poll_timeout());
        let dynamic = self.dynamic.as_mut().and_then(Machine::poll_timeout);
        homes.into_iter().chain(dynamic).min()
    }
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        let homes = self.homes.as_mut().and_then(|h| h.client_mut().poll_work());
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
        let first = self.outward.homes.as_ref().map_or(0, |h| h.client().connections().1);
        let rng = SecureRng::from_seed(self.rng.array());
        let contradiction = CommandError::Invalid("the realms and home servers contradict each other");
        HomeServers::new(proxy, first, rng).map(Some).map_err(|_| contradiction)
    }

    /// Goes on with other home servers. Who waits for the former ones is not answered, and asks again.
    pub(super) fn replace_homes(&mut self, now: Instant, homes: Option<HomeServers>) {
        let former = core::mem::replace(&mut self.outward.homes, homes);
        self.outward.former.extend(former.into_iter().flat_map(|h| h.client().connections().0));
        let mut waiting = core::mem::take(&mut self.outward.passed);
        while let Some(passed) = waiting.oldest().and_then(|(token, _)| waiting.remove(token)) {
            if let Some(asker) = passed.asker {
                self.discard(now, asker);
            }
            self.recycle(passed.request);
        }
    }

    /// The home servers and the client that asks them.
    #[must_use]
    pub fn home_servers(&self) -> Option<&HomeServers> {
        self.outward.homes.as_ref()
    }

    pub(super) fn datagram(&mut self, now: Instant, socket: SocketId, input: Input<'_>) {
        if let Some(client) = self.outward.asks_by(socket) {
            return client.handle(now, input);
        }
        match &mut self.radius {
            Some(server) => server.handle(now, input),
            None => self.counters.no_front += 1,
        }
    }

    pub(super) fn stream(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        if !conn.is_incoming() && conn.index() & HOME != 0 {
            if let Some(homes) = &mut self.outward.homes {
                let conn = ConnId::outgoing(conn.index() & !HOME);
                homes.client_mut().handle(now, Input::Stream { conn, event });
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
        let known = self.radius.as_ref().and_then(|s| s.client_at(to.ip()));
        let (_, known) = known.ok_or(CommandError::Invalid("this address is no RADIUS client of ours"))?;
        let server = ServerConfig::new(to, known.secret.clone());
        let index = match &mut self.outward.dynamic {
            Some(client) => client.add_server(server),
            none => {
                let config =
                    client::Config { first_socket: SocketId(DYNAMIC), ..client::Config::single(server) };
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
        let target = Target::Server(index);
        client.command(now, client::Command::Request { token, target, code, attributes })
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
        while let Some(event) = self.outward.homes.as_mut().and_then(|h| h.client_mut().poll_event()) {
            match event {
                client::Event::Response(response) => self.home_answered(now, response),
                client::Event::TimedOut { token } => {
                    if let Some(passed) = self.outward.passed.remove(token) {
                        self.home_silent(now, passed);
                    }
                }
                client::Event::Server { server, alive } => {
                    if let Some(server) = self.outward.homes.as_ref().and_then(|h| h.home(server)) {
                        self.events.push_back(Event::HomeServer { server, alive });
                    }
                }
            }
        }
    }
}
