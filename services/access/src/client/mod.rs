//! The client of AAA servers inside an access server: one way to ask, whether RADIUS or Diameter carries the question.
//!
//! ```text
//! AccessClient::ask(token, Request)    ─▶ Event::{Challenge, Accept, Reject, Failed}{token}
//! AccessClient::account(token, Record) ─▶ Event::Accounted{token}
//! Event::Dynamic(DynamicRequest{token}) ─▶ Command::AnswerDynamic{token}
//! ```
//! Each question that was taken has exactly one answer, unless it was cancelled; each record likewise. A question and a
//! record may have the same token.

mod diameter;
mod nodes;
mod owed;
mod radius;

pub use diameter::{Connections, DiameterConfig};
pub use nodes::LISTENER as DIAMETER_LISTENER;
pub use owed::Patience;
pub use radius::{DYNAMIC_SOCKET, DynamicConfig, RadiusConfig};

use crate::{DynamicRequest, ErrorCause, NasIdentity, Record, Reply, Request, TerminateCause};
use alloc::boxed::Box;
use alloc::vec::Vec;
use diameter::DiameterAccess;
use owed::{Owed, Told};
use radius::RadiusAccess;
use usher_core::timer::earliest;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, Output, OutputOf, Outputs, SecureRng, Transmit,
    WallTime,
};
use usher_diameter::node::{self, PeerId};
use usher_radius::client::{Health, HealthCause};

/// Which protocol a NAS asks by, and whom.
#[derive(Clone, Debug)]
pub enum AaaConfig {
    /// RADIUS, by datagrams or by RadSec.
    Radius(RadiusConfig),
    /// Diameter with its EAP and NASREQ applications.
    Diameter(Box<DiameterConfig>),
}

/// The AAA servers of an access server.
#[derive(Clone, Debug)]
pub struct Aaa {
    /// As whom it asks.
    pub nas: NasIdentity,
    /// Whom, and how.
    pub servers: AaaConfig,
    /// Whether sessions are told of.
    pub accounting: bool,
    /// How often, where the server does not say (Acct-Interim-Interval); `None`: at their start and end alone.
    pub interim: Option<Duration>,
    /// How long records are sent again that no server acknowledges.
    pub patience: Patience,
}

impl Aaa {
    /// A client of these servers, which has asked nothing yet.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn client(&self, rng: SecureRng) -> Result<AccessClient, ConfigError> {
        let client = AccessClient::new(self.nas.clone(), self.servers.clone(), rng)?;
        Ok(AccessClient { owed: Some(Owed::new(self.patience)), ..client })
    }
}

/// A NAS was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The RADIUS client's part.
    #[error("RADIUS client: {0}")]
    Radius(#[from] usher_radius::client::ConfigError),
    /// Who may ask for dynamic authorisation.
    #[error("dynamic authorisation: {0}")]
    Dynamic(#[from] usher_radius::server::ConfigError),
    /// The identifier is longer than an attribute.
    #[error("a NAS-Identifier of {0} octets; at most 253 fit")]
    Identifier(usize),
    /// Neither identifier nor address.
    #[error("a NAS needs an identifier or an address (RFC 2865 section 4.1)")]
    Nameless,
}

/// Why the AAA side gave no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// Nobody answered.
    Timeout,
    /// The question cannot be asked now: no connection is up.
    Unavailable,
    /// The connection was lost that the question went by, and it could not be asked again.
    ConnectionLost,
    /// Diameter did not bring the question to a server that decides, or a server did not keep the record: this is the
    /// Result-Code.
    Fault(u32),
    /// The answer is of a kind that answers nothing, or not well-formed.
    BadAnswer,
}

/// What a client is told, beside what it is asked ([`AccessClient::ask`], [`AccessClient::account`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// The answer to this question is wanted no more; where it has one of its own, its connection is closed. An answer that
    /// is known already may be said yet.
    Cancel {
        /// The question's.
        token: u64,
    },
    /// Whether the server has this record is of no interest any more; it is not sent again.
    CancelRecord {
        /// The record's.
        token: u64,
    },
    /// A session that was let in has ended: a Diameter server that keeps it ([`DiameterConfig::stateful`]) is told.
    Terminate {
        /// That of the question by which it was let in.
        token: u64,
        /// Why.
        cause: TerminateCause,
    },
    /// To answer [`Event::Dynamic`]. Whoever refuses to authenticate a user again ends the session, as the server does by that
    /// answer (RFC 6733 §8.1): it is not told of the end ([`Terminate`](Self::Terminate)). Of a session that is to end, and
    /// is not ended, it hears DIAMETER_UNABLE_TO_COMPLY, unless there is none (§8.5.2).
    AnswerDynamic {
        /// The request's.
        token: u64,
        /// It is done, or why not.
        answer: Result<(), ErrorCause>,
    },
    /// To open or close the connection to a Diameter peer, which is numbered as in [`Event::Peer`].
    Diameter(node::Command),
}

/// What a client has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The server wants a further round.
    Challenge {
        /// The question's.
        token: u64,
        /// With the EAP packet for the peer, or what else it is asked.
        reply: Reply,
    },
    /// The user is let in.
    Accept {
        /// The question's.
        token: u64,
        /// As what.
        reply: Reply,
    },
    /// The user is turned away.
    Reject {
        /// The question's.
        token: u64,
        /// What it may be told.
        reply: Reply,
    },
    /// There is no answer.
    Failed {
        /// The question's.
        token: u64,
        /// Why.
        failure: Failure,
    },
    /// A record of accounting has its end.
    Accounted {
        /// The record's.
        token: u64,
        /// The server has it, or a later record of its session says all that it said; or why not.
        kept: Result<(), Failure>,
    },
    /// The AAA server wants something of a session.
    Dynamic(Box<DynamicRequest>),
    /// A Diameter peer can be asked, or no longer.
    Peer {
        /// Which: index among the configured peers, for each connection anew where there are several ([`Connections`]).
        peer: PeerId,
        /// It can be asked.
        up: bool,
    },
    /// How a RADIUS server is that is watched ([`usher_radius::client::ServerConfig::liveness`]).
    Server {
        /// Its index.
        server: u16,
        /// How it is.
        health: Health,
        /// Why.
        cause: HealthCause,
    },
}

/// The tokens of records have this bit where they go out, so that none is that of a question.
const ACCOUNTING: u64 = 1 << 63;

#[derive(Debug)]
enum Protocol {
    Radius(Box<RadiusAccess>),
    Diameter(Box<DiameterAccess>),
}

/// A client of AAA servers; see the [crate](crate).
#[derive(Debug)]
pub struct AccessClient {
    nas: NasIdentity,
    protocol: Protocol,
    /// Records without an answer; `None`: they are sent as long as questions are, and no longer.
    owed: Option<Owed>,
    /// When it was last given something.
    now: Instant,
}

impl AccessClient {
    /// A client that has not asked yet. What the protocols draw comes from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(nas: NasIdentity, aaa: AaaConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        if nas.identifier.len() > 253 {
            return Err(ConfigError::Identifier(nas.identifier.len()));
        }
        if !nas.is_named() {
            return Err(ConfigError::Nameless);
        }
        let protocol = match aaa {
            AaaConfig::Radius(config) => Protocol::Radius(Box::new(RadiusAccess::new(config, rng)?)),
            AaaConfig::Diameter(config) => Protocol::Diameter(Box::new(DiameterAccess::new(*config, rng))),
        };
        Ok(Self { nas, protocol, owed: None, now: Instant::ZERO })
    }
    /// The RADIUS client's counters, where that is how it asks.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::Counters> {
        match &self.protocol {
            Protocol::Radius(r) => Some(r.counters()),
            Protocol::Diameter(_) => None,
        }
    }
    /// What was counted of requests for dynamic authorisation, where RADIUS brings them.
    #[must_use]
    pub fn dynamic_counters(&self) -> Option<&usher_radius::server::Counters> {
        match &self.protocol {
            Protocol::Radius(r) => r.dynamic_counters(),
            Protocol::Diameter(_) => None,
        }
    }
    /// The Diameter nodes' counters, where that is how it asks: their sum, those included that are gone.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<node::Counters> {
        match &self.protocol {
            Protocol::Radius(_) => None,
            Protocol::Diameter(d) => Some(d.counters()),
        }
    }
    /// Asks whether a user is let in. The token is below 2^62 and not that of another open question; every round of one login
    /// has the same. Over Diameter it names the session, and is not given again. Afterwards drain
    /// [`poll_output`](Machine::poll_output), as after a command.
    ///
    /// # Errors
    /// The question cannot be asked now, or a value does not fit; nothing changed.
    pub fn ask(&mut self, now: Instant, token: u64, request: &Request<'_>) -> Result<(), CommandError> {
        small(token)?;
        self.now = now;
        match &mut self.protocol {
            Protocol::Radius(r) => r.ask(now, &self.nas, token, request),
            Protocol::Diameter(d) => d.ask(now, &self.nas, token, request),
        }
    }
    /// Sends a record of accounting. The token is below 2^62 and above those of all records without an answer. Afterwards drain
    /// [`poll_output`](Machine::poll_output), as after a command.
    ///
    /// A client of [`Aaa::client`] keeps it until a server acknowledges it ([`Patience`]), sends records of one session one after
    /// the other, and an interim record no more when there is a later one.
    ///
    /// # Errors
    /// It cannot be sent, or a value does not fit; nothing changed.
    pub fn account(&mut self, now: Instant, token: u64, record: &Record<'_>) -> Result<(), CommandError> {
        small(token)?;
        self.now = now;
        let told = match &mut self.protocol {
            Protocol::Radius(r) => Told::Radius(r.record(&self.nas, record)?),
            Protocol::Diameter(d) => {
                let (node, request) = d.record(&self.nas, token | ACCOUNTING, record)?;
                Told::Diameter(node, request)
            }
        };
        let Some(owed) = &mut self.owed else { return self.send(now, token, told) };
        let dropped = owed.add(now, token, record, told);
        self.forget(now, dropped);
        self.send_owed(now);
        Ok(())
    }
    fn send(&mut self, now: Instant, token: u64, told: Told) -> Result<(), CommandError> {
        match (&mut self.protocol, told) {
            (Protocol::Radius(r), Told::Radius(attributes)) => r.account(now, token | ACCOUNTING, attributes),
            (Protocol::Diameter(d), Told::Diameter(node, request)) => d.account(now, node, request),
            (Protocol::Radius(_), Told::Diameter(..)) | (Protocol::Diameter(_), Told::Radius(_)) => {
                Err(CommandError::Invalid("a record of the other protocol"))
            }
        }
    }
    /// Sends what is due of the records without an answer.
    fn send_owed(&mut self, now: Instant) {
        while let Some((token, told)) = self.owed.as_mut().and_then(|owed| owed.next(now)) {
            let sent = self.send(now, token, told);
            let Some(owed) = &mut self.owed else { return };
            match sent {
                Ok(()) => {}
                Err(CommandError::Full(_)) => return owed.full(now, token),
                Err(_) => owed.unsayable(now, token),
            }
        }
    }
    /// Answers to these records are not waited for any more.
    fn forget(&mut self, now: Instant, records: Vec<u64>) {
        for token in records {
            match &mut self.protocol {
                Protocol::Radius(r) => r.cancel(now, token | ACCOUNTING),
                Protocol::Diameter(d) => d.cancel_record(now, token | ACCOUNTING),
            }
        }
    }
    /// What is said of an event of the protocol: of a record only what is final.
    fn heard(&mut self, event: Event) -> Option<Event> {
        let Some(owed) = &mut self.owed else { return Some(event) };
        match event {
            Event::Accounted { token, kept } => owed.answered(self.now, token, kept),
            Event::Peer { up: true, .. } | Event::Server { health: Health::Alive, .. } => {
                owed.hasten(self.now);
            }
            _ => return Some(event),
        }
        self.send_owed(self.now);
        match event {
            Event::Accounted { .. } => None,
            other => Some(other),
        }
    }
    /// Whether AAA servers may ask something of sessions ([`Event::Dynamic`]).
    #[must_use]
    pub fn hears_requests(&self) -> bool {
        match &self.protocol {
            Protocol::Radius(r) => r.dynamic_counters().is_some(),
            Protocol::Diameter(d) => d.keeps_sessions(),
        }
    }
    /// Takes a reply back that is not needed any more: its memory serves the next request.
    pub fn recycle(&mut self, reply: Reply) {
        if let Protocol::Radius(r) = &mut self.protocol {
            r.recycle(reply);
        }
    }
}

/// Whether a token leaves the bits free by which the kinds of questions are told apart.
const fn small(token: u64) -> Result<(), CommandError> {
    match token >> 62 {
        0 => Ok(()),
        _ => Err(CommandError::Invalid("tokens are below 2^62")),
    }
}

impl Machine for AccessClient {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        // Nothing in Diameter asks for it.
        if let Protocol::Radius(r) = &mut self.protocol {
            r.set_epoch(now, epoch);
        }
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        match &mut self.protocol {
            Protocol::Radius(r) => r.handle(now, &self.nas, input),
            Protocol::Diameter(d) => d.handle(now, input),
        }
        if let (Input::Timeout, Some(owed)) = (input, &mut self.owed) {
            let dropped = owed.expire(now);
            self.forget(now, dropped);
            self.send_owed(now);
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.now = now;
        if let (Command::CancelRecord { token }, Some(owed)) = (&command, &mut self.owed) {
            let under_way = owed.cancel(now, *token);
            self.forget(now, under_way.then_some(*token).into_iter().collect());
            self.send_owed(now);
            return Ok(());
        }
        match (&mut self.protocol, command) {
            (Protocol::Radius(r), Command::Cancel { token }) => r.cancel(now, token),
            (Protocol::Radius(r), Command::CancelRecord { token }) => r.cancel(now, token | ACCOUNTING),
            (Protocol::Radius(_), Command::Terminate { .. }) => {}
            (Protocol::Radius(r), Command::AnswerDynamic { token, answer }) => {
                return r.answer(now, &self.nas, token, answer);
            }
            (Protocol::Radius(_), Command::Diameter(_)) => {
                return Err(CommandError::Invalid("this NAS asks by RADIUS"));
            }
            (Protocol::Diameter(d), Command::Cancel { token }) => d.cancel(now, token),
            (Protocol::Diameter(d), Command::CancelRecord { token }) => {
                d.cancel_record(now, token | ACCOUNTING)
            }
            (Protocol::Diameter(d), Command::Terminate { token, cause }) => d.terminate(now, token, cause),
            (Protocol::Diameter(d), Command::AnswerDynamic { token, answer }) => {
                return d.answer(now, token, answer);
            }
            (Protocol::Diameter(d), Command::Diameter(command)) => return d.command(now, command),
        }
        Ok(())
    }

    // What a protocol says is put into words here when it is asked for: nothing waits in a second queue but the end of records.
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        loop {
            if let Some(event) = self.owed.as_mut().and_then(Owed::said) {
                return Some(Output::Event(event));
            }
            let output = match &mut self.protocol {
                Protocol::Radius(r) => r.poll_output(buf),
                Protocol::Diameter(d) => d.poll_output(self.now, buf),
            };
            match output? {
                Output::Event(event) => {
                    if let Some(event) = self.heard(event) {
                        return Some(Output::Event(event));
                    }
                }
                other => return Some(other),
            }
        }
    }

    fn next_event<E, J>(
        &mut self,
        outputs: &mut Outputs<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Event> {
        loop {
            if let Some(event) = self.owed.as_mut().and_then(Owed::said) {
                return Some(event);
            }
            let event = match &mut self.protocol {
                Protocol::Radius(r) => r.next_event(outputs, &outside),
                Protocol::Diameter(d) => d.next_event(self.now, outputs, &outside),
            };
            if let Some(event) = self.heard(event?) {
                return Some(event);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let protocol = match &mut self.protocol {
            Protocol::Radius(r) => r.poll_timeout(),
            Protocol::Diameter(d) => d.poll_timeout(),
        };
        earliest([protocol, self.owed.as_ref().and_then(Owed::poll_timeout)])
    }
}
