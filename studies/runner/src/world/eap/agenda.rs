//! The authentications due at a station.

use super::super::arrivals::ArrivalProcess;
use usher_core::{Instant, SimulationRng};

/// A station's authentications: those that are due, and the running one.
#[derive(Debug)]
pub(super) struct StationLoginSchedule {
    arrivals: ArrivalProcess,
    rng: SimulationRng,
    /// Share of authentications with wrong credentials.
    wrong: f64,
    /// Number of authentications that fell due while the station was busy.
    waiting: u64,
    /// Start of the running authentication.
    pub(super) busy: Option<Instant>,
}

impl StationLoginSchedule {
    pub(super) fn new(arrivals: ArrivalProcess, rng: SimulationRng, wrong: f64) -> Self {
        Self { arrivals, rng, wrong, waiting: 0, busy: None }
    }

    /// Takes an authentication due at `now`. Returns whether it uses the right credentials; `None` if none begins.
    pub(super) fn start_due(&mut self, now: Instant) -> Option<bool> {
        while self.arrivals.take_due_arrival(now) {
            self.waiting += 1;
        }
        if self.busy.is_some() {
            return None;
        }
        self.waiting = self.waiting.checked_sub(1)?;
        self.busy = Some(now);
        Some(self.uses_right_credentials())
    }

    /// Draws whether an attempt uses the right credentials.
    pub(super) fn uses_right_credentials(&mut self) -> bool {
        !(self.wrong > 0.0 && self.rng.sample_bool(self.wrong))
    }

    /// Ends the running authentication and returns its start.
    pub(super) fn finish_authentication(&mut self, now: Instant) -> Option<Instant> {
        let began = self.busy.take()?;
        self.arrivals.finish_dialogue(now);
        Some(began)
    }

    /// Returns the next due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.arrivals.next_arrival()
    }
}
