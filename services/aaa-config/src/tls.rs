//! TLS configurations from the server's certificate and keys.

use crate::lists::{self, LoadedCrlInfo};
use crate::model::TlsTable;
use crate::{LoadedAaaConfig, TlsFiles};
use alloc::sync::Arc;
use usher_aaa::CertificateVerdict;
use usher_aaa::service::CertificateChecker;
use usher_crypto::tls::{
    ClientConfig, KeyLog, ServerConfig, SharedWallClock, TlsClientOptions, TlsCredentials, TlsError,
    TlsResumptionConfig, TlsServerOptions, TlsVersionRange, TrustRoots,
};
use usher_crypto::x509::CertificateInfo;
use x509_parser::pem::Pem;

/// TLS configurations by use.
#[derive(Clone, Debug)]
pub struct TlsConfigs {
    /// For peers with certificates: EAP-TLS, RadSec, Diameter. `None`: no authority.
    pub clients: Option<ServerConfig>,
    /// For peers without certificates: PEAP, TTLS.
    pub anonymous: ServerConfig,
    /// For connections that this server opens.
    pub outgoing: Option<ClientConfig>,
    /// Expiry of the server's and the authority's certificates, in seconds since 1970.
    pub ends: Vec<(&'static str, i64)>,
    /// Revocation lists in use.
    pub lists: Vec<LoadedCrlInfo>,
}

impl TlsConfigs {
    /// Checks a chain that was verified at the start of its TLS session, without OCSP. An expired revocation list
    /// rejects a resumed session like a new one.
    #[must_use]
    pub fn recheck_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        let clients = self.clients.as_ref().filter(|_| !self.lists.is_empty());
        match clients.map(|clients| clients.verified_client_path(chain)) {
            Some(Err(error)) => CertificateVerdict::Distrusted(error.fault()),
            _ => CertificateVerdict::Good,
        }
    }
}

impl CertificateChecker for TlsConfigs {
    /// Checks name and revocation lists. OCSP is not used whatever `ocsp` says: it would need a responder.
    fn check_chain(&self, name: Option<&[u8]>, chain: &[Vec<u8>], resumed: bool) -> CertificateVerdict {
        match name.is_none_or(|name| leaf_certificate_has_name(chain, name)) {
            false => CertificateVerdict::NameMismatch,
            true if resumed => self.recheck_chain(chain),
            true => CertificateVerdict::Good,
        }
    }
    fn certificate_user(&self, outer: &[u8], chain: &[Vec<u8>]) -> Option<Vec<u8>> {
        user_of(chain, outer)
    }
}

/// Returns the user that a chain's first certificate names, for an outer identity without a user part (RFC 9190
/// §2.1.8).
#[must_use]
pub fn user_of(chain: &[Vec<u8>], outer: &[u8]) -> Option<Vec<u8>> {
    let said = CertificateInfo::of_der(chain.first()?).ok()?;
    let outer = core::str::from_utf8(outer).ok()?;
    said.user_name(outer.rsplit_once('@').map(|(_, realm)| realm)).map(String::into_bytes)
}

/// True if a chain's first certificate has this name (RFC 5216 §5.2).
#[must_use]
pub fn leaf_certificate_has_name(chain: &[Vec<u8>], name: &[u8]) -> bool {
    let Ok(name) = core::str::from_utf8(name) else { return false };
    chain.first().is_some_and(|leaf| CertificateInfo::of_der(leaf).is_ok_and(|said| said.is_of(name)))
}

/// Builds the TLS configurations. `simulated` is a simulator's key log: it gets the secrets, so that captures can
/// be decrypted. Signatures then have a fixed length, so that results do not depend on random numbers of TLS.
///
/// # Errors
/// A sentence with the error.
pub fn load_tls(
    loaded: &LoadedAaaConfig,
    clock: &SharedWallClock,
    simulated: Option<&KeyLog>,
) -> Result<Option<Arc<TlsConfigs>>, String> {
    let (Some(tls), Some(files)) = (&loaded.file.tls, &loaded.tls) else { return Ok(None) };
    build_tls(tls, files, clock, simulated).map(|made| Some(Arc::new(made))).map_err(|(_, fault)| fault)
}

/// Builds the TLS configurations from the table and its files.
///
/// # Errors
/// The key of the table, and a sentence.
pub(crate) fn build_tls(
    tls: &TlsTable,
    files: &TlsFiles,
    clock: &SharedWallClock,
    simulated: Option<&KeyLog>,
) -> Result<TlsConfigs, (&'static str, String)> {
    let versions = TlsVersionRange { min: tls.min_version, max: tls.max_version };
    let named = |e: TlsError| {
        let (key, path) =
            if e.concerns_private_key() { ("key", &tls.key) } else { ("certificate", &tls.certificate) };
        (key, format!("{}: {e}", path.display()))
    };
    let credentials = TlsCredentials::from_pem(&files.certificate, files.key.0.as_bytes()).map_err(named)?;
    let credentials = if simulated.is_some() { credentials.with_even_signatures() } else { credentials };
    let used = lists::effective_revocation_lists(tls, files).map_err(|fault| ("crl", fault))?;
    let (lists, crls): (Vec<LoadedCrlInfo>, Vec<Vec<u8>>) = used.into_iter().unzip();
    let resumption = (tls.sessions > 0).then_some(TlsResumptionConfig {
        sessions: tls.sessions,
        lifetime: tls.session_lifetime.0,
        ..TlsResumptionConfig::default()
    });
    let server = |client_roots: Option<TrustRoots>| {
        ServerConfig::new(TlsServerOptions {
            versions,
            credentials: credentials.clone(),
            client_roots,
            resumption,
            clock: clock.clone(),
            key_log: simulated.cloned(),
        })
    };
    let ca = tls.ca.as_ref().map(|p| p.display().to_string()).unwrap_or_default();
    let of_ca = |e: TlsError| ("ca", format!("{ca}: {e}"));
    let roots = files.ca.as_ref().map(|ca| TrustRoots::from_pem(ca)).transpose();
    let roots = roots.map_err(of_ca)?.map(TrustRoots::with_signature_cache);
    let roots = roots.map(|roots| roots.with_revocation_lists(crls.iter().map(Vec::as_slice)));
    let roots = roots.transpose().map_err(|e| ("crl", e.to_string()))?;
    let anonymous = server(None).map_err(named)?;
    // The server without authorities is valid, so an error here comes from the authorities.
    let clients = roots.clone().map(|roots| server(Some(roots)).map_err(of_ca)).transpose()?;
    let outgoing = roots
        .map(|roots| {
            ClientConfig::new(TlsClientOptions {
                versions,
                credentials: Some(credentials.clone()),
                roots,
                server_name: None,
                // A resumed session could outlast the server's certificate, so none is stored.
                resumption: None,
                clock: clock.clone(),
                key_log: simulated.cloned(),
            })
            .map_err(of_ca)
        })
        .transpose()?;
    let mut ends: Vec<_> =
        first_certificate_expiry(&files.certificate).map(|t| ("server", t)).into_iter().collect();
    ends.extend(files.ca.as_deref().and_then(first_certificate_expiry).map(|t| ("ca", t)));
    Ok(TlsConfigs { clients, anonymous, outgoing, ends, lists })
}

/// Returns the expiry of the first certificate of a text, in seconds since 1970.
fn first_certificate_expiry(pem: &[u8]) -> Option<i64> {
    let pem = Pem::iter_from_buffer(pem).flatten().next()?;
    let certificate = pem.parse_x509().ok()?;
    Some(certificate.validity().not_after.timestamp())
}
