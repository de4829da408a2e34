//! The acknowledgement requestor, which runs at the sender of a message with ACK-Req (IEEE 802.21-2008 clause 8.2.3,
//! the ACK requestor state machine).
//!
//! States and transitions are those of ODTONE, the open implementation of the standard, which retransmits a message
//! at most twice.

use super::diagram::{Action, Condition};
use usher_core::{automaton, names};

names! {
    /// The boxes of the acknowledgement requestor.
    pub(crate) AckRequestor {
        Init = "INIT",
        WaitAck = "WAIT_ACK",
        Retransmit = "RETRANSMIT",
        Success = "SUCCESS",
        Failure = "FAILURE",
    }
}

automaton! {
    /// Its diagram.
    pub(crate) AckRequestorMachine("mih-ack-requestor", "IEEE 802.21-2008, 8.2.3, ACK requestor"):
        AckRequestor from Init, when Condition, do Action;
    Init [AckOngoing] { _ => WaitAck; }
    WaitAck [StartRetransmissionTimer] {
        AckReceived => Success;
        RetransmissionDue => Retransmit;
        RetransmissionsSpent => Failure;
        ! waits: "for the acknowledgement";
    }
    Retransmit [RetransmitMsgOut, CountRetransmission] { _ => WaitAck; }
    Success [AckSuccess] { ! ends: "acknowledged"; }
    Failure [AckFailure] { ! ends: "not acknowledged"; }
}
