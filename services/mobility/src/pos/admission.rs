//! A network's resources: a limit of stations, attached or reserved.

use alloc::collections::{BTreeMap, BTreeSet};
use usher_core::{Duration, Instant};
use usher_mih::MihfId;

/// The stations that use or reserve a network's resources.
#[derive(Clone, Debug)]
pub struct StationAdmissionTable {
    capacity: usize,
    reserve: Duration,
    attached: BTreeSet<MihfId>,
    reserved: BTreeMap<MihfId, Instant>,
}

impl StationAdmissionTable {
    /// Creates the resources of `capacity` stations. A reservation expires after `reserve`.
    #[must_use]
    pub const fn new(capacity: u32, reserve: Duration) -> Self {
        Self { capacity: capacity as usize, reserve, attached: BTreeSet::new(), reserved: BTreeMap::new() }
    }
    /// Returns the number of attached stations.
    #[must_use]
    pub fn attached_station_count(&self) -> usize {
        self.attached.len()
    }
    /// Returns the number of reservations.
    #[must_use]
    pub fn reserved_station_count(&self) -> usize {
        self.reserved.len()
    }
    /// True if the station has a reservation.
    #[must_use]
    pub fn is_reserved(&self, station: &MihfId) -> bool {
        self.reserved.contains_key(station)
    }
    /// True if there is room for the station, or it already has resources.
    #[must_use]
    pub fn has_room(&self, station: &MihfId) -> bool {
        self.attached.contains(station)
            || self.reserved.contains_key(station)
            || self.attached.len() + self.reserved.len() < self.capacity
    }
    /// Makes or extends a station's reservation. False if there is no room.
    pub fn reserve_for_station(&mut self, now: Instant, station: &MihfId) -> bool {
        let room = self.has_room(station);
        if room && !self.attached.contains(station) {
            self.reserved.insert(station.clone(), now + self.reserve);
        }
        room
    }
    /// Attaches a station, even without room, because its link is already up.
    pub fn attach_station(&mut self, station: &MihfId) {
        self.reserved.remove(station);
        self.attached.insert(station.clone());
    }
    /// Removes a station.
    pub fn remove_station(&mut self, station: &MihfId) {
        self.reserved.remove(station);
        self.attached.remove(station);
    }
    /// Returns when the next reservation expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.reserved.values().min().copied()
    }
    /// Removes expired reservations and returns their number.
    pub fn expire_reservations(&mut self, now: Instant) -> u64 {
        let before = self.reserved.len();
        self.reserved.retain(|_, until| *until > now);
        (before - self.reserved.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mihf_id(name: &str) -> MihfId {
        MihfId::new(name).unwrap()
    }
    fn at_seconds(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }

    #[test]
    fn a_reservation_holds_a_place_until_it_expires() {
        let mut admission = StationAdmissionTable::new(1, Duration::from_secs(5));
        assert!(admission.reserve_for_station(at_seconds(0), &mihf_id("a")));
        assert!(!admission.reserve_for_station(at_seconds(0), &mihf_id("b")));
        assert!(admission.has_room(&mihf_id("a")) && !admission.has_room(&mihf_id("b")));
        assert!(admission.reserve_for_station(at_seconds(2), &mihf_id("a")));
        assert_eq!(admission.next_expiry(), Some(at_seconds(7)));
        assert_eq!(
            (admission.expire_reservations(at_seconds(6)), admission.expire_reservations(at_seconds(7))),
            (0, 1)
        );
        assert!(admission.reserve_for_station(at_seconds(7), &mihf_id("b")));
        assert_eq!((admission.attached_station_count(), admission.reserved_station_count()), (0, 1));
    }

    #[test]
    fn a_station_that_came_needs_no_reservation() {
        let mut admission = StationAdmissionTable::new(1, Duration::from_secs(5));
        assert!(admission.reserve_for_station(at_seconds(0), &mihf_id("a")));
        admission.attach_station(&mihf_id("a"));
        assert_eq!(
            (admission.attached_station_count(), admission.reserved_station_count(), admission.next_expiry()),
            (1, 0, None)
        );
        assert!(admission.reserve_for_station(at_seconds(0), &mihf_id("a")));
        assert_eq!(admission.reserved_station_count(), 0);
        assert!(!admission.has_room(&mihf_id("b")));
        admission.remove_station(&mihf_id("a"));
        assert!(admission.has_room(&mihf_id("b")));
    }
}
