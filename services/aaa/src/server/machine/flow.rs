//! The way of a session: begun, its user found, its method run.

use super::AaaServer;
use crate::server::answer::Verdict;
use crate::server::api::{Event, Found, Reason};
use crate::server::config::UserSource;
use crate::server::session::{self, Approval, Ask, Owner, Pending, Proof, Session, Stage, Step};
use crate::users::{Method, Password, User};
use alloc::boxed::Box;
use alloc::sync::Arc;
use usher_core::{CommandError, Instant};
use usher_crypto::digest::equal;
use usher_crypto::legacy::nt_hash;
use usher_eap::method::Context;
use usher_eap::packet::{self, Type};
use usher_eap::server::Server;

impl AaaServer {
    /// Opens a session and makes room for it.
    fn open(&mut self, now: Instant, owner: Owner, pending: Pending, name: &[u8], stage: Stage) -> u64 {
        while self.sessions.len() >= self.config.max_half_open.max(1) {
            let Some((oldest, _)) = self.sessions.oldest() else { break };
            self.counters.evicted += 1;
            self.abandon(now, oldest);
        }
        self.counters.sessions += 1;
        let session =
            Session { owner, begun: now, pending: Some(pending), name: name.to_vec(), user: None, stage };
        self.sessions.insert(now, session)
    }

    /// Forgets a session that led to nothing; whoever waits for its answer gets none.
    pub(super) fn abandon(&mut self, now: Instant, token: u64) {
        if let Some(session) = self.sessions.remove(token)
            && let Some(pending) = session.pending
        {
            self.drop_request(now, pending);
        }
    }

    pub(super) fn drop_request(&mut self, now: Instant, pending: Pending) {
        self.discard(now, pending.asker);
        self.recycle(pending.request);
    }

    pub(super) fn begin_eap(&mut self, now: Instant, ask: Ask, packet: &[u8]) {
        let owner = ask.owner;
        if packet.is_empty() {
            let identifier = self.rng.next_u32() as u8;
            let token = self.open(now, owner, ask.into(), &[], Stage::Identity { identifier });
            self.out.clear();
            packet::emit(&mut self.out, packet::Code::Request, identifier, Type::IDENTITY, &[]);
            return self.challenge(now, token);
        }
        let Some((name, identifier)) = session::identity(packet) else {
            self.counters.bad_eap += 1;
            return self.drop_request(now, ask.into());
        };
        let same = name == ask.name();
        let token = self.open(now, owner, ask.into(), name, Stage::Looking(Proof::Eap(identifier)));
        if same {
            self.look_up(now, token);
        } else {
            self.reject(now, token, None, Reason::NameMismatch, Some(identifier));
        }
    }

    /// Begins a session that one request decides.
    pub(super) fn begin(&mut self, now: Instant, ask: Ask, proof: Proof) {
        let name = ask.name().to_vec();
        let token = self.open(now, ask.owner, ask.into(), &name, Stage::Looking(proof));
        self.look_up(now, token);
    }

    /// A request of a session that is under way; `token` is what its State names.
    pub(super) fn go_on(&mut self, now: Instant, ask: Ask, token: Option<u64>, packet: &[u8]) {
        let ours = |token: &u64| self.sessions.get(*token).is_some_and(|s| s.owner == ask.owner);
        match token.filter(ours) {
            Some(token) => self.resume(now, ask, token, packet),
            None => {
                self.counters.unknown_session += 1;
                let failure = packet.get(1).map(|&identifier| session::failure(identifier));
                let eap = failure.as_ref().map(|f| &f[..]);
                self.answer(now, ask.asker, Verdict::Reject { eap });
                self.recycle(ask.request);
            }
        }
    }

    fn resume(&mut self, now: Instant, ask: Ask, token: u64, packet: &[u8]) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        match &mut session.stage {
            Stage::Looking(_) | Stage::Verifying(_) | Stage::Certificate(_) | Stage::Admission(_) => {
                self.counters.busy += 1;
                self.drop_request(now, ask.into());
            }
            Stage::Identity { identifier } => {
                let asked = *identifier;
                let answer = session::identity(packet).filter(|(_, answered)| *answered == asked);
                let Some((name, identifier)) = answer else {
                    self.counters.bad_eap += 1;
                    return self.drop_request(now, ask.into());
                };
                session.name = name.to_vec();
                session.pending = Some(ask.into());
                session.stage = Stage::Looking(Proof::Eap(identifier));
                self.sessions.touch(now, token);
                self.look_up(now, token);
            }
            Stage::Eap(_) => {
                session.pending = Some(ask.into());
                self.sessions.touch(now, token);
                self.advance(now, token, packet);
            }
        }
    }
}

impl AaaServer {
    fn look_up(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get(token) else { return };
        match &self.config.users {
            UserSource::Memory(users) => {
                let user = users.find(&session.name).cloned();
                self.found(now, token, user);
            }
            UserSource::Host(_) => match self.cache.find(now, &session.name) {
                Some(user) => {
                    self.counters.lookups_saved += 1;
                    self.found(now, token, Some(user));
                }
                None => {
                    self.counters.lookups += 1;
                    self.events.push_back(Event::Lookup { token, name: session.name.clone() });
                }
            },
        }
    }

    pub(super) fn on_found(&mut self, now: Instant, token: u64, user: Found) -> Result<(), CommandError> {
        let session = self.sessions.get(token).filter(|s| matches!(s.stage, Stage::Looking(_)));
        let session = session.ok_or(CommandError::UnknownToken)?;
        match user {
            Found::User(user) => {
                self.cache.keep(now, &session.name, &user);
                self.found(now, token, Some(user));
            }
            Found::Nobody => self.found(now, token, None),
            Found::Unavailable => self.no_verdict(now, token),
        }
        Ok(())
    }

    /// The look-up of a session has ended.
    fn found(&mut self, now: Instant, token: u64, user: Option<Arc<User>>) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Looking(proof) = &mut session.stage else { return };
        let proof = core::mem::replace(proof, Proof::Eap(0));
        let (method, identifier) = (proof.method(), proof.identifier());
        let Some(user) = user else {
            return self.reject(now, token, method, Reason::UnknownUser, identifier);
        };
        session.user = Some(user.clone());
        if user.rejected {
            return self.reject(now, token, method, Reason::Locked, identifier);
        }
        let wall = self.config.epoch + now.since(Instant::ZERO);
        if user.expires.is_some_and(|end| end <= wall) {
            return self.reject(now, token, method, Reason::Expired, identifier);
        }
        match proof {
            Proof::Pap(password) => {
                let offered = self.config.methods.contains(&Method::Pap) && user.may_use(Method::Pap);
                let right = match &user.password {
                    _ if !offered => return self.reject(now, token, method, Reason::NoMethod, None),
                    None => false,
                    Some(Password::Clear(clear)) => equal(clear, &password),
                    Some(Password::NtHash(hash)) => equal(hash, &nt_hash(&password)),
                    Some(Password::Argon2(hash)) => {
                        session.stage = Stage::Verifying(Method::Pap);
                        self.events.push_back(Event::Verify { token, hash: hash.clone(), password });
                        return;
                    }
                };
                self.judge(now, token, Method::Pap, right);
            }
            Proof::Eap(identifier) => {
                let offers = session::offers(&self.config, &user);
                if offers.is_empty() {
                    return self.reject(now, token, None, Reason::NoMethod, Some(identifier));
                }
                let mut eap = Box::new(Server::new(
                    offers,
                    identifier,
                    Context { rng: &mut self.rng, wall, mtu: None },
                ));
                let step = session::step(&mut eap, &mut self.work, &mut self.out);
                session.stage = Stage::Eap(eap);
                self.take_step(now, token, step, identifier);
            }
        }
    }

    /// A proof outside EAP was compared.
    fn judge(&mut self, now: Instant, token: u64, method: Method, right: bool) {
        if right {
            self.approve(now, token, Box::new(Approval::new(method)));
        } else {
            self.reject(now, token, Some(method), Reason::WrongCredentials, None);
        }
    }

    pub(super) fn on_verified(&mut self, now: Instant, token: u64, right: bool) -> Result<(), CommandError> {
        match self.sessions.get(token).map(|s| &s.stage) {
            Some(&Stage::Verifying(method)) => {
                self.judge(now, token, method, right);
                Ok(())
            }
            _ => Err(CommandError::UnknownToken),
        }
    }

    /// Gives the session's EAP server what its peer said.
    fn advance(&mut self, now: Instant, token: u64, packet: &[u8]) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Eap(eap) = &mut session.stage else { return };
        let step = if eap.handle(packet) {
            session::step(eap, &mut self.work, &mut self.out)
        } else {
            Step::Ignored
        };
        self.take_step(now, token, step, packet.get(1).copied().unwrap_or_default());
    }

    /// Does what a session's EAP server said; `identifier` is that of the response that it was given.
    fn take_step(&mut self, now: Instant, token: u64, step: Step, identifier: u8) {
        match step {
            Step::Request => self.challenge(now, token),
            Step::Success(approval) => self.approve(now, token, approval),
            Step::Failure(method, reason) => self.reject(now, token, method, reason, Some(identifier)),
            Step::Ignored => {
                self.counters.bad_eap += 1;
                if let Some(pending) = self.sessions.get_mut(token).and_then(|s| s.pending.take()) {
                    self.drop_request(now, pending);
                }
            }
        }
    }
}
