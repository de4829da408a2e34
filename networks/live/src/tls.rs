//! TLS between a socket and the machine.

use crate::counters::DriverCounters;
use usher_crypto::tls::{Client, ClientConfig, Server, ServerConfig, TlsEngine, TlsError};

/// One connection's engine.
#[derive(Debug)]
pub(crate) struct Tls(Box<dyn TlsEngine>);

impl Tls {
    pub(crate) fn server(config: &ServerConfig) -> Result<Self, TlsError> {
        Ok(Self(Box::new(Server::new(config)?)))
    }

    pub(crate) fn client(config: &ClientConfig) -> Result<Self, TlsError> {
        Ok(Self(Box::new(Client::new(config)?)))
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_up(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Whether it took up an earlier session.
    pub(crate) fn resumed(&self) -> bool {
        self.0.resumed()
    }

    /// The peer's certificate.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        self.0.peer_certificate().map(<[u8]>::to_vec)
    }

    /// Appends what is to be sent.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        self.0.take(out);
    }

    /// Reads what the peer sent: appends what it says to `data`, and what is to be sent to `out`, on an error
    /// an alert.
    pub(crate) fn read(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let result = self.0.feed(bytes);
        self.0.take_application(data);
        self.0.take(out);
        result
    }

    /// Encrypts `bytes` to the end of `out`.
    pub(crate) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        if !bytes.is_empty() {
            self.0.write_application(bytes)?;
        }
        self.0.take(out);
        Ok(())
    }
}

/// Counts an error by its kind. The engine's errors are texts: the kinds are told apart by their beginnings.
pub(crate) fn count(counters: &DriverCounters, error: &TlsError) {
    let counter = match error {
        TlsError::AlertReceived(_) => &counters.tls_alert,
        TlsError::Failed(text) => match text.as_str() {
            t if t.contains("invalid peer certificate") || t.contains("peer sent no certificates") => {
                &counters.tls_certificate
            }
            t if t.contains("received corrupt message") => &counters.tls_not_tls,
            _ => &counters.tls_other,
        },
        _ => &counters.tls_other,
    };
    counter.one();
}
