//! How a window that counts segments falls in a recovery: proportional rate reduction with the slow-start reduction bound
//! (RFC 6937 §3; Linux's `tcp_cwnd_reduction()`).

/// What a recovery has delivered and sent, in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateReduction {
    /// The window that it began with, for RecoverFS.
    before: u32,
    /// The window that it is to end with.
    threshold: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    out: u32,
}

impl RateReduction {
    /// A recovery that takes the window from `before` segments to `threshold`.
    pub(super) fn new(before: u32, threshold: u32) -> Self {
        Self { before: before.max(1), threshold, delivered: 0, out: 0 }
    }
    /// A segment has left.
    pub(super) fn on_sent(&mut self) {
        self.out += 1;
    }
    /// An acknowledgement told of so many segments more, at least one, with `flight` in the network now: how many may leave.
    /// `progress` says that the oldest were acknowledged and no more were found lost, after which the window may grow as in slow start.
    pub(super) fn on_delivered(&mut self, delivered: u32, flight: u32, progress: bool) -> u32 {
        self.delivered += delivered;
        let may = if flight > self.threshold {
            let share = u64::from(self.threshold) * u64::from(self.delivered);
            (share.div_ceil(u64::from(self.before)) as u32).saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + u32::from(progress);
            limit.min(self.threshold - flight)
        };
        // What was found lost first leaves at once.
        may.max(u32::from(self.out == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::RateReduction;

    /// After each of so many acknowledgements of a recovery from 20 segments to ten: what was in the network, what left.
    fn run_recovery(mut flight: u32, acknowledgements: u32, progress: bool) -> Vec<(u32, u32)> {
        let mut reduction = RateReduction::new(20, 10);
        let one = |_| {
            let (there, sent) = (flight, reduction.on_delivered(1, flight, progress));
            (0..sent).for_each(|_| reduction.on_sent());
            flight = flight + sent - 1;
            (there, sent)
        };
        (0..acknowledgements).map(one).collect()
    }

    /// RFC 6937 §3.1, first example: one of 20 segments was lost, and two more had left before that was known.
    #[test]
    fn after_one_loss_the_window_falls_by_half_within_a_round_trip() {
        let all = run_recovery(18, 19, false);
        assert_eq!(all.iter().map(|(_, sent)| sent).sum::<u32>(), 10, "{all:?}");
        assert_eq!(all[..4], [(18, 1), (18, 0), (17, 1), (17, 0)]);
        assert!(all.iter().all(|(flight, sent)| *sent <= 1 && *flight >= 9), "{all:?}");
    }

    /// The second one, PRR-SSRB: fifteen of them were.
    #[test]
    fn after_many_losses_the_window_opens_as_in_slow_start() {
        assert_eq!(run_recovery(4, 3, true), [(4, 2), (5, 2), (6, 2)]);
        assert_eq!(run_recovery(4, 3, false), [(4, 1), (4, 1), (4, 1)], "while more is found lost");
    }

    #[test]
    fn progress_lets_one_more_go() {
        let mut reduction = RateReduction::new(10, 7);
        assert_eq!(reduction.on_delivered(1, 2, false), 1);
        reduction.on_sent();
        assert_eq!(reduction.on_delivered(1, 2, true), 2);
        assert_eq!(reduction.on_delivered(1, 6, true), 1, "and never more than the window has room for");
        assert_eq!(reduction.on_delivered(1, 7, true), 0);
    }
}
