//! The data plane: its sessions, and their addresses and routes.

use crate::engine::{
    AccessPort, AccessPortConfig, AccessPortState, DataPlaneConfig, DataPlaneEvent, DataPlaneMode, EbpfHook,
    ForwardingEngine, SharedEventHandler, StartError, lock_unpoisoned,
};
use crate::interface::{Netlink, PppoeIngressFilter};
use crate::kernel::{self, KernelDataPlane};
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage};
use crate::sys;
use crate::user::UserSpaceDataPlane;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use usher_device::{TunDevice, open_tun};

/// The system's changes for sessions.
#[derive(Default)]
struct InstalledSessions {
    sessions: BTreeMap<u16, DataPlaneSession>,
    /// The gateway addresses, with the number of sessions that use each.
    gateways: BTreeMap<Ipv4Addr, usize>,
    /// The device's own IPv6 addresses.
    own: Vec<Ipv6Addr>,
}

/// A data plane. It ends when it is dropped.
pub struct PppoeDataPlane {
    device: String,
    index: u32,
    states: Vec<AccessPortState>,
    incoming: Vec<String>,
    ports: Arc<[AccessPort]>,
    netlink: Netlink,
    /// The device, and other interfaces with the gateway addresses.
    devices: Vec<u32>,
    installed: Mutex<InstalledSessions>,
    reports: Arc<UsageReporter>,
    reporter: Option<(Sender<()>, JoinHandle<()>)>,
    carrier: Arc<dyn ForwardingEngine>,
    /// Dropped last, after all else is undone.
    changed: AccessInterfaceChanges,
    closed: bool,
}

/// The changes of the access interfaces. A drop undoes them.
struct AccessInterfaceChanges {
    netlink: Netlink,
    /// Interfaces whose filter must be removed.
    guarded: Vec<u32>,
    /// Interfaces whose `rp_filter` was changed, and the earlier value.
    loose: Vec<(u32, u8)>,
    /// Show other planes that this plane, the owner of notes at interfaces, is alive.
    presence_sockets: Vec<UnixDatagram>,
    /// Advice for the administrator.
    warnings: Vec<String>,
}

/// Claims an interface for a plane that may leave a note there, until the socket is dropped. The socket's name is
/// unique in a network namespace and ends with its process. A foreign process that takes the name can only keep notes
/// from being read.
fn claim_interface(index: u32) -> io::Result<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("usher-pppoe-{index}"))?;
    UnixDatagram::bind_addr(&name)
}

/// Returns the path of an interface's reverse path setting.
fn reverse_path(name: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{name}/rp_filter")
}

/// Returns the reverse path setting; `None`: the system has none.
fn read_reverse_path(name: &str) -> Option<u8> {
    std::fs::read_to_string(reverse_path(name)).ok()?.trim().parse().ok()
}

const LOOSE: u8 = 2;
const STRICT: u8 = 1;

impl AccessInterfaceChanges {
    fn install_interface_ingress_filter(&mut self, index: u32, what: PppoeIngressFilter) -> io::Result<()> {
        self.netlink.add_ingress_filter(index, what)?;
        self.guarded.push(index);
        Ok(())
    }
    /// Loosens the reverse path check of an interface (`rp_filter`, RFC 3704 §2.4). The plane checks sources itself.
    /// A note at the interface keeps the earlier value, since this process may be killed.
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
                "cannot loosen rp_filter of {name} ({error}), so the kernel drops packets from hosts' addresses \
                 there: sysctl net.ipv4.conf.{name}.rp_filter=2"
            ));
        }
        Ok(())
    }
    /// Restores the settings that a killed plane changed, unless they have changed since. `keep`: this plane may leave
    /// a note, too.
    fn restore_leftover_settings(&mut self, index: u32, name: &str, keep: bool) {
        // If another plane holds the interface, it is running and handles its own note.
        let Ok(held) = claim_interface(index) else { return };
        if keep {
            self.presence_sockets.push(held);
        }
        if let Some(was) = self.netlink.find_rp_filter_note(index)
            && let Err(error) = self.put_back(index, was)
        {
            self.warnings.push(format!(
                "rp_filter of {name} still has the value of a killed data plane ({error}): sysctl \
                 net.ipv4.conf.{name}.rp_filter={was}"
            ));
        }
    }
    /// Restores a setting. On failure the note stays.
    fn put_back(&self, index: u32, was: u8) -> io::Result<()> {
        // Read the name again, because the interface may have been renamed.
        let name = self.netlink.interface_name(index)?;
        match read_reverse_path(&name) {
            Some(LOOSE) => std::fs::write(reverse_path(&name), was.to_string())?,
            Some(_) => {}
            None => return Err(io::Error::other("its rp_filter cannot be read")),
        }
        self.netlink.remove_rp_filter_note(index, was)
    }
}

impl Drop for AccessInterfaceChanges {
    fn drop(&mut self) {
        for index in &self.guarded {
            let _ = self.netlink.remove_ingress_filter(*index);
        }
        for (index, was) in &self.loose {
            // An error is ignored: the note on the interface tells the next plane what to restore.
            let _ = self.put_back(*index, *was);
        }
    }
}

/// True if this kernel runs eBPF mode's programs before the filters of a queueing discipline.
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
    Ok(Arc::new(crate::ebpf::EbpfDataPlane::start(tun, ports, hook, hears, seed)?))
}

#[cfg(not(ebpf))]
fn start_ebpf(
    _: TunDevice,
    _: Arc<[AccessPort]>,
    hook: EbpfHook,
    _: SharedEventHandler,
    _: u64,
) -> Result<Arc<dyn ForwardingEngine>, StartError> {
    let why =
        "this program was built without eBPF mode; install clang and build it with the feature \"ebpf\""
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
    /// Creates the device, takes over the access interfaces and starts, in the calling thread's network namespace. No
    /// session is installed yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: &DataPlaneConfig,
        hears: Box<dyn FnMut(DataPlaneEvent) + Send>,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let netlink = Netlink::open().map_err(system("cannot open an rtnetlink socket"))?;
        let mut ports: Vec<AccessPort> = Vec::new();
        for AccessPortConfig { interface: name } in &config.ports {
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
        let mut changed = AccessInterfaceChanges {
            netlink: Netlink::open().map_err(system("cannot open an rtnetlink socket"))?,
            guarded: Vec::new(),
            loose: Vec::new(),
            presence_sockets: Vec::new(),
            warnings: Vec::new(),
        };
        let mut seed = [0; 8];
        // An error is ignored: the hash tables work without a random seed, because hosts do not choose their addresses.
        let _ = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let seed = u64::from_ne_bytes(seed);
        let made = match config.mode {
            DataPlaneMode::Kernel => None,
            _ => Some(open_device(&netlink, &config.device, mtu)?),
        };
        // Creating the device fails while another plane runs. It was created above, so no other plane runs now, and none
        // loses its settings.
        for port in &*ports {
            changed.restore_leftover_settings(
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
        let guard = |changed: &mut AccessInterfaceChanges,
                     what: PppoeIngressFilter|
         -> Result<(), StartError> {
            for port in &*ports {
                let interface = |error| StartError::Interface { name: port.name.clone(), error };
                changed.install_interface_ingress_filter(port.interface.index, what).map_err(interface)?;
            }
            Ok(())
        };
        let carrier: Arc<dyn ForwardingEngine> = match (config.mode, made) {
            (DataPlaneMode::Ebpf(hook), Some((made, _))) => {
                // Loosen the reverse path filter of the access interfaces: packets arrive there, while the routes to
                // their sources lead to the device.
                devices.extend(ports.iter().map(|port| port.interface.index));
                for port in &*ports {
                    let interface = |error| StartError::Interface { name: port.name.clone(), error };
                    changed.loosen_reverse_path(port.interface.index, &port.name).map_err(interface)?;
                }
                // If the programs run before the filter, decapsulated packets bypass it. The filter can then stay and
                // protects the interface when no program is attached.
                let before_filter = programs_before_filters();
                if before_filter {
                    guard(&mut changed, PppoeIngressFilter::Pppoe)?;
                }
                let carrier = start_ebpf(made, Arc::clone(&ports), hook, hears.clone(), seed)?;
                // Otherwise remove the filter, which would drop decapsulated packets. The programs themselves drop
                // everything except PPPoE.
                for port in ports.iter().filter(|_| !before_filter) {
                    let interface = |error| StartError::Interface { name: port.name.clone(), error };
                    netlink.remove_ingress_filter(port.interface.index).map_err(interface)?;
                }
                carrier
            }
            (_, Some((made, _))) => {
                guard(&mut changed, PppoeIngressFilter::Pppoe)?;
                Arc::new(UserSpaceDataPlane::start(made, Arc::clone(&ports), hears.clone(), seed)?)
            }
            (_, None) => {
                guard(&mut changed, PppoeIngressFilter::WithoutPadt)?;
                Arc::new(KernelDataPlane::start(&config.device, Arc::clone(&ports), hears.clone(), seed)?)
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
        let states = ports.iter().enumerate().map(|(number, port)| AccessPortState {
            interface: port.name.clone(),
            mac: port.interface.address,
            mtu: u16::try_from(port.interface.mtu).unwrap_or(u16::MAX),
            hook: carrier.port_hook(number),
        });
        let states: Vec<AccessPortState> = states.collect();
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

    /// Returns the device's name. In kernel mode it is the prefix of the sessions' interfaces, followed by `*`.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device
    }
    /// Returns the ports, in their order.
    #[must_use]
    pub fn ports(&self) -> &[AccessPortState] {
        &self.states
    }
    /// Returns the ingress interfaces of hosts' packets for a packet filter: the device, or in eBPF mode the access
    /// interfaces.
    #[must_use]
    pub fn incoming_interfaces(&self) -> &[String] {
        &self.incoming
    }
    /// Returns warnings about settings that could not be changed at the start, with advice for the administrator.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.changed.warnings
    }
    /// Sends a frame by a port, from the destination address on. A frame that the kernel refuses, or for an unknown
    /// port, is dropped.
    pub fn send_frame(&self, port: usize, frame: &[u8]) {
        if let Some(port) = self.ports.get(port) {
            let _ = sys::send_frame(&port.discovery, frame);
        }
    }

    /// Replaces the device's own IPv6 addresses. In kernel mode there is no such device.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace_own_addresses(&self, addresses: &[Ipv6Addr]) -> io::Result<()> {
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

    /// Installs or updates a session, and routes its networks to the device. Its packets pass once this returns. An
    /// update keeps the usage.
    ///
    /// # Errors
    /// The session is invalid ([`SessionInstallError`](crate::SessionInstallError) within an error of the kind `InvalidInput`), and
    /// nothing has changed. Or the kernel refuses a route, and the session is not installed.
    pub fn install_session(&self, session: DataPlaneSession) -> io::Result<()> {
        let mut installed = lock_unpoisoned(&self.installed);
        self.carrier.install(&session)?;
        let done = self.add_routes(&mut installed, &session);
        let number = session.number;
        installed.sessions.insert(number, session);
        if done.is_err() {
            self.remove_installed_session(&mut installed, number)?;
        }
        done
    }

    fn add_routes(&self, installed: &mut InstalledSessions, session: &DataPlaneSession) -> io::Result<()> {
        let before = installed.sessions.remove(&session.number);
        if let Some(own) = self.carrier.session_interface(session.number)? {
            return self.install_interface_routes(own, before.as_ref(), session);
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

    /// Adds the addresses and routes of a session with an interface of its own.
    fn install_interface_routes(
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

    /// Releases a session's use of a gateway address.
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

    fn remove_installed_session(
        &self,
        installed: &mut InstalledSessions,
        number: u16,
    ) -> io::Result<Option<DataPlaneUsage>> {
        let own = self.carrier.session_interface(number)?;
        // Stop the session's traffic first, because errors with its routes must not restart it.
        let usage = self.carrier.remove(number)?;
        self.reports.exclude_removed_session(number);
        let Some(session) = installed.sessions.remove(&number) else { return Ok(usage) };
        if let Some(own) = own {
            // Errors are ignored: at the latest, the routes disappear with the session's interface.
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
    /// Removes a session. Its packets are dropped once this returns. Returns its usage; `None`: there was no session.
    ///
    /// # Errors
    /// The kernel's error. The session's packets are dropped nevertheless.
    pub fn remove_session(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.remove_installed_session(&mut lock_unpoisoned(&self.installed), number)
    }
    /// Returns a session's usage. `None`: there is no session.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn session_usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.carrier.usage(number)
    }
    /// Reports the usage of all sessions now ([`DataPlaneEvent::UsageReport`]).
    pub fn report_usage(&self) {
        let numbers: Vec<u16> = lock_unpoisoned(&self.installed).sessions.keys().copied().collect();
        // Leave out sessions whose usage the kernel cannot report.
        let of = |number| Some((number, self.carrier.usage(number).ok()??));
        let _ = self.reports.send_usage_report(|| Ok(numbers.into_iter().filter_map(of).collect()));
    }
    /// Returns the counters.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn counters(&self) -> io::Result<DataPlaneCounters> {
        self.carrier.counters()
    }
}

/// True if a network is already routed to a session.
fn is_routed_to(session: Option<&DataPlaneSession>, network: (IpAddr, u8)) -> bool {
    session.is_some_and(|session| session.all_networks().any(|one| one == network))
}

/// Opens the device of user or eBPF mode. Returns it with its index.
fn open_device(netlink: &Netlink, name: &str, mtu: u32) -> Result<(TunDevice, u32), StartError> {
    let made = open_tun(name, mtu).map_err(|error| StartError::Device { name: name.to_owned(), error })?;
    let index = netlink.interface_index(&made.name);
    let index =
        index.map_err(|error| StartError::System { what: "cannot read the index of the device", error })?;
    suppress_device_solicitations(&made.name);
    Ok((made, index))
}

/// Stops the kernel's own packets on the device, such as Router Solicitations: hosts must not receive them.
fn suppress_device_solicitations(device: &str) {
    for (setting, value) in [("disable_ipv6", "1"), ("addr_gen_mode", "1"), ("disable_ipv6", "0")] {
        // An error is ignored: a system without IPv6 has no such settings.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/{setting}"), value);
    }
}

/// Reports the usage of sessions. A report has no session that was removed meanwhile: the remover gets the final usage,
/// and a later report would count it twice.
struct UsageReporter {
    event_handler: SharedEventHandler,
    /// Serializes reports.
    turn: Mutex<()>,
    /// The sessions removed since the current report began.
    removed_sessions: Mutex<Option<BTreeSet<u16>>>,
}

impl UsageReporter {
    fn send_usage_report(
        &self,
        ask: impl FnOnce() -> io::Result<Vec<(u16, DataPlaneUsage)>>,
    ) -> io::Result<()> {
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
    fn exclude_removed_session(&self, number: u16) {
        if let Some(gone) = &mut *lock_unpoisoned(&self.removed_sessions) {
            gone.insert(number);
        }
    }
}

/// Starts the thread of periodic reports.
fn spawn_reporter(
    every: Duration,
    carrier: Arc<dyn ForwardingEngine>,
    reports: Arc<UsageReporter>,
) -> Result<(Sender<()>, JoinHandle<()>), StartError> {
    let (end, ended) = channel::<()>();
    let run = move || {
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = reports.send_usage_report(|| carrier.changed_usages()) {
                let why = format!("cannot read the traffic counters of sessions: {error}");
                return reports.event_handler.send_event(DataPlaneEvent::Failed(why));
            }
        }
    };
    let thread = std::thread::Builder::new().name("pppoe-report".to_owned()).spawn(run);
    Ok((end, thread.map_err(|error| StartError::System { what: "cannot start a thread", error })?))
}

impl Drop for PppoeDataPlane {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.reporter.take() {
            drop(end);
            let _ = thread.join();
        }
        if self.closed {
            self.changed.guarded.clear();
            // Filter the interface before the eBPF program is detached from it. If this fails, the interface is as it
            // was before the plane.
            for port in &*self.ports {
                let _ = self.netlink.add_ingress_filter(port.interface.index, PppoeIngressFilter::Pppoe);
            }
        }
        // Deleting the device also removes its routes and addresses.
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
    use crate::engine::DataPlaneEventHandler;

    #[test]
    fn of_a_session_that_is_gone_nothing_is_said_behind_its_last() {
        let (said, heard) = channel();
        let hears: DataPlaneEventHandler = Box::new(move |event| drop(said.send(event)));
        let hears = SharedEventHandler(Arc::new(Mutex::new(hears)));
        let reports = UsageReporter {
            event_handler: hears,
            turn: Mutex::default(),
            removed_sessions: Mutex::default(),
        };
        let of =
            |number: u16| (number, DataPlaneUsage { octets_in: number.into(), ..DataPlaneUsage::default() });
        // Session 2 is removed between the query and the report.
        let asked = || {
            reports.exclude_removed_session(2);
            Ok([1, 2, 3].map(of).into())
        };
        reports.send_usage_report(asked).unwrap();
        assert_eq!(heard.try_recv(), Ok(DataPlaneEvent::UsageReport([1, 3].map(of).into())));
        // A removal between two reports does not affect the next: the SESSION_ID may be in use again.
        reports.exclude_removed_session(3);
        reports.send_usage_report(|| Ok([2, 3].map(of).into())).unwrap();
        assert_eq!(heard.try_recv(), Ok(DataPlaneEvent::UsageReport([2, 3].map(of).into())));
        reports.send_usage_report(|| Ok(Vec::new())).unwrap();
        assert!(heard.try_recv().is_err(), "of none nothing is said");
        reports.send_usage_report(|| Err(io::Error::other("no"))).unwrap_err();
    }
}
