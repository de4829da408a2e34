//! Sessions for those who ask which there are.

use crate::service::AccessConcentrator;
use crate::session::{SessionUsage, UserSession, display_octets};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_core::{Duration, Instant};

/// How a concentrator is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConcentratorStatus {
    /// Its sessions of users.
    pub sessions: Vec<SessionStatus>,
    /// Sessions on the wire that nobody is let in by yet.
    pub outside: usize,
    /// Its pools.
    pub pools: Vec<PoolStatus>,
    /// What it has counted: of itself, of PPPoE (`ppp_` before each), of its RADIUS client (`radius_`), of its IDENT service (`ident_`).
    pub counters: Vec<(String, u64)>,
}

/// How much of a pool is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Addresses and prefixes in use.
    pub used: u64,
    /// In all.
    pub all: u64,
}

/// A session of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// Its number at this concentrator.
    pub id: u64,
    /// Whose it is.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// At which port.
    pub port: String,
    /// The host's address there.
    pub station: String,
    /// SESSION_ID.
    pub number: u16,
    /// How long it has been there.
    pub lasted: Duration,
    /// Octets of the longest packet; zero: no network is open.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefixes.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// From the host, bit/s.
    pub rate_up: Option<u64>,
    /// To the host, bit/s.
    pub rate_down: Option<u64>,
    /// What it has carried.
    pub usage: SessionUsage,
}

impl AccessConcentrator {
    pub(crate) fn session_status(&self, now: Instant, id: u64, session: &UserSession) -> SessionStatus {
        SessionStatus {
            id,
            user: display_octets(&session.granted.user),
            session: session.acct.clone(),
            port: self.nas_port_info(&session.subscriber).port_name().to_string(),
            station: session.subscriber.address.to_string(),
            number: session.subscriber.number,
            lasted: session.duration(now),
            mtu: session.mtu,
            ipv4: session.ipv4_address(),
            ipv6: session.ipv6_prefixes(),
            rate_up: session.rates.0,
            rate_down: session.rates.1,
            usage: session.usage,
        }
    }

    /// Sessions whose hosts are not let in yet.
    #[must_use]
    pub fn unauthenticated_count(&self) -> usize {
        self.ppp.unauthenticated_count()
    }
    /// Hosts that show who they are.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }
    /// How it is.
    pub(crate) fn status(&self, now: Instant) -> ConcentratorStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, ppp) = self.counters();
        let mut counters = counted("", own.iter().collect());
        counters.extend(counted("ppp_", ppp.iter().collect()));
        counters.extend(
            self.radius_counters().into_iter().flat_map(|radius| counted("radius_", radius.iter().collect())),
        );
        if let Some(ident) = &self.ident {
            let (own, server) = ident.counters();
            counters.extend(counted("ident_", own.iter().chain(server.iter()).collect()));
        }
        ConcentratorStatus {
            sessions: self
                .sessions
                .iter()
                .map(|(id, session)| self.session_status(now, *id, session))
                .collect(),
            outside: self.unauthenticated_count(),
            pools: self
                .pools
                .pool_usage()
                .map(|pool| PoolStatus {
                    name: pool.name.into(),
                    used: pool.addresses.0 + pool.prefixes.0,
                    all: pool.addresses.1 + pool.prefixes.1,
                })
                .collect(),
            counters,
        }
    }
}
