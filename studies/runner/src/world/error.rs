//! Errors of a run.

use usher_core::Instant;
use usher_sim::SimError;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioRunError {
    /// A role names a host that the study does not have.
    #[error("no host is named `{0}`")]
    NoHost(String),
    /// The simulator's error.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A host needed a stream that its association does not have.
    #[error(
        "{} after the start, \"{host}\" had to send by an SCTP stream that its association lacks: it has {streams}; \
         raise transport.sctp.accepted_streams for the side that accepts associations, or the workload's streams for \
         the other side", .at.duration_since(Instant::ZERO)
    )]
    NoStream {
        /// The host's name in the study.
        host: String,
        /// The time of the send.
        at: Instant,
        /// Number of outbound streams of its association.
        streams: u16,
    },
    /// Two threads, each with a half of the network, cannot order two events; one thread can.
    #[error(
        "{} after the start, two threads cannot order two events: use one thread",
        .0.duration_since(Instant::ZERO)
    )]
    Undecided(Instant),
    /// A role rejected its settings.
    #[error("{0}")]
    Role(String),
    /// The lab cannot be created, or it failed.
    #[cfg(not(target_arch = "wasm32"))]
    #[error(transparent)]
    Lab(#[from] usher_lab::LabError),
    /// The run was stopped early.
    #[error("the run was stopped early")]
    Stopped,
}
