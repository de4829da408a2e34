//! Sweeps on the simulator give the same bytes, whatever the number of threads and interrupts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use usher_observe::journal::RunJournal;
use usher_observe::{ResultRowUnits, csv, parquet};
use usher_runner::SimRunner;
use usher_runner::sweep::{
    ReplicationOutcome, ReplicationRunner, ReplicationTask, RunError, SweepOptions, SweepPlan, SweepResults,
    execute_sweep,
};
use usher_scenario::StudyPlan;
use usher_wire_tests::{TempDir, study_plan};

/// A study of loss by protocol, with replications until the mean is known to a tenth.
fn loss_study_plan(run: &str, method: &str, tables: &str) -> StudyPlan {
    study_plan(&format!(
        r#"
[run]
{run}
warmup = "1 s"
[run.replications]
min = 2
max = 6
precision = "10 %"
[hosts.station]
count = 4
[hosts.nas]
[hosts.server]
[links.access]
between = ["station", "nas"]
rate = "10 Mb/s"
delay = "1 ms"
[links.core]
between = ["nas", "server"]
rate = "1.5 Mb/s"
delay = "10 ms"
impaired_from = "1 s"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "{method}"
aaa = "radius"
arrivals = {{ kind = "poisson", rate = "2 /s", start = "1 s" }}
[[axes]]
name = "loss"
set = "links.core.loss"
values = ["0 %", "10 %"]
{tables}
"#
    ))
}

/// UDP, TCP and SCTP by wire, and SCTP from an 802.16 cell.
const PROTOCOLS: &str = r#"
[hosts.mobile]
count = 4
[cells.air]
base_station = "nas"
stations = "mobile"
[[axes]]
name = "aaa"
[axes.cases]
"radius" = { "workload.aaa" = "radius" }
"diameter" = { "workload.aaa" = "diameter" }
"sctp" = { "workload.aaa" = "diameter", "workload.diameter.transport" = "sctp" }
"wireless" = { "workload.stations" = "mobile", "workload.aaa" = "diameter", "workload.diameter.transport" = "sctp" }
"#;

/// Runs this number of replications, then sets the interrupt.
struct InterruptingRunner<'a> {
    runner: SimRunner<'a>,
    left: AtomicU32,
    interrupt: &'a AtomicBool,
}

impl ReplicationRunner for InterruptingRunner<'_> {
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.interrupt.store(true, Ordering::Relaxed);
        }
        self.runner.run_task(task)
    }
}

fn execute_in(
    folder: &Path,
    plan: &StudyPlan,
    runner: &dyn ReplicationRunner,
    jobs: usize,
    interrupt: &AtomicBool,
) -> SweepResults {
    let mut journal = RunJournal::open(&folder.join("journal"), &plan.hash).unwrap();
    let options = SweepOptions { jobs, interrupt, watch: &(), captures: None };
    execute_sweep(&SweepPlan::from_plan(plan), runner, &mut journal, options)
}

/// The result files: CSV and Parquet.
fn result_files(folder: &Path, results: &SweepResults) -> (String, Vec<u8>) {
    assert!(results.complete, "{:?}", results.failures);
    let (as_csv, as_parquet) = (folder.join("results.csv"), folder.join("results.parquet"));
    csv::write_csv(&as_csv, &results.rows).unwrap();
    parquet::write_parquet(&as_parquet, &results.rows, &ResultRowUnits::default()).unwrap();
    (std::fs::read_to_string(as_csv).unwrap(), std::fs::read(as_parquet).unwrap())
}

fn run_sweep(plan: &StudyPlan, jobs: usize) -> (String, Vec<u8>) {
    let folder = TempDir::new();
    let runner = SimRunner::new(plan, Vec::new());
    let results = execute_in(folder.path(), plan, &runner, jobs, &AtomicBool::new(false));
    result_files(folder.path(), &results)
}

#[test]
fn one_job_two_jobs_and_a_resumed_sweep_give_the_same_bytes() {
    let plan = loss_study_plan("duration = \"20 s\"", "eap-md5", PROTOCOLS);
    assert_eq!(plan.points.len(), 8);
    let once = run_sweep(&plan, 1);
    assert!(once.0.lines().count() > 100, "{}", once.0);
    assert!(once.0.contains("diameter") && once.0.contains("radius"));
    assert_eq!(run_sweep(&plan, 1), once);
    // No run stalled.
    let completed =
        |line: &&str| line.contains(",completed,") && !line.ends_with(",0") && !line.ends_with(",0.0");
    for aaa in ["radius", "diameter", "sctp", "wireless"] {
        assert!(once.0.lines().filter(|l| l.contains(aaa)).filter(completed).count() >= 4, "{}", once.0);
    }
    assert_eq!(run_sweep(&plan, 2), once);

    let folder = TempDir::new();
    let interrupt = AtomicBool::new(false);
    let until = InterruptingRunner {
        runner: SimRunner::new(&plan, Vec::new()),
        left: AtomicU32::new(3),
        interrupt: &interrupt,
    };
    let first = execute_in(folder.path(), &plan, &until, 2, &interrupt);
    assert!(!first.complete);
    // The power fails during a write.
    let journal = folder.path().join("journal");
    let bytes = std::fs::read(&journal).unwrap();
    std::fs::write(&journal, &bytes[..bytes.len() - 7]).unwrap();
    let runner = SimRunner::new(&plan, Vec::new());
    let second = execute_in(folder.path(), &plan, &runner, 2, &AtomicBool::new(false));
    assert!((2..=3).contains(&second.resumed), "{}", second.resumed);
    assert_eq!(result_files(folder.path(), &second), once);
}

#[test]
fn a_resumed_sweep_runs_an_abandoned_replication_again() {
    let plan = loss_study_plan("duration = \"100 s\"", "eap-md5", PROTOCOLS);
    let once = run_sweep(&plan, 1);
    let folder = TempDir::new();
    let interrupt = Arc::<AtomicBool>::default();
    // During the start of the third.
    let runner = SimRunner::new(&plan, Vec::new()).with_stop_flag(interrupt.clone());
    let until = InterruptingRunner { runner, left: AtomicU32::new(3), interrupt: &interrupt };
    let first = execute_in(folder.path(), &plan, &until, 1, &interrupt);
    let kept: u32 = first.points.iter().map(|point| point.replications).sum();
    assert!(!first.complete && first.failures.is_empty() && kept <= 2, "{:?}", first.failures);
    let runner = SimRunner::new(&plan, Vec::new());
    let second = execute_in(folder.path(), &plan, &runner, 2, &AtomicBool::new(false));
    assert_eq!(second.resumed, 2);
    assert_eq!(result_files(folder.path(), &second), once);
}

#[test]
fn another_seed_gives_other_rows() {
    let rows =
        |seed: &str| run_sweep(&loss_study_plan(&format!("duration = \"10 s\"\n{seed}"), "eap-md5", ""), 2).0;
    assert_eq!(rows(""), rows("seed = 1"));
    assert_ne!(rows(""), rows("seed = 2"));
}

/// Recorded handshakes have the sizes and packet counts of real ones, and so the same delays.
#[test]
fn recorded_and_real_handshakes_give_the_same_rows() {
    for version in ["1.2", "1.3"] {
        let rows = |handshake: &str| {
            let tables = format!("[workload.eap_tls]\nversion = \"{version}\"\nhandshake = \"{handshake}\"");
            let plan = loss_study_plan("duration = \"5 s\"", "eap-tls", &tables);
            run_sweep(&plan, 2).0
        };
        let real = rows("real");
        let delays = real.lines().filter(|l| l.contains(",delay.mean,")).count();
        assert!(delays >= 4, "{real}");
        assert_eq!(real, rows("recorded"), "TLS {version}");
    }
}
