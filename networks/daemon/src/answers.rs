//! What issuers said of certificates, kept for as long as they say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use usher_core::{Duration, WallTime};
use usher_pki::ocsp::{Answer, Status};

/// Certificates whose status is kept.
const MOST: usize = 4096;
/// The longest time for which an answer is kept, whatever it says itself.
const LONGEST: Duration = Duration::from_secs(3600);
/// How long it is kept that nobody said anything: a responder that is away is not waited for at every login.
const SILENCE: Duration = Duration::from_secs(10);

/// A status, or why there is none.
type Said = Result<Status, String>;

/// Answers by certificate, DER.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: BTreeMap<Arc<[u8]>, (WallTime, Said)>,
    /// By when their time is over.
    order: BTreeSet<(WallTime, Arc<[u8]>)>,
}

impl Answers {
    /// What is known of a certificate now.
    pub(crate) fn find(&self, now: WallTime, certificate: &[u8]) -> Option<Said> {
        let (until, said) = self.kept.get(certificate)?;
        // A clock that was set back does not make an answer last.
        (now < *until && *until <= now + LONGEST).then(|| said.clone())
    }

    /// Keeps an answer until it says, for an hour at most; one that says nothing of that is not kept (RFC 6960 §4.2.2.1:
    /// newer ones are always there).
    pub(crate) fn keep(&mut self, now: WallTime, certificate: &[u8], answer: &Result<Answer, String>) {
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
        answers.keep(at(0), b"silent", &Err("away".to_owned()));
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
}
