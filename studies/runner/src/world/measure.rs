//! From what applications report to the metrics of one run.

use super::handover::HandoverStats;
use super::measured::RunMetrics;
use super::report::{DialogueEnd, RoleReport};
use std::ops::Range;
use usher_core::{Duration, Instant};
use usher_observe::stats::sample_quantiles;
use usher_scenario::metrics::{self, DELAY_P999};
use usher_sim::ReportObserver;

/// Hears what the roles report.
#[derive(Debug)]
pub(super) struct RunObserver {
    workloads: Vec<WorkloadStats>,
    /// The number of each workload's first application.
    firsts: Vec<u32>,
    /// In the drain, by workload: whether it is done as soon as nothing of it that counts is open.
    ends: Vec<bool>,
    /// Dialogues of all workloads that ended well since the counting began, those of workloads that are done included.
    completed: u64,
    /// When each dialogue ran, where that is kept.
    spans: Option<Vec<DialogueSpan>>,
}

/// When a dialogue ran that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DialogueSpan {
    /// The number of its workload.
    pub(super) workload: usize,
    /// The application that reported its end.
    pub(super) app: u32,
    pub(super) started_at: Instant,
    pub(super) ended_at: Instant,
    /// It ended well.
    pub(super) completed: bool,
    /// It began within the counting interval.
    pub(super) counts: bool,
}

/// What one workload did. A dialogue counts when it began within the counting interval.
#[derive(Debug)]
pub(super) struct WorkloadStats {
    from: Instant,
    to: Instant,
    /// Delays of counted dialogues that came to an end.
    delays: DelaySamples,
    /// Their exact sum, nanoseconds.
    delay_sum: u128,
    started: u64,
    /// The times within which dialogues are to end, as they are written, and how many did.
    time_limits: Vec<(Duration, String, u64)>,
    /// Whether the 99.9 % quantile is asked for.
    p999: bool,
    succeeded: u64,
    rejected: u64,
    failed: u64,
    /// Dialogues that ended well since the counting began, whenever they began.
    completed: u64,
    retransmissions: u64,
    /// Counted dialogues that EAP has let in where traffic keys follow, those that got them, and how long that took them
    /// together, nanoseconds.
    admitted: u64,
    keyed: u64,
    keying: u128,
    /// Of counted records of accounting: those that fell due, that are acknowledged, of them late, and lost; and how long
    /// acknowledged ones took together, nanoseconds.
    records: u64,
    acknowledged_records: u64,
    late: u64,
    lost: u64,
    recording: u128,
    /// Of counted dialogues that ended well: questions about a connection's user that were answered, and rightly.
    answers: u64,
    correct_answers: u64,
    /// Of counted dialogues that ended well and took an IKE_SA's place, and how long there was none, nanoseconds.
    replaced: u64,
    interrupted: u128,
    /// Of handovers.
    tally: HandoverStats,
}

/// Many delays, compactly: in pieces, since a single list would be copied each time that it grows, and in
/// 32 bits of nanoseconds where they fit (up to 4.29 s).
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
            // The first piece grows as it needs to: most runs have few dialogues.
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

    /// All of them in seconds, in no order.
    fn take_seconds(&mut self) -> Vec<f64> {
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

    /// Keeps from now on when each dialogue ran.
    pub(super) fn record_spans(&mut self) {
        self.spans = Some(Vec::new());
    }

    /// The dialogues that have ended, in the order of their ends, where they were kept.
    pub(super) fn take_spans(&mut self) -> Vec<DialogueSpan> {
        self.spans.take().unwrap_or_default()
    }

    /// A workload of this name (one that stands alone is called nothing) is asked for these metrics beside those that all have.
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

    /// From now on a workload is done when all of it that counts has ended, where `ends` says so, and the run when all are.
    pub(super) fn start_drain(&mut self, ends: Vec<bool>) {
        self.ends = ends;
    }

    /// It may say that the run is done.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn is_draining(&self) -> bool {
        !self.ends.is_empty()
    }

    /// What a workload did.
    pub(super) fn workload_stats(&self, workload: usize) -> &WorkloadStats {
        &self.workloads[workload]
    }

    /// The applications of a workload, by their numbers.
    pub(super) fn application_range(&self, workload: usize) -> Range<usize> {
        let end = self.firsts.get(workload + 1).map_or(usize::MAX, |next| *next as usize);
        self.firsts[workload] as usize..end
    }

    /// A workload's metrics of dialogues. What has not ended by now counts as failed.
    pub(super) fn add_metrics(&mut self, workload: usize, out: &mut RunMetrics) {
        self.workloads[workload].add_metrics(out);
    }

    /// Dialogues of all workloads that ended well since the counting began.
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
            let [p50, p95, p99, p999, max] = sample_quantiles(&mut self.delays.take_seconds(), shares);
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
                out.add_share_within(time, *ended as f64 / self.started as f64);
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

    /// Counted dialogues that began.
    pub(super) fn started_count(&self) -> u64 {
        self.started
    }

    /// Of them, those that have ended well.
    pub(super) fn succeeded_count(&self) -> u64 {
        self.succeeded
    }

    /// Dialogues that ended well since the counting began.
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
        // What one that is done still does depends on how long others take.
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
        measure.record_spans();
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
        assert_eq!(measure.take_spans(), [early, failed]);
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
        // What began in the warm-up goes on while the other workload is open.
        measure.handle_report(at(22), 0, ended(5));
        measure.handle_report(at(22), 0, RoleReport::Retransmissions(3));
        let own = measure.workload_stats(0);
        assert_eq!((own.completed_count(), own.retransmissions, measure.completed_count()), (1, 0, 2));
        assert!(!measure.is_done());
        measure.handle_report(at(23), 1, ended(11));
        assert!(measure.is_done());
        // One whose packets count to the end is never done.
        measure.start_drain(vec![true, false]);
        assert!(!measure.is_done());
    }
}
