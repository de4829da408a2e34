//! INFORMATIONAL (RFC 7296 §1.4): deletion, proof of life, and SAs that move (RFC 4555 §3.5, §3.7).

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

/// What a request that SAs move by has said.
#[derive(Debug)]
pub(super) struct PathProbe {
    path: DatagramPath,
    /// How often the path had changed when it was sent. Whoever goes elsewhere and comes back has seen by then what was sent to the first
    /// place, which follows it: that is a proof of no place.
    moves: u64,
    /// Comes back if the other side has seen it (RFC 4555 §3.7).
    cookie: [u8; 16],
}

impl IkeSa {
    /// Messages take another path from now on.
    pub(super) fn set_path(&mut self, path: DatagramPath) {
        if path != self.path {
            self.moves += 1;
            self.path = path;
        }
    }

    /// It is not shown yet that the other side is where its messages go: nothing new is made for there (RFC 4555 §3.5, §3.7).
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

/// Whether a response brings back what its request had; otherwise the other side cannot be where it says.
fn brings_back(moving: &PathProbe, payloads: &[Payload]) -> bool {
    notify_payloads(payloads).any(|notify| notify.kind == NotifyType::COOKIE2 && notify.data == moving.cookie)
}

/// The responder has heard that the SAs have moved.
pub(super) fn handle_update_response(
    sa: &mut IkeSa,
    cx: &mut StepContext<'_>,
    moving: &PathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // They have moved again meanwhile, which is told next.
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

/// The initiator has answered from where it says that it is.
pub(super) fn handle_check_response(
    sa: &mut IkeSa,
    cx: &mut StepContext<'_>,
    moving: &PathProbe,
    payloads: &[Payload],
) {
    if sa.moves != moving.moves {
        // It has been sent to two addresses, and the answer does not say which of them works.
        return sa.plan_task(SaTask::Check);
    }
    if !brings_back(moving, payloads) {
        return sa.end_sa(cx, EndReason::Protocol);
    }
    sa.proved = moving.path.remote.ip();
    sa.report_move(cx);
}

/// The other side has answered that it has deleted a CHILD_SA, or has had none.
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
            // What the header has, which is what a NAT makes of it (RFC 4555 §3.5).
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
        // An initiator says so that was not convinced (§2.21.2).
        sa.end_lingering(cx, EndReason::Refused);
    }
}

/// The other side deletes the IKE_SA. What this side has under way on it is forgotten (§2.25.2).
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

/// The other side deletes a CHILD_SA, named by the SPI at which it receives. Gives the SPI that goes back.
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
