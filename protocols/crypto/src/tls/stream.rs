//! TLS between a stream transport and the machine above it, whatever host carries the octets.

use super::{ClientConfig, ServerConfig, TlsClientEngine, TlsEngine, TlsError, TlsServerEngine, TlsWork};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::Duration;

/// How long a handshake may take, from when the transport is connected: the same in every host that is not told otherwise.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection's TLS: octets of the transport go in and come out as they are on the wire, those of the application as it
/// says them. What the application says before the handshake is complete waits here.
///
/// A live driver has one between its socket and the machine, the simulator one between its TCP connection and the machine,
/// so that RadSec and Diameter see the same streams with a certificate in both.
#[derive(Debug)]
pub struct TlsStream {
    engine: Box<dyn TlsEngine>,
    trust: TrustConfig,
    /// Whether another configuration has come since the handshake began.
    replaced: bool,
    up: bool,
    pending_data: Vec<u8>,
}

/// The configuration that says whom a connection trusts, as it is now.
#[derive(Clone, Debug)]
pub enum TrustConfig {
    /// Of a connection that was accepted.
    Server(ServerConfig),
    /// Of one that was opened.
    Client(ClientConfig),
}

impl TrustConfig {
    /// Whether a chain of certificates, DER, the peer's own first, is trusted.
    fn verify_chain(&self, chain: &[&[u8]]) -> Result<(), TlsError> {
        match self {
            // Who accepts anybody has nothing to ask for.
            Self::Server(_) if chain.is_empty() => Ok(()),
            Self::Server(config) => config.client_path(chain).map(drop),
            Self::Client(config) => config.check_server_chain(chain),
        }
    }
}

impl TlsStream {
    /// The TLS of a connection.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(trust: TrustConfig) -> Result<Self, TlsError> {
        let engine: Box<dyn TlsEngine> = match &trust {
            TrustConfig::Server(config) => Box::new(TlsServerEngine::new(config)?),
            TrustConfig::Client(config) => Box::new(TlsClientEngine::new(config)?),
        };
        Ok(Self { engine, trust, replaced: false, up: false, pending_data: Vec::new() })
    }

    /// Appends to `out` what is to be sent as soon as the transport is connected: a client's first flight.
    pub fn start_handshake(&mut self, out: &mut Vec<u8>) {
        self.engine.write_tls(out);
    }

    /// Reads what the transport brought: appends what the peer's application says to `data` and what is to be sent to
    /// `out`, also with an error, then an alert. True: this completed the handshake; what waited for that
    /// is sent by [`release`](Self::flush_pending), so that the application can be told first.
    ///
    /// # Errors
    /// The connection is over, or a peer whose certificates were verified earlier (of a session that was taken up, or before
    /// another configuration came) is not trusted any more: of such a one nothing is heard, and it is sent nothing.
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

    /// Appends to `out` what the application says, encrypted. Before [`release`](Self::flush_pending) it waits; an engine that is
    /// over says nothing more.
    pub fn send_application(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.up {
            self.pending_data.extend_from_slice(bytes);
        } else if bytes.is_empty() || self.engine.write_application(bytes).is_ok() {
            self.engine.write_tls(out);
        }
    }

    /// After the handshake: appends to `out` what the application said before.
    pub fn flush_pending(&mut self, out: &mut Vec<u8>) {
        let early = core::mem::take(&mut self.pending_data);
        self.send_application(&early, out);
    }

    /// Octets of the application that wait for the handshake.
    #[must_use]
    pub const fn pending_octets(&self) -> usize {
        self.pending_data.len()
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// Whether it took up an earlier session.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.engine.is_resumed()
    }

    /// The peer's own certificate, DER, once the handshake is complete and if it showed one.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.engine.peer_certificate()
    }

    /// Goes on with another configuration of whom it trusts. Of a handshake under way that is asked when it is complete.
    ///
    /// # Errors
    /// The peer is not trusted any more.
    pub fn replace_trust(&mut self, trust: TrustConfig) -> Result<(), TlsError> {
        self.trust = trust;
        self.replaced = true;
        if self.up { self.verify_peer() } else { Ok(()) }
    }

    fn verify_peer(&self) -> Result<(), TlsError> {
        self.trust.verify_chain(&self.engine.peer_chain())
    }

    /// The public-key operations done since this was last asked.
    pub fn take_work(&mut self) -> TlsWork {
        self.engine.take_work()
    }
}
