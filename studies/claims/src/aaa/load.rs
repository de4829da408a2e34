//! What the texts say of load beside their figures: the Korean setting, congestion, surges, connections.

use crate::common::{Found, count, tested};
use crate::data::Claim;
use crate::judge::{Finding, Gone, Verdict, digits, with_word};
use crate::measure::{Side, gain, mean, side};
use crate::results::{Choice, View};

const AVOIDANCE: &str = "avoidance";
const NONE: &str = "none";
const AVOIDANCES: [&str; 4] = [NONE, "Nagle", "delayed ACK", "both"];
/// The link's share that the Korean text gives to other traffic, and its study.
const BACKGROUND: f64 = 0.85;
const CONGESTION: &str = "aaa-congestion";
const CALM: &str = "aaa-packets";
const CONNECTIONS: &str = "aaa-connections";

/// The studies of a statement that were run, with a sentence on the others. Where none was, why.
fn run<'c>(claim: &'c Claim, view: &View<'_>) -> Result<(Vec<&'c str>, String), Gone> {
    let names = || claim.studies.iter().map(String::as_str);
    let (there, missing): (Vec<&str>, Vec<&str>) = names().partition(|s| view.has(s));
    if there.is_empty() {
        let unknown: Vec<&str> = names().filter(|s| usher_scenario::founding::find(s).is_none()).collect();
        return Err(if unknown.is_empty() {
            view.missing(&missing.join(" "))
        } else {
            Gone::NoStudy(format!("It is to be read from {}, which is not there yet.", unknown.join(" and ")))
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

/// How many of the avoidances of small packets a study has: as values of an axis of their own, or of TCP beside other
/// protocols ("Diameter/TCP, Nagle").
fn avoidances(view: &View<'_>, study: &str) -> usize {
    let has = |axis: &&str| {
        let values = view.values(study, axis);
        let named = |avoidance: &&&str| {
            values.iter().any(|v| v.rsplit(", ").next().is_some_and(|last| last == **avoidance))
        };
        AVOIDANCES.iter().filter(named).count()
    };
    [AVOIDANCE, "protocol", "policy"].iter().map(has).max().unwrap_or(0)
}

/// Both causes of congestion are studied, each with avoidance as an axis.
pub(super) fn surge(claim: &Claim, view: &View<'_>) -> Found {
    let (there, missing) = run(claim, view)?;
    let (with, without): (Vec<&str>, Vec<&str>) =
        there.iter().partition(|s| avoidances(view, s) == AVOIDANCES.len());
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
    run(claim, view)?;
    let mut said = Vec::new();
    for (metric, what) in [
        ("packets.core", "packets of an authentication"),
        ("memory.server", "octets that the server holds for its connections"),
        ("delay.mean", "seconds of delay"),
        ("tcp.blocked", "segments of an authentication that came behind a gap"),
    ] {
        let of = |connections| {
            let at = [("connections", connections)];
            view.curve(Choice { study: CONNECTIONS, metric, x: "loss", at: &at })
        };
        let (one, each) = (of("one connection")?, of("48 connections")?);
        let both = one
            .0
            .iter()
            .filter_map(|(loss, o)| Some((loss, digits(mean(o).mean), mean(each.at(*loss)?).mean)));
        let both: Vec<String> =
            both.map(|(loss, one, each)| format!("{one} and {} at {loss} % loss", digits(each))).collect();
        let ends = both.first().into_iter().chain(both.last().filter(|_| both.len() > 1));
        said.push(format!("{what}, {}", ends.map(String::as_str).collect::<Vec<_>>().join(", ")));
    }
    let reason = format!("Over one connection and over one for each of 48 ports: {}.", said.join("; "));
    Ok(Finding::words("done", Verdict::Reproduced, reason))
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
