//! Two runs in the same figures: the curves of one, and beside each those of the other.

use super::moved::{Tails, tails};
use super::report::{Estimates, figure, is_of};
use usher_observe::Row;
use usher_observe::summary::summarise;
use usher_report::{Figure, Kind, Section, Series};
use usher_scenario::Plan;
use usher_scenario::model::{self, FigureKind, StudyFile};

/// A run as its figures are drawn from it.
#[derive(Clone, Copy, Debug)]
pub struct Drawn<'a> {
    /// Its study.
    pub file: &'a StudyFile,
    /// Its plan.
    pub plan: &'a Plan,
    /// Its rows.
    pub rows: &'a [Row],
    /// What its curves are called beside the other's.
    pub name: &'a str,
}

impl Drawn<'_> {
    fn gathered(&self) -> (Estimates, Tails) {
        let level = self.plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
        let summaries = summarise(self.rows, level);
        let tails = tails(self.plan, &summaries, level);
        (summaries.into_iter().map(|s| ((s.point, s.metric.to_string()), s.estimate)).collect(), tails)
    }

    fn said(&self, name: &str) -> Option<&model::Figure> {
        self.curves().find(|said| said.name == name)
    }

    /// The figures that are of replications.
    fn curves(&self) -> impl Iterator<Item = &model::Figure> {
        self.plan.figures.iter().filter(|said| said.kind == FigureKind::Curve && is_of(said, self.plan))
    }
}

/// The figures that both runs have, each with the curves of both: the first's as ever, the second's hollow and dashed in the
/// colours of those that they are compared with.
pub fn overlay(one: Drawn<'_>, other: Drawn<'_>) -> Vec<Section> {
    let (of_one, of_other) = (one.gathered(), other.gathered());
    let section = |said: &model::Figure| {
        let theirs = other.said(&said.name)?;
        let mut drawn = figure(said, one.file, one.plan, &of_one.0, &of_one.1);
        let further = figure(theirs, other.file, other.plan, &of_other.0, &of_other.1);
        lay_over(&mut drawn, further, other.name);
        drawn.title = format!("{}: {}, and {}", drawn.title, one.name, other.name);
        let text =
            format!("Filled markers are of {}, hollow ones and dashed lines of {}.", one.name, other.name);
        Some(Section { text, figures: vec![drawn], ..Section::default() })
    };
    one.curves().filter_map(section).collect()
}

/// Puts what was measured in one figure into another, where it has a place there.
fn lay_over(drawn: &mut Figure, further: Figure, name: &str) {
    // What both have once is drawn once.
    for series in further.series.into_iter().filter(|s| s.kind.measured() && s.kind != Kind::Box) {
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
            points.push(usher_report::Point { x, moved: None, ..*point });
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
            // A curve that the first run has not has no panel of its own.
            None if divided => continue,
            None => {}
        }
        drawn.series.push(Series { name: beside, kind: Kind::Other, points, names });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_observe::Estimate;
    use usher_report::{Axis, Panel, Point};

    fn curve(name: &str, points: &[(f64, f64)]) -> Series {
        let point =
            |(x, mean): &(f64, f64)| Point::measured(*x, &Estimate { mean: *mean, half_width: 0.1, n: 5 });
        Series { name: name.into(), points: points.iter().map(point).collect(), ..Series::default() }
    }

    #[test]
    fn the_second_run_stands_beside_what_it_is_compared_with() {
        let mut one = Figure {
            x: Axis::categories("Way", ["a", "b"]),
            series: vec![curve("tcp", &[(0.0, 1.0), (1.0, 2.0)]), curve("udp", &[(0.0, 1.0)])],
            panels: vec![Panel { title: "p".into(), series: vec![(0, "tcp".into()), (1, "udp".into())] }],
            ..Figure::default()
        };
        let mut reference = curve("ns-2", &[(0.0, 9.0)]);
        reference.kind = Kind::Reference;
        let other = Figure {
            x: Axis::categories("Way", ["b", "c"]),
            series: vec![curve("tcp", &[(0.0, 3.0), (1.0, 4.0)]), curve("sctp", &[(0.0, 5.0)]), reference],
            ..Figure::default()
        };
        lay_over(&mut one, other, "B");
        assert_eq!(one.series.len(), 3, "what others measured, and a curve without a panel, are not drawn");
        let theirs = &one.series[2];
        assert_eq!((theirs.name.as_str(), theirs.kind), ("tcp (B)", Kind::Other));
        // The category "b" is the second here, and "c" has no place.
        assert_eq!(theirs.points.iter().map(|p| (p.x, p.mean)).collect::<Vec<_>>(), [(1.0, 3.0)]);
        assert_eq!(one.panels[0].series.last(), Some(&(2, "tcp (B)".to_owned())));
    }
}
