//! Certificates: a small authority, its revocation list, and status checks by OCSP.
//!
//! Without certificates nobody gets to EAP-TLS. [`CertificateAuthority`] is one in a folder, for those who have none: it issues
//! certificates for servers and users, renews and revokes them. [`ocsp::OcspQuery`] asks a certificate's issuer whether it
//! still holds (RFC 6960), [`fetch_list`] fetches the revocation list that an issuer publishes.

mod authority;
mod folder;
mod http;
mod list;
pub mod ocsp;
mod whole;

pub use authority::{
    CertificateAuthority, CertificateKind, CertificateRequest, IndexEntry, InitOptions, IssuedCertificate,
    KeyKind, RevokeReason,
};
pub use list::{ListPublisher, fetch_list, is_namesake, renew_list, stored_list_path, write_private_file};
pub use whole::write_whole;

use std::path::PathBuf;
use usher_crypto::x509::X509Error;

/// Why something about certificates was not done.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{path}: {cause}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// There is an authority already; it is left as it is.
    #[error("{path} holds an authority already; nothing was changed (choose another folder for a new one)", path = .0.display())]
    Exists(PathBuf),
    /// There is none.
    #[error("{path} holds no authority; make one with `usher aaa cert init`", path = .0.display())]
    Missing(PathBuf),
    /// Root would write where somebody else can lead its files elsewhere.
    #[error(
        "root does not write in {folder}: {path} {why}, who could lead root's files elsewhere. Choose a folder that only root \
         can change, such as /etc/usher/pki (an authority is moved with all its files), or run this as that user",
        folder = folder.display(),
        path = path.display()
    )]
    Foreign {
        /// Where the authority should be.
        folder: PathBuf,
        /// What on the way there is not root's alone.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A name that cannot be a file's, or is empty.
    #[error("{0:?} cannot be a certificate's name: letters, digits, '.', '-', '_' and '@', at most 64")]
    Name(String),
    /// Something of that name is there already.
    #[error(
        "a certificate named {0:?} is there already; renew it with `usher aaa cert renew`, or revoke it first"
    )]
    NameTaken(String),
    /// Nothing of that name is there.
    #[error("no certificate named {0:?}; `usher aaa cert list` shows those that there are")]
    Unknown(String),
    /// It was revoked already.
    #[error("the certificate {0:?} was revoked already")]
    Revoked(String),
    /// A validity of no days, or one that the calendar does not hold.
    #[error("a validity of {0} days is not possible; 1 to 36500 are")]
    Days(u32),
    /// What should be a certificate or a list is none.
    #[error(transparent)]
    X509(#[from] X509Error),
    /// What should be a key, a request or a file of the authority is none.
    #[error("{what}: {cause}")]
    Format {
        /// What was read or made.
        what: String,
        /// Why it is none.
        cause: String,
    },
}

fn format_error(what: &str, cause: impl std::fmt::Display) -> PkiError {
    PkiError::Format { what: what.to_owned(), cause: cause.to_string() }
}
