//! One station's session.

use super::FailReason;
use crate::station_id::StationId;
use alloc::vec::Vec;
use usher_access::Continuation;
use usher_core::Instant;
use usher_eap::authenticator::{Answer, Authenticator as Conversation};
use usher_eap::packet::{Code, Packet};
use usher_pkm::eap::BaseSide;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) station: StationId,
    /// The identity that the station gave.
    pub(super) name: Vec<u8>,
    /// What the AAA server wants to be told again with the session's next question.
    pub(super) next: Continuation,
    /// Questions asked.
    pub(super) rounds: u16,
    /// A question is outstanding.
    pub(super) asking: bool,
    /// When the open request is sent again.
    pub(super) resend_at: Option<Instant>,
    /// Our side of PKM, where that carries EAP.
    pub(super) pkm: BaseSide,
    /// The pass-through automaton.
    pub(super) eap: Conversation,
}

impl Session {
    pub(super) const fn new(
        station: StationId,
        name: Vec<u8>,
        pkm: BaseSide,
        next: Continuation,
        eap: Conversation,
    ) -> Self {
        Self { station, name, next, rounds: 0, asking: false, resend_at: None, pkm, eap }
    }

    /// Gives the automaton the AAA server's request; false where it is none.
    pub(super) fn challenge(&mut self, now: Instant, packet: &[u8]) -> bool {
        Packet::parse(packet).is_ok_and(|p| p.code() == Code::Request)
            && self.eap.answer(now, Answer::Request(packet))
    }

    /// There is no verdict; whether the station hears a last word of it.
    pub(super) fn give_up(&mut self, now: Instant, reason: FailReason, last_word: bool) {
        if reason != FailReason::StationTimeout {
            self.eap.answer(now, if last_word { Answer::Failure(&[]) } else { Answer::Timeout });
        }
    }
}

/// The name in a response to an Identity request.
pub(super) fn identity(packet: &[u8]) -> Vec<u8> {
    Packet::parse(packet).map_or_else(|_| Vec::new(), |p| p.data().to_vec())
}
