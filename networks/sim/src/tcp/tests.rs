//! Scenarios in virtual time: a connection against a script of segments, or two over a channel.
//!
//! A [`ScriptedConnection`] resembles a packetdrill script: injected segments and expected ones, each line a
//! segment in [`Segment`]'s `Display` format. Both initial sequence numbers are 0. Expected lines begin with the
//! time in milliseconds. A window of 65535 is omitted.

mod ack_pace;
mod acknowledging;
mod bbr;
mod closing;
mod codec;
mod cubic;
mod fast_open;
mod full_tcp;
mod handshake;
mod loss;
mod ns2;
mod ns3;
mod rack;
mod receive_tuning;
mod requirements;
mod sack;
mod sending;
mod stacks;
mod streams;
mod variants;

use super::*;
use std::sync::Arc;
use usher_core::{CloseReason, Duration, Instant};

pub(super) fn at_millis(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

/// Segments of at most 1000 octets and no Nagle, for simple arithmetic.
pub(super) fn test_config() -> TcpConfig {
    TcpConfig { mss: 1000, nagle: false, ..TcpConfig::default() }
}

/// Parses the `Display` format; `win` defaults to 65535.
pub(super) fn parse_segment(text: &str) -> Segment {
    let mut s = Segment { window: 65_535, ..Default::default() };
    let (head, options) = text.split_once('<').unwrap_or((text, ""));
    let mut words = head.split_whitespace();
    for c in words.next().unwrap().chars() {
        s.flags |= match c {
            'S' => SegmentFlags::SYN,
            'F' => SegmentFlags::FIN,
            'R' => SegmentFlags::RST,
            'P' => SegmentFlags::PSH,
            '.' => SegmentFlags::ACK,
            _ => panic!("flag {c}"),
        };
    }
    let (seq, rest) = words.next().unwrap().split_once(':').unwrap();
    s.seq = seq.parse().unwrap();
    s.len = rest.split_once('(').unwrap().1.trim_end_matches(')').parse().unwrap();
    while let Some(word) = words.next() {
        let value = words.next().unwrap();
        match word {
            "ack" => s.ack = value.parse().unwrap(),
            "win" => s.window = value.parse().unwrap(),
            _ => panic!("{word}"),
        }
    }
    let mut o = TcpOptions::default();
    for option in options.trim_end_matches('>').split(',').filter(|o| !o.is_empty()) {
        let (name, value) = option.split_once(' ').unwrap_or((option, ""));
        let pair = || value.split_once(':').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap();
        match name {
            "mss" => o.mss = Some(value.parse().unwrap()),
            "wscale" => o.window_scale = Some(value.parse().unwrap()),
            "sackOK" => o.sack_permitted = true,
            "ts" => o.timestamps = Some(pair()),
            "FO" => {
                let byte = |at| u8::from_str_radix(&value[at..at + 2], 16).unwrap();
                let bytes: Vec<u8> = (0..value.len()).step_by(2).map(byte).collect();
                o.fast_open = Some(Box::new(FastOpenCookie::new(&bytes).unwrap()));
            }
            "sack" => assert!(o.sack.push(pair().0, pair().1)),
            _ => panic!("{name}"),
        }
    }
    s.options = (o != TcpOptions::default()).then(|| Box::new(o));
    s
}

/// A connection with its sent segments and its events.
pub(super) struct ScriptedConnection {
    pub(super) c: TcpConnection,
    now: Instant,
    sent: Vec<String>,
    event_lines: Vec<String>,
}

impl ScriptedConnection {
    pub(super) fn connect(config: TcpConfig) -> Self {
        Self::from_connection(TcpConnection::connect(Arc::new(config), 0, Instant::ZERO))
    }
    pub(super) fn accept(config: TcpConfig, syn: &str) -> Self {
        Self::from_connection(
            TcpConnection::accept(Arc::new(config), 0, &parse_segment(syn), Instant::ZERO).unwrap(),
        )
    }
    fn from_connection(c: TcpConnection) -> Self {
        let mut script = Self { c, now: Instant::ZERO, sent: Vec::new(), event_lines: Vec::new() };
        script.collect_output();
        script
    }
    /// A connection opened at 0 without delay, to a peer with segments of 1000 octets.
    pub(super) fn established(config: TcpConfig) -> Self {
        Self::open_to(config, "S. 0:0(0) ack 1 <mss 1000>")
    }
    pub(super) fn open_to(config: TcpConfig, syn_ack: &str) -> Self {
        let mut s = Self::connect(config);
        s.inject_segment(syn_ack);
        assert_eq!(s.event_lines.remove(0), "connected");
        s.sent.clear();
        s
    }
    /// Feeds a segment and drains events, before any output.
    pub(super) fn feed_segment(&mut self, text: &str) {
        self.c.handle_segment(self.now, &parse_segment(text));
        self.collect_events();
    }
    /// Feeds a segment and drains events and output.
    pub(super) fn inject_segment(&mut self, text: &str) {
        self.feed_segment(text);
        self.collect_output();
    }
    pub(super) fn collect_events(&mut self) {
        while let Some(event) = self.c.poll_event() {
            self.event_lines.push(match event {
                TcpEvent::Connected => "connected".into(),
                TcpEvent::Data { len, .. } => format!("data {len}"),
                TcpEvent::PeerClosed => "peer closed".into(),
                TcpEvent::Closed(reason) => format!("closed {reason:?}"),
            });
        }
    }
    pub(super) fn collect_output(&mut self) {
        while let Some(s) = self.c.poll_transmit(self.now) {
            let line = format!("{} {s}", self.now.as_nanos() / 1_000_000);
            self.sent.push(line.replace(" win 65535", ""));
        }
    }
    /// Writes octets without content, and drains output.
    pub(super) fn write(&mut self, n: u32) {
        self.c.write(StreamData::Count(n)).unwrap();
        self.collect_output();
    }
    pub(super) fn shutdown(&mut self) {
        self.c.shutdown();
        self.collect_output();
    }
    /// Runs until a time, with its timers.
    pub(super) fn run_to(&mut self, to: u64) {
        while let Some(at) = self.c.poll_timeout().filter(|at| *at <= at_millis(to)) {
            assert!(at >= self.now, "a timer in the past");
            self.now = at;
            self.c.handle_timeout(at);
            self.collect_events();
            self.collect_output();
            assert_ne!(self.c.poll_timeout(), Some(at), "a timer that does not move");
        }
        self.now = at_millis(to);
    }
    /// Checks all segments sent since the last check.
    #[track_caller]
    pub(super) fn expect_sent(&mut self, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.sent), lines);
    }
    /// Checks all events since the last check.
    #[track_caller]
    pub(super) fn expect_events(&mut self, lines: &[&str]) {
        assert_eq!(std::mem::take(&mut self.event_lines), lines);
    }
    #[track_caller]
    pub(super) fn closed_for(&mut self, reason: CloseReason) {
        assert_eq!(std::mem::take(&mut self.event_lines), [format!("closed {reason:?}")]);
        assert_eq!(self.c.state(), TcpState::Closed);
        assert_eq!(self.c.poll_timeout(), None);
    }
}
