//! Configuration of an MIH function and of its peers.

use crate::information::InformationStore;
use crate::{
    CommandList, EventList, MbbHandover, MessageId, MihfId, NetTypeAddr, QueryTypeList, ServiceId, Tlv,
    TransportList,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::address::is_within;
use usher_core::{Duration, TransportProtocol};

/// The port of the MIH protocol over UDP and TCP (RFC 5677 §6.5, §9). Its use over SCTP is an extension of this crate.
pub const PORT: u16 = 4551;

/// The settings of address proofs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressProofConfig {
    /// Networks of configured functions, besides the address of their route, with prefix lengths.
    pub allowed_networks: BTreeMap<MihfId, Vec<(IpAddr, u8)>>,
    /// Maximum claims: addresses that have yet to prove themselves, or were refused recently. The oldest is evicted.
    pub claims: usize,
    /// Maximum claims of one network: an IPv4 address, or 64 bits of an IPv6 address.
    pub address_proofs_per_network: usize,
}

impl AddressProofConfig {
    /// True if a configured function may use this address besides its route's.
    #[must_use]
    pub fn is_allowed_address(&self, address: IpAddr) -> bool {
        self.allowed_networks.values().flatten().any(|place| is_within(address, *place))
    }
}

/// The route to a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerRoute {
    /// The transport. UDP carries one message or fragment a datagram. TCP and TLS carry them one after another,
    /// delimited by the length in their headers (RFC 5677 §4). SCTP carries one a user message, with a stream for
    /// each service. The use of SCTP is an extension of this crate.
    pub transport: TransportProtocol,
    /// The local address; `None` leaves the choice to the host.
    pub local: Option<IpAddr>,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// A configured peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MihfPeer {
    /// Its identifier.
    pub id: MihfId,
    /// The route to the peer.
    pub route: PeerRoute,
    /// True if messages to this peer request MIH acknowledgements. [`MihfConfig::by_transport`] overrides it.
    pub ack: bool,
}

/// Reaction to an acknowledged request without a response in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ResponseTimeoutPolicy {
    /// Waits until the transaction's lifetime ends.
    Wait,
    /// Sends the request again with its transaction identifier, up to [`TransactionTimerConfig::retransmissions`] times,
    /// then fails.
    Retransmit,
    /// Fails with [`TransactionError::NoResponse`](crate::TransactionError::NoResponse).
    /// The user can try another interface.
    Abort,
}

/// The timers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionTimerConfig {
    /// RetransmissionInterval: how long the sender waits for an acknowledgement.
    pub retransmission: Duration,
    /// Maximum retransmissions for a missing acknowledgement, and again for a missing response.
    pub retransmissions: u8,
    /// How long the sender waits for a response, from the acknowledgement, or from the request if none is requested.
    /// `None`: until the transaction's lifetime ends.
    pub response: Option<Duration>,
    /// Reaction to the expiry of [`Self::response`].
    pub unanswered: ResponseTimeoutPolicy,
}

impl Default for TransactionTimerConfig {
    /// One second for an acknowledgement, two retransmissions, no limit for a response. The standard leaves the
    /// interval open.
    fn default() -> Self {
        Self {
            retransmission: Duration::from_secs(1),
            retransmissions: 2,
            response: None,
            unanswered: ResponseTimeoutPolicy::Wait,
        }
    }
}

/// The configuration of an MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MihfConfig {
    /// The function's identifier.
    pub id: MihfId,
    /// The default timers.
    pub timing: TransactionTimerConfig,
    /// Timers of a service's messages, by [`ServiceId::index`].
    pub by_service: [Option<TransactionTimerConfig>; 4],
    /// Timers of single messages, by service and action; a request and its response share them.
    pub by_message: BTreeMap<(ServiceId, u16), TransactionTimerConfig>,
    /// TransactionLifeTime of pending transactions; `None`: no limit.
    pub transaction: Option<Duration>,
    /// True if a request waits for its response even after its last unacknowledged retransmission, until
    /// [`Self::transaction`] ends it. Otherwise the request fails, and a later response is dropped without an
    /// acknowledgement.
    pub accepts_late_responses: bool,
    /// How long an ended transaction is remembered to detect duplicates.
    pub lifetime: Duration,
    /// How long a request waits for its response before a bare acknowledgement goes out. With zero, a response given
    /// before the host's next timer still carries the acknowledgement.
    pub ack_delay: Duration,
    /// Maximum transactions in memory, pending and ended together. At the limit, the oldest ended one is evicted. If
    /// all are pending, messages from peers are dropped and commands refused.
    pub max_transactions: usize,
    /// Maximum octets of a packet, header included. Longer messages are fragmented.
    pub max_message: usize,
    /// Maximum octets of a reassembled message.
    pub max_reassembled: usize,
    /// Maximum incomplete messages in reassembly.
    pub max_incomplete: usize,
    /// How long reassembly waits after a message's first fragment.
    pub reassembly_timeout: Duration,
    /// Maximum octets of the messages that wait for a connection, retransmissions included. A message beyond it is
    /// dropped. Its transaction fails if it requests no acknowledgement.
    pub max_queue: usize,
    /// Maximum registered functions that are not configured as peers.
    pub max_registered: usize,
    /// Lifetime of a registration, in whole seconds. It ends unless the function registers again. The user receives
    /// an event; the function is not notified.
    pub registration: Duration,
    /// Over SCTP: true if messages of one service are delivered in order.
    pub ordered: bool,
    /// The content of Capability_Discover responses.
    pub capabilities: MihfCapabilities,
    /// The store that answers Get_Information; `None`: the user answers.
    pub information: Option<InformationStore>,
    /// Local addresses in the order of their sockets. They fix the order before any peer is configured.
    pub locals: Vec<IpAddr>,
    /// The source port of datagrams; 0 leaves the choice to the host.
    pub port: u16,
    /// True if the user, who knows the links, answers Event_Subscribe and Event_Unsubscribe. Otherwise the function
    /// does.
    pub user_answers_subscriptions: bool,
    /// True if the transport decides on acknowledgements and fragmentation, as in RFC 5677. A stream then uses
    /// neither (§6, §6.1), and datagrams always request acknowledgements (§6.3). Otherwise each [`MihfPeer`] decides
    /// on acknowledgements, and any message longer than [`Self::max_message`] is fragmented.
    pub by_transport: bool,
    /// Proofs of addresses that use an identifier. `None`: any address may use any identifier.
    pub proofs: Option<AddressProofConfig>,
}

impl MihfConfig {
    /// Returns the default configuration of a function. Lifetimes are 15 s, as in ODTONE, the standard's open
    /// implementation. Packets fit the smallest IPv6 packet over UDP (RFC 8200 §5).
    #[must_use]
    pub fn new(id: MihfId) -> Self {
        Self {
            id,
            timing: TransactionTimerConfig::default(),
            by_service: [None; 4],
            by_message: BTreeMap::new(),
            transaction: Some(Duration::from_secs(15)),
            accepts_late_responses: false,
            lifetime: Duration::from_secs(15),
            ack_delay: Duration::ZERO,
            max_transactions: 1 << 16,
            max_message: 1280 - 40 - 8,
            max_reassembled: 1 << 16,
            max_incomplete: 256,
            reassembly_timeout: Duration::from_secs(5),
            max_queue: 64 << 20,
            max_registered: 1 << 12,
            registration: Duration::from_secs(3600),
            ordered: true,
            capabilities: MihfCapabilities::default(),
            information: None,
            locals: Vec::new(),
            port: PORT,
            user_answers_subscriptions: false,
            by_transport: false,
            proofs: None,
        }
    }
    /// Returns the timers of a message: its own, else its service's, else the default.
    #[must_use]
    pub fn message_timing(&self, id: MessageId) -> TransactionTimerConfig {
        let own = self.by_message.get(&(id.service, id.action)).copied();
        own.or(self.by_service[id.service.index()]).unwrap_or(self.timing)
    }
}

/// The capabilities of an MIH function, as its Capability_Discover response lists them. Empty parts are omitted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MihfCapabilities {
    /// Its interfaces.
    pub links: Vec<NetTypeAddr>,
    /// The events that it reports.
    pub events: EventList,
    /// The commands that it accepts.
    pub commands: CommandList,
    /// The queries that it answers.
    pub queries: QueryTypeList,
    /// The transports that it supports.
    pub transports: TransportList,
    /// The network pairs of its make-before-break handovers.
    pub make_before_break: Vec<MbbHandover>,
}

impl MihfCapabilities {
    /// Returns the capabilities as parameters of a message.
    #[must_use]
    pub fn to_parameters(&self) -> Vec<Tlv> {
        let mut params = Vec::new();
        if !self.links.is_empty() {
            params.push(Tlv::LinkAddressList(self.links.clone()));
        }
        if !self.events.is_empty() {
            params.push(Tlv::EventList(self.events));
        }
        if !self.commands.is_empty() {
            params.push(Tlv::CommandList(self.commands));
        }
        if !self.queries.is_empty() {
            params.push(Tlv::QueryTypeList(self.queries));
        }
        if !self.transports.is_empty() {
            params.push(Tlv::TransportList(self.transports));
        }
        if !self.make_before_break.is_empty() {
            params.push(Tlv::MbbHandoverSupport(self.make_before_break.clone()));
        }
        params
    }
}
