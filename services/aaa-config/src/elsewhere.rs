//! Others than this server, as types: home servers, Diameter peers, and the realms that lead to them. The documentation of
//! these items is the published schema's.

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
use usher_radius::client::LivenessConfig;

/// Where requests of a realm are decided.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RealmConfig {
    /// The realm, compared without regard to case; `"*"` is every realm that is not named, `""` a name without one.
    pub name: String,
    /// Whether the realms below it are meant too, as `cs.example.org` is below `example.org`; the longest name that fits
    /// is taken.
    #[serde(default)]
    pub subrealms: bool,
    /// Names of home servers in order of preference; none: decided here.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Identities of Diameter peers in order of preference, in place of `servers`: EAP is translated (RFC 4072), other
    /// logins are turned away, and accounting is kept here.
    #[serde(default)]
    pub diameter: Vec<String>,
    /// Whether the realm's users are turned away.
    #[serde(default)]
    pub refuse: bool,
    /// Who keeps the accounting of users of `servers`.
    #[serde(default)]
    pub accounting: RealmAccounting,
    /// How requests are spread over the servers.
    #[serde(default)]
    pub balance: BalanceMode,
    /// Whether the realm is cut off the name before it is used or sent on.
    #[serde(default)]
    pub strip: bool,
    /// What answers of `servers` and `diameter` may say beside what any home server may: names of attributes such as
    /// `"Tunnel-Private-Group-Id"` or `"Cisco-AVPair"`, numbers such as `"26.9.1"` (vendor 9, type 1) or `"26.9"` (all of vendor 9), or `"*"`
    /// for everything. Without it VLANs, filters, addresses, privileges and vendors' attributes but the keys are left out,
    /// and a User-Name of another realm.
    #[serde(default)]
    pub accept: Vec<String>,
    /// What `servers` are told of a request beside what any home server is: written as in `accept`. Without it VLANs,
    /// filters, privileges and vendors' attributes but those that prove a password are left out.
    #[serde(default)]
    pub send: Vec<String>,
    /// What an access server hears when none of `servers` or `diameter` answers a login.
    #[serde(default)]
    pub unanswered: NoAnswerAction,
}

/// What an access server hears when no home server answers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswerAction {
    /// Nothing, so that it may turn to another way.
    #[default]
    Silence,
    /// Access-Reject, for access servers that know no other way and would let the user wait.
    Reject,
}

/// Who keeps a realm's accounting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RealmAccounting {
    /// The home servers, whose acknowledgement the client gets.
    #[default]
    Forward,
    /// This server alone.
    Local,
    /// Both: this server keeps and acknowledges a record, then sends it on.
    StoreAndForward,
}

/// How requests are spread over servers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceMode {
    /// The first that lives.
    #[default]
    Failover,
    /// Each in turn; a login stays with its server.
    LoadBalance,
}

/// A server to which requests are sent on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HomeServer {
    /// What realms call it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it takes accounting [default: the next port].
    pub acct_address: Option<SocketAddr>,
    /// How it is reached: RADIUS over UDP, or RadSec (RFC 6614) with the certificate of `[tls]`.
    #[serde(default = "HomeServer::transport", deserialize_with = "of_radius::read")]
    #[schemars(schema_with = "of_radius::schema")]
    pub transport: TransportProtocol,
    /// For `tls`: the name (DNS name or IP address of the subject alternative names, or common name) that its certificate must bear.
    pub certificate: Option<String>,
    /// For `tls`: the SHA-256 fingerprint of its certificate, in place of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Whether its answers to logins must carry a Message-Authenticator. FreeRADIUS before 3.2.5 sends none to logins
    /// without EAP; without it an attacker on the path can forge answers (BlastRADIUS).
    #[serde(default = "HomeServer::message_authenticator")]
    pub message_authenticator: bool,
    /// How long it may owe an answer and say nothing before the next of the realm's servers is asked, then and from there
    /// on. With a second factor that somebody has to confirm, as long as that may take.
    #[serde(default = "HomeServer::response_window")]
    pub response_window: TimeSpan,
    /// How long it may go on saying nothing before it is dead and asked for nothing but its status; its first word brings
    /// it back before that.
    #[serde(default = "HomeServer::zombie_period")]
    pub zombie_period: TimeSpan,
    /// Whether it is asked for its status by Status-Server (RFC 5997).
    #[serde(default = "HomeServer::status_check")]
    pub status_check: bool,
    /// How often it is asked for its status while it is dead, and on a RadSec connection where nothing happens; at least
    /// 6 s (RFC 3539).
    #[serde(default = "HomeServer::check_interval")]
    pub check_interval: TimeSpan,
    /// How many answers in a row to that bring it back.
    #[serde(default = "HomeServer::num_answers_to_alive")]
    pub num_answers_to_alive: u32,
    /// After how long a dead server is tried again that is not asked for its status, or never answered that.
    #[serde(default = "HomeServer::revive_interval")]
    pub revive_interval: TimeSpan,
    /// The secret shared with it; for `tls`, "radsec" unless one is given.
    pub secret: Option<SecretText>,
    /// A file that holds the secret, readable by nobody else.
    pub secret_file: Option<PathBuf>,
    /// An environment variable that holds the secret.
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
        TimeSpan(LivenessConfig::default().window)
    }
    fn zombie_period() -> TimeSpan {
        TimeSpan(LivenessConfig::default().zombie)
    }
    fn status_check() -> bool {
        LivenessConfig::default().status
    }
    fn check_interval() -> TimeSpan {
        TimeSpan(LivenessConfig::default().interval)
    }
    fn num_answers_to_alive() -> u32 {
        LivenessConfig::default().answers
    }
    fn revive_interval() -> TimeSpan {
        TimeSpan(LivenessConfig::default().revive)
    }
    /// How it is found out whether it is alive.
    pub(crate) const fn liveness(&self) -> LivenessConfig {
        LivenessConfig {
            window: self.response_window.0,
            zombie: self.zombie_period.0,
            interval: self.check_interval.0,
            status: self.status_check,
            answers: self.num_answers_to_alive,
            revive: self.revive_interval.0,
        }
    }
}

/// Who this server is in Diameter.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Diameter {
    /// Its DiameterIdentity: a full host name.
    pub identity: String,
    /// Its realm.
    pub realm: String,
    /// Realms that it serves besides its own; `"*"` is any.
    #[serde(default)]
    pub realms: Vec<String>,
    /// Agents that a request may have passed on its way here, by its Route-Record AVPs: identities, `"*.example.net"` for
    /// all of a realm, `"*"` for any. Others are answered with DIAMETER_AUTHORIZATION_REJECTED.
    #[serde(default = "Diameter::agents")]
    pub agents: Vec<String>,
    /// Peers that may connect, by their identity, which their certificates bear; with `peer` none too: any. A peer that
    /// comes without TLS from another machine is known by its address and stands in `peer`.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Peers of which more is to be said.
    #[serde(default)]
    pub peer: Vec<DiameterPeer>,
    /// The time between watchdog requests (RFC 3539), at least 6 s.
    #[serde(default = "Diameter::watchdog")]
    pub watchdog: TimeSpan,
    /// How SCTP is used.
    #[serde(default)]
    pub sctp: DiameterSctp,
}

/// How Diameter uses SCTP (RFC 6733, 2.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiameterSctp {
    /// Streams each way that an association is to have; the other side may allow fewer.
    pub streams: u16,
    /// Which messages wait for which.
    pub order: SctpOrder,
    /// Whether small messages leave at once, and do not wait for acknowledgements of earlier ones (`SCTP_NODELAY`).
    pub nodelay: bool,
}

impl Default for DiameterSctp {
    fn default() -> Self {
        Self { streams: 16, order: SctpOrder::Session, nodelay: true }
    }
}

/// Which messages of an association wait for which, where one is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SctpOrder {
    /// All for all before them: they go by one stream.
    One,
    /// Those of a session for each other, and for those of the sessions that share its stream.
    Session,
    /// None for any other.
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

impl Diameter {
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
    /// Networks from which it may connect; none: that of `connect`, and without that any.
    #[serde(default)]
    pub prefix: Vec<Prefix>,
    /// Where this server connects to it; without it only the peer connects.
    pub connect: Option<SocketAddr>,
    /// What carries the connection; with `tls`, and the certificate of `[tls]`, the peer is not taken without.
    #[serde(default = "DiameterPeer::transport", deserialize_with = "of_peers::read")]
    #[schemars(schema_with = "of_peers::schema")]
    pub transport: TransportProtocol,
    /// The name (DNS name of the subject alternative names, or common name) that its certificate must bear [default: its
    /// identity].
    pub certificate: Option<String>,
    /// The SHA-256 fingerprint of its certificate, in place of a name.
    pub fingerprint: Option<Fingerprint>,
    /// Nodes whose requests it passes on as a relay or proxy, and which it is believed about: DiameterIdentities,
    /// `"*.example.org"` for all of a realm, `"*"` for any. What it passes on of others counts as its own, so that it
    /// cannot end the sessions of another peer.
    #[serde(default)]
    pub origins: Vec<String>,
}

impl DiameterPeer {
    const fn transport() -> TransportProtocol {
        TransportProtocol::Tcp
    }
}
