//! The status of each station: in a session, admitted, rejected, or unknown.

use crate::station_id::StationId;
use usher_core::Instant;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::timer::TimerQueue;

/// The status of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StationStatus {
    /// In the session of this token. An admitted station keeps its access until this time, if there is one.
    Running(u64, Option<Instant>),
    /// Admitted, until this time if there is one.
    In(Option<Instant>),
    /// Admitted, with a reauthentication at this time.
    ReauthenticateAt(Instant),
    /// Rejected, and ignored until this time.
    Quiet(Instant),
}

impl StationStatus {
    /// True if the station is admitted and in no session.
    pub(super) const fn is_in(self) -> bool {
        matches!(self, Self::In(_) | Self::ReauthenticateAt(_))
    }
    const fn station_status_end(self) -> Option<Instant> {
        match self {
            Self::Running(_, until) | Self::In(until) => until,
            Self::ReauthenticateAt(until) | Self::Quiet(until) => Some(until),
        }
    }
}

#[derive(Debug)]
pub(super) struct StationStatusTable {
    by_station: HashMap<StationId, StationStatus>,
    timers: TimerQueue<StationId>,
    running: usize,
}

impl StationStatusTable {
    pub(super) fn new(hasher: SeededHashState) -> Self {
        Self { by_station: HashMap::with_hasher(hasher), timers: TimerQueue::new(), running: 0 }
    }
    pub(super) fn get(&self, station: StationId) -> Option<StationStatus> {
        self.by_station.get(&station).copied()
    }
    /// Returns the number of known stations outside a session.
    pub(super) fn remembered_station_count(&self) -> usize {
        self.by_station.len() - self.running
    }
    pub(super) fn set_status(&mut self, station: StationId, status: StationStatus) {
        if let Some(until) = status.station_status_end() {
            self.timers.insert(until, station);
        }
        self.running += usize::from(matches!(status, StationStatus::Running(..)));
        if let Some(before) = self.by_station.insert(station, status) {
            self.clear_previous_status(station, before);
        }
    }
    pub(super) fn remove(&mut self, station: StationId) -> Option<StationStatus> {
        let before = self.by_station.remove(&station)?;
        self.clear_previous_status(station, before);
        Some(before)
    }
    fn clear_previous_status(&mut self, station: StationId, before: StationStatus) {
        if let Some(until) = before.station_status_end()
            && self.by_station.get(&station).copied().and_then(StationStatus::station_status_end)
                != Some(until)
        {
            self.timers.remove(until, station);
        }
        self.running -= usize::from(matches!(before, StationStatus::Running(..)));
    }
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
    /// Removes a station whose time has come and returns its last status.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(StationId, StationStatus)> {
        let (_, station) = self.timers.pop_due(now)?;
        self.remove(station).map(|status| (station, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    fn time_at(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn a_status_takes_its_predecessors_timer_along() {
        let mut rng = Seed::new(1).derive_secure_rng("ports", 0);
        let mut ports = StationStatusTable::new(usher_core::collections::hash_state(&mut rng));
        let (a, b) = (StationId::Host(1), StationId::Host(2));
        ports.set_status(a, StationStatus::Quiet(time_at(5)));
        ports.set_status(b, StationStatus::In(Some(time_at(7))));
        assert_eq!((ports.next_timeout(), ports.remembered_station_count()), (Some(time_at(5)), 2));
        ports.set_status(a, StationStatus::Running(9, None));
        assert_eq!((ports.next_timeout(), ports.remembered_station_count()), (Some(time_at(7)), 1));
        ports.set_status(b, StationStatus::Quiet(time_at(7)));
        assert_eq!(ports.pop_due(time_at(6)), None);
        assert_eq!(ports.pop_due(time_at(7)), Some((b, StationStatus::Quiet(time_at(7)))));
        assert_eq!(ports.remove(a), Some(StationStatus::Running(9, None)));
        assert_eq!((ports.next_timeout(), ports.remembered_station_count(), ports.get(a)), (None, 0, None));
        ports.set_status(a, StationStatus::In(Some(time_at(9))));
        ports.set_status(a, StationStatus::Running(9, Some(time_at(9))));
        ports.set_status(a, StationStatus::Running(10, Some(time_at(9))));
        assert_eq!((ports.next_timeout(), ports.remembered_station_count()), (Some(time_at(9)), 0));
        assert_eq!(ports.pop_due(time_at(9)), Some((a, StationStatus::Running(10, Some(time_at(9))))));
        assert_eq!((ports.next_timeout(), ports.remembered_station_count(), ports.get(a)), (None, 0, None));
    }
}
