//! Silly windows. Read from `aaa-sws`.

use crate::common::{FindingResult, require_finite};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, Verdict, format_digits, format_percent, format_with_interval,
    list_part_verdicts,
};
use crate::measure::{IntervalSign, MetricEstimate, estimate_gain, estimate_mean, interval_sign};
use crate::results::{CurveSelector, VariantResults};

/// Tolerance of a share that follows from counting: it includes packets from before the counting, and answers.
const EXACT: f64 = 0.005;

/// Octets per second of the study's slow reader. A segment that waits for a delayed acknowledgement carries the octets
/// read meanwhile.
pub(crate) const READ_RATE: f64 = 962.0;

/// Returns the mean wait of the slow reader's delayed acknowledgements in seconds, from the sizes of the segments after
/// them.
fn mean_ack_wait(view: &VariantResults<'_>) -> Result<MetricEstimate, FindingError> {
    let at = [("slow", "reader"), ("avoidance", "delayed ACK")];
    let choice = CurveSelector { study: "aaa-sws", metric: "tcp.segment-size", x: "octets", fixed_axes: &at };
    require_finite(
        estimate_mean(&view.values_at(choice, 1.0)?).scale_by(1.0 / READ_RATE),
        "The wait of acknowledgements",
    )
}

/// Evaluates the share of data without a remedy, one octet in a packet of the stated size, on each side. The verdict is
/// at best that of this figure. The document's remedies and the wait of acknowledgements can lower it.
pub(super) fn judge_silly_windows(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let share = |slow, avoidance| {
        let at = [("slow", slow), ("avoidance", avoidance)];
        view.values_at(
            CurveSelector { study: "aaa-sws", metric: "tcp.data-share", x: "octets", fixed_axes: &at },
            1.0,
        )
    };
    let stated = claim.claim_parameter("packet");
    let (mut exacts, mut helping) = (Vec::new(), Vec::new());
    let (mut said, mut ours) = (Vec::new(), Vec::new());
    for (slow, remedy) in [("sender", "Nagle"), ("reader", "delayed ACK")] {
        let (none, with) = (share(slow, "none")?, share(slow, remedy)?);
        let alone = require_finite(estimate_mean(&none), "The share of data")?.mean;
        let exact = (alone * stated - 1.0).abs() <= EXACT;
        let helps = interval_sign(&estimate_gain(&none, &with)) == IntervalSign::Above;
        let of = |holds| if holds { Verdict::Reproduced } else { Verdict::Differs };
        exacts.push((format!("1 in {}, {slow}", format_digits(stated)), of(exact)));
        helping.push((format!("{remedy}, {slow}"), of(helps)));
        ours.push(format!("1 byte in {} ({slow})", format_digits(1.0 / alone)));
        let avoided = share(slow, "silly-window avoidance")?;
        said.push(format!(
            "With a slow {slow} of one byte at a time, data is {} of the octets of packets with data. With \
             {remedy} it is {}, with silly-window avoidance alone {}",
            format_percent(alone),
            format_percent(estimate_mean(&with).mean),
            format_percent(estimate_mean(&avoided).mean)
        ));
    }
    let (waited, most) = (mean_ack_wait(view)?, claim.claim_parameter("delay"));
    let bound = (
        format!("at most {} ms", format_digits(most * 1e3)),
        Verdict::compare_with_upper_bound(&waited, most),
    );
    said.push(format!(
        "An average segment to the slow reader with delayed ACK carries {} of its reading. Its \
         acknowledgement waits about that long; the limit is {} s",
        format_with_interval(&waited, "s"),
        format_digits(most)
    ));
    let figure = Verdict::worst_part_verdict(&exacts.iter().map(|(_, verdict)| *verdict).collect::<Vec<_>>());
    let others: Vec<Verdict> = helping.iter().chain([&bound]).map(|(_, verdict)| *verdict).collect();
    let whole = Verdict::of_parts(&[&[figure][..], &others[..]].concat());
    let all = exacts.iter().chain(&helping).chain([&bound]);
    let named = list_part_verdicts(all.map(|(name, verdict)| (name.as_str(), *verdict)));
    let reason = format!("{}.{named}", said.join(". "));
    Ok(ClaimFinding::from_verdict_text(
        ours.join(", "),
        Verdict::worst_part_verdict(&[figure, whole]),
        reason,
    ))
}
