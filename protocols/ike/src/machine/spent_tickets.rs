//! Spent tickets (RFC 5723 §4.3.1, §6.2), until they would have expired.
//!
//! Owners share a bounded table. An owner that spends tickets without end loses its own oldest entries, not those of
//! others. Its unused tickets up to that age become invalid with them.

use alloc::collections::{BTreeMap, BTreeSet};

/// Most entries.
pub(super) const CAPACITY: usize = 1 << 16;

/// The owner of a ticket: a hash of the client's authenticated identity and its connection.
pub(super) type TicketOwner = [u8; 16];

/// The id of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TicketId {
    pub(super) owner: TicketOwner,
    /// Its number among all issued tickets, from 1.
    pub(super) number: u64,
}

/// The spent tickets of an owner.
#[derive(Debug, Default)]
struct OwnerSpentTickets {
    /// Spent numbers, with their expiry in seconds since 1970.
    spent: BTreeMap<u64, u64>,
    /// All numbers up to this one are spent; and the expiry of that entry.
    floor: Option<(u64, u64)>,
}

impl OwnerSpentTickets {
    /// Number of entries.
    fn entry_count(&self) -> usize {
        self.spent.len() + usize::from(self.floor.is_some())
    }
}

/// The table of spent tickets.
#[derive(Debug, Default)]
pub(super) struct SpentTicketTable {
    tickets_by_owner: BTreeMap<TicketOwner, OwnerSpentTickets>,
    /// Owners by number of entries.
    ranked: BTreeSet<(usize, TicketOwner)>,
    /// Entries by expiry: a ticket number, or 0 for a floor.
    until: BTreeSet<(u64, TicketOwner, u64)>,
    /// All numbers up to this one are spent, of any owner.
    floor: u64,
}

impl SpentTicketTable {
    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }
    /// True if a ticket is spent.
    pub(super) fn is_ticket_spent(&self, id: TicketId) -> bool {
        let is = |of: &OwnerSpentTickets| {
            of.spent.contains_key(&id.number) || of.floor.is_some_and(|(floor, _)| id.number <= floor)
        };
        id.number <= self.floor || self.tickets_by_owner.get(&id.owner).is_some_and(is)
    }
    /// Marks a ticket as spent, from `now` to `until` in seconds since 1970.
    pub(super) fn mark_ticket_spent(&mut self, now: u64, id: TicketId, until: u64) {
        while let Some(&(_, owner, number)) = self.until.first().filter(|(until, ..)| *until < now) {
            self.until.pop_first();
            self.remove_entry(owner, number);
        }
        if self.is_ticket_spent(id) {
            return;
        }
        let of = self.tickets_by_owner.entry(id.owner).or_default();
        let before = of.entry_count();
        of.spent.insert(id.number, until);
        self.until.insert((until, id.owner, id.number));
        self.update_owner_rank(id.owner, before);
        while self.len() > CAPACITY {
            self.give_up();
        }
    }

    /// Removes an owner's entry of a number, or its floor.
    fn remove_entry(&mut self, owner: TicketOwner, number: u64) {
        let Some(of) = self.tickets_by_owner.get_mut(&owner) else { return };
        let before = of.entry_count();
        if number == 0 {
            of.floor = None;
        } else {
            of.spent.remove(&number);
        }
        self.update_owner_rank(owner, before);
    }
    /// Updates the rank of an owner whose number of entries has changed.
    fn update_owner_rank(&mut self, owner: TicketOwner, before: usize) {
        self.ranked.remove(&(before, owner));
        match self.tickets_by_owner.get(&owner).map_or(0, OwnerSpentTickets::entry_count) {
            0 => drop(self.tickets_by_owner.remove(&owner)),
            takes => drop(self.ranked.insert((takes, owner))),
        }
    }

    /// Evicts entries of the owner with most: raises its floor to its oldest entries.
    fn give_up(&mut self) {
        let Some(&(most, owner)) = self.ranked.last() else { return };
        let Some(of) = self.tickets_by_owner.get_mut(&owner) else { return };
        if most < 2 {
            // No owner has more than one entry, so no single floor can rise. The floor of all owners rises to the entry
            // that expires first.
            let Some((_, owner, number)) = self.until.pop_first() else { return };
            let floor =
                self.tickets_by_owner.get(&owner).and_then(|of| of.floor).map_or(0, |(floor, _)| floor);
            self.floor = self.floor.max(if number == 0 { floor } else { number });
            return self.remove_entry(owner, number);
        }
        let before = of.entry_count();
        let (mut floor, mut end) = of.floor.take().unwrap_or_default();
        self.until.remove(&(end, owner, 0));
        // One entry merges into the owner's floor, or two entries form a new floor. Either way the owner has one entry
        // less.
        for _ in 0..(if floor == 0 { 2 } else { 1 }) {
            let Some((number, until)) = of.spent.pop_first() else { break };
            self.until.remove(&(until, owner, number));
            (floor, end) = (floor.max(number), end.max(until));
        }
        of.floor = Some((floor, end));
        self.until.insert((end, owner, 0));
        self.update_owner_rank(owner, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned_ticket_id(owner: u32, number: u64) -> TicketId {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&owner.to_be_bytes());
        TicketId { owner: octets, number }
    }
    /// Checks that the indexes agree.
    fn check_indexes(spent: &SpentTicketTable) {
        let takes: usize = spent.tickets_by_owner.values().map(OwnerSpentTickets::entry_count).sum();
        assert_eq!((spent.until.len(), spent.ranked.len()), (takes, spent.tickets_by_owner.len()));
        assert!(
            spent
                .ranked
                .iter()
                .all(|(takes, owner)| spent.tickets_by_owner[owner].entry_count() == *takes && *takes > 0)
        );
        assert!(spent.len() <= CAPACITY);
    }

    #[test]
    fn what_was_spent_is_remembered_until_it_has_expired() {
        let mut spent = SpentTicketTable::default();
        spent.mark_ticket_spent(0, owned_ticket_id(1, 5), 10);
        spent.mark_ticket_spent(0, owned_ticket_id(1, 5), 90);
        spent.mark_ticket_spent(0, owned_ticket_id(2, 6), 20);
        assert!(
            spent.is_ticket_spent(owned_ticket_id(1, 5))
                && !spent.is_ticket_spent(owned_ticket_id(1, 4))
                && !spent.is_ticket_spent(owned_ticket_id(2, 5))
                && spent.len() == 2
        );
        spent.mark_ticket_spent(11, owned_ticket_id(2, 7), 30);
        assert!(
            !spent.is_ticket_spent(owned_ticket_id(1, 5))
                && spent.is_ticket_spent(owned_ticket_id(2, 6))
                && spent.is_ticket_spent(owned_ticket_id(2, 7))
        );
        check_indexes(&spent);
        spent.mark_ticket_spent(31, owned_ticket_id(3, 8), 40);
        assert_eq!((spent.len(), spent.tickets_by_owner.len()), (1, 1));
        check_indexes(&spent);
    }

    /// Every second ticket is another owner's. Once one has half of all, it loses its own oldest.
    #[test]
    fn who_uses_up_tickets_without_end_has_its_own_given_up() {
        let mut spent = SpentTicketTable::default();
        let room = CAPACITY as u64;
        spent.mark_ticket_spent(0, owned_ticket_id(1, 1), 100);
        for number in 10..10 + 3 * room {
            spent.mark_ticket_spent(0, owned_ticket_id(7, number), 100);
        }
        check_indexes(&spent);
        assert!(
            spent.is_ticket_spent(owned_ticket_id(1, 1))
                && !spent.is_ticket_spent(owned_ticket_id(1, 2))
                && !spent.is_ticket_spent(owned_ticket_id(2, 3)),
            "others' are as they were"
        );
        assert!(
            (10..10 + 3 * room).all(|number| spent.is_ticket_spent(owned_ticket_id(7, number))),
            "none comes again"
        );
        assert!(spent.is_ticket_spent(owned_ticket_id(7, 9)), "nor do older ones of its own");
        assert!(!spent.is_ticket_spent(owned_ticket_id(7, 10 + 3 * room)), "its next one holds");
        // Another owner does the same, and ends with as many entries.
        for number in 4 * room..6 * room {
            spent.mark_ticket_spent(0, owned_ticket_id(8, number), 100);
        }
        check_indexes(&spent);
        let [first, second] =
            [7, 8].map(|owner| spent.tickets_by_owner[&owned_ticket_id(owner, 0).owner].entry_count());
        assert!(first.abs_diff(second) <= 1 && first + second == CAPACITY - 1, "{first} {second}");
        assert!(!spent.is_ticket_spent(owned_ticket_id(1, 2)));
        // All entries expire in time.
        spent.mark_ticket_spent(101, owned_ticket_id(9, 7 * room), 200);
        assert_eq!((spent.len(), spent.is_ticket_spent(owned_ticket_id(7, 10))), (1, false));
        check_indexes(&spent);
    }

    #[test]
    fn a_full_table_gives_up_the_oldest_tickets_of_all_clients() {
        let mut spent = SpentTicketTable::default();
        for n in 1..=CAPACITY as u32 + 10 {
            spent.mark_ticket_spent(0, owned_ticket_id(n, n.into()), u64::from(n) + 100);
        }
        check_indexes(&spent);
        assert_eq!((spent.len(), spent.floor), (CAPACITY, 10));
        assert!(
            (1..=10).all(|n| spent.is_ticket_spent(owned_ticket_id(n, n.into())))
                && spent.is_ticket_spent(owned_ticket_id(999_999, 10))
        );
        assert!(
            !spent.is_ticket_spent(owned_ticket_id(999_999, 11))
                && spent.is_ticket_spent(owned_ticket_id(11, 11))
        );
    }
}
