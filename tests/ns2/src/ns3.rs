//! ns-3, for which a scenario is a program in C++: it is compiled, run, and removed.
//!
//! ns-3 is Debian's package `libns3-dev` (3.37), as it is.

use crate::messages::{self, BEGIN, DRAIN, MessagePlan};
use crate::transfer::{LostPackets, shift_ordinals};
use crate::{printed_by, values_of};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The libraries that a scenario is linked to.
const LIBRARIES: [&str; 5] =
    ["-lns3-core", "-lns3-network", "-lns3-internet", "-lns3-point-to-point", "-lns3-traffic-control"];

/// So many programs this process has compiled.
static COMPILED: AtomicU32 = AtomicU32::new(0);

/// A compiled scenario, in a temporary folder that goes with it.
#[derive(Debug)]
pub struct ScenarioProgram {
    folder: PathBuf,
    path: PathBuf,
}

impl ScenarioProgram {
    /// Compiles a scenario.
    ///
    /// # Errors
    /// Where the compiler or ns-3 is missing.
    pub fn compile(scenario: &str) -> Result<Self, String> {
        let number = COMPILED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("usher-{scenario}-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // From here on the folder is removed, whatever fails.
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
        // A folder that somebody else has removed is gone, too.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What one run printed, as [`ns`](crate::run_ns2) has it.
///
/// # Errors
/// Where it takes too long or fails, and where there is no line of results.
pub fn run_program(
    program: &ScenarioProgram,
    arguments: &[String],
) -> Result<BTreeMap<String, String>, String> {
    let out = printed_by(&program.path.display().to_string(), arguments)?;
    values_of(&out).ok_or_else(|| format!("{} {}: {out}", program.path.display(), arguments.join(" ")))
}

/// Packets that leave before the messages: the client's SYN and what acknowledges the SYN-ACK, the message that opens the connection,
/// and the acknowledgement of its answer; the server's SYN-ACK, what acknowledges that message, and the answer.
const BEFORE: [u64; 2] = [4, 3];

/// Dialogues of these sizes at fixed times, so many, each so many microseconds after the one before.
pub fn dialogue_plan(messages: u32, gap: u64, answer: u32) -> MessagePlan {
    MessagePlan { messages, gap, bytes: 200, answer, ..MessagePlan::small_dialogues("sack", 1000) }
}

/// The mean delay of the messages in ns-3, in seconds, and all that it printed.
///
/// # Errors
/// As [`run_program`], and where messages do not end.
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

/// The delay of each message in the simulator, in seconds, by these settings.
///
/// # Errors
/// Where the study is at fault, or messages do not end.
pub fn delays_in_seconds(plan: &MessagePlan, lost: &LostPackets, settings: &str) -> Result<Vec<f64>, String> {
    let delays = messages::simulated_delays(plan, lost, settings, BEFORE)?;
    Ok(delays.iter().map(|delay| delay.as_secs_f64()).collect())
}
