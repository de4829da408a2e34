//! The MIH function of a host (IEEE 802.21 over UDP and TCP, RFC 5677). It reports changes of the host's links to
//! subscribers. Authorized peers read link parameters and control links.
//!
//! ```text
//! kernel ─ Command::Link ─▶ MihService ─ MIH_Link_Up, _Down, _Going_Down ─▶ subscribers
//! peer ─ MIH_Link_Get_Parameters, MIH_Link_Actions ─▶ MihService ─ Job ─▶ kernel ─ Command::Measured, ::Acted ─▶ response
//! MihService ─ MIH_Register, MIH_Event_Subscribe ─▶ the peers of its configuration, again and again
//! ```
//! The service has no access to the kernel. The host reports link changes ([`KernelLinkReport`]). Measurements and link
//! actions leave as [`MihServiceJob`]s. Access rights depend on the source address of a message ([`AccessList`]),
//! because identifiers of MIH functions prove nothing.
//!
//! [`config`] is the configuration file, the same for a live host and for a study. [`client`] sends requests to one
//! peer.

extern crate alloc;

pub mod client;
pub mod config;

mod access;
mod link;
mod neighbour;
mod service;
mod subscriptions;

pub use access::{AccessList, AccessRight, AccessRights};
pub use link::{InterfaceConfig, KernelLinkReport, LinkThresholdConfig};
pub use neighbour::NeighbourPeerConfig;
pub use service::{
    LinkChange, MihPeerChange, MihService, MihServiceCommand, MihServiceConfig, MihServiceCounters,
    MihServiceEvent, MihServiceJob, MihServiceLimits, RequestingPeer,
};
