//! Whether a client's certificate still holds: its issuer is asked by OCSP.

use crate::answers::{Answers, Silent, Unsaid};
use crate::clock::wall;
use crate::installation;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_aaa::{CertificateVerdict, StatusFault};
use usher_aaa_config::Loaded;
use usher_aaa_config::model::Ocsp;
use usher_aaa_config::tls::Tls;
use usher_core::WallTime;
use usher_crypto::tls::ServerConfig;
use usher_crypto::x509::Information;
use usher_pki::ocsp::{OcspError, Question, Status};

/// How long a responder may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Responders of one certificate that are asked, one after the other, while they say nothing.
const RESPONDERS: usize = 3;

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
    /// What was said before.
    answers: Arc<Mutex<Answers>>,
    /// Who said nothing.
    silent: Arc<Mutex<Silent>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            answers: Arc::default(),
            silent: Arc::default(),
        }
    }

    /// With what was said to another before: of a configuration that differs from this in its lists alone, which take
    /// nobody back who was not.
    pub(crate) fn remembering(self, before: &Self) -> Self {
        Self { answers: before.answers.clone(), silent: before.silent.clone(), ..self }
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
            return self.unsaid(&Unsaid::new(StatusFault::NoResponder, "no authority is trusted"));
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
            Ok(Status::Unknown) => {
                self.unsaid(&Unsaid::new(StatusFault::Unknown, "the responder does not know it"))
            }
            Err(unsaid) => self.unsaid(&unsaid),
        }
    }

    /// Nobody said.
    fn unsaid(&self, unsaid: &Unsaid) -> CertificateVerdict {
        let taken = self.policy == Ocsp::Soft;
        tracing::warn!(why = unsaid.why, taken, "a certificate's status is not known");
        if taken { CertificateVerdict::Good } else { CertificateVerdict::Status(unsaid.fault) }
    }

    /// What was said before of a path's first certificate and is still true, or is said now.
    fn status(&self, clients: &ServerConfig, path: &[Vec<u8>], now: WallTime) -> Result<Status, Unsaid> {
        let nobody = |why: &str| Unsaid::new(StatusFault::NoResponder, why);
        let [leaf, above @ ..] = path else { return Err(nobody("no certificate")) };
        if let Some(said) = lock(&self.answers).find(now, leaf) {
            return said;
        }
        let issuer = above.first().ok_or_else(|| nobody("it stands under no authority"))?;
        let said =
            Information::of_der(leaf).map_err(|e| Unsaid::new(StatusFault::Unbelievable, &e.to_string()))?;
        let mut last = Err(nobody("it does not say where to ask by HTTP; see ocsp_url"));
        for url in responders(self.url.as_deref(), &said.ocsp) {
            last = self.ask(url, clients, (leaf, issuer, above), now);
            // Another may know what this one did not say.
            if !matches!(&last, Err(Unsaid { fault: StatusFault::Silent, .. })) {
                break;
            }
        }
        last
    }

    /// What one responder says of a certificate, its issuer and the path from there; [`StatusFault::Silent`] where it says
    /// nothing.
    fn ask(
        &self,
        url: &str,
        clients: &ServerConfig,
        (leaf, issuer, above): (&[u8], &[u8], &[Vec<u8>]),
        now: WallTime,
    ) -> Result<Status, Unsaid> {
        let here = |why: String| Unsaid::new(StatusFault::Unbelievable, &why);
        if !lock(&self.silent).may_ask(now, url) {
            let why = format!("OCSP responder {url}: it said nothing a moment ago");
            return Err(Unsaid::new(StatusFault::Silent, &why));
        }
        let begun = Instant::now();
        let nonce = installation::random().map_err(|e| here(e.to_string()))?;
        let appointed = |responder: &[u8]| {
            let chain: Vec<&[u8]> =
                std::iter::once(responder).chain(above.iter().map(Vec::as_slice)).collect();
            clients.path_for_any_purpose(&chain).is_ok()
        };
        let question = Question { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let answer = question.ask(url, self.patience);
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = now + usher_core::Duration::from_nanos(waited);
        if let Err(error @ OcspError::Silent { .. }) = answer {
            lock(&self.silent).silent(now, url);
            return Err(Unsaid::new(StatusFault::Silent, &error.to_string()));
        }
        lock(&self.silent).heard(url);
        let answer = answer.map_err(|e| here(e.to_string()));
        lock(&self.answers).keep(now, leaf, &answer);
        answer.map(|answer| answer.status)
    }
}

/// Who is asked, in order: whom the configuration names, or those that the certificate names and that are asked by HTTP
/// (RFC 6960 §A.1). A certificate may name many, and a login waits for each that is silent.
fn responders<'a>(configured: Option<&'a str>, named: &'a [String]) -> Vec<&'a str> {
    let by_http = |url: &&str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    match configured {
        Some(url) => vec![url],
        None => named.iter().map(String::as_str).filter(by_http).take(RESPONDERS).collect(),
    }
}

#[cfg(test)]
mod tests;
