//! X.509 (RFC 5280): contents of certificates, and replacement of revocation lists.

mod information;
mod list;
mod name;
mod signature;

pub use information::CertificateInfo;
pub use list::{CertificateName, RevocationList, certificate_name};
pub use name::{
    CertificateSubjectName, has_subject_name, key_usage_allows_ike_identity, may_issue_for_ike,
    public_key_hash, subject_der,
};
pub use signature::is_signature_valid;

use alloc::string::{String, ToString};

/// An invalid certificate or revocation list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{parsed_item}: {cause}")]
pub struct X509Error {
    /// The kind of object.
    pub parsed_item: &'static str,
    /// The reason.
    pub cause: String,
}

fn x509_error(what: &'static str, cause: impl core::fmt::Display) -> X509Error {
    X509Error { parsed_item: what, cause: cause.to_string() }
}
