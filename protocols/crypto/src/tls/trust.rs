//! Whom an engine believes: authorities, their revocation lists, and the paths to them.

use super::config::{WallClock, config_error, parse_certificates};
use super::issuers::IssuerKey;
use super::remembered::VerificationCache;
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

/// The authorities whose certificates are trusted, and what they have taken back. Clones share the lists, and what is
/// remembered.
#[derive(Clone, Debug, Default)]
pub struct TrustRoots {
    certificates: Vec<CertificateDer<'static>>,
    lists: Arc<[CertRevocationList<'static>]>,
    verification_cache: Option<Arc<VerificationCache>>,
    accepts_anybody: bool,
}

impl TrustRoots {
    /// No authority: a client takes whatever certificate its server shows and has the key of, which keeps out who only
    /// listens (RFC 7435), and nobody who is in between. A server with these roots lets no client in.
    #[must_use]
    pub fn accept_any() -> Self {
        Self { accepts_anybody: true, ..Self::default() }
    }

    /// From DER; checked when a configuration is made.
    #[must_use]
    pub fn from_der<'a>(roots: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let certificates = roots.into_iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        Self { certificates, ..Self::default() }
    }

    /// From the certificates of a PEM text.
    ///
    /// # Errors
    /// [`TlsError::Config`] if a block does not decode or no certificate is there.
    pub fn from_pem(text: &[u8]) -> Result<Self, TlsError> {
        Ok(Self { certificates: parse_certificates(text)?, ..Self::default() })
    }

    /// The authorities' certificates in DER.
    pub fn certificates(&self) -> impl Iterator<Item = &[u8]> {
        self.certificates.iter().map(AsRef::as_ref)
    }

    /// With certificate revocation lists in DER, of these authorities and those below them (RFC 5280 §5). Every
    /// certificate of a peer's path is looked up in the list of its issuer: on it, or with a list that is past its
    /// nextUpdate, the peer is refused. An issuer of whom no list is given revokes nothing.
    ///
    /// # Errors
    /// [`TlsError::Config`] if one is no list.
    pub fn with_revocation_lists<'a>(
        mut self,
        lists: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, TlsError> {
        let list = |der| OwnedCertRevocationList::from_der(der).map(CertRevocationList::from);
        let lists: Result<Vec<_>, _> = lists.into_iter().map(list).collect();
        self.lists = lists.map_err(|e| config_error("revocation lists", e))?.into();
        Ok(self)
    }

    /// Has each signature on a certificate or a revocation list be verified once and then be remembered, so that of a peer
    /// that comes again a handshake verifies what it proves alone. Whether a certificate is of now and on no list is looked
    /// at each time.
    #[must_use]
    pub fn with_signature_cache(mut self) -> Self {
        self.verification_cache = Some(Arc::default());
        self
    }

    pub(super) fn into_verifier(self, clock: WallClock) -> Result<PeerVerifier, TlsError> {
        let mut store = RootCertStore::empty();
        for root in &self.certificates {
            store.add(root.clone()).map_err(|e| config_error("root certificate", e))?;
        }
        if store.is_empty() && !self.accepts_anybody {
            return Err(TlsError::Config("no root certificate".into()));
        }
        let algorithms = count::server_provider().signature_verification_algorithms;
        let names = store.subjects();
        let issuers = self.certificates.iter().filter_map(|root| IssuerKey::of_root(root)).collect();
        Ok(PeerVerifier { roots: self, store, issuers, names, clock, algorithms })
    }
}

/// Verifies chains of certificates that are shown outside TLS, such as in IKEv2. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct ChainVerifier(Arc<PeerVerifier>);

impl ChainVerifier {
    /// Whoever has a certificate below these authorities.
    ///
    /// # Errors
    /// [`TlsError::Config`] if there is no authority, or one is no certificate.
    pub fn new(roots: TrustRoots, clock: WallClock) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(roots.into_verifier(clock)?)))
    }
    /// The path of a chain, DER, from its first certificate to a root: those that it is made of, in their order, then the
    /// root. What the certificate may be used for is the caller's to look at.
    ///
    /// # Errors
    /// [`TlsError::Failed`] says why it is refused.
    pub fn verify_path(&self, chain: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, TlsError> {
        self.0.verify_path(chain, CertificatePurpose::Any)
    }
}

/// Verifies peers' certificates.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    roots: TrustRoots,
    /// Of the same order as the roots' certificates.
    store: RootCertStore,
    issuers: Vec<IssuerKey>,
    names: Vec<DistinguishedName>,
    clock: WallClock,
    algorithms: WebPkiSupportedAlgorithms,
}

/// What a certificate is shown for.
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

impl PeerVerifier {
    /// The path of a chain, DER, from its first certificate to a root, as it was verified.
    pub(super) fn verify_path(
        &self,
        chain: &[impl AsRef<[u8]>],
        purpose: CertificatePurpose,
    ) -> Result<Vec<Vec<u8>>, TlsError> {
        let chain: Vec<CertificateDer<'_>> = chain.iter().map(|der| der.as_ref().into()).collect();
        let Some((leaf, others)) = chain.split_first() else {
            return Err(TlsError::Failed(TlsFault::NoCertificate, "an empty chain".into()));
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

    /// Verifies a certificate; `found` gets the path, and which root it ends at.
    fn verify_certificate(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        purpose: CertificatePurpose,
        found: impl FnOnce(&VerifiedPath<'_>, usize),
    ) -> Result<(), Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.roots.lists.iter().collect();
        // There are no options for no lists.
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
        // What is found of the authorities between is not verified a second time with the path.
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
                (authorities, barred) = issuers::find_authorities(&self.issuers, leaf, others, algorithms);
                remembered.insert_issuers(&authorities);
                &authorities
            }
            _ => others,
        };
        let path = certificate
            .verify_for_usage(algorithms, &self.store.roots, others, now, purpose, revocation, None)
            .map_err(|error| match error {
                // It was issued by one that may not.
                webpki::Error::UnknownIssuer if barred => to_rustls_error(webpki::Error::EndEntityUsedAsCa),
                error => to_rustls_error(error),
            })?;
        let root = self.store.roots.iter().position(|root| core::ptr::eq(root, path.anchor()));
        // It is one of them.
        if let Some(root) = root {
            found(&path, root);
        }
        Ok(())
    }
}

/// What the peer is told, by the alert that stands for it (RFC 8446 §6.2), and the log.
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

/// A server's verifier: clients show a certificate below the roots.
#[derive(Debug)]
pub(super) struct ClientVerifier(pub(super) Arc<PeerVerifier>);

impl ClientCertVerifier for ClientVerifier {
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

/// A client's verifier: trusts what ends below the roots, and checks the configured name instead of the connection's,
/// since EAP runs where there is no name to connect to (RFC 5216 §5.2).
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub(super) trust: Arc<PeerVerifier>,
    pub(super) name: Option<ServerName<'static>>,
}

impl ServerCertVerifier for ServerVerifier {
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
