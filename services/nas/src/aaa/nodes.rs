//! Diameter nodes side by side behind one host: each has its own identity and connections; ids, timers,
//! events and work are those of one machine.
//!
//! A node numbers the connections that it opens from 0. Outside they are numbered anew as they are opened,
//! so that no two nodes' ever coincide. Accepted connections keep the host's number; they go to the first
//! node, since a CER does not say whom it means.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, ConnId, Input, Instant, Machine, MessageEvent, MessageOp, SecureRng, StreamEvent, StreamOp,
    Transmit, Work,
};
use usher_diameter::node::{Command, Counters, DisconnectCause, Event, Node, PeerId};

/// A node, for as long as there is one: never given again.
pub(super) type NodeId = u64;

#[derive(Debug)]
struct Entry {
    node: Node,
    /// Its connections: inside, outside.
    conns: Vec<(ConnId, ConnId)>,
    armed: Option<Instant>,
    /// It is in the ready list.
    ready: bool,
    /// It goes when its last connection has.
    closing: bool,
}

#[derive(Debug)]
pub(super) struct Nodes {
    accepting: bool,
    nodes: BTreeMap<NodeId, Entry>,
    next: NodeId,
    /// Connections that nodes opened, by their number outside.
    inside: HashMap<ConnId, (NodeId, ConnId)>,
    next_conn: u32,
    timers: TimerQueue<NodeId>,
    /// Nodes that may have something to send.
    ready: VecDeque<NodeId>,
    /// Accepted connections that no node wants.
    refused: VecDeque<Transmit>,
    events: VecDeque<(NodeId, Event)>,
    work: VecDeque<Work>,
    /// What nodes that are gone counted.
    past: Counters,
}

impl Nodes {
    /// Without nodes; `accepting`: the first one gets the accepted connections, else nobody.
    pub(super) fn new(accepting: bool, rng: &mut SecureRng) -> Self {
        Self {
            accepting,
            nodes: BTreeMap::new(),
            next: 0,
            inside: HashMap::with_hasher(hash_state(rng)),
            next_conn: 0,
            timers: TimerQueue::new(),
            ready: VecDeque::new(),
            refused: VecDeque::new(),
            events: VecDeque::new(),
            work: VecDeque::new(),
            past: Counters::default(),
        }
    }
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
    pub(super) fn insert(&mut self, node: Node) -> NodeId {
        let id = self.next;
        self.next += 1;
        let entry = Entry { node, conns: Vec::new(), armed: None, ready: false, closing: false };
        self.nodes.insert(id, entry);
        self.settle(id);
        id
    }
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(|e| &e.node)
    }
    pub(super) fn counters(&self) -> Counters {
        let mut all = self.past;
        self.nodes.values().for_each(|e| all.add(e.node.counters()));
        all
    }

    pub(super) fn command(&mut self, now: Instant, id: NodeId, command: Command) -> Result<(), CommandError> {
        let entry = self.nodes.get_mut(&id).ok_or(CommandError::UnknownToken)?;
        let done = entry.node.command(now, command);
        self.settle(id);
        done
    }

    /// Ends a node: its `peers` configured peers are left in good order, attempts to connect are given up.
    pub(super) fn close(&mut self, now: Instant, id: NodeId, peers: usize) {
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        entry.closing = true;
        for p in 0..peers as u32 {
            let cause = DisconnectCause::DoNotWantToTalkToYou;
            // Configured peers are always known.
            let _ = entry.node.command(now, Command::Disconnect { peer: PeerId(p), cause });
        }
        self.settle(id);
    }

    /// Lets a node begin at once instead of at its first timeout.
    pub(super) fn wake(&mut self, now: Instant, id: NodeId) {
        self.feed(now, id, Input::Timeout);
    }

    fn feed(&mut self, now: Instant, id: NodeId, input: Input<'_>) {
        if let Some(entry) = self.nodes.get_mut(&id) {
            entry.node.handle(now, input);
            self.settle(id);
        }
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                while let Some((_, id)) = self.timers.pop_due(now) {
                    if let Some(entry) = self.nodes.get_mut(&id) {
                        entry.armed = None;
                    }
                    self.feed(now, id, Input::Timeout);
                }
            }
            Input::Stream { conn, event } => {
                let over = matches!(event, StreamEvent::Closed(_));
                match self.whose(conn, over) {
                    Some((id, conn)) => self.feed(now, id, Input::Stream { conn, event }),
                    None if matches!(event, StreamEvent::Connected { .. }) => {
                        self.refused.push_back(Transmit::Stream { conn, op: StreamOp::Abort });
                    }
                    None => {}
                }
            }
            Input::Message { assoc, event } => {
                let over = matches!(event, MessageEvent::Down(_));
                match self.whose(assoc, over) {
                    Some((id, assoc)) => self.feed(now, id, Input::Message { assoc, event }),
                    None if matches!(event, MessageEvent::Up { .. }) => {
                        self.refused.push_back(Transmit::Message { assoc, op: MessageOp::Abort });
                    }
                    None => {}
                }
            }
            Input::Datagram { .. } | Input::Frame { .. } => {}
        }
    }

    /// Whose connection this is, and its number there.
    fn whose(&mut self, conn: ConnId, over: bool) -> Option<(NodeId, ConnId)> {
        if conn.is_incoming() {
            let (&first, _) = self.nodes.first_key_value()?;
            return self.accepting.then_some((first, conn));
        }
        let found = self.inside.get(&conn).copied();
        if let Some((id, inner)) = found
            && over
        {
            self.leave(id, inner);
        }
        found
    }

    /// A connection is over: its number outside may be given again.
    fn leave(&mut self, id: NodeId, inner: ConnId) {
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        if let Some(at) = entry.conns.iter().position(|(i, _)| *i == inner) {
            let (_, outer) = entry.conns.swap_remove(at);
            self.inside.remove(&outer);
        }
    }

    /// Takes a node's events and work, and arms its timer.
    fn settle(&mut self, id: NodeId) {
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        while let Some(event) = entry.node.poll_event() {
            self.events.push_back((id, event));
        }
        while let Some(work) = entry.node.poll_work() {
            self.work.push_back(work);
        }
        let due = entry.node.poll_timeout();
        if due != entry.armed {
            if let Some(at) = entry.armed {
                self.timers.remove(at, id);
            }
            if let Some(at) = due {
                self.timers.insert(at, id);
            }
            entry.armed = due;
        }
        if !entry.ready {
            entry.ready = true;
            self.ready.push_back(id);
        }
    }

    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        if let Some(transmit) = self.refused.pop_front() {
            buf.clear();
            return Some(transmit);
        }
        loop {
            let &id = self.ready.front()?;
            if let Some(entry) = self.nodes.get_mut(&id) {
                if let Some(transmit) = entry.node.poll_transmit(now, buf) {
                    match self.outward(id, transmit) {
                        Some(transmit) => return Some(transmit),
                        None => continue,
                    }
                }
                entry.ready = false;
                if entry.closing && entry.node.connections() == 0 {
                    self.remove(id);
                }
            }
            self.ready.pop_front();
        }
    }

    fn remove(&mut self, id: NodeId) {
        let Some(entry) = self.nodes.remove(&id) else { return };
        self.past.add(entry.node.counters());
        for (_, outer) in entry.conns {
            self.inside.remove(&outer);
        }
        if let Some(at) = entry.armed {
            self.timers.remove(at, id);
        }
    }

    /// A node's wish with the connection's number outside; `None` for a connection that is over.
    fn outward(&mut self, id: NodeId, transmit: Transmit) -> Option<Transmit> {
        let (inner, opens, ends) = match transmit {
            Transmit::Stream { conn, op } => (
                conn,
                matches!(op, StreamOp::Connect { .. }),
                matches!(op, StreamOp::Shutdown | StreamOp::Abort),
            ),
            Transmit::Message { assoc, op } => (
                assoc,
                matches!(op, MessageOp::Connect { .. }),
                matches!(op, MessageOp::Shutdown | MessageOp::Abort),
            ),
            Transmit::Datagram { .. } | Transmit::Frame { .. } => return None,
        };
        let outer = if inner.is_incoming() {
            inner
        } else if opens {
            self.open(id, inner)
        } else {
            self.nodes.get(&id)?.conns.iter().find(|(i, _)| *i == inner)?.1
        };
        // A node that has ended a connection does not want to hear of it any more.
        if ends {
            self.leave(id, inner);
        }
        Some(match transmit {
            Transmit::Message { op, .. } => Transmit::Message { assoc: outer, op },
            Transmit::Stream { op, .. } => Transmit::Stream { conn: outer, op },
            other => other,
        })
    }

    fn open(&mut self, id: NodeId, inner: ConnId) -> ConnId {
        let mut outer = ConnId::outgoing(self.next_conn);
        while self.inside.contains_key(&outer) {
            self.next_conn = self.next_conn.wrapping_add(1);
            outer = ConnId::outgoing(self.next_conn);
        }
        self.next_conn = self.next_conn.wrapping_add(1);
        self.inside.insert(outer, (id, inner));
        if let Some(entry) = self.nodes.get_mut(&id) {
            entry.conns.push((inner, outer));
        }
        outer
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
    pub(super) fn poll_event(&mut self) -> Option<(NodeId, Event)> {
        self.events.pop_front()
    }
    pub(super) fn poll_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use usher_core::{CloseReason, Seed};
    use usher_diameter::node::{Config, Transport};
    use usher_diameter::stream::StreamPolicy;

    const T: Instant = Instant::ZERO;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }
    fn nodes(accepting: bool) -> Nodes {
        Nodes::new(accepting, &mut Seed::new(1).secure("nodes", 0))
    }
    fn node(i: u64) -> Node {
        let over = Transport::Message { streams: 4, policy: StreamPolicy::BySession };
        let config = Config::new(&format!("n{i}.example"), "example", &[])
            .connect_to("s1.example", address(1))
            .connect_over("s2.example", address(2), over);
        Node::new(config, T, Seed::new(1).secure("node", i))
    }
    fn sent(nodes: &mut Nodes) -> Vec<Transmit> {
        let mut buf = Vec::new();
        core::iter::from_fn(|| nodes.poll_transmit(T, &mut buf)).collect()
    }
    /// The numbers of what is opened.
    fn opened(nodes: &mut Nodes) -> Vec<ConnId> {
        let id = |t| match t {
            Transmit::Stream { conn, op: StreamOp::Connect { .. } } => conn,
            Transmit::Message { assoc, op: MessageOp::Connect { .. } } => assoc,
            other => panic!("{other:?}"),
        };
        sent(nodes).into_iter().map(id).collect()
    }

    #[test]
    fn no_two_connections_have_one_number_even_when_numbers_come_round() {
        let mut all = nodes(true);
        all.next_conn = (1 << 31) - 3;
        for i in 0..3 {
            all.insert(node(i));
        }
        all.handle(T, Input::Timeout);
        let ids = opened(&mut all);
        assert_eq!(
            ids.iter().map(|c| c.index()).collect::<Vec<_>>()[..4],
            [(1 << 31) - 3, (1 << 31) - 2, (1 << 31) - 1, 0]
        );
        assert!(ids.iter().all(|c| !c.is_incoming()));
        // One more, where the next number is taken.
        all.next_conn = ids[0].index();
        let id = all.insert(node(3));
        all.wake(T, id);
        let more = opened(&mut all);
        let mut every: Vec<_> = [ids, more].concat();
        every.sort_unstable();
        every.dedup();
        assert_eq!((every.len(), all.inside.len()), (8, 8));
    }

    #[test]
    fn a_connection_that_is_over_is_no_longer_known() {
        let mut all = nodes(true);
        all.insert(node(0));
        all.handle(T, Input::Timeout);
        let ids = opened(&mut all);
        let event = StreamEvent::Closed(CloseReason::Refused);
        all.handle(T, Input::Stream { conn: ids[0], event });
        all.handle(T, Input::Message { assoc: ids[1], event: MessageEvent::Down(CloseReason::TimedOut) });
        assert_eq!((all.inside.len(), all.nodes[&0].conns.len()), (0, 0));
        assert_eq!(all.counters().connect_failed, 2);
        all.handle(T, Input::Stream { conn: ids[0], event: StreamEvent::Data(b"late") });
        assert_eq!(sent(&mut all), []);
    }

    #[test]
    fn accepted_connections_go_to_the_first_node_or_are_refused() {
        let (conn, assoc) = (ConnId::incoming(0), ConnId::incoming(1));
        let connected = StreamEvent::Connected { remote: address(9), local: None, certificate: None };
        let up = MessageEvent::Up { remote: address(9), streams: 1 };
        for accepting in [true, false] {
            let mut all = nodes(accepting);
            all.insert(node(0));
            all.insert(node(1));
            all.handle(T, Input::Stream { conn, event: connected });
            all.handle(T, Input::Message { assoc, event: up });
            let refused = [
                Transmit::Stream { conn, op: StreamOp::Abort },
                Transmit::Message { assoc, op: MessageOp::Abort },
            ];
            assert_eq!(sent(&mut all), if accepting { &[][..] } else { &refused });
            let taken = if accepting { 2 } else { 0 };
            assert_eq!((all.nodes[&0].node.connections(), all.nodes[&1].node.connections()), (taken, 0));
        }
    }

    #[test]
    fn a_node_that_is_closed_goes_with_its_connections_and_keeps_its_counts() {
        let mut all = nodes(false);
        let id = all.insert(node(0));
        all.wake(T, id);
        let ids = opened(&mut all);
        let event = StreamEvent::Closed(CloseReason::Refused);
        all.handle(T, Input::Stream { conn: ids[0], event });
        all.close(T, id, 2);
        let abort = Transmit::Message { assoc: ids[1], op: MessageOp::Abort };
        assert_eq!(sent(&mut all), [abort]);
        assert_eq!((all.len(), all.inside.len(), all.poll_timeout()), (0, 0, None));
        assert_eq!(all.counters().connect_failed, 1);
        assert_eq!(all.command(T, id, Command::Forget { token: 1 }), Err(CommandError::UnknownToken));
    }
}
