//! The base station's side.

use super::{Config, Counters, Event, Failure, PRIMARY, Resend, SUITE, Side, Tek, compound, negotiation};
use crate::attribute::AttributeType;
use crate::code::{Code, Direction};
use crate::eap::UNSOLICITED;
use crate::keys::AuthKey;
use crate::message::Message;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng, Work};

/// Error code of a Key-Reject: this association is not the station's.
const UNAUTHORIZED_SAID: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Has said SA-TEK-Challenge so often beyond the first time.
    Challenging(u32),
    /// Has answered SA-TEK-Request, and waits for Key-Request.
    Agreed,
    /// Has sent traffic keys, and sends them again where it is asked again.
    Given,
    /// Has given up.
    Over,
}

/// A base station's automaton for one station; see the [module](super).
#[derive(Clone, Debug)]
pub struct Base {
    config: Config,
    side: Side,
    state: State,
    random: [u8; 8],
    teks: [Tek; 2],
    deadline: Option<Instant>,
}

impl Base {
    /// Begins a handshake under a new authorization key. Random number and traffic keys are drawn at once.
    #[must_use]
    pub fn new(config: Config, key: AuthKey, rng: &mut SecureRng, now: Instant) -> Self {
        let lifetime = config.tek_lifetime;
        let mut base = Self {
            config,
            side: Side::new(key, Direction::Response),
            state: State::Challenging(0),
            random: rng.array(),
            teks: [Tek::draw(rng, lifetime / 2, 0), Tek::draw(rng, lifetime, 1)],
            deadline: None,
        };
        base.challenge(now, false);
        base
    }
    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.side.counters
    }

    fn challenge(&mut self, now: Instant, again: bool) {
        let seconds = u32::try_from(self.config.ak_lifetime.as_secs()).unwrap_or(u32::MAX);
        let message = self
            .side
            .handshake(Code::SaTekChallenge, UNSOLICITED, self.random)
            .with(AttributeType::KEY_LIFETIME, &seconds.to_be_bytes());
        self.side.send(&message, again);
        self.deadline = Some(now + self.config.challenge.after);
    }

    /// Feeds a message of the station.
    pub fn handle(&mut self, now: Instant, bytes: &[u8]) {
        if self.state == State::Over {
            self.side.counters.out_of_place += 1;
            return;
        }
        let Some(message) = self.side.hear(bytes) else { return };
        match (message.code(), self.state) {
            (Code::SaTekRequest, _) => self.requested(now, &message),
            (Code::Pkm2KeyRequest, State::Agreed | State::Given) => self.asked_for_key(&message),
            _ => self.side.counters.out_of_place += 1,
        }
    }

    fn requested(&mut self, now: Instant, message: &Message<'_>) {
        let (Some(random), Some(station)) =
            (message.array(AttributeType::BS_RANDOM), message.get(AttributeType::SS_RANDOM))
        else {
            return;
        };
        if random != self.random {
            self.side.counters.foreign += 1;
            return;
        }
        self.side.counters.heard += 1;
        let again = matches!(self.state, State::Agreed | State::Given);
        if self.state != State::Given {
            self.state = State::Agreed;
            // As long as a station that hears the answer goes on asking for keys.
            let Resend { after, times } = self.config.key_request;
            self.deadline = Some(now + after * (u64::from(times) + 1));
        }
        let descriptor = compound(&[
            (AttributeType::SAID, &PRIMARY.to_be_bytes()),
            (AttributeType::SA_TYPE, &[0]),
            (AttributeType::CRYPTOGRAPHIC_SUITE, &SUITE),
        ]);
        let answer = self
            .side
            .handshake(Code::SaTekResponse, message.identifier(), self.random)
            .with(AttributeType::SS_RANDOM, station)
            .with(AttributeType::SA_DESCRIPTOR, &descriptor)
            .with(AttributeType::SECURITY_NEGOTIATION_PARAMETERS, &negotiation());
        self.side.send(&answer, again);
    }

    fn asked_for_key(&mut self, message: &Message<'_>) {
        let (Some(said), Some(nonce)) =
            (message.array(AttributeType::SAID), message.get(AttributeType::NONCE))
        else {
            return;
        };
        self.side.counters.heard += 1;
        let known = u16::from_be_bytes(said) == PRIMARY;
        let code = if known { Code::Pkm2KeyReply } else { Code::Pkm2KeyReject };
        let mut answer = self.side.message(code, message.identifier()).with(AttributeType::SAID, &said);
        if known {
            for tek in &self.teks {
                answer = answer.with(AttributeType::TEK_PARAMETERS, &tek.emit(&self.side.key));
            }
            self.side.keys += self.teks.len() as u32;
        } else {
            answer = answer.with(AttributeType::ERROR_CODE, &[UNAUTHORIZED_SAID]);
        }
        let answer = answer.with(AttributeType::NONCE, nonce);
        let given = self.state == State::Given;
        self.side.send(&answer, known && given);
        if known && !given {
            self.state = State::Given;
            self.deadline = None;
            self.side.events.push_back(Event::Keyed(self.teks.clone()));
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        self.deadline = None;
        match self.state {
            State::Challenging(times) if times < self.config.challenge.times => {
                self.state = State::Challenging(times + 1);
                self.challenge(now, true);
            }
            State::Challenging(_) => self.give_up(Code::SaTekRequest),
            State::Agreed => self.give_up(Code::Pkm2KeyRequest),
            State::Given | State::Over => {}
        }
    }

    /// What it waited for has not come.
    fn give_up(&mut self, waited: Code) {
        self.state = State::Over;
        self.side.events.push_back(Event::Failed(Failure::Silence(waited)));
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
