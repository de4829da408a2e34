//! The data planes of an access concentrator. They carry packets of PPPoE sessions between access interfaces and the
//! system. The system routes them, translates addresses and tracks connections, as for any interface.
//!
//! ```text
//!  host ── access interface ──▶ PPPoE and PPP removed, source and rate checked ──▶ the system ──▶ elsewhere
//!       ◀─────────────────────  PPPoE and PPP added, rate checked ◀── device ◀── route to the host's networks
//! ```
//! A [`PppoeDataPlane`] runs no protocol. It passes frames of discovery and of PPP's control protocols to its owner
//! ([`DataPlaneEvent::Frame`]), and sends the owner's frames ([`PppoeDataPlane::send_frame`]). The owner installs the
//! sessions to carry ([`PppoeDataPlane::install_session`]). Packets of other sessions are dropped. At an access
//! interface everything but PPPoE is dropped.

mod control;
#[cfg(ebpf)]
mod ebpf;
mod engine;
mod forward;
mod interface;
mod kernel;
pub mod netfilter;
mod plane;
mod session;
mod stations;
mod sys;
mod user;

pub use engine::{
    AccessPortConfig, AccessPortState, DataPlaneConfig, DataPlaneEvent, DataPlaneMode, EbpfHook, StartError,
};
pub use forward::fuzz;
pub use plane::PppoeDataPlane;
pub use session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
pub use stations::{StationInterface, StationReceiver};

/// True if this build has [`DataPlaneMode::Ebpf`], whose programs need clang.
pub const HAS_EBPF_MODE: bool = cfg!(ebpf);
