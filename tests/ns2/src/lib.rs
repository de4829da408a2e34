//! The simulator beside ns-2 and ns-3: scenarios that stand in `scenarios/` twice, as a study and as Tcl or C++, and what both give.
//!
//! A study has one axis, whose cases are named as the command lines that the other simulator's script or program gets. ns-2 is
//! Debian's package `ns2`, as it is; [`ns3`] is its own.

pub mod messages;
pub mod ns3;
mod reference;
pub mod transfer;

use ns3::ScenarioProgram;
pub use reference::{ReferenceMeans, ReferenceRuns, WRITE};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use usher_core::Seed;
use usher_observe::stats::{MeanEstimate, quantile};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Scenario, Study, StudyMode};

/// How far apart the means may be, as a share of ns-2's.
pub const NEAR: f64 = 0.05;
/// How wide, as half its width, an interval may be that only has to overlap, as a share of its mean.
pub const NARROW: f64 = 0.1;
/// The level of the intervals.
pub const LEVEL: f64 = 0.95;
/// How long one run of ns-2 may take by the clock of a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(1200);

/// Every scenario for ns-2, by the name of its files.
pub const SCENARIOS: [&str; 9] = [
    "tcp-reno",
    "tcp-sack",
    "tcp-second",
    "tcp-transfer",
    "tcp-nagle",
    "tcp-delack",
    "tcp-background",
    "udp",
    "sctp-ftp",
];

/// The scenario for ns-3.
pub const NS3_SCENARIO: &str = "ns3-tcp";

/// What runs a scenario beside the study.
#[derive(Clone, Copy, Debug)]
enum ReferenceSimulator<'a> {
    Ns2,
    Ns3(&'a ScenarioProgram),
}

impl ReferenceSimulator<'_> {
    /// What one run printed, as [`run_ns2`] has it.
    fn run_scenario(self, scenario: &str, arguments: &[String]) -> Result<BTreeMap<String, String>, String> {
        match self {
            Self::Ns2 => run_ns2(scenario, arguments),
            Self::Ns3(program) => ns3::run_program(program, arguments),
        }
    }
}

/// The mean delay of one case in both simulators, in seconds.
#[derive(Clone, Debug)]
pub struct CaseComparison {
    /// The scenario.
    pub scenario: String,
    /// The case, as the other simulator's command line has it.
    pub case: String,
    /// Of the other simulator: over the replications the mean of their mean delays, and the median.
    pub theirs: (MeanEstimate, f64),
    /// The same of the simulator.
    pub ours: (MeanEstimate, f64),
    /// Runs of the other simulator, and replications of the simulator.
    pub runs: (usize, usize),
}

impl CaseComparison {
    /// Within [`NEAR`], or intervals that overlap and are [`NARROW`].
    pub fn agrees(&self) -> bool {
        let (ours, theirs) = (&self.ours.0, &self.theirs.0);
        let overlap = ours.low() <= theirs.high() && theirs.low() <= ours.high();
        (ours.mean - theirs.mean).abs() <= NEAR * theirs.mean
            || (overlap && is_narrow(ours) && is_narrow(theirs))
    }

    /// A row of the table in `docs/ns-2.md` or `docs/ns-3.md`.
    pub fn table_row(&self) -> String {
        let of = |e: &MeanEstimate| {
            format!("{} ± {} ms", format_number(e.mean * 1e3), format_number(e.half_width * 1e3))
        };
        let off = (self.ours.0.mean / self.theirs.0.mean - 1.0) * 100.0;
        let verdict = if self.agrees() { "agrees" } else { "differs" };
        format!(
            "| `{}` | `{}` | {}, {} | {} | {} | {off:+.1} % | {} | {} | {verdict} |",
            self.scenario,
            self.case,
            self.runs.0,
            self.runs.1,
            of(&self.theirs.0),
            of(&self.ours.0),
            format_number(self.theirs.1 * 1e3),
            format_number(self.ours.1 * 1e3),
        )
    }
}

/// Three digits that tell something, without a power of ten.
fn format_number(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// The folder of the scenarios.
pub fn scenario_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// The repository's root.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What one run of ns-2 printed: values by name, of a line `name=value name=value ...`.
///
/// # Errors
/// As [`ns2_output`], and where there is no such line.
pub fn run_ns2(scenario: &str, arguments: &[String]) -> Result<BTreeMap<String, String>, String> {
    let out = ns2_output(&scenario_directory().join(format!("{scenario}.tcl")), arguments)?;
    values_of(&out).ok_or_else(|| format!("ns {scenario} {}: {out}", arguments.join(" ")))
}

/// The values of the line of results in what a run printed.
pub(crate) fn values_of(printed: &str) -> Option<BTreeMap<String, String>> {
    let line = printed.lines().find(|l| l.starts_with("scenario="))?;
    Some(
        line.split(' ')
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    )
}

/// All that one run of ns-2 printed.
///
/// # Errors
/// Where `ns` is missing, takes too long or fails.
pub fn ns2_output(script: &Path, arguments: &[String]) -> Result<String, String> {
    let mut words = vec![script.display().to_string()];
    words.extend_from_slice(arguments);
    printed_by("ns", &words).map_err(|e| format!("{e}; scripts/setup installs Debian's package ns2"))
}

/// All that one run of a program printed.
pub(crate) fn printed_by(program: &str, arguments: &[String]) -> Result<String, String> {
    let said = format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("{said}: {e}"))?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| format!("{said}: {e}"))? {
            Some(status) => break status,
            None if begun.elapsed() > RUN_TIMEOUT => {
                let ended = child.kill().and_then(|()| child.wait());
                return Err(format!("{said}: still at it after {RUN_TIMEOUT:?} ({ended:?})"));
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let (mut out, mut err) = (String::new(), String::new());
    let read = |from: Option<&mut dyn Read>, to: &mut String| {
        from.map_or(Ok(0), |f| f.read_to_string(to)).map_err(|e| format!("{said}: {e}"))
    };
    read(child.stdout.as_mut().map(|s| s as &mut dyn Read), &mut out)?;
    read(child.stderr.as_mut().map(|s| s as &mut dyn Read), &mut err)?;
    if !status.success() {
        return Err(format!("{said}: {status}\n{out}{err}"));
    }
    Ok(out)
}

/// The mean delay of one run of the other simulator, in seconds.
///
/// # Errors
/// As [`run_ns2`], and where dialogues did not end.
fn reference_mean(
    opponent: ReferenceSimulator<'_>,
    scenario: &str,
    case: &str,
    seed: u32,
) -> Result<f64, String> {
    let mut arguments = split_words(case);
    arguments.extend(["seed".to_owned(), seed.to_string()]);
    let line = opponent.run_scenario(scenario, &arguments)?;
    if line.get("failed").is_none_or(|failed| failed != "0") {
        return Err(format!("{scenario} {case}: the other simulator's dialogues did not end: {line:?}"));
    }
    let mean = line.get("mean").and_then(|v| v.parse().ok());
    mean.ok_or_else(|| format!("{scenario} {case}: no mean in {line:?}"))
}

/// The mean delay of one replication of the simulator, in seconds.
fn simulated_mean(scenario: &Scenario, seed: Seed) -> Result<f64, String> {
    let result = ScenarioRun::new(scenario, seed, &[], None)
        .and_then(ScenarioRun::run_to_end)
        .map_err(|e| e.to_string())?;
    let get = |name: &str| result.metrics.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
    match get("failures") {
        Some(failures) if failures > 0.0 => Err(format!("{failures} of the simulator's dialogues failed")),
        _ => get("delay.mean").ok_or_else(|| "no mean delay".to_owned()),
    }
}

/// Runs `one` with the numbers from 0 on until the interval of what it gives is [`NARROW`], but at least `least` and at most
/// `most` times. Nothing else decides how often: not what the other simulator gave.
///
/// # Errors
/// Those of `one`.
pub fn until_narrow(
    least: u32,
    most: u32,
    mut one: impl FnMut(u32) -> Result<f64, String>,
) -> Result<Vec<f64>, String> {
    let mut values = Vec::new();
    for number in 0..most.max(least) {
        if number >= least && is_narrow(&MeanEstimate::from_values(&values, LEVEL)) {
            break;
        }
        values.push(one(number)?);
    }
    Ok(values)
}

fn is_narrow(e: &MeanEstimate) -> bool {
    e.half_width < NARROW * e.mean
}

/// The words of a command line; braces hold some together, as Tcl has it.
fn split_words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (i, part) in line.split(['{', '}']).enumerate() {
        if i % 2 == 1 {
            all.push(part.to_owned());
        } else {
            all.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    all
}

/// The mean with its interval, and the median.
pub fn estimate_and_median(mut values: Vec<f64>) -> (MeanEstimate, f64) {
    let all = MeanEstimate::from_values(&values, LEVEL);
    values.sort_by(f64::total_cmp);
    (all, quantile(&values, 0.5))
}

/// Both simulators on every case of a scenario.
///
/// # Errors
/// A faulty study, a failed run, and a repeated run that differs from its recording.
pub fn compare_scenario(scenario: &str, runs: ReferenceRuns) -> Result<Vec<CaseComparison>, String> {
    if scenario == NS3_SCENARIO {
        return compare_ns3(&ScenarioProgram::compile(scenario)?, runs);
    }
    compare_with(ReferenceSimulator::Ns2, scenario, runs)
}

/// The same of the scenario for ns-3, which is compiled.
///
/// # Errors
/// As [`compare_scenario`].
pub fn compare_ns3(program: &ScenarioProgram, runs: ReferenceRuns) -> Result<Vec<CaseComparison>, String> {
    compare_with(ReferenceSimulator::Ns3(program), NS3_SCENARIO, runs)
}

fn compare_with(
    opponent: ReferenceSimulator<'_>,
    scenario: &str,
    runs: ReferenceRuns,
) -> Result<Vec<CaseComparison>, String> {
    let path = scenario_directory().join(format!("{scenario}.toml"));
    let study = Study::load(&path).map_err(|e| e.to_string())?;
    let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).map_err(|e| e.to_string())?;
    let mut recording = ReferenceMeans::open(scenario, runs)?;
    let mut lines = Vec::new();
    for point in &plan.points {
        let case = point.axis_setting("ns").ok_or("the study lacks its axis 'ns'")?.text.clone();
        let replications = &point.scenario.run.replications;
        let (least, most) = (replications.min.get(), replications.max.get());
        let ours = until_narrow(least, most, |number| {
            simulated_mean(&point.scenario, point.replication_seed(number))
                .map_err(|e| format!("{scenario} {case}: {e}"))
        })?;
        let theirs = until_narrow(least, most, |number| {
            let run = || reference_mean(opponent, scenario, &case, number + 1);
            recording.run_mean(&case, u64::from(number) + 1, number == 0, run)
        })?;
        let runs = (theirs.len(), ours.len());
        lines.push(CaseComparison {
            scenario: scenario.to_owned(),
            case,
            theirs: estimate_and_median(theirs),
            ours: estimate_and_median(ours),
            runs,
        });
    }
    recording.write_recording()?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_comparison(theirs: (f64, f64), ours: (f64, f64)) -> CaseComparison {
        let of = |(mean, half_width)| (MeanEstimate { mean, half_width, n: 9 }, mean);
        let runs = (9, 9);
        CaseComparison {
            scenario: "s".into(),
            case: "loss 0".into(),
            theirs: of(theirs),
            ours: of(ours),
            runs,
        }
    }

    #[test]
    fn near_means_agree_whatever_their_intervals() {
        assert!(test_comparison((1.0, 0.5), (1.049, 0.0)).agrees());
        assert!(test_comparison((1.0, 0.0), (0.96, 0.9)).agrees());
    }

    #[test]
    fn distant_means_agree_only_if_narrow_intervals_overlap() {
        assert!(test_comparison((1.0, 0.09), (1.15, 0.09)).agrees());
        // They overlap, and one says next to nothing.
        assert!(!test_comparison((1.0, 0.09), (1.15, 0.2)).agrees());
        assert!(!test_comparison((1.0, 0.05), (1.15, 0.05)).agrees());
    }

    #[test]
    fn runs_are_added_until_the_interval_is_narrow_and_no_more() {
        let of = |least, most, values: &'static [f64]| {
            until_narrow(least, most, |number| Ok(values[number as usize])).unwrap().len()
        };
        assert_eq!(of(3, 9, &[1.0, 1.0, 1.0]), 3);
        // Of 1, 2 and 1.5 it is 1.24 to either side, and of all five 0.42 of a mean of 1.5; a sixth makes 0.33 of it.
        assert_eq!(of(3, 6, &[1.0, 2.0, 1.5, 1.5, 1.5, 1.5]), 6);
        // Of four values it is 0.13 to either side of 1.1, of five 0.09.
        assert_eq!(of(2, 9, &[1.0, 1.2, 1.1, 1.1, 1.1, 1.1]), 5);
    }

    #[test]
    fn a_command_line_is_read_as_tcl_reads_it() {
        let all = split_words("loss 0.05 rounds {200 100} seed 1");
        assert_eq!(all, ["loss", "0.05", "rounds", "200 100", "seed", "1"]);
    }
}
