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
use usher_esp::{PolicyAction, SecurityPolicy, SecurityPolicyId, TrafficSelector};

usher_core::named! {
    "a data plane";
    /// The data plane, which carries packets of CHILD_SAs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum DataPlaneKind {
        /// This program, for packets that the system routes to a TUN device.
        Tun = "tun",
        /// The kernel's ESP (XFRM), for packets that the system routes to an XFRM interface.
        Kernel = "kernel",
        /// Nothing: the program only negotiates and reports CHILD_SAs.
        None = "none",
    }
}

usher_core::named! {
    "an action for traffic";
    /// The action on traffic without a CHILD_SA (RFC 4301 §4.4.1).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PolicyActionName {
        /// The traffic is dropped.
        Discard = "discard",
        /// The traffic is sent in the clear.
        Forward = "forward",
    }
}

/// The data plane, which carries packets of CHILD_SAs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataTable {
    /// The kind of data plane.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<DataPlaneKind>")]
    pub mode: DataPlaneKind,
    /// The name of the device. A number replaces `%d`.
    pub interface: String,
    /// The octets of the longest packet that a CHILD_SA carries whole. With 60 to 100 octets of headers, it must fit
    /// the links.
    pub mtu: u32,
    /// Whether the program sets this side's virtual addresses on the device, and the routes of CHILD_SAs to it.
    pub routes: bool,
    /// The number of the routing table with these routes, and the priority of the rule that selects it.
    pub table: PositiveCount,
    /// The mark of IKE and ESP packets, which keeps them from being routed into the device again.
    pub mark: PositiveCount,
    /// Whether ESP uses UDP even without a NAT: if a firewall passes nothing else, or the program may not open raw
    /// sockets.
    pub udp_encapsulation: bool,
    /// The number of packets that may wait for a CHILD_SA (`on_demand`). Beyond, the oldest are dropped.
    pub queued_packets: PositiveCount,
    /// The longest wait of such a packet.
    pub queue_time: TimeSpan,
    /// Policies that come before CHILD_SAs; the first match applies. They see only traffic that the system routes to
    /// the device: to the networks of CHILD_SAs, and to those named here.
    pub policy: Vec<PolicyTable>,
}

impl Default for DataTable {
    fn default() -> Self {
        let plane = usher_esp::plane::EspDataPlaneConfig::default();
        Self {
            mode: DataPlaneKind::Tun,
            interface: "esp%d".to_owned(),
            mtu: 1400,
            routes: true,
            table: PositiveCount::from_u32(4500),
            mark: PositiveCount::from_u32(4500),
            udp_encapsulation: false,
            queued_packets: PositiveCount::from_u32(
                u32::try_from(plane.max_queued_packets).unwrap_or(u32::MAX),
            ),
            queue_time: TimeSpan(plane.queue_timeout),
            policy: Vec::new(),
        }
    }
}

/// A policy for some traffic.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// The action.
    #[serde(deserialize_with = "named::read")]
    #[schemars(schema_with = "named::schema::<PolicyActionName>")]
    pub action: PolicyActionName,
    /// The source networks [default: all].
    pub local: Option<Vec<Prefix>>,
    /// The destination networks [default: all].
    pub remote: Option<Vec<Prefix>>,
    /// The number of its IP protocol, such as 17 for UDP [default: all].
    pub protocol: Option<u8>,
    /// The destination port; for ICMP, type and code [default: all].
    pub port: Option<u16>,
}

/// All addresses of both families.
fn all_traffic_selectors() -> Vec<TrafficSelector> {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    any.into_iter().filter_map(|any| TrafficSelector::from_network(any, 0)).collect()
}

fn prefix_selectors(networks: Option<&[Prefix]>) -> Vec<TrafficSelector> {
    let one = |prefix: &Prefix| TrafficSelector::from_network(prefix.network, prefix.bits);
    networks.map_or_else(all_traffic_selectors, |networks| networks.iter().filter_map(one).collect())
}

/// A policy with the connection and the name of its CHILD_SA; `None` without a CHILD_SA.
pub type ChildSaPolicy = (SecurityPolicy, Option<(String, String)>);

/// Returns the security policy database of a file: first its policies, then the CHILD_SAs of `on_demand` connections. A
/// CHILD_SA without networks of its own is between the two addresses.
#[must_use]
pub fn build_policies(
    data: &DataTable,
    connections: &[ConnectionTable],
    own: &dyn Fn(&str) -> Option<IpAddr>,
) -> Vec<ChildSaPolicy> {
    let host = |address: Option<IpAddr>| {
        address.map_or_else(all_traffic_selectors, |one| [TrafficSelector::from_address(one)].into())
    };
    let mut all: Vec<ChildSaPolicy> = Vec::new();
    let mut add = |local, remote, action, child| {
        let id = SecurityPolicyId(u32::try_from(all.len()).unwrap_or(u32::MAX));
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
            PolicyActionName::Discard => PolicyAction::Discard,
            PolicyActionName::Forward => PolicyAction::Forward,
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
