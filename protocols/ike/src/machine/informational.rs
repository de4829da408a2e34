//! INFORMATIONAL (RFC 7296 §1.4): deletion, dead peer detection, and MOBIKE moves (RFC 4555 §3.5, §3.7).

use super::collision::{ChildAction, ChildEvent, ChildRekeying, ChildState, SaEvent, SaRekeying, SaState};
use super::event::{EndReason, IkeEvent};
use super::sa::{IkeEndpointContext, IkeSa, IkeSaTask, PendingExchange};
use super::{authenticate, create, initial, resumption};
use crate::code::{ExchangeType, NotifyType, ProtocolId};
use crate::message::notify_payloads;
use crate::payload::{DeletePayload, NotifyPayload, Payload};
use alloc::vec::Vec;
use usher_core::DatagramPath;

const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// The contents of a MOBIKE request, to check its response.
#[derive(Debug)]
pub(super) struct MobikePathProbe {
    path: DatagramPath,
    /// The number of address changes at its sending. A peer that moved away and back may have seen the cookie
    /// elsewhere, so the check is valid only without a change.
    moves: u64,
    /// The COOKIE2 that the response has to return (RFC 4555 §3.7).
    cookie: [u8; 16],
}

impl IkeSa {
    /// Sets the path of further messages.
    pub(super) fn set_path(&mut self, path: DatagramPath) {
        if path != self.path {
            self.moves += 1;
            self.path = path;
        }
    }

    /// True while the peer has not proved its address. No SAs are created for it meanwhile (RFC 4555 §3.5, §3.7).
    pub(super) fn is_peer_address_unproved(&self) -> bool {
        let asked = self.outstanding.as_ref().map(|outstanding| &outstanding.exchange);
        matches!(asked, Some(PendingExchange::Update(_) | PendingExchange::Check(_)))
            || self.tasks.iter().any(|task| matches!(task, IkeSaTask::Update | IkeSaTask::Check))
    }
}

pub(super) fn start_informational(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, task: &IkeSaTask) {
    match task {
        IkeSaTask::DeleteChild(spi) => {
            let Some(child) = sa.children.iter_mut().find(|child| child.sa.inbound == *spi) else { return };
            let Some(row) = ChildRekeying::step(child.state, ChildEvent::Delete, |_| false) else { return };
            child.state = row.to;
            let delete = DeletePayload::Child { protocol: ProtocolId::ESP, spis: [*spi].into() };
            sa.request_protected(
                cx,
                INFORMATIONAL,
                &[Payload::Delete(delete)],
                PendingExchange::DeleteChild(*spi),
            );
        }
        IkeSaTask::Disown(spi) => {
            let delete = DeletePayload::Child { protocol: ProtocolId::ESP, spis: [*spi].into() };
            sa.request_protected(
                cx,
                INFORMATIONAL,
                &[Payload::Delete(delete)],
                PendingExchange::DeleteChild(*spi),
            );
        }
        IkeSaTask::Delete(reason) => {
            let Some(row) = SaRekeying::step(sa.state, SaEvent::Delete, |_| false) else { return };
            sa.state = row.to;
            sa.request_protected(
                cx,
                INFORMATIONAL,
                &[Payload::Delete(DeletePayload::Ike)],
                PendingExchange::Delete(*reason),
            );
        }
        IkeSaTask::Update | IkeSaTask::Check => {
            let moving = MobikePathProbe { path: sa.path, moves: sa.moves, cookie: cx.random_octets() };
            let cookie = Payload::Notify(NotifyPayload::with_data(NotifyType::COOKIE2, moving.cookie));
            if *task == IkeSaTask::Check {
                return sa.request_protected(cx, INFORMATIONAL, &[cookie], PendingExchange::Check(moving));
            }
            let mut payloads =
                Vec::from([Payload::Notify(NotifyPayload::new(NotifyType::UPDATE_SA_ADDRESSES))]);
            payloads.extend(initial::nat_detection(cx, sa.spis, sa.path));
            payloads.push(cookie);
            sa.request_protected(cx, INFORMATIONAL, &payloads, PendingExchange::Update(moving));
        }
        IkeSaTask::RequestTicket => {
            let wish = Payload::Notify(NotifyPayload::new(NotifyType::TICKET_REQUEST));
            sa.request_protected(cx, INFORMATIONAL, &[wish], PendingExchange::Ticket);
        }
        _ => sa.request_protected(cx, INFORMATIONAL, &[], PendingExchange::Probe),
    }
}

/// True if a response returns the request's COOKIE2 (RFC 4555 §3.7). Otherwise the peer has not received it.
fn returns_cookie2(moving: &MobikePathProbe, payloads: &[Payload]) -> bool {
    notify_payloads(payloads).any(|notify| notify.kind == NotifyType::COOKIE2 && notify.data == moving.cookie)
}

/// Handles the response to UPDATE_SA_ADDRESSES.
pub(super) fn handle_update_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    moving: &MobikePathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // The addresses have changed again since this update was sent, so the new ones are reported next.
        return sa.plan_task(IkeSaTask::Update);
    }
    if authenticate::has_notify(payloads, NotifyType::UNACCEPTABLE_ADDRESSES) {
        return cx.outputs.push_event(IkeEvent::MoveRefused { sa: sa.id });
    }
    if !returns_cookie2(moving, payloads) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    sa.nat = initial::detect_nat_sides(cx, payloads, sa.spis, sa.path);
    sa.proved = moving.path.remote.ip();
    sa.report_path_change(cx);
}

/// Handles the response to a return routability check.
pub(super) fn handle_check_response(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    moving: &MobikePathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // The addresses changed during the check, so its request went to two. The response does not show which of them
        // works.
        return sa.plan_task(IkeSaTask::Check);
    }
    if !returns_cookie2(moving, payloads) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    sa.proved = moving.path.remote.ip();
    sa.report_path_change(cx);
}

/// Handles the response to a Delete of a CHILD_SA, with or without its SPI.
pub(super) fn handle_child_delete_response(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, spi: u32) {
    let Some(at) = sa.children.iter().position(|child| child.sa.inbound == spi) else { return };
    if let Some(row) = ChildRekeying::step(sa.children[at].state, ChildEvent::DeleteAnswered, |_| false) {
        debug_assert_eq!(row.to, ChildState::Gone);
        let child = sa.children.remove(at);
        child.remove(cx, sa.id);
    }
}

pub(super) fn handle_informational_request(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext<'_>,
    payloads: &[Payload],
) {
    let deletes = payloads.iter().filter_map(|payload| match payload {
        Payload::Delete(delete) => Some(delete),
        _ => None,
    });
    let mut deleted = Vec::new();
    for delete in deletes {
        match delete {
            DeletePayload::Ike => return delete_sa(sa, cx),
            DeletePayload::Child { protocol: ProtocolId::ESP, spis } => {
                deleted.extend(spis.iter().filter_map(|spi| delete_child(sa, cx, *spi)));
            }
            DeletePayload::Child { .. } => {}
        }
    }
    let mut answer = Vec::new();
    if !deleted.is_empty() {
        // RFC 7296, 1.4.1: the answer names the SAs of the other direction.
        answer.push(Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis: deleted }));
    }
    if sa.mobike {
        if authenticate::has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) && !sa.initiator {
            // The addresses in the IP header apply, even if a NAT has changed them (RFC 4555 §3.5).
            sa.set_path(sa.reply);
            sa.nat = initial::detect_nat_sides(cx, payloads, sa.spis, sa.path);
            answer.extend(initial::nat_detection(cx, sa.spis, sa.path));
            sa.plan_task(IkeSaTask::Check);
        }
        // RFC 4555, 3.7: COOKIE2 is returned unchanged.
        let cookies = notify_payloads(payloads).filter(|notify| notify.kind == NotifyType::COOKIE2);
        answer.extend(cookies.cloned().map(Payload::Notify));
    }
    if authenticate::has_notify(payloads, NotifyType::TICKET_REQUEST) {
        answer.extend(resumption::answer_ticket_request(sa, cx));
    }
    // RFC 7296, 1.4: each request is answered, with an empty message if need be.
    sa.respond_protected(cx, INFORMATIONAL, &answer);
    if authenticate::has_notify(payloads, NotifyType::AUTHENTICATION_FAILED) {
        // The initiator reports that it rejects this side's proof (§2.21.2).
        sa.end_keeping_last_response(cx, EndReason::Refused);
    }
}

/// Handles the peer's Delete of the IKE_SA. This side's open exchanges end with it (§2.25.2).
fn delete_sa(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>) {
    let replaced = matches!(sa.state, SaState::Replaced | SaState::Outdated | SaState::Collided);
    let reason = match (replaced, &sa.outstanding) {
        (true, _) => EndReason::Rekeyed,
        (false, Some(_)) if sa.state == SaState::Deleting => sa.deletion_reason(),
        _ => EndReason::DeletedByPeer,
    };
    create::apply_sa_rekey_event(sa, cx, SaEvent::PeerDeletes, None);
    sa.respond_protected(cx, INFORMATIONAL, &[]);
    sa.end_keeping_last_response(cx, reason);
}

/// Handles the peer's Delete of a CHILD_SA, named by the peer's inbound SPI. Returns the SPI for the response.
fn delete_child(sa: &mut IkeSa, cx: &mut IkeEndpointContext<'_>, spi: u32) -> Option<u32> {
    let at =
        sa.children.iter().position(|child| child.sa.outbound == spi && child.state != ChildState::Bereft)?;
    let child = &mut sa.children[at];
    let row = ChildRekeying::step(child.state, ChildEvent::PeerDeletes, |_| false)?;
    child.state = row.to;
    let inbound = child.sa.inbound;
    if row.actions.contains(&ChildAction::Remove) {
        cx.remove_child_sa(sa.id, inbound, spi);
    }
    if row.to == ChildState::Gone {
        sa.children.remove(at);
    }
    // RFC 7296, 1.4.1: an SA whose deletion this side requests is not named.
    row.actions.contains(&ChildAction::AnswerDelete).then_some(inbound)
}
