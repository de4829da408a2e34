//! The metrics of a run. Figures and the stopping rule use their names.

use crate::model::{Bss, HostSettings, LinkSettings, Scenario, StudyFile, WimaxCellSettings, Workload};
use usher_config::units::{Dimension, Quantity};
use usher_config::{OrderedMap, name_hint};
use usher_core::Duration;
use usher_mobility::Step;

/// A metric, or a family of metrics. [`METRICS`] lists them all: a run measures nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name. The name of a family's member adds `.` and a link, cell, host or workload.
    pub name: &'static str,
    /// Its unit; empty for a plain number or a share.
    pub unit: &'static str,
    /// True of a share, which is between 0 and 1.
    pub share: bool,
    /// A short description, for the title of an axis.
    pub about: &'static str,
    /// The full description, for the documentation.
    meaning: &'static str,
    /// The things that have one each.
    pub of: MetricScope,
}

/// The things that have one metric each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricScope {
    /// The run.
    Run,
    /// Each workload. The only workload of a study adds no name.
    Workload,
    /// Each link or group of links, cells and BSSs included.
    Link,
    /// Each cell, or group of cells.
    Cell,
    /// Each host, or group of hosts.
    Host,
}

impl Metric {
    /// Returns the name of a family's member.
    pub fn member_name(self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Returns its name for a workload; `workload` is empty if it is the only one.
    pub fn of_workload(self, workload: &str) -> String {
        if workload.is_empty() { self.name.to_owned() } else { self.member_name(workload) }
    }

    /// True if a run measures it only when the study names it: in a figure, a recommendation, the stopping rule or
    /// `run.metrics`.
    pub fn is_measured_on_request(self) -> bool {
        [DELAY_P999, WITHIN].contains(&self)
    }

    /// Returns the name of [`WITHIN`] for a time, such as `within(5 s)`.
    pub fn share_within_name(time: &str) -> String {
        format!("{}({time})", WITHIN.name)
    }

    /// Returns the part of a name behind the metric's own. The time of [`WITHIN`] belongs to its own name.
    fn metric_name_suffix(self, name: &str) -> Option<&str> {
        let rest = name.strip_prefix(self.name)?;
        if self != WITHIN {
            return Some(rest);
        }
        let (time, rest) = rest.strip_prefix('(')?.split_once(')')?;
        (normalise_time(time)? == time).then_some(rest)
    }

    /// Returns its row in the documentation: name, unit and full description.
    pub fn documentation_row(self) -> String {
        let name = match self.of {
            MetricScope::Run | MetricScope::Workload if self == WITHIN => Self::share_within_name("TIME"),
            MetricScope::Run | MetricScope::Workload => self.name.to_owned(),
            MetricScope::Link => self.member_name("LINK"),
            MetricScope::Cell => self.member_name("CELL"),
            MetricScope::Host => self.member_name("HOST"),
        };
        format!("| `{name}` | {} | {} |", self.unit, self.meaning.trim_end_matches('.'))
    }

    /// Returns the metric of a handover's step. A wait has none, because it is part of failed handovers only.
    pub const fn for_step(step: Step) -> Option<Self> {
        Some(match step {
            Step::Scan => STEP_SCAN,
            Step::Resources => STEP_RESOURCES,
            Step::Commit => STEP_COMMIT,
            Step::Preparation => STEP_PREPARATION,
            Step::Decision => STEP_DECISION,
            Step::Wait => return None,
            Step::Entry => STEP_ENTRY,
            Step::Redirection => STEP_REDIRECTION,
            Step::Completion => STEP_COMPLETION,
            Step::Candidate => STEP_CANDIDATE,
            Step::Reservation => STEP_RESERVATION,
        })
    }
}

/// Declares the metrics: full description, scope, name, unit or `share`, and short description.
macro_rules! metrics {
    (@unit share) => { "" };
    (@unit $unit:literal) => { $unit };
    (@share share) => { true };
    (@share $unit:literal) => { false };
    ($($(#[doc = $meaning:literal])+ $metric:ident = $of:ident $name:literal in $unit:tt: $about:literal;)+) => {
        $(
            $(#[doc = $meaning])+
            pub const $metric: Metric = Metric {
                name: $name,
                unit: metrics!(@unit $unit),
                share: metrics!(@share $unit),
                about: $about,
                meaning: concat!($($meaning),+).trim_ascii(),
                of: MetricScope::$of,
            };
        )+
        /// All metrics. Only dialogues (or authentications) that began in the counted time are counted.
        pub const METRICS: &[Metric] = &[$($metric),+];
    };
}

metrics! {
    /// Mean delay of completed dialogues.
    DELAY_MEAN = Workload "delay.mean" in "s": "mean delay of the completed dialogues";
    /// Median delay of completed dialogues, exact as the quantiles.
    DELAY_P50 = Workload "delay.p50" in "s": "median delay of the completed dialogues";
    /// 95 % quantile of the delays of completed dialogues.
    DELAY_P95 = Workload "delay.p95" in "s": "delay that 95 % of the completed dialogues stay below";
    /// 99 % quantile of these delays.
    DELAY_P99 = Workload "delay.p99" in "s": "delay that 99 % of the completed dialogues stay below";
    /// 99.9 % quantile of these delays; only where the study names it.
    DELAY_P999 = Workload "delay.p99.9" in "s": "delay that 99.9 % of the completed dialogues stay below";
    /// Maximum of these delays.
    DELAY_MAX = Workload "delay.max" in "s": "largest delay of a completed dialogue";
    /// Counted dialogues.
    STARTED = Workload "started" in "": "dialogues begun";
    /// Counted dialogues that ended well.
    COMPLETED = Workload "completed" in "": "dialogues that ended well";
    /// Counted authentications that the AAA server rejected.
    REJECTED = Workload "rejected" in "": "authentications that ended in a reject";
    /// Share of `started` that failed: given up by station, NAS or client, or still open after the drain; of
    /// handovers, those to which the exchange of messages did not lead.
    FAILURES = Workload "failures" in share: "share of the dialogues begun that failed";
    /// Share of `started` that ended well within this time, such as `within(5 s)`; only for times that the study
    /// names.
    WITHIN = Workload "within" in share: "share of the dialogues begun that ended well within the time";
    /// Share of `started` that ended well.
    SUCCESS = Workload "success" in share: "share of the dialogues begun that ended well";
    /// Requests retransmitted by the application protocol (RADIUS, dialogues over UDP), per dialogue.
    RETRANSMISSIONS = Workload "retransmissions" in "":
        "requests that the application sent again, per completed dialogue";
    /// With `keys` of a cell: mean time from EAP's success at the station to its traffic keys, over completed
    /// dialogues.
    KEYS_DELAY = Workload "keys.delay" in "s":
        "from EAP's success until the station has its traffic keys, mean of the completed dialogues";
    /// Share of counted dialogues with EAP success in which the station got no traffic keys.
    KEYS_FAILURES = Workload "keys.failures" in share: "share of the stations let in by EAP that got no traffic keys";
    /// Messages of the traffic key exchange, with retransmissions, per dialogue.
    KEYS_MESSAGES = Workload "keys.messages" in "":
        "messages of the exchange of traffic keys, per completed dialogue";
    /// Bytes of these messages, from the management message type on, per dialogue.
    KEYS_BYTES = Workload "keys.bytes" in "B":
        "bytes of those messages, without the cell's headers, per completed dialogue";
    /// With `accounting`: accounting records due within the run's duration, per counted dialogue that ended well.
    ACCOUNTING_RECORDS = Workload "accounting.records" in "":
        "records of accounting, per counted dialogue that ended well";
    /// Mean time from when an accounting record is due until the NAS has its acknowledgement, over acknowledged
    /// records.
    ACCOUNTING_DELAY = Workload "accounting.delay" in "s":
        "from when a record of accounting falls due until the NAS has its acknowledgement, mean of those that have one";
    /// Share of due records that were acknowledged later than `workload.accounting.late`.
    ACCOUNTING_LATE = Workload "accounting.late" in share:
        "share of the records of accounting acknowledged later than they should be";
    /// Share of due records that the NAS gave up, the server refused, or nobody acknowledged before the drain's end.
    ACCOUNTING_LOST = Workload "accounting.lost" in share:
        "share of the records of accounting that were never acknowledged";
    /// Workload `ident`: share of completed dialogues whose answer names the connection's user, by name or number; the
    /// other answers are hidden, a token, unknown or wrong.
    IDENT_NAMED = Workload "ident.named" in share: "share of the answers that name the connection's user";
    /// Workload `ike`: messages of IKE and RADIUS, with retransmissions, per dialogue. Each fragment (RFC 7383)
    /// counts; an initiator's own deletions do not.
    IKE_MESSAGES = Workload "ike.messages" in "": "messages of IKE and RADIUS, per completed dialogue";
    /// Octets of these messages in frames, per dialogue: with headers of UDP (8), IP (20 or 40) and Ethernet (14), the
    /// latter two for each IP fragment.
    IKE_BYTES = Workload "ike.bytes" in "B": "octets of IKE and RADIUS in frames, per completed dialogue";
    /// IKE messages from the initiator, per dialogue.
    IKE_REQUESTS = Workload "ike.initiator.messages" in "": "messages of IKE from the initiator, per completed dialogue";
    /// IKE messages to the initiator, per dialogue.
    IKE_RESPONSES = Workload "ike.gateway.messages" in "": "messages of IKE to the initiator, per completed dialogue";
    /// RADIUS messages from the gateway, per dialogue.
    IKE_RADIUS_REQUESTS = Workload "ike.radius-request.messages" in "":
        "messages of RADIUS from the gateway, per completed dialogue";
    /// RADIUS messages to the gateway, per dialogue.
    IKE_RADIUS_RESPONSES = Workload "ike.radius-response.messages" in "":
        "messages of RADIUS to the gateway, per completed dialogue";
    /// IKE octets in frames from the initiator, per dialogue.
    IKE_REQUEST_BYTES = Workload "ike.initiator.bytes" in "B":
        "octets of IKE from the initiator in frames, per completed dialogue";
    /// IKE octets in frames to the initiator, per dialogue.
    IKE_RESPONSE_BYTES = Workload "ike.gateway.bytes" in "B":
        "octets of IKE to the initiator in frames, per completed dialogue";
    /// RADIUS octets in frames from the gateway, per dialogue.
    IKE_RADIUS_REQUEST_BYTES = Workload "ike.radius-request.bytes" in "B":
        "octets of RADIUS from the gateway in frames, per completed dialogue";
    /// RADIUS octets in frames to the gateway, per dialogue.
    IKE_RADIUS_RESPONSE_BYTES = Workload "ike.radius-response.bytes" in "B":
        "octets of RADIUS to the gateway in frames, per completed dialogue";
    /// Share of Access-Accepts with a key of the EAP method (MS-MPPE-Recv-Key) for both sides' AUTH; without it, AUTH
    /// uses SK_pi and SK_pr (RFC 7296 2.16).
    IKE_KEYS = Workload "ike.keys" in share: "share of the Access-Accepts with a key of the EAP method";
    /// Mean time for which an initiator that authenticates again has no IKE_SA, in completed dialogues: from the last
    /// packets of the old one until the new one can carry packets, or zero if the new one comes first.
    IKE_INTERRUPTION = Workload "ike.interruption" in "s":
        "how long an initiator that authenticates again is without an IKE_SA, mean";
    /// TCP segments of all hosts, with acknowledgements, per dialogue.
    TCP_SEGMENTS = Run "tcp.segments" in "": "TCP segments of all hosts, per completed dialogue";
    /// Retransmitted TCP segments of all hosts, per dialogue.
    TCP_RETRANSMISSIONS = Run "tcp.retransmissions" in "": "TCP segments sent again, per completed dialogue";
    /// Expiries of TCP's retransmission timer, per dialogue.
    TCP_TIMEOUTS = Run "tcp.timeouts" in "": "expiries of TCP's retransmission timer, per completed dialogue";
    /// TCP segments that only acknowledge, per dialogue.
    TCP_ACKS = Run "tcp.acks" in "": "TCP segments that only acknowledge, per completed dialogue";
    /// TCP segments that came behind a gap, so that their data waited (head-of-line blocking), per dialogue.
    TCP_BLOCKED = Run "tcp.blocked" in "":
        "TCP segments that came behind a gap, so that their data waited for another's, per completed dialogue";
    /// Share of data in the octets of all hosts' packets that carry TCP data, IP and TCP headers and retransmissions
    /// included.
    TCP_DATA_SHARE = Run "tcp.data-share" in share:
        "share of data in the octets of packets that carry TCP data, headers of IP and TCP included";
    /// Mean data of TCP segments that carry data.
    TCP_SEGMENT_SIZE = Run "tcp.segment-size" in "B": "mean data of TCP segments that carry some";
    /// SCTP packets of all hosts, with acknowledgements, per dialogue.
    SCTP_PACKETS = Run "sctp.packets" in "": "SCTP packets of all hosts, per completed dialogue";
    /// Retransmitted SCTP DATA chunks, per dialogue.
    SCTP_RETRANSMISSIONS = Run "sctp.retransmissions" in "":
        "SCTP DATA chunks sent again, per completed dialogue";
    /// Expiries of SCTP's T3-rtx timer, per dialogue.
    SCTP_TIMEOUTS = Run "sctp.timeouts" in "": "expiries of SCTP's T3-rtx timer, per completed dialogue";
    /// SCTP packets without data, mostly SACKs, per dialogue.
    SCTP_CONTROL = Run "sctp.control" in "":
        "SCTP packets without data, most of them SACKs, per completed dialogue";
    /// TCP segments of all hosts, per MIH packet.
    TCP_PER_MIH_PACKET = Run "tcp.per-mih-packet" in "": "TCP segments of all hosts, per MIH packet";
    /// SCTP packets of all hosts, per MIH packet.
    SCTP_PER_MIH_PACKET = Run "sctp.per-mih-packet" in "": "SCTP packets of all hosts, per MIH packet";
    /// MIH packets given to the transport, with retransmissions, acknowledgements and fragments, for each indication,
    /// request or response of an MIH user.
    MIH_OVERHEAD = Workload "mih.overhead" in "":
        "MIH packets given to the transport, per indication, request or response that a user gave";
    /// MIH packets given to the transport, per counted transaction.
    MIH_PACKETS = Workload "mih.packets" in "": "MIH packets given to the transport, per transaction";
    /// Retransmitted MIH messages, per counted transaction.
    MIH_RETRANSMISSIONS = Workload "mih.retransmissions" in "": "MIH messages sent again, per transaction";
    /// Duplicate messages that the MIH user got as new ones, per counted transaction.
    MIH_DUPLICATES = Workload "mih.duplicates" in "":
        "messages that came again and were given to the user as if they were new, per transaction";
    /// Responses dropped because their transaction had ended, per counted transaction.
    MIH_LATE = Workload "mih.late" in "": "responses dropped because their transaction was over, per transaction";
    /// Mean delay of handovers to which the exchange of messages led; `delay.mean` and its quantiles are of all
    /// handovers.
    DELAY_SUCCESS = Workload "delay.success" in "s":
        "mean delay of the handovers to which the exchange of messages led";
    /// Mean delay of the other handovers.
    DELAY_FAILED = Workload "delay.failed" in "s": "mean delay of the other handovers";
    /// Mobile node's scan of the new network. Steps are means over successful handovers; those of the leading mobile
    /// node add up to the delay.
    STEP_SCAN = Workload "step.scan" in "s": "the scan of the new network, mean of the successful handovers";
    /// A leading mobile node's query for candidates, or a leading point of service's query to the candidate.
    STEP_RESOURCES = Workload "step.resources" in "s":
        "asking whether the new network has resources, mean of the successful handovers";
    /// Commitment to the new network, by the leading mobile node or point of service.
    STEP_COMMIT = Workload "step.commit" in "s": "committing to the new network, mean of the successful handovers";
    /// Network leads: from the beginning to the scan. Preparation, scan, decision, entry and redirection add up to the
    /// delay.
    STEP_PREPARATION = Workload "step.preparation" in "s":
        "from the beginning until the network asks for a scan, mean of the successful handovers";
    /// Network leads: from the mobile node's answer to the choice of the network.
    STEP_DECISION = Workload "step.decision" in "s":
        "from the answer to that until the network's choice, mean of the successful handovers";
    /// Mobile node's entry into the new network.
    STEP_ENTRY = Workload "step.entry" in "s": "entry into the new network, mean of the successful handovers";
    /// Redirection of the flow to the new network.
    STEP_REDIRECTION = Workload "step.redirection" in "s":
        "the redirection of the flow, mean of the successful handovers";
    /// Notice to the network that the handover is complete, after the handover's end.
    STEP_COMPLETION = Workload "step.completion" in "s":
        "telling the network that it is done, after the handover's end, mean of the successful handovers";
    /// Point of service leads: its query to the mobile node, with the node's scan.
    STEP_CANDIDATE = Workload "step.candidate" in "s":
        "asking the mobile node for its candidates, its scan included, mean of the successful handovers";
    /// Point of service leads: reservation of resources in the new network.
    STEP_RESERVATION = Workload "step.reservation" in "s":
        "the network's reservation of resources, mean of the successful handovers";
    /// Share of the flow's packets sent during handovers that did not arrive.
    APP_LOSS = Workload "app.loss" in share: "share of the flow's packets sent during handovers that did not arrive";
    /// The same share in failed handovers, of packets sent between the node's leaving the cell, as Link_Going_Down
    /// predicted it, and the redirection of its flow.
    APP_LOSS_AFTER_LEAVING = Workload "app.loss-after-leaving" in share:
        "share of the flow's packets that did not arrive, of those sent from a node's leaving the cell until its \
         flow is redirected, in handovers that failed";
    /// The flow's packets sent during handovers that did not arrive, per handover.
    APP_LOST = Workload "app.lost" in "": "packets of the flow sent during a handover that did not arrive";
    /// Most transactions that an MIH function held at once, with ended ones that it remembered.
    MIH_MEMORY = Workload "mih.memory" in "": "most transactions that an MIH function held at once";
    /// Workload `mih`: mean time from the sending of an indication or request to its first delivery, whatever the
    /// outcome of the transaction.
    MIH_DELIVERY = Workload "mih.delivery" in "s":
        "mean time until the remote user has an indication or a request, whatever becomes of its transaction";
    /// Packets on the link, both ways, with transport acknowledgements, without background traffic, per dialogue.
    PACKETS = Link "packets" in "": "packets on the link, both ways, per completed dialogue";
    /// Bytes of these packets with framing, per dialogue.
    BYTES = Link "bytes" in "B": "bytes on the link, both ways, per completed dialogue";
    /// Load offered in the link's busier direction during the duration, as a share of its rate, with background and
    /// packets dropped by the queue. Above 1, the link cannot carry all of it. A group has the mean.
    LOAD = Link "load" in "": "share of the link's rate in use, in its busier direction";
    /// Bits offered to the link in a second of the duration, both ways, with background; of a group, the sum.
    SENT = Link "sent" in "b/s": "bits offered to the link in a second, both ways";
    /// Bits that the link delivered in a second of the duration, likewise.
    RECEIVED = Link "received" in "b/s": "bits that the link delivered in a second, both ways";
    /// Share of packets offered to the link that its queue dropped or the link lost.
    DROPS = Link "drops" in share: "share of the packets offered to the link that its queue dropped or it lost";
    /// Bandwidth requests in contended opportunities of the 802.16 cell, per dialogue.
    REQUESTS = Cell "requests" in "":
        "bandwidth requests in contended opportunities of the cell, per completed dialogue";
    /// Share of rangings and requests in contended opportunities that were lost by collision.
    COLLISIONS = Cell "collisions" in share:
        "share of the rangings and requests in the cell's contended opportunities that met another";
    /// Share of the host's cores at work, over the whole run.
    BUSY = Host "busy" in share: "share of the host's cores at work";
    /// Processor time charged to the host, per dialogue. On a lab: time of the host's roles, with the kernel's time
    /// while they receive and send.
    CPU = Host "cpu" in "s": "processor time of the host, per completed dialogue";
    /// Part of `cpu.HOST` for cryptography: key exchanges, signatures, TLS, key derivation, encryption and decryption.
    /// On a lab: time in cryptographic libraries, if sampled.
    CPU_CRYPTO = Host "cpu.crypto" in "s": "processor time of the host for cryptography, per completed dialogue";
    /// Part in the C library and in allocators that replace its own. Only on a lab, if sampled.
    CPU_LIBC = Host "cpu.libc" in "s": "processor time of the host in the C library, per completed dialogue";
    /// Part in the kernel while the host's roles receive and send, likewise.
    CPU_KERNEL = Host "cpu.kernel" in "s": "processor time of the host in the kernel, per completed dialogue";
    /// Most TCP connections and SCTP associations that the host held at once after the warm-up, with TIME-WAIT; of a
    /// group, the highest; with `run.memory = true`.
    CONNECTIONS = Host "connections" in "":
        "most TCP connections and SCTP associations that one of these hosts held at once";
    /// Most octets that these held at once: a control block of 328 B per connection (880 B per association, and 2 B
    /// per stream and direction), and unacknowledged, unread and out-of-order data.
    MEMORY = Host "memory" in "B":
        "most octets of their state and buffers that one of these hosts held at once";
}

/// The names in a study that a metric's family can have.
#[derive(Clone, Copy, Debug)]
pub struct MetricNames<'a> {
    hosts: &'a OrderedMap<HostSettings>,
    links: &'a OrderedMap<LinkSettings>,
    cells: &'a OrderedMap<WimaxCellSettings>,
    bss: &'a OrderedMap<Bss>,
    workloads: &'a OrderedMap<Workload>,
    /// True if the run tracks the memory of hosts.
    memory: bool,
}

impl<'a> From<&'a StudyFile> for MetricNames<'a> {
    fn from(file: &'a StudyFile) -> Self {
        let memory = file.run.memory;
        Self {
            hosts: &file.hosts,
            links: &file.links,
            cells: &file.cells,
            bss: &file.bss,
            workloads: &file.workloads,
            memory,
        }
    }
}
impl MetricNames<'_> {
    /// Returns the names of links, cells and BSSs.
    fn member_names(&self) -> impl Iterator<Item = &str> {
        self.links.names().chain(self.cells.names()).chain(self.bss.names())
    }
}
impl<'a> From<&'a Scenario> for MetricNames<'a> {
    fn from(scenario: &'a Scenario) -> Self {
        let memory = scenario.run.memory;
        Self {
            hosts: &scenario.hosts,
            links: &scenario.links,
            cells: &scenario.cells,
            bss: &scenario.bss,
            workloads: &scenario.workloads,
            memory,
        }
    }
}

impl Metric {
    /// Returns the title of an axis that shows this metric alone. `name` is its whole name; the host in it replaces
    /// "the host".
    #[must_use]
    pub fn axis_title(&self, name: &str) -> String {
        if let Some((_, time)) = parse_share_within(name).filter(|_| *self == WITHIN) {
            return self.about.replace("the time", time);
        }
        let host = name.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('.'));
        match host.filter(|_| self.of == MetricScope::Host) {
            Some(host) => self.about.replace("the host", host),
            None => self.about.to_owned(),
        }
    }
}

/// Normalises a time for a metric's name: one space before the unit.
fn normalise_time(time: &str) -> Option<String> {
    let quantity = Quantity::parse(time).filter(|q| q.dimension == Dimension::Time && q.number > 0.0)?;
    Some(format!("{} {}", quantity.number, quantity.unit))
}

/// Returns the time in a name of [`WITHIN`], parsed and as text; `None` for other names.
pub fn parse_share_within(name: &str) -> Option<(Duration, &str)> {
    let (time, _) = name.strip_prefix(WITHIN.name)?.strip_prefix('(')?.split_once(')')?;
    let quantity = Quantity::parse(time).filter(|_| WITHIN.metric_name_suffix(name).is_some())?;
    Some((Duration::from_secs_f64(quantity.in_base_unit()), time))
}

/// Finds a metric by its whole name, among the hosts, links and cells of a study.
pub fn find_metric<'a>(name: &str, names: impl Into<MetricNames<'a>>) -> Option<&'static Metric> {
    let names = names.into();
    METRICS.iter().find(|m| {
        let Some(rest) = m.metric_name_suffix(name) else { return false };
        match (m.of, rest.strip_prefix('.')) {
            (MetricScope::Run, _) => rest.is_empty(),
            (MetricScope::Workload, None) => rest.is_empty() && names.workloads.is_empty(),
            (MetricScope::Workload, Some(workload)) => names.workloads.get(workload).is_some(),
            (MetricScope::Link, Some(link)) => names.member_names().any(|name| name == link),
            (MetricScope::Cell, Some(cell)) => names.cells.get(cell).is_some(),
            (MetricScope::Host, Some(host)) => names.hosts.get(host).is_some(),
            (_, None) => false,
        }
    })
}

/// True if a metric has this name, or a family's member in any study could have it.
pub fn is_declared(name: &str) -> bool {
    METRICS.iter().any(|m| match (m.of, m.metric_name_suffix(name)) {
        (MetricScope::Run | MetricScope::Workload, Some("")) => true,
        (MetricScope::Run, _) => false,
        (_, rest) => rest.is_some_and(|rest| rest.starts_with('.')),
    })
}

/// Returns the fault of a metric's name, if any.
pub(crate) fn explain_unknown<'a>(name: &str, names: impl Into<MetricNames<'a>>) -> Option<String> {
    let names = names.into();
    if let Some(metric) = find_metric(name, names) {
        if [TCP_PER_MIH_PACKET, SCTP_PER_MIH_PACKET].contains(metric) && names.workloads.len() > 1 {
            return Some(format!("\"{name}\" needs a study with one workload, and this study has several"));
        }
        let followed = [CONNECTIONS, MEMORY].contains(metric);
        return (followed && !names.memory)
            .then(|| format!("\"{name}\" is measured only with memory = true in [run]"));
    }
    if let Some(time) = name.strip_prefix(WITHIN.name).filter(|rest| rest.is_empty() || rest.starts_with('('))
    {
        let time = time.trim_start_matches('(').split(')').next().unwrap_or_default();
        match normalise_time(time) {
            None => {
                return Some(format!(
                    "\"{name}\" lacks its time: write \"{}\"",
                    Metric::share_within_name("5 s")
                ));
            }
            Some(right) if right != time => {
                return Some(format!("\"{name}\" must be written \"{}\"", Metric::share_within_name(&right)));
            }
            Some(_) => {}
        }
    }
    if let Some(first) = names.workloads.names().next()
        && METRICS
            .iter()
            .any(|metric| metric.of == MetricScope::Workload && metric.metric_name_suffix(name) == Some(""))
    {
        return Some(format!("each workload has its own \"{name}\": write \"{name}.{first}\""));
    }
    let mut known = Vec::new();
    for metric in METRICS {
        let mut of = |name: &str| known.push(metric.member_name(name));
        match metric.of {
            MetricScope::Run | MetricScope::Workload if *metric == WITHIN => {}
            MetricScope::Run => known.push(metric.name.to_owned()),
            MetricScope::Workload if names.workloads.is_empty() => known.push(metric.name.to_owned()),
            MetricScope::Workload => names.workloads.names().for_each(&mut of),
            MetricScope::Link => names.member_names().for_each(&mut of),
            MetricScope::Cell => names.cells.names().for_each(&mut of),
            MetricScope::Host => names.hosts.names().for_each(&mut of),
        }
    }
    Some(format!("there is no metric \"{name}\"{}", name_hint(name, known.iter().map(String::as_str))))
}
