//! `usher verify`: what is known beforehand, beside what the code makes of it.

use crate::output::{Failure, Output, columns};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use usher_core::automaton::Diagram;
use usher_verify::{Check, Oracle, check};

/// The oracles that are meant.
fn meant<'a>(oracles: &'a [Oracle], filter: Option<&str>) -> Result<Vec<&'a Oracle>, Failure> {
    let meant: Vec<&Oracle> =
        oracles.iter().filter(|o| filter.is_none_or(|filter| o.is_meant_by(filter))).collect();
    match filter {
        Some(filter) if meant.is_empty() => Err(Failure::usage(format!(
            "nothing is named like \"{filter}\"; usher verify --list says what there is"
        ))),
        _ => Ok(meant),
    }
}

/// Says which oracles there are.
pub(crate) fn list(output: &Output, oracles: &[Oracle], filter: Option<String>) -> Result<(), Failure> {
    let meant = meant(oracles, filter.as_deref())?;
    if output.json {
        let entry =
            |o: &&Oracle| json!({ "group": o.group, "name": o.name, "about": o.about, "source": o.source });
        return output.value(&meant.iter().map(entry).collect());
    }
    let mut rows = vec![["NAME", "SOURCE", "WHAT"].map(str::to_owned).to_vec()];
    rows.extend(meant.iter().map(|o| vec![o.label(), o.source.to_owned(), o.about.to_owned()]));
    output.text(&columns(&rows))
}

/// Runs the oracles and prints each with its values; fails where one does not hold.
pub(crate) fn run(output: &Output, oracles: &[Oracle], filter: Option<String>) -> Result<(), Failure> {
    let meant = meant(oracles, filter.as_deref())?;
    let bar = if output.progress { ProgressBar::new(meant.len() as u64) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("verify [{bar:30}] {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let mut checks = Vec::new();
    for oracle in meant {
        bar.set_message(oracle.label());
        let found = check(oracle);
        if !output.json {
            bar.suspend(|| output.text(&shown(oracle, &found)))?;
        }
        checks.extend(found);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if output.json {
        output.value(&checks.iter().map(entry).collect())?;
    }
    let failed: Vec<String> = checks.iter().filter(|c| !c.finding.holds).map(Check::label).collect();
    if !failed.is_empty() {
        let all = checks.len();
        return Err(Failure::failed(format!("{} of {all} FAILED: {}", failed.len(), failed.join("; "))));
    }
    if output.json {
        return Ok(());
    }
    output.text(&format!("all {} hold\n", checks.len()))
}

/// Prints the automata that are meant, row by row or as graphs.
pub(crate) fn automata(output: &Output, filter: Option<String>, dot: bool) -> Result<(), Failure> {
    let mut meant = usher_verify::automata();
    let filter = filter.unwrap_or_default().to_lowercase();
    meant.retain(|diagram| diagram.name.contains(&filter));
    if meant.is_empty() {
        return Err(Failure::usage(format!(
            "no automaton is named like \"{filter}\"; usher verify --automata prints all, with their names"
        )));
    }
    if output.json {
        return output.value(&meant.iter().map(diagram).collect());
    }
    let show = |diagram: &Diagram| if dot { diagram.dot().to_string() } else { diagram.to_string() };
    output.text(&meant.iter().map(show).collect::<Vec<_>>().join("\n"))
}

/// An automaton for programs.
fn diagram(diagram: &Diagram) -> serde_json::Value {
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

fn verdict(check: &Check) -> &'static str {
    if check.finding.holds { "ok" } else { "FAILED" }
}

/// An oracle and its cases for people.
fn shown(oracle: &Oracle, checks: &[Check]) -> String {
    let mut text = format!("{}: {}\n  source: {}\n", oracle.label(), oracle.about, oracle.source);
    for check in checks {
        let finding = &check.finding;
        let head = format!("  {:8}{}", verdict(check), finding.case);
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

/// A check for programs.
fn entry(check: &Check) -> serde_json::Value {
    let finding = &check.finding;
    json!({
        "group": check.group,
        "name": check.name,
        "case": finding.case,
        "about": check.about,
        "source": check.source,
        "expected": finding.expected,
        "obtained": finding.obtained,
        "tolerance": finding.tolerance,
        "holds": finding.holds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_verify::Finding;

    const WRONG: Oracle = Oracle {
        group: "wrong",
        name: "sum",
        about: "two and two are five",
        source: "nowhere",
        run: || Ok(vec![Finding::equal("", 4, 2 + 2), Finding::equal("with 5", 5, 2 + 2)]),
    };

    #[test]
    fn a_wrong_expectation_is_shown_as_failed_and_ends_with_code_1() {
        let text = shown(&WRONG, &check(&WRONG));
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
        let output = Output { json: false, verbose: false, progress: false };
        let failure = run(&output, &[WRONG], None).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (1, "1 of 2 FAILED: wrong/sum: with 5"));
        assert_eq!(entry(&check(&WRONG)[1])["holds"], false);
    }

    #[test]
    fn a_filter_that_means_nothing_is_wrong_usage() {
        let output = Output { json: false, verbose: false, progress: false };
        assert_eq!(run(&output, &[WRONG], Some("right".to_owned())).unwrap_err().code, 2);
        assert_eq!(meant(&[WRONG], Some("NG/S")).map(|m| m.len()).unwrap(), 1);
    }
}
