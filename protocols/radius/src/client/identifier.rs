//! Identifiers: 256 per server and socket, assigned in rotation. A RadSec connection reserves identifier 0 for
//! Status-Server (RFC 6613 §2.6.5). So the client can probe a connection whose other identifiers are all in use.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use usher_core::{Instant, SecureRng};

/// An identifier in use, with its server and its socket (counted from the first).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct AllocatedIdentifier {
    pub(crate) server: u16,
    pub(crate) socket: u32,
    pub(crate) identifier: u8,
}

impl AllocatedIdentifier {
    /// Returns all three in one word, as a lookup key.
    pub(crate) const fn lookup_key(self) -> u64 {
        (self.socket as u64) << 24 | (self.server as u64) << 8 | self.identifier as u64
    }
}

/// The identifier that RFC 6613 §2.6.5 proposes for Status-Server.
const STATUS: u8 = 0;

/// The identifiers of one server on one socket.
#[derive(Clone, Debug)]
struct SocketIdentifierPool {
    busy: [u64; 4],
    used: u16,
    next: u8,
}

impl SocketIdentifierPool {
    fn is_busy(&self, id: u8) -> bool {
        self.busy[usize::from(id / 64)] >> (id % 64) & 1 == 1
    }
    fn mark_busy(&mut self, id: u8) {
        self.busy[usize::from(id / 64)] |= 1 << (id % 64);
        self.used += 1;
    }
    /// Returns the next free identifier. `reserved`: skips 0.
    fn take_identifier(&mut self, reserved: bool) -> Option<u8> {
        let left_out = u16::from(reserved && !self.is_busy(STATUS));
        // RFC 6613, 2.6.5: at most 256 requests wait on a connection.
        if self.used + left_out == 256 {
            return None;
        }
        let mut id = self.next;
        // RFC 2865, 4.1; RFC 5080, 2.2.2; RFC 5997, 4.1: waiting requests of a socket have different identifiers.
        while self.is_busy(id) || reserved && id == STATUS {
            id = id.wrapping_add(1);
        }
        self.mark_busy(id);
        self.next = id.wrapping_add(1);
        Some(id)
    }
    fn free_identifier(&mut self, id: u8) {
        self.busy[usize::from(id / 64)] &= !(1 << (id % 64));
        self.used -= 1;
    }
}

/// The identifiers of one server.
#[derive(Debug)]
struct ServerIdentifierPools {
    lanes: Vec<SocketIdentifierPool>,
    /// The first lane that may have a free identifier.
    first_free: usize,
    max: usize,
    /// True if identifier 0 is reserved for Status-Server.
    reserved: bool,
}

impl ServerIdentifierPools {
    fn add_identifier_socket(&mut self, rng: &mut SecureRng) {
        self.lanes.push(SocketIdentifierPool { busy: [0; 4], used: 0, next: rng.next_u32() as u8 });
    }
}

/// All identifiers of a client.
#[derive(Debug)]
pub(crate) struct IdentifierTable {
    servers: Vec<ServerIdentifierPools>,
    /// Identifiers that may still get a late reply, in the order in which they become free.
    resting: VecDeque<(Instant, AllocatedIdentifier)>,
}

impl IdentifierTable {
    pub(crate) const fn new() -> Self {
        Self { servers: Vec::new(), resting: VecDeque::new() }
    }
    /// Adds a server with a maximum number of sockets or connections. `reserved`: identifier 0 of each is for
    /// Status-Server.
    pub(crate) fn add_server(&mut self, max: u32, reserved: bool) {
        self.servers.push(ServerIdentifierPools {
            lanes: Vec::new(),
            first_free: 0,
            max: max as usize,
            reserved,
        });
    }
    /// Returns a free identifier, on the first socket that has one; `None` if all sockets are full.
    pub(crate) fn take_identifier(
        &mut self,
        now: Instant,
        server: u16,
        rng: &mut SecureRng,
    ) -> Option<AllocatedIdentifier> {
        self.free_rested_identifiers(now);
        let of = &mut self.servers[usize::from(server)];
        loop {
            if of.first_free == of.lanes.len() {
                if of.lanes.len() == of.max {
                    return None;
                }
                of.add_identifier_socket(rng);
            }
            if let Some(identifier) = of.lanes[of.first_free].take_identifier(of.reserved) {
                return Some(AllocatedIdentifier { server, socket: of.first_free as u32, identifier });
            }
            of.first_free += 1;
        }
    }
    /// Returns an identifier for Status-Server: the reserved identifier of the first connection, or any if none is
    /// reserved.
    pub(crate) fn take_status_server_identifier(
        &mut self,
        now: Instant,
        server: u16,
        rng: &mut SecureRng,
    ) -> Option<AllocatedIdentifier> {
        if !self.servers[usize::from(server)].reserved {
            return self.take_identifier(now, server, rng);
        }
        self.free_rested_identifiers(now);
        let of = &mut self.servers[usize::from(server)];
        if of.lanes.is_empty() {
            of.add_identifier_socket(rng);
        }
        let lane = of.lanes.first_mut().filter(|lane| !lane.is_busy(STATUS))?;
        lane.mark_busy(STATUS);
        Some(AllocatedIdentifier { server, socket: 0, identifier: STATUS })
    }
    /// Frees identifiers whose rest is over.
    fn free_rested_identifiers(&mut self, now: Instant) {
        while let Some(&(at, slot)) = self.resting.front()
            && at <= now
        {
            self.resting.pop_front();
            self.free_identifier(slot);
        }
    }
    /// Frees an identifier.
    pub(crate) fn free_identifier(&mut self, slot: AllocatedIdentifier) {
        let ServerIdentifierPools { lanes, first_free: room, .. } =
            &mut self.servers[usize::from(slot.server)];
        lanes[slot.socket as usize].free_identifier(slot.identifier);
        *room = (*room).min(slot.socket as usize);
    }
    /// Frees an identifier at `at`. The times of successive calls must not decrease.
    pub(crate) fn schedule_identifier_release(&mut self, at: Instant, slot: AllocatedIdentifier) {
        self.resting.push_back((at, slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn identifiers_rotate_and_overflow_to_the_next_socket() {
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        let mut ids = IdentifierTable::new();
        ids.add_server(2, false);
        let first = ids.take_identifier(Instant::ZERO, 0, &mut rng).unwrap();
        ids.free_identifier(first);
        let mut seen = std::collections::BTreeSet::new();
        for i in 0..512 {
            let slot = ids.take_identifier(Instant::ZERO, 0, &mut rng).unwrap();
            assert_eq!(slot.socket, i / 256);
            assert!(i != 0 || slot.identifier == first.identifier.wrapping_add(1), "not reused at once");
            assert!(seen.insert(slot));
        }
        assert_eq!(ids.take_identifier(Instant::ZERO, 0, &mut rng), None);
        ids.schedule_identifier_release(Instant::from_nanos(5), first);
        assert_eq!(ids.take_identifier(Instant::from_nanos(4), 0, &mut rng), None);
        assert_eq!(ids.take_identifier(Instant::from_nanos(5), 0, &mut rng), Some(first));
    }

    #[test]
    fn one_identifier_of_a_connection_is_left_to_status_server() {
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        let mut ids = IdentifierTable::new();
        ids.add_server(1, true);
        for _ in 0..255 {
            assert_ne!(ids.take_identifier(Instant::ZERO, 0, &mut rng).unwrap().identifier, STATUS);
        }
        assert_eq!(ids.take_identifier(Instant::ZERO, 0, &mut rng), None);
        let status = AllocatedIdentifier { server: 0, socket: 0, identifier: STATUS };
        assert_eq!(ids.take_status_server_identifier(Instant::ZERO, 0, &mut rng), Some(status));
        assert_eq!(ids.take_status_server_identifier(Instant::ZERO, 0, &mut rng), None, "one at a time");
        assert_eq!(ids.take_identifier(Instant::ZERO, 0, &mut rng), None);
        ids.free_identifier(status);
        assert_eq!(
            ids.take_identifier(Instant::ZERO, 0, &mut rng),
            None,
            "nor is it anybody else's when it is free"
        );
        assert_eq!(ids.take_status_server_identifier(Instant::ZERO, 0, &mut rng), Some(status));
    }
}
