//! CREATE_CHILD_SA (RFC 7296 §1.3): creates a CHILD_SA, or rekeys a CHILD_SA or the IKE_SA.

use super::base::{IkeSaBase, IkeSaKeyState, NONCE, NoncePair};
use super::child::{self, ChildSaRequest, RequestedChildSa};
use super::collision::{
    ChildAction, ChildEvent, ChildRekeying, ChildState, Lowest, SaAction, SaEvent, SaRekeying, SaState,
};
use super::config::IpsecMode;
use super::context::IkeEndpointContext;
use super::established::{
    EstablishedSa, EstablishedState, IkeSaTask, KeyExchangeSecrets, PeerRequestAnswer, PendingFollowupSa,
    SaEffect, SaExchange, StartedExchange, SuccessorSa,
};
use super::event::{EndReason, IkeEvent};
use super::followup;
use super::ticket_requests;
use crate::code::{ExchangeType, KeyExchangeMethod, NotifyType, ProtocolId, TransformType};
use crate::header::Spi;
use crate::keys::KeyDerivationInputs;
use crate::message::{find_error_notify, find_key_exchange, find_nonce, find_proposals, notify_payloads};
use crate::payload::{NotifyPayload, Payload, Proposal};
use crate::suite::{IkeAlgorithms, choose_proposal, exchange_algorithm, is_offered, number_proposals};
use crate::work;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::exchange::KeyExchange;

/// The wait after TEMPORARY_FAILURE (§2.25), with a tenth of jitter.
const REST: Duration = Duration::from_secs(5);
/// The time after which this side deletes an SA that the peer has replaced and not deleted. Also the time until a
/// refused rekeying is tried again.
pub(super) const LEFT_OVER: Duration = Duration::from_secs(60);

/// The result of this side's request, after its response.
#[derive(Debug)]
pub(super) struct CreateChildResult {
    pub(super) request: CreateChildRequest,
    nonces: NoncePair,
    pub(super) secrets: KeyExchangeSecrets,
    /// The payloads of the response.
    payloads: Vec<Payload>,
}

/// Most rekeyings of an IKE_SA by the peer within [`LEFT_OVER`].
const REPLACED: usize = 8;

/// A CREATE_CHILD_SA exchange of this side.
#[derive(Debug)]
pub(super) struct CreateChildRequest {
    task: IkeSaTask,
    exchange: Option<(KeyExchangeMethod, Box<dyn KeyExchange>)>,
    nonce: [u8; NONCE],
    /// True if the peer has already asked for another key exchange method.
    has_retried: bool,
    /// The inbound SPI of the new CHILD_SA.
    spi: u32,
    /// This side's SPI of the new IKE_SA.
    ike: Spi,
}

/// A key exchange that was answered.
#[derive(Debug)]
struct AnsweredKeyExchange {
    method: KeyExchangeMethod,
    public: Vec<u8>,
    secret: SecretValue,
}

/// Begins an exchange that creates a CHILD_SA, or rekeys a CHILD_SA or the IKE_SA. `None` if its SA cannot be rekeyed
/// any more.
pub(super) fn start_create_exchange(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    task: IkeSaTask,
) -> Option<StartedExchange> {
    let connection = sa.base.connection.clone();
    let rekeying = proposals_to_rekey(sa.base);
    let (proposals, child) = match &task {
        IkeSaTask::CreateChild(number) => (&connection.children[*number].proposals, Some((*number, None))),
        IkeSaTask::RekeyChild(spi) => {
            let found = sa.state.children.iter_mut().find(|child| child.sa.inbound == *spi)?;
            found.state = ChildRekeying::step(found.state, ChildEvent::Rekey, |_| false)?.to;
            (&connection.children[found.config].proposals, Some((found.config, Some(*spi))))
        }
        _ => {
            sa.state.rekeying = SaRekeying::step(sa.state.rekeying, SaEvent::Rekey, |_| false)?.to;
            (&rekeying, None)
        }
    };
    let method = proposals
        .iter()
        .filter_map(Proposal::key_exchange)
        .find(|method| exchange_algorithm(*method).is_some());
    Some(build_create_exchange(sa, cx, task, child, proposals, method, false))
}

fn build_create_exchange(
    sa: &EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    task: IkeSaTask,
    child: Option<(usize, Option<u32>)>,
    proposals: &[Proposal],
    method: Option<KeyExchangeMethod>,
    has_retried: bool,
) -> StartedExchange {
    let exchange = method.and_then(|method| {
        cx.count_work(work::KEY_EXCHANGE);
        Some((method, exchange_algorithm(method)?.start_exchange(&mut cx.rng).ok()?))
    });
    let expected = sa.state.expected_keys.as_deref();
    let (nonce, ike, spi) = (cx.random_octets(), cx.new_ike_spi(), child::new_spi(cx, expected));
    let mut payloads = Vec::new();
    let connection = &sa.base.connection;
    let mut selectors = None;
    match child {
        Some((number, replaced)) => {
            let config = &connection.children[number];
            if let Some(replaced) = replaced {
                payloads.push(Payload::Notify(NotifyPayload::for_child_sa(
                    NotifyType::REKEY_SA,
                    ProtocolId::ESP,
                    replaced,
                )));
            }
            if config.mode == IpsecMode::Transport {
                payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::USE_TRANSPORT_MODE)));
            }
            let assigned = &sa.state.assigned_addresses;
            let [proposed, initiator, responder] =
                child::build_child_offer(sa.base, assigned, config, proposals, spi);
            payloads.push(proposed);
            selectors = Some([initiator, responder]);
        }
        None => {
            payloads.push(Payload::SecurityAssociation(number_proposals(proposals.iter().cloned(), &ike.0)));
        }
    }
    payloads.push(Payload::Nonce(Vec::from(nonce)));
    if let Some((method, begun)) = &exchange {
        payloads.push(Payload::KeyExchange { method: *method, data: begun.public_value().to_vec() });
    }
    payloads.extend(selectors.into_iter().flatten());
    let request = CreateChildRequest { task, exchange, nonce, has_retried, spi, ike };
    StartedExchange { kind: ExchangeType::CREATE_CHILD_SA, payloads, exchange: Box::new(request) }
}

/// Returns the proposals for a rekeying of the IKE_SA: the chosen one, also without additional key exchanges. The
/// peer may support those only in its first exchange.
fn proposals_to_rekey(sa: &IkeSaBase) -> Vec<Proposal> {
    let mut all = sa.connection.proposals.clone();
    let hybrid =
        sa.connection.proposals.iter().filter(|proposal| proposal.additional_exchanges().next().is_some());
    all.extend(hybrid.map(Proposal::without_additional));
    all
}

impl SaExchange for CreateChildRequest {
    fn handle_response(
        mut self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        if let Some(error) = find_error_notify(&payloads) {
            return Ok(handle_create_refusal(sa, cx, *self, error));
        }
        let secret = match (self.exchange.take(), find_key_exchange(&payloads)) {
            (Some((method, begun)), Some((theirs, public))) if method == theirs => {
                cx.count_work(work::KEY_EXCHANGE);
                begun.derive_secret(public).ok()
            }
            _ => None,
        };
        let chosen = find_proposals(&payloads).and_then(|all| all.first());
        // RFC 7296, 1.3: a response neither drops nor adds a key exchange.
        let exchanged = chosen.is_some_and(|chosen| chosen.key_exchange().is_some());
        let theirs = find_nonce(&payloads).map(<[u8]>::to_vec);
        let (Some(theirs), true) = (theirs, exchanged == secret.is_some()) else {
            cx.counters.syntax += 1;
            let invalid = NotifyPayload::new(NotifyType::INVALID_SYNTAX);
            return Ok(handle_create_refusal(sa, cx, *self, &invalid));
        };
        let methods = chosen.map(|chosen| chosen.additional_exchanges().collect()).unwrap_or_default();
        let link = followup::find_link_notify(&payloads).cloned().map(Payload::Notify);
        let nonces = (self.nonce.to_vec(), theirs);
        let secrets = KeyExchangeSecrets::with_initial_shared_secret(secret);
        let gathered = CreateChildResult { request: *self, nonces, secrets, payloads };
        followup::start_next_followup(sa, cx, gathered, methods, link.as_slice())
    }
    fn defers_peer_rekeying(&self) -> bool {
        self.task != IkeSaTask::Rekey
    }
}

/// Finishes an exchange whose key exchanges are all done: installs the result, or rejects it.
///
/// # Errors
/// The reason why the IKE_SA ends.
pub(super) fn finish_create_exchange(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    gathered: CreateChildResult,
) -> Result<(), EndReason> {
    let CreateChildResult { request: CreateChildRequest { task, spi, ike, .. }, nonces, secrets, payloads } =
        gathered;
    match task {
        IkeSaTask::CreateChild(config) => {
            let secrets = &secrets;
            let made =
                RequestedChildSa { config, spi, secrets, nonces: &nonces, replaces: None, first: false };
            child::install_child_from_response(sa, cx, &made, &payloads);
        }
        IkeSaTask::RekeyChild(old) => {
            let Some(at) = sa.state.find_child(old) else { return Ok(()) };
            let (config, secrets) = (sa.state.children[at].config, &secrets);
            let made =
                RequestedChildSa { config, spi, secrets, nonces: &nonces, replaces: Some(old), first: false };
            let event = if child::install_child_from_response(sa, cx, &made, &payloads) {
                ChildEvent::Answered
            } else {
                ChildEvent::Refused
            };
            apply_child_rekey_event(sa, cx, old, event, Some((spi, &nonces)));
        }
        _ => {
            if secrets.first.is_none() {
                // RFC 7296, 2.18: a new IKE_SA needs a new shared secret, so this response is invalid.
                cx.counters.syntax += 1;
                apply_sa_rekey_event(sa, cx, SaEvent::Refused, None);
                return Err(EndReason::Protocol);
            }
            let offered = |chosen: &&Proposal| {
                chosen.spi.len() == 8
                    && is_offered(&number_proposals(proposals_to_rekey(sa.base), &[]), chosen)
            };
            let chosen = find_proposals(&payloads).and_then(|all| all.first()).filter(offered);
            let peer = chosen.and_then(|chosen| chosen.spi[..].try_into().ok()).map(Spi);
            let (Some(peer), Some(chosen)) =
                (peer, chosen.filter(|one| IkeAlgorithms::from_proposal(one).is_some()))
            else {
                apply_sa_rekey_event(sa, cx, SaEvent::Refused, None);
                return Ok(());
            };
            let born = create_replacement_ike_sa(sa, cx, true, (ike, peer), chosen, &secrets, &nonces);
            apply_sa_rekey_event(sa, cx, SaEvent::Answered, born.map(|born| (born, lowest_nonce(&nonces))));
        }
    }
    Ok(())
}

pub(super) fn lowest_nonce(nonces: &NoncePair) -> Vec<u8> {
    nonces.0.clone().min(nonces.1.clone())
}

/// Handles the peer's refusal of an exchange. Returns the exchange that takes its place at once.
pub(super) fn handle_create_refusal(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    request: CreateChildRequest,
    error: &NotifyPayload,
) -> Option<StartedExchange> {
    let later = error.kind == NotifyType::TEMPORARY_FAILURE;
    if later {
        // RFC 7296, 2.25: after TEMPORARY_FAILURE this side waits before it tries again.
        sa.state.rest_until = Some(cx.now + cx.with_jitter(REST));
    }
    // With INVALID_KE_PAYLOAD, the peer may ask once for another of the key exchange methods that this side offered.
    let wanted = (error.kind == NotifyType::INVALID_KE_PAYLOAD)
        .then(|| error.notification_number())
        .flatten()
        .map(KeyExchangeMethod);
    let other = wanted.filter(|wanted| {
        !request.has_retried
            && exchange_algorithm(*wanted).is_some()
            && request.exchange.as_ref().is_some_and(|(method, _)| method != wanted)
    });
    let connection = sa.base.connection.clone();
    let rekeying = proposals_to_rekey(sa.base);
    let (child, proposals) = match &request.task {
        IkeSaTask::CreateChild(number) => (Some((*number, None)), &connection.children[*number].proposals),
        IkeSaTask::RekeyChild(spi) => {
            let child = &sa.state.children[sa.state.find_child(*spi)?];
            (Some((child.config, Some(*spi))), &connection.children[child.config].proposals)
        }
        _ => (None, &rekeying),
    };
    let offered = |method: &KeyExchangeMethod| {
        proposals.iter().any(|p| p.transforms_of_kind(TransformType::KE).any(|t| t.id == method.0))
    };
    if let Some(method) = other.filter(offered) {
        cx.counters.invalid_ke += 1;
        let again = build_create_exchange(sa, cx, request.task, child, proposals, Some(method), true);
        return Some(again);
    }
    match request.task {
        IkeSaTask::CreateChild(number) if !later => {
            cx.counters.children_refused += 1;
            let name = connection.children[number].name.clone();
            cx.outputs.push_event(IkeEvent::ChildRefused { sa: sa.base.id, name, why: error.kind });
        }
        IkeSaTask::RekeyChild(spi) => {
            let gone = error.kind == NotifyType::CHILD_SA_NOT_FOUND;
            let event = if gone { ChildEvent::NotFound } else { ChildEvent::Refused };
            apply_child_rekey_event(sa, cx, spi, event, None);
        }
        IkeSaTask::Rekey => apply_sa_rekey_event(sa, cx, SaEvent::Refused, None),
        _ => {}
    }
    if later {
        sa.state.plan_task(request.task);
    }
    None
}

/// Applies an event of rekeying to a CHILD_SA, with the new inbound SPI and the lowest nonce.
fn apply_child_rekey_event(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    spi: u32,
    event: ChildEvent,
    made: Option<(u32, &NoncePair)>,
) {
    let Some(at) = sa.state.find_child(spi) else { return };
    let child = &mut sa.state.children[at];
    let ours = made.map(|(_, nonces)| lowest_nonce(nonces));
    let rival = child.rival.as_ref().map(|(_, lowest)| lowest.clone());
    // RFC 7296, 2.8.1: the side whose nonce is the lowest closes its CHILD_SA.
    let guard = |Lowest::Ours| matches!((&ours, &rival), (Some(ours), Some(theirs)) if ours < theirs);
    let Some(row) = ChildRekeying::step(child.state, event, guard) else { return };
    child.state = row.to;
    for action in row.actions {
        match action {
            ChildAction::DeleteOld => sa.state.plan_task(IkeSaTask::DeleteChild(spi)),
            ChildAction::DeleteOurs => {
                if let Some((new, _)) = made {
                    cx.counters.collisions += 1;
                    sa.state.plan_task(IkeSaTask::DeleteChild(new));
                }
            }
            ChildAction::Remove => {
                let child = &sa.state.children[at].sa;
                cx.remove_child_sa(sa.base.id, child.inbound, child.outbound);
            }
            _ => {}
        }
    }
    match row.to {
        ChildState::Gone => {
            sa.state.children.remove(at);
        }
        ChildState::Replaced => sa.state.children[at].rekey_at = Some(cx.now + LEFT_OVER),
        ChildState::Installed => {
            // The peer has refused the rekeying. It is tried again while the old CHILD_SA lasts.
            let config = &sa.base.connection.children[sa.state.children[at].config];
            sa.state.children[at].rekey_at = config.rekey_after.map(|_| cx.now + LEFT_OVER);
        }
        _ => {}
    }
}

/// Returns the error response, and counts it.
fn refuse_create_request(cx: &mut IkeEndpointContext, notify: NotifyPayload) -> PeerRequestAnswer {
    if notify.kind == NotifyType::TEMPORARY_FAILURE {
        cx.counters.temporary_failures += 1;
    }
    notify.into()
}

/// Answers a request of the peer.
pub(super) fn answer_create_request(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
) -> PeerRequestAnswer {
    let (Some(proposed), Some(theirs)) = (find_proposals(payloads), find_nonce(payloads)) else {
        return PeerRequestAnswer::InvalidSyntax;
    };
    // Each request may cost a key exchange, so their rate is limited.
    let most = cx.config.creates_per_minute;
    if sa.state.create_debt.is_minute_limit_reached(cx.now, most) {
        cx.counters.creates_rate_limited += 1;
        return refuse_create_request(cx, NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
    }
    sa.state.create_debt.charge_minute_share(cx.now, most);
    let answer = if proposed.first().is_some_and(|proposal| proposal.protocol == ProtocolId::IKE) {
        answer_rekey_request(sa, cx, payloads, proposed, theirs)
    } else {
        let Ok(Some(asked)) = ChildSaRequest::from_payloads(payloads) else {
            return PeerRequestAnswer::InvalidSyntax;
        };
        create_requested_child(sa, cx, payloads, &asked, theirs)
    };
    answer.map_or_else(|notify| refuse_create_request(cx, notify), PeerRequestAnswer::Response)
}

/// Creates the CHILD_SA of the peer's request.
fn create_requested_child(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
    asked: &ChildSaRequest,
    theirs: &[u8],
) -> Result<Vec<Payload>, NotifyPayload> {
    let temporary = || NotifyPayload::new(NotifyType::TEMPORARY_FAILURE);
    // The peer has to wait while the IKE_SA is rekeyed or closed (§2.25.2), while additional key exchanges are open, or
    // while its new address is unproved.
    if sa.state.rekeying != SaState::Established
        || sa.state.expected_keys.is_some()
        || sa.state.is_peer_address_unproved()
    {
        return Err(temporary());
    }
    let replaced = notify_payloads(payloads).find(|notify| notify.kind == NotifyType::REKEY_SA);
    let mut old = None;
    if let Some(notify) = replaced {
        let about = notify.child_spi().filter(|_| notify.protocol == ProtocolId::ESP);
        let found = sa
            .state
            .children
            .iter()
            .position(|child| Some(child.sa.outbound) == about && child.state != ChildState::Bereft);
        let not_found = || NotifyPayload { kind: NotifyType::CHILD_SA_NOT_FOUND, ..notify.clone() };
        let at = found.ok_or_else(not_found)?;
        let row = ChildRekeying::step(sa.state.children[at].state, ChildEvent::PeerRekeys, |_| false);
        let row = row.ok_or_else(not_found)?;
        if row.actions.contains(&ChildAction::TemporaryFailure) {
            return Err(temporary());
        }
        old = Some((at, row));
    }
    let selected = child::select_child(sa, cx, asked, false).map_err(NotifyPayload::new)?;
    let wanted = selected.proposal.key_exchange();
    let further: VecDeque<_> = selected.proposal.additional_exchanges().collect();
    if !further.is_empty()
        && old.as_ref().is_some_and(|(_, row)| row.actions.contains(&ChildAction::Remember))
    {
        return Err(temporary());
    }
    let exchanged = answer_requested_key_exchange(cx, wanted, payloads)?;
    let ours: [u8; NONCE] = cx.random_octets();
    let nonces = (theirs.to_vec(), ours.to_vec());
    let replaces = old.as_ref().map(|(at, _)| sa.state.children[*at].sa.inbound);
    let secrets = KeyExchangeSecrets::with_initial_shared_secret(
        exchanged.as_ref().map(|exchanged| exchanged.secret.clone()),
    );
    let mut middle = alloc::vec![Payload::Nonce(ours.to_vec())];
    middle.extend(
        exchanged.map(|exchanged| Payload::KeyExchange { method: exchanged.method, data: exchanged.public }),
    );
    if !further.is_empty() {
        let (granted, mut answer) = child::prepare_child_grant(sa, cx, selected, asked.transport, replaces)
            .map_err(NotifyPayload::new)?;
        let makes = PendingFollowupSa::Child { granted: Box::new(granted), replaces };
        middle.push(followup::expect_followup_exchanges(sa, cx, makes, further, secrets, nonces));
        insert_before_selectors(&mut answer, middle);
        return Ok(answer);
    }
    let granted = child::grant_child(sa, cx, selected, asked.transport, &secrets, &nonces, replaces);
    let mut answer = granted.map_err(NotifyPayload::new)?;
    if let Some((at, row)) = old {
        let made = sa.state.children.last().map_or(0, |child| child.sa.inbound);
        let child = &mut sa.state.children[at];
        child.state = row.to;
        if row.actions.contains(&ChildAction::Remember) {
            child.rival = Some((made, lowest_nonce(&nonces)));
        } else {
            child.rekey_at = Some(cx.now + LEFT_OVER);
        }
    }
    insert_before_selectors(&mut answer, middle);
    Ok(answer)
}

/// Inserts payloads at the place of a key exchange, before the selectors.
fn insert_before_selectors(answer: &mut Vec<Payload>, payloads: Vec<Payload>) {
    let at = answer.iter().position(|payload| matches!(payload, Payload::TrafficSelectorsInitiator(_)));
    let at = at.unwrap_or(answer.len());
    answer.splice(at..at, payloads);
}

/// Answers the key exchange of a request, if the chosen proposal has one.
fn answer_requested_key_exchange(
    cx: &mut IkeEndpointContext,
    wanted: Option<KeyExchangeMethod>,
    payloads: &[Payload],
) -> Result<Option<AnsweredKeyExchange>, NotifyPayload> {
    let Some(method) = wanted else { return Ok(None) };
    let public = match find_key_exchange(payloads) {
        Some((theirs, public)) if theirs == method => public,
        _ => {
            // RFC 7296, 1.3, 3.4: another method than the chosen one is answered with INVALID_KE_PAYLOAD.
            cx.counters.invalid_ke += 1;
            return Err(NotifyPayload::with_data(NotifyType::INVALID_KE_PAYLOAD, method.0.to_be_bytes()));
        }
    };
    let algorithm = exchange_algorithm(method).ok_or(NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN))?;
    cx.count_answered_exchange(algorithm);
    let answered = algorithm
        .answer_exchange(&mut cx.rng, public)
        .map_err(|_| NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    let (public, secret) = answered?;
    Ok(Some(AnsweredKeyExchange { method, public, secret }))
}

/// Answers the peer's rekeying of the IKE_SA.
fn answer_rekey_request(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
    proposed: &[Proposal],
    theirs: &[u8],
) -> Result<Vec<Payload>, NotifyPayload> {
    // The peer has to wait while this side creates, rekeys or deletes a CHILD_SA (§2.25.2).
    let busy = sa.state.exchange.as_ref().is_some_and(|exchange| exchange.defers_peer_rekeying())
        || sa.state.expected_keys.is_some()
        || sa.state.is_peer_address_unproved();
    let row = SaRekeying::step(sa.state.rekeying, SaEvent::PeerRekeys, |_| false);
    if busy || row.is_none_or(|row| row.actions.contains(&SaAction::TemporaryFailure)) {
        return Err(NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
    }
    // A replaced IKE_SA stays for a while, so the number of recent replacements is limited.
    sa.state.replaced_at.retain(|at| cx.now < *at + LEFT_OVER);
    if sa.state.replaced_at.len() >= REPLACED {
        return Err(NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
    }
    sa.state.replaced_at.push(cx.now);
    let no_proposal = || NotifyPayload::new(NotifyType::NO_PROPOSAL_CHOSEN);
    let mut chosen = choose_proposal(&proposals_to_rekey(sa.base), proposed).ok_or_else(no_proposal)?;
    IkeAlgorithms::from_proposal(&chosen).ok_or_else(no_proposal)?;
    let peer =
        chosen.spi[..].try_into().map(Spi).map_err(|_| NotifyPayload::new(NotifyType::INVALID_SYNTAX))?;
    let further: VecDeque<_> = chosen.additional_exchanges().collect();
    // Both sides rekey at the same time. With additional key exchanges the new IKE_SA does not exist yet, so the
    // collision cannot be decided.
    if !further.is_empty() && row.is_some_and(|row| row.actions.contains(&SaAction::Hold)) {
        return Err(NotifyPayload::new(NotifyType::TEMPORARY_FAILURE));
    }
    let exchanged =
        answer_requested_key_exchange(cx, chosen.key_exchange(), payloads)?.ok_or_else(no_proposal)?;
    let (ours, spi): ([u8; NONCE], _) = (cx.random_octets(), cx.new_ike_spi());
    let nonces = (theirs.to_vec(), ours.to_vec());
    let AnsweredKeyExchange { method, public, secret } = exchanged;
    let (secrets, spis) = (KeyExchangeSecrets::with_initial_shared_secret(Some(secret)), (peer, spi));
    chosen.spi = spi.0.to_vec();
    let mut answer = alloc::vec![
        Payload::SecurityAssociation([chosen.clone()].into()),
        Payload::Nonce(ours.to_vec()),
        Payload::KeyExchange { method, data: public },
    ];
    if !further.is_empty() {
        answer.push(followup::expect_followup_exchanges(
            sa,
            cx,
            PendingFollowupSa::Ike { spis, chosen },
            further,
            secrets,
            nonces,
        ));
        return Ok(answer);
    }
    let born = create_replacement_ike_sa(sa, cx, false, spis, &chosen, &secrets, &nonces);
    let born = born.ok_or_else(no_proposal)?;
    apply_sa_rekey_event(sa, cx, SaEvent::PeerRekeys, Some((born, lowest_nonce(&nonces))));
    Ok(answer)
}

/// Creates the IKE_SA that replaces another.
pub(super) fn create_replacement_ike_sa(
    sa: &EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    initiator: bool,
    spis: (Spi, Spi),
    chosen: &Proposal,
    secrets: &KeyExchangeSecrets,
    nonces: &NoncePair,
) -> Option<Box<SuccessorSa>> {
    let (old, algorithms) = (sa.base.session.as_ref()?, IkeAlgorithms::from_proposal(chosen)?);
    cx.count_work(work::DERIVE);
    let seeds = KeyDerivationInputs {
        initiator_nonce: &nonces.0,
        responder_nonce: &nonces.1,
        initiator_spi: spis.0,
        responder_spi: spis.1,
    };
    let (first, further) = secrets.key_derivation_secrets();
    let keys = old.keys.derive_rekeyed(old.algorithms.prf, &algorithms, (first?, further), &seeds);
    // RFC 7296, 2.18: message IDs begin at 0.
    let mut base = IkeSaBase::new(sa.base.connection.clone(), initiator, sa.base.path, cx.now);
    base.spis = spis;
    base.session = Some(IkeSaKeyState::new(algorithms, keys, initiator)?);
    base.report_keys(cx);
    base.nat = sa.base.nat;
    base.fragmentation = sa.base.fragmentation;
    base.remote.clone_from(&sa.base.remote);
    base.authenticated.clone_from(&sa.base.authenticated);
    base.client = sa.base.client;
    base.proved_address = sa.base.proved_address;
    (base.era, base.proof_until) = (sa.base.era, sa.base.proof_until);
    base.certificates.clone_from(&sa.base.certificates);
    base.suite = cx.config.tickets.map(|_| Box::new(Proposal { spi: Vec::new(), ..chosen.clone() }));
    let state = EstablishedState {
        mobike: sa.state.mobike,
        assigned_addresses: sa.state.assigned_addresses.clone(),
        replaced_at: sa.state.replaced_at.clone(),
        ticket_debt: sa.state.ticket_debt,
        request_debt: sa.state.request_debt,
        create_debt: sa.state.create_debt,
        ..EstablishedState::new(&mut base, cx)
    };
    Some(Box::new(SuccessorSa { base, state, replaces: None }))
}

/// Applies an event of rekeying to an IKE_SA, from either side.
pub(super) fn apply_sa_rekey_event(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    event: SaEvent,
    born: Option<(Box<SuccessorSa>, Vec<u8>)>,
) {
    let (mut new, ours) = match born {
        Some((born, lowest)) => (Some(born), Some(lowest)),
        None => (None, None),
    };
    let theirs = sa.state.peer_rekeyed_sa.as_ref().map(|(_, lowest)| lowest.clone());
    // RFC 7296, 2.8.2: the IKE_SA with the lowest nonce does not inherit.
    let guard = |Lowest::Ours| matches!((&ours, &theirs), (Some(ours), Some(theirs)) if ours < theirs);
    let Some(row) = SaRekeying::step(sa.state.rekeying, event, guard) else { return };
    sa.state.rekeying = row.to;
    if row.to == SaState::Established {
        sa.state.rekey_at = sa.base.connection.rekey_after.map(|_| cx.now + LEFT_OVER);
    }
    for action in row.actions {
        match action {
            SaAction::Hold => sa.state.peer_rekeyed_sa = new.take().zip(ours.clone()),
            SaAction::InheritOurs => move_children_to_successor(sa, cx, new.take()),
            SaAction::InheritTheirs => {
                let theirs = sa.state.peer_rekeyed_sa.take().map(|(held, _)| held);
                // Without a collision, the heir is the IKE_SA that the peer's request has just created.
                let heir = if event == SaEvent::PeerRekeys { new.take() } else { theirs };
                move_children_to_successor(sa, cx, heir);
                sa.state.rekey_at = Some(cx.now + LEFT_OVER);
            }
            SaAction::KeepTheirs => {
                if let Some((mut held, _)) = sa.state.peer_rekeyed_sa.take() {
                    cx.counters.collisions += 1;
                    held.state.silent = true;
                    // The peer created this IKE_SA, which lost the collision, and will delete it. If the peer missed
                    // our response, a timer ends it.
                    held.state.rekeying = SaState::Replaced;
                    held.state.rekey_at = Some(cx.now + LEFT_OVER);
                    sa.effects.push(SaEffect::Successor(held));
                }
            }
            SaAction::DeleteOurs => {
                if let Some(mut loser) = new.take() {
                    cx.counters.collisions += 1;
                    loser.state.silent = true;
                    loser.state.plan_task(IkeSaTask::Delete(EndReason::Rekeyed));
                    sa.effects.push(SaEffect::Successor(loser));
                }
            }
            SaAction::DeleteOld => sa.state.plan_task(IkeSaTask::Delete(EndReason::Rekeyed)),
            _ => {}
        }
    }
}

/// Moves the CHILD_SAs and the pending tasks to the new IKE_SA.
fn move_children_to_successor(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    heir: Option<Box<SuccessorSa>>,
) {
    let Some(mut heir) = heir else { return };
    cx.counters.rekeyed += 1;
    let (base, state) = (&mut heir.base, &mut heir.state);
    // RFC 7296, 2.8, 2.8.2: the new IKE_SA inherits all CHILD_SAs.
    state.children = core::mem::take(&mut sa.state.children);
    state.tasks = core::mem::take(&mut sa.state.tasks);
    state.tasks.retain(|task| *task != IkeSaTask::Rekey);
    // The peer may have moved since the heir was created, so its address is copied. A pending return routability check
    // moves with the tasks.
    (base.path, base.proved_address, base.nat) = (sa.base.path, sa.base.proved_address, sa.base.nat);
    state.leaves_at = sa.state.leaves_at;
    ticket_requests::schedule_ticket_request(base, state, cx);
    heir.replaces = Some(sa.base.id);
    sa.state.rekey_at = None;
    sa.effects.push(SaEffect::Successor(heir));
}
