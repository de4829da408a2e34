//! The server side: requests to the service, its answers, duplicates.

use super::config::names;
use super::links::{Lane, Via};
use super::requests::application_id;
use super::{CommandError, Event, Node, PeerId};
use crate::avp::{AvpBuf, AvpView, Avps};
use crate::codes::{self, application, command};
use crate::error::{Fault, ResultCode};
use crate::message::{HEADER_LEN, Header, MAX_LEN, MessageView};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_core::collections::{HashMap, HashState};

/// Origin-Host and end-to-end identifier: what makes two requests the same (RFC 6733 §3).
type DuplicateKey = (String, u32);

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

#[derive(Debug)]
enum Seen {
    /// With the service under this token.
    UnderWay(u64),
    /// Answered with this message.
    Answered(Vec<u8>),
}

/// Requests at the service, and answers kept for duplicates.
#[derive(Debug)]
pub(super) struct Server {
    inbound: HashMap<u64, Inbound>,
    next_token: u64,
    seen: HashMap<DuplicateKey, Seen>,
    /// Keys of `seen`, oldest first.
    order: VecDeque<DuplicateKey>,
}

impl Server {
    pub(super) fn new(state: HashState) -> Self {
        Self {
            inbound: HashMap::with_hasher(state.clone()),
            next_token: 0,
            seen: HashMap::with_hasher(state),
            order: VecDeque::new(),
        }
    }
    fn remember(&mut self, key: DuplicateKey, token: u64, limit: usize) {
        while self.order.len() >= limit {
            let Some(old) = self.order.pop_front() else { break };
            self.seen.remove(&old);
        }
        if self.seen.insert(key.clone(), Seen::UnderWay(token)).is_none() {
            self.order.push_back(key);
        }
    }
}

impl Node {
    pub(super) fn on_request(&mut self, p: u32, via: Via, view: &MessageView<'_>) {
        let h = view.header();
        let avps = view.avps();
        let [mut session, proxies] = given_back(avps);
        let directed = avps.get(codes::DESTINATION_HOST).is_some();
        self.did("diameter.request");
        if let Err(fault) = self.check_request(view) {
            session.extend(&proxies);
            return self.answer_fault(via, h, session.bytes(), &fault);
        }
        let key = (self.config.duplicates > 0)
            .then(|| avps.get(codes::ORIGIN_HOST).and_then(|a| a.identity().ok()))
            .flatten()
            .map(|host| (host.to_string(), h.end_to_end));
        if h.flags.is_retransmitted() && self.repeat(via, h, key.as_ref()) {
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
            self.server.remember(key.clone(), token, self.config.duplicates);
        }
        self.server.inbound.insert(token, Inbound { via, header: h, session, proxies, directed, key });
        self.events.push_back(Event::Request { token, peer: PeerId(p), message: view.to_owned() });
    }

    /// What the base protocol asks of any request (RFC 6733 §6.1).
    fn check_request(&mut self, view: &MessageView<'_>) -> Result<(), Fault> {
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
        check(
            &mut self.counters.malformed,
            avps.require(codes::ORIGIN_HOST).and_then(|a| a.identity()).map(|_| ()),
        )?;
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
    fn repeat(&mut self, via: Via, h: Header, key: Option<&DuplicateKey>) -> bool {
        let Some(seen) = key.and_then(|k| self.server.seen.get(k)) else { return false };
        self.counters.duplicate_request += 1;
        match seen {
            Seen::UnderWay(token) => {
                // The answer goes where the request came from last.
                if let Some(inbound) = self.server.inbound.get_mut(token) {
                    inbound.via = via;
                    inbound.header = h;
                }
            }
            Seen::Answered(answer) => {
                let mut buf = self.spare.pop().unwrap_or_default();
                buf.extend_from_slice(answer);
                buf[12..16].copy_from_slice(&h.hop_by_hop.to_be_bytes());
                self.send_on(via.conn, Some(Lane::Answer(via.stream)), buf);
                self.did("diameter.answer");
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
        let mut buf = self.buffer();
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
        body.extend(avps).extend(&inbound.proxies);
        let mut buf = body.into_bytes();
        Header::finish(&mut buf, 0);
        self.did("diameter.answer");
        if let Some(seen) = inbound.key.as_ref().and_then(|k| self.server.seen.get_mut(k)) {
            *seen = Seen::Answered(buf.clone());
        }
        if self.conns.contains_key(&inbound.via.conn) {
            self.send_on(inbound.via.conn, Some(Lane::Answer(inbound.via.stream)), buf);
        } else {
            self.counters.answer_undeliverable += 1;
            self.recycle(buf);
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
