//! PEAP version 0 (draft-kamath-pppext-peapv0, MS-PEAP): a tunnel of TLS, and EAP inside it.
//!
//! The packets inside go without their headers (MS-PEAP §3.1.5.6): a type and its data; code and identifier are those
//! of the packet that carries them. Only the EAP-TLV packets with the result, at the end, have their own. A peer
//! answers a server that binds the method inside to the tunnel ([`CryptobindingPolicy`]). With TLS 1.3 the result in the tunnel is the
//! protected indication (RFC 9427 §3.1), resumed sessions included.

mod binding;
pub(crate) mod peer;
pub(crate) mod server;
#[cfg(test)]
mod tests;
pub(crate) mod tlv;

pub use binding::CryptobindingPolicy;

use super::connection::{PeerTls, ServerTls};
use super::tunnel::{TunnelPeer, TunnelServer};
use super::{MethodContext, PeerMethod, PeerOffer, ServerMethod, ServerOffer};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::SecureRng;

/// PEAP for a peer.
#[derive(Clone, Debug)]
pub struct PeerMethodPeap {
    /// Its TLS.
    pub tls: PeerTls,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// Who it is inside the tunnel; the outer identity may be anonymous.
    pub identity: Vec<u8>,
    /// What it can do inside, the preferred method first.
    pub inner: Arc<[Box<dyn PeerOffer>]>,
}

/// PEAP for a server. Users are asked for by [`Question::User`](super::UserQuery::User) with the name given inside.
#[derive(Clone, Debug)]
pub struct ServerMethodPeap {
    /// Its TLS. A host with a new certificate or revocation list makes a new offer for the logins to come; those under
    /// way keep theirs, and earlier sessions are not resumed.
    pub tls: ServerTls,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// The methods inside, the preferred one first: of MSCHAPv2, GTC and MD5 those that the user's secret allows are
    /// proposed.
    pub inner: Arc<[EapType]>,
    /// Whether the method inside is bound to the tunnel.
    pub cryptobinding: CryptobindingPolicy,
}

impl PeerOffer for PeerMethodPeap {
    fn kind(&self) -> EapType {
        EapType::PEAP
    }
    fn start_peer_method(&self, context: MethodContext<'_>) -> Box<dyn PeerMethod> {
        let rng = SecureRng::from_seed(context.rng.random_array());
        let phase = peer::PeapPeerPhase::new(self.identity.clone(), self.inner.clone(), rng, context.wall);
        Box::new(TunnelPeer::new(EapType::PEAP, &self.tls, self.fragment, phase, &context))
    }
}

impl ServerOffer for ServerMethodPeap {
    fn kind(&self) -> EapType {
        EapType::PEAP
    }
    fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        self.tls.end_sessions(whose);
    }
    fn start_server_method(&self, context: MethodContext<'_>) -> Box<dyn ServerMethod> {
        let phase = server::PeapServerPhase::new(self.inner.clone(), self.cryptobinding);
        Box::new(TunnelServer::new(EapType::PEAP, &self.tls, self.fragment, phase, context))
    }
}
