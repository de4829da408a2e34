//! TLS to PostgreSQL according to libpq's parameters (PostgreSQL manual, "SSL Support").

use super::url::TlsParameters;
use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use usher_core::WallTime;
use usher_crypto::fault::{CertificateFault, TlsFault};
use usher_crypto::tls::{
    ClientConfig, SharedWallClock, TlsClientEngine, TlsClientOptions, TlsCredentials, TlsEngine, TlsError,
    TlsVersionRange, TrustRoots,
};

/// The system's trust anchors on Debian, Fedora and others.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
/// The octets encrypted or read at once: about one TLS record.
const PIECE: usize = 16 << 10;

/// libpq's `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PostgresSslMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// The TLS settings of a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TlsSettings {
    mode: PostgresSslMode,
    /// The file of trust anchors. `None`: any certificate is accepted.
    root: Option<PathBuf>,
    /// The client certificate and its key.
    client: Option<(PathBuf, PathBuf)>,
}

impl TlsSettings {
    /// No TLS, as for a Unix socket.
    pub(super) const NONE: Self = Self { mode: PostgresSslMode::Disable, root: None, client: None };

    /// Checks the parameters of a URL.
    ///
    /// # Errors
    /// A sentence with the remedy.
    pub(super) fn new(asked: TlsParameters) -> Result<Self, String> {
        let system = asked.root.as_deref() == Some("system");
        let mode = match asked.mode.as_deref() {
            None if system => PostgresSslMode::VerifyFull,
            None | Some("prefer") => PostgresSslMode::Prefer,
            Some("disable") => return Ok(Self::NONE),
            Some("require") => PostgresSslMode::Require,
            Some("verify-ca") => PostgresSslMode::VerifyCa,
            Some("verify-full") => PostgresSslMode::VerifyFull,
            Some(other) => {
                return Err(format!(
                    "sslmode={other} is unknown: write disable, prefer, require, verify-ca or verify-full"
                ));
            }
        };
        let mode = match (mode, &asked.root) {
            (PostgresSslMode::Prefer, Some(_)) => {
                return Err(
                    "sslrootcert has no effect with sslmode=prefer, the default, which continues without TLS if the \
                     certificate is not trusted: write sslmode=verify-full"
                        .to_owned(),
                );
            }
            (PostgresSslMode::Require | PostgresSslMode::VerifyCa, Some(_)) if system => {
                return Err(
                    "sslrootcert=system trusts every public authority, so the host name must be checked: write \
                     sslmode=verify-full"
                        .to_owned(),
                );
            }
            (PostgresSslMode::VerifyCa | PostgresSslMode::VerifyFull, None) => {
                return Err(
                    "sslmode=verify-ca and verify-full need the authority that signed the server's certificate: add \
                     sslrootcert=FILE (PEM), or sslrootcert=system for a public one"
                        .to_owned(),
                );
            }
            // Given a root certificate, `require` also verifies the authority, as in libpq.
            (PostgresSslMode::Require, Some(_)) => PostgresSslMode::VerifyCa,
            (mode, _) => mode,
        };
        let root = match asked.root {
            Some(_) if system => Some(system_roots()?),
            given => given.map(PathBuf::from),
        };
        let client = match (asked.certificate, asked.key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err("sslcert needs its key: add sslkey=FILE (PEM)".to_owned()),
            (None, Some(_)) => return Err("sslkey needs its certificate: add sslcert=FILE (PEM)".to_owned()),
        };
        Ok(Self { mode, root, client })
    }

    /// The mode for the client library.
    pub(super) const fn ssl_mode(&self) -> SslMode {
        match self.mode {
            PostgresSslMode::Disable => SslMode::Disable,
            PostgresSslMode::Prefer => SslMode::Prefer,
            PostgresSslMode::Require | PostgresSslMode::VerifyCa | PostgresSslMode::VerifyFull => {
                SslMode::Require
            }
        }
    }

    /// True if a connection without TLS is allowed.
    pub(super) fn allows_plaintext(&self) -> bool {
        self.mode == PostgresSslMode::Prefer
    }

    /// Reads the current files.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(super) fn load_connector(&self) -> Result<TlsConnector, String> {
        let roots = match &self.root {
            None => TrustRoots::accept_any_certificate(),
            Some(path) => TrustRoots::from_pem(&read_file(path, "sslrootcert")?)
                .map_err(|e| format!("{}: {e}", path.display()))?,
        };
        let credentials = match &self.client {
            None => None,
            Some((certificate, key)) => {
                require_private_key(key)?;
                let pem = (
                    read_file(certificate, "sslcert")?,
                    usher_crypto::SecretValue::from(read_file(key, "sslkey")?),
                );
                let made = TlsCredentials::from_pem(&pem.0, &pem.1);
                Some(made.map_err(|e| {
                    format!("{}: {e}", if e.concerns_private_key() { key } else { certificate }.display())
                })?)
            }
        };
        let connector =
            TlsConnector { roots, credentials, verifies_host_name: self.mode == PostgresSslMode::VerifyFull };
        // Report faults of the files now, not at the first connection.
        connector.client_config("localhost").map_err(|e| e.to_string())?;
        Ok(connector)
    }
}

fn system_roots() -> Result<PathBuf, String> {
    let set = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    set.or_else(|| SYSTEM.iter().map(PathBuf::from).find(|path| path.exists())).ok_or_else(|| {
        format!(
            "sslrootcert=system: none of {} exists: install the package ca-certificates, or name a file",
            SYSTEM.join(", ")
        )
    })
}

fn read_file(path: &Path, key: &str) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("cannot read {key}={}: {e}", path.display()))
}

/// Rejects a private key that others can read. As in libpq, only its owner may read it, or also its group if the
/// owner is root.
fn require_private_key(key: &Path) -> Result<(), String> {
    let shown = key.display();
    let about = fs::metadata(key).map_err(|e| format!("cannot read sslkey={shown}: {e}"))?;
    let others = if about.uid() == 0 { 0o037 } else { 0o077 };
    if about.mode() & others == 0 {
        return Ok(());
    }
    Err(format!("sslkey={shown}: others than its owner can read or change it; run: chmod 0600 {shown}"))
}

/// Why the TLS handshake failed.
#[derive(Debug)]
pub(super) enum TlsHandshakeError {
    /// The server closed the connection.
    Closed,
    /// The connection failed.
    Socket(io::Error),
    /// One side rejected the other.
    Tls(TlsError),
}

impl TlsHandshakeError {
    /// Finds the fault in an error of the client library.
    pub(super) fn find_handshake_fault(error: &tokio_postgres::Error) -> Option<&Self> {
        let source = std::error::Error::source(error)?;
        let inner = || source.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref();
        source.downcast_ref().or_else(inner)
    }
}

impl From<TlsError> for TlsHandshakeError {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<io::Error> for TlsHandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

impl std::fmt::Display for TlsHandshakeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection during the TLS handshake"),
            Self::Socket(error) => write!(f, "the TLS handshake failed: {error}"),
            Self::Tls(error) => write!(f, "TLS: {error}{}", operator_hint(error.fault())),
        }
    }
}

impl std::error::Error for TlsHandshakeError {}

/// Returns the remedy that is appended to a fault.
const fn operator_hint(fault: TlsFault) -> &'static str {
    use CertificateFault;
    match fault {
        TlsFault::Certificate(CertificateFault::UnknownAuthority | CertificateFault::Signature) => {
            ": no authority of sslrootcert signed the server's certificate; name the file of the right authority"
        }
        TlsFault::Certificate(CertificateFault::Name) => {
            ": use a host name from the certificate's subjectAltName, or sslmode=verify-ca if any server of this \
             authority will do"
        }
        TlsFault::Certificate(CertificateFault::Expired) => {
            ": the server's certificate has expired, or this clock is wrong"
        }
        TlsFault::Certificate(CertificateFault::Constraint) => {
            ": the server uses an authority's own certificate; give it one that the authority signed"
        }
        TlsFault::Alert(_) => {
            ": the server sent this alert; if it requires a client certificate, set sslcert and sslkey"
        }
        _ => "",
    }
}

/// Connects to the servers of a URL.
#[derive(Clone, Debug)]
pub(super) struct TlsConnector {
    roots: TrustRoots,
    credentials: Option<TlsCredentials>,
    verifies_host_name: bool,
}

impl TlsConnector {
    fn client_config(&self, host: &str) -> Result<ClientConfig, TlsError> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let config = ClientConfig::new(TlsClientOptions {
            versions: TlsVersionRange::default(),
            credentials: self.credentials.clone(),
            roots: self.roots.clone(),
            server_name: self.verifies_host_name.then(|| host.to_owned()),
            resumption: None,
            clock: SharedWallClock::from_time(WallTime::from_unix_secs(since.as_secs())),
            key_log: None,
        })?;
        // The extended master secret is not required: nothing here is derived from the session's keys, and poolers lack
        // the extension.
        Ok(config.without_extended_master_secret())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TlsConnector {
    type Stream = EncryptedStream<S>;
    type TlsConnect = TlsHandshake;
    type Error = TlsHandshakeError;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsHandshake, TlsHandshakeError> {
        Ok(TlsHandshake { connector: self.clone(), host: host.to_owned() })
    }
}

/// Makes one connection.
#[derive(Debug)]
pub(super) struct TlsHandshake {
    connector: TlsConnector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsHandshake {
    type Stream = EncryptedStream<S>;
    type Error = TlsHandshakeError;
    type Future = Pin<Box<dyn Future<Output = Result<EncryptedStream<S>, TlsHandshakeError>> + Send>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let config = self.connector.client_config(&self.host)?;
            // Servers of version 17 and later require this ALPN value. Older ones ignore it.
            let engine = TlsClientEngine::to_host(&config, &self.host, &[b"postgresql"])?;
            let mut stream =
                EncryptedStream { socket, engine, read: Vec::new(), consumed: 0, out: Vec::new(), sent: 0 };
            poll_fn(|cx| stream.poll_handshake(cx)).await?;
            Ok(stream)
        })
    }
}

/// A connection with TLS.
#[derive(Debug)]
pub(super) struct EncryptedStream<S> {
    socket: S,
    engine: TlsClientEngine,
    /// The received plaintext, and the octets consumed.
    read: Vec<u8>,
    consumed: usize,
    /// The pending records, and the octets sent.
    out: Vec<u8>,
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> EncryptedStream<S> {
    fn poll_tls_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.engine.write_tls(&mut self.out);
        while self.sent < self.out.len() {
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &self.out[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads once. False at the end.
    fn poll_tls_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, TlsHandshakeError>> {
        let mut octets = [0; PIECE];
        let mut buffer = ReadBuf::new(&mut octets);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Ok(false));
        }
        let result = self.engine.read_tls(buffer.filled());
        self.engine.take_application(&mut self.read);
        if let Err(error) = result {
            // The result is ignored: the alert reaches the server only if it still reads.
            let _told = self.poll_tls_write(cx);
            return Poll::Ready(Err(error.into()));
        }
        Poll::Ready(Ok(true))
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsHandshakeError>> {
        loop {
            ready!(self.poll_tls_write(cx))?;
            if !self.engine.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if !ready!(self.poll_tls_read(cx))? {
                return Poll::Ready(Err(TlsHandshakeError::Closed));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.read.is_empty() {
            // A read can cause a response: a key update (RFC 8446 §4.6.3). The rest is sent later.
            let _sent = this.poll_tls_write(cx)?;
            match ready!(this.poll_tls_read(cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready(Ok(())),
                Err(TlsHandshakeError::Socket(error)) => return Poll::Ready(Err(error)),
                Err(fault) => return Poll::Ready(Err(io::Error::other(fault))),
            }
        }
        let waiting = &this.read[this.consumed..];
        let taken = waiting.len().min(buffer.remaining());
        buffer.put_slice(&waiting[..taken]);
        this.consumed += taken;
        if this.consumed == this.read.len() {
            this.read.clear();
            this.consumed = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_tls_write(cx))?;
        let piece = &octets[..octets.len().min(PIECE)];
        this.engine.write_application(piece).map_err(|e| io::Error::other(TlsHandshakeError::Tls(e)))?;
        let _sent = this.poll_tls_write(cx)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_tls_write(cx))?;
        Pin::new(&mut this.socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_tls_write(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let digest = self.engine.peer_certificate().and_then(channel_binding_hash);
        digest.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// Returns the certificate's hash by the hash function of its signature, or SHA-256 for older ones (RFC 5929 §4.1).
/// For signatures without a hash function of their own (Ed25519, PSS), servers lack this binding, or only the latest
/// versions have it.
fn channel_binding_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    use sha2::Digest;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        // RSA (RFC 8017 appendix A.2.4) with MD5, SHA-1 and SHA-256; ECDSA (RFC 5758 §3.2) with SHA-1 and SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => Some(sha2::Sha256::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => Some(sha2::Sha384::digest(certificate).to_vec()),
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => Some(sha2::Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_mode(mode: &str, root: &str) -> Result<PostgresSslMode, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        TlsSettings::new(TlsParameters { mode: given(mode), root: given(root), ..TlsParameters::default() })
            .map(|w| w.mode)
    }

    #[test]
    fn each_mode_asks_for_what_libpq_does() {
        for (mode, root, want) in [
            ("", "", PostgresSslMode::Prefer),
            ("disable", "", PostgresSslMode::Disable),
            ("disable", "ca.pem", PostgresSslMode::Disable),
            ("require", "", PostgresSslMode::Require),
            ("require", "ca.pem", PostgresSslMode::VerifyCa),
            ("verify-ca", "ca.pem", PostgresSslMode::VerifyCa),
            ("verify-full", "ca.pem", PostgresSslMode::VerifyFull),
        ] {
            assert_eq!(parse_mode(mode, root), Ok(want), "{mode} {root}");
        }
        for (mode, root, says) in [
            ("allow", "", "sslmode=allow"),
            ("", "ca.pem", "verify-full"),
            ("prefer", "ca.pem", "verify-full"),
            ("require", "system", "verify-full"),
            ("verify-ca", "", "sslrootcert=FILE"),
            ("verify-full", "", "sslrootcert=FILE"),
        ] {
            let said = parse_mode(mode, root).unwrap_err();
            assert!(said.contains(says), "{mode} {root}: {said}");
        }
    }
}
