//! The budget of a frame at a concentrator. No frame is dropped without a counter.

use super::world::{MOST_OUTSIDE, MOST_SESSIONS};
use crate::witness::{BudgetedMachine, InputEffect};
use crate::{InvariantBreach, ensure};
use usher_concentrator::AccessConcentrator;
use usher_core::MachineInput;
use usher_ppp::pppoe::{PppoeFrame, PppoeStage};

/// Protocols with control packets that need no answer: LCP, IPCP and IPV6CP.
const NEGOTIATED: [[u8; 2]; 3] = [[0xc0, 0x21], [0x80, 0x21], [0x80, 0x57]];
/// Configure-Ack, -Nak and -Reject, Terminate-Ack, Code-Reject, Protocol-Reject, Echo-Reply and Discard-Request (RFC 1661 §5).
const ANSWERS: [u8; 8] = [2, 3, 4, 6, 7, 8, 10, 11];
/// IPv6: a Router Solicitation is answered after a delay (RFC 4861 §6.2.6).
const IPV6: [u8; 2] = [0, 0x57];

/// True if the sender of a frame expects an answer.
fn wants_answer(frame: &PppoeFrame<'_>) -> bool {
    match *frame.payload {
        [a, b, code, ..] if frame.stage == PppoeStage::Session => {
            [a, b] != IPV6 && !(NEGOTIATED.contains(&[a, b]) && ANSWERS.contains(&code))
        }
        _ => true,
    }
}

impl BudgetedMachine for AccessConcentrator {
    type PriorState = ();

    fn counter_sum(&self) -> u64 {
        let (own, subscribers, ppp) = self.counters();
        own.total() + subscribers.total() + ppp.total()
    }
    fn state_before(&self, _: &MachineInput<'_>) {}
    fn check_budget(
        &self,
        input: &MachineInput<'_>,
        (): (),
        effect: &InputEffect,
    ) -> Result<(), InvariantBreach> {
        let (sessions, outside, logins) =
            (self.session_count(), self.unauthenticated_count(), self.login_count());
        ensure(sessions <= MOST_SESSIONS, || format!("{sessions} sessions, and {MOST_SESSIONS} may be"))?;
        ensure(outside <= MOST_OUTSIDE, || format!("{outside} hosts are not let in yet"))?;
        // An accepted host may renegotiate and authenticate again. It does not count as unauthenticated.
        ensure(logins <= MOST_SESSIONS, || format!("{logins} hosts show who they are"))?;
        let MachineInput::Frame { data, .. } = input else { return Ok(()) };
        let wants = PppoeFrame::parse(data).map_or(true, |frame| wants_answer(&frame));
        ensure(!wants || effect.is_noticed(), || format!("a frame is lost without a counter: {data:02x?}"))?;
        // A request is answered. It may replace its station's oldest session and evict another host: the ends of both
        // are also sent.
        effect.ensure_within(&[("ppp.discovery", 4), ("ppp.digest", 2), ("ppp.control", 6)])
    }
}
