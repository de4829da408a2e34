//! One station's session.

use super::FailReason;
use crate::station_id::StationId;
use alloc::vec::Vec;
use usher_access::LoginContinuation;
use usher_core::Instant;
use usher_eap::authenticator::{AaaReply, EapAuthenticator};
use usher_eap::packet::{EapCode, EapPacket};
use usher_pkm::eap::BaseSide;

#[derive(Debug)]
pub(super) struct EapSession {
    pub(super) station: StationId,
    /// The identity that the station gave.
    pub(super) name: Vec<u8>,
    /// What the AAA server wants to be told again with the session's next question.
    pub(super) next: LoginContinuation,
    /// Questions asked.
    pub(super) rounds: u16,
    /// A question is outstanding.
    pub(super) is_request_pending: bool,
    /// When the open request is sent again.
    pub(super) resend_at: Option<Instant>,
    /// Our side of PKM, where that carries EAP.
    pub(super) pkm: BaseSide,
    /// The pass-through automaton.
    pub(super) eap: EapAuthenticator,
}

impl EapSession {
    pub(super) const fn new(
        station: StationId,
        name: Vec<u8>,
        pkm: BaseSide,
        next: LoginContinuation,
        eap: EapAuthenticator,
    ) -> Self {
        Self { station, name, next, rounds: 0, is_request_pending: false, resend_at: None, pkm, eap }
    }

    /// Gives the automaton the AAA server's request; false where it is none.
    pub(super) fn apply_challenge(&mut self, now: Instant, packet: &[u8]) -> bool {
        EapPacket::parse(packet).is_ok_and(|p| p.code() == EapCode::Request)
            && self.eap.handle_aaa_reply(now, AaaReply::Request(packet))
    }

    /// There is no verdict; whether the station hears a last word of it.
    pub(super) fn give_up(&mut self, now: Instant, reason: FailReason, last_word: bool) {
        if reason != FailReason::StationTimeout {
            self.eap
                .handle_aaa_reply(now, if last_word { AaaReply::Failure(&[]) } else { AaaReply::Timeout });
        }
    }
}

/// The name in a response to an Identity request.
pub(super) fn read_identity(packet: &[u8]) -> Vec<u8> {
    EapPacket::parse(packet).map_or_else(|_| Vec::new(), |p| p.data().to_vec())
}
