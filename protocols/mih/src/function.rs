//! The MIH function (MIHF): transactions, peers and transports as one [`Machine`].
//!
//! The host binds UDP socket 0 to port [`PORT`]. It binds a further socket for each further local address of the
//! [routes](PeerRoute). Socket k belongs to the k-th address in the order of the [`MihfCommand::Peer`]s that named
//! it. The addresses of [`MihfConfig::locals`] come first, and a route without a local address uses socket 0. The
//! host listens on the same port for TCP and SCTP if peers use them.
//!
//! Users send requests and indications, and answer requests. The MIHF itself answers capability discovery,
//! registration, subscription and, with a [store](crate::information), Get_Information.
//!
//! # Routes
//!
//! An own transaction uses the current route of its peer. An acknowledgement or a response returns by the path of the
//! message that it answers, unless the user has changed the peer's route since. An unconfigured function is answered
//! too. The user can send to it by its latest path, while it is registered or one of its transactions is remembered.
//!
//! # Ended transactions
//!
//! An ended transaction is remembered for [`MihfConfig::lifetime`]. A duplicate within that time is acknowledged or
//! answered again, and does not reach the user twice. A later duplicate is a new message. A reply to a failed
//! transaction is counted and dropped, without an acknowledgement.

mod api;
mod claims;
mod config;
pub(crate) mod fuzz;
mod management;
mod peers;
mod receive;
mod send;
mod table;
#[cfg(test)]
mod tests;
pub mod work;

pub use crate::counters::MihfCounters;
pub use api::{IncomingRequestId, MihfCommand, MihfEvent, TransactionError};
pub use config::{
    AddressProofConfig, MihfCapabilities, MihfConfig, MihfPeer, PORT, PeerRoute, ResponseTimeoutPolicy,
    TransactionTimerConfig,
};

use crate::fragment::{FragmentReassembler, ReassemblyLimits};
use crate::net::{MihNetSap, ReplyPath, TransportIndication};
use crate::transaction::{TransactionEffect, TransactionStateMachines, TransactionStatus};
use crate::{MihfId, MihfMessage, Opcode};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use claims::AddressClaimTable;
use core::net::SocketAddr;
use peers::{PeerEntry, PeerTable};
use table::{Transaction, TransactionTable, TransactionTimer};
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, Instant, Machine, MachineInput, MachineOutput, MachineOutputOf, MessageAssociationEvent,
    NoJob, SimulationRng, StreamEvent, TransportProtocol,
};
use work::WorkMeter;

/// An MIH function; see the [module](self).
#[derive(Debug)]
pub struct Mihf {
    config: MihfConfig,
    rng: SimulationRng,
    net: MihNetSap,
    peers: PeerTable,
    table: TransactionTable,
    by_token: HashMap<u64, u64>,
    claims: AddressClaimTable,
    reassembly: FragmentReassembler,
    effects: Vec<TransactionEffect>,
    indications: VecDeque<TransportIndication>,
    work: WorkMeter,
    counters: MihfCounters,
}

impl Mihf {
    /// Creates a function. `rng` draws the first transaction identifier of each peer.
    #[must_use]
    pub fn new(config: MihfConfig, mut rng: SimulationRng) -> Self {
        let mut state = || SeededHashState::with_seed(rng.next_u64());
        let limits = ReassemblyLimits {
            octets: config.max_reassembled,
            messages: config.max_incomplete,
            reassembly_timeout: config.reassembly_timeout,
        };
        Self {
            net: MihNetSap::new(&config),
            peers: PeerTable::new(state()),
            table: TransactionTable::new(config.max_transactions, config.lifetime, state()),
            by_token: HashMap::with_hasher(state()),
            claims: AddressClaimTable::default(),
            reassembly: FragmentReassembler::new(limits),
            effects: Vec::new(),
            indications: VecDeque::new(),
            work: WorkMeter::default(),
            counters: MihfCounters::default(),
            config,
            rng,
        }
    }
    /// Returns the function's own identifier.
    #[must_use]
    pub const fn id(&self) -> &MihfId {
        &self.config.id
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &MihfCounters {
        &self.counters
    }
    /// Returns the address of the latest message of a function that is still remembered. While the user handles its
    /// request or indication, this is the source of that message.
    #[must_use]
    pub fn last_source_address(&self, id: &MihfId) -> Option<SocketAddr> {
        let entry = self.peers.get(self.peers.find(id)?)?;
        self.net.remote_address(entry.last_reply_path?)
    }
    /// True if the function is registered.
    #[must_use]
    pub fn is_registered(&self, id: &MihfId) -> bool {
        self.peers.find(id).and_then(|peer| self.peers.get(peer)).is_some_and(PeerEntry::is_registered)
    }
    /// Returns the number of transactions in memory, pending and ended, as of the last input.
    #[must_use]
    pub fn transaction_count(&self) -> usize {
        self.table.len()
    }
    /// Returns the highest number of transactions in memory so far.
    #[must_use]
    pub const fn peak_transactions(&self) -> usize {
        self.table.peak_count()
    }

    /// Changes a transaction's variables, runs its state machines and applies their effects.
    fn step_transaction(
        &mut self,
        now: Instant,
        token: u64,
        change: impl FnOnce(&mut TransactionStateMachines, &mut Vec<TransactionEffect>),
    ) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        let mut effects = core::mem::take(&mut self.effects);
        change(&mut transaction.machines, &mut effects);
        let mut deliver = false;
        for effect in effects.drain(..) {
            deliver |= effect == TransactionEffect::ProcessMsgIn;
            self.apply_effect(now, token, effect);
        }
        self.effects = effects;
        if self.table.get(token).is_some_and(Transaction::can_receive_nothing_more) {
            self.remove_transaction(token);
            return;
        }
        self.table.rearm_timers(token);
        if deliver {
            self.deliver_message(now, token);
        }
    }

    fn apply_effect(&mut self, now: Instant, token: u64, effect: TransactionEffect) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        let timing = transaction.timing;
        match effect {
            TransactionEffect::StartTransactionTimer => {
                if let Some(life) = self.config.transaction {
                    transaction.timers.set(TransactionTimer::Stop as usize, now + life);
                }
            }
            TransactionEffect::StartRetransmissionTimer => {
                transaction
                    .timers
                    .set(TransactionTimer::Retransmission as usize, now + timing.retransmission);
            }
            TransactionEffect::StopRetransmissionTimer => {
                transaction.timers.stop(TransactionTimer::Retransmission as usize)
            }
            TransactionEffect::StartResponseTimer => {
                if let Some(wait) =
                    timing.response.filter(|_| timing.unanswered != ResponseTimeoutPolicy::Wait)
                {
                    transaction.timers.set(TransactionTimer::Response as usize, now + wait);
                }
            }
            TransactionEffect::StartAckTimer => {
                if !transaction.machines.variables.ack_due {
                    transaction.timers.set(TransactionTimer::Ack as usize, now + self.config.ack_delay);
                }
            }
            TransactionEffect::TransmitMsgOut => {
                transaction.timers.stop(TransactionTimer::Ack as usize);
                let variables = &transaction.machines.variables;
                self.counters.messages += 1;
                self.counters.piggybacked += u64::from(variables.msg_out_ack_rsp);
                self.transmit_message(token);
            }
            TransactionEffect::RetransmitMsgOut => {
                self.counters.retransmissions += 1;
                self.transmit_message(token);
            }
            TransactionEffect::TransmitDup => {
                self.counters.repeated_responses += 1;
                self.transmit_message(token);
            }
            TransactionEffect::TransmitAck => {
                transaction.timers.stop(TransactionTimer::Ack as usize);
                self.send_acknowledgement(token);
            }
            TransactionEffect::ProcessMsgIn => {}
            TransactionEffect::Ended(status) => self.finish_transaction(now, token, status),
        }
    }

    /// Handles the end of the source or destination machine.
    fn finish_transaction(&mut self, now: Instant, token: u64, status: TransactionStatus) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        for timer in [TransactionTimer::Retransmission, TransactionTimer::Response, TransactionTimer::Stop] {
            transaction.timers.stop(timer as usize);
        }
        let variables = &transaction.machines.variables;
        let unacknowledged =
            variables.start_ack_requestor && variables.ack_requestor_status != TransactionStatus::Success;
        let failure = match transaction.failure.take() {
            Some(failure) => failure,
            None if unacknowledged => TransactionError::NoAcknowledgement,
            None => TransactionError::NoResponse,
        };
        let failed = status == TransactionStatus::Failure && !variables.abandoned;
        match transaction.user {
            Some(user) => {
                self.by_token.remove(&user);
                if let Some(peer) = self.peers.get_mut(transaction.peer) {
                    peer.release_id(transaction.tid);
                }
                if failed {
                    match failure {
                        TransactionError::NoAcknowledgement => self.counters.gave_up += 1,
                        TransactionError::NoResponse => self.counters.unanswered += 1,
                        TransactionError::NoRoute | TransactionError::Transport => {}
                    }
                }
                if !variables.abandoned {
                    let result = if failed { Err(failure) } else { Ok(transaction.inbox.take()) };
                    self.net.outputs.push_event(MihfEvent::Done { token: user, result });
                }
            }
            None if failed && unacknowledged => self.counters.gave_up += 1,
            None if failed => self.counters.expired += 1,
            None => {}
        }
        let worthless = transaction.can_receive_nothing_more();
        self.net.release_transaction(token);
        if !worthless {
            self.table.queue_ended_transaction(now, token);
        }
    }

    fn remove_transaction(&mut self, token: u64) {
        if let Some(gone) = self.table.remove(token) {
            self.peers.drop_reference(gone.peer);
        }
    }

    fn purge_expired(&mut self, now: Instant) {
        while let Some(token) = self.table.pop_expired(now) {
            self.remove_transaction(token);
        }
        while let Some(peer) = self.peers.expire_registration(now) {
            self.net.outputs.push_event(MihfEvent::Deregistered { peer });
        }
    }

    /// Makes room for one more transaction, by evicting an ended one if necessary.
    fn evict_for_new_transaction(&mut self) -> bool {
        while self.table.is_full() {
            let Some(token) = self.table.pop_oldest_ended_transaction() else { return false };
            self.counters.forgotten_early += 1;
            self.remove_transaction(token);
        }
        true
    }

    fn expire_timers(&mut self, now: Instant) {
        self.reassembly.handle_timeout(now);
        self.expire_claims(now);
        self.count_fragments();
        while let Some((token, timer)) = self.table.pop_due(now) {
            self.step_transaction(now, token, |machines, effects| {
                let variables = &mut machines.variables;
                match timer {
                    TransactionTimer::Retransmission => variables.retransmission_due = true,
                    TransactionTimer::Response => variables.response_due = true,
                    TransactionTimer::Stop => variables.transaction_stop = true,
                    TransactionTimer::Ack => variables.ack_due = true,
                }
                machines.run_transitions(effects);
            });
        }
    }

    /// Fails the transactions whose message was not delivered to a transport, or was lost with its connection, and
    /// has no retransmission left.
    fn fail_undelivered(&mut self, now: Instant) {
        while let Some(token) = self.net.poll_failed() {
            let Some(transaction) = self.table.get_mut(token) else { continue };
            let machines = &transaction.machines;
            let told = machines.variables.start_ack_requestor || transaction.has_retransmission_left();
            if machines.is_open() && transaction.user.is_some() && !told {
                transaction.failure = Some(TransactionError::Transport);
                self.step_transaction(now, token, |machines, effects| {
                    machines.variables.transport_failed = true;
                    machines.run_transitions(effects);
                });
            }
        }
    }
}

impl Machine for Mihf {
    type Command = MihfCommand;
    type Event = MihfEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.purge_expired(now);
        match input {
            MachineInput::Datagram { path, data } => {
                self.receive_packet(now, ReplyPath::Datagram(path), data)
            }
            MachineInput::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, .. } | StreamEvent::Connected { remote, .. } => {
                    self.net.handle_connected(conn, TransportProtocol::Tcp, remote, 1);
                }
                StreamEvent::Data(data) => {
                    let mut indications = core::mem::take(&mut self.indications);
                    let broken = self.net.receive_stream_data(conn, data, &mut indications);
                    for indication in indications.drain(..) {
                        self.receive_packet(now, indication.reply_path, &indication.packet);
                    }
                    self.indications = indications;
                    if broken {
                        self.counters.broken_streams += 1;
                        self.release_connection(conn);
                    }
                }
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Closed(_) => self.release_connection(conn),
            },
            MachineInput::Message { assoc, event } => match event {
                MessageAssociationEvent::Accepted { remote, streams, .. }
                | MessageAssociationEvent::Up { remote, streams } => {
                    self.net.handle_connected(assoc, TransportProtocol::Sctp, remote, streams);
                }
                MessageAssociationEvent::Data { data, .. } => {
                    self.net.record_association_receipt(assoc);
                    self.receive_packet(now, ReplyPath::Connection(assoc), data);
                }
                MessageAssociationEvent::Down(_) => self.release_connection(assoc),
            },
            MachineInput::Frame { .. } => {}
            MachineInput::Timeout => self.expire_timers(now),
        }
        self.fail_undelivered(now);
    }

    fn handle_command(&mut self, now: Instant, command: MihfCommand) -> Result<(), CommandError> {
        self.purge_expired(now);
        match command {
            MihfCommand::Peer(peer) => self.configure_peer(&peer),
            MihfCommand::Unname(id) => self.unconfigure_peer(&id),
            MihfCommand::Configure(config) => {
                self.config = MihfConfig { id: self.config.id.clone(), ..*config }
            }
            MihfCommand::Send { token, to, message } => self.send_message(now, token, &to, &message)?,
            MihfCommand::Respond { transaction, message } => {
                self.send_response(now, transaction, &message)?
            }
            MihfCommand::Abandon { token } => {
                let transaction = *self.by_token.get(&token).ok_or(CommandError::UnknownToken)?;
                self.step_transaction(now, transaction, |machines, effects| {
                    machines.variables.abandoned = true;
                    machines.run_transitions(effects);
                });
            }
        }
        self.fail_undelivered(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.net.outputs.poll(buf).or_else(|| self.work.poll().map(MachineOutput::Work))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest_deadline([
            self.table.next_deadline(),
            self.reassembly.poll_timeout(),
            self.claims.next_deadline(),
            self.peers.next_expiry(),
        ])
    }
}

impl Transaction {
    /// True while the request has a retransmission left for a missing response.
    fn has_retransmission_left(&self) -> bool {
        let variables = &self.machines.variables;
        self.timing.response.is_some() && variables.resends < variables.resends_max
    }
    /// True for an ended transaction that can receive nothing more: an indication sent without ACK-Req.
    fn can_receive_nothing_more(&self) -> bool {
        self.user.is_some()
            && !self.machines.is_open()
            && self.id.opcode == Opcode::Indication
            && !self.machines.variables.start_ack_requestor
    }
}
