//! Statistics besides the machine's counters. Each shard counts in its thread, and they are collected on demand.

use crate::homes::{self, HomeServers};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use usher_live::DriverCounterSnapshot;
use usher_radius::server::LatestDropSources;

/// Upper bounds of the latency classes in seconds: 100 µs to 30 s.
pub(crate) const BOUNDS: [f64; 14] =
    [0.0001, 0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0];

/// A histogram of latencies.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct LatencyHistogram {
    /// Counts by class. The last is beyond all bounds.
    pub(crate) classes: [u64; BOUNDS.len() + 1],
    /// Sum in seconds.
    pub(crate) sum: f64,
}

impl LatencyHistogram {
    pub(crate) fn add(&mut self, seconds: f64) {
        let class = BOUNDS.iter().position(|b| seconds <= *b).unwrap_or(BOUNDS.len());
        self.classes[class] += 1;
        self.sum += seconds;
    }
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.classes.iter_mut().zip(other.classes) {
            *mine += theirs;
        }
        self.sum += other.sum;
    }
}

/// A histogram that several threads update.
#[derive(Debug, Default)]
pub(crate) struct SharedHistogram(Mutex<LatencyHistogram>);

impl SharedHistogram {
    pub(crate) fn add(&self, time: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(time.as_secs_f64());
    }
    pub(crate) fn read(&self) -> LatencyHistogram {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a login.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LoginResult {
    Accept,
    Reject,
    /// No verdict.
    None,
}

impl LoginResult {
    /// Returns its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::None => "none",
        }
    }
}

/// Statistics of a shard, or of all together.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ShardSnapshot {
    /// Requests by client's name and code.
    pub(crate) requests: BTreeMap<(String, u8), u64>,
    /// Ended logins by method, inner method, result, and reject cause (empty without).
    pub(crate) logins: BTreeMap<(&'static str, String, LoginResult, &'static str), u64>,
    /// Time from a login's first request to its verdict.
    pub(crate) latency: LatencyHistogram,
    /// Evicted half-open logins by client's name.
    pub(crate) evicted: BTreeMap<String, u64>,
    /// Counters of the machine, of its parts if it has them, and of its driver.
    pub(crate) aaa: usher_aaa::AaaServerCounters,
    pub(crate) radius: Option<usher_radius::server::RadiusServerCounters>,
    /// Sources of recently dropped RADIUS packets.
    pub(crate) drop_sources: LatestDropSources,
    pub(crate) diameter: Option<usher_diameter::node::DiameterNodeCounters>,
    pub(crate) driver: DriverCounterSnapshot,
    /// Number of half-open logins.
    pub(crate) half_open: u64,
    /// Home servers.
    pub(crate) homes: HomeServers,
    /// Diameter peers to which this server connects. True: requests go to them.
    pub(crate) diameter_servers: BTreeMap<String, bool>,
    /// Number of connected Diameter peers.
    pub(crate) diameter_peers: u64,
    /// Octets of half-open logins.
    pub(crate) half_open_octets: u64,
    /// Requests passed to another shard.
    pub(crate) diverted: u64,
    /// Requests for another shard whose mailbox was full.
    pub(crate) not_diverted: u64,
    /// Units of work by label.
    pub(crate) work: BTreeMap<&'static str, u64>,
}

impl ShardSnapshot {
    pub(crate) fn merge(&mut self, other: Self) {
        for (key, n) in other.requests {
            *self.requests.entry(key).or_default() += n;
        }
        for (key, n) in other.logins {
            *self.logins.entry(key).or_default() += n;
        }
        self.latency.merge(&other.latency);
        for (client, n) in other.evicted {
            *self.evicted.entry(client).or_default() += n;
        }
        self.aaa.add(&other.aaa);
        if let Some(counters) = other.radius {
            self.radius.get_or_insert_default().add(&counters);
        }
        self.drop_sources.merge_counters_by_maximum(&other.drop_sources);
        if let Some(counters) = other.diameter {
            self.diameter.get_or_insert_default().add(&counters);
        }
        self.driver.add(&other.driver);
        homes::merge_home_server_views(&mut self.homes, other.homes);
        self.diameter_servers.extend(other.diameter_servers);
        self.half_open += other.half_open;
        self.diameter_peers += other.diameter_peers;
        self.half_open_octets += other.half_open_octets;
        self.diverted += other.diverted;
        self.not_diverted += other.not_diverted;
        for (label, units) in other.work {
            *self.work.entry(label).or_default() += units;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_first_class_that_holds_it() {
        let mut h = LatencyHistogram::default();
        for seconds in [0.0001, 0.000_11, 30.0, 31.0] {
            h.add(seconds);
        }
        assert_eq!((h.classes[0], h.classes[1], h.classes[13], h.classes[14]), (1, 1, 1, 1));
        let mut sum = h;
        sum.merge(&h);
        assert_eq!((sum.classes[14], sum.sum), (2, 2.0 * h.sum));
    }
}
