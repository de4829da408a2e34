//! Compares the simulator with ns-2 and ns-3. Each scenario in `scenarios/` is both a study and a Tcl script or C++
//! program.
//!
//! A study has one axis. Its cases are named like the command lines of the other simulator's script or program. ns-2
//! is Debian's package `ns2`, unmodified. For ns-3, see [`ns3`].

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

/// The largest difference of the means that counts as agreement, as a share of ns-2's mean.
pub const NEAR: f64 = 0.05;
/// The largest half-width of a narrow interval, as a share of its mean. Narrow intervals agree if they overlap.
pub const NARROW: f64 = 0.1;
/// The confidence level of the intervals.
pub const LEVEL: f64 = 0.95;
/// The timeout of one run of ns-2, in wall-clock time of a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(1200);

/// All scenarios for ns-2, by the names of their files.
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

/// The reference simulator of a scenario.
#[derive(Clone, Copy, Debug)]
enum ReferenceSimulator<'a> {
    Ns2,
    Ns3(&'a ScenarioProgram),
}

impl ReferenceSimulator<'_> {
    /// Runs a scenario once and returns its results, as [`run_ns2`].
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
    /// The case, as the command line of the other simulator.
    pub case: String,
    /// The other simulator's mean over its runs' mean delays, and the median.
    pub theirs: (MeanEstimate, f64),
    /// The same for our simulator.
    pub ours: (MeanEstimate, f64),
    /// The number of the other simulator's runs, and of our replications.
    pub runs: (usize, usize),
}

impl CaseComparison {
    /// True if the means differ by at most [`NEAR`], or if the intervals overlap and are [`NARROW`].
    pub fn agrees(&self) -> bool {
        let (ours, theirs) = (&self.ours.0, &self.theirs.0);
        let overlap = ours.low() <= theirs.high() && theirs.low() <= ours.high();
        (ours.mean - theirs.mean).abs() <= NEAR * theirs.mean
            || (overlap && is_narrow(ours) && is_narrow(theirs))
    }

    /// Formats a row of the table in `docs/measurements/ns-2.md` or `docs/measurements/ns-3.md`.
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

/// Formats three significant digits without an exponent.
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

/// Returns the folder of the scenarios.
pub fn scenario_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// Returns the root of the repository.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs ns-2 once and returns the values of its line `name=value name=value ...`, by name.
///
/// # Errors
/// As [`ns2_output`], or the output has no such line.
pub fn run_ns2(scenario: &str, arguments: &[String]) -> Result<BTreeMap<String, String>, String> {
    let out = ns2_output(&scenario_directory().join(format!("{scenario}.tcl")), arguments)?;
    values_of(&out).ok_or_else(|| format!("ns {scenario} {}: {out}", arguments.join(" ")))
}

/// Returns the values of the result line in a run's output.
pub(crate) fn values_of(printed: &str) -> Option<BTreeMap<String, String>> {
    let line = printed.lines().find(|l| l.starts_with("scenario="))?;
    Some(
        line.split(' ')
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
    )
}

/// Runs ns-2 once and returns its output.
///
/// # Errors
/// `ns` is missing, fails or times out.
pub fn ns2_output(script: &Path, arguments: &[String]) -> Result<String, String> {
    let mut words = vec![script.display().to_string()];
    words.extend_from_slice(arguments);
    printed_by("ns", &words).map_err(|e| format!("{e}; scripts/setup installs Debian's package ns2"))
}

/// Runs a program once and returns its output.
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

/// Returns the mean delay of one run of the other simulator, in seconds.
///
/// # Errors
/// As [`run_ns2`], or dialogues did not end.
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

/// Returns the mean delay of one replication of our simulator, in seconds.
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

/// Calls `one` with the numbers from 0 on until the interval of its results is [`NARROW`]. It makes at least `least`
/// and at most `most` calls. The number of calls does not depend on the other simulator's results.
///
/// # Errors
/// An error of `one`.
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

/// Splits a command line into words. As in Tcl, braces group words.
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

/// Returns the mean with its interval, and the median.
pub fn estimate_and_median(mut values: Vec<f64>) -> (MeanEstimate, f64) {
    let all = MeanEstimate::from_values(&values, LEVEL);
    values.sort_by(f64::total_cmp);
    (all, quantile(&values, 0.5))
}

/// Runs all cases of a scenario in both simulators.
///
/// # Errors
/// A faulty study, a failed run, or a repeated run that differs from its recording.
pub fn compare_scenario(scenario: &str, runs: ReferenceRuns) -> Result<Vec<CaseComparison>, String> {
    if scenario == NS3_SCENARIO {
        return compare_ns3(&ScenarioProgram::compile(scenario)?, runs);
    }
    compare_with(ReferenceSimulator::Ns2, scenario, runs)
}

/// The same for the ns-3 scenario, which is compiled.
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
        // The intervals overlap, but one is too wide.
        assert!(!test_comparison((1.0, 0.09), (1.15, 0.2)).agrees());
        assert!(!test_comparison((1.0, 0.05), (1.15, 0.05)).agrees());
    }

    #[test]
    fn runs_are_added_until_the_interval_is_narrow_and_no_more() {
        let of = |least, most, values: &'static [f64]| {
            until_narrow(least, most, |number| Ok(values[number as usize])).unwrap().len()
        };
        assert_eq!(of(3, 9, &[1.0, 1.0, 1.0]), 3);
        // The half-width is 1.24 for 1, 2 and 1.5. For all five values it is 0.42 at a mean of 1.5, and for six 0.33.
        assert_eq!(of(3, 6, &[1.0, 2.0, 1.5, 1.5, 1.5, 1.5]), 6);
        // The half-width is 0.13 for four values at a mean of 1.1, and 0.09 for five.
        assert_eq!(of(2, 9, &[1.0, 1.2, 1.1, 1.1, 1.1, 1.1]), 5);
    }

    #[test]
    fn a_command_line_is_read_as_tcl_reads_it() {
        let all = split_words("loss 0.05 rounds {200 100} seed 1");
        assert_eq!(all, ["loss", "0.05", "rounds", "200 100", "seed", "1"]);
    }
}
