//! Entry points for fuzzers. Each answers false where it has found a defect.

pub use crate::function::fuzz::function;

use crate::fragment::{Limits, Reassembly, fragment};
use crate::{Bits, Decoded, Header, Message};
use alloc::string::ToString;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

const LIMITS: Limits = Limits { octets: 65_535, messages: 4, patience: Duration::from_secs(1) };

/// Reads octets; what is a message is printed, written again and must say the same, whole and in fragments. The octets
/// are taken for a stream of fragments besides, each as long as its header says.
pub fn message(octets: &[u8]) -> bool {
    whole(octets) && pieces(octets)
}

fn whole(octets: &[u8]) -> bool {
    let decoded = match Message::decode(octets) {
        Ok(decoded) => decoded,
        Err(error) => {
            return !error.to_string().is_empty() && (error.answer().is_none() || error.source.is_some());
        }
    };
    let Header { ack_req, ack_rsp, uir, id, transaction, .. } = decoded.header;
    let (source, destination) = (&decoded.source, &decoded.destination);
    let mut out = Vec::new();
    let bits = Bits { ack_req, ack_rsp, uir };
    if decoded.message.encode(bits, transaction, source, destination, &mut out).is_err() {
        return false;
    }
    let again =
        Message::decode(&out).is_ok_and(|again| Decoded { header: decoded.header, ..again } == decoded);
    let sized = decoded.message.octets(source, destination) == out.len() && out.len() <= octets.len();
    let bare = Message::acknowledgement(id).octets(source, destination);
    let max = bare + (out.len() - bare) / 2 + 1;
    let mut reassembly = Reassembly::new(LIMITS);
    let rejoined = fragment(&out, max).is_ok_and(|pieces| {
        let taken = pieces.iter().rev().filter_map(|piece| reassembly.take(Instant::ZERO, piece));
        taken.eq([&out[..]])
    });
    again && sized && rejoined && !decoded.to_string().is_empty()
}

fn pieces(mut octets: &[u8]) -> bool {
    let mut reassembly = Reassembly::new(LIMITS);
    let mut now = Instant::ZERO;
    while let Some((piece, rest)) = Header::extent(octets).and_then(|extent| octets.split_at_checked(extent))
    {
        let taken = reassembly.take(now, piece);
        if taken.is_some_and(|whole| Header::parse(&whole).is_ok_and(|h| h.is_fragment())) {
            return false;
        }
        now += Duration::from_millis(100);
        octets = rest;
    }
    reassembly.incomplete() <= LIMITS.messages
}
