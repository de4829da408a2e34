//! Sending: the user's messages, responses and acknowledgements.

use super::table::{Transaction, TransactionKey};
use super::{IncomingRequestId, Mihf, MihfEvent, MihfPeer, ResponseTimeoutPolicy, TransactionError};
use crate::fragment::fragment_message;
use crate::net::{MessageTarget, Pdu, ReplyPath, TransportConfirm, TransportRequest};
use crate::transaction::{TransactionStateMachines, TransactionVariables};
use crate::{HeaderFlags, MessageId, MihfId, MihfMessage, Opcode, TransactionId};
use alloc::vec::Vec;
use usher_core::{CommandError, Instant, TransportProtocol};

const TOO_LONG: CommandError = CommandError::Invalid("the message does not fit into its fragments");

impl Mihf {
    /// Configures a peer or changes its route.
    pub(super) fn configure_peer(&mut self, peer: &MihfPeer) {
        self.net.add_local_address(peer.route.local);
        let rng = &mut self.rng;
        let number = self.peers.intern_peer(&peer.id, || rng.next_u64());
        if self.peers.configure_peer(number, peer) {
            self.net.outputs.push_event(MihfEvent::Deregistered { peer: peer.id.clone() });
        }
        self.net.reroute_peer(number, &peer.route, &mut self.counters);
    }

    /// Removes a peer's configuration.
    pub(super) fn unconfigure_peer(&mut self, id: &MihfId) {
        if let Some(peer) = self.peers.find(id) {
            self.peers.unconfigure_peer(peer);
        }
    }

    /// Sends a request or an indication of the user.
    pub(super) fn send_message(
        &mut self,
        now: Instant,
        user: u64,
        to: &MihfId,
        message: &MihfMessage,
    ) -> Result<(), CommandError> {
        if message.id.opcode == Opcode::Response {
            return Err(CommandError::Invalid("use the command Respond to send a response"));
        }
        if !message.id.is_known() {
            return Err(CommandError::Invalid("the standard has no such message"));
        }
        let discovers = message.id == MessageId::CAPABILITY_DISCOVER_REQUEST;
        if to.is_multicast() && message.id.opcode == Opcode::Request && !discovers {
            return Err(CommandError::Invalid("a request cannot be multicast"));
        }
        if self.by_token.contains_key(&user) {
            return Err(CommandError::Invalid("the token is already in use"));
        }
        let Some((peer, ack)) = self.find_reachable(to) else {
            self.counters.no_route += 1;
            self.net
                .outputs
                .push_event(MihfEvent::Done { token: user, result: Err(TransactionError::NoRoute) });
            return Ok(());
        };
        if !self.evict_for_new_transaction() {
            return Err(CommandError::Full("all transactions in memory are in progress"));
        }
        let tid = self.allocate_transaction_id(now, peer)?;
        let streamed = self.uses_stream_transport(peer, None);
        // RFC 5677, 6, 6.3: acknowledgements over UDP, and none over TCP.
        let ack = if self.config.by_transport { !streamed } else { ack } && !to.is_multicast();
        let bits = HeaderFlags { ack_req: ack, ..HeaderFlags::default() };
        let Some(out) = self.encode_message(message, bits, tid, to, streamed) else {
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.release_id(tid);
            }
            return Err(TOO_LONG);
        };
        let timing = self.config.message_timing(message.id);
        let mut variables = TransactionVariables::new(message.id.opcode);
        variables.start_ack_requestor = ack;
        variables.is_multicast = to.is_multicast();
        variables.rtx_ctr_max = timing.retransmissions;
        variables.late_response_wanted = self.config.accepts_late_responses;
        variables.ack_due = true;
        if timing.unanswered == ResponseTimeoutPolicy::Retransmit {
            variables.resends_max = timing.retransmissions;
        }
        let key = TransactionKey::for_source(peer, tid);
        let mut transaction =
            Transaction::new(TransactionStateMachines::for_source(variables), key, peer, message.id, tid);
        (transaction.timing, transaction.user, transaction.out) = (timing, Some(user), Some(out));
        let token = self.table.insert(now, transaction);
        self.peers.add_reference(peer);
        self.by_token.insert(user, token);
        self.step_transaction(now, token, |machines, effects| machines.start(effects));
        Ok(())
    }

    /// Returns a reachable peer, and whether its messages request acknowledgements.
    fn find_reachable(&self, to: &MihfId) -> Option<(u32, bool)> {
        let peer = self.peers.find(to)?;
        let entry = self.peers.get(peer)?;
        match entry.configured {
            Some((_, ack)) => Some((peer, ack)),
            None => entry.last_reply_path.filter(|way| self.net.is_open(*way)).map(|_| (peer, false)),
        }
    }

    /// Returns a transaction identifier that is free for this peer.
    fn allocate_transaction_id(&mut self, now: Instant, peer: u32) -> Result<TransactionId, CommandError> {
        let Some(entry) = self.peers.get_mut(peer) else {
            return Err(CommandError::WrongState("the peer is not known"));
        };
        let tid = match entry.allocate_peer_transaction_id() {
            Some(tid) => Some(tid),
            None => {
                let oldest = entry.oldest_id();
                self.counters.displaced += 1;
                if let Some(token) = self.table.find(TransactionKey::for_source(peer, oldest)) {
                    self.step_transaction(now, token, |machines, effects| {
                        machines.variables.transaction_stop = true;
                        machines.run_transitions(effects);
                    });
                }
                self.peers.get_mut(peer).and_then(super::peers::PeerEntry::allocate_peer_transaction_id)
            }
        };
        let tid = tid.ok_or(CommandError::Full("all transaction identifiers of the peer are in use"))?;
        if let Some(token) = self.table.find(TransactionKey::for_source(peer, tid)) {
            self.counters.forgotten_early += 1;
            self.remove_transaction(token);
        }
        Ok(tid)
    }

    /// Sends the user's response to a request.
    pub(super) fn send_response(
        &mut self,
        now: Instant,
        incoming: IncomingRequestId,
        message: &MihfMessage,
    ) -> Result<(), CommandError> {
        let token = incoming.0;
        let transaction = self.table.get(token).ok_or(CommandError::UnknownToken)?;
        if transaction.user.is_some() || message.id != transaction.id.to_response() {
            return Err(CommandError::Invalid("the message does not answer this request"));
        }
        if message.params.is_empty() {
            // If ACK-Rsp is set, the peer takes a response without parameters for a bare acknowledgement.
            return Err(CommandError::Invalid("the response has no parameters"));
        }
        if !transaction.machines.is_open() || transaction.out.is_some() {
            return Err(CommandError::WrongState("the request is already answered, or too old"));
        }
        let variables = &transaction.machines.variables;
        let (tid, ack_rsp, asked) =
            (transaction.tid, variables.start_ack_responder, variables.msg_in_ack_req);
        let entry = self.peers.get(transaction.peer).ok_or(CommandError::UnknownToken)?;
        let streamed =
            self.uses_stream_transport(transaction.peer, transaction.last_reply_path.map(|(way, _)| way));
        // RFC 5677, 6, 6.3: acknowledgements over UDP, and none over TCP.
        let ack_req = match self.config.by_transport {
            true => !streamed,
            false => entry.configured.map_or(asked, |(_, ack)| ack),
        };
        let to = entry.id.clone();
        let bits = HeaderFlags { ack_req, ack_rsp, uir: false };
        let out = self.encode_message(message, bits, tid, &to, streamed).ok_or(TOO_LONG)?;
        let timing = self.config.message_timing(message.id);
        if let Some(transaction) = self.table.get_mut(token) {
            (transaction.out, transaction.timing) = (Some(out), timing);
        }
        self.step_transaction(now, token, |machines, effects| {
            let variables = &mut machines.variables;
            variables.msg_out_avail = true;
            variables.msg_out_ack_req = ack_req;
            variables.rtx_ctr_max = timing.retransmissions;
            machines.run_transitions(effects);
        });
        Ok(())
    }

    /// True if the path, or else the route to the peer, is a stream.
    fn uses_stream_transport(&self, peer: u32, way: Option<ReplyPath>) -> bool {
        let entry = self.peers.get(peer);
        let route = entry.and_then(|entry| entry.configured).map(|(route, _)| route.transport);
        match (way.or_else(|| entry?.last_reply_path), way.is_some(), route) {
            (_, false, Some(transport)) => transport != TransportProtocol::Udp,
            (Some(way), ..) => matches!(way, ReplyPath::Connection(_)),
            (None, ..) => false,
        }
    }

    pub(super) fn encode_message(
        &mut self,
        message: &MihfMessage,
        bits: HeaderFlags,
        tid: TransactionId,
        to: &MihfId,
        streamed: bool,
    ) -> Option<Pdu> {
        self.work.encoded += 1;
        let mut out = Vec::with_capacity(256);
        message.encode(bits, tid, &self.config.id, to, &mut out).ok()?;
        // RFC 5677, 6.1: no fragments over TCP.
        let whole = streamed && self.config.by_transport;
        if out.len() > self.config.max_message && !whole {
            out = fragment_message(&out, self.config.max_message).ok()?.concat();
        }
        Some(Pdu::new(&out))
    }

    /// Passes MsgOut to the transport.
    pub(super) fn transmit_message(&mut self, token: u64) {
        let Some(transaction) = self.table.get(token) else { return };
        let Some(pdu) = transaction.out.clone() else { return };
        let (machines, service) = (&transaction.machines, transaction.id.service);
        let reliable = !machines.variables.start_ack_requestor;
        let watched = reliable && transaction.user.is_some() && machines.is_open();
        let target = self.next_message_target(transaction);
        self.pass_pdu_to_transport(token, target, reliable, watched, service, &pdu);
    }

    /// Sends an acknowledgement without payload, with the identifier of the message that it acknowledges.
    pub(super) fn send_acknowledgement(&mut self, token: u64) {
        let Some(transaction) = self.table.get(token) else { return };
        let id = if transaction.user.is_some() { transaction.id.to_response() } else { transaction.id };
        let (tid, service, target) = (transaction.tid, id.service, self.next_message_target(transaction));
        let Some(entry) = self.peers.get(transaction.peer) else { return };
        let to = entry.id.clone();
        let bits = HeaderFlags { ack_rsp: true, ..HeaderFlags::default() };
        let Some(pdu) = self.encode_message(&MihfMessage::acknowledgement(id), bits, tid, &to, false) else {
            return;
        };
        self.counters.acks += 1;
        self.pass_pdu_to_transport(token, target, false, false, service, &pdu);
    }

    fn pass_pdu_to_transport(
        &mut self,
        transaction: u64,
        target: Option<MessageTarget>,
        reliable: bool,
        watched: bool,
        service: crate::ServiceId,
        pdu: &Pdu,
    ) {
        let Some(to) = target else {
            self.counters.no_route += 1;
            self.net.fail_transaction(transaction);
            return;
        };
        let request = TransportRequest { to, reliable, watched, service, pdu, transaction };
        if self.net.send_request(request, &mut self.counters) == TransportConfirm::Failed {
            self.net.fail_transaction(transaction);
        }
    }

    /// Returns the destination of a transaction's next message.
    fn next_message_target(&self, transaction: &Transaction) -> Option<MessageTarget> {
        let entry = self.peers.get(transaction.peer)?;
        let route = entry.configured.map(|(route, _)| MessageTarget::Route(transaction.peer, route));
        match transaction.last_reply_path {
            Some((way, changes)) => {
                let way = Some(MessageTarget::Path(way))
                    .filter(|_| changes == entry.changes && self.net.is_open(way));
                way.or(route)
            }
            None => route.or_else(|| {
                entry.last_reply_path.filter(|way| self.net.is_open(*way)).map(MessageTarget::Path)
            }),
        }
    }
}
