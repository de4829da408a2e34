//! The parts that all modes of forwarding share: configuration, events, ports, and the interface of an engine.

use crate::interface::{AccessInterface, Netlink};
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage};
use crate::sys;
use socket2::Socket;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An access interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessPortConfig {
    /// Its name. The kernel knows its Ethernet address and MTU.
    pub interface: String,
}

/// The mode of forwarding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DataPlaneMode {
    /// In this process, by packet sockets and a TUN device. Works on every kernel.
    #[default]
    User,
    /// In the kernel, by eBPF programs at the interfaces, with sessions in maps.
    Ebpf(EbpfHook),
    /// In the kernel, by its own PPPoE.
    Kernel,
}

impl DataPlaneMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::User, Self::Ebpf(EbpfHook::Auto), Self::Kernel];

    /// Returns the mode's name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Ebpf(_) => "ebpf",
            Self::Kernel => "kernel",
        }
    }
}

impl fmt::Display for DataPlaneMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The hook of eBPF mode's programs that remove PPPoE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EbpfHook {
    /// The faster hook of each interface: XDP if the driver has native XDP, otherwise tc. A veth end gets tc, because
    /// its driver first copies each packet for XDP.
    #[default]
    Auto,
    /// XDP, native in the driver or generic with a copy.
    Xdp,
    /// tc, at the interface's ingress.
    Tc,
}

impl EbpfHook {
    /// Returns the hook's name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        }
    }
}

impl fmt::Display for EbpfHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The configuration of a data plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPlaneConfig {
    /// The access interfaces, at least one.
    pub ports: Vec<AccessPortConfig>,
    /// The mode of forwarding.
    pub mode: DataPlaneMode,
    /// The name of the device to which packets for hosts are routed. The kernel replaces `%d` by a number.
    pub device: String,
    /// The interval of [`DataPlaneEvent::UsageReport`]; `None`: only on request.
    pub report: Option<Duration>,
    /// True to leave access interfaces closed to all but PPPoE after the plane's end. Otherwise the system would route
    /// hosts without authentication. The next plane takes the filter over; `tc qdisc del dev NAME clsact` removes it.
    pub closed: bool,
}

impl Default for DataPlaneConfig {
    /// No port, user mode, a device `pppoe%d`, no reports, interfaces restored at the end.
    fn default() -> Self {
        let device = "pppoe%d".to_owned();
        Self { ports: Vec::new(), mode: DataPlaneMode::default(), device, report: None, closed: false }
    }
}

/// An event of a data plane. The handler runs on the plane's thread: it must not block, nor call the plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataPlaneEvent {
    /// A frame of discovery or of PPP's control protocols, from the destination address on.
    Frame {
        /// The port's index.
        port: usize,
        /// The frame, without its check sequence.
        data: Vec<u8>,
    },
    /// The total usage of sessions with traffic since the last report, by SESSION_ID.
    UsageReport(Vec<(u16, DataPlaneUsage)>),
    /// The plane has ended because of a system error.
    Failed(String),
}

/// The state of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessPortState {
    /// The interface.
    pub interface: String,
    /// The interface's Ethernet address.
    pub mac: [u8; 6],
    /// Octets of the longest payload of a frame. PPPoE and PPP take 8 of them.
    pub mtu: u16,
    /// The hook in use in eBPF mode: XDP or tc.
    pub hook: Option<EbpfHook>,
}

/// The reason why a plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No port is configured.
    #[error("no access interface: configure at least one")]
    NoPort,
    /// An interface is configured twice.
    #[error("interface {0} is configured twice")]
    Twice(String),
    /// An access interface failed.
    #[error("access interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// The error.
        error: io::Error,
    },
    /// The device failed.
    #[error(
        "cannot create the device \"{name}\": {error}; this needs root or CAP_NET_ADMIN, and /dev/net/tun"
    )]
    Device {
        /// Its name.
        name: String,
        /// The error.
        error: io::Error,
    },
    /// The mode is not available.
    #[error("mode \"{mode}\": {why}")]
    Mode {
        /// The mode.
        mode: DataPlaneMode,
        /// The reason and the remedy.
        why: String,
    },
    /// A thread or a descriptor failed.
    #[error("{what}: {error}")]
    System {
        /// The failed resource.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
}

/// An access interface with its sockets.
#[derive(Debug)]
pub(crate) struct AccessPort {
    pub(crate) name: String,
    pub(crate) interface: AccessInterface,
    pub(crate) discovery: Socket,
    pub(crate) session: Socket,
}

impl AccessPort {
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        [&self.discovery, &self.session].into_iter()
    }
    /// Opens a port. `first`: the discovery socket sees frames before the ingress filter, which drops some.
    pub(crate) fn open(netlink: &Netlink, name: &str, first: bool) -> io::Result<Self> {
        let interface = netlink.require_ethernet_interface(name)?;
        if !interface.up {
            return Err(io::Error::other(format!("it is down: ip link set {name} up")));
        }
        let discovery = match first {
            true => sys::open_early_frame_socket(interface.index, 0x8863)?,
            false => sys::open_frame_socket(interface.index, 0x8863, false)?,
        };
        let session = sys::open_frame_socket(interface.index, 0x8864, false)?;
        Ok(Self { name: name.to_owned(), interface, discovery, session })
    }
}

/// The owner's handler of events.
pub(crate) type DataPlaneEventHandler = Box<dyn FnMut(DataPlaneEvent) + Send>;

/// The event handler, shared by threads.
#[derive(Clone)]
pub(crate) struct SharedEventHandler(pub(crate) Arc<Mutex<DataPlaneEventHandler>>);

impl SharedEventHandler {
    pub(crate) fn send_event(&self, event: DataPlaneEvent) {
        (lock_unpoisoned(&self.0))(event);
    }
}

pub(crate) fn lock_unpoisoned<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The implementation of a mode.
pub(crate) trait ForwardingEngine: Send + Sync {
    fn install(&self, session: &DataPlaneSession) -> io::Result<()>;
    fn remove(&self, number: u16) -> io::Result<Option<DataPlaneUsage>>;
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>>;
    /// Returns the usage of sessions with traffic since the last call.
    fn changed_usages(&self) -> io::Result<Vec<(u16, DataPlaneUsage)>>;
    fn counters(&self) -> io::Result<DataPlaneCounters>;
    /// Returns the hook of a port.
    fn port_hook(&self, _port: usize) -> Option<EbpfHook> {
        None
    }
    /// Returns the interface of a session, if it has one of its own.
    fn session_interface(&self, _number: u16) -> io::Result<Option<u32>> {
        Ok(None)
    }
}
