//! Many Ethernet stations at one interface, for simulated hosts of a concentrator.

use crate::interface::Netlink;
use crate::sys::{self, FrameInbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::Socket;
use std::io;
use std::time::Duration;
use usher_device::VNET_HEADER;

/// An interface that sends and receives PPPoE frames for any station address.
#[derive(Debug)]
pub struct StationInterface {
    mtu: u16,
    discovery: Socket,
    session: Socket,
}

impl StationInterface {
    /// Opens the interface of this name, in promiscuous mode while this exists.
    ///
    /// # Errors
    /// There is no such interface, it is down or has no Ethernet address, or CAP_NET_RAW is missing.
    pub fn open(name: &str) -> io::Result<Self> {
        let interface = Netlink::open()?.require_ethernet_interface(name)?;
        if !interface.up {
            return Err(io::Error::other(format!("it is down: ip link set {name} up")));
        }
        let socket = |ethertype| {
            let socket = sys::open_frame_socket(interface.index, ethertype, true)?;
            sys::enable_promiscuous_mode(&socket, interface.index)?;
            Ok::<_, io::Error>(socket)
        };
        let mtu = u16::try_from(interface.mtu).unwrap_or(u16::MAX);
        Ok(Self { mtu, discovery: socket(0x8863)?, session: socket(0x8864)? })
    }

    /// Returns the octets of the longest payload of a frame.
    #[must_use]
    pub const fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Sends a frame, from the destination address on.
    ///
    /// # Errors
    /// The system refuses the frame, for example while its queue is full.
    pub fn send_frame(&self, frame: &[u8]) -> io::Result<()> {
        sys::send_frame(&self.session, frame)
    }
}

/// Receives frames of a [`StationInterface`].
pub struct StationReceiver {
    inbox: FrameInbox,
}

impl std::fmt::Debug for StationReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl StationReceiver {
    /// Creates a receiver for these stations.
    #[must_use]
    pub fn new(stations: &StationInterface) -> Self {
        Self { inbox: FrameInbox::new(stations.mtu.into()) }
    }

    /// Waits for frames up to a timeout, and passes on each available frame, also those of other stations.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive_frames(
        &mut self,
        stations: &StationInterface,
        wait: Duration,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let sockets = [&stations.discovery, &stations.session];
        let mut polled = sockets.map(|socket| PollFd::new(socket, PollFlags::IN));
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&wait)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // A session's first packet follows its PADS, but arrives at another socket. So pass on the frames of the
        // session socket after those of the discovery socket.
        let mut later: Vec<Vec<u8>> = Vec::new();
        while self.inbox.receive_batch(&stations.session)? > 0 {
            for frame in self.inbox.received_frames() {
                if let Some(frame) = frame.get(VNET_HEADER..) {
                    later.push(frame.to_vec());
                }
            }
        }
        while self.inbox.receive_batch(&stations.discovery)? > 0 {
            for frame in self.inbox.received_frames() {
                if let Some(frame) = frame.get(VNET_HEADER..) {
                    each(frame);
                }
            }
        }
        for frame in &later {
            each(frame);
        }
        Ok(())
    }
}
