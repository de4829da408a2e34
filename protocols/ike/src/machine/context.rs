//! What a step of an IKE_SA works with.

use super::Counters;
use super::config::{Config, Connection};
use super::event::{Event, IkeJob, SaId};
use super::guesses::Guesses;
use super::sa::IkeSa;
use super::tickets::Tickets;
use crate::header::Spi;
use crate::work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::collections::HashSet;
use usher_core::{Instant, Outputs, SecureRng, WallTime, Work};
use usher_crypto::exchange::ExchangeAlgorithm;

/// What a step of an IKE_SA works with: the endpoint's, while it lasts.
pub(super) struct Context<'a> {
    pub(super) now: Instant,
    /// What the wall clock shows at time zero.
    pub(super) epoch: WallTime,
    pub(super) config: &'a Config,
    pub(super) connections: &'a [Arc<Connection>],
    pub(super) rng: &'a mut SecureRng,
    pub(super) tickets: &'a mut Tickets,
    pub(super) guesses: &'a mut Guesses,
    pub(super) outputs: &'a mut Outputs<Event, IkeJob>,
    pub(super) counters: &'a mut Counters,
    /// At which SPIs CHILD_SAs receive, of all IKE_SAs.
    pub(super) inbound: &'a mut HashSet<u32>,
    /// IKE_SAs that came to be in this step.
    pub(super) born: Vec<IkeSa>,
}

impl Context<'_> {
    pub(super) fn work(&mut self, label: usher_core::WorkLabel) {
        self.outputs.work(Work { label, units: 1 });
    }
    /// A key exchange is answered: as much work as both halves of whoever began it, where that is so.
    pub(super) fn answers(&mut self, algorithm: ExchangeAlgorithm) {
        self.outputs.work(Work { label: work::KEY_EXCHANGE, units: algorithm.operations_to_answer() });
    }
    /// An SPI, or a nonce, or any other octets that nobody can guess.
    pub(super) fn random<const N: usize>(&mut self) -> [u8; N] {
        self.rng.array()
    }
    /// An SPI of an IKE_SA of this side.
    pub(super) fn spi(&mut self) -> Spi {
        let mut octets: [u8; 8] = self.random();
        octets[0] = self.config.shard.octet(octets[0]);
        Spi(octets)
    }
    /// A CHILD_SA is no more.
    pub(super) fn remove(&mut self, sa: SaId, inbound: u32, outbound: u32) {
        self.inbound.remove(&inbound);
        self.outputs.event(Event::Remove { sa, inbound, outbound });
    }
}
