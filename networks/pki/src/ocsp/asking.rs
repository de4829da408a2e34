//! Asking for many: what issuers said of certificates is kept for as long as they say, and nobody waits for who said nothing.

use super::{Answer, NONCE_LEN, OcspError, Question, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_core::{Duration, WallTime};
use usher_crypto::x509::Information;

/// Responders of one certificate that are asked, one after the other, while they say nothing.
const RESPONDERS_OF_ONE: usize = 3;
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
pub enum Fault {
    /// The responder does not answer.
    Silent,
    /// What the responder says cannot be believed.
    Unbelievable,
    /// Nobody knows whom to ask.
    NoResponder,
}

/// Why nobody says how a certificate stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsaid {
    /// Of its kind.
    pub fault: Fault,
    /// For people.
    pub why: String,
}

impl Unsaid {
    fn new(fault: Fault, why: &str) -> Self {
        Self { fault, why: why.to_owned() }
    }
}

/// Makes what nobody can guess.
pub type Nonce<'a> = &'a dyn Fn() -> io::Result<[u8; NONCE_LEN]>;

/// One certificate that is asked about.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Its path, DER, as it was verified: itself first, up to a root.
    pub path: &'a [Vec<u8>],
    /// Who is asked, in place of whom it names.
    pub url: Option<&'a str>,
    /// How long a responder may take.
    pub patience: std::time::Duration,
    /// Now.
    pub now: WallTime,
    /// Makes the question's nonce.
    pub nonce: Nonce<'a>,
    /// Whether a chain, DER, of a responder's certificate and those from its issuer up is valid for whatever it is for.
    pub appointed: &'a dyn Fn(&[&[u8]]) -> bool,
}

impl Asked<'_> {
    fn appoints(&self, responder: &[u8], above: &[Vec<u8>]) -> bool {
        let chain: Vec<&[u8]> = std::iter::once(responder).chain(above.iter().map(Vec::as_slice)).collect();
        (self.appointed)(&chain)
    }
}

impl std::fmt::Debug for Asked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asked").field("url", &self.url).field("now", &self.now).finish_non_exhaustive()
    }
}

/// Asks, and remembers what was said and who said nothing. Clones remember the same.
#[derive(Clone, Debug, Default)]
pub struct Asking {
    answers: Arc<Mutex<Answers>>,
    silent: Arc<Mutex<Silent>>,
    own: Arc<Mutex<Own>>,
}

/// Answers about one's own certificates, by those, with until when each is shown, or why there is none.
type Own = BTreeMap<Vec<u8>, (WallTime, Result<Vec<u8>, Unsaid>)>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asking {
    /// What was said before of a path's first certificate and is still true, or is said now. Blocks while a responder is asked.
    ///
    /// # Errors
    /// Nobody says anything that can be believed; whether the certificate is then taken is the caller's policy.
    pub fn status(&self, asked: &Asked<'_>) -> Result<Status, Unsaid> {
        self.answer(asked).map(|answer| answer.status)
    }

    /// The same, with until when it can be relied on.
    ///
    /// # Errors
    /// The same.
    pub fn answer(&self, asked: &Asked<'_>) -> Result<Answer, Unsaid> {
        let nobody = |why: &str| Unsaid::new(Fault::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        if let Some(said) = lock(&self.answers).find(asked.now, leaf) {
            return said;
        }
        let issuer = above.first().ok_or_else(|| nobody("it stands under no authority"))?;
        let said = Information::of_der(leaf).map_err(|e| Unsaid::new(Fault::Unbelievable, &e.to_string()))?;
        let mut last = Err(nobody("it does not say where to ask by HTTP; see ocsp_url"));
        for url in responders(asked.url, &said.ocsp) {
            last = self.ask(url, asked, (leaf, issuer, above));
            // Another may know what this one did not say.
            if !matches!(&last, Err(Unsaid { fault: Fault::Silent, .. })) {
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
    pub fn shown(&self, asked: &Asked<'_>, answer: &[u8]) -> Result<Answer, String> {
        let [leaf, above @ ..] = asked.path else { return Err("no certificate".to_owned()) };
        let issuer = above.first().ok_or("it stands under no authority")?;
        let appointed = |responder: &[u8]| asked.appoints(responder, above);
        let (now, nonce) = (asked.now, None);
        let question = Question { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let said = question.read(answer).map_err(|e| e.to_string())?;
        match lock(&self.answers).find(now, leaf) {
            Some(Ok(known)) if known.status == Status::Revoked => Ok(known),
            _ => Ok(said),
        }
    }

    /// An answer about a path's first certificate, DER, to be shown to others: one that says that it holds. It is kept until half of its
    /// time is over. Blocks while a responder is asked.
    ///
    /// # Errors
    /// There is none to show.
    pub fn to_show(&self, asked: &Asked<'_>) -> Result<Vec<u8>, Unsaid> {
        let nobody = |why: &str| Unsaid::new(Fault::NoResponder, why);
        let [leaf, above @ ..] = asked.path else { return Err(nobody("no certificate")) };
        let (now, issuer) = (asked.now, above.first().ok_or_else(|| nobody("it stands under no authority"))?);
        if let Some((until, answer)) = lock(&self.own).get(leaf)
            && now < *until
        {
            return answer.clone();
        }
        let said = Information::of_der(leaf).map_err(|e| Unsaid::new(Fault::Unbelievable, &e.to_string()))?;
        let appointed = |responder: &[u8]| asked.appoints(responder, above);
        let question = Question { certificate: leaf, issuer, now, nonce: None, appointed: &appointed };
        let urls = responders(asked.url, &said.ocsp);
        let url = urls.first().ok_or_else(|| nobody("it does not say where to ask by HTTP; see ocsp_url"))?;
        let (until, answer) = match question.fetch(url, asked.patience) {
            Ok((Answer { status: Status::Good, next_update }, octets)) => {
                let lasts =
                    next_update.map_or(0, |until| until.unix_secs().saturating_sub(now.unix_secs())) / 2;
                (now + Duration::from_secs(lasts).min(LONGEST), Ok(octets))
            }
            Ok(_) => (now + SILENCE, Err(Unsaid::new(Fault::Unbelievable, "it does not say that it holds"))),
            Err(error @ OcspError::Silent { .. }) => {
                (now + SILENCE, Err(Unsaid::new(Fault::Silent, &error.to_string())))
            }
            Err(error) => (now + SILENCE, Err(Unsaid::new(Fault::Unbelievable, &error.to_string()))),
        };
        let mut own = lock(&self.own);
        if own.len() >= OWN {
            own.clear();
        }
        own.insert(leaf.clone(), (until, answer.clone()));
        answer
    }

    /// What one responder says of a certificate, its issuer and the path from there; [`Fault::Silent`] where it says nothing.
    fn ask(
        &self,
        url: &str,
        asked: &Asked<'_>,
        (leaf, issuer, above): (&[u8], &[u8], &[Vec<u8>]),
    ) -> Result<Answer, Unsaid> {
        let here = |why: String| Unsaid::new(Fault::Unbelievable, &why);
        let now = asked.now;
        if !lock(&self.silent).may_ask(now, url) {
            let why = format!("OCSP responder {url}: it said nothing a moment ago");
            return Err(Unsaid::new(Fault::Silent, &why));
        }
        let begun = std::time::Instant::now();
        let nonce = Some((asked.nonce)().map_err(|e| here(e.to_string()))?);
        let appointed = |responder: &[u8]| asked.appoints(responder, above);
        let question = Question { certificate: leaf, issuer, now, nonce, appointed: &appointed };
        let answer = question.ask(url, asked.patience);
        let waited = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let now = now + Duration::from_nanos(waited);
        if let Err(error @ OcspError::Silent { .. }) = answer {
            lock(&self.silent).silent(now, url);
            return Err(Unsaid::new(Fault::Silent, &error.to_string()));
        }
        lock(&self.silent).heard(url);
        let answer = answer.map_err(|e| here(e.to_string()));
        lock(&self.answers).keep(now, leaf, &answer);
        answer
    }
}

/// Who is asked, in order: whom the configuration names, or those that the certificate names and that are asked by HTTP
/// (RFC 6960 §A.1). A certificate may name many, and a login waits for each that is silent.
fn responders<'a>(configured: Option<&'a str>, named: &'a [String]) -> Vec<&'a str> {
    let by_http = |url: &&str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    match configured {
        Some(url) => vec![url],
        None => named.iter().map(String::as_str).filter(by_http).take(RESPONDERS_OF_ONE).collect(),
    }
}

/// A status, or why there is none.
type Response = Result<Status, Unsaid>;

/// Answers by certificate, DER.
#[derive(Debug, Default)]
struct Answers {
    kept: BTreeMap<Arc<[u8]>, (WallTime, Response)>,
    /// By when their time is over.
    order: BTreeSet<(WallTime, Arc<[u8]>)>,
}

impl Answers {
    /// What is known of a certificate now.
    fn find(&self, now: WallTime, certificate: &[u8]) -> Option<Result<Answer, Unsaid>> {
        let (until, said) = self.kept.get(certificate)?;
        let next_update = Some(*until);
        // A clock that was set back does not make an answer last; it shows whole seconds.
        let holds = now < *until && *until <= now + LONGEST + Duration::from_secs(1);
        holds.then(|| said.clone().map(|status| Answer { status, next_update }))
    }

    /// Keeps an answer until it says, for an hour at most; one that says nothing of that is not kept (RFC 6960 §4.2.2.1:
    /// newer ones are always there).
    fn keep(&mut self, now: WallTime, certificate: &[u8], answer: &Result<Answer, Unsaid>) {
        let (until, said) = match answer {
            Ok(Answer { status, next_update: Some(until) }) => ((*until).min(now + LONGEST), Ok(*status)),
            Ok(_) => return,
            Err(why) => (now + SILENCE, Err(why.clone())),
        };
        let certificate: Arc<[u8]> = certificate.into();
        if let Some((before, _)) = self.kept.insert(certificate.clone(), (until, said)) {
            self.order.remove(&(before, certificate.clone()));
        }
        self.order.insert((until, certificate));
        while self.kept.len() > MOST {
            let Some((_, first)) = self.order.pop_first() else { break };
            self.kept.remove(&first);
        }
    }
}

/// Responders that said nothing when they were last asked. While one is away nobody waits for it but the one who asks
/// again whether it is back.
#[derive(Debug, Default)]
struct Silent(BTreeMap<String, WallTime>);

impl Silent {
    /// Whether a responder is to be asked now. Of those who want to know after its time of silence one asks; until that
    /// one has heard something, or the time is over again, the others need not.
    fn may_ask(&mut self, now: WallTime, url: &str) -> bool {
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
    fn silent(&mut self, now: WallTime, url: &str) {
        if self.0.len() >= RESPONDERS && !self.0.contains_key(url) {
            let first = self.0.iter().min_by_key(|(_, until)| **until).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        self.0.insert(url.to_owned(), now + SILENCE);
    }

    /// A responder said something.
    fn heard(&mut self, url: &str) {
        self.0.remove(url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> WallTime {
        WallTime::from_unix_secs(1_800_000_000 + seconds)
    }

    #[test]
    fn an_answer_is_kept_until_it_says_and_for_an_hour_at_most() {
        let mut answers = Answers::default();
        let until = |seconds| Ok(Answer { status: Status::Good, next_update: Some(at(seconds)) });
        answers.keep(at(0), b"short", &until(60));
        answers.keep(at(0), b"long", &until(86_400));
        answers.keep(at(0), b"never", &Ok(Answer { status: Status::Good, next_update: None }));
        answers.keep(at(0), b"silent", &Err(Unsaid::new(Fault::Unbelievable, "away")));
        let known = |answers: &Answers, seconds| {
            let there = |c: &&[u8]| answers.find(at(seconds), c).is_some();
            [&b"short"[..], b"long", b"never", b"silent"].iter().map(there).collect::<Vec<_>>()
        };
        assert_eq!(known(&answers, 9), [true, true, false, true]);
        assert_eq!(known(&answers, 59), [true, true, false, false]);
        assert_eq!(known(&answers, 60), [false, true, false, false]);
        assert_eq!(known(&answers, 3600), [false; 4]);
        answers.keep(at(10), b"short", &Ok(Answer { status: Status::Revoked, next_update: Some(at(70)) }));
        let next_update = Some(at(70));
        assert_eq!(answers.find(at(11), b"short"), Some(Ok(Answer { status: Status::Revoked, next_update })));
        assert_eq!(answers.find(WallTime::from_unix_secs(5), b"short"), None, "the clock was set back");
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut answers = Answers::default();
        for n in 0..3 * MOST as u64 {
            let answer = Ok(Answer { status: Status::Good, next_update: Some(at(100 + n % 7)) });
            answers.keep(at(0), &(n % 5000).to_be_bytes(), &answer);
        }
        assert_eq!((answers.kept.len(), answers.order.len()), (MOST, MOST));
    }

    #[test]
    fn one_asks_whether_a_silent_responder_is_back() {
        let mut silent = Silent::default();
        assert!(silent.may_ask(at(0), "a") && silent.may_ask(at(0), "a"), "nobody knows yet");
        silent.silent(at(5), "a");
        assert!(!silent.may_ask(at(14), "a") && silent.may_ask(at(14), "b"));
        assert!(silent.may_ask(at(15), "a"), "one asks");
        assert!(
            !silent.may_ask(at(15), "a") && !silent.may_ask(at(24), "a"),
            "the others know what is known"
        );
        assert!(silent.may_ask(at(25), "a"), "the one who asked never told");
        silent.heard("a");
        assert!(silent.may_ask(at(25), "a") && silent.may_ask(at(25), "a"));
        silent.silent(at(125), "a");
        assert!(!silent.may_ask(at(124), "a"));
        assert!(silent.may_ask(at(100), "a"), "the clock was set back");
        for n in 0..2 * RESPONDERS {
            silent.silent(at(130), &n.to_string());
        }
        assert_eq!(silent.0.len(), RESPONDERS);
    }

    /// RFC 6960 §A.1: by HTTP. A certificate may name several responders, and others than those.
    #[test]
    fn those_are_asked_who_are_by_http_or_whom_the_configuration_names() {
        let named = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let all = named(&["ldap://a", "HTTP://b", "https://c", "http://d", "http://e", "http://f", "http:"]);
        assert_eq!(responders(None, &all), ["HTTP://b", "http://d", "http://e"]);
        assert_eq!(responders(Some("https://own"), &all), ["https://own"]);
    }
}
