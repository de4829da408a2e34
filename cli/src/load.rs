//! `usher load`: loads a real server with logins and reports the results.

pub(crate) mod args;
mod build;
mod calibrate;
mod value;
mod view;

pub(crate) use build::realm_of_host;
pub(crate) use value::MethodShareArg;

use crate::output::{CommandFailure, ConsoleOutput, shell_quote};
use args::LoadCommand;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::WallTime;
use usher_load::report::{self, LoadRunDescription};
use usher_load::{
    ExpectationInputs, ExpectationVerdict, LoadObserver, LoadOutcome, RampSearch, RunError,
    ServerResourceUsage, is_own, log_in_by_each_method, run_load_plan,
};

/// The exit code if results differ from the expectations.
const UNEXPECTED: u8 = 3;

/// An observer without output. It ends the run when the user interrupts.
struct SilentLoadObserver<'a>(&'a AtomicBool);

impl LoadObserver for SilentLoadObserver<'_> {
    fn is_interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) fn run_load(output: &ConsoleOutput, command: &LoadCommand) -> Result<(), CommandFailure> {
    let job = build::prepare_load(command)?;
    for address in &job.addresses {
        if !is_own(address.ip()) && !job.yes {
            let why = if std::io::stdin().is_terminal() { "" } else { " (no terminal for a confirmation)" };
            return Err(CommandFailure::usage_error(format!(
                "{address} is not an address of this machine: a load can put a server out of service{why}. \
                 With its owner's permission, repeat the command with --yes"
            )));
        }
    }
    if let Some(interface) = &job.plan.interface
        && !usher_load::is_in_network_namespace()
        && !job.yes
    {
        return Err(CommandFailure::usage_error(format!(
            "the concentrator behind {interface} may belong to others: a load can put it out of service. \
             With its owner's permission, repeat the command with --yes. A network namespace needs no --yes"
        )));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut signals = Vec::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let id = signal_hook::flag::register(signal, interrupted.clone());
        signals
            .push(id.map_err(|e| CommandFailure::runtime_error(format!("cannot handle interrupts: {e}")))?);
    }
    if let Some(to) = &command.load_args().calibrate {
        let result = calibrate::run_calibration(output, command.load_args(), &job, to, &interrupted);
        for id in signals {
            signal_hook::low_level::unregister(id);
        }
        return result;
    }
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let begun = std::time::Instant::now();
    let result = (|| {
        if job.check {
            log_in_by_each_method(&job.plan, &mut SilentLoadObserver(&interrupted))?;
        }
        let mut view = view::LoadProgress::new(&job.plan, output.progress, &interrupted);
        let outcome = run_load_plan(&job.plan, &mut view);
        view.clear_progress_line();
        outcome
    })();
    for id in signals {
        signal_hook::low_level::unregister(id);
    }
    let outcome = result.map_err(|e| explain_run_error(&e))?;
    let verdicts = judge_expectations(&job.expect, &outcome);
    let unmet: Vec<String> = verdicts
        .iter()
        .filter(|v| !v.met)
        .map(|v| format!("expected {}, but it was: {}", v.expected, v.found_text))
        .collect();
    let about = LoadRunDescription {
        command: job.command,
        method: job.method,
        server: job.server,
        open_loop: job.open_loop,
        methods: job.methods,
        trains: job.trains,
        verdicts,
        settings: job.settings,
        line: redacted_command_line(std::env::args()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: WallTime::from_unix_secs(started.as_secs()),
        elapsed_s: begun.elapsed().as_secs_f64(),
    };
    if let Some(folder) = &job.out {
        let path = report::write_report(folder, &about, &outcome).map_err(CommandFailure::runtime_error)?;
        output.print_note(&format!("the report is {}", path.display()));
    }
    if output.json {
        output.print_json(&report::outcome_json(&about, &outcome))?;
    } else {
        output.print_text(&view::summary_table(&about, &outcome))?;
    }
    if !unmet.is_empty() {
        let mut message = unmet.join("\n");
        if let Some(limit) = outcome.limit {
            message.push_str(&format!(
                "\nThe generator was the limit ({}): the server may be faster",
                limit.describe()
            ));
        }
        return Err(CommandFailure { code: UNEXPECTED, message });
    }
    if outcome.interrupted {
        return Err(CommandFailure::interrupted("interrupted: the results cover the run until then"));
    }
    if outcome.tally.succeeded == 0 {
        return Err(CommandFailure::runtime_error(format!(
            "{}{}",
            about.replace_login_term("no login had the expected result"),
            outcome.tls
        )));
    }
    Ok(())
}

/// Compares the results with the expectations.
fn judge_expectations(
    expect: &[usher_load::LoadExpectation],
    outcome: &LoadOutcome,
) -> Vec<ExpectationVerdict> {
    let shown = ExpectationInputs {
        tally: &outcome.tally,
        measured_s: outcome.measured_s,
        server_ms: outcome.server.as_ref().and_then(ServerResourceUsage::ms_per_login),
        knee: outcome.ramp.as_ref().and_then(RampSearch::find_ramp_knee).map(|k| k.capacity),
        setup: outcome.session_setup_rates(),
    };
    expect.iter().map(|e| e.judge_load_results(&shown)).collect()
}

fn explain_run_error(error: &RunError) -> CommandFailure {
    match error {
        RunError::Config(_) => CommandFailure::usage_error(error),
        RunError::First { .. } => CommandFailure::runtime_error(format!(
            "{error}\nThe load was not started. --no-check skips this check"
        )),
        _ => CommandFailure::runtime_error(error),
    }
}

/// Returns the command line without secrets, for the report.
fn redacted_command_line(words: impl Iterator<Item = String>) -> String {
    let mut line = vec!["usher".to_owned()];
    let mut hide = false;
    for word in words.skip(1) {
        if hide {
            line.push("...".to_owned());
            hide = false;
        } else if let Some((option @ ("--secret" | "--password"), _)) = word.split_once('=') {
            line.push(format!("{option}=..."));
        } else {
            hide = matches!(word.as_str(), "--secret" | "--password");
            line.push(shell_quote(&word));
        }
    }
    line.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_in_the_report() {
        let words =
            ["/bin/usher", "load", "--secret", "s3", "--password=pw", "--user", "a b"].map(str::to_owned);
        assert_eq!(
            redacted_command_line(words.into_iter()),
            "usher load --secret ... --password=... --user 'a b'"
        );
    }
}
