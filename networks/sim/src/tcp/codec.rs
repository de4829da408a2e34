//! Segments as octets (RFC 9293 §3.1, RFC 2018, RFC 7323).

use super::fast_open::FastOpenCookie;
use super::segment::{Segment, SegmentFlags, TcpOptions};
use std::fmt;
use std::sync::Arc;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// Why octets are not a TCP segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// They end before the header does.
    Truncated,
    /// The data offset is below five words or beyond the end.
    DataOffset(u8),
    /// An option's length does not fit its kind, or reaches beyond the header.
    OptionLength {
        /// The option's kind.
        kind: u8,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the TCP header is truncated"),
            Self::DataOffset(words) => write!(f, "wrong TCP data offset of {words} words"),
            Self::OptionLength { kind } => write!(f, "TCP option {kind} has a wrong length"),
        }
    }
}
impl std::error::Error for ParseError {}
impl From<TruncatedInputError> for ParseError {
    fn from(_: TruncatedInputError) -> Self {
        Self::Truncated
    }
}

impl Segment {
    /// Appends the segment to `out` in wire format: header, options padded to words, payload (zeros without content).
    /// The checksum, at offset 16, stays zero for the layer that knows the addresses.
    pub fn encode_into(&self, source: u16, destination: u16, out: &mut Vec<u8>) {
        let header = self.header_len();
        let mut w = OctetWriter::new(out);
        w.write_u16(source).write_u16(destination).write_u32(self.seq);
        w.write_u32(self.ack)
            .write_u8((header << 2) as u8)
            .write_u8(self.flags.0)
            .write_u16(self.window)
            .write_u32(0);
        if let Some(options) = &self.options {
            emit_options(options, &mut w);
        }
        match &self.payload {
            Some(payload) => w.write_bytes(payload),
            None => w.write_zeros(self.len as usize),
        };
    }

    /// Parses a segment. Returns source port, destination port and the segment, with a copy of the payload. Unknown
    /// options are skipped; the checksum is not verified.
    ///
    /// # Errors
    /// The octets are not a segment, or an option's length is wrong.
    pub fn parse(bytes: &[u8]) -> Result<(u16, u16, Segment), ParseError> {
        let mut r = OctetReader::new(bytes);
        let (source, destination, seq, ack) = (r.read_u16()?, r.read_u16()?, r.read_u32()?, r.read_u32()?);
        let (offset, flags, window) = (r.read_u8()? >> 4, r.read_u8()?, r.read_u16()?);
        r.read_u32()?;
        let options = usize::from(offset).checked_sub(5).ok_or(ParseError::DataOffset(offset))? * 4;
        let options = parse_options(r.sub_reader(options).map_err(|_| ParseError::DataOffset(offset))?)?;
        let payload = r.take_rest();
        let segment = Segment {
            seq,
            ack,
            len: payload.len() as u32,
            window,
            flags: SegmentFlags(flags),
            options: (options != TcpOptions::default()).then(|| Box::new(options)),
            payload: (!payload.is_empty()).then(|| Arc::from(payload)),
        };
        Ok((source, destination, segment))
    }
}

fn emit_options(o: &TcpOptions, w: &mut OctetWriter<'_>) {
    if let Some(mss) = o.mss {
        w.write_u8(MSS).write_u8(4).write_u16(mss);
    }
    match (o.sack_permitted, o.timestamps.is_some()) {
        (true, true) => w.write_u8(SACK_PERMITTED).write_u8(2),
        (true, false) => w.write_u8(NOP).write_u8(NOP).write_u8(SACK_PERMITTED).write_u8(2),
        (false, true) => w.write_u8(NOP).write_u8(NOP),
        (false, false) => w,
    };
    if let Some((value, echo)) = o.timestamps {
        w.write_u8(TIMESTAMPS).write_u8(10).write_u32(value).write_u32(echo);
    }
    if let Some(shift) = o.window_scale {
        w.write_u8(NOP).write_u8(WINDOW_SCALE).write_u8(3).write_u8(shift);
    }
    if let Some(cookie) = &o.fast_open {
        let bytes = cookie.as_slice();
        w.write_u8(FAST_OPEN).write_u8(2 + bytes.len() as u8).write_bytes(bytes);
        if !(2 + bytes.len()).is_multiple_of(4) {
            w.write_u8(NOP).write_u8(NOP);
        }
    }
    let blocks = o.fitting_sack_block_count();
    if blocks > 0 {
        w.write_u8(NOP).write_u8(NOP).write_u8(SACK).write_u8(2 + 8 * blocks as u8);
        for &(left, right) in &o.sack.as_slice()[..blocks] {
            w.write_u32(left).write_u32(right);
        }
    }
}

fn parse_options(mut r: OctetReader<'_>) -> Result<TcpOptions, ParseError> {
    let mut o = TcpOptions::default();
    while !r.is_empty() {
        let kind = r.read_u8()?;
        match kind {
            // RFC 9293, 3.1 and 3.2: at any octet, in any segment.
            END => break,
            NOP => continue,
            _ => {}
        }
        // RFC 9293, 3.1: survives an illegal length.
        let wrong = ParseError::OptionLength { kind };
        let len = r.read_u8().map_err(|_| wrong)?.checked_sub(2).ok_or(wrong)?;
        let mut body = r.sub_reader(usize::from(len)).map_err(|_| wrong)?;
        match (kind, len) {
            (MSS, 2) => o.mss = Some(body.read_u16()?),
            (WINDOW_SCALE, 1) => o.window_scale = Some(body.read_u8()?),
            (SACK_PERMITTED, 0) => o.sack_permitted = true,
            (TIMESTAMPS, 8) => o.timestamps = Some((body.read_u32()?, body.read_u32()?)),
            (SACK, 8 | 16 | 24 | 32) => {
                while !body.is_empty() {
                    let block = (body.read_u32()?, body.read_u32()?);
                    if !o.sack.push(block.0, block.1) {
                        return Err(wrong);
                    }
                }
            }
            // RFC 7413 §4.1.1: ignore one of another length.
            (FAST_OPEN, _) => {
                if let Some(cookie) = FastOpenCookie::new(body.take_rest()) {
                    o.fast_open = Some(Box::new(cookie));
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(wrong),
            // RFC 9293, 3.1: ignores an unknown option.
            _ => {}
        }
    }
    Ok(o)
}

/// Fuzz target: parses octets and checks that a segment survives encoding and parsing.
///
/// # Panics
/// If it does not: a defect of this codec.
pub fn round_trip(bytes: &[u8]) {
    let Ok((source, destination, mut segment)) = Segment::parse(bytes) else { return };
    let mut out = Vec::new();
    segment.encode_into(source, destination, &mut out);
    assert_eq!(out.len() as u32, segment.wire_len());
    if let Some(options) = &mut segment.options {
        let fitting = options.fitting_sack_block_count();
        options.sack.truncate(fitting);
    }
    assert_eq!(Segment::parse(&out), Ok((source, destination, segment)));
}
