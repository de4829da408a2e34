//! The variables, conditions and actions that the four state machines of a transaction share.
//!
//! A machine that enters a state performs the state's actions in order. It then takes the first transition whose
//! condition holds, until none does.

use crate::Opcode;
use usher_core::names;

/// TransactionStatus and AckRequestorStatus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransactionStatus {
    Ongoing,
    Success,
    Failure,
}

names! {
    /// A condition of a transition.
    pub(crate) Condition {
        IndicationToBeAcknowledged = "Opcode == Indication && StartAckRequestor",
        Indication = "Opcode == Indication",
        RequestToBeAcknowledged = "Opcode == Request && StartAckRequestor",
        Request = "Opcode == Request",
        AckSucceeded = "AckRequestorStatus == SUCCESS",
        AckSucceededJustNow = "AckRequestorStatus == SUCCESS, and the response timer has not started",
        AckFailed = "AckRequestorStatus == FAILURE",
        AckFailedForGood = "AckRequestorStatus == FAILURE, and late responses are not wanted",
        MsgInAvail = "MsgInAvail",
        UnacknowledgedRequestAgain = "MsgInAvail && Opcode == Request && !StartAckResponder",
        AckReceived = "MsgInAvail && MsgIn.ACK-Rsp",
        MsgOutAvail = "MsgOutAvail",
        ResponseReady = "MsgOutAvail && (!StartAckResponder || MsgOut.ACK-Rsp)",
        NoAnswerInTime = "The time for an answer to carry the acknowledgement is over",
        NothingToAwait = "!StartAckRequestor || AckRequestorStatus == SUCCESS",
        TransactionStop = "TransactionStopWhen == 0",
        RetransmissionDue = "RetransmissionWhen == 0 && RtxCtr < RtxCtrMax",
        RetransmissionsSpent = "RetransmissionWhen == 0 && RtxCtr == RtxCtrMax",
        ResponseOverdue = "The response is overdue and the request may be sent again",
        ResponseMissing = "The response is overdue and the request may not be sent again",
        Abandoned = "The user has cancelled the request",
        TransportFailed = "MIH_TP_Data confirmed a failure, and no retransmission is left",
    }
}

names! {
    /// An action of a state.
    pub(crate) Action {
        StartTransactionTimer = "TransactionStopWhen = TransactionLifeTime",
        StartRetransmissionTimer = "RetransmissionWhen = RetransmissionInterval",
        StartResponseTimer = "Starts to wait for the response",
        StartAckTimer = "Starts to wait for an answer that carries the acknowledgement",
        TransmitMsgOut = "Transmit(MsgOut)",
        RetransmitMsgOut = "Transmit(MsgOut) again",
        TransmitAck = "Transmit(ACK); MsgInAvail = FALSE",
        TransmitDup = "Transmit(DUP); MsgInAvail = FALSE",
        ProcessMsgIn = "Process(MsgIn); MsgInAvail = FALSE",
        RunAckRequestor = "The ACK requestor starts if StartAckRequestor",
        RunAckResponder = "The ACK responder starts if StartAckResponder",
        NoteAckReq = "StartAckResponder = MsgIn.ACK-Req && !IsMulticast",
        NoteMsgOutAckReq = "StartAckRequestor = MsgOut.ACK-Req",
        NoteResponse = "ResponseReceived = TRUE; MsgOutAvail = FALSE",
        AckOngoing = "AckRequestorStatus = ONGOING; RtxCtr = 0",
        CountRetransmission = "RtxCtr = RtxCtr + 1",
        CountResend = "Counts a request that was sent again because no response came",
        Piggyback = "MsgOut.ACK-Rsp = 1; DUP = MsgOut",
        AckSuccess = "AckRequestorStatus = SUCCESS",
        AckFailure = "AckRequestorStatus = FAILURE",
        Succeed = "TransactionStatus = SUCCESS",
        Fail = "TransactionStatus = FAILURE",
    }
}

/// An effect that a machine requests from its MIHF, in the order of the actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransactionEffect {
    /// Arm TransactionStopWhen.
    StartTransactionTimer,
    /// Arm RetransmissionWhen.
    StartRetransmissionTimer,
    /// Arm the wait for the response.
    StartResponseTimer,
    /// Arm the timer that waits for a response to carry the acknowledgement.
    StartAckTimer,
    /// Send MsgOut for the first time.
    TransmitMsgOut,
    /// Retransmit MsgOut.
    RetransmitMsgOut,
    /// Send an acknowledgement without payload.
    TransmitAck,
    /// Send the response again, for a duplicate request.
    TransmitDup,
    /// Pass the message to its user.
    ProcessMsgIn,
    /// The acknowledgement has arrived, or is no longer awaited.
    StopRetransmissionTimer,
    /// The transaction has ended with this status. From now on it only acknowledges duplicates.
    Ended(TransactionStatus),
}

/// The variables that the machines of one transaction share (IEEE 802.21-2008 clause 8.2.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionVariables {
    /// Opcode of the message that began the transaction.
    pub(crate) opcode: Opcode,
    pub(crate) transaction_status: TransactionStatus,
    pub(crate) ack_requestor_status: TransactionStatus,
    pub(crate) start_ack_requestor: bool,
    pub(crate) start_ack_responder: bool,
    pub(crate) is_multicast: bool,
    /// A message with payload has arrived and is not yet consumed.
    pub(crate) msg_in_avail: bool,
    /// MsgIn.ACK-Req.
    pub(crate) msg_in_ack_req: bool,
    /// MsgIn.ACK-Rsp of the latest message, with or without payload.
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
    /// RtxCtrMax: maximum retransmissions of a message.
    pub(crate) rtx_ctr_max: u8,
    /// True if a request waits for its response even when it is never acknowledged.
    pub(crate) late_response_wanted: bool,
    /// True if the acknowledgement may go out without payload.
    pub(crate) ack_due: bool,
    /// True if the transaction waits for the response, with or without a timer.
    pub(crate) response_awaited: bool,
    /// True if the response timer has expired.
    pub(crate) response_due: bool,
    /// Retransmissions of the request because the response is missing, and their maximum.
    pub(crate) resends: u8,
    pub(crate) resends_max: u8,
    pub(crate) abandoned: bool,
    pub(crate) transport_failed: bool,
}

impl TransactionVariables {
    /// Returns the variables of a transaction that begins with this opcode.
    pub(crate) const fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            transaction_status: TransactionStatus::Ongoing,
            ack_requestor_status: TransactionStatus::Ongoing,
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

    /// True if the condition holds now.
    #[inline]
    pub(crate) fn meets_condition(&self, condition: Condition) -> bool {
        let (indication, request) = (self.opcode == Opcode::Indication, self.opcode == Opcode::Request);
        match condition {
            Condition::IndicationToBeAcknowledged => indication && self.start_ack_requestor,
            Condition::Indication => indication,
            Condition::RequestToBeAcknowledged => request && self.start_ack_requestor,
            Condition::Request => request,
            Condition::AckSucceeded => self.ack_requestor_status == TransactionStatus::Success,
            Condition::AckSucceededJustNow => {
                self.ack_requestor_status == TransactionStatus::Success && !self.response_awaited
            }
            Condition::AckFailed => self.ack_requestor_status == TransactionStatus::Failure,
            Condition::AckFailedForGood => {
                self.ack_requestor_status == TransactionStatus::Failure && !self.late_response_wanted
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
                !self.start_ack_requestor || self.ack_requestor_status == TransactionStatus::Success
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
