//! Packets and chunks in the simulator's form (RFC 9260 §3).

use super::{COMMON_HEADER, DATA_HEADER};
use crate::packet::Payload;
use std::net::IpAddr;

/// A DATA chunk (RFC 9260 §3.3.1): a user message or a fragment of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DataChunk {
    /// Transmission sequence number.
    pub tsn: u32,
    /// Stream identifier.
    pub stream: u16,
    /// Stream sequence number; meaningless with `unordered`.
    pub ssn: u16,
    /// Payload protocol identifier.
    pub ppid: u32,
    /// U: delivered regardless of the stream's order.
    pub unordered: bool,
    /// B: the first fragment of its message.
    pub beginning: bool,
    /// E: the last fragment of its message.
    pub ending: bool,
    /// I: the sender requests an immediate acknowledgement.
    pub immediate: bool,
    /// User data; never empty in a valid chunk.
    pub payload: Payload,
}

/// The fields of INIT and INIT ACK (RFC 9260 §3.3.2 and §3.3.3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InitChunk {
    /// The verification tag for the peer's packets; never 0 in a valid chunk.
    pub tag: u32,
    /// Advertised receiver window credit, in octets.
    pub window: u32,
    /// Outbound streams that the sender requests.
    pub outbound: u16,
    /// Maximum inbound streams of the sender.
    pub inbound: u16,
    /// The first TSN of the sender.
    pub tsn: u32,
    /// The sender's addresses beside the packet's source, at most [`InitChunk::MAX_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// State cookie, in INIT ACK.
    pub cookie: Option<Vec<u8>>,
    /// Requested extension of the cookie's lifetime, in milliseconds (INIT only).
    pub cookie_preservative: Option<u32>,
    /// The sender's host name. INIT and INIT ACK must not have one and are refused with it (RFC 9260 §3.3.2.1.4).
    pub host_name: Option<Vec<u8>>,
    /// Supported address types: 5 is IPv4, 6 is IPv6. Empty if not stated.
    pub address_types: Vec<u16>,
    /// Parameters of the INIT that its receiver did not recognise (INIT ACK only).
    pub unrecognized: Vec<ChunkParameter>,
    /// Unknown parameters to report to the sender (RFC 9260 §3.2.1: the second highest bit of the type is set).
    /// Others are dropped.
    pub unknown: Vec<ChunkParameter>,
}

impl InitChunk {
    /// Maximum addresses accepted from an INIT or INIT ACK.
    pub const MAX_ADDRESSES: usize = 64;
}

/// A parameter as received (RFC 9260 §3.2.1).
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
    /// All TSNs up to this one are received.
    pub cumulative: u32,
    /// Advertised receiver window credit, in octets.
    pub window: u32,
    /// Gap blocks: first and last received TSN, as offsets from `cumulative`.
    pub gaps: Vec<(u16, u16)>,
    /// TSNs received again since the last SACK.
    pub duplicates: Vec<u32>,
}

/// A cause of an ERROR or ABORT (RFC 9260 §3.3.10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ErrorCause {
    /// DATA on a stream that was not negotiated.
    InvalidStream(u16),
    /// Mandatory parameters of these types are missing.
    MissingParameters(Vec<u16>),
    /// The cookie is late by this number of microseconds.
    StaleCookie(u32),
    /// Out of resource.
    OutOfResource,
    /// An address that cannot be resolved, as received.
    UnresolvableAddress(ChunkParameter),
    /// A chunk of unknown type, as received.
    UnrecognizedChunk(Vec<u8>),
    /// A mandatory parameter has an invalid value.
    InvalidParameter,
    /// Unrecognised parameters of an INIT ACK.
    UnrecognizedParameters(Vec<ChunkParameter>),
    /// The DATA chunk with this TSN has no user data.
    NoUserData(u32),
    /// COOKIE ECHO received during shutdown.
    CookieWhileShuttingDown,
    /// INIT has these addresses, which the existing association does not have.
    NewAddresses(Vec<ChunkParameter>),
    /// The application aborted, with this reason.
    UserAbort(Vec<u8>),
    /// The peer violated the protocol, with this information.
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
    /// Starts the setup; alone in its packet.
    Init(Box<InitChunk>),
    /// Answers INIT, with the cookie; alone in its packet.
    InitAck(Box<InitChunk>),
    /// Acknowledges DATA.
    Sack(SackChunk),
    /// Probes a path; the peer returns the information unchanged.
    Heartbeat(Vec<u8>),
    /// Answers HEARTBEAT.
    HeartbeatAck(Vec<u8>),
    /// Ends the association at once.
    Abort {
        /// T: the verification tag is the receiver's own, reflected.
        reflected: bool,
        /// Causes.
        causes: Vec<ErrorCause>,
    },
    /// Starts the shutdown: the sender has no data left.
    Shutdown {
        /// All TSNs up to this one are received.
        cumulative: u32,
    },
    /// Answers SHUTDOWN after all data is acknowledged.
    ShutdownAck,
    /// Reports an error that does not end the association.
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
    /// A chunk of unknown type.
    Unknown {
        /// Its type.
        kind: u8,
        /// Its flags.
        flags: u8,
        /// Its value, without header and padding.
        value: Vec<u8>,
    },
}

/// Rounds `n` up to a whole number of words.
pub(super) const fn round_to_words(n: u32) -> u32 {
    n.saturating_add(3) & !3
}

impl ChunkParameter {
    pub(super) fn wire_len(&self) -> u32 {
        4 + self.value.len() as u32
    }
}

impl InitChunk {
    /// Returns the octets of the parameters, each padded except the last.
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
    /// Returns the octets with the cause's header, without padding.
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
    /// Returns the octets with the chunk header.
    pub(super) fn wire_len(&self) -> u32 {
        16 + 4 * (self.gaps.len() + self.duplicates.len()) as u32
    }
}

impl Chunk {
    /// Returns the chunk's length field: with its header, without its padding.
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
    /// Returns its octets in a packet, with padding.
    pub(super) fn padded_len(&self) -> u32 {
        round_to_words(self.wire_len())
    }
}

/// An SCTP packet without ports: the host keeps them with the association.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SctpPacket {
    /// Verification tag.
    pub vtag: u32,
    /// The chunks.
    pub chunks: Vec<Chunk>,
}

impl SctpPacket {
    /// Creates a packet with one chunk.
    pub(super) fn with_chunk(vtag: u32, chunk: Chunk) -> Self {
        Self { vtag, chunks: vec![chunk] }
    }
    /// Returns the octets on the wire: common header, chunks, padding.
    #[expect(clippy::len_without_is_empty, reason = "a packet has a length and is never empty")]
    pub fn len(&self) -> u32 {
        self.chunks.iter().fold(COMMON_HEADER, |len, chunk| len.saturating_add(chunk.padded_len()))
    }
    /// True with user data.
    pub fn has_data(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Data(_)))
    }
}
