//! EAP (RFC 3748): packets, EAPOL, the automata of RFC 4137 and the methods that run in them: MD5, GTC and MSCHAPv2,
//! and on TLS, EAP-TLS, PEAP and EAP-TTLS.
//!
//! ```text
//! peer::Peer ◀─ requests, responses ─▶ authenticator::Authenticator ◀─ AAA ─▶ server::Server
//!     └─ method::PeerMethod                (pass-through)                        └─ method::ServerMethod
//! ```
//! Each automaton belongs to one conversation. It is fed packets and the time, and polled for what it wants
//! sent, for events and for when it wants to be woken; it knows no port and no AAA protocol. What a server's method has
//! to know of a user it asks for by an event, and the automaton stands still until the answer. Bad packets are
//! discarded and say so; nothing here panics on what comes from outside.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod authenticator;
pub mod eapol;
pub mod fuzz;
pub mod method;
pub mod packet;
pub mod peer;
pub mod server;
pub mod work;

use alloc::vec::Vec;
use usher_core::automaton::AutomatonDiagram;
use usher_crypto::SecretValue;

/// The automata as they run: the peer, the pass-through authenticator, the backend.
pub const AUTOMATA: [AutomatonDiagram; 3] =
    [peer::PeerAutomaton::DIAGRAM, authenticator::PassThrough::DIAGRAM, server::Backend::DIAGRAM];

/// The keys that a method exports (RFC 3748 §7.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EapKeys {
    /// Master session key.
    pub msk: SecretValue<[u8; 64]>,
    /// Extended master session key.
    pub emsk: SecretValue<[u8; 64]>,
    /// Session-Id (RFC 5247 §1.4), of the methods that have one.
    pub session_id: Option<Vec<u8>>,
}
