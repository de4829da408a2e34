//! The transactions in memory: those under way and those that have ended and are remembered.

use super::{Failure, Timing};
use crate::net::{Pdu, Way};
use crate::transaction::Machines;
use crate::{Message, MessageId, Status, TransactionId};
use alloc::collections::VecDeque;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::timer::{TimerQueue, TimerTable};
use usher_core::{Duration, Instant};

/// The timers of a transaction; what is due at one time is done in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// RetransmissionWhen.
    Retransmission,
    /// How long a response is waited for.
    Response,
    /// TransactionStopWhen.
    Stop,
    /// How long an answer is waited for that could carry the acknowledgement.
    Ack,
}

const TIMERS: [Timer; 4] = [Timer::Retransmission, Timer::Response, Timer::Stop, Timer::Ack];

/// Names a transaction by what messages say of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key(u64);

impl Key {
    /// One that we began.
    pub(super) fn source(peer: u32, tid: TransactionId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16)
    }
    /// One that a peer began with this message.
    pub(super) fn destination(peer: u32, tid: TransactionId, id: MessageId) -> Self {
        Self(u64::from(peer) << 32 | u64::from(tid.get()) << 16 | u64::from(id.bits()))
    }
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) machines: Machines,
    pub(super) key: Key,
    pub(super) peer: u32,
    /// The message that began it.
    pub(super) id: MessageId,
    pub(super) tid: TransactionId,
    pub(super) timing: Timing,
    /// The user's token, where we are the source.
    pub(super) user: Option<u64>,
    /// By which way its last message came, and the peer's changes of route by then.
    pub(super) way: Option<(Way, u32)>,
    /// MsgOut, and DUP.
    pub(super) out: Option<Pdu>,
    /// MsgIn.
    pub(super) inbox: Option<Message>,
    /// The status that answers a request which could not be read.
    pub(super) refusal: Option<Status>,
    /// Why it failed, where its variables do not say.
    pub(super) failure: Option<Failure>,
    pub(super) timers: TimerTable<4>,
    armed: Option<Instant>,
}

impl Transaction {
    pub(super) fn new(machines: Machines, key: Key, peer: u32, id: MessageId, tid: TransactionId) -> Self {
        Self {
            machines,
            key,
            peer,
            id,
            tid,
            timing: Timing::default(),
            user: None,
            way: None,
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
pub(super) struct Table {
    transactions: SessionTable<Transaction>,
    by_key: HashMap<Key, u64>,
    timers: TimerQueue<u64>,
    /// Those that have ended, in that order; some may be gone.
    ended: VecDeque<(Instant, u64)>,
    lifetime: Duration,
    limit: usize,
    most: usize,
}

impl Table {
    pub(super) fn new(limit: usize, lifetime: Duration, state: HashState) -> Self {
        Self {
            transactions: SessionTable::new(),
            by_key: HashMap::with_hasher(state),
            timers: TimerQueue::new(),
            ended: VecDeque::new(),
            lifetime,
            limit: limit.max(1),
            most: 0,
        }
    }
    pub(super) fn len(&self) -> usize {
        self.transactions.len()
    }
    pub(super) const fn most(&self) -> usize {
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
    pub(super) fn find(&self, key: Key) -> Option<u64> {
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
    pub(super) fn remember(&mut self, now: Instant, token: u64) {
        // Those that went before their time leave their places, which a long lifetime would keep.
        if self.ended.len() >= 2 * self.limit.saturating_add(32) {
            self.ended.retain(|(_, token)| self.transactions.get(*token).is_some());
        }
        self.ended.push_back((now, token));
    }
    /// Places in the queue of those that have ended.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.ended.len()
    }
    /// One whose memory is over.
    pub(super) fn outlived(&mut self, now: Instant) -> Option<u64> {
        loop {
            let &(at, token) = self.ended.front()?;
            if now.since(at) < self.lifetime {
                return None;
            }
            self.ended.pop_front();
            if self.transactions.get(token).is_some() {
                return Some(token);
            }
        }
    }
    /// The one that ended first.
    pub(super) fn oldest_ended(&mut self) -> Option<u64> {
        loop {
            let (_, token) = self.ended.pop_front()?;
            if self.transactions.get(token).is_some() {
                return Some(token);
            }
        }
    }
    /// After a change of a transaction's timers.
    pub(super) fn rearm(&mut self, token: u64) {
        let Some(transaction) = self.transactions.get_mut(token) else { return };
        let next = transaction.timers.next();
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
    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }
    /// Stops and names a timer that is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(u64, Timer)> {
        loop {
            let (_, token) = self.timers.pop_due(now)?;
            if let Some(transaction) = self.transactions.get_mut(token) {
                transaction.armed = None;
                let due = transaction.timers.pop_due(now);
                self.rearm(token);
                if let Some(timer) = due {
                    return Some((token, TIMERS[timer]));
                }
            }
        }
    }
}
