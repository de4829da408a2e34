//! ns-3: a scenario is a C++ program, which is compiled, run and removed.
//!
//! ns-3 is Debian's package `libns3-dev` (3.37), unmodified.

use crate::messages::{self, BEGIN, DRAIN, MessagePlan};
use crate::transfer::{LostPackets, shift_ordinals};
use crate::{printed_by, values_of};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The libraries of a scenario.
const LIBRARIES: [&str; 5] =
    ["-lns3-core", "-lns3-network", "-lns3-internet", "-lns3-point-to-point", "-lns3-traffic-control"];

/// The number of programs that this process has compiled.
static COMPILED: AtomicU32 = AtomicU32::new(0);

/// A compiled scenario in a temporary folder, removed when dropped.
#[derive(Debug)]
pub struct ScenarioProgram {
    folder: PathBuf,
    path: PathBuf,
}

impl ScenarioProgram {
    /// Compiles a scenario.
    ///
    /// # Errors
    /// The compiler or ns-3 is missing.
    pub fn compile(scenario: &str) -> Result<Self, String> {
        let number = COMPILED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-{scenario}-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // From here on the folder is removed on failure.
        let program = Self { path: folder.join(scenario), folder };
        let source = crate::scenario_directory().join(format!("{scenario}.cc"));
        let said = format!("g++ {}", source.display());
        let out = Command::new("g++")
            .args(["-std=c++17", "-O1", "-o"])
            .arg(&program.path)
            .arg(&source)
            .args(LIBRARIES)
            .output()
            .map_err(|e| format!("{said}: {e}; scripts/setup installs it"))?;
        if out.status.success() {
            return Ok(program);
        }
        let err = String::from_utf8_lossy(&out.stderr);
        Err(format!("{said}: {}; scripts/setup installs Debian's package libns3-dev\n{err}", out.status))
    }
}

impl Drop for ScenarioProgram {
    fn drop(&mut self) {
        // The folder may have been removed already.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs the program once and returns its results, as [`run_ns2`](crate::run_ns2).
///
/// # Errors
/// The program fails, times out or prints no line of results.
pub fn run_program(
    program: &ScenarioProgram,
    arguments: &[String],
) -> Result<BTreeMap<String, String>, String> {
    let out = printed_by(&program.path.display().to_string(), arguments)?;
    values_of(&out).ok_or_else(|| format!("{} {}: {out}", program.path.display(), arguments.join(" ")))
}

/// Packets before the messages. The client's: SYN, acknowledgement of the SYN-ACK, the message that opens the
/// connection, and the acknowledgement of its answer. The server's: SYN-ACK, acknowledgement of that message, and the
/// answer.
const BEFORE: [u64; 2] = [4, 3];

/// A plan of `messages` dialogues at intervals of `gap` microseconds, with answers of this size.
pub fn dialogue_plan(messages: u32, gap: u64, answer: u32) -> MessagePlan {
    MessagePlan { messages, gap, bytes: 200, answer, ..MessagePlan::small_dialogues("sack", 1000) }
}

/// Returns the mean delay of the messages in ns-3, in seconds, and the program's output.
///
/// # Errors
/// As [`run_program`], or messages did not end.
pub fn ns3_mean(
    program: &ScenarioProgram,
    plan: &MessagePlan,
    lost: &LostPackets,
    own: &[&str],
) -> Result<(f64, String), String> {
    let list =
        |list, before| shift_ordinals(list, before).iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let pairs = [
        ("warmup", (BEGIN.as_nanos() as f64 / 1e9).to_string()),
        ("drain", DRAIN.as_secs_f64().to_string()),
        ("messages", plan.messages.to_string()),
        ("gap", (plan.gap as f64 / 1e6).to_string()),
        ("request", plan.bytes.to_string()),
        ("answer", plan.answer.to_string()),
        ("up", list(&lost.up, BEFORE[0])),
        ("down", list(&lost.down, BEFORE[1])),
    ];
    let mut arguments: Vec<String> =
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    arguments.extend(own.iter().map(|word| (*word).to_owned()));
    let out = printed_by(&program.path.display().to_string(), &arguments)?;
    let line = values_of(&out).ok_or_else(|| format!("no line of results in {out}"))?;
    if line.get("failed").is_none_or(|failed| failed != "0") {
        return Err(format!("messages did not end: {line:?}"));
    }
    let mean = line.get("mean").and_then(|v| v.parse().ok());
    Ok((mean.ok_or_else(|| format!("no mean in {line:?}"))?, out))
}

/// Returns the delay of each message in our simulator, in seconds, with these settings.
///
/// # Errors
/// The study is faulty, or messages did not end.
pub fn delays_in_seconds(plan: &MessagePlan, lost: &LostPackets, settings: &str) -> Result<Vec<f64>, String> {
    let delays = messages::simulated_delays(plan, lost, settings, BEFORE)?;
    Ok(delays.iter().map(|delay| delay.as_secs_f64()).collect())
}
