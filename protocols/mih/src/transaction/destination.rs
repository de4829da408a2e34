//! The destination transaction machine: of whoever a request or an indication comes to (IEEE 802.21-2008
//! clause 8.2.3, the transaction destination state machine).
//!
//! Boxes and arrows are those of the standard's open implementation (ODTONE). Ours are ANSWER_AGAIN (a request
//! without ACK-Req that comes again gets the response again: without it, sending a request again for want
//! of a response could not help) and the arrow *TransactionStop* out of SEND_RESPONSE.

use super::diagram::diagram;

/// The boxes of the destination machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    Init,
    WaitResponsePrm,
    SendResponse,
    AnswerAgain,
    Success,
    Failure,
}

diagram! { destination, Destination;
    Init: [StartTransactionTimer, NoteAckReq, ProcessMsgIn, RunAckResponder];
    WaitResponsePrm: [];
    SendResponse: [NoteMsgOutAckReq, TransmitMsgOut, RunAckRequestor];
    AnswerAgain: [TransmitDup];
    Success: [Succeed];
    Failure: [Fail];
    ---
    Init: Indication => Success;
    Init: Request => WaitResponsePrm;
    WaitResponsePrm: ResponseReady => SendResponse;
    WaitResponsePrm: TransactionStop => Failure;
    SendResponse: NothingToAwait => Success;
    SendResponse: AckFailed => Failure;
    SendResponse: TransactionStop => Failure;
    Success: UnacknowledgedRequestAgain => AnswerAgain;
    Failure: UnacknowledgedRequestAgain => AnswerAgain;
    AnswerAgain: UnacknowledgedRequestAgain => AnswerAgain;
}
