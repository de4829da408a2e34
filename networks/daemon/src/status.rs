//! Whether a client's certificate still holds: its issuer is asked by OCSP.

use crate::answers::Answers;
use crate::config::Loaded;
use crate::config::model::Ocsp;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use usher_core::WallTime;
use usher_pki::Information;
use usher_pki::ocsp;
use x509_parser::pem::Pem;

/// How long a responder may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether the first certificate of a chain bears this name (RFC 5216 §5.2).
pub(crate) fn bears(chain: &[Vec<u8>], name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    chain.first().is_some_and(|leaf| Information::of_der(leaf).is_ok_and(|said| said.is_of(name)))
}

/// How certificates are checked.
#[derive(Clone, Debug)]
pub(crate) struct CertificateStatus {
    policy: Ocsp,
    /// In place of what certificates say.
    url: Option<String>,
    /// Authorities, DER.
    authorities: Arc<Vec<Vec<u8>>>,
    /// What was said before.
    answers: Arc<Mutex<Answers>>,
}

impl CertificateStatus {
    /// As the configuration says.
    pub(crate) fn of(loaded: &Loaded) -> Self {
        let tls = loaded.file.tls.as_ref();
        let ca = loaded.tls.as_ref().and_then(|files| files.ca.as_deref()).unwrap_or_default();
        let authorities = Pem::iter_from_buffer(ca).flatten().map(|pem| pem.contents).collect();
        Self {
            policy: tls.map_or(Ocsp::Off, |tls| tls.ocsp),
            url: tls.and_then(|tls| tls.ocsp_url.clone()),
            authorities: Arc::new(authorities),
            answers: Arc::default(),
        }
    }

    /// Whether issuers are asked at all.
    pub(crate) fn asks(&self) -> bool {
        self.policy != Ocsp::Off
    }

    /// Whether the first certificate of a chain is to be taken.
    pub(crate) fn good(&self, chain: &[Vec<u8>]) -> bool {
        if self.policy == Ocsp::Off {
            return true;
        }
        match self.status(chain, crate::tls::wall()) {
            Ok(ocsp::Status::Good) => true,
            Ok(ocsp::Status::Revoked) => false,
            Ok(ocsp::Status::Unknown) => self.unsaid("the responder does not know it"),
            Err(why) => self.unsaid(&why),
        }
    }

    /// Nobody said.
    fn unsaid(&self, why: &str) -> bool {
        let taken = self.policy == Ocsp::Soft;
        tracing::warn!(why, taken, "a certificate's status is not known");
        taken
    }

    /// What was said before and is still true, or is said now.
    fn status(&self, chain: &[Vec<u8>], now: WallTime) -> Result<ocsp::Status, String> {
        let leaf = chain.first().ok_or("no certificate")?;
        let answers = || self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = answers().find(now, leaf) {
            return said;
        }
        let answer = self.ask(chain);
        answers().keep(now, leaf, &answer);
        answer.map(|answer| answer.status)
    }

    fn ask(&self, chain: &[Vec<u8>]) -> Result<ocsp::Answer, String> {
        let leaf = chain.first().ok_or("no certificate")?;
        let said = Information::of_der(leaf).map_err(|e| e.to_string())?;
        let issued = |der: &&Vec<u8>| Information::of_der(der).is_ok_and(|i| i.subject == said.issuer);
        let issuer = chain.iter().skip(1).chain(self.authorities.iter()).find(issued);
        let issuer = issuer.ok_or("its issuer's certificate is not there")?;
        let url = self.url.as_ref().or(said.ocsp.first());
        let url = url.ok_or("it does not say where to ask; see ocsp_url")?;
        ocsp::check(leaf, issuer, url, crate::tls::wall(), PATIENCE).map_err(|e| e.to_string())
    }
}
