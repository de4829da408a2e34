//! `usher verify`: compares the code's results with values known from theory.

use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use usher_core::automaton::AutomatonDiagram;
use usher_verify::{OracleCheck, VerificationOracle, run_oracle};

/// Selects the oracles by name.
fn select_oracles<'a>(
    oracles: &'a [VerificationOracle],
    filter: Option<&str>,
) -> Result<Vec<&'a VerificationOracle>, CommandFailure> {
    let meant: Vec<&VerificationOracle> =
        oracles.iter().filter(|o| filter.is_none_or(|filter| o.matches_filter(filter))).collect();
    match filter {
        Some(filter) if meant.is_empty() => Err(CommandFailure::usage_error(format!(
            "no check matches \"{filter}\"; usher verify --list shows all"
        ))),
        _ => Ok(meant),
    }
}

/// Lists the oracles.
pub(crate) fn list_oracles(
    output: &ConsoleOutput,
    oracles: &[VerificationOracle],
    filter: Option<String>,
) -> Result<(), CommandFailure> {
    let meant = select_oracles(oracles, filter.as_deref())?;
    if output.json {
        let entry = |o: &&VerificationOracle| json!({ "group": o.group, "name": o.name, "about": o.description, "source": o.source });
        return output.print_json(&meant.iter().map(entry).collect());
    }
    let mut rows = vec![["NAME", "SOURCE", "WHAT"].map(str::to_owned).to_vec()];
    rows.extend(meant.iter().map(|o| vec![o.label(), o.source.to_owned(), o.description.to_owned()]));
    output.print_text(&format_columns(&rows))
}

/// Runs the oracles and prints each with its values. Fails if an oracle fails.
pub(crate) fn run_oracles(
    output: &ConsoleOutput,
    oracles: &[VerificationOracle],
    filter: Option<String>,
) -> Result<(), CommandFailure> {
    let meant = select_oracles(oracles, filter.as_deref())?;
    let bar = if output.progress { ProgressBar::new(meant.len() as u64) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("verify [{bar:30}] {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut checks = Vec::new();
    for oracle in meant {
        bar.set_message(oracle.label());
        let found = run_oracle(oracle);
        if !output.json {
            bar.suspend(|| output.print_text(&format_oracle(oracle, &found)))?;
        }
        checks.extend(found);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if output.json {
        output.print_json(&checks.iter().map(check_json).collect())?;
    }
    let failed: Vec<String> = checks.iter().filter(|c| !c.finding.agrees).map(OracleCheck::label).collect();
    if !failed.is_empty() {
        let all = checks.len();
        return Err(CommandFailure::runtime_error(format!(
            "{} of {all} FAILED: {}",
            failed.len(),
            failed.join("; ")
        )));
    }
    if output.json {
        return Ok(());
    }
    output.print_text(&format!("all {} checks passed\n", checks.len()))
}

/// Prints the selected automata, as rows or as graphs.
pub(crate) fn print_automata(
    output: &ConsoleOutput,
    filter: Option<String>,
    dot: bool,
) -> Result<(), CommandFailure> {
    let mut meant = usher_verify::automata();
    let filter = filter.unwrap_or_default().to_lowercase();
    meant.retain(|diagram| diagram.name.contains(&filter));
    if meant.is_empty() {
        return Err(CommandFailure::usage_error(format!(
            "no automaton matches \"{filter}\"; usher verify --automata prints all with their names"
        )));
    }
    if output.json {
        return output.print_json(&meant.iter().map(diagram_json).collect());
    }
    let show =
        |diagram: &AutomatonDiagram| if dot { diagram.to_dot().to_string() } else { diagram.to_string() };
    output.print_text(&meant.iter().map(show).collect::<Vec<_>>().join("\n"))
}

/// Converts an automaton to JSON.
fn diagram_json(diagram: &AutomatonDiagram) -> serde_json::Value {
    let states = diagram.boxes.iter().map(|(state, entry)| json!({ "state": state, "entry": entry }));
    let rows = diagram.lines.iter().map(|line| {
        json!({ "from": line.from, "on": line.on, "if": line.when, "actions": line.actions, "to": line.to })
    });
    let gaps = diagram
        .gaps
        .iter()
        .map(|gap| json!({ "from": gap.from, "kind": gap.kind.name(), "on": gap.on, "why": gap.why }));
    json!({
        "name": diagram.name,
        "source": diagram.source,
        "start": diagram.start,
        "states": states.collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
        "gaps": gaps.collect::<Vec<_>>(),
    })
}

fn verdict_text(check: &OracleCheck) -> &'static str {
    if check.finding.agrees { "ok" } else { "FAILED" }
}

/// Formats an oracle and its cases for people.
fn format_oracle(oracle: &VerificationOracle, checks: &[OracleCheck]) -> String {
    let mut text = format!("{}: {}\n  source: {}\n", oracle.label(), oracle.description, oracle.source);
    for check in checks {
        let finding = &check.finding;
        let head = format!("  {:8}{}", verdict_text(check), finding.case);
        text.push_str(&format!("{}\n", head.trim_end()));
        text.push_str(&format!("          expected {}\n", finding.expected));
        text.push_str(&format!("          obtained {}\n", finding.obtained));
        if !finding.tolerance.is_empty() {
            text.push_str(&format!("          within   {}\n", finding.tolerance));
        }
    }
    text.push('\n');
    text
}

/// Converts a check to JSON.
fn check_json(check: &OracleCheck) -> serde_json::Value {
    let finding = &check.finding;
    json!({
        "group": check.group,
        "name": check.name,
        "case": finding.case,
        "about": check.description,
        "source": check.source,
        "expected": finding.expected,
        "obtained": finding.obtained,
        "tolerance": finding.tolerance,
        "holds": finding.agrees,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_verify::OracleFinding;

    const WRONG: VerificationOracle = VerificationOracle {
        group: "wrong",
        name: "sum",
        description: "two and two are five",
        source: "nowhere",
        run: || {
            Ok(vec![
                OracleFinding::expect_equal("", 4, 2 + 2),
                OracleFinding::expect_equal("with 5", 5, 2 + 2),
            ])
        },
    };

    #[test]
    fn a_wrong_expectation_is_shown_as_failed_and_ends_with_code_1() {
        let text = format_oracle(&WRONG, &run_oracle(&WRONG));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "wrong/sum: two and two are five",
                "source: nowhere",
                "ok",
                "expected 4",
                "obtained 4",
                "FAILED  with 5",
                "expected 5",
                "obtained 4",
                "",
            ]
        );
        let output = ConsoleOutput { json: false, verbose: false, progress: false };
        let failure = run_oracles(&output, &[WRONG], None).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (1, "1 of 2 FAILED: wrong/sum: with 5"));
        assert_eq!(check_json(&run_oracle(&WRONG)[1])["holds"], false);
    }

    #[test]
    fn a_filter_that_means_nothing_is_wrong_usage() {
        let output = ConsoleOutput { json: false, verbose: false, progress: false };
        assert_eq!(run_oracles(&output, &[WRONG], Some("right".to_owned())).unwrap_err().code, 2);
        assert_eq!(select_oracles(&[WRONG], Some("NG/S")).map(|m| m.len()).unwrap(), 1);
    }
}
