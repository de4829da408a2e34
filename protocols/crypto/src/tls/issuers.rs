//! Selection of authority certificates among the certificates that a peer presents.
//!
//! A search for a path through arbitrary certificates can take seconds, if they name each other in many ways. So this
//! module starts at the trusted certificates and goes down. A certificate of a stranger costs one signature check.

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use std::vec::Vec;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// The maximum number of certificates that a peer may present besides its own.
pub(super) const MOST_ISSUERS: usize = 6;
/// The maximum number of signature checks to find authorities. Each authority needs one, and one more per other
/// authority of the same name, such as an earlier key.
const MOST_SIGNATURES: usize = 24;

/// Name and key of an issuer, in DER.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IssuerKey {
    subject: Vec<u8>,
    key: Vec<u8>,
}

impl IssuerKey {
    /// Reads a trusted certificate; `None`: it is unreadable.
    pub(super) fn from_root_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self::from_certificate(&certificate))
    }
    fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        Self { subject: certificate.subject().as_raw().to_vec(), key: certificate.public_key().raw.to_vec() }
    }
    fn has_signed(
        &self,
        signed: &CertificateSignatureParts<'_>,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let Some([key_algorithm, key]) = split_two_element_sequence(&self.key) else { return false };
        let fits = |algorithm: &&&dyn SignatureVerificationAlgorithm| {
            algorithm.signature_alg_id().as_ref() == signed.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
        };
        let (Some(key), Some(signature)) = (bit_string_octets(key), bit_string_octets(signed.signature))
        else {
            return false;
        };
        let mut fitting = algorithms.iter().filter(fits);
        fitting.any(|algorithm| algorithm.verify_signature(key, signed.message, signature).is_ok())
    }
}

/// A certificate that a peer presents.
struct PeerCertificate<'a> {
    /// True if it claims to be an authority that may sign certificates (RFC 5280 §4.2.1.3, §4.2.1.9).
    may_issue: bool,
    der: &'a CertificateDer<'a>,
    issuer: Vec<u8>,
    own: IssuerKey,
    signed: CertificateSignatureParts<'a>,
}

impl<'a> PeerCertificate<'a> {
    fn from_der(der: &'a CertificateDer<'a>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let is_authority = certificate.basic_constraints().ok()?.is_some_and(|it| it.value.ca);
        let may_sign = certificate.key_usage().ok()?.is_none_or(|usage| usage.value.key_cert_sign());
        let issuer = certificate.issuer().as_raw().to_vec();
        let own = IssuerKey::from_certificate(&certificate);
        let signed = CertificateSignatureParts::from_der(der)?;
        Some(Self { may_issue: is_authority && may_sign, der, issuer, own, signed })
    }
}

/// The signed part of a certificate, the content of its algorithm identifier, and the content of its signature's bit
/// string.
struct CertificateSignatureParts<'a> {
    message: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> CertificateSignatureParts<'a> {
    fn from_der(der: &'a [u8]) -> Option<Self> {
        let (_, certificate, _) = split_element(der)?;
        let (message, _, rest) = split_element(certificate)?;
        let (_, algorithm, rest) = split_element(rest)?;
        let (_, signature, _) = split_element(rest)?;
        Some(Self { message, algorithm, signature })
    }
}

/// Splits off the first DER element: the whole element, its content, and the rest.
fn split_element(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let first = usize::from(*der.get(1)?);
    let (header, length) = match first.checked_sub(0x80) {
        None => (2, first),
        Some(octets @ 1..=3) => {
            let length =
                der.get(2..2 + octets)?.iter().fold(0, |length, octet| length << 8 | usize::from(*octet));
            (2 + octets, length)
        }
        Some(_) => return None,
    };
    let whole = der.get(..header + length)?;
    Some((whole, &whole[header..], &der[header + length..]))
}

/// Returns the contents of the two elements inside another, as in a key: algorithm identifier and bits.
fn split_two_element_sequence(der: &[u8]) -> Option<[&[u8]; 2]> {
    let (_, inner, _) = split_element(der)?;
    let (_, first, rest) = split_element(inner)?;
    let (_, second, _) = split_element(rest)?;
    Some([first, second])
}

/// Returns the octets of a bit string without unused bits.
fn bit_string_octets(content: &[u8]) -> Option<&[u8]> {
    content.strip_prefix(&[0])
}

/// Returns the certificates of authorities below these roots, by signatures of these algorithms. Also returns true if a
/// certificate below them that may not issue has issued `leaf` or one of the others.
pub(super) fn find_issuing_authorities<'a>(
    roots: &[IssuerKey],
    leaf: &[u8],
    shown: &'a [CertificateDer<'a>],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
) -> (Vec<CertificateDer<'a>>, bool) {
    let mut left: Vec<PeerCertificate<'_>> = shown.iter().filter_map(PeerCertificate::from_der).collect();
    let mut found: Vec<PeerCertificate<'_>> = Vec::new();
    let mut signatures = MOST_SIGNATURES;
    let mut has_signed = |issuer: &IssuerKey, candidate: &PeerCertificate<'_>| {
        if candidate.issuer != issuer.subject || signatures == 0 {
            return false;
        }
        signatures -= 1;
        issuer.has_signed(&candidate.signed, algorithms)
    };
    for root in roots {
        found.extend(left.extract_if(.., |one| has_signed(root, one)));
    }
    let mut next = 0;
    while let Some(above) = found.get(next) {
        if above.may_issue {
            let below: Vec<_> = left.extract_if(.., |one| has_signed(&above.own, one)).collect();
            found.extend(below);
        }
        next += 1;
    }
    let of_leaf = X509Certificate::from_der(leaf).map(|(_, leaf)| leaf.issuer().as_raw().to_vec());
    let issued = |subject: &Vec<u8>| {
        of_leaf.as_ref().is_ok_and(|issuer| issuer == subject)
            || left.iter().any(|one| one.issuer == *subject)
    };
    let barred = found.iter().any(|one| !one.may_issue && issued(&one.own.subject));
    (found.into_iter().filter(|one| one.may_issue).map(|one| one.der.clone()).collect(), barred)
}
