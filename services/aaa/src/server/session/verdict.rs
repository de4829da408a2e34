//! The end of a login: the remaining jobs of the host, and the reply.

use super::conversation::{EapConversation, LoginApproval, credential_digest, is_anonymous};
use super::{LoginReject, LoginSession, LoginStage, LoginStep, PendingRequest, TOO_MANY};
use crate::ledger::{AdmissionVerdict, AdmitRequest, storable_text};
use crate::server::answer::RequestToken;
use crate::server::api::{AaaServerJob, CertificateVerdict, FinishedLogin, nas_address};
use crate::server::context::ServerContext;
use crate::server::delayed_reject::DelayedReject;
use crate::server::reason::RejectCause;
use crate::server::trace;
use crate::users::{AuthMethod, User, canonical_name};
use crate::work::VERDICT;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::{CommandError, Instant, WorkRecord};
use usher_crypto::SecretValue;
use usher_eap::method::ServerMethodFailure;
use usher_eap::packet::EapType;
use usher_radius::attribute::{AttributeList, kind};

/// RFC 5580 §4.1.
const OPERATOR_NAME: u8 = 126;

/// An accept, with the leased address.
#[derive(Debug)]
pub(in crate::server) struct LoginGrant {
    approval: Box<LoginApproval>,
    address: Option<IpAddr>,
    prefix: Option<(Ipv6Addr, u8)>,
}

/// The reply to an accepted login.
#[derive(Debug)]
pub(in crate::server) struct AcceptedLogin {
    pub(in crate::server) asker: RequestToken,
    /// The EAP-Success.
    pub(in crate::server) eap: Option<[u8; 4]>,
    pub(in crate::server) msk: Option<SecretValue<[u8; 64]>>,
    /// The EAP method.
    pub(in crate::server) method: Option<EapType>,
    pub(in crate::server) reply: AttributeList,
    /// The event for the host.
    pub(in crate::server) login: Box<FinishedLogin>,
}

impl LoginSession {
    /// Handles a right proof: starts the first of the host's remaining jobs.
    pub(super) fn handle_verified_proof(
        &mut self,
        ctx: &mut ServerContext,
        mut approval: Box<LoginApproval>,
    ) -> LoginStep {
        let by_certificate = ctx.config.certificate_status && approval.method == AuthMethod::EapTls;
        if !by_certificate || !is_anonymous(&self.name) {
            return self.check_certificate(ctx, approval);
        }
        // RFC 9190, 2.1.8, 2.2, 5.6: the outer name is anonymous, so the certificate names the user.
        let chain = self.conversation().map(|eap| eap.server.peer_certificates().to_vec());
        let (outer, chain) = (self.name.clone(), chain.unwrap_or_default());
        approval.conversation = self.take_conversation();
        self.stage = LoginStage::Naming(approval);
        self.assign_job(ctx, AaaServerJob::NameUser { outer, chain })
    }

    /// Handles the user name of a certificate.
    pub(in crate::server) fn handle_certificate_name(
        &mut self,
        ctx: &mut ServerContext,
        name: Option<Vec<u8>>,
    ) -> Result<LoginStep, CommandError> {
        let LoginStage::Naming(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        let Some(name) = name else { return Ok(approval.reject_after_proof(RejectCause::CertificateName)) };
        let Some(mut approval) = self.take_approval() else { return Ok(LoginStep::Wait) };
        self.audience.release_inner_name_traces(ctx, &name);
        self.trace_line(ctx, || format!("from the certificate: user {}", trace::quote_name(&name)));
        approval.inner = Some(name.clone());
        self.stage = LoginStage::Named(approval);
        Ok(match ctx.find_user_in_memory(&name) {
            Some(user) => self.handle_certificate_user(ctx, user),
            None => self.look_up_user(ctx, name),
        })
    }

    /// Handles the lookup of that user.
    pub(super) fn handle_certificate_user(
        &mut self,
        ctx: &mut ServerContext,
        user: Option<Arc<User>>,
    ) -> LoginStep {
        let Some(approval) = self.take_approval() else { return LoginStep::Wait };
        let name = approval.inner.as_deref().unwrap_or_default();
        let station = self.pending.as_ref().map(PendingRequest::station).unwrap_or_default();
        let held = ctx.lockout.find_lockout(ctx.now, name, station).is_some();
        let elsewhere = ctx.is_elsewhere(name);
        let user = match self.resolve_user(ctx, user) {
            _ if held => Err(TOO_MANY),
            _ if elsewhere => Err(RejectCause::NoRealm),
            Ok(user) if !user.may_use(AuthMethod::EapTls) => Err(RejectCause::MethodForbidden),
            user => user,
        };
        self.set_user(ctx, user);
        self.check_certificate(ctx, approval)
    }

    /// Has the host check the certificate, if configured.
    fn check_certificate(&mut self, ctx: &mut ServerContext, mut approval: Box<LoginApproval>) -> LoginStep {
        let asks = ctx.config.certificate_status;
        let eap = approval.conversation.as_deref().or(self.conversation()).filter(|_| asks);
        let chain = eap.map(|eap| eap.server.peer_certificates().to_vec()).unwrap_or_default();
        let by_certificate = asks && approval.method == AuthMethod::EapTls;
        if chain.is_empty() && !by_certificate {
            return self.check_limits(ctx, approval);
        }
        // RFC 5216, 5.3: the certificate must have this name.
        let name = by_certificate.then(|| approval.inner.as_ref().unwrap_or(&self.name).clone());
        let resumed = approval.resumed;
        approval.conversation = approval.conversation.take().or_else(|| self.take_conversation());
        self.stage = LoginStage::Certificate(approval);
        self.assign_job(
            ctx,
            AaaServerJob::CheckCertificate { owner: self.owner.clone(), name, chain, resumed },
        )
    }

    /// Handles the host's check of a certificate.
    pub(in crate::server) fn handle_certificate_verdict(
        &mut self,
        ctx: &mut ServerContext,
        verdict: CertificateVerdict,
    ) -> Result<LoginStep, CommandError> {
        let LoginStage::Certificate(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        let reason = match verdict {
            CertificateVerdict::Good => {
                return Ok(self
                    .take_approval()
                    .map_or(LoginStep::Wait, |approval| self.check_limits(ctx, approval)));
            }
            CertificateVerdict::Status(fault) => RejectCause::Status(fault),
            CertificateVerdict::Distrusted(fault) => RejectCause::Distrusted(fault),
            CertificateVerdict::NameMismatch => RejectCause::CertificateName,
        };
        Ok(approval.reject_after_proof(reason))
    }

    /// Has the host check the limits, if there are any. A user who may not log in is rejected whatever the proof.
    fn check_limits(&mut self, ctx: &mut ServerContext, mut approval: Box<LoginApproval>) -> LoginStep {
        if let Some(reason) = self.refusal {
            let step = approval.reject_after_proof(reason);
            self.stage = LoginStage::Admission(approval);
            return step;
        }
        let limited = self.user.as_ref().is_some_and(|u| u.simultaneous.is_some() || u.pool.is_some());
        if !limited && !ctx.config.limits {
            return LoginStep::Accept(LoginGrant { approval, address: None, prefix: None });
        }
        // A later reject would not return an address that the ledger has leased. So a login whose reply would be too
        // long is rejected first.
        if let Some(reject) = self.reject_oversized_reply(ctx, &approval) {
            self.stage = LoginStage::Admission(approval);
            return LoginStep::Reject(reject);
        }
        let Some(pending) = &self.pending else { return LoginStep::Wait };
        let request = self.admit_request(pending, approval.inner.as_deref());
        let step = LoginStep::Admit(self.client_index(), pending.source.address(), request);
        approval.conversation = approval.conversation.take().or_else(|| self.take_conversation());
        self.stage = LoginStage::Admission(approval);
        step
    }

    fn admit_request(&self, pending: &PendingRequest, inner: Option<&[u8]>) -> AdmitRequest {
        let request = &pending.request;
        let user = self.user.as_ref();
        let octets = |kind| request.get(kind).map(storable_text);
        AdmitRequest {
            user: storable_text(inner.unwrap_or(&self.name)),
            simultaneous: user.and_then(|u| u.simultaneous),
            pool: user.and_then(|u| u.pool.clone()),
            nas: nas_address(request).unwrap_or(pending.source.address()),
            port: octets(kind::NAS_PORT_ID)
                .or_else(|| request.get_u32(kind::NAS_PORT).map(|port| port.to_string()))
                .unwrap_or_default(),
            calling_station_id: octets(kind::CALLING_STATION_ID).unwrap_or_default(),
        }
    }

    /// Handles the host's check of the limits.
    pub(in crate::server) fn handle_admission_verdict(
        &mut self,
        admission: AdmissionVerdict,
    ) -> Result<LoginStep, CommandError> {
        let LoginStage::Admission(approval) = &self.stage else { return Err(CommandError::UnknownToken) };
        Ok(match admission {
            AdmissionVerdict::Yes { address, prefix } => {
                let grant = |approval| LoginStep::Accept(LoginGrant { approval, address, prefix });
                self.take_approval().map_or(LoginStep::Wait, grant)
            }
            AdmissionVerdict::No(refusal) => approval.reject_after_proof(RejectCause::Limit(refusal)),
            AdmissionVerdict::Unavailable => LoginStep::Undecided(RejectCause::StoreAway),
        })
    }

    fn take_conversation(&mut self) -> Option<Box<EapConversation>> {
        match core::mem::replace(&mut self.stage, LoginStage::Identity { identifier: 0 }) {
            LoginStage::Eap(conversation) => Some(conversation),
            stage => {
                self.stage = stage;
                None
            }
        }
    }
    /// Removes and returns the approval that waits for the host.
    fn take_approval(&mut self) -> Option<Box<LoginApproval>> {
        match core::mem::replace(&mut self.stage, LoginStage::Identity { identifier: 0 }) {
            LoginStage::Naming(approval)
            | LoginStage::Named(approval)
            | LoginStage::Certificate(approval)
            | LoginStage::Admission(approval) => Some(approval),
            _ => None,
        }
    }

    /// Reports a reject to the host while the peer is being notified, by a TLS alert or a password failure. Many
    /// devices do not wait for the end.
    pub(super) fn report_pending_reject(&mut self, ctx: &mut ServerContext) {
        let (false, Some(eap), Some(pending)) = (self.is_reject_reported, self.conversation(), &self.pending)
        else {
            return;
        };
        if !eap.server.is_refusing() && !matches!(eap.server.fault(), Some(ServerMethodFailure::Tls(_))) {
            return;
        }
        let (method, request) = (eap.method(), pending.request.clone());
        let (reason, detail) = eap.failure_cause_and_detail(self.user.as_deref(), &ctx.config);
        let (reason, detail) = self.effective_cause_and_detail(reason, detail);
        self.trace_rejected(ctx, reason, detail.as_deref(), || {
            "the device got the failure and must still answer".into()
        });
        self.is_reject_reported = true;
        ctx.record_and_report_reject(FinishedLogin {
            method,
            ..self.finished_login(reason, detail, request)
        });
    }

    fn trace_rejected(
        &self,
        ctx: &mut ServerContext,
        reason: RejectCause,
        detail: Option<&str>,
        then: impl FnOnce() -> String,
    ) {
        self.audience.trace_unaccepted_login_end(ctx, reason, || {
            let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("rejected, {}: {reason}{detail}; {}", reason.name(), then())
        });
    }

    /// Accepts the user. `None`: no request is pending.
    ///
    /// # Errors
    /// The reply does not fit a packet. The caller rejects the user.
    pub(in crate::server) fn accept_login(
        mut self,
        ctx: &mut ServerContext,
        grant: LoginGrant,
    ) -> Result<Option<AcceptedLogin>, (Box<Self>, LoginReject)> {
        let LoginGrant { approval, address, prefix } = grant;
        self.trace_line(ctx, || {
            let inner = approval.inner_method.map(|m| format!(" ({m})")).unwrap_or_default();
            format!("accepted by {}{inner}", approval.method.name())
        });
        let conversation = self.take_conversation();
        let (Some(pending), Some(user), None) = (self.pending.take(), self.user.take(), self.refusal) else {
            return Ok(None);
        };
        let who = approval.inner.as_deref().unwrap_or(&self.name);
        let mut reply = self.user_reply_attributes(ctx, &pending, &user, &approval);
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
            let reject = approval.reject_for_long_reply(detail);
            (self.pending, self.stage) = (Some(pending), LoginStage::Admission(approval));
            return Err((Box::new(self), reject));
        }
        ctx.counters.count_accepted(approval.method);
        ctx.outputs.push_work(WorkRecord { label: VERDICT, units: 1 });
        if let Some(mut conversation) = conversation.or(approval.conversation)
            && matches!(approval.method, AuthMethod::EapTls | AuthMethod::Peap | AuthMethod::Ttls)
        {
            // RFC 5281, 7.5; RFC 9190, 5.7: only an accepted login can be resumed.
            conversation.server.allow_resumption(who, &credential_digest(&ctx.shard.key, &user));
        }
        ctx.lockout.record_success(who, pending.station());
        if self.audience.has_traces() {
            let mut lines = alloc::vec!["Access-Accept".into()];
            lines.extend(ctx.tracers.describe_attributes(&reply));
            self.audience.trace_lines(ctx, None, lines);
        }
        ctx.tracers.drop_lines(self.audience.login_trace_number());
        let login = FinishedLogin {
            inner: approval.inner,
            method: Some(approval.method),
            inner_method: approval.inner_method,
            started_at: self.started_at,
            resumed: approval.resumed,
            ..FinishedLogin::without_method(self.name, self.owner.client_index(), None, pending.request)
        };
        Ok(Some(AcceptedLogin {
            asker: pending.asker,
            eap: approval.eap,
            msk: approval.msk,
            method: approval.method.eap_type(),
            reply,
            login: Box::new(login),
        }))
    }

    /// Returns the attributes of the user's rows and names.
    fn user_reply_attributes(
        &self,
        ctx: &mut ServerContext,
        pending: &PendingRequest,
        user: &User,
        approval: &LoginApproval,
    ) -> AttributeList {
        let who = approval.inner.as_deref().unwrap_or(&self.name);
        let mut reply = core::mem::take(&mut ctx.list);
        if who != self.name {
            self.push_inner_name(ctx, who, &mut reply);
        }
        reply.extend(&user.reply);
        add_chargeable_identity(ctx, &pending.request, who, &mut reply);
        // RFC 2869, 2.3.1; RFC 3579, 3: User-Name is added, so that proxies without EAP and accounting know the user.
        if approval.eap.is_some()
            && let RequestToken::Radius(_) = pending.asker
            && reply.get(kind::USER_NAME).is_none()
            && !self.request_user_name.is_empty()
        {
            let fits = reply.push_bytes(kind::USER_NAME, &self.request_user_name);
            debug_assert!(fits.is_ok(), "it came in an attribute");
        }
        if approval.method == AuthMethod::Mab {
            // A user without proof gets no secret (RFC 5080 §2.1.1).
            reply.remove(kind::TUNNEL_PASSWORD);
        }
        reply
    }

    /// Returns a reject if the reply with the largest possible lease would not fit a packet.
    fn reject_oversized_reply(
        &self,
        ctx: &mut ServerContext,
        approval: &LoginApproval,
    ) -> Option<LoginReject> {
        /// Framed-IPv6-Address and Framed-IPv6-Prefix.
        const LEASE: usize = 18 + 20;
        /// The inner name, twice, and the Chargeable-User-Identity.
        const NAMES: usize = 3 * 255;
        let (pending, user) = (self.pending.as_ref()?, self.user.as_ref()?);
        let lease = if user.pool.is_some() { LEASE } else { 0 };
        let beside = approval.reply.packet_octets() + lease;
        too_long(pending, approval, user.reply.packet_octets() + NAMES + beside)?;
        let reply = self.user_reply_attributes(ctx, pending, user, approval);
        let detail = too_long(pending, approval, reply.packet_octets() + beside)?;
        Some(approval.reject_for_long_reply(detail))
    }

    /// Adds the inner name as User-Name, or its aliases. They precede all other Classes, for access servers that
    /// return only the first.
    fn push_inner_name(&self, ctx: &mut ServerContext, inner: &[u8], reply: &mut AttributeList) {
        // An identity too long for one attribute is left out.
        if self.client_index().is_some_and(|client| ctx.config.inner_names.contains(&client)) {
            let _ = reply.push_bytes(kind::USER_NAME, inner);
        } else if let Some(key) = &ctx.config.identity_key {
            for class in key.classes_for_name(ctx.rng.random_array(), inner) {
                let _ = reply.push_bytes(kind::CLASS, &class);
            }
        }
    }

    /// Rejects the user: returns the reject, its due time, and the event unless the reject was reported before.
    /// `None`: no request is pending.
    pub(in crate::server) fn reject_login(
        mut self,
        ctx: &mut ServerContext,
        reject: LoginReject,
    ) -> Option<(Instant, DelayedReject, Result<FinishedLogin, AttributeList>)> {
        let LoginReject { method, reason, detail, identifier } = reject;
        let delay = ctx.config.reject_delay;
        let (reason, detail) = self.effective_cause_and_detail(reason, detail);
        let later = || format!("Access-Reject goes out {delay} after its request");
        if self.is_reject_reported {
            self.trace_line(ctx, later);
        } else {
            self.trace_rejected(ctx, reason, detail.as_deref(), later);
        }
        ctx.tracers.drop_lines(self.audience.login_trace_number());
        let PendingRequest { asker, arrived, request, .. } = self.pending.take()?;
        let reply = self.denial.map_or_else(AttributeList::new, |denial| denial.to_attributes(&mut ctx.rng));
        let login = if self.is_reject_reported {
            Err(request)
        } else {
            Ok(FinishedLogin { method, ..self.finished_login(reason, detail, request) })
        };
        Some((arrived + delay, (asker, identifier, reply), login))
    }

    /// Ends without a verdict. Returns the pending request, and the event for the host.
    pub(in crate::server) fn end_login_without_verdict(
        mut self,
        ctx: &mut ServerContext,
        reason: RejectCause,
    ) -> (Option<RequestToken>, Box<FinishedLogin>) {
        ctx.counters.count_rejected(reason);
        ctx.outputs.push_work(WorkRecord { label: VERDICT, units: 1 });
        self.audience
            .trace_unaccepted_login_end(ctx, reason, || format!("no verdict, {}: {reason}", reason.name()));
        let (asker, request) = match self.pending.take() {
            Some(PendingRequest { asker, request, .. }) => (Some(asker), request),
            None => {
                let mut request = core::mem::take(&mut ctx.list);
                // The value was in an attribute before, so it fits one.
                let _ = request.push_bytes(kind::CALLING_STATION_ID, &self.station);
                (None, request)
            }
        };
        (asker, Box::new(self.finished_login(reason, None, request)))
    }

    /// Drops the login. Returns the request that gets no reply.
    pub(in crate::server) fn abandon_login(self, ctx: &mut ServerContext) -> Option<PendingRequest> {
        ctx.tracers.drop_lines(self.audience.login_trace_number());
        self.pending
    }

    /// Returns the event of a login that is not accepted.
    fn finished_login(
        &self,
        reason: RejectCause,
        detail: Option<String>,
        request: AttributeList,
    ) -> FinishedLogin {
        let login = FinishedLogin {
            started_at: self.started_at,
            detail: detail.map(String::into_boxed_str),
            is_failure_reported: self.failed,
            ..FinishedLogin::without_method(self.name.clone(), self.client_index(), Some(reason), request)
        };
        match &self.stage {
            LoginStage::Eap(c) => {
                let inner = c.server.identity().map(<[u8]>::to_vec);
                FinishedLogin { method: c.method(), inner, inner_method: c.server.inner_method(), ..login }
            }
            &LoginStage::Verifying(method) => FinishedLogin { method: Some(method), ..login },
            LoginStage::Naming(approval)
            | LoginStage::Named(approval)
            | LoginStage::Certificate(approval)
            | LoginStage::Admission(approval) => FinishedLogin {
                method: Some(approval.method),
                inner: approval.inner.clone(),
                inner_method: approval.inner_method,
                resumed: approval.resumed,
                ..login
            },
            LoginStage::Identity { .. } | LoginStage::Looking(_) => login,
        }
    }

    /// Returns the cause and detail for a cause of the method.
    fn effective_cause_and_detail(
        &self,
        reason: RejectCause,
        detail: Option<String>,
    ) -> (RejectCause, Option<String>) {
        let why = self.effective_cause(reason);
        let detail = detail.filter(|_| why == reason);
        (why, detail.or_else(|| self.row_of(why).map(ToString::to_string)))
    }
    /// Returns the cause for a cause of the method. If the user may not log in at all, that is the cause.
    pub(super) fn effective_cause(&self, reason: RejectCause) -> RejectCause {
        // The outer name of a tunnel may be anyone's. So until the inner name is known, an unknown outer name is not
        // the cause.
        let outside =
            self.conversation().is_some_and(|c| c.uses_tunnel_method() && c.server.identity().is_none());
        match self.refusal {
            Some(refusal) if reason.concerns_proof_or_method() && !outside => refusal,
            _ => reason,
        }
    }
    /// Returns the user's row that is the cause.
    pub(super) fn row_of(&self, reason: RejectCause) -> Option<&str> {
        self.row.as_deref().filter(|_| matches!(reason, RejectCause::BadRows | RejectCause::Checks))
    }
}

impl LoginApproval {
    /// Rejects the user in spite of the right proof.
    fn reject_after_proof(&self, reason: RejectCause) -> LoginStep {
        LoginStep::reject_step(Some(self.method), reason, self.eap.map(|eap| eap[1]))
    }
    /// Rejects the user because the reply does not fit a packet.
    fn reject_for_long_reply(&self, detail: String) -> LoginReject {
        let (method, identifier) = (Some(self.method), self.eap.map(|eap| eap[1]));
        LoginReject { method, reason: RejectCause::ReplyTooLong, detail: Some(detail), identifier }
    }
}

/// Returns which part of a reply does not fit a RADIUS packet, together with Message-Authenticator, EAP-Success,
/// MS-MPPE keys (RFC 2548 §2.4.2) and the request's Proxy-States.
fn too_long(pending: &PendingRequest, approval: &LoginApproval, octets: usize) -> Option<String> {
    const PACKET: usize = 4096;
    const ALWAYS: usize = 20 + 18;
    const EAP: usize = 2 + 4;
    const KEYS: usize = 2 * 58;
    let RequestToken::Radius(_) = pending.asker else { return None };
    // The length of the whole request covers any Proxy-States. Usually there is room for it, so the Proxy-States need
    // not be counted.
    if octets + pending.request.packet_octets() <= PACKET - ALWAYS - EAP - KEYS {
        return None;
    }
    let proxies: usize = pending.request.get_all(kind::PROXY_STATE).map(|state| 2 + state.len()).sum();
    let eap = if approval.eap.is_some() { EAP } else { 0 };
    let keys = if approval.msk.is_some() { KEYS } else { 0 };
    let room = PACKET.saturating_sub(ALWAYS + proxies + eap + keys);
    (octets > room).then(|| format!("it has {octets} octets of attributes, but only {room} fit"))
}

/// Adds a Chargeable-User-Identity if the request has one (RFC 4372 §2.1).
fn add_chargeable_identity(
    ctx: &ServerContext,
    request: &AttributeList,
    name: &[u8],
    reply: &mut AttributeList,
) {
    let asked = request.get(kind::CHARGEABLE_USER_IDENTITY).is_some();
    if let Some(key) = ctx.config.identity_key.as_ref().filter(|_| asked)
        && reply.get(kind::CHARGEABLE_USER_IDENTITY).is_none()
    {
        let operator = request.get(OPERATOR_NAME).unwrap_or_default();
        let identity = key.chargeable_identity(operator, &canonical_name(name));
        let fits = reply.push_bytes(kind::CHARGEABLE_USER_IDENTITY, &identity).is_ok();
        debug_assert!(fits, "32 octets fit every attribute");
    }
}
