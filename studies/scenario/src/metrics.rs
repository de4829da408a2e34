//! The metrics that a run yields, by the names that figures and the stopping rule use.

use crate::fault::hint;
use crate::model::{Host, Link};
use crate::ordered::Ordered;

/// A metric, or a family of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name; a family's is followed by `.` and the name of a link or host.
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
    /// Of each link, or group of links.
    Link,
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
    metric(Of::Run, "failures", "", "share of the dialogues begun that came to no end"),
    metric(
        Of::Run,
        "retransmissions",
        "",
        "requests that the application sent again, per completed dialogue",
    ),
    metric(Of::Run, "tcp.segments", "", "TCP segments of all hosts, per completed dialogue"),
    metric(Of::Run, "tcp.retransmissions", "", "TCP segments sent again, per completed dialogue"),
    metric(Of::Run, "tcp.timeouts", "", "expiries of TCP's retransmission timer, per completed dialogue"),
    metric(Of::Run, "tcp.acks", "", "TCP segments that only acknowledge, per completed dialogue"),
    metric(Of::Run, "sctp.packets", "", "SCTP packets of all hosts, per completed dialogue"),
    metric(Of::Run, "sctp.retransmissions", "", "SCTP DATA chunks sent again, per completed dialogue"),
    metric(Of::Run, "sctp.timeouts", "", "expiries of SCTP's T3-rtx timer, per completed dialogue"),
    metric(
        Of::Run,
        "sctp.control",
        "",
        "SCTP packets without data, most of them SACKs, per completed dialogue",
    ),
    metric(Of::Link, "packets", "", "packets on the link, both ways, per completed dialogue"),
    metric(Of::Link, "bytes", "B", "bytes on the link, both ways, per completed dialogue"),
    metric(Of::Link, "load", "", "share of the link's rate in use, in its busier direction"),
    metric(
        Of::Link,
        "drops",
        "",
        "share of the packets offered to the link that its queue dropped or it lost",
    ),
    metric(Of::Host, "busy", "", "share of the host's cores at work"),
];

/// The metric of this name, if there is one with these hosts and links.
pub fn find(name: &str, hosts: &Ordered<Host>, links: &Ordered<Link>) -> Option<&'static Metric> {
    METRICS.iter().find(|m| {
        let Some(rest) = name.strip_prefix(m.name) else { return false };
        match (m.of, rest.strip_prefix('.')) {
            (Of::Run, _) => rest.is_empty(),
            (Of::Link, Some(link)) => links.get(link).is_some(),
            (Of::Host, Some(host)) => hosts.get(host).is_some(),
            (_, None) => false,
        }
    })
}

/// What is wrong with the name of a metric.
pub(crate) fn unknown(name: &str, hosts: &Ordered<Host>, links: &Ordered<Link>) -> Option<String> {
    if find(name, hosts, links).is_some() {
        return None;
    }
    let mut known = Vec::new();
    for metric in METRICS {
        match metric.of {
            Of::Run => known.push(metric.name.to_owned()),
            Of::Link => known.extend(links.names().map(|link| format!("{}.{link}", metric.name))),
            Of::Host => known.extend(hosts.names().map(|host| format!("{}.{host}", metric.name))),
        }
    }
    Some(format!("there is no metric \"{name}\"{}", hint(name, known.iter().map(String::as_str))))
}
