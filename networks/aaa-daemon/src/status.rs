//! Checks of client certificates by OCSP.

use crate::installation;
use std::sync::Arc;
use std::time::Duration;
use usher_aaa::{CertificateVerdict, OcspStatusFault};
use usher_aaa_config::LoadedAaaConfig;
use usher_aaa_config::model::OcspPolicy;
use usher_aaa_config::tls::TlsConfigs;
use usher_core::WallTime;
use usher_crypto::tls::ServerConfig;
use usher_pki::ocsp::{CertificateStatusQuery, OcspClient, OcspFailureKind, OcspStatus, OcspUnavailable};
use usher_service::setup::wall_time;

/// Timeout of a responder.
const RESPONDER_TIMEOUT: Duration = Duration::from_secs(5);

/// The configuration of certificate checks.
#[derive(Clone, Debug)]
pub(crate) struct CertificateCheckConfig {
    policy: OcspPolicy,
    /// Responder in place of the certificates' own.
    url: Option<String>,
    /// Authorities of client certificates, and revocation lists.
    tls: Option<Arc<TlsConfigs>>,
    /// True if distribution points are learnt from users' certificates.
    learns: bool,
    timeout: Duration,
    /// Cached responses and failures.
    ocsp_client: OcspClient,
}

impl CertificateCheckConfig {
    /// Creates it from a configuration.
    pub(crate) fn from_config(loaded: &LoadedAaaConfig, tls: Option<&Arc<TlsConfigs>>) -> Self {
        let file = loaded.file.tls.as_ref();
        Self {
            policy: file.map_or(OcspPolicy::Off, |tls| tls.ocsp),
            url: file.and_then(|tls| tls.ocsp_url.clone()),
            tls: tls.cloned(),
            learns: file.is_some_and(|tls| !tls.crl_from_users.is_empty()),
            timeout: RESPONDER_TIMEOUT,
            ocsp_client: OcspClient::default(),
        }
    }

    /// Keeps the cached responses of a configuration that differs only in its lists. Such lists never restore a
    /// revoked certificate.
    pub(crate) fn with_ocsp_cache_of(self, before: &Self) -> Self {
        Self { ocsp_client: before.ocsp_client.clone(), ..self }
    }

    fn server_config(&self) -> Option<&ServerConfig> {
        self.tls.as_ref().and_then(|tls| tls.clients.as_ref())
    }

    /// True if OCSP is used.
    pub(crate) fn uses_ocsp(&self) -> bool {
        self.policy != OcspPolicy::Off
    }

    /// Checks a chain that was verified at the start of its TLS session, without OCSP.
    pub(crate) fn recheck_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        self.tls.as_ref().map_or(CertificateVerdict::Good, |tls| tls.recheck_chain(chain))
    }

    /// True if distribution points are learnt from users' certificates.
    pub(crate) fn learns_distribution_points(&self) -> bool {
        self.learns
    }

    /// Checks the first certificate of a chain.
    pub(crate) fn check_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        if self.policy == OcspPolicy::Off {
            return CertificateVerdict::Good;
        }
        // Take the issuer from the verified path, because a peer may also send unrelated certificates.
        let Some(clients) = self.server_config() else {
            return self
                .verdict_without_status(OcspStatusFault::NoResponder, "the server trusts no authority");
        };
        let path = match clients.verified_client_path(chain) {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(%error, "a user's certificate is no longer trusted");
                return CertificateVerdict::Distrusted(error.fault());
            }
        };
        match self.query_status(clients, &path, wall_time()) {
            Ok(OcspStatus::Good) => CertificateVerdict::Good,
            Ok(OcspStatus::Revoked) => CertificateVerdict::Status(OcspStatusFault::Revoked),
            Ok(OcspStatus::Unknown) => self.verdict_without_status(
                OcspStatusFault::Unknown,
                "the OCSP responder does not know the certificate",
            ),
            Err(OcspUnavailable { fault, why }) => self.verdict_without_status(
                match fault {
                    OcspFailureKind::Silent => OcspStatusFault::Silent,
                    OcspFailureKind::Unbelievable => OcspStatusFault::Unbelievable,
                    OcspFailureKind::NoResponder => OcspStatusFault::NoResponder,
                },
                &why,
            ),
        }
    }

    /// Returns the verdict without an OCSP status.
    fn verdict_without_status(&self, fault: OcspStatusFault, why: &str) -> CertificateVerdict {
        let taken = self.policy == OcspPolicy::Soft;
        tracing::warn!(why, taken, "the OCSP status of a user's certificate is unknown");
        if taken { CertificateVerdict::Good } else { CertificateVerdict::Status(fault) }
    }

    /// Returns the status of a path's first certificate: a cached response that is still valid, or a new one.
    fn query_status(
        &self,
        clients: &ServerConfig,
        path: &[Vec<u8>],
        now: WallTime,
    ) -> Result<OcspStatus, OcspUnavailable> {
        self.ocsp_client.status(&CertificateStatusQuery {
            path,
            url: self.url.as_deref(),
            timeout: self.timeout,
            now,
            nonce: &installation::random_octets,
            appointed: &|chain| clients.verified_path_for_any_purpose(chain).is_ok(),
        })
    }
}

#[cfg(test)]
mod tests;
