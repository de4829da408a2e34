//! Nodes in virtual time, and the pipes between them: a delay, and ends that can be cut.

use crate::codes::application;
use crate::eap::{Dea, Der};
use crate::message::MessageView;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::*;
use crate::peer::automaton::State;
use crate::peer::capabilities::Application;
use crate::session::SessionIds;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use usher_core::bench::Tap;
use usher_core::{CloseReason, Duration, ListenerId, MessageOp, Seed, StreamOp, Transmit};

pub(super) const DELAY: Duration = Duration::from_millis(5);

pub(super) enum What {
    Up,
    Bytes(Vec<u8>),
    /// Of an association, with so many streams.
    AssociationUp(u16),
    User {
        stream: u16,
        ppid: u32,
        bytes: Vec<u8>,
    },
    Closed(CloseReason),
}

/// A user message as it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) from: usize,
    pub(super) command: u32,
    pub(super) request: bool,
    pub(super) stream: u16,
    pub(super) unordered: bool,
    pub(super) ppid: u32,
}

/// Nodes, each listening on 10.0.0.(its index).
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) nodes: Vec<Tap<Node>>,
    pub(super) events: Vec<Vec<Event>>,
    /// (time, order) → (node, connection, what).
    pub(super) queue: BTreeMap<(Instant, u64), (usize, ConnId, What)>,
    pub(super) order: u64,
    pub(super) links: BTreeMap<(usize, ConnId), (usize, ConnId)>,
    pub(super) accepted: u32,
    /// Nodes that answer nothing and refuse connections.
    pub(super) dead: Vec<bool>,
    /// Each message that was sent: from, bytes.
    pub(super) sent: Vec<(usize, Vec<u8>)>,
    /// Cut data into pieces of this many bytes.
    pub(super) piece: usize,
    /// No association has more streams than this.
    pub(super) granted: u16,
    /// How much longer than [`DELAY`] a user message takes: by its number and unordered flag. What is in
    /// order on its stream waits for what was sent before it there.
    pub(super) extra: fn(usize, bool) -> Duration,
    /// Each user message that was sent.
    pub(super) ways: Vec<Way>,
    /// What each node's TLS shows (DER); none: no TLS.
    pub(super) certificates: BTreeMap<usize, &'static [u8]>,
    /// The associations' ends.
    pub(super) assocs: BTreeSet<(usize, ConnId)>,
    /// When the last message in order arrives on a stream; `None`: any message of the association.
    last: BTreeMap<(usize, ConnId, Option<u16>), Instant>,
}

pub(super) fn addr(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, i as u8], 3868))
}

/// Node `i` begins a connection, without a certificate.
pub(super) fn accepted(i: usize) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: ListenerId::own(0), remote: addr(i), local: None, certificate: None }
}

pub(super) fn config(host: &str) -> Config {
    let mut c = Config::new(host, "example", &[Application::auth(application::EAP)]);
    c.local.addresses.push([10, 0, 0, 1].into());
    c
}

impl World {
    pub(super) fn new(configs: Vec<Config>) -> Self {
        let n = configs.len();
        let nodes = configs
            .into_iter()
            .enumerate()
            .map(|(i, c)| Tap::new(Node::new(c, Instant::ZERO, Seed::new(7).secure("node", i as u64))))
            .collect();
        Self {
            now: Instant::ZERO,
            nodes,
            events: (0..n).map(|_| Vec::new()).collect(),
            queue: BTreeMap::new(),
            order: 0,
            links: BTreeMap::new(),
            accepted: 0,
            dead: vec![false; n],
            sent: Vec::new(),
            piece: usize::MAX,
            granted: u16::MAX,
            extra: |_, _| Duration::ZERO,
            ways: Vec::new(),
            certificates: BTreeMap::new(),
            assocs: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }
    pub(super) fn later(&mut self, node: usize, conn: ConnId, what: What) {
        self.order += 1;
        self.queue.insert((self.now + DELAY, self.order), (node, conn, what));
    }
    pub(super) fn drain(&mut self, i: usize) {
        let mut buf = Vec::new();
        while let Some(t) = self.nodes[i].poll_transmit(&mut buf) {
            match t {
                Transmit::Stream { conn, op } => self.stream(i, conn, op, &buf),
                Transmit::Message { assoc, op } => self.message(i, assoc, op, &buf),
                other => panic!("{other:?}"),
            }
        }
        while let Some(e) = self.nodes[i].poll_event() {
            self.events[i].push(e);
        }
    }
    /// Where a connection to `remote` ends, unless that is dead.
    fn accept(&mut self, i: usize, conn: ConnId, remote: SocketAddr) -> Option<(usize, ConnId)> {
        let to = (0..self.nodes.len()).find(|n| addr(*n) == remote).unwrap();
        if self.dead[to] {
            self.later(i, conn, What::Closed(CloseReason::Refused));
            return None;
        }
        let theirs = ConnId::accepted(self.accepted);
        self.accepted += 1;
        self.links.insert((i, conn), (to, theirs));
        self.links.insert((to, theirs), (i, conn));
        Some((to, theirs))
    }
    fn stream(&mut self, i: usize, conn: ConnId, op: StreamOp, bytes: &[u8]) {
        match op {
            StreamOp::Connect { remote, .. } => {
                if let Some((to, theirs)) = self.accept(i, conn, remote) {
                    self.later(to, theirs, What::Up);
                    self.later(i, conn, What::Up);
                }
            }
            StreamOp::Data => {
                self.sent.push((i, bytes.to_vec()));
                if let Some(&(to, theirs)) = self.links.get(&(i, conn)) {
                    self.later(to, theirs, What::Bytes(bytes.to_vec()));
                }
            }
            StreamOp::Shutdown | StreamOp::Abort => {
                if let Some((to, theirs)) = self.links.remove(&(i, conn)) {
                    self.links.remove(&(to, theirs));
                    self.later(to, theirs, What::Closed(CloseReason::Closed));
                }
            }
            StreamOp::Credit(_) => panic!("no credit is used"),
        }
    }
    fn message(&mut self, i: usize, assoc: ConnId, op: MessageOp, bytes: &[u8]) {
        match op {
            MessageOp::Connect { remote, streams, .. } => {
                if let Some((to, theirs)) = self.accept(i, assoc, remote) {
                    let streams = streams.min(self.granted);
                    self.assocs.extend([(i, assoc), (to, theirs)]);
                    self.later(to, theirs, What::AssociationUp(streams));
                    self.later(i, assoc, What::AssociationUp(streams));
                }
            }
            MessageOp::Data { stream, ppid, unordered } => {
                let header = MessageView::parse(bytes).unwrap().header();
                let (command, request) = (header.command, header.flags.is_request());
                let extra = (self.extra)(self.ways.len(), unordered);
                self.ways.push(Way { from: i, command, request, stream, unordered, ppid });
                self.sent.push((i, bytes.to_vec()));
                let Some(&(to, theirs)) = self.links.get(&(i, assoc)) else { return };
                let mut at = self.now + DELAY + extra;
                if !unordered {
                    let last = self.last.entry((to, theirs, Some(stream))).or_insert(at);
                    *last = at.max(*last);
                    at = *last;
                }
                let last = self.last.entry((to, theirs, None)).or_insert(at);
                *last = at.max(*last);
                self.order += 1;
                let user = What::User { stream, ppid, bytes: bytes.to_vec() };
                self.queue.insert((at, self.order), (to, theirs, user));
            }
            MessageOp::Shutdown | MessageOp::Abort => {
                if let Some((to, theirs)) = self.links.remove(&(i, assoc)) {
                    self.links.remove(&(to, theirs));
                    let last = self.last.get(&(to, theirs, None)).copied();
                    let at = (self.now + DELAY).max(last.unwrap_or_default());
                    self.order += 1;
                    self.queue.insert((at, self.order), (to, theirs, What::Closed(CloseReason::Closed)));
                }
            }
        }
    }
    pub(super) fn feed(&mut self, i: usize, conn: ConnId, event: StreamEvent<'_>) {
        self.nodes[i].handle(self.now, Input::Stream { conn, event });
        self.drain(i);
    }
    pub(super) fn feed_message(&mut self, i: usize, assoc: ConnId, event: MessageEvent<'_>) {
        self.nodes[i].handle(self.now, Input::Message { assoc, event });
        self.drain(i);
    }
    fn close(&mut self, i: usize, conn: ConnId, reason: CloseReason) {
        if self.assocs.contains(&(i, conn)) {
            self.feed_message(i, conn, MessageEvent::Down(reason));
        } else {
            self.feed(i, conn, StreamEvent::Closed(reason));
        }
    }
    pub(super) fn run(&mut self, until: Duration) {
        let end = Instant::ZERO + until;
        loop {
            let timer = (0..self.nodes.len())
                .filter(|i| !self.dead[*i])
                .filter_map(|i| self.nodes[i].poll_timeout().map(|t| (t, i)))
                .min();
            let arrival = self.queue.keys().next().copied();
            match (timer, arrival) {
                (t, Some(key)) if key.0 <= end && t.is_none_or(|(t, _)| key.0 <= t) => {
                    self.now = key.0;
                    let (i, conn, what) = self.queue.remove(&key).unwrap();
                    if self.dead[i] {
                        continue;
                    }
                    match what {
                        What::Up => {
                            let Some(&(other, _)) = self.links.get(&(i, conn)) else { continue };
                            let (remote, certificate) = (addr(other), self.certificates.get(&other).copied());
                            let local = Some(addr(i).ip());
                            let listener = ListenerId::own(0);
                            let event = if conn.is_accepted() {
                                StreamEvent::Accepted { listener, remote, local, certificate }
                            } else {
                                StreamEvent::Connected { remote, local, certificate }
                            };
                            self.feed(i, conn, event);
                        }
                        What::Bytes(b) => {
                            for piece in b.chunks(self.piece) {
                                self.feed(i, conn, StreamEvent::Data(piece));
                            }
                        }
                        What::AssociationUp(streams) => {
                            let other = self.links.get(&(i, conn)).map_or(i, |(other, _)| *other);
                            let (listener, remote) = (ListenerId::own(0), addr(other));
                            let event = if conn.is_accepted() {
                                MessageEvent::Accepted { listener, remote, streams }
                            } else {
                                MessageEvent::Up { remote, streams }
                            };
                            self.feed_message(i, conn, event);
                        }
                        What::User { stream, ppid, bytes } => {
                            self.feed_message(i, conn, MessageEvent::Data { stream, ppid, data: &bytes });
                        }
                        What::Closed(r) => self.close(i, conn, r),
                    }
                }
                (Some((t, i)), _) if t <= end => {
                    self.now = self.now.max(t);
                    self.nodes[i].handle(self.now, Input::Timeout);
                    self.drain(i);
                }
                _ => break,
            }
        }
        self.now = end;
    }
    pub(super) fn run_secs(&mut self, s: u64) {
        self.run(Duration::from_secs(s));
    }
    pub(super) fn command(&mut self, i: usize, c: Command) {
        self.nodes[i].command(self.now, c).unwrap();
        self.drain(i);
    }
    /// Node `i` loses all its connections, and the others notice.
    pub(super) fn cut(&mut self, i: usize) {
        let links: Vec<_> = self.links.iter().filter(|(k, _)| k.0 == i).map(|(k, v)| (*k, *v)).collect();
        for (a, b) in links {
            self.links.remove(&a);
            self.links.remove(&b);
            self.close(b.0, b.1, CloseReason::Reset);
            self.close(a.0, a.1, CloseReason::Reset);
        }
    }
    pub(super) fn take(&mut self, i: usize) -> Vec<Event> {
        core::mem::take(&mut self.events[i])
    }
    pub(super) fn state(&self, i: usize) -> State {
        self.nodes[i].peer_state(PeerId(0)).unwrap()
    }
    /// Headers of the messages with this command that node `i` sent.
    pub(super) fn sent_by(&self, i: usize, command: u32) -> Vec<crate::Header> {
        self.sent
            .iter()
            .filter(|(n, _)| *n == i)
            .map(|(_, b)| MessageView::parse(b).unwrap().header())
            .filter(|h| h.command == command)
            .collect()
    }
}

pub(super) fn der(token: u64, eap: &[u8]) -> Command {
    let der = Der {
        request_type: AuthRequestType::AuthenticateOnly,
        eap,
        user_name: Some("anna"),
        state: None,
        nas: NasInfo::default(),
    };
    let ids = SessionIds::with_boot("c.example", 1).next("");
    der.request(token, ids, "example".into(), None).into()
}

pub(super) fn pair() -> World {
    World::new(vec![
        config("c.example").connect_to("s.example", addr(1)),
        config("s.example").accept("c.example"),
    ])
}

/// Answers all requests at node `i` with this code; how many there were.
pub(super) fn answer_all(w: &mut World, i: usize, result: ResultCode) -> usize {
    let mut n = 0;
    for e in w.take(i) {
        if let Event::Request { token, message, .. } = e {
            let der = Der::parse(message.avps.view()).unwrap();
            let avps = Dea::new(der.request_type, b"reply").avps();
            w.command(i, Command::Answer { token, result, avps });
            n += 1;
        }
    }
    n
}

pub(super) fn answers(events: &[Event]) -> Vec<(u64, ResultCode)> {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Answer { token, result, .. } => Some((*token, *result)),
            _ => None,
        })
        .collect()
}
