//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the additional key exchanges of a CREATE_CHILD_SA exchange.
//!
//! The SA is created after the last of them. Until then, a rekeying collision is answered with TEMPORARY_FAILURE, by
//! both sides if both have begun. Each tries again after a wait of its own.

use super::base::NoncePair;
use super::child;
use super::collision::{ChildAction, ChildEvent, ChildRekeying, SaAction, SaEvent, SaRekeying};
use super::context::IkeEndpointContext;
use super::create::{self, CreateChildResult, LEFT_OVER};
use super::established::{
    EstablishedSa, ExpectedFollowup, GrantedChildSa, KeyExchangeSecrets, PeerRequestAnswer,
    PendingFollowupSa, SaExchange, StartedExchange,
};
use super::event::EndReason;
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType};
use crate::message::{find_error_notify, find_key_exchange, notify_payloads};
use crate::payload::{NotifyPayload, Payload};
use crate::suite::exchange_algorithm;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::exchange::KeyExchange;

/// The responder's wait for the next key exchange: the longest time of §2.2.4.
const FOLLOWUP_TIMEOUT: Duration = Duration::from_secs(20);

/// An IKE_FOLLOWUP_KE exchange of this side.
#[derive(Debug)]
struct FollowupRequest {
    gathered: CreateChildResult,
    method: KeyExchangeMethod,
    key_exchange: Box<dyn KeyExchange>,
    /// The methods after this one.
    methods: VecDeque<KeyExchangeMethod>,
}

/// Returns the ADDITIONAL_KEY_EXCHANGE notification that links an exchange to the next.
pub(super) fn find_link_notify(payloads: &[Payload]) -> Option<&NotifyPayload> {
    notify_payloads(payloads).find(|notify| notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE)
}

/// Begins the next additional key exchange. After the last, creates the SA.
///
/// # Errors
/// The reason why the IKE_SA ends.
pub(super) fn start_next_followup(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    gathered: CreateChildResult,
    mut methods: VecDeque<KeyExchangeMethod>,
    payloads: &[Payload],
) -> Result<Option<StartedExchange>, EndReason> {
    let Some(method) = methods.pop_front() else {
        return create::finish_create_exchange(sa, cx, gathered).map(|()| None);
    };
    let refuse =
        |sa: &mut EstablishedSa<'_>, cx: &mut IkeEndpointContext, gathered: CreateChildResult, kind| {
            Ok(create::handle_create_refusal(sa, cx, gathered.request, &NotifyPayload::new(kind)))
        };
    let Some(link) = find_link_notify(payloads).cloned() else {
        cx.counters.syntax += 1;
        return refuse(sa, cx, gathered, NotifyType::INVALID_SYNTAX);
    };
    cx.count_work(work::KEY_EXCHANGE);
    let begun = exchange_algorithm(method).and_then(|algorithm| algorithm.start_exchange(&mut cx.rng).ok());
    let Some(key_exchange) = begun else {
        return refuse(sa, cx, gathered, NotifyType::NO_PROPOSAL_CHOSEN);
    };
    let data = key_exchange.public_value().to_vec();
    let payloads = Vec::from([Payload::KeyExchange { method, data }, Payload::Notify(link)]);
    let exchange = Box::new(FollowupRequest { gathered, method, key_exchange, methods });
    Ok(Some(StartedExchange { kind: ExchangeType::IKE_FOLLOWUP_KE, payloads, exchange }))
}

impl SaExchange for FollowupRequest {
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        let Self { mut gathered, method, key_exchange, methods } = *self;
        if let Some(error) = find_error_notify(&payloads) {
            return Ok(create::handle_create_refusal(sa, cx, gathered.request, error));
        }
        let public = find_key_exchange(&payloads).filter(|(theirs, _)| *theirs == method);
        let secret = public.and_then(|(_, public)| {
            cx.count_work(work::KEY_EXCHANGE);
            key_exchange.derive_secret(public).ok()
        });
        let Some(secret) = secret else {
            cx.counters.syntax += 1;
            let invalid = NotifyPayload::new(NotifyType::INVALID_SYNTAX);
            return Ok(create::handle_create_refusal(sa, cx, gathered.request, &invalid));
        };
        gathered.secrets.append_further_secret(&secret);
        start_next_followup(sa, cx, gathered, methods, &payloads)
    }
    fn defers_peer_rekeying(&self) -> bool {
        true
    }
}

/// Expects the additional key exchanges of a granted request. Returns the link notification.
pub(super) fn expect_followup_exchanges(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    makes: PendingFollowupSa,
    methods: VecDeque<KeyExchangeMethod>,
    secrets: KeyExchangeSecrets,
    nonces: NoncePair,
) -> Payload {
    let link = cx.random_octets();
    let until = cx.now + FOLLOWUP_TIMEOUT;
    let expected = ExpectedFollowup { link, methods, secrets, nonces, makes, until };
    sa.state.expected_keys = Some(Box::new(expected));
    Payload::Notify(NotifyPayload::with_data(NotifyType::ADDITIONAL_KEY_EXCHANGE, link))
}

/// Answers a request of the peer.
pub(super) fn answer_followup_request(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
) -> PeerRequestAnswer {
    let fits = |expected: &ExpectedFollowup| {
        find_link_notify(payloads).is_some_and(|link| constant_time_eq(&link.data, &expected.link))
            && expected.until > cx.now
    };
    let Some(mut expected) = sa.state.expected_keys.take_if(|expected| fits(expected)) else {
        // RFC 9370, 2.2.4: a stalled exchange is forgotten after a while.
        return NotifyPayload::new(NotifyType::STATE_NOT_FOUND).into();
    };
    // The peer has moved since its request. No SA is created before its new address is proved.
    if sa.state.is_peer_address_unproved() {
        cx.counters.temporary_failures += 1;
        return NotifyPayload::new(NotifyType::TEMPORARY_FAILURE).into();
    }
    let method = expected.methods.pop_front();
    let public = find_key_exchange(payloads).filter(|(theirs, _)| Some(*theirs) == method);
    let answered = method.zip(public).and_then(|(method, (_, public))| {
        let algorithm = exchange_algorithm(method)?;
        cx.count_answered_exchange(algorithm);
        Some((method, algorithm.answer_exchange(&mut cx.rng, public).ok()?))
    });
    let Some((method, (data, secret))) = answered else {
        cx.counters.syntax += 1;
        return NotifyPayload::new(NotifyType::INVALID_SYNTAX).into();
    };
    expected.secrets.append_further_secret(&secret);
    let mut answer = Vec::from([Payload::KeyExchange { method, data }]);
    if !expected.methods.is_empty() {
        let ExpectedFollowup { methods, secrets, nonces, makes, .. } = *expected;
        answer.push(expect_followup_exchanges(sa, cx, makes, methods, secrets, nonces));
    } else if !create_expected_sa(sa, cx, *expected) {
        cx.counters.temporary_failures += 1;
        return NotifyPayload::new(NotifyType::TEMPORARY_FAILURE).into();
    }
    PeerRequestAnswer::Response(answer)
}

/// Creates the granted SA after the last key exchange. False if it can no longer be.
fn create_expected_sa(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    expected: ExpectedFollowup,
) -> bool {
    let ExpectedFollowup { secrets, nonces, makes, .. } = expected;
    match makes {
        PendingFollowupSa::Child { granted, replaces } => {
            install_followup_child(sa, cx, *granted, replaces, &secrets, &nonces)
        }
        PendingFollowupSa::Ike { spis, chosen } => {
            let row = SaRekeying::step(sa.state.rekeying, SaEvent::PeerRekeys, |_| false);
            if row.is_none_or(|row| row.actions.contains(&SaAction::TemporaryFailure)) {
                return false;
            }
            let born = create::create_replacement_ike_sa(sa, cx, false, spis, &chosen, &secrets, &nonces);
            let Some(born) = born else { return false };
            let born = Some((born, create::lowest_nonce(&nonces)));
            create::apply_sa_rekey_event(sa, cx, SaEvent::PeerRekeys, born);
            true
        }
    }
}

fn install_followup_child(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    granted: GrantedChildSa,
    replaces: Option<u32>,
    secrets: &KeyExchangeSecrets,
    nonces: &NoncePair,
) -> bool {
    let row = match replaces {
        None => None,
        Some(spi) => {
            let row = sa.state.find_child(spi).and_then(|at| {
                let state = sa.state.children[at].state;
                Some((at, ChildRekeying::step(state, ChildEvent::PeerRekeys, |_| false)?))
            });
            let free = |row: &[ChildAction]| {
                !row.contains(&ChildAction::TemporaryFailure) && !row.contains(&ChildAction::Remember)
            };
            match row.filter(|(_, row)| free(row.actions)) {
                // The peer may not rekey a CHILD_SA that has ended meanwhile, or that this side has begun to rekey.
                None => return false,
                row => row,
            }
        }
    };
    if !child::install_granted_child(sa, cx, granted, secrets, nonces) {
        return false;
    }
    if let Some((at, row)) = row {
        sa.state.children[at].state = row.to;
        sa.state.children[at].rekey_at = Some(cx.now + LEFT_OVER);
    }
    true
}
