//! What PEAP and EAP-TTLS share: TLS first (phase 1), then a conversation through it (phase 2), which each of them
//! has its own way to write down.

mod peer;
mod server;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use peer::{PeerPhase, TunnelPeer};
pub(crate) use server::{ServerPhase, Step, Tunnel, TunnelServer};

use super::link::Link;
use super::{Inner, ServerOffer, UserSecret, gtc, md5, mschapv2};
use crate::packet::Type;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The longest name that is asked for: as long as RADIUS's User-Name (RFC 2865 §5.1).
pub(crate) const MAX_NAME: usize = 253;

/// The EAP methods that may admit a user of whom this secret is known, in the order given.
pub(crate) fn offers(kinds: &[Type], secret: &UserSecret) -> Vec<Box<dyn ServerOffer>> {
    let offer = |kind: &Type| -> Option<Box<dyn ServerOffer>> {
        match (*kind, secret) {
            (Type::MSCHAPV2, secret) => Some(Box::new(mschapv2::Hash::new(secret)?)),
            (Type::GTC, secret) => Some(Box::new(gtc::Prompt::new(secret.clone()))),
            (Type::MD5, UserSecret::Clear(password)) => Some(Box::new(md5::Password::new(password))),
            _ => None,
        }
    };
    kinds.iter().filter_map(offer).collect()
}

/// What is kept of a session that may be resumed: the inner method, then the name.
pub(crate) fn note(inner: Inner, name: &[u8]) -> Vec<u8> {
    let head = match inner {
        Inner::Pap => [0, 0],
        Inner::Chap => [1, 0],
        Inner::MsChap => [2, 0],
        Inner::MsChapV2 => [3, 0],
        Inner::Eap(kind) => [4, kind.0],
    };
    [&head, name].concat()
}

/// Reads a [`note`].
pub(crate) fn read_note(note: &[u8]) -> Option<(Inner, &[u8])> {
    let (&[way, kind], name) = note.split_first_chunk()?;
    let inner = match way {
        0 => Inner::Pap,
        1 => Inner::Chap,
        2 => Inner::MsChap,
        3 => Inner::MsChapV2,
        _ => Inner::Eap(Type(kind)),
    };
    Some((inner, name))
}

/// Takes what came out of the tunnel.
fn application(link: &mut Link) -> Vec<u8> {
    let mut data = Vec::new();
    link.engine.take_application(&mut data);
    data
}
