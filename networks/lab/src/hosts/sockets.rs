//! The kernel's sockets of applications, with the state that the kernel does not have.

use socket2::Socket;
use std::collections::VecDeque;
use std::net::UdpSocket;
use usher_core::{AssocId, ConnId};
use usher_sctp::{SctpAssociation, SctpListener};
use usher_sim::sctp::UserMessage;
use usher_sim::{HostId, Payload};

/// A port that accepts associations.
#[derive(Debug)]
pub(super) struct AssocListener {
    pub(super) socket: SctpListener,
    pub(super) app: u32,
    pub(super) port: u16,
}

/// An association.
#[derive(Debug)]
pub(super) struct LabSctpAssociation {
    pub(super) socket: SctpAssociation,
    pub(super) app: u32,
    pub(super) assoc: AssocId,
    pub(super) remote: (HostId, u16),
    pub(super) local_port: u16,
    /// The number of outbound streams. 0 until the association is up.
    pub(super) streams: u16,
    /// Messages that the kernel has not taken.
    pub(super) out: VecDeque<UserMessage>,
    /// True: close when they are sent.
    pub(super) closes: bool,
    pub(super) closed: bool,
}

/// A UDP socket of an application.
#[derive(Debug)]
pub(super) struct LabUdpSocket {
    pub(super) socket: UdpSocket,
    pub(super) app: u32,
    /// Its number in the application.
    pub(super) number: u32,
    /// Its address and port.
    pub(super) address: (HostId, u16),
}

/// A port of a host through which its application exchanges frames.
#[derive(Debug)]
pub(super) struct FramePort {
    pub(super) socket: Socket,
    pub(super) app: u32,
    pub(super) port: u32,
}

/// A port that accepts connections.
#[derive(Debug)]
pub(super) struct StreamListener {
    pub(super) socket: Socket,
    pub(super) app: u32,
    pub(super) address: HostId,
    pub(super) port: u16,
}

/// A connection.
#[derive(Debug)]
pub(super) struct StreamConnection {
    pub(super) socket: Socket,
    pub(super) app: u32,
    pub(super) conn: ConnId,
    pub(super) local: (HostId, u16),
    pub(super) remote: (HostId, u16),
    pub(super) connecting: bool,
    /// Writes that the kernel has not fully taken, and the octets that it has of the first.
    pub(super) out: VecDeque<Payload>,
    pub(super) written: usize,
    /// True: close the sending side when they are sent.
    pub(super) closes: bool,
    /// The bytes that may be read. `None`: all.
    pub(super) credit: Option<u64>,
    /// The bytes that a slow application is reading.
    pub(super) reading: u32,
}
