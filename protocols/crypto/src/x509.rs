//! X.509 as it is read (RFC 5280): what a certificate says, and which revocation list takes another's place.

mod information;
mod list;
mod name;
mod signature;

pub use information::CertificateInfo;
pub use list::{CertificateName, RevocationList, certificate_name};
pub use name::{
    SubjectName, has_subject_name, may_issue_for_ike, may_prove_identity, public_key_hash, subject_der,
};
pub use signature::is_signature_valid;

use alloc::string::{String, ToString};

/// What should be a certificate or a list is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{parsed_item}: {cause}")]
pub struct X509Error {
    /// What was read.
    pub parsed_item: &'static str,
    /// Why it is none.
    pub cause: String,
}

fn x509_error(what: &'static str, cause: impl core::fmt::Display) -> X509Error {
    X509Error { parsed_item: what, cause: cause.to_string() }
}
