//! The fixed header of eight octets.
//!
//! ```text
//! |version 4|ACK-Req|ACK-Rsp|UIR|M|FN 7|reserved|SID 4|opcode 2|AID 10|reserved 4|transaction 12|length 16|
//! ```

use crate::{MessageId, TransactionId};
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Octets of the header.
pub const HEADER: usize = 8;
/// The only version.
pub const VERSION: u8 = 1;
/// The highest fragment number.
pub const MAX_FRAGMENT: u8 = 127;

/// Why octets do not begin with a valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    /// Fewer than 8 octets.
    #[error(transparent)]
    Truncated(#[from] TruncatedInputError),
    /// Another version.
    #[error("unsupported version {0}")]
    Version(u8),
    /// A reserved service or opcode in these 16 bits.
    #[error("message {0:#06x} has a reserved service or opcode")]
    Reserved(u16),
}

/// A message's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MihHeader {
    /// The sender requests an acknowledgement.
    pub ack_req: bool,
    /// The message is or carries an acknowledgement.
    pub ack_rsp: bool,
    /// The sender has not been authenticated yet (unauthenticated information request).
    pub uir: bool,
    /// More fragments follow.
    pub more: bool,
    /// The fragment number, 0 to 127; 0 in an unfragmented message.
    pub fragment: u8,
    /// The message identifier.
    pub id: MessageId,
    /// The transaction identifier.
    pub transaction: TransactionId,
    /// Octets after the header.
    pub len: u16,
}

impl MihHeader {
    /// Reads a header and ignores the reserved bits.
    ///
    /// # Errors
    /// The octets do not begin with a valid header.
    pub fn parse(octets: &[u8]) -> Result<Self, HeaderError> {
        let mut r = OctetReader::new(octets);
        let [flags, fragment] = r.read_array::<2>()?;
        if flags >> 4 != VERSION {
            return Err(HeaderError::Version(flags >> 4));
        }
        let bits = r.read_u16()?;
        let transaction = TransactionId::new(r.read_u16()?);
        let len = r.read_u16()?;
        let id = MessageId::from_bits(bits).ok_or(HeaderError::Reserved(bits))?;
        Ok(Self {
            ack_req: flags & 8 != 0,
            ack_rsp: flags & 4 != 0,
            uir: flags & 2 != 0,
            more: flags & 1 != 0,
            fragment: fragment >> 1,
            id,
            transaction,
            len,
        })
    }
    /// Appends the header.
    pub fn emit(&self, w: &mut OctetWriter<'_>) {
        let flag = |on: bool, bit: u8| if on { bit } else { 0 };
        w.write_u8(
            VERSION << 4
                | flag(self.ack_req, 8)
                | flag(self.ack_rsp, 4)
                | flag(self.uir, 2)
                | flag(self.more, 1),
        );
        w.write_u8(self.fragment << 1)
            .write_u16(self.id.to_bits())
            .write_u16(self.transaction.get())
            .write_u16(self.len);
    }
    /// Returns the octets of the message, header included.
    pub const fn total_length(&self) -> usize {
        HEADER + self.len as usize
    }
    /// True for a fragment.
    pub const fn is_fragment(&self) -> bool {
        self.more || self.fragment != 0
    }
    /// Returns the octets that the first message of a stream takes, for any version and service. `None`: less than a
    /// header is there.
    pub fn message_length(octets: &[u8]) -> Option<usize> {
        let [_, _, _, _, _, _, high, low] = octets.first_chunk::<HEADER>()?;
        Some(HEADER + usize::from(u16::from_be_bytes([*high, *low])))
    }
}

impl fmt::Display for MihHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.id, self.transaction)?;
        for (on, name) in [(self.ack_req, " ACK-Req"), (self.ack_rsp, " ACK-Rsp"), (self.uir, " UIR")] {
            if on {
                f.write_str(name)?;
            }
        }
        if self.is_fragment() {
            write!(f, " fragment {}{}", self.fragment, if self.more { " of more" } else { ", the last" })?;
        }
        write!(f, ", {} octets", self.len)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    pub(crate) fn any_header() -> impl Strategy<Value = MihHeader> {
        let id = proptest::sample::select(MessageId::ALL);
        (any::<[bool; 4]>(), 0..=MAX_FRAGMENT, id, 0..TransactionId::COUNT, any::<u16>()).prop_map(
            |([ack_req, ack_rsp, uir, more], fragment, id, transaction, len)| MihHeader {
                ack_req,
                ack_rsp,
                uir,
                more,
                fragment,
                id,
                transaction: TransactionId::new(transaction),
                len,
            },
        )
    }

    #[test]
    fn the_bits_are_where_the_standard_has_them() {
        let octets = [0x1d, 0x06, 0x34, 0x07, 0xfa, 0xbc, 0x01, 0x02];
        let header = MihHeader::parse(&octets).unwrap();
        let expected = MihHeader {
            ack_req: true,
            ack_rsp: true,
            uir: false,
            more: true,
            fragment: 3,
            id: MessageId::MN_HO_COMMIT_REQUEST,
            transaction: TransactionId::new(0xabc),
            len: 0x102,
        };
        assert_eq!(header, expected);
        assert_eq!(MihHeader::message_length(&octets), Some(266));
        assert_eq!(
            header.to_string(),
            "MIH_MN_HO_Commit request 2748 ACK-Req ACK-Rsp fragment 3 of more, 258 octets"
        );
    }

    #[test]
    fn other_versions_and_reserved_services_are_refused() {
        assert_eq!(MihHeader::parse(&[0x20, 0, 0x34, 7, 0, 0, 0, 0]), Err(HeaderError::Version(2)));
        assert_eq!(MihHeader::parse(&[0x10, 0, 0x74, 7, 0, 0, 0, 0]), Err(HeaderError::Reserved(0x7407)));
        assert!(matches!(MihHeader::parse(&[0x10, 0, 0x34, 7, 0, 0, 0]), Err(HeaderError::Truncated(_))));
    }

    proptest! {
        #[test]
        fn headers_are_read_as_written(header in any_header()) {
            let mut out = Vec::new();
            header.emit(&mut OctetWriter::new(&mut out));
            prop_assert_eq!(out.len(), HEADER);
            prop_assert_eq!(MihHeader::parse(&out), Ok(header));
        }
    }
}
