//! IEEE 802.16 privacy key management, version 2 (PKMv2): the MAC management messages PKM-REQ and PKM-RSP, and
//! the pair of adapters that carry EAP in them, and what follows EAP: the keys derived from its own, and the pair of automata
//! that agree on traffic keys.
//!
//! ```text
//! EAP peer ◀─▶ eap::StationSide ◀─ PKM-REQ, PKM-RSP on the basic connection ─▶ eap::BaseSide ◀─▶ authenticator
//!    MSK ─▶ keys::AuthKey                                                           keys::AuthKey ◀─ MSK
//!     keying::Station ◀─ SA-TEK handshake, traffic keys, under protect's digests ─▶ keying::Base
//! ```
//! A message is `management message type (9 or 10), code, PKM identifier, attributes`; an attribute is a type, a
//! length and a value, as everywhere in 802.16 (§11.1): a length of up to 127 in one octet, a longer one as `0x80 + n`
//! followed by `n` octets.
//!
//! # What is known from where
//!
//! The standard's text was not at hand. Message types, codes, attribute types and the form of lengths are as
//! Wireshark's 802.16 dissector describes them. The rest is taken from public descriptions, or assumed:
//! - Lengths of fixed attributes follow from what they hold: 64 bits for the random numbers, the nonce and AKID,
//!   32 for the key lifetime, 16 for SAID, 24 for the frame number, a MAC address; the dissector confirms 4 + 8 octets
//!   for the CMAC digest.
//! - What a message must carry ([`Code::required`]) is what all descriptions of it agree on; attributes that only some
//!   of them name are optional here.
//! - Which codes travel in PKM-REQ and which in PKM-RSP ([`Code::direction`]) follows from who says them.
//! - PKM identifiers are matched as [`eap`] says.
//! - A value has at most [`MAX_VALUE`] octets and a message at most [`MAX_ATTRIBUTES`] attributes: limits of this
//!   implementation. An attribute without value is refused, as in the dissector.
//!
//! What of keys, digests and the exchange of keys is known from where is said in [`keys`], [`protect`] and [`keying`].

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod attribute;
mod code;
mod message;

pub mod eap;
pub mod fuzz;
pub mod keying;
pub mod keys;
pub mod protect;
pub mod work;

pub use attribute::{AttributeIter, AttributeType, MAX_ATTRIBUTES, MAX_VALUE, PkmAttribute};
pub use code::{Code, Direction};
pub use message::{MessageError, OwnedMessage, PkmMessage};
