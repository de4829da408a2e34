//! The lab: a network of the simulator, built from kernel parts. Each host is a network namespace. Each link is two
//! veth pairs whose inner ends are in the namespace of a relay. The relay passes every packet through the simulator's
//! impairments ([`usher_core::impair::Channel`]), with the same random streams.
//!
//! [`acquire_rights`] makes sure of the rights. [`Lab::build`] builds a [`LabTopology`], and [`Lab::start_relay`]
//! starts the relay. A program of a host runs in a thread that has entered its [`NetworkNamespace`].
//!
//! Namespaces, interfaces, addresses and routes have no name in the file system. They disappear with the process,
//! however it ends.

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
    KernelSettings, LabHostCounters, LabHosts, LabSetup, SampleCountsByLibrary, SysctlSetting,
    TimerLatenessStats, UnsupportedSetting, kernel_missing_settings, sctp_sysctls, sysctl_settings,
    unsupported_sctp_settings, unsupported_settings,
};
pub use lab::{Lab, RelayOutcome};
pub use namespace::NetworkNamespace;
pub use perf::{CRYPTOGRAPHY, PerfSampler, ProfileSample, SampleTarget};
pub use permission::{NamespacePermissionError, NamespacePrivilege, acquire_rights};
pub use registry::{LabHostInfo, LabRegistry, RemovedStaleLabs, RunningLabInfo};
pub use relay::{DelayStats, RelayReport};
pub use topology::{HostSpec, LabTopology, LinkEnd, LinkSpec};
/// The test for SCTP in this kernel, and its error.
pub use usher_sctp::{SctpUnavailable, is_available as has_sctp};
