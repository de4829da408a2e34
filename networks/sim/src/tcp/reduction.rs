//! Reduction of a window in segments during recovery: proportional rate reduction with the slow-start reduction
//! bound (RFC 6937 §3; Linux's `tcp_cwnd_reduction()`).

/// Segments delivered and sent in a recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProportionalRateReduction {
    /// The initial window, for RecoverFS.
    before: u32,
    /// The final window.
    threshold: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    out: u32,
}

impl ProportionalRateReduction {
    /// Starts a recovery that reduces the window from `before` segments to `threshold`.
    pub(super) fn new(before: u32, threshold: u32) -> Self {
        Self { before: before.max(1), threshold, delivered: 0, out: 0 }
    }
    /// Records a sent segment.
    pub(super) fn on_sent(&mut self) {
        self.out += 1;
    }
    /// Handles at least one newly delivered segment, with `flight` in flight. Returns the segments that may be sent.
    /// `progress`: the oldest were acknowledged and no more are lost, so the window may grow as in slow start.
    pub(super) fn update_rate_reduction(&mut self, delivered: u32, flight: u32, progress: bool) -> u32 {
        self.delivered += delivered;
        let may = if flight > self.threshold {
            let share = u64::from(self.threshold) * u64::from(self.delivered);
            (share.div_ceil(u64::from(self.before)) as u32).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + u32::from(progress);
            limit.min(self.threshold - flight)
        };
        // If recovery has sent nothing yet, it may send the first lost segment at once.
        may.max(u32::from(self.out == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::ProportionalRateReduction;

    /// Runs a recovery from 20 segments to ten. Returns the data in flight and sent after each acknowledgement.
    fn run_recovery(mut flight: u32, acknowledgements: u32, progress: bool) -> Vec<(u32, u32)> {
        let mut reduction = ProportionalRateReduction::new(20, 10);
        let one = |_| {
            let (there, sent) = (flight, reduction.update_rate_reduction(1, flight, progress));
            (0..sent).for_each(|_| reduction.on_sent());
            flight = flight + sent - 1;
            (there, sent)
        };
        (0..acknowledgements).map(one).collect()
    }

    /// RFC 6937 §3.1, first example: one of 20 segments is lost, and two more were sent before that is known.
    #[test]
    fn after_one_loss_the_window_falls_by_half_within_a_round_trip() {
        let all = run_recovery(18, 19, false);
        assert_eq!(all.iter().map(|(_, sent)| sent).sum::<u32>(), 10, "{all:?}");
        assert_eq!(all[..4], [(18, 1), (18, 0), (17, 1), (17, 0)]);
        assert!(all.iter().all(|(flight, sent)| *sent <= 1 && *flight >= 9), "{all:?}");
    }

    /// The second example, PRR-SSRB: fifteen are lost.
    #[test]
    fn after_many_losses_the_window_opens_as_in_slow_start() {
        assert_eq!(run_recovery(4, 3, true), [(4, 2), (5, 2), (6, 2)]);
        assert_eq!(run_recovery(4, 3, false), [(4, 1), (4, 1), (4, 1)], "while more is found lost");
    }

    #[test]
    fn progress_lets_one_more_go() {
        let mut reduction = ProportionalRateReduction::new(10, 7);
        assert_eq!(reduction.update_rate_reduction(1, 2, false), 1);
        reduction.on_sent();
        assert_eq!(reduction.update_rate_reduction(1, 2, true), 2);
        assert_eq!(
            reduction.update_rate_reduction(1, 6, true),
            1,
            "and never more than the window has room for"
        );
        assert_eq!(reduction.update_rate_reduction(1, 7, true), 0);
    }
}
