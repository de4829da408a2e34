//! The destination transaction machine: of whoever a request or an indication comes to (IEEE 802.21-2008
//! clause 8.2.3, the transaction destination state machine).
//!
//! Boxes and arrows are those of the standard's open implementation (ODTONE). Ours are ANSWER_AGAIN (a request
//! without ACK-Req that comes again gets the response again: without it, sending a request again for want
//! of a response could not help) and the arrow *TransactionStop* out of SEND_RESPONSE.

use super::diagram::{Action, Condition};
use usher_core::{automaton, names};

names! {
    /// The boxes of the destination machine.
    pub(crate) Destination {
        Init = "INIT",
        WaitResponsePrm = "WAIT_RESPONSE_PRM",
        SendResponse = "SEND_RESPONSE",
        AnswerAgain = "ANSWER_AGAIN",
        Success = "SUCCESS",
        Failure = "FAILURE",
    }
}

automaton! {
    /// Its diagram.
    pub(crate) DestinationMachine("mih-destination", "IEEE 802.21-2008, 8.2.3, transaction destination"):
        Destination from Init, when Condition, do Action;
    Init [StartTransactionTimer, NoteAckReq, ProcessMsgIn, RunAckResponder] {
        Indication => Success;
        Request => WaitResponsePrm;
        ! never: "what somebody else begins is an indication or a request";
    }
    WaitResponsePrm {
        ResponseReady => SendResponse;
        TransactionStop => Failure;
        ! waits: "for the user's response";
    }
    SendResponse [NoteMsgOutAckReq, TransmitMsgOut, RunAckRequestor] {
        NothingToAwait => Success;
        AckFailed => Failure;
        TransactionStop => Failure;
        ! waits: "for the acknowledgement";
    }
    AnswerAgain [TransmitDup] {
        UnacknowledgedRequestAgain => AnswerAgain;
        ! waits: "for a duplicate, until the transaction is forgotten";
    }
    Success [Succeed] {
        UnacknowledgedRequestAgain => AnswerAgain;
        ! waits: "for a duplicate, until the transaction is forgotten";
    }
    Failure [Fail] {
        UnacknowledgedRequestAgain => AnswerAgain;
        ! waits: "for a duplicate, until the transaction is forgotten";
    }
}
