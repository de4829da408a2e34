//! EAP-TLS: TLS 1.2 (RFC 5216) and TLS 1.3 (RFC 9190).

mod peer;
mod server;
#[cfg(test)]
mod tests;

pub use super::connection::{PeerTls, ServerTls};
pub use peer::Peer;
pub use server::Server;

use super::connection::TlsConnection;
use super::{Context, PeerMethod, PeerOffer, ServerMethod, ServerOffer};
use crate::packet::Type;
use alloc::boxed::Box;

/// EAP-TLS for a peer.
#[derive(Clone, Debug)]
pub struct PeerMethodTls {
    /// Its TLS.
    pub tls: PeerTls,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
}

/// EAP-TLS for a server.
#[derive(Clone, Debug)]
pub struct ServerMethodTls {
    /// Its TLS. A host with a new certificate or revocation list makes a new offer for the logins to come; those under
    /// way keep theirs, and earlier sessions are not resumed.
    pub tls: ServerTls,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
}

impl PeerOffer for PeerMethodTls {
    fn kind(&self) -> Type {
        Type::TLS
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(Peer::new(TlsConnection::peer(&self.tls, self.fragment, &context)))
    }
}

impl ServerOffer for ServerMethodTls {
    fn kind(&self) -> Type {
        Type::TLS
    }
    fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        self.tls.end_sessions(whose);
    }
    fn begin(&self, context: Context<'_>) -> Box<dyn ServerMethod> {
        Box::new(Server::new(TlsConnection::server(&self.tls, Type::TLS, self.fragment, &context)))
    }
}
