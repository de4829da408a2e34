//! The sender's view of the peer's data beyond the acknowledgement (RFC 6675 §3 and §4).

use super::seq;

/// SACKed ranges and the marks of RFC 6675.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    /// Disjoint, ascending, all above the cumulative acknowledgement.
    sacked: Vec<(u32, u32)>,
    /// End of the data retransmitted in this recovery (HighRxt, exclusive).
    pub(super) high_rxt: u32,
    /// An acknowledgement beyond this permits a rescue retransmission of the last segment (RescueRxt, exclusive). It
    /// is the first segment of this recovery, or all of it after the one rescue.
    pub(super) rescue_rxt: u32,
}

/// The criterion for a lost sequence number.
#[derive(Clone, Copy, Debug)]
pub(super) struct SackLossRule {
    /// DupThresh.
    pub(super) threshold: u8,
    /// SMSS in octets.
    pub(super) mss: u32,
}

impl SackLossRule {
    /// RFC 6675 IsLost(), from the SACKed data above.
    fn is_lost(self, ranges_above: u32, bytes_above: u32) -> bool {
        ranges_above >= u32::from(self.threshold)
            || bytes_above > u32::from(self.threshold).saturating_sub(1) * self.mss
    }
}

/// A range that is not SACKed, below one that is.
struct SackGap {
    start: u32,
    end: u32,
    lost: bool,
}

impl Scoreboard {
    /// Adds the SACK blocks within (una, max]; returns the number of new octets.
    pub(super) fn add_sack_blocks(&mut self, una: u32, max: u32, blocks: &[(u32, u32)]) -> u32 {
        let mut news = 0;
        for &(left, right) in blocks {
            // A block at or below the acknowledgement reports a duplicate (RFC 2883); others are invalid.
            let (from, to) = (left.wrapping_sub(una), right.wrapping_sub(una));
            if from == 0 || from >= to || to > max.wrapping_sub(una) {
                continue;
            }
            let (mut l, mut r, mut known) = (left, right, 0);
            self.sacked.retain(|&(a, b)| {
                let apart = seq::lt(r, a) || seq::lt(b, l);
                if !apart {
                    known += b.wrapping_sub(a);
                    (l, r) = (seq::min(l, a), seq::max(r, b));
                }
                apart
            });
            news += r.wrapping_sub(l) - known;
            let at = self.sacked.partition_point(|&(a, _)| seq::lt(a, l));
            self.sacked.insert(at, (l, r));
        }
        news
    }
    /// Advances the cumulative acknowledgement to `una`.
    pub(super) fn advance_to(&mut self, una: u32) {
        self.sacked.retain(|&(_, r)| seq::lt(una, r));
        if let Some(first) = self.sacked.first_mut() {
            first.0 = seq::max(first.0, una);
        }
    }
    pub(super) fn is_empty(&self) -> bool {
        self.sacked.is_empty()
    }
    /// Starts a recovery: no data of it is retransmitted yet.
    pub(super) fn start_recovery(&mut self, una: u32) {
        self.high_rxt = una;
        self.rescue_rxt = una;
    }
    /// Returns the end of the SACKed range with `at`.
    pub(super) fn sacked_end(&self, at: u32) -> Option<u32> {
        self.sacked.iter().find(|&&(l, r)| seq::le(l, at) && seq::lt(at, r)).map(|&(_, r)| r)
    }
    /// Returns the start of the next SACKed range above `at`.
    pub(super) fn next_start(&self, at: u32) -> Option<u32> {
        self.sacked.iter().map(|&(l, _)| l).find(|&l| seq::lt(at, l))
    }
    /// Returns the hole at `from`, or behind the range that contains `from` or ends there, if another range follows.
    pub(super) fn hole_at(&self, from: u32) -> Option<u32> {
        let at = self.sacked.iter().position(|&(_, r)| seq::le(from, r))?;
        let (left, right) = self.sacked[at];
        if seq::lt(from, left) {
            return Some(from);
        }
        (at + 1 < self.sacked.len()).then_some(right)
    }
    /// Returns the gaps from `una` up, lowest first.
    fn gaps(&self, una: u32, rule: SackLossRule) -> impl Iterator<Item = SackGap> + '_ {
        let count = self.sacked.len() as u32;
        self.sacked.iter().zip(0..).scan((una, self.sacked_octets()), move |(from, above), (&(l, r), i)| {
            let gap = SackGap { start: *from, end: l, lost: rule.is_lost(count - i, *above) };
            *from = r;
            *above -= r.wrapping_sub(l);
            Some(gap)
        })
    }
    /// Returns the octets that the peer holds beyond the acknowledgement.
    pub(super) fn sacked_octets(&self) -> u32 {
        self.sacked.iter().map(|(l, r)| r.wrapping_sub(*l)).sum()
    }
    /// True if the first unacknowledged octet counts as lost.
    pub(super) fn first_is_lost(&self, una: u32, rule: SackLossRule) -> bool {
        self.gaps(una, rule).next().is_some_and(|g| g.lost && seq::lt(g.start, g.end))
    }
    /// RFC 6675 SetPipe(): estimated octets in the network.
    pub(super) fn pipe(&self, una: u32, max: u32, rule: SackLossRule) -> u32 {
        let tail = self.sacked.last().map_or(una, |&(_, r)| r);
        let gaps = self.gaps(una, rule).chain([SackGap { start: tail, end: max, lost: false }]);
        gaps.map(|g| {
            let outstanding = if g.lost { 0 } else { g.end.wrapping_sub(g.start) };
            outstanding + seq::octets_ahead(g.start, seq::min(self.high_rxt, g.end))
        })
        .sum()
    }
    /// RFC 6675 NextSeg() rule 1 (`lost_only`) and rule 3: the lowest part of a gap that is not retransmitted yet, as
    /// `[start, end)`.
    pub(super) fn next_gap(&self, una: u32, rule: SackLossRule, lost_only: bool) -> Option<(u32, u32)> {
        self.gaps(una, rule)
            .filter(|g| g.lost || !lost_only)
            .map(|g| (seq::max(g.start, self.high_rxt), g.end))
            .find(|&(start, end)| seq::lt(start, end))
    }
    /// NextSeg() rule 4: the last `mss` octets that are neither SACKed nor retransmitted.
    ///
    /// The RFC would also repeat retransmissions of this recovery; here the timer does that.
    pub(super) fn rescue_retransmission_range(&self, una: u32, max: u32, mss: u32) -> Option<(u32, u32)> {
        let tail = self.sacked.last().map_or(una, |&(_, r)| r);
        let start = seq::max(seq::max(tail, self.high_rxt), max.wrapping_sub(mss));
        seq::lt(start, max).then_some((start, max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: SackLossRule = SackLossRule { threshold: 3, mss: 100 };

    #[test]
    fn blocks_merge_and_count_what_is_new() {
        let mut s = Scoreboard::default();
        assert_eq!(s.add_sack_blocks(0, 1000, &[(200, 300), (400, 500)]), 200);
        assert_eq!(s.add_sack_blocks(0, 1000, &[(200, 400)]), 100);
        assert_eq!(
            s.add_sack_blocks(0, 1000, &[(200, 500), (900, 1001), (300, 250), (0, 50), (600, 0x8000_0000)]),
            0
        );
        s.advance_to(250);
        assert_eq!(s.sacked_end(250), Some(500));
        assert_eq!(s.next_start(0), Some(250));
    }

    #[test]
    fn a_gap_is_lost_below_three_ranges_or_more_than_two_segments() {
        let mut s = Scoreboard::default();
        s.start_recovery(0);
        s.add_sack_blocks(0, 1000, &[(100, 200), (300, 400)]);
        assert!(!s.first_is_lost(0, RULE));
        s.add_sack_blocks(0, 1000, &[(500, 510)]);
        assert!(s.first_is_lost(0, RULE));
        // Lost: 0..100 (three ranges above, 210 bytes). Not lost: 200..300 (two, 110), 400..500, the tail.
        assert_eq!(s.pipe(0, 1000, RULE), 100 + 100 + 490);
        assert_eq!(s.next_gap(0, RULE, true), Some((0, 100)));
        s.high_rxt = 100;
        assert_eq!(s.pipe(0, 1000, RULE), 100 + 100 + 100 + 490);
        assert_eq!(s.next_gap(0, RULE, true), None);
        assert_eq!(s.next_gap(0, RULE, false), Some((200, 300)));
        assert_eq!(s.rescue_retransmission_range(0, 1000, 100), Some((900, 1000)));
    }
}
