//! Proxying by realm: requests of other realms' users go to their home servers (RFC 2865 §2.3, RFC 7542 §3). The
//! realm's [`RealmFilter`] limits requests and answers.
//!
//! Attributes that RADIUS encrypts hop by hop are decrypted and encrypted again. Proxy-State is added and removed.

mod filter;
mod homes;
mod nai;
mod realm;
pub mod relay;

pub use filter::{AllowedExtraAttributes, FilteredAttributes, RealmFilter};
pub use homes::{ForwardOutcome, HomeServerReport, HomeServers, ProxiedConversation, ProxyError};
pub use nai::{Nai, is_valid_realm};
pub(crate) use realm::RealmForwardingPolicy;
pub use realm::{AccountingMode, NoAnswerPolicy, Realm, RealmError, RealmMatch, RealmTable, RealmTarget};

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_radius::SharedSecret;
use usher_radius::client::{
    FailoverPolicy, RetransmissionPolicy, ServerConfig, ServerLivenessConfig, ServerTransport,
};
use usher_radius::radsec::PeerCertificateCondition;

/// A home server: the AAA server of another realm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServer {
    /// Name for logs.
    pub name: String,
    /// Address for authentication.
    pub authentication: SocketAddr,
    /// Address for accounting. Not used by RadSec, which has one port.
    pub accounting: SocketAddr,
    /// Shared secret.
    pub secret: SharedSecret,
    /// Transport.
    pub transport: ServerTransport,
    /// True if its replies to Access-Requests must have a Message-Authenticator (BlastRADIUS).
    pub require_message_authenticator: bool,
    /// Accepted certificates, for RadSec. Empty: any that the host's TLS accepts.
    pub certificates: Vec<PeerCertificateCondition>,
    /// Local address for sending. Unspecified: the host chooses.
    pub local: IpAddr,
    /// How its liveness is determined.
    pub liveness: ServerLivenessConfig,
}

impl HomeServer {
    /// A home server by UDP. Its accounting port is the one after `authentication`.
    #[must_use]
    pub fn new(name: &str, authentication: SocketAddr, secret: SharedSecret) -> Self {
        let accounting = SocketAddr::new(authentication.ip(), authentication.port().wrapping_add(1));
        Self::from_config(name, accounting, ServerConfig::new(authentication, secret))
    }
    /// A home server by RadSec.
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
            liveness: ServerLivenessConfig::default(),
        }
    }
}

/// The service of a home server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HomeServerType {
    /// Logins by UDP.
    Authentication,
    /// Accounting by UDP.
    Accounting,
    /// Both by RadSec.
    Both,
}

/// How a pool chooses the server of a new conversation. Later rounds stay with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PoolBalance {
    /// The first live server.
    #[default]
    Failover,
    /// A live server by a hash of client, User-Name and Calling-Station-Id. A station's logins reach the same
    /// server, and those of a dead server spread over the others.
    Spread,
}

/// A pool of servers that know the same users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServerPool {
    /// Name for logs.
    pub name: String,
    /// Indices into [`ProxyConfig::servers`], the preferred one first.
    pub servers: Vec<u16>,
    /// Choice of the server.
    pub balance: PoolBalance,
}

/// Configuration of the proxy.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Realms and their targets.
    pub realms: RealmTable,
    /// All home servers.
    pub servers: Vec<HomeServer>,
    /// Pools of home servers.
    pub pools: Vec<HomeServerPool>,
    /// Retransmission of proxied requests, for UDP only.
    pub retransmission: RetransmissionPolicy,
    /// Failover to the pool's next server.
    pub failover: FailoverPolicy,
    /// Maximum number of Proxy-State attributes in a received request. A request with more is in a loop and is
    /// dropped.
    pub max_hops: usize,
    /// Maximum number of pending requests. Further requests are dropped.
    pub max_pending: usize,
    /// Maximum number of conversations whose server is kept.
    pub max_conversations: usize,
    /// Maximum number of sockets. Each has 256 pending requests a server.
    pub max_sockets: u32,
}

impl ProxyConfig {
    /// Returns a realm whose pool does not exist.
    pub(crate) fn realm_with_missing_pool(&self) -> Option<&Realm> {
        let exists = |pool: u16| usize::from(pool) < self.pools.len();
        let nowhere = |r: &&Realm| matches!(r.route, RealmTarget::Pool { pool, .. } if !exists(pool));
        self.realms.entries().iter().find(nowhere)
    }
    /// The realms of a home server.
    pub fn realms_of(&self, server: u16) -> impl Iterator<Item = &str> {
        let leads = move |realm: &&Realm| match realm.route {
            RealmTarget::Pool { pool, .. } => {
                self.pools.get(usize::from(pool)).is_some_and(|pool| pool.servers.contains(&server))
            }
            _ => false,
        };
        self.realms.entries().iter().filter(leads).map(|realm| realm.name.as_str())
    }
    /// True if another configuration has the same servers and transports. Realms may differ.
    #[must_use]
    pub fn has_same_servers(&self, other: &Self) -> bool {
        self.servers == other.servers
            && self.pools == other.pools
            && self.retransmission == other.retransmission
            && self.failover == other.failover
            && self.max_conversations == other.max_conversations
            && self.max_sockets == other.max_sockets
    }
    /// Defaults: 16 hops, 65,536 pending requests.
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
