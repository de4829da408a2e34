//! The sockets that a driver is given, and how they are made.

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

/// What protects a connection that the machine opens.
#[derive(Clone, Debug)]
pub enum OutgoingSecurity {
    /// Nothing: plain TCP.
    Plain,
    /// TLS.
    Tls(TlsClient),
    /// It is not opened: the machine hears that it was refused.
    Refused,
}

/// What protects a connection to an address.
pub type SecuritySelector = Arc<dyn Fn(SocketAddr) -> OutgoingSecurity + Send + Sync>;

/// How sockets are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// Octets of the receive buffer, as `SO_RCVBUF` takes them; the system may grant less to who has no CAP_NET_ADMIN.
    /// `None` leaves the system's default.
    pub receive_buffer: Option<usize>,
    /// Octets of the send buffer.
    pub send_buffer: Option<usize>,
    /// Whether further sockets, those of other shards, may be bound to the same address (`SO_REUSEPORT`).
    pub shared: bool,
    /// Connections that may wait to be accepted.
    pub backlog: i32,
    /// What is sent bears this mark (`SO_MARK`), by which routing rules may go; needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
}

impl Default for SocketOptions {
    /// 4 MiB each way, shared, 1024 waiting connections, no mark.
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
        // One socket for each family: the other one is a listener of its own.
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

/// Binds a datagram socket; replies sent from it leave from the address that was asked. An IPv6 socket
/// serves IPv6 only.
///
/// # Errors
/// What the system says: the address is not ours, is in use, or needs a privilege.
pub fn bind_udp(address: SocketAddr, options: &SocketOptions) -> io::Result<UdpSocket> {
    let socket = open_socket(address, Type::DGRAM, Protocol::UDP, options)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Listens for connections; an IPv6 socket serves IPv6 only.
///
/// # Errors
/// What the system says: the address is not ours, is in use, or needs a privilege.
pub fn listen_tcp(address: SocketAddr, options: &SocketOptions) -> io::Result<TcpListener> {
    // Buffers of streams are left to the system, which fits them to each connection.
    let buffers = SocketOptions { receive_buffer: None, send_buffer: None, ..*options };
    let socket = open_socket(address, Type::STREAM, Protocol::TCP, &buffers)?;
    // A port whose earlier connections are in TIME-WAIT can be had at once.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

/// What becomes of a connection that the machine opens inside TLS.
#[derive(Debug)]
pub enum TlsOutcome<'a> {
    /// It is up; with the server's own certificate (DER), of which the machine has yet to find whether it is whose it should be.
    Up(Option<&'a [u8]>),
    /// TLS ended it, in the handshake or after it.
    Failed(&'a TlsError),
}

/// Hears what becomes of connections, for whoever tells people.
pub type TlsObserver = Arc<dyn Fn(SocketAddr, &TlsOutcome<'_>) + Send + Sync>;

/// What is remembered and told of a configuration's connections.
#[derive(Default)]
pub(crate) struct TlsOutcomes {
    first_fault: OnceLock<TlsError>,
    observer: Option<TlsObserver>,
}

impl TlsOutcomes {
    pub(crate) fn report_failure(&self, remote: SocketAddr, error: TlsError) {
        self.report_outcome(remote, &TlsOutcome::Failed(&error));
        // Another was the first.
        let _ = self.first_fault.set(error);
    }
    pub(crate) fn report_outcome(&self, remote: SocketAddr, outcome: &TlsOutcome<'_>) {
        if let Some(observer) = &self.observer {
            observer(remote, outcome);
        }
    }
}

impl fmt::Debug for TlsOutcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOutcomes").field("first_fault", &self.first_fault).finish_non_exhaustive()
    }
}

macro_rules! replaceable {
    ($(#[$meta:meta])* $name:ident, $config:ty) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name(Arc<watch::Sender<$config>>, Arc<TlsOutcomes>);

        impl $name {
            /// Begins with this configuration.
            #[must_use]
            pub fn new(config: $config) -> Self {
                Self(Arc::new(watch::Sender::new(config)), Arc::default())
            }

            /// New connections take this configuration. Those that are open keep theirs, but for whom they trust: the
            /// peer's certificates are verified again by this configuration, and where they are not trusted by it, the
            /// connection is reset.
            pub fn replace(&self, config: $config) {
                self.0.send_replace(config);
            }

            /// The configuration that new connections take.
            #[must_use]
            pub fn current(&self) -> $config {
                self.0.borrow().clone()
            }

            /// What ended the first of its connections that TLS itself ended, in the handshake or after it.
            #[must_use]
            pub fn first_fault(&self) -> Option<&TlsError> {
                self.1.first_fault.get()
            }

            pub(crate) fn outcomes(&self) -> Arc<TlsOutcomes> {
                Arc::clone(&self.1)
            }

            /// The configuration, and each that comes in its place.
            pub(crate) fn watch(&self) -> watch::Receiver<$config> {
                self.0.subscribe()
            }
        }
    };
}

replaceable! {
    /// The TLS of a listener: a configuration that can be replaced while connections are open. Clones are the same
    /// one.
    TlsServer, ServerConfig
}

replaceable! {
    /// The TLS of connections that the machine opens: a configuration that can be replaced while they are open. Clones
    /// are the same one.
    TlsClient, ClientConfig
}

impl TlsClient {
    /// The same, of whose connections somebody hears.
    #[must_use]
    pub fn with_observer(config: ClientConfig, observer: TlsObserver) -> Self {
        let outcomes = TlsOutcomes { observer: Some(observer), ..TlsOutcomes::default() };
        Self(Arc::new(watch::Sender::new(config)), Arc::new(outcomes))
    }
}

/// A socket that accepts connections for the machine.
#[derive(Debug)]
pub struct DriverListener {
    /// What the machine calls it: whose what is accepted here will be.
    pub id: ListenerId,
    /// The socket, as [`listen_tcp`] makes it.
    pub socket: TcpListener,
    /// With this, the machine hears of a connection once its TLS handshake is complete.
    pub tls: Option<TlsServer>,
}

/// An SCTP socket that accepts associations for the machine.
#[derive(Debug)]
pub struct AssociationListener {
    /// What the machine calls it: whose what is accepted here will be.
    pub id: ListenerId,
    /// The socket.
    pub socket: usher_sctp::SctpListener,
}

/// Bounds of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverConfig {
    /// Datagrams that wait for each socket while the system takes no more; then the newest are dropped.
    pub datagram_queue: usize,
    /// Sockets that the machine may have, those of its own choice included.
    pub sockets: usize,
    /// Connections or associations of one listener at a time, those in their handshake included.
    pub connections: usize,
    /// Connections of one listener from one address at a time.
    pub connections_per_address: usize,
    /// Accepted connections at a time of whose peers nothing is known, of all listeners: TLS handshakes under way, and, without TLS, those to
    /// whom the machine has said nothing yet. Beyond it the oldest of the network (an IPv4 address, or 64 bits of an IPv6 address)
    /// that has most makes room.
    pub handshakes: usize,
    /// Octets that may wait for one connection's peer to read when more is to be sent; otherwise the connection is
    /// reset.
    pub stream_queue: usize,
    /// How long a machine that is due again and again goes on before the sockets are looked at: what comes meanwhile waits
    /// for this and one step more at most, and what each look costs is shared by the steps.
    pub time_slice: Duration,
    /// How long setting up a connection may take, TLS not included.
    pub connect_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a connection that this side closes may take to send what is queued and to see the other
    /// side's end.
    pub linger: Duration,
    /// Whether a peer without TLS that sends no more is told to the machine as that ([`StreamEvent::Finished`](usher_core::StreamEvent)), which
    /// may owe it answers. Otherwise its connection is over.
    pub half_closed: bool,
    /// The options of associations that the machine begins; how many streams it asks for is its own affair.
    pub associations: usher_sctp::SocketOptions,
    /// The options of the sockets that the machine asks for by using a new number.
    pub ephemeral: SocketOptions,
    /// Whether the system is given, and gives, datagrams of one length between the same two addresses as one (UDP
    /// segmentation offload), where it can.
    pub offload: bool,
}

impl Default for DriverConfig {
    /// 4096 datagrams, 65536 sockets, 65536 connections and 1024 of each address, 1024 handshakes, 4 MiB, and 4 ms, 10 s,
    /// 10 s and 2 s; with offload.
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

/// What a driver serves its machine with. The default has no sockets: all are the machine's own choice.
#[derive(Default)]
pub struct DriverSockets {
    /// Datagram sockets, with what the machine calls them.
    pub udp: Vec<(SocketId, UdpSocket)>,
    /// Where connections are accepted.
    pub listeners: Vec<DriverListener>,
    /// Where associations are accepted.
    pub associations: Vec<AssociationListener>,
    /// What protects the connections that the machine opens; `None` for plain TCP to all. To whom it says that TLS does, no
    /// association is begun: nothing protects one.
    pub outgoing: Option<SecuritySelector>,
    /// Bounds.
    pub settings: DriverConfig,
}

/// Datagram sockets of the hosted machine itself, numbered from 0.
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
