//! The lab: a network as the simulator has it, of the kernel's own parts. Each host is a network namespace; each link is two
//! veth pairs whose inner ends are in the namespace of a relay, which gives every packet to the machine that impairs the
//! simulator's links ([`usher_core::impair::Channel`]), with the same streams of chance.
//!
//! [`acquire_rights`] makes sure of the rights, [`Lab::build`] makes a [`LabTopology`], [`Lab::start_relay`] begins to relay, and what runs on
//! a host runs in a thread that has entered its [`NetworkNamespace`]. Nothing has a name in the file system that would outlive the
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

pub use check::{DelayMeasurement, LabFeature, check_features, measure_precision};
pub use error::LabError;
pub use hosts::{
    KernelSettings, LabHostCounters, LabHosts, LabSetup, LibrarySamples, SysctlSetting, TimerPrecision,
    UnsupportedSetting, missing_settings, sctp_sysctls, sysctl_settings, unsupported_sctp_settings,
    unsupported_settings,
};
pub use lab::{Lab, RelayOutcome};
pub use namespace::NetworkNamespace;
pub use perf::{CRYPTOGRAPHY, PerfSampler, ProfileSample, SampleTarget};
pub use permission::{MissingRights, NamespaceRights, acquire_rights};
pub use registry::{LabRegistry, LabRemains, ListedHost, ListedLab};
pub use relay::{DelayStats, RelayReport};
pub use topology::{HostSpec, LabTopology, LinkEnd, LinkSpec};
/// Whether this kernel has SCTP, and the sentence where it has none.
pub use usher_sctp::{NoSctp, is_available as has_sctp};
