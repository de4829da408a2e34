//! Delayed rejects.

use super::answer::RequestToken;
use alloc::collections::BTreeMap;
use usher_core::Instant;
use usher_radius::attribute::AttributeList;

/// A delayed reject: its request, the identifier of the EAP response that it answers, and its attributes.
pub(super) type DelayedReject = (RequestToken, Option<u8>, AttributeList);

/// Delayed rejects by due time, then by order of decision.
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
    /// Returns the time of the next reject.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }
    /// Removes the next reject that is due or that exceeds `most`. `true`: it is sent early.
    pub(super) fn pop(&mut self, now: Instant, most: usize) -> Option<(DelayedReject, bool)> {
        let due = self.next_due()? <= now;
        if !due && self.queue.len() <= most {
            return None;
        }
        self.queue.pop_first().map(|(_, reject)| (reject, !due))
    }
}
