//! What falls due at a station.

use super::super::arrivals::ArrivalProcess;
use usher_core::{Instant, ModelRng};

/// What one station has to do: authentications that fell due, one of them under way.
#[derive(Debug)]
pub(super) struct StationAgenda {
    arrivals: ArrivalProcess,
    rng: ModelRng,
    /// Share of authentications that use wrong credentials.
    wrong: f64,
    /// How many fell due while the station was busy.
    waiting: u64,
    /// When the one that is under way began.
    pub(super) busy: Option<Instant>,
}

impl StationAgenda {
    pub(super) fn new(arrivals: ArrivalProcess, rng: ModelRng, wrong: f64) -> Self {
        Self { arrivals, rng, wrong, waiting: 0, busy: None }
    }

    /// Takes what is due at `now`; answers whether an authentication begins, and with which credentials
    /// (true: the right ones).
    pub(super) fn start_due(&mut self, now: Instant) -> Option<bool> {
        while self.arrivals.take_arrival(now) {
            self.waiting += 1;
        }
        if self.busy.is_some() {
            return None;
        }
        self.waiting = self.waiting.checked_sub(1)?;
        self.busy = Some(now);
        Some(self.uses_right_credentials())
    }

    /// Whether a try uses the right credentials.
    pub(super) fn uses_right_credentials(&mut self) -> bool {
        !(self.wrong > 0.0 && self.rng.sample_bool(self.wrong))
    }

    /// The authentication under way has ended; answers when it had begun.
    pub(super) fn finish_authentication(&mut self, now: Instant) -> Option<Instant> {
        let began = self.busy.take()?;
        self.arrivals.finish_dialogue(now);
        Some(began)
    }

    /// When something falls due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.arrivals.next_arrival()
    }
}
