//! Payloads (RFC 7296 §3.2 to §3.16, RFC 7383 §2.5).

mod configuration;
mod identification;
mod notify;
mod sa;
mod selector;

pub use configuration::{ConfigurationAttribute, ConfigurationPayload};
pub use identification::Identification;
pub use notify::{DeletePayload, NotifyPayload};
pub use sa::{KEY_LENGTH, MAX_PROPOSALS, Proposal, Transform, TransformAttribute};
pub use selector::{TrafficSelector, TrafficSelectors, UnknownTrafficSelector};

use crate::ParseError;
use crate::code::{AuthMethod, CertificateEncoding, IdType, KeyExchangeMethod, PayloadType};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Octets of the header that each payload has (§3.2).
pub const PAYLOAD_HEADER_LEN: usize = 4;
/// The critical bit of a payload's header.
const CRITICAL: u8 = 1 << 7;

/// Octets of a nonce (§3.9).
pub const NONCE_LEN: core::ops::RangeInclusive<usize> = 16..=256;

/// An Encrypted payload, or an Encrypted Fragment payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncryptedPayload {
    /// The type of the first inner payload.
    pub next: PayloadType,
    /// The fragment's number, from 1, and the total (RFC 7383 §2.5). `None` if the message is whole.
    pub fragment: Option<(u16, u16)>,
    /// Initialization vector, ciphertext and integrity checksum.
    pub body: Vec<u8>,
}

/// A payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// SA: the proposals, or the chosen one.
    SecurityAssociation(Vec<Proposal>),
    /// KE: one side's public value.
    KeyExchange {
        /// The method.
        method: KeyExchangeMethod,
        /// The value.
        data: Vec<u8>,
    },
    /// IDi: the initiator's identity.
    IdentificationInitiator(Identification),
    /// IDr: the responder's identity, or the one that the initiator requests.
    IdentificationResponder(Identification),
    /// CERT.
    Certificate {
        /// The encoding of the certificate.
        encoding: CertificateEncoding,
        /// The certificate.
        data: Vec<u8>,
    },
    /// CERTREQ: the wanted certificates.
    CertificateRequest {
        /// The encoding of the certificates.
        encoding: CertificateEncoding,
        /// SHA-1 hashes of the public keys of authorities.
        authorities: Vec<u8>,
    },
    /// AUTH.
    Authentication {
        /// The authentication method.
        method: AuthMethod,
        /// The AUTH data.
        data: Vec<u8>,
    },
    /// Ni or Nr.
    Nonce(Vec<u8>),
    /// N.
    Notify(NotifyPayload),
    /// D.
    Delete(DeletePayload),
    /// V: octets that name an implementation.
    VendorId(Vec<u8>),
    /// TSi: the traffic selectors of the exchange's initiator.
    TrafficSelectorsInitiator(TrafficSelectors),
    /// TSr: the traffic selectors of its responder.
    TrafficSelectorsResponder(TrafficSelectors),
    /// SK or SKF. It is the last payload of its message.
    Encrypted(EncryptedPayload),
    /// CP.
    Configuration(ConfigurationPayload),
    /// EAP: a whole EAP packet.
    Eap(Vec<u8>),
    /// A payload of an unknown type.
    Unknown {
        /// Its type.
        kind: PayloadType,
        /// True if the receiver must reject the message when it does not support the type.
        critical: bool,
        /// Its contents.
        data: Vec<u8>,
    },
}

impl Payload {
    /// Returns its type.
    #[must_use]
    pub const fn payload_type(&self) -> PayloadType {
        match self {
            Self::SecurityAssociation(_) => PayloadType::SA,
            Self::KeyExchange { .. } => PayloadType::KE,
            Self::IdentificationInitiator(_) => PayloadType::IDI,
            Self::IdentificationResponder(_) => PayloadType::IDR,
            Self::Certificate { .. } => PayloadType::CERT,
            Self::CertificateRequest { .. } => PayloadType::CERTREQ,
            Self::Authentication { .. } => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::N,
            Self::Delete(_) => PayloadType::D,
            Self::VendorId(_) => PayloadType::V,
            Self::TrafficSelectorsInitiator(_) => PayloadType::TSI,
            Self::TrafficSelectorsResponder(_) => PayloadType::TSR,
            Self::Encrypted(EncryptedPayload { fragment: None, .. }) => PayloadType::SK,
            Self::Encrypted(_) => PayloadType::SKF,
            Self::Configuration(_) => PayloadType::CP,
            Self::Eap(_) => PayloadType::EAP,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Octets of memory that it takes if retained. Many small parts take many times their size on the wire.
    pub(crate) fn memory_octets(&self) -> usize {
        let beside = match self {
            Self::SecurityAssociation(proposals) => proposals.iter().map(Proposal::memory_octets).sum(),
            Self::TrafficSelectorsInitiator(ts) | Self::TrafficSelectorsResponder(ts) => ts.memory_octets(),
            Self::Configuration(configuration) => {
                let one = |one: &ConfigurationAttribute| size_of_val(one) + one.value.len();
                configuration.attributes.iter().map(one).sum()
            }
            Self::IdentificationInitiator(id) | Self::IdentificationResponder(id) => id.data.len(),
            Self::Encrypted(encrypted) => encrypted.body.len(),
            Self::Notify(notify) => notify.data.len(),
            Self::Delete(DeletePayload::Child { spis, .. }) => size_of_val(&spis[..]),
            Self::Delete(DeletePayload::Ike) => 0,
            Self::KeyExchange { data, .. }
            | Self::Certificate { data, .. }
            | Self::CertificateRequest { authorities: data, .. }
            | Self::Authentication { data, .. }
            | Self::Unknown { data, .. }
            | Self::Nonce(data)
            | Self::VendorId(data)
            | Self::Eap(data) => data.len(),
        };
        size_of::<Self>() + beside
    }

    /// Parses the contents of a payload. `next` is the Next Payload field; in an Encrypted payload it is the type of
    /// the first inner one.
    fn parse(
        kind: PayloadType,
        critical: bool,
        next: PayloadType,
        mut reader: OctetReader<'_>,
    ) -> Result<Self, ParseError> {
        Ok(match kind {
            PayloadType::SA => Self::SecurityAssociation(sa::parse_proposals(reader)?),
            PayloadType::KE => {
                let (method, _) = (KeyExchangeMethod(reader.read_u16()?), reader.read_u16()?);
                Self::KeyExchange { method, data: reader.take_rest().to_vec() }
            }
            PayloadType::IDI | PayloadType::IDR => {
                let (id, _) = (IdType(reader.read_u8()?), reader.read_bytes(3)?);
                let id = Identification { kind: id, data: reader.take_rest().to_vec() };
                if kind == PayloadType::IDI {
                    Self::IdentificationInitiator(id)
                } else {
                    Self::IdentificationResponder(id)
                }
            }
            PayloadType::CERT => {
                let encoding = CertificateEncoding(reader.read_u8()?);
                Self::Certificate { encoding, data: reader.take_rest().to_vec() }
            }
            PayloadType::CERTREQ => {
                let encoding = CertificateEncoding(reader.read_u8()?);
                Self::CertificateRequest { encoding, authorities: reader.take_rest().to_vec() }
            }
            PayloadType::AUTH => {
                let (method, _) = (AuthMethod(reader.read_u8()?), reader.read_bytes(3)?);
                Self::Authentication { method, data: reader.take_rest().to_vec() }
            }
            PayloadType::NONCE => {
                let nonce = reader.take_rest();
                if !NONCE_LEN.contains(&nonce.len()) {
                    return Err(ParseError::Nonce(nonce.len()));
                }
                Self::Nonce(nonce.to_vec())
            }
            PayloadType::N => Self::Notify(NotifyPayload::parse(reader)?),
            PayloadType::D => Self::Delete(DeletePayload::parse(reader)?),
            // RFC 7296, 3.12: any vendor ID is read, and unknown ones are ignored.
            PayloadType::V => Self::VendorId(reader.take_rest().to_vec()),
            PayloadType::TSI => Self::TrafficSelectorsInitiator(TrafficSelectors::parse(reader)?),
            PayloadType::TSR => Self::TrafficSelectorsResponder(TrafficSelectors::parse(reader)?),
            PayloadType::SK => {
                Self::Encrypted(EncryptedPayload { next, fragment: None, body: reader.take_rest().to_vec() })
            }
            PayloadType::SKF => {
                let (number, total) = (reader.read_u16()?, reader.read_u16()?);
                if number == 0 || number > total {
                    return Err(ParseError::Fragment { number, total });
                }
                let fragment = Some((number, total));
                Self::Encrypted(EncryptedPayload { next, fragment, body: reader.take_rest().to_vec() })
            }
            PayloadType::CP => Self::Configuration(ConfigurationPayload::parse(reader)?),
            PayloadType::EAP => Self::Eap(reader.take_rest().to_vec()),
            // RFC 7296, 2.5: unknown payloads are ignored unless critical.
            kind => Self::Unknown { kind, critical, data: reader.take_rest().to_vec() },
        })
    }

    /// Writes it with its header, where `next` is the type of the following payload.
    fn emit(&self, next: PayloadType, writer: &mut OctetWriter<'_>) {
        let at = writer.len();
        let next = if let Self::Encrypted(encrypted) = self { encrypted.next } else { next };
        let critical = matches!(self, Self::Unknown { critical: true, .. });
        writer.write_u8(next.0).write_u8(if critical { CRITICAL } else { 0 }).write_u16(0);
        match self {
            Self::SecurityAssociation(proposals) => sa::emit_proposals(proposals, writer),
            Self::KeyExchange { method, data } => {
                writer.write_u16(method.0).write_u16(0).write_bytes(data);
            }
            Self::IdentificationInitiator(id) | Self::IdentificationResponder(id) => {
                writer.write_u8(id.kind.0).write_zeros(3).write_bytes(&id.data);
            }
            Self::Certificate { encoding, data } => {
                writer.write_u8(encoding.0).write_bytes(data);
            }
            Self::CertificateRequest { encoding, authorities } => {
                writer.write_u8(encoding.0).write_bytes(authorities);
            }
            Self::Authentication { method, data } => {
                writer.write_u8(method.0).write_zeros(3).write_bytes(data);
            }
            Self::Notify(notify) => notify.emit(writer),
            Self::Delete(delete) => delete.emit(writer),
            Self::TrafficSelectorsInitiator(ts) | Self::TrafficSelectorsResponder(ts) => ts.emit(writer),
            Self::Encrypted(encrypted) => {
                if let Some((number, total)) = encrypted.fragment {
                    writer.write_u16(number).write_u16(total);
                }
                writer.write_bytes(&encrypted.body);
            }
            Self::Configuration(configuration) => configuration.emit(writer),
            Self::Nonce(data) | Self::VendorId(data) | Self::Eap(data) | Self::Unknown { data, .. } => {
                writer.write_bytes(data);
            }
        }
        let length = (writer.len() - at) as u16;
        writer.overwrite_at(at + 2, &length.to_be_bytes());
    }
}

/// Most payloads of a message: each takes memory beyond its octets.
pub const MAX_PAYLOADS: usize = 256;

/// Parses a chain of payloads to the end of the octets.
///
/// # Errors
/// A payload is invalid, or the chain does not end with the octets.
pub fn parse_chain(first: PayloadType, octets: &[u8]) -> Result<Vec<Payload>, ParseError> {
    let mut reader = OctetReader::new(octets);
    let (mut kind, mut payloads) = (first, Vec::new());
    while kind != PayloadType::NONE {
        if payloads.len() == MAX_PAYLOADS {
            return Err(ParseError::TooMany);
        }
        let (next, flags, length) =
            (PayloadType(reader.read_u8()?), reader.read_u8()?, usize::from(reader.read_u16()?));
        let content = length.checked_sub(PAYLOAD_HEADER_LEN).ok_or(ParseError::Length)?;
        let payload = Payload::parse(kind, flags & CRITICAL != 0, next, reader.sub_reader(content)?)?;
        kind = match payload {
            // RFC 7296, 3.14: the Encrypted payload is the last.
            Payload::Encrypted(_) => PayloadType::NONE,
            _ => next,
        };
        payloads.push(payload);
    }
    if reader.is_empty() { Ok(payloads) } else { Err(ParseError::Trailing(reader.remaining())) }
}

/// Writes a chain of payloads. A payload's content must not exceed 65531 octets.
pub(crate) fn emit_chain(payloads: &[Payload], writer: &mut OctetWriter<'_>) {
    for (n, payload) in payloads.iter().enumerate() {
        payload.emit(payloads.get(n + 1).map_or(PayloadType::NONE, Payload::payload_type), writer);
    }
}

/// The type of a chain's first payload.
pub(crate) fn first_payload_type(payloads: &[Payload]) -> PayloadType {
    payloads.first().map_or(PayloadType::NONE, Payload::payload_type)
}

impl fmt::Display for Payload {
    /// Its type, and the main detail of some types.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyExchange { method, .. } => write!(f, "KE({method})"),
            Self::IdentificationInitiator(id) => write!(f, "IDi({id})"),
            Self::IdentificationResponder(id) => write!(f, "IDr({id})"),
            Self::Authentication { method, .. } => write!(f, "AUTH({method})"),
            Self::Nonce(_) => f.write_str("No"),
            Self::Notify(notify) => write!(f, "N({notify})"),
            Self::Delete(DeletePayload::Ike) => f.write_str("D(IKE)"),
            Self::Delete(DeletePayload::Child { protocol, spis }) => {
                write!(f, "D({protocol}")?;
                spis.iter().try_for_each(|spi| write!(f, " {spi:08x}"))?;
                f.write_str(")")
            }
            Self::TrafficSelectorsInitiator(ts) | Self::TrafficSelectorsResponder(ts) => {
                f.write_str(if self.payload_type() == PayloadType::TSI { "TSi(" } else { "TSr(" })?;
                for (n, selector) in ts.selectors.iter().enumerate() {
                    write!(f, "{}{selector}", if n == 0 { "" } else { " " })?;
                }
                f.write_str(")")
            }
            Self::Encrypted(EncryptedPayload { fragment: Some((number, total)), .. }) => {
                write!(f, "SKF({number}/{total})")
            }
            Self::Configuration(configuration) => write!(f, "CP({})", configuration.kind),
            other => other.payload_type().fmt(f),
        }
    }
}
