//! Whether what asks for a change of authorisation, or answers that, is of now (RFC 5176 §6.3).

use crate::attribute::kind;
use crate::packet::Packet;
use usher_core::{Duration, WallTime};

/// What an Event-Timestamp must say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freshness {
    /// How far it may be from now, either way.
    pub window: Duration,
    /// Whether a CoA-Request or Disconnect-Request without one is dropped.
    pub required: bool,
}

impl Freshness {
    /// Whether a packet's Event-Timestamp is of now; `None`: it has none.
    pub(crate) fn judge(&self, now: WallTime, packet: &Packet<'_>) -> Option<bool> {
        let at = <[u8; 4]>::try_from(packet.get(kind::EVENT_TIMESTAMP)?);
        let near = |at| now.unix_secs().abs_diff(u32::from_be_bytes(at).into()) <= self.window.as_secs();
        Some(at.is_ok_and(near))
    }
}

impl Default for Freshness {
    /// RFC 5176 §6.3's window of 300 s; an Event-Timestamp may be missing.
    fn default() -> Self {
        Self { window: Duration::from_secs(300), required: false }
    }
}
