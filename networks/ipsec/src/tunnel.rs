//! A tunnel as others see it.

use crate::sys;
use crate::worker::{TunnelCommand, TunnelCounters, TunnelPort, TunnelWorker, WorkerParts};
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
use usher_device::{OffloadSupport, TunDevice, open_tun};
use usher_esp::plane::{OperationError, OuterPath, SaUsage};
use usher_esp::{EspDataPlane, EspEvent, IpsecOperation, plane};

/// What a tunnel is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelConfig {
    /// The name of the TUN device; with `%d` in it the kernel puts a number there.
    pub device: String,
    /// Octets of the longest packet that the system gives to the device. With what is around it, it is to fit the links: 1400
    /// does where these carry 1500.
    pub mtu: u32,
    /// Addresses and ports for packets within UDP, one of each family at most; an unspecified one is for all of ours.
    pub udp: Vec<SocketAddr>,
    /// Addresses for packets that are in no UDP; an unspecified one is for all of ours.
    pub raw: Vec<IpAddr>,
    /// IKE has a socket of its own on each of `udp`, bound before with `SO_REUSEPORT`: what begins with the non-ESP marker goes
    /// to that one.
    pub shares_ike_port: bool,
    /// What is sent carries this mark (`SO_MARK`), so that a routing rule can lead it past the device. Without one nothing can
    /// be forwarded as it is, and is dropped.
    pub mark: Option<u32>,
    /// Packets go through the kernel as one where it can do that.
    pub offload: bool,
    /// How often it is said what pairs have carried ([`TunnelEvent::UsageReport`]); `None`: when somebody asks.
    pub report: Option<Duration>,
    /// What the databases keep.
    pub plane: plane::EspDataPlaneConfig,
}

impl Default for TunnelConfig {
    /// A device `esp%d` for packets of 1400 octets, port 4500 and ESP of all addresses of both families, IKE handed over.
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

/// What a tunnel says, on its own thread: whoever hears it must not wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TunnelEvent {
    /// What the databases say.
    Plane(EspEvent),
    /// A message of IKE, behind its marker.
    Ike {
        /// From where, and to which of our addresses.
        outer: OuterPath,
        /// The message.
        message: Vec<u8>,
    },
    /// What pairs have carried that have carried something since this was said last, by their SPIs of packets that come.
    UsageReport(Vec<(u32, SaUsage)>),
    /// The tunnel has ended since the system refuses what it needs.
    Failed(String),
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The device.
    #[error("no TUN device \"{name}\": {error}; this needs root or CAP_NET_ADMIN, and /dev/net/tun")]
    Device {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// An address.
    #[error("cannot receive {what} at {address}: {error}")]
    Bind {
        /// What was to be received there.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A thread, a descriptor.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// ESP on this host, until it is dropped.
#[derive(Debug)]
pub struct EspTunnel {
    device: String,
    offers: OffloadSupport,
    messages: Sender<TunnelCommand>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl EspTunnel {
    /// Makes the device and the sockets in the calling thread's network namespace, and begins. The device has no addresses yet,
    /// and no routes lead to it.
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
        let offers = OffloadSupport { tcp: tcp && config.offload, udp: udp && config.offload };
        let mut ports = Vec::new();
        for address in &config.udp {
            let port = open_udp_port(*address, config);
            ports.push(port.map_err(|error| StartError::Bind {
                what: "ESP within UDP",
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
            Some(mark) => open_forward_sockets(mark).map_err(system("a socket to forward by"))?,
            None => Vec::new(),
        };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let wake = Arc::new(wake.map_err(|e| StartError::System { what: "an eventfd", error: e.into() })?);
        let (messages, receiver) = channel();
        let parts = WorkerParts {
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

    /// The device's name, as the kernel has it.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device
    }
    /// Whether packets of TCP, and of UDP, come from the system as one, and go so.
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

    /// Changes SAs or policies; it is done when this returns. `Ok` also where the tunnel has ended ([`TunnelEvent::Failed`]).
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn apply_operation(&self, operation: IpsecOperation) -> Result<(), OperationError> {
        let answered = self.send_message(|answer| TunnelCommand::Apply(operation, answer));
        answered.and_then(|answered| answered.recv().ok()).unwrap_or(Ok(()))
    }
    /// What the pair that receives at this SPI has carried.
    #[must_use]
    pub fn pair_usage(&self, inbound: u32) -> Option<SaUsage> {
        self.send_message(|answer| TunnelCommand::Usage(inbound, answer))?.recv().ok()?
    }
    /// What all pairs have carried, by their SPIs of packets that come.
    #[must_use]
    pub fn all_usages(&self) -> Vec<(u32, SaUsage)> {
        let answered = self.send_message(TunnelCommand::Usages);
        answered.and_then(|answered| answered.recv().ok()).unwrap_or_default()
    }
    /// What was counted: of packets, and of what carried them.
    #[must_use]
    pub fn counters(&self) -> (usher_esp::EspCounters, TunnelCounters) {
        let answered = self.send_message(TunnelCommand::Counters);
        answered.and_then(|answered| answered.recv().ok()).unwrap_or_default()
    }
    /// Sends something that is no ESP from the port of packets within UDP: a message of IKE with its marker, a keepalive.
    pub fn send_datagram(&self, outer: OuterPath, datagram: Vec<u8>) {
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

/// Octets of each socket's buffers: what comes while others have the processor waits there.
const BUFFER: usize = 4 << 20;

fn configure_socket(socket: Socket, address: SocketAddr, config: &TunnelConfig) -> io::Result<Socket> {
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    sys::prepare_socket(&socket, address.is_ipv6())?;
    set_buffers(socket, config)
}

fn set_buffers(socket: Socket, config: &TunnelConfig) -> io::Result<Socket> {
    // The system may grant less.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    if let Some(mark) = config.mark {
        socket.set_mark(mark)?;
    }
    Ok(socket)
}

/// A socket for packets within UDP.
pub(crate) fn open_udp_port(address: SocketAddr, config: &TunnelConfig) -> io::Result<TunnelPort> {
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
    Ok(TunnelPort { socket, local: bound, encapsulated: true })
}

/// A socket for packets of ESP.
fn open_esp_port(address: SocketAddr, config: &TunnelConfig) -> io::Result<TunnelPort> {
    let protocol = Protocol::from(i32::from(usher_esp::packet::PROTOCOL));
    let socket = Socket::new(Domain::for_address(address), Type::RAW, Some(protocol))?;
    let socket = if address.is_ipv6() {
        sys::prepare_socket(&socket, true)?;
        set_buffers(socket, config)?
    } else {
        configure_socket(socket, address, config)?
    };
    socket.bind(&address.into())?;
    Ok(TunnelPort { socket, local: address, encapsulated: false })
}

/// Sockets by which packets go on as they are, of either family.
fn open_forward_sockets(mark: u32) -> io::Result<Vec<Socket>> {
    let raw = Protocol::from(libc::IPPROTO_RAW);
    let made = [Domain::IPV4, Domain::IPV6].map(|domain| {
        let socket = Socket::new(domain, Type::RAW, Some(raw))?;
        socket.set_mark(mark)?;
        Ok(socket)
    });
    made.into_iter().collect()
}
