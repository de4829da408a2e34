//! A data plane as others see it.

use crate::interface::{AccessInterface, IngressGuard, Netlink};
use crate::kernel::{self, KernelMode};
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage};
use crate::sys;
use crate::user::UserMode;
use socket2::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_device::{TunDevice, open_tun};

/// An access interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// Its name. Its address of Ethernet and its MTU are the kernel's.
    pub interface: String,
}

/// Where packets are carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DataPlaneMode {
    /// In this program, by packet sockets and a TUN device: on every kernel.
    #[default]
    User,
    /// In the kernel, by programs at the interfaces, with sessions in maps.
    Ebpf(EbpfHook),
    /// In the kernel, by its own PPP over Ethernet.
    Kernel,
}

impl DataPlaneMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::User, Self::Ebpf(EbpfHook::Auto), Self::Kernel];

    /// Its name in configurations.
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

/// Where in the kernel the programs of eBPF mode take PPPoE off.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EbpfHook {
    /// At each interface where it is quicker: by XDP where the interface's driver has that, but by tc at an end of a veth pair,
    /// whose driver first copies each packet for XDP.
    #[default]
    Auto,
    /// By XDP, in the driver, or behind it with a copy where the driver has none.
    Xdp,
    /// By tc, at its ingress.
    Tc,
}

impl EbpfHook {
    /// Its name in configurations.
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

/// What a plane is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPlaneConfig {
    /// Access interfaces, at least one.
    pub ports: Vec<PortConfig>,
    /// Where packets are carried.
    pub mode: DataPlaneMode,
    /// The name of the device to which packets for hosts are routed; with `%d` in it the kernel puts a number there.
    pub device: String,
    /// How often it is said what sessions have carried ([`DataPlaneEvent::UsageReport`]); `None`: when somebody asks.
    pub report: Option<Duration>,
    /// When the plane has ended, access interfaces stay closed to what is not PPPoE, until the next plane takes them over or somebody takes
    /// the filter away (`tc qdisc del dev NAME clsact`). Otherwise hosts that have not authenticated would be routed meanwhile.
    pub closed: bool,
}

impl Default for DataPlaneConfig {
    /// No port yet, user mode, a device `pppoe%d`, no reports, interfaces as they were.
    fn default() -> Self {
        let device = "pppoe%d".to_owned();
        Self { ports: Vec::new(), mode: DataPlaneMode::default(), device, report: None, closed: false }
    }
}

/// What a plane says, on a thread of its own: whoever hears it must not wait, nor ask the plane anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DataPlaneEvent {
    /// A frame for whoever speaks discovery and PPP's control protocols, from the destination address on.
    Frame {
        /// At which port.
        port: usize,
        /// The frame, without check sequence.
        data: Vec<u8>,
    },
    /// What sessions have carried that have carried something since this was said last, by their numbers.
    UsageReport(Vec<(u16, DataPlaneUsage)>),
    /// The plane has ended since the system refuses what it needs.
    Failed(String),
}

/// A port as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortState {
    /// The interface.
    pub interface: String,
    /// Its address of Ethernet.
    pub mac: [u8; 6],
    /// Octets of the longest payload of a frame; PPPoE and PPP take 8 of them.
    pub mtu: u16,
    /// In eBPF mode, where PPPoE is taken off there: by XDP or by tc.
    pub hook: Option<EbpfHook>,
}

/// Why there is no plane.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nobody could ask for a session.
    #[error("a plane needs an access interface: name one at least")]
    NoPort,
    /// An interface twice.
    #[error("interface {0} is a port already: name it once")]
    Twice(String),
    /// An access interface.
    #[error("access interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// The device.
    #[error("no TUN device \"{name}\": {error}; this needs root or CAP_NET_ADMIN, and /dev/net/tun")]
    Device {
        /// Its name.
        name: String,
        /// Why.
        error: io::Error,
    },
    /// A mode that is not to be had here.
    #[error("mode \"{mode}\": {why}")]
    Mode {
        /// Which.
        mode: DataPlaneMode,
        /// Why, and what to do.
        why: String,
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
    /// `first`: discovery is heard before the system hears it, and drops some of it.
    fn open(netlink: &Netlink, name: &str, first: bool) -> io::Result<Self> {
        let interface = netlink.access_interface(name)?;
        if !interface.up {
            return Err(io::Error::other(format!("it is down: ip link set {name} up")));
        }
        let discovery = match first {
            true => sys::frames_first(interface.index, 0x8863)?,
            false => sys::frame_socket(interface.index, 0x8863, false)?,
        };
        let session = sys::frame_socket(interface.index, 0x8864, false)?;
        Ok(Self { name: name.to_owned(), interface, discovery, session })
    }
}

/// Who hears what a plane says.
type EventHandler = Box<dyn FnMut(DataPlaneEvent) + Send>;

/// The same, for several threads.
#[derive(Clone)]
pub(crate) struct SharedEventHandler(Arc<Mutex<EventHandler>>);

impl SharedEventHandler {
    pub(crate) fn send_event(&self, event: DataPlaneEvent) {
        (lock_unpoisoned(&self.0))(event);
    }
}

pub(crate) fn lock_unpoisoned<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a mode does.
pub(crate) trait ForwardingEngine: Send + Sync {
    fn install(&self, session: &DataPlaneSession) -> io::Result<()>;
    fn remove(&self, number: u16) -> io::Result<Option<DataPlaneUsage>>;
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>>;
    /// Of sessions that have carried something since this was asked.
    fn changed_usages(&self) -> io::Result<Vec<(u16, DataPlaneUsage)>>;
    fn counters(&self) -> io::Result<DataPlaneCounters>;
    /// Where packets of a port are taken up in the kernel.
    fn port_hook(&self, _port: usize) -> Option<EbpfHook> {
        None
    }
    /// The interface that a session has for itself, where it has one.
    fn session_interface(&self, _number: u16) -> io::Result<Option<u32>> {
        Ok(None)
    }
}

/// What was changed of the system for sessions.
#[derive(Default)]
struct InstalledSessions {
    sessions: BTreeMap<u16, DataPlaneSession>,
    /// Our addresses, as often as a session wants them.
    gateways: BTreeMap<Ipv4Addr, usize>,
    /// Our addresses of IPv6 at the device.
    own: Vec<Ipv6Addr>,
}

/// A data plane, until it is dropped.
pub struct PppoeDataPlane {
    device: String,
    index: u32,
    states: Vec<PortState>,
    incoming: Vec<String>,
    ports: Arc<[AccessPort]>,
    netlink: Netlink,
    /// The device, and what else has our addresses.
    devices: Vec<u32>,
    installed: Mutex<InstalledSessions>,
    reports: Arc<UsageReporter>,
    reporter: Option<(Sender<()>, JoinHandle<()>)>,
    carrier: Arc<dyn ForwardingEngine>,
    /// Taken back after all else.
    changed: InterfaceChanges,
    closed: bool,
}

/// What was changed of the access interfaces, until it is dropped.
struct InterfaceChanges {
    netlink: Netlink,
    /// Those with a filter that is to go.
    guarded: Vec<u32>,
    /// Interfaces whose `rp_filter` was changed, and what it was.
    loose: Vec<(u32, u8)>,
    /// By which others find that notes at interfaces are of a plane that is there.
    presence_sockets: Vec<UnixDatagram>,
    /// What the administrator has to do.
    warnings: Vec<String>,
}

/// Says that a plane which may leave a note at an interface is there, until it is dropped: a name that one alone has in a network namespace, and
/// that goes with its program. Whoever else takes it keeps notes from being heeded, and no more.
fn claim_interface(index: u32) -> io::Result<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("usher-pppoe-{index}"))?;
    UnixDatagram::bind_addr(&name)
}

/// Where the kernel has how an interface's packets are checked for the way back to their sources.
fn reverse_path(name: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")
}

/// `None`: the system has no such setting.
fn read_reverse_path(name: &str) -> Option<u8> {
    std::fs::read_to_string(reverse_path(name)).ok()?.trim().parse().ok()
}

const LOOSE: u8 = 2;
const STRICT: u8 = 1;

impl InterfaceChanges {
    fn guard_interface(&mut self, index: u32, what: IngressGuard) -> io::Result<()> {
        self.netlink.add_guard(index, what)?;
        self.guarded.push(index);
        Ok(())
    }
    /// Lets packets come in by an interface by which their sources are not reached (`rp_filter`, RFC 3704 §2.4): it is the plane that
    /// looks at sources. What was set stands in a note at the interface first, since this program may be killed.
    fn loosen_reverse_path(&mut self, index: u32, name: &str) -> io::Result<()> {
        let (all, own) = (read_reverse_path("all"), read_reverse_path(name));
        let Some(own) = own.filter(|own| *own != LOOSE) else { return Ok(()) };
        if own != STRICT && all != Some(STRICT) {
            return Ok(());
        }
        self.netlink.add_note(index, own)?;
        self.loose.push((index, own));
        if let Err(error) = std::fs::write(reverse_path(name), LOOSE.to_string()) {
            self.warnings.push(format!(
                "the kernel drops packets that come in by {name} from addresses of hosts, and its rp_filter cannot be changed ({error}): \
                 sysctl net.ipv4.conf.{name}.rp_filter=2"
            ));
        }
        Ok(())
    }
    /// Puts back what a plane has changed that was killed. What has been set since stays. `keep`: this plane may leave a note, too.
    fn restore_leftovers(&mut self, index: u32, name: &str, keep: bool) {
        // The note of one that is there is for itself to heed.
        let Ok(held) = claim_interface(index) else { return };
        if keep {
            self.presence_sockets.push(held);
        }
        if let Some(was) = self.netlink.find_note(index)
            && let Err(error) = self.put_back(index, was)
        {
            self.warnings.push(format!(
                "rp_filter of {name} is still as a plane had it that was killed ({error}): sysctl net.ipv4.conf.{name}.rp_filter={was}"
            ));
        }
    }
    /// The note stays where that cannot be.
    fn put_back(&self, index: u32, was: u8) -> io::Result<()> {
        // It may have another name by now.
        let name = self.netlink.interface_name(index)?;
        match read_reverse_path(&name) {
            Some(LOOSE) => std::fs::write(reverse_path(&name), was.to_string())?,
            Some(_) => {}
            None => return Err(io::Error::other("it cannot be read")),
        }
        self.netlink.remove_note(index, was)
    }
}

impl Drop for InterfaceChanges {
    fn drop(&mut self) {
        for index in &self.guarded {
            let _ = self.netlink.remove_guard(*index);
        }
        for (index, was) in &self.loose {
            // Where that cannot be, the note says it to the next plane.
            let _ = self.put_back(*index, *was);
        }
    }
}

/// Whether this kernel asks programs of eBPF mode before filters of a queueing discipline.
#[cfg(ebpf)]
fn programs_before_filters() -> bool {
    crate::ebpf::has_tcx()
}
#[cfg(not(ebpf))]
const fn programs_before_filters() -> bool {
    false
}

#[cfg(ebpf)]
fn start_ebpf(
    tun: TunDevice,
    ports: Arc<[AccessPort]>,
    hook: EbpfHook,
    hears: SharedEventHandler,
    seed: u64,
) -> Result<Arc<dyn ForwardingEngine>, StartError> {
    Ok(Arc::new(crate::ebpf::EbpfMode::start(tun, ports, hook, hears, seed)?))
}

#[cfg(not(ebpf))]
fn ebpf(
    _: TunDevice,
    _: Arc<[AccessPort]>,
    hook: EbpfHook,
    _: SharedEventHandler,
    _: u64,
) -> Result<Arc<dyn ForwardingEngine>, StartError> {
    let why =
        "this program was built without it: build it where clang is installed, with the feature \"ebpf\""
            .to_owned();
    Err(StartError::Mode { mode: DataPlaneMode::Ebpf(hook), why })
}

impl fmt::Debug for PppoeDataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane")
            .field("device", &self.device)
            .field("ports", &self.states)
            .finish_non_exhaustive()
    }
}

impl PppoeDataPlane {
    /// Makes the device, takes the access interfaces and begins, in the calling thread's network namespace. No session's packets
    /// pass yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: &DataPlaneConfig,
        hears: Box<dyn FnMut(DataPlaneEvent) + Send>,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let netlink = Netlink::open().map_err(system("a socket of rtnetlink"))?;
        let mut ports: Vec<AccessPort> = Vec::new();
        for PortConfig { interface: name } in &config.ports {
            if ports.iter().any(|port| port.name == *name) {
                return Err(StartError::Twice(name.clone()));
            }
            let opened = AccessPort::open(&netlink, name, config.mode == DataPlaneMode::Kernel);
            ports.push(opened.map_err(|error| StartError::Interface { name: name.clone(), error })?);
        }
        let Some(mtu) = ports.iter().map(|port| port.interface.mtu).max() else {
            return Err(StartError::NoPort);
        };
        let ports: Arc<[AccessPort]> = ports.into();
        let hears = SharedEventHandler(Arc::new(Mutex::new(hears)));
        let mut changed = InterfaceChanges {
            netlink: Netlink::open().map_err(system("a socket of rtnetlink"))?,
            guarded: Vec::new(),
            loose: Vec::new(),
            presence_sockets: Vec::new(),
            warnings: Vec::new(),
        };
        let mut seed = [0; 8];
        // Where the kernel gives no chance, addresses that hosts cannot choose are no worse spread.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let seed = u64::from_ne_bytes(seed);
        let made = match config.mode {
            DataPlaneMode::Kernel => None,
            _ => Some(open_device(&netlink, &config.device, mtu)?),
        };
        // Nothing of a plane that has the device is touched.
        for port in &*ports {
            changed.restore_leftovers(
                port.interface.index,
                &port.name,
                matches!(config.mode, DataPlaneMode::Ebpf(_)),
            );
        }
        let mut devices: Vec<u32> = made.iter().map(|(_, index)| *index).collect();
        let (name, index) = match &made {
            Some((tun, index)) => (tun.name.clone(), *index),
            None => (format!("{}*", kernel::name_stem(&config.device)), 0),
        };
        let guard = |changed: &mut InterfaceChanges, what: IngressGuard| -> Result<(), StartError> {
            for port in &*ports {
                let interface = |error| StartError::Interface { name: port.name.clone(), error };
                changed.guard_interface(port.interface.index, what).map_err(interface)?;
            }
            Ok(())
        };
        let carrier: Arc<dyn ForwardingEngine> = match (config.mode, made) {
            (DataPlaneMode::Ebpf(hook), Some((made, _))) => {
                // Packets come in by the access interfaces, and routes to their sources lead elsewhere.
                devices.extend(ports.iter().map(|port| port.interface.index));
                for port in &*ports {
                    let interface = |error| StartError::Interface { name: port.name.clone(), error };
                    changed.loosen_reverse_path(port.interface.index, &port.name).map_err(interface)?;
                }
                // Where programs are asked before the filter, that never sees what they have unpacked, and may be there for when they are not.
                let before_filter = programs_before_filters();
                if before_filter {
                    guard(&mut changed, IngressGuard::Pppoe)?;
                }
                let carrier = start_ebpf(made, Arc::clone(&ports), hook, hears.clone(), seed)?;
                // Elsewhere what they have unpacked is no PPPoE any more to the filter, and they let nothing else pass by themselves.
                for port in ports.iter().filter(|_| !before_filter) {
                    let interface = |error| StartError::Interface { name: port.name.clone(), error };
                    netlink.remove_guard(port.interface.index).map_err(interface)?;
                }
                carrier
            }
            (_, Some((made, _))) => {
                guard(&mut changed, IngressGuard::Pppoe)?;
                Arc::new(UserMode::start(made, Arc::clone(&ports), hears.clone(), seed)?)
            }
            (_, None) => {
                guard(&mut changed, IngressGuard::WithoutPadt)?;
                Arc::new(KernelMode::start(&config.device, Arc::clone(&ports), hears.clone(), seed)?)
            }
        };
        let reports = Arc::new(UsageReporter {
            event_handler: hears,
            turn: Mutex::default(),
            removed_sessions: Mutex::default(),
        });
        let reporter = match config.report {
            Some(every) => Some(spawn_reporter(every, Arc::clone(&carrier), Arc::clone(&reports))?),
            None => None,
        };
        let states = ports.iter().enumerate().map(|(number, port)| PortState {
            interface: port.name.clone(),
            mac: port.interface.address,
            mtu: u16::try_from(port.interface.mtu).unwrap_or(u16::MAX),
            hook: carrier.port_hook(number),
        });
        let states: Vec<PortState> = states.collect();
        let incoming = match config.mode {
            DataPlaneMode::Ebpf(_) => states.iter().map(|port| port.interface.clone()).collect(),
            DataPlaneMode::User | DataPlaneMode::Kernel => vec![name.clone()],
        };
        let installed = Mutex::default();
        Ok(Self {
            device: name,
            index,
            devices,
            states,
            incoming,
            ports,
            netlink,
            installed,
            reports,
            reporter,
            carrier,
            changed,
            closed: config.closed,
        })
    }

    /// The device's name, as the kernel has it; in kernel mode, with `*` at its end, what the names of sessions' interfaces begin with.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device
    }
    /// The ports, in their order.
    #[must_use]
    pub fn ports(&self) -> &[PortState] {
        &self.states
    }
    /// By which interfaces hosts' packets come in for the packet filter: the device, or in eBPF mode the access interfaces.
    #[must_use]
    pub fn incoming_interfaces(&self) -> &[String] {
        &self.incoming
    }
    /// What could not be changed of the system at the start, and what the administrator has to do about it.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.changed.warnings
    }
    /// Sends a frame by a port, from the destination address on. One that the kernel does not take is lost, as on any network;
    /// so is one for a port that there is not.
    pub fn send_frame(&self, port: usize, frame: &[u8]) {
        if let Some(port) = self.ports.get(port) {
            let _ = sys::send_frame(&port.discovery, frame);
        }
    }

    /// These are our addresses of IPv6 at the device, and those that were before are not. Where each session has an interface of its own
    /// there is no such device.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_own(&self, addresses: &[Ipv6Addr]) -> io::Result<()> {
        let mut installed = lock_unpoisoned(&self.installed);
        for address in installed.own.iter().filter(|one| !addresses.contains(one)) {
            self.netlink.remove_address(self.index, *address)?;
        }
        for address in addresses {
            self.netlink.add_address(self.index, *address)?;
        }
        installed.own = addresses.to_vec();
        Ok(())
    }

    /// Carries a session's packets from when this returns, and leads packets to its networks to the device. A session that is
    /// there is changed, and goes on counting.
    ///
    /// # Errors
    /// The session cannot be ([`SessionError`](crate::SessionError) within an error of the kind `InvalidInput`), and nothing has
    /// changed; or the kernel refuses a route, and the session is not there.
    pub fn install_session(&self, session: DataPlaneSession) -> io::Result<()> {
        let mut installed = lock_unpoisoned(&self.installed);
        self.carrier.install(&session)?;
        let done = self.add_routes(&mut installed, &session);
        let number = session.number;
        installed.sessions.insert(number, session);
        if done.is_err() {
            self.take_session(&mut installed, number)?;
        }
        done
    }

    fn add_routes(&self, installed: &mut InstalledSessions, session: &DataPlaneSession) -> io::Result<()> {
        let before = installed.sessions.remove(&session.number);
        if let Some(own) = self.carrier.session_interface(session.number)? {
            return self.lead_alone(own, before.as_ref(), session);
        }
        if let Some(gateway) = session.gateway {
            let uses = installed.gateways.entry(gateway).or_default();
            *uses += 1;
            if *uses == 1 {
                for device in &self.devices {
                    self.netlink.add_address(*device, gateway)?;
                }
            }
        }
        for network in session.all_networks() {
            let own = is_routed_to(before.as_ref(), network);
            self.netlink.add_route(self.index, network, session.mtu, own)?;
        }
        let Some(before) = before else { return Ok(()) };
        let kept: Vec<(IpAddr, u8)> = session.all_networks().collect();
        for network in before.all_networks().filter(|network| !kept.contains(network)) {
            self.netlink.remove_route(self.index, network)?;
        }
        self.release_gateway(installed, before.gateway)
    }

    /// The same where a session has an interface for itself.
    fn lead_alone(
        &self,
        own: u32,
        before: Option<&DataPlaneSession>,
        session: &DataPlaneSession,
    ) -> io::Result<()> {
        if let Some(gateway) = session.gateway {
            self.netlink.add_address(own, gateway)?;
        }
        for network in session.all_networks() {
            self.netlink.add_route(own, network, session.mtu, is_routed_to(before, network))?;
        }
        let kept: Vec<(IpAddr, u8)> = session.all_networks().collect();
        let before = before.into_iter();
        for network in
            before.clone().flat_map(DataPlaneSession::all_networks).filter(|network| !kept.contains(network))
        {
            self.netlink.remove_route(own, network)?;
        }
        let gone =
            before.filter_map(|before| before.gateway).filter(|gateway| Some(*gateway) != session.gateway);
        gone.into_iter().try_for_each(|gateway| self.netlink.remove_address(own, gateway))
    }

    /// A session wants this address of ours no more.
    fn release_gateway(
        &self,
        installed: &mut InstalledSessions,
        gateway: Option<Ipv4Addr>,
    ) -> io::Result<()> {
        let Some(gateway) = gateway else { return Ok(()) };
        let Some(uses) = installed.gateways.get_mut(&gateway) else { return Ok(()) };
        *uses -= 1;
        if *uses > 0 {
            return Ok(());
        }
        installed.gateways.remove(&gateway);
        self.devices.iter().try_for_each(|device| self.netlink.remove_address(*device, gateway))
    }

    fn take_session(
        &self,
        installed: &mut InstalledSessions,
        number: u16,
    ) -> io::Result<Option<DataPlaneUsage>> {
        let own = self.carrier.session_interface(number)?;
        // First nothing passes; what the kernel then says of routes changes nothing of that.
        let usage = self.carrier.remove(number)?;
        self.reports.exclude_session(number);
        let Some(session) = installed.sessions.remove(&number) else { return Ok(usage) };
        if let Some(own) = own {
            // They go with its interface, if they have not yet.
            for network in session.all_networks() {
                let _ = self.netlink.remove_route(own, network);
            }
            let _ = session.gateway.map(|gateway| self.netlink.remove_address(own, gateway));
            return Ok(usage);
        }
        let mut done = Ok(());
        for network in session.all_networks() {
            done = done.and(self.netlink.remove_route(self.index, network));
        }
        done.and(self.release_gateway(installed, session.gateway)).map(|()| usage)
    }
    /// Carries a session's packets no more, from when this returns; what it has carried. `None`: there was none.
    ///
    /// # Errors
    /// What the kernel says. Nothing passes nevertheless.
    pub fn remove_session(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.take_session(&mut lock_unpoisoned(&self.installed), number)
    }
    /// What a session has carried by now. `None`: there is none.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn session_usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.carrier.usage(number)
    }
    /// Has said what all sessions have carried by now ([`DataPlaneEvent::UsageReport`]).
    pub fn report_usage(&self) {
        let numbers: Vec<u16> = lock_unpoisoned(&self.installed).sessions.keys().copied().collect();
        // Of those that the kernel says nothing of nobody knows.
        let of = |number| Some((number, self.carrier.usage(number).ok()??));
        let _ = self.reports.send_report(|| Ok(numbers.into_iter().filter_map(of).collect()));
    }
    /// What was counted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counters(&self) -> io::Result<DataPlaneCounters> {
        self.carrier.counters()
    }
}

/// Whether packets to a network are led to a session already.
fn is_routed_to(session: Option<&DataPlaneSession>, network: (IpAddr, u8)) -> bool {
    session.is_some_and(|session| session.all_networks().any(|one| one == network))
}

/// The device of a plane that moves packets itself, with its index.
fn open_device(netlink: &Netlink, name: &str, mtu: u32) -> Result<(TunDevice, u32), StartError> {
    let made = open_tun(name, mtu).map_err(|error| StartError::Device { name: name.to_owned(), error })?;
    let index = netlink.interface_index(&made.name);
    let index = index.map_err(|error| StartError::System { what: "the device's index", error })?;
    silence_device(&made.name);
    Ok((made, index))
}

/// Has the system say nothing of its own by the device: no host is to hear what the kernel asks of a link that it takes for its
/// own, such as whether routers are there.
fn silence_device(device: &str) {
    for (setting, value) in [("disable_ipv6", "1"), ("addr_gen_mode", "1"), ("disable_ipv6", "0")] {
        // A system without IPv6 has no such settings.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/{setting}"), value);
    }
}

/// Says what sessions have carried: of one that is taken out meanwhile nothing, or before whoever took it out hears the last. Otherwise it
/// would be counted twice.
struct UsageReporter {
    event_handler: SharedEventHandler,
    /// One report at a time.
    turn: Mutex<()>,
    /// Sessions that have been taken out since a report was begun.
    removed_sessions: Mutex<Option<BTreeSet<u16>>>,
}

impl UsageReporter {
    fn send_report(&self, ask: impl FnOnce() -> io::Result<Vec<(u16, DataPlaneUsage)>>) -> io::Result<()> {
        let _turn = lock_unpoisoned(&self.turn);
        *lock_unpoisoned(&self.removed_sessions) = Some(BTreeSet::new());
        let asked = ask();
        let mut gone = lock_unpoisoned(&self.removed_sessions);
        let without = gone.take().unwrap_or_default();
        let all: Vec<_> = asked?.into_iter().filter(|(number, _)| !without.contains(number)).collect();
        if !all.is_empty() {
            self.event_handler.send_event(DataPlaneEvent::UsageReport(all));
        }
        Ok(())
    }
    fn exclude_session(&self, number: u16) {
        if let Some(gone) = &mut *lock_unpoisoned(&self.removed_sessions) {
            gone.insert(number);
        }
    }
}

/// Says what sessions have carried, so often.
fn spawn_reporter(
    every: Duration,
    carrier: Arc<dyn ForwardingEngine>,
    reports: Arc<UsageReporter>,
) -> Result<(Sender<()>, JoinHandle<()>), StartError> {
    let (end, ended) = channel::<()>();
    let run = move || {
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = reports.send_report(|| carrier.changed_usages()) {
                let why = format!("what sessions carry cannot be read: {error}");
                return reports.event_handler.send_event(DataPlaneEvent::Failed(why));
            }
        }
    };
    let thread = std::thread::Builder::new().name("pppoe-report".to_owned()).spawn(run);
    Ok((end, thread.map_err(|error| StartError::System { what: "a thread", error })?))
}

impl Drop for PppoeDataPlane {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.reporter.take() {
            drop(end);
            let _ = thread.join();
        }
        if self.closed {
            self.changed.guarded.clear();
            // In eBPF mode the program goes after this. What cannot be closed is as it was before there was a plane.
            for port in &*self.ports {
                let _ = self.netlink.add_guard(port.interface.index, IngressGuard::Pppoe);
            }
        }
        // Routes and addresses of the device go with it.
        for gateway in lock_unpoisoned(&self.installed).gateways.keys() {
            for device in &self.devices {
                let _ = self.netlink.remove_address(*device, *gateway);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_session_that_is_gone_nothing_is_said_behind_its_last() {
        let (said, heard) = channel();
        let hears: EventHandler = Box::new(move |event| drop(said.send(event)));
        let hears = SharedEventHandler(Arc::new(Mutex::new(hears)));
        let reports = UsageReporter {
            event_handler: hears,
            turn: Mutex::default(),
            removed_sessions: Mutex::default(),
        };
        let of =
            |number: u16| (number, DataPlaneUsage { octets_in: number.into(), ..DataPlaneUsage::default() });
        // One goes between being asked for what it has carried and that being said.
        let asked = || {
            reports.exclude_session(2);
            Ok([1, 2, 3].map(of).into())
        };
        reports.send_report(asked).unwrap();
        assert_eq!(heard.try_recv(), Ok(DataPlaneEvent::UsageReport([1, 3].map(of).into())));
        // Another has its number by now.
        reports.exclude_session(3);
        reports.send_report(|| Ok([2, 3].map(of).into())).unwrap();
        assert_eq!(heard.try_recv(), Ok(DataPlaneEvent::UsageReport([2, 3].map(of).into())));
        reports.send_report(|| Ok(Vec::new())).unwrap();
        assert!(heard.try_recv().is_err(), "of none nothing is said");
        reports.send_report(|| Err(io::Error::other("no"))).unwrap_err();
    }
}
