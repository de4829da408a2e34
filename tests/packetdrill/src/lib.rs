//! Runs packetdrill's scripts against the simulator's TCP and SCTP in virtual time.
//!
//! A script injects packets into a host, makes its system calls, and states the packets and times that the host must
//! send. Here the host is made of `usher_sim`'s state machines, reached through their codecs. They parse the injected
//! bytes, and the bytes that they emit are compared with the script. The script's side has a codec of its own.

mod parse;
mod run;
mod script;
mod wire;

pub use parse::{ScriptError, parse_script};
pub use run::{ScriptOutcome, ScriptVerdict, run_script};
pub use script::Script;

/// The symbols of `#ifdef` in scripts: the standard, or a system with its own behaviour.
const VARIANTS: [&str; 3] = ["STANDARD", "FreeBSD", "Linux"];

/// Parses and runs a script.
///
/// A script with variants for the standard and for systems passes if one variant passes, since the simulator is none
/// of those systems. Otherwise the outcome is that of its first variant.
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

/// Parses any bytes, for a fuzzer. They are a script or a fault with its line.
///
/// # Panics
/// They are neither: a defect of the parser.
pub fn parse_any(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().count().max(1) as u32 + 1;
    match parse_script(&text, &[VARIANTS[0]]) {
        Ok(script) => assert!(script.events.windows(2).all(|pair| pair[0].line <= pair[1].line)),
        Err(fault) => assert!(fault.line <= lines, "{fault} of {lines} lines"),
    }
}
