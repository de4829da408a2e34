//! Others than the machine's own thread ask it and tell it something.

use crate::{Source, Teller};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a machine may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a machine may be told before it runs.
const BEFORE: usize = 1024;

/// Whoever hears what a machine is told.
enum Hearer<C> {
    /// The machine does not run yet: so much waits for it.
    Before(Vec<C>),
    Running(Teller<C>),
}

/// Tells a machine. What comes before it runs is kept for it: the system says only once that a packet needs an SA, and may do so as
/// soon as there is a policy.
pub(crate) struct Telling<C>(Arc<Mutex<Hearer<C>>>);

impl<C> Clone for Telling<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> Default for Telling<C> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Hearer::Before(Vec::new()))))
    }
}

impl<C> fmt::Debug for Telling<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telling")
    }
}

impl<C: Send + 'static> Telling<C> {
    /// What is hosted with the machine, so that it hears.
    pub(crate) fn source(&self) -> Source<C> {
        let hears = self.0.clone();
        Box::new(move |teller| {
            let mut hears = hears.lock().unwrap_or_else(PoisonError::into_inner);
            if let Hearer::Before(commands) = &mut *hears {
                for command in std::mem::take(commands) {
                    teller(command);
                }
            }
            *hears = Hearer::Running(teller);
        })
    }
    /// Whether it has been told, or will be.
    pub(crate) fn tell(&self, command: C) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Hearer::Running(teller) => teller(command),
            Hearer::Before(commands) if commands.len() < BEFORE => {
                commands.push(command);
                true
            }
            Hearer::Before(_) => false,
        }
    }
}

/// Questions that a machine has still to answer, each by a token.
pub(crate) struct Questions<C, A> {
    waiting: Arc<Mutex<BTreeMap<u64, Sender<A>>>>,
    next: Arc<AtomicU64>,
    telling: Telling<C>,
}

impl<C, A> Clone for Questions<C, A> {
    fn clone(&self) -> Self {
        Self { waiting: self.waiting.clone(), next: self.next.clone(), telling: self.telling.clone() }
    }
}

impl<C: Send + 'static, A> Questions<C, A> {
    pub(crate) fn new(telling: &Telling<C>) -> Self {
        Self { waiting: Arc::default(), next: Arc::default(), telling: telling.clone() }
    }

    /// The machine has answered.
    pub(crate) fn answer(&self, token: u64, answer: A) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned();
        if let Some(waiting) = waiting {
            // It may have given up.
            let _ = waiting.send(answer);
        }
    }

    /// Asks by the command that `command` makes of a token, and waits for as many answers as there are machines that hear it.
    /// `None`: not all of them have answered in time, or they run no more.
    pub(crate) fn ask(&self, answers: u8, command: impl FnOnce(u64) -> C) -> Option<Vec<A>> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver): (_, Receiver<A>) = channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token, sender);
        let until = Instant::now() + PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        let told = self.telling.tell(command(token));
        let all = told.then(|| (0..answers).map(|_| receiver.recv_timeout(left()).ok()).collect()).flatten();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        all
    }
}

/// What `#3`, a word, or nothing names: `None` is all of them. `what` they are, for people.
pub(crate) fn named<W>(
    text: Option<String>,
    what: &str,
    number: fn(u64) -> W,
    name: fn(String) -> W,
) -> Result<Option<W>, String> {
    let Some(text) = text else { return Ok(None) };
    let Some(digits) = text.strip_prefix('#') else { return Ok(Some(name(text))) };
    let parsed = digits.parse().map_err(|_| format!("\"{text}\" is no number of {what}, such as #3"))?;
    Ok(Some(number(parsed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_hear_a_question_answer_it() {
        let telling = Telling::<u64>::default();
        let questions = Questions::<u64, u32>::new(&telling);
        let answers = questions.clone();
        // It is asked before it runs.
        let early = std::thread::spawn({
            let questions = questions.clone();
            move || questions.ask(1, |token| token)
        });
        while questions.waiting.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        (telling.source())(Box::new(move |token| {
            answers.answer(token, 7);
            answers.answer(token, 8);
            answers.answer(token + 1, 9);
            true
        }));
        assert_eq!(early.join().unwrap(), Some(vec![7]));
        assert_eq!(questions.ask(2, |token| token), Some(vec![7, 8]));
    }

    #[test]
    fn what_comes_before_the_machine_runs_is_kept_in_order_up_to_a_limit() {
        let telling = Telling::<usize>::default();
        let told: Vec<bool> = (0..=BEFORE).map(|n| telling.tell(n)).collect();
        assert_eq!(told.iter().position(|told| !told), Some(BEFORE));
        let (sender, heard) = channel();
        (telling.source())(Box::new(move |n| sender.send(n).is_ok()));
        assert!(telling.tell(BEFORE));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), (0..=BEFORE).collect::<Vec<_>>());
        drop(heard);
        assert!(!telling.tell(0), "nobody takes any more");
    }

    #[test]
    fn numbers_and_words_name() {
        let read = |text: Option<&str>| {
            named(text.map(str::to_owned), "a session", |n| n.to_string(), |name| format!("name {name}"))
        };
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some("#7")), Ok(Some("7".to_owned())));
        assert_eq!(read(Some("ann")), Ok(Some("name ann".to_owned())));
        assert_eq!(read(Some("#x")), Err("\"#x\" is no number of a session, such as #3".to_owned()));
    }
}
