//! The transactions in memory: pending ones, and ended ones that are remembered.

use super::{TransactionError, TransactionTimerConfig};
use crate::net::{Pdu, ReplyPath};
use crate::transaction::TransactionStateMachines;
use crate::{MessageId, MihfMessage, Status, TransactionId};
use alloc::collections::VecDeque;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::table::SessionTable;
use usher_core::timer::{TimerQueue, TimerTable};
use usher_core::{Duration, Instant};

/// The timers of a transaction. Timers due at the same time run in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionTimer {
    /// RetransmissionWhen.
    Retransmission,
    /// The wait for a response.
    Response,
    /// TransactionStopWhen.
    Stop,
    /// The wait for a response that can carry the acknowledgement.
    Ack,
}

const TIMERS: [TransactionTimer; 4] = [
    TransactionTimer::Retransmission,
    TransactionTimer::Response,
    TransactionTimer::Stop,
    TransactionTimer::Ack,
];

/// Identifies a transaction by the fields of its messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct TransactionKey(u64);

impl TransactionKey {
    /// Returns the key of an own transaction.
    pub(super) fn for_source(peer: u32, tid: TransactionId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16)
    }
    /// Returns the key of a transaction that a peer began with this message.
    pub(super) fn for_destination(peer: u32, tid: TransactionId, id: MessageId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16 | u64::from(id.to_bits()))
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) machines: TransactionStateMachines,
    pub(super) key: TransactionKey,
    pub(super) peer: u32,
    /// The identifier of its first message.
    pub(super) id: MessageId,
    pub(super) tid: TransactionId,
    pub(super) timing: TransactionTimerConfig,
    /// The user's token, if this MIHF is the source.
    pub(super) user: Option<u64>,
    /// The path of the latest message, and the peer's count of route changes at that time.
    pub(super) last_reply_path: Option<(ReplyPath, u32)>,
    /// MsgOut, and DUP.
    pub(super) out: Option<Pdu>,
    /// MsgIn.
    pub(super) inbox: Option<MihfMessage>,
    /// The status of the response if the request could not be decoded.
    pub(super) refusal: Option<Status>,
    /// Why it failed, if the variables do not tell.
    pub(super) failure: Option<TransactionError>,
    pub(super) timers: TimerTable<4>,
    armed: Option<Instant>,
}

impl Transaction {
    pub(super) fn new(
        machines: TransactionStateMachines,
        key: TransactionKey,
        peer: u32,
        id: MessageId,
        tid: TransactionId,
    ) -> Self {
        Self {
            machines,
            key,
            peer,
            id,
            tid,
            timing: TransactionTimerConfig::default(),
            user: None,
            last_reply_path: None,
            out: None,
            inbox: None,
            refusal: None,
            failure: None,
            timers: TimerTable::default(),
            armed: None,
        }
    }
}

/// All transactions.
#[derive(Debug)]
pub(super) struct TransactionTable {
    transactions: SessionTable<Transaction>,
    by_key: HashMap<TransactionKey, u64>,
    timers: TimerQueue<u64>,
    /// Ended transactions in the order of their ends. It can contain removed ones.
    ended_transactions: VecDeque<(Instant, u64)>,
    lifetime: Duration,
    limit: usize,
    most: usize,
}

impl TransactionTable {
    pub(super) fn new(limit: usize, lifetime: Duration, state: SeededHashState) -> Self {
        Self {
            transactions: SessionTable::new(),
            by_key: HashMap::with_hasher(state),
            timers: TimerQueue::new(),
            ended_transactions: VecDeque::new(),
            lifetime,
            limit: limit.max(1),
            most: 0,
        }
    }
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }
    pub(super) const fn peak_count(&self) -> usize {
        self.most
    }
    pub(super) fn is_full(&self) -> bool {
        self.transactions.len() >= self.limit
    }
    pub(super) fn insert(&mut self, now: Instant, transaction: Transaction) -> u64 {
        let key = transaction.key;
        let token = self.transactions.insert(now, transaction);
        self.by_key.insert(key, token);
        self.most = self.most.max(self.transactions.len());
        token
    }
    pub(super) fn find(&self, key: TransactionKey) -> Option<u64> {
        self.by_key.get(&key).copied()
    }
    pub(super) fn get(&self, token: u64) -> Option<&Transaction> {
        self.transactions.get(token)
    }
    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Transaction> {
        self.transactions.get_mut(token)
    }
    pub(super) fn remove(&mut self, token: u64) -> Option<Transaction> {
        let gone = self.transactions.remove(token)?;
        self.by_key.remove(&gone.key);
        if let Some(at) = gone.armed {
            self.timers.remove(at, token);
        }
        Some(gone)
    }
    /// Starts the memory time of an ended transaction.
    pub(super) fn queue_ended_transaction(&mut self, now: Instant, token: u64) {
        // A transaction that was evicted early leaves a stale entry in the queue. With a long lifetime these would pile
        // up, so they are removed.
        if self.ended_transactions.len() >= 2 * self.limit.saturating_add(32) {
            self.ended_transactions.retain(|(_, token)| self.transactions.get(*token).is_some());
        }
        self.ended_transactions.push_back((now, token));
    }
    /// Returns the length of the queue of ended transactions.
    #[cfg(test)]
    pub(super) fn ended_count(&self) -> usize {
        self.ended_transactions.len()
    }
    /// Removes and returns a transaction whose memory time is over.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<u64> {
        loop {
            let &(at, token) = self.ended_transactions.front()?;
            if now.duration_since(at) < self.lifetime {
                return None;
            }
            self.ended_transactions.pop_front();
            if self.transactions.get(token).is_some() {
                return Some(token);
            }
        }
    }
    /// Returns the transaction that ended first.
    pub(super) fn pop_oldest_ended_transaction(&mut self) -> Option<u64> {
        loop {
            let (_, token) = self.ended_transactions.pop_front()?;
            if self.transactions.get(token).is_some() {
                return Some(token);
            }
        }
    }
    /// Updates the deadline after a change of a transaction's timers.
    pub(super) fn rearm_timers(&mut self, token: u64) {
        let Some(transaction) = self.transactions.get_mut(token) else { return };
        let next = transaction.timers.next_deadline();
        if next != transaction.armed {
            if let Some(at) = transaction.armed {
                self.timers.remove(at, token);
            }
            if let Some(at) = next {
                self.timers.insert(at, token);
            }
            transaction.armed = next;
        }
    }
    /// Returns when the next timer is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
    /// Stops and returns a timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u64, TransactionTimer)> {
        loop {
            let (_, token) = self.timers.pop_due(now)?;
            if let Some(transaction) = self.transactions.get_mut(token) {
                transaction.armed = None;
                let due = transaction.timers.pop_due(now);
                self.rearm_timers(token);
                if let Some(timer) = due {
                    return Some((token, TIMERS[timer]));
                }
            }
        }
    }
}
