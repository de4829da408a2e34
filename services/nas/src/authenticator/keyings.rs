//! The key exchanges of an 802.16 base station, one for each admitted station.

use crate::station_id::StationId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::timer::TimerQueue;
use usher_core::{Instant, LinkLayerPortId, OutputQueue, Transmit};
use usher_pkm::keying::{BaseStationKeying, KeyingCounters, KeyingEvent};

/// A key exchange and its armed timer.
#[derive(Debug)]
struct PkmKeyExchange {
    base: BaseStationKeying,
    due: Option<Instant>,
}

/// The key exchanges. Each stays while its station is admitted, since a Key-Request can arrive again.
#[derive(Debug, Default)]
pub(super) struct PkmKeyExchangeTable {
    by_station: BTreeMap<StationId, PkmKeyExchange>,
    timers: TimerQueue<StationId>,
    /// Counters of removed exchanges.
    removed_counters: KeyingCounters,
}

impl PkmKeyExchangeTable {
    pub(super) fn insert(&mut self, station: StationId, base: BaseStationKeying) {
        self.remove(station);
        self.by_station.insert(station, PkmKeyExchange { base, due: None });
    }
    pub(super) fn remove(&mut self, station: StationId) {
        if let Some(PkmKeyExchange { base, due }) = self.by_station.remove(&station) {
            self.removed_counters.add(base.counters());
            if let Some(at) = due {
                self.timers.remove(at, station);
            }
        }
    }
    pub(super) fn len(&self) -> usize {
        self.by_station.len()
    }
    pub(super) fn counters(&self) -> KeyingCounters {
        let mut sum = self.removed_counters;
        self.by_station.values().for_each(|k| sum.add(k.base.counters()));
        sum
    }
    /// Passes a message to a station's exchange. False if there is none.
    pub(super) fn handle_message(&mut self, now: Instant, station: StationId, message: &[u8]) -> bool {
        let Some(keying) = self.by_station.get_mut(&station) else { return false };
        keying.base.handle_message(now, message);
        true
    }
    /// Runs the next due timer and returns its station.
    pub(super) fn run_next_due_timer(&mut self, now: Instant) -> Option<StationId> {
        let (_, station) = self.timers.pop_due(now)?;
        if let Some(keying) = self.by_station.get_mut(&station) {
            keying.due = None;
            keying.base.handle_timeout(now);
        }
        Some(station)
    }
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.next_deadline()
    }
    /// Drains an exchange: `carry` writes its messages as frames, and its events are returned. Arms its timer.
    pub(super) fn drain_key_exchange(
        &mut self,
        station: StationId,
        outputs: &mut OutputQueue<super::AuthenticatorEvent>,
        port: LinkLayerPortId,
        carry: impl Fn(&mut Vec<u8>, &[u8]),
    ) -> Option<KeyingEvent> {
        let keying = self.by_station.get_mut(&station)?;
        let mut message = Vec::new();
        while keying.base.poll_transmit(&mut message) {
            let mut frame = outputs.take_buffer();
            carry(&mut frame, &message);
            outputs.push_transmit(Transmit::Frame { port }, frame);
        }
        while let Some(done) = keying.base.poll_work() {
            outputs.push_work(done);
        }
        let due = keying.base.poll_timeout();
        if due != keying.due {
            if let Some(at) = keying.due {
                self.timers.remove(at, station);
            }
            if let Some(at) = due {
                self.timers.insert(at, station);
            }
            keying.due = due;
        }
        keying.base.poll_event()
    }
}
