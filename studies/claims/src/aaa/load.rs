//! Statements of the texts on load beside their figures: the Korean setting, congestion, surges, connections.

use crate::AccessSetup;
use crate::common::{FindingResult, capitalise, count_on_side, count_text, require_testable};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, part_by_part, with_word,
};
use crate::measure::{IntervalSide, MetricEstimate, estimate_gain, estimate_mean, interval_side};
use crate::results::{CurveSelector, VariantView};

const AVOIDANCE: &str = "avoidance";
const NONE: &str = "none";
const AVOIDANCES: [&str; 4] = [NONE, "Nagle", "delayed ACK", "both"];
/// The share of the link that the Korean text gives to other traffic, and the study of it.
const BACKGROUND: f64 = 0.85;
const CONGESTION: &str = "aaa-congestion";
const CALM: &str = "aaa-packets";
const CONNECTIONS: &str = "aaa-connections";

/// Returns the studies of a statement that were run, with a sentence on the others. An error gives the reason if none
/// was run.
fn list_run_studies<'c>(
    claim: &'c Claim,
    view: &VariantView<'_>,
) -> Result<(Vec<&'c str>, String), FindingError> {
    let names = || claim.studies.iter().map(String::as_str);
    let (there, missing): (Vec<&str>, Vec<&str>) = names().partition(|s| view.has_study(s));
    if there.is_empty() {
        let unknown: Vec<&str> =
            names().filter(|s| usher_scenario::founding::find_founding_study(s).is_none()).collect();
        return Err(if unknown.is_empty() {
            view.missing_study(&missing.join(" "))
        } else {
            FindingError::NoStudy(format!(
                "It is to be read from {}, which is not there yet.",
                unknown.join(" and ")
            ))
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

/// Evaluates the Korean text's setting, one part for each stated item. Stations and base stations here use PKMv2, as in
/// the English text, so one part always differs.
pub(super) fn setup_ko(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (there, _) = list_run_studies(claim, view)?;
    let accesses = there.iter().filter_map(|study| match view.study_setup(study) {
        Some(crate::StudySetup::Access(access)) => Some((*study, access)),
        _ => None,
    });
    let accesses: Vec<(&str, &AccessSetup)> = accesses.collect();
    if accesses.is_empty() {
        return Err(FindingError::NotComparable("The runs do not say how they were set up.".to_owned()));
    }
    let mut wrong = vec![
        "EAP goes over PKMv2 between station and NAS, as the English text has it, not over PPP".to_owned(),
    ];
    let mut held = |all: &[(&str, &AccessSetup)], off: &dyn Fn(&str, &AccessSetup) -> Option<String>| {
        let found: Vec<String> =
            all.iter().filter_map(|(study, a)| Some(format!("{study}: {}", off(study, a)?))).collect();
        let verdict = match (all.len(), found.len()) {
            (0, _) => Verdict::NotComparable,
            (_, 0) => Verdict::Reproduced,
            _ => Verdict::Differs,
        };
        wrong.extend(found);
        verdict
    };
    let spoken: Vec<(&str, &AccessSetup)> =
        accesses.iter().filter(|(_, a)| !a.aaa.is_empty()).copied().collect();
    let stations = held(&accesses, &|_, a| {
        (a.stations > 100).then(|| format!("{} stations, not up to 100", a.stations))
    });
    let radio =
        held(&accesses, &|_, a| (!a.radio).then(|| "the stations' access is wired, not 802.16".to_owned()));
    let diameter = held(&spoken, &|_, a| {
        let other = || format!("{} between NAS and AAA server, not Diameter", a.aaa.join(" and "));
        (!a.aaa.iter().any(|name| name.starts_with("Diameter"))).then(other)
    });
    // Both rates are integers in bits per second, so only rounding separates their ratio from the share.
    let traffic = held(&accesses, &|study, a| {
        let stated = if study == CONGESTION { BACKGROUND } else { 0.0 };
        let off = [a.background_least, a.background].into_iter().find(|b| (b - stated).abs() > ROUNDING)?;
        Some(format!("other traffic has {} of the link, not {}", format_percent(off), format_percent(stated)))
    });
    let figure_6 = accesses.iter().any(|(study, _)| *study == CONGESTION);
    let traffic = if figure_6 { traffic } else { traffic.max(Verdict::NotComparable) };
    let parts = [
        ("PPP", Verdict::Differs),
        ("up to 100 stations", stations),
        ("802.16", radio),
        ("Diameter", diameter),
        ("85 % other traffic", traffic),
    ];
    let names: Vec<&str> = accesses.iter().map(|(study, _)| *study).collect();
    let mut unseen: Vec<String> = claim
        .studies
        .iter()
        .filter(|study| !names.contains(&study.as_str()))
        .map(|study| match there.contains(&study.as_str()) {
            true => format!("{study}, whose run does not say how it was set up"),
            false => format!("{study}, which was not run (usher study run {study})"),
        })
        .collect();
    unseen.extend(accesses.iter().filter(|(_, a)| a.aaa.is_empty()).map(|(study, _)| {
        format!("what {study} speaks between NAS and AAA server, which its run does not say")
    }));
    let beside = accesses.iter().filter(|(_, a)| a.aaa.iter().any(|name| name.starts_with("RADIUS")));
    let beside: Vec<&str> = beside.map(|(study, _)| *study).collect();
    let beside = if beside.is_empty() {
        String::new()
    } else {
        format!(" {} has RADIUS beside Diameter, as the English text has it.", beside.join(" and "))
    };
    let unseen =
        if unseen.is_empty() { String::new() } else { format!(" Not looked at: {}.", unseen.join("; ")) };
    let reason = format!(
        "Looked at: {}. Not as stated: {}.{beside}{unseen}{}",
        names.join(", "),
        wrong.join("; "),
        part_by_part(parts)
    );
    let right = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let ours = format!("{right} of {} parts; PKMv2 in place of PPP", parts.len());
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the axis of a study with all avoidances of small packets, and its values by avoidance. It is an axis of
/// avoidances, or the TCP values of a protocol axis ("Diameter/TCP, Nagle").
fn find_avoidances<'a>(view: &VariantView<'a>, study: &str) -> Option<(&'static str, [&'a str; 4])> {
    [AVOIDANCE, "protocol", "policy"].into_iter().find_map(|axis| {
        let values = view.axis_values(study, axis);
        let named = |avoidance: &str| {
            values.iter().copied().find(|v| v.rsplit(", ").next().is_some_and(|last| last == avoidance))
        };
        let [none, nagle, delayed, both] = AVOIDANCES.map(named);
        Some((axis, [none?, nagle?, delayed?, both?]))
    })
}

/// Number of points at which avoidance surely lowers a metric, and at which it surely raises it.
#[derive(Clone, Copy, Default)]
struct ReductionCount {
    surely: usize,
    more: usize,
    comparison_count: usize,
}

impl ReductionCount {
    fn verdict(self) -> Verdict {
        Verdict::on_count(self.surely, self.comparison_count)
    }

    fn reduction_text(self, what: &str) -> String {
        format!(
            "{what} at {}, and the contrary is sure at {}",
            count_text(self.surely, self.comparison_count, "avoidances and points"),
            self.more
        )
    }
}

/// The effect of avoidance in a surge study on packets and on the delay.
struct AvoidanceEffect {
    packets: ReductionCount,
    delay: ReductionCount,
    /// Number of points without congestion, which do not count.
    calm: usize,
}

/// The load of the link to the AAA server; from 1 on the link is overloaded.
const LINK_LOAD: &str = "load.core";
/// The study with a growing number of NASs: only some of its points are congested. In the other study all are.
const MANY: &str = "aaa-many-nas";

fn measure_avoidance(view: &VariantView<'_>, study: &str) -> Option<AvoidanceEffect> {
    let (axis, [none, remedies @ ..]) = find_avoidances(view, study)?;
    let mut helped =
        AvoidanceEffect { packets: ReductionCount::default(), delay: ReductionCount::default(), calm: 0 };
    for (_, choices) in view.measured_choices(study, &[axis]) {
        let of = |name: &str| choices.iter().find(|(known, _)| known == name).map(|(_, measured)| measured);
        let Some(without) = of(none) else { continue };
        let loaded = without.get(LINK_LOAD).is_some_and(|load| estimate_mean(load).mean >= 1.0);
        if study == MANY && !loaded {
            helped.calm += 1;
            continue;
        }
        for with in remedies.iter().filter_map(|name| of(name)) {
            for (metric, less) in [("packets.core", &mut helped.packets), ("delay.mean", &mut helped.delay)] {
                let (Some(without), Some(with)) = (without.get(metric), with.get(metric)) else { continue };
                if with.len().min(without.len()) < with.least_count() {
                    continue;
                }
                less.comparison_count += 1;
                match interval_side(&estimate_gain(with, without)) {
                    IntervalSide::Above => less.surely += 1,
                    IntervalSide::Below => less.more += 1,
                    IntervalSide::Open => {}
                }
            }
        }
    }
    Some(helped)
}

/// Evaluates both causes of congestion: avoidance must lower packets and delay at every congested point.
pub(super) fn judge_surge(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (there, missing) = list_run_studies(claim, view)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for study in &there {
        let names = [format!("fewer packets in {study}"), format!("shorter delay in {study}")];
        let Some(helped) = measure_avoidance(view, study) else {
            said.push(format!("{study} has no avoidance as an axis"));
            parts.extend(names.map(|name| (name, Verdict::NotComparable)));
            continue;
        };
        let calm = match helped.calm {
            0 => String::new(),
            n => format!(" ({n} points where the link carries all that is offered left out)"),
        };
        said.push(format!(
            "in {study}{calm} {}; {}",
            helped.packets.reduction_text("avoidance surely leaves fewer packets"),
            helped.delay.reduction_text("the delay is surely shorter")
        ));
        let verdicts = [helped.packets.verdict(), helped.delay.verdict()];
        parts.extend(names.into_iter().zip(verdicts));
    }
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let mut verdict = Verdict::of_parts(&verdicts);
    if there.len() < claim.studies.len() {
        verdict = verdict.max(Verdict::Partly);
    }
    let helps = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let reason = format!(
        "Against no avoidance: {}.{missing}{}",
        said.join("; "),
        part_by_part(parts.iter().map(|(name, v)| (name.as_str(), *v)))
    );
    Ok(ClaimFinding::from_words(format!("helps in {helps} of {} parts", parts.len()), verdict, reason))
}

/// The axis values for one connection and for one connection for each port, with the number of ports.
const ONE_CONNECTION: &str = "one connection";
const EACH: &str = "48 connections";

/// Evaluates one connection against one for each port: it must cost less and block more, for each named metric at each
/// loss.
pub(super) fn judge_connections(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    list_run_studies(claim, view)?;
    let ports = claim.part_number("ports");
    let curves = |metric: &str| {
        let of = |connections| {
            let at = [("connections", connections)];
            view.curve(CurveSelector { study: CONNECTIONS, metric, x: "loss", fixed_axes: &at })
        };
        Ok::<_, FindingError>((of(ONE_CONNECTION)?, of(EACH)?))
    };
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    // The savings of one connection, and its price, which applies under loss.
    for (metric, what, part, price) in [
        ("connections.server", "connections at the server", "as many connections as ports", false),
        ("packets.core", "packets of an authentication", "fewer packets over one", false),
        ("memory.server", "octets that the server holds for its connections", "less memory for one", false),
        ("tcp.blocked", "segments of an authentication that came behind a gap", "one blocks more", true),
        ("delay.mean", "seconds of delay", "one is slower under loss", true),
    ] {
        let (one, each) = curves(metric)?;
        let both: Vec<(f64, f64, f64)> = one
            .0
            .iter()
            .filter_map(|(loss, o)| {
                Some((*loss, estimate_mean(o).mean, estimate_mean(each.values_at(*loss)?).mean))
            })
            .collect();
        let verdict = if metric == "connections.server" {
            let exact = |(_, one, each): &&(f64, f64, f64)| {
                (one - 1.0).abs() <= ROUNDING && (each - ports).abs() <= ROUNDING * ports
            };
            Verdict::on_count(both.iter().filter(exact).count(), both.len())
        } else {
            let more =
                if price { one.subtract_curve(&each).points_beyond(0.0) } else { each.subtract_curve(&one) };
            let more = require_testable(more, 1, &capitalise(what))?.estimates();
            Verdict::on_count(count_on_side(&more, IntervalSide::Above), more.len())
        };
        let text = |(loss, one, each): &(f64, f64, f64)| {
            format!("{} and {} at {loss} % loss", format_digits(*one), format_digits(*each))
        };
        let ends = both.first().into_iter().chain(both.last().filter(|_| both.len() > 1));
        said.push(format!("{what}, {}", ends.map(text).collect::<Vec<_>>().join(", ")));
        parts.push((part, verdict));
    }
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let reason = format!(
        "Over one connection and over one for each of {ports} ports: {}.{}",
        said.join("; "),
        part_by_part(parts.iter().copied())
    );
    Ok(ClaimFinding::from_words(
        format!("{held} of {} parts", parts.len()),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}

/// Evaluates whether avoidance surely saves more delay with other traffic than without. If it saves none with that
/// traffic, the statement fails: a smaller harm is not a larger saving.
pub(super) fn judge_amplification(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let delays = |study, avoidance| {
        view.curve(CurveSelector {
            study,
            metric: "delay.mean",
            x: "nodes",
            fixed_axes: &[(AVOIDANCE, avoidance)],
        })
    };
    let saved = |study, avoidance| {
        Ok::<_, FindingError>(delays(study, NONE)?.subtract_curve(&delays(study, avoidance)?))
    };
    let (mut held, mut of, mut less_harm, mut said) = (0, 0, 0, Vec::new());
    for avoidance in ["Nagle", "delayed ACK", "both"] {
        let (busy, calm) = (saved(CONGESTION, avoidance)?, saved(CALM, avoidance)?);
        let busy = require_testable(busy.common_points(&calm), 1, "What avoidance saves under congestion")?;
        let calm = require_testable(calm.common_points(&busy), 1, "What avoidance saves without congestion")?;
        let (mut sure, mut most) = (0, None::<(f64, MetricEstimate)>);
        for (nodes, saves) in &busy.0 {
            let Some(without) = calm.values_at(*nodes) else { continue };
            let more = estimate_gain(without, saves);
            of += 1;
            match (interval_side(&more), interval_side(&estimate_mean(saves))) {
                (IntervalSide::Above, IntervalSide::Above) => sure += 1,
                (IntervalSide::Above, _) => less_harm += 1,
                _ => {}
            }
            if most.is_none_or(|(_, known)| more.mean >= known.mean) {
                most = Some((*nodes, more));
            }
        }
        held += sure;
        if let Some((nodes, most)) = most {
            said.push(format!(
                "{avoidance} at {sure} of {} numbers of nodes (the most at {}: {})",
                busy.0.len(),
                format_digits(nodes),
                with_word(&most, "s", "more", "less")
            ));
        }
    }
    let harm = match less_harm {
        0 => String::new(),
        n => format!(
            " At {n} others the delay with avoidance gains on that without, and yet avoidance surely saves none there: \
             a smaller harm, which is not counted."
        ),
    };
    let reason = format!(
        "With other traffic avoidance surely saves delay, and surely more than without it, at {}: {}.{harm}",
        count_text(held, of, "avoidances and numbers of nodes"),
        said.join("; ")
    );
    Ok(ClaimFinding::from_words(
        format!("more at {}", count_text(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}
