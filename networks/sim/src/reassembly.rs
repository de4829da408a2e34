//! Reassembly of fragmented datagrams (RFC 791 §3.2, RFC 8200 §4.5).

use crate::addr::HostId;
use crate::packet::{Datagram, IpFragment};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use usher_core::{Duration, Instant};

/// How long fragments wait for the rest.
const TIMEOUT: Duration = Duration::from_secs(30);

type FragmentedDatagramKey = (HostId, HostId, u32);

#[derive(Debug)]
struct PartialDatagram {
    datagram: Arc<Datagram>,
    /// Received ranges, by offset.
    have: BTreeMap<u32, u32>,
    total: Option<u32>,
    since: Instant,
}

/// All datagrams with some fragments received and some missing.
#[derive(Debug, Default)]
pub(crate) struct DatagramReassembly {
    partial: BTreeMap<FragmentedDatagramKey, PartialDatagram>,
    order: VecDeque<(Instant, FragmentedDatagramKey)>,
    /// Datagrams dropped after the timeout.
    pub(crate) timed_out: u64,
}

impl DatagramReassembly {
    /// Inserts a fragment. Returns the datagram when it is complete.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        src: HostId,
        dst: HostId,
        fragment: &IpFragment,
    ) -> Option<Arc<Datagram>> {
        while let Some(&(since, key)) = self.order.front() {
            if since + TIMEOUT > now {
                break;
            }
            self.order.pop_front();
            if self.partial.get(&key).is_some_and(|p| p.since == since) {
                self.partial.remove(&key);
                self.timed_out += 1;
            }
        }
        let key = (src, dst, fragment.id);
        let fresh = || PartialDatagram {
            datagram: fragment.datagram.clone(),
            have: BTreeMap::new(),
            total: None,
            since: now,
        };
        let order = &mut self.order;
        let p = self.partial.entry(key).or_insert_with(|| {
            order.push_back((now, key));
            fresh()
        });
        // A new datagram has the same 16-bit identification, which wrapped before the old datagram was complete. So
        // drop the old one.
        if !Arc::ptr_eq(&p.datagram, &fragment.datagram) {
            self.timed_out += 1;
            *p = fresh();
            order.push_back((now, key));
        }
        p.have.insert(fragment.offset, fragment.offset + fragment.len);
        if !fragment.more {
            p.total = Some(fragment.offset + fragment.len);
        }
        let covered = p.have.iter().try_fold(0, |end, (from, to)| (*from <= end).then(|| end.max(*to)));
        if p.total.is_some() && covered == p.total {
            return self.partial.remove(&key).map(|p| p.datagram);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Payload;

    fn test_fragment(whole: &Arc<Datagram>, id: u32, offset: u32, len: u32, more: bool) -> IpFragment {
        IpFragment { id, offset, len, more, datagram: whole.clone() }
    }

    #[test]
    fn fragments_in_any_order_make_the_datagram_once() {
        let whole = Arc::new(Datagram { src_port: 1, dst_port: 2, payload: Payload::with_length(24) });
        let mut r = DatagramReassembly::default();
        let (a, b, t) = (HostId(0), HostId(1), Instant::ZERO);
        assert!(r.insert(t, a, b, &test_fragment(&whole, 1, 24, 8, false)).is_none());
        assert!(r.insert(t, a, b, &test_fragment(&whole, 1, 0, 16, true)).is_none());
        assert!(r.insert(t, a, b, &test_fragment(&whole, 1, 0, 16, true)).is_none());
        assert!(r.insert(t, a, b, &test_fragment(&whole, 1, 16, 8, true)).is_some());
        assert!(r.partial.is_empty());
    }

    #[test]
    fn what_stays_incomplete_is_given_up_and_counted() {
        let whole = Arc::new(Datagram { src_port: 1, dst_port: 2, payload: Payload::with_length(24) });
        let other = Arc::new(Datagram { src_port: 1, dst_port: 2, payload: Payload::with_length(24) });
        let mut r = DatagramReassembly::default();
        let (a, b) = (HostId(0), HostId(1));
        let later = Instant::ZERO + TIMEOUT;
        assert!(r.insert(Instant::ZERO, a, b, &test_fragment(&whole, 1, 0, 16, true)).is_none());
        assert!(r.insert(later, a, b, &test_fragment(&other, 2, 0, 16, true)).is_none());
        assert_eq!(r.timed_out, 1);
        // The same identification for a new datagram never mixes the two.
        assert!(r.insert(later, a, b, &test_fragment(&whole, 2, 16, 16, false)).is_none());
        assert_eq!(r.timed_out, 2);
    }
}
