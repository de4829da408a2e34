//! Sends commands and requests to a machine from other threads.

use crate::{CommandSource, SendCommand};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time limit of a machine's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The limit of queued commands before a machine runs.
const BEFORE: usize = 1024;

/// The receiver of a machine's commands.
enum CommandReceiverState<C> {
    /// The machine does not run yet: commands are queued.
    NotStarted(Vec<C>),
    Running(SendCommand<C>),
}

/// Sends commands to a machine. Commands are queued until it runs. The kernel reports only once that a packet needs
/// an SA, and can do so as soon as a policy exists.
pub struct CommandSender<C>(Arc<Mutex<CommandReceiverState<C>>>);

impl<C> Clone for CommandSender<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> Default for CommandSender<C> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(CommandReceiverState::NotStarted(Vec::new()))))
    }
}

impl<C> fmt::Debug for CommandSender<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telling")
    }
}

impl<C: Send + 'static> CommandSender<C> {
    /// Returns the command source to host with the machine.
    pub fn command_source(&self) -> CommandSource<C> {
        let hears = self.0.clone();
        Box::new(move |teller| {
            let mut hears = hears.lock().unwrap_or_else(PoisonError::into_inner);
            if let CommandReceiverState::NotStarted(commands) = &mut *hears {
                for command in std::mem::take(commands) {
                    teller(command);
                }
            }
            *hears = CommandReceiverState::Running(teller);
        })
    }
    /// Sends or queues a command. True if that succeeds.
    pub fn send_command(&self, command: C) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            CommandReceiverState::Running(teller) => teller(command),
            CommandReceiverState::NotStarted(commands) if commands.len() < BEFORE => {
                commands.push(command);
                true
            }
            CommandReceiverState::NotStarted(_) => false,
        }
    }
}

/// Pending requests to a machine, each with a token.
pub struct PendingControlRequests<C, A> {
    waiting: Arc<Mutex<BTreeMap<u64, Sender<A>>>>,
    next: Arc<AtomicU64>,
    command_sender: CommandSender<C>,
}

impl<C, A> Clone for PendingControlRequests<C, A> {
    fn clone(&self) -> Self {
        Self {
            waiting: self.waiting.clone(),
            next: self.next.clone(),
            command_sender: self.command_sender.clone(),
        }
    }
}

impl<C: Send + 'static, A> PendingControlRequests<C, A> {
    /// Creates a table without pending requests.
    #[must_use]
    pub fn new(command_sender: &CommandSender<C>) -> Self {
        Self { waiting: Arc::default(), next: Arc::default(), command_sender: command_sender.clone() }
    }

    /// Delivers the machine's reply.
    pub fn deliver_answer(&self, token: u64, answer: A) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(&token).cloned();
        if let Some(waiting) = waiting {
            // A send error is ignored: the requester may have given up.
            let _ = waiting.send(answer);
        }
    }

    /// Sends the command that `command` makes of a token, and waits for `answers` replies: one per machine that
    /// receives it. `None`: a reply is missing after the time limit, or the machines have ended.
    pub fn send_request(&self, answers: u8, command: impl FnOnce(u64) -> C) -> Option<Vec<A>> {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver): (_, Receiver<A>) = channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token, sender);
        let until = Instant::now() + REPLY_TIMEOUT;
        let left = || until.saturating_duration_since(Instant::now());
        let told = self.command_sender.send_command(command(token));
        let all = told.then(|| (0..answers).map(|_| receiver.recv_timeout(left()).ok()).collect()).flatten();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token);
        all
    }
}

/// Parses a selection: `#3`, a word, or nothing for all (`None`). `what` names the selected things in messages.
pub fn parse_number_or_name<W>(
    text: Option<String>,
    what: &str,
    number: fn(u64) -> W,
    name: fn(String) -> W,
) -> Result<Option<W>, String> {
    let Some(text) = text else { return Ok(None) };
    let Some(digits) = text.strip_prefix('#') else { return Ok(Some(name(text))) };
    let parsed = digits.parse().map_err(|_| format!("\"{text}\" is not the number of {what}, such as #3"))?;
    Ok(Some(number(parsed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_hear_a_question_answer_it() {
        let command_sender = CommandSender::<u64>::default();
        let questions = PendingControlRequests::<u64, u32>::new(&command_sender);
        let answers = questions.clone();
        // This request is queued before the machine runs.
        let early = std::thread::spawn({
            let questions = questions.clone();
            move || questions.send_request(1, |token| token)
        });
        while questions.waiting.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        (command_sender.command_source())(Box::new(move |token| {
            answers.deliver_answer(token, 7);
            answers.deliver_answer(token, 8);
            answers.deliver_answer(token + 1, 9);
            true
        }));
        assert_eq!(early.join().unwrap(), Some(vec![7]));
        assert_eq!(questions.send_request(2, |token| token), Some(vec![7, 8]));
    }

    #[test]
    fn early_commands_are_queued_in_order_up_to_a_limit() {
        let command_sender = CommandSender::<usize>::default();
        let told: Vec<bool> = (0..=BEFORE).map(|n| command_sender.send_command(n)).collect();
        assert_eq!(told.iter().position(|told| !told), Some(BEFORE));
        let (sender, heard) = channel();
        (command_sender.command_source())(Box::new(move |n| sender.send(n).is_ok()));
        assert!(command_sender.send_command(BEFORE));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), (0..=BEFORE).collect::<Vec<_>>());
        drop(heard);
        assert!(!command_sender.send_command(0), "nobody takes any more");
    }

    #[test]
    fn numbers_and_words_name() {
        let read = |text: Option<&str>| {
            parse_number_or_name(
                text.map(str::to_owned),
                "a session",
                |n| n.to_string(),
                |name| format!("name {name}"),
            )
        };
        assert_eq!(read(None), Ok(None));
        assert_eq!(read(Some("#7")), Ok(Some("7".to_owned())));
        assert_eq!(read(Some("ann")), Ok(Some("name ann".to_owned())));
        assert_eq!(read(Some("#x")), Err("\"#x\" is not the number of a session, such as #3".to_owned()));
    }
}
