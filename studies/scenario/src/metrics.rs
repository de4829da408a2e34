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
    pub fn is_on_request(self) -> bool {
        [DELAY_P999, WITHIN].contains(&self)
    }

    /// Returns the name of [`WITHIN`] for a time, such as `within(5 s)`.
    pub fn share_within_name(time: &str) -> String {
        format!("{}({time})", WITHIN.name)
    }

    /// Returns the part of a name behind the metric's own. The time of [`WITHIN`] belongs to its own name.
    fn name_suffix(self, name: &str) -> Option<&str> {
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
    /// Mean delay of counted dialogues that ended well.
    DELAY_MEAN = Workload "delay.mean" in "s": "mean delay of the completed dialogues";
    /// Median of the same delays, exact over the run's dialogues.
    DELAY_P50 = Workload "delay.p50" in "s": "median delay of the completed dialogues";
    /// Their 95 % quantile, likewise.
    DELAY_P95 = Workload "delay.p95" in "s": "delay that 95 % of the completed dialogues stay below";
    /// Their 99 % quantile, likewise.
    DELAY_P99 = Workload "delay.p99" in "s": "delay that 99 % of the completed dialogues stay below";
    /// Their 99.9 % quantile, likewise; measured where the study names it.
    DELAY_P999 = Workload "delay.p99.9" in "s": "delay that 99.9 % of the completed dialogues stay below";
    /// The largest of them.
    DELAY_MAX = Workload "delay.max" in "s": "largest delay of a completed dialogue";
    /// Counted dialogues that began.
    STARTED = Workload "started" in "": "dialogues begun";
    /// Of them, those that ended well.
    COMPLETED = Workload "completed" in "": "dialogues that ended well";
    /// Of them, authentications that the AAA server refused.
    REJECTED = Workload "rejected" in "": "authentications that ended in a reject";
    /// Share of `started` that failed: given up by the station, the NAS or the client, or still open; of handovers,
    /// those that the exchange of messages did not lead.
    FAILURES = Workload "failures" in share: "share of the dialogues begun that failed";
    /// Share of `started` that ended well within this time of their beginning, `within(5 s)`; what failed, was refused or has
    /// not ended is not within any. Measured for the times that the study names.
    WITHIN = Workload "within" in share: "share of the dialogues begun that ended well within the time";
    /// Share of `started` that ended well.
    SUCCESS = Workload "success" in share: "share of the dialogues begun that ended well";
    /// Requests that the application protocol sent again (RADIUS, dialogues over UDP), per completed dialogue.
    RETRANSMISSIONS = Workload "retransmissions" in "":
        "requests that the application sent again, per completed dialogue";
    /// Where a cell's `keys` are used: from EAP's success at the station until it has its traffic keys, mean of the
    /// counted dialogues that ended well.
    KEYS_DELAY = Workload "keys.delay" in "s":
        "from EAP's success until the station has its traffic keys, mean of the completed dialogues";
    /// Share of the counted dialogues let in by EAP that ended without traffic keys, or were still without.
    KEYS_FAILURES = Workload "keys.failures" in share: "share of the stations let in by EAP that got no traffic keys";
    /// Messages of the exchange of traffic keys, those sent again included, per completed dialogue.
    KEYS_MESSAGES = Workload "keys.messages" in "":
        "messages of the exchange of traffic keys, per completed dialogue";
    /// Bytes of those messages, from the management message type on, per completed dialogue.
    KEYS_BYTES = Workload "keys.bytes" in "B":
        "bytes of those messages, without the cell's headers, per completed dialogue";
    /// Where the workload has `accounting`: records that fell due within the run's duration, per counted dialogue that
    /// ended well.
    ACCOUNTING_RECORDS = Workload "accounting.records" in "":
        "records of accounting, per counted dialogue that ended well";
    /// From when such a record falls due until its NAS has the acknowledgement, mean of those that have one.
    ACCOUNTING_DELAY = Workload "accounting.delay" in "s":
        "from when a record of accounting falls due until the NAS has its acknowledgement, mean of those that have one";
    /// Share of these records acknowledged later than `workload.accounting.late`.
    ACCOUNTING_LATE = Workload "accounting.late" in share:
        "share of the records of accounting acknowledged later than they should be";
    /// Share of them that were given up by the NAS, refused, or without acknowledgement when the drain was over.
    ACCOUNTING_LOST = Workload "accounting.lost" in share:
        "share of the records of accounting that were never acknowledged";
    /// Of the workload `ident`: share of the completed dialogues whose answer is the name or the number of the user who had
    /// the connection; others are hidden, sealed, unknown or wrong.
    IDENT_NAMED = Workload "ident.named" in share: "share of the answers that name the connection's user";
    /// Of the workload `ike`: messages of an authentication, those of IKE between initiator and gateway and those of RADIUS
    /// between gateway and AAA server, sent again or not, per completed dialogue. Messages in fragments (RFC 7383) count by
    /// fragment; what an initiator deletes by itself is not part of an authentication.
    IKE_MESSAGES = Workload "ike.messages" in "": "messages of IKE and RADIUS, per completed dialogue";
    /// Their octets as frames have them: the message with the headers of UDP, IP and Ethernet (8, 20 or 40, and 14 octets), the
    /// latter two for each IP fragment.
    IKE_BYTES = Workload "ike.bytes" in "B": "octets of IKE and RADIUS in frames, per completed dialogue";
    /// Of those messages: of IKE, from the initiator.
    IKE_REQUESTS = Workload "ike.initiator.messages" in "": "messages of IKE from the initiator, per completed dialogue";
    /// Of those messages: of IKE, to the initiator.
    IKE_RESPONSES = Workload "ike.gateway.messages" in "": "messages of IKE to the initiator, per completed dialogue";
    /// Of those messages: of RADIUS, from the gateway.
    IKE_RADIUS_REQUESTS = Workload "ike.radius-request.messages" in "":
        "messages of RADIUS from the gateway, per completed dialogue";
    /// Of those messages: of RADIUS, to the gateway.
    IKE_RADIUS_RESPONSES = Workload "ike.radius-response.messages" in "":
        "messages of RADIUS to the gateway, per completed dialogue";
    /// Octets of IKE in frames, from the initiator.
    IKE_REQUEST_BYTES = Workload "ike.initiator.bytes" in "B":
        "octets of IKE from the initiator in frames, per completed dialogue";
    /// Octets of IKE in frames, to the initiator.
    IKE_RESPONSE_BYTES = Workload "ike.gateway.bytes" in "B":
        "octets of IKE to the initiator in frames, per completed dialogue";
    /// Octets of RADIUS in frames, from the gateway.
    IKE_RADIUS_REQUEST_BYTES = Workload "ike.radius-request.bytes" in "B":
        "octets of RADIUS from the gateway in frames, per completed dialogue";
    /// Octets of RADIUS in frames, to the gateway.
    IKE_RADIUS_RESPONSE_BYTES = Workload "ike.radius-response.bytes" in "B":
        "octets of RADIUS to the gateway in frames, per completed dialogue";
    /// Share of the Access-Accepts that carry a key of the EAP method (MS-MPPE-Recv-Key), which both sides' AUTH is of; without it
    /// that is of SK_pi and SK_pr (RFC 7296 2.16).
    IKE_KEYS = Workload "ike.keys" in share: "share of the Access-Accepts with a key of the EAP method";
    /// Of completed dialogues of initiators that had an IKE_SA: from when its packets stopped until those of the new one could
    /// go; zero where the new one is there before the old one goes.
    IKE_INTERRUPTION = Workload "ike.interruption" in "s":
        "how long an initiator that authenticates again is without an IKE_SA, mean";
    /// TCP segments of all hosts, acknowledgements included, per completed dialogue.
    TCP_SEGMENTS = Run "tcp.segments" in "": "TCP segments of all hosts, per completed dialogue";
    /// Of them, those with something sent before, per completed dialogue.
    TCP_RETRANSMISSIONS = Run "tcp.retransmissions" in "": "TCP segments sent again, per completed dialogue";
    /// Expiries of TCP's retransmission timer, per completed dialogue.
    TCP_TIMEOUTS = Run "tcp.timeouts" in "": "expiries of TCP's retransmission timer, per completed dialogue";
    /// Segments that only acknowledge, per completed dialogue.
    TCP_ACKS = Run "tcp.acks" in "": "TCP segments that only acknowledge, per completed dialogue";
    /// Segments that came behind a gap, so that their data waited until that was filled (head-of-line blocking), per
    /// completed dialogue.
    TCP_BLOCKED = Run "tcp.blocked" in "":
        "TCP segments that came behind a gap, so that their data waited for another's, per completed dialogue";
    /// Share of data in the octets of packets that carry TCP data, headers of IP and TCP included; of all hosts,
    /// retransmissions included.
    TCP_DATA_SHARE = Run "tcp.data-share" in share:
        "share of data in the octets of packets that carry TCP data, headers of IP and TCP included";
    /// Mean data of the segments that carry some.
    TCP_SEGMENT_SIZE = Run "tcp.segment-size" in "B": "mean data of TCP segments that carry some";
    /// SCTP packets of all hosts, acknowledgements included, per completed dialogue.
    SCTP_PACKETS = Run "sctp.packets" in "": "SCTP packets of all hosts, per completed dialogue";
    /// DATA chunks sent again, per completed dialogue.
    SCTP_RETRANSMISSIONS = Run "sctp.retransmissions" in "":
        "SCTP DATA chunks sent again, per completed dialogue";
    /// Expiries of SCTP's T3-rtx timer, per completed dialogue.
    SCTP_TIMEOUTS = Run "sctp.timeouts" in "": "expiries of SCTP's T3-rtx timer, per completed dialogue";
    /// Packets without data, most of them SACKs, per completed dialogue.
    SCTP_CONTROL = Run "sctp.control" in "":
        "SCTP packets without data, most of them SACKs, per completed dialogue";
    /// TCP segments of all hosts, acknowledgements included, per MIH packet.
    TCP_PER_MIH_PACKET = Run "tcp.per-mih-packet" in "": "TCP segments of all hosts, per MIH packet";
    /// SCTP packets of all hosts, acknowledgements included, per MIH packet.
    SCTP_PER_MIH_PACKET = Run "sctp.per-mih-packet" in "": "SCTP packets of all hosts, per MIH packet";
    /// MIH packets given to the transport (retransmissions, acknowledgements and fragments included), per indication,
    /// request or response that a user gave.
    MIH_OVERHEAD = Workload "mih.overhead" in "":
        "MIH packets given to the transport, per indication, request or response that a user gave";
    /// The same packets, per counted transaction.
    MIH_PACKETS = Workload "mih.packets" in "": "MIH packets given to the transport, per transaction";
    /// Of them, messages sent again, per counted transaction.
    MIH_RETRANSMISSIONS = Workload "mih.retransmissions" in "": "MIH messages sent again, per transaction";
    /// Messages that came again and were given to the user as if they were new, per counted transaction.
    MIH_DUPLICATES = Workload "mih.duplicates" in "":
        "messages that came again and were given to the user as if they were new, per transaction";
    /// Responses dropped because their transaction was over, per counted transaction.
    MIH_LATE = Workload "mih.late" in "": "responses dropped because their transaction was over, per transaction";
    /// Mean delay of the handovers to which the exchange of messages led; `delay.mean` and its quantiles are of all.
    DELAY_SUCCESS = Workload "delay.success" in "s":
        "mean delay of the handovers to which the exchange of messages led";
    /// Mean delay of the other handovers.
    DELAY_FAILED = Workload "delay.failed" in "s": "mean delay of the other handovers";
    /// Of a mobile node that leads: the scan, mean of the successful handovers. Its steps follow each other and add
    /// up to the handover's delay.
    STEP_SCAN = Workload "step.scan" in "s": "the scan of the new network, mean of the successful handovers";
    /// The candidate query of a mobile node that leads, or a point of service's own question to the candidate.
    STEP_RESOURCES = Workload "step.resources" in "s":
        "asking whether the new network has resources, mean of the successful handovers";
    /// The commitment to the new network, of a mobile node or a point of service that leads.
    STEP_COMMIT = Workload "step.commit" in "s": "committing to the new network, mean of the successful handovers";
    /// With the network leading: from the beginning to the scan. With scan, decision, entry and redirection it adds
    /// up to the delay.
    STEP_PREPARATION = Workload "step.preparation" in "s":
        "from the beginning until the network asks for a scan, mean of the successful handovers";
    /// With the network leading: from the mobile node's answer to the network's choice.
    STEP_DECISION = Workload "step.decision" in "s":
        "from the answer to that until the network's choice, mean of the successful handovers";
    /// Entry into the new network.
    STEP_ENTRY = Workload "step.entry" in "s": "entry into the new network, mean of the successful handovers";
    /// The redirection of the flow.
    STEP_REDIRECTION = Workload "step.redirection" in "s":
        "the redirection of the flow, mean of the successful handovers";
    /// Telling the network, after the end of the successful handovers.
    STEP_COMPLETION = Workload "step.completion" in "s":
        "telling the network that it is done, after the handover's end, mean of the successful handovers";
    /// Of the point of service that leads: asking the mobile node, its scan included.
    STEP_CANDIDATE = Workload "step.candidate" in "s":
        "asking the mobile node for its candidates, its scan included, mean of the successful handovers";
    /// Of the point of service that leads: reserving.
    STEP_RESERVATION = Workload "step.reservation" in "s":
        "the network's reservation of resources, mean of the successful handovers";
    /// Share of the flow's packets sent during handovers that did not arrive.
    APP_LOSS = Workload "app.loss" in share: "share of the flow's packets sent during handovers that did not arrive";
    /// Share of the flow's packets that did not arrive, of those sent from a node's leaving the cell until its flow
    /// is redirected, in handovers that failed; the cell is left when Link_Going_Down said that it would be.
    APP_LOSS_AFTER_LEAVING = Workload "app.loss-after-leaving" in share:
        "share of the flow's packets that did not arrive, of those sent from a node's leaving the cell until its \
         flow is redirected, in handovers that failed";
    /// The same packets, per handover: those sent during it that did not arrive.
    APP_LOST = Workload "app.lost" in "": "packets of the flow sent during a handover that did not arrive";
    /// Most transactions that an MIH function held at once, those remembered included.
    MIH_MEMORY = Workload "mih.memory" in "": "most transactions that an MIH function held at once";
    /// Mean time from the sending of an indication or request of the workload `mih` to its first delivery to the
    /// remote user, whatever becomes of its transaction.
    MIH_DELIVERY = Workload "mih.delivery" in "s":
        "mean time until the remote user has an indication or a request, whatever becomes of its transaction";
    /// Packets on the named link, both ways, transport acknowledgements included, background traffic not, per
    /// completed dialogue.
    PACKETS = Link "packets" in "": "packets on the link, both ways, per completed dialogue";
    /// Their bytes, framing included, per completed dialogue.
    BYTES = Link "bytes" in "B": "bytes on the link, both ways, per completed dialogue";
    /// What is offered to the link during the duration, as a share of its rate, background and what its queue drops
    /// included, in its busier direction: above 1 it cannot carry all; the mean of a group's links.
    LOAD = Link "load" in "": "share of the link's rate in use, in its busier direction";
    /// Bits offered to the link during the duration, both ways, background included; the sum of a group's links.
    SENT = Link "sent" in "b/s": "bits offered to the link in a second, both ways";
    /// Of them, those that it delivered.
    RECEIVED = Link "received" in "b/s": "bits that the link delivered in a second, both ways";
    /// Share of the packets offered to the link that its queue dropped or that it lost.
    DROPS = Link "drops" in share: "share of the packets offered to the link that its queue dropped or it lost";
    /// Bandwidth requests in the contended opportunities of the named 802.16 cell, per completed dialogue.
    REQUESTS = Cell "requests" in "":
        "bandwidth requests in contended opportunities of the cell, per completed dialogue";
    /// Share of the rangings and requests in the cell's contended opportunities that met another and were not heard.
    COLLISIONS = Cell "collisions" in share:
        "share of the rangings and requests in the cell's contended opportunities that met another";
    /// Share of the host's cores at work, over the whole run.
    BUSY = Host "busy" in share: "share of the host's cores at work";
    /// Processor time of the host that was charged, per completed dialogue; on a lab what its roles took, with what the kernel
    /// did for them when they received and sent.
    CPU = Host "cpu" in "s": "processor time of the host, per completed dialogue";
    /// Of it that of cryptography: key exchanges, signatures, the work of TLS, keys derived, messages enciphered and deciphered;
    /// on a lab that in the libraries of cryptography, where it was sampled.
    CPU_CRYPTO = Host "cpu.crypto" in "s": "processor time of the host for cryptography, per completed dialogue";
    /// Of it that in the C library, and in what allocates memory in its place: on a lab, where it was sampled.
    CPU_LIBC = Host "cpu.libc" in "s": "processor time of the host in the C library, per completed dialogue";
    /// Of it that in the kernel, likewise: what it does while the host's roles receive and send.
    CPU_KERNEL = Host "cpu.kernel" in "s": "processor time of the host in the kernel, per completed dialogue";
    /// Most TCP connections and SCTP associations that the host held at once after the warm-up, those in TIME-WAIT
    /// included; of a group, the member's that held most; with `run.memory = true`.
    CONNECTIONS = Host "connections" in "":
        "most TCP connections and SCTP associations that one of these hosts held at once";
    /// Most octets of their state and buffers, likewise: for each connection a control block of 328 B (an association
    /// 880 B, and 2 B for each stream in each direction), what was written and is not acknowledged, what came and is
    /// not read, and what came behind a gap.
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
    fn of_links(&self) -> impl Iterator<Item = &str> {
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
    let quantity = Quantity::parse(time).filter(|_| WITHIN.name_suffix(name).is_some())?;
    Some((Duration::from_secs_f64(quantity.in_base_unit()), time))
}

/// Finds a metric by its whole name, among the hosts, links and cells of a study.
pub fn find_metric<'a>(name: &str, names: impl Into<MetricNames<'a>>) -> Option<&'static Metric> {
    let names = names.into();
    METRICS.iter().find(|m| {
        let Some(rest) = m.name_suffix(name) else { return false };
        match (m.of, rest.strip_prefix('.')) {
            (MetricScope::Run, _) => rest.is_empty(),
            (MetricScope::Workload, None) => rest.is_empty() && names.workloads.is_empty(),
            (MetricScope::Workload, Some(workload)) => names.workloads.get(workload).is_some(),
            (MetricScope::Link, Some(link)) => names.of_links().any(|name| name == link),
            (MetricScope::Cell, Some(cell)) => names.cells.get(cell).is_some(),
            (MetricScope::Host, Some(host)) => names.hosts.get(host).is_some(),
            (_, None) => false,
        }
    })
}

/// True if a metric has this name, or a family's member in any study could have it.
pub fn is_declared(name: &str) -> bool {
    METRICS.iter().any(|m| match (m.of, m.name_suffix(name)) {
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
            return Some(format!("\"{name}\" is of a study of one workload, and this one has several"));
        }
        let followed = [CONNECTIONS, MEMORY].contains(metric);
        return (followed && !names.memory)
            .then(|| format!("\"{name}\" is followed only where [run] has memory = true"));
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
                return Some(format!("\"{name}\" is written \"{}\"", Metric::share_within_name(&right)));
            }
            Some(_) => {}
        }
    }
    if let Some(first) = names.workloads.names().next()
        && METRICS
            .iter()
            .any(|metric| metric.of == MetricScope::Workload && metric.name_suffix(name) == Some(""))
    {
        return Some(format!("each workload has a \"{name}\" of its own: write \"{name}.{first}\""));
    }
    let mut known = Vec::new();
    for metric in METRICS {
        let mut of = |name: &str| known.push(metric.member_name(name));
        match metric.of {
            MetricScope::Run | MetricScope::Workload if *metric == WITHIN => {}
            MetricScope::Run => known.push(metric.name.to_owned()),
            MetricScope::Workload if names.workloads.is_empty() => known.push(metric.name.to_owned()),
            MetricScope::Workload => names.workloads.names().for_each(&mut of),
            MetricScope::Link => names.of_links().for_each(&mut of),
            MetricScope::Cell => names.cells.names().for_each(&mut of),
            MetricScope::Host => names.hosts.names().for_each(&mut of),
        }
    }
    Some(format!("there is no metric \"{name}\"{}", name_hint(name, known.iter().map(String::as_str))))
}
