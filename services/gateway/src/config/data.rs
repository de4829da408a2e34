//! The data plane of CHILD_SAs: the table `[data]`.

use super::model::ConnectionTable;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{PositiveCount, TimeSpan};
use usher_config::{Prefix, named};
use usher_esp::{PolicyAction, PolicyId, SecurityPolicy, TrafficSelector};

usher_core::named! {
    "what carries packets";
    /// What carries packets of CHILD_SAs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum DataPlaneKind {
        /// This program: packets that the system routes to a TUN device.
        Tun = "tun",
        /// The kernel's ESP (XFRM): packets that the system routes to an interface of it.
        Kernel = "kernel",
        /// Nothing: CHILD_SAs are negotiated and told.
        None = "none",
    }
}

usher_core::named! {
    "what becomes of traffic";
    /// What becomes of traffic that no CHILD_SA is for (RFC 4301 §4.4.1).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PolicyWord {
        /// It is dropped.
        Discard = "discard",
        /// It goes on as it is.
        Forward = "forward",
    }
}

/// What carries packets of CHILD_SAs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataTable {
    /// Who does.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<DataPlaneKind>")]
    pub carry: DataPlaneKind,
    /// The name of the device; for `%d` a number is put.
    pub interface: String,
    /// Octets of the longest packet that goes into a CHILD_SA whole. With the 60 to 100 octets around it, it is to fit the links.
    pub mtu: u32,
    /// Whether the device gets the inner addresses that this side is given, and routes lead traffic of CHILD_SAs to it.
    pub routes: bool,
    /// The number of the routing table that these routes are in, and the priority of the rule that leads there.
    pub table: PositiveCount,
    /// What packets of IKE and ESP are marked with, so that they are not led into the device again.
    pub mark: PositiveCount,
    /// Whether packets of ESP are within UDP even without a NAT, as where a firewall lets nothing else pass, or this program may
    /// open no raw sockets.
    pub udp_encapsulation: bool,
    /// Packets that wait for a CHILD_SA at a time (`on_demand`), at most; the oldest are dropped.
    pub held_packets: PositiveCount,
    /// How long one waits at most.
    pub held_for: TimeSpan,
    /// What becomes of traffic before a CHILD_SA is sought for it, the first that fits. It has to be traffic that the system
    /// routes to the device: of networks that CHILD_SAs are for, or that are named here.
    pub policy: Vec<PolicyTable>,
}

impl Default for DataTable {
    fn default() -> Self {
        let plane = usher_esp::plane::EspDataPlaneConfig::default();
        Self {
            carry: DataPlaneKind::Tun,
            interface: "esp%d".to_owned(),
            mtu: 1400,
            routes: true,
            table: PositiveCount::from_u32(4500),
            mark: PositiveCount::from_u32(4500),
            udp_encapsulation: false,
            held_packets: PositiveCount::from_u32(
                u32::try_from(plane.max_queued_packets).unwrap_or(u32::MAX),
            ),
            held_for: TimeSpan(plane.queue_timeout),
            policy: Vec::new(),
        }
    }
}

/// What becomes of some traffic.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// What becomes of it.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PolicyWord>")]
    pub action: PolicyWord,
    /// Of which networks it comes [default: of all].
    pub local: Option<Vec<Prefix>>,
    /// To which it goes [default: to all].
    pub remote: Option<Vec<Prefix>>,
    /// The number of its IP protocol, such as 17 for UDP [default: all].
    pub protocol: Option<u8>,
    /// To which port it goes; of ICMP type and code [default: to all].
    pub port: Option<u16>,
}

/// All addresses of both families.
fn all_selectors() -> Vec<TrafficSelector> {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    any.into_iter().filter_map(|any| TrafficSelector::from_network(any, 0)).collect()
}

fn prefix_selectors(networks: Option<&[Prefix]>) -> Vec<TrafficSelector> {
    let one = |prefix: &Prefix| TrafficSelector::from_network(prefix.network, prefix.bits);
    networks.map_or_else(all_selectors, |networks| networks.iter().filter_map(one).collect())
}

/// A policy with the CHILD_SA that it is for: of which connection, of which name; `None`: it is for none.
pub type ChildSaPolicy = (SecurityPolicy, Option<(String, String)>);

/// The security policy database of a file: what is discarded and forwarded, and then what packets of `on_demand` connections
/// need. What of a connection's CHILD_SAs has no networks of its own is of the two addresses.
#[must_use]
pub fn build_policies(
    data: &DataTable,
    connections: &[ConnectionTable],
    own: &dyn Fn(&str) -> Option<IpAddr>,
) -> Vec<ChildSaPolicy> {
    let host = |address: Option<IpAddr>| {
        address.map_or_else(all_selectors, |one| [TrafficSelector::from_address(one)].into())
    };
    let mut all: Vec<ChildSaPolicy> = Vec::new();
    let mut add = |local, remote, action, child| {
        let id = PolicyId(u32::try_from(all.len()).unwrap_or(u32::MAX));
        all.push((SecurityPolicy { id, local, remote, action }, child));
    };
    for table in &data.policy {
        let (mut local, mut remote) =
            (prefix_selectors(table.local.as_deref()), prefix_selectors(table.remote.as_deref()));
        for selector in local.iter_mut().chain(&mut remote) {
            selector.protocol = table.protocol.unwrap_or(0);
        }
        for (selector, port) in remote.iter_mut().zip(core::iter::repeat(table.port)) {
            (selector.start_port, selector.end_port) = port.map_or((0, u16::MAX), |port| (port, port));
        }
        let action = match table.action {
            PolicyWord::Discard => PolicyAction::Discard,
            PolicyWord::Forward => PolicyAction::Forward,
        };
        add(local, remote, action, None);
    }
    for table in connections.iter().filter(|table| table.on_demand) {
        for child in &table.child {
            let local = child.local.as_deref();
            let local =
                local.map_or_else(|| host(own(&table.name)), |networks| prefix_selectors(Some(networks)));
            let remote = child.remote.as_deref();
            let remote = remote
                .map_or_else(|| host(table.remote_address), |networks| prefix_selectors(Some(networks)));
            add(local, remote, PolicyAction::Protect, Some((table.name.clone(), child.name.clone())));
        }
    }
    all
}
