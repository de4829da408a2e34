//! Whose certificate it is (RFC 6614 §2.3, RFC 6733 §13.1): a fingerprint, or a name in it.
//!
//! The host's TLS has verified the chain; here the leaf is only read, in bounds and without recursion.

use crate::fingerprint::sha256;
use alloc::string::String;
use usher_core::Reader;

/// What a certificate must be to stand for somebody. The host must have verified its chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CertificateMatch {
    /// The SHA-256 of the whole certificate (DER).
    Fingerprint([u8; 32]),
    /// A dNSName of its subjectAltName, or, where it has none, the last commonName of its subject. Letter case of
    /// ASCII is ignored; `*` as the name's first label stands for any one label.
    Name(String),
}

impl CertificateMatch {
    /// Whether a certificate (DER) fits. One that cannot be read has no names.
    #[must_use]
    pub fn fits(&self, certificate: &[u8]) -> bool {
        match self {
            Self::Fingerprint(want) => sha256(certificate) == *want,
            Self::Name(want) => {
                let mut found = Names { want, fits: false, alternative: false };
                // One that cannot be read to its end is not trusted for what stood before.
                read(certificate, &mut found).is_some() && found.fits
            }
        }
    }
}

struct Names<'a> {
    want: &'a str,
    fits: bool,
    alternative: bool,
}

impl Names<'_> {
    fn equal(&self, name: &[u8]) -> bool {
        match self.want.strip_prefix("*.") {
            Some(rest) => match name.iter().position(|&b| b == b'.') {
                Some(at) => at > 0 && name[at + 1..].eq_ignore_ascii_case(rest.as_bytes()),
                None => false,
            },
            None => name.eq_ignore_ascii_case(self.want.as_bytes()),
        }
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;
const OID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
/// [3] EXPLICIT, the extensions.
const EXTENSIONS: u8 = 0xa3;
/// [2] IMPLICIT IA5String, a dNSName.
const DNS_NAME: u8 = 0x82;
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];

/// The next element: its tag and content.
fn element<'a>(r: &mut Reader<'a>) -> Option<(u8, Reader<'a>)> {
    let tag = r.u8().ok()?;
    let length = match r.u8().ok()? {
        n @ 0..=0x7f => usize::from(n),
        0x81 => r.u8().ok()?.into(),
        0x82 => r.u16().ok()?.into(),
        0x83 => r.u24().ok()? as usize,
        _ => return None,
    };
    Some((tag, r.sub(length).ok()?))
}
fn expect<'a>(r: &mut Reader<'a>, tag: u8) -> Option<Reader<'a>> {
    element(r).filter(|(t, _)| *t == tag).map(|(_, content)| content)
}

/// TBSCertificate (RFC 5280 §4.1): version, serial, signature, issuer, validity, subject, key, extensions.
fn read(certificate: &[u8], found: &mut Names<'_>) -> Option<()> {
    let mut tbs = expect(&mut expect(&mut Reader::new(certificate), SEQUENCE)?, SEQUENCE)?;
    let (first, _) = element(&mut tbs)?;
    let before = if first == 0xa0 { 4 } else { 3 };
    for _ in 0..before {
        element(&mut tbs)?;
    }
    let subject = expect(&mut tbs, SEQUENCE)?;
    expect(&mut tbs, SEQUENCE)?;
    while !tbs.is_empty() {
        let (tag, mut content) = element(&mut tbs)?;
        if tag == EXTENSIONS {
            extensions(expect(&mut content, SEQUENCE)?, found)?;
        }
    }
    if !found.alternative { names(subject, found) } else { Some(()) }
}

fn extensions(mut list: Reader<'_>, found: &mut Names<'_>) -> Option<()> {
    while !list.is_empty() {
        let mut extension = expect(&mut list, SEQUENCE)?;
        let oid = expect(&mut extension, OID)?;
        let mut value = element(&mut extension)?;
        if value.0 == BOOLEAN {
            value = element(&mut extension)?;
        }
        if oid.peek_rest() != SUBJECT_ALT_NAME || value.0 != OCTETS {
            continue;
        }
        let mut alternatives = expect(&mut value.1, SEQUENCE)?;
        while !alternatives.is_empty() {
            let (tag, name) = element(&mut alternatives)?;
            if tag == DNS_NAME {
                found.alternative = true;
                found.fits |= found.equal(name.peek_rest());
            }
        }
    }
    Some(())
}

fn names(mut subject: Reader<'_>, found: &mut Names<'_>) -> Option<()> {
    while !subject.is_empty() {
        let mut set = expect(&mut subject, SET)?;
        while !set.is_empty() {
            let mut pair = expect(&mut set, SEQUENCE)?;
            let oid = expect(&mut pair, OID)?;
            let (_, value) = element(&mut pair)?;
            if oid.peek_rest() == COMMON_NAME {
                found.fits = found.equal(value.peek_rest());
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

    fn named(name: &str) -> CertificateMatch {
        CertificateMatch::Name(name.into())
    }

    #[test]
    fn a_fingerprint_is_of_the_whole_certificate() {
        let print = CertificateMatch::Fingerprint(sha256(CLIENT));
        assert!(print.fits(CLIENT) && !print.fits(SERVER) && !print.fits(&[]));
    }

    #[test]
    fn an_alternative_name_stands_before_the_common_name() {
        for right in ["aaa.usher.test", "AAA.Usher.test", "*.usher.test"] {
            assert!(named(right).fits(SERVER), "{right}");
        }
        for wrong in ["usher.test", "*.test", "*", "", "xaaa.usher.test", "station@usher.test"] {
            assert!(!named(wrong).fits(SERVER), "{wrong}");
        }
        assert!(!named("aaa.usher.test").fits(&SERVER[..SERVER.len() / 2]));
    }

    #[test]
    fn without_a_host_name_the_common_name_stands() {
        assert!(named("station@usher.test").fits(CLIENT) && !named("aaa.usher.test").fits(CLIENT));
    }

    proptest! {
        #[test]
        fn arbitrary_changes_never_panic(at in 0..CLIENT.len(), to: u8, cut in 0..CLIENT.len()) {
            let mut der = CLIENT.to_vec();
            der[at] = to;
            let _ = named("x").fits(&der);
            let _ = named("x").fits(&der[..cut]);
        }
    }
}
