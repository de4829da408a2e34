//! ESP (RFC 4303) and what decides on it (RFC 4301): packets, security associations, their databases.
//!
//! ```text
//!        packet ── Plane::outbound ──▶ Discard, Forward, Hold, or Protect by an SA ── Plane::seal ──▶ ESP
//!        ESP ── Plane::open ──▶ packet that is of its SA's traffic
//! IKE ── Operation: Install, Remove, Move, Policies ──▶ Plane ── Event: Acquire, Expire, Removed ──▶ IKE
//! ```
//! A [`EspDataPlane`] has the SAs and policies of a host, and is told of changes by [`IpsecOperation`]s in their order. It knows no socket:
//! whoever hosts it reads packets, asks what becomes of each, and gives it buffers to seal and open in place. Packets of ESP do
//! not pass through a [`Machine`](usher_core::Machine): there are too many of them.
//!
//! [`OutboundSa`] and [`InboundSa`] stand by themselves for whoever has keys and no policies. Reading is total and bounded: a
//! packet that is none is a drop, counted by its kind ([`EspCounters`]).
//!
//! Against whom: somebody on the way who reads, drops, delays, alters, repeats and makes up packets. What that comes to is a
//! counted drop, and a little memory for none of it.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod counters;
pub mod fuzz;
pub mod ip;
pub mod packet;
pub mod plane;
pub mod policy;
pub mod replay;
pub mod sa;
pub mod selector;
#[cfg(test)]
mod tests;
pub mod transform;

pub use counters::EspCounters;
pub use packet::{EncapsulatedDatagram, EspHeader, HEADER_LEN};
pub use plane::{EspDataPlane, EspEvent, IpsecOperation, SaPair};
pub use policy::{PolicyAction, PolicyId, SecurityPolicy};
pub use replay::ReplayWindow;
pub use sa::{InboundSa, OutboundSa, SaLifetime};
pub use selector::TrafficSelector;
pub use transform::{EspKeys, EspTransform, IntegrityAlgorithm};
