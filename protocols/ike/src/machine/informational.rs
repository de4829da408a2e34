//! INFORMATIONAL (RFC 7296 §1.4): deletion, dead peer detection, and MOBIKE moves (RFC 4555 §3.5, §3.7).

use super::collision::{ChildAction, ChildEvent, ChildRekeying, ChildState, SaEvent, SaRekeying, SaState};
use super::context::IkeEndpointContext;
use super::create;
use super::established::{
    ChildSaEntry, EstablishedSa, IkeSaTask, PeerRequestAnswer, SaExchange, StartedExchange,
};
use super::event::{EndReason, IkeEvent};
use super::nat::{detect_nat_sides, nat_detection};
use super::ticket_requests;
use crate::code::{NotifyType, ProtocolId};
use crate::message::{has_notify, notify_payloads};
use crate::payload::{DeletePayload, NotifyPayload, Payload};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::DatagramPath;

/// The deletion of a CHILD_SA, by its inbound SPI.
#[derive(Debug)]
struct ChildDeletion(u32);

/// Begins the deletion of a CHILD_SA. `None` if it ends already.
pub(super) fn start_child_deletion(sa: &mut EstablishedSa<'_>, spi: u32) -> Option<StartedExchange> {
    let child = sa.state.children.iter_mut().find(|child| child.sa.inbound == spi)?;
    child.state = ChildRekeying::step(child.state, ChildEvent::Delete, |_| false)?.to;
    Some(start_disowning(spi))
}

/// Begins the deletion of a CHILD_SA that this side has not installed.
pub(super) fn start_disowning(spi: u32) -> StartedExchange {
    let delete = DeletePayload::Child { protocol: ProtocolId::ESP, spis: [spi].into() };
    StartedExchange::informational(Vec::from([Payload::Delete(delete)]), ChildDeletion(spi))
}

impl SaExchange for ChildDeletion {
    /// The response may be with or without the SPI.
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        _: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        let Some(at) = sa.state.find_child(self.0) else { return Ok(None) };
        let row = ChildRekeying::step(sa.state.children[at].state, ChildEvent::DeleteAnswered, |_| false);
        if let Some(row) = row {
            debug_assert_eq!(row.to, ChildState::Gone);
            sa.state.children.remove(at).remove(cx, sa.base.id);
        }
        Ok(None)
    }
    fn defers_peer_rekeying(&self) -> bool {
        true
    }
}

/// The deletion of the IKE_SA.
#[derive(Debug)]
struct IkeSaDeletion(EndReason);

/// Begins the deletion of the IKE_SA. `None` if it ends already.
pub(super) fn start_ike_sa_deletion(
    sa: &mut EstablishedSa<'_>,
    reason: EndReason,
) -> Option<StartedExchange> {
    sa.state.rekeying = SaRekeying::step(sa.state.rekeying, SaEvent::Delete, |_| false)?.to;
    let payloads = Vec::from([Payload::Delete(DeletePayload::Ike)]);
    Some(StartedExchange::informational(payloads, IkeSaDeletion(reason)))
}

impl SaExchange for IkeSaDeletion {
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        _: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        create::apply_sa_rekey_event(sa, cx, SaEvent::DeleteAnswered, None);
        Err(self.0)
    }
    fn deletion_reason(&self) -> Option<EndReason> {
        Some(self.0)
    }
}

/// Dead peer detection.
#[derive(Debug)]
struct LivenessCheck;

pub(super) fn start_liveness_check() -> StartedExchange {
    StartedExchange::informational(Vec::new(), LivenessCheck)
}

impl SaExchange for LivenessCheck {
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        _: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        cx.outputs.push_event(IkeEvent::Alive { sa: sa.base.id });
        Ok(None)
    }
}

/// A MOBIKE exchange that proves the peer's address: the initiator's report of new addresses, or the responder's
/// return routability check.
#[derive(Debug)]
struct AddressProbe {
    /// [`IkeSaTask::Update`] or [`IkeSaTask::Check`].
    task: IkeSaTask,
    path: DatagramPath,
    /// The number of address changes at its sending. A peer that moved away and back may have seen the cookie
    /// elsewhere, so the check is valid only without a change.
    moves: u64,
    /// The COOKIE2 that the response has to return (RFC 4555 §3.7).
    cookie: [u8; 16],
}

/// Begins a MOBIKE exchange for one of these tasks.
pub(super) fn start_address_probe(
    sa: &EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    task: IkeSaTask,
) -> StartedExchange {
    let probe = AddressProbe { task, path: sa.base.path, moves: sa.base.moves, cookie: cx.random_octets() };
    let mut payloads = Vec::new();
    if probe.task == IkeSaTask::Update {
        payloads.push(Payload::Notify(NotifyPayload::new(NotifyType::UPDATE_SA_ADDRESSES)));
        payloads.extend(nat_detection(cx, sa.base.spis, sa.base.path));
    }
    payloads.push(Payload::Notify(NotifyPayload::with_data(NotifyType::COOKIE2, probe.cookie)));
    StartedExchange::informational(payloads, probe)
}

impl SaExchange for AddressProbe {
    fn handle_response(
        self: Box<Self>,
        sa: &mut EstablishedSa<'_>,
        cx: &mut IkeEndpointContext,
        payloads: Vec<Payload>,
    ) -> Result<Option<StartedExchange>, EndReason> {
        let updates = self.task == IkeSaTask::Update;
        if sa.base.moves != self.moves {
            // The addresses have changed again since this request was sent. It went to two, and the response does not
            // show which of them works.
            sa.state.plan_task(self.task);
            return Ok(None);
        }
        if updates && has_notify(&payloads, NotifyType::UNACCEPTABLE_ADDRESSES) {
            cx.outputs.push_event(IkeEvent::MoveRefused { sa: sa.base.id });
            return Ok(None);
        }
        let returned =
            |notify: &NotifyPayload| notify.kind == NotifyType::COOKIE2 && notify.data == self.cookie;
        // RFC 4555, 3.7: without the COOKIE2, the peer has not received the request.
        if !notify_payloads(&payloads).any(returned) {
            return Err(EndReason::Protocol);
        }
        if updates {
            sa.base.nat = detect_nat_sides(cx, &payloads, sa.base.spis, sa.base.path);
        }
        sa.base.proved_address = self.path.remote.ip();
        sa.report_path_change(cx);
        Ok(None)
    }
    fn proves_address(&self) -> bool {
        true
    }
}

/// Answers a request of the peer.
pub(super) fn answer_informational_request(
    sa: &mut EstablishedSa<'_>,
    cx: &mut IkeEndpointContext,
    payloads: &[Payload],
) -> PeerRequestAnswer {
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
    if sa.state.mobike {
        if has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES) && !sa.base.initiator {
            // The addresses in the IP header apply, even if a NAT has changed them (RFC 4555 §3.5).
            sa.base.set_path(sa.base.reply);
            sa.base.nat = detect_nat_sides(cx, payloads, sa.base.spis, sa.base.path);
            answer.extend(nat_detection(cx, sa.base.spis, sa.base.path));
            sa.state.plan_task(IkeSaTask::Check);
        }
        // RFC 4555, 3.7: COOKIE2 is returned unchanged.
        let cookies = notify_payloads(payloads).filter(|notify| notify.kind == NotifyType::COOKIE2);
        answer.extend(cookies.cloned().map(Payload::Notify));
    }
    if has_notify(payloads, NotifyType::TICKET_REQUEST) {
        answer.extend(ticket_requests::answer_ticket_request(sa, cx));
    }
    if has_notify(payloads, NotifyType::AUTHENTICATION_FAILED) {
        // The initiator reports that it rejects this side's proof (§2.21.2).
        return PeerRequestAnswer::LastResponse(answer, EndReason::Refused);
    }
    // RFC 7296, 1.4: each request is answered, with an empty message if need be.
    PeerRequestAnswer::Response(answer)
}

/// Handles the peer's Delete of the IKE_SA. This side's open exchanges end with it (§2.25.2).
fn delete_sa(sa: &mut EstablishedSa<'_>, cx: &mut IkeEndpointContext) -> PeerRequestAnswer {
    let replaced = matches!(sa.state.rekeying, SaState::Replaced | SaState::Outdated | SaState::Collided);
    let reason = match (replaced, &sa.state.exchange) {
        (true, _) => EndReason::Rekeyed,
        (false, Some(_)) if sa.state.rekeying == SaState::Deleting => sa.state.deletion_reason(),
        _ => EndReason::DeletedByPeer,
    };
    create::apply_sa_rekey_event(sa, cx, SaEvent::PeerDeletes, None);
    PeerRequestAnswer::LastResponse(Vec::new(), reason)
}

/// Handles the peer's Delete of a CHILD_SA, named by the peer's inbound SPI. Returns the SPI for the response.
fn delete_child(sa: &mut EstablishedSa<'_>, cx: &mut IkeEndpointContext, spi: u32) -> Option<u32> {
    let is_named = |child: &ChildSaEntry| child.sa.outbound == spi && child.state != ChildState::Bereft;
    let at = sa.state.children.iter().position(is_named)?;
    let child = &mut sa.state.children[at];
    let row = ChildRekeying::step(child.state, ChildEvent::PeerDeletes, |_| false)?;
    child.state = row.to;
    let inbound = child.sa.inbound;
    if row.actions.contains(&ChildAction::Remove) {
        cx.remove_child_sa(sa.base.id, inbound, spi);
    }
    if row.to == ChildState::Gone {
        sa.state.children.remove(at);
    }
    // RFC 7296, 1.4.1: an SA whose deletion this side requests is not named.
    row.actions.contains(&ChildAction::AnswerDelete).then_some(inbound)
}
