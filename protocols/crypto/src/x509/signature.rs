//! Signatures of authorities on data other than certificates.

use x509_parser::der_parser::asn1_rs;
use x509_parser::oid_registry::{OID_PKCS1_SHA1WITHRSA, OID_SHA1_WITH_RSA};
#[cfg(not(target_arch = "wasm32"))]
use x509_parser::verify::verify_signature;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

/// Without AWS-LC no signature verifies.
#[cfg(target_arch = "wasm32")]
const fn verify_signature(
    _: &SubjectPublicKeyInfo<'_>,
    _: &AlgorithmIdentifier<'_>,
    _: &asn1_rs::BitString<'_>,
    _: &[u8],
) -> Result<(), super::super::signature::SignatureError> {
    Err(super::super::signature::SignatureError::Library)
}

/// True if a signature is valid. It is false for a SHA-1 digest (RFC 6960 §5.1, RFC 8954 §1). An attacker can find two
/// texts of one digest, such as OCSP requests with similar responses. A signature on one is then a signature on the
/// other.
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
