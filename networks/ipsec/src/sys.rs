//! The only module with direct system calls: batches of datagrams with addresses and class (`recvmmsg`, `sendmmsg`,
//! `UDP_GRO`, `UDP_SEGMENT`), and the program by which the kernel separates IKE and ESP. No safe interface in our
//! dependencies offers these.
//!
//! Each call makes new pointers from vectors that it borrows. They are not read after the call.
#![allow(unsafe_code)]

use socket2::Socket;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::ptr;
use usher_device::JOINED;

/// The most messages per call.
pub(crate) const BATCH: usize = 16;
/// The octets for a message's control messages: local address, class, and length of joined datagrams.
const CONTROL: usize = 128;
/// The octets of a control message's header.
const HEAD: usize = size_of::<libc::cmsghdr>();

fn check_result(value: libc::c_int) -> io::Result<()> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer of the length given, which the call reads.
    check_result(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length)
    })
}

/// Has the kernel report the local address and class of each datagram, and fragment datagrams that are too long for a
/// link.
pub(crate) fn set_ike_socket_options(socket: &Socket, ipv6: bool) -> io::Result<()> {
    if ipv6 {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        return set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT);
    }
    set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    set_option(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
}

/// Has the kernel join datagrams of equal length (UDP_GRO).
pub(crate) fn enable_receive_offload(socket: &Socket) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Has the kernel's ESP take ESP packets in UDP from this socket (RFC 3948).
pub(crate) fn enable_decapsulation(socket: &Socket) -> io::Result<()> {
    /// `UDP_ENCAP_ESPINUDP` of `linux/udp.h`.
    const ESP_IN_UDP: libc::c_int = 2;
    set_option(socket, libc::SOL_UDP, libc::UDP_ENCAP, ESP_IN_UDP)
}

/// Splits the datagrams of one port between two sockets. Those that begin with the non-ESP marker, or are shorter
/// than it, go to the first socket, and the rest to this one. The kernel runs a BPF program that returns the socket's
/// index.
pub(crate) fn attach_port_filter(socket: &Socket) -> io::Result<()> {
    let word = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let give = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // If the filter loads a word beyond the datagram's end, it ends with result 0.
    let mut steps = [step(word, 0, 0, 0), step(equal, 0, 1, 0), step(give, 0, 0, 0), step(give, 0, 0, 1)];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the call copies the program, to which the pointer leads, and its steps, which are as many as it says.
    check_result(unsafe {
        let name = libc::SO_ATTACH_REUSEPORT_CBPF;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const program).cast(), length)
    })
}

/// The octets of control messages, aligned for their header.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL]);

/// The buffers of one call, per message.
struct MessageSlots {
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<ControlBuffer>,
    vectors: Vec<libc::iovec>,
    heads: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `heads` are written before each call and read by that call only, which
// borrows the slots exclusively; between calls they are plain bits.
unsafe impl Send for MessageSlots {}

impl MessageSlots {
    fn new() -> Self {
        // SAFETY: all are structures of integers and pointers, for which all zeros is a value.
        unsafe {
            Self {
                names: vec![zeroed(); BATCH],
                controls: vec![ControlBuffer([0; CONTROL]); BATCH],
                vectors: vec![zeroed(); BATCH],
                heads: vec![zeroed(); BATCH],
            }
        }
    }
    /// Points a header at its name, vector and control messages of these lengths.
    fn point_header(&mut self, at: usize, name: usize, control: usize) {
        let head = &mut self.heads[at];
        head.msg_len = 0;
        let head = &mut head.msg_hdr;
        head.msg_name = (&raw mut self.names[at]).cast();
        head.msg_namelen = name as libc::socklen_t;
        head.msg_iov = &raw mut self.vectors[at];
        head.msg_iovlen = 1;
        head.msg_control = if control == 0 { ptr::null_mut() } else { (&raw mut self.controls[at]).cast() };
        head.msg_controllen = control;
        head.msg_flags = 0;
    }
}

/// A received message: one datagram, or several joined ones.
pub(crate) struct ReceivedMessage<'a> {
    /// The source.
    pub(crate) remote: SocketAddr,
    /// The local address, if the kernel reports it.
    pub(crate) local: Option<IpAddr>,
    /// DSCP and ECN.
    pub(crate) class: u8,
    /// The octets of each joined datagram. The last may be shorter.
    pub(crate) each: usize,
    /// The octets of all datagrams.
    pub(crate) octets: &'a mut [u8],
}

/// Receives batches.
pub(crate) struct DatagramBatchReceiver {
    slots: MessageSlots,
    data: Vec<u8>,
    count: usize,
}

impl DatagramBatchReceiver {
    pub(crate) fn new() -> Self {
        Self { slots: MessageSlots::new(), data: vec![0; BATCH * JOINED], count: 0 }
    }
    /// Receives the pending messages, at most [`BATCH`]. Returns their number.
    pub(crate) fn receive_batch(&mut self, socket: &Socket) -> io::Result<usize> {
        self.count = 0;
        for (at, piece) in self.data.chunks_exact_mut(JOINED).enumerate() {
            self.slots.vectors[at] = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: JOINED };
            self.slots.point_header(at, size_of::<libc::sockaddr_storage>(), CONTROL);
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: there are BATCH headers; each points at a name, a control message and a vector of the lengths
        // given, all of which `self` holds, and borrows until the call has returned.
        let count = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), heads, BATCH as libc::c_uint, flags, ptr::null_mut())
        };
        match usize::try_from(count) {
            Ok(count) => {
                self.count = count;
                Ok(count)
            }
            Err(_) => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
                e => Err(e),
            },
        }
    }
    /// Returns the messages of the last call. Skips those without an Internet address, or longer than the buffer.
    pub(crate) fn received_messages(&mut self) -> impl Iterator<Item = ReceivedMessage<'_>> {
        let slots = &self.slots;
        self.data.chunks_exact_mut(JOINED).take(self.count).enumerate().filter_map(|(at, data)| {
            let head = &slots.heads[at];
            let length = (head.msg_len as usize).min(JOINED);
            let remote = address_of(&slots.names[at], head.msg_hdr.msg_namelen as usize)?;
            if head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                return None;
            }
            let mut arrived = ReceivedMessage {
                remote,
                local: None,
                class: 0,
                each: length.max(1),
                octets: &mut data[..length],
            };
            parse_control(&slots.controls[at], head.msg_hdr.msg_controllen, &mut arrived);
            Some(arrived)
        })
    }
}

fn address_of(storage: &libc::sockaddr_storage, length: usize) -> Option<SocketAddr> {
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the address family states that the storage holds this structure. The storage is larger and
            // aligned for it.
            let v4 = unsafe { &*at.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let v6 = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Parses `length` octets of control messages.
fn parse_control(control: &ControlBuffer, length: usize, arrived: &mut ReceivedMessage<'_>) {
    let (mut at, end) = (0, length.min(CONTROL));
    while at + HEAD <= end {
        // SAFETY: this range has as many octets as a header, which is plain bits.
        let head = unsafe { control.0.as_ptr().add(at).cast::<libc::cmsghdr>().read_unaligned() };
        if head.cmsg_len < HEAD || head.cmsg_len > end - at {
            break;
        }
        let body = &control.0[at + HEAD..at + head.cmsg_len];
        let number = body.first_chunk().map(|octets| libc::c_int::from_ne_bytes(*octets));
        match (head.cmsg_level, head.cmsg_type) {
            // The packet's destination is the third field, after the interface index and the local address for replies.
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let octets = body.get(8..12).and_then(|octets| octets.first_chunk::<4>());
                arrived.local = octets.map(|octets| Ipv4Addr::from(*octets).into()).or(arrived.local);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                arrived.local = body.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into());
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => arrived.class = body.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => arrived.class = number.unwrap_or(0) as u8,
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let each = number.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
                arrived.each = each.unwrap_or(arrived.each);
            }
            _ => {}
        }
        at += head.cmsg_len.next_multiple_of(size_of::<usize>());
    }
}

/// An outgoing message.
#[derive(Clone, Copy)]
pub(crate) struct OutgoingMessage<'a> {
    /// The local address. The kernel chooses if it is unspecified.
    pub(crate) local: IpAddr,
    /// The destination.
    pub(crate) remote: SocketAddr,
    /// DSCP and ECN.
    pub(crate) class: u8,
    /// The octets of each datagram but the last. `None`: a single datagram.
    pub(crate) each: Option<u16>,
    /// The octets of all datagrams.
    pub(crate) octets: &'a [u8],
}

/// Sends batches.
pub(crate) struct DatagramBatchSender {
    slots: MessageSlots,
}

impl DatagramBatchSender {
    pub(crate) fn new() -> Self {
        Self { slots: MessageSlots::new() }
    }
    /// Sends the first of these messages, at most [`BATCH`]. Returns the number sent, at least one.
    ///
    /// # Errors
    /// The system's error for the first message.
    pub(crate) fn send_batch(
        &mut self,
        socket: &Socket,
        messages: &[OutgoingMessage<'_>],
    ) -> io::Result<usize> {
        let count = messages.len().min(BATCH);
        for (at, message) in messages[..count].iter().enumerate() {
            // The pointer is mutable only by type: the system reads this memory and does not write it.
            let base = message.octets.as_ptr().cast_mut().cast();
            self.slots.vectors[at] = libc::iovec { iov_base: base, iov_len: message.octets.len() };
            let name = write_address(&mut self.slots.names[at], message.remote);
            let control = write_controls(&mut self.slots.controls[at], message);
            self.slots.point_header(at, name, control);
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_NOSIGNAL);
        // SAFETY: `count` headers have been made; what they point at is borrowed until the call has returned.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), heads, count as libc::c_uint, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Writes an address and returns its length.
fn write_address(storage: &mut libc::sockaddr_storage, address: SocketAddr) -> usize {
    let at: *mut libc::sockaddr_storage = storage;
    // SAFETY: the storage is larger than either structure and aligned for both; all zeros is a value of them.
    unsafe {
        match address {
            SocketAddr::V4(v4) => {
                let mut name: libc::sockaddr_in = zeroed();
                name.sin_family = libc::AF_INET as libc::sa_family_t;
                name.sin_port = v4.port().to_be();
                name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
                at.cast::<libc::sockaddr_in>().write(name);
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let mut name: libc::sockaddr_in6 = zeroed();
                name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.sin6_port = v6.port().to_be();
                name.sin6_addr.s6_addr = v6.ip().octets();
                name.sin6_scope_id = v6.scope_id();
                at.cast::<libc::sockaddr_in6>().write(name);
                size_of::<libc::sockaddr_in6>()
            }
        }
    }
}

/// Writes the control messages of a message and returns their length.
fn write_controls(control: &mut ControlBuffer, message: &OutgoingMessage<'_>) -> usize {
    let mut at = 0;
    let mut add = |level: libc::c_int, kind: libc::c_int, body: &[u8]| {
        // SAFETY: all zeros is a value of the header, which has integers alone.
        let mut head: libc::cmsghdr = unsafe { zeroed() };
        (head.cmsg_level, head.cmsg_type, head.cmsg_len) = (level, kind, HEAD + body.len());
        // SAFETY: the three messages that there are need fewer octets than CONTROL has.
        unsafe { control.0.as_mut_ptr().add(at).cast::<libc::cmsghdr>().write_unaligned(head) };
        control.0[at + HEAD..at + HEAD + body.len()].copy_from_slice(body);
        at += (HEAD + body.len()).next_multiple_of(size_of::<usize>());
    };
    let class = libc::c_int::from(message.class).to_ne_bytes();
    match message.local {
        IpAddr::V4(ip) => {
            if !ip.is_unspecified() {
                let mut body = [0; size_of::<libc::in_pktinfo>()];
                body[4..8].copy_from_slice(&ip.octets());
                add(libc::IPPROTO_IP, libc::IP_PKTINFO, &body);
            }
            if message.class != 0 {
                add(libc::IPPROTO_IP, libc::IP_TOS, &class);
            }
        }
        IpAddr::V6(ip) => {
            if !ip.is_unspecified() {
                let mut body = [0; size_of::<libc::in6_pktinfo>()];
                body[..16].copy_from_slice(&ip.octets());
                add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &body);
            }
            if message.class != 0 {
                add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
            }
        }
    }
    if let Some(each) = message.each {
        add(libc::SOL_UDP, libc::UDP_SEGMENT, &each.to_ne_bytes());
    }
    at
}
