use super::schedule::SweepSchedule;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use usher_core::Seed;
use usher_observe::manifest::{RunHostInfo, RunManifest};
use usher_observe::{ResultRowUnits, RunFileError, journal::RunJournal};

/// A test's own folder, removed at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("usher-sweep-{}-{n}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn run_path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Derives its metrics from the task alone. Replications are slow in turns, so that they finish out of order.
#[derive(Default)]
struct MockRunner {
    runs: AtomicU32,
    /// Sets the interrupt after this number of runs.
    interrupt_after: Option<(u32, &'static AtomicBool)>,
    fail: Option<(usize, u32)>,
    panic: Option<(usize, u32)>,
    /// No replication is slow: the test fixes the order otherwise.
    at_once: bool,
}

impl ReplicationRunner for MockRunner {
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError> {
        let runs = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some((after, flag)) = self.interrupt_after {
            flag.fetch_or(runs >= after, Ordering::Relaxed);
        }
        if self.fail == Some((task.index, task.replication)) {
            return Err(RunError::new("no host is named `x`"));
        }
        assert!(self.panic != Some((task.index, task.replication)), "index out of bounds");
        if !self.at_once {
            std::thread::sleep(Duration::from_micros(u64::from(task.replication % 3) * 300));
        }
        if let Some(path) = task.capture {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "packets").unwrap();
        }
        let mut rng = Seed::new(task.index as u64).derive_rng("fake", u64::from(task.replication));
        let noise = task.index as f64 * 0.1;
        let mut metrics = vec![("delay.mean".to_owned(), 1.0 + noise * (rng.sample_unit() - 0.5))];
        metrics
            .push(("delay.p99".to_owned(), if task.replication == 1 { f64::NAN } else { rng.sample_unit() }));
        Ok(ReplicationOutcome {
            metrics,
            facts: RunCostStats {
                packet_hops: 7,
                wall_s: 0.5,
                peak_rss_bytes: 100 + u64::from(runs),
                halved: u64::from(task.replication % 2),
                undecided: u64::from(task.replication % 3),
                lab: Default::default(),
            },
        })
    }
}

fn test_sweep() -> SweepPlan {
    let goal = |i: u32| PointStoppingPlan {
        point: GridPoint::new([
            ("loss", format!("{} %", i % 4)),
            ("transport", if i < 4 { "tcp" } else { "udp" }.into()),
        ]),
        stopping: StoppingRule { share: 0.02, level: 0.95, min: 3, max: 25 },
        watched: vec!["delay.mean".to_owned()],
    };
    SweepPlan { study: "s".into(), plan: "abc".into(), goals: (0..8).map(goal).collect() }
}

fn test_manifest(results: &SweepResults) -> RunManifest {
    RunManifest {
        usher_version: "0".into(),
        study: "s".into(),
        seed: 1,
        mode: "quick".into(),
        parameters: BTreeMap::new(),
        plan_hash: "abc".into(),
        host: RunHostInfo { kernel: String::new(), cpu: String::new(), cores: 1 },
        started: String::new(),
        elapsed_s: 0.0,
        points: results.points.len() as u64,
        replications: 0,
        complete: results.complete,
        facts: BTreeMap::new(),
    }
}

/// Runs in the folder and writes the files there.
fn run_and_write(path: &Path, runner: &MockRunner, jobs: usize, interrupt: &AtomicBool) -> SweepResults {
    let sweep = test_sweep();
    let mut folder = RunFolder::open(path, &sweep.plan, "build", false).unwrap();
    let options = SweepOptions { jobs, interrupt, watch: &(), captures: None };
    let results = execute_sweep(&sweep, runner, folder.journal(), options);
    folder.write_results(&results, 0.95, &test_manifest(&results), &ResultRowUnits::default()).unwrap();
    results
}

fn read_result_files(path: &Path) -> [Vec<u8>; 2] {
    ["results.csv", "results.parquet"].map(|name| fs::read(path.join(name)).unwrap())
}

#[test]
fn the_same_bytes_at_any_number_of_jobs() {
    let temporary = TempDir::new();
    let never = AtomicBool::new(false);
    let one = run_and_write(&temporary.run_path("1"), &MockRunner::default(), 1, &never);
    assert!(one.complete && one.failures.is_empty());
    let counts: Vec<u32> = one.points.iter().map(|p| p.replications).collect();
    assert_eq!(counts[0], 3, "a point without noise stops at once");
    assert!(counts.iter().any(|n| (4..25).contains(n)), "the rule is at work: {counts:?}");
    assert_eq!(counts[7], 25, "a noisy point runs to its limit");
    assert!(one.points[0].converged && !one.points[7].converged);
    let total: u32 = counts.iter().sum();
    assert_eq!(one.facts.packet_hops, 7 * u64::from(total));
    for jobs in [2, 5] {
        let path = temporary.run_path(&jobs.to_string());
        let many = run_and_write(&path, &MockRunner::default(), jobs, &never);
        assert_eq!(many.facts.packet_hops, one.facts.packet_hops);
        assert!(
            read_result_files(&path) == read_result_files(&temporary.run_path("1")),
            "{jobs} jobs give other bytes"
        );
    }
}

#[test]
fn an_interrupted_sweep_goes_on_to_the_same_bytes() {
    static INTERRUPT: AtomicBool = AtomicBool::new(false);
    let temporary = TempDir::new();
    let never = AtomicBool::new(false);
    let whole = run_and_write(&temporary.run_path("whole"), &MockRunner::default(), 1, &never);
    let path = temporary.run_path("parts");
    let mut ran = 0;
    for (after, jobs) in [(1, 2), (10, 2), (7, 3)] {
        INTERRUPT.store(false, Ordering::Relaxed);
        let fake = MockRunner { interrupt_after: Some((after, &INTERRUPT)), ..MockRunner::default() };
        let part = run_and_write(&path, &fake, jobs, &INTERRUPT);
        assert!(!part.complete);
        assert_eq!(part.resumed, ran as usize);
        ran += fake.runs.load(Ordering::Relaxed);
        assert!(part.rows.iter().all(|row| whole.rows.contains(row)), "what is written is part of the whole");
    }
    let rest = run_and_write(&path, &MockRunner::default(), 2, &never);
    assert!(rest.complete);
    assert!(read_result_files(&path) == read_result_files(&temporary.run_path("whole")));
    let again = MockRunner::default();
    assert!(run_and_write(&path, &again, 1, &never).complete);
    assert_eq!(again.runs.load(Ordering::Relaxed), 0, "a complete run has nothing left to do");
}

#[test]
fn a_point_that_fails_or_panics_is_named_and_the_rest_runs() {
    let temporary = TempDir::new();
    let never = AtomicBool::new(false);
    let fake = MockRunner { fail: Some((2, 1)), panic: Some((5, 0)), ..MockRunner::default() };
    let results = run_and_write(&temporary.run_path("x"), &fake, 2, &never);
    assert!(!results.complete);
    let said: Vec<(String, u32, String)> = results
        .failures
        .iter()
        .map(|f| (key::format_point(&f.point), f.replication, f.error.to_string()))
        .collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], ("loss=2 %; transport=tcp".into(), 1, "no host is named `x`".into()));
    assert_eq!(
        said[1],
        ("loss=1 %; transport=udp".into(), 0, "a defect in usher: index out of bounds".into())
    );
    let complete = results.points.iter().filter(|p| p.complete).count();
    assert_eq!(complete, 6);
}

#[test]
fn folders_of_something_else_are_refused() {
    let temporary = TempDir::new();
    let foreign = temporary.run_path("foreign");
    fs::create_dir_all(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "mine").unwrap();
    for anew in [false, true] {
        let refused = RunFolder::open(&foreign, "abc", "b", anew).unwrap_err();
        assert!(matches!(&refused, FolderError::Foreign { found, .. } if found == "thesis.tex"), "{refused}");
    }
    let mine = temporary.run_path("mine");
    run_and_write(&mine, &MockRunner::default(), 1, &AtomicBool::new(false));
    fs::write(mine.join("notes.txt"), "mine").unwrap();
    assert!(matches!(RunFolder::open(&mine, "abd", "build", false), Err(FolderError::PlanMismatch { .. })));
    assert!(matches!(RunFolder::open(&mine, "abc", "other", false), Err(FolderError::BuildMismatch { .. })));
    let mut held = RunFolder::open(&mine, "abc", "build", false).unwrap();
    assert!(!held.journal().is_empty());
    let busy = RunFolder::open(&mine, "abd", "build", true).unwrap_err();
    assert!(matches!(busy, FolderError::Observe(RunFileError::InUse { .. })), "{busy}");
    drop(held);
    let earlier = temporary.run_path("earlier");
    fs::create_dir_all(&earlier).unwrap();
    fs::write(earlier.join("journal"), "usher-journal 1 abc build\n").unwrap();
    let refused = RunFolder::open(&earlier, "abc", "build", false).unwrap_err();
    assert!(
        matches!(refused, FolderError::VersionMismatch { .. }) && refused.to_string().contains("--force")
    );
    assert!(RunFolder::open(&earlier, "abc", "build", true).unwrap().journal().is_empty());
    assert!(RunFolder::open(&earlier, "abc", "build", false).is_ok());
    assert!(RunFolder::open(&mine, "abd", "build", true).unwrap().journal().is_empty());
    assert!(!mine.join("results.csv").exists() && mine.join("notes.txt").exists());
}

#[test]
fn captures_are_of_each_first_replication_and_made_up_for() {
    let temporary = TempDir::new();
    let sweep = test_sweep();
    let never = AtomicBool::new(false);
    let mut journal = RunJournal::open(&temporary.run_path("j"), "abc").unwrap();
    let options = SweepOptions { jobs: 2, interrupt: &never, watch: &(), captures: None };
    let plain = execute_sweep(&sweep, &MockRunner::default(), &mut journal, options);
    let fake = MockRunner::default();
    let options = SweepOptions { captures: Some(&temporary.0), ..options };
    let captured = execute_sweep(&sweep, &fake, &mut journal, options);
    assert_eq!(fake.runs.load(Ordering::Relaxed), 8);
    assert_eq!(captured.rows, plain.rows);
    assert!(temporary.run_path("captures/s-0001-loss=1___transport=tcp.pcapng").exists());
}

#[test]
fn captures_of_other_links_are_made_again() {
    let temporary = TempDir::new();
    let (sweep, path) = (test_sweep(), temporary.run_path("x"));
    let never = AtomicBool::new(false);
    // Number of replications that run for captures of these links.
    let runs = |links: &dyn Fn(usize) -> Vec<String>| {
        let mut folder = RunFolder::open(&path, &sweep.plan, "build", false).unwrap();
        folder.update_captured_links(&sweep, (0..8).map(links)).unwrap();
        let fake = MockRunner::default();
        let options = SweepOptions { jobs: 1, interrupt: &never, watch: &(), captures: Some(&path) };
        assert!(execute_sweep(&sweep, &fake, folder.journal(), options).complete);
        fake.runs.load(Ordering::Relaxed)
    };
    let core = |_| vec!["core".to_owned()];
    assert!(runs(&core) > 24);
    assert_eq!(runs(&core), 0);
    fs::write(path.join("captures/mine.pcapng"), "mine").unwrap();
    assert_eq!(runs(&|_| vec!["access".to_owned()]), 8);
    assert_eq!(runs(&|index| vec![if index == 3 { "core" } else { "access" }.to_owned()]), 1);
    assert!(path.join("captures/mine.pcapng").exists());
    // An earlier version's captures do not record their links.
    fs::remove_file(path.join("captures/links.txt")).unwrap();
    assert_eq!(runs(&core), 8);
}

#[test]
fn a_dry_run_tries_a_few_and_counts_all() {
    let fake = MockRunner::default();
    let estimated = estimate_sweep(&test_sweep(), &fake, 2, Duration::ZERO).unwrap();
    assert_eq!((estimated.tried, fake.runs.load(Ordering::Relaxed)), (1, 1));
    assert_eq!(test_sweep().replication_range(), (24, 200));
    assert!((estimated.high_s / estimated.low_s - 200.0 / 24.0).abs() < 1e-9);
    let failing = MockRunner { fail: Some((7, 0)), ..MockRunner::default() };
    assert!(estimate_sweep(&test_sweep(), &failing, 2, Duration::ZERO).is_err());
}

proptest! {
    /// The kept replications do not depend on the order of ends or on the lead of workers.
    #[test]
    fn what_is_kept_does_not_depend_on_the_order(order: Vec<u8>, workers in 1usize..6) {
        let sweep = test_sweep();
        let outcome = |(index, replication): (usize, u32)| {
            let point = &sweep.goals[index].point;
            let fake = MockRunner { at_once: true, ..MockRunner::default() };
            fake.run_task(ReplicationTask { index, point, replication, capture: None }).unwrap()
        };
        let kept = |schedule: &SweepSchedule<'_>| -> Vec<(usize, u32)> {
            (0..8).flat_map(|i| schedule.counted_outcomes(i).map(move |(r, _)| (i, r)).collect::<Vec<_>>()).collect()
        };
        let mut alone = SweepSchedule::new(&sweep.goals);
        while let Some(task) = alone.start_next_replication(1) {
            alone.finish_replication(task.0, task.1, outcome(task));
        }
        let mut crowd = SweepSchedule::new(&sweep.goals);
        let mut running: Vec<(usize, u32)> = Vec::new();
        let mut order = order.into_iter().cycle();
        loop {
            while running.len() < workers {
                let Some(task) = crowd.start_next_replication(workers as u32) else { break };
                running.push(task);
            }
            if running.is_empty() {
                break;
            }
            let task = running.swap_remove(usize::from(order.next().unwrap_or(0)) % running.len());
            crowd.finish_replication(task.0, task.1, outcome(task));
        }
        prop_assert!(alone.is_complete() && crowd.is_complete());
        prop_assert_eq!(kept(&alone), kept(&crowd));
    }
}

#[test]
fn what_is_expected_follows_what_stopped() {
    let expected = ReplicationForecast { points: 10, fewest: 50 };
    assert_eq!(expected.forecast_total_replications(0, 0), 50);
    assert_eq!(expected.forecast_total_replications(2, 20), 100);
    assert_eq!(expected.forecast_total_replications(10, 70), 70);
}
