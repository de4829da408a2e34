//! A host's processor: k cores behind one queue, with a service time per work label.

use crate::app::{AppDelivery, AppOperation, OrderedOperationTarget};
use std::collections::VecDeque;
use usher_core::{Duration, Instant, SimulationRng, WorkLabel, WorkRecord};

/// A processor's properties.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuConfig {
    /// Deliveries processed at the same time.
    pub cores: u32,
    /// Deliveries that may wait; more are dropped and counted.
    pub queue: usize,
    /// Time per unit of each work label; others cost nothing.
    pub service: Vec<(WorkLabel, ServiceTime)>,
    /// Cost of the intake of deliveries, beside their work.
    pub intake: BatchReceiveCost,
}

/// The intake cost of a server that sleeps when idle and else takes in all that has arrived at once. So a
/// delivery costs less the busier the processor is. Deliveries without labelled work cost nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchReceiveCost {
    /// Once for each delivery that finds a core idle.
    pub wakeup: Duration,
    /// Once for a batch: all deliveries that wait when the batch before is done.
    pub batch: Duration,
    /// Maximum deliveries of a batch.
    pub most: u32,
}

impl Default for BatchReceiveCost {
    /// Returns an intake without cost.
    fn default() -> Self {
        Self { wakeup: Duration::ZERO, batch: Duration::ZERO, most: 64 }
    }
}

/// The time of one unit of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceTime {
    /// The same time for each unit.
    Constant(Duration),
    /// Exponentially distributed with this mean, drawn for each unit.
    Exponential(Duration),
    /// Uniform between two times, both included, drawn for each unit.
    Uniform(Duration, Duration),
}

impl ServiceTime {
    fn sample_service_time(self, units: u32, rng: &mut SimulationRng) -> Duration {
        match self {
            Self::Constant(unit) => unit * u64::from(units),
            Self::Exponential(mean) => {
                (0..units).fold(Duration::ZERO, |all, _| all + rng.sample_exponential(mean))
            }
            Self::Uniform(low, high) => {
                (0..units).fold(Duration::ZERO, |all, _| all + rng.sample_duration(low, high))
            }
        }
    }
}

usher_core::counters! {
    /// Counters of a processor.
    pub struct CpuStats {
        /// Deliveries handled.
        handled,
        /// Deliveries dropped because the queue was full.
        dropped,
        /// Nanoseconds of work, over all cores.
        busy_ns,
        /// Nanoseconds that deliveries waited, summed.
        waited_ns,
    }
}

#[derive(Debug)]
pub(crate) struct HostCpu<R> {
    config: CpuConfig,
    rng: SimulationRng,
    pub(crate) busy: u32,
    pub(crate) queue: VecDeque<(Instant, u32, AppDelivery)>,
    pub(crate) stats: CpuStats,
    /// Nanoseconds per work label, in the order of the configuration.
    spent: Vec<u64>,
    /// Deliveries of the batch that are not started yet.
    unstarted: u32,
    /// Active work by job number; free numbers are reused.
    jobs: Vec<Option<ActiveDelivery<R>>>,
    free: Vec<u32>,
    /// Number of started deliveries.
    started: u64,
    /// The delivery that last set the timer of each application.
    timers: Vec<(u32, u64)>,
}

/// A delivery in process.
#[derive(Debug)]
struct ActiveDelivery<R> {
    app: u32,
    /// Its number among all deliveries.
    number: u64,
    /// Outputs withheld until its work is done.
    ops: Vec<AppOperation<R>>,
}

impl<R> HostCpu<R> {
    pub(crate) fn new(config: CpuConfig, rng: SimulationRng) -> Self {
        Self {
            spent: vec![0; config.service.len()],
            config,
            rng,
            busy: 0,
            queue: VecDeque::new(),
            stats: CpuStats::default(),
            unstarted: 0,
            jobs: Vec::new(),
            free: Vec::new(),
            started: 0,
            timers: Vec::new(),
        }
    }

    pub(crate) fn has_free_core(&self) -> bool {
        self.busy < self.config.cores
    }

    /// Queues a delivery; a full queue drops it.
    pub(crate) fn enqueue_delivery(&mut self, now: Instant, app: u32, delivery: AppDelivery) {
        if self.queue.len() >= self.config.queue {
            self.stats.dropped += 1;
        } else {
            self.queue.push_back((now, app, delivery));
        }
    }

    /// Returns the time of a delivery's work and intake. `waited`: true if another delivery was processed before it.
    pub(crate) fn charge_delivery_cpu(&mut self, work: &[WorkRecord], waited: bool) -> Duration {
        if work.is_empty() {
            return Duration::ZERO;
        }
        let BatchReceiveCost { wakeup, batch, most } = self.config.intake;
        let mut time = self.charge_service_time(work);
        if !waited {
            self.unstarted = 0;
            time += wakeup + batch;
        } else if self.unstarted > 0 {
            self.unstarted -= 1;
        } else {
            // The batch contains this delivery and as many of the waiting ones as fit into it.
            self.unstarted = u32::try_from(self.queue.len()).unwrap_or(u32::MAX).min(most.saturating_sub(1));
            time += batch;
        }
        time
    }

    fn charge_service_time(&mut self, work: &[WorkRecord]) -> Duration {
        let Self { config, rng, spent, .. } = self;
        let mut all = Duration::ZERO;
        for w in work {
            let kinds = config.service.iter().zip(&mut *spent);
            let Some(((_, unit), spent)) = kinds.into_iter().find(|((label, _), _)| *label == w.label) else {
                continue;
            };
            let time = unit.sample_service_time(w.units, rng);
            *spent += time.as_nanos();
            all += time;
        }
        all
    }

    /// Returns the nanoseconds of each work label that has a cost, over all cores.
    pub(crate) fn cpu_time_by_label(&self) -> impl Iterator<Item = (WorkLabel, u64)> {
        self.config.service.iter().map(|(label, _)| *label).zip(self.spent.iter().copied())
    }

    /// Withholds the outputs of a delivery whose work takes `time`. Returns the job's number.
    pub(crate) fn start_job(&mut self, app: u32, ops: Vec<AppOperation<R>>, time: Duration) -> u32 {
        self.busy += 1;
        self.stats.busy_ns += time.as_nanos();
        self.started += 1;
        let held = ActiveDelivery { app, number: self.started, ops };
        match self.free.pop() {
            Some(job) => {
                self.jobs[job as usize] = Some(held);
                job
            }
            None => {
                self.jobs.push(Some(held));
                (self.jobs.len() - 1) as u32
            }
        }
    }

    /// Returns the outputs of a delivery without work that may be applied now.
    pub(crate) fn at_once(&mut self, app: u32, ops: Vec<AppOperation<R>>) -> Vec<AppOperation<R>> {
        self.started += 1;
        self.release_due_outputs(ActiveDelivery { app, number: self.started, ops })
    }

    /// Returns the outputs of a delivery that may be applied now. Operations on a connection keep the order in which
    /// the application gave them, whichever core ends first, since TLS enciphered the data in that order. So they
    /// wait for deliveries that started before. A timer keeps the setting of the delivery that started last.
    fn release_due_outputs(&mut self, done: ActiveDelivery<R>) -> Vec<AppOperation<R>> {
        let ActiveDelivery { app, number, ops } = done;
        if self.config.cores < 2 {
            return ops;
        }
        let mut due = Vec::with_capacity(ops.len());
        for op in ops {
            let Some(what) = op.ordered_target() else {
                due.push(op);
                continue;
            };
            if what == OrderedOperationTarget::Timer {
                match self.timers.iter_mut().find(|(of, _)| *of == app) {
                    Some((_, by)) if *by > number => continue,
                    Some((_, by)) => *by = number,
                    None => self.timers.push((app, number)),
                }
                due.push(op);
                continue;
            }
            let before = self.jobs.iter_mut().flatten().filter(|job| job.app == app && job.number < number);
            let waits =
                |job: &&mut ActiveDelivery<R>| job.ops.iter().any(|op| op.ordered_target() == Some(what));
            match before.filter(waits).max_by_key(|job| job.number) {
                Some(job) => job.ops.push(op),
                None => due.push(op),
            }
        }
        due
    }

    /// Discards the queue and the outputs of active work.
    pub(crate) fn discard_cpu_work(&mut self) {
        self.queue.clear();
        for job in self.jobs.iter_mut().flatten() {
            job.ops.clear();
        }
    }

    /// Completes a job. Returns its application and the outputs that may be applied now.
    pub(crate) fn finish_job(&mut self, job: u32) -> Option<(u32, Vec<AppOperation<R>>)> {
        let held = self.jobs.get_mut(job as usize)?.take()?;
        self.busy -= 1;
        self.free.push(job);
        Some((held.app, self.release_due_outputs(held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::AppConnectionId;

    fn test_cpu(cores: u32) -> HostCpu<()> {
        let config = CpuConfig { cores, queue: 9, service: Vec::new(), intake: BatchReceiveCost::default() };
        HostCpu::new(config, usher_core::Seed::new(1).derive_rng("cpu", 0))
    }
    /// Returns an operation on a connection that carries a number.
    fn credit_operation(conn: u32, bytes: u32) -> AppOperation<()> {
        AppOperation::Credit { conn: AppConnectionId::for_accepted_connection(conn), bytes }
    }
    fn credit_operation_bytes(ops: &[AppOperation<()>]) -> Vec<u32> {
        let number =
            |op: &AppOperation<()>| if let AppOperation::Credit { bytes, .. } = op { *bytes } else { 0 };
        ops.iter().map(number).collect()
    }

    #[test]
    fn operations_on_a_connection_keep_their_order_on_any_core() {
        let mut cpu = test_cpu(4);
        let time = Duration::from_millis(1);
        let first = cpu.start_job(7, vec![credit_operation(1, 1), credit_operation(2, 2)], time);
        let second = cpu.start_job(7, vec![credit_operation(1, 3), credit_operation(3, 4)], time);
        let third = cpu.start_job(7, vec![credit_operation(1, 5), credit_operation(1, 6)], time);
        let other = cpu.start_job(8, vec![credit_operation(1, 7)], time);
        let mut finish = |job| credit_operation_bytes(&cpu.finish_job(job).unwrap().1);
        assert_eq!(finish(third), [0; 0], "both wait for those before");
        assert_eq!(finish(other), [7], "another application's connection");
        assert_eq!(finish(second), [4]);
        assert_eq!(
            credit_operation_bytes(
                &cpu.at_once(
                    7,
                    vec![credit_operation(1, 8), credit_operation(2, 9), credit_operation(4, 10)]
                )
            ),
            [10]
        );
        let (app, ops) = cpu.finish_job(first).unwrap();
        assert_eq!((app, credit_operation_bytes(&ops)), (7, vec![1, 2, 3, 5, 6, 8, 9]));
        assert_eq!(credit_operation_bytes(&cpu.at_once(7, vec![credit_operation(1, 11)])), [11]);
    }

    #[test]
    fn a_timer_is_as_the_last_delivery_has_set_it() {
        let mut cpu = test_cpu(2);
        let at = |secs| AppOperation::Timer(Some(Instant::ZERO + Duration::from_secs(secs)));
        let first = cpu.start_job(7, vec![at(9)], Duration::from_millis(2));
        let second = cpu.start_job(7, vec![at(3)], Duration::from_millis(1));
        assert_eq!(cpu.finish_job(second).unwrap().1.len(), 1);
        assert!(cpu.finish_job(first).unwrap().1.is_empty());
        assert_eq!(cpu.at_once(7, vec![at(4)]).len(), 1);
    }
}
