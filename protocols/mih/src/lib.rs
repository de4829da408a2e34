//! IEEE 802.21-2008, media independent handover: the protocol of MIH functions.
//!
//! An MIH function ([`Mihf`]) is a [machine](usher_core::Machine). It has four kinds of methods:
//!
//! - Getters, such as `counters`, `is_registered` and `transaction_count`.
//! - `handle_input` takes datagrams, the events of streams and SCTP associations, and the timeout.
//! - `handle_command` takes an [`MihfCommand`].
//! - `poll_output` gives transmissions, events ([`MihfEvent`]) and work. `poll_timeout` gives the time of the next
//!   timeout.
//!
//! ```text
//! Message ─▶ encode ─▶ header (8 octets) │ source MIHF ID │ destination MIHF ID │ parameters ─▶ decode ─▶ Decoded
//! ```
//! A [`MihfMessage`] is a name ([`MessageId`]: service, opcode, action) and parameters ([`Tlv`]). On the wire the
//! source and destination identifiers are the first two parameters. They are not part of [`MihfMessage`].
//!
//! The transactions of an MIH function run the standard's four state machines (`transaction`). Its transports are
//! behind MIH_NET_SAP (`net`).
//!
//! # Sources
//!
//! The standard's text was not available. Numbers, types and encodings are those of Wireshark's dissector and of
//! ODTONE, an open implementation. The item's documentation notes where these differ or leave something open. In
//! particular:
//! - The mandatory parameters of a message ([`MessageId::mandatory`]) are those on which public descriptions agree.
//! - A length above 128 encodes its excess over 128, as in the dissector.
//! - Lengths of lists and octet strings have the same form as those of parameters (ODTONE). The dissector reads one
//!   octet, which is the same up to 128.
//! - The content of fragments: [`fragment`].
//! - The response to a request that cannot be decoded: [`DecodeError::response_status`].
//! - The state machines are those of ODTONE, with the standard's variable names. Additions and their reasons stand
//!   above each table (`transaction::source` and its neighbours).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod fragment;
pub mod fuzz;
pub mod information;

mod counters;
mod element;
mod function;
mod handover;
mod header;
mod id;
mod link;
mod message;
mod net;
mod service;
mod tlv;
mod transaction;
mod wire;

pub use element::*;
pub use function::*;
pub use handover::*;
pub use header::{HEADER, HeaderError, MAX_FRAGMENT, MihHeader, VERSION};
pub use id::{MAX_MIHF_ID, MihfId, MihfIdTooLong, TransactionId};
pub use link::*;
pub use message::{
    DecodeError, DecodeErrorKind, DecodedMessage, EncodeError, HeaderFlags, MAX_PARAMETERS, MihfMessage,
};
pub use service::{MessageId, Opcode, ServiceId};
pub use tlv::{Tlv, kind};
pub use transaction::AUTOMATA;
pub use wire::ValueError;
