//! The list of ready sockets. A driver with many sockets polls only those in the list.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// A task of one socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketTask {
    /// Receive datagrams.
    Receive(usize),
    /// Send the queued datagrams.
    Send(usize),
    /// Accept connections.
    Accept(usize),
}

#[derive(Debug, Default)]
struct ReadyListState {
    tasks: Vec<SocketTask>,
    driver: Option<Waker>,
}

/// The list; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadyList(Arc<Mutex<ReadyListState>>);

impl ReadyList {
    fn lock_state(&self) -> MutexGuard<'_, ReadyListState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the waker for new tasks in the list.
    pub(crate) fn register_waker(&self, waker: &Waker) {
        let mut state = self.lock_state();
        if !state.driver.as_ref().is_some_and(|d| d.will_wake(waker)) {
            state.driver = Some(waker.clone());
        }
    }

    /// Moves the list into `tasks`, which is empty.
    pub(crate) fn take_ready_tasks(&self, tasks: &mut Vec<SocketTask>) {
        std::mem::swap(&mut self.lock_state().tasks, tasks);
    }

    /// Creates the waker of a task.
    pub(crate) fn task_waker(&self, task: SocketTask) -> TaskWaker {
        let rope = Arc::new(ReadyListWaker { ready: self.clone(), task, listed: AtomicBool::new(false) });
        TaskWaker { waker: Waker::from(Arc::clone(&rope)), list_waker: rope }
    }
}

#[derive(Debug)]
struct ReadyListWaker {
    ready: ReadyList,
    task: SocketTask,
    listed: AtomicBool,
}

impl Wake for ReadyListWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.ready.lock_state();
        state.tasks.push(self.task);
        let driver = state.driver.clone();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// Lists its task once, until [`clear_listed`](Self::clear_listed).
#[derive(Debug)]
pub(crate) struct TaskWaker {
    list_waker: Arc<ReadyListWaker>,
    waker: Waker,
}

impl TaskWaker {
    /// Lists the task.
    pub(crate) fn enlist_task(&self) {
        self.list_waker.wake_by_ref();
    }
    /// Permits the task to be listed again, as it is being done.
    pub(crate) fn clear_listed(&self) {
        self.list_waker.listed.store(false, Ordering::Release);
    }
    /// Returns a context for a poll of the socket; readiness lists the task.
    pub(crate) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_is_on_the_list_once_until_it_is_heard() {
        let ready = ReadyList::default();
        let (one, two) = (ready.task_waker(SocketTask::Receive(1)), ready.task_waker(SocketTask::Accept(2)));
        one.enlist_task();
        two.enlist_task();
        one.enlist_task();
        let mut tasks = Vec::new();
        ready.take_ready_tasks(&mut tasks);
        assert_eq!(tasks, [SocketTask::Receive(1), SocketTask::Accept(2)]);
        one.enlist_task();
        tasks.clear();
        ready.take_ready_tasks(&mut tasks);
        assert!(tasks.is_empty(), "nobody has heard it");
        one.clear_listed();
        one.enlist_task();
        ready.take_ready_tasks(&mut tasks);
        assert_eq!(tasks, [SocketTask::Receive(1)]);
    }
}
