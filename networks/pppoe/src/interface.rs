//! Requests about interfaces, routes and filters to the kernel, by rtnetlink(7).

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
#[cfg(ebpf)]
use netlink_packet_route::link::{InfoData, InfoKind, InfoVeth, LinkInfo};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
    RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use std::io;
use std::net::IpAddr;
use usher_device::netlink;

/// An access interface in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AccessInterface {
    pub(crate) index: u32,
    pub(crate) address: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    /// True for an end of a veth pair.
    #[cfg(ebpf)]
    pub(crate) veth: bool,
}

/// A netlink socket of the network namespace in which it was opened, for any thread.
pub(crate) struct Netlink {
    socket: Socket,
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

const fn address_family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Ignores this errno: the object exists already, or is gone.
fn ignore_errno(number: i32, done: io::Result<Vec<RouteNetlinkMessage>>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(number) => Ok(()),
        done => done.map(drop),
    }
}

/// Maximum MTU of a veth pair.
#[cfg(ebpf)]
const LONGEST_MTU: u32 = 65_535;

/// The queueing discipline of ingress and egress filters, and its parent (linux/pkt_sched.h).
const CLSACT: &str = "clsact";
const CLSACT_PARENT: u32 = 0xffff_fff1;
pub(crate) const INGRESS: u32 = 0xffff_fff2;
/// The priority of the guard filter, and its protocol: all.
const PRIORITY: u32 = 1;
const ETH_P_ALL: u16 = 3;
/// The chain of the filters that serve as notes. No packet reaches it.
const NOTES: u32 = 113;
/// Attributes of a filter, and of a BPF filter (linux/rtnetlink.h, linux/pkt_cls.h).
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// Return values of a program: continue with the next filter, or drop.
pub(crate) const TC_ACT_UNSPEC: u32 = u32::MAX;
pub(crate) const TC_ACT_SHOT: u32 = 2;

/// The protocol of this crate's routes (linux/rtnetlink.h). The number has no known other user, and so identifies
/// routes of a killed plane.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(113);

pub(crate) fn push_attribute(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The frames of PPPoE that the system receives, besides this crate's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PppoeIngressFilter {
    /// All frames.
    Pppoe,
    /// All but PADT: the kernel's PPPoE would end a session by a PADT with a spoofed address. Sockets of all protocols
    /// receive PADT before the filter.
    WithoutPadt,
}

/// The offset of PPPoE's CODE (RFC 2516 §4) from the link layer header, and the code of PADT.
const CODE: u32 = (libc::SKF_LL_OFF + 15) as u32;
const PADT: u32 = 0xa7;

/// Returns a filter that passes only PPPoE.
fn encode_ingress_filter(guard: PppoeIngressFilter) -> Vec<u8> {
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let steps = [
        (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, protocol),
        (equal, 3, 0, 0x8864),
        (equal, 0, 3, 0x8863),
        (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, CODE),
        (equal, u8::from(guard == PppoeIngressFilter::WithoutPadt), 0, PADT),
        (give, 0, 0, TC_ACT_UNSPEC),
        (give, 0, 0, TC_ACT_SHOT),
    ];
    encode_program(&steps)
}

/// Encodes a classic BPF program: code, both jumps and operand of each instruction (linux/filter.h).
fn encode_program(steps: &[(u32, u8, u8, u32)]) -> Vec<u8> {
    let mut octets = Vec::new();
    for (code, jt, jf, k) in steps {
        octets.extend((*code as u16).to_ne_bytes());
        octets.extend([*jt, *jf]);
        octets.extend(k.to_ne_bytes());
    }
    let mut options = Vec::new();
    push_attribute(TCA_BPF_OPS_LEN, &(steps.len() as u16).to_ne_bytes(), &mut options);
    push_attribute(TCA_BPF_OPS, &octets, &mut options);
    push_attribute(TCA_BPF_NAME, b"usher-pppoe\0", &mut options);
    push_attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes(), &mut options);
    options
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: netlink::open_route_socket()? })
    }

    pub(crate) fn send_request(
        &self,
        flags: u16,
        message: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        netlink::run_request_on(&self.socket, flags, message)
    }

    /// Returns the interface of this name, which must have an Ethernet address.
    pub(crate) fn require_ethernet_interface(&self, name: &str) -> io::Result<AccessInterface> {
        match self.query_interface(name)? {
            AccessInterface { address: [0, 0, 0, 0, 0, 0], .. } => {
                Err(io::Error::other("it has no Ethernet address"))
            }
            interface => Ok(interface),
        }
    }
    /// Returns a device's index.
    pub(crate) fn interface_index(&self, name: &str) -> io::Result<u32> {
        self.query_interface(name).map(|link| link.index)
    }
    /// Returns an interface's current name.
    pub(crate) fn interface_name(&self, index: u32) -> io::Result<String> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let name = self.get_link(message)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        });
        name.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
    /// Looks up the link that a message names.
    pub(crate) fn get_link(&self, message: LinkMessage) -> io::Result<LinkMessage> {
        let answers = self.send_request(NLM_F_ACK, RouteNetlinkMessage::GetLink(message))?;
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
    fn query_interface(&self, name: &str) -> io::Result<AccessInterface> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let link = self.get_link(message).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => io::Error::new(io::ErrorKind::NotFound, "there is no such interface"),
            _ => error,
        })?;
        let mut interface = AccessInterface {
            index: link.header.index,
            address: [0; 6],
            mtu: 0,
            up: link.header.flags.contains(LinkFlags::Up),
            #[cfg(ebpf)]
            veth: false,
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(octets) => {
                    interface.address = octets[..].try_into().unwrap_or_default()
                }
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                #[cfg(ebpf)]
                LinkAttribute::LinkInfo(of) => {
                    interface.veth = of.contains(&LinkInfo::Kind(InfoKind::Veth));
                }
                _ => {}
            }
        }
        Ok(interface)
    }

    /// Builds a route message. `index`: the outgoing device; `None`: any.
    fn route_message(index: Option<u32>, (network, bits): (IpAddr, u8)) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(network);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = PROTOCOL;
        message.header.scope = match network {
            // To delete a route of any scope, the request states RT_SCOPE_NOWHERE.
            _ if index.is_none() => RouteScope::NoWhere,
            IpAddr::V4(_) => RouteScope::Link,
            IpAddr::V6(_) => RouteScope::Universe,
        };
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = bits;
        let address = match network {
            IpAddr::V4(ip) => RouteAddress::Inet(ip),
            IpAddr::V6(ip) => RouteAddress::Inet6(ip),
        };
        message.attributes = index.map(RouteAttribute::Oif).into_iter().collect();
        if bits > 0 {
            message.attributes.push(RouteAttribute::Destination(address));
        }
        message
    }
    /// Adds a route for a network to a device, with an MTU. `own`: the route is this plane's, and may only change its
    /// MTU. Otherwise it replaces a killed plane's route, and never a foreign one.
    ///
    /// # Errors
    /// The kernel's error, or there is a foreign route to that network.
    pub(crate) fn add_route(&self, index: u32, network: (IpAddr, u8), mtu: u16, own: bool) -> io::Result<()> {
        let mut message = Self::route_message(Some(index), network);
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu.into())]));
        let add = |flags: u16| {
            let message = RouteNetlinkMessage::NewRoute(message.clone());
            self.send_request(NLM_F_ACK | NLM_F_CREATE | flags, message).map(drop)
        };
        let there = |done: &io::Result<()>| {
            done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EEXIST))
        };
        if own {
            return add(NLM_F_REPLACE);
        }
        let mut done = add(NLM_F_EXCL);
        if there(&done) {
            self.delete_route(None, network)?;
            done = add(NLM_F_EXCL);
        }
        if there(&done) {
            let (network, bits) = network;
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("another program's route to {network}/{bits} exists"),
            ));
        }
        done
    }
    /// Removes the route.
    pub(crate) fn remove_route(&self, index: u32, network: (IpAddr, u8)) -> io::Result<()> {
        self.delete_route(Some(index), network)
    }
    /// Deletes a route with this crate's protocol number, and never a foreign one.
    fn delete_route(&self, index: Option<u32>, network: (IpAddr, u8)) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRoute(Self::route_message(index, network));
        ignore_errno(libc::ESRCH, self.send_request(NLM_F_ACK, message))
    }

    fn address_message(index: u32, address: IpAddr) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.family = address_family(address);
        message.header.prefix_len = if address.is_ipv4() { 32 } else { 128 };
        message.header.index = index;
        message.header.scope = AddressScope::Universe;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        message
    }
    /// Adds an address to a device. Other devices may have it, too.
    pub(crate) fn add_address(&self, index: u32, address: impl Into<IpAddr>) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewAddress(Self::address_message(index, address.into()));
        ignore_errno(libc::EEXIST, self.send_request(NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, message))
    }
    /// Removes an address from a device.
    pub(crate) fn remove_address(&self, index: u32, address: impl Into<IpAddr>) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelAddress(Self::address_message(index, address.into()));
        ignore_errno(libc::EADDRNOTAVAIL, self.send_request(NLM_F_ACK, message))
    }

    pub(crate) fn tc_message(index: u32, parent: u32, handle: u32, kind: &str) -> TcMessage {
        let mut message = TcMessage::default();
        message.header.index = index as i32;
        message.header.parent = TcHandle::from(parent);
        message.header.handle = TcHandle::from(handle);
        message.attributes = vec![TcAttribute::Kind(kind.to_owned())];
        message
    }
    pub(crate) fn clsact_message(index: u32) -> TcMessage {
        Self::tc_message(index, CLSACT_PARENT, 0xffff_0000, CLSACT)
    }
    /// Builds a message for a BPF filter of all protocols.
    pub(crate) fn filter_message(index: u32, parent: u32, priority: u32) -> TcMessage {
        let mut message = Self::tc_message(index, parent, 1, "bpf");
        message.header.info = priority << 16 | u32::from(ETH_P_ALL.to_be());
        message
    }
    fn ingress_filter_message(index: u32) -> TcMessage {
        Self::filter_message(index, INGRESS, PRIORITY)
    }
    /// Creates a veth pair whose near end segments packets. Replaces the pair of a killed process. Returns the near
    /// end's index.
    #[cfg(ebpf)]
    pub(crate) fn add_segmenting_veth(&self, near: &str, far: &str) -> io::Result<u32> {
        ignore_errno(libc::ENODEV, self.remove_link(near).map(|()| Vec::new()))?;
        let end = |name: &str| {
            let mut message = LinkMessage::default();
            message.header.flags = LinkFlags::Noarp;
            message.header.change_mask = LinkFlags::Noarp;
            message.attributes =
                vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(LONGEST_MTU)];
            message
        };
        let mut pair = end(near);
        pair.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(end(far)))),
        ]));
        self.send_request(NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(pair))?;
        let index = self.interface_index(near)?;
        for (name, index) in [(near, index), (far, self.interface_index(far)?)] {
            // Disable IPv6, so that the system sends no packets of its own on either end. A system without IPv6 lacks
            // this setting, so errors are ignored.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
            // The interface accepts only single packets, so let the kernel segment larger ones first.
            message.attributes = vec![LinkAttribute::GsoMaxSegs(1)];
            self.send_request(NLM_F_ACK, RouteNetlinkMessage::SetLink(message))?;
        }
        Ok(index)
    }
    /// Removes an interface.
    #[cfg(ebpf)]
    pub(crate) fn remove_link(&self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::DelLink(message)).map(drop)
    }

    /// Drops all ingress but PPPoE before the system sees it. Otherwise the system would route a host without a
    /// session. Takes over the filter of an earlier process.
    pub(crate) fn add_ingress_filter(&self, index: u32, what: PppoeIngressFilter) -> io::Result<()> {
        self.add_clsact_discipline(index)?;
        let mut message = Self::ingress_filter_message(index);
        message
            .attributes
            .push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, encode_ingress_filter(what))));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.send_request(flags, RouteNetlinkMessage::NewTrafficFilter(message)).map(drop)
    }
    /// Builds the note with an interface's earlier `rp_filter`, 0 or 1, as its handle. It outlives this process and
    /// ends with the interface.
    fn rp_filter_note_message(index: u32, was: u8) -> TcMessage {
        let mut message = Self::filter_message(index, INGRESS, PRIORITY);
        message.header.handle = TcHandle::from(u32::from(was) + 1);
        message.attributes.push(TcAttribute::Chain(NOTES));
        message
    }
    /// Adds a note to the interface.
    pub(crate) fn add_note(&self, index: u32, was: u8) -> io::Result<()> {
        self.add_clsact_discipline(index)?;
        let mut message = Self::rp_filter_note_message(index, was);
        let pass = encode_program(&[(libc::BPF_RET | libc::BPF_K, 0, 0, TC_ACT_UNSPEC)]);
        message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, pass)));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.send_request(flags, RouteNetlinkMessage::NewTrafficFilter(message)).map(drop)
    }
    /// Returns the value in the note of an earlier plane that could not restore it.
    pub(crate) fn find_rp_filter_note(&self, index: u32) -> Option<u8> {
        let there = |was: &u8| {
            self.send_request(
                NLM_F_ACK,
                RouteNetlinkMessage::GetTrafficFilter(Self::rp_filter_note_message(index, *was)),
            )
            .is_ok()
        };
        [0, 1].into_iter().find(there)
    }
    /// Removes a note.
    pub(crate) fn remove_rp_filter_note(&self, index: u32, was: u8) -> io::Result<()> {
        self.send_request(
            NLM_F_ACK,
            RouteNetlinkMessage::DelTrafficFilter(Self::rp_filter_note_message(index, was)),
        )
        .map(drop)
    }
    fn add_clsact_discipline(&self, index: u32) -> io::Result<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let discipline = RouteNetlinkMessage::NewQueueDiscipline(Self::clsact_message(index));
        ignore_errno(libc::EEXIST, self.send_request(flags, discipline))
    }
    /// Removes the guard filter, if there is one.
    pub(crate) fn remove_ingress_filter(&self, index: u32) -> io::Result<()> {
        let asked = self.send_request(
            NLM_F_ACK,
            RouteNetlinkMessage::DelTrafficFilter(Self::ingress_filter_message(index)),
        );
        // ENOENT: there is no filter. EINVAL: there is no clsact either.
        ignore_errno(libc::EINVAL, ignore_errno(libc::ENOENT, asked).map(|()| Vec::new()))
    }
}
