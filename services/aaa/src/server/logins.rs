//! Half-open logins: finds the login of a request, limits their number and carries out the [`LoginStep`] of each.
//!
//! Steps with public-key operations take about a millisecond. They wait in a queue that is fair between clients,
//! and each call of the host does one. Between two calls the host passes new input. So a cheap request waits for a
//! single step, not for the whole queue.

use super::access_request::{LoginOutcome, LoginRequest, PendingRequest};
use super::answer::{LoginVerdict, RequestToken};
use super::api::LoginOwner;
use super::api::{AaaServerEvent, AaaServerJob};
use super::context::ServerContext;
use super::delayed_reject::{DelayedReject, DelayedRejectQueue};
use super::fronts::ProtocolFrontends;
use super::half_open::{HalfOpen, SessionFairnessKey};
use super::proof::{BadProof, RequestCredentials};
use super::reason::RejectCause;
use super::session::{
    AcceptedLogin, FirstEapPacket, LoginReject, LoginSession, LoginStep, eap_failure, parse_first_eap_packet,
};
use crate::users::mac_bypass_address;
use alloc::vec::Vec;
use usher_core::fair::FairQueue;
use usher_core::timer::earliest_deadline;
use usher_core::{CommandError, Instant, SecureRng};
use usher_eap::packet::EapType;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::server::RadiusRequest;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct PendingLogins {
    sessions: HalfOpen<LoginSession>,
    /// Sessions with a queued step.
    turns: FairQueue<SessionFairnessKey, u64>,
    /// Delayed rejects of sessions that have ended.
    delayed_rejects: DelayedRejectQueue,
    /// The received EAP packet.
    packet: Vec<u8>,
}

impl PendingLogins {
    pub(super) fn new(rng: &mut SecureRng) -> Self {
        let sessions = HalfOpen::new(rng);
        Self {
            sessions,
            turns: FairQueue::new(),
            delayed_rejects: DelayedRejectQueue::default(),
            packet: Vec::new(),
        }
    }
    pub(super) const fn sessions(&self) -> &HalfOpen<LoginSession> {
        &self.sessions
    }
    /// Calls `each` for all sessions, in any order.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut LoginSession)) {
        self.sessions.for_each(each);
    }
    /// Number of queued steps.
    pub(super) fn steps_waiting(&self) -> usize {
        self.turns.len()
    }
    /// Number of delayed rejects.
    pub(super) fn delayed_reject_count(&self) -> usize {
        self.delayed_rejects.len()
    }
    /// Returns the time of the next timeout.
    pub(super) fn next_due(&self, ctx: &ServerContext) -> Option<Instant> {
        if !self.turns.is_empty() {
            return Some(Instant::ZERO);
        }
        let idle = self.sessions.oldest().map(|(_, since)| since + ctx.config.session_timeout);
        earliest_deadline([idle, self.delayed_rejects.next_due()])
    }

    /// Handles an Access-Request of a local user.
    pub(super) fn access_request(&mut self, fronts: &mut ProtocolFrontends, request: RadiusRequest) {
        let password = request.user_password();
        let mut packet = core::mem::take(&mut self.packet);
        packet.clear();
        let is_eap = request.attributes.read_eap_packet(&mut packet);
        let pending = PendingRequest {
            asker: RequestToken::Radius(request.token),
            source: SessionFairnessKey::Address(request.path.remote.ip()),
            arrived: fronts.ctx.now,
            request: request.attributes,
        };
        let ask = LoginRequest { owner: LoginOwner::Radius(request.client), pending };
        let list = &ask.pending.request;
        let of_passwords = [kind::USER_PASSWORD, kind::CHAP_PASSWORD];
        if is_eap && of_passwords.iter().any(|&k| list.get(k).is_some()) {
            let failure = packet.get(1).map(|&identifier| eap_failure(identifier));
            self.reject_immediately(fronts, ask, RejectCause::BadEap, failure.as_ref().map(|f| &f[..]));
        } else if is_eap {
            let token = list.get(kind::STATE).map(|state| fronts.ctx.shard.token_from_state(state));
            self.handle_eap(fronts, ask, token, &packet);
        } else {
            let proof = match password {
                // RFC 2865, 4.1; RFC 2869, 5.19; RFC 3579, 3.3: a request has at most one kind of proof.
                Ok(Some(_)) if list.get(kind::CHAP_PASSWORD).is_some() => Err(BadProof),
                Ok(Some(password)) => Ok(Some(RequestCredentials::Pap(password))),
                Ok(None) => RequestCredentials::from_attributes(list, &request.request_authenticator),
                Err(_) => Err(BadProof),
            };
            let bypass = if fronts.ctx.config.mab { mac_bypass_address(list) } else { None };
            let proof = match (proof, bypass) {
                (Ok(Some(RequestCredentials::Pap(password))), Some(address)) => {
                    Ok(RequestCredentials::Mab(address, Some(password)))
                }
                (Ok(None), Some(address)) => Ok(RequestCredentials::Mab(address, None)),
                (Ok(Some(proof)), _) => Ok(proof),
                // RFC 2865, 4.1; RFC 5080, 2.1.1: without proof, as for an authorization check, it is rejected.
                (Ok(None), None) => Err(RejectCause::NoProof),
                // RFC 2865, 5: an attribute of invalid length leads to a reject. Without a reply the NAS would take
                // the server for dead.
                (Err(_), _) => Err(RejectCause::BadProof),
            };
            self.handle_single_request_login(fronts, ask, proof);
        }
        self.packet = packet;
    }

    /// Handles a request with EAP. It starts a login, or continues the one that its State names.
    pub(super) fn handle_eap(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        token: Option<Option<u64>>,
        packet: &[u8],
    ) {
        match token {
            None => self.begin_eap(fronts, ask, packet),
            Some(token) => self.go_on(fronts, ask, token, packet),
        }
    }

    /// Starts a login that a single request decides, or rejects a request without proof.
    pub(super) fn handle_single_request_login(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        proof: Result<RequestCredentials, RejectCause>,
    ) {
        match proof {
            Ok(proof) => {
                let name = ask.name().to_vec();
                let session = LoginSession::of_user(&fronts.ctx, ask, name, proof);
                self.open_session(fronts, session);
            }
            Err(reason) => self.reject_immediately(fronts, ask, reason, None),
        }
    }

    /// Starts a conversation (RFC 3579 §2.1, §2.2, §2.6.2). If the first packet answers a request of the NAS, the
    /// server asks for the identity. Any other packet that is no identity is rejected.
    fn begin_eap(&mut self, fronts: &mut ProtocolFrontends, ask: LoginRequest, packet: &[u8]) {
        let session = match parse_first_eap_packet(packet) {
            // RFC 2869, 2.3.1; RFC 3579, 2.1: the server requests the identity.
            FirstEapPacket::Start => {
                let identifier = fronts.ctx.rng.next_u32() as u8;
                LoginSession::with_pending_identity(&fronts.ctx, ask, identifier)
            }
            FirstEapPacket::Identity(name, identifier) => {
                LoginSession::of_user(&fronts.ctx, ask, name.to_vec(), RequestCredentials::Eap(identifier))
            }
            // The NAS has already used this identifier, so the server's request takes the next one.
            FirstEapPacket::Response(answered) => {
                LoginSession::with_pending_identity(&fronts.ctx, ask, answered.wrapping_add(1))
            }
            // RFC 3579, 2.6.2: a Nak without a desired method, so that the peer does not ask again.
            FirstEapPacket::Request(identifier) => {
                let nak = [2, identifier, 0, 6, EapType::NAK.0, 0];
                return self.reject_immediately(fronts, ask, RejectCause::BadEap, Some(&nak));
            }
            // RFC 2869, 5.13; RFC 3579, 2.2: an unknown EAP-Message is rejected, with EAP-Failure.
            FirstEapPacket::Noise(identifier) => {
                let failure = identifier.map(eap_failure);
                let eap = failure.as_ref().map(|f| &f[..]);
                return self.reject_immediately(fronts, ask, RejectCause::BadEap, eap);
            }
        };
        self.open_session(fronts, session);
    }

    /// Starts a login, and evicts another one if there is no room.
    fn open_session(&mut self, fronts: &mut ProtocolFrontends, session: LoginSession) {
        self.evict_excess_sessions(fronts, fronts.ctx.config.max_half_open.max(1));
        fronts.ctx.counters.sessions += 1;
        let Some(source) = session.source() else { return };
        let token = self.sessions.insert(
            fronts.ctx.now,
            source,
            session.session_octets_for_limit(&fronts.ctx.config),
            session,
        );
        if let Some(session) = self.sessions.get_mut(token) {
            let step = session.start_login(&mut fronts.ctx, token);
            self.carry_out(fronts, token, step);
        }
    }

    /// Continues a session with a request. `token` comes from its State.
    fn go_on(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        token: Option<u64>,
        packet: &[u8],
    ) {
        let session = token.and_then(|token| Some((token, self.sessions.get_mut(token)?)));
        // RFC 3579, 2.6.1; RFC 4072, 2.8.5: the State and its owner find the login, not the EAP identifier.
        let Some((token, session)) = session.filter(|(_, session)| session.is_of(&ask.owner)) else {
            return self.reject_unknown_session(fronts, ask, packet.get(1).copied());
        };
        if !session.exceeds_login_timeout(&fronts.ctx) {
            let step = session.on_request(&mut fronts.ctx, ask.pending, packet);
            return self.apply_peer_step(fronts, token, step);
        }
        self.carry_out(fronts, token, LoginStep::Undecided(RejectCause::TooSlow));
        // The end of the login was reported above. Its reject is delayed like any other.
        let PendingRequest { asker, arrived, request, .. } = ask.pending;
        fronts.recycle_attributes(request);
        let reject = (asker, packet.get(1).copied(), AttributeList::new());
        self.schedule_reject(fronts, arrived + fronts.ctx.config.reject_delay, reject);
    }

    /// Passes a job result to a session.
    ///
    /// # Errors
    /// The session has ended, or has no such job.
    pub(super) fn apply_job_result(
        &mut self,
        fronts: &mut ProtocolFrontends,
        token: u64,
        answer: impl FnOnce(&mut LoginSession, &mut ServerContext) -> Result<LoginStep, CommandError>,
    ) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        let step = answer(session, &mut fronts.ctx)?;
        self.carry_out(fronts, token, step);
        Ok(())
    }

    /// Does the next queued step.
    pub(super) fn run_next_queued_step(&mut self, fronts: &mut ProtocolFrontends) {
        while let Some((_, token)) = self.turns.pop() {
            // The session may have been evicted or have timed out since the step was queued.
            if let Some(step) =
                self.sessions.get_mut(token).and_then(|session| session.run_scheduled_step(&mut fronts.ctx))
            {
                return self.apply_peer_step(fronts, token, step);
            }
        }
    }

    /// Queues a step. If the queue is full, a session loses its step.
    fn put_off(&mut self, fronts: &mut ProtocolFrontends, token: u64) {
        let Some(source) = self.sessions.get(token).and_then(LoginSession::source) else { return };
        let displaced = self.turns.push(source, token, fronts.ctx.config.max_steps_waiting);
        if let Some((_, token)) = displaced
            && let Some(session) = self.sessions.get_mut(token)
        {
            let step = session.handle_dropped_step(&mut fronts.ctx);
            self.carry_out(fronts, token, step);
        }
    }

    /// Ends sessions that idle for too long.
    pub(super) fn expire_sessions(&mut self, fronts: &mut ProtocolFrontends) {
        while let Some((token, since)) = self.sessions.oldest() {
            if since + fronts.ctx.config.session_timeout > fronts.ctx.now {
                break;
            }
            let reason =
                self.sessions.get(token).map_or(RejectCause::GaveUp, LoginSession::expiry_reject_cause);
            self.carry_out(fronts, token, LoginStep::Undecided(reason));
        }
    }

    /// Carries out the step after a peer's packet. A packet without progress does not reset the idle timeout.
    fn apply_peer_step(&mut self, fronts: &mut ProtocolFrontends, token: u64, step: LoginStep) {
        if step.advances_login() {
            self.sessions.touch(fronts.ctx.now, token);
        }
        self.carry_out(fronts, token, step);
    }

    /// Carries out a step.
    fn carry_out(&mut self, fronts: &mut ProtocolFrontends, token: u64, step: LoginStep) {
        match step {
            LoginStep::Wait => {}
            LoginStep::Challenge(pending) => {
                let (eap, state) =
                    (core::mem::take(&mut fronts.ctx.out), fronts.ctx.shard.state_for_token(token));
                fronts.answer_request(pending.asker, LoginVerdict::Challenge { eap: &eap, state });
                fronts.ctx.out = eap;
                fronts.recycle_attributes(pending.request);
                self.update_octets_and_evict(fronts, token);
            }
            LoginStep::Rechallenge(pending) => {
                let (eap, state) =
                    (core::mem::take(&mut fronts.ctx.out), fronts.ctx.shard.state_for_token(token));
                fronts.answer_request(pending.asker, LoginVerdict::Rechallenge { eap: &eap, state });
                fronts.ctx.out = eap;
                fronts.recycle_attributes(pending.request);
            }
            LoginStep::Drop(pending) => fronts.discard_pending_request(pending),
            LoginStep::Deferred => self.put_off(fronts, token),
            LoginStep::Admit(client, source, mut request) => {
                if !fronts.speaks_for(client, source, request.nas) {
                    request.nas = source;
                }
                fronts.ctx.assign_job(token, AaaServerJob::Admit { client, request });
            }
            LoginStep::Accept(grant) => {
                let Some(session) = self.sessions.remove(token) else { return };
                let accepted = match session.accept_login(&mut fronts.ctx, grant) {
                    Ok(Some(accepted)) => accepted,
                    Ok(None) => return,
                    Err((session, reject)) => return self.reject_login(fronts, *session, reject),
                };
                let AcceptedLogin { asker, eap, msk, method, reply, login } = accepted;
                let eap = eap.as_ref().map(|e| &e[..]);
                fronts.answer_request(asker, LoginVerdict::Accept { eap, msk: msk.as_ref(), method, reply });
                fronts.ctx.list = fronts.take_attributes();
                fronts.ctx.outputs.push_event(AaaServerEvent::Accepted(login));
            }
            LoginStep::Reject(reject) => {
                let Some(session) = self.sessions.remove(token) else { return };
                self.reject_login(fronts, session, reject);
            }
            LoginStep::Undecided(reason) => {
                let Some(session) = self.sessions.remove(token) else { return };
                if session.is_told() {
                    session.trace_line(&mut fronts.ctx, || "the device stopped answering".into());
                    return abandon_session(fronts, session);
                }
                let (asker, login) = session.end_login_without_verdict(&mut fronts.ctx, reason);
                match (asker, reason) {
                    (Some(asker), RejectCause::StoreAway | RejectCause::Busy) => {
                        fronts.answer_unavailable(asker)
                    }
                    (Some(asker), _) => fronts.end_request_without_verdict(asker),
                    (None, _) => fronts.ctx.list = fronts.take_attributes(),
                }
                fronts.ctx.outputs.push_event(AaaServerEvent::Undecided(login));
            }
        }
    }

    /// Ends a login with a reject.
    fn reject_login(&mut self, fronts: &mut ProtocolFrontends, session: LoginSession, reject: LoginReject) {
        let Some((due, reject, login)) = session.reject_login(&mut fronts.ctx, reject) else { return };
        self.schedule_reject(fronts, due, reject);
        match login {
            Ok(login) => fronts.ctx.record_and_report_reject(login),
            Err(request) => fronts.recycle_attributes(request),
        }
    }

    /// Updates the octets that a session counts.
    fn update_octets_and_evict(&mut self, fronts: &mut ProtocolFrontends, token: u64) {
        let Some(session) = self.sessions.get(token) else { return };
        self.sessions.set_session_octets(token, session.session_octets_for_limit(&fronts.ctx.config));
        self.evict_excess_sessions(fronts, usize::MAX);
    }

    /// Evicts sessions until there are fewer than `most` and their octets are within the limit.
    fn evict_excess_sessions(&mut self, fronts: &mut ProtocolFrontends, most: usize) {
        while self.sessions.len() >= most
            || self.sessions.total_octets() > fronts.ctx.config.max_half_open_octets
        {
            let oldest = self.sessions.crowded_out();
            let Some(session) = oldest.and_then(|oldest| self.sessions.remove(oldest)) else { break };
            fronts.ctx.counters.evicted += 1;
            session.trace_line(&mut fronts.ctx, || "dropped: too many unfinished logins".into());
            fronts.ctx.outputs.push_event(AaaServerEvent::Evicted { client: session.client_index() });
            abandon_session(fronts, session);
        }
    }

    /// Rejects a request of an unknown session, with the usual delay. Otherwise a peer could learn by a second
    /// request that its login has failed, before the delayed reject. No event is emitted: the login does not exist,
    /// or its end was reported.
    fn reject_unknown_session(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        identifier: Option<u8>,
    ) {
        fronts.ctx.counters.count_rejected(RejectCause::UnknownSession);
        let begun = ask.sessionless_login();
        let PendingRequest { asker, arrived, request, .. } = ask.pending;
        fronts.ctx.finish_login_without_session(
            begun,
            LoginOutcome::Undecided(RejectCause::UnknownSession),
            request,
        );
        let reject = (asker, identifier, AttributeList::new());
        self.schedule_reject(fronts, arrived + fronts.ctx.config.reject_delay, reject);
    }

    /// Rejects a request that has no session, with this EAP packet if it has one to answer.
    fn reject_immediately(
        &mut self,
        fronts: &mut ProtocolFrontends,
        ask: LoginRequest,
        reason: RejectCause,
        eap: Option<&[u8]>,
    ) {
        let (begun, asker) = (ask.sessionless_login(), ask.pending.asker);
        fronts.ctx.finish_login_without_session(begun, LoginOutcome::Rejected(reason), ask.pending.request);
        fronts.answer_request(asker, LoginVerdict::Reject { eap, reply: AttributeList::new() });
    }

    fn schedule_reject(
        &mut self,
        fronts: &mut ProtocolFrontends,
        due: Instant,
        (asker, identifier, reply): DelayedReject,
    ) {
        if due <= fronts.ctx.now {
            fronts.turn_away(asker, identifier, reply);
        } else {
            self.delayed_rejects.push(due, (asker, identifier, reply));
            self.send_due_rejects(fronts);
        }
    }

    /// Sends the delayed rejects that are due, and those beyond the limit.
    pub(super) fn send_due_rejects(&mut self, fronts: &mut ProtocolFrontends) {
        while let Some(((asker, identifier, reply), early)) =
            self.delayed_rejects.pop(fronts.ctx.now, fronts.ctx.config.max_delayed_rejects)
        {
            fronts.ctx.counters.unheld += u64::from(early);
            fronts.turn_away(asker, identifier, reply);
        }
    }
}

/// Drops a session without a verdict. Its pending request gets no reply.
fn abandon_session(fronts: &mut ProtocolFrontends, session: LoginSession) {
    if let Some(pending) = session.abandon_login(&mut fronts.ctx) {
        fronts.discard_pending_request(pending);
    }
}
