//! Each arrow of the four diagrams is taken, and every line of them is held against a second writing.

use super::diagram::{Arrow, Condition, Square};
use super::*;
use crate::Opcode;
use std::collections::BTreeSet;

/// What a machine would print of its diagram.
fn print<S: Diagram>() -> Vec<String> {
    let boxes = S::BOXES.iter().map(|Square { state, actions }| {
        let actions: Vec<String> = actions.iter().map(|a| format!("{a:?}")).collect();
        format!("{state:?}: {}", actions.join(", ")).trim_end().to_owned()
    });
    let arrows = S::ARROWS.iter().map(|Arrow { from, when, to }| format!("{from:?} -> {to:?} if {when:?}"));
    boxes.chain(arrows).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty()).collect()
}

#[test]
fn the_source_diagram() {
    let expected = "
        Init: StartTransactionTimer, TransmitMsgOut, RunAckRequestor
        WaitAck:
        WaitResponseMsg:
        StartResponseTimer: StartResponseTimer
        Resend: RetransmitMsgOut, CountResend
        ProcessMsg: NoteAckReq, NoteResponse, ProcessMsgIn, RunAckResponder
        Success: Succeed
        Failure: Fail
        Init -> WaitAck if IndicationToBeAcknowledged
        Init -> Success if Indication
        Init -> WaitResponseMsg if RequestToBeAcknowledged
        Init -> StartResponseTimer if Request
        WaitAck -> Success if AckSucceeded
        WaitAck -> Failure if AckFailed
        WaitAck -> Failure if Abandoned
        WaitAck -> Failure if TransactionStop
        WaitResponseMsg -> ProcessMsg if MsgInAvail
        WaitResponseMsg -> Failure if AckFailedForGood
        WaitResponseMsg -> StartResponseTimer if AckSucceededJustNow
        WaitResponseMsg -> Failure if Abandoned
        WaitResponseMsg -> Failure if TransportFailed
        WaitResponseMsg -> Failure if TransactionStop
        WaitResponseMsg -> Resend if ResponseOverdue
        WaitResponseMsg -> Failure if ResponseMissing
        StartResponseTimer -> WaitResponseMsg if Always
        Resend -> StartResponseTimer if Always
        ProcessMsg -> Success if Always";
    assert_eq!(print::<Source>(), lines(expected));
}

#[test]
fn the_destination_diagram() {
    let expected = "
        Init: StartTransactionTimer, NoteAckReq, ProcessMsgIn, RunAckResponder
        WaitResponsePrm:
        SendResponse: NoteMsgOutAckReq, TransmitMsgOut, RunAckRequestor
        AnswerAgain: TransmitDup
        Success: Succeed
        Failure: Fail
        Init -> Success if Indication
        Init -> WaitResponsePrm if Request
        WaitResponsePrm -> SendResponse if ResponseReady
        WaitResponsePrm -> Failure if TransactionStop
        SendResponse -> Success if NothingToAwait
        SendResponse -> Failure if AckFailed
        SendResponse -> Failure if TransactionStop
        Success -> AnswerAgain if UnacknowledgedRequestAgain
        Failure -> AnswerAgain if UnacknowledgedRequestAgain
        AnswerAgain -> AnswerAgain if UnacknowledgedRequestAgain";
    assert_eq!(print::<Destination>(), lines(expected));
}

#[test]
fn the_acknowledgement_diagrams() {
    let requestor = "
        Init: AckOngoing
        WaitAck: StartRetransmissionTimer
        Retransmit: RetransmitMsgOut, CountRetransmission
        Success: AckSuccess
        Failure: AckFailure
        Init -> WaitAck if Always
        WaitAck -> Success if AckReceived
        WaitAck -> Retransmit if RetransmissionDue
        WaitAck -> Failure if RetransmissionsSpent
        Retransmit -> WaitAck if Always";
    assert_eq!(print::<AckRequestor>(), lines(requestor));
    let responder = "
        Init: StartAckTimer
        ReturnAck: TransmitAck
        Piggybacking: Piggyback
        ReturnDuplicate: TransmitDup
        Init -> Piggybacking if MsgOutAvail
        Init -> ReturnAck if MsgInAvail
        Init -> ReturnAck if NoAnswerInTime
        ReturnAck -> ReturnAck if MsgInAvail
        ReturnAck -> Piggybacking if MsgOutAvail
        Piggybacking -> ReturnDuplicate if MsgInAvail
        ReturnDuplicate -> ReturnDuplicate if MsgInAvail";
    assert_eq!(print::<AckResponder>(), lines(responder));
}

/// What happens to a transaction in a test.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// The acknowledgement without payload.
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
use Happens::{Abandon, Ack, AckTimer, Overdue, Response, Retransmission, Stop, TransportFailure};

const AGAIN: Happens = Happens::Message { ack_req: true, ack_rsp: false };
const PIGGYBACKED: Happens = Happens::Message { ack_req: true, ack_rsp: true };
const BARE: Happens = Happens::Message { ack_req: false, ack_rsp: false };

/// Which arrows have been taken, by machine and number.
type Taken = BTreeSet<(&'static str, usize)>;

struct Case {
    machines: Machines,
    effects: Vec<Effect>,
}

impl Case {
    fn begin(machines: Machines, taken: &mut Taken) -> Self {
        let mut case = Self { machines, effects: Vec::new() };
        case.machines.start_traced(&mut case.effects, &mut |name, at| {
            taken.insert((name, at));
        });
        case
    }
    fn source(opcode: Opcode, ack: bool, taken: &mut Taken) -> Self {
        let mut v = Variables::new(opcode);
        (v.start_ack_requestor, v.rtx_ctr_max, v.resends_max, v.ack_due) = (ack, 2, 1, true);
        Self::begin(Machines::source(v), taken)
    }
    fn destination(opcode: Opcode, ack: bool, taken: &mut Taken) -> Self {
        let mut v = Variables::new(opcode);
        (v.msg_in_ack_req, v.rtx_ctr_max, v.ack_due) = (ack, 1, opcode == Opcode::Indication);
        Self::begin(Machines::destination(v), taken)
    }
    fn happens(&mut self, what: Happens, taken: &mut Taken) -> Vec<Effect> {
        let before = self.effects.len();
        let v = &mut self.machines.variables;
        match what {
            Ack => v.msg_in_ack_rsp = true,
            Happens::Message { ack_req, ack_rsp } => {
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
        self.machines.run_traced(&mut self.effects, &mut |name, at| {
            taken.insert((name, at));
        });
        self.effects[before..].to_vec()
    }
    fn status(&self) -> Status {
        self.machines.variables.transaction_status
    }
}

/// Plays what happens; the effects of the last of it, and the transaction's status.
fn play(mut case: Case, happens: &[Happens], taken: &mut Taken) -> (Vec<Effect>, Status) {
    let mut last = case.effects.clone();
    for what in happens {
        last = case.happens(*what, taken);
    }
    (last, case.status())
}

/// Opcode, ACK-Req, what happens; the effects of the last of it, and the transaction's status.
type Line = (Opcode, bool, &'static [Happens], &'static [Effect], Status);

const SENT: [Effect; 2] = [Effect::StartTransactionTimer, Effect::TransmitMsgOut];
const ENDED_WELL: Effect = Effect::Ended(Status::Success);
const ENDED_BADLY: Effect = Effect::Ended(Status::Failure);

fn sources(taken: &mut Taken) {
    use Effect::*;
    use Opcode::{Indication, Request};
    let cases: &[Line] = &[
        (Indication, false, &[], &[SENT[0], SENT[1], ENDED_WELL], Status::Success),
        (Indication, true, &[], &[SENT[0], SENT[1], StartRetransmissionTimer], Status::Ongoing),
        (Indication, true, &[Ack], &[StopRetransmissionTimer, ENDED_WELL], Status::Success),
        (Indication, true, &[Retransmission], &[RetransmitMsgOut, StartRetransmissionTimer], Status::Ongoing),
        (Indication, true, &[Retransmission, Ack], &[StopRetransmissionTimer, ENDED_WELL], Status::Success),
        (Indication, true, &[Retransmission; 3], &[StopRetransmissionTimer, ENDED_BADLY], Status::Failure),
        (Indication, true, &[Stop], &[StopRetransmissionTimer, ENDED_BADLY], Status::Failure),
        (Indication, true, &[Abandon], &[StopRetransmissionTimer, ENDED_BADLY], Status::Failure),
        (Request, false, &[], &[SENT[0], SENT[1], StartResponseTimer], Status::Ongoing),
        (Request, false, &[BARE], &[ProcessMsgIn, ENDED_WELL], Status::Success),
        (Request, false, &[BARE, BARE], &[], Status::Success),
        (Request, false, &[AGAIN], &[ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck], Status::Success),
        (Request, false, &[AGAIN, AGAIN], &[TransmitAck], Status::Success),
        (Request, false, &[Overdue], &[RetransmitMsgOut, StartResponseTimer], Status::Ongoing),
        (Request, false, &[Overdue, Overdue], &[ENDED_BADLY], Status::Failure),
        (Request, false, &[Stop], &[ENDED_BADLY], Status::Failure),
        (Request, false, &[Abandon], &[ENDED_BADLY], Status::Failure),
        (Request, false, &[TransportFailure], &[ENDED_BADLY], Status::Failure),
        (Request, false, &[TransportFailure, BARE], &[], Status::Failure),
        (Request, true, &[], &[SENT[0], SENT[1], StartRetransmissionTimer], Status::Ongoing),
        (Request, true, &[Ack], &[StopRetransmissionTimer, StartResponseTimer], Status::Ongoing),
        (Request, true, &[Ack, Ack], &[], Status::Ongoing),
        (Request, true, &[TransportFailure], &[], Status::Ongoing),
        (Request, true, &[Retransmission; 3], &[StopRetransmissionTimer, ENDED_BADLY], Status::Failure),
        (
            Request,
            true,
            &[PIGGYBACKED],
            &[StopRetransmissionTimer, ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck],
            Status::Success,
        ),
        (Request, true, &[BARE], &[ProcessMsgIn, StopRetransmissionTimer, ENDED_WELL], Status::Success),
        (
            Request,
            true,
            &[Ack, PIGGYBACKED],
            &[ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck],
            Status::Success,
        ),
        (Request, true, &[Ack, Overdue], &[RetransmitMsgOut, StartResponseTimer], Status::Ongoing),
        (Request, true, &[Ack, Overdue, Overdue], &[ENDED_BADLY], Status::Failure),
        (Request, true, &[Retransmission; 2], &[RetransmitMsgOut, StartRetransmissionTimer], Status::Ongoing),
    ];
    for (opcode, ack, happens, effects, status) in cases {
        let found = play(Case::source(*opcode, *ack, taken), happens, taken);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
    let patient = |happens: &[Happens], taken: &mut Taken| {
        let mut case = Case::source(Request, true, taken);
        case.machines.variables.late_response_wanted = true;
        play(case, happens, taken)
    };
    let spent = [Retransmission; 3];
    assert_eq!(patient(&spent, taken), (vec![StopRetransmissionTimer], Status::Ongoing));
    let late = [Retransmission, Retransmission, Retransmission, AGAIN];
    let welcome = vec![ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck];
    assert_eq!(patient(&late, taken), (welcome, Status::Success));
    let never = [Retransmission, Retransmission, Retransmission, Stop];
    assert_eq!(patient(&never, taken), (vec![ENDED_BADLY], Status::Failure));
}

fn destinations(taken: &mut Taken) {
    use Effect::*;
    use Opcode::{Indication, Request};
    const PLAIN: Happens = Response { ack_req: false };
    const ASKING: Happens = Response { ack_req: true };
    let cases: &[Line] = &[
        (Indication, false, &[], &[SENT[0], ProcessMsgIn, ENDED_WELL], Status::Success),
        (Indication, false, &[BARE], &[], Status::Success),
        (
            Indication,
            true,
            &[],
            &[SENT[0], ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck],
            Status::Success,
        ),
        (Indication, true, &[AGAIN], &[TransmitAck], Status::Success),
        (Indication, true, &[AGAIN, AGAIN], &[TransmitAck], Status::Success),
        (Request, false, &[], &[SENT[0], ProcessMsgIn], Status::Ongoing),
        (Request, false, &[BARE], &[], Status::Ongoing),
        (Request, false, &[PLAIN], &[TransmitMsgOut, ENDED_WELL], Status::Success),
        (Request, false, &[PLAIN, BARE], &[TransmitDup], Status::Success),
        (Request, false, &[PLAIN, BARE, BARE], &[TransmitDup], Status::Success),
        (Request, false, &[ASKING], &[TransmitMsgOut, StartRetransmissionTimer], Status::Ongoing),
        (Request, false, &[ASKING, Retransmission, Retransmission, BARE], &[TransmitDup], Status::Failure),
        (Request, false, &[Stop], &[ENDED_BADLY], Status::Failure),
        (Request, true, &[], &[SENT[0], ProcessMsgIn, StartAckTimer], Status::Ongoing),
        (Request, true, &[AckTimer], &[TransmitAck], Status::Ongoing),
        (Request, true, &[AGAIN], &[TransmitAck], Status::Ongoing),
        (Request, true, &[AckTimer, AGAIN], &[TransmitAck], Status::Ongoing),
        (Request, true, &[PLAIN], &[TransmitMsgOut, ENDED_WELL], Status::Success),
        (Request, true, &[AckTimer, PLAIN], &[TransmitMsgOut, ENDED_WELL], Status::Success),
        (Request, true, &[ASKING], &[TransmitMsgOut, StartRetransmissionTimer], Status::Ongoing),
        (Request, true, &[ASKING, AGAIN], &[TransmitDup], Status::Ongoing),
        (Request, true, &[ASKING, Ack], &[StopRetransmissionTimer, ENDED_WELL], Status::Success),
        (Request, true, &[ASKING, Ack, AGAIN, AGAIN], &[TransmitDup], Status::Success),
        (
            Request,
            true,
            &[ASKING, Retransmission],
            &[RetransmitMsgOut, StartRetransmissionTimer],
            Status::Ongoing,
        ),
        (
            Request,
            true,
            &[ASKING, Retransmission, Retransmission],
            &[StopRetransmissionTimer, ENDED_BADLY],
            Status::Failure,
        ),
        (Request, true, &[ASKING, Stop], &[StopRetransmissionTimer, ENDED_BADLY], Status::Failure),
    ];
    for (opcode, ack, happens, effects, status) in cases {
        let found = play(Case::destination(*opcode, *ack, taken), happens, taken);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
}

/// The arrows of a machine that no case above has taken.
fn untaken<S: Diagram>(taken: &Taken) -> Vec<String> {
    let arrows = S::ARROWS.iter().enumerate();
    let left = arrows.filter(|(at, _)| !taken.contains(&(S::NAME, *at)));
    left.map(|(_, a)| format!("{}: {:?} -> {:?} if {:?}", S::NAME, a.from, a.to, a.when)).collect()
}

#[test]
fn every_arrow_is_taken_and_does_what_its_box_says() {
    let mut taken = Taken::new();
    sources(&mut taken);
    destinations(&mut taken);
    let left = [
        untaken::<Source>(&taken),
        untaken::<Destination>(&taken),
        untaken::<AckRequestor>(&taken),
        untaken::<AckResponder>(&taken),
    ];
    assert_eq!(left.concat(), Vec::<String>::new());
}

#[test]
fn nothing_is_acknowledged_to_all() {
    let mut v = Variables::new(Opcode::Request);
    (v.msg_in_ack_req, v.is_multicast, v.ack_due) = (true, true, true);
    let mut taken = Taken::new();
    let case = Case::begin(Machines::destination(v), &mut taken);
    assert_eq!(case.effects, [SENT[0], Effect::ProcessMsgIn]);
}

#[test]
fn a_quiet_machine_stays_where_it_is() {
    let quiet = Variables::new(Opcode::Request);
    for state in [Source::WaitAck, Source::WaitResponseMsg, Source::Success, Source::Failure] {
        assert_eq!(state.next(&quiet), None, "{state:?}");
    }
    assert_eq!(Destination::WaitResponsePrm.next(&quiet), None);
    assert_eq!(AckRequestor::WaitAck.next(&quiet), None);
    for state in [AckResponder::Init, AckResponder::ReturnAck, AckResponder::Piggybacking] {
        assert_eq!(state.next(&quiet), None, "{state:?}");
    }
    assert!(quiet.holds(Condition::Always));
}
