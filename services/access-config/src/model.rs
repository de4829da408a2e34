//! The tables as types. The published schemas use the documentation of these items.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use usher_config::secret::SecretText;
use usher_config::units::{PositiveCount, TimeSpan};
use usher_core::TransportProtocol;

/// An address pool.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolTable {
    /// Its name: what connections, and Framed-Pool of AAA servers, call it.
    pub name: String,
    /// Addresses: `"10.9.0.0/16"`, `"10.9.0.10-10.9.0.99"`, `"2001:db8:9::/112"`.
    pub ranges: Vec<String>,
}

/// AAA servers. RADIUS, Diameter, or a server within the same program: one of these.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AaaTable {
    /// NAS-Identifier: as what this access server asks.
    pub nas_identifier: Option<String>,
    /// NAS-IP-Address.
    pub nas_address: Option<IpAddr>,
    /// Whether AAA servers are told when sessions begin and end.
    pub accounting: bool,
    /// How often they are told between these, where they do not say how often themselves.
    pub interim: Option<TimeSpan>,
    /// For how long a record of accounting is sent again that no server acknowledges, before it is lost.
    pub accounting_retry: TimeSpan,
    /// How many such records wait; beyond that the oldest is lost.
    pub accounting_queue: PositiveCount,
    /// An AAA server within the same program: the file of its configuration, as `usher aaa serve` takes it. It is asked by RADIUS at
    /// this host's loopback, at ports and with a secret that nobody has to name, and serves whom else its file names.
    pub server: Option<PathBuf>,
    /// RADIUS servers, the preferred first; the next is asked when one does not answer.
    pub radius: Vec<RadiusTable>,
    /// Who may end and change sessions by RADIUS (RFC 5176).
    pub dynamic: Option<DynamicTable>,
    /// Diameter.
    pub diameter: Option<DiameterTable>,
    /// For servers that are reached by TLS.
    pub tls: Option<TlsTable>,
}

impl Default for AaaTable {
    fn default() -> Self {
        let patience = usher_access::AccountingRetryConfig::default();
        Self {
            nas_identifier: None,
            nas_address: None,
            accounting: false,
            interim: None,
            accounting_retry: TimeSpan(patience.lasts),
            accounting_queue: PositiveCount::from_u32(u32::try_from(patience.most).unwrap_or(u32::MAX)),
            server: None,
            radius: Vec::new(),
            dynamic: None,
            diameter: None,
            tls: None,
        }
    }
}

/// A RADIUS server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RadiusTable {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it takes accounting; of `udp` [default: the next port].
    pub acct_address: Option<SocketAddr>,
    /// How it is reached: RADIUS over UDP, or RadSec (RFC 6614).
    #[serde(default = "RadiusTable::transport", deserialize_with = "of_radius::read")]
    #[schemars(schema_with = "of_radius::schema")]
    pub transport: TransportProtocol,
    /// For `tls`: the name that its certificate must bear.
    pub certificate: Option<String>,
    /// The secret shared with it; not for `tls`.
    pub secret: Option<SecretText>,
    /// A file that holds the secret, readable by nobody else.
    pub secret_file: Option<PathBuf>,
    /// An environment variable that holds the secret.
    pub secret_env: Option<String>,
    /// Whether its replies over UDP must have a Message-Authenticator. Without one whoever is between can make them, where the login is
    /// not by EAP (BlastRADIUS); `false` is for servers that send none there, as FreeRADIUS before 3.2.5 does.
    #[serde(default = "RadiusTable::message_authenticator")]
    pub message_authenticator: bool,
}

impl RadiusTable {
    const fn message_authenticator() -> bool {
        true
    }
    const fn transport() -> TransportProtocol {
        TransportProtocol::Udp
    }
}

usher_config::some_of!(of_radius: TransportProtocol, |t| matches!(t, TransportProtocol::Udp | TransportProtocol::Tls));
usher_config::some_of!(of_diameter: TransportProtocol, |t| matches!(t, TransportProtocol::Tcp | TransportProtocol::Tls));

/// Who may end and change sessions by RADIUS (RFC 5176): the servers of `[[aaa.radius]]` with their secrets, RadSec servers by
/// the connection that this access server has opened to them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicTable {
    /// Where it listens for that.
    pub listen: SocketAddr,
    /// Whether requests without Event-Timestamp are dropped (RFC 5176, 6.3): without one somebody who has heard a request can send it
    /// again later. One that is more than 300 s off is dropped anyway.
    pub require_event_timestamp: bool,
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self { listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 3799), require_event_timestamp: false }
    }
}

/// Diameter: who the access server is, and whom it asks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiameterTable {
    /// Its DiameterIdentity: a full host name.
    pub identity: String,
    /// Its realm.
    pub realm: String,
    /// The realm that is asked [default: its own].
    pub destination_realm: Option<String>,
    /// Whether the server keeps the sessions that it lets in, and may end them.
    #[serde(default)]
    pub stateful: bool,
    /// Servers, the preferred first.
    #[serde(default)]
    pub peer: Vec<DiameterPeerTable>,
}

/// A Diameter server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiameterPeerTable {
    /// Its DiameterIdentity.
    pub identity: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// How it is reached.
    #[serde(default = "DiameterPeerTable::transport", deserialize_with = "of_diameter::read")]
    #[schemars(schema_with = "of_diameter::schema")]
    pub transport: TransportProtocol,
}

impl DiameterPeerTable {
    const fn transport() -> TransportProtocol {
        TransportProtocol::Tcp
    }
}

/// A certificate of this side's with its key, and whom it trusts.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsTable {
    /// A file with its certificate and those up to its authority, PEM, its own first.
    pub certificate: PathBuf,
    /// A file with its private key, PEM, readable by nobody else.
    pub key: PathBuf,
    /// A file with the certificates of authorities that the other side's must be below, PEM.
    pub ca: PathBuf,
}

/// A user that the access server knows itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserTable {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Option<SecretText>,
    /// A file that holds the password, readable by nobody else.
    pub password_file: Option<PathBuf>,
    /// An environment variable that holds the password.
    pub password_env: Option<String>,
}
