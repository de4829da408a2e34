//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::MobilityPacket;
use alloc::vec::Vec;

/// Parses octets. A valid packet must encode to an equal one.
#[must_use]
pub fn check_mobility_round_trip(octets: &[u8]) -> bool {
    let Ok(packet) = MobilityPacket::parse(octets) else { return true };
    let mut out = Vec::new();
    packet.emit(&mut out);
    MobilityPacket::parse(&out).is_ok_and(|again| again == packet)
}
