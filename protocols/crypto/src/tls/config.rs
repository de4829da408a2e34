//! Configurations of engines: created once and shared by all sessions.

use super::sessions::{SessionStorage, TlsSessionCache};
use super::store::TlsClientSessionStore;
use super::trust::{
    CertificatePurpose, ClientCertificateVerifier, PeerCertificateVerifier, ServerCertificateVerifier,
};
use super::{KeyLog, TlsError, TlsVersion, TlsVersionRange, TrustRoots, count, library};
use crate::SecretValue;
use crate::fault::TlsFault;
use rustls::Error;
use rustls::client::Tls12Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use usher_core::{Duration, WallTime};

/// The wall time of engines, for the validity of certificates and sessions. Clones share it. It changes only by
/// [`set`](Self::set), in whole seconds.
#[derive(Clone, Debug)]
pub struct SharedWallClock(Arc<AtomicU64>);

impl SharedWallClock {
    /// A clock that shows `time`.
    #[must_use]
    pub fn from_time(time: WallTime) -> Self {
        Self(Arc::new(AtomicU64::new(time.unix_secs())))
    }
    /// Sets the clock to `time`.
    pub fn set(&self, time: WallTime) {
        self.0.store(time.unix_secs(), Ordering::Relaxed);
    }
    /// Returns the time of the clock.
    #[must_use]
    pub fn now(&self) -> WallTime {
        WallTime::from_unix_secs(self.0.load(Ordering::Relaxed))
    }
}

impl rustls::time_provider::TimeProvider for SharedWallClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(core::time::Duration::from_secs(self.now().unix_secs())))
    }
}

/// A certificate chain and the private key of its leaf.
#[derive(Clone)]
pub struct TlsCredentials {
    chain: Vec<CertificateDer<'static>>,
    /// PKCS #8, PKCS #1 or SEC 1.
    key: SecretValue,
    /// True if all signatures have one length.
    even: bool,
}

impl TlsCredentials {
    /// Credentials from DER: the certificates in the order of sending, and the private key of the first (PKCS #8, PKCS
    /// #1 or SEC 1). The first certificate is the leaf. They are checked when a configuration is created.
    #[must_use]
    pub fn from_der<'a>(chain: impl IntoIterator<Item = &'a [u8]>, key: &[u8]) -> Self {
        let chain = chain.into_iter().map(|der| CertificateDer::from(der.to_vec())).collect();
        Self { chain, key: key.into(), even: false }
    }

    /// Credentials from PEM: the certificates of one text, the leaf first, and the first private key of the other.
    ///
    /// # Errors
    /// [`TlsError::Config`] if a certificate does not decode or is missing. [`TlsError::Key`] if the key is unusable or
    /// does not fit the leaf.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = parse_certificates(chain)?;
        let key = private_key(key)?;
        library::check_key(&chain, &key).map_err(|error| match error {
            Error::InconsistentKeys(_) => TlsError::Key(
                "it is not the key of the certificate; name the key that was made with it, and put this side's \
                 certificate first in its file"
                    .into(),
            ),
            Error::InvalidCertificate(_) => config_error("certificate", error),
            error => TlsError::Key(error.to_string()),
        })?;
        Ok(Self { chain, key: key.secret_der().into(), even: false })
    }

    /// Returns the credentials with signatures of one length, for repeatable simulations. The length of ECDSA
    /// signatures varies by one or two octets, so it signs again until the length is the usual one.
    #[must_use]
    pub fn with_even_signatures(self) -> Self {
        Self { even: true, ..self }
    }

    /// True if the key is RSA. A client with TLS 1.2 only accepts no other from a server.
    #[must_use]
    pub fn is_rsa(&self) -> bool {
        PrivateKeyDer::try_from(self.key.as_slice()).is_ok_and(|key| count::is_rsa(&key))
    }

    /// The leaf certificate in DER; empty if missing.
    #[must_use]
    pub fn leaf_certificate(&self) -> &[u8] {
        self.chain.first().map_or(&[], |leaf| leaf.as_ref())
    }

    /// The certificates in DER, the leaf first.
    pub fn certificate_chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(AsRef::as_ref)
    }

    /// Returns the private key for signing outside TLS.
    ///
    /// # Errors
    /// If its kind is unknown.
    pub fn signing_key(&self) -> Result<crate::signature::SigningKey, TlsError> {
        crate::signature::SigningKey::from_der(&self.key)
    }

    /// The private key in DER.
    #[cfg(test)]
    pub(super) fn key_der(&self) -> &[u8] {
        &self.key
    }

    /// The number of certificates sent.
    #[must_use]
    pub fn chain_len(&self) -> usize {
        self.chain.len()
    }

    fn into_parts(self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let key = PrivateKeyDer::try_from(self.key.to_vec()).map_err(|e| config_error("private key", e))?;
        Ok((self.chain, key))
    }
}

impl core::fmt::Debug for TlsCredentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Credentials").field("chain_len", &self.chain.len()).finish_non_exhaustive()
    }
}

/// Returns the first private key of a PEM text.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        TlsError::Key(match error {
            _ if is_encrypted(pem) => {
                "it is encrypted, and the program cannot ask for a passphrase; decrypt it \
                 (openssl pkey -in FILE -out NEW) into a file that no other user can read"
                    .into()
            }
            rustls::pki_types::pem::Error::NoItemsFound => "no private key in the PEM text".into(),
            error => error.to_string(),
        })
    })
}

/// True if a PEM text holds a key protected by a passphrase: PKCS #8 (RFC 7468 §11) or the older header (RFC 1421
/// §4.6.1.1).
fn is_encrypted(pem: &[u8]) -> bool {
    let says = |line: &[u8]| {
        line.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            || line.starts_with(b"Proc-Type:") && line.trim_ascii_end().ends_with(b"ENCRYPTED")
    };
    pem.split(|octet| *octet == b'\n').any(says)
}

/// Returns the certificates of a PEM text in DER, for roots and chains. Skips other blocks.
pub(super) fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| config_error("certificate", e))?;
    if certificates.is_empty() {
        return Err(TlsError::Config("no certificate in the PEM text".into()));
    }
    Ok(certificates)
}

/// The configuration of session resumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsResumptionConfig {
    /// The maximum number of sessions (of a server) or holders (of a client) per configuration. Beyond it the oldest is
    /// evicted.
    pub sessions: usize,
    /// The number of tickets that a TLS 1.3 server issues after each handshake. Each resumes a session once. A client
    /// ignores it.
    pub tickets: u8,
    /// The time after the full handshake during which a server resumes a session, in whole seconds, at most 7 days
    /// (RFC 8446 §4.6.1). A client ignores it.
    pub lifetime: Duration,
}

impl Default for TlsResumptionConfig {
    /// 4096 sessions, one ticket, a day.
    fn default() -> Self {
        Self { sessions: 4096, tickets: 1, lifetime: Duration::from_secs(24 * 60 * 60) }
    }
}

/// The options of a [`ClientConfig`].
#[derive(Debug)]
pub struct TlsClientOptions {
    /// The versions to offer. A single version has one cipher suite and one group; several have all.
    pub versions: TlsVersionRange,
    /// The client's credentials, sent on request; `None`: the client is anonymous.
    pub credentials: Option<TlsCredentials>,
    /// The trusted authorities.
    pub roots: TrustRoots,
    /// The DNS name or address that the server's certificate must have; `None`: any name, if the chain is valid.
    pub server_name: Option<String>,
    /// Session resumption; `None`: off.
    pub resumption: Option<TlsResumptionConfig>,
    /// Wall time.
    pub clock: SharedWallClock,
    /// The buffer for secrets, to decrypt captures.
    pub key_log: Option<KeyLog>,
}

/// The options of a [`ServerConfig`].
#[derive(Debug)]
pub struct TlsServerOptions {
    /// The versions to accept. The highest one that the client also offers is used.
    pub versions: TlsVersionRange,
    /// The server's credentials.
    pub credentials: TlsCredentials,
    /// The authorities of client certificates. If set, a client must present a certificate below one of them; `None`:
    /// the server requests no certificate.
    pub client_roots: Option<TrustRoots>,
    /// Session resumption; `None`: off.
    pub resumption: Option<TlsResumptionConfig>,
    /// Wall time.
    pub clock: SharedWallClock,
    /// The buffer for secrets, to decrypt captures.
    pub key_log: Option<KeyLog>,
}

/// A client's configuration. Clones are cheap and share the resumable sessions.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(super) inner: Arc<rustls::ClientConfig>,
    pub(super) versions: TlsVersionRange,
    trust: Arc<PeerCertificateVerifier>,
}

impl ClientConfig {
    /// Checks the options and prepares the keys.
    ///
    /// # Errors
    /// [`TlsError::Config`] with the invalid part.
    pub fn new(options: TlsClientOptions) -> Result<Self, TlsError> {
        let TlsClientOptions { versions, credentials, roots, server_name, resumption, clock, key_log } =
            options;
        let even = credentials.as_ref().is_some_and(|credentials| credentials.even);
        let provider = count::signing_provider(count::client_provider(versions), even);
        let name = server_name
            .map(|name| ServerName::try_from(name).map_err(|e| config_error("server name", e)))
            .transpose()?;
        let trust = Arc::new(roots.into_verifier(clock.clone())?);
        let verifier = Arc::new(ServerCertificateVerifier { trust: trust.clone(), name });
        let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(clock))
            .with_protocol_versions(&protocol_versions(versions)?)
            .map_err(|e| config_error("version", e))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut inner = match credentials {
            Some(credentials) => {
                let (chain, key) = credentials.into_parts()?;
                builder.with_client_auth_cert(chain, key).map_err(|e| config_error("credentials", e))?
            }
            None => builder.with_no_client_auth(),
        };
        inner.enable_sni = false;
        inner.require_ems = true;
        inner.resumption = match resumption {
            None => rustls::client::Resumption::disabled(),
            Some(r) => rustls::client::Resumption::store(Arc::new(TlsClientSessionStore::new(r.sessions)))
                .tls12_resumption(Tls12Resumption::SessionIdOnly),
        };
        if let Some(log) = key_log {
            inner.key_log = Arc::new(log);
        }
        Ok(Self { inner: Arc::new(inner), versions, trust })
    }

    /// Checks that a server with these certificates (DER, its own first) is trusted now. It ignores the server's name.
    ///
    /// # Errors
    /// [`TlsError::Failed`] with the reason.
    pub fn check_server_chain(&self, chain: &[impl AsRef<[u8]>]) -> Result<(), TlsError> {
        self.trust.verify_path(chain, CertificatePurpose::Server).map(drop)
    }

    /// Returns the configuration, with the same sessions, for servers that may lack the Extended Master Secret; see
    /// [`ServerConfig::without_extended_master_secret`].
    #[must_use]
    pub fn without_extended_master_secret(&self) -> Self {
        let mut inner = rustls::ClientConfig::clone(&self.inner);
        inner.require_ems = false;
        Self { inner: Arc::new(inner), versions: self.versions, trust: self.trust.clone() }
    }
}

/// A server's configuration. Clones are cheap and share the resumable sessions.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(super) inner: Arc<rustls::ServerConfig>,
    sessions: Option<Arc<TlsSessionCache>>,
    /// The verifier of client certificates; `None`: the server requests none.
    trust: Option<Arc<PeerCertificateVerifier>>,
}

impl ServerConfig {
    /// Checks the options and prepares the keys.
    ///
    /// # Errors
    /// [`TlsError::Config`] with the invalid part.
    pub fn new(options: TlsServerOptions) -> Result<Self, TlsError> {
        let TlsServerOptions { versions, credentials, client_roots, resumption, clock, key_log } = options;
        let provider = count::signing_provider(count::server_provider(), credentials.even);
        let trust = client_roots.map(|roots| roots.into_verifier(clock.clone()).map(Arc::new)).transpose()?;
        let builder = rustls::ServerConfig::builder_with_details(provider, Arc::new(clock.clone()))
            .with_protocol_versions(&protocol_versions(versions)?)
            .map_err(|e| config_error("version", e))?;
        let builder = match &trust {
            None => builder.with_no_client_auth(),
            // RFC 6614, 2.3; RFC 6733, 13.1: the server requests a certificate and requires it.
            Some(trust) => {
                builder.with_client_cert_verifier(Arc::new(ClientCertificateVerifier(trust.clone())))
            }
        };
        let (chain, key) = credentials.into_parts()?;
        let mut inner = builder.with_single_cert(chain, key).map_err(|e| config_error("credentials", e))?;
        // Each connection sets its own view of the stored sessions, so this shared configuration stores none.
        inner.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        // RFC 9190, 2.1.2: the number of NewSessionTicket messages that the server sends.
        inner.send_tls13_tickets = resumption.map_or(0, |r| usize::from(r.tickets));
        inner.require_ems = true;
        if let Some(log) = key_log {
            inner.key_log = Arc::new(log);
        }
        let sessions = resumption.map(|r| Arc::new(TlsSessionCache::new(r, clock)));
        Ok(Self { inner: Arc::new(inner), sessions, trust })
    }

    /// Returns the configuration, with the same sessions, for clients that may lack the Extended Master Secret. It
    /// accepts them with TLS 1.2.
    ///
    /// Without the extension an attacker can give two sessions the same keys (RFC 7627 §1). Channel binding is then
    /// worthless.
    #[must_use]
    pub fn without_extended_master_secret(&self) -> Self {
        let mut inner = rustls::ServerConfig::clone(&self.inner);
        inner.require_ems = false;
        Self { inner: Arc::new(inner), sessions: self.sessions.clone(), trust: self.trust.clone() }
    }

    /// Ends the sessions of the matching subjects ([`TlsSessionMetadata`](super::TlsSessionMetadata)) and returns their number. Their
    /// next handshake is a full one.
    pub fn end_sessions(&self, whose: impl Fn(&[u8]) -> bool) -> usize {
        self.sessions.as_ref().map_or(0, |sessions| sessions.end_sessions(whose))
    }

    /// Returns the configuration of a connection for this purpose.
    pub(super) fn connection_config(
        &self,
        purpose: u8,
    ) -> (Arc<rustls::ServerConfig>, Option<Arc<SessionStorage>>) {
        let Some(sessions) = &self.sessions else { return (self.inner.clone(), None) };
        let storage = Arc::new(SessionStorage::new(sessions.clone(), purpose));
        let mut inner = rustls::ServerConfig::clone(&self.inner);
        inner.session_storage = storage.clone();
        (Arc::new(inner), Some(storage))
    }

    /// Verifies a client's chain (DER, its own certificate first) as a handshake would now. Returns the path to a root:
    /// the certificates used, in order, then the root.
    ///
    /// # Errors
    /// [`TlsError::Failed`] with the reason. Without client roots every client is rejected.
    pub fn verified_client_path(&self, chain: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, TlsError> {
        self.verify_path(chain, CertificatePurpose::Client)
    }

    /// Does the same for a certificate of any purpose, which the caller must check. Example: a signer of OCSP
    /// responses, whose authority need not have that purpose.
    ///
    /// # Errors
    /// As for [`verified_client_path`](Self::verified_client_path).
    pub fn verified_path_for_any_purpose(
        &self,
        chain: &[impl AsRef<[u8]>],
    ) -> Result<Vec<Vec<u8>>, TlsError> {
        self.verify_path(chain, CertificatePurpose::Any)
    }

    fn verify_path(
        &self,
        chain: &[impl AsRef<[u8]>],
        purpose: CertificatePurpose,
    ) -> Result<Vec<Vec<u8>>, TlsError> {
        let nobody = || TlsError::Failed(TlsFault::Internal, "no authority is trusted".into());
        self.trust.as_ref().ok_or_else(nobody)?.verify_path(chain, purpose)
    }
}

impl PartialEq for ServerConfig {
    /// True if both are clones of one configuration.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

pub(super) fn config_error(what: &str, error: impl core::fmt::Display) -> TlsError {
    TlsError::Config(format!("{what}: {error}"))
}

fn protocol_versions(
    versions: TlsVersionRange,
) -> Result<Vec<&'static rustls::SupportedProtocolVersion>, TlsError> {
    let within = |v: &TlsVersion| versions.contains(*v);
    // RFC 6614, 2.3; RFC 9190, 1: no version before 1.1, and none above 1.3.
    let protocol = |version| match version {
        TlsVersion::Tls12 => &rustls::version::TLS12,
        TlsVersion::Tls13 => &rustls::version::TLS13,
    };
    let protocols: Vec<_> = TlsVersion::ALL.into_iter().filter(within).map(protocol).collect();
    if protocols.is_empty() {
        return Err(TlsError::Config("the lowest version is above the highest".into()));
    }
    Ok(protocols)
}
