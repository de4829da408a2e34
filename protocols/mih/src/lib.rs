//! IEEE 802.21-2008, media independent handover: what MIH functions say to each other.
//!
//! ```text
//! Message ─▶ encode ─▶ header (8 octets) │ source MIHF ID │ destination MIHF ID │ parameters ─▶ decode ─▶ Decoded
//! ```
//! A [`MihfMessage`] is a name ([`MessageId`]: service, opcode, action) and parameters ([`Tlv`]). The identifiers of both
//! ends are parameters too, the first two of every message; they are not in [`MihfMessage`].
//!
//! An MIH function ([`Mihf`]) is a [machine](usher_core::Machine): its transactions are the standard's four automata
//! (`transaction`), what carries its messages is behind MIH_NET_SAP (`net`).
//!
//! # What is known from where
//!
//! The standard's text was not at hand. Numbers, types and the forms of values are those of Wireshark's dissector and of
//! ODTONE, an open implementation; where these differ or say nothing, it is noted at the item. In particular:
//! - What a message must carry ([`MessageId::mandatory`]) is what public descriptions of its primitive agree on.
//! - A length above 128 counts what it exceeds 128 by, as the dissector has it.
//! - Lists and octet strings have lengths of the same form as parameters (ODTONE; the dissector reads one octet, which is
//!   the same up to 128).
//! - Which fragments carry what: [`fragment`].
//! - What answers a request that cannot be read: [`DecodeError::response_status`].
//! - The automata are those of ODTONE, which names its variables as the standard does; what is added, and why, stands
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
pub use id::{IdTooLong, MAX_MIHF_ID, MihfId, TransactionId};
pub use link::*;
pub use message::{
    DecodeError, DecodeErrorKind, DecodedMessage, EncodeError, HeaderFlags, MAX_PARAMETERS, MihfMessage,
};
pub use service::{MessageId, Opcode, ServiceId};
pub use tlv::{Tlv, kind};
pub use transaction::AUTOMATA;
pub use wire::ValueError;
