//! Messages (RFC 7296 §3): a header and a chain of payloads.

use crate::ParseError;
use crate::code::{KeyExchangeMethod, NotifyType, PayloadType};
use crate::header::IkeHeader;
use crate::payload::{NotifyPayload, Payload, Proposal, emit_chain, first_payload_type, parse_chain};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// The marker before a message on UDP port 4500, at the place of ESP's SPI (RFC 7296 §2.23, RFC 3948 §2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A message with its payloads in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeMessage {
    /// The header.
    pub header: IkeHeader,
    /// The payloads.
    pub payloads: Vec<Payload>,
}

impl IkeMessage {
    /// Parses a message as on UDP port 500, without the marker of port 4500.
    ///
    /// # Errors
    /// The octets are no valid message.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        let mut reader = OctetReader::new(octets);
        let (header, first, length) = IkeHeader::parse(&mut reader)?;
        if length != octets.len() {
            return Err(ParseError::MessageLength { announced: length, is: octets.len() });
        }
        Ok(Self { header, payloads: parse_chain(first, reader.take_rest())? })
    }

    /// Appends it to a buffer. A payload may have at most 65535 octets.
    pub fn emit(&self, buf: &mut Vec<u8>) {
        let mut writer = OctetWriter::new(buf);
        self.header.emit(&mut writer, first_payload_type(&self.payloads));
        emit_chain(&self.payloads, &mut writer);
        let length = writer.len();
        IkeHeader::patch_length(&mut writer, length);
    }

    /// The notifications.
    pub fn notifications(&self) -> impl Iterator<Item = &NotifyPayload> {
        notify_payloads(&self.payloads)
    }
    /// The first notification of a kind.
    #[must_use]
    pub fn find_notify(&self, kind: NotifyType) -> Option<&NotifyPayload> {
        self.notifications().find(|notify| notify.kind == kind)
    }
    /// Returns the type of the first unsupported payload with the critical bit (§2.5).
    #[must_use]
    pub fn unsupported_critical(&self) -> Option<PayloadType> {
        unsupported_critical(&self.payloads)
    }
}

pub(crate) fn notify_payloads(payloads: &[Payload]) -> impl Iterator<Item = &NotifyPayload> {
    payloads.iter().filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify),
        _ => None,
    })
}

/// Returns the first result of `of` among the payloads.
pub(crate) fn find_payload<'a, T>(
    payloads: &'a [Payload],
    of: impl FnMut(&'a Payload) -> Option<T>,
) -> Option<T> {
    payloads.iter().find_map(of)
}
pub(crate) fn find_nonce(payloads: &[Payload]) -> Option<&[u8]> {
    find_payload(
        payloads,
        |payload| if let Payload::Nonce(nonce) = payload { Some(&nonce[..]) } else { None },
    )
}
pub(crate) fn find_key_exchange(payloads: &[Payload]) -> Option<(KeyExchangeMethod, &[u8])> {
    find_payload(payloads, |payload| match payload {
        Payload::KeyExchange { method, data } => Some((*method, &data[..])),
        _ => None,
    })
}
pub(crate) fn find_proposals(payloads: &[Payload]) -> Option<&[Proposal]> {
    find_payload(payloads, |payload| match payload {
        Payload::SecurityAssociation(proposals) => Some(&proposals[..]),
        _ => None,
    })
}
pub(crate) fn has_notify(payloads: &[Payload], kind: NotifyType) -> bool {
    notify_payloads(payloads).any(|notify| notify.kind == kind)
}
pub(crate) fn find_error_notify(payloads: &[Payload]) -> Option<&NotifyPayload> {
    notify_payloads(payloads).find(|notify| notify.kind.is_error())
}

pub(crate) fn unsupported_critical(payloads: &[Payload]) -> Option<PayloadType> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Unknown { kind, critical: true, .. } => Some(*kind),
        _ => None,
    })
}

/// Displays payloads as in the RFCs: `[ SA KE(MODP_2048) No ]`.
#[derive(Clone, Copy, Debug)]
pub struct PayloadListDisplay<'a>(pub &'a [Payload]);

impl fmt::Display for PayloadListDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[ ")?;
        self.0.iter().try_for_each(|payload| write!(f, "{payload} "))?;
        f.write_str("]")
    }
}

impl fmt::Display for IkeMessage {
    /// `IKE_SA_INIT request 0 [ SA KE(MODP_2048) No N(NAT_DETECTION_SOURCE_IP) ]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.header, PayloadListDisplay(&self.payloads))
    }
}
