//! The claims of "Simulation of Performance Enhancement in the AAA Protocol", one function for each.

mod hol;
mod load;
mod small;
pub(crate) mod sws;

use crate::common::{FindingResult, JudgeFunction, judge_configuration, require_finite};
use crate::data::Claim;
use crate::judge::ClaimFinding;
use crate::measure::MetricEstimate;
use crate::results::VariantView;

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 20] = [
    ("aaa.setup", judge_setup),
    ("aaa.setup-ko", load::setup_ko),
    ("aaa.messages", hol::judge_messages),
    ("aaa.hol.gap-5", hol::gap_5),
    ("aaa.hol.gap-19", hol::gap_19),
    ("aaa.hol.best", hol::judge_best),
    ("aaa.hol.widens", hol::judge_widening),
    ("aaa.udp.low-loss", hol::udp_low_loss),
    ("aaa.udp.high-loss", hol::udp_high_loss),
    ("aaa.nagle.delay", small::nagle_delay),
    ("aaa.nagle.segments", small::nagle_segments),
    ("aaa.delack.delay", small::delack_delay),
    ("aaa.delack.packets", small::delack_packets),
    ("aaa.congestion.crossover", small::congestion_crossover),
    ("aaa.congestion.segments", small::congestion_segments),
    ("aaa.average", judge_average),
    ("aaa.surge", load::judge_surge),
    ("aaa.congestion.amplifies", load::judge_amplification),
    ("aaa.connections", load::judge_connections),
    ("aaa.sws", sws::judge_silly_windows),
];

fn judge_setup(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let stated = "up to 100 stations on an 802.16 base station, the AAA server two hops away, 1.5 Mb/s and 10 ms between \
                  them";
    judge_configuration(claim, view, stated)
}

/// Returns the mean of three savings.
fn mean_of(parts: &[MetricEstimate; 3]) -> MetricEstimate {
    let third = 1.0 / parts.len() as f64;
    // The studies may share random streams, so the half-widths add up in the worst case.
    MetricEstimate {
        mean: parts.iter().map(|e| e.mean).sum::<f64>() * third,
        below: parts.iter().map(|e| e.below).sum::<f64>() * third,
        above: parts.iter().map(|e| e.above).sum::<f64>() * third,
        n: parts.iter().map(|e| e.n).min().unwrap_or(0),
    }
}

/// Evaluates the mean of the three savings, those of packets compared with no avoidance. A second reading replaces that
/// of Nagle's algorithm by the fall of its packets from 9 nodes to 37.
fn judge_average(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let best = hol::best_saving(view)?;
    let streams = best.saving;
    let nagle = small::nagle_saving(view)?;
    let delack = small::delack_saving(view)?;
    let parts = [streams, nagle, delack];
    let ours = require_finite(mean_of(&parts), "The mean saving")?;
    let other = match small::nagle_fall(view) {
        Ok(fall) => {
            let ours = mean_of(&[streams, fall, delack]);
            let (verdict, off) = crate::judge::judge_deviation(&ours, claim.published_number(), "");
            let [fall, mean] = [fall, ours].map(|e| crate::judge::format_percent(e.mean));
            format!(
                " With the fall of {fall} from 9 nodes to 37 for the 38 % it is {mean}, {off}: {}.",
                verdict.name()
            )
        }
        Err(_) => String::new(),
    };
    let (verdict, off) = crate::judge::judge_deviation(&ours, claim.published_number(), "");
    let said = |name| crate::judge::format_percent(claim.part_number(name));
    let [a, b, c] = parts.map(|e| crate::judge::format_percent(e.mean));
    let reason = format!(
        "The mean saving is {}, {off}. It is that of {a} (delay, streams; published {}), {b} (packets, Nagle; {}) and {c} \
         (packets, delayed acknowledgement; {}).{other}{}",
        crate::judge::with_interval(&ours, ""),
        said("streams"),
        said("nagle"),
        said("delack"),
        best.left_out
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}
