//! Whether what asks for a change of authorisation, or answers that, is of now (RFC 5176 §6.3).

use crate::attribute::kind;
use crate::packet::RadiusPacket;
use alloc::collections::{BTreeSet, VecDeque};
use usher_core::{Duration, Instant, WallTime};

/// What an Event-Timestamp must say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreshnessPolicy {
    /// How far it may be from now, either way.
    pub window: Duration,
    /// Whether a CoA-Request or Disconnect-Request without one is dropped.
    pub required: bool,
}

impl FreshnessPolicy {
    /// Whether a packet's Event-Timestamp is of now; `None`: it has none.
    pub(crate) fn check_timestamp(&self, now: WallTime, packet: &RadiusPacket<'_>) -> Option<bool> {
        let at = <[u8; 4]>::try_from(packet.get(kind::EVENT_TIMESTAMP)?);
        let near = |at| now.unix_secs().abs_diff(u32::from_be_bytes(at).into()) <= self.window.as_secs();
        Some(at.is_ok_and(near))
    }
}

impl Default for FreshnessPolicy {
    /// RFC 5176 §6.3's window of 300 s; an Event-Timestamp may be missing.
    fn default() -> Self {
        Self { window: Duration::from_secs(300), required: false }
    }
}

/// Requests for dynamic authorisation that are remembered at most.
const MOST: usize = 65_536;

/// The authenticators of requests that an Event-Timestamp made fresh: the same again, from whichever port, is a replay (RFC 5176 §6.3).
#[derive(Debug, Default)]
pub(crate) struct ReplayCache {
    authenticators: BTreeSet<[u8; 16]>,
    /// In the order in which they came, each until it is stale in any case.
    until: VecDeque<(Instant, [u8; 16])>,
}

impl ReplayCache {
    /// Whether there has been this one.
    pub(crate) fn contains(&self, authenticator: &[u8; 16]) -> bool {
        self.authenticators.contains(authenticator)
    }
    /// There is this one. It may be as far ahead of now as behind.
    pub(crate) fn insert(&mut self, now: Instant, authenticator: [u8; 16], window: Duration) {
        while let Some((until, old)) = self.until.front().copied()
            && (until <= now || self.until.len() >= MOST)
        {
            self.authenticators.remove(&old);
            self.until.pop_front();
        }
        if self.authenticators.insert(authenticator) {
            self.until.push_back((now + window * 2, authenticator));
        }
    }
}
