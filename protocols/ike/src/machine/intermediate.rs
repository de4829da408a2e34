//! IKE_INTERMEDIATE (RFC 9242): further key exchanges before anybody says who it is (RFC 9370), such as one that a quantum
//! computer does not break.

use super::authenticate::{self, state};
use super::event::EndReason;
use super::sa::{Context, Exchange, IkeSa};
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType};
use crate::keys::Seeds;
use crate::payload::{Notify, Payload};
use crate::suite::exchange;
use crate::work;
use alloc::vec::Vec;

const IKE_INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;

/// The next further key exchange of an initiator; without one it proves who it is.
pub(super) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let Some(method) = state(sa).and_then(|state| state.additional.front().copied()) else {
        let next = sa.next_request;
        if let Some(state) = state(sa) {
            state.first_id = next;
        }
        return authenticate::initiator::begin(sa, cx);
    };
    cx.work(work::KEY_EXCHANGE);
    let begun = exchange(method).and_then(|algorithm| algorithm.begin(cx.rng).ok());
    let Some(begun) = begun else { return sa.end(cx, EndReason::Unsupported) };
    let payloads = [Payload::KeyExchange { method, data: begun.public().to_vec() }];
    let said = sa.plain(IKE_INTERMEDIATE, false, &payloads);
    authenticates(sa, true, &said);
    if let Some(state) = state(sa) {
        state.begun = Some(begun);
    }
    sa.request(cx, IKE_INTERMEDIATE, &payloads, Exchange::Intermediate);
}

/// What one side has said is authenticated with its proof (RFC 9242 §3.3.2).
fn authenticates(sa: &mut IkeSa, initiator: bool, said: &[u8]) {
    let Some(session) = &sa.session else { return };
    let prf = session.algorithms.prf;
    let key = if initiator { session.keys.sk_pi.clone() } else { session.keys.sk_pr.clone() };
    let Some(state) = state(sa) else { return };
    let (ours, theirs) = state.between.get_or_insert_default();
    let all = if initiator { ours } else { theirs };
    let before = core::mem::take(all);
    prf.with_key(&key).code(&[&before, said], all);
}

/// The keys after a further key exchange.
fn advance(sa: &mut IkeSa, cx: &mut Context<'_>, secret: &[u8]) {
    cx.work(work::DERIVE);
    let (spis, initiator) = (sa.spis, sa.initiator);
    let Some(nonces) = state(sa).map(|state| (state.nonces().0.to_vec(), state.nonces().1.to_vec())) else {
        return;
    };
    let seeds = Seeds {
        initiator_nonce: &nonces.0,
        responder_nonce: &nonces.1,
        initiator_spi: spis.0,
        responder_spi: spis.1,
    };
    let Some(session) = sa.session.take() else { return };
    let keys = session.keys.advanced(&session.algorithms, secret, &seeds);
    sa.session = session.advanced(keys, initiator);
    sa.tell_keys(cx);
    if let Some(state) = state(sa) {
        state.additional.pop_front();
    }
}

fn key_exchange(payloads: &[Payload]) -> Option<(KeyExchangeMethod, &[u8])> {
    authenticate::find(payloads, |payload| match payload {
        Payload::KeyExchange { method, data } => Some((*method, &data[..])),
        _ => None,
    })
}

/// The responder's half.
pub(super) fn response(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let said = core::mem::take(&mut sa.received);
    authenticates(sa, false, &said);
    let expected =
        state(sa).and_then(|state| Some((state.additional.front().copied()?, state.begun.take()?)));
    let (Some((method, begun)), Some((theirs, public))) = (expected, key_exchange(payloads)) else {
        return sa.end(cx, EndReason::Refused);
    };
    cx.work(work::KEY_EXCHANGE);
    match begun.finish(public) {
        Ok(secret) if method == theirs => advance(sa, cx, &secret),
        _ => return sa.end(cx, EndReason::Protocol),
    }
    begin(sa, cx);
}

/// The initiator's half.
pub(super) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let said = core::mem::take(&mut sa.received);
    let method = state(sa).and_then(|state| state.additional.front().copied());
    let (Some(method), Some((theirs, public))) = (method, key_exchange(payloads)) else {
        return sa.refuse(cx, IKE_INTERMEDIATE, Notify::new(NotifyType::INVALID_SYNTAX));
    };
    let answered = exchange(method).and_then(|algorithm| {
        cx.answers(algorithm);
        algorithm.answer(cx.rng, public).ok()
    });
    let Some((public, secret)) = answered.filter(|_| method == theirs) else {
        return sa.refuse(cx, IKE_INTERMEDIATE, Notify::new(NotifyType::INVALID_SYNTAX));
    };
    authenticates(sa, true, &said);
    let payloads = Vec::from([Payload::KeyExchange { method, data: public }]);
    let answer = sa.plain(IKE_INTERMEDIATE, true, &payloads);
    authenticates(sa, false, &answer);
    // The answer is still under the keys of the question.
    sa.respond(cx, IKE_INTERMEDIATE, &payloads);
    advance(sa, cx, &secret);
    let next = sa.expected;
    if let Some(state) = state(sa) {
        state.first_id = next;
    }
}
