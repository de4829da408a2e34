//! The destination transaction machine, which runs at the receiver of a request or an indication (IEEE 802.21-2008
//! clause 8.2.3, the transaction destination state machine).
//!
//! States and transitions are those of ODTONE, the open implementation of the standard. Two are additions: the
//! transition *TransactionStop* out of SEND_RESPONSE, and ANSWER_AGAIN. ANSWER_AGAIN sends the response again when a
//! request without ACK-Req is retransmitted. Otherwise the retransmission of a request could not replace a lost
//! response.

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
        ! never: "a transaction of a peer begins with an indication or a request";
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
