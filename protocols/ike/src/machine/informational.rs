//! INFORMATIONAL (RFC 7296 §1.4): deletion, proof of life, and SAs that move (RFC 4555 §3.5, §3.7).

use super::collision::{ChildAction, ChildEvent, ChildRekeying, ChildState, SaEvent, SaRekeying, SaState};
use super::event::{EndReason, Event};
use super::sa::{Context, Exchange, IkeSa, Task};
use super::{authenticate, create, initial, resumption};
use crate::code::{ExchangeType, NotifyType, ProtocolId};
use crate::message::notifies;
use crate::payload::{Delete, Notify, Payload};
use alloc::vec::Vec;
use usher_core::Path;

const INFORMATIONAL: ExchangeType = ExchangeType::INFORMATIONAL;

/// What a request that SAs move by has said.
#[derive(Debug)]
pub(super) struct Moving {
    path: Path,
    /// How often the path had changed when it was sent. Whoever goes elsewhere and comes back has seen by then what was sent to the first
    /// place, which follows it: that is a proof of no place.
    moves: u64,
    /// Comes back if the other side has seen it (RFC 4555 §3.7).
    cookie: [u8; 16],
}

impl IkeSa {
    /// Messages take another path from now on.
    pub(super) fn set_path(&mut self, path: Path) {
        if path != self.path {
            self.moves += 1;
            self.path = path;
        }
    }

    /// It is not shown yet that the other side is where its messages go: nothing new is made for there (RFC 4555 §3.5, §3.7).
    pub(super) fn is_path_unproved(&self) -> bool {
        let asked = self.outstanding.as_ref().map(|outstanding| &outstanding.what);
        matches!(asked, Some(Exchange::Update(_) | Exchange::Check(_)))
            || self.tasks.iter().any(|task| matches!(task, Task::Update | Task::Check))
    }
}

pub(super) fn begin(sa: &mut IkeSa, cx: &mut Context<'_>, task: &Task) {
    match task {
        Task::DeleteChild(spi) => {
            let Some(child) = sa.children.iter_mut().find(|child| child.sa.inbound == *spi) else { return };
            let Some(row) = ChildRekeying::step(child.state, ChildEvent::Delete, |_| false) else { return };
            child.state = row.to;
            let delete = Delete::Child { protocol: ProtocolId::ESP, spis: [*spi].into() };
            sa.request(cx, INFORMATIONAL, &[Payload::Delete(delete)], Exchange::DeleteChild(*spi));
        }
        Task::Disown(spi) => {
            let delete = Delete::Child { protocol: ProtocolId::ESP, spis: [*spi].into() };
            sa.request(cx, INFORMATIONAL, &[Payload::Delete(delete)], Exchange::DeleteChild(*spi));
        }
        Task::Delete(reason) => {
            let Some(row) = SaRekeying::step(sa.state, SaEvent::Delete, |_| false) else { return };
            sa.state = row.to;
            sa.request(cx, INFORMATIONAL, &[Payload::Delete(Delete::Ike)], Exchange::Delete(*reason));
        }
        Task::Update | Task::Check => {
            let moving = Moving { path: sa.path, moves: sa.moves, cookie: cx.random() };
            let cookie = Payload::Notify(Notify::with(NotifyType::COOKIE2, moving.cookie));
            if *task == Task::Check {
                return sa.request(cx, INFORMATIONAL, &[cookie], Exchange::Check(moving));
            }
            let mut payloads = Vec::from([Payload::Notify(Notify::new(NotifyType::UPDATE_SA_ADDRESSES))]);
            payloads.extend(initial::nat_detection(cx, sa.spis, sa.path));
            payloads.push(cookie);
            sa.request(cx, INFORMATIONAL, &payloads, Exchange::Update(moving));
        }
        Task::AskTicket => {
            let wish = Payload::Notify(Notify::new(NotifyType::TICKET_REQUEST));
            sa.request(cx, INFORMATIONAL, &[wish], Exchange::Ticket);
        }
        _ => sa.request(cx, INFORMATIONAL, &[], Exchange::Probe),
    }
}

/// Whether a response brings back what its request had; otherwise the other side cannot be where it says.
fn brings_back(moving: &Moving, payloads: &[Payload]) -> bool {
    notifies(payloads).any(|notify| notify.kind == NotifyType::COOKIE2 && notify.data == moving.cookie)
}

/// The responder has heard that the SAs have moved.
pub(super) fn updated(sa: &mut IkeSa, cx: &mut Context<'_>, moving: &Moving, payloads: &[Payload]) {
    if sa.moves != moving.moves {
        // They have moved again meanwhile, which is told next.
        return sa.plan(Task::Update);
    }
    if authenticate::has(payloads, NotifyType::UNACCEPTABLE_ADDRESSES) {
        return cx.outputs.event(Event::MoveRefused { sa: sa.id });
    }
    if !brings_back(moving, payloads) {
        return sa.end(cx, EndReason::Protocol);
    }
    sa.nat = initial::nat_found(cx, payloads, sa.spis, sa.path);
    sa.proved = moving.path.remote.ip();
    sa.moved(cx);
}

/// The initiator has answered from where it says that it is.
pub(super) fn checked(sa: &mut IkeSa, cx: &mut Context<'_>, moving: &Moving, payloads: &[Payload]) {
    if sa.moves != moving.moves {
        // It has been sent to two addresses, and the answer does not say which of them works.
        return sa.plan(Task::Check);
    }
    if !brings_back(moving, payloads) {
        return sa.end(cx, EndReason::Protocol);
    }
    sa.proved = moving.path.remote.ip();
    sa.moved(cx);
}

/// The other side has answered that it has deleted a CHILD_SA, or has had none.
pub(super) fn child_deleted(sa: &mut IkeSa, cx: &mut Context<'_>, spi: u32) {
    let Some(at) = sa.children.iter().position(|child| child.sa.inbound == spi) else { return };
    if let Some(row) = ChildRekeying::step(sa.children[at].state, ChildEvent::DeleteAnswered, |_| false) {
        debug_assert_eq!(row.to, ChildState::Gone);
        let child = sa.children.remove(at);
        child.remove(cx, sa.id);
    }
}

pub(super) fn request(sa: &mut IkeSa, cx: &mut Context<'_>, payloads: &[Payload]) {
    let deletes = payloads.iter().filter_map(|payload| match payload {
        Payload::Delete(delete) => Some(delete),
        _ => None,
    });
    let mut deleted = Vec::new();
    for delete in deletes {
        match delete {
            Delete::Ike => return delete_sa(sa, cx),
            Delete::Child { protocol: ProtocolId::ESP, spis } => {
                deleted.extend(spis.iter().filter_map(|spi| delete_child(sa, cx, *spi)));
            }
            Delete::Child { .. } => {}
        }
    }
    let mut answer = Vec::new();
    if !deleted.is_empty() {
        answer.push(Payload::Delete(Delete::Child { protocol: ProtocolId::ESP, spis: deleted }));
    }
    if sa.mobike {
        if authenticate::has(payloads, NotifyType::UPDATE_SA_ADDRESSES) && !sa.initiator {
            // What the header has, which is what a NAT makes of it (RFC 4555 §3.5).
            sa.set_path(sa.reply);
            sa.nat = initial::nat_found(cx, payloads, sa.spis, sa.path);
            answer.extend(initial::nat_detection(cx, sa.spis, sa.path));
            sa.plan(Task::Check);
        }
        let cookies = notifies(payloads).filter(|notify| notify.kind == NotifyType::COOKIE2);
        answer.extend(cookies.cloned().map(Payload::Notify));
    }
    if authenticate::has(payloads, NotifyType::TICKET_REQUEST) {
        answer.extend(resumption::give(sa, cx));
    }
    sa.respond(cx, INFORMATIONAL, &answer);
    if authenticate::has(payloads, NotifyType::AUTHENTICATION_FAILED) {
        // An initiator says so that was not convinced (§2.21.2).
        sa.end_lingering(cx, EndReason::Refused);
    }
}

/// The other side deletes the IKE_SA. What this side has under way on it is forgotten (§2.25.2).
fn delete_sa(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let replaced = matches!(sa.state, SaState::Replaced | SaState::Outdated | SaState::Collided);
    let reason = match (replaced, &sa.outstanding) {
        (true, _) => EndReason::Rekeyed,
        (false, Some(_)) if sa.state == SaState::Deleting => sa.leaves_for(),
        _ => EndReason::DeletedByPeer,
    };
    create::sa_event(sa, cx, SaEvent::PeerDeletes, None);
    sa.respond(cx, INFORMATIONAL, &[]);
    sa.end_lingering(cx, reason);
}

/// The other side deletes a CHILD_SA, named by the SPI at which it receives. Gives the SPI that goes back.
fn delete_child(sa: &mut IkeSa, cx: &mut Context<'_>, spi: u32) -> Option<u32> {
    let at =
        sa.children.iter().position(|child| child.sa.outbound == spi && child.state != ChildState::Bereft)?;
    let child = &mut sa.children[at];
    let row = ChildRekeying::step(child.state, ChildEvent::PeerDeletes, |_| false)?;
    child.state = row.to;
    let inbound = child.sa.inbound;
    if row.actions.contains(&ChildAction::Remove) {
        cx.remove(sa.id, inbound, spi);
    }
    if row.to == ChildState::Gone {
        sa.children.remove(at);
    }
    row.actions.contains(&ChildAction::AnswerDelete).then_some(inbound)
}
