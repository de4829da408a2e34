//! The databases of a host (RFC 4301 §4.4), and what becomes of each packet by them (§5).

mod database;
mod held;

use crate::counters::EspCounters;
use crate::ip::{self, IpPacket, PacketFlow, protocol};
use crate::packet::{EncapsulatedDatagram, EspHeader};
use crate::policy::{PolicyAction, PolicyDatabase, PolicyId, SecurityPolicy, selects_flow};
use crate::replay::ReplayWindow;
use crate::sa::{OpenError, SaExpiry, SaLifetime, SealError, TrafficVolume};
use crate::selector::TrafficSelector;
use crate::transform::{EspKeys, EspTransform, TransformError};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::ops::Range;
use database::{SaDatabase, SaPairEntry};
use held::PacketQueue;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{Duration, Instant, SecureRng};

/// How much a [`EspDataPlane`] keeps, and what becomes of what no policy and no SA is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspDataPlaneConfig {
    /// What becomes of packets that no policy and no SA is for.
    pub otherwise: PolicyAction,
    /// Flows whose way is remembered, so that policies are not gone through for each packet.
    pub flows: usize,
    /// Packets that wait for an SA, at most.
    pub max_queued_packets: usize,
    /// Octets of all of them, at most.
    pub max_queued_octets: usize,
    /// How long a packet waits at most.
    pub queue_timeout: Duration,
    /// After how long an SA is asked for again that has not come.
    pub acquire_interval: Duration,
}

impl Default for EspDataPlaneConfig {
    /// What nothing is for is dropped; 65,536 flows; 256 packets of 256 KiB in all wait for 30 s; asked again after 5 s.
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

/// Whether packets are carried whole or only what they hold (RFC 4301 §4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IpsecMode {
    /// Whole packets between gateways.
    #[default]
    Tunnel,
    /// The payloads of packets between the two ends.
    Transport,
}

/// From where to where packets of ESP go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OuterPath {
    /// Our address. The port is that of packets within UDP.
    pub local: SocketAddr,
    /// The other side's.
    pub remote: SocketAddr,
    /// They are within UDP (RFC 3948).
    pub encapsulated: bool,
}

/// Two SAs, of either direction: what a CHILD_SA of IKE is, or what both sides were told by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaPair {
    /// The SPI of packets that come: by it the pair is named.
    pub inbound: u32,
    /// The SPI of packets that go.
    pub outbound: u32,
    /// How packets are protected.
    pub transform: EspTransform,
    /// The keys of packets that come.
    pub inbound_keys: EspKeys,
    /// The keys of packets that go.
    pub outbound_keys: EspKeys,
    /// Its mode.
    pub mode: IpsecMode,
    /// Traffic of this side.
    pub local: Vec<TrafficSelector>,
    /// Traffic of the other side.
    pub remote: Vec<TrafficSelector>,
    /// From where to where packets go.
    pub outer: OuterPath,
    /// The policy that it is for. `None`: what no policy is for and is of its traffic goes by it.
    pub policy: Option<PolicyId>,
    /// How much either SA may carry.
    pub lifetime: SaLifetime,
    /// Numbers of the window against replays, for [`ReplayWindow::new`].
    pub window: u32,
    /// The pair that it takes the place of.
    pub replaces: Option<u32>,
    /// Nothing goes by it while the pair that it replaces is there and nothing has come by it: the other side, which asked for
    /// it, may not have it yet (RFC 7296 §2.8).
    pub after_peer: bool,
    /// The other side is behind a NAT, which may give it another address: it is followed to where authentic packets come from
    /// (RFC 7296 §2.23). Not with MOBIKE, which tells of addresses itself (RFC 4555 §3.8).
    pub follow: bool,
}

impl SaPair {
    /// The window that is usual.
    pub const WINDOW: u32 = ReplayWindow::DEFAULT;
}

/// What a [`EspDataPlane`] is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IpsecOperation {
    /// Two SAs are there.
    Install(alloc::boxed::Box<SaPair>),
    /// The pair that receives at this SPI is there no more.
    Remove {
        /// Its SPI of packets that come.
        inbound: u32,
    },
    /// Packets of the pair that receives at this SPI go another way (RFC 4555).
    Move {
        /// Its SPI of packets that come.
        inbound: u32,
        /// The new way.
        outer: OuterPath,
    },
    /// All policies, in their order. SAs of policies that are no more stay until they are removed, and carry nothing that goes.
    Policies(Vec<SecurityPolicy>),
    /// There will be no SA for this policy: what waits for it is dropped, and one is asked for with the next packet.
    Abandon(PolicyId),
}

/// Why an operation was not done: the caller's mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OperationError {
    /// Another pair receives at this SPI.
    #[error("another SA receives at SPI {0:08x}: let IKE choose another")]
    SpiTaken(u32),
    /// No pair receives at this SPI.
    #[error("no SA receives at SPI {0:08x}")]
    UnknownSpi(u32),
    /// An SPI is reserved (RFC 4303 §2.1).
    #[error("SPI {0} is reserved: 256 is the first")]
    ReservedSpi(u32),
    /// A pair has no traffic, or a way between two families of addresses.
    #[error("SA {0:08x} has no traffic, or its two ends are not of one family of addresses")]
    UnusablePair(u32),
    /// There is no such transform, or its keys do not fit.
    #[error("SA {0:08x}: {1}")]
    Transform(u32, TransformError),
}

/// What a [`EspDataPlane`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EspEvent {
    /// A packet needs an SA of a policy that has none. [`IpsecOperation::Install`] or [`IpsecOperation::Abandon`] is hoped for.
    Acquire {
        /// The policy.
        policy: PolicyId,
        /// Of which flow the packet is: a narrower SA may do.
        flow: PacketFlow,
    },
    /// A pair has carried nearly all that it may, or all.
    Expire {
        /// Its SPI of packets that come.
        inbound: u32,
        /// Whether it carries on.
        expiry: SaExpiry,
    },
    /// The other side's NAT has given it another address, and packets go there from now on.
    Roamed {
        /// Its SPI of packets that come.
        inbound: u32,
        /// The address.
        remote: SocketAddr,
    },
    /// A pair was removed.
    Removed {
        /// Its SPI of packets that come.
        inbound: u32,
        /// What it carried.
        usage: SaUsage,
    },
}

/// What a pair has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SaUsage {
    /// From the other side.
    pub received: TrafficVolume,
    /// To the other side.
    pub sent: TrafficVolume,
    /// When the last authentic packet came from the other side.
    pub last_received: Option<Instant>,
}

/// What becomes of a packet that goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutboundDecision {
    /// It is dropped.
    Discard,
    /// It goes on as it is.
    Forward,
    /// It goes by the pair that receives at this SPI.
    Protect(u32),
    /// It waits for an SA of this policy: [`EspDataPlane::queue_packet`].
    Queue(PolicyId),
}

/// What of a packet an SA carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundPayload {
    /// These octets of it.
    pub payload: Range<usize>,
    /// Of this protocol.
    pub next_header: u8,
    /// DSCP and ECN of the packet around it (RFC 4301 §5.1.2.1).
    pub traffic_class: u8,
    /// From where to where.
    pub outer: OuterPath,
}

/// From where a packet of ESP came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketArrival {
    /// To which of our addresses, from which of the other side's, within UDP or not.
    pub outer: OuterPath,
    /// DSCP and ECN of the packet around it.
    pub traffic_class: u8,
}

/// What came by an SA, and is of its traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReceivedPacket {
    /// A whole packet, at these octets of the packet of ESP.
    Packet(Range<usize>),
    /// The payload of a packet, at these octets; [`ip::write_header`] makes the packet.
    Payload {
        /// Where it is.
        payload: Range<usize>,
        /// Of which protocol.
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
    /// What became of flows since the last operation.
    flows: HashMap<PacketFlow, OutboundDecision>,
    queued_packets: PacketQueue,
    events: VecDeque<EspEvent>,
    counters: EspCounters,
}

impl EspDataPlane {
    /// One without SAs and policies.
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
    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &EspCounters {
        &self.counters
    }
    /// What the pair that receives at this SPI has carried.
    #[must_use]
    pub fn pair_usage(&self, inbound: u32) -> Option<SaUsage> {
        self.sas.get(inbound).map(SaPairEntry::usage)
    }
    /// What all pairs have carried, by their SPIs of packets that come, in their order.
    #[must_use]
    pub fn all_usages(&self) -> Vec<(u32, SaUsage)> {
        self.sas.usages(false)
    }
    /// The same of those alone that have carried something since this was asked last.
    pub fn take_changed_usages(&mut self) -> Vec<(u32, SaUsage)> {
        let changed = self.sas.usages(true);
        for (spi, usage) in &changed {
            if let Some(entry) = self.sas.get_mut(*spi) {
                entry.reported_usage = *usage;
            }
        }
        changed
    }
    /// The SPIs at which pairs receive, in their order.
    #[must_use]
    pub fn inbound_spis(&self) -> Vec<u32> {
        self.sas.inbound_spis()
    }
    /// What it has to say, in its order.
    pub fn poll_event(&mut self) -> Option<EspEvent> {
        self.events.pop_front()
    }
    /// A packet that waited and has an SA now, or is another policy's: it is to be treated as if it came now.
    pub fn poll_released(&mut self) -> Option<Vec<u8>> {
        self.queued_packets.released.pop_front()
    }

    /// Changes SAs or policies.
    ///
    /// # Errors
    /// [`OperationError`]; nothing has changed.
    pub fn apply_operation(&mut self, now: Instant, operation: IpsecOperation) -> Result<(), OperationError> {
        match operation {
            IpsecOperation::Install(pair) => self.install_pair(&pair)?,
            IpsecOperation::Remove { inbound } => {
                let entry = self.sas.remove(inbound).ok_or(OperationError::UnknownSpi(inbound))?;
                self.events.push_back(EspEvent::Removed { inbound, usage: entry.usage() });
            }
            IpsecOperation::Move { inbound, outer } => {
                if outer.local.is_ipv4() != outer.remote.is_ipv4() {
                    return Err(OperationError::UnusablePair(inbound));
                }
                self.sas.get_mut(inbound).ok_or(OperationError::UnknownSpi(inbound))?.outer = outer;
            }
            IpsecOperation::Policies(policies) => self.policies.set_policies(policies),
            IpsecOperation::Abandon(policy) => self.queued_packets.abandon_policy(policy, &mut self.counters),
        }
        self.flows.clear();
        self.release_queued(now);
        Ok(())
    }

    fn install_pair(&mut self, pair: &SaPair) -> Result<(), OperationError> {
        let spi = pair.inbound;
        if let Some(reserved) = [spi, pair.outbound].into_iter().find(|spi| *spi < crate::packet::FIRST_SPI) {
            return Err(OperationError::ReservedSpi(reserved));
        }
        if self.sas.get(spi).is_some() {
            return Err(OperationError::SpiTaken(spi));
        }
        let ends = pair.outer.local.is_ipv4() == pair.outer.remote.is_ipv4();
        if pair.local.is_empty() || pair.remote.is_empty() || !ends {
            return Err(OperationError::UnusablePair(spi));
        }
        let entry = SaPairEntry::new(pair, self.rng.random_array())
            .map_err(|why| OperationError::Transform(spi, why))?;
        self.sas.insert(entry);
        if let Some(policy) = pair.policy {
            self.queued_packets.clear_acquire(policy);
        }
        Ok(())
    }

    /// Lets go what waits and would not have to any more.
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
        let action = match self.policies.first_match(flow) {
            Some(policy) if policy.action == PolicyAction::Protect => {
                // One of no policy has been agreed on with somebody who may have this traffic, and does as well.
                let sa = self.sas.find_pair(flow, Some(policy.id)).or_else(|| self.sas.find_pair(flow, None));
                return sa.map_or(OutboundDecision::Queue(policy.id), OutboundDecision::Protect);
            }
            Some(policy) => policy.action,
            None => match self.sas.find_pair(flow, None) {
                Some(spi) => return OutboundDecision::Protect(spi),
                None => self.config.otherwise,
            },
        };
        match action {
            PolicyAction::Forward => OutboundDecision::Forward,
            // To protect without a policy means by an SA that there is, and there is none.
            PolicyAction::Discard | PolicyAction::Protect => OutboundDecision::Discard,
        }
    }

    /// What becomes of a packet that is to go. Of one that waits, [`EspEvent::Acquire`] is said, not too often.
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
                if self.queued_packets.should_acquire(policy, now, self.config.acquire_interval) {
                    self.events.push_back(EspEvent::Acquire { policy, flow });
                }
            }
            OutboundDecision::Protect(_) => {}
        }
        decision
    }

    /// Keeps a packet until there is an SA for it. Of too many the oldest is dropped.
    pub fn queue_packet(&mut self, now: Instant, policy: PolicyId, packet: &[u8]) {
        debug_assert!(self.policies.has_policy(policy));
        self.counters.held += 1;
        self.queued_packets.drop_expired(now, &mut self.counters);
        self.queued_packets.push_packet(policy, now, packet.into());
        self.queued_packets.drop_excess(&mut self.counters);
    }

    /// What of a packet goes by the pair that receives at this SPI, as [`outbound`](Self::decide_outbound) has said. `None`: its mode
    /// cannot carry the packet.
    pub fn outbound_payload(&mut self, inbound: u32, packet: &IpPacket) -> Option<OutboundPayload> {
        let entry = self.sas.get(inbound)?;
        let (outer, traffic_class) = (entry.outer, packet.traffic_class);
        let (payload, next_header) = match entry.mode {
            IpsecMode::Tunnel => {
                let version = if packet.flow.source.is_ipv4() { protocol::IPV4 } else { protocol::IPV6 };
                (0..packet.length, version)
            }
            IpsecMode::Transport => {
                // Fragments are put together before (RFC 4301 §7), and headers for routers stay in front (RFC 4303 §3.1.1).
                let routers = packet.flow.source.is_ipv6()
                    && matches!(packet.next_header, protocol::HOP_BY_HOP | protocol::ROUTING);
                if packet.fragment || routers {
                    self.counters.not_transportable += 1;
                    return None;
                }
                (packet.header..packet.length, packet.next_header)
            }
        };
        Some(OutboundPayload { payload, next_header, traffic_class, outer })
    }

    /// How the pair that receives at this SPI protects.
    #[must_use]
    pub fn transform(&self, inbound: u32) -> Option<&EspTransform> {
        self.sas.get(inbound).map(|entry| entry.outbound.transform())
    }

    /// Makes a packet of ESP in place, as [`OutboundSa::seal`](crate::OutboundSa::seal). `None`: the SA is there no more, or has carried all that it may.
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
            Err(SealError::Expired) => {
                self.counters.expired += 1;
                None
            }
            Err(SealError::BufferTooShort { needed, is }) => {
                debug_assert!(false, "{needed} octets are needed, {is} are there");
                None
            }
        }
    }

    /// Opens a packet of ESP in place. `None`: it was dropped, and counted.
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
                    OpenError::Length => &mut counters.length,
                    OpenError::Replayed => &mut counters.replayed,
                    OpenError::BelowWindow => &mut counters.late,
                    OpenError::Integrity => &mut counters.integrity,
                    OpenError::Padding => &mut counters.padding,
                    OpenError::Dummy => &mut counters.dummies,
                    OpenError::Expired => &mut counters.expired,
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
        let received = match_received(entry, arrival, packet, opened.payload, opened.next_header);
        let received = match received {
            None => {
                counters.selectors += 1;
                None
            }
            // What may not go to somebody is not taken from him either, whoever has agreed on an SA that is wider.
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
            self.sas.peer_has(header.spi);
            self.flows.clear();
        }
        received
    }

    /// Tells a datagram of port 4500 that is no packet of ESP, and counts it: a message of IKE is given back.
    pub fn handle_non_esp<'a>(&mut self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        match EncapsulatedDatagram::from_datagram(datagram) {
            EncapsulatedDatagram::Ike(message) => return Some(message),
            EncapsulatedDatagram::Keepalive => self.counters.keepalives += 1,
            EncapsulatedDatagram::Esp(_) | EncapsulatedDatagram::Other => self.counters.not_esp += 1,
        }
        None
    }
}

/// What came, if it is of its SA's traffic (RFC 4301 §5.2, step 4), and the flow of what would go the other way.
fn match_received(
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
            if version != next_header || !selects_flow(&entry.local, &entry.remote, &reversed) {
                return None;
            }
            ip::copy_congestion(octets, arrival.traffic_class);
            Some((ReceivedPacket::Packet(payload.start..payload.start + length), reversed))
        }
        IpsecMode::Transport => {
            let (source, destination) = (arrival.outer.remote.ip(), arrival.outer.local.ip());
            if arrival.outer.encapsulated {
                ip::renew_checksum(next_header, source, destination, octets);
            }
            let ports = ip::parse_ports(next_header, octets);
            let flow = PacketFlow { protocol: next_header, source, destination, ports };
            let reversed = flow.reverse_flow();
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
