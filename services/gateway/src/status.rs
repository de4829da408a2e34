//! IKE_SAs for those who ask which there are.

use crate::service::IkeGateway;
use crate::session::IkeSession;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Instant};
use usher_esp::plane::SaUsage;
use usher_ike::Spi;
use usher_ike::machine::SaId;

/// How a gateway is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayStatus {
    /// Its IKE_SAs that are established.
    pub sas: Vec<SaStatus>,
    /// IKE_SAs whose initiator has not proved who it is.
    pub half_open: usize,
    /// Each pool: its name, addresses in use, addresses in all.
    pub pools: Vec<(String, u64, u64)>,
    /// What it has counted: of itself, of its endpoint (`ike_` before each), of its RADIUS client (`radius_`).
    pub counters: Vec<(String, u64)>,
}

/// An IKE_SA that is established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaStatus {
    /// Its number, which changes when it is replaced.
    pub id: u64,
    /// The name of its connection.
    pub connection: String,
    /// Who the other side is.
    pub identity: String,
    /// The name of its user in accounting.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// This side began it.
    pub initiator: bool,
    /// SPIs of initiator and responder.
    pub spis: (Spi, Spi),
    /// From where its messages go.
    pub local: SocketAddr,
    /// Where to.
    pub remote: SocketAddr,
    /// How long it has been there, those that it has taken the place of among it.
    pub lasted: Duration,
    /// Inner addresses: those that the initiator was given.
    pub addresses: Vec<IpAddr>,
    /// Name servers that this side was told of.
    pub dns: Vec<IpAddr>,
    /// The domains that these are for; none: for all.
    pub domains: Vec<String>,
    /// What its CHILD_SAs have carried, those that are no more among them.
    pub usage: SaUsage,
    /// Its CHILD_SAs.
    pub children: Vec<ChildStatus>,
}

/// A CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildStatus {
    /// The name of its configuration.
    pub name: String,
    /// The SPI of packets that come.
    pub inbound: u32,
    /// The SPI of packets that go.
    pub outbound: u32,
    /// Traffic of this side.
    pub local: Vec<String>,
    /// Traffic of the other side.
    pub remote: Vec<String>,
    /// Packets are within UDP.
    pub encapsulated: bool,
    /// What packets hold is protected, between the two hosts; otherwise whole packets are.
    pub transport: bool,
    /// How long it has been there.
    pub lasted: Duration,
    /// What it has carried.
    pub usage: SaUsage,
}

impl IkeSession {
    pub(crate) fn sa_status(&self, sa: SaId, now: Instant) -> SaStatus {
        let child = |(inbound, child): (&u32, &crate::session::ChildSaRecord)| ChildStatus {
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
        SaStatus {
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
    /// Initiators who prove who they are by EAP, or wait for an address.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }
    /// How it is.
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
