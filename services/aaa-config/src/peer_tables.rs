//! Home servers, Diameter peers, and the realms that use them, as types. The documentation of these items is the
//! published schema's.

use super::model::SecretText;
use super::units::Fingerprint;
use core::net::SocketAddr;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_config::Prefix;
use usher_config::units::TimeSpan;
use usher_core::TransportProtocol;
use usher_diameter::stream::StreamPolicy;
use usher_radius::client::ServerLivenessConfig;

/// The target of a realm's requests.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RealmConfig {
    /// The realm, in any case. `"*"` is every realm without an entry; `""` is a name without a realm.
    pub name: String,
    /// Whether realms below it are included, as `cs.example.org` is below `example.org`. The longest matching name
    /// wins.
    #[serde(default)]
    pub subrealms: bool,
    /// Names of home servers in order of preference. Without any, this server decides.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Identities of Diameter peers in order of preference, instead of `servers`. EAP is translated (RFC 4072), other
    /// logins are rejected, and this server keeps the accounting.
    #[serde(default)]
    pub diameter: Vec<String>,
    /// Whether the realm's users are rejected.
    #[serde(default)]
    pub refuse: bool,
    /// Where accounting of the users of `servers` is kept.
    #[serde(default)]
    pub accounting: RealmAccounting,
    /// How requests are distributed over the servers.
    #[serde(default)]
    pub balance: HomeServerBalanceMode,
    /// Whether the realm is removed from the user name before the name is used or forwarded.
    #[serde(default)]
    pub strip: bool,
    /// Further attributes that replies of `servers` and `diameter` may contain. Write names such as
    /// `"Tunnel-Private-Group-Id"` or `"Cisco-AVPair"`, numbers such as `"26.9.1"` (vendor 9, type 1) or `"26.9"` (all
    /// of vendor 9), or `"*"` for all. By default VLANs, filters, addresses, privileges and vendor attributes other
    /// than keys are left out. So is a User-Name of another realm.
    #[serde(default)]
    pub accept: Vec<String>,
    /// Further attributes that `servers` get, written as in `accept`. By default VLANs, filters, privileges and vendor
    /// attributes other than those that prove a password are left out.
    #[serde(default)]
    pub send: Vec<String>,
    /// The reply to an access server if none of `servers` or `diameter` answers a login.
    #[serde(default)]
    pub unanswered: NoHomeServerAnswerAction,
}

/// The reply to an access server if no home server answers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoHomeServerAnswerAction {
    /// None, so that the access server may fail over to another server.
    #[default]
    Silence,
    /// Access-Reject, for access servers that have no other server and would let the user wait.
    Reject,
}

/// Where a realm's accounting is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RealmAccounting {
    /// At the home servers. The client gets their acknowledgement.
    #[default]
    Forward,
    /// At this server only.
    Local,
    /// At both: this server stores and acknowledges a record, then forwards it.
    StoreAndForward,
}

/// How requests are distributed over servers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HomeServerBalanceMode {
    /// To the first server that is alive.
    #[default]
    Failover,
    /// To each in turn. A login stays with its server.
    LoadBalance,
}

/// A server to which requests are proxied.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HomeServer {
    /// Its name in `servers` of realms.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its address for accounting [default: the next port].
    pub acct_address: Option<SocketAddr>,
    /// The transport: RADIUS over UDP, or RadSec (RFC 6614) with the certificate of `[tls]`.
    #[serde(default = "HomeServer::transport", deserialize_with = "of_radius::read")]
    #[schemars(schema_with = "of_radius::schema")]
    pub transport: TransportProtocol,
    /// For `tls`: the name that its certificate must have. It is a DNS name or IP address of the subject alternative
    /// names, or the common name.
    pub certificate: Option<String>,
    /// For `tls`: the SHA-256 fingerprint of its certificate, instead of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Whether its replies to logins must have a Message-Authenticator. FreeRADIUS before 3.2.5 sends none for logins
    /// without EAP. Without it an attacker on the path can forge replies (BlastRADIUS).
    #[serde(default = "HomeServer::message_authenticator")]
    pub message_authenticator: bool,
    /// How long the server may leave a request unanswered before the realm's next server gets it and later requests.
    /// If users confirm a second factor, allow the time for that.
    #[serde(default = "HomeServer::response_window")]
    pub response_window: TimeSpan,
    /// How much longer it may stay silent before it is dead and gets only status checks. Any answer before that makes
    /// it alive.
    #[serde(default = "HomeServer::zombie_period")]
    pub zombie_period: TimeSpan,
    /// Whether it is probed by Status-Server (RFC 5997).
    #[serde(default = "HomeServer::status_check")]
    pub status_check: bool,
    /// Interval of status checks while it is dead, and on an idle RadSec connection; at least 6 s (RFC 3539).
    #[serde(default = "HomeServer::check_interval")]
    pub check_interval: TimeSpan,
    /// Number of consecutive answers to status checks that make it alive.
    #[serde(default = "HomeServer::num_answers_to_alive")]
    pub num_answers_to_alive: u32,
    /// Time after which a dead server gets requests again, if status checks are off or it never answered one.
    #[serde(default = "HomeServer::revive_interval")]
    pub revive_interval: TimeSpan,
    /// The shared secret. For `tls` the default is "radsec".
    pub secret: Option<SecretText>,
    /// A file with the secret, not readable by others.
    pub secret_file: Option<PathBuf>,
    /// An environment variable with the secret.
    pub secret_env: Option<String>,
}

usher_config::some_of!(of_radius: TransportProtocol, |t| matches!(t, TransportProtocol::Udp | TransportProtocol::Tls));
usher_config::some_of!(
    of_peers: TransportProtocol,
    |t| matches!(t, TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Sctp)
);

impl HomeServer {
    const fn transport() -> TransportProtocol {
        TransportProtocol::Udp
    }
    const fn message_authenticator() -> bool {
        true
    }
    fn response_window() -> TimeSpan {
        TimeSpan(ServerLivenessConfig::default().window)
    }
    fn zombie_period() -> TimeSpan {
        TimeSpan(ServerLivenessConfig::default().zombie)
    }
    fn status_check() -> bool {
        ServerLivenessConfig::default().status
    }
    fn check_interval() -> TimeSpan {
        TimeSpan(ServerLivenessConfig::default().interval)
    }
    fn num_answers_to_alive() -> u32 {
        ServerLivenessConfig::default().answers
    }
    fn revive_interval() -> TimeSpan {
        TimeSpan(ServerLivenessConfig::default().revive)
    }
    /// Returns the settings of its liveness detection.
    pub(crate) const fn liveness(&self) -> ServerLivenessConfig {
        ServerLivenessConfig {
            window: self.response_window.0,
            zombie: self.zombie_period.0,
            interval: self.check_interval.0,
            status: self.status_check,
            answers: self.num_answers_to_alive,
            revive: self.revive_interval.0,
        }
    }
}

/// The server's identity in Diameter, and its peers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiameterTable {
    /// Its DiameterIdentity: a full host name.
    pub identity: String,
    /// Its realm.
    pub realm: String,
    /// Further realms that it serves; `"*"`: any.
    #[serde(default)]
    pub realms: Vec<String>,
    /// Agents that a request may have passed, by its Route-Record AVPs: identities, `"*.example.net"` for all of a
    /// realm, `"*"` for any. Other requests get DIAMETER_AUTHORIZATION_REJECTED.
    #[serde(default = "DiameterTable::agents")]
    pub agents: Vec<String>,
    /// Identities of peers that may connect; their certificates must have these names. If both `peers` and `peer` are
    /// empty, any peer may connect. List a peer without TLS on another machine in `peer` instead: only its address
    /// identifies it.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Peers with further settings.
    #[serde(default)]
    pub peer: Vec<DiameterPeer>,
    /// Interval of watchdog requests (RFC 3539), at least 6 s.
    #[serde(default = "DiameterTable::watchdog")]
    pub watchdog: TimeSpan,
    /// Settings of SCTP.
    #[serde(default)]
    pub sctp: DiameterSctp,
}

/// Diameter over SCTP (RFC 6733, 2.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiameterSctp {
    /// Streams per direction of an association. The peer may allow fewer.
    pub streams: u16,
    /// The order of messages.
    pub order: SctpOrder,
    /// Whether small messages are sent at once, without waiting for acknowledgements (`SCTP_NODELAY`).
    pub nodelay: bool,
}

impl Default for DiameterSctp {
    fn default() -> Self {
        Self { streams: 16, order: SctpOrder::Session, nodelay: true }
    }
}

/// Which messages of an association wait when one is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SctpOrder {
    /// All later messages: they use one stream.
    One,
    /// Later messages of the same session, and of sessions on the same stream.
    Session,
    /// None.
    Unordered,
}

impl From<SctpOrder> for StreamPolicy {
    fn from(order: SctpOrder) -> Self {
        match order {
            SctpOrder::One => Self::SingleStream,
            SctpOrder::Session => Self::BySession,
            SctpOrder::Unordered => Self::Unordered,
        }
    }
}

impl DiameterTable {
    fn agents() -> Vec<String> {
        vec!["*".to_owned()]
    }
    fn watchdog() -> TimeSpan {
        TimeSpan::from_secs(30)
    }
}

/// A Diameter peer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiameterPeer {
    /// Its DiameterIdentity.
    pub identity: String,
    /// Networks from which it may connect [default: the address of `connect`, or any without `connect`].
    #[serde(default)]
    pub prefix: Vec<Prefix>,
    /// The address to which this server connects. Without it only the peer connects.
    pub connect: Option<SocketAddr>,
    /// The transport of the connection. `tls` uses the certificate of `[tls]`, and the peer must use TLS, too.
    #[serde(default = "DiameterPeer::transport", deserialize_with = "of_peers::read")]
    #[schemars(schema_with = "of_peers::schema")]
    pub transport: TransportProtocol,
    /// The name that its certificate must have: a DNS name of the subject alternative names, or the common name
    /// [default: its identity].
    pub certificate: Option<String>,
    /// The SHA-256 fingerprint of its certificate, instead of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Nodes for which it relays requests: DiameterIdentities, `"*.example.org"` for all of a realm, `"*"` for any. A
    /// request of any other node counts as the peer's own, so it cannot end sessions of another peer.
    #[serde(default)]
    pub origins: Vec<String>,
}

impl DiameterPeer {
    const fn transport() -> TransportProtocol {
        TransportProtocol::Tcp
    }
}
