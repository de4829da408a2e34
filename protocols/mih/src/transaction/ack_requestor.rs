//! The acknowledgement requestor: of whoever sent a message with ACK-Req (IEEE 802.21-2008 clause 8.2.3, the
//! ACK requestor state machine).
//!
//! Boxes and arrows are those of the standard's open implementation (ODTONE), which sends a message again twice
//! at most.

use super::diagram::diagram;

/// The boxes of the acknowledgement requestor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckRequestor {
    Init,
    WaitAck,
    Retransmit,
    Success,
    Failure,
}

diagram! { ack_requestor, AckRequestor;
    Init: [AckOngoing];
    WaitAck: [StartRetransmissionTimer];
    Retransmit: [RetransmitMsgOut, CountRetransmission];
    Success: [AckSuccess];
    Failure: [AckFailure];
    ---
    Init: Always => WaitAck;
    WaitAck: AckReceived => Success;
    WaitAck: RetransmissionDue => Retransmit;
    WaitAck: RetransmissionsSpent => Failure;
    Retransmit: Always => WaitAck;
}
