//! Keys and trusted authorities that answer an endpoint's jobs.

use crate::code::IdType;
use crate::machine::{CertificateName, IkeCommand, IkeJob};
use crate::payload::Identification;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use usher_core::{JobRequest, WallTime};
use usher_crypto::signature::{KeyKind, SigningKey};
use usher_crypto::tls::{CertificateChainVerifier, SharedWallClock, TlsError, TrustRoots};
use usher_crypto::x509::{
    CertificateInfo, CertificateSubjectName, certificate_name, has_subject_name,
    key_usage_allows_ike_identity, may_issue_for_ike,
};

/// The signing keys and trust anchors of connections. A host calls it wherever it runs jobs, for example on a worker.
#[derive(Debug, Default)]
pub struct IkeCredentials {
    keys: BTreeMap<String, Arc<SigningKey>>,
    trusted: BTreeMap<String, TrustAnchors>,
}

/// The trust anchors of a connection.
#[derive(Debug)]
struct TrustAnchors {
    roots: TrustRoots,
    clock: SharedWallClock,
    verifier: CertificateChainVerifier,
}

/// The reason why a certificate proves nothing.
#[derive(Debug)]
pub enum CertificateRejection {
    /// The connection has no trust anchors.
    NoTrustAnchors,
    /// It has no path to a trusted authority, is not valid now, or is revoked.
    Chain(TlsError),
    /// It does not have the identity that the peer claims.
    Identity,
    /// Its key usage does not allow this use (RFC 4945 §5.1.3).
    Usage,
    /// Its key did not make the signature.
    Signature,
}

impl fmt::Display for CertificateRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTrustAnchors => f.write_str("the connection trusts no authority"),
            Self::Chain(error) => error.fmt(f),
            Self::Identity => f.write_str("the certificate does not contain the claimed identity"),
            Self::Usage => f.write_str("the certificate's key usage does not allow this use"),
            Self::Signature => f.write_str("the certificate's key did not make the signature"),
        }
    }
}

impl IkeCredentials {
    /// Creates it without keys and trust anchors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the signing key of the connection with this name. Returns the kind of the key.
    pub fn set_connection_signing_key(&mut self, connection: &str, key: SigningKey) -> KeyKind {
        let kind = key.kind();
        self.keys.insert(connection.into(), Arc::new(key));
        kind
    }
    /// Sets the trust anchors of the connection with this name.
    ///
    /// # Errors
    /// [`TlsError::Config`] if there is no authority, or one is no certificate.
    pub fn set_connection_trust_roots(
        &mut self,
        connection: &str,
        roots: TrustRoots,
        clock: SharedWallClock,
    ) -> Result<(), TlsError> {
        let verifier = CertificateChainVerifier::new(roots.clone(), clock.clone())?;
        self.trusted.insert(connection.into(), TrustAnchors { roots, clock, verifier });
        Ok(())
    }
    /// The certificates of all trusted authorities, DER.
    pub fn trusted_authorities(&self) -> impl Iterator<Item = &[u8]> {
        self.trusted.values().flat_map(|trusted| trusted.roots.certificates())
    }
    /// Returns a copy with these revocation lists, DER. Certificates on a list are rejected. An issuer with an
    /// outdated list has all its certificates rejected.
    ///
    /// # Errors
    /// [`TlsError::Config`] if one is no list.
    pub fn with_revocation_lists(&self, lists: &[Vec<u8>]) -> Result<Self, TlsError> {
        let mut all = Self { keys: self.keys.clone(), trusted: BTreeMap::new() };
        for (connection, TrustAnchors { roots, clock, .. }) in &self.trusted {
            // RFC 5280, 6.3: no revoked certificate, and no outdated list.
            let listed = roots.clone().with_revocation_lists(lists.iter().map(Vec::as_slice))?;
            let verifier = CertificateChainVerifier::new(listed, clock.clone())?;
            let trusted = TrustAnchors { roots: roots.clone(), clock: clock.clone(), verifier };
            all.trusted.insert(connection.clone(), trusted);
        }
        Ok(all)
    }

    /// Runs a job and returns the command with its result.
    #[must_use]
    pub fn answer_job(&self, job: &JobRequest<IkeJob>) -> IkeCommand {
        let token = job.token;
        match &job.job {
            IkeJob::Sign { connection, scheme, octets, .. } => {
                let signature = self.keys.get(connection).and_then(|key| key.sign(*scheme, octets).ok());
                IkeCommand::Signed { token, signature, ocsp: None }
            }
            verify @ IkeJob::Verify { .. } => {
                let path = self.verify_proof(verify).ok();
                let certificates = path.as_deref().map(certificate_names).unwrap_or_default();
                IkeCommand::Verified { token, until: path.map(|path| valid_until(&path)), certificates }
            }
        }
    }

    /// Verifies a proof. Returns the path of the certificate, from it to a root, DER.
    ///
    /// # Errors
    /// The reason of the rejection. For a signing job, [`CertificateRejection::NoTrustAnchors`].
    pub fn verify_proof(&self, job: &IkeJob) -> Result<Vec<Vec<u8>>, CertificateRejection> {
        let IkeJob::Verify { connection, identity, certificates, scheme, octets, signature, .. } = job else {
            return Err(CertificateRejection::NoTrustAnchors);
        };
        let trusted = self.trusted.get(connection).ok_or(CertificateRejection::NoTrustAnchors)?;
        let path = trusted.verifier.verify_path(certificates).map_err(CertificateRejection::Chain)?;
        let leaf = path.first().ok_or(CertificateRejection::NoTrustAnchors)?;
        if !is_of(leaf, identity) {
            return Err(CertificateRejection::Identity);
        }
        // The last certificate is the configured root, which is trusted without a check of its key usage.
        let between = path.get(1..path.len() - 1).unwrap_or_default();
        // RFC 4945, 5.1.3: a certificate of unsuitable key usage proves nothing.
        if !key_usage_allows_ike_identity(leaf)
            || !between.iter().all(|authority| may_issue_for_ike(authority))
        {
            return Err(CertificateRejection::Usage);
        }
        scheme.verify(leaf, octets, signature).map_err(|_| CertificateRejection::Signature)?;
        Ok(path)
    }

    /// True if a chain, DER, its end-entity certificate first, leads to a trust anchor of the connection.
    #[must_use]
    pub fn is_chain_trusted(&self, connection: &str, chain: &[&[u8]]) -> bool {
        self.trusted.get(connection).is_some_and(|trusted| trusted.verifier.verify_path(chain).is_ok())
    }
}

/// Returns the names of a path's certificates, as [`IkeCommand::Revoked`] has them. The root is left out: it cannot
/// be revoked.
#[must_use]
pub fn certificate_names(path: &[Vec<u8>]) -> Vec<CertificateName> {
    let below = path.len().saturating_sub(1).max(1);
    path.iter().take(below).filter_map(|der| certificate_name(der).ok()).collect()
}

/// Returns the end of validity of a path, DER, from the end-entity certificate to the root: the earliest of all
/// certificates. The root does not count, since it is trusted without a check.
#[must_use]
pub fn valid_until(path: &[Vec<u8>]) -> WallTime {
    let below = path.len().saturating_sub(1).max(1);
    let ends = path.iter().take(below).map(|der| CertificateInfo::of_der(der).map(|said| said.not_after));
    ends.map(|end| end.unwrap_or(WallTime::UNIX_EPOCH)).min().unwrap_or(WallTime::UNIX_EPOCH)
}

/// True if a certificate has an identity: as a subject alternative name of the same kind, or as its subject (RFC 7296
/// §3.5, RFC 4945 §3.1).
#[must_use]
pub fn is_of(certificate: &[u8], identity: &Identification) -> bool {
    let name = match (identity.kind, identity.as_text(), identity.as_address()) {
        (IdType::ID_FQDN, Some(name), _) => CertificateSubjectName::Dns(name),
        (IdType::ID_RFC822_ADDR, Some(name), _) => CertificateSubjectName::Mail(name),
        (IdType::ID_DER_ASN1_DN, ..) => CertificateSubjectName::Subject(&identity.data),
        (_, _, Some(address)) => CertificateSubjectName::Address(address),
        _ => return false,
    };
    has_subject_name(certificate, name)
}
