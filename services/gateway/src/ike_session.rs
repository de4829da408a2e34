//! Established IKE_SAs and their CHILD_SAs.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_access::TerminateCause;
use usher_core::{DatagramPath, Instant};
use usher_esp::plane::SaUsage;
use usher_ike::Spi;
use usher_ike::payload::Identification;

/// A CHILD_SA.
#[derive(Debug)]
pub(crate) struct ChildSaRecord {
    pub(crate) name: String,
    pub(crate) outbound: u32,
    pub(crate) local: Vec<String>,
    pub(crate) remote: Vec<String>,
    pub(crate) encapsulated: bool,
    pub(crate) transport: bool,
    pub(crate) since: Instant,
    /// Its traffic, by the last report.
    pub(crate) usage: SaUsage,
    /// The time when it expires unless it is replaced.
    pub(crate) expires: Option<Instant>,
}

/// An established IKE_SA.
#[derive(Debug)]
pub(crate) struct IkeSession {
    pub(crate) connection: String,
    pub(crate) identity: Identification,
    /// True if this side initiated it.
    pub(crate) initiator: bool,
    pub(crate) spis: (Spi, Spi),
    pub(crate) path: DatagramPath,
    /// The number of its subscriber's session.
    pub(crate) subscriber: u64,
    pub(crate) addresses: Vec<IpAddr>,
    /// The name servers assigned to this side, and their domains.
    pub(crate) dns: Vec<IpAddr>,
    pub(crate) domains: Vec<String>,
    pub(crate) children: BTreeMap<u32, ChildSaRecord>,
    /// Removed CHILD_SAs that await their last traffic report.
    pub(crate) leaving: BTreeMap<u32, SaUsage>,
    pub(crate) cause: TerminateCause,
    /// The time of its reauthentication.
    pub(crate) reauth: Option<Instant>,
    /// The time when it expires unless it is replaced.
    pub(crate) expires: Option<Instant>,
    /// True if a command has ended it; it is then not renewed.
    pub(crate) is_ended_by_command: bool,
}
