//! packetdrill's scripts, run against the simulator's TCP and SCTP in virtual time.
//!
//! A script injects packets into a host, makes its system calls, and says what the host must send and when.
//! Here the host is made of `usher_sim`'s state machines, reached through their codecs: what a script injects
//! becomes bytes that they parse, what they emit is bytes that are held against the script. The codec on the
//! script's side is this crate's own.

mod parse;
mod run;
mod script;
mod wire;

pub use parse::{ScriptError, parse_script};
pub use run::{ScriptOutcome, ScriptVerdict, run_script};
pub use script::Script;

/// What scripts' `#ifdef` tests for: the standard, or a system whose behaviour the lines are.
const VARIANTS: [&str; 3] = ["STANDARD", "FreeBSD", "Linux"];

/// Reads and runs a script.
///
/// Where it has variants, for the standard and for systems, it passes where one of them does, since the
/// simulator is none of those systems; else the outcome is that of the first it has.
pub fn judge_script(text: &str) -> ScriptOutcome {
    let has = |symbol: &&&str| parse::tests_for(text, symbol);
    let mut variants: Vec<&str> = VARIANTS.iter().filter(has).copied().collect();
    if variants.is_empty() {
        variants.push(VARIANTS[1]);
    }
    let outcomes = variants.iter().map(|symbol| judge_variant(text, symbol));
    let mut first = None;
    for outcome in outcomes {
        if outcome.verdict == ScriptVerdict::Pass {
            return outcome;
        }
        first.get_or_insert(outcome);
    }
    first.unwrap_or_else(|| judge_variant(text, VARIANTS[1]))
}

fn judge_variant(text: &str, symbol: &str) -> ScriptOutcome {
    match parse_script(text, &[symbol]) {
        Ok(script) => run_script(&script),
        Err(fault) => {
            ScriptOutcome { verdict: ScriptVerdict::Unsupported, line: Some(fault.line), why: fault.message }
        }
    }
}

/// What a fuzzer runs: any bytes are a script or a fault in one of their lines.
///
/// # Panics
/// Where they are neither: a defect of the parser.
pub fn parse_any(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1) as u32 + 1;
    match parse_script(&text, &[VARIANTS[0]]) {
        Ok(script) => assert!(script.events.windows(2).all(|pair| pair[0].line <= pair[1].line)),
        Err(fault) => assert!(fault.line <= lines, "{fault} of {lines} lines"),
    }
}
