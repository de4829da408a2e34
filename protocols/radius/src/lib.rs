//! RADIUS (RFC 2865 and its companions): packets, attributes, dictionaries, client, server.
//!
//! [`Packet`] reads received octets in place; [`Attributes`] is the list that a packet is made of;
//! [`client::Client`] and [`server::Server`] are the machines that exchange them.
//! [`dictionary::Dictionary`] gives attributes names and types.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod attribute;
pub mod auth;
pub mod client;
pub mod dictionary;
mod freshness;
pub mod fuzz;
pub mod packet;
pub mod radsec;
pub mod server;
#[cfg(test)]
mod testing;
pub mod vectors;
pub mod work;

pub use attribute::Attributes;
pub use auth::Secret;
pub use freshness::Freshness;
pub use packet::{Code, OwnedPacket, Packet, PacketError};
