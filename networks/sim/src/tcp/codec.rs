//! Segments as bytes (RFC 9293 §3.1, RFC 2018, RFC 7323).

use super::fast_open::FastOpenCookie;
use super::segment::{Flags, Options, Segment};
use std::fmt;
use std::sync::Arc;
use usher_core::{Reader, Truncated, Writer};

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// Why bytes are not a TCP segment.
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
            Self::DataOffset(words) => write!(f, "TCP data offset of {words} words"),
            Self::OptionLength { kind } => write!(f, "TCP option {kind} has a wrong length"),
        }
    }
}
impl std::error::Error for ParseError {}
impl From<Truncated> for ParseError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl Segment {
    /// Appends the segment to `out` as it goes on the wire: header, options padded to words, payload
    /// (zeros where the segment carries a count). The checksum, at offset 16, is left zero for the layer
    /// that knows the addresses.
    pub fn emit(&self, source: u16, destination: u16, out: &mut Vec<u8>) {
        let header = self.header_len();
        let mut w = Writer::new(out);
        w.u16(source).u16(destination).u32(self.seq);
        w.u32(self.ack).u8((header << 2) as u8).u8(self.flags.0).u16(self.window).u32(0);
        if let Some(options) = &self.options {
            emit_options(options, &mut w);
        }
        match &self.payload {
            Some(payload) => w.bytes(payload),
            None => w.zeros(self.len as usize),
        };
    }

    /// Reads a segment; answers source port, destination port and the segment, whose payload is its own
    /// copy. Unknown options are skipped; the checksum is not looked at.
    ///
    /// # Errors
    /// The bytes are no segment, or an option's length is wrong.
    pub fn parse(bytes: &[u8]) -> Result<(u16, u16, Segment), ParseError> {
        let mut r = Reader::new(bytes);
        let (source, destination, seq, ack) = (r.u16()?, r.u16()?, r.u32()?, r.u32()?);
        let (offset, flags, window) = (r.u8()? >> 4, r.u8()?, r.u16()?);
        r.u32()?;
        let options = usize::from(offset).checked_sub(5).ok_or(ParseError::DataOffset(offset))? * 4;
        let options = parse_options(r.sub(options).map_err(|_| ParseError::DataOffset(offset))?)?;
        let payload = r.take_rest();
        let segment = Segment {
            seq,
            ack,
            len: payload.len() as u32,
            window,
            flags: Flags(flags),
            options: (options != Options::default()).then(|| Box::new(options)),
            payload: (!payload.is_empty()).then(|| Arc::from(payload)),
        };
        Ok((source, destination, segment))
    }
}

fn emit_options(o: &Options, w: &mut Writer<'_>) {
    if let Some(mss) = o.mss {
        w.u8(MSS).u8(4).u16(mss);
    }
    match (o.sack_permitted, o.timestamps.is_some()) {
        (true, true) => w.u8(SACK_PERMITTED).u8(2),
        (true, false) => w.u8(NOP).u8(NOP).u8(SACK_PERMITTED).u8(2),
        (false, true) => w.u8(NOP).u8(NOP),
        (false, false) => w,
    };
    if let Some((value, echo)) = o.timestamps {
        w.u8(TIMESTAMPS).u8(10).u32(value).u32(echo);
    }
    if let Some(shift) = o.window_scale {
        w.u8(NOP).u8(WINDOW_SCALE).u8(3).u8(shift);
    }
    if let Some(cookie) = &o.fast_open {
        let bytes = cookie.as_slice();
        w.u8(FAST_OPEN).u8(2 + bytes.len() as u8).bytes(bytes);
        if !(2 + bytes.len()).is_multiple_of(4) {
            w.u8(NOP).u8(NOP);
        }
    }
    let blocks = o.sack_fitting();
    if blocks > 0 {
        w.u8(NOP).u8(NOP).u8(SACK).u8(2 + 8 * blocks as u8);
        for &(left, right) in &o.sack.as_slice()[..blocks] {
            w.u32(left).u32(right);
        }
    }
}

fn parse_options(mut r: Reader<'_>) -> Result<Options, ParseError> {
    let mut o = Options::default();
    while !r.is_empty() {
        let kind = r.u8()?;
        match kind {
            END => break,
            NOP => continue,
            _ => {}
        }
        let wrong = ParseError::OptionLength { kind };
        let len = r.u8().map_err(|_| wrong)?.checked_sub(2).ok_or(wrong)?;
        let mut body = r.sub(usize::from(len)).map_err(|_| wrong)?;
        match (kind, len) {
            (MSS, 2) => o.mss = Some(body.u16()?),
            (WINDOW_SCALE, 1) => o.window_scale = Some(body.u8()?),
            (SACK_PERMITTED, 0) => o.sack_permitted = true,
            (TIMESTAMPS, 8) => o.timestamps = Some((body.u32()?, body.u32()?)),
            (SACK, 8 | 16 | 24 | 32) => {
                while !body.is_empty() {
                    let block = (body.u32()?, body.u32()?);
                    if !o.sack.push(block.0, block.1) {
                        return Err(wrong);
                    }
                }
            }
            // RFC 7413 §4.1.1: one of another length is ignored.
            (FAST_OPEN, _) => {
                if let Some(cookie) = FastOpenCookie::new(body.take_rest()) {
                    o.fast_open = Some(Box::new(cookie));
                }
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMPS | SACK, _) => return Err(wrong),
            _ => {}
        }
    }
    Ok(o)
}

/// What a fuzzer runs: parses bytes and, where they are a segment, checks that it survives being written
/// and read again.
///
/// # Panics
/// Where it does not: a defect of this codec.
pub fn round_trip(bytes: &[u8]) {
    let Ok((source, destination, mut segment)) = Segment::parse(bytes) else { return };
    let mut out = Vec::new();
    segment.emit(source, destination, &mut out);
    assert_eq!(out.len() as u32, segment.wire_len());
    if let Some(options) = &mut segment.options {
        let fitting = options.sack_fitting();
        options.sack.truncate(fitting);
    }
    assert_eq!(Segment::parse(&out), Ok((source, destination, segment)));
}
