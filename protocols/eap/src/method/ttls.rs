//! EAP-TTLS version 0 (RFC 5281): a TLS tunnel with AVPs inside, which carry PAP, CHAP, MS-CHAP, MS-CHAP-V2 or EAP.
//!
//! The challenges of CHAP and MS-CHAP derive from the tunnel's keys (RFC 5281 §11.1). An attacker thus cannot relay a
//! response from elsewhere. A resumed TLS 1.3 session has no phase 2 and ends with EAP-TLS's zero octet. Other sessions
//! have no such octet (RFC 9427 §3).

pub(crate) mod avp;
pub(crate) mod peer;
pub(crate) mod server;
#[cfg(test)]
mod tests;

use super::connection::{PeerTlsBackend, ServerTlsBackend, TlsConnection};
use super::tunnel::{TunnelPeer, TunnelServer};
use super::{
    EapMethodContext, InnerMethod, PeerMethod, PeerMethodFactory, ServerMethod, ServerMethodFactory,
};
use crate::packet::EapType;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::SecureRng;
use usher_crypto::SecretValue;

/// A peer's proof inside the tunnel. Passwords are in clear.
#[derive(Clone)]
pub enum TtlsInnerCredential {
    /// PAP: the password itself.
    Pap(SecretValue),
    /// CHAP.
    Chap(SecretValue),
    /// MS-CHAP.
    MsChap(SecretValue),
    /// MS-CHAP-V2. The server proves that it knows the password, too.
    MsChapV2(SecretValue),
    /// EAP with these methods, preferred first.
    Eap(Arc<[Box<dyn PeerMethodFactory>]>),
}

impl fmt::Debug for TtlsInnerCredential {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pap(_) => "Pap(..)",
            Self::Chap(_) => "Chap(..)",
            Self::MsChap(_) => "MsChap(..)",
            Self::MsChapV2(_) => "MsChapV2(..)",
            Self::Eap(_) => "Eap(..)",
        })
    }
}

/// EAP-TTLS for a peer.
#[derive(Clone, Debug)]
pub struct TtlsPeerFactory {
    /// The TLS configuration or recording.
    pub tls: PeerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// The identity inside the tunnel. The outer identity may be anonymous.
    pub identity: Vec<u8>,
    /// The proof of that identity.
    pub proof: TtlsInnerCredential,
}

/// EAP-TTLS for a server. It looks users up by [`UserQuery::User`](super::UserQuery::User) with the inner name.
#[derive(Clone, Debug)]
pub struct TtlsServerFactory {
    /// The TLS configuration or recording. A host with a new certificate or revocation list makes a new offer. Logins
    /// in progress keep the old one, and earlier sessions are not resumed.
    pub tls: ServerTlsBackend,
    /// The longest EAP packet that it sends, octets.
    pub fragment: usize,
    /// The accepted inner methods; of EAP methods, preferred first.
    pub inner: Arc<[InnerMethod]>,
}

impl PeerMethodFactory for TtlsPeerFactory {
    fn kind(&self) -> EapType {
        EapType::TTLS
    }
    fn start_peer_method(&self, context: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        let rng = SecureRng::from_seed(context.rng.random_array());
        let phase = peer::TtlsPeerPhase::new(self.identity.clone(), &self.proof, rng, context.wall);
        Box::new(TunnelPeer::new(EapType::TTLS, &self.tls, self.fragment, phase, &context))
    }
}

impl ServerMethodFactory for TtlsServerFactory {
    fn kind(&self) -> EapType {
        EapType::TTLS
    }
    fn end_sessions(&self, whose: &dyn Fn(&[u8]) -> bool) {
        self.tls.end_sessions(whose);
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        let phase = server::TtlsServerPhase::new(self.inner.clone());
        Box::new(TunnelServer::new(EapType::TTLS, &self.tls, self.fragment, phase, context))
    }
}

/// Octets of the implicit challenge of CHAP and MS-CHAP-V2; the next constant is MS-CHAP's.
const CHALLENGE: usize = 16;
const SHORT_CHALLENGE: usize = 8;

/// The implicit challenge and the identifier (RFC 5281 §11.1; RFC 9427 §2.3).
fn tunnel_challenge<const N: usize>(conn: &TlsConnection) -> Option<([u8; N], u8)> {
    let mut material = [0; CHALLENGE + 1];
    let material = &mut material[..=N];
    conn.engine.export_keying_material("ttls challenge", None, material).ok()?;
    Some((material[..N].try_into().ok()?, material[N]))
}
