//! Packets as octets (RFC 9260 §3).

use super::chunk::{Chunk, ChunkParameter, DataChunk, ErrorCause, InitChunk, SackChunk, SctpPacket};
use super::crc32c::crc32c;
use crate::packet::Payload;
use std::net::IpAddr;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const SACK: u8 = 3;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const ABORT: u8 = 6;
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const ERROR: u8 = 9;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// Type of the Heartbeat Info parameter.
const HEARTBEAT_INFO: u16 = 1;
const IPV4: u16 = 5;
const IPV6: u16 = 6;
/// Type of the State Cookie parameter, which an INIT ACK must have.
pub(super) const STATE_COOKIE: u16 = 7;
const UNRECOGNIZED: u16 = 8;
const COOKIE_PRESERVATIVE: u16 = 9;
/// Type of the Host Name Address parameter, which is deprecated.
pub(super) const HOST_NAME: u16 = 11;
const ADDRESS_TYPES: u16 = 12;

/// Position of the checksum in the common header.
const CHECKSUM: std::ops::Range<usize> = 8..12;

/// Why octets are not an SCTP packet.
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

impl From<TruncatedInputError> for ParseError {
    fn from(_: TruncatedInputError) -> Self {
        Self::Truncated
    }
}

impl SctpPacket {
    /// Appends the packet to `out` in wire format, with CRC32c; zeros for a payload without content. Lengths beyond
    /// 65535 do not fit their fields; no parsed or polled packet has them.
    pub fn encode_into(&self, source: u16, destination: u16, out: &mut Vec<u8>) {
        let start = out.len();
        let mut w = OctetWriter::new(out);
        w.write_u16(source).write_u16(destination).write_u32(self.vtag).write_u32(0);
        for chunk in &self.chunks {
            emit_chunk(chunk, out);
        }
        // RFC 9260, 6.8: over zeros in its place.
        let crc = crc32c(&[&out[start..]]);
        out[start..][CHECKSUM].copy_from_slice(&crc.to_le_bytes());
    }

    /// Parses a packet. Returns source port, destination port and the packet, with copies of payloads. A truncated or
    /// malformed chunk ends the parse: the chunks before it are kept (RFC 9260 §6.10), unless their type must be
    /// alone.
    ///
    /// # Errors
    /// The checksum is wrong, or the first chunk or one of its parameters or causes is malformed.
    pub fn parse(bytes: &[u8]) -> Result<(u16, u16, SctpPacket), ParseError> {
        let mut r = OctetReader::new(bytes);
        let (source, destination, vtag) = (r.read_u16()?, r.read_u16()?, r.read_u32()?);
        let checksum = u32::from_le_bytes(r.read_array()?);
        if crc32c(&[&bytes[..CHECKSUM.start], &[0; 4], &bytes[CHECKSUM.end..]]) != checksum {
            // RFC 9260, 6.8: drops a packet with a wrong checksum.
            return Err(ParseError::Checksum);
        }
        let mut chunks = Vec::new();
        while !r.is_empty() {
            match next_chunk(&mut r) {
                Ok(chunk) => chunks.push(chunk),
                Err(why) => match chunks.first() {
                    None | Some(Chunk::Init(_) | Chunk::InitAck(_) | Chunk::ShutdownComplete { .. }) => {
                        return Err(why);
                    }
                    Some(_) => break,
                },
            }
        }
        Ok((source, destination, SctpPacket { vtag, chunks }))
    }
}

fn next_chunk(r: &mut OctetReader<'_>) -> Result<Chunk, ParseError> {
    let (kind, flags, len) = (r.read_u8()?, r.read_u8()?, usize::from(r.read_u16()?));
    let malformed = ParseError::Chunk { kind };
    let value = r.read_bytes(len.checked_sub(4).ok_or(malformed)?)?;
    skip_padding(r, len);
    parse_chunk(kind, flags, value).ok_or(malformed)
}

/// Skips the padding of the last word; it may be missing at the end of the packet.
fn skip_padding(r: &mut OctetReader<'_>, len: usize) {
    let padding = (len.next_multiple_of(4) - len).min(r.remaining());
    // RFC 9260, 3.2: ignores padding. Skips no more than there is.
    let _ = r.read_bytes(padding);
}

fn parse_chunk(kind: u8, flags: u8, value: &[u8]) -> Option<Chunk> {
    let mut r = OctetReader::new(value);
    let chunk = match kind {
        DATA => Chunk::Data(DataChunk {
            tsn: r.read_u32().ok()?,
            stream: r.read_u16().ok()?,
            ssn: r.read_u16().ok()?,
            ppid: r.read_u32().ok()?,
            unordered: flags & 4 != 0,
            beginning: flags & 2 != 0,
            ending: flags & 1 != 0,
            immediate: flags & 8 != 0,
            payload: Payload::copy_from_slice(r.take_rest()),
        }),
        INIT => Chunk::Init(Box::new(parse_init(&mut r)?)),
        INIT_ACK => Chunk::InitAck(Box::new(parse_init(&mut r)?)),
        SACK => Chunk::Sack(parse_sack(&mut r)?),
        HEARTBEAT => Chunk::Heartbeat(parse_heartbeat(&mut r)?),
        HEARTBEAT_ACK => Chunk::HeartbeatAck(parse_heartbeat(&mut r)?),
        // RFC 9260, 3.3.7: drops a malformed ABORT.
        ABORT => Chunk::Abort { reflected: flags & 1 != 0, causes: parse_causes(&mut r)? },
        SHUTDOWN => Chunk::Shutdown { cumulative: r.read_u32().ok()? },
        SHUTDOWN_ACK => Chunk::ShutdownAck,
        ERROR => Chunk::Error(parse_causes(&mut r)?),
        COOKIE_ECHO => Chunk::CookieEcho(r.take_rest().to_vec()),
        COOKIE_ACK => Chunk::CookieAck,
        SHUTDOWN_COMPLETE => Chunk::ShutdownComplete { reflected: flags & 1 != 0 },
        _ => Chunk::Unknown { kind, flags, value: r.take_rest().to_vec() },
    };
    r.is_empty().then_some(chunk)
}

/// Parses a parameter or cause: its type and value.
fn parse_parameter<'a>(r: &mut OctetReader<'a>) -> Option<(u16, &'a [u8])> {
    let (kind, len) = (r.read_u16().ok()?, usize::from(r.read_u16().ok()?));
    let value = r.read_bytes(len.checked_sub(4)?).ok()?;
    skip_padding(r, len);
    Some((kind, value))
}

/// Parses a parameter within a parameter, as received.
fn parse_quoted_parameter(value: &[u8]) -> Option<ChunkParameter> {
    let mut r = OctetReader::new(value);
    let (kind, value) = parse_parameter(&mut r)?;
    r.is_empty().then(|| ChunkParameter { kind, value: value.to_vec() })
}

fn parse_init(r: &mut OctetReader<'_>) -> Option<InitChunk> {
    let mut init = InitChunk {
        tag: r.read_u32().ok()?,
        window: r.read_u32().ok()?,
        outbound: r.read_u16().ok()?,
        inbound: r.read_u16().ok()?,
        tsn: r.read_u32().ok()?,
        ..InitChunk::default()
    };
    while !r.is_empty() {
        let (kind, value) = parse_parameter(r)?;
        let mut v = OctetReader::new(value);
        match kind {
            IPV4 | IPV6 => {
                let address: IpAddr = match kind {
                    IPV4 => v.read_array::<4>().ok()?.into(),
                    _ => v.read_array::<16>().ok()?.into(),
                };
                if init.addresses.len() < InitChunk::MAX_ADDRESSES {
                    init.addresses.push(address);
                }
            }
            STATE_COOKIE => init.cookie = Some(v.take_rest().to_vec()),
            UNRECOGNIZED => init.unrecognized.push(parse_quoted_parameter(v.take_rest())?),
            COOKIE_PRESERVATIVE => init.cookie_preservative = Some(v.read_u32().ok()?),
            HOST_NAME => init.host_name = Some(v.take_rest().to_vec()),
            ADDRESS_TYPES => {
                init.address_types.clear();
                while !v.is_empty() {
                    init.address_types.push(v.read_u16().ok()?);
                }
            }
            _ => {
                // RFC 9260, 3.2.1: a clear highest bit ends the parse; the next bit requests a report.
                if kind & 0x4000 != 0 {
                    init.unknown.push(ChunkParameter { kind, value: v.take_rest().to_vec() });
                }
                if kind & 0x8000 == 0 {
                    r.take_rest();
                }
                v.take_rest();
            }
        }
        if !v.is_empty() {
            return None;
        }
    }
    Some(init)
}

fn parse_sack(r: &mut OctetReader<'_>) -> Option<SackChunk> {
    let (cumulative, window) = (r.read_u32().ok()?, r.read_u32().ok()?);
    let (gaps, duplicates) = (r.read_u16().ok()?, r.read_u16().ok()?);
    let gaps =
        (0..gaps).map(|_| Some((r.read_u16().ok()?, r.read_u16().ok()?))).collect::<Option<Vec<_>>>()?;
    let duplicates = (0..duplicates).map(|_| r.read_u32().ok()).collect::<Option<Vec<_>>>()?;
    Some(SackChunk { cumulative, window, gaps, duplicates })
}

fn parse_heartbeat(r: &mut OctetReader<'_>) -> Option<Vec<u8>> {
    let (kind, info) = parse_parameter(r)?;
    (kind == HEARTBEAT_INFO).then(|| info.to_vec())
}

fn parse_causes(r: &mut OctetReader<'_>) -> Option<Vec<ErrorCause>> {
    let mut causes = Vec::new();
    while !r.is_empty() {
        let (code, info) = parse_parameter(r)?;
        causes.push(parse_cause(code, info)?);
    }
    Some(causes)
}

fn parse_parameters(r: &mut OctetReader<'_>) -> Option<Vec<ChunkParameter>> {
    let mut parameters = Vec::new();
    while !r.is_empty() {
        let (kind, value) = parse_parameter(r)?;
        parameters.push(ChunkParameter { kind, value: value.to_vec() });
    }
    Some(parameters)
}

fn parse_cause(code: u16, info: &[u8]) -> Option<ErrorCause> {
    let mut r = OctetReader::new(info);
    let cause = match code {
        1 => {
            let stream = r.read_u16().ok()?;
            r.read_u16().ok()?;
            ErrorCause::InvalidStream(stream)
        }
        2 => {
            let n = r.read_u32().ok()?;
            ErrorCause::MissingParameters((0..n).map(|_| r.read_u16().ok()).collect::<Option<Vec<_>>>()?)
        }
        3 => ErrorCause::StaleCookie(r.read_u32().ok()?),
        4 => ErrorCause::OutOfResource,
        5 => ErrorCause::UnresolvableAddress(parse_quoted_parameter(r.take_rest())?),
        6 => ErrorCause::UnrecognizedChunk(r.take_rest().to_vec()),
        7 => ErrorCause::InvalidParameter,
        8 => ErrorCause::UnrecognizedParameters(parse_parameters(&mut r)?),
        9 => ErrorCause::NoUserData(r.read_u32().ok()?),
        10 => ErrorCause::CookieWhileShuttingDown,
        11 => ErrorCause::NewAddresses(parse_parameters(&mut r)?),
        12 => ErrorCause::UserAbort(r.take_rest().to_vec()),
        13 => ErrorCause::ProtocolViolation(r.take_rest().to_vec()),
        _ => ErrorCause::Other { code, info: r.take_rest().to_vec() },
    };
    r.is_empty().then_some(cause)
}

fn pad_to_word(out: &mut Vec<u8>, start: usize) {
    // RFC 9260, 3.2: zeros.
    let len = out.len() - start;
    out.resize(start + len.next_multiple_of(4), 0);
}

fn emit_chunk(chunk: &Chunk, out: &mut Vec<u8>) {
    let start = out.len();
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    let (kind, flags) = match chunk {
        Chunk::Data(d) => {
            let flags = flag(d.immediate, 8) | flag(d.unordered, 4) | flag(d.beginning, 2);
            (DATA, flags | flag(d.ending, 1))
        }
        Chunk::Init(_) => (INIT, 0),
        Chunk::InitAck(_) => (INIT_ACK, 0),
        Chunk::Sack(_) => (SACK, 0),
        Chunk::Heartbeat(_) => (HEARTBEAT, 0),
        Chunk::HeartbeatAck(_) => (HEARTBEAT_ACK, 0),
        Chunk::Abort { reflected, .. } => (ABORT, flag(*reflected, 1)),
        Chunk::Shutdown { .. } => (SHUTDOWN, 0),
        Chunk::ShutdownAck => (SHUTDOWN_ACK, 0),
        Chunk::Error(_) => (ERROR, 0),
        Chunk::CookieEcho(_) => (COOKIE_ECHO, 0),
        Chunk::CookieAck => (COOKIE_ACK, 0),
        Chunk::ShutdownComplete { reflected } => (SHUTDOWN_COMPLETE, flag(*reflected, 1)),
        Chunk::Unknown { kind, flags, .. } => (*kind, *flags),
    };
    let mut w = OctetWriter::new(out);
    w.write_u8(kind).write_u8(flags).write_u16(chunk.wire_len() as u16);
    match chunk {
        Chunk::Data(d) => {
            w.write_u32(d.tsn).write_u16(d.stream).write_u16(d.ssn).write_u32(d.ppid);
            d.payload.write_to(out);
        }
        Chunk::Init(init) | Chunk::InitAck(init) => emit_init(init, out),
        Chunk::Sack(sack) => {
            w.write_u32(sack.cumulative).write_u32(sack.window);
            w.write_u16(sack.gaps.len() as u16).write_u16(sack.duplicates.len() as u16);
            for (first, last) in &sack.gaps {
                w.write_u16(*first).write_u16(*last);
            }
            for tsn in &sack.duplicates {
                w.write_u32(*tsn);
            }
        }
        Chunk::Heartbeat(info) | Chunk::HeartbeatAck(info) => {
            emit_parameter(HEARTBEAT_INFO, info, out);
        }
        Chunk::Abort { causes, .. } | Chunk::Error(causes) => {
            for cause in causes {
                pad_to_word(out, start);
                emit_cause(cause, out);
            }
        }
        Chunk::Shutdown { cumulative } => {
            w.write_u32(*cumulative);
        }
        Chunk::CookieEcho(cookie) => {
            w.write_bytes(cookie);
        }
        Chunk::Unknown { value, .. } => {
            w.write_bytes(value);
        }
        Chunk::ShutdownAck | Chunk::CookieAck | Chunk::ShutdownComplete { .. } => {}
    }
    pad_to_word(out, start);
}

/// Appends a parameter, after the padding of the previous one.
fn emit_parameter(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    OctetWriter::new(out).write_u16(kind).write_u16(4 + value.len() as u16).write_bytes(value);
}

/// Returns the parameter of an address (RFC 9260 §3.3.2.1.1 and §3.3.2.1.2).
pub(super) fn address_parameter(address: &IpAddr) -> ChunkParameter {
    match address {
        IpAddr::V4(a) => ChunkParameter { kind: IPV4, value: a.octets().to_vec() },
        IpAddr::V6(a) => ChunkParameter { kind: IPV6, value: a.octets().to_vec() },
    }
}

fn emit_init(init: &InitChunk, out: &mut Vec<u8>) {
    let mut w = OctetWriter::new(out);
    w.write_u32(init.tag)
        .write_u32(init.window)
        .write_u16(init.outbound)
        .write_u16(init.inbound)
        .write_u32(init.tsn);
    let start = out.len();
    for address in &init.addresses {
        let parameter = address_parameter(address);
        emit_parameter(parameter.kind, &parameter.value, out);
    }
    if let Some(more) = init.cookie_preservative {
        emit_parameter(COOKIE_PRESERVATIVE, &more.to_be_bytes(), out);
    }
    if let Some(name) = &init.host_name {
        pad_to_word(out, start);
        emit_parameter(HOST_NAME, name, out);
    }
    if !init.address_types.is_empty() {
        pad_to_word(out, start);
        let types: Vec<u8> = init.address_types.iter().flat_map(|t| t.to_be_bytes()).collect();
        emit_parameter(ADDRESS_TYPES, &types, out);
    }
    if let Some(cookie) = &init.cookie {
        pad_to_word(out, start);
        emit_parameter(STATE_COOKIE, cookie, out);
    }
    for parameter in &init.unrecognized {
        let mut quoted = Vec::new();
        emit_parameter(parameter.kind, &parameter.value, &mut quoted);
        pad_to_word(out, start);
        emit_parameter(UNRECOGNIZED, &quoted, out);
    }
    for parameter in &init.unknown {
        pad_to_word(out, start);
        emit_parameter(parameter.kind, &parameter.value, out);
    }
}

fn emit_cause(cause: &ErrorCause, out: &mut Vec<u8>) {
    let code = match cause {
        ErrorCause::InvalidStream(_) => 1,
        ErrorCause::MissingParameters(_) => 2,
        ErrorCause::StaleCookie(_) => 3,
        ErrorCause::OutOfResource => 4,
        ErrorCause::UnresolvableAddress(_) => 5,
        ErrorCause::UnrecognizedChunk(_) => 6,
        ErrorCause::InvalidParameter => 7,
        ErrorCause::UnrecognizedParameters(_) => 8,
        ErrorCause::NoUserData(_) => 9,
        ErrorCause::CookieWhileShuttingDown => 10,
        ErrorCause::NewAddresses(_) => 11,
        ErrorCause::UserAbort(_) => 12,
        ErrorCause::ProtocolViolation(_) => 13,
        ErrorCause::Other { code, .. } => *code,
    };
    let mut w = OctetWriter::new(out);
    w.write_u16(code).write_u16(cause.wire_len() as u16);
    match cause {
        ErrorCause::InvalidStream(stream) => {
            w.write_u16(*stream).write_u16(0);
        }
        ErrorCause::MissingParameters(kinds) => {
            w.write_u32(kinds.len() as u32);
            for kind in kinds {
                w.write_u16(*kind);
            }
        }
        ErrorCause::StaleCookie(n) | ErrorCause::NoUserData(n) => {
            w.write_u32(*n);
        }
        ErrorCause::UnresolvableAddress(parameter) => emit_parameter(parameter.kind, &parameter.value, out),
        ErrorCause::UnrecognizedParameters(parameters) | ErrorCause::NewAddresses(parameters) => {
            let start = out.len();
            for parameter in parameters {
                pad_to_word(out, start);
                emit_parameter(parameter.kind, &parameter.value, out);
            }
        }
        ErrorCause::UnrecognizedChunk(info)
        | ErrorCause::UserAbort(info)
        | ErrorCause::ProtocolViolation(info)
        | ErrorCause::Other { info, .. } => {
            w.write_bytes(info);
        }
        ErrorCause::OutOfResource | ErrorCause::InvalidParameter | ErrorCause::CookieWhileShuttingDown => {}
    }
}

/// Fuzz target: parses octets and checks that a packet survives encoding and parsing. The checksum is corrected
/// first, so that all other code is reached.
///
/// # Panics
/// If it does not: a defect of this codec.
pub fn round_trip(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(field) = bytes.get_mut(CHECKSUM) {
        field.fill(0);
        let crc = crc32c(&[&bytes]);
        bytes[CHECKSUM].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok((source, destination, packet)) = SctpPacket::parse(&bytes) else { return };
    let mut out = Vec::new();
    packet.encode_into(source, destination, &mut out);
    assert_eq!(out.len() as u32, packet.len());
    assert_eq!(SctpPacket::parse(&out), Ok((source, destination, packet)));
}
