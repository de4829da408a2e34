//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the additional key exchanges of a CREATE_CHILD_SA exchange.
//!
//! The SA is created after the last of them. Until then, a rekeying collision is answered with TEMPORARY_FAILURE, by
//! both sides if both have begun. Each tries again after a wait of its own.

use super::child::GrantedChildSa;
use super::collision::{ChildAction, ChildEvent, ChildRekeying, SaAction, SaEvent, SaRekeying};
use super::create::{self, CreateChildResult, KeyExchangeSecrets, LEFT_OVER, NoncePair};
use super::sa::{IkeEndpointContext, IkeSa, PendingExchange};
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType};
use crate::header::Spi;
use crate::message::notify_payloads;
use crate::payload::{NotifyPayload, Payload, Proposal};
use crate::suite::exchange_algorithm;
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::exchange::KeyExchange;

const IKE_FOLLOWUP_KE: ExchangeType = ExchangeType::IKE_FOLLOWUP_KE;
/// The responder's wait for the next key exchange: the longest time of §2.2.4.
const FOLLOWUP_TIMEOUT: Duration = Duration::from_secs(20);

/// A request of this side.
#[derive(Debug)]
pub(super) struct FollowupRequest {
    gathered: CreateChildResult,
    method: KeyExchangeMethod,
    key_exchange: Box<dyn KeyExchange>,
    /// The methods after this one.
    methods: VecDeque<KeyExchangeMethod>,
}

/// The SA that a responder creates after the last key exchange.
#[derive(Debug)]
pub(super) enum PendingFollowupSa {
    /// A CHILD_SA, which replaces the one with this inbound SPI.
    Child { granted: Box<GrantedChildSa>, replaces: Option<u32> },
    /// The IKE_SA that replaces this one.
    Ike { spis: (Spi, Spi), chosen: Proposal },
}

/// The additional key exchanges that a responder expects.
#[derive(Debug)]
pub(super) struct ExpectedFollowup {
    /// The link that the next request has to return.
    link: [u8; 16],
    methods: VecDeque<KeyExchangeMethod>,
    secrets: KeyExchangeSecrets,
    nonces: NoncePair,
    pub(super) makes: PendingFollowupSa,
    /// The time at which it is dropped.
    pub(super) until: Instant,
}

/// Returns the ADDITIONAL_KEY_EXCHANGE notification that links an exchange to the next.
pub(super) fn find_link_notify(payloads: &[Payload]) -> Option<&NotifyPayload> {
    notify_payloads(payloads).find(|notify| notify.kind == NotifyType::ADDITIONAL_KEY_EXCHANGE)
}

/// Sends the next additional key exchange. After the last, creates the SA.
pub(super) fn start_next_followup(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    gathered: CreateChildResult,
    mut methods: VecDeque<KeyExchangeMethod>,
    payloads: &[Payload],
) {
    let Some(method) = methods.pop_front() else { return create::finish_create_exchange(sa, cx, gathered) };
    let Some(link) = find_link_notify(payloads).cloned() else {
        cx.counters.syntax += 1;
        return create::handle_create_refusal(
            sa,
            cx,
            gathered.request,
            &NotifyPayload::new(NotifyType::INVALID_SYNTAX),
        );
    };
    cx.count_work(work::KEY_EXCHANGE);
    let begun = exchange_algorithm(method).and_then(|algorithm| algorithm.start_exchange(cx.rng).ok());
    let Some(begun) = begun else {
        return create::handle_create_refusal(
            sa,
            cx,
            gathered.request,
            &NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN),
        );
    };
    let payloads =
        [Payload::KeyExchange { method, data: begun.public_value().to_vec() }, Payload::Notify(link)];
    let request = Box::new(FollowupRequest { gathered, method, key_exchange: begun, methods });
    sa.request_protected(cx, IKE_FOLLOWUP_KE, &payloads, PendingExchange::FollowUp(request));
}

/// Handles the response to this side's request.
pub(super) fn handle_followup_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    request: FollowupRequest,
    payloads: &[Payload],
) {
    let FollowupRequest { mut gathered, method, key_exchange: begun, methods } = request;
    if let Some(error) = notify_payloads(payloads).find(|notify| notify.kind.is_error()).cloned() {
        return create::handle_create_refusal(sa, cx, gathered.request, &error);
    }
    let public = create::key_exchange(payloads).filter(|(theirs, _)| *theirs == method);
    let secret = public.and_then(|(_, public)| {
        cx.count_work(work::KEY_EXCHANGE);
        begun.derive_secret(public).ok()
    });
    let Some(secret) = secret else {
        cx.counters.syntax += 1;
        return create::handle_create_refusal(
            sa,
            cx,
            gathered.request,
            &NotifyPayload::new(NotifyType::INVALID_SYNTAX),
        );
    };
    gathered.secrets.append_further_secret(&secret);
    start_next_followup(sa, cx, gathered, methods, payloads);
}

/// Expects the additional key exchanges of a granted request. Returns the link notification.
pub(super) fn expect_followup_exchanges(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    makes: PendingFollowupSa,
    methods: VecDeque<KeyExchangeMethod>,
    secrets: KeyExchangeSecrets,
    nonces: NoncePair,
) -> Payload {
    let link = cx.random_octets();
    let until = cx.now + FOLLOWUP_TIMEOUT;
    sa.expected_keys = Some(Box::new(ExpectedFollowup { link, methods, secrets, nonces, makes, until }));
    Payload::Notify(NotifyPayload::with_data(NotifyType::ADDITIONAL_KEY_EXCHANGE, link))
}

/// Handles a request of the peer.
pub(super) fn handle_followup_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: &[Payload]) {
    let fits = |expected: &ExpectedFollowup| {
        find_link_notify(payloads).is_some_and(|link| constant_time_eq(&link.data, &expected.link))
            && expected.until > cx.now
    };
    if !sa.expected_keys.as_deref().is_some_and(fits) {
        // RFC 9370, 2.2.4: a stalled exchange is forgotten after a while.
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, NotifyPayload::new(NotifyType::STATE_NOT_FOUND));
    }
    let Some(mut expected) = sa.expected_keys.take() else { return };
    // The peer has moved since its request. No SA is created before its new address is proved.
    if sa.is_peer_address_unproved() {
        cx.counters.temporary_failures += 1;
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
    }
    let method = expected.methods.pop_front();
    let public = create::key_exchange(payloads).filter(|(theirs, _)| Some(*theirs) == method);
    let answered = method.zip(public).and_then(|(method, (_, public))| {
        let algorithm = exchange_algorithm(method)?;
        cx.count_answered_exchange(algorithm);
        Some((method, algorithm.answer_exchange(cx.rng, public).ok()?))
    });
    let Some((method, (data, secret))) = answered else {
        cx.counters.syntax += 1;
        return sa.respond_notify(cx, IKE_FOLLOWUP_KE, NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    expected.secrets.append_further_secret(&secret);
    let mut answer = Vec::from([Payload::KeyExchange { method, data }]);
    if expected.methods.is_empty() {
        return finish_followup(sa, cx, *expected, answer);
    }
    let ExpectedFollowup { methods, secrets, nonces, makes, .. } = *expected;
    answer.push(expect_followup_exchanges(sa, cx, makes, methods, secrets, nonces));
    sa.respond_protected(cx, IKE_FOLLOWUP_KE, &answer);
}

/// Creates the granted SA after the last key exchange.
fn finish_followup(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    expected: ExpectedFollowup,
    answer: Vec<Payload>,
) {
    let ExpectedFollowup { secrets, nonces, makes, .. } = expected;
    let done = match makes {
        PendingFollowupSa::Child { granted, replaces } => {
            install_followup_child(sa, cx, *granted, replaces, &secrets, &nonces)
        }
        PendingFollowupSa::Ike { spis, chosen } => {
            let row = SaRekeying::step(sa.state, SaEvent::PeerRekeys, |_| false);
            let free = row.is_some_and(|row| !row.actions.contains(&SaAction::TemporaryFailure));
            let born = if free {
                create::create_replacement_ike_sa(sa, cx, false, spis, &chosen, &secrets, &nonces)
            } else {
                None
            };
            if let Some(born) = born {
                sa.respond_protected(cx, IKE_FOLLOWUP_KE, &answer);
                let born = Some((born, create::lowest_nonce(&nonces)));
                return create::apply_sa_rekey_event(sa, cx, SaEvent::PeerRekeys, born);
            }
            false
        }
    };
    if done {
        return sa.respond_protected(cx, IKE_FOLLOWUP_KE, &answer);
    }
    cx.counters.temporary_failures += 1;
    sa.respond_notify(cx, IKE_FOLLOWUP_KE, NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
}

fn install_followup_child(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    granted: GrantedChildSa,
    replaces: Option<u32>,
    secrets: &KeyExchangeSecrets,
    nonces: &NoncePair,
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
                // The peer may not rekey a CHILD_SA that has ended meanwhile, or that this side has begun to rekey.
                None => return false,
                row => row,
            }
        }
    };
    if !super::child::install_granted_child(sa, cx, granted, secrets, nonces) {
        return false;
    }
    if let Some((at, row)) = row {
        sa.children[at].state = row.to;
        sa.children[at].rekey_at = Some(cx.now + LEFT_OVER);
    }
    true
}
