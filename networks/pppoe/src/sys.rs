//! The one place that speaks to the system directly: packet sockets (packet(7)) that leave checksums to us (`PACKET_VNET_HDR`),
//! frames in batches (`recvmmsg`, `sendmmsg`), and the kernel's own PPPoE (addresses of PPPoX, requests of /dev/ppp). No safe
//! interface to these exists in what the house uses.
//!
//! The pointers that the system is given are made anew for each call, from vectors that the call borrows, and are not read
//! after it.
#![allow(unsafe_code)]

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use usher_device::VNET_HEADER;

/// Most frames that one call moves.
pub(crate) const BATCH: usize = 64;
/// Octets of each socket's buffers: what comes while others have the processor waits there.
const BUFFER: usize = 4 << 20;
/// Octets beside an interface's MTU that a frame may have: headers, a tag, and the head of the kernel.
const FRAME_OVERHEAD: usize = 64;

/// Sets an option of a packet socket.
fn set_packet_option<T: Copy>(socket: &Socket, name: libc::c_int, value: T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, name, value)
}

/// Lets more octets wait at a socket than anybody may have wait there; this needs CAP_NET_ADMIN.
pub(crate) fn force_receive_buffer(socket: &impl AsRawFd, octets: libc::c_int) -> io::Result<()> {
    set_at(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, octets)
}

fn set_at<T: Copy>(socket: &impl AsRawFd, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a value of the length given, which the call reads.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the interface take frames for any station, as long as the socket is open (packet(7)).
pub(crate) fn take_all(socket: &Socket, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_packet_option(socket, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// A socket for frames of one EtherType at one interface: those that are for this station or for all, or with `any` those for
/// other stations, too. Each has the head of [`VNET_HEADER`] octets in front, both ways.
pub(crate) fn frame_socket(index: u32, ethertype: u16, any: bool) -> io::Result<Socket> {
    let highest = if any { libc::PACKET_OTHERHOST } else { libc::PACKET_BROADCAST };
    packet_socket(index, ethertype, &at_most(libc::SKF_AD_PKTTYPE, u32::from(highest)))
}

/// The same for this station or for all, of frames that no filter of traffic control has seen yet; those of VLANs are theirs.
pub(crate) fn frames_first(index: u32, ethertype: u16) -> io::Result<Socket> {
    // Where one does not hold, the last step keeps nothing.
    let conditions = [
        bpf_instruction(LOAD_HALF, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32),
        bpf_instruction(EQUAL, 0, 6, ethertype.into()),
        // A tag of VLAN 0 says a priority alone (IEEE 802.1Q §6.9); without one there is 0, too.
        bpf_instruction(LOAD_HALF, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32),
        bpf_instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0x0fff),
        bpf_instruction(EQUAL, 0, 3, 0),
    ];
    let rest = at_most(libc::SKF_AD_PKTTYPE, u32::from(libc::PACKET_BROADCAST));
    let filter: Vec<SockFilter> = conditions.into_iter().chain(rest).collect();
    packet_socket(index, libc::ETH_P_ALL as u16, &filter)
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;

const fn bpf_instruction(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, jt, jf, k)
}

/// A program that keeps frames of which the kernel says no more than this.
fn at_most(what: libc::c_int, most: u32) -> Vec<SockFilter> {
    vec![
        bpf_instruction(LOAD, 0, 0, (libc::SKF_AD_OFF + what) as u32),
        bpf_instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, 0, most),
        bpf_instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        bpf_instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

fn packet_socket(index: u32, protocol: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new_raw(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None::<Protocol>)?;
    socket.attach_filter(filter)?;
    let on: libc::c_int = 1;
    set_packet_option(&socket, libc::PACKET_VNET_HDR, on)?;
    // The system may grant less than that; more than everybody may have it grants who may administer the network.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    for force in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let _ = set_at(&socket, libc::SOL_SOCKET, force, BUFFER as libc::c_int);
    }
    // SAFETY: the storage is larger than the structure that is written to it, and aligned for it; the length is that one's.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let mut name: libc::sockaddr_ll = zeroed();
            name.sll_family = libc::AF_PACKET as libc::sa_family_t;
            name.sll_protocol = protocol.to_be();
            name.sll_ifindex = index as libc::c_int;
            storage.cast::<libc::sockaddr_ll>().write(name);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.bind(&address)?;
    Ok(socket)
}

/// What one call needs for each frame.
struct MessageSlots {
    vectors: Vec<libc::iovec>,
    heads: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `heads` are written before each call and read by that call only, which borrows the
// slots exclusively; between calls they are plain bits.
unsafe impl Send for MessageSlots {}

impl MessageSlots {
    fn new() -> Self {
        // SAFETY: both are structures of integers and pointers, for which all zeros is a value.
        unsafe { Self { vectors: vec![zeroed(); BATCH], heads: vec![zeroed(); BATCH] } }
    }
    fn set_buffer(&mut self, at: usize, base: *mut u8, length: usize) {
        self.vectors[at] = libc::iovec { iov_base: base.cast(), iov_len: length };
        let head = &mut self.heads[at];
        head.msg_len = 0;
        head.msg_hdr.msg_iov = &raw mut self.vectors[at];
        head.msg_hdr.msg_iovlen = 1;
        head.msg_hdr.msg_flags = 0;
    }
}

/// Receives batches of frames.
pub(crate) struct FrameInbox {
    slots: MessageSlots,
    stride: usize,
    data: Vec<u8>,
    count: usize,
}

impl FrameInbox {
    /// For frames of interfaces with this MTU at most.
    pub(crate) fn new(mtu: usize) -> Self {
        // An odd number of cache lines, so that beginnings do not contend for the same lines of the cache.
        let stride = (mtu + FRAME_OVERHEAD).next_multiple_of(128) + 64;
        Self { slots: MessageSlots::new(), stride, data: vec![0; BATCH * stride], count: 0 }
    }
    /// Receives what is there, [`BATCH`] frames at most; how many there were.
    pub(crate) fn receive_batch(&mut self, socket: &Socket) -> io::Result<usize> {
        self.count = 0;
        for (at, piece) in self.data.chunks_exact_mut(self.stride).enumerate() {
            self.slots.set_buffer(at, piece.as_mut_ptr(), piece.len());
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: there are BATCH headers, each of which points at a vector of the length given; `self` holds all of them, and
        // is borrowed until the call has returned.
        let count = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), heads, BATCH as libc::c_uint, flags, ptr::null_mut())
        };
        match usize::try_from(count) {
            Ok(count) => {
                self.count = count;
                Ok(count)
            }
            Err(_) => match io::Error::last_os_error() {
                e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
                e => Err(e),
            },
        }
    }
    /// What the last call received, each with its head; what was longer than there was room for is cut off.
    pub(crate) fn received_frames(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let heads = &self.slots.heads;
        let pieces = self.data.chunks_exact_mut(self.stride).take(self.count).enumerate();
        pieces.map(|(at, piece)| {
            let length = (heads[at].msg_len as usize).min(piece.len());
            &mut piece[..length]
        })
    }
}

/// Sends batches of frames.
pub(crate) struct FrameOutbox {
    slots: MessageSlots,
}

impl FrameOutbox {
    pub(crate) fn new() -> Self {
        Self { slots: MessageSlots::new() }
    }
    /// Sends the first of these frames, [`BATCH`] at most; how many were sent, at least one. Each begins with its head.
    ///
    /// # Errors
    /// What the system says of the first.
    pub(crate) fn send_batch(
        &mut self,
        socket: &Socket,
        octets: &[u8],
        frames: &[Range<usize>],
    ) -> io::Result<usize> {
        let count = frames.len().min(BATCH);
        for (at, frame) in frames[..count].iter().enumerate() {
            let frame = &octets[frame.clone()];
            // The system reads what this points at and does not write it.
            self.slots.set_buffer(at, frame.as_ptr().cast_mut(), frame.len());
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: `count` headers have been made; what they point at is borrowed until the call has returned.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), heads, count as libc::c_uint, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Sends one frame, which has no head yet.
pub(crate) fn send_frame(socket: &Socket, frame: &[u8]) -> io::Result<()> {
    let head = [0; VNET_HEADER];
    socket.send_vectored(&[io::IoSlice::new(&head), io::IoSlice::new(frame)]).map(drop)
}

/// The family of sockets for sessions of PPP over something, and the protocol that is PPPoE (linux/if_pppox.h).
const AF_PPPOX: i32 = 24;
const PX_PROTO_OE: i32 = 0;
/// Where the kernel speaks PPP.
const PPP: &str = "/dev/ppp";

/// A socket for a session of the kernel's PPPoE.
pub(crate) fn session_socket() -> io::Result<Socket> {
    let (family, protocol) = (Domain::from(AF_PPPOX), Protocol::from(PX_PROTO_OE));
    Socket::new_raw(family, Type::STREAM.cloexec(), Some(protocol))
}

/// Has such a socket be that of this session's frames, between this station and an interface of ours.
pub(crate) fn connect_session(
    socket: &Socket,
    number: u16,
    peer: [u8; 6],
    interface: &str,
) -> io::Result<()> {
    // struct sockaddr_pppox (linux/if_pppox.h), which is packed: family, protocol, and of PPPoE sid, remote, dev.
    let mut octets = [0_u8; 30];
    octets[..2].copy_from_slice(&(AF_PPPOX as u16).to_ne_bytes());
    octets[2..6].copy_from_slice(&(PX_PROTO_OE as u32).to_ne_bytes());
    octets[6..8].copy_from_slice(&number.to_be_bytes());
    octets[8..14].copy_from_slice(&peer);
    let name = interface.as_bytes();
    let place = octets[14..].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(name);
    // SAFETY: the storage is larger than these octets, and all octets are values of it; the length is theirs.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            ptr::copy_nonoverlapping(octets.as_ptr(), storage.cast::<u8>(), octets.len());
            *length = octets.len() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.connect(&address)
}

/// Requests of /dev/ppp (linux/ppp-ioctl.h): each is one number of 32 bits, which is told or asked for.
const PPPIOCGCHAN: libc::c_ulong = 0x8004_7437;
const PPPIOCATTCHAN: libc::c_ulong = 0x4004_7438;
const PPPIOCCONNECT: libc::c_ulong = 0x4004_743a;
const PPPIOCGUNIT: libc::c_ulong = 0x8004_7456;

fn ppp_ioctl(of: &impl AsRawFd, what: libc::c_ulong, mut number: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: each of these requests reads or writes one integer at this place, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(of.as_raw_fd(), what as _, &raw mut number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

/// The kernel's end of PPP: an interface, once rtnetlink has made one of it, which is gone when this is dropped.
pub(crate) struct PppUnit(File);

impl PppUnit {
    pub(crate) fn open() -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(PPP).map(Self)
    }
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// Has the interface's packets go by a session's socket.
    pub(crate) fn attach_channel(&self, socket: &Socket) -> io::Result<()> {
        let number = ppp_ioctl(&self.0, PPPIOCGUNIT, 0)?;
        let channel = Self::open()?;
        ppp_ioctl(&channel.0, PPPIOCATTCHAN, ppp_ioctl(socket, PPPIOCGCHAN, 0)?)?;
        ppp_ioctl(&channel.0, PPPIOCCONNECT, number).map(drop)
    }
}
