//! The exchange with a configured peer: registration there, and subscription to the events of its links.

use alloc::vec::Vec;
use usher_core::{Duration, Instant};
use usher_mih::{
    EventList, LinkId, LinkTupleId, MessageId, MihfMessage, MihfPeer, NetTypeAddr, RegisterCode, Status, Tlv,
    kind,
};

/// A configured peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeighbourPeerConfig {
    /// Its identifier and route.
    pub peer: MihfPeer,
    /// True if this function registers there and renews the registration.
    pub register: bool,
    /// The events to subscribe to on its links.
    pub subscribe: EventList,
}

/// The current request to the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NeighbourStage {
    /// MIH_Register.
    Register,
    /// MIH_Capability_Discover, which returns its links.
    Discover,
    /// MIH_Event_Subscribe for the last of these links.
    Subscribe(Vec<LinkTupleId>),
    /// None until the next renewal.
    Settled,
}

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PeerNotice {
    /// Registered, for this many seconds.
    Registered(u32),
    /// Subscribed to these events of a link.
    Subscribed(LinkTupleId, EventList),
    /// Its links are known.
    Discovered,
    /// The peer has rejected the request.
    Refused(MessageId, Option<Status>),
}

/// A peer with a registration or subscriptions.
#[derive(Debug)]
pub(crate) struct NeighbourPeer {
    pub(crate) settings: NeighbourPeerConfig,
    stage: NeighbourStage,
    /// True if this function is registered there, as far as it knows.
    registered: bool,
    /// Lifetime of the registration, in seconds.
    valid: u32,
    /// The token of the pending request.
    pub(crate) out: Option<u64>,
    /// When the next request or renewal is due.
    pub(crate) due: Option<Instant>,
}

impl NeighbourPeer {
    pub(crate) fn new(settings: NeighbourPeerConfig, now: Instant) -> Self {
        let wanted = settings.register || !settings.subscribe.is_empty();
        let stage = Self::first_neighbour_stage(&settings);
        Self { settings, stage, registered: false, valid: 0, out: None, due: wanted.then_some(now) }
    }

    const fn first_neighbour_stage(settings: &NeighbourPeerConfig) -> NeighbourStage {
        if settings.register { NeighbourStage::Register } else { NeighbourStage::Discover }
    }

    pub(crate) const fn is_registered(&self) -> bool {
        self.registered
    }

    /// Restarts the exchange at this time.
    pub(crate) fn schedule_exchange_restart(&mut self, at: Instant) {
        if self.settings.register || !self.settings.subscribe.is_empty() {
            self.stage = Self::first_neighbour_stage(&self.settings);
            self.out = None;
            self.due = Some(at);
        }
    }

    /// Returns the request that is due. `links` returns the own links for a registration. `None`: all requests are
    /// sent.
    pub(crate) fn next_request(&mut self, links: impl FnOnce() -> Vec<LinkId>) -> Option<MihfMessage> {
        self.due = None;
        if self.stage == NeighbourStage::Settled {
            self.stage = Self::first_neighbour_stage(&self.settings);
        }
        Some(match &self.stage {
            NeighbourStage::Register => {
                let code = if self.registered { RegisterCode::Reregister } else { RegisterCode::Register };
                let params = [Tlv::LinkIdentifierList(links()), Tlv::RegisterCode(code)];
                MihfMessage::new(MessageId::REGISTER_REQUEST, params)
            }
            NeighbourStage::Discover => MihfMessage::new(MessageId::CAPABILITY_DISCOVER_REQUEST, []),
            NeighbourStage::Subscribe(left) => {
                let params =
                    [Tlv::LinkIdentifier(left.last()?.clone()), Tlv::EventList(self.settings.subscribe)];
                MihfMessage::new(MessageId::EVENT_SUBSCRIBE_REQUEST, params)
            }
            NeighbourStage::Settled => return None,
        })
    }

    /// Handles a response. The next request is due at once, or at the renewal.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        answer: &MihfMessage,
        (refresh, retry): (Duration, Duration),
    ) -> PeerNotice {
        let success = answer.status() == Some(Status::Success);
        // If the peer rejects the subscription of one link, the subscriptions of other links continue.
        if !success && !matches!(self.stage, NeighbourStage::Subscribe(_)) {
            self.handle_failure(now, retry);
            return PeerNotice::Refused(answer.id, answer.status());
        }
        let (next, told) = match core::mem::replace(&mut self.stage, NeighbourStage::Settled) {
            NeighbourStage::Register => {
                let valid = match answer.get(kind::VALID_TIME_INTERVAL) {
                    Some(Tlv::ValidTimeInterval(seconds)) => *seconds,
                    _ => 0,
                };
                (self.registered, self.valid) = (true, valid);
                let next = if self.settings.subscribe.is_empty() {
                    NeighbourStage::Settled
                } else {
                    NeighbourStage::Discover
                };
                (next, PeerNotice::Registered(valid))
            }
            NeighbourStage::Discover => {
                let links = match answer.get(kind::LINK_ADDRESS_LIST) {
                    Some(Tlv::LinkAddressList(links)) => links.iter().filter_map(link_tuple_from).collect(),
                    _ => Vec::new(),
                };
                (NeighbourStage::Subscribe(links), PeerNotice::Discovered)
            }
            NeighbourStage::Subscribe(mut left) => {
                let told = match (left.pop(), answer.get(kind::EVENT_LIST)) {
                    (Some(link), Some(Tlv::EventList(events))) if success => {
                        PeerNotice::Subscribed(link, *events)
                    }
                    _ => PeerNotice::Refused(answer.id, answer.status()),
                };
                (NeighbourStage::Subscribe(left), told)
            }
            NeighbourStage::Settled => (NeighbourStage::Settled, PeerNotice::Discovered),
        };
        self.stage = match next {
            NeighbourStage::Subscribe(left) if left.is_empty() => NeighbourStage::Settled,
            other => other,
        };
        self.due = Some(match self.stage {
            NeighbourStage::Settled => now + refresh_interval(refresh, self.valid),
            _ => now,
        });
        told
    }

    /// Handles a request without a response. True if that ends a registration.
    pub(crate) fn handle_failure(&mut self, now: Instant, retry: Duration) -> bool {
        self.stage = Self::first_neighbour_stage(&self.settings);
        self.due = Some(now + retry);
        core::mem::take(&mut self.registered)
    }
}

/// Returns the link that a peer's capabilities name.
fn link_tuple_from(of: &NetTypeAddr) -> Option<LinkTupleId> {
    let technology = of.network.technology?;
    Some(LinkTupleId { link: LinkId { technology, address: of.address.clone() }, poa: None })
}

/// Returns the time until a registration of `valid` seconds is renewed: at most half of its lifetime.
fn refresh_interval(refresh: Duration, valid: u32) -> Duration {
    match valid {
        0 => refresh,
        valid => refresh.min(Duration::from_millis(u64::from(valid) * 500)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::TransportProtocol;
    use usher_mih::{LinkAddr, LinkType, MihfId, NetworkType, PeerRoute};

    const TIMES: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(10));

    fn test_neighbour(register: bool, subscribe: EventList) -> NeighbourPeer {
        let remote = "192.0.2.1:4551".parse().unwrap();
        let route = PeerRoute { transport: TransportProtocol::Udp, local: None, remote };
        let peer = MihfPeer { id: MihfId::new("pos").unwrap(), route, ack: true };
        NeighbourPeer::new(NeighbourPeerConfig { peer, register, subscribe }, Instant::ZERO)
    }

    fn success_response(id: MessageId, params: impl Into<Vec<Tlv>>) -> MihfMessage {
        let mut all = alloc::vec![Tlv::Status(Status::Success)];
        all.extend(params.into());
        MihfMessage::new(id.to_response(), all)
    }

    #[test]
    fn a_peer_is_registered_discovered_and_subscribed_periodically() {
        let mut peer = test_neighbour(true, EventList::LINK_UP);
        let now = Instant::ZERO + Duration::from_secs(1);
        let asked = peer.next_request(Vec::new).unwrap();
        assert_eq!((asked.id, peer.due), (MessageId::REGISTER_REQUEST, None));
        let told =
            peer.handle_response(now, &success_response(asked.id, [Tlv::ValidTimeInterval(60)]), TIMES);
        assert_eq!((told, peer.due), (PeerNotice::Registered(60), Some(now)));
        let asked = peer.next_request(Vec::new).unwrap();
        assert_eq!(asked.id, MessageId::CAPABILITY_DISCOVER_REQUEST);
        let of = |n| NetTypeAddr {
            network: NetworkType::for_technology(LinkType::Ethernet),
            address: LinkAddr::Mac([2, 0, 0, 0, 0, n]),
        };
        peer.handle_response(
            now,
            &success_response(asked.id, [Tlv::LinkAddressList(alloc::vec![of(1), of(2)])]),
            TIMES,
        );
        for n in [2, 1] {
            let asked = peer.next_request(Vec::new).unwrap();
            let link =
                LinkTupleId { link: LinkId::from_mac(LinkType::Ethernet, [2, 0, 0, 0, 0, n]), poa: None };
            assert_eq!(asked.get(kind::LINK_IDENTIFIER), Some(&Tlv::LinkIdentifier(link.clone())));
            let granted = [Tlv::LinkIdentifier(link.clone()), Tlv::EventList(EventList::LINK_UP)];
            let told = peer.handle_response(now, &success_response(asked.id, granted), TIMES);
            assert_eq!(told, PeerNotice::Subscribed(link, EventList::LINK_UP));
        }
        assert_eq!(peer.due, Some(now + Duration::from_secs(30)), "half of what the peer grants");
        let again = peer.next_request(Vec::new).unwrap();
        assert_eq!(
            again.get(kind::REGISTER_REQUEST_CODE),
            Some(&Tlv::RegisterCode(RegisterCode::Reregister))
        );
        assert!(peer.handle_failure(now, TIMES.1) && !peer.handle_failure(now, TIMES.1));
        assert_eq!(peer.due, Some(now + TIMES.1));
    }

    #[test]
    fn an_unwanted_peer_is_left_alone_and_a_refusing_one_is_retried() {
        assert_eq!(test_neighbour(false, EventList::default()).due, None);
        let mut peer = test_neighbour(false, EventList::LINK_DOWN);
        let asked = peer.next_request(Vec::new).unwrap();
        let refused = MihfMessage::new(asked.id.to_response(), [Tlv::Status(Status::AuthorizationFailure)]);
        let told = peer.handle_response(Instant::ZERO, &refused, TIMES);
        assert_eq!(told, PeerNotice::Refused(refused.id, Some(Status::AuthorizationFailure)));
        assert_eq!(peer.due, Some(Instant::ZERO + TIMES.1));
        let asked = peer.next_request(Vec::new).unwrap();
        peer.handle_response(Instant::ZERO, &success_response(asked.id, []), TIMES);
        assert_eq!(peer.due, Some(Instant::ZERO + TIMES.0), "it has no links: it may have some later");
    }
}
