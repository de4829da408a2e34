//! From what applications report to the metrics of one run.

use super::handover::Tally;
use super::measured::Measured;
use super::report::{End, Report};
use std::ops::Range;
use usher_core::{Duration, Instant};
use usher_observe::stats::quantiles;
use usher_scenario::metrics::{self, DELAY_P999};
use usher_sim::Observer;

/// Hears what the roles report.
#[derive(Debug)]
pub(super) struct Measure {
    workloads: Vec<Dialogues>,
    /// The number of each workload's first application.
    firsts: Vec<u32>,
    /// In the drain, by workload: whether it is done as soon as nothing of it that counts is open.
    ends: Vec<bool>,
    /// Dialogues of all workloads that ended well since the counting began, those of workloads that are done included.
    completed: u64,
    /// When each dialogue ran, where that is kept.
    spans: Option<Vec<Span>>,
}

/// When a dialogue ran that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The number of its workload.
    pub(super) workload: usize,
    /// The application that reported its end.
    pub(super) app: u32,
    pub(super) began: Instant,
    pub(super) ended: Instant,
    /// It ended well.
    pub(super) completed: bool,
    /// It began within the counting interval.
    pub(super) counts: bool,
}

/// What one workload did. A dialogue counts when it began within the counting interval.
#[derive(Debug)]
pub(super) struct Dialogues {
    from: Instant,
    to: Instant,
    /// Delays of counted dialogues that came to an end.
    delays: Samples,
    /// Their exact sum, nanoseconds.
    delay_sum: u128,
    begun: u64,
    /// The times within which dialogues are to end, as they are written, and how many did.
    within: Vec<(Duration, String, u64)>,
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
    kept: u64,
    late: u64,
    lost: u64,
    recording: u128,
    /// Of counted dialogues that ended well: questions about a connection's user that were answered, and rightly.
    answers: u64,
    named: u64,
    /// Of counted dialogues that ended well and took an IKE_SA's place, and how long there was none, nanoseconds.
    replaced: u64,
    interrupted: u128,
    /// Of handovers.
    tally: Tally,
}

/// Many delays, compactly: in pieces, since a single list would be copied each time that it grows, and in
/// 32 bits of nanoseconds where they fit (up to 4.29 s).
#[derive(Debug, Default)]
struct Samples {
    short: Vec<Vec<u32>>,
    long: Vec<u64>,
    len: usize,
}

impl Samples {
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
    fn take(&mut self) -> Vec<f64> {
        self.len = 0;
        let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
        let short = std::mem::take(&mut self.short).into_iter().flatten().map(u64::from);
        short.chain(std::mem::take(&mut self.long)).map(seconds).collect()
    }
}

impl Measure {
    /// `firsts` are the numbers of the workloads' first applications, ascending.
    pub(super) fn new(from: Instant, to: Instant, firsts: Vec<u32>) -> Self {
        let workloads = firsts.iter().map(|_| Dialogues::new(from, to)).collect();
        Self { workloads, firsts, ends: Vec::new(), completed: 0, spans: None }
    }

    /// Keeps from now on when each dialogue ran.
    pub(super) fn keep_spans(&mut self) {
        self.spans = Some(Vec::new());
    }

    /// The dialogues that have ended, in the order of their ends, where they were kept.
    pub(super) fn take_spans(&mut self) -> Vec<Span> {
        self.spans.take().unwrap_or_default()
    }

    /// A workload of this name (one that stands alone is called nothing) is asked for these metrics beside those that all have.
    pub(super) fn ask<'a>(&mut self, workload: usize, name: &str, asked: impl Iterator<Item = &'a String>) {
        let Some(dialogues) = self.workloads.get_mut(workload) else { return };
        for metric in asked {
            dialogues.p999 |= *metric == DELAY_P999.of_workload(name);
            let own = metric.rsplit_once(')').is_some_and(|(_, of)| of.trim_start_matches('.') == name);
            if let Some((within, time)) = metrics::within(metric).filter(|_| own) {
                dialogues.within.push((within, time.to_owned(), 0));
            }
        }
    }

    /// From now on a workload is done when all of it that counts has ended, where `ends` says so, and the run when all are.
    pub(super) fn drain(&mut self, ends: Vec<bool>) {
        self.ends = ends;
    }

    /// It may say that the run is done.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn drains(&self) -> bool {
        !self.ends.is_empty()
    }

    /// What a workload did.
    pub(super) fn of(&self, workload: usize) -> &Dialogues {
        &self.workloads[workload]
    }

    /// The applications of a workload, by their numbers.
    pub(super) fn apps(&self, workload: usize) -> Range<usize> {
        let end = self.firsts.get(workload + 1).map_or(usize::MAX, |next| *next as usize);
        self.firsts[workload] as usize..end
    }

    /// A workload's metrics of dialogues. What has not ended by now counts as failed.
    pub(super) fn metrics(&mut self, workload: usize, out: &mut Measured) {
        self.workloads[workload].metrics(out);
    }

    /// Dialogues of all workloads that ended well since the counting began.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }
}

impl Dialogues {
    fn new(from: Instant, to: Instant) -> Self {
        Self {
            from,
            to,
            delays: Samples::default(),
            delay_sum: 0,
            begun: 0,
            within: Vec::new(),
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
            kept: 0,
            late: 0,
            lost: 0,
            recording: 0,
            answers: 0,
            named: 0,
            replaced: 0,
            interrupted: 0,
            tally: Tally::default(),
        }
    }

    fn counts(&self, began: Instant) -> bool {
        self.from <= began && began < self.to
    }

    fn open(&self) -> u64 {
        let dialogues = self.begun - self.failed - self.rejected - self.succeeded;
        dialogues + self.records - self.kept - self.lost
    }

    fn metrics(&mut self, out: &mut Measured) {
        let (n, good) = (self.delays.len(), self.succeeded);
        if n > 0 {
            out.put(metrics::DELAY_MEAN, self.delay_sum as f64 / n as f64 / 1e9);
            let shares = [0.5, 0.95, 0.99, 0.999, 1.0];
            let [p50, p95, p99, p999, max] = quantiles(&mut self.delays.take(), shares);
            out.put(metrics::DELAY_P50, p50);
            out.put(metrics::DELAY_P95, p95);
            out.put(metrics::DELAY_P99, p99);
            if self.p999 {
                out.put(DELAY_P999, p999);
            }
            out.put(metrics::DELAY_MAX, max);
        }
        out.put(metrics::STARTED, self.begun as f64);
        out.put(metrics::COMPLETED, good as f64);
        out.put(metrics::REJECTED, self.rejected as f64);
        if self.begun > 0 {
            let failed = self.begun - good - self.rejected;
            out.put(metrics::FAILURES, failed as f64 / self.begun as f64);
            for (_, time, ended) in &self.within {
                out.put_within(time, *ended as f64 / self.begun as f64);
            }
        }
        if self.completed > 0 {
            out.put(metrics::RETRANSMISSIONS, self.retransmissions as f64 / self.completed as f64);
        }
        if self.keyed > 0 {
            out.put(metrics::KEYS_DELAY, self.keying as f64 / self.keyed as f64 / 1e9);
        }
        if self.admitted > 0 {
            out.put(metrics::KEYS_FAILURES, (self.admitted - self.keyed) as f64 / self.admitted as f64);
        }
        if self.records > 0 {
            let share = |n: u64| n as f64 / self.records as f64;
            if good > 0 {
                out.put(metrics::ACCOUNTING_RECORDS, self.records as f64 / good as f64);
            }
            if self.kept > 0 {
                out.put(metrics::ACCOUNTING_DELAY, self.recording as f64 / self.kept as f64 / 1e9);
            }
            out.put(metrics::ACCOUNTING_LATE, share(self.late));
            out.put(metrics::ACCOUNTING_LOST, share(self.records - self.kept));
        }
        if self.answers > 0 {
            out.put(metrics::IDENT_NAMED, self.named as f64 / self.answers as f64);
        }
        if self.replaced > 0 {
            let mean = self.interrupted as f64 / self.replaced as f64 / 1e9;
            out.put(metrics::IKE_INTERRUPTION, mean);
        }
        self.tally.metrics(out);
    }

    /// Counted dialogues that began.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Of them, those that have ended well.
    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// Dialogues that ended well since the counting began.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    fn report(&mut self, now: Instant, report: Report) {
        match report {
            Report::Begun => self.begun += u64::from(self.counts(now)),
            Report::Admitted(began) => self.admitted += u64::from(self.counts(began)),
            Report::Keyed(began, took) if self.counts(began) => {
                self.keyed += 1;
                self.keying += u128::from(took.as_nanos());
            }
            Report::Keyed(..) => {}
            Report::Record => self.records += u64::from(self.counts(now)),
            Report::Recorded { due, kept } if self.counts(due) => match kept {
                Some(late) => {
                    self.kept += 1;
                    self.late += u64::from(late);
                    self.recording += u128::from(now.since(due).as_nanos());
                }
                None => self.lost += 1,
            },
            Report::Recorded { .. } => {}
            Report::Identified(began, right) if self.counts(began) => {
                self.answers += 1;
                self.named += u64::from(right);
            }
            Report::Identified(..) => {}
            Report::Interrupted(began, without) if self.counts(began) => {
                self.replaced += 1;
                self.interrupted += u128::from(without.as_nanos());
            }
            Report::Interrupted(..) => {}
            Report::Withdrawn(began) => self.begun -= u64::from(self.counts(began)),
            Report::Mobile(node, said) => {
                let (from, to) = (self.from, self.to);
                self.tally.note(now, node, said, |began| from <= began && began < to);
            }
            Report::Ended { began, end } => {
                self.completed += u64::from(end == End::Completed && now >= self.from);
                if !self.counts(began) {
                    return;
                }
                match end {
                    End::Completed | End::Otherwise => {
                        match end {
                            End::Completed => self.succeeded += 1,
                            _ => self.failed += 1,
                        }
                        let delay = now.since(began);
                        for (within, _, ended) in &mut self.within {
                            *ended += u64::from(end == End::Completed && delay <= *within);
                        }
                        self.delays.push(delay);
                        self.delay_sum += u128::from(delay.as_nanos());
                    }
                    End::Rejected => self.rejected += 1,
                    End::Failed => self.failed += 1,
                }
            }
            Report::Retransmissions(n) if now >= self.from => self.retransmissions += n,
            Report::Retransmissions(_) => {}
        }
    }
}

impl Observer<Report> for Measure {
    #[inline]
    fn report(&mut self, now: Instant, app: u32, report: Report) {
        let workload = match self.firsts.len() {
            1 => 0,
            _ => self.firsts.partition_point(|first| *first <= app).saturating_sub(1),
        };
        let several = self.workloads.len() > 1;
        let Some(dialogues) = self.workloads.get_mut(workload) else { return };
        if let Report::Ended { end: End::Completed, .. } = report {
            self.completed += u64::from(now >= dialogues.from);
        }
        if let (Report::Ended { began, end }, Some(spans)) = (report, &mut self.spans) {
            let (completed, counts) = (end == End::Completed, dialogues.counts(began));
            spans.push(Span { workload, app, began, ended: now, completed, counts });
        }
        // What one that is done still does depends on how long others take.
        let done = several && self.ends.get(workload) == Some(&true) && dialogues.open() == 0;
        if !done {
            dialogues.report(now, report);
        }
    }

    fn is_done(&self) -> bool {
        let done = |(dialogues, ends): (&Dialogues, &bool)| *ends && dialogues.open() == 0;
        !self.ends.is_empty() && self.workloads.iter().zip(&self.ends).all(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialogues_are_kept_where_that_is_asked_for() {
        let at = Instant::from_nanos;
        let mut measure = Measure::new(at(10), at(20), vec![0, 5]);
        let ended = |began, end| Report::Ended { began: at(began), end };
        measure.report(at(12), 1, ended(11, End::Completed));
        measure.keep_spans();
        measure.report(at(13), 1, ended(5, End::Completed));
        measure.report(at(14), 6, ended(12, End::Failed));
        let early = Span { workload: 0, app: 1, began: at(5), ended: at(13), completed: true, counts: false };
        let failed =
            Span { workload: 1, app: 6, began: at(12), ended: at(14), completed: false, counts: true };
        assert_eq!(measure.take_spans(), [early, failed]);
    }

    #[test]
    fn a_workload_that_is_done_is_final() {
        let at = Instant::from_nanos;
        let ended = |began| Report::Ended { began: at(began), end: End::Completed };
        let mut measure = Measure::new(at(10), at(20), vec![0, 1]);
        measure.report(at(11), 0, Report::Begun);
        measure.report(at(11), 1, Report::Begun);
        measure.drain(vec![true, true]);
        measure.report(at(21), 0, ended(11));
        // What began in the warm-up goes on while the other workload is open.
        measure.report(at(22), 0, ended(5));
        measure.report(at(22), 0, Report::Retransmissions(3));
        let own = measure.of(0);
        assert_eq!((own.completed(), own.retransmissions, measure.completed()), (1, 0, 2));
        assert!(!measure.is_done());
        measure.report(at(23), 1, ended(11));
        assert!(measure.is_done());
        // One whose packets count to the end is never done.
        measure.drain(vec![true, false]);
        assert!(!measure.is_done());
    }
}
