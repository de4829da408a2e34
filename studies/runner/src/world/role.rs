//! What a run asks of everything that runs on its hosts.

use super::report::RoleReport;
use std::fmt::Debug;
use usher_mih::Mihf;
use usher_nas::keying::KeyingCounters;
use usher_scenario::metrics::{self, Metric};
use usher_sim::{AppContext, AppDelivery, Application};

/// Something that runs on a host. The simulator and the lab host it in the same way.
pub(super) trait HostRole: Debug {
    /// Handles what its host delivers.
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery);
    /// What its exchanges of traffic keys did, where it has such.
    fn keying_totals(&self) -> Option<KeyingCounters> {
        None
    }
    /// The messages of authentications by IKE that it has seen, where it is an initiator or a gateway of a workload.
    fn ike_totals(&self) -> Option<IkeTotals> {
        None
    }
    /// What its MIH function did, where it is one.
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
        worked::note_work(ctx.charged_work());
    }
}

/// Messages of IKE, or of RADIUS, on one side of a gateway: numbers and octets in frames, towards the AAA server and back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IkeTotals {
    /// Messages and octets of IKE, each up and down.
    pub(super) ike: [[u64; 2]; 2],
    /// The same of RADIUS.
    pub(super) radius: [[u64; 2]; 2],
    /// Access-Accepts that have come, and those of them with a key of the method.
    pub(super) accepts: u64,
    pub(super) keyed: u64,
}

impl IkeTotals {
    /// All of them: in the order of [`Self::METRICS`], and accepts without and with keys.
    pub(super) fn all_counts(&self) -> [u64; 10] {
        let mut all = [0; 10];
        let counted =
            [self.ike, self.radius].into_iter().flatten().flatten().chain([self.accepts, self.keyed]);
        all.iter_mut().zip(counted).for_each(|(a, n)| *a = n);
        all
    }
    /// What each is called.
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

/// What an MIH function did, and what became of it at its user.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MihTotals {
    /// Indications, requests and responses that the user gave.
    pub(super) messages: u64,
    /// Packets given to the transport.
    pub(super) packets: u64,
    /// Messages sent again.
    pub(super) retransmissions: u64,
    /// Messages that came again, and that the user took for new ones.
    pub(super) duplicates: u64,
    /// Responses dropped because their transaction was over.
    pub(super) late: u64,
    /// Most transactions held at once.
    pub(super) memory: u64,
    /// Indications and requests that the remote user has received, each once.
    pub(super) delivered: u64,
    /// How long they took, from their sending on, in nanoseconds.
    pub(super) delivery_ns: u128,
}

impl MihTotals {
    /// Both together; the memory is that of the one with more.
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

/// The kinds of work that roles have done in this thread.
#[cfg(test)]
pub(super) mod worked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use usher_core::{WorkLabel, WorkRecord};

    thread_local! {
        static RECORDED_LABELS: RefCell<BTreeSet<WorkLabel>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// Takes down what a role did.
    pub(super) fn note_work(work: &[WorkRecord]) {
        RECORDED_LABELS.with_borrow_mut(|seen| seen.extend(work.iter().map(|w| w.label)));
    }

    /// All of them; none are seen afterwards.
    pub(in super::super) fn take_labels() -> BTreeSet<WorkLabel> {
        RECORDED_LABELS.take()
    }
}
