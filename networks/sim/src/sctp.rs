//! SCTP as a machine without input or output of its own (RFC 9260): one [`SctpAssociation`] each side.
//!
//! A host feeds an association with [`SctpAssociation::handle_packet`], [`SctpAssociation::handle_timeout`] and the
//! application's calls, then drains
//!
//! 1. [`SctpAssociation::poll_event`], giving the application its turn (what it sends now, an acknowledgement
//!    rides on);
//! 2. [`SctpAssociation::poll_transmit`] until `None`, sending each packet;
//! 3. and arms a timer for [`SctpAssociation::poll_timeout`].
//!
//! A packet that belongs to no association goes to [`listen`] where somebody accepts associations, and to
//! [`out_of_the_blue`] where nobody does. The listening side keeps nothing until a cookie comes back.
//!
//! A path is a pair of addresses that the host knows by its index; 0 is the primary. A message is given to
//! the primary while that is active, else to the first active path. Left out: path verification (all paths
//! are taken for confirmed), jitter of heartbeats, dynamic addresses, partial delivery, stream resets,
//! interleaving, partial reliability, ECN and path MTU discovery.

mod association;
mod chunk;
mod codec;
mod config;
mod cookie;
mod crc32c;
mod fuzz;
mod inbound;
mod input;
mod listen;
mod outbound;
mod output;
mod path;
mod sack;
mod setup;
mod timers;

#[cfg(test)]
mod tests;

pub use association::{OutgoingPacket, SctpAssociation, SctpEvent, SctpState, SctpStats, UserMessage};
pub use chunk::{Chunk, ChunkParameter, DataChunk, ErrorCause, InitChunk, SackChunk, SctpPacket};
pub use codec::{ParseError, round_trip};
pub use config::{InitialWindow, LossRecovery, SctpConfig};
pub use fuzz::fuzz_association;
pub use listen::{InitialValues, ListenerAction, handle_listener_packet, out_of_the_blue};

/// Bytes of the common header (RFC 9260 §3.1).
const COMMON_HEADER: u32 = 12;
/// Bytes of a DATA chunk's header (RFC 9260 §3.3.1).
const DATA_HEADER: u32 = 16;
/// The smallest window that a set-up may announce (RFC 9260 §3.3.2).
const MIN_WINDOW: u32 = 1500;
