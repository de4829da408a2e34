//! Each arrow of the four diagrams is taken.

use super::*;
use crate::Opcode;

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

struct Case {
    machines: Machines,
    effects: Vec<Effect>,
}

impl Case {
    fn begin(machines: Machines) -> Self {
        let mut case = Self { machines, effects: Vec::new() };
        case.machines.start(&mut case.effects);
        case
    }
    fn source(opcode: Opcode, ack: bool) -> Self {
        let mut v = Variables::new(opcode);
        (v.start_ack_requestor, v.rtx_ctr_max, v.resends_max, v.ack_due) = (ack, 2, 1, true);
        Self::begin(Machines::source(v))
    }
    fn destination(opcode: Opcode, ack: bool) -> Self {
        let mut v = Variables::new(opcode);
        (v.msg_in_ack_req, v.rtx_ctr_max, v.ack_due) = (ack, 1, opcode == Opcode::Indication);
        Self::begin(Machines::destination(v))
    }
    fn happens(&mut self, what: Happens) -> Vec<Effect> {
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
        self.machines.run(&mut self.effects);
        self.effects[before..].to_vec()
    }
    fn status(&self) -> Status {
        self.machines.variables.transaction_status
    }
}

/// Plays what happens; the effects of the last of it, and the transaction's status.
fn play(mut case: Case, happens: &[Happens]) -> (Vec<Effect>, Status) {
    let mut last = case.effects.clone();
    for what in happens {
        last = case.happens(*what);
    }
    (last, case.status())
}

/// Opcode, ACK-Req, what happens; the effects of the last of it, and the transaction's status.
type Line = (Opcode, bool, &'static [Happens], &'static [Effect], Status);

const SENT: [Effect; 2] = [Effect::StartTransactionTimer, Effect::TransmitMsgOut];
const ENDED_WELL: Effect = Effect::Ended(Status::Success);
const ENDED_BADLY: Effect = Effect::Ended(Status::Failure);

fn sources() {
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
        let found = play(Case::source(*opcode, *ack), happens);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
    let patient = |happens: &[Happens]| {
        let mut case = Case::source(Request, true);
        case.machines.variables.late_response_wanted = true;
        play(case, happens)
    };
    let spent = [Retransmission; 3];
    assert_eq!(patient(&spent), (vec![StopRetransmissionTimer], Status::Ongoing));
    let late = [Retransmission, Retransmission, Retransmission, AGAIN];
    let welcome = vec![ProcessMsgIn, StartAckTimer, ENDED_WELL, TransmitAck];
    assert_eq!(patient(&late), (welcome, Status::Success));
    let never = [Retransmission, Retransmission, Retransmission, Stop];
    assert_eq!(patient(&never), (vec![ENDED_BADLY], Status::Failure));
}

fn destinations() {
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
        let found = play(Case::destination(*opcode, *ack), happens);
        assert_eq!(found, (effects.to_vec(), *status), "{opcode} {ack} {happens:?}");
    }
}

#[test]
fn every_arrow_is_taken_and_does_what_its_box_says() {
    let cases = || {
        sources();
        destinations();
    };
    let acknowledged = || AckRequestorMachine::cover(|| AckResponderMachine::cover(cases));
    SourceMachine::cover(|| DestinationMachine::cover(acknowledged));
}

#[test]
fn nothing_is_acknowledged_to_all() {
    let mut v = Variables::new(Opcode::Request);
    (v.msg_in_ack_req, v.is_multicast, v.ack_due) = (true, true, true);
    let case = Case::begin(Machines::destination(v));
    assert_eq!(case.effects, [SENT[0], Effect::ProcessMsgIn]);
}

#[test]
fn a_quiet_machine_stays_where_it_is() {
    let quiet = Variables::new(Opcode::Request);
    for state in [Source::WaitAck, Source::WaitResponseMsg, Source::Success, Source::Failure] {
        assert!(SourceMachine::step(state, |c| quiet.holds(c)).is_none(), "{state:?}");
    }
    assert!(DestinationMachine::step(Destination::WaitResponsePrm, |c| quiet.holds(c)).is_none());
    assert!(AckRequestorMachine::step(AckRequestor::WaitAck, |c| quiet.holds(c)).is_none());
    for state in [AckResponder::Init, AckResponder::ReturnAck, AckResponder::Piggybacking] {
        assert!(AckResponderMachine::step(state, |c| quiet.holds(c)).is_none(), "{state:?}");
    }
}
