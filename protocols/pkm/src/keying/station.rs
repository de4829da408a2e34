//! The station's side.

use super::{
    KeyingCommonState, KeyingConfig, KeyingCounters, KeyingEvent, KeyingFailure, PRIMARY, SUITE, Tek,
    encode_compound, encode_negotiation,
};
use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::keys::AuthorizationKey;
use crate::message::PkmMessage;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, WorkRecord, automaton, names};

names! {
    /// Where it stands.
    pub(super) State {
        /// Waits for SA-TEK-Challenge.
        Waiting,
        /// Has said SA-TEK-Request.
        Requesting,
        /// Has said Key-Request.
        Fetching,
        /// Has keys, or has given up.
        Over,
    }
}

names! {
    /// An event. Messages are valid and belong to this handshake.
    pub(super) On {
        Challenge = "SA-TEK-Challenge",
        Response = "SA-TEK-Response",
        Reply = "Key-Reply",
        Reject = "Key-Reject",
        Timeout = "timeout",
    }
}

names! {
    /// A condition.
    pub(super) Guard {
        Same = "same random number",
        MayRepeat = "retransmissions are left",
    }
}

names! {
    /// An action.
    pub(super) Action {
        Request = "SA-TEK-Request",
        RequestAgain = "SA-TEK-Request again",
        Ask = "Key-Request",
        AskAgain = "Key-Request again",
        Count = "count the retransmission",
        Tell = "notify the host",
        MissChallenge = "fail without SA-TEK-Challenge",
        MissResponse = "fail without SA-TEK-Response",
        MissReply = "fail without Key-Reply",
    }
}

automaton! {
    /// The station's side (IEEE 802.16e-2005, 7.2.2.5 and 7.2.2.6). The [module](super) lists the details that the
    /// standard's text does not confirm.
    pub(super) StationTable("pkm-station", "IEEE 802.16e-2005, 7.2.2.5, 7.2.2.6"):
        State from Waiting, on On if Guard, do Action;
    Waiting {
        Challenge => [Request] Requesting;
        Timeout => [MissChallenge] Over;
        ! ignored [Response, Reply, Reject]: "no request was sent";
    }
    Requesting {
        Challenge if Same => [RequestAgain] Requesting;
        Challenge => [Request] Requesting;
        Response => [Ask] Fetching;
        Timeout if MayRepeat => [Count, RequestAgain] Requesting;
        Timeout => [MissResponse] Over;
        ! ignored [Reply, Reject]: "no Key-Request was sent";
    }
    Fetching {
        Reply => [Tell] Over;
        Reject => [Tell] Over;
        Timeout if MayRepeat => [Count, AskAgain] Fetching;
        Timeout => [MissReply] Over;
        ! ignored [Challenge, Response]: "the handshake is over";
    }
    Over {
        ! ignored [Challenge, Response, Reply, Reject]: "the exchange has ended, with keys or without";
        ! never [Timeout]: "no answer is outstanding";
    }
}

/// The station's state machine; see the [module](super).
#[derive(Clone, Debug)]
pub struct StationKeying {
    config: KeyingConfig,
    side: KeyingCommonState,
    state: State,
    /// Retransmissions of the request.
    repeated: u32,
    /// The random number of the answered challenge.
    base: [u8; 8],
    /// Identifier of the latest PKM-REQ.
    identifier: u8,
    random: [u8; 8],
    nonce: [u8; 8],
    deadline: Option<Instant>,
}

impl StationKeying {
    /// Waits for the base station's challenge, as long as that is retransmitted. `identifier` is that of the
    /// station's latest PKM-REQ, from which it continues.
    #[must_use]
    pub fn new(
        config: KeyingConfig,
        key: AuthorizationKey,
        identifier: u8,
        rng: &mut SecureRng,
        now: Instant,
    ) -> Self {
        let patience = config.challenge.after * (u64::from(config.challenge.times) + 1);
        Self {
            config,
            side: KeyingCommonState::new(key, Direction::Request),
            state: State::Waiting,
            repeated: 0,
            base: [0; 8],
            identifier,
            random: rng.random_array(),
            nonce: rng.random_array(),
            deadline: Some(now + patience),
        }
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &KeyingCounters {
        &self.side.counters
    }
    /// Returns the identifier of the latest PKM-REQ, from which the next exchange continues.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }

    fn advance_identifier(&mut self) {
        self.identifier = self.identifier.checked_add(1).unwrap_or(1);
    }

    fn send_request(&mut self, now: Instant, again: bool) {
        let suites = encode_compound(&[(AttributeType::CRYPTOGRAPHIC_SUITE_LIST, &SUITE)]);
        let message = self
            .side
            .build_handshake(Code::SaTekRequest, self.identifier, self.base)
            .with_attribute(AttributeType::SS_RANDOM, &self.random)
            .with_attribute(AttributeType::SECURITY_CAPABILITIES, &suites)
            .with_attribute(AttributeType::SECURITY_NEGOTIATION_PARAMETERS, &encode_negotiation());
        self.side.send_message(&message, again);
        self.deadline = Some(now + self.config.request.after);
    }

    fn request_key(&mut self, now: Instant, again: bool) {
        let message = self
            .side
            .build_message(Code::Pkm2KeyRequest, self.identifier)
            .with_attribute(AttributeType::SAID, &PRIMARY.to_be_bytes())
            .with_attribute(AttributeType::NONCE, &self.nonce);
        self.side.send_message(&message, again);
        self.deadline = Some(now + self.config.key_request.after);
    }

    /// Handles a message of the base station.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) {
        if self.state == State::Over {
            self.side.counters.out_of_place += 1;
            return;
        }
        let Some(message) = self.side.open_message(bytes) else { return };
        let on = match message.code() {
            Code::SaTekChallenge => On::Challenge,
            Code::SaTekResponse => On::Response,
            Code::Pkm2KeyReply => On::Reply,
            Code::Pkm2KeyReject => On::Reject,
            _ => {
                self.side.counters.out_of_place += 1;
                return;
            }
        };
        if StationTable::find(self.state, on, |_| true).is_none() {
            self.side.counters.out_of_place += 1;
            return;
        }
        let (same, end) = match on {
            // A repeated challenge means that our request was lost.
            On::Challenge => {
                let Some(base) = message.get_fixed_length_attribute(AttributeType::BS_RANDOM) else { return };
                let same = self.base == base;
                self.base = base;
                (same, None)
            }
            On::Response => {
                if !self.accepts_sa_tek_response(&message) {
                    return;
                }
                (true, None)
            }
            _ => {
                let Some(end) = self.event_for_key_reply(&message) else { return };
                (true, Some(end))
            }
        };
        self.side.counters.heard += 1;
        self.apply_event(now, on, same, end);
    }

    /// Applies an event. `same`: the challenge is the one already answered; `end`: the final event.
    fn apply_event(&mut self, now: Instant, on: On, same: bool, end: Option<KeyingEvent>) {
        let times = match self.state {
            State::Fetching => self.config.key_request.times,
            _ => self.config.request.times,
        };
        let may_repeat = self.repeated < times;
        let row = StationTable::step(self.state, on, |guard| match guard {
            Guard::Same => same,
            Guard::MayRepeat => may_repeat,
        });
        let Some(row) = row else { return };
        self.state = row.to;
        let mut end = end;
        for action in row.actions {
            match action {
                Action::Request => {
                    self.repeated = 0;
                    self.advance_identifier();
                    self.send_request(now, false);
                }
                Action::RequestAgain => self.send_request(now, true),
                Action::Ask => {
                    self.repeated = 0;
                    self.advance_identifier();
                    self.request_key(now, false);
                }
                Action::AskAgain => self.request_key(now, true),
                Action::Count => self.repeated += 1,
                Action::Tell => self.end_keying_with_event(end.take()),
                Action::MissChallenge => self.fail_after_silence(Code::SaTekChallenge),
                Action::MissResponse => self.fail_after_silence(Code::SaTekResponse),
                Action::MissReply => self.fail_after_silence(Code::Pkm2KeyReply),
            }
        }
    }

    /// True if a SA-TEK-Response answers our request and offers a supported suite.
    fn accepts_sa_tek_response(&mut self, message: &PkmMessage<'_>) -> bool {
        let ours = message.get_fixed_length_attribute(AttributeType::SS_RANDOM) == Some(self.random)
            && message.get_fixed_length_attribute(AttributeType::BS_RANDOM) == Some(self.base)
            && message.identifier() == self.identifier;
        if !ours {
            self.side.counters.foreign += 1;
            return false;
        }
        let primary = message.attributes().filter(|a| a.kind == AttributeType::SA_DESCRIPTOR).any(|a| {
            let has = |kind, value: &[u8]| a.nested_attributes().any(|a| a.kind == kind && a.value == value);
            has(AttributeType::SAID, &PRIMARY.to_be_bytes())
                && has(AttributeType::CRYPTOGRAPHIC_SUITE, &SUITE)
        });
        self.side.counters.unusable += u64::from(!primary);
        primary
    }

    /// Returns the event of a Key-Reply or Key-Reject to our request.
    fn event_for_key_reply(&mut self, message: &PkmMessage<'_>) -> Option<KeyingEvent> {
        let ours = message.get_fixed_length_attribute(AttributeType::NONCE) == Some(self.nonce)
            && message.get_fixed_length_attribute(AttributeType::SAID) == Some(PRIMARY.to_be_bytes())
            && message.identifier() == self.identifier;
        if !ours {
            self.side.counters.foreign += 1;
            return None;
        }
        if message.code() == Code::Pkm2KeyReject {
            let [why] = message.get_fixed_length_attribute(AttributeType::ERROR_CODE).unwrap_or_default();
            return Some(KeyingEvent::Failed(KeyingFailure::Rejected(why)));
        }
        let mut found =
            message.attributes().filter(|a| a.kind == AttributeType::TEK_PARAMETERS).map(|parameters| {
                self.side.keys += 1;
                Tek::decode_tek_parameters(parameters, &self.side.key)
            });
        let teks = (found.next().flatten(), found.next().flatten());
        drop(found);
        let (Some(older), Some(newer)) = teks else {
            self.side.counters.unusable += 1;
            return None;
        };
        Some(KeyingEvent::Keyed([older, newer]))
    }

    fn fail_after_silence(&mut self, waited: Code) {
        self.end_keying_with_event(Some(KeyingEvent::Failed(KeyingFailure::Silence(waited))));
    }

    fn end_keying_with_event(&mut self, event: Option<KeyingEvent>) {
        self.deadline = None;
        self.side.events.extend(event);
    }

    /// Handles the timeout.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|at| at <= now) {
            self.apply_event(now, On::Timeout, true, None);
        }
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
