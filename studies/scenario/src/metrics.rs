//! The metrics that a run yields, by the names that figures and the stopping rule use.

use crate::fault::hint;
use crate::model::{Bss, Cell, Host, Link, Scenario, StudyFile};
use crate::ordered::Ordered;

/// A metric, or a family of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name; a family's is followed by `.` and the name of a link, cell or host.
    pub name: &'static str,
    /// Its unit; empty for a plain number or a share.
    pub unit: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Of what there is one each.
    pub of: Of,
}

/// Of what there is one metric each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Of {
    /// Of a run.
    Run,
    /// Of each link, or group of links; cells and BSSs are among them.
    Link,
    /// Of each cell, or group of cells.
    Cell,
    /// Of each host, or group of hosts.
    Host,
}

const fn metric(of: Of, name: &'static str, unit: &'static str, about: &'static str) -> Metric {
    Metric { name, unit, about, of }
}

/// All metrics. Only dialogues (or authentications) that began in the counted time are counted.
pub const METRICS: &[Metric] = &[
    metric(Of::Run, "delay.mean", "s", "mean delay of the completed dialogues"),
    metric(Of::Run, "delay.p50", "s", "median delay of the completed dialogues"),
    metric(Of::Run, "delay.p95", "s", "delay that 95 % of the completed dialogues stay below"),
    metric(Of::Run, "delay.p99", "s", "delay that 99 % of the completed dialogues stay below"),
    metric(Of::Run, "delay.max", "s", "largest delay of a completed dialogue"),
    metric(Of::Run, "started", "", "dialogues begun"),
    metric(Of::Run, "completed", "", "dialogues that ended well"),
    metric(Of::Run, "rejected", "", "authentications that ended in a reject"),
    metric(Of::Run, "failures", "", "share of the dialogues begun that failed"),
    metric(Of::Run, "success", "", "share of the dialogues begun that ended well"),
    metric(
        Of::Run,
        "retransmissions",
        "",
        "requests that the application sent again, per completed dialogue",
    ),
    metric(
        Of::Run,
        "keys.delay",
        "s",
        "from EAP's success until the station has its traffic keys, mean of the completed dialogues",
    ),
    metric(Of::Run, "keys.failures", "", "share of the stations let in by EAP that got no traffic keys"),
    metric(Of::Run, "keys.messages", "", "messages of the exchange of traffic keys, per completed dialogue"),
    metric(
        Of::Run,
        "keys.bytes",
        "B",
        "bytes of those messages, without the cell's headers, per completed dialogue",
    ),
    metric(Of::Run, "accounting.records", "", "records of accounting, per counted dialogue that ended well"),
    metric(
        Of::Run,
        "accounting.delay",
        "s",
        "from when a record of accounting falls due until the NAS has its acknowledgement, mean of those that have one",
    ),
    metric(
        Of::Run,
        "accounting.late",
        "",
        "share of the records of accounting acknowledged later than they should be",
    ),
    metric(Of::Run, "accounting.lost", "", "share of the records of accounting that were never acknowledged"),
    metric(Of::Run, "tcp.segments", "", "TCP segments of all hosts, per completed dialogue"),
    metric(Of::Run, "tcp.retransmissions", "", "TCP segments sent again, per completed dialogue"),
    metric(Of::Run, "tcp.timeouts", "", "expiries of TCP's retransmission timer, per completed dialogue"),
    metric(Of::Run, "tcp.acks", "", "TCP segments that only acknowledge, per completed dialogue"),
    metric(
        Of::Run,
        "tcp.blocked",
        "",
        "TCP segments that came behind a gap, so that their data waited for another's, per completed dialogue",
    ),
    metric(
        Of::Run,
        "tcp.data-share",
        "",
        "share of data in the octets of packets that carry TCP data, headers of IP and TCP included",
    ),
    metric(Of::Run, "tcp.segment-size", "B", "mean data of TCP segments that carry some"),
    metric(Of::Run, "sctp.packets", "", "SCTP packets of all hosts, per completed dialogue"),
    metric(Of::Run, "sctp.retransmissions", "", "SCTP DATA chunks sent again, per completed dialogue"),
    metric(Of::Run, "sctp.timeouts", "", "expiries of SCTP's T3-rtx timer, per completed dialogue"),
    metric(
        Of::Run,
        "sctp.control",
        "",
        "SCTP packets without data, most of them SACKs, per completed dialogue",
    ),
    metric(Of::Run, "tcp.per-mih-packet", "", "TCP segments of all hosts, per MIH packet"),
    metric(Of::Run, "sctp.per-mih-packet", "", "SCTP packets of all hosts, per MIH packet"),
    metric(
        Of::Run,
        "mih.overhead",
        "",
        "MIH packets given to the transport, per indication, request or response that a user gave",
    ),
    metric(Of::Run, "mih.packets", "", "MIH packets given to the transport, per transaction"),
    metric(Of::Run, "mih.retransmissions", "", "MIH messages sent again, per transaction"),
    metric(
        Of::Run,
        "mih.duplicates",
        "",
        "messages that came again and were given to the user as if they were new, per transaction",
    ),
    metric(Of::Run, "mih.late", "", "responses dropped because their transaction was over, per transaction"),
    metric(
        Of::Run,
        "delay.success",
        "s",
        "mean delay of the handovers to which the exchange of messages led",
    ),
    metric(Of::Run, "delay.failed", "s", "mean delay of the other handovers"),
    metric(Of::Run, "step.scan", "s", "the scan of the new network, mean of the successful handovers"),
    metric(
        Of::Run,
        "step.resources",
        "s",
        "asking whether the new network has resources, mean of the successful handovers",
    ),
    metric(Of::Run, "step.commit", "s", "committing to the new network, mean of the successful handovers"),
    metric(
        Of::Run,
        "step.preparation",
        "s",
        "from the beginning until the network asks for a scan, mean of the successful handovers",
    ),
    metric(
        Of::Run,
        "step.decision",
        "s",
        "from the answer to that until the network's choice, mean of the successful handovers",
    ),
    metric(Of::Run, "step.entry", "s", "entry into the new network, mean of the successful handovers"),
    metric(Of::Run, "step.redirection", "s", "the redirection of the flow, mean of the successful handovers"),
    metric(
        Of::Run,
        "step.completion",
        "s",
        "telling the network that it is done, after the handover's end, mean of the successful handovers",
    ),
    metric(
        Of::Run,
        "step.candidate",
        "s",
        "asking the mobile node for its candidates, its scan included, mean of the successful handovers",
    ),
    metric(
        Of::Run,
        "step.reservation",
        "s",
        "the network's reservation of resources, mean of the successful handovers",
    ),
    metric(Of::Run, "app.loss", "", "share of the flow's packets sent during handovers that did not arrive"),
    metric(
        Of::Run,
        "app.loss-after-leaving",
        "",
        "share of the flow's packets that did not arrive, of those sent from a node's leaving the cell until its \
         flow is redirected, in handovers that failed",
    ),
    metric(Of::Run, "app.lost", "", "packets of the flow sent during a handover that did not arrive"),
    metric(Of::Run, "mih.memory", "", "most transactions that an MIH function held at once"),
    metric(
        Of::Run,
        "mih.delivery",
        "s",
        "mean time until the remote user has an indication or a request, whatever becomes of its transaction",
    ),
    metric(Of::Link, "packets", "", "packets on the link, both ways, per completed dialogue"),
    metric(Of::Link, "bytes", "B", "bytes on the link, both ways, per completed dialogue"),
    metric(Of::Link, "load", "", "share of the link's rate in use, in its busier direction"),
    metric(Of::Link, "sent", "b/s", "bits offered to the link in a second, both ways"),
    metric(Of::Link, "received", "b/s", "bits that the link delivered in a second, both ways"),
    metric(
        Of::Link,
        "drops",
        "",
        "share of the packets offered to the link that its queue dropped or it lost",
    ),
    metric(
        Of::Cell,
        "requests",
        "",
        "bandwidth requests in contended opportunities of the cell, per completed dialogue",
    ),
    metric(
        Of::Cell,
        "collisions",
        "",
        "share of the rangings and requests in the cell's contended opportunities that met another",
    ),
    metric(Of::Host, "busy", "", "share of the host's cores at work"),
    metric(
        Of::Host,
        "connections",
        "",
        "most TCP connections and SCTP associations that one of these hosts held at once",
    ),
    metric(
        Of::Host,
        "memory",
        "B",
        "most octets of their state and buffers that one of these hosts held at once",
    ),
];

/// What a study names, of which metrics can be.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    hosts: &'a Ordered<Host>,
    links: &'a Ordered<Link>,
    cells: &'a Ordered<Cell>,
    bss: &'a Ordered<Bss>,
    /// What hosts hold is followed.
    memory: bool,
}

impl<'a> From<&'a StudyFile> for Names<'a> {
    fn from(file: &'a StudyFile) -> Self {
        let memory = file.run.memory;
        Self { hosts: &file.hosts, links: &file.links, cells: &file.cells, bss: &file.bss, memory }
    }
}
impl Names<'_> {
    /// The names of what packets travel on.
    fn of_links(&self) -> impl Iterator<Item = &str> {
        self.links.names().chain(self.cells.names()).chain(self.bss.names())
    }
}
impl<'a> From<&'a Scenario> for Names<'a> {
    fn from(scenario: &'a Scenario) -> Self {
        let memory = scenario.run.memory;
        Self {
            hosts: &scenario.hosts,
            links: &scenario.links,
            cells: &scenario.cells,
            bss: &scenario.bss,
            memory,
        }
    }
}

/// The metric of this name, if there is one with these hosts, links and cells.
pub fn find<'a>(name: &str, names: impl Into<Names<'a>>) -> Option<&'static Metric> {
    let names = names.into();
    METRICS.iter().find(|m| {
        let Some(rest) = name.strip_prefix(m.name) else { return false };
        match (m.of, rest.strip_prefix('.')) {
            (Of::Run, _) => rest.is_empty(),
            (Of::Link, Some(link)) => names.of_links().any(|name| name == link),
            (Of::Cell, Some(cell)) => names.cells.get(cell).is_some(),
            (Of::Host, Some(host)) => names.hosts.get(host).is_some(),
            (_, None) => false,
        }
    })
}

/// What is wrong with the name of a metric.
pub(crate) fn unknown<'a>(name: &str, names: impl Into<Names<'a>>) -> Option<String> {
    let names = names.into();
    if let Some(metric) = find(name, names) {
        let followed = ["connections", "memory"].contains(&metric.name);
        return (followed && !names.memory)
            .then(|| format!("\"{name}\" is followed only where [run] has memory = true"));
    }
    let mut known = Vec::new();
    for metric in METRICS {
        let mut of = |name: &str| known.push(format!("{}.{name}", metric.name));
        match metric.of {
            Of::Run => known.push(metric.name.to_owned()),
            Of::Link => names.of_links().for_each(&mut of),
            Of::Cell => names.cells.names().for_each(&mut of),
            Of::Host => names.hosts.names().for_each(&mut of),
        }
    }
    Some(format!("there is no metric \"{name}\"{}", hint(name, known.iter().map(String::as_str))))
}
