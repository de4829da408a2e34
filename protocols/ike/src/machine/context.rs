//! The parts of an endpoint that the steps of its IKE_SAs share.

use super::config::{IkeConnectionConfig, IkeEndpointConfig};
use super::counters::IkeCounters;
use super::event::{IkeEvent, IkeJob, IkeSaId};
use super::guesses::IkeLockoutTable;
use super::tickets::TicketTable;
use crate::header::Spi;
use crate::work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::collections::HashSet;
use usher_core::{Duration, Instant, OutputQueue, SecureRng, WallTime, WorkLabel, WorkRecord};
use usher_crypto::exchange::KeyExchangeAlgorithm;

/// The parts of an endpoint that the steps of its IKE_SAs share.
#[derive(Debug)]
pub(super) struct IkeEndpointContext {
    /// The time of the input that is being handled.
    pub(super) now: Instant,
    /// The wall-clock time at time zero.
    pub(super) epoch: WallTime,
    pub(super) config: IkeEndpointConfig,
    /// The connections that peers may initiate, the preferred first.
    pub(super) connections: Vec<Arc<IkeConnectionConfig>>,
    pub(super) rng: SecureRng,
    pub(super) tickets: TicketTable,
    /// Lockouts for failed proofs by shared keys.
    pub(super) proof_lockouts: IkeLockoutTable,
    /// The inbound SPIs of the CHILD_SAs of all IKE_SAs.
    pub(super) inbound: HashSet<u32>,
    pub(super) counters: IkeCounters,
    pub(super) outputs: OutputQueue<IkeEvent, IkeJob>,
}

impl IkeEndpointContext {
    pub(super) fn count_work(&mut self, label: WorkLabel) {
        self.outputs.push_work(WorkRecord { label, units: 1 });
    }
    /// Counts an answered key exchange: the responder does both halves of the initiator's work.
    pub(super) fn count_answered_exchange(&mut self, algorithm: KeyExchangeAlgorithm) {
        self.outputs.push_work(WorkRecord {
            label: work::KEY_EXCHANGE,
            units: algorithm.responder_operation_count(),
        });
    }
    /// Returns the wall-clock time.
    pub(super) fn wall_time(&self) -> WallTime {
        self.now.to_wall_time(self.epoch)
    }
    /// Returns unpredictable octets, for an SPI or a nonce.
    pub(super) fn random_octets<const N: usize>(&mut self) -> [u8; N] {
        self.rng.random_array()
    }
    /// Shortens a time by up to a tenth.
    pub(super) fn with_jitter(&mut self, time: Duration) -> Duration {
        let less = (time.as_nanos() / 10).saturating_mul(u64::from(self.rng.next_u32() >> 16)) >> 16;
        time - Duration::from_nanos(less)
    }
    /// Returns a new IKE SPI of this side.
    pub(super) fn new_ike_spi(&mut self) -> Spi {
        let mut octets: [u8; 8] = self.random_octets();
        octets[0] = self.config.shard.first_spi_octet(octets[0]);
        Spi(octets)
    }
    /// Frees the SPI of a CHILD_SA and reports its removal.
    pub(super) fn remove_child_sa(&mut self, sa: IkeSaId, inbound: u32, outbound: u32) {
        self.inbound.remove(&inbound);
        self.outputs.push_event(IkeEvent::Remove { sa, inbound, outbound });
    }
}
