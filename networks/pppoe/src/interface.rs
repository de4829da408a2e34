//! What the kernel is asked of interfaces, and what it is told: rtnetlink(7).

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

/// An access interface as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AccessInterface {
    pub(crate) index: u32,
    pub(crate) address: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    /// It is an end of a veth pair.
    #[cfg(ebpf)]
    pub(crate) veth: bool,
}

/// Requests in the network namespace in which it was opened, whatever thread asks.
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

/// The kernel's answer to what is there already, or is gone.
fn ignore_errno(number: i32, done: io::Result<Vec<RouteNetlinkMessage>>) -> io::Result<()> {
    match done {
        Err(error) if error.raw_os_error() == Some(number) => Ok(()),
        done => done.map(drop),
    }
}

/// Octets of the longest packet that a veth pair takes.
#[cfg(ebpf)]
const LONGEST_MTU: u32 = 65_535;

/// The queueing discipline that has filters of what comes and what goes, and where it stands (linux/pkt_sched.h).
const CLSACT: &str = "clsact";
const CLSACT_PARENT: u32 = 0xffff_fff1;
pub(crate) const INGRESS: u32 = 0xffff_fff2;
/// Before which other filters ours comes, and of which protocol it is: all.
const PRIORITY: u32 = 1;
const ETH_P_ALL: u16 = 3;
/// The chain of filters in which notes stand. No packet comes there, since nothing leads to it.
const NOTES: u32 = 113;
/// Attributes of a filter, and of one by a program (linux/rtnetlink.h, linux/pkt_cls.h).
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_OPS_LEN: u16 = 4;
const TCA_BPF_OPS: u16 = 5;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
/// What a program answers: the next has the frame, or nobody.
pub(crate) const TC_ACT_UNSPEC: u32 = u32::MAX;
pub(crate) const TC_ACT_SHOT: u32 = 2;

/// Who has made a route (linux/rtnetlink.h): a number that nobody else is known to use, so that routes of a plane that was killed are told from
/// other people's.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(113);

pub(crate) fn push_attribute(kind: u16, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Of which frames of PPPoE the system hears, beside our own sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IngressGuard {
    /// All.
    Pppoe,
    /// Not of PADT: the kernel's own PPPoE would end a session by whatever says that it is its station's, before anybody has judged that.
    /// Sockets of all protocols have heard them before.
    WithoutPadt,
}

/// Where a frame of PPPoE says what it is, whatever comes before (RFC 2516 §4), and PADT's code there.
const CODE: u32 = (libc::SKF_LL_OFF + 15) as u32;
const PADT: u32 = 0xa7;

/// A filter that lets PPPoE pass, and nothing else.
fn guard_filter(guard: IngressGuard) -> Vec<u8> {
    let protocol = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let steps = [
        (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, protocol),
        (equal, 3, 0, 0x8864),
        (equal, 0, 3, 0x8863),
        (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, CODE),
        (equal, u8::from(guard == IngressGuard::WithoutPadt), 0, PADT),
        (give, 0, 0, TC_ACT_UNSPEC),
        (give, 0, 0, TC_ACT_SHOT),
    ];
    encode_program(&steps)
}

/// A filter's program: of each step the code, where it goes on if so and if not, and the operand (linux/filter.h).
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
    /// Of the calling thread's network namespace.
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

    /// The interface of this name, which has an address of Ethernet.
    pub(crate) fn access_interface(&self, name: &str) -> io::Result<AccessInterface> {
        match self.query_interface(name)? {
            AccessInterface { address: [0, 0, 0, 0, 0, 0], .. } => {
                Err(io::Error::other("it has no address of Ethernet"))
            }
            interface => Ok(interface),
        }
    }
    /// The kernel's number of a device.
    pub(crate) fn interface_index(&self, name: &str) -> io::Result<u32> {
        self.query_interface(name).map(|link| link.index)
    }
    /// How an interface is called now.
    pub(crate) fn interface_name(&self, index: u32) -> io::Result<String> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let name = self.get_link(message)?.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        });
        name.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
    /// What the kernel says of the interface that a message names.
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

    /// `index`: of the device that it leads to; `None`: whichever that is.
    fn route_message(index: Option<u32>, (network, bits): (IpAddr, u8)) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = address_family(network);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = PROTOCOL;
        message.header.scope = match network {
            // One of any scope is meant, where it is to go.
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
    /// Leads packets to a network to a device, packets of so many octets at most. `own`: they are led there already, and it may be by another
    /// number of octets. Otherwise a route that a killed plane has left goes, and somebody else's stays.
    ///
    /// # Errors
    /// What the kernel says, or there is somebody else's route to that network.
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
                format!("somebody else's route to {network}/{bits} is there"),
            ));
        }
        done
    }
    /// Leads them there no more.
    pub(crate) fn remove_route(&self, index: u32, network: (IpAddr, u8)) -> io::Result<()> {
        self.delete_route(Some(index), network)
    }
    /// The kernel looks for one of this protocol, so that somebody else's stays.
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
    /// Gives a device an address of ours, which others may have, too.
    pub(crate) fn add_address(&self, index: u32, address: impl Into<IpAddr>) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewAddress(Self::address_message(index, address.into()));
        ignore_errno(libc::EEXIST, self.send_request(NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, message))
    }
    /// Takes it away.
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
    /// A filter by a program, of packets of all protocols.
    pub(crate) fn filter_message(index: u32, parent: u32, priority: u32) -> TcMessage {
        let mut message = Self::tc_message(index, parent, 1, "bpf");
        message.header.info = priority << 16 | u32::from(ETH_P_ALL.to_be());
        message
    }
    fn guard_message(index: u32) -> TcMessage {
        Self::filter_message(index, INGRESS, PRIORITY)
    }
    /// Makes a pair of interfaces that cuts what goes in at the near end; what a killed program has left of that name is taken away.
    /// The near end's index.
    #[cfg(ebpf)]
    pub(crate) fn add_cutter(&self, near: &str, far: &str) -> io::Result<u32> {
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
            // The system is to say nothing of its own by them; one without IPv6 has no such setting.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
            // It takes no packet that stands for more than one, and so the kernel cuts them before.
            message.attributes = vec![LinkAttribute::GsoMaxSegs(1)];
            self.send_request(NLM_F_ACK, RouteNetlinkMessage::SetLink(message))?;
        }
        Ok(index)
    }
    /// Takes an interface away.
    #[cfg(ebpf)]
    pub(crate) fn remove_link(&self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::DelLink(message)).map(drop)
    }

    /// Drops what comes to an interface and is not PPPoE, before the system sees it: a host that has no session would otherwise
    /// be routed like anybody. Where a program has left that, it is taken over.
    pub(crate) fn add_guard(&self, index: u32, what: IngressGuard) -> io::Result<()> {
        self.add_discipline(index)?;
        let mut message = Self::guard_message(index);
        message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, guard_filter(what))));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.send_request(flags, RouteNetlinkMessage::NewTrafficFilter(message)).map(drop)
    }
    /// A note of what `rp_filter` of an interface was, 0 or 1: by its number, since it goes with the interface and outlives this program.
    fn note_message(index: u32, was: u8) -> TcMessage {
        let mut message = Self::filter_message(index, INGRESS, PRIORITY);
        message.header.handle = TcHandle::from(u32::from(was) + 1);
        message.attributes.push(TcAttribute::Chain(NOTES));
        message
    }
    /// Has the interface bear such a note.
    pub(crate) fn add_note(&self, index: u32, was: u8) -> io::Result<()> {
        self.add_discipline(index)?;
        let mut message = Self::note_message(index, was);
        let pass = encode_program(&[(libc::BPF_RET | libc::BPF_K, 0, 0, TC_ACT_UNSPEC)]);
        message.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, pass)));
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.send_request(flags, RouteNetlinkMessage::NewTrafficFilter(message)).map(drop)
    }
    /// What the note says that a plane has left which could not put that back.
    pub(crate) fn find_note(&self, index: u32) -> Option<u8> {
        let there = |was: &u8| {
            self.send_request(
                NLM_F_ACK,
                RouteNetlinkMessage::GetTrafficFilter(Self::note_message(index, *was)),
            )
            .is_ok()
        };
        [0, 1].into_iter().find(there)
    }
    /// Takes it away.
    pub(crate) fn remove_note(&self, index: u32, was: u8) -> io::Result<()> {
        self.send_request(NLM_F_ACK, RouteNetlinkMessage::DelTrafficFilter(Self::note_message(index, was)))
            .map(drop)
    }
    fn add_discipline(&self, index: u32) -> io::Result<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        let discipline = RouteNetlinkMessage::NewQueueDiscipline(Self::clsact_message(index));
        ignore_errno(libc::EEXIST, self.send_request(flags, discipline))
    }
    /// Takes that away, where it is.
    pub(crate) fn remove_guard(&self, index: u32) -> io::Result<()> {
        let asked =
            self.send_request(NLM_F_ACK, RouteNetlinkMessage::DelTrafficFilter(Self::guard_message(index)));
        // There is no filter; or, where there is not what filters hang on either, it is an invalid one.
        ignore_errno(libc::EINVAL, ignore_errno(libc::ENOENT, asked).map(|()| Vec::new()))
    }
}
