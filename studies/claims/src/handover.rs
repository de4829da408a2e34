//! The claims of "Performance Evaluation of L3 Transport Protocols for IEEE 802.21" on handovers, one function for
//! each. Read from `handover-mn` and `handover-net`.

use crate::common::{
    FindingResult, JudgeFunction, capitalise, count_estimates_with_sign, format_count_of_total,
    judge_configuration, require_finite, require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, format_with_comparative,
    format_with_interval, judge_deviation, list_part_verdicts,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    ALIKE, DelayComparison, ERRORS, IntervalSign, MetricCurve, MetricValues, agrees_with_formula,
    can_detect_probability, compare_delays, estimate_mean, interval_sign, measure_curve_rise,
    subtract_values, weighted_sum,
};
use crate::results::{CurveSelector, VariantResults};

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 8] = [
    ("handover.setup", judge_setup),
    (FAILED, |claim, view| {
        judge_by_loss_kind(claim, view, STATION, |case| judge_failed_handover_delay(claim, case))
    }),
    ("handover.success-order", |claim, view| judge_by_loss_kind(claim, view, STATION, judge_success_order)),
    ("handover.delay-order", |claim, view| {
        judge_by_loss_kind(claim, view, STATION, judge_handover_delay_order)
    }),
    ("handover.steps", |claim, view| judge_by_loss_kind(claim, view, STATION, judge_handover_steps)),
    ("handover.network-faster", |claim, view| {
        judge_by_loss_kind(claim, view, STATION, judge_network_initiated_delay)
    }),
    ("handover.network-trends", |claim, view| {
        judge_by_loss_kind(claim, view, NETWORK, judge_network_initiated_trends)
    }),
    ("handover.app-loss", |claim, view| {
        judge_by_loss_kind(claim, view, STATION, |case| {
            judge_application_loss(&[case, case.with_study(NETWORK)])
        })
    }),
];

/// The statement on the duration of a failed handover.
const FAILED: &str = "handover.failed-delay";
/// The reason if no handover fails. Then statements on failed handovers are undecided: on their duration, on the
/// transports that fail more, and on their effect on the mean of all.
const NONE_FAILS: &str = "No handover failed.";
/// Studies of handovers led by the station and by the network.
const STATION: &str = "handover-mn";
const NETWORK: &str = "handover-net";
const TRANSPORT: &str = "transport";
/// Steps of a handover led by the station.
pub(crate) const SCAN: &str = "step.scan";
pub(crate) const RESOURCES: &str = "step.resources";
pub(crate) const COMMIT: &str = "step.commit";
pub(crate) const REDIRECTION: &str = "step.redirection";
/// Steps of a handover led by the network.
pub(crate) const PREPARATION: &str = "step.preparation";
pub(crate) const DECISION: &str = "step.decision";
const UDP: [&str; 2] = ["UDP, 0.1 s", "UDP, 0.3 s"];
/// Minimum share for "all are lost": packets sent during the redirection take the new link.
const ALL_LOST: f64 = 0.95;

/// The axis of losses in the 802.11 cell: frames before the MAC's retransmissions, as in the document, or packets after
/// them.
const LOST: &str = "lost";
const FRAMES: &str = "frames";
const PACKETS: &str = "packets";
/// Maximum number of transmissions of a frame: a frame loss of p leaves a packet loss of p to this power.
const TRIES: u32 = 7;

/// A study at one value of the axis of losses.
#[derive(Clone, Copy)]
struct HandoverLossResults<'v, 'a> {
    view: &'v VariantResults<'a>,
    study: &'static str,
    lost: Option<&'static str>,
}

impl<'a> HandoverLossResults<'_, 'a> {
    /// Returns another study at the same value.
    fn with_study(self, study: &'static str) -> Self {
        Self { study, ..self }
    }

    fn over_loss(&self, metric: &str, transport: &str) -> Result<MetricCurve, FindingError> {
        let mut at = vec![(TRANSPORT, transport)];
        at.extend(self.lost.map(|lost| (LOST, lost)));
        self.view.curve(CurveSelector { study: self.study, metric, x: "loss", fixed_axes: &at })
    }

    /// Returns the transports with this name prefix.
    fn transport_names(&self, kind: &str) -> Result<Vec<&'a str>, FindingError> {
        let mut names = self.view.axis_values(self.study, TRANSPORT);
        names.retain(|name| name.starts_with(kind));
        if names.is_empty() { Err(self.view.missing_study(self.study)) } else { Ok(names) }
    }

    /// Returns the packet loss of the cell for a loss on the axis.
    fn residual_packet_loss(&self, loss: f64) -> f64 {
        if self.lost == Some(FRAMES) { packet_loss_after_mac(loss) } else { loss }
    }

    /// True if no handover failed, over any transport and at any loss.
    fn is_without_failures(&self) -> Result<bool, FindingError> {
        let curves =
            self.transport_names("")?.into_iter().map(|transport| self.over_loss("success", transport));
        let curves: Vec<MetricCurve> = curves.collect::<Result<_, _>>()?;
        let mut shares = curves.iter().flat_map(|curve| &curve.0).flat_map(|(_, values)| values.values());
        Ok(shares.all(|share| *share >= 1.0 - ROUNDING))
    }
}

/// Returns the packet loss after the MAC's attempts for a frame loss.
fn packet_loss_after_mac(loss: f64) -> f64 {
    (0..TRIES).map(|_| loss).product()
}

/// Evaluates a statement by frame losses, which give the verdict, and by packet losses. The reason states both results
/// and the better fit.
fn judge_by_loss_kind(
    claim: &Claim,
    view: &VariantResults<'_>,
    study: &'static str,
    judge: impl Fn(HandoverLossResults<'_, '_>) -> FindingResult,
) -> FindingResult {
    let kinds = view.axis_values(study, LOST);
    let case = |lost| HandoverLossResults { view, study, lost };
    if !kinds.contains(&FRAMES) || !kinds.contains(&PACKETS) {
        return judge(case(
            kinds.first().and_then(|kind| [FRAMES, PACKETS].into_iter().find(|known| known == kind)),
        ));
    }
    let packets = judge(case(Some(PACKETS)));
    let by_packets = packets.as_ref().map_or(Verdict::NotComparable, |found| found.verdict);
    let other = match packets {
        Ok(found) => format!("{} ({}). {}", found.verdict.name(), found.ours.to_text(), found.reason),
        Err(FindingError::NotRun(text) | FindingError::NotComparable(text) | FindingError::NoStudy(text)) => {
            format!("undecided. {text}")
        }
    };
    let other = format!(" Read as the loss of packets, after the MAC's retransmissions: {other}");
    let fits = |by_frames: Verdict| {
        // For this comparison, treat an undecided verdict like one that differs.
        let [by_packets, by_frames] = [by_packets, by_frames].map(|verdict| verdict.min(Verdict::Differs));
        let which = match by_packets.cmp(&by_frames) {
            std::cmp::Ordering::Less => "packets fits the results better",
            std::cmp::Ordering::Greater => "frames fits the results better",
            std::cmp::Ordering::Equal => return " Neither reading fits the results better.".to_owned(),
        };
        let name = if by_packets < by_frames { PACKETS } else { FRAMES };
        let text = claim.own_or_document_readings().iter().find(|r| r.name == name);
        let quoted = text.map_or_else(String::new, |r| format!(" ({})", r.text));
        format!(" The reading by {which}{quoted}.")
    };
    match judge(case(Some(FRAMES))) {
        Ok(mut found) => {
            found.reason.push_str(&other);
            found.reason.push_str(&fits(found.verdict));
            Ok(found)
        }
        Err(FindingError::NotComparable(text)) => {
            Err(FindingError::NotComparable(format!("{text}{other}{}", fits(Verdict::NotComparable))))
        }
        gone => gone,
    }
}

fn judge_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let stated = "802.11 at 11 Mb/s with a radius of 50 m and 6 MAC retransmissions, 802.16 with 64-QAM 3/4 \
                  and 500 m, wired links of 100 Mb/s and 10 ms, and IPv6. The 802.11 cell loses 0 to 50 % of \
                  frames from Link_Going_Down on. Stations move at 1 m/s, for 30 s of traffic, with an \
                  application packet every 0.5 s. MIH: timeouts of 0.1 and 0.3 s over UDP, two \
                  retransmissions, 0.2 s for a request, and no timeout of a transaction. TCP: largest RTOs \
                  of 0.2, 0.5 and 1 s. The side in the name of the study initiates the handover";
    judge_configuration(claim, view, stated).map(|found| found.of_all(claim, view))
}

fn judge_failed_handover_delay(claim: &Claim, case: HandoverLossResults<'_, '_>) -> FindingResult {
    let mut sums: std::collections::BTreeMap<u32, (f64, f64)> = std::collections::BTreeMap::new();
    let mut points = 0;
    for transport in case.transport_names("")? {
        let delays = match case.over_loss("delay.failed", transport) {
            Ok(delays) => delays,
            // If no handover failed over this transport, this metric has no values.
            Err(FindingError::NotComparable(_)) if case.view.require_default_settings(case.study).is_ok() => {
                continue;
            }
            Err(gone) => return Err(gone),
        };
        points += delays.0.len();
        for (replication, delay) in delays.0.iter().flat_map(|(_, values)| values.iter()) {
            let (sum, n) = sums.entry(*replication).or_default();
            *sum += delay;
            *n += 1.0;
        }
    }
    if points == 0 {
        return Err(FindingError::NotComparable(NONE_FAILS.to_owned()));
    }
    let means: MetricValues =
        sums.into_iter().map(|(replication, (sum, n))| (replication, sum / n)).collect();
    let means = means.with_median_summary(true);
    let ours = require_finite(estimate_mean(&means), "The delay of failed handovers")?;
    let (verdict, off) = judge_deviation(&ours, claim.published_number(), &claim.unit);
    let reason = format!(
        "Failed handovers take {}, {off}. This is the mean over {points} points of transport and loss with \
         failures.",
        format_with_interval(&ours, "s")
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}

/// True if handovers surely fail by this success share.
fn handovers_surely_fail(success: &MetricValues) -> bool {
    let all: MetricValues = success.keys().map(|replication| (*replication, 1.0)).collect();
    interval_sign(&estimate_mean(&subtract_values(&all, success))) == IntervalSign::Above
}

fn judge_success_order(case: HandoverLossResults<'_, '_>) -> FindingResult {
    let [short, long] = [case.over_loss("success", UDP[0])?, case.over_loss("success", UDP[1])?];
    let most = short.0.last().map_or(0.0, |(loss, _)| loss / 100.0);
    let lost = || {
        let [left, most] = [format_percent(case.residual_packet_loss(most)), format_digits(most * 100.0)];
        format!("The cell loses {left} of packets at {most} %.")
    };
    if case.is_without_failures()? {
        return Err(FindingError::NotComparable(format!("{NONE_FAILS} {}", lost())));
    }
    if [&short, &long].iter().all(|curve| curve.0.iter().all(|(_, v)| v.values().all(|share| *share == 1.0)))
    {
        let tcp =
            case.transport_names("TCP")?.into_iter().map(|transport| case.over_loss("success", transport));
        let tcp: Vec<MetricCurve> = tcp.collect::<Result<_, _>>()?;
        let surely = tcp.iter().flat_map(|curve| &curve.0).any(|(_, values)| handovers_surely_fail(values));
        let reason = format!("Over UDP no handover fails and over TCP some do. {}", lost());
        return if surely {
            Ok(ClaimFinding::from_verdict_text("only TCP fails", Verdict::Differs, reason))
        } else {
            Err(FindingError::NotComparable(format!("{reason} They are too few to be significant.")))
        };
    }
    let failing = |curve: &MetricCurve, loss: f64| curve.values_at(loss).is_some_and(handovers_surely_fail);
    let mut ahead = long.subtract_curve(&short);
    ahead.0.retain(|(loss, _)| failing(&short, *loss) || failing(&long, *loss));
    let ahead =
        require_minimum_points(ahead, 1, "Success over UDP, where failures are significant")?.estimates();
    let longer = count_estimates_with_sign(&ahead, IntervalSign::Above);
    let (mut held, mut of, mut behind) = (0, 0, Vec::new());
    for transport in case.transport_names("TCP")? {
        let tcp = case.over_loss("success", transport)?;
        let mut differences = Vec::new();
        for udp in [&short, &long] {
            let mut more = tcp.subtract_curve(udp);
            more.0.retain(|(loss, _)| failing(udp, *loss));
            let more = require_minimum_points(more, 0, "Success over TCP minus that over UDP")?;
            differences.extend(more.estimates());
        }
        // `turn` is true at a loss from which the transport's own handovers fail and it is not surely ahead of both UDP
        // variants. Its retransmissions then outlast the stay.
        let turn = |from: f64| {
            let mut later = tcp.0.iter().filter(|(loss, _)| *loss >= from);
            let behind = |loss: f64| {
                differences.iter().any(|(x, e)| *x == loss && interval_sign(e) != IntervalSign::Above)
            };
            later.all(|(loss, values)| handovers_surely_fail(values) && behind(*loss))
        };
        let turn = tcp.0.iter().map(|(loss, _)| *loss).find(|loss| turn(*loss));
        let all = differences.len();
        differences.retain(|(loss, _)| turn.is_none_or(|turn| *loss < turn));
        held += count_estimates_with_sign(&differences, IntervalSign::Above);
        // If a transport is behind from the start, count all its points, none of which holds.
        of += if differences.is_empty() { all } else { differences.len() };
        behind.extend(turn.map(|loss| format!("{transport} from {} % on", format_digits(loss))));
    }
    let parts = [
        ("UDP 0.1 s fails more than 0.3 s", Verdict::from_held_point_count(longer, ahead.len())),
        ("TCP fails the fewest", Verdict::from_held_point_count(held, of)),
    ];
    let (_, last) = ahead[ahead.len() - 1];
    let more = if behind.is_empty() { String::new() } else { format!(" (behind: {})", behind.join(", ")) };
    let reason = format!(
        "Where failures over UDP are significant, {} succeeds significantly more often than {} at {} (by {} \
         at the last). TCP succeeds significantly more often than either at {}{more}.{}",
        UDP[1],
        UDP[0],
        format_count_of_total(longer, ahead.len(), "losses"),
        format_with_interval(&last, ""),
        format_count_of_total(held, of, "combinations of transport, timeout and loss"),
        list_part_verdicts(parts)
    );
    let ours = format!("0.1 s fails more at {}", format_count_of_total(longer, ahead.len(), "losses"));
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the mean over several transports, at their common losses.
fn mean_over_transports(
    case: HandoverLossResults<'_, '_>,
    metric: &str,
    kind: &str,
) -> Result<MetricCurve, FindingError> {
    let names = case.transport_names(kind)?;
    let curves: Vec<MetricCurve> =
        names.iter().map(|name| case.over_loss(metric, name)).collect::<Result<_, _>>()?;
    let share = 1.0 / curves.len() as f64;
    let point = |(loss, _): &(f64, MetricValues)| {
        let all: Option<Vec<&MetricValues>> = curves.iter().map(|c| c.values_at(*loss)).collect();
        Some((*loss, weighted_sum(&all?.into_iter().map(|v| (share, v)).collect::<Vec<_>>())))
    };
    Ok(MetricCurve(curves[0].0.iter().filter_map(point).collect()))
}

/// Evaluates the order of delays: TCP's are longer among successful handovers; UDP's among all, because more of them
/// fail. Without failures that part is undecided.
fn judge_handover_delay_order(case: HandoverLossResults<'_, '_>) -> FindingResult {
    let compared = |metric: &str, what: &str| {
        let more = mean_over_transports(case, metric, "TCP")?
            .subtract_curve(&mean_over_transports(case, metric, "UDP")?)
            .retain_points_beyond(0.0);
        Ok::<_, FindingError>(require_minimum_points(more, 1, what)?.estimates())
    };
    let slower = compared("delay.success", "TCP minus UDP, successful handovers")?;
    let all = compared("delay.mean", "TCP minus UDP, all handovers")?;
    let (held, faster) = (
        count_estimates_with_sign(&slower, IntervalSign::Above),
        count_estimates_with_sign(&all, IntervalSign::Below),
    );
    let (in_all, none) = if case.is_without_failures()? {
        (Verdict::NotComparable, format!(" {NONE_FAILS}"))
    } else {
        (Verdict::from_held_point_count(faster, all.len()), String::new())
    };
    let parts = [
        ("slower over TCP when it succeeds", Verdict::from_held_point_count(held, slower.len())),
        ("slower over UDP overall", in_all),
    ];
    let [(_, last), (_, last_of_all)] = [&slower, &all].map(|e| e[e.len() - 1]);
    let reason = format!(
        "A successful handover takes significantly longer over TCP (mean of its largest RTOs) than over UDP \
         (mean of its timeouts) at {}; at the last it takes {}. All handovers together take significantly \
         longer over UDP at {}; at the last TCP takes {}.{none}{}",
        format_count_of_total(held, slower.len(), "losses"),
        format_with_comparative(&last, "s", "longer", "less"),
        format_count_of_total(faster, all.len(), "losses"),
        format_with_comparative(&last_of_all, "s", "longer", "less"),
        list_part_verdicts(parts)
    );
    let ours = format!(
        "slower over TCP at {} when it succeeds, over UDP at {} overall",
        format_count_of_total(held, slower.len(), "losses"),
        format_count_of_total(faster, all.len(), "losses")
    );
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the relative deviation of each point of a curve from the mean of its points.
fn deviations_from_curve_mean(curve: &MetricCurve) -> Vec<(f64, MetricEstimate)> {
    let means: Vec<f64> = curve.estimates().iter().map(|(_, e)| e.mean).collect();
    let middle = means.iter().sum::<f64>() / means.len() as f64;
    let off = |values: &MetricValues| {
        let e = estimate_mean(values);
        MetricEstimate { mean: e.mean / middle - 1.0, ..e.scale_by(1.0 / middle.abs()) }
    };
    curve.0.iter().map(|(loss, values)| (*loss, off(values))).collect()
}

/// Evaluates the steps. If the network leads, the message steps before the scan and after it have different lengths, so
/// the comparison uses the additional delay by loss.
fn judge_handover_steps(case: HandoverLossResults<'_, '_>) -> FindingResult {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let [earlier, later_step] =
        if case.study == NETWORK { [PREPARATION, DECISION] } else { [RESOURCES, COMMIT] };
    let all = case.transport_names("")?;
    for (step, name) in [(SCAN, "scan constant"), (REDIRECTION, "redirection constant")] {
        let (mut within, mut off, mut unsure, mut worst) = (0, 0, 0, 0.0_f64);
        for transport in &all {
            let curve = require_minimum_points(case.over_loss(step, transport)?, 2, name)?;
            for (_, change) in deviations_from_curve_mean(&curve) {
                worst = worst.max(change.mean.abs());
                match compare_delays(&change) {
                    DelayComparison::Alike => within += 1,
                    DelayComparison::Unsure => unsure += 1,
                    DelayComparison::Faster | DelayComparison::Slower => off += 1,
                }
            }
        }
        // Undecided points do not hold. If they are more than a third, the whole result is undecided.
        let verdict = match Verdict::from_held_point_count(within, within + off) {
            _ if 3 * unsure > within + off + unsure => Verdict::NotComparable,
            Verdict::Reproduced if unsure > 0 => Verdict::Partly,
            verdict => verdict,
        };
        parts.push((name, verdict));
        said.push(format!(
            "{name}: {} within {} of the mean, {off} significantly beyond it, at most {} off",
            format_count_of_total(within, within + off + unsure, "pairs of transport and loss"),
            format_percent(ALIKE),
            format_percent(worst)
        ));
    }
    let (mut held, mut of) = (0, 0);
    for transport in &all {
        for step in [earlier, later_step] {
            let curve = require_minimum_points(case.over_loss(step, transport)?, 2, step)?;
            let Some(rise) = measure_curve_rise(&curve) else { continue };
            held += usize::from(rise.verdict() == Verdict::Reproduced);
            of += 1;
        }
    }
    parts.push(("message steps grow", Verdict::from_held_point_count(held, of)));
    said.push(format!(
        "message steps grow with loss in {}",
        format_count_of_total(held, of, "pairs of transport and step")
    ));
    let (mut later, mut of, mut none) = (0, 0, None);
    for transport in case.transport_names("TCP")? {
        let request = case.over_loss(later_step, transport)?;
        let mut more = request.subtract_curve(&case.over_loss(earlier, transport)?);
        if let (None, Some(values)) = (none, more.values_at(0.0)) {
            none = Some(estimate_mean(values).mean);
        }
        if let (NETWORK, Some(without)) = (case.study, more.values_at(0.0).cloned()) {
            more =
                MetricCurve(more.0.iter().map(|(loss, v)| (*loss, subtract_values(v, &without))).collect());
        }
        let more =
            require_minimum_points(more.retain_points_beyond(0.0), 1, "The later step minus the earlier")?
                .estimates();
        later += count_estimates_with_sign(&more, IntervalSign::Above);
        of += more.len();
    }
    parts.push(("TCP's later step longer", Verdict::from_held_point_count(later, of)));
    let without = none.map_or_else(String::new, |s| format!(" (by {} s without loss)", format_digits(s)));
    let what = if case.study == NETWORK {
        "over TCP, loss adds significantly more to the network's decision than to its preparation"
    } else {
        "over TCP, the step of the handover request is significantly longer than that for resources"
    };
    said.push(format!(
        "{what} at {}{without}",
        format_count_of_total(later, of, "pairs of transport and loss")
    ));
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let kept = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let reason = format!("{}.{}", capitalise(&said.join("; ")), list_part_verdicts(parts.iter().copied()));
    Ok(ClaimFinding::from_verdict_text(
        format!("{kept} of {} parts", parts.len()),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}

fn judge_network_initiated_delay(case: HandoverLossResults<'_, '_>) -> FindingResult {
    let network = case.with_study(NETWORK);
    if !case.view.has_study(NETWORK) {
        return Err(case.view.missing_study(NETWORK));
    }
    let (mut held, mut of, mut said) = (0, 0, Vec::new());
    for transport in case.transport_names("")? {
        let station = case.over_loss("delay.success", transport)?;
        let less = station.subtract_curve(&network.over_loss("delay.success", transport)?);
        let less = require_minimum_points(less, 1, "Station-initiated minus network-initiated")?.estimates();
        let faster = count_estimates_with_sign(&less, IntervalSign::Above);
        let saved = less.iter().map(|(_, e)| e.mean).sum::<f64>() / less.len() as f64;
        held += faster;
        of += less.len();
        said.push(format!(
            "over {transport} at {faster} of {} (by {} s on average)",
            less.len(),
            format_digits(saved)
        ));
    }
    let reason = format!(
        "Successful network-initiated handovers are significantly faster at {}: {}.",
        format_count_of_total(held, of, "pairs of transport and loss"),
        said.join("; ")
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("faster at {}", format_count_of_total(held, of, "points")),
        Verdict::from_held_point_count(held, of),
        reason,
    ))
}

/// Evaluates each statement on station-led handovers for network-led ones.
fn judge_network_initiated_trends(case: HandoverLossResults<'_, '_>) -> FindingResult {
    let failed = crate::data::find_claim(FAILED).map(|claim| judge_failed_handover_delay(claim, case));
    let judged: [(&str, FindingResult); 5] = [
        (
            "failed delay",
            failed.unwrap_or_else(|| Err(FindingError::NoStudy(format!("{FAILED} is not a claim.")))),
        ),
        ("success", judge_success_order(case)),
        ("delays", judge_handover_delay_order(case)),
        ("steps", judge_handover_steps(case)),
        ("application loss", judge_application_loss(&[case])),
    ];
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for (name, found) in judged {
        let (verdict, text) = match found {
            Ok(found) => (found.verdict, found.reason),
            Err(FindingError::NotComparable(text)) => (Verdict::NotComparable, text),
            Err(gone) => return Err(gone),
        };
        parts.push((name, verdict));
        said.push(format!("{}: {text}", capitalise(name)));
    }
    let telling: Vec<Verdict> =
        parts.iter().map(|(_, v)| *v).filter(|v| *v != Verdict::NotComparable).collect();
    let kept = telling.iter().filter(|v| **v == Verdict::Reproduced).count();
    let ours = match parts.len() - telling.len() {
        0 => format!("{kept} of {} trends", parts.len()),
        silent => format!("{kept} of {} trends, {silent} undecided", telling.len()),
    };
    let reason = format!("{}{}", said.join(" "), list_part_verdicts(parts.iter().copied()));
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&telling), reason))
}

/// The loss of the application's packets at a point.
struct ApplicationLoss {
    loss: f64,
    /// The share of lost packets, and the number of packets.
    share: f64,
    packets: f64,
}

/// Returns the packets of all replications at each loss above zero, if no handover failed. The number sent is the
/// number lost divided by its share. A replication without losses counts as the average of the others.
fn application_losses(
    case: HandoverLossResults<'_, '_>,
    transport: &str,
) -> Result<Vec<ApplicationLoss>, FindingError> {
    let of = |metric| case.over_loss(metric, transport);
    let (success, started) = (of("success")?, of("started")?);
    let (shares, lost) = (of("app.loss")?.retain_points_beyond(0.0), of("app.lost")?);
    let flow = |(loss, shares): &(f64, MetricValues)| {
        let (success, started, lost) =
            (success.values_at(*loss)?, started.values_at(*loss)?, lost.values_at(*loss)?);
        if success.values().any(|share| *share < 1.0 - ROUNDING) {
            return None;
        }
        let all = |r: &u32| Some((*shares.get(r)?, lost.get(r)? * started.get(r)?));
        let all: Vec<(f64, f64)> = shares.keys().filter_map(all).collect();
        let sent: Vec<f64> =
            all.iter().filter(|(share, _)| *share > 0.0).map(|(share, lost)| lost / share).collect();
        let (lost, known) = (all.iter().map(|(_, lost)| lost).sum::<f64>(), sent.len() as f64);
        // If no replication lost a packet, assume the minimum: one packet for each handover.
        let least = || all.len() as f64 * estimate_mean(started).mean;
        let packets =
            if sent.is_empty() { least() } else { sent.iter().sum::<f64>() / known * all.len() as f64 };
        (!all.is_empty()).then(|| ApplicationLoss { loss: loss / 100.0, share: lost / packets, packets })
    };
    Ok(shares.0.iter().filter_map(flow).collect())
}

/// True if a share of packets equals a ratio within its statistical error, or within a twentieth of it. The first and
/// last packets of a handover may pass the cell before its loss begins, or not at all.
fn matches_loss_ratio(share: f64, ratio: f64, packets: f64) -> bool {
    agrees_with_formula(share, ratio, packets) || (share / ratio - 1.0).abs() <= ALIKE
}

/// Returns a sentence on losses after the MAC, from the losses with the sent and lost packets of all transports. A loss
/// is evaluated if the packets suffice to distinguish it from zero, and undecided otherwise.
fn by_mac(by_loss: &[(f64, f64, f64)]) -> String {
    let judged: Vec<_> = by_loss
        .iter()
        .filter(|(loss, sent, _)| can_detect_probability(packet_loss_after_mac(*loss), *sent))
        .collect();
    let agree = |(loss, sent, gone): &&&(f64, f64, f64)| {
        matches_loss_ratio(gone / sent, packet_loss_after_mac(*loss), *sent)
    };
    let open = by_loss.len() - judged.len();
    let so = match judged.len() {
        0 => "the packets are too few at every loss to distinguish that from zero".to_owned(),
        n => {
            let held = format_count_of_total(judged.iter().filter(agree).count(), n, "losses");
            format!("over all transports, the lost share agrees within chance at {held}")
        }
    };
    let undecided = if open == 0 || judged.is_empty() {
        String::new()
    } else {
        format!(
            "; {open} others are undecided, because their packets are too few to distinguish it from zero"
        )
    };
    format!(
        " With {TRIES} tries of the MAC, a frame loss of p leaves a packet loss of p^{TRIES}: \
         {so}{undecided}."
    )
}

/// Evaluates the loss of application packets. Without failed handovers, the loss equals the cell's ratio, at each point
/// with enough packets and in total. For failed ones, all packets between leaving the cell and the end of the
/// redirection are lost.
fn judge_application_loss(cases: &[HandoverLossResults<'_, '_>]) -> FindingResult {
    let (mut held, mut of, mut unresolved, mut worst) = (0, 0, 0, (0.0_f64, 0.0));
    // Sum the sent and lost packets of all cases and transports by loss: single points have too few packets to show the
    // residual loss after the MAC's retransmissions.
    let mut by_loss: Vec<(f64, f64, f64)> = Vec::new();
    let (mut packets, mut lost, mut expected, mut variance) = (0.0, 0.0, 0.0, 0.0);
    let (mut all_lost, mut left, mut least) = (0, 0, 1.0_f64);
    for case in cases {
        if !case.view.has_study(case.study) {
            return Err(case.view.missing_study(case.study));
        }
        for transport in case.transport_names("")? {
            for ApplicationLoss { loss, share, packets: n } in application_losses(*case, transport)? {
                match by_loss.iter_mut().find(|(known, ..)| *known == loss) {
                    Some((_, sent, gone)) => (*sent, *gone) = (*sent + n, *gone + share * n),
                    None => by_loss.push((loss, n, share * n)),
                }
                if can_detect_probability(loss, n) {
                    of += 1;
                    held += usize::from(matches_loss_ratio(share, loss, n));
                } else {
                    unresolved += 1;
                }
                if (share - loss).abs() > worst.0 {
                    worst = ((share - loss).abs(), loss);
                }
                packets += n;
                lost += share * n;
                expected += loss * n;
                variance += loss * (1.0 - loss) * n;
            }
            match case.over_loss("app.loss-after-leaving", transport) {
                Ok(shares) => {
                    for (_, e) in shares.estimates() {
                        left += 1;
                        all_lost += usize::from(e.mean >= ALL_LOST - ROUNDING);
                        least = least.min(e.mean);
                    }
                }
                // If no handover failed over this transport, this metric has no values.
                Err(FindingError::NotComparable(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
    }
    if of + unresolved + left == 0 {
        let text = "There are no points with only successful handovers, and none with results of failed \
                    handovers.";
        return Err(FindingError::NotComparable(text.to_owned()));
    }
    let together = (lost - expected).abs() <= (ERRORS * variance.sqrt()).max(ALIKE * expected);
    let any = usize::from(can_detect_probability(expected / packets.max(1.0), packets));
    let parts = [
        ("at the loss ratio", Verdict::from_held_point_count(held, of)),
        ("at the ratio overall", Verdict::from_held_point_count(usize::from(together).min(any), any)),
        ("all lost after leaving", Verdict::from_held_point_count(all_lost, left)),
    ];
    let after = if left == 0 {
        "There are no results of failed handovers.".to_owned()
    } else {
        format!(
            "In failed handovers, {} or more of the packets between leaving the cell and the end of the \
             redirection are lost at {}, with a minimum of {}.",
            format_percent(ALL_LOST),
            format_count_of_total(all_lost, left, "pairs of transport and loss"),
            format_percent(least)
        )
    };
    let by_mac =
        if cases.iter().any(|case| case.lost == Some(FRAMES)) { by_mac(&by_loss) } else { String::new() };
    let open = if unresolved == 0 {
        String::new()
    } else {
        format!("; {unresolved} others have too few packets to distinguish the cell's loss from zero")
    };
    let reason = format!(
        "Where all handovers succeed, the lost share of application packets agrees with the cell's loss \
         within chance at {} (farthest, by {} percentage points, at {}){open}. In total, {} of {} packets \
         were lost; the ratio predicts {}.{by_mac} {after}{}",
        format_count_of_total(held, of, "pairs of transport and loss"),
        format_digits(worst.0 * 100.0),
        format_percent(worst.1),
        format_digits(lost),
        format_digits(packets),
        format_digits(expected),
        list_part_verdicts(parts)
    );
    let ours = format!("at the ratio at {}", format_count_of_total(held, of, "points"));
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}
