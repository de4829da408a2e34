//! A login without a verdict yet: a state machine. Its inputs are the peer's packets and job results, its outputs
//! are [`LoginStep`]s. It knows neither the protocol that carries it nor any other login.

mod conversation;
mod login_traces;
mod verdict;

use super::access_request::{LoginRequest, PendingRequest};
use super::answer::RequestToken;
use super::api::LoginOwner;
use super::api::{AaaServerEvent, AaaServerJob, UserLookupResult};
use super::cache::CacheGeneration;
use super::config::AaaServerConfig;
use super::context::ServerContext;
use super::half_open::SessionFairnessKey;
use super::lockout::LockoutScope;
use super::proof::{self, MsChapRejectAttributes, ProofVerdict, RequestCredentials};
use super::reason::RejectCause;
use super::trace::{self, LoginTraceSlots};
use crate::ledger::{AdmissionRefusal, AdmitRequest};
use crate::users::{AuthMethod, StoredPassword, User, canonical_name};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use conversation::{
    AwaitedMethodResult, ConversationProgress, EapConversation, LoginApproval, QueriedUser,
    admissible_method_offers, credential_digest, eap_mtu, is_anonymous, is_tunnel, method_refusal_cause,
    most_specific_cause, user_secret,
};
pub(super) use conversation::{FirstEapPacket, eap_failure, parse_first_eap_packet};
use core::net::IpAddr;
use login_traces::MatchingLoginTraces;
use usher_core::{CommandError, Instant, JobRequester, JobWaiter};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::legacy::nt_hash;
use usher_eap::method::{self, TlsSessionUser, UserQuery, UserQueryAnswer};
use usher_eap::packet::{self, EapCode, EapType};
use usher_eap::server::EapServer;
use usher_radius::attribute::kind;
pub(super) use verdict::{AcceptedLogin, LoginGrant};

/// Reject cause of a locked-out user.
const TOO_MANY: RejectCause = RejectCause::Limit(AdmissionRefusal::TooManyFailures);

/// Minimum octets that a half-open session counts. If only few may be open, the limit of octets would not apply.
const MAX_SHARE: usize = 64 << 10;

/// Octets of a session, its table entries and its request in the RADIUS server, without its stage.
const SESSION: usize = 1 << 10;

/// The stage of a login.
#[derive(Debug)]
enum LoginStage {
    /// The peer is to send its identity, under this identifier.
    Identity { identifier: u8 },
    /// The user is being looked up.
    Looking(RequestCredentials),
    /// The host compares a password, for this method.
    Verifying(AuthMethod),
    /// An EAP method is under way.
    Eap(Box<EapConversation>),
    /// The proof is right. The host finds the user that the certificate names.
    Naming(Box<LoginApproval>),
    /// The proof is right. The host looks that user up.
    Named(Box<LoginApproval>),
    /// The proof is right. The host checks the certificate.
    Certificate(Box<LoginApproval>),
    /// The host checks the limits.
    Admission(Box<LoginApproval>),
}

/// The next action for a login.
#[derive(Debug)]
#[must_use]
pub(super) enum LoginStep {
    /// Wait for the peer or the host.
    Wait,
    /// Send the written EAP request as the reply to this request.
    Challenge(PendingRequest),
    /// Send the written EAP request again: this request answers no pending one.
    Rechallenge(PendingRequest),
    /// Drop this request without a reply.
    Drop(PendingRequest),
    /// Queue: the packet requires expensive work.
    Deferred,
    /// Have the host check the limits, for this client's user and a request from this address.
    Admit(Option<u32>, IpAddr, AdmitRequest),
    /// Accept the user and end the login.
    Accept(LoginGrant),
    /// Reject the user and end the login.
    Reject(LoginReject),
    /// End the login without a verdict.
    Undecided(RejectCause),
}

/// A reject.
#[derive(Debug)]
pub(super) struct LoginReject {
    method: Option<AuthMethod>,
    reason: RejectCause,
    /// Further detail of the cause.
    detail: Option<String>,
    /// Identifier of the EAP response that the reject answers.
    identifier: Option<u8>,
}

impl LoginStep {
    const fn reject_step(method: Option<AuthMethod>, reason: RejectCause, identifier: Option<u8>) -> Self {
        Self::Reject(LoginReject { method, reason, detail: None, identifier })
    }
    /// True if the input advances the login. Other input does not reset the idle timeout.
    pub(super) const fn advances_login(&self) -> bool {
        !matches!(self, Self::Rechallenge(_) | Self::Drop(_) | Self::Deferred)
    }
}

/// A login without a verdict yet. See the [module](self).
#[derive(Debug)]
pub(super) struct LoginSession {
    owner: LoginOwner,
    started_at: Instant,
    pending: Option<PendingRequest>,
    name: Vec<u8>,
    /// User-Name of the first request. Each later request must have the same (RFC 3579 §2.1).
    request_user_name: Box<[u8]>,
    /// The user, or the stand-in of a user who may not log in.
    user: Option<Arc<User>>,
    /// Cause why the user may not log in, whatever the proof.
    refusal: Option<RejectCause>,
    /// The user's row that cannot be parsed or does not match, if that is the cause.
    row: Option<Box<str>>,
    /// MS-CHAP attributes of a reject.
    denial: Option<MsChapRejectAttributes>,
    /// True if its failure was counted.
    failed: bool,
    /// True if the reject was reported to the host while the peer is being notified.
    is_reject_reported: bool,
    /// Cache generation when its last lookup began.
    lookup_generation: CacheGeneration,
    /// True if the lookup found that the name cannot exist.
    is_unstorable: bool,
    /// Calling-Station-Id, once a request with one was answered and freed.
    station: Box<[u8]>,
    audience: MatchingLoginTraces,
    stage: LoginStage,
    /// Owner of its jobs.
    waiter: Option<JobWaiter>,
}

impl LoginSession {
    /// Creates a login whose peer is to send its identity, under this identifier.
    pub(super) fn with_pending_identity(ctx: &ServerContext, ask: LoginRequest, identifier: u8) -> Self {
        Self::new(ctx, ask, Vec::new(), LoginStage::Identity { identifier })
    }
    /// Creates a login of the named user, with a proof.
    pub(super) fn of_user(
        ctx: &ServerContext,
        ask: LoginRequest,
        name: Vec<u8>,
        proof: RequestCredentials,
    ) -> Self {
        let denial = proof.ms_chap_denial();
        Self { denial, ..Self::new(ctx, ask, name, LoginStage::Looking(proof)) }
    }
    fn new(ctx: &ServerContext, ask: LoginRequest, name: Vec<u8>, stage: LoginStage) -> Self {
        // A User-Name can change only between the requests of a login, and only EAP has several.
        let given = match &stage {
            LoginStage::Looking(RequestCredentials::Eap(_)) => ask.name().into(),
            _ => Box::default(),
        };
        Self {
            request_user_name: given,
            owner: ask.owner,
            started_at: ctx.now,
            pending: Some(ask.pending),
            name,
            user: None,
            refusal: None,
            row: None,
            denial: None,
            failed: false,
            is_reject_reported: false,
            lookup_generation: ctx.cache.generation(),
            is_unstorable: false,
            station: Box::default(),
            audience: MatchingLoginTraces::default(),
            stage,
            waiter: None,
        }
    }

    /// True if `owner` may continue the login.
    pub(super) fn is_of(&self, owner: &LoginOwner) -> bool {
        self.owner == *owner
    }
    /// Index of the RADIUS client; `None` over Diameter.
    pub(super) const fn client_index(&self) -> Option<u32> {
        self.owner.client_index()
    }
    /// Updates the index of the RADIUS client after a reload.
    pub(super) fn update_client_index(&mut self, number: impl FnOnce(u32) -> u32) {
        if let LoginOwner::Radius(client) = &mut self.owner {
            *client = number(*client);
        }
    }
    /// Returns the source of its pending request.
    pub(super) fn source(&self) -> Option<SessionFairnessKey> {
        self.pending.as_ref().map(|pending| pending.source)
    }
    /// True if the login has exceeded its total time.
    pub(super) fn exceeds_login_timeout(&self, ctx: &ServerContext) -> bool {
        ctx.now.duration_since(self.started_at) >= ctx.config.login_timeout
    }
    /// True if the host already knows its end.
    pub(super) const fn is_told(&self) -> bool {
        self.is_reject_reported
    }
    /// Returns the approximate octets that it counts: its memory, but at least its share of the limit.
    pub(super) fn session_octets_for_limit(&self, config: &AaaServerConfig) -> usize {
        let request = self.pending.as_ref().map_or(0, |pending| pending.request.len());
        let eap = self.conversation().map_or(0, |eap| eap.server.memory_octets());
        let share = config.max_half_open_octets / config.max_half_open.max(1);
        (SESSION + self.name.capacity() + request + eap).max(share.min(MAX_SHARE))
    }
    /// Writes a trace line, if the login is traced.
    pub(super) fn trace_line(&self, ctx: &mut ServerContext, text: impl FnOnce() -> String) {
        self.audience.trace_line(ctx, text);
    }
    /// Removes a trace that has ended.
    pub(super) const fn remove_traces(&mut self, traces: LoginTraceSlots) {
        self.audience.remove_traces(traces);
    }

    /// Returns the EAP conversation under way.
    fn conversation(&self) -> Option<&EapConversation> {
        if let LoginStage::Eap(conversation) = &self.stage { Some(conversation) } else { None }
    }
    fn conversation_mut(&mut self) -> Option<&mut EapConversation> {
        if let LoginStage::Eap(conversation) = &mut self.stage { Some(conversation) } else { None }
    }
    /// Returns the name that a proof is for. Inside a tunnel it is the inner name, empty until the peer has sent
    /// it.
    fn name_being_proven(&self) -> &[u8] {
        match self.conversation().filter(|eap| eap.uses_tunnel_method()) {
            Some(eap) => eap.server.identity().unwrap_or_default(),
            None => &self.name,
        }
    }
    /// Starts a job of the host.
    fn assign_job(&mut self, ctx: &mut ServerContext, what: AaaServerJob) -> LoginStep {
        let origin = JobRequester::default().with_waiter(self.waiter.get_or_insert_default());
        ctx.outputs.push_job(
            usher_core::JobRequest::new(self.audience.login_trace_number(), what).with_origin(origin),
        );
        LoginStep::Wait
    }
    /// Returns the lockout of its station or of the name that its proof is for.
    fn find_lockout(&self, ctx: &mut ServerContext) -> Option<LockoutScope> {
        if ctx.lockout.has_no_lockouts(ctx.now) {
            return None;
        }
        ctx.lockout.find_lockout(ctx.now, self.name_being_proven(), self.pending.as_ref()?.station())
    }

    /// Traces the contents of its pending request.
    fn trace_request(&mut self, ctx: &mut ServerContext) {
        let Some(pending) = self.pending.as_ref().filter(|_| ctx.tracers.is_active()) else { return };
        let (inside, hidden) = match &self.stage {
            LoginStage::Eap(conversation) => (conversation.server.identity(), true),
            LoginStage::Identity { .. } | LoginStage::Looking(RequestCredentials::Eap(_)) => (None, true),
            _ => (None, false),
        };
        self.audience.add_request_traces(ctx, &pending.request, inside, hidden);
        if self.audience.has_traces() {
            let mut lines = alloc::vec![match &self.owner {
                LoginOwner::Radius(_) => format!("Access-Request from {}", pending.source.address()),
                LoginOwner::Diameter(origin) => format!("Diameter request from {origin}"),
            }];
            lines.extend(ctx.tracers.describe_attributes(&pending.request));
            self.audience.trace_lines(ctx, self.owner.client_index(), lines);
        }
    }

    /// Starts the login under the token of its jobs.
    pub(super) fn start_login(&mut self, ctx: &mut ServerContext, token: u64) -> LoginStep {
        self.audience.set_login_token(token);
        self.trace_request(ctx);
        match self.stage {
            LoginStage::Identity { identifier } => {
                ctx.out.clear();
                packet::emit_packet(&mut ctx.out, EapCode::Request, identifier, EapType::IDENTITY, &[]);
                self.send_challenge(ctx)
            }
            LoginStage::Looking(RequestCredentials::Eap(identifier)) => self.handle_identity(ctx, identifier),
            _ => self.look_up(ctx),
        }
    }

    /// Continues the login with a request and its EAP packet.
    pub(super) fn on_request(
        &mut self,
        ctx: &mut ServerContext,
        pending: PendingRequest,
        packet: &[u8],
    ) -> LoginStep {
        if self.changes_user_name(&pending) {
            if self.pending.is_some() {
                // The earlier request of this login is answered first, so this one is dropped.
                ctx.counters.busy += 1;
                return LoginStep::Drop(pending);
            }
            self.pending = Some(pending);
            self.trace_request(ctx);
            let method = self.conversation().and_then(EapConversation::method);
            return LoginStep::reject_step(method, RejectCause::NameMismatch, packet.get(1).copied());
        }
        match &mut self.stage {
            LoginStage::Identity { identifier: asked } => match parse_first_eap_packet(packet) {
                FirstEapPacket::Identity(name, identifier) if identifier == *asked => {
                    self.name = name.to_vec();
                    self.request_user_name = pending.request.get(kind::USER_NAME).unwrap_or_default().into();
                    self.pending = Some(pending);
                    self.stage = LoginStage::Looking(RequestCredentials::Eap(identifier));
                    self.trace_request(ctx);
                    self.handle_identity(ctx, identifier)
                }
                _ => {
                    ctx.counters.bad_eap += 1;
                    self.pass_over(ctx, pending, packet)
                }
            },
            LoginStage::Eap(conversation) if conversation.wait.is_none() => {
                let costly = ctx.config.max_steps_waiting > 0 && conversation.server.is_costly(packet);
                if costly {
                    conversation.wait = Some(AwaitedMethodResult::ScheduledPacket(packet.to_vec()));
                }
                self.pending = Some(pending);
                self.trace_request(ctx);
                if costly { LoginStep::Deferred } else { self.handle_packet(ctx, packet) }
            }
            LoginStage::Eap(_) => {
                ctx.counters.busy += 1;
                self.pass_over(ctx, pending, packet)
            }
            LoginStage::Looking(_)
            | LoginStage::Verifying(_)
            | LoginStage::Naming(_)
            | LoginStage::Named(_)
            | LoginStage::Certificate(_)
            | LoginStage::Admission(_) => {
                ctx.counters.busy += 1;
                LoginStep::Drop(pending)
            }
        }
    }

    /// True if a request has another User-Name than the first. Its NAS would account the login to another user.
    fn changes_user_name(&self, pending: &PendingRequest) -> bool {
        let named = pending.request.get(kind::USER_NAME).filter(|name| !name.is_empty());
        let begun = !matches!(self.stage, LoginStage::Identity { .. }) && !self.request_user_name.is_empty();
        begun && named.is_some_and(|name| *name != *self.request_user_name)
    }

    /// Takes the queued packet.
    fn take_scheduled_packet(&mut self) -> Option<Vec<u8>> {
        let wait = &mut self.conversation_mut()?.wait;
        match wait.take() {
            Some(AwaitedMethodResult::ScheduledPacket(packet)) => Some(packet),
            other => {
                *wait = other;
                None
            }
        }
    }
    /// Does its queued step. `None`: no step was queued.
    pub(super) fn run_scheduled_step(&mut self, ctx: &mut ServerContext) -> Option<LoginStep> {
        self.take_scheduled_packet().map(|packet| self.handle_packet(ctx, &packet))
    }
    /// Handles the drop of its queued step.
    pub(super) fn handle_dropped_step(&mut self, ctx: &mut ServerContext) -> LoginStep {
        if self.take_scheduled_packet().is_none() {
            return LoginStep::Wait;
        }
        ctx.counters.steps_dropped += 1;
        self.trace_line(ctx, || "dropped: too many handshake steps are queued".into());
        self.pending.take().map_or(LoginStep::Wait, LoginStep::Drop)
    }

    /// Handles the result of a lookup.
    pub(super) fn handle_lookup_result(
        &mut self,
        ctx: &mut ServerContext,
        found: UserLookupResult,
    ) -> Result<LoginStep, CommandError> {
        let (name, inner) = match &self.stage {
            LoginStage::Looking(_) => (&self.name[..], None),
            LoginStage::Named(approval) => (approval.inner.as_deref().unwrap_or_default(), None),
            LoginStage::Eap(conversation) => match &conversation.wait {
                Some(AwaitedMethodResult::User(who)) => (who.name(), Some(who.clone())),
                _ => return Err(CommandError::UnknownToken),
            },
            _ => return Err(CommandError::UnknownToken),
        };
        let (user, fresh) = match found {
            UserLookupResult::User(user) => (Some(user), true),
            UserLookupResult::Cached(user) => (Some(user), false),
            UserLookupResult::NotFound => (None, true),
            // A name that the store cannot hold is not cached, because the number of such names is unlimited.
            UserLookupResult::Unstorable => (None, false),
            UserLookupResult::Unavailable => return Ok(LoginStep::Undecided(RejectCause::StoreAway)),
        };
        if fresh {
            ctx.cache.insert(ctx.now, self.lookup_generation, name, user.as_ref());
        }
        if let Some(user) = &user {
            ctx.stand_ins.record_user_kind(name, user);
        }
        self.is_unstorable = user.is_none() && !fresh;
        if user.is_some() && !fresh {
            ctx.counters.remembered += 1;
            self.trace_line(ctx, || "the store is not available: the user's earlier rows are used".into());
        }
        Ok(match inner {
            Some(who) => self.answer_user(ctx, &who, user),
            None if matches!(self.stage, LoginStage::Named(_)) => self.handle_certificate_user(ctx, user),
            None => self.handle_user(ctx, user),
        })
    }

    /// Handles the result of a password comparison.
    pub(super) fn handle_password_result(
        &mut self,
        ctx: &mut ServerContext,
        right: bool,
    ) -> Result<LoginStep, CommandError> {
        // Simultaneous attempts may begin before a lockout. Those whose result comes after it are rejected, even if the
        // password is right.
        let held = self.find_lockout(ctx).is_some();
        Ok(match &self.stage {
            &LoginStage::Verifying(method) if held => LoginStep::reject_step(Some(method), TOO_MANY, None),
            &LoginStage::Verifying(method) if right => {
                self.handle_verified_proof(ctx, Box::new(LoginApproval::new(method)))
            }
            &LoginStage::Verifying(method) => {
                LoginStep::reject_step(Some(method), RejectCause::WrongPassword, None)
            }
            LoginStage::Eap(conversation)
                if matches!(conversation.wait, Some(AwaitedMethodResult::Password)) =>
            {
                if held {
                    LoginStep::reject_step(conversation.method(), TOO_MANY, Some(conversation.identifier))
                } else {
                    self.answer_eap(ctx, UserQueryAnswer::Password(right))
                }
            }
            _ => return Err(CommandError::UnknownToken),
        })
    }

    /// Handles a job that the host could not do.
    pub(super) fn handle_failed_job(&self) -> Result<LoginStep, CommandError> {
        let waits = match &self.stage {
            LoginStage::Eap(conversation) => {
                matches!(
                    conversation.wait,
                    Some(AwaitedMethodResult::User(_) | AwaitedMethodResult::Password)
                )
            }
            LoginStage::Identity { .. } => false,
            _ => true,
        };
        if waits { Ok(LoginStep::Undecided(RejectCause::Busy)) } else { Err(CommandError::UnknownToken) }
    }

    /// Returns the reject cause of a login that idled for too long.
    pub(super) fn expiry_reject_cause(&self) -> RejectCause {
        // Without a pending request, the login waits for its peer. Otherwise the peer has answered and waits for the
        // server.
        if self.pending.is_none() {
            return RejectCause::GaveUp;
        }
        match &self.stage {
            // The host reports an OCSP failure itself, so its silence says nothing about the OCSP responder.
            LoginStage::Verifying(_) | LoginStage::Certificate(_) => RejectCause::Busy,
            LoginStage::Eap(c) => match &c.wait {
                Some(AwaitedMethodResult::Password | AwaitedMethodResult::ScheduledPacket(_)) => {
                    RejectCause::Busy
                }
                Some(AwaitedMethodResult::User(_)) => RejectCause::StoreAway,
                None => RejectCause::GaveUp,
            },
            LoginStage::Looking(_)
            | LoginStage::Naming(_)
            | LoginStage::Named(_)
            | LoginStage::Admission(_) => RejectCause::StoreAway,
            LoginStage::Identity { .. } => RejectCause::GaveUp,
        }
    }

    /// Sends the written EAP request.
    fn send_challenge(&mut self, ctx: &mut ServerContext) -> LoginStep {
        let Some(pending) = self.pending.take() else { return LoginStep::Wait };
        ctx.counters.challenges += 1;
        if ctx.tracers.is_active() {
            let words = trace::describe_eap(&ctx.out);
            self.trace_line(ctx, || format!("Access-Challenge: {words}"));
        }
        if self.station.is_empty() {
            self.station = pending.station().into();
        }
        LoginStep::Challenge(pending)
    }

    /// Ignores a packet that answers no pending request.
    ///
    /// A Diameter client gets the pending EAP request again (RFC 4072 §2.4), or a failure if it sent an EAP request
    /// itself (§2.8.4). A RADIUS client gets no reply.
    fn pass_over(&self, ctx: &mut ServerContext, pending: PendingRequest, packet: &[u8]) -> LoginStep {
        ctx.out.clear();
        match &self.stage {
            LoginStage::Eap(conversation) => {
                ctx.out.extend_from_slice(conversation.server.open_request().unwrap_or_default());
            }
            &LoginStage::Identity { identifier } => {
                packet::emit_packet(&mut ctx.out, EapCode::Request, identifier, EapType::IDENTITY, &[]);
            }
            _ => {}
        }
        let of_a_peer = !matches!(parse_first_eap_packet(packet), FirstEapPacket::Request(_));
        if matches!(pending.asker, RequestToken::Diameter(..)) && of_a_peer && !ctx.out.is_empty() {
            LoginStep::Rechallenge(pending)
        } else {
            LoginStep::Drop(pending)
        }
    }

    /// Ignores a packet that the EAP method discards. `packet` is given where it is known.
    fn ignore_packet(&mut self, ctx: &mut ServerContext, packet: &[u8]) -> LoginStep {
        ctx.counters.bad_eap += 1;
        self.trace_line(ctx, || "dropped: this packet answers no request".into());
        match self.pending.take() {
            Some(pending) => self.pass_over(ctx, pending, packet),
            None => LoginStep::Wait,
        }
    }

    /// Handles the response to the identity request of this identifier.
    fn handle_identity(&mut self, ctx: &mut ServerContext, identifier: u8) -> LoginStep {
        // RFC 3579, 2.1: User-Name equals the EAP identity. If the identity is empty, the NAS makes a name up (RFC
        // 5080 §2.9).
        let given = self.pending.as_ref().and_then(|pending| pending.request.get(kind::USER_NAME));
        if self.name.is_empty() || self.name == given.unwrap_or_default() {
            self.look_up(ctx)
        } else {
            LoginStep::reject_step(None, RejectCause::NameMismatch, Some(identifier))
        }
    }

    fn look_up(&mut self, ctx: &mut ServerContext) -> LoginStep {
        let hold = self.find_lockout(ctx);
        let LoginStage::Looking(proof) = &self.stage else { return LoginStep::Wait };
        if let Some(hold) = hold {
            let (method, identifier) = match proof {
                RequestCredentials::Eap(identifier) => (None, Some(*identifier)),
                proof => (proof.method(), None),
            };
            let may_be_another = method.is_none()
                && hold == LockoutScope::Name
                && ctx.config.methods.iter().any(|m| is_tunnel(*m));
            if !may_be_another {
                return LoginStep::reject_step(method, TOO_MANY, identifier);
            }
        }
        let name = if let RequestCredentials::Mab(address, _) = proof { &address[..] } else { &self.name };
        if let Some(user) = ctx.find_user_in_memory(name) {
            return self.handle_user(ctx, user);
        }
        let name = name.to_vec();
        self.trace_line(ctx, || format!("user {}: looked up in the store", trace::quote_name(&name)));
        self.look_up_user(ctx, name)
    }

    /// Has the host look up a user.
    fn look_up_user(&mut self, ctx: &mut ServerContext, name: Vec<u8>) -> LoginStep {
        self.lookup_generation = ctx.cache.generation();
        self.assign_job(ctx, AaaServerJob::Lookup { owner: self.owner.clone(), name })
    }

    /// Applies the user's policy to the pending request, or returns the reject cause.
    fn resolve_user(
        &mut self,
        ctx: &mut ServerContext,
        user: Option<Arc<User>>,
    ) -> Result<Arc<User>, RejectCause> {
        let unknown = if self.is_unstorable { RejectCause::UnstorableName } else { RejectCause::UnknownUser };
        let user = user.ok_or(unknown)?;
        if let Some(row) = &user.unreadable {
            self.row = Some(row.to_string().into());
            return Err(RejectCause::BadRows);
        }
        for row in &*user.left_out {
            self.trace_line(ctx, || format!("reply row left out, since it cannot be parsed: {row}"));
        }
        let request = self.pending.as_ref().map(|pending| &pending.request).ok_or(RejectCause::Checks)?;
        let user = match user.resolve_for_request(request) {
            Ok(user) => user,
            Err(unmet) => {
                self.row = Some(unmet.to_string().into());
                return Err(RejectCause::Checks);
            }
        };
        if user.rejected {
            return Err(RejectCause::Locked);
        }
        if user.expires.is_some_and(|end| end <= ctx.wall_time()) {
            return Err(RejectCause::Expired);
        }
        Ok(user)
    }

    /// Sets the user, or the stand-in of a user who may not log in.
    fn set_user(&mut self, ctx: &mut ServerContext, user: Result<Arc<User>, RejectCause>) -> Arc<User> {
        self.refusal = user.as_ref().err().copied();
        let user = user.unwrap_or_else(|reason| {
            self.trace_line(ctx, || {
                let row = self.row_of(reason).map(|row| format!(" ({row})")).unwrap_or_default();
                format!("the user may not log in: {reason}{row}; the login goes on as for a valid user")
            });
            ctx.stand_ins.stand_in_user(self.name_being_proven(), &ctx.config.users, ctx.config.mab)
        });
        self.user = Some(user.clone());
        user
    }

    /// Handles the user that a lookup found.
    fn handle_user(&mut self, ctx: &mut ServerContext, user: Option<Arc<User>>) -> LoginStep {
        let hold = self.find_lockout(ctx);
        let user = self.resolve_user(ctx, user);
        let user = self.set_user(ctx, user);
        let LoginStage::Looking(proof) = &mut self.stage else { return LoginStep::Wait };
        let proof = core::mem::replace(proof, RequestCredentials::Eap(0));
        if let RequestCredentials::Eap(identifier) = proof {
            return self.propose_methods(ctx, &user, hold, identifier);
        }
        let Some(method) = proof.method() else { return LoginStep::Wait };
        if hold.is_some() {
            return LoginStep::reject_step(Some(method), TOO_MANY, None);
        }
        let (proof, method) = match proof {
            // A user with a password must prove it, even if the name is a MAC address.
            RequestCredentials::Mab(_, Some(password)) if !user.may_use(method) => {
                (RequestCredentials::Pap(password), AuthMethod::Pap)
            }
            proof => (proof, method),
        };
        let offered = method == AuthMethod::Mab || ctx.config.methods.contains(&method);
        if !offered || !user.may_use(method) {
            // RFC 2865, 2.2; RFC 3579, 4.3.6: a method that is not possible for this user leads to a reject.
            let reason = if offered { method_refusal_cause(&user, method) } else { RejectCause::NoMethod };
            return LoginStep::reject_step(Some(method), reason, None);
        }
        match proof::verify_proof(proof, &user, &self.name) {
            ProofVerdict::Right(reply) => self
                .handle_verified_proof(ctx, Box::new(LoginApproval { reply, ..LoginApproval::new(method) })),
            ProofVerdict::Wrong => LoginStep::reject_step(Some(method), RejectCause::WrongPassword, None),
            ProofVerdict::HostComparison(hash, password) => {
                self.stage = LoginStage::Verifying(method);
                self.request_password_verification(ctx, self.name.clone(), hash, password)
            }
        }
    }

    /// Has the host compare a password with its hash.
    fn request_password_verification(
        &mut self,
        ctx: &mut ServerContext,
        name: Vec<u8>,
        hash: SecretValue<String>,
        password: SecretValue,
    ) -> LoginStep {
        self.trace_line(ctx, || "the password is compared with its hash".into());
        self.assign_job(ctx, AaaServerJob::Verify { owner: self.owner.clone(), name, hash, password })
    }

    /// Starts EAP with the methods that may accept this user, or a user known only inside a tunnel.
    fn propose_methods(
        &mut self,
        ctx: &mut ServerContext,
        user: &User,
        hold: Option<LockoutScope>,
        identifier: u8,
    ) -> LoginStep {
        if hold == Some(LockoutScope::Station) {
            return LoginStep::reject_step(None, TOO_MANY, Some(identifier));
        }
        let held = hold.is_some();
        let mut proposed = admissible_method_offers(&ctx.config, user, &self.name, held);
        if proposed.is_empty() && !held {
            // A user without an allowed method must look like any other user, so the methods of a stand-in are offered.
            let eap = ctx.config.methods.iter().filter(|method| method.eap_type().is_some());
            let reason = most_specific_cause(eap.map(|method| method_refusal_cause(user, *method)));
            let stand_in = self.set_user(ctx, Err(reason));
            proposed = admissible_method_offers(&ctx.config, &stand_in, &self.name, held);
        }
        if proposed.is_empty() {
            let reason = if held { TOO_MANY } else { RejectCause::NoMethod };
            return LoginStep::reject_step(None, reason, Some(identifier));
        }
        let wall = ctx.wall_time();
        let mtu = self.pending.as_ref().and_then(|p| eap_mtu(&p.request));
        let without_extended_master_secret = self
            .client_index()
            .is_some_and(|client| ctx.config.without_extended_master_secret.contains(&client));
        let context =
            method::EapMethodContext { rng: &mut ctx.rng, wall, mtu, without_extended_master_secret };
        let server = EapServer::new(proposed, identifier, context);
        self.stage = LoginStage::Eap(Box::new(EapConversation { server, wait: None, identifier }));
        self.advance_conversation(ctx)
    }

    /// Passes the peer's packet to the method.
    fn handle_packet(&mut self, ctx: &mut ServerContext, packet: &[u8]) -> LoginStep {
        self.trace_line(ctx, || trace::describe_eap(packet));
        let held = !self.failed && self.find_lockout(ctx).is_some();
        let Some(conversation) = self.conversation_mut() else { return LoginStep::Wait };
        conversation.identifier = packet.get(1).copied().unwrap_or_default();
        if held {
            return LoginStep::reject_step(conversation.method(), TOO_MANY, Some(conversation.identifier));
        }
        if conversation.server.handle_packet(packet) {
            self.advance_conversation(ctx)
        } else {
            self.ignore_packet(ctx, packet)
        }
    }

    /// Acts on the output of the method.
    fn advance_conversation(&mut self, ctx: &mut ServerContext) -> LoginStep {
        let LoginStage::Eap(conversation) = &mut self.stage else { return LoginStep::Wait };
        match conversation.poll_progress(&mut ctx.outputs, &mut ctx.out) {
            ConversationProgress::Request => {
                self.record_failed_attempt(ctx);
                self.report_pending_reject(ctx);
                self.send_challenge(ctx)
            }
            ConversationProgress::Success(approval) => self.handle_verified_proof(ctx, approval),
            ConversationProgress::Failure => {
                let (reason, detail) =
                    conversation.failure_cause_and_detail(self.user.as_deref(), &ctx.config);
                let (method, identifier) = (conversation.method(), Some(conversation.identifier));
                LoginStep::Reject(LoginReject { method, reason, detail, identifier })
            }
            ConversationProgress::UserQuery(UserQuery::User { name }) => {
                self.query_user(ctx, QueriedUser::Named(name))
            }
            ConversationProgress::UserQuery(UserQuery::Resume(remembered)) => {
                self.query_user(ctx, QueriedUser::Resumed(remembered))
            }
            ConversationProgress::UserQuery(UserQuery::Password { password }) => {
                self.check_password(ctx, password)
            }
            ConversationProgress::Ignored => self.ignore_packet(ctx, &[]),
        }
    }

    /// Counts a failed attempt as soon as the peer is notified: an attacker does not wait for the reject.
    fn record_failed_attempt(&mut self, ctx: &mut ServerContext) {
        if self.failed || !ctx.lockout.has_limit() {
            return;
        }
        let refuses = self.conversation().is_some_and(|eap| eap.server.is_refusing());
        if !refuses || !self.effective_cause(RejectCause::WrongPassword).counts() {
            return;
        }
        self.failed = true;
        let (client, name) = (self.client_index(), self.name_being_proven().to_vec());
        let station = self.pending.as_ref().map(PendingRequest::station).unwrap_or_default().to_vec();
        ctx.lockout.record_failure(ctx.now, &name, &station);
        ctx.outputs.push_event(AaaServerEvent::Failed { client, name, station });
    }

    /// Handles a method's query for a user.
    fn query_user(&mut self, ctx: &mut ServerContext, who: QueriedUser) -> LoginStep {
        self.audience.release_inner_name_traces(ctx, who.name());
        if self.find_lockout(ctx).is_some() {
            // The user or the station is locked out, so no lookup is needed.
            return self.answer_user(ctx, &who, None);
        }
        if ctx.is_elsewhere(who.name()) {
            return self.answer_user(ctx, &who, None);
        }
        if let Some(user) = ctx.find_user_in_memory(who.name()) {
            self.trace_line(ctx, || who.to_string());
            return self.answer_user(ctx, &who, user);
        }
        self.trace_line(ctx, || format!("{who}: looked up in the store"));
        let name = who.name().to_vec();
        if let Some(conversation) = self.conversation_mut() {
            conversation.wait = Some(AwaitedMethodResult::User(who));
        }
        self.look_up_user(ctx, name)
    }

    /// Passes the queried user to a method.
    fn answer_user(
        &mut self,
        ctx: &mut ServerContext,
        who: &QueriedUser,
        user: Option<Arc<User>>,
    ) -> LoginStep {
        let held = self.find_lockout(ctx).is_some();
        let tunnel = self.conversation().and_then(EapConversation::method);
        let may = |user: &User| {
            let proves = user.password.is_some() || matches!(who, QueriedUser::Resumed(_));
            tunnel.is_some_and(|tunnel| user.may_use(tunnel)) && proves
        };
        let elsewhere = ctx.is_elsewhere(who.name());
        let user = match self.resolve_user(ctx, user) {
            _ if held => Err(TOO_MANY),
            _ if elsewhere => Err(RejectCause::NoRealm),
            Ok(user) if !may(&user) => Err(match tunnel.filter(|tunnel| !user.may_use(*tunnel)) {
                Some(_) => RejectCause::MethodForbidden,
                None => RejectCause::NoPassword,
            }),
            user => user,
        };
        let user = match who {
            QueriedUser::Resumed(remembered) => {
                user.and_then(|user| self.check_tls_resumption(ctx, remembered, user))
            }
            QueriedUser::Named(_) => user,
        };
        let why = user.as_ref().err().copied();
        let user = self.set_user(ctx, user);
        let answer = match (who, user_secret(&user).filter(|_| !held), user.inner_methods()) {
            (QueriedUser::Resumed(_), ..) => match why {
                None => UserQueryAnswer::Resume(true),
                Some(RejectCause::StaleSession) => UserQueryAnswer::Resume(false),
                // The user may not log in now, but the TLS session stays valid for later.
                Some(_) => UserQueryAnswer::Unavailable,
            },
            (_, Some(secret), only) if why.is_some() => UserQueryAnswer::Refused(secret, only),
            (_, Some(secret), Some(only)) => UserQueryAnswer::Restricted(secret, only),
            (_, secret, _) => UserQueryAnswer::User(secret),
        };
        self.answer_eap(ctx, answer)
    }

    /// Checks whether a TLS session may be resumed. The user may still log in, has the same credentials, and the
    /// method is still allowed.
    fn check_tls_resumption(
        &self,
        ctx: &ServerContext,
        remembered: &TlsSessionUser,
        user: Arc<User>,
    ) -> Result<Arc<User>, RejectCause> {
        // RFC 5281, 7.5; RFC 9190, 5.7: a resumed session is authorized anew.
        let anonymous = is_anonymous(&self.name);
        let same = anonymous
            || remembered.inner.is_some()
            || canonical_name(&self.name) == canonical_name(&remembered.name);
        let may = match (remembered.inner, user.inner_methods()) {
            (Some(inner), Some(only)) => only.contains(&inner),
            _ => true,
        };
        let proof = constant_time_eq(&credential_digest(&ctx.shard.key, &user), &remembered.credential);
        if same && may && proof { Ok(user) } else { Err(RejectCause::StaleSession) }
    }

    /// Handles a method's query for a password check.
    fn check_password(&mut self, ctx: &mut ServerContext, password: SecretValue) -> LoginStep {
        let right = match self.user.as_ref().and_then(|u| u.password.as_ref()) {
            Some(StoredPassword::Argon2(hash)) => {
                let (name, hash) = (self.name_being_proven().to_vec(), hash.clone());
                if let Some(conversation) = self.conversation_mut() {
                    conversation.wait = Some(AwaitedMethodResult::Password);
                }
                return self.request_password_verification(ctx, name, hash, password);
            }
            Some(StoredPassword::Clear(clear)) => constant_time_eq(clear, &password),
            Some(StoredPassword::NtHash(hash)) => constant_time_eq(&**hash, &nt_hash(&password)),
            None => false,
        };
        self.answer_eap(ctx, UserQueryAnswer::Password(right))
    }

    /// Continues the method with the answer to its query.
    fn answer_eap(&mut self, ctx: &mut ServerContext, answer: UserQueryAnswer) -> LoginStep {
        let Some(conversation) = self.conversation_mut() else { return LoginStep::Wait };
        conversation.wait = None;
        if conversation.server.apply_answer(answer) {
            self.advance_conversation(ctx)
        } else {
            self.ignore_packet(ctx, &[])
        }
    }
}
