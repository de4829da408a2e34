//! The transactions in memory: those under way and those that have ended and are remembered.

use super::{TransactionError, TransactionTiming};
use crate::net::{Pdu, ReplyPath};
use crate::transaction::TransactionMachines;
use crate::{MessageId, MihfMessage, Status, TransactionId};
use alloc::collections::VecDeque;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::timer::{TimerQueue, TimerTable};
use usher_core::{Duration, Instant};

/// The timers of a transaction; what is due at one time is done in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionTimer {
    /// RetransmissionWhen.
    Retransmission,
    /// How long a response is waited for.
    Response,
    /// TransactionStopWhen.
    Stop,
    /// How long an answer is waited for that could carry the acknowledgement.
    Ack,
}

const TIMERS: [TransactionTimer; 4] = [
    TransactionTimer::Retransmission,
    TransactionTimer::Response,
    TransactionTimer::Stop,
    TransactionTimer::Ack,
];

/// Names a transaction by what messages say of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct TransactionKey(u64);

impl TransactionKey {
    /// One that we began.
    pub(super) fn for_source(peer: u32, tid: TransactionId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16)
    }
    /// One that a peer began with this message.
    pub(super) fn for_destination(peer: u32, tid: TransactionId, id: MessageId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16 | u64::from(id.to_bits()))
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) machines: TransactionMachines,
    pub(super) key: TransactionKey,
    pub(super) peer: u32,
    /// The message that began it.
    pub(super) id: MessageId,
    pub(super) tid: TransactionId,
    pub(super) timing: TransactionTiming,
    /// The user's token, where we are the source.
    pub(super) user: Option<u64>,
    /// By which way its last message came, and the peer's changes of route by then.
    pub(super) last_reply_path: Option<(ReplyPath, u32)>,
    /// MsgOut, and DUP.
    pub(super) out: Option<Pdu>,
    /// MsgIn.
    pub(super) inbox: Option<MihfMessage>,
    /// The status that answers a request which could not be read.
    pub(super) refusal: Option<Status>,
    /// Why it failed, where its variables do not say.
    pub(super) failure: Option<TransactionError>,
    pub(super) timers: TimerTable<4>,
    armed: Option<Instant>,
}

impl Transaction {
    pub(super) fn new(
        machines: TransactionMachines,
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
            timing: TransactionTiming::default(),
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

/// All of them.
#[derive(Debug)]
pub(super) struct TransactionTable {
    transactions: SessionTable<Transaction>,
    by_key: HashMap<TransactionKey, u64>,
    timers: TimerQueue<u64>,
    /// Those that have ended, in that order; some may be gone.
    ended_transactions: VecDeque<(Instant, u64)>,
    lifetime: Duration,
    limit: usize,
    most: usize,
}

impl TransactionTable {
    pub(super) fn new(limit: usize, lifetime: Duration, state: HashState) -> Self {
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
    /// Begins the memory of a transaction that has ended.
    pub(super) fn retain_ended(&mut self, now: Instant, token: u64) {
        // Those that went before their time leave their places, which a long lifetime would keep.
        if self.ended_transactions.len() >= 2 * self.limit.saturating_add(32) {
            self.ended_transactions.retain(|(_, token)| self.transactions.get(*token).is_some());
        }
        self.ended_transactions.push_back((now, token));
    }
    /// Places in the queue of those that have ended.
    #[cfg(test)]
    pub(super) fn ended_count(&self) -> usize {
        self.ended_transactions.len()
    }
    /// One whose memory is over.
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
    /// The one that ended first.
    pub(super) fn oldest_ended(&mut self) -> Option<u64> {
        loop {
            let (_, token) = self.ended_transactions.pop_front()?;
            if self.transactions.get(token).is_some() {
                return Some(token);
            }
        }
    }
    /// After a change of a transaction's timers.
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
    /// When the next timer is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
    /// Stops and names a timer that is due.
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
