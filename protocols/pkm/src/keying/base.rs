//! The base station's side.

use super::{
    KeyingCommonState, KeyingConfig, KeyingCounters, KeyingEvent, KeyingFailure, PRIMARY,
    RetransmissionPolicy, SUITE, Tek, encode_compound, encode_negotiation,
};
use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::eap::UNSOLICITED;
use crate::keys::AuthorizationKey;
use crate::message::PkmMessage;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, WorkRecord, automaton, names};

/// Error code of a Key-Reject: the association does not belong to the station.
const UNAUTHORIZED_SAID: u8 = 2;

names! {
    /// Where it stands.
    pub(super) State {
        /// Has said SA-TEK-Challenge.
        Challenging,
        /// Has answered SA-TEK-Request, and waits for Key-Request.
        Agreed,
        /// Has sent traffic keys, and sends them again where it is asked again.
        Given,
        /// Has given up.
        Over,
    }
}

names! {
    /// An event. Messages are valid and belong to this handshake.
    pub(super) On {
        Request = "SA-TEK-Request",
        KeyRequest = "Key-Request",
        Timeout = "timeout",
    }
}

names! {
    /// A condition.
    pub(super) Guard {
        MayRepeat = "challenges are left",
        Primary = "primary association",
    }
}

names! {
    /// An action.
    pub(super) Action {
        Challenge = "SA-TEK-Challenge again",
        Answer = "SA-TEK-Response",
        AnswerAgain = "SA-TEK-Response again",
        Wait = "wait for Key-Request",
        Give = "Key-Reply",
        GiveAgain = "Key-Reply again",
        Refuse = "Key-Reject",
        Tell = "notify the host",
        MissRequest = "fail without SA-TEK-Request",
        MissKeyRequest = "fail without Key-Request",
    }
}

automaton! {
    /// The base station's side (IEEE 802.16e-2005, 7.2.2.5 and 7.2.2.6). The [module](super) lists the details that
    /// the standard's text does not confirm.
    pub(super) BaseTable("pkm-base", "IEEE 802.16e-2005, 7.2.2.5, 7.2.2.6"):
        State from Challenging, on On if Guard, do Action;
    Challenging {
        Request => [Wait, Answer] Agreed;
        Timeout if MayRepeat => [Challenge] Challenging;
        Timeout => [MissRequest] Over;
        ! ignored [KeyRequest]: "there is no association yet";
    }
    Agreed {
        Request => [Wait, AnswerAgain] Agreed;
        KeyRequest if Primary => [Give, Tell] Given;
        KeyRequest => [Refuse] Agreed;
        Timeout => [MissKeyRequest] Over;
    }
    Given {
        Request => [AnswerAgain] Given;
        KeyRequest if Primary => [GiveAgain] Given;
        KeyRequest => [Refuse] Given;
        ! never [Timeout]: "no answer is outstanding";
    }
    Over {
        ! ignored [Request, KeyRequest]: "the base station has given up";
        ! never [Timeout]: "no answer is outstanding";
    }
}

/// The base station's state machine for one station; see the [module](super).
#[derive(Clone, Debug)]
pub struct BaseStationKeying {
    config: KeyingConfig,
    side: KeyingCommonState,
    state: State,
    /// Retransmissions of the challenge.
    repeated: u32,
    random: [u8; 8],
    teks: [Tek; 2],
    deadline: Option<Instant>,
}

impl BaseStationKeying {
    /// Starts a handshake under a new authorization key, and draws its random number and traffic keys.
    #[must_use]
    pub fn new(config: KeyingConfig, key: AuthorizationKey, rng: &mut SecureRng, now: Instant) -> Self {
        let lifetime = config.tek_lifetime;
        let mut base = Self {
            config,
            side: KeyingCommonState::new(key, Direction::Response),
            state: State::Challenging,
            repeated: 0,
            random: rng.random_array(),
            teks: [Tek::generate_key(rng, lifetime / 2, 0), Tek::generate_key(rng, lifetime, 1)],
            deadline: None,
        };
        base.send_challenge(now, false);
        base
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &KeyingCounters {
        &self.side.counters
    }

    fn send_challenge(&mut self, now: Instant, again: bool) {
        let seconds = u32::try_from(self.config.ak_lifetime.as_secs()).unwrap_or(u32::MAX);
        let message = self
            .side
            .build_handshake(Code::SaTekChallenge, UNSOLICITED, self.random)
            .with_attribute(AttributeType::KEY_LIFETIME, &seconds.to_be_bytes());
        self.side.send_message(&message, again);
        self.deadline = Some(now + self.config.challenge.after);
    }

    /// Handles a message of the station.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) {
        if self.state == State::Over {
            self.side.counters.out_of_place += 1;
            return;
        }
        let Some(message) = self.side.open_message(bytes) else { return };
        let on = match message.code() {
            Code::SaTekRequest => On::Request,
            Code::Pkm2KeyRequest => On::KeyRequest,
            _ => {
                self.side.counters.out_of_place += 1;
                return;
            }
        };
        if BaseTable::find(self.state, on, |_| true).is_none() {
            self.side.counters.out_of_place += 1;
        } else if self.accepts_message(on, &message) {
            self.side.counters.heard += 1;
            self.apply_event(now, on, Some(&message));
        }
    }

    /// True if a message is complete and belongs to this handshake.
    fn accepts_message(&mut self, on: On, message: &PkmMessage<'_>) -> bool {
        if on == On::KeyRequest {
            return message.get(AttributeType::SAID).is_some_and(|said| said.len() == 2)
                && message.get(AttributeType::NONCE).is_some();
        }
        let (Some(random), Some(_)) = (
            message.get_fixed_length_attribute(AttributeType::BS_RANDOM),
            message.get(AttributeType::SS_RANDOM),
        ) else {
            return false;
        };
        let ours = random == self.random;
        self.side.counters.foreign += u64::from(!ours);
        ours
    }

    fn apply_event(&mut self, now: Instant, on: On, message: Option<&PkmMessage<'_>>) {
        let primary = message.and_then(|m| m.get_fixed_length_attribute(AttributeType::SAID))
            == Some(PRIMARY.to_be_bytes());
        let may_repeat = self.repeated < self.config.challenge.times;
        let row = BaseTable::step(self.state, on, |guard| match guard {
            Guard::MayRepeat => may_repeat,
            Guard::Primary => primary,
        });
        let Some(row) = row else { return };
        self.state = row.to;
        for action in row.actions {
            match (*action, message) {
                (Action::Challenge, _) => {
                    self.repeated += 1;
                    self.send_challenge(now, true);
                }
                (Action::Wait, _) => {
                    // A station that received the answer now sends its Key-Request. The base station waits as long as
                    // the station retransmits it.
                    let RetransmissionPolicy { after, times } = self.config.key_request;
                    self.deadline = Some(now + after * (u64::from(times) + 1));
                }
                (Action::Answer, Some(message)) => self.send_response(message, false),
                (Action::AnswerAgain, Some(message)) => self.send_response(message, true),
                (Action::Give, Some(message)) => self.send_traffic_keys(message, false),
                (Action::GiveAgain, Some(message)) => self.send_traffic_keys(message, true),
                (Action::Refuse, Some(message)) => self.reject_request(message),
                (Action::Tell, _) => {
                    self.deadline = None;
                    self.side.events.push_back(KeyingEvent::Keyed(self.teks.clone()));
                }
                (Action::MissRequest, _) => self.give_up(Code::SaTekRequest),
                (Action::MissKeyRequest, _) => self.give_up(Code::Pkm2KeyRequest),
                // The other actions answer a message, so they never occur without one.
                _ => {}
            }
        }
    }

    fn send_response(&mut self, message: &PkmMessage<'_>, again: bool) {
        let station = message.get(AttributeType::SS_RANDOM).unwrap_or_default();
        let descriptor = encode_compound(&[
            (AttributeType::SAID, &PRIMARY.to_be_bytes()),
            (AttributeType::SA_TYPE, &[0]),
            (AttributeType::CRYPTOGRAPHIC_SUITE, &SUITE),
        ]);
        let answer = self
            .side
            .build_handshake(Code::SaTekResponse, message.identifier(), self.random)
            .with_attribute(AttributeType::SS_RANDOM, station)
            .with_attribute(AttributeType::SA_DESCRIPTOR, &descriptor)
            .with_attribute(AttributeType::SECURITY_NEGOTIATION_PARAMETERS, &encode_negotiation());
        self.side.send_message(&answer, again);
    }

    fn send_traffic_keys(&mut self, message: &PkmMessage<'_>, again: bool) {
        let reply = self.side.build_message(Code::Pkm2KeyReply, message.identifier());
        let mut reply = reply.with_attribute(AttributeType::SAID, &PRIMARY.to_be_bytes());
        for tek in &self.teks {
            reply = reply
                .with_attribute(AttributeType::TEK_PARAMETERS, &tek.encode_tek_parameters(&self.side.key));
        }
        self.side.keys += self.teks.len() as u32;
        let nonce = message.get(AttributeType::NONCE).unwrap_or_default();
        self.side.send_message(&reply.with_attribute(AttributeType::NONCE, nonce), again);
    }

    fn reject_request(&mut self, message: &PkmMessage<'_>) {
        let get = |kind| message.get(kind).unwrap_or_default();
        let reject = self.side.build_message(Code::Pkm2KeyReject, message.identifier());
        let reject = reject
            .with_attribute(AttributeType::SAID, get(AttributeType::SAID))
            .with_attribute(AttributeType::ERROR_CODE, &[UNAUTHORIZED_SAID])
            .with_attribute(AttributeType::NONCE, get(AttributeType::NONCE));
        self.side.send_message(&reject, false);
    }

    /// Handles the timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        self.deadline = None;
        self.apply_event(now, On::Timeout, None);
    }

    /// Fails because the awaited message has not arrived.
    fn give_up(&mut self, waited: Code) {
        self.side.events.push_back(KeyingEvent::Failed(KeyingFailure::Silence(waited)));
    }

    /// Returns when [`Self::handle_timeout`] is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
    /// Fills a buffer with the next message; false if there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        self.side.poll_transmit(out)
    }
    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<KeyingEvent> {
        self.side.events.pop_front()
    }
    /// Returns work that takes time: digests and keys, of [`work`](crate::work).
    pub fn poll_work(&mut self) -> Option<WorkRecord> {
        self.side.poll_work()
    }
}
