//! Trust of an engine: authorities, revocation lists, and paths to the authorities.

use super::config::{SharedWallClock, config_error, parse_certificates};
use super::issuers::IssuerKey;
use super::signature_cache::VerificationCache;
use super::{TlsError, count, faults, issuers};
use crate::fault::TlsFault;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertRevocationListError, CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, ExpirationPolicy, ExtendedKeyUsageValidator, KeyPurposeIdIter,
    KeyUsage, OwnedCertRevocationList, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

/// The trusted authorities and their revocation lists. Clones share the lists and the signature cache.
#[derive(Clone, Debug, Default)]
pub struct TrustRoots {
    certificates: Vec<CertificateDer<'static>>,
    lists: Arc<[CertRevocationList<'static>]>,
    verification_cache: Option<Arc<VerificationCache>>,
    accepts_anybody: bool,
}

impl TrustRoots {
    /// No authority. A client accepts any certificate whose key the server has. That protects from an eavesdropper
    /// (RFC 7435), but not from a man in the middle. A server with these roots rejects every client.
    #[must_use]
    pub fn accept_any_certificate() -> Self {
        Self { accepts_anybody: true, ..Self::default() }
    }

    /// Authorities from DER. They are checked when a configuration is created.
    #[must_use]
    pub fn from_der<'a>(roots: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let certificates = roots.into_iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        Self { certificates, ..Self::default() }
    }

    /// Authorities from the certificates of a PEM text.
    ///
    /// # Errors
    /// [`TlsError::Config`] if a block does not decode, or the text has no certificate.
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { certificates: parse_certificates(text)?, ..Self::default() })
    }

    /// The certificates of the authorities in DER.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(AsRef::as_ref)
    }

    /// Adds DER revocation lists of these authorities and of those below them (RFC 5280 §5).
    ///
    /// Each certificate of a peer's path is checked against the list of its issuer. A revoked certificate or a list
    /// past its nextUpdate causes rejection. An issuer without a list revokes nothing.
    ///
    /// # Errors
    /// [`TlsError::Config`] if one is not a list.
    pub fn with_revocation_lists<'a>(
        mut self,
        lists: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, TlsError> {
        let list = |der| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from);
        let lists: Result<Vec<_>, _> = lists.into_iter().map(list).collect();
        self.lists = lists.map_err(|e| config_error("revocation lists", e))?.into();
        Ok(self)
    }

    /// Adds a signature cache: each signature on a certificate or list is verified once. A handshake with a known peer
    /// then verifies only the peer's proof. Validity and revocation are still checked each time.
    #[must_use]
    pub fn with_signature_cache(mut self) -> Self {
        self.verification_cache = Some(Arc::default());
        self
    }

    pub(super) fn into_verifier(self, clock: SharedWallClock) -> Result<PeerCertificateVerifier, TlsError> {
        let mut store = RootCertStore::empty();
        for root in &self.certificates {
            store.add(root.clone()).map_err(|e| config_error("root certificate", e))?;
        }
        if store.is_empty() && !self.accepts_anybody {
            return Err(TlsError::Config("no root certificate".into()));
        }
        let algorithms = count::server_provider().signature_verification_algorithms;
        let names = store.subjects();
        let issuers = self.certificates.iter().filter_map(|root| IssuerKey::from_root_der(root)).collect();
        Ok(PeerCertificateVerifier { roots: self, store, issuers, names, clock, algorithms })
    }
}

/// A verifier of chains outside TLS, such as in IKEv2. Clones share the signature cache.
#[derive(Clone, Debug)]
pub struct CertificateChainVerifier(Arc<PeerCertificateVerifier>);

impl CertificateChainVerifier {
    /// A verifier that accepts certificates below these authorities.
    ///
    /// # Errors
    /// [`TlsError::Config`] if there is no authority, or one is not a certificate.
    pub fn new(roots: TrustRoots, clock: SharedWallClock) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(roots.into_verifier(clock)?)))
    }
    /// Verifies a DER chain from its first certificate to a root. Returns the certificates used, in order, then the
    /// root. The caller must check the purpose of the certificate.
    ///
    /// # Errors
    /// [`TlsError::Failed`] with the reason.
    pub fn verify_path(&self, chain: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, TlsError> {
        self.0.verify_path(chain, CertificatePurpose::Any)
    }
}

/// A verifier of peers' certificates.
#[derive(Debug)]
pub(super) struct PeerCertificateVerifier {
    roots: TrustRoots,
    /// The roots in the order of their certificates.
    store: RootCertStore,
    issuers: Vec<IssuerKey>,
    names: Vec<DistinguishedName>,
    clock: SharedWallClock,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The purpose of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CertificatePurpose {
    Client,
    Server,
    Any,
}

impl ExtendedKeyUsageValidator for CertificatePurpose {
    fn validate(&self, mut usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        match self {
            Self::Client => KeyUsage::client_auth().validate(usages),
            Self::Server => KeyUsage::server_auth().validate(usages),
            Self::Any => usages.try_for_each(|usage| usage.map(drop)),
        }
    }
}

impl PeerCertificateVerifier {
    /// Returns the verified path of a DER chain, from its first certificate to a root.
    pub(super) fn verify_path(
        &self,
        chain: &[impl AsRef<[u8]>],
        purpose: CertificatePurpose,
    ) -> Result<Vec<Vec<u8>>, TlsError> {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| der.as_ref().into()).collect();
        let Some((leaf, others)) = chain.split_first() else {
            return Err(TlsError::Failed(TlsFault::NoCertificate, "the certificate chain is empty".into()));
        };
        let now = UnixTime::since_unix_epoch(core::time::Duration::from_secs(self.clock.now().unix_secs()));
        let mut path = vec![leaf.to_vec()];
        self.verify_certificate(leaf, others, now, purpose, |verified, root| {
            path.extend(verified.intermediate_certificates().map(|c| c.der().to_vec()));
            path.extend(self.roots.certificates.get(root).map(|root| root.to_vec()));
        })
        .map_err(|e| faults::to_tls_error(&e))?;
        Ok(path)
    }

    /// Verifies a certificate. `found` receives the path and the index of its root.
    fn verify_certificate(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        purpose: CertificatePurpose,
        found: impl FnOnce(&VerifiedPath<'_>, usize),
    ) -> Result<(), Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.roots.lists.iter().collect();
        // RFC 5216, 5.4; RFC 5280, 6.3: no revoked certificate, and no outdated list. Without lists there is no option.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_status_policy(UnknownStatusPolicy::Allow)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        if others.len() > issuers::MOST_ISSUERS {
            return Err(to_rustls_error(webpki::Error::MaximumPathDepthExceeded));
        }
        let certificate = EndEntityCert::try_from(leaf).map_err(to_rustls_error)?;
        let all = self.algorithms.all;
        // The search for issuers and the check of the path both verify the intermediate authorities. A cache avoids the
        // second verification; it is local if the roots have none.
        let here = VerificationCache::default();
        let remembered = match &self.roots.verification_cache {
            Some(remembered) => Some(&**remembered),
            None => (!others.is_empty()).then_some(&here),
        };
        let remembering: Vec<_> = match remembered {
            Some(remembered) => all.iter().map(|a| remembered.caching_algorithm(*a, leaf)).collect(),
            None => Vec::new(),
        };
        let remembering: Vec<&dyn SignatureVerificationAlgorithm> =
            remembering.iter().map(|a| a as &dyn SignatureVerificationAlgorithm).collect();
        let algorithms = if remembering.is_empty() { all } else { &remembering };
        let authorities;
        let mut barred = false;
        let others = match remembered {
            Some(remembered) if !remembered.contains_issuers(others) => {
                (authorities, barred) =
                    issuers::find_issuing_authorities(&self.issuers, leaf, others, algorithms);
                remembered.cache_authority_certificates(&authorities);
                &authorities
            }
            _ => others,
        };
        // RFC 6614, 2.3: a path by RFC 5280 to a configured authority.
        let path = certificate
            .verify_for_usage(algorithms, &self.store.roots, others, now, purpose, revocation, None)
            .map_err(|error| match error {
                // No issuer was found because the candidate may not issue certificates, so the error says that instead.
                webpki::Error::UnknownIssuer if barred => to_rustls_error(webpki::Error::EndEntityUsedAsCa),
                error => to_rustls_error(error),
            })?;
        let root = self.store.roots.iter().position(|root| core::ptr::eq(root, path.anchor()));
        // The path ends at one of the trusted roots, so its index is found.
        if let Some(root) = root {
            found(&path, root);
        }
        Ok(())
    }
}

/// Returns the error that selects the alert for the peer (RFC 8446 §6.2) and the log's reason.
fn to_rustls_error(error: webpki::Error) -> Error {
    use webpki::Error as E;
    let certificate = match error {
        E::BadDer | E::BadDerTime | E::TrailingData(_) => CertificateError::BadEncoding,
        E::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        E::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        E::InvalidCertValidity => CertificateError::Expired,
        E::UnknownIssuer => CertificateError::UnknownIssuer,
        E::CertRevoked => CertificateError::Revoked,
        E::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        E::CrlExpired { time, next_update } => {
            CertificateError::ExpiredRevocationListContext { time, next_update }
        }
        E::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        E::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        E::IssuerNotCrlSigner => return CertRevocationListError::IssuerInvalidForCrl.into(),
        E::InvalidCrlSignatureForPublicKey => return CertRevocationListError::BadSignature.into(),
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    certificate.into()
}

/// The verifier of a server: clients present a certificate below the roots.
#[derive(Debug)]
pub(super) struct ClientCertificateVerifier(pub(super) Arc<PeerCertificateVerifier>);

impl ClientCertVerifier for ClientCertificateVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.0.names
    }
    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_certificate(leaf, intermediates, now, CertificatePurpose::Client, |_, _| ())?;
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.algorithms.supported_schemes()
    }
}

/// The verifier of a client: it checks the chain, and the configured name in place of the connection's name. EAP has no
/// name to connect to (RFC 5216 §5.2).
#[derive(Debug)]
pub(super) struct ServerCertificateVerifier {
    pub(super) trust: Arc<PeerCertificateVerifier>,
    pub(super) name: Option<ServerName<'static>>,
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.trust.roots.accepts_anybody {
            return Ok(ServerCertVerified::assertion());
        }
        self.trust.verify_certificate(leaf, intermediates, now, CertificatePurpose::Server, |_, _| ())?;
        if let Some(name) = &self.name {
            verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.trust.algorithms)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.trust.algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.algorithms.supported_schemes()
    }
}
