//! Handovers from 802.11 to 802.16: the workload `handover`.

use super::TransportProtocol;
use super::mih::{MihFunction, MihTiming, lifetime, max_message, max_transactions, of_mih};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{ByteSize, PositiveCount, Switch, TimeSpan};

/// Mobile nodes hand over from 802.11 to 802.16 by IEEE 802.21 messages, while a correspondent sends each of them a
/// flow. A dialogue is one handover: from its beginning until the flow is redirected, whether or not the exchange of
/// messages led to that. It begins with Link_Going_Down, or with the loss of the link for a node without that warning.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoverWorkload {
    /// The mobile nodes.
    pub mn: String,
    /// Their interfaces in the 802.11 cell.
    pub wlan: String,
    /// Their interfaces in the 802.16 cell.
    pub wimax: String,
    /// The points of service of the old network. Mobile node i has point of service i modulo their number.
    pub pos: String,
    /// The points of service of the new network, likewise.
    pub target: String,
    /// The correspondents: one for each mobile node.
    pub correspondent: String,
    /// The leading side.
    pub initiated_by: HandoverInitiator,
    /// If the network leads, the source from which its point of service learns that a link is going down.
    #[serde(default)]
    pub going_down: GoingDown,
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
    /// The processing time of a request in each node that it reaches.
    #[serde(default)]
    pub processing: TimeSpan,
    /// Retransmissions and timeouts of messages.
    #[serde(default)]
    pub timing: MihTiming,
    /// How long the receiver of a request waits for the response before it acknowledges without payload.
    #[serde(default)]
    pub ack_delay: TimeSpan,
    /// The time after which an open transaction fails; `"off"`: never.
    #[serde(default)]
    pub transaction: Switch<TimeSpan>,
    /// A request without an acknowledgement after its last retransmission still waits for its response, for the time of
    /// `transaction`. Otherwise it fails then, and its response is dropped.
    #[serde(default)]
    pub late_responses: bool,
    /// How long a function keeps an ended transaction; `"off"`: not at all.
    #[serde(default = "lifetime")]
    pub lifetime: Switch<TimeSpan>,
    /// The largest number of transactions that a function holds, ended ones included.
    #[serde(default = "max_transactions")]
    pub max_transactions: PositiveCount,
    /// The largest MIH packet; a larger message is fragmented.
    #[serde(default = "max_message")]
    pub max_message: ByteSize,
    /// The flow to each mobile node.
    #[serde(default)]
    pub application: HandoverFlow,
    /// The number of nodes for which the new network has resources.
    #[serde(default = "capacity")]
    pub capacity: PositiveCount,
    /// How long a reservation waits for its node.
    #[serde(default = "reserve")]
    pub reserve: TimeSpan,
    /// The action of a mobile node after a failed exchange of messages.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// When a mobile node answers MIH_Net_HO_Commit.
    #[serde(default)]
    pub commit_answer: CommitAnswer,
    /// The wait before the next try after a scan without result, a failed entry or a lost registration.
    #[serde(default = "retry")]
    pub retry: TimeSpan,
}

const fn capacity() -> PositiveCount {
    PositiveCount::from_u32(1000)
}
const fn reserve() -> TimeSpan {
    TimeSpan::from_secs(30)
}
const fn retry() -> TimeSpan {
    TimeSpan::from_secs(1)
}

/// The leading side of a handover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandoverInitiator {
    /// The mobile node: it scans and asks.
    Station,
    /// The network: the mobile node follows its requests.
    Network,
}

/// The source from which a point of service learns that a link is going down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GoingDown {
    /// The mobile node, by an MIH indication.
    #[default]
    Remote,
    /// Its own access point, at once.
    Local,
}

/// The action of a mobile node after a failed exchange of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It stays until its link is down.
    #[default]
    LinkDown,
    /// It goes to the other interface at once.
    OtherInterface,
    /// It goes there at once if a request was not answered in time; after any other failure it stays.
    OtherInterfaceIfUnanswered,
}

/// When a mobile node answers MIH_Net_HO_Commit, which starts its move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CommitAnswer {
    /// After the processing time.
    #[default]
    AfterProcessing,
    /// When the flow is redirected, over the new link.
    AfterRedirection,
}

/// UDP datagrams at a constant rate, from before the handover until after it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HandoverFlow {
    /// The time between two datagrams.
    pub interval: TimeSpan,
    /// Size of a datagram, without the headers of transport and network.
    pub size: ByteSize,
}

impl Default for HandoverFlow {
    fn default() -> Self {
        Self { interval: TimeSpan::from_millis(500), size: ByteSize::from_bytes(200) }
    }
}

impl HandoverWorkload {
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
