//! Errors of a server's start and run.

use crate::installation::InstallationError;
use std::io;

/// An error that stops the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Configuration, files or store.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// A contradiction in the settings.
    #[error("{0}")]
    Config(String),
    /// An address, a thread, a socket or a signal handler is unavailable.
    #[error(transparent)]
    Service(#[from] usher_service::ServeError),
}

/// Converts an error of the system in this operation.
pub(crate) fn system_error(what: &'static str) -> impl FnOnce(io::Error) -> ServeError + Copy {
    move |error| usher_service::ServeError::system(what, error).into()
}
