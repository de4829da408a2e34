//! EAP-TLV packets (draft-hiller-eap-tlv, MS-PEAP §2.2.8.1): the exchange of PEAP's result inside the tunnel.
//!
//! A TLV: two bits (mandatory, reserved) and fourteen of type, two octets of length, the value.

use super::binding::VALUE;
use crate::packet::{self, EapCode, EapPacket, EapType};
use alloc::vec::Vec;
use usher_core::OctetReader;

const RESULT: u16 = 3;
const NAK: u16 = 4;
/// The type of the Cryptobinding TLV (MS-PEAP §2.2.8.1.1).
pub(crate) const CRYPTO_BINDING: u16 = 12;
const MANDATORY: u16 = 0x8000;
const TYPE: u16 = 0x3fff;
const SUCCESS: u16 = 1;
const FAILURE: u16 = 2;

/// The parsed TLVs of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParsedPeapTlvs {
    /// The supported TLVs.
    Known {
        /// The status of a Result TLV.
        result: Option<bool>,
        /// The value of a Cryptobinding TLV.
        binding: Option<[u8; VALUE]>,
    },
    /// A mandatory TLV of this unknown type.
    Unknown(u16),
}

/// Appends a packet with a Result TLV and, if given, a Cryptobinding TLV of this value.
pub(crate) fn emit_result_packet(
    out: &mut Vec<u8>,
    code: EapCode,
    identifier: u8,
    success: bool,
    binding: Option<&[u8; VALUE]>,
) {
    let status = if success { SUCCESS } else { FAILURE };
    let mut tlvs = [&tlv_header(MANDATORY | RESULT, 2)[..], &status.to_be_bytes()].concat();
    if let Some(value) = binding {
        // This TLV is not mandatory, so that a peer without cryptobinding can ignore it.
        tlvs.extend_from_slice(&tlv_header(CRYPTO_BINDING, VALUE));
        tlvs.extend_from_slice(value);
    }
    packet::emit_packet(out, code, identifier, EapType::TLV, &tlvs);
}

/// The header of a TLV: type and length.
pub(crate) fn tlv_header(kind: u16, length: usize) -> [u8; 4] {
    let ([a, b], [c, d]) = (kind.to_be_bytes(), (length as u16).to_be_bytes());
    [a, b, c, d]
}

/// Appends a packet that rejects a TLV of this type (draft-hiller-eap-tlv §4.3): no vendor, the type.
pub(crate) fn emit_nak(out: &mut Vec<u8>, identifier: u8, kind: u16) {
    let [high, low] = kind.to_be_bytes();
    let tlv = [&tlv_header(MANDATORY | NAK, 6)[..], &[0, 0, 0, 0, high, low]].concat();
    packet::emit_packet(out, EapCode::Response, identifier, EapType::TLV, &tlv);
}

/// Parses an EAP-TLV packet of this code.
pub(crate) fn parse_tlv_packet(bytes: &[u8], code: EapCode) -> Option<EapPacket<'_>> {
    EapPacket::parse(bytes).ok().filter(|p| p.code() == code && p.kind() == Some(EapType::TLV))
}

/// Parses TLVs. `None` if a length is wrong, a Result or Cryptobinding TLV is malformed, or two contradict.
pub(crate) fn parse_tlvs(data: &[u8]) -> Option<ParsedPeapTlvs> {
    let mut r = OctetReader::new(data);
    let (mut result, mut binding) = (None, None);
    while !r.is_empty() {
        let head = r.read_u16().ok()?;
        let length = usize::from(r.read_u16().ok()?);
        let value = r.read_bytes(length).ok()?;
        match head & TYPE {
            RESULT => {
                let success = match *value {
                    [high, low, ..] => match u16::from_be_bytes([high, low]) {
                        SUCCESS => true,
                        FAILURE => false,
                        _ => return None,
                    },
                    _ => return None,
                };
                if result.is_some_and(|r| r != success) {
                    return None;
                }
                result = Some(success);
            }
            CRYPTO_BINDING => {
                let value: [u8; VALUE] = value.try_into().ok()?;
                if binding.replace(value).is_some_and(|before| before != value) {
                    return None;
                }
            }
            unknown if head & MANDATORY != 0 => return Some(ParsedPeapTlvs::Unknown(unknown)),
            _ => {}
        }
    }
    Some(ParsedPeapTlvs::Known { result, binding })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result_tlvs(success: bool) -> ParsedPeapTlvs {
        ParsedPeapTlvs::Known { result: Some(success), binding: None }
    }

    #[test]
    fn a_result_is_eleven_octets_and_read_again() {
        let mut out = Vec::new();
        emit_result_packet(&mut out, EapCode::Request, 7, true, None);
        assert_eq!(out, [1, 7, 0, 11, 33, 0x80, 3, 0, 2, 0, 1]);
        let p = parse_tlv_packet(&out, EapCode::Request).unwrap();
        assert_eq!(parse_tlvs(p.data()), Some(result_tlvs(true)));
        assert_eq!(parse_tlv_packet(&out, EapCode::Response), None);
        out.clear();
        emit_nak(&mut out, 9, 5);
        assert_eq!(out, [2, 9, 0, 15, 33, 0x80, 4, 0, 6, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn a_binding_follows_the_result() {
        let mut out = Vec::new();
        emit_result_packet(&mut out, EapCode::Request, 7, true, Some(&[9; VALUE]));
        assert_eq!(out[..15], [1, 7, 0, 71, 33, 0x80, 3, 0, 2, 0, 1, 0, 12, 0, 56]);
        let p = parse_tlv_packet(&out, EapCode::Request).unwrap();
        assert_eq!(
            parse_tlvs(p.data()),
            Some(ParsedPeapTlvs::Known { result: Some(true), binding: Some([9; VALUE]) })
        );
    }

    #[test]
    fn lengths_that_lie_and_contradictions_are_no_tlvs() {
        assert_eq!(parse_tlvs(&[0x80, 3, 0, 3, 0, 1]), None);
        assert_eq!(parse_tlvs(&[0x80, 3, 0, 1, 1]), None);
        assert_eq!(parse_tlvs(&[0x80, 3, 0]), None);
        assert_eq!(parse_tlvs(&[0x80, 3, 0, 2, 0, 7]), None);
        assert_eq!(parse_tlvs(&[0x80, 3, 0, 2, 0, 1, 0x80, 3, 0, 2, 0, 2]), None);
        assert_eq!(parse_tlvs(&[0, 12, 0, 1, 0]), None);
        let two = |octet: u8| [&[0, 12, 0, 56][..], &[octet; 56]].concat();
        assert_eq!(parse_tlvs(&[two(1), two(2)].concat()), None);
    }

    #[test]
    fn what_is_unknown_matters_only_if_mandatory() {
        assert_eq!(parse_tlvs(&[0x80, 9, 0, 0, 0x80, 3, 0, 2, 0, 1]), Some(ParsedPeapTlvs::Unknown(9)));
        assert_eq!(parse_tlvs(&[0, 9, 0, 1, 5, 0x80, 3, 0, 2, 0, 2]), Some(result_tlvs(false)));
        assert_eq!(parse_tlvs(&[]), Some(ParsedPeapTlvs::Known { result: None, binding: None }));
    }
}
