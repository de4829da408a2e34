//! Timers of an IKE_SA: retransmissions, authentication deadline, rekeying, keepalives.

use super::authenticate;
use super::collision::{ChildState, SaState};
use super::config::IkeEndpointConfig;
use super::event::EndReason;
use super::sa::{IkeEndpointContext, IkeSa, IkeSaTask, LastResponseState, SaPhase};
use alloc::vec::Vec;
use usher_core::{Instant, Transmit};

impl IkeSa {
    /// Returns the next timeout.
    pub(super) fn next_timeout(&self, config: &IkeEndpointConfig) -> Option<Instant> {
        if matches!(self.phase, SaPhase::Ended) {
            return self.lingers_until;
        }
        let established = self.is_established();
        let keepalive = (self.nat.0 && established).then(|| self.sent + config.keepalive);
        let liveness = self.connection.liveness.filter(|_| established && self.outstanding.is_none());
        let eap = match &self.phase {
            SaPhase::Authenticating(authenticating) => authenticating.eap_timeout(),
            _ => None,
        };
        let rest = self.rest_until.filter(|_| !self.tasks.is_empty());
        let children = self.children.iter().filter_map(|child| child.rekey_at);
        let own = [
            self.outstanding.as_ref().map(|o| o.due),
            self.expiry_deadline,
            self.rekey_at,
            keepalive,
            self.expected_keys.as_ref().map(|expected| expected.until),
            liveness.map(|after| self.last_received + after),
            eap,
            rest,
        ];
        own.into_iter().flatten().chain(children).min()
    }

    /// Ends the IKE_SA because its initiator has not authenticated in time.
    fn end_unauthenticated_sa(&mut self, cx: &mut IkeEndpointContext<'_>) {
        // If a job of this side still works on the initiator's last request, the delay is not the initiator's fault.
        self.unproved = !matches!(self.answered, LastResponseState::Pending);
        self.end_sa(cx, EndReason::HalfOpen);
    }

    pub(super) fn handle_timeout(&mut self, cx: &mut IkeEndpointContext<'_>) {
        let now = cx.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if matches!(self.phase, SaPhase::Ended) {
            self.lingers_until = self.lingers_until.filter(|until| *until > now);
            return;
        }
        if is_due(self.expiry_deadline) {
            if self.is_established() {
                return self.end_sa(cx, self.deletion_reason());
            }
            cx.counters.half_open_expired += 1;
            return self.end_unauthenticated_sa(cx);
        }
        if is_due(self.outstanding.as_ref().map(|o| o.due)) && !self.retransmit_request(cx) {
            return;
        }
        if let SaPhase::Authenticating(authenticating) = &self.phase
            && is_due(authenticating.eap_timeout())
        {
            return authenticate::initiator::end_after_eap_timeout(self, cx);
        }
        if self.nat.0 && self.is_established() && is_due(Some(self.sent + cx.config.keepalive)) {
            self.sent = now;
            let mut bytes = cx.outputs.take_buffer();
            bytes.push(0xff);
            cx.counters.keepalives += 1;
            cx.outputs.push_transmit(Transmit::Datagram { path: self.path }, bytes);
        }
        if is_due(self.expected_keys.as_ref().map(|expected| expected.until)) {
            self.expected_keys = None;
        }
        if is_due(self.rekey_at) {
            self.rekey_at = None;
            // The peer should have deleted the IKE_SA that it has replaced.
            let left_over = self.state == SaState::Replaced;
            self.plan_task(if left_over { IkeSaTask::Delete(EndReason::Rekeyed) } else { IkeSaTask::Rekey });
        }
        let mut due = Vec::new();
        for child in self.children.iter_mut().filter(|child| is_due(child.rekey_at)) {
            child.rekey_at = None;
            let spi = child.sa.inbound;
            let left_over = child.state == ChildState::Replaced;
            due.push(if left_over { IkeSaTask::DeleteChild(spi) } else { IkeSaTask::RekeyChild(spi) });
        }
        due.into_iter().for_each(|task| self.plan_task(task));
        let liveness = self.connection.liveness.map(|after| self.last_received + after);
        if self.outstanding.is_none() && is_due(liveness) {
            self.plan_task(IkeSaTask::Probe);
        }
        self.go_on(cx);
    }
}
