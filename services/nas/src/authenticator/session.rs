//! One station's session.

use super::Retransmission;
use crate::station_id::StationId;
use alloc::vec::Vec;
use usher_core::Duration;

/// What became of a packet from the station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// It answers what was asked: the AAA server shall see it.
    Answer,
    /// It answers nothing that was asked.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) station: StationId,
    pub(super) name: Vec<u8>,
    /// What the AAA client wants to be told with the session's next question.
    pub(super) note: Vec<u8>,
    pub(super) rounds: u16,
    /// A question to the AAA server is outstanding.
    pub(super) asking: bool,
    pub(super) resend_at: Option<usher_core::Instant>,
    /// How often the current request was sent again.
    pub(super) resent: u32,
    identifier: u8,
    request: Vec<u8>,
}

impl Session {
    pub(super) fn new(station: StationId, identifier: u8) -> Self {
        Self {
            station,
            name: Vec::new(),
            note: Vec::new(),
            rounds: 0,
            asking: false,
            resend_at: None,
            resent: 0,
            identifier,
            request: Vec::new(),
        }
    }
    pub(super) fn begin(&mut self) {
        self.request = [1, self.identifier, 0, 5, 1].into();
    }
    pub(super) fn begin_as(&mut self, name: &[u8], out: &mut Vec<u8>) {
        self.name = name.to_vec();
        out.extend_from_slice(&[2, self.identifier]);
        out.extend_from_slice(&((name.len() + 5) as u16).to_be_bytes());
        out.push(1);
        out.extend_from_slice(name);
    }
    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }
    pub(super) fn next_wait(&self, policy: &Retransmission) -> Duration {
        (policy.initial * (1 << self.resent.min(16))).min(policy.max)
    }
    pub(super) fn hear(&mut self, packet: &[u8]) -> Heard {
        if self.asking || packet.len() < 5 || packet[0] != 2 || packet[1] != self.identifier {
            return Heard::Nothing;
        }
        if self.rounds == 0 {
            self.name = packet[5..].to_vec();
        }
        Heard::Answer
    }
    pub(super) fn challenge(&mut self, packet: &mut Vec<u8>) -> bool {
        if packet.len() < 5 || packet[0] != 1 {
            return false;
        }
        self.identifier = packet[1];
        self.resent = 0;
        core::mem::swap(&mut self.request, packet);
        true
    }
    pub(super) fn conclude(&mut self, success: bool, packet: &mut Vec<u8>) {
        let code = if success { 3 } else { 4 };
        if packet.len() < 4 || packet[0] != code {
            packet.clear();
            packet.extend_from_slice(&[code, self.identifier, 0, 4]);
        }
    }
}
