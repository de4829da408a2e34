//! TLS between a socket and the machine, whose configuration can be replaced.

use crate::counters::DriverCounters;
use crate::sockets::{TlsOutcome, TlsOutcomes};
use crate::{TlsClient, TlsServer};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{ClientConfig, ServerConfig, TlsError, TlsStream, Trust};

/// One connection's TLS, and where other configurations of whom it trusts come from.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) stream: TlsStream,
    next: Next,
    outcomes: Arc<TlsOutcomes>,
}

#[derive(Debug)]
enum Next {
    Server(watch::Receiver<ServerConfig>),
    Client(watch::Receiver<ClientConfig>),
}

impl Next {
    fn current(&mut self) -> Trust {
        match self {
            Self::Server(next) => Trust::Server(next.borrow_and_update().clone()),
            Self::Client(next) => Trust::Client(next.borrow_and_update().clone()),
        }
    }
}

impl Tls {
    pub(crate) fn server(tls: &TlsServer) -> Result<Self, TlsError> {
        Self::new(Next::Server(tls.watch()), tls.outcomes())
    }

    pub(crate) fn client(tls: &TlsClient) -> Result<Self, TlsError> {
        Self::new(Next::Client(tls.watch()), tls.outcomes())
    }

    fn new(mut next: Next, outcomes: Arc<TlsOutcomes>) -> Result<Self, TlsError> {
        Ok(Self { stream: TlsStream::new(next.current())?, next, outcomes })
    }

    /// It ends the connection: of those of its configuration the first is remembered.
    pub(crate) fn ended(&self, remote: SocketAddr, error: TlsError) {
        self.outcomes.failed(remote, error);
    }

    /// The handshake is complete.
    pub(crate) fn is_up(&self, remote: SocketAddr) {
        self.outcomes.tell(remote, &TlsOutcome::Up(self.stream.certificate()));
    }

    /// Waits for another configuration and goes on with it.
    ///
    /// # Errors
    /// The peer is not trusted any more.
    pub(crate) async fn replaced(&mut self) -> Result<(), TlsError> {
        let gone = match &mut self.next {
            Next::Server(next) => next.changed().await.is_err(),
            Next::Client(next) => next.changed().await.is_err(),
        };
        if gone {
            // Nobody can replace it any more.
            std::future::pending::<()>().await;
        }
        self.stream.replace(self.next.current())
    }
}

/// Counts an error by its kind.
pub(crate) fn count(counters: &DriverCounters, error: &TlsError) {
    let counter = match error.fault() {
        TlsFault::Alert(_) => &counters.tls_alert,
        TlsFault::Certificate(_) | TlsFault::NoCertificate => &counters.tls_certificate,
        TlsFault::Malformed => &counters.tls_not_tls,
        _ => &counters.tls_other,
    };
    counter.one();
}
