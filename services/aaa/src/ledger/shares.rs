//! Shares of the clients in a common table.

use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, SeededHashState};

/// The network of a RADIUS client with its prefix length. It identifies the client for the life of the server,
/// across reloads.
pub(super) type ClientNetwork = (IpAddr, u8);

/// Client number of sessions with an unknown reporter, such as those loaded at the start.
pub(super) const UNKNOWN_CLIENT: u32 = 0;

/// Number of sessions of each client.
#[derive(Debug)]
pub(super) struct ClientSessionCounts {
    numbers: HashMap<ClientNetwork, u32>,
    counts: Vec<usize>,
}

impl ClientSessionCounts {
    pub(super) fn new(hash: SeededHashState) -> Self {
        Self { numbers: HashMap::with_hasher(hash), counts: alloc::vec![0] }
    }
    /// Returns a client's number.
    pub(super) fn intern_client_number(&mut self, client: Option<ClientNetwork>) -> u32 {
        let Some(client) = client else { return UNKNOWN_CLIENT };
        let counts = &mut self.counts;
        *self.numbers.entry(client).or_insert_with(|| {
            counts.push(0);
            counts.len() as u32 - 1
        })
    }
    /// Adds a session to a client.
    pub(super) fn increment_client_sessions(&mut self, number: u32) {
        if let Some(count) = self.counts.get_mut(number as usize) {
            *count += 1;
        }
    }
    /// Removes a session from a client.
    pub(super) fn remove_session(&mut self, number: u32) {
        if let Some(count) = self.counts.get_mut(number as usize) {
            *count -= 1;
        }
    }
    /// True if a client has used its share when `all` of `most` are used. The share is nine tenths of the capacity
    /// that others leave. So one client alone can use nearly all, and further clients always find some room.
    /// Unknown clients have no share.
    pub(super) fn has_its_share(&self, client: Option<ClientNetwork>, all: usize, most: usize) -> bool {
        let number = client.and_then(|client| self.numbers.get(&client));
        let own = number.and_then(|n| self.counts.get(*n as usize)).copied().unwrap_or(0);
        let left = most.saturating_sub(all.saturating_sub(own));
        client.is_some() && own > 0 && own >= left - left / 10
    }
}
