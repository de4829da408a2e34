//! Whether a client's certificate still holds: its issuer is asked by OCSP.

use crate::clock::wall_time;
use crate::installation;
use std::sync::Arc;
use std::time::Duration;
use usher_aaa::{CertificateVerdict, StatusFault};
use usher_aaa_config::LoadedConfig;
use usher_aaa_config::model::OcspPolicy;
use usher_aaa_config::tls::TlsConfigs;
use usher_core::WallTime;
use usher_crypto::tls::ServerConfig;
use usher_pki::ocsp::{OcspClient, OcspFailure, OcspStatus, OcspUnavailable, StatusQuery};

/// How long a responder may take.
const RESPONDER_TIMEOUT: Duration = Duration::from_secs(5);

/// How certificates are checked.
#[derive(Clone, Debug)]
pub(crate) struct CertificateStatus {
    policy: OcspPolicy,
    /// In place of what certificates say.
    url: Option<String>,
    /// Whom clients' certificates end below, and what is revoked.
    tls: Option<Arc<TlsConfigs>>,
    /// Whether users' certificates are asked where their issuers' lists are.
    learns: bool,
    timeout: Duration,
    /// What was said before, and who said nothing.
    ocsp_client: OcspClient,
}

impl CertificateStatus {
    /// As the configuration says.
    pub(crate) fn from_config(loaded: &LoadedConfig, tls: Option<&Arc<TlsConfigs>>) -> Self {
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

    /// With what was said to another before: of a configuration that differs from this in its lists alone, which take
    /// nobody back who was not.
    pub(crate) fn with_answers_of(self, before: &Self) -> Self {
        Self { ocsp_client: before.ocsp_client.clone(), ..self }
    }

    fn server_config(&self) -> Option<&ServerConfig> {
        self.tls.as_ref().and_then(|tls| tls.clients.as_ref())
    }

    /// Whether issuers are asked at all.
    pub(crate) fn uses_ocsp(&self) -> bool {
        self.policy != OcspPolicy::Off
    }

    /// Whether a chain that was verified when its TLS session began is to be taken now, without asking its issuer.
    pub(crate) fn recheck_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        self.tls.as_ref().map_or(CertificateVerdict::Good, |tls| tls.recheck_chain(chain))
    }

    /// Whether users' certificates are asked where their issuers' lists are.
    pub(crate) fn learns_lists(&self) -> bool {
        self.learns
    }

    /// Whether the first certificate of a chain is to be taken.
    pub(crate) fn check_chain(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        if self.policy == OcspPolicy::Off {
            return CertificateVerdict::Good;
        }
        // Beside its certificate a peer may show any others: its issuer is the one of the path that is verified.
        let Some(clients) = self.server_config() else {
            return self.unknown_verdict(StatusFault::NoResponder, "no authority is trusted");
        };
        let path = match clients.client_path(chain) {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(%error, "a certificate is not trusted any more");
                return CertificateVerdict::Distrusted(error.fault());
            }
        };
        match self.query_status(clients, &path, wall_time()) {
            Ok(OcspStatus::Good) => CertificateVerdict::Good,
            Ok(OcspStatus::Revoked) => CertificateVerdict::Status(StatusFault::Revoked),
            Ok(OcspStatus::Unknown) => {
                self.unknown_verdict(StatusFault::Unknown, "the responder does not know it")
            }
            Err(OcspUnavailable { fault, why }) => self.unknown_verdict(
                match fault {
                    OcspFailure::Silent => StatusFault::Silent,
                    OcspFailure::Unbelievable => StatusFault::Unbelievable,
                    OcspFailure::NoResponder => StatusFault::NoResponder,
                },
                &why,
            ),
        }
    }

    /// Nobody said.
    fn unknown_verdict(&self, fault: StatusFault, why: &str) -> CertificateVerdict {
        let taken = self.policy == OcspPolicy::Soft;
        tracing::warn!(why, taken, "a certificate's status is not known");
        if taken { CertificateVerdict::Good } else { CertificateVerdict::Status(fault) }
    }

    /// What was said before of a path's first certificate and is still true, or is said now.
    fn query_status(
        &self,
        clients: &ServerConfig,
        path: &[Vec<u8>],
        now: WallTime,
    ) -> Result<OcspStatus, OcspUnavailable> {
        self.ocsp_client.status(&StatusQuery {
            path,
            url: self.url.as_deref(),
            timeout: self.timeout,
            now,
            nonce: &installation::random_octets,
            appointed: &|chain| clients.path_for_any_purpose(chain).is_ok(),
        })
    }
}

#[cfg(test)]
mod tests;
