//! The direct system calls: datagrams in batches with their local addresses (`recvmmsg`, `sendmmsg`,
//! `IP_PKTINFO`), the processor of a thread and its time, and registration of foreign sockets with the runtime.
//! Our dependencies have no safe interface to these calls. One call per datagram would cost more than the rest of
//! the driver.
//!
//! The kernel takes adjacent datagrams of the same length and addresses as one (`UDP_SEGMENT`, `UDP_GRO`): a
//! datagram's path through the kernel costs more than a server's work on it.
//!
//! Pointers are built for each call from vectors that the call borrows. They are not read after it: results are
//! read from the vectors.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use tokio::io::unix::AsyncFd;

/// Maximum datagrams of one call.
pub(crate) const BATCH: usize = 64;

/// Maximum octets of a received datagram: RFC 2865's longest packet is 4096.
pub(crate) const LONGEST: usize = 4608;

/// Maximum octets of joined datagrams: an IP packet has no more.
const JOINED: usize = 65_536;

/// Distance between the slots of received pieces: an odd number of cache lines, so that the starts of pieces do
/// not share cache sets.
const STRIDE: usize = JOINED + 9 * 64;

/// Maximum datagrams that the kernel takes as one (`UDP_MAX_SEGMENTS` before Linux 6.9).
const SEGMENTS: usize = 64;

/// Octets of a control message's header.
const HEAD: usize = size_of::<libc::cmsghdr>();

/// Maximum octets of datagrams sent as one: a UDP packet over IPv4 has no more.
const TRAIN: usize = 65_507;

/// Maximum octets of a datagram sent with others as one. With its headers it fits the minimum MTU of IPv6 (RFC
/// 8200 §5), since joined datagrams cannot be fragmented.
const SEGMENT: usize = 1232;

/// Octets for the control messages of either family: the local address, and the length of joined datagrams.
const CONTROL: usize = 64;

/// Control messages' octets, aligned as their header must be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL]);

/// A datagram to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingDatagram {
    /// Index of the socket.
    pub(crate) socket: usize,
    /// Source address, unless unspecified; the port is the socket's.
    pub(crate) local: SocketAddr,
    /// Destination.
    pub(crate) remote: SocketAddr,
    /// Payload.
    pub(crate) data: Vec<u8>,
}

/// A datagram received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedDatagram<'a> {
    /// The sender; `None` if the family is not IPv4 or IPv6.
    pub(crate) remote: Option<SocketAddr>,
    /// The local destination address, with the zone of a link-local one, if the kernel reported it.
    pub(crate) local: Option<(IpAddr, u32)>,
    /// Payload.
    pub(crate) data: &'a [u8],
    /// True if octets are missing.
    pub(crate) truncated: bool,
}

/// The structures that one call needs for each datagram.
struct MmsgBuffers {
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<ControlBuffer>,
    vectors: Vec<libc::iovec>,
    heads: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `heads` are written before each call and read by that call only,
// which borrows the slots exclusively; between calls they are plain bits.
unsafe impl Send for MmsgBuffers {}

/// Contents of a header: octets of its name and control messages, and its vectors.
#[derive(Clone, Copy, Default)]
struct MmsgHeaderLengths {
    name: usize,
    control: usize,
    first: usize,
    vectors: usize,
}

impl MmsgBuffers {
    fn new() -> Self {
        // SAFETY: all four are structures of integers and pointers, for which all zeros is a value.
        unsafe {
            Self {
                names: vec![zeroed(); BATCH],
                controls: vec![ControlBuffer([0; CONTROL]); BATCH],
                vectors: vec![zeroed(); BATCH],
                heads: vec![zeroed(); BATCH],
            }
        }
    }

    /// Sets the pointers of the first `count` headers to their name, vectors and, if not empty, control messages.
    fn point_headers(&mut self, count: usize, of: impl Fn(usize) -> MmsgHeaderLengths) {
        let (names, controls) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let vectors = self.vectors.as_mut_ptr();
        for (i, head) in self.heads.iter_mut().enumerate().take(count) {
            let MmsgHeaderLengths { name, control, first, vectors: count } = of(i);
            head.msg_len = 0;
            let head = &mut head.msg_hdr;
            // SAFETY: `i` and `first` are below BATCH, the length of all vectors.
            unsafe {
                head.msg_name = names.add(i).cast();
                head.msg_iov = vectors.add(first.min(BATCH - 1));
                head.msg_control = if control == 0 { ptr::null_mut() } else { controls.add(i).cast() };
            }
            head.msg_namelen = u32::try_from(name).unwrap_or(0);
            head.msg_iovlen = count.min(BATCH - first.min(BATCH));
            head.msg_controllen = control;
            head.msg_flags = 0;
        }
    }
}

/// Receives up to [`BATCH`] pieces per call; a piece is a datagram, or several that the kernel joined.
pub(crate) struct DatagramInbox {
    slots: MmsgBuffers,
    data: Vec<u8>,
    count: usize,
}

impl DatagramInbox {
    pub(crate) fn new() -> Self {
        Self { slots: MmsgBuffers::new(), data: vec![0; BATCH * STRIDE], count: 0 }
    }

    /// Receives a batch and returns its number of pieces; fewer than [`BATCH`] means that there are no more.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are none, and other errors of the kernel.
    pub(crate) fn receive_batch(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.count = 0;
        let data = self.data.as_mut_ptr();
        for (i, vector) in self.slots.vectors.iter_mut().enumerate() {
            // SAFETY: `data` has BATCH places of STRIDE octets, which is more than JOINED, and `i` is below BATCH.
            vector.iov_base = unsafe { data.add(i * STRIDE) }.cast();
            vector.iov_len = JOINED;
        }
        self.slots.point_headers(BATCH, |i| MmsgHeaderLengths {
            name: size_of::<libc::sockaddr_storage>(),
            control: CONTROL,
            first: i,
            vectors: 1,
        });
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: there are BATCH headers; each points at a name, a control message and a vector of the lengths
        // given, all borrowed by `self` until the call has returned.
        let count =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), heads, BATCH as u32, flags, ptr::null_mut()) };
        self.count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(self.count)
    }

    /// Returns the datagrams of the last call.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        (0..self.count).flat_map(|i| self.datagrams_of_piece(i))
    }

    /// Returns the datagrams of a piece.
    fn datagrams_of_piece(&self, i: usize) -> impl Iterator<Item = ReceivedDatagram<'_>> {
        let head = &self.slots.heads[i];
        let length = usize::try_from(head.msg_len).unwrap_or(0).min(JOINED);
        let remote = address_of(&self.slots.names[i], head.msg_hdr.msg_namelen);
        let told = parse_ancillary(&self.slots.controls[i], head.msg_hdr.msg_controllen);
        let whole = head.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let each = told.segment.unwrap_or(length).max(1);
        let data = &self.data[i * STRIDE..i * STRIDE + length];
        // An empty datagram has no chunks, but is delivered too.
        let empty = data.is_empty().then_some(data);
        empty.into_iter().chain(data.chunks(each)).map(move |data| ReceivedDatagram {
            remote,
            local: told.local,
            data,
            truncated: !whole || data.len() > LONGEST,
        })
    }
}

/// Sends up to [`BATCH`] datagrams per call.
pub(crate) struct DatagramOutbox {
    slots: MmsgBuffers,
    /// Number of datagrams of each header.
    trains: [usize; BATCH],
}

impl DatagramOutbox {
    pub(crate) fn new() -> Self {
        Self { slots: MmsgBuffers::new(), trains: [0; BATCH] }
    }

    /// Returns the number of datagrams of the last call's first header: an error applies to these.
    pub(crate) fn first_train_datagram_count(&self) -> usize {
        self.trains[0]
    }

    /// Sends the first of `letters`, at most [`BATCH`], and returns the number sent, at least one. With `any`, the
    /// socket is bound to no address, and each datagram has its own source. With `join`, adjacent datagrams with the
    /// same addresses and length are sent as one; the last may be shorter.
    ///
    /// # Errors
    /// The kernel's error for the [first](Self::first_train_datagram_count) ones; [`io::ErrorKind::WouldBlock`] if it takes
    /// none now.
    pub(crate) fn send_batch(
        &mut self,
        socket: BorrowedFd<'_>,
        letters: &[OutgoingDatagram],
        any: bool,
        join: bool,
    ) -> io::Result<usize> {
        let letters = &letters[..letters.len().min(BATCH)];
        let mut made = [MmsgHeaderLengths::default(); BATCH];
        let (mut heads, mut at) = (0, 0);
        while let Some(letter) = letters.get(at) {
            let count = if join { joinable_datagram_count(&letters[at..]) } else { 1 };
            for (i, letter) in letters.iter().enumerate().skip(at).take(count) {
                // The pointer is mutable only by type: the kernel reads this memory and does not write it.
                self.slots.vectors[i].iov_base = letter.data.as_ptr().cast_mut().cast();
                self.slots.vectors[i].iov_len = letter.data.len();
            }
            let controls = &mut self.slots.controls[heads];
            let mut control = if any { write_local(controls, letter.local) } else { 0 };
            if count > 1 {
                control = write_segment(controls, control, letter.data.len());
            }
            let name = write_address(&mut self.slots.names[heads], letter.remote);
            made[heads] = MmsgHeaderLengths { name, control, first: at, vectors: count };
            self.trains[heads] = count;
            heads += 1;
            at += count;
        }
        self.slots.point_headers(heads, |i| made[i]);
        let (pointer, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: as many headers as `heads` have been made; what they point at is borrowed by `self` and
        // `letters` until the call has returned.
        let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), pointer, heads as u32, flags) };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(self.trains[..count.min(heads)].iter().sum())
    }
}

/// Returns the number of datagrams, from the first, that can be sent as one.
fn joinable_datagram_count(letters: &[OutgoingDatagram]) -> usize {
    let [first, rest @ ..] = letters else { return 0 };
    let length = first.data.len();
    if length == 0 || length > SEGMENT {
        return 1;
    }
    let mut count = 1;
    for letter in rest.iter().take(SEGMENTS.min(TRAIN / length) - 1) {
        let fits = letter.remote == first.remote && letter.local == first.local;
        if !fits || letter.data.is_empty() || letter.data.len() > length {
            break;
        }
        count += 1;
        if letter.data.len() < length {
            break;
        }
    }
    count
}

fn address_of(storage: &libc::sockaddr_storage, length: u32) -> Option<SocketAddr> {
    let length = usize::try_from(length).unwrap_or(0);
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
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Writes an address and returns its length.
fn write_address(storage: &mut libc::sockaddr_storage, address: SocketAddr) -> usize {
    let at: *mut libc::sockaddr_storage = storage;
    match address {
        SocketAddr::V4(v4) => {
            // SAFETY: the storage is larger than this structure and aligned for it; all zeros is a value.
            let name = unsafe {
                at.cast::<libc::sockaddr_in>().write(zeroed());
                &mut *at.cast::<libc::sockaddr_in>()
            };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_port = v4.port().to_be();
            name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            let name = unsafe {
                at.cast::<libc::sockaddr_in6>().write(zeroed());
                &mut *at.cast::<libc::sockaddr_in6>()
            };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = v6.port().to_be();
            name.sin6_addr.s6_addr = v6.ip().octets();
            name.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    }
}

/// The kernel's ancillary data of a piece.
#[derive(Clone, Copy, Default)]
struct AncillaryData {
    /// The local address, with its interface if it is link-local.
    local: Option<(IpAddr, u32)>,
    /// Octets of each joined datagram; the last may be shorter.
    segment: Option<usize>,
}

/// Parses control messages of `length` octets.
fn parse_ancillary(control: &ControlBuffer, length: usize) -> AncillaryData {
    let mut told = AncillaryData::default();
    let (mut at, end) = (0, length.min(CONTROL));
    while at + HEAD <= end {
        // SAFETY: this range has as many octets as a header, which is plain bits. It is aligned for a header, as the
        // system aligns each.
        let head = unsafe { control.0.as_ptr().add(at).cast::<libc::cmsghdr>().read_unaligned() };
        if head.cmsg_len < HEAD || head.cmsg_len > end - at {
            break;
        }
        let body = &control.0[at + HEAD..at + head.cmsg_len];
        match (head.cmsg_level, head.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if body.len() >= size_of::<libc::in_pktinfo>() => {
                // SAFETY: the body has at least the size of this structure, which is plain bits.
                let info = unsafe { body.as_ptr().cast::<libc::in_pktinfo>().read_unaligned() };
                // Without a route lookup the kernel leaves this address empty. Then use the packet's destination, which
                // differs only for broadcasts.
                let own = match info.ipi_spec_dst.s_addr {
                    0 => info.ipi_addr.s_addr,
                    own => own,
                };
                told.local = Some((Ipv4Addr::from(own.to_ne_bytes()).into(), 0));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if body.len() >= size_of::<libc::in6_pktinfo>() => {
                // SAFETY: as above.
                let info = unsafe { body.as_ptr().cast::<libc::in6_pktinfo>().read_unaligned() };
                let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                let zone = if ip.is_unicast_link_local() { info.ipi6_ifindex } else { 0 };
                told.local = Some((ip.into(), zone));
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let octets = body.first_chunk().map(|b| libc::c_int::from_ne_bytes(*b));
                told.segment = octets.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
            }
            _ => {}
        }
        at += head.cmsg_len.next_multiple_of(size_of::<usize>());
    }
    told
}

/// Writes the control message for the source address `local` and returns its length; 0 if the kernel is to
/// choose.
fn write_local(control: &mut ControlBuffer, local: SocketAddr) -> usize {
    if local.ip().is_unspecified() {
        return 0;
    }
    let at = control.0.as_mut_ptr();
    // SAFETY: the buffer is aligned for a header and has room for it and for either body. CMSG_SPACE and CMSG_LEN only
    // compute sizes. All three structures are plain bits.
    unsafe {
        let mut head: libc::cmsghdr = zeroed();
        let body = match local {
            SocketAddr::V4(v4) => {
                let mut info: libc::in_pktinfo = zeroed();
                info.ipi_spec_dst.s_addr = u32::from_ne_bytes(v4.ip().octets());
                at.add(HEAD).cast::<libc::in_pktinfo>().write_unaligned(info);
                (head.cmsg_level, head.cmsg_type) = (libc::IPPROTO_IP, libc::IP_PKTINFO);
                size_of::<libc::in_pktinfo>() as u32
            }
            SocketAddr::V6(v6) => {
                let mut info: libc::in6_pktinfo = zeroed();
                info.ipi6_addr.s6_addr = v6.ip().octets();
                info.ipi6_ifindex = v6.scope_id();
                at.add(HEAD).cast::<libc::in6_pktinfo>().write_unaligned(info);
                (head.cmsg_level, head.cmsg_type) = (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO);
                size_of::<libc::in6_pktinfo>() as u32
            }
        };
        head.cmsg_len = libc::CMSG_LEN(body) as usize;
        at.cast::<libc::cmsghdr>().write(head);
        libc::CMSG_SPACE(body) as usize
    }
}

/// Writes, after `at` octets, the control message that cuts the payload into datagrams of `octets`. Returns the
/// total length.
fn write_segment(control: &mut ControlBuffer, at: usize, octets: usize) -> usize {
    const SPACE: usize = HEAD + size_of::<usize>();
    debug_assert!(at + SPACE <= CONTROL, "either address leaves room for it");
    let octets = u16::try_from(octets).unwrap_or(u16::MAX);
    let head = control.0.as_mut_ptr();
    // SAFETY: after the longest address, of 40 octets, the buffer has room for the header and one word. CMSG_SPACE
    // makes `at` a multiple of a word, and CMSG_LEN only computes.
    unsafe {
        let mut message: libc::cmsghdr = zeroed();
        (message.cmsg_level, message.cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
        message.cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as usize;
        head.add(at).cast::<libc::cmsghdr>().write(message);
        head.add(at + HEAD).cast::<u16>().write(octets);
    }
    at + SPACE
}

/// Lets the kernel join received datagrams and report their length; true if it does.
pub(crate) fn enable_gro(socket: BorrowedFd<'_>) -> bool {
    let on: libc::c_int = 1;
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer of the length given, which the call reads.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const on).cast(), length)
    };
    result == 0
}

/// Sets the receive buffer beyond the system's limit; needs CAP_NET_ADMIN.
pub(crate) fn force_receive_buffer(socket: BorrowedFd<'_>, octets: usize) -> bool {
    let octets = libc::c_int::try_from(octets).unwrap_or(libc::c_int::MAX);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer of the length given, which the call reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const octets).cast(),
            length,
        )
    };
    result == 0
}

/// Attaches a program to the sockets that share this socket's address. The kernel runs it on each datagram. Its
/// result is the number of the receiving socket, in the order of their binds. The program reads the payload
/// without headers; a read beyond the end returns 0.
///
/// # Errors
/// The kernel's error; the program is invalid.
pub fn steer_datagrams(socket: BorrowedFd<'_>, program: &[SocketFilterInstruction]) -> io::Result<()> {
    let mut steps: Vec<libc::sock_filter> = program
        .iter()
        .map(|SocketFilterInstruction { code, yes, no, operand }| libc::sock_filter {
            code: *code,
            jt: *yes,
            jf: *no,
            k: *operand,
        })
        .collect();
    let len = u16::try_from(steps.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the call copies the program, to which the pointer leads, and its steps, which are as many as it says.
    let result = unsafe {
        let name = libc::SO_ATTACH_REUSEPORT_CBPF;
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const program).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An instruction of a [`steer_datagrams`] program: the kernel's classic packet filter (struct sock_filter).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketFilterInstruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub yes: u8,
    /// Instructions to skip if it does not.
    pub no: u8,
    /// Operand.
    pub operand: u32,
}

/// Lets the kernel report the local address of each datagram.
///
/// # Errors
/// The kernel's error; the socket is of another family.
pub(crate) fn enable_packet_info(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let on: libc::c_int = 1;
    let (level, option) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO)
    };
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointer is to an integer of the length given, which the call reads.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An SCTP socket registered with the runtime.
pub(crate) trait AsyncSctpSocket: AsRawFd + Sized {
    /// Registers it with the runtime; only within one.
    ///
    /// # Errors
    /// The system's error.
    fn into_async(self) -> io::Result<AsyncFd<Self>>;
}

impl AsyncSctpSocket for usher_sctp::SctpAssociation {
    fn into_async(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: this value owns its socket, which does not change and stays open until the value is dropped.
        unsafe { AsyncFd::register(self) }.map_err(Into::into)
    }
}

impl AsyncSctpSocket for usher_sctp::SctpListener {
    fn into_async(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: as above.
        unsafe { AsyncFd::register(self) }.map_err(Into::into)
    }
}

/// Binds this thread to one processor.
///
/// # Errors
/// There is no such processor, or this thread may not run there.
pub(crate) fn pin_thread(core: usize) -> io::Result<()> {
    if core >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is plain bits, and all zeros is the empty set. `core` is within it, and the pointer is to a
    // set of the stated size.
    let result = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the processor time of this thread, in user and kernel mode; zero if it is unknown.
#[must_use]
pub fn thread_cpu_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec, which the call fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if result != 0 {
        return std::time::Duration::ZERO;
    }
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    std::time::Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn datagrams_to(to: SocketAddr, lengths: &[usize]) -> Vec<OutgoingDatagram> {
        let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let letter = |(i, &n): (usize, &usize)| OutgoingDatagram {
            socket: 0,
            local,
            remote: to,
            data: vec![i as u8; n],
        };
        lengths.iter().enumerate().map(letter).collect()
    }

    /// Sends datagrams of these lengths, joined. Returns the received datagrams and their pieces.
    fn send_joined(lengths: &[usize], ask: bool) -> (Vec<(u8, usize)>, usize) {
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        enable_packet_info(to.as_fd(), false).unwrap();
        assert!(!ask || enable_gro(to.as_fd()), "this system joins no datagrams");
        let letters = datagrams_to(to.local_addr().unwrap(), lengths);
        let mut gone = 0;
        while gone < letters.len() {
            gone += DatagramOutbox::new().send_batch(from.as_fd(), &letters[gone..], true, true).unwrap();
        }
        let (mut inbox, mut all, mut pieces) = (DatagramInbox::new(), Vec::new(), 0);
        while let Ok(count) = inbox.receive_batch(to.as_fd()) {
            pieces += count;
            for received in inbox.datagrams() {
                assert_eq!(received.remote, Some(from.local_addr().unwrap()));
                assert_eq!(received.local, Some((to.local_addr().unwrap().ip(), 0)));
                assert!(!received.truncated);
                assert!(received.data.windows(2).all(|pair| pair[0] == pair[1]), "two datagrams in one");
                all.push((received.data.first().copied().unwrap_or(0), received.data.len()));
            }
        }
        (all, pieces)
    }

    #[test]
    fn letters_of_one_length_go_as_one_and_come_apart_again() {
        let lengths = [100, 100, 100, 60, 60, 0, 1300, 1300, 7];
        let all: Vec<(u8, usize)> =
            lengths.iter().enumerate().map(|(i, &n)| (if n > 0 { i as u8 } else { 0 }, n)).collect();
        let (came, pieces) = send_joined(&lengths, true);
        assert_eq!(came, all);
        assert_eq!(pieces, 6, "100, 100, 100 with 60; 60; nothing; 1300; 1300; 7");
        let (came, pieces) = send_joined(&lengths, false);
        assert_eq!((came, pieces), (all, lengths.len()), "who does not ask gets each by itself");
    }

    #[test]
    fn more_letters_than_the_system_takes_as_one_are_cut() {
        let (came, pieces) = send_joined(&[200; 150], true);
        assert_eq!((came.len(), pieces), (150, 3));
        assert!(came.iter().enumerate().all(|(i, &(first, length))| (first, length) == (i as u8, 200)));
        let (came, pieces) = send_joined(&[SEGMENT; 64], true);
        assert_eq!((came.len(), pieces), (64, 2), "no packet is longer than 65,507 octets");
    }

    #[test]
    fn letters_to_others_are_not_joined() {
        let to = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut some = datagrams_to(to(1), &[9, 9, 9]);
        assert_eq!(joinable_datagram_count(&some), 3);
        some[2].remote = to(2);
        assert_eq!(joinable_datagram_count(&some), 2);
        some[1].local = to(3);
        assert_eq!(joinable_datagram_count(&some), 1);
        assert_eq!(
            joinable_datagram_count(&datagrams_to(to(1), &[9, 10])),
            1,
            "only the last may be shorter, none longer"
        );
        assert_eq!(joinable_datagram_count(&datagrams_to(to(1), &[SEGMENT + 1, SEGMENT + 1])), 1);
        assert_eq!(joinable_datagram_count(&[]), 0);
    }

    #[test]
    fn control_messages_that_lie_are_not_believed() {
        let mut control = ControlBuffer([0xff; CONTROL]);
        assert!(parse_ancillary(&control, CONTROL).local.is_none());
        let length = write_segment(&mut control, 0, 100);
        assert_eq!(parse_ancillary(&control, length).segment, None, "that is for sending");
        assert_eq!(parse_ancillary(&control, 3).segment, None);
        assert_eq!(parse_ancillary(&control, usize::MAX).segment, None);
    }
}
