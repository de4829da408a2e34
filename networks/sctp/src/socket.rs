//! Listeners and associations.

use crate::layout::{
    self, ADDRESSES, AssociationStateChange, CONTROL, MSG_NOTIFICATION, PeerAddressState, ReceiveInfo,
    SctpNotification, SendInfo, option,
};
use crate::system;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;
use usher_core::CloseReason;

/// Octets that one call receives; a longer message takes several.
const CHUNK: usize = 16 << 10;
/// Size of the buffer for an association's addresses, in octets.
const ADDRESS_BUFFER: usize = 4096;

/// The error on a kernel without SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "this kernel has no SCTP: load its module (`modprobe sctp`), or use a kernel with SCTP. Debian's kernels have \
     it, except the `cloud` kernels. The project's `scripts/guest COMMAND` runs a command on such a kernel"
)]
pub struct SctpUnavailable;

/// Bounds of the retransmission timeout (RFC 9260 §16).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoBounds {
    /// The timeout before the first measurement of the round-trip time.
    pub initial: Duration,
    /// The minimum.
    pub min: Duration,
    /// The maximum.
    pub max: Duration,
}

/// When received data is acknowledged (RFC 9260 §6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedSack {
    /// The longest delay, at most 500 ms.
    pub delay: Duration,
    /// The number of packets that triggers an acknowledgement. 1 acknowledges each packet at once.
    pub packets: u32,
}

/// Options of new sockets. Accepted associations inherit the options of their listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Outbound streams to request. The peer may allow fewer.
    pub streams_out: u16,
    /// Inbound streams to allow.
    pub streams_in: u16,
    /// True if small messages leave at once and do not wait for acknowledgements of earlier ones (`SCTP_NODELAY`).
    pub nodelay: bool,
    /// Bounds of the retransmission timeout. `None`: the system's default.
    pub rto: Option<RtoBounds>,
    /// Delayed acknowledgement. `None`: the system's default.
    pub delayed_sack: Option<DelayedSack>,
    /// Consecutive retransmissions after which an association fails. `None`: the system's default.
    pub max_retransmissions: Option<u16>,
    /// Attempts of INIT and the longest wait for a reply. `None`: the system's default.
    pub init: Option<(u16, Duration)>,
    /// Octets of the receive buffer, as `SO_RCVBUF` counts them. `None`: the system's default.
    pub receive_buffer: Option<usize>,
    /// Octets of the send buffer. It bounds the length of a message.
    pub send_buffer: Option<usize>,
    /// Octets of the longest message to receive. A longer one ends the association.
    pub longest: usize,
    /// Associations that may wait for `accept`.
    pub backlog: i32,
    /// True if listeners of other shards may bind to the same addresses (`SO_REUSEPORT`).
    pub shared: bool,
}

impl Default for SocketOptions {
    /// 10 streams in each direction (as in Linux), no delay, and the system's timers. 4 MiB of buffers, messages of at
    /// most 1 MiB, 1024 associations in the backlog, no sharing.
    fn default() -> Self {
        Self {
            streams_out: 10,
            streams_in: u16::MAX,
            nodelay: true,
            rto: None,
            delayed_sack: None,
            max_retransmissions: None,
            init: None,
            receive_buffer: Some(4 << 20),
            send_buffer: Some(4 << 20),
            longest: 1 << 20,
            backlog: 1024,
            shared: false,
        }
    }
}

fn to_millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// True if this kernel has SCTP.
#[must_use]
pub fn is_available() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::SCTP)).is_ok()
}

/// Opens an unbound socket with these options.
fn open_socket(
    addresses: impl Iterator<Item = IpAddr> + Clone,
    options: &SocketOptions,
) -> io::Result<Socket> {
    let ipv6 = addresses.clone().any(|address| address.is_ipv6());
    let ipv4 = addresses.clone().any(|address| address.is_ipv4());
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let made = Socket::new(domain, Type::STREAM, Some(Protocol::SCTP));
    let socket = made.map_err(|error| match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => {
            io::Error::new(io::ErrorKind::Unsupported, SctpUnavailable)
        }
        _ => error,
    })?;
    if ipv6 {
        socket.set_only_v6(!ipv4)?;
    }
    socket.set_nonblocking(true)?;
    if let Some(octets) = options.receive_buffer {
        socket.set_recv_buffer_size(octets)?;
    }
    if let Some(octets) = options.send_buffer {
        socket.set_send_buffer_size(octets)?;
    }
    let set = |option, value: &[u8]| system::set_option(socket.as_fd(), option, value);
    let (attempts, timeout) = options.init.unwrap_or((0, Duration::ZERO));
    let timeout = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
    set(
        option::INITMSG,
        &layout::encode_initmsg(options.streams_out, options.streams_in, attempts, timeout),
    )?;
    set(option::NODELAY, &i32::from(options.nodelay).to_ne_bytes())?;
    set(option::RECVRCVINFO, &1_i32.to_ne_bytes())?;
    set(option::EVENTS, &layout::EVENTS)?;
    if let Some(rto) = options.rto {
        set(
            option::RTOINFO,
            &layout::encode_rtoinfo(to_millis(rto.initial), to_millis(rto.max), to_millis(rto.min)),
        )?;
    }
    if let Some(sack) = options.delayed_sack {
        set(option::DELAYED_SACK, &layout::encode_delayed_sack(to_millis(sack.delay), sack.packets))?;
    }
    if let Some(most) = options.max_retransmissions {
        set(option::ASSOCINFO, &layout::encode_assocparams(most))?;
    }
    Ok(socket)
}

/// Binds a socket to the first address and adds the others.
fn bind_addresses(socket: &Socket, addresses: &[SocketAddr]) -> io::Result<()> {
    let Some((first, others)) = addresses.split_first() else { return Ok(()) };
    socket.bind(&(*first).into())?;
    if others.is_empty() {
        return Ok(());
    }
    // All addresses have one port. If the first port is 0, the system has now chosen it.
    let port = local_address(socket)?.port();
    let mut value = Vec::new();
    for address in others {
        layout::write_address(SocketAddr::new(address.ip(), port), &mut value);
    }
    system::set_option(socket.as_fd(), option::BINDX_ADD, &value)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("the address is neither IPv4 nor IPv6"))
}

/// A socket that accepts associations.
#[derive(Debug)]
pub struct SctpListener {
    socket: Socket,
    longest: usize,
}

impl SctpListener {
    /// Listens at these addresses, which have one port. Each accepted association has all of them as local addresses.
    ///
    /// # Errors
    /// [`SctpUnavailable`], an empty list, or an error of the system: an address is not local, is in use, or needs a
    /// privilege.
    pub fn bind(addresses: &[SocketAddr], options: &SocketOptions) -> io::Result<Self> {
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a listener needs an address"));
        }
        let socket = open_socket(addresses.iter().map(SocketAddr::ip), options)?;
        // Allow binding a port whose earlier associations are still closing.
        socket.set_reuse_address(true)?;
        if options.shared {
            socket.set_reuse_port(true)?;
        }
        bind_addresses(&socket, addresses)?;
        socket.listen(options.backlog)?;
        Ok(Self { socket, longest: options.longest })
    }

    /// Returns the first address.
    ///
    /// # Errors
    /// An error of the system.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        local_address(&self.socket)
    }

    /// Accepts an association. Its first [event](SctpAssociation::receive_event) is [`SctpEvent::Up`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none waits, or an error of the system.
    pub fn accept(&self) -> io::Result<(SctpAssociation, SocketAddr)> {
        let (socket, remote) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        let remote = remote
            .as_socket()
            .ok_or_else(|| io::Error::other("the peer's address is neither IPv4 nor IPv6"))?;
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        Ok((SctpAssociation::new(socket, self.longest), remote))
    }
}

impl AsFd for SctpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for SctpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// An event of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SctpEvent {
    /// The association is up. This is the first event of an association that succeeds.
    Up {
        /// Outbound streams, numbered from 0.
        streams: u16,
        /// Inbound streams.
        inbound: u16,
    },
    /// A whole message is in the buffer.
    Message(ReceiveInfo),
    /// The state of one of the peer's addresses changed.
    Address {
        /// The address.
        address: SocketAddr,
        /// The new state.
        state: PeerAddressState,
    },
    /// The peer sends no more data (SHUTDOWN). Data in flight is still delivered.
    Finished,
    /// Another notification, which can be ignored.
    Other,
    /// The association has ended. Every further call returns this event again.
    End(CloseReason),
}

/// The state of an association, from the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AssociationStatus {
    /// Outbound streams.
    pub streams: u16,
    /// Inbound streams.
    pub inbound: u16,
    /// The peer's primary address.
    pub primary: SocketAddr,
    /// Octets of the congestion window of that address.
    pub cwnd: u32,
    /// The smoothed round-trip time, in whole milliseconds.
    pub srtt: Duration,
    /// The retransmission timeout, in whole milliseconds.
    pub rto: Duration,
    /// The path MTU, in octets.
    pub mtu: u32,
}

/// An association, from the first attempt to its end.
#[derive(Debug)]
pub struct SctpAssociation {
    socket: Socket,
    /// The pieces of the incomplete message.
    partial: Vec<u8>,
    buffer: Vec<u8>,
    longest: usize,
    end: Option<CloseReason>,
}

impl SctpAssociation {
    fn new(socket: Socket, longest: usize) -> Self {
        Self { socket, partial: Vec::new(), buffer: vec![0; CHUNK], longest, end: None }
    }

    /// Starts an association with a peer that has these addresses. The system chooses the local addresses if `local`
    /// is empty. [`receive_event`](Self::receive_event) reports the result.
    ///
    /// # Errors
    /// [`SctpUnavailable`], no address, or an immediate error of the system: an address is not local, there is no route.
    pub fn connect(local: &[IpAddr], remote: &[SocketAddr], options: &SocketOptions) -> io::Result<Self> {
        let Some(first) = remote.first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an association needs a remote address"));
        };
        let addresses = remote.iter().map(SocketAddr::ip).chain(local.iter().copied());
        let socket = open_socket(addresses, options)?;
        let local: Vec<SocketAddr> = local.iter().map(|ip| SocketAddr::new(*ip, 0)).collect();
        bind_addresses(&socket, &local)?;
        let asked = if remote.len() == 1 {
            socket.connect(&(*first).into())
        } else {
            let mut value = Vec::new();
            remote.iter().for_each(|address| layout::write_address(*address, &mut value));
            system::set_option(socket.as_fd(), option::CONNECTX, &value)
        };
        match asked {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self::new(socket, options.longest)),
        }
    }

    /// Sends a message, as a whole or not at all.
    ///
    /// # Errors
    /// - [`io::ErrorKind::WouldBlock`] while the send buffer is full.
    /// - [`io::ErrorKind::InvalidInput`] for a stream that was not negotiated, or an empty message.
    /// - An error of the system: the message is longer than the send buffer, the association has ended.
    pub fn send_message(&self, how: SendInfo, message: &[u8]) -> io::Result<()> {
        system::send_message(self.as_fd(), message, &layout::write_sndinfo(how)).map(|_| ())
    }

    /// Returns the next event. A message is written to `message`, whose contents are undefined after other events.
    ///
    /// # Errors
    /// - [`io::ErrorKind::WouldBlock`] if there is no event.
    /// - [`io::ErrorKind::InvalidData`] for a message longer than the options allow. The association is then aborted on
    ///   drop.
    /// - An error of the system.
    pub fn receive_event(&mut self, message: &mut Vec<u8>) -> io::Result<SctpEvent> {
        loop {
            if let Some(end) = self.end {
                return Ok(SctpEvent::End(end));
            }
            let mut control = [0; CONTROL];
            let piece = match system::receive_piece(self.socket.as_fd(), &mut self.buffer, &mut control) {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(self.record_association_end(close_reason(&error))),
            };
            let data = &self.buffer[..piece.length];
            if piece.flags & MSG_NOTIFICATION != 0 {
                let notification = layout::read_notification(data);
                return Ok(self.handle_notification(notification));
            }
            let whole = piece.flags & libc::MSG_EOR != 0;
            if data.is_empty() && !whole {
                return Ok(self.record_association_end(CloseReason::Closed));
            }
            if self.partial.len() + data.len() > self.longest {
                self.set_reset_on_drop();
                self.end = Some(CloseReason::Reset);
                let said = format!("the message is longer than {} octets", self.longest);
                return Err(io::Error::new(io::ErrorKind::InvalidData, said));
            }
            self.partial.extend_from_slice(data);
            if whole {
                message.clear();
                std::mem::swap(message, &mut self.partial);
                let about = layout::read_rcvinfo(&control[..piece.control]).unwrap_or_default();
                return Ok(SctpEvent::Message(about));
            }
        }
    }

    /// Records the end of the association.
    fn record_association_end(&mut self, reason: CloseReason) -> SctpEvent {
        self.end = Some(reason);
        SctpEvent::End(reason)
    }

    fn handle_notification(&mut self, notification: SctpNotification) -> SctpEvent {
        match notification {
            SctpNotification::Association { state, outbound, inbound, .. } => match state {
                AssociationStateChange::Up => SctpEvent::Up { streams: outbound, inbound },
                AssociationStateChange::ShutDown => self.record_association_end(CloseReason::Closed),
                AssociationStateChange::Lost | AssociationStateChange::CannotStart => {
                    let unsaid = if state == AssociationStateChange::Lost {
                        CloseReason::Reset
                    } else {
                        CloseReason::Refused
                    };
                    let said = self.socket.take_error().ok().flatten();
                    self.record_association_end(said.map_or(unsaid, |error| close_reason(&error)))
                }
                AssociationStateChange::Restarted => {
                    // The peer has restarted the association, which lacks the earlier messages. So this side must start
                    // a new one too.
                    self.set_reset_on_drop();
                    self.record_association_end(CloseReason::Reset)
                }
            },
            SctpNotification::Address { address, state } => SctpEvent::Address { address, state },
            SctpNotification::Shutdown => SctpEvent::Finished,
            SctpNotification::DeliveryAborted => {
                self.partial.clear();
                SctpEvent::Other
            }
            SctpNotification::Other => SctpEvent::Other,
        }
    }

    /// Sends no more messages (SHUTDOWN after all data is acknowledged). The peer's remaining messages still arrive,
    /// then the end.
    ///
    /// # Errors
    /// An error of the system, or no association.
    pub fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Ends the association at once (ABORT). Data in flight is lost.
    pub fn abort(self) {
        self.set_reset_on_drop();
    }

    fn set_reset_on_drop(&self) {
        // An error is ignored: the socket then closes by SHUTDOWN instead of ABORT.
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }

    /// Returns the first local address.
    ///
    /// # Errors
    /// An error of the system.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let local = local_address(&self.socket)?;
        Ok(SocketAddr::new(local.ip().to_canonical(), local.port()))
    }

    /// Returns the local addresses that the peer knows.
    ///
    /// # Errors
    /// An error of the system, or no association.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.query_addresses(option::GET_LOCAL_ADDRS)
    }

    /// Returns the peer's addresses.
    ///
    /// # Errors
    /// An error of the system, or no association.
    pub fn peer_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.query_addresses(option::GET_PEER_ADDRS)
    }

    fn query_addresses(&self, option: i32) -> io::Result<Vec<SocketAddr>> {
        let mut value = vec![0; ADDRESSES + ADDRESS_BUFFER];
        // `SCTP_CURRENT_ASSOC`: with 0, the option returns the addresses to which the socket was bound.
        value[..4].copy_from_slice(&1_u32.to_ne_bytes());
        // For one of the two options, Linux returns a length without the header. The number of addresses is reliable.
        system::read_sctp_option(self.as_fd(), option, &mut value)?;
        Ok(layout::read_addresses(&value))
    }

    /// Returns the state of the association.
    ///
    /// # Errors
    /// An error of the system, or no association.
    pub fn status(&self) -> io::Result<AssociationStatus> {
        let mut value = [0; layout::STATUS];
        let length = system::read_sctp_option(self.as_fd(), option::STATUS, &mut value)?;
        let read = layout::parse_association_status(&value[..length]);
        let raw = read.ok_or_else(|| io::Error::other("the kernel's association status is truncated"))?;
        Ok(AssociationStatus {
            streams: raw.outbound,
            inbound: raw.inbound,
            primary: raw.primary,
            cwnd: raw.cwnd,
            srtt: Duration::from_millis(raw.srtt.into()),
            rto: Duration::from_millis(raw.rto.into()),
            mtu: raw.mtu,
        })
    }

    /// True if small messages leave at once.
    ///
    /// # Errors
    /// An error of the system.
    pub fn is_nodelay(&self) -> io::Result<bool> {
        let mut value = [0; 4];
        system::read_sctp_option(self.as_fd(), option::NODELAY, &mut value)?;
        Ok(i32::from_ne_bytes(value) != 0)
    }
}

impl AsFd for SctpAssociation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for SctpAssociation {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Maps an error of the system to the reason of an association's end.
fn close_reason(error: &io::Error) -> CloseReason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => CloseReason::Refused,
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            CloseReason::TimedOut
        }
        io::ErrorKind::NotConnected | io::ErrorKind::BrokenPipe => CloseReason::Closed,
        _ => CloseReason::Reset,
    }
}
