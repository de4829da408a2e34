//! From a scenario's plan to the sweep over it.

use super::{Goal, Sweep};
use usher_observe::{Point, Stopping};
use usher_scenario::Plan;
use usher_scenario::model::Replications;

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
