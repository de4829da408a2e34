//! IKE_INTERMEDIATE (RFC 9242): additional key exchanges before authentication (RFC 9370), for example a post-quantum
//! one.

use super::authenticate::{self, authentication_state};
use super::event::EndReason;
use super::sa::{IkeEndpointContext, IkeSa, PendingExchange};
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType};
use crate::keys::KeyDerivationInputs;
use crate::payload::{NotifyPayload, Payload};
use crate::suite::exchange_algorithm;
use crate::work;
use alloc::vec::Vec;

const IKE_INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;

/// Sends the next additional key exchange of an initiator. After the last, begins authentication.
pub(super) fn start_intermediate(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let Some(method) = authentication_state(sa).and_then(|state| state.additional.front().copied()) else {
        let next = sa.next_request;
        if let Some(state) = authentication_state(sa) {
            state.first_id = next;
        }
        return authenticate::initiator::start_authentication(sa, cx);
    };
    cx.count_work(work::KEY_EXCHANGE);
    let begun = exchange_algorithm(method).and_then(|algorithm| algorithm.start_exchange(cx.rng).ok());
    let Some(begun) = begun else { return sa.end_sa(cx, EndReason::Unsupported) };
    let payloads = [Payload::KeyExchange { method, data: begun.public_value().to_vec() }];
    let said = sa.plain_message(IKE_INTERMEDIATE, false, &payloads);
    append_intermediate_auth_data(sa, true, &said);
    if let Some(state) = authentication_state(sa) {
        state.key_exchange = Some(begun);
    }
    sa.request_protected(cx, IKE_INTERMEDIATE, &payloads, PendingExchange::Intermediate);
}

/// Adds a message to the data that AUTH covers (RFC 9242 §3.3.2).
fn append_intermediate_auth_data(sa: &mut IkeSa, initiator: bool, said: &[u8]) {
    let Some(session) = &sa.session else { return };
    let prf = session.algorithms.prf;
    let key = if initiator { session.keys.sk_pi.clone() } else { session.keys.sk_pr.clone() };
    let Some(state) = authentication_state(sa) else { return };
    let (ours, theirs) = state.between.get_or_insert_default();
    let all = if initiator { ours } else { theirs };
    let before = core::mem::take(all);
    prf.with_key(&key).append_code(&[&before, said], all);
}

/// Updates the keys after an additional key exchange.
fn update_keys_after_exchange(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, secret: &[u8]) {
    cx.count_work(work::DERIVE);
    let (spis, initiator) = (sa.spis, sa.initiator);
    let Some(nonces) =
        authentication_state(sa).map(|state| (state.nonces().0.to_vec(), state.nonces().1.to_vec()))
    else {
        return;
    };
    let seeds = KeyDerivationInputs {
        initiator_nonce: &nonces.0,
        responder_nonce: &nonces.1,
        initiator_spi: spis.0,
        responder_spi: spis.1,
    };
    let Some(session) = sa.session.take() else { return };
    let keys = session.keys.derive_updated(&session.algorithms, secret, &seeds);
    sa.session = session.with_updated_keys(keys, initiator);
    sa.report_keys(cx);
    if let Some(state) = authentication_state(sa) {
        state.additional.pop_front();
    }
}

fn key_exchange(payloads: &[Payload]) -> Option<(KeyExchangeMethod, &[u8])> {
    authenticate::find_payload(payloads, |payload| match payload {
        Payload::KeyExchange { method, data } => Some((*method, &data[..])),
        _ => None,
    })
}

/// Handles the responder's half.
pub(super) fn handle_intermediate_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: &[Payload],
) {
    let said = core::mem::take(&mut sa.received);
    append_intermediate_auth_data(sa, false, &said);
    let expected = authentication_state(sa)
        .and_then(|state| Some((state.additional.front().copied()?, state.key_exchange.take()?)));
    let (Some((method, begun)), Some((theirs, public))) = (expected, key_exchange(payloads)) else {
        return sa.end_sa(cx, EndReason::Refused);
    };
    cx.count_work(work::KEY_EXCHANGE);
    match begun.derive_secret(public) {
        Ok(secret) if method == theirs => update_keys_after_exchange(sa, cx, &secret),
        _ => return sa.end_sa(cx, EndReason::Protocol),
    }
    start_intermediate(sa, cx);
}

/// Handles the initiator's half.
pub(super) fn handle_intermediate_request(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: &[Payload],
) {
    let said = core::mem::take(&mut sa.received);
    let method = authentication_state(sa).and_then(|state| state.additional.front().copied());
    let (Some(method), Some((theirs, public))) = (method, key_exchange(payloads)) else {
        return sa.reject_request(cx, IKE_INTERMEDIATE, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let answered = exchange_algorithm(method).and_then(|algorithm| {
        cx.count_answered_exchange(algorithm);
        algorithm.answer_exchange(cx.rng, public).ok()
    });
    let Some((public, secret)) = answered.filter(|_| method == theirs) else {
        return sa.reject_request(cx, IKE_INTERMEDIATE, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    append_intermediate_auth_data(sa, true, &said);
    let payloads = Vec::from([Payload::KeyExchange { method, data: public }]);
    let answer = sa.plain_message(IKE_INTERMEDIATE, true, &payloads);
    append_intermediate_auth_data(sa, false, &answer);
    // RFC 9242, 3.3.1: the response is still under the keys of the request.
    sa.respond_protected(cx, IKE_INTERMEDIATE, &payloads);
    update_keys_after_exchange(sa, cx, &secret);
    let next = sa.expected;
    if let Some(state) = authentication_state(sa) {
        state.first_id = next;
    }
}
