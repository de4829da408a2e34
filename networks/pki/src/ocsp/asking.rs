//! OCSP for many certificates. Responses are cached for their validity, and an unresponsive responder delays few
//! callers.

use super::{NONCE_LEN, OcspError, OcspQuery, OcspStatus, OcspStatusWithValidity};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::CertificateInfo;

/// The responders of one certificate that are queried in turn while they do not respond.
const MAX_RESPONDERS: usize = 3;
/// The limit of cached statuses.
const MOST: usize = 4096;
/// The longest time that a response is cached, whatever its nextUpdate.
const LONGEST: Duration = Duration::from_secs(3600);
/// The time that an invalid response, or an unresponsive responder, is cached.
const SILENCE: Duration = Duration::from_secs(10);
/// The limit of own certificates with cached responses.
const OWN: usize = 64;
/// The limit of responders that are remembered as unresponsive.
const RESPONDERS: usize = 256;

/// The kind of reason why a status is unavailable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OcspFailureKind {
    /// The responder does not respond.
    Silent,
    /// The response is not valid.
    Unbelievable,
    /// There is no responder.
    NoResponder,
}

/// Why a status is unavailable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OcspUnavailable {
    /// The kind.
    pub fault: OcspFailureKind,
    /// The description for people.
    pub why: String,
}

impl OcspUnavailable {
    fn new(fault: OcspFailureKind, why: &str) -> Self {
        Self { fault, why: why.to_owned() }
    }
}

/// Makes an unpredictable nonce.
pub type OcspNonceGenerator<'a> = &'a dyn Fn() -> io::Result<[u8; NONCE_LEN]>;

/// A query for the status of a certificate.
#[derive(Clone, Copy)]
pub struct CertificateStatusQuery<'a> {
    /// The verified path, DER: the certificate itself first, then up to a root.
    pub path: &'a [Vec<u8>],
    /// The responder, instead of those that the certificate names.
    pub url: Option<&'a str>,
    /// The timeout per responder.
    pub timeout: std::time::Duration,
    /// The current time.
    pub now: WallTime,
    /// Makes the nonce.
    pub nonce: OcspNonceGenerator<'a>,
    /// Verifies a responder's chain, DER, for any purpose: its certificate first, then its issuers.
    pub appointed: &'a dyn Fn(&[&[u8]]) -> bool,
}

impl CertificateStatusQuery<'_> {
    fn is_responder_authorized(&self, responder: &[u8], above: &[Vec<u8>]) -> bool {
        let chain: Vec<&[u8]> = std::iter::once(responder).chain(above.iter().map(Vec::as_slice)).collect();
        (self.appointed)(&chain)
    }
}

impl std::fmt::Debug for CertificateStatusQuery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("url", &self.url).field("now", &self.now).finish_non_exhaustive()
    }
}

/// An OCSP client with caches of responses and of unresponsive responders. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct OcspClient {
    answers: Arc<Mutex<OcspStatusCache>>,
    silent: Arc<Mutex<UnresponsiveOcspResponders>>,
    own: Arc<Mutex<OwnOcspResponses>>,
}

/// Responses about own certificates by certificate: the time until which each is used, and the response or why there
/// is none.
type OwnOcspResponses = BTreeMap<Vec<u8>, (WallTime, Result<Vec<u8>, OcspUnavailable>)>;

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OcspClient {
    /// Returns the status of a path's first certificate, cached or queried. Blocks during a query.
    ///
    /// # Errors
    /// No valid response. The caller's policy then decides on the certificate.
    pub fn status(&self, asked: &CertificateStatusQuery<'_>) -> Result<OcspStatus, OcspUnavailable> {
        self.query_status(asked).map(|answer| answer.status)
    }

    /// Like [`status`](Self::status), with the validity.
    ///
    /// # Errors
    /// As for [`status`](Self::status).
    pub fn query_status(
        &self,
        asked: &CertificateStatusQuery<'_>,
    ) -> Result<OcspStatusWithValidity, OcspUnavailable> {
        let nobody = |why: &str| OcspUnavailable::new(OcspFailureKind::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        if let Some(said) = lock_mutex(&self.answers).find(asked.now, leaf) {
            return said;
        }
        let issuer = above.first().ok_or_else(|| nobody("the issuer's certificate is missing"))?;
        let said = CertificateInfo::of_der(leaf)
            .map_err(|e| OcspUnavailable::new(OcspFailureKind::Unbelievable, &e.to_string()))?;
        let mut last = Err(nobody("the certificate names no OCSP responder by HTTP; see ocsp_url"));
        for url in responder_urls(asked.url, &said.ocsp) {
            last = self.query_responder(url, asked, (leaf, issuer, above));
            // Another responder may answer if this one does not.
            if !matches!(&last, Err(OcspUnavailable { fault: OcspFailureKind::Silent, .. })) {
                break;
            }
        }
        last
    }

    /// Verifies a stapled response about a path's first certificate (RFC 4806 §3.2), DER. The result is not cached:
    /// the holder chose the response, and a direct query knows better whether the certificate was revoked.
    ///
    /// # Errors
    /// Why the response is not valid.
    pub fn check_stapled_response(
        &self,
        asked: &CertificateStatusQuery<'_>,
        answer: &[u8],
    ) -> Result<OcspStatusWithValidity, String> {
        let [leaf, above @ ..] = asked.path else { return Err("no certificate".to_owned()) };
        let issuer = above.first().ok_or("the issuer's certificate is missing")?;
        let appointed = |responder: &[u8]| asked.is_responder_authorized(responder, above);
        let (now, nonce) = (asked.now, None);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let said = question.read_response(answer).map_err(|e| e.to_string())?;
        match lock_mutex(&self.answers).find(now, leaf) {
            Some(Ok(known)) if known.status == OcspStatus::Revoked => Ok(known),
            _ => Ok(said),
        }
    }

    /// Returns a response about a path's first certificate for stapling, DER, with status good. It is cached for half
    /// of its validity. Blocks during a query.
    ///
    /// # Errors
    /// There is no such response.
    pub fn to_show(&self, asked: &CertificateStatusQuery<'_>) -> Result<Vec<u8>, OcspUnavailable> {
        let nobody = |why: &str| OcspUnavailable::new(OcspFailureKind::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        let (now, issuer) =
            (asked.now, above.first().ok_or_else(|| nobody("the issuer's certificate is missing"))?);
        if let Some((until, answer)) = lock_mutex(&self.own).get(leaf)
            && now < *until
        {
            return answer.clone();
        }
        let said = CertificateInfo::of_der(leaf)
            .map_err(|e| OcspUnavailable::new(OcspFailureKind::Unbelievable, &e.to_string()))?;
        let appointed = |responder: &[u8]| asked.is_responder_authorized(responder, above);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce: None, appointed: &appointed };
        let urls = responder_urls(asked.url, &said.ocsp);
        let url = urls
            .first()
            .ok_or_else(|| nobody("the certificate names no OCSP responder by HTTP; see ocsp_url"))?;
        let (until, answer) = match question.fetch_response(url, asked.timeout) {
            Ok((OcspStatusWithValidity { status: OcspStatus::Good, next_update }, octets)) => {
                let lasts =
                    next_update.map_or(0, |until| until.unix_secs().saturating_sub(now.unix_secs())) / 2;
                (now + Duration::from_secs(lasts).min(LONGEST), Ok(octets))
            }
            Ok(_) => (
                now + SILENCE,
                Err(OcspUnavailable::new(
                    OcspFailureKind::Unbelievable,
                    "the certificate's OCSP status is not good",
                )),
            ),
            Err(error @ OcspError::Silent { .. }) => {
                (now + SILENCE, Err(OcspUnavailable::new(OcspFailureKind::Silent, &error.to_string())))
            }
            Err(error) => {
                (now + SILENCE, Err(OcspUnavailable::new(OcspFailureKind::Unbelievable, &error.to_string())))
            }
        };
        let mut own = lock_mutex(&self.own);
        if own.len() >= OWN {
            own.clear();
        }
        own.insert(leaf.clone(), (until, answer.clone()));
        answer
    }

    /// Queries one responder for the status of a certificate. [`OcspFailureKind::Silent`] if it does not respond.
    fn query_responder(
        &self,
        url: &str,
        asked: &CertificateStatusQuery<'_>,
        (leaf, issuer, above): (&[u8], &[u8], &[Vec<u8>]),
    ) -> Result<OcspStatusWithValidity, OcspUnavailable> {
        let here = |why: String| OcspUnavailable::new(OcspFailureKind::Unbelievable, &why);
        let now = asked.now;
        if !lock_mutex(&self.silent).may_query_responder(now, url) {
            let why = format!("OCSP responder {url}: it did not answer a moment ago");
            return Err(OcspUnavailable::new(OcspFailureKind::Silent, &why));
        }
        let begun = std::time::Instant::now();
        let nonce = Some((asked.nonce)().map_err(|e| here(e.to_string()))?);
        let appointed = |responder: &[u8]| asked.is_responder_authorized(responder, above);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let answer = question.send_query(url, asked.timeout);
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = now + Duration::from_nanos(waited);
        if let Err(error @ OcspError::Silent { .. }) = answer {
            lock_mutex(&self.silent).mark_responder_silent(now, url);
            return Err(OcspUnavailable::new(OcspFailureKind::Silent, &error.to_string()));
        }
        lock_mutex(&self.silent).clear_responder_silence(url);
        let answer = answer.map_err(|e| here(e.to_string()));
        lock_mutex(&self.answers).cache_ocsp_response(now, leaf, &answer);
        answer
    }
}

/// Returns the responders to query, in order: the configured one, or the certificate's HTTP URLs (RFC 6960 §A.1).
/// Their number is limited, since a login waits for each unresponsive one.
fn responder_urls<'a>(configured: Option<&'a str>, named: &'a [String]) -> Vec<&'a str> {
    let by_http = |url: &&str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    match configured {
        Some(url) => vec![url],
        None => named.iter().map(String::as_str).filter(by_http).take(MAX_RESPONDERS).collect(),
    }
}

/// A status, or why there is none.
type OcspStatusResult = Result<OcspStatus, OcspUnavailable>;

/// Responses by certificate, DER.
#[derive(Debug, Default)]
struct OcspStatusCache {
    responses: BTreeMap<Arc<[u8]>, (WallTime, OcspStatusResult)>,
    /// The order of expiry.
    order: BTreeSet<(WallTime, Arc<[u8]>)>,
}

impl OcspStatusCache {
    /// Returns the cached status of a certificate.
    fn find(
        &self,
        now: WallTime,
        certificate: &[u8],
    ) -> Option<Result<OcspStatusWithValidity, OcspUnavailable>> {
        let (until, said) = self.responses.get(certificate)?;
        let next_update = Some(*until);
        // The second condition prevents that a clock set back prolongs an entry. One more second allows for
        // whole-second clocks.
        let holds = now < *until && *until <= now + LONGEST + Duration::from_secs(1);
        holds.then(|| said.clone().map(|status| OcspStatusWithValidity { status, next_update }))
    }

    /// Caches a response until its nextUpdate, for an hour at most. Without nextUpdate it is not cached (RFC 6960
    /// §4.2.2.1: newer information is always available).
    fn cache_ocsp_response(
        &mut self,
        now: WallTime,
        certificate: &[u8],
        answer: &Result<OcspStatusWithValidity, OcspUnavailable>,
    ) {
        let (until, said) = match answer {
            Ok(OcspStatusWithValidity { status, next_update: Some(until) }) => {
                ((*until).min(now + LONGEST), Ok(*status))
            }
            Ok(_) => return,
            Err(why) => (now + SILENCE, Err(why.clone())),
        };
        let certificate: Arc<[u8]> = certificate.into();
        if let Some((before, _)) = self.responses.insert(certificate.clone(), (until, said)) {
            self.order.remove(&(before, certificate.clone()));
        }
        self.order.insert((until, certificate));
        while self.responses.len() > MOST {
            let Some((_, first)) = self.order.pop_first() else { break };
            self.responses.remove(&first);
        }
    }
}

/// The unresponsive responders. While a responder is unresponsive, only one caller at a time waits for it to see if
/// it is back.
#[derive(Debug, Default)]
struct UnresponsiveOcspResponders(BTreeMap<String, WallTime>);

impl UnresponsiveOcspResponders {
    /// True if the caller may query a responder. After its time of silence one caller may. The others may not until
    /// that caller has a response, or the time has passed again.
    fn may_query_responder(&mut self, now: WallTime, url: &str) -> bool {
        match self.0.get_mut(url) {
            // The second condition prevents that a clock set back prolongs the silence. Its margin covers whole-second
            // clocks, and differences between threads.
            Some(until) if now < *until && *until <= now + SILENCE + SILENCE => false,
            Some(until) => {
                *until = now + SILENCE;
                true
            }
            None => true,
        }
    }

    /// Records that a responder did not respond.
    fn mark_responder_silent(&mut self, now: WallTime, url: &str) {
        if self.0.len() >= RESPONDERS && !self.0.contains_key(url) {
            let first = self.0.iter().min_by_key(|(_, until)| **until).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        self.0.insert(url.to_owned(), now + SILENCE);
    }

    /// Records that a responder responded.
    fn clear_responder_silence(&mut self, url: &str) {
        self.0.remove(url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_seconds(seconds: u64) -> WallTime {
        WallTime::from_unix_secs(1_800_000_000 + seconds)
    }

    #[test]
    fn an_answer_is_kept_until_it_says_and_for_an_hour_at_most() {
        let mut answers = OcspStatusCache::default();
        let until = |seconds| {
            Ok(OcspStatusWithValidity { status: OcspStatus::Good, next_update: Some(at_seconds(seconds)) })
        };
        answers.cache_ocsp_response(at_seconds(0), b"short", &until(60));
        answers.cache_ocsp_response(at_seconds(0), b"long", &until(86_400));
        answers.cache_ocsp_response(
            at_seconds(0),
            b"never",
            &Ok(OcspStatusWithValidity { status: OcspStatus::Good, next_update: None }),
        );
        answers.cache_ocsp_response(
            at_seconds(0),
            b"silent",
            &Err(OcspUnavailable::new(OcspFailureKind::Unbelievable, "away")),
        );
        let known = |answers: &OcspStatusCache, seconds| {
            let there = |c: &&[u8]| answers.find(at_seconds(seconds), c).is_some();
            [&b"short"[..], b"long", b"never", b"silent"].iter().map(there).collect::<Vec<_>>()
        };
        assert_eq!(known(&answers, 9), [true, true, false, true]);
        assert_eq!(known(&answers, 59), [true, true, false, false]);
        assert_eq!(known(&answers, 60), [false, true, false, false]);
        assert_eq!(known(&answers, 3600), [false; 4]);
        answers.cache_ocsp_response(
            at_seconds(10),
            b"short",
            &Ok(OcspStatusWithValidity { status: OcspStatus::Revoked, next_update: Some(at_seconds(70)) }),
        );
        let next_update = Some(at_seconds(70));
        assert_eq!(
            answers.find(at_seconds(11), b"short"),
            Some(Ok(OcspStatusWithValidity { status: OcspStatus::Revoked, next_update }))
        );
        assert_eq!(answers.find(WallTime::from_unix_secs(5), b"short"), None, "the clock was set back");
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut answers = OcspStatusCache::default();
        for n in 0..3 * MOST as u64 {
            let answer = Ok(OcspStatusWithValidity {
                status: OcspStatus::Good,
                next_update: Some(at_seconds(100 + n % 7)),
            });
            answers.cache_ocsp_response(at_seconds(0), &(n % 5000).to_be_bytes(), &answer);
        }
        assert_eq!((answers.responses.len(), answers.order.len()), (MOST, MOST));
    }

    #[test]
    fn one_asks_whether_a_silent_responder_is_back() {
        let mut silent = UnresponsiveOcspResponders::default();
        assert!(
            silent.may_query_responder(at_seconds(0), "a") && silent.may_query_responder(at_seconds(0), "a"),
            "nobody knows yet"
        );
        silent.mark_responder_silent(at_seconds(5), "a");
        assert!(
            !silent.may_query_responder(at_seconds(14), "a")
                && silent.may_query_responder(at_seconds(14), "b")
        );
        assert!(silent.may_query_responder(at_seconds(15), "a"), "one asks");
        assert!(
            !silent.may_query_responder(at_seconds(15), "a")
                && !silent.may_query_responder(at_seconds(24), "a"),
            "the others know what is known"
        );
        assert!(silent.may_query_responder(at_seconds(25), "a"), "the one who asked never told");
        silent.clear_responder_silence("a");
        assert!(
            silent.may_query_responder(at_seconds(25), "a")
                && silent.may_query_responder(at_seconds(25), "a")
        );
        silent.mark_responder_silent(at_seconds(125), "a");
        assert!(!silent.may_query_responder(at_seconds(124), "a"));
        assert!(silent.may_query_responder(at_seconds(100), "a"), "the clock was set back");
        for n in 0..2 * RESPONDERS {
            silent.mark_responder_silent(at_seconds(130), &n.to_string());
        }
        assert_eq!(silent.0.len(), RESPONDERS);
    }

    /// RFC 6960 §A.1: by HTTP. A certificate may name several responders, and locations of other kinds.
    #[test]
    fn requests_go_to_http_responders_or_the_configured_one() {
        let named = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let all = named(&["ldap://a", "HTTP://b", "https://c", "http://d", "http://e", "http://f", "http:"]);
        assert_eq!(responder_urls(None, &all), ["HTTP://b", "http://d", "http://e"]);
        assert_eq!(responder_urls(Some("https://own"), &all), ["https://own"]);
    }
}
