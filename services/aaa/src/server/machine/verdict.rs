//! Verdicts, and how they reach whoever asked.

use super::AaaServer;
use super::proxied::{Begun, Ending};
use crate::ledger::{Admission, AdmitRequest, text};
use crate::server::answer::{self, Asker, Verdict};
use crate::server::api::{CertificateVerdict, Event, Job, Login, nas_address};
use crate::server::config::{Config, UserSource};
use crate::server::held::HeldReject;
use crate::server::reason::Reason;
use crate::server::session::{self, Approval, Ask, Owner, Pending, Session, Stage, Wait};
use crate::server::trace;
use crate::users::{Method, canonical_name};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{CommandError, Instant};
use usher_diameter::{Fault, ResultCode};
use usher_eap::method::{Fault as EapFault, Inner};
use usher_eap::packet::{self, Code, Packet, Type};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::server::ClientConfig;

/// RFC 5580 §4.1.
const OPERATOR_NAME: u8 = 126;

impl AaaServer {
    /// Sends the EAP request in `self.out`.
    pub(super) fn challenge(&mut self, now: Instant, token: u64) {
        let Some(pending) = self.sessions.get_mut(token).and_then(|s| s.pending.take()) else { return };
        let state = self.shard.state(token);
        self.counters.challenges += 1;
        let out_words = self.tracers.any().then(|| trace::eap(&self.out));
        if let Some(words) = out_words {
            self.trace(now, token, || format!("Access-Challenge: {words}"));
        }
        let out = core::mem::take(&mut self.out);
        self.answer(now, pending.asker, Verdict::Challenge { eap: &out, state });
        self.out = out;
        if let Some(session) = self.sessions.get_mut(token).filter(|session| session.station.is_empty())
            && let Some(station) = pending.request.get(kind::CALLING_STATION_ID)
        {
            session.station = station.into();
        }
        self.recycle(pending.request);
        self.weigh(now, token);
    }

    /// Passes over a packet that answers nothing. A Diameter client is told so, with the EAP request that is still to be
    /// answered (RFC 4072 §2.4), unless it sent an EAP request itself, which is a failure (§2.8.4). A RADIUS client hears
    /// nothing.
    pub(super) fn pass_over(&mut self, now: Instant, token: u64, pending: Pending, packet: &[u8]) {
        let of_a_peer = Packet::parse(packet).map_or(true, |p| p.code() != Code::Request);
        let state = self.shard.state(token);
        self.out.clear();
        match self.sessions.get(token).map(|s| &s.stage) {
            Some(Stage::Eap(conversation)) => {
                self.out.extend_from_slice(conversation.server.open_request().unwrap_or_default());
            }
            Some(&Stage::Identity { identifier }) => {
                packet::emit(&mut self.out, Code::Request, identifier, Type::IDENTITY, &[]);
            }
            _ => {}
        }
        if !matches!(pending.asker, Asker::Diameter(..)) || !of_a_peer || self.out.is_empty() {
            return self.drop_request(now, pending);
        }
        let out = core::mem::take(&mut self.out);
        self.answer(now, pending.asker, Verdict::Again { eap: &out, state });
        self.out = out;
        self.recycle(pending.request);
    }

    /// A proof convinced: what else the host has to say comes next.
    pub(super) fn approve(&mut self, now: Instant, token: u64, mut approval: Box<Approval>) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let chain = match &session.stage {
            Stage::Eap(eap) if self.config.certificate_status => eap.server.peer_certificates().to_vec(),
            _ => Vec::new(),
        };
        let by_certificate = self.config.certificate_status && approval.method == Method::EapTls;
        if chain.is_empty() && !by_certificate {
            return self.admit(now, token, approval);
        }
        let name = by_certificate.then(|| session.name.clone());
        let resumed = approval.resumed;
        approval.conversation = session.take_conversation();
        session.stage = Stage::Certificate(approval);
        let client = session.owner.client();
        self.assign(token, Job::CheckCertificate { client, name, chain, resumed });
    }

    pub(super) fn on_certificate(
        &mut self,
        now: Instant,
        token: u64,
        verdict: CertificateVerdict,
    ) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        let Stage::Certificate(approval) = &session.stage else { return Err(CommandError::UnknownToken) };
        let (method, identifier) = (approval.method, approval.eap.map(|e| e[1]));
        let reason = match verdict {
            CertificateVerdict::Good => {
                if let Some(approval) = take_approval(session) {
                    self.admit(now, token, approval);
                }
                return Ok(());
            }
            CertificateVerdict::Status(fault) => Reason::Status(fault),
            CertificateVerdict::Distrusted(fault) => Reason::Distrusted(fault),
            CertificateVerdict::OtherName => Reason::CertificateName,
        };
        self.reject(now, token, Some(method), reason, identifier);
        Ok(())
    }

    /// Asks the host about limits where there are some. Whoever may not log in gets no further, whatever was proven.
    fn admit(&mut self, now: Instant, token: u64, mut approval: Box<Approval>) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        if let Some(reason) = session.refusal {
            let (method, identifier) = (approval.method, approval.eap.map(|e| e[1]));
            session.stage = Stage::Admission(approval);
            return self.reject(now, token, Some(method), reason, identifier);
        }
        let limited = session.user.as_ref().is_some_and(|u| u.simultaneous.is_some() || u.pool.is_some());
        if !limited && !self.config.limits {
            return self.accept(now, token, *approval, None, None);
        }
        let Some(pending) = &session.pending else { return };
        let mut request = admit_request(session, pending, approval.inner.as_deref());
        let source = pending.source.address();
        let client = session.owner.client();
        if let Some(client) = client
            && !self.radius.as_ref().is_some_and(|server| server.speaks_for(client, source, request.nas))
        {
            request.nas = source;
        }
        approval.conversation = approval.conversation.take().or_else(|| session.take_conversation());
        session.stage = Stage::Admission(approval);
        self.assign(token, Job::Admit { client, request });
    }

    pub(super) fn on_admitted(
        &mut self,
        now: Instant,
        token: u64,
        admission: Admission,
    ) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        let Stage::Admission(approval) = &session.stage else { return Err(CommandError::UnknownToken) };
        let (method, identifier) = (approval.method, approval.eap.map(|e| e[1]));
        match admission {
            Admission::Yes { address, prefix } => {
                if let Some(approval) = take_approval(session) {
                    self.accept(now, token, *approval, address, prefix);
                }
            }
            Admission::No(refusal) => {
                self.reject(now, token, Some(method), Reason::Limit(refusal), identifier);
            }
            Admission::Unavailable => self.undecided(now, token, Reason::StoreAway),
        }
        Ok(())
    }

    /// Lets a session's user in.
    fn accept(
        &mut self,
        now: Instant,
        token: u64,
        approval: Approval,
        address: Option<IpAddr>,
        prefix: Option<(Ipv6Addr, u8)>,
    ) {
        self.trace(now, token, || {
            let inner = approval.inner_method.map(|m| format!(" ({m})")).unwrap_or_default();
            format!("accepted by {}{inner}", approval.method.name())
        });
        let (traced, maybe) = self.sessions.get(token).map_or((0, 0), |s| (s.traced, s.maybe));
        let Some(mut session) = self.sessions.remove(token) else { return };
        let conversation = session.take_conversation().or(approval.conversation);
        let Session { owner, begun, pending: Some(pending), name, user: Some(user), refusal: None, .. } =
            session
        else {
            return;
        };
        self.counters.accepted(approval.method);
        if let Some(mut conversation) = conversation
            && matches!(approval.method, Method::EapTls | Method::Peap | Method::Ttls)
        {
            let subject = approval.inner.as_ref().unwrap_or(&name);
            conversation.server.remember(subject, &session::credential(&self.shard.key, &user));
        }
        let station = pending.request.get(kind::CALLING_STATION_ID).unwrap_or_default();
        self.held_back.succeeded(approval.inner.as_deref().unwrap_or(&name), station);
        let mut reply = self.attributes();
        if let Some(inner) = approval.inner.as_ref().filter(|inner| **inner != name) {
            self.name_inner(&owner, inner, &mut reply);
        }
        reply.extend(&user.reply);
        self.chargeable(&pending.request, approval.inner.as_deref().unwrap_or(&name), &mut reply);
        // RFC 3579 §3: so that proxies that know nothing of EAP, and accounting, know whose session it is.
        if approval.eap.is_some()
            && let Asker::Radius(_) = pending.asker
            && reply.get(kind::USER_NAME).is_none()
            && let Some(given) = pending.request.get(kind::USER_NAME).filter(|given| !given.is_empty())
        {
            let fits = reply.push_bytes(kind::USER_NAME, given);
            debug_assert!(fits.is_ok(), "it came in an attribute");
        }
        if approval.method == Method::Mab {
            // Who was seen but proved nothing is told no secret (RFC 5080 §2.1.1).
            reply.remove(kind::TUNNEL_PASSWORD);
        }
        match address {
            Some(IpAddr::V4(address)) => {
                reply.push_ipv4(kind::FRAMED_IP_ADDRESS, address);
            }
            Some(IpAddr::V6(address)) => {
                reply.push_ipv6(kind::FRAMED_IPV6_ADDRESS, address);
            }
            None => {}
        }
        if let Some((prefix, length)) = prefix {
            let mut value = [0; 18];
            value[1] = length;
            value[2..].copy_from_slice(&prefix.octets());
            let fits = reply.push_bytes(kind::FRAMED_IPV6_PREFIX, &value);
            debug_assert!(fits.is_ok(), "18 octets fit every attribute");
        }
        reply.extend(&approval.reply);
        if traced | maybe != 0 {
            let mut lines = alloc::vec!["Access-Accept".into()];
            lines.extend(self.tracers.attributes(&reply));
            self.tell_lines(now, token, (traced, maybe), None, lines);
        }
        self.tracers.forget(token);
        let eap = approval.eap.as_ref().map(|e| &e[..]);
        self.answer(
            now,
            pending.asker,
            Verdict::Accept { eap, msk: approval.msk.as_ref(), method: approval.method.eap_type(), reply },
        );
        self.outputs.event(Event::Accepted(Box::new(Login {
            name,
            inner: approval.inner,
            method: Some(approval.method),
            inner_method: approval.inner_method,
            client: owner.client(),
            begun,
            reason: None,
            detail: None,
            resumed: approval.resumed,
            told: false,
            request: pending.request,
        })));
    }

    /// Says who is inside a tunnel, in the name's own words or in those that only servers of our key can read. First of
    /// all Classes, for access servers that give back one alone.
    fn name_inner(&mut self, owner: &Owner, inner: &[u8], reply: &mut Attributes) {
        // An identity that is too long for an attribute is left out.
        if owner.client().is_some_and(|client| self.config.inner_names.contains(&client)) {
            let _ = reply.push_bytes(kind::USER_NAME, inner);
        } else if let Some(key) = &self.config.identity_key
            && let Some(class) = key.class(self.rng.array(), inner)
        {
            let _ = reply.push_bytes(kind::CLASS, &class);
        }
    }

    /// Answers who asks for a Chargeable-User-Identity (RFC 4372 §2.1), and nobody else.
    fn chargeable(&self, request: &Attributes, name: &[u8], reply: &mut Attributes) {
        let asked = request.get(kind::CHARGEABLE_USER_IDENTITY).is_some();
        if let Some(key) = self.config.identity_key.as_ref().filter(|_| asked)
            && reply.get(kind::CHARGEABLE_USER_IDENTITY).is_none()
        {
            let operator = request.get(OPERATOR_NAME).unwrap_or_default();
            let fits = reply
                .push_bytes(kind::CHARGEABLE_USER_IDENTITY, &key.chargeable(operator, &canonical_name(name)))
                .is_ok();
            debug_assert!(fits, "32 octets fit every attribute");
        }
    }

    /// Turns a session's user away; `identifier` is that of the EAP response which this answers.
    pub(super) fn reject(
        &mut self,
        now: Instant,
        token: u64,
        method: Option<Method>,
        reason: Reason,
        identifier: Option<u8>,
    ) {
        self.reject_with(now, token, method, reason, None, identifier);
    }

    /// The same, with what is known of the reason besides.
    pub(super) fn reject_with(
        &mut self,
        now: Instant,
        token: u64,
        method: Option<Method>,
        reason: Reason,
        detail: Option<String>,
        identifier: Option<u8>,
    ) {
        let delay = self.config.reject_delay;
        let Some(session) = self.sessions.get(token) else { return };
        let (reason, detail) = session.because(reason, detail);
        if session.ended {
            self.trace(now, token, || format!("Access-Reject goes out {delay} after its request"));
        } else {
            self.trace_end(now, token, reason, || {
                let detail = detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
                let name = reason.name();
                format!(
                    "rejected, {name}: {reason}{detail}; Access-Reject goes out {delay} after its request"
                )
            });
        }
        self.tracers.forget(token);
        let Some(mut session) = self.sessions.remove(token) else { return };
        let Some(pending) = session.pending.take() else { return };
        let reply = session.denial.map_or_else(Attributes::new, |denial| denial.reply(&mut self.rng));
        self.send_reject_at(now, pending.arrived + delay, (pending.asker, identifier, reply));
        if session.ended {
            self.recycle(pending.request);
        } else {
            self.tell_rejected(now, rejected(&session, method, reason, detail, pending.request));
        }
    }

    /// Tells the host at once that somebody is turned away who is being told so, by an alert of TLS or that the password
    /// is wrong: many a device does not come back to hear the end.
    pub(super) fn conclude(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get(token).filter(|session| !session.ended) else { return };
        let (Stage::Eap(conversation), Some(pending)) = (&session.stage, &session.pending) else { return };
        let server = &conversation.server;
        if !server.refuses() && !matches!(server.fault(), Some(EapFault::Tls(_))) {
            return;
        }
        let (method, request) = (conversation.method(), pending.request.clone());
        let (reason, detail) = self.why_failed(session, conversation);
        let (reason, detail) = session.because(reason, detail);
        self.trace_end(now, token, reason, || {
            let detail = detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!(
                "rejected, {}: {reason}{detail}; the device is told, and has still to answer",
                reason.name()
            )
        });
        let Some(session) = self.sessions.get_mut(token) else { return };
        session.ended = true;
        let login = rejected(session, method, reason, detail, request);
        self.tell_rejected(now, login);
    }

    /// Tells the host that somebody is turned away.
    fn tell_rejected(&mut self, now: Instant, login: Login) {
        if let Some(reason) = login.reason {
            self.counters.rejected(reason);
        }
        if let Some((name, station)) = login.failed_as() {
            self.held_back.failed(now, name, station);
        }
        self.outputs.event(Event::Rejected(Box::new(login)));
    }

    /// Rejects a request whose login is not there, as late as that of one that is: a login that was refused, and whose
    /// reject waits for its time, is no more there, and is not to be told so by asking again. The host is not told of a
    /// login that is turned away: there is none, or its end was told.
    pub(super) fn reject_unknown(&mut self, now: Instant, ask: Ask, identifier: Option<u8>) {
        self.counters.rejected(Reason::UnknownSession);
        let (asker, due) = (ask.asker, ask.arrived + self.config.reject_delay);
        let begun = Begun { at: ask.arrived, asker: Some(asker), client: ask.owner.client() };
        self.ended_elsewhere(now, begun, Some(Ending::Undecided(Reason::UnknownSession)), ask.request);
        self.send_reject_at(now, due, (asker, identifier, Attributes::new()));
    }

    /// Rejects a request of a login whose end was told, as late as any.
    pub(super) fn reject_ended(&mut self, now: Instant, ask: Ask, identifier: Option<u8>) {
        let due = ask.arrived + self.config.reject_delay;
        self.recycle(ask.request);
        self.send_reject_at(now, due, (ask.asker, identifier, Attributes::new()));
    }

    fn send_reject_at(&mut self, now: Instant, due: Instant, reject: HeldReject) {
        if due <= now {
            self.send_reject(now, reject);
        } else {
            self.held.push(due, reject);
            self.release(now);
        }
    }

    fn send_reject(&mut self, now: Instant, (asker, identifier, reply): HeldReject) {
        let failure = identifier.map(session::failure);
        self.answer(now, asker, Verdict::Reject { eap: failure.as_ref().map(|f| &f[..]), reply });
    }

    /// Sends held rejects whose time has come, and those that have no room.
    pub(super) fn release(&mut self, now: Instant) {
        while let Some((reject, early)) = self.held.pop(now, self.config.max_held) {
            self.counters.unheld += u64::from(early);
            self.send_reject(now, reject);
        }
    }

    /// Turns somebody away who has no session, with this EAP packet where there is one to answer.
    pub(super) fn reject_at_once(&mut self, now: Instant, ask: Ask, reason: Reason, eap: Option<&[u8]>) {
        let (asker, begun) =
            (ask.asker, Begun { at: ask.arrived, asker: Some(ask.asker), client: ask.owner.client() });
        self.ended_elsewhere(now, begun, Some(Ending::Rejected(reason)), ask.request);
        self.answer(now, asker, Verdict::Reject { eap, reply: Attributes::new() });
    }

    /// Ends a session without a verdict; whoever waits for its answer is told that nobody can say.
    pub(super) fn undecided(&mut self, now: Instant, token: u64, reason: Reason) {
        let Some(session) = self.sessions.get(token) else { return };
        if session.ended {
            self.trace(now, token, || "the device did not answer any more".into());
            return self.abandon(now, token);
        }
        self.counters.rejected(reason);
        let Shown { method, inner, inner_method, resumed } = shown(session);
        self.trace_end(now, token, reason, || format!("no verdict, {}: {reason}", reason.name()));
        let Some(session) = self.sessions.remove(token) else { return };
        let request = match session.pending {
            Some(Pending { asker, request, .. }) => {
                match reason {
                    Reason::StoreAway | Reason::Busy => self.unavailable(now, asker),
                    _ => self.discard(now, asker),
                }
                request
            }
            None => {
                let mut request = self.attributes();
                // It came in an attribute.
                let _ = request.push_bytes(kind::CALLING_STATION_ID, &session.station);
                request
            }
        };
        let login = Login {
            inner,
            method,
            inner_method,
            begun: session.begun,
            resumed,
            told: session.failed,
            ..Login::of(session.name, session.owner.client(), Some(reason), request)
        };
        self.outputs.event(Event::Undecided(Box::new(login)));
    }

    pub(super) fn answer(&mut self, now: Instant, asker: Asker, verdict: Verdict<'_>) {
        match asker {
            Asker::Radius(token) => {
                let (code, attributes) = answer::radius(verdict, || self.attributes());
                self.respond(now, token, code, attributes);
            }
            Asker::Diameter(token, request_type) => {
                let round = self.config.full_answers.then_some(self.config.session_timeout);
                let (result, avps) =
                    answer::diameter(&verdict, request_type, round, self.config.dictionary.as_deref());
                self.answer_peer(now, token, result, avps);
            }
        }
    }

    pub(super) fn discard(&mut self, now: Instant, asker: Asker) {
        match asker {
            Asker::Radius(token) => self.stay_silent(now, token),
            // Diameter has no silence: a request that gets no verdict is told so.
            Asker::Diameter(token, _) => {
                self.refuse(now, token, Fault::new(ResultCode::UNABLE_TO_COMPLY, "no answer can be given"));
            }
        }
    }

    /// Leaves a request without a verdict because the store cannot be asked.
    pub(super) fn unavailable(&mut self, now: Instant, asker: Asker) {
        match asker {
            Asker::Radius(_) => self.discard(now, asker),
            Asker::Diameter(token, _) => {
                self.refuse(now, token, Fault::new(ResultCode::TOO_BUSY, "the store is not available"));
            }
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((token, since)) = self.sessions.oldest() {
            if since + self.config.session_timeout > now {
                break;
            }
            let reason = self.sessions.get(token).map_or(Reason::GaveUp, kept_waiting);
            self.undecided(now, token, reason);
        }
        self.expire_accounting(now);
    }

    /// An empty list, reused where there is one.
    pub(super) fn attributes(&mut self) -> Attributes {
        self.radius.as_mut().map(|server| server.attributes()).unwrap_or_default()
    }
    pub(super) fn recycle(&mut self, list: Attributes) {
        if let Some(server) = &mut self.radius {
            server.recycle(list);
        }
    }

    /// Goes on with another configuration. Which fronts there are, the Diameter node and the home servers stay as
    /// they were at start.
    pub(super) fn reload(&mut self, config: Config) -> Result<(), CommandError> {
        if let (Some(server), Some(radius)) = (&mut self.radius, &config.radius) {
            let contradiction = CommandError::Invalid("the RADIUS clients contradict each other");
            server.reload(radius.clone()).map_err(|_| contradiction)?;
            let before = self.config.radius.as_ref().map_or(&[][..], |r| &r.clients);
            let same = |a: &ClientConfig, b: &ClientConfig| {
                a.network == b.network && a.prefix == b.prefix && a.transport == b.transport
            };
            let numbers: Vec<u32> = before
                .iter()
                .map(|b| radius.clients.iter().position(|a| same(a, b)).map_or(u32::MAX, |i| i as u32))
                .collect();
            self.sessions.for_each(|session| {
                if let Owner::Radius(client) = &mut session.owner {
                    *client = numbers.get(*client as usize).copied().unwrap_or(u32::MAX);
                }
            });
        }
        if let UserSource::Host(cache) = config.users {
            self.cache.reconfigure(cache);
        }
        if let Some(shard) = &config.shard {
            self.shard = shard.clone();
        }
        self.config = config;
        self.stand_ins.reconfigure();
        Ok(())
    }
}

/// What a session shows of who logs in, and how.
#[derive(Default)]
struct Shown {
    method: Option<Method>,
    /// The identity within a tunnel.
    inner: Option<Vec<u8>>,
    inner_method: Option<Inner>,
    resumed: bool,
}

fn shown(session: &Session) -> Shown {
    match &session.stage {
        Stage::Eap(c) => Shown {
            method: c.method(),
            inner: c.server.identity().map(<[u8]>::to_vec),
            inner_method: c.server.inner(),
            resumed: false,
        },
        &Stage::Verifying(method) => Shown { method: Some(method), ..Shown::default() },
        Stage::Certificate(approval) | Stage::Admission(approval) => Shown {
            method: Some(approval.method),
            inner: approval.inner.clone(),
            inner_method: approval.inner_method,
            resumed: approval.resumed,
        },
        Stage::Identity { .. } | Stage::Looking(_) => Shown::default(),
    }
}

/// Why a session comes to no verdict in its time: whom it waits for. Who waits for an answer has done all that it could.
fn kept_waiting(session: &Session) -> Reason {
    if session.pending.is_none() {
        return Reason::GaveUp;
    }
    match &session.stage {
        Stage::Verifying(_) => Reason::Busy,
        // What the host asks it may say itself; that it said nothing is no word of a responder.
        Stage::Certificate(_) => Reason::Busy,
        Stage::Eap(c) => match &c.wait {
            Some(Wait::Password | Wait::Turn(_)) => Reason::Busy,
            Some(Wait::User(_)) => Reason::StoreAway,
            None => Reason::GaveUp,
        },
        Stage::Looking(_) | Stage::Admission(_) => Reason::StoreAway,
        Stage::Identity { .. } => Reason::GaveUp,
    }
}

/// The login of a session whose user is turned away.
fn rejected(
    session: &Session,
    method: Option<Method>,
    reason: Reason,
    detail: Option<String>,
    request: Attributes,
) -> Login {
    let Shown { inner, inner_method, resumed, .. } = shown(session);
    Login {
        inner,
        method,
        inner_method,
        begun: session.begun,
        detail: detail.map(String::into_boxed_str),
        resumed,
        told: session.failed,
        ..Login::of(session.name.clone(), session.owner.client(), Some(reason), request)
    }
}

/// The approval of a session that waits for the host.
fn take_approval(session: &mut Session) -> Option<Box<Approval>> {
    match core::mem::replace(&mut session.stage, Stage::Identity { identifier: 0 }) {
        Stage::Certificate(approval) | Stage::Admission(approval) => Some(approval),
        _ => None,
    }
}

fn admit_request(session: &Session, pending: &Pending, inner: Option<&[u8]>) -> AdmitRequest {
    let request = &pending.request;
    let user = session.user.as_ref();
    let octets = |kind| request.get(kind).map(text);
    AdmitRequest {
        user: text(inner.unwrap_or(&session.name)),
        simultaneous: user.and_then(|u| u.simultaneous),
        pool: user.and_then(|u| u.pool.clone()),
        nas: nas_address(request).unwrap_or(pending.source.address()),
        port: octets(kind::NAS_PORT_ID)
            .or_else(|| request.get_u32(kind::NAS_PORT).map(|port| port.to_string()))
            .unwrap_or_default(),
        calling_station_id: octets(kind::CALLING_STATION_ID).unwrap_or_default(),
    }
}
