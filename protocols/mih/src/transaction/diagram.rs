//! How the diagrams are written here, and what the four machines of a transaction share.
//!
//! A diagram is boxes and arrows, as the standard draws it: entering a box does what is written in it, in its
//! order; then the first arrow whose condition holds is taken, and so on until none does.

use crate::Opcode;

/// One arrow of a diagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrow<S: 'static> {
    pub(crate) from: S,
    pub(crate) when: Condition,
    pub(crate) to: S,
}

/// One box of a diagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Square<S: 'static> {
    pub(crate) state: S,
    pub(crate) actions: &'static [Action],
}

/// Writes a diagram: first its boxes as `STATE: [ACTIONS];`, in the order of the enum, then its arrows as
/// `FROM: CONDITION => TO;`.
macro_rules! diagram {
    ($machine:ident, $state:ident;
     $($box:ident: [$($action:ident),*];)*
     ---
     $($from:ident: $when:ident => $to:ident;)*) => {
        impl $crate::transaction::diagram::Diagram for $state {
            const NAME: &'static str = stringify!($machine);
            const BOXES: &'static [$crate::transaction::diagram::Square<$state>] = &[$($crate::transaction::diagram::Square {
                state: $state::$box,
                actions: &[$($crate::transaction::diagram::Action::$action),*],
            }),*];
            const ARROWS: &'static [$crate::transaction::diagram::Arrow<$state>] = &[$($crate::transaction::diagram::Arrow {
                from: $state::$from,
                when: $crate::transaction::diagram::Condition::$when,
                to: $state::$to,
            }),*];
            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use diagram;

/// The states of one of the four machines, with its diagram.
pub(crate) trait Diagram: Copy + PartialEq + core::fmt::Debug + 'static {
    /// Which machine.
    const NAME: &'static str;
    /// Its boxes, in the order of the states.
    const BOXES: &'static [Square<Self>];
    /// Its arrows; those of one state are looked at from the top.
    const ARROWS: &'static [Arrow<Self>];
    /// The state's number.
    fn index(self) -> usize;

    /// What the box of this state says.
    fn actions(self) -> &'static [Action] {
        let here = &Self::BOXES[self.index()];
        debug_assert_eq!(here.state, self, "boxes are in the order of the states");
        here.actions
    }
    /// The arrow that is taken from here now.
    fn next(self, variables: &Variables) -> Option<usize> {
        Self::ARROWS.iter().position(|a| a.from == self && variables.holds(a.when))
    }
}

/// TransactionStatus and AckRequestorStatus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Ongoing,
    Success,
    Failure,
}

/// What the arrows ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Unconditional.
    Always,
    /// Opcode == Indication && StartAckRequestor.
    IndicationToBeAcknowledged,
    /// Opcode == Indication.
    Indication,
    /// Opcode == Request && StartAckRequestor.
    RequestToBeAcknowledged,
    /// Opcode == Request.
    Request,
    /// AckRequestorStatus == SUCCESS.
    AckSucceeded,
    /// AckRequestorStatus == SUCCESS, and nothing waits for the response by a timer yet.
    AckSucceededJustNow,
    /// AckRequestorStatus == FAILURE.
    AckFailed,
    /// AckRequestorStatus == FAILURE, and late responses are not wanted.
    AckFailedForGood,
    /// MsgInAvail.
    MsgInAvail,
    /// MsgInAvail && Opcode == Request && !StartAckResponder.
    UnacknowledgedRequestAgain,
    /// MsgInAvail && MsgIn.ACK-Rsp.
    AckReceived,
    /// MsgOutAvail.
    MsgOutAvail,
    /// MsgOutAvail && (!StartAckResponder || MsgOut.ACK-Rsp).
    ResponseReady,
    /// The time for an answer to carry the acknowledgement is over.
    NoAnswerInTime,
    /// !StartAckRequestor || AckRequestorStatus == SUCCESS.
    NothingToAwait,
    /// TransactionStopWhen == 0.
    TransactionStop,
    /// RetransmissionWhen == 0 && RtxCtr < RtxCtrMax.
    RetransmissionDue,
    /// RetransmissionWhen == 0 && RtxCtr == RtxCtrMax.
    RetransmissionsSpent,
    /// The response is overdue and the request may be sent again.
    ResponseOverdue,
    /// The response is overdue for good.
    ResponseMissing,
    /// The user wants it no longer.
    Abandoned,
    /// MIH_TP_Data confirmed a failure, and no retransmission of ours will come.
    TransportFailed,
}

/// What the boxes do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// TransactionStopWhen = TransactionLifeTime.
    StartTransactionTimer,
    /// RetransmissionWhen = RetransmissionInterval.
    StartRetransmissionTimer,
    /// Begins to wait for the response.
    StartResponseTimer,
    /// Begins to wait for an answer that carries the acknowledgement.
    StartAckTimer,
    /// Transmit(MsgOut).
    TransmitMsgOut,
    /// Transmit(MsgOut) again.
    RetransmitMsgOut,
    /// Transmit(ACK); MsgInAvail = FALSE.
    TransmitAck,
    /// Transmit(DUP); MsgInAvail = FALSE.
    TransmitDup,
    /// Process(MsgIn); MsgInAvail = FALSE.
    ProcessMsgIn,
    /// The ACK requestor starts if StartAckRequestor.
    RunAckRequestor,
    /// The ACK responder starts if StartAckResponder.
    RunAckResponder,
    /// StartAckResponder = MsgIn.ACK-Req && !IsMulticast.
    NoteAckReq,
    /// StartAckRequestor = MsgOut.ACK-Req.
    NoteMsgOutAckReq,
    /// ResponseReceived = TRUE; MsgOutAvail = FALSE.
    NoteResponse,
    /// AckRequestorStatus = ONGOING; RtxCtr = 0.
    AckOngoing,
    /// RtxCtr = RtxCtr + 1.
    CountRetransmission,
    /// Counts a request that was sent again for want of a response.
    CountResend,
    /// MsgOut.ACK-Rsp = 1; DUP = MsgOut.
    Piggyback,
    /// AckRequestorStatus = SUCCESS.
    AckSuccess,
    /// AckRequestorStatus = FAILURE.
    AckFailure,
    /// TransactionStatus = SUCCESS.
    Succeed,
    /// TransactionStatus = FAILURE.
    Fail,
}

/// What a machine wants its MIHF to do, in the order of the boxes that say so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// Arm TransactionStopWhen.
    StartTransactionTimer,
    /// Arm RetransmissionWhen.
    StartRetransmissionTimer,
    /// Arm the wait for the response.
    StartResponseTimer,
    /// Arm the wait for an answer that carries the acknowledgement.
    StartAckTimer,
    /// Send MsgOut for the first time.
    TransmitMsgOut,
    /// Send MsgOut once more.
    RetransmitMsgOut,
    /// Send an acknowledgement without payload.
    TransmitAck,
    /// Send the response once more, to a duplicate.
    TransmitDup,
    /// Give the message to its user.
    ProcessMsgIn,
    /// The acknowledgement came, or will not come any more.
    StopRetransmissionTimer,
    /// The transaction has come to this end; it only acknowledges duplicates from now on.
    Ended(Status),
}

/// The variables that the machines of one transaction share (IEEE 802.21-2008 clause 8.2.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variables {
    /// Opcode of the message that began the transaction.
    pub(crate) opcode: Opcode,
    pub(crate) transaction_status: Status,
    pub(crate) ack_requestor_status: Status,
    pub(crate) start_ack_requestor: bool,
    pub(crate) start_ack_responder: bool,
    pub(crate) is_multicast: bool,
    /// A message that carries something has come and nobody has taken it yet.
    pub(crate) msg_in_avail: bool,
    /// MsgIn.ACK-Req.
    pub(crate) msg_in_ack_req: bool,
    /// MsgIn.ACK-Rsp of what has just come, with or without payload.
    pub(crate) msg_in_ack_rsp: bool,
    pub(crate) msg_out_avail: bool,
    /// MsgOut.ACK-Req.
    pub(crate) msg_out_ack_req: bool,
    /// MsgOut.ACK-Rsp.
    pub(crate) msg_out_ack_rsp: bool,
    pub(crate) response_received: bool,
    /// TransactionStopWhen == 0.
    pub(crate) transaction_stop: bool,
    /// RetransmissionWhen == 0.
    pub(crate) retransmission_due: bool,
    pub(crate) rtx_ctr: u8,
    /// RtxCtrMax: how often a message is sent again.
    pub(crate) rtx_ctr_max: u8,
    /// A request that is not acknowledged after all goes on waiting for its response.
    pub(crate) late_response_wanted: bool,
    /// The acknowledgement may go out without payload.
    pub(crate) ack_due: bool,
    /// The response is waited for, by a timer or for ever.
    pub(crate) response_awaited: bool,
    /// The response has not come in its time.
    pub(crate) response_due: bool,
    /// How often the request was sent again for want of a response, and how often that may be.
    pub(crate) resends: u8,
    pub(crate) resends_max: u8,
    pub(crate) abandoned: bool,
    pub(crate) transport_failed: bool,
}

impl Variables {
    /// A transaction that begins with a message of this opcode.
    pub(crate) const fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            transaction_status: Status::Ongoing,
            ack_requestor_status: Status::Ongoing,
            start_ack_requestor: false,
            start_ack_responder: false,
            is_multicast: false,
            msg_in_avail: false,
            msg_in_ack_req: false,
            msg_in_ack_rsp: false,
            msg_out_avail: false,
            msg_out_ack_req: false,
            msg_out_ack_rsp: false,
            response_received: false,
            transaction_stop: false,
            retransmission_due: false,
            rtx_ctr: 0,
            rtx_ctr_max: 0,
            late_response_wanted: false,
            ack_due: false,
            response_awaited: false,
            response_due: false,
            resends: 0,
            resends_max: 0,
            abandoned: false,
            transport_failed: false,
        }
    }

    /// Whether a condition holds now.
    pub(crate) fn holds(&self, condition: Condition) -> bool {
        let (indication, request) = (self.opcode == Opcode::Indication, self.opcode == Opcode::Request);
        match condition {
            Condition::Always => true,
            Condition::IndicationToBeAcknowledged => indication && self.start_ack_requestor,
            Condition::Indication => indication,
            Condition::RequestToBeAcknowledged => request && self.start_ack_requestor,
            Condition::Request => request,
            Condition::AckSucceeded => self.ack_requestor_status == Status::Success,
            Condition::AckSucceededJustNow => {
                self.ack_requestor_status == Status::Success && !self.response_awaited
            }
            Condition::AckFailed => self.ack_requestor_status == Status::Failure,
            Condition::AckFailedForGood => {
                self.ack_requestor_status == Status::Failure && !self.late_response_wanted
            }
            Condition::MsgInAvail => self.msg_in_avail,
            Condition::UnacknowledgedRequestAgain => {
                self.msg_in_avail && request && !self.start_ack_responder
            }
            Condition::AckReceived => self.msg_in_ack_rsp,
            Condition::MsgOutAvail => self.msg_out_avail,
            Condition::ResponseReady => {
                self.msg_out_avail && (!self.start_ack_responder || self.msg_out_ack_rsp)
            }
            Condition::NoAnswerInTime => self.ack_due,
            Condition::NothingToAwait => {
                !self.start_ack_requestor || self.ack_requestor_status == Status::Success
            }
            Condition::TransactionStop => self.transaction_stop,
            Condition::RetransmissionDue => self.retransmission_due && self.rtx_ctr < self.rtx_ctr_max,
            Condition::RetransmissionsSpent => self.retransmission_due && self.rtx_ctr >= self.rtx_ctr_max,
            Condition::ResponseOverdue => self.response_due && self.resends < self.resends_max,
            Condition::ResponseMissing => self.response_due && self.resends >= self.resends_max,
            Condition::Abandoned => self.abandoned,
            Condition::TransportFailed => self.transport_failed && !self.start_ack_requestor,
        }
    }
}
