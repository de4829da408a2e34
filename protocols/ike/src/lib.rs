//! IKEv2 (RFC 7296): messages, what protects them, and the endpoint that speaks them.
//!
//! ```text
//! initiator ── IKE_SA_INIT ──▶ responder     proposals, key exchange, nonces, NAT detection
//!           ◀─────────────────
//!           ── IKE_AUTH ─────▶               identities, proofs (PSK, certificate, EAP), first CHILD_SA
//!           ◀─────────────────
//!           ── CREATE_CHILD_SA, INFORMATIONAL ──▶ and back: either side begins
//! ```
//! An [`IkeEndpoint`] is a machine over the datagrams of UDP ports 500 and 4500, with IKE_SAs of both roles. It says what is to be
//! installed before it sends what depends on that ([`Event::Install`](machine::IkeEvent::Install)). What it cannot know it asks for:
//! EAP packets are judged by whoever asks an AAA server or is one ([`Event::Eap`](machine::IkeEvent::Eap)), addresses come from
//! pools that are elsewhere ([`Event::AddressWanted`](machine::IkeEvent::AddressRequested)), signatures are a helper's
//! ([`IkeJob`](machine::IkeJob)), such as `Credentials`.
//!
//! A [`IkeMessage`] is a [`IkeHeader`] and a chain of [`Payload`]s. Reading one is total and bounded: whatever the octets are, the
//! answer is a message or a [`ParseError`], and what is kept is in proportion to what came. Numbers that the RFCs give
//! ([`code`]) are open sets, since others may be met; a payload of a type that is not known stays as it was, with its
//! critical bit. [`suite`] reads and chooses proposals, [`keys`] derives keys, [`protect`] enciphers messages, in fragments
//! where they are long.

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
pub mod payload;
pub mod protect;
pub mod suite;
#[cfg(test)]
mod tests;
pub mod work;

pub use header::{HEADER_LEN, IkeHeader, Spi};
pub use machine::{AUTOMATA, IkeEndpoint};
pub use message::{IkeMessage, NON_ESP_MARKER, ParseError, PayloadList};
pub use payload::Payload;
