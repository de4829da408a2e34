//! The tested side: its files, its TCP and its SCTP, and what they have sent.

use super::settings::Settings;
use super::{Stop, sctp, tcp};
use crate::script::{Body, Icmp, Packet, Sctp, Segment, Udp};
use crate::wire;
use std::collections::{BTreeMap, VecDeque};
use usher_core::Instant;

/// A packet that the tested side has sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) body: Bytes,
}

#[derive(Clone, Debug)]
pub(super) enum Bytes {
    Tcp(tcp::Out),
    Sctp(Vec<u8>),
}

/// What a call gives back.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Returned {
    Value(i64),
    Error(&'static str),
    Blocks,
}

/// An open file: a socket of one of the hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) socket: Socket,
    pub(super) flags: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Socket {
    Tcp(usize),
    Sctp(usize),
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) settings: Settings,
    pub(super) files: BTreeMap<i64, File>,
    pub(super) tcp: tcp::Host,
    pub(super) sctp: sctp::Host,
    pub(super) wire: VecDeque<Sent>,
}

impl World {
    pub(super) fn new(now: Instant, ipv6: bool, mtu: u32) -> Self {
        Self {
            now,
            settings: Settings::new(ipv6, mtu),
            files: BTreeMap::new(),
            tcp: tcp::Host::default(),
            sctp: sctp::Host::default(),
            wire: VecDeque::new(),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.tcp.next_timeout(), self.sctp.next_timeout()].into_iter().flatten().min()
    }
    pub(super) fn fire(&mut self) {
        self.tcp.fire(self.now);
        self.sctp.fire(self.now);
        self.collect();
    }
    /// Takes what the hosts have sent.
    pub(super) fn collect(&mut self) {
        let at = self.now;
        self.wire.extend(self.tcp.sent.drain(..).map(|out| Sent { at, body: Bytes::Tcp(out) }));
        self.wire.extend(self.sctp.sent.drain(..).map(|bytes| Sent { at, body: Bytes::Sctp(bytes) }));
    }

    pub(super) fn inject_tcp(&mut self, segment: &Segment, udp: Option<Udp>) -> Result<(), Stop> {
        self.tcp.inject(self.now, &self.settings, segment, udp)?;
        self.collect();
        Ok(())
    }
    pub(super) fn inject_icmp(&mut self, error: &Icmp) {
        self.tcp.inject_icmp(self.now, &self.settings, error);
        self.collect();
    }
    pub(super) fn inject_sctp(&mut self, packet: &Sctp) -> Result<(), Stop> {
        self.sctp.inject(self.now, packet)?;
        self.collect();
        Ok(())
    }

    /// Holds what was sent against what is expected.
    pub(super) fn compare(&mut self, expected: &Packet, sent: &Sent) -> Result<(), Stop> {
        match (&expected.body, &sent.body) {
            (Body::Tcp(segment), Bytes::Tcp(out)) => {
                self.tcp.compare(segment, &out.bytes)?;
                let port = self.settings.tunneling_port;
                let udp = (out.around.udp != 0).then_some(Udp { source: port, destination: out.around.udp });
                if udp != expected.udp {
                    let wanted = expected.udp;
                    return Err(Stop::Diverges(format!("it is sent in {udp:?}, not in {wanted:?}")));
                }
                around(&expected.ip, out.around)
            }
            (Body::Sctp(packet), Bytes::Sctp(bytes)) => self.sctp.compare(packet, bytes),
            (_, Bytes::Tcp(_)) => Err(Stop::Diverges("a TCP segment is sent".to_owned())),
            (_, Bytes::Sctp(_)) => Err(Stop::Diverges("an SCTP packet is sent".to_owned())),
        }
    }
}

/// Holds what stands in brackets before a packet against what it was sent with.
fn around(words: &[String], sent: tcp::Around) -> Result<(), Stop> {
    let mut rest = words.iter().map(String::as_str);
    while let Some(word) = rest.next() {
        let is = match word {
            "noecn" => continue,
            "ttl" | "hlim" => sent.hops,
            "tos" | "class" => sent.class,
            _ => return Err(Stop::Unsupported(format!("[{word}] in a packet that is sent"))),
        };
        let text = rest.next().unwrap_or_default();
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u8::from_str_radix(digits, 16),
            None => text.parse(),
        };
        let wanted =
            parsed.map_err(|_| Stop::Unsupported(format!("[{word} {text}] in a packet that is sent")))?;
        if is != wanted {
            return Err(Stop::Diverges(format!("it is sent with {word} {is}, not {wanted}")));
        }
    }
    Ok(())
}

/// A packet in a script's words.
pub(super) fn show(packet: &Packet) -> String {
    match &packet.body {
        Body::Tcp(segment) => wire::tcp::show(segment),
        Body::Sctp(packet) => sctp::names(packet),
        Body::Icmp(error) => format!("icmp {} {}", error.kind, error.code),
        Body::Other(name) => name.clone(),
    }
}
