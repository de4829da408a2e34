//! The station's machine.

use super::{Command, Config, Counters, Credentials, Event};
use crate::frame::{self, Access, AuthenticatorFrame, StationFrame, Unheard};
use crate::station_id::MacAddress;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, SecureRng, Transmit, WallTime,
    Work,
};
use usher_crypto::Key;
use usher_eap::peer::{self, Peer};
use usher_pkm::eap::StationSide;
use usher_pkm::keying;
use usher_pkm::keys::AuthKey;

/// Where an attempt stands.
#[derive(Debug)]
enum State {
    /// There is none.
    Idle,
    /// EAPOL-Start or EAP-Start was said this often; nobody has answered.
    Connecting { said: u32, peer: Box<Peer> },
    /// In conversation.
    Talking(Box<Peer>),
    /// Let in, and waits for traffic keys.
    Keying(Box<keying::Station>, Key<[u8; 64]>),
}

/// A station; see the [module](super).
#[derive(Debug)]
pub struct Station {
    config: Config,
    state: State,
    /// The station's side of PKM, where that carries EAP.
    pkm: StationSide,
    deadline: Option<Instant>,
    /// The wall time at [`Instant::ZERO`].
    epoch: WallTime,
    outputs: Outputs<Event>,
    counters: Counters,
    /// Of exchanges of keys that are over.
    keying: keying::Counters,
    rng: SecureRng,
    out: Vec<u8>,
}

impl Station {
    /// A station that has not asked yet.
    #[must_use]
    pub fn new(config: Config, rng: SecureRng) -> Self {
        Self {
            config,
            state: State::Idle,
            pkm: StationSide::new(),
            deadline: None,
            epoch: WallTime::UNIX_EPOCH,
            outputs: Outputs::default(),
            counters: Counters::default(),
            keying: keying::Counters::default(),
            rng,
            out: Vec::new(),
        }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// What exchanges of keys did and dropped.
    #[must_use]
    pub fn keying_counters(&self) -> keying::Counters {
        let mut sum = self.keying;
        if let State::Keying(keying, _) = &self.state {
            sum.add(keying.counters());
        }
        sum
    }

    fn say(&mut self, said: StationFrame<'_>, again: bool) {
        let octets = if let StationFrame::Eap(packet) | StationFrame::Keying(packet) = said {
            packet.len()
        } else {
            0
        };
        let mut buf = self.outputs.buffer();
        buf.reserve(frame::OVERHEAD + octets);
        let ways = (self.config.authenticator, self.config.mac);
        if self.config.access.tell_authenticator(&mut buf, ways, &mut self.pkm, said, again) {
            self.outputs.transmit(Transmit::Frame { port: self.config.port }, buf);
        } else {
            self.outputs.recycle(buf);
        }
    }
    fn wait(&mut self, now: Instant, span: Duration) {
        self.deadline = Some(now + span);
    }

    fn authenticate(&mut self, now: Instant, identity: Vec<u8>, credentials: Credentials) {
        let config = peer::Config {
            identity,
            methods: credentials.0,
            // The station keeps its own time.
            timeout: Duration::MAX,
            wall: now.wall(self.epoch),
        };
        let peer = Box::new(Peer::new(config, SecureRng::from_seed(self.rng.array()), now));
        self.counters.attempts += 1;
        self.leave();
        self.state = State::Connecting { said: 1, peer };
        self.say(StationFrame::Start, false);
        self.wait(now, self.config.start_period);
    }

    /// Ends what is under way without a word.
    fn leave(&mut self) {
        if let State::Keying(keying, _) = core::mem::replace(&mut self.state, State::Idle) {
            self.keying.add(keying.counters());
            self.pkm.resume(keying.identifier());
        }
        self.deadline = None;
    }

    fn end(&mut self, event: Event) {
        self.leave();
        *match event {
            Event::Success { .. } => &mut self.counters.successes,
            Event::Failure => &mut self.counters.failures,
            Event::Timeout => &mut self.counters.timeouts,
            Event::Unkeyed => &mut self.counters.unkeyed,
            // No end, and so not said here.
            Event::Admitted => return,
        } += 1;
        self.outputs.event(event);
    }

    fn frame(&mut self, now: Instant, data: &[u8]) {
        let received = match self.config.access.hear_authenticator(data, &self.pkm) {
            Ok(received) => received,
            Err(why) => {
                *match why {
                    Unheard::NotForUs => &mut self.counters.not_for_us,
                    Unheard::Malformed => &mut self.counters.malformed,
                    Unheard::UnknownEapol => &mut self.counters.unknown_eapol,
                    Unheard::UnknownPkm => &mut self.counters.unknown_pkm,
                    Unheard::StalePkm => &mut self.counters.stale_pkm,
                } += 1;
                return;
            }
        };
        if received.destination != self.config.mac && received.destination != frame::PAE_GROUP {
            self.counters.not_for_us += 1;
            return;
        }
        match received.body {
            AuthenticatorFrame::Eap(packet) => self.hear(now, packet, received.source),
            AuthenticatorFrame::Keying(message) => {
                let State::Keying(keying, _) = &mut self.state else {
                    self.counters.unknown_pkm += 1;
                    return;
                };
                keying.handle(now, message);
                self.pump();
            }
        }
    }

    /// Takes out what the exchange of keys wants.
    fn pump(&mut self) {
        let State::Keying(keying, msk) = &mut self.state else { return };
        while let Some(work) = keying.poll_work() {
            self.outputs.work(work);
        }
        let mut out = core::mem::take(&mut self.out);
        let speaks = keying.poll_transmit(&mut out);
        let end = keying.poll_event().map(|event| match event {
            keying::Event::Keyed(_) => Event::Success { msk: Some(msk.clone()) },
            keying::Event::Failed(_) => Event::Unkeyed,
        });
        self.deadline = keying.poll_timeout();
        if speaks {
            self.say(StationFrame::Keying(&out), false);
        }
        self.out = out;
        if let Some(end) = end {
            self.end(end);
        }
    }

    /// EAP has let the station in.
    fn admitted(&mut self, now: Instant, msk: Option<Key<[u8; 64]>>, base: MacAddress) {
        let config = self.config.keying.filter(|_| self.config.access == Access::Wimax);
        match (config, msk) {
            (None, msk) => self.end(Event::Success { msk }),
            (Some(_), None) => self.end(Event::Unkeyed),
            (Some(config), Some(msk)) => {
                let key = AuthKey::new(&msk, self.config.mac.0, base.0, 0);
                self.outputs.work(Work { label: usher_pkm::work::DERIVE, units: 1 });
                let identifier = self.pkm.identifier();
                let keying = keying::Station::new(config, key, identifier, &mut self.rng, now);
                self.state = State::Keying(Box::new(keying), msk);
                self.outputs.event(Event::Admitted);
                self.pump();
            }
        }
    }

    fn hear(&mut self, now: Instant, packet: &[u8], from: MacAddress) {
        let (State::Talking(peer) | State::Connecting { peer, .. }) = &mut self.state else {
            self.counters.bad_eap += 1;
            return;
        };
        if !peer.handle(now, packet) {
            self.counters.bad_eap += 1;
            return;
        }
        while let Some(work) = peer.poll_work() {
            self.outputs.work(work);
        }
        let mut out = core::mem::take(&mut self.out);
        let responds = peer.poll_transmit(&mut out);
        let end = peer.poll_event();
        if responds {
            self.state = match core::mem::replace(&mut self.state, State::Idle) {
                State::Connecting { peer, .. } => State::Talking(peer),
                other => other,
            };
            self.say(StationFrame::Eap(&out), false);
            self.wait(now, self.config.auth_timeout);
        }
        self.out = out;
        match end {
            None => {}
            Some(peer::Event::Success { keys }) => {
                self.admitted(now, keys.map(|k| k.msk), from);
            }
            Some(peer::Event::Failure) => self.end(Event::Failure),
            Some(peer::Event::Timeout) => self.end(Event::Timeout),
        }
    }

    fn expire(&mut self, now: Instant) {
        if self.deadline.is_none_or(|at| at > now) {
            return;
        }
        match &mut self.state {
            State::Connecting { said, .. } if *said < self.config.max_start => {
                *said += 1;
                self.counters.starts_repeated += 1;
                self.say(StationFrame::Start, true);
                self.wait(now, self.config.start_period);
            }
            State::Connecting { .. } | State::Talking(_) => self.end(Event::Timeout),
            State::Keying(keying, _) => {
                keying.handle_timeout(now);
                self.pump();
            }
            State::Idle => self.deadline = None,
        }
    }
}

impl Machine for Station {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn set_epoch(&mut self, _: Instant, epoch: WallTime) {
        self.epoch = epoch;
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Frame { port, data } if port == self.config.port => self.frame(now, data),
            Input::Timeout => self.expire(now),
            Input::Frame { .. } => self.counters.not_for_us += 1,
            Input::Datagram { .. } | Input::Stream { .. } | Input::Message { .. } => {
                self.counters.not_a_frame += 1;
            }
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Authenticate { identity, credentials } => {
                self.authenticate(now, identity, credentials);
            }
            Command::LogOff => {
                self.leave();
                self.say(StationFrame::Logoff, false);
            }
        }
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.deadline
    }
}
