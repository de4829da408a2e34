//! Mobile nodes, points of service and correspondents of a scenario.

use super::super::error::WorldError;
use super::super::machine::Endpoint;
use super::super::mih::{config, identifier};
use super::super::plan::Plan;
use super::super::topology::Topology;
use super::correspondent::CorrespondentRole;
use super::node::MobileRole;
use super::point::{Nodes, PointRole};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_core::{Duration, Instant, SocketId};
use usher_mih::{LinkAddr, LinkId, LinkTupleId, LinkType, MihfId, PORT, Peer, Route};
use usher_mobility::pos::{Client, Neighbour, Trigger};
use usher_mobility::station::{
    BINDING_SOCKET, CommitAnswer, FLOW_SERVING, FLOW_TARGET, MIH_LISTENER, MIH_SERVING, MIH_TARGET, OnFailure,
};
use usher_mobility::{Correspondent, Initiation, PointOfService, Station, correspondent, pos, station};
use usher_scenario::model::{self, GoingDown, Handover, Initiator, Scenario, TransportProtocol};
use usher_sim::{Addresses, HostId};

/// The port of the application that receives a node's flow.
const FLOW_PORT: u16 = 5001;

/// Requests that a node processes at a time; far more than there are.
const MAX_REQUESTS: usize = 1000;
/// How long a binding may last: longer than any run.
const BINDING: Duration = Duration::from_secs(100_000);
/// How long after its last message a point of service forgets a handover that does not end.
const FORGET: Duration = Duration::from_secs(60);

/// The members of each kind of hosts, and what they share.
struct Parts<'a> {
    handover: &'a Handover,
    transport: TransportProtocol,
    addresses: Arc<Addresses>,
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

impl Parts<'_> {
    fn ip(&self, host: HostId) -> IpAddr {
        self.addresses.of(host)
    }
    fn route(&self, local: Option<HostId>, remote: HostId) -> Route {
        let remote = SocketAddr::new(self.ip(remote), PORT);
        Route { transport: self.transport, local: local.map(|host| self.ip(host)), remote }
    }
    fn peer(&self, id: &MihfId, local: Option<HostId>, remote: HostId) -> Peer {
        Peer { id: id.clone(), route: self.route(local, remote), ack: self.handover.ack }
    }
    /// Node i's 802.11 link.
    fn wlan_link(&self, i: usize) -> LinkTupleId {
        let poa = mac(self.access_points[i % self.access_points.len()]);
        LinkTupleId { link: LinkId::mac(LinkType::Ieee80211, self.wlan[i].mac(0)), poa: Some(poa) }
    }
    /// Node i's 802.16 link.
    fn wimax_link(&self, i: usize) -> LinkTupleId {
        let poa = mac(self.base_stations[i % self.base_stations.len()]);
        LinkTupleId { link: LinkId::mac(LinkType::Ieee80216, self.wimax[i].mac(0)), poa: Some(poa) }
    }

    fn station(&self, i: usize, correspondent: HostId) -> station::Config {
        let (wlan, wimax) = (self.wlan[i], self.wimax[i]);
        let at = i % self.points.len();
        let handover = self.handover;
        station::Config {
            mih: config(self.nodes[i].clone(), handover.function()),
            serving: self.peer(&self.serving_ids[at], Some(wlan), self.points[at]),
            serving_after: self.route(Some(wimax), self.points[at]),
            target: Some(self.peer(&self.target_ids[at], Some(wimax), self.targets[at])),
            serving_address: self.ip(wlan),
            target_address: self.ip(wimax),
            serving_link: self.wlan_link(i),
            target_link: self.wimax_link(i),
            correspondent: SocketAddr::new(self.ip(correspondent), usher_mip::PORT),
            initiation: match handover.initiated_by {
                Initiator::Station => Initiation::Station,
                Initiator::Network => Initiation::Network,
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
            binding: usher_mip::Timing::default(),
            max_requests: MAX_REQUESTS,
        }
    }

    /// The point of service of place `at` of the network that is left (`serving`) or gone to.
    fn point(&self, at: usize, serving: bool) -> pos::Config {
        let of_here = |i: &usize| i % self.points.len() == at;
        let client = |i: usize| Client {
            peer: self.peer(&self.nodes[i], None, self.wlan[i]),
            link: self.wlan_link(i),
        };
        let (own, other) = (mac(self.access_points[at % self.access_points.len()]), {
            mac(self.base_stations[at % self.base_stations.len()])
        });
        let handover = self.handover;
        let id = if serving { &self.serving_ids[at] } else { &self.target_ids[at] };
        let neighbour = if serving {
            let peer = self.peer(&self.target_ids[at], None, self.targets[at]);
            Neighbour { peer, technology: LinkType::Ieee80216, poa: other.clone() }
        } else {
            let peer = self.peer(&self.serving_ids[at], None, self.points[at]);
            Neighbour { peer, technology: LinkType::Ieee80211, poa: own.clone() }
        };
        pos::Config {
            mih: config(id.clone(), handover.function()),
            poa: if serving { own } else { other },
            clients: (0..self.nodes.len()).filter(of_here).filter(|_| serving).map(client).collect(),
            neighbour: Some(neighbour),
            trigger: match (serving, handover.initiated_by, handover.going_down) {
                (false, ..) | (_, Initiator::Station, _) => Trigger::Never,
                (true, Initiator::Network, GoingDown::Remote) => Trigger::Remote,
                (true, Initiator::Network, GoingDown::Local) => Trigger::Local,
            },
            processing: handover.processing.get(),
            // The network that is left has room for those that it has.
            capacity: if serving { u32::MAX } else { handover.capacity.get() },
            reserve: handover.reserve.get(),
            forget: FORGET,
            max_requests: MAX_REQUESTS,
        }
    }
}

fn mac(host: HostId) -> LinkAddr {
    LinkAddr::Mac(host.mac(0))
}

/// Puts the workload's roles on the topology's hosts.
pub(in super::super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    handover: &Handover,
) -> Result<(), WorldError> {
    let ids = |kind: &str, n: usize| (0..n).map(|i| identifier(kind, i)).collect::<Result<Vec<_>, _>>();
    let (access_points, base_stations) = attachments(plan.scenario, topology, handover)?;
    let stations = topology.group(&handover.mn)?;
    let points = topology.group(&handover.pos)?;
    let parts = Parts {
        handover,
        transport: handover.transport,
        addresses: plan.addresses.clone(),
        wlan: topology.group(&handover.wlan)?,
        wimax: topology.group(&handover.wimax)?,
        points,
        targets: topology.group(&handover.target)?,
        access_points,
        base_stations,
        nodes: ids("mn", stations.len())?,
        serving_ids: ids("serving", points.len())?,
        target_ids: ids("target", points.len())?,
    };
    let mut nodes = Nodes::default();
    for (number, (id, wlan)) in (0..).zip(parts.nodes.iter().zip(parts.wlan)) {
        nodes.numbers.insert(id.clone(), number);
        nodes.by_interface.insert(*wlan, id.clone());
    }
    let nodes = Rc::new(nodes);
    for (serving, hosts) in [(true, parts.points), (false, parts.targets)] {
        for (at, &host) in hosts.iter().enumerate() {
            let name = if serving { "mobility.serving" } else { "mobility.target" };
            let point = PointOfService::new(parts.point(at, serving), plan.seed.stream(name, at as u64));
            let mut endpoint = Endpoint::new(plan.at(host));
            let socket = endpoint.socket(SocketId::own(0));
            let role = PointRole::new(endpoint, nodes.clone(), point);
            let app = plan.role(host, role);
            plan.builder.serve_at(app, handover.transport, socket, (host, PORT))?;
            if serving && handover.going_down == GoingDown::Local {
                plan.builder.link_events(app, parts.access_points[at % parts.access_points.len()]);
            }
        }
    }
    let correspondents = topology.group(&handover.correspondent)?;
    for (i, (&host, &correspondent)) in stations.iter().zip(correspondents).enumerate() {
        node(plan, &parts, i, host, correspondent)?;
        flow(plan, &parts, i, correspondent)?;
    }
    Ok(())
}

/// The access points of the nodes' BSS and the base stations of their cell.
fn attachments<'a>(
    scenario: &Scenario,
    topology: &'a Topology,
    handover: &Handover,
) -> Result<(&'a [HostId], &'a [HostId]), WorldError> {
    let none = |interface: &str| WorldError::Role(format!("`{interface}` is no station"));
    let bss = scenario.bss_in_use().find(|(_, bss)| bss.stations == handover.wlan);
    let cell = scenario.cells_in_use().find(|(_, cell)| cell.stations == handover.wimax);
    let (_, bss) = bss.ok_or_else(|| none(&handover.wlan))?;
    let (_, cell) = cell.ok_or_else(|| none(&handover.wimax))?;
    Ok((topology.group(&bss.access_point)?, topology.group(&cell.base_station)?))
}

fn node(
    plan: &mut Plan<'_>,
    parts: &Parts<'_>,
    i: usize,
    host: HostId,
    correspondent: HostId,
) -> Result<(), WorldError> {
    let (wlan, wimax) = (parts.wlan[i], parts.wimax[i]);
    let chance = plan.seed.stream("mobility.station", i as u64);
    let station = Station::new(parts.station(i, correspondent), chance);
    let at = plan.at(host);
    let mut endpoint = Endpoint::new(at).accepting(MIH_LISTENER);
    let sockets = [MIH_SERVING, MIH_TARGET, FLOW_SERVING, FLOW_TARGET, BINDING_SOCKET];
    let [mih_serving, mih_target, flow_serving, flow_target, binding] = sockets.map(|s| endpoint.socket(s));
    let role = MobileRole::new(endpoint, i as u32, wlan, wimax, station);
    let app = plan.role(host, role);
    for (socket, at) in [(mih_serving, wlan), (mih_target, wimax)] {
        plan.builder.serve_at(app, parts.handover.transport, socket, (at, PORT))?;
    }
    plan.builder.bind_udp_at(app, flow_serving, wlan, FLOW_PORT)?;
    plan.builder.bind_udp_at(app, flow_target, wimax, FLOW_PORT)?;
    plan.builder.bind_udp_at(app, binding, wimax, usher_mip::PORT)?;
    plan.builder.link_events(app, wlan);
    plan.builder.link_events(app, wimax);
    Ok(())
}

fn flow(plan: &mut Plan<'_>, parts: &Parts<'_>, i: usize, host: HostId) -> Result<(), WorldError> {
    let application = &parts.handover.application;
    let interval = application.interval.get();
    let config = correspondent::Config {
        station: SocketAddr::new(parts.ip(parts.wlan[i]), FLOW_PORT),
        size: application.size.bytes() as usize,
        interval,
        packets: None,
        longest_binding: BINDING,
        proof: None,
    };
    // So that handovers do not begin at one place of the flow's interval.
    let mut chance = plan.seed.stream("mobility.flow", i as u64);
    let begins = Instant::ZERO + chance.between(Duration::ZERO, interval);
    let mut endpoint = Endpoint::new(plan.at(host));
    let [_, binding] =
        [correspondent::FLOW_SOCKET, correspondent::BINDING_SOCKET].map(|socket| endpoint.socket(socket));
    let role = CorrespondentRole::new(endpoint, i as u32, begins, Correspondent::new(config));
    let app = plan.role(host, role);
    plan.builder.bind_udp(app, binding, usher_mip::PORT)?;
    Ok(())
}
