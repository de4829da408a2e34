//! The host under test: its files, its TCP and SCTP, and the packets it sent.

use super::settings::SystemSettings;
use super::{ScriptFailure, sctp, tcp};
use crate::script::{IcmpError, PacketBody, ScriptPacket, ScriptSctpPacket, ScriptSegment, UdpPorts};
use crate::wire;
use std::collections::{BTreeMap, VecDeque};
use usher_core::Instant;

/// A packet that the host sent.
#[derive(Clone, Debug)]
pub(super) struct SentPacket {
    pub(super) sent_at: Instant,
    pub(super) body: SentBytes,
}

#[derive(Clone, Debug)]
pub(super) enum SentBytes {
    Tcp(tcp::SentSegment),
    Sctp(Vec<u8>),
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallResult {
    Value(i64),
    Error(&'static str),
    Blocks,
}

/// An open file: a TCP or SCTP socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenFile {
    pub(super) socket: FileSocket,
    pub(super) flags: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum FileSocket {
    Tcp(usize),
    Sctp(usize),
}

pub(super) struct TestedHost {
    pub(super) now: Instant,
    pub(super) settings: SystemSettings,
    pub(super) files: BTreeMap<i64, OpenFile>,
    pub(super) tcp: tcp::TcpHost,
    pub(super) sctp: sctp::SctpHost,
    pub(super) wire: VecDeque<SentPacket>,
}

impl TestedHost {
    pub(super) fn new(now: Instant, ipv6: bool, mtu: u32) -> Self {
        Self {
            now,
            settings: SystemSettings::new(ipv6, mtu),
            files: BTreeMap::new(),
            tcp: tcp::TcpHost::default(),
            sctp: sctp::SctpHost::default(),
            wire: VecDeque::new(),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.tcp.next_timeout(), self.sctp.next_timeout()].into_iter().flatten().min()
    }
    pub(super) fn fire_timers(&mut self) {
        self.tcp.fire_timers(self.now);
        self.sctp.fire_timers(self.now);
        self.collect_sent();
    }
    /// Collects the packets that the host sent.
    pub(super) fn collect_sent(&mut self) {
        let at = self.now;
        self.wire
            .extend(self.tcp.sent.drain(..).map(|out| SentPacket { sent_at: at, body: SentBytes::Tcp(out) }));
        self.wire.extend(
            self.sctp.sent.drain(..).map(|bytes| SentPacket { sent_at: at, body: SentBytes::Sctp(bytes) }),
        );
    }

    pub(super) fn inject_tcp(
        &mut self,
        segment: &ScriptSegment,
        udp: Option<UdpPorts>,
    ) -> Result<(), ScriptFailure> {
        self.tcp.inject_segment(self.now, &self.settings, segment, udp)?;
        self.collect_sent();
        Ok(())
    }
    pub(super) fn inject_icmp(&mut self, error: &IcmpError) {
        self.tcp.inject_icmp(self.now, &self.settings, error);
        self.collect_sent();
    }
    pub(super) fn inject_sctp(&mut self, packet: &ScriptSctpPacket) -> Result<(), ScriptFailure> {
        self.sctp.inject_packet(self.now, packet)?;
        self.collect_sent();
        Ok(())
    }

    /// Compares a sent packet with the expected one.
    pub(super) fn compare_packet(
        &mut self,
        expected: &ScriptPacket,
        sent: &SentPacket,
    ) -> Result<(), ScriptFailure> {
        match (&expected.body, &sent.body) {
            (PacketBody::Tcp(segment), SentBytes::Tcp(out)) => {
                self.tcp.compare_segment(segment, &out.bytes)?;
                let port = self.settings.tunneling_port;
                let udp = (out.header_settings.udp != 0)
                    .then_some(UdpPorts { source: port, destination: out.header_settings.udp });
                if udp != expected.udp {
                    let wanted = expected.udp;
                    return Err(ScriptFailure::Diverges(format!("it is sent in {udp:?}, not in {wanted:?}")));
                }
                check_headers(&expected.ip, out.header_settings)
            }
            (PacketBody::Sctp(packet), SentBytes::Sctp(bytes)) => self.sctp.compare_packet(packet, bytes),
            (_, SentBytes::Tcp(_)) => Err(ScriptFailure::Diverges("a TCP segment is sent".to_owned())),
            (_, SentBytes::Sctp(_)) => Err(ScriptFailure::Diverges("an SCTP packet is sent".to_owned())),
        }
    }
}

/// Compares the words in brackets before a packet with its headers.
fn check_headers(words: &[String], sent: tcp::HeaderSettings) -> Result<(), ScriptFailure> {
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let is = match word {
            "noecn" => continue,
            "ttl" | "hlim" => sent.hops,
            "tos" | "class" => sent.class,
            _ => return Err(ScriptFailure::Unsupported(format!("[{word}] in a packet that is sent"))),
        };
        let text = rest.next().unwrap_or_default();
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let wanted = parsed
            .map_err(|_| ScriptFailure::Unsupported(format!("[{word} {text}] in a packet that is sent")))?;
        if is != wanted {
            return Err(ScriptFailure::Diverges(format!("it is sent with {word} {is}, not {wanted}")));
        }
    }
    Ok(())
}

/// Formats a packet in the script's notation.
pub(super) fn format_packet(packet: &ScriptPacket) -> String {
    match &packet.body {
        PacketBody::Tcp(segment) => wire::tcp::format_segment(segment),
        PacketBody::Sctp(packet) => sctp::chunk_names(packet),
        PacketBody::Icmp(error) => format!("icmp {} {}", error.kind, error.code),
        PacketBody::Other(name) => name.clone(),
    }
}
