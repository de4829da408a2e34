//! Handovers from 802.11 to 802.16: the workload `handover`.

use super::TransportProtocol;
use super::mih::{MihFunction, MihTiming, lifetime, max_message, max_transactions, of_mih};
use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{ByteSize, PositiveCount, Switch, TimeSpan};

/// Mobile nodes hand over from 802.11 to 802.16 by IEEE 802.21 messages, while a correspondent sends each of them a flow.
/// A dialogue is one handover: from its beginning (Link_Going_Down, or for a node that hears of nothing before, the loss
/// of its link) until the flow is redirected, whether or not the exchange of messages led to that.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HandoverWorkload {
    /// The mobile nodes.
    pub mn: String,
    /// Their interfaces in the 802.11 cell.
    pub wlan: String,
    /// Their interfaces in the 802.16 cell.
    pub wimax: String,
    /// The points of service of the network that is left. Mobile node i has point of service i modulo their number.
    pub pos: String,
    /// The points of service of the network that is gone to, likewise.
    pub target: String,
    /// The correspondents: one for each mobile node.
    pub correspondent: String,
    /// Who leads.
    pub initiated_by: HandoverInitiator,
    /// With the network leading: from whom its point of service hears that a link is going down.
    #[serde(default)]
    pub going_down: GoingDown,
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
    /// How long a request is processed in each node that it reaches.
    #[serde(default)]
    pub processing: TimeSpan,
    /// When a message is sent again, and when it is given up.
    #[serde(default)]
    pub timing: MihTiming,
    /// How long a request waits for its answer before it is acknowledged without payload.
    #[serde(default)]
    pub ack_delay: TimeSpan,
    /// How long a transaction may be under way before it fails; `"off"` lets it wait for ever.
    #[serde(default)]
    pub transaction: Switch<TimeSpan>,
    /// A request that is not acknowledged after its last retransmission goes on waiting for its response, as long as
    /// `transaction` says. Without, it has failed then, and its response is dropped.
    #[serde(default)]
    pub late_responses: bool,
    /// How long an ended transaction is remembered; `"off"` forgets it at once.
    #[serde(default = "lifetime")]
    pub lifetime: Switch<TimeSpan>,
    /// How many transactions a function holds at most, those remembered included.
    #[serde(default = "max_transactions")]
    pub max_transactions: PositiveCount,
    /// The largest MIH packet; a larger message is fragmented.
    #[serde(default = "max_message")]
    pub max_message: ByteSize,
    /// The flow to each mobile node.
    #[serde(default)]
    pub application: HandoverFlow,
    /// How many nodes the network that is gone to has resources for.
    #[serde(default = "capacity")]
    pub capacity: PositiveCount,
    /// How long a reservation waits for its node.
    #[serde(default = "reserve")]
    pub reserve: TimeSpan,
    /// What a mobile node does when the exchange of messages has failed.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// When a mobile node answers MIH_Net_HO_Commit.
    #[serde(default)]
    pub commit_answer: CommitAnswer,
    /// How long after a scan that found nothing, an entry that failed or a lost registration it is tried again.
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

/// Who leads a handover.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HandoverInitiator {
    /// The mobile node: it scans and asks.
    Station,
    /// The network: the mobile node does what it is asked.
    Network,
}

/// From whom a point of service hears that a link is going down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GoingDown {
    /// From the mobile node, by an MIH indication.
    #[default]
    Remote,
    /// From its own access point, at once.
    Local,
}

/// What a mobile node does when the exchange of messages has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It stays until its link is down.
    #[default]
    LinkDown,
    /// It goes to the other interface at once.
    OtherInterface,
    /// It goes there at once where a request was not answered in time; after any other failure it stays.
    OtherInterfaceIfUnanswered,
}

/// When a mobile node answers MIH_Net_HO_Commit, upon which it begins to move.
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
    /// Between two.
    pub interval: TimeSpan,
    /// Size of each, without the headers of transport and network.
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
