//! The acknowledgement responder, which runs at the receiver of a message with ACK-Req (IEEE 802.21-2008 clause
//! 8.2.3, the ACK responder state machine).
//!
//! States and transitions are those of ODTONE, the open implementation of the standard. A response that is ready
//! carries the acknowledgement. Otherwise the acknowledgement goes out without payload, and a later response carries
//! it once more. A duplicate gets the same reply as the original.
//!
//! *NoAnswerInTime* is an addition: ODTONE acknowledges without payload unless the response is ready at once. Here a
//! setting says how long to wait for it. A duplicate ends the wait, because its sender's timer has expired.

use super::diagram::{Action, Condition};
use usher_core::{automaton, names};

names! {
    /// The boxes of the acknowledgement responder.
    pub(crate) AckResponder {
        Init = "INIT",
        ReturnAck = "RETURN_ACK",
        Piggybacking = "PIGGYBACKING",
        ReturnDuplicate = "RETURN_DUPLICATE",
    }
}

automaton! {
    /// Its diagram.
    pub(crate) AckResponderMachine("mih-ack-responder", "IEEE 802.21-2008, 8.2.3, ACK responder"):
        AckResponder from Init, when Condition, do Action;
    Init [StartAckTimer] {
        MsgOutAvail => Piggybacking;
        MsgInAvail => ReturnAck;
        NoAnswerInTime => ReturnAck;
        ! waits: "for an answer that carries the acknowledgement";
    }
    ReturnAck [TransmitAck] {
        MsgInAvail => ReturnAck;
        MsgOutAvail => Piggybacking;
        ! waits: "for a duplicate, or the answer";
    }
    Piggybacking [Piggyback] {
        MsgInAvail => ReturnDuplicate;
        ! waits: "for a duplicate";
    }
    ReturnDuplicate [TransmitDup] {
        MsgInAvail => ReturnDuplicate;
        ! waits: "for a duplicate";
    }
}
