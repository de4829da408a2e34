//! RADIUS (RFC 2865 and its companions): packets, attributes, dictionaries, client and server.
//!
//! - [`RadiusPacket`] reads received octets in place. [`AttributeList`] holds the attributes of a packet.
//! - [`client::RadiusClient`] and [`server::RadiusServer`] are machines ([`usher_core::machine`]) that exchange
//!   packets.
//! - [`dictionary::RadiusDictionary`] has the names and types of attributes.

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

pub use attribute::AttributeList;
pub use auth::SharedSecret;
pub use freshness::EventTimestampPolicy;
pub use packet::{OwnedPacket, PacketCode, PacketError, RadiusPacket};
