//! The tested side: its files, its TCP and its SCTP, and what they have sent.

use super::settings::Settings;
use super::{Stop, sctp, tcp};
use crate::script::{Body, Packet, Sctp, Segment};
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
    Tcp(Vec<u8>),
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
        self.wire.extend(self.tcp.sent.drain(..).map(|bytes| Sent { at, body: Bytes::Tcp(bytes) }));
        self.wire.extend(self.sctp.sent.drain(..).map(|bytes| Sent { at, body: Bytes::Sctp(bytes) }));
    }

    pub(super) fn inject_tcp(&mut self, segment: &Segment) -> Result<(), Stop> {
        self.tcp.inject(self.now, &self.settings, segment)?;
        self.collect();
        Ok(())
    }
    pub(super) fn inject_sctp(&mut self, packet: &Sctp) -> Result<(), Stop> {
        self.sctp.inject(self.now, packet)?;
        self.collect();
        Ok(())
    }

    /// Holds what was sent against what is expected.
    pub(super) fn compare(&mut self, expected: &Packet, sent: &Sent) -> Result<(), Stop> {
        match (&expected.body, &sent.body) {
            (Body::Tcp(segment), Bytes::Tcp(bytes)) => self.tcp.compare(segment, bytes),
            (Body::Sctp(packet), Bytes::Sctp(bytes)) => self.sctp.compare(packet, bytes),
            (_, Bytes::Tcp(_)) => Err(Stop::Diverges("a TCP segment is sent".to_owned())),
            (_, Bytes::Sctp(_)) => Err(Stop::Diverges("an SCTP packet is sent".to_owned())),
        }
    }
}

/// A packet in a script's words.
pub(super) fn show(packet: &Packet) -> String {
    match &packet.body {
        Body::Tcp(segment) => wire::tcp::show(segment),
        Body::Sctp(packet) => sctp::names(packet),
        Body::Other(name) => name.clone(),
    }
}
