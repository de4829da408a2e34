//! The output of verdicts: `claims.json`, tables, and sections of a report.

use crate::data::{self, ClaimKind};
use crate::judge::{ClaimJudgement, ClaimValue, Verdict, format_percent};
use crate::results::{DEFAULT_VARIANT, RunResults};
use usher_report::{ReportColumn, ReportSection, ReportTable, TableCell};

/// Returns the text of `claims.json`: a list of objects with `id`, `published`, `ours`, `low`, `high`, `verdict` and
/// `reason`. The same verdicts give the same bytes.
pub fn judgements_json(judgements: &[ClaimJudgement]) -> String {
    // The judgements contain only texts and finite numbers, so JSON encoding cannot fail.
    let text = serde_json::to_string_pretty(judgements).unwrap_or_default();
    text + "\n"
}

impl ClaimJudgement {
    /// Formats numbers with their unit; those of a ratio in per cent.
    fn with_unit(&self, value: &ClaimValue) -> String {
        let claim = data::find_claim(&self.id);
        match (value, claim.map_or("", |c| c.unit.as_str())) {
            (ClaimValue::Number(share), "") if claim.is_some_and(|c| c.kind == ClaimKind::Ratio) => {
                format_percent(*share)
            }
            (ClaimValue::Text(text), _) => text.clone(),
            (value, "") => value.to_text(),
            (value, unit) => format!("{} {unit}", value.to_text()),
        }
    }

    /// Returns the published value with its unit.
    pub fn published_text(&self) -> String {
        self.with_unit(&self.published)
    }

    /// Returns our result with its unit; empty without a result.
    pub fn our_result_text(&self) -> String {
        self.ours.as_ref().map_or_else(String::new, |ours| self.with_unit(ours))
    }

    /// Returns the interval of our result; empty if there is none.
    pub fn interval_text(&self) -> String {
        match (&self.low, &self.high) {
            (Some(ClaimValue::Named(low)), Some(ClaimValue::Named(high))) => {
                let each = low.iter().zip(high).map(|((_, l), (_, h))| range_text(*l, *h));
                each.collect::<Vec<_>>().join("; ")
            }
            (Some(ClaimValue::Number(low)), Some(ClaimValue::Number(high))) => {
                if data::find_claim(&self.id).is_some_and(|c| c.kind == ClaimKind::Ratio) {
                    format!("{} %", range_text(*low * 100.0, *high * 100.0))
                } else {
                    range_text(*low, *high)
                }
            }
            _ => String::new(),
        }
    }
}

fn range_text(low: f64, high: f64) -> String {
    format!("{} to {}", crate::judge::format_digits(low), crate::judge::format_digits(high))
}

/// Marks a verdict so that readers find it at a glance.
fn format_verdict_mark(verdict: Verdict) -> String {
    let mark = match verdict {
        Verdict::Reproduced => "●",
        Verdict::Partly => "◐",
        Verdict::Differs => "○",
        Verdict::NotComparable | Verdict::NotRun | Verdict::NotYet => return verdict.name().to_owned(),
    };
    format!("{mark}\u{a0}{}", verdict.name())
}

/// Returns the verdicts as a table: theirs, ours, interval, verdict, why.
pub fn judgement_table(judgements: &[ClaimJudgement]) -> ReportTable {
    let titles = ["Claim", "Published", "Ours (95 % interval)", "Verdict", "Why"];
    let row = |j: &ClaimJudgement| {
        let ours = match (j.our_result_text(), j.interval_text()) {
            (ours, interval) if interval.is_empty() => ours,
            (ours, interval) => format!("{ours} ({interval})"),
        };
        vec![
            TableCell::from(j.id.as_str()),
            TableCell::from(j.published_text()),
            TableCell::from(ours),
            TableCell::from(format_verdict_mark(j.verdict)),
            TableCell::from(j.reason.as_str()),
        ]
    };
    ReportTable {
        title: String::new(),
        columns: titles.map(|t| ReportColumn::new(t, "")).into(),
        rows: judgements.iter().map(row).collect(),
        folded: false,
    }
}

/// Adds a table of its claims to each figure. `figures` returns the claims for a figure's name.
pub fn add_claim_tables<'a>(
    sections: &mut [ReportSection],
    figures: impl IntoIterator<Item = (&'a str, &'a [String])>,
    judgements: &[ClaimJudgement],
) {
    for (name, claims) in figures {
        let own: Vec<ClaimJudgement> =
            judgements.iter().filter(|j| claims.contains(&j.id)).cloned().collect();
        let section = sections.iter_mut().find(|s| s.figures.iter().any(|f| f.name == name));
        if let (Some(section), false) = (section, own.is_empty()) {
            let mut table = judgement_table(&own);
            table.title =
                format!("Published claims on this figure, and our results: {}", verdict_counts(&own));
            section.tables.push(table);
        }
    }
}

/// Counts the verdicts: "3 reproduced, 1 partly".
pub fn verdict_counts(judgements: &[ClaimJudgement]) -> String {
    let count = |verdict: Verdict| judgements.iter().filter(|j| j.verdict == verdict).count();
    let all = [
        Verdict::Reproduced,
        Verdict::Partly,
        Verdict::Differs,
        Verdict::NotComparable,
        Verdict::NotRun,
        Verdict::NotYet,
    ];
    let counted = all.into_iter().filter(|v| count(*v) > 0).map(|v| format!("{} {}", count(v), v.name()));
    counted.collect::<Vec<_>>().join(", ")
}

/// Returns all verdicts as a section of a report.
pub fn judgement_section(judgements: &[ClaimJudgement]) -> ReportSection {
    ReportSection {
        title: "Published claims".to_owned(),
        text: format!(
            "{} claims: {}. A number is reproduced within 10 % (a delay also within 0.05 s), and partly \
             within 30 %. An order or shape is reproduced if it holds at every point, and partly if at two \
             thirds. A bound is reproduced if our whole interval is within it, and partly if some of the \
             interval is.",
            judgements.len(),
            verdict_counts(judgements)
        ),
        figures: Vec::new(),
        tables: vec![judgement_table(judgements)],
    }
}

/// Returns the sensitivity map as a section of a report: the verdict on each claim for each variant. `None` if only the
/// default was run.
pub fn sensitivity_map(results: &RunResults) -> Option<ReportSection> {
    let variants = results.variants();
    if variants.is_empty() {
        return None;
    }
    let names: Vec<&str> = [DEFAULT_VARIANT].into_iter().chain(variants.iter().map(String::as_str)).collect();
    let mut judged: Vec<Vec<ClaimJudgement>> =
        names.iter().map(|v| crate::evaluate_claims(results, v)).collect();
    let [default, others @ ..] = &mut judged[..] else { return None };
    default.retain(|j| others.iter().flatten().any(|other| other.id == j.id));
    // Omit claims whose study was not run with any variant, because their columns would be empty.
    let varied = |i: &usize| judged[1..].iter().any(|row| row[*i].ours.is_some());
    let shown: Vec<usize> = (0..judged[0].len()).filter(varied).collect();
    let count = |row: &[ClaimJudgement], verdict: Verdict| {
        shown.iter().filter(|i| row[**i].verdict == verdict).count()
    };

    let mut columns = vec![ReportColumn::new("Choice", "")];
    columns.extend([Verdict::Reproduced, Verdict::Partly].map(|v| ReportColumn::new(v.name(), "claims")));
    columns.extend(shown.iter().map(|i| ReportColumn::new(claim_name_without_prefix(&judged[0][*i].id), "")));
    let cell = |j: &ClaimJudgement| match j.verdict {
        Verdict::NotRun | Verdict::NotYet => TableCell::Empty,
        // The map shows only marks for claims about an order or a form: their words would make it too wide. The table
        // of claims has the words.
        verdict if !matches!(j.ours, Some(ClaimValue::Number(_) | ClaimValue::Named(_))) => {
            TableCell::from(format_verdict_mark(verdict))
        }
        verdict => TableCell::from(
            format!("{}, {}", j.our_result_text(), format_verdict_mark(verdict))
                .trim_start_matches(", ")
                .to_owned(),
        ),
    };
    let row = |(name, row): (&&str, &Vec<ClaimJudgement>)| {
        let mut cells = vec![TableCell::from(*name)];
        cells.extend([Verdict::Reproduced, Verdict::Partly].map(|v| TableCell::from(count(row, v) as f64)));
        cells.extend(shown.iter().map(|i| cell(&row[*i])));
        cells
    };
    let rows = names.iter().zip(&judged).map(row).collect();

    let best = names.iter().zip(&judged).map(|(name, row)| (count(row, Verdict::Reproduced), *name));
    let (most, at) = best.fold((0, ""), |best, next| if next.0 > best.0 { next } else { best });
    let best = match most {
        0 => "no choice reproduces any of them".to_owned(),
        n if n == shown.len() => format!("the choice \"{at}\" reproduces all of them"),
        n => format!("no choice reproduces all of them; \"{at}\" reproduces the most, {n}"),
    };
    Some(ReportSection {
        title: "Which claims hold under which choices".to_owned(),
        text: format!(
            "Each row is a choice that differs from the documented defaults, judged by the same rules. Only \
             the verdicts at the defaults count. Among the {} claims that the choices affect, {best}. An empty \
             cell was not run.",
            shown.len()
        ),
        figures: Vec::new(),
        tables: vec![ReportTable { title: String::new(), columns, rows, folded: false }],
    })
}

/// Returns a claim's name without its document's prefix.
fn claim_name_without_prefix(id: &str) -> &str {
    id.split_once('.').map_or(id, |(_, rest)| rest)
}
