//! The public interface of a tunnel.

use crate::sys;
use crate::worker::{TunnelCommand, TunnelCounters, TunnelSocket, TunnelWorker, TunnelWorkerParts};
use rustix::event::{EventfdFlags, eventfd};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_core::SecureRng;
use usher_device::{SegmentationOffloads, TunDevice, open_tun};
use usher_esp::plane::{IpsecOperationError, OuterAddresses, SaUsage};
use usher_esp::{EspDataPlane, EspEvent, IpsecOperation, plane};

/// The configuration of a tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelConfig {
    /// The name of the TUN device. The kernel replaces `%d` by a number.
    pub device: String,
    /// The device's MTU in octets. Packets with ESP overhead should fit the links: 1400 fits links with 1500.
    pub mtu: u32,
    /// Addresses and ports for packets in UDP, at most one per family. An unspecified address means all local
    /// addresses.
    pub udp: Vec<SocketAddr>,
    /// Addresses for packets without UDP. An unspecified address means all local addresses.
    pub raw: Vec<IpAddr>,
    /// True if IKE has its own socket on each of `udp`, bound before with `SO_REUSEPORT`. It receives the datagrams
    /// with the non-ESP marker.
    pub shares_ike_port: bool,
    /// The mark of outgoing packets (`SO_MARK`), with which a routing rule leads them past the device. Without a
    /// mark, packets of a bypass policy are dropped.
    pub mark: Option<u32>,
    /// True to use segmentation offloads of the kernel where available.
    pub offload: bool,
    /// The interval of [`TunnelEvent::UsageReport`]. `None`: only on request.
    pub report: Option<Duration>,
    /// The configuration of the databases.
    pub plane: plane::EspDataPlaneConfig,
}

impl Default for TunnelConfig {
    /// A device `esp%d` with MTU 1400, port 4500 and ESP on all addresses of both families. IKE messages are passed
    /// on.
    fn default() -> Self {
        let any = [IpAddr::from([0; 4]), IpAddr::from([0u16; 8])];
        Self {
            device: "esp%d".to_owned(),
            mtu: 1400,
            udp: any.map(|address| SocketAddr::new(address, usher_esp::packet::NAT_PORT)).to_vec(),
            raw: any.to_vec(),
            shares_ike_port: false,
            mark: None,
            offload: true,
            report: None,
            plane: plane::EspDataPlaneConfig::default(),
        }
    }
}

/// An event of a tunnel. It arrives on the tunnel's thread, so its handler must not block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TunnelEvent {
    /// An event of the databases.
    Plane(EspEvent),
    /// An IKE message, without the non-ESP marker.
    Ike {
        /// Its source and its local address.
        outer: OuterAddresses,
        /// The message.
        message: Vec<u8>,
    },
    /// The usage of all pairs that have changed since the last report, by inbound SPI.
    UsageReport(Vec<(u32, SaUsage)>),
    /// The tunnel has ended after an error of the system.
    Failed(String),
}

/// Why a tunnel cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The TUN device cannot be created.
    #[error(
        "cannot create TUN device \"{name}\": {error}; this needs root or CAP_NET_ADMIN, and /dev/net/tun"
    )]
    Device {
        /// The device's name.
        name: String,
        /// The cause.
        error: io::Error,
    },
    /// An address is unavailable.
    #[error("cannot receive {what} at {address}: {error}")]
    Bind {
        /// The use of the address.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: io::Error,
    },
    /// A thread or a descriptor is unavailable.
    #[error("cannot create {what}: {error}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
}

/// A running tunnel. Dropping it ends the tunnel.
#[derive(Debug)]
pub struct EspTunnel {
    device: String,
    offers: SegmentationOffloads,
    messages: Sender<TunnelCommand>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl EspTunnel {
    /// Creates the device and the sockets in the calling thread's network namespace, and starts the thread. The
    /// device has no addresses and no routes yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: &TunnelConfig,
        rng: SecureRng,
        said: Box<dyn FnMut(TunnelEvent) + Send>,
    ) -> Result<Self, StartError> {
        let name = &config.device;
        let TunDevice { file: device, name: made, tcp, udp } =
            open_tun(name, config.mtu).map_err(|error| StartError::Device { name: name.clone(), error })?;
        let offers = SegmentationOffloads { tcp: tcp && config.offload, udp: udp && config.offload };
        let mut ports = Vec::new();
        for address in &config.udp {
            let port = open_udp_port(*address, config);
            ports.push(port.map_err(|error| StartError::Bind {
                what: "ESP in UDP",
                address: *address,
                error,
            })?);
        }
        for address in &config.raw {
            let address = SocketAddr::new(*address, 0);
            let port = open_esp_port(address, config);
            ports.push(port.map_err(|error| StartError::Bind { what: "ESP", address, error })?);
        }
        let system = |what| move |error| StartError::System { what, error };
        let forward = match config.mark {
            Some(mark) => open_forward_sockets(mark).map_err(system("a socket for forwarded packets"))?,
            None => Vec::new(),
        };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = Arc::new(wake.map_err(|e| StartError::System { what: "an eventfd", error: e.into() })?);
        let (messages, receiver) = channel();
        let parts = TunnelWorkerParts {
            device,
            ports,
            forward,
            offers,
            plane: EspDataPlane::new(config.plane, rng),
            report: config.report,
            messages: receiver,
            wake: Arc::clone(&wake),
            event_handler: said,
        };
        let work = move || TunnelWorker::new(parts).run();
        let thread = std::thread::Builder::new().name("esp".to_owned()).spawn(work);
        let thread = Some(thread.map_err(system("a thread"))?);
        Ok(Self { device: made, offers, messages, wake, thread })
    }

    /// Returns the device's name in the kernel.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device
    }
    /// Returns whether TCP and UDP packets use segmentation offloads.
    #[must_use]
    pub const fn offloaded_protocols(&self) -> (bool, bool) {
        (self.offers.tcp, self.offers.udp)
    }

    fn send_message<T>(&self, message: impl FnOnce(Sender<T>) -> TunnelCommand) -> Option<Receiver<T>> {
        let (answer, answered) = channel();
        self.messages.send(message(answer)).ok()?;
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes()).ok()?;
        Some(answered)
    }

    /// Changes SAs or policies before it returns. Returns `Ok` also after the tunnel has ended
    /// ([`TunnelEvent::Failed`]).
    ///
    /// # Errors
    /// [`IpsecOperationError`].
    pub fn apply_operation(&self, operation: IpsecOperation) -> Result<(), IpsecOperationError> {
        let answered = self.send_message(|answer| TunnelCommand::Apply(operation, answer));
        answered.and_then(|answered| answered.recv().ok()).unwrap_or(Ok(()))
    }
    /// Returns the usage of the pair that receives at this SPI.
    #[must_use]
    pub fn pair_usage(&self, inbound: u32) -> Option<SaUsage> {
        self.send_message(|answer| TunnelCommand::Usage(inbound, answer))?.recv().ok()?
    }
    /// Returns the usage of all pairs by inbound SPI.
    #[must_use]
    pub fn all_usages(&self) -> Vec<(u32, SaUsage)> {
        let answered = self.send_message(TunnelCommand::Usages);
        answered.and_then(|answered| answered.recv().ok()).unwrap_or_default()
    }
    /// Returns the counters of packets and of the tunnel.
    #[must_use]
    pub fn counters(&self) -> (usher_esp::EspCounters, TunnelCounters) {
        let answered = self.send_message(TunnelCommand::Counters);
        answered.and_then(|answered| answered.recv().ok()).unwrap_or_default()
    }
    /// Sends a datagram that is not ESP from the UDP port: an IKE message with its marker, or a keepalive.
    pub fn send_datagram(&self, outer: OuterAddresses, datagram: Vec<u8>) {
        let _ = self.send_message(|answer| TunnelCommand::Send(outer, datagram, answer));
    }
}

impl Drop for EspTunnel {
    fn drop(&mut self) {
        let _ = self.send_message(TunnelCommand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The size of each socket buffer in octets, for input that arrives while the thread does not run.
const BUFFER: usize = 4 << 20;

fn configure_socket(socket: Socket, address: SocketAddr, config: &TunnelConfig) -> io::Result<Socket> {
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    sys::set_ike_socket_options(&socket, address.is_ipv6())?;
    set_buffers(socket, config)
}

fn set_buffers(socket: Socket, config: &TunnelConfig) -> io::Result<Socket> {
    // The system may grant smaller buffers, without an error.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    if let Some(mark) = config.mark {
        socket.set_mark(mark)?;
    }
    Ok(socket)
}

/// Opens a socket for packets in UDP.
pub(crate) fn open_udp_port(address: SocketAddr, config: &TunnelConfig) -> io::Result<TunnelSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    let socket = configure_socket(socket, address, config)?;
    if config.shares_ike_port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    if config.shares_ike_port {
        sys::attach_port_filter(&socket)?;
    }
    if config.offload {
        sys::enable_receive_offload(&socket)?;
    }
    let bound = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok(TunnelSocket { socket, local: bound, encapsulated: true })
}

/// Opens a socket for ESP packets without UDP.
fn open_esp_port(address: SocketAddr, config: &TunnelConfig) -> io::Result<TunnelSocket> {
    let protocol = Protocol::from(i32::from(usher_esp::packet::PROTOCOL));
    let socket = Socket::new(Domain::for_address(address), Type::RAW, Some(protocol))?;
    let socket = if address.is_ipv6() {
        sys::set_ike_socket_options(&socket, true)?;
        set_buffers(socket, config)?
    } else {
        configure_socket(socket, address, config)?
    };
    socket.bind(&address.into())?;
    Ok(TunnelSocket { socket, local: address, encapsulated: false })
}

/// Opens the sockets for packets of bypass policies, one per family.
fn open_forward_sockets(mark: u32) -> io::Result<Vec<Socket>> {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let made = [Domain::IPV4, Domain::IPV6].map(|domain| {
        let socket = Socket::new(domain, Type::RAW, Some(raw))?;
        socket.set_mark(mark)?;
        Ok(socket)
    });
    made.into_iter().collect()
}
