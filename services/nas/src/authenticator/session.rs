//! One station's session.

use super::FailReason;
use crate::station_id::StationId;
use alloc::vec::Vec;
use usher_access::LoginRoundState;
use usher_core::Instant;
use usher_eap::authenticator::{AaaReply, EapAuthenticator};
use usher_eap::packet::{EapCode, EapPacket};
use usher_pkm::eap::BaseStationEapSide;

#[derive(Debug)]
pub(super) struct EapSession {
    pub(super) station: StationId,
    /// The station's identity.
    pub(super) name: Vec<u8>,
    /// State for the session's next request to the AAA server.
    pub(super) next: LoginRoundState,
    /// Number of requests.
    pub(super) rounds: u16,
    /// True while a request is pending.
    pub(super) is_request_pending: bool,
    /// When the pending request to the station is retransmitted.
    pub(super) resend_at: Option<Instant>,
    /// The base station's side of PKM, if PKM carries EAP.
    pub(super) pkm: BaseStationEapSide,
    /// The pass-through state machine.
    pub(super) eap: EapAuthenticator,
}

impl EapSession {
    pub(super) const fn new(
        station: StationId,
        name: Vec<u8>,
        pkm: BaseStationEapSide,
        next: LoginRoundState,
        eap: EapAuthenticator,
    ) -> Self {
        Self { station, name, next, rounds: 0, is_request_pending: false, resend_at: None, pkm, eap }
    }

    /// Passes the AAA server's EAP request to the state machine. False if the packet is not a request.
    pub(super) fn apply_challenge(&mut self, now: Instant, packet: &[u8]) -> bool {
        EapPacket::parse(packet).is_ok_and(|p| p.code() == EapCode::Request)
            && self.eap.handle_aaa_reply(now, AaaReply::Request(packet))
    }

    /// Ends the session without a decision. `last_word`: whether the station gets a final packet.
    pub(super) fn give_up(&mut self, now: Instant, reason: FailReason, last_word: bool) {
        if reason != FailReason::StationTimeout {
            self.eap
                .handle_aaa_reply(now, if last_word { AaaReply::Failure(&[]) } else { AaaReply::Timeout });
        }
    }
}

/// Returns the name in an Identity response.
pub(super) fn read_identity(packet: &[u8]) -> Vec<u8> {
    EapPacket::parse(packet).map_or_else(|_| Vec::new(), |p| p.data().to_vec())
}
