//! ESP (RFC 4303) and the IPsec databases (RFC 4301): packets, security associations, policies.
//!
//! ```text
//!        packet ── Plane::outbound ──▶ Discard, Forward, Hold, or Protect by an SA ── Plane::seal ──▶ ESP
//!        ESP ── Plane::open ──▶ packet that is of its SA's traffic
//! IKE ── Operation: Install, Remove, Move, Policies ──▶ Plane ── Event: Acquire, Expire, Removed ──▶ IKE
//! ```
//! An [`EspDataPlane`] has the SAs and policies of a host. [`IpsecOperation`]s change them in order. It has no
//! sockets: its owner reads packets, asks for the decision on each, and provides buffers that are sealed and opened
//! in place. ESP packets do not pass through a [`Machine`](usher_core::Machine), because there are too many of them.
//!
//! [`OutboundSa`] and [`InboundSa`] also work alone, with keys and without policies. Parsers accept any octets and
//! are bounded: an invalid packet is dropped and counted by its kind ([`EspCounters`]).
//!
//! Threat model: an attacker on the path reads, drops, delays, alters, replays and forges packets. The result is a
//! counted drop, and forged packets take no memory.

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
pub use policy::{PolicyAction, SecurityPolicy, SecurityPolicyId};
pub use replay::ReplayWindow;
pub use sa::{InboundSa, OutboundSa, SaLifetime};
pub use selector::TrafficSelector;
pub use transform::{EspKeys, EspTransform, IntegrityAlgorithm};
