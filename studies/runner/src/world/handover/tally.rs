//! Metrics of handovers from the reports of roles.

use super::super::measured::RunMetrics;
use super::super::report::HandoverMilestone;
use std::collections::BTreeMap;
use usher_core::{Duration, Instant};
use usher_mobility::Step;
use usher_scenario::metrics::{self, Metric};

#[derive(Debug, Default)]
struct MobileNode {
    /// Steps of the running or last handover.
    steps: Vec<(Step, Duration)>,
    /// True if the last handover succeeded and counts.
    counts: bool,
    /// Start and end of handovers that count.
    handovers: Vec<(Instant, Instant)>,
    /// Predicted time at which it leaves the cell.
    leaves: Option<Instant>,
    /// Time of the last redirection of its flow.
    redirected: Option<Instant>,
    /// From leaving the cell to the flow's redirection, for failed handovers that count.
    outages: Vec<(Instant, Instant)>,
    /// Each packet's sending time, and whether it arrived.
    flow: Vec<(Instant, bool)>,
}

/// Sums over handovers.
#[derive(Debug, Default)]
pub(in super::super) struct HandoverStats {
    nodes: BTreeMap<u32, MobileNode>,
    /// Total nanoseconds and number of each step.
    steps: BTreeMap<Step, (u128, u64)>,
    succeeded: (u128, u64),
    failed: (u128, u64),
}

fn accumulate_duration(sum: &mut (u128, u64), took: Duration) {
    sum.0 += u128::from(took.as_nanos());
    sum.1 += 1;
}

impl HandoverStats {
    /// Records a milestone; `counts` returns whether a handover that began at a time counts.
    pub(in super::super) fn record_milestone(
        &mut self,
        now: Instant,
        number: u32,
        said: HandoverMilestone,
        counts: impl Fn(Instant) -> bool,
    ) {
        let node = self.nodes.entry(number).or_default();
        match said {
            HandoverMilestone::Started => {
                node.counts = false;
                node.steps.clear();
                node.redirected = None;
            }
            HandoverMilestone::Leaves { leave_time: at } => node.leaves = Some(at),
            HandoverMilestone::Redirected => node.redirected = Some(now),
            // Count these even after the handover, because the point of service may finish its steps and the completion
            // later.
            HandoverMilestone::Step { step, duration: took } if node.counts => {
                accumulate_duration(self.steps.entry(step).or_default(), took)
            }
            HandoverMilestone::Step { step, duration: took } => node.steps.push((step, took)),
            HandoverMilestone::Done { started_at: began, success } => {
                let steps = std::mem::take(&mut node.steps);
                if !counts(began) {
                    return;
                }
                accumulate_duration(
                    if success { &mut self.succeeded } else { &mut self.failed },
                    now.duration_since(began),
                );
                node.handovers.push((began, now));
                if let (false, Some(left), Some(redirected)) = (success, node.leaves, node.redirected) {
                    node.outages.push((left, redirected));
                }
                node.counts = success;
                if success {
                    steps.iter().for_each(|(step, took)| {
                        accumulate_duration(self.steps.entry(*step).or_default(), *took)
                    });
                }
            }
            HandoverMilestone::Sent { sequence } => {
                let at = sequence as usize;
                if node.flow.len() <= at {
                    node.flow.resize(at + 1, (Instant::FAR_FUTURE, true));
                }
                node.flow[at] = (now, false);
            }
            HandoverMilestone::Received { sequence } => {
                if let Some((_, arrived)) = node.flow.get_mut(sequence as usize) {
                    *arrived = true;
                }
            }
        }
    }

    /// Returns the number of packets sent in these intervals of each node, and the number lost.
    fn count_interval_packets(&self, times: impl Fn(&MobileNode) -> &[(Instant, Instant)]) -> (u64, u64) {
        let (mut sent, mut lost) = (0, 0);
        for node in self.nodes.values() {
            for &(from, to) in times(node) {
                for (_, arrived) in node.flow.iter().filter(|(at, _)| from <= *at && *at < to) {
                    sent += 1;
                    lost += u64::from(!arrived);
                }
            }
        }
        (sent, lost)
    }

    /// Adds the metrics; none if no handover has ended.
    pub(in super::super) fn add_metrics(&self, out: &mut RunMetrics) {
        let steps =
            Step::ALL.iter().filter_map(|step| Some((Metric::for_step(*step)?, *self.steps.get(step)?)));
        let means = [(metrics::DELAY_SUCCESS, self.succeeded), (metrics::DELAY_FAILED, self.failed)];
        for (metric, (sum, n)) in means.into_iter().chain(steps).filter(|(_, (_, n))| *n > 0) {
            out.add_metric(metric, sum as f64 / n as f64 / 1e9);
        }
        let (sent, lost) = self.count_interval_packets(|node| &node.handovers);
        if sent > 0 {
            out.add_metric(metrics::APP_LOSS, lost as f64 / sent as f64);
        }
        let (sent_without, lost_without) = self.count_interval_packets(|node| &node.outages);
        if sent_without > 0 {
            out.add_metric(metrics::APP_LOSS_AFTER_LEAVING, lost_without as f64 / sent_without as f64);
        }
        let handovers = self.succeeded.1 + self.failed.1;
        if handovers > 0 {
            out.add_metric(metrics::APP_LOST, lost as f64 / handovers as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at_seconds(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn measured_metrics(tally: &HandoverStats) -> BTreeMap<String, f64> {
        let mut out = RunMetrics::default();
        tally.add_metrics(&mut out);
        out.all.into_iter().collect()
    }

    fn record_milestone_at(tally: &mut HandoverStats, now: u64, said: HandoverMilestone) {
        tally.record_milestone(at_seconds(now), 3, said, |began| began >= at_seconds(10));
    }

    #[test]
    fn steps_and_packets_are_those_of_handovers_that_count() {
        let mut tally = HandoverStats::default();
        let step = |took| HandoverMilestone::Step { step: Step::Scan, duration: Duration::from_secs(took) };
        for n in 0..30 {
            record_milestone_at(&mut tally, n, HandoverMilestone::Sent { sequence: n as u32 });
            // Every third arrives.
            if n % 3 == 0 {
                record_milestone_at(&mut tally, n, HandoverMilestone::Received { sequence: n as u32 });
            }
        }
        // Too early to count.
        record_milestone_at(&mut tally, 0, HandoverMilestone::Started);
        record_milestone_at(&mut tally, 6, step(1));
        record_milestone_at(
            &mut tally,
            7,
            HandoverMilestone::Done { started_at: at_seconds(5), success: true },
        );
        assert_eq!(measured_metrics(&tally), BTreeMap::new());
        // From 10 to 16 s, and a step after that; two of six packets arrive.
        record_milestone_at(&mut tally, 0, HandoverMilestone::Started);
        record_milestone_at(&mut tally, 12, step(2));
        record_milestone_at(
            &mut tally,
            16,
            HandoverMilestone::Done { started_at: at_seconds(10), success: true },
        );
        record_milestone_at(&mut tally, 17, step(4));
        // Failed: 20 to 29 s; three of nine packets arrive.
        record_milestone_at(&mut tally, 0, HandoverMilestone::Started);
        record_milestone_at(&mut tally, 22, step(100));
        // It leaves at 23 s and its flow at 27 s: packets 24 and 27 arrive, of them 24 in that time.
        record_milestone_at(&mut tally, 22, HandoverMilestone::Leaves { leave_time: at_seconds(23) });
        record_milestone_at(&mut tally, 27, HandoverMilestone::Redirected);
        record_milestone_at(
            &mut tally,
            29,
            HandoverMilestone::Done { started_at: at_seconds(20), success: false },
        );
        let metrics = measured_metrics(&tally);
        let expected = [
            ("app.loss", 10.0 / 15.0),
            ("app.loss-after-leaving", 0.75),
            ("app.lost", 5.0),
            ("delay.failed", 9.0),
            ("delay.success", 6.0),
            ("step.scan", 3.0),
        ];
        assert_eq!(metrics.iter().map(|(name, v)| (name.as_str(), *v)).collect::<Vec<_>>(), expected);
    }
}
