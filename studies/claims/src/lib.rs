//! Published statements, and how our results bear them out.
//!
//! The statements are data ([`data`], `claims.toml`); each is judged by a function of its own from the rows of
//! runs ([`evaluate_claims`]). A verdict follows from rules (`docs/claims.md`, which says which of them were changed after
//! the first comparison), and every reason is computed: it says with numbers why the verdict is what it is.

mod aaa;
mod common;
mod handover;
mod ike;
mod judge;
mod measure;
mod mih;
mod pppoe;
mod results;
mod setup;
mod shown;
#[cfg(test)]
mod tests;
mod witness;

pub mod data;

pub use judge::{ClaimJudgement, ClaimValue, Verdict};
pub use results::{DEFAULT_VARIANT, RunResults};
pub use setup::{AccessSetup, StudySetup};
pub use shown::{
    add_claim_tables, judgement_section, judgement_table, judgements_json, sensitivity_map, verdict_counts,
};
pub use witness::add_ns2_series;

use data::{Claim, ClaimKind};
use results::VariantView;

/// Judges every claim of which the results hold a study, at one variant ([`DEFAULT_VARIANT`] for the verdicts
/// that count), in the order of the data. Other variants leave out what is said of the setting and of what was to
/// be studied, which is not theirs.
pub fn evaluate_claims(results: &RunResults, variant: &str) -> Vec<ClaimJudgement> {
    let of_rows = |c: &Claim| !matches!(c.kind, ClaimKind::Setup | ClaimKind::Scope);
    let concerned = |c: &&Claim| {
        c.studies.iter().any(|s| results.has_study(s)) && (variant == DEFAULT_VARIANT || of_rows(c))
    };
    data::claims().iter().filter(concerned).map(|c| judge_claim(c, results, variant)).collect()
}

/// Judges every claim of the data; those of which the results hold no study are "not run".
pub fn evaluate_all(results: &RunResults, variant: &str) -> Vec<ClaimJudgement> {
    data::claims().iter().map(|c| judge_claim(c, results, variant)).collect()
}

fn judge_claim(claim: &Claim, results: &RunResults, variant: &str) -> ClaimJudgement {
    let view = VariantView::new(results, variant, claim.is_robust());
    let found = match judge_functions().find(|(id, _)| *id == claim.id).map(|(_, function)| function) {
        Some(function) => function(claim, &view),
        None => Err(judge::FindingError::NoStudy(match claim.studies.join(" and ") {
            studies if studies.is_empty() => "Nothing is measured for it yet.".to_owned(),
            studies => format!("It is to be read from {studies}, which nothing is measured of yet."),
        })),
    };
    let few = found.is_ok().then(|| view.few_replications_note(claim)).flatten();
    let cautions: Vec<String> =
        results.claim_cautions(claim).into_iter().map(str::to_owned).chain(few).collect();
    judge::ClaimJudgement::new(claim, found, &cautions)
}

/// The function that judges each claim, by the claim's name.
fn judge_functions() -> impl Iterator<Item = (&'static str, common::JudgeFunction)> {
    aaa::FUNCTIONS
        .into_iter()
        .chain(mih::FUNCTIONS)
        .chain(handover::FUNCTIONS)
        .chain(ike::FUNCTIONS)
        .chain(pppoe::FUNCTIONS)
}
