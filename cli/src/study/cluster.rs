//! `usher study run NAME --backend`: runs replications on a Ray or Dask cluster, by the Python package `usher`.

use crate::args::{ClusterEngine, StudyRunArgs};
use crate::output::{CommandFailure, ConsoleOutput, INTERRUPTED};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use usher_runner::sweep::RunRequest;
use usher_scenario::StudyMode;

/// The Python interpreter.
const PYTHON: &str = "python3";
/// The required version of the package, which computes the replications: this program's version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The interval of checks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// The longest wait for the package's output after its exit. Its children may hold the output open and write on.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A study for the package.
pub(super) struct ClusterSweep {
    /// The user's name for it.
    pub(super) name: String,
    /// The study's name or file.
    pub(super) study: String,
    /// The settings of the run.
    pub(super) request: RunRequest,
    /// The folder for its results.
    pub(super) folder: PathBuf,
}

/// Runs each study by the package, one after another.
pub(super) fn run_sweeps(
    output: &ConsoleOutput,
    run: &StudyRunArgs,
    engine: ClusterEngine,
    sweeps: &[ClusterSweep],
) -> Result<(), CommandFailure> {
    for ClusterSweep { name, request: asked, .. } in sweeps {
        if asked.mode == StudyMode::Lab.name() {
            return Err(CommandFailure::usage_error(format!(
                "{name}: this run has the points of [lab], which --backend does not run: add --quick, --full \
                 or --sensitivity, or omit --backend"
            )));
        }
    }
    check_cluster_package_installed(engine)?;
    let interrupt =
        interrupt_flag().map_err(|e| CommandFailure::runtime_error(format!("cannot handle Ctrl-C: {e}")))?;
    let mut done = Vec::new();
    let mut interrupted = false;
    let ended = sweeps.iter().try_for_each(|sweep| {
        let name = &sweep.name;
        if interrupted {
            return Err(CommandFailure::interrupted(format!("{name}: not started")));
        }
        let mut command = Command::new(PYTHON);
        command.args(cluster_package_arguments(output, run, engine, sweep)).stdin(Stdio::null());
        if output.json {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let ended = run_cluster_package(output, command, &interrupt)
            .map_err(|e| CommandFailure::runtime_error(format!("cannot run {PYTHON}: {e}")))?;
        interrupted = ended.interrupted || interrupt.load(Ordering::Relaxed);
        if ended.code != 0 {
            // If there is no cause here, the Python package has already printed it.
            let why = ended.why.map_or_else(String::new, |why| format!(": {why}"));
            return Err(CommandFailure {
                code: ended.code,
                message: format!("{name}: the sweep failed{why}"),
            });
        }
        if output.json {
            let told: Value = serde_json::from_str(&ended.stdout).map_err(|e| {
                CommandFailure::runtime_error(format!("{PYTHON} -m usher printed no JSON: {e}"))
            })?;
            done.extend(told.as_array().cloned().unwrap_or_default());
        }
        Ok(())
    });
    if output.json && (ended.is_ok() || !done.is_empty()) {
        output.print_json(&Value::Array(done))?;
    }
    ended
}

/// Returns a flag that SIGINT and SIGTERM set.
fn interrupt_flag() -> io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let flag = Arc::<AtomicBool>::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// The result of the package's process.
struct PythonProcessExit {
    code: u8,
    /// True if the package was asked to end. It may have finished first.
    interrupted: bool,
    /// Its standard output, if captured.
    stdout: String,
    /// The cause of its failure, if reported as JSON.
    why: Option<String>,
}

/// A line of the package's output, without its end.
enum PythonOutputLine {
    Out(String),
    Error(String),
}

/// Runs the package. The first interrupt makes it end its sweep and the cluster that it started. The second ends it
/// at once.
fn run_cluster_package(
    output: &ConsoleOutput,
    mut command: Command,
    interrupt: &AtomicBool,
) -> io::Result<PythonProcessExit> {
    let mut child = command.spawn()?;
    let (tell, told) = mpsc::channel();
    forward_package_output(child.stdout.take(), &tell, PythonOutputLine::Out);
    forward_package_output(child.stderr.take(), &tell, PythonOutputLine::Error);
    let mut ended = PythonProcessExit { code: 0, interrupted: false, stdout: String::new(), why: None };
    let mut interrupts = 0;
    let status = loop {
        if interrupt.swap(false, Ordering::Relaxed) {
            interrupts += 1;
            stop_cluster_package(output, &mut child, interrupts)?;
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Ok(line) = told.recv_timeout(LOOK) {
            ended.take_line(output, line);
        }
    };
    drop(tell);
    let until = Instant::now() + LAST_WORDS;
    while let left = until.saturating_duration_since(Instant::now())
        && !left.is_zero()
        && let Ok(line) = told.recv_timeout(left)
    {
        ended.take_line(output, line);
    }
    ended.interrupted = interrupts > 0;
    ended.code = match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => 0,
        _ if ended.interrupted => INTERRUPTED,
        Some(code) => code,
        None => 1,
    };
    Ok(ended)
}

/// Asks the package to end.
fn stop_cluster_package(output: &ConsoleOutput, child: &mut Child, interrupts: u32) -> io::Result<()> {
    if interrupts > 1 {
        return child.kill();
    }
    if !output.json {
        output.print_note("stopping the sweep and its cluster; press Ctrl-C again to stop at once");
    }
    // The child has not been reaped yet, so no other process can have its process id.
    Ok(kill_process(Pid::from_child(child), Signal::TERM)?)
}

/// Reads the package's output on a separate thread.
fn forward_package_output(
    from: Option<impl Read + Send + 'static>,
    tell: &Sender<PythonOutputLine>,
    of: fn(String) -> PythonOutputLine,
) {
    let Some(from) = from else { return };
    let tell = tell.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            if tell.send(of(String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
        }
    });
}

impl PythonProcessExit {
    fn take_line(&mut self, output: &ConsoleOutput, line: PythonOutputLine) {
        match line {
            PythonOutputLine::Out(line) => {
                self.stdout.push_str(&line);
                self.stdout.push('\n');
            }
            PythonOutputLine::Error(line) => {
                let read: Option<Value> = serde_json::from_str(&line).ok();
                let why = read.as_ref().and_then(|read| read["error"]["message"].as_str());
                match why {
                    Some(why) => self.why = Some(why.to_owned()),
                    None => output.print_note(&line),
                }
            }
        }
    }
}

/// Checks that the package is installed.
fn check_cluster_package_installed(engine: ClusterEngine) -> Result<(), CommandFailure> {
    let install = format!(
        "--backend needs the Python package usher {VERSION} with {0}. Install it for {PYTHON}: pip install \
         '.[{0}]' in this program's source, or its wheel (docs/howto/python.md)",
        engine.name()
    );
    let asked = Command::new(PYTHON).args(["-c", "import usher; print(usher.__version__)"]).output();
    let found = asked.ok().filter(|asked| asked.status.success());
    let Some(found) = found else { return Err(CommandFailure::runtime_error(install)) };
    let found = String::from_utf8_lossy(&found.stdout);
    match found.trim() {
        VERSION => Ok(()),
        other => Err(CommandFailure::runtime_error(format!("{PYTHON} has usher {other}. {install}"))),
    }
}

/// Returns the package's arguments.
fn cluster_package_arguments(
    output: &ConsoleOutput,
    run: &StudyRunArgs,
    engine: ClusterEngine,
    sweep: &ClusterSweep,
) -> Vec<String> {
    let ClusterSweep { study, request: asked, folder, .. } = sweep;
    let mut words = vec!["-m".to_owned(), "usher".to_owned(), "sweep".to_owned(), study.clone()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("backend", engine.name().to_owned());
    run.address.iter().for_each(|address| option("address", address.clone()));
    asked.set.iter().for_each(|set| option("set", set.clone()));
    asked.seed.iter().for_each(|seed| option("seed", seed.to_string()));
    asked.replications.iter().for_each(|n| option("replications", n.to_string()));
    run.jobs.iter().for_each(|n| option("jobs", n.to_string()));
    option("out", folder.display().to_string());
    if asked.mode != StudyMode::Default.name() {
        words.push(format!("--{}", asked.mode));
    }
    let flags = [("force", run.force), ("json", output.json), ("plain", !output.progress)];
    words.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| format!("--{name}")));
    words
}
