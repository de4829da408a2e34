//! IKE_SESSION_RESUME (RFC 5723): resumes a lost IKE_SA by a ticket, without a key exchange and a new authentication.

use super::authenticate::{self, AuthenticationState};
use super::config::{IkeConnectionConfig, RemoteAuth};
use super::event::EndReason;
use super::initial::{
    ATTEMPTS, FirstRequestOutcome, NONCE, apply_peer_features, detect_nat_sides, feature_payloads,
    move_to_nat_port, nat_detection, path_between, start_init_exchange,
};
use super::sa::{IkeEndpointContext, IkeSa, IkeSaKeyState, IkeSaTask, SaPhase};
use super::tickets::{ResumptionTicketState, StoredTicket, ticket_owner};
use crate::code::{ExchangeType, NotifyType};
use crate::header::Spi;
use crate::keys::{IkeKeys, KeyDerivationInputs};
use crate::message::{IkeMessage, notify_payloads};
use crate::payload::{NotifyPayload, Payload};
use crate::suite::{IkeAlgorithms, choose_proposal};
use crate::work;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::{DatagramPath, Duration};
use usher_crypto::SecretValue;

/// The cost of a requested ticket, and the debt at which the client gets no more: six a minute, with a burst of four.
const TICKET: Duration = Duration::from_secs(10);
const MOST_TICKETS: Duration = Duration::from_secs(30);

const IKE_SESSION_RESUME: ExchangeType = ExchangeType::IKE_SESSION_RESUME;

/// An initiator that awaits the response to its ticket.
#[derive(Debug)]
pub(super) struct PendingResumption {
    ticket: StoredTicket,
    nonce: [u8; NONCE],
    cookie: Option<Vec<u8>>,
    attempts: u32,
    octets: Vec<u8>,
}

/// Resumes an IKE_SA by a ticket.
pub(super) fn start_resumption(
    cx: &mut IkeEndpointContext<'_>,
    connection: Arc<IkeConnectionConfig>,
    (local, remote): (SocketAddr, SocketAddr),
    held: StoredTicket,
) -> Box<IkeSa> {
    let mut sa = Box::new(IkeSa::new(connection, true, path_between(local, remote), cx.now));
    sa.spis.0 = cx.new_ike_spi();
    sa.proof_until = held.proof_until;
    sa.certificates.clone_from(&held.certificates);
    let nonce = cx.random_octets();
    let mut resuming =
        Box::new(PendingResumption { ticket: held, nonce, cookie: None, attempts: 0, octets: Vec::new() });
    send_resume_request(&mut sa, cx, &mut resuming);
    sa.phase = SaPhase::Resuming(resuming);
    sa
}

fn send_resume_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, resuming: &mut PendingResumption) {
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

/// Returns the nonce of a first message.
pub(super) fn find_resume_nonce(message: &IkeMessage) -> Option<&[u8]> {
    message.payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(nonce) => Some(&nonce[..]),
        _ => None,
    })
}

/// Handles the response to a ticket. It is not authenticated yet.
pub(super) fn handle_resume_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    message: &IkeMessage,
    octets: &[u8],
) {
    let SaPhase::Resuming(resuming) = &mut sa.phase else {
        cx.counters.not_expected += 1;
        return;
    };
    if message.unsupported_critical().is_some() {
        cx.counters.critical += 1;
        return;
    }
    if let Some(cookie) = message.find_notify(NotifyType::COOKIE).map(|notify| &notify.data) {
        resuming.attempts += 1;
        if resuming.attempts > ATTEMPTS || !(1..=64).contains(&cookie.len()) {
            cx.counters.not_expected += 1;
            return;
        }
        resuming.cookie = Some(cookie.clone());
        sa.outstanding = None;
        let SaPhase::Resuming(mut resuming) = core::mem::replace(&mut sa.phase, SaPhase::Established) else {
            return;
        };
        send_resume_request(sa, cx, &mut resuming);
        sa.phase = SaPhase::Resuming(resuming);
        return;
    }
    // RFC 5723, 4.3.2: the responder rejects or does not know the ticket: begin with IKE_SA_INIT.
    if message.notifications().any(|notify| notify.kind == NotifyType::TICKET_NACK || notify.kind.is_error())
    {
        return fall_back_to_full_init(sa, cx);
    }
    let theirs = find_resume_nonce(message).filter(|_| !message.header.responder_spi.is_zero());
    let Some(theirs) = theirs else {
        cx.counters.syntax += 1;
        return;
    };
    let SaPhase::Resuming(resuming) = core::mem::replace(&mut sa.phase, SaPhase::Established) else { return };
    let PendingResumption { ticket: held, nonce, octets: first, .. } = *resuming;
    sa.outstanding = None;
    sa.spis.1 = message.header.responder_spi;
    let mut authenticating =
        AuthenticationState::new(first, octets.to_vec(), nonce.to_vec(), theirs.to_vec());
    apply_peer_features(sa, &mut authenticating, message);
    sa.nat = detect_nat_sides(cx, &message.payloads, sa.spis, sa.path);
    let traverses =
        sa.connection.mobike && message.find_notify(NotifyType::NAT_DETECTION_SOURCE_IP).is_some();
    if sa.nat.0 || sa.nat.1 || traverses {
        move_to_nat_port(sa);
    }
    sa.suite = Some(Box::new(held.suite));
    if !derive_resumed_keys(sa, cx, &held.sk_d, &authenticating) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    authenticating.resumed = Some(Box::new(held.identities));
    sa.phase = SaPhase::Authenticating(Box::new(authenticating));
    authenticate::initiator::start_authentication(sa, cx);
}

/// Begins with IKE_SA_INIT, because the ticket is of no use.
pub(super) fn fall_back_to_full_init(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    cx.counters.tickets_refused += 1;
    sa.outstanding = None;
    (sa.proof_until, sa.certificates) = (None, Arc::new([]));
    if !start_init_exchange(sa, cx) {
        sa.end_sa(cx, EndReason::Unsupported);
    }
}

/// Derives the keys of a resumed IKE_SA (§5.1).
fn derive_resumed_keys(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    sk_d: &SecretValue,
    authenticating: &AuthenticationState,
) -> bool {
    let Some(algorithms) = sa.suite.as_deref().and_then(IkeAlgorithms::from_proposal) else { return false };
    let (initiator_nonce, responder_nonce) = authenticating.nonces();
    let seeds = KeyDerivationInputs {
        initiator_nonce,
        responder_nonce,
        initiator_spi: sa.spis.0,
        responder_spi: sa.spis.1,
    };
    cx.count_work(work::DERIVE);
    let keys = IkeKeys::from_ticket_key(&algorithms, sk_d, &seeds);
    sa.session = IkeSaKeyState::new(algorithms, keys, sa.initiator);
    sa.report_keys(cx);
    sa.session.is_some()
}

/// Handles a first request with a ticket.
pub(super) fn handle_resume_request(
    cx: &mut IkeEndpointContext<'_>,
    path: DatagramPath,
    message: &IkeMessage,
    octets: &[u8],
) -> FirstRequestOutcome {
    if let Some(kind) = message.unsupported_critical() {
        cx.counters.critical += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::with_data(
            NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
            [kind.0],
        ));
    }
    let (Some(theirs), Some(ticket)) =
        (find_resume_nonce(message), message.find_notify(NotifyType::TICKET_OPAQUE))
    else {
        cx.counters.syntax += 1;
        return FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::INVALID_SYNTAX));
    };
    let wall = cx.now.to_wall_time(cx.epoch);
    let opened = cx.config.tickets.and_then(|_| cx.tickets.open_ticket(wall, &ticket.data));
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
    let refuse = |cx: &mut IkeEndpointContext<'_>| {
        cx.counters.tickets_refused += 1;
        // RFC 5723, 4.3.2: a rejected ticket is answered with TICKET_NACK.
        FirstRequestOutcome::Refused(NotifyPayload::new(NotifyType::TICKET_NACK))
    };
    let Some((connection, state, expires)) = found else { return refuse(cx) };
    let ResumptionTicketState { id, suite, sk_d, identities, spi, proof_until, certificates, .. } = state;
    let mut sa = Box::new(IkeSa::new(connection, false, path, cx.now));
    sa.spis = (message.header.initiator_spi, cx.new_ike_spi());
    sa.expiry_deadline = Some(cx.now + cx.config.proof_timeout);
    (sa.suite, sa.ticket, sa.resumes) = (Some(Box::new(suite)), Some(id), Some(spi));
    (sa.ticket_expires, sa.proof_until, sa.certificates) = (expires, proof_until, certificates);
    let nonce: [u8; NONCE] = cx.random_octets();
    let mut payloads = Vec::from([Payload::Nonce(nonce.to_vec())]);
    payloads.extend(nat_detection(cx, sa.spis, path));
    payloads.extend(feature_payloads(&sa.connection, true, false));
    sa.nat = detect_nat_sides(cx, &message.payloads, (sa.spis.0, Spi::ZERO), path);
    let mut authenticating =
        AuthenticationState::new(octets.to_vec(), Vec::new(), theirs.to_vec(), nonce.to_vec());
    apply_peer_features(&mut sa, &mut authenticating, message);
    authenticating.resumed = Some(Box::new(identities));
    if !derive_resumed_keys(&mut sa, cx, &sk_d, &authenticating) {
        return refuse(cx);
    }
    authenticating.first.1 = sa.respond_plain(cx, IKE_SESSION_RESUME, payloads);
    sa.phase = SaPhase::Authenticating(Box::new(authenticating));
    FirstRequestOutcome::Accepted(sa)
}

/// Answers a ticket request; `None` if this side does not support tickets.
///
/// Users who log in by EAP get no ticket: the AAA server could not reject them when they resume.
pub(super) fn answer_ticket_request(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) -> Option<Payload> {
    let lifetime = cx.config.tickets?;
    let given = issue_ticket(sa, cx, lifetime);
    cx.counters.tickets_refused += u64::from(given.is_none());
    Some(Payload::Notify(given.unwrap_or(NotifyPayload::new(NotifyType::TICKET_NACK))))
}

fn issue_ticket(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    lifetime: Duration,
) -> Option<NotifyPayload> {
    if sa.client || matches!(sa.connection.remote_auth, RemoteAuth::Eap { .. }) {
        return None;
    }
    // If all tickets have become void since this IKE_SA authenticated, its proofs may no longer hold. A new
    // authentication is needed first.
    if sa.era != cx.tickets.era() || sa.ticket_debt.level(cx.now) >= MOST_TICKETS {
        return None;
    }
    sa.ticket_debt.add_bucket_cost(cx.now, TICKET);
    let identity = sa.remote.clone()?;
    // With a group key and no required identity, the peer may claim any identity. So the connection alone owns its
    // tickets.
    let alone = matches!(sa.connection.remote_auth, RemoteAuth::Psk(_)) && sa.connection.remote.is_none();
    let state = ResumptionTicketState {
        id: cx.tickets.next_ticket_id(ticket_owner(&sa.connection.name, Some(&identity).filter(|_| !alone))),
        connection: sa.connection.name.clone(),
        suite: sa.suite.as_deref()?.clone(),
        sk_d: sa.session.as_ref()?.keys.sk_d.clone(),
        identities: (identity, sa.connection.local.clone()),
        spi: sa.own_spi(),
        proof_until: sa.proof_until,
        certificates: sa.certificates.clone(),
    };
    let times = (cx.now, cx.now.to_wall_time(cx.epoch));
    let (sealed, seconds) = cx.tickets.seal_ticket(times, lifetime, cx.rng, &state)?;
    cx.counters.tickets += 1;
    if let Some(before) = sa.ticket.replace(state.id) {
        cx.tickets.mark_spent(times.1, cx.config, before);
    }
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    Some(NotifyPayload::with_data(
        NotifyType::TICKET_LT_OPAQUE,
        [&seconds.to_be_bytes()[..], &sealed].concat(),
    ))
}

/// Redeems the ticket of a resumed IKE_SA (§4.3.1). False if it has expired, was used by another, or its state has
/// changed since the first message.
pub(super) fn redeem_ticket(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) -> bool {
    let Some(id) = sa.ticket.take() else { return false };
    let wall = cx.now.to_wall_time(cx.epoch);
    let redeemed = cx.tickets.redeem(wall, cx.config, (sa.era, id, sa.ticket_expires));
    cx.counters.tickets_refused += u64::from(!redeemed);
    redeemed
}

/// Voids the ticket of an IKE_SA that ends (§6.2).
fn void_ticket_of_sa(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    if let Some(id) = sa.ticket.take() {
        cx.tickets.mark_spent(cx.now.to_wall_time(cx.epoch), cx.config, id);
    }
}

/// Stores a ticket from the responder.
pub(super) fn store_ticket(sa: &IkeSa, cx: &mut IkeEndpointContext<'_>, payloads: &[Payload]) {
    let given = notify_payloads(payloads).find(|notify| notify.kind == NotifyType::TICKET_LT_OPAQUE);
    let (Some(given), Some(_)) = (given, cx.config.tickets) else { return };
    let (Some((seconds, ticket)), Some(session)) = (given.data.split_first_chunk::<4>(), &sa.session) else {
        return;
    };
    let (Some(suite), Some(remote)) = (sa.suite.as_deref(), &sa.remote) else { return };
    if ticket.is_empty() || sa.era != cx.tickets.era() {
        return;
    }
    let identities = (sa.connection.local.clone(), remote.clone());
    let proof = (sa.proof_until, sa.certificates.clone());
    let held =
        StoredTicket::new(ticket.to_vec(), suite.clone(), session.keys.sk_d.clone(), identities, proof);
    let lifetime = Duration::from_secs(u32::from_be_bytes(*seconds).into());
    // The ticket lives no longer than the responder's certificate.
    let now = cx.now.to_wall_time(cx.epoch).unix_secs();
    let proved = sa.proof_until.map(|until| Duration::from_secs(until.unix_secs().saturating_sub(now)));
    let lifetime = proved.map_or(lifetime, |proved| proved.min(lifetime));
    cx.tickets.store_ticket(&sa.connection.name, cx.now, lifetime, held);
}

/// Discards the tickets of an ended IKE_SA (§6.2), unless the peer is merely unreachable.
pub(super) fn discard_tickets(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, reason: EndReason) {
    if matches!(reason, EndReason::Unreachable | EndReason::HalfOpen) || sa.is_half_open() {
        return;
    }
    if sa.client && sa.suite.is_some() && reason != EndReason::Rekeyed {
        cx.tickets.remove_ticket(&sa.connection.name);
    }
    void_ticket_of_sa(sa, cx);
}

/// Requests a ticket for a rekeyed IKE_SA (§6.2).
pub(super) fn schedule_ticket_request(sa: &mut IkeSa, cx: &IkeEndpointContext<'_>) {
    if sa.client && cx.config.tickets.is_some() {
        sa.plan_task(IkeSaTask::RequestTicket);
    }
}
