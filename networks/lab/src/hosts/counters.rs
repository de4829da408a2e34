//! The kernel's TCP counters in the namespaces of all hosts (RFC 4022, and Linux's own).

use super::LabHosts;
use crate::error::{ErrorContext, LabError};
use std::collections::BTreeMap;
use usher_sim::{Application, HostId, IpVersion, ReportObserver, SctpTotals, TcpTotals};

/// The octets of a TCP header without options, and with RFC 7323's timestamps.
const HEADER: u64 = 20;
const TIMESTAMPS: u64 = 12;

/// The counters of a namespace by name, such as `Tcp.RetransSegs`.
type NamespaceCounters = BTreeMap<String, u64>;

/// Parses pairs of lines: names, then numbers, each after the protocol's name.
fn parse_paired_lines(text: &str, into: &mut NamespaceCounters) {
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.chunks_exact(2) {
        let mut names = pair[0].split_whitespace();
        let numbers = pair[1].split_whitespace();
        let Some(protocol) = names.next() else { continue };
        for (name, number) in names.zip(numbers.skip(1)) {
            // The kernel shows some limits as -1, which are no counters.
            let Ok(number) = number.parse::<u64>() else { continue };
            *into.entry(format!("{}.{name}", protocol.trim_end_matches(':'))).or_default() += number;
        }
    }
}

/// Parses lines of a name and a number.
fn parse_columns(text: &str, into: &mut NamespaceCounters) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(Ok(number))) = (words.next(), words.next().map(str::parse::<u64>)) {
            *into.entry(name.to_owned()).or_default() += number;
        }
    }
}

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Returns the TCP totals of all hosts. Retransmitted data count once in the octets, since the kernel has no
    /// counter for them.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn tcp_totals(&self) -> Result<TcpTotals, LabError> {
        // Reading the counters of all namespaces takes time, during which packets wait, so skip it if they are not
        // needed.
        if !self.connections {
            return Ok(TcpTotals::default());
        }
        let mut all = NamespaceCounters::new();
        for host in self.app_hosts() {
            self.run_in_namespace(host, || {
                for file in ["snmp", "netstat"] {
                    let path = format!("/proc/thread-self/net/{file}");
                    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
                    parse_paired_lines(&text, &mut all);
                }
                Ok::<(), LabError>(())
            })??;
        }
        Ok(self.tcp_totals_of_counters(&all))
    }

    /// Returns the SCTP totals of all hosts: packets and timeouts, which the kernel counts like the simulator.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub fn sctp_totals(&self) -> Result<SctpTotals, LabError> {
        let mut all = NamespaceCounters::new();
        if !self.associations {
            return Ok(SctpTotals::default());
        }
        for host in self.app_hosts() {
            self.run_in_namespace(host, || {
                let path = "/proc/thread-self/net/sctp/snmp";
                let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
                parse_columns(&text, &mut all);
                Ok::<(), LabError>(())
            })??;
        }
        let get = |name: &str| all.get(name).copied().unwrap_or(0);
        Ok(SctpTotals {
            packets: get("SctpOutSCTPPacks"),
            timeouts: get("SctpT3RtxExpireds"),
            ..SctpTotals::default()
        })
    }

    /// Returns the hosts with an application.
    fn app_hosts(&self) -> Vec<HostId> {
        let mut hosts: Vec<HostId> = self.apps.iter().map(|slot| slot.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    fn tcp_totals_of_counters(&self, all: &NamespaceCounters) -> TcpTotals {
        let get = |name: &str| all.get(name).copied().unwrap_or(0);
        // The kernel counts a FIN as original data too.
        let first = get("TcpExt.TCPOrigDataSent");
        let sent = get("Tcp.OutSegs");
        let opened = get("Tcp.ActiveOpens") + get("Tcp.PassiveOpens");
        let header = match self.addresses.ip_version() {
            IpVersion::V4 => 20,
            IpVersion::V6 => 40,
        };
        let timestamps = self.apps.iter().any(|slot| slot.transports.tcp.timestamps);
        let headers = header + HEADER + if timestamps { TIMESTAMPS } else { 0 };
        TcpTotals {
            segments: sent + get("Tcp.RetransSegs"),
            retransmitted: get("Tcp.RetransSegs"),
            timeouts: get("TcpExt.TCPTimeouts"),
            fast_retransmits: get("TcpExt.TCPFastRetrans"),
            pure_acks: sent.saturating_sub(first + opened + get("Tcp.OutRsts")),
            blocked: get("TcpExt.TCPOFOQueue"),
            data_segments: first,
            data_octets: self.octets_written,
            data_packet_octets: self.octets_written + first * headers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_names_of_the_line_before() {
        let text = "Ip: Forwarding InReceives\nIp: 1 7\nTcp: RtoMin MaxConn RetransSegs\nTcp: 200 -1 4\n";
        let mut counted = NamespaceCounters::new();
        parse_paired_lines(text, &mut counted);
        parse_paired_lines(text, &mut counted);
        let shown: Vec<(&str, u64)> = counted.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(
            shown,
            [("Ip.Forwarding", 2), ("Ip.InReceives", 14), ("Tcp.RetransSegs", 8), ("Tcp.RtoMin", 400)]
        );
    }

    #[test]
    fn counters_stand_behind_their_names() {
        let mut counted = NamespaceCounters::new();
        parse_columns("SctpCurrEstab\t1\nSctpOutSCTPPacks    7\nSctpNone\nSctpLess -1\n", &mut counted);
        parse_columns("SctpOutSCTPPacks 2", &mut counted);
        let shown: Vec<(&str, u64)> = counted.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(shown, [("SctpCurrEstab", 1), ("SctpOutSCTPPacks", 9)]);
    }

    #[test]
    fn a_file_cut_short_is_read_as_far_as_it_goes() {
        let mut counted = NamespaceCounters::new();
        parse_paired_lines("Tcp: A B\nTcp: 1\nTcp: C\n", &mut counted);
        assert_eq!(counted.into_iter().collect::<Vec<_>>(), [("Tcp.A".to_owned(), 1)]);
        parse_paired_lines("\n\n", &mut NamespaceCounters::new());
    }
}
