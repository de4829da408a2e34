//! A job queue for worker threads that shares them fairly. Shares take turns, and each share has a limit of pending
//! jobs per name. A flood of requests, or of password attempts against one user, delays only its own share. Jobs that
//! were abandoned are skipped.

use crate::ServeError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use usher_core::JobRequester;
use usher_core::fair::FairQueue;

/// The share and the name of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobFairnessKey<S> {
    /// The share of the workers that it uses, such as a RADIUS client's.
    pub share: S,
    /// The user. Empty: not distinguished.
    pub name: Vec<u8>,
    /// The origin, which waits for the result.
    pub origin: JobRequester,
}

/// The limits of pending jobs.
#[derive(Clone, Copy, Debug)]
pub struct JobQueueLimits {
    /// In total.
    pub all: usize,
    /// Per name and share.
    pub name: usize,
}

impl Default for JobQueueLimits {
    /// Enough for a machine that bounds its jobs itself.
    fn default() -> Self {
        Self { all: 1 << 16, name: usize::MAX }
    }
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobQueueStats {
    /// Pending jobs.
    pub waiting: u64,
    /// Jobs refused because the queue was full.
    pub refused: u64,
    /// Jobs skipped because their origin had abandoned them.
    pub abandoned: u64,
}

/// A pending job with its name and origin.
type QueuedJob<T> = (Vec<u8>, JobRequester, T);

/// The pending jobs.
struct WaitingJobs<S, T> {
    jobs: FairQueue<S, QueuedJob<T>>,
    names: BTreeMap<(S, Vec<u8>), usize>,
    is_closed: bool,
}

impl<S: Ord, T> WaitingJobs<S, T> {
    /// Counts a job of this name as no longer pending.
    fn decrement_pending_name(&mut self, named: &(S, Vec<u8>)) {
        if let Some(waiting) = self.names.get_mut(named) {
            *waiting -= 1;
            if *waiting == 0 {
                self.names.remove(named);
            }
        }
    }
}

/// A fair job queue; see the [module](self).
pub struct JobQueue<S, T> {
    waiting: Mutex<WaitingJobs<S, T>>,
    wakeup: Condvar,
    bounds: JobQueueLimits,
    refused: AtomicU64,
    abandoned: AtomicU64,
}

impl<S, T> std::fmt::Debug for JobQueue<S, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobQueue").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl<S: Ord + Clone, T> Default for JobQueue<S, T> {
    fn default() -> Self {
        Self::new(JobQueueLimits::default())
    }
}

impl<S: Ord + Clone, T> JobQueue<S, T> {
    /// An empty queue.
    #[must_use]
    pub fn new(bounds: JobQueueLimits) -> Self {
        let waiting = WaitingJobs { jobs: FairQueue::new(), names: BTreeMap::new(), is_closed: false };
        Self {
            waiting: Mutex::new(waiting),
            wakeup: Condvar::new(),
            bounds,
            refused: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
        }
    }
    fn lock_waiting(&self) -> MutexGuard<'_, WaitingJobs<S, T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Queues a job. If the queue is full, returns a refused job: this one, or the newest of the share with the most
    /// jobs.
    #[must_use]
    pub fn enqueue_job(&self, whose: JobFairnessKey<S>, job: T) -> Option<T> {
        let JobFairnessKey { share, name, origin } = whose;
        let mut waiting = self.lock_waiting();
        let named = (share, name);
        let is_counted = !named.1.is_empty();
        let displaced = if is_counted && waiting.names.get(&named).is_some_and(|n| *n >= self.bounds.name) {
            Some(job)
        } else {
            if is_counted {
                *waiting.names.entry(named.clone()).or_default() += 1;
            }
            let (share, name) = named;
            let displaced = waiting.jobs.push(share, (name, origin, job), self.bounds.all);
            displaced.map(|(share, (name, _, job))| {
                waiting.decrement_pending_name(&(share, name));
                job
            })
        };
        drop(waiting);
        if displaced.is_some() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        self.wakeup.notify_one();
        displaced
    }
    /// Takes the next job that is not abandoned. Blocks until there is one. `None` after
    /// [`close_queue`](Self::close_queue).
    pub fn take_job(&self) -> Option<T> {
        let mut waiting = self.lock_waiting();
        loop {
            if waiting.is_closed {
                return None;
            }
            let Some((share, (name, origin, job))) = waiting.jobs.pop() else {
                waiting = self.wakeup.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            waiting.decrement_pending_name(&(share, name));
            if origin.is_result_needed() {
                return Some(job);
            }
            self.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Closes the queue.
    pub fn close_queue(&self) {
        self.lock_waiting().is_closed = true;
        self.wakeup.notify_all();
    }
    /// Starts a thread for each worker. It does jobs until the queue is closed.
    ///
    /// # Errors
    /// A thread is unavailable.
    pub fn start_workers<W: FnMut(T) + Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        workers: impl IntoIterator<Item = W>,
    ) -> Result<(), ServeError>
    where
        S: Send + 'static,
        T: Send + 'static,
    {
        for mut worker in workers {
            let jobs = self.clone();
            let body = move || {
                while let Some(job) = jobs.take_job() {
                    worker(job);
                }
            };
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map_err(|error| ServeError::system("cannot start a thread", error))?;
        }
        Ok(())
    }
    /// Returns the counters.
    pub fn job_load(&self) -> JobQueueStats {
        JobQueueStats {
            waiting: self.lock_waiting().jobs.len() as u64,
            refused: self.refused.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use usher_core::JobWaiter;

    fn waiting_and_refused_jobs<S: Ord + Clone, T>(jobs: &JobQueue<S, T>) -> (u64, u64) {
        (jobs.job_load().waiting, jobs.job_load().refused)
    }

    fn job_share(client: u32, name: &str) -> JobFairnessKey<Option<u32>> {
        JobFairnessKey {
            share: Some(client),
            name: name.as_bytes().to_vec(),
            origin: JobRequester::default(),
        }
    }

    #[test]
    fn guesses_at_one_password_keep_no_other_user_waiting() {
        let jobs = JobQueue::new(JobQueueLimits { all: 256, name: 4 });
        let refused = (0..452).filter(|n| jobs.enqueue_job(job_share(0, "held back"), *n).is_some()).count();
        assert_eq!((refused, waiting_and_refused_jobs(&jobs)), (448, (4, 448)));
        assert_eq!(jobs.enqueue_job(job_share(0, "ann"), 1000), None);
        let order: Vec<i32> = (0..5).map(|_| jobs.take_job().unwrap()).collect();
        assert_eq!(order, [0, 1, 2, 3, 1000]);
        // Taking a job makes room for the next of the same name.
        assert_eq!(
            (
                jobs.enqueue_job(job_share(0, "held back"), 5),
                jobs.take_job(),
                waiting_and_refused_jobs(&jobs)
            ),
            (None, Some(5), (0, 448))
        );
    }

    #[test]
    fn guesses_by_one_client_do_not_keep_their_user_out_elsewhere() {
        let jobs = JobQueue::new(JobQueueLimits { all: 256, name: 4 });
        assert_eq!((0..8).filter(|n| jobs.enqueue_job(job_share(0, "ann"), *n).is_some()).count(), 4);
        assert_eq!(jobs.enqueue_job(job_share(1, "ann"), 1000), None);
        let order: Vec<i32> = (0..5).map(|_| jobs.take_job().unwrap()).collect();
        assert_eq!(order, [0, 1000, 1, 2, 3]);
        assert_eq!(
            (jobs.enqueue_job(job_share(0, "ann"), 8), jobs.enqueue_job(job_share(1, "ann"), 1001)),
            (None, None)
        );
    }

    #[test]
    fn a_flood_of_one_client_keeps_no_other_client_waiting() {
        let jobs = JobQueue::new(JobQueueLimits { all: 256, name: 4 });
        let refused =
            (0..452).filter(|n| jobs.enqueue_job(job_share(0, &format!("user{n}")), *n).is_some()).count();
        assert_eq!(refused, 452 - 256);
        // Jobs of other clients enter a full queue and evict the newest jobs of the flood.
        for n in 1000..1100 {
            assert!(jobs.enqueue_job(job_share(1, &format!("user{n}")), n).is_some_and(|n| n < 256), "{n}");
        }
        let order: Vec<i32> = (0..6).map(|_| jobs.take_job().unwrap()).collect();
        assert_eq!(order, [0, 1000, 1, 1001, 2, 1002]);
        assert_eq!(waiting_and_refused_jobs(&jobs), (250, 452 - 256 + 100));
    }

    #[test]
    fn jobs_without_a_name_have_no_bound_but_that_of_all() {
        let jobs = JobQueue::new(JobQueueLimits { all: 8, name: 4 });
        assert!((0..8).all(|n| jobs.enqueue_job(JobFairnessKey::<Option<u32>>::default(), n).is_none()));
        assert_eq!(jobs.enqueue_job(JobFairnessKey::<Option<u32>>::default(), 8), Some(8));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_done() {
        let jobs = JobQueue::default();
        let waiters: Vec<_> = (0..3).map(|_| JobWaiter::default()).collect();
        for (n, waiter) in waiters.iter().enumerate() {
            let origin = JobRequester::from_address(Ipv4Addr::new(192, 0, 2, 1).into()).with_waiter(waiter);
            let whose = JobFairnessKey { share: origin.host(), origin, ..JobFairnessKey::default() };
            assert_eq!(jobs.enqueue_job(whose, n), None);
        }
        drop(waiters.into_iter().nth(2));
        assert_eq!(jobs.enqueue_job(JobFairnessKey::default(), 9), None);
        assert_eq!(
            (jobs.take_job(), jobs.job_load()),
            (Some(9), JobQueueStats { waiting: 2, refused: 0, abandoned: 1 })
        );
        assert_eq!(jobs.enqueue_job(JobFairnessKey::default(), 10), None);
        assert_eq!((jobs.take_job(), jobs.job_load().abandoned), (Some(10), 2));
        jobs.close_queue();
        assert_eq!(jobs.take_job(), None);
    }
}
