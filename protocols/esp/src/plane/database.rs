//! The security association database (RFC 4301 §4.4.2): finds the pair of a packet, inbound and outbound.

use super::{IpsecMode, OuterAddresses, SaPair, SaUsage};
use crate::ip::PacketFlow;
use crate::policy::{SecurityPolicyId, selects_flow};
use crate::sa::{InboundSa, OutboundSa};
use crate::selector::TrafficSelector;
use crate::transform::EspTransformError;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{Instant, SecureRng};

/// An installed pair.
#[derive(Debug)]
pub(super) struct SaPairEntry {
    pub(super) outbound: OutboundSa,
    pub(super) inbound: InboundSa,
    pub(super) mode: IpsecMode,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) outer: OuterAddresses,
    pub(super) policy: Option<SecurityPolicyId>,
    /// The pair that it replaces, and the pair that replaces it.
    replaces: Option<u32>,
    replaced_by: Option<u32>,
    /// True until the peer is known to have it: it sends nothing meanwhile.
    pub(super) waits: bool,
    pub(super) follow: bool,
    pub(super) last_received: Option<Instant>,
    /// The usage at the last report of changes.
    pub(super) reported_usage: SaUsage,
}

impl SaPairEntry {
    pub(super) fn new(pair: &SaPair, seed: [u8; 32]) -> Result<Self, EspTransformError> {
        let (transform, lifetime) = (pair.transform, pair.lifetime);
        Ok(Self {
            outbound: OutboundSa::new(pair.outbound, transform, &pair.outbound_keys, lifetime, seed)?,
            inbound: InboundSa::new(pair.inbound, transform, &pair.inbound_keys, lifetime, pair.window)?,
            mode: pair.mode,
            local: pair.local.clone(),
            remote: pair.remote.clone(),
            outer: pair.outer,
            policy: pair.policy,
            replaces: pair.replaces,
            replaced_by: None,
            waits: pair.after_peer,
            follow: pair.follow,
            last_received: None,
            reported_usage: SaUsage::default(),
        })
    }
    pub(super) fn usage(&self) -> SaUsage {
        let (received, sent) = (self.inbound.volume(), self.outbound.volume());
        SaUsage { received, sent, last_received: self.last_received }
    }
    /// Returns the peer's hosts, if its selectors are a few single addresses.
    fn remote_hosts(&self) -> Option<Vec<IpAddr>> {
        self.remote
            .iter()
            .map(|selector| (selector.start == selector.end).then_some(selector.start))
            .collect()
    }
}

/// All pairs.
#[derive(Debug)]
pub(super) struct SaDatabase {
    entries: HashMap<u32, SaPairEntry>,
    /// Pairs by the peer's host, the oldest first.
    hosts: HashMap<IpAddr, Vec<u32>>,
    /// Pairs with a network behind the peer, the oldest first.
    networks: Vec<u32>,
}

impl SaDatabase {
    pub(super) fn new(rng: &mut SecureRng) -> Self {
        Self {
            entries: HashMap::with_hasher(hash_state(rng)),
            hosts: HashMap::with_hasher(hash_state(rng)),
            networks: Vec::new(),
        }
    }
    pub(super) fn get(&self, inbound: u32) -> Option<&SaPairEntry> {
        self.entries.get(&inbound)
    }
    pub(super) fn get_mut(&mut self, inbound: u32) -> Option<&mut SaPairEntry> {
        self.entries.get_mut(&inbound)
    }
    pub(super) fn inbound_spis(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.entries.keys().copied().collect();
        all.sort_unstable();
        all
    }
    pub(super) fn usages(&self, changed: bool) -> Vec<(u32, SaUsage)> {
        let all = self.entries.iter().map(|(spi, entry)| (*spi, entry.usage(), entry.reported_usage));
        let mut all: Vec<_> = all
            .filter(|(_, usage, told)| !changed || usage != told)
            .map(|(spi, usage, _)| (spi, usage))
            .collect();
        all.sort_unstable_by_key(|(spi, _)| *spi);
        all
    }
    pub(super) fn insert(&mut self, mut entry: SaPairEntry) {
        let spi = entry.inbound.spi();
        // The new pair also replaces a pair with the same traffic of another IKE_SA, for example during a
        // reauthentication.
        entry.replaces = entry.replaces.or_else(|| self.find_pair_of_same_traffic(&entry));
        match entry.replaces.and_then(|old| self.entries.get_mut(&old)) {
            Some(old) => old.replaced_by = Some(spi),
            None => entry.waits = false,
        }
        match entry.remote_hosts() {
            Some(hosts) => hosts.into_iter().for_each(|host| self.hosts.entry(host).or_default().push(spi)),
            None => self.networks.push(spi),
        }
        self.entries.insert(spi, entry);
    }
    /// Returns the newest pair with the same traffic and policy.
    fn find_pair_of_same_traffic(&self, entry: &SaPairEntry) -> Option<u32> {
        let host = entry.remote.first().map(|selector| selector.start);
        let of_host = host.and_then(|host| self.hosts.get(&host)).map_or(&[][..], Vec::as_slice);
        let same = |spi: &&u32| {
            self.entries.get(*spi).is_some_and(|other| {
                (&other.local, &other.remote, other.policy) == (&entry.local, &entry.remote, entry.policy)
            })
        };
        of_host.iter().rev().chain(self.networks.iter().rev()).find(same).copied()
    }
    pub(super) fn remove(&mut self, inbound: u32) -> Option<SaPairEntry> {
        let entry = self.entries.remove(&inbound)?;
        match entry.remote_hosts() {
            Some(hosts) => {
                for host in hosts {
                    let of_host = self.hosts.get_mut(&host);
                    let left = of_host.map(|spis| {
                        spis.retain(|spi| *spi != inbound);
                        spis.len()
                    });
                    if left == Some(0) {
                        self.hosts.remove(&host);
                    }
                }
            }
            None => self.networks.retain(|spi| *spi != inbound),
        }
        if let Some(new) = entry.replaced_by {
            self.mark_pair_ready(new);
        }
        Some(entry)
    }
    /// Marks a pair as ready: the peer sends on it, or the pair that it replaces has gone.
    pub(super) fn mark_pair_ready(&mut self, inbound: u32) {
        if let Some(entry) = self.entries.get_mut(&inbound) {
            entry.waits = false;
        }
    }
    /// Finds the newest pair of a policy that has this traffic.
    pub(super) fn find_pair(&self, flow: &PacketFlow, policy: Option<SecurityPolicyId>) -> Option<u32> {
        let of_host = self.hosts.get(&flow.destination).map_or(&[][..], Vec::as_slice);
        let fits = |spi: &&u32| {
            self.entries.get(*spi).is_some_and(|entry| {
                entry.policy == policy && selects_flow(&entry.local, &entry.remote, flow)
            })
        };
        let all = || of_host.iter().rev().chain(self.networks.iter().rev()).filter(fits);
        let waits = |spi: &&u32| self.entries.get(*spi).is_some_and(|entry| entry.waits);
        // If all fitting pairs still wait for the peer, one of them is used: it is better than none.
        all().find(|spi| !waits(spi)).or_else(|| all().next()).copied()
    }
}
