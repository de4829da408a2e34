//! Home servers: the choice of a server, and the client of all of them.

use super::{HomeServerPool, HomeServerType, PoolBalance, ProxyConfig};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use usher_core::collections::{HashMap, SeededHashState, hash_state};
use usher_core::{ChildMachine, CommandError, Instant, Machine, SecureRng};
use usher_radius::attribute::AttributeList;
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig, ServerHealth, ServerTransport};
use usher_radius::packet::PacketCode;

/// A contradiction in a proxy's configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProxyError {
    /// A pool without servers, or with an unknown one.
    #[error("pool {0:?} is empty or names a server that does not exist")]
    Pool(alloc::string::String),
    /// A realm with an unknown pool.
    #[error("realm {0:?} names a pool that does not exist")]
    Realm(alloc::string::String),
    /// An error of the client.
    #[error("home servers: {0}")]
    Client(#[from] client::ConfigError),
}

/// The conversation of a request, the same for all its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProxiedConversation<'a> {
    /// Index of the client, or another number of the requester.
    pub owner: u32,
    /// User-Name.
    pub name: &'a [u8],
    /// Calling-Station-Id.
    pub station: &'a [u8],
    /// State of a home server's challenge.
    pub state: Option<&'a [u8]>,
}

/// The result of forwarding a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForwardOutcome {
    /// It was sent.
    Forwarded,
    /// The pool has no live server.
    NoLiveServer,
    /// It cannot be sent: no free identifier, or too long for a packet.
    Impossible,
}

/// Health and counters of a home server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServerReport {
    /// Name for logs.
    pub name: String,
    /// Service.
    pub service: HomeServerType,
    /// Address.
    pub address: SocketAddr,
    /// Health.
    pub health: ServerHealth,
    /// Counters.
    pub counts: client::ServerCounts,
}

/// Returns the weight of a server for a conversation. The heaviest server is chosen. All proxies compute the same
/// weight, so they choose alike for all rounds of a conversation (FNV-1a, finished by the mixer of SplitMix64).
fn server_rendezvous_weight(server: u16, conversation: &ProxiedConversation<'_>) -> u64 {
    let lengths = [conversation.name.len(), conversation.station.len()].map(|n| (n as u64).to_be_bytes());
    let owner = conversation.owner.to_be_bytes();
    let parts: [&[u8]; 6] =
        [&server.to_be_bytes(), &owner, &lengths[0], conversation.name, &lengths[1], conversation.station];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for octet in parts.into_iter().flatten() {
        hash = (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The home servers of a proxy.
#[derive(Debug)]
pub struct HomeServers {
    client: ChildMachine<RadiusClient>,
    pools: Vec<HomeServerPool>,
    /// Name of each home server and its indices in the client: authentication, accounting.
    client_slots: Vec<(String, [u16; 2])>,
    hasher: SeededHashState,
    /// Server of each State.
    conversations: HashMap<u64, u16>,
    order: VecDeque<u64>,
    max_conversations: usize,
}

impl HomeServers {
    /// Creates all servers of a configuration, without requests. The client is in this slot of its owner. Its
    /// RadSec connections are numbered from `first_connection`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(
        config: &ProxyConfig,
        slot: u16,
        first_connection: u32,
        mut rng: SecureRng,
    ) -> Result<Option<Self>, ProxyError> {
        if let Some(realm) = config.realm_with_missing_pool() {
            return Err(ProxyError::Realm(realm.name.clone()));
        }
        let (mut servers, mut places) = (Vec::new(), Vec::new());
        for home in &config.servers {
            let (mut auth, liveness) =
                (ServerConfig::new(home.authentication, home.secret.clone()), home.liveness);
            auth.require_message_authenticator = home.require_message_authenticator;
            (auth.local, auth.transport, auth.liveness) = (home.local, home.transport, Some(liveness));
            auth.certificates.clone_from(&home.certificates);
            let place = servers.len() as u16;
            match home.transport {
                ServerTransport::Tls => places.push((home.name.clone(), [place; 2])),
                ServerTransport::Udp => {
                    places.push((home.name.clone(), [place, place + 1]));
                    servers.push(auth.clone());
                    auth.address = home.accounting;
                }
            }
            servers.push(auth);
        }
        let mut groups = Vec::new();
        for pool in &config.pools {
            for role in 0..2 {
                let members = pool.servers.iter().map(|&s| places.get(usize::from(s)).map(|(_, p)| p[role]));
                let members: Option<Vec<u16>> = members.collect();
                let members = members.filter(|m| !m.is_empty());
                groups.push(members.ok_or_else(|| ProxyError::Pool(pool.name.clone()))?);
            }
        }
        let Some(first) = servers.first().cloned() else { return Ok(None) };
        let client = client::RadiusClientConfig {
            servers,
            groups,
            retransmission: config.retransmission,
            failover: Some(config.failover),
            first_connection,
            max_sockets: config.max_sockets,
            ..client::RadiusClientConfig::for_server(first)
        };
        Ok(Some(Self {
            hasher: hash_state(&mut rng),
            conversations: HashMap::with_hasher(hash_state(&mut rng)),
            client: ChildMachine::new(slot, RadiusClient::new(client, rng)?),
            pools: config.pools.clone(),
            client_slots: places,
            order: VecDeque::new(),
            max_conversations: config.max_conversations,
        }))
    }
    /// The client of the home servers.
    #[must_use]
    pub const fn client(&self) -> &ChildMachine<RadiusClient> {
        &self.client
    }
    /// The client of the home servers, to be driven by a host.
    pub const fn home_client_mut(&mut self) -> &mut ChildMachine<RadiusClient> {
        &mut self.client
    }
    /// Returns the home server and service at an index of the client.
    #[must_use]
    pub fn server_for_client_index(&self, place: u16) -> Option<(u16, HomeServerType)> {
        self.client_slots.iter().zip(0..).find_map(|((_, places), server)| match *places {
            [both, same] if both == same => (both == place).then_some((server, HomeServerType::Both)),
            [first, _] if first == place => Some((server, HomeServerType::Authentication)),
            [_, second] => (second == place).then_some((server, HomeServerType::Accounting)),
        })
    }
    /// Returns the name of a home server.
    #[must_use]
    pub fn server_name(&self, server: u16) -> Option<&str> {
        self.client_slots.get(usize::from(server)).map(|(name, _)| name.as_str())
    }
    /// Reports of each home server and service.
    pub fn reports(&self) -> impl Iterator<Item = HomeServerReport> {
        (0..self.client.config().servers.len() as u16).filter_map(|place| {
            let (server, service) = self.server_for_client_index(place)?;
            Some(HomeServerReport {
                name: self.server_name(server)?.into(),
                service,
                address: self.client.config().servers[usize::from(place)].address,
                health: self.client.server_health(place),
                counts: self.client.server_counts(place),
            })
        })
    }
    /// Sets the health of a home server that another proxy found.
    pub fn set_health(&mut self, now: Instant, name: &str, service: HomeServerType, health: ServerHealth) {
        let place = (0..self.client.config().servers.len() as u16).find(|&place| {
            self.server_for_client_index(place)
                .is_some_and(|(server, of)| of == service && self.server_name(server) == Some(name))
        });
        if let Some(place) = place {
            self.client.apply_shared_health(now, place, health);
        }
    }

    /// Forwards a request to a pool. The client's event returns the token.
    pub fn forward_request(
        &mut self,
        now: Instant,
        token: u64,
        pool: u16,
        code: PacketCode,
        attributes: AttributeList,
        conversation: ProxiedConversation<'_>,
    ) -> ForwardOutcome {
        let Some(balance) = self.pools.get(usize::from(pool)).map(|p| p.balance) else {
            return ForwardOutcome::Impossible;
        };
        let known = conversation.state.map(|s| self.state_key(conversation.owner, s));
        let known = known.and_then(|key| self.conversations.remove(&key));
        let group = pool * 2 + u16::from(code == PacketCode::ACCOUNTING_REQUEST);
        let members = &self.client.config().groups[usize::from(group)];
        // Suspect servers are used if there is no live one.
        let best = members.iter().map(|&s| self.client.server_health(s)).min().unwrap_or(ServerHealth::Dead);
        if best == ServerHealth::Dead {
            return ForwardOutcome::NoLiveServer;
        }
        let mut alive = members.iter().copied().filter(|&s| self.client.server_health(s) == best);
        let first = match (known.filter(|s| members.contains(s)), balance) {
            (Some(server), _) => Some(server),
            (None, PoolBalance::Failover) => alive.next(),
            (None, PoolBalance::Spread) => alive.max_by_key(|&s| server_rendezvous_weight(s, &conversation)),
        };
        let Some(server) = first else { return ForwardOutcome::NoLiveServer };
        let target = RequestTarget::From { group, server };
        match self
            .client
            .handle_command(now, client::RadiusClientCommand::Request { token, target, code, attributes })
        {
            Ok(()) => ForwardOutcome::Forwarded,
            Err(_) => ForwardOutcome::Impossible,
        }
    }

    /// Keeps the server of a challenge's State: the next round goes to it.
    pub fn remember_state_server(&mut self, owner: u32, state: &[u8], server: u16) {
        let key = self.state_key(owner, state);
        while self.order.len() >= self.max_conversations.max(1) {
            let Some(oldest) = self.order.pop_front() else { break };
            self.conversations.remove(&oldest);
        }
        self.conversations.insert(key, server);
        self.order.push_back(key);
    }
    fn state_key(&self, owner: u32, state: &[u8]) -> u64 {
        self.hasher.hash_one((owner, state))
    }

    /// Cancels a request that is no longer needed.
    pub fn cancel_request(&mut self, now: Instant, token: u64) -> Result<(), CommandError> {
        self.client.handle_command(now, client::RadiusClientCommand::Cancel { token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_weigh_the_same_everywhere_and_spread_evenly() {
        let of = |server: u16, name: &str| {
            server_rendezvous_weight(
                server,
                &ProxiedConversation { owner: 1, name: name.as_bytes(), station: b"s", state: None },
            )
        };
        // A fixed value: another process of this version must choose alike.
        assert_eq!(of(0, "ann"), 0x9846_9fbe_3a16_9231);
        let chosen = |name: &str| (0..4).max_by_key(|&s| of(s, name)).unwrap();
        let mut counts = [0; 4];
        for i in 0..4000 {
            counts[usize::from(chosen(&std::format!("user{i}@example.org")))] += 1;
        }
        assert!(counts.iter().all(|n| (900..1100).contains(n)), "{counts:?}");
    }
}
