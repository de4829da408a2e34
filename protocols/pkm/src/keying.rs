//! From an authorization key to traffic keys: the SA-TEK handshake and the first exchange of traffic keys (IEEE
//! 802.16e-2005, 7.2.2.5 and 7.2.2.6), as two automata without input or output of their own.
//!
//! ```text
//! Station                                     Base
//!    ◀── SA-TEK-Challenge (BS-Random) ──────────
//!    ─── SA-TEK-Request (both randoms) ────────▶
//!    ◀── SA-TEK-Response (SA-Descriptor) ───────
//!    ─── PKMv2 Key-Request (SAID, Nonce) ──────▶
//!    ◀── PKMv2 Key-Reply (two TEKs, Nonce) ─────
//! ```
//! Every message has a CMAC-Digest, checked before anything else of it is believed, with a packet number above that of
//! all before it. What is wrong is dropped without a word and counted. A message that goes out again has a packet number
//! and digest of its own, and the random number or nonce of the first.
//!
//! Each automaton is fed messages and its timeout, and then drained: `poll_transmit`, `poll_event`, `poll_work`.
//!
//! # What is known from where
//! The order of messages and who repeats what are public descriptions' (a maker's system manual among them); attributes
//! and their numbers, cryptographic suites and error codes are as Wireshark's dissector has them. Not confirmed by the
//! standard's text:
//! - The timers' defaults: SA-TEK-Challenge every second and SA-TEK-Request every 300 ms, each three times more. The
//!   Key-Request's second (Operational Wait Timeout) is of the table of IEEE 802.16-2001, 10.2. That table has no limit for
//!   repeating it; here it ends as the others do.
//! - The base station waits for a Key-Request as long as a station repeats its own, from its latest SA-TEK-Response on.
//! - A challenge says PKM identifier zero, for it answers nothing; the station counts on for its two requests.
//! - The first traffic key of an association lives half as long as the second, so that there are always two.
//! - The suite is AES-CCM with the key under AES key wrap (`02 01 04`), and no other; nothing is negotiated.
//!
//! Left out: renewing keys before their lifetime ends, several security associations, SA-TEK-Update in handovers, group
//! keys.

mod base;
mod station;
mod tek;

pub use base::BaseStationKeying;
pub use station::StationKeying;
pub use tek::Tek;

use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::keys::AuthKey;
use crate::message::{self, OwnedMessage, PkmMessage};
use crate::protect::{self, ProtectionError};
use crate::work;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::automaton::AutomatonDiagram;
use usher_core::{Duration, WorkRecord};

/// The two sides as they run.
pub const AUTOMATA: [AutomatonDiagram; 2] = [base::BaseTable::DIAGRAM, station::StationTable::DIAGRAM];

/// The cryptographic suite of associations: AES-CCM for data, and AES key wrap for keys.
pub const SUITE: [u8; 3] = [2, 1, 4];
/// The primary security association. The standard numbers it as the station's basic connection, which is the host's.
pub const PRIMARY: u16 = 1;

/// When a message without answer goes out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionPolicy {
    /// After this time, which is more than zero.
    pub after: Duration,
    /// So often beyond the first time.
    pub times: u32,
}

/// What both sides of an exchange are made of; each uses its own part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyingConfig {
    /// The base station's SA-TEK-Challenge (SAChallengeTimer, SAChallengeMaxResends).
    pub challenge: RetransmissionPolicy,
    /// The station's SA-TEK-Request (SATEKTimer, SATEKRequestMaxResends).
    pub request: RetransmissionPolicy,
    /// The station's Key-Request (Operational Wait Timeout). The base station waits as long for the first.
    pub key_request: RetransmissionPolicy,
    /// How long an authorization key lives, said in whole seconds.
    pub ak_lifetime: Duration,
    /// How long a traffic key lives, said in whole seconds.
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

/// What an automaton has to say. [`KeyingEvent::Failed`] is its last word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyingEvent {
    /// Traffic keys are there: the station has them, or the base station has sent them for the first time. The first is
    /// the older.
    Keyed([Tek; 2]),
    /// There will be none.
    Failed(KeyingFailure),
}

/// Why there are no traffic keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyingFailure {
    /// The other side did not say what it should have, or not soundly: waited for this.
    Silence(Code),
    /// The base station refused, with this error code.
    Rejected(u8),
}

usher_core::counters! {
    /// What an automaton did and what it dropped.
    pub struct KeyingCounters {
        /// Messages sent.
        sent,
        /// Their octets.
        octets,
        /// Of them, sent again.
        resent,
        /// Messages heard that were sound and in place.
        heard,
        /// Dropped: malformed, or without a digest at the end.
        malformed,
        /// Dropped: the digest is wrong.
        wrong_digest,
        /// Dropped: the packet number is not above the last.
        replayed,
        /// Dropped: sound, but not what is waited for.
        out_of_place,
        /// Dropped: of another key, another handshake or another request.
        foreign,
        /// Dropped: a traffic key that is not under our key, or of another suite or association.
        unusable,
    }
}

/// The keying message that octets announce, without any check of the rest; `None`: it is another PKM message, or none.
/// By it a host knows whom to give a message.
#[must_use]
pub fn announced_code(bytes: &[u8]) -> Option<Code> {
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

/// What both automata keep: the key, packet numbers, and what waits for the host.
#[derive(Clone, Debug)]
struct KeyingSide {
    key: AuthKey,
    direction: Direction,
    /// Of the message sent last; the first is one.
    sent: u32,
    /// Of the message heard last.
    received: u32,
    out: VecDeque<Vec<u8>>,
    events: VecDeque<KeyingEvent>,
    counters: KeyingCounters,
    /// Digests made or checked, and traffic keys wrapped or unwrapped, since the host asked.
    digests: u32,
    keys: u32,
}

impl KeyingSide {
    fn new(key: AuthKey, direction: Direction) -> Self {
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

    /// A message of this side's that names the key.
    fn build_message(&self, code: Code, identifier: u8) -> OwnedMessage {
        OwnedMessage::new(self.direction, code, identifier)
            .with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[self.key.sequence_number()])
    }
    /// A message of the handshake.
    fn build_handshake(&self, code: Code, identifier: u8, base: [u8; 8]) -> OwnedMessage {
        self.build_message(code, identifier)
            .with_attribute(AttributeType::AKID, &self.key.id())
            .with_attribute(AttributeType::BS_RANDOM, &base)
    }

    fn send_message(&mut self, message: &OwnedMessage, again: bool) {
        // A key is not used for so many messages.
        self.sent = self.sent.saturating_add(1);
        let mut bytes = Vec::new();
        protect::seal_message(message, &self.key, self.sent, &mut bytes);
        self.digests += 1;
        self.counters.sent += 1;
        self.counters.octets += bytes.len() as u64;
        self.counters.resent += u64::from(again);
        self.out.push_back(bytes);
    }

    /// A message that is to be believed and is of our key; `None`: dropped and counted.
    fn open_message<'a>(&mut self, bytes: &'a [u8]) -> Option<PkmMessage<'a>> {
        let sound = protect::open_message(bytes, &self.key);
        self.digests +=
            u32::from(!matches!(sound, Err(ProtectionError::Malformed(_) | ProtectionError::Unsigned)));
        let (message, number) = match sound {
            Ok((message, _)) if message.direction() == self.direction => {
                self.counters.out_of_place += 1;
                return None;
            }
            Ok(sound) => sound,
            Err(why) => {
                *match why {
                    ProtectionError::Malformed(_) | ProtectionError::Unsigned => &mut self.counters.malformed,
                    ProtectionError::WrongDigest => &mut self.counters.wrong_digest,
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
        if !id || message.get_array(AttributeType::KEY_SEQUENCE_NUMBER) != Some([self.key.sequence_number()])
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

/// Attributes as the value of a compound one.
fn encode_compound(attributes: &[(AttributeType, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    message::emit_attributes(&mut out, attributes);
    out
}

/// What both sides say of themselves: PKM version 2, EAP at network entry, CMAC.
fn encode_negotiation() -> Vec<u8> {
    encode_compound(&[(AttributeType(1), &[2]), (AttributeType(2), &[2]), (AttributeType(3), &[2])])
}

#[cfg(test)]
mod tests;
