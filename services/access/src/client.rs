//! The client of AAA servers inside an access server, with the same requests and events over RADIUS and Diameter.
//!
//! ```text
//! AccessClient::send_request(token, AccessRequest)   ─▶ AccessClientEvent::{Challenge, Accept, Reject, Failed}{token}
//! AccessClient::send_record(token, AccountingRecord) ─▶ AccessClientEvent::Accounted{token}
//! AccessClientEvent::Dynamic(DynamicRequest{token})  ─▶ AccessClientCommand::AnswerDynamic{token}
//! ```
//! Each accepted request has exactly one reply, unless it is cancelled. So has each record. A request and a record may
//! have the same token.

mod diameter;
mod event;
mod nodes;
mod pending_records;
mod radius;

pub use diameter::{DiameterConfig, DiameterConnections};
pub use event::{AaaRequestFailure, AccessClientCommand, AccessClientEvent, ConfigError};
pub use nodes::LISTENER as DIAMETER_LISTENER;
pub use pending_records::AccountingRetryConfig;
pub use radius::{DYNAMIC_SOCKET, DynamicAuthConfig, RadiusConfig};

use crate::{AccessReply, AccessRequest, AccountingRecord, NasIdentity};
use alloc::boxed::Box;
use alloc::vec::Vec;
use diameter::DiameterAccessClient;
use event::ACCOUNTING;
use pending_records::{EncodedAccountingRecord, RecordQueue};
use radius::RadiusAccessClient;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, Duration, Instant, Machine, MachineInput, MachineOutput, MachineOutputOf, NoJob,
    OutputQueue, SecureRng, Transmit, WallTime,
};
use usher_diameter::node;
use usher_radius::client::ServerHealth;

/// The protocol and the servers of a NAS.
#[derive(Clone, Debug)]
pub enum AaaConfig {
    /// RADIUS, by datagrams or by RadSec.
    Radius(RadiusConfig),
    /// Diameter with its EAP and NASREQ applications.
    Diameter(Box<DiameterConfig>),
}

/// The AAA client of an access server.
#[derive(Clone, Debug)]
pub struct AaaClientConfig {
    /// The identity of the NAS.
    pub nas: NasIdentity,
    /// The protocol and the servers.
    pub servers: AaaConfig,
    /// True if the NAS sends accounting records.
    pub accounting: bool,
    /// The interval of interim records if the server sends no Acct-Interim-Interval. `None` for starts and stops only.
    pub interim: Option<Duration>,
    /// The retransmission of unacknowledged records.
    pub record_retry: AccountingRetryConfig,
}

impl AaaClientConfig {
    /// Returns a client of these servers, with a queue of unacknowledged records.
    ///
    /// # Errors
    /// The configuration is inconsistent.
    pub fn build_client(&self, rng: SecureRng) -> Result<AccessClient, ConfigError> {
        let client = AccessClient::new(self.nas.clone(), self.servers.clone(), rng)?;
        Ok(AccessClient { record_queue: Some(RecordQueue::new(self.record_retry)), ..client })
    }
}

#[derive(Debug)]
enum AaaProtocol {
    Radius(Box<RadiusAccessClient>),
    Diameter(Box<DiameterAccessClient>),
}

/// A client of AAA servers; see the [crate](crate).
#[derive(Debug)]
pub struct AccessClient {
    nas: NasIdentity,
    protocol: AaaProtocol,
    /// Unacknowledged records. If `None`, records are retransmitted like requests.
    record_queue: Option<RecordQueue>,
    /// The time of the last input.
    now: Instant,
}

impl AccessClient {
    /// Returns a client without a queue of records. Its random numbers come from `rng`.
    ///
    /// # Errors
    /// The configuration is inconsistent.
    pub fn new(nas: NasIdentity, aaa: AaaConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        if nas.identifier.len() > 253 {
            return Err(ConfigError::Identifier(nas.identifier.len()));
        }
        if !nas.is_named() {
            return Err(ConfigError::Nameless);
        }
        let protocol = match aaa {
            AaaConfig::Radius(config) => AaaProtocol::Radius(Box::new(RadiusAccessClient::new(config, rng)?)),
            AaaConfig::Diameter(config) => {
                AaaProtocol::Diameter(Box::new(DiameterAccessClient::new(*config, rng)))
            }
        };
        Ok(Self { nas, protocol, record_queue: None, now: Instant::ZERO })
    }
    /// The RADIUS client's counters, over RADIUS.
    #[must_use]
    pub fn radius_counters(&self) -> Option<&usher_radius::client::RadiusClientCounters> {
        match &self.protocol {
            AaaProtocol::Radius(r) => Some(r.counters()),
            AaaProtocol::Diameter(_) => None,
        }
    }
    /// The counters of dynamic authorization, over RADIUS.
    #[must_use]
    pub fn dynamic_counters(&self) -> Option<&usher_radius::server::RadiusServerCounters> {
        match &self.protocol {
            AaaProtocol::Radius(r) => r.dynamic_counters(),
            AaaProtocol::Diameter(_) => None,
        }
    }
    /// The sum of the Diameter nodes' counters, over Diameter. It includes nodes that are closed.
    #[must_use]
    pub fn diameter_counters(&self) -> Option<node::DiameterNodeCounters> {
        match &self.protocol {
            AaaProtocol::Radius(_) => None,
            AaaProtocol::Diameter(d) => Some(d.counters()),
        }
    }
    /// Sends a login request. The token is below 2^62 and not that of another open request. Every round of a login has
    /// the same token. Over Diameter it identifies the session and must not be reused. Drain
    /// [`poll_output`](Machine::poll_output) afterwards.
    ///
    /// # Errors
    /// The request cannot be sent now, or a value does not fit. The client is unchanged then.
    pub fn send_request(
        &mut self,
        now: Instant,
        token: u64,
        request: &AccessRequest<'_>,
    ) -> Result<(), CommandError> {
        check_token_range(token)?;
        self.now = now;
        match &mut self.protocol {
            AaaProtocol::Radius(r) => r.send_request(now, &self.nas, token, request),
            AaaProtocol::Diameter(d) => d.send_request(now, &self.nas, token, request),
        }
    }
    /// Sends an accounting record. The token is below 2^62 and above those of all pending records. Drain
    /// [`poll_output`](Machine::poll_output) afterwards.
    ///
    /// A client of [`AaaClientConfig::build_client`] retransmits the record until a server acknowledges it
    /// ([`AccountingRetryConfig`]). It sends records of a session in order. A later record replaces a pending interim
    /// record.
    ///
    /// # Errors
    /// The record cannot be sent, or a value does not fit. The client is unchanged then.
    pub fn send_record(
        &mut self,
        now: Instant,
        token: u64,
        record: &AccountingRecord<'_>,
    ) -> Result<(), CommandError> {
        check_token_range(token)?;
        self.now = now;
        let told = match &mut self.protocol {
            AaaProtocol::Radius(r) => EncodedAccountingRecord::Radius(r.encode_record(&self.nas, record)?),
            AaaProtocol::Diameter(d) => {
                let (node, request) = d.encode_record(&self.nas, token | ACCOUNTING, record)?;
                EncodedAccountingRecord::Diameter(node, request)
            }
        };
        let Some(owed) = &mut self.record_queue else { return self.transmit_record(now, token, told) };
        let dropped = owed.enqueue(now, token, record, told);
        self.cancel_records(now, dropped);
        self.send_due_records(now);
        Ok(())
    }
    fn transmit_record(
        &mut self,
        now: Instant,
        token: u64,
        told: EncodedAccountingRecord,
    ) -> Result<(), CommandError> {
        match (&mut self.protocol, told) {
            (AaaProtocol::Radius(r), EncodedAccountingRecord::Radius(attributes)) => {
                r.send_record(now, token | ACCOUNTING, attributes)
            }
            (AaaProtocol::Diameter(d), EncodedAccountingRecord::Diameter(node, request)) => {
                d.send_record(now, node, request)
            }
            (AaaProtocol::Radius(_), EncodedAccountingRecord::Diameter(..))
            | (AaaProtocol::Diameter(_), EncodedAccountingRecord::Radius(_)) => {
                Err(CommandError::Invalid("a record of the other AAA protocol"))
            }
        }
    }
    /// Sends the pending records that are due.
    fn send_due_records(&mut self, now: Instant) {
        while let Some((token, told)) = self.record_queue.as_mut().and_then(|owed| owed.next_due(now)) {
            let sent = self.transmit_record(now, token, told);
            let Some(owed) = &mut self.record_queue else { return };
            match sent {
                Ok(()) => {}
                Err(CommandError::Full(_)) => return owed.defer_unsent_record(now, token),
                Err(_) => owed.fail_unsendable_record(now, token),
            }
        }
    }
    /// Cancels these records in the protocol.
    fn cancel_records(&mut self, now: Instant, records: Vec<u64>) {
        for token in records {
            match &mut self.protocol {
                AaaProtocol::Radius(r) => r.cancel_request(now, token | ACCOUNTING),
                AaaProtocol::Diameter(d) => d.cancel_record(now, token | ACCOUNTING),
            }
        }
    }
    /// Filters an event of the protocol. A record's failure that will be retried is not an event.
    fn intercept_record_event(&mut self, event: AccessClientEvent) -> Option<AccessClientEvent> {
        let Some(owed) = &mut self.record_queue else { return Some(event) };
        match event {
            AccessClientEvent::Accounted { token, result: kept } => owed.handle_answer(self.now, token, kept),
            AccessClientEvent::Peer { up: true, .. }
            | AccessClientEvent::Server { health: ServerHealth::Alive, .. } => {
                owed.make_pausing_records_due(self.now);
            }
            _ => return Some(event),
        }
        self.send_due_records(self.now);
        match event {
            AccessClientEvent::Accounted { .. } => None,
            other => Some(other),
        }
    }
    /// True if AAA servers may send requests about sessions ([`AccessClientEvent::Dynamic`]).
    #[must_use]
    pub fn accepts_dynamic_requests(&self) -> bool {
        match &self.protocol {
            AaaProtocol::Radius(r) => r.dynamic_counters().is_some(),
            AaaProtocol::Diameter(d) => d.keeps_session_state(),
        }
    }
    /// Takes an unneeded reply back, to reuse its memory.
    pub fn recycle_reply(&mut self, reply: AccessReply) {
        if let AaaProtocol::Radius(r) = &mut self.protocol {
            r.recycle_reply(reply);
        }
    }
}

/// Checks that a token leaves the bits free that separate kinds of requests.
const fn check_token_range(token: u64) -> Result<(), CommandError> {
    match token >> 62 {
        0 => Ok(()),
        _ => Err(CommandError::Invalid("a token must be below 2^62")),
    }
}

impl Machine for AccessClient {
    type Command = AccessClientCommand;
    type Event = AccessClientEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        // Only RADIUS uses the wall clock.
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
            let dropped = owed.fail_expired_records(now);
            self.cancel_records(now, dropped);
            self.send_due_records(now);
        }
    }

    fn handle_command(&mut self, now: Instant, command: AccessClientCommand) -> Result<(), CommandError> {
        self.now = now;
        if let (AccessClientCommand::CancelRecord { token }, Some(owed)) = (&command, &mut self.record_queue)
        {
            let under_way = owed.remove_queued_record(now, *token);
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
                return Err(CommandError::Invalid("this access server uses RADIUS"));
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

    // Outputs of the protocols are translated here and not queued. Only completed records have a queue.
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        loop {
            if let Some(event) = self.record_queue.as_mut().and_then(RecordQueue::next_record_event) {
                return Some(MachineOutput::Event(event));
            }
            let output = match &mut self.protocol {
                AaaProtocol::Radius(r) => r.poll_output(buf),
                AaaProtocol::Diameter(d) => d.poll_output(self.now, buf),
            };
            match output? {
                MachineOutput::Event(event) => {
                    if let Some(event) = self.intercept_record_event(event) {
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
            if let Some(event) = self.record_queue.as_mut().and_then(RecordQueue::next_record_event) {
                return Some(event);
            }
            let event = match &mut self.protocol {
                AaaProtocol::Radius(r) => r.next_event(outputs, &outside),
                AaaProtocol::Diameter(d) => d.next_event(self.now, outputs, &outside),
            };
            if let Some(event) = self.intercept_record_event(event?) {
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
