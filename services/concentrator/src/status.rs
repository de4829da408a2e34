//! The status of a concentrator and its sessions.

use crate::service::AccessConcentrator;
use crate::session::{HostSession, SessionUsage, display_octets};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_access::{AddressLeases, SubscriberSession};
use usher_core::{Duration, Instant};

/// The status of a concentrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConcentratorStatus {
    /// The users' sessions.
    pub sessions: Vec<SessionStatus>,
    /// PPPoE sessions whose hosts are not authenticated yet.
    pub outside: usize,
    /// The address pools.
    pub pools: Vec<PoolStatus>,
    /// Counters by name: the service's, PPPoE's (`ppp_`), the RADIUS client's (`radius_`) and the IDENT service's
    /// (`ident_`).
    pub counters: Vec<(String, u64)>,
}

/// The usage of an address pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Addresses and prefixes in use.
    pub used: u64,
    /// Addresses and prefixes in all.
    pub all: u64,
}

/// The status of a user's session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionStatus {
    /// The session's number at this concentrator.
    pub id: u64,
    /// The user.
    pub user: String,
    /// Acct-Session-Id.
    pub session: String,
    /// The port.
    pub port: String,
    /// The host's address at the port.
    pub station: String,
    /// SESSION_ID.
    pub number: u16,
    /// The duration of the session.
    pub lasted: Duration,
    /// Octets of the longest packet; zero: no network is open.
    pub mtu: u16,
    /// The host's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 prefixes.
    pub ipv6: Vec<(Ipv6Addr, u8)>,
    /// Rate from the host, bit/s; `None`: unlimited.
    pub rate_up: Option<u64>,
    /// Rate to the host, bit/s; `None`: unlimited.
    pub rate_down: Option<u64>,
    /// The usage.
    pub usage: SessionUsage,
}

impl AccessConcentrator {
    pub(crate) fn session_status(
        &self,
        now: Instant,
        id: u64,
        session: &SubscriberSession<HostSession>,
    ) -> SessionStatus {
        let host = &session.access;
        SessionStatus {
            id,
            user: display_octets(&session.grant.user),
            session: session.acct_session_id().into(),
            port: session.place().port.clone(),
            station: host.subscriber.address.to_string(),
            number: host.subscriber.number,
            lasted: session.duration(now),
            mtu: host.mtu,
            ipv4: host.ipv4_address(),
            ipv6: host.ipv6_prefixes(),
            rate_up: session.rates.0,
            rate_down: session.rates.1,
            usage: host.usage,
        }
    }

    /// Returns the number of PPPoE sessions whose hosts are not authenticated yet.
    #[must_use]
    pub fn unauthenticated_count(&self) -> usize {
        self.ppp.unauthenticated_count()
    }
    /// Returns the number of logins in progress.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.subscribers.login_count()
    }
    /// Returns the status.
    pub(crate) fn status(&self, now: Instant) -> ConcentratorStatus {
        let counted = |prefix: &str, all: Vec<(&'static str, u64)>| {
            all.into_iter().map(|(name, n)| (alloc::format!("{prefix}{name}"), n)).collect::<Vec<_>>()
        };
        let (own, subscribers, ppp) = self.counters();
        let mut counters = counted("", own.iter().chain(subscribers.iter()).collect());
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
                .subscribers
                .sessions()
                .iter()
                .map(|(id, session)| self.session_status(now, *id, session))
                .collect(),
            outside: self.unauthenticated_count(),
            pools: self
                .subscribers
                .leases()
                .into_iter()
                .flat_map(AddressLeases::pool_usage)
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
