//! Transactions of two MIHFs: a request with its response, or an indication (IEEE 802.21-2008 clause 8.2).
//!
//! Each transaction has a source or a destination machine. While a message with ACK-Req is pending, its sender also
//! runs an acknowledgement requestor and its receiver an acknowledgement responder. The four are [diagrams](AUTOMATA)
//! that share their variables.

mod ack_requestor;
mod ack_responder;
mod destination;
pub(crate) mod diagram;
mod source;
#[cfg(test)]
mod tests;

use ack_requestor::{AckRequestor, AckRequestorMachine};
use ack_responder::{AckResponder, AckResponderMachine};
use alloc::vec::Vec;
use destination::{Destination, DestinationMachine};
use diagram::Action;
pub(crate) use diagram::{TransactionEffect, TransactionStatus, TransactionVariables};
use source::{Source, SourceMachine};
use usher_core::automaton::AutomatonDiagram;

/// The four state machines of a transaction, as they run.
pub const AUTOMATA: [AutomatonDiagram; 4] = [
    SourceMachine::DIAGRAM,
    DestinationMachine::DIAGRAM,
    AckRequestorMachine::DIAGRAM,
    AckResponderMachine::DIAGRAM,
];

/// The source or destination machine of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransactionSide {
    Source(Source),
    Destination(Destination),
}

/// The state machines of one transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionStateMachines {
    pub(crate) variables: TransactionVariables,
    side: TransactionSide,
    requestor: Option<AckRequestor>,
    responder: Option<AckResponder>,
}

impl TransactionStateMachines {
    /// Creates a transaction of which this MIHF is the source. Its machines enter INIT with [`Self::start`].
    pub(crate) const fn for_source(variables: TransactionVariables) -> Self {
        Self { variables, side: TransactionSide::Source(Source::Init), requestor: None, responder: None }
    }
    /// Creates a transaction that a peer began.
    pub(crate) const fn for_destination(variables: TransactionVariables) -> Self {
        Self {
            variables,
            side: TransactionSide::Destination(Destination::Init),
            requestor: None,
            responder: None,
        }
    }
    /// True until the source or destination machine has reached a final state.
    pub(crate) fn is_open(&self) -> bool {
        self.variables.transaction_status == TransactionStatus::Ongoing
    }
    /// True while an acknowledgement is pending.
    pub(crate) fn awaits_ack(&self) -> bool {
        self.requestor == Some(AckRequestor::WaitAck)
    }

    /// Enters INIT and runs the transitions.
    pub(crate) fn start(&mut self, effects: &mut Vec<TransactionEffect>) {
        let actions = match self.side {
            TransactionSide::Source(state) => SourceMachine::entry(state),
            TransactionSide::Destination(state) => DestinationMachine::entry(state),
        };
        self.perform_actions(actions, effects);
        self.run_transitions(effects);
    }

    /// Takes transitions until none applies. Called after a variable has changed.
    pub(crate) fn run_transitions(&mut self, effects: &mut Vec<TransactionEffect>) {
        while let Some(actions) = self.take_transition() {
            self.perform_actions(actions, effects);
        }
        self.variables.msg_in_avail = false;
        self.variables.msg_in_ack_rsp = false;
        self.variables.retransmission_due = false;
        self.variables.response_due = false;
        self.variables.transport_failed = false;
    }

    /// Takes one transition and returns the actions of the new state. The acknowledgement machines run first: the
    /// others read their results.
    fn take_transition(&mut self) -> Option<&'static [Action]> {
        let Self { variables: v, side, requestor, responder } = self;
        if let Some(state) = requestor
            && let Some(arrow) = AckRequestorMachine::step(*state, |condition| v.meets_condition(condition))
        {
            *state = arrow.to;
            return Some(AckRequestorMachine::entry(arrow.to));
        }
        // The source or destination machine steps before the responder: only a message that it does not consume is a
        // duplicate. An exception is a response, which waits for the responder's mark.
        match side {
            TransactionSide::Source(state) => {
                if let Some(arrow) = SourceMachine::step(*state, |condition| v.meets_condition(condition)) {
                    *state = arrow.to;
                    return Some(SourceMachine::entry(arrow.to));
                }
            }
            TransactionSide::Destination(state) => {
                if let Some(arrow) =
                    DestinationMachine::step(*state, |condition| v.meets_condition(condition))
                {
                    *state = arrow.to;
                    return Some(DestinationMachine::entry(arrow.to));
                }
            }
        }
        let state = responder.as_mut()?;
        let arrow = AckResponderMachine::step(*state, |condition| v.meets_condition(condition))?;
        *state = arrow.to;
        Some(AckResponderMachine::entry(arrow.to))
    }

    fn perform_actions(&mut self, actions: &'static [Action], effects: &mut Vec<TransactionEffect>) {
        for action in actions {
            let v = &mut self.variables;
            match action {
                Action::StartTransactionTimer => effects.push(TransactionEffect::StartTransactionTimer),
                Action::StartRetransmissionTimer => {
                    v.retransmission_due = false;
                    effects.push(TransactionEffect::StartRetransmissionTimer);
                }
                Action::StartResponseTimer => {
                    (v.response_awaited, v.response_due) = (true, false);
                    effects.push(TransactionEffect::StartResponseTimer);
                }
                Action::StartAckTimer => effects.push(TransactionEffect::StartAckTimer),
                Action::TransmitMsgOut => effects.push(TransactionEffect::TransmitMsgOut),
                Action::RetransmitMsgOut => effects.push(TransactionEffect::RetransmitMsgOut),
                Action::TransmitAck => {
                    v.msg_in_avail = false;
                    effects.push(TransactionEffect::TransmitAck);
                }
                Action::TransmitDup => {
                    v.msg_in_avail = false;
                    effects.push(TransactionEffect::TransmitDup);
                }
                Action::ProcessMsgIn => {
                    v.msg_in_avail = false;
                    effects.push(TransactionEffect::ProcessMsgIn);
                }
                Action::RunAckRequestor => {
                    if v.start_ack_requestor {
                        self.requestor = Some(AckRequestor::Init);
                        self.perform_actions(AckRequestorMachine::entry(AckRequestor::Init), effects);
                    }
                }
                Action::RunAckResponder => {
                    if v.start_ack_responder {
                        self.responder = Some(AckResponder::Init);
                        self.perform_actions(AckResponderMachine::entry(AckResponder::Init), effects);
                    }
                }
                Action::NoteAckReq => v.start_ack_responder = v.msg_in_ack_req && !v.is_multicast,
                Action::NoteMsgOutAckReq => v.start_ack_requestor = v.msg_out_ack_req,
                Action::NoteResponse => (v.response_received, v.msg_out_avail) = (true, false),
                Action::AckOngoing => (v.ack_requestor_status, v.rtx_ctr) = (TransactionStatus::Ongoing, 0),
                Action::CountRetransmission => v.rtx_ctr = v.rtx_ctr.saturating_add(1),
                Action::CountResend => v.resends = v.resends.saturating_add(1),
                Action::Piggyback => v.msg_out_ack_rsp = true,
                Action::AckSuccess => {
                    v.ack_requestor_status = TransactionStatus::Success;
                    effects.push(TransactionEffect::StopRetransmissionTimer);
                }
                Action::AckFailure => {
                    v.ack_requestor_status = TransactionStatus::Failure;
                    effects.push(TransactionEffect::StopRetransmissionTimer);
                }
                Action::Succeed | Action::Fail => {
                    let end = if *action == Action::Succeed {
                        TransactionStatus::Success
                    } else {
                        TransactionStatus::Failure
                    };
                    v.transaction_status = end;
                    if self.requestor == Some(AckRequestor::WaitAck) {
                        effects.push(TransactionEffect::StopRetransmissionTimer);
                    }
                    self.requestor = None;
                    effects.push(TransactionEffect::Ended(end));
                }
            }
        }
    }
}
