//! Packets and their chunks as the simulator carries them (RFC 9260 §3).

use super::{COMMON_HEADER, DATA_HEADER};
use crate::packet::Payload;
use std::net::IpAddr;

/// A DATA chunk (RFC 9260 §3.3.1): a user message or a piece of one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DataChunk {
    /// Transmission sequence number.
    pub tsn: u32,
    /// Stream identifier.
    pub stream: u16,
    /// Stream sequence number; means nothing with `unordered`.
    pub ssn: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// U: to be delivered without regard to the stream's order.
    pub unordered: bool,
    /// B: the first piece of its message.
    pub beginning: bool,
    /// E: the last piece of its message.
    pub ending: bool,
    /// I: the sender wants it acknowledged at once.
    pub immediate: bool,
    /// The user data; never empty on a good wire.
    pub payload: Payload,
}

/// The fields of INIT and INIT ACK (RFC 9260 §3.3.2 and §3.3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InitChunk {
    /// The verification tag that the other side shall use; never 0 on a good wire.
    pub tag: u32,
    /// Advertised receiver window credit, in bytes.
    pub window: u32,
    /// Outbound streams that the sender wants.
    pub outbound: u16,
    /// Inbound streams that the sender can take.
    pub inbound: u16,
    /// The first TSN of the sender.
    pub tsn: u32,
    /// The sender's addresses beside the packet's source; at most [`InitChunk::MAX_ADDRESSES`] are read.
    pub addresses: Vec<IpAddr>,
    /// State cookie; INIT ACK has one.
    pub cookie: Option<Vec<u8>>,
    /// Wanted prolongation of the cookie's life, in milliseconds (INIT only).
    pub cookie_preservative: Option<u32>,
    /// The sender's name, which neither INIT nor INIT ACK may have: what has one is refused (RFC 9260 §3.3.2.1.4).
    pub host_name: Option<Vec<u8>>,
    /// Types of addresses that the sender supports: 5 is IPv4, 6 is IPv6. Empty where it does not say.
    pub address_types: Vec<u16>,
    /// Parameters of the INIT that its receiver did not recognise (INIT ACK only).
    pub unrecognized: Vec<ChunkParameter>,
    /// Parameters of unknown type that want to be reported to the sender (RFC 9260 §3.2.1: the second
    /// highest bit of the type is set). Others of unknown type are not kept.
    pub unknown: Vec<ChunkParameter>,
}

impl InitChunk {
    /// The most addresses that are taken from one INIT or INIT ACK.
    pub const MAX_ADDRESSES: usize = 64;
}

/// A parameter as it came (RFC 9260 §3.2.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkParameter {
    /// Its type.
    pub kind: u16,
    /// Its value, without header and padding.
    pub value: Vec<u8>,
}

/// Selective acknowledgement (RFC 9260 §3.3.4).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SackChunk {
    /// All TSNs up to this one have come.
    pub cumulative: u32,
    /// Advertised receiver window credit, in bytes.
    pub window: u32,
    /// Runs that came beyond: first and last, as distances from `cumulative`.
    pub gaps: Vec<(u16, u16)>,
    /// TSNs that came again since the last SACK.
    pub duplicates: Vec<u32>,
}

/// Why an ERROR or ABORT was sent (RFC 9260 §3.3.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorCause {
    /// DATA on a stream that was not negotiated.
    InvalidStream(u16),
    /// Mandatory parameters of these types are missing.
    MissingParameters(Vec<u16>),
    /// The cookie came too late by this many microseconds.
    StaleCookie(u32),
    /// Out of resource.
    OutOfResource,
    /// An address that cannot be resolved, as it came.
    UnresolvableAddress(ChunkParameter),
    /// A chunk of unknown type, as it came.
    UnrecognizedChunk(Vec<u8>),
    /// A mandatory parameter has a value that it must not have.
    InvalidParameter,
    /// Parameters that were not recognised, in an answer to an INIT ACK.
    UnrecognizedParameters(Vec<ChunkParameter>),
    /// The DATA chunk with this TSN has no user data.
    NoUserData(u32),
    /// COOKIE ECHO came while shutting down.
    CookieWhileShuttingDown,
    /// INIT has these addresses, which the association that there is does not have.
    NewAddresses(Vec<ChunkParameter>),
    /// The application aborted; what it has to say.
    UserAbort(Vec<u8>),
    /// The other side broke the protocol; more information.
    ProtocolViolation(Vec<u8>),
    /// Another cause.
    Other {
        /// Its code.
        code: u16,
        /// Its information, without header and padding.
        info: Vec<u8>,
    },
}

/// A chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chunk {
    /// User data.
    Data(DataChunk),
    /// Begins the set-up; alone in its packet.
    Init(Box<InitChunk>),
    /// Answers INIT, with the cookie; alone in its packet.
    InitAck(Box<InitChunk>),
    /// Acknowledges DATA.
    Sack(SackChunk),
    /// Probes a path; the information comes back as it is.
    Heartbeat(Vec<u8>),
    /// Answers HEARTBEAT.
    HeartbeatAck(Vec<u8>),
    /// Ends the association at once.
    Abort {
        /// T: the verification tag is the receiver's own, reflected.
        reflected: bool,
        /// Why.
        causes: Vec<ErrorCause>,
    },
    /// Begins the end: the sender has nothing left to send.
    Shutdown {
        /// All TSNs up to this one have come.
        cumulative: u32,
    },
    /// Answers SHUTDOWN once all is acknowledged.
    ShutdownAck,
    /// Reports what is no reason to end the association.
    Error(Vec<ErrorCause>),
    /// Echoes the cookie; the first in its packet.
    CookieEcho(Vec<u8>),
    /// Answers COOKIE ECHO; the first in its packet.
    CookieAck,
    /// Answers SHUTDOWN ACK; alone in its packet.
    ShutdownComplete {
        /// T: the verification tag is the receiver's own, reflected.
        reflected: bool,
    },
    /// A chunk of a type that is not known here.
    Unknown {
        /// Its type.
        kind: u8,
        /// Its flags.
        flags: u8,
        /// Its value, without header and padding.
        value: Vec<u8>,
    },
}

/// `n` rounded up to a whole number of words.
pub(super) const fn round_to_words(n: u32) -> u32 {
    n.saturating_add(3) & !3
}

impl ChunkParameter {
    pub(super) fn wire_len(&self) -> u32 {
        4 + self.value.len() as u32
    }
}

impl InitChunk {
    /// Bytes of the parameters, each padded, but for the last.
    pub(super) fn parameters_len(&self) -> u32 {
        let mut whole = 0;
        let mut last = 0;
        let mut add = |len: u32| {
            whole = round_to_words(whole) + len;
            last = len;
        };
        for address in &self.addresses {
            add(if address.is_ipv4() { 8 } else { 20 });
        }
        if self.cookie_preservative.is_some() {
            add(8);
        }
        if let Some(name) = &self.host_name {
            add(4 + name.len() as u32);
        }
        if !self.address_types.is_empty() {
            add(4 + 2 * self.address_types.len() as u32);
        }
        if let Some(cookie) = &self.cookie {
            add(4 + cookie.len() as u32);
        }
        for parameter in &self.unrecognized {
            add(4 + parameter.wire_len());
        }
        for parameter in &self.unknown {
            add(parameter.wire_len());
        }
        whole
    }
}

impl ErrorCause {
    /// Bytes with the cause's header, without padding.
    pub(super) fn wire_len(&self) -> u32 {
        4 + match self {
            Self::InvalidStream(_) | Self::StaleCookie(_) | Self::NoUserData(_) => 4,
            Self::MissingParameters(kinds) => 4 + 2 * kinds.len() as u32,
            Self::OutOfResource | Self::InvalidParameter | Self::CookieWhileShuttingDown => 0,
            Self::UnresolvableAddress(parameter) => parameter.wire_len(),
            Self::UnrecognizedParameters(parameters) | Self::NewAddresses(parameters) => {
                parameters.iter().fold(0, |len, p| round_to_words(len) + p.wire_len())
            }
            Self::UnrecognizedChunk(info)
            | Self::UserAbort(info)
            | Self::ProtocolViolation(info)
            | Self::Other { info, .. } => info.len() as u32,
        }
    }
}

fn causes_len(causes: &[ErrorCause]) -> u32 {
    causes.iter().fold(0, |len, cause| round_to_words(len) + cause.wire_len())
}

impl SackChunk {
    /// Bytes with the chunk header.
    pub(super) fn wire_len(&self) -> u32 {
        16 + 4 * (self.gaps.len() + self.duplicates.len()) as u32
    }
}

impl Chunk {
    /// The chunk's length field: with its header, without its padding.
    pub fn wire_len(&self) -> u32 {
        match self {
            Self::Data(data) => DATA_HEADER + data.payload.len,
            Self::Init(init) | Self::InitAck(init) => 20 + init.parameters_len(),
            Self::Sack(sack) => sack.wire_len(),
            Self::Heartbeat(info) | Self::HeartbeatAck(info) => 8 + info.len() as u32,
            Self::Abort { causes, .. } | Self::Error(causes) => 4 + causes_len(causes),
            Self::Shutdown { .. } => 8,
            Self::ShutdownAck | Self::CookieAck | Self::ShutdownComplete { .. } => 4,
            Self::CookieEcho(cookie) => 4 + cookie.len() as u32,
            Self::Unknown { value, .. } => 4 + value.len() as u32,
        }
    }
    /// What it takes of a packet: with its padding.
    pub(super) fn padded_len(&self) -> u32 {
        round_to_words(self.wire_len())
    }
}

/// One SCTP packet.
///
/// Ports are not in it: the host keeps them beside the association.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SctpPacket {
    /// Verification tag.
    pub vtag: u32,
    /// The chunks.
    pub chunks: Vec<Chunk>,
}

impl SctpPacket {
    /// A packet with one chunk.
    pub(super) fn with_chunk(vtag: u32, chunk: Chunk) -> Self {
        Self { vtag, chunks: vec![chunk] }
    }
    /// Bytes on the wire: common header, chunks, padding.
    #[expect(clippy::len_without_is_empty, reason = "a packet has a length and is never empty")]
    pub fn len(&self) -> u32 {
        self.chunks.iter().fold(COMMON_HEADER, |len, chunk| len.saturating_add(chunk.padded_len()))
    }
    /// True where it carries user data.
    pub fn has_data(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Data(_)))
    }
}
