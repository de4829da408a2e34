//! IKE_SESSION_RESUME (RFC 5723): resumes a lost IKE_SA by a ticket, without a key exchange and a new authentication.

use super::authentication::{
    AuthenticationState, InitiatorAuthentication, InitiatorWishes, PresentedTicket, ResponderAuthentication,
};
use super::base::{IkeSaBase, NONCE};
use super::config::IkeConnectionConfig;
use super::context::IkeEndpointContext;
use super::event::EndReason;
use super::initial::{
    ATTEMPTS, FirstRequestOutcome, apply_peer_features, apply_response, feature_payloads, start_init_exchange,
};
use super::nat::{detect_nat_sides, nat_detection};
use super::phase::{PendingResumption, SaPhase};
use super::tickets::{ResumptionTicketState, StoredTicket};
use crate::code::{ExchangeType, NotifyType};
use crate::header::Spi;
use crate::keys::IkeKeys;
use crate::message::{IkeMessage, find_nonce};
use crate::payload::{NotifyPayload, Payload};
use crate::suite::{IkeAlgorithms, choose_proposal};
use crate::work;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::DatagramPath;
use usher_crypto::SecretValue;

const IKE_SESSION_RESUME: ExchangeType = ExchangeType::IKE_SESSION_RESUME;

/// Sends a ticket.
pub(super) fn start_resume_exchange(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    ticket: StoredTicket,
    wishes: InitiatorWishes,
) -> Box<PendingResumption> {
    sa.proof_until = ticket.proof_until;
    sa.certificates.clone_from(&ticket.certificates);
    let (nonce, octets) = (cx.random_octets(), Vec::new());
    let mut resuming =
        Box::new(PendingResumption { ticket, nonce, cookie: None, attempts: 0, octets, wishes });
    send_resume_request(sa, cx, &mut resuming);
    resuming
}

fn send_resume_request(sa: &mut IkeSaBase, cx: &mut IkeEndpointContext, resuming: &mut PendingResumption) {
    let mut payloads = Vec::new();
    if let Some(cookie) = &resuming.cookie {
        payloads.push(Payload::Notify(NotifyPayload::with_data(NotifyType::COOKIE, cookie.clone())));
    }
    payloads.push(Payload::Nonce(resuming.nonce.to_vec()));
    payloads.push(Payload::Notify(NotifyPayload::with_data(
        NotifyType::TICKET_OPAQUE,
        resuming.ticket.octets.clone(),
    )));
    payloads.extend(nat_detection(cx, sa.spis, sa.path));
    payloads.extend(feature_payloads(&sa.connection, false, false));
    resuming.octets = sa.request_plain(cx, IKE_SESSION_RESUME, payloads);
}

/// Handles the response to a ticket. It is not authenticated yet.
///
/// # Errors
/// The reason why the IKE_SA ends.
pub(super) fn handle_resume_response(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    mut resuming: Box<PendingResumption>,
    message: &IkeMessage,
    octets: &[u8],
) -> Result<SaPhase, EndReason> {
    if message.unsupported_critical().is_some() {
        cx.counters.critical += 1;
        return Ok(SaPhase::Resuming(resuming));
    }
    if let Some(cookie) = message.find_notify(NotifyType::COOKIE).map(|notify| &notify.data) {
        resuming.attempts += 1;
        if resuming.attempts > ATTEMPTS || !(1..=64).contains(&cookie.len()) {
            cx.counters.not_expected += 1;
        } else {
            resuming.cookie = Some(cookie.clone());
            sa.outstanding = None;
            send_resume_request(sa, cx, &mut resuming);
        }
        return Ok(SaPhase::Resuming(resuming));
    }
    // RFC 5723, 4.3.2: the responder rejects or does not know the ticket: begin with IKE_SA_INIT.
    if message.notifications().any(|notify| notify.kind == NotifyType::TICKET_NACK || notify.kind.is_error())
    {
        return fall_back_to_full_init(sa, cx, *resuming);
    }
    let theirs = find_nonce(&message.payloads).filter(|_| !message.header.responder_spi.is_zero());
    let Some(theirs) = theirs else {
        cx.counters.syntax += 1;
        return Ok(SaPhase::Resuming(resuming));
    };
    let PendingResumption { ticket, nonce, octets: first, wishes, .. } = *resuming;
    sa.outstanding = None;
    sa.spis.1 = message.header.responder_spi;
    let nonces = (nonce.to_vec(), theirs.to_vec());
    let mut common = AuthenticationState::new(first, octets.to_vec(), nonces);
    let childless = apply_response(sa, cx, &mut common, message);
    sa.suite = Some(Box::new(ticket.suite));
    if !derive_resumed_keys(sa, cx, &ticket.sk_d, &common) {
        return Err(EndReason::Protocol);
    }
    common.resumed = Some(Box::new(ticket.identities));
    let state = InitiatorAuthentication { childless, ..InitiatorAuthentication::new(common, wishes) };
    Ok(SaPhase::Initiating(Box::new(state)))
}

/// Begins with IKE_SA_INIT, because the ticket is of no use.
///
/// # Errors
/// The reason why the IKE_SA ends.
pub(super) fn fall_back_to_full_init(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    resuming: PendingResumption,
) -> Result<SaPhase, EndReason> {
    cx.counters.tickets_refused += 1;
    sa.outstanding = None;
    (sa.proof_until, sa.certificates) = (None, Arc::new([]));
    let begun = start_init_exchange(sa, cx, resuming.wishes);
    begun.map(SaPhase::InitSent).ok_or(EndReason::Unsupported)
}

/// Derives the keys of a resumed IKE_SA (§5.1).
fn derive_resumed_keys(
    sa: &mut IkeSaBase,
    cx: &mut IkeEndpointContext,
    sk_d: &SecretValue,
    authenticating: &AuthenticationState,
) -> bool {
    let Some(algorithms) = sa.suite.as_deref().and_then(IkeAlgorithms::from_proposal) else { return false };
    cx.count_work(work::DERIVE);
    let seeds = sa.key_derivation_inputs(&authenticating.nonces);
    let keys = IkeKeys::from_ticket_key(&algorithms, sk_d, &seeds);
    sa.set_keys(cx, algorithms, keys)
}

/// Handles a first request with a ticket.
pub(super) fn handle_resume_request(
    cx: &mut IkeEndpointContext,
    path: DatagramPath,
    message: &IkeMessage,
    octets: &[u8],
) -> FirstRequestOutcome {
    let (Some(theirs), Some(ticket)) =
        (find_nonce(&message.payloads), message.find_notify(NotifyType::TICKET_OPAQUE))
    else {
        cx.counters.syntax += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let opened = cx.config.tickets.and_then(|_| cx.tickets.open_ticket(cx.wall_time(), &ticket.data));
    // The configuration may have changed since the ticket was issued.
    let found = opened.and_then(|(state, expires)| {
        let fits = |connection: &&Arc<IkeConnectionConfig>| {
            connection.name == state.connection
                && connection.is_for(path.remote.ip())
                && connection.local == state.identities.1
                && connection.remote.as_ref().is_none_or(|remote| *remote == state.identities.0)
                && choose_proposal(&connection.proposals, core::slice::from_ref(&state.suite)).is_some()
        };
        Some((cx.connections.iter().find(fits)?.clone(), state, expires))
    });
    let refuse = |cx: &mut IkeEndpointContext| {
        cx.counters.tickets_refused += 1;
        // RFC 5723, 4.3.2: a rejected ticket is answered with TICKET_NACK.
        FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::TICKET_NACK))
    };
    let Some((connection, state, expires)) = found else { return refuse(cx) };
    let ResumptionTicketState { id, suite, sk_d, identities, spi, proof_until, certificates, .. } = state;
    let mut sa = Box::new(IkeSaBase::new(connection, false, path, cx.now));
    sa.spis = (message.header.initiator_spi, cx.new_ike_spi());
    sa.suite = Some(Box::new(suite));
    (sa.proof_until, sa.certificates) = (proof_until, certificates);
    let nonce: [u8; NONCE] = cx.random_octets();
    let mut payloads = Vec::from([Payload::Nonce(nonce.to_vec())]);
    payloads.extend(nat_detection(cx, sa.spis, path));
    payloads.extend(feature_payloads(&sa.connection, true, false));
    sa.nat = detect_nat_sides(cx, &message.payloads, (sa.spis.0, Spi::ZERO), path);
    let nonces = (theirs.to_vec(), nonce.to_vec());
    let mut common = AuthenticationState::new(octets.to_vec(), Vec::new(), nonces);
    apply_peer_features(&mut sa, &mut common, message);
    common.resumed = Some(Box::new(identities));
    if !derive_resumed_keys(&mut sa, cx, &sk_d, &common) {
        return refuse(cx);
    }
    common.first.1 = sa.respond_plain(cx, IKE_SESSION_RESUME, payloads);
    let ticket = PresentedTicket { id, expires, spi };
    let state = Box::new(ResponderAuthentication::new(common, cx, None, Some(ticket)));
    FirstRequestOutcome::Accepted(sa, state)
}
