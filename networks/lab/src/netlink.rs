//! Interfaces, addresses, routes and rules by rtnetlink(7). Each request is acknowledged before the next.

use crate::error::{ErrorContext, LabError};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::route::{
    RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The index of the loopback interface, the first of each namespace.
pub(crate) const LOOPBACK: u32 = 1;

/// The default routing table (RT_TABLE_MAIN).
pub(crate) const MAIN: u8 = 254;

/// The time limit for deferred work of the kernel.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(60);

/// An rtnetlink socket of one namespace.
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    name: String,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").field("of", &self.name).finish_non_exhaustive()
    }
}

/// One end of a veth pair.
pub(crate) struct VethEnd<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace, which errors call `name`.
    pub(crate) fn open(name: &str) -> Result<Self, LabError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let opened: io::Result<Socket> = open();
        let socket = opened.with_context(|| format!("open the rtnetlink of {name}"))?;
        Ok(Self { socket, sequence: 0, name: name.to_owned() })
    }

    fn send_request(
        &mut self,
        what: impl FnOnce() -> String,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> Result<(), LabError> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let answer = self.exchange_message(header, message).and_then(|answer| match answer.payload {
            NetlinkPayload::Error(answer) if answer.code.is_none() => Ok(()),
            NetlinkPayload::Error(answer) => Err(answer.to_io()),
            _ => Err(io::Error::other("the kernel's answer does not match the request")),
        });
        answer.with_context(|| format!("{} in {}", what(), self.name))
    }

    fn exchange_message(
        &self,
        header: NetlinkHeader,
        message: RouteNetlinkMessage,
    ) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut octets = vec![0; message.buffer_len()];
        message.serialize(&mut octets);
        self.socket.send(&octets, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        NetlinkMessage::deserialize(&answer).map_err(io::Error::other)
    }

    /// Waits until an address of the namespace is usable. For IPv6 the kernel delays this, and loses packets before.
    pub(crate) fn until_in_use(&mut self, address: IpAddr) -> Result<(), LabError> {
        let begun = Instant::now();
        while !self
            .in_use(address)
            .with_context(|| format!("look up the route to {address} in {}", self.name))?
        {
            if begun.elapsed() >= KERNEL_TIMEOUT {
                return Err(io::Error::from(io::ErrorKind::TimedOut))
                    .with_context(|| format!("bring {address} into use in {}", self.name));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// True if packets to an address stay in the namespace.
    fn in_use(&mut self, address: IpAddr) -> io::Result<bool> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(address);
        message.header.destination_prefix_length = prefix_length(address);
        message.attributes = vec![RouteAttribute::Destination(address.into())];
        let message = RouteNetlinkMessage::GetRoute(message);
        match self.exchange_message(header, message)?.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                Ok(route.header.kind == RouteType::Local)
            }
            // The kernel has no route to the address, so it is not local.
            NetlinkPayload::Error(_) => Ok(false),
            _ => Err(io::Error::other("the kernel's answer does not match the request")),
        }
    }

    /// Creates a veth pair: one end here, the other in the namespace of the descriptor `there`. Neither end resolves
    /// addresses: frames go to the other end of the link in any case.
    pub(crate) fn create_veth(
        &mut self,
        here: &VethEnd<'_>,
        peer: &VethEnd<'_>,
        there: &impl AsRawFd,
        mtu: u32,
    ) -> Result<(), LabError> {
        let end = |end: &VethEnd<'_>| {
            let mut message = LinkMessage::default();
            message.header.index = end.index;
            message.header.flags = LinkFlags::Noarp;
            message.header.change_mask = LinkFlags::Noarp;
            message.attributes = vec![
                LinkAttribute::IfName(end.name.to_owned()),
                LinkAttribute::Address(end.mac.to_vec()),
                LinkAttribute::Mtu(mtu),
            ];
            message
        };
        let mut other = end(peer);
        other.attributes.push(LinkAttribute::NetNsFd(there.as_raw_fd()));
        let mut message = end(here);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        let what = || format!("make the veth {}", here.name);
        self.send_request(what, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message))
    }

    /// Switches an interface on or off, and turns off its address resolution.
    pub(crate) fn set_up(&mut self, index: u32, up: bool) -> Result<(), LabError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        message.header.change_mask = LinkFlags::Up;
        if index != LOOPBACK {
            message.header.flags |= LinkFlags::Noarp;
            message.header.change_mask |= LinkFlags::Noarp;
        }
        let what = || format!("switch interface {index} {}", if up { "on" } else { "off" });
        self.send_request(what, 0, RouteNetlinkMessage::SetLink(message))
    }

    /// Adds an address to an interface, without duplicate address detection.
    pub(crate) fn add_address(&mut self, index: u32, address: IpAddr) -> Result<(), LabError> {
        let mut message = AddressMessage::default();
        message.header.family = address_family(address);
        message.header.prefix_len = prefix_length(address);
        message.header.flags = AddressHeaderFlags::Nodad | AddressHeaderFlags::Permanent;
        message.header.scope = AddressScope::Universe;
        message.header.index = index;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let what = || format!("give interface {index} the address {address}");
        self.send_request(what, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewAddress(message))
    }

    /// Adds a route by an interface to an address, or to all addresses of the source's family, with metrics for its
    /// connections.
    pub(crate) fn add_route(
        &mut self,
        table: u8,
        to: Option<IpAddr>,
        index: u32,
        source: IpAddr,
        metrics: Vec<RouteMetric>,
    ) -> Result<(), LabError> {
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(source);
        message.header.destination_prefix_length = to.map_or(0, prefix_length);
        message.header.table = table;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = if source.is_ipv4() { RouteScope::Link } else { RouteScope::Universe };
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Oif(index), RouteAttribute::PrefSource(source.into())];
        message.attributes.extend(to.map(|to| RouteAttribute::Destination(to.into())));
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        let what = || {
            let to = to.map_or_else(|| "all hosts".to_owned(), |to| to.to_string());
            format!("make a route to {to} by interface {index}")
        };
        self.send_request(what, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewRoute(message))
    }

    /// Adds a rule: packets with this source use a routing table of their own.
    pub(crate) fn add_source_routing_rule(&mut self, source: IpAddr, table: u8) -> Result<(), LabError> {
        let mut message = RuleMessage::default();
        message.header.family = address_family(source);
        message.header.src_len = prefix_length(source);
        message.header.table = table;
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Source(source), RuleAttribute::Priority(u32::from(table))];
        let what = || format!("make a rule for packets from {source}");
        self.send_request(what, NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewRule(message))
    }
}

fn address_family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn prefix_length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
