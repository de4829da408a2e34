//! Figure 2: head-of-line blocking, and RADIUS beside it. Read from `aaa-hol`.

use crate::common::{Found, count, curve, difference, finite, heavy, on, others, tested};
use crate::data::Claim;
use crate::judge::{
    Finding, Gone, ROUNDING, Verdict, deviation, digits, part_by_part, percent, with_interval, with_word,
};
use crate::measure::Estimate;
use crate::measure::{Curve, Side, Values, bend, crossing, gain, mean, minus, rise, saving, side};
use crate::results::{Choice, View};

const STUDY: &str = "aaa-hol";
const LOSS: &str = "loss";
pub(super) const TCP: &str = "Diameter/TCP";
pub(super) const SCTP: &str = "Diameter/SCTP, many streams";
pub(super) const UDP: &str = "RADIUS/UDP, RFC 5080";
/// From this share of failed authentications on, a reason says that delays are of the others.
const TELLING_FAILURES: f64 = 0.01;

/// From this difference of the shares on, the delays of two curves are of different populations: those that fail
/// would have been the slow ones.
const APART: f64 = 0.05;

/// Packets with data for each authentication, without loss, by protocol: what the transport sends by itself left out.
const WITH_DATA: [(&str, &str, Option<&str>); 3] = [
    (UDP, "packets.core", None),
    (TCP, "tcp.segments", Some("tcp.acks")),
    (SCTP, "sctp.packets", Some("sctp.control")),
];
/// What is under way at the beginning and the end of a run moves a mean of whole numbers by less than this.
const WHOLE: f64 = 0.05;

/// As many packets with data over each protocol: then as many messages were sent, none of which took two.
pub(super) fn messages(_: &Claim, view: &View<'_>) -> Found {
    let mut counts = Vec::new();
    for (protocol, all, bare) in WITH_DATA {
        let at = [("protocol", protocol)];
        let of = |metric| view.at(Choice { study: STUDY, metric, x: LOSS, at: &at }, 0.0);
        let packets = match bare {
            Some(bare) => minus(&of(all)?, &of(bare)?),
            None => of(all)?,
        };
        counts.push((protocol, finite(mean(&packets), "The packets with data")?));
    }
    let whole = counts[0].1.mean.round();
    let held = counts.iter().filter(|(_, e)| (e.mean - whole).abs() <= WHOLE).count();
    let said: Vec<String> =
        counts.iter().map(|(protocol, e)| format!("{} over {protocol}", crate::judge::bare(e))).collect();
    let reason = format!(
        "Without loss an authentication takes, in packets with data, {}: {whole} messages over each where all are within {} \
         of it, and none of Diameter's took two segments.",
        said.join(", "),
        digits(WHOLE)
    );
    let verdict = if held == counts.len() { Verdict::Reproduced } else { Verdict::Differs };
    Ok(Finding::words(format!("{whole} messages over {held} of {} protocols", counts.len()), verdict, reason))
}

fn delays(view: &View<'_>, protocol: &str) -> Result<Curve, Gone> {
    curve(view, STUDY, "delay.mean", LOSS, "protocol", protocol)
}

/// TCP's delay and SCTP's at one loss.
fn both(view: &View<'_>, loss: f64) -> Result<(Values, Values), Gone> {
    let of = |protocol| {
        let choice = Choice { study: STUDY, metric: "delay.mean", x: LOSS, at: &[("protocol", protocol)] };
        view.at(choice, loss)
    };
    Ok((of(TCP)?, of(SCTP)?))
}

/// A sentence where many authentications fail, since they have no delay.
fn failing(view: &View<'_>, protocols: &[&str], loss: f64) -> String {
    let share = |protocol: &&&str| {
        let failures = curve(view, STUDY, "failures", LOSS, "protocol", protocol).ok()?;
        let share = mean(failures.at(loss)?).mean;
        (share >= TELLING_FAILURES).then(|| format!("{} over {protocol}", percent(share)))
    };
    let telling: Vec<String> = protocols.iter().filter_map(|p| share(&p)).collect();
    if telling.is_empty() {
        return String::new();
    }
    format!(
        " At {} % loss {} of the authentications fail; delays are of the others.",
        digits(loss),
        telling.join(" and ")
    )
}

/// How far apart the shares of failed authentications of TCP and SCTP are at one loss, where that is too far.
fn apart(view: &View<'_>, loss: f64) -> Option<f64> {
    let share = |protocol: &str| {
        let failures = curve(view, STUDY, "failures", LOSS, "protocol", protocol).ok()?;
        Some(mean(failures.at(loss)?).mean)
    };
    let off = (share(TCP)? - share(SCTP)?).abs();
    (off >= APART - ROUNDING).then_some(off)
}

/// A verdict on delays at one loss: at most partly where they are of different populations, with the sentence.
fn survivors(view: &View<'_>, loss: f64, verdict: Verdict) -> (Verdict, String) {
    let Some(off) = apart(view, loss) else { return (verdict, String::new()) };
    let text = format!(
        " The shares that fail are {} percentage points apart, so the delays are of different populations and the \
         verdict is partly at most.",
        digits(off * 100.0)
    );
    (verdict.max(Verdict::Partly), text)
}

pub(super) fn gap_5(claim: &Claim, view: &View<'_>) -> Found {
    let (tcp, sctp) = both(view, 5.0)?;
    let gap = difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = deviation(&gap, claim.number(), &claim.unit);
    let (verdict, populations) = survivors(view, 5.0, verdict);
    let reason = format!(
        "At 5 % loss TCP takes {} than SCTP with many streams, {off} ({} s and {} s; {} replications).{}{}{populations}",
        with_word(&gap, "s", "longer", "less"),
        digits(mean(&tcp).mean),
        digits(mean(&sctp).mean),
        gap.n,
        heavy(&minus(&tcp, &sctp), "the difference", "s"),
        failing(view, &[TCP, SCTP], 5.0)
    );
    Ok(Finding::number(&gap, verdict, reason))
}

pub(super) fn gap_19(claim: &Claim, view: &View<'_>) -> Found {
    let (tcp, sctp) = both(view, 19.0)?;
    let gap = difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = deviation(&gap, claim.number(), &claim.unit);
    let (verdict, populations) = survivors(view, 19.0, verdict);
    let mut reason = format!(
        "At 19 % loss TCP takes {} than SCTP with many streams, {off} (read as: it widens to {} s).",
        with_word(&gap, "s", "longer", "less"),
        digits(claim.number())
    );
    let published = claim.readings.iter().find(|r| r.name == "increases by").and_then(|r| r.published);
    let published = published.unwrap_or(claim.number());
    if let Ok((tcp_5, sctp_5)) = both(view, 5.0) {
        let more = finite(gain(&minus(&tcp_5, &sctp_5), &minus(&tcp, &sctp)), "The increase")?;
        let (other, off) = deviation(&more, published, &claim.unit);
        let (other, _) = survivors(view, 5.0, survivors(view, 19.0, other).0);
        reason.push_str(&format!(
            " Read as an increase from 5 % loss on, it is {}, {off}: {}.",
            with_word(&more, "s", "more", "less"),
            other.name()
        ));
    }
    reason.push_str(&heavy(&minus(&tcp, &sctp), "the difference", "s"));
    reason.push_str(&failing(view, &[TCP, SCTP], 19.0));
    reason.push_str(&populations);
    Ok(Finding::number(&gap, verdict, reason))
}

/// The largest saving of SCTP with many streams over TCP.
pub(super) struct Best {
    pub(super) saving: Estimate,
    /// The loss where it is.
    pub(super) loss: f64,
    /// A sentence on the losses that do not count; empty where all do.
    pub(super) left_out: String,
}

/// The largest saving, among the losses at which about as many authentications fail over both.
pub(super) fn best_saving(view: &View<'_>) -> Result<Best, Gone> {
    let (tcp, sctp) = (delays(view, TCP)?, delays(view, SCTP)?);
    let (out, kept): (Vec<_>, Vec<_>) =
        tcp.common(&sctp).0.into_iter().partition(|(loss, _)| apart(view, *loss).is_some());
    let left_out = if out.is_empty() {
        String::new()
    } else {
        let places: Vec<String> = out.iter().map(|(loss, _)| digits(*loss)).collect();
        format!(
            " Left out: {} % loss, where the shares of authentications that fail over TCP and over SCTP are {} \
             percentage points apart or more, so that the delays are of different populations.",
            places.join(", "),
            digits(APART * 100.0)
        )
    };
    let savings = kept.iter().filter_map(|(loss, tcp)| Some((saving(sctp.at(*loss)?, tcp), *loss)));
    let known = savings.filter(|(s, _)| s.mean.is_finite());
    let Some((best, loss)) = known.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean)) else {
        let text = format!("TCP and SCTP have no point in common that counts.{left_out}");
        return Err(Gone::NotComparable(text));
    };
    Ok(Best { saving: finite(best, "The largest saving")?, loss, left_out })
}

pub(super) fn best(claim: &Claim, view: &View<'_>) -> Found {
    let Best { saving: best, loss, left_out } = best_saving(view)?;
    let (verdict, off) = deviation(&best, claim.number(), "");
    let reason = format!(
        "SCTP with many streams saves the most at {} % loss: {} of TCP's delay, {off}. The interval is of that \
         point alone.{}{left_out}",
        digits(loss),
        with_interval(&best, ""),
        failing(view, &[TCP, SCTP], loss)
    );
    Ok(Finding::number(&best, verdict, reason))
}

pub(super) fn widens(_: &Claim, view: &View<'_>) -> Found {
    let gap = delays(view, TCP)?.minus(&delays(view, SCTP)?);
    let gap = tested(gap, 2, "TCP less SCTP over loss")?;
    let Some(rise) = rise(&gap) else { return Err(Gone::NotComparable("One point only.".to_owned())) };
    let of = gap.0.len() - 1;
    let (first, last) = (&gap.0[0], &gap.0[of]);
    let ours = format!("grows at {}", count(rise.steps.above, of, "steps"));
    let reason = format!(
        "From {} % to {} % loss the difference goes from {} to {}. Of {of} steps {} surely grow, {} surely shrink and \
         {} are too small to tell.",
        digits(first.0),
        digits(last.0),
        with_interval(&mean(&first.1), "s"),
        with_interval(&mean(&last.1), "s"),
        rise.steps.above,
        rise.steps.below,
        rise.steps.open
    );
    Ok(Finding::words(ours, rise.verdict(), reason))
}

/// Low is up to the loss that the claim has: the document does not say how low.
pub(super) fn udp_low_loss(claim: &Claim, view: &View<'_>) -> Found {
    let low = 100.0 * claim.part("low");
    let udp = delays(view, UDP)?;
    let mut held = 0;
    let mut of = 0;
    let mut said = Vec::new();
    for other in [TCP, SCTP] {
        let mut slower = delays(view, other)?.minus(&udp);
        slower.0.retain(|(loss, _)| *loss <= low + ROUNDING);
        let estimates = tested(slower, 1, "Low loss")?.estimates();
        let there = on(&estimates, Side::Above);
        held += there;
        of += estimates.len();
        let (least, most) = ends(&estimates);
        let mut text = format!(
            "{other} is slower at {} (by {} to {} s)",
            count(there, estimates.len(), "points"),
            digits(least),
            digits(most)
        );
        if there < estimates.len() {
            text.push_str(&format!(", not surely at {} loss", others(&estimates, Side::Above, " %")));
        }
        said.push(text);
    }
    let reason = format!("Up to {} % loss, against RADIUS/UDP: {}.", digits(low), said.join("; "));
    Ok(Finding::words(format!("below at {}", count(held, of, "points")), Verdict::on_count(held, of), reason))
}

/// The least and the largest of the means.
fn ends(estimates: &[(f64, Estimate)]) -> (f64, f64) {
    let means = estimates.iter().map(|(_, e)| e.mean);
    means.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), m| (low.min(m), high.max(m)))
}

pub(super) fn udp_high_loss(_: &Claim, view: &View<'_>) -> Found {
    let udp = tested(delays(view, UDP)?, 3, "The delay of RADIUS/UDP over loss")?;
    let Some(bend) = bend(&udp) else { return Err(Gone::NotComparable("Too few points.".to_owned())) };
    let mut parts = vec![bend.verdict()];
    let mut said = vec![format!(
        "A per cent of loss more adds {} over the lower half of the axis and {} over the upper half",
        with_interval(&bend.lower, "s"),
        with_interval(&bend.upper, "s")
    )];
    let mut crossed = 0;
    for (other, name) in [(TCP, "TCP"), (SCTP, "SCTP")] {
        let ahead = udp.minus(&delays(view, other)?);
        let ahead = tested(ahead, 1, &format!("UDP less {name} over loss"))?;
        let estimates = ahead.estimates();
        let Some((end, last)) = estimates.last() else { continue };
        let below = estimates.iter().any(|(_, e)| side(e) == Side::Below);
        let verdict = match (below, side(last)) {
            (true, Side::Above) => Verdict::Reproduced,
            (true, Side::Open) if last.mean > 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        crossed += usize::from(verdict == Verdict::Reproduced);
        let at_end =
            format!("at {} % UDP takes {} than {name}", digits(*end), with_word(last, "s", "more", "less"));
        said.push(match (verdict, below, crossing(&ahead)) {
            (Verdict::Reproduced, _, Some(loss)) => {
                format!("it crosses {name} at about {} % loss, and {at_end}", digits(loss))
            }
            (_, true, Some(loss)) => format!(
                "it is above {name} from about {} % on, and no longer surely at the end: {at_end}",
                digits(loss)
            ),
            (_, true, None) => format!("it does not cross {name}: {at_end}"),
            (_, false, _) => format!("it is nowhere surely below {name}, and {at_end}"),
        });
        parts.push(verdict);
    }
    let form = match parts[0] {
        Verdict::Reproduced => "faster than linearly",
        Verdict::Partly => "perhaps faster than linearly",
        _ => "not faster than linearly",
    };
    let end = udp.0.last().map_or(0.0, |(loss, _)| *loss);
    let names = ["grows faster than linearly", "crosses TCP", "crosses SCTP"];
    let reason = format!(
        "{}.{}{}",
        said.join("; "),
        failing(view, &[UDP, TCP, SCTP], end),
        part_by_part(names.into_iter().zip(parts.iter().copied()))
    );
    Ok(Finding::words(format!("grows {form}, crosses {crossed} of 2"), Verdict::of_parts(&parts), reason))
}
