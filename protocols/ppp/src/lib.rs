//! PPP (RFC 1661) over Ethernet (RFC 2516): an access concentrator and its clients.
//!
//! ```text
//! host ── PADI, PADR ────────────▶ concentrator   discovery: finds a concentrator and agrees on a SESSION_ID
//!      ◀─ PADO, PADS ─────────────
//!      ◀═ LCP ═══════════════════▶                packet lengths, loop detection, authentication protocol
//!      ◀═ PAP, CHAP, EAP ════════▶                authentication of the host
//!      ◀═ IPCP, IPv6CP ══════════▶                the addresses of both ends
//!      ◀═ advertisement, DHCPv6 ═▶                IPv6's prefixes
//!      ◀═ Echo-Request, Echo-Reply ▶              liveness of the peer
//! ```
//! [`PppoeConcentrator`](concentrator::PppoeConcentrator) and [`PppoeClient`](client::PppoeClient) are
//! [machines](usher_core::Machine) over Ethernet frames. Each has four kinds of methods:
//!
//! - Getters, such as `counters`.
//! - `handle_input` takes an Ethernet frame or the timeout.
//! - `handle_command` takes a [`ConcentratorCommand`](concentrator::ConcentratorCommand) or a
//!   [`ClientCommand`](client::ClientCommand).
//! - `poll_output` gives frames, events and work. `poll_timeout` gives the time of the next timeout.
//!
//! The machines run the control protocols only. A data plane carries the packets of networks. A machine reports a
//! network ([`Install`](concentrator::ConcentratorEvent::Install)) before it sends anything that depends on it.
//!
//! A concentrator does not verify proofs itself. It passes each to its owner
//! ([`Authenticate`](concentrator::ConcentratorEvent::Authenticate)), which asks an AAA server or is one. The owner's
//! reply brings the addresses.
//!
//! Each control protocol runs the automaton of RFC 1661 §4.1 ([`automaton`]). Parsing is total and bounded: any octets
//! give a packet or an error, and the memory used is proportional to the input.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod auth;
pub mod automaton;
pub mod client;
pub mod concentrator;
pub mod fuzz;
mod ipcp;
pub mod ipv6;
mod ipv6cp;
mod lcp;
mod link;
mod negotiation;
pub mod packet;
pub mod pppoe;
#[cfg(test)]
mod tests;
pub mod work;

pub use ipv6::Ipv6Prefix;
pub use ipv6::host::DelegatedPrefix;
pub use ipv6cp::InterfaceIdentifier;
pub use link::{
    AddressAssignment, AddressFamily, EndReason, Ipv4Assignment, Ipv6Assignment, LinkConfig,
    NegotiatedAddresses, RenegotiationLimit,
};
pub use negotiation::NegotiationConfig;

use usher_core::automaton::AutomatonDiagram;

/// The diagrams of this crate's automata.
pub const AUTOMATA: [AutomatonDiagram; 1] = [automaton::OptionNegotiation::DIAGRAM];
