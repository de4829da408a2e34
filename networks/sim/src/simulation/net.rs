//! IP: sending, forwarding, fragmenting, receiving; UDP; frames.

use super::{CrossHalfPacket, FourTuple, SimEvent, Simulation, SimulationScope, UdpSocketBinding, udp_key};
use crate::addr::{HostId, IpVersion};
use crate::app::{AppDelivery, Application, ReportObserver};
use crate::ip;
use crate::packet::{
    Datagram, IpFragment, Packet, PacketBody, PacketInFlight, PacketRef, Payload, TransitPacket, UDP_HEADER,
};
use std::sync::Arc;

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    #[inline]
    pub(super) fn handle_arrival(&mut self, index: u32) {
        let direction = &mut self.directions[index as usize];
        let Some((packet, next)) = direction.take_arrived(self.now, &self.pool) else { return };
        let from = direction.from;
        // A packet from another half already has its own arrival event, so none is scheduled here.
        if let Some(at) = next.filter(|_| !self.extent.is_elsewhere(from)) {
            self.schedule_event(at, SimEvent::Arrive(index));
        }
        self.handle_arrived_packet(index, packet);
    }

    /// Handles a packet that reached the end of a link direction.
    #[inline(always)]
    pub(super) fn handle_arrived_packet(&mut self, index: u32, packet: PacketRef) {
        let direction = &self.directions[index as usize];
        let (host, port, tap) = (direction.to, direction.to_port, direction.tap_in());
        self.packet_hops += 1;
        if let Some(interface) = tap {
            self.capture_packet(index, interface, false, packet);
        }
        let under_way = &self.pool[packet];
        if self.down > 0 && self.hosts[host.0 as usize].down {
            self.stats.host_down += 1;
            self.pool.release(packet);
        } else if under_way.damaged {
            // RFC 9293, 3.1 and RFC 9260, 6.8: the receiver drops a packet with a wrong checksum.
            self.stats.damaged += 1;
            self.pool.release(packet);
        } else if under_way.packet.dst != host {
            match self.hosts[host.0 as usize].transit_to() {
                None => self.route_packet(host, packet),
                Some(app) => {
                    let packet = TransitPacket(Box::new(self.pool.take(packet)));
                    self.deliver(app, AppDelivery::Transit { port, packet });
                }
            }
        } else {
            self.receive_packet(host, port, packet);
        }
    }

    #[cold]
    fn capture_packet(&mut self, index: u32, interface: u16, outward: bool, packet: PacketRef) {
        let Some(tap) = &mut self.tap else { return };
        let d = &self.directions[index as usize];
        let to = (d.to, d.to_port);
        let PacketInFlight { packet, damaged, .. } = &self.pool[packet];
        let damaged = *damaged && !outward;
        ip::serialise_packet(
            &self.addresses,
            packet,
            (d.framing, d.session_id()),
            d.from,
            to,
            damaged,
            &mut self.tap_buf,
        );
        tap.capture_packet(self.now, interface, outward, &self.tap_buf);
    }

    /// Sends a packet from `host` if its policies permit. The packet is built in place, as deliveries are.
    #[inline(always)]
    pub(super) fn send_ip_packet(&mut self, host: HostId, packet: impl FnOnce() -> Packet) {
        if self.guards.is_empty() || !self.guards.contains_key(&host) {
            self.send_unprotected_packet(packet());
        } else {
            self.send_packet_by_policy(host, self.now, packet());
        }
    }

    /// Sends a packet from its source.
    #[inline(always)]
    pub(super) fn send_unprotected_packet(&mut self, packet: Packet) {
        let host = packet.src;
        let to_itself = packet.dst == host;
        let packet = self.pool.insert(packet);
        if to_itself {
            self.loopback.push_back(packet);
            self.schedule_event(self.now, SimEvent::Loopback);
        } else {
            self.route_packet(host, packet);
        }
    }

    /// Sends or forwards a packet from `host` on its way to another.
    #[inline(never)]
    fn route_packet(&mut self, host: HostId, packet: PacketRef) {
        let p = &self.pool[packet].packet;
        let direction = self.hosts[host.0 as usize].ports.next_hop(p.dst);
        let Some(link) = self.directions.get(direction as usize) else {
            self.stats.no_route += 1;
            self.pool.release(packet);
            return;
        };
        if p.len > link.mtu {
            let packet = self.pool.take(packet);
            self.send_fragments(host, direction, packet);
        } else {
            self.transmit_packet(direction, packet);
        }
    }

    /// Sends a packet from a multihomed host by one of its paths.
    pub(super) fn send_on_path_direction(&mut self, direction: u32, packet: Packet) {
        if packet.len > self.directions[direction as usize].mtu {
            self.stats.too_big += 1;
            return;
        }
        let packet = self.pool.insert(packet);
        self.transmit_packet(direction, packet);
    }

    #[inline(always)]
    fn transmit_packet(&mut self, index: u32, packet: PacketRef) {
        if let Some(interface) = self.directions[index as usize].tap_out() {
            self.capture_packet(index, interface, true, packet);
        }
        let direction = &mut self.directions[index as usize];
        if self.extent.is_elsewhere(direction.to) {
            if let Some(carried) = direction.offer_packet(self.now, packet, &mut self.pool) {
                let packet = self.pool.take(packet);
                self.extent.hand_over(CrossHalfPacket::new(index, self.now, carried, packet));
            }
            return;
        }
        if let Some(cell) = direction.cell_index() {
            self.send_packet_through_cell(cell, index, packet);
        } else if let Some(at) = direction.send_packet(self.now, packet, &mut self.pool) {
            self.schedule_event(at, SimEvent::Arrive(index));
        }
    }

    /// Sends a packet larger than the link's MTU: UDP in fragments (IPv6: only at the sender). Others are dropped.
    fn send_fragments(&mut self, host: HostId, direction: u32, packet: Packet) {
        let mtu = self.directions[direction as usize].mtu;
        let (id, base, total, last_more, whole) = match packet.body {
            PacketBody::Udp(d) if self.version == IpVersion::V4 || packet.src == host => {
                self.stats.fragmented += 1;
                (u32::from(packet.ident), 0, UDP_HEADER + d.payload.len, false, Arc::new(d))
            }
            PacketBody::Fragment(f) if self.version == IpVersion::V4 => {
                (f.id, f.offset, f.len, f.more, f.datagram)
            }
            _ => {
                self.stats.too_big += 1;
                return;
            }
        };
        let extra = if self.version == IpVersion::V6 { ip::V6_FRAGMENT_HEADER } else { 0 };
        let header = self.version.header_len() + extra;
        // All fragments but the last carry a multiple of eight bytes.
        let room = mtu.saturating_sub(header) / 8 * 8;
        if room == 0 {
            self.stats.too_big += 1;
            return;
        }
        let mut offset = 0;
        while offset < total {
            let len = room.min(total - offset);
            let more = offset + len < total || last_more;
            let fragment = IpFragment { id, offset: base + offset, len, more, datagram: whole.clone() };
            let fragment = self.pool.insert(Packet {
                src: packet.src,
                dst: packet.dst,
                len: header + len,
                ident: packet.ident,
                body: PacketBody::Fragment(Box::new(fragment)),
            });
            self.transmit_packet(direction, fragment);
            offset += len;
        }
    }

    /// Takes a packet that arrived at `host`, by this port, from the pool.
    #[inline]
    pub(super) fn receive_packet(&mut self, host: HostId, port: u32, packet: PacketRef) {
        let p = &self.pool[packet].packet;
        if let PacketBody::Tcp { src_port, dst_port, conn, from_conn, .. } = p.body {
            let (remote, local_port, remote_port) = (p.src, dst_port, src_port);
            let key = FourTuple { local: host, remote, local_port, remote_port };
            self.receive_segment(key, conn, from_conn, packet);
            return;
        }
        let packet = self.pool.take(packet);
        let packet_src = packet.src;
        match packet.body {
            PacketBody::Udp(datagram) => self.receive_datagram(host, packet_src, datagram),
            PacketBody::Fragment(fragment) => {
                let whole = self.reassembly.insert(self.now, packet_src, host, &fragment);
                self.stats.reassembly_timeout = self.reassembly.timed_out;
                if let Some(whole) = whole {
                    self.receive_datagram(host, packet_src, Datagram::clone(&whole));
                }
            }
            PacketBody::Frame(payload) => {
                if let Some(app) = self.hosts[host.0 as usize].frames_to() {
                    self.deliver(app, AppDelivery::Frame { port, payload });
                }
            }
            PacketBody::Sctp { src_port, dst_port, path, packet } => {
                let (remote, local_port, remote_port) = (packet_src, dst_port, src_port);
                let key = FourTuple { local: host, remote, local_port, remote_port };
                self.receive_sctp(key, path, packet);
            }
            PacketBody::Esp(esp) => self.receive_esp(host, port, *esp),
            PacketBody::Tcp { .. } => {}
        }
    }

    fn receive_datagram(&mut self, host: HostId, from: HostId, d: Datagram) {
        match self.udp_ports.get(&udp_key(host, d.dst_port)) {
            Some(&(app, socket)) => {
                let Datagram { src_port: from_port, dst_port: port, payload } = d;
                self.deliver(
                    app,
                    AppDelivery::Datagram { socket, from, from_port, destination: host, port, payload },
                );
            }
            None => self.stats.udp_no_port += 1,
        }
    }

    pub(super) fn send_datagram(&mut self, app: u32, socket: u32, to: HostId, port: u16, payload: Payload) {
        let slot = &self.apps[app as usize];
        let own = UdpSocketBinding { address: slot.host, port: 0 };
        let UdpSocketBinding { address: from, port: bound } =
            slot.sockets().get(socket as usize).copied().unwrap_or(own);
        let src_port = if bound != 0 {
            bound
        } else {
            let from = own.address;
            let fresh = self.ephemeral_port(from, |sim, p| !sim.udp_ports.contains_key(&udp_key(from, p)));
            self.apps[app as usize].bind_socket(socket, UdpSocketBinding { address: from, port: fresh });
            self.udp_ports.insert(udp_key(from, fresh), (app, socket));
            fresh
        };
        let ident = self.next_ident(from);
        let datagram = Datagram { src_port, dst_port: port, payload };
        let version = self.version;
        self.send_ip_packet(from, || Packet::from_datagram(version, from, to, ident, datagram));
    }

    /// Returns the local address of a new connection: the host's own by default; `None` if `from` is not the host's.
    pub(super) fn local_address(&mut self, app: u32, from: Option<HostId>) -> Option<HostId> {
        let host = self.apps[app as usize].host;
        let from = from.unwrap_or(host);
        let ours = from == host || self.interfaces.get(&from) == Some(&host);
        self.stats.stale_operation += u64::from(!ours);
        ours.then_some(from)
    }

    pub(super) fn send_frame(&mut self, app: u32, port: u32, payload: Payload) {
        let host = self.apps[app as usize].host;
        let Some(&direction) = self.hosts[host.0 as usize].ports.as_slice().get(port as usize) else {
            self.stats.stale_operation += 1;
            return;
        };
        let dst = self.directions[direction as usize].to;
        let frame = Packet { src: host, dst, len: payload.len, ident: 0, body: PacketBody::Frame(payload) };
        let packet = self.pool.insert(frame);
        self.transmit_packet(direction, packet);
    }

    /// Forwards a transit packet from an application's host.
    pub(super) fn forward_packet(&mut self, app: u32, packet: TransitPacket) {
        let host = self.apps[app as usize].host;
        let packet = self.pool.insert(*packet.0);
        self.route_packet(host, packet);
    }

    /// Marks all packets of a link, at a port of an application's host, as packets of this PPPoE session.
    pub(super) fn name_session(&mut self, app: u32, port: u32, number: u16) {
        let host = self.apps[app as usize].host;
        let Some(&direction) = self.hosts[host.0 as usize].ports.as_slice().get(port as usize) else {
            self.stats.stale_operation += 1;
            return;
        };
        for direction in [direction, direction ^ 1] {
            self.directions[direction as usize].extras_mut().session = number;
        }
    }

    #[inline]
    pub(super) fn next_ident(&mut self, host: HostId) -> u16 {
        let h = &mut self.hosts[host.0 as usize];
        h.ident = h.ident.wrapping_add(1);
        h.ident
    }

    /// Returns the next free port of 49152 to 65535 (RFC 6335 §6). If none is free it returns the next port: counters
    /// explain a study with 16,384 sockets better than a panic.
    pub(super) fn ephemeral_port(&mut self, host: HostId, free: impl Fn(&Self, u16) -> bool) -> u16 {
        const FIRST: u16 = 49_152;
        let mut port = FIRST;
        for _ in FIRST..=u16::MAX {
            let h = &mut self.hosts[host.0 as usize];
            port = h.next_port;
            h.next_port = if port == u16::MAX { FIRST } else { port + 1 };
            if free(self, port) {
                break;
            }
        }
        port
    }
}
