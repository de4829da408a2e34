//! Network devices of the kernel for data planes.
//!
//! - [`open_tun`] opens a TUN device with segmentation and checksum offload.
//! - [`PacketSegments`] cuts packets and [`PacketCoalescer`] joins them.
//! - Requests to rtnetlink(7) configure interfaces and routes.

mod segment;
mod sys;

pub mod netlink;

pub use segment::{PacketCoalescer, PacketSegments, SegmentationOffloads, VnetHeader, VnetHeaderError};
pub use sys::{TunDevice, open_tun};

/// Octets of `struct virtio_net_hdr`, in front of each packet of the device and of packet sockets with
/// `PACKET_VNET_HDR`.
pub const VNET_HEADER: usize = 10;

/// Octets of the longest packet that the kernel joins. No IP packet is longer.
pub const JOINED: usize = 65_536;
