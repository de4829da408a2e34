//! Rejects that are held back for a while.

use super::answer::RequestToken;
use alloc::collections::BTreeMap;
use usher_core::Instant;
use usher_radius::attribute::AttributeList;

/// A reject to come: for whom, the identifier of the EAP response that it answers, and what it says besides.
pub(super) type DelayedReject = (RequestToken, Option<u8>, AttributeList);

/// In the order in which they go out; of one time, in that in which they were decided.
#[derive(Debug, Default)]
pub(super) struct DelayedRejectQueue {
    queue: BTreeMap<(Instant, u64), DelayedReject>,
    decided: u64,
}

impl DelayedRejectQueue {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
    pub(super) fn push(&mut self, at: Instant, reject: DelayedReject) {
        self.decided += 1;
        self.queue.insert((at, self.decided), reject);
    }
    /// When the next goes out.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }
    /// The next, where its time has come or there are more than `most`; and whether it is early.
    pub(super) fn pop(&mut self, now: Instant, most: usize) -> Option<(DelayedReject, bool)> {
        let due = self.next_due()? <= now;
        if !due && self.queue.len() <= most {
            return None;
        }
        self.queue.pop_first().map(|(_, reject)| (reject, !due))
    }
}
