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

pub use diameter::{DiameterConfig, DiameterConnections};
pub use nodes::LISTENER as DIAMETER_LISTENER;
pub use owed::AccountingRetryConfig;
pub use radius::{DYNAMIC_SOCKET, DynamicConfig, RadiusConfig};

use crate::{
    AccessReply, AccessRequest, AccountingRecord, DynamicRequest, ErrorCause, NasIdentity, TerminateCause,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use diameter::DiameterAccess;
use owed::{EncodedRecord, RecordQueue};
use radius::RadiusAccess;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, Duration, Instant, Machine, MachineInput, MachineOutput, NoJob, OutputOf, OutputQueue,
    SecureRng, Transmit, WallTime,
};
use usher_diameter::node::{self, PeerId};
use usher_radius::client::{HealthCause, ServerHealth};

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
pub struct AaaClientConfig {
    /// As whom it asks.
    pub nas: NasIdentity,
    /// Whom, and how.
    pub servers: AaaConfig,
    /// Whether sessions are told of.
    pub accounting: bool,
    /// How often, where the server does not say (Acct-Interim-Interval); `None`: at their start and end alone.
    pub interim: Option<Duration>,
    /// How long records are sent again that no server acknowledges.
    pub record_retry: AccountingRetryConfig,
}

impl AaaClientConfig {
    /// A client of these servers, which has asked nothing yet.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn build_client(&self, rng: SecureRng) -> Result<AccessClient, ConfigError> {
        let client = AccessClient::new(self.nas.clone(), self.servers.clone(), rng)?;
        Ok(AccessClient { record_queue: Some(RecordQueue::new(self.record_retry)), ..client })
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
pub enum AaaFailure {
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

/// What a client is told, beside what it is asked ([`AccessClient::send_request`], [`AccessClient::send_record`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessClientCommand {
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
    /// To answer [`AccessClientEvent::Dynamic`]. Whoever refuses to authenticate a user again ends the session, as the server does by that
    /// answer (RFC 6733 §8.1): it is not told of the end ([`Terminate`](Self::Terminate)). Of a session that is to end, and
    /// is not ended, it hears DIAMETER_UNABLE_TO_COMPLY, unless there is none (§8.5.2).
    AnswerDynamic {
        /// The request's.
        token: u64,
        /// It is done, or why not.
        answer: Result<(), ErrorCause>,
    },
    /// To open or close the connection to a Diameter peer, which is numbered as in [`AccessClientEvent::Peer`].
    Diameter(node::DiameterNodeCommand),
}

/// What a client has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessClientEvent {
    /// The server wants a further round.
    Challenge {
        /// The question's.
        token: u64,
        /// With the EAP packet for the peer, or what else it is asked.
        reply: AccessReply,
    },
    /// The user is let in.
    Accept {
        /// The question's.
        token: u64,
        /// As what.
        reply: AccessReply,
    },
    /// The user is turned away.
    Reject {
        /// The question's.
        token: u64,
        /// What it may be told.
        reply: AccessReply,
    },
    /// There is no answer.
    Failed {
        /// The question's.
        token: u64,
        /// Why.
        failure: AaaFailure,
    },
    /// A record of accounting has its end.
    Accounted {
        /// The record's.
        token: u64,
        /// The server has it, or a later record of its session says all that it said; or why not.
        result: Result<(), AaaFailure>,
    },
    /// The AAA server wants something of a session.
    Dynamic(Box<DynamicRequest>),
    /// A Diameter peer can be asked, or no longer.
    Peer {
        /// Which: index among the configured peers, for each connection anew where there are several ([`DiameterConnections`]).
        peer: PeerId,
        /// It can be asked.
        up: bool,
    },
    /// How a RADIUS server is that is watched ([`usher_radius::client::ServerConfig::liveness`]).
    Server {
        /// Its index.
        server: u16,
        /// How it is.
        health: ServerHealth,
        /// Why.
        cause: HealthCause,
    },
}

/// The tokens of records have this bit where they go out, so that none is that of a question.
const ACCOUNTING: u64 = 1 << 63;

#[derive(Debug)]
enum AaaProtocol {
    Radius(Box<RadiusAccess>),
    Diameter(Box<DiameterAccess>),
}

/// A client of AAA servers; see the [crate](crate).
#[derive(Debug)]
pub struct AccessClient {
    nas: NasIdentity,
    protocol: AaaProtocol,
    /// Records without an answer; `None`: they are sent as long as questions are, and no longer.
    record_queue: Option<RecordQueue>,
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
            AaaConfig::Radius(config) => AaaProtocol::Radius(Box::new(RadiusAccess::new(config, rng)?)),
            AaaConfig::Diameter(config) => AaaProtocol::Diameter(Box::new(DiameterAccess::new(*config, rng))),
        };
        Ok(Self { nas, protocol, record_queue: None, now: Instant::ZERO })
    }
    /// The RADIUS client's counters, where that is how it asks.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        match &self.protocol {
            AaaProtocol::Radius(r) => Some(r.counters()),
            AaaProtocol::Diameter(_) => None,
        }
    }
    /// What was counted of requests for dynamic authorisation, where RADIUS brings them.
    #[must_use]
    pub fn dynamic_counters(&self) -> Option<&usher_radius::server::RadiusServerCounters> {
        match &self.protocol {
            AaaProtocol::Radius(r) => r.dynamic_counters(),
            AaaProtocol::Diameter(_) => None,
        }
    }
    /// The Diameter nodes' counters, where that is how it asks: their sum, those included that are gone.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<node::DiameterNodeCounters> {
        match &self.protocol {
            AaaProtocol::Radius(_) => None,
            AaaProtocol::Diameter(d) => Some(d.counters()),
        }
    }
    /// Asks whether a user is let in. The token is below 2^62 and not that of another open question; every round of one login
    /// has the same. Over Diameter it names the session, and is not given again. Afterwards drain
    /// [`poll_output`](Machine::poll_output), as after a command.
    ///
    /// # Errors
    /// The question cannot be asked now, or a value does not fit; nothing changed.
    pub fn send_request(
        &mut self,
        now: Instant,
        token: u64,
        request: &AccessRequest<'_>,
    ) -> Result<(), CommandError> {
        check_token(token)?;
        self.now = now;
        match &mut self.protocol {
            AaaProtocol::Radius(r) => r.send_request(now, &self.nas, token, request),
            AaaProtocol::Diameter(d) => d.send_request(now, &self.nas, token, request),
        }
    }
    /// Sends a record of accounting. The token is below 2^62 and above those of all records without an answer. Afterwards drain
    /// [`poll_output`](Machine::poll_output), as after a command.
    ///
    /// A client of [`AaaClientConfig::build_client`] keeps it until a server acknowledges it ([`AccountingRetryConfig`]), sends records of one session one after
    /// the other, and an interim record no more when there is a later one.
    ///
    /// # Errors
    /// It cannot be sent, or a value does not fit; nothing changed.
    pub fn send_record(
        &mut self,
        now: Instant,
        token: u64,
        record: &AccountingRecord<'_>,
    ) -> Result<(), CommandError> {
        check_token(token)?;
        self.now = now;
        let told = match &mut self.protocol {
            AaaProtocol::Radius(r) => EncodedRecord::Radius(r.encode_record(&self.nas, record)?),
            AaaProtocol::Diameter(d) => {
                let (node, request) = d.encode_record(&self.nas, token | ACCOUNTING, record)?;
                EncodedRecord::Diameter(node, request)
            }
        };
        let Some(owed) = &mut self.record_queue else { return self.transmit_record(now, token, told) };
        let dropped = owed.enqueue(now, token, record, told);
        self.cancel_records(now, dropped);
        self.send_due_records(now);
        Ok(())
    }
    fn transmit_record(&mut self, now: Instant, token: u64, told: EncodedRecord) -> Result<(), CommandError> {
        match (&mut self.protocol, told) {
            (AaaProtocol::Radius(r), EncodedRecord::Radius(attributes)) => {
                r.send_record(now, token | ACCOUNTING, attributes)
            }
            (AaaProtocol::Diameter(d), EncodedRecord::Diameter(node, request)) => {
                d.send_record(now, node, request)
            }
            (AaaProtocol::Radius(_), EncodedRecord::Diameter(..))
            | (AaaProtocol::Diameter(_), EncodedRecord::Radius(_)) => {
                Err(CommandError::Invalid("a record of the other protocol"))
            }
        }
    }
    /// Sends what is due of the records without an answer.
    fn send_due_records(&mut self, now: Instant) {
        while let Some((token, told)) = self.record_queue.as_mut().and_then(|owed| owed.next_due(now)) {
            let sent = self.transmit_record(now, token, told);
            let Some(owed) = &mut self.record_queue else { return };
            match sent {
                Ok(()) => {}
                Err(CommandError::Full(_)) => return owed.defer_record(now, token),
                Err(_) => owed.fail_record(now, token),
            }
        }
    }
    /// Answers to these records are not waited for any more.
    fn cancel_records(&mut self, now: Instant, records: Vec<u64>) {
        for token in records {
            match &mut self.protocol {
                AaaProtocol::Radius(r) => r.cancel_request(now, token | ACCOUNTING),
                AaaProtocol::Diameter(d) => d.cancel_record(now, token | ACCOUNTING),
            }
        }
    }
    /// What is said of an event of the protocol: of a record only what is final.
    fn filter_event(&mut self, event: AccessClientEvent) -> Option<AccessClientEvent> {
        let Some(owed) = &mut self.record_queue else { return Some(event) };
        match event {
            AccessClientEvent::Accounted { token, result: kept } => owed.handle_answer(self.now, token, kept),
            AccessClientEvent::Peer { up: true, .. }
            | AccessClientEvent::Server { health: ServerHealth::Alive, .. } => {
                owed.retry_now(self.now);
            }
            _ => return Some(event),
        }
        self.send_due_records(self.now);
        match event {
            AccessClientEvent::Accounted { .. } => None,
            other => Some(other),
        }
    }
    /// Whether AAA servers may ask something of sessions ([`AccessClientEvent::Dynamic`]).
    #[must_use]
    pub fn accepts_dynamic_requests(&self) -> bool {
        match &self.protocol {
            AaaProtocol::Radius(r) => r.dynamic_counters().is_some(),
            AaaProtocol::Diameter(d) => d.is_stateful(),
        }
    }
    /// Takes a reply back that is not needed any more: its memory serves the next request.
    pub fn recycle_reply(&mut self, reply: AccessReply) {
        if let AaaProtocol::Radius(r) = &mut self.protocol {
            r.recycle_reply(reply);
        }
    }
}

/// Whether a token leaves the bits free by which the kinds of questions are told apart.
const fn check_token(token: u64) -> Result<(), CommandError> {
    match token >> 62 {
        0 => Ok(()),
        _ => Err(CommandError::Invalid("tokens are below 2^62")),
    }
}

impl Machine for AccessClient {
    type Command = AccessClientCommand;
    type Event = AccessClientEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        // Nothing in Diameter asks for it.
        if let AaaProtocol::Radius(r) = &mut self.protocol {
            r.set_epoch(now, epoch);
        }
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.now = now;
        match &mut self.protocol {
            AaaProtocol::Radius(r) => r.handle_input(now, &self.nas, input),
            AaaProtocol::Diameter(d) => d.handle_input(now, input),
        }
        if let (MachineInput::Timeout, Some(owed)) = (input, &mut self.record_queue) {
            let dropped = owed.expire_records(now);
            self.cancel_records(now, dropped);
            self.send_due_records(now);
        }
    }

    fn handle_command(&mut self, now: Instant, command: AccessClientCommand) -> Result<(), CommandError> {
        self.now = now;
        if let (AccessClientCommand::CancelRecord { token }, Some(owed)) = (&command, &mut self.record_queue)
        {
            let under_way = owed.drop_record(now, *token);
            self.cancel_records(now, under_way.then_some(*token).into_iter().collect());
            self.send_due_records(now);
            return Ok(());
        }
        match (&mut self.protocol, command) {
            (AaaProtocol::Radius(r), AccessClientCommand::Cancel { token }) => r.cancel_request(now, token),
            (AaaProtocol::Radius(r), AccessClientCommand::CancelRecord { token }) => {
                r.cancel_request(now, token | ACCOUNTING)
            }
            (AaaProtocol::Radius(_), AccessClientCommand::Terminate { .. }) => {}
            (AaaProtocol::Radius(r), AccessClientCommand::AnswerDynamic { token, answer }) => {
                return r.answer_dynamic(now, &self.nas, token, answer);
            }
            (AaaProtocol::Radius(_), AccessClientCommand::Diameter(_)) => {
                return Err(CommandError::Invalid("this NAS asks by RADIUS"));
            }
            (AaaProtocol::Diameter(d), AccessClientCommand::Cancel { token }) => d.cancel_request(now, token),
            (AaaProtocol::Diameter(d), AccessClientCommand::CancelRecord { token }) => {
                d.cancel_record(now, token | ACCOUNTING)
            }
            (AaaProtocol::Diameter(d), AccessClientCommand::Terminate { token, cause }) => {
                d.terminate_session(now, token, cause)
            }
            (AaaProtocol::Diameter(d), AccessClientCommand::AnswerDynamic { token, answer }) => {
                return d.answer_server_request(now, token, answer);
            }
            (AaaProtocol::Diameter(d), AccessClientCommand::Diameter(command)) => {
                return d.apply_command(now, command);
            }
        }
        Ok(())
    }

    // What a protocol says is put into words here when it is asked for: nothing waits in a second queue but the end of records.
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        loop {
            if let Some(event) = self.record_queue.as_mut().and_then(RecordQueue::next_finished) {
                return Some(MachineOutput::Event(event));
            }
            let output = match &mut self.protocol {
                AaaProtocol::Radius(r) => r.poll_output(buf),
                AaaProtocol::Diameter(d) => d.poll_output(self.now, buf),
            };
            match output? {
                MachineOutput::Event(event) => {
                    if let Some(event) = self.filter_event(event) {
                        return Some(MachineOutput::Event(event));
                    }
                }
                other => return Some(other),
            }
        }
    }

    fn next_event<E, J>(
        &mut self,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<AccessClientEvent> {
        loop {
            if let Some(event) = self.record_queue.as_mut().and_then(RecordQueue::next_finished) {
                return Some(event);
            }
            let event = match &mut self.protocol {
                AaaProtocol::Radius(r) => r.next_event(outputs, &outside),
                AaaProtocol::Diameter(d) => d.next_event(self.now, outputs, &outside),
            };
            if let Some(event) = self.filter_event(event?) {
                return Some(event);
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let protocol = match &mut self.protocol {
            AaaProtocol::Radius(r) => r.poll_timeout(),
            AaaProtocol::Diameter(d) => d.poll_timeout(),
        };
        earliest_deadline([protocol, self.record_queue.as_ref().and_then(RecordQueue::poll_timeout)])
    }
}
