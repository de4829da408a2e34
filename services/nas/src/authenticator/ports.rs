//! What a NAS knows of each station: in a session, let in, turned away, or nothing.

use crate::station_id::StationId;
use usher_core::Instant;
use usher_core::collections::{HashMap, HashState};
use usher_core::timer::TimerQueue;

/// Where a station stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    /// In the session of this token; whoever is in meanwhile is so until this time, where there is one.
    Running(u64, Option<Instant>),
    /// Let in, until a time where there is one.
    In(Option<Instant>),
    /// Let in; at that time it is to be authenticated again.
    Again(Instant),
    /// Turned away, and unheard until then.
    Quiet(Instant),
}

impl Status {
    /// Whether the station is in, and in no session.
    pub(super) const fn is_in(self) -> bool {
        matches!(self, Self::In(_) | Self::Again(_))
    }
    const fn until(self) -> Option<Instant> {
        match self {
            Self::Running(_, until) | Self::In(until) => until,
            Self::Again(until) | Self::Quiet(until) => Some(until),
        }
    }
}

#[derive(Debug)]
pub(super) struct Ports {
    by_station: HashMap<StationId, Status>,
    timers: TimerQueue<StationId>,
    running: usize,
}

impl Ports {
    pub(super) fn new(hasher: HashState) -> Self {
        Self { by_station: HashMap::with_hasher(hasher), timers: TimerQueue::new(), running: 0 }
    }
    pub(super) fn get(&self, station: StationId) -> Option<Status> {
        self.by_station.get(&station).copied()
    }
    /// Stations known that are in no session.
    pub(super) fn remembered(&self) -> usize {
        self.by_station.len() - self.running
    }
    pub(super) fn set(&mut self, station: StationId, status: Status) {
        if let Some(until) = status.until() {
            self.timers.insert(until, station);
        }
        self.running += usize::from(matches!(status, Status::Running(..)));
        if let Some(before) = self.by_station.insert(station, status) {
            self.left(station, before);
        }
    }
    pub(super) fn remove(&mut self, station: StationId) -> Option<Status> {
        let before = self.by_station.remove(&station)?;
        self.left(station, before);
        Some(before)
    }
    fn left(&mut self, station: StationId, before: Status) {
        if let Some(until) = before.until()
            && self.by_station.get(&station).copied().and_then(Status::until) != Some(until)
        {
            self.timers.remove(until, station);
        }
        self.running -= usize::from(matches!(before, Status::Running(..)));
    }
    pub(super) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }
    /// Forgets a station whose time has come, and says where it stood.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(StationId, Status)> {
        let (_, station) = self.timers.pop_due(now)?;
        self.remove(station).map(|status| (station, status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    fn t(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn a_status_takes_its_predecessors_timer_along() {
        let mut rng = Seed::new(1).secure("ports", 0);
        let mut ports = Ports::new(usher_core::collections::hash_state(&mut rng));
        let (a, b) = (StationId::Host(1), StationId::Host(2));
        ports.set(a, Status::Quiet(t(5)));
        ports.set(b, Status::In(Some(t(7))));
        assert_eq!((ports.next(), ports.remembered()), (Some(t(5)), 2));
        ports.set(a, Status::Running(9, None));
        assert_eq!((ports.next(), ports.remembered()), (Some(t(7)), 1));
        ports.set(b, Status::Quiet(t(7)));
        assert_eq!(ports.pop_due(t(6)), None);
        assert_eq!(ports.pop_due(t(7)), Some((b, Status::Quiet(t(7)))));
        assert_eq!(ports.remove(a), Some(Status::Running(9, None)));
        assert_eq!((ports.next(), ports.remembered(), ports.get(a)), (None, 0, None));
        ports.set(a, Status::In(Some(t(9))));
        ports.set(a, Status::Running(9, Some(t(9))));
        ports.set(a, Status::Running(10, Some(t(9))));
        assert_eq!((ports.next(), ports.remembered()), (Some(t(9)), 0));
        assert_eq!(ports.pop_due(t(9)), Some((a, Status::Running(10, Some(t(9))))));
        assert_eq!((ports.next(), ports.remembered(), ports.get(a)), (None, 0, None));
    }
}
