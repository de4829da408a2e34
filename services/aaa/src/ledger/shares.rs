//! What each client may have of a table that all share.

use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, HashState};

/// The network of a RADIUS client, with its leading bits that count: what tells clients apart for as long as the server
/// runs, whatever becomes of the list.
pub(super) type ClientNetwork = (IpAddr, u8);

/// The number of those of whom it is not known who reported them, such as sessions that were open at the start.
pub(super) const UNKNOWN_CLIENT: u32 = 0;

/// How many sessions are whose.
#[derive(Debug)]
pub(super) struct SessionQuotas {
    numbers: HashMap<ClientNetwork, u32>,
    counts: Vec<usize>,
}

impl SessionQuotas {
    pub(super) fn new(hash: HashState) -> Self {
        Self { numbers: HashMap::with_hasher(hash), counts: alloc::vec![0] }
    }
    /// A client's number.
    pub(super) fn client_number(&mut self, client: Option<ClientNetwork>) -> u32 {
        let Some(client) = client else { return UNKNOWN_CLIENT };
        let counts = &mut self.counts;
        *self.numbers.entry(client).or_insert_with(|| {
            counts.push(0);
            counts.len() as u32 - 1
        })
    }
    /// One more of a client's.
    pub(super) fn add_session(&mut self, number: u32) {
        if let Some(count) = self.counts.get_mut(number as usize) {
            *count += 1;
        }
    }
    /// One fewer.
    pub(super) fn remove_session(&mut self, number: u32) {
        if let Some(count) = self.counts.get_mut(number as usize) {
            *count -= 1;
        }
    }
    /// Whether a client has its share where `all` of at most `most` are taken: nine tenths of what the others leave. So
    /// one alone can have nearly all, and however many take what they can, some is left for the next. Those of whom it is
    /// not known whose they are have no share of their own.
    pub(super) fn has_its_share(&self, client: Option<ClientNetwork>, all: usize, most: usize) -> bool {
        let number = client.and_then(|client| self.numbers.get(&client));
        let own = number.and_then(|n| self.counts.get(*n as usize)).copied().unwrap_or(0);
        let left = most.saturating_sub(all.saturating_sub(own));
        client.is_some() && own > 0 && own >= left - left / 10
    }
}
