//! The IPsec databases of a host (RFC 4301 §4.4), and the processing of each packet (§5).

mod database;
mod waiting_packets;

use crate::counters::EspCounters;
use crate::ip::{self, IpPacket, PacketFlow, protocol};
use crate::packet::{EncapsulatedDatagram, EspHeader};
use crate::policy::{PolicyAction, PolicyDatabase, SecurityPolicy, SecurityPolicyId, selects_flow};
use crate::replay::ReplayWindow;
use crate::sa::{EspInboundError, EspOutboundError, SaExpiry, SaLifetime, TrafficVolume};
use crate::selector::TrafficSelector;
use crate::transform::{EspKeys, EspTransform, EspTransformError};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use database::{SaDatabase, SaPairEntry};
use usher_core::collections::{HashMap, hash_state};
use usher_core::{Duration, Instant, SecureRng};
use waiting_packets::PacketQueue;

/// The limits of an [`EspDataPlane`], and its default action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspDataPlaneConfig {
    /// The action for packets without a matching policy and SA.
    pub otherwise: PolicyAction,
    /// Flows with a cached decision, so that policies are not searched for each packet.
    pub flows: usize,
    /// Most packets that wait for an SA.
    pub max_queued_packets: usize,
    /// Most octets of all waiting packets.
    pub max_queued_octets: usize,
    /// The longest wait of a packet.
    pub queue_timeout: Duration,
    /// The interval at which an SA that has not come is requested again.
    pub acquire_interval: Duration,
}

impl Default for EspDataPlaneConfig {
    /// Discards packets without a policy. 65,536 flows. 256 packets of 256 KiB in all wait for 30 s. Requests an SA
    /// again after 5 s.
    fn default() -> Self {
        Self {
            otherwise: PolicyAction::Discard,
            flows: 65_536,
            max_queued_packets: 256,
            max_queued_octets: 1 << 18,
            queue_timeout: Duration::from_secs(30),
            acquire_interval: Duration::from_secs(5),
        }
    }
}

/// Tunnel or transport mode (RFC 4301 §4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IpsecMode {
    /// SAs carry whole packets, between gateways.
    #[default]
    Tunnel,
    /// SAs carry the payloads of packets, between the two ends.
    Transport,
}

/// The outer addresses of ESP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OuterAddresses {
    /// The local address. The port applies to UDP encapsulation.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// True with UDP encapsulation (RFC 3948).
    pub encapsulated: bool,
}

/// A pair of SAs, one per direction: a CHILD_SA of IKE, or a manual configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaPair {
    /// The SPI of inbound packets, which identifies the pair.
    pub inbound: u32,
    /// The SPI of outbound packets.
    pub outbound: u32,
    /// How packets are protected.
    pub transform: EspTransform,
    /// The keys of inbound packets.
    pub inbound_keys: EspKeys,
    /// The keys of outbound packets.
    pub outbound_keys: EspKeys,
    /// Its mode.
    pub mode: IpsecMode,
    /// The local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// The peer's traffic selectors.
    pub remote: Vec<TrafficSelector>,
    /// The outer addresses.
    pub outer: OuterAddresses,
    /// Its policy. `None`: it carries matching traffic that has no policy.
    pub policy: Option<SecurityPolicyId>,
    /// The limits of each SA.
    pub lifetime: SaLifetime,
    /// The size of the anti-replay window, for [`ReplayWindow::new`].
    pub window: u32,
    /// The pair that it replaces, by its inbound SPI.
    pub replaces: Option<u32>,
    /// True if it must not send before the peer has sent on it, while the pair that it replaces exists. The peer
    /// requested it and may not have installed it yet (RFC 7296 §2.8).
    pub after_peer: bool,
    /// True if the peer is behind a NAT. Packets then go to the source of its last authentic packet (RFC 7296 §2.23).
    /// False with MOBIKE, which reports moves itself (RFC 4555 §3.8).
    pub follow: bool,
}

impl SaPair {
    /// The default size of the window.
    pub const WINDOW: u32 = ReplayWindow::DEFAULT;
}

/// A change of an [`EspDataPlane`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IpsecOperation {
    /// Installs a pair.
    Install(alloc::boxed::Box<SaPair>),
    /// Removes the pair with this inbound SPI.
    Remove {
        /// Its inbound SPI.
        inbound: u32,
    },
    /// Changes the outer addresses of a pair (RFC 4555).
    Move {
        /// Its inbound SPI.
        inbound: u32,
        /// The new outer addresses.
        outer: OuterAddresses,
    },
    /// Replaces all policies, in order. SAs of removed policies stay until they are removed, but send nothing.
    Policies(Vec<SecurityPolicy>),
    /// Reports that a policy will get no SA. Its waiting packets are dropped, and the next packet requests an SA
    /// again.
    Abandon(SecurityPolicyId),
}

/// The reason why an operation failed: the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IpsecOperationError {
    /// Another pair has this inbound SPI.
    #[error("another SA has the inbound SPI {0:08x}; choose another SPI")]
    SpiTaken(u32),
    /// No pair has this inbound SPI.
    #[error("no SA has the inbound SPI {0:08x}")]
    UnknownSpi(u32),
    /// An SPI is reserved (RFC 4303 §2.1).
    #[error("SPI {0} is reserved; the lowest is 256")]
    ReservedSpi(u32),
    /// A pair has no traffic selectors, or outer addresses of two families.
    #[error("SA {0:08x} has no traffic selectors, or outer addresses of two IP families")]
    UnusablePair(u32),
    /// The transform is invalid, or its keys do not fit.
    #[error("SA {0:08x}: {1}")]
    Transform(u32, EspTransformError),
}

/// An event of an [`EspDataPlane`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EspEvent {
    /// A packet needs an SA of a policy without one. Reply with [`IpsecOperation::Install`] or
    /// [`IpsecOperation::Abandon`].
    Acquire {
        /// The policy.
        policy: SecurityPolicyId,
        /// The flow of the packet, for which a narrower SA may suffice.
        flow: PacketFlow,
    },
    /// A pair is near its limit, or at it.
    Expire {
        /// Its inbound SPI.
        inbound: u32,
        /// Near the limit, or at it.
        expiry: SaExpiry,
    },
    /// The peer's NAT has changed its address. Packets go to the new one from now on.
    Roamed {
        /// Its inbound SPI.
        inbound: u32,
        /// The new address.
        remote: SocketAddr,
    },
    /// A pair was removed.
    Removed {
        /// Its inbound SPI.
        inbound: u32,
        /// The traffic that it has carried.
        usage: SaUsage,
    },
}

/// The traffic of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaUsage {
    /// From the peer.
    pub received: TrafficVolume,
    /// To the peer.
    pub sent: TrafficVolume,
    /// The time of the peer's last authentic packet.
    pub last_received: Option<Instant>,
}

/// The decision on an outbound packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutboundDecision {
    /// Drop it.
    Discard,
    /// Send it in the clear.
    Forward,
    /// Protect it by the pair with this inbound SPI.
    Protect(u32),
    /// Queue it until this policy has an SA: [`EspDataPlane::queue_packet`].
    Queue(SecurityPolicyId),
}

/// The part of a packet that an SA carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundPayload {
    /// The octets of the packet.
    pub payload: Range<usize>,
    /// The protocol of these octets.
    pub next_header: u8,
    /// DSCP and ECN of the outer packet (RFC 4301 §5.1.2.1).
    pub traffic_class: u8,
    /// The outer addresses.
    pub outer: OuterAddresses,
}

/// The outer addresses of a received ESP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketArrival {
    /// The local and the peer's address, and whether UDP encapsulates it.
    pub outer: OuterAddresses,
    /// DSCP and ECN of the outer packet.
    pub traffic_class: u8,
}

/// The decrypted contents of an ESP packet that match its SA's selectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceivedPacket {
    /// A whole packet, at these octets of the ESP packet.
    Packet(Range<usize>),
    /// The payload of a packet. [`ip::write_header`] makes its header.
    Payload {
        /// Its octets in the ESP packet.
        payload: Range<usize>,
        /// Its protocol.
        protocol: u8,
        /// The packet's source.
        source: IpAddr,
        /// The packet's destination.
        destination: IpAddr,
        /// Its DSCP and ECN.
        traffic_class: u8,
    },
}

/// The SAs and policies of a host.
#[derive(Debug)]
pub struct EspDataPlane {
    config: EspDataPlaneConfig,
    rng: SecureRng,
    policies: PolicyDatabase,
    sas: SaDatabase,
    /// Decisions on flows since the last operation.
    flows: HashMap<PacketFlow, OutboundDecision>,
    queued_packets: PacketQueue,
    events: VecDeque<EspEvent>,
    counters: EspCounters,
}

impl EspDataPlane {
    /// Creates a data plane without SAs and policies.
    #[must_use]
    pub fn new(config: EspDataPlaneConfig, mut rng: SecureRng) -> Self {
        Self {
            config,
            policies: PolicyDatabase::default(),
            sas: SaDatabase::new(&mut rng),
            flows: HashMap::with_hasher(hash_state(&mut rng)),
            queued_packets: PacketQueue::new(&config, hash_state(&mut rng)),
            events: VecDeque::new(),
            counters: EspCounters::default(),
            rng,
        }
    }
    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &EspCounters {
        &self.counters
    }
    /// Returns the traffic of the pair with this inbound SPI.
    #[must_use]
    pub fn pair_usage(&self, inbound: u32) -> Option<SaUsage> {
        self.sas.get(inbound).map(SaPairEntry::usage)
    }
    /// Returns the traffic of all pairs, in order of their inbound SPIs.
    #[must_use]
    pub fn all_usages(&self) -> Vec<(u32, SaUsage)> {
        self.sas.usages(false)
    }
    /// Returns the traffic of those pairs that carried some since the last call.
    pub fn take_changed_usages(&mut self) -> Vec<(u32, SaUsage)> {
        let changed = self.sas.usages(true);
        for (spi, usage) in &changed {
            if let Some(entry) = self.sas.get_mut(*spi) {
                entry.reported_usage = *usage;
            }
        }
        changed
    }
    /// Returns the inbound SPIs of all pairs, in order.
    #[must_use]
    pub fn inbound_spis(&self) -> Vec<u32> {
        self.sas.inbound_spis()
    }
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<EspEvent> {
        self.events.pop_front()
    }
    /// Returns the next packet that need not wait any more: its policy has an SA, or it has another policy now.
    /// Decide on it again.
    pub fn poll_released_packet(&mut self) -> Option<Vec<u8>> {
        self.queued_packets.released.pop_front()
    }

    /// Changes SAs or policies.
    ///
    /// # Errors
    /// [`IpsecOperationError`]; nothing has changed.
    pub fn apply_operation(
        &mut self,
        now: Instant,
        operation: IpsecOperation,
    ) -> Result<(), IpsecOperationError> {
        match operation {
            IpsecOperation::Install(pair) => self.install_pair(&pair)?,
            IpsecOperation::Remove { inbound } => {
                let entry = self.sas.remove(inbound).ok_or(IpsecOperationError::UnknownSpi(inbound))?;
                self.events.push_back(EspEvent::Removed { inbound, usage: entry.usage() });
            }
            IpsecOperation::Move { inbound, outer } => {
                if outer.local.is_ipv4() != outer.remote.is_ipv4() {
                    return Err(IpsecOperationError::UnusablePair(inbound));
                }
                self.sas.get_mut(inbound).ok_or(IpsecOperationError::UnknownSpi(inbound))?.outer = outer;
            }
            IpsecOperation::Policies(policies) => self.policies.set_policies(policies),
            IpsecOperation::Abandon(policy) => self.queued_packets.abandon_policy(policy, &mut self.counters),
        }
        self.flows.clear();
        self.release_queued(now);
        Ok(())
    }

    fn install_pair(&mut self, pair: &SaPair) -> Result<(), IpsecOperationError> {
        let spi = pair.inbound;
        // RFC 4303, 2.1: SPIs 0 to 255 are reserved.
        if let Some(reserved) = [spi, pair.outbound].into_iter().find(|spi| *spi < crate::packet::FIRST_SPI) {
            return Err(IpsecOperationError::ReservedSpi(reserved));
        }
        if self.sas.get(spi).is_some() {
            return Err(IpsecOperationError::SpiTaken(spi));
        }
        let ends = pair.outer.local.is_ipv4() == pair.outer.remote.is_ipv4();
        if pair.local.is_empty() || pair.remote.is_empty() || !ends {
            return Err(IpsecOperationError::UnusablePair(spi));
        }
        let entry = SaPairEntry::new(pair, self.rng.random_array())
            .map_err(|why| IpsecOperationError::Transform(spi, why))?;
        self.sas.insert(entry);
        if let Some(policy) = pair.policy {
            self.queued_packets.clear_sa_request(policy);
        }
        Ok(())
    }

    /// Releases queued packets that need not wait any more.
    fn release_queued(&mut self, now: Instant) {
        let waiting = self.queued_packets.take_packets(now, &mut self.counters);
        for (policy, at, packet) in waiting {
            let flow = IpPacket::parse(&packet).map(|packet| packet.flow);
            match flow.map(|flow| self.decide_flow(&flow)) {
                Ok(OutboundDecision::Queue(now_of)) if now_of == policy => {
                    self.queued_packets.push_packet(policy, at, packet)
                }
                _ => self.queued_packets.released.push_back(packet),
            }
        }
    }

    fn decide_flow(&self, flow: &PacketFlow) -> OutboundDecision {
        let action = match self.policies.first_matching_policy(flow) {
            Some(policy) if policy.action == PolicyAction::Protect => {
                // If no SA pair belongs to this policy, a pair without a policy may serve: its peer has agreed to this
                // traffic.
                let sa = self.sas.find_pair(flow, Some(policy.id)).or_else(|| self.sas.find_pair(flow, None));
                // RFC 4301, 5.1: without an SA, one is requested and the packet waits.
                return sa.map_or(OutboundDecision::Queue(policy.id), OutboundDecision::Protect);
            }
            Some(policy) => policy.action,
            None => match self.sas.find_pair(flow, None) {
                Some(spi) => return OutboundDecision::Protect(spi),
                // RFC 4301, 4.4.1: without a match, packets are discarded by default.
                None => self.config.otherwise,
            },
        };
        match action {
            PolicyAction::Forward => OutboundDecision::Forward,
            // The default action Protect lets only traffic of an existing SA pass, and no SA fits this flow.
            PolicyAction::Discard | PolicyAction::Protect => OutboundDecision::Discard,
        }
    }

    /// Decides on an outbound packet. If it has to wait, gives [`EspEvent::Acquire`] at a limited rate.
    pub fn decide_outbound(&mut self, now: Instant, packet: &IpPacket) -> OutboundDecision {
        let flow = packet.flow;
        let decision = match self.flows.get(&flow) {
            Some(known) => *known,
            None => {
                let decision = self.decide_flow(&flow);
                if self.flows.len() >= self.config.flows {
                    self.flows.clear();
                }
                if !matches!(decision, OutboundDecision::Queue(_)) {
                    self.flows.insert(flow, decision);
                }
                decision
            }
        };
        match decision {
            OutboundDecision::Discard => self.counters.discarded += 1,
            OutboundDecision::Forward => self.counters.forwarded += 1,
            OutboundDecision::Queue(policy) => {
                if self.queued_packets.record_sa_request_if_due(policy, now, self.config.acquire_interval) {
                    self.events.push_back(EspEvent::Acquire { policy, flow });
                }
            }
            OutboundDecision::Protect(_) => {}
        }
        decision
    }

    /// Queues a packet until its policy has an SA. Beyond the limits, the oldest is dropped.
    pub fn queue_packet(&mut self, now: Instant, policy: SecurityPolicyId, packet: &[u8]) {
        debug_assert!(self.policies.has_policy(policy));
        self.counters.queued += 1;
        self.queued_packets.drop_expired_packets(now, &mut self.counters);
        self.queued_packets.push_packet(policy, now, packet.into());
        self.queued_packets.drop_excess_packets(&mut self.counters);
    }

    /// Returns the part of a packet that this pair carries, after [`decide_outbound`](Self::decide_outbound). `None`
    /// if its mode cannot carry the packet.
    pub fn outbound_payload(&mut self, inbound: u32, packet: &IpPacket) -> Option<OutboundPayload> {
        let entry = self.sas.get(inbound)?;
        let (outer, traffic_class) = (entry.outer, packet.traffic_class);
        let (payload, next_header) = match entry.mode {
            IpsecMode::Tunnel => {
                let version = if packet.flow.source.is_ipv4() { protocol::IPV4 } else { protocol::IPV6 };
                (0..packet.length, version)
            }
            IpsecMode::Transport => {
                // Transport mode needs reassembled packets (RFC 4301 §7), with the headers for routers in front (RFC
                // 4303 §3.1.1). This side does neither, so it drops such packets.
                let routers = packet.flow.source.is_ipv6()
                    && matches!(packet.next_header, protocol::HOP_BY_HOP | protocol::ROUTING);
                if packet.fragment || routers {
                    self.counters.not_transportable += 1;
                    return None;
                }
                (packet.header..packet.length, packet.next_header)
            }
        };
        // RFC 4301, 5.1.2.1: the outer header has DSCP and ECN of the inner one.
        Some(OutboundPayload { payload, next_header, traffic_class, outer })
    }

    /// Returns the transform of the pair with this inbound SPI.
    #[must_use]
    pub fn transform(&self, inbound: u32) -> Option<&EspTransform> {
        self.sas.get(inbound).map(|entry| entry.outbound.transform())
    }

    /// Seals an ESP packet in place, as [`OutboundSa::seal`](crate::OutboundSa::seal). `None` if the SA has been
    /// removed or is at its limit.
    pub fn seal(&mut self, inbound: u32, buf: &mut [u8], payload: usize, next_header: u8) -> Option<usize> {
        let entry = self.sas.get_mut(inbound)?;
        let sealed = entry.outbound.seal(buf, payload, next_header);
        if let Some(expiry) = entry.outbound.poll_expiry() {
            self.events.push_back(EspEvent::Expire { inbound, expiry });
        }
        match sealed {
            Ok(length) => {
                self.counters.sealed += 1;
                Some(length)
            }
            Err(EspOutboundError::Expired) => {
                self.counters.expired += 1;
                None
            }
            Err(EspOutboundError::BufferTooShort { needed, is }) => {
                debug_assert!(false, "{needed} octets are needed, {is} are there");
                None
            }
        }
    }

    /// Opens an ESP packet in place. `None` if it was dropped and counted.
    pub fn open(
        &mut self,
        now: Instant,
        arrival: &PacketArrival,
        packet: &mut [u8],
    ) -> Option<ReceivedPacket> {
        let Ok(header) = EspHeader::parse(packet) else {
            self.counters.length += 1;
            return None;
        };
        // RFC 4301, 4.1: the SPI alone identifies an inbound SA.
        let Some(entry) = self.sas.get_mut(header.spi) else {
            self.counters.unknown_spi += 1;
            return None;
        };
        let opened = entry.inbound.open(packet);
        if let Some(expiry) = entry.inbound.poll_expiry() {
            self.events.push_back(EspEvent::Expire { inbound: header.spi, expiry });
        }
        let counters = &mut self.counters;
        let opened = match opened {
            Ok(opened) => opened,
            Err(refused) => {
                *match refused {
                    EspInboundError::Length => &mut counters.length,
                    EspInboundError::Replayed => &mut counters.replayed,
                    EspInboundError::BelowWindow => &mut counters.late,
                    EspInboundError::Integrity => &mut counters.integrity,
                    EspInboundError::Padding => &mut counters.padding,
                    EspInboundError::Dummy => &mut counters.dummies,
                    EspInboundError::Expired => &mut counters.expired,
                } += 1;
                return None;
            }
        };
        entry.last_received = Some(now);
        if entry.follow
            && opened.newest
            && arrival.outer.encapsulated
            && entry.outer.remote != arrival.outer.remote
        {
            entry.outer.remote = arrival.outer.remote;
            self.events.push_back(EspEvent::Roamed { inbound: header.spi, remote: arrival.outer.remote });
        }
        let waits = entry.waits;
        let received = check_received_selectors(entry, arrival, packet, opened.payload, opened.next_header);
        let received = match received {
            None => {
                counters.selectors += 1;
                None
            }
            // A discard policy also applies to inbound packets of the opposite flow, even if the SA's selectors allow
            // them.
            Some((_, reversed)) if self.policies.discards_flow(&reversed) => {
                counters.discarded += 1;
                None
            }
            Some((received, _)) => {
                counters.opened += 1;
                Some(received)
            }
        };
        if waits {
            self.sas.mark_pair_ready(header.spi);
            self.flows.clear();
        }
        received
    }

    /// Handles a datagram of port 4500 that is no ESP packet, and counts it. Returns an IKE message.
    pub fn handle_non_esp_datagram<'a>(&mut self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        match EncapsulatedDatagram::from_datagram(datagram) {
            EncapsulatedDatagram::Ike(message) => return Some(message),
            EncapsulatedDatagram::Keepalive => self.counters.keepalives += 1,
            EncapsulatedDatagram::Esp(_) | EncapsulatedDatagram::Other => self.counters.not_esp += 1,
        }
        None
    }
}

/// Returns the contents if they match the SA's selectors (RFC 4301 §5.2, step 4), and the opposite flow.
fn check_received_selectors(
    entry: &SaPairEntry,
    arrival: &PacketArrival,
    packet: &mut [u8],
    payload: Range<usize>,
    next_header: u8,
) -> Option<(ReceivedPacket, PacketFlow)> {
    let octets = packet.get_mut(payload.clone())?;
    match entry.mode {
        IpsecMode::Tunnel => {
            let inner = IpPacket::parse(octets).ok()?;
            let version = if inner.flow.source.is_ipv4() { protocol::IPV4 } else { protocol::IPV6 };
            let (reversed, length) = (inner.flow.reverse_flow(), inner.length);
            // RFC 4301, 5.2: packets outside the SA's selectors are dropped.
            if version != next_header || !selects_flow(&entry.local, &entry.remote, &reversed) {
                return None;
            }
            ip::copy_ecn_congestion_mark(octets, arrival.traffic_class);
            Some((ReceivedPacket::Packet(payload.start..payload.start + length), reversed))
        }
        IpsecMode::Transport => {
            let (source, destination) = (arrival.outer.remote.ip(), arrival.outer.local.ip());
            if arrival.outer.encapsulated {
                // RFC 3948, 3.1.2: the checksum fits the addresses that this side sees.
                ip::recompute_transport_checksum(next_header, source, destination, octets);
            }
            let ports = ip::parse_ports(next_header, octets);
            let flow = PacketFlow { protocol: next_header, source, destination, ports };
            let reversed = flow.reverse_flow();
            // RFC 4301, 5.2: packets outside the SA's selectors are dropped.
            if !selects_flow(&entry.local, &entry.remote, &reversed) {
                return None;
            }
            let traffic_class = arrival.traffic_class;
            let received = ReceivedPacket::Payload {
                payload,
                protocol: next_header,
                source,
                destination,
                traffic_class,
            };
            Some((received, reversed))
        }
    }
}
