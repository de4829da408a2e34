//! EAP (RFC 3748): packets, EAPOL, the automata of RFC 4137 and their methods.
//! The methods are MD5, GTC, MSCHAPv2, EAP-TLS, PEAP and EAP-TTLS.
//!
//! ```text
//! peer::EapPeer ◀─ requests, responses ─▶ authenticator::EapAuthenticator ◀─ AAA ─▶ server::EapServer
//!     └─ method::PeerMethod                   (pass-through)                            └─ method::ServerMethod
//! ```
//! An automaton runs one conversation. It has no socket, clock or AAA protocol:
//!
//! - Getters (`identity`, `fault`, `retransmission_count`) show its state.
//! - Handlers (`handle_packet`, `handle_aaa_reply`, `handle_timeout`) take packets and the time.
//! - The command [`EapServer::apply_answer`](server::EapServer::apply_answer) answers a query about a user.
//! - Polls (`poll_transmit`, `poll_event`, `poll_timeout`, `poll_work`) return packets, events, the next timeout and
//!   work.
//!
//! A server's method queries its host about a user by an event. The conversation waits for the answer.
//! Malformed packets are discarded, and the handler returns false. No input panics.

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

/// The automata of the peer, the pass-through authenticator and the backend, as diagrams.
pub const AUTOMATA: [AutomatonDiagram; 3] =
    [peer::PeerAutomaton::DIAGRAM, authenticator::PassThrough::DIAGRAM, server::Backend::DIAGRAM];

/// The keys that a method exports (RFC 3748 §7.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EapKeys {
    /// Master session key.
    pub msk: SecretValue<[u8; 64]>,
    /// Extended master session key.
    pub emsk: SecretValue<[u8; 64]>,
    /// Session-Id (RFC 5247 §1.4), if the method defines one.
    pub session_id: Option<Vec<u8>>,
}
