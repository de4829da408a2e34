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

pub use aaa::{Bound, Made, ServerRole};
pub use error::WorldError;
#[cfg(not(target_arch = "wasm32"))]
pub use halves::Division;
pub use handshakes::{give_handshake, handshakes};
pub use machine::{Endpoint, EventOrJob, HostAddress};
pub use network::LabFacts;
#[cfg(not(target_arch = "wasm32"))]
pub use on_lab::LabSettings;
pub use run::{Captured, RunResult, World};
pub use topology::{cpu_config, sctp_config, tcp_config};
pub use watch::{Dialogue, Place, Watched};
