//! Runs a study: hosts built from roles, replications on the simulator, the grid on all cores.

pub mod capture;
mod sim;
pub mod sweep;
pub mod world;

pub use sim::SimRunner;
