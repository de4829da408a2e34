//! The way of a session: begun, its user found, its method run.

use super::AaaServer;
use crate::ledger::Refusal;
use crate::server::api::{Event, Found, Job};
use crate::server::config::UserSource;
use crate::server::held_back::Hold;
use crate::server::proof::{self, Proof, Worth};
use crate::server::reason::Reason;
use crate::server::session::{
    self, Approval, Ask, Conversation, Opening, Owner, Pending, Session, Stage, Step, Wait, Who,
};
use crate::server::trace;
use crate::users::{Method, Password, User, canonical_name};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{CommandError, Instant};
use usher_crypto::Key;
use usher_crypto::digest::equal;
use usher_crypto::legacy::nt_hash;
use usher_eap::method::{Answer, Context, Fault, Question, Remembered};
use usher_eap::packet::{self, Type};
use usher_eap::server::Server;
use usher_radius::attribute::kind;

/// Why nothing of somebody's is weighed who is held back.
const TOO_MANY: Reason = Reason::Limit(Refusal::TooManyFailures);

/// What an unfinished session counts as at most where it holds less: where few may be open, octets bound nothing.
const MAX_SHARE: usize = 64 << 10;

/// Where a user was looked for.
enum Known {
    /// It was, and this was found.
    Now(Option<Arc<User>>),
    /// The host is to be asked.
    Host,
}

/// Why a user cannot log in by a method that the server offers.
fn why_not(user: &User, method: Method) -> Reason {
    let listed = user.methods.is_empty() || user.methods.contains(&method);
    if !listed || method == Method::Mab {
        Reason::MethodForbidden
    } else if user.password.is_none() {
        Reason::NoPassword
    } else {
        Reason::PasswordForm
    }
}

/// Whether a request's User-Name is the name that EAP gives (RFC 3579 §2.1). Of a peer that gives none the NAS makes up one
/// (RFC 5080 §2.9).
fn is_named(ask: &Ask, name: &[u8]) -> bool {
    name.is_empty() || name == ask.name()
}

impl AaaServer {
    /// Opens a session and makes room for it.
    fn open(&mut self, now: Instant, owner: Owner, pending: Pending, name: &[u8], stage: Stage) -> u64 {
        self.crowd_out(now, self.config.max_half_open.max(1));
        self.counters.sessions += 1;
        let source = pending.source;
        let session = Session {
            owner,
            begun: now,
            pending: Some(pending),
            name: name.to_vec(),
            user: None,
            refusal: None,
            row: None,
            denial: None,
            failed: false,
            ended: false,
            asked: self.cache.generation(),
            station: Box::default(),
            traced: 0,
            maybe: 0,
            stage,
        };
        let octets = self.weight(&session);
        let token = self.sessions.insert(now, source, octets, session);
        self.tell_request(now, token);
        token
    }

    /// What a session counts as: what it holds, or its share by number of what all may hold.
    fn weight(&self, session: &Session) -> usize {
        let share = self.config.max_half_open_octets / self.config.max_half_open.max(1);
        session.memory().max(share.min(MAX_SHARE))
    }

    /// A session may hold more, or less, than before.
    pub(super) fn weigh(&mut self, now: Instant, token: u64) {
        let Some(session) = self.sessions.get(token) else { return };
        self.sessions.weigh(token, self.weight(session));
        self.crowd_out(now, usize::MAX);
    }

    /// Pushes sessions out until there are fewer than so many, and until they hold no more than they may.
    fn crowd_out(&mut self, now: Instant, sessions: usize) {
        while self.sessions.len() >= sessions || self.sessions.octets() > self.config.max_half_open_octets {
            let Some(oldest) = self.sessions.crowded_out() else { break };
            self.counters.evicted += 1;
            self.trace(now, oldest, || "dropped: too many unfinished sessions".into());
            let client = self.sessions.get(oldest).and_then(|session| session.owner.client());
            self.outputs.event(Event::Evicted { client });
            self.abandon(now, oldest);
        }
    }

    /// Forgets a session that led to nothing; whoever waits for its answer gets none.
    pub(super) fn abandon(&mut self, now: Instant, token: u64) {
        self.tracers.forget(token);
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
        let owner = ask.owner.clone();
        if packet.is_empty() {
            let identifier = self.rng.next_u32() as u8;
            let token = self.open(now, owner, ask.into(), &[], Stage::Identity { identifier });
            self.out.clear();
            packet::emit(&mut self.out, packet::Code::Request, identifier, Type::IDENTITY, &[]);
            return self.challenge(now, token);
        }
        let Some((name, identifier)) = session::identity(packet) else {
            return self.begin_without_identity(now, ask, packet);
        };
        let same = is_named(&ask, name);
        let token = self.open(now, owner, ask.into(), name, Stage::Looking(Proof::Eap(identifier)));
        if same {
            self.look_up(now, token);
        } else {
            self.reject(now, token, None, Reason::NameMismatch, Some(identifier));
        }
    }

    /// A conversation that does not begin with who the peer is (RFC 3579 §2.1, §2.2, §2.6.2): who answers a request of
    /// its NAS's own is asked, and the rest is rejected.
    fn begin_without_identity(&mut self, now: Instant, ask: Ask, packet: &[u8]) {
        let eap = match session::opening(packet) {
            Opening::Response(answered) => {
                // Not the identifier that the NAS has used.
                let identifier = answered.wrapping_add(1);
                let token =
                    self.open(now, ask.owner.clone(), ask.into(), &[], Stage::Identity { identifier });
                self.out.clear();
                packet::emit(&mut self.out, packet::Code::Request, identifier, Type::IDENTITY, &[]);
                return self.challenge(now, token);
            }
            // A Nak that wishes for nothing, so that the peer does not ask again.
            Opening::Request(identifier) => Some([2, identifier, 0, 6, Type::NAK.0, 0].to_vec()),
            Opening::Noise(identifier) => identifier.map(|i| session::failure(i).to_vec()),
        };
        self.reject_at_once(now, ask, Reason::BadEap, eap.as_deref());
    }

    /// Begins a session that one request decides.
    pub(super) fn begin(&mut self, now: Instant, ask: Ask, proof: Proof) {
        let name = ask.name().to_vec();
        let denial = proof.denial();
        let token = self.open(now, ask.owner.clone(), ask.into(), &name, Stage::Looking(proof));
        if denial.is_some()
            && let Some(session) = self.sessions.get_mut(token)
        {
            session.denial = denial;
        }
        self.look_up(now, token);
    }

    /// A request of a session that is under way; `token` is what its State names.
    pub(super) fn go_on(&mut self, now: Instant, ask: Ask, token: Option<u64>, packet: &[u8]) {
        let ours = |token: &u64| self.sessions.get(*token).is_some_and(|s| s.owner == ask.owner);
        let mut token = token.filter(ours);
        if let Some(overdue) = token.take_if(|token| self.is_overdue(now, *token)) {
            self.undecided(now, overdue, Reason::TooSlow);
            return self.reject_ended(now, ask, packet.get(1).copied());
        }
        match token {
            Some(token) => self.resume(now, ask, token, packet),
            None => {
                self.reject_unknown(now, ask, packet.get(1).copied());
            }
        }
    }

    fn is_overdue(&self, now: Instant, token: u64) -> bool {
        self.sessions.get(token).is_some_and(|s| now.since(s.begun) >= self.config.login_timeout)
    }

    fn resume(&mut self, now: Instant, ask: Ask, token: u64, packet: &[u8]) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        match &mut session.stage {
            Stage::Identity { identifier } => {
                let asked = *identifier;
                let answer = session::identity(packet).filter(|(_, answered)| *answered == asked);
                let Some((name, identifier)) = answer else {
                    self.counters.bad_eap += 1;
                    return self.pass_over(now, token, ask.into(), packet);
                };
                let same = is_named(&ask, name);
                session.name = name.to_vec();
                session.pending = Some(ask.into());
                session.stage = Stage::Looking(Proof::Eap(identifier));
                self.sessions.touch(now, token);
                self.tell_request(now, token);
                if same {
                    self.look_up(now, token);
                } else {
                    self.reject(now, token, None, Reason::NameMismatch, Some(identifier));
                }
            }
            Stage::Eap(conversation) if conversation.wait.is_none() => {
                let costly = self.config.max_steps_waiting > 0 && conversation.server.is_costly(packet);
                session.pending = Some(ask.into());
                self.tell_request(now, token);
                if costly {
                    self.put_off(now, token, packet.to_vec());
                } else {
                    self.advance(now, token, packet);
                }
            }
            Stage::Eap(_) => {
                self.counters.busy += 1;
                self.pass_over(now, token, ask.into(), packet);
            }
            Stage::Looking(_) | Stage::Verifying(_) | Stage::Certificate(_) | Stage::Admission(_) => {
                self.counters.busy += 1;
                self.drop_request(now, ask.into());
            }
        }
    }
}

impl AaaServer {
    /// Looks a user up where that takes no time.
    fn known(&mut self, now: Instant, name: &[u8]) -> Known {
        match &self.config.users {
            UserSource::Memory(users) => Known::Now(users.find(name).cloned()),
            UserSource::Host(_) => match self.cache.find(now, name) {
                Some(user) => {
                    self.counters.lookups_saved += 1;
                    Known::Now(user)
                }
                None => {
                    self.counters.lookups += 1;
                    Known::Host
                }
            },
        }
    }

    fn look_up(&mut self, now: Instant, token: u64) {
        let hold = self.hold(now, token);
        let Some(session) = self.sessions.get_mut(token) else { return };
        if let (Some(hold), Stage::Looking(proof)) = (hold, &session.stage) {
            let (method, identifier) = match proof {
                Proof::Eap(identifier) => (None, Some(*identifier)),
                proof => (proof.method(), None),
            };
            let may_be_another = method.is_none()
                && hold == Hold::Name
                && self.config.methods.iter().any(|method| session::is_tunnel(*method));
            if !may_be_another {
                return self.reject(now, token, method, TOO_MANY, identifier);
            }
        }
        let name = match &session.stage {
            Stage::Looking(Proof::Mab(address, _)) => address.to_vec(),
            _ => core::mem::take(&mut session.name),
        };
        match self.known(now, &name) {
            Known::Now(user) => {
                self.give_name_back(token, name);
                self.found(now, token, user);
            }
            Known::Host => {
                self.trace(now, token, || format!("user {}: the host is asked", trace::name(&name)));
                self.ask_host(token, name.clone());
                self.give_name_back(token, name);
            }
        }
    }

    /// Asks the host for a user.
    fn ask_host(&mut self, token: u64, name: Vec<u8>) {
        let mut client = None;
        if let Some(session) = self.sessions.get_mut(token) {
            session.asked = self.cache.generation();
            client = session.owner.client();
        }
        self.assign(token, Job::Lookup { client, name });
    }

    fn give_name_back(&mut self, token: u64, name: Vec<u8>) {
        if let Some(session) = self.sessions.get_mut(token)
            && session.name.is_empty()
        {
            session.name = name;
        }
    }

    pub(super) fn on_found(&mut self, now: Instant, token: u64, user: Found) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        let (name, inner) = match &mut session.stage {
            Stage::Looking(Proof::Mab(address, _)) => (&address[..], None),
            Stage::Looking(_) => (&session.name[..], None),
            Stage::Eap(conversation) => match &conversation.wait {
                Some(Wait::User(who)) => (who.name(), Some(who.clone())),
                _ => return Err(CommandError::UnknownToken),
            },
            _ => return Err(CommandError::UnknownToken),
        };
        let (user, fresh) = match user {
            Found::User(user) => (Some(user), true),
            Found::Remembered(user) => (Some(user), false),
            Found::Nobody => (None, true),
            Found::Unavailable => {
                self.undecided(now, token, Reason::StoreAway);
                return Ok(());
            }
        };
        if fresh {
            self.cache.keep(now, session.asked, name, user.as_ref());
        }
        if let Some(user) = &user {
            self.stand_ins.saw(name, user);
        }
        if !fresh {
            self.counters.remembered += 1;
            self.trace(now, token, || "the store is away: the user is taken as found a while ago".into());
        }
        match inner {
            Some(who) => self.answer_user(now, token, &who, user),
            None => self.found(now, token, user),
        }
        Ok(())
    }

    /// What holds of a user for the request that a session has before it, or why the user may not log in.
    fn holds(&mut self, now: Instant, token: u64, user: Option<Arc<User>>) -> Result<Arc<User>, Reason> {
        let user = user.ok_or(Reason::UnknownUser)?;
        if let Some(row) = &user.unreadable {
            self.keep_row(token, row);
            return Err(Reason::BadRows);
        }
        for row in &*user.left_out {
            self.trace(now, token, || format!("left out, since it cannot be understood: {row}"));
        }
        let pending = self.sessions.get(token).and_then(|s| s.pending.as_ref());
        let request = pending.map(|pending| &pending.request).ok_or(Reason::Checks)?;
        let user = match user.resolve(request) {
            Ok(user) => user,
            Err(unmet) => {
                self.keep_row(token, &unmet);
                return Err(Reason::Checks);
            }
        };
        if user.rejected {
            return Err(Reason::Locked);
        }
        if user.expires.is_some_and(|end| end <= self.wall(now)) {
            return Err(Reason::Expired);
        }
        Ok(user)
    }

    /// Keeps which row of a user's is why the user may not log in.
    fn keep_row(&mut self, token: u64, row: &dyn core::fmt::Display) {
        if let Some(session) = self.sessions.get_mut(token) {
            session.row = Some(row.to_string().into());
        }
    }

    /// Who of a session is held back, of its station and the name that its proof is for.
    fn hold(&mut self, now: Instant, token: u64) -> Option<Hold> {
        if self.held_back.nobody(now) {
            return None;
        }
        let session = self.sessions.get(token)?;
        let station = session.pending.as_ref()?.request.get(kind::CALLING_STATION_ID).unwrap_or_default();
        self.held_back.find(now, session.claimed(), station)
    }

    /// Gives a session its user, or whoever stands in for one who may not log in.
    fn know(&mut self, now: Instant, token: u64, user: Result<Arc<User>, Reason>) -> Option<Arc<User>> {
        let (user, refusal) = match user {
            Ok(user) => (user, None),
            Err(reason) => {
                let row = self.sessions.get(token).and_then(|session| session.row_of(reason));
                let row = row.map(|row| format!(" ({row})")).unwrap_or_default();
                self.trace(now, token, || {
                    format!("who may not log in: {reason}{row}; what follows is as for a user")
                });
                let name = self.sessions.get(token)?.claimed();
                (self.stand_ins.of(name, &self.config.users, self.config.mab), Some(reason))
            }
        };
        let session = self.sessions.get_mut(token)?;
        (session.user, session.refusal) = (Some(user.clone()), refusal);
        Some(user)
    }

    /// The look-up of a session has ended.
    fn found(&mut self, now: Instant, token: u64, user: Option<Arc<User>>) {
        let hold = self.hold(now, token);
        let user = self.holds(now, token, user);
        let Some(user) = self.know(now, token, user) else { return };
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Looking(proof) = &mut session.stage else { return };
        let proof = core::mem::replace(proof, Proof::Eap(0));
        if let Proof::Eap(identifier) = proof {
            return self.propose(now, token, &user, hold, identifier);
        }
        let Some(method) = proof.method() else { return };
        if hold.is_some() {
            return self.reject(now, token, Some(method), TOO_MANY, None);
        }
        let (proof, method) = match proof {
            // A user with a password proves it, also where the name is an address.
            Proof::Mab(_, Some(password)) if !user.may_use(method) => (Proof::Pap(password), Method::Pap),
            proof => (proof, method),
        };
        let offered = method == Method::Mab || self.config.methods.contains(&method);
        if !offered || !user.may_use(method) {
            let reason = if offered { why_not(&user, method) } else { Reason::NoMethod };
            return self.reject(now, token, Some(method), reason, None);
        }
        match proof::weigh(proof, &user, &session.name) {
            Worth::Right(reply) => {
                let mut approval = Approval::new(method);
                approval.reply = reply;
                self.approve(now, token, Box::new(approval));
            }
            Worth::Wrong => self.reject(now, token, Some(method), Reason::WrongPassword, None),
            Worth::Ask(hash, password) => {
                session.stage = Stage::Verifying(method);
                let (client, name) = (session.owner.client(), session.name.clone());
                self.trace(now, token, || "the host compares the password with its hash".into());
                self.assign(token, Job::Verify { client, name, hash, password });
            }
        }
    }

    /// Begins EAP with what may admit this user, or somebody who is known inside a tunnel only.
    fn propose(&mut self, now: Instant, token: u64, user: &User, hold: Option<Hold>, identifier: u8) {
        if hold == Some(Hold::Station) {
            return self.reject(now, token, None, TOO_MANY, Some(identifier));
        }
        let held = hold.is_some();
        let offers = |server: &Self, user: &User| {
            let name = server.sessions.get(token).map_or(&[][..], |session| &session.name);
            session::offers(&server.config, user, name, held)
        };
        let mut proposed = offers(self, user);
        if proposed.is_empty() && !held {
            // A user whom no method can admit looks like one whom some could.
            let eap = self.config.methods.iter().filter(|method| method.eap_type().is_some());
            let reasons = eap.map(|method| why_not(user, *method));
            let reason = reasons.min_by_key(|r| *r == Reason::MethodForbidden).unwrap_or(Reason::NoMethod);
            let Some(stand_in) = self.know(now, token, Err(reason)) else { return };
            proposed = offers(self, &stand_in);
        }
        if proposed.is_empty() {
            let reason = if held { TOO_MANY } else { Reason::NoMethod };
            return self.reject(now, token, None, reason, Some(identifier));
        }
        let wall = self.wall(now);
        let Some(session) = self.sessions.get_mut(token) else { return };
        let mtu = session.pending.as_ref().and_then(|p| session::mtu(&p.request));
        let client = session.owner.client();
        let without_extended_master_secret =
            client.is_some_and(|client| self.config.without_extended_master_secret.contains(&client));
        let context = Context { rng: &mut self.rng, wall, mtu, without_extended_master_secret };
        let mut server = Server::new(proposed, identifier, context);
        let step = session::step(&mut server, &mut self.outputs, &mut self.out);
        session.stage = Stage::Eap(Box::new(Conversation { server, wait: None, identifier }));
        self.take_step(now, token, step);
    }

    /// The host cannot do what it was asked for a session.
    pub(super) fn on_unable(&mut self, now: Instant, token: u64) -> Result<(), CommandError> {
        let session = self.sessions.get(token).ok_or(CommandError::UnknownToken)?;
        let waits = match &session.stage {
            Stage::Eap(conversation) => matches!(conversation.wait, Some(Wait::User(_) | Wait::Password)),
            Stage::Identity { .. } => false,
            _ => true,
        };
        if !waits {
            return Err(CommandError::UnknownToken);
        }
        self.undecided(now, token, Reason::Busy);
        Ok(())
    }

    pub(super) fn on_verified(&mut self, now: Instant, token: u64, right: bool) -> Result<(), CommandError> {
        // Of guesses that were made at once, those after the limit are worth nothing, right or wrong.
        let held = self.hold(now, token).is_some();
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        match &mut session.stage {
            &mut Stage::Verifying(method) if held => self.reject(now, token, Some(method), TOO_MANY, None),
            Stage::Eap(conversation) if held && matches!(conversation.wait, Some(Wait::Password)) => {
                let method = conversation.method();
                let identifier = conversation.identifier;
                self.reject(now, token, method, TOO_MANY, Some(identifier));
            }
            &mut Stage::Verifying(method) if right => {
                self.approve(now, token, Box::new(Approval::new(method)));
            }
            &mut Stage::Verifying(method) => {
                self.reject(now, token, Some(method), Reason::WrongPassword, None);
            }
            Stage::Eap(conversation) if matches!(conversation.wait, Some(Wait::Password)) => {
                self.answer_eap(now, token, Answer::Password(right));
            }
            _ => return Err(CommandError::UnknownToken),
        }
        Ok(())
    }
}

impl AaaServer {
    /// Gives the session's EAP server what its peer said.
    pub(super) fn advance(&mut self, now: Instant, token: u64, packet: &[u8]) {
        self.trace(now, token, || trace::eap(packet));
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Eap(conversation) = &mut session.stage else { return };
        let identifier = packet.get(1).copied().unwrap_or_default();
        conversation.identifier = identifier;
        let failed = session.failed;
        if !failed && self.hold(now, token).is_some() {
            let Some(Stage::Eap(conversation)) = self.sessions.get(token).map(|s| &s.stage) else { return };
            let method = conversation.method();
            return self.reject(now, token, method, TOO_MANY, Some(identifier));
        }
        let Some(Stage::Eap(conversation)) = self.sessions.get_mut(token).map(|s| &mut s.stage) else {
            return;
        };
        if !conversation.server.handle(packet) {
            return self.ignored(now, token, packet);
        }
        let step = session::step(&mut conversation.server, &mut self.outputs, &mut self.out);
        // What changes nothing keeps no session alive.
        if !matches!(step, Step::Ignored) {
            self.sessions.touch(now, token);
        }
        self.take_step(now, token, step);
    }

    /// A session's EAP server has no use for what its peer said; `packet` where that is known.
    fn ignored(&mut self, now: Instant, token: u64, packet: &[u8]) {
        self.counters.bad_eap += 1;
        self.trace(now, token, || "dropped: this answers nothing that was asked".into());
        if let Some(pending) = self.sessions.get_mut(token).and_then(|s| s.pending.take()) {
            self.pass_over(now, token, pending, packet);
        }
    }

    /// Does what a session's EAP server said.
    fn take_step(&mut self, now: Instant, token: u64, step: Step) {
        match step {
            Step::Request => {
                self.count_refusal(now, token);
                self.conclude(now, token);
                self.challenge(now, token);
            }
            Step::Success(approval) => self.approve(now, token, approval),
            Step::Failure => {
                let Some(session) = self.sessions.get(token) else { return };
                let Stage::Eap(conversation) = &session.stage else { return };
                let (method, identifier) = (conversation.method(), conversation.identifier);
                let (reason, detail) = self.why_failed(session, conversation);
                self.reject_with(now, token, method, reason, detail, Some(identifier));
            }
            Step::Ask(Question::User { name }) => self.ask_user(now, token, Who::Named(name)),
            Step::Ask(Question::Resume(remembered)) => self.ask_user(now, token, Who::Remembered(remembered)),
            Step::Ask(Question::Password { password }) => self.ask_password(now, token, password),
            Step::Ignored => self.ignored(now, token, &[]),
        }
    }

    /// Why a conversation failed, and what is known of that besides.
    pub(super) fn why_failed(
        &self,
        session: &Session,
        conversation: &Conversation,
    ) -> (Reason, Option<String>) {
        let server = &conversation.server;
        match server.fault() {
            // The user's rows say what may be inside.
            Some(Fault::NoInner) if session.user.as_ref().is_some_and(|user| user.inside().is_some()) => {
                return (Reason::MethodForbidden, None);
            }
            Some(fault) => return (fault.into(), server.detail()),
            None => {}
        }
        /// Most methods that are named.
        const SOME: usize = 8;
        let wished: Vec<Type> = server.wishes().iter().take(SOME).map(|kind| Type(*kind)).collect();
        let known = Method::ALL.into_iter().filter(|method| {
            self.config.methods.contains(method)
                && method.eap_type().is_some_and(|kind| wished.contains(&kind))
        });
        // What the server offers others was not offered to this user.
        let reasons = known.filter(|m| session.user.as_ref().is_some_and(|user| !user.may_use(*m)));
        let reason = reasons.map(|m| session.user.as_ref().map_or(Reason::NoMethod, |user| why_not(user, m)));
        let names: Vec<String> = wished.iter().filter(|kind| kind.0 != 0).map(ToString::to_string).collect();
        let detail = match (server.wishes().is_empty(), names.is_empty()) {
            (true, _) => None,
            (false, true) => Some("the device takes nothing of what it is offered".into()),
            (false, false) => Some(format!("the device wants {}", names.join(", "))),
        };
        (reason.min_by_key(|r| *r == Reason::MethodForbidden).unwrap_or(Reason::NoMethod), detail)
    }

    /// Counts a login as failed as soon as its peer is told so: who guesses does not stay to be turned away.
    fn count_refusal(&mut self, now: Instant, token: u64) {
        if !self.held_back.counts() {
            return;
        }
        let Some(session) = self.sessions.get_mut(token).filter(|session| !session.failed) else { return };
        let Stage::Eap(conversation) = &session.stage else { return };
        if !conversation.server.refuses() || !session.why(Reason::WrongPassword).counts() {
            return;
        }
        session.failed = true;
        let (client, name) = (session.owner.client(), session.claimed().to_vec());
        let station = session.pending.as_ref().and_then(|p| p.request.get(kind::CALLING_STATION_ID));
        let station = station.unwrap_or_default().to_vec();
        self.held_back.failed(now, &name, &station);
        self.outputs.event(Event::Failed { client, name, station });
    }

    fn ask_user(&mut self, now: Instant, token: u64, who: Who) {
        self.look_inside(now, token, who.name());
        if self.hold(now, token).is_some() {
            // Not even looked up.
            return self.answer_user(now, token, &who, None);
        }
        match self.known(now, who.name()) {
            Known::Now(user) => {
                self.trace(now, token, || who.to_string());
                self.answer_user(now, token, &who, user);
            }
            Known::Host => {
                self.trace(now, token, || format!("{who}: the host is asked"));
                self.ask_host(token, who.name().to_vec());
                self.wait(token, Wait::User(who));
            }
        }
    }

    fn wait(&mut self, token: u64, wait: Wait) {
        if let Some(Stage::Eap(conversation)) = self.sessions.get_mut(token).map(|s| &mut s.stage) {
            conversation.wait = Some(wait);
        }
    }

    /// Tells a method who the user is whom it asked for.
    fn answer_user(&mut self, now: Instant, token: u64, who: &Who, user: Option<Arc<User>>) {
        let held = self.hold(now, token).is_some();
        let tunnel = self.sessions.get(token).and_then(|s| match &s.stage {
            Stage::Eap(conversation) => conversation.method(),
            _ => None,
        });
        let may = |user: &User| {
            let proves = user.password.is_some() || matches!(who, Who::Remembered(_));
            tunnel.is_some_and(|tunnel| user.may_use(tunnel)) && proves
        };
        let user = match self.holds(now, token, user) {
            _ if held => Err(TOO_MANY),
            Ok(user) if !may(&user) => Err(match tunnel.filter(|tunnel| !user.may_use(*tunnel)) {
                Some(_) => Reason::MethodForbidden,
                None => Reason::NoPassword,
            }),
            user => user,
        };
        let user = match who {
            Who::Remembered(remembered) => self.resumes(token, remembered, user),
            Who::Named(_) => user,
        };
        let why = user.as_ref().err().copied();
        let refused = why.is_some();
        let Some(user) = self.know(now, token, user) else { return };
        let answer = match (who, session::secret(&user).filter(|_| !held), user.inside()) {
            (Who::Remembered(_), ..) => match why {
                None => Answer::Resume(true),
                Some(Reason::StaleSession) => Answer::Resume(false),
                // The session is as good as it was: it is its user who may not log in now.
                Some(_) => Answer::Unavailable,
            },
            (_, Some(secret), only) if refused => Answer::Refused(secret, only),
            (_, Some(secret), Some(only)) => Answer::Restricted(secret, only),
            (_, secret, _) => Answer::User(secret),
        };
        self.answer_eap(now, token, answer);
    }

    /// Whether a TLS session may let in again whom it let in before: the user, who may still log in, still proves that by
    /// the same, and by a method that still does.
    fn resumes(
        &self,
        token: u64,
        remembered: &Remembered,
        user: Result<Arc<User>, Reason>,
    ) -> Result<Arc<User>, Reason> {
        let user = user?;
        let outside = self.sessions.get(token).map_or(&[][..], |session| &session.name);
        let same = remembered.inner.is_some() || canonical_name(outside) == canonical_name(&remembered.name);
        let may = match (remembered.inner, user.inside()) {
            (Some(inner), Some(only)) => only.contains(&inner),
            _ => true,
        };
        let proof = equal(&session::credential(&self.shard.key, &user), &remembered.credential);
        if same && may && proof { Ok(user) } else { Err(Reason::StaleSession) }
    }

    fn ask_password(&mut self, now: Instant, token: u64, password: Key) {
        let Some(session) = self.sessions.get(token) else { return };
        let right = match session.user.as_ref().and_then(|u| u.password.as_ref()) {
            Some(Password::Argon2(hash)) => {
                let hash = hash.clone();
                let (client, name) = (session.owner.client(), session.claimed().to_vec());
                self.trace(now, token, || "the host compares the password with its hash".into());
                self.assign(token, Job::Verify { client, name, hash, password });
                return self.wait(token, Wait::Password);
            }
            Some(Password::Clear(clear)) => equal(clear, &password),
            Some(Password::NtHash(hash)) => equal(&**hash, &nt_hash(&password)),
            None => false,
        };
        self.answer_eap(now, token, Answer::Password(right));
    }

    /// Goes on with the answer to what a method asked.
    fn answer_eap(&mut self, now: Instant, token: u64, answer: Answer) {
        let Some(session) = self.sessions.get_mut(token) else { return };
        let Stage::Eap(conversation) = &mut session.stage else { return };
        conversation.wait = None;
        let step = if conversation.server.answer(answer) {
            session::step(&mut conversation.server, &mut self.outputs, &mut self.out)
        } else {
            Step::Ignored
        };
        self.take_step(now, token, step);
    }
}
