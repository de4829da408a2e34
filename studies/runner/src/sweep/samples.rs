//! Single dialogues for figures of their distribution and time course. The first replication of a point runs again to
//! sample them.

use super::report::curve_name_parts;
use super::{RunError, report};
use crate::world::{ScenarioRun, ScenarioRunError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_report::{FigureSeries, SeriesKind, SeriesPoint};
use usher_scenario::model::{self, FigureKind};
use usher_scenario::{StudyPlan, metrics};

/// Maximum number of points of a curve.
const CURVE: usize = 200;
/// Number of parts of the counted time.
const PARTS: usize = 50;

/// A dialogue that ended.
#[derive(Clone, PartialEq, Debug)]
struct DialogueSample {
    workload: String,
    /// Its start in seconds after the counted time began.
    start_seconds: f64,
    /// Its duration in seconds; `None` if it failed.
    delay: Option<f64>,
}

/// The dialogues of points, by the points' index in the plan.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DialogueSamples {
    of_points: BTreeMap<usize, Vec<DialogueSample>>,
    cut_short: bool,
}

impl DialogueSamples {
    /// True if an interrupt left points out.
    pub fn was_sampling_interrupted(&self) -> bool {
        self.cut_short
    }
}

/// Runs the first replication of each point that a figure of single dialogues shows. After `interrupt` is set, the
/// running replication ends early and no other starts; [`was_sampling_interrupted`](DialogueSamples::was_sampling_interrupted) tells.
///
/// # Errors
/// A point cannot be run.
pub fn sample_dialogues(plan: &StudyPlan, interrupt: &Arc<AtomicBool>) -> Result<DialogueSamples, RunError> {
    let of_dialogues: Vec<&model::StudyFigure> =
        plan.figures.iter().filter(|f| f.kind.of_dialogues()).collect();
    let mut samples = DialogueSamples::default();
    for point in &plan.points {
        let wanted = of_dialogues.iter().any(|said| report::is_at(said, point));
        if !wanted {
            continue;
        }
        if interrupt.load(Ordering::Relaxed) {
            samples.cut_short = true;
            break;
        }
        let world = ScenarioRun::observe_on_simulator(&point.scenario, point.replication_seed(0), None)
            .map_err(RunError::new)?;
        let watched = match world.with_stop_flag(Some(interrupt)).run_to_end() {
            Ok(result) => result.watched,
            Err(ScenarioRunError::Stopped) => {
                samples.cut_short = true;
                break;
            }
            Err(error) => return Err(RunError::new(error)),
        };
        let Some(watched) = watched else { continue };
        let sample = |d: crate::world::ObservedDialogue| DialogueSample {
            start_seconds: d.started_at.duration_since(watched.from).as_secs_f64(),
            delay: d.completed.then(|| d.ended_at.duration_since(d.started_at).as_secs_f64()),
            workload: d.workload,
        };
        samples
            .of_points
            .insert(point.index, watched.dialogues.into_iter().filter(|d| d.counts).map(sample).collect());
    }
    Ok(samples)
}

/// Draws the curves of a figure of single dialogues, each with the parts of its name.
pub(super) fn draw_curves(
    said: &model::StudyFigure,
    plan: &StudyPlan,
    samples: &DialogueSamples,
) -> Vec<(FigureSeries, Vec<String>)> {
    let metric = said.y.0.first().map_or("", String::as_str);
    let curve = |point: &usher_scenario::PlanPoint| {
        let all = samples.of_points.get(&point.index).filter(|_| report::is_at(said, point))?;
        let own = |workload: &str| metric.strip_suffix(workload).is_some_and(|rest| rest.ends_with('.'));
        let of: Vec<&DialogueSample> =
            all.iter().filter(|s| s.workload.is_empty() || own(&s.workload)).collect();
        let points = match said.kind {
            FigureKind::Time => delay_over_time(&of, point.scenario.run.duration.get().as_secs_f64()),
            _ => delay_distribution(&of),
        };
        let parts = curve_name_parts(said, point, metric, "");
        let name = match said.series.is_empty() {
            true => metric.to_owned(),
            false => parts[..said.series.len()].join(", "),
        };
        Some((FigureSeries { name, kind: SeriesKind::Trace, points, names: Vec::new() }, parts))
    };
    plan.points.iter().filter_map(curve).filter(|(series, _)| !series.points.is_empty()).collect()
}

/// Returns the share of dialogues that completed within a time, in per cent.
fn delay_distribution(samples: &[&DialogueSample]) -> Vec<SeriesPoint> {
    let mut delays: Vec<f64> = samples.iter().filter_map(|s| s.delay).collect();
    delays.sort_by(f64::total_cmp);
    let share = |rank: usize| 100.0 * rank as f64 / samples.len() as f64;
    let Some(first) = delays.first() else { return Vec::new() };
    let last = delays.len() - 1;
    let steps = last.min(CURVE);
    let ranks = (0..=steps).map(|step| (step * last).checked_div(steps).unwrap_or(0));
    let of_ranks = ranks.map(|rank| SeriesPoint::from_exact(delays[rank], share(rank + 1)));
    std::iter::once(SeriesPoint::from_exact(*first, 0.0)).chain(of_ranks).collect()
}

/// Returns the mean delay of the dialogues that began in each part of `duration` seconds.
fn delay_over_time(samples: &[&DialogueSample], duration: f64) -> Vec<SeriesPoint> {
    let width = duration / PARTS as f64;
    let mut parts = [(0.0, 0u32); PARTS];
    for sample in samples {
        let Some(delay) = sample.delay else { continue };
        if let Some((sum, n)) = parts.get_mut((sample.start_seconds / width) as usize) {
            (*sum, *n) = (*sum + delay, *n + 1);
        }
    }
    let parts = parts.iter().enumerate().filter(|(_, (_, n))| *n > 0);
    parts
        .map(|(i, (sum, n))| SeriesPoint::from_exact((i as f64 + 0.5) * width, sum / f64::from(*n)))
        .collect()
}

/// Returns the explanatory text of a figure of single dialogues.
pub(super) fn dialogue_figure_text(said: &model::StudyFigure) -> &'static str {
    match said.kind {
        FigureKind::Cdf => {
            "The dialogues of each point's first replication that ended. Failed dialogues count as not done within any \
             time."
        }
        FigureKind::Time => {
            "The successful dialogues of each point's first replication, by their start in fifty parts of the counted \
             time."
        }
        FigureKind::Box => {
            "Boxes reach from the lower to the upper quartile of the replications, with the median; lines reach to the \
             smallest and the largest."
        }
        FigureKind::Curve => "",
    }
}

/// Returns the axes of a figure of single dialogues.
pub(super) fn dialogue_axes(
    said: &model::StudyFigure,
    file: &model::StudyFile,
) -> [usher_report::FigureAxis; 2] {
    let metric = said.y.0.first().map_or("", String::as_str);
    let unit = metrics::find_metric(metric, file).map_or("s", |m| m.unit);
    let title = |default: &str| said.y_title.clone().unwrap_or_else(|| default.to_owned());
    let [x, y] = match said.kind {
        FigureKind::Time => [("beginning of the dialogue", "s"), ("mean delay", unit)],
        _ => [("delay", unit), ("dialogues done within this delay", "%")],
    };
    [usher_report::FigureAxis::new(x.0, x.1), usher_report::FigureAxis::new(title(y.0), y.1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_dialogue_sample(began: f64, delay: Option<f64>) -> DialogueSample {
        DialogueSample { workload: String::new(), start_seconds: began, delay }
    }

    #[test]
    fn a_distribution_counts_those_that_failed() {
        let samples = [
            test_dialogue_sample(0.0, Some(3.0)),
            test_dialogue_sample(0.0, Some(1.0)),
            test_dialogue_sample(0.0, None),
            test_dialogue_sample(0.0, Some(2.0)),
        ];
        let got: Vec<(f64, f64)> =
            delay_distribution(&samples.iter().collect::<Vec<_>>()).iter().map(|p| (p.x, p.mean)).collect();
        assert_eq!(got, [(1.0, 0.0), (1.0, 25.0), (2.0, 50.0), (3.0, 75.0)]);
        let many: Vec<DialogueSample> =
            (0..5000).map(|i| test_dialogue_sample(0.0, Some(f64::from(i)))).collect();
        let curve = delay_distribution(&many.iter().collect::<Vec<_>>());
        assert!(curve.len() <= CURVE + 2);
        assert_eq!(curve.last().map(|p| (p.x, p.mean)), Some((4999.0, 100.0)));
        assert!(delay_distribution(&[]).is_empty());
    }

    #[test]
    fn a_course_is_of_when_dialogues_began() {
        let samples = [
            test_dialogue_sample(0.5, Some(1.0)),
            test_dialogue_sample(1.9, Some(3.0)),
            test_dialogue_sample(99.0, Some(5.0)),
            test_dialogue_sample(3.0, None),
        ];
        let got: Vec<(f64, f64)> = delay_over_time(&samples.iter().collect::<Vec<_>>(), 100.0)
            .iter()
            .map(|p| (p.x, p.mean))
            .collect();
        assert_eq!(got, [(1.0, 2.0), (99.0, 5.0)]);
    }
}
