//! Configuration of an AAA server.

use super::alias::IdentityKey;
use super::shard::ShardConfig;
use crate::ledger::LoginFailureLimit;
use crate::users::{AuthMethod, UserDirectory};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_eap::method::ServerMethodFactory;
use usher_radius::dictionary::RadiusDictionary;

/// The source of users.
#[derive(Clone, Debug)]
pub enum UserSource {
    /// Users in memory. A lookup returns at once.
    Memory(Arc<UserDirectory>),
    /// A store of the host, by [`super::AaaServerJob::Lookup`] and [`super::AaaServerCommand::Found`]. Results are
    /// cached.
    Host(UserCacheConfig),
}

/// Size and lifetimes of the cache of looked-up users.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserCacheConfig {
    /// Maximum number of users. The oldest entry is evicted. Zero: no cache.
    pub entries: usize,
    /// Lifetime of a user in the cache.
    pub ttl: Duration,
    /// Lifetime of an unknown name in the cache. It limits lookups by an attacker who tries names, and the delay
    /// until a new user can log in. Zero: unknown names are not cached.
    pub unknown_ttl: Duration,
}

impl UserCacheConfig {
    /// Returns the maximum number of cached unknown names. It is smaller than that of users, since clients choose
    /// the names.
    #[must_use]
    pub fn max_cached_unknown_names(&self) -> usize {
        self.entries.min(10_000)
    }
}

impl Default for UserCacheConfig {
    /// 10,000 users for 60 s, unknown names for 5 s.
    fn default() -> Self {
        Self { entries: 10_000, ttl: Duration::from_secs(60), unknown_ttl: Duration::from_secs(5) }
    }
}

/// Configuration of an AAA server.
#[derive(Clone, Debug)]
pub struct AaaServerConfig {
    /// The RADIUS side. `None`: datagrams are dropped.
    ///
    /// Its `retain` should exceed the clients' longest interval between retransmissions. If a lost reply has
    /// expired from the duplicate cache, the retransmission finds no session and is rejected.
    pub radius: Option<usher_radius::server::RadiusServerConfig>,
    /// The Diameter side, with EAP (RFC 4072) and NASREQ (RFC 7155) among its applications. `None`: streams and
    /// associations are dropped.
    pub diameter: Option<usher_diameter::node::DiameterNodeConfig>,
    /// Source of users.
    pub users: UserSource,
    /// Methods, the preferred one first. A peer's Nak chooses among the others (RFC 3748 §5.3).
    pub methods: Vec<AuthMethod>,
    /// Server side of EAP-TLS for all sessions. `None`: the method is not offered.
    pub tls: Option<Arc<dyn ServerMethodFactory>>,
    /// Server side of PEAP. `None`: the method is not offered.
    pub peap: Option<Arc<dyn ServerMethodFactory>>,
    /// Server side of EAP-TTLS. `None`: the method is not offered.
    pub ttls: Option<Arc<dyn ServerMethodFactory>>,
    /// Number and key of this shard. `None`: there is one server, and only it can read its State attributes.
    pub shard: Option<ShardConfig>,
    /// Number of the shard that connects to Diameter peers and gets the requests for their realms. `None`: this
    /// server.
    pub dialler: Option<u16>,
    /// Realms and their home servers. `None`: all users are local.
    pub proxy: Option<crate::proxy::ProxyConfig>,
    /// Key of the aliases that hide inner identities from visited networks. An access server that may not see the
    /// inner identity gets a Class, which assigns its accounting records to the user. It gets a
    /// Chargeable-User-Identity on request. `None`: neither.
    pub identity_key: Option<IdentityKey>,
    /// Indices of the RADIUS clients in [`Self::radius`] that get the inner identity as User-Name of the
    /// Access-Accept. Other clients and Diameter peers do not get it.
    pub inner_names: Vec<u32>,
    /// Maximum idle time of a half-open session: its peer answers, or its user is found, within this. A packet that
    /// answers no pending request does not count.
    pub session_timeout: Duration,
    /// Maximum time from the first request of a login to its verdict. A later request has an unknown session.
    pub login_timeout: Duration,
    /// Maximum number of half-open sessions. A new session evicts the longest idle session of the client with the
    /// most.
    pub max_half_open: usize,
    /// Approximate maximum memory of half-open sessions in octets. Beyond it a session of the client with the most
    /// octets is evicted. Each session counts at least this divided by `max_half_open`.
    pub max_half_open_octets: usize,
    /// Maximum number of queued login steps with public-key operations. Each [`usher_core::MachineInput::Timeout`]
    /// does one step, and the server requests the timeout at once. So the host can pass new input before each step.
    /// Beyond the maximum the newest step of the client with the most is dropped. Zero: each step is done at once,
    /// for a host that charges for work itself.
    pub max_steps_waiting: usize,
    /// Minimum time from a request to its reject. It slows password guessing and hides the time of the check. Zero:
    /// no delay. Beyond [`Self::max_delayed_rejects`] the oldest pending reject is sent at once.
    pub reject_delay: Duration,
    /// Maximum number of delayed rejects.
    pub max_delayed_rejects: usize,
    /// Failed attempts that lock out a name or a station. `None`: no lockout. A reload does not change it. The
    /// ledger's limit is the same.
    pub failures: Option<LoginFailureLimit>,
    /// True if the host checks each login before the accept ([`super::AaaServerJob::Admit`]). If false, it checks
    /// only users with a session limit or an address pool.
    pub limits: bool,
    /// True if MAC authentication bypass is allowed: a request without proof whose User-Name is the address in
    /// Calling-Station-Id. Service-Type must be Call-Check. The user needs no password.
    pub mab: bool,
    /// True if Diameter answers include Multi-Round-Time-Out (RFC 6733 §8.19) and Accounting-EAP-Auth-Method (RFC
    /// 4072 §2.7). Published message sizes are without them.
    pub full_answers: bool,
    /// Indices of the RADIUS clients whose users may use TLS 1.2 without the Extended Master Secret (RFC 7627).
    /// Other users are rejected.
    pub without_extended_master_secret: Vec<u32>,
    /// Names attributes in traces, and identifies vendors whose attribute headers differ from RFC 2865 §5.26.
    /// `None`: the standard dictionary.
    pub dictionary: Option<Arc<RadiusDictionary>>,
    /// True if the host checks peers' certificates, and with EAP-TLS the names in them
    /// ([`super::AaaServerJob::CheckCertificate`]).
    pub certificate_status: bool,
}

impl AaaServerConfig {
    /// No RADIUS, no Diameter; EAP-MD5 and PAP for these users. 30 s idle and 5 min in all, 100,000 half-open
    /// sessions of together 512 MiB, rejects without delay.
    #[must_use]
    pub fn new(users: UserSource) -> Self {
        Self {
            radius: None,
            diameter: None,
            users,
            methods: [AuthMethod::EapMd5, AuthMethod::Pap].into(),
            tls: None,
            peap: None,
            ttls: None,
            shard: None,
            dialler: None,
            proxy: None,
            identity_key: None,
            inner_names: Vec::new(),
            session_timeout: Duration::from_secs(30),
            login_timeout: Duration::from_secs(300),
            max_half_open: 100_000,
            max_half_open_octets: 512 << 20,
            max_steps_waiting: 0,
            reject_delay: Duration::ZERO,
            max_delayed_rejects: 10_000,
            failures: None,
            limits: false,
            mab: false,
            full_answers: false,
            without_extended_master_secret: Vec::new(),
            dictionary: None,
            certificate_status: false,
        }
    }
}

/// A contradiction in a configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The RADIUS side.
    #[error("RADIUS server: {0}")]
    Radius(#[from] usher_radius::server::ConfigError),
    /// The home servers.
    #[error("proxy: {0}")]
    Proxy(#[from] crate::proxy::ProxyError),
}
