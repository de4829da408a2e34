//! The slow helpers of a simulated host: what a machine asks of a store or another server, which answers after a time that the
//! study gives, while the host's processor does other things.

use std::collections::{BTreeMap, VecDeque};
use usher_core::timer::TimerQueue;
use usher_core::{Instant, Rng, WorkLabel};
use usher_scenario::model::TimeLaw;

/// Helpers with what they do and what waits for them.
#[derive(Debug)]
pub(super) struct Helpers<J> {
    kinds: Vec<Kind<J>>,
    under_way: BTreeMap<u64, (usize, Vec<J>)>,
    done: TimerQueue<u64>,
    next: u64,
    rng: Rng,
}

/// Helpers of one kind.
#[derive(Debug)]
struct Kind<J> {
    label: WorkLabel,
    time: TimeLaw,
    /// How many jobs are done at the same time.
    threads: usize,
    /// All that waits is done at once, in the time of one: writing to a store, which makes many durable by one commit.
    together: bool,
    busy: usize,
    waiting: VecDeque<J>,
}

impl<J> Helpers<J> {
    pub(super) fn new(rng: Rng) -> Self {
        Self { kinds: Vec::new(), under_way: BTreeMap::new(), done: TimerQueue::new(), next: 0, rng }
    }

    /// Has jobs of this kind take such a time each.
    pub(super) fn takes(&mut self, label: WorkLabel, time: TimeLaw, threads: usize, together: bool) {
        let waiting = VecDeque::new();
        self.kinds.push(Kind { label, time, threads: threads.max(1), together, busy: 0, waiting });
    }

    /// Puts a job in line; gives it back where it takes no time.
    pub(super) fn put(&mut self, now: Instant, label: Option<WorkLabel>, job: J) -> Option<J> {
        match label.and_then(|label| self.kinds.iter().position(|kind| kind.label == label)) {
            None => Some(job),
            Some(kind) => {
                self.kinds[kind].waiting.push_back(job);
                self.start(now, kind);
                None
            }
        }
    }

    fn start(&mut self, now: Instant, at: usize) {
        let kind = &mut self.kinds[at];
        while kind.busy < kind.threads && !kind.waiting.is_empty() {
            let most = if kind.together { kind.waiting.len() } else { 1 };
            let jobs: Vec<J> = kind.waiting.drain(..most).collect();
            kind.busy += 1;
            self.done.insert(now + kind.time.draw(&mut self.rng), self.next);
            self.under_way.insert(self.next, (at, jobs));
            self.next += 1;
        }
    }

    /// Jobs that are done by now.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Vec<J>> {
        let (_, id) = self.done.pop_due(now)?;
        let (kind, jobs) = self.under_way.remove(&id)?;
        self.kinds[kind].busy -= 1;
        self.start(now, kind);
        Some(jobs)
    }

    /// When the next are done.
    pub(super) fn next(&self) -> Option<Instant> {
        self.done.next()
    }

    /// Forgets all jobs, as a host that fails does.
    pub(super) fn restart(&mut self) {
        self.under_way.clear();
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
    use usher_scenario::units::Time;

    fn helpers(threads: usize, together: bool) -> Helpers<u32> {
        let mut helpers = Helpers::new(Seed::new(1).stream("helpers", 0));
        helpers.takes(work::LOOKUP, TimeLaw::Constant(Time::millis(10)), threads, together);
        helpers
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn jobs_wait_for_a_free_thread_in_their_order() {
        let mut two = helpers(2, false);
        for job in 0..3 {
            assert_eq!(two.put(at(0), Some(work::LOOKUP), job), None);
        }
        assert_eq!((two.next(), two.pop_due(at(9))), (Some(at(10)), None));
        assert_eq!((two.pop_due(at(10)), two.pop_due(at(10))), (Some(vec![0]), Some(vec![1])));
        assert_eq!((two.next(), two.pop_due(at(20)), two.next()), (Some(at(20)), Some(vec![2]), None));
    }

    #[test]
    fn what_waits_for_a_commit_is_done_together() {
        let mut one = helpers(1, true);
        for job in 0..4 {
            assert_eq!(one.put(at(0), Some(work::LOOKUP), job), None);
        }
        assert_eq!(one.pop_due(at(10)), Some(vec![0]));
        assert_eq!(one.pop_due(at(20)), Some(vec![1, 2, 3]));
    }

    #[test]
    fn what_takes_no_time_is_given_back_and_what_fails_is_forgotten() {
        let mut one = helpers(1, false);
        assert_eq!(one.put(at(0), Some(work::WRITE), 7), Some(7));
        assert_eq!(one.put(at(0), None, 8), Some(8));
        assert_eq!(one.put(at(0), Some(work::LOOKUP), 9), None);
        one.restart();
        assert_eq!((one.next(), one.pop_due(at(100))), (None, None));
        assert_eq!(one.put(at(100), Some(work::LOOKUP), 10), None);
        assert_eq!(one.pop_due(at(110)), Some(vec![10]));
    }
}
