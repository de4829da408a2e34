//! Turns the reports of applications into the metrics of one run.

use super::handover::HandoverStats;
use super::measured::RunMetrics;
use super::report::{DialogueEnd, RoleReport};
use std::ops::Range;
use usher_core::{Duration, Instant};
use usher_observe::stats::sample_quantiles;
use usher_scenario::metrics::{self, DELAY_P999};
use usher_sim::ReportObserver;

/// Receives the reports of roles.
#[derive(Debug)]
pub(super) struct RunObserver {
    workloads: Vec<WorkloadStats>,
    /// The number of each workload's first application.
    firsts: Vec<u32>,
    /// While draining, by workload: true if it is done as soon as none of its counted dialogues is open.
    ends: Vec<bool>,
    /// Successful dialogues of all workloads since counting began, including workloads that are done.
    completed: u64,
    /// The time span of each dialogue, if recorded.
    spans: Option<Vec<DialogueSpan>>,
}

/// The time span of a dialogue that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DialogueSpan {
    /// The index of its workload.
    pub(super) workload: usize,
    /// The application that reported its end.
    pub(super) app: u32,
    pub(super) started_at: Instant,
    pub(super) ended_at: Instant,
    /// True if it succeeded.
    pub(super) completed: bool,
    /// True if it began within the counting interval.
    pub(super) counts: bool,
}

/// The statistics of one workload. A dialogue counts if it began within the counting interval.
#[derive(Debug)]
pub(super) struct WorkloadStats {
    from: Instant,
    to: Instant,
    /// Delays of successful counted dialogues.
    delays: DelaySamples,
    /// Their exact sum in nanoseconds.
    delay_sum: u128,
    started: u64,
    /// Time limits of dialogues, as written, with the number of dialogues within each.
    time_limits: Vec<(Duration, String, u64)>,
    /// True if the 99.9 % quantile is requested.
    p999: bool,
    succeeded: u64,
    rejected: u64,
    failed: u64,
    /// Successful dialogues since counting began, including those that began earlier.
    completed: u64,
    retransmissions: u64,
    /// Counted dialogues with an EAP success before traffic keys, those with keys, and the total time to the keys in
    /// nanoseconds.
    admitted: u64,
    keyed: u64,
    keying: u128,
    /// Counted accounting records: due, acknowledged, late among these, lost; and the total time to acknowledgement in
    /// nanoseconds.
    records: u64,
    acknowledged_records: u64,
    late: u64,
    lost: u64,
    recording: u128,
    /// Responses to IDENT queries in successful counted dialogues, and the correct ones.
    answers: u64,
    correct_answers: u64,
    /// Successful counted dialogues that replaced an IKE_SA, and the total time without one in nanoseconds.
    replaced: u64,
    interrupted: u128,
    /// Handovers.
    tally: HandoverStats,
}

/// A compact list of delays. It grows in chunks, because a single vector would be copied at each growth. Delays up to
/// 4.29 s take 32 bits of nanoseconds.
#[derive(Debug, Default)]
struct DelaySamples {
    short: Vec<Vec<u32>>,
    long: Vec<u64>,
    len: usize,
}

impl DelaySamples {
    const PIECE: usize = 1 << 15;

    fn push(&mut self, delay: Duration) {
        self.len += 1;
        let Ok(short) = u32::try_from(delay.as_nanos()) else {
            self.long.push(delay.as_nanos());
            return;
        };
        match self.short.last_mut() {
            Some(piece) if piece.len() < Self::PIECE => piece.push(short),
            // Let the first chunk grow on demand instead of reserving it, because most runs have few dialogues.
            None => self.short.push(vec![short]),
            Some(_) => {
                let mut piece = Vec::with_capacity(Self::PIECE);
                piece.push(short);
                self.short.push(piece);
            }
        }
    }

    const fn len(&self) -> usize {
        self.len
    }

    /// Returns all delays in seconds, in no particular order.
    fn take_delays_in_seconds(&mut self) -> Vec<f64> {
        self.len = 0;
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let short = std::mem::take(&mut self.short).into_iter().flatten().map(u64::from);
        short.chain(std::mem::take(&mut self.long)).map(seconds).collect()
    }
}

impl RunObserver {
    /// `firsts` are the numbers of the workloads' first applications, ascending.
    pub(super) fn new(from: Instant, to: Instant, firsts: Vec<u32>) -> Self {
        let workloads = firsts.iter().map(|_| WorkloadStats::new(from, to)).collect();
        Self { workloads, firsts, ends: Vec::new(), completed: 0, spans: None }
    }

    /// Records the time span of each dialogue from now on.
    pub(super) fn start_recording_dialogue_spans(&mut self) {
        self.spans = Some(Vec::new());
    }

    /// Returns the recorded dialogues in the order of their ends.
    pub(super) fn take_dialogue_spans(&mut self) -> Vec<DialogueSpan> {
        self.spans.take().unwrap_or_default()
    }

    /// Requests metrics of the workload of this name, beside the default ones. A sole workload has the empty name.
    pub(super) fn request_metrics<'a>(
        &mut self,
        workload: usize,
        name: &str,
        asked: impl Iterator<Item = &'a String>,
    ) {
        let Some(dialogues) = self.workloads.get_mut(workload) else { return };
        for metric in asked {
            dialogues.p999 |= *metric == DELAY_P999.of_workload(name);
            let own = metric.rsplit_once(')').is_some_and(|(_, of)| of.trim_start_matches('.') == name);
            if let Some((within, time)) = metrics::parse_share_within(metric).filter(|_| own) {
                dialogues.time_limits.push((within, time.to_owned(), 0));
            }
        }
    }

    /// Starts draining. A workload is done when all its counted dialogues have ended, if `ends` says so; the run is
    /// done when all workloads are.
    pub(super) fn start_drain(&mut self, ends: Vec<bool>) {
        self.ends = ends;
    }

    /// True if the run may end early.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn may_end_early(&self) -> bool {
        !self.ends.is_empty()
    }

    /// Returns the statistics of a workload.
    pub(super) fn workload_stats(&self, workload: usize) -> &WorkloadStats {
        &self.workloads[workload]
    }

    /// Returns the numbers of a workload's applications.
    pub(super) fn application_range(&self, workload: usize) -> Range<usize> {
        let end = self.firsts.get(workload + 1).map_or(usize::MAX, |next| *next as usize);
        self.firsts[workload] as usize..end
    }

    /// Adds a workload's dialogue metrics. Open dialogues count as failed.
    pub(super) fn add_metrics(&mut self, workload: usize, out: &mut RunMetrics) {
        self.workloads[workload].add_metrics(out);
    }

    /// Returns the successful dialogues of all workloads since counting began.
    pub(super) fn completed_count(&self) -> u64 {
        self.completed
    }
}

impl WorkloadStats {
    fn new(from: Instant, to: Instant) -> Self {
        Self {
            from,
            to,
            delays: DelaySamples::default(),
            delay_sum: 0,
            started: 0,
            time_limits: Vec::new(),
            p999: false,
            succeeded: 0,
            rejected: 0,
            failed: 0,
            completed: 0,
            retransmissions: 0,
            admitted: 0,
            keyed: 0,
            keying: 0,
            records: 0,
            acknowledged_records: 0,
            late: 0,
            lost: 0,
            recording: 0,
            answers: 0,
            correct_answers: 0,
            replaced: 0,
            interrupted: 0,
            tally: HandoverStats::default(),
        }
    }

    fn is_counted(&self, began: Instant) -> bool {
        self.from <= began && began < self.to
    }

    fn open_count(&self) -> u64 {
        let dialogues = self.started - self.failed - self.rejected - self.succeeded;
        dialogues + self.records - self.acknowledged_records - self.lost
    }

    fn add_metrics(&mut self, out: &mut RunMetrics) {
        let (n, good) = (self.delays.len(), self.succeeded);
        if n > 0 {
            out.add_metric(metrics::DELAY_MEAN, self.delay_sum as f64 / n as f64 / 1e9);
            let shares = [0.5, 0.95, 0.99, 0.999, 1.0];
            let [p50, p95, p99, p999, max] =
                sample_quantiles(&mut self.delays.take_delays_in_seconds(), shares);
            out.add_metric(metrics::DELAY_P50, p50);
            out.add_metric(metrics::DELAY_P95, p95);
            out.add_metric(metrics::DELAY_P99, p99);
            if self.p999 {
                out.add_metric(DELAY_P999, p999);
            }
            out.add_metric(metrics::DELAY_MAX, max);
        }
        out.add_metric(metrics::STARTED, self.started as f64);
        out.add_metric(metrics::COMPLETED, good as f64);
        out.add_metric(metrics::REJECTED, self.rejected as f64);
        if self.started > 0 {
            let failed = self.started - good - self.rejected;
            out.add_metric(metrics::FAILURES, failed as f64 / self.started as f64);
            for (_, time, ended) in &self.time_limits {
                out.add_share_within_time(time, *ended as f64 / self.started as f64);
            }
        }
        if self.completed > 0 {
            out.add_metric(metrics::RETRANSMISSIONS, self.retransmissions as f64 / self.completed as f64);
        }
        if self.keyed > 0 {
            out.add_metric(metrics::KEYS_DELAY, self.keying as f64 / self.keyed as f64 / 1e9);
        }
        if self.admitted > 0 {
            out.add_metric(
                metrics::KEYS_FAILURES,
                (self.admitted - self.keyed) as f64 / self.admitted as f64,
            );
        }
        if self.records > 0 {
            let share = |n: u64| n as f64 / self.records as f64;
            if good > 0 {
                out.add_metric(metrics::ACCOUNTING_RECORDS, self.records as f64 / good as f64);
            }
            if self.acknowledged_records > 0 {
                out.add_metric(
                    metrics::ACCOUNTING_DELAY,
                    self.recording as f64 / self.acknowledged_records as f64 / 1e9,
                );
            }
            out.add_metric(metrics::ACCOUNTING_LATE, share(self.late));
            out.add_metric(metrics::ACCOUNTING_LOST, share(self.records - self.acknowledged_records));
        }
        if self.answers > 0 {
            out.add_metric(metrics::IDENT_NAMED, self.correct_answers as f64 / self.answers as f64);
        }
        if self.replaced > 0 {
            let mean = self.interrupted as f64 / self.replaced as f64 / 1e9;
            out.add_metric(metrics::IKE_INTERRUPTION, mean);
        }
        self.tally.add_metrics(out);
    }

    /// Returns the counted dialogues that began.
    pub(super) fn started_count(&self) -> u64 {
        self.started
    }

    /// Returns the counted dialogues that succeeded.
    pub(super) fn succeeded_count(&self) -> u64 {
        self.succeeded
    }

    /// Returns the successful dialogues since counting began.
    pub(super) fn completed_count(&self) -> u64 {
        self.completed
    }

    fn record_report(&mut self, now: Instant, report: RoleReport) {
        match report {
            RoleReport::Started => self.started += u64::from(self.is_counted(now)),
            RoleReport::Admitted(began) => self.admitted += u64::from(self.is_counted(began)),
            RoleReport::Keyed(began, took) if self.is_counted(began) => {
                self.keyed += 1;
                self.keying += u128::from(took.as_nanos());
            }
            RoleReport::Keyed(..) => {}
            RoleReport::Record => self.records += u64::from(self.is_counted(now)),
            RoleReport::Recorded { due, acknowledged_late: kept } if self.is_counted(due) => match kept {
                Some(late) => {
                    self.acknowledged_records += 1;
                    self.late += u64::from(late);
                    self.recording += u128::from(now.duration_since(due).as_nanos());
                }
                None => self.lost += 1,
            },
            RoleReport::Recorded { .. } => {}
            RoleReport::Identified(began, right) if self.is_counted(began) => {
                self.answers += 1;
                self.correct_answers += u64::from(right);
            }
            RoleReport::Identified(..) => {}
            RoleReport::Interrupted(began, without) if self.is_counted(began) => {
                self.replaced += 1;
                self.interrupted += u128::from(without.as_nanos());
            }
            RoleReport::Interrupted(..) => {}
            RoleReport::Withdrawn(began) => self.started -= u64::from(self.is_counted(began)),
            RoleReport::Mobile(node, said) => {
                let (from, to) = (self.from, self.to);
                self.tally.record_milestone(now, node, said, |began| from <= began && began < to);
            }
            RoleReport::Ended { started_at: began, end } => {
                self.completed += u64::from(end == DialogueEnd::Completed && now >= self.from);
                if !self.is_counted(began) {
                    return;
                }
                match end {
                    DialogueEnd::Completed | DialogueEnd::Otherwise => {
                        match end {
                            DialogueEnd::Completed => self.succeeded += 1,
                            _ => self.failed += 1,
                        }
                        let delay = now.duration_since(began);
                        for (within, _, ended) in &mut self.time_limits {
                            *ended += u64::from(end == DialogueEnd::Completed && delay <= *within);
                        }
                        self.delays.push(delay);
                        self.delay_sum += u128::from(delay.as_nanos());
                    }
                    DialogueEnd::Rejected => self.rejected += 1,
                    DialogueEnd::Failed => self.failed += 1,
                }
            }
            RoleReport::Retransmissions(n) if now >= self.from => self.retransmissions += n,
            RoleReport::Retransmissions(_) => {}
        }
    }
}

impl ReportObserver<RoleReport> for RunObserver {
    #[inline]
    fn handle_report(&mut self, now: Instant, app: u32, report: RoleReport) {
        let workload = match self.firsts.len() {
            1 => 0,
            _ => self.firsts.partition_point(|first| *first <= app).saturating_sub(1),
        };
        let several = self.workloads.len() > 1;
        let Some(dialogues) = self.workloads.get_mut(workload) else { return };
        if let RoleReport::Ended { end: DialogueEnd::Completed, .. } = report {
            self.completed += u64::from(now >= dialogues.from);
        }
        if let (RoleReport::Ended { started_at: began, end }, Some(spans)) = (report, &mut self.spans) {
            let (completed, counts) = (end == DialogueEnd::Completed, dialogues.is_counted(began));
            spans.push(DialogueSpan { workload, app, started_at: began, ended_at: now, completed, counts });
        }
        // Ignore further dialogues of a workload that is done: their number depends on how long other workloads take.
        let done = several && self.ends.get(workload) == Some(&true) && dialogues.open_count() == 0;
        if !done {
            dialogues.record_report(now, report);
        }
    }

    fn is_done(&self) -> bool {
        let done = |(dialogues, ends): (&WorkloadStats, &bool)| *ends && dialogues.open_count() == 0;
        !self.ends.is_empty() && self.workloads.iter().zip(&self.ends).all(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialogues_are_kept_where_that_is_asked_for() {
        let at = Instant::from_nanos;
        let mut measure = RunObserver::new(at(10), at(20), vec![0, 5]);
        let ended = |began, end| RoleReport::Ended { started_at: at(began), end };
        measure.handle_report(at(12), 1, ended(11, DialogueEnd::Completed));
        measure.start_recording_dialogue_spans();
        measure.handle_report(at(13), 1, ended(5, DialogueEnd::Completed));
        measure.handle_report(at(14), 6, ended(12, DialogueEnd::Failed));
        let early = DialogueSpan {
            workload: 0,
            app: 1,
            started_at: at(5),
            ended_at: at(13),
            completed: true,
            counts: false,
        };
        let failed = DialogueSpan {
            workload: 1,
            app: 6,
            started_at: at(12),
            ended_at: at(14),
            completed: false,
            counts: true,
        };
        assert_eq!(measure.take_dialogue_spans(), [early, failed]);
    }

    #[test]
    fn a_workload_that_is_done_is_final() {
        let at = Instant::from_nanos;
        let ended = |began| RoleReport::Ended { started_at: at(began), end: DialogueEnd::Completed };
        let mut measure = RunObserver::new(at(10), at(20), vec![0, 1]);
        measure.handle_report(at(11), 0, RoleReport::Started);
        measure.handle_report(at(11), 1, RoleReport::Started);
        measure.start_drain(vec![true, true]);
        measure.handle_report(at(21), 0, ended(11));
        // Dialogues from the warm-up continue while the other workload is open.
        measure.handle_report(at(22), 0, ended(5));
        measure.handle_report(at(22), 0, RoleReport::Retransmissions(3));
        let own = measure.workload_stats(0);
        assert_eq!((own.completed_count(), own.retransmissions, measure.completed_count()), (1, 0, 2));
        assert!(!measure.is_done());
        measure.handle_report(at(23), 1, ended(11));
        assert!(measure.is_done());
        // A workload whose packets count to the end is never done.
        measure.start_drain(vec![true, false]);
        assert!(!measure.is_done());
    }
}
