//! IEEE 802.16 privacy key management, version 2 (PKMv2): the MAC management messages PKM-REQ and PKM-RSP. The crate
//! carries EAP in them, derives keys from EAP's master session key, and runs the exchange of traffic keys.
//!
//! ```text
//! EAP peer ◀─▶ eap::StationEapSide ◀─ PKM-REQ, PKM-RSP on the basic connection ─▶ eap::BaseStationEapSide ◀─▶ authenticator
//!    MSK ─▶ keys::AuthorizationKey                                                           keys::AuthorizationKey ◀─ MSK
//!     keying::Station ◀─ SA-TEK handshake, traffic keys, under protect's digests ─▶ keying::Base
//! ```
//! A message is `management message type (9 or 10), code, PKM identifier, attributes`. An attribute is a type, a
//! length and a value, as in all of 802.16 (§11.1). A length up to 127 takes one octet. A longer one is `0x80 + n`
//! followed by `n` octets.
//!
//! # Sources
//!
//! The standard's text was not available. Message types, codes, attribute types and the form of lengths are those of
//! Wireshark's 802.16 dissector. The rest comes from public descriptions or is an assumption:
//! - Lengths of fixed attributes follow from their content: 64 bits for random numbers, nonce and AKID, 32 for the key
//!   lifetime, 16 for SAID, 24 for the frame number, a MAC address. The dissector confirms 4 + 8 octets for the CMAC
//!   digest.
//! - The mandatory attributes of a message ([`Code::required`]) are those on which all descriptions agree. All others
//!   are optional here.
//! - The sender of a code decides between PKM-REQ and PKM-RSP ([`Code::direction`]).
//! - PKM identifiers are matched as in [`eap`].
//! - A value has at most [`MAX_VALUE`] octets and a message at most [`MAX_ATTRIBUTES`] attributes. Both are limits of
//!   this implementation. An attribute without a value is rejected, as in the dissector.
//!
//! [`keys`], [`protect`] and [`keying`] name the sources of keys, digests and the key exchange.

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
pub use message::{MessageError, OwnedPkmMessage, PkmMessage};
