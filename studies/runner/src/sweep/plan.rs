//! From a scenario's plan to the sweep over it.

use super::{Goal, Sweep};
use std::collections::BTreeSet;
use usher_observe::{Point, Row, Stopping, Units};
use usher_scenario::model::{Replications, StudyFile};
use usher_scenario::{Plan, metrics};

/// The point as rows have it.
pub(super) fn point(point: &usher_scenario::Point) -> Point {
    Point::new(point.settings.iter().map(|s| (s.axis.as_str(), s.text.as_str())))
}

/// The stopping rule that a study file's `[run.replications]` says.
pub(super) fn stopping(rule: &Replications) -> Stopping {
    Stopping {
        share: rule.precision.get(),
        level: rule.confidence.get(),
        min: rule.min.get(),
        max: rule.max.get(),
    }
}

impl Sweep {
    /// The sweep over every point of a plan.
    pub fn of(plan: &Plan) -> Self {
        let goals = plan.points.iter().map(|p| Goal {
            point: point(p),
            stopping: stopping(&p.scenario.run.replications),
            watched: vec![p.scenario.run.replications.metric.clone()],
        });
        Self { study: plan.study.as_str().into(), plan: plan.hash.clone(), goals: goals.collect() }
    }
}

/// The units of a plan's axes, and of the metrics that these rows have.
pub fn units(file: &StudyFile, plan: &Plan, rows: &[Row]) -> Units {
    let mut units = Units::default();
    for axis in &plan.axes {
        let numbers = axis.values.iter().map(|value| Some((value.text.clone(), value.number?)));
        if let (Some(unit), Some(numbers)) = (&axis.unit, numbers.collect::<Option<Vec<_>>>()) {
            units.axis(&axis.name, unit, numbers);
        }
    }
    let names: BTreeSet<&str> = rows.iter().map(|row| &*row.metric).collect();
    for name in names {
        units.metric(name, metrics::find(name, file).map_or("", |metric| metric.unit));
    }
    units
}
