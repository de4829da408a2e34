//! The table of peers: configured peers stay, others leave with their connection.

use super::config::{PeerAuthentication, PeerConfig, PeerTransportConfig, matches_identity};
use crate::peer::{automaton, capabilities::NodeCapabilities, watchdog};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::{Index, IndexMut};
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::{ConnId, Instant};

#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) host: String,
    /// `host` in lower case.
    pub(super) identity: Arc<str>,
    /// [`PeerConfig::origins`].
    origins: Vec<String>,
    pub(super) address: Option<SocketAddr>,
    pub(super) transport: PeerTransportConfig,
    pub(super) authentication: PeerAuthentication,
    pub(super) reconnect: bool,
    pub(super) state: automaton::State,
    pub(super) watchdog: watchdog::PeerWatchdog,
    /// The deadline of the watchdog. The timer may be earlier and is then set again.
    pub(super) watchdog_due: Option<Instant>,
    pub(super) watchdog_armed: Option<Instant>,
    pub(super) state_deadline: Option<Instant>,
    pub(super) ours: Option<ConnId>,
    pub(super) theirs: Option<ConnId>,
    pub(super) remote: Option<NodeCapabilities>,
    /// The CER that awaits its CEA.
    pub(super) cer: Option<crate::message::MessageHeader>,
}

impl PeerEntry {
    /// Returns a peer outside the configuration.
    pub(super) fn new_unconfigured_peer(host: String) -> Self {
        let (transport, authentication) = (PeerTransportConfig::Stream, PeerAuthentication::default());
        Self::new(PeerConfig { host, address: None, transport, authentication, origins: Vec::new() })
    }
    pub(super) fn new(config: PeerConfig) -> Self {
        let PeerConfig { host, address, transport, authentication, origins } = config;
        Self {
            identity: host.to_ascii_lowercase().into(),
            host,
            origins,
            address,
            transport,
            authentication,
            reconnect: address.is_some(),
            state: automaton::State::Closed,
            watchdog: watchdog::PeerWatchdog::default(),
            watchdog_due: None,
            watchdog_armed: None,
            state_deadline: None,
            ours: None,
            theirs: None,
            remote: None,
            cer: None,
        }
    }
    /// True if the peer may relay requests of this node.
    pub(super) fn may_relay_for_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|pattern| matches_identity(pattern, origin.as_bytes()))
    }
    /// The connection for messages.
    pub(super) fn active_connection(&self) -> Option<ConnId> {
        match self.state {
            automaton::State::IOpen => self.ours,
            automaton::State::ROpen => self.theirs,
            _ => None,
        }
    }
}

/// Peers by number. A number is never reused, so an event still names its peer after the peer's removal.
#[derive(Debug)]
pub(super) struct PeerTable {
    configured: Vec<PeerEntry>,
    guests: HashMap<u32, PeerEntry>,
    by_host: HashMap<String, u32>,
    next: u32,
}

impl PeerTable {
    pub(super) fn new(state: SeededHashState) -> Self {
        let (guests, by_host) = (HashMap::with_hasher(state.clone()), HashMap::with_hasher(state));
        Self { configured: Vec::new(), guests, by_host, next: 0 }
    }
    /// The configured peers.
    pub(super) fn configured_peers(&self) -> &[PeerEntry] {
        &self.configured
    }
    pub(super) fn len(&self) -> usize {
        self.configured.len() + self.guests.len()
    }
    pub(super) fn get(&self, p: u32) -> Option<&PeerEntry> {
        self.configured.get(p as usize).or_else(|| self.guests.get(&p))
    }
    pub(super) fn get_mut(&mut self, p: u32) -> Option<&mut PeerEntry> {
        match self.configured.get_mut(p as usize) {
            Some(peer) => Some(peer),
            None => self.guests.get_mut(&p),
        }
    }
    pub(super) fn find_peer_by_host(&self, host: &str) -> Option<u32> {
        self.by_host.get(&host.to_ascii_lowercase()).copied()
    }
    /// Adds a configured peer.
    pub(super) fn add_configured(&mut self, peer: PeerEntry) -> u32 {
        let p = self.configured.len() as u32;
        self.by_host.insert(peer.host.to_ascii_lowercase(), p);
        self.configured.push(peer);
        self.next = p + 1;
        p
    }
    /// Adds a peer outside the configuration.
    pub(super) fn add_unconfigured_peer(&mut self, peer: PeerEntry) -> u32 {
        while self.get(self.next).is_some() {
            self.next = self.next.wrapping_add(1);
        }
        let p = self.next;
        self.next = p.wrapping_add(1);
        self.by_host.insert(peer.host.to_ascii_lowercase(), p);
        self.guests.insert(p, peer);
        p
    }
    pub(super) fn is_unconfigured_peer(&self, p: u32) -> bool {
        self.guests.contains_key(&p)
    }
    /// Removes a peer outside the configuration.
    pub(super) fn remove_unconfigured_peer(&mut self, p: u32) -> Option<PeerEntry> {
        let peer = self.guests.remove(&p)?;
        self.by_host.remove(&peer.host.to_ascii_lowercase());
        Some(peer)
    }
}

/// For known peers: the numbers in connections and timers, which end before their peer.
impl Index<u32> for PeerTable {
    type Output = PeerEntry;
    fn index(&self, p: u32) -> &PeerEntry {
        self.configured.get(p as usize).unwrap_or_else(|| &self.guests[&p])
    }
}

impl IndexMut<u32> for PeerTable {
    fn index_mut(&mut self, p: u32) -> &mut PeerEntry {
        self.get_mut(p).expect("a peer outlives its connections and timers")
    }
}
