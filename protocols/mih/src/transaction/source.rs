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
//! - The arrow of a multicast request back from PROCESS_MSG is left out: the MIHF takes no multicast requests
//!   from its user.

use super::diagram::diagram;

/// The boxes of the source machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Init,
    WaitAck,
    WaitResponseMsg,
    StartResponseTimer,
    Resend,
    ProcessMsg,
    Success,
    Failure,
}

diagram! { source, Source;
    Init: [StartTransactionTimer, TransmitMsgOut, RunAckRequestor];
    WaitAck: [];
    WaitResponseMsg: [];
    StartResponseTimer: [StartResponseTimer];
    Resend: [RetransmitMsgOut, CountResend];
    ProcessMsg: [NoteAckReq, NoteResponse, ProcessMsgIn, RunAckResponder];
    Success: [Succeed];
    Failure: [Fail];
    ---
    Init: IndicationToBeAcknowledged => WaitAck;
    Init: Indication => Success;
    Init: RequestToBeAcknowledged => WaitResponseMsg;
    Init: Request => StartResponseTimer;
    WaitAck: AckSucceeded => Success;
    WaitAck: AckFailed => Failure;
    WaitAck: Abandoned => Failure;
    WaitAck: TransactionStop => Failure;
    WaitResponseMsg: MsgInAvail => ProcessMsg;
    WaitResponseMsg: AckFailedForGood => Failure;
    WaitResponseMsg: AckSucceededJustNow => StartResponseTimer;
    WaitResponseMsg: Abandoned => Failure;
    WaitResponseMsg: TransportFailed => Failure;
    WaitResponseMsg: TransactionStop => Failure;
    WaitResponseMsg: ResponseOverdue => Resend;
    WaitResponseMsg: ResponseMissing => Failure;
    StartResponseTimer: Always => WaitResponseMsg;
    Resend: Always => StartResponseTimer;
    ProcessMsg: Always => Success;
}
