//! The source transaction machine: of whoever sends a request or an indication (IEEE 802.21-2008 clause
//! 8.2.3, the transaction source state machine).
//!
//! The standard's text is not public. Boxes and arrows are those of its open implementation (ODTONE), whose
//! variables bear the standard's names. Where that has no arrow and one is needed, the arrow is ours:
//!
//! - *AckFailedForGood* out of WAIT_RESPONSE_MSG is the give-up rule as the performance study of the standard's
//!   transport has it: a request that is never acknowledged fails, and a response that comes later is ignored; unless
//!   late responses are wanted, which is a setting, since a response tells as much as an acknowledgement does.
//! - START_RESPONSE_TIMER and RESEND are the answers to what the same study leaves open, what to do
//!   when an acknowledgement comes and no response. The wait begins with the acknowledgement, or with the
//!   request where none is asked for. The request is sent again with its transaction identifier, and not
//!   acknowledged anew: the acknowledgement requestor has done its work.
//! - *TransactionStop* out of WAIT_ACK, *Abandoned* and *TransportFailed* end a transaction early.
//! - A directed response that begins a transaction, which the diagram has as well, does not exist here:
//!   responses are sent by the destination machine.
//! - The arrow of a multicast request back from PROCESS_MSG is left out: the only multicast request that the MIHF takes from
//!   its user is Capability_Discover, and the first answer to it is enough.

use super::diagram::{Action, Condition};
use usher_core::{automaton, names};

names! {
    /// The boxes of the source machine.
    pub(crate) Source {
        Init = "INIT",
        WaitAck = "WAIT_ACK",
        WaitResponseMsg = "WAIT_RESPONSE_MSG",
        StartResponseTimer = "START_RESPONSE_TIMER",
        Resend = "RESEND",
        ProcessMsg = "PROCESS_MSG",
        Success = "SUCCESS",
        Failure = "FAILURE",
    }
}

automaton! {
    /// Its diagram.
    pub(crate) SourceMachine("mih-source", "IEEE 802.21-2008, 8.2.3, transaction source"):
        Source from Init, when Condition, do Action;
    Init [StartTransactionTimer, TransmitMsgOut, RunAckRequestor] {
        IndicationToBeAcknowledged => WaitAck;
        Indication => Success;
        RequestToBeAcknowledged => WaitResponseMsg;
        Request => StartResponseTimer;
        ! never: "what we begin is an indication or a request";
    }
    WaitAck {
        AckSucceeded => Success;
        AckFailed => Failure;
        Abandoned => Failure;
        TransactionStop => Failure;
        ! waits: "for the acknowledgement";
    }
    WaitResponseMsg {
        MsgInAvail => ProcessMsg;
        AckFailedForGood => Failure;
        AckSucceededJustNow => StartResponseTimer;
        Abandoned => Failure;
        TransportFailed => Failure;
        TransactionStop => Failure;
        ResponseOverdue => Resend;
        ResponseMissing => Failure;
        ! waits: "for the response";
    }
    StartResponseTimer [StartResponseTimer] { _ => WaitResponseMsg; }
    Resend [RetransmitMsgOut, CountResend] { _ => StartResponseTimer; }
    ProcessMsg [NoteAckReq, NoteResponse, ProcessMsgIn, RunAckResponder] { _ => Success; }
    Success [Succeed] { ! ends: "answered, or acknowledged, or sent where neither is asked for"; }
    Failure [Fail] { ! ends: "given up"; }
}
