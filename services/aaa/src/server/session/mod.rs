//! One login that is not decided yet: a state machine that is given what its peer sends and what the host answers, and
//! says what is to be done about it. It knows neither the protocols that carry it nor any other login.

mod audience;
mod conversation;
mod verdict;

use super::answer::Asker;
use super::api::LoginOwner;
use super::api::{Event, Found, Job};
use super::ask::{Ask, Pending};
use super::cache::Generation;
use super::config::Config;
use super::context::Context;
use super::half_open::Source;
use super::held_back::Hold;
use super::proof::{self, Denial, Proof, Worth};
use super::reason::Reason;
use super::trace::{self, Slots};
use crate::ledger::{AdmitRequest, Refusal};
use crate::users::{Method, Password, User, canonical_name};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use audience::Audience;
use conversation::{
    Approval, Conversation, Progress, Wait, Who, credential, is_anonymous, is_tunnel, most_telling, mtu,
    offers, secret, why_not,
};
pub(super) use conversation::{Opening, failure, opening};
use core::net::IpAddr;
use usher_core::{CommandError, Instant, JobOrigin, JobWaiter};
use usher_crypto::Key;
use usher_crypto::digest::equal;
use usher_crypto::legacy::nt_hash;
use usher_eap::method::{self, Answer, Question, Remembered};
use usher_eap::packet::{self, Code, Type};
use usher_eap::server::Server;
use usher_radius::attribute::kind;
pub(super) use verdict::{Accepted, Grant};

/// Why nothing of somebody's is weighed who is held back.
const TOO_MANY: Reason = Reason::Limit(Refusal::TooManyFailures);

/// What an unfinished session counts as at most where it holds less: where few may be open, octets bound nothing.
const MAX_SHARE: usize = 64 << 10;

/// What a session takes with what finds it and its request in the RADIUS server, octets, without what is its own kind's.
const SESSION: usize = 1 << 10;

/// Where a login stands.
#[derive(Debug)]
enum Stage {
    /// The identity is asked for under this identifier.
    Identity { identifier: u8 },
    /// The user is being looked up.
    Looking(Proof),
    /// The host compares a password, in this method.
    Verifying(Method),
    /// A method is under way.
    Eap(Box<Conversation>),
    /// The proof convinces; the host is asked which user the certificate names.
    Naming(Box<Approval>),
    /// And is asked for that user.
    Named(Box<Approval>),
    /// The proof convinces; the host is asked whether the certificate is still good.
    Certificate(Box<Approval>),
    /// The host is asked whether limits allow it.
    Admission(Box<Approval>),
}

/// What is to be done about a login.
#[derive(Debug)]
#[must_use]
pub(super) enum Step {
    /// Nothing: it waits for its peer, or for the host.
    Wait,
    /// This request is answered by the EAP request that was written.
    Challenge(Pending),
    /// This request answers nothing that was asked, and is told again what was: the EAP request that was written.
    Again(Pending),
    /// This request gets no answer.
    Drop(Pending),
    /// What came costs much, and waits for its turn.
    PutOff,
    /// The host is asked whether limits let in this client's user, for whom a request came from this address.
    Admit(Option<u32>, IpAddr, AdmitRequest),
    /// It ends: its user is let in.
    Accept(Grant),
    /// It ends: its user is turned away.
    Reject(Reject),
    /// It ends without a verdict.
    Undecided(Reason),
}

/// That somebody is turned away.
#[derive(Debug)]
pub(super) struct Reject {
    method: Option<Method>,
    reason: Reason,
    /// What is known of the reason besides.
    detail: Option<String>,
    /// That of the EAP response which this answers.
    identifier: Option<u8>,
}

impl Step {
    const fn reject(method: Option<Method>, reason: Reason, identifier: Option<u8>) -> Self {
        Self::Reject(Reject { method, reason, detail: None, identifier })
    }
    /// Whether what came is part of the login: what is not keeps no login alive.
    pub(super) const fn goes_on(&self) -> bool {
        !matches!(self, Self::Again(_) | Self::Drop(_) | Self::PutOff)
    }
}

/// A login that is not decided yet; see the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    owner: LoginOwner,
    begun: Instant,
    pending: Option<Pending>,
    name: Vec<u8>,
    /// User-Name of the request with the identity: that of each later one (RFC 3579 §2.1).
    given: Box<[u8]>,
    /// The user, or who stands in for one who may not log in.
    user: Option<Arc<User>>,
    /// Why the user may not log in, whatever is proven.
    refusal: Option<Reason>,
    /// The row of the user's that cannot be understood or does not hold, where that is why.
    row: Option<Box<str>>,
    /// What a reject says besides.
    denial: Option<Denial>,
    /// Its failure was counted.
    failed: bool,
    /// The host was told that its user is turned away; the peer is being told.
    ended: bool,
    /// When its last look-up began.
    asked: Generation,
    /// That found that nobody can have the name.
    is_unstorable: bool,
    /// Calling-Station-Id, once a request that had one was answered and is gone.
    station: Box<[u8]>,
    audience: Audience,
    stage: Stage,
    /// For whom jobs are done.
    waiter: Option<JobWaiter>,
}

impl Session {
    /// A login of somebody who is asked who that is, under this identifier.
    pub(super) fn nameless(ctx: &Context, ask: Ask, identifier: u8) -> Self {
        Self::new(ctx, ask, Vec::new(), Stage::Identity { identifier })
    }
    /// A login of the user of this name, who offers a proof.
    pub(super) fn of_user(ctx: &Context, ask: Ask, name: Vec<u8>, proof: Proof) -> Self {
        let denial = proof.denial();
        Self { denial, ..Self::new(ctx, ask, name, Stage::Looking(proof)) }
    }
    fn new(ctx: &Context, ask: Ask, name: Vec<u8>, stage: Stage) -> Self {
        // A login in one request cannot go on under another name.
        let given = match &stage {
            Stage::Looking(Proof::Eap(_)) => ask.name().into(),
            _ => Box::default(),
        };
        Self {
            given,
            owner: ask.owner,
            begun: ctx.now,
            pending: Some(ask.pending),
            name,
            user: None,
            refusal: None,
            row: None,
            denial: None,
            failed: false,
            ended: false,
            asked: ctx.cache.generation(),
            is_unstorable: false,
            station: Box::default(),
            audience: Audience::default(),
            stage,
            waiter: None,
        }
    }

    /// Whether somebody may go on with it.
    pub(super) fn is_of(&self, owner: &LoginOwner) -> bool {
        self.owner == *owner
    }
    /// Index of the RADIUS client; `None` over Diameter.
    pub(super) const fn client(&self) -> Option<u32> {
        self.owner.client()
    }
    /// The RADIUS clients have other indices.
    pub(super) fn renumber_client(&mut self, number: impl FnOnce(u32) -> u32) {
        if let LoginOwner::Radius(client) = &mut self.owner {
            *client = number(*client);
        }
    }
    /// Where the request came from that it has before it.
    pub(super) fn source(&self) -> Option<Source> {
        self.pending.as_ref().map(|pending| pending.source)
    }
    /// Whether it has taken too long in all.
    pub(super) fn is_overdue(&self, ctx: &Context) -> bool {
        ctx.now.since(self.begun) >= ctx.config.login_timeout
    }
    /// Whether the host knows its end already.
    pub(super) const fn is_told(&self) -> bool {
        self.ended
    }
    /// About how many octets of memory it counts as: what it holds, or its share by number of what all may hold.
    pub(super) fn octets(&self, config: &Config) -> usize {
        let request = self.pending.as_ref().map_or(0, |pending| pending.request.len());
        let eap = self.conversation().map_or(0, |eap| eap.server.memory());
        let share = config.max_half_open_octets / config.max_half_open.max(1);
        (SESSION + self.name.capacity() + request + eap).max(share.min(MAX_SHARE))
    }
    /// Says what happens to it, where it is traced.
    pub(super) fn trace(&self, ctx: &mut Context, text: impl FnOnce() -> String) {
        self.audience.tell(ctx, text);
    }
    /// A trace is over.
    pub(super) const fn untrace(&mut self, traces: Slots) {
        self.audience.leave(traces);
    }

    /// The method under way, where one is.
    fn conversation(&self) -> Option<&Conversation> {
        if let Stage::Eap(conversation) = &self.stage { Some(conversation) } else { None }
    }
    fn conversation_mut(&mut self) -> Option<&mut Conversation> {
        if let Stage::Eap(conversation) = &mut self.stage { Some(conversation) } else { None }
    }
    /// The name that a proof is for: inside a tunnel the one that is given there, empty until then.
    fn claimed(&self) -> &[u8] {
        match self.conversation().filter(|eap| eap.in_tunnel()) {
            Some(eap) => eap.server.identity().unwrap_or_default(),
            None => &self.name,
        }
    }
    /// Asks something of the host.
    fn assign(&mut self, ctx: &mut Context, what: Job) -> Step {
        let origin = JobOrigin::default().awaited_by(self.waiter.get_or_insert_default());
        ctx.outputs.job(usher_core::Job::new(self.audience.number(), what).of(origin));
        Step::Wait
    }
    /// Who is held back, of its station and the name that its proof is for.
    fn hold(&self, ctx: &mut Context) -> Option<Hold> {
        if ctx.held_back.nobody(ctx.now) {
            return None;
        }
        ctx.held_back.find(ctx.now, self.claimed(), self.pending.as_ref()?.station())
    }

    /// Says what the request holds that it has before it, where it is traced.
    fn tell_request(&mut self, ctx: &mut Context) {
        let Some(pending) = self.pending.as_ref().filter(|_| ctx.tracers.any()) else { return };
        let (inside, hidden) = match &self.stage {
            Stage::Eap(conversation) => (conversation.server.identity(), true),
            Stage::Identity { .. } | Stage::Looking(Proof::Eap(_)) => (None, true),
            _ => (None, false),
        };
        self.audience.join(ctx, &pending.request, inside, hidden);
        if self.audience.any() {
            let mut lines = alloc::vec![match &self.owner {
                LoginOwner::Radius(_) => format!("Access-Request from {}", pending.source.address()),
                LoginOwner::Diameter(origin) => format!("Diameter request of {origin}"),
            }];
            lines.extend(ctx.tracers.attributes(&pending.request));
            self.audience.tell_lines(ctx, self.owner.client(), lines);
        }
    }

    /// Begins, under the token that names it in jobs.
    pub(super) fn begin(&mut self, ctx: &mut Context, token: u64) -> Step {
        self.audience.set_number(token);
        self.tell_request(ctx);
        match self.stage {
            Stage::Identity { identifier } => {
                ctx.out.clear();
                packet::emit(&mut ctx.out, Code::Request, identifier, Type::IDENTITY, &[]);
                self.challenge(ctx)
            }
            Stage::Looking(Proof::Eap(identifier)) => self.identified(ctx, identifier),
            _ => self.look_up(ctx),
        }
    }

    /// A request goes on with it, with this EAP packet.
    pub(super) fn on_request(&mut self, ctx: &mut Context, pending: Pending, packet: &[u8]) -> Step {
        if self.renames(&pending) {
            if self.pending.is_some() {
                // The one before it is answered first.
                ctx.counters.busy += 1;
                return Step::Drop(pending);
            }
            self.pending = Some(pending);
            self.tell_request(ctx);
            let method = self.conversation().and_then(Conversation::method);
            return Step::reject(method, Reason::NameMismatch, packet.get(1).copied());
        }
        match &mut self.stage {
            Stage::Identity { identifier: asked } => match opening(packet) {
                Opening::Identity(name, identifier) if identifier == *asked => {
                    self.name = name.to_vec();
                    self.given = pending.request.get(kind::USER_NAME).unwrap_or_default().into();
                    self.pending = Some(pending);
                    self.stage = Stage::Looking(Proof::Eap(identifier));
                    self.tell_request(ctx);
                    self.identified(ctx, identifier)
                }
                _ => {
                    ctx.counters.bad_eap += 1;
                    self.pass_over(ctx, pending, packet)
                }
            },
            Stage::Eap(conversation) if conversation.wait.is_none() => {
                let costly = ctx.config.max_steps_waiting > 0 && conversation.server.is_costly(packet);
                if costly {
                    conversation.wait = Some(Wait::Turn(packet.to_vec()));
                }
                self.pending = Some(pending);
                self.tell_request(ctx);
                if costly { Step::PutOff } else { self.advance(ctx, packet) }
            }
            Stage::Eap(_) => {
                ctx.counters.busy += 1;
                self.pass_over(ctx, pending, packet)
            }
            Stage::Looking(_)
            | Stage::Verifying(_)
            | Stage::Naming(_)
            | Stage::Named(_)
            | Stage::Certificate(_)
            | Stage::Admission(_) => {
                ctx.counters.busy += 1;
                Step::Drop(pending)
            }
        }
    }

    /// Whether a request calls the user otherwise than the one with the identity did: its NAS would account the login as another's.
    fn renames(&self, pending: &Pending) -> bool {
        let named = pending.request.get(kind::USER_NAME).filter(|name| !name.is_empty());
        let begun = !matches!(self.stage, Stage::Identity { .. }) && !self.given.is_empty();
        begun && named.is_some_and(|name| *name != *self.given)
    }

    /// The packet whose turn it was waiting for, and does so no more.
    fn its_turn(&mut self) -> Option<Vec<u8>> {
        let wait = &mut self.conversation_mut()?.wait;
        match wait.take() {
            Some(Wait::Turn(packet)) => Some(packet),
            other => {
                *wait = other;
                None
            }
        }
    }
    /// It is its turn; `None`: it waits for none.
    pub(super) fn on_turn(&mut self, ctx: &mut Context) -> Option<Step> {
        self.its_turn().map(|packet| self.advance(ctx, &packet))
    }
    /// Its turn will not come.
    pub(super) fn on_displaced(&mut self, ctx: &mut Context) -> Step {
        if self.its_turn().is_none() {
            return Step::Wait;
        }
        ctx.counters.steps_dropped += 1;
        self.trace(ctx, || "dropped: too many handshakes wait for the processor".into());
        self.pending.take().map_or(Step::Wait, Step::Drop)
    }

    /// The host has looked a user up.
    pub(super) fn on_found(&mut self, ctx: &mut Context, found: Found) -> Result<Step, CommandError> {
        let (name, inner) = match &self.stage {
            Stage::Looking(_) => (&self.name[..], None),
            Stage::Named(approval) => (approval.inner.as_deref().unwrap_or_default(), None),
            Stage::Eap(conversation) => match &conversation.wait {
                Some(Wait::User(who)) => (who.name(), Some(who.clone())),
                _ => return Err(CommandError::UnknownToken),
            },
            _ => return Err(CommandError::UnknownToken),
        };
        let (user, fresh) = match found {
            Found::User(user) => (Some(user), true),
            Found::Remembered(user) => (Some(user), false),
            Found::Nobody => (None, true),
            // It is kept for nobody: of such names there are any number.
            Found::Unstorable => (None, false),
            Found::Unavailable => return Ok(Step::Undecided(Reason::StoreAway)),
        };
        if fresh {
            ctx.cache.keep(ctx.now, self.asked, name, user.as_ref());
        }
        if let Some(user) = &user {
            ctx.stand_ins.saw(name, user);
        }
        self.is_unstorable = user.is_none() && !fresh;
        if user.is_some() && !fresh {
            ctx.counters.remembered += 1;
            self.trace(ctx, || "the store is away: the user is taken as found a while ago".into());
        }
        Ok(match inner {
            Some(who) => self.answer_user(ctx, &who, user),
            None if matches!(self.stage, Stage::Named(_)) => self.named(ctx, user),
            None => self.found(ctx, user),
        })
    }

    /// The host has compared a password with its hash.
    pub(super) fn on_verified(&mut self, ctx: &mut Context, right: bool) -> Result<Step, CommandError> {
        // Of guesses that were made at once, those after the limit are worth nothing, right or wrong.
        let held = self.hold(ctx).is_some();
        Ok(match &self.stage {
            &Stage::Verifying(method) if held => Step::reject(Some(method), TOO_MANY, None),
            &Stage::Verifying(method) if right => self.approve(ctx, Box::new(Approval::new(method))),
            &Stage::Verifying(method) => Step::reject(Some(method), Reason::WrongPassword, None),
            Stage::Eap(conversation) if matches!(conversation.wait, Some(Wait::Password)) => {
                if held {
                    Step::reject(conversation.method(), TOO_MANY, Some(conversation.identifier))
                } else {
                    self.answer_eap(ctx, Answer::Password(right))
                }
            }
            _ => return Err(CommandError::UnknownToken),
        })
    }

    /// The host cannot do what it was asked.
    pub(super) fn on_unable(&self) -> Result<Step, CommandError> {
        let waits = match &self.stage {
            Stage::Eap(conversation) => matches!(conversation.wait, Some(Wait::User(_) | Wait::Password)),
            Stage::Identity { .. } => false,
            _ => true,
        };
        if waits { Ok(Step::Undecided(Reason::Busy)) } else { Err(CommandError::UnknownToken) }
    }

    /// It idles for too long.
    pub(super) fn on_expired(&self) -> Reason {
        // Whom it waits for. Who waits for an answer has done all that it could.
        if self.pending.is_none() {
            return Reason::GaveUp;
        }
        match &self.stage {
            // What the host asks of a certificate's issuer it may say itself; that it said nothing is no word of a responder.
            Stage::Verifying(_) | Stage::Certificate(_) => Reason::Busy,
            Stage::Eap(c) => match &c.wait {
                Some(Wait::Password | Wait::Turn(_)) => Reason::Busy,
                Some(Wait::User(_)) => Reason::StoreAway,
                None => Reason::GaveUp,
            },
            Stage::Looking(_) | Stage::Naming(_) | Stage::Named(_) | Stage::Admission(_) => Reason::StoreAway,
            Stage::Identity { .. } => Reason::GaveUp,
        }
    }

    /// Answers by the EAP request that was written.
    fn challenge(&mut self, ctx: &mut Context) -> Step {
        let Some(pending) = self.pending.take() else { return Step::Wait };
        ctx.counters.challenges += 1;
        if ctx.tracers.any() {
            let words = trace::eap(&ctx.out);
            self.trace(ctx, || format!("Access-Challenge: {words}"));
        }
        if self.station.is_empty() {
            self.station = pending.station().into();
        }
        Step::Challenge(pending)
    }

    /// Passes over a packet that answers nothing. A Diameter client is told so, with the EAP request that is still to be
    /// answered (RFC 4072 §2.4), unless it sent an EAP request itself, which is a failure (§2.8.4). A RADIUS client hears
    /// nothing.
    fn pass_over(&self, ctx: &mut Context, pending: Pending, packet: &[u8]) -> Step {
        ctx.out.clear();
        match &self.stage {
            Stage::Eap(conversation) => {
                ctx.out.extend_from_slice(conversation.server.open_request().unwrap_or_default());
            }
            &Stage::Identity { identifier } => {
                packet::emit(&mut ctx.out, Code::Request, identifier, Type::IDENTITY, &[]);
            }
            _ => {}
        }
        let of_a_peer = !matches!(opening(packet), Opening::Request(_));
        if matches!(pending.asker, Asker::Diameter(..)) && of_a_peer && !ctx.out.is_empty() {
            Step::Again(pending)
        } else {
            Step::Drop(pending)
        }
    }

    /// Its EAP server has no use for what its peer said; `packet` where that is known.
    fn ignored(&mut self, ctx: &mut Context, packet: &[u8]) -> Step {
        ctx.counters.bad_eap += 1;
        self.trace(ctx, || "dropped: this answers nothing that was asked".into());
        match self.pending.take() {
            Some(pending) => self.pass_over(ctx, pending, packet),
            None => Step::Wait,
        }
    }

    /// The peer has said who it is, in the response of this identifier.
    fn identified(&mut self, ctx: &mut Context, identifier: u8) -> Step {
        // RFC 3579 §2.1: the request's User-Name is the name that EAP gives. Of a peer that gives none the NAS makes up
        // one (RFC 5080 §2.9).
        let given = self.pending.as_ref().and_then(|pending| pending.request.get(kind::USER_NAME));
        if self.name.is_empty() || self.name == given.unwrap_or_default() {
            self.look_up(ctx)
        } else {
            Step::reject(None, Reason::NameMismatch, Some(identifier))
        }
    }

    fn look_up(&mut self, ctx: &mut Context) -> Step {
        let hold = self.hold(ctx);
        let Stage::Looking(proof) = &self.stage else { return Step::Wait };
        if let Some(hold) = hold {
            let (method, identifier) = match proof {
                Proof::Eap(identifier) => (None, Some(*identifier)),
                proof => (proof.method(), None),
            };
            let may_be_another =
                method.is_none() && hold == Hold::Name && ctx.config.methods.iter().any(|m| is_tunnel(*m));
            if !may_be_another {
                return Step::reject(method, TOO_MANY, identifier);
            }
        }
        let name = if let Proof::Mab(address, _) = proof { &address[..] } else { &self.name };
        if let Some(user) = ctx.known(name) {
            return self.found(ctx, user);
        }
        let name = name.to_vec();
        self.trace(ctx, || format!("user {}: the host is asked", trace::name(&name)));
        self.ask_host(ctx, name)
    }

    /// Asks the host for a user.
    fn ask_host(&mut self, ctx: &mut Context, name: Vec<u8>) -> Step {
        self.asked = ctx.cache.generation();
        self.assign(ctx, Job::Lookup { owner: self.owner.clone(), name })
    }

    /// What holds of a user for the request that it has before it, or why the user may not log in.
    fn holds(&mut self, ctx: &mut Context, user: Option<Arc<User>>) -> Result<Arc<User>, Reason> {
        let unknown = if self.is_unstorable { Reason::UnstorableName } else { Reason::UnknownUser };
        let user = user.ok_or(unknown)?;
        if let Some(row) = &user.unreadable {
            self.row = Some(row.to_string().into());
            return Err(Reason::BadRows);
        }
        for row in &*user.left_out {
            self.trace(ctx, || format!("left out, since it cannot be understood: {row}"));
        }
        let request = self.pending.as_ref().map(|pending| &pending.request).ok_or(Reason::Checks)?;
        let user = match user.resolve(request) {
            Ok(user) => user,
            Err(unmet) => {
                self.row = Some(unmet.to_string().into());
                return Err(Reason::Checks);
            }
        };
        if user.rejected {
            return Err(Reason::Locked);
        }
        if user.expires.is_some_and(|end| end <= ctx.wall()) {
            return Err(Reason::Expired);
        }
        Ok(user)
    }

    /// Gets its user, or whoever stands in for one who may not log in.
    fn know(&mut self, ctx: &mut Context, user: Result<Arc<User>, Reason>) -> Arc<User> {
        self.refusal = user.as_ref().err().copied();
        let user = user.unwrap_or_else(|reason| {
            self.trace(ctx, || {
                let row = self.row_of(reason).map(|row| format!(" ({row})")).unwrap_or_default();
                format!("who may not log in: {reason}{row}; what follows is as for a user")
            });
            ctx.stand_ins.of(self.claimed(), &ctx.config.users, ctx.config.mab)
        });
        self.user = Some(user.clone());
        user
    }

    /// The look-up has ended.
    fn found(&mut self, ctx: &mut Context, user: Option<Arc<User>>) -> Step {
        let hold = self.hold(ctx);
        let user = self.holds(ctx, user);
        let user = self.know(ctx, user);
        let Stage::Looking(proof) = &mut self.stage else { return Step::Wait };
        let proof = core::mem::replace(proof, Proof::Eap(0));
        if let Proof::Eap(identifier) = proof {
            return self.propose(ctx, &user, hold, identifier);
        }
        let Some(method) = proof.method() else { return Step::Wait };
        if hold.is_some() {
            return Step::reject(Some(method), TOO_MANY, None);
        }
        let (proof, method) = match proof {
            // A user with a password proves it, also where the name is an address.
            Proof::Mab(_, Some(password)) if !user.may_use(method) => (Proof::Pap(password), Method::Pap),
            proof => (proof, method),
        };
        let offered = method == Method::Mab || ctx.config.methods.contains(&method);
        if !offered || !user.may_use(method) {
            let reason = if offered { why_not(&user, method) } else { Reason::NoMethod };
            return Step::reject(Some(method), reason, None);
        }
        match proof::weigh(proof, &user, &self.name) {
            Worth::Right(reply) => self.approve(ctx, Box::new(Approval { reply, ..Approval::new(method) })),
            Worth::Wrong => Step::reject(Some(method), Reason::WrongPassword, None),
            Worth::Ask(hash, password) => {
                self.stage = Stage::Verifying(method);
                self.verify(ctx, self.name.clone(), hash, password)
            }
        }
    }

    /// Has the host compare a password with its hash.
    fn verify(&mut self, ctx: &mut Context, name: Vec<u8>, hash: Key<String>, password: Key) -> Step {
        self.trace(ctx, || "the host compares the password with its hash".into());
        self.assign(ctx, Job::Verify { owner: self.owner.clone(), name, hash, password })
    }

    /// Begins EAP with what may admit this user, or somebody who is known inside a tunnel only.
    fn propose(&mut self, ctx: &mut Context, user: &User, hold: Option<Hold>, identifier: u8) -> Step {
        if hold == Some(Hold::Station) {
            return Step::reject(None, TOO_MANY, Some(identifier));
        }
        let held = hold.is_some();
        let mut proposed = offers(&ctx.config, user, &self.name, held);
        if proposed.is_empty() && !held {
            // A user whom no method can admit looks like one whom some could.
            let eap = ctx.config.methods.iter().filter(|method| method.eap_type().is_some());
            let reason = most_telling(eap.map(|method| why_not(user, *method)));
            let stand_in = self.know(ctx, Err(reason));
            proposed = offers(&ctx.config, &stand_in, &self.name, held);
        }
        if proposed.is_empty() {
            let reason = if held { TOO_MANY } else { Reason::NoMethod };
            return Step::reject(None, reason, Some(identifier));
        }
        let wall = ctx.wall();
        let mtu = self.pending.as_ref().and_then(|p| mtu(&p.request));
        let without_extended_master_secret =
            self.client().is_some_and(|client| ctx.config.without_extended_master_secret.contains(&client));
        let context = method::Context { rng: &mut ctx.rng, wall, mtu, without_extended_master_secret };
        let server = Server::new(proposed, identifier, context);
        self.stage = Stage::Eap(Box::new(Conversation { server, wait: None, identifier }));
        self.converse(ctx)
    }

    /// Gives the method what its peer said.
    fn advance(&mut self, ctx: &mut Context, packet: &[u8]) -> Step {
        self.trace(ctx, || trace::eap(packet));
        let held = !self.failed && self.hold(ctx).is_some();
        let Some(conversation) = self.conversation_mut() else { return Step::Wait };
        conversation.identifier = packet.get(1).copied().unwrap_or_default();
        if held {
            return Step::reject(conversation.method(), TOO_MANY, Some(conversation.identifier));
        }
        if conversation.server.handle(packet) { self.converse(ctx) } else { self.ignored(ctx, packet) }
    }

    /// Does what the method says.
    fn converse(&mut self, ctx: &mut Context) -> Step {
        let Stage::Eap(conversation) = &mut self.stage else { return Step::Wait };
        match conversation.step(&mut ctx.outputs, &mut ctx.out) {
            Progress::Request => {
                self.count_refusal(ctx);
                self.conclude(ctx);
                self.challenge(ctx)
            }
            Progress::Success(approval) => self.approve(ctx, approval),
            Progress::Failure => {
                let (reason, detail) = conversation.why_failed(self.user.as_deref(), &ctx.config);
                let (method, identifier) = (conversation.method(), Some(conversation.identifier));
                Step::Reject(Reject { method, reason, detail, identifier })
            }
            Progress::Ask(Question::User { name }) => self.ask_user(ctx, Who::Named(name)),
            Progress::Ask(Question::Resume(remembered)) => self.ask_user(ctx, Who::Remembered(remembered)),
            Progress::Ask(Question::Password { password }) => self.ask_password(ctx, password),
            Progress::Ignored => self.ignored(ctx, &[]),
        }
    }

    /// Counts a login as failed as soon as its peer is told so: who guesses does not stay to be turned away.
    fn count_refusal(&mut self, ctx: &mut Context) {
        if self.failed || !ctx.held_back.counts() {
            return;
        }
        let refuses = self.conversation().is_some_and(|eap| eap.server.refuses());
        if !refuses || !self.why(Reason::WrongPassword).counts() {
            return;
        }
        self.failed = true;
        let (client, name) = (self.client(), self.claimed().to_vec());
        let station = self.pending.as_ref().map(Pending::station).unwrap_or_default().to_vec();
        ctx.held_back.failed(ctx.now, &name, &station);
        ctx.outputs.event(Event::Failed { client, name, station });
    }

    /// A method asks who a user is.
    fn ask_user(&mut self, ctx: &mut Context, who: Who) -> Step {
        self.audience.look_inside(ctx, who.name());
        if self.hold(ctx).is_some() {
            // Not even looked up.
            return self.answer_user(ctx, &who, None);
        }
        if ctx.is_elsewhere(who.name()) {
            return self.answer_user(ctx, &who, None);
        }
        if let Some(user) = ctx.known(who.name()) {
            self.trace(ctx, || who.to_string());
            return self.answer_user(ctx, &who, user);
        }
        self.trace(ctx, || format!("{who}: the host is asked"));
        let name = who.name().to_vec();
        if let Some(conversation) = self.conversation_mut() {
            conversation.wait = Some(Wait::User(who));
        }
        self.ask_host(ctx, name)
    }

    /// Tells a method who the user is whom it asked for.
    fn answer_user(&mut self, ctx: &mut Context, who: &Who, user: Option<Arc<User>>) -> Step {
        let held = self.hold(ctx).is_some();
        let tunnel = self.conversation().and_then(Conversation::method);
        let may = |user: &User| {
            let proves = user.password.is_some() || matches!(who, Who::Remembered(_));
            tunnel.is_some_and(|tunnel| user.may_use(tunnel)) && proves
        };
        let elsewhere = ctx.is_elsewhere(who.name());
        let user = match self.holds(ctx, user) {
            _ if held => Err(TOO_MANY),
            _ if elsewhere => Err(Reason::NoRealm),
            Ok(user) if !may(&user) => Err(match tunnel.filter(|tunnel| !user.may_use(*tunnel)) {
                Some(_) => Reason::MethodForbidden,
                None => Reason::NoPassword,
            }),
            user => user,
        };
        let user = match who {
            Who::Remembered(remembered) => user.and_then(|user| self.resumes(ctx, remembered, user)),
            Who::Named(_) => user,
        };
        let why = user.as_ref().err().copied();
        let user = self.know(ctx, user);
        let answer = match (who, secret(&user).filter(|_| !held), user.inside()) {
            (Who::Remembered(_), ..) => match why {
                None => Answer::Resume(true),
                Some(Reason::StaleSession) => Answer::Resume(false),
                // The session is as good as it was: it is its user who may not log in now.
                Some(_) => Answer::Unavailable,
            },
            (_, Some(secret), only) if why.is_some() => Answer::Refused(secret, only),
            (_, Some(secret), Some(only)) => Answer::Restricted(secret, only),
            (_, secret, _) => Answer::User(secret),
        };
        self.answer_eap(ctx, answer)
    }

    /// Whether a TLS session may let in again whom it let in before: the user, who may still log in, still proves that by
    /// the same, and by a method that still does.
    fn resumes(&self, ctx: &Context, remembered: &Remembered, user: Arc<User>) -> Result<Arc<User>, Reason> {
        let anonymous = is_anonymous(&self.name);
        let same = anonymous
            || remembered.inner.is_some()
            || canonical_name(&self.name) == canonical_name(&remembered.name);
        let may = match (remembered.inner, user.inside()) {
            (Some(inner), Some(only)) => only.contains(&inner),
            _ => true,
        };
        let proof = equal(&credential(&ctx.shard.key, &user), &remembered.credential);
        if same && may && proof { Ok(user) } else { Err(Reason::StaleSession) }
    }

    /// A method asks whether a password is right.
    fn ask_password(&mut self, ctx: &mut Context, password: Key) -> Step {
        let right = match self.user.as_ref().and_then(|u| u.password.as_ref()) {
            Some(Password::Argon2(hash)) => {
                let (name, hash) = (self.claimed().to_vec(), hash.clone());
                if let Some(conversation) = self.conversation_mut() {
                    conversation.wait = Some(Wait::Password);
                }
                return self.verify(ctx, name, hash, password);
            }
            Some(Password::Clear(clear)) => equal(clear, &password),
            Some(Password::NtHash(hash)) => equal(&**hash, &nt_hash(&password)),
            None => false,
        };
        self.answer_eap(ctx, Answer::Password(right))
    }

    /// Goes on with the answer to what a method asked.
    fn answer_eap(&mut self, ctx: &mut Context, answer: Answer) -> Step {
        let Some(conversation) = self.conversation_mut() else { return Step::Wait };
        conversation.wait = None;
        if conversation.server.answer(answer) { self.converse(ctx) } else { self.ignored(ctx, &[]) }
    }
}
