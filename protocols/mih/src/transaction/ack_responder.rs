//! The acknowledgement responder: of whoever a message with ACK-Req came to (IEEE 802.21-2008 clause 8.2.3, the
//! ACK responder state machine).
//!
//! Boxes and arrows are those of the standard's open implementation (ODTONE): an answer that is ready carries
//! the acknowledgement, else it goes out without payload, and an answer that comes later carries it once more.
//! A duplicate gets what the original got. *NoAnswerInTime* is ours: the implementation acknowledges
//! without payload unless the answer is there as the message is, and how long to wait for it is a setting here.
//! A duplicate ends that wait, since whoever sent it has waited long enough.

use super::diagram::diagram;

/// The boxes of the acknowledgement responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckResponder {
    Init,
    ReturnAck,
    Piggybacking,
    ReturnDuplicate,
}

diagram! { ack_responder, AckResponder;
    Init: [StartAckTimer];
    ReturnAck: [TransmitAck];
    Piggybacking: [Piggyback];
    ReturnDuplicate: [TransmitDup];
    ---
    Init: MsgOutAvail => Piggybacking;
    Init: MsgInAvail => ReturnAck;
    Init: NoAnswerInTime => ReturnAck;
    ReturnAck: MsgInAvail => ReturnAck;
    ReturnAck: MsgOutAvail => Piggybacking;
    Piggybacking: MsgInAvail => ReturnDuplicate;
    ReturnDuplicate: MsgInAvail => ReturnDuplicate;
}
