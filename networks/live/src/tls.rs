//! TLS between a socket and the machine.

use crate::counters::DriverCounters;
use crate::{TlsClient, TlsServer};
use tokio::sync::watch;
use usher_crypto::fault::TlsFault;
use usher_crypto::tls::{Client, ClientConfig, Server, ServerConfig, TlsEngine, TlsError};

/// One connection's engine, and whom it trusts.
#[derive(Debug)]
pub(crate) struct Tls {
    engine: Box<dyn TlsEngine>,
    trust: Trust,
    /// Whether another configuration has come since the handshake began.
    replaced: bool,
}

/// The configuration that says whom a connection trusts, as it is now.
#[derive(Debug)]
enum Trust {
    Server(watch::Receiver<ServerConfig>),
    Client(watch::Receiver<ClientConfig>),
}

impl Tls {
    pub(crate) fn server(tls: &TlsServer) -> Result<Self, TlsError> {
        let mut trust = tls.watch();
        let engine = Box::new(Server::new(&trust.borrow_and_update())?);
        Ok(Self { engine, trust: Trust::Server(trust), replaced: false })
    }

    pub(crate) fn client(tls: &TlsClient) -> Result<Self, TlsError> {
        let mut trust = tls.watch();
        let engine = Box::new(Client::new(&trust.borrow_and_update())?);
        Ok(Self { engine, trust: Trust::Client(trust), replaced: false })
    }

    /// Waits for another configuration.
    pub(crate) async fn replaced(&mut self) {
        let gone = match &mut self.trust {
            Trust::Server(trust) => trust.changed().await.is_err(),
            Trust::Client(trust) => trust.changed().await.is_err(),
        };
        if gone {
            // Nobody can replace it any more.
            std::future::pending::<()>().await;
        }
        self.replaced = true;
    }

    /// Whether the peer's certificates are trusted by the configuration as it is now.
    pub(crate) fn is_trusted(&self) -> bool {
        let chain = self.engine.peer_chain();
        match &self.trust {
            // Who accepts anybody has nothing to ask for.
            Trust::Server(trust) => chain.is_empty() || trust.borrow().client_path(&chain).is_ok(),
            Trust::Client(trust) => trust.borrow().trusts(&chain).is_ok(),
        }
    }

    /// Whether the handshake that was completed verified the peer's certificates by another configuration, or a while
    /// ago: it took up an earlier session.
    pub(crate) fn verified_before(&self) -> bool {
        self.replaced || self.resumed()
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_up(&self) -> bool {
        !self.engine.is_handshaking()
    }

    /// Whether it took up an earlier session.
    pub(crate) fn resumed(&self) -> bool {
        self.engine.resumed()
    }

    /// The peer's certificate.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        self.engine.peer_certificate().map(<[u8]>::to_vec)
    }

    /// Appends what is to be sent.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        self.engine.take(out);
    }

    /// Reads what the peer sent: appends what it says to `data`, and what is to be sent to `out`, on an error
    /// an alert.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let result = self.engine.feed(bytes);
        self.engine.take_application(data);
        self.engine.take(out);
        result
    }

    /// Encrypts `bytes` to the end of `out`.
    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        if !bytes.is_empty() {
            self.engine.write_application(bytes)?;
        }
        self.engine.take(out);
        Ok(())
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
