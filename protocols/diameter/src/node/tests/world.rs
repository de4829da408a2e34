//! Nodes in virtual time, and the network between them.

use crate::codes::application;
use crate::eap::{Dea, Der};
use crate::message::MessageView;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::*;
use crate::peer::automaton::State;
use crate::peer::capabilities::Application;
use crate::session::SessionIds;
use std::net::SocketAddr;
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, ListenerId, MessageOp, Seed, StreamOp, Transmit};

pub(super) const DELAY: Duration = Duration::from_millis(5);

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
    pub(super) net: Network,
    pub(super) nodes: Vec<At<Node>>,
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
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let node = |(i, config)| {
            let node = Node::new(config, Instant::ZERO, Seed::new(7).secure("node", i as u64));
            let host = net.add(node, &[addr(i).ip()]);
            net.listen(host, ListenerId::own(0), addr(i));
            host
        };
        let nodes = configs.into_iter().enumerate().map(node).collect();
        Self { net, nodes }
    }
    /// Whether a node answers nothing and refuses connections.
    pub(super) fn dead(&mut self, i: usize, dead: bool) {
        self.net.silence(self.nodes[i], dead);
        self.net.refuse(self.nodes[i], dead);
    }
    /// What nodes' TLS shows (DER); those that are not named have none.
    pub(super) fn show<const N: usize>(&mut self, certificates: [(usize, &'static [u8]); N]) {
        certificates.into_iter().for_each(|(i, shown)| self.net.show(self.nodes[i], Some(shown)));
    }
    /// The connections and associations of a node.
    pub(super) fn conns(&self, i: usize) -> Vec<ConnId> {
        self.net.connections(self.nodes[i]).map(|(conn, _)| conn).collect()
    }
    pub(super) fn feed(&mut self, i: usize, conn: ConnId, event: StreamEvent<'_>) {
        self.net.give(self.nodes[i], Input::Stream { conn, event });
    }
    pub(super) fn feed_message(&mut self, i: usize, assoc: ConnId, event: MessageEvent<'_>) {
        self.net.give(self.nodes[i], Input::Message { assoc, event });
    }
    pub(super) fn run(&mut self, until: Duration) {
        self.net.run_until(Instant::ZERO + until);
    }
    pub(super) fn run_secs(&mut self, s: u64) {
        self.run(Duration::from_secs(s));
    }
    pub(super) fn command(&mut self, i: usize, c: Command) {
        self.net.command(self.nodes[i], c).unwrap();
    }
    /// Node `i` loses all its connections, and the others notice.
    pub(super) fn cut(&mut self, i: usize) {
        self.net.cut(self.nodes[i]);
        self.net.run(Duration::ZERO);
    }
    pub(super) fn take(&mut self, i: usize) -> Vec<Event> {
        self.net.take(self.nodes[i]).into_iter().map(|(_, event)| event).collect()
    }
    /// Each message that was sent: from, bytes.
    pub(super) fn sent(&self) -> Vec<(usize, &[u8])> {
        let message = |sent: &&Sent| {
            matches!(
                sent.transmit,
                Transmit::Stream { op: StreamOp::Data, .. }
                    | Transmit::Message { op: MessageOp::Data { .. }, .. }
            )
        };
        self.net.sent().iter().filter(message).map(|sent| (sent.from, &sent.bytes[..])).collect()
    }
    /// Each user message that was sent.
    pub(super) fn ways(&self) -> Vec<Way> {
        let way = |sent: &Sent| {
            let Transmit::Message { op: MessageOp::Data { stream, ppid, unordered }, .. } = sent.transmit
            else {
                return None;
            };
            let header = MessageView::parse(&sent.bytes).unwrap().header();
            let (command, request) = (header.command, header.flags.is_request());
            Some(Way { from: sent.from, command, request, stream, unordered, ppid })
        };
        self.net.sent().iter().filter_map(way).collect()
    }
    pub(super) fn state(&self, i: usize) -> State {
        self[i].peer_state(PeerId(0)).unwrap()
    }
    /// Headers of the messages with this command that node `i` sent.
    pub(super) fn sent_by(&self, i: usize, command: u32) -> Vec<crate::Header> {
        self.sent()
            .iter()
            .filter(|(n, _)| *n == i)
            .map(|(_, b)| MessageView::parse(b).unwrap().header())
            .filter(|h| h.command == command)
            .collect()
    }
}

impl std::ops::Index<usize> for World {
    type Output = Node;
    fn index(&self, i: usize) -> &Node {
        &self.net[self.nodes[i]]
    }
}

impl std::ops::IndexMut<usize> for World {
    fn index_mut(&mut self, i: usize) -> &mut Node {
        &mut self.net[self.nodes[i]]
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
