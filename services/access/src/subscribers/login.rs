//! Logins: each proof goes to the AAA server or the local users, and the verdict comes back.

use super::attempt::{
    AuthenticationBackend, CredentialsKind, LoginAnswer, LoginAttempt, LoginFailure, PendingLogin,
};
use super::config::SubscriberConfig;
use super::grant::is_printable_name;
use super::{SubscriberEvent, SubscriberGrant, SubscriberKey, SubscriberManager};
use crate::client::{AaaRequestFailure, AccessClientCommand, AccessClientEvent};
use crate::grace::{AaaOutagePolicy, CachedAuthorization};
use crate::local_users::{EapConversation, EapStepJob, LocalVerdict};
use crate::{AccessReply, AccessRequest, LoginRoundState, NasPort, TerminateCause, UserCredentials};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use usher_core::{CommandError, Instant, JobRequest, JobWaiter, Machine};
use usher_crypto::SecretValue;
use usher_radius::client::ServerHealth;

/// Returns the reply messages for the user.
fn reply_messages(reply: &AccessReply) -> Vec<u8> {
    reply.reply_messages().collect::<Vec<_>>().join(&b'\n')
}

impl<K: SubscriberKey, A: fmt::Debug> SubscriberManager<K, A> {
    /// Returns the number of logins in progress.
    #[must_use]
    pub fn login_count(&self) -> usize {
        self.logins.len()
    }

    /// Returns the number of logins that wait for an AAA server.
    #[must_use]
    pub fn pending_request_count(&self) -> usize {
        self.requests.len()
    }

    /// Verifies a proof. [`SubscriberEvent::Login`] follows, at once or later.
    pub fn authenticate<O: Hash>(&mut self, now: Instant, access: K, attempt: &LoginAttempt<'_, O>) {
        self.set_certificate_clock(now);
        if attempt.starts_login || !self.logins.contains_key(&access) {
            self.abort_login(now, access);
            let login = self.create_login(attempt);
            self.logins.insert(access, login);
        }
        let Some(login) = self.logins.get_mut(&access) else { return };
        if let UserCredentials::Eap(packet) = attempt.proof {
            let is_certificate = !attempt.trusts_certificate_names && crate::is_eap_tls_response(packet);
            login.hides_identity |= is_certificate || crate::is_tunnelled(packet);
        }
        if login.name.is_empty() {
            self.reject_login(access, LoginFailure::NoName, Vec::new());
        } else if !is_printable_name(&login.name) {
            self.reject_login(access, LoginFailure::BadName, Vec::new());
        } else if self.is_leaving {
            self.fail_login(access, LoginFailure::NoAaa);
        } else if attempt.backend == AuthenticationBackend::Local {
            self.authenticate_locally(now, access, &attempt.proof);
        } else {
            self.send_aaa_request(now, access, &attempt.proof, attempt.mtu);
        }
        self.drain_client(now);
    }

    fn create_login<O: Hash>(&mut self, attempt: &LoginAttempt<'_, O>) -> PendingLogin {
        let has_grace = matches!(self.config.without_aaa, AaaOutagePolicy::Grace(_));
        let digest = match attempt.proof {
            UserCredentials::Pap(password) if has_grace => {
                Some(self.grace.password_digest(password, &mut self.rng))
            }
            _ => None,
        };
        PendingLogin {
            name: attempt.name.to_vec(),
            kind: CredentialsKind::of_proof(&attempt.proof),
            place: attempt.place.clone(),
            origin: self.hash.hash_one(&attempt.origin),
            requester: attempt.requester.clone(),
            waiter: JobWaiter::default(),
            digest,
            token: self.allocate_token(),
            is_request_pending: false,
            next: LoginRoundState::new(),
            conversation: None,
            is_failure_counted: false,
            hides_identity: false,
        }
    }

    fn send_aaa_request(&mut self, now: Instant, access: K, proof: &UserCredentials<'_>, mtu: Option<u16>) {
        let (Some(login), Some(client)) = (self.logins.get_mut(&access), &mut self.client) else {
            return self.fail_login(access, LoginFailure::NoAaa);
        };
        let request = AccessRequest {
            port: NasPort { mtu, ..login.place.nas_port() },
            continues: Some(&login.next),
            attributes: Some(&login.place.attributes),
            ..AccessRequest::new(&login.name, *proof)
        };
        match client.send_request(now, login.token, &request) {
            Ok(()) => {}
            // The servers answer, but this client has too many pending requests. That is no outage, so the grace cache
            // is not used.
            Err(CommandError::Full(_)) => return self.fail_login(access, LoginFailure::Unanswered),
            // The user name does not fit into a request, so no server could answer.
            Err(_) => return self.reject_login(access, LoginFailure::NoName, Vec::new()),
        }
        login.is_request_pending = true;
        self.requests.insert(login.token, access);
    }

    /// Verifies a proof by the local users.
    fn authenticate_locally(&mut self, now: Instant, access: K, proof: &UserCredentials<'_>) {
        if self.reject_if_locked_out(now, access) {
            return;
        }
        let wall = now.to_wall_time(self.epoch);
        let Some(login) = self.logins.get_mut(&access) else { return };
        let UserCredentials::Eap(packet) = proof else {
            let verdict = self.config.users.verify_proof(&login.name, proof);
            return self.apply_verdict(now, access, verdict, false);
        };
        let conversation = match login.conversation.take() {
            Some(conversation) if conversation.is_costly() => {
                let step = EapStepJob::new(access, login.token, conversation, packet);
                let requester = login.requester.clone().with_waiter(&login.waiter);
                return self.outputs.push_job(JobRequest::new(login.token, step).with_origin(requester));
            }
            Some(mut conversation) => {
                conversation.handle_packet(packet);
                conversation
            }
            None => self.config.users.start_conversation(&login.name, packet, wall, &mut self.rng),
        };
        self.continue_conversation(now, access, conversation);
    }

    /// Applies a worker's step. The login may have ended meanwhile. If a lockout has begun meanwhile, the login is
    /// rejected, so that the result stays hidden.
    pub(super) fn apply_eap_step(&mut self, now: Instant, step: EapStepJob<K>) {
        if self.is_current_login(step.access, step.token) && !self.reject_if_locked_out(now, step.access) {
            self.continue_conversation(now, step.access, step.conversation);
        }
    }

    /// True if the login of an access is that of a job.
    pub(super) fn is_current_login(&self, access: K, token: u64) -> bool {
        self.logins.get(&access).is_some_and(|login| login.token == token)
    }

    fn continue_conversation(&mut self, now: Instant, access: K, mut conversation: EapConversation) {
        let verdict = conversation.next_verdict();
        // Count the failure as soon as the proof is wrong, not at the final reject: an attacker may leave before.
        let has_refused = conversation.has_refused();
        for work in conversation.drain_work() {
            self.outputs.push_work(work);
        }
        if let Some(login) = self.logins.get_mut(&access) {
            login.conversation = Some(conversation);
        }
        self.apply_verdict(now, access, verdict, has_refused);
    }

    /// Rejects a login whose user name or origin is locked out. This is checked before each proof, so that parallel
    /// attempts are limited, too. A login that has already failed is not checked again.
    fn reject_if_locked_out(&mut self, now: Instant, access: K) -> bool {
        let Some(login) = self.logins.get(&access) else { return false };
        if login.is_failure_counted || !self.lockout.is_locked_out(now, &login.name, &login.origin) {
            return false;
        }
        self.counters.logins_locked_out += 1;
        self.reject_login(access, LoginFailure::LockedOut, Vec::new());
        true
    }

    fn apply_verdict(&mut self, now: Instant, access: K, verdict: LocalVerdict, has_refused: bool) {
        let Some(login) = self.logins.get_mut(&access) else { return };
        let fails = has_refused || matches!(verdict, LocalVerdict::Reject(_));
        if fails && !core::mem::replace(&mut login.is_failure_counted, true) {
            self.lockout.record_failure(now, &login.name, &login.origin);
        }
        match verdict {
            LocalVerdict::Continue(packet) => self.answer_login(access, LoginAnswer::Continue(packet)),
            LocalVerdict::Accept { packet: message, msk } => {
                self.lockout.record_success(now, &login.name, &login.origin);
                let grant = Box::new(SubscriberGrant::for_local_user(&login.name));
                self.logins.remove(&access);
                self.answer_login(access, LoginAnswer::Accept { grant, message, msk });
            }
            LocalVerdict::Reject(message) => self.reject_login(access, LoginFailure::Rejected, message),
        }
    }

    fn answer_login(&mut self, access: K, answer: LoginAnswer) {
        self.outputs.push_event(SubscriberEvent::Login { access, answer });
    }

    /// Rejects a login.
    fn reject_login(&mut self, access: K, why: LoginFailure, message: Vec<u8>) {
        let Some(login) = self.logins.remove(&access) else { return };
        self.counters.logins_rejected += 1;
        self.answer_login(access, LoginAnswer::Reject { user: login.name, why, message });
    }

    /// Fails a login without a verdict.
    pub(super) fn fail_login(&mut self, access: K, why: LoginFailure) {
        let Some(login) = self.logins.remove(&access) else { return };
        self.counters.logins_unanswered += 1;
        self.answer_login(access, LoginAnswer::Unanswered { user: login.name, why });
    }

    /// Drops a login and cancels its request. Returns true if a request was open.
    pub fn abort_login(&mut self, now: Instant, access: K) -> bool {
        let Some(login) = self.logins.remove(&access) else { return false };
        if login.is_request_pending {
            self.counters.logins_unanswered += 1;
            self.requests.remove(&login.token);
            if let Some(client) = &mut self.client {
                // The client knows every open request, so the command does not fail.
                let _ = client.handle_command(now, AccessClientCommand::Cancel { token: login.token });
            }
            self.drain_client(now);
        }
        login.is_request_pending
    }

    /// Ends a grant without a session. A server that counts sessions has counted it as open.
    pub fn abandon_grant(&mut self, now: Instant, grant: &SubscriberGrant, cause: TerminateCause) {
        self.terminate_at_server(now, grant.token, cause);
        self.drain_client(now);
    }
    /// Rejects an accepted user: the service has no address or session for it.
    pub fn reject_grant(&mut self, now: Instant, grant: &SubscriberGrant) {
        self.counters.logins_rejected += 1;
        self.abandon_grant(now, grant, TerminateCause::NasError);
    }
    pub(super) fn terminate_at_server(&mut self, now: Instant, token: Option<u64>, cause: TerminateCause) {
        if let (Some(token), Some(client)) = (token, &mut self.client) {
            // The session ends here whatever the server replies.
            let _ = client.handle_command(now, AccessClientCommand::Terminate { token, cause });
        }
    }

    /// Handles an event of the AAA client.
    pub(super) fn handle_client_event(&mut self, now: Instant, event: AccessClientEvent) {
        match event {
            AccessClientEvent::Challenge { token, reply } => self.handle_challenge(now, token, reply),
            AccessClientEvent::Accept { token, reply } => self.handle_accept(now, token, reply),
            AccessClientEvent::Reject { token, reply } => self.handle_reject(now, token, reply),
            AccessClientEvent::Failed { token, failure } => {
                let Some(access) = self.requests.remove(&token) else { return };
                if let Some(login) = self.logins.get_mut(&access) {
                    login.is_request_pending = false;
                }
                match failure {
                    AaaRequestFailure::BadAnswer => self.fail_login(access, LoginFailure::BadAnswer),
                    AaaRequestFailure::Timeout
                    | AaaRequestFailure::Unavailable
                    | AaaRequestFailure::ConnectionLost
                    | AaaRequestFailure::Fault(_) => self.handle_aaa_outage(now, access),
                }
            }
            AccessClientEvent::Accounted { token, result } => self.handle_record_result(now, token, result),
            AccessClientEvent::Dynamic(request) => self.handle_dynamic_request(now, &request),
            AccessClientEvent::Peer { peer, up } => {
                let server = usize::try_from(peer.0).unwrap_or(usize::MAX);
                self.outputs.push_event(SubscriberEvent::Server { server, up });
            }
            AccessClientEvent::Server { server, health, .. } => {
                let up = health == ServerHealth::Alive;
                self.outputs.push_event(SubscriberEvent::Server { server: server.into(), up });
            }
        }
    }

    /// Handles a login that no AAA server answers.
    fn handle_aaa_outage(&mut self, now: Instant, access: K) {
        self.grace.mark_aaa_unavailable(now);
        let cached = match (self.config.without_aaa, self.logins.get(&access)) {
            (AaaOutagePolicy::Grace(lasts), Some(login)) => login.digest.and_then(|digest| {
                self.grace.cached_authorization(now, lasts, &login.place, &login.name, &digest)
            }),
            _ => None,
        };
        let Some(grant) = cached else { return self.fail_login(access, LoginFailure::Unanswered) };
        self.counters.logins_in_grace += 1;
        // The server has not accepted this session. Without the old token, the server gets no commands about it.
        let grant = Box::new(SubscriberGrant { token: None, ..grant });
        self.logins.remove(&access);
        self.answer_login(access, LoginAnswer::Accept { grant, message: Vec::new(), msk: None });
    }

    /// Returns the login of an answered request.
    fn take_answered_login(&mut self, now: Instant, token: u64) -> Option<(K, &mut PendingLogin)> {
        let access = self.requests.remove(&token)?;
        self.grace.mark_aaa_available();
        self.end_overdue_sessions(now);
        let login = self.logins.get_mut(&access)?;
        login.is_request_pending = false;
        Some((access, login))
    }

    fn recycle_reply(&mut self, reply: AccessReply) {
        if let Some(client) = &mut self.client {
            client.recycle_reply(reply);
        }
    }

    fn handle_challenge(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some((access, login)) = self.take_answered_login(now, token) else { return };
        let mut packet = Vec::new();
        let has_packet = reply.read_eap(&mut packet) && login.kind == CredentialsKind::Eap;
        reply.fill_continuation(&mut login.next);
        self.recycle_reply(reply);
        if has_packet {
            self.answer_login(access, LoginAnswer::Continue(packet));
        } else {
            // A server cannot challenge PAP or CHAP, which have no second round.
            self.fail_login(access, LoginFailure::BadAnswer);
        }
    }

    fn handle_reject(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some((access, login)) = self.take_answered_login(now, token) else { return };
        let mut message = Vec::new();
        match login.kind {
            CredentialsKind::Eap => drop(reply.read_eap(&mut message)),
            CredentialsKind::MsChapV2 => message = reply.ms_chap_error().unwrap_or_default().to_owned(),
            CredentialsKind::Password => message = reply_messages(&reply),
        }
        let (place, digest) = (login.place.clone(), login.digest);
        let name = login.name.clone();
        self.grace.revoke_rejected_authorizations(&place, &name, digest.as_ref());
        self.recycle_reply(reply);
        self.reject_login(access, LoginFailure::Rejected, message);
    }

    fn handle_accept(&mut self, now: Instant, token: u64, reply: AccessReply) {
        let Some((access, _)) = self.take_answered_login(now, token) else { return };
        let Some(login) = self.logins.get(&access) else { return };
        let accepted = read_accept(&reply, login, &self.config);
        self.recycle_reply(reply);
        let Some((grant, message, msk)) = accepted else {
            // The server has accepted the session and counts it as open: end it there.
            self.terminate_at_server(now, Some(token), TerminateCause::NasError);
            return self.fail_login(access, LoginFailure::BadAnswer);
        };
        let Some(login) = self.logins.remove(&access) else { return };
        if let (AaaOutagePolicy::Grace(lasts), Some(digest)) = (self.config.without_aaa, login.digest) {
            let one = CachedAuthorization { digest, granted: grant.clone(), granted_at: now };
            self.grace.cache_authorization(now, lasts, &login.place, &login.name, one);
        }
        self.answer_login(access, LoginAnswer::Accept { grant: Box::new(grant), message, msk });
    }
}

/// Reads an accepting reply: the grant, the message and the key. `None` if it is invalid.
fn read_accept(
    reply: &AccessReply,
    login: &PendingLogin,
    config: &SubscriberConfig,
) -> Option<(SubscriberGrant, Vec<u8>, Option<SecretValue>)> {
    let (mut message, mut msk) = (Vec::new(), None);
    match login.kind {
        CredentialsKind::Eap => {
            reply.read_eap(&mut message);
            if config.needs_keys {
                msk = reply.msk().ok()?.map(|msk| SecretValue::from(&msk[..]));
            }
        }
        CredentialsKind::Password => message = reply_messages(reply),
        // RFC 2759, 5: without the authenticator response the user rejects this side.
        CredentialsKind::MsChapV2 => {
            message = reply.ms_chap2_success()?.to_owned();
            message.extend_from_slice(b" M=");
            message.extend(reply_messages(reply));
        }
    }
    let grant = SubscriberGrant::from_reply(reply, &login.name, login.hides_identity, login.token, config)?;
    Some((grant, message, msk))
}
