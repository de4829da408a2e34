//! EAP-TLS: TLS 1.2 (RFC 5216) and TLS 1.3 (RFC 9190).

mod peer;
mod server;
#[cfg(test)]
mod tests;

pub use super::connection::{PeerTlsBackend, ServerTlsBackend};
pub use peer::EapTlsPeer;
pub use server::EapTlsServer;

use super::connection::TlsConnection;
use super::{EapMethodContext, PeerMethod, PeerMethodFactory, ServerMethod, ServerMethodFactory};
use crate::packet::EapType;
use alloc::boxed::Box;

/// EAP-TLS for a peer.
#[derive(Clone, Debug)]
pub struct EapTlsPeerFactory {
    /// The TLS configuration or recording.
    pub tls: PeerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
}

/// EAP-TLS for a server.
#[derive(Clone, Debug)]
pub struct EapTlsServerFactory {
    /// The TLS configuration or recording. A host with a new certificate or revocation list makes a new offer. Logins
    /// in progress keep the old one, and earlier sessions are not resumed.
    pub tls: ServerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
}

impl PeerMethodFactory for EapTlsPeerFactory {
    fn kind(&self) -> EapType {
        EapType::TLS
    }
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(EapTlsPeer::new(TlsConnection::for_peer(&self.tls, self.fragment, &context)))
    }
}

impl ServerMethodFactory for EapTlsServerFactory {
    fn kind(&self) -> EapType {
        EapType::TLS
    }
    fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        self.tls.end_sessions(whose);
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        Box::new(EapTlsServer::new(TlsConnection::for_server(
            &self.tls,
            EapType::TLS,
            self.fragment,
            &context,
        )))
    }
}
