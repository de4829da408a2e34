//! What a server is made of.

use super::alias::IdentityKey;
use super::shard::ShardConfig;
use crate::ledger::FailureLimit;
use crate::users::{AuthMethod, UserDirectory};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_eap::method::ServerOffer;
use usher_radius::dictionary::RadiusDictionary;

/// Where users are looked up.
#[derive(Clone, Debug)]
pub enum UserSource {
    /// In memory, at once, without an event.
    Memory(Arc<UserDirectory>),
    /// Wherever the host looks: [`super::AaaServerJob::Lookup`] asks, [`super::AaaServerCommand::Found`] answers, and what it answers
    /// is kept for a while.
    Host(CacheConfig),
}

/// How many users that the host found are kept, and how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// At most so many; beyond it the user kept longest goes. None: each login asks the host.
    pub entries: usize,
    /// No user is served from memory longer than this after the host answered.
    pub ttl: Duration,
    /// No name is taken for nobody's longer than this after the host said so: whoever guesses names does not ask the
    /// store each time, and whoever was just added gets in soon. Zero: such answers are not kept.
    pub unknown_ttl: Duration,
}

impl CacheConfig {
    /// How many names that nobody has are kept: fewer than users, since whoever asks chooses them.
    #[must_use]
    pub fn unknown_entries(&self) -> usize {
        self.entries.min(10_000)
    }
}

impl Default for CacheConfig {
    /// 10,000 users, 60 s; names that nobody has 5 s.
    fn default() -> Self {
        Self { entries: 10_000, ttl: Duration::from_secs(60), unknown_ttl: Duration::from_secs(5) }
    }
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct AaaServerConfig {
    /// The RADIUS side; `None`: datagrams are dropped. Its `retain` should outlast the clients' longest
    /// wait between retransmissions: where the verdict is lost and no longer kept when the request comes
    /// again, the session that it ended is unknown, and the answer is a reject.
    pub radius: Option<usher_radius::server::RadiusServerConfig>,
    /// The Diameter side, with EAP (RFC 4072) and NASREQ (RFC 7155) among its applications; `None`:
    /// streams and associations are dropped.
    pub diameter: Option<usher_diameter::node::DiameterNodeConfig>,
    /// Where users are looked up.
    pub users: UserSource,
    /// What is offered, the preferred method first. A peer's Nak chooses among the rest (RFC 3748 §5.3).
    pub methods: Vec<AuthMethod>,
    /// The server's side of EAP-TLS, one for all sessions; without it that method is not offered.
    pub tls: Option<Arc<dyn ServerOffer>>,
    /// The server's side of PEAP; without it that method is not offered.
    pub peap: Option<Arc<dyn ServerOffer>>,
    /// The server's side of EAP-TTLS; without it that method is not offered.
    pub ttls: Option<Arc<dyn ServerOffer>>,
    /// Which of several servers this is that share their clients; `None`: there is one, and nobody else can read its
    /// State.
    pub shard: Option<ShardConfig>,
    /// Which of those servers connects to Diameter peers, where not each does: it gets what is for realms that are known
    /// to them. `None`: this one.
    pub dialler: Option<u16>,
    /// Which realms' users are known elsewhere, and where; `None`: all are known here.
    pub proxy: Option<crate::proxy::ProxyConfig>,
    /// By what names are kept from the networks that are visited: with it an access server that does not hear the identity
    /// within a tunnel hears a Class in its place, by which accounting is known to be that user's, and a
    /// Chargeable-User-Identity where it asks for one. `None`: neither.
    pub identity_key: Option<IdentityKey>,
    /// RADIUS clients, as indexes into those of [`Self::radius`], that hear the identity within a tunnel, as User-Name of
    /// the Access-Accept. Others, and Diameter peers, do not.
    pub inner_names: Vec<u32>,
    /// How long an unfinished session may idle: its peer answers, or its user is found, within this. A packet that
    /// answers nothing that was asked does not count.
    pub session_timeout: Duration,
    /// How long a session may take from its first request to its verdict, however busy it is: a later request is one of
    /// an unknown session.
    pub login_timeout: Duration,
    /// How many unfinished sessions there may be. A new one beyond it pushes one out: of the client with the most
    /// unfinished sessions, the one that idled longest.
    pub max_half_open: usize,
    /// How many octets of memory unfinished sessions may hold, about; beyond it as with `max_half_open`, where the client
    /// with the most is the one whose sessions hold the most. Each session counts as its share of this by `max_half_open`
    /// at least.
    pub max_half_open_octets: usize,
    /// How many steps of logins that cost public-key operations may wait for their turn; one is done at each
    /// [`usher_core::MachineInput::Timeout`], which the server then wants at once, so that its host can hand in before it what
    /// came meanwhile. Beyond it the newest of the client with the most is dropped. None: each is done as it comes, for a
    /// host that charges for work itself.
    pub max_steps_waiting: usize,
    /// How long after its request a reject goes out at the earliest, so that guessing passwords takes its time and what
    /// the verdict took does not show; at most [`Self::max_delayed_rejects`] at once,
    /// beyond which the one held longest goes out at once. Zero: not at all.
    pub reject_delay: Duration,
    /// How many rejects may be held back.
    pub max_delayed_rejects: usize,
    /// How many failed logins hold a name or a station back, so that nothing of theirs is weighed; `None`: none do. That
    /// of the start stays. The ledger's limit is the same.
    pub failures: Option<FailureLimit>,
    /// Whether the host is asked about every login before it is let in ([`super::AaaServerJob::Admit`]). Where this is false,
    /// it is asked about users with a limit of sessions or an address pool.
    pub limits: bool,
    /// Whether a request without any proof whose User-Name is the address in Calling-Station-Id is one for MAC
    /// authentication bypass: its user then needs no password. Service-Type must be Call-Check.
    pub mab: bool,
    /// Whether Diameter answers say how long a round of EAP may take and by which method somebody was let in
    /// (Multi-Round-Time-Out, RFC 6733 §8.19; Accounting-EAP-Auth-Method, RFC 4072 §2.7). Published message sizes are of
    /// servers that do not.
    pub full_answers: bool,
    /// Indices of the RADIUS clients whose users' devices may speak TLS 1.2 without the Extended Master Secret (RFC 7627);
    /// all others are refused.
    pub without_extended_master_secret: Vec<u32>,
    /// By which traces name attributes, and by which vendors' attributes are known whose headers are of another form than
    /// RFC 2865 §5.26 suggests; `None`: the standard ones.
    pub dictionary: Option<Arc<RadiusDictionary>>,
    /// Whether the host is asked about the certificates of peers, and with EAP-TLS about the names in them ([`super::AaaServerJob::CheckCertificate`]).
    pub certificate_status: bool,
}

impl AaaServerConfig {
    /// Neither front, EAP-MD5 and PAP for these users, 30 s of idleness and 5 min in all, 100,000 unfinished sessions
    /// and 512 MiB of them, rejects without delay.
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

/// A server was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The RADIUS side.
    #[error("RADIUS server: {0}")]
    Radius(#[from] usher_radius::server::ConfigError),
    /// The home servers.
    #[error("proxy: {0}")]
    Proxy(#[from] crate::proxy::ProxyError),
}
