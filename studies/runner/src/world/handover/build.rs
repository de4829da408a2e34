//! Builds mobile nodes, points of service and correspondents of a scenario.

use super::super::error::ScenarioRunError;
use super::super::machine::MachineSockets;
use super::super::mih::{function_config, member_identifier};
use super::super::plan::NetworkPlan;
use super::super::topology::NetworkTopology;
use super::correspondent::CorrespondentRole;
use super::node::MobileNodeRole;
use super::point::{MobileNodeMap, PointOfServiceRole};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_core::{Duration, Instant, SocketId};
use usher_mih::{LinkAddr, LinkId, LinkTupleId, LinkType, MihfId, MihfPeer, PORT, PeerRoute};
use usher_mobility::pos::{HandoverTrigger, NeighbourPos, ServedStation};
use usher_mobility::station::{
    BINDING_SOCKET, CommitAnswer, FLOW_SERVING, FLOW_TARGET, MIH_LISTENER, MIH_SERVING, MIH_TARGET, OnFailure,
};
use usher_mobility::{
    CorrespondentNode, HandoverInitiatingSide, MobileStation, PointOfService, correspondent, pos, station,
};
use usher_scenario::model::{
    self, GoingDown, HandoverInitiator, HandoverWorkload, Scenario, TransportProtocol,
};
use usher_sim::{HostAddresses, HostId};

/// The port of the application that receives a node's flow.
const FLOW_PORT: u16 = 5001;

/// Requests that a node processes at a time; far more than occur.
const MAX_REQUESTS: usize = 1000;
/// The lifetime of a binding: longer than any run.
const BINDING: Duration = Duration::from_secs(100_000);
/// Time after the last message until a point of service drops an unfinished handover.
const HANDOVER_EXPIRY: Duration = Duration::from_secs(60);

/// The members of each kind of host, and their shared settings.
struct HandoverHostGroups<'a> {
    handover: &'a HandoverWorkload,
    transport: TransportProtocol,
    addresses: Arc<HostAddresses>,
    wlan: &'a [HostId],
    wimax: &'a [HostId],
    points: &'a [HostId],
    targets: &'a [HostId],
    access_points: &'a [HostId],
    base_stations: &'a [HostId],
    nodes: Vec<MihfId>,
    serving_ids: Vec<MihfId>,
    target_ids: Vec<MihfId>,
}

impl HandoverHostGroups<'_> {
    fn host_address(&self, host: HostId) -> IpAddr {
        self.addresses.address_of(host)
    }
    fn mih_route(&self, local: Option<HostId>, remote: HostId) -> PeerRoute {
        let remote = SocketAddr::new(self.host_address(remote), PORT);
        PeerRoute { transport: self.transport, local: local.map(|host| self.host_address(host)), remote }
    }
    fn mih_peer(&self, id: &MihfId, local: Option<HostId>, remote: HostId) -> MihfPeer {
        MihfPeer { id: id.clone(), route: self.mih_route(local, remote), ack: self.handover.ack }
    }
    /// Returns node i's 802.11 link.
    fn wlan_link(&self, i: usize) -> LinkTupleId {
        let poa = link_address(self.access_points[i % self.access_points.len()]);
        LinkTupleId {
            link: LinkId::from_mac(LinkType::Ieee80211, self.wlan[i].mac_address(0)),
            poa: Some(poa),
        }
    }
    /// Returns node i's 802.16 link.
    fn wimax_link(&self, i: usize) -> LinkTupleId {
        let poa = link_address(self.base_stations[i % self.base_stations.len()]);
        LinkTupleId {
            link: LinkId::from_mac(LinkType::Ieee80216, self.wimax[i].mac_address(0)),
            poa: Some(poa),
        }
    }

    fn station_config(&self, i: usize, correspondent: HostId) -> station::StationConfig {
        let (wlan, wimax) = (self.wlan[i], self.wimax[i]);
        let at = i % self.points.len();
        let handover = self.handover;
        station::StationConfig {
            mih: function_config(self.nodes[i].clone(), handover.mih_function()),
            serving: self.mih_peer(&self.serving_ids[at], Some(wlan), self.points[at]),
            serving_after: self.mih_route(Some(wimax), self.points[at]),
            target: Some(self.mih_peer(&self.target_ids[at], Some(wimax), self.targets[at])),
            serving_address: self.host_address(wlan),
            target_address: self.host_address(wimax),
            serving_link: self.wlan_link(i),
            target_link: self.wimax_link(i),
            correspondent: SocketAddr::new(self.host_address(correspondent), usher_mip::PORT),
            initiation: match handover.initiated_by {
                HandoverInitiator::Station => HandoverInitiatingSide::Station,
                HandoverInitiator::Network => HandoverInitiatingSide::Network,
            },
            on_failure: match handover.on_failure {
                model::OnFailure::LinkDown => OnFailure::WaitForLinkDown,
                model::OnFailure::OtherInterface => OnFailure::OtherInterface,
                model::OnFailure::OtherInterfaceIfUnanswered => OnFailure::OtherInterfaceIfUnanswered,
            },
            commit_answer: match handover.commit_answer {
                model::CommitAnswer::AfterProcessing => CommitAnswer::AfterProcessing,
                model::CommitAnswer::AfterRedirection => CommitAnswer::AfterRedirection,
            },
            processing: handover.processing.get(),
            retry: handover.retry.get(),
            binding: usher_mip::RegistrationTimerConfig::default(),
            max_requests: MAX_REQUESTS,
        }
    }

    /// Returns the point of service at index `at` of the network that nodes leave (`serving`) or enter.
    fn service_point_config(&self, at: usize, serving: bool) -> pos::PosConfig {
        let of_here = |i: &usize| i % self.points.len() == at;
        let client = |i: usize| ServedStation {
            peer: self.mih_peer(&self.nodes[i], None, self.wlan[i]),
            link: self.wlan_link(i),
        };
        let (own, other) = (link_address(self.access_points[at % self.access_points.len()]), {
            link_address(self.base_stations[at % self.base_stations.len()])
        });
        let handover = self.handover;
        let id = if serving { &self.serving_ids[at] } else { &self.target_ids[at] };
        let neighbour = if serving {
            let peer = self.mih_peer(&self.target_ids[at], None, self.targets[at]);
            NeighbourPos { peer, technology: LinkType::Ieee80216, poa: other.clone() }
        } else {
            let peer = self.mih_peer(&self.serving_ids[at], None, self.points[at]);
            NeighbourPos { peer, technology: LinkType::Ieee80211, poa: own.clone() }
        };
        pos::PosConfig {
            mih: function_config(id.clone(), handover.mih_function()),
            poa: if serving { own } else { other },
            clients: (0..self.nodes.len()).filter(of_here).filter(|_| serving).map(client).collect(),
            neighbour: Some(neighbour),
            trigger: match (serving, handover.initiated_by, handover.going_down) {
                (false, ..) | (_, HandoverInitiator::Station, _) => HandoverTrigger::Never,
                (true, HandoverInitiator::Network, GoingDown::Remote) => HandoverTrigger::Remote,
                (true, HandoverInitiator::Network, GoingDown::Local) => HandoverTrigger::Local,
            },
            processing: handover.processing.get(),
            // The serving network needs no limit, because it always has capacity for its own nodes.
            capacity: if serving { u32::MAX } else { handover.capacity.get() },
            reserve: handover.reserve.get(),
            handover_expiry: HANDOVER_EXPIRY,
            max_requests: MAX_REQUESTS,
        }
    }
}

fn link_address(host: HostId) -> LinkAddr {
    LinkAddr::Mac(host.mac_address(0))
}

/// Places the workload's roles on the topology's hosts.
pub(in super::super) fn build_handover_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    handover: &HandoverWorkload,
) -> Result<(), ScenarioRunError> {
    let ids =
        |kind: &str, n: usize| (0..n).map(|i| member_identifier(kind, i)).collect::<Result<Vec<_>, _>>();
    let (access_points, base_stations) = attachment_points(plan.scenario, topology, handover)?;
    let stations = topology.host_group(&handover.mn)?;
    let points = topology.host_group(&handover.pos)?;
    let parts = HandoverHostGroups {
        handover,
        transport: handover.transport,
        addresses: plan.addresses.clone(),
        wlan: topology.host_group(&handover.wlan)?,
        wimax: topology.host_group(&handover.wimax)?,
        points,
        targets: topology.host_group(&handover.target)?,
        access_points,
        base_stations,
        nodes: ids("mn", stations.len())?,
        serving_ids: ids("serving", points.len())?,
        target_ids: ids("target", points.len())?,
    };
    let mut nodes = MobileNodeMap::default();
    for (number, (id, wlan)) in (0..).zip(parts.nodes.iter().zip(parts.wlan)) {
        nodes.numbers.insert(id.clone(), number);
        nodes.by_interface.insert(*wlan, id.clone());
    }
    let nodes = Rc::new(nodes);
    for (serving, hosts) in [(true, parts.points), (false, parts.targets)] {
        for (at, &host) in hosts.iter().enumerate() {
            let name = if serving { "mobility.serving" } else { "mobility.target" };
            let point = PointOfService::new(
                parts.service_point_config(at, serving),
                plan.seed.derive_rng(name, at as u64),
            );
            let mut endpoint = MachineSockets::new(plan.host_address(host));
            let socket = endpoint.socket_number(SocketId::from_number(0));
            let role = PointOfServiceRole::new(endpoint, nodes.clone(), point);
            let app = plan.add_role(host, role);
            plan.builder.open_port_at(app, handover.transport, socket, (host, PORT))?;
            if serving && handover.going_down == GoingDown::Local {
                plan.builder.link_events(app, parts.access_points[at % parts.access_points.len()]);
            }
        }
    }
    let correspondents = topology.host_group(&handover.correspondent)?;
    for (i, (&host, &correspondent)) in stations.iter().zip(correspondents).enumerate() {
        place_mobile_node(plan, &parts, i, host, correspondent)?;
        place_correspondent(plan, &parts, i, correspondent)?;
    }
    Ok(())
}

/// Returns the access points of the nodes' BSS and the base stations of their cell.
fn attachment_points<'a>(
    scenario: &Scenario,
    topology: &'a NetworkTopology,
    handover: &HandoverWorkload,
) -> Result<(&'a [HostId], &'a [HostId]), ScenarioRunError> {
    let none = |interface: &str| ScenarioRunError::Role(format!("`{interface}` is no station"));
    let bss = scenario.bss_in_use().find(|(_, bss)| bss.stations == handover.wlan);
    let cell = scenario.cells_in_use().find(|(_, cell)| cell.stations == handover.wimax);
    let (_, bss) = bss.ok_or_else(|| none(&handover.wlan))?;
    let (_, cell) = cell.ok_or_else(|| none(&handover.wimax))?;
    Ok((topology.host_group(&bss.access_point)?, topology.host_group(&cell.base_station)?))
}

fn place_mobile_node(
    plan: &mut NetworkPlan<'_>,
    parts: &HandoverHostGroups<'_>,
    i: usize,
    host: HostId,
    correspondent: HostId,
) -> Result<(), ScenarioRunError> {
    let (wlan, wimax) = (parts.wlan[i], parts.wimax[i]);
    let chance = plan.seed.derive_rng("mobility.station", i as u64);
    let station = MobileStation::new(parts.station_config(i, correspondent), chance);
    let at = plan.host_address(host);
    let mut endpoint = MachineSockets::new(at).with_listener(MIH_LISTENER);
    let sockets = [MIH_SERVING, MIH_TARGET, FLOW_SERVING, FLOW_TARGET, BINDING_SOCKET];
    let [mih_serving, mih_target, flow_serving, flow_target, binding] =
        sockets.map(|s| endpoint.socket_number(s));
    let role = MobileNodeRole::new(endpoint, i as u32, wlan, wimax, station);
    let app = plan.add_role(host, role);
    for (socket, at) in [(mih_serving, wlan), (mih_target, wimax)] {
        plan.builder.open_port_at(app, parts.handover.transport, socket, (at, PORT))?;
    }
    plan.builder.bind_udp_at(app, flow_serving, wlan, FLOW_PORT)?;
    plan.builder.bind_udp_at(app, flow_target, wimax, FLOW_PORT)?;
    plan.builder.bind_udp_at(app, binding, wimax, usher_mip::PORT)?;
    plan.builder.link_events(app, wlan);
    plan.builder.link_events(app, wimax);
    Ok(())
}

fn place_correspondent(
    plan: &mut NetworkPlan<'_>,
    parts: &HandoverHostGroups<'_>,
    i: usize,
    host: HostId,
) -> Result<(), ScenarioRunError> {
    let application = &parts.handover.application;
    let interval = application.interval.get();
    let config = correspondent::CorrespondentConfig {
        station: SocketAddr::new(parts.host_address(parts.wlan[i]), FLOW_PORT),
        size: application.size.bytes() as usize,
        interval,
        packets: None,
        longest_binding: BINDING,
        proof: None,
    };
    // Choose a random phase for each node, so that handovers begin at different times within the flow's interval.
    let mut chance = plan.seed.derive_rng("mobility.flow", i as u64);
    let begins = Instant::ZERO + chance.sample_duration(Duration::ZERO, interval);
    let mut endpoint = MachineSockets::new(plan.host_address(host));
    let [_, binding] = [correspondent::FLOW_SOCKET, correspondent::BINDING_SOCKET]
        .map(|socket| endpoint.socket_number(socket));
    let role = CorrespondentRole::new(endpoint, i as u32, begins, CorrespondentNode::new(config));
    let app = plan.add_role(host, role);
    plan.builder.bind_udp(app, binding, usher_mip::PORT)?;
    Ok(())
}
