//! Waiting at a server with several cores in closed form: Erlang's formulas for M/M/c, and the approximation of Allen
//! and Cunneen for other arrivals and service times.

/// A queue in front of `cores` servers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServerQueue {
    /// Customers per second.
    pub rate: f64,
    /// Mean service time, in seconds.
    pub service: f64,
    /// Squared coefficient of variation of service times: 0 for constant, 1 for exponential.
    pub service_variation: f64,
    /// Squared coefficient of variation of interarrival times: 1 for a Poisson process.
    pub arrival_variation: f64,
    /// Servers, at least 1.
    pub cores: u32,
}

/// Erlang B: returns the probability that all `cores` are busy if a customer that finds no free core leaves. `erlangs`
/// is the offered load, rate times service time.
#[must_use]
pub fn erlang_b(cores: u32, erlangs: f64) -> f64 {
    (1..=cores).fold(1.0, |b, n| erlangs * b / (f64::from(n) + erlangs * b))
}

/// Erlang C: returns the probability that a customer waits, at an offered load of `erlangs`. It is 1 from a load of
/// `cores` on.
#[must_use]
pub fn erlang_c(cores: u32, erlangs: f64) -> f64 {
    let free = 1.0 - erlangs / f64::from(cores);
    if free <= 0.0 {
        return 1.0;
    }
    let b = erlang_b(cores, erlangs);
    b / (b + (1.0 - b) * free)
}

impl ServerQueue {
    /// Returns an M/M/c queue.
    #[must_use]
    pub const fn mmc(rate: f64, service: f64, cores: u32) -> Self {
        Self { rate, service, service_variation: 1.0, arrival_variation: 1.0, cores }
    }

    /// Returns the utilization of a core.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.rate * self.service / f64::from(self.cores)
    }

    /// Returns the probability that a customer waits, by M/M/c. Exact for exponential service and for a single core.
    #[must_use]
    pub fn wait_probability(&self) -> f64 {
        erlang_c(self.cores, self.rate * self.service)
    }

    /// Returns the mean wait in seconds: that of M/M/c times (ca² + cs²) / 2 (Allen and Cunneen). Exact for M/M/c and,
    /// by Pollaczek and Khinchine, for M/G/1. Infinite if the load is 1 or more.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        let free = 1.0 - self.utilisation();
        if free <= 0.0 {
            return f64::INFINITY;
        }
        let variation = (self.arrival_variation + self.service_variation) / 2.0;
        self.wait_probability() * self.service * variation / (f64::from(self.cores) * free)
    }

    /// Returns a quantile of the wait, in seconds. Takes the waits of waiting customers to be exponential, which is
    /// exact for M/M/c.
    #[must_use]
    pub fn wait_quantile(&self, share: f64) -> f64 {
        let (waits, wait) = (self.wait_probability(), self.mean_wait());
        if !wait.is_finite() {
            return f64::INFINITY;
        }
        if 1.0 - share >= waits || waits <= 0.0 {
            return 0.0;
        }
        wait / waits * libm::log(waits / (1.0 - share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12 * b.abs().max(1.0)
    }

    #[test]
    fn erlangs_formulas_by_hand() {
        // One server: a / (1 + a) are lost, and a wait. Two servers at one erlang: 1/2 / (1 + 1 + 1/2) are lost, and a
        // third waits.
        assert!(is_near(erlang_b(1, 0.5), 1.0 / 3.0) && is_near(erlang_c(1, 0.7), 0.7));
        assert!(is_near(erlang_b(2, 1.0), 0.2) && is_near(erlang_c(2, 1.0), 1.0 / 3.0));
        assert_eq!((erlang_c(3, 3.0), erlang_c(3, 9.0)), (1.0, 1.0));
    }

    #[test]
    fn one_core_is_pollaczeks_and_khinchines() {
        let constant = ServerQueue { service_variation: 0.0, ..ServerQueue::mmc(0.5, 1.0, 1) };
        assert!(
            is_near(constant.mean_wait(), 0.5) && is_near(ServerQueue::mmc(0.5, 1.0, 1).mean_wait(), 1.0)
        );
        assert_eq!(ServerQueue::mmc(1.0, 1.0, 1).mean_wait(), f64::INFINITY);
    }

    #[test]
    fn quantiles_of_exponential_service() {
        // M/M/1 at 0.5: half do not wait; P(W > t) = 0.5 exp(-t/2).
        let queue = ServerQueue::mmc(0.5, 1.0, 1);
        assert_eq!(queue.wait_quantile(0.4), 0.0);
        assert!(is_near(queue.wait_quantile(0.99), 2.0 * (0.5_f64 / 0.01).ln()));
    }
}
