//! Runs a study: builds hosts from roles, runs replications on the simulator or on a lab, and the grid on all cores.
//!
//! - [`world`]: one run of a scenario, and its metrics
//! - [`sweep`]: all replications of a study, its results folder and its report
//! - [`SimRunner`] and `LabRunner`: the sweep's runners on the simulator and on a lab
//! - [`capture`] and [`ladder`]: packets of a run as pcapng, and as message-flow figures

mod backends;
pub mod capture;
pub mod ladder;
pub mod sweep;
pub mod world;

#[cfg(not(target_arch = "wasm32"))]
pub use backends::LabRunner;
pub use backends::{SimRunner, captured_links};
