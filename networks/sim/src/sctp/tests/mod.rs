//! Scenarios in virtual time: two associations, A that opens and B that listens, over paths of 50 ms each
//! way. What they send is written down line by line: time in milliseconds, sender, path, chunks. The first
//! TSN of A is 1, of B 1001; their tags are 10 and 11.

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

pub(super) fn ms(n: u64) -> Instant {
    Instant::ZERO + millis(n)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs(n: u64) -> u64 {
    n * 1000
}

/// Packets that take 1000 bytes of chunks, no heartbeats, and the first data is acknowledged like any other.
pub(super) fn config() -> Config {
    Config { max_packet: 1012, heartbeat_interval: None, first_sack_at_once: false, ..Config::default() }
}
pub(super) fn initial(tag: u32, tsn: u32) -> Initial {
    Initial { tag, tsn, secret: [7; 32] }
}
pub(super) fn message(stream: u16, len: u32) -> Message {
    Message { stream, ppid: 46, unordered: false, payload: Payload::counted(len) }
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
            if s.window != Config::default().receive_buffer {
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

/// A packet on its way.
struct UnderWay {
    at: Instant,
    to: usize,
    path: u8,
    packet: Packet,
}

/// Says of a packet whether it is lost: sender, path, how many that sender sent before, the packet's text.
type Loss = Box<dyn FnMut(usize, u8, usize, &str) -> bool>;

pub(super) struct World {
    pub(super) now: Instant,
    config: [Arc<Config>; 2],
    pub(super) paths: u8,
    pub(super) ends: [Option<Association>; 2],
    pub(super) delay: Duration,
    /// How much longer the next packet takes.
    pub(super) jitter: Box<dyn FnMut() -> Duration>,
    pub(super) loss: Loss,
    under_way: Vec<UnderWay>,
    sent: [usize; 2],
    log: Vec<String>,
    heard: [Vec<String>; 2],
    /// Messages as they came.
    pub(super) messages: [Vec<Message>; 2],
    /// Every packet goes over the wire's format.
    pub(super) as_bytes: bool,
}

impl World {
    pub(super) fn new(a: Config, b: Config, paths: u8) -> Self {
        Self {
            now: Instant::ZERO,
            config: [Arc::new(a), Arc::new(b)],
            paths,
            ends: [None, None],
            delay: millis(50),
            jitter: Box::new(|| Duration::ZERO),
            loss: Box::new(|_, _, _, _| false),
            under_way: Vec::new(),
            sent: [0; 2],
            log: Vec::new(),
            heard: Default::default(),
            messages: Default::default(),
            as_bytes: false,
        }
    }
    /// Loses the packets of which this says so: sender, path, place among that sender's packets, text.
    pub(super) fn losing(mut self, loss: impl FnMut(usize, u8, usize, &str) -> bool + 'static) -> Self {
        self.loss = Box::new(loss);
        self
    }
    pub(super) fn connect(&mut self, end: usize) {
        let initial = initial(10 + end as u32, 1 + 1000 * end as u32);
        let a = Association::connect(self.config[end].clone(), self.now, initial, self.paths);
        self.ends[end] = Some(a);
        self.drain(end);
    }
    /// Both ends up, at 200 ms: nothing to read of it.
    pub(super) fn up(a: Config, b: Config, paths: u8) -> Self {
        let mut w = Self::new(a, b, paths);
        w.connect(A);
        w.run_to(200);
        assert_eq!(w.a().state(), State::Established);
        assert_eq!(w.b().state(), State::Established);
        w.log.clear();
        w.heard = Default::default();
        w.sent = [0; 2];
        w
    }
    pub(super) fn a(&mut self) -> &mut Association {
        self.ends[A].as_mut().unwrap()
    }
    pub(super) fn b(&mut self) -> &mut Association {
        self.ends[B].as_mut().unwrap()
    }
    /// Does something to an end and lets out what may leave.
    pub(super) fn on<R>(&mut self, end: usize, f: impl FnOnce(&mut Association, Instant) -> R) -> R {
        let now = self.now;
        let r = f(self.ends[end].as_mut().unwrap(), now);
        self.drain(end);
        r
    }
    pub(super) fn send(&mut self, end: usize, stream: u16, len: u32) {
        self.on(end, |a, now| a.send(now, message(stream, len)).unwrap());
    }
    /// A packet from nowhere.
    pub(super) fn inject(&mut self, to: usize, path: u8, packet: Packet) {
        self.deliver(UnderWay { at: self.now, to, path, packet });
    }
    fn deliver(&mut self, p: UnderWay) {
        let (now, to) = (self.now, p.to);
        match &mut self.ends[to] {
            Some(end) => end.handle_packet(now, p.path, p.packet),
            None => {
                let initial = initial(10 + to as u32, 1 + 1000 * to as u32);
                let ports = (3868, 40_000);
                match listen(&self.config[to], now, initial, ports, p.path, self.paths, p.packet) {
                    Answer::Reply(packet) => self.transmit(to, Transmit { path: p.path, packet }),
                    Answer::Accept(end) => self.ends[to] = Some(*end),
                    Answer::Discard => {}
                }
            }
        }
        self.drain(to);
    }
    fn drain(&mut self, end: usize) {
        let now = self.now;
        while let Some(event) = self.ends[end].as_mut().and_then(Association::poll_event) {
            let text = match event {
                Event::Up { outbound, inbound } => format!("up {outbound} {inbound}"),
                Event::Message(message) => {
                    let text = format!("message {}:{}", message.stream, message.payload.len);
                    self.messages[end].push(message);
                    text
                }
                Event::PathDown(path) => format!("path {path} down"),
                Event::PathUp(path) => format!("path {path} up"),
                Event::Down(reason) => format!("down {reason:?}"),
            };
            self.heard[end].push(format!("{} {text}", now.as_nanos() / 1_000_000));
        }
        while let Some(transmit) = self.ends[end].as_mut().and_then(|a| a.poll_transmit(now)) {
            self.transmit(end, transmit);
        }
    }
    fn transmit(&mut self, from: usize, t: Transmit) {
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
            packet.emit(1, 2, &mut bytes);
            assert_eq!(bytes.len() as u32, packet.len());
            packet = Packet::parse(&bytes).unwrap().2;
        }
        let at = self.now + self.delay + (self.jitter)();
        self.under_way.push(UnderWay { at, to: 1 - from, path: t.path, packet });
    }
    /// When something happens next.
    pub(super) fn next(&self) -> Option<Instant> {
        let packets = self.under_way.iter().map(|p| p.at);
        packets.chain(self.ends.iter().flatten().filter_map(Association::poll_timeout)).min()
    }
    /// Lets time pass until `to`.
    pub(super) fn run_to(&mut self, to: u64) {
        while let Some(at) = self.next().filter(|at| *at <= ms(to)) {
            assert!(at >= self.now, "something in the past");
            self.now = at;
            if let Some(i) = self.under_way.iter().position(|p| p.at == at) {
                let p = self.under_way.remove(i);
                self.deliver(p);
                continue;
            }
            for end in [A, B] {
                if self.ends[end].as_ref().and_then(Association::poll_timeout) == Some(at) {
                    self.on(end, |a, now| a.handle_timeout(now));
                    let then = self.ends[end].as_ref().and_then(Association::poll_timeout);
                    assert_ne!(then, Some(at), "a timer that does not move");
                }
            }
        }
        self.now = ms(to);
    }
    /// Everything sent since the last look.
    #[track_caller]
    pub(super) fn expect(&mut self, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.log), lines);
    }
    pub(super) fn forget(&mut self) {
        self.log.clear();
    }
    /// The lines sent since the last look in which `what` stands.
    #[track_caller]
    pub(super) fn expect_only(&mut self, what: &str, lines: &[&str]) {
        let log = std::mem::take(&mut self.log);
        let those: Vec<_> = log.into_iter().filter(|line| line.contains(what)).collect();
        assert_eq!(those, lines);
    }
    /// Everything an end had to say since the last look.
    #[track_caller]
    pub(super) fn hear(&mut self, end: usize, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.heard[end]), lines);
    }
    /// Nothing is under way, waits or is unacknowledged.
    #[track_caller]
    pub(super) fn is_idle(&self) {
        assert_eq!(self.next(), None, "a timer runs or a packet is under way");
        for end in self.ends.iter().flatten() {
            assert_eq!(end.bytes_outstanding(), 0);
        }
    }
}
