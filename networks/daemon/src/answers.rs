//! What issuers said of certificates, kept for as long as they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use usher_aaa::StatusFault;
use usher_core::{Duration, WallTime};
use usher_pki::ocsp::{Answer, Status};

/// Certificates whose status is kept.
const MOST: usize = 4096;
/// The longest time for which an answer is kept, whatever it says itself.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long it is kept that nothing was said that can be believed, and that a responder said nothing at all.
const SILENCE: Duration = Duration::from_secs(10);
/// Responders of which silence is remembered.
const RESPONDERS: usize = 256;

/// Why nobody says how a certificate stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unsaid {
    /// Of its kind.
    pub(crate) fault: StatusFault,
    /// For people.
    pub(crate) why: String,
}

impl Unsaid {
    pub(crate) fn new(fault: StatusFault, why: &str) -> Self {
        Self { fault, why: why.to_owned() }
    }
}

/// A status, or why there is none.
type Response = Result<Status, Unsaid>;

/// Answers by certificate, DER.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: BTreeMap<Arc<[u8]>, (WallTime, Response)>,
    /// By when their time is over.
    order: BTreeSet<(WallTime, Arc<[u8]>)>,
}

impl Answers {
    /// What is known of a certificate now.
    pub(crate) fn find(&self, now: WallTime, certificate: &[u8]) -> Option<Response> {
        let (until, said) = self.kept.get(certificate)?;
        // A clock that was set back does not make an answer last; it shows whole seconds.
        (now < *until && *until <= now + LONGEST + Duration::from_secs(1)).then(|| said.clone())
    }

    /// Keeps an answer until it says, for an hour at most; one that says nothing of that is not kept (RFC 6960 §4.2.2.1:
    /// newer ones are always there).
    pub(crate) fn keep(&mut self, now: WallTime, certificate: &[u8], answer: &Result<Answer, Unsaid>) {
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
pub(crate) struct Silent(BTreeMap<String, WallTime>);

impl Silent {
    /// Whether a responder is to be asked now. Of those who want to know after its time of silence one asks; until that
    /// one has heard something, or the time is over again, the others need not.
    pub(crate) fn may_ask(&mut self, now: WallTime, url: &str) -> bool {
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
    pub(crate) fn silent(&mut self, now: WallTime, url: &str) {
        if self.0.len() >= RESPONDERS && !self.0.contains_key(url) {
            let first = self.0.iter().min_by_key(|(_, until)| **until).map(|(url, _)| url.clone());
            first.map(|url| self.0.remove(&url));
        }
        self.0.insert(url.to_owned(), now + SILENCE);
    }

    /// A responder said something.
    pub(crate) fn heard(&mut self, url: &str) {
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
        answers.keep(at(0), b"silent", &Err(Unsaid::new(StatusFault::Unbelievable, "away")));
        let known = |answers: &Answers, seconds| {
            let there = |c: &&[u8]| answers.find(at(seconds), c).is_some();
            [&b"short"[..], b"long", b"never", b"silent"].iter().map(there).collect::<Vec<_>>()
        };
        assert_eq!(known(&answers, 9), [true, true, false, true]);
        assert_eq!(known(&answers, 59), [true, true, false, false]);
        assert_eq!(known(&answers, 60), [false, true, false, false]);
        assert_eq!(known(&answers, 3600), [false; 4]);
        answers.keep(at(10), b"short", &Ok(Answer { status: Status::Revoked, next_update: Some(at(70)) }));
        assert_eq!(answers.find(at(11), b"short"), Some(Ok(Status::Revoked)));
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
}
