//! The only module with direct system calls:
//!
//! - packets of all links by one ring that the kernel fills (packet(7), `PACKET_RX_RING`), and in batches by
//!   `sendmmsg`;
//! - turning off a veth's offloads (`SIOCETHTOOL`);
//! - a thread's scheduling, and a test of the hardware counters.
//!
//! No safe interface in our dependencies offers these.
//!
//! The kernel also writes the ring's memory. A slot's status shows its owner, and is read and written as an atomic.
//! The rest of a slot is accessed only while the slot is ours.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

/// Octets of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;

/// The octets of the kernel's header before a frame in the ring, with its padding, rounded up.
const SLOT_HEAD: usize = 128;

/// The octets of a block of the ring: a multiple of a page and of all smaller slots.
const BLOCK: usize = 65_536;

/// The most frames per call.
const BATCH: usize = 64;

/// A frame in the ring.
#[derive(Debug)]
pub(crate) struct RingFrame<'a> {
    /// The interface that received it.
    pub(crate) interface: u32,
    /// The wall time of its arrival: nanoseconds since 1970.
    pub(crate) stamp: u64,
    /// Its octets from the Ethernet header on.
    pub(crate) octets: &'a [u8],
    /// True if it is longer than a slot.
    pub(crate) truncated: bool,
    /// True if its checksum was left to hardware that does not exist.
    pub(crate) unsummed: bool,
}

/// The received frames of all interfaces of a namespace.
#[derive(Debug)]
pub(crate) struct PacketRing {
    socket: socket2::Socket,
    memory: NonNull<u8>,
    length: usize,
    slot: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the memory is the ring's own mapping, which nobody else in the process knows; moving the ring to another
// thread moves all access to it.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// Opens a ring with this many slots, for frames of up to `longest` octets, in the calling thread's namespace.
    pub(crate) fn open(longest: usize, slots: usize) -> io::Result<Self> {
        let slot = (longest + SLOT_HEAD).next_power_of_two().max(2048);
        let block = BLOCK.max(slot);
        let blocks = slots.div_ceil(block / slot);
        let slots = blocks * (block / slot);
        // Open the socket without a protocol, so that it receives nothing before the ring exists.
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None)?;
        set_option(&socket, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        let one: libc::c_int = 1;
        set_option(&socket, libc::PACKET_IGNORE_OUTGOING, one)?;
        let (size, count) = (block as libc::c_uint, blocks as libc::c_uint);
        let request = libc::tpacket_req {
            tp_block_size: size,
            tp_block_nr: count,
            tp_frame_size: slot as libc::c_uint,
            tp_frame_nr: slots as libc::c_uint,
        };
        set_option(&socket, libc::PACKET_RX_RING, request)?;
        let length = block * blocks;
        // SAFETY: a new mapping at a place that the kernel chooses, of the length that was just asked for.
        let memory = unsafe {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), length, access, kind, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        let ring = Self { socket, memory, length, slot, slots, next: 0 };
        bind_packet_socket(&ring.socket, 0, libc::ETH_P_ALL as u16)?;
        Ok(ring)
    }

    fn next_ring_slot(&self) -> (*mut u8, &AtomicU32) {
        // SAFETY: `next` is below `slots`, so the slot is within the mapping; slots are aligned to 2048 octets, and
        // the status is their first word.
        unsafe {
            let slot = self.memory.as_ptr().add(self.next * self.slot);
            (slot, AtomicU32::from_ptr(slot.cast()))
        }
    }

    /// True if a frame is pending.
    pub(crate) fn has_frame(&self) -> bool {
        self.next_ring_slot().1.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Passes at most `most` pending frames to `each`, and returns their slots to the kernel. Returns their number.
    pub(crate) fn take_frames(&mut self, most: usize, mut each: impl FnMut(RingFrame<'_>)) -> usize {
        let mut taken = 0;
        while taken < most {
            let (slot, status) = self.next_ring_slot();
            let flags = status.load(Ordering::Acquire);
            if flags & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the status gives the slot to this program until it is returned below. The kernel wrote a header
            // and an address into it, both plain integers.
            let (head, address) = unsafe {
                let address =
                    slot.add(size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT));
                (ptr::read(slot.cast::<libc::tpacket2_hdr>()), ptr::read(address.cast::<libc::sockaddr_ll>()))
            };
            let from = usize::from(head.tp_mac).min(self.slot);
            let length = (head.tp_snaplen as usize).min(self.slot - from);
            // SAFETY: the check above ensures that these octets lie within the slot.
            let octets = unsafe { std::slice::from_raw_parts(slot.add(from), length) };
            each(RingFrame {
                interface: u32::try_from(address.sll_ifindex).unwrap_or(0),
                stamp: u64::from(head.tp_sec) * 1_000_000_000 + u64::from(head.tp_nsec),
                octets,
                truncated: head.tp_len as usize > length,
                unsummed: flags & libc::TP_STATUS_CSUMNOTREADY != 0,
            });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
            taken += 1;
        }
        taken
    }

    /// Returns the number of frames that found no slot since the last call.
    pub(crate) fn take_overflow_count(&self) -> io::Result<u64> {
        // SAFETY: the kernel writes at most the stated length.
        unsafe {
            let mut stats: libc::tpacket_stats = zeroed();
            let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
            let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
            let (out, length) = (ptr::from_mut(&mut stats).cast(), ptr::from_mut(&mut length));
            match libc::getsockopt(self.socket.as_raw_fd(), level, name, out, length) {
                0 => Ok(u64::from(stats.tp_drops)),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is the ring's own, and no slice of it outlives `take`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.length) };
    }
}

/// Sets an option of a packet socket.
fn set_option<T: Copy>(socket: &socket2::Socket, name: libc::c_int, value: T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads as many octets as the stated length, which is the value's size.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, ptr::from_ref(&value).cast(), length)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a nonblocking socket for frames of one EtherType at one interface of the calling thread's namespace.
pub(crate) fn open_packet_socket(interface: u32, protocol: u16) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None)?;
    socket.set_nonblocking(true)?;
    bind_packet_socket(&socket, interface, protocol)?;
    Ok(socket)
}

/// Binds a packet socket to this EtherType and interface. Interface 0 means all.
fn bind_packet_socket(socket: &socket2::Socket, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: the address is a plain structure of the stated length.
    let bound = unsafe {
        let mut address: libc::sockaddr_ll = zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = interface as libc::c_int;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length)
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends frames by the interfaces of a namespace.
#[derive(Debug)]
pub(crate) struct FrameSender {
    socket: socket2::Socket,
}

impl FrameSender {
    /// Opens a sender for the calling thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        // Open the socket without a protocol, because it only sends and must receive nothing.
        let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None)?;
        // Bypass the queue: the kernel activates an interface's queue some time after its carrier, and drops all frames
        // before.
        let one: libc::c_int = 1;
        set_option(&socket, libc::PACKET_QDISC_BYPASS, one)?;
        Ok(Self { socket })
    }

    /// Sends frames in order, each by its interface. Returns the number that the kernel rejected.
    pub(crate) fn send_frames<'a>(&self, frames: impl IntoIterator<Item = (u32, &'a [u8])>) -> u64 {
        let mut frames = frames.into_iter();
        let mut refused = 0;
        loop {
            // SAFETY: all three are structures of integers and pointers, for which all zeros is a value.
            let (mut names, mut vectors, mut heads): (
                [libc::sockaddr_ll; BATCH],
                [libc::iovec; BATCH],
                [libc::mmsghdr; BATCH],
            ) = unsafe { (zeroed(), zeroed(), zeroed()) };
            let mut count = 0;
            while count < BATCH
                && let Some((interface, octets)) = frames.next()
            {
                let name = &mut names[count];
                name.sll_family = libc::AF_PACKET as u16;
                name.sll_ifindex = i32::try_from(interface).unwrap_or(0);
                let protocol = octets.get(12..ETHERNET).map_or([0; 2], |p| [p[0], p[1]]);
                name.sll_protocol = u16::from_ne_bytes(protocol);
                vectors[count] =
                    libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
                let head = &mut heads[count].msg_hdr;
                head.msg_name = ptr::from_mut(name).cast();
                head.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                head.msg_iov = &mut vectors[count];
                head.msg_iovlen = 1;
                count += 1;
            }
            if count == 0 {
                return refused;
            }
            let mut done = 0;
            while done < count {
                // SAFETY: the headers from `done` on point at names, vectors and octets that live until the call
                // returns. The kernel only reads the octets.
                let sent = unsafe {
                    let left = (count - done) as libc::c_uint;
                    libc::sendmmsg(self.socket.as_raw_fd(), heads.as_mut_ptr().add(done), left, 0)
                };
                match usize::try_from(sent) {
                    Ok(sent) if sent > 0 => done += sent,
                    _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                    // The kernel rejected the first of the remaining frames, so count and skip it.
                    _ => {
                        refused += 1;
                        done += 1;
                    }
                }
            }
        }
    }
}

/// Turns off a veth's offloads: checksums, segmentation and aggregation. So links carry whole packets of at most the
/// link's MTU.
pub(crate) fn disable_offloads(interface: &str) -> io::Result<()> {
    const COMMANDS: [u32; 5] = [
        0x17, // ETHTOOL_STXCSUM
        0x19, // ETHTOOL_SSG
        0x1f, // ETHTOOL_STSO
        0x24, // ETHTOOL_SGSO
        0x2c, // ETHTOOL_SGRO
    ];
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        data: u32,
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)?;
    for command in COMMANDS {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: the request is zeros with a name that is shorter than its room, and points at a value that outlives
        // the call.
        let set = unsafe {
            let mut request: libc::ifreq = zeroed();
            let room = request.ifr_name.len() - 1;
            for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(room)) {
                *to = from as libc::c_char;
            }
            request.ifr_ifru.ifru_data = ptr::from_mut(&mut value).cast();
            libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, ptr::from_mut(&mut request))
        };
        if set < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives the calling thread real-time priority (`SCHED_FIFO`, sched(7)). Threads that it starts do not inherit it.
pub(crate) fn real_time(priority: i32) -> io::Result<()> {
    // SAFETY: the parameters are a plain structure, which the kernel reads.
    let set = unsafe {
        let mut parameters: libc::sched_param = zeroed();
        parameters.sched_priority = priority;
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tests whether hardware counters of cycles are available (perf_event_open(2)).
pub(crate) fn probe_cycle_counter() -> io::Result<()> {
    // PERF_TYPE_HARDWARE with PERF_COUNT_HW_CPU_CYCLES, in the first version of the structure, for user space only.
    const SIZE: usize = 64;
    const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 0b110_0000;
    let mut attributes = [0u64; SIZE / 8];
    attributes[0] = (SIZE as u64) << 32;
    attributes[5] = EXCLUDE_KERNEL_AND_HYPERVISOR;
    if cfg!(target_endian = "big") {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    // SAFETY: the kernel reads as many octets as the structure says; a descriptor that it gives is closed at once.
    unsafe {
        let counter = libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 8u64);
        if counter < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::close(counter as libc::c_int);
    }
    Ok(())
}
