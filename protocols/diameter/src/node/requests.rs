//! The client side: routing, sending, matching answers, failover.

use super::{
    CommandError, DiameterNode, DiameterNodeCommand, DiameterNodeEvent, DiameterNodeTimer, DiameterRequest,
    FailReason,
};
use crate::avp::AvpBuf;
use crate::codes::{self, command};
use crate::error::ResultCode;
use crate::message::{CommandFlags, HEADER_LEN, MAX_LEN, MessageHeader, MessageView};
use crate::peer::watchdog;
use crate::work;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::Instant;
use usher_core::collections::{HashMap, SeededHashState};

#[derive(Debug)]
struct PendingRequest {
    token: u64,
    /// The order of arrival, which a retransmission keeps.
    sequence: u64,
    application: u32,
    realm: String,
    host: Option<String>,
    /// The encoded request. Each transmission writes the hop-by-hop identifier and the T flag.
    wire: Vec<u8>,
    /// The peer with the request and the hop-by-hop identifier there.
    current_hop: Option<(u32, u32)>,
    sent_before: bool,
    deadline: Option<Instant>,
}

/// The pending requests. Each operation takes at most logarithmic time.
#[derive(Debug)]
pub(super) struct PendingRequestTable {
    slots: Vec<Option<PendingRequest>>,
    free: Vec<u32>,
    by_hop: HashMap<u32, u32>,
    by_token: HashMap<u64, u32>,
    /// Slots by peer, in order of arrival. `None` for requests without a peer.
    by_peer: BTreeMap<(Option<u32>, u64), u32>,
    sequence: u64,
}

impl PendingRequestTable {
    pub(super) fn new(state: SeededHashState) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_hop: HashMap::with_hasher(state.clone()),
            by_token: HashMap::with_hasher(state),
            by_peer: BTreeMap::new(),
            sequence: 0,
        }
    }
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// Adds a request without a peer.
    fn insert(&mut self, pending: PendingRequest) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.by_token.insert(pending.token, slot);
        self.by_peer.insert((None, pending.sequence), slot);
        if slot as usize == self.slots.len() {
            self.slots.push(Some(pending));
        } else {
            self.slots[slot as usize] = Some(pending);
        }
        slot
    }
    fn get(&self, slot: u32) -> Option<&PendingRequest> {
        self.slots.get(slot as usize)?.as_ref()
    }
    fn get_mut(&mut self, slot: u32) -> Option<&mut PendingRequest> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }
    fn remove(&mut self, slot: u32) -> Option<PendingRequest> {
        self.set_request_peer_and_hop(slot, None);
        let pending = self.slots.get_mut(slot as usize)?.take()?;
        self.by_peer.remove(&(None, pending.sequence));
        if self.by_token.get(&pending.token) == Some(&slot) {
            self.by_token.remove(&pending.token);
        }
        self.free.push(slot);
        Some(pending)
    }
    /// Sets the peer of a request and its hop-by-hop identifier there. `None` for a request without a peer.
    fn set_request_peer_and_hop(&mut self, slot: u32, at: Option<(u32, u32)>) {
        let Some(pending) = self.slots.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        let before = core::mem::replace(&mut pending.current_hop, at);
        let peer = |at: Option<(u32, u32)>| at.map(|(p, _)| p);
        self.by_peer.remove(&(peer(before), pending.sequence));
        self.by_peer.insert((peer(at), pending.sequence), slot);
        if let Some((_, hop)) = before {
            self.by_hop.remove(&hop);
        }
        if let Some((_, hop)) = at {
            self.by_hop.insert(hop, slot);
        }
    }
    /// The slots of requests at this peer or without a peer, oldest first.
    fn slots_at_peer(&self, peer: Option<u32>) -> Vec<u32> {
        self.by_peer.range((peer, 0)..=(peer, u64::MAX)).map(|(_, slot)| *slot).collect()
    }
}

/// The route of a request.
enum RoutingDecision {
    /// This peer, now.
    Peer(u32),
    /// A later peer, when one comes up.
    Wait,
    /// No peer.
    None,
}

impl DiameterNode {
    pub(super) fn start_request(&mut self, now: Instant, r: DiameterRequest) -> Result<(), CommandError> {
        if self.client.len() >= self.config.max_pending {
            return Err(CommandError::Full("pending requests"));
        }
        let header = MessageHeader {
            flags: CommandFlags(CommandFlags::REQUEST | CommandFlags::PROXIABLE),
            command: r.command,
            application: r.application,
            hop_by_hop: 0,
            // RFC 6733, 3: every copy of the request keeps the same End-to-End Identifier.
            end_to_end: self.next_end_to_end(),
        };
        let mut avps = AvpBuf::from_checked(Vec::with_capacity(320 + r.avps.as_bytes().len()));
        // RFC 6733, 6.1.1, 6.3, 6.4, 8.8: Session-Id first, then the origin and the realm.
        avps.push_str(codes::SESSION_ID, &r.session_id)
            .push_u32(application_id(r.command), r.application)
            .push_str(codes::ORIGIN_HOST, &self.config.local.host)
            .push_str(codes::ORIGIN_REALM, &self.config.local.realm)
            .push_str(codes::DESTINATION_REALM, &r.destination_realm);
        if let Some(host) = &r.destination_host {
            avps.push_str(codes::DESTINATION_HOST, host);
        }
        if HEADER_LEN + avps.as_bytes().len() + r.avps.as_bytes().len() > MAX_LEN {
            return Err(CommandError::Invalid("the request exceeds the maximum message length"));
        }
        let mut wire = self.outputs.take_buffer();
        wire.reserve(HEADER_LEN + avps.as_bytes().len() + r.avps.as_bytes().len());
        header.write_header(&mut wire);
        wire.extend_from_slice(avps.as_bytes());
        wire.extend_from_slice(r.avps.as_bytes());
        MessageHeader::write_length(&mut wire, 0);
        let deadline = self.config.request_timeout.map(|d| now + d);
        self.client.sequence += 1;
        let slot = self.client.insert(PendingRequest {
            token: r.token,
            sequence: self.client.sequence,
            application: r.application,
            realm: r.destination_realm,
            host: r.destination_host,
            wire,
            current_hop: None,
            sent_before: false,
            deadline,
        });
        if let Some(at) = deadline {
            self.timers.insert(at, DiameterNodeTimer::Request(slot));
        }
        self.record_work(work::REQUEST);
        self.route_request(slot);
        Ok(())
    }

    /// Sends the request, keeps it waiting or fails it.
    fn route_request(&mut self, slot: u32) {
        match self.choose_peer(slot) {
            RoutingDecision::Peer(p) => self.send_pending_request(slot, p),
            RoutingDecision::Wait => {}
            RoutingDecision::None => self.fail_request(slot, FailReason::NoRoute),
        }
    }

    /// The peers that may take a request, in order of preference.
    fn candidate_peers(&self, realm: &str, host: Option<&str>, application: u32) -> Vec<u32> {
        // RFC 6733, 6.1.5: a request to a peer goes straight to it.
        if let Some(p) = host.and_then(|h| self.peers.find_peer_by_host(h)) {
            return [p].into();
        }
        // RFC 6733, 2.7, 6.1.6, 12: by realm, then by application, then the default.
        let fits = |r: &&super::RealmRoute| {
            (r.realm == "*" || r.realm.eq_ignore_ascii_case(realm))
                && r.application.is_none_or(|a| a == application)
        };
        let count = self.config.peers.len();
        match self.config.routes.iter().find(fits) {
            Some(route) => route.peers.iter().filter(|p| **p < count).map(|p| *p as u32).collect(),
            None if self.config.routes.is_empty() => (0..count as u32).collect(),
            None => Vec::new(),
        }
    }

    fn choose_peer(&self, slot: u32) -> RoutingDecision {
        let Some(r) = self.client.get(slot) else { return RoutingDecision::None };
        let candidates = self.candidate_peers(&r.realm, r.host.as_deref(), r.application);
        let mut proving = None;
        let mut may_come = false;
        for p in candidates {
            let peer = &self.peers[p];
            if peer.active_connection().is_none() {
                may_come = true;
                continue;
            }
            // RFC 6733, 2.7, 2.9, 5.3: the peer has announced the application.
            if !peer.remote.as_ref().is_some_and(|c| c.supports_application(r.application)) {
                continue;
            }
            match peer.watchdog.state() {
                watchdog::State::Okay => return RoutingDecision::Peer(p),
                // A connection in REOPEN is used only if no peer is OKAY: it is better than none.
                watchdog::State::Reopen => proving = proving.or(Some(p)),
                _ => may_come = true,
            }
        }
        match proving {
            Some(p) => RoutingDecision::Peer(p),
            None if may_come => RoutingDecision::Wait,
            None => RoutingDecision::None,
        }
    }

    fn send_pending_request(&mut self, slot: u32, p: u32) {
        let Some(conn) = self.peers[p].active_connection() else { return };
        let hop = self.next_hop_by_hop();
        let mut buf = self.outputs.take_buffer();
        let Some(r) = self.client.get_mut(slot) else { return };
        r.wire[12..16].copy_from_slice(&hop.to_be_bytes());
        // RFC 6733, 3, 5.5.4, C: only a retransmission has the T flag.
        if r.sent_before {
            r.wire[4] |= CommandFlags::RETRANSMITTED;
            self.counters.retransmitted += 1;
        }
        r.sent_before = true;
        buf.extend_from_slice(&r.wire);
        self.client.set_request_peer_and_hop(slot, Some((p, hop)));
        self.queue_message_on_connection(conn, None, buf);
    }

    /// Sends all waiting requests that have a route.
    pub(super) fn dispatch_waiting_requests(&mut self) {
        for slot in self.client.slots_at_peer(None) {
            self.route_request(slot);
        }
    }

    /// Sends the unanswered requests of a suspect peer to alternates. Those without an alternate stay, since the peer
    /// may yet answer (RFC 6733 §5.5.4).
    pub(super) fn fail_over_requests(&mut self, p: u32) {
        // RFC 6733, 5.3.1, 5.4.1, 5.5.1: only the service's requests move, never CER, DPR or DWR.
        for slot in self.client.slots_at_peer(Some(p)) {
            if let RoutingDecision::Peer(other) = self.choose_peer(slot)
                && other != p
            {
                self.send_pending_request(slot, other);
            }
        }
    }

    /// Reroutes the unanswered requests of a peer after the loss of its connection.
    pub(super) fn connection_lost(&mut self, p: u32) {
        for slot in self.client.slots_at_peer(Some(p)) {
            if let RoutingDecision::Peer(other) = self.choose_peer(slot) {
                self.send_pending_request(slot, other);
                continue;
            }
            if !self.config.resend_to_same_peer {
                self.fail_request(slot, FailReason::ConnectionLost);
                continue;
            }
            self.client.set_request_peer_and_hop(slot, None);
        }
    }

    fn finish_request(&mut self, slot: u32) -> Option<u64> {
        let r = self.client.remove(slot)?;
        if let Some(at) = r.deadline {
            self.timers.remove(at, DiameterNodeTimer::Request(slot));
        }
        self.outputs.recycle_buffer(r.wire);
        Some(r.token)
    }

    fn fail_request(&mut self, slot: u32, reason: FailReason) {
        if let Some(token) = self.finish_request(slot) {
            self.outputs.push_event(DiameterNodeEvent::Failed { token, reason });
        }
    }

    pub(super) fn cancel_request(&mut self, token: u64) -> Result<(), CommandError> {
        let slot = self.client.by_token.get(&token).copied().ok_or(CommandError::UnknownToken)?;
        self.finish_request(slot);
        Ok(())
    }

    pub(super) fn handle_request_timeout(&mut self, slot: u32) {
        self.counters.request_timeout += 1;
        self.fail_request(slot, FailReason::TimedOut);
    }

    pub(super) fn on_answer(&mut self, p: u32, view: &MessageView<'_>) {
        let h = view.header();
        let slot = self.client.by_hop.get(&h.hop_by_hop).copied();
        let matches = |r: &PendingRequest| {
            r.current_hop == Some((p, h.hop_by_hop))
                && MessageView::parse_message_header(&r.wire)
                    .is_some_and(|sent| (sent.end_to_end, sent.command) == (h.end_to_end, h.command))
        };
        // RFC 6733, 3, 6.2.1: an answer with an unknown Hop-by-Hop Identifier is discarded.
        let Some(slot) = slot.filter(|s| self.client.get(*s).is_some_and(matches)) else {
            self.counters.unmatched_answer += 1;
            return;
        };
        self.record_work(work::ANSWER);
        let Some(result) = result_of(view) else {
            self.counters.malformed += 1;
            return self.fail_request(slot, FailReason::BadAnswer);
        };
        if let Some(token) = self.finish_request(slot) {
            self.outputs.push_event(DiameterNodeEvent::Answer { token, result, avps: view.to_owned().avps });
        }
    }
}

/// Result-Code, or the code within Experimental-Result.
fn result_of(view: &MessageView<'_>) -> Option<ResultCode> {
    let avps = view.avps();
    let code = match avps.get(codes::RESULT_CODE) {
        Some(a) => a,
        None => {
            avps.get(codes::EXPERIMENTAL_RESULT)?.as_group().ok()?.get(codes::EXPERIMENTAL_RESULT_CODE)?
        }
    };
    code.as_u32().ok().map(ResultCode)
}

/// The AVP of the application in this command.
pub(super) const fn application_id(command: u32) -> crate::AvpId {
    if command == command::ACCOUNTING { codes::ACCT_APPLICATION_ID } else { codes::AUTH_APPLICATION_ID }
}

impl From<DiameterRequest> for DiameterNodeCommand {
    fn from(r: DiameterRequest) -> Self {
        Self::Request(r)
    }
}
