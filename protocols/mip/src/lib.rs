//! Mobile IPv6 registration (RFC 6275): how a station tells another node that it is to be reached at another address.
//!
//! ```text
//! Registration (station) ── Binding Update ──▶ BindingCache (home agent, correspondent node)
//!                        ◀── Binding Acknowledgement ──
//! ```
//! A [`MobilityPacket`] is what RFC 5555 puts into a UDP datagram on port [`PORT`]: an IPv6 header, whose source is the
//! station's home address, and a Mobility Header. The care-of address is the datagram's own source address, or what the
//! Alternate Care-of Address option says.
//!
//! # What is left out, or our own
//!
//! - RFC 5555 uses the UDP form where the visited network is IPv4; here it is used on any, since the hosts of this house
//!   give machines datagrams. A home address of IPv4 stands in the inner header as an IPv4-mapped address
//!   ([`to_inner_address`], [`from_inner_address`]).
//! - A Binding Update is not authenticated: neither the IPsec association with a home agent (§5.1) nor the return
//!   routability procedure with a correspondent node (§5.2) is run. A cache therefore takes bindings only for the home
//!   addresses that it was told of, and, with a [`CareOfProof`], only to addresses that prove that they receive there.
//! - Mobility options other than those that [`MobilityOption`] names are carried, not judged.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod cache;
mod message;
mod packet;
mod registration;

pub mod fuzz;

pub use cache::{Binding, BindingCache, CareOfProof};
pub use message::{
    BindingAcknowledgement, BindingLifetime, BindingStatus, BindingUpdate, MAX_OPTIONS, MessageError,
    MobilityMessage, MobilityOption,
};
pub use packet::{MobilityPacket, from_inner_address, to_inner_address};
pub use registration::{AckOutcome, BindingRegistration, RegistrationTiming};

/// The UDP port of Mobile IPv6 registration (RFC 5555 §4.1, registered with IANA as `dsmipv6`).
pub const PORT: u16 = 4191;
