//! Freshness of dynamic authorization requests and their replies (RFC 5176 §6.3).

use crate::attribute::kind;
use crate::packet::RadiusPacket;
use alloc::collections::{BTreeSet, VecDeque};
use usher_core::{Duration, Instant, WallTime};

/// The policy for Event-Timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventTimestampPolicy {
    /// The maximum distance from now, in either direction.
    pub window: Duration,
    /// True if a CoA-Request or Disconnect-Request without an Event-Timestamp is dropped.
    pub required: bool,
}

impl EventTimestampPolicy {
    /// Returns true if the Event-Timestamp of a packet is within the window; `None` if it has none.
    pub(crate) fn is_timestamp_in_window(&self, now: WallTime, packet: &RadiusPacket<'_>) -> Option<bool> {
        let at = <[u8; 4]>::try_from(packet.get(kind::EVENT_TIMESTAMP)?);
        let near = |at| now.unix_secs().abs_diff(u32::from_be_bytes(at).into()) <= self.window.as_secs();
        Some(at.is_ok_and(near))
    }
}

impl Default for EventTimestampPolicy {
    /// The window of 300 s of RFC 5176 §6.3; Event-Timestamp is optional.
    fn default() -> Self {
        Self { window: Duration::from_secs(300), required: false }
    }
}

/// The maximum number of remembered requests.
const MOST: usize = 65_536;

/// The authenticators of requests with a fresh Event-Timestamp. The same authenticator again, from any port, is a
/// replay (RFC 5176 §6.3).
#[derive(Debug, Default)]
pub(crate) struct RequestAuthenticatorCache {
    authenticators: BTreeSet<[u8; 16]>,
    /// In order of arrival, each with the time after which it is stale in any case.
    until: VecDeque<(Instant, [u8; 16])>,
}

impl RequestAuthenticatorCache {
    /// True if this authenticator is remembered.
    pub(crate) fn contains(&self, authenticator: &[u8; 16]) -> bool {
        self.authenticators.contains(authenticator)
    }
    /// Remembers an authenticator. Its Event-Timestamp may be as far ahead of now as behind.
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
