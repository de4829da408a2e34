//! The configuration file as types. The documentation of these items is the published schema's.

pub use super::peer_tables::{
    DiameterPeer, DiameterSctp, DiameterTable, HomeServer, HomeServerBalanceMode, NoHomeServerAnswerAction,
    RealmAccounting, RealmConfig, SctpOrder,
};
use super::units::Fingerprint;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use usher_aaa::AuthMethod;
use usher_config::Prefix;
pub use usher_config::log::LogConfig;
use usher_config::named;
pub use usher_config::secret::SecretText;
use usher_config::units::{ByteSize, TimeSpan};
use usher_crypto::TlsVersion;

/// The configuration of `usher aaa serve`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Usher's AAA server")]
pub struct ConfigFile {
    /// Number of threads that serve requests, each with its own sockets [default: one per core].
    pub shards: Option<u16>,
    /// Directory of the files that the server creates: the generated secret, the SQLite database, the control socket.
    pub state_dir: Option<PathBuf>,
    /// Time from a request to its reject. It slows down password guessing, and hides how long the check took.
    pub reject_delay: TimeSpan,
    /// Time after which an unfinished login without a request is dropped.
    pub session_timeout: TimeSpan,
    /// Maximum time of a login, from its first request to its verdict.
    pub login_timeout: TimeSpan,
    /// Dictionaries of vendor attributes in FreeRADIUS's syntax, in addition to the built-in ones. Includes are
    /// relative to the including file. Later definitions replace earlier ones with the same name or number.
    pub dictionary: Vec<PathBuf>,
    /// Addresses to listen on.
    pub listen: ListenConfig,
    /// Clients: network access servers and proxies that may send requests.
    pub client: Vec<ConfiguredClient>,
    /// The store of users and accounting.
    pub users: UserStoreConfig,
    /// Users of this file. They take precedence over users of the store.
    pub user: Vec<InlineUser>,
    /// Groups of the users of this file.
    pub group: Vec<InlineGroup>,
    /// Authentication methods.
    pub methods: MethodConfig,
    /// The server's certificate and the trusted authorities. Without it EAP-TLS, PEAP, TTLS and RadSec are off.
    pub tls: Option<TlsTable>,
    /// Realms: the part of a user name after `@`.
    pub realm: Vec<RealmConfig>,
    /// Home servers, to which requests of other realms are proxied.
    pub home_server: Vec<HomeServer>,
    /// Address pools.
    pub pool: Vec<PoolTable>,
    /// Limits of users, and of the server's memory.
    pub limits: LimitConfig,
    /// Accounting.
    pub accounting: AccountingConfig,
    /// The server's identity in Diameter, and its peers. Without it Diameter is off.
    pub diameter: Option<DiameterTable>,
    /// Metrics for Prometheus, and a health check.
    pub metrics: MetricsConfig,
    /// Logs.
    pub log: LogConfig,
    /// The socket through which `usher aaa` controls the running server.
    pub control: ControlSocketConfig,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            shards: None,
            state_dir: None,
            reject_delay: TimeSpan::from_secs(1),
            session_timeout: TimeSpan::from_secs(30),
            login_timeout: TimeSpan::from_secs(300),
            dictionary: Vec::new(),
            listen: ListenConfig::default(),
            client: Vec::new(),
            users: UserStoreConfig::default(),
            user: Vec::new(),
            group: Vec::new(),
            methods: MethodConfig::default(),
            tls: None,
            realm: Vec::new(),
            home_server: Vec::new(),
            pool: Vec::new(),
            limits: LimitConfig::default(),
            accounting: AccountingConfig::default(),
            diameter: None,
            metrics: MetricsConfig::default(),
            log: LogConfig::default(),
            control: ControlSocketConfig::default(),
        }
    }
}

/// Addresses with ports, IPv4 and IPv6: `"0.0.0.0:1812"`, `"[::]:1812"`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenConfig {
    /// RADIUS authentication over UDP.
    pub auth: Vec<SocketAddr>,
    /// RADIUS accounting over UDP.
    pub acct: Vec<SocketAddr>,
    /// RADIUS over TLS (RFC 6614), for authentication and accounting; port 2083.
    pub radsec: Vec<SocketAddr>,
    /// Diameter over TCP; port 3868.
    pub diameter: Vec<SocketAddr>,
    /// Diameter over TLS; port 5658.
    pub diameter_tls: Vec<SocketAddr>,
    /// Diameter over SCTP; port 3868. Addresses with the same port form one endpoint. The server announces them to its
    /// peers (RFC 6733, 5.3.1), so none may be unspecified.
    pub diameter_sctp: Vec<SocketAddr>,
}

impl Default for ListenConfig {
    /// Loopback only. Other addresses must be configured.
    fn default() -> Self {
        let both = |port| {
            vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))]
        };
        Self {
            // RFC 2865, 3; RFC 2866, 3: the ports of authentication and of accounting.
            auth: both(1812),
            acct: both(1813),
            radsec: Vec::new(),
            diameter: Vec::new(),
            diameter_tls: Vec::new(),
            diameter_sctp: Vec::new(),
        }
    }
}

/// A client: a network access server or proxy that may send requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfiguredClient {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its addresses. The longest matching prefix wins.
    pub prefix: Prefix,
    /// The shared secret. Set one of `secret`, `secret_file` and `secret_env`; a client with RadSec only
    /// (`certificate`) needs none.
    pub secret: Option<SecretText>,
    /// A file with the secret, not readable by others. A line end at the end of the file is ignored.
    pub secret_file: Option<PathBuf>,
    /// An environment variable with the secret.
    pub secret_env: Option<String>,
    /// Whether an Access-Request must have a Message-Authenticator, against BlastRADIUS.
    #[serde(default)]
    pub message_authenticator: MessageAuthenticator,
    /// Whether a user's device must support the Extended Master Secret (RFC 7627) in EAP with TLS 1.2. It binds a
    /// proof to its TLS session.
    #[serde(default)]
    pub extended_master_secret: ExtendedMasterSecret,
    /// For RadSec: the name that the client's certificate must have. It is a DNS name or IP address of the subject
    /// alternative names, or the common name.
    pub certificate: Option<String>,
    /// For RadSec: the SHA-256 fingerprint of the client's certificate, instead of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Other access servers that this client reports, by NAS-IP-Address or NAS-IPv6-Address; `"0.0.0.0/0"`: all. List
    /// the access servers behind a proxy, and addresses from which the client does not send. The client's own
    /// addresses are always included. A report about any other access server counts as the client's own, so it cannot
    /// end sessions of another client.
    #[serde(default)]
    pub nas: Vec<Prefix>,
    /// Whether the client gets the user's name if the user is anonymous outside the tunnel.
    #[serde(default)]
    pub inner_name: InnerIdentityDisclosure,
}

/// Whether a client gets the identity inside a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InnerIdentityDisclosure {
    /// No. The client gets a Class that only this server can read, and returns it in accounting. Accounting is kept
    /// under the user's name.
    #[default]
    Hide,
    /// Yes, as User-Name of the Access-Accept.
    Send,
}

/// Whether TLS 1.2 requires the Extended Master Secret.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExtendedMasterSecret {
    /// A handshake without it is rejected.
    #[default]
    Required,
    /// For old devices: a handshake without it is accepted.
    Optional,
}

/// The requirement for Access-Requests without EAP.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MessageAuthenticator {
    /// Every Access-Request must have a Message-Authenticator.
    #[default]
    Required,
    /// For clients without support: requests without one are accepted unless they have Proxy-State, which the attack
    /// needs.
    LimitProxyState,
    /// Requests without one are accepted. An attacker on the path can forge replies.
    Off,
}

/// The store of users and accounting.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserStoreConfig {
    /// The kind of store, for users and accounting.
    pub store: StoreKind,
    /// For sqlite: the database file [default: usher.db in the state directory].
    pub path: Option<PathBuf>,
    /// For postgresql: the connection, such as `"host=db.example user=radius dbname=radius"`. Put a URL with a
    /// password into `url_file` or `url_env`. TLS follows libpq's `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.
    /// The default mode is `prefer`; use `verify-full` across a network.
    pub url: Option<SecretText>,
    /// A file with the URL, not readable by others.
    pub url_file: Option<PathBuf>,
    /// An environment variable with the URL.
    pub url_env: Option<String>,
    /// Handling of a reply row of the user, or of the user's group, that cannot be parsed. A check row that cannot be
    /// parsed always rejects the login.
    pub bad_reply: BadReplyRowPolicy,
    /// Maximum number of cached users per thread. It also limits the common cache that serves users while the store is
    /// unavailable.
    pub cache_entries: usize,
    /// How long a cached user is used before the next lookup in the store. A user who was removed without `usher aaa
    /// user del` can log in for this time.
    pub cache_ttl: TimeSpan,
    /// How long an unknown name is cached. A user who was added without `usher aaa user add` is rejected for this
    /// time.
    pub cache_unknown: TimeSpan,
    /// Number of threads for store lookups, and of threads for slow password hashes.
    pub threads: u16,
}

impl Default for UserStoreConfig {
    fn default() -> Self {
        Self {
            store: StoreKind::Sqlite,
            path: None,
            url: None,
            url_file: None,
            url_env: None,
            bad_reply: BadReplyRowPolicy::default(),
            cache_entries: 100_000,
            cache_ttl: TimeSpan::from_secs(60),
            cache_unknown: TimeSpan::from_secs(5),
            threads: 2,
        }
    }
}

/// Handling of a reply row that cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BadReplyRowPolicy {
    /// The login is rejected: the row could be the filter or the VLAN that confines the user.
    #[default]
    Refuse,
    /// The row is left out and logged.
    LeaveOut,
}

/// The kind of store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// The users of this file only. Accounting is acknowledged, kept in memory and lost when the server stops.
    Memory,
    /// An SQLite database, created at the first start.
    Sqlite,
    /// A PostgreSQL database with FreeRADIUS's tables.
    Postgresql,
}

/// A user of this file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineUser {
    /// The name that the user gives at login, with its realm.
    pub name: String,
    /// The password in clear text, for all methods. Set at most one of `password`, `password_file`, `nt_hash` and
    /// `argon2`.
    pub password: Option<SecretText>,
    /// A file with the password in clear text, not readable by others.
    pub password_file: Option<PathBuf>,
    /// The NT hash of the password, 32 hexadecimal digits, for PAP, MS-CHAP and MSCHAPv2.
    pub nt_hash: Option<SecretText>,
    /// The Argon2 hash of the password (`$argon2id$...`), for PAP, GTC and TTLS with PAP.
    pub argon2: Option<SecretText>,
    /// Check items, each as `ATTRIBUTE OPERATOR VALUE` in FreeRADIUS's syntax: `"NAS-Port-Type == Ethernet"`.
    #[serde(default)]
    pub check: Vec<String>,
    /// Reply items of an accept: `"Session-Timeout = 3600"`.
    #[serde(default)]
    pub reply: Vec<String>,
    /// Names of the user's groups, in order.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// A group of users of this file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineGroup {
    /// Its name.
    pub name: String,
    /// Check items. The group applies if all match.
    #[serde(default)]
    pub check: Vec<String>,
    /// Reply items of an accept.
    #[serde(default)]
    pub reply: Vec<String>,
}

/// Authentication methods.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MethodConfig {
    /// Offered methods. The server proposes the first EAP method; a peer may choose another. The default is PAP, CHAP,
    /// MS-CHAP and MS-CHAPv2, and for EAP with `[tls]` EAP-TLS, PEAP and TTLS, without `[tls]` EAP-MSCHAPv2 and
    /// EAP-MD5. Inner methods of PEAP and TTLS are always EAP-MSCHAPv2, EAP-GTC and EAP-MD5. TTLS also has PAP, CHAP,
    /// MS-CHAP and MS-CHAPv2.
    #[serde(deserialize_with = "order")]
    #[schemars(schema_with = "order_schema")]
    pub order: Option<Vec<AuthMethod>>,
    /// Whether a device without a password is accepted by its MAC address, as a user of that name (MAC authentication
    /// bypass).
    pub mab: bool,
    /// Maximum octets of an EAP-TLS, PEAP or TTLS fragment.
    pub fragment_size: u16,
    /// Whether PEAP binds the inner method to its tunnel, so that an attacker cannot relay a login into another
    /// tunnel.
    pub peap_cryptobinding: CryptobindingMode,
}

/// Whether PEAP binds the inner method to its tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CryptobindingMode {
    /// Not used.
    Off,
    /// Used with peers that support it. Other peers are accepted without it, and so is an attacker who claims not to
    /// support it.
    #[default]
    Optional,
    /// Required: other peers are rejected.
    Required,
}

impl Default for MethodConfig {
    fn default() -> Self {
        Self {
            order: None,
            mab: false,
            fragment_size: 1024,
            peap_cryptobinding: CryptobindingMode::default(),
        }
    }
}

/// `mab` is a switch of its own.
fn is_offered(method: AuthMethod) -> bool {
    method != AuthMethod::Mab
}

fn order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<AuthMethod>>, D::Error> {
    #[derive(Deserialize)]
    struct OfferedMethod(#[serde(deserialize_with = "one")] AuthMethod);
    fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AuthMethod, D::Error> {
        named::deserialize_one_of(is_offered, deserializer)
    }
    let order = Vec::<OfferedMethod>::deserialize(deserializer)?;
    Ok(Some(order.into_iter().map(|OfferedMethod(method)| method).collect()))
}

fn order_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": named::named_value_schema(is_offered) })
}

/// TLS of EAP methods, RadSec and Diameter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsTable {
    /// The server's certificate chain, PEM, with the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key, PEM, not readable by others.
    pub key: PathBuf,
    /// Certificates of the trusted authorities of clients, PEM.
    pub ca: Option<PathBuf>,
    /// Certificate revocation lists, PEM or DER. They apply to users and to RadSec and Diameter connections in both
    /// directions. A reload closes connections with revoked certificates.
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    /// The folder of an authority of `usher aaa cert` with a key that the server's user can read. The server uses its
    /// list, and reissues it before it expires.
    pub crl_authority: Option<PathBuf>,
    /// `http://` URLs from which the server fetches revocation lists of the authorities in `ca`.
    #[serde(default)]
    pub crl_url: Vec<String>,
    /// Whether it also fetches lists from the CRL distribution points of the server's certificate and of those in
    /// `ca`.
    #[serde(default)]
    pub crl_distribution_points: bool,
    /// Hosts from which it also fetches lists. Users' certificates, and those between them and `ca`, name these lists.
    /// Write host names (`crl.example.org`, `*.example.org`), with a port if it is not 80. Empty: distribution points
    /// of these certificates are ignored.
    #[serde(default)]
    pub crl_from_users: Vec<String>,
    /// Interval of checks for newer lists and for changed files of `crl`: 1 s to a day.
    #[serde(default = "TlsTable::crl_interval")]
    pub crl_interval: TimeSpan,
    /// Whether the server checks users' certificates by OCSP.
    #[serde(default)]
    pub ocsp: OcspPolicy,
    /// URL of the OCSP responder, instead of the one in the certificate.
    pub ocsp_url: Option<String>,
    /// The oldest TLS version.
    #[serde(default = "TlsTable::oldest", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub min_version: TlsVersion,
    /// The newest TLS version.
    #[serde(default = "TlsTable::newest", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub max_version: TlsVersion,
    /// Maximum number of cached sessions for resumption; 0: no resumption.
    #[serde(default = "TlsTable::sessions")]
    pub sessions: usize,
    /// How long a session can be resumed after the user's last login with a proof; at most 7 days. It ends earlier
    /// when a certificate of the user expires, when the user or the password changes, and at a reload.
    #[serde(default = "TlsTable::session_lifetime")]
    pub session_lifetime: TimeSpan,
}

impl TlsTable {
    fn crl_interval() -> TimeSpan {
        TimeSpan::from_secs(3600)
    }
    fn oldest() -> TlsVersion {
        TlsVersion::Tls12
    }
    fn newest() -> TlsVersion {
        TlsVersion::Tls13
    }
    fn sessions() -> usize {
        4096
    }
    fn session_lifetime() -> TimeSpan {
        TimeSpan::from_secs(24 * 60 * 60)
    }
}

/// Whether certificates are checked by OCSP.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OcspPolicy {
    /// Never.
    #[default]
    Off,
    /// Checked. Without an OCSP response the certificate is accepted.
    Soft,
    /// Checked. Without an OCSP response the certificate is rejected.
    Hard,
}

/// An address pool, for users with its name in Pool-Name.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTable {
    /// Its name in users' Pool-Name.
    pub name: String,
    /// Ranges of addresses, as `"192.0.2.10-192.0.2.99"` or `"192.0.2.0/24"`, and of IPv6 prefixes of one length, as
    /// `"2001:db8::/40/56"`. With ranges of both kinds a session gets one of each.
    #[serde(default)]
    pub ranges: Vec<String>,
    /// How long an address stays leased to a session without accounting.
    #[serde(default = "PoolTable::hold")]
    pub hold: TimeSpan,
}

impl PoolTable {
    fn hold() -> TimeSpan {
        TimeSpan::from_secs(300)
    }
}

/// Limits of users, and of the server's memory.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Maximum number of sessions of a user without Simultaneous-Use.
    pub simultaneous: Option<u32>,
    /// Failed logins of a name or device within `failure_window` that lock it out for `lockout_time`; 0: no lockout.
    pub failures: u32,
    /// The time in which `failures` are counted.
    pub failure_window: TimeSpan,
    /// The time of the lockout.
    pub lockout_time: TimeSpan,
    /// Maximum number of unfinished logins per thread. Beyond it, the client that most exceeds its share loses its
    /// oldest one.
    pub half_open: usize,
    /// Approximate maximum memory of unfinished logins of all threads. Beyond it, the client whose logins use the most
    /// memory loses its oldest one. A login in a TLS handshake uses 20 KiB, or up to 80 KiB with an incomplete long
    /// message. Other logins use a few KiB.
    pub half_open_memory: ByteSize,
    /// Maximum number of requests and cached replies per thread.
    pub requests: usize,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            simultaneous: None,
            failures: 0,
            failure_window: TimeSpan::from_secs(60),
            lockout_time: TimeSpan::from_secs(60),
            half_open: 100_000,
            half_open_memory: ByteSize::from_mib(512),
            requests: 1 << 18,
        }
    }
}

/// Accounting.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountingConfig {
    /// How long a session without accounting records counts as open.
    pub stale_after: TimeSpan,
    /// Whether each decided login is written to the table radpostauth.
    pub logins: bool,
    /// A file with 32 or more random characters, not readable by others. Its key hides names from clients
    /// (`inner_name`), and derives Chargeable-User-Identities. Servers that take over each other's accounting need the
    /// same key [default: identity.key in the state directory, created at the first start].
    pub identity_key_file: Option<PathBuf>,
}

impl Default for AccountingConfig {
    fn default() -> Self {
        Self { stale_after: TimeSpan::from_secs(86_400), logins: false, identity_key_file: None }
    }
}

/// Metrics for Prometheus at /metrics and a health check at /health.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// The address, such as `"127.0.0.1:9812"`. Without it there are no metrics.
    pub listen: Option<SocketAddr>,
}

/// The socket through which `usher aaa` controls the running server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSocketConfig {
    /// Its path [default: control.sock in the state directory].
    pub socket: Option<PathBuf>,
}
