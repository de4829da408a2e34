//! Signatures of authorities on what is not a certificate.

use x509_parser::der_parser::asn1_rs;
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
#[cfg(not(target_arch = "wasm32"))]
use x509_parser::verify::verify_signature;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

/// Nothing verifies where AWS-LC is not built in, so that no signature holds.
#[cfg(target_arch = "wasm32")]
const fn verify_signature(
    _: &SubjectPublicKeyInfo<'_>,
    _: &AlgorithmIdentifier<'_>,
    _: &asn1_rs::BitString<'_>,
    _: &[u8],
) -> Result<(), super::super::signature::SignatureError> {
    Err(super::super::signature::SignatureError::Library)
}

/// Whether a signature holds. One on a SHA-1 digest does not: whoever finds two texts of one digest, such as questions
/// whose answers are alike, has what is signed for one signed for the other (RFC 6960 §5.1, RFC 8954 §1).
#[must_use]
pub fn is_signature_valid(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    signature: &asn1_rs::BitString<'_>,
    octets: &[u8],
) -> bool {
    let weak = [OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA].contains(&algorithm.algorithm);
    !weak && verify_signature(key, algorithm, signature, octets).is_ok()
}
