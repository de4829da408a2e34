//! Messages (RFC 6733 §3): a checked view without copies and an owned form.

use crate::avp::{AvpBuf, AvpSequence};
use crate::error::{DiameterError, ResultCode};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Bytes of a message header.
pub const HEADER_LEN: usize = 20;
/// The longest message of a 24-bit length.
pub const MAX_LEN: usize = 0xff_fffc;

/// Command flags (RFC 6733 §3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CommandFlags(pub u8);

impl CommandFlags {
    /// R: a request.
    pub const REQUEST: u8 = 0x80;
    /// P: may be relayed.
    pub const PROXIABLE: u8 = 0x40;
    /// E: an answer that reports a protocol error.
    pub const ERROR: u8 = 0x20;
    /// T: possibly a retransmission, to this or another server.
    pub const RETRANSMITTED: u8 = 0x10;

    /// The R flag.
    pub const fn is_request(self) -> bool {
        self.0 & Self::REQUEST != 0
    }
    /// The P flag.
    pub const fn is_proxiable(self) -> bool {
        self.0 & Self::PROXIABLE != 0
    }
    /// The E flag.
    pub const fn is_error(self) -> bool {
        self.0 & Self::ERROR != 0
    }
    /// The T flag.
    pub const fn is_retransmitted(self) -> bool {
        self.0 & Self::RETRANSMITTED != 0
    }
}

impl fmt::Display for CommandFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, c) in [(0x80, 'R'), (0x40, 'P'), (0x20, 'E'), (0x10, 'T')] {
            write!(f, "{}", if self.0 & bit != 0 { c } else { '-' })?;
        }
        Ok(())
    }
}

/// A message header without its version (always 1) and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageHeader {
    /// Command flags.
    pub flags: CommandFlags,
    /// Command code (24 bits).
    pub command: u32,
    /// Application-Id.
    pub application: u32,
    /// The Hop-by-Hop Identifier, which matches answers to requests on a connection.
    pub hop_by_hop: u32,
    /// The End-to-End Identifier, which with the Origin-Host detects duplicates.
    pub end_to_end: u32,
}

impl MessageHeader {
    /// Returns the header of an answer: same identifiers, R and T clear, P kept. E is set for a protocol error (RFC
    /// 6733 §6.2, §7.2).
    pub const fn to_answer(&self, result: ResultCode) -> Self {
        let error = if result.is_protocol_error() { CommandFlags::ERROR } else { 0 };
        // RFC 6733, 3, 7, 7.1.4: no T flag, and the E flag with protocol errors only.
        Self { flags: CommandFlags(self.flags.0 & CommandFlags::PROXIABLE | error), ..*self }
    }

    /// Starts a message in `buf` with a zero length. [`Self::write_length`] completes it.
    pub(crate) fn write_header(&self, buf: &mut Vec<u8>) {
        OctetWriter::new(buf)
            .write_u8(1)
            .write_u24(0)
            .write_u8(self.flags.0)
            .write_u24(self.command)
            .write_u32(self.application)
            .write_u32(self.hop_by_hop)
            .write_u32(self.end_to_end);
    }
    /// Writes the length of the message that begins at `start`.
    pub(crate) fn write_length(buf: &mut [u8], start: usize) {
        let length = (buf.len() - start) as u32;
        buf[start + 1..start + 4].copy_from_slice(&length.to_be_bytes()[1..]);
    }
}

/// A received message with a valid header and complete AVPs.
#[derive(Clone, Copy, Debug)]
pub struct MessageView<'a> {
    header: MessageHeader,
    bytes: &'a [u8],
}

impl<'a> MessageView<'a> {
    /// Parses the header alone, so that even a faulty message can be answered. `None` for fewer than 20 bytes.
    pub fn parse_message_header(bytes: &[u8]) -> Option<MessageHeader> {
        let mut r = OctetReader::new(bytes);
        r.read_u32().ok()?;
        Some(MessageHeader {
            flags: CommandFlags(r.read_u8().ok()?),
            command: r.read_u24().ok()?,
            application: r.read_u32().ok()?,
            hop_by_hop: r.read_u32().ok()?,
            end_to_end: r.read_u32().ok()?,
        })
    }

    /// Parses a whole message. Ignores the reserved flag bits.
    ///
    /// # Errors
    /// - 5011: the version is not 1.
    /// - 5015: the length is not that of `bytes`, below 20 or not a multiple of four.
    /// - 3008: R and E are both set.
    /// - 5014: an AVP exceeds the message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DiameterError> {
        let Some(header) = Self::parse_message_header(bytes) else {
            return Err(DiameterError::new(
                ResultCode::INVALID_MESSAGE_LENGTH,
                "the message is shorter than its header",
            ));
        };
        // RFC 6733, 3: version 1, else 5011.
        if bytes[0] != 1 {
            return Err(DiameterError::new(ResultCode::UNSUPPORTED_VERSION, "the version is not 1"));
        }
        let length = u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]) as usize;
        if length != bytes.len() || !length.is_multiple_of(4) {
            return Err(DiameterError::new(
                ResultCode::INVALID_MESSAGE_LENGTH,
                "the message length is wrong",
            ));
        }
        // RFC 6733, 3: a request never has the E flag.
        if header.flags.is_request() && header.flags.is_error() {
            return Err(DiameterError::new(ResultCode::INVALID_HDR_BITS, "a request has the E flag"));
        }
        AvpSequence::parse(&bytes[HEADER_LEN..])?;
        Ok(Self { header, bytes })
    }
    /// The header.
    pub const fn header(&self) -> MessageHeader {
        self.header
    }
    /// The AVPs.
    pub fn avps(&self) -> AvpSequence<'a> {
        AvpSequence::from_checked(&self.bytes[HEADER_LEN..])
    }
    /// The whole message.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Returns an owned copy, with one allocation.
    pub fn to_owned(&self) -> DiameterMessage {
        DiameterMessage { header: self.header, avps: AvpBuf::from_checked(self.bytes[HEADER_LEN..].into()) }
    }
}

impl fmt::Display for MessageView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = self.header;
        write!(
            f,
            "command {} {} application {} hop-by-hop {:#x} end-to-end {:#x}",
            h.command, h.flags, h.application, h.hop_by_hop, h.end_to_end
        )?;
        self.avps().try_for_each(|a| write!(f, "\n  {a}"))
    }
}

/// An owned message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiameterMessage {
    /// The header.
    pub header: MessageHeader,
    /// The AVPs.
    pub avps: AvpBuf,
}

impl DiameterMessage {
    /// Appends the encoded message to `buf`.
    ///
    /// # Errors
    /// The message would be longer than [`MAX_LEN`] (5015). Nothing is written then.
    pub fn encode_into(&self, buf: &mut Vec<u8>) -> Result<(), DiameterError> {
        if HEADER_LEN + self.avps.as_bytes().len() > MAX_LEN {
            return Err(DiameterError::new(
                ResultCode::INVALID_MESSAGE_LENGTH,
                "too long for the length field",
            ));
        }
        let start = buf.len();
        buf.reserve(HEADER_LEN + self.avps.as_bytes().len());
        self.header.write_header(buf);
        buf.extend_from_slice(self.avps.as_bytes());
        MessageHeader::write_length(buf, start);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avp::{Avp, AvpId, FLAG_VENDOR};
    use proptest::prelude::*;

    fn any_avp() -> impl Strategy<Value = Avp> {
        (any::<u32>(), any::<u8>(), 1u32.., proptest::collection::vec(any::<u8>(), 0..40)).prop_map(
            |(code, flags, vendor, data)| Avp {
                code,
                flags: flags & 0xe0,
                vendor: if flags & FLAG_VENDOR != 0 { vendor } else { 0 },
                data,
            },
        )
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(
            avps in proptest::collection::vec(any_avp(), 0..8),
            flags in any::<u8>(), command in 0u32..1 << 24, ids in any::<[u32; 3]>(),
        ) {
            let flags = if flags & 0xa0 == 0xa0 { flags & !0x20 } else { flags };
            let header = MessageHeader {
                flags: CommandFlags(flags), command, application: ids[0], hop_by_hop: ids[1], end_to_end: ids[2],
            };
            let mut message = DiameterMessage { header, avps: AvpBuf::new() };
            for a in &avps {
                message.avps.push_avp(a);
            }
            let mut wire = Vec::new();
            message.encode_into(&mut wire).unwrap();
            let view = MessageView::parse(&wire).unwrap();
            prop_assert_eq!(view.to_owned(), message);
            prop_assert_eq!(view.avps().map(|a| a.to_owned()).collect::<Vec<_>>(), avps);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), fix in any::<bool>()) {
            if fix && bytes.len() >= 20 {
                bytes.truncate(bytes.len() / 4 * 4);
                bytes[0] = 1;
                let n = (bytes.len() as u32).to_be_bytes();
                bytes[1..4].copy_from_slice(&n[1..]);
            }
            crate::fuzz::fuzz_message(&crate::dictionary::DiameterDictionary::builtin(), &bytes);
        }
    }

    fn parse_error_code(bytes: &[u8]) -> u32 {
        MessageView::parse(bytes).unwrap_err().code.0
    }

    #[test]
    fn faults_name_the_rfc_code() {
        let header = MessageHeader {
            flags: CommandFlags(0x80),
            command: 280,
            application: 0,
            hop_by_hop: 1,
            end_to_end: 2,
        };
        let mut message = DiameterMessage { header, avps: AvpBuf::new() };
        message.avps.push_str(AvpId::must(264), "a.example");
        let mut wire = Vec::new();
        message.encode_into(&mut wire).unwrap();
        assert_eq!(wire.len(), 40);
        assert!(MessageView::parse(&wire).is_ok());
        assert_eq!(parse_error_code(&wire[..10]), 5015);
        assert_eq!(parse_error_code(&wire[..36]), 5015);
        let with = |at: usize, value: u8| {
            let mut w = wire.clone();
            w[at] = value;
            w
        };
        assert_eq!(parse_error_code(&with(0, 2)), 5011);
        assert_eq!(parse_error_code(&with(4, 0xa0)), 3008);
        assert_eq!(parse_error_code(&with(27, 200)), 5014);
        let fault = MessageView::parse(&with(27, 7)).unwrap_err();
        assert_eq!((fault.code.0, fault.avp.map(|a| (a.code, a.data))), (5014, Some((264, Vec::new()))));
    }
}
