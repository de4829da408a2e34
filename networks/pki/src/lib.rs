//! Certificates: a small certificate authority, its revocation list, and status queries by OCSP.
//!
//! EAP-TLS needs certificates. [`CertificateAuthority`] is an authority in a folder, for operators without one. It
//! issues certificates for servers and users, and renews and revokes them. [`ocsp::OcspQuery`] asks a certificate's
//! issuer for its status (RFC 6960). [`fetch_list`] fetches the revocation list that an issuer publishes.

mod atomic_file;
mod authority;
mod folder;
mod http;
mod list;
pub mod ocsp;

pub use atomic_file::write_whole;
pub use authority::{
    AuthorityInitOptions, CertificateAuthority, CertificateKind, CertificateRequest, IndexEntry,
    IssuedCertificate, KeyKind, RevokeReason,
};
pub use list::{
    RevocationListPublisher, fetch_list, renew_list, shares_name_with_root, stored_list_path,
    write_private_file,
};

use std::path::PathBuf;
use usher_crypto::x509::X509Error;

/// Why an operation on certificates failed.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        cause: std::io::Error,
    },
    /// The folder has an authority already, which stays unchanged.
    #[error("{path} already has an authority, which stays unchanged; choose another folder for a new \
             one", path = .0.display())]
    Exists(PathBuf),
    /// The folder has no authority.
    #[error("{path} has no authority; make one with `usher aaa cert init`", path = .0.display())]
    Missing(PathBuf),
    /// Another user can change the path under which root would write.
    #[error(
        "root does not write in {folder}: {path} {why}, so that another user could redirect root's files. Choose a \
         folder that only root can change, such as /etc/usher/pki, or run this as that user. (Move an authority with \
         all its files.)",
        folder = folder.display(),
        path = path.display()
    )]
    Foreign {
        /// The folder of the authority.
        folder: PathBuf,
        /// The part of the path that others can change.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The name is empty or cannot be a file name.
    #[error("{0:?} is not a certificate name: use at most 64 letters, digits, '.', '-', '_' and '@'")]
    Name(String),
    /// A certificate of this name exists already.
    #[error(
        "a certificate named {0:?} exists already; renew it with `usher aaa cert renew`, or revoke it first"
    )]
    NameTaken(String),
    /// No certificate has this name.
    #[error("there is no certificate named {0:?}; `usher aaa cert list` lists them")]
    Unknown(String),
    /// The certificate was revoked already.
    #[error("the certificate {0:?} is already revoked")]
    Revoked(String),
    /// A validity of zero days, or beyond the calendar.
    #[error("a validity of {0} days is not possible; choose 1 to 36500")]
    Days(u32),
    /// The data are not a valid certificate or list.
    #[error(transparent)]
    X509(#[from] X509Error),
    /// The data are not a valid key, request or file of the authority.
    #[error("{what}: {cause}")]
    Format {
        /// The failed operation, such as "cannot read ca.key".
        what: String,
        /// The cause.
        cause: String,
    },
}

fn format_error(what: &str, cause: impl std::fmt::Display) -> PkiError {
    PkiError::Format { what: what.to_owned(), cause: cause.to_string() }
}
