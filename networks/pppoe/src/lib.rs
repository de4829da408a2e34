//! The data planes of an access concentrator: they carry the packets of PPPoE sessions between access interfaces and the system,
//! which routes them, translates addresses and tracks connections as it does for any interface.
//!
//! ```text
//!  host ── access interface ──▶ PPPoE and PPP off, source and rate looked at ──▶ the system ──▶ elsewhere
//!       ◀─────────────────────  PPPoE and PPP on, rate looked at ◀── device ◀── route to the host's networks
//! ```
//! A [`PppoeDataPlane`] knows no protocol: discovery and PPP's control frames are handed up ([`DataPlaneEvent::Frame`]) and sent for whoever speaks
//! them ([`PppoeDataPlane::send_frame`]), and it hears which sessions' packets it may carry ([`PppoeDataPlane::install_session`]). A packet of any other session
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
pub use plane::{
    DataPlaneConfig, DataPlaneEvent, DataPlaneMode, EbpfHook, PortConfig, PortState, PppoeDataPlane,
    StartError,
};
pub use session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionError};
pub use stations::{StationInterface, StationReceiver};

/// Whether this build has [`DataPlaneMode::Ebpf`], whose programs clang compiles.
pub const HAS_EBPF_MODE: bool = cfg!(ebpf);
