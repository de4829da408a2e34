//! Entry points for fuzzers. Each answers false where it has found a defect.

pub use crate::function::fuzz::fuzz_mih_function;

use crate::fragment::{FragmentReassembler, ReassemblyLimits, fragment_message};
use crate::{DecodedMessage, HeaderFlags, MihHeader, MihfMessage};
use alloc::string::ToString;
use alloc::vec::Vec;
use usher_core::{Duration, Instant};

const LIMITS: ReassemblyLimits =
    ReassemblyLimits { octets: 65_535, messages: 4, reassembly_timeout: Duration::from_secs(1) };

/// Reads octets; what is a message is printed, written again and must say the same, whole and in fragments. The octets
/// are taken for a stream of fragments besides, each as long as its header says.
pub fn check_message(octets: &[u8]) -> bool {
    fuzz_whole_message(octets) && fuzz_fragments(octets)
}

fn fuzz_whole_message(octets: &[u8]) -> bool {
    let decoded = match MihfMessage::decode(octets) {
        Ok(decoded) => decoded,
        Err(error) => {
            return !error.to_string().is_empty()
                && (error.response_status().is_none() || error.source.is_some());
        }
    };
    let MihHeader { ack_req, ack_rsp, uir, id, transaction, .. } = decoded.header;
    let (source, destination) = (&decoded.source, &decoded.destination);
    let mut out = Vec::new();
    let bits = HeaderFlags { ack_req, ack_rsp, uir };
    if decoded.message.encode(bits, transaction, source, destination, &mut out).is_err() {
        return false;
    }
    let again = MihfMessage::decode(&out)
        .is_ok_and(|again| DecodedMessage { header: decoded.header, ..again } == decoded);
    let sized = decoded.message.encoded_length(source, destination) == out.len() && out.len() <= octets.len();
    let bare = MihfMessage::acknowledgement(id).encoded_length(source, destination);
    let max = bare + (out.len() - bare) / 2 + 1;
    let mut reassembly = FragmentReassembler::new(LIMITS);
    let rejoined = fragment_message(&out, max).is_ok_and(|pieces| {
        let taken = pieces.iter().rev().filter_map(|piece| reassembly.receive_packet(Instant::ZERO, piece));
        taken.eq([&out[..]])
    });
    again && sized && rejoined && !decoded.to_string().is_empty()
}

fn fuzz_fragments(mut octets: &[u8]) -> bool {
    let mut reassembly = FragmentReassembler::new(LIMITS);
    let mut now = Instant::ZERO;
    while let Some((piece, rest)) =
        MihHeader::message_length(octets).and_then(|extent| octets.split_at_checked(extent))
    {
        let taken = reassembly.receive_packet(now, piece);
        if taken.is_some_and(|whole| MihHeader::parse(&whole).is_ok_and(|h| h.is_fragment())) {
            return false;
        }
        now += Duration::from_millis(100);
        octets = rest;
    }
    reassembly.incomplete_count() <= LIMITS.messages
}
