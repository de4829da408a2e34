//! The interface of all roles that run on a run's hosts.

use super::report::RoleReport;
use std::fmt::Debug;
use usher_mih::Mihf;
use usher_nas::keying::KeyingCounters;
use usher_scenario::metrics::{self, Metric};
use usher_sim::{AppContext, AppDelivery, Application};

/// A role of a host. The simulator and the lab run it in the same way.
pub(super) trait HostRole: Debug {
    /// Handles a delivery of its host.
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery);
    /// Returns the counters of its traffic-key exchanges, if it has any.
    fn keying_totals(&self) -> Option<KeyingCounters> {
        None
    }
    /// Returns the counted messages of IKE authentications, if it is an initiator or gateway of a workload.
    fn ike_totals(&self) -> Option<IkeTotals> {
        None
    }
    /// Returns the counters of its MIH function, if it is one.
    fn mih_totals(&self) -> Option<MihTotals> {
        None
    }
}

impl Application for Box<dyn HostRole> {
    type Report = RoleReport;

    #[inline(always)]
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        (**self).handle_delivery(ctx, delivery);
        #[cfg(test)]
        worked::record_work_labels(ctx.charged_work());
    }
}

/// Messages of IKE or RADIUS on one side of a gateway: numbers and octets in frames, towards the AAA server and back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IkeTotals {
    /// Messages and octets of IKE, each towards the server and back.
    pub(super) ike: [[u64; 2]; 2],
    /// Messages and octets of RADIUS, each towards the server and back.
    pub(super) radius: [[u64; 2]; 2],
    /// Received Access-Accepts, and those with a key of the method.
    pub(super) accepts: u64,
    pub(super) keyed: u64,
}

impl IkeTotals {
    /// Returns all counters in the order of [`Self::METRICS`], then accepts without and with keys.
    pub(super) fn all_ike_counts(&self) -> [u64; 10] {
        let mut all = [0; 10];
        let counted =
            [self.ike, self.radius].into_iter().flatten().flatten().chain([self.accepts, self.keyed]);
        all.iter_mut().zip(counted).for_each(|(a, n)| *a = n);
        all
    }
    /// The metrics of the counters.
    pub(super) const METRICS: [Metric; 8] = [
        metrics::IKE_REQUESTS,
        metrics::IKE_REQUEST_BYTES,
        metrics::IKE_RESPONSES,
        metrics::IKE_RESPONSE_BYTES,
        metrics::IKE_RADIUS_REQUESTS,
        metrics::IKE_RADIUS_REQUEST_BYTES,
        metrics::IKE_RADIUS_RESPONSES,
        metrics::IKE_RADIUS_RESPONSE_BYTES,
    ];
}

/// Counters of an MIH function and of its user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MihTotals {
    /// Indications, requests and responses sent by the user.
    pub(super) messages: u64,
    /// Packets passed to the transport.
    pub(super) packets: u64,
    /// Retransmitted messages.
    pub(super) retransmissions: u64,
    /// Duplicate messages that the user took for new ones.
    pub(super) duplicates: u64,
    /// Responses dropped because their transaction was over.
    pub(super) late: u64,
    /// Maximum number of concurrent transactions.
    pub(super) memory: u64,
    /// Distinct indications and requests that the remote user received.
    pub(super) delivered: u64,
    /// Their total delay since sending, in nanoseconds.
    pub(super) delivery_ns: u128,
}

impl MihTotals {
    /// Returns the sum of both; `memory` is the maximum.
    #[must_use]
    pub(super) fn combine_with(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            packets: self.packets + other.packets,
            retransmissions: self.retransmissions + other.retransmissions,
            duplicates: self.duplicates + other.duplicates,
            late: self.late + other.late,
            memory: self.memory.max(other.memory),
            delivered: self.delivered + other.delivered,
            delivery_ns: self.delivery_ns + other.delivery_ns,
        }
    }
}

impl From<&Mihf> for MihTotals {
    fn from(mihf: &Mihf) -> Self {
        let counters = mihf.counters();
        Self {
            messages: counters.messages,
            packets: counters.packets,
            retransmissions: counters.retransmissions,
            duplicates: 0,
            late: counters.late_responses,
            memory: mihf.peak_transactions() as u64,
            delivered: 0,
            delivery_ns: 0,
        }
    }
}

/// The work labels that roles have used in this thread.
#[cfg(test)]
pub(super) mod worked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use usher_core::{WorkLabel, WorkRecord};

    thread_local! {
        static RECORDED_LABELS: RefCell<BTreeSet<WorkLabel>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Records a role's work.
    pub(super) fn record_work_labels(work: &[WorkRecord]) {
        RECORDED_LABELS.with_borrow_mut(|seen| seen.extend(work.iter().map(|w| w.label)));
    }

    /// Returns all labels and clears them.
    pub(in super::super) fn take_recorded_labels() -> BTreeSet<WorkLabel> {
        RECORDED_LABELS.take()
    }
}
