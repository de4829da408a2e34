//! SCTP (RFC 9260) as a sans-IO machine: an [`SctpAssociation`] is one endpoint of an association.
//!
//! Its methods are of four kinds:
//!
//! - getters, such as [`SctpAssociation::state`], [`SctpAssociation::stats`] and [`SctpAssociation::cwnd`];
//! - handlers of input: [`SctpAssociation::handle_packet`] and [`SctpAssociation::handle_timeout`];
//! - commands, such as [`SctpAssociation::send_message`], [`SctpAssociation::shutdown`] and
//!   [`SctpAssociation::abort`];
//! - polls: [`SctpAssociation::poll_event`], [`SctpAssociation::poll_transmit`] and
//!   [`SctpAssociation::poll_timeout`].
//!
//! After each input or command, the host
//!
//! 1. polls events until `None` and delivers them to the application, on whose data an acknowledgement may ride;
//! 2. polls packets until `None` and sends them;
//! 3. arms a timer for [`SctpAssociation::poll_timeout`].
//!
//! A packet without an association goes to [`handle_listener_packet`] if an application accepts associations, else to
//! [`reply_out_of_the_blue`]. The listener keeps no state until a cookie returns.
//!
//! A path is a pair of addresses, which the host knows by its index; 0 is the primary. New data takes the primary
//! while it is active, else the first active path. Not implemented: path verification (all paths count as
//! confirmed), heartbeat jitter, dynamic addresses, partial delivery, stream resets, interleaving, partial
//! reliability, ECN and path MTU discovery.

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
mod message;
mod outbound;
mod output;
mod path;
mod sack;
mod setup;
mod timers;

#[cfg(test)]
mod tests;

pub use association::{OutgoingSctpPacket, SctpAssociation, SctpAssociationState, SctpEvent, SctpStats};
pub use chunk::{Chunk, ChunkParameter, DataChunk, ErrorCause, InitChunk, SackChunk, SctpPacket};
pub use codec::{ParseError, round_trip};
pub use config::{InitialAssociationValues, InitialWindow, LossRecovery, SctpConfig};
pub use fuzz::fuzz_association;
pub use listen::{SctpListenerAction, handle_listener_packet, reply_out_of_the_blue};
pub use message::UserMessage;

/// Octets of the common header (RFC 9260 §3.1).
const COMMON_HEADER: u32 = 12;
/// Octets of a DATA chunk's header (RFC 9260 §3.3.1).
const DATA_HEADER: u32 = 16;
/// Minimum window of INIT and INIT ACK (RFC 9260 §3.3.2).
const MIN_WINDOW: u32 = 1500;
