//! Status of a gateway and its IKE_SAs.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::Duration;
use usher_esp::plane::SaUsage;
use usher_ike::Spi;

/// The status of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// The established IKE_SAs.
    pub sas: Vec<IkeSaStatus>,
    /// Number of half-open IKE_SAs.
    pub half_open: usize,
    /// Each pool: its name, addresses in use, addresses in all.
    pub pools: Vec<(String, u64, u64)>,
    /// The counters of the gateway and its subscribers, of its endpoint (prefix `ike_`) and of its RADIUS client (prefix `radius_`).
    pub counters: Vec<(String, u64)>,
}

/// An established IKE_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeSaStatus {
    /// Its id, which changes with rekeying.
    pub id: u64,
    /// The name of its connection.
    pub connection: String,
    /// The peer's identity.
    pub identity: String,
    /// The user name in accounting.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// True if this side initiated it.
    pub initiator: bool,
    /// The SPIs of the initiator and of the responder.
    pub spis: (Spi, Spi),
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Its age, with the IKE_SAs that it has replaced.
    pub lasted: Duration,
    /// The virtual addresses of the initiator.
    pub addresses: Vec<IpAddr>,
    /// The name servers assigned to this side.
    pub dns: Vec<IpAddr>,
    /// The domains of these name servers; empty means all.
    pub domains: Vec<String>,
    /// The traffic of its CHILD_SAs, with former ones.
    pub usage: SaUsage,
    /// Its CHILD_SAs.
    pub children: Vec<ChildSaStatus>,
}

/// A CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSaStatus {
    /// The name of its configuration.
    pub name: String,
    /// The inbound SPI.
    pub inbound: u32,
    /// The outbound SPI.
    pub outbound: u32,
    /// The local traffic selectors.
    pub local: Vec<String>,
    /// The peer's traffic selectors.
    pub remote: Vec<String>,
    /// True with UDP encapsulation.
    pub encapsulated: bool,
    /// True in transport mode, false in tunnel mode.
    pub transport: bool,
    /// Its age.
    pub lasted: Duration,
    /// Its traffic.
    pub usage: SaUsage,
}
