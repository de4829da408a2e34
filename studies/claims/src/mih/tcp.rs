//! MIH over TCP, read from `mih-tcp`.

use super::{LINK, MESSAGES, WITH, WITHOUT, at_loss, over_loss, seconds};
use crate::common::{Figures, Found, count, finite, on, tested};
use crate::data::Claim;
use crate::judge::{Finding, Gone, Verdict, bare, digits, part_by_part, percent, with_interval, with_word};
use crate::measure::{Curve, Side, Values, bend, mean, rise, side, turn};
use crate::results::View;

const STUDY: &str = "mih-tcp";
const MAX_RTO: &str = "max-rto";
/// The loss from which on it is called high, in per cent.
const HIGH: f64 = 30.0;
/// From this difference of success on, delays are of different populations.
const APART: f64 = 0.05;
/// What 100 % is at least.
const ALL: f64 = 0.995;

/// The largest timeouts of the study by size.
fn timeouts<'a>(view: &View<'a>) -> Result<Vec<&'a str>, Gone> {
    let names = view.values(STUDY, MAX_RTO);
    if names.is_empty() {
        return Err(view.missing(STUDY));
    }
    Ok(names)
}

fn over<'a>(
    view: &View<'_>,
    metric: &str,
    message: &'a str,
    ack: (&'a str, &'a str),
    max_rto: &'a str,
) -> Result<Curve, Gone> {
    over_loss(view, STUDY, metric, &[("message", message), ack, (MAX_RTO, max_rto)])
}

/// A finding on parts, one for each message and largest timeout or the like.
fn of_parts(holds: &str, intro: &str, parts: &[(String, Verdict, String)]) -> Finding {
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v, _)| *v).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let said: Vec<String> = parts.iter().map(|(name, _, text)| format!("{name}: {text}")).collect();
    let names = parts.iter().map(|(name, v, _)| (name.as_str(), *v));
    let reason = format!("{intro}: {}.{}", said.join("; "), part_by_part(names));
    let ours = format!("{holds} in {}", count(held, parts.len(), "cases"));
    Finding::words(ours, Verdict::of_parts(&verdicts), reason)
}

pub(super) fn delay_loss(_: &Claim, view: &View<'_>) -> Found {
    let mut parts = Vec::new();
    for message in MESSAGES {
        for max_rto in timeouts(view)? {
            let delays =
                tested(over(view, "delay.mean", message, WITHOUT, max_rto)?, 3, "The delay over loss")?;
            let Some(bend) = bend(&delays) else { continue };
            let text = format!(
                "{} over the lower half of the axis and {} over the upper",
                with_interval(&bend.lower, "s"),
                with_interval(&bend.upper, "s")
            );
            parts.push((format!("{message}s, {max_rto}"), bend.verdict(), text));
        }
    }
    Ok(of_parts("faster than linearly", "Without MIH acknowledgement a per cent of loss more adds", &parts))
}

pub(super) fn delay_maxrto(_: &Claim, view: &View<'_>) -> Found {
    let names = timeouts(view)?;
    let mut parts = Vec::new();
    for message in MESSAGES {
        let mut by_loss: Vec<(f64, Curve)> = Vec::new();
        for name in &names {
            let Some(timeout) = seconds(name) else { continue };
            for (loss, values) in over(view, "delay.mean", message, WITHOUT, name)?.from(HIGH).0 {
                match by_loss.iter_mut().find(|(known, _)| *known == loss) {
                    Some((_, curve)) => curve.0.push((timeout, values)),
                    None => by_loss.push((loss, Curve(vec![(timeout, values)]))),
                }
            }
        }
        for (loss, curve) in by_loss {
            let curve = tested(curve, 3, &format!("The delay over max RTO at {} % loss", digits(loss)))?;
            let (Some(rise), Some(bend)) = (rise(&curve), bend(&curve)) else { continue };
            let text = format!(
                "{} over the shorter half and {} over the longer, {} in all",
                with_interval(&bend.lower, "s"),
                with_interval(&bend.upper, "s"),
                with_word(&rise.whole, "s", "more", "less")
            );
            let name = format!("{message}s at {} %", digits(loss));
            parts.push((name, Verdict::worst(&[rise.verdict(), bend.verdict()]), text));
        }
    }
    if parts.is_empty() {
        return Err(Gone::NotRun(format!(
            "{STUDY} has no point at {} % loss or more: run it without --quick.",
            digits(HIGH)
        )));
    }
    Ok(of_parts("convex and rising", "A second of max RTO more adds to the delay", &parts))
}

/// Where acknowledgements change the success by so much that delays are of different populations.
fn apart(with: Option<&Values>, without: Option<&Values>) -> bool {
    matches!((with, without), (Some(a), Some(b)) if (mean(a).mean - mean(b).mean).abs() >= APART)
}

pub(super) fn ack_hurts(_: &Claim, view: &View<'_>) -> Found {
    let (mut parts, mut left_out) = (Vec::new(), 0);
    for message in MESSAGES {
        for max_rto in timeouts(view)? {
            let of = |metric, ack| over(view, metric, message, ack, max_rto);
            let (with, without) = (of("success", WITH)?, of("success", WITHOUT)?);
            let mut slower = of("delay.mean", WITH)?.minus(&of("delay.mean", WITHOUT)?).beyond(0.0);
            let all = slower.0.len();
            slower.0.retain(|(loss, _)| !apart(with.at(*loss), without.at(*loss)));
            left_out += all - slower.0.len();
            let slower = tested(slower, 1, "With less without acknowledgement")?.estimates();
            let held = on(&slower, Side::Above);
            let most = slower.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
            let most = most.map_or_else(String::new, |(loss, e)| {
                format!(", by {} at {} % loss", with_word(e, "s", "more", "less"), digits(*loss))
            });
            let text = format!("surely slower at {}{most}", count(held, slower.len(), "losses"));
            parts.push((format!("{message}s, {max_rto}"), Verdict::on_count(held, slower.len()), text));
        }
    }
    let intro = format!(
        "With MIH acknowledgement ({left_out} points left out, where success differs by {} percentage points or more)",
        digits(APART * 100.0)
    );
    Ok(of_parts("slower with ACK", &intro, &parts))
}

/// At the largest max RTO: the delay of valid responses is highest before the end, and where the document has it.
pub(super) fn late_dip(claim: &Claim, view: &View<'_>) -> Found {
    let Some(max_rto) = timeouts(view)?.pop() else { return Err(view.missing(STUDY)) };
    let delays = tested(over(view, "delay.mean", "request", WITH, max_rto)?, 3, "The delay over loss")?;
    let Some(turn) = turn(&delays) else { return Err(Gone::NotComparable("No point.".to_owned())) };
    let place = 100.0 * claim.part("turn");
    let near = turn.verdict() != Verdict::Differs && turn.is_near(place);
    let near = if near { Verdict::Reproduced } else { Verdict::Differs };
    let parts = [("falls again", turn.verdict()), ("from about 45 %", near)];
    let falls = match turn.verdict() {
        Verdict::Reproduced => format!("falls again from {} %", digits(turn.at)),
        Verdict::Partly => format!("falls from {} % in the mean", digits(turn.at)),
        _ => "does not fall again".to_owned(),
    };
    let reason = format!(
        "With max RTO {max_rto} the delay of valid responses is longest at {} % loss, the neighbouring points being {} and \
         {} %; from there to the last point it falls by {}.{}",
        digits(turn.at),
        digits(turn.between.0),
        digits(turn.between.1),
        with_interval(&turn.fall, "s"),
        part_by_part(parts)
    );
    Ok(Finding::words(falls, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

pub(super) fn success(_: &Claim, view: &View<'_>) -> Found {
    let mut parts = Vec::new();
    for ack in [WITHOUT, WITH] {
        let (mut held, mut of, mut least) = (0, 0, f64::INFINITY);
        for max_rto in timeouts(view)? {
            let estimates =
                tested(over(view, "success", "indication", ack, max_rto)?, 1, "Success")?.estimates();
            held += estimates.iter().filter(|(_, e)| e.mean >= ALL).count();
            of += estimates.len();
            least = estimates.iter().fold(least, |least, (_, e)| least.min(e.mean));
        }
        let text =
            format!("{} or more at {}, {} at least", percent(ALL), count(held, of, "points"), percent(least));
        parts.push((format!("indications {} ACK", ack.1), Verdict::on_count(held, of), text));
    }
    for max_rto in timeouts(view)? {
        let lost =
            tested(over(view, "success", "request", WITH, max_rto)?.negative(), 2, "Success over loss")?;
        let Some(fall) = rise(&lost) else { continue };
        let text = format!("falls by {}", with_interval(&fall.whole, ""));
        parts.push((format!("requests with ACK, {max_rto}"), fall.verdict(), text));
    }
    Ok(of_parts("as stated", "Success", &parts))
}

/// The largest of the means of several curves' points, with its values.
fn largest(curves: impl Iterator<Item = Result<Curve, Gone>>) -> Result<Option<(f64, Values)>, Gone> {
    let mut most: Option<(f64, Values)> = None;
    for curve in curves {
        for (loss, values) in curve?.0 {
            if most.as_ref().is_none_or(|(_, known)| mean(&values).mean > mean(known).mean) {
                most = Some((loss, values));
            }
        }
    }
    Ok(most)
}

pub(super) fn mih_overhead(claim: &Claim, view: &View<'_>) -> Found {
    let names = timeouts(view)?;
    let mut figures = Figures::new(claim);
    let none = |message| {
        let all = names.iter().map(|name| over(view, "mih.overhead", message, WITH, name));
        let at_none =
            all.map(|curve| curve.map(|c| Curve(c.0.into_iter().filter(|(x, _)| *x == 0.0).collect())));
        largest(at_none)
    };
    let most = |message| largest(names.iter().map(|name| over(view, "mih.overhead", message, WITH, name)));
    let found = |found: Option<(f64, Values)>, what: &str| {
        let (loss, values) =
            found.ok_or_else(|| Gone::NotRun(format!("{STUDY} has no {what}: run it whole.")))?;
        Ok((loss, finite(mean(&values), what)?))
    };
    let cases = [
        ("no_loss", "without loss indications cost", none(MESSAGES[0])?),
        ("no_loss", "without loss requests cost", none(MESSAGES[1])?),
        ("indication_limit", "indications cost at most", most(MESSAGES[0])?),
        ("request_limit", "requests cost at most", most(MESSAGES[1])?),
    ];
    let mut places = Vec::new();
    for (name, what, case) in cases {
        let (loss, estimate) = found(case, "overhead")?;
        figures.add(name, what, estimate);
        places.push(loss);
    }
    let more = format!(" The largest are at {} and {} % loss.", digits(places[2]), digits(places[3]));
    Ok(figures.finding(&more, &[]))
}

/// The turns of the segments per MIH packet for each max RTO: do they rise and fall, and is the turn where it is said?
fn turns(
    view: &View<'_>,
    message: &str,
    ack: (&str, &str),
    place: f64,
) -> Result<[(String, Verdict, String); 2], Gone> {
    let (mut turns, mut near, mut places) = (Vec::new(), 0, Vec::new());
    for max_rto in timeouts(view)? {
        let segments =
            tested(over(view, "tcp.per-mih-packet", message, ack, max_rto)?, 3, "Segments over loss")?;
        let Some(turn) = turn(&segments) else { continue };
        near += usize::from(turn.verdict() != Verdict::Differs && turn.is_near(place));
        places.push(format!("{} % with {max_rto}", digits(turn.at)));
        turns.push(turn.verdict());
    }
    let held = turns.iter().filter(|v| **v == Verdict::Reproduced).count();
    let (of, what) = (turns.len(), format!("{message}s {} ACK", ack.1));
    let forms = format!("{} rise and fall", count(held, of, "curves"));
    let at = format!("highest at {}", places.join(", "));
    Ok([
        (format!("{what}, rise and fall"), Verdict::on_count(held, of), forms),
        (format!("{what}, turn at about {} %", digits(place)), Verdict::on_count(near, of), at),
    ])
}

pub(super) fn segments(claim: &Claim, view: &View<'_>) -> Found {
    let Some(first) = timeouts(view)?.first().copied() else { return Err(view.missing(STUDY)) };
    let at = [("message", MESSAGES[0]), WITHOUT, (MAX_RTO, first)];
    let none = finite(mean(&at_loss(view, STUDY, "tcp.per-mih-packet", &at, 0.0)?), "Segments without loss")?;
    let published = claim.part("no_loss");
    let text = format!("{} segments, published are {}", bare(&none), digits(published));
    let mut parts = vec![("without loss".to_owned(), Verdict::on_value(none.mean, published, false), text)];
    parts.extend(turns(view, MESSAGES[0], WITHOUT, 100.0 * claim.part("turn_indication"))?);
    parts.extend(turns(view, MESSAGES[1], WITH, 100.0 * claim.part("turn_request_ack"))?);
    Ok(of_parts("as stated", "TCP segments per MIH packet", &parts))
}

/// At the largest max RTO: load grows at first, and grows less or falls over the upper half of the axis. And with
/// acknowledgement an indication is never more than six packets.
pub(super) fn load(claim: &Claim, view: &View<'_>) -> Found {
    let names = timeouts(view)?;
    let Some(max_rto) = names.last() else { return Err(view.missing(STUDY)) };
    let metric = format!("sent.{LINK}");
    let mut parts = Vec::new();
    for (message, ack) in [WITHOUT, WITH].into_iter().flat_map(|ack| MESSAGES.map(|message| (message, ack))) {
        let sent = tested(over(view, &metric, message, ack, max_rto)?, 3, "Load over loss")?;
        let (Some(bend), Some(turn)) = (bend(&sent), turn(&sent)) else { continue };
        let verdict = match (side(&turn.rise), side(&bend.change)) {
            (Side::Above, Side::Below) => Verdict::Reproduced,
            _ if turn.rise.mean > 0.0 && bend.change.mean < 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        let text = format!(
            "a per cent of loss more adds {} over the lower half of the axis and {} over the upper",
            with_interval(&bend.lower, "b/s"),
            with_interval(&bend.upper, "b/s")
        );
        parts.push((format!("{message}s {} ACK", ack.1), verdict, text));
    }
    let most = largest(names.iter().map(|name| over(view, "mih.overhead", MESSAGES[0], WITH, name)))?;
    let (bound, limit) = (most.map_or(f64::NAN, |(_, v)| mean(&v).mean), claim.part("bound"));
    let held = if bound <= limit + 1e-9 { Verdict::Reproduced } else { Verdict::Differs };
    let text =
        format!("{} MIH packets for an indication at most, {} being the limit", digits(bound), digits(limit));
    parts.push(("bounded by MIH".to_owned(), held, text));
    Ok(of_parts("grows and slows, bounded", &format!("Load with max RTO {max_rto}"), &parts))
}
