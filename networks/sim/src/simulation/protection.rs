//! What becomes of a host's packets by its security policies and SAs (RFC 4301): the databases are `usher-esp`'s, the very ones of a
//! live host. Of a packet that an SA carries the ports alone are sealed, and opened where it arrives: numbers, windows against
//! replays, limits and selectors are those of the SAs, and no octets that nobody reads are enciphered.

use super::{Extent, Simulation};
use crate::addr::HostId;
use crate::app::{Application, Delivery, Observer};
use crate::packet::{Body, Esp, Packet};
use std::collections::VecDeque;
use std::net::SocketAddr;
use usher_core::Instant;
use usher_esp::ip::{Flow, IpPacket, protocol};
use usher_esp::plane::{Arrival, Config, Decision, Event, Mode, Outer};
use usher_esp::{Operation, Plane, PolicyId};

/// Octets of a UDP header around ESP.
const UDP: usize = 8;

/// The databases of a host.
#[derive(Debug)]
pub(super) struct Guard {
    plane: Plane,
    config: Config,
    /// The application that fills them.
    app: u32,
    /// Packets that wait for an SA, since when.
    held: VecDeque<(Instant, Packet)>,
    octets: usize,
}

impl Guard {
    /// Keeps a packet until there is an SA for it; of too many the oldest are dropped. Gives how many that were.
    fn hold(&mut self, since: Instant, packet: Packet) -> u64 {
        self.octets += packet.len as usize;
        self.held.push_back((since, packet));
        let mut dropped = 0;
        while self.held.len() > self.config.held_packets || self.octets > self.config.held_octets {
            let Some((_, first)) = self.held.pop_front() else { break };
            self.octets -= first.len as usize;
            dropped += 1;
        }
        dropped
    }
    fn take_held(&mut self) -> VecDeque<(Instant, Packet)> {
        self.octets = 0;
        std::mem::take(&mut self.held)
    }
}

/// The protocol and the ports of what a packet carries.
fn upper(body: &Body) -> (u8, Option<(u16, u16)>) {
    match body {
        Body::Udp(d) => (protocol::UDP, Some((d.src_port, d.dst_port))),
        Body::Fragment(f) => (protocol::UDP, Some((f.whole.src_port, f.whole.dst_port))),
        Body::Tcp { src_port, dst_port, .. } => (protocol::TCP, Some((*src_port, *dst_port))),
        Body::Sctp { src_port, dst_port, .. } => (protocol::SCTP, Some((*src_port, *dst_port))),
        Body::Esp(_) | Body::Frame(_) => (protocol::NO_NEXT_HEADER, None),
    }
}

impl<A: Application, O: Observer<A::Report>, E: Extent> Simulation<A, O, E> {
    /// An application begins to protect its host's packets, anew where one did before.
    pub(super) fn begin_protection(&mut self, app: u32, config: Config) {
        let host = self.apps[app as usize].host;
        let plane = Plane::new(config, self.seed.secure("esp", u64::from(host.0)));
        self.guards.insert(host, Guard { plane, config, app, held: VecDeque::new(), octets: 0 });
    }

    /// An application changes SAs or policies of its host.
    pub(super) fn protect(&mut self, app: u32, operation: Operation) {
        let host = self.apps[app as usize].host;
        let tunnel = matches!(&operation, Operation::Install(pair) if pair.mode == Mode::Tunnel);
        let Some(guard) = self.guards.get_mut(&host).filter(|guard| guard.app == app && !tunnel) else {
            self.stats.stale_operation += 1;
            return;
        };
        if let Operation::Abandon(_) = &operation {
            self.stats.unprotected += guard.held.len() as u64;
            guard.take_held();
        }
        let done = guard.plane.apply(self.now, operation);
        self.stats.stale_operation += u64::from(done.is_err());
        let waiting = guard.take_held();
        for (since, packet) in waiting {
            self.send_guarded(host, since, packet);
        }
        self.tell_of_protection(host);
    }

    /// Sends a packet of a host that protects some.
    #[cold]
    pub(super) fn send_guarded(&mut self, host: HostId, since: Instant, packet: Packet) {
        let Some(guard) = self.guards.get_mut(&host).filter(|_| packet.dst != host) else {
            // To itself a host sends whatever it likes.
            return self.send_now(packet);
        };
        if self.now.since(since) > guard.config.patience {
            self.stats.unprotected += 1;
            return;
        }
        let header = self.version.header_len() as usize;
        let (protocol, ports) = upper(&packet.body);
        let [source, destination] = [packet.src, packet.dst].map(|host| self.addresses.of(host));
        let ip = IpPacket {
            flow: Flow { protocol, source, destination, ports },
            length: packet.len as usize,
            header,
            next_header: protocol,
            upper: header,
            traffic_class: 0,
            fragment: matches!(packet.body, Body::Fragment(_)),
        };
        match guard.plane.outbound(self.now, &ip) {
            Decision::Forward => self.send_now(packet),
            Decision::Discard => self.stats.unprotected += 1,
            Decision::Hold(_) => {
                self.stats.unprotected += guard.hold(since, packet);
                self.tell_of_protection(host);
            }
            Decision::Protect(inbound) => match sealed(&mut guard.plane, inbound, &ip) {
                Some((length, sealed, encapsulated)) => {
                    let (src, dst, ident) = (packet.src, packet.dst, packet.ident);
                    let body = Body::Esp(Box::new(Esp { inner: packet, sealed, encapsulated }));
                    self.send_now(Packet { src, dst, len: (header + length) as u32, ident, body });
                }
                None => self.stats.unprotected += 1,
            },
        }
    }

    /// Takes what an SA has carried to `host`.
    pub(super) fn receive_esp(&mut self, host: HostId, port: u32, esp: Esp) {
        let Esp { inner, mut sealed, encapsulated } = esp;
        let [local, remote] = [host, inner.src].map(|host| SocketAddr::new(self.addresses.of(host), 0));
        let arrival = Arrival { outer: Outer { local, remote, encapsulated }, traffic_class: 0 };
        let opened =
            self.guards.get_mut(&host).and_then(|guard| guard.plane.open(self.now, &arrival, &mut sealed));
        if opened.is_none() {
            self.stats.no_sa += 1;
            return;
        }
        let packet = self.pool.put(inner);
        self.receive(host, port, packet);
    }

    /// Tells the application that fills a host's databases what those say.
    fn tell_of_protection(&mut self, host: HostId) {
        let Some(guard) = self.guards.get_mut(&host) else { return };
        let app = guard.app;
        let said: Vec<Event> = std::iter::from_fn(|| guard.plane.poll_event()).collect();
        for policy in said.into_iter().filter_map(acquired) {
            self.deliver(app, Delivery::Acquire { policy });
        }
    }
}

/// The policy that needs an SA; SAs have no limits here, and hosts no NAT between them.
fn acquired(event: Event) -> Option<PolicyId> {
    match event {
        Event::Acquire { policy, .. } => Some(policy),
        Event::Expire { .. } | Event::Roamed { .. } | Event::Removed { .. } => None,
    }
}

/// How long a packet is behind its IP header that is carried by an SA, what the SA makes of its ports, and whether that is within
/// UDP.
fn sealed(plane: &mut Plane, inbound: u32, ip: &IpPacket) -> Option<(usize, Vec<u8>, bool)> {
    let carried = plane.carried(inbound, ip)?;
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
