//! Receiving: from packets to transactions.

use super::table::{Transaction, TransactionKey};
use super::{IncomingRequestId, Mihf, MihfEvent};
use crate::net::ReplyPath;
use crate::transaction::{TransactionStateMachines, TransactionStatus, TransactionVariables};
use crate::{
    DecodeErrorKind, DecodedMessage, HeaderError, MessageId, MihHeader, MihfId, MihfMessage, Opcode, Status,
    Tlv,
};
use usher_core::{ConnId, Instant};

/// A received message with its path and decoding result.
#[derive(Debug)]
pub(super) struct ReceivedMessage {
    pub(super) reply_path: ReplyPath,
    pub(super) header: MihHeader,
    pub(super) source: MihfId,
    destination: MihfId,
    pub(super) message: MihfMessage,
    /// The status of the response if the request could not be decoded.
    refusal: Option<Status>,
}

impl Mihf {
    /// Handles a received packet.
    pub(super) fn receive_packet(&mut self, now: Instant, way: ReplyPath, octets: &[u8]) {
        self.counters.received += 1;
        self.work.decoded += 1;
        if let Some(whole) = self.reassembly.receive_packet(now, octets) {
            self.receive_message(now, way, &whole);
        }
        self.count_fragments();
    }

    /// Copies the reassembly's counters to the function's.
    pub(super) fn count_fragments(&mut self) {
        let fragments = self.reassembly.counters();
        self.counters.oversize = fragments.oversize;
        self.counters.fragments_dropped = fragments.malformed + fragments.refused + fragments.timeouts;
    }

    /// Handles a whole message.
    fn receive_message(&mut self, now: Instant, way: ReplyPath, octets: &[u8]) {
        match MihfMessage::decode(octets) {
            Ok(DecodedMessage { header, source, destination, message }) => {
                let unknown = message.params.iter().filter(|p| matches!(p, Tlv::Other { .. })).count();
                self.counters.unknown_tlv += unknown as u64;
                self.dispatch_message(
                    now,
                    ReceivedMessage { reply_path: way, header, source, destination, message, refusal: None },
                );
            }
            Err(error) => {
                match error.fault {
                    DecodeErrorKind::Header(HeaderError::Reserved(_)) => self.counters.unknown_service += 1,
                    DecodeErrorKind::Unknown(_) => self.counters.unknown_message += 1,
                    _ => self.counters.malformed += 1,
                }
                let refusal = error.response_status();
                let ends = (error.header, error.source, error.destination);
                if let (Some(_), (Some(header), Some(source), Some(destination))) = (refusal, ends) {
                    let message = MihfMessage::acknowledgement(header.id);
                    self.dispatch_message(
                        now,
                        ReceivedMessage { reply_path: way, header, source, destination, message, refusal },
                    );
                }
            }
        }
    }

    fn dispatch_message(&mut self, now: Instant, arrival: ReceivedMessage) {
        let ReceivedMessage { source, destination, .. } = &arrival;
        if source.is_multicast() {
            self.counters.malformed += 1;
            return;
        }
        if !destination.is_multicast() && *destination != self.config.id {
            self.counters.misaddressed += 1;
            return;
        }
        if let Some(arrival) = self.admit_or_hold_message(now, arrival) {
            self.take_up(now, arrival);
        }
    }

    /// Handles a message whose sender may use its identifier.
    pub(super) fn take_up(&mut self, now: Instant, arrival: ReceivedMessage) {
        let ReceivedMessage { reply_path: way, header, source, message, .. } = &arrival;
        self.record_reply_path(*way, source);
        let bare = header.ack_rsp && message.params.is_empty();
        match (header.id.opcode, bare, header.ack_rsp) {
            (Opcode::Request | Opcode::Indication, true, _) => {
                let key = |peer| TransactionKey::for_source(peer, header.transaction);
                self.receive_acknowledgement(now, source, key, header.id);
            }
            (Opcode::Response, true, _) => {
                let request = MessageId { opcode: Opcode::Request, ..header.id };
                let key = |peer| TransactionKey::for_destination(peer, header.transaction, request);
                self.receive_acknowledgement(now, source, key, request);
            }
            (Opcode::Response, false, _) => self.receive_response(now, arrival),
            (Opcode::Request | Opcode::Indication, false, true) => self.counters.malformed += 1,
            (Opcode::Request | Opcode::Indication, false, false) => self.accept_transaction(now, arrival),
        }
    }

    /// Records a function's latest path, if the function is known.
    fn record_reply_path(&mut self, way: ReplyPath, source: &MihfId) {
        let Some(peer) = self.peers.find(source) else { return };
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.last_reply_path = Some(way);
        }
        self.bind_connection_to_peer(way, peer);
    }

    fn bind_connection_to_peer(&mut self, way: ReplyPath, peer: u32) {
        if let ReplyPath::Connection(conn) = way
            && self.net.identify_peer(conn, peer)
        {
            self.peers.add_reference(peer);
        }
    }

    /// Handles the end of a connection.
    pub(super) fn release_connection(&mut self, conn: ConnId) {
        if let Some(peer) = self.net.handle_closed(conn, &mut self.counters)
            && conn.is_accepted()
        {
            self.peers.drop_reference(peer);
        }
    }

    /// Handles an acknowledgement without payload.
    fn receive_acknowledgement(
        &mut self,
        now: Instant,
        source: &MihfId,
        key: impl Fn(u32) -> TransactionKey,
        id: MessageId,
    ) {
        let token = self.peers.find(source).and_then(|peer| self.table.find(key(peer)));
        let transaction = token.and_then(|token| Some((token, self.table.get(token)?)));
        match transaction {
            Some((token, transaction)) if transaction.id == id => {
                if !transaction.machines.awaits_ack() {
                    self.counters.late_acks += 1;
                    return;
                }
                self.step_transaction(now, token, |machines, effects| {
                    machines.variables.msg_in_ack_rsp = true;
                    machines.run_transitions(effects);
                });
            }
            _ => self.counters.unknown_transaction += 1,
        }
    }

    /// Handles a response.
    fn receive_response(&mut self, now: Instant, arrival: ReceivedMessage) {
        let ReceivedMessage { reply_path: way, header, source, message, .. } = arrival;
        let peer = self.peers.find(&source);
        let mut token =
            peer.and_then(|peer| self.table.find(TransactionKey::for_source(peer, header.transaction)));
        let mut discovered = None;
        if token.is_none() && header.id == MessageId::CAPABILITY_DISCOVER_RESPONSE {
            // Any function may answer a multicast request, so the sender of the response need not be a known peer.
            let all = self.peers.find(&MihfId::multicast());
            token = all.and_then(|all| self.table.find(TransactionKey::for_source(all, header.transaction)));
            discovered = token;
        }
        let changes = peer.and_then(|peer| self.peers.get(peer)).map_or(0, |entry| entry.changes);
        let transaction = token.and_then(|token| Some((token, self.table.get_mut(token)?)));
        let Some((token, transaction)) =
            transaction.filter(|(_, t)| t.id.opcode == Opcode::Request && t.id.to_response() == header.id)
        else {
            self.counters.unknown_transaction += 1;
            return;
        };
        match transaction.machines.variables.transaction_status {
            TransactionStatus::Ongoing => {
                transaction.inbox = Some(message);
                if let (Some(_), Some(token)) = (discovered, transaction.user) {
                    self.net.outputs.push_event(MihfEvent::Discovered { token, peer: source });
                }
            }
            TransactionStatus::Success => self.counters.duplicates += 1,
            TransactionStatus::Failure => {
                self.counters.late_responses += 1;
                return;
            }
        }
        transaction.last_reply_path = Some((way, changes));
        self.step_transaction(now, token, |machines, effects| {
            let variables = &mut machines.variables;
            variables.msg_in_avail = true;
            variables.msg_in_ack_req = header.ack_req;
            variables.msg_in_ack_rsp = header.ack_rsp;
            machines.run_transitions(effects);
        });
    }

    /// Handles a request or an indication.
    fn accept_transaction(&mut self, now: Instant, arrival: ReceivedMessage) {
        let ReceivedMessage { reply_path: way, header, source, destination, message, refusal } = arrival;
        let (id, tid) = (header.id, header.transaction);
        let known = self.peers.find(&source);
        if let Some(peer) = known
            && let Some(token) = self.table.find(TransactionKey::for_destination(peer, tid, id))
        {
            self.counters.duplicates += 1;
            let (changes, named) =
                self.peers.get(peer).map_or((0, false), |entry| (entry.changes, entry.configured.is_some()));
            let address = |way| self.net.remote_address(way).map(|remote| remote.ip().to_canonical());
            if let Some(transaction) = self.table.get_mut(token) {
                // Two unregistered functions may use the same identifier and the same transaction number. So a
                // duplicate from another address does not redirect the response.
                let before = transaction.last_reply_path.and_then(|(before, _)| address(before));
                let other = before.is_some() && before != address(way);
                if self.config.proofs.is_none() || named || !other {
                    transaction.last_reply_path = Some((way, changes));
                }
            }
            self.step_transaction(now, token, |machines, effects| {
                machines.variables.msg_in_avail = true;
                machines.run_transitions(effects);
            });
            return;
        }
        if !self.evict_for_new_transaction() {
            self.counters.refused += 1;
            return;
        }
        let rng = &mut self.rng;
        let peer = self.peers.intern_peer(&source, || rng.next_u64());
        self.peers.add_reference(peer);
        self.bind_connection_to_peer(way, peer);
        let mut variables = TransactionVariables::new(id.opcode);
        variables.msg_in_ack_req = header.ack_req;
        variables.is_multicast = destination.is_multicast();
        variables.ack_due = id.opcode == Opcode::Indication;
        let machines = TransactionStateMachines::for_destination(variables);
        let mut transaction =
            Transaction::new(machines, TransactionKey::for_destination(peer, tid, id), peer, id, tid);
        let address = self.config.proofs.as_ref().and_then(|_| self.net.remote_address(way));
        let changes = match self.peers.get_mut(peer) {
            Some(entry) => {
                entry.last_reply_path = Some(way);
                entry.address = entry.address.or(address.map(|address| address.ip().to_canonical()));
                entry.changes
            }
            None => 0,
        };
        transaction.timing = self.config.message_timing(id);
        transaction.last_reply_path = Some((way, changes));
        (transaction.inbox, transaction.refusal) = (Some(message), refusal);
        let token = self.table.insert(now, transaction);
        self.step_transaction(now, token, |machines, effects| machines.start(effects));
    }

    /// Passes a message to the user or to the function itself.
    pub(super) fn deliver_message(&mut self, now: Instant, token: u64) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        if transaction.user.is_some() {
            return;
        }
        let (peer, refusal) = (transaction.peer, transaction.refusal);
        let Some(message) = transaction.inbox.take() else { return };
        let Some(entry) = self.peers.get(peer) else { return };
        let from = entry.id.clone();
        if message.id.opcode == Opcode::Indication {
            self.net.outputs.push_event(MihfEvent::Indication { from, message });
            return;
        }
        let answer = match refusal {
            Some(status) => Some(alloc::vec![Tlv::Status(status)]),
            None => self.response_parameters(now, peer, &from, &message),
        };
        let transaction = IncomingRequestId(token);
        match answer {
            Some(params) => {
                let response = MihfMessage { id: message.id.to_response(), params };
                if self.send_response(now, transaction, &response).is_err() {
                    // A response of this function fails to encode only if it is too long. A short error response
                    // replaces it.
                    let failed = Tlv::Status(Status::UnspecifiedFailure);
                    let response = MihfMessage { id: message.id.to_response(), params: alloc::vec![failed] };
                    let sent = self.send_response(now, transaction, &response);
                    debug_assert!(sent.is_ok(), "a status fits every packet");
                }
            }
            None => self.net.outputs.push_event(MihfEvent::Request { from, transaction, message }),
        }
    }
}
