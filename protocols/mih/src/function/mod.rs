//! The MIH function (MIHF): transactions, peers and transports as one [`Machine`].
//!
//! A host binds UDP socket 0 to port [`PORT`], and further sockets for further local addresses of the
//! [routes](Route) (socket k for the k-th address in the order of the [`Command::Peer`]s that named it; no address in
//! particular is the first socket's; [`Config::locals`] are before them all); it listens on the same port for TCP and SCTP where peers use them. Users
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
//! An ended transaction is remembered for [`Config::lifetime`], so that a message that comes again is
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

pub use crate::counters::Counters;
pub use claims::AddressProofs;
pub use config::{Capabilities, Config, PORT, Peer, Route, Timing, Unanswered};

use crate::fragment::{Limits, Reassembly};
use crate::net::{Indication, Net, Way};
use crate::transaction::{Effect, Machines, Status};
use crate::{EventConfig, EventList, LinkTupleId, Message, MihfId, Opcode};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use claims::ClaimTable;
use core::net::{IpAddr, SocketAddr};
use peers::{Entry, Peers};
use table::{Table, Timer, Transaction};
use usher_core::collections::{HashMap, HashState};
use usher_core::timer::earliest;
use usher_core::{
    CommandError, Input, Instant, Machine, MessageEvent, NoJob, Output, OutputOf, Rng, StreamEvent,
    TransportProtocol,
};
use work::WorkMeter;

/// Names a request of another function until it is answered; for [`Command::Respond`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incoming(u64);

/// What a user asks of an MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Names a peer, or changes its route: transactions that are under way go on by the new one.
    Peer(Peer),
    /// Names a peer no more: it is as one that nobody named from now on.
    Unname(MihfId),
    /// Has other timers, capabilities and a smaller or larger number of registrations from now on. What bounds memory
    /// stays as it was made.
    Configure(Box<Config>),
    /// Sends a request or an indication. [`Event::Done`] says how it ended, exactly once.
    Send {
        /// The user's name for it; free again with [`Event::Done`].
        token: u64,
        /// To whom; an indication, or Capability_Discover, may go to [`MihfId::multicast`], if that has been named as a
        /// peer. The first who answers such a request is its answer.
        to: MihfId,
        /// What.
        message: Message,
    },
    /// Answers [`Event::Request`].
    Respond {
        /// The request.
        transaction: Incoming,
        /// The response, of the request's service and action, with at least one parameter.
        message: Message,
    },
    /// Ends what was sent under this token: nothing more is sent or said of it, no [`Event::Done`] either.
    Abandon {
        /// The token of [`Command::Send`].
        token: u64,
    },
}

/// What an MIH function has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An indication came.
    Indication {
        /// Whose.
        from: MihfId,
        /// What.
        message: Message,
    },
    /// A request came; it wants [`Command::Respond`].
    Request {
        /// Whose.
        from: MihfId,
        /// Its name for the response.
        transaction: Incoming,
        /// What.
        message: Message,
    },
    /// What was sent has come to its end.
    Done {
        /// The token of [`Command::Send`].
        token: u64,
        /// The response to a request, whatever its status. Nothing for an indication, which ends when it
        /// is acknowledged, or at once where no acknowledgement is asked for.
        result: Result<Option<Message>, Failure>,
    },
    /// A function has answered Capability_Discover that went to whoever hears it; [`Event::Done`] follows with the answer.
    Discovered {
        /// The token of [`Command::Send`].
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
        /// Which, of those that it asked for: what [`Capabilities`] have, or all if they name none.
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
pub enum Failure {
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
    config: Config,
    rng: Rng,
    net: Net,
    peers: Peers,
    table: Table,
    by_token: HashMap<u64, u64>,
    claims: ClaimTable,
    reassembly: Reassembly,
    effects: Vec<Effect>,
    indications: VecDeque<Indication>,
    work: WorkMeter,
    counters: Counters,
}

impl Mihf {
    /// A function with these settings. Where each peer's transaction identifiers begin is drawn from `rng`.
    #[must_use]
    pub fn new(config: Config, mut rng: Rng) -> Self {
        let mut state = || HashState::with_seed(rng.next_u64());
        let limits = Limits {
            octets: config.max_reassembled,
            messages: config.max_incomplete,
            patience: config.patience,
        };
        Self {
            net: Net::new(&config),
            peers: Peers::new(state()),
            table: Table::new(config.max_transactions, config.lifetime, state()),
            by_token: HashMap::with_hasher(state()),
            claims: ClaimTable::default(),
            reassembly: Reassembly::new(limits),
            effects: Vec::new(),
            indications: VecDeque::new(),
            work: WorkMeter::default(),
            counters: Counters::default(),
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
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// From where a function was last heard, as long as anything is remembered of it: while its request or indication is
    /// given to the user, where that came from.
    #[must_use]
    pub fn heard_from(&self, id: &MihfId) -> Option<SocketAddr> {
        let entry = self.peers.get(self.peers.find(id)?)?;
        self.net.remote(entry.way?)
    }
    /// Whether a function is registered here.
    #[must_use]
    pub fn is_registered(&self, id: &MihfId) -> bool {
        self.peers.find(id).and_then(|peer| self.peers.get(peer)).is_some_and(Entry::is_registered)
    }
    /// Transactions in memory when something last happened: those under way and those that are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.table.len()
    }
    /// The most transactions that were in memory at once.
    #[must_use]
    pub const fn most_remembered(&self) -> usize {
        self.table.most()
    }

    /// Changes a transaction's machines, then does what they want done.
    fn step(&mut self, now: Instant, token: u64, change: impl FnOnce(&mut Machines, &mut Vec<Effect>)) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        let mut effects = core::mem::take(&mut self.effects);
        change(&mut transaction.machines, &mut effects);
        let mut deliver = false;
        for effect in effects.drain(..) {
            deliver |= effect == Effect::ProcessMsgIn;
            self.apply(now, token, effect);
        }
        self.effects = effects;
        if self.table.get(token).is_some_and(Transaction::is_worthless) {
            self.forget(token);
            return;
        }
        self.table.rearm(token);
        if deliver {
            self.deliver(now, token);
        }
    }

    fn apply(&mut self, now: Instant, token: u64, effect: Effect) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        let timing = transaction.timing;
        match effect {
            Effect::StartTransactionTimer => {
                if let Some(life) = self.config.transaction {
                    transaction.timers.set(Timer::Stop as usize, now + life);
                }
            }
            Effect::StartRetransmissionTimer => {
                transaction.timers.set(Timer::Retransmission as usize, now + timing.retransmission);
            }
            Effect::StopRetransmissionTimer => transaction.timers.stop(Timer::Retransmission as usize),
            Effect::StartResponseTimer => {
                if let Some(wait) = timing.response.filter(|_| timing.unanswered != Unanswered::Wait) {
                    transaction.timers.set(Timer::Response as usize, now + wait);
                }
            }
            Effect::StartAckTimer => {
                if !transaction.machines.variables.ack_due {
                    transaction.timers.set(Timer::Ack as usize, now + self.config.ack_delay);
                }
            }
            Effect::TransmitMsgOut => {
                transaction.timers.stop(Timer::Ack as usize);
                let variables = &transaction.machines.variables;
                self.counters.messages += 1;
                self.counters.piggybacked += u64::from(variables.msg_out_ack_rsp);
                self.transmit(token);
            }
            Effect::RetransmitMsgOut => {
                self.counters.retransmissions += 1;
                self.transmit(token);
            }
            Effect::TransmitDup => {
                self.counters.repeated_responses += 1;
                self.transmit(token);
            }
            Effect::TransmitAck => {
                transaction.timers.stop(Timer::Ack as usize);
                self.acknowledge(token);
            }
            Effect::ProcessMsgIn => {}
            Effect::Ended(status) => self.ended(now, token, status),
        }
    }

    /// The source or the destination machine has come to its end.
    fn ended(&mut self, now: Instant, token: u64, status: Status) {
        let Some(transaction) = self.table.get_mut(token) else { return };
        for timer in [Timer::Retransmission, Timer::Response, Timer::Stop] {
            transaction.timers.stop(timer as usize);
        }
        let variables = &transaction.machines.variables;
        let unacknowledged =
            variables.start_ack_requestor && variables.ack_requestor_status != Status::Success;
        let failure = match transaction.failure.take() {
            Some(failure) => failure,
            None if unacknowledged => Failure::NoAcknowledgement,
            None => Failure::NoResponse,
        };
        let failed = status == Status::Failure && !variables.abandoned;
        match transaction.user {
            Some(user) => {
                self.by_token.remove(&user);
                if let Some(peer) = self.peers.get_mut(transaction.peer) {
                    peer.vacate(transaction.tid);
                }
                if failed {
                    match failure {
                        Failure::NoAcknowledgement => self.counters.gave_up += 1,
                        Failure::NoResponse => self.counters.unanswered += 1,
                        Failure::NoRoute | Failure::Transport => {}
                    }
                }
                if !variables.abandoned {
                    let result = if failed { Err(failure) } else { Ok(transaction.inbox.take()) };
                    self.net.outputs.event(Event::Done { token: user, result });
                }
            }
            None if failed && unacknowledged => self.counters.gave_up += 1,
            None if failed => self.counters.expired += 1,
            None => {}
        }
        let worthless = transaction.is_worthless();
        self.net.release(token);
        if !worthless {
            self.table.remember(now, token);
        }
    }

    fn forget(&mut self, token: u64) {
        if let Some(gone) = self.table.remove(token) {
            self.peers.release(gone.peer);
        }
    }

    fn purge(&mut self, now: Instant) {
        while let Some(token) = self.table.outlived(now) {
            self.forget(token);
        }
        while let Some(peer) = self.peers.expire_registration(now) {
            self.net.outputs.event(Event::Deregistered { peer });
        }
    }

    /// Room for one more transaction, if need be by forgetting one that has ended.
    fn room(&mut self) -> bool {
        while self.table.is_full() {
            let Some(token) = self.table.oldest_ended() else { return false };
            self.counters.forgotten_early += 1;
            self.forget(token);
        }
        true
    }

    fn expire(&mut self, now: Instant) {
        self.reassembly.handle_timeout(now);
        self.expire_claims(now);
        self.count_fragments();
        while let Some((token, timer)) = self.table.pop_due(now) {
            self.step(now, token, |machines, effects| {
                let variables = &mut machines.variables;
                match timer {
                    Timer::Retransmission => variables.retransmission_due = true,
                    Timer::Response => variables.response_due = true,
                    Timer::Stop => variables.transaction_stop = true,
                    Timer::Ack => variables.ack_due = true,
                }
                machines.run(effects);
            });
        }
    }

    /// Ends the transactions whose message could not be handed to a transport, or was lost with its connection, and will
    /// not be sent again.
    fn confirm(&mut self, now: Instant) {
        while let Some(token) = self.net.poll_failed() {
            let Some(transaction) = self.table.get_mut(token) else { continue };
            let machines = &transaction.machines;
            let told = machines.variables.start_ack_requestor || transaction.will_be_resent();
            if machines.is_open() && transaction.user.is_some() && !told {
                transaction.failure = Some(Failure::Transport);
                self.step(now, token, |machines, effects| {
                    machines.variables.transport_failed = true;
                    machines.run(effects);
                });
            }
        }
    }
}

impl Machine for Mihf {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.purge(now);
        match input {
            Input::Datagram { path, data } => self.packet(now, Way::Datagram(path), data),
            Input::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, .. } | StreamEvent::Connected { remote, .. } => {
                    self.net.up(conn, TransportProtocol::Tcp, remote, 1);
                }
                StreamEvent::Data(data) => {
                    let mut indications = core::mem::take(&mut self.indications);
                    let broken = self.net.stream(conn, data, &mut indications);
                    for indication in indications.drain(..) {
                        self.packet(now, indication.way, &indication.packet);
                    }
                    self.indications = indications;
                    if broken {
                        self.counters.broken_streams += 1;
                        self.lose(conn);
                    }
                }
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Closed(_) => self.lose(conn),
            },
            Input::Message { assoc, event } => match event {
                MessageEvent::Accepted { remote, streams, .. } | MessageEvent::Up { remote, streams } => {
                    self.net.up(assoc, TransportProtocol::Sctp, remote, streams);
                }
                MessageEvent::Data { data, .. } => {
                    self.net.message(assoc);
                    self.packet(now, Way::Connection(assoc), data);
                }
                MessageEvent::Down(_) => self.lose(assoc),
            },
            Input::Frame { .. } => {}
            Input::Timeout => self.expire(now),
        }
        self.confirm(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.purge(now);
        match command {
            Command::Peer(peer) => self.name(&peer),
            Command::Unname(id) => self.unname(&id),
            Command::Configure(config) => self.config = Config { id: self.config.id.clone(), ..*config },
            Command::Send { token, to, message } => self.send(now, token, &to, &message)?,
            Command::Respond { transaction, message } => self.respond(now, transaction, &message)?,
            Command::Abandon { token } => {
                let transaction = *self.by_token.get(&token).ok_or(CommandError::UnknownToken)?;
                self.step(now, transaction, |machines, effects| {
                    machines.variables.abandoned = true;
                    machines.run(effects);
                });
            }
        }
        self.confirm(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.net.outputs.poll(buf).or_else(|| self.work.poll().map(Output::Work))
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        earliest([
            self.table.next(),
            self.reassembly.poll_timeout(),
            self.claims.next(),
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
