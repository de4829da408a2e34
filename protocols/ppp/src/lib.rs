//! PPP (RFC 1661) over Ethernet (RFC 2516): an access concentrator, and the hosts that it lets in.
//!
//! ```text
//! host ── PADI, PADR ────────────▶ concentrator   discovery: who is there, and a number for the session
//!      ◀─ PADO, PADS ─────────────
//!      ◀═ LCP ═══════════════════▶                how long packets are, whether the link is looped, how the host shows who it is
//!      ◀═ PAP, CHAP, EAP ════════▶                who the host is
//!      ◀═ IPCP, IPv6CP ══════════▶                the addresses of both ends
//!      ◀═ advertisement, DHCPv6 ═▶                IPv6's prefixes
//!      ◀═ Echo-Request, Echo-Reply ▶              whether the other still lives
//! ```
//! A [`Concentrator`](concentrator::PppoeConcentrator) and a [`Client`](client::PppoeClient) are machines over Ethernet frames. Both run the
//! control protocols alone: packets of networks belong to a data plane, which hears what it may let through
//! ([`Install`](concentrator::ConcentratorEvent::Install)) before anything that depends on it is sent. What a concentrator cannot
//! know it asks for: a proof is judged by whoever asks an AAA server or is one
//! ([`Authenticate`](concentrator::ConcentratorEvent::Authenticate)), and the answer brings the addresses.
//!
//! Each control protocol runs RFC 1661's automaton ([`automaton`]) as its table has it. Reading a packet is total and bounded:
//! whatever the octets are, the answer is a packet or an error, and what is kept is in proportion to what came.

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
    AddressAssignment, AddressFamily, EndReason, Ipv4Assignment, Ipv6Assignment, LinkConfig, LinkNetwork,
    RenegotiationLimit,
};
pub use negotiation::RestartConfig;

use usher_core::automaton::AutomatonDiagram;

/// The automaton as it runs.
pub const AUTOMATA: [AutomatonDiagram; 1] = [automaton::OptionNegotiation::DIAGRAM];
