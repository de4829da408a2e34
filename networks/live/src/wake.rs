//! Which sockets have something to be done: a list that their readiness fills, so that a driver with many
//! sockets looks at the few that are ready.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// One thing to do for one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Receive datagrams.
    Receive(usize),
    /// Send the datagrams that are queued.
    Send(usize),
    /// Accept connections.
    Accept(usize),
}

#[derive(Debug, Default)]
struct State {
    tasks: Vec<Task>,
    driver: Option<Waker>,
}

/// The list; clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready(Arc<Mutex<State>>);

impl Ready {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `waker` woken when something comes to the list.
    pub(crate) fn watch(&self, waker: &Waker) {
        let mut state = self.state();
        if !state.driver.as_ref().is_some_and(|d| d.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
    }

    /// Takes the list into `tasks`, which is empty.
    pub(crate) fn take(&self, tasks: &mut Vec<Task>) {
        std::mem::swap(&mut self.state().tasks, tasks);
    }

    /// Something that can come to the list.
    pub(crate) fn bell(&self, task: Task) -> Bell {
        let rope = Arc::new(Rope { ready: self.clone(), task, listed: AtomicBool::new(false) });
        Bell { waker: Waker::from(Arc::clone(&rope)), rope }
    }
}

#[derive(Debug)]
struct Rope {
    ready: Ready,
    task: Task,
    listed: AtomicBool,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.ready.state();
        state.tasks.push(self.task);
        let driver = state.driver.clone();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// Puts its task on the list, once until it is [`heard`](Self::heard).
#[derive(Debug)]
pub(crate) struct Bell {
    rope: Arc<Rope>,
    waker: Waker,
}

impl Bell {
    /// Puts the task on the list.
    pub(crate) fn ring(&self) {
        self.rope.wake_by_ref();
    }
    /// The task is being done: it may come to the list again.
    pub(crate) fn heard(&self) {
        self.rope.listed.store(false, Ordering::Release);
    }
    /// For asking whether a socket is ready; the bell rings when it becomes so.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_on_the_list_once_until_it_is_heard() {
        let ready = Ready::default();
        let (one, two) = (ready.bell(Task::Receive(1)), ready.bell(Task::Accept(2)));
        one.ring();
        two.ring();
        one.ring();
        let mut tasks = Vec::new();
        ready.take(&mut tasks);
        assert_eq!(tasks, [Task::Receive(1), Task::Accept(2)]);
        one.ring();
        tasks.clear();
        ready.take(&mut tasks);
        assert!(tasks.is_empty(), "nobody has heard it");
        one.heard();
        one.ring();
        ready.take(&mut tasks);
        assert_eq!(tasks, [Task::Receive(1)]);
    }
}
