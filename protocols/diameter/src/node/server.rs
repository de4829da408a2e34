//! The server side: requests to the service, its answers, duplicates.

use super::config::names;
use super::links::{Lane, Via};
use super::requests::application_id;
use super::{CommandError, Event, Node, PeerId};
use crate::avp::{AvpBuf, AvpView, Avps};
use crate::codes::{self, application, command};
use crate::error::{Fault, ResultCode};
use crate::message::{HEADER_LEN, Header, MAX_LEN, MessageView};
use crate::work;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::collections::{HashMap, HashState};

/// Who sent a request, as that is authenticated, and its end-to-end identifier.
///
/// RFC 6733 §3 has Origin-Host in the place of the peer. But a peer writes into Origin-Host what it likes, and an answer
/// holds keys: it is given again to nobody but the peer that it was given to.
type DuplicateKey = (Arc<str>, u32);

#[derive(Debug)]
struct Inbound {
    via: Via,
    header: Header,
    session: AvpBuf,
    proxies: AvpBuf,
    /// It names the host that is to answer.
    directed: bool,
    key: Option<DuplicateKey>,
}

/// A request that is remembered: only the same one, octet for octet but for what agents change on the way, is a
/// duplicate of it. Behind one peer there may be many who choose end-to-end identifiers.
#[derive(Debug)]
struct Seen {
    application: u32,
    command: u32,
    avps: Vec<u8>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// With the service under this token.
    UnderWay(u64),
    /// Answered with this message, which lacks the Proxy-Info of its request.
    Answered(Vec<u8>),
}

impl Seen {
    fn is(&self, request: &MessageView<'_>) -> bool {
        // Agents add to these on the way, and may do so differently on another way.
        let stays = |a: &AvpView<'_>| !a.is(codes::ROUTE_RECORD) && !a.is(codes::PROXY_INFO);
        let h = request.header();
        (self.application, self.command) == (h.application, h.command)
            && Avps::checked(&self.avps).filter(stays).eq(request.avps().filter(stays))
    }
    /// Octets that are kept.
    fn octets(&self) -> usize {
        match &self.state {
            State::UnderWay(_) => self.avps.len(),
            State::Answered(answer) => self.avps.len() + answer.len(),
        }
    }
}

/// What requests and answers that are kept may take for each of [`Config::duplicates`](super::Config::duplicates):
/// beyond it the oldest go, so that nobody fills the memory with long ones.
const OCTETS_EACH: usize = 1024;

/// Requests at the service, and answers kept for duplicates.
#[derive(Debug)]
pub(super) struct Server {
    inbound: HashMap<u64, Inbound>,
    next_token: u64,
    seen: HashMap<DuplicateKey, Seen>,
    /// Keys of `seen`, oldest first.
    order: VecDeque<DuplicateKey>,
    /// Octets that `seen` keeps.
    octets: usize,
}

impl Server {
    pub(super) fn new(state: HashState) -> Self {
        Self {
            inbound: HashMap::with_hasher(state.clone()),
            next_token: 0,
            seen: HashMap::with_hasher(state),
            order: VecDeque::new(),
            octets: 0,
        }
    }
    /// Octets kept for duplicates.
    #[cfg(test)]
    pub(super) const fn kept(&self) -> usize {
        self.octets
    }
    fn remember(&mut self, key: DuplicateKey, token: u64, request: &MessageView<'_>, limit: usize) {
        let mut avps = Vec::new();
        while self.order.len() >= limit || self.octets > limit.saturating_mul(OCTETS_EACH) {
            let Some(old) = self.order.pop_front() else { break };
            if let Some(old) = self.seen.remove(&old) {
                self.octets -= old.octets();
                avps = old.avps;
            }
        }
        avps.clear();
        avps.extend_from_slice(&request.bytes()[HEADER_LEN..]);
        let Header { application, command, .. } = request.header();
        let seen = Seen { application, command, avps, state: State::UnderWay(token) };
        self.octets += seen.octets();
        match self.seen.insert(key.clone(), seen) {
            Some(before) => self.octets -= before.octets(),
            None => self.order.push_back(key),
        }
    }
    /// Notes the answer to the request of a token, unless another has taken its place.
    fn answered(&mut self, key: &DuplicateKey, token: u64, answer: &[u8]) {
        if let Some(seen) = self.seen.get_mut(key)
            && matches!(seen.state, State::UnderWay(t) if t == token)
        {
            self.octets += answer.len();
            seen.state = State::Answered(answer.into());
        }
    }
}

impl Node {
    pub(super) fn on_request(&mut self, p: u32, via: Via, view: &MessageView<'_>) {
        let h = view.header();
        let avps = view.avps();
        let [mut session, proxies] = given_back(avps);
        let directed = avps.get(codes::DESTINATION_HOST).is_some();
        self.did(work::REQUEST);
        if let Err(fault) = self.check_request(p, view) {
            session.extend(&proxies);
            return self.answer_fault(via, h, session.bytes(), &fault);
        }
        let key = (self.config.duplicates > 0).then(|| (self.peers[p].identity.clone(), h.end_to_end));
        if h.flags.is_retransmitted() && self.repeat(via, view, &proxies, key.as_ref()) {
            return;
        }
        if self.server.inbound.len() >= self.config.max_inbound {
            self.counters.too_busy += 1;
            session.extend(&proxies);
            let fault = Fault::new(busy(directed), "too many unanswered requests");
            return self.answer_fault(via, h, session.bytes(), &fault);
        }
        let token = self.server.next_token;
        self.server.next_token += 1;
        if let Some(key) = &key {
            self.server.remember(key.clone(), token, view, self.config.duplicates);
        }
        self.server.inbound.insert(token, Inbound { via, header: h, session, proxies, directed, key });
        let origin = self.origin_of(p, view);
        self.outputs.event(Event::Request { token, peer: PeerId(p), origin, message: view.to_owned() });
    }

    /// Whose a request is, as far as that is authenticated.
    fn origin_of(&self, p: u32, view: &MessageView<'_>) -> Arc<str> {
        let peer = &self.peers[p];
        let said = view.avps().get(codes::ORIGIN_HOST).and_then(|a| a.identity().ok());
        match said.filter(|host| peer.relays_for(host)) {
            Some(host) => host.to_ascii_lowercase().into(),
            None => peer.identity.clone(),
        }
    }

    /// What the base protocol asks of any request (RFC 6733 §6.1).
    fn check_request(&mut self, p: u32, view: &MessageView<'_>) -> Result<(), Fault> {
        let (h, avps) = (view.header(), view.avps());
        // Common messages bear their session's application; RFC 4072 §3 still gave them 0.
        let common = h.application == application::BASE
            && matches!(h.command, command::SESSION_TERMINATION | command::ABORT_SESSION | command::RE_AUTH);
        if !common && !self.config.local.speaks(h.application) {
            self.counters.application_unsupported += 1;
            return Err(Fault::new(ResultCode::APPLICATION_UNSUPPORTED, "application not spoken here"));
        }
        let check = |counter: &mut u64, r: Result<_, Fault>| r.inspect_err(|_| *counter += 1);
        check(&mut self.counters.malformed, avps.require(codes::SESSION_ID).map(|_| ()))?;
        let origin = avps.require(codes::ORIGIN_HOST).and_then(|a| a.identity());
        let origin = origin.inspect_err(|_| self.counters.malformed += 1)?;
        // Who passes another's request on says so (RFC 6733 §6.1.9), and the route is checked (§2.9).
        if !origin.eq_ignore_ascii_case(&self.peers[p].identity) && avps.get(codes::ROUTE_RECORD).is_none() {
            self.counters.foreign_origin += 1;
            let what = "the Origin-Host of another node, without a Route-Record";
            return Err(Fault::new(ResultCode::AUTHORIZATION_REJECTED, what));
        }
        let local = &self.config.local;
        if avps.all(codes::ROUTE_RECORD).any(|a| a.data.eq_ignore_ascii_case(local.host.as_bytes())) {
            self.counters.loop_detected += 1;
            return Err(Fault::new(ResultCode::LOOP_DETECTED, "passed here before"));
        }
        let by = |a: &AvpView<'_>| self.config.agents.iter().any(|agent| names(agent, a.data));
        if !avps.all(codes::ROUTE_RECORD).all(|a| by(&a)) {
            self.counters.untrusted_route += 1;
            return Err(Fault::new(ResultCode::AUTHORIZATION_REJECTED, "by a route that is not trusted"));
        }
        let realm = avps.get(codes::DESTINATION_REALM);
        if let Some(a) = avps.get(codes::DESTINATION_HOST)
            && (realm.is_none() || !a.data.eq_ignore_ascii_case(local.host.as_bytes()))
        {
            self.counters.not_for_us += 1;
            return Err(Fault::new(
                ResultCode::UNABLE_TO_DELIVER,
                "for another host, or for a host without its realm",
            ));
        }
        if let Some(a) = realm {
            let mut served = core::iter::once(&local.realm).chain(&self.config.realms);
            if !served.any(|r| r == "*" || a.data.eq_ignore_ascii_case(r.as_bytes())) {
                self.counters.not_for_us += 1;
                return Err(Fault::new(ResultCode::REALM_NOT_SERVED, "for another realm"));
            }
        }
        Ok(())
    }

    /// Handles a request that was here before; true if it was.
    fn repeat(
        &mut self,
        via: Via,
        view: &MessageView<'_>,
        proxies: &AvpBuf,
        key: Option<&DuplicateKey>,
    ) -> bool {
        let h = view.header();
        let seen = key.and_then(|k| self.server.seen.get(k)).filter(|seen| seen.is(view));
        let Some(seen) = seen else { return false };
        self.counters.duplicate_request += 1;
        match &seen.state {
            State::UnderWay(token) => {
                // The answer goes where the request came from last.
                if let Some(inbound) = self.server.inbound.get_mut(token) {
                    (inbound.via, inbound.header) = (via, h);
                    inbound.proxies.clone_from(proxies);
                }
            }
            State::Answered(answer) => {
                let mut buf = self.outputs.buffer();
                buf.extend_from_slice(answer);
                buf.extend_from_slice(proxies.bytes());
                buf[12..16].copy_from_slice(&h.hop_by_hop.to_be_bytes());
                Header::finish(&mut buf, 0);
                self.send_on(via.conn, Some(Lane::Answer(via.stream)), buf);
                self.did(work::ANSWER);
            }
        }
        true
    }

    pub(super) fn answer(
        &mut self,
        token: u64,
        result: ResultCode,
        avps: &AvpBuf,
    ) -> Result<(), CommandError> {
        let inbound = self.server.inbound.get(&token).ok_or(CommandError::UnknownToken)?;
        let extra = inbound.session.bytes().len() + inbound.proxies.bytes().len() + 600;
        if HEADER_LEN + extra + avps.bytes().len() > MAX_LEN {
            return Err(CommandError::Invalid("the answer is longer than a message can be"));
        }
        let Some(inbound) = self.server.inbound.remove(&token) else {
            return Err(CommandError::UnknownToken);
        };
        let h = inbound.header;
        let result = if result == ResultCode::TOO_BUSY { busy(inbound.directed) } else { result };
        let mut buf = self.outputs.buffer();
        buf.reserve(extra + avps.bytes().len());
        h.answer(result).begin(&mut buf);
        buf.extend_from_slice(inbound.session.bytes());
        let mut body = AvpBuf::from_checked(buf);
        body.push_u32(codes::RESULT_CODE, result.0)
            .push_str(codes::ORIGIN_HOST, &self.config.local.host)
            .push_str(codes::ORIGIN_REALM, &self.config.local.realm);
        if matches!(h.command, command::AA | command::DIAMETER_EAP | command::ACCOUNTING) {
            body.push_u32(application_id(h.command), h.application);
        }
        body.extend(avps);
        let mut buf = body.into_bytes();
        if let Some(key) = &inbound.key {
            self.server.answered(key, token, &buf);
        }
        buf.extend_from_slice(inbound.proxies.bytes());
        Header::finish(&mut buf, 0);
        self.did(work::ANSWER);
        if self.conns.contains_key(&inbound.via.conn) {
            self.send_on(inbound.via.conn, Some(Lane::Answer(inbound.via.stream)), buf);
        } else {
            self.counters.answer_undeliverable += 1;
            self.outputs.recycle(buf);
        }
        Ok(())
    }
}

/// What of a request comes back in its answer, whatever that is: Session-Id, and Proxy-Info in its order (RFC 6733
/// §6.2).
pub(super) fn given_back(avps: Avps<'_>) -> [AvpBuf; 2] {
    let [mut session, mut proxies] = [AvpBuf::new(), AvpBuf::new()];
    for a in avps {
        if a.is(codes::SESSION_ID) && session.is_empty() {
            session.push_view(a);
        } else if a.is(codes::PROXY_INFO) {
            proxies.push_view(a);
        }
    }
    [session, proxies]
}

/// What a request hears that nobody has the time for (RFC 6733 §7.1.3): 3004 is only for one that names its server.
const fn busy(directed: bool) -> ResultCode {
    if directed { ResultCode::TOO_BUSY } else { ResultCode::UNABLE_TO_DELIVER }
}

/// Appends Failed-AVP and Error-Message.
pub(super) fn write_fault(out: &mut AvpBuf, fault: &Fault) {
    if let Some(avp) = &fault.avp {
        out.push_group(codes::FAILED_AVP, |g| {
            g.push_avp(avp);
        });
    }
    out.push_str(codes::ERROR_MESSAGE, fault.what);
}
