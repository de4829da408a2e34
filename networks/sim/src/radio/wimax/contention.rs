//! Contention opportunities, with truncated binary exponential back-off.

use usher_core::SimulationRng;

/// Back-off settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentionBackoffConfig {
    /// The first window is 2 to this power, in opportunities.
    pub start: u8,
    /// The last window is 2 to this power, at most 15.
    pub end: u8,
    /// Maximum tries of a station.
    pub tries: u16,
}

/// The tries of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ContentionAttempts {
    /// Number of tries so far.
    tries: u16,
    /// Opportunities to skip.
    defer: u32,
}

impl ContentionAttempts {
    /// Starts another try; `None` after the last one.
    pub(super) fn next_attempt(
        self,
        policy: &ContentionBackoffConfig,
        rng: &mut SimulationRng,
    ) -> Option<Self> {
        if self.tries >= policy.tries {
            return None;
        }
        let exponent = u16::from(policy.start).saturating_add(self.tries).min(u16::from(policy.end));
        let defer = rng.sample_below(1 << exponent) as u32;
        Some(Self { tries: self.tries + 1, defer })
    }
}

/// Stations that wait for an opportunity of one kind, first come first.
#[derive(Debug, Default)]
pub(super) struct ContentionQueue {
    waiting: Vec<(u32, ContentionAttempts)>,
    /// Number of stations per opportunity of a frame.
    attempts: Vec<u32>,
}

/// Outcome of a frame's opportunities.
#[derive(Debug, Default)]
pub(super) struct ContentionOutcome {
    /// Stations alone in their opportunity.
    pub(super) successful: Vec<(u32, ContentionAttempts)>,
    /// Stations that collided.
    pub(super) collided: Vec<(u32, ContentionAttempts)>,
}

impl ContentionQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
    pub(super) fn add_station(&mut self, station: u32, series: ContentionAttempts) {
        self.waiting.push((station, series));
    }
    /// Removes a station that needs no opportunity any more.
    pub(super) fn remove_station(&mut self, station: u32) {
        self.waiting.retain(|(s, _)| *s != station);
    }
    /// Advances by a frame with this number of opportunities.
    pub(super) fn advance_contention_frame(&mut self, opportunities: u32, outcome: &mut ContentionOutcome) {
        outcome.successful.clear();
        outcome.collided.clear();
        self.attempts.clear();
        self.attempts.resize(opportunities as usize, 0);
        let taken = &mut self.attempts;
        let mut sent = Vec::new();
        self.waiting.retain_mut(|(station, series)| match taken.get_mut(series.defer as usize) {
            Some(place) => {
                *place += 1;
                sent.push((*station, *series));
                false
            }
            None => {
                series.defer -= opportunities;
                true
            }
        });
        for (station, series) in sent {
            let alone = taken[series.defer as usize] == 1;
            let to = if alone { &mut outcome.successful } else { &mut outcome.collided };
            to.push((station, series));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn windows_double_up_to_the_last() {
        let policy = ContentionBackoffConfig { start: 2, end: 4, tries: 5 };
        let mut rng = Seed::new(1).derive_rng("backoff", 0);
        let mut largest = [0; 5];
        for _ in 0..2000 {
            let mut series = ContentionAttempts::default();
            for largest in &mut largest {
                series = series.next_attempt(&policy, &mut rng).unwrap();
                *largest = series.defer.max(*largest);
            }
            assert_eq!(series.next_attempt(&policy, &mut rng), None);
        }
        assert_eq!(largest, [3, 7, 15, 15, 15]);
    }

    #[test]
    fn two_in_one_opportunity_are_both_lost() {
        let mut contention = ContentionQueue::default();
        let at = |defer| ContentionAttempts { tries: 1, defer };
        for (station, defer) in [(0, 1), (1, 2), (2, 1), (3, 5), (4, 9)] {
            contention.add_station(station, at(defer));
        }
        let mut outcome = ContentionOutcome::default();
        contention.advance_contention_frame(4, &mut outcome);
        assert_eq!(outcome.successful, [(1, at(2))]);
        assert_eq!(outcome.collided, [(0, at(1)), (2, at(1))]);
        contention.advance_contention_frame(4, &mut outcome);
        assert_eq!((&outcome.successful[..], outcome.collided.len()), (&[(3, at(1))][..], 0));
        contention.advance_contention_frame(4, &mut outcome);
        assert_eq!(outcome.successful, [(4, at(1))]);
        assert!(contention.is_empty());
    }
}
