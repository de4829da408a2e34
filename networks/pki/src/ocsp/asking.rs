//! Asking for many: what issuers said of certificates is kept for as long as they say, and nobody waits for who said nothing.

use super::{NONCE_LEN, OcspError, OcspQuery, OcspStatus, StatusResponse};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::CertificateInfo;

/// Responders of one certificate that are asked, one after the other, while they say nothing.
const MAX_RESPONDERS: usize = 3;
/// Certificates whose status is kept.
const MOST: usize = 4096;
/// The longest time for which an answer is kept, whatever it says itself.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long it is kept that nothing was said that can be believed, and that a responder said nothing at all.
const SILENCE: Duration = Duration::from_secs(10);
/// Certificates of one's own about which answers are kept.
const OWN: usize = 64;
/// Responders of which silence is remembered.
const RESPONDERS: usize = 256;

/// Of which kind it is that nobody says how a certificate stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OcspFailure {
    /// The responder does not answer.
    Silent,
    /// What the responder says cannot be believed.
    Unbelievable,
    /// Nobody knows whom to ask.
    NoResponder,
}

/// Why nobody says how a certificate stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OcspUnavailable {
    /// Of its kind.
    pub fault: OcspFailure,
    /// For people.
    pub why: String,
}

impl OcspUnavailable {
    fn new(fault: OcspFailure, why: &str) -> Self {
        Self { fault, why: why.to_owned() }
    }
}

/// Makes what nobody can guess.
pub type NonceSource<'a> = &'a dyn Fn() -> io::Result<[u8; NONCE_LEN]>;

/// One certificate that is asked about.
#[derive(Clone, Copy)]
pub struct StatusQuery<'a> {
    /// Its path, DER, as it was verified: itself first, up to a root.
    pub path: &'a [Vec<u8>],
    /// Who is asked, in place of whom it names.
    pub url: Option<&'a str>,
    /// How long a responder may take.
    pub timeout: std::time::Duration,
    /// Now.
    pub now: WallTime,
    /// Makes the question's nonce.
    pub nonce: NonceSource<'a>,
    /// Whether a chain, DER, of a responder's certificate and those from its issuer up is valid for whatever it is for.
    pub appointed: &'a dyn Fn(&[&[u8]]) -> bool,
}

impl StatusQuery<'_> {
    fn appoints_responder(&self, responder: &[u8], above: &[Vec<u8>]) -> bool {
        let chain: Vec<&[u8]> = std::iter::once(responder).chain(above.iter().map(Vec::as_slice)).collect();
        (self.appointed)(&chain)
    }
}

impl std::fmt::Debug for StatusQuery<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("url", &self.url).field("now", &self.now).finish_non_exhaustive()
    }
}

/// Asks, and remembers what was said and who said nothing. Clones remember the same.
#[derive(Clone, Debug, Default)]
pub struct OcspClient {
    answers: Arc<Mutex<ResponseCache>>,
    silent: Arc<Mutex<SilentResponders>>,
    own: Arc<Mutex<OwnResponses>>,
}

/// Answers about one's own certificates, by those, with until when each is shown, or why there is none.
type OwnResponses = BTreeMap<Vec<u8>, (WallTime, Result<Vec<u8>, OcspUnavailable>)>;

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OcspClient {
    /// What was said before of a path's first certificate and is still true, or is said now. Blocks while a responder is asked.
    ///
    /// # Errors
    /// Nobody says anything that can be believed; whether the certificate is then taken is the caller's policy.
    pub fn status(&self, asked: &StatusQuery<'_>) -> Result<OcspStatus, OcspUnavailable> {
        self.query_status(asked).map(|answer| answer.status)
    }

    /// The same, with until when it can be relied on.
    ///
    /// # Errors
    /// The same.
    pub fn query_status(&self, asked: &StatusQuery<'_>) -> Result<StatusResponse, OcspUnavailable> {
        let nobody = |why: &str| OcspUnavailable::new(OcspFailure::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        if let Some(said) = lock_mutex(&self.answers).find(asked.now, leaf) {
            return said;
        }
        let issuer = above.first().ok_or_else(|| nobody("it stands under no authority"))?;
        let said = CertificateInfo::of_der(leaf)
            .map_err(|e| OcspUnavailable::new(OcspFailure::Unbelievable, &e.to_string()))?;
        let mut last = Err(nobody("it does not say where to ask by HTTP; see ocsp_url"));
        for url in responder_urls(asked.url, &said.ocsp) {
            last = self.query_responder(url, asked, (leaf, issuer, above));
            // Another may know what this one did not say.
            if !matches!(&last, Err(OcspUnavailable { fault: OcspFailure::Silent, .. })) {
                break;
            }
        }
        last
    }

    /// What an answer says of a path's first certificate that its holder shows (RFC 4806 §3.2), DER. It is not kept, since the holder has
    /// chosen it; that the certificate was revoked is known better by who was asked.
    ///
    /// # Errors
    /// Why it cannot be believed.
    pub fn check_stapled_response(
        &self,
        asked: &StatusQuery<'_>,
        answer: &[u8],
    ) -> Result<StatusResponse, String> {
        let [leaf, above @ ..] = asked.path else { return Err("no certificate".to_owned()) };
        let issuer = above.first().ok_or("it stands under no authority")?;
        let appointed = |responder: &[u8]| asked.appoints_responder(responder, above);
        let (now, nonce) = (asked.now, None);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let said = question.read_response(answer).map_err(|e| e.to_string())?;
        match lock_mutex(&self.answers).find(now, leaf) {
            Some(Ok(known)) if known.status == OcspStatus::Revoked => Ok(known),
            _ => Ok(said),
        }
    }

    /// An answer about a path's first certificate, DER, to be shown to others: one that says that it holds. It is kept until half of its
    /// time is over. Blocks while a responder is asked.
    ///
    /// # Errors
    /// There is none to show.
    pub fn to_show(&self, asked: &StatusQuery<'_>) -> Result<Vec<u8>, OcspUnavailable> {
        let nobody = |why: &str| OcspUnavailable::new(OcspFailure::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        let (now, issuer) = (asked.now, above.first().ok_or_else(|| nobody("it stands under no authority"))?);
        if let Some((until, answer)) = lock_mutex(&self.own).get(leaf)
            && now < *until
        {
            return answer.clone();
        }
        let said = CertificateInfo::of_der(leaf)
            .map_err(|e| OcspUnavailable::new(OcspFailure::Unbelievable, &e.to_string()))?;
        let appointed = |responder: &[u8]| asked.appoints_responder(responder, above);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce: None, appointed: &appointed };
        let urls = responder_urls(asked.url, &said.ocsp);
        let url = urls.first().ok_or_else(|| nobody("it does not say where to ask by HTTP; see ocsp_url"))?;
        let (until, answer) = match question.fetch_response(url, asked.timeout) {
            Ok((StatusResponse { status: OcspStatus::Good, next_update }, octets)) => {
                let lasts =
                    next_update.map_or(0, |until| until.unix_secs().saturating_sub(now.unix_secs())) / 2;
                (now + Duration::from_secs(lasts).min(LONGEST), Ok(octets))
            }
            Ok(_) => (
                now + SILENCE,
                Err(OcspUnavailable::new(OcspFailure::Unbelievable, "it does not say that it holds")),
            ),
            Err(error @ OcspError::Silent { .. }) => {
                (now + SILENCE, Err(OcspUnavailable::new(OcspFailure::Silent, &error.to_string())))
            }
            Err(error) => {
                (now + SILENCE, Err(OcspUnavailable::new(OcspFailure::Unbelievable, &error.to_string())))
            }
        };
        let mut own = lock_mutex(&self.own);
        if own.len() >= OWN {
            own.clear();
        }
        own.insert(leaf.clone(), (until, answer.clone()));
        answer
    }

    /// What one responder says of a certificate, its issuer and the path from there; [`OcspFailure::Silent`] where it says nothing.
    fn query_responder(
        &self,
        url: &str,
        asked: &StatusQuery<'_>,
        (leaf, issuer, above): (&[u8], &[u8], &[Vec<u8>]),
    ) -> Result<StatusResponse, OcspUnavailable> {
        let here = |why: String| OcspUnavailable::new(OcspFailure::Unbelievable, &why);
        let now = asked.now;
        if !lock_mutex(&self.silent).may_query(now, url) {
            let why = format!("OCSP responder {url}: it said nothing a moment ago");
            return Err(OcspUnavailable::new(OcspFailure::Silent, &why));
        }
        let begun = std::time::Instant::now();
        let nonce = Some((asked.nonce)().map_err(|e| here(e.to_string()))?);
        let appointed = |responder: &[u8]| asked.appoints_responder(responder, above);
        let question = OcspQuery { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let answer = question.send_query(url, asked.timeout);
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = now + Duration::from_nanos(waited);
        if let Err(error @ OcspError::Silent { .. }) = answer {
            lock_mutex(&self.silent).mark_silent(now, url);
            return Err(OcspUnavailable::new(OcspFailure::Silent, &error.to_string()));
        }
        lock_mutex(&self.silent).clear_silent(url);
        let answer = answer.map_err(|e| here(e.to_string()));
        lock_mutex(&self.answers).store_response(now, leaf, &answer);
        answer
    }
}

/// Who is asked, in order: whom the configuration names, or those that the certificate names and that are asked by HTTP
/// (RFC 6960 §A.1). A certificate may name many, and a login waits for each that is silent.
fn responder_urls<'a>(configured: Option<&'a str>, named: &'a [String]) -> Vec<&'a str> {
    let by_http = |url: &&str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    match configured {
        Some(url) => vec![url],
        None => named.iter().map(String::as_str).filter(by_http).take(MAX_RESPONDERS).collect(),
    }
}

/// A status, or why there is none.
type CachedStatus = Result<OcspStatus, OcspUnavailable>;

/// Answers by certificate, DER.
#[derive(Debug, Default)]
struct ResponseCache {
    responses: BTreeMap<Arc<[u8]>, (WallTime, CachedStatus)>,
    /// By when their time is over.
    order: BTreeSet<(WallTime, Arc<[u8]>)>,
}

impl ResponseCache {
    /// What is known of a certificate now.
    fn find(&self, now: WallTime, certificate: &[u8]) -> Option<Result<StatusResponse, OcspUnavailable>> {
        let (until, said) = self.responses.get(certificate)?;
        let next_update = Some(*until);
        // A clock that was set back does not make an answer last; it shows whole seconds.
        let holds = now < *until && *until <= now + LONGEST + Duration::from_secs(1);
        holds.then(|| said.clone().map(|status| StatusResponse { status, next_update }))
    }

    /// Keeps an answer until it says, for an hour at most; one that says nothing of that is not kept (RFC 6960 §4.2.2.1:
    /// newer ones are always there).
    fn store_response(
        &mut self,
        now: WallTime,
        certificate: &[u8],
        answer: &Result<StatusResponse, OcspUnavailable>,
    ) {
        let (until, said) = match answer {
            Ok(StatusResponse { status, next_update: Some(until) }) => {
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

/// Responders that said nothing when they were last asked. While one is away nobody waits for it but the one who asks
/// again whether it is back.
#[derive(Debug, Default)]
struct SilentResponders(BTreeMap<String, WallTime>);

impl SilentResponders {
    /// Whether a responder is to be asked now. Of those who want to know after its time of silence one asks; until that
    /// one has heard something, or the time is over again, the others need not.
    fn may_query(&mut self, now: WallTime, url: &str) -> bool {
        match self.0.get_mut(url) {
            // A clock that was set back does not make silence last; it shows whole seconds, and threads differ.
            Some(until) if now < *until && *until <= now + SILENCE + SILENCE => false,
            Some(until) => {
                *until = now + SILENCE;
                true
            }
            None => true,
        }
    }

    /// A responder said nothing.
    fn mark_silent(&mut self, now: WallTime, url: &str) {
        if self.0.len() >= RESPONDERS && !self.0.contains_key(url) {
            let first = self.0.iter().min_by_key(|(_, until)| **until).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        self.0.insert(url.to_owned(), now + SILENCE);
    }

    /// A responder said something.
    fn clear_silent(&mut self, url: &str) {
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
        let mut answers = ResponseCache::default();
        let until =
            |seconds| Ok(StatusResponse { status: OcspStatus::Good, next_update: Some(at_seconds(seconds)) });
        answers.store_response(at_seconds(0), b"short", &until(60));
        answers.store_response(at_seconds(0), b"long", &until(86_400));
        answers.store_response(
            at_seconds(0),
            b"never",
            &Ok(StatusResponse { status: OcspStatus::Good, next_update: None }),
        );
        answers.store_response(
            at_seconds(0),
            b"silent",
            &Err(OcspUnavailable::new(OcspFailure::Unbelievable, "away")),
        );
        let known = |answers: &ResponseCache, seconds| {
            let there = |c: &&[u8]| answers.find(at_seconds(seconds), c).is_some();
            [&b"short"[..], b"long", b"never", b"silent"].iter().map(there).collect::<Vec<_>>()
        };
        assert_eq!(known(&answers, 9), [true, true, false, true]);
        assert_eq!(known(&answers, 59), [true, true, false, false]);
        assert_eq!(known(&answers, 60), [false, true, false, false]);
        assert_eq!(known(&answers, 3600), [false; 4]);
        answers.store_response(
            at_seconds(10),
            b"short",
            &Ok(StatusResponse { status: OcspStatus::Revoked, next_update: Some(at_seconds(70)) }),
        );
        let next_update = Some(at_seconds(70));
        assert_eq!(
            answers.find(at_seconds(11), b"short"),
            Some(Ok(StatusResponse { status: OcspStatus::Revoked, next_update }))
        );
        assert_eq!(answers.find(WallTime::from_unix_secs(5), b"short"), None, "the clock was set back");
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut answers = ResponseCache::default();
        for n in 0..3 * MOST as u64 {
            let answer =
                Ok(StatusResponse { status: OcspStatus::Good, next_update: Some(at_seconds(100 + n % 7)) });
            answers.store_response(at_seconds(0), &(n % 5000).to_be_bytes(), &answer);
        }
        assert_eq!((answers.responses.len(), answers.order.len()), (MOST, MOST));
    }

    #[test]
    fn one_asks_whether_a_silent_responder_is_back() {
        let mut silent = SilentResponders::default();
        assert!(
            silent.may_query(at_seconds(0), "a") && silent.may_query(at_seconds(0), "a"),
            "nobody knows yet"
        );
        silent.mark_silent(at_seconds(5), "a");
        assert!(!silent.may_query(at_seconds(14), "a") && silent.may_query(at_seconds(14), "b"));
        assert!(silent.may_query(at_seconds(15), "a"), "one asks");
        assert!(
            !silent.may_query(at_seconds(15), "a") && !silent.may_query(at_seconds(24), "a"),
            "the others know what is known"
        );
        assert!(silent.may_query(at_seconds(25), "a"), "the one who asked never told");
        silent.clear_silent("a");
        assert!(silent.may_query(at_seconds(25), "a") && silent.may_query(at_seconds(25), "a"));
        silent.mark_silent(at_seconds(125), "a");
        assert!(!silent.may_query(at_seconds(124), "a"));
        assert!(silent.may_query(at_seconds(100), "a"), "the clock was set back");
        for n in 0..2 * RESPONDERS {
            silent.mark_silent(at_seconds(130), &n.to_string());
        }
        assert_eq!(silent.0.len(), RESPONDERS);
    }

    /// RFC 6960 §A.1: by HTTP. A certificate may name several responders, and others than those.
    #[test]
    fn requests_go_to_http_responders_or_the_configured_one() {
        let named = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let all = named(&["ldap://a", "HTTP://b", "https://c", "http://d", "http://e", "http://f", "http:"]);
        assert_eq!(responder_urls(None, &all), ["HTTP://b", "http://d", "http://e"]);
        assert_eq!(responder_urls(Some("https://own"), &all), ["https://own"]);
    }
}
