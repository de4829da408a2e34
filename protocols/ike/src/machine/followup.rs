//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the further key exchanges of a CREATE_CHILD_SA exchange, before what it is about is made.
//!
//! Nothing is made before the last of them, so that a collision of two rekeyings is told by TEMPORARY_FAILURE, by both sides where
//! both have begun: each tries again after a while of its own.

use super::child::Granted;
use super::collision::{ChildAction, ChildEvent, ChildRekeying, SaAction, SaEvent, SaRekeying};
use super::create::{self, Gathered, LEFT_OVER, Nonces, Secrets};
use super::sa::{Context, Exchange, IkeSa};
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType};
use crate::header::Spi;
use crate::message::notifies;
use crate::payload::{Notify, Payload, Proposal};
use crate::suite::exchange;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};
use usher_crypto::digest::equal;
use usher_crypto::exchange::KeyExchange;

const IKE_FOLLOWUP_KE: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;
/// How long a responder waits for the next of them: the longest time that §2.2.4 names.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request of this side.
#[derive(Debug)]
pub(super) struct Request {
    gathered: Gathered,
    method: KeyExchangeMethod,
    begun: Box<dyn KeyExchange>,
    /// Those after this one.
    methods: VecDeque<KeyExchangeMethod>,
}

/// What a responder makes when the last of them is done.
#[derive(Debug)]
pub(super) enum Makes {
    /// A CHILD_SA, in the place of the one that receives at this SPI.
    Child { granted: Box<Granted>, replaces: Option<u32> },
    /// The IKE_SA that takes the place of this one.
    Ike { spis: (Spi, Spi), chosen: Proposal },
}

/// What a responder expects.
#[derive(Debug)]
pub(super) struct Expected {
    /// Comes back with the next request.
    link: [u8; 16],
    methods: VecDeque<KeyExchangeMethod>,
    secrets: Secrets,
    nonces: Nonces,
    pub(super) makes: Makes,
    /// It is forgotten then.
    pub(super) until: Instant,
}

/// What a notification says that links an exchange to the next.
pub(super) fn link(payloads: &[Payload]) -> Option<&Notify> {
    notifies(payloads).find(|notify| notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE)
}

/// The next further key exchange; after the last, what was asked for is made.
pub(super) fn begin(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    gathered: Gathered,
    mut methods: VecDeque<KeyExchangeMethod>,
    payloads: &[Payload],
) {
    let Some(method) = methods.pop_front() else { return create::made(sa, cx, gathered) };
    let Some(link) = link(payloads).cloned() else {
        cx.counters.syntax += 1;
        return create::refused(sa, cx, gathered.request, &Notify::new(NotifyType::INVALID_SYNTAX));
    };
    cx.work(work::KEY_EXCHANGE);
    let begun = exchange(method).and_then(|algorithm| algorithm.begin(cx.rng).ok());
    let Some(begun) = begun else {
        return create::refused(sa, cx, gathered.request, &Notify::new(NotifyType::NO_PROPOSAL_CHOSEN));
    };
    let payloads = [Payload::KeyExchange { method, data: begun.public().to_vec() }, Payload::Notify(link)];
    let request = Box::new(Request { gathered, method, begun, methods });
    sa.request(cx, IKE_FOLLOWUP_KE, &payloads, Exchange::FollowUp(request));
}

/// The response to a request of this side.
pub(super) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, request: Request, payloads: &[Payload]) {
    let Request { mut gathered, method, begun, methods } = request;
    if let Some(error) = notifies(payloads).find(|notify| notify.kind.is_error()).cloned() {
        return create::refused(sa, cx, gathered.request, &error);
    }
    let public = create::key_exchange(payloads).filter(|(theirs, _)| *theirs == method);
    let secret = public.and_then(|(_, public)| {
        cx.work(work::KEY_EXCHANGE);
        begun.finish(public).ok()
    });
    let Some(secret) = secret else {
        cx.counters.syntax += 1;
        return create::refused(sa, cx, gathered.request, &Notify::new(NotifyType::INVALID_SYNTAX));
    };
    gathered.secrets.add(&secret);
    begin(sa, cx, gathered, methods, payloads);
}

/// A responder waits for the further key exchanges of what it has granted. Gives the notification that says so.
pub(super) fn expect(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    makes: Makes,
    methods: VecDeque<KeyExchangeMethod>,
    secrets: Secrets,
    nonces: Nonces,
) -> Payload {
    let link = cx.random();
    let until = cx.now + PATIENCE;
    sa.expected_keys = Some(Box::new(Expected { link, methods, secrets, nonces, makes, until }));
    Payload::Notify(Notify::with(NotifyType::ADDITIONAL_KEY_EXCHANGE, link))
}

/// The initiator's half.
pub(super) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let fits = |expected: &Expected| {
        link(payloads).is_some_and(|link| equal(&link.data, &expected.link)) && expected.until > cx.now
    };
    if !sa.expected_keys.as_deref().is_some_and(fits) {
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, Notify::new(NotifyType::STATE_NOT_FOUND));
    }
    let Some(mut expected) = sa.expected_keys.take() else { return };
    // It has moved since it began: nothing new is made for a place that is not proved.
    if sa.is_path_unproved() {
        cx.counters.temporary_failures += 1;
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, Notify::new(NotifyType::TEMPORARY_FAILURE));
    }
    let method = expected.methods.pop_front();
    let public = create::key_exchange(payloads).filter(|(theirs, _)| Some(*theirs) == method);
    let answered = method.zip(public).and_then(|(method, (_, public))| {
        let algorithm = exchange(method)?;
        cx.answers(algorithm);
        Some((method, algorithm.answer(cx.rng, public).ok()?))
    });
    let Some((method, (data, secret))) = answered else {
        cx.counters.syntax += 1;
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, Notify::new(NotifyType::INVALID_SYNTAX));
    };
    expected.secrets.add(&secret);
    let mut answer = Vec::from([Payload::KeyExchange { method, data }]);
    if expected.methods.is_empty() {
        return finish(sa, cx, *expected, answer);
    }
    let Expected { methods, secrets, nonces, makes, .. } = *expected;
    answer.push(expect(sa, cx, makes, methods, secrets, nonces));
    sa.respond(cx, IKE_FOLLOWUP_KE, &answer);
}

/// The last is done: what was granted is made.
fn finish(sa: &mut IkeSa, cx: &mut Context<'_>, expected: Expected, answer: Vec<Payload>) {
    let Expected { secrets, nonces, makes, .. } = expected;
    let done = match makes {
        Makes::Child { granted, replaces } => child(sa, cx, *granted, replaces, &secrets, &nonces),
        Makes::Ike { spis, chosen } => {
            let row = SaRekeying::step(sa.state, SaEvent::PeerRekeys, |_| false);
            let free = row.is_some_and(|row| !row.actions.contains(&SaAction::TemporaryFailure));
            let born =
                if free { create::successor(sa, cx, false, spis, &chosen, &secrets, &nonces) } else { None };
            if let Some(born) = born {
                sa.respond(cx, IKE_FOLLOWUP_KE, &answer);
                let born = Some((born, create::lowest(&nonces)));
                return create::sa_event(sa, cx, SaEvent::PeerRekeys, born);
            }
            false
        }
    };
    if done {
        return sa.respond(cx, IKE_FOLLOWUP_KE, &answer);
    }
    cx.counters.temporary_failures += 1;
    sa.respond_notify(cx, IKE_FOLLOWUP_KE, Notify::new(NotifyType::TEMPORARY_FAILURE));
}

fn child(
    sa: &mut IkeSa,
    cx: &mut Context<'_>,
    granted: Granted,
    replaces: Option<u32>,
    secrets: &Secrets,
    nonces: &Nonces,
) -> bool {
    let row = match replaces {
        None => None,
        Some(spi) => {
            let old = sa.children.iter().position(|child| child.sa.inbound == spi);
            let row = old.and_then(|at| {
                Some((at, ChildRekeying::step(sa.children[at].state, ChildEvent::PeerRekeys, |_| false)?))
            });
            let free = |row: &[ChildAction]| {
                !row.contains(&ChildAction::TemporaryFailure) && !row.contains(&ChildAction::Remember)
            };
            match row.filter(|(_, row)| free(row.actions)) {
                // Meanwhile it has ended, or this side has begun to replace it.
                None => return false,
                row => row,
            }
        }
    };
    if !super::child::install_granted(sa, cx, granted, secrets, nonces) {
        return false;
    }
    if let Some((at, row)) = row {
        sa.children[at].state = row.to;
        sa.children[at].rekey_at = Some(cx.now + LEFT_OVER);
    }
    true
}
