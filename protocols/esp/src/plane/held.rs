//! Packets that wait for an SA.

use super::Config;
use crate::counters::Counters;
use crate::policy::PolicyId;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::collections::{HashMap, HashState};
use usher_core::{Duration, Instant};

/// A packet that waits: for which policy, since when.
type Waiting = (PolicyId, Instant, Vec<u8>);

#[derive(Debug)]
pub(super) struct Held {
    packets: VecDeque<Waiting>,
    octets: usize,
    most_packets: usize,
    most_octets: usize,
    patience: Duration,
    /// When an SA was asked for.
    asked: HashMap<PolicyId, Instant>,
    /// What need not wait any more.
    pub(super) released: VecDeque<Vec<u8>>,
}

impl Held {
    pub(super) fn new(config: &Config, state: HashState) -> Self {
        Self {
            packets: VecDeque::new(),
            octets: 0,
            most_packets: config.held_packets,
            most_octets: config.held_octets,
            patience: config.patience,
            asked: HashMap::with_hasher(state),
            released: VecDeque::new(),
        }
    }
    /// Whether an SA is to be asked for now.
    pub(super) fn asks(&mut self, policy: PolicyId, now: Instant, again: Duration) -> bool {
        let asks = self.asked.get(&policy).is_none_or(|at| now.since(*at) >= again);
        if asks {
            self.asked.insert(policy, now);
        }
        asks
    }
    /// An SA of the policy is there.
    pub(super) fn arrived(&mut self, policy: PolicyId) {
        self.asked.remove(&policy);
    }
    /// There will be none.
    pub(super) fn abandon(&mut self, policy: PolicyId, counters: &mut Counters) {
        self.asked.remove(&policy);
        let before = self.packets.len();
        self.packets.retain(|(of, ..)| *of != policy);
        self.octets = self.packets.iter().map(|(.., packet)| packet.len()).sum();
        counters.not_held += (before - self.packets.len()) as u64;
    }
    pub(super) fn keep(&mut self, policy: PolicyId, at: Instant, packet: Vec<u8>) {
        self.octets += packet.len();
        self.packets.push_back((policy, at, packet));
    }
    /// Drops what is too much, the oldest first.
    pub(super) fn bound(&mut self, counters: &mut Counters) {
        while self.packets.len() > self.most_packets || self.octets > self.most_octets {
            self.drop_first(counters);
        }
    }
    /// Drops what has waited too long.
    pub(super) fn expire(&mut self, now: Instant, counters: &mut Counters) {
        while self.packets.front().is_some_and(|(_, at, _)| now.since(*at) > self.patience) {
            self.drop_first(counters);
        }
    }
    fn drop_first(&mut self, counters: &mut Counters) {
        if let Some((.., packet)) = self.packets.pop_front() {
            self.octets -= packet.len();
            counters.not_held += 1;
        }
    }
    /// All that wait, in their order.
    pub(super) fn take(&mut self, now: Instant, counters: &mut Counters) -> VecDeque<Waiting> {
        self.expire(now, counters);
        self.octets = 0;
        core::mem::take(&mut self.packets)
    }
}
