//! Diameter (RFC 6733): messages, AVPs, dictionary, peer automaton, watchdog (RFC 3539) and routing. Its applications
//! are EAP (RFC 4072), NASREQ (RFC 7155) and accounting (RFC 6733 §9).
//!
//! [`node::DiameterNode`] is the machine that a service drives. Each other module is usable alone.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod accounting;
pub mod avp;
pub mod codes;
pub mod data;
pub mod dictionary;
pub mod eap;
pub mod error;
pub mod fuzz;
pub mod message;
pub mod nasreq;
pub mod node;
pub mod peer;
pub mod session;
pub mod stream;
pub mod vectors;
pub mod work;

pub use avp::{Avp, AvpBuf, AvpId, AvpSequence, AvpView};
pub use error::{DiameterError, ResultCode};
pub use message::{CommandFlags, DiameterMessage, MessageHeader, MessageView};
