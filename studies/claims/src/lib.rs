//! Published statements, and their comparison with our results.
//!
//! The statements are data ([`data`], `claims.toml`). A function for each evaluates it from the rows of runs
//! ([`evaluate_claims`]). Verdicts follow from rules; `docs/reference/claims.md` lists them and their changes after the first
//! comparison. Each reason is computed and explains the verdict with numbers.

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
#[cfg(test)]
mod tests;
mod verdict_output;
mod witness;

pub mod data;

pub use judge::{ClaimJudgement, ClaimValue, Verdict};
pub use results::{DEFAULT_VARIANT, RunResults};
pub use setup::{AuthenticationStudySetup, ClaimStudySetup};
pub use verdict_output::{
    add_claim_tables, judgement_section, judgement_table, judgements_json, sensitivity_map, verdict_counts,
};
pub use witness::add_ns2_series;

use data::{Claim, ClaimKind};
use results::VariantResults;

/// Evaluates every claim with a study in the results, at one variant, in the order of the data. The verdicts that count
/// are those of [`DEFAULT_VARIANT`]. Other variants omit the claims on setting and scope, which do not depend on them.
pub fn evaluate_claims(results: &RunResults, variant: &str) -> Vec<ClaimJudgement> {
    let of_rows = |c: &Claim| !matches!(c.kind, ClaimKind::Setup | ClaimKind::Scope);
    let concerned = |c: &&Claim| {
        c.studies.iter().any(|s| results.has_study(s)) && (variant == DEFAULT_VARIANT || of_rows(c))
    };
    data::claims().iter().filter(concerned).map(|c| judge_claim(c, results, variant)).collect()
}

/// Evaluates every claim of the data; claims without a study in the results are "not run".
pub fn evaluate_all_claims(results: &RunResults, variant: &str) -> Vec<ClaimJudgement> {
    data::claims().iter().map(|c| judge_claim(c, results, variant)).collect()
}

fn judge_claim(claim: &Claim, results: &RunResults, variant: &str) -> ClaimJudgement {
    let view = VariantResults::new(results, variant, claim.is_summarised_by_median());
    let found = match judge_functions().find(|(id, _)| *id == claim.id).map(|(_, function)| function) {
        Some(function) => function(claim, &view),
        None => Err(judge::FindingError::NoStudy(match claim.studies.join(" and ") {
            studies if studies.is_empty() => "There are no measurements for it yet.".to_owned(),
            studies => format!("It needs measurements of {studies}, which do not exist yet."),
        })),
    };
    let few = found.is_ok().then(|| view.few_replications_note(claim)).flatten();
    let cautions: Vec<String> =
        results.claim_cautions(claim).into_iter().map(str::to_owned).chain(few).collect();
    judge::ClaimJudgement::new(claim, found, &cautions)
}

/// Returns the function of each claim, by the claim's name.
fn judge_functions() -> impl Iterator<Item = (&'static str, common::JudgeFunction)> {
    aaa::FUNCTIONS
        .into_iter()
        .chain(mih::FUNCTIONS)
        .chain(handover::FUNCTIONS)
        .chain(ike::FUNCTIONS)
        .chain(pppoe::FUNCTIONS)
}
