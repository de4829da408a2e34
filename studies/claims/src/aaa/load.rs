//! What the texts say of load beside their figures: the Korean setting, congestion, surges, connections.

use crate::common::{Found, count, tested};
use crate::data::Claim;
use crate::judge::{Finding, Gone, Verdict, digits, with_word};
use crate::measure::{Side, gain, side};
use crate::results::{Choice, View};

const AVOIDANCE: &str = "avoidance";
const NONE: &str = "none";
/// The link's share that the Korean text gives to other traffic, and its study.
const BACKGROUND: f64 = 0.85;
const CONGESTION: &str = "aaa-congestion";
const CALM: &str = "aaa-packets";

/// The studies of a statement that were run, with a sentence on the others. Where none was, why.
fn run<'c>(claim: &'c Claim, view: &View<'_>) -> Result<(Vec<&'c str>, String), Gone> {
    let names = || claim.studies.iter().map(String::as_str);
    let (there, missing): (Vec<&str>, Vec<&str>) = names().partition(|s| view.has(s));
    if there.is_empty() {
        let unknown: Vec<&str> = names().filter(|s| usher_scenario::founding::find(s).is_none()).collect();
        return Err(if unknown.is_empty() {
            view.missing(&missing.join(" "))
        } else {
            Gone::NotYet(format!("It is to be read from {}, which is not there yet.", unknown.join(" and ")))
        });
    }
    there.iter().try_for_each(|s| view.at_defaults(s))?;
    let text = if missing.is_empty() {
        String::new()
    } else {
        format!(" {0} was not run: usher study run {0}.", missing.join(" "))
    };
    Ok((there, text))
}

/// The Korean text's setting. Here stations and base stations speak PKMv2, as the English text has it.
pub(super) fn setup_ko(claim: &Claim, view: &View<'_>) -> Found {
    let (there, missing) = run(claim, view)?;
    let mut wrong = vec![
        "EAP goes over PKMv2 between station and NAS, as the English text has it, not over PPP".to_owned(),
    ];
    let (mut known, mut right) = (0, 0);
    for study in there {
        let Some(crate::Setup::Access(access)) = view.setup(study) else { continue };
        known += 1;
        let mut own = Vec::new();
        if access.stations > 100 {
            own.push(format!("{} stations, not up to 100", access.stations));
        }
        if !access.radio {
            own.push("the stations' access is wired, not 802.16".to_owned());
        }
        if study == CONGESTION && (access.background - BACKGROUND).abs() > 0.005 {
            own.push(format!(
                "other traffic has {} of the link, not 85 %",
                crate::judge::percent(access.background)
            ));
        }
        right += usize::from(own.is_empty());
        wrong.extend(own.into_iter().map(|text| format!("{study}: {text}")));
    }
    if known == 0 {
        return Err(Gone::NotComparable("The runs do not say how they were set up.".to_owned()));
    }
    let verdict = if wrong.len() <= 2 * known { Verdict::Partly } else { Verdict::Differs };
    let reason = format!(
        "Not as stated: {}. Stations, 802.16, Diameter and, in {CONGESTION}, other traffic of 85 % of the link are as stated in \
         {}.{missing}",
        wrong.join("; "),
        count(right, known, "studies")
    );
    Ok(Finding::words("PKMv2 in place of PPP", verdict, reason))
}

/// Both causes of congestion are studied, each with avoidance as an axis.
pub(super) fn surge(claim: &Claim, view: &View<'_>) -> Found {
    let (there, missing) = run(claim, view)?;
    let (with, without): (Vec<&str>, Vec<&str>) =
        there.iter().partition(|s| view.values(s, AVOIDANCE).len() > 1);
    let mut said: Vec<String> = Vec::new();
    if !with.is_empty() {
        said.push(format!("with and without avoidance of small packets: {}", with.join(" and ")));
    }
    if !without.is_empty() {
        said.push(format!("without avoidance as an axis: {}", without.join(" and ")));
    }
    let reason = format!("Studied {}.{missing}", said.join("; "));
    Ok(match (with.len(), claim.studies.len()) {
        (n, of) if n == of => Finding::words("done", Verdict::Reproduced, reason),
        (n, of) => Finding::words(format!("{n} of {of} done with avoidance"), Verdict::Partly, reason),
    })
}

/// Several connections beside one are studied.
pub(super) fn connections(claim: &Claim, view: &View<'_>) -> Found {
    let (there, missing) = run(claim, view)?;
    let verdict = if missing.is_empty() { Verdict::Reproduced } else { Verdict::Partly };
    Ok(Finding::words("done", verdict, format!("Studied: {} has results.{missing}", there.join(" and "))))
}

/// The delay that avoidance saves with the other traffic is surely larger than what it saves without.
pub(super) fn amplifies(_: &Claim, view: &View<'_>) -> Found {
    let delays = |study, avoidance| {
        view.curve(Choice { study, metric: "delay.mean", x: "nodes", at: &[(AVOIDANCE, avoidance)] })
    };
    let saved = |study, avoidance| Ok::<_, Gone>(delays(study, NONE)?.minus(&delays(study, avoidance)?));
    let (mut held, mut of, mut said) = (0, 0, Vec::new());
    for avoidance in ["Nagle", "delayed ACK", "both"] {
        let (busy, calm) = (saved(CONGESTION, avoidance)?, saved(CALM, avoidance)?);
        let busy = tested(busy.common(&calm), 1, "What avoidance saves under congestion")?;
        let calm = tested(calm.common(&busy), 1, "What avoidance saves without congestion")?;
        let more: Vec<_> = busy.0.iter().filter_map(|(x, b)| Some((*x, gain(calm.at(*x)?, b)))).collect();
        let sure = more.iter().filter(|(_, e)| side(e) == Side::Above).count();
        held += sure;
        of += more.len();
        if let Some((nodes, most)) = more.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)) {
            said.push(format!(
                "{avoidance} at {sure} of {} numbers of nodes (the most at {}: {})",
                more.len(),
                digits(*nodes),
                with_word(most, "s", "more", "less")
            ));
        }
    }
    let reason = format!(
        "With other traffic avoidance surely saves more delay than without it at {}: {}.",
        count(held, of, "avoidances and numbers of nodes"),
        said.join("; ")
    );
    Ok(Finding::words(format!("more at {}", count(held, of, "points")), Verdict::on_count(held, of), reason))
}
