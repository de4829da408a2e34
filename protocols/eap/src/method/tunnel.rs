//! The tunnel of PEAP and EAP-TTLS: TLS first (phase 1), then a conversation through it (phase 2). Each method has its
//! own encoding of phase 2.

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

/// The longest user name, that of RADIUS's User-Name (RFC 2865 §5.1).
pub(crate) const MAX_NAME: usize = 253;

/// The EAP methods that can verify a user with this secret, in the order given.
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

/// The reason for the failure of the inner conversation. `kinds` are the configured methods. If none could run with the
/// user's secret, or the peer wanted a configured one, the reason is the secret.
pub(crate) fn inner_fault(server: &EapServer, kinds: &[EapType]) -> MethodFault {
    let wished = server.wanted_types();
    match server.fault() {
        Some(fault) => fault,
        None if kinds.is_empty() => MethodFault::NoInner,
        None if wished.is_empty() || kinds.iter().any(|kind| wished.contains(&kind.0)) => MethodFault::Secret,
        None => MethodFault::NoInner,
    }
}

/// Takes the decrypted data of the tunnel.
fn take_application_data(conn: &mut TlsConnection) -> Vec<u8> {
    let mut data = Vec::new();
    conn.engine.take_application(&mut data);
    data
}
