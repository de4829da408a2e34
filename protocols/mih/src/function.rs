//! The MIH function (MIHF): transactions, peers and transports as one [`Machine`].
//!
//! A host binds UDP socket 0 to port [`PORT`], and further sockets for further local addresses of the
//! [routes](PeerRoute) (socket k for the k-th address in the order of the [`MihfCommand::Peer`]s that named it; no address in
//! particular is the first socket's; [`MihfConfig::locals`] are before them all); it listens on the same port for TCP and SCTP where peers use them. Users
//! send requests and indications and answer requests; capability discovery, registration, subscription and,
//! with a [store](crate::information), Get_Information are answered here.
//!
//! # By which way
//!
//! A transaction of ours goes by its peer's route of the moment. An acknowledgement or a response goes back
//! by the way by which the message came, unless the user has changed the peer's route since. Functions that nobody
//! named are answered, and can be sent to by the way by which they were last heard, while a transaction of
//! theirs is remembered or they are registered.
//!
//! # What is forgotten when
//!
//! An ended transaction is remembered for [`MihfConfig::lifetime`], so that a message that comes again is
//! acknowledged or answered again and not given to the user twice. Later it is a new message. A reply to a
//! transaction that has failed is dropped and counted, and not acknowledged.

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
pub use claims::AddressProofs;
pub use config::{
    MihfCapabilities, MihfConfig, MihfPeer, PORT, PeerRoute, TransactionTiming, UnansweredPolicy,
};

use crate::fragment::{FragmentReassembler, ReassemblyLimits};
use crate::net::{NetSap, ReplyPath, TransportIndication};
use crate::transaction::{TransactionEffect, TransactionMachines, TransactionStatus};
use crate::{EventConfig, EventList, LinkTupleId, MihfId, MihfMessage, Opcode};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use claims::ClaimTable;
use core::net::{IpAddr, SocketAddr};
use peers::{PeerEntry, PeerTable};
use table::{Transaction, TransactionTable, TransactionTimer};
use usher_core::collections::{HashMap, HashState};
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, Instant, Machine, MachineInput, MachineOutput, MessageEvent, ModelRng, NoJob, OutputOf,
    StreamEvent, TransportProtocol,
};
use work::WorkMeter;

/// Names a request of another function until it is answered; for [`MihfCommand::Respond`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncomingRequestId(u64);

/// What a user asks of an MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihfCommand {
    /// Names a peer, or changes its route: transactions that are under way go on by the new one.
    Peer(MihfPeer),
    /// Names a peer no more: it is as one that nobody named from now on.
    Unname(MihfId),
    /// Has other timers, capabilities and a smaller or larger number of registrations from now on. What bounds memory
    /// stays as it was made.
    Configure(Box<MihfConfig>),
    /// Sends a request or an indication. [`MihfEvent::Done`] says how it ended, exactly once.
    Send {
        /// The user's name for it; free again with [`MihfEvent::Done`].
        token: u64,
        /// To whom; an indication, or Capability_Discover, may go to [`MihfId::multicast`], if that has been named as a
        /// peer. The first who answers such a request is its answer.
        to: MihfId,
        /// What.
        message: MihfMessage,
    },
    /// Answers [`MihfEvent::Request`].
    Respond {
        /// The request.
        transaction: IncomingRequestId,
        /// The response, of the request's service and action, with at least one parameter.
        message: MihfMessage,
    },
    /// Ends what was sent under this token: nothing more is sent or said of it, no [`MihfEvent::Done`] either.
    Abandon {
        /// The token of [`MihfCommand::Send`].
        token: u64,
    },
}

/// What an MIH function has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihfEvent {
    /// An indication came.
    Indication {
        /// Whose.
        from: MihfId,
        /// What.
        message: MihfMessage,
    },
    /// A request came; it wants [`MihfCommand::Respond`].
    Request {
        /// Whose.
        from: MihfId,
        /// Its name for the response.
        transaction: IncomingRequestId,
        /// What.
        message: MihfMessage,
    },
    /// What was sent has come to its end.
    Done {
        /// The token of [`MihfCommand::Send`].
        token: u64,
        /// The response to a request, whatever its status. Nothing for an indication, which ends when it
        /// is acknowledged, or at once where no acknowledgement is asked for.
        result: Result<Option<MihfMessage>, TransactionError>,
    },
    /// A function has answered Capability_Discover that went to whoever hears it; [`MihfEvent::Done`] follows with the answer.
    Discovered {
        /// The token of [`MihfCommand::Send`].
        token: u64,
        /// Who.
        peer: MihfId,
    },
    /// Another function has registered here.
    Registered {
        /// Who.
        peer: MihfId,
    },
    /// Another function is registered no more: it has ended its registration, its time is over, another address has taken
    /// its place, or the user has named it at another address. What the user keeps of it is to end with that.
    Deregistered {
        /// Who.
        peer: MihfId,
    },
    /// Another function's address has proved itself and is its address from now on: the one before does not answer.
    AddressReplaced {
        /// Whose.
        peer: MihfId,
        /// Where it was known.
        before: IpAddr,
        /// Where it is.
        address: SocketAddr,
    },
    /// Somebody spoke under an identifier that is another address's. Said once in 10 s at most.
    ClaimRefused {
        /// The identifier.
        peer: MihfId,
        /// From where.
        address: SocketAddr,
    },
    /// Another function wants to hear of events.
    Subscribed {
        /// Who.
        peer: MihfId,
        /// Of which link.
        link: LinkTupleId,
        /// Which, of those that it asked for: what [`MihfCapabilities`] have, or all if they name none.
        events: EventList,
        /// When, where it said so.
        configs: Vec<EventConfig>,
    },
    /// Another function wants to hear no more of events.
    Unsubscribed {
        /// Who.
        peer: MihfId,
        /// Of which link.
        link: LinkTupleId,
        /// Which.
        events: EventList,
    },
}

/// Why nothing came of what was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum TransactionError {
    /// It was not acknowledged after all retransmissions.
    #[error("no acknowledgement")]
    NoAcknowledgement,
    /// No response came in time.
    #[error("no response")]
    NoResponse,
    /// The peer is not known, or not heard of for too long.
    #[error("no route")]
    NoRoute,
    /// Its connection did not come up, or ended before the response came; no MIH acknowledgement was asked for, nor is it
    /// sent again for want of a response.
    #[error("no connection")]
    Transport,
}

/// An MIH function; see the [module](self).
#[derive(Debug)]
pub struct Mihf {
    config: MihfConfig,
    rng: ModelRng,
    net: NetSap,
    peers: PeerTable,
    table: TransactionTable,
    by_token: HashMap<u64, u64>,
    claims: ClaimTable,
    reassembly: FragmentReassembler,
    effects: Vec<TransactionEffect>,
    indications: VecDeque<TransportIndication>,
    work: WorkMeter,
    counters: MihfCounters,
}

impl Mihf {
    /// A function with these settings. Where each peer's transaction identifiers begin is drawn from `rng`.
    #[must_use]
    pub fn new(config: MihfConfig, mut rng: ModelRng) -> Self {
        let mut state = || HashState::with_seed(rng.next_u64());
        let limits = ReassemblyLimits {
            octets: config.max_reassembled,
            messages: config.max_incomplete,
            reassembly_timeout: config.reassembly_timeout,
        };
        Self {
            net: NetSap::new(&config),
            peers: PeerTable::new(state()),
            table: TransactionTable::new(config.max_transactions, config.lifetime, state()),
            by_token: HashMap::with_hasher(state()),
            claims: ClaimTable::default(),
            reassembly: FragmentReassembler::new(limits),
            effects: Vec::new(),
            indications: VecDeque::new(),
            work: WorkMeter::default(),
            counters: MihfCounters::default(),
            config,
            rng,
        }
    }
    /// Who it is.
    #[must_use]
    pub const fn id(&self) -> &MihfId {
        &self.config.id
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &MihfCounters {
        &self.counters
    }
    /// From where a function was last heard, as long as anything is remembered of it: while its request or indication is
    /// given to the user, where that came from.
    #[must_use]
    pub fn last_source_address(&self, id: &MihfId) -> Option<SocketAddr> {
        let entry = self.peers.get(self.peers.find(id)?)?;
        self.net.remote_address(entry.last_reply_path?)
    }
    /// Whether a function is registered here.
    #[must_use]
    pub fn is_registered(&self, id: &MihfId) -> bool {
        self.peers.find(id).and_then(|peer| self.peers.get(peer)).is_some_and(PeerEntry::is_registered)
    }
    /// Transactions in memory when something last happened: those under way and those that are remembered.
    #[must_use]
    pub fn transaction_count(&self) -> usize {
        self.table.len()
    }
    /// The most transactions that were in memory at once.
    #[must_use]
    pub const fn peak_transactions(&self) -> usize {
        self.table.peak_count()
    }

    /// Changes a transaction's machines, then does what they want done.
    fn step_transaction(
        &mut self,
        now: Instant,
        token: u64,
        change: impl FnOnce(&mut TransactionMachines, &mut Vec<TransactionEffect>),
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
        if self.table.get(token).is_some_and(Transaction::is_worthless) {
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
                if let Some(wait) = timing.response.filter(|_| timing.unanswered != UnansweredPolicy::Wait) {
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

    /// The source or the destination machine has come to its end.
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
        let worthless = transaction.is_worthless();
        self.net.release_transaction(token);
        if !worthless {
            self.table.retain_ended(now, token);
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

    /// Room for one more transaction, if need be by forgetting one that has ended.
    fn ensure_capacity(&mut self) -> bool {
        while self.table.is_full() {
            let Some(token) = self.table.oldest_ended() else { return false };
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

    /// Ends the transactions whose message could not be handed to a transport, or was lost with its connection, and will
    /// not be sent again.
    fn fail_undelivered(&mut self, now: Instant) {
        while let Some(token) = self.net.poll_failed() {
            let Some(transaction) = self.table.get_mut(token) else { continue };
            let machines = &transaction.machines;
            let told = machines.variables.start_ack_requestor || transaction.will_be_resent();
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
                MessageEvent::Accepted { remote, streams, .. } | MessageEvent::Up { remote, streams } => {
                    self.net.handle_connected(assoc, TransportProtocol::Sctp, remote, streams);
                }
                MessageEvent::Data { data, .. } => {
                    self.net.touch_association(assoc);
                    self.receive_packet(now, ReplyPath::Connection(assoc), data);
                }
                MessageEvent::Down(_) => self.release_connection(assoc),
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

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
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
    /// True while the request goes out once more if no response comes.
    fn will_be_resent(&self) -> bool {
        let variables = &self.machines.variables;
        self.timing.response.is_some() && variables.resends < variables.resends_max
    }
    /// True for an ended transaction that nothing can come for any more: a sent indication without ACK-Req.
    fn is_worthless(&self) -> bool {
        self.user.is_some()
            && !self.machines.is_open()
            && self.id.opcode == Opcode::Indication
            && !self.machines.variables.start_ack_requestor
    }
}
