//! Common parts of the benches. Founding studies run in child processes, so that each run's memory is measured alone.
//! A bench exits with status 1 if a limit is exceeded. [`logins`] has logins without a network.

pub mod logins;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use usher_core::Seed;
use usher_runner::world::{RunDivisionOutcome, ScenarioRun};
use usher_scenario::{PlanOverrides, Scenario, Study, StudyMode};

/// The study whose network [`network_settings`] scales.
pub const STUDY: &str = "bench-tcp-100";
/// The dialogues of a timed run, over all stations.
const DIALOGUES: u64 = 2_000_000;
/// The minimum number of dialogues of a station, which makes the opening of its connection negligible.
const EACH: u64 = 10;

/// Returns settings of [`STUDY`] for this number of stations at constant utilisation: the shared link's rate and
/// queue grow with them.
pub fn network_settings(stations: u64) -> Vec<String> {
    vec![
        format!("hosts.client.count={stations}"),
        format!("links.shared.rate={} kb/s", stations * 100),
        format!("links.shared.queue={} packets", stations * 10),
        format!("workload.arrivals.stagger={} ns", 100_000_000 / stations),
    ]
}

/// Returns the dialogues of each station in a timed run.
pub fn dialogues_per_station(stations: u64) -> u64 {
    (DIALOGUES / stations).max(EACH)
}

/// Returns settings of [`STUDY`] for a timed run: each of `stations` has `each` dialogues, one every 100 ms from 1 s
/// on.
pub fn timed_run_settings(stations: u64, each: u64) -> Vec<String> {
    let mut set = network_settings(stations);
    set.push(format!("workload.arrivals.count={each}"));
    set.push(format!("run.duration={} ms", 2_000 + 100 * each));
    set
}

/// The command line of a bench.
#[derive(Debug)]
pub struct BenchArguments {
    /// Prints the result as JSON instead of text.
    pub json: bool,
    /// The number of repetitions of each measurement. The median counts.
    pub runs: usize,
    /// In a child process: its number of threads, study and settings.
    child: Option<(usize, String, Vec<String>)>,
}

impl BenchArguments {
    /// Parses the command line.
    ///
    /// # Errors
    /// A sentence about the fault.
    pub fn parse_command_line(runs: usize) -> Result<Self, String> {
        let mut arguments = Self { json: false, runs, child: None };
        let mut rest = std::env::args().skip(1);
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--json" => arguments.json = true,
                "--runs" => {
                    let n = rest.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                    arguments.runs = n.ok_or("--runs: write a number above 0")?;
                }
                "--child" => {
                    let threads = rest.next().and_then(|n| n.parse().ok()).ok_or("--child: write threads")?;
                    let study = rest.next().ok_or("--child: write a study")?;
                    arguments.child = Some((threads, study, rest.by_ref().collect()));
                }
                // `cargo bench` adds this argument.
                "--bench" => {}
                other => return Err(format!("{other}: known are --json and --runs N")),
            }
        }
        Ok(arguments)
    }
}

/// Runs a bench. A child process does its one run. Otherwise `bench` returns the result as JSON and the missed
/// limits.
pub fn main(
    runs: usize,
    bench: impl FnOnce(&BenchArguments) -> Result<(Value, Vec<String>), String>,
) -> ExitCode {
    let done = BenchArguments::parse_command_line(runs).and_then(|arguments| {
        if let Some((threads, study, set)) = &arguments.child {
            println!("{}", MeasuredRun::run_in_process(study, set, *threads)?.to_json());
            return Ok(Vec::new());
        }
        let (result, missed) = bench(&arguments)?;
        if arguments.json {
            println!("{}", json!({ "result": result, "missed": missed }));
        }
        Ok(missed)
    });
    match done {
        Ok(missed) if missed.is_empty() => ExitCode::SUCCESS,
        Ok(missed) => {
            for limit in missed {
                eprintln!("MISSED: {limit}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// The measurements of one run of a study.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// Packets that links delivered to hosts.
    pub packet_hops: u64,
    /// Wall-clock time of the event loop in seconds.
    pub wall_s: f64,
    /// Peak resident set of the process in bytes.
    pub peak_rss_bytes: u64,
    /// Mean delay of the dialogues in seconds. NaN if none ended.
    pub delay_mean_s: f64,
    /// All metrics by name.
    pub metrics: BTreeMap<String, f64>,
    /// True if two threads ran a half each.
    pub divided: bool,
}

impl MeasuredRun {
    /// Runs the first point of a founding study in this process.
    fn run_in_process(study: &str, set: &[String], threads: usize) -> Result<Self, String> {
        let (scenario, seed) = load_scenario(study, set)?;
        let (result, division) =
            ScenarioRun::run_with_up_to_threads(&scenario, seed, threads, None).map_err(|e| e.to_string())?;
        let mean = result.metrics.iter().find(|(name, _)| name == "delay.mean");
        Ok(Self {
            packet_hops: result.packet_hops,
            wall_s: result.wall_s,
            peak_rss_bytes: result.peak_rss_bytes,
            delay_mean_s: mean.map_or(f64::NAN, |(_, value)| *value),
            metrics: result.metrics.into_iter().filter(|(_, value)| !value.is_nan()).collect(),
            divided: division == RunDivisionOutcome::Halves,
        })
    }

    /// Runs the first point of a founding study with these settings (`workload.arrivals.count=10`) in a child
    /// process.
    ///
    /// # Errors
    /// A fault of the study, or of the child process.
    pub fn run_in_child(study: &str, set: &[String]) -> Result<Self, String> {
        Self::run_with_threads(1, study, set)
    }

    /// As [`Self::run_in_child`], with at most this number of threads.
    ///
    /// # Errors
    /// As [`Self::run_in_child`].
    pub fn run_with_threads(threads: usize, study: &str, set: &[String]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let output = Command::new(program).args(["--child", &threads.to_string(), study]).args(set).output();
        let output = output.map_err(|e| format!("cannot start a child process: {e}"))?;
        let said: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        said.as_ref().and_then(Self::from_json).ok_or_else(|| {
            format!("{study} {}: {}", set.join(" "), String::from_utf8_lossy(&output.stderr).trim())
        })
    }

    fn to_json(&self) -> Value {
        json!({
            "packet_hops": self.packet_hops,
            "wall_s": self.wall_s,
            "peak_rss_bytes": self.peak_rss_bytes,
            "delay_mean_s": self.delay_mean_s,
            "metrics": self.metrics,
            "divided": self.divided,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            packet_hops: value.get("packet_hops")?.as_u64()?,
            wall_s: value.get("wall_s")?.as_f64()?,
            peak_rss_bytes: value.get("peak_rss_bytes")?.as_u64()?,
            // JSON cannot represent NaN.
            delay_mean_s: value.get("delay_mean_s")?.as_f64().unwrap_or(f64::NAN),
            metrics: serde_json::from_value(value.get("metrics")?.clone()).ok()?,
            divided: value.get("divided")?.as_bool()?,
        })
    }

    /// Returns packet-hops per second of wall-clock time.
    pub fn packet_hop_rate(&self) -> f64 {
        self.packet_hops as f64 / self.wall_s
    }
}

fn load_scenario(study: &str, set: &[String]) -> Result<(Scenario, Seed), String> {
    let mut overrides = PlanOverrides::default();
    for setting in set {
        overrides.add_setting(setting)?;
    }
    let study = Study::open(study).map_err(|e| e.to_string())?;
    let plan = study.build_plan(StudyMode::Default, &overrides).map_err(|e| e.to_string())?;
    let point = plan.points.first().ok_or("the study has no points")?;
    Ok((point.scenario.clone(), point.replication_seed(0)))
}

/// Returns the median (the upper one of an even number of values), or NaN without values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
