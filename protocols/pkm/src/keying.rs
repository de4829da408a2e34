//! The key exchange: the SA-TEK handshake and the first exchange of traffic keys under an authorization key (IEEE
//! 802.16e-2005, 7.2.2.5 and 7.2.2.6), as two state machines without input or output of their own.
//!
//! ```text
//! Station                                     Base
//!    ◀── SA-TEK-Challenge (BS-Random) ──────────
//!    ─── SA-TEK-Request (both randoms) ────────▶
//!    ◀── SA-TEK-Response (SA-Descriptor) ───────
//!    ─── PKMv2 Key-Request (SAID, Nonce) ──────▶
//!    ◀── PKMv2 Key-Reply (two TEKs, Nonce) ─────
//! ```
//! Every message has a CMAC-Digest, which is verified first. Its packet number must exceed all before. An invalid
//! message is counted and dropped without a reply. A retransmission has a new packet number and digest, and the
//! random number or nonce of the first transmission.
//!
//! A host feeds each state machine messages and its timeout, and then drains it: `poll_transmit`, `poll_event`,
//! `poll_work`.
//!
//! # Sources
//! The order of messages and the retransmitting sides come from public descriptions, a vendor's system manual among
//! them. Attributes and their numbers, cryptographic suites and error codes are those of Wireshark's dissector. The
//! standard's text does not confirm these:
//! - Default timers: SA-TEK-Challenge every second and SA-TEK-Request every 300 ms, each with three retransmissions.
//!   The Key-Request's second (Operational Wait Timeout) is from the table of IEEE 802.16-2001, 10.2. That table sets
//!   no limit of retransmissions; here the same limit applies.
//! - The base station waits for a Key-Request from its latest SA-TEK-Response on, as long as a station retransmits
//!   its own.
//! - A challenge has PKM identifier zero, because it is unsolicited. The station counts on for its two requests.
//! - The first traffic key of an association has half the lifetime of the second, so that there are always two.
//! - The only suite is AES-CCM with AES key wrap (`02 01 04`); there is no negotiation.
//!
//! Not implemented: key renewal before the end of the lifetime, several security associations, SA-TEK-Update in
//! handovers, group keys.

mod base;
mod station;
mod tek;

pub use base::BaseStationKeying;
pub use station::StationKeying;
pub use tek::Tek;

use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::keys::AuthorizationKey;
use crate::message::{self, OwnedPkmMessage, PkmMessage};
use crate::protect::{self, CmacVerificationError};
use crate::work;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::automaton::AutomatonDiagram;
use usher_core::{Duration, WorkRecord};

/// The state tables of both sides, as they run.
pub const AUTOMATA: [AutomatonDiagram; 2] = [base::BaseTable::DIAGRAM, station::StationTable::DIAGRAM];

/// The cryptographic suite of associations: AES-CCM for data, and AES key wrap for keys.
pub const SUITE: [u8; 3] = [2, 1, 4];
/// The primary security association. The standard numbers it like the station's basic connection, which the host
/// knows.
pub const PRIMARY: u16 = 1;

/// The retransmissions of a message without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionPolicy {
    /// The interval, more than zero.
    pub after: Duration,
    /// Maximum retransmissions.
    pub times: u32,
}

/// The configuration of both sides; each uses its own part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyingConfig {
    /// The base station's SA-TEK-Challenge (SAChallengeTimer, SAChallengeMaxResends).
    pub challenge: RetransmissionPolicy,
    /// The station's SA-TEK-Request (SATEKTimer, SATEKRequestMaxResends).
    pub request: RetransmissionPolicy,
    /// The station's Key-Request (Operational Wait Timeout). The base station waits as long for the first.
    pub key_request: RetransmissionPolicy,
    /// Lifetime of an authorization key, sent in whole seconds.
    pub ak_lifetime: Duration,
    /// Lifetime of a traffic key, sent in whole seconds.
    pub tek_lifetime: Duration,
}

impl Default for KeyingConfig {
    fn default() -> Self {
        Self {
            challenge: RetransmissionPolicy { after: Duration::from_secs(1), times: 3 },
            request: RetransmissionPolicy { after: Duration::from_millis(300), times: 3 },
            key_request: RetransmissionPolicy { after: Duration::from_secs(1), times: 3 },
            ak_lifetime: Duration::from_secs(7 * 86_400),
            tek_lifetime: Duration::from_secs(12 * 3600),
        }
    }
}

/// An event of the key exchange. [`KeyingEvent::Failed`] is the last one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyingEvent {
    /// The station has traffic keys, or the base station has sent them for the first time. The first is the older.
    Keyed([Tek; 2]),
    /// The exchange has failed.
    Failed(KeyingFailure),
}

/// Why the exchange has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyingFailure {
    /// The peer did not send this message, or not a valid one.
    Silence(Code),
    /// The base station rejected the request with this error code.
    Rejected(u8),
}

usher_core::counters! {
    /// Counters of an automaton.
    pub struct KeyingCounters {
        /// Messages sent.
        sent,
        /// Octets of the sent messages.
        octets,
        /// Messages sent again.
        resent,
        /// Messages received that were valid and expected.
        heard,
        /// Dropped: malformed, or without a digest at the end.
        malformed,
        /// Dropped: the digest is wrong.
        wrong_digest,
        /// Dropped: the packet number is not above the last.
        replayed,
        /// Dropped: valid, but not expected now.
        out_of_place,
        /// Dropped: of another key, another handshake or another request.
        foreign,
        /// Dropped: a traffic key under another key, or of another suite or association.
        unusable,
    }
}

/// Returns the keying message that the octets announce, without further checks, so that a host can dispatch it.
/// `None`: another PKM message, or none.
#[must_use]
pub fn keying_message_code(bytes: &[u8]) -> Option<Code> {
    let [kind, code, ..] = *bytes else { return None };
    let code = Code::of(code)?;
    let ours = matches!(
        code,
        Code::SaTekChallenge
            | Code::SaTekRequest
            | Code::SaTekResponse
            | Code::Pkm2KeyRequest
            | Code::Pkm2KeyReply
            | Code::Pkm2KeyReject
    );
    (ours && Direction::from_octet(kind).is_some() && code.direction() == Direction::from_octet(kind))
        .then_some(code)
}

/// The common state of both sides: the key, packet numbers, and pending outputs.
#[derive(Clone, Debug)]
struct KeyingCommonState {
    key: AuthorizationKey,
    direction: Direction,
    /// Packet number of the latest sent message; the first is one.
    sent: u32,
    /// Packet number of the latest received message.
    received: u32,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<KeyingEvent>,
    counters: KeyingCounters,
    /// Digests computed or verified, and traffic keys wrapped or unwrapped, since the last poll.
    digests: u32,
    keys: u32,
}

impl KeyingCommonState {
    fn new(key: AuthorizationKey, direction: Direction) -> Self {
        Self {
            key,
            direction,
            sent: 0,
            received: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
            counters: KeyingCounters::default(),
            digests: 0,
            keys: 0,
        }
    }

    /// Creates a message of this side with the key's number.
    fn build_message(&self, code: Code, identifier: u8) -> OwnedPkmMessage {
        OwnedPkmMessage::new(self.direction, code, identifier)
            .with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[self.key.sequence_number()])
    }
    /// Creates a handshake message.
    fn build_handshake(&self, code: Code, identifier: u8, base: [u8; 8]) -> OwnedPkmMessage {
        self.build_message(code, identifier)
            .with_attribute(AttributeType::AKID, &self.key.id())
            .with_attribute(AttributeType::BS_RANDOM, &base)
    }

    fn send_message(&mut self, message: &OwnedPkmMessage, again: bool) {
        // A key never serves so many messages that this counter reaches its maximum.
        self.sent = self.sent.saturating_add(1);
        let mut bytes = Vec::new();
        protect::seal_message(message, &self.key, self.sent, &mut bytes);
        self.digests += 1;
        self.counters.sent += 1;
        self.counters.octets += bytes.len() as u64;
        self.counters.resent += u64::from(again);
        self.out.push_back(bytes);
    }

    /// Verifies a message under this key; `None`: it is counted and dropped.
    fn open_message<'a>(&mut self, bytes: &'a [u8]) -> Option<PkmMessage<'a>> {
        let sound = protect::open_message(bytes, &self.key);
        self.digests += u32::from(!matches!(
            sound,
            Err(CmacVerificationError::Malformed(_) | CmacVerificationError::Unsigned)
        ));
        let (message, number) = match sound {
            Ok((message, _)) if message.direction() == self.direction => {
                self.counters.out_of_place += 1;
                return None;
            }
            Ok(sound) => sound,
            Err(why) => {
                *match why {
                    CmacVerificationError::Malformed(_) | CmacVerificationError::Unsigned => {
                        &mut self.counters.malformed
                    }
                    CmacVerificationError::WrongDigest => &mut self.counters.wrong_digest,
                } += 1;
                return None;
            }
        };
        if number <= self.received {
            self.counters.replayed += 1;
            return None;
        }
        self.received = number;
        let id = message.get(AttributeType::AKID).is_none_or(|id| id == self.key.id());
        if !id
            || message.get_fixed_length_attribute(AttributeType::KEY_SEQUENCE_NUMBER)
                != Some([self.key.sequence_number()])
        {
            self.counters.foreign += 1;
            return None;
        }
        Some(message)
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(message) = self.out.pop_front() else { return false };
        *out = message;
        true
    }
    fn poll_work(&mut self) -> Option<WorkRecord> {
        for (count, label) in [(&mut self.digests, work::DIGEST), (&mut self.keys, work::KEY)] {
            if *count > 0 {
                return Some(WorkRecord { label, units: core::mem::take(count) });
            }
        }
        None
    }
}

/// Encodes attributes as the value of a compound attribute.
fn encode_compound(attributes: &[(AttributeType, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    message::emit_attributes(&mut out, attributes);
    out
}

/// Encodes the parameters of both sides: PKM version 2, EAP at network entry, CMAC.
fn encode_negotiation() -> Vec<u8> {
    encode_compound(&[(AttributeType(1), &[2]), (AttributeType(2), &[2]), (AttributeType(3), &[2])])
}

#[cfg(test)]
mod tests;
