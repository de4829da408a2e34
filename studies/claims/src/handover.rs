//! The claims of "Performance Evaluation of L3 Transport Protocols for IEEE 802.21" on handovers, a function each. Read
//! from `handover-mn` and `handover-net`.

use crate::common::{Found, Function, capital, configured, count, finite, on, tested};
use crate::data::Claim;
use crate::judge::{
    Finding, Gone, Verdict, deviation, digits, part_by_part, percent, with_interval, with_word,
};
use crate::measure::{ALIKE, Curve, Side, Values, contrast, level, mean, rise};
use crate::results::{Choice, View};

/// Each claim's function.
pub(crate) const FUNCTIONS: [(&str, Function); 7] = [
    ("handover.setup", setup),
    ("handover.failed-delay", failed_delay),
    ("handover.success-order", success_order),
    ("handover.delay-order", delay_order),
    ("handover.steps", steps),
    ("handover.network-faster", network_faster),
    ("handover.app-loss", app_loss),
];

/// Handovers that the station begins, and that the network begins.
const STATION: &str = "handover-mn";
const NETWORK: &str = "handover-net";
const TRANSPORT: &str = "transport";
const UDP: [&str; 2] = ["UDP, 0.1 s", "UDP, 0.3 s"];
/// How far the share of lost application packets may be from the cell's loss.
const OFF: f64 = 0.05;
/// What "all succeed" is at least.
const ALL: f64 = 0.995;

fn over_loss(view: &View<'_>, study: &str, metric: &str, transport: &str) -> Result<Curve, Gone> {
    view.curve(Choice { study, metric, x: "loss", at: &[(TRANSPORT, transport)] })
}

/// The transports of a study whose names begin so.
fn transports<'a>(view: &View<'a>, study: &str, kind: &str) -> Result<Vec<&'a str>, Gone> {
    let mut names = view.values(study, TRANSPORT);
    names.retain(|name| name.starts_with(kind));
    if names.is_empty() { Err(view.missing(study)) } else { Ok(names) }
}

fn setup(claim: &Claim, view: &View<'_>) -> Found {
    let stated = "802.11 at 11 Mb/s with a radius of 50 m and 6 retransmissions of the MAC, 802.16 with 64-QAM 3/4 and 500 m, \
                  stations at 1 m/s, 30 s, the five transports, two MIH retransmissions, 0.2 s for a request, a packet of the \
                  application each 0.5 s";
    configured(claim, view, stated)
}

fn failed_delay(claim: &Claim, view: &View<'_>) -> Found {
    let mut sums: std::collections::BTreeMap<u32, (f64, f64)> = std::collections::BTreeMap::new();
    let mut points = 0;
    for transport in transports(view, STATION, "")? {
        let delays = match over_loss(view, STATION, "delay.failed", transport) {
            Ok(delays) => delays,
            // Over this one none failed.
            Err(Gone::NotComparable(_)) if view.at_defaults(STATION).is_ok() => continue,
            Err(gone) => return Err(gone),
        };
        points += delays.0.len();
        for (replication, delay) in delays.0.iter().flat_map(|(_, values)| values) {
            let (sum, n) = sums.entry(*replication).or_default();
            *sum += delay;
            *n += 1.0;
        }
    }
    if points == 0 {
        return Err(Gone::NotComparable("No handover failed.".to_owned()));
    }
    let means: Values = sums.into_iter().map(|(replication, (sum, n))| (replication, sum / n)).collect();
    let ours = finite(mean(&means), "The delay of failed handovers")?;
    let (verdict, off) = deviation(&ours, claim.number(), &claim.unit);
    let reason = format!(
        "Handovers that fail take {}, {off}: the mean over {points} points of transport and loss with failures.",
        with_interval(&ours, "s")
    );
    Ok(Finding::number(&ours, verdict, reason))
}

fn success_order(_: &Claim, view: &View<'_>) -> Found {
    let short = over_loss(view, STATION, "success", UDP[0])?;
    let long = over_loss(view, STATION, "success", UDP[1])?;
    let fails = |loss: f64| [&short, &long].iter().any(|c| c.at(loss).is_some_and(|v| mean(v).mean < 1.0));
    let mut ahead = long.minus(&short);
    ahead.0.retain(|(loss, _)| fails(*loss));
    let ahead = tested(ahead, 1, "Success over UDP, where handovers fail")?.estimates();
    let longer = on(&ahead, Side::Above);
    let (mut held, mut of, mut behind) = (0, 0, Vec::new());
    for transport in transports(view, STATION, "TCP")? {
        let tcp = over_loss(view, STATION, "success", transport)?;
        let mut first = None;
        for (loss, values) in tcp.0.iter().filter(|(loss, _)| fails(*loss)) {
            let others = [&short, &long].into_iter().filter_map(|c| c.at(*loss));
            let fewest = others.into_iter().all(|v| mean(values).mean >= mean(v).mean);
            of += 1;
            held += usize::from(fewest);
            if !fewest {
                first.get_or_insert(*loss);
            }
        }
        behind.extend(first.map(|loss| format!("{transport} from {} % on", digits(loss))));
    }
    let parts = [
        ("UDP 0.1 s fails more than 0.3 s", Verdict::on_count(longer, ahead.len())),
        ("TCP fails the fewest", Verdict::on_count(held, of)),
    ];
    let (_, last) = ahead[ahead.len() - 1];
    let more = if behind.is_empty() { String::new() } else { format!(" (not {})", behind.join(", ")) };
    let reason = format!(
        "Where handovers over UDP fail, {} surely succeeds more often than {} at {} (by {} at the last). TCP succeeds at \
         least as often as both at {}{more}.{}",
        UDP[1],
        UDP[0],
        count(longer, ahead.len(), "losses"),
        with_interval(&last, ""),
        count(held, of, "transports and losses"),
        part_by_part(parts)
    );
    let ours = format!("0.1 s fails more at {}", count(longer, ahead.len(), "losses"));
    Ok(Finding::words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

/// The mean over several transports, at the losses that all of them have.
fn group(view: &View<'_>, study: &str, metric: &str, kind: &str) -> Result<Curve, Gone> {
    let names = transports(view, study, kind)?;
    let curves: Vec<Curve> =
        names.iter().map(|name| over_loss(view, study, metric, name)).collect::<Result<_, _>>()?;
    let share = 1.0 / curves.len() as f64;
    let point = |(loss, _): &(f64, Values)| {
        let all: Option<Vec<&Values>> = curves.iter().map(|c| c.at(*loss)).collect();
        Some((*loss, contrast(&all?.into_iter().map(|v| (share, v)).collect::<Vec<_>>())))
    };
    Ok(Curve(curves[0].0.iter().filter_map(point).collect()))
}

fn delay_order(_: &Claim, view: &View<'_>) -> Found {
    let of = |kind| group(view, STATION, "delay.success", kind);
    let slower = tested(of("TCP")?.minus(&of("UDP")?).beyond(0.0), 1, "TCP less UDP")?.estimates();
    let held = on(&slower, Side::Above);
    let (mut raised, mut raises, mut most) = (0, 0, f64::NEG_INFINITY);
    for transport in transports(view, STATION, "UDP")? {
        let success = over_loss(view, STATION, "success", transport)?;
        let own = over_loss(view, STATION, "delay.success", transport)?;
        let mut more = over_loss(view, STATION, "delay.mean", transport)?.minus(&own);
        more.0.retain(|(loss, _)| success.at(*loss).is_some_and(|v| mean(v).mean < ALL));
        let more = tested(more, 0, "All handovers less those that succeed")?.estimates();
        raised += on(&more, Side::Above);
        raises += more.len();
        most = more.iter().fold(most, |most, (_, e)| most.max(e.mean));
    }
    if raises == 0 {
        return Err(Gone::NotComparable("No handover over UDP failed.".to_owned()));
    }
    let parts = [
        ("slower over TCP", Verdict::on_count(held, slower.len())),
        ("failures raise UDP's average", Verdict::on_count(raised, raises)),
    ];
    let (_, last) = slower[slower.len() - 1];
    let reason = format!(
        "A handover that succeeds surely takes longer over TCP (the mean of its largest RTOs) than over UDP (the mean of its \
         timeouts) at {}; at the last it takes {}. Failures surely raise UDP's average at {}, by up to {} s.{}",
        count(held, slower.len(), "losses"),
        with_word(&last, "s", "longer", "less"),
        count(raised, raises, "timeouts and losses with failures"),
        digits(most),
        part_by_part(parts)
    );
    let ours = format!("slower over TCP at {}", count(held, slower.len(), "losses"));
    Ok(Finding::words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

fn steps(_: &Claim, view: &View<'_>) -> Found {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let all = transports(view, STATION, "")?;
    for (step, name) in [("step.scan", "scan constant"), ("step.redirect", "redirection constant")] {
        let (mut within, mut of, mut worst) = (0, 0, 0.0_f64);
        for transport in &all {
            let curve = tested(over_loss(view, STATION, step, transport)?, 2, name)?;
            let Some(level) = level(&curve) else { continue };
            within += level.within;
            of += level.of;
            worst = worst.max(level.worst);
        }
        parts.push((name, Verdict::on_count(within, of)));
        said.push(format!(
            "{name}: at {} within {} of its mean, {} off at most",
            count(within, of, "transports and losses"),
            percent(ALIKE),
            percent(worst)
        ));
    }
    let (mut held, mut of) = (0, 0);
    for transport in &all {
        for step in ["step.resources", "step.commit"] {
            let curve = tested(over_loss(view, STATION, step, transport)?, 2, step)?;
            let Some(rise) = rise(&curve) else { continue };
            held += usize::from(rise.verdict() == Verdict::Reproduced);
            of += 1;
        }
    }
    parts.push(("message steps grow", Verdict::on_count(held, of)));
    said.push(format!("steps of messages grow with loss in {}", count(held, of, "transports and steps")));
    let (mut later, mut of, mut none) = (0, 0, None);
    for transport in transports(view, STATION, "TCP")? {
        let request = over_loss(view, STATION, "step.commit", transport)?;
        let more = request.minus(&over_loss(view, STATION, "step.resources", transport)?);
        if let (None, Some(values)) = (none, more.at(0.0)) {
            none = Some(mean(values).mean);
        }
        let more = tested(more.beyond(0.0), 1, "The later step less the earlier")?.estimates();
        later += on(&more, Side::Above);
        of += more.len();
    }
    parts.push(("TCP's later step longer", Verdict::on_count(later, of)));
    let without = none.map_or_else(String::new, |s| format!(", without loss by {} s", digits(s)));
    said.push(format!(
        "over TCP the step of the handover request is surely longer than that for resources at {}{without}",
        count(later, of, "transports and losses")
    ));
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let kept = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let reason = format!("{}.{}", capital(&said.join("; ")), part_by_part(parts.iter().copied()));
    Ok(Finding::words(format!("{kept} of {} parts", parts.len()), Verdict::of_parts(&verdicts), reason))
}

fn network_faster(_: &Claim, view: &View<'_>) -> Found {
    if !view.has(NETWORK) {
        return Err(view.missing(NETWORK));
    }
    let (mut held, mut of, mut said) = (0, 0, Vec::new());
    for transport in transports(view, STATION, "")? {
        let station = over_loss(view, STATION, "delay.success", transport)?;
        let less = station.minus(&over_loss(view, NETWORK, "delay.success", transport)?);
        let less = tested(less, 1, "Station-initiated less network-initiated")?.estimates();
        let faster = on(&less, Side::Above);
        let saved = less.iter().map(|(_, e)| e.mean).sum::<f64>() / less.len() as f64;
        held += faster;
        of += less.len();
        said.push(format!(
            "over {transport} at {faster} of {} (by {} s on average)",
            less.len(),
            digits(saved)
        ));
    }
    let reason = format!(
        "Of the handovers that succeed, those that the network begins are surely faster at {}: {}.",
        count(held, of, "transports and losses"),
        said.join("; ")
    );
    Ok(Finding::words(
        format!("faster at {}", count(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}

/// While all handovers succeed, application packets are lost at the cell's ratio; and of two transports the one over which
/// more handovers fail loses more, at the last loss.
fn app_loss(_: &Claim, view: &View<'_>) -> Found {
    let (mut held, mut of, mut worst) = (0, 0, 0.0_f64);
    let mut ends: Vec<(f64, &str, Values)> = Vec::new();
    for transport in transports(view, STATION, "")? {
        let success = over_loss(view, STATION, "success", transport)?;
        let lost = tested(over_loss(view, STATION, "app.loss", transport)?, 2, "Application loss")?;
        for (loss, share) in lost.estimates() {
            if success.at(loss).is_some_and(|v| mean(v).mean >= ALL) {
                let off = (share.mean - loss / 100.0).abs();
                of += 1;
                held += usize::from(off <= OFF);
                worst = worst.max(off);
            }
        }
        let packets = over_loss(view, STATION, "app.lost", transport)?;
        let (Some((_, success)), Some((_, packets))) = (success.0.last(), packets.0.last()) else { continue };
        ends.push((mean(success).mean, transport, packets.clone()));
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(most), Some(least)) = (ends.first(), ends.last()) else {
        return Err(Gone::NotComparable("There is one transport only.".to_owned()));
    };
    if of == 0 || most.0 >= least.0 {
        let text = "There is no point at which all handovers succeed, or none at which more fail over one transport.";
        return Err(Gone::NotComparable(text.to_owned()));
    }
    let more = finite(mean(&contrast(&[(1.0, &most.2), (-1.0, &least.2)])), "The packets lost more")?;
    let order = if more.low() > 0.0 {
        Verdict::Reproduced
    } else if more.mean > 0.0 {
        Verdict::Partly
    } else {
        Verdict::Differs
    };
    let parts = [("at the loss ratio", Verdict::on_count(held, of)), ("failures lose more", order)];
    let reason = format!(
        "Where all handovers succeed, the share of application packets lost is within {} percentage points of the cell's \
         loss at {} ({} points off at most). At the last loss {} of the handovers succeed over {} and {} over {}; the former \
         loses {} packets more for a handover.{}",
        digits(OFF * 100.0),
        count(held, of, "transports and losses"),
        digits(worst * 100.0),
        percent(most.0),
        most.1,
        percent(least.0),
        least.1,
        digits(more.mean),
        part_by_part(parts)
    );
    let ours = format!("at the ratio at {}", count(held, of, "points"));
    Ok(Finding::words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}
