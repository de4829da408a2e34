//! The lab: a network as the simulator has it, of the kernel's own parts. Each host is a network namespace; each link is two
//! veth pairs whose inner ends are in the namespace of a relay, which gives every packet to the machine that impairs the
//! simulator's links ([`usher_core::impair::Channel`]), with the same streams of chance.
//!
//! [`acquire`] makes sure of the rights, [`Lab::build`] makes a [`Topology`], [`Lab::start`] begins to relay, and what runs on
//! a host runs in a thread that has entered its [`Namespace`]. Nothing has a name in the file system that would outlive the
//! process: namespaces, interfaces, addresses and routes are gone with its end, whatever that was.

mod check;
mod error;
mod hosts;
mod lab;
mod link;
mod namespace;
mod netlink;
mod perf;
mod permission;
mod registry;
mod relay;
mod sys;
mod topology;

pub use check::{Measured, Offer, offers, precision};
pub use error::LabError;
pub use hosts::{
    Counters, Hosts, Kernel, Precision, Samples, Setting, Setup, Untold, missing, sctp_sysctls, sctp_untold,
    sysctls, untold,
};
pub use lab::{Lab, Outcome};
pub use namespace::Namespace;
pub use perf::{CRYPTOGRAPHY, Sample, Sampled, Sampler};
pub use permission::{Missing, Rights, acquire};
pub use registry::{Left, Listed, ListedHost, Registry};
pub use relay::{Delays, RelayReport};
pub use topology::{End, HostSpec, LinkSpec, Topology};
/// Whether this kernel has SCTP, and the sentence where it has none.
pub use usher_sctp::{NoSctp, is_available as has_sctp};
