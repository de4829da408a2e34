//! The claims of "Simulation of Performance Enhancement in the AAA Protocol", a function each.

mod hol;
mod load;
mod small;
pub(crate) mod sws;

use crate::common::{Found, Function, configured, finite};
use crate::data::Claim;
use crate::judge::Finding;
use crate::measure::Estimate;
use crate::results::View;

/// Each claim's function.
pub(crate) const FUNCTIONS: [(&str, Function); 20] = [
    ("aaa.setup", setup),
    ("aaa.setup-ko", load::setup_ko),
    ("aaa.messages", hol::messages),
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
    ("aaa.surge", load::surge),
    ("aaa.congestion.amplifies", load::amplifies),
    ("aaa.connections", load::connections),
    ("aaa.sws", sws::sws),
];

fn setup(claim: &Claim, view: &View<'_>) -> Found {
    let stated = "up to 100 stations on an 802.16 base station, the AAA server two hops away, 1.5 Mb/s and 10 ms between \
                  them";
    configured(claim, view, stated)
}

/// The mean of some savings.
fn mean_of(parts: &[Estimate; 3]) -> Estimate {
    let third = 1.0 / parts.len() as f64;
    // The studies may share chance, so the half-widths add up in the worst case.
    Estimate {
        mean: parts.iter().map(|e| e.mean).sum::<f64>() * third,
        below: parts.iter().map(|e| e.below).sum::<f64>() * third,
        above: parts.iter().map(|e| e.above).sum::<f64>() * third,
        n: parts.iter().map(|e| e.n).min().unwrap_or(0),
    }
}

/// The mean of the three savings, those of packets against no avoidance; and with the fall of the packets with Nagle's
/// algorithm from 9 nodes to 37 in its place.
fn average(claim: &Claim, view: &View<'_>) -> Found {
    let best = hol::best_saving(view)?;
    let streams = best.saving;
    let nagle = small::nagle_saving(view)?;
    let delack = small::delack_saving(view)?;
    let parts = [streams, nagle, delack];
    let ours = finite(mean_of(&parts), "The mean saving")?;
    let other = match small::nagle_fall(view) {
        Ok(fall) => {
            let ours = mean_of(&[streams, fall, delack]);
            let (verdict, off) = crate::judge::deviation(&ours, claim.number(), "");
            let [fall, mean] = [fall, ours].map(|e| crate::judge::percent(e.mean));
            format!(
                " With the fall of {fall} from 9 nodes to 37 for the 38 % it is {mean}, {off}: {}.",
                verdict.name()
            )
        }
        Err(_) => String::new(),
    };
    let (verdict, off) = crate::judge::deviation(&ours, claim.number(), "");
    let said = |name| crate::judge::percent(claim.part(name));
    let [a, b, c] = parts.map(|e| crate::judge::percent(e.mean));
    let reason = format!(
        "The mean saving is {}, {off}. It is that of {a} (delay, streams; published {}), {b} (packets, Nagle; {}) and {c} \
         (packets, delayed acknowledgement; {}).{other}{}",
        crate::judge::with_interval(&ours, ""),
        said("streams"),
        said("nagle"),
        said("delack"),
        best.left_out
    );
    Ok(Finding::number(&ours, verdict, reason))
}
