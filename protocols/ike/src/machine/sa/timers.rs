//! Timers of an IKE_SA: retransmissions, authentication deadline, rekeying, keepalives.

use super::{IkeSa, IkeSaEnd};
use crate::machine::base::{IkeSaBase, LastResponseState};
use crate::machine::collision::{ChildState, SaState};
use crate::machine::config::IkeEndpointConfig;
use crate::machine::context::IkeEndpointContext;
use crate::machine::established::{EstablishedState, IkeSaTask};
use crate::machine::event::EndReason;
use crate::machine::phase::SaPhase;
use crate::machine::resumption::fall_back_to_full_init;
use alloc::vec::Vec;
use usher_core::{Instant, Transmit};

/// Retransmissions of a ticket request before the IKE_SA begins anew. A responder without support for tickets does
/// not respond.
const RESUMES: u32 = 1;

impl IkeSa {
    /// Returns the next timeout.
    pub(in crate::machine) fn next_timeout(&self, config: &IkeEndpointConfig) -> Option<Instant> {
        let base = &self.base;
        let retransmission = base.outstanding.as_ref().map(|outstanding| outstanding.due);
        match &self.phase {
            SaPhase::InitSent(_) | SaPhase::Resuming(_) => retransmission,
            SaPhase::Initiating(state) => retransmission.into_iter().chain(state.eap_timeout()).min(),
            SaPhase::Responding(state) => Some(state.deadline),
            SaPhase::Established(state) => {
                let liveness = base.connection.liveness.filter(|_| base.outstanding.is_none());
                let own = [
                    retransmission,
                    state.leaves_at,
                    state.rekey_at,
                    base.nat.0.then(|| base.sent + config.keepalive),
                    state.expected_keys.as_ref().map(|expected| expected.until),
                    liveness.map(|after| base.last_received + after),
                    state.rest_until.filter(|_| !state.tasks.is_empty()),
                ];
                let children = state.children.iter().filter_map(|child| child.rekey_at);
                own.into_iter().flatten().chain(children).min()
            }
            SaPhase::Ended(ended) => ended.lingers_until,
        }
    }

    pub(in crate::machine) fn handle_timeout(&mut self, cx: &mut IkeEndpointContext) {
        let now = cx.now;
        match &mut self.phase {
            SaPhase::Ended(ended) => ended.lingers_until = ended.lingers_until.filter(|until| *until > now),
            SaPhase::Responding(state) if state.deadline <= now => {
                cx.counters.half_open_expired += 1;
                // If a job of this side still works on the initiator's last request, the delay is not the initiator's
                // fault.
                let unproved = !matches!(self.base.answered, LastResponseState::Pending);
                self.end(cx, IkeSaEnd { reason: EndReason::HalfOpen, lingers: false, unproved });
            }
            SaPhase::Responding(_) => {}
            SaPhase::Established(state) if state.leaves_at.is_some_and(|at| at <= now) => {
                let reason = state.deletion_reason();
                self.end_sa(cx, reason);
            }
            SaPhase::InitSent(_)
            | SaPhase::Resuming(_)
            | SaPhase::Initiating(_)
            | SaPhase::Established(_) => {
                if self.base.outstanding.as_ref().is_some_and(|outstanding| outstanding.due <= now)
                    && !self.retransmit_request(cx)
                {
                    return;
                }
                if let SaPhase::Initiating(state) = &self.phase
                    && state.eap_timeout().is_some_and(|at| at <= now)
                {
                    // The EAP server has been silent for too long.
                    return self.end_sa(cx, EndReason::Unreachable);
                }
                if let SaPhase::Established(state) = &mut self.phase {
                    plan_due_tasks(&mut self.base, state, cx);
                }
                self.go_on(cx);
            }
        }
    }

    /// Retransmits the outstanding request. False if the retransmissions are used up; the IKE_SA then ends.
    fn retransmit_request(&mut self, cx: &mut IkeEndpointContext) -> bool {
        let Some(mut outstanding) = self.base.outstanding.take() else { return true };
        if outstanding.retransmissions >= RESUMES
            && let Some(SaPhase::Resuming(resuming)) = self.take_initial_phase(true)
        {
            let next = fall_back_to_full_init(&mut self.base, cx, *resuming);
            self.enter_initial_phase(cx, next);
            return true;
        }
        let refused = match &mut self.phase {
            SaPhase::InitSent(begun) => begun.record_refused_repeat(),
            _ => Ok(None),
        };
        let hurried = match refused {
            Ok(wait) => wait,
            Err(reason) => {
                self.end_sa(cx, reason);
                return false;
            }
        };
        // RFC 7296, 2.4: the peer counts as dead only after all retransmissions, with backoff.
        if outstanding.retransmissions >= cx.config.retransmission.count {
            cx.counters.given_up += 1;
            self.end_sa(cx, EndReason::Unreachable);
            return false;
        }
        outstanding.retransmissions += 1;
        let wait = cx.config.retransmission.retransmission_timeout_after(outstanding.retransmissions);
        outstanding.due = cx.now + hurried.unwrap_or(wait);
        cx.counters.retransmissions += 1;
        // RFC 7296, 2.1, 2.2: a retransmission has the same octets, message ID included.
        self.base.transmit_datagrams(cx, &outstanding.datagrams, self.base.path);
        self.base.outstanding = Some(outstanding);
        true
    }
}

/// Plans the tasks of an established IKE_SA that are due, and sends a keepalive to a NAT.
fn plan_due_tasks(base: &mut IkeSaBase, state: &mut EstablishedState, cx: &mut IkeEndpointContext) {
    let now = cx.now;
    let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
    if base.nat.0 && is_due(Some(base.sent + cx.config.keepalive)) {
        base.sent = now;
        let mut bytes = cx.outputs.take_buffer();
        bytes.push(0xff);
        cx.counters.keepalives += 1;
        cx.outputs.push_transmit(Transmit::Datagram { path: base.path }, bytes);
    }
    if is_due(state.expected_keys.as_ref().map(|expected| expected.until)) {
        state.expected_keys = None;
    }
    if is_due(state.rekey_at) {
        state.rekey_at = None;
        // The peer should have deleted the IKE_SA that it has replaced.
        let left_over = state.rekeying == SaState::Replaced;
        state.plan_task(if left_over { IkeSaTask::Delete(EndReason::Rekeyed) } else { IkeSaTask::Rekey });
    }
    let mut due = Vec::new();
    for child in state.children.iter_mut().filter(|child| is_due(child.rekey_at)) {
        child.rekey_at = None;
        let spi = child.sa.inbound;
        let left_over = child.state == ChildState::Replaced;
        due.push(if left_over { IkeSaTask::DeleteChild(spi) } else { IkeSaTask::RekeyChild(spi) });
    }
    due.into_iter().for_each(|task| state.plan_task(task));
    let liveness = base.connection.liveness.map(|after| base.last_received + after);
    if base.outstanding.is_none() && is_due(liveness) {
        state.plan_task(IkeSaTask::Probe);
    }
}
