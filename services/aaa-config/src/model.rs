//! The configuration file as types. The documentation of these items is the published schema's.

pub use super::elsewhere::{
    BalanceMode, Diameter, DiameterPeer, DiameterSctp, HomeServer, NoAnswerAction, RealmAccounting,
    RealmConfig, SctpOrder,
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
    /// How many threads serve requests, each with sockets of its own; without it one for each core.
    pub shards: Option<u16>,
    /// Where the server keeps what it makes itself: the generated secret, the SQLite database, the control socket.
    pub state_dir: Option<PathBuf>,
    /// How long after its request a reject goes out, so that guessing passwords is slow and what the verdict took
    /// does not show.
    pub reject_delay: TimeSpan,
    /// How long a login may stand still before it is forgotten.
    pub session_timeout: TimeSpan,
    /// How long a login may take in all, from its first request to its verdict, however busy it is.
    pub login_timeout: TimeSpan,
    /// Dictionaries of vendors' attributes in FreeRADIUS's syntax, beside those that the server has itself; what a file
    /// includes is sought from its own folder. Later definitions replace earlier ones of the same name or number.
    pub dictionary: Vec<PathBuf>,
    /// Addresses to listen on.
    pub listen: ListenConfig,
    /// Who may ask: network access servers, proxies.
    pub client: Vec<ConfiguredClient>,
    /// Where users are kept.
    pub users: UserStoreConfig,
    /// Users written here; they are found before those of the store.
    pub user: Vec<InlineUser>,
    /// Groups of the users written here.
    pub group: Vec<InlineGroup>,
    /// How users may prove who they are.
    pub methods: MethodConfig,
    /// The server's certificate and whom it trusts; without it neither EAP-TLS, PEAP, TTLS nor RadSec is offered.
    pub tls: Option<TlsTable>,
    /// Realms: the part of a user's name behind `@`.
    pub realm: Vec<RealmConfig>,
    /// Servers to which requests of other realms go.
    pub home_server: Vec<HomeServer>,
    /// Addresses to hand out.
    pub pool: Vec<PoolTable>,
    /// What nobody may exceed.
    pub limits: LimitConfig,
    /// Accounting.
    pub accounting: AccountingConfig,
    /// Who this server is in Diameter; without it Diameter is not served.
    pub diameter: Option<Diameter>,
    /// Metrics for Prometheus, and a health check.
    pub metrics: MetricsConfig,
    /// Logs.
    pub log: LogConfig,
    /// The socket by which `usher aaa` speaks to the running server.
    pub control: ControlConfig,
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
            control: ControlConfig::default(),
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
    /// RADIUS over TLS (RFC 6614), authentication and accounting alike; port 2083.
    pub radsec: Vec<SocketAddr>,
    /// Diameter over TCP; port 3868.
    pub diameter: Vec<SocketAddr>,
    /// Diameter over TLS; port 5658.
    pub diameter_tls: Vec<SocketAddr>,
    /// Diameter over SCTP; port 3868. Addresses of one port are those of one endpoint, which peers reach by each of them, and
    /// of which they are told (RFC 6733, 5.3.1): none may be unspecified.
    pub diameter_sctp: Vec<SocketAddr>,
}

impl Default for ListenConfig {
    /// Loopback alone: whoever wants more names it.
    fn default() -> Self {
        let both = |port| {
            vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))]
        };
        Self {
            auth: both(1812),
            acct: both(1813),
            radsec: Vec::new(),
            diameter: Vec::new(),
            diameter_tls: Vec::new(),
            diameter_sctp: Vec::new(),
        }
    }
}

/// A client: who may ask.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfiguredClient {
    /// What logs and metrics call it.
    pub name: String,
    /// Its addresses. The longest prefix that fits wins.
    pub prefix: Prefix,
    /// The secret shared with it. Exactly one of `secret`, `secret_file` and `secret_env` is needed, unless it comes
    /// by RadSec alone (`certificate`).
    pub secret: Option<SecretText>,
    /// A file that holds the secret, readable by nobody else; its last line end does not count.
    pub secret_file: Option<PathBuf>,
    /// An environment variable that holds the secret.
    pub secret_env: Option<String>,
    /// Whether an Access-Request must carry a Message-Authenticator, against BlastRADIUS.
    #[serde(default)]
    pub message_authenticator: MessageAuthenticator,
    /// With TLS 1.2 in EAP, whether a user's device may lack the Extended Master Secret (RFC 7627), without which what is
    /// proven in a TLS session is not bound to that session alone.
    #[serde(default)]
    pub extended_master_secret: ExtendedMasterSecret,
    /// For RadSec: the name (DNS name or IP address of the subject alternative names, or common name) that the client's
    /// certificate must bear.
    pub certificate: Option<String>,
    /// For RadSec: the SHA-256 fingerprint of the client's certificate, in place of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Access servers that it speaks for beside itself, by the address that they call themselves (NAS-IP-Address,
    /// NAS-IPv6-Address): those behind a proxy, or an address that it does not send from; `"0.0.0.0/0"`: all. A client
    /// speaks for its own addresses without being named here. What it reports of others counts as its own, so that it
    /// cannot end the sessions of another client.
    #[serde(default)]
    pub nas: Vec<Prefix>,
    /// Whether it hears who a user is who is anonymous outside of a tunnel.
    #[serde(default)]
    pub inner_name: InnerName,
}

/// Whether a client hears the identity within a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InnerName {
    /// No. It hears a Class that only this server can read, and sends it back with accounting, which is then kept under
    /// the user's name.
    #[default]
    Hide,
    /// Yes, as User-Name of the Access-Accept.
    Send,
}

/// Whether TLS 1.2 needs the Extended Master Secret.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExtendedMasterSecret {
    /// A handshake without it is refused.
    #[default]
    Required,
    /// For old devices: a handshake without it is taken.
    Optional,
}

/// What is asked of Access-Requests without EAP.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MessageAuthenticator {
    /// Each must carry a Message-Authenticator.
    #[default]
    Required,
    /// For clients that cannot: those without one are taken, unless they carry Proxy-State, which an attacker needs.
    LimitProxyState,
    /// Those without one are taken. An attacker on the path can forge answers.
    Off,
}

/// Where users are kept.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserStoreConfig {
    /// Which store; accounting goes there too.
    pub store: StoreKind,
    /// For sqlite: the database's file [default: usher.db in the state directory].
    pub path: Option<PathBuf>,
    /// For postgresql: where it is, such as `"host=db.example user=radius dbname=radius"`. A password belongs into
    /// `url_file` or `url_env`. TLS is by libpq's `sslmode` (`prefer` if not said; across a network `verify-full`), `sslrootcert`,
    /// `sslcert` and `sslkey`.
    pub url: Option<SecretText>,
    /// A file that holds the url, readable by nobody else.
    pub url_file: Option<PathBuf>,
    /// An environment variable that holds the url.
    pub url_env: Option<String>,
    /// What becomes of a login whose user, or a group of that user, has a row of a reply that cannot be understood. A check
    /// that cannot be understood always refuses.
    pub bad_reply: BadReply,
    /// How many users of the store each thread remembers, and how many all together for when the store is away.
    pub cache_entries: usize,
    /// How long a user is served from memory before the store is asked again: the longest time for which a user who
    /// was removed from the store by other means than `usher aaa user del` can still log in.
    pub cache_ttl: TimeSpan,
    /// How long a name that nobody has is remembered: the longest time for which a user who was added to the store by
    /// other means than `usher aaa user add` is still turned away.
    pub cache_unknown: TimeSpan,
    /// How many threads ask the store, and how many compare passwords with slow hashes.
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
            bad_reply: BadReply::default(),
            cache_entries: 100_000,
            cache_ttl: TimeSpan::from_secs(60),
            cache_unknown: TimeSpan::from_secs(5),
            threads: 2,
        }
    }
}

/// What becomes of a login of which a part of the reply cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BadReply {
    /// It is refused: what is missing could be the filter or the VLAN that keeps the user where the user belongs.
    #[default]
    Refuse,
    /// The row is left out, and the log says so.
    LeaveOut,
}

/// Which store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Only the users of this file; accounting is acknowledged and kept in memory, and lost at the end.
    Memory,
    /// An SQLite database, made at the first start.
    Sqlite,
    /// A PostgreSQL database with FreeRADIUS's tables.
    Postgresql,
}

/// A user written into the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineUser {
    /// As the user gives it at login, with its realm.
    pub name: String,
    /// The password in clear, which every method can use. At most one of `password`, `password_file`, `nt_hash` and
    /// `argon2`.
    pub password: Option<SecretText>,
    /// A file that holds the password in clear, readable by nobody else.
    pub password_file: Option<PathBuf>,
    /// The password's NT hash, 32 hexadecimal digits: for PAP, MS-CHAP and MSCHAPv2.
    pub nt_hash: Option<SecretText>,
    /// The password's argon2 hash (`$argon2id$...`): for PAP, GTC and TTLS with PAP.
    pub argon2: Option<SecretText>,
    /// What must hold, one `ATTRIBUTE OPERATOR VALUE` each, as FreeRADIUS writes them: `"NAS-Port-Type == Ethernet"`.
    #[serde(default)]
    pub check: Vec<String>,
    /// What an accept says besides: `"Session-Timeout = 3600"`.
    #[serde(default)]
    pub reply: Vec<String>,
    /// Names of groups, in their order.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// A group of users written into the file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InlineGroup {
    /// Its name.
    pub name: String,
    /// What must hold for the group to apply.
    #[serde(default)]
    pub check: Vec<String>,
    /// What an accept says besides.
    #[serde(default)]
    pub reply: Vec<String>,
}

/// How users may prove who they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MethodConfig {
    /// What is offered; of the EAP methods the first is proposed first, and a peer may choose another. Without it PAP, CHAP,
    /// MS-CHAP and MS-CHAPv2, and of EAP with `[tls]` EAP-TLS, PEAP and TTLS, without it EAP-MSCHAPv2 and EAP-MD5. Inside
    /// PEAP and TTLS there are always EAP-MSCHAPv2, EAP-GTC and EAP-MD5, inside TTLS also PAP, CHAP, MS-CHAP and MS-CHAPv2.
    #[serde(deserialize_with = "order")]
    #[schemars(schema_with = "order_schema")]
    pub order: Option<Vec<AuthMethod>>,
    /// Whether a device without a password is let in by its MAC address, as a user of that name (MAC authentication
    /// bypass).
    pub mab: bool,
    /// The most octets of one EAP-TLS, PEAP or TTLS fragment.
    pub fragment_size: u16,
    /// Whether PEAP's inner method is bound to its tunnel, so that nobody can relay a login into a tunnel of his own.
    pub peap_cryptobinding: CryptobindingMode,
}

/// Whether PEAP's inner method is bound to its tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CryptobindingMode {
    /// It is not.
    Off,
    /// It is, with peers that can; those that cannot are taken as they are, and so is whoever pretends that.
    #[default]
    Optional,
    /// Peers that cannot are refused.
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
    json_schema!({ "type": "array", "items": named::schema_of(is_offered) })
}

/// TLS: for EAP methods, RadSec and Diameter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsTable {
    /// The server's certificate with those above it, PEM, the server's own first.
    pub certificate: PathBuf,
    /// Its private key, PEM, readable by nobody else.
    pub key: PathBuf,
    /// Certificates of the authorities whose clients are trusted, PEM.
    pub ca: Option<PathBuf>,
    /// Certificate revocation lists, PEM or DER: for users, for RadSec and Diameter, incoming and outgoing. A reload closes
    /// connections whose certificates are on them.
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    /// The folder of an authority of `usher aaa cert` whose key this server's user can read: its list is used, and made anew
    /// before it ends.
    pub crl_authority: Option<PathBuf>,
    /// Where revocation lists of the authorities in `ca` are fetched: `http://` URLs.
    #[serde(default)]
    pub crl_url: Vec<String>,
    /// Whether they are fetched, too, from where the server's certificate and those of `ca` say (CRL distribution points).
    #[serde(default)]
    pub crl_distribution_points: bool,
    /// Hosts from which they are fetched, too, where the certificates of users, and those between them and `ca`, say so: names
    /// (`crl.example.org`, `*.example.org`), with a port where it is not 80. None: those certificates are not asked.
    #[serde(default)]
    pub crl_from_users: Vec<String>,
    /// How often it is looked whether there is a later list, and whether a file of `crl` is another: 1 s to a day.
    #[serde(default = "TlsTable::crl_interval")]
    pub crl_interval: TimeSpan,
    /// Whether the authority is asked if a user's certificate still holds (OCSP).
    #[serde(default)]
    pub ocsp: OcspPolicy,
    /// Where OCSP is asked, in place of what the certificate says.
    pub ocsp_url: Option<String>,
    /// The oldest version that is spoken.
    #[serde(default = "TlsTable::oldest", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub min_version: TlsVersion,
    /// The newest version that is spoken.
    #[serde(default = "TlsTable::newest", deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<TlsVersion>")]
    pub max_version: TlsVersion,
    /// How many sessions are kept to be taken up again; 0: none.
    #[serde(default = "TlsTable::sessions")]
    pub sessions: usize,
    /// How long a session can be taken up again after the user has last logged in with a proof; at most 7 days. It ends
    /// before when a certificate of the user ends, when the user or the user's password is changed, and at a reload.
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

/// Whether the authority is asked if a certificate still holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OcspPolicy {
    /// Never.
    #[default]
    Off,
    /// Asked; where there is no answer, the certificate is taken.
    Soft,
    /// Asked; where there is no answer, the certificate is refused.
    Hard,
}

/// Addresses to hand out to the users whose Pool-Name says so.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTable {
    /// What users' Pool-Name calls it.
    pub name: String,
    /// What it gives out: addresses as `"192.0.2.10-192.0.2.99"` or `"192.0.2.0/24"`, each IPv6 prefix of a length as
    /// `"2001:db8::/40/56"`. From ranges of both kinds a session gets one of each.
    #[serde(default)]
    pub ranges: Vec<String>,
    /// How long an address that was given is kept for a session of which no accounting comes.
    #[serde(default = "PoolTable::hold")]
    pub hold: TimeSpan,
}

impl PoolTable {
    fn hold() -> TimeSpan {
        TimeSpan::from_secs(300)
    }
}

/// What nobody may exceed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Sessions that a user may have at one time, where the user's own Simultaneous-Use does not say.
    pub simultaneous: Option<u32>,
    /// Failed logins under one name or from one device, after which nothing more of it is weighed; 0: no limit.
    pub failures: u32,
    /// Within this time.
    pub failures_within: TimeSpan,
    /// For this long.
    pub failures_hold: TimeSpan,
    /// Unfinished logins that each thread keeps; beyond it the oldest of the client most over its share goes.
    pub half_open: usize,
    /// Memory that unfinished logins of all threads may hold, about; beyond it the oldest of the client whose logins hold
    /// the most goes. One amid a TLS handshake holds 20 KiB, and up to 80 with a long message that is not whole yet; others
    /// hold a few.
    pub half_open_memory: ByteSize,
    /// Requests and kept replies of each thread.
    pub requests: usize,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            simultaneous: None,
            failures: 0,
            failures_within: TimeSpan::from_secs(60),
            failures_hold: TimeSpan::from_secs(60),
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
    /// How long a session of which nothing is heard counts as open.
    pub stale_after: TimeSpan,
    /// Whether each decided login is written to table radpostauth.
    pub logins: bool,
    /// A file with 32 or more random characters, readable by nobody else: by them names are kept from clients
    /// (`inner_name`) and made into Chargeable-User-Identities. Servers that take each other's accounting have the same
    /// [default: identity.key in the state directory, made at the first start].
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
    /// Where, such as `"127.0.0.1:9812"`; without it there are none.
    pub listen: Option<SocketAddr>,
}

/// The socket by which `usher aaa` speaks to the running server.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Its path [default: control.sock in the state directory].
    pub socket: Option<PathBuf>,
}
