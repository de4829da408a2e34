//! Entry points for fuzzers. Each answers false where it has found a defect.

#[cfg(feature = "tls")]
mod tunnel;

#[cfg(feature = "tls")]
pub use tunnel::{recording, tunnel};

use crate::packet::{self, Code, Packet};
use crate::{eapol, packet::Type};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Parses octets; what is a packet is printed, written again and must be the same.
pub fn packet(bytes: &[u8]) -> bool {
    let Ok(p) = Packet::parse(bytes) else { return true };
    let mut out = Vec::new();
    match (p.code(), p.kind()) {
        (Code::Success, _) => packet::emit_end(&mut out, true, p.identifier()),
        (Code::Failure, _) => packet::emit_end(&mut out, false, p.identifier()),
        (code, kind) => packet::emit(&mut out, code, p.identifier(), kind.unwrap_or(Type(0)), p.data()),
    }
    !p.to_string().is_empty() && Packet::parse(&out) == Ok(p)
}

/// Parses octets as an Ethernet frame with EAPOL; what is one is written again and must be the same.
pub fn eapol(bytes: &[u8]) -> bool {
    let Ok(frame) = eapol::Frame::parse(bytes) else { return true };
    let Ok(e) = eapol::Eapol::parse(frame.payload) else { return true };
    let mut out = Vec::new();
    eapol::emit(&mut out, frame.destination, frame.source, e.kind, e.body);
    let again = eapol::Frame::parse(&out).and_then(|f| eapol::Eapol::parse(f.payload));
    again.is_ok_and(|a| a.kind == e.kind && a.body == e.body)
}
