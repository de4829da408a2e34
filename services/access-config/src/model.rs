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
    /// Its name, for connections and for Framed-Pool of AAA servers.
    pub name: String,
    /// Addresses: `"10.9.0.0/16"`, `"10.9.0.10-10.9.0.99"`, `"2001:db8:9::/112"`.
    pub ranges: Vec<String>,
}

/// The AAA servers: one of RADIUS, Diameter, or a server in the same program.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AaaTable {
    /// NAS-Identifier: this access server's name in requests.
    pub nas_identifier: Option<String>,
    /// NAS-IP-Address.
    pub nas_address: Option<IpAddr>,
    /// Whether to send accounting records to the AAA servers.
    pub accounting: bool,
    /// The interval of Interim-Updates, if the AAA server sets none.
    pub interim: Option<TimeSpan>,
    /// How long an unacknowledged accounting record is retransmitted before it is lost.
    pub accounting_retry: TimeSpan,
    /// The limit of unacknowledged accounting records. Beyond it the oldest is lost.
    pub accounting_queue: PositiveCount,
    /// An AAA server in the same program: the path of its configuration, as for `usher aaa serve`. The access server
    /// reaches it by RADIUS over loopback, with ports and a secret of its own choice. It also serves the clients of its
    /// file.
    pub server: Option<PathBuf>,
    /// RADIUS servers, the preferred first. If one does not answer, the next gets the request.
    pub radius: Vec<RadiusTable>,
    /// Dynamic authorization: AAA servers may end and change sessions (RFC 5176).
    pub dynamic: Option<DynamicAuthTable>,
    /// Diameter servers.
    pub diameter: Option<DiameterTable>,
    /// Certificates for connections over TLS.
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
    /// Its address and port.
    pub address: SocketAddr,
    /// With `udp`: its address and port for accounting [default: the next port].
    pub acct_address: Option<SocketAddr>,
    /// The transport: RADIUS over UDP, or RadSec (RFC 6614).
    #[serde(default = "RadiusTable::transport", deserialize_with = "of_radius::read")]
    #[schemars(schema_with = "of_radius::schema")]
    pub transport: TransportProtocol,
    /// With `tls`: the name that its certificate must have.
    pub certificate: Option<String>,
    /// The shared secret; not for `tls`.
    pub secret: Option<SecretText>,
    /// A file with the secret, readable only by its owner and group.
    pub secret_file: Option<PathBuf>,
    /// An environment variable with the secret.
    pub secret_env: Option<String>,
    /// Whether its replies over UDP must have a Message-Authenticator. Without one, an attacker on the path can forge
    /// replies to logins without EAP (BlastRADIUS). Set `false` only for servers that send none, such as FreeRADIUS
    /// before 3.2.5.
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

/// Dynamic authorization by RADIUS (RFC 5176). The servers of `[[aaa.radius]]` may end and change sessions: UDP servers
/// with their secrets, RadSec servers by the connection that this access server has opened.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DynamicAuthTable {
    /// The address and port for these requests.
    pub listen: SocketAddr,
    /// Whether to drop requests without Event-Timestamp (RFC 5176, 6.3), which an eavesdropper can replay later.
    /// Requests with a timestamp more than 300 s off are always dropped.
    pub require_event_timestamp: bool,
}

impl Default for DynamicAuthTable {
    fn default() -> Self {
        Self { listen: SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 3799), require_event_timestamp: false }
    }
}

/// The Diameter node of the access server, and its servers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiameterTable {
    /// Its DiameterIdentity: a full host name.
    pub identity: String,
    /// Its realm.
    pub realm: String,
    /// The Destination-Realm of requests [default: its own realm].
    pub destination_realm: Option<String>,
    /// Whether the server keeps session state and may end sessions.
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
    /// Its address and port.
    pub address: SocketAddr,
    /// The transport.
    #[serde(default = "DiameterPeerTable::transport", deserialize_with = "of_diameter::read")]
    #[schemars(schema_with = "of_diameter::schema")]
    pub transport: TransportProtocol,
}

impl DiameterPeerTable {
    const fn transport() -> TransportProtocol {
        TransportProtocol::Tcp
    }
}

/// This side's certificate with its key, and the trusted authorities.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsTable {
    /// A PEM file with its certificate chain: its own certificate first, then those up to the authority.
    pub certificate: PathBuf,
    /// A PEM file with its private key, readable only by its owner and group.
    pub key: PathBuf,
    /// A PEM file with the certificates of the authorities that may issue the peer's certificate.
    pub ca: PathBuf,
}

/// A local user.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserTable {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Option<SecretText>,
    /// A file with the password, readable only by its owner and group.
    pub password_file: Option<PathBuf>,
    /// An environment variable with the password.
    pub password_env: Option<String>,
}
