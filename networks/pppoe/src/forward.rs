//! Decides about frames of hosts and packets to hosts, without sockets or a clock. User mode and tests share this code.

mod bucket;
mod clamp;
pub mod fuzz;
mod prefixes;
#[cfg(test)]
mod tests;

pub(crate) use bucket::OctetRateLimiter;
pub(crate) use prefixes::PrefixTable;

use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
use prefixes::address_bits;
use std::net::IpAddr;
use std::ops::Range;
use usher_core::Instant;
use usher_esp::ip::{IPV4_HEADER, IPV6_HEADER};

/// Octets before the IP packet: the headers of Ethernet and PPPoE, and PPP's protocol field.
pub(crate) const HEADROOM: usize = 22;
/// PPP protocol numbers of IPv4 (RFC 1332 §2) and IPv6 (RFC 5072 §2).
const IPV4: u16 = 0x0021;
const IPV6: u16 = 0x0057;
/// EtherTypes of PPPoE's stages (RFC 2516 §4).
const DISCOVERY: u16 = 0x8863;
const SESSION: u16 = 0x8864;
/// The number of SESSION_IDs.
const NUMBERS: usize = 1 << 16;

/// The decision about a frame of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UpstreamVerdict {
    /// Pass it to the owner: discovery or a PPP control protocol.
    Control,
    /// Pass these octets of it to the system as a packet.
    Packet(Range<usize>),
    /// It is dropped and counted.
    Dropped,
}

/// The headers of a packet to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DownstreamFrameHeader {
    /// The port.
    pub(crate) port: usize,
    /// The headers before each packet, with LENGTH missing.
    header: [u8; HEADROOM],
}

impl DownstreamFrameHeader {
    /// Writes the headers of an IP packet of this length.
    pub(crate) fn write_session_headers(&self, octets: usize, out: &mut [u8; HEADROOM]) {
        *out = self.header;
        // PPPoE's LENGTH includes PPP's protocol field. The sum fits 16 bits, because the packet is within the MTU.
        out[18..20].copy_from_slice(&((octets + 2) as u16).to_be_bytes());
    }
}

#[derive(Debug)]
struct ForwardingEntry {
    session: DataPlaneSession,
    up: Option<OctetRateLimiter>,
    down: Option<OctetRateLimiter>,
    usage: DataPlaneUsage,
    /// True if the session is in `changed`.
    noted: bool,
    /// Like [`DownstreamFrameHeader::header`], for IPv4.
    header: [u8; HEADROOM],
}

/// The table of installed sessions.
#[derive(Debug)]
pub(crate) struct ForwardingTable {
    /// The ports' Ethernet addresses.
    ports: Vec<[u8; 6]>,
    sessions: Vec<Option<Box<ForwardingEntry>>>,
    ipv4: PrefixTable,
    ipv6: PrefixTable,
    /// A cache of the last destination: packets come in trains.
    last: Option<(IpAddr, u16)>,
    pub(crate) counters: DataPlaneCounters,
    /// Sessions with traffic since the last call of `take_changed`.
    changed: Vec<u16>,
}

/// True if an address is in a prefix.
fn is_within(address: u128, (network, bits): (IpAddr, u8)) -> bool {
    bits == 0 || (address ^ address_bits(network)) >> (128 - u32::from(bits)) == 0
}

impl ForwardingTable {
    /// Creates a table for ports with these Ethernet addresses. Hosts must not know the seed.
    pub(crate) fn new(ports: Vec<[u8; 6]>, seed: u64) -> Self {
        Self {
            ports,
            sessions: (0..NUMBERS).map(|_| None).collect(),
            ipv4: PrefixTable::new(seed),
            ipv6: PrefixTable::new(seed),
            last: None,
            counters: DataPlaneCounters::default(),
            changed: Vec::new(),
        }
    }

    fn prefix_table(&mut self, of: IpAddr) -> &mut PrefixTable {
        if of.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 }
    }

    /// Installs or updates a session. An update keeps the usage.
    ///
    /// # Errors
    /// [`SessionInstallError`]; nothing has changed then.
    pub(crate) fn install(&mut self, session: DataPlaneSession) -> Result<(), SessionInstallError> {
        session.validate(self.ports.len())?;
        for (network, bits) in session.all_networks() {
            let owner = self.prefix_table(network).session_of_exact_prefix(network, bits);
            if let Some(other) = owner.filter(|other| *other != session.number) {
                return Err(SessionInstallError::NetworkTaken { network, bits, other });
            }
        }
        let before = self.take_entry(session.number);
        for (network, bits) in session.all_networks() {
            self.prefix_table(network).insert_prefix_owner(network, bits, session.number);
        }
        let mut header = [0; HEADROOM];
        header[..6].copy_from_slice(&session.peer);
        header[6..12].copy_from_slice(&self.ports[session.port]);
        header[12..14].copy_from_slice(&SESSION.to_be_bytes());
        header[14] = 0x11;
        header[16..18].copy_from_slice(&session.number.to_be_bytes());
        header[20..].copy_from_slice(&IPV4.to_be_bytes());
        // A rate limiter whose rate did not change keeps its state.
        let bucket = |rate: Option<u64>, old: Option<OctetRateLimiter>| {
            let new = rate.map(OctetRateLimiter::new)?;
            Some(old.filter(|old| old.cost == new.cost).unwrap_or(new))
        };
        let old = before.as_ref();
        let entry = ForwardingEntry {
            up: bucket(session.rate_up, old.and_then(|old| old.up)),
            down: bucket(session.rate_down, old.and_then(|old| old.down)),
            usage: old.map_or_else(DataPlaneUsage::default, |old| old.usage),
            noted: old.is_some_and(|old| old.noted),
            header,
            session,
        };
        let number = usize::from(entry.session.number);
        self.sessions[number] = Some(Box::new(entry));
        Ok(())
    }

    fn take_entry(&mut self, number: u16) -> Option<Box<ForwardingEntry>> {
        self.last = None;
        let entry = self.sessions[usize::from(number)].take()?;
        for (network, bits) in entry.session.all_networks() {
            self.prefix_table(network).remove_prefix_owner(network, bits);
        }
        Some(entry)
    }
    /// Removes a session. Returns its usage.
    pub(crate) fn remove(&mut self, number: u16) -> Option<DataPlaneUsage> {
        self.changed.retain(|one| *one != number);
        self.take_entry(number).map(|entry| entry.usage)
    }
    /// Returns a session's usage.
    pub(crate) fn usage(&self, number: u16) -> Option<DataPlaneUsage> {
        Some(self.sessions[usize::from(number)].as_ref()?.usage)
    }
    /// Returns the sessions with traffic since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<u16> {
        let numbers = std::mem::take(&mut self.changed);
        for number in &numbers {
            if let Some(entry) = &mut self.sessions[usize::from(*number)] {
                entry.noted = false;
            }
        }
        numbers
    }

    /// Decides about a frame from a port. May lower the MSS in place. `partial`: the inner checksum is incomplete.
    pub(crate) fn process_upstream(
        &mut self,
        now: Instant,
        port: usize,
        frame: &mut [u8],
        partial: bool,
    ) -> UpstreamVerdict {
        self.counters.frames_in += 1;
        match self.classify_frame(now, port, frame, partial) {
            Some(UpstreamVerdict::Control) => {
                self.counters.control += 1;
                UpstreamVerdict::Control
            }
            Some(other) => other,
            None => {
                self.counters.malformed += 1;
                UpstreamVerdict::Dropped
            }
        }
    }

    /// Classifies a frame. `None`: invalid lengths or headers.
    fn classify_frame(
        &mut self,
        now: Instant,
        port: usize,
        frame: &mut [u8],
        partial: bool,
    ) -> Option<UpstreamVerdict> {
        let head = frame.first_chunk::<20>()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (ethertype, number, length) = (word(12), word(16), usize::from(word(18)));
        if ethertype == DISCOVERY {
            return Some(UpstreamVerdict::Control);
        }
        // RFC 2516 §6: version and type 1, code 0.
        if ethertype != SESSION || head[14..16] != [0x11, 0] {
            return None;
        }
        let (to, from) = (&head[..6], &head[6..12]);
        let (to_us, [high, low]) = (to == self.ports.get(port)?, *frame.get(20..22)?.first_chunk::<2>()?);
        let end = 20 + length;
        if length < 2 || end > frame.len() {
            return None;
        }
        let protocol = u16::from_be_bytes([high, low]);
        if protocol != IPV4 && protocol != IPV6 {
            return Some(UpstreamVerdict::Control);
        }
        let Some(entry) = &mut self.sessions[usize::from(number)] else {
            self.counters.no_session += 1;
            return Some(UpstreamVerdict::Dropped);
        };
        if !to_us || entry.session.port != port || entry.session.peer != from {
            self.counters.wrong_station += 1;
            return Some(UpstreamVerdict::Dropped);
        }
        let packet = frame.get(HEADROOM..end)?;
        let mut on_link = false;
        let (source, octets) = match protocol {
            IPV4 => {
                let header = packet.first_chunk::<IPV4_HEADER>()?;
                let octets = usize::from(u16::from_be_bytes([header[2], header[3]]));
                if header[0] >> 4 != 4 || octets < IPV4_HEADER || octets > packet.len() {
                    return None;
                }
                (IpAddr::from([header[12], header[13], header[14], header[15]]), octets)
            }
            _ => {
                let header = packet.first_chunk::<IPV6_HEADER>()?;
                let octets = IPV6_HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
                if header[0] >> 4 != 6 || octets > packet.len() {
                    return None;
                }
                let source: [u8; 16] = *header[8..24].first_chunk()?;
                on_link = is_link_scope(&source, &header[24..40]);
                if on_link
                    && (source == [0; 16] || entry.session.link_local.is_some_and(|own| source[8..] == own))
                {
                    return Some(UpstreamVerdict::Control);
                }
                (IpAddr::from(source), octets)
            }
        };
        let at = address_bits(source);
        let own =
            entry.session.all_networks().any(|one| one.0.is_ipv4() == source.is_ipv4() && is_within(at, one));
        if !own {
            self.counters.spoofed += 1;
            entry.usage.spoofed += 1;
            return Some(UpstreamVerdict::Dropped);
        }
        if on_link {
            return Some(UpstreamVerdict::Control);
        }
        if octets > usize::from(entry.session.mtu) {
            self.counters.too_long += 1;
            return Some(UpstreamVerdict::Dropped);
        }
        if entry.up.as_mut().is_some_and(|bucket| !bucket.take_octets(now, octets as u64)) {
            self.counters.limited += 1;
            entry.usage.limited += 1;
            return Some(UpstreamVerdict::Dropped);
        }
        mark_changed(&mut self.changed, entry);
        entry.usage.packets_in += 1;
        entry.usage.octets_in += octets as u64;
        let range = HEADROOM..HEADROOM + octets;
        if entry.session.clamp_mss {
            clamp::clamp_mss(&mut frame[range.clone()], entry.session.mtu, partial);
        }
        Some(UpstreamVerdict::Packet(range))
    }

    /// Finds the session for a packet of the system. A packet may be segmented later into `count` packets of `octets`
    /// in all, the longest of `longest`. `partial`: its checksum is incomplete.
    pub(crate) fn process_downstream(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        partial: bool,
        count: usize,
        octets: usize,
        longest: usize,
    ) -> Option<DownstreamFrameHeader> {
        let destination = match packet.first().map(|first| first >> 4) {
            Some(4) => packet.get(16..20).and_then(<[u8]>::first_chunk::<4>).map(|to| IpAddr::from(*to)),
            Some(6) => packet.get(24..40).and_then(<[u8]>::first_chunk::<16>).map(|to| IpAddr::from(*to)),
            _ => None,
        };
        let Some(destination) = destination else {
            self.counters.malformed += 1;
            return None;
        };
        let number = match self.last.filter(|last| last.0 == destination) {
            Some((_, number)) => Some(number),
            None => {
                let of = if destination.is_ipv4() { &self.ipv4 } else { &self.ipv6 };
                of.session_of_address(destination)
            }
        };
        let entry = number.and_then(|number| self.sessions[usize::from(number)].as_mut());
        let Some(entry) = entry else {
            self.counters.no_host += 1;
            return None;
        };
        self.last = Some((destination, entry.session.number));
        if longest > usize::from(entry.session.mtu) {
            self.counters.too_long += count as u64;
            return None;
        }
        if entry.down.as_mut().is_some_and(|bucket| !bucket.take_octets(now, octets as u64)) {
            self.counters.limited += count as u64;
            entry.usage.limited += count as u64;
            return None;
        }
        mark_changed(&mut self.changed, entry);
        entry.usage.packets_out += count as u64;
        entry.usage.octets_out += octets as u64;
        if entry.session.clamp_mss {
            clamp::clamp_mss(packet, entry.session.mtu, partial);
        }
        let mut header = entry.header;
        if destination.is_ipv6() {
            header[20..].copy_from_slice(&IPV6.to_be_bytes());
        }
        Some(DownstreamFrameHeader { port: entry.session.port, header })
    }
}

/// Marks a session as changed, once.
fn mark_changed(changed: &mut Vec<u16>, entry: &mut ForwardingEntry) {
    if !std::mem::replace(&mut entry.noted, true) {
        changed.push(entry.session.number);
    }
}

/// True if a packet has link scope (RFC 4291 §2.5.6, §2.7): neighbour discovery, and hosts without another address.
pub(crate) fn is_link_scope(source: &[u8; 16], destination: &[u8]) -> bool {
    let local = |address: &[u8]| address[0] == 0xfe && address[1] & 0xc0 == 0x80;
    *source == [0; 16]
        || local(source)
        || local(destination)
        || destination[0] == 0xff && destination[1] & 15 <= 2
}
