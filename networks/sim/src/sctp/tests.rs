//! Scenarios in virtual time: two associations, A that opens and B that listens, over paths of 50 ms each way. A
//! line of the log is a sent packet: time in milliseconds, sender, path, chunks. A's first TSN is 1, B's 1001;
//! their tags are 10 and 11.

mod codec;
mod hostile;
mod loss;
mod paths;
mod patterns;
mod receiving;
mod sending;
mod setup;
mod shutdown;
mod standard;
mod trace;

use super::*;
use crate::packet::Payload;
use std::sync::Arc;
use usher_core::{CommandError, Duration, Instant};

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

pub(super) fn at_millis(n: u64) -> Instant {
    Instant::ZERO + millis(n)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs_as_millis(n: u64) -> u64 {
    n * 1000
}

/// Packets of 1000 octets of chunks, no heartbeats, and no immediate acknowledgement of the first data.
pub(super) fn test_config() -> SctpConfig {
    SctpConfig {
        max_packet: 1012,
        heartbeat_interval: None,
        first_sack_at_once: false,
        ..SctpConfig::default()
    }
}
pub(super) fn test_initial_values(tag: u32, tsn: u32) -> InitialAssociationValues {
    InitialAssociationValues { tag, tsn, secret: [7; 32] }
}
pub(super) fn test_message(stream: u16, len: u32) -> UserMessage {
    UserMessage { stream, ppid: 46, unordered: false, payload: Payload::with_length(len) }
}

fn chunk_text(chunk: &Chunk) -> String {
    let list = |items: Vec<String>| items.join(",");
    match chunk {
        Chunk::Data(d) => {
            let order = if d.unordered { "U".to_owned() } else { d.ssn.to_string() };
            let piece = match (d.beginning, d.ending) {
                (true, true) => "",
                (true, false) => " B",
                (false, true) => " E",
                (false, false) => " M",
            };
            format!("DATA {} {}:{order} {}{piece}", d.tsn, d.stream, d.payload.len)
        }
        Chunk::Init(i) => format!("INIT {}", i.tag),
        Chunk::InitAck(i) => format!("INIT-ACK {}", i.tag),
        Chunk::Sack(s) => {
            let mut text = format!("SACK {}", s.cumulative);
            if !s.gaps.is_empty() {
                text += &format!(" gap {}", list(s.gaps.iter().map(|(a, b)| format!("{a}-{b}")).collect()));
            }
            if !s.duplicates.is_empty() {
                text += &format!(" dup {}", list(s.duplicates.iter().map(u32::to_string).collect()));
            }
            if s.window != SctpConfig::default().receive_buffer {
                text += &format!(" win {}", s.window);
            }
            text
        }
        Chunk::Heartbeat(_) => "HEARTBEAT".into(),
        Chunk::HeartbeatAck(_) => "HEARTBEAT-ACK".into(),
        Chunk::Abort { reflected, causes } => {
            format!("ABORT{} {causes:?}", if *reflected { " T" } else { "" })
        }
        Chunk::Shutdown { cumulative } => format!("SHUTDOWN {cumulative}"),
        Chunk::ShutdownAck => "SHUTDOWN-ACK".into(),
        Chunk::Error(causes) => format!("ERROR {causes:?}"),
        Chunk::CookieEcho(_) => "COOKIE-ECHO".into(),
        Chunk::CookieAck => "COOKIE-ACK".into(),
        Chunk::ShutdownComplete { reflected } => {
            format!("SHUTDOWN-COMPLETE{}", if *reflected { " T" } else { "" })
        }
        Chunk::Unknown { kind, .. } => format!("UNKNOWN {kind}"),
    }
}

/// A packet in flight.
struct TestPacketInFlight {
    arrives_at: Instant,
    to: usize,
    path: u8,
    packet: SctpPacket,
}

/// True if a packet is lost, by sender, path, number among that sender's packets, and text.
type LossFilter = Box<dyn FnMut(usize, u8, usize, &str) -> bool>;

pub(super) struct SctpTestNetwork {
    pub(super) now: Instant,
    config: [Arc<SctpConfig>; 2],
    pub(super) paths: u8,
    pub(super) ends: [Option<SctpAssociation>; 2],
    pub(super) delay: Duration,
    /// Extra delay of the next packet.
    pub(super) jitter: Box<dyn FnMut() -> Duration>,
    pub(super) loss: LossFilter,
    in_flight: Vec<TestPacketInFlight>,
    sent: [usize; 2],
    log: Vec<String>,
    event_lines: [Vec<String>; 2],
    /// Messages in the order of delivery.
    pub(super) messages: [Vec<UserMessage>; 2],
    /// True if every packet is encoded and parsed.
    pub(super) as_bytes: bool,
}

impl SctpTestNetwork {
    pub(super) fn new(a: SctpConfig, b: SctpConfig, paths: u8) -> Self {
        Self {
            now: Instant::ZERO,
            config: [Arc::new(a), Arc::new(b)],
            paths,
            ends: [None, None],
            delay: millis(50),
            jitter: Box::new(|| Duration::ZERO),
            loss: Box::new(|_, _, _, _| false),
            in_flight: Vec::new(),
            sent: [0; 2],
            log: Vec::new(),
            event_lines: Default::default(),
            messages: Default::default(),
            as_bytes: false,
        }
    }
    /// Sets the loss filter: sender, path, number among that sender's packets, text.
    pub(super) fn with_loss(mut self, loss: impl FnMut(usize, u8, usize, &str) -> bool + 'static) -> Self {
        self.loss = Box::new(loss);
        self
    }
    pub(super) fn connect_end(&mut self, end: usize) {
        let initial = test_initial_values(10 + end as u32, 1 + 1000 * end as u32);
        let a = SctpAssociation::connect(self.config[end].clone(), self.now, initial, self.paths);
        self.ends[end] = Some(a);
        self.drain_end(end);
    }
    /// Both ends established, at 200 ms, with an empty log.
    pub(super) fn established(a: SctpConfig, b: SctpConfig, paths: u8) -> Self {
        let mut w = Self::new(a, b, paths);
        w.connect_end(A);
        w.run_to(200);
        assert_eq!(w.end_a().state(), SctpAssociationState::Established);
        assert_eq!(w.end_b().state(), SctpAssociationState::Established);
        w.log.clear();
        w.event_lines = Default::default();
        w.sent = [0; 2];
        w
    }
    pub(super) fn end_a(&mut self) -> &mut SctpAssociation {
        self.ends[A].as_mut().unwrap()
    }
    pub(super) fn end_b(&mut self) -> &mut SctpAssociation {
        self.ends[B].as_mut().unwrap()
    }
    /// Applies a function to an end, then sends its packets.
    pub(super) fn with_end<R>(
        &mut self,
        end: usize,
        f: impl FnOnce(&mut SctpAssociation, Instant) -> R,
    ) -> R {
        let now = self.now;
        let r = f(self.ends[end].as_mut().unwrap(), now);
        self.drain_end(end);
        r
    }
    pub(super) fn send_message(&mut self, end: usize, stream: u16, len: u32) {
        self.with_end(end, |a, now| a.send_message(now, test_message(stream, len)).unwrap());
    }
    /// Injects a forged packet.
    pub(super) fn inject_packet(&mut self, to: usize, path: u8, packet: SctpPacket) {
        self.deliver_packet(TestPacketInFlight { arrives_at: self.now, to, path, packet });
    }
    fn deliver_packet(&mut self, p: TestPacketInFlight) {
        let (now, to) = (self.now, p.to);
        match &mut self.ends[to] {
            Some(end) => end.handle_packet(now, p.path, p.packet),
            None => {
                let initial = test_initial_values(10 + to as u32, 1 + 1000 * to as u32);
                let ports = (3868, 40_000);
                match handle_listener_packet(
                    &self.config[to],
                    now,
                    initial,
                    ports,
                    p.path,
                    self.paths,
                    p.packet,
                ) {
                    SctpListenerAction::Reply(packet) => {
                        self.transmit_packet(to, OutgoingSctpPacket { path: p.path, packet })
                    }
                    SctpListenerAction::Accept(end) => self.ends[to] = Some(*end),
                    SctpListenerAction::Discard => {}
                }
            }
        }
        self.drain_end(to);
    }
    fn drain_end(&mut self, end: usize) {
        let now = self.now;
        while let Some(event) = self.ends[end].as_mut().and_then(SctpAssociation::poll_event) {
            let text = match event {
                SctpEvent::Up { outbound, inbound } => format!("up {outbound} {inbound}"),
                SctpEvent::Message(message) => {
                    let text = format!("message {}:{}", message.stream, message.payload.len);
                    self.messages[end].push(message);
                    text
                }
                SctpEvent::PathDown(path) => format!("path {path} down"),
                SctpEvent::PathUp(path) => format!("path {path} up"),
                SctpEvent::Down(reason) => format!("down {reason:?}"),
            };
            self.event_lines[end].push(format!("{} {text}", now.as_nanos() / 1_000_000));
        }
        while let Some(transmit) = self.ends[end].as_mut().and_then(|a| a.poll_transmit(now)) {
            self.transmit_packet(end, transmit);
        }
    }
    fn transmit_packet(&mut self, from: usize, t: OutgoingSctpPacket) {
        assert!(t.packet.len() <= self.config[from].packet_size(), "{:?}", t.packet);
        let chunks: Vec<String> = t.packet.chunks.iter().map(chunk_text).collect();
        let text = chunks.join(" | ");
        let who = ["A", "B"][from];
        self.log.push(format!("{} {who}{} {text}", self.now.as_nanos() / 1_000_000, t.path));
        let n = self.sent[from];
        self.sent[from] += 1;
        if (self.loss)(from, t.path, n, &text) {
            return;
        }
        let mut packet = t.packet;
        if self.as_bytes {
            let mut bytes = Vec::new();
            packet.encode_into(1, 2, &mut bytes);
            assert_eq!(bytes.len() as u32, packet.len());
            packet = SctpPacket::parse(&bytes).unwrap().2;
        }
        let at = self.now + self.delay + (self.jitter)();
        self.in_flight.push(TestPacketInFlight { arrives_at: at, to: 1 - from, path: t.path, packet });
    }
    /// Returns the time of the next event.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let packets = self.in_flight.iter().map(|p| p.arrives_at);
        packets.chain(self.ends.iter().flatten().filter_map(SctpAssociation::poll_timeout)).min()
    }
    /// Runs until `to`.
    pub(super) fn run_to(&mut self, to: u64) {
        while let Some(at) = self.next_time().filter(|at| *at <= at_millis(to)) {
            assert!(at >= self.now, "something in the past");
            self.now = at;
            if let Some(i) = self.in_flight.iter().position(|p| p.arrives_at == at) {
                let p = self.in_flight.remove(i);
                self.deliver_packet(p);
                continue;
            }
            for end in [A, B] {
                if self.ends[end].as_ref().and_then(SctpAssociation::poll_timeout) == Some(at) {
                    self.with_end(end, |a, now| a.handle_timeout(now));
                    let then = self.ends[end].as_ref().and_then(SctpAssociation::poll_timeout);
                    assert_ne!(then, Some(at), "a timer that does not move");
                }
            }
        }
        self.now = at_millis(to);
    }
    /// Checks all packets sent since the last check.
    #[track_caller]
    pub(super) fn expect_sent(&mut self, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.log), lines);
    }
    pub(super) fn clear_log(&mut self) {
        self.log.clear();
    }
    /// Checks the lines with `what` sent since the last check.
    #[track_caller]
    pub(super) fn expect_only(&mut self, what: &str, lines: &[&str]) {
        let log = std::mem::take(&mut self.log);
        let those: Vec<_> = log.into_iter().filter(|line| line.contains(what)).collect();
        assert_eq!(those, lines);
    }
    /// Checks an end's events since the last check.
    #[track_caller]
    pub(super) fn expect_events(&mut self, end: usize, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.event_lines[end]), lines);
    }
    /// Checks that no data or packet is pending, in flight or unacknowledged.
    #[track_caller]
    pub(super) fn is_idle(&self) {
        assert_eq!(self.next_time(), None, "a timer runs or a packet is under way");
        for end in self.ends.iter().flatten() {
            assert_eq!(end.bytes_outstanding(), 0);
        }
    }
}
