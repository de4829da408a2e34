//! Workers of a simulated host. They run jobs of a machine, such as lookups in a store, in the study's time while the
//! host's processor does other work.

use std::collections::{BTreeMap, VecDeque};
use usher_core::timer::TimerQueue;
use usher_core::{Instant, SimulationRng, WorkLabel};
use usher_scenario::model::TimeDistribution;

/// Workers with their running and waiting jobs.
#[derive(Debug)]
pub(super) struct WorkerPool<J> {
    kinds: Vec<JobWorkerGroup<J>>,
    running_jobs: BTreeMap<u64, (usize, Vec<J>)>,
    done: TimerQueue<u64>,
    next: u64,
    rng: SimulationRng,
}

/// Workers of one kind.
#[derive(Debug)]
struct JobWorkerGroup<J> {
    label: WorkLabel,
    time: TimeDistribution,
    /// Number of jobs that run at the same time.
    threads: usize,
    /// True if all waiting jobs finish together in the time of one, such as writes that share one commit of a store.
    together: bool,
    busy: usize,
    waiting: VecDeque<J>,
}

impl<J> WorkerPool<J> {
    pub(super) fn new(rng: SimulationRng) -> Self {
        Self { kinds: Vec::new(), running_jobs: BTreeMap::new(), done: TimerQueue::new(), next: 0, rng }
    }

    /// Sets the time of each job of this kind and the number of workers.
    pub(super) fn add_worker_kind(
        &mut self,
        label: WorkLabel,
        time: TimeDistribution,
        threads: usize,
        together: bool,
    ) {
        let waiting = VecDeque::new();
        self.kinds.push(JobWorkerGroup { label, time, threads: threads.max(1), together, busy: 0, waiting });
    }

    /// Queues a job; returns it if it takes no time.
    pub(super) fn submit_worker_job(&mut self, now: Instant, label: Option<WorkLabel>, job: J) -> Option<J> {
        match label.and_then(|label| self.kinds.iter().position(|kind| kind.label == label)) {
            None => Some(job),
            Some(kind) => {
                self.kinds[kind].waiting.push_back(job);
                self.start_waiting_jobs(now, kind);
                None
            }
        }
    }

    fn start_waiting_jobs(&mut self, now: Instant, at: usize) {
        let kind = &mut self.kinds[at];
        while kind.busy < kind.threads && !kind.waiting.is_empty() {
            let most = if kind.together { kind.waiting.len() } else { 1 };
            let jobs: Vec<J> = kind.waiting.drain(..most).collect();
            kind.busy += 1;
            self.done.insert(now + kind.time.draw_time(&mut self.rng), self.next);
            self.running_jobs.insert(self.next, (at, jobs));
            self.next += 1;
        }
    }

    /// Returns jobs that have finished by now.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Vec<J>> {
        let (_, id) = self.done.pop_due(now)?;
        let (kind, jobs) = self.running_jobs.remove(&id)?;
        self.kinds[kind].busy -= 1;
        self.start_waiting_jobs(now, kind);
        Some(jobs)
    }

    /// Returns when the next jobs finish.
    pub(super) fn next_job_completion(&self) -> Option<Instant> {
        self.done.next_deadline()
    }

    /// Drops all jobs, as after a host failure.
    pub(super) fn discard_worker_jobs(&mut self) {
        self.running_jobs.clear();
        self.done = TimerQueue::new();
        for kind in &mut self.kinds {
            kind.waiting.clear();
            kind.busy = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_aaa::work;
    use usher_core::{Duration, Seed};
    use usher_scenario::units::TimeSpan;

    fn test_pool(threads: usize, together: bool) -> WorkerPool<u32> {
        let mut helpers = WorkerPool::new(Seed::new(1).derive_rng("helpers", 0));
        helpers.add_worker_kind(
            work::LOOKUP,
            TimeDistribution::Constant(TimeSpan::from_millis(10)),
            threads,
            together,
        );
        helpers
    }

    fn at_millis(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn jobs_wait_for_a_free_thread_in_their_order() {
        let mut two = test_pool(2, false);
        for job in 0..3 {
            assert_eq!(two.submit_worker_job(at_millis(0), Some(work::LOOKUP), job), None);
        }
        assert_eq!((two.next_job_completion(), two.pop_due(at_millis(9))), (Some(at_millis(10)), None));
        assert_eq!((two.pop_due(at_millis(10)), two.pop_due(at_millis(10))), (Some(vec![0]), Some(vec![1])));
        assert_eq!(
            (two.next_job_completion(), two.pop_due(at_millis(20)), two.next_job_completion()),
            (Some(at_millis(20)), Some(vec![2]), None)
        );
    }

    #[test]
    fn what_waits_for_a_commit_is_done_together() {
        let mut one = test_pool(1, true);
        for job in 0..4 {
            assert_eq!(one.submit_worker_job(at_millis(0), Some(work::LOOKUP), job), None);
        }
        assert_eq!(one.pop_due(at_millis(10)), Some(vec![0]));
        assert_eq!(one.pop_due(at_millis(20)), Some(vec![1, 2, 3]));
    }

    #[test]
    fn what_takes_no_time_is_given_back_and_what_fails_is_forgotten() {
        let mut one = test_pool(1, false);
        assert_eq!(one.submit_worker_job(at_millis(0), Some(work::WRITE), 7), Some(7));
        assert_eq!(one.submit_worker_job(at_millis(0), None, 8), Some(8));
        assert_eq!(one.submit_worker_job(at_millis(0), Some(work::LOOKUP), 9), None);
        one.discard_worker_jobs();
        assert_eq!((one.next_job_completion(), one.pop_due(at_millis(100))), (None, None));
        assert_eq!(one.submit_worker_job(at_millis(100), Some(work::LOOKUP), 10), None);
        assert_eq!(one.pop_due(at_millis(110)), Some(vec![10]));
    }
}
