//! The budget of a datagram at a gateway. No datagram is dropped without a counter.

use super::world::{COOKIES_FROM, MOST_HALF_OPEN, MOST_SAS};
use crate::witness::{BudgetedMachine, InputEffect};
use crate::{InvariantBreach, ensure};
use usher_core::MachineInput;
use usher_gateway::{IkeGateway, NAT_SOCKET, SOCKET};

const IKE_SA_INIT: u8 = 34;
const CREATE_CHILD_SA: u8 = 36;
const IKE_FOLLOWUP_KE: u8 = 44;
/// Payload types: a notification (such as a cookie) and a fragment (RFC 7383).
const NOTIFY: u8 = 41;
const FRAGMENT: u8 = 53;

/// The header of a message (RFC 7296 §3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MessageHeader {
    first_payload: u8,
    exchange: u8,
    is_response: bool,
}

impl MessageHeader {
    /// Parses the header of a datagram. `None`: it is not a message.
    pub(super) fn from_input(input: &MachineInput<'_>) -> Option<Self> {
        let MachineInput::Datagram { path, data } = input else { return None };
        let message = if path.socket == NAT_SOCKET { data.strip_prefix(&[0; 4])? } else { data };
        let header: &[u8; 28] = message.first_chunk()?;
        Some(Self { first_payload: header[16], exchange: header[18], is_response: header[19] & 0x20 != 0 })
    }
}

/// The state of a gateway before a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatewayLoad {
    sessions: usize,
    /// True if first requests need a cookie.
    requires_cookies: bool,
}

impl BudgetedMachine for IkeGateway {
    type PriorState = GatewayLoad;

    fn counter_sum(&self) -> u64 {
        let (own, subscribers, ike) = self.counters();
        own.total() + subscribers.total() + ike.total()
    }
    fn state_before(&self, _: &MachineInput<'_>) -> GatewayLoad {
        GatewayLoad { sessions: self.session_count(), requires_cookies: self.half_open() >= COOKIES_FROM }
    }
    fn check_budget(
        &self,
        input: &MachineInput<'_>,
        before: GatewayLoad,
        effect: &InputEffect,
    ) -> Result<(), InvariantBreach> {
        let (half_open, sessions, logins) = (self.half_open(), self.session_count(), self.login_count());
        ensure(half_open <= MOST_HALF_OPEN, || format!("{half_open} IKE_SAs are half open"))?;
        ensure(sessions <= MOST_SAS, || format!("{sessions} IKE_SAs, and {MOST_SAS} may be"))?;
        ensure(logins <= half_open, || format!("{logins} logins, and {half_open} IKE_SAs are half open"))?;
        let MachineInput::Datagram { path, .. } = input else { return Ok(()) };
        if path.socket != SOCKET && path.socket != NAT_SOCKET {
            return Ok(());
        }
        let header = MessageHeader::from_input(input);
        // An expected response and a stored fragment need no reply.
        let is_taken = header.is_some_and(|header| header.is_response || header.first_payload == FRAGMENT)
            && effect.work_units("ike.open") > 0;
        ensure(effect.is_noticed() || is_taken, || {
            format!("a datagram is lost without a counter: {header:?} of {input:02x?}")
        })?;
        let Some(header) = header else {
            return effect.ensure_within(&[("ike.open", 0), ("ike.key_exchange", 0)]);
        };
        let is_first = header.exchange == IKE_SA_INIT;
        let is_of_session =
            [CREATE_CHILD_SA, IKE_FOLLOWUP_KE].contains(&header.exchange) && before.sessions > 0;
        let shows_cookie = header.first_payload == NOTIFY;
        let begins = u64::from(is_first && (!before.requires_cookies || shows_cookie));
        effect.ensure_within(&[
            ("ike.key_exchange", 2 * begins.max(is_of_session.into())),
            ("ike.sa", begins),
            ("ike.sign", u64::from(!is_first)),
            ("ike.verify", u64::from(!is_first)),
            ("ike.open", 2 * u64::from(!is_first)),
            ("ike.protect", 4 * u64::from(!is_first)),
            ("ike.derive", 4),
            ("ike.message", 4),
        ])
    }
}
