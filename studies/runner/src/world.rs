//! One run of a scenario: hosts built from roles, a workload, metrics.

mod aaa;
mod arrivals;
mod background;
mod cpu;
mod dialogue;
mod eap;
mod error;
#[cfg(not(target_arch = "wasm32"))]
mod halves;
mod handover;
mod handshakes;
mod helpers;
mod ident;
mod ike;
mod ike_service;
#[cfg(not(target_arch = "wasm32"))]
mod lab_run;
mod machine;
mod measure;
mod measured;
mod mih;
mod mih_service;
#[cfg(test)]
mod names;
mod network;
mod network_assembly;
mod plan;
mod pppoe;
mod report;
mod role;
mod router;
mod run;
mod short;
mod tls;
mod topology;
mod watch;
mod writer;

pub use aaa::{AaaServiceInputs, ServerRole, SimulatedAaaService};
pub use error::ScenarioRunError;
#[cfg(not(target_arch = "wasm32"))]
pub use halves::RunDivisionOutcome;
pub use handshakes::{add_recorded_handshake, export_handshakes};
#[cfg(not(target_arch = "wasm32"))]
pub use lab_run::LabRunSettings;
pub use machine::{HostAddress, MachineEventOrJob, MachineSockets};
pub use network::LabRunStats;
pub use run::{RunCapture, RunResult, ScenarioRun};
pub use topology::{cpu_config, sctp_config, tcp_config};
pub use watch::{ObservedDialogue, ObservedHost, RunObservation};
