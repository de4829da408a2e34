//! IEEE 802.21 messages between stations and points of service: the workloads `mih` and `handover`.

use super::{ArrivalSettings, TransportProtocol};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::OrderedMap;
use usher_config::units::{ByteSize, PositiveCount, Switch, TimeSpan};
use usher_mih::MessageId;

/// MIH messages between mobile nodes and points of service: indications of the mobile nodes, or requests of either
/// side. A dialogue is one transaction. An indication lasts from its sending to its first delivery to the remote user,
/// a request from its sending to the valid response.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MihWorkload {
    /// The mobile nodes.
    pub mn: String,
    /// The points of service. Mobile node i has point of service i modulo their number.
    pub pos: String,
    /// The kind of message.
    pub message: MihMessage,
    /// When transactions begin, at or for each mobile node. They do not wait for earlier ones.
    pub arrivals: ArrivalSettings,
    /// Size of every indication, request and response, the MIH header included.
    #[serde(default = "size")]
    pub size: ByteSize,
    /// Size of a response if it differs, such as that of an information query.
    pub response_size: Option<ByteSize>,
    /// The transport of MIH messages (RFC 5677; SCTP is an extension of Usher). Over UDP and SCTP, each datagram or
    /// message holds one packet. A TCP connection or SCTP association is opened before the first message.
    #[serde(deserialize_with = "of_mih::read")]
    #[schemars(schema_with = "of_mih::schema")]
    pub transport: TransportProtocol,
    /// Every message requests an MIH acknowledgement.
    #[serde(default)]
    pub ack: bool,
    /// Over SCTP, the messages of a service keep their order; otherwise a loss delays no other message.
    #[serde(default = "super::yes")]
    pub ordered: bool,
    /// How long a user takes to answer a request.
    #[serde(default)]
    pub processing: TimeSpan,
    /// Retransmissions and timeouts of messages.
    #[serde(default)]
    pub timing: MihTiming,
    /// How long the receiver of a request waits for the response before it acknowledges without payload. An earlier
    /// response carries the acknowledgement.
    #[serde(default)]
    pub ack_delay: TimeSpan,
    /// The time after which an open transaction fails; `"off"`: never.
    #[serde(default)]
    pub transaction: Switch<TimeSpan>,
    /// A request without an acknowledgement after its last retransmission still waits for its response, for the time of
    /// `transaction`. Otherwise it fails then, and its response is dropped.
    #[serde(default)]
    pub late_responses: bool,
    /// How long a function keeps an ended transaction, to detect duplicates; `"off"`: not at all. Identifiers repeat
    /// after 4096 transactions: one that is kept longer hides new ones.
    #[serde(default = "lifetime")]
    pub lifetime: Switch<TimeSpan>,
    /// The largest number of transactions that a function holds, ended ones included; it refuses more.
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

/// The message that MIH users send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MihMessage {
    /// An indication, from the mobile node to its point of service.
    Indication,
    /// A request for a link's parameters (command service), from the point of service to its mobile node.
    Request,
    /// A request for candidates (MIH_Net_HO_Candidate_Query, command service), from the point of service to its mobile
    /// node. The mobile node scans for the time of `processing` before it answers.
    CandidateQuery,
    /// A query for networks (MIH_Get_Information, information service), from the mobile node to its point of service.
    Information,
    /// A registration (service management), from the mobile node to its point of service, whose MIH function answers by itself.
    Registration,
}

impl MihMessage {
    /// True if a user answers it.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Request | Self::CandidateQuery | Self::Information)
    }
}

usher_config::some_of!(pub(super) of_mih: TransportProtocol, |t| t != TransportProtocol::Tls);

/// Retransmissions and timeouts of MIH messages.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MihTiming {
    /// The wait for an acknowledgement before a retransmission.
    pub retransmission: TimeSpan,
    /// The number of retransmissions before a transaction fails.
    pub retransmissions: u32,
    /// The wait for a response after the acknowledgement of its request (without MIH acknowledgements: after its
    /// sending); `"off"`: for ever.
    pub response: Switch<TimeSpan>,
    /// The action if the response does not arrive in time.
    pub unanswered: UnansweredAction,
    /// Different timing of the messages of a service.
    pub by_service: TimingByMihService,
    /// Different timing of a message, such as `"MN_HO_Commit"`. It starts from the values of `by_service` and overrides
    /// them.
    pub by_message: OrderedMap<MihTimingChange>,
}

impl Default for MihTiming {
    fn default() -> Self {
        Self {
            retransmission: TimeSpan::from_millis(300),
            retransmissions: 2,
            response: Switch::Off,
            unanswered: UnansweredAction::default(),
            by_service: TimingByMihService::default(),
            by_message: OrderedMap::default(),
        }
    }
}

/// The action if a request is acknowledged but not answered in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnansweredAction {
    /// The sender waits longer.
    #[default]
    Wait,
    /// The sender retransmits the request.
    Retransmit,
    /// The transaction fails.
    Abort,
}

/// Different timing of the messages of each service.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimingByMihService {
    /// Service management.
    pub management: Option<MihTimingChange>,
    /// The event service.
    pub event: Option<MihTimingChange>,
    /// The command service.
    pub command: Option<MihTimingChange>,
    /// The information service.
    pub information: Option<MihTimingChange>,
}

impl TimingByMihService {
    /// The services by their number, with the changes of each.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Option<&MihTimingChange>)> {
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

/// Changes of the common timing.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MihTimingChange {
    /// The wait for an acknowledgement.
    pub retransmission: Option<TimeSpan>,
    /// The number of retransmissions.
    pub retransmissions: Option<u32>,
    /// The wait for a response.
    pub response: Option<Switch<TimeSpan>>,
    /// The action if the response does not arrive in time.
    pub unanswered: Option<UnansweredAction>,
}

/// The timing of one kind of message, with all changes in place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MihMessageTiming {
    /// The wait for an acknowledgement.
    pub retransmission: TimeSpan,
    /// The number of retransmissions.
    pub retransmissions: u32,
    /// The wait for a response.
    pub response: Switch<TimeSpan>,
    /// The action if the response does not arrive in time.
    pub unanswered: UnansweredAction,
}

impl MihMessageTiming {
    /// Returns the timing with a change in place.
    #[must_use]
    pub fn with_timing_change(self, change: &MihTimingChange) -> Self {
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
    /// Returns the timing without changes.
    pub fn base_message_timing(&self) -> MihMessageTiming {
        let Self { retransmission, retransmissions, response, unanswered, .. } = *self;
        MihMessageTiming { retransmission, retransmissions, response, unanswered }
    }
}

/// The settings of MIH functions that the workloads share.
#[derive(Clone, Copy, Debug)]
pub struct MihFunction<'a> {
    /// The transport of the messages.
    pub transport: TransportProtocol,
    /// Every message requests an MIH acknowledgement.
    pub ack: bool,
    /// Over SCTP, the messages of a service keep their order.
    pub ordered: bool,
    /// How long a user takes to answer a request.
    pub processing: TimeSpan,
    /// Retransmissions and timeouts of messages.
    pub timing: &'a MihTiming,
    /// How long the receiver of a request waits for the response before it acknowledges without payload.
    pub ack_delay: TimeSpan,
    /// The time after which an open transaction fails.
    pub transaction: Switch<TimeSpan>,
    /// A request that is never acknowledged still waits for its response.
    pub late_responses: bool,
    /// How long a function keeps an ended transaction.
    pub lifetime: Switch<TimeSpan>,
    /// The largest number of transactions.
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
