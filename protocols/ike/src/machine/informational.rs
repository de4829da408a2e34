//! INFORMATIONAL (RFC 7296 §1.4): deletion, dead peer detection, and MOBIKE moves (RFC 4555 §3.5, §3.7).

use super::collision::{ChildAction, ChildEvent, ChildRekeying, ChildState, SaEvent, SaRekeying, SaState};
use super::event::{EndReason, IkeEvent};
use super::sa::{IkeSa, PendingExchange, SaTask, StepContext};
use super::{authenticate, create, initial, resumption};
use crate::code::{ExchangeType, NotifyType, ProtocolId};
use crate::message::notify_payloads;
use crate::payload::{DeletePayload, NotifyPayload, Payload};
use alloc::vec::Vec;
use usher_core::DatagramPath;

const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// The contents of a MOBIKE request, to check its response.
#[derive(Debug)]
pub(super) struct PathProbe {
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
    pub(super) fn is_path_unproved(&self) -> bool {
        let asked = self.outstanding.as_ref().map(|outstanding| &outstanding.exchange);
        matches!(asked, Some(PendingExchange::Update(_) | PendingExchange::Check(_)))
            || self.tasks.iter().any(|task| matches!(task, SaTask::Update | SaTask::Check))
    }
}

pub(super) fn start_informational(sa: &mut IkeSa, cx: &mut StepContext<'_>, task: &SaTask) {
    match task {
        SaTask::DeleteChild(spi) => {
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
        SaTask::Disown(spi) => {
            let delete = DeletePayload::Child { protocol: ProtocolId::ESP, spis: [*spi].into() };
            sa.request_protected(
                cx,
                INFORMATIONAL,
                &[Payload::Delete(delete)],
                PendingExchange::DeleteChild(*spi),
            );
        }
        SaTask::Delete(reason) => {
            let Some(row) = SaRekeying::step(sa.state, SaEvent::Delete, |_| false) else { return };
            sa.state = row.to;
            sa.request_protected(
                cx,
                INFORMATIONAL,
                &[Payload::Delete(DeletePayload::Ike)],
                PendingExchange::Delete(*reason),
            );
        }
        SaTask::Update | SaTask::Check => {
            let moving = PathProbe { path: sa.path, moves: sa.moves, cookie: cx.random_octets() };
            let cookie = Payload::Notify(NotifyPayload::with_data(NotifyType::COOKIE2, moving.cookie));
            if *task == SaTask::Check {
                return sa.request_protected(cx, INFORMATIONAL, &[cookie], PendingExchange::Check(moving));
            }
            let mut payloads =
                Vec::from([Payload::Notify(NotifyPayload::new(NotifyType::UPDATE_SA_ADDRESSES))]);
            payloads.extend(initial::nat_detection(cx, sa.spis, sa.path));
            payloads.push(cookie);
            sa.request_protected(cx, INFORMATIONAL, &payloads, PendingExchange::Update(moving));
        }
        SaTask::RequestTicket => {
            let wish = Payload::Notify(NotifyPayload::new(NotifyType::TICKET_REQUEST));
            sa.request_protected(cx, INFORMATIONAL, &[wish], PendingExchange::Ticket);
        }
        _ => sa.request_protected(cx, INFORMATIONAL, &[], PendingExchange::Probe),
    }
}

/// True if a response returns the request's COOKIE2. Otherwise the peer has not received it.
fn brings_back(moving: &PathProbe, payloads: &[Payload]) -> bool {
    notify_payloads(payloads).any(|notify| notify.kind == NotifyType::COOKIE2 && notify.data == moving.cookie)
}

/// Handles the response to UPDATE_SA_ADDRESSES.
pub(super) fn handle_update_response(
    sa: &mut IkeSa,
    cx: &mut StepContext<'_>,
    moving: &PathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // The addresses changed again meanwhile: report them next.
        return sa.plan_task(SaTask::Update);
    }
    if authenticate::has_notify(payloads, NotifyType::UNACCEPTABLE_ADDRESSES) {
        return cx.outputs.push_event(IkeEvent::MoveRefused { sa: sa.id });
    }
    if !brings_back(moving, payloads) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    sa.nat = initial::nat_found(cx, payloads, sa.spis, sa.path);
    sa.proved = moving.path.remote.ip();
    sa.report_move(cx);
}

/// Handles the response to a return routability check.
pub(super) fn handle_check_response(
    sa: &mut IkeSa,
    cx: &mut StepContext<'_>,
    moving: &PathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // The request went to two addresses, so the response does not show which of them works.
        return sa.plan_task(SaTask::Check);
    }
    if !brings_back(moving, payloads) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    sa.proved = moving.path.remote.ip();
    sa.report_move(cx);
}

/// Handles the response to a Delete of a CHILD_SA, with or without its SPI.
pub(super) fn child_deleted(sa: &mut IkeSa, cx: &mut StepContext<'_>, spi: u32) {
    let Some(at) = sa.children.iter().position(|child| child.sa.inbound == spi) else { return };
    if let Some(row) = ChildRekeying::step(sa.children[at].state, ChildEvent::DeleteAnswered, |_| false) {
        debug_assert_eq!(row.to, ChildState::Gone);
        let child = sa.children.remove(at);
        child.remove(cx, sa.id);
    }
}

pub(super) fn handle_informational_request(sa: &mut IkeSa, cx: &mut StepContext<'_>, payloads: &[Payload]) {
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
        answer.push(Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis: deleted }));
    }
    if sa.mobike {
        if authenticate::has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) && !sa.initiator {
            // The addresses of the IP header, behind any NAT (RFC 4555 §3.5).
            sa.set_path(sa.reply);
            sa.nat = initial::nat_found(cx, payloads, sa.spis, sa.path);
            answer.extend(initial::nat_detection(cx, sa.spis, sa.path));
            sa.plan_task(SaTask::Check);
        }
        let cookies = notify_payloads(payloads).filter(|notify| notify.kind == NotifyType::COOKIE2);
        answer.extend(cookies.cloned().map(Payload::Notify));
    }
    if authenticate::has_notify(payloads, NotifyType::TICKET_REQUEST) {
        answer.extend(resumption::answer_ticket_request(sa, cx));
    }
    sa.respond_protected(cx, INFORMATIONAL, &answer);
    if authenticate::has_notify(payloads, NotifyType::AUTHENTICATION_FAILED) {
        // The initiator rejects this side's proof (§2.21.2).
        sa.end_lingering(cx, EndReason::Refused);
    }
}

/// Handles the peer's Delete of the IKE_SA. This side's open exchanges end with it (§2.25.2).
fn delete_sa(sa: &mut IkeSa, cx: &mut StepContext<'_>) {
    let replaced = matches!(sa.state, SaState::Replaced | SaState::Outdated | SaState::Collided);
    let reason = match (replaced, &sa.outstanding) {
        (true, _) => EndReason::Rekeyed,
        (false, Some(_)) if sa.state == SaState::Deleting => sa.leaves_for(),
        _ => EndReason::DeletedByPeer,
    };
    create::sa_event(sa, cx, SaEvent::PeerDeletes, None);
    sa.respond_protected(cx, INFORMATIONAL, &[]);
    sa.end_lingering(cx, reason);
}

/// Handles the peer's Delete of a CHILD_SA, named by the peer's inbound SPI. Returns the SPI for the response.
fn delete_child(sa: &mut IkeSa, cx: &mut StepContext<'_>, spi: u32) -> Option<u32> {
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
    row.actions.contains(&ChildAction::AnswerDelete).then_some(inbound)
}
