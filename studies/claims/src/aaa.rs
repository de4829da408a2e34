//! The claims of "Simulation of Performance Enhancement in the AAA Protocol", one function for each.

mod hol;
mod load;
mod small_segments;
pub(crate) mod sws;

use crate::common::{FindingResult, JudgeFunction, judge_configuration, require_finite};
use crate::data::Claim;
use crate::judge::ClaimFinding;
use crate::measure::MetricEstimate;
use crate::results::VariantResults;

/// The function of each claim.
pub(crate) const FUNCTIONS: [(&str, JudgeFunction); 20] = [
    ("aaa.setup", judge_setup),
    ("aaa.setup-ko", load::judge_korean_text_setup),
    ("aaa.messages", hol::judge_messages),
    ("aaa.hol.gap-5", hol::judge_delay_gap_at_5_percent),
    ("aaa.hol.gap-19", hol::judge_delay_gap_at_19_percent),
    ("aaa.hol.best", hol::judge_largest_delay_saving),
    ("aaa.hol.widens", hol::judge_delay_gap_growth),
    ("aaa.udp.low-loss", hol::judge_udp_at_low_loss),
    ("aaa.udp.high-loss", hol::judge_udp_at_high_loss),
    ("aaa.nagle.delay", small_segments::judge_nagle_delay),
    ("aaa.nagle.segments", small_segments::judge_nagle_packet_counts),
    ("aaa.delack.delay", small_segments::judge_delayed_ack_delay),
    ("aaa.delack.packets", small_segments::judge_delayed_ack_packets),
    ("aaa.congestion.crossover", small_segments::judge_congestion_crossover),
    ("aaa.congestion.segments", small_segments::judge_congestion_packets),
    ("aaa.average", judge_mean_saving),
    ("aaa.surge", load::judge_avoidance_under_congestion),
    ("aaa.congestion.amplifies", load::judge_saving_with_other_traffic),
    ("aaa.connections", load::judge_connection_counts),
    ("aaa.sws", sws::judge_silly_windows),
];

fn judge_setup(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let stated = "up to 100 stations on an 802.16 base station, and an AAA server two hops away over 1.5 \
                  Mb/s and 10 ms";
    judge_configuration(claim, view, stated)
}

/// Returns the mean of three savings.
fn mean_of_three_savings(parts: &[MetricEstimate; 3]) -> MetricEstimate {
    let third = 1.0 / parts.len() as f64;
    // Add the half-widths: the studies may share random streams, so their errors may have the same sign in the worst
    // case.
    MetricEstimate {
        mean: parts.iter().map(|e| e.mean).sum::<f64>() * third,
        below: parts.iter().map(|e| e.below).sum::<f64>() * third,
        above: parts.iter().map(|e| e.above).sum::<f64>() * third,
        n: parts.iter().map(|e| e.n).min().unwrap_or(0),
    }
}

/// Evaluates the mean of the three savings, those of packets compared with no avoidance. A second reading replaces that
/// of Nagle's algorithm by the fall of its packets from 9 nodes to 37.
fn judge_mean_saving(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let best = hol::find_largest_delay_saving(view)?;
    let streams = best.saving;
    let nagle = small_segments::nagle_packet_saving(view)?;
    let delack = small_segments::delayed_ack_packet_saving(view)?;
    let parts = [streams, nagle, delack];
    let ours = require_finite(mean_of_three_savings(&parts), "The mean saving")?;
    let other = match small_segments::nagle_packet_decrease(view) {
        Ok(fall) => {
            let ours = mean_of_three_savings(&[streams, fall, delack]);
            let (verdict, off) = crate::judge::judge_deviation(&ours, claim.published_number(), "");
            let [fall, mean] = [fall, ours].map(|e| crate::judge::format_percent(e.mean));
            format!(
                " With the decrease of {fall} from 9 to 37 nodes in place of the 38 %, the mean is {mean}, \
                 {off}: {}.",
                verdict.name()
            )
        }
        Err(_) => String::new(),
    };
    let (verdict, off) = crate::judge::judge_deviation(&ours, claim.published_number(), "");
    let said = |name| crate::judge::format_percent(claim.claim_parameter(name));
    let [a, b, c] = parts.map(|e| crate::judge::format_percent(e.mean));
    let reason = format!(
        "The mean saving is {}, {off}. It averages {a} (delay, streams; published {}), {b} (packets, Nagle; \
         {}) and {c} (packets, delayed acknowledgement; {}).{other}{}",
        crate::judge::format_with_interval(&ours, ""),
        said("streams"),
        said("nagle"),
        said("delack"),
        best.left_out
    );
    Ok(ClaimFinding::from_estimate(&ours, verdict, reason))
}
