//! IP: sending, forwarding, fragmenting, receiving; UDP; frames.

use super::{Crossing, Event, Extent, FourTuple, Simulation, Socket, udp_key};
use crate::addr::{HostId, IpVersion};
use crate::app::{Application, Delivery, Observer};
use crate::ip;
use crate::packet::{Body, Datagram, Fragment, Packet, PacketRef, Payload, Transit, UDP_HEADER, UnderWay};
use std::sync::Arc;

impl<A: Application, O: Observer<A::Report>, E: Extent> Simulation<A, O, E> {
    #[inline]
    pub(super) fn arrive(&mut self, index: u32) {
        let direction = &mut self.directions[index as usize];
        let Some((packet, next)) = direction.arrive(self.now, &self.pool) else { return };
        let from = direction.from;
        // What comes from another half has an event each.
        if let Some(at) = next.filter(|_| !self.extent.is_elsewhere(from)) {
            self.plan(at, Event::Arrive(index));
        }
        self.arrived(index, packet);
    }

    /// A packet has come to the end of a link direction.
    #[inline(always)]
    pub(super) fn arrived(&mut self, index: u32, packet: PacketRef) {
        let direction = &self.directions[index as usize];
        let (host, port, tap) = (direction.to, direction.to_port, direction.tap_in());
        self.packet_hops += 1;
        if let Some(interface) = tap {
            self.tap(index, interface, false, packet);
        }
        let under_way = &self.pool[packet];
        if self.down > 0 && self.hosts[host.0 as usize].down {
            self.stats.host_down += 1;
            self.pool.release(packet);
        } else if under_way.damaged {
            self.stats.damaged += 1;
            self.pool.release(packet);
        } else if under_way.packet.dst != host {
            match self.hosts[host.0 as usize].transit_to() {
                None => self.route(host, packet),
                Some(app) => {
                    let packet = Transit(Box::new(self.pool.take(packet)));
                    self.deliver(app, Delivery::Transit { port, packet });
                }
            }
        } else {
            self.receive(host, port, packet);
        }
    }

    #[cold]
    fn tap(&mut self, index: u32, interface: u16, outward: bool, packet: PacketRef) {
        let Some(tap) = &mut self.tap else { return };
        let d = &self.directions[index as usize];
        let to = (d.to, d.to_port);
        let UnderWay { packet, damaged, .. } = &self.pool[packet];
        let damaged = *damaged && !outward;
        ip::serialise(
            &self.addresses,
            packet,
            (d.framing, d.session()),
            d.from,
            to,
            damaged,
            &mut self.tap_buf,
        );
        tap.packet(self.now, interface, outward, &self.tap_buf);
    }

    /// Sends a packet from `host`, as far as its policies let it. It is made where it is needed, as deliveries are.
    #[inline(always)]
    pub(super) fn send(&mut self, host: HostId, packet: impl FnOnce() -> Packet) {
        if self.guards.is_empty() || !self.guards.contains_key(&host) {
            self.send_now(packet());
        } else {
            self.send_guarded(host, self.now, packet());
        }
    }

    /// Sends a packet from its source.
    #[inline(always)]
    pub(super) fn send_now(&mut self, packet: Packet) {
        let host = packet.src;
        let to_itself = packet.dst == host;
        let packet = self.pool.put(packet);
        if to_itself {
            self.loopback.push_back(packet);
            self.plan(self.now, Event::Loopback);
        } else {
            self.route(host, packet);
        }
    }

    /// Sends or forwards a packet from `host` on its way to another.
    #[inline(never)]
    fn route(&mut self, host: HostId, packet: PacketRef) {
        let p = &self.pool[packet].packet;
        let direction = self.hosts[host.0 as usize].ports.next_hop(p.dst);
        let Some(link) = self.directions.get(direction as usize) else {
            self.stats.no_route += 1;
            self.pool.release(packet);
            return;
        };
        if p.len > link.mtu {
            let packet = self.pool.take(packet);
            self.fragment(host, direction, packet);
        } else {
            self.transmit(direction, packet);
        }
    }

    /// Sends a packet from a multihomed host by one of its paths.
    pub(super) fn send_by(&mut self, direction: u32, packet: Packet) {
        if packet.len > self.directions[direction as usize].mtu {
            self.stats.too_big += 1;
            return;
        }
        let packet = self.pool.put(packet);
        self.transmit(direction, packet);
    }

    #[inline(always)]
    fn transmit(&mut self, index: u32, packet: PacketRef) {
        if let Some(interface) = self.directions[index as usize].tap_out() {
            self.tap(index, interface, true, packet);
        }
        let direction = &mut self.directions[index as usize];
        if self.extent.is_elsewhere(direction.to) {
            if let Some(carried) = direction.carry(self.now, packet, &mut self.pool) {
                let packet = self.pool.take(packet);
                self.extent.hand_over(Crossing::new(index, self.now, carried, packet));
            }
            return;
        }
        if let Some(cell) = direction.cell() {
            self.send_by_cell(cell, index, packet);
        } else if let Some(at) = direction.send(self.now, packet, &mut self.pool) {
            self.plan(at, Event::Arrive(index));
        }
    }

    /// Sends a packet that is larger than the link's MTU: UDP in fragments (IPv6: only at the sender),
    /// anything else not at all.
    fn fragment(&mut self, host: HostId, direction: u32, packet: Packet) {
        let mtu = self.directions[direction as usize].mtu;
        let (id, base, total, last_more, whole) = match packet.body {
            Body::Udp(d) if self.version == IpVersion::V4 || packet.src == host => {
                self.stats.fragmented += 1;
                (u32::from(packet.ident), 0, UDP_HEADER + d.payload.len, false, Arc::new(d))
            }
            Body::Fragment(f) if self.version == IpVersion::V4 => (f.id, f.offset, f.len, f.more, f.whole),
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
            let fragment = Fragment { id, offset: base + offset, len, more, whole: whole.clone() };
            let fragment = self.pool.put(Packet {
                src: packet.src,
                dst: packet.dst,
                len: header + len,
                ident: packet.ident,
                body: Body::Fragment(Box::new(fragment)),
            });
            self.transmit(direction, fragment);
            offset += len;
        }
    }

    /// Takes a packet that came to `host`, by this port of it, from the pool.
    #[inline]
    pub(super) fn receive(&mut self, host: HostId, port: u32, packet: PacketRef) {
        let p = &self.pool[packet].packet;
        if let Body::Tcp { src_port, dst_port, conn, from_conn, .. } = p.body {
            let (remote, local_port, remote_port) = (p.src, dst_port, src_port);
            let key = FourTuple { local: host, remote, local_port, remote_port };
            self.receive_segment(key, conn, from_conn, packet);
            return;
        }
        let packet = self.pool.take(packet);
        let packet_src = packet.src;
        match packet.body {
            Body::Udp(datagram) => self.receive_datagram(host, packet_src, datagram),
            Body::Fragment(fragment) => {
                let whole = self.reassembly.insert(self.now, packet_src, host, &fragment);
                self.stats.reassembly_timeout = self.reassembly.timed_out;
                if let Some(whole) = whole {
                    self.receive_datagram(host, packet_src, Datagram::clone(&whole));
                }
            }
            Body::Frame(payload) => {
                if let Some(app) = self.hosts[host.0 as usize].frames_to() {
                    self.deliver(app, Delivery::Frame { port, payload });
                }
            }
            Body::Sctp { src_port, dst_port, path, packet } => {
                let (remote, local_port, remote_port) = (packet_src, dst_port, src_port);
                let key = FourTuple { local: host, remote, local_port, remote_port };
                self.receive_sctp(key, path, packet);
            }
            Body::Esp(esp) => self.receive_esp(host, port, *esp),
            Body::Tcp { .. } => {}
        }
    }

    fn receive_datagram(&mut self, host: HostId, from: HostId, d: Datagram) {
        match self.udp_ports.get(&udp_key(host, d.dst_port)) {
            Some(&(app, socket)) => {
                let Datagram { src_port: from_port, dst_port: port, payload } = d;
                self.deliver(app, Delivery::Datagram { socket, from, from_port, at: host, port, payload });
            }
            None => self.stats.udp_no_port += 1,
        }
    }

    pub(super) fn send_datagram(&mut self, app: u32, socket: u32, to: HostId, port: u16, payload: Payload) {
        let slot = &self.apps[app as usize];
        let own = Socket { at: slot.host, port: 0 };
        let Socket { at: from, port: bound } = slot.sockets().get(socket as usize).copied().unwrap_or(own);
        let src_port = if bound != 0 {
            bound
        } else {
            let from = own.at;
            let fresh = self.ephemeral_port(from, |sim, p| !sim.udp_ports.contains_key(&udp_key(from, p)));
            self.apps[app as usize].bind(socket, Socket { at: from, port: fresh });
            self.udp_ports.insert(udp_key(from, fresh), (app, socket));
            fresh
        };
        let ident = self.next_ident(from);
        let datagram = Datagram { src_port, dst_port: port, payload };
        let version = self.version;
        self.send(from, || Packet::udp(version, from, to, ident, datagram));
    }

    /// The address that a connection is to be opened from: the application's host's own if none is asked for, nothing if
    /// it is not the host's.
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
        let frame = Packet { src: host, dst, len: payload.len, ident: 0, body: Body::Frame(payload) };
        let packet = self.pool.put(frame);
        self.transmit(direction, packet);
    }

    /// Has a packet of others go on from an application's host.
    pub(super) fn forward(&mut self, app: u32, packet: Transit) {
        let host = self.apps[app as usize].host;
        let packet = self.pool.put(*packet.0);
        self.route(host, packet);
    }

    /// What both directions of a link at a port of an application's host carry are packets of this session.
    pub(super) fn name_session(&mut self, app: u32, port: u32, number: u16) {
        let host = self.apps[app as usize].host;
        let Some(&direction) = self.hosts[host.0 as usize].ports.as_slice().get(port as usize) else {
            self.stats.stale_operation += 1;
            return;
        };
        for direction in [direction, direction ^ 1] {
            self.directions[direction as usize].aside().session = number;
        }
    }

    #[inline]
    pub(super) fn next_ident(&mut self, host: HostId) -> u16 {
        let h = &mut self.hosts[host.0 as usize];
        h.ident = h.ident.wrapping_add(1);
        h.ident
    }

    /// The next free port of 49152 to 65535 (RFC 6335 §6). With all of them taken, the next one all the
    /// same: a host of a study with 16,384 sockets is better told by its counters than by a panic.
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
