//! eBPF mode: packets stay in the kernel. At the access interface a program takes PPPoE off (XDP or tc), so that the system routes,
//! translates and tracks plain IP; at the device to which packets for hosts are routed another puts it on (tc), and sends them by
//! the access interface. Sessions stand in maps, and what they carry is counted by each processor for itself. `program.c` has more.
//!
//! The programs are C, compiled when this crate is, and loaded by aya, which is Rust alone and well kept; the kernel's links hold
//! them where they are, and let go of them when this program ends, however it does.

mod layout;

use crate::control::Listener;
use crate::forward::Prefixes;
use crate::interface::Netlink;
use crate::plane::{Carrier, Heard, Port, locked};
use crate::session::{Counters, Session, SessionError, Usage};
use crate::{Hook, Mode, StartError};
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
use usher_device::Tun;

static PROGRAM: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/program.o"));

/// Since this version of Linux programs of tc are held by links of the kernel's, and need no queueing discipline.
const TCX: (u8, u8, u16) = (6, 6, 0);

/// Whether that is so here. A kernel that does not say which it is is a new one.
pub(crate) fn has_tcx() -> bool {
    !KernelVersion::current().is_ok_and(|version| version < KernelVersion::new(TCX.0, TCX.1, TCX.2))
}

/// What stands in the kernel.
struct Maps {
    sessions: Array<MapData, [u8; layout::SESSION]>,
    usages: PerCpuArray<MapData, [u8; layout::USAGE]>,
    hosts: HashMap<MapData, [u8; 4], u32>,
    networks4: LpmTrie<MapData, [u8; 4], u32>,
    networks6: LpmTrie<MapData, [u8; 16], u32>,
    counters: PerCpuArray<MapData, u64>,
}

/// Sessions that are asked for what they have carried while nobody else is heard.
const AT_ONCE: usize = 64;

struct State {
    maps: Maps,
    sessions: BTreeMap<u16, Session>,
    ipv4: Prefixes,
    ipv6: Prefixes,
    /// What was said last of each.
    said: BTreeMap<u16, Usage>,
}

/// The programs at their places, until it is dropped.
pub(crate) struct EbpfMode {
    state: Mutex<State>,
    ports: Arc<[Port]>,
    /// Of each port.
    hooks: Vec<Hook>,
    netlink: Netlink,
    /// The near end of the pair that cuts.
    near: String,
    listener: Option<Listener>,
    /// Programs are where they are as long as this is there, and the device as long as somebody holds it.
    _held: (Ebpf, Tun),
}

fn refused(why: impl std::fmt::Display) -> StartError {
    let why = format!("{why}; this needs root or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and Linux 5.18");
    StartError::Mode { mode: Mode::Ebpf(Hook::Auto), why }
}

/// What the kernel says of a map.
fn said(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        other => io::Error::other(other),
    }
}

fn attach(programs: &mut Ebpf, name: &str, interface: &str, at: TcAttachType) -> Result<(), StartError> {
    let cannot =
        |error: &dyn std::fmt::Display| refused(format!("program \"{name}\" at {interface}: {error}"));
    let program = programs.program_mut(name).ok_or_else(|| cannot(&"it is not there"))?;
    let program: &mut SchedClassifier = program.try_into().map_err(|error| cannot(&error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| cannot(&error))?;
    }
    if !has_tcx() {
        // It may be there already; if it is not, attaching says why.
        let _ = qdisc_add_clsact(interface);
    }
    program.attach(interface, at).map(drop).map_err(|error| cannot(&error))
}

/// Puts the programs where a port's packets come in; which hook they have there.
fn take_up(programs: &mut Ebpf, port: &Port, hook: Hook) -> Result<Hook, StartError> {
    let name = &port.name;
    let by_xdp = match hook {
        Hook::Tc => false,
        // Native where the driver can, generic elsewhere.
        Hook::Xdp => attach_xdp(programs, name, XdpMode::Default).map(|()| true)?,
        Hook::Auto => !port.interface.veth && attach_xdp(programs, name, XdpMode::Driver).is_ok(),
    };
    let (program, hook) = match (by_xdp, has_tcx()) {
        (true, true) => ("lower", Hook::Xdp),
        (true, false) => ("lower_only", Hook::Xdp),
        (false, true) => ("access_tc", Hook::Tc),
        (false, false) => ("access_tc_only", Hook::Tc),
    };
    attach(programs, program, name, TcAttachType::Ingress)?;
    Ok(hook)
}

fn attach_xdp(programs: &mut Ebpf, interface: &str, by: XdpMode) -> Result<(), StartError> {
    let cannot =
        |error: &dyn std::fmt::Display| refused(format!("program \"access\" at {interface}: {error}"));
    let program = programs.program_mut("access").ok_or_else(|| cannot(&"it is not there"))?;
    let program: &mut Xdp = program.try_into().map_err(|error| cannot(&error))?;
    if program.fd().is_err() {
        program.load().map_err(|error| cannot(&error))?;
    }
    program.attach(interface, by).map(drop).map_err(|error| cannot(&error))
}

impl Maps {
    fn take(programs: &mut Ebpf) -> Result<Self, StartError> {
        let mut map =
            |name: &str| programs.take_map(name).ok_or_else(|| refused(format!("no map \"{name}\"")));
        Ok(Self {
            sessions: map("sessions")?.try_into().map_err(refused)?,
            usages: map("usages")?.try_into().map_err(refused)?,
            hosts: map("hosts")?.try_into().map_err(refused)?,
            networks4: map("networks4")?.try_into().map_err(refused)?,
            networks6: map("networks6")?.try_into().map_err(refused)?,
            counters: map("counters")?.try_into().map_err(refused)?,
        })
    }

    fn usage(&self, number: u16) -> io::Result<Usage> {
        let values = self.usages.get(&number.into(), 0).map_err(said)?;
        Ok(values.iter().map(layout::usage).fold(Usage::default(), Usage::plus))
    }
    fn forget_usage(&mut self, number: u16) -> io::Result<()> {
        let none = vec![[0; layout::USAGE]; nr_cpus().map_err(|(_, error)| error)?];
        self.usages.set(number.into(), PerCpuValues::try_from(none)?, 0).map_err(said)
    }
    /// Puts a session in its place. Programs may read while it is written: first nothing is its host's, and at last all is.
    fn put(&mut self, number: u16, octets: [u8; layout::SESSION]) -> io::Result<()> {
        let key = u32::from(number);
        for (from, counts) in
            [(self.sessions.get(&key, 0).map_err(said)?, false), (octets, false), (octets, true)]
        {
            let mut octets = from;
            if !counts {
                octets[layout::COUNTS..].fill(0);
            }
            self.sessions.set(key, octets, 0).map_err(said)?;
        }
        Ok(())
    }

    /// Packets to a network are this session's.
    fn lead(&mut self, (network, bits): (IpAddr, u8), number: u16) -> io::Result<()> {
        let number = u32::from(number);
        let done = match network {
            IpAddr::V4(ip) if bits == 32 => self.hosts.insert(ip.octets(), number, 0),
            IpAddr::V4(ip) => self.networks4.insert(&Key::new(bits.into(), ip.octets()), number, 0),
            IpAddr::V6(ip) => self.networks6.insert(&Key::new(bits.into(), ip.octets()), number, 0),
        };
        done.map_err(said)
    }
    /// They are nobody's.
    fn leave(&mut self, (network, bits): (IpAddr, u8)) -> io::Result<()> {
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
            done => done.map_err(said),
        }
    }
}

impl State {
    fn prefixes(&mut self, of: IpAddr) -> &mut Prefixes {
        if of.is_ipv4() { &mut self.ipv4 } else { &mut self.ipv6 }
    }

    fn install(&mut self, session: &Session, ports: &[Port]) -> io::Result<()> {
        let wrong = |error: SessionError| io::Error::new(io::ErrorKind::InvalidInput, error);
        session.check(ports.len()).map_err(wrong)?;
        for (network, bits) in session.all_networks() {
            let owner = self.prefixes(network).owner_of(network, bits);
            if let Some(other) = owner.filter(|other| *other != session.number) {
                return Err(wrong(SessionError::Taken { network, bits, other }));
            }
        }
        let number = session.number;
        let port = &ports[session.port].interface;
        let before = match self.sessions.contains_key(&number) {
            true => Some(self.maps.sessions.get(&number.into(), 0).map_err(said)?),
            false => None,
        };
        let octets = layout::session(session, port.index, port.address, before.as_ref()).map_err(wrong)?;
        if before.is_none() {
            self.maps.forget_usage(number)?;
        }
        self.maps.put(number, octets)?;
        if let Some(before) = self.sessions.insert(number, session.clone()) {
            for network in
                before.all_networks().filter(|one| session.all_networks().all(|other| other != *one))
            {
                self.maps.leave(network)?;
                self.prefixes(network.0).remove_of(network.0, network.1);
            }
        }
        for network in session.all_networks() {
            self.maps.lead(network, number)?;
            self.prefixes(network.0).insert_of(network.0, network.1, number);
        }
        Ok(())
    }

    fn remove(&mut self, number: u16) -> io::Result<Option<Usage>> {
        let Some(session) = self.sessions.remove(&number) else { return Ok(None) };
        self.maps.put(number, [0; layout::SESSION])?;
        for network in session.all_networks() {
            self.maps.leave(network)?;
            self.prefixes(network.0).remove_of(network.0, network.1);
        }
        self.said.remove(&number);
        self.maps.usage(number).map(Some)
    }
}

impl EbpfMode {
    pub(crate) fn start(
        tun: Tun,
        ports: Arc<[Port]>,
        hook: Hook,
        hears: Heard,
        seed: u64,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let mut programs = Ebpf::load(PROGRAM).map_err(refused)?;
        let mut by = programs.take_map("cutter").and_then(|map| Array::<_, u32>::try_from(map).ok());
        let maps = Maps::take(&mut programs)?;
        let netlink = Netlink::open().map_err(system("a socket of rtnetlink"))?;
        // Names of interfaces have 15 octets.
        let [near, far] = ["-a", "-b"].map(|end| format!("{:.13}{end}", tun.name));
        let pair = netlink.add_cutter(&near, &far);
        let index = pair.map_err(|error| StartError::Device { name: near.clone(), error })?;
        let state = State {
            maps,
            sessions: BTreeMap::new(),
            ipv4: Prefixes::new(seed),
            ipv6: Prefixes::new(seed),
            said: BTreeMap::new(),
        };
        // From here on its end takes everything away again.
        let mut mode = Self {
            state: Mutex::new(state),
            ports: Arc::clone(&ports),
            hooks: Vec::new(),
            netlink,
            near,
            listener: None,
            _held: (programs, tun),
        };
        let (programs, tun) = &mut mode._held;
        by.as_mut().ok_or_else(|| refused("no map \"cutter\""))?.set(0, index, 0).map_err(refused)?;
        attach(programs, "cut", &far, TcAttachType::Ingress)?;
        attach(programs, "host", &tun.name, TcAttachType::Egress)?;
        for port in &*ports {
            mode.hooks.push(take_up(programs, port, hook)?);
        }
        // What comes up to here the programs let pass.
        mode.listener = Some(Listener::begin(ports, hears, |_, _| true)?);
        Ok(mode)
    }
}

impl Drop for EbpfMode {
    fn drop(&mut self) {
        // It lets packets of IP pass the filter, and may not do so for a moment without XDP, which judges them.
        if let Some(Ok(lower)) = self._held.0.program_mut("lower").map(<&mut SchedClassifier>::try_from) {
            let _ = lower.unload();
        }
        let _ = self.netlink.remove_link(&self.near);
    }
}

impl Carrier for EbpfMode {
    fn install(&self, session: &Session) -> io::Result<()> {
        locked(&self.state).install(session, &self.ports)
    }
    fn remove(&self, number: u16) -> io::Result<Option<Usage>> {
        locked(&self.state).remove(number)
    }
    fn usage(&self, number: u16) -> io::Result<Option<Usage>> {
        let state = locked(&self.state);
        match state.sessions.contains_key(&number) {
            true => state.maps.usage(number).map(Some),
            false => Ok(None),
        }
    }
    fn changed(&self) -> io::Result<Vec<(u16, Usage)>> {
        let state = locked(&self.state);
        let numbers: Vec<u16> = state.sessions.keys().copied().collect();
        drop(state);
        let mut changed = Vec::new();
        // Whoever installs or removes one meanwhile has its turn soon.
        for some in numbers.chunks(AT_ONCE) {
            let mut state = locked(&self.state);
            for number in
                some.iter().copied().filter(|number| state.sessions.contains_key(number)).collect::<Vec<_>>()
            {
                let usage = state.maps.usage(number)?;
                if state.said.insert(number, usage).unwrap_or_default() != usage {
                    changed.push((number, usage));
                }
            }
        }
        Ok(changed)
    }
    fn hook(&self, port: usize) -> Option<Hook> {
        self.hooks.get(port).copied()
    }
    fn counters(&self) -> io::Result<Counters> {
        let state = locked(&self.state);
        let mut n = [0; layout::COUNTERS];
        for (at, n) in (0..).zip(&mut n) {
            *n = state.maps.counters.get(&at, 0).map_err(said)?.iter().sum();
        }
        Ok(layout::counters(n))
    }
}
