//! The queue of changes, and the batch that is being written.

use super::session::{ADMIN_REBOOT, NAS_REBOOT, SessionState};
use super::{AccountingStatusType, BatchWriteOutcome, CommitReport, Ledger};
use crate::store::{Store, StoreChange, StoreError};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::WallTime;

/// Value of [`super::session::LedgerSession::wait`] if the store refused the session.
pub(super) const REFUSED: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) enum QueuedLedgerChange {
    /// The session in this slot.
    Session(u32),
    /// A restart or shutdown of a NAS. `shared`: other NASs have its address, so each ended session is written by
    /// itself before this.
    Restart { nas: IpAddr, restarted_at: WallTime, status: AccountingStatusType, shared: bool },
}

#[derive(Clone, Debug)]
pub(super) struct NumberedLedgerChange {
    number: u64,
    change: QueuedLedgerChange,
}

/// Changes ordered by number.
#[derive(Debug, Default)]
pub(super) struct LedgerChangeQueue {
    last: u64,
    waiting: VecDeque<NumberedLedgerChange>,
    flying: VecDeque<NumberedLedgerChange>,
    restarts: usize,
}

impl LedgerChangeQueue {
    pub(super) fn push(&mut self, what: QueuedLedgerChange) -> u64 {
        self.last += 1;
        self.restarts += usize::from(matches!(what, QueuedLedgerChange::Restart { .. }));
        self.waiting.push_back(NumberedLedgerChange { number: self.last, change: what });
        self.last
    }
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.flying.len()
    }
    /// Number of restarts that are not durable.
    pub(super) const fn unwritten_restart_count(&self) -> usize {
        self.restarts
    }
}

impl Ledger {
    /// Number of changes that are not durable.
    #[must_use]
    pub fn unwritten_change_count(&self) -> usize {
        self.queue.len()
    }
    /// Queues a session, and returns the number of the write with its current state.
    pub(super) fn enqueue_session(&mut self, slot: u32) -> u64 {
        match self.table.get(slot) {
            Some(session) if session.queued => session.wait,
            _ => self.enqueue_session_at_end(slot),
        }
    }
    /// Queues a session like [`Self::enqueue_session`], but after all queued changes.
    pub(super) fn enqueue_session_at_end(&mut self, slot: u32) -> u64 {
        let number = self.queue.push(QueuedLedgerChange::Session(slot));
        if let Some(session) = self.table.get_mut(slot) {
            (session.wait, session.queued) = (number, true);
            session.pending += 1;
        }
        number
    }

    /// Appends at most `most` queued changes in order, and returns the number up to which they make everything
    /// durable. `None`: the queue is empty, or a batch is not finished.
    pub fn take_store_changes(&mut self, out: &mut Vec<StoreChange>, most: usize) -> Option<u64> {
        if !self.queue.flying.is_empty() {
            return None;
        }
        while self.queue.flying.len() < most.max(1) {
            let Some(item) = self.queue.waiting.pop_front() else { break };
            match &item.change {
                QueuedLedgerChange::Session(slot) => {
                    if let Some(session) = self.table.get_mut(*slot) {
                        session.queued &= session.wait != item.number;
                        out.push(StoreChange::Session(session.to_row().into()));
                    }
                }
                QueuedLedgerChange::Restart { shared: true, .. } => {}
                QueuedLedgerChange::Restart { nas, restarted_at: at, status, shared: false } => {
                    let cause = if *status == AccountingStatusType::On { NAS_REBOOT } else { ADMIN_REBOOT };
                    out.push(StoreChange::NasRestarted { nas: *nas, restarted_at: *at, cause: cause.into() });
                }
            }
            self.queue.flying.push_back(item);
        }
        self.queue.flying.back().map(|item| item.number)
    }

    /// Applies the result of the last batch of [`Self::take_store_changes`].
    pub fn finish_batch(&mut self, settled: BatchWriteOutcome) {
        let mut flying = core::mem::take(&mut self.queue.flying);
        while let Some(item) =
            if settled == BatchWriteOutcome::Failed { flying.pop_back() } else { flying.pop_front() }
        {
            if settled == BatchWriteOutcome::Failed {
                self.put_back(item);
            } else {
                self.apply_change_result(&item, settled == BatchWriteOutcome::Durable);
            }
        }
        self.queue.flying = flying;
    }
    fn put_back(&mut self, item: NumberedLedgerChange) {
        if let QueuedLedgerChange::Session(slot) = item.change
            && let Some(session) = self.table.get_mut(slot)
        {
            session.queued |= session.wait == item.number;
        }
        self.queue.waiting.push_front(item);
    }
    fn apply_change_result(&mut self, item: &NumberedLedgerChange, durable: bool) {
        match &item.change {
            QueuedLedgerChange::Session(slot) => {
                let Some(session) = self.table.get_mut(*slot) else { return };
                session.pending = session.pending.saturating_sub(1);
                if session.wait == item.number {
                    session.wait = if durable { 0 } else { REFUSED };
                }
                self.free_ended_slot(*slot);
            }
            QueuedLedgerChange::Restart { nas, status, .. } => {
                self.queue.restarts = self.queue.restarts.saturating_sub(1);
                let restart = self.restarts.get_mut(*nas, *status);
                if let Some(restart) = restart.filter(|r| r.wait == item.number) {
                    restart.wait = if durable { 0 } else { REFUSED };
                }
            }
        }
    }
    /// Frees the slot of an ended session once no change of it is queued.
    pub(super) fn free_ended_slot(&mut self, slot: u32) {
        let Some(session) = self.table.get(slot) else { return };
        let (durable, key) = (session.wait == 0, session.unique.session_digest());
        if session.end_state == SessionState::Open
            || session.pending > 0
            || !(durable || session.wait == REFUSED)
        {
            return;
        }
        let known_by_key = self.table.find_slot(&key) == Some(slot);
        if let Some(session) = self.table.remove(slot)
            && known_by_key
            && durable
        {
            self.past.insert(
                key,
                super::ended_sessions::StoredSessionLookup::Ended(
                    super::ended_sessions::EndedSession::from_session(&session),
                ),
            );
        }
    }

    /// Writes at most `most` queued changes by one [`Store::write_changes`]. If the store refuses one, it is
    /// written in several parts, so that the others become durable. Then answer the waiting records by
    /// [`CommitReport::record_durability`].
    pub fn commit_changes(&mut self, store: &mut dyn Store, most: usize) -> CommitReport {
        let mut commit = CommitReport::default();
        let mut batch = Vec::new();
        let Some(through) = self.take_store_changes(&mut batch, most) else { return commit };
        let items = self.queue.flying.len();
        match store.write_changes(&batch) {
            Ok(()) => {
                self.finish_batch(BatchWriteOutcome::Durable);
                commit.last_number = Some(through);
                commit.written = batch.len();
            }
            Err(error @ StoreError::Unavailable(_)) => {
                self.finish_batch(BatchWriteOutcome::Failed);
                commit.error = Some(error);
            }
            Err(StoreError::Refused(_) | StoreError::Unstorable(_)) => {
                self.finish_batch(BatchWriteOutcome::Failed);
                self.commit_in_smaller_parts(store, items, &mut commit);
            }
        }
        commit
    }
    /// Writes `items` changes in parts. A refused part is halved; after a success the next part has twice the
    /// length. So a refused change costs a few writes, not one for each change of its batch.
    fn commit_in_smaller_parts(&mut self, store: &mut dyn Store, items: usize, commit: &mut CommitReport) {
        let mut part = Vec::new();
        let (mut left, mut most) = (items, items / 2);
        while left > 0 {
            part.clear();
            most = most.clamp(1, left);
            let Some(number) = self.take_store_changes(&mut part, most) else { return };
            let taken = self.queue.flying.len();
            match store.write_changes(&part) {
                Ok(()) => {
                    self.finish_batch(BatchWriteOutcome::Durable);
                    commit.written += part.len();
                    most *= 2;
                }
                Err(StoreError::Refused(_) | StoreError::Unstorable(_)) if most > 1 => {
                    self.finish_batch(BatchWriteOutcome::Failed);
                    most /= 2;
                    continue;
                }
                Err(error @ (StoreError::Refused(_) | StoreError::Unstorable(_))) => {
                    self.finish_batch(BatchWriteOutcome::Refused);
                    self.counters.refused += 1;
                    commit.refused.push(number);
                    commit.error = Some(error);
                }
                Err(error @ StoreError::Unavailable(_)) => {
                    self.finish_batch(BatchWriteOutcome::Failed);
                    commit.error = Some(error);
                    return;
                }
            }
            commit.last_number = Some(number);
            left -= taken;
        }
    }
}
