//! `usher claims`.

use crate::output::{CommandFailure, ConsoleOutput, format_columns};
use std::path::Path;
use usher_claims::{ClaimJudgement, RunResults};
use usher_experiment::statements::{self, OUT};

/// The line width of printed reasons.
const WIDTH: usize = 100;

/// Judges the claims by the runs in this folder, or by the best run of each study below the default folder.
pub(crate) fn judge_claims(output: &ConsoleOutput, dir: Option<&Path>) -> Result<(), CommandFailure> {
    let judged = statements::judge_statements(dir).map_err(CommandFailure::runtime_error)?;
    if dir.is_none() {
        let names: Vec<String> = judged.runs.iter().map(|path| path.display().to_string()).collect();
        output.print_note(&match names.len() {
            0 => format!("there is no run below {OUT}; start with: usher study run aaa --quick"),
            _ => format!("from {}", names.join(", ")),
        });
    }
    if output.json {
        return output.print_text(&usher_claims::judgements_json(&judged.list));
    }
    if judged.list.is_empty() {
        return output.print_text("No published claim concerns these studies.\n");
    }
    output.print_text(&as_text(&judged.list, &judged.varied))
}

fn as_text(judged: &[ClaimJudgement], varied: &RunResults) -> String {
    let mut table =
        vec![["CLAIM", "PUBLISHED", "OURS", "95 % INTERVAL", "VERDICT"].map(str::to_owned).to_vec()];
    table.extend(judged.iter().map(|j| {
        vec![
            j.id.clone(),
            j.published_text(),
            j.our_result_text(),
            j.interval_text(),
            j.verdict.name().to_owned(),
        ]
    }));
    let lines = format_columns(&table);
    let mut lines = lines.lines();
    let mut text = format!("{}\n", lines.next().unwrap_or_default());
    for (line, judgement) in lines.zip(judged) {
        text.push_str(&format!("{line}\n{}", wrap_text(&judgement.reason)));
    }
    for variant in varied.variants() {
        let judged = usher_claims::evaluate_claims(varied, &variant);
        let of = |verdict: usher_claims::Verdict| {
            let ids = judged.iter().filter(|j| j.verdict == verdict).map(|j| j.id.as_str());
            format!("{}: {}", verdict.name(), ids.collect::<Vec<_>>().join(", "))
        };
        let said = [usher_claims::Verdict::Reproduced, usher_claims::Verdict::Partly].map(of).join("; ");
        text.push_str(&format!("\nwith {variant}\n{}", wrap_text(&said)));
    }
    text
}

/// Wraps a text into indented lines.
fn wrap_text(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::from("   ");
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = String::from("   ");
        }
        line.push(' ');
        line.push_str(word);
    }
    format!("{lines}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_wrapped() {
        let text = wrap_text(&"word ".repeat(40));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|l| l.starts_with("    word") && l.len() <= WIDTH), "{text}");
        assert_eq!(wrap_text(""), "   \n");
    }
}
