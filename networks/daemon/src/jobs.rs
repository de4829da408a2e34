//! A queue of jobs for threads. Clients are served in turn, and of each few jobs of one name wait: a flood of one client, or
//! of guesses at one user's password, keeps those who flood waiting and nobody else, nor that user elsewhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use usher_core::fair::FairQueue;

/// Whom a job is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Whose {
    /// The RADIUS client by its place in the list; `None`: Diameter peers, or not told apart.
    pub(crate) client: Option<u32>,
    /// The user; nobody: not told apart.
    pub(crate) name: Vec<u8>,
}

impl Whose {
    /// A client's, whatever the name.
    pub(crate) fn of(client: Option<u32>) -> Self {
        Self { client, name: Vec::new() }
    }
}

/// How many jobs may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// In all.
    pub(crate) all: usize,
    /// Of one name, of each client.
    pub(crate) name: usize,
}

/// Jobs that wait.
struct Waiting<T> {
    jobs: FairQueue<Option<u32>, (Vec<u8>, T)>,
    names: BTreeMap<Named, usize>,
}

/// A client, and a name that it gave.
type Named = (Option<u32>, Vec<u8>);

impl<T> Waiting<T> {
    /// A job of this name does not wait any more.
    fn leave(&mut self, named: &Named) {
        if let Some(waiting) = self.names.get_mut(named) {
            *waiting -= 1;
            if *waiting == 0 {
                self.names.remove(named);
            }
        }
    }
}

/// The queue; see the [module](self).
pub(crate) struct Jobs<T> {
    waiting: Mutex<Waiting<T>>,
    bell: Condvar,
    bounds: Bounds,
    refused: AtomicU64,
}

impl<T> Jobs<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let waiting = Waiting { jobs: FairQueue::new(), names: BTreeMap::new() };
        Self { waiting: Mutex::new(waiting), bell: Condvar::new(), bounds, refused: AtomicU64::new(0) }
    }
    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Puts a job in line. Where there is no room one is given back and counted as refused: this one, or the newest of
    /// the client that has the most.
    #[must_use]
    pub(crate) fn put(&self, whose: Whose, job: T) -> Option<T> {
        let Whose { client, name } = whose;
        let mut waiting = self.lock();
        let named = (client, name);
        let displaced =
            if !named.1.is_empty() && waiting.names.get(&named).is_some_and(|n| *n >= self.bounds.name) {
                Some(job)
            } else {
                if !named.1.is_empty() {
                    *waiting.names.entry(named.clone()).or_default() += 1;
                }
                let displaced = waiting.jobs.push(client, (named.1, job), self.bounds.all);
                displaced.map(|(client, (name, job))| {
                    waiting.leave(&(client, name));
                    job
                })
            };
        drop(waiting);
        if displaced.is_some() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.bell.notify_one();
        displaced
    }
    /// The next job; waits for one.
    pub(crate) fn take(&self) -> T {
        let mut waiting = self.lock();
        loop {
            if let Some((client, (name, job))) = waiting.jobs.pop() {
                waiting.leave(&(client, name));
                return job;
            }
            waiting = self.bell.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// How many wait, and how many were refused.
    pub(crate) fn load(&self) -> (u64, u64) {
        (self.lock().jobs.len() as u64, self.refused.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: u32, name: &str) -> Whose {
        Whose { client: Some(client), name: name.as_bytes().to_vec() }
    }

    #[test]
    fn guesses_at_one_password_keep_no_other_user_waiting() {
        let jobs = Jobs::new(Bounds { all: 256, name: 4 });
        let refused = (0..452).filter(|n| jobs.put(of(0, "held back"), *n).is_some()).count();
        assert_eq!((refused, jobs.load()), (448, (4, 448)));
        assert_eq!(jobs.put(of(0, "ann"), 1000), None);
        let order: Vec<i32> = (0..5).map(|_| jobs.take()).collect();
        assert_eq!(order, [0, 1, 2, 3, 1000]);
        // Who is served makes room for the next of the same name.
        assert_eq!((jobs.put(of(0, "held back"), 5), jobs.take(), jobs.load()), (None, 5, (0, 448)));
    }

    #[test]
    fn guesses_by_one_client_do_not_keep_their_user_out_elsewhere() {
        let jobs = Jobs::new(Bounds { all: 256, name: 4 });
        assert_eq!((0..8).filter(|n| jobs.put(of(0, "ann"), *n).is_some()).count(), 4);
        assert_eq!(jobs.put(of(1, "ann"), 1000), None);
        let order: Vec<i32> = (0..5).map(|_| jobs.take()).collect();
        assert_eq!(order, [0, 1000, 1, 2, 3]);
        assert_eq!((jobs.put(of(0, "ann"), 8), jobs.put(of(1, "ann"), 1001)), (None, None));
    }

    #[test]
    fn a_flood_of_one_client_keeps_no_other_client_waiting() {
        let jobs = Jobs::new(Bounds { all: 256, name: 4 });
        let refused = (0..452).filter(|n| jobs.put(of(0, &format!("user{n}")), *n).is_some()).count();
        assert_eq!(refused, 452 - 256);
        // Another client's find room although all is taken, and the flood's newest go.
        for n in 1000..1100 {
            assert!(jobs.put(of(1, &format!("user{n}")), n).is_some_and(|n| n < 256), "{n}");
        }
        let order: Vec<i32> = (0..6).map(|_| jobs.take()).collect();
        assert_eq!(order, [0, 1000, 1, 1001, 2, 1002]);
        assert_eq!(jobs.load(), (250, 452 - 256 + 100));
    }

    #[test]
    fn jobs_without_a_name_have_no_bound_but_that_of_all() {
        let jobs = Jobs::new(Bounds { all: 8, name: 4 });
        assert!((0..8).all(|n| jobs.put(Whose::default(), n).is_none()));
        assert_eq!(jobs.put(Whose::default(), 8), Some(8));
    }
}
