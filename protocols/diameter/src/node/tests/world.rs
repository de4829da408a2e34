//! Nodes in virtual time and their network.

use crate::codes::application;
use crate::eap::{DiameterEapAnswer, DiameterEapRequest};
use crate::message::MessageView;
use crate::nasreq::{AuthRequestType, NasInfo};
use crate::node::*;
use crate::peer::automaton::State;
use crate::peer::capabilities::DiameterApplication;
use crate::session::SessionIdGenerator;
use std::net::SocketAddr;
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, ListenerId, MessageAssociationOp, Seed, StreamOp, Transmit};

pub(super) const DELAY: Duration = Duration::from_millis(5);

/// A sent user message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SentMessage {
    pub(super) from: usize,
    pub(super) command: u32,
    pub(super) request: bool,
    pub(super) stream: u16,
    pub(super) unordered: bool,
    pub(super) ppid: u32,
}

/// Nodes, each listening on 10.0.0.(its index).
pub(super) struct NodeTestNetwork {
    pub(super) net: MachineNetwork,
    pub(super) nodes: Vec<NetworkHostHandle<DiameterNode>>,
}

pub(super) fn node_address(i: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, i as u8], 3868))
}

/// The event of a connection from node `i` without a certificate.
pub(super) fn accepted_event(i: usize) -> StreamEvent<'static> {
    StreamEvent::Accepted {
        listener: ListenerId::from_number(0),
        remote: node_address(i),
        local: None,
        certificate: None,
    }
}

pub(super) fn test_config(host: &str) -> DiameterNodeConfig {
    let mut c = DiameterNodeConfig::new(
        host,
        "example",
        &[DiameterApplication::for_authentication(application::EAP)],
    );
    c.local.addresses.push([10, 0, 0, 1].into());
    c
}

impl NodeTestNetwork {
    pub(super) fn new(configs: Vec<DiameterNodeConfig>) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let node = |(i, config)| {
            let node =
                DiameterNode::new(config, Instant::ZERO, Seed::new(7).derive_secure_rng("node", i as u64));
            let host = net.add_host(node, &[node_address(i).ip()]);
            net.add_listener(host, ListenerId::from_number(0), node_address(i));
            host
        };
        let nodes = configs.into_iter().enumerate().map(node).collect();
        Self { net, nodes }
    }
    /// Makes a node answer nothing and refuse connections, or undoes that.
    pub(super) fn set_dead(&mut self, i: usize, dead: bool) {
        self.net.set_silent(self.nodes[i], dead);
        self.net.set_refusing_connections(self.nodes[i], dead);
    }
    /// Sets the TLS certificates (DER) of nodes; other nodes have none.
    pub(super) fn set_certificates<const N: usize>(&mut self, certificates: [(usize, &'static [u8]); N]) {
        certificates.into_iter().for_each(|(i, shown)| self.net.set_certificate(self.nodes[i], Some(shown)));
    }
    /// The connections and associations of a node.
    pub(super) fn connections(&self, i: usize) -> Vec<ConnId> {
        self.net.connections(self.nodes[i]).map(|(conn, _)| conn).collect()
    }
    pub(super) fn feed_stream(&mut self, i: usize, conn: ConnId, event: StreamEvent<'_>) {
        self.net.inject_input(self.nodes[i], MachineInput::Stream { conn, event });
    }
    pub(super) fn feed_message(&mut self, i: usize, assoc: ConnId, event: MessageAssociationEvent<'_>) {
        self.net.inject_input(self.nodes[i], MachineInput::Message { assoc, event });
    }
    pub(super) fn run_until(&mut self, until: Duration) {
        self.net.run_until(Instant::ZERO + until);
    }
    pub(super) fn run_secs(&mut self, s: u64) {
        self.run_until(Duration::from_secs(s));
    }
    pub(super) fn send_command(&mut self, i: usize, c: DiameterNodeCommand) {
        self.net.send_command(self.nodes[i], c).unwrap();
    }
    /// Ends all connections of node `i` at both ends.
    pub(super) fn reset_connections(&mut self, i: usize) {
        self.net.reset_connections(self.nodes[i]);
        self.net.run_for(Duration::ZERO);
    }
    pub(super) fn take_events(&mut self, i: usize) -> Vec<DiameterNodeEvent> {
        self.net.take_events(self.nodes[i]).into_iter().map(|(_, event)| event).collect()
    }
    /// Each sent message: sender, bytes.
    pub(super) fn sent_messages(&self) -> Vec<(usize, &[u8])> {
        let message = |sent: &&TransmitRecord| {
            matches!(
                sent.transmit,
                Transmit::Stream { op: StreamOp::Data, .. }
                    | Transmit::Message { op: MessageAssociationOp::Data { .. }, .. }
            )
        };
        self.net.sent_transmits().iter().filter(message).map(|sent| (sent.from, &sent.bytes[..])).collect()
    }
    /// Each sent user message.
    pub(super) fn sent_user_messages(&self) -> Vec<SentMessage> {
        let way = |sent: &TransmitRecord| {
            let Transmit::Message { op: MessageAssociationOp::Data { stream, ppid, unordered }, .. } =
                sent.transmit
            else {
                return None;
            };
            let header = MessageView::parse(&sent.bytes).unwrap().header();
            let (command, request) = (header.command, header.flags.is_request());
            Some(SentMessage { from: sent.from, command, request, stream, unordered, ppid })
        };
        self.net.sent_transmits().iter().filter_map(way).collect()
    }
    pub(super) fn first_peer_state(&self, i: usize) -> State {
        self[i].peer_state(PeerId(0)).unwrap()
    }
    /// Headers of the messages with this command that node `i` sent.
    pub(super) fn sent_by(&self, i: usize, command: u32) -> Vec<crate::MessageHeader> {
        self.sent_messages()
            .iter()
            .filter(|(n, _)| *n == i)
            .map(|(_, b)| MessageView::parse(b).unwrap().header())
            .filter(|h| h.command == command)
            .collect()
    }
}

impl std::ops::Index<usize> for NodeTestNetwork {
    type Output = DiameterNode;
    fn index(&self, i: usize) -> &DiameterNode {
        &self.net[self.nodes[i]]
    }
}

impl std::ops::IndexMut<usize> for NodeTestNetwork {
    fn index_mut(&mut self, i: usize) -> &mut DiameterNode {
        &mut self.net[self.nodes[i]]
    }
}

pub(super) fn eap_request(token: u64, eap: &[u8]) -> DiameterNodeCommand {
    let der = DiameterEapRequest {
        request_type: AuthRequestType::AuthenticateOnly,
        eap,
        user_name: Some("anna"),
        state: None,
        nas: NasInfo::default(),
    };
    let ids = SessionIdGenerator::with_boot_counter("c.example", 1).next_session_id("");
    der.to_request(token, ids, "example".into(), None).into()
}

pub(super) fn connected_pair() -> NodeTestNetwork {
    NodeTestNetwork::new(vec![
        test_config("c.example").connect_to("s.example", node_address(1)),
        test_config("s.example").accept_from("c.example"),
    ])
}

/// Answers all requests at node `i` with this code, and returns their number.
pub(super) fn answer_all(w: &mut NodeTestNetwork, i: usize, result: ResultCode) -> usize {
    let mut n = 0;
    for e in w.take_events(i) {
        if let DiameterNodeEvent::Request { token, message, .. } = e {
            let der = DiameterEapRequest::parse(message.avps.as_sequence()).unwrap();
            let avps = DiameterEapAnswer::new(der.request_type, b"reply").to_avps();
            w.send_command(i, DiameterNodeCommand::Answer { token, result, avps });
            n += 1;
        }
    }
    n
}

pub(super) fn received_answers(events: &[DiameterNodeEvent]) -> Vec<(u64, ResultCode)> {
    events
        .iter()
        .filter_map(|e| match e {
            DiameterNodeEvent::Answer { token, result, .. } => Some((*token, *result)),
            _ => None,
        })
        .collect()
}
