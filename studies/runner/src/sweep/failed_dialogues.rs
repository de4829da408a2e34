//! Dialogues that failed, which a reader must know before any delay.

use super::{SweepResults, key};
use std::collections::HashMap;
use std::fmt;
use usher_observe::GridPoint;
use usher_scenario::model::Workload;
use usher_scenario::{StudyPlan, metrics};

/// The points of a run at which dialogues of a workload failed, and the worst point.
#[derive(Clone, PartialEq, Debug)]
pub struct DialogueFailureSummary {
    /// Number of points with failures.
    pub points: usize,
    /// Number of points with results.
    pub total_points: usize,
    /// The point with the largest share; the first of equals.
    pub worst: GridPoint,
    /// The share of failed dialogues there, the mean over its replications, above 0 and at most 1.
    pub share: f64,
    /// The study's noun for a dialogue: "dialogues", "authentications", "questions", "transactions", "handovers"; with
    /// the workload's name if there are several, as in `authentications of "wifi"`.
    pub noun: String,
    /// True if delays cover only successful dialogues.
    delays_leave_out: bool,
}

impl DialogueFailureSummary {
    /// Finds the workloads with failures in the rows of a run, larger shares first.
    pub fn from_results(plan: &StudyPlan, results: &SweepResults) -> Vec<Self> {
        let workloads = plan.points.first().into_iter().flat_map(|point| point.scenario.all_workloads());
        let failing = workloads.filter_map(|(name, workload)| Self::of_workload((name, workload), results));
        let mut failing: Vec<Self> = failing.collect();
        failing.sort_by(|a, b| b.share.total_cmp(&a.share));
        failing
    }

    fn of_workload((name, workload): (&str, &Workload), results: &SweepResults) -> Option<Self> {
        let metric = metrics::FAILURES.of_workload(name);
        let mut sums: HashMap<&GridPoint, (f64, u32)> = HashMap::new();
        for row in results.rows.iter().filter(|r| *r.metric == *metric) {
            let (sum, n) = sums.entry(&row.point).or_default();
            *sum += row.value;
            *n += 1;
        }
        let mut failing: Option<(usize, &GridPoint, f64)> = None;
        for (point, share) in results.points.iter().filter_map(|p| {
            let (sum, n) = sums.get(&p.point)?;
            Some((&p.point, sum / f64::from(*n)))
        }) {
            if share > 0.0 {
                let (points, worst, most) = failing.unwrap_or((0, point, 0.0));
                failing =
                    Some(if share > most { (points + 1, point, share) } else { (points + 1, worst, most) });
            }
        }
        let (points, worst, share) = failing?;
        let noun = match workload {
            Workload::Eap(_) | Workload::Ike(_) => "authentications",
            Workload::Ident(_) => "queries",
            Workload::Mih(_) => "transactions",
            Workload::Pppoe(_) => "sessions",
            Workload::Handover(_) => "handovers",
            Workload::Dialogue(_) => "dialogues",
        };
        let noun = if name.is_empty() { noun.to_owned() } else { format!("{noun} of \"{name}\"") };
        let delays_leave_out = !matches!(workload, Workload::Handover(_));
        Some(Self { points, total_points: sums.len(), worst: worst.clone(), share, noun, delays_leave_out })
    }
}

impl fmt::Display for DialogueFailureSummary {
    /// Writes one or two sentences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = format_percent(self.share);
        match (self.total_points, key::format_point(&self.worst)) {
            (_, at) if at.is_empty() => write!(f, "{share} of the {} failed.", self.noun)?,
            (of, at) => write!(
                f,
                "{} failed at {} of {of} points: {share} of them at the worst point ({at}).",
                capitalise_noun(&self.noun),
                self.points
            )?,
        }
        if self.delays_leave_out {
            f.write_str(" Delays cover only those that ended well.")?;
        }
        Ok(())
    }
}

/// Formats a share with three digits: `37.6 %`, `0.0120 %`, `100 %`.
pub(super) fn format_percent(share: f64) -> String {
    let percent = share * 100.0;
    let magnitude = if percent > 0.0 { libm::floor(libm::log10(percent) + 1e-9) } else { 0.0 };
    let places = (2.0 - magnitude).clamp(0.0, 12.0) as usize;
    format!("{percent:.places$} %")
}

fn capitalise_noun(noun: &str) -> String {
    let mut letters = noun.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{PointResult, RunCostStats};
    use usher_observe::ResultRow;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    /// Results of the template's points with these shares of failures, two replications each.
    fn results_with_failures(plan: &StudyPlan, shares: &[[f64; 2]]) -> SweepResults {
        let points: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        let row = |point: &GridPoint, replication, value| ResultRow {
            study: "t".into(),
            point: point.clone(),
            replication,
            metric: "failures".into(),
            value,
        };
        let rows = points.iter().zip(shares).flat_map(|(p, s)| [row(p, 0, s[0]), row(p, 1, s[1])]);
        SweepResults {
            rows: rows.collect(),
            points: points
                .iter()
                .map(|p| PointResult { point: p.clone(), replications: 2, complete: true, converged: true })
                .collect(),
            facts: RunCostStats::default(),
            failures: Vec::new(),
            resumed: 0,
            broken: None,
            complete: true,
        }
    }

    #[test]
    fn the_worst_point_is_named_with_its_share() {
        let study = Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        assert!(plan.points.len() > 2);
        let mut shares = vec![[0.0, 0.0]; plan.points.len()];
        assert_eq!(DialogueFailureSummary::from_results(&plan, &results_with_failures(&plan, &shares)), []);
        shares[1] = [0.001, 0.0];
        shares[2] = [0.9, 0.88];
        let all = DialogueFailureSummary::from_results(&plan, &results_with_failures(&plan, &shares));
        let [failing] = &all[..] else { panic!("{all:?}") };
        assert_eq!((failing.points, failing.total_points), (2, plan.points.len()));
        assert!((failing.share - 0.89).abs() < 1e-12);
        let worst = crate::sweep::plan::to_grid_point(&plan.points[2]);
        let noun = match plan.points[0].scenario.workload {
            Some(Workload::Eap(_) | Workload::Ike(_)) => "Authentications",
            _ => "Dialogues",
        };
        let text = format!(
            "{noun} failed at 2 of {} points: 89.0 % of them at the worst point ({}). Delays cover only those that \
             ended well.",
            plan.points.len(),
            key::format_point(&worst)
        );
        assert_eq!(failing.to_string(), text);
    }

    #[test]
    fn each_workload_that_fails_is_told() {
        let dialogue = |name: &str, server: &str| {
            format!(
                "[workloads.{name}]\nkind = \"dialogue\"\nclients = \"client\"\nserver = \"{server}\"\ntransport = \"udp\"\n\
                 rounds = [{{ request = \"1 B\", answer = \"1 B\" }}]\narrivals = {{ kind = \"poisson\", rate = \"1 /s\" }}\n"
            )
        };
        let text = format!(
            "title = \"T\"\nquestion = \"Q?\"\n[run]\nduration = \"1 s\"\nreplications = {{ metric = \"delay.mean.a\" }}\n\
             [hosts.client]\n[hosts.one]\n[hosts.two]\n[links.one]\nbetween = [\"client\", \"one\"]\n\
             [links.two]\nbetween = [\"client\", \"two\"]\n{}{}",
            dialogue("a", "one"),
            dialogue("b", "two")
        );
        let study = Study::parse("t", "t.toml", &text).unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let mut of_both = results_with_failures(&plan, &[[0.25, 0.25]]);
        let mut of_b = of_both.rows.clone();
        of_both.rows.iter_mut().for_each(|row| row.metric = "failures.a".into());
        of_b.iter_mut().for_each(|row| (row.metric, row.value) = ("failures.b".into(), 0.5));
        of_both.rows.extend(of_b);
        let told = DialogueFailureSummary::from_results(&plan, &of_both)
            .iter()
            .map(|f| f.to_string())
            .collect::<Vec<_>>();
        assert!(
            told.len() == 2 && told[0].starts_with("50.0 % of") && told[1].starts_with("25.0 % of"),
            "{told:?}"
        );
        assert!(told[0].contains("of \"b\"") && told[1].contains("of \"a\""), "{told:?}");
    }

    #[test]
    fn a_study_of_one_point_says_it_shortly() {
        let failing = DialogueFailureSummary {
            points: 1,
            total_points: 1,
            worst: GridPoint::default(),
            share: 0.376,
            noun: "handovers".to_owned(),
            delays_leave_out: false,
        };
        assert_eq!(failing.to_string(), "37.6 % of the handovers failed.");
        assert_eq!([1.0, 0.05, 0.000_12].map(format_percent), ["100 %", "5.00 %", "0.0120 %"]);
    }
}
