//! Captures in pcapng (IETF draft-ietf-opsawg-pcapng), readable by Wireshark and tshark.
//!
//! They are little-endian with one section, and count nanoseconds since the simulation's or the clock's epoch. They
//! contain no time of writing, so the same packets give the same bytes.

use std::io::{self, Write};
use usher_core::Instant;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const DECRYPTION_SECRETS: u32 = 0x0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const TLS_KEY_LOG: u32 = 0x544c_534b;

const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;

/// The first header of an interface's packets (LINKTYPE values of tcpdump.org).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Raw,
}

impl LinkType {
    const fn code(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
        }
    }
}

/// Writes one capture. Declare interfaces before their packets, and TLS secrets before the packets that they decrypt.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture. Readers show the comments as the file's (the RADIUS secret, the study and point).
    ///
    /// # Errors
    /// The writer's.
    pub fn new(out: W, comments: &[&str]) -> io::Result<Self> {
        let mut capture = Self { out, block: Vec::new(), interfaces: 0 };
        capture.start_block(SECTION_HEADER);
        capture.push_u32(BYTE_ORDER);
        capture.push_u16(1);
        capture.push_u16(0);
        capture.block.extend(u64::MAX.to_le_bytes());
        for comment in comments {
            capture.push_pcapng_option(OPTION_COMMENT, comment.as_bytes());
        }
        capture.push_pcapng_option(OPTION_APPLICATION, b"usher");
        capture.end_options();
        capture.finish_block()?;
        Ok(capture)
    }

    /// Declares an interface and returns its number.
    ///
    /// # Errors
    /// The writer's.
    pub fn add_interface(&mut self, name: &str, link: LinkType, comments: &[&str]) -> io::Result<u32> {
        self.start_block(INTERFACE_DESCRIPTION);
        self.push_u16(link.code());
        self.push_u16(0);
        self.push_u32(0);
        for comment in comments {
            self.push_pcapng_option(OPTION_COMMENT, comment.as_bytes());
        }
        self.push_pcapng_option(OPTION_IF_NAME, name.as_bytes());
        self.push_pcapng_option(OPTION_IF_TSRESOL, &[9]);
        self.end_options();
        self.finish_block()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a packet of this interface.
    ///
    /// # Errors
    /// The writer's; [`io::ErrorKind::InvalidInput`] for an undeclared interface or a packet beyond 4 GiB.
    pub fn write_packet(
        &mut self,
        interface: u32,
        at: Instant,
        data: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        if interface >= self.interfaces {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such capture interface"));
        }
        let length = u32::try_from(data.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "packet too long to capture"))?;
        self.start_block(ENHANCED_PACKET);
        self.push_u32(interface);
        self.push_u32((at.as_nanos() >> 32) as u32);
        self.push_u32(at.as_nanos() as u32);
        self.push_u32(length);
        self.push_u32(length);
        self.push_padded(data);
        if let Some(comment) = comment {
            self.push_pcapng_option(OPTION_COMMENT, comment.as_bytes());
            self.end_options();
        }
        self.finish_block()
    }

    /// Writes TLS secrets in the key log format of NSS (`CLIENT_RANDOM ...` lines).
    ///
    /// # Errors
    /// The writer's; [`io::ErrorKind::InvalidInput`] beyond 4 GiB.
    pub fn tls_secrets(&mut self, key_log: &str) -> io::Result<()> {
        let length = u32::try_from(key_log.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "key log too long to capture"))?;
        self.start_block(DECRYPTION_SECRETS);
        self.push_u32(TLS_KEY_LOG);
        self.push_u32(length);
        self.push_padded(key_log.as_bytes());
        self.finish_block()
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn start_block(&mut self, kind: u32) {
        self.block.clear();
        self.push_u32(kind);
        self.push_u32(0);
    }

    fn push_u16(&mut self, value: u16) {
        self.block.extend(value.to_le_bytes());
    }

    fn push_u32(&mut self, value: u32) {
        self.block.extend(value.to_le_bytes());
    }

    fn push_padded(&mut self, data: &[u8]) {
        self.block.extend(data);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    /// Appends an option. A value beyond its 16-bit length is truncated, text at a character boundary.
    fn push_pcapng_option(&mut self, code: u16, value: &[u8]) {
        let mut end = value.len().min(usize::from(u16::MAX));
        while end < value.len() && end > 0 && value[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        self.push_u16(code);
        self.push_u16(end as u16);
        self.push_padded(&value[..end]);
    }

    fn end_options(&mut self) {
        self.push_u32(0);
    }

    fn finish_block(&mut self) -> io::Result<()> {
        let length = (self.block.len() + 4) as u32;
        self.block[4..8].copy_from_slice(&length.to_le_bytes());
        self.push_u32(length);
        self.out.write_all(&self.block)
    }
}

/// A packet read from a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcapngPacket<'a> {
    /// The interface's number.
    pub interface: u32,
    /// Its time in nanoseconds.
    pub timestamp: Instant,
    /// The bytes.
    pub data: &'a [u8],
}

/// Returns the packets of a capture by [`CaptureWriter`], in file order; skips other blocks. Stops at the first
/// incomplete block.
pub fn read_packets(capture: &[u8]) -> impl Iterator<Item = PcapngPacket<'_>> {
    iter_blocks(capture).filter(|(kind, _)| *kind == ENHANCED_PACKET).filter_map(|(_, body)| {
        let time = u64::from(read_u32(body, 4)?) << 32 | u64::from(read_u32(body, 8)?);
        let length = read_u32(body, 12)? as usize;
        let data = body.get(20..)?.get(..length)?;
        Some(PcapngPacket { interface: read_u32(body, 0)?, timestamp: Instant::from_nanos(time), data })
    })
}

/// Returns the TLS secrets of a capture, in file order.
pub fn tls_secrets(capture: &[u8]) -> impl Iterator<Item = &str> {
    iter_blocks(capture).filter(|(kind, _)| *kind == DECRYPTION_SECRETS).filter_map(|(_, body)| {
        let length = read_u32(body, 4)? as usize;
        let text = body.get(8..)?.get(..length)?;
        (read_u32(body, 0)? == TLS_KEY_LOG).then(|| std::str::from_utf8(text).ok())?
    })
}

/// Returns (type, body) of each block.
fn iter_blocks(mut rest: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, length) = (read_u32(rest, 0)?, read_u32(rest, 4)? as usize);
        let body = rest.get(8..length.checked_sub(4)?)?;
        rest = rest.get(length..)?;
        Some((kind, body))
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample_capture() -> Vec<u8> {
        let mut capture = CaptureWriter::new(Vec::new(), &["RADIUS secret: testing123"]).unwrap();
        let raw = capture.add_interface("nas-aaa", LinkType::Raw, &[]).unwrap();
        let lan = capture.add_interface("lan", LinkType::Ethernet, &["behind the NAS"]).unwrap();
        assert_eq!((raw, lan), (0, 1));
        capture.tls_secrets("CLIENT_RANDOM 00 11\n").unwrap();
        capture.write_packet(raw, Instant::from_nanos(5_000_000_001), &[0x45; 21], Some("lost")).unwrap();
        capture.write_packet(lan, Instant::from_nanos(u64::MAX), &[1, 2, 3, 4], None).unwrap();
        capture.finish().unwrap()
    }

    #[test]
    fn section_and_interface_are_byte_exact() {
        let mut capture = CaptureWriter::new(Vec::new(), &[]).unwrap();
        capture.add_interface("a", LinkType::Raw, &[]).unwrap();
        #[rustfmt::skip]
        let expected = [
            0x0a, 0x0d, 0x0d, 0x0a, 44, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0,
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            4, 0, 5, 0, b'u', b's', b'h', b'e', b'r', 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0,
            1, 0, 0, 0, 40, 0, 0, 0, 101, 0, 0, 0, 0, 0, 0, 0,
            2, 0, 1, 0, b'a', 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0,
        ];
        assert_eq!(capture.finish().unwrap(), expected);
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = sample_capture();
        let got: Vec<_> = read_packets(&bytes).collect();
        assert_eq!(got.len(), 2);
        assert_eq!(
            (got[0].interface, got[0].timestamp.as_nanos(), got[0].data),
            (0, 5_000_000_001, &[0x45; 21][..])
        );
        assert_eq!(
            (got[1].interface, got[1].timestamp, got[1].data),
            (1, Instant::FAR_FUTURE, &[1, 2, 3, 4][..])
        );
        assert_eq!(tls_secrets(&bytes).collect::<Vec<_>>(), ["CLIENT_RANDOM 00 11\n"]);
        assert_eq!(bytes, sample_capture());
    }

    #[test]
    fn a_long_comment_is_cut_between_characters() {
        let comment = "é".repeat(40_000);
        let capture = CaptureWriter::new(Vec::new(), &[&comment]).unwrap().finish().unwrap();
        let length = usize::from(u16::from_le_bytes([capture[26], capture[27]]));
        assert_eq!(length, 65_534);
        assert!(std::str::from_utf8(&capture[28..28 + length]).is_ok());
    }

    #[test]
    fn an_undeclared_interface_is_refused() {
        let mut capture = CaptureWriter::new(Vec::new(), &[]).unwrap();
        let refused = capture.write_packet(0, Instant::ZERO, &[], None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), flips in any::<[(usize, u8); 8]>()
        ) {
            let _ = (read_packets(&bytes).count(), tls_secrets(&bytes).count());
            let mut near = sample_capture();
            let length = near.len();
            flips.iter().for_each(|(at, to)| near[at % length] = *to);
            let _ = (read_packets(&near).count(), tls_secrets(&near).count());
        }
    }
}
