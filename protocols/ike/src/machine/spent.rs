//! Tickets that must not come again (RFC 5723 §4.3.1, §6.2), until they would have expired.
//!
//! There is room for so many, which is shared by whose they are: whoever uses up tickets without end has its own oldest ones
//! given up, which it would have to have used in their order, and nobody else's.

use alloc::collections::{BTreeMap, BTreeSet};

/// So many are remembered.
pub(super) const ROOM: usize = 1 << 16;

/// Whose a ticket is: a hash of who the client has proved to be, and by which connection.
pub(super) type Owner = [u8; 16];

/// The name of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TicketId {
    pub(super) owner: Owner,
    /// Its number among all that were given, from 1.
    pub(super) number: u64,
}

/// What is remembered of somebody's tickets.
#[derive(Debug, Default)]
struct Of {
    /// Those that must not come again, and until which second since 1970.
    spent: BTreeMap<u64, u64>,
    /// None up to this number comes again, and until when that has to be known.
    floor: Option<(u64, u64)>,
}

impl Of {
    /// How much is remembered.
    fn takes(&self) -> usize {
        self.spent.len() + usize::from(self.floor.is_some())
    }
}

/// Tickets that must not come again.
#[derive(Debug, Default)]
pub(super) struct Spent {
    of: BTreeMap<Owner, Of>,
    /// Owners by how much is remembered of theirs.
    ranked: BTreeSet<(usize, Owner)>,
    /// What is remembered, by when it may be forgotten: a number, or 0 for a floor.
    until: BTreeSet<(u64, Owner, u64)>,
    /// None up to this number comes again, whosever it is.
    floor: u64,
}

impl Spent {
    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.until.len()
    }
    /// Whether a ticket must not come again.
    pub(super) fn has(&self, id: TicketId) -> bool {
        let is = |of: &Of| {
            of.spent.contains_key(&id.number) || of.floor.is_some_and(|(floor, _)| id.number <= floor)
        };
        id.number <= self.floor || self.of.get(&id.owner).is_some_and(is)
    }
    /// One must not come again from this second since 1970 to that.
    pub(super) fn add(&mut self, now: u64, id: TicketId, until: u64) {
        while let Some(&(_, owner, number)) = self.until.first().filter(|(until, ..)| *until < now) {
            self.until.pop_first();
            self.take(owner, number);
        }
        if self.has(id) {
            return;
        }
        let of = self.of.entry(id.owner).or_default();
        let before = of.takes();
        of.spent.insert(id.number, until);
        self.until.insert((until, id.owner, id.number));
        self.rank(id.owner, before);
        while self.len() > ROOM {
            self.give_up();
        }
    }

    /// Takes out what is remembered of somebody's under a number, or the floor.
    fn take(&mut self, owner: Owner, number: u64) {
        let Some(of) = self.of.get_mut(&owner) else { return };
        let before = of.takes();
        if number == 0 {
            of.floor = None;
        } else {
            of.spent.remove(&number);
        }
        self.rank(owner, before);
    }
    /// Somebody of whose tickets so much was remembered has another rank.
    fn rank(&mut self, owner: Owner, before: usize) {
        self.ranked.remove(&(before, owner));
        match self.of.get(&owner).map_or(0, Of::takes) {
            0 => drop(self.of.remove(&owner)),
            takes => drop(self.ranked.insert((takes, owner))),
        }
    }

    /// Of whom most is remembered has less remembered: none of its tickets comes again up to the oldest of those.
    fn give_up(&mut self) {
        let Some(&(most, owner)) = self.ranked.last() else { return };
        let Some(of) = self.of.get_mut(&owner) else { return };
        if most < 2 {
            // There are as many clients as there is room: none of all the tickets up to the one that expires first.
            let Some((_, owner, number)) = self.until.pop_first() else { return };
            let floor = self.of.get(&owner).and_then(|of| of.floor).map_or(0, |(floor, _)| floor);
            self.floor = self.floor.max(if number == 0 { floor } else { number });
            return self.take(owner, number);
        }
        let before = of.takes();
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
        self.rank(owner, before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(owner: u32, number: u64) -> TicketId {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&owner.to_be_bytes());
        TicketId { owner: octets, number }
    }
    /// Each index has what it should.
    fn holds(spent: &Spent) {
        let takes: usize = spent.of.values().map(Of::takes).sum();
        assert_eq!((spent.until.len(), spent.ranked.len()), (takes, spent.of.len()));
        assert!(spent.ranked.iter().all(|(takes, owner)| spent.of[owner].takes() == *takes && *takes > 0));
        assert!(spent.len() <= ROOM);
    }

    #[test]
    fn what_was_spent_is_remembered_until_it_has_expired() {
        let mut spent = Spent::default();
        spent.add(0, id(1, 5), 10);
        spent.add(0, id(1, 5), 90);
        spent.add(0, id(2, 6), 20);
        assert!(spent.has(id(1, 5)) && !spent.has(id(1, 4)) && !spent.has(id(2, 5)) && spent.len() == 2);
        spent.add(11, id(2, 7), 30);
        assert!(!spent.has(id(1, 5)) && spent.has(id(2, 6)) && spent.has(id(2, 7)));
        holds(&spent);
        spent.add(31, id(3, 8), 40);
        assert_eq!((spent.len(), spent.of.len()), (1, 1));
        holds(&spent);
    }

    /// Every second ticket is another client's, until that one has as many as half of all: its own oldest are given up.
    #[test]
    fn who_uses_up_tickets_without_end_has_its_own_given_up() {
        let mut spent = Spent::default();
        let room = ROOM as u64;
        spent.add(0, id(1, 1), 100);
        for number in 10..10 + 3 * room {
            spent.add(0, id(7, number), 100);
        }
        holds(&spent);
        assert!(
            spent.has(id(1, 1)) && !spent.has(id(1, 2)) && !spent.has(id(2, 3)),
            "others' are as they were"
        );
        assert!((10..10 + 3 * room).all(|number| spent.has(id(7, number))), "none comes again");
        assert!(spent.has(id(7, 9)), "nor do older ones of its own");
        assert!(!spent.has(id(7, 10 + 3 * room)), "its next one holds");
        // Another does the same, and has as much room in the end.
        for number in 4 * room..6 * room {
            spent.add(0, id(8, number), 100);
        }
        holds(&spent);
        let [first, second] = [7, 8].map(|owner| spent.of[&id(owner, 0).owner].takes());
        assert!(first.abs_diff(second) <= 1 && first + second == ROOM - 1, "{first} {second}");
        assert!(!spent.has(id(1, 2)));
        // All of it is forgotten in its time.
        spent.add(101, id(9, 7 * room), 200);
        assert_eq!((spent.len(), spent.has(id(7, 10))), (1, false));
        holds(&spent);
    }

    #[test]
    fn with_more_clients_than_there_is_room_the_oldest_tickets_of_all_are_given_up() {
        let mut spent = Spent::default();
        for n in 1..=ROOM as u32 + 10 {
            spent.add(0, id(n, n.into()), u64::from(n) + 100);
        }
        holds(&spent);
        assert_eq!((spent.len(), spent.floor), (ROOM, 10));
        assert!((1..=10).all(|n| spent.has(id(n, n.into()))) && spent.has(id(999_999, 10)));
        assert!(!spent.has(id(999_999, 11)) && spent.has(id(11, 11)));
    }
}
