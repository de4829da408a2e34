//! The plan of a study: every combination of its axes' values, each a scenario with a key and a seed.

use crate::model::{Scenario, StudyFigure};
use usher_config::ConfigDiagnostic;
use usher_core::Seed;

/// How thoroughly a study is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StudyMode {
    /// For a first look: `[quick]` and the axes' quick values.
    Quick,
    /// As the file says.
    #[default]
    Default,
    /// For publication: `[full]` and the axes' full values.
    Full,
    /// Every choice of the study in turn: `[sensitivity]` and the axes' sensitivity values.
    Sensitivity,
    /// In real time, on a network of the kernel's: `[lab]` and the axes' lab values.
    Lab,
}

impl StudyMode {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Quick, Self::Default, Self::Full, Self::Sensitivity, Self::Lab];

    /// Its name, which is also its table's in a study file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
            Self::Sensitivity => "sensitivity",
            Self::Lab => "lab",
        }
    }
}

/// What the caller changes for one run of a study.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanOverrides {
    /// Axes with the values to take instead of theirs, or paths of settings with one value; see
    /// [`PlanOverrides::add_setting`].
    pub set: Vec<(String, String)>,
    /// In place of the file's seed.
    pub seed: Option<u64>,
    /// Exactly so many replications of every point.
    pub replications: Option<u32>,
}

impl PlanOverrides {
    /// Takes one `--set`: `loss=1 %,5 %` gives an axis other values, `workload.arrivals.rate=10 /s` gives a
    /// setting another value. A number without a unit takes the axis's.
    ///
    /// # Errors
    /// When there is no `=` with something on either side of it.
    pub fn add_setting(&mut self, argument: &str) -> Result<(), String> {
        match argument.split_once('=') {
            Some((name, values)) if !name.trim().is_empty() && !values.trim().is_empty() => {
                self.set.push((name.trim().to_owned(), values.trim().to_owned()));
                Ok(())
            }
            _ => Err(format!("--set {argument}: write axis=value,value, such as \"loss=1 %,5 %\"")),
        }
    }
}

/// The axis that a plan of [`StudyMode::Sensitivity`] has beside the file's, and its value with every choice at its
/// default.
pub const VARIANT: &str = "variant";
/// See [`VARIANT`].
pub const DEFAULT: &str = "default";

/// Every run of a study.
#[derive(Clone, PartialEq, Debug)]
pub struct StudyPlan {
    /// The study's name.
    pub study: String,
    /// How thoroughly.
    pub mode: StudyMode,
    /// What is varied, with the values that this plan takes.
    pub axes: Vec<PlannedAxis>,
    /// Every combination of the axes' values; the last axis varies fastest.
    pub points: Vec<PlanPoint>,
    /// What is drawn.
    pub figures: Vec<StudyFigure>,
    /// What is right and may mislead.
    pub warnings: Vec<ConfigDiagnostic>,
    /// A digest of what the file says, the mode and the overrides, in hexadecimal. Two plans with the same hash
    /// have the same points and give the same rows: results of one can be continued by the other. Comments, titles, figures,
    /// recommendations, captures and what other modes do are not part of it, but for the metrics that figures and
    /// recommendations ask for.
    pub hash: String,
}

/// An axis as a plan takes it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedAxis {
    /// Its name.
    pub name: String,
    /// What figures call it.
    pub label: String,
    /// The unit of its numbers.
    pub unit: Option<String>,
    /// Its values in order.
    pub values: Vec<AxisSetting>,
}

/// One value of one axis.
#[derive(Clone, PartialEq, Debug)]
pub struct AxisSetting {
    /// The axis's name.
    pub axis: String,
    /// The value as text: a quantity as `5 %`, a case by its name.
    pub text: String,
    /// The value as a number in the axis's unit, where it is one.
    pub number: Option<f64>,
}

/// One combination of the axes' values.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanPoint {
    /// Its place in the plan, from 0.
    pub index: usize,
    /// Its name in rows and for resumption: `loss=5 %; method=eap-md5`, or `-` in a study without axes. The
    /// same settings give the same key, whatever else the plan holds.
    pub key: String,
    /// One value for each axis, in the order of the axes.
    pub settings: Vec<AxisSetting>,
    /// The world in which it runs.
    pub scenario: Scenario,
    /// From which its replications' seeds derive.
    pub(crate) seed: Seed,
}

impl PlanPoint {
    /// The seed of one replication.
    ///
    /// Common random numbers: replication r has the same seed at every point, so that the arrivals and the
    /// losses are alike where only the protocol differs, and paired differences are sharp. An axis with
    /// `common_random_numbers = false` gives each of its values a seed of its own. The seed depends on the
    /// value, not on its place: a point run alone draws what it draws in the sweep.
    pub fn replication_seed(&self, replication: u32) -> Seed {
        self.seed.derive_seed("replication", u64::from(replication))
    }

    /// The value of an axis at this point.
    pub fn axis_setting(&self, axis: &str) -> Option<&AxisSetting> {
        self.settings.iter().find(|s| s.axis == axis)
    }

    /// The arguments that choose this point alone: `--set`, `loss=5 %`, ….
    pub fn set_arguments(&self) -> Vec<String> {
        self.settings.iter().flat_map(|s| ["--set".to_owned(), format!("{}={}", s.axis, s.text)]).collect()
    }
}

/// A point's key.
pub(crate) fn point_key(settings: &[AxisSetting]) -> String {
    if settings.is_empty() {
        return "-".to_owned();
    }
    settings.iter().map(|s| format!("{}={}", s.axis, s.text)).collect::<Vec<_>>().join("; ")
}

impl StudyPlan {
    /// How many runs there are at least and at most.
    pub fn run_count_range(&self) -> (u64, u64) {
        self.points.iter().fold((0, 0), |(min, max), p| {
            let r = &p.scenario.run.replications;
            (min + u64::from(r.min.get()), max + u64::from(r.max.get()))
        })
    }
}
