//! The kernel's network devices as data planes need them: a TUN device that leaves segmentation and checksums to whoever reads
//! it ([`open_tun`]), packets that are cut and joined on that account ([`PacketSegments`], [`SegmentJoiner`]), and requests to rtnetlink(7).

mod segment;
mod sys;

pub mod netlink;

pub use segment::{OffloadSupport, PacketSegments, SegmentJoiner, VnetHeader, VnetHeaderError};
pub use sys::{TunDevice, open_tun};

/// Octets in front of each packet of the device, and of packet sockets that say so: `struct virtio_net_hdr`.
pub const VNET_HEADER: usize = 10;

/// Octets of the longest packet that the kernel joins: no IP packet has more.
pub const JOINED: usize = 65_536;
