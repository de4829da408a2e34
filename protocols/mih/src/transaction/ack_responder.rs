//! The acknowledgement responder: of whoever a message with ACK-Req came to (IEEE 802.21-2008 clause 8.2.3, the
//! ACK responder state machine).
//!
//! Boxes and arrows are those of the standard's open implementation (ODTONE): an answer that is ready carries
//! the acknowledgement, else it goes out without payload, and an answer that comes later carries it once more.
//! A duplicate gets what the original got. *NoAnswerInTime* is ours: the implementation acknowledges
//! without payload unless the answer is there as the message is, and how long to wait for it is a setting here.
//! A duplicate ends that wait, since whoever sent it has waited long enough.

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
