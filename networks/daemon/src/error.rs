//! Why a server does not serve.

use crate::installation::InstallationError;
use std::net::SocketAddr;

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its configuration, files or store.
    #[error(transparent)]
    Installation(#[from] InstallationError),
    /// What it is told does not fit together.
    #[error("{0}")]
    Config(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({what}): {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// For what.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
    /// A thread, a socket, a signal.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        error: std::io::Error,
    },
}
