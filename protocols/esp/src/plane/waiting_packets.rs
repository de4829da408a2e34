//! Packets that wait for an SA.

use super::EspDataPlaneConfig;
use crate::counters::EspCounters;
use crate::policy::SecurityPolicyId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::{Duration, Instant};

/// A queued packet: its policy, its arrival and its octets.
type QueuedPacket = (SecurityPolicyId, Instant, Vec<u8>);

#[derive(Debug)]
pub(super) struct PacketQueue {
    packets: VecDeque<QueuedPacket>,
    octets: usize,
    most_packets: usize,
    most_octets: usize,
    queue_timeout: Duration,
    /// The time of the last acquire of each policy.
    requested_at: HashMap<SecurityPolicyId, Instant>,
    /// Packets that need not wait any more.
    pub(super) released: VecDeque<Vec<u8>>,
}

impl PacketQueue {
    pub(super) fn new(config: &EspDataPlaneConfig, state: SeededHashState) -> Self {
        Self {
            packets: VecDeque::new(),
            octets: 0,
            most_packets: config.max_queued_packets,
            most_octets: config.max_queued_octets,
            queue_timeout: config.queue_timeout,
            requested_at: HashMap::with_hasher(state),
            released: VecDeque::new(),
        }
    }
    /// True if an SA is to be requested now.
    pub(super) fn record_sa_request_if_due(
        &mut self,
        policy: SecurityPolicyId,
        now: Instant,
        again: Duration,
    ) -> bool {
        let asks = self.requested_at.get(&policy).is_none_or(|at| now.duration_since(*at) >= again);
        if asks {
            self.requested_at.insert(policy, now);
        }
        asks
    }
    /// Records that the policy has an SA.
    pub(super) fn clear_sa_request(&mut self, policy: SecurityPolicyId) {
        self.requested_at.remove(&policy);
    }
    /// Drops the packets of a policy that will get no SA.
    pub(super) fn abandon_policy(&mut self, policy: SecurityPolicyId, counters: &mut EspCounters) {
        self.requested_at.remove(&policy);
        let before = self.packets.len();
        self.packets.retain(|(of, ..)| *of != policy);
        self.octets = self.packets.iter().map(|(.., packet)| packet.len()).sum();
        counters.queue_dropped += (before - self.packets.len()) as u64;
    }
    pub(super) fn push_packet(&mut self, policy: SecurityPolicyId, at: Instant, packet: Vec<u8>) {
        self.octets += packet.len();
        self.packets.push_back((policy, at, packet));
    }
    /// Drops packets beyond the limits, the oldest first.
    pub(super) fn drop_excess_packets(&mut self, counters: &mut EspCounters) {
        while self.packets.len() > self.most_packets || self.octets > self.most_octets {
            self.drop_oldest_packet(counters);
        }
    }
    /// Drops packets that have waited too long.
    pub(super) fn drop_expired_packets(&mut self, now: Instant, counters: &mut EspCounters) {
        while self.packets.front().is_some_and(|(_, at, _)| now.duration_since(*at) > self.queue_timeout) {
            self.drop_oldest_packet(counters);
        }
    }
    fn drop_oldest_packet(&mut self, counters: &mut EspCounters) {
        if let Some((.., packet)) = self.packets.pop_front() {
            self.octets -= packet.len();
            counters.queue_dropped += 1;
        }
    }
    /// Takes all queued packets, in order.
    pub(super) fn take_packets(
        &mut self,
        now: Instant,
        counters: &mut EspCounters,
    ) -> VecDeque<QueuedPacket> {
        self.drop_expired_packets(now, counters);
        self.octets = 0;
        core::mem::take(&mut self.packets)
    }
}
