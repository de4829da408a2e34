//! Who answers an endpoint's jobs: keys that sign, and authorities that are trusted.

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
use usher_crypto::tls::{ChainVerifier, TlsError, TrustRoots, WallClock};
use usher_crypto::x509::{
    CertificateInfo, SubjectName, certificate_name, has_subject_name, may_issue_for_ike, may_prove_identity,
};

/// The keys of connections, and whom they trust. A host asks it wherever it does jobs, as on a thread.
#[derive(Debug, Default)]
pub struct IkeCredentials {
    keys: BTreeMap<String, Arc<SigningKey>>,
    trusted: BTreeMap<String, TrustAnchors>,
}

/// Whom a connection trusts.
#[derive(Debug)]
struct TrustAnchors {
    roots: TrustRoots,
    clock: WallClock,
    verifier: ChainVerifier,
}

/// Why somebody's certificate proves nothing.
#[derive(Debug)]
pub enum CertificateRejection {
    /// The connection trusts nobody by certificate.
    NoTrustAnchors,
    /// It is not below an authority that is trusted, not of now, or revoked.
    Chain(TlsError),
    /// It is somebody else's than who the other side says it is.
    Identity,
    /// It is not for this (RFC 4945 §5.1.3).
    Usage,
    /// Its key has not signed.
    Signature,
}

impl fmt::Display for CertificateRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTrustAnchors => f.write_str("the connection trusts no authority"),
            Self::Chain(error) => error.fmt(f),
            Self::Identity => f.write_str("the certificate does not bear the identity"),
            Self::Usage => f.write_str("the certificate is for something else"),
            Self::Signature => f.write_str("the signature is not of the certificate's key"),
        }
    }
}

impl IkeCredentials {
    /// With nobody's key, trusting nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// The key that a connection of this name signs with. Gives its kind.
    pub fn add_key(&mut self, connection: &str, key: SigningKey) -> KeyKind {
        let kind = key.kind();
        self.keys.insert(connection.into(), Arc::new(key));
        kind
    }
    /// Whom a connection of this name trusts.
    ///
    /// # Errors
    /// [`TlsError::Config`] if there is no authority, or one is no certificate.
    pub fn trust_roots(
        &mut self,
        connection: &str,
        roots: TrustRoots,
        clock: WallClock,
    ) -> Result<(), TlsError> {
        let verifier = ChainVerifier::new(roots.clone(), clock.clone())?;
        self.trusted.insert(connection.into(), TrustAnchors { roots, clock, verifier });
        Ok(())
    }
    /// The certificates of all authorities that are trusted, DER.
    pub fn trusted_authorities(&self) -> impl Iterator<Item = &[u8]> {
        self.trusted.values().flat_map(|trusted| trusted.roots.certificates())
    }
    /// The same with these revocation lists, DER: whoever is on one of its issuer is not trusted, nor is anybody of an issuer
    /// whose list is out of date.
    ///
    /// # Errors
    /// [`TlsError::Config`] if one is no list.
    pub fn with_revocation_lists(&self, lists: &[Vec<u8>]) -> Result<Self, TlsError> {
        let mut all = Self { keys: self.keys.clone(), trusted: BTreeMap::new() };
        for (connection, TrustAnchors { roots, clock, .. }) in &self.trusted {
            let listed = roots.clone().with_revocation_lists(lists.iter().map(Vec::as_slice))?;
            let verifier = ChainVerifier::new(listed, clock.clone())?;
            let trusted = TrustAnchors { roots: roots.clone(), clock: clock.clone(), verifier };
            all.trusted.insert(connection.clone(), trusted);
        }
        Ok(all)
    }

    /// Does a job, and gives what the endpoint is to be told.
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

    /// Whether what is to be verified holds: gives the path of the certificate, from it to a root, DER.
    ///
    /// # Errors
    /// Why not; of a job that asks for a signature, [`CertificateRejection::NoTrustAnchors`].
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
        // The root is trusted as it is.
        let between = path.get(1..path.len() - 1).unwrap_or_default();
        if !may_prove_identity(leaf) || !between.iter().all(|authority| may_issue_for_ike(authority)) {
            return Err(CertificateRejection::Usage);
        }
        scheme.verify(leaf, octets, signature).map_err(|_| CertificateRejection::Signature)?;
        Ok(path)
    }

    /// Whether a chain, DER, its own certificate first, ends below what a connection trusts.
    #[must_use]
    pub fn is_chain_trusted(&self, connection: &str, chain: &[&[u8]]) -> bool {
        self.trusted.get(connection).is_some_and(|trusted| trusted.verifier.verify_path(chain).is_ok())
    }
}

/// The certificates of a path as [`IkeCommand::Revoked`] names them, but for its root, which nobody revokes.
#[must_use]
pub fn certificate_names(path: &[Vec<u8>]) -> Vec<CertificateName> {
    let below = path.len().saturating_sub(1).max(1);
    path.iter().take(below).filter_map(|der| certificate_name(der).ok()).collect()
}

/// Until when a path of certificates holds, DER, from somebody's own to a root: until the first of them ends. Of a root that is not
/// looked at, which is trusted as it is.
#[must_use]
pub fn valid_until(path: &[Vec<u8>]) -> WallTime {
    let below = path.len().saturating_sub(1).max(1);
    let ends = path.iter().take(below).map(|der| CertificateInfo::of_der(der).map(|said| said.not_after));
    ends.map(|end| end.unwrap_or(WallTime::UNIX_EPOCH)).min().unwrap_or(WallTime::UNIX_EPOCH)
}

/// Whether a certificate is of an identity: it bears it as an alternative name of the same kind, or as its subject
/// (RFC 7296 §3.5, RFC 4945 §3.1).
#[must_use]
pub fn is_of(certificate: &[u8], identity: &Identification) -> bool {
    let name = match (identity.kind, identity.as_text(), identity.as_address()) {
        (IdType::ID_FQDN, Some(name), _) => SubjectName::Dns(name),
        (IdType::ID_RFC822_ADDR, Some(name), _) => SubjectName::Mail(name),
        (IdType::ID_DER_ASN1_DN, ..) => SubjectName::Subject(&identity.data),
        (_, _, Some(address)) => SubjectName::Address(address),
        _ => return false,
    };
    has_subject_name(certificate, name)
}
