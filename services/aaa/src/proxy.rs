//! Proxying by realm: requests of users who are known elsewhere go to their home servers, and answers come
//! back (RFC 2865 §2.3, RFC 7542 §3), both as far as the realm's [`RealmFilter`] lets them.
//!
//! What RADIUS hides hop by hop is revealed and hidden anew; Proxy-State is put on and taken off.

mod filter;
mod homes;
mod nai;
mod realm;
pub mod relay;

pub use filter::{ExtraAttributes, FilteredAttributes, RealmFilter};
pub use homes::{ForwardOutcome, HomeServerReport, HomeServers, ProxiedConversation, ProxyError};
pub use nai::{Nai, is_realm};
pub(crate) use realm::ForwardingTerms;
pub use realm::{AccountingMode, NoAnswerPolicy, Realm, RealmError, RealmMatch, RealmTable, RealmTarget};

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_radius::SharedSecret;
use usher_radius::client::{
    FailoverPolicy, LivenessConfig, RetransmissionPolicy, ServerConfig, ServerTransport,
};
use usher_radius::radsec::CertificateMatch;

/// A server that knows users of other realms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServer {
    /// What logs call it.
    pub name: String,
    /// Where it listens for authentication.
    pub authentication: SocketAddr,
    /// Where it listens for accounting; of no meaning for RadSec, which has one port.
    pub accounting: SocketAddr,
    /// The secret shared with it.
    pub secret: SharedSecret,
    /// By what it is reached.
    pub transport: ServerTransport,
    /// Whether its answers to Access-Requests must carry a Message-Authenticator (BlastRADIUS).
    pub require_message_authenticator: bool,
    /// What its certificate may be, by RadSec; none: any that the host's TLS takes.
    pub certificates: Vec<CertificateMatch>,
    /// Our address to send from; unspecified leaves the choice to the host.
    pub local: IpAddr,
    /// How it is found out whether it is alive.
    pub liveness: LivenessConfig,
}

impl HomeServer {
    /// By datagrams, its accounting port the one behind `authentication`'s.
    #[must_use]
    pub fn new(name: &str, authentication: SocketAddr, secret: SharedSecret) -> Self {
        let accounting = SocketAddr::new(authentication.ip(), authentication.port().wrapping_add(1));
        Self::from_config(name, accounting, ServerConfig::new(authentication, secret))
    }
    /// By RadSec.
    #[must_use]
    pub fn radsec(name: &str, address: SocketAddr) -> Self {
        Self::from_config(name, address, ServerConfig::for_radsec(address))
    }
    fn from_config(name: &str, accounting: SocketAddr, server: ServerConfig) -> Self {
        Self {
            name: name.into(),
            authentication: server.address,
            accounting,
            secret: server.secret,
            transport: server.transport,
            require_message_authenticator: server.require_message_authenticator,
            certificates: server.certificates,
            local: server.local,
            liveness: LivenessConfig::default(),
        }
    }
}

/// What a home server is asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HomeServerType {
    /// Logins, by datagrams.
    Authentication,
    /// Accounting, by datagrams.
    Accounting,
    /// Either, by RadSec.
    Both,
}

/// Which of a pool's servers a conversation begins with. Its later rounds stay with it in either case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PoolBalance {
    /// The first that is alive.
    #[default]
    Failover,
    /// One that is alive, by a hash of client, User-Name and Calling-Station-Id: a station's logins meet the same
    /// server, and those of one that died spread over the others.
    Spread,
}

/// Servers that know the same users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServerPool {
    /// What logs call it.
    pub name: String,
    /// In order of preference, as indexes into [`ProxyConfig::servers`].
    pub servers: Vec<u16>,
    /// Which is asked.
    pub balance: PoolBalance,
}

/// How requests are passed on.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Which realm goes where.
    pub realms: RealmTable,
    /// All home servers.
    pub servers: Vec<HomeServer>,
    /// Servers that know the same users.
    pub pools: Vec<HomeServerPool>,
    /// When a request is passed on again; by datagrams only.
    pub retransmission: RetransmissionPolicy,
    /// When it moves on to the pool's next server.
    pub failover: FailoverPolicy,
    /// How many Proxy-State attributes a request may have when it comes: one with more has gone in a circle and is
    /// dropped.
    pub max_hops: usize,
    /// How many requests may wait for home servers; further ones are dropped.
    pub max_pending: usize,
    /// How many conversations are remembered with their server.
    pub max_conversations: usize,
    /// By how many sockets requests are passed on, each for 256 waiting requests a server.
    pub max_sockets: u32,
}

impl ProxyConfig {
    /// A realm whose pool does not exist.
    pub(crate) fn leads_nowhere(&self) -> Option<&Realm> {
        let exists = |pool: u16| usize::from(pool) < self.pools.len();
        let nowhere = |r: &&Realm| matches!(r.route, RealmTarget::Pool { pool, .. } if !exists(pool));
        self.realms.entries().iter().find(nowhere)
    }
    /// The realms of a home server's users.
    pub fn realms_of(&self, server: u16) -> impl Iterator<Item = &str> {
        let leads = move |realm: &&Realm| match realm.route {
            RealmTarget::Pool { pool, .. } => {
                self.pools.get(usize::from(pool)).is_some_and(|pool| pool.servers.contains(&server))
            }
            _ => false,
        };
        self.realms.entries().iter().filter(leads).map(|realm| realm.name.as_str())
    }
    /// Whether another configuration has the same servers, reached in the same way; realms may differ.
    #[must_use]
    pub fn same_servers(&self, other: &Self) -> bool {
        self.servers == other.servers
            && self.pools == other.pools
            && self.retransmission == other.retransmission
            && self.failover == other.failover
            && self.max_conversations == other.max_conversations
            && self.max_sockets == other.max_sockets
    }
    /// 16 hops, 65,536 waiting requests.
    #[must_use]
    pub fn new(realms: RealmTable, servers: Vec<HomeServer>, pools: Vec<HomeServerPool>) -> Self {
        Self {
            realms,
            servers,
            pools,
            retransmission: RetransmissionPolicy::default(),
            failover: FailoverPolicy::default(),
            max_hops: 16,
            max_pending: 1 << 16,
            max_conversations: 1 << 16,
            max_sockets: 1 << 10,
        }
    }
}
