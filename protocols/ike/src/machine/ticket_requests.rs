//! Requests and grants of tickets (RFC 5723 §4.1, §6).

use super::base::IkeSaBase;
use super::config::RemoteAuth;
use super::context::IkeEndpointContext;
use super::established::{EstablishedSa, EstablishedState, IkeSaTask, SaExchange, StartedExchange};
use super::event::EndReason;
use super::spent_tickets::TicketId;
use super::tickets::{ResumptionTicketState, StoredTicket, ticket_owner};
use crate::code::NotifyType;
use crate::message::notify_payloads;
use crate::payload::{NotifyPayload, Payload};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::Duration;

/// The cost of a requested ticket, and the debt at which the client gets no more: six a minute, with a burst of four.
const TICKET: Duration = Duration::from_secs(10);
const MOST_TICKETS: Duration = Duration::from_secs(30);

/// The request of a ticket.
#[derive(Debug)]
struct TicketRequest;

pub(super) fn start_ticket_request() -> StartedExchange {
    let wish = Payload::Notify(NotifyPayload::new(NotifyType::TICKET_REQUEST));
    StartedExchange::informational(Vec::from([wish]), TicketRequest)
}

impl SaExchange for TicketRequest {
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        store_ticket(sa.base, cx, &payloads);
        Ok(None)
    }
}

/// Answers a ticket request; `None` if this side does not support tickets.
///
/// Users who log in by EAP get no ticket: the AAA server could not reject them when they resume.
pub(super) fn answer_ticket_request(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
) -> Option<Payload> {
    let lifetime = cx.config.tickets?;
    let given = issue_ticket(sa, cx, lifetime);
    cx.counters.tickets_refused += u64::from(given.is_none());
    Some(Payload::Notify(given.unwrap_or(NotifyPayload::new(NotifyType::TICKET_NACK))))
}

fn issue_ticket(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    lifetime: Duration,
) -> Option<NotifyPayload> {
    if sa.base.client || matches!(sa.base.connection.remote_auth, RemoteAuth::Eap { .. }) {
        return None;
    }
    // If all tickets have become void since this IKE_SA authenticated, its proofs may no longer hold. A new
    // authentication is needed first.
    if sa.base.era != cx.tickets.era() || sa.state.ticket_debt.level(cx.now) >= MOST_TICKETS {
        return None;
    }
    sa.state.ticket_debt.add_bucket_cost(cx.now, TICKET);
    let identity = sa.base.remote.clone()?;
    // With a group key and no required identity, the peer may claim any identity. So the connection alone owns its
    // tickets.
    let alone =
        matches!(sa.base.connection.remote_auth, RemoteAuth::Psk(_)) && sa.base.connection.remote.is_none();
    let state = ResumptionTicketState {
        id: cx
            .tickets
            .next_ticket_id(ticket_owner(&sa.base.connection.name, Some(&identity).filter(|_| !alone))),
        connection: sa.base.connection.name.clone(),
        suite: sa.base.suite.as_deref()?.clone(),
        sk_d: sa.base.session.as_ref()?.keys.sk_d.clone(),
        identities: (identity, sa.base.connection.local.clone()),
        spi: sa.base.own_spi(),
        proof_until: sa.base.proof_until,
        certificates: sa.base.certificates.clone(),
    };
    let times = (cx.now, cx.wall_time());
    let (sealed, seconds) = cx.tickets.seal_ticket(times, lifetime, &mut cx.rng, &state)?;
    cx.counters.tickets += 1;
    if let Some(before) = sa.state.ticket.replace(state.id) {
        cx.tickets.mark_spent(times.1, &cx.config, before);
    }
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    Some(NotifyPayload::with_data(
        NotifyType::TICKET_LT_OPAQUE,
        [&seconds.to_be_bytes()[..], &sealed].concat(),
    ))
}

/// Stores a ticket from the responder.
pub(super) fn store_ticket(sa: &IkeSaBase, cx: &mut IkeEndpointContext, payloads: &[Payload]) {
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
    let now = cx.wall_time().unix_secs();
    let proved = sa.proof_until.map(|until| Duration::from_secs(until.unix_secs().saturating_sub(now)));
    let lifetime = proved.map_or(lifetime, |proved| proved.min(lifetime));
    cx.tickets.store_ticket(&sa.connection.name, cx.now, lifetime, held);
}

/// Discards the tickets of an IKE_SA that ends (§6.2), unless the peer is merely unreachable. The responder has issued
/// `ticket` last.
pub(super) fn discard_tickets(
    sa: &IkeSaBase,
    cx: &mut IkeEndpointContext,
    ticket: Option<TicketId>,
    reason: EndReason,
) {
    if matches!(reason, EndReason::Unreachable | EndReason::HalfOpen) {
        return;
    }
    if sa.client && sa.suite.is_some() && reason != EndReason::Rekeyed {
        cx.tickets.remove_ticket(&sa.connection.name);
    }
    if let Some(id) = ticket {
        cx.tickets.mark_spent(cx.wall_time(), &cx.config, id);
    }
}

/// Requests a ticket for a rekeyed IKE_SA (§6.2).
pub(super) fn schedule_ticket_request(sa: &IkeSaBase, state: &mut EstablishedState, cx: &IkeEndpointContext) {
    if sa.client && cx.config.tickets.is_some() {
        state.plan_task(IkeSaTask::RequestTicket);
    }
}
