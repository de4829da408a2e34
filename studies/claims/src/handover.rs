//! The claims of "Performance Evaluation of L3 Transport Protocols for IEEE 802.21" on handovers, one function for
//! each. Read from `handover-mn` and `handover-net`.

use crate::common::{
    FindingResult, JudgeFunction, capitalise, count_on_side, count_text, judge_configuration, require_finite,
    require_testable,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, judge_deviation,
    part_by_part, with_interval, with_word,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    ALIKE, DelayComparison, ERRORS, IntervalSide, MetricCurve, MetricValues, agrees_with_formula,
    can_resolve, compare_delays, estimate_mean, interval_side, measure_rise, subtract_values, weighted_sum,
};
use crate::results::{CurveSelector, VariantView};

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 8] = [
    ("handover.setup", judge_setup),
    (FAILED, |claim, view| judge_by_reading(claim, view, STATION, |case| failed_delay(claim, case))),
    ("handover.success-order", |claim, view| judge_by_reading(claim, view, STATION, success_order)),
    ("handover.delay-order", |claim, view| judge_by_reading(claim, view, STATION, delay_order)),
    ("handover.steps", |claim, view| judge_by_reading(claim, view, STATION, judge_steps)),
    ("handover.network-faster", |claim, view| judge_by_reading(claim, view, STATION, network_faster)),
    ("handover.network-trends", |claim, view| judge_by_reading(claim, view, NETWORK, network_trends)),
    ("handover.app-loss", |claim, view| {
        judge_by_reading(claim, view, STATION, |case| app_loss(&[case, case.with_study(NETWORK)]))
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
struct HandoverCase<'v, 'a> {
    view: &'v VariantView<'a>,
    study: &'static str,
    lost: Option<&'static str>,
}

impl<'a> HandoverCase<'_, 'a> {
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
    fn residual_loss(&self, loss: f64) -> f64 {
        if self.lost == Some(FRAMES) { left_by_mac(loss) } else { loss }
    }

    /// True if no handover failed, over any transport and at any loss.
    fn none_fails(&self) -> Result<bool, FindingError> {
        let curves =
            self.transport_names("")?.into_iter().map(|transport| self.over_loss("success", transport));
        let curves: Vec<MetricCurve> = curves.collect::<Result<_, _>>()?;
        let mut shares = curves.iter().flat_map(|curve| &curve.0).flat_map(|(_, values)| values.values());
        Ok(shares.all(|share| *share >= 1.0 - ROUNDING))
    }
}

/// Returns the packet loss after the MAC's attempts for a frame loss.
fn left_by_mac(loss: f64) -> f64 {
    (0..TRIES).map(|_| loss).product()
}

/// Evaluates a statement by frame losses, which give the verdict, and by packet losses. The reason states both results
/// and the better fit.
fn judge_by_reading(
    claim: &Claim,
    view: &VariantView<'_>,
    study: &'static str,
    judge: impl Fn(HandoverCase<'_, '_>) -> FindingResult,
) -> FindingResult {
    let kinds = view.axis_values(study, LOST);
    let case = |lost| HandoverCase { view, study, lost };
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
            format!("nothing follows. {text}")
        }
    };
    let other = format!(" Read as the loss of packets, after the MAC's retransmissions: {other}");
    let fits = |by_frames: Verdict| {
        // An undecided result fits no worse than the contrary.
        let [by_packets, by_frames] = [by_packets, by_frames].map(|verdict| verdict.min(Verdict::Differs));
        let which = match by_packets.cmp(&by_frames) {
            std::cmp::Ordering::Less => "packets fits the results better",
            std::cmp::Ordering::Greater => "frames fits the results better",
            std::cmp::Ordering::Equal => return " Neither reading fits the results better.".to_owned(),
        };
        let name = if by_packets < by_frames { PACKETS } else { FRAMES };
        let text = claim.effective_readings().iter().find(|r| r.name == name);
        let quoted = text.map_or_else(String::new, |r| format!(" ({})", r.text));
        format!(" Of both readings that of {which}{quoted}.")
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

fn judge_setup(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let stated = "802.11 at 11 Mb/s with a radius of 50 m and 6 retransmissions of the MAC, 802.16 with 64-QAM 3/4 and 500 m, \
                  stations at 1 m/s, 30 s of traffic, MIH timeouts of 0.1 and 0.3 s over UDP and largest RTOs of 0.2, 0.5 and 1 s \
                  over TCP, two MIH retransmissions, 0.2 s for a request, wired links of 100 Mb/s and 10 ms, IPv6, a packet of \
                  the application each 0.5 s, loss of 0 to 50 % of frames in the 802.11 cell from Link_Going_Down on, no timeout of a \
                  transaction, and the side that the study is named after leading";
    judge_configuration(claim, view, stated).map(|found| found.of_all(claim, view))
}

fn failed_delay(claim: &Claim, case: HandoverCase<'_, '_>) -> FindingResult {
    let mut sums: std::collections::BTreeMap<u32, (f64, f64)> = std::collections::BTreeMap::new();
    let mut points = 0;
    for transport in case.transport_names("")? {
        let delays = match case.over_loss("delay.failed", transport) {
            Ok(delays) => delays,
            // No handover failed over this transport.
            Err(FindingError::NotComparable(_)) if case.view.at_defaults(case.study).is_ok() => continue,
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
    let means = means.with_robust(true);
    let ours = require_finite(estimate_mean(&means), "The delay of failed handovers")?;
    let (verdict, off) = judge_deviation(&ours, claim.published_number(), &claim.unit);
    let reason = format!(
        "Handovers that fail take {}, {off}: the mean over {points} points of transport and loss with failures.",
        with_interval(&ours, "s")
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}

/// True if handovers surely fail by this success share.
fn is_failing(success: &MetricValues) -> bool {
    let all: MetricValues = success.keys().map(|replication| (*replication, 1.0)).collect();
    interval_side(&estimate_mean(&subtract_values(&all, success))) == IntervalSide::Above
}

fn success_order(case: HandoverCase<'_, '_>) -> FindingResult {
    let [short, long] = [case.over_loss("success", UDP[0])?, case.over_loss("success", UDP[1])?];
    let most = short.0.last().map_or(0.0, |(loss, _)| loss / 100.0);
    let lost = || {
        let [left, most] = [format_percent(case.residual_loss(most)), format_digits(most * 100.0)];
        format!("The cell loses {left} of packets at {most} %.")
    };
    if case.none_fails()? {
        return Err(FindingError::NotComparable(format!("{NONE_FAILS} {}", lost())));
    }
    if [&short, &long].iter().all(|curve| curve.0.iter().all(|(_, v)| v.values().all(|share| *share == 1.0)))
    {
        let tcp =
            case.transport_names("TCP")?.into_iter().map(|transport| case.over_loss("success", transport));
        let tcp: Vec<MetricCurve> = tcp.collect::<Result<_, _>>()?;
        let surely = tcp.iter().flat_map(|curve| &curve.0).any(|(_, values)| is_failing(values));
        let reason = format!("Over UDP no handover fails and over TCP some do. {}", lost());
        return if surely {
            Ok(ClaimFinding::from_words("only TCP fails", Verdict::Differs, reason))
        } else {
            Err(FindingError::NotComparable(format!("{reason} They are too few to say so surely.")))
        };
    }
    let failing = |curve: &MetricCurve, loss: f64| curve.values_at(loss).is_some_and(is_failing);
    let mut ahead = long.subtract_curve(&short);
    ahead.0.retain(|(loss, _)| failing(&short, *loss) || failing(&long, *loss));
    let ahead = require_testable(ahead, 1, "Success over UDP, where handovers surely fail")?.estimates();
    let longer = count_on_side(&ahead, IntervalSide::Above);
    let (mut held, mut of, mut behind) = (0, 0, Vec::new());
    for transport in case.transport_names("TCP")? {
        let tcp = case.over_loss("success", transport)?;
        let mut differences = Vec::new();
        for udp in [&short, &long] {
            let mut more = tcp.subtract_curve(udp);
            more.0.retain(|(loss, _)| failing(udp, *loss));
            let more = require_testable(more, 0, "Success over TCP less that over UDP")?;
            differences.extend(more.estimates());
        }
        // The turn: from here on its own handovers fail, and it is not surely ahead of both over UDP. Its
        // retransmissions outlast the stay.
        let turn = |from: f64| {
            let mut later = tcp.0.iter().filter(|(loss, _)| *loss >= from);
            let behind = |loss: f64| {
                differences.iter().any(|(x, e)| *x == loss && interval_side(e) != IntervalSide::Above)
            };
            later.all(|(loss, values)| is_failing(values) && behind(*loss))
        };
        let turn = tcp.0.iter().map(|(loss, _)| *loss).find(|loss| turn(*loss));
        let all = differences.len();
        differences.retain(|(loss, _)| turn.is_none_or(|turn| *loss < turn));
        held += count_on_side(&differences, IntervalSide::Above);
        // A transport that is behind from the start holds at no point.
        of += if differences.is_empty() { all } else { differences.len() };
        behind.extend(turn.map(|loss| format!("{transport} from {} % on", format_digits(loss))));
    }
    let parts = [
        ("UDP 0.1 s fails more than 0.3 s", Verdict::on_count(longer, ahead.len())),
        ("TCP fails the fewest", Verdict::on_count(held, of)),
    ];
    let (_, last) = ahead[ahead.len() - 1];
    let more = if behind.is_empty() { String::new() } else { format!(" (behind: {})", behind.join(", ")) };
    let reason = format!(
        "Where handovers over UDP surely fail, {} surely succeeds more often than {} at {} (by {} at the last). TCP surely \
         succeeds more often than either at {}{more}.{}",
        UDP[1],
        UDP[0],
        count_text(longer, ahead.len(), "losses"),
        with_interval(&last, ""),
        count_text(held, of, "transports, timeouts and losses"),
        part_by_part(parts)
    );
    let ours = format!("0.1 s fails more at {}", count_text(longer, ahead.len(), "losses"));
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the mean over several transports, at their common losses.
fn mean_over_transports(
    case: HandoverCase<'_, '_>,
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
fn delay_order(case: HandoverCase<'_, '_>) -> FindingResult {
    let compared = |metric: &str, what: &str| {
        let more = mean_over_transports(case, metric, "TCP")?
            .subtract_curve(&mean_over_transports(case, metric, "UDP")?)
            .points_beyond(0.0);
        Ok::<_, FindingError>(require_testable(more, 1, what)?.estimates())
    };
    let slower = compared("delay.success", "TCP less UDP, of those that succeed")?;
    let all = compared("delay.mean", "TCP less UDP, of all")?;
    let (held, faster) =
        (count_on_side(&slower, IntervalSide::Above), count_on_side(&all, IntervalSide::Below));
    let (in_all, none) = if case.none_fails()? {
        (Verdict::NotComparable, format!(" {NONE_FAILS}"))
    } else {
        (Verdict::on_count(faster, all.len()), String::new())
    };
    let parts = [
        ("slower over TCP when it succeeds", Verdict::on_count(held, slower.len())),
        ("slower over UDP in all", in_all),
    ];
    let [(_, last), (_, last_of_all)] = [&slower, &all].map(|e| e[e.len() - 1]);
    let reason = format!(
        "A handover that succeeds surely takes longer over TCP (the mean of its largest RTOs) than over UDP (the mean of its \
         timeouts) at {}; at the last it takes {}. All handovers together surely take longer over UDP at {}; at the last \
         TCP takes {}.{none}{}",
        count_text(held, slower.len(), "losses"),
        with_word(&last, "s", "longer", "less"),
        count_text(faster, all.len(), "losses"),
        with_word(&last_of_all, "s", "longer", "less"),
        part_by_part(parts)
    );
    let ours = format!(
        "slower over TCP at {} when it succeeds, over UDP at {} in all",
        count_text(held, slower.len(), "losses"),
        count_text(faster, all.len(), "losses")
    );
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// Returns the relative deviation of each point of a curve from the mean of its points.
fn mean_deviations(curve: &MetricCurve) -> Vec<(f64, MetricEstimate)> {
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
fn judge_steps(case: HandoverCase<'_, '_>) -> FindingResult {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let [earlier, later_step] =
        if case.study == NETWORK { [PREPARATION, DECISION] } else { [RESOURCES, COMMIT] };
    let all = case.transport_names("")?;
    for (step, name) in [(SCAN, "scan constant"), (REDIRECTION, "redirection constant")] {
        let (mut within, mut off, mut unsure, mut worst) = (0, 0, 0, 0.0_f64);
        for transport in &all {
            let curve = require_testable(case.over_loss(step, transport)?, 2, name)?;
            for (_, change) in mean_deviations(&curve) {
                worst = worst.max(change.mean.abs());
                match compare_delays(&change) {
                    DelayComparison::Alike => within += 1,
                    DelayComparison::Unsure => unsure += 1,
                    DelayComparison::Faster | DelayComparison::Slower => off += 1,
                }
            }
        }
        // Undecided points do not hold; if they are more than a third, the result is undecided.
        let verdict = match Verdict::on_count(within, within + off) {
            _ if 3 * unsure > within + off + unsure => Verdict::NotComparable,
            Verdict::Reproduced if unsure > 0 => Verdict::Partly,
            verdict => verdict,
        };
        parts.push((name, verdict));
        said.push(format!(
            "{name}: at {} within {} of its mean, at {off} surely not, {} off at most",
            count_text(within, within + off + unsure, "transports and losses"),
            format_percent(ALIKE),
            format_percent(worst)
        ));
    }
    let (mut held, mut of) = (0, 0);
    for transport in &all {
        for step in [earlier, later_step] {
            let curve = require_testable(case.over_loss(step, transport)?, 2, step)?;
            let Some(rise) = measure_rise(&curve) else { continue };
            held += usize::from(rise.verdict() == Verdict::Reproduced);
            of += 1;
        }
    }
    parts.push(("message steps grow", Verdict::on_count(held, of)));
    said.push(format!(
        "steps of messages grow with loss in {}",
        count_text(held, of, "transports and steps")
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
            require_testable(more.points_beyond(0.0), 1, "The later step less the earlier")?.estimates();
        later += count_on_side(&more, IntervalSide::Above);
        of += more.len();
    }
    parts.push(("TCP's later step longer", Verdict::on_count(later, of)));
    let without = none.map_or_else(String::new, |s| format!(", without loss by {} s", format_digits(s)));
    let what = if case.study == NETWORK {
        "over TCP loss surely adds more to the network's decision than to its preparation"
    } else {
        "over TCP the step of the handover request is surely longer than that for resources"
    };
    said.push(format!("{what} at {}{without}", count_text(later, of, "transports and losses")));
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let kept = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let reason = format!("{}.{}", capitalise(&said.join("; ")), part_by_part(parts.iter().copied()));
    Ok(ClaimFinding::from_words(
        format!("{kept} of {} parts", parts.len()),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}

fn network_faster(case: HandoverCase<'_, '_>) -> FindingResult {
    let network = case.with_study(NETWORK);
    if !case.view.has_study(NETWORK) {
        return Err(case.view.missing_study(NETWORK));
    }
    let (mut held, mut of, mut said) = (0, 0, Vec::new());
    for transport in case.transport_names("")? {
        let station = case.over_loss("delay.success", transport)?;
        let less = station.subtract_curve(&network.over_loss("delay.success", transport)?);
        let less = require_testable(less, 1, "Station-initiated less network-initiated")?.estimates();
        let faster = count_on_side(&less, IntervalSide::Above);
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
        "Of the handovers that succeed, those that the network begins are surely faster at {}: {}.",
        count_text(held, of, "transports and losses"),
        said.join("; ")
    );
    Ok(ClaimFinding::from_words(
        format!("faster at {}", count_text(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}

/// Evaluates each statement on station-led handovers for network-led ones.
fn network_trends(case: HandoverCase<'_, '_>) -> FindingResult {
    let failed = crate::data::find_claim(FAILED).map(|claim| failed_delay(claim, case));
    let judged: [(&str, FindingResult); 5] = [
        (
            "failed delay",
            failed.unwrap_or_else(|| Err(FindingError::NoStudy(format!("{FAILED} is no statement.")))),
        ),
        ("success", success_order(case)),
        ("delays", delay_order(case)),
        ("steps", judge_steps(case)),
        ("application loss", app_loss(&[case])),
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
        silent => format!("{kept} of {} trends, {silent} say nothing", telling.len()),
    };
    let reason = format!("{}{}", said.join(" "), part_by_part(parts.iter().copied()));
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&telling), reason))
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
    case: HandoverCase<'_, '_>,
    transport: &str,
) -> Result<Vec<ApplicationLoss>, FindingError> {
    let of = |metric| case.over_loss(metric, transport);
    let (success, started) = (of("success")?, of("started")?);
    let (shares, lost) = (of("app.loss")?.points_beyond(0.0), of("app.lost")?);
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
        // If no replication lost any, the minimum is a packet for each handover.
        let least = || all.len() as f64 * estimate_mean(started).mean;
        let packets =
            if sent.is_empty() { least() } else { sent.iter().sum::<f64>() / known * all.len() as f64 };
        (!all.is_empty()).then(|| ApplicationLoss { loss: loss / 100.0, share: lost / packets, packets })
    };
    Ok(shares.0.iter().filter_map(flow).collect())
}

/// True if a share of packets equals a ratio within its statistical error, or within a twentieth of it. The first and
/// last packets of a handover may pass the cell before its loss begins, or not at all.
fn at_ratio(share: f64, ratio: f64, packets: f64) -> bool {
    agrees_with_formula(share, ratio, packets) || (share / ratio - 1.0).abs() <= ALIKE
}

/// Returns a sentence on losses after the MAC, from the losses with the sent and lost packets of all transports. A loss
/// is evaluated if the packets suffice to distinguish it from zero, and undecided otherwise.
fn by_mac(by_loss: &[(f64, f64, f64)]) -> String {
    let judged: Vec<_> =
        by_loss.iter().filter(|(loss, sent, _)| can_resolve(left_by_mac(*loss), *sent)).collect();
    let agree = |(loss, sent, gone): &&&(f64, f64, f64)| at_ratio(gone / sent, left_by_mac(*loss), *sent);
    let open = by_loss.len() - judged.len();
    let so = match judged.len() {
        0 => "no loss has packets enough to tell that from none".to_owned(),
        n => {
            let held = count_text(judged.iter().filter(agree).count(), n, "losses");
            format!("the share lost over all transports is that but for chance at {held}")
        }
    };
    let undecided = if open == 0 || judged.is_empty() {
        String::new()
    } else {
        format!(", and at {open} others undecided, since what is left would not be told from none")
    };
    format!(" What {TRIES} tries of the MAC leave of frame loss p is p^{TRIES}: {so}{undecided}.")
}

/// Evaluates the loss of application packets. Without failed handovers, the loss equals the cell's ratio, at each point
/// with enough packets and in total. For failed ones, all packets between leaving the cell and the end of the
/// redirection are lost.
fn app_loss(cases: &[HandoverCase<'_, '_>]) -> FindingResult {
    let (mut held, mut of, mut unresolved, mut worst) = (0, 0, 0, (0.0_f64, 0.0));
    // Over all cases and transports, the sent and lost packets by loss: single points have too few for the MAC's
    // residual loss.
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
                if can_resolve(loss, n) {
                    of += 1;
                    held += usize::from(at_ratio(share, loss, n));
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
                // No handover failed over this transport.
                Err(FindingError::NotComparable(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
    }
    if of + unresolved + left == 0 {
        let text = "There is no point at which all handovers succeed, or none at which any fails.";
        return Err(FindingError::NotComparable(text.to_owned()));
    }
    let together = (lost - expected).abs() <= (ERRORS * variance.sqrt()).max(ALIKE * expected);
    let any = usize::from(can_resolve(expected / packets.max(1.0), packets));
    let parts = [
        ("at the loss ratio", Verdict::on_count(held, of)),
        ("at the ratio in all", Verdict::on_count(usize::from(together).min(any), any)),
        ("all lost after leaving", Verdict::on_count(all_lost, left)),
    ];
    let after = if left == 0 {
        "Of handovers that fail, nothing is known.".to_owned()
    } else {
        format!(
            "Of handovers that fail, {} or more of what is sent between leaving the cell and the end of the redirection is \
             lost at {}, {} at least.",
            format_percent(ALL_LOST),
            count_text(all_lost, left, "transports and losses"),
            format_percent(least)
        )
    };
    let by_mac =
        if cases.iter().any(|case| case.lost == Some(FRAMES)) { by_mac(&by_loss) } else { String::new() };
    let open = if unresolved == 0 {
        String::new()
    } else {
        format!("; at {unresolved} others too few packets were sent to tell the cell's loss from none")
    };
    let reason = format!(
        "Where all handovers succeed, the share of application packets lost is the cell's loss but for chance at {} (farthest, \
         by {} percentage points, at {}){open}; in all {} of {} packets were lost, and {} would be at the ratio.{by_mac} {after}{}",
        count_text(held, of, "transports and losses"),
        format_digits(worst.0 * 100.0),
        format_percent(worst.1),
        format_digits(lost),
        format_digits(packets),
        format_digits(expected),
        part_by_part(parts)
    );
    let ours = format!("at the ratio at {}", count_text(held, of, "points"));
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}
