//! TLS between a socket and the machine, with a replaceable configuration.

use crate::counters::DriverCounters;
use crate::sockets::{TlsOutcome, TlsOutcomes};
use crate::{TlsClient, TlsServer};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{ClientConfig, ServerConfig, TlsError, TlsStream, TrustConfig};

/// The TLS of one connection, and the source of new trust configurations.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream,
    next: ConfigUpdates,
    outcomes: Arc<TlsOutcomes>,
}

#[derive(Debug)]
enum ConfigUpdates {
    Server(watch::Receiver<ServerConfig>),
    Client(watch::Receiver<ClientConfig>),
}

impl ConfigUpdates {
    fn current_trust(&mut self) -> TrustConfig {
        match self {
            Self::Server(next) => TrustConfig::Server(next.borrow_and_update().clone()),
            Self::Client(next) => TrustConfig::Client(next.borrow_and_update().clone()),
        }
    }
}

impl TlsConnection {
    pub(crate) fn for_server(tls: &TlsServer) -> Result<Self, TlsError> {
        Self::new(ConfigUpdates::Server(tls.watch()), tls.outcomes())
    }

    pub(crate) fn for_client(tls: &TlsClient) -> Result<Self, TlsError> {
        Self::new(ConfigUpdates::Client(tls.watch()), tls.outcomes())
    }

    fn new(mut next: ConfigUpdates, outcomes: Arc<TlsOutcomes>) -> Result<Self, TlsError> {
        Ok(Self { stream: TlsStream::new(next.current_trust())?, next, outcomes })
    }

    /// Reports a failure; the first one of a configuration is recorded.
    pub(crate) fn report_failure(&self, remote: SocketAddr, error: TlsError) {
        self.outcomes.report_failure(remote, error);
    }

    /// Reports a complete handshake.
    pub(crate) fn is_up(&self, remote: SocketAddr) {
        self.outcomes.report_outcome(remote, &TlsOutcome::Up(self.stream.peer_certificate()));
    }

    /// Waits for a new configuration and applies it.
    ///
    /// # Errors
    /// The peer is no longer trusted.
    pub(crate) async fn wait_replacement(&mut self) -> Result<(), TlsError> {
        let gone = match &mut self.next {
            ConfigUpdates::Server(next) => next.changed().await.is_err(),
            ConfigUpdates::Client(next) => next.changed().await.is_err(),
        };
        if gone {
            // The configuration can no longer be replaced.
            std::future::pending::<()>().await;
        }
        self.stream.replace_trust(self.next.current_trust())
    }
}

/// Counts a TLS error by its kind.
pub(crate) fn count_error(counters: &DriverCounters, error: &TlsError) {
    let counter = match error.fault() {
        TlsFault::Alert(_) => &counters.tls_alert,
        TlsFault::Certificate(_) | TlsFault::NoCertificate => &counters.tls_certificate,
        TlsFault::Malformed => &counters.tls_not_tls,
        _ => &counters.tls_other,
    };
    counter.increment();
}
