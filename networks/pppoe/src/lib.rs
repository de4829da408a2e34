//! The data planes of an access concentrator: they carry the packets of PPPoE sessions between access interfaces and the system,
//! which routes them, translates addresses and tracks connections as it does for any interface.
//!
//! ```text
//!  host ── access interface ──▶ PPPoE and PPP off, source and rate looked at ──▶ the system ──▶ elsewhere
//!       ◀─────────────────────  PPPoE and PPP on, rate looked at ◀── device ◀── route to the host's networks
//! ```
//! A [`Plane`] knows no protocol: discovery and PPP's control frames are handed up ([`Event::Frame`]) and sent for whoever speaks
//! them ([`Plane::send`]), and it hears which sessions' packets it may carry ([`Plane::install`]). A packet of any other session
//! goes nowhere, and at an access interface nothing passes that is not PPPoE.

mod control;
#[cfg(ebpf)]
mod ebpf;
mod forward;
mod interface;
mod kernel;
pub mod netfilter;
mod plane;
mod session;
mod stations;
mod sys;
mod user;

pub use forward::fuzz;
pub use plane::{Config, Event, Hook, Mode, Plane, PortConfig, PortState, StartError};
pub use session::{Counters, Session, SessionError, Usage};
pub use stations::{Receiver, Stations};

/// Whether this build has [`Mode::Ebpf`], whose programs clang compiles.
pub const HAS_EBPF_MODE: bool = cfg!(ebpf);
