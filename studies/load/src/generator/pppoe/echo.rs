//! Echoes within a session (RFC 792). Their replies show that the session carries packets both ways, and measure the
//! round-trip time.

use super::super::login::LoginResultRecorder;
use std::net::{IpAddr, Ipv4Addr};
use usher_core::{Duration, Instant, OctetReader};
use usher_esp::ip::{fold_checksum, sum_octets, write_header};

const ICMP: u8 = 1;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Octets of an IPv4 header without options and of the ICMP header.
const HEADERS: usize = 28;
const CARRIED: usize = 16;

/// The echoes of sessions.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionEchoConfig {
    /// Echoes per second in each session, above 0.
    pub rate: f64,
    /// Octets of each IP packet.
    pub size: usize,
    /// The destination; `None` for the concentrator's address in the session.
    pub to: Option<Ipv4Addr>,
}

impl SessionEchoConfig {
    /// The smallest packet, in octets.
    pub const SMALLEST: usize = HEADERS + CARRIED;

    pub(super) fn echo_interval(&self) -> Duration {
        Duration::from_secs_f64(1.0 / self.rate.max(1e-6))
    }
}

/// The echoes of one session.
#[derive(Debug)]
pub(super) struct SessionEchoState {
    local: Ipv4Addr,
    to: Ipv4Addr,
    size: usize,
    every: Duration,
    due: Instant,
    sequence: u16,
    waiting: Option<Vec<u8>>,
}

/// A reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EchoReply {
    /// The window of its echo.
    pub(super) window: u32,
    /// The round-trip time.
    pub(super) time: Duration,
}

impl SessionEchoState {
    pub(super) fn new(
        config: &SessionEchoConfig,
        (local, remote): (Ipv4Addr, Ipv4Addr),
        first: Instant,
    ) -> Self {
        Self {
            local,
            to: config.to.unwrap_or(remote),
            size: config.size.max(SessionEchoConfig::SMALLEST),
            every: config.echo_interval(),
            due: first,
            sequence: 0,
            waiting: None,
        }
    }

    /// Returns the time of the next echo.
    pub(super) const fn next_echo_due_time(&self) -> Instant {
        self.due
    }

    /// Prepares the echo that is due, if any.
    pub(super) fn prepare_echo(&mut self, now: Instant, sink: &mut LoginResultRecorder) {
        if self.due > now {
            return;
        }
        // After a delay, do not catch up: the missed packets would be a burst that the generator itself causes.
        self.due = (self.due + self.every).max(now);
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet = Vec::with_capacity(self.size);
        let length = self.size - 20;
        write_header(&mut packet, IpAddr::V4(self.local), IpAddr::V4(self.to), ICMP, 0, length);
        let start = packet.len();
        let [low, high] = [self.local.octets()[2], self.local.octets()[3]];
        packet.extend_from_slice(&[ECHO_REQUEST, 0, 0, 0, low, high]);
        packet.extend_from_slice(&self.sequence.to_be_bytes());
        packet.extend_from_slice(&now.duration_since(Instant::ZERO).as_nanos().to_be_bytes()[..]);
        packet.extend_from_slice(&sink.window.to_be_bytes());
        packet.resize(self.size, 0);
        let code = fold_checksum(sum_octets(&packet[start..], 0));
        packet[start + 2..start + 4].copy_from_slice(&code);
        sink.count_sent_echo();
        self.waiting = Some(packet);
    }

    /// Returns the packet to send.
    pub(super) fn take_packet(&mut self) -> Option<Vec<u8>> {
        self.waiting.take()
    }

    /// Parses a packet of the session; `None` if it is not a reply to one of these echoes.
    pub(super) fn parse_reply(&self, now: Instant, packet: &[u8]) -> Option<EchoReply> {
        let mut r = OctetReader::new(packet);
        let first = r.read_u8().ok()?;
        let _class = r.read_u8().ok()?;
        let total = usize::from(r.read_u16().ok()?);
        r.read_bytes(5).ok()?;
        let protocol = r.read_u8().ok()?;
        r.read_bytes(2).ok()?;
        let (source, destination) =
            (Ipv4Addr::from(r.read_array::<4>().ok()?), Ipv4Addr::from(r.read_array::<4>().ok()?));
        let ours = first == 0x45 && protocol == ICMP && source == self.to && destination == self.local;
        let icmp = packet.get(20..total).filter(|_| ours)?;
        if fold_checksum(sum_octets(icmp, 0)) != [0, 0] {
            return None;
        }
        let mut r = OctetReader::new(icmp);
        let kind = r.read_u8().ok()?;
        r.read_bytes(7).ok()?;
        let sent = Instant::from_nanos(u64::from_be_bytes(r.read_array::<8>().ok()?));
        let window = u32::from_be_bytes(r.read_array::<4>().ok()?);
        (kind == ECHO_REPLY && sent <= now).then(|| EchoReply { window, time: now.duration_since(sent) })
    }
}
