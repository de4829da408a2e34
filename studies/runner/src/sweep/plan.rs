//! Converts a scenario's plan to the sweep over it.

use super::{PointStoppingPlan, SweepPlan};
use std::collections::BTreeSet;
use usher_observe::{GridPoint, ResultRow, ResultRowUnits, StoppingRule};
use usher_scenario::model::{ReplicationRule, StudyFile};
use usher_scenario::{StudyPlan, metrics};

/// Converts a plan's point to the point of rows.
pub(super) fn to_grid_point(point: &usher_scenario::PlanPoint) -> GridPoint {
    GridPoint::new(point.settings.iter().map(|s| (s.axis.as_str(), s.text.as_str())))
}

/// Returns the stopping rule of a study file's `[run.replications]`.
pub(super) fn stopping_rule(rule: &ReplicationRule) -> StoppingRule {
    StoppingRule {
        share: rule.precision.get(),
        level: rule.confidence.get(),
        min: rule.min.get(),
        max: rule.max.get(),
    }
}

impl SweepPlan {
    /// Creates the sweep over every point of a plan.
    pub fn from_plan(plan: &StudyPlan) -> Self {
        let goals = plan.points.iter().map(|p| PointStoppingPlan {
            point: to_grid_point(p),
            stopping: stopping_rule(&p.scenario.run.replications),
            watched: vec![p.scenario.run.replications.metric.clone()],
        });
        Self { study: plan.study.as_str().into(), plan: plan.hash.clone(), goals: goals.collect() }
    }
}

/// Returns the units of a plan's axes and of the metrics in these rows.
pub fn collect_units(file: &StudyFile, plan: &StudyPlan, rows: &[ResultRow]) -> ResultRowUnits {
    let mut units = ResultRowUnits::default();
    for axis in &plan.axes {
        let numbers = axis.values.iter().map(|value| Some((value.text.clone(), value.number?)));
        if let (Some(unit), Some(numbers)) = (&axis.unit, numbers.collect::<Option<Vec<_>>>()) {
            units.set_axis_unit(&axis.name, unit, numbers);
        }
    }
    let names: BTreeSet<&str> = rows.iter().map(|row| &*row.metric).collect();
    for name in names {
        units.set_metric_unit(name, metrics::find_metric(name, file).map_or("", |metric| metric.unit));
    }
    units
}
