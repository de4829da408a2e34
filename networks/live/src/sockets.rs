//! The sockets of a driver, and their creation.

use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use usher_core::{ListenerId, SocketId};
use usher_crypto::tls::{ClientConfig, HANDSHAKE_TIMEOUT, ServerConfig, TlsError};

/// The security of an outgoing connection.
#[derive(Clone, Debug)]
pub enum OutgoingConnectionSecurity {
    /// Plain TCP.
    Plain,
    /// TLS.
    Tls(TlsClient),
    /// The connection is not opened: the machine gets a refusal.
    Refused,
}

/// Selects the security of a connection by its remote address.
pub type ConnectionSecuritySelector = Arc<dyn Fn(SocketAddr) -> OutgoingConnectionSecurity + Send + Sync>;

/// Options of sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Octets of the receive buffer (`SO_RCVBUF`). Without CAP_NET_ADMIN the kernel may grant less. `None` keeps the
    /// system's default.
    pub receive_buffer: Option<usize>,
    /// Octets of the send buffer.
    pub send_buffer: Option<usize>,
    /// True if the sockets of other shards may bind to the same address (`SO_REUSEPORT`).
    pub shared: bool,
    /// Maximum number of connections that wait for accept.
    pub backlog: i32,
    /// Mark of sent packets (`SO_MARK`) for routing rules; needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
}

impl Default for SocketOptions {
    /// Returns 4 MiB each way, shared, a backlog of 1024, no mark.
    fn default() -> Self {
        let buffer = Some(4 << 20);
        Self { receive_buffer: buffer, send_buffer: buffer, shared: true, backlog: 1024, mark: None }
    }
}

fn open_socket(
    address: SocketAddr,
    kind: Type,
    protocol: Protocol,
    options: &SocketOptions,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // One socket per address family: the other family has a listener of its own.
        socket.set_only_v6(true)?;
    }
    if options.shared {
        socket.set_reuse_port(true)?;
    }
    if let Some(octets) = options.receive_buffer
        && !crate::mmsg::force_receive_buffer(socket.as_fd(), octets)
    {
        socket.set_recv_buffer_size(octets)?;
    }
    if let Some(octets) = options.send_buffer {
        socket.set_send_buffer_size(octets)?;
    }
    if let Some(mark) = options.mark {
        socket.set_mark(mark)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Binds a datagram socket. A reply leaves from the address that received the request. An IPv6 socket serves only
/// IPv6.
///
/// # Errors
/// The kernel's error: the address is not local, is in use, or needs a privilege.
pub fn bind_udp(address: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let socket = open_socket(address, Type::DGRAM, Protocol::UDP, options)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Listens for connections; an IPv6 socket serves only IPv6.
///
/// # Errors
/// The kernel's error: the address is not local, is in use, or needs a privilege.
pub fn listen_tcp(address: SocketAddr, options: &SocketOptions) -> io::Result<TcpListener> {
    // Set no buffer sizes for streams, because the kernel tunes the buffers of each connection.
    let buffers = SocketOptions { receive_buffer: None, send_buffer: None, ..*options };
    let socket = open_socket(address, Type::STREAM, Protocol::TCP, &buffers)?;
    // Allow binding a port that still has connections in TIME-WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

/// The outcome of an outgoing TLS connection.
#[derive(Debug)]
pub enum TlsConnectionOutcome<'a> {
    /// The handshake is complete. The machine still checks the server's certificate (DER) against the expected name.
    Up(Option<&'a [u8]>),
    /// TLS failed, in the handshake or later.
    Failed(&'a TlsError),
}

/// Receives the outcomes of TLS connections, for logs.
pub type TlsObserver = Arc<dyn Fn(SocketAddr, &TlsConnectionOutcome<'_>) + Send + Sync>;

/// The first failure of a configuration's connections, and their observer.
#[derive(Default)]
pub(crate) struct TlsConnectionMonitor {
    first_fault: OnceLock<TlsError>,
    observer: Option<TlsObserver>,
}

impl TlsConnectionMonitor {
    pub(crate) fn report_failure(&self, remote: SocketAddr, error: TlsError) {
        self.report_outcome(remote, &TlsConnectionOutcome::Failed(&error));
        // The result is ignored: if a fault is already recorded, that first one stays.
        let _ = self.first_fault.set(error);
    }
    pub(crate) fn report_outcome(&self, remote: SocketAddr, outcome: &TlsConnectionOutcome<'_>) {
        if let Some(observer) = &self.observer {
            observer(remote, outcome);
        }
    }
}

impl fmt::Debug for TlsConnectionMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnectionMonitor").field("first_fault", &self.first_fault).finish_non_exhaustive()
    }
}

macro_rules! replaceable {
    ($(#[$meta:meta])* $name:ident, $config:ty) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name(Arc<watch::Sender<$config>>, Arc<TlsConnectionMonitor>);

        impl $name {
            /// Creates it with this configuration.
            #[must_use]
            pub fn new(config: $config) -> Self {
                Self(Arc::new(watch::Sender::new(config)), Arc::default())
            }

            /// Replaces the configuration for new connections. Open connections keep theirs except for trust: the new
            /// configuration verifies their peers' certificates again and resets untrusted connections.
            pub fn replace(&self, config: $config) {
                self.0.send_replace(config);
            }

            /// Returns the configuration of new connections.
            #[must_use]
            pub fn current(&self) -> $config {
                self.0.borrow().clone()
            }

            /// Returns the first TLS failure of its connections, in the handshake or later.
            #[must_use]
            pub fn first_fault(&self) -> Option<&TlsError> {
                self.1.first_fault.get()
            }

            pub(crate) fn outcomes(&self) -> Arc<TlsConnectionMonitor> {
                Arc::clone(&self.1)
            }

            /// Subscribes to the configuration and its replacements.
            pub(crate) fn watch(&self) -> watch::Receiver<$config> {
                self.0.subscribe()
            }
        }
    };
}

replaceable! {
    /// The TLS of a listener, with a configuration that can be replaced while connections are open. Clones share it.
    TlsServer, ServerConfig
}

replaceable! {
    /// The TLS of outgoing connections, with a configuration that can be replaced while they are open. Clones share
    /// it.
    TlsClient, ClientConfig
}

impl TlsClient {
    /// Creates it with an observer of its connections.
    #[must_use]
    pub fn with_observer(config: ClientConfig, observer: TlsObserver) -> Self {
        let outcomes = TlsConnectionMonitor { observer: Some(observer), ..TlsConnectionMonitor::default() };
        Self(Arc::new(watch::Sender::new(config)), Arc::new(outcomes))
    }
}

/// A listening TCP socket of the machine.
#[derive(Debug)]
pub struct DriverTcpListener {
    /// The machine's id of the listener.
    pub id: ListenerId,
    /// The socket, from [`listen_tcp`].
    pub socket: TcpListener,
    /// TLS, if any. The machine gets the connection after its handshake.
    pub tls: Option<TlsServer>,
}

/// A listening SCTP socket of the machine.
#[derive(Debug)]
pub struct DriverSctpListener {
    /// The machine's id of the listener.
    pub id: ListenerId,
    /// The socket.
    pub socket: usher_sctp::SctpListener,
}

/// Limits and timeouts of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverConfig {
    /// Maximum queued datagrams per socket while the kernel takes no more; then the newest are dropped.
    pub datagram_queue: usize,
    /// Maximum number of sockets, including those that the machine creates.
    pub sockets: usize,
    /// Maximum connections or associations per listener, including handshakes.
    pub connections: usize,
    /// Maximum connections per listener and remote address.
    pub connections_per_address: usize,
    /// Maximum accepted connections of unproven peers, over all listeners: TLS handshakes, and connections without
    /// TLS that the machine has not answered. Beyond it, the network with the most (an IPv4 address, or 64 bits of an
    /// IPv6 address) loses its oldest.
    pub handshakes: usize,
    /// Octets that may be queued for one connection. If the peer does not read and more is to be sent, the connection
    /// is reset.
    pub stream_queue: usize,
    /// Time slice of a machine that is due again and again, before the sockets are polled. Input waits at most this
    /// and one step more. A longer slice shares the cost of a poll among more steps.
    pub time_slice: Duration,
    /// Timeout of connection setup, without TLS.
    pub connect_timeout: Duration,
    /// Timeout of a TLS handshake.
    pub handshake_timeout: Duration,
    /// Timeout of a local close: to send the queued data and to receive the peer's end.
    pub linger: Duration,
    /// True if the end of a peer's data, without TLS, reaches the machine as
    /// [`StreamEvent::Finished`](usher_core::StreamEvent), so that it can still reply. Otherwise the connection
    /// closes.
    pub half_closed: bool,
    /// Options of outgoing associations; the machine chooses the number of streams.
    pub associations: usher_sctp::SocketOptions,
    /// Options of sockets that the machine creates by a new number.
    pub ephemeral: SocketOptions,
    /// True to let the kernel join datagrams of the same length and addresses, where it can (UDP segmentation
    /// offload).
    pub offload: bool,
}

impl Default for DriverConfig {
    /// Returns 4096 datagrams, 65536 sockets, 65536 connections and 1024 per address, 1024 handshakes, and 4 MiB. The
    /// time slice is 4 ms; the timeouts are 10 s, 10 s and 2 s. Offload is on.
    fn default() -> Self {
        Self {
            datagram_queue: 4096,
            sockets: 1 << 16,
            connections: 1 << 16,
            connections_per_address: 1024,
            handshakes: 1024,
            stream_queue: 4 << 20,
            time_slice: Duration::from_millis(4),
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_nanos(HANDSHAKE_TIMEOUT.as_nanos()),
            linger: Duration::from_secs(2),
            half_closed: false,
            associations: usher_sctp::SocketOptions::default(),
            ephemeral: SocketOptions { shared: false, ..SocketOptions::default() },
            offload: true,
        }
    }
}

/// The sockets and limits of a driver. The default has no sockets: the machine creates all of them.
#[derive(Default)]
pub struct DriverSockets {
    /// Datagram sockets, with the machine's ids.
    pub udp: Vec<(SocketId, UdpSocket)>,
    /// TCP listeners.
    pub listeners: Vec<DriverTcpListener>,
    /// SCTP listeners.
    pub associations: Vec<DriverSctpListener>,
    /// Security of outgoing connections; `None` for plain TCP. If it requires TLS for a destination, associations to
    /// it are refused, since they have no protection.
    pub outgoing: Option<ConnectionSecuritySelector>,
    /// Limits and timeouts.
    pub settings: DriverConfig,
}

/// Numbers the machine's datagram sockets from 0.
pub fn number_sockets(sockets: impl IntoIterator<Item = UdpSocket>) -> Vec<(SocketId, UdpSocket)> {
    (0..).map(SocketId::from_number).zip(sockets).collect()
}

impl fmt::Debug for DriverSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("udp", &self.udp)
            .field("listeners", &self.listeners)
            .field("associations", &self.associations)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
