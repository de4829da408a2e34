//! The MIH function of a host (IEEE 802.21 over UDP and TCP, RFC 5677): what becomes of its links goes to those who
//! subscribed, and who may is told their parameters and acts on them.
//!
//! ```text
//! kernel ─ Command::Link ─▶ MihService ─ MIH_Link_Up, _Down, _Going_Down ─▶ subscribers
//! peer ─ MIH_Link_Get_Parameters, MIH_Link_Actions ─▶ MihService ─ Job ─▶ kernel ─ Command::Measured, ::Acted ─▶ response
//! MihService ─ MIH_Register, MIH_Event_Subscribe ─▶ the peers of its configuration, again and again
//! ```
//! The service knows no kernel: links are told to it as they change ([`LinkReport`]); what has to be measured or done leaves as
//! a [`MihServiceJob`]. Who may do what is decided by the address that a message came from ([`AccessList`]), since identifiers of MIH
//! functions prove nothing.
//!
//! [`config`] is its file, the same for a live host and for a study. [`client`] asks one other function.

extern crate alloc;

pub mod client;
pub mod config;

mod access;
mod link;
mod neighbour;
mod service;
mod subscriptions;

pub use access::{AccessList, AccessRight, AccessRights};
pub use link::{InterfaceConfig, LinkReport, WatchConfig};
pub use neighbour::PeerSettings;
pub use service::{
    LinkChange, MihService, MihServiceCommand, MihServiceConfig, MihServiceCounters, MihServiceEvent,
    MihServiceJob, MihServiceLimits, PeerChange, RequestingPeer,
};
