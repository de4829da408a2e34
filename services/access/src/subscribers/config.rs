//! The configuration of an access server's subscribers, and their places.

use crate::NasPort;
use crate::client::AaaClientConfig;
use crate::grace::AaaOutagePolicy;
use crate::local_users::LocalUsers;
use crate::pool::PoolConfig;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Duration;
use usher_radius::attribute::AttributeList;

/// A named pair of rates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateProfile {
    /// The name that AAA servers send as Filter-Id.
    pub name: String,
    /// From hosts, bit/s; `None`: unlimited.
    pub up: Option<u64>,
    /// To hosts, bit/s; `None`: unlimited.
    pub down: Option<u64>,
}

/// The accounting records of an access server about itself (RFC 2866 §5.1). Diameter has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ServerRecords {
    /// None: another shard sends them.
    #[default]
    Never,
    /// Accounting-On at the start. The end of one shard is not that of the server.
    On,
    /// Accounting-On at the start and Accounting-Off at the end.
    OnAndOff,
}

/// The configuration of an access server's subscribers.
#[derive(Clone, Debug, Default)]
pub struct SubscriberConfig {
    /// The AAA servers, if any.
    pub aaa: Option<AaaClientConfig>,
    /// Local users.
    pub users: LocalUsers,
    /// The policy while no AAA server answers.
    pub without_aaa: AaaOutagePolicy,
    /// True if the service assigns IPv6 addresses. Otherwise those of AAA servers have no effect.
    pub assigns_ipv6_addresses: bool,
    /// True if the service assigns IPv6 prefixes. Otherwise those of AAA servers have no effect.
    pub assigns_prefixes: bool,
    /// True if an accepted EAP login needs its key (MSK).
    pub needs_keys: bool,
    /// Address pools, consistent by [`check_pools`](crate::pool::check_pools).
    pub pools: Vec<PoolConfig>,
    /// True if other shards share the pools. Then the host leases addresses, and [`SubscriberEvent::Released`](super::SubscriberEvent::Released) returns
    /// them.
    pub shares_pools: bool,
    /// Addresses that no subscriber may have, such as the access server's own.
    pub reserved_addresses: Vec<IpAddr>,
    /// Rates that an AAA server names by Filter-Id. The one named `default` applies to sessions without a name. `None`:
    /// the service limits no rates.
    pub rates: Option<Vec<RateProfile>>,
    /// Default of Session-Timeout; `None`: unlimited.
    pub session_timeout: Option<Duration>,
    /// Default of Idle-Timeout; `None`: unlimited.
    pub idle_timeout: Option<Duration>,
    /// True if the service counts traffic. Records then contain it, and idle sessions end.
    pub is_metered: bool,
    /// The interval of traffic reports. A session is idle after two of them at the earliest: a shorter Idle-Timeout would
    /// end sessions with traffic.
    pub traffic_interval: Duration,
    /// True if the service logs each Stop until a server has acknowledged it.
    pub logs_stops: bool,
    /// The records about the access server itself.
    pub server_records: ServerRecords,
}

/// The place of a subscriber at the access server, as in requests and records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriberPlace {
    /// NAS-Port.
    pub number: Option<u32>,
    /// NAS-Port-Id.
    pub port: String,
    /// Calling-Station-Id.
    pub station: String,
    /// Called-Station-Id.
    pub called_station: Option<String>,
    /// Further attributes.
    pub attributes: AttributeList,
}

impl SubscriberPlace {
    /// Returns the port in requests and records.
    #[must_use]
    pub fn nas_port(&self) -> NasPort<'_> {
        NasPort {
            number: self.number,
            id: Some(&self.port),
            calling_station: Some(&self.station),
            called_station: self.called_station.as_deref(),
            mtu: None,
        }
    }
}
