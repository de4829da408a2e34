//! The context of a step of an IKE_SA.

use super::IkeCounters;
use super::config::{IkeConnectionConfig, IkeEndpointConfig};
use super::event::{IkeEvent, IkeJob, IkeSaId};
use super::guesses::IkeLockoutTable;
use super::sa::IkeSa;
use super::tickets::TicketTable;
use crate::header::Spi;
use crate::work;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::collections::HashSet;
use usher_core::{Instant, OutputQueue, SecureRng, WallTime, WorkRecord};
use usher_crypto::exchange::KeyExchangeAlgorithm;

/// The endpoint's parts that a step of an IKE_SA uses.
pub(super) struct IkeEndpointContext<'a> {
    pub(super) now: Instant,
    /// The wall-clock time at time zero.
    pub(super) epoch: WallTime,
    pub(super) config: &'a IkeEndpointConfig,
    pub(super) connections: &'a [Arc<IkeConnectionConfig>],
    pub(super) rng: &'a mut SecureRng,
    pub(super) tickets: &'a mut TicketTable,
    pub(super) proof_lockouts: &'a mut IkeLockoutTable,
    pub(super) outputs: &'a mut OutputQueue<IkeEvent, IkeJob>,
    pub(super) counters: &'a mut IkeCounters,
    /// The inbound SPIs of the CHILD_SAs of all IKE_SAs.
    pub(super) inbound: &'a mut HashSet<u32>,
    /// IKE_SAs that this step created.
    pub(super) created_sas: Vec<IkeSa>,
}

impl IkeEndpointContext<'_> {
    pub(super) fn count_work(&mut self, label: usher_core::WorkLabel) {
        self.outputs.push_work(WorkRecord { label, units: 1 });
    }
    /// Counts an answered key exchange: the responder does both halves of the initiator's work.
    pub(super) fn count_answered_exchange(&mut self, algorithm: KeyExchangeAlgorithm) {
        self.outputs.push_work(WorkRecord {
            label: work::KEY_EXCHANGE,
            units: algorithm.responder_operation_count(),
        });
    }
    /// Returns unpredictable octets, for an SPI or a nonce.
    pub(super) fn random_octets<const N: usize>(&mut self) -> [u8; N] {
        self.rng.random_array()
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
