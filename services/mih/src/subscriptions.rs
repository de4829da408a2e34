//! Subscriptions to events of interfaces.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use usher_mih::{EventList, MihfId};

/// Subscriptions, by interface and subscriber.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionTable {
    by_link: BTreeMap<String, BTreeMap<MihfId, EventList>>,
    by_peer: BTreeMap<MihfId, usize>,
    all: usize,
}

impl SubscriptionTable {
    /// Adds events of an interface. False if that exceeds the limit of interfaces, of the peer or in total.
    pub(crate) fn add(
        &mut self,
        link: &str,
        peer: &MihfId,
        events: EventList,
        (each, all): (usize, usize),
    ) -> bool {
        let of_link = self.by_link.entry(link.to_owned()).or_default();
        if let Some(before) = of_link.get_mut(peer) {
            *before = before.with(events);
            return true;
        }
        let of_peer = self.by_peer.get(peer).copied().unwrap_or(0);
        if of_peer >= each || self.all >= all {
            return false;
        }
        of_link.insert(peer.clone(), events);
        self.by_peer.insert(peer.clone(), of_peer + 1);
        self.all += 1;
        true
    }

    /// Ends a subscription to these events.
    pub(crate) fn remove(&mut self, link: &str, peer: &MihfId, events: EventList) {
        let Some(of_link) = self.by_link.get_mut(link) else { return };
        let Some(before) = of_link.get_mut(peer) else { return };
        *before = before.without(events);
        if before.is_empty() {
            of_link.remove(peer);
            self.decrement_count(peer);
        }
    }

    /// Ends all subscriptions of a peer.
    pub(crate) fn remove_peer(&mut self, peer: &MihfId) {
        if !self.by_peer.contains_key(peer) {
            return;
        }
        let ended = self.by_link.values_mut().filter_map(|of_link| of_link.remove(peer)).count();
        (0..ended).for_each(|_| self.decrement_count(peer));
    }

    fn decrement_count(&mut self, peer: &MihfId) {
        self.all -= 1;
        if let Some(n) = self.by_peer.get_mut(peer) {
            *n -= 1;
            if *n == 0 {
                self.by_peer.remove(peer);
            }
        }
    }

    /// Returns the subscribers to an event.
    pub(crate) fn subscribers_of(&self, link: &str, event: EventList) -> Vec<MihfId> {
        let of_link = self.by_link.get(link).into_iter().flatten();
        of_link.filter(|(_, events)| events.has(event)).map(|(peer, _)| peer.clone()).collect()
    }

    /// Returns all subscribers.
    pub(crate) fn peers(&self) -> Vec<MihfId> {
        self.by_peer.keys().cloned().collect()
    }

    /// Returns the number of subscribed interfaces, over all subscribers.
    pub(crate) const fn len(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_are_by_interface_and_bounded() {
        let id = |name| MihfId::new(name).unwrap();
        let (up, down) = (EventList::LINK_UP, EventList::LINK_DOWN);
        let mut all = SubscriptionTable::default();
        assert!(all.add("a", &id("x"), up, (2, 3)) && all.add("a", &id("x"), down, (2, 3)));
        assert!(all.add("b", &id("x"), up, (2, 3)) && !all.add("c", &id("x"), up, (2, 3)));
        assert!(all.add("a", &id("y"), up, (2, 3)) && !all.add("b", &id("y"), up, (2, 3)));
        assert_eq!(
            (all.len(), all.subscribers_of("a", up).len(), all.subscribers_of("a", down).len()),
            (3, 2, 1)
        );
        all.remove("a", &id("x"), up);
        assert_eq!((all.len(), all.subscribers_of("a", up)), (3, alloc::vec![id("y")]));
        all.remove("a", &id("x"), down.with(up));
        all.remove("a", &id("x"), up);
        assert_eq!(all.len(), 2);
        all.remove_peer(&id("x"));
        all.remove_peer(&id("x"));
        assert_eq!((all.len(), all.subscribers_of("b", up).len()), (1, 0));
        assert!(all.add("b", &id("y"), up, (2, 3)), "there is room again");
    }
}
