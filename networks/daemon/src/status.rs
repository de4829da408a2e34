//! Whether a client's certificate still holds: its issuer is asked by OCSP.

use crate::clock::wall;
use crate::installation;
use std::sync::Arc;
use std::time::Duration;
use usher_aaa::{CertificateVerdict, StatusFault};
use usher_aaa_config::Loaded;
use usher_aaa_config::model::Ocsp;
use usher_aaa_config::tls::Tls;
use usher_core::WallTime;
use usher_crypto::tls::ServerConfig;
use usher_pki::ocsp::{Asked, Asking, Fault, Status, Unsaid};

/// How long a responder may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How certificates are checked.
#[derive(Clone, Debug)]
pub(crate) struct CertificateStatus {
    policy: Ocsp,
    /// In place of what certificates say.
    url: Option<String>,
    /// Whom clients' certificates end below, and what is revoked.
    tls: Option<Arc<Tls>>,
    /// Whether users' certificates are asked where their issuers' lists are.
    learns: bool,
    patience: Duration,
    /// What was said before, and who said nothing.
    asking: Asking,
}

impl CertificateStatus {
    /// As the configuration says.
    pub(crate) fn of(loaded: &Loaded, tls: Option<&Arc<Tls>>) -> Self {
        let file = loaded.file.tls.as_ref();
        Self {
            policy: file.map_or(Ocsp::Off, |tls| tls.ocsp),
            url: file.and_then(|tls| tls.ocsp_url.clone()),
            tls: tls.cloned(),
            learns: file.is_some_and(|tls| !tls.crl_from_users.is_empty()),
            patience: PATIENCE,
            asking: Asking::default(),
        }
    }

    /// With what was said to another before: of a configuration that differs from this in its lists alone, which take
    /// nobody back who was not.
    pub(crate) fn remembering(self, before: &Self) -> Self {
        Self { asking: before.asking.clone(), ..self }
    }

    fn clients(&self) -> Option<&ServerConfig> {
        self.tls.as_ref().and_then(|tls| tls.clients.as_ref())
    }

    /// Whether issuers are asked at all.
    pub(crate) fn asks(&self) -> bool {
        self.policy != Ocsp::Off
    }

    /// Whether a chain that was verified when its TLS session began is to be taken now, without asking its issuer.
    pub(crate) fn trusts(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        self.tls.as_ref().map_or(CertificateVerdict::Good, |tls| tls.trusts(chain))
    }

    /// Whether users' certificates are asked where their issuers' lists are.
    pub(crate) fn learns(&self) -> bool {
        self.learns
    }

    /// Whether the first certificate of a chain is to be taken.
    pub(crate) fn judge(&self, chain: &[Vec<u8>]) -> CertificateVerdict {
        if self.policy == Ocsp::Off {
            return CertificateVerdict::Good;
        }
        // Beside its certificate a peer may show any others: its issuer is the one of the path that is verified.
        let Some(clients) = self.clients() else {
            return self.unsaid(StatusFault::NoResponder, "no authority is trusted");
        };
        let path = match clients.client_path(chain) {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(%error, "a certificate is not trusted any more");
                return CertificateVerdict::Distrusted(error.fault());
            }
        };
        match self.status(clients, &path, wall()) {
            Ok(Status::Good) => CertificateVerdict::Good,
            Ok(Status::Revoked) => CertificateVerdict::Status(StatusFault::Revoked),
            Ok(Status::Unknown) => self.unsaid(StatusFault::Unknown, "the responder does not know it"),
            Err(Unsaid { fault, why }) => self.unsaid(
                match fault {
                    Fault::Silent => StatusFault::Silent,
                    Fault::Unbelievable => StatusFault::Unbelievable,
                    Fault::NoResponder => StatusFault::NoResponder,
                },
                &why,
            ),
        }
    }

    /// Nobody said.
    fn unsaid(&self, fault: StatusFault, why: &str) -> CertificateVerdict {
        let taken = self.policy == Ocsp::Soft;
        tracing::warn!(why, taken, "a certificate's status is not known");
        if taken { CertificateVerdict::Good } else { CertificateVerdict::Status(fault) }
    }

    /// What was said before of a path's first certificate and is still true, or is said now.
    fn status(&self, clients: &ServerConfig, path: &[Vec<u8>], now: WallTime) -> Result<Status, Unsaid> {
        self.asking.status(&Asked {
            path,
            url: self.url.as_deref(),
            patience: self.patience,
            now,
            nonce: &installation::random,
            appointed: &|chain| clients.path_for_any_purpose(chain).is_ok(),
        })
    }
}

#[cfg(test)]
mod tests;
