//! The claims of "Performance Evaluation of L3 Transport Protocols for IEEE 802.21" on handovers, a function each. Read
//! from `handover-mn` and `handover-net`.

use crate::common::{Found, Function, capital, configured, count, finite, on, tested};
use crate::data::Claim;
use crate::judge::{
    Finding, Gone, ROUNDING, Verdict, deviation, digits, part_by_part, percent, with_interval, with_word,
};
use crate::measure::{
    ALIKE, Curve, ERRORS, Side, Stand, Values, agrees, contrast, mean, minus, rise, side, stand,
};
use crate::results::{Choice, View};
use usher_observe::Estimate;

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
/// Steps of a handover that the station leads.
pub(crate) const SCAN: &str = "step.scan";
pub(crate) const RESOURCES: &str = "step.resources";
pub(crate) const COMMIT: &str = "step.commit";
pub(crate) const REDIRECTION: &str = "step.redirection";
const UDP: [&str; 2] = ["UDP, 0.1 s", "UDP, 0.3 s"];
/// What "all are lost" is at least: a packet sent while its redirection is under way goes by the new link.
const ALL_LOST: f64 = 0.95;

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
                  stations at 1 m/s, 30 s of traffic, MIH timeouts of 0.1 and 0.3 s over UDP and largest RTOs of 0.2, 0.5 and 1 s \
                  over TCP, two MIH retransmissions, 0.2 s for a request, wired links of 100 Mb/s and 10 ms, IPv6, a packet of \
                  the application each 0.5 s, loss of 0 to 50 % in the 802.11 cell from Link_Going_Down on, and the side that \
                  the study is named after leading";
    configured(claim, view, stated).map(|found| found.of_all(claim, view))
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

/// Whether handovers surely fail where their success is so.
fn fails(success: &Values) -> bool {
    let all: Values = success.keys().map(|replication| (*replication, 1.0)).collect();
    side(&mean(&minus(&all, success))) == Side::Above
}

fn success_order(_: &Claim, view: &View<'_>) -> Found {
    let [short, long] =
        [over_loss(view, STATION, "success", UDP[0])?, over_loss(view, STATION, "success", UDP[1])?];
    let failing = |curve: &Curve, loss: f64| curve.at(loss).is_some_and(fails);
    let mut ahead = long.minus(&short);
    ahead.0.retain(|(loss, _)| failing(&short, *loss) || failing(&long, *loss));
    let ahead = tested(ahead, 1, "Success over UDP, where handovers surely fail")?.estimates();
    let longer = on(&ahead, Side::Above);
    let (mut held, mut of, mut behind) = (0, 0, Vec::new());
    for transport in transports(view, STATION, "TCP")? {
        let tcp = over_loss(view, STATION, "success", transport)?;
        let mut differences = Vec::new();
        for udp in [&short, &long] {
            let mut more = tcp.minus(udp);
            more.0.retain(|(loss, _)| failing(udp, *loss));
            let more = tested(more, 0, "Success over TCP less that over UDP")?;
            differences.extend(more.estimates());
        }
        // From here on its own handovers fail and it stays behind one over UDP: its retransmissions outlast the stay.
        let turn = |from: f64| {
            let mut later = tcp.0.iter().filter(|(loss, _)| *loss >= from);
            let behind = |loss: f64| differences.iter().any(|(x, e)| *x == loss && e.mean <= 0.0);
            later.all(|(loss, values)| fails(values) && behind(*loss))
        };
        let turn = tcp.0.iter().map(|(loss, _)| *loss).find(|loss| turn(*loss));
        let all = differences.len();
        differences.retain(|(loss, _)| turn.is_none_or(|turn| *loss < turn));
        held += on(&differences, Side::Above);
        // Behind from the start on is not as stated at any point.
        of += if differences.is_empty() { all } else { differences.len() };
        behind.extend(turn.map(|loss| format!("{transport} from {} % on", digits(loss))));
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
        count(longer, ahead.len(), "losses"),
        with_interval(&last, ""),
        count(held, of, "transports, timeouts and losses"),
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
        more.0.retain(|(loss, _)| success.at(*loss).is_some_and(fails));
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

/// By which share each point of a curve is off the mean of its points.
fn changes(curve: &Curve) -> Vec<(f64, Estimate)> {
    let means: Vec<f64> = curve.estimates().iter().map(|(_, e)| e.mean).collect();
    let middle = means.iter().sum::<f64>() / means.len() as f64;
    let off = |values: &Values| {
        let e = mean(values);
        Estimate { mean: e.mean / middle - 1.0, half_width: e.half_width / middle.abs(), ..e }
    };
    curve.0.iter().map(|(loss, values)| (*loss, off(values))).collect()
}

fn steps(_: &Claim, view: &View<'_>) -> Found {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let all = transports(view, STATION, "")?;
    for (step, name) in [(SCAN, "scan constant"), (REDIRECTION, "redirection constant")] {
        let (mut within, mut off, mut unsure, mut worst) = (0, 0, 0, 0.0_f64);
        for transport in &all {
            let curve = tested(over_loss(view, STATION, step, transport)?, 2, name)?;
            for (_, change) in changes(&curve) {
                worst = worst.max(change.mean.abs());
                match stand(&change) {
                    Stand::Alike => within += 1,
                    Stand::Unsure => unsure += 1,
                    Stand::Faster | Stand::Slower => off += 1,
                }
            }
        }
        // Points that may be either are none that hold, and where they are more than a third nothing follows.
        let verdict = match Verdict::on_count(within, within + off) {
            _ if 3 * unsure > within + off + unsure => Verdict::NotComparable,
            Verdict::Reproduced if unsure > 0 => Verdict::Partly,
            verdict => verdict,
        };
        parts.push((name, verdict));
        said.push(format!(
            "{name}: at {} within {} of its mean, at {off} surely not, {} off at most",
            count(within, within + off + unsure, "transports and losses"),
            percent(ALIKE),
            percent(worst)
        ));
    }
    let (mut held, mut of) = (0, 0);
    for transport in &all {
        for step in [RESOURCES, COMMIT] {
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
        let request = over_loss(view, STATION, COMMIT, transport)?;
        let more = request.minus(&over_loss(view, STATION, RESOURCES, transport)?);
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

/// What became of the application's packets at a point.
struct Flow {
    loss: f64,
    /// The share that was lost, of how many.
    share: f64,
    packets: f64,
}

/// The packets of all replications at each loss above none, where no handover failed. How many were sent is that which a
/// replication lost by the share that these are; a replication that lost none sent as many as the others do on average.
fn flows(view: &View<'_>, study: &str, transport: &str) -> Result<Vec<Flow>, Gone> {
    let of = |metric| over_loss(view, study, metric, transport);
    let (success, started) = (of("success")?, of("started")?);
    let (shares, lost) = (of("app.loss")?.beyond(0.0), of("app.lost")?);
    let flow = |(loss, shares): &(f64, Values)| {
        let (success, started, lost) = (success.at(*loss)?, started.at(*loss)?, lost.at(*loss)?);
        if success.values().any(|share| *share < 1.0 - ROUNDING) {
            return None;
        }
        let all = |r: &u32| Some((*shares.get(r)?, lost.get(r)? * started.get(r)?));
        let all: Vec<(f64, f64)> = shares.keys().filter_map(all).collect();
        let sent: Vec<f64> =
            all.iter().filter(|(share, _)| *share > 0.0).map(|(share, lost)| lost / share).collect();
        let (lost, known) = (all.iter().map(|(_, lost)| lost).sum::<f64>(), sent.len() as f64);
        // Where no replication lost any, a packet for each handover is what was sent at least.
        let least = || all.len() as f64 * mean(started).mean;
        let packets =
            if sent.is_empty() { least() } else { sent.iter().sum::<f64>() / known * all.len() as f64 };
        (!all.is_empty()).then(|| Flow { loss: loss / 100.0, share: lost / packets, packets })
    };
    Ok(shares.0.iter().filter_map(flow).collect())
}

/// Whether a share of packets is a ratio but for chance, or but for a twentieth of it: a handover's first and last packets
/// may pass the cell before its loss begins, or not at all.
fn at_ratio(share: f64, ratio: f64, packets: f64) -> bool {
    agrees(share, ratio, packets) || (share / ratio - 1.0).abs() <= ALIKE
}

/// Where no handover fails, application packets are lost at the cell's ratio, at each point and in all; and of those that
/// fail, all that is sent between leaving the cell and the end of the redirection is lost.
fn app_loss(claim: &Claim, view: &View<'_>) -> Found {
    let (mut held, mut of, mut worst) = (0, 0, (0.0_f64, 0.0));
    let (mut packets, mut lost, mut expected, mut variance) = (0.0, 0.0, 0.0, 0.0);
    let (mut all_lost, mut left, mut least) = (0, 0, 1.0_f64);
    for study in claim.studies.iter().map(String::as_str) {
        if !view.has(study) {
            return Err(view.missing(study));
        }
        for transport in transports(view, study, "")? {
            for Flow { loss, share, packets: n } in flows(view, study, transport)? {
                of += 1;
                held += usize::from(at_ratio(share, loss, n));
                if (share - loss).abs() > worst.0 {
                    worst = ((share - loss).abs(), loss);
                }
                packets += n;
                lost += share * n;
                expected += loss * n;
                variance += loss * (1.0 - loss) * n;
            }
            match over_loss(view, study, "app.loss-after-leaving", transport) {
                Ok(shares) => {
                    for (_, e) in shares.estimates() {
                        left += 1;
                        all_lost += usize::from(e.mean >= ALL_LOST - ROUNDING);
                        least = least.min(e.mean);
                    }
                }
                // Over this one none failed.
                Err(Gone::NotComparable(_)) => {}
                Err(gone) => return Err(gone),
            }
        }
    }
    if of + left == 0 {
        let text = "There is no point at which all handovers succeed, or none at which any fails.";
        return Err(Gone::NotComparable(text.to_owned()));
    }
    let together = (lost - expected).abs() <= (ERRORS * variance.sqrt()).max(ALIKE * expected);
    let parts = [
        ("at the loss ratio", Verdict::on_count(held, of)),
        ("at the ratio in all", Verdict::on_count(usize::from(together), usize::from(of > 0))),
        ("all lost after leaving", Verdict::on_count(all_lost, left)),
    ];
    let after = if left == 0 {
        "Of handovers that fail, nothing is known.".to_owned()
    } else {
        format!(
            "Of handovers that fail, {} or more of what is sent between leaving the cell and the end of the redirection is \
             lost at {}, {} at least.",
            percent(ALL_LOST),
            count(all_lost, left, "transports and losses"),
            percent(least)
        )
    };
    let reason = format!(
        "Where all handovers succeed, the share of application packets lost is the cell's loss but for chance at {} (farthest, \
         by {} percentage points, at {}); in all {} of {} packets were lost, and {} would be at the ratio. {after}{}",
        count(held, of, "transports and losses"),
        digits(worst.0 * 100.0),
        percent(worst.1),
        digits(lost),
        digits(packets),
        digits(expected),
        part_by_part(parts)
    );
    let ours = format!("at the ratio at {}", count(held, of, "points"));
    Ok(Finding::words(ours, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}
