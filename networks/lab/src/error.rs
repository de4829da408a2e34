//! Errors of a lab.

use std::io;

/// Why a lab cannot be built or run, with the responsible part and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The network cannot be built.
    #[error("the lab cannot build this network: {0}")]
    Topology(String),
    /// The study uses a feature that a lab lacks.
    #[error("this study cannot run on the lab: {0}")]
    Unfit(String),
    /// A right is missing.
    #[error("{0}")]
    Permission(#[from] crate::NamespacePermissionError),
    /// The kernel rejected a step.
    #[error("the lab could not {doing}: {source}")]
    Kernel {
        /// The step.
        doing: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A thread ended unexpectedly, which is a bug.
    #[error("the lab's {0} ended unexpectedly")]
    Ended(&'static str),
}

/// Adds the failed step to an error of the kernel.
pub(crate) trait ErrorContext<T> {
    /// Converts the error, with a description of the step.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for Result<T, E> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|source| LabError::Kernel { doing: what(), source: source.into() })
    }
}
