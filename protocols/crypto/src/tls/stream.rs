//! TLS between a stream transport and a machine, for every kind of host.

use super::{
    ClientConfig, ServerConfig, TlsClientEngine, TlsEngine, TlsError, TlsOperationCounts, TlsServerEngine,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::Duration;

/// The default timeout of a handshake in every host, from the connection of the transport.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The TLS of one connection. It takes and returns transport octets as on the wire, and application octets in clear. It
/// queues application data until the handshake is complete.
///
/// A live driver puts it between its socket and the machine, the simulator between its TCP connection and the machine.
/// So RadSec and Diameter see the same streams and certificates in both.
#[derive(Debug)]
pub struct TlsStream {
    engine: Box<dyn TlsEngine>,
    trust: TlsTrustConfig,
    /// True if the configuration was replaced since the handshake began.
    replaced: bool,
    up: bool,
    pending_data: Vec<u8>,
}

/// The current configuration of a connection, which decides trust.
#[derive(Clone, Debug)]
pub enum TlsTrustConfig {
    /// An accepted connection.
    Server(ServerConfig),
    /// An opened connection.
    Client(ClientConfig),
}

impl TlsTrustConfig {
    /// Checks that a chain (DER, the peer's own certificate first) is trusted.
    fn verify_chain(&self, chain: &[&[u8]]) -> Result<(), TlsError> {
        match self {
            // A server without client roots requests no client certificate, so the chain is empty and there is nothing
            // to check.
            Self::Server(_) if chain.is_empty() => Ok(()),
            Self::Server(config) => config.verified_client_path(chain).map(drop),
            Self::Client(config) => config.check_server_chain(chain),
        }
    }
}

impl TlsStream {
    /// The TLS of a connection.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(trust: TlsTrustConfig) -> Result<Self, TlsError> {
        let engine: Box<dyn TlsEngine> = match &trust {
            TlsTrustConfig::Server(config) => Box::new(TlsServerEngine::new(config)?),
            TlsTrustConfig::Client(config) => Box::new(TlsClientEngine::new(config)?),
        };
        Ok(Self { engine, trust, replaced: false, up: false, pending_data: Vec::new() })
    }

    /// Appends the first flight of a client to `out`. Call it as soon as the transport is connected.
    pub fn start_handshake(&mut self, out: &mut Vec<u8>) {
        self.engine.write_tls(out);
    }

    /// Reads transport octets. Appends the peer's application data to `data`, and octets to send to `out`; with an
    /// error these are an alert.
    ///
    /// Returns true if this completed the handshake. [`flush_pending`](Self::flush_pending) then sends the queued data,
    /// so that the application can be informed first.
    ///
    /// # Errors
    /// If the connection is over, or the peer is no longer trusted. Its certificates may date from an earlier session
    /// or an earlier configuration. An untrusted peer's data is dropped, and nothing is sent to it.
    pub fn receive_tls(
        &mut self,
        bytes: &[u8],
        data: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool, TlsError> {
        let result = self.engine.read_tls(bytes);
        let completed = !self.up && !self.engine.is_handshaking();
        if completed {
            if self.replaced || self.engine.is_resumed() {
                self.verify_peer()?;
            }
            self.up = true;
        }
        self.engine.take_application(data);
        self.engine.write_tls(out);
        result.map(|()| completed)
    }

    /// Encrypts application data and appends it to `out`. Before [`flush_pending`](Self::flush_pending) the data is
    /// queued. An engine that is over sends nothing.
    pub fn send_application(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.up {
            self.pending_data.extend_from_slice(bytes);
        } else if bytes.is_empty() || self.engine.write_application(bytes).is_ok() {
            self.engine.write_tls(out);
        }
    }

    /// Appends the queued application data to `out`, after the handshake.
    pub fn flush_pending(&mut self, out: &mut Vec<u8>) {
        let early = core::mem::take(&mut self.pending_data);
        self.send_application(&early, out);
    }

    /// The octets of application data queued for the handshake.
    #[must_use]
    pub const fn pending_octets(&self) -> usize {
        self.pending_data.len()
    }

    /// True if the handshake is complete.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// True if it resumed an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.engine.is_resumed()
    }

    /// The peer's own certificate in DER, after the handshake and if the peer presented one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.engine.peer_certificate()
    }

    /// Replaces the configuration that decides trust. During a handshake the check follows its completion.
    ///
    /// # Errors
    /// If the peer is no longer trusted.
    pub fn replace_trust_config(&mut self, trust: TlsTrustConfig) -> Result<(), TlsError> {
        self.trust = trust;
        self.replaced = true;
        if self.up { self.verify_peer() } else { Ok(()) }
    }

    fn verify_peer(&self) -> Result<(), TlsError> {
        self.trust.verify_chain(&self.engine.peer_chain())
    }

    /// Returns the public-key operations since the last call.
    pub fn take_work(&mut self) -> TlsOperationCounts {
        self.engine.take_work()
    }
}
