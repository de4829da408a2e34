//! Silly windows. Read from `aaa-sws`.

use crate::common::{Found, finite};
use crate::data::Claim;
use crate::judge::{Finding, Verdict, digits, part_by_part, percent};
use crate::measure::{Side, gain, mean, side};
use crate::results::{Choice, View};

/// How far a share that follows from counting may be off: packets of before the counting, and of answers, are in it, too.
const EXACT: f64 = 0.005;

/// One octet of data in a packet of so many where nothing helps, and the remedies that the document names.
pub(super) fn sws(claim: &Claim, view: &View<'_>) -> Found {
    let share = |slow, avoidance| {
        let at = [("slow", slow), ("avoidance", avoidance)];
        view.at(Choice { study: "aaa-sws", metric: "tcp.data-share", x: "octets", at: &at }, 1.0)
    };
    let stated = claim.part("packet");
    let (mut parts, mut said, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for (slow, remedy) in [("sender", "Nagle"), ("reader", "delayed ACK")] {
        let (none, with) = (share(slow, "none")?, share(slow, remedy)?);
        let alone = finite(mean(&none), "The share of data")?.mean;
        let exact = (alone * stated - 1.0).abs() <= EXACT;
        let helps = side(&gain(&none, &with)) == Side::Above;
        let of = |holds| if holds { Verdict::Reproduced } else { Verdict::Differs };
        parts.push((format!("1 in {}, {slow}", digits(stated)), of(exact)));
        parts.push((format!("{remedy}, {slow}"), of(helps)));
        ours.push(format!("1 byte in {} ({slow})", digits(1.0 / alone)));
        let avoided = share(slow, "silly-window avoidance")?;
        said.push(format!(
            "With a slow {slow} of one byte at a time {} of the octets of packets with data is data, with {remedy} {}, with \
             silly-window avoidance alone {}",
            percent(alone),
            percent(mean(&with).mean),
            percent(mean(&avoided).mean)
        ));
    }
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, verdict)| *verdict).collect();
    let named = part_by_part(parts.iter().map(|(name, verdict)| (name.as_str(), *verdict)));
    let reason = format!("{}.{named}", said.join(". "));
    Ok(Finding::words(ours.join(", "), Verdict::of_parts(&verdicts), reason))
}
