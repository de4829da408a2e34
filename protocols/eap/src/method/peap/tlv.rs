//! EAP-TLV packets (draft-hiller-eap-tlv, MS-PEAP §2.2.8.1): how both sides of PEAP tell each other the result inside
//! the tunnel.
//!
//! A TLV: two bits (mandatory, reserved) and fourteen of type, two octets of length, the value.

use super::binding::VALUE;
use crate::packet::{self, Code, Packet, Type};
use alloc::vec::Vec;
use usher_core::Reader;

const RESULT: u16 = 3;
const NAK: u16 = 4;
/// MS-PEAP §2.2.8.1.1.
pub(crate) const CRYPTO_BINDING: u16 = 12;
const MANDATORY: u16 = 0x8000;
const TYPE: u16 = 0x3fff;
const SUCCESS: u16 = 1;
const FAILURE: u16 = 2;

/// What a packet's TLVs say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tlvs {
    /// What they have of what matters here.
    Known {
        /// Of a Result.
        result: Option<bool>,
        /// The value of a Cryptobinding TLV.
        binding: Option<[u8; VALUE]>,
    },
    /// A mandatory one is of a type that is unknown here.
    Unknown(u16),
}

/// Appends a packet with a Result, and with the value of a Cryptobinding TLV where there is one.
pub(crate) fn emit_result(
    out: &mut Vec<u8>,
    code: Code,
    identifier: u8,
    success: bool,
    binding: Option<&[u8; VALUE]>,
) {
    let status = if success { SUCCESS } else { FAILURE };
    let mut tlvs = [&head(MANDATORY | RESULT, 2)[..], &status.to_be_bytes()].concat();
    if let Some(value) = binding {
        // Not mandatory: a peer that does not know it passes it over.
        tlvs.extend_from_slice(&head(CRYPTO_BINDING, VALUE));
        tlvs.extend_from_slice(value);
    }
    packet::emit(out, code, identifier, Type::TLV, &tlvs);
}

/// Type and length of a TLV.
pub(crate) fn head(kind: u16, length: usize) -> [u8; 4] {
    let ([a, b], [c, d]) = (kind.to_be_bytes(), (length as u16).to_be_bytes());
    [a, b, c, d]
}

/// Appends a packet that refuses a TLV of this type (draft-hiller-eap-tlv §4.3): no vendor, the type.
pub(crate) fn emit_nak(out: &mut Vec<u8>, identifier: u8, kind: u16) {
    let [high, low] = kind.to_be_bytes();
    let tlv = [&head(MANDATORY | NAK, 6)[..], &[0, 0, 0, 0, high, low]].concat();
    packet::emit(out, Code::Response, identifier, Type::TLV, &tlv);
}

/// The EAP-TLV packet of this code that the octets are.
pub(crate) fn packet(bytes: &[u8], code: Code) -> Option<Packet<'_>> {
    Packet::parse(bytes).ok().filter(|p| p.code() == code && p.kind() == Some(Type::TLV))
}

/// Reads TLVs; `None` where their lengths lie, a Result or a Cryptobinding TLV is none, or several contradict.
pub(crate) fn read(data: &[u8]) -> Option<Tlvs> {
    let mut r = Reader::new(data);
    let (mut result, mut binding) = (None, None);
    while !r.is_empty() {
        let head = r.u16().ok()?;
        let length = usize::from(r.u16().ok()?);
        let value = r.bytes(length).ok()?;
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
            unknown if head & MANDATORY != 0 => return Some(Tlvs::Unknown(unknown)),
            _ => {}
        }
    }
    Some(Tlvs::Known { result, binding })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(success: bool) -> Tlvs {
        Tlvs::Known { result: Some(success), binding: None }
    }

    #[test]
    fn a_result_is_eleven_octets_and_read_again() {
        let mut out = Vec::new();
        emit_result(&mut out, Code::Request, 7, true, None);
        assert_eq!(out, [1, 7, 0, 11, 33, 0x80, 3, 0, 2, 0, 1]);
        let p = packet(&out, Code::Request).unwrap();
        assert_eq!(read(p.data()), Some(result(true)));
        assert_eq!(packet(&out, Code::Response), None);
        out.clear();
        emit_nak(&mut out, 9, 5);
        assert_eq!(out, [2, 9, 0, 15, 33, 0x80, 4, 0, 6, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn a_binding_follows_the_result() {
        let mut out = Vec::new();
        emit_result(&mut out, Code::Request, 7, true, Some(&[9; VALUE]));
        assert_eq!(out[..15], [1, 7, 0, 71, 33, 0x80, 3, 0, 2, 0, 1, 0, 12, 0, 56]);
        let p = packet(&out, Code::Request).unwrap();
        assert_eq!(read(p.data()), Some(Tlvs::Known { result: Some(true), binding: Some([9; VALUE]) }));
    }

    #[test]
    fn lengths_that_lie_and_contradictions_are_no_tlvs() {
        assert_eq!(read(&[0x80, 3, 0, 3, 0, 1]), None);
        assert_eq!(read(&[0x80, 3, 0, 1, 1]), None);
        assert_eq!(read(&[0x80, 3, 0]), None);
        assert_eq!(read(&[0x80, 3, 0, 2, 0, 7]), None);
        assert_eq!(read(&[0x80, 3, 0, 2, 0, 1, 0x80, 3, 0, 2, 0, 2]), None);
        assert_eq!(read(&[0, 12, 0, 1, 0]), None);
        let two = |octet: u8| [&[0, 12, 0, 56][..], &[octet; 56]].concat();
        assert_eq!(read(&[two(1), two(2)].concat()), None);
    }

    #[test]
    fn what_is_unknown_matters_only_if_mandatory() {
        assert_eq!(read(&[0x80, 9, 0, 0, 0x80, 3, 0, 2, 0, 1]), Some(Tlvs::Unknown(9)));
        assert_eq!(read(&[0, 9, 0, 1, 5, 0x80, 3, 0, 2, 0, 2]), Some(result(false)));
        assert_eq!(read(&[]), Some(Tlvs::Known { result: None, binding: None }));
    }
}
