//! Head-of-line delay in closed form: the delay that in-order delivery adds to a message's own repair, over one or
//! several streams or connections. `docs/explanation/head-of-line.md` derives it.

/// A model of streams with in-order delivery.
///
/// - Messages arrive by a Poisson process and go to random streams.
/// - Each message and each repair is lost with the same probability.
/// - A repair follows a loss after a fixed time.
/// - Streams do not wait for each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeadOfLineModel {
    /// Messages per second over all streams.
    pub rate: f64,
    /// Probability that a message or a repair is lost, below 1.
    pub loss: f64,
    /// Seconds from a loss to its repair.
    pub repair: f64,
    /// Streams or connections, at least 1.
    pub streams: u32,
}

impl HeadOfLineModel {
    /// Returns the mean number of messages of one stream in one repair time.
    fn messages_per_repair_time(&self) -> f64 {
        self.rate * self.repair / f64::from(self.streams)
    }

    /// Returns the probability that a message is delivered at most `delay` seconds later than without loss.
    pub fn delay_distribution(&self, delay: f64) -> f64 {
        if delay < 0.0 {
            return 0.0;
        }
        let Self { loss: p, repair, .. } = *self;
        let whole = libm::floor(delay / repair);
        let part = delay / repair - whole;
        // When the message itself is repaired, so is every earlier message of its stream.
        let own = 1.0 - libm::pow(p, whole + 1.0);
        let missing = libm::pow(p, whole + 1.0) * (1.0 - part) + libm::pow(p, whole + 2.0) / (1.0 - p);
        own * libm::exp(-self.messages_per_repair_time() * missing)
    }

    /// Returns the mean delay that losses add, in seconds.
    pub fn mean_delay(&self) -> f64 {
        let Self { loss: p, repair, .. } = *self;
        let (mut sum, mut lost) = (0.0, p);
        // Integrate 1 minus the distribution, one repair time after another. `lost` is p^(m + 1).
        while lost > 1e-18 {
            let x = self.messages_per_repair_time() * lost;
            let within = if x > 0.0 { -libm::expm1(-x) / x } else { 1.0 };
            sum += 1.0 - (1.0 - lost) * libm::exp(-x * p / (1.0 - p)) * within;
            lost *= p;
        }
        sum * repair
    }

    /// Returns the mean delay of a message's own repairs, in seconds: the limit of `mean_delay` for many streams.
    pub fn unordered_delay(&self) -> f64 {
        self.repair * self.loss / (1.0 - self.loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: HeadOfLineModel = HeadOfLineModel { rate: 4.0, loss: 0.1, repair: 0.5, streams: 1 };

    #[test]
    fn the_mean_is_the_integral_of_the_distribution() {
        for model in [MODEL, HeadOfLineModel { loss: 0.4, ..MODEL }, HeadOfLineModel { rate: 40.0, ..MODEL }]
        {
            let step = 1e-4;
            let integral: f64 = (0..200_000)
                .map(|i| (1.0 - model.delay_distribution((f64::from(i) + 0.5) * step)) * step)
                .sum();
            assert!(
                (integral - model.mean_delay()).abs() < 1e-6,
                "{model:?}: {integral} {}",
                model.mean_delay()
            );
        }
    }

    #[test]
    fn many_streams_wait_for_nothing_but_themselves() {
        let many = HeadOfLineModel { streams: 1_000_000, ..MODEL };
        assert!((many.mean_delay() - MODEL.unordered_delay()).abs() < 1e-6);
        assert!((MODEL.unordered_delay() - 0.5 / 9.0).abs() < 1e-12);
        assert_eq!(HeadOfLineModel { loss: 0.0, ..MODEL }.mean_delay(), 0.0);
        let means = [1, 2, 4, 8].map(|streams| HeadOfLineModel { streams, ..MODEL }.mean_delay());
        assert!(means.windows(2).all(|w| w[0] > w[1]), "{means:?}");
    }

    #[test]
    fn few_losses_block_what_comes_while_they_last() {
        // To first order in p: the message's own repair, and half a repair for each earlier message of the load.
        let few = HeadOfLineModel { loss: 1e-6, ..MODEL };
        let first = 1e-6 * 0.5 * (1.0 + 2.0 / 2.0);
        assert!((few.mean_delay() / first - 1.0).abs() < 1e-4, "{}", few.mean_delay() / first);
    }
}
