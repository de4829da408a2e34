//! The settings of an MIH function and of its peers.

use super::claims::AddressProofs;
use crate::information::InformationStore;
use crate::{
    CommandList, EventList, MbbHandover, MessageId, MihfId, NetTypeAddr, QueryTypeList, ServiceId, Tlv,
    TransportList,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, TransportProtocol};

/// The port of the MIH protocol over UDP and TCP (RFC 5677 §5.3); over SCTP it is ours.
pub const PORT: u16 = 4551;

/// How a peer is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerRoute {
    /// By what: one message or fragment a UDP datagram; over TCP, and TLS, one after another, cut by the length in their
    /// headers (RFC 5677 §5.2). Over SCTP, one a user message and one stream for each service; no standard has that, it is
    /// our extension.
    pub transport: TransportProtocol,
    /// From which of our addresses; none leaves it to the host.
    pub local: Option<IpAddr>,
    /// To which address and port.
    pub remote: SocketAddr,
}

/// Another MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MihfPeer {
    /// Its identifier.
    pub id: MihfId,
    /// How it is reached.
    pub route: PeerRoute,
    /// Ask it for MIH acknowledgements, unless [`MihfConfig::by_transport`] decides.
    pub ack: bool,
}

/// What to do when a request was acknowledged and its response does not come in time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnansweredPolicy {
    /// Wait on, until the transaction's lifetime ends it.
    Wait,
    /// Send the request again with its transaction identifier, as often as [`TransactionTiming::retransmissions`] says, then fail.
    Retransmit,
    /// Fail with [`Failure::NoResponse`](crate::TransactionError::NoResponse); the user may try another interface.
    Abort,
}

/// The timers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionTiming {
    /// RetransmissionInterval: how long an acknowledgement is waited for.
    pub retransmission: Duration,
    /// How often a message is sent again for want of an acknowledgement, and again for want of a response.
    pub retransmissions: u8,
    /// How long a response is waited for after the acknowledgement, or after the request where none is asked for;
    /// none waits until the transaction's lifetime ends it.
    pub response: Option<Duration>,
    /// What to do then.
    pub unanswered: UnansweredPolicy,
}

impl Default for TransactionTiming {
    /// An acknowledgement within a second, two retransmissions, a response whenever it comes. The standard
    /// leaves the interval open.
    fn default() -> Self {
        Self {
            retransmission: Duration::from_secs(1),
            retransmissions: 2,
            response: None,
            unanswered: UnansweredPolicy::Wait,
        }
    }
}

/// The settings of an MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MihfConfig {
    /// Who it is.
    pub id: MihfId,
    /// The timers of messages that have none of their own.
    pub timing: TransactionTiming,
    /// Timers of a service's messages, by [`ServiceId::index`].
    pub by_service: [Option<TransactionTiming>; 4],
    /// Timers of single messages, by service and action; a request and its response share them.
    pub by_message: BTreeMap<(ServiceId, u16), TransactionTiming>,
    /// TransactionLifeTime of transactions that are under way; with none they wait for ever.
    pub transaction: Option<Duration>,
    /// A request that is not acknowledged after its last retransmission goes on waiting for its response, until
    /// [`Self::transaction`] ends it. Without, it has failed, and its response is dropped and not acknowledged.
    pub accepts_late_responses: bool,
    /// How long an ended transaction is remembered, so that duplicates are known.
    pub lifetime: Duration,
    /// How long a request waits for its answer before it is acknowledged without payload. With zero an answer
    /// given before the host's next timer still carries the acknowledgement.
    pub ack_delay: Duration,
    /// Transactions in memory, under way and ended ones together. When all are under way, messages from others are
    /// dropped and commands refused; else the one that ended first is forgotten early.
    pub max_transactions: usize,
    /// Octets of a packet, header included; longer messages are cut into fragments.
    pub max_message: usize,
    /// Octets of a message that is put together of fragments.
    pub max_reassembled: usize,
    /// Messages of which some fragments have come and not all.
    pub max_incomplete: usize,
    /// How long the rest of a message's fragments is waited for after the first of them.
    pub reassembly_timeout: Duration,
    /// Octets of the messages that wait for connections which are not up yet, with those that are sent again meanwhile;
    /// a message for which there is no room is dropped and its transaction, if it wants no acknowledgement, fails.
    pub max_queue: usize,
    /// Functions that are registered here and not configured as peers.
    pub max_registered: usize,
    /// For how long a registration is valid, in whole seconds; then the function is registered no more unless it has
    /// registered again. The user hears of that, the function does not.
    pub registration: Duration,
    /// Over SCTP: messages of one service keep their order.
    pub ordered: bool,
    /// What Capability_Discover is answered with.
    pub capabilities: MihfCapabilities,
    /// What Get_Information is answered from; without one the user is asked.
    pub information: Option<InformationStore>,
    /// Our addresses in the order of their sockets, which is then known before any peer is.
    pub locals: Vec<IpAddr>,
    /// The port that datagrams leave from; 0 leaves it to the host.
    pub port: u16,
    /// Event_Subscribe and Event_Unsubscribe are for the user to answer, who knows which links there are; otherwise they are
    /// answered here.
    pub user_answers_subscriptions: bool,
    /// What carries a message decides what it is like, as RFC 5677 has it: on a stream no acknowledgement is asked for and
    /// nothing is cut into fragments (§6, §6.1), by datagrams one is always asked for (§6.3). Otherwise each [`MihfPeer`] says
    /// whether it is asked, and what is longer than [`Self::max_message`] is cut, whatever carries it.
    pub by_transport: bool,
    /// Which address may speak under an identifier. None: whoever uses it, wherever it is.
    pub proofs: Option<AddressProofs>,
}

impl MihfConfig {
    /// The settings of this function with everything else at its default. Lifetimes are those of the standard's open
    /// implementation (ODTONE), 15 s; packets are what fits the smallest IPv6 packet over UDP (RFC 8200 §5).
    #[must_use]
    pub fn new(id: MihfId) -> Self {
        Self {
            id,
            timing: TransactionTiming::default(),
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
    /// The timers of a message: its own, else its service's, else the default.
    #[must_use]
    pub fn message_timing(&self, id: MessageId) -> TransactionTiming {
        let own = self.by_message.get(&(id.service, id.action)).copied();
        own.or(self.by_service[id.service.index()]).unwrap_or(self.timing)
    }
}

/// What an MIH function can do, as it says in answer to Capability_Discover. Empty parts are not said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MihfCapabilities {
    /// Its interfaces.
    pub links: Vec<NetTypeAddr>,
    /// The events that it reports.
    pub events: EventList,
    /// The commands that it follows.
    pub commands: CommandList,
    /// The queries that it answers.
    pub queries: QueryTypeList,
    /// The transports that it speaks.
    pub transports: TransportList,
    /// Between which networks it can make before it breaks.
    pub make_before_break: Vec<MbbHandover>,
}

impl MihfCapabilities {
    /// As the parameters of a message.
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
