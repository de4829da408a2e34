//! The status of a concentrator and its sessions.

use crate::host::SessionUsage;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use usher_core::Duration;

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
