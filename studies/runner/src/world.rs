//! One run of a scenario: hosts built from roles, a workload, metrics.

mod aaa;
mod arrivals;
mod background;
mod built;
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
mod machine;
mod measure;
mod measured;
mod mih;
mod mih_service;
#[cfg(test)]
mod names;
mod network;
#[cfg(not(target_arch = "wasm32"))]
mod on_lab;
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

pub use aaa::{AaaServiceInputs, BoundAaaService, ServerRole};
pub use error::WorldError;
#[cfg(not(target_arch = "wasm32"))]
pub use halves::RunDivision;
pub use handshakes::{export_handshakes, give_handshake};
pub use machine::{EventOrJob, HostAddress, MachineEndpoint};
pub use network::LabFacts;
#[cfg(not(target_arch = "wasm32"))]
pub use on_lab::LabSettings;
pub use run::{RunCapture, RunResult, ScenarioRun};
pub use topology::{cpu_config, sctp_config, tcp_config};
pub use watch::{ObservedDialogue, ObservedHost, RunObservation};
