//! The input of a lab: hosts with addresses, links between them, and the resulting routes.

use crate::LabError;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use usher_core::Seed;
use usher_sim::LinkConfig;

/// The smallest MTU in octets: RFC 791 §3.2 for IPv4, RFC 8200 §5 for IPv6.
const SMALLEST_MTU: [u32; 2] = [68, 1280];

/// The largest MTU: the longest IP packet.
const LARGEST_MTU: u32 = 65_535;

/// The most addresses per host: each but the first has its own routing table.
const MOST_ADDRESSES: usize = 100;

/// The most links per network: each has two interfaces in the relay's namespace.
const MOST_LINKS: usize = 10_000;

/// The longest name in octets.
const LONGEST_NAME: usize = 200;

/// A network in the terms of the simulator: the same links, the same random streams.
#[derive(Clone, Debug)]
pub struct LabTopology {
    /// The name for people, in the list of labs.
    pub name: String,
    /// The run's seed: link k has the streams `("link", 2k)` and `("link", 2k + 1)`, as in the simulator.
    pub seed: Seed,
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The links between them.
    pub links: Vec<LinkSpec>,
}

/// A host: one network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its addresses. The first is the host's own. Each further one belongs to an interface, which is a separate node
    /// of the network. The host forwards nothing between them. Packets with such a source leave by the links that end
    /// at it.
    pub addresses: Vec<IpAddr>,
    /// Kernel settings beyond the lab's, by path below `/proc/sys/net`, such as `("ipv4/tcp_no_metrics_save", "1")`.
    pub settings: Vec<(String, String)>,
    /// The initial window of its TCP connections in segments (the routes' `initcwnd`). `None`: the kernel's 10.
    pub initial_window: Option<u32>,
    /// True if its TCP acknowledges every segment at once (the routes' `quickack`).
    pub quick_ack: bool,
}

/// The end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkEnd {
    /// The index of the host.
    pub host: usize,
    /// The index of the host's address that the link reaches. 0 is the host's own.
    pub address: usize,
}

impl LinkEnd {
    /// Returns the end at the host's own address.
    #[must_use]
    pub const fn for_host(host: usize) -> Self {
        Self { host, address: 0 }
    }
}

/// A link between two hosts.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Its ends. `config.up` is the direction from the first to the second.
    pub ends: [LinkEnd; 2],
    /// Its treatment of packets. As in the simulator, each packet counts with its IP length and the framing. The
    /// Ethernet header between namespaces is free.
    pub config: LinkConfig,
    /// The capture points at its ends: outbound packets before the queue, inbound ones after all losses.
    pub capture: [Option<u16>; 2],
}

/// A route out of a host by a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EgressRoute {
    /// The destination. `None`: all.
    pub(crate) to: Option<IpAddr>,
    /// The link.
    pub(crate) link: usize,
}

impl LabTopology {
    /// Rejects a network that cannot be built.
    pub(crate) fn check_buildable(&self) -> Result<(), LabError> {
        let fault = |what: String| Err(LabError::Topology(what));
        if self.links.len() > MOST_LINKS {
            return fault(format!(
                "the network has {} links; the lab supports at most {MOST_LINKS}",
                self.links.len()
            ));
        }
        let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for host in &self.hosts {
            let name = &host.name;
            if host.addresses.is_empty() || host.addresses.len() > MOST_ADDRESSES {
                return fault(format!("host {name}: it must have 1 to {MOST_ADDRESSES} addresses"));
            }
            if name.len() > LONGEST_NAME {
                return fault(format!("host {name}: its name is longer than {LONGEST_NAME} octets"));
            }
            for address in &host.addresses {
                if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
                    return fault(format!("host {name}: {address} is not the address of a single host"));
                }
                if let Some(other) = owners.insert(*address, name) {
                    return fault(format!("host {name}: its address {address} belongs to host {other}"));
                }
            }
            for (path, _) in &host.settings {
                if path.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
                    return fault(format!("host {name}: {path} is not a setting below /proc/sys/net"));
                }
            }
        }
        self.links.iter().try_for_each(|link| self.check_link(link))
    }

    fn check_link(&self, link: &LinkSpec) -> Result<(), LabError> {
        let fault = |what: String| Err(LabError::Topology(format!("link {}: {what}", link.name)));
        let mut smallest = SMALLEST_MTU[0];
        for end in link.ends {
            match self.address(end) {
                Some(IpAddr::V6(_)) => smallest = SMALLEST_MTU[1],
                Some(IpAddr::V4(_)) => {}
                None => return fault(format!("its end {end:?} does not exist")),
            }
        }
        if link.ends[0].host == link.ends[1].host {
            return fault("both ends are at one host".to_owned());
        }
        if !(smallest..=LARGEST_MTU).contains(&link.config.mtu) {
            return fault(format!("its MTU is {}, not {smallest} to {LARGEST_MTU}", link.config.mtu));
        }
        Ok(())
    }

    /// Returns the address at an end.
    pub(crate) fn address(&self, end: LinkEnd) -> Option<IpAddr> {
        self.hosts.get(end.host)?.addresses.get(end.address).copied()
    }

    /// Returns which end of a link belongs to this host.
    fn link_end_index(&self, link: usize, host: usize) -> Option<usize> {
        self.links[link].ends.iter().position(|end| end.host == host)
    }

    /// Returns a host's interfaces in order: the link, and which end of it.
    pub(crate) fn ports(&self, host: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..self.links.len()).filter_map(move |link| Some((link, self.link_end_index(link, host)?)))
    }

    /// Returns the index of a link among its host's interfaces.
    pub(crate) fn port_index(&self, host: usize, link: usize) -> Option<usize> {
        self.ports(host).position(|(l, _)| l == link)
    }

    /// Returns the links that end at an address, in order.
    fn links_of(&self, node: LinkEnd) -> impl Iterator<Item = usize> {
        (0..self.links.len()).filter(move |link| self.links[*link].ends.contains(&node))
    }

    /// True if packets for others that arrive at this end leave by another link.
    pub(crate) fn forwards_packets(&self, end: LinkEnd) -> bool {
        self.links_of(end).nth(1).is_some()
    }

    /// Returns the number of an address in the network, from 0 in the order of hosts.
    pub(crate) fn address_number(&self, end: LinkEnd) -> u32 {
        let before: usize = self.hosts[..end.host].iter().map(|h| h.addresses.len()).sum();
        (before + end.address) as u32
    }

    /// Returns the routes from an address: by the fewest links, ties to the earlier link. With a single link all
    /// packets use it, as in the simulator.
    pub(crate) fn egress_routes(&self, from: LinkEnd) -> Vec<EgressRoute> {
        let first: Vec<usize> = self.links_of(from).collect();
        match first[..] {
            [] => return Vec::new(),
            [only] => return vec![EgressRoute { to: None, link: only }],
            _ => {}
        }
        let mut by: BTreeMap<LinkEnd, usize> = BTreeMap::new();
        let mut reached = VecDeque::new();
        for link in first {
            let to = self.opposite_end(link, from);
            if to != from && !by.contains_key(&to) {
                by.insert(to, link);
                reached.push_back(to);
            }
        }
        while let Some(at) = reached.pop_front() {
            let out = by[&at];
            for link in self.links_of(at) {
                let to = self.opposite_end(link, at);
                if to != from && !by.contains_key(&to) {
                    by.insert(to, out);
                    reached.push_back(to);
                }
            }
        }
        let family = |end| self.address(end).map(|a| a.is_ipv4());
        let same = |(to, _): &(LinkEnd, usize)| to.host != from.host && family(*to) == family(from);
        by.into_iter().filter(same).map(|(to, link)| EgressRoute { to: self.address(to), link }).collect()
    }

    /// Returns the end of a link that is not `of`.
    pub(crate) fn opposite_end(&self, link: usize, of: LinkEnd) -> LinkEnd {
        let [a, b] = self.links[link].ends;
        if a == of { b } else { a }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_host(n: u8) -> HostSpec {
        HostSpec {
            name: format!("h{n}"),
            addresses: vec![[10, 0, 0, n + 1].into()],
            settings: Vec::new(),
            initial_window: None,
            quick_ack: false,
        }
    }
    fn test_link(a: usize, b: usize) -> LinkSpec {
        let ends = [LinkEnd::for_host(a), LinkEnd::for_host(b)];
        LinkSpec { name: format!("{a}-{b}"), ends, config: LinkConfig::default(), capture: [None; 2] }
    }
    fn test_topology(hosts: u8, links: &[(usize, usize)]) -> LabTopology {
        LabTopology {
            name: "test".to_owned(),
            seed: Seed::new(1),
            hosts: (0..hosts).map(test_host).collect(),
            links: links.iter().map(|(a, b)| test_link(*a, *b)).collect(),
        }
    }

    #[test]
    fn ways_are_those_of_fewest_links_and_of_the_earlier_link() {
        // A square with a tail: 0-1, 1-2, 0-3, 3-2, 2-4.
        let net = test_topology(5, &[(0, 1), (1, 2), (0, 3), (3, 2), (2, 4)]);
        let ways = net.egress_routes(LinkEnd::for_host(0));
        let to = |n: u8| ways.iter().find(|w| w.to == Some([10, 0, 0, n + 1].into())).map(|w| w.link);
        assert_eq!([1, 2, 3, 4].map(to), [Some(0), Some(0), Some(2), Some(0)]);
        assert_eq!(net.egress_routes(LinkEnd::for_host(4)), [EgressRoute { to: None, link: 4 }]);
        assert!(net.forwards_packets(LinkEnd::for_host(2)) && !net.forwards_packets(LinkEnd::for_host(4)));
        assert_eq!(net.ports(2).collect::<Vec<_>>(), [(1, 1), (3, 1), (4, 0)]);
        assert_eq!(net.port_index(2, 3), Some(1));
    }

    #[test]
    fn an_interface_is_a_node_of_its_own() {
        let mut net = test_topology(3, &[(0, 1), (0, 2)]);
        net.hosts[0].addresses.push([192, 0, 2, 1].into());
        net.links[1].ends[0].address = 1;
        assert_eq!(net.egress_routes(LinkEnd::for_host(0)), [EgressRoute { to: None, link: 0 }]);
        assert_eq!(net.egress_routes(LinkEnd { host: 0, address: 1 }), [EgressRoute { to: None, link: 1 }]);
        assert!(!net.forwards_packets(LinkEnd::for_host(0)));
        assert_eq!(net.address_number(LinkEnd::for_host(1)), 2);
    }

    #[test]
    fn what_cannot_be_built_is_said() {
        type TopologyChange = fn(&mut LabTopology);
        let said = |change: TopologyChange| {
            let mut net = test_topology(2, &[(0, 1)]);
            change(&mut net);
            net.check_buildable().map_err(|e| e.to_string())
        };
        assert_eq!(said(|_| {}), Ok(()));
        let faults: [(TopologyChange, &str); 7] = [
            (|n| n.hosts[1].addresses = n.hosts[0].addresses.clone(), "belongs to host h0"),
            (|n| n.hosts[1].addresses.clear(), "must have 1"),
            (|n| n.hosts[1].addresses[0] = [127, 0, 0, 1].into(), "not the address of a single host"),
            (|n| n.hosts[0].settings.push(("../kernel/x".into(), "1".into())), "not a setting"),
            (|n| n.links[0].ends[1] = LinkEnd { host: 1, address: 3 }, "does not exist"),
            (|n| n.links[0].ends[1] = n.links[0].ends[0], "one host"),
            (|n| n.links[0].config.mtu = 60, "MTU"),
        ];
        for (change, part) in faults {
            let fault = said(change).expect_err(part);
            assert!(fault.contains(part), "{fault}");
        }
    }
}
