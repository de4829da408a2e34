//! The data plane of a simulated concentrator.

use std::collections::{BTreeMap, BTreeSet};
use usher_concentrator::{SessionEntry, SessionUsage};
use usher_core::{Duration, Instant, WorkLabel, WorkRecord};
use usher_ppp::pppoe::MacAddress;
use usher_scenario::work::{FORWARD, PPPOE_FROM_HOST, PPPOE_TO_HOST};
use usher_sim::{HostId, TransitPacket};

/// The burst of a rate limit, as in the live data planes; it has a minimum in octets.
const BURST: Duration = Duration::from_millis(100);
const LEAST_BURST: f64 = 131_072.0;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    /// Octets per second.
    rate: f64,
    tokens: f64,
    updated_at: Instant,
}

impl TokenBucket {
    fn new(bits_per_second: u64, now: Instant) -> Self {
        let mut bucket = Self { rate: bits_per_second as f64 / 8.0, tokens: 0.0, updated_at: now };
        bucket.tokens = bucket.token_burst_limit();
        bucket
    }
    fn token_burst_limit(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).max(LEAST_BURST)
    }
    fn refill_and_take_tokens(&mut self, now: Instant, octets: u32) -> bool {
        self.tokens = (self.tokens + self.rate * now.duration_since(self.updated_at).as_secs_f64())
            .min(self.token_burst_limit());
        self.updated_at = now;
        let fits = self.tokens >= f64::from(octets);
        if fits {
            self.tokens -= f64::from(octets);
        }
        fits
    }
}

#[derive(Debug)]
struct CarriedSession {
    id: u64,
    number: u16,
    rates: [Option<(u64, TokenBucket)>; 2],
    usage: SessionUsage,
}

/// The installed sessions, whose packets may pass.
#[derive(Debug, Default)]
pub(super) struct SessionDataPlane {
    /// The hosts whose packets need a session, with their Ethernet addresses.
    stations: BTreeMap<HostId, MacAddress>,
    open: BTreeMap<MacAddress, CarriedSession>,
    /// Sessions with traffic since the last report.
    moved: BTreeSet<MacAddress>,
}

impl SessionDataPlane {
    /// Creates a data plane without sessions; packets from and to these hosts need one.
    pub(super) fn new(stations: BTreeMap<HostId, MacAddress>) -> Self {
        Self { stations, ..Self::default() }
    }

    /// Removes all sessions.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.moved.clear();
    }

    /// Installs or updates a session.
    pub(super) fn install_session(&mut self, now: Instant, entry: &SessionEntry) {
        let before = self.open.remove(&entry.peer).filter(|open| open.id == entry.id);
        let rates = [entry.rate_up, entry.rate_down];
        let kept = before.as_ref().map(|open| open.rates);
        let rate = |i: usize| {
            let wanted = rates[i]?;
            let same = kept.and_then(|kept| kept[i]).filter(|(rate, _)| *rate == wanted);
            Some(same.unwrap_or_else(|| (wanted, TokenBucket::new(wanted, now))))
        };
        let usage = before.map(|open| open.usage).unwrap_or_default();
        let open = CarriedSession { id: entry.id, number: entry.number, rates: [rate(0), rate(1)], usage };
        self.open.insert(entry.peer, open);
    }

    /// Removes a session and returns its usage.
    pub(super) fn remove_session(&mut self, id: u64) -> Option<SessionUsage> {
        let peer = self.open.iter().find(|(_, open)| open.id == id).map(|(peer, _)| *peer)?;
        self.moved.remove(&peer);
        self.open.remove(&peer).map(|open| open.usage)
    }

    /// Returns the total usage of sessions with traffic since the last call.
    pub(super) fn take_active_session_usage(&mut self) -> Vec<(u16, SessionUsage)> {
        let moved = core::mem::take(&mut self.moved);
        moved.iter().filter_map(|peer| self.open.get(peer)).map(|open| (open.number, open.usage)).collect()
    }

    /// Returns the work of carrying a packet; `None` if it must not pass.
    pub(super) fn carry_session_packet(
        &mut self,
        now: Instant,
        packet: &TransitPacket,
    ) -> Option<WorkRecord> {
        let work = |label: WorkLabel| WorkRecord { label, units: 1 };
        let from = self.stations.get(&packet.source()).copied();
        let to = self.stations.get(&packet.destination()).copied();
        if let Some(station) = from {
            self.charge_session_traffic(now, station, 0, packet.length())?;
        }
        if let Some(station) = to {
            self.charge_session_traffic(now, station, 1, packet.length())?;
        }
        Some(work(match (from, to) {
            (None, None) => FORWARD,
            (Some(_), _) => PPPOE_FROM_HOST,
            (None, Some(_)) => PPPOE_TO_HOST,
        }))
    }

    fn charge_session_traffic(
        &mut self,
        now: Instant,
        station: MacAddress,
        way: usize,
        octets: u32,
    ) -> Option<()> {
        let open = self.open.get_mut(&station)?;
        if let Some((_, bucket)) = &mut open.rates[way]
            && !bucket.refill_and_take_tokens(now, octets)
        {
            open.usage.limited += 1;
            return None;
        }
        let usage = &mut open.usage;
        let (all, packets) = match way {
            0 => (&mut usage.octets_in, &mut usage.packets_in),
            _ => (&mut usage.octets_out, &mut usage.packets_out),
        };
        *all += u64::from(octets);
        *packets += 1;
        self.moved.insert(station);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_keeps_its_rate() {
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        // 8 Mb/s are 1000 octets a millisecond; the burst is 131,072.
        let mut bucket = TokenBucket::new(8_000_000, at(0));
        assert!(bucket.refill_and_take_tokens(at(0), 131_072) && !bucket.refill_and_take_tokens(at(0), 1));
        assert!(bucket.refill_and_take_tokens(at(2), 2000) && !bucket.refill_and_take_tokens(at(2), 1));
        assert!(
            bucket.refill_and_take_tokens(at(10_000), 131_072)
                && !bucket.refill_and_take_tokens(at(10_000), 1),
            "no more is saved up"
        );
    }
}
