//! Why a lab cannot be.

use std::io;

/// Why a lab cannot be built or run: who is at fault, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The network asked for cannot be.
    #[error("the lab cannot build this network: {0}")]
    Topology(String),
    /// The study has what a lab has not.
    #[error("this study cannot run on the lab: {0}")]
    Unfit(String),
    /// The system does not let us.
    #[error("{0}")]
    Permission(#[from] crate::MissingRights),
    /// The kernel refused a step.
    #[error("the lab could not {doing}: {source}")]
    Kernel {
        /// What was being done.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread of ours ended by itself, which is our fault.
    #[error("the lab's {0} ended unexpectedly")]
    Ended(&'static str),
}

/// Says what was being done when the kernel refused.
pub(crate) trait ErrorContext<T> {
    /// As an error of the lab.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for Result<T, E> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|source| LabError::Kernel { doing: what(), source: source.into() })
    }
}
