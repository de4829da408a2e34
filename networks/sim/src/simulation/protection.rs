//! IPsec of simulated hosts: security policies and SAs (RFC 4301), by the databases of `usher-esp`, as on a live
//! host.
//!
//! Only the ports of a protected packet are enciphered and deciphered, since its other octets are not read.
//! Sequence numbers, anti-replay windows, limits and selectors are those of the SAs.

use super::{Simulation, SimulationScope};
use crate::addr::HostId;
use crate::app::{AppDelivery, Application, ReportObserver};
use crate::packet::{EspPacket, Packet, PacketBody};
use std::collections::VecDeque;
use std::net::SocketAddr;
use usher_core::Instant;
use usher_esp::ip::{IpPacket, PacketFlow, protocol};
use usher_esp::plane::{
    EspDataPlaneConfig, EspEvent, IpsecMode, OutboundDecision, OuterAddresses, PacketArrival,
};
use usher_esp::{EspDataPlane, IpsecOperation, SecurityPolicyId};

/// Octets of the UDP header before ESP.
const UDP: usize = 8;

/// The IPsec databases of a host.
#[derive(Debug)]
pub(super) struct HostIpsecState {
    plane: EspDataPlane,
    config: EspDataPlaneConfig,
    /// The application that updates them.
    app: u32,
    /// Packets that wait for an SA, with the start of their wait.
    queued_packets: VecDeque<(Instant, Packet)>,
    octets: usize,
}

impl HostIpsecState {
    /// Queues a packet until its SA exists. Drops the oldest beyond the limit and returns their number.
    fn queue_packet_for_sa(&mut self, since: Instant, packet: Packet) -> u64 {
        self.octets += packet.len as usize;
        self.queued_packets.push_back((since, packet));
        let mut dropped = 0;
        while self.queued_packets.len() > self.config.max_queued_packets
            || self.octets > self.config.max_queued_octets
        {
            let Some((_, first)) = self.queued_packets.pop_front() else { break };
            self.octets -= first.len as usize;
            dropped += 1;
        }
        dropped
    }
    fn take_queued_packets(&mut self) -> VecDeque<(Instant, Packet)> {
        self.octets = 0;
        std::mem::take(&mut self.queued_packets)
    }
}

/// Returns the protocol and the ports of a packet.
fn upper_protocol(body: &PacketBody) -> (u8, Option<(u16, u16)>) {
    match body {
        PacketBody::Udp(d) => (protocol::UDP, Some((d.src_port, d.dst_port))),
        PacketBody::Fragment(f) => (protocol::UDP, Some((f.datagram.src_port, f.datagram.dst_port))),
        PacketBody::Tcp { src_port, dst_port, .. } => (protocol::TCP, Some((*src_port, *dst_port))),
        PacketBody::Sctp { src_port, dst_port, .. } => (protocol::SCTP, Some((*src_port, *dst_port))),
        PacketBody::Esp(_) | PacketBody::Frame(_) => (protocol::NO_NEXT_HEADER, None),
    }
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    /// Starts protection of an application's host, and replaces an earlier one.
    pub(super) fn begin_protection(&mut self, app: u32, config: EspDataPlaneConfig) {
        let host = self.apps[app as usize].host;
        let plane = EspDataPlane::new(config, self.seed.derive_secure_rng("esp", u64::from(host.0)));
        self.guards
            .insert(host, HostIpsecState { plane, config, app, queued_packets: VecDeque::new(), octets: 0 });
    }

    /// Applies an application's change of SAs or policies.
    pub(super) fn update_protection(&mut self, app: u32, operation: IpsecOperation) {
        let host = self.apps[app as usize].host;
        let tunnel = matches!(&operation, IpsecOperation::Install(pair) if pair.mode == IpsecMode::Tunnel);
        let Some(guard) = self.guards.get_mut(&host).filter(|guard| guard.app == app && !tunnel) else {
            self.stats.stale_operation += 1;
            return;
        };
        if let IpsecOperation::Abandon(_) = &operation {
            self.stats.unprotected += guard.queued_packets.len() as u64;
            guard.take_queued_packets();
        }
        let done = guard.plane.apply_operation(self.now, operation);
        self.stats.stale_operation += u64::from(done.is_err());
        let waiting = guard.take_queued_packets();
        for (since, packet) in waiting {
            self.send_packet_by_policy(host, since, packet);
        }
        self.deliver_protection_events(host);
    }

    /// Sends a packet of a host with security policies.
    #[cold]
    pub(super) fn send_packet_by_policy(&mut self, host: HostId, since: Instant, packet: Packet) {
        let Some(guard) = self.guards.get_mut(&host).filter(|_| packet.dst != host) else {
            // Packets to the host itself bypass the policies.
            return self.send_unprotected_packet(packet);
        };
        if self.now.duration_since(since) > guard.config.queue_timeout {
            self.stats.unprotected += 1;
            return;
        }
        let header = self.version.header_len() as usize;
        let (protocol, ports) = upper_protocol(&packet.body);
        let [source, destination] = [packet.src, packet.dst].map(|host| self.addresses.address_of(host));
        let ip = IpPacket {
            flow: PacketFlow { protocol, source, destination, ports },
            length: packet.len as usize,
            header,
            next_header: protocol,
            upper: header,
            traffic_class: 0,
            fragment: matches!(packet.body, PacketBody::Fragment(_)),
        };
        match guard.plane.decide_outbound(self.now, &ip) {
            OutboundDecision::Forward => self.send_unprotected_packet(packet),
            OutboundDecision::Discard => self.stats.unprotected += 1,
            OutboundDecision::Queue(_) => {
                self.stats.unprotected += guard.queue_packet_for_sa(since, packet);
                self.deliver_protection_events(host);
            }
            OutboundDecision::Protect(inbound) => match seal_ports(&mut guard.plane, inbound, &ip) {
                Some((length, sealed, encapsulated)) => {
                    let (src, dst, ident) = (packet.src, packet.dst, packet.ident);
                    let body = PacketBody::Esp(Box::new(EspPacket { inner: packet, sealed, encapsulated }));
                    self.send_unprotected_packet(Packet {
                        src,
                        dst,
                        len: (header + length) as u32,
                        ident,
                        body,
                    });
                }
                None => self.stats.unprotected += 1,
            },
        }
    }

    /// Receives an ESP packet at `host`.
    pub(super) fn receive_esp(&mut self, host: HostId, port: u32, esp: EspPacket) {
        let EspPacket { inner, mut sealed, encapsulated } = esp;
        let [local, remote] =
            [host, inner.src].map(|host| SocketAddr::new(self.addresses.address_of(host), 0));
        let arrival =
            PacketArrival { outer: OuterAddresses { local, remote, encapsulated }, traffic_class: 0 };
        let opened =
            self.guards.get_mut(&host).and_then(|guard| guard.plane.open(self.now, &arrival, &mut sealed));
        if opened.is_none() {
            self.stats.no_sa += 1;
            return;
        }
        let packet = self.pool.insert(inner);
        self.receive_packet(host, port, packet);
    }

    /// Delivers events of a host's databases to their application.
    fn deliver_protection_events(&mut self, host: HostId) {
        let Some(guard) = self.guards.get_mut(&host) else { return };
        let app = guard.app;
        let said: Vec<EspEvent> = std::iter::from_fn(|| guard.plane.poll_event()).collect();
        for policy in said.into_iter().filter_map(policy_awaiting_sa) {
            self.deliver(app, AppDelivery::Acquire { policy });
        }
    }
}

/// Returns the policy that needs an SA. SAs have no limits here, and there is no NAT.
fn policy_awaiting_sa(event: EspEvent) -> Option<SecurityPolicyId> {
    match event {
        EspEvent::Acquire { policy, .. } => Some(policy),
        EspEvent::Expire { .. } | EspEvent::Roamed { .. } | EspEvent::Removed { .. } => None,
    }
}

/// Seals a packet's ports. Returns its length behind the IP header, the sealed ports, and true if it is within
/// UDP.
fn seal_ports(plane: &mut EspDataPlane, inbound: u32, ip: &IpPacket) -> Option<(usize, Vec<u8>, bool)> {
    let carried = plane.outbound_payload(inbound, ip)?;
    let transform = *plane.transform(inbound)?;
    let encapsulated = carried.outer.encapsulated;
    let length = transform.packet_len(carried.payload.len()) + if encapsulated { UDP } else { 0 };
    let ports = ip.flow.ports.unwrap_or_default();
    let payload = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    let mut sealed = vec![0; transform.packet_len(payload.len())];
    sealed[transform.headroom()..][..payload.len()].copy_from_slice(&payload);
    plane.seal(inbound, &mut sealed, payload.len(), carried.next_header)?;
    Some((length, sealed, encapsulated))
}
