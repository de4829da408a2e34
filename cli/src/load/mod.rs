//! `usher load`: many logins on a real server, and what that shows.

pub(crate) mod args;
mod build;
mod calibrate;
mod value;
mod view;

pub(crate) use build::realm_of;
pub(crate) use value::Part;

use crate::output::{Failure, Output, quoted};
use args::LoadCommand;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::WallTime;
use usher_load::report::{self, About};
use usher_load::{Outcome, Ramp, RunError, ServerUse, Shown, Verdict, Watch, is_own, run, try_one};

/// The exit code where the results are not as expected.
const UNEXPECTED: u8 = 3;

/// Ends when the user interrupts; nobody sees anything.
struct Silent<'a>(&'a AtomicBool);

impl Watch for Silent<'_> {
    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) fn load(output: &Output, command: &LoadCommand) -> Result<(), Failure> {
    let job = build::job(command)?;
    for address in &job.addresses {
        if !is_own(address.ip()) && !job.yes {
            let why = if std::io::stdin().is_terminal() { "" } else { " (nobody can be asked here)" };
            return Err(Failure::usage(format!(
                "{address} is not this machine's own: a load can put a server out of service{why}. With its owner's \
                 leave, give the command again with --yes"
            )));
        }
    }
    if let Some(interface) = &job.plan.interface
        && !usher_load::in_namespace()
        && !job.yes
    {
        return Err(Failure::usage(format!(
            "behind {interface} may be other people's: a load can put a concentrator out of service. With its owner's leave, give \
             the command again with --yes (within a network namespace nobody is asked)"
        )));
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut signals = Vec::new();
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let id = signal_hook::flag::register(signal, interrupted.clone());
        signals.push(id.map_err(|e| Failure::failed(format!("cannot listen for interrupts: {e}")))?);
    }
    if let Some(to) = &command.shared().calibrate {
        let result = calibrate::run(output, command.shared(), &job, to, &interrupted);
        for id in signals {
            signal_hook::low_level::unregister(id);
        }
        return result;
    }
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let begun = std::time::Instant::now();
    let result = (|| {
        if job.check {
            try_one(&job.plan, &mut Silent(&interrupted))?;
        }
        let mut view = view::View::new(&job.plan, output.progress, &interrupted);
        let outcome = run(&job.plan, &mut view);
        view.end();
        outcome
    })();
    for id in signals {
        signal_hook::low_level::unregister(id);
    }
    let outcome = result.map_err(|e| explained(&e))?;
    let verdicts = judge(&job.expect, &outcome);
    let unmet: Vec<String> = verdicts
        .iter()
        .filter(|v| !v.met)
        .map(|v| format!("expected {}, but it was: {}", v.expected, v.told))
        .collect();
    let about = About {
        command: job.command,
        method: job.method,
        server: job.server,
        open_loop: job.open_loop,
        methods: job.methods,
        trains: job.trains,
        verdicts,
        settings: job.settings,
        line: line(std::env::args()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: WallTime::from_unix_secs(started.as_secs()),
        elapsed_s: begun.elapsed().as_secs_f64(),
    };
    if let Some(folder) = &job.out {
        let path = report::write(folder, &about, &outcome).map_err(Failure::failed)?;
        output.note(&format!("the report is {}", path.display()));
    }
    if output.json {
        output.value(&report::json(&about, &outcome))?;
    } else {
        output.text(&view::table(&about, &outcome))?;
    }
    if !unmet.is_empty() {
        let mut message = unmet.join("\n");
        if let Some(limit) = outcome.limit {
            message.push_str(&format!(
                "\nThe generator was the limit ({}): the server may do better",
                limit.told()
            ));
        }
        return Err(Failure { code: UNEXPECTED, message });
    }
    if outcome.interrupted {
        return Err(Failure::interrupted("ended by the user: the results are of what was done until then"));
    }
    if outcome.tally.succeeded == 0 {
        return Err(Failure::failed(format!(
            "{}{}",
            about.in_terms("no login ended as it had to"),
            outcome.tls
        )));
    }
    Ok(())
}

/// Holds what was expected against what was shown.
fn judge(expect: &[usher_load::Expectation], outcome: &Outcome) -> Vec<Verdict> {
    let shown = Shown {
        tally: &outcome.tally,
        measured_s: outcome.measured_s,
        server_ms: outcome.server.as_ref().and_then(ServerUse::ms_per_login),
        knee: outcome.ramp.as_ref().and_then(Ramp::knee).map(|k| k.capacity),
        setup: outcome.setup(),
    };
    expect.iter().map(|e| e.judge(&shown)).collect()
}

fn explained(error: &RunError) -> Failure {
    match error {
        RunError::Config(_) => Failure::usage(error),
        RunError::First { .. } => {
            Failure::failed(format!("{error}\nNothing was loaded. --no-check goes on all the same"))
        }
        _ => Failure::failed(error),
    }
}

/// The command line without secrets, for the report.
fn line(words: impl Iterator<Item = String>) -> String {
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
            line.push(quoted(&word));
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
        assert_eq!(line(words.into_iter()), "usher load --secret ... --password=... --user 'a b'");
    }
}
