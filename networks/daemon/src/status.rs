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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};
    use usher_pki::{Authority, InitOptions, KeyKind, Kind, Request};

    /// A certificate and its issuer's, DER.
    fn chain(now: WallTime) -> Vec<Vec<u8>> {
        let folder = std::env::temp_dir().join(format!("usher-status-{}", std::process::id()));
        let key = KeyKind::EcdsaP256;
        let options = InitOptions { name: "Test".into(), key, days: 9, now };
        let mut authority = Authority::init(&folder, &options).expect("an authority");
        let names = Vec::new();
        let request =
            Request { name: "ann".into(), kind: Kind::Client, names, key, days: 9, ocsp: None, crl: None };
        let issued = authority.issue(&request, now).expect("a certificate");
        let read = |path: &std::path::Path| {
            let text = std::fs::read(path).expect("it was made");
            Pem::iter_from_buffer(&text).flatten().map(|pem| pem.contents).next().expect("a certificate")
        };
        let both = vec![read(&issued.certificate), read(&folder.join("ca.crt"))];
        std::fs::remove_dir_all(folder).expect("it is ours");
        both
    }

    #[test]
    fn a_responder_that_says_nothing_is_not_asked_at_every_login() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let asked = Arc::new(AtomicU32::new(0));
        let count = asked.clone();
        // It hangs up on whoever asks, until the test ends.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                drop(stream);
            }
        });
        let now = crate::tls::wall();
        let chain = chain(now);
        let status = CertificateStatus {
            policy: Ocsp::Hard,
            url: Some(url),
            authorities: Arc::default(),
            answers: Arc::default(),
        };
        let asked = || asked.load(Ordering::SeqCst);
        assert!(status.status(&chain, now).is_err());
        let once = asked();
        assert!(once > 0);
        assert!(status.status(&chain, now + usher_core::Duration::from_secs(9)).is_err());
        assert_eq!(asked(), once, "it was asked a moment ago");
        assert!(status.status(&chain, now + usher_core::Duration::from_secs(10)).is_err());
        assert_eq!(asked(), 2 * once);
        assert!(!status.good(&chain), "nobody says that it holds");
    }
}
