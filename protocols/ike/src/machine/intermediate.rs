//! IKE_INTERMEDIATE (RFC 9242): additional key exchanges before authentication (RFC 9370), for example a post-quantum
//! one.

use super::authentication::initiator::{InitiatorFailure, InitiatorResult, InitiatorStep};
use super::authentication::{AuthenticationState, InitiatorAuthentication, ResponderAuthentication};
use super::base::IkeSaBase;
use super::context::IkeEndpointContext;
use super::event::EndReason;
use crate::code::ExchangeType;
use crate::message::find_key_exchange;
use crate::payload::Payload;
use crate::suite::exchange_algorithm;
use crate::work;
use alloc::vec::Vec;

const IKE_INTERMEDIATE: ExchangeType = ExchangeType::IKE_INTERMEDIATE;

/// Returns the next step of an initiator with keys: an additional key exchange, or after the last, authentication.
pub(super) fn continue_as_initiator(
    sa: &IkeSaBase,
    state: &mut InitiatorAuthentication,
    cx: &mut IkeEndpointContext,
) -> InitiatorResult {
    let Some(method) = state.common.additional.front().copied() else {
        state.common.first_id = sa.next_request;
        return state.start_authentication(sa, cx);
    };
    cx.count_work(work::KEY_EXCHANGE);
    let begun = exchange_algorithm(method).and_then(|algorithm| algorithm.start_exchange(&mut cx.rng).ok());
    let begun = begun.ok_or(InitiatorFailure::End(EndReason::Unsupported))?;
    let payloads = Vec::from([Payload::KeyExchange { method, data: begun.public_value().to_vec() }]);
    let said = sa.plain_message(IKE_INTERMEDIATE, false, &payloads);
    append_intermediate_auth_data(sa, &mut state.common, true, &said);
    state.key_exchange = Some(begun);
    Ok(InitiatorStep::Request(IKE_INTERMEDIATE, payloads))
}

/// Adds a message to the data that AUTH covers (RFC 9242 §3.3.2).
fn append_intermediate_auth_data(
    sa: &IkeSaBase,
    state: &mut AuthenticationState,
    initiator: bool,
    said: &[u8],
) {
    let Some(session) = &sa.session else { return };
    let key = if initiator { &session.keys.sk_pi } else { &session.keys.sk_pr };
    let (ours, theirs) = state.between.get_or_insert_default();
    let all = if initiator { ours } else { theirs };
    let before = core::mem::take(all);
    session.algorithms.prf.with_key(key).append_code(&[&before, said], all);
}

/// Updates the keys after an additional key exchange.
fn update_keys_after_exchange(
    sa: &mut IkeSaBase,
    state: &mut AuthenticationState,
    cx: &mut IkeEndpointContext,
    secret: &[u8],
) {
    cx.count_work(work::DERIVE);
    let Some(session) = sa.session.take() else { return };
    let seeds = sa.key_derivation_inputs(&state.nonces);
    let keys = session.keys.derive_updated(&session.algorithms, secret, &seeds);
    sa.session = session.with_updated_keys(keys, sa.initiator);
    sa.report_keys(cx);
    state.additional.pop_front();
}

/// Handles the responder's half. `received` is its message in the clear.
pub(super) fn handle_intermediate_response(
    sa: &mut IkeSaBase,
    state: &mut InitiatorAuthentication,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
    received: &[u8],
) -> InitiatorResult {
    append_intermediate_auth_data(sa, &mut state.common, false, received);
    let expected = state.common.additional.front().copied().zip(state.key_exchange.take());
    let (Some((method, begun)), Some((theirs, public))) = (expected, find_key_exchange(payloads)) else {
        return Err(InitiatorFailure::End(EndReason::Refused));
    };
    cx.count_work(work::KEY_EXCHANGE);
    match begun.derive_secret(public) {
        Ok(secret) if method == theirs => update_keys_after_exchange(sa, &mut state.common, cx, &secret),
        _ => return Err(InitiatorFailure::End(EndReason::Protocol)),
    }
    continue_as_initiator(sa, state, cx)
}

/// Handles the initiator's half, and responds. `received` is its message in the clear. False if it is invalid; the
/// IKE_SA then ends.
pub(super) fn handle_intermediate_request(
    sa: &mut IkeSaBase,
    state: &mut ResponderAuthentication,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
    received: &[u8],
) -> bool {
    let common = &mut state.common;
    let (Some(method), Some((theirs, public))) =
        (common.additional.front().copied(), find_key_exchange(payloads))
    else {
        return false;
    };
    let answered = exchange_algorithm(method).and_then(|algorithm| {
        cx.count_answered_exchange(algorithm);
        algorithm.answer_exchange(&mut cx.rng, public).ok()
    });
    let Some((public, secret)) = answered.filter(|_| method == theirs) else { return false };
    append_intermediate_auth_data(sa, common, true, received);
    let payloads = [Payload::KeyExchange { method, data: public }];
    let answer = sa.plain_message(IKE_INTERMEDIATE, true, &payloads);
    append_intermediate_auth_data(sa, common, false, &answer);
    // RFC 9242, 3.3.1: the response is still under the keys of the request.
    sa.respond_protected(cx, IKE_INTERMEDIATE, &payloads);
    update_keys_after_exchange(sa, common, cx, &secret);
    common.first_id = sa.expected;
    true
}
