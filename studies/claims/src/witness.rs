//! The results of ns-2 itself for the founding figures, drawn beside ours: `ns-2.toml`, which `tests/ns2/founding.sh`
//! generates.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use usher_report::{FigureSeries, ReportSection, SeriesKind, SeriesPoint};
use usher_scenario::model::{StudyFigure, SweepPointStatistic};
use usher_scenario::{PlannedAxis, StudyPlan};

#[derive(Debug, Deserialize)]
struct Ns2File {
    points: Vec<Ns2Point>,
}

/// One point of one curve. The file's further key (the command) is for people.
#[derive(Debug, Deserialize)]
struct Ns2Point {
    study: String,
    /// The value of the figure's axis.
    x: String,
    /// The value of the axis whose values are the curves.
    series: String,
    delay: Ns2Delay,
    /// Packets of both sides for each dialogue.
    packets: f64,
}

/// In seconds.
#[derive(Debug, Deserialize)]
struct Ns2Delay {
    mean: f64,
    low: f64,
    high: f64,
    median: f64,
}

fn ns2_points() -> &'static [Ns2Point] {
    static DATA: OnceLock<Ns2File> = OnceLock::new();
    let read =
        || toml::from_str(include_str!("../ns-2.toml")).expect("a test checks that ns-2.toml is valid");
    &DATA.get_or_init(read).points
}

/// Adds ns-2's points to the figures of a founding study, each curve as a series, with a note on their source. They
/// belong to the study's own settings, which `plan` must have.
pub fn add_ns2_series(sections: &mut [ReportSection], plan: &StudyPlan) {
    for said in &plan.figures {
        let own = ns2_series(said, plan);
        if own.is_empty() {
            continue;
        }
        for section in sections.iter_mut().filter(|s| s.figures.iter().any(|f| f.name == said.name)) {
            section.text.push_str(
                "\n\nHollow markers named ns-2 are results of ns-2.35 itself, with the settings of \
                 docs/contribute/ns-2.md.",
            );
            for figure in section.figures.iter_mut().filter(|f| f.name == said.name) {
                let drawn: BTreeSet<String> = figure.series.iter().map(|s| s.name.clone()).collect();
                figure.series.extend(own.iter().filter(|(of, _)| drawn.contains(*of)).map(|(of, points)| {
                    FigureSeries {
                        name: format!("{of} (ns-2)"),
                        kind: SeriesKind::Reference,
                        points: points.clone(),
                        names: Vec::new(),
                    }
                }));
            }
        }
    }
}

/// Returns the curves of a figure for which ns-2 has points, by name.
fn ns2_series<'a>(said: &StudyFigure, plan: &'a StudyPlan) -> Vec<(&'a str, Vec<SeriesPoint>)> {
    let [metric] = &said.y.0[..] else { return Vec::new() };
    let [curves] = &said.series[..] else { return Vec::new() };
    let axis = |name: &str| plan.axes.iter().find(|a| a.name == name);
    let (Some(x), Some(curves)) = (axis(&said.x), axis(curves)) else { return Vec::new() };
    // On an axis that the figure fixes, ns-2 was run only at the axis's first value, its default.
    let held = |(name, value): (&str, &usher_scenario::model::ConfigValue)| {
        axis(name).is_some_and(|a| a.values.first().is_some_and(|v| v.text == value.to_string()))
    };
    if !said.filter.iter().all(held) {
        return Vec::new();
    }
    let own = curves.values.iter().map(|curve| {
        let of = ns2_points().iter().filter(|g| g.study == plan.study && g.series == curve.text);
        (
            curve.text.as_str(),
            of.filter_map(|g| ns2_figure_point(g, metric, said.statistic, x)).collect::<Vec<_>>(),
        )
    });
    own.filter(|(_, points)| !points.is_empty()).collect()
}

/// Returns a point within the axis and the figure's selection.
fn ns2_figure_point(
    given: &Ns2Point,
    metric: &str,
    statistic: SweepPointStatistic,
    x: &PlannedAxis,
) -> Option<SeriesPoint> {
    let number = crate::results::leading_number(&given.x)?;
    let numbers = || x.values.iter().filter_map(|v| v.number);
    let (least, most) = (numbers().reduce(f64::min)?, numbers().reduce(f64::max)?);
    let at = (least..=most).contains(&number).then_some(number)?;
    let bare = |y| SeriesPoint { low: f64::NAN, high: f64::NAN, ..SeriesPoint::from_exact(at, y) };
    match (metric, statistic) {
        ("delay.mean", SweepPointStatistic::Mean) => Some(SeriesPoint {
            low: given.delay.low,
            high: given.delay.high,
            ..SeriesPoint::from_exact(at, given.delay.mean)
        }),
        ("delay.mean", SweepPointStatistic::Median) => Some(bare(given.delay.median)),
        ("packets.core", SweepPointStatistic::Mean) => Some(bare(given.packets)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    #[test]
    fn every_point_is_of_a_curve_and_a_place_of_its_study() {
        assert!(ns2_points().len() > 50);
        for g in ns2_points() {
            let plan = Study::open(&g.study)
                .unwrap()
                .build_plan(StudyMode::Default, &PlanOverrides::default())
                .unwrap();
            let values = plan.axes.iter().flat_map(|a| &a.values);
            let known: Vec<&str> = values.map(|v| v.text.as_str()).collect();
            assert!(known.contains(&g.x.as_str()), "{g:?}");
            assert!(known.contains(&g.series.as_str()), "{g:?}");
            let Ns2Delay { mean, low, high, median } = g.delay;
            assert!(low <= mean && mean <= high && median > 0.0 && g.packets > 0.0, "{g:?}");
        }
    }

    #[test]
    fn they_stand_in_the_figures_of_their_metric_and_nowhere_else() {
        let plan = Study::open("aaa-hol")
            .unwrap()
            .build_plan(StudyMode::Default, &PlanOverrides::default())
            .unwrap();
        let section = |figure: &StudyFigure| ReportSection {
            figures: vec![usher_report::ReportFigure {
                name: figure.name.clone(),
                series: vec![FigureSeries { name: "Diameter/TCP".into(), ..FigureSeries::default() }],
                ..usher_report::ReportFigure::default()
            }],
            ..ReportSection::default()
        };
        let mut sections: Vec<ReportSection> = plan.figures.iter().map(section).collect();
        add_ns2_series(&mut sections, &plan);
        let with: Vec<&str> = sections
            .iter()
            .filter(|s| s.figures[0].series.len() > 1)
            .map(|s| s.figures[0].name.as_str())
            .collect();
        assert_eq!(with, ["delay-md5", "delay-median", "packets"]);
        let theirs = &sections[0].figures[0].series[1];
        // Curves that the figure does not have get no points.
        assert_eq!(sections[0].figures[0].series.len(), 2);
        assert_eq!((theirs.name.as_str(), theirs.kind), ("Diameter/TCP (ns-2)", SeriesKind::Reference));
        assert!(theirs.points.windows(2).all(|w| w[0].x < w[1].x && w[0].low <= w[0].mean));
        assert!(sections[0].text.contains("ns-2.35"));
    }
}
