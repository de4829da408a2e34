//! CREATE_CHILD_SA (RFC 7296 §1.3): another CHILD_SA, or a new one or a new IKE_SA in the place of an old.

use super::authenticate::{ChildAsked, responder::asked};
use super::child::{self, Made};
use super::collision::{
    ChildAction, ChildEvent, ChildRekeying, ChildState, Lowest, SaAction, SaEvent, SaRekeying, SaState,
};
use super::config::Mode;
use super::event::{EndReason, Event};
use super::followup::{self, Makes};
use super::initial::NONCE;
use super::resumption;
use super::sa::{Context, Exchange, IkeSa, Session, Task, jittered};
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType, ProtocolId};
use crate::header::Spi;
use crate::keys::Seeds;
use crate::message::notifies;
use crate::payload::{Notify, Payload, Proposal};
use crate::suite::{IkeAlgorithms, choose, exchange, is_offered, numbered};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_crypto::Key;
use usher_crypto::exchange::KeyExchange;

const CREATE_CHILD_SA: ExchangeType = ExchangeType::CREATE_CHILD_SA;
/// How long this side waits where the other says TEMPORARY_FAILURE (§2.25), and a tenth of it by chance.
const REST: Duration = Duration::from_secs(5);
/// When this side deletes what the other side has replaced and does not delete, and when it tries again to replace what it was
/// refused.
pub(super) const LEFT_OVER: Duration = Duration::from_secs(60);

/// Those of the initiator and of the responder of an exchange.
pub(super) type Nonces = (Vec<u8>, Vec<u8>);

/// The shared secrets of an exchange: of its first key exchange, where it has one, and of those that follow.
#[derive(Debug)]
pub(super) struct Secrets {
    first: Option<Key>,
    /// One after another.
    further: Key,
}

impl Default for Secrets {
    fn default() -> Self {
        Self { first: None, further: Key::new(Vec::new()) }
    }
}

impl Secrets {
    fn of(first: Option<Key>) -> Self {
        Self { first, ..Self::default() }
    }
    pub(super) fn add(&mut self, further: &Key) {
        // Nothing of the old octets is left behind.
        self.further = Key::new([&self.further[..], further].concat());
    }
    /// As keys are made of them.
    pub(super) fn parts(&self) -> (Option<&[u8]>, &[u8]) {
        (self.first.as_deref().map(Vec::as_slice), &self.further)
    }
}

/// What an answer to a request of this side came to.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) request: Request,
    nonces: Nonces,
    pub(super) secrets: Secrets,
    /// The response's.
    payloads: Vec<Payload>,
}

/// How often in [`LEFT_OVER`] the other side may replace an IKE_SA.
const REPLACED: usize = 8;

/// A request of this side.
#[derive(Debug)]
pub(super) struct Request {
    task: Task,
    exchange: Option<(KeyExchangeMethod, Box<dyn KeyExchange>)>,
    nonce: [u8; NONCE],
    /// The other side has asked for another method once.
    again: bool,
    /// At which the new CHILD_SA receives.
    spi: u32,
    /// That of the new IKE_SA.
    ike: Spi,
}

/// A key exchange that was answered.
#[derive(Debug)]
struct Exchanged {
    method: KeyExchangeMethod,
    public: Vec<u8>,
    secret: Key,
}

pub(super) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, task: Task) {
    let connection = sa.connection.clone();
    let rekeying = proposals_to_rekey(sa);
    let (proposals, child) = match &task {
        Task::CreateChild(number) => (&connection.children[*number].proposals, Some((*number, None))),
        Task::RekeyChild(spi) => {
            let found = sa.children.iter_mut().find(|child| child.sa.inbound == *spi);
            let Some(found) = found else { return };
            let Some(row) = ChildRekeying::step(found.state, ChildEvent::Rekey, |_| false) else { return };
            found.state = row.to;
            (&connection.children[found.config].proposals, Some((found.config, Some(*spi))))
        }
        _ => {
            let Some(row) = SaRekeying::step(sa.state, SaEvent::Rekey, |_| false) else { return };
            sa.state = row.to;
            (&rekeying, None)
        }
    };
    let method =
        proposals.iter().filter_map(Proposal::key_exchange).find(|method| exchange(*method).is_some());
    send(sa, cx, task, child, proposals, method, false);
}

fn send(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    task: Task,
    child: Option<(usize, Option<u32>)>,
    proposals: &[Proposal],
    method: Option<KeyExchangeMethod>,
    again: bool,
) {
    let begun = method.and_then(|method| {
        cx.work(work::KEY_EXCHANGE);
        Some((method, exchange(method)?.begin(cx.rng).ok()?))
    });
    let (nonce, ike, spi) = (cx.random(), cx.spi(), child::new_spi(sa, cx));
    let mut payloads = Vec::new();
    let connection = sa.connection.clone();
    let mut selectors = None;
    match child {
        Some((number, replaced)) => {
            let config = &connection.children[number];
            if let Some(replaced) = replaced {
                payloads.push(Payload::Notify(Notify::about(
                    NotifyType::REKEY_SA,
                    ProtocolId::ESP,
                    replaced,
                )));
            }
            if config.mode == Mode::Transport {
                payloads.push(Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE)));
            }
            let [proposed, initiator, responder] = child::offer(sa, config, proposals, spi);
            payloads.push(proposed);
            selectors = Some([initiator, responder]);
        }
        None => {
            payloads.push(Payload::SecurityAssociation(numbered(proposals.iter().cloned(), &ike.0)));
        }
    }
    payloads.push(Payload::Nonce(Vec::from(nonce)));
    if let Some((method, begun)) = &begun {
        payloads.push(Payload::KeyExchange { method: *method, data: begun.public().to_vec() });
    }
    payloads.extend(selectors.into_iter().flatten());
    let request = Box::new(Request { task, exchange: begun, nonce, again, spi, ike });
    sa.request(cx, CREATE_CHILD_SA, &payloads, Exchange::Create(request));
}

/// How an IKE_SA may be protected that takes the place of another: as it was agreed on at first, or without further key
/// exchanges, which the other side may know at the beginning alone.
fn proposals_to_rekey(sa: &IkeSa) -> Vec<Proposal> {
    let mut all = sa.connection.proposals.clone();
    let hybrid = sa.connection.proposals.iter().filter(|proposal| proposal.additional().next().is_some());
    all.extend(hybrid.map(Proposal::without_additional));
    all
}

fn nonce(payloads: &[Payload]) -> Option<&Vec<u8>> {
    payloads.iter().find_map(|payload| if let Payload::Nonce(nonce) = payload { Some(nonce) } else { None })
}
pub(super) fn key_exchange(payloads: &[Payload]) -> Option<(KeyExchangeMethod, &[u8])> {
    payloads.iter().find_map(|payload| match payload {
        Payload::KeyExchange { method, data } => Some((*method, &data[..])),
        _ => None,
    })
}
fn proposals(payloads: &[Payload]) -> Option<&[Proposal]> {
    payloads.iter().find_map(|payload| match payload {
        Payload::SecurityAssociation(proposals) => Some(&proposals[..]),
        _ => None,
    })
}

/// The response to a request of this side.
pub(super) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, mut request: Request, payloads: Vec<Payload>) {
    if let Some(error) = notifies(&payloads).find(|notify| notify.kind.is_error()).cloned() {
        return refused(sa, cx, request, &error);
    }
    let secret = match (request.exchange.take(), key_exchange(&payloads)) {
        (Some((method, begun)), Some((theirs, public))) if method == theirs => {
            cx.work(work::KEY_EXCHANGE);
            begun.finish(public).ok()
        }
        _ => None,
    };
    let chosen = proposals(&payloads).and_then(|all| all.first());
    // Forward secrecy that was asked for is not given up, nor is it had without an exchange.
    let exchanged = chosen.is_some_and(|chosen| chosen.key_exchange().is_some());
    let theirs = nonce(&payloads).cloned();
    let (Some(theirs), true) = (theirs, exchanged == secret.is_some()) else {
        cx.counters.syntax += 1;
        return refused(sa, cx, request, &Notify::new(NotifyType::INVALID_SYNTAX));
    };
    let methods = chosen.map(|chosen| chosen.additional().collect()).unwrap_or_default();
    let link = followup::link(&payloads).cloned().map(Payload::Notify);
    let nonces = (request.nonce.to_vec(), theirs);
    let gathered = Gathered { request, nonces, secrets: Secrets::of(secret), payloads };
    followup::begin(sa, cx, gathered, methods, link.as_slice());
}

/// All key exchanges of a request are done: what it asked for is there, or is not taken.
pub(super) fn made(sa: &mut IkeSa, cx: &mut Context<'_>, gathered: Gathered) {
    let Gathered { request: Request { task, spi, ike, .. }, nonces, secrets, payloads } = gathered;
    let chosen = proposals(&payloads).and_then(|all| all.first());
    match task {
        Task::CreateChild(config) => {
            let secrets = &secrets;
            let made = Made { config, spi, secrets, nonces: &nonces, replaces: None, first: false };
            child::accept(sa, cx, &made, &payloads);
        }
        Task::RekeyChild(old) => {
            let Some(config) =
                sa.children.iter().find(|child| child.sa.inbound == old).map(|child| child.config)
            else {
                return;
            };
            let secrets = &secrets;
            let made = Made { config, spi, secrets, nonces: &nonces, replaces: Some(old), first: false };
            let event = if child::accept(sa, cx, &made, &payloads) {
                ChildEvent::Answered
            } else {
                ChildEvent::Refused
            };
            child_event(sa, cx, old, event, Some((spi, &nonces)));
        }
        _ => {
            if secrets.first.is_none() {
                // Without a new secret there is no new IKE_SA, and what answers so is not to be dealt with.
                cx.counters.syntax += 1;
                sa_event(sa, cx, SaEvent::Refused, None);
                return sa.end(cx, EndReason::Protocol);
            }
            let chosen = chosen.filter(|chosen| {
                chosen.spi.len() == 8 && is_offered(&numbered(proposals_to_rekey(sa), &[]), chosen)
            });
            let peer = chosen.and_then(|chosen| chosen.spi[..].try_into().ok()).map(Spi);
            let (Some(peer), Some(chosen)) = (peer, chosen.filter(|one| IkeAlgorithms::of(one).is_some()))
            else {
                return sa_event(sa, cx, SaEvent::Refused, None);
            };
            let born = successor(sa, cx, true, (ike, peer), chosen, &secrets, &nonces);
            sa_event(sa, cx, SaEvent::Answered, born.map(|born| (born, lowest(&nonces))));
        }
    }
}

pub(super) fn lowest(nonces: &Nonces) -> Vec<u8> {
    nonces.0.clone().min(nonces.1.clone())
}

/// The other side would not.
pub(super) fn refused(sa: &mut IkeSa, cx: &mut Context<'_>, request: Request, error: &Notify) {
    let later = error.kind == NotifyType::TEMPORARY_FAILURE;
    if later {
        let rest = jittered(cx, REST);
        sa.rest_until = Some(cx.now + rest);
    }
    // Another key exchange method is wanted, once, of those that were offered.
    let wanted = (error.kind == NotifyType::INVALID_KE_PAYLOAD)
        .then(|| error.number())
        .flatten()
        .map(KeyExchangeMethod);
    let other = wanted.filter(|wanted| {
        !request.again
            && exchange(*wanted).is_some()
            && request.exchange.as_ref().is_some_and(|(method, _)| method != wanted)
    });
    let connection = sa.connection.clone();
    let rekeying = proposals_to_rekey(sa);
    let (child, proposals) = match &request.task {
        Task::CreateChild(number) => (Some((*number, None)), &connection.children[*number].proposals),
        Task::RekeyChild(spi) => match sa.children.iter().find(|child| child.sa.inbound == *spi) {
            Some(child) => (Some((child.config, Some(*spi))), &connection.children[child.config].proposals),
            None => return,
        },
        _ => (None, &rekeying),
    };
    let offered = |method: &KeyExchangeMethod| {
        proposals.iter().any(|p| p.of(crate::code::TransformType::KE).any(|t| t.id == method.0))
    };
    if let Some(method) = other.filter(offered) {
        cx.counters.invalid_ke += 1;
        return send(sa, cx, request.task, child, proposals, Some(method), true);
    }
    match request.task {
        Task::CreateChild(number) if !later => {
            cx.counters.children_refused += 1;
            let name = connection.children[number].name.clone();
            cx.outputs.event(Event::ChildRefused { sa: sa.id, name, why: error.kind });
        }
        Task::RekeyChild(spi) => {
            let gone = error.kind == NotifyType::CHILD_SA_NOT_FOUND;
            let event = if gone { ChildEvent::NotFound } else { ChildEvent::Refused };
            child_event(sa, cx, spi, event, None);
        }
        Task::Rekey => sa_event(sa, cx, SaEvent::Refused, None),
        _ => {}
    }
    if later {
        sa.plan(request.task);
    }
}

/// What a CHILD_SA comes to by the answer to its rekeying: which new one was made, of what nonces.
fn child_event(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    spi: u32,
    event: ChildEvent,
    made: Option<(u32, &Nonces)>,
) {
    let Some(at) = sa.children.iter().position(|child| child.sa.inbound == spi) else { return };
    let child = &mut sa.children[at];
    let ours = made.map(|(_, nonces)| lowest(nonces));
    let rival = child.rival.as_ref().map(|(_, lowest)| lowest.clone());
    let guard = |Lowest::Ours| matches!((&ours, &rival), (Some(ours), Some(theirs)) if ours < theirs);
    let Some(row) = ChildRekeying::step(child.state, event, guard) else { return };
    child.state = row.to;
    for action in row.actions {
        match action {
            ChildAction::DeleteOld => sa.plan(Task::DeleteChild(spi)),
            ChildAction::DeleteOurs => {
                if let Some((new, _)) = made {
                    cx.counters.collisions += 1;
                    sa.plan(Task::DeleteChild(new));
                }
            }
            ChildAction::Remove => {
                let child = &sa.children[at].sa;
                cx.remove(sa.id, child.inbound, child.outbound);
            }
            _ => {}
        }
    }
    match row.to {
        ChildState::Gone => {
            sa.children.remove(at);
        }
        ChildState::Replaced => sa.children[at].rekey_at = Some(cx.now + LEFT_OVER),
        ChildState::Installed => {
            // It was refused, and is tried again while the old one lasts.
            let config = &sa.connection.children[sa.children[at].config];
            sa.children[at].rekey_at = config.rekey_after.map(|_| cx.now + LEFT_OVER);
        }
        _ => {}
    }
}

/// A request of the other side.
pub(super) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let (Some(proposed), Some(theirs)) = (proposals(payloads), nonce(payloads)) else {
        return sa.refuse(cx, CREATE_CHILD_SA, Notify::new(NotifyType::INVALID_SYNTAX));
    };
    // Each may cost a key exchange.
    let most = cx.config.creates_per_minute;
    if sa.create_debt.is_of_a_minute(cx.now, most) {
        cx.counters.creates_held_back += 1;
        cx.counters.temporary_failures += 1;
        return sa.respond_notify(cx, CREATE_CHILD_SA, Notify::new(NotifyType::TEMPORARY_FAILURE));
    }
    sa.create_debt.add_of_a_minute(cx.now, most);
    if proposed.first().is_some_and(|proposal| proposal.protocol == ProtocolId::IKE) {
        return rekey(sa, cx, payloads, proposed, theirs);
    }
    let Ok(Some(asked)) = asked(payloads) else {
        return sa.refuse(cx, CREATE_CHILD_SA, Notify::new(NotifyType::INVALID_SYNTAX));
    };
    let answer = match create(sa, cx, payloads, &asked, theirs) {
        Ok(payloads) => payloads,
        Err(notify) => {
            if notify.kind == NotifyType::TEMPORARY_FAILURE {
                cx.counters.temporary_failures += 1;
            }
            alloc::vec![Payload::Notify(notify)]
        }
    };
    sa.respond(cx, CREATE_CHILD_SA, &answer);
}

/// Makes the CHILD_SA that the other side asks for.
fn create(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    payloads: &[Payload],
    asked: &ChildAsked,
    theirs: &[u8],
) -> Result<Vec<Payload>, Notify> {
    let temporary = || Notify::new(NotifyType::TEMPORARY_FAILURE);
    // While the IKE_SA is replaced or closed (§2.25.2), or keys of another request are still exchanged.
    if sa.state != SaState::Established || sa.expected_keys.is_some() || sa.is_path_unproved() {
        return Err(temporary());
    }
    let replaced = notifies(payloads).find(|notify| notify.kind == NotifyType::REKEY_SA);
    let mut old = None;
    if let Some(notify) = replaced {
        let about = notify.child_spi().filter(|_| notify.protocol == ProtocolId::ESP);
        let found = sa
            .children
            .iter()
            .position(|child| Some(child.sa.outbound) == about && child.state != ChildState::Bereft);
        let not_found = || Notify { kind: NotifyType::CHILD_SA_NOT_FOUND, ..notify.clone() };
        let at = found.ok_or_else(not_found)?;
        let row = ChildRekeying::step(sa.children[at].state, ChildEvent::PeerRekeys, |_| false);
        let row = row.ok_or_else(not_found)?;
        if row.actions.contains(&ChildAction::TemporaryFailure) {
            return Err(temporary());
        }
        old = Some((at, row));
    }
    let selected = child::select(sa, cx, asked, false).map_err(Notify::new)?;
    let wanted = selected.proposal.key_exchange();
    let further: VecDeque<_> = selected.proposal.additional().collect();
    if !further.is_empty()
        && old.as_ref().is_some_and(|(_, row)| row.actions.contains(&ChildAction::Remember))
    {
        return Err(temporary());
    }
    let exchanged = exchange_for(cx, wanted, payloads)?;
    let ours: [u8; NONCE] = cx.random();
    let nonces = (theirs.to_vec(), ours.to_vec());
    let replaces = old.as_ref().map(|(at, _)| sa.children[*at].sa.inbound);
    let secrets = Secrets::of(exchanged.as_ref().map(|exchanged| exchanged.secret.clone()));
    let mut middle = alloc::vec![Payload::Nonce(ours.to_vec())];
    middle.extend(
        exchanged.map(|exchanged| Payload::KeyExchange { method: exchanged.method, data: exchanged.public }),
    );
    if !further.is_empty() {
        let (granted, mut answer) =
            child::prepare(sa, cx, selected, asked.transport, replaces).map_err(Notify::new)?;
        let makes = Makes::Child { granted: Box::new(granted), replaces };
        middle.push(followup::expect(sa, cx, makes, further, secrets, nonces));
        before_selectors(&mut answer, middle);
        return Ok(answer);
    }
    let granted = child::grant(sa, cx, selected, asked.transport, &secrets, &nonces, replaces);
    let mut answer = granted.map_err(Notify::new)?;
    if let Some((at, row)) = old {
        let made = sa.children.last().map_or(0, |child| child.sa.inbound);
        let child = &mut sa.children[at];
        child.state = row.to;
        if row.actions.contains(&ChildAction::Remember) {
            child.rival = Some((made, lowest(&nonces)));
        } else {
            child.rekey_at = Some(cx.now + LEFT_OVER);
        }
    }
    before_selectors(&mut answer, middle);
    Ok(answer)
}

/// Puts payloads where those of a key exchange stand.
fn before_selectors(answer: &mut Vec<Payload>, payloads: Vec<Payload>) {
    let at = answer.iter().position(|payload| matches!(payload, Payload::TrafficSelectorsInitiator(_)));
    let at = at.unwrap_or(answer.len());
    answer.splice(at..at, payloads);
}

/// Answers the key exchange of a request, where one is wanted.
fn exchange_for(
    cx: &mut Context<'_>,
    wanted: Option<KeyExchangeMethod>,
    payloads: &[Payload],
) -> Result<Option<Exchanged>, Notify> {
    let Some(method) = wanted else { return Ok(None) };
    let public = match key_exchange(payloads) {
        Some((theirs, public)) if theirs == method => public,
        _ => {
            cx.counters.invalid_ke += 1;
            return Err(Notify::with(NotifyType::INVALID_KE_PAYLOAD, method.0.to_be_bytes()));
        }
    };
    let algorithm = exchange(method).ok_or(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN))?;
    cx.answers(algorithm);
    let answered = algorithm.answer(cx.rng, public).map_err(|_| Notify::new(NotifyType::INVALID_SYNTAX));
    let (public, secret) = answered?;
    Ok(Some(Exchanged { method, public, secret }))
}

/// The other side replaces the IKE_SA.
fn rekey(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload], proposed: &[Proposal], theirs: &[u8]) {
    let answer = match try_rekey(sa, cx, payloads, proposed, theirs) {
        Ok(answer) => answer,
        Err(notify) => {
            if notify.kind == NotifyType::TEMPORARY_FAILURE {
                cx.counters.temporary_failures += 1;
            }
            return sa.respond_notify(cx, CREATE_CHILD_SA, notify);
        }
    };
    let (payloads, born) = answer;
    sa.respond(cx, CREATE_CHILD_SA, &payloads);
    if let Some(born) = born {
        sa_event(sa, cx, SaEvent::PeerRekeys, Some(born));
    }
}

/// The answer, and the new IKE_SA with the lowest nonce, where no further key exchange comes first.
type Rekeyed = (Vec<Payload>, Option<(Box<IkeSa>, Vec<u8>)>);

fn try_rekey(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    payloads: &[Payload],
    proposed: &[Proposal],
    theirs: &[u8],
) -> Result<Rekeyed, Notify> {
    // While a CHILD_SA is made, replaced or closed by this side (§2.25.2).
    let busy = sa.outstanding.as_ref().is_some_and(|outstanding| match &outstanding.what {
        Exchange::Create(request) => request.task != Task::Rekey,
        Exchange::DeleteChild(_) | Exchange::FollowUp(_) => true,
        _ => false,
    });
    let busy = busy || sa.expected_keys.is_some() || sa.is_path_unproved();
    let row = SaRekeying::step(sa.state, SaEvent::PeerRekeys, |_| false);
    if busy || row.is_none_or(|row| row.actions.contains(&SaAction::TemporaryFailure)) {
        return Err(Notify::new(NotifyType::TEMPORARY_FAILURE));
    }
    // Those that were replaced stay for a while, and nobody may have more and more of them.
    sa.replaced_at.retain(|at| cx.now < *at + LEFT_OVER);
    if sa.replaced_at.len() >= REPLACED {
        return Err(Notify::new(NotifyType::TEMPORARY_FAILURE));
    }
    sa.replaced_at.push(cx.now);
    let no_proposal = || Notify::new(NotifyType::NO_PROPOSAL_CHOSEN);
    let mut chosen = choose(&proposals_to_rekey(sa), proposed).ok_or_else(no_proposal)?;
    IkeAlgorithms::of(&chosen).ok_or_else(no_proposal)?;
    let peer = chosen.spi[..].try_into().map(Spi).map_err(|_| Notify::new(NotifyType::INVALID_SYNTAX))?;
    let further: VecDeque<_> = chosen.additional().collect();
    // Nothing is there yet that a collision could decide about.
    if !further.is_empty() && row.is_some_and(|row| row.actions.contains(&SaAction::Hold)) {
        return Err(Notify::new(NotifyType::TEMPORARY_FAILURE));
    }
    let exchanged = exchange_for(cx, chosen.key_exchange(), payloads)?.ok_or_else(no_proposal)?;
    let (ours, spi): ([u8; NONCE], _) = (cx.random(), cx.spi());
    let nonces = (theirs.to_vec(), ours.to_vec());
    let Exchanged { method, public, secret } = exchanged;
    let (secrets, spis) = (Secrets::of(Some(secret)), (peer, spi));
    chosen.spi = spi.0.to_vec();
    let mut answer = alloc::vec![
        Payload::SecurityAssociation([chosen.clone()].into()),
        Payload::Nonce(ours.to_vec()),
        Payload::KeyExchange { method, data: public },
    ];
    if !further.is_empty() {
        answer.push(followup::expect(sa, cx, Makes::Ike { spis, chosen }, further, secrets, nonces));
        return Ok((answer, None));
    }
    let born = successor(sa, cx, false, spis, &chosen, &secrets, &nonces);
    let born = born.ok_or_else(no_proposal)?;
    Ok((answer, Some((born, lowest(&nonces)))))
}

/// The IKE_SA that takes the place of another.
pub(super) fn successor(
    sa: &IkeSa,
    cx: &mut Context<'_>,
    initiator: bool,
    spis: (Spi, Spi),
    chosen: &Proposal,
    secrets: &Secrets,
    nonces: &Nonces,
) -> Option<Box<IkeSa>> {
    let (old, algorithms) = (sa.session.as_ref()?, IkeAlgorithms::of(chosen)?);
    cx.work(work::DERIVE);
    let seeds = Seeds {
        initiator_nonce: &nonces.0,
        responder_nonce: &nonces.1,
        initiator_spi: spis.0,
        responder_spi: spis.1,
    };
    let (first, further) = secrets.parts();
    let keys = old.keys.rekeyed(old.algorithms.prf, &algorithms, (first?, further), &seeds);
    let mut born = Box::new(IkeSa::new(sa.connection.clone(), initiator, sa.path, cx.now));
    born.spis = spis;
    born.session = Some(Session::new(algorithms, keys, initiator)?);
    born.tell_keys(cx);
    born.nat = sa.nat;
    born.mobike = sa.mobike;
    born.fragmentation = sa.fragmentation;
    born.remote.clone_from(&sa.remote);
    born.given.clone_from(&sa.given);
    born.authenticated.clone_from(&sa.authenticated);
    born.replaced_at.clone_from(&sa.replaced_at);
    born.client = sa.client;
    born.proved = sa.proved;
    (born.era, born.proof_until, born.ticket_debt) = (sa.era, sa.proof_until, sa.ticket_debt);
    born.certificates.clone_from(&sa.certificates);
    (born.request_debt, born.create_debt) = (sa.request_debt, sa.create_debt);
    born.suite = cx.config.tickets.map(|_| Box::new(Proposal { spi: Vec::new(), ..chosen.clone() }));
    born.establish(cx);
    Some(born)
}

/// What an IKE_SA comes to by its rekeying, from either side.
pub(super) fn sa_event(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    event: SaEvent,
    born: Option<(Box<IkeSa>, Vec<u8>)>,
) {
    let (mut new, ours) = match born {
        Some((born, lowest)) => (Some(born), Some(lowest)),
        None => (None, None),
    };
    let theirs = sa.held.as_ref().map(|(_, lowest)| lowest.clone());
    let guard = |Lowest::Ours| matches!((&ours, &theirs), (Some(ours), Some(theirs)) if ours < theirs);
    let Some(row) = SaRekeying::step(sa.state, event, guard) else { return };
    sa.state = row.to;
    if row.to == SaState::Established {
        sa.rekey_at = sa.connection.rekey_after.map(|_| cx.now + LEFT_OVER);
    }
    for action in row.actions {
        match action {
            SaAction::Hold => sa.held = new.take().zip(ours.clone()),
            SaAction::InheritOurs => inherit(sa, cx, new.take()),
            SaAction::InheritTheirs => {
                let theirs = sa.held.take().map(|(held, _)| held);
                // Without a collision the one that the other side's request made.
                let heir = if event == SaEvent::PeerRekeys { new.take() } else { theirs };
                inherit(sa, cx, heir);
                sa.rekey_at = Some(cx.now + LEFT_OVER);
            }
            SaAction::KeepTheirs => {
                if let Some((mut held, _)) = sa.held.take() {
                    cx.counters.collisions += 1;
                    held.silent = true;
                    // Who made it deletes it, unless it never heard that it did.
                    held.state = SaState::Replaced;
                    held.rekey_at = Some(cx.now + LEFT_OVER);
                    cx.born.push(*held);
                }
            }
            SaAction::DeleteOurs => {
                if let Some(mut loser) = new.take() {
                    cx.counters.collisions += 1;
                    loser.silent = true;
                    loser.plan(Task::Delete(EndReason::Rekeyed));
                    cx.born.push(*loser);
                }
            }
            SaAction::DeleteOld => sa.plan(Task::Delete(EndReason::Rekeyed)),
            _ => {}
        }
    }
}

/// The CHILD_SAs and what is to be done go over to the new IKE_SA.
fn inherit(sa: &mut IkeSa, cx: &mut Context<'_>, heir: Option<Box<IkeSa>>) {
    let Some(mut heir) = heir else { return };
    cx.counters.rekeyed += 1;
    heir.children = core::mem::take(&mut sa.children);
    heir.tasks = core::mem::take(&mut sa.tasks);
    heir.tasks.retain(|task| *task != Task::Rekey);
    // The other side may have moved since the heir was made; the question where it is comes with the tasks.
    (heir.path, heir.proved, heir.nat) = (sa.path, sa.proved, sa.nat);
    heir.patience = sa.patience;
    resumption::renew(&mut heir, cx);
    heir.takes_place_of = Some(sa.id);
    sa.rekey_at = None;
    cx.born.push(*heir);
}
