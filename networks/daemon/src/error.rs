//! Errors of a server's start and run.

use crate::installation::InstallationError;
use std::net::SocketAddr;

/// An error that stops the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Configuration, files or store.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// A contradiction in the settings.
    #[error("{0}")]
    Config(String),
    /// An address cannot be bound.
    #[error("cannot listen on {address} ({what}): {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Purpose of the address.
        what: &'static str,
        /// Error of the system.
        error: std::io::Error,
    },
    /// A thread, socket or signal failed.
    #[error("{what}: {error}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// Error of the system.
        error: std::io::Error,
    },
}
