//! Tests that take each arrow of the four diagrams.

use super::*;
use crate::Opcode;

/// An input of a transaction in a test.
#[derive(Clone, Copy, Debug)]
enum TransactionInput {
    /// An acknowledgement without payload.
    Ack,
    /// A message; as a response with or without ACK-Rsp, and with or without ACK-Req.
    Message {
        ack_req: bool,
        ack_rsp: bool,
    },
    /// The user's response, with or without ACK-Req.
    Response {
        ack_req: bool,
    },
    Retransmission,
    Overdue,
    Stop,
    AckTimer,
    Abandon,
    TransportFailure,
}
use TransactionInput::{Abandon, Ack, AckTimer, Overdue, Response, Retransmission, Stop, TransportFailure};

const RETRANSMITTED_MESSAGE: TransactionInput = TransactionInput::Message { ack_req: true, ack_rsp: false };
const PIGGYBACKED: TransactionInput = TransactionInput::Message { ack_req: true, ack_rsp: true };
const BARE: TransactionInput = TransactionInput::Message { ack_req: false, ack_rsp: false };

struct TransactionCase {
    machines: TransactionStateMachines,
    effects: Vec<TransactionEffect>,
}

impl TransactionCase {
    fn start_machines(machines: TransactionStateMachines) -> Self {
        let mut case = Self { machines, effects: Vec::new() };
        case.machines.start(&mut case.effects);
        case
    }
    fn for_source(opcode: Opcode, ack: bool) -> Self {
        let mut v = TransactionVariables::new(opcode);
        (v.start_ack_requestor, v.rtx_ctr_max, v.resends_max, v.ack_due) = (ack, 2, 1, true);
        Self::start_machines(TransactionStateMachines::for_source(v))
    }
    fn for_destination(opcode: Opcode, ack: bool) -> Self {
        let mut v = TransactionVariables::new(opcode);
        (v.msg_in_ack_req, v.rtx_ctr_max, v.ack_due) = (ack, 1, opcode == Opcode::Indication);
        Self::start_machines(TransactionStateMachines::for_destination(v))
    }
    fn apply_input(&mut self, what: TransactionInput) -> Vec<TransactionEffect> {
        let before = self.effects.len();
        let v = &mut self.machines.variables;
        match what {
            Ack => v.msg_in_ack_rsp = true,
            TransactionInput::Message { ack_req, ack_rsp } => {
                (v.msg_in_avail, v.msg_in_ack_req, v.msg_in_ack_rsp) = (true, ack_req, ack_rsp);
            }
            Response { ack_req } => (v.msg_out_avail, v.msg_out_ack_req) = (true, ack_req),
            Retransmission => v.retransmission_due = true,
            Overdue => v.response_due = true,
            Stop => v.transaction_stop = true,
            AckTimer => v.ack_due = true,
            Abandon => v.abandoned = true,
            TransportFailure => v.transport_failed = true,
        }
        self.machines.run_transitions(&mut self.effects);
        self.effects[before..].to_vec()
    }
    fn status(&self) -> TransactionStatus {
        self.machines.variables.transaction_status
    }
}

/// Applies inputs. Returns the effects of the last one and the transaction's status.
fn play_inputs(
    mut case: TransactionCase,
    happens: &[TransactionInput],
) -> (Vec<TransactionEffect>, TransactionStatus) {
    let mut last = case.effects.clone();
    for what in happens {
        last = case.apply_input(*what);
    }
    (last, case.status())
}

/// Opcode, ACK-Req and inputs; the effects of the last input and the transaction's status.
type CaseRow = (Opcode, bool, &'static [TransactionInput], &'static [TransactionEffect], TransactionStatus);

const SENT: [TransactionEffect; 2] =
    [TransactionEffect::StartTransactionTimer, TransactionEffect::TransmitMsgOut];
const SUCCESS_EFFECT: TransactionEffect = TransactionEffect::Ended(TransactionStatus::Success);
const FAILURE_EFFECT: TransactionEffect = TransactionEffect::Ended(TransactionStatus::Failure);

fn check_sources() {
    use Opcode::{Indication, Request};
    use TransactionEffect::*;
    let cases: &[CaseRow] = &[
        (Indication, false, &[], &[SENT[0], SENT[1], SUCCESS_EFFECT], TransactionStatus::Success),
        (Indication, true, &[], &[SENT[0], SENT[1], StartRetransmissionTimer], TransactionStatus::Ongoing),
        (Indication, true, &[Ack], &[StopRetransmissionTimer, SUCCESS_EFFECT], TransactionStatus::Success),
        (
            Indication,
            true,
            &[Retransmission],
            &[RetransmitMsgOut, StartRetransmissionTimer],
            TransactionStatus::Ongoing,
        ),
        (
            Indication,
            true,
            &[Retransmission, Ack],
            &[StopRetransmissionTimer, SUCCESS_EFFECT],
            TransactionStatus::Success,
        ),
        (
            Indication,
            true,
            &[Retransmission; 3],
            &[StopRetransmissionTimer, FAILURE_EFFECT],
            TransactionStatus::Failure,
        ),
        (Indication, true, &[Stop], &[StopRetransmissionTimer, FAILURE_EFFECT], TransactionStatus::Failure),
        (
            Indication,
            true,
            &[Abandon],
            &[StopRetransmissionTimer, FAILURE_EFFECT],
            TransactionStatus::Failure,
        ),
        (Request, false, &[], &[SENT[0], SENT[1], StartResponseTimer], TransactionStatus::Ongoing),
        (Request, false, &[BARE], &[ProcessMsgIn, SUCCESS_EFFECT], TransactionStatus::Success),
        (Request, false, &[BARE, BARE], &[], TransactionStatus::Success),
        (
            Request,
            false,
            &[RETRANSMITTED_MESSAGE],
            &[ProcessMsgIn, StartAckTimer, SUCCESS_EFFECT, TransmitAck],
            TransactionStatus::Success,
        ),
        (
            Request,
            false,
            &[RETRANSMITTED_MESSAGE, RETRANSMITTED_MESSAGE],
            &[TransmitAck],
            TransactionStatus::Success,
        ),
        (Request, false, &[Overdue], &[RetransmitMsgOut, StartResponseTimer], TransactionStatus::Ongoing),
        (Request, false, &[Overdue, Overdue], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (Request, false, &[Stop], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (Request, false, &[Abandon], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (Request, false, &[TransportFailure], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (Request, false, &[TransportFailure, BARE], &[], TransactionStatus::Failure),
        (Request, true, &[], &[SENT[0], SENT[1], StartRetransmissionTimer], TransactionStatus::Ongoing),
        (Request, true, &[Ack], &[StopRetransmissionTimer, StartResponseTimer], TransactionStatus::Ongoing),
        (Request, true, &[Ack, Ack], &[], TransactionStatus::Ongoing),
        (Request, true, &[TransportFailure], &[], TransactionStatus::Ongoing),
        (
            Request,
            true,
            &[Retransmission; 3],
            &[StopRetransmissionTimer, FAILURE_EFFECT],
            TransactionStatus::Failure,
        ),
        (
            Request,
            true,
            &[PIGGYBACKED],
            &[StopRetransmissionTimer, ProcessMsgIn, StartAckTimer, SUCCESS_EFFECT, TransmitAck],
            TransactionStatus::Success,
        ),
        (
            Request,
            true,
            &[BARE],
            &[ProcessMsgIn, StopRetransmissionTimer, SUCCESS_EFFECT],
            TransactionStatus::Success,
        ),
        (
            Request,
            true,
            &[Ack, PIGGYBACKED],
            &[ProcessMsgIn, StartAckTimer, SUCCESS_EFFECT, TransmitAck],
            TransactionStatus::Success,
        ),
        (Request, true, &[Ack, Overdue], &[RetransmitMsgOut, StartResponseTimer], TransactionStatus::Ongoing),
        (Request, true, &[Ack, Overdue, Overdue], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (
            Request,
            true,
            &[Retransmission; 2],
            &[RetransmitMsgOut, StartRetransmissionTimer],
            TransactionStatus::Ongoing,
        ),
    ];
    for (opcode, ack, happens, effects, status) in cases {
        let found = play_inputs(TransactionCase::for_source(*opcode, *ack), happens);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
    let patient = |happens: &[TransactionInput]| {
        let mut case = TransactionCase::for_source(Request, true);
        case.machines.variables.late_response_wanted = true;
        play_inputs(case, happens)
    };
    let spent = [Retransmission; 3];
    assert_eq!(patient(&spent), (vec![StopRetransmissionTimer], TransactionStatus::Ongoing));
    let late = [Retransmission, Retransmission, Retransmission, RETRANSMITTED_MESSAGE];
    let welcome = vec![ProcessMsgIn, StartAckTimer, SUCCESS_EFFECT, TransmitAck];
    assert_eq!(patient(&late), (welcome, TransactionStatus::Success));
    let never = [Retransmission, Retransmission, Retransmission, Stop];
    assert_eq!(patient(&never), (vec![FAILURE_EFFECT], TransactionStatus::Failure));
}

fn check_destinations() {
    use Opcode::{Indication, Request};
    use TransactionEffect::*;
    const PLAIN: TransactionInput = Response { ack_req: false };
    const ACKNOWLEDGED_RESPONSE: TransactionInput = Response { ack_req: true };
    let cases: &[CaseRow] = &[
        (Indication, false, &[], &[SENT[0], ProcessMsgIn, SUCCESS_EFFECT], TransactionStatus::Success),
        (Indication, false, &[BARE], &[], TransactionStatus::Success),
        (
            Indication,
            true,
            &[],
            &[SENT[0], ProcessMsgIn, StartAckTimer, SUCCESS_EFFECT, TransmitAck],
            TransactionStatus::Success,
        ),
        (Indication, true, &[RETRANSMITTED_MESSAGE], &[TransmitAck], TransactionStatus::Success),
        (
            Indication,
            true,
            &[RETRANSMITTED_MESSAGE, RETRANSMITTED_MESSAGE],
            &[TransmitAck],
            TransactionStatus::Success,
        ),
        (Request, false, &[], &[SENT[0], ProcessMsgIn], TransactionStatus::Ongoing),
        (Request, false, &[BARE], &[], TransactionStatus::Ongoing),
        (Request, false, &[PLAIN], &[TransmitMsgOut, SUCCESS_EFFECT], TransactionStatus::Success),
        (Request, false, &[PLAIN, BARE], &[TransmitDup], TransactionStatus::Success),
        (Request, false, &[PLAIN, BARE, BARE], &[TransmitDup], TransactionStatus::Success),
        (
            Request,
            false,
            &[ACKNOWLEDGED_RESPONSE],
            &[TransmitMsgOut, StartRetransmissionTimer],
            TransactionStatus::Ongoing,
        ),
        (
            Request,
            false,
            &[ACKNOWLEDGED_RESPONSE, Retransmission, Retransmission, BARE],
            &[TransmitDup],
            TransactionStatus::Failure,
        ),
        (Request, false, &[Stop], &[FAILURE_EFFECT], TransactionStatus::Failure),
        (Request, true, &[], &[SENT[0], ProcessMsgIn, StartAckTimer], TransactionStatus::Ongoing),
        (Request, true, &[AckTimer], &[TransmitAck], TransactionStatus::Ongoing),
        (Request, true, &[RETRANSMITTED_MESSAGE], &[TransmitAck], TransactionStatus::Ongoing),
        (Request, true, &[AckTimer, RETRANSMITTED_MESSAGE], &[TransmitAck], TransactionStatus::Ongoing),
        (Request, true, &[PLAIN], &[TransmitMsgOut, SUCCESS_EFFECT], TransactionStatus::Success),
        (Request, true, &[AckTimer, PLAIN], &[TransmitMsgOut, SUCCESS_EFFECT], TransactionStatus::Success),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE],
            &[TransmitMsgOut, StartRetransmissionTimer],
            TransactionStatus::Ongoing,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, RETRANSMITTED_MESSAGE],
            &[TransmitDup],
            TransactionStatus::Ongoing,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, Ack],
            &[StopRetransmissionTimer, SUCCESS_EFFECT],
            TransactionStatus::Success,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, Ack, RETRANSMITTED_MESSAGE, RETRANSMITTED_MESSAGE],
            &[TransmitDup],
            TransactionStatus::Success,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, Retransmission],
            &[RetransmitMsgOut, StartRetransmissionTimer],
            TransactionStatus::Ongoing,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, Retransmission, Retransmission],
            &[StopRetransmissionTimer, FAILURE_EFFECT],
            TransactionStatus::Failure,
        ),
        (
            Request,
            true,
            &[ACKNOWLEDGED_RESPONSE, Stop],
            &[StopRetransmissionTimer, FAILURE_EFFECT],
            TransactionStatus::Failure,
        ),
    ];
    for (opcode, ack, happens, effects, status) in cases {
        let found = play_inputs(TransactionCase::for_destination(*opcode, *ack), happens);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
}

#[test]
fn every_arrow_is_taken_and_does_what_its_box_says() {
    let cases = || {
        check_sources();
        check_destinations();
    };
    let acknowledged = || AckRequestorMachine::cover(|| AckResponderMachine::cover(cases));
    SourceMachine::cover(|| DestinationMachine::cover(acknowledged));
}

#[test]
fn nothing_is_acknowledged_to_all() {
    let mut v = TransactionVariables::new(Opcode::Request);
    (v.msg_in_ack_req, v.is_multicast, v.ack_due) = (true, true, true);
    let case = TransactionCase::start_machines(TransactionStateMachines::for_destination(v));
    assert_eq!(case.effects, [SENT[0], TransactionEffect::ProcessMsgIn]);
}

#[test]
fn a_quiet_machine_stays_where_it_is() {
    let quiet = TransactionVariables::new(Opcode::Request);
    for state in [Source::WaitAck, Source::WaitResponseMsg, Source::Success, Source::Failure] {
        assert!(SourceMachine::step(state, |c| quiet.meets_condition(c)).is_none(), "{state:?}");
    }
    assert!(DestinationMachine::step(Destination::WaitResponsePrm, |c| quiet.meets_condition(c)).is_none());
    assert!(AckRequestorMachine::step(AckRequestor::WaitAck, |c| quiet.meets_condition(c)).is_none());
    for state in [AckResponder::Init, AckResponder::ReturnAck, AckResponder::Piggybacking] {
        assert!(AckResponderMachine::step(state, |c| quiet.meets_condition(c)).is_none(), "{state:?}");
    }
}
