//! Two runs in the same figures: each curve of the first beside its counterpart of the second.

use super::moved_means::{RobustSummaries, robust_summaries};
use super::report::{MetricEstimatesByPoint, draw_figure, is_of};
use usher_observe::ResultRow;
use usher_observe::summary::summarise_rows;
use usher_report::{FigureSeries, ReportFigure, ReportSection, SeriesKind};
use usher_scenario::StudyPlan;
use usher_scenario::model::{self, FigureKind, StudyFile};

/// A run as the source of figures.
#[derive(Clone, Copy, Debug)]
pub struct FigureSourceRun<'a> {
    /// Its study.
    pub file: &'a StudyFile,
    /// Its plan.
    pub plan: &'a StudyPlan,
    /// Its rows.
    pub rows: &'a [ResultRow],
    /// The suffix of its curves beside the other run's.
    pub name: &'a str,
}

impl FigureSourceRun<'_> {
    fn gather_estimates(&self) -> (MetricEstimatesByPoint, RobustSummaries) {
        let level = self.plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
        let summaries = summarise_rows(self.rows, level);
        let tails = robust_summaries(self.plan, &summaries, level);
        (summaries.into_iter().map(|s| ((s.point, s.metric.to_string()), s.estimate)).collect(), tails)
    }

    fn find_figure(&self, name: &str) -> Option<&model::StudyFigure> {
        self.curve_figures().find(|said| said.name == name)
    }

    /// The figures drawn from replications.
    fn curve_figures(&self) -> impl Iterator<Item = &model::StudyFigure> {
        self.plan.figures.iter().filter(|said| said.kind == FigureKind::Curve && is_of(said, self.plan))
    }
}

/// Returns the figures that both runs have, each with the curves of both. The second run's curves are hollow and dashed
/// in the colours of their counterparts.
pub fn overlay_run_figures(one: FigureSourceRun<'_>, other: FigureSourceRun<'_>) -> Vec<ReportSection> {
    let (of_one, of_other) = (one.gather_estimates(), other.gather_estimates());
    let section = |said: &model::StudyFigure| {
        let theirs = other.find_figure(&said.name)?;
        let mut drawn = draw_figure(said, one.file, one.plan, &of_one.0, &of_one.1);
        let further = draw_figure(theirs, other.file, other.plan, &of_other.0, &of_other.1);
        overlay_measured_series(&mut drawn, further, other.name);
        drawn.title = format!("{}: {}, and {}", drawn.title, one.name, other.name);
        let text =
            format!("Filled markers show {}; hollow markers and dashed lines show {}.", one.name, other.name);
        Some(ReportSection { text, figures: vec![drawn], ..ReportSection::default() })
    };
    one.curve_figures().filter_map(section).collect()
}

/// Adds the measured series of one figure to another, at the positions that both have.
fn overlay_measured_series(drawn: &mut ReportFigure, further: ReportFigure, name: &str) {
    // Show theory and reference curves once, because they are the same in both runs.
    for series in further.series.into_iter().filter(|s| s.kind.is_measured() && s.kind != SeriesKind::Box) {
        let (mut points, mut names) = (Vec::new(), Vec::new());
        for (i, point) in series.points.iter().enumerate() {
            let x = match further.x.categories.get(point.x as usize) {
                Some(text) => match drawn.x.categories.iter().position(|known| known == text) {
                    Some(place) => place as f64,
                    None => continue,
                },
                None if drawn.x.categories.is_empty() => point.x,
                None => continue,
            };
            points.push(usher_report::SeriesPoint { x, moved: None, ..*point });
            names.extend(series.names.get(i).cloned());
        }
        if points.is_empty() {
            continue;
        }
        let beside = format!("{} ({name})", series.name);
        let place = drawn.series.len();
        let twin = drawn.series.iter().position(|s| s.name == series.name);
        let divided = !drawn.panels.is_empty();
        let panel = drawn.panels.iter_mut().find_map(|panel| {
            let (_, known) = panel.series.iter().find(|(i, _)| Some(*i) == twin)?.clone();
            Some((panel, known))
        });
        match panel {
            Some((panel, known)) => panel.series.push((place, format!("{known} ({name})"))),
            // In a figure with panels, a curve that the first run lacks has no panel.
            None if divided => continue,
            None => {}
        }
        drawn.series.push(FigureSeries { name: beside, kind: SeriesKind::Other, points, names });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_observe::MeanEstimate;
    use usher_report::{FigureAxis, FigurePanel, SeriesPoint};

    fn make_series(name: &str, points: &[(f64, f64)]) -> FigureSeries {
        let point = |(x, mean): &(f64, f64)| {
            SeriesPoint::from_estimate(*x, &MeanEstimate { mean: *mean, half_width: 0.1, n: 5 })
        };
        FigureSeries {
            name: name.into(),
            points: points.iter().map(point).collect(),
            ..FigureSeries::default()
        }
    }

    #[test]
    fn the_second_run_stands_beside_what_it_is_compared_with() {
        let mut one = ReportFigure {
            x: FigureAxis::with_categories("Way", ["a", "b"]),
            series: vec![make_series("tcp", &[(0.0, 1.0), (1.0, 2.0)]), make_series("udp", &[(0.0, 1.0)])],
            panels: vec![FigurePanel {
                title: "p".into(),
                series: vec![(0, "tcp".into()), (1, "udp".into())],
            }],
            ..ReportFigure::default()
        };
        let mut reference = make_series("ns-2", &[(0.0, 9.0)]);
        reference.kind = SeriesKind::Reference;
        let other = ReportFigure {
            x: FigureAxis::with_categories("Way", ["b", "c"]),
            series: vec![
                make_series("tcp", &[(0.0, 3.0), (1.0, 4.0)]),
                make_series("sctp", &[(0.0, 5.0)]),
                reference,
            ],
            ..ReportFigure::default()
        };
        overlay_measured_series(&mut one, other, "B");
        assert_eq!(one.series.len(), 3, "what others measured, and a curve without a panel, are not drawn");
        let theirs = &one.series[2];
        assert_eq!((theirs.name.as_str(), theirs.kind), ("tcp (B)", SeriesKind::Other));
        // The category "b" is the second here, and the first run lacks "c".
        assert_eq!(theirs.points.iter().map(|p| (p.x, p.mean)).collect::<Vec<_>>(), [(1.0, 3.0)]);
        assert_eq!(one.panels[0].series.last(), Some(&(2, "tcp (B)".to_owned())));
    }
}
