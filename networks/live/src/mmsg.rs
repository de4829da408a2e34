//! The one place that speaks to the system directly: datagrams in batches with their local addresses
//! (`recvmmsg`, `sendmmsg`, `IP_PKTINFO`), the processor of a thread and the time it took. No safe interface
//! to these calls exists in what the house uses, and one call for each datagram would cost more than the rest
//! of the driver.
//!
//! The pointers that the system is given are made anew for each call, from vectors that the call borrows, and
//! are not read after it: what it wrote is read from the vectors.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Most datagrams that one call moves.
pub(crate) const BATCH: usize = 64;

/// Octets of a datagram that can be received: RFC 2865's longest packet is 4096.
pub(crate) const LONGEST: usize = 4608;

/// Room for the control message of either family.
const CONTROL: usize = 64;

/// A control message's octets, aligned as its header must be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// A datagram to be sent.
#[derive(Debug)]
pub(crate) struct Letter {
    /// By which socket.
    pub(crate) socket: usize,
    /// From this address, if it is one; the port is the socket's.
    pub(crate) local: SocketAddr,
    /// To this address.
    pub(crate) remote: SocketAddr,
    /// What it says.
    pub(crate) data: Vec<u8>,
}

/// A datagram received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Received<'a> {
    /// From whom; `None` for a family that is not the Internet's.
    pub(crate) remote: Option<SocketAddr>,
    /// Our address to which it came, with the zone of a link-local one, if the system said.
    pub(crate) local: Option<(IpAddr, u32)>,
    /// Its octets.
    pub(crate) data: &'a [u8],
    /// Whether some of them are missing.
    pub(crate) truncated: bool,
}

/// What one call needs for each datagram.
struct Slots {
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    heads: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `heads` are written before each call and read by that call only,
// which borrows the slots exclusively; between calls they are plain bits.
unsafe impl Send for Slots {}

impl Slots {
    fn new() -> Self {
        // SAFETY: all four are structures of integers and pointers, for which all zeros is a value.
        unsafe {
            Self {
                names: vec![zeroed(); BATCH],
                controls: vec![Control([0; CONTROL]); BATCH],
                vectors: vec![zeroed(); BATCH],
                heads: vec![zeroed(); BATCH],
            }
        }
    }

    /// Points the first `count` headers at their name, vector and, where it has a length, control message.
    fn point(&mut self, count: usize, lengths: impl Fn(usize) -> (usize, usize)) {
        let (names, controls) = (self.names.as_mut_ptr(), self.controls.as_mut_ptr());
        let vectors = self.vectors.as_mut_ptr();
        for (i, head) in self.heads.iter_mut().enumerate().take(count) {
            let (name, control) = lengths(i);
            head.msg_len = 0;
            let head = &mut head.msg_hdr;
            // SAFETY: `i` is below BATCH, the length of all vectors.
            unsafe {
                head.msg_name = names.add(i).cast();
                head.msg_iov = vectors.add(i);
                head.msg_control = if control == 0 { ptr::null_mut() } else { controls.add(i).cast() };
            }
            head.msg_namelen = u32::try_from(name).unwrap_or(0);
            head.msg_iovlen = 1;
            head.msg_controllen = control;
            head.msg_flags = 0;
        }
    }
}

/// Receives datagrams, up to [`BATCH`] by one call.
pub(crate) struct Inbox {
    slots: Slots,
    data: Vec<u8>,
    count: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { slots: Slots::new(), data: vec![0; BATCH * LONGEST], count: 0 }
    }

    /// Receives what is there and says how many datagrams that were; fewer than [`BATCH`] means that no more
    /// are there.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are none, and what the system says.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.count = 0;
        let data = self.data.as_mut_ptr();
        for (i, vector) in self.slots.vectors.iter_mut().enumerate() {
            // SAFETY: `data` has BATCH pieces of LONGEST octets, and `i` is below BATCH.
            vector.iov_base = unsafe { data.add(i * LONGEST) }.cast();
            vector.iov_len = LONGEST;
        }
        self.slots.point(BATCH, |_| (size_of::<libc::sockaddr_storage>(), CONTROL));
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: there are BATCH headers; each points at a name, a control message and a vector of the lengths
        // given, all borrowed by `self` until the call has returned.
        let count =
            unsafe { libc::recvmmsg(socket.as_raw_fd(), heads, BATCH as u32, flags, ptr::null_mut()) };
        self.count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(self.count)
    }

    /// The `i`-th datagram of the last call; `None` beyond their number.
    pub(crate) fn get(&self, i: usize) -> Option<Received<'_>> {
        let head = self.slots.heads[..self.count].get(i)?;
        let length = usize::try_from(head.msg_len).unwrap_or(LONGEST).min(LONGEST);
        Some(Received {
            remote: address_of(&self.slots.names[i], head.msg_hdr.msg_namelen),
            local: local_of(&self.slots.controls[i], head.msg_hdr.msg_controllen),
            data: &self.data[i * LONGEST..i * LONGEST + length],
            truncated: head.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        })
    }
}

/// Sends datagrams, up to [`BATCH`] by one call.
pub(crate) struct Outbox {
    slots: Slots,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { slots: Slots::new() }
    }

    /// Sends the first of `letters`, at most [`BATCH`], and says how many were sent, at least one. Where
    /// `any`, the socket is bound to no one address, and each leaves from its letter's.
    ///
    /// # Errors
    /// What the system says of the first one; [`io::ErrorKind::WouldBlock`] if it takes none now.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        letters: &[Letter],
        any: bool,
    ) -> io::Result<usize> {
        let letters = &letters[..letters.len().min(BATCH)];
        let mut lengths = [(0, 0); BATCH];
        for (i, letter) in letters.iter().enumerate() {
            // The system reads what this points at and does not write it.
            self.slots.vectors[i].iov_base = letter.data.as_ptr().cast_mut().cast();
            self.slots.vectors[i].iov_len = letter.data.len();
            let control = if any { write_local(&mut self.slots.controls[i], letter.local) } else { 0 };
            lengths[i] = (write_address(&mut self.slots.names[i], letter.remote), control);
        }
        self.slots.point(letters.len(), |i| lengths[i]);
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: as many headers as letters have been made; what they point at is borrowed by `self` and
        // `letters` until the call has returned.
        let count = unsafe { libc::sendmmsg(socket.as_raw_fd(), heads, letters.len() as u32, flags) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

fn address_of(storage: &libc::sockaddr_storage, length: u32) -> Option<SocketAddr> {
    let length = usize::try_from(length).unwrap_or(0);
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family says that the storage, which is larger and aligned for all, holds this one.
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

/// Writes an address and gives its length.
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

/// The address in a control message of `length` octets, with its interface where it is link-local.
fn local_of(control: &Control, length: usize) -> Option<(IpAddr, u32)> {
    const HEAD: usize = size_of::<libc::cmsghdr>();
    // One message of ours is all that the socket was told to give, and it is the first.
    if length < HEAD {
        return None;
    }
    let at = control.0.as_ptr();
    // SAFETY: the octets are as many as a header has, and aligned for it; it is plain bits.
    let head = unsafe { at.cast::<libc::cmsghdr>().read() };
    let body = length.min(CONTROL) - HEAD;
    match (head.cmsg_level, head.cmsg_type) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) if body >= size_of::<libc::in_pktinfo>() => {
            // SAFETY: as many octets as this has follow the header, whose size keeps them aligned.
            let info = unsafe { at.add(HEAD).cast::<libc::in_pktinfo>().read_unaligned() };
            // The kernel leaves its own choice of address empty where it did not look up a route for the packet; then
            // the packet's destination, which is the same for all but broadcasts, says it.
            let own = match info.ipi_spec_dst.s_addr {
                0 => info.ipi_addr.s_addr,
                own => own,
            };
            Some((Ipv4Addr::from(own.to_ne_bytes()).into(), 0))
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if body >= size_of::<libc::in6_pktinfo>() => {
            // SAFETY: as above.
            let info = unsafe { at.add(HEAD).cast::<libc::in6_pktinfo>().read_unaligned() };
            let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            let zone = if ip.is_unicast_link_local() { info.ipi6_ifindex } else { 0 };
            Some((ip.into(), zone))
        }
        _ => None,
    }
}

/// Writes the control message that lets a datagram leave from `local`, and gives its length; 0 for an
/// address that leaves the choice to the system.
fn write_local(control: &mut Control, local: SocketAddr) -> usize {
    if local.ip().is_unspecified() {
        return 0;
    }
    const HEAD: usize = size_of::<libc::cmsghdr>();
    let at = control.0.as_mut_ptr();
    // SAFETY: the octets are aligned for a header and have room for it and either body after it, with whose
    // size CMSG_SPACE and CMSG_LEN only calculate; all three structures are plain bits.
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

/// Has the system say to which of our addresses each datagram came.
///
/// # Errors
/// What the system says; the socket is of neither Internet family.
pub(crate) fn ask_for_local(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
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

/// Binds this thread to one processor.
///
/// # Errors
/// There is no such processor, or this thread may not run there.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    if core >= usize::try_from(libc::CPU_SETSIZE).unwrap_or(0) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: a cpu_set_t is plain bits, for which all zeros is the empty set; `core` is within it, and the
    // pointer is to a set of the size that is given.
    let result = unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The processor time that this thread has taken, in the program and in the system; zero if the system does
/// not say.
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
