//! Status of a gateway and its IKE_SAs.

use crate::service::IkeGateway;
use crate::session::{ChildSaRecord, IkeSession};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Instant};
use usher_esp::plane::SaUsage;
use usher_esp::sa::TrafficVolume;
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

impl IkeGateway {
    /// Number of initiators that authenticate by EAP or wait for an address.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }
    fn sa_status(&self, now: Instant, sa: IkeSaId, session: &IkeSession) -> Option<IkeSaStatus> {
        let subscriber = self.subscribers.session(session.subscriber)?;
        let child = |(inbound, child): (&u32, &ChildSaRecord)| ChildSaStatus {
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
        let traffic = subscriber.traffic();
        Some(IkeSaStatus {
            id: sa.0,
            connection: session.connection.clone(),
            identity: session.identity.to_string(),
            user: String::from_utf8_lossy(&subscriber.grant.user).into_owned(),
            session: subscriber.acct_session_id().into(),
            initiator: session.initiator,
            spis: session.spis,
            local: session.path.local,
            remote: session.path.remote,
            lasted: subscriber.duration(now),
            addresses: session.addresses.clone(),
            dns: session.dns.clone(),
            domains: session.domains.clone(),
            usage: SaUsage {
                received: TrafficVolume { packets: traffic.input_packets, octets: traffic.input_octets },
                sent: TrafficVolume { packets: traffic.output_packets, octets: traffic.output_octets },
                ..SaUsage::default()
            },
            children: session.children.iter().map(child).collect(),
        })
    }
    /// Returns the status.
    pub(crate) fn gateway_status(&self, now: Instant) -> GatewayStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, subscribers, ike) = self.counters();
        let mut counters = counted("", own.iter().chain(subscribers.iter()).collect());
        counters.extend(counted("ike_", ike.iter().collect()));
        counters.extend(
            self.radius_counters().into_iter().flat_map(|radius| counted("radius_", radius.iter().collect())),
        );
        GatewayStatus {
            sas: self.sessions.iter().filter_map(|(sa, session)| self.sa_status(now, *sa, session)).collect(),
            half_open: self.half_open(),
            pools: self
                .pool_usage()
                .map(|pool| (pool.name.into(), pool.addresses.0, pool.addresses.1))
                .collect(),
            counters,
        }
    }
}
