//! Mobile IPv6 registration (RFC 6275): a station registers its care-of address with another node.
//!
//! ```text
//! Registration (station) ── Binding Update ──▶ BindingCache (home agent, correspondent node)
//!                        ◀── Binding Acknowledgement ──
//! ```
//! A [`MobilityPacket`] is the payload of a UDP datagram on port [`PORT`], as in RFC 5555: an IPv6 header, whose
//! source is the station's home address, and a Mobility Header. The care-of address is the datagram's source address,
//! or that of the Alternate Care-of Address option.
//!
//! # Differences from the RFCs
//!
//! - RFC 5555 uses UDP in an IPv4 network. Here all networks use it, because machines exchange datagrams. The inner
//!   header holds an IPv4 home address as an IPv4-mapped address ([`to_inner_address`], [`from_inner_address`]).
//! - A Binding Update is not authenticated. There is neither IPsec with a home agent (§5.1) nor the return routability
//!   procedure with a correspondent node (§5.2). So a cache accepts bindings only for its configured home addresses.
//!   With a [`CareOfVerificationConfig`], it accepts only care-of addresses that prove that they receive its packets.
//! - Mobility options other than those of [`MobilityOption`] are carried unchanged and have no effect.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod cache;
mod message;
mod packet;
mod registration;

pub mod fuzz;

pub use cache::{Binding, BindingCache, CareOfVerificationConfig};
pub use message::{
    BindingAcknowledgement, BindingLifetime, BindingStatus, BindingUpdate, MAX_OPTIONS, MessageError,
    MobilityMessage, MobilityOption,
};
pub use packet::{MobilityPacket, from_inner_address, to_inner_address};
pub use registration::{BindingAckOutcome, BindingRegistration, RegistrationTimerConfig};

/// The UDP port of Mobile IPv6 registration (RFC 5555 §4.1, registered with IANA as `dsmipv6`).
pub const PORT: u16 = 4191;
