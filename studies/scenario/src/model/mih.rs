//! IEEE 802.21 messages between stations and points of service: the workloads `mih` and `handover`.

use super::{ArrivalSettings, TransportProtocol};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::OrderedMap;
use usher_config::units::{ByteSize, PositiveCount, Switch, TimeSpan};
use usher_mih::MessageId;

/// MIH messages between mobile nodes and points of service: indications of the mobile nodes, or requests, of the points of
/// service or of the mobile nodes, which the other answers. A dialogue is one transaction: an indication, from its sending to its
/// first delivery to the remote user; a request, from its sending to the valid response.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MihWorkload {
    /// The mobile nodes.
    pub mn: String,
    /// The points of service. Mobile node i has point of service i modulo their number.
    pub pos: String,
    /// What is sent.
    pub message: MihMessage,
    /// When transactions begin, at each mobile node or, for requests, for each. They do not wait for earlier ones.
    pub arrivals: ArrivalSettings,
    /// Size of every indication, request and response, the MIH header included.
    #[serde(default = "size")]
    pub size: ByteSize,
    /// Size of a response where it is another, as that of an information query is.
    pub response_size: Option<ByteSize>,
    /// What carries MIH messages (RFC 5677; SCTP is this program's extension): over UDP and SCTP one packet a datagram or
    /// message; over TCP and SCTP by a connection or association opened before the first message.
    #[serde(deserialize_with = "of_mih::read")]
    #[schemars(schema_with = "of_mih::schema")]
    pub transport: TransportProtocol,
    /// Every message asks for the MIH acknowledgement.
    #[serde(default)]
    pub ack: bool,
    /// Over SCTP, the messages of a service keep their order; else what is lost holds nothing else up.
    #[serde(default = "super::yes")]
    pub ordered: bool,
    /// How long a user takes to answer a request.
    #[serde(default)]
    pub processing: TimeSpan,
    /// When a message is sent again, and when it is given up.
    #[serde(default)]
    pub timing: MihTiming,
    /// How long a request waits for its answer before it is acknowledged without payload; an answer that comes
    /// earlier carries the acknowledgement.
    #[serde(default)]
    pub ack_delay: TimeSpan,
    /// How long a transaction may be under way before it fails; `"off"` lets it wait for ever.
    #[serde(default)]
    pub transaction: Switch<TimeSpan>,
    /// A request that is not acknowledged after its last retransmission goes on waiting for its response, as long as
    /// `transaction` says. Without, it has failed then, and its response is dropped.
    #[serde(default)]
    pub late_responses: bool,
    /// How long an ended transaction is remembered, to tell its duplicates; `"off"` forgets it at once. Identifiers come
    /// round after 4096 transactions: what is remembered for longer hides new ones.
    #[serde(default = "lifetime")]
    pub lifetime: Switch<TimeSpan>,
    /// How many transactions a function holds at most, those remembered included; beyond it, new ones are refused.
    #[serde(default = "max_transactions")]
    pub max_transactions: PositiveCount,
    /// The largest MIH packet; a larger message is fragmented.
    #[serde(default = "max_message")]
    pub max_message: ByteSize,
}

const fn size() -> ByteSize {
    ByteSize::from_bytes(200)
}
pub(super) const fn lifetime() -> Switch<TimeSpan> {
    Switch::On(TimeSpan::from_secs(30))
}
pub(super) const fn max_transactions() -> PositiveCount {
    PositiveCount::from_u32(65_536)
}
pub(super) const fn max_message() -> ByteSize {
    ByteSize::from_bytes(1500)
}

/// What MIH users send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MihMessage {
    /// An indication, from the mobile node to its point of service.
    Indication,
    /// A request for a link's parameters (command service), from the point of service to its mobile node.
    Request,
    /// A request for candidates (MIH_Net_HO_Candidate_Query, command service), from the point of service to its mobile node,
    /// which scans before it answers: `processing` is how long.
    CandidateQuery,
    /// A query for networks (MIH_Get_Information, information service), from the mobile node to its point of service.
    Information,
    /// A registration (service management), from the mobile node to its point of service, whose MIH function answers by itself.
    Registration,
}

impl MihMessage {
    /// A user answers it.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Request | Self::CandidateQuery | Self::Information)
    }
}

usher_config::some_of!(pub(super) of_mih: TransportProtocol, |t| t != TransportProtocol::Tls);

/// When an MIH message is sent again, and when it is given up.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MihTiming {
    /// How long an acknowledgement is waited for before the message is sent again.
    pub retransmission: TimeSpan,
    /// How often a message is sent again before its transaction fails.
    pub retransmissions: u32,
    /// How long a response is waited for once its request is acknowledged (without MIH acknowledgements: once it is
    /// sent); `"off"` waits for ever.
    pub response: Switch<TimeSpan>,
    /// What is done when the response does not come in time.
    pub unanswered: UnansweredAction,
    /// What differs for the messages of a service.
    pub by_service: ByService,
    /// What differs for a message, such as `"MN_HO_Commit"`. It comes before `by_service`, whose values it begins from.
    pub by_message: OrderedMap<TimingChange>,
}

impl Default for MihTiming {
    fn default() -> Self {
        Self {
            retransmission: TimeSpan::from_millis(300),
            retransmissions: 2,
            response: Switch::Off,
            unanswered: UnansweredAction::default(),
            by_service: ByService::default(),
            by_message: OrderedMap::default(),
        }
    }
}

/// What is done when a request is acknowledged and not answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnansweredAction {
    /// It is waited for longer.
    #[default]
    Wait,
    /// The request is sent again.
    Retransmit,
    /// The transaction fails.
    Abort,
}

/// What differs for the messages of each service.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ByService {
    /// Service management.
    pub management: Option<TimingChange>,
    /// The event service.
    pub event: Option<TimingChange>,
    /// The command service.
    pub command: Option<TimingChange>,
    /// The information service.
    pub information: Option<TimingChange>,
}

impl ByService {
    /// The services by their number, with what differs for each.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<&TimingChange>)> {
        [
            ("management", &self.management),
            ("event", &self.event),
            ("command", &self.command),
            ("information", &self.information),
        ]
        .into_iter()
        .map(|(name, change)| (name, change.as_ref()))
    }
}

/// What differs from the timing that holds otherwise.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimingChange {
    /// How long an acknowledgement is waited for.
    pub retransmission: Option<TimeSpan>,
    /// How often a message is sent again.
    pub retransmissions: Option<u32>,
    /// How long a response is waited for.
    pub response: Option<Switch<TimeSpan>>,
    /// What is done when it does not come in time.
    pub unanswered: Option<UnansweredAction>,
}

/// What holds for one kind of message, with everything that differs for it in place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MessageTiming {
    /// How long an acknowledgement is waited for.
    pub retransmission: TimeSpan,
    /// How often a message is sent again.
    pub retransmissions: u32,
    /// How long a response is waited for.
    pub response: Switch<TimeSpan>,
    /// What is done when it does not come in time.
    pub unanswered: UnansweredAction,
}

impl MessageTiming {
    /// With what differs.
    #[must_use]
    pub fn with_change(self, change: &TimingChange) -> Self {
        Self {
            retransmission: change.retransmission.unwrap_or(self.retransmission),
            retransmissions: change.retransmissions.unwrap_or(self.retransmissions),
            response: change.response.unwrap_or(self.response),
            unanswered: change.unanswered.unwrap_or(self.unanswered),
        }
    }
}

/// The name by which studies call a message: that of its primitive, such as `MN_HO_Commit`.
pub fn message_name(id: MessageId) -> &'static str {
    let name = id.name().unwrap_or_default();
    name.strip_prefix("MIH_").unwrap_or(name)
}

impl MihTiming {
    /// What holds where nothing differs.
    pub fn common_timing(&self) -> MessageTiming {
        let Self { retransmission, retransmissions, response, unanswered, .. } = *self;
        MessageTiming { retransmission, retransmissions, response, unanswered }
    }
}

/// The settings of MIH functions that the workloads share.
#[derive(Clone, Copy, Debug)]
pub struct MihFunction<'a> {
    /// What carries the messages.
    pub transport: TransportProtocol,
    /// Every message asks for the MIH acknowledgement.
    pub ack: bool,
    /// Over SCTP, the messages of a service keep their order.
    pub ordered: bool,
    /// How long a user takes to answer a request.
    pub processing: TimeSpan,
    /// When a message is sent again, and when it is given up.
    pub timing: &'a MihTiming,
    /// How long a request waits for its answer before it is acknowledged without payload.
    pub ack_delay: TimeSpan,
    /// How long a transaction may be under way.
    pub transaction: Switch<TimeSpan>,
    /// A request that is never acknowledged goes on waiting for its response.
    pub late_responses: bool,
    /// How long an ended transaction is remembered.
    pub lifetime: Switch<TimeSpan>,
    /// How many transactions are held at most.
    pub max_transactions: PositiveCount,
    /// The largest MIH packet.
    pub max_message: ByteSize,
}

impl MihWorkload {
    /// The settings of its MIH functions.
    pub fn mih_function(&self) -> MihFunction<'_> {
        MihFunction {
            transport: self.transport,
            ack: self.ack,
            ordered: self.ordered,
            processing: self.processing,
            timing: &self.timing,
            ack_delay: self.ack_delay,
            transaction: self.transaction,
            late_responses: self.late_responses,
            lifetime: self.lifetime,
            max_transactions: self.max_transactions,
            max_message: self.max_message,
        }
    }
}
