//! Runs a study: hosts built from roles, replications on the simulator or on a lab, the grid on all cores.

pub mod capture;
pub mod ladder;
mod on;
pub mod sweep;
pub mod world;

#[cfg(not(target_arch = "wasm32"))]
pub use on::LabRunner;
pub use on::{SimRunner, captured_links};
