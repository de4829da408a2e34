//! TLS between a socket and the machine, with a replaceable configuration.

use crate::counters::DriverCounters;
use crate::sockets::{TlsConnectionMonitor, TlsConnectionOutcome};
use crate::{TlsClient, TlsServer};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{ClientConfig, ServerConfig, TlsError, TlsStream, TlsTrustConfig};

/// The TLS of one connection, and the source of new trust configurations.
#[derive(Debug)]
pub(crate) struct TlsConnection {
    pub(crate) stream: TlsStream,
    next: TlsConfigUpdates,
    outcomes: Arc<TlsConnectionMonitor>,
}

#[derive(Debug)]
enum TlsConfigUpdates {
    Server(watch::Receiver<ServerConfig>),
    Client(watch::Receiver<ClientConfig>),
}

impl TlsConfigUpdates {
    fn current_trust(&mut self) -> TlsTrustConfig {
        match self {
            Self::Server(next) => TlsTrustConfig::Server(next.borrow_and_update().clone()),
            Self::Client(next) => TlsTrustConfig::Client(next.borrow_and_update().clone()),
        }
    }
}

impl TlsConnection {
    pub(crate) fn for_server(tls: &TlsServer) -> Result<Self, TlsError> {
        Self::new(TlsConfigUpdates::Server(tls.watch()), tls.outcomes())
    }

    pub(crate) fn for_client(tls: &TlsClient) -> Result<Self, TlsError> {
        Self::new(TlsConfigUpdates::Client(tls.watch()), tls.outcomes())
    }

    fn new(mut next: TlsConfigUpdates, outcomes: Arc<TlsConnectionMonitor>) -> Result<Self, TlsError> {
        Ok(Self { stream: TlsStream::new(next.current_trust())?, next, outcomes })
    }

    /// Reports a failure; the first one of a configuration is recorded.
    pub(crate) fn report_failure(&self, remote: SocketAddr, error: TlsError) {
        self.outcomes.report_failure(remote, error);
    }

    /// Reports a complete handshake.
    pub(crate) fn is_up(&self, remote: SocketAddr) {
        self.outcomes.report_outcome(remote, &TlsConnectionOutcome::Up(self.stream.peer_certificate()));
    }

    /// Waits for a new configuration and applies it.
    ///
    /// # Errors
    /// The peer is no longer trusted.
    pub(crate) async fn wait_for_config_replacement(&mut self) -> Result<(), TlsError> {
        let gone = match &mut self.next {
            TlsConfigUpdates::Server(next) => next.changed().await.is_err(),
            TlsConfigUpdates::Client(next) => next.changed().await.is_err(),
        };
        if gone {
            // The sender is gone, so the configuration can never change again.
            std::future::pending::<()>().await;
        }
        self.stream.replace_trust_config(self.next.current_trust())
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
