//! Diameter (RFC 6733): messages, AVPs, dictionary, peer automaton, watchdog (RFC 3539), routing, and
//! the EAP (RFC 4072) and NASREQ (RFC 7155) applications.
//!
//! Each module is usable
//! alone.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod avp;
pub mod data;
pub mod error;
pub mod fuzz;
pub mod message;
pub mod stream;

pub use avp::{Avp, AvpBuf, AvpId, AvpView, Avps};
pub use error::{Fault, ResultCode};
pub use message::{Flags, Header, Message, MessageView};
