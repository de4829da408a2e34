//! Counts the instructions of five hot paths by callgrind. The count does not depend on the machine's speed or load,
//! so its limits hold on a busy machine. Time limits would not.
//!
//! Each path runs twice, the second time with more units of work. The difference, divided by the additional units, is
//! the cost of a unit. Process start and set-up cancel out.

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use usher_benches::logins::{COUNTED_FUNCTION, LoginMethod};
use usher_benches::{BenchArguments, main as bench, median};

/// Runs logins in a child process: `--logins METHOD COUNT`.
const LOGINS: &str = "--logins";

/// Part of the names of AWS-LC's functions for X25519. An IKE_SA takes a constant 420,000 instructions or so there.
/// They are left out, since they would hide our own in a release build.
const CURVE: &str = "curve25519_x25519";

/// The workload of a path.
#[derive(Clone, Copy)]
enum BenchmarkWorkload {
    /// A founding study, its number of clients, and the interval of a client's dialogues. A unit is a packet-hop.
    Study { name: &'static str, clients: u64, interval_ms: u64 },
    /// Logins one after another. Only the server's work counts. A unit is a login.
    Logins(LoginMethod),
}

/// A path and the limit of instructions per unit.
struct InstructionBenchmark {
    name: &'static str,
    workload: BenchmarkWorkload,
    /// Dialogues of each client, or logins: in the first run, and in addition in the second. The first run is long
    /// enough to fill caches and to grow tables to their final size.
    first: u64,
    more: u64,
    /// Instructions per unit when the limit was set, in a build with debug assertions that is not incremental, as in
    /// CI's tests.
    dev_count: u64,
    /// The same without debug assertions (profile `release`). `None`: no limit.
    release_count: Option<u64>,
}

/// The limit as a multiple of the count in [`PATHS`].
const SLACK: f64 = 1.03;

/// The measured counts. A limit is the count plus 3 %. After you make a path faster, update its count. If you have to
/// make a path slower, the commit states the benefit.
const PATHS: [InstructionBenchmark; 5] = [
    InstructionBenchmark {
        name: "packet-hop by TCP",
        workload: BenchmarkWorkload::Study { name: "bench-tcp-100", clients: 100, interval_ms: 100 },
        first: 10,
        more: 10,
        dev_count: 2015,
        release_count: Some(1634),
    },
    InstructionBenchmark {
        name: "packet-hop by RADIUS",
        workload: BenchmarkWorkload::Study { name: "bench-radius-100", clients: 10, interval_ms: 200 },
        first: 30,
        more: 20,
        dev_count: 20_401,
        release_count: Some(9922),
    },
    InstructionBenchmark {
        name: "PAP login",
        workload: BenchmarkWorkload::Logins(LoginMethod::Pap),
        first: 110,
        more: 100,
        dev_count: 36_511,
        release_count: Some(13_828),
    },
    InstructionBenchmark {
        name: "EAP-MD5 login",
        workload: BenchmarkWorkload::Logins(LoginMethod::EapMd5),
        first: 60,
        more: 50,
        dev_count: 73_244,
        release_count: Some(30_282),
    },
    InstructionBenchmark {
        name: "IKE_SA by PSK",
        workload: BenchmarkWorkload::Logins(LoginMethod::IkePsk),
        first: 33,
        more: 20,
        dev_count: 632_144,
        release_count: Some(315_539),
    },
];

/// The counts of one run under callgrind.
struct CallgrindCounts {
    instructions: f64,
    units: f64,
}

impl BenchmarkWorkload {
    /// Runs `size` dialogues of each client, or logins, in a child process under callgrind.
    fn count_instructions(self, size: u64) -> Result<CallgrindCounts, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("valgrind");
        // The environment lies on the stack. Its length moves the data there, which changes the count by up to 0.2 %.
        // So does the length of the program's path.
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
        let profile =
            CallgrindFile(std::env::temp_dir().join(format!("usher-instructions-{}", std::process::id())));
        command.arg(format!("--callgrind-out-file={}", profile.0.display()));
        match self {
            Self::Study { name, clients, interval_ms } => {
                command.arg(program).args(["--child", "1", name]);
                command.arg(format!("hosts.client.count={clients}"));
                command.arg(format!("workload.arrivals.count={size}"));
                command.arg(format!("run.duration={} ms", 2_000 + interval_ms * size));
            }
            Self::Logins(method) => {
                command.arg(format!("--toggle-collect=*{COUNTED_FUNCTION}*"));
                command.arg(program).args([LOGINS, method.name(), &size.to_string()]);
            }
        }
        let output = command
            .output()
            .map_err(|e| format!("cannot start valgrind: {e}; scripts/setup test installs it"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?}: {}: {said}", output.status));
        }
        let units = match self {
            Self::Study { .. } => {
                let run: Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
                run["packet_hops"].as_f64().ok_or("the run gave no packet-hops")?
            }
            Self::Logins(_) => size as f64,
        };
        Ok(CallgrindCounts { instructions: profile.count_instructions()?, units })
    }
}

/// A file of callgrind, removed when dropped.
struct CallgrindFile(PathBuf);

impl Drop for CallgrindFile {
    fn drop(&mut self) {
        // Callgrind may not have written it.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl CallgrindFile {
    /// Returns all instructions in it, without the curve's.
    ///
    /// A line `fn=NAME` begins a function. Lines `LINE COUNT` follow, with the function's own instructions. After
    /// `calls=`, such a line has the instructions of a called function.
    fn count_instructions(&self) -> Result<f64, String> {
        let text = std::fs::read(&self.0).map_err(|e| format!("{}: {e}", self.0.display()))?;
        let (mut count, mut is_curve, mut is_call) = (0.0, false, false);
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                is_curve = name.contains(CURVE);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                let own = line.rsplit_once(' ').and_then(|(_, own)| own.parse::<f64>().ok());
                let own =
                    own.ok_or_else(|| format!("callgrind wrote a line that is not understood: {line}"))?;
                if !is_call && !is_curve {
                    count += own;
                }
                is_call = false;
            }
        }
        if count > 0.0 { Ok(count) } else { Err("callgrind counted nothing".into()) }
    }
}

impl InstructionBenchmark {
    /// Returns the instructions of one unit.
    fn instructions_per_unit(&self) -> Result<f64, String> {
        let [short, long] =
            [self.first, self.first + self.more].map(|size| self.workload.count_instructions(size));
        let (short, long) = (short?, long?);
        Ok((long.instructions - short.instructions) / (long.units - short.units))
    }

    /// Returns the count in [`PATHS`] for this build. An incremental build has none: it has more codegen units and
    /// less inlining, and its counts are up to 7 % higher.
    fn expected_instruction_count(&self) -> Option<f64> {
        let count = match (cfg!(debug_assertions), option_env!("CARGO_INCREMENTAL")) {
            (false, _) => self.release_count,
            (true, Some("0")) => Some(self.dev_count),
            (true, _) => None,
        };
        count.map(|count| count as f64)
    }
}

fn measure_all(arguments: &BenchArguments) -> Result<(Value, Vec<String>), String> {
    let (mut rows, mut missed) = (Vec::new(), Vec::new());
    for path in &PATHS {
        let counts =
            (0..arguments.runs).map(|_| path.instructions_per_unit()).collect::<Result<Vec<_>, _>>()?;
        let count = median(counts.iter().copied());
        let limit = path.expected_instruction_count().map(|expected| (expected * SLACK).round());
        let line = match (path.expected_instruction_count(), limit) {
            (Some(expected), Some(limit)) => {
                let growth = 100.0 * (count / expected - 1.0);
                format!("{count:.0} instructions ({growth:+.1} %), at most {limit}")
            }
            _ => format!("{count:.0} instructions, no limit for this build"),
        };
        if !arguments.json {
            println!("{}: {line}", path.name);
        }
        if limit.is_some_and(|limit| count > limit) {
            missed.push(format!("{}: {line}", path.name));
        }
        rows.push(json!({ "path": path.name, "instructions": count, "runs": counts, "limit": limit }));
    }
    Ok((json!(rows), missed))
}

/// Does `count` logins, in the child process of [`BenchmarkWorkload::Logins`].
fn log_in(method: &str, count: &str) -> Result<(), String> {
    let known = LoginMethod::ALL.into_iter().find(|known| known.name() == method);
    let count = count.parse().map_err(|_| format!("{LOGINS}: {count} is no number"))?;
    known.ok_or_else(|| format!("{LOGINS}: {method} is no method"))?.run_logins(count)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [first, method, count] if first == LOGINS => match log_in(method, count) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
        _ => bench(1, measure_all),
    }
}
