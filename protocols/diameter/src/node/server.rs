//! The server side: requests to the service, answers, duplicates.

use super::config::matches_identity;
use super::links::{MessageStreamClass, ReceivedMessageStream};
use super::requests::application_id;
use super::{CommandError, DiameterNode, DiameterNodeEvent, PeerId};
use crate::avp::{AvpBuf, AvpSequence, AvpView};
use crate::codes::{self, application, command};
use crate::error::{DiameterError, ResultCode};
use crate::message::{HEADER_LEN, MAX_LEN, MessageHeader, MessageView};
use crate::work;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::collections::{HashMap, SeededHashState};

/// The authenticated origin of a request and its end-to-end identifier.
///
/// RFC 6733 §3 uses Origin-Host, which the peer may choose freely. A cached answer contains keys, so only the peer that
/// got it may get it again.
type DuplicateRequestKey = (Arc<str>, u32);

#[derive(Debug)]
struct InboundRequest {
    via: ReceivedMessageStream,
    header: MessageHeader,
    session: AvpBuf,
    proxies: AvpBuf,
    /// True if the request has Destination-Host.
    directed: bool,
    key: Option<DuplicateRequestKey>,
}

/// A cached request. A duplicate equals it octet for octet, except in AVPs that agents change. Many nodes behind a peer
/// may choose the same end-to-end identifier.
#[derive(Debug)]
struct CachedRequest {
    application: u32,
    command: u32,
    avps: Vec<u8>,
    state: CachedRequestState,
}

#[derive(Debug)]
enum CachedRequestState {
    /// The service has the request under this token.
    Pending(u64),
    /// The answer without Proxy-Info.
    Answered(Vec<u8>),
}

impl CachedRequest {
    fn matches_request(&self, request: &MessageView<'_>) -> bool {
        // Agents add Route-Record and Proxy-Info, so a retransmission by another route has others. Both are left out of
        // the comparison.
        let stays = |a: &AvpView<'_>| !a.has_id(codes::ROUTE_RECORD) && !a.has_id(codes::PROXY_INFO);
        let h = request.header();
        (self.application, self.command) == (h.application, h.command)
            && AvpSequence::from_checked(&self.avps).filter(stays).eq(request.avps().filter(stays))
    }
    /// The number of octets in the cache.
    fn octet_count(&self) -> usize {
        match &self.state {
            CachedRequestState::Pending(_) => self.avps.len(),
            CachedRequestState::Answered(answer) => self.avps.len() + answer.len(),
        }
    }
}

/// The cache's size for each of [`duplicates`](super::DiameterNodeConfig::duplicates), octets. Beyond it the oldest
/// entries are evicted, which bounds the memory against long messages.
const OCTETS_EACH: usize = 1024;

/// The requests at the service, and the cache for duplicates.
#[derive(Debug)]
pub(super) struct InboundRequestTable {
    inbound: HashMap<u64, InboundRequest>,
    next_token: u64,
    cached_requests: HashMap<DuplicateRequestKey, CachedRequest>,
    /// The keys of `cached_requests`, oldest first.
    order: VecDeque<DuplicateRequestKey>,
    /// The octets in `cached_requests`.
    octets: usize,
}

impl InboundRequestTable {
    pub(super) fn new(state: SeededHashState) -> Self {
        Self {
            inbound: HashMap::with_hasher(state.clone()),
            next_token: 0,
            cached_requests: HashMap::with_hasher(state),
            order: VecDeque::new(),
            octets: 0,
        }
    }
    /// The octets in the cache.
    #[cfg(test)]
    pub(super) const fn cached_octets(&self) -> usize {
        self.octets
    }
    fn cache_request(
        &mut self,
        key: DuplicateRequestKey,
        token: u64,
        request: &MessageView<'_>,
        limit: usize,
    ) {
        let mut avps = Vec::new();
        while self.order.len() >= limit || self.octets > limit.saturating_mul(OCTETS_EACH) {
            let Some(old) = self.order.pop_front() else { break };
            if let Some(old) = self.cached_requests.remove(&old) {
                self.octets -= old.octet_count();
                avps = old.avps;
            }
        }
        avps.clear();
        avps.extend_from_slice(&request.as_bytes()[HEADER_LEN..]);
        let MessageHeader { application, command, .. } = request.header();
        let seen = CachedRequest { application, command, avps, state: CachedRequestState::Pending(token) };
        self.octets += seen.octet_count();
        match self.cached_requests.insert(key.clone(), seen) {
            Some(before) => self.octets -= before.octet_count(),
            None => self.order.push_back(key),
        }
    }
    /// Caches the answer to the request of a token, unless another request has replaced it.
    fn cache_answer(&mut self, key: &DuplicateRequestKey, token: u64, answer: &[u8]) {
        if let Some(seen) = self.cached_requests.get_mut(key)
            && matches!(seen.state, CachedRequestState::Pending(t) if t == token)
        {
            self.octets += answer.len();
            seen.state = CachedRequestState::Answered(answer.into());
        }
    }
}

impl DiameterNode {
    pub(super) fn on_request(&mut self, p: u32, via: ReceivedMessageStream, view: &MessageView<'_>) {
        let h = view.header();
        let avps = view.avps();
        let [mut session, proxies] = echoed_avps(avps);
        let directed = avps.get(codes::DESTINATION_HOST).is_some();
        self.record_work(work::REQUEST);
        if let Err(fault) = self.check_request(p, view) {
            session.extend(&proxies);
            return self.answer_with_error(via, h, session.as_bytes(), &fault);
        }
        let key = (self.config.duplicates > 0).then(|| (self.peers[p].identity.clone(), h.end_to_end));
        // RFC 6733, 3, 5.5.4; RFC 3539, 2.5, 3.4.1: a duplicate, by any connection, changes no state.
        if h.flags.is_retransmitted() && self.handle_duplicate_request(via, view, &proxies, key.as_ref()) {
            return;
        }
        if self.server.inbound.len() >= self.config.max_inbound {
            self.counters.too_busy += 1;
            session.extend(&proxies);
            let fault = DiameterError::new(overload_result_code(directed), "too many unanswered requests");
            return self.answer_with_error(via, h, session.as_bytes(), &fault);
        }
        let token = self.server.next_token;
        self.server.next_token += 1;
        if let Some(key) = &key {
            self.server.cache_request(key.clone(), token, view, self.config.duplicates);
        }
        self.server.inbound.insert(token, InboundRequest { via, header: h, session, proxies, directed, key });
        let origin = self.authenticated_request_origin(p, view);
        self.outputs.push_event(DiameterNodeEvent::Request {
            token,
            peer: PeerId(p),
            origin,
            message: view.to_owned(),
        });
    }

    /// The authenticated origin of a request.
    fn authenticated_request_origin(&self, p: u32, view: &MessageView<'_>) -> Arc<str> {
        let peer = &self.peers[p];
        let said = view.avps().get(codes::ORIGIN_HOST).and_then(|a| a.as_identity().ok());
        match said.filter(|host| peer.may_relay_for_origin(host)) {
            Some(host) => host.to_ascii_lowercase().into(),
            None => peer.identity.clone(),
        }
    }

    /// Checks a request by the base protocol (RFC 6733 §6.1).
    fn check_request(&mut self, p: u32, view: &MessageView<'_>) -> Result<(), DiameterError> {
        let (h, avps) = (view.header(), view.avps());
        // RFC 6733, 2.5: common messages have their session's application. RFC 4072, 3 used 0.
        let common = h.application == application::BASE
            && matches!(h.command, command::SESSION_TERMINATION | command::ABORT_SESSION | command::RE_AUTH);
        // RFC 6733, 2.9: only announced applications are served.
        if !common && !self.config.local.supports_application(h.application) {
            self.counters.application_unsupported += 1;
            return Err(DiameterError::new(ResultCode::APPLICATION_UNSUPPORTED, "unsupported application"));
        }
        let check = |counter: &mut u64, r: Result<_, DiameterError>| r.inspect_err(|_| *counter += 1);
        check(&mut self.counters.malformed, avps.require_avp(codes::SESSION_ID).map(|_| ()))?;
        let origin = avps.require_avp(codes::ORIGIN_HOST).and_then(|a| a.as_identity());
        let origin = origin.inspect_err(|_| self.counters.malformed += 1)?;
        // RFC 6733, 6.1.9: a relay adds Route-Record.
        if !origin.eq_ignore_ascii_case(&self.peers[p].identity) && avps.get(codes::ROUTE_RECORD).is_none() {
            self.counters.foreign_origin += 1;
            let what = "the Origin-Host is that of another node, without a Route-Record";
            return Err(DiameterError::new(ResultCode::AUTHORIZATION_REJECTED, what));
        }
        let local = &self.config.local;
        // RFC 6733, 6.1.3: this node is in the Route-Record already.
        if avps.get_all(codes::ROUTE_RECORD).any(|a| a.data.eq_ignore_ascii_case(local.host.as_bytes())) {
            self.counters.loop_detected += 1;
            return Err(DiameterError::new(ResultCode::LOOP_DETECTED, "the request passed this node before"));
        }
        let by = |a: &AvpView<'_>| self.config.agents.iter().any(|agent| matches_identity(agent, a.data));
        // RFC 6733, 2.9: the home server checks that it trusts every agent on the route.
        if !avps.get_all(codes::ROUTE_RECORD).all(|a| by(&a)) {
            self.counters.untrusted_route += 1;
            return Err(DiameterError::new(
                ResultCode::AUTHORIZATION_REJECTED,
                "the route has an untrusted agent",
            ));
        }
        let realm = avps.get(codes::DESTINATION_REALM);
        if let Some(a) = avps.get(codes::DESTINATION_HOST)
            && (realm.is_none() || !a.data.eq_ignore_ascii_case(local.host.as_bytes()))
        {
            self.counters.not_for_us += 1;
            return Err(DiameterError::new(
                ResultCode::UNABLE_TO_DELIVER,
                "the Destination-Host is another host, or the Destination-Realm is missing",
            ));
        }
        if let Some(a) = realm {
            let mut served = core::iter::once(&local.realm).chain(&self.config.realms);
            if !served.any(|r| r == "*" || a.data.eq_ignore_ascii_case(r.as_bytes())) {
                self.counters.not_for_us += 1;
                return Err(DiameterError::new(
                    ResultCode::REALM_NOT_SERVED,
                    "the Destination-Realm is not served here",
                ));
            }
        }
        Ok(())
    }

    /// Handles a duplicate. Returns false if the request is new.
    fn handle_duplicate_request(
        &mut self,
        via: ReceivedMessageStream,
        view: &MessageView<'_>,
        proxies: &AvpBuf,
        key: Option<&DuplicateRequestKey>,
    ) -> bool {
        let h = view.header();
        let seen =
            key.and_then(|k| self.server.cached_requests.get(k)).filter(|seen| seen.matches_request(view));
        let Some(seen) = seen else { return false };
        self.counters.duplicate_request += 1;
        match &seen.state {
            CachedRequestState::Pending(token) => {
                // The answer goes to the connection from which the request came last.
                if let Some(inbound) = self.server.inbound.get_mut(token) {
                    (inbound.via, inbound.header) = (via, h);
                    inbound.proxies.clone_from(proxies);
                }
            }
            CachedRequestState::Answered(answer) => {
                let mut buf = self.outputs.take_buffer();
                buf.extend_from_slice(answer);
                buf.extend_from_slice(proxies.as_bytes());
                buf[12..16].copy_from_slice(&h.hop_by_hop.to_be_bytes());
                MessageHeader::write_length(&mut buf, 0);
                self.queue_message_on_connection(via.conn, Some(MessageStreamClass::Answer(via.stream)), buf);
                self.record_work(work::ANSWER);
            }
        }
        true
    }

    pub(super) fn answer_request(
        &mut self,
        token: u64,
        result: ResultCode,
        avps: &AvpBuf,
    ) -> Result<(), CommandError> {
        let inbound = self.server.inbound.get(&token).ok_or(CommandError::UnknownToken)?;
        let extra = inbound.session.as_bytes().len() + inbound.proxies.as_bytes().len() + 600;
        if HEADER_LEN + extra + avps.as_bytes().len() > MAX_LEN {
            return Err(CommandError::Invalid("the answer exceeds the maximum message length"));
        }
        let Some(inbound) = self.server.inbound.remove(&token) else {
            return Err(CommandError::UnknownToken);
        };
        let h = inbound.header;
        let result =
            if result == ResultCode::TOO_BUSY { overload_result_code(inbound.directed) } else { result };
        let mut buf = self.outputs.take_buffer();
        buf.reserve(extra + avps.as_bytes().len());
        h.to_answer(result).write_header(&mut buf);
        buf.extend_from_slice(inbound.session.as_bytes());
        let mut body = AvpBuf::from_checked(buf);
        // RFC 6733, 6.2, 6.3, 6.4, 7.1: one Result-Code and the origin, but no destination.
        body.push_u32(codes::RESULT_CODE, result.0)
            .push_str(codes::ORIGIN_HOST, &self.config.local.host)
            .push_str(codes::ORIGIN_REALM, &self.config.local.realm);
        // RFC 7155, 1.5, 3.10: the answer names its application.
        if matches!(h.command, command::AA | command::DIAMETER_EAP | command::ACCOUNTING) {
            body.push_u32(application_id(h.command), h.application);
        }
        body.extend(avps);
        let mut buf = body.into_bytes();
        if let Some(key) = &inbound.key {
            self.server.cache_answer(key, token, &buf);
        }
        buf.extend_from_slice(inbound.proxies.as_bytes());
        MessageHeader::write_length(&mut buf, 0);
        self.record_work(work::ANSWER);
        if self.conns.contains_key(&inbound.via.conn) {
            self.queue_message_on_connection(
                inbound.via.conn,
                Some(MessageStreamClass::Answer(inbound.via.stream)),
                buf,
            );
        } else {
            self.counters.answer_undeliverable += 1;
            self.outputs.recycle_buffer(buf);
        }
        Ok(())
    }
}

/// The AVPs that every answer echoes: Session-Id, and Proxy-Info in its order (RFC 6733 §6.2).
pub(super) fn echoed_avps(avps: AvpSequence<'_>) -> [AvpBuf; 2] {
    let [mut session, mut proxies] = [AvpBuf::new(), AvpBuf::new()];
    for a in avps {
        if a.has_id(codes::SESSION_ID) && session.is_empty() {
            session.push_view(a);
        } else if a.has_id(codes::PROXY_INFO) {
            proxies.push_view(a);
        }
    }
    [session, proxies]
}

/// The result code of an overloaded node (RFC 6733 §7.1.3): 3004 only for a request with Destination-Host.
const fn overload_result_code(directed: bool) -> ResultCode {
    if directed { ResultCode::TOO_BUSY } else { ResultCode::UNABLE_TO_DELIVER }
}

/// Appends Failed-AVP and Error-Message.
pub(super) fn append_error_avps(out: &mut AvpBuf, fault: &DiameterError) {
    // RFC 6733, 7, 7.1.5: Failed-AVP shows the first error.
    if let Some(avp) = &fault.avp {
        out.push_group(codes::FAILED_AVP, |g| {
            g.push_avp(avp);
        });
    }
    out.push_str(codes::ERROR_MESSAGE, fault.description);
}
