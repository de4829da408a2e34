//! eBPF mode: packets stay in the kernel.
//!
//! At the access interface a program removes PPPoE (XDP or tc), so that the system routes, translates and tracks plain
//! IP. At the device to which packets for hosts are routed, another program adds PPPoE (tc) and redirects them to the
//! access interface. Maps hold the sessions, and per-processor counters their usage. See `program.c`.
//!
//! The programs are C, compiled with this crate. aya loads them, a well maintained crate in pure Rust. BPF links hold
//! the programs in place, and detach them when this process ends in any way.

mod layout;

use crate::control::ControlFrameListener;
use crate::engine::{AccessPort, ForwardingEngine, SharedEventHandler, lock_unpoisoned};
use crate::forward::PrefixTable;
use crate::interface::Netlink;
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
use crate::{DataPlaneMode, EbpfHook, StartError};
use aya::maps::lpm_trie::Key;
use aya::maps::{Array, HashMap, LpmTrie, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::programs::tc::qdisc_add_clsact;
use aya::programs::{SchedClassifier, TcAttachType, Xdp, XdpMode};
use aya::util::{KernelVersion, nr_cpus};
use aya::{Ebpf, include_bytes_aligned};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use usher_device::TunDevice;

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/program.o"));

/// The first version of Linux with BPF links for tc programs (tcx), which need no queueing discipline.
const TCX: (u8, u8, u16) = (6, 6, 0);

/// True if this kernel has tcx. A kernel with an unknown version counts as new.
pub(crate) fn has_tcx() -> bool {
    !KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(TCX.0, TCX.1, TCX.2))
}

/// The maps in the kernel.
struct BpfMaps {
    sessions: Array<MapData, [u8; layout::SESSION]>,
    usages: PerCpuArray<MapData, [u8; layout::USAGE]>,
    hosts: HashMap<MapData, [u8; 4], u32>,
    networks4: LpmTrie<MapData, [u8; 4], u32>,
    networks6: LpmTrie<MapData, [u8; 16], u32>,
    counters: PerCpuArray<MapData, u64>,
}

/// Sessions read per hold of the lock, for a usage report.
const AT_ONCE: usize = 64;

struct EbpfState {
    maps: BpfMaps,
    sessions: BTreeMap<u16, DataPlaneSession>,
    ipv4: PrefixTable,
    ipv6: PrefixTable,
    /// The last reported usage of each session.
    last_reported: BTreeMap<u16, DataPlaneUsage>,
}

/// The attached programs. A drop detaches them.
pub(crate) struct EbpfDataPlane {
    state: Mutex<EbpfState>,
    ports: Arc<[AccessPort]>,
    /// The hook of each port.
    hooks: Vec<EbpfHook>,
    netlink: Netlink,
    /// The near end of the veth pair that segments packets.
    near: String,
    listener: Option<ControlFrameListener>,
    /// Keeps the programs attached and the device in existence.
    _attachments: (Ebpf, TunDevice),
}

fn ebpf_unavailable(why: impl std::fmt::Display) -> StartError {
    let why =
        format!("{why}; this needs Linux 5.18 or later, and root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON");
    StartError::Mode { mode: DataPlaneMode::Ebpf(EbpfHook::Auto), why }
}

/// Converts an error of a map.
fn map_io_error(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

fn attach_program(
    programs: &mut Ebpf,
    name: &str,
    interface: &str,
    at: TcAttachType,
) -> Result<(), StartError> {
    let cannot = |error: &dyn std::fmt::Display| {
        ebpf_unavailable(format!("program \"{name}\" at {interface}: {error}"))
    };
    let program = programs.program_mut(name).ok_or_else(|| cannot(&"the object file lacks it"))?;
    let program: &mut SchedClassifier = program.try_into().map_err(|error| cannot(&error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| cannot(&error))?;
    }
    if !has_tcx() {
        // An error is ignored: the clsact qdisc may already exist. If it is missing, attaching the program reports why.
        let _ = qdisc_add_clsact(interface);
    }
    program.attach(interface, at).map(drop).map_err(|error| cannot(&error))
}

/// Attaches the program of a port's ingress. Returns its hook.
fn take_up(programs: &mut Ebpf, port: &AccessPort, hook: EbpfHook) -> Result<EbpfHook, StartError> {
    let name = &port.name;
    let by_xdp = match hook {
        EbpfHook::Tc => false,
        // XdpMode::Default uses native XDP if the driver supports it, and generic XDP otherwise.
        EbpfHook::Xdp => attach_xdp(programs, name, XdpMode::Default).map(|()| true)?,
        EbpfHook::Auto => !port.interface.veth && attach_xdp(programs, name, XdpMode::Driver).is_ok(),
    };
    let (program, hook) = match (by_xdp, has_tcx()) {
        (true, true) => ("lower", EbpfHook::Xdp),
        (true, false) => ("lower_only", EbpfHook::Xdp),
        (false, true) => ("access_tc", EbpfHook::Tc),
        (false, false) => ("access_tc_only", EbpfHook::Tc),
    };
    attach_program(programs, program, name, TcAttachType::Ingress)?;
    Ok(hook)
}

fn attach_xdp(programs: &mut Ebpf, interface: &str, by: XdpMode) -> Result<(), StartError> {
    let cannot = |error: &dyn std::fmt::Display| {
        ebpf_unavailable(format!("program \"access\" at {interface}: {error}"))
    };
    let program = programs.program_mut("access").ok_or_else(|| cannot(&"the object file lacks it"))?;
    let program: &mut Xdp = program.try_into().map_err(|error| cannot(&error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| cannot(&error))?;
    }
    program.attach(interface, by).map(drop).map_err(|error| cannot(&error))
}

impl BpfMaps {
    fn from_programs(programs: &mut Ebpf) -> Result<Self, StartError> {
        let mut map = |name: &str| {
            programs
                .take_map(name)
                .ok_or_else(|| ebpf_unavailable(format!("the object file lacks the map \"{name}\"")))
        };
        Ok(Self {
            sessions: map("sessions")?.try_into().map_err(ebpf_unavailable)?,
            usages: map("usages")?.try_into().map_err(ebpf_unavailable)?,
            hosts: map("hosts")?.try_into().map_err(ebpf_unavailable)?,
            networks4: map("networks4")?.try_into().map_err(ebpf_unavailable)?,
            networks6: map("networks6")?.try_into().map_err(ebpf_unavailable)?,
            counters: map("counters")?.try_into().map_err(ebpf_unavailable)?,
        })
    }

    fn read_usage(&self, number: u16) -> io::Result<DataPlaneUsage> {
        let values = self.usages.get(&number.into(), 0).map_err(map_io_error)?;
        Ok(values.iter().map(layout::decode_usage).fold(DataPlaneUsage::default(), DataPlaneUsage::sum_with))
    }
    fn remove_usage(&mut self, number: u16) -> io::Result<()> {
        let none = vec![[0; layout::USAGE]; nr_cpus().map_err(|(_, error)| error)?];
        self.usages.set(number.into(), PerCpuValues::try_from(none)?, 0).map_err(map_io_error)
    }
    /// Writes a session's entry. Programs may read it meanwhile: write zero network counts first and the real ones
    /// last.
    fn write_session(&mut self, number: u16, octets: [u8; layout::SESSION]) -> io::Result<()> {
        let key = u32::from(number);
        for (from, counts) in
            [(self.sessions.get(&key, 0).map_err(map_io_error)?, false), (octets, false), (octets, true)]
        {
            let mut octets = from;
            if !counts {
                octets[layout::COUNTS..].fill(0);
            }
            self.sessions.set(key, octets, 0).map_err(map_io_error)?;
        }
        Ok(())
    }

    /// Routes packets of a network to a session.
    fn add_network(&mut self, (network, bits): (IpAddr, u8), number: u16) -> io::Result<()> {
        let number = u32::from(number);
        let done = match network {
            IpAddr::V4(ip) if bits == 32 => self.hosts.insert(ip.octets(), number, 0),
            IpAddr::V4(ip) => self.networks4.insert(&Key::new(bits.into(), ip.octets()), number, 0),
            IpAddr::V6(ip) => self.networks6.insert(&Key::new(bits.into(), ip.octets()), number, 0),
        };
        done.map_err(map_io_error)
    }
    /// Removes a network from its session.
    fn remove_network(&mut self, (network, bits): (IpAddr, u8)) -> io::Result<()> {
        let done = match network {
            IpAddr::V4(ip) if bits == 32 => self.hosts.remove(&ip.octets()),
            IpAddr::V4(ip) => self.networks4.remove(&Key::new(bits.into(), ip.octets())),
            IpAddr::V6(ip) => self.networks6.remove(&Key::new(bits.into(), ip.octets())),
        };
        match done {
            Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::ENOENT) => {
                Ok(())
            }
            done => done.map_err(map_io_error),
        }
    }
}

impl EbpfState {
    fn prefix_table(&mut self, of: IpAddr) -> &mut PrefixTable {
        if of.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 }
    }

    fn install(&mut self, session: &DataPlaneSession, ports: &[AccessPort]) -> io::Result<()> {
        let wrong = |error: SessionInstallError| io::Error::new(io::ErrorKind::InvalidInput, error);
        session.validate(ports.len()).map_err(wrong)?;
        for (network, bits) in session.all_networks() {
            let owner = self.prefix_table(network).session_of_exact_prefix(network, bits);
            if let Some(other) = owner.filter(|other| *other != session.number) {
                return Err(wrong(SessionInstallError::NetworkTaken { network, bits, other }));
            }
        }
        let number = session.number;
        let port = &ports[session.port].interface;
        let before = match self.sessions.contains_key(&number) {
            true => Some(self.maps.sessions.get(&number.into(), 0).map_err(map_io_error)?),
            false => None,
        };
        let octets =
            layout::encode_session(session, port.index, port.address, before.as_ref()).map_err(wrong)?;
        if before.is_none() {
            self.maps.remove_usage(number)?;
        }
        self.maps.write_session(number, octets)?;
        if let Some(before) = self.sessions.insert(number, session.clone()) {
            for network in
                before.all_networks().filter(|one| session.all_networks().all(|other| other != *one))
            {
                self.maps.remove_network(network)?;
                self.prefix_table(network.0).remove_prefix_owner(network.0, network.1);
            }
        }
        for network in session.all_networks() {
            self.maps.add_network(network, number)?;
            self.prefix_table(network.0).insert_prefix_owner(network.0, network.1, number);
        }
        Ok(())
    }

    fn remove(&mut self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        let Some(session) = self.sessions.remove(&number) else { return Ok(None) };
        self.maps.write_session(number, [0; layout::SESSION])?;
        for network in session.all_networks() {
            self.maps.remove_network(network)?;
            self.prefix_table(network.0).remove_prefix_owner(network.0, network.1);
        }
        self.last_reported.remove(&number);
        self.maps.read_usage(number).map(Some)
    }
}

impl EbpfDataPlane {
    pub(crate) fn start(
        tun: TunDevice,
        ports: Arc<[AccessPort]>,
        hook: EbpfHook,
        hears: SharedEventHandler,
        seed: u64,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let mut programs = Ebpf::load(PROGRAM).map_err(ebpf_unavailable)?;
        let mut by = programs.take_map("cutter").and_then(|map| Array::<_, u32>::try_from(map).ok());
        let maps = BpfMaps::from_programs(&mut programs)?;
        let netlink = Netlink::open().map_err(system("cannot open an rtnetlink socket"))?;
        // Shorten the names, because an interface name has at most 15 octets.
        let [near, far] = ["-a", "-b"].map(|end| format!("{:.13}{end}", tun.name));
        let pair = netlink.add_segmenting_veth(&near, &far);
        let index = pair.map_err(|error| StartError::Device { name: near.clone(), error })?;
        let state = EbpfState {
            maps,
            sessions: BTreeMap::new(),
            ipv4: PrefixTable::new(seed),
            ipv6: PrefixTable::new(seed),
            last_reported: BTreeMap::new(),
        };
        // From here on, dropping this value undoes all changes.
        let mut mode = Self {
            state: Mutex::new(state),
            ports: Arc::clone(&ports),
            hooks: Vec::new(),
            netlink,
            near,
            listener: None,
            _attachments: (programs, tun),
        };
        let (programs, tun) = &mut mode._attachments;
        by.as_mut()
            .ok_or_else(|| ebpf_unavailable("the object file lacks the map \"cutter\""))?
            .set(0, index, 0)
            .map_err(ebpf_unavailable)?;
        attach_program(programs, "cut", &far, TcAttachType::Ingress)?;
        attach_program(programs, "host", &tun.name, TcAttachType::Egress)?;
        for port in &*ports {
            mode.hooks.push(take_up(programs, port, hook)?);
        }
        // The eBPF programs pass only control frames to this socket, so it needs no filter.
        mode.listener = Some(ControlFrameListener::start(ports, hears, |_, _| true)?);
        Ok(mode)
    }
}

impl Drop for EbpfDataPlane {
    fn drop(&mut self) {
        // Detach this program first: it makes IP packets bypass the filter, and nothing checks them once XDP is
        // detached.
        if let Some(Ok(lower)) =
            self._attachments.0.program_mut("lower").map(<&mut SchedClassifier>::try_from)
        {
            let _ = lower.unload();
        }
        let _ = self.netlink.remove_link(&self.near);
    }
}

impl ForwardingEngine for EbpfDataPlane {
    fn install(&self, session: &DataPlaneSession) -> io::Result<()> {
        lock_unpoisoned(&self.state).install(session, &self.ports)
    }
    fn remove(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        lock_unpoisoned(&self.state).remove(number)
    }
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        let state = lock_unpoisoned(&self.state);
        match state.sessions.contains_key(&number) {
            true => state.maps.read_usage(number).map(Some),
            false => Ok(None),
        }
    }
    fn changed_usages(&self) -> io::Result<Vec<(u16, DataPlaneUsage)>> {
        let state = lock_unpoisoned(&self.state);
        let numbers: Vec<u16> = state.sessions.keys().copied().collect();
        drop(state);
        let mut changed = Vec::new();
        // Release the lock between chunks, so that sessions can be installed and removed meanwhile.
        for some in numbers.chunks(AT_ONCE) {
            let mut state = lock_unpoisoned(&self.state);
            for number in
                some.iter().copied().filter(|number| state.sessions.contains_key(number)).collect::<Vec<_>>()
            {
                let usage = state.maps.read_usage(number)?;
                if state.last_reported.insert(number, usage).unwrap_or_default() != usage {
                    changed.push((number, usage));
                }
            }
        }
        Ok(changed)
    }
    fn port_hook(&self, port: usize) -> Option<EbpfHook> {
        self.hooks.get(port).copied()
    }
    fn counters(&self) -> io::Result<DataPlaneCounters> {
        let state = lock_unpoisoned(&self.state);
        let mut n = [0; layout::COUNTERS];
        for (at, n) in (0..).zip(&mut n) {
            *n = state.maps.counters.get(&at, 0).map_err(map_io_error)?.iter().sum();
        }
        Ok(layout::decode_counters(n))
    }
}
