//! Identifiers: 256 for each server and socket, given out in rotation.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng};

/// An identifier in use: of which server, from which socket (counted from the first).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub(crate) server: u16,
    pub(crate) socket: u32,
    pub(crate) identifier: u8,
}

impl Slot {
    /// All three in one word, to look up by.
    pub(crate) const fn key(self) -> u64 {
        (self.socket as u64) << 24 | (self.server as u64) << 8 | self.identifier as u64
    }
}

/// The identifiers of one server on one socket.
#[derive(Clone, Debug)]
struct Lane {
    busy: [u64; 4],
    used: u16,
    next: u8,
}

impl Lane {
    fn take(&mut self) -> Option<u8> {
        if self.used == 256 {
            return None;
        }
        let mut id = self.next;
        while self.busy[usize::from(id / 64)] >> (id % 64) & 1 == 1 {
            id = id.wrapping_add(1);
        }
        self.busy[usize::from(id / 64)] |= 1 << (id % 64);
        self.used += 1;
        self.next = id.wrapping_add(1);
        Some(id)
    }
    fn free(&mut self, id: u8) {
        self.busy[usize::from(id / 64)] &= !(1 << (id % 64));
        self.used -= 1;
    }
}

/// One server's.
#[derive(Debug)]
struct Lanes {
    lanes: Vec<Lane>,
    /// The first one that may have room.
    room: usize,
    max: usize,
}

/// All identifiers of a client.
#[derive(Debug)]
pub(crate) struct Identifiers {
    servers: Vec<Lanes>,
    /// Identifiers that may still get a late reply, in the order in which they are freed.
    resting: VecDeque<(Instant, Slot)>,
}

impl Identifiers {
    pub(crate) const fn new() -> Self {
        Self { servers: Vec::new(), resting: VecDeque::new() }
    }
    /// Adds a server with at most so many sockets or connections.
    pub(crate) fn add(&mut self, max: u32) {
        self.servers.push(Lanes { lanes: Vec::new(), room: 0, max: max as usize });
    }
    /// An identifier that is not in use, on the first socket that has one; `None` where all sockets are
    /// full.
    pub(crate) fn take(&mut self, now: Instant, server: u16, rng: &mut SecureRng) -> Option<Slot> {
        while let Some(&(at, slot)) = self.resting.front()
            && at <= now
        {
            self.resting.pop_front();
            self.free(slot);
        }
        let Lanes { lanes, room, max } = &mut self.servers[usize::from(server)];
        loop {
            if *room == lanes.len() {
                if lanes.len() == *max {
                    return None;
                }
                lanes.push(Lane { busy: [0; 4], used: 0, next: rng.next_u32() as u8 });
            }
            if let Some(identifier) = lanes[*room].take() {
                return Some(Slot { server, socket: *room as u32, identifier });
            }
            *room += 1;
        }
    }
    /// Gives an identifier back for use.
    pub(crate) fn free(&mut self, slot: Slot) {
        let Lanes { lanes, room, .. } = &mut self.servers[usize::from(slot.server)];
        lanes[slot.socket as usize].free(slot.identifier);
        *room = (*room).min(slot.socket as usize);
    }
    /// Gives an identifier back that is to rest until `at`; calls have non-decreasing times.
    pub(crate) fn rest(&mut self, at: Instant, slot: Slot) {
        self.resting.push_back((at, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn identifiers_rotate_and_overflow_to_the_next_socket() {
        let mut rng = Seed::new(1).secure("test", 0);
        let mut ids = Identifiers::new();
        ids.add(2);
        let first = ids.take(Instant::ZERO, 0, &mut rng).unwrap();
        ids.free(first);
        let mut seen = std::collections::BTreeSet::new();
        for i in 0..512 {
            let slot = ids.take(Instant::ZERO, 0, &mut rng).unwrap();
            assert_eq!(slot.socket, i / 256);
            assert!(i != 0 || slot.identifier == first.identifier.wrapping_add(1), "not reused at once");
            assert!(seen.insert(slot));
        }
        assert_eq!(ids.take(Instant::ZERO, 0, &mut rng), None);
        ids.rest(Instant::from_nanos(5), first);
        assert_eq!(ids.take(Instant::from_nanos(4), 0, &mut rng), None);
        assert_eq!(ids.take(Instant::from_nanos(5), 0, &mut rng), Some(first));
    }
}
