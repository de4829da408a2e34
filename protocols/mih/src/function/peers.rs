//! The other MIH functions: those that the user named, and those that have sent something that is remembered.

use super::config::{MihfPeer, PeerRoute};
use crate::net::ReplyPath;
use crate::{MihfId, TransactionId};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Instant;
use usher_core::collections::{HashMap, HashState};

const WORDS: usize = TransactionId::COUNT as usize / 64;

/// What is known of another MIH function.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) id: MihfId,
    /// Route and ACK-Req, where the user named it.
    pub(crate) configured: Option<(PeerRoute, bool)>,
    /// The address that may speak for it: its route's, else the one that proved itself.
    pub(crate) address: Option<IpAddr>,
    /// When that address last answered a probe.
    pub(crate) confirmed: Option<Instant>,
    /// By which way something last came from it.
    pub(crate) last_reply_path: Option<ReplyPath>,
    /// Counts the user's changes of the route.
    pub(crate) changes: u32,
    /// Until when it is registered.
    registered: Option<Instant>,
    /// Transactions and connections that refer to it.
    uses: u32,
    /// The identifier that the next transaction to it gets, if it is free.
    next: TransactionId,
    /// Which identifiers are open, one bit each.
    open: Option<Box<[u64; WORDS]>>,
}

impl PeerEntry {
    pub(crate) const fn is_registered(&self) -> bool {
        self.registered.is_some()
    }
    /// An identifier that no open transaction has, the next in turn; none if all are open.
    pub(crate) fn allocate_id(&mut self) -> Option<TransactionId> {
        let open = self.open.get_or_insert_with(|| Box::new([0; WORDS]));
        let start = usize::from(self.next.get());
        for i in 0..=WORDS {
            let word = (start / 64 + i) % WORDS;
            // The first word is looked at twice: from the start on, and up to it at the end.
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
    /// The identifier that was given longest ago, if none is free.
    pub(crate) const fn oldest_id(&self) -> TransactionId {
        self.next
    }
    /// A transaction with this identifier has ended.
    pub(crate) fn release_id(&mut self, id: TransactionId) {
        if let Some(open) = &mut self.open {
            open[usize::from(id.get()) / 64] &= !(1 << (id.get() % 64));
        }
    }
}

/// All that are known, by identifier and by a number of ours.
#[derive(Debug)]
pub(crate) struct PeerTable {
    entries: Vec<Option<PeerEntry>>,
    free: Vec<u32>,
    by_id: HashMap<MihfId, u32>,
    /// When registrations end.
    registrations: BTreeSet<(Instant, u32)>,
    /// How many of them are of functions that nobody named.
    strangers: usize,
}

impl PeerTable {
    pub(crate) fn new(state: HashState) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::with_hasher(state),
            registrations: BTreeSet::new(),
            strangers: 0,
        }
    }
    /// How many are known.
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
    /// The number of a function; a new one begins its identifiers with `first`.
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
    /// The user names a function, or changes its route. True where that ends its registration: it was registered from
    /// another address, unnamed.
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
    /// The user names a function no more.
    pub(crate) fn unconfigure_peer(&mut self, peer: u32) {
        let Some(entry) = self.get_mut(peer) else { return };
        if entry.configured.take().is_some() {
            entry.changes += 1;
            let stranger = entry.registered.is_some();
            self.strangers += usize::from(stranger);
        }
        self.remove_if_unused(peer);
    }
    /// Registers a function until then, anew if it is registered already. False where no more may register that
    /// nobody named.
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
    /// Ends a function's registration; false where there was none.
    pub(crate) fn deregister(&mut self, peer: u32) -> bool {
        let Some(entry) = self.get_mut(peer) else { return false };
        let stranger = entry.configured.is_none();
        let Some(until) = entry.registered.take() else { return false };
        self.strangers -= usize::from(stranger);
        self.registrations.remove(&(until, peer));
        true
    }
    /// Ends what is known of a function at its address. The answers to a registered one go there no more. True where it
    /// was registered. The entry stays for the function's next message: [`Self::remove_if_unused`] it after that.
    pub(crate) fn clear_address(&mut self, peer: u32) -> bool {
        if let Some(entry) = self.get_mut(peer) {
            (entry.address, entry.confirmed, entry.last_reply_path) = (None, None, None);
            entry.changes += u32::from(entry.registered.is_some());
        }
        self.deregister(peer)
    }
    /// When the next registration ends.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.registrations.first().map(|(until, _)| *until)
    }
    /// Ends a registration whose time is over and names its function, which is forgotten unless something else refers
    /// to it.
    pub(crate) fn expire_registration(&mut self, now: Instant) -> Option<MihfId> {
        let &(_, peer) = self.registrations.first().filter(|(until, _)| *until <= now)?;
        let id = self.get(peer)?.id.clone();
        self.deregister(peer);
        self.remove_if_unused(peer);
        Some(id)
    }
    /// One more transaction or connection refers to it.
    pub(crate) fn add_reference(&mut self, peer: u32) {
        if let Some(entry) = self.get_mut(peer) {
            entry.uses += 1;
        }
    }
    /// One less does; with the last of them a function that nobody named is forgotten.
    pub(crate) fn drop_reference(&mut self, peer: u32) {
        let Some(entry) = self.get_mut(peer) else { return };
        entry.uses = entry.uses.saturating_sub(1);
        self.remove_if_unused(peer);
    }
    /// Forgets a function if nothing refers to it.
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
        PeerTable::new(HashState::with_seed(1))
    }
    fn expire_all(peers: &mut PeerTable, nanos: u64) -> usize {
        core::iter::from_fn(|| peers.expire_registration(Instant::from_nanos(nanos))).count()
    }

    #[test]
    fn identifiers_go_round_and_pass_over_those_that_are_open() {
        let mut peers = empty_table();
        let peer = peers.intern_peer(&MihfId::new("a").unwrap(), || 4094);
        let entry = peers.get_mut(peer).unwrap();
        let given: Vec<u16> = (0..4096).map(|_| entry.allocate_id().unwrap().get()).collect();
        let expected: Vec<u16> = (0..4096).map(|i| (4094 + i) % 4096).collect();
        assert_eq!(given, expected);
        assert_eq!((entry.allocate_id(), entry.oldest_id().get()), (None, 4094));
        for id in [3, 4093, 70] {
            entry.release_id(TransactionId::new(id));
        }
        let given: Vec<u16> = (0..3).map(|_| entry.allocate_id().unwrap().get()).collect();
        assert_eq!(given, [3, 70, 4093]);
        assert_eq!(entry.allocate_id(), None);
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
        assert_eq!((expire_all(&mut peers, 19), peers.next_expiry()), (0, Some(at(20))));
        assert!(!peers.register(b, at(30), 1));
        let remote = core::net::SocketAddr::from(([10, 0, 0, 1], super::super::PORT));
        let route = PeerRoute { transport: usher_core::TransportProtocol::Udp, local: None, remote };
        let id = MihfId::new("a").unwrap();
        peers.configure_peer(a, &MihfPeer { id: id.clone(), route, ack: false });
        assert!(peers.register(b, at(30), 1));
        assert!(!peers.register(c, at(30), 1));
        assert_eq!(expire_all(&mut peers, 20), 1);
        assert!(!peers.register(c, at(30), 1));
        assert_eq!(peers.find(&id), Some(a), "it is named");
        assert_eq!(expire_all(&mut peers, 30), 1);
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
