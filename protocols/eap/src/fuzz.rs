//! Entry points for fuzzers. Each returns false if it finds a defect.

#[cfg(feature = "tls")]
mod tunnel;

#[cfg(feature = "tls")]
pub use tunnel::{fuzz_recording, fuzz_tunnel};

use crate::packet::{self, EapCode, EapPacket};
use crate::{eapol, packet::EapType};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Parses a packet, prints it, writes it again and compares the octets.
pub fn fuzz_packet(bytes: &[u8]) -> bool {
    let Ok(p) = EapPacket::parse(bytes) else { return true };
    let mut out = Vec::new();
    match (p.code(), p.kind()) {
        (EapCode::Success, _) => packet::emit_success_or_failure(&mut out, true, p.identifier()),
        (EapCode::Failure, _) => packet::emit_success_or_failure(&mut out, false, p.identifier()),
        (code, kind) => {
            packet::emit_packet(&mut out, code, p.identifier(), kind.unwrap_or(EapType(0)), p.data())
        }
    }
    !p.to_string().is_empty() && EapPacket::parse(&out) == Ok(p)
}

/// Parses an Ethernet frame with EAPOL, writes it again and compares the octets.
pub fn fuzz_eapol(bytes: &[u8]) -> bool {
    let Ok(frame) = eapol::EthernetFrame::parse(bytes) else { return true };
    let Ok(e) = eapol::EapolPacket::parse(frame.payload) else { return true };
    let mut out = Vec::new();
    eapol::emit_frame(&mut out, frame.destination, frame.source, e.kind, e.body);
    let again = eapol::EthernetFrame::parse(&out).and_then(|f| eapol::EapolPacket::parse(f.payload));
    again.is_ok_and(|a| a.kind == e.kind && a.body == e.body)
}
