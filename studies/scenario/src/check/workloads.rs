//! Checks of a study's workloads, singly and together.

use super::{ScenarioCheck, keys};
use crate::model::{EapWorkload, IkeWorkload, NasAaaProtocol, TransportProtocol, Workload};
use crate::ports;
use crate::services::{HostService, ServiceKind};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use usher_aaa_config::ListenTransport;
use usher_sim::HostId;

/// Limit of a workload's name, in characters. It is part of the names of the workload's hosts.
const LONGEST_NAME: usize = 32;

/// A port of a workload's own server: the setting that names its host, the host, the transport and the number.
type ServerPort<'a> = (&'static str, &'a str, TransportProtocol, u16);

/// The owner of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerPortOwner<'a> {
    /// A service of the host.
    Service(ServiceKind),
    /// A workload's own server.
    Workload(&'a str),
}

/// Rewrites a message about the only workload for the workload with this name.
pub(super) fn of_workload(text: &str, name: &str) -> String {
    if name.is_empty() { text.to_owned() } else { text.replace("workload.", &format!("workloads.{name}.")) }
}

impl ScenarioCheck<'_> {
    pub(super) fn check_workloads(&mut self) {
        let scenario = self.scenario;
        match (&scenario.workload, scenario.workloads.names().next()) {
            (None, None) => self.add_fault(
                keys!["workload"],
                "the study has no workload: write [workload] or [workloads.NAME]",
            ),
            (Some(_), Some(name)) => self.add_fault(
                keys!["workload"],
                format!(
                    "there is also [workloads.{name}]: give this workload a name too, as [workloads.NAME]"
                ),
            ),
            _ => {}
        }
        for (name, workload) in scenario.all_workloads() {
            let before = self.findings.len();
            name.clone_into(&mut self.workload);
            match workload {
                Workload::Eap(eap) => self.check_eap(eap),
                Workload::Dialogue(dialogue) => self.check_dialogue(dialogue),
                Workload::Ident(ident) => self.check_ident(ident),
                Workload::Ike(ike) => self.check_ike(ike),
                Workload::Mih(mih) => self.check_mih(mih),
                Workload::Handover(handover) => self.check_handover(handover),
                Workload::Pppoe(pppoe) => self.check_pppoe(pppoe),
            }
            if let Some(arrivals) = workload.arrivals() {
                // With `on_demand`, packets start the exchanges, so the arrivals need not.
                let policy = |ike: &IkeWorkload| ike.policy.as_ref().is_some_and(|policy| policy.on_demand);
                let on_demand = matches!(workload, Workload::Ike(ike) if policy(ike));
                self.check_arrivals(arrivals, !on_demand);
            }
            // The checks name the path `workload`, as if there were only one. Replace it with this workload's own path.
            for (path, _) in self.findings.iter_mut().skip(before).filter(|_| !name.is_empty()) {
                if path.first().is_some_and(|first| first == "workload") {
                    path.splice(..1, keys!["workloads", name]);
                }
            }
        }
        for name in scenario.workloads.names() {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
            self.require(
                !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits),
                keys!["workloads", name],
                format!("\"{name}\" must be 1 to {LONGEST_NAME} letters, digits and \"-\""),
            );
        }
        self.check_port_owners();
        self.check_frame_owners();
    }

    /// Checks that each port has one server.
    fn check_port_owners(&mut self) {
        let scenario = self.scenario;
        let mut taken: BTreeMap<(&str, &str, u16), ServerPortOwner<'_>> = BTreeMap::new();
        for (host, services) in scenario.services.iter() {
            let served: Vec<_> =
                services.iter().flat_map(|service| self.service_listen_ports(host, service)).collect();
            for (kind, transport, port) in served {
                let before =
                    *taken.entry((host, transport.name(), port)).or_insert(ServerPortOwner::Service(kind));
                if let ServerPortOwner::Service(first) = before
                    && first != kind
                {
                    let message = format!(
                        "\"{}\" already uses {} port {port}, which \"{}\" needs too: give one of them another port",
                        first.name(),
                        transport.name().to_uppercase(),
                        kind.name()
                    );
                    self.add_fault(keys!["hosts", host, "runs"], message);
                }
            }
        }
        for (name, workload) in scenario.all_workloads() {
            for (key, host, transport, port) in self.server_ports(workload) {
                let own = ServerPortOwner::Workload(name);
                let before = *taken.entry((host, transport.name(), port)).or_insert(own);
                let whose = match before {
                    ServerPortOwner::Workload(first) if first == name => continue,
                    ServerPortOwner::Workload(first) => format!("has a server of workload \"{first}\""),
                    ServerPortOwner::Service(kind) => format!("runs \"{}\"", kind.name()),
                };
                let transport = transport.name().to_uppercase();
                let path = match name {
                    "" => keys!["workload", key],
                    _ => keys!["workloads", name, key],
                };
                self.add_fault(
                    path,
                    format!(
                        "\"{host}\" already {whose} at {transport} port {port}, which this workload's server needs: \
                         name another host"
                    ),
                );
            }
        }
    }

    /// Returns the ports on which a host's service listens for other hosts.
    fn service_listen_ports(
        &self,
        host: &str,
        service: &HostService,
    ) -> Vec<(ServiceKind, TransportProtocol, u16)> {
        let (tcp, udp) = (TransportProtocol::Tcp, TransportProtocol::Udp);
        let (kind, all) = match service {
            HostService::Aaa(loaded) => {
                let of = |carrier| match carrier {
                    ListenTransport::Udp(_) => udp,
                    ListenTransport::Tcp(_) | ListenTransport::Tls(_) => tcp,
                    ListenTransport::Sctp(_) => TransportProtocol::Sctp,
                };
                let all = usher_aaa_config::listen_bindings(&loaded.file.listen);
                (
                    ServiceKind::Aaa,
                    all.iter().map(|binding| (of(binding.carrier), binding.address)).collect::<Vec<_>>(),
                )
            }
            HostService::Concentrator(loaded) => {
                let ident = loaded.file.ident.iter().flat_map(|ident| &ident.listen);
                let dynamic = loaded.file.aaa.as_ref().and_then(|aaa| aaa.dynamic.as_ref());
                let dynamic = dynamic.map(|dynamic| (udp, dynamic.listen));
                (ServiceKind::Concentrator, ident.map(|address| (tcp, *address)).chain(dynamic).collect())
            }
            HostService::Ident(loaded) => {
                (ServiceKind::Ident, loaded.file.listen.iter().map(|address| (tcp, *address)).collect())
            }
            HostService::Ike(loaded) => {
                let all = usher_gateway::config::listen_sockets(&loaded.file);
                (ServiceKind::Ike, all.into_iter().map(|(_, address)| (udp, address)).collect())
            }
            HostService::Mih(loaded) => {
                let listen = &loaded.file.listen;
                let of = |transport, all: &[SocketAddr]| {
                    all.iter().map(|address| (transport, *address)).collect::<Vec<_>>()
                };
                (ServiceKind::Mih, [of(udp, &listen.udp), of(tcp, &listen.tcp)].concat())
            }
        };
        // Too many hosts are reported elsewhere, so skip the workload here.
        let first = self
            .scenario
            .numbered_groups()
            .find(|(name, _)| *name == host)
            .filter(|_| !self.members.is_empty());
        let Some((_, first)) = first else { return Vec::new() };
        let (addresses, members) =
            (self.scenario.host_addresses(), self.scenario.member_count(host).unwrap_or(0));
        let reached = |ip| {
            (0..members).any(|member| addresses.is_reachable_at(HostId(first.0.saturating_add(member)), ip))
        };
        let reached = all.into_iter().filter(|(_, address)| reached(address.ip()));
        reached.map(|(transport, address)| (kind, transport, address.port())).collect()
    }

    /// Returns the ports of a workload's own servers.
    fn server_ports<'a>(&self, workload: &'a Workload) -> Vec<ServerPort<'a>> {
        let (tcp, udp) = (TransportProtocol::Tcp, TransportProtocol::Udp);
        match workload {
            Workload::Eap(eap) if self.scenario.aaa_service(&eap.server).is_some() => Vec::new(),
            Workload::Eap(eap) => {
                let server = |transport, port| ("server", eap.server.as_str(), transport, port);
                match eap.aaa {
                    NasAaaProtocol::Radius if eap.accounting.used => {
                        vec![server(udp, ports::RADIUS), server(udp, ports::ACCOUNTING)]
                    }
                    NasAaaProtocol::Radius => vec![server(udp, ports::RADIUS)],
                    NasAaaProtocol::Radsec => vec![server(tcp, ports::RADSEC)],
                    NasAaaProtocol::Diameter if eap.uses_tls_transport() => {
                        vec![server(tcp, ports::DIAMETER_TLS)]
                    }
                    NasAaaProtocol::Diameter => vec![server(eap.diameter.transport, ports::DIAMETER)],
                }
            }
            Workload::Dialogue(dialogue) => {
                vec![("server", &dialogue.server, dialogue.transport, ports::DIALOGUE)]
            }
            Workload::Ident(ident) => vec![("server", &ident.server, tcp, ports::CHAT)],
            // A concentrator receives Ethernet frames, so it has no port.
            Workload::Pppoe(_) => Vec::new(),
            Workload::Ike(ike) => {
                let of = |key, host, port| (key, host, udp, port);
                let gateway = |port| of("gateway", ike.gateway.as_str(), port);
                let initiator = |port| of("initiators", ike.initiators.as_str(), port);
                let server = ike.method.is_eap().then(|| of("server", &ike.server, ports::RADIUS));
                let ike = [ports::IKE, ports::IKE_NAT].into_iter();
                ike.flat_map(|port| [gateway(port), initiator(port)]).chain(server).collect()
            }
            Workload::Mih(mih) => {
                let function = |key, host| (key, host, mih.transport, usher_mih::PORT);
                vec![function("mn", mih.mn.as_str()), function("pos", &mih.pos)]
            }
            Workload::Handover(handover) => {
                let function = |key, host| (key, host, handover.transport, usher_mih::PORT);
                vec![
                    function("wlan", handover.wlan.as_str()),
                    function("wimax", &handover.wimax),
                    function("pos", &handover.pos),
                    function("target", &handover.target),
                    ("correspondent", &handover.correspondent, udp, usher_mip::PORT),
                ]
            }
        }
    }

    /// Checks that the frames of a host, such as EAP between station and NAS, belong to one workload.
    fn check_frame_owners(&mut self) {
        let sessions: Vec<(&str, &str)> =
            self.scenario.pppoe_workloads().map(|(name, pppoe)| (name, &*pppoe.stations)).collect();
        for (i, (name, stations)) in sessions.iter().enumerate() {
            if sessions.iter().take(i).any(|(_, other)| other == stations) {
                self.add_fault(
                    keys!["workloads", name, "stations"],
                    format!("\"{stations}\" already has the sessions of another workload: a host's frames belong to \
                             one workload"),
                );
            }
        }
        let framed: Vec<(&str, &EapWorkload)> = self.scenario.eap_workloads().collect();
        for (i, (name, eap)) in framed.iter().enumerate() {
            let local = |eap: &EapWorkload| eap.stations == eap.nas;
            for (first, other) in framed.iter().take(i).filter(|(_, other)| !(local(eap) && local(other))) {
                for (key, host) in [("stations", &eap.stations), ("nas", &eap.nas)] {
                    if [&other.stations, &other.nas].contains(&host) {
                        self.add_fault(
                            keys!["workloads", name, key],
                            format!(
                                "\"{host}\" already receives the frames of workload \"{first}\", and a host's frames \
                                 belong to one workload: name another host"
                            ),
                        );
                    }
                }
            }
        }
    }
}
