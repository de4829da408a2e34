//! Direct system calls of this crate. They concern packet sockets (packet(7)) with checksum offload
//! (`PACKET_VNET_HDR`), batches of frames (`recvmmsg`, `sendmmsg`), and the kernel's PPPoE (PPPoX addresses, requests
//! of /dev/ppp). The dependencies have no safe interface to these.
//!
//! The pointers for a call are made anew from vectors that the call borrows. They are not read after the call.
#![allow(unsafe_code)]

use socket2::{Domain, Protocol, SockAddr, SockFilter, Socket, Type};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr;
use usher_device::VNET_HEADER;

/// Maximum frames per call.
pub(crate) const BATCH: usize = 64;
/// Octets of each socket's buffers. They hold the frames that arrive while another thread has the processor.
const BUFFER: usize = 4 << 20;
/// Maximum octets of a frame beyond the interface's MTU: headers, a VLAN tag, and the virtio header.
const FRAME_OVERHEAD: usize = 64;

/// Sets an option of a packet socket.
fn set_packet_option<T: Copy>(socket: &Socket, name: libc::c_int, value: T) -> io::Result<()> {
    set_socket_option(socket, libc::SOL_PACKET, name, value)
}

/// Sets a receive buffer beyond the system's limit. It needs CAP_NET_ADMIN.
pub(crate) fn force_receive_buffer(socket: &impl AsRawFd, octets: libc::c_int) -> io::Result<()> {
    set_socket_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, octets)
}

fn set_socket_option<T: Copy>(
    socket: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a value of the length given, which the call reads.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts the interface into promiscuous mode until the socket is closed (packet(7)).
pub(crate) fn enable_promiscuous_mode(socket: &Socket, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_packet_option(socket, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// Opens a socket for frames of one EtherType at an interface, for this station or for all. `any` adds frames for other
/// stations. Each frame has [`VNET_HEADER`] octets in front, in both directions.
pub(crate) fn open_frame_socket(index: u32, ethertype: u16, any: bool) -> io::Result<Socket> {
    let highest = if any { libc::PACKET_OTHERHOST } else { libc::PACKET_BROADCAST };
    open_filtered_packet_socket(index, ethertype, &at_most(libc::SKF_AD_PKTTYPE, u32::from(highest)))
}

/// Opens the same socket for frames before traffic control's filters. It takes no frames of VLANs.
pub(crate) fn open_early_frame_socket(index: u32, ethertype: u16) -> io::Result<Socket> {
    // If a condition fails, the filter jumps to its last instruction, which drops the frame.
    let conditions = [
        bpf_instruction(LOAD_HALF, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL) as u32),
        bpf_instruction(EQUAL, 0, 6, ethertype.into()),
        // IEEE 802.1Q §6.9: VLAN 0 is only a priority. Untagged frames have 0, too.
        bpf_instruction(LOAD_HALF, 0, 0, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32),
        bpf_instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0x0fff),
        bpf_instruction(EQUAL, 0, 3, 0),
    ];
    let rest = at_most(libc::SKF_AD_PKTTYPE, u32::from(libc::PACKET_BROADCAST));
    let filter: Vec<SockFilter> = conditions.into_iter().chain(rest).collect();
    open_filtered_packet_socket(index, libc::ETH_P_ALL as u16, &filter)
}

const LOAD: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;

const fn bpf_instruction(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, jt, jf, k)
}

/// Returns a program that keeps frames with a value of at most `most` in a field of the kernel.
fn at_most(what: libc::c_int, most: u32) -> Vec<SockFilter> {
    vec![
        bpf_instruction(LOAD, 0, 0, (libc::SKF_AD_OFF + what) as u32),
        bpf_instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 1, 0, most),
        bpf_instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        bpf_instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}

fn open_filtered_packet_socket(index: u32, protocol: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    let socket = Socket::new_raw(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None::<Protocol>)?;
    socket.attach_filter(filter)?;
    let on: libc::c_int = 1;
    set_packet_option(&socket, libc::PACKET_VNET_HDR, on)?;
    // The system's limit may reduce the buffers, but CAP_NET_ADMIN overrides it.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    for force in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let _ = set_socket_option(&socket, libc::SOL_SOCKET, force, BUFFER as libc::c_int);
    }
    // SAFETY: the storage is larger than the structure that is written to it, and aligned for it. The length is the
    // structure's.
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

/// The structures for the frames of one call.
struct MessageSlots {
    vectors: Vec<libc::iovec>,
    heads: Vec<libc::mmsghdr>,
}

// SAFETY: the raw pointers in `vectors` and `heads` are written before each call and read by that call only. The call
// borrows the slots exclusively. Between calls the pointers are plain bits.
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
    /// Creates an inbox for frames of interfaces with at most this MTU.
    pub(crate) fn new(mtu: usize) -> Self {
        // The stride is an odd number of cache lines, so that the frames' headers do not compete for the same cache
        // sets.
        let stride = (mtu + FRAME_OVERHEAD).next_multiple_of(128) + 64;
        Self { slots: MessageSlots::new(), stride, data: vec![0; BATCH * stride], count: 0 }
    }
    /// Receives the available frames, at most [`BATCH`]. Returns their number.
    pub(crate) fn receive_batch(&mut self, socket: &Socket) -> io::Result<usize> {
        self.count = 0;
        for (at, piece) in self.data.chunks_exact_mut(self.stride).enumerate() {
            self.slots.set_buffer(at, piece.as_mut_ptr(), piece.len());
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT);
        // SAFETY: there are BATCH headers, each of which points at a vector of the length given. `self` holds all of
        // them, and is borrowed until the call has returned.
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
    /// Returns the frames of the last call, each with its virtio header. Longer frames are truncated.
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
    /// Sends the first of these frames, at most [`BATCH`], each with its virtio header. Returns the number sent, at
    /// least one.
    ///
    /// # Errors
    /// The system's error for the first frame.
    pub(crate) fn send_batch(
        &mut self,
        socket: &Socket,
        octets: &[u8],
        frames: &[Range<usize>],
    ) -> io::Result<usize> {
        let count = frames.len().min(BATCH);
        for (at, frame) in frames[..count].iter().enumerate() {
            let frame = &octets[frame.clone()];
            // The pointer is mutable only by type: the system reads this memory and does not write it.
            self.slots.set_buffer(at, frame.as_ptr().cast_mut(), frame.len());
        }
        let (heads, flags) = (self.slots.heads.as_mut_ptr(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: `count` headers have been made; what they point at is borrowed until the call has returned.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), heads, count as libc::c_uint, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Sends a frame without a virtio header.
pub(crate) fn send_frame(socket: &Socket, frame: &[u8]) -> io::Result<()> {
    let head = [0; VNET_HEADER];
    socket.send_vectored(&[io::IoSlice::new(&head), io::IoSlice::new(frame)]).map(drop)
}

/// The address family of PPPoX sockets, and the protocol number of PPPoE (linux/if_pppox.h).
const AF_PPPOX: i32 = 24;
const PX_PROTO_OE: i32 = 0;
/// The kernel's PPP device.
const PPP: &str = "/dev/ppp";

/// Opens a socket for a session of the kernel's PPPoE.
pub(crate) fn open_session_socket() -> io::Result<Socket> {
    let (family, protocol) = (Domain::from(AF_PPPOX), Protocol::from(PX_PROTO_OE));
    Socket::new_raw(family, Type::STREAM.cloexec(), Some(protocol))
}

/// Connects a session socket to a SESSION_ID and peer at an interface.
pub(crate) fn connect_session(
    socket: &Socket,
    number: u16,
    peer: [u8; 6],
    interface: &str,
) -> io::Result<()> {
    // struct sockaddr_pppox (linux/if_pppox.h) is packed: family, protocol, then the PPPoE fields sid, remote and dev.
    let mut octets = [0_u8; 30];
    octets[..2].copy_from_slice(&(AF_PPPOX as u16).to_ne_bytes());
    octets[2..6].copy_from_slice(&(PX_PROTO_OE as u32).to_ne_bytes());
    octets[6..8].copy_from_slice(&number.to_be_bytes());
    octets[8..14].copy_from_slice(&peer);
    let name = interface.as_bytes();
    let place = octets[14..].get_mut(..name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    place.copy_from_slice(name);
    // SAFETY: the storage is larger than these octets, and any octets are valid in it. The length is that of the
    // octets.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            ptr::copy_nonoverlapping(octets.as_ptr(), storage.cast::<u8>(), octets.len());
            *length = octets.len() as libc::socklen_t;
            Ok(())
        })?
    };
    socket.connect(&address)
}

/// Requests of /dev/ppp (linux/ppp-ioctl.h). Each reads or writes a 32-bit number.
const PPPIOCGCHAN: libc::c_ulong = 0x8004_7437;
const PPPIOCATTCHAN: libc::c_ulong = 0x4004_7438;
const PPPIOCCONNECT: libc::c_ulong = 0x4004_743a;
const PPPIOCGUNIT: libc::c_ulong = 0x8004_7456;

fn ppp_ioctl(of: &impl AsRawFd, what: libc::c_ulong, mut number: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: each of these requests reads or writes one integer at this place, and keeps no pointer to it.
    let done = unsafe { libc::ioctl(of.as_raw_fd(), what as _, &raw mut number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(number) }
}

/// A PPP unit of the kernel. rtnetlink makes an interface of it, which ends when this is dropped.
pub(crate) struct PppUnit(File);

impl PppUnit {
    pub(crate) fn open() -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(PPP).map(Self)
    }
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// Connects the interface to a session's socket.
    pub(crate) fn attach_channel(&self, socket: &Socket) -> io::Result<()> {
        let number = ppp_ioctl(&self.0, PPPIOCGUNIT, 0)?;
        let channel = Self::open()?;
        ppp_ioctl(&channel.0, PPPIOCATTCHAN, ppp_ioctl(socket, PPPIOCGCHAN, 0)?)?;
        ppp_ioctl(&channel.0, PPPIOCCONNECT, number).map(drop)
    }
}
