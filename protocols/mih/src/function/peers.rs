//! The peers: configured MIH functions, and others that have sent a remembered message.

use super::config::{MihfPeer, PeerRoute};
use crate::net::ReplyPath;
use crate::{MihfId, TransactionId};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Instant;
use usher_core::collections::{HashMap, SeededHashState};

const WORDS: usize = TransactionId::COUNT as usize / 64;

/// The state of a peer.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) id: MihfId,
    /// Route and ACK-Req, if the peer is configured.
    pub(crate) configured: Option<(PeerRoute, bool)>,
    /// The peer's valid address: its route's, else the one that proved itself.
    pub(crate) address: Option<IpAddr>,
    /// When that address last answered a probe.
    pub(crate) confirmed: Option<Instant>,
    /// The path of the peer's latest message.
    pub(crate) last_reply_path: Option<ReplyPath>,
    /// Counts changes of the route.
    pub(crate) changes: u32,
    /// End of the registration.
    registered: Option<Instant>,
    /// Number of transactions and connections that refer to the peer.
    uses: u32,
    /// The next transaction identifier to use, if it is free.
    next: TransactionId,
    /// Transaction identifiers in use, one bit each.
    open: Option<Box<[u64; WORDS]>>,
}

impl PeerEntry {
    pub(crate) const fn is_registered(&self) -> bool {
        self.registered.is_some()
    }
    /// Returns the next free transaction identifier; `None` if all are in use.
    pub(crate) fn allocate_peer_transaction_id(&mut self) -> Option<TransactionId> {
        let open = self.open.get_or_insert_with(|| Box::new([0; WORDS]));
        let start = usize::from(self.next.get());
        for i in 0..=WORDS {
            let word = (start / 64 + i) % WORDS;
            // The scan visits the first word twice: from the start bit on, and up to it at the end.
            let mask = match i {
                0 => u64::MAX << (start % 64),
                WORDS => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let free = !open[word] & mask;
            if free != 0 {
                let bit = free.trailing_zeros() as usize;
                open[word] |= 1 << bit;
                let id = TransactionId::new((word * 64 + bit) as u16);
                self.next = id.next();
                return Some(id);
            }
        }
        None
    }
    /// Returns the identifier allocated longest ago, if none is free.
    pub(crate) const fn oldest_id(&self) -> TransactionId {
        self.next
    }
    /// Frees a transaction identifier.
    pub(crate) fn release_id(&mut self, id: TransactionId) {
        if let Some(open) = &mut self.open {
            open[usize::from(id.get()) / 64] &= !(1 << (id.get() % 64));
        }
    }
}

/// All peers, by identifier and by index.
#[derive(Debug)]
pub(crate) struct PeerTable {
    entries: Vec<Option<PeerEntry>>,
    free: Vec<u32>,
    by_id: HashMap<MihfId, u32>,
    /// Ends of registrations.
    registrations: BTreeSet<(Instant, u32)>,
    /// Number of registrations of unconfigured functions.
    strangers: usize,
}

impl PeerTable {
    pub(crate) fn new(state: SeededHashState) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::with_hasher(state),
            registrations: BTreeSet::new(),
            strangers: 0,
        }
    }
    /// Returns the number of peers.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
    pub(crate) fn find(&self, id: &MihfId) -> Option<u32> {
        self.by_id.get(id).copied()
    }
    pub(crate) fn get(&self, peer: u32) -> Option<&PeerEntry> {
        self.entries.get(peer as usize)?.as_ref()
    }
    pub(crate) fn get_mut(&mut self, peer: u32) -> Option<&mut PeerEntry> {
        self.entries.get_mut(peer as usize)?.as_mut()
    }
    /// Returns the index of a peer and creates the peer if necessary. `first` draws its first transaction identifier.
    pub(crate) fn intern_peer(&mut self, id: &MihfId, first: impl FnOnce() -> u64) -> u32 {
        if let Some(peer) = self.find(id) {
            return peer;
        }
        let entry = PeerEntry {
            id: id.clone(),
            configured: None,
            address: None,
            confirmed: None,
            last_reply_path: None,
            changes: 0,
            registered: None,
            uses: 0,
            next: TransactionId::new(first() as u16),
            open: None,
        };
        let peer = match self.free.pop() {
            Some(peer) => {
                self.entries[peer as usize] = Some(entry);
                peer
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        };
        self.by_id.insert(id.clone(), peer);
        peer
    }
    /// Configures a peer or changes its route. True if that ends its registration: an unconfigured function had
    /// registered from another address.
    pub(crate) fn configure_peer(&mut self, peer: u32, settings: &MihfPeer) -> bool {
        let Some(entry) = self.get_mut(peer) else { return false };
        let stranger = entry.configured.is_none() && entry.registered.is_some();
        let address = settings.route.remote.ip().to_canonical();
        entry.configured = Some((settings.route, settings.ack));
        entry.changes += 1;
        let other = entry.address.replace(address).is_some_and(|before| before != address);
        self.strangers -= usize::from(stranger);
        other && stranger && self.deregister(peer)
    }
    /// Removes a peer's configuration.
    pub(crate) fn unconfigure_peer(&mut self, peer: u32) {
        let Some(entry) = self.get_mut(peer) else { return };
        if entry.configured.take().is_some() {
            entry.changes += 1;
            let stranger = entry.registered.is_some();
            self.strangers += usize::from(stranger);
        }
        self.remove_if_unused(peer);
    }
    /// Registers a peer or renews its registration. False if the limit of unconfigured registrations is reached.
    pub(crate) fn register(&mut self, peer: u32, until: Instant, most: usize) -> bool {
        let room = self.strangers < most;
        let Some(entry) = self.get_mut(peer) else { return false };
        let stranger = entry.configured.is_none();
        if stranger && entry.registered.is_none() && !room {
            return false;
        }
        let before = entry.registered.replace(until);
        self.strangers += usize::from(stranger && before.is_none());
        if let Some(before) = before {
            self.registrations.remove(&(before, peer));
        }
        self.registrations.insert((until, peer));
        true
    }
    /// Ends a registration; false if there was none.
    pub(crate) fn deregister(&mut self, peer: u32) -> bool {
        let Some(entry) = self.get_mut(peer) else { return false };
        let stranger = entry.configured.is_none();
        let Some(until) = entry.registered.take() else { return false };
        self.strangers -= usize::from(stranger);
        self.registrations.remove(&(until, peer));
        true
    }
    /// Drops a peer's address and registration, so that no reply uses the old address. True if it was registered. The
    /// entry stays for the peer's next message; [`Self::remove_if_unused`] removes it after that.
    pub(crate) fn clear_peer_address(&mut self, peer: u32) -> bool {
        if let Some(entry) = self.get_mut(peer) {
            (entry.address, entry.confirmed, entry.last_reply_path) = (None, None, None);
            entry.changes += u32::from(entry.registered.is_some());
        }
        self.deregister(peer)
    }
    /// Returns when the next registration expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.registrations.first().map(|(until, _)| *until)
    }
    /// Ends an expired registration and returns its peer. The peer is removed unless something else refers to it.
    pub(crate) fn expire_registration(&mut self, now: Instant) -> Option<MihfId> {
        let &(_, peer) = self.registrations.first().filter(|(until, _)| *until <= now)?;
        let id = self.get(peer)?.id.clone();
        self.deregister(peer);
        self.remove_if_unused(peer);
        Some(id)
    }
    /// Adds a reference of a transaction or connection.
    pub(crate) fn add_reference(&mut self, peer: u32) {
        if let Some(entry) = self.get_mut(peer) {
            entry.uses += 1;
        }
    }
    /// Drops a reference. An unconfigured peer without references is removed.
    pub(crate) fn drop_reference(&mut self, peer: u32) {
        let Some(entry) = self.get_mut(peer) else { return };
        entry.uses = entry.uses.saturating_sub(1);
        self.remove_if_unused(peer);
    }
    /// Removes a peer without references.
    pub(crate) fn remove_if_unused(&mut self, peer: u32) {
        let Some(entry) = self.get_mut(peer) else { return };
        let idle = entry.uses == 0 && entry.configured.is_none() && entry.registered.is_none();
        if idle && let Some(gone) = self.entries[peer as usize].take() {
            self.by_id.remove(&gone.id);
            self.free.push(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty_table() -> PeerTable {
        PeerTable::new(SeededHashState::with_seed(1))
    }
    fn expire_all_registrations(peers: &mut PeerTable, nanos: u64) -> usize {
        core::iter::from_fn(|| peers.expire_registration(Instant::from_nanos(nanos))).count()
    }

    #[test]
    fn identifiers_go_round_and_pass_over_those_that_are_open() {
        let mut peers = empty_table();
        let peer = peers.intern_peer(&MihfId::new("a").unwrap(), || 4094);
        let entry = peers.get_mut(peer).unwrap();
        let given: Vec<u16> =
            (0..4096).map(|_| entry.allocate_peer_transaction_id().unwrap().get()).collect();
        let expected: Vec<u16> = (0..4096).map(|i| (4094 + i) % 4096).collect();
        assert_eq!(given, expected);
        assert_eq!((entry.allocate_peer_transaction_id(), entry.oldest_id().get()), (None, 4094));
        for id in [3, 4093, 70] {
            entry.release_id(TransactionId::new(id));
        }
        let given: Vec<u16> = (0..3).map(|_| entry.allocate_peer_transaction_id().unwrap().get()).collect();
        assert_eq!(given, [3, 70, 4093]);
        assert_eq!(entry.allocate_peer_transaction_id(), None);
    }

    #[test]
    fn who_is_not_named_is_forgotten_with_its_last_transaction() {
        let mut peers = empty_table();
        let (a, b) = (MihfId::new("a").unwrap(), MihfId::new("b").unwrap());
        let peer = peers.intern_peer(&a, || 0);
        peers.add_reference(peer);
        peers.add_reference(peer);
        peers.drop_reference(peer);
        assert_eq!(peers.find(&a), Some(peer));
        peers.drop_reference(peer);
        assert_eq!(peers.find(&a), None);
        assert_eq!(peers.intern_peer(&b, || 0), peer);
        let until = Instant::from_nanos(9);
        assert!(peers.register(peer, until, 1));
        peers.remove_if_unused(peer);
        assert_eq!(peers.find(&b), Some(peer));
        let other = peers.intern_peer(&a, || 0);
        assert!(!peers.register(other, until, 1));
        peers.deregister(peer);
        peers.remove_if_unused(peer);
        assert!(peers.register(other, until, 1));
        assert_eq!(peers.find(&b), None);
    }

    #[test]
    fn registrations_expire_and_configured_peers_take_no_slot() {
        let mut peers = empty_table();
        let [a, b, c] = ["a", "b", "c"].map(|name| peers.intern_peer(&MihfId::new(name).unwrap(), || 0));
        let at = Instant::from_nanos;
        assert!(peers.register(a, at(10), 1));
        assert!(peers.register(a, at(20), 1), "again, and for longer");
        assert_eq!((expire_all_registrations(&mut peers, 19), peers.next_expiry()), (0, Some(at(20))));
        assert!(!peers.register(b, at(30), 1));
        let remote = core::net::SocketAddr::from(([10, 0, 0, 1], super::super::PORT));
        let route = PeerRoute { transport: usher_core::TransportProtocol::Udp, local: None, remote };
        let id = MihfId::new("a").unwrap();
        peers.configure_peer(a, &MihfPeer { id: id.clone(), route, ack: false });
        assert!(peers.register(b, at(30), 1));
        assert!(!peers.register(c, at(30), 1));
        assert_eq!(expire_all_registrations(&mut peers, 20), 1);
        assert!(!peers.register(c, at(30), 1));
        assert_eq!(peers.find(&id), Some(a), "it is named");
        assert_eq!(expire_all_registrations(&mut peers, 30), 1);
        assert_eq!(peers.find(&MihfId::new("b").unwrap()), None);
        assert!(peers.register(c, at(40), 1));
        peers.unconfigure_peer(a);
        assert_eq!(peers.find(&id), None, "nobody names it, and it is not registered");
        peers.configure_peer(c, &MihfPeer { id: MihfId::new("c").unwrap(), route, ack: false });
        assert!(peers.register(peers.find(&MihfId::new("c").unwrap()).unwrap(), at(50), 1));
        peers.unconfigure_peer(c);
        let d = peers.intern_peer(&MihfId::new("d").unwrap(), || 0);
        assert!(!peers.register(d, at(50), 1), "one that was named has a stranger's place now");
    }
}
