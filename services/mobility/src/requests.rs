//! Requests in processing: each is acted upon after a time.

use alloc::collections::BTreeMap;
use usher_core::Instant;
use usher_core::timer::TimerQueue;
use usher_mih::{Incoming, Message, MihfId};

/// A request that came and was not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Who asks.
    pub(crate) from: MihfId,
    /// How the answer is addressed.
    pub(crate) transaction: Incoming,
    /// What is asked.
    pub(crate) message: Message,
}

/// Requests by the time at which they are acted upon; those of one time in the order in which they came.
#[derive(Debug)]
pub(crate) struct Requests {
    most: usize,
    next: u64,
    due: TimerQueue<u64>,
    held: BTreeMap<u64, Request>,
}

impl Requests {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, next: 0, due: TimerQueue::new(), held: BTreeMap::new() }
    }
    /// Keeps a request until `at`; gives it back where there are too many.
    pub(crate) fn push(&mut self, at: Instant, request: Request) -> Result<(), Request> {
        if self.held.len() >= self.most {
            return Err(request);
        }
        self.due.insert(at, self.next);
        self.held.insert(self.next, request);
        self.next += 1;
        Ok(())
    }
    /// The next request whose time has come.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Request> {
        let (_, key) = self.due.pop_due(now)?;
        self.held.remove(&key)
    }
    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.next()
    }
}
