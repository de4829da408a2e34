//! The plan of a study: all combinations of its axes' values. Each is a scenario with a key and a seed.

use crate::model::{Scenario, StudyFigure};
use usher_config::ConfigDiagnostic;
use usher_core::Seed;

/// The thoroughness of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StudyMode {
    /// For a first look: `[quick]` and the axes' quick values.
    Quick,
    /// The file's own settings.
    #[default]
    Default,
    /// For publication: `[full]` and the axes' full values.
    Full,
    /// Each choice of the study in turn: `[sensitivity]` and the axes' sensitivity values.
    Sensitivity,
    /// In real time on the kernel's network: `[lab]` and the axes' lab values.
    Lab,
}

impl StudyMode {
    /// All modes.
    pub const ALL: [Self; 5] = [Self::Quick, Self::Default, Self::Full, Self::Sensitivity, Self::Lab];

    /// Returns its name, which is also the name of its table in a study file.
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

/// The caller's changes to a study for one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlanOverrides {
    /// Axes with their new values, or paths of settings with one value; see [`PlanOverrides::add_setting`].
    pub set: Vec<(String, String)>,
    /// Replaces the file's seed.
    pub seed: Option<u64>,
    /// Exact number of replications of every point.
    pub replications: Option<u32>,
}

impl PlanOverrides {
    /// Adds a `--set`: `loss=1 %,5 %` replaces the values of an axis, `workload.arrivals.rate=10 /s` the value of a
    /// setting. A number without a unit takes the axis's unit.
    ///
    /// # Errors
    /// The argument has no `=` with text on both sides.
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

/// The extra axis of a [`StudyMode::Sensitivity`] plan.
pub const VARIANT: &str = "variant";
/// The value of [`VARIANT`] with every choice at its default.
pub const DEFAULT: &str = "default";

/// All points of a study to run.
#[derive(Clone, PartialEq, Debug)]
pub struct StudyPlan {
    /// The study's name.
    pub study: String,
    /// How thoroughly.
    pub mode: StudyMode,
    /// The axes, with the values of this plan.
    pub axes: Vec<PlannedAxis>,
    /// Every combination of the axes' values; the last axis varies fastest.
    pub points: Vec<PlanPoint>,
    /// The figures to draw.
    pub figures: Vec<StudyFigure>,
    /// Warnings about misleading settings.
    pub warnings: Vec<ConfigDiagnostic>,
    /// A digest of the file's meaning, the mode and the overrides, in hexadecimal. Two plans with the same hash have
    /// the same points and give the same rows, so a run can continue the other's results. The digest omits comments,
    /// titles, figures, recommendations, captures and other modes, but includes the metrics that figures and
    /// recommendations need.
    pub hash: String,
}

/// An axis in a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct PlannedAxis {
    /// Its name.
    pub name: String,
    /// Its name in figures.
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
    /// The value as a number in the axis's unit, if it is numeric.
    pub number: Option<f64>,
}

/// One combination of the axes' values.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanPoint {
    /// Its index in the plan, from 0.
    pub index: usize,
    /// Its key in rows and for resuming: `loss=5 %; method=eap-md5`, or `-` in a study without axes. The key depends on
    /// the point's own settings only.
    pub key: String,
    /// One value for each axis, in the order of the axes.
    pub settings: Vec<AxisSetting>,
    /// The network and workload of this point.
    pub scenario: Scenario,
    /// The seed from which the seeds of its replications derive.
    pub(crate) seed: Seed,
}

impl PlanPoint {
    /// Returns the seed of a replication.
    ///
    /// Common random numbers: replication r has the same seed at every point. Points that differ only in the protocol
    /// then have like arrivals and losses, and paired differences are sharp. An axis with `common_random_numbers =
    /// false` gives each of its values its own seed. The seed depends on the value, not on its position, so a point run
    /// alone has the seed of the sweep.
    pub fn replication_seed(&self, replication: u32) -> Seed {
        self.seed.derive_seed("replication", u64::from(replication))
    }

    /// Returns the value of an axis at this point.
    pub fn axis_setting(&self, axis: &str) -> Option<&AxisSetting> {
        self.settings.iter().find(|s| s.axis == axis)
    }

    /// Returns the arguments that select this point alone: `--set`, `loss=5 %`, ….
    pub fn set_arguments(&self) -> Vec<String> {
        self.settings.iter().flat_map(|s| ["--set".to_owned(), format!("{}={}", s.axis, s.text)]).collect()
    }
}

/// Returns the key of a point.
pub(crate) fn grid_point_key(settings: &[AxisSetting]) -> String {
    if settings.is_empty() {
        return "-".to_owned();
    }
    settings.iter().map(|s| format!("{}={}", s.axis, s.text)).collect::<Vec<_>>().join("; ")
}

impl StudyPlan {
    /// Returns the minimum and maximum number of runs.
    pub fn run_count_range(&self) -> (u64, u64) {
        self.points.iter().fold((0, 0), |(min, max), p| {
            let r = &p.scenario.run.replications;
            (min + u64::from(r.min.get()), max + u64::from(r.max.get()))
        })
    }
}
