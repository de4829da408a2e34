//! The source transaction machine, which runs at the sender of a request or an indication (IEEE 802.21-2008 clause
//! 8.2.3, the transaction source state machine).
//!
//! The standard's text is not public. States and transitions are those of ODTONE, its open implementation, whose
//! variables have the standard's names. These differ from ODTONE:
//!
//! - *AckFailedForGood* out of WAIT_RESPONSE_MSG is the give-up rule of the performance study of the standard's
//!   transport. A request that is never acknowledged fails, and a later response is ignored. A setting accepts late
//!   responses instead, since a response also proves that the request arrived.
//! - START_RESPONSE_TIMER and RESEND handle a case that the study leaves open: an acknowledgement arrives but no
//!   response. The timer starts with the acknowledgement, or with the request if none is requested. The request is sent
//!   again with its transaction identifier. It asks for no new acknowledgement, because the requestor has ended.
//! - *TransactionStop* out of WAIT_ACK, *Abandoned* and *TransportFailed* end a transaction early.
//! - A directed response cannot begin a transaction here: the destination machine sends responses.
//! - The transition of a multicast request back from PROCESS_MSG is absent. The only multicast request that the MIHF
//!   accepts from its user is Capability_Discover, and its first response suffices.

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
        ! never: "a transaction of this function begins with an indication or a request";
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
    Success [Succeed] { ! ends: "answered or acknowledged, or sent without a request for either"; }
    Failure [Fail] { ! ends: "the transaction has failed"; }
}
