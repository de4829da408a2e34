//! Statements of the texts on load beside their figures: the Korean setting, congestion, surges, connections.

use crate::AuthenticationStudySetup;
use crate::common::{
    FindingResult, capitalise, count_estimates_with_sign, format_count_of_total, require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, format_with_comparative,
    list_part_verdicts,
};
use crate::measure::{IntervalSign, MetricEstimate, estimate_gain, estimate_mean, interval_sign};
use crate::results::{CurveSelector, VariantResults};

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
    view: &VariantResults<'_>,
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
                "It needs results of {}, which does not exist yet.",
                unknown.join(" and ")
            ))
        });
    }
    there.iter().try_for_each(|s| view.require_default_settings(s))?;
    let text = if missing.is_empty() {
        String::new()
    } else {
        format!(" {0} was not run: usher study run {0}.", missing.join(" "))
    };
    Ok((there, text))
}

/// Evaluates the Korean text's setting, one part for each stated item. Stations and base stations here use PKMv2, as in
/// the English text, so one part always differs.
pub(super) fn judge_korean_text_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (there, _) = list_run_studies(claim, view)?;
    let accesses = there.iter().filter_map(|study| match view.study_setup(study) {
        Some(crate::ClaimStudySetup::Access(access)) => Some((*study, access)),
        _ => None,
    });
    let accesses: Vec<(&str, &AuthenticationStudySetup)> = accesses.collect();
    if accesses.is_empty() {
        return Err(FindingError::NotComparable("The runs do not record their configuration.".to_owned()));
    }
    let mut wrong =
        vec!["EAP runs over PKMv2 between station and NAS, as in the English text, not over PPP".to_owned()];
    let mut held = |all: &[(&str, &AuthenticationStudySetup)],
                    off: &dyn Fn(&str, &AuthenticationStudySetup) -> Option<String>| {
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
    let spoken: Vec<(&str, &AuthenticationStudySetup)> =
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
    // Both rates are integers in bits per second, so their ratio differs from the stated share by rounding only.
    let traffic = held(&accesses, &|study, a| {
        let stated = if study == CONGESTION { BACKGROUND } else { 0.0 };
        let off = [a.background_least, a.background].into_iter().find(|b| (b - stated).abs() > ROUNDING)?;
        Some(format!(
            "other traffic takes {} of the link, not {}",
            format_percent(off),
            format_percent(stated)
        ))
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
            true => format!("{study} (its run does not record its configuration)"),
            false => format!("{study} (not run: usher study run {study})"),
        })
        .collect();
    unseen.extend(
        accesses
            .iter()
            .filter(|(_, a)| a.aaa.is_empty())
            .map(|(study, _)| format!("the AAA protocol of {study} (its run does not record it)")),
    );
    let beside = accesses.iter().filter(|(_, a)| a.aaa.iter().any(|name| name.starts_with("RADIUS")));
    let beside: Vec<&str> = beside.map(|(study, _)| *study).collect();
    let beside = if beside.is_empty() {
        String::new()
    } else {
        format!(" {} also has RADIUS, as in the English text.", beside.join(" and "))
    };
    let unseen =
        if unseen.is_empty() { String::new() } else { format!(" Not checked: {}.", unseen.join("; ")) };
    let reason = format!(
        "Checked: {}. Not as stated: {}.{beside}{unseen}{}",
        names.join(", "),
        wrong.join("; "),
        list_part_verdicts(parts)
    );
    let right = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let ours = format!("{right} of {} parts; PKMv2 in place of PPP", parts.len());
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the axis of a study with all avoidances of small packets, and its values by avoidance. It is an axis of
/// avoidances, or the TCP values of a protocol axis ("Diameter/TCP, Nagle").
fn find_avoidance_axis<'a>(view: &VariantResults<'a>, study: &str) -> Option<(&'static str, [&'a str; 4])> {
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
struct MetricReductionCounts {
    surely: usize,
    more: usize,
    comparison_count: usize,
}

impl MetricReductionCounts {
    fn verdict(self) -> Verdict {
        Verdict::from_held_point_count(self.surely, self.comparison_count)
    }

    fn describe_metric_reduction(self, what: &str) -> String {
        format!(
            "{what} at {}, and the opposite is significant at {}",
            format_count_of_total(self.surely, self.comparison_count, "pairs of avoidance and point"),
            self.more
        )
    }
}

/// The effect of avoidance in a surge study on packets and on the delay.
struct CongestionAvoidanceEffect {
    packets: MetricReductionCounts,
    delay: MetricReductionCounts,
    /// Number of points without congestion, which do not count.
    calm: usize,
}

/// The load of the link to the AAA server; from 1 on the link is overloaded.
const LINK_LOAD: &str = "load.core";
/// The study with a growing number of NASs: only some of its points are congested. In the other study all are.
const MANY: &str = "aaa-many-nas";

fn measure_avoidance_effect(view: &VariantResults<'_>, study: &str) -> Option<CongestionAvoidanceEffect> {
    let (axis, [none, remedies @ ..]) = find_avoidance_axis(view, study)?;
    let mut helped = CongestionAvoidanceEffect {
        packets: MetricReductionCounts::default(),
        delay: MetricReductionCounts::default(),
        calm: 0,
    };
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
                if with.len().min(without.len()) < with.minimum_sample_count() {
                    continue;
                }
                less.comparison_count += 1;
                match interval_sign(&estimate_gain(with, without)) {
                    IntervalSign::Above => less.surely += 1,
                    IntervalSign::Below => less.more += 1,
                    IntervalSign::Open => {}
                }
            }
        }
    }
    Some(helped)
}

/// Evaluates both causes of congestion: avoidance must lower packets and delay at every congested point.
pub(super) fn judge_avoidance_under_congestion(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (there, missing) = list_run_studies(claim, view)?;
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for study in &there {
        let names = [format!("fewer packets in {study}"), format!("shorter delay in {study}")];
        let Some(helped) = measure_avoidance_effect(view, study) else {
            said.push(format!("{study} has no axis of avoidances"));
            parts.extend(names.map(|name| (name, Verdict::NotComparable)));
            continue;
        };
        let calm = match helped.calm {
            0 => String::new(),
            n => format!(" ({n} points left out because the link is not overloaded there)"),
        };
        said.push(format!(
            "in {study}{calm} {}; {}",
            helped.packets.describe_metric_reduction("avoidance leaves significantly fewer packets"),
            helped.delay.describe_metric_reduction("the delay is significantly shorter")
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
        "Compared with no avoidance: {}.{missing}{}",
        said.join("; "),
        list_part_verdicts(parts.iter().map(|(name, v)| (name.as_str(), *v)))
    );
    Ok(ClaimFinding::from_verdict_text(format!("helps in {helps} of {} parts", parts.len()), verdict, reason))
}

/// The axis values for one connection and for one connection for each port, with the number of ports.
const ONE_CONNECTION: &str = "one connection";
const EACH: &str = "48 connections";

/// Evaluates one connection against one for each port: it must cost less and block more, for each named metric at each
/// loss.
pub(super) fn judge_connection_counts(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    list_run_studies(claim, view)?;
    let ports = claim.claim_parameter("ports");
    let curves = |metric: &str| {
        let of = |connections| {
            let at = [("connections", connections)];
            view.curve(CurveSelector { study: CONNECTIONS, metric, x: "loss", fixed_axes: &at })
        };
        Ok::<_, FindingError>((of(ONE_CONNECTION)?, of(EACH)?))
    };
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    // The metrics are the savings of one connection, and its price, which is judged under loss.
    for (metric, what, part, price) in [
        ("connections.server", "connections at the server", "as many connections as ports", false),
        ("packets.core", "packets per authentication", "fewer packets over one connection", false),
        (
            "memory.server",
            "octets of the server's memory for connections",
            "less memory for one connection",
            false,
        ),
        (
            "tcp.blocked",
            "segments per authentication received behind a gap",
            "one connection blocks more",
            true,
        ),
        ("delay.mean", "seconds of delay", "one connection is slower under loss", true),
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
            Verdict::from_held_point_count(both.iter().filter(exact).count(), both.len())
        } else {
            let more = if price {
                one.subtract_curve(&each).retain_points_beyond(0.0)
            } else {
                each.subtract_curve(&one)
            };
            let more = require_minimum_points(more, 1, &capitalise(what))?.estimates();
            Verdict::from_held_point_count(count_estimates_with_sign(&more, IntervalSign::Above), more.len())
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
        "One connection and one for each of {ports} ports: {}.{}",
        said.join("; "),
        list_part_verdicts(parts.iter().copied())
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("{held} of {} parts", parts.len()),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}

/// Evaluates whether avoidance surely saves more delay with other traffic than without. If it saves none with that
/// traffic, the statement fails: a smaller harm is not a larger saving.
pub(super) fn judge_saving_with_other_traffic(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
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
        let busy = require_minimum_points(
            busy.retain_shared_points(&calm),
            1,
            "The delay that avoidance saves under congestion",
        )?;
        let calm = require_minimum_points(
            calm.retain_shared_points(&busy),
            1,
            "The delay that avoidance saves without congestion",
        )?;
        let (mut sure, mut most) = (0, None::<(f64, MetricEstimate)>);
        for (nodes, saves) in &busy.0 {
            let Some(without) = calm.values_at(*nodes) else { continue };
            let more = estimate_gain(without, saves);
            of += 1;
            match (interval_sign(&more), interval_sign(&estimate_mean(saves))) {
                (IntervalSign::Above, IntervalSign::Above) => sure += 1,
                (IntervalSign::Above, _) => less_harm += 1,
                _ => {}
            }
            if most.is_none_or(|(_, known)| more.mean >= known.mean) {
                most = Some((*nodes, more));
            }
        }
        held += sure;
        if let Some((nodes, most)) = most {
            said.push(format!(
                "{avoidance} at {sure} of {} numbers of nodes (largest difference at {} nodes: {})",
                busy.0.len(),
                format_digits(nodes),
                format_with_comparative(&most, "s", "more", "less")
            ));
        }
    }
    let harm = match less_harm {
        0 => String::new(),
        n => format!(
            " At {n} others, the effect of avoidance is significantly better with other traffic, but it \
             saves no significant delay. These do not count."
        ),
    };
    let reason = format!(
        "With other traffic, avoidance saves delay significantly, and significantly more than without that \
         traffic, at {}: {}.{harm}",
        format_count_of_total(held, of, "pairs of avoidance and number of nodes"),
        said.join("; ")
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("more at {}", format_count_of_total(held, of, "points")),
        Verdict::from_held_point_count(held, of),
        reason,
    ))
}
