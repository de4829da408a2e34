//! Logs dropped packets with hints, at most once in ten seconds.

use crate::stats::ShardSnapshot;
use std::collections::BTreeMap;
use usher_radius::server::{DroppedPacketSource, LatestDropSources, RadiusServerCounters};

/// Seconds between two checks.
const EVERY: u32 = 10;

/// RADIUS counters of drops, each with a hint for the operator.
macro_rules! hints {
    ($($kind:ident: $hint:literal,)+) => {
        &[$((stringify!($kind), |counters| counters.$kind, |sources| sources.$kind, $hint)),+]
    };
}

type PacketDropHint = (
    &'static str,
    fn(&RadiusServerCounters) -> u64,
    fn(&LatestDropSources) -> Option<DroppedPacketSource>,
    &'static str,
);

const HINTS: &[PacketDropHint] = hints! {
    unknown_client: "no [[client]] has the sender's address",
    missing_message_authenticator: "the client sends no Message-Authenticator; see message_authenticator of [[client]]",
    bad_message_authenticator: "the shared secrets differ",
    bad_authenticator: "the shared secrets differ",
    wrong_code: "accounting sent to the authentication port, or the reverse",
    malformed: "not a RADIUS packet",
};

/// Counters at the last check.
#[derive(Default)]
pub(crate) struct PacketDropMonitor {
    looks: u32,
    last_counts: BTreeMap<&'static str, u64>,
}

impl PacketDropMonitor {
    /// True if a check is due. The caller calls it once a second.
    pub(crate) fn is_due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(EVERY)
    }

    /// Logs the drops since the last check.
    pub(crate) fn log_new_drops(&mut self, all: &ShardSnapshot) {
        for (kind, counted, source, hint) in HINTS {
            let now = all.radius.as_ref().map_or(0, counted);
            let before = self.last_counts.insert(kind, now).unwrap_or(0);
            if now > before {
                let newest_from = source(&all.drop_sources).map(|(_, from)| tracing::field::display(from));
                tracing::warn!(
                    kind,
                    packets = now - before,
                    newest_from,
                    hint,
                    "requests are dropped without a reply"
                );
            }
        }
    }
}
