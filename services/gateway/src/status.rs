//! Status of a gateway and its IKE_SAs.

use crate::service::IkeGateway;
use crate::session::IkeSession;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Instant};
use usher_esp::plane::SaUsage;
use usher_ike::Spi;
use usher_ike::machine::IkeSaId;

/// The status of a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// The established IKE_SAs.
    pub sas: Vec<IkeSaStatus>,
    /// Number of half-open IKE_SAs.
    pub half_open: usize,
    /// Each pool: its name, addresses in use, addresses in all.
    pub pools: Vec<(String, u64, u64)>,
    /// The counters of the gateway, of its endpoint (prefix `ike_`) and of its RADIUS client (prefix `radius_`).
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

impl IkeSession {
    pub(crate) fn sa_status(&self, sa: IkeSaId, now: Instant) -> IkeSaStatus {
        let child = |(inbound, child): (&u32, &crate::session::ChildSaRecord)| ChildSaStatus {
            name: child.name.clone(),
            inbound: *inbound,
            outbound: child.outbound,
            local: child.local.clone(),
            remote: child.remote.clone(),
            encapsulated: child.encapsulated,
            transport: child.transport,
            lasted: now.duration_since(child.since),
            usage: child.usage,
        };
        IkeSaStatus {
            id: sa.0,
            connection: self.connection.clone(),
            identity: self.identity.to_string(),
            user: String::from_utf8_lossy(&self.granted.user).into_owned(),
            session: self.id.clone(),
            initiator: self.initiator,
            spis: self.spis,
            local: self.path.local,
            remote: self.path.remote,
            lasted: now.duration_since(self.since),
            addresses: self.addresses.clone(),
            dns: self.dns.clone(),
            domains: self.domains.clone(),
            usage: self.total_usage(),
            children: self.children.iter().map(child).collect(),
        }
    }
}

impl IkeGateway {
    /// Number of initiators that authenticate by EAP or wait for an address.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }
    /// Returns the status.
    pub(crate) fn gateway_status(&self, now: Instant) -> GatewayStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, ike) = self.counters();
        let mut counters = counted("", own.iter().collect());
        counters.extend(counted("ike_", ike.iter().collect()));
        counters.extend(
            self.radius_counters().into_iter().flat_map(|radius| counted("radius_", radius.iter().collect())),
        );
        GatewayStatus {
            sas: self.sessions.iter().map(|(sa, session)| session.sa_status(*sa, now)).collect(),
            half_open: self.half_open(),
            pools: self.pool_usage().map(|(name, used, all)| (name.into(), used, all)).collect(),
            counters,
        }
    }
}
