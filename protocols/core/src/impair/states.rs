//! A channel that alternates between a good and a bad state in time.

use crate::time::Duration;

/// Gilbert-Elliott in continuous time: a good and a bad state with exponential durations. A packet is lost with the
/// probability of the current state. Packets only sample the state: their number does not change it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ContinuousGilbertElliott {
    /// Mean duration of the good state.
    pub good_time: Duration,
    /// Mean duration of the bad state.
    pub bad_time: Duration,
    /// Loss probability in the good state.
    pub good: f64,
    /// Loss probability in the bad state.
    pub bad: f64,
}

impl ContinuousGilbertElliott {
    /// Returns the long-run share of time in the bad state.
    pub fn bad_state_share(&self) -> f64 {
        let (good, bad) = (self.good_time.as_secs_f64(), self.bad_time.as_secs_f64());
        if bad > 0.0 { bad / (good + bad) } else { 0.0 }
    }

    /// Returns the probability of the bad state at this time after a known state.
    ///
    /// It is the exact solution of the two-state Markov process, π + (b - π) e^(-t/good - t/bad). Here π is the
    /// long-run share of the bad state. After a bad state b is 1, after a good one 0.
    pub fn bad_state_probability(&self, was_bad: bool, after: Duration) -> f64 {
        let was = if was_bad { 1.0 } else { 0.0 };
        let share = self.bad_state_share();
        let t = after.as_secs_f64();
        if t == 0.0 {
            return was;
        }
        let forgotten = t / self.good_time.as_secs_f64() + t / self.bad_time.as_secs_f64();
        share + (was - share) * libm::exp(-forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impair::{Channel, ChannelConfig, LossModel, PacketOutcome};
    use crate::rng::Seed;
    use crate::time::Instant;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// 10 ms of 100 ms are bad; after 9 ms, 63 % of the earlier state is forgotten.
    const BURSTS: ContinuousGilbertElliott = ContinuousGilbertElliott {
        good_time: Duration::from_millis(90),
        bad_time: Duration::from_millis(10),
        good: 0.0,
        bad: 1.0,
    };

    /// Returns the losses of this many packets, sent with these gaps in rotation.
    fn simulate_losses(states: ContinuousGilbertElliott, gaps: &[Duration], packets: usize) -> Vec<bool> {
        let config = ChannelConfig { loss: LossModel::TimedGilbertElliott(states), ..Default::default() };
        let mut channel = Channel::new(config, Seed::new(1).derive_rng("channel", 0));
        let mut now = Instant::ZERO;
        let gaps = gaps.iter().cycle().take(packets);
        gaps.map(|gap| {
            now += *gap;
            matches!(channel.offer_packet(now, 100), PacketOutcome::Lost { .. })
        })
        .collect()
    }

    fn loss_ratio(lost: impl ExactSizeIterator<Item = bool>) -> f64 {
        let all = lost.len() as f64;
        lost.filter(|lost| *lost).count() as f64 / all
    }

    #[test]
    fn the_share_lost_is_the_same_at_every_packet_rate() {
        for gap in [1, 5, 50, 1000] {
            let lost = simulate_losses(BURSTS, &[Duration::from_millis(gap)], 400_000);
            let share = loss_ratio(lost.into_iter());
            assert!((share - 0.1).abs() < 0.008, "{share} every {gap} ms");
        }
    }

    #[test]
    fn a_burst_lasts_its_time_however_many_packets_look() {
        for micros in [50, 200, 1000] {
            let lost = simulate_losses(BURSTS, &[Duration::from_micros(micros)], 2_000_000);
            let bursts = lost.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            let in_bursts = lost.iter().filter(|lost| **lost).count() as f64 * micros as f64 * 1e-6;
            let length = in_bursts / bursts;
            // Sparse samples merge two bursts or miss one. The mean burst is 1 / (1 - P(bad | bad)) packets.
            let step = Duration::from_micros(micros);
            let expected = step.as_secs_f64() / (1.0 - BURSTS.bad_state_probability(true, step));
            assert!((length / expected - 1.0).abs() < 0.05, "{length} s for {expected} s");
            assert!((expected - 0.010).abs() < 0.000_7, "{expected} s of packets every {micros} us");
        }
    }

    /// The loss of a retransmission at this time after the loss of the original: the closed form, by hand.
    #[test]
    fn what_is_sent_again_later_meets_a_channel_that_has_forgotten() {
        for (gap, expected) in
            [(1, 0.1 + 0.9 * 0.894_839), (9, 0.1 + 0.9 * 0.367_879), (200, 0.1), (3000, 0.1)]
        {
            let gap = Duration::from_millis(gap);
            assert!((BURSTS.bad_state_probability(true, gap) - expected).abs() < 1e-6, "{gap:?}");
            // A packet, its retransmission, and half a second in which the channel forgets its state.
            let lost = simulate_losses(BURSTS, &[Duration::from_millis(500), gap], 400_000);
            let again: Vec<bool> = lost.chunks(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
            let share = loss_ratio(again.into_iter());
            assert!((share - expected).abs() < 0.015, "{share} for {expected} after {gap:?}");
        }
    }

    #[test]
    fn each_state_loses_its_share() {
        let states = ContinuousGilbertElliott { good: 0.02, bad: 0.5, ..BURSTS };
        let lost = simulate_losses(states, &[Duration::from_millis(30)], 400_000);
        let share = loss_ratio(lost.into_iter());
        assert!((share - 0.068).abs() < 0.003, "{share}");
        assert!((LossModel::TimedGilbertElliott(states).mean_loss_ratio() - 0.068).abs() < 1e-12);
    }

    #[test]
    fn a_state_without_duration_is_never_met() {
        let never = ContinuousGilbertElliott { bad_time: Duration::ZERO, ..BURSTS };
        let always = ContinuousGilbertElliott { good_time: Duration::ZERO, ..BURSTS };
        for gap in [Duration::ZERO, Duration::from_millis(7)] {
            assert!(simulate_losses(never, &[gap], 1000).iter().all(|lost| !lost));
            assert!(simulate_losses(always, &[gap], 1000).iter().all(|lost| *lost));
        }
        let neither = ContinuousGilbertElliott { good_time: Duration::ZERO, ..never };
        assert_eq!(neither.bad_state_share(), 0.0);
    }

    proptest! {
        /// A packet in between changes nothing for later packets (Chapman-Kolmogorov), so losses do not depend on
        /// rates.
        #[test]
        fn looking_in_between_changes_nothing(
            good in 1u64..10_000_000_000, bad in 1u64..10_000_000_000,
            first in 0u64..20_000_000_000, then in 0u64..20_000_000_000, was_bad: bool,
        ) {
            let states = ContinuousGilbertElliott {
                good_time: Duration::from_nanos(good), bad_time: Duration::from_nanos(bad), ..BURSTS
            };
            let (first, then) = (Duration::from_nanos(first), Duration::from_nanos(then));
            let at_first = states.bad_state_probability(was_bad, first);
            prop_assert!((0.0..=1.0).contains(&at_first));
            let through = at_first * states.bad_state_probability(true, then)
                + (1.0 - at_first) * states.bad_state_probability(false, then);
            let at_once = states.bad_state_probability(was_bad, first + then);
            prop_assert!((through - at_once).abs() < 1e-9, "{through} and {at_once}");
        }

        /// The long-run share is stationary.
        #[test]
        fn the_long_runs_share_is_stationary(
            good in 1u64..10_000_000_000, bad in 1u64..10_000_000_000, after in 0u64..20_000_000_000,
        ) {
            let states = ContinuousGilbertElliott {
                good_time: Duration::from_nanos(good), bad_time: Duration::from_nanos(bad), ..BURSTS
            };
            let (share, after) = (states.bad_state_share(), Duration::from_nanos(after));
            let later = share * states.bad_state_probability(true, after)
                + (1.0 - share) * states.bad_state_probability(false, after);
            prop_assert!((later - share).abs() < 1e-9, "{later} and {share}");
        }
    }
}
