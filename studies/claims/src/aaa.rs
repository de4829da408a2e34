//! The claims of "Simulation of Performance Enhancement in the AAA Protocol", a function each.

mod hol;
mod small;

use crate::common::{Found, Function, configured, finite};
use crate::data::Claim;
use crate::judge::{Finding, Verdict};
use crate::results::View;
use usher_observe::Estimate;

/// Each claim's function.
pub(crate) const FUNCTIONS: [(&str, Function); 15] = [
    ("aaa.setup", setup),
    ("aaa.hol.gap-5", hol::gap_5),
    ("aaa.hol.gap-19", hol::gap_19),
    ("aaa.hol.best", hol::best),
    ("aaa.hol.widens", hol::widens),
    ("aaa.udp.low-loss", hol::udp_low_loss),
    ("aaa.udp.high-loss", hol::udp_high_loss),
    ("aaa.nagle.delay", small::nagle_delay),
    ("aaa.nagle.segments", small::nagle_segments),
    ("aaa.delack.delay", small::delack_delay),
    ("aaa.delack.packets", small::delack_packets),
    ("aaa.congestion.crossover", small::congestion_crossover),
    ("aaa.congestion.segments", small::congestion_segments),
    ("aaa.average", average),
    ("aaa.surge", surge),
];

fn setup(claim: &Claim, view: &View<'_>) -> Found {
    let stated = "up to 100 stations on an 802.16 base station, the AAA server two hops away, 1.5 Mb/s and 10 ms between \
                  them";
    configured(claim, view, stated)
}

/// The mean of the three savings, each measured as the claim of its own measures it.
fn average(claim: &Claim, view: &View<'_>) -> Found {
    let best = hol::best_saving(view)?;
    let streams = best.saving;
    let nagle = small::nagle_fall(view)?;
    let delack = small::delack_saving(view)?;
    let parts = [streams, nagle, delack];
    let third = 1.0 / parts.len() as f64;
    // The studies may share chance, so the half-widths add up in the worst case.
    let ours = Estimate {
        mean: parts.iter().map(|e| e.mean).sum::<f64>() * third,
        half_width: parts.iter().map(|e| e.half_width).sum::<f64>() * third,
        n: parts.iter().map(|e| e.n).min().unwrap_or(0),
    };
    let ours = finite(ours, "The mean saving")?;
    let (verdict, off) = crate::judge::deviation(&ours, claim.number(), "");
    let said = |name| crate::judge::percent(claim.part(name));
    let [a, b, c] = parts.map(|e| crate::judge::percent(e.mean));
    let reason = format!(
        "The mean saving is {}, {off}. It is that of {a} (delay, streams; published {}), {b} (packets, Nagle; {}) and {c} \
         (packets, delayed acknowledgement; {}).{}",
        crate::judge::with_interval(&ours, ""),
        said("streams"),
        said("nagle"),
        said("delack"),
        best.left_out
    );
    Ok(Finding::number(&ours, verdict, reason))
}

fn surge(claim: &Claim, view: &View<'_>) -> Found {
    let missing: Vec<&str> = claim.studies.iter().map(String::as_str).filter(|s| !view.has(s)).collect();
    if missing.len() == claim.studies.len() {
        return Err(view.missing(&missing.join(" ")));
    }
    claim.studies.iter().try_for_each(|s| view.at_defaults(s))?;
    if missing.is_empty() {
        let reason = format!("Both are studied: {} have results.", claim.studies.join(" and "));
        return Ok(Finding::words("done", Verdict::Reproduced, reason));
    }
    let reason = format!("{0} was not run: usher study run {0}.", missing.join(" "));
    Ok(Finding::words("one of two done", Verdict::Partly, reason))
}
