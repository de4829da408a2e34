//! Requests in processing: the node acts on each after its processing time.

use alloc::collections::BTreeMap;
use usher_core::Instant;
use usher_core::timer::TimerQueue;
use usher_mih::{IncomingRequestId, MihfId, MihfMessage};

/// A request that is not yet answered.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    /// The sender.
    pub(crate) from: MihfId,
    /// Identifies the request in the response.
    pub(crate) transaction: IncomingRequestId,
    /// The request.
    pub(crate) message: MihfMessage,
}

/// Requests by the time at which they are due, in the order of arrival at equal times.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    most: usize,
    next: u64,
    due: TimerQueue<u64>,
    requests: BTreeMap<u64, PendingRequest>,
}

impl RequestQueue {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, next: 0, due: TimerQueue::new(), requests: BTreeMap::new() }
    }
    /// Stores a request until `at`. Returns it if there are too many.
    pub(crate) fn push(&mut self, at: Instant, request: PendingRequest) -> Result<(), PendingRequest> {
        if self.requests.len() >= self.most {
            return Err(request);
        }
        self.due.insert(at, self.next);
        self.requests.insert(self.next, request);
        self.next += 1;
        Ok(())
    }
    /// Removes and returns the next due request.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<PendingRequest> {
        let (_, key) = self.due.pop_due(now)?;
        self.requests.remove(&key)
    }
    /// Returns when the next request is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.next_deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::bench::TestMachine;
    use usher_core::{DatagramPath, Duration, Machine, MachineInput, SocketId};
    use usher_mih::{HeaderFlags, LinkId, LinkTupleId, LinkType, Mihf, MihfConfig, MihfEvent, TransactionId};

    /// The identifiers of requests come from an MIH function that received them.
    fn received_requests(count: u16) -> Vec<PendingRequest> {
        let id = |name: &str| MihfId::new(name).unwrap();
        let rng = usher_core::Seed::new(1).derive_rng("mihf", 0);
        let mut mihf = TestMachine::new(Mihf::new(MihfConfig::new(id("a")), rng));
        let link = LinkTupleId { link: LinkId::from_mac(LinkType::Ieee80211, [0; 6]), poa: None };
        let message = crate::messages::mn_complete_request(&link, &link);
        for n in 0..count {
            let mut octets = Vec::new();
            message
                .encode(HeaderFlags::default(), TransactionId::new(n), &id("b"), &id("a"), &mut octets)
                .unwrap();
            let any = core::net::SocketAddr::new([0, 0, 0, 0].into(), 0);
            let path = DatagramPath { socket: SocketId::from_number(0), local: any, remote: any };
            mihf.handle_input(Instant::ZERO, MachineInput::Datagram { path, data: &octets });
        }
        core::iter::from_fn(|| mihf.poll_event())
            .filter_map(|event| match event {
                MihfEvent::Request { from, transaction, message } => {
                    Some(PendingRequest { from, transaction, message })
                }
                _ => None,
            })
            .collect()
    }

    #[test]
    fn requests_wait_their_turn() {
        let at = |n| Instant::ZERO + Duration::from_millis(n);
        let [a, b, c, d] = received_requests(4).try_into().unwrap();
        let names = [&a, &b, &c, &d].map(|request| request.transaction);
        let mut requests = RequestQueue::new(3);
        assert_eq!(requests.next_due(), None);
        assert!(requests.push(at(20), a).is_ok());
        assert!(requests.push(at(10), b).is_ok());
        assert!(requests.push(at(10), c).is_ok());
        assert_eq!(requests.push(at(0), d).map_err(|request| request.transaction), Err(names[3]));
        assert_eq!(requests.next_due(), Some(at(10)));
        let mut due = |now| requests.pop_due(now).map(|request| request.transaction);
        assert_eq!(due(at(9)), None);
        assert_eq!([due(at(10)), due(at(10)), due(at(10))], [Some(names[1]), Some(names[2]), None]);
        assert_eq!([due(at(20)), due(at(20))], [Some(names[0]), None]);
    }
}
