//! Silence explained: what was dropped since the last look is logged, once in ten seconds.

use crate::stats::Snapshot;
use std::collections::BTreeMap;

/// Looks, one a second, between two that count.
const EVERY: u32 = 10;

/// What an operator can do about a drop.
const HINTS: [(&str, &str); 6] = [
    ("unknown_client", "no [[client]] has the sender's address"),
    ("missing_message_authenticator", "an old client; see message_authenticator of [[client]]"),
    ("bad_message_authenticator", "the shared secrets differ"),
    ("bad_authenticator", "the shared secrets differ"),
    ("wrong_code", "accounting to the authentication port, or the other way"),
    ("malformed", "not RADIUS"),
];

/// What was seen at the last look.
#[derive(Default)]
pub(crate) struct Drops {
    looks: u32,
    seen: BTreeMap<&'static str, u64>,
}

impl Drops {
    /// Whether it is time to look; to be called once a second.
    pub(crate) fn due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(EVERY)
    }

    /// Compares with the last look.
    pub(crate) fn look(&mut self, all: &Snapshot) {
        for (kind, hint) in HINTS {
            let now = all.counters.get(&("radius", kind)).copied().unwrap_or(0);
            let before = self.seen.insert(kind, now).unwrap_or(0);
            if now > before {
                tracing::warn!(kind, packets = now - before, hint, "requests are dropped without an answer");
            }
        }
    }
}
