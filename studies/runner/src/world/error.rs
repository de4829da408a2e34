//! Errors of a run.

use usher_core::Instant;
use usher_sim::SimError;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A role names a host that the study does not have.
    #[error("no host is named `{0}`")]
    NoHost(String),
    /// The simulator's error.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A host needed a stream that its association does not have.
    #[error(
        "{} after the beginning, \"{host}\" had to send by a stream that its SCTP association does not have: it has \
         {streams}; transport.sctp.accepted_streams is how many the side has that accepts an association, and the \
         workload's streams how many the other side asks for", .at.duration_since(Instant::ZERO)
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
    #[error("{} after the beginning, which of two events is first is not known to two threads", .0.duration_since(Instant::ZERO))]
    Undecided(Instant),
    /// A role rejected its settings.
    #[error("{0}")]
    Role(String),
    /// The lab cannot be created, or it failed.
    #[cfg(not(target_arch = "wasm32"))]
    #[error(transparent)]
    Lab(#[from] usher_lab::LabError),
    /// The run was stopped early.
    #[error("ended before its time")]
    Stopped,
}
