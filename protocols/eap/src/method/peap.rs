//! PEAP version 0 (draft-kamath-pppext-peapv0, MS-PEAP): a TLS tunnel with EAP inside.
//!
//! Inner packets have no header (MS-PEAP §3.1.5.6): they are a type and its data. Their code and identifier are those
//! of the outer packet. Only the EAP-TLV packets with the result, at the end, have their own header. A peer answers a
//! server's cryptobinding ([`CryptobindingPolicy`]). With TLS 1.3 the result in the tunnel is the protected indication
//! (RFC 9427 §3.1), for resumed sessions too.

mod binding;
pub(crate) mod peer;
pub(crate) mod server;
#[cfg(test)]
mod tests;
pub(crate) mod tlv;

pub use binding::CryptobindingPolicy;

use super::connection::{PeerTlsBackend, ServerTlsBackend};
use super::tunnel::{TunnelPeer, TunnelServer};
use super::{EapMethodContext, PeerMethod, PeerMethodFactory, ServerMethod, ServerMethodFactory};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::SecureRng;

/// PEAP for a peer.
#[derive(Clone, Debug)]
pub struct PeapPeerFactory {
    /// The TLS configuration or recording.
    pub tls: PeerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// The identity inside the tunnel. The outer identity may be anonymous.
    pub identity: Vec<u8>,
    /// The supported inner methods, preferred first.
    pub inner: Arc<[Box<dyn PeerMethodFactory>]>,
}

/// PEAP for a server. It looks users up by [`UserQuery::User`](super::UserQuery::User) with the inner name.
#[derive(Clone, Debug)]
pub struct PeapServerFactory {
    /// The TLS configuration or recording. A host with a new certificate or revocation list makes a new offer. Logins
    /// in progress keep the old one, and earlier sessions are not resumed.
    pub tls: ServerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// The inner methods, preferred first. The server proposes those of MSCHAPv2, GTC and MD5 that the user's secret
    /// allows.
    pub inner: Arc<[EapType]>,
    /// Whether the server binds the inner method to the tunnel.
    pub cryptobinding: CryptobindingPolicy,
}

impl PeerMethodFactory for PeapPeerFactory {
    fn kind(&self) -> EapType {
        EapType::PEAP
    }
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        let rng = SecureRng::from_seed(context.rng.random_array());
        let phase = peer::PeapPeerPhase::new(self.identity.clone(), self.inner.clone(), rng, context.wall);
        Box::new(TunnelPeer::new(EapType::PEAP, &self.tls, self.fragment, phase, &context))
    }
}

impl ServerMethodFactory for PeapServerFactory {
    fn kind(&self) -> EapType {
        EapType::PEAP
    }
    fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        self.tls.end_sessions(whose);
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        let phase = server::PeapServerPhase::new(self.inner.clone(), self.cryptobinding);
        Box::new(TunnelServer::new(EapType::PEAP, &self.tls, self.fragment, phase, context))
    }
}
