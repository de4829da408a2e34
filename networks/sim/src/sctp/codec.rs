//! Packets as bytes (RFC 9260 §3).

use super::chunk::Packet;

/// Why bytes are not an SCTP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// They end before a header or value does.
    #[error("the SCTP packet is truncated")]
    Truncated,
    /// The checksum does not fit.
    #[error("wrong CRC32c")]
    Checksum,
    /// A chunk's length or content does not fit its type.
    #[error("SCTP chunk of type {kind} is malformed")]
    Chunk {
        /// The chunk's type.
        kind: u8,
    },
}

impl Packet {
    /// Appends the packet to `out` as it goes on the wire, CRC32c filled in; zeros where a payload is a
    /// count.
    pub fn emit(&self, source: u16, destination: u16, out: &mut Vec<u8>) {
        let _ = (source, destination, out);
    }
    /// Reads a packet; answers source port, destination port and the packet.
    ///
    /// # Errors
    /// The checksum is wrong, or a chunk is malformed.
    pub fn parse(bytes: &[u8]) -> Result<(u16, u16, Packet), ParseError> {
        let _ = bytes;
        Err(ParseError::Truncated)
    }
}

/// What a fuzzer runs.
pub fn round_trip(bytes: &[u8]) {
    let _ = Packet::parse(bytes);
}
