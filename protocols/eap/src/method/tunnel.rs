//! The tunnel of PEAP and EAP-TTLS: TLS first (phase 1), then a conversation through it (phase 2). Each method has its
//! own encoding of phase 2.

mod peer;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use peer::{TunnelPeer, TunnelPeerPhase};
pub(crate) use server::{InnerPhaseResult, TunnelContext, TunnelServer, TunnelServerPhase};

use super::connection::TlsConnection;
use super::{ServerMethodFactory, ServerMethodFailure, UserSecret, gtc, md5, mschapv2};
use crate::packet::EapType;
use crate::server::EapServer;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest user name, that of RADIUS's User-Name (RFC 2865 §5.1).
pub(crate) const MAX_NAME: usize = 253;

/// The EAP methods that can verify a user with this secret, in the order given.
pub(crate) fn server_offers(kinds: &[EapType], secret: &UserSecret) -> Vec<Box<dyn ServerMethodFactory>> {
    let offer = |kind: &EapType| -> Option<Box<dyn ServerMethodFactory>> {
        match (*kind, secret) {
            (EapType::MSCHAPV2, secret) => Some(Box::new(mschapv2::MsChapV2ServerFactory::new(secret)?)),
            (EapType::GTC, secret) => Some(Box::new(gtc::GtcServerFactory::new(secret.clone()))),
            (EapType::MD5, UserSecret::Clear(password)) => Some(Box::new(md5::EapMd5Password::new(password))),
            _ => None,
        }
    };
    kinds.iter().filter_map(offer).collect()
}

/// The reason for the failure of the inner conversation. `kinds` are the configured methods. If none could run with the
/// user's secret, or the peer wanted a configured one, the reason is the secret.
pub(crate) fn inner_method_failure_reason(server: &EapServer, kinds: &[EapType]) -> ServerMethodFailure {
    let wished = server.wanted_types();
    match server.fault() {
        Some(fault) => fault,
        None if kinds.is_empty() => ServerMethodFailure::NoInner,
        None if wished.is_empty() || kinds.iter().any(|kind| wished.contains(&kind.0)) => {
            ServerMethodFailure::Secret
        }
        None => ServerMethodFailure::NoInner,
    }
}

/// Takes the decrypted data of the tunnel.
fn take_application_data(conn: &mut TlsConnection) -> Vec<u8> {
    let mut data = Vec::new();
    conn.engine.take_application(&mut data);
    data
}
