//! Identity of a certificate (RFC 6614 §2.3, RFC 6733 §13.1), by fingerprint or name, and its end of validity.
//!
//! The host's TLS has verified the chain. This module only reads the leaf, within bounds and without recursion.

use crate::fingerprint::sha256_fingerprint;
use alloc::string::String;
use core::net::IpAddr;
use usher_core::{OctetReader, WallTime};

/// A condition on a peer's certificate. The host must have verified its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerCertificateCondition {
    /// The SHA-256 of the whole DER certificate.
    Fingerprint([u8; 32]),
    /// A name in the certificate.
    ///
    /// - A domain name: a dNSName of the subjectAltName or, if it has none, the last commonName of the subject. ASCII
    ///   case is ignored; `*` as the first label of this name matches any one label.
    /// - An IP address: an iPAddress of the subjectAltName or, if it has none, the commonName.
    Name(String),
}

impl PeerCertificateCondition {
    /// True if a DER certificate matches. An unreadable certificate has no names.
    #[must_use]
    pub fn matches_certificate(&self, certificate: &[u8]) -> bool {
        match self {
            Self::Fingerprint(want) => sha256_fingerprint(certificate) == *want,
            Self::Name(want) => {
                let mut found = CertificateNameMatcher {
                    expected_name: want,
                    address: want.parse().ok(),
                    fits: false,
                    has_alternative: false,
                };
                // If a later part of the certificate is unreadable, the names in its earlier parts are not trusted
                // either.
                match_certificate_names(certificate, &mut found).is_some() && found.fits
            }
        }
    }
}

struct CertificateNameMatcher<'a> {
    expected_name: &'a str,
    /// The wanted name, if it is an address.
    address: Option<IpAddr>,
    fits: bool,
    /// True if the subjectAltName has a name of the wanted kind.
    has_alternative: bool,
}

impl CertificateNameMatcher<'_> {
    /// True if a name of the subjectAltName is of the wanted kind.
    const fn is_wanted_name_tag(&self, tag: u8) -> bool {
        tag == if self.address.is_some() { IP_ADDRESS } else { DNS_NAME }
    }

    fn matches_alternative_name(&self, name: &[u8]) -> bool {
        match self.address {
            Some(IpAddr::V4(address)) => name == address.octets(),
            Some(IpAddr::V6(address)) => name == address.octets(),
            None => self.equals_name(name),
        }
    }

    fn equals_name(&self, name: &[u8]) -> bool {
        if let Some(address) = self.address {
            return core::str::from_utf8(name).is_ok_and(|name| name.parse() == Ok(address));
        }
        match self.expected_name.strip_prefix("*.") {
            Some(rest) => match name.iter().position(|&b| b == b'.') {
                Some(at) => at > 0 && name[at + 1..].eq_ignore_ascii_case(rest.as_bytes()),
                None => false,
            },
            None => name.eq_ignore_ascii_case(self.expected_name.as_bytes()),
        }
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// [3] EXPLICIT, the extensions.
const EXTENSIONS: u8 = 0xa3;
/// [2] IMPLICIT IA5String, a dNSName.
const DNS_NAME: u8 = 0x82;
/// [7] IMPLICIT OCTET STRING, an iPAddress.
const IP_ADDRESS: u8 = 0x87;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

/// Returns tag and content of the next element.
fn read_element<'a>(r: &mut OctetReader<'a>) -> Option<(u8, OctetReader<'a>)> {
    let tag = r.read_u8().ok()?;
    let length = match r.read_u8().ok()? {
        n @ 0..=0x7f => usize::from(n),
        0x81 => r.read_u8().ok()?.into(),
        0x82 => r.read_u16().ok()?.into(),
        0x83 => r.read_u24().ok()? as usize,
        _ => return None,
    };
    Some((tag, r.sub_reader(length).ok()?))
}
fn expect_element<'a>(r: &mut OctetReader<'a>, tag: u8) -> Option<OctetReader<'a>> {
    read_element(r).filter(|(t, _)| *t == tag).map(|(_, content)| content)
}

/// Returns a reader of TBSCertificate (RFC 5280 §4.1) from its validity on. Its order is version, serial, signature,
/// issuer, validity, subject, key, extensions.
fn tbs_reader_at_validity(certificate: &[u8]) -> Option<OctetReader<'_>> {
    let mut tbs =
        expect_element(&mut expect_element(&mut OctetReader::new(certificate), SEQUENCE)?, SEQUENCE)?;
    let (first, _) = read_element(&mut tbs)?;
    let before = if first == 0xa0 { 3 } else { 2 };
    for _ in 0..before {
        read_element(&mut tbs)?;
    }
    Some(tbs)
}

/// Returns the notAfter of a DER certificate (RFC 5280 §4.1.2.5); `None` if it is unreadable.
#[must_use]
pub fn not_after(certificate: &[u8]) -> Option<WallTime> {
    let mut validity = expect_element(&mut tbs_reader_at_validity(certificate)?, SEQUENCE)?;
    read_element(&mut validity)?;
    let (tag, time) = read_element(&mut validity)?;
    let digits = time.peek_rest().strip_suffix(b"Z").filter(|text| text.iter().all(u8::is_ascii_digit))?;
    let pair =
        |at: usize| Some(u64::from(digits.get(at)? - b'0') * 10 + u64::from(digits.get(at + 1)? - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        // RFC 5280, 4.1.2.5.1: two-digit years from 50 to 99 are in the 20th century.
        (UTC_TIME, 12) => (pair(0)? + if pair(0)? < 50 { 2000 } else { 1900 }, 2),
        (GENERALIZED_TIME, 14) => (pair(0)? * 100 + pair(2)?, 4),
        _ => return None,
    };
    let (month, day) = (pair(rest)?, pair(rest + 2)?);
    let (hour, minute, second) = (pair(rest + 4)?, pair(rest + 6)?, pair(rest + 8)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let secs = days_before(year, month) + day - 1;
    Some(WallTime::from_unix_secs(((secs * 24 + hour) * 60 + minute) * 60 + second))
}

/// Returns the days from 1970-01-01 to the first of a month of the Gregorian calendar.
fn days_before(year: u64, month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let leap = leaps(year) != leaps(year - 1);
    let before = (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + BEFORE[month as usize - 1];
    if leap && month > 2 { before + 1 } else { before }
}

fn match_certificate_names(certificate: &[u8], found: &mut CertificateNameMatcher<'_>) -> Option<()> {
    let mut tbs = tbs_reader_at_validity(certificate)?;
    read_element(&mut tbs)?;
    let subject = expect_element(&mut tbs, SEQUENCE)?;
    expect_element(&mut tbs, SEQUENCE)?;
    while !tbs.is_empty() {
        let (tag, mut content) = read_element(&mut tbs)?;
        if tag == EXTENSIONS {
            match_alternative_names(expect_element(&mut content, SEQUENCE)?, found)?;
        }
    }
    // RFC 6614, 2.3: the subjectAltName stands before the commonName.
    if !found.has_alternative { read_common_names(subject, found) } else { Some(()) }
}

fn match_alternative_names(mut list: OctetReader<'_>, found: &mut CertificateNameMatcher<'_>) -> Option<()> {
    while !list.is_empty() {
        let mut extension = expect_element(&mut list, SEQUENCE)?;
        let oid = expect_element(&mut extension, OID)?;
        let mut value = read_element(&mut extension)?;
        if value.0 == BOOLEAN {
            value = read_element(&mut extension)?;
        }
        if oid.peek_rest() != SUBJECT_ALT_NAME || value.0 != OCTETS {
            continue;
        }
        let mut alternatives = expect_element(&mut value.1, SEQUENCE)?;
        while !alternatives.is_empty() {
            let (tag, name) = read_element(&mut alternatives)?;
            if found.is_wanted_name_tag(tag) {
                found.has_alternative = true;
                found.fits |= found.matches_alternative_name(name.peek_rest());
            }
        }
    }
    Some(())
}

fn read_common_names(mut subject: OctetReader<'_>, found: &mut CertificateNameMatcher<'_>) -> Option<()> {
    while !subject.is_empty() {
        let mut set = expect_element(&mut subject, SET)?;
        while !set.is_empty() {
            let mut pair = expect_element(&mut set, SEQUENCE)?;
            let oid = expect_element(&mut pair, OID)?;
            let (_, value) = read_element(&mut pair)?;
            if oid.peek_rest() == COMMON_NAME {
                found.fits = found.equals_name(value.peek_rest());
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: &[u8] = include_bytes!("../../../vectors/certs/client1.der");
    const SERVER: &[u8] = include_bytes!("../../../vectors/certs/server1.der");

    #[test]
    fn days_are_counted_as_the_calendar_goes_on() {
        let mut days = 0;
        for year in 1970..2500 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                assert_eq!(days_before(year, month), days, "{year}-{month}");
                days += length;
            }
        }
    }

    fn match_name(name: &str) -> PeerCertificateCondition {
        PeerCertificateCondition::Name(name.into())
    }

    #[test]
    fn a_fingerprint_is_of_the_whole_certificate() {
        let print = PeerCertificateCondition::Fingerprint(sha256_fingerprint(CLIENT));
        assert!(
            print.matches_certificate(CLIENT)
                && !print.matches_certificate(SERVER)
                && !print.matches_certificate(&[])
        );
    }

    #[test]
    fn an_alternative_name_stands_before_the_common_name() {
        for right in ["aaa.usher.test", "AAA.Usher.test", "*.usher.test"] {
            assert!(match_name(right).matches_certificate(SERVER), "{right}");
        }
        for wrong in ["usher.test", "*.test", "*", "", "xaaa.usher.test", "station@usher.test"] {
            assert!(!match_name(wrong).matches_certificate(SERVER), "{wrong}");
        }
        assert!(!match_name("aaa.usher.test").matches_certificate(&SERVER[..SERVER.len() / 2]));
    }

    #[test]
    fn an_alternative_name_takes_precedence_over_the_common_name() {
        let mut other = SERVER.to_vec();
        let name = b"aaa.usher.test";
        let last = other.windows(name.len()).rposition(|octets| octets == name).unwrap();
        other[last] = b'b';
        assert!(
            match_name("baa.usher.test").matches_certificate(&other)
                && !match_name("aaa.usher.test").matches_certificate(&other)
        );
    }

    #[test]
    fn without_a_host_name_the_common_name_stands() {
        assert!(
            match_name("station@usher.test").matches_certificate(CLIENT)
                && !match_name("aaa.usher.test").matches_certificate(CLIENT)
        );
    }

    fn encode_element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8][..], content].concat()
    }

    /// Returns a certificate with this commonName and these names in its subjectAltName.
    fn with_names(common: &str, alternatives: &[(u8, &[u8])]) -> Vec<u8> {
        let pair = [encode_element(OID, COMMON_NAME), encode_element(0x0c, common.as_bytes())].concat();
        let subject = encode_element(SEQUENCE, &encode_element(SET, &encode_element(SEQUENCE, &pair)));
        let names: Vec<u8> = alternatives.iter().flat_map(|(tag, name)| encode_element(*tag, name)).collect();
        let extension = [
            encode_element(OID, SUBJECT_ALT_NAME),
            encode_element(OCTETS, &encode_element(SEQUENCE, &names)),
        ]
        .concat();
        let extensions =
            encode_element(EXTENSIONS, &encode_element(SEQUENCE, &encode_element(SEQUENCE, &extension)));
        let serial = encode_element(2, &[1]);
        let [signature, issuer, validity, key] = [const { &[SEQUENCE, 0] }; 4];
        encode_element(
            SEQUENCE,
            &encode_element(
                SEQUENCE,
                &[&serial[..], signature, issuer, validity, &subject, key, &extensions].concat(),
            ),
        )
    }

    /// RFC 6614 §2.3: for an address, iPAddress precedes commonName, and dNSName does not count.
    #[test]
    fn an_address_is_an_alternative_name_or_the_common_name() {
        let six: [u8; 16] = "2001:db8::7".parse::<core::net::Ipv6Addr>().unwrap().octets();
        let (own, other) = ((IP_ADDRESS, &[192, 0, 2, 7][..]), (IP_ADDRESS, &[192, 0, 2, 8][..]));
        let dns = (DNS_NAME, &b"192.0.2.7"[..]);
        for (common, alternatives, want, fits) in [
            ("aaa", &[own][..], "192.0.2.7", true),
            ("aaa", &[other, own], "192.0.2.7", true),
            ("192.0.2.7", &[other], "192.0.2.7", false),
            ("192.0.2.7", &[], "192.0.2.7", true),
            ("192.0.2.7", &[dns], "192.0.2.7", true),
            ("aaa", &[dns], "192.0.2.7", false),
            ("aaa", &[(IP_ADDRESS, &six)], "2001:db8::7", true),
            ("aaa", &[(IP_ADDRESS, &six)], "2001:DB8:0::7", true),
            ("aaa", &[(IP_ADDRESS, &six)], "2001:db8::8", false),
            ("aaa", &[(IP_ADDRESS, &six[..4])], "32.1.13.184", true),
            ("aaa", &[own, (DNS_NAME, b"aaa.test")], "aaa.test", true),
            ("aaa.test", &[own], "aaa.test", true),
            ("aaa", &[own], "*.0.2.7", false),
        ] {
            let certificate = with_names(common, alternatives);
            assert_eq!(
                match_name(want).matches_certificate(&certificate),
                fits,
                "{want} of {common} {alternatives:?}"
            );
        }
    }

    #[test]
    fn a_certificate_ends_when_its_validity_says() {
        // 2046-01-01T00:00:00Z, as UTCTime.
        assert_eq!(not_after(CLIENT), Some(WallTime::from_unix_secs(2_398_377_600)));
        assert_eq!(not_after(&CLIENT[..40]), None);
        let ends = |tag: u8, text: &[u8]| {
            let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8][..], content].concat();
            let validity = element(SEQUENCE, &[element(tag, text), element(tag, text)].concat());
            let before = [element(2, &[1]), element(SEQUENCE, &[]), element(SEQUENCE, &[])].concat();
            let tbs = element(SEQUENCE, &[before, validity].concat());
            not_after(&element(SEQUENCE, &tbs)).map(WallTime::unix_secs)
        };
        assert_eq!(ends(GENERALIZED_TIME, b"20240229235959Z"), Some(1_709_251_199));
        assert_eq!(ends(GENERALIZED_TIME, b"21000301000000Z"), Some(4_107_542_400));
        assert_eq!(ends(UTC_TIME, b"700101000000Z"), Some(0));
        for (tag, wrong) in [
            (UTC_TIME, &b"691231235959Z"[..]),
            (UTC_TIME, b"260101000000"),
            (UTC_TIME, b"261301000000Z"),
            (GENERALIZED_TIME, b"260101000000Z"),
            (GENERALIZED_TIME, b"20260x01000000Z"),
            (SEQUENCE, b"260101000000Z"),
        ] {
            assert_eq!(ends(tag, wrong), None, "{}", wrong.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn arbitrary_changes_never_panic(at in 0..CLIENT.len(), to: u8, cut in 0..CLIENT.len()) {
            let mut der = CLIENT.to_vec();
            der[at] = to;
            let _ = match_name("x").matches_certificate(&der);
            let _ = match_name("x").matches_certificate(&der[..cut]);
            let _ = not_after(&der);
            let _ = not_after(&der[..cut]);
        }
    }
}
