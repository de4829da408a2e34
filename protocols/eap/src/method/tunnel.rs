//! What PEAP and EAP-TTLS share: TLS first (phase 1), then a conversation through it (phase 2), which each of them
//! has its own way to write down.

mod peer;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use peer::{PeerPhase, TunnelPeer};
pub(crate) use server::{PhaseVerdict, ServerPhase, TunnelContext, TunnelServer};

use super::connection::TlsConnection;
use super::{MethodFault, ServerOffer, UserSecret, gtc, md5, mschapv2};
use crate::packet::EapType;
use crate::server::EapServer;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest name that is asked for: as long as RADIUS's User-Name (RFC 2865 §5.1).
pub(crate) const MAX_NAME: usize = 253;

/// The EAP methods that may admit a user of whom this secret is known, in the order given.
pub(crate) fn server_offers(kinds: &[EapType], secret: &UserSecret) -> Vec<Box<dyn ServerOffer>> {
    let offer = |kind: &EapType| -> Option<Box<dyn ServerOffer>> {
        match (*kind, secret) {
            (EapType::MSCHAPV2, secret) => Some(Box::new(mschapv2::MsChapV2Verifier::new(secret)?)),
            (EapType::GTC, secret) => Some(Box::new(gtc::GtcPrompt::new(secret.clone()))),
            (EapType::MD5, UserSecret::Clear(password)) => Some(Box::new(md5::Md5Password::new(password))),
            _ => None,
        }
    };
    kinds.iter().filter_map(offer).collect()
}

/// Why a conversation inside failed that these methods may settle: where the peer wishes for one of them, or for none
/// and was offered none, it is the secret that does not do.
pub(crate) fn inner_fault(server: &EapServer, kinds: &[EapType]) -> MethodFault {
    let wished = server.wanted_types();
    match server.fault() {
        Some(fault) => fault,
        None if kinds.is_empty() => MethodFault::NoInner,
        None if wished.is_empty() || kinds.iter().any(|kind| wished.contains(&kind.0)) => MethodFault::Secret,
        None => MethodFault::NoInner,
    }
}

/// Takes what came out of the tunnel.
fn take_application_data(conn: &mut TlsConnection) -> Vec<u8> {
    let mut data = Vec::new();
    conn.engine.take_application(&mut data);
    data
}
