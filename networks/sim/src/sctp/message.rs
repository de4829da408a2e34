//! User messages.

use crate::packet::Payload;

/// A user message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserMessage {
    /// Its stream.
    pub stream: u16,
    /// Payload protocol identifier; SCTP ignores it.
    pub ppid: u32,
    /// True if it is delivered regardless of the stream's order.
    pub unordered: bool,
    /// The message; not empty.
    pub payload: Payload,
}
