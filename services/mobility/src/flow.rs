//! Packets of the flow: a sequence number of four octets, then zeros.

use alloc::vec::Vec;
use usher_core::{OctetReader, OctetWriter};

/// Minimum octets of a packet.
pub(crate) const SHORTEST: usize = 4;

/// Writes a packet of `octets` octets, at least [`SHORTEST`].
pub(crate) fn emit_packet(buf: &mut Vec<u8>, sequence: u32, octets: usize) {
    OctetWriter::new(buf).write_u32(sequence).write_zeros(octets.saturating_sub(SHORTEST));
}

/// Returns the sequence number of a packet; `None`: the packet is too short.
pub(crate) fn sequence_number(packet: &[u8]) -> Option<u32> {
    OctetReader::new(packet).read_u32().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_its_number_and_padding() {
        let mut buf = Vec::new();
        emit_packet(&mut buf, 0x0102_0304, 7);
        assert_eq!(buf, [1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(sequence_number(&buf), Some(0x0102_0304));
        assert_eq!(sequence_number(&buf[..3]), None);
        buf.clear();
        emit_packet(&mut buf, 9, 0);
        assert_eq!(buf, [0, 0, 0, 9]);
    }
}
