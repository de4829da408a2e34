//! Several Diameter nodes as one machine, with shared timers, outputs and work. Each node has its own identity and
//! connections. A node's number is its slot, which separates its connections from those of other nodes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, Instant, ListenerId, Machine, MachineInput, MachineOutput, MachineOutputOf,
    MachineOwnerPath, NoJob, OutputQueue, Transmit,
};
use usher_diameter::node::{
    DiameterNode, DiameterNodeCommand, DiameterNodeCounters, DiameterNodeEvent, DisconnectCause, PeerId,
};

/// The slot of a node. It is reused after all other slots.
pub(super) type DiameterNodeSlot = u16;

/// The listener for Diameter connections. A CER has no destination, so they belong to the first node.
pub const LISTENER: ListenerId = ListenerId { owner: MachineOwnerPath::from_slot(0), n: 0 };

#[derive(Debug)]
struct DiameterNodeEntry {
    node: DiameterNode,
    armed: Option<Instant>,
    /// True if the node is removed with its last connection.
    closing: bool,
}

#[derive(Debug)]
pub(super) struct DiameterNodes {
    accepting: bool,
    nodes: BTreeMap<DiameterNodeSlot, DiameterNodeEntry>,
    next: DiameterNodeSlot,
    timers: TimerQueue<DiameterNodeSlot>,
    /// The outputs of nodes before the last active one.
    outputs: OutputQueue<(DiameterNodeSlot, DiameterNodeEvent)>,
    /// The last active node, which still has its outputs.
    last: Option<DiameterNodeSlot>,
    /// The counters of removed nodes.
    past: DiameterNodeCounters,
}

impl DiameterNodes {
    /// Returns a set without nodes. If `accepting`, the first node gets the accepted connections ([`LISTENER`]).
    pub(super) fn new(accepting: bool) -> Self {
        Self {
            accepting,
            nodes: BTreeMap::new(),
            next: 0,
            timers: TimerQueue::new(),
            outputs: OutputQueue::default(),
            last: None,
            past: DiameterNodeCounters::default(),
        }
    }
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Adds a node.
    ///
    /// # Errors
    /// All slots are in use.
    pub(super) fn insert(&mut self, node: DiameterNode) -> Result<DiameterNodeSlot, CommandError> {
        if self.nodes.len() >= usize::from(DiameterNodeSlot::MAX) {
            return Err(CommandError::Full("Diameter nodes"));
        }
        while self.next == DiameterNodeSlot::MAX || self.nodes.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, DiameterNodeEntry { node, armed: None, closing: false });
        self.run_node_step(id, |_| ());
        Ok(id)
    }
    pub(super) fn get(&self, id: DiameterNodeSlot) -> Option<&DiameterNode> {
        self.nodes.get(&id).map(|e| &e.node)
    }
    pub(super) fn counters(&self) -> DiameterNodeCounters {
        let mut all = self.past;
        self.nodes.values().for_each(|e| all.add(e.node.counters()));
        all
    }

    /// Closes a node: disconnects its `peers` configured peers by DPR and stops attempts to connect.
    pub(super) fn close_node(&mut self, now: Instant, id: DiameterNodeSlot, peers: usize) {
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        entry.closing = true;
        self.run_node_step(id, |node| {
            for p in 0..peers as u32 {
                let cause = DisconnectCause::DoNotWantToTalkToYou;
                // The node knows each of its configured peers, so the command does not fail.
                let _ = node.handle_command(now, DiameterNodeCommand::Disconnect { peer: PeerId(p), cause });
            }
        });
    }

    /// Starts a node at once, before its first timeout.
    pub(super) fn wake_node(&mut self, now: Instant, id: DiameterNodeSlot) {
        self.feed_input(now, id, MachineInput::Timeout);
    }

    fn feed_input(&mut self, now: Instant, id: DiameterNodeSlot, input: MachineInput<'_>) {
        self.run_node_step(id, |node| node.handle_input(now, input));
    }

    /// Collects the outputs of the last active node.
    fn drain_last_active_node(&mut self) {
        let Some(id) = self.last.take() else { return };
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        while let Some(event) =
            entry.node.next_event(&mut self.outputs, |transmit| transmit.add_outer_slot(id))
        {
            self.outputs.push_event((id, event));
        }
    }

    /// Runs a step of a node, arms its timer, and removes the node if it is done.
    fn run_node_step<R>(
        &mut self,
        id: DiameterNodeSlot,
        give: impl FnOnce(&mut DiameterNode) -> R,
    ) -> Option<R> {
        if self.last != Some(id) {
            self.drain_last_active_node();
        }
        let entry = self.nodes.get_mut(&id)?;
        let given = give(&mut entry.node);
        self.last = Some(id);
        let over = entry.closing && entry.node.connection_count() == 0;
        let due = entry.node.poll_timeout().filter(|_| !over);
        if due != entry.armed {
            if let Some(at) = entry.armed {
                self.timers.remove(at, id);
            }
            if let Some(at) = due {
                self.timers.insert(at, id);
            }
            entry.armed = due;
        }
        if over {
            self.drain_last_active_node();
            if let Some(entry) = self.nodes.remove(&id) {
                self.past.add(entry.node.counters());
            }
        }
        Some(given)
    }
}

impl Machine for DiameterNodes {
    type Command = (DiameterNodeSlot, DiameterNodeCommand);
    type Event = (DiameterNodeSlot, DiameterNodeEvent);
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        if input == MachineInput::Timeout {
            while let Some((_, id)) = self.timers.pop_due(now) {
                if let Some(entry) = self.nodes.get_mut(&id) {
                    entry.armed = None;
                }
                self.feed_input(now, id, MachineInput::Timeout);
            }
            return;
        }
        match (input.split_outer_slot(), input.refusal()) {
            (Some((id, input)), None) => self.feed_input(now, id, input),
            (Some((id, input)), Some(_)) if self.accepting && self.nodes.contains_key(&id) => {
                self.feed_input(now, id, input);
            }
            (_, Some(transmit)) => {
                self.drain_last_active_node();
                self.outputs.push_operation(transmit);
            }
            (None, None) => {}
        }
    }

    fn handle_command(&mut self, now: Instant, (id, command): Self::Command) -> Result<(), CommandError> {
        self.run_node_step(id, |node| node.handle_command(now, command))
            .unwrap_or(Err(CommandError::UnknownToken))
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        if let Some(output) = self.outputs.poll(buf) {
            return Some(output);
        }
        let id = self.last?;
        let output = self.nodes.get_mut(&id).and_then(|entry| entry.node.poll_output(buf));
        if output.is_none() {
            self.last = None;
        }
        Some(match output? {
            MachineOutput::Transmit(transmit) => MachineOutput::Transmit(transmit.with_outer_slot(id)),
            MachineOutput::Event(event) => MachineOutput::Event((id, event)),
            MachineOutput::Work(work) => MachineOutput::Work(work),
            MachineOutput::Job(job) => match job.job {},
        })
    }

    fn next_event<E, J>(
        &mut self,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Self::Event> {
        if let Some(event) = outputs.queue_until_event(&outside, |buf| self.outputs.poll(buf)) {
            return Some(event);
        }
        let id = self.last?;
        let node = self.nodes.get_mut(&id).map(|entry| &mut entry.node);
        let event = node.and_then(|node| {
            node.next_event(outputs, |transmit| {
                transmit.add_outer_slot(id);
                outside(transmit);
            })
        });
        if event.is_none() {
            self.last = None;
        }
        event.map(|event| (id, event))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use usher_core::{
        CloseReason, ConnId, MachineOutput, MessageAssociationEvent, MessageAssociationOp, Seed, StreamEvent,
        StreamOp, Transmit,
    };
    use usher_diameter::node::{DiameterNodeConfig, PeerTransportConfig};
    use usher_diameter::stream::StreamPolicy;

    const T: Instant = Instant::ZERO;

    fn socket_address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }
    fn test_nodes(accepting: bool) -> DiameterNodes {
        DiameterNodes::new(accepting)
    }
    fn test_node(i: u64) -> DiameterNode {
        let over = PeerTransportConfig::Message { streams: 4, policy: StreamPolicy::BySession };
        let config = DiameterNodeConfig::new(&format!("n{i}.example"), "example", &[])
            .connect_to("s1.example", socket_address(1))
            .with_outbound_peer("s2.example", socket_address(2), over);
        DiameterNode::new(config, T, Seed::new(1).derive_secure_rng("node", i))
    }
    fn drain_transmits(nodes: &mut DiameterNodes) -> Vec<Transmit> {
        let mut buf = Vec::new();
        let mut all = Vec::new();
        while let Some(output) = nodes.poll_output(&mut buf) {
            if let MachineOutput::Transmit(transmit) = output {
                all.push(transmit);
            }
        }
        all
    }
    /// The ids of opened connections.
    fn opened_conns(nodes: &mut DiameterNodes) -> Vec<ConnId> {
        let id = |t| match t {
            Transmit::Stream { conn, op: StreamOp::Connect { .. } } => conn,
            Transmit::Message { assoc, op: MessageAssociationOp::Connect { .. } } => assoc,
            other => panic!("{other:?}"),
        };
        drain_transmits(nodes).into_iter().map(id).collect()
    }

    #[test]
    fn no_two_connections_have_one_id_even_when_slots_come_round() {
        let mut all = test_nodes(true);
        all.next = DiameterNodeSlot::MAX - 2;
        let first: Vec<_> = (0..3).map(|i| all.insert(test_node(i)).unwrap()).collect();
        assert_eq!(first, [DiameterNodeSlot::MAX - 2, DiameterNodeSlot::MAX - 1, 0]);
        all.handle_input(T, MachineInput::Timeout);
        let ids = opened_conns(&mut all);
        // One more node, whose next slot is taken.
        all.next = DiameterNodeSlot::MAX - 2;
        let id = all.insert(test_node(3)).unwrap();
        assert_eq!(id, 1);
        all.wake_node(T, id);
        let mut every = [ids, opened_conns(&mut all)].concat();
        every.sort_unstable();
        every.dedup();
        assert_eq!(every.len(), 8);
    }

    #[test]
    fn a_connection_that_is_over_is_no_longer_known() {
        let mut all = test_nodes(true);
        all.insert(test_node(0)).unwrap();
        all.handle_input(T, MachineInput::Timeout);
        let ids = opened_conns(&mut all);
        let event = StreamEvent::Closed(CloseReason::Refused);
        all.handle_input(T, MachineInput::Stream { conn: ids[0], event });
        all.handle_input(
            T,
            MachineInput::Message {
                assoc: ids[1],
                event: MessageAssociationEvent::Down(CloseReason::TimedOut),
            },
        );
        assert_eq!(all.get(0).unwrap().connection_count(), 0);
        assert_eq!(all.counters().connect_failed, 2);
        all.handle_input(T, MachineInput::Stream { conn: ids[0], event: StreamEvent::Data(b"late") });
        assert_eq!(drain_transmits(&mut all), []);
    }

    #[test]
    fn accepted_connections_go_to_the_first_node_or_are_refused() {
        let (conn, assoc) = (
            ConnId::nth_accepted_connection(0).with_outer_slot(0),
            ConnId::nth_accepted_connection(1).with_outer_slot(0),
        );
        let (listener, remote) = (LISTENER, socket_address(9));
        let connected = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
        let up = MessageAssociationEvent::Accepted { listener, remote, streams: 1 };
        for accepting in [true, false] {
            let mut all = test_nodes(accepting);
            all.insert(test_node(0)).unwrap();
            all.insert(test_node(1)).unwrap();
            all.handle_input(T, MachineInput::Stream { conn, event: connected });
            all.handle_input(T, MachineInput::Message { assoc, event: up });
            let refused = [
                Transmit::Stream { conn, op: StreamOp::Abort },
                Transmit::Message { assoc, op: MessageAssociationOp::Abort },
            ];
            assert_eq!(drain_transmits(&mut all), if accepting { &[][..] } else { &refused });
            let taken = if accepting { 2 } else { 0 };
            assert_eq!(
                (all.get(0).unwrap().connection_count(), all.get(1).unwrap().connection_count()),
                (taken, 0)
            );
        }
    }

    #[test]
    fn a_closed_node_drops_its_connections_and_keeps_its_counters() {
        let mut all = test_nodes(false);
        let id = all.insert(test_node(0)).unwrap();
        all.wake_node(T, id);
        let ids = opened_conns(&mut all);
        let event = StreamEvent::Closed(CloseReason::Refused);
        all.handle_input(T, MachineInput::Stream { conn: ids[0], event });
        all.close_node(T, id, 2);
        let abort = Transmit::Message { assoc: ids[1], op: MessageAssociationOp::Abort };
        assert_eq!(drain_transmits(&mut all), [abort]);
        assert_eq!((all.len(), all.poll_timeout()), (0, None));
        assert_eq!(all.counters().connect_failed, 1);
        assert_eq!(
            all.handle_command(T, (id, DiameterNodeCommand::CancelRequest { token: 1 })),
            Err(CommandError::UnknownToken)
        );
    }
}
