//! Tickets that must not come again (RFC 5723 §4.3.1, §6.2), until they would have expired.
//!
//! There is room for so many, which is shared by whose they are: whoever uses up tickets without end has its own oldest ones
//! given up, which it would have to have used in their order, and nobody else's.

use alloc::collections::{BTreeMap, BTreeSet};

/// So many are remembered.
pub(super) const CAPACITY: usize = 1 << 16;

/// Whose a ticket is: a hash of who the client has proved to be, and by which connection.
pub(super) type TicketOwner = [u8; 16];

/// The name of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TicketId {
    pub(super) owner: TicketOwner,
    /// Its number among all that were given, from 1.
    pub(super) number: u64,
}

/// What is remembered of somebody's tickets.
#[derive(Debug, Default)]
struct OwnerTickets {
    /// Those that must not come again, and until which second since 1970.
    spent: BTreeMap<u64, u64>,
    /// None up to this number comes again, and until when that has to be known.
    floor: Option<(u64, u64)>,
}

impl OwnerTickets {
    /// How much is remembered.
    fn entry_count(&self) -> usize {
        self.spent.len() + usize::from(self.floor.is_some())
    }
}

/// Tickets that must not come again.
#[derive(Debug, Default)]
pub(super) struct SpentTickets {
    tickets_by_owner: BTreeMap<TicketOwner, OwnerTickets>,
    /// Owners by how much is remembered of theirs.
    ranked: BTreeSet<(usize, TicketOwner)>,
    /// What is remembered, by when it may be forgotten: a number, or 0 for a floor.
    until: BTreeSet<(u64, TicketOwner, u64)>,
    /// None up to this number comes again, whosever it is.
    floor: u64,
}

impl SpentTickets {
    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }
    /// Whether a ticket must not come again.
    pub(super) fn is_spent(&self, id: TicketId) -> bool {
        let is = |of: &OwnerTickets| {
            of.spent.contains_key(&id.number) || of.floor.is_some_and(|(floor, _)| id.number <= floor)
        };
        id.number <= self.floor || self.tickets_by_owner.get(&id.owner).is_some_and(is)
    }
    /// One must not come again from this second since 1970 to that.
    pub(super) fn add_ticket(&mut self, now: u64, id: TicketId, until: u64) {
        while let Some(&(_, owner, number)) = self.until.first().filter(|(until, ..)| *until < now) {
            self.until.pop_first();
            self.remove_entry(owner, number);
        }
        if self.is_spent(id) {
            return;
        }
        let of = self.tickets_by_owner.entry(id.owner).or_default();
        let before = of.entry_count();
        of.spent.insert(id.number, until);
        self.until.insert((until, id.owner, id.number));
        self.update_rank(id.owner, before);
        while self.len() > CAPACITY {
            self.give_up();
        }
    }

    /// Takes out what is remembered of somebody's under a number, or the floor.
    fn remove_entry(&mut self, owner: TicketOwner, number: u64) {
        let Some(of) = self.tickets_by_owner.get_mut(&owner) else { return };
        let before = of.entry_count();
        if number == 0 {
            of.floor = None;
        } else {
            of.spent.remove(&number);
        }
        self.update_rank(owner, before);
    }
    /// Somebody of whose tickets so much was remembered has another rank.
    fn update_rank(&mut self, owner: TicketOwner, before: usize) {
        self.ranked.remove(&(before, owner));
        match self.tickets_by_owner.get(&owner).map_or(0, OwnerTickets::entry_count) {
            0 => drop(self.tickets_by_owner.remove(&owner)),
            takes => drop(self.ranked.insert((takes, owner))),
        }
    }

    /// Of whom most is remembered has less remembered: none of its tickets comes again up to the oldest of those.
    fn give_up(&mut self) {
        let Some(&(most, owner)) = self.ranked.last() else { return };
        let Some(of) = self.tickets_by_owner.get_mut(&owner) else { return };
        if most < 2 {
            // There are as many clients as there is room: none of all the tickets up to the one that expires first.
            let Some((_, owner, number)) = self.until.pop_first() else { return };
            let floor =
                self.tickets_by_owner.get(&owner).and_then(|of| of.floor).map_or(0, |(floor, _)| floor);
            self.floor = self.floor.max(if number == 0 { floor } else { number });
            return self.remove_entry(owner, number);
        }
        let before = of.entry_count();
        let (mut floor, mut end) = of.floor.take().unwrap_or_default();
        self.until.remove(&(end, owner, 0));
        // In place of a floor and one, or of two, there is a floor.
        for _ in 0..(if floor == 0 { 2 } else { 1 }) {
            let Some((number, until)) = of.spent.pop_first() else { break };
            self.until.remove(&(until, owner, number));
            (floor, end) = (floor.max(number), end.max(until));
        }
        of.floor = Some((floor, end));
        self.until.insert((end, owner, 0));
        self.update_rank(owner, before);
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
    /// Each index has what it should.
    fn check_indexes(spent: &SpentTickets) {
        let takes: usize = spent.tickets_by_owner.values().map(OwnerTickets::entry_count).sum();
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
        let mut spent = SpentTickets::default();
        spent.add_ticket(0, owned_ticket_id(1, 5), 10);
        spent.add_ticket(0, owned_ticket_id(1, 5), 90);
        spent.add_ticket(0, owned_ticket_id(2, 6), 20);
        assert!(
            spent.is_spent(owned_ticket_id(1, 5))
                && !spent.is_spent(owned_ticket_id(1, 4))
                && !spent.is_spent(owned_ticket_id(2, 5))
                && spent.len() == 2
        );
        spent.add_ticket(11, owned_ticket_id(2, 7), 30);
        assert!(
            !spent.is_spent(owned_ticket_id(1, 5))
                && spent.is_spent(owned_ticket_id(2, 6))
                && spent.is_spent(owned_ticket_id(2, 7))
        );
        check_indexes(&spent);
        spent.add_ticket(31, owned_ticket_id(3, 8), 40);
        assert_eq!((spent.len(), spent.tickets_by_owner.len()), (1, 1));
        check_indexes(&spent);
    }

    /// Every second ticket is another client's, until that one has as many as half of all: its own oldest are given up.
    #[test]
    fn who_uses_up_tickets_without_end_has_its_own_given_up() {
        let mut spent = SpentTickets::default();
        let room = CAPACITY as u64;
        spent.add_ticket(0, owned_ticket_id(1, 1), 100);
        for number in 10..10 + 3 * room {
            spent.add_ticket(0, owned_ticket_id(7, number), 100);
        }
        check_indexes(&spent);
        assert!(
            spent.is_spent(owned_ticket_id(1, 1))
                && !spent.is_spent(owned_ticket_id(1, 2))
                && !spent.is_spent(owned_ticket_id(2, 3)),
            "others' are as they were"
        );
        assert!(
            (10..10 + 3 * room).all(|number| spent.is_spent(owned_ticket_id(7, number))),
            "none comes again"
        );
        assert!(spent.is_spent(owned_ticket_id(7, 9)), "nor do older ones of its own");
        assert!(!spent.is_spent(owned_ticket_id(7, 10 + 3 * room)), "its next one holds");
        // Another does the same, and has as much room in the end.
        for number in 4 * room..6 * room {
            spent.add_ticket(0, owned_ticket_id(8, number), 100);
        }
        check_indexes(&spent);
        let [first, second] =
            [7, 8].map(|owner| spent.tickets_by_owner[&owned_ticket_id(owner, 0).owner].entry_count());
        assert!(first.abs_diff(second) <= 1 && first + second == CAPACITY - 1, "{first} {second}");
        assert!(!spent.is_spent(owned_ticket_id(1, 2)));
        // All of it is forgotten in its time.
        spent.add_ticket(101, owned_ticket_id(9, 7 * room), 200);
        assert_eq!((spent.len(), spent.is_spent(owned_ticket_id(7, 10))), (1, false));
        check_indexes(&spent);
    }

    #[test]
    fn a_full_table_gives_up_the_oldest_tickets_of_all_clients() {
        let mut spent = SpentTickets::default();
        for n in 1..=CAPACITY as u32 + 10 {
            spent.add_ticket(0, owned_ticket_id(n, n.into()), u64::from(n) + 100);
        }
        check_indexes(&spent);
        assert_eq!((spent.len(), spent.floor), (CAPACITY, 10));
        assert!(
            (1..=10).all(|n| spent.is_spent(owned_ticket_id(n, n.into())))
                && spent.is_spent(owned_ticket_id(999_999, 10))
        );
        assert!(!spent.is_spent(owned_ticket_id(999_999, 11)) && spent.is_spent(owned_ticket_id(11, 11)));
    }
}
