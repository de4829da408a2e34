//! Logins that are not decided yet: which request goes on with which, how many there may be, and what is done about each
//! after a step.
//!
//! Steps that cost public-key operations, a millisecond each, wait in a queue of their own, the clients served in turn, and
//! one is done each time that the host calls. Between two calls the host hands in what came, so that a request that costs
//! microseconds waits for one such step and not for all of them.

use super::answer::{Asker, Verdict};
use super::api::LoginOwner;
use super::api::{Event, Job};
use super::ask::{Ask, Ending, Pending};
use super::context::Context;
use super::fronts::Fronts;
use super::half_open::{HalfOpen, Source};
use super::held::{Held, HeldReject};
use super::proof::{BadProof, Proof};
use super::reason::Reason;
use super::session::{Accepted, Opening, Reject, Session, Step, failure, opening};
use crate::users::bypass;
use alloc::vec::Vec;
use usher_core::fair::FairQueue;
use usher_core::timer::earliest;
use usher_core::{CommandError, Instant, SecureRng};
use usher_eap::packet::Type;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::server::Request;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Logins {
    sessions: HalfOpen<Session>,
    /// Sessions with a step that waits for its turn.
    turns: FairQueue<Source, u64>,
    /// Rejects of those that are no more.
    held: Held,
    /// The EAP packet that came.
    packet: Vec<u8>,
}

impl Logins {
    pub(super) fn new(rng: &mut SecureRng) -> Self {
        let sessions = HalfOpen::new(rng);
        Self { sessions, turns: FairQueue::new(), held: Held::default(), packet: Vec::new() }
    }
    pub(super) const fn sessions(&self) -> &HalfOpen<Session> {
        &self.sessions
    }
    /// Does something to each, in no order that counts.
    pub(super) fn for_each(&mut self, each: impl FnMut(&mut Session)) {
        self.sessions.for_each(each);
    }
    /// Steps that wait for their turn.
    pub(super) fn steps_waiting(&self) -> usize {
        self.turns.len()
    }
    /// Rejects held back.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
    /// When something is to be done again.
    pub(super) fn due(&self, ctx: &Context) -> Option<Instant> {
        if !self.turns.is_empty() {
            return Some(Instant::ZERO);
        }
        let idle = self.sessions.oldest().map(|(_, since)| since + ctx.config.session_timeout);
        earliest([idle, self.held.next()])
    }

    /// Takes an Access-Request whose user is known here.
    pub(super) fn access_request(&mut self, fronts: &mut Fronts, request: Request) {
        let password = request.user_password();
        let mut packet = core::mem::take(&mut self.packet);
        packet.clear();
        let is_eap = request.attributes.eap(&mut packet);
        let pending = Pending {
            asker: Asker::Radius(request.token),
            source: Source::Address(request.path.remote.ip()),
            arrived: fronts.ctx.now,
            request: request.attributes,
        };
        let ask = Ask { owner: LoginOwner::Radius(request.client), pending };
        let list = &ask.pending.request;
        let of_passwords = [kind::USER_PASSWORD, kind::CHAP_PASSWORD];
        if is_eap && of_passwords.iter().any(|&k| list.get(k).is_some()) {
            let failure = packet.get(1).map(|&identifier| failure(identifier));
            self.reject_at_once(fronts, ask, Reason::BadEap, failure.as_ref().map(|f| &f[..]));
        } else if is_eap {
            let token = list.get(kind::STATE).map(|state| fronts.ctx.shard.token(state));
            self.eap(fronts, ask, token, &packet);
        } else {
            let proof = match password {
                // One proof, or it is not said what counts (RFC 2865 §4.1, RFC 3579 §3.3).
                Ok(Some(_)) if list.get(kind::CHAP_PASSWORD).is_some() => Err(BadProof),
                Ok(Some(password)) => Ok(Some(Proof::Pap(password))),
                Ok(None) => Proof::read(list, &request.request_authenticator),
                Err(_) => Err(BadProof),
            };
            let bypass = if fronts.ctx.config.mab { bypass(list) } else { None };
            let proof = match (proof, bypass) {
                (Ok(Some(Proof::Pap(password))), Some(address)) => Ok(Proof::Mab(address, Some(password))),
                (Ok(None), Some(address)) => Ok(Proof::Mab(address, None)),
                (Ok(Some(proof)), _) => Ok(proof),
                (Ok(None), None) => Err(Reason::NoProof),
                // RFC 2865 §5: what has a wrong length is rejected, not passed over; the NAS would take us for dead.
                (Err(_), _) => Err(Reason::BadProof),
            };
            self.prove(fronts, ask, proof);
        }
        self.packet = packet;
    }

    /// Takes a request that carries EAP: one that begins a login, or one of the login that its State names, where there is
    /// such a one.
    pub(super) fn eap(&mut self, fronts: &mut Fronts, ask: Ask, token: Option<Option<u64>>, packet: &[u8]) {
        match token {
            None => self.begin_eap(fronts, ask, packet),
            Some(token) => self.go_on(fronts, ask, token, packet),
        }
    }

    /// Begins a login that one request decides, or turns it away that proves nothing.
    pub(super) fn prove(&mut self, fronts: &mut Fronts, ask: Ask, proof: Result<Proof, Reason>) {
        match proof {
            Ok(proof) => {
                let name = ask.name().to_vec();
                let session = Session::of_user(&fronts.ctx, ask, name, proof);
                self.open(fronts, session);
            }
            Err(reason) => self.reject_at_once(fronts, ask, reason, None),
        }
    }

    /// Begins a conversation. One that does not begin with who the peer is (RFC 3579 §2.1, §2.2, §2.6.2): who answers a
    /// request of its NAS's own is asked, and the rest is rejected.
    fn begin_eap(&mut self, fronts: &mut Fronts, ask: Ask, packet: &[u8]) {
        let session = match opening(packet) {
            Opening::Start => {
                let identifier = fronts.ctx.rng.next_u32() as u8;
                Session::nameless(&fronts.ctx, ask, identifier)
            }
            Opening::Identity(name, identifier) => {
                Session::of_user(&fronts.ctx, ask, name.to_vec(), Proof::Eap(identifier))
            }
            // Not the identifier that the NAS has used.
            Opening::Response(answered) => Session::nameless(&fronts.ctx, ask, answered.wrapping_add(1)),
            // A Nak that wishes for nothing, so that the peer does not ask again.
            Opening::Request(identifier) => {
                let nak = [2, identifier, 0, 6, Type::NAK.0, 0];
                return self.reject_at_once(fronts, ask, Reason::BadEap, Some(&nak));
            }
            Opening::Noise(identifier) => {
                let failure = identifier.map(failure);
                let eap = failure.as_ref().map(|f| &f[..]);
                return self.reject_at_once(fronts, ask, Reason::BadEap, eap);
            }
        };
        self.open(fronts, session);
    }

    /// Makes room for a login and begins it.
    fn open(&mut self, fronts: &mut Fronts, session: Session) {
        self.crowd_out(fronts, fronts.ctx.config.max_half_open.max(1));
        fronts.ctx.counters.sessions += 1;
        let Some(source) = session.source() else { return };
        let token = self.sessions.insert(fronts.ctx.now, source, session.octets(&fronts.ctx.config), session);
        if let Some(session) = self.sessions.get_mut(token) {
            let step = session.begin(&mut fronts.ctx, token);
            self.carry_out(fronts, token, step);
        }
    }

    /// Takes a request of a session that is under way; `token` is what its State names.
    fn go_on(&mut self, fronts: &mut Fronts, ask: Ask, token: Option<u64>, packet: &[u8]) {
        let session = token.and_then(|token| Some((token, self.sessions.get_mut(token)?)));
        let Some((token, session)) = session.filter(|(_, session)| session.is_of(&ask.owner)) else {
            return self.reject_unknown(fronts, ask, packet.get(1).copied());
        };
        if !session.is_overdue(&fronts.ctx) {
            let step = session.on_request(&mut fronts.ctx, ask.pending, packet);
            return self.hear(fronts, token, step);
        }
        self.carry_out(fronts, token, Step::Undecided(Reason::TooSlow));
        // Its end was told. The reject is as late as any.
        let Pending { asker, arrived, request, .. } = ask.pending;
        fronts.recycle(request);
        let reject = (asker, packet.get(1).copied(), Attributes::new());
        self.send_reject_at(fronts, arrived + fronts.ctx.config.reject_delay, reject);
    }

    /// Gives a session the host's answer.
    ///
    /// # Errors
    /// It is over, or asked nothing of the kind.
    pub(super) fn answered(
        &mut self,
        fronts: &mut Fronts,
        token: u64,
        answer: impl FnOnce(&mut Session, &mut Context) -> Result<Step, CommandError>,
    ) -> Result<(), CommandError> {
        let session = self.sessions.get_mut(token).ok_or(CommandError::UnknownToken)?;
        let step = answer(session, &mut fronts.ctx)?;
        self.carry_out(fronts, token, step);
        Ok(())
    }

    /// Does the step whose turn it is.
    pub(super) fn take_turn(&mut self, fronts: &mut Fronts) {
        while let Some((_, token)) = self.turns.pop() {
            // The session may have been pushed out, or have ended by its age.
            if let Some(step) =
                self.sessions.get_mut(token).and_then(|session| session.on_turn(&mut fronts.ctx))
            {
                return self.hear(fronts, token, step);
            }
        }
    }

    /// Has a session wait for its turn; the one that has no room for that loses its.
    fn put_off(&mut self, fronts: &mut Fronts, token: u64) {
        let Some(source) = self.sessions.get(token).and_then(Session::source) else { return };
        let displaced = self.turns.push(source, token, fronts.ctx.config.max_steps_waiting);
        if let Some((_, token)) = displaced
            && let Some(session) = self.sessions.get_mut(token)
        {
            let step = session.on_displaced(&mut fronts.ctx);
            self.carry_out(fronts, token, step);
        }
    }

    /// Ends sessions that idle for too long.
    pub(super) fn expire(&mut self, fronts: &mut Fronts) {
        while let Some((token, since)) = self.sessions.oldest() {
            if since + fronts.ctx.config.session_timeout > fronts.ctx.now {
                break;
            }
            let reason = self.sessions.get(token).map_or(Reason::GaveUp, Session::on_expired);
            self.carry_out(fronts, token, Step::Undecided(reason));
        }
    }

    /// Does what is to be done after what a peer sent. What changes nothing keeps no session alive.
    fn hear(&mut self, fronts: &mut Fronts, token: u64, step: Step) {
        if step.goes_on() {
            self.sessions.touch(fronts.ctx.now, token);
        }
        self.carry_out(fronts, token, step);
    }

    /// Does what is to be done about a session.
    fn carry_out(&mut self, fronts: &mut Fronts, token: u64, step: Step) {
        match step {
            Step::Wait => {}
            Step::Challenge(pending) => {
                let (eap, state) = (core::mem::take(&mut fronts.ctx.out), fronts.ctx.shard.state(token));
                fronts.answer(pending.asker, Verdict::Challenge { eap: &eap, state });
                fronts.ctx.out = eap;
                fronts.recycle(pending.request);
                self.weigh(fronts, token);
            }
            Step::Again(pending) => {
                let (eap, state) = (core::mem::take(&mut fronts.ctx.out), fronts.ctx.shard.state(token));
                fronts.answer(pending.asker, Verdict::Again { eap: &eap, state });
                fronts.ctx.out = eap;
                fronts.recycle(pending.request);
            }
            Step::Drop(pending) => fronts.drop_request(pending),
            Step::PutOff => self.put_off(fronts, token),
            Step::Admit(client, source, mut request) => {
                if !fronts.speaks_for(client, source, request.nas) {
                    request.nas = source;
                }
                fronts.ctx.assign(token, Job::Admit { client, request });
            }
            Step::Accept(grant) => {
                let Some(session) = self.sessions.remove(token) else { return };
                let accepted = match session.accept(&mut fronts.ctx, grant) {
                    Ok(Some(accepted)) => accepted,
                    Ok(None) => return,
                    Err((session, reject)) => return self.reject(fronts, *session, reject),
                };
                let Accepted { asker, eap, msk, method, reply, login } = accepted;
                let eap = eap.as_ref().map(|e| &e[..]);
                fronts.answer(asker, Verdict::Accept { eap, msk: msk.as_ref(), method, reply });
                fronts.ctx.list = fronts.attributes();
                fronts.ctx.outputs.event(Event::Accepted(login));
            }
            Step::Reject(reject) => {
                let Some(session) = self.sessions.remove(token) else { return };
                self.reject(fronts, session, reject);
            }
            Step::Undecided(reason) => {
                let Some(session) = self.sessions.remove(token) else { return };
                if session.is_told() {
                    session.trace(&mut fronts.ctx, || "the device did not answer any more".into());
                    return abandon(fronts, session);
                }
                let (asker, login) = session.undecided(&mut fronts.ctx, reason);
                match (asker, reason) {
                    (Some(asker), Reason::StoreAway | Reason::Busy) => fronts.unavailable(asker),
                    (Some(asker), _) => fronts.discard(asker),
                    (None, _) => fronts.ctx.list = fronts.attributes(),
                }
                fronts.ctx.outputs.event(Event::Undecided(login));
            }
        }
    }

    /// Ends a login whose user is turned away.
    fn reject(&mut self, fronts: &mut Fronts, session: Session, reject: Reject) {
        let Some((due, reject, login)) = session.reject(&mut fronts.ctx, reject) else { return };
        self.send_reject_at(fronts, due, reject);
        match login {
            Ok(login) => fronts.ctx.tell_rejected(login),
            Err(request) => fronts.recycle(request),
        }
    }

    /// A session may hold more, or less, than before.
    fn weigh(&mut self, fronts: &mut Fronts, token: u64) {
        let Some(session) = self.sessions.get(token) else { return };
        self.sessions.weigh(token, session.octets(&fronts.ctx.config));
        self.crowd_out(fronts, usize::MAX);
    }

    /// Pushes sessions out until there are fewer than so many, and until they hold no more than they may.
    fn crowd_out(&mut self, fronts: &mut Fronts, most: usize) {
        while self.sessions.len() >= most || self.sessions.octets() > fronts.ctx.config.max_half_open_octets {
            let oldest = self.sessions.crowded_out();
            let Some(session) = oldest.and_then(|oldest| self.sessions.remove(oldest)) else { break };
            fronts.ctx.counters.evicted += 1;
            session.trace(&mut fronts.ctx, || "dropped: too many unfinished sessions".into());
            fronts.ctx.outputs.event(Event::Evicted { client: session.client() });
            abandon(fronts, session);
        }
    }

    /// Rejects a request whose login is not there, as late as that of one that is: a login that was refused, and whose
    /// reject waits for its time, is no more there, and is not to be told so by asking again. The host is not told of a
    /// login that is turned away: there is none, or its end was told.
    fn reject_unknown(&mut self, fronts: &mut Fronts, ask: Ask, identifier: Option<u8>) {
        fronts.ctx.counters.rejected(Reason::UnknownSession);
        let begun = ask.begun();
        let Pending { asker, arrived, request, .. } = ask.pending;
        fronts.ctx.ended_elsewhere(begun, Ending::Undecided(Reason::UnknownSession), request);
        let reject = (asker, identifier, Attributes::new());
        self.send_reject_at(fronts, arrived + fronts.ctx.config.reject_delay, reject);
    }

    /// Turns somebody away who has no session, with this EAP packet where there is one to answer.
    fn reject_at_once(&mut self, fronts: &mut Fronts, ask: Ask, reason: Reason, eap: Option<&[u8]>) {
        let (begun, asker) = (ask.begun(), ask.pending.asker);
        fronts.ctx.ended_elsewhere(begun, Ending::Rejected(reason), ask.pending.request);
        fronts.answer(asker, Verdict::Reject { eap, reply: Attributes::new() });
    }

    fn send_reject_at(&mut self, fronts: &mut Fronts, due: Instant, (asker, identifier, reply): HeldReject) {
        if due <= fronts.ctx.now {
            fronts.turn_away(asker, identifier, reply);
        } else {
            self.held.push(due, (asker, identifier, reply));
            self.release(fronts);
        }
    }

    /// Sends held rejects whose time has come, and those that have no room.
    pub(super) fn release(&mut self, fronts: &mut Fronts) {
        while let Some(((asker, identifier, reply), early)) =
            self.held.pop(fronts.ctx.now, fronts.ctx.config.max_held)
        {
            fronts.ctx.counters.unheld += u64::from(early);
            fronts.turn_away(asker, identifier, reply);
        }
    }
}

/// Forgets a session that led to nothing; whoever waits for its answer gets none.
fn abandon(fronts: &mut Fronts, session: Session) {
    if let Some(pending) = session.abandon(&mut fronts.ctx) {
        fronts.drop_request(pending);
    }
}
