//! MIH over UDP, read from `mih-udp`.

use super::{LINK, LOSS, MESSAGES, WITH, WITHOUT, at_loss, over_loss, seconds};
use crate::common::{Figures, Found, count, finite, on, tested};
use crate::data::Claim;
use crate::judge::{Finding, Gone, Verdict, bare, digits, part_by_part, percent, with_interval, with_word};
use crate::measure::Estimate;
use crate::measure::{Curve, Side, Values, agrees, contrast, mean, minus, rise, side, turn};
use crate::results::View;
use usher_core::Duration;
use usher_theory::mih::{Exchange, Message};

const STUDY: &str = "mih-udp";
const TIMEOUT: &str = "timeout";
/// How far delays may be from proportional to the timeout: as far as a figure from the published one.
const PROPORTIONAL: f64 = 0.10;
/// The loss up to which it is called low, in per cent.
const LOW: f64 = 10.0;
/// How much of the throughput without loss is held at least.
const HELD: f64 = 0.95;

/// The timeouts of the study in seconds, with their names.
fn timeouts<'a>(view: &View<'a>) -> Vec<(f64, &'a str)> {
    view.values(STUDY, TIMEOUT).into_iter().filter_map(|name| Some((seconds(name)?, name))).collect()
}

pub(super) fn delay(claim: &Claim, view: &View<'_>) -> Found {
    let mut figures = Figures::new(claim);
    let mut ranges = Vec::new();
    for message in MESSAGES {
        let at = [("message", message), WITHOUT];
        let ours = finite(mean(&at_loss(view, STUDY, "delay.mean", &at, 0.0)?), "The delay")?;
        figures.add(
            message,
            &format!("without loss an {message} takes").replace("an r", "a r"),
            ours.scaled(1e3),
        );
        let means = over_loss(view, STUDY, "delay.mean", &at)?.estimates();
        let (least, most) = ends(means.iter().map(|(_, e)| e.mean * 1e3));
        ranges.push(format!("{message}s take {} to {} ms", digits(least), digits(most)));
    }
    let more = format!(" Over all losses, of those that succeed, {}.", ranges.join(" and "));
    Ok(figures.finding(&more, &[]))
}

/// The least and the largest.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// The delay that loss adds, divided by the timeout, is alike for all timeouts.
pub(super) fn delay_ack(_: &Claim, view: &View<'_>) -> Found {
    let timeouts = timeouts(view);
    if timeouts.len() < 2 {
        // Says what is missing, where the study was not run at all.
        over_loss(view, STUDY, "delay.mean", &[WITH])?;
        return Err(Gone::NotComparable("Proportion takes two timeouts.".to_owned()));
    }
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for message in MESSAGES {
        let mut shares: Vec<Vec<(f64, f64)>> = Vec::new();
        for (timeout, name) in &timeouts {
            let delays =
                over_loss(view, STUDY, "delay.mean", &[("message", message), WITH, (TIMEOUT, name)])?;
            let none = delays.at(0.0).cloned().ok_or_else(|| {
                Gone::NotRun(format!(
                    "{STUDY} has no point without loss: run it whole, usher study run {STUDY}."
                ))
            })?;
            let added = Curve(delays.beyond(0.0).0.into_iter().map(|(x, v)| (x, minus(&v, &none))).collect());
            let added = tested(added, 1, "The delay that loss adds")?.estimates();
            shares.push(added.into_iter().map(|(x, e)| (x, e.mean / timeout)).collect());
        }
        let (mut held, mut of, mut worst) = (0, 0, (0.0, 0.0));
        for (loss, _) in &shares[0] {
            let at: Vec<f64> =
                shares.iter().filter_map(|s| s.iter().find(|(x, _)| x == loss).map(|(_, v)| *v)).collect();
            let middle = at.iter().sum::<f64>() / at.len() as f64;
            let off = at.iter().map(|v| (v / middle - 1.0).abs()).fold(0.0, f64::max);
            of += 1;
            held += usize::from(off <= PROPORTIONAL);
            if off > worst.0 {
                worst = (off, *loss);
            }
        }
        parts.push((message, Verdict::on_count(held, of)));
        said.push(format!(
            "of an {message} it is within {} of proportional at {} (at most {} off, at {} % loss)",
            percent(PROPORTIONAL),
            count(held, of, "losses"),
            percent(worst.0),
            digits(worst.1)
        ));
    }
    let names: Vec<&str> = timeouts.iter().map(|(_, name)| *name).collect();
    let reason = format!(
        "The delay that loss adds, held against the timeout ({}): {}.{}",
        names.join(", "),
        said.join("; ").replace("an r", "a r"),
        part_by_part(parts.iter().copied())
    );
    let held = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let ours = format!("proportional for {held} of {}", parts.len());
    Ok(Finding::words(ours, Verdict::of_parts(&verdicts), reason))
}

/// The success of all transactions of all replications at each loss, with their number.
fn successes(view: &View<'_>, at: &[(&str, &str)]) -> Result<Vec<(f64, f64, f64)>, Gone> {
    let success = over_loss(view, STUDY, "success", at)?;
    let started = over_loss(view, STUDY, "started", at)?;
    let point = |(loss, shares): &(f64, Values)| {
        let numbers = started.at(*loss)?;
        let both = || shares.iter().filter_map(|(r, share)| Some((*share, *numbers.get(r)?)));
        let trials: f64 = both().map(|(_, n)| n).sum();
        Some((*loss, both().map(|(share, n)| share * n).sum::<f64>() / trials, trials))
    };
    let points: Vec<_> = success.0.iter().filter_map(point).filter(|(.., n)| *n > 0.0).collect();
    if points.is_empty() {
        return Err(Gone::NotComparable(
            "Success and the number of transactions have no point in common.".to_owned(),
        ));
    }
    Ok(points)
}

/// The document's setting, at one loss and timeout.
fn exchange(message: &str, ack: bool, loss: f64, timeout: f64) -> Exchange {
    Exchange {
        message: if message == MESSAGES[0] { Message::Indication } else { Message::Request },
        ack,
        loss: [loss; 2],
        delay: [Duration::from_millis(20); 2],
        processing: Duration::from_millis(200),
        timeout: Duration::from_secs_f64(timeout),
        retransmissions: 2,
    }
}

/// Each of the four formulas at each loss, at the study's first timeout.
pub(super) fn success(_: &Claim, view: &View<'_>) -> Found {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let names = ["1 - p", "(1 - p)^2", "1 - p^3", "(1 - p^3)^2"];
    let cases = [WITHOUT, WITH].into_iter().flat_map(|ack| MESSAGES.map(|message| (message, ack)));
    for (name, (message, ack)) in names.into_iter().zip(cases) {
        let points = successes(view, &[("message", message), ack])?;
        let formula = |loss: f64| exchange(message, ack == WITH, loss / 100.0, 1.0).success_bound();
        let held = points.iter().filter(|(loss, ours, n)| agrees(*ours, formula(*loss), *n)).count();
        let off = |(loss, ours, _): &&(f64, f64, f64)| (ours - formula(*loss)).abs();
        let Some(worst) = points.iter().max_by(|a, b| off(a).total_cmp(&off(b))) else { continue };
        parts.push((name, Verdict::on_count(held, points.len())));
        said.push(format!(
            "{name}: at {} (farthest at {} % loss, where it is {} and ours {})",
            count(held, points.len(), "losses"),
            digits(worst.0),
            percent(formula(worst.0)),
            percent(worst.1)
        ));
    }
    let reason = format!(
        "Within 3.5 standard errors of the formula: {}.{}{}",
        said.join("; "),
        by_timeout(view),
        part_by_part(parts.iter().copied())
    );
    let held = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    Ok(Finding::words(format!("{held} of 4 formulas hold"), Verdict::of_parts(&verdicts), reason))
}

/// A sentence on requests with acknowledgement: what the standard's rule to give up comes to, for each timeout.
fn by_timeout(view: &View<'_>) -> String {
    let (mut held, mut of, mut at_end) = (0, 0, Vec::new());
    for (timeout, name) in timeouts(view) {
        let Ok(points) = successes(view, &[("message", "request"), WITH, (TIMEOUT, name)]) else { continue };
        for (loss, ours, n) in &points {
            let Some(exact) = exchange("request", true, loss / 100.0, timeout).expected() else { continue };
            of += 1;
            held += usize::from(agrees(*ours, exact.success, *n));
        }
        if let Some((loss, ours, _)) = points.last() {
            at_end.push(format!("{} at {} % loss with {name}", percent(*ours), digits(*loss)));
        }
    }
    if of == 0 {
        return String::new();
    }
    format!(
        " For requests with acknowledgement the last is a bound: one that is not acknowledged after its last copy is \
         given up, and its response dropped. With that rule the exact chance (docs/mih.md) holds at {}; ours is {}.",
        count(held, of, "losses and timeouts"),
        at_end.join(", ")
    )
}

pub(super) fn overhead(claim: &Claim, view: &View<'_>) -> Found {
    let of = |message| over_loss(view, STUDY, "mih.overhead", &[("message", message), WITH]);
    let mut figures = Figures::new(claim);
    for message in MESSAGES {
        let at = at_loss(view, STUDY, "mih.overhead", &[("message", message), WITH], 0.0)?;
        figures.add(message, &format!("without loss {message}s cost"), finite(mean(&at), "The overhead")?);
    }
    let less = tested(of("indication")?.minus(&of("request")?).beyond(0.0), 1, "The overheads under loss")?;
    let less = less.estimates();
    let cheaper = on(&less, Side::Above);
    let Some((end, last)) = less.last() else { return Err(Gone::NotComparable("No loss.".to_owned())) };
    let more = format!(
        " With loss requests surely cost less than indications at {}; at {} % the difference is {} packets per message.",
        count(cheaper, less.len(), "losses"),
        digits(*end),
        bare(last)
    );
    Ok(figures.finding(&more, &[("requests cost less", Verdict::on_count(cheaper, less.len()))]))
}

/// For indications and for requests with acknowledgement: what arrives is held at low loss, and is less in the end than at its
/// largest. That what is sent grows with loss is said beside it.
pub(super) fn throughput(_: &Claim, view: &View<'_>) -> Found {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for message in MESSAGES {
        let at = [("message", message), WITH];
        let of = |metric: &str| over_loss(view, STUDY, &format!("{metric}.{LINK}"), &at);
        let received = tested(of("received")?, 3, "Throughput over loss")?;
        let sent = tested(of("sent")?, 2, "Load over loss")?;
        let (Some(none), Some(turn), Some(rise)) = (received.at(0.0).cloned(), turn(&received), rise(&sent))
        else {
            return Err(Gone::NotRun(format!("{STUDY} has no point without {LOSS}: run it whole.")));
        };
        let low: Vec<(f64, Estimate)> = received
            .beyond(0.0)
            .0
            .iter()
            .filter(|(loss, _)| *loss <= LOW)
            .map(|(loss, v)| (*loss, mean(&contrast(&[(1.0, v), (-HELD, &none)]))))
            .collect();
        let held = on(&low, Side::Above);
        let tells = match side(&turn.fall) {
            Side::Above => Verdict::Reproduced,
            _ if turn.fall.mean > 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        parts.extend([
            (format!("{message}s, held at low loss"), Verdict::on_count(held, low.len())),
            (format!("{message}s, the limit tells"), tells),
        ]);
        said.push(format!(
            "for {message}s throughput is held (at least {} of that without loss) at {} up to {} %; it is largest at {} % \
             loss and then falls by {}; the load is {} (the document does not say that it grows)",
            percent(HELD),
            count(held, low.len(), "losses"),
            digits(LOW),
            digits(turn.at),
            with_interval(&turn.fall, "b/s"),
            with_word(&rise.whole, "b/s", "more", "less")
        ));
    }
    let reason = format!(
        "On the link \"{LINK}\", {}.{}",
        said.join("; "),
        part_by_part(parts.iter().map(|(name, v)| (name.as_str(), *v)))
    );
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    Ok(Finding::words(format!("{held} of {} parts", parts.len()), Verdict::of_parts(&verdicts), reason))
}
