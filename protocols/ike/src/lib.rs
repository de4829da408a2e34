//! IKEv2 (RFC 7296): messages, their protection, and an endpoint as a machine.
//!
//! ```text
//! initiator ── IKE_SA_INIT ──▶ responder     proposals, key exchange, nonces, NAT detection
//!           ◀─────────────────
//!           ── IKE_AUTH ─────▶               identities, proofs (PSK, certificate, EAP), first CHILD_SA
//!           ◀─────────────────
//!           ── CREATE_CHILD_SA, INFORMATIONAL ──▶ and back: either side begins
//! ```
//! An [`IkeEndpoint`] is a machine ([`usher_core::Machine`]) over the datagrams of UDP ports 500 and 4500. It has
//! IKE_SAs of both roles. It has four kinds of methods:
//!
//! - Getters (`counters`, `sa_count`, `half_open`) show its state.
//! - `handle_input` takes datagrams and timeouts.
//! - `handle_command` takes commands ([`IkeCommand`](machine::IkeCommand)), such as "initiate an IKE_SA", and the
//!   results of jobs.
//! - `poll_output` and `poll_timeout` return transmissions, events ([`IkeEvent`](machine::IkeEvent)), jobs
//!   ([`IkeJob`](machine::IkeJob)) and the next timeout.
//!
//! The endpoint gives [`IkeEvent::Install`](machine::IkeEvent::Install) before it sends a message that depends on the
//! installed CHILD_SA. Its owner provides the rest:
//!
//! - An AAA server, or a local one, answers EAP packets ([`IkeEvent::Eap`](machine::IkeEvent::Eap)).
//! - Address pools assign addresses ([`IkeEvent::AddressRequested`](machine::IkeEvent::AddressRequested)).
//! - A worker makes and verifies signatures ([`IkeJob`](machine::IkeJob)), for example with `Credentials`.
//!
//! An [`IkeMessage`] is an [`IkeHeader`] and a chain of [`Payload`]s. The parser returns a message or a
//! [`ParseError`] for any octets, and allocates in proportion to them. The numbers of the RFCs ([`code`]) are open
//! sets: unknown values are kept. A payload of an unknown type keeps its octets and its critical bit.
//!
//! [`suite`] reads and chooses proposals, [`keys`] derives keys, and [`protect`] encrypts messages, in fragments if
//! they are long.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod code;
#[cfg(feature = "tls")]
pub mod credentials;
pub mod fuzz;
pub mod header;
pub mod keys;
pub mod machine;
pub mod message;
mod parse_error;
pub mod payload;
pub mod protect;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod work;

pub use header::{HEADER_LEN, IkeHeader, Spi};
pub use machine::{AUTOMATA, IkeEndpoint};
pub use message::{IkeMessage, NON_ESP_MARKER, PayloadListDisplay};
pub use parse_error::ParseError;
pub use payload::Payload;
