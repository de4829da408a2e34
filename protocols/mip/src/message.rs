//! Mobility Header messages: Binding Update and Binding Acknowledgement, with their options.

use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use usher_core::{Duration, OctetReader, OctetWriter, TruncatedInputError};

/// Maximum options of a message. With this limit, a message of the longest options still fits the header's length.
pub const MAX_OPTIONS: usize = 7;

/// "No next header" (RFC 8200 §4.7): the payload protocol of a Mobility Header (RFC 6275 §6.1.1).
const NO_NEXT_HEADER: u8 = 59;
const BINDING_UPDATE: u8 = 5;
const BINDING_ACKNOWLEDGEMENT: u8 = 6;
/// Octets before the message data (§6.1.1).
const HEADER: usize = 6;
/// Offset of the checksum.
pub(crate) const CHECKSUM_AT: usize = 4;

/// Why octets are not a valid packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The octets end too early.
    #[error(transparent)]
    Truncated(#[from] TruncatedInputError),
    /// The inner header is not IPv6's.
    #[error("the IP version is {0}, not 6")]
    NotIpv6(u8),
    /// The inner header's next header is not Mobility (135).
    #[error("the next header is {0}, not Mobility")]
    NotMobility(u8),
    /// Octets follow the Mobility Header, in the inner packet or after it.
    #[error("{0} octets follow the message")]
    Trailing(usize),
    /// The payload protocol is not 59. The ICMP error for it (§9.2) is not implemented.
    #[error("the payload protocol is {0}, not 59")]
    Payload(u8),
    /// The checksum of the Mobility Header is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// The message type is unknown.
    #[error("unknown mobility header type {0}")]
    UnknownType(u8),
    /// The option's length is not that of its type.
    #[error("mobility option {0} has a wrong length of {1} octets")]
    OptionLength(u8, usize),
    /// There are more than [`MAX_OPTIONS`] options.
    #[error("more than {MAX_OPTIONS} mobility options")]
    TooManyOptions,
}

/// The lifetime of a binding, in units of four seconds (§6.1.7). Zero requests its removal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BindingLifetime(pub u16);

impl BindingLifetime {
    /// Returns the longest lifetime up to `d`.
    #[must_use]
    pub const fn from_duration(d: Duration) -> Self {
        let units = d.as_secs() / 4;
        Self(if units > u16::MAX as u64 { u16::MAX } else { units as u16 })
    }
    /// Returns the lifetime as a duration.
    #[must_use]
    pub const fn to_duration(self) -> Duration {
        Duration::from_secs(self.0 as u64 * 4)
    }
}

/// The status of a Binding Update (§6.1.8). Values below 128 mean accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingStatus(pub u8);

/// Declares the statuses: number and printed name.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $octet:literal $print:literal,)*) => {
        impl BindingStatus {
            $($(#[$doc])* pub const $name: Self = Self($octet);)*
            const fn name(self) -> Option<&'static str> {
                match self.0 { $($octet => Some($print),)* _ => None }
            }
        }
    };
}

statuses! {
    /// Accepted.
    ACCEPTED = 0 "accepted",
    /// Refused, without a reason.
    REASON_UNSPECIFIED = 128 "reason unspecified",
    /// Refused by the administrator.
    PROHIBITED = 129 "administratively prohibited",
    /// There are no resources for another binding.
    INSUFFICIENT_RESOURCES = 130 "insufficient resources",
    /// This node is not a home agent.
    NO_HOME_REGISTRATION = 131 "home registration not supported",
    /// This node does not serve that home address.
    NOT_HOME_AGENT = 133 "not home agent for this mobile node",
    /// The sequence number is not above the latest one, which the acknowledgement contains.
    SEQUENCE_OUT_OF_WINDOW = 135 "sequence number out of window",
}

impl BindingStatus {
    /// True if the update was accepted.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 < 128
    }
}

impl fmt::Display for BindingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {}", self.0),
        }
    }
}
impl fmt::Debug for BindingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A mobility option (§6.2). Encoding adds the padding that the next option's alignment needs; decoding drops it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MobilityOption {
    /// The home agent's preferred time of the next Binding Update, in units of four seconds (§6.2.4).
    RefreshAdvice(u16),
    /// The care-of address, if it is not the source address (§6.2.5).
    AlternateCareOf(Ipv6Addr),
    /// Any other type than 0 and 1 (padding), 2 and 3; at most 255 octets.
    Other {
        /// Its type.
        kind: u8,
        /// Its octets.
        data: Vec<u8>,
    },
}

const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const REFRESH_ADVICE: u8 = 2;
const ALTERNATE_CARE_OF: u8 = 3;

impl MobilityOption {
    /// Returns `(modulus, remainder)` of the option's offset in the Mobility Header (§6.2.4, §6.2.5).
    const fn alignment(&self) -> (usize, usize) {
        match self {
            Self::RefreshAdvice(_) => (2, 0),
            Self::AlternateCareOf(_) => (8, 6),
            Self::Other { .. } => (1, 0),
        }
    }
}

/// Binding Update (§6.1.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingUpdate {
    /// Orders the updates of one home address, modulo 2^16.
    pub sequence: u16,
    /// A: the sender requests an acknowledgement.
    pub acknowledge: bool,
    /// H: the receiver is to act as home agent.
    pub home_registration: bool,
    /// L: the home address has the interface identifier of the link-local one.
    pub link_local: bool,
    /// K: the IPsec associations survive the move.
    pub key_management: bool,
    /// The requested lifetime of the binding.
    pub lifetime: BindingLifetime,
    /// Options, without padding; at most [`MAX_OPTIONS`].
    pub options: Vec<MobilityOption>,
}

/// Binding Acknowledgement (§6.1.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingAcknowledgement {
    /// The result of the update.
    pub status: BindingStatus,
    /// K: the IPsec associations survive the move.
    pub key_management: bool,
    /// The update's sequence number. With [`BindingStatus::SEQUENCE_OUT_OF_WINDOW`], the latest accepted one.
    pub sequence: u16,
    /// The granted lifetime of the binding.
    pub lifetime: BindingLifetime,
    /// Options, without padding; at most [`MAX_OPTIONS`].
    pub options: Vec<MobilityOption>,
}

/// A Mobility Header message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MobilityMessage {
    /// A Binding Update.
    Update(BindingUpdate),
    /// A Binding Acknowledgement.
    Acknowledgement(BindingAcknowledgement),
}

impl MobilityMessage {
    /// Parses a Mobility Header. The caller has verified its checksum.
    pub(crate) fn parse(octets: &[u8]) -> Result<Self, MessageError> {
        let mut r = OctetReader::new(octets);
        let (payload, units, kind) = (r.read_u8()?, r.read_u8()?, r.read_u8()?);
        if payload != NO_NEXT_HEADER {
            return Err(MessageError::Payload(payload));
        }
        r.read_bytes(3)?;
        let length = (usize::from(units) + 1) * 8;
        let trailing = octets.len().saturating_sub(length);
        if trailing > 0 {
            return Err(MessageError::Trailing(trailing));
        }
        let mut r = r.sub_reader(length - HEADER)?;
        match kind {
            BINDING_UPDATE => {
                let (sequence, flags, lifetime) =
                    (r.read_u16()?, r.read_u16()?, BindingLifetime(r.read_u16()?));
                Ok(Self::Update(BindingUpdate {
                    sequence,
                    acknowledge: flags & 0x8000 != 0,
                    home_registration: flags & 0x4000 != 0,
                    link_local: flags & 0x2000 != 0,
                    key_management: flags & 0x1000 != 0,
                    lifetime,
                    options: read_options(r)?,
                }))
            }
            BINDING_ACKNOWLEDGEMENT => {
                let (status, flags) = (BindingStatus(r.read_u8()?), r.read_u8()?);
                let (sequence, lifetime) = (r.read_u16()?, BindingLifetime(r.read_u16()?));
                Ok(Self::Acknowledgement(BindingAcknowledgement {
                    status,
                    key_management: flags & 0x80 != 0,
                    sequence,
                    lifetime,
                    options: read_options(r)?,
                }))
            }
            other => Err(MessageError::UnknownType(other)),
        }
    }

    /// Appends the Mobility Header with checksum zero.
    pub(crate) fn emit(&self, buf: &mut Vec<u8>) {
        let mut w = OctetWriter::new(buf);
        w.write_u8(NO_NEXT_HEADER).write_u8(0);
        let options = match self {
            Self::Update(update) => {
                let flag = |set: bool, bit: u16| if set { bit } else { 0 };
                let flags = flag(update.acknowledge, 0x8000)
                    | flag(update.home_registration, 0x4000)
                    | flag(update.link_local, 0x2000)
                    | flag(update.key_management, 0x1000);
                w.write_u8(BINDING_UPDATE)
                    .write_u8(0)
                    .write_u16(0)
                    .write_u16(update.sequence)
                    .write_u16(flags)
                    .write_u16(update.lifetime.0);
                &update.options
            }
            Self::Acknowledgement(ack) => {
                w.write_u8(BINDING_ACKNOWLEDGEMENT).write_u8(0).write_u16(0).write_u8(ack.status.0);
                w.write_u8(if ack.key_management { 0x80 } else { 0 })
                    .write_u16(ack.sequence)
                    .write_u16(ack.lifetime.0);
                &ack.options
            }
        };
        for option in options.iter().take(MAX_OPTIONS) {
            let (modulus, remainder) = option.alignment();
            pad_to_offset(&mut w, modulus, remainder);
            emit_option(&mut w, option);
        }
        pad_to_offset(&mut w, 8, 0);
        let length = (w.len() / 8 - 1) as u8;
        w.overwrite_at(1, &[length]);
    }
}

/// Parses the remaining options.
fn read_options(mut r: OctetReader<'_>) -> Result<Vec<MobilityOption>, MessageError> {
    let mut options = Vec::new();
    while !r.is_empty() {
        let kind = r.read_u8()?;
        if kind == PAD_1 {
            continue;
        }
        let length = usize::from(r.read_u8()?);
        let data = r.read_bytes(length)?;
        let wrong = MessageError::OptionLength(kind, length);
        let option = match kind {
            PAD_N => continue,
            REFRESH_ADVICE => {
                MobilityOption::RefreshAdvice(u16::from_be_bytes(data.try_into().map_err(|_| wrong)?))
            }
            ALTERNATE_CARE_OF => {
                let octets: [u8; 16] = data.try_into().map_err(|_| wrong)?;
                MobilityOption::AlternateCareOf(octets.into())
            }
            kind => MobilityOption::Other { kind, data: data.to_vec() },
        };
        if options.len() == MAX_OPTIONS {
            return Err(MessageError::TooManyOptions);
        }
        options.push(option);
    }
    Ok(options)
}

fn emit_option(w: &mut OctetWriter<'_>, option: &MobilityOption) {
    match option {
        MobilityOption::RefreshAdvice(interval) => {
            w.write_u8(REFRESH_ADVICE).write_u8(2).write_u16(*interval)
        }
        MobilityOption::AlternateCareOf(address) => {
            w.write_u8(ALTERNATE_CARE_OF).write_u8(16).write_bytes(&address.octets())
        }
        MobilityOption::Other { kind, data } => {
            let data = &data[..data.len().min(255)];
            w.write_u8(*kind).write_u8(data.len() as u8).write_bytes(data)
        }
    };
}

/// Pads to an offset with this remainder (§6.2.2, §6.2.3).
fn pad_to_offset(w: &mut OctetWriter<'_>, modulus: usize, remainder: usize) {
    let missing = (modulus + remainder - w.len() % modulus) % modulus;
    if missing == 1 {
        w.write_u8(PAD_1);
    } else if missing > 1 {
        w.write_u8(PAD_N).write_u8(missing as u8 - 2).write_zeros(missing - 2);
    }
}
