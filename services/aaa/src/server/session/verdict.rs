//! How a login comes to its end: what is still asked of the host, and what is said of it then.

use super::conversation::{Approval, Conversation, credential, is_anonymous};
use super::{Pending, Reject, Session, Stage, Step, TOO_MANY};
use crate::ledger::{Admission, AdmitRequest, text};
use crate::server::answer::Asker;
use crate::server::api::{CertificateVerdict, Job, Login, nas_address};
use crate::server::context::Context;
use crate::server::held::HeldReject;
use crate::server::reason::Reason;
use crate::server::trace;
use crate::users::{Method, User, canonical_name};
use crate::work::VERDICT;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{CommandError, Instant, Work};
use usher_crypto::Key;
use usher_eap::method::Fault;
use usher_eap::packet::Type;
use usher_radius::attribute::{Attributes, kind};

/// RFC 5580 §4.1.
const OPERATOR_NAME: u8 = 126;

/// That somebody is let in, and with which address.
#[derive(Debug)]
pub(in crate::server) struct Grant {
    approval: Box<Approval>,
    address: Option<IpAddr>,
    prefix: Option<(Ipv6Addr, u8)>,
}

/// What is said of a login whose user is let in.
#[derive(Debug)]
pub(in crate::server) struct Accepted {
    pub(in crate::server) asker: Asker,
    /// The EAP-Success.
    pub(in crate::server) eap: Option<[u8; 4]>,
    pub(in crate::server) msk: Option<Key<[u8; 64]>>,
    /// The EAP method.
    pub(in crate::server) method: Option<Type>,
    pub(in crate::server) reply: Attributes,
    /// For the host.
    pub(in crate::server) login: Box<Login>,
}

impl Session {
    /// A proof convinced: what else the host has to say comes next.
    pub(super) fn approve(&mut self, ctx: &mut Context, mut approval: Box<Approval>) -> Step {
        let by_certificate = ctx.config.certificate_status && approval.method == Method::EapTls;
        if !by_certificate || !is_anonymous(&self.name) {
            return self.check(ctx, approval);
        }
        // Nobody has been looked up yet: the certificate says whom to.
        let chain = self.conversation().map(|eap| eap.server.peer_certificates().to_vec());
        let (outer, chain) = (self.name.clone(), chain.unwrap_or_default());
        approval.conversation = self.take_conversation();
        self.stage = Stage::Naming(approval);
        self.assign(ctx, Job::NameUser { outer, chain })
    }

    /// The host has said which user the certificate names.
    pub(in crate::server) fn on_named(
        &mut self,
        ctx: &mut Context,
        name: Option<Vec<u8>>,
    ) -> Result<Step, CommandError> {
        let Stage::Naming(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        let Some(name) = name else { return Ok(approval.reject(Reason::CertificateName)) };
        let Some(mut approval) = self.take_approval() else { return Ok(Step::Wait) };
        self.audience.look_inside(ctx, &name);
        self.trace(ctx, || format!("by its certificate: user {}", trace::name(&name)));
        approval.inner = Some(name.clone());
        self.stage = Stage::Named(approval);
        Ok(match ctx.known(&name) {
            Some(user) => self.named(ctx, user),
            None => self.ask_host(ctx, name),
        })
    }

    /// The user whom the certificate names was looked up.
    pub(super) fn named(&mut self, ctx: &mut Context, user: Option<Arc<User>>) -> Step {
        let Some(approval) = self.take_approval() else { return Step::Wait };
        let name = approval.inner.as_deref().unwrap_or_default();
        let station = self.pending.as_ref().map(Pending::station).unwrap_or_default();
        let held = ctx.held_back.find(ctx.now, name, station).is_some();
        let elsewhere = ctx.is_elsewhere(name);
        let user = match self.holds(ctx, user) {
            _ if held => Err(TOO_MANY),
            _ if elsewhere => Err(Reason::NoRealm),
            Ok(user) if !user.may_use(Method::EapTls) => Err(Reason::MethodForbidden),
            user => user,
        };
        self.know(ctx, user);
        self.check(ctx, approval)
    }

    /// Asks the host about certificates where it wants to be asked.
    fn check(&mut self, ctx: &mut Context, mut approval: Box<Approval>) -> Step {
        let asks = ctx.config.certificate_status;
        let eap = approval.conversation.as_deref().or(self.conversation()).filter(|_| asks);
        let chain = eap.map(|eap| eap.server.peer_certificates().to_vec()).unwrap_or_default();
        let by_certificate = asks && approval.method == Method::EapTls;
        if chain.is_empty() && !by_certificate {
            return self.admit(ctx, approval);
        }
        let name = by_certificate.then(|| approval.inner.as_ref().unwrap_or(&self.name).clone());
        let resumed = approval.resumed;
        approval.conversation = approval.conversation.take().or_else(|| self.take_conversation());
        self.stage = Stage::Certificate(approval);
        self.assign(ctx, Job::CheckCertificate { owner: self.owner.clone(), name, chain, resumed })
    }

    /// The host has looked at the peer's certificate.
    pub(in crate::server) fn on_certificate(
        &mut self,
        ctx: &mut Context,
        verdict: CertificateVerdict,
    ) -> Result<Step, CommandError> {
        let Stage::Certificate(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        let reason = match verdict {
            CertificateVerdict::Good => {
                return Ok(self.take_approval().map_or(Step::Wait, |approval| self.admit(ctx, approval)));
            }
            CertificateVerdict::Status(fault) => Reason::Status(fault),
            CertificateVerdict::Distrusted(fault) => Reason::Distrusted(fault),
            CertificateVerdict::OtherName => Reason::CertificateName,
        };
        Ok(approval.reject(reason))
    }

    /// Asks the host about limits where there are some. Whoever may not log in gets no further, whatever was proven.
    fn admit(&mut self, ctx: &mut Context, mut approval: Box<Approval>) -> Step {
        if let Some(reason) = self.refusal {
            let step = approval.reject(reason);
            self.stage = Stage::Admission(approval);
            return step;
        }
        let limited = self.user.as_ref().is_some_and(|u| u.simultaneous.is_some() || u.pool.is_some());
        if !limited && !ctx.config.limits {
            return Step::Accept(Grant { approval, address: None, prefix: None });
        }
        // Nobody gives back what the ledger gives: who cannot be told of it is turned away before it is asked.
        if let Some(reject) = self.outgrows_packet(ctx, &approval) {
            self.stage = Stage::Admission(approval);
            return Step::Reject(reject);
        }
        let Some(pending) = &self.pending else { return Step::Wait };
        let request = self.admit_request(pending, approval.inner.as_deref());
        let step = Step::Admit(self.client(), pending.source.address(), request);
        approval.conversation = approval.conversation.take().or_else(|| self.take_conversation());
        self.stage = Stage::Admission(approval);
        step
    }

    fn admit_request(&self, pending: &Pending, inner: Option<&[u8]>) -> AdmitRequest {
        let request = &pending.request;
        let user = self.user.as_ref();
        let octets = |kind| request.get(kind).map(text);
        AdmitRequest {
            user: text(inner.unwrap_or(&self.name)),
            simultaneous: user.and_then(|u| u.simultaneous),
            pool: user.and_then(|u| u.pool.clone()),
            nas: nas_address(request).unwrap_or(pending.source.address()),
            port: octets(kind::NAS_PORT_ID)
                .or_else(|| request.get_u32(kind::NAS_PORT).map(|port| port.to_string()))
                .unwrap_or_default(),
            calling_station_id: octets(kind::CALLING_STATION_ID).unwrap_or_default(),
        }
    }

    /// The host has said whether limits allow it.
    pub(in crate::server) fn on_admitted(&mut self, admission: Admission) -> Result<Step, CommandError> {
        let Stage::Admission(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        Ok(match admission {
            Admission::Yes { address, prefix } => {
                let grant = |approval| Step::Accept(Grant { approval, address, prefix });
                self.take_approval().map_or(Step::Wait, grant)
            }
            Admission::No(refusal) => approval.reject(Reason::Limit(refusal)),
            Admission::Unavailable => Step::Undecided(Reason::StoreAway),
        })
    }

    fn take_conversation(&mut self) -> Option<Box<Conversation>> {
        match core::mem::replace(&mut self.stage, Stage::Identity { identifier: 0 }) {
            Stage::Eap(conversation) => Some(conversation),
            stage => {
                self.stage = stage;
                None
            }
        }
    }
    /// The approval that waits for the host.
    fn take_approval(&mut self) -> Option<Box<Approval>> {
        match core::mem::replace(&mut self.stage, Stage::Identity { identifier: 0 }) {
            Stage::Naming(approval)
            | Stage::Named(approval)
            | Stage::Certificate(approval)
            | Stage::Admission(approval) => Some(approval),
            _ => None,
        }
    }

    /// Tells the host at once that somebody is turned away who is being told so, by an alert of TLS or that the password
    /// is wrong: many a device does not come back to hear the end.
    pub(super) fn conclude(&mut self, ctx: &mut Context) {
        let (false, Some(eap), Some(pending)) = (self.ended, self.conversation(), &self.pending) else {
            return;
        };
        if !eap.server.refuses() && !matches!(eap.server.fault(), Some(Fault::Tls(_))) {
            return;
        }
        let (method, request) = (eap.method(), pending.request.clone());
        let (reason, detail) = eap.why_failed(self.user.as_deref(), &ctx.config);
        let (reason, detail) = self.because(reason, detail);
        self.trace_rejected(ctx, reason, detail.as_deref(), || {
            "the device is told, and has still to answer".into()
        });
        self.ended = true;
        ctx.tell_rejected(Login { method, ..self.login(reason, detail, request) });
    }

    fn trace_rejected(
        &self,
        ctx: &mut Context,
        reason: Reason,
        detail: Option<&str>,
        then: impl FnOnce() -> String,
    ) {
        self.audience.tell_end(ctx, reason, || {
            let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("rejected, {}: {reason}{detail}; {}", reason.name(), then())
        });
    }

    /// Lets its user in. `None`: nobody waits for that.
    ///
    /// # Errors
    /// What is to be said of it does not fit a packet: its user is to be turned away.
    pub(in crate::server) fn accept(
        mut self,
        ctx: &mut Context,
        grant: Grant,
    ) -> Result<Option<Accepted>, (Box<Self>, Reject)> {
        let Grant { approval, address, prefix } = grant;
        self.trace(ctx, || {
            let inner = approval.inner_method.map(|m| format!(" ({m})")).unwrap_or_default();
            format!("accepted by {}{inner}", approval.method.name())
        });
        let conversation = self.take_conversation();
        let (Some(pending), Some(user), None) = (self.pending.take(), self.user.take(), self.refusal) else {
            return Ok(None);
        };
        let who = approval.inner.as_deref().unwrap_or(&self.name);
        let mut reply = self.user_reply(ctx, &pending, &user, &approval);
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
        if let Some(detail) = too_long(&pending, &approval, reply.packet_octets()) {
            let reject = approval.reject_reply(detail);
            (self.pending, self.stage) = (Some(pending), Stage::Admission(approval));
            return Err((Box::new(self), reject));
        }
        ctx.counters.accepted(approval.method);
        ctx.outputs.work(Work { label: VERDICT, units: 1 });
        if let Some(mut conversation) = conversation.or(approval.conversation)
            && matches!(approval.method, Method::EapTls | Method::Peap | Method::Ttls)
        {
            conversation.server.remember(who, &credential(&ctx.shard.key, &user));
        }
        ctx.held_back.succeeded(who, pending.station());
        if self.audience.any() {
            let mut lines = alloc::vec!["Access-Accept".into()];
            lines.extend(ctx.tracers.attributes(&reply));
            self.audience.tell_lines(ctx, None, lines);
        }
        ctx.tracers.forget(self.audience.number());
        let login = Login {
            inner: approval.inner,
            method: Some(approval.method),
            inner_method: approval.inner_method,
            begun: self.begun,
            resumed: approval.resumed,
            ..Login::of(self.name, self.owner.client(), None, pending.request)
        };
        Ok(Some(Accepted {
            asker: pending.asker,
            eap: approval.eap,
            msk: approval.msk,
            method: approval.method.eap_type(),
            reply,
            login: Box::new(login),
        }))
    }

    /// What a user's rows and name put into the reply.
    fn user_reply(
        &self,
        ctx: &mut Context,
        pending: &Pending,
        user: &User,
        approval: &Approval,
    ) -> Attributes {
        let who = approval.inner.as_deref().unwrap_or(&self.name);
        let mut reply = core::mem::take(&mut ctx.list);
        if who != self.name {
            self.name_inner(ctx, who, &mut reply);
        }
        reply.extend(&user.reply);
        chargeable(ctx, &pending.request, who, &mut reply);
        // RFC 3579 §3: so that proxies that know nothing of EAP, and accounting, know whose session it is.
        if approval.eap.is_some()
            && let Asker::Radius(_) = pending.asker
            && reply.get(kind::USER_NAME).is_none()
            && !self.given.is_empty()
        {
            let fits = reply.push_bytes(kind::USER_NAME, &self.given);
            debug_assert!(fits.is_ok(), "it came in an attribute");
        }
        if approval.method == Method::Mab {
            // Who was seen but proved nothing is told no secret (RFC 5080 §2.1.1).
            reply.remove(kind::TUNNEL_PASSWORD);
        }
        reply
    }

    /// Whether the reply would not fit a packet with the most that the user's pool gives.
    fn outgrows_packet(&self, ctx: &mut Context, approval: &Approval) -> Option<Reject> {
        /// Framed-IPv6-Address and Framed-IPv6-Prefix.
        const LEASE: usize = 18 + 20;
        /// The name of the user in a tunnel, twice, and the Chargeable-User-Identity.
        const NAMES: usize = 3 * 255;
        let (pending, user) = (self.pending.as_ref()?, self.user.as_ref()?);
        let lease = if user.pool.is_some() { LEASE } else { 0 };
        let beside = approval.reply.packet_octets() + lease;
        too_long(pending, approval, user.reply.packet_octets() + NAMES + beside)?;
        let reply = self.user_reply(ctx, pending, user, approval);
        let detail = too_long(pending, approval, reply.packet_octets() + beside)?;
        Some(approval.reject_reply(detail))
    }

    /// Says who is inside a tunnel, in the name's own words or in those that only servers of our key can read. First of
    /// all Classes, for access servers that give back one alone.
    fn name_inner(&self, ctx: &mut Context, inner: &[u8], reply: &mut Attributes) {
        // An identity that is too long for an attribute is left out.
        if self.client().is_some_and(|client| ctx.config.inner_names.contains(&client)) {
            let _ = reply.push_bytes(kind::USER_NAME, inner);
        } else if let Some(key) = &ctx.config.identity_key {
            for class in key.classes(ctx.rng.array(), inner) {
                let _ = reply.push_bytes(kind::CLASS, &class);
            }
        }
    }

    /// Turns its user away: the reject and when it is due, and the login for the host, or where the host was told before
    /// what came. `None`: nobody waits for that.
    pub(in crate::server) fn reject(
        mut self,
        ctx: &mut Context,
        reject: Reject,
    ) -> Option<(Instant, HeldReject, Result<Login, Attributes>)> {
        let Reject { method, reason, detail, identifier } = reject;
        let delay = ctx.config.reject_delay;
        let (reason, detail) = self.because(reason, detail);
        let later = || format!("Access-Reject goes out {delay} after its request");
        if self.ended {
            self.trace(ctx, later);
        } else {
            self.trace_rejected(ctx, reason, detail.as_deref(), later);
        }
        ctx.tracers.forget(self.audience.number());
        let Pending { asker, arrived, request, .. } = self.pending.take()?;
        let reply = self.denial.map_or_else(Attributes::new, |denial| denial.reply(&mut ctx.rng));
        let login = if self.ended {
            Err(request)
        } else {
            Ok(Login { method, ..self.login(reason, detail, request) })
        };
        Some((arrived + delay, (asker, identifier, reply), login))
    }

    /// Comes to no verdict: who waits for one, and the login for the host.
    pub(in crate::server) fn undecided(
        mut self,
        ctx: &mut Context,
        reason: Reason,
    ) -> (Option<Asker>, Box<Login>) {
        ctx.counters.rejected(reason);
        ctx.outputs.work(Work { label: VERDICT, units: 1 });
        self.audience.tell_end(ctx, reason, || format!("no verdict, {}: {reason}", reason.name()));
        let (asker, request) = match self.pending.take() {
            Some(Pending { asker, request, .. }) => (Some(asker), request),
            None => {
                let mut request = core::mem::take(&mut ctx.list);
                // It came in an attribute.
                let _ = request.push_bytes(kind::CALLING_STATION_ID, &self.station);
                (None, request)
            }
        };
        (asker, Box::new(self.login(reason, None, request)))
    }

    /// Is forgotten; whoever waits gets no answer.
    pub(in crate::server) fn abandon(self, ctx: &mut Context) -> Option<Pending> {
        ctx.tracers.forget(self.audience.number());
        self.pending
    }

    /// What the host is told of it that ends without its user let in.
    fn login(&self, reason: Reason, detail: Option<String>, request: Attributes) -> Login {
        let login = Login {
            begun: self.begun,
            detail: detail.map(String::into_boxed_str),
            told: self.failed,
            ..Login::of(self.name.clone(), self.client(), Some(reason), request)
        };
        match &self.stage {
            Stage::Eap(c) => {
                let inner = c.server.identity().map(<[u8]>::to_vec);
                Login { method: c.method(), inner, inner_method: c.server.inner(), ..login }
            }
            &Stage::Verifying(method) => Login { method: Some(method), ..login },
            Stage::Naming(approval)
            | Stage::Named(approval)
            | Stage::Certificate(approval)
            | Stage::Admission(approval) => Login {
                method: Some(approval.method),
                inner: approval.inner.clone(),
                inner_method: approval.inner_method,
                resumed: approval.resumed,
                ..login
            },
            Stage::Identity { .. } | Stage::Looking(_) => login,
        }
    }

    /// Why it failed, of what its method says, and what is known of that besides.
    fn because(&self, reason: Reason, detail: Option<String>) -> (Reason, Option<String>) {
        let why = self.why(reason);
        let detail = detail.filter(|_| why == reason);
        (why, detail.or_else(|| self.row_of(why).map(ToString::to_string)))
    }
    /// Why it failed, of what its method says: where the user could not log in at all, that.
    pub(super) fn why(&self, reason: Reason) -> Reason {
        // Outside a tunnel the name may be anybody's: that nobody has it is no reason.
        let outside = self.conversation().is_some_and(|c| c.in_tunnel() && c.server.identity().is_none());
        match self.refusal {
            Some(refusal) if reason.of_proof() && !outside => refusal,
            _ => reason,
        }
    }
    /// The row of the user's that is a reason, and what of it.
    pub(super) fn row_of(&self, reason: Reason) -> Option<&str> {
        self.row.as_deref().filter(|_| matches!(reason, Reason::BadRows | Reason::Checks))
    }
}

impl Approval {
    /// Its user is turned away all the same.
    fn reject(&self, reason: Reason) -> Step {
        Step::reject(Some(self.method), reason, self.eap.map(|eap| eap[1]))
    }
    /// Its user is turned away since the reply does not fit a packet.
    fn reject_reply(&self, detail: String) -> Reject {
        let (method, identifier) = (Some(self.method), self.eap.map(|eap| eap[1]));
        Reject { method, reason: Reason::ReplyTooLong, detail: Some(detail), identifier }
    }
}

/// What of a reply does not fit a packet of RADIUS beside all that goes with it: Message-Authenticator, EAP-Success, MS-MPPE keys (RFC 2548
/// §2.4.2) and what proxies have put into the request.
fn too_long(pending: &Pending, approval: &Approval, octets: usize) -> Option<String> {
    const PACKET: usize = 4096;
    const ALWAYS: usize = 20 + 18;
    const EAP: usize = 2 + 4;
    const KEYS: usize = 2 * 58;
    let Asker::Radius(_) = pending.asker else { return None };
    // Mostly there is room for more than proxies can have put there, and nobody looks what that was.
    if octets + pending.request.packet_octets() <= PACKET - ALWAYS - EAP - KEYS {
        return None;
    }
    let proxies: usize = pending.request.get_all(kind::PROXY_STATE).map(|state| 2 + state.len()).sum();
    let eap = if approval.eap.is_some() { EAP } else { 0 };
    let keys = if approval.msk.is_some() { KEYS } else { 0 };
    let room = PACKET.saturating_sub(ALWAYS + proxies + eap + keys);
    (octets > room).then(|| format!("it has {octets} octets of attributes, and {room} have room"))
}

/// Answers who asks for a Chargeable-User-Identity (RFC 4372 §2.1), and nobody else.
fn chargeable(ctx: &Context, request: &Attributes, name: &[u8], reply: &mut Attributes) {
    let asked = request.get(kind::CHARGEABLE_USER_IDENTITY).is_some();
    if let Some(key) = ctx.config.identity_key.as_ref().filter(|_| asked)
        && reply.get(kind::CHARGEABLE_USER_IDENTITY).is_none()
    {
        let operator = request.get(OPERATOR_NAME).unwrap_or_default();
        let identity = key.chargeable(operator, &canonical_name(name));
        let fits = reply.push_bytes(kind::CHARGEABLE_USER_IDENTITY, &identity).is_ok();
        debug_assert!(fits, "32 octets fit every attribute");
    }
}
