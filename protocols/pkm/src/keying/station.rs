//! The station's side.

use super::{Config, Counters, Event, Failure, PRIMARY, SUITE, Side, Tek, compound, negotiation};
use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::keys::AuthKey;
use crate::message::Message;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, Work};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Waits for SA-TEK-Challenge.
    Waiting,
    /// Has said SA-TEK-Request so often beyond the first time, in answer to this random number.
    Requesting(u32, [u8; 8]),
    /// Has said Key-Request so often beyond the first time.
    Fetching(u32),
    /// Has keys, or has given up.
    Over,
}

/// A station's automaton; see the [module](super).
#[derive(Clone, Debug)]
pub struct Station {
    config: Config,
    side: Side,
    state: State,
    /// Of its latest PKM-REQ.
    identifier: u8,
    random: [u8; 8],
    nonce: [u8; 8],
    deadline: Option<Instant>,
}

impl Station {
    /// Waits for the base station to begin: as long as that repeats its challenge. `identifier` is that of the station's
    /// latest PKM-REQ, from which it counts on.
    #[must_use]
    pub fn new(config: Config, key: AuthKey, identifier: u8, rng: &mut SecureRng, now: Instant) -> Self {
        let patience = config.challenge.after * (u64::from(config.challenge.times) + 1);
        Self {
            config,
            side: Side::new(key, Direction::Request),
            state: State::Waiting,
            identifier,
            random: rng.array(),
            nonce: rng.array(),
            deadline: Some(now + patience),
        }
    }
    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.side.counters
    }
    /// Of its latest PKM-REQ, from which whoever comes next counts on.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }

    fn advance(&mut self) {
        self.identifier = self.identifier.checked_add(1).unwrap_or(1);
    }

    fn request(&mut self, now: Instant, base: [u8; 8], again: bool) {
        let suites = compound(&[(AttributeType::CRYPTOGRAPHIC_SUITE_LIST, &SUITE)]);
        let message = self
            .side
            .handshake(Code::SaTekRequest, self.identifier, base)
            .with(AttributeType::SS_RANDOM, &self.random)
            .with(AttributeType::SECURITY_CAPABILITIES, &suites)
            .with(AttributeType::SECURITY_NEGOTIATION_PARAMETERS, &negotiation());
        self.side.send(&message, again);
        self.deadline = Some(now + self.config.request.after);
    }

    fn ask_for_key(&mut self, now: Instant, again: bool) {
        let message = self
            .side
            .message(Code::Pkm2KeyRequest, self.identifier)
            .with(AttributeType::SAID, &PRIMARY.to_be_bytes())
            .with(AttributeType::NONCE, &self.nonce);
        self.side.send(&message, again);
        self.deadline = Some(now + self.config.key_request.after);
    }

    /// Feeds a message of the base station.
    pub fn handle(&mut self, now: Instant, bytes: &[u8]) {
        if self.state == State::Over {
            self.side.counters.out_of_place += 1;
            return;
        }
        let Some(message) = self.side.hear(bytes) else { return };
        match (message.code(), self.state) {
            (Code::SaTekChallenge, State::Waiting | State::Requesting(..)) => self.challenged(now, &message),
            (Code::SaTekResponse, State::Requesting(_, base)) => self.agreed(now, &message, base),
            (Code::Pkm2KeyReply | Code::Pkm2KeyReject, State::Fetching(_)) => self.answered(&message),
            _ => self.side.counters.out_of_place += 1,
        }
    }

    /// A challenge that comes again has not heard our request.
    fn challenged(&mut self, now: Instant, message: &Message<'_>) {
        let Some(base) = message.array(AttributeType::BS_RANDOM) else { return };
        self.side.counters.heard += 1;
        let said = match self.state {
            State::Requesting(said, before) if before == base => Some(said),
            _ => None,
        };
        if said.is_none() {
            self.advance();
        }
        self.state = State::Requesting(said.unwrap_or(0), base);
        self.request(now, base, said.is_some());
    }

    fn agreed(&mut self, now: Instant, message: &Message<'_>, base: [u8; 8]) {
        let ours = message.array(AttributeType::SS_RANDOM) == Some(self.random)
            && message.array(AttributeType::BS_RANDOM) == Some(base)
            && message.identifier() == self.identifier;
        if !ours {
            self.side.counters.foreign += 1;
            return;
        }
        let primary = message.attributes().filter(|a| a.kind == AttributeType::SA_DESCRIPTOR).any(|a| {
            let has = |kind, value: &[u8]| a.nested().any(|a| a.kind == kind && a.value == value);
            has(AttributeType::SAID, &PRIMARY.to_be_bytes())
                && has(AttributeType::CRYPTOGRAPHIC_SUITE, &SUITE)
        });
        if !primary {
            self.side.counters.unusable += 1;
            return;
        }
        self.side.counters.heard += 1;
        self.state = State::Fetching(0);
        self.advance();
        self.ask_for_key(now, false);
    }

    fn answered(&mut self, message: &Message<'_>) {
        let ours = message.array(AttributeType::NONCE) == Some(self.nonce)
            && message.array(AttributeType::SAID) == Some(PRIMARY.to_be_bytes())
            && message.identifier() == self.identifier;
        if !ours {
            self.side.counters.foreign += 1;
            return;
        }
        if message.code() == Code::Pkm2KeyReject {
            self.side.counters.heard += 1;
            let [why] = message.array(AttributeType::ERROR_CODE).unwrap_or_default();
            self.end(Event::Failed(Failure::Rejected(why)));
            return;
        }
        let mut found =
            message.attributes().filter(|a| a.kind == AttributeType::TEK_PARAMETERS).map(|parameters| {
                self.side.keys += 1;
                Tek::read(parameters, &self.side.key)
            });
        let teks = (found.next().flatten(), found.next().flatten());
        drop(found);
        let (Some(older), Some(newer)) = teks else {
            self.side.counters.unusable += 1;
            return;
        };
        self.side.counters.heard += 1;
        self.end(Event::Keyed([older, newer]));
    }

    fn end(&mut self, event: Event) {
        self.state = State::Over;
        self.deadline = None;
        self.side.events.push_back(event);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        match self.state {
            State::Waiting => self.end(Event::Failed(Failure::Silence(Code::SaTekChallenge))),
            State::Requesting(said, base) if said < self.config.request.times => {
                self.state = State::Requesting(said + 1, base);
                self.request(now, base, true);
            }
            State::Requesting(..) => self.end(Event::Failed(Failure::Silence(Code::SaTekResponse))),
            State::Fetching(said) if said < self.config.key_request.times => {
                self.state = State::Fetching(said + 1);
                self.ask_for_key(now, true);
            }
            State::Fetching(_) => self.end(Event::Failed(Failure::Silence(Code::Pkm2KeyReply))),
            State::Over => self.deadline = None,
        }
    }
    /// When it wants to be called for what is due.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }
    /// Fills a buffer with the next message; false where there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        self.side.poll_transmit(out)
    }
    /// What it has to say.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.side.events.pop_front()
    }
    /// What it did that takes time: digests and keys, of [`work`](crate::work).
    pub fn poll_work(&mut self) -> Option<Work> {
        self.side.poll_work()
    }
}
