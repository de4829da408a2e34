//! NAT detection (RFC 7296 §2.23).

use super::context::IkeEndpointContext;
use crate::code::NotifyType;
use crate::header::Spi;
use crate::message::notify_payloads;
use crate::payload::{NotifyPayload, Payload};
use core::net::{IpAddr, SocketAddr};
use usher_core::DatagramPath;
use usher_crypto::digest::{constant_time_eq, sha1};

/// Returns the NAT detection hash of an address, as its host knows it.
fn nat_detection_hash(spis: (Spi, Spi), address: SocketAddr) -> [u8; 20] {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(v4) => sha1(&[&spis.0.0, &spis.1.0, &v4.octets(), &port]),
        IpAddr::V6(v6) => sha1(&[&spis.0.0, &spis.1.0, &v6.octets(), &port]),
    }
}

/// True if this side claims to be behind a NAT: it wants ESP in UDP, or does not know its own address.
fn claims_to_be_behind_nat(cx: &IkeEndpointContext, path: DatagramPath) -> bool {
    cx.config.encapsulate || path.local.ip().is_unspecified()
}

pub(super) fn nat_detection(
    cx: &mut IkeEndpointContext,
    spis: (Spi, Spi),
    path: DatagramPath,
) -> [Payload; 2] {
    let source = if claims_to_be_behind_nat(cx, path) {
        cx.random_octets()
    } else {
        nat_detection_hash(spis, path.local)
    };
    [
        Payload::Notify(NotifyPayload::with_data(NotifyType::NAT_DETECTION_SOURCE_IP, source)),
        Payload::Notify(NotifyPayload::with_data(
            NotifyType::NAT_DETECTION_DESTINATION_IP,
            nat_detection_hash(spis, path.remote),
        )),
    ]
}

/// Detects a NAT in front of this side, and in front of the peer, from the peer's notifications.
pub(super) fn detect_nat_sides(
    cx: &IkeEndpointContext,
    payloads: &[Payload],
    spis: (Spi, Spi),
    path: DatagramPath,
) -> (bool, bool) {
    let differs = |kind, address| {
        let mut hashes = notify_payloads(payloads).filter(|notify| notify.kind == kind).peekable();
        let hash = nat_detection_hash(spis, address);
        hashes.peek().is_some() && !hashes.any(|notify| constant_time_eq(&notify.data, &hash))
    };
    let local = if claims_to_be_behind_nat(cx, path) {
        // This side sent a random hash instead of its address. So if the peer supports NAT traversal at all, there is a
        // NAT.
        notify_payloads(payloads).any(|notify| notify.kind == NotifyType::NAT_DETECTION_DESTINATION_IP)
    } else {
        differs(NotifyType::NAT_DETECTION_DESTINATION_IP, path.local)
    };
    (local, differs(NotifyType::NAT_DETECTION_SOURCE_IP, path.remote))
}
