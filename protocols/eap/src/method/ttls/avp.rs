//! The AVPs inside EAP-TTLS (RFC 5281 §10): Diameter's format with RADIUS's codes.

use alloc::vec::Vec;
use usher_core::OctetReader;

/// Microsoft's vendor number, for the attributes of RFC 2548.
const MICROSOFT: u32 = 311;
const VENDOR: u8 = 0x80;
const MANDATORY: u8 = 0x40;
/// Octets of the header without a vendor; the next constant is with one.
const HEADER: usize = 8;
const VENDOR_HEADER: usize = 12;

/// The vendor, zero for none, and the code of an AVP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TtlsAvpCode(u32, u32);

impl TtlsAvpCode {
    pub(crate) const USER_NAME: Self = Self(0, 1);
    pub(crate) const USER_PASSWORD: Self = Self(0, 2);
    pub(crate) const CHAP_PASSWORD: Self = Self(0, 3);
    pub(crate) const REPLY_MESSAGE: Self = Self(0, 18);
    pub(crate) const CHAP_CHALLENGE: Self = Self(0, 60);
    pub(crate) const EAP_MESSAGE: Self = Self(0, 79);
    pub(crate) const MS_CHAP_RESPONSE: Self = Self(MICROSOFT, 1);
    pub(crate) const MS_CHAP_ERROR: Self = Self(MICROSOFT, 2);
    pub(crate) const MS_CHAP_CHALLENGE: Self = Self(MICROSOFT, 11);
    pub(crate) const MS_CHAP2_RESPONSE: Self = Self(MICROSOFT, 25);
    pub(crate) const MS_CHAP2_SUCCESS: Self = Self(MICROSOFT, 26);
}

/// A received AVP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TtlsAvp<'a> {
    pub(crate) code: TtlsAvpCode,
    /// True if a receiver that does not know the AVP must fail.
    pub(crate) mandatory: bool,
    pub(crate) value: &'a [u8],
}

/// Appends a mandatory AVP, padded to four octets.
pub(crate) fn emit_avp(out: &mut Vec<u8>, code: TtlsAvpCode, value: &[u8]) {
    let TtlsAvpCode(vendor, number) = code;
    // RFC 5281, 10.1, 11.2: V with a vendor, the reserved bits zero.
    let (head, flags) = if vendor == 0 { (HEADER, MANDATORY) } else { (VENDOR_HEADER, MANDATORY | VENDOR) };
    // No message of a tunnel is as long as the 24 bits of Length allow, so the first octet is always zero.
    let [_, length @ ..] = ((head + value.len()) as u32).to_be_bytes();
    out.extend_from_slice(&number.to_be_bytes());
    out.push(flags);
    out.extend_from_slice(&length);
    if vendor != 0 {
        out.extend_from_slice(&vendor.to_be_bytes());
    }
    out.extend_from_slice(value);
    out.resize(out.len() + padding_length(value.len()), 0);
}

const fn padding_length(length: usize) -> usize {
    length.next_multiple_of(4) - length
}

/// Parses all AVPs. `None` if a length is wrong. The last AVP's padding may be missing.
pub(crate) fn parse_avps(data: &[u8]) -> Option<Vec<TtlsAvp<'_>>> {
    let mut r = OctetReader::new(data);
    let mut avps = Vec::new();
    while !r.is_empty() {
        let number = r.read_u32().ok()?;
        let word = r.read_u32().ok()?;
        let [flags, ..] = word.to_be_bytes();
        let length = (word & 0x00ff_ffff) as usize;
        let vendored = flags & VENDOR != 0;
        let vendor = if vendored { r.read_u32().ok()? } else { 0 };
        let length = length.checked_sub(if vendored { VENDOR_HEADER } else { HEADER })?;
        let value = r.read_bytes(length).ok()?;
        r.read_bytes(padding_length(length).min(r.remaining())).ok()?;
        avps.push(TtlsAvp { code: TtlsAvpCode(vendor, number), mandatory: flags & MANDATORY != 0, value });
    }
    Some(avps)
}

/// The value of the first AVP of this code.
pub(crate) fn find_avp<'a>(avps: &[TtlsAvp<'a>], code: TtlsAvpCode) -> Option<&'a [u8]> {
    avps.iter().find(|a| a.code == code).map(|a| a.value)
}

/// The EAP packet in the EAP-Message AVPs, joined if there are several.
pub(crate) fn join_eap_message(avps: &[TtlsAvp<'_>]) -> Option<Vec<u8>> {
    let mut parts = avps.iter().filter(|a| a.code == TtlsAvpCode::EAP_MESSAGE).peekable();
    parts.peek()?;
    Some(parts.flat_map(|a| a.value.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_avp_is_written_as_the_rfc_draws_it() {
        let mut out = Vec::new();
        emit_avp(&mut out, TtlsAvpCode::USER_NAME, b"alice");
        assert_eq!(out, *b"\0\0\0\x01\x40\0\0\x0dalice\0\0\0");
        out.clear();
        emit_avp(&mut out, TtlsAvpCode::MS_CHAP_ERROR, b"abcd");
        assert_eq!(out, *b"\0\0\0\x02\xc0\0\0\x10\0\0\x01\x37abcd");
    }

    #[test]
    fn lengths_that_lie_are_no_avps() {
        for bytes in [
            &b"\0\0\0\x01\x40\0\0\x0ealice"[..],
            b"\0\0\0\x01\x40\0\0\x07",
            b"\0\0\0\x01\x40\0\0",
            b"\0\0\0\x01\xc0\0\0\x0b\0\0\x01\x37",
            b"\0\0\0\x01\xc0\0\0\x08",
        ] {
            assert_eq!(parse_avps(bytes), None, "{bytes:?}");
        }
        assert_eq!(
            parse_avps(b"\0\0\0\x01\x40\0\0\x0dalice").map(|a| a.len()),
            Some(1),
            "padding may be missing"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values: Vec<(bool, Vec<u8>)>) {
            let code = |vendor| if vendor { TtlsAvpCode::MS_CHAP_CHALLENGE } else { TtlsAvpCode::CHAP_CHALLENGE };
            let mut out = Vec::new();
            for (vendor, value) in &values {
                emit_avp(&mut out, code(*vendor), value);
            }
            prop_assert_eq!(out.len() % 4, 0);
            let expected: Vec<TtlsAvp<'_>> =
                values.iter().map(|(v, value)| TtlsAvp { code: code(*v), mandatory: true, value }).collect();
            prop_assert_eq!(parse_avps(&out), Some(expected));
        }
        #[test]
        fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
            let _ = parse_avps(&bytes);
        }
    }
}
