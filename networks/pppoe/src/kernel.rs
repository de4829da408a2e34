//! Kernel mode: the kernel's own PPPoE.
//!
//! Each session has a PPPoX socket, whose frames the kernel decapsulates and encapsulates, and a PPP interface
//! connected to it. Traffic control at that interface checks sources and rates. Packet sockets receive discovery and
//! PPP's control protocols, as in the other modes.
//!
//! A single thread makes all requests to the kernel. It stays in the network namespace in which the plane was started.

mod filter;
mod traffic;

use crate::control::ControlFrameListener;
use crate::engine::{AccessPort, ForwardingEngine, SharedEventHandler, lock_unpoisoned};
use crate::forward::ForwardingTable;
use crate::interface::Netlink;
use crate::netfilter::run_nft;
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
use crate::sys::{self, PppUnit};
use crate::{DataPlaneMode, StartError};
use filter::BpfInstruction;
use socket2::{SockFilter, Socket};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use traffic::TcInterfaceCounters;
use usher_core::Instant;

/// Maximum octets of an interface name (linux/if.h, `IFNAMSIZ`).
const NAME: usize = 15;

/// A session in the kernel. Dropping `unit` removes the interface. Without `socket` nothing passes.
struct KernelSession {
    session: DataPlaneSession,
    socket: Socket,
    unit: PppUnit,
    index: u32,
    /// The counts of filters that were replaced.
    before: TcInterfaceCounters,
}

/// The state of the thread.
struct KernelState {
    ports: Arc<[AccessPort]>,
    netlink: Netlink,
    names: SessionInterfaceNames,
    lines: BTreeMap<u16, KernelSession>,
    /// Classifies and counts control frames.
    table: Arc<Mutex<ForwardingTable>>,
    /// The last reported usage of each session.
    last_reported: BTreeMap<u16, DataPlaneUsage>,
    /// The usage of removed sessions.
    removed_usage: DataPlaneUsage,
    /// Removes interfaces in the background, because the kernel is slow at it.
    ends: InterfaceReaper,
}

/// The names and groups of sessions' interfaces.
#[derive(Clone)]
struct SessionInterfaceNames {
    /// The prefix before the SESSION_ID.
    stem: String,
    /// The nftables table that clamps segment sizes.
    table: String,
    /// The group of interfaces with clamped segment sizes, and that of the others.
    clamped: u32,
    other: u32,
}

/// A thread that removes interfaces.
struct InterfaceReaper {
    units: Option<Sender<InterfaceReaperMessage>>,
    thread: Option<JoinHandle<()>>,
}

enum InterfaceReaperMessage {
    Unit(PppUnit),
    /// Notify when all earlier removals are done.
    Notify(Sender<()>),
}

impl InterfaceReaper {
    fn start() -> io::Result<Self> {
        let (units, ended) = channel();
        let run = move || {
            for one in ended {
                match one {
                    InterfaceReaperMessage::Unit(unit) => drop(unit),
                    InterfaceReaperMessage::Notify(done) => drop(done.send(())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("pppoe-ends".to_owned()).spawn(run)?;
        Ok(Self { units: Some(units), thread: Some(thread) })
    }
    fn send_unit_to_reaper(&self, unit: PppUnit) {
        let _ = self.units.as_ref().map(|units| units.send(InterfaceReaperMessage::Unit(unit)));
    }
    /// Waits until all earlier removals are done.
    fn wait_until_idle(&self) {
        let (done, told) = channel();
        let sent = self.units.as_ref().map(|units| units.send(InterfaceReaperMessage::Notify(done)));
        if matches!(sent, Some(Ok(()))) {
            let _ = told.recv();
        }
    }
}

impl Drop for InterfaceReaper {
    fn drop(&mut self) {
        drop(self.units.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type KernelTask = Box<dyn FnOnce(&mut KernelState) + Send>;

/// The plane in kernel mode. It ends when it is dropped.
pub(crate) struct KernelDataPlane {
    tasks: Option<Sender<KernelTask>>,
    thread: Option<JoinHandle<()>>,
    _listener: ControlFrameListener,
}

fn kernel_mode_unavailable(why: impl std::fmt::Display) -> StartError {
    let why = format!(
        "{why}; mode \"kernel\" needs PPPoX (`modprobe pppoe`; Debian's cloud kernels lack it), /dev/ppp, and root or \
         CAP_NET_ADMIN and CAP_NET_RAW; mode \"user\" works on every kernel"
    );
    StartError::Mode { mode: DataPlaneMode::Kernel, why }
}

fn attach_program(socket: &Socket, program: &[BpfInstruction]) -> io::Result<()> {
    let steps: Vec<SockFilter> =
        program.iter().map(|step| SockFilter::new(step.code, step.jt, step.jf, step.k)).collect();
    socket.attach_filter(&steps)
}

/// Returns the rules that clamp TCP's MSS to the narrower of its two links, at the interfaces of a group.
fn clamp_script(table: &str, group: u32) -> String {
    let rule = |way: &str| {
        format!("    {way} {group} tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu\n")
    };
    format!(
        "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n  chain forward {{\n    type filter hook forward priority \
         mangle; policy accept;\n{}{}  }}\n}}\n",
        rule("iifgroup"),
        rule("oifgroup")
    )
}

impl KernelDataPlane {
    /// Starts the mode. `device` is the name of sessions' interfaces. The SESSION_ID replaces `%d` or is appended.
    pub(crate) fn start(
        device: &str,
        ports: Arc<[AccessPort]>,
        hears: SharedEventHandler,
        seed: u64,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let stem = name_stem(device);
        if stem.len() + 5 > NAME {
            let why = format!("an interface name has at most {NAME} octets: shorten device = \"{device}\"");
            return Err(StartError::Mode { mode: DataPlaneMode::Kernel, why });
        }
        // Open a PPPoE socket and /dev/ppp once, to check at the start that the kernel supports both.
        sys::open_session_socket()
            .map_err(|error| kernel_mode_unavailable(format!("cannot open a PPPoE socket: {error}")))?;
        PppUnit::open().map_err(|error| kernel_mode_unavailable(format!("cannot open /dev/ppp: {error}")))?;
        // Choose random interface groups, which administrators hardly use: theirs usually have small numbers.
        let clamped = seed as u32 | 0x4000_0001;
        let table = format!("usher_{}mss", stem.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        let names = SessionInterfaceNames { stem, table, clamped, other: clamped ^ 1 };
        let filters = run_nft(&clamp_script(&names.table, names.clamped));
        filters.map_err(|error| {
            kernel_mode_unavailable(format!("cannot set the rules for MSS clamping: {error}"))
        })?;
        for port in &*ports {
            attach_program(&port.session, &filter::control_socket_filter())
                .map_err(system("cannot attach a frame filter"))?;
        }
        let addresses = ports.iter().map(|port| port.interface.address).collect();
        let forwarder = Arc::new(Mutex::new(ForwardingTable::new(addresses, seed)));
        let listener = ControlFrameListener::start(
            Arc::clone(&ports),
            hears,
            control_frame_filter(Arc::clone(&forwarder)),
        )?;
        let state = KernelState {
            ports,
            netlink: Netlink::open().map_err(system("cannot open an rtnetlink socket"))?,
            names,
            lines: BTreeMap::new(),
            table: Arc::clone(&forwarder),
            last_reported: BTreeMap::new(),
            removed_usage: DataPlaneUsage::default(),
            ends: InterfaceReaper::start().map_err(system("cannot start a thread"))?,
        };
        let (tasks, todo) = channel();
        let work = std::thread::Builder::new().name("pppoe-kernel".to_owned());
        let thread =
            work.spawn(move || run_kernel_tasks(state, &todo)).map_err(system("cannot start a thread"))?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread), _listener: listener })
    }

    fn run_task<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut KernelState) -> T + Send + 'static,
    ) -> io::Result<T> {
        let ended = || io::Error::other("the data plane has ended");
        let (answer, answered) = channel();
        let task = move |state: &mut KernelState| drop(answer.send(what(state)));
        self.tasks.as_ref().and_then(|tasks| tasks.send(Box::new(task)).ok()).ok_or_else(ended)?;
        answered.recv().map_err(|_| ended())
    }
}

/// Returns the prefix of session interface names, before the SESSION_ID.
pub(crate) fn name_stem(device: &str) -> String {
    match device.split_once("%d") {
        Some((before, _)) => before.to_owned(),
        None => format!("{device}-"),
    }
}

fn run_kernel_tasks(mut state: KernelState, todo: &Receiver<KernelTask>) {
    for task in todo {
        task(&mut state);
    }
    // Remove all interfaces of a group in one request: the kernel waits for each request.
    for group in [state.names.clamped, state.names.other] {
        let _ = state.netlink.remove_group(group);
    }
    // An error is ignored: the next start replaces the table.
    let _ = run_nft(&format!("delete table inet {}\n", state.names.table));
}

/// Filters frames without a session socket: passes those of control protocols.
fn control_frame_filter(
    table: Arc<Mutex<ForwardingTable>>,
) -> impl FnMut(usize, &mut [u8]) -> bool + Send + 'static {
    move |port, frame| {
        // This table has no rate limits, so the time does not matter.
        lock_unpoisoned(&table).process_upstream(Instant::ZERO, port, frame, true)
            == crate::forward::UpstreamVerdict::Control
    }
}

impl KernelState {
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        let Some(line) = self.lines.get(&number) else { return Ok(None) };
        let now = self.netlink.traffic_counts(line.index)?;
        let (octets_out, packets_out) = self.netlink.transmit_stats(line.index)?;
        let on_link = lock_unpoisoned(&self.table).usage(number).unwrap_or_default().spoofed;
        Ok(Some(DataPlaneUsage {
            octets_in: line.before.octets_in + now.octets_in,
            packets_in: line.before.packets_in + now.packets_in,
            octets_out,
            packets_out,
            spoofed: line.before.spoofed + now.spoofed + on_link,
            limited: line.before.limited + now.limited,
        }))
    }

    fn install(&mut self, session: &DataPlaneSession) -> io::Result<()> {
        // Adding the session to this table checks the session, and that its networks are free.
        let unlimited =
            DataPlaneSession { rate_up: None, rate_down: None, clamp_mss: false, ..session.clone() };
        let wrong = |error: SessionInstallError| io::Error::new(io::ErrorKind::InvalidInput, error);
        lock_unpoisoned(&self.table).install(unlimited).map_err(wrong)?;
        let done = match self.lines.remove(&session.number) {
            Some(line) if (line.session.port, line.session.peer) == (session.port, session.peer) => {
                self.change_session(line, session)
            }
            Some(line) => {
                self.end_session(line);
                self.start_session(session)
            }
            None => self.start_session(session),
        };
        match done {
            Ok(line) => {
                self.lines.insert(session.number, line);
                Ok(())
            }
            Err(error) => {
                lock_unpoisoned(&self.table).remove(session.number);
                Err(error)
            }
        }
    }

    fn interface_group(&self, session: &DataPlaneSession) -> u32 {
        if session.clamp_mss { self.names.clamped } else { self.names.other }
    }

    fn start_session(&mut self, session: &DataPlaneSession) -> io::Result<KernelSession> {
        let port = self.ports.get(session.port).ok_or(io::ErrorKind::InvalidInput)?;
        let socket = sys::open_session_socket()?;
        attach_program(&socket, &filter::session_socket_filter())?;
        let name = format!("{}{}", self.names.stem, session.number);
        let unit = PppUnit::open()?;
        let make = || {
            self.netlink.create_ppp_interface(
                &name,
                unit.descriptor(),
                session.mtu,
                self.interface_group(session),
            )
        };
        let made = match make() {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                // An earlier interface of that name may still be in removal.
                self.ends.wait_until_idle();
                make()
            }
            made => made,
        };
        made?;
        let index = self.netlink.interface_index(&name)?;
        self.netlink.set_interface_traffic_rules(index, session)?;
        sys::connect_session(&socket, session.number, session.peer, &port.name)?;
        unit.attach_channel(&socket)?;
        self.netlink.set_up(index)?;
        Ok(KernelSession {
            session: session.clone(),
            socket,
            unit,
            index,
            before: TcInterfaceCounters::default(),
        })
    }

    fn change_session(
        &mut self,
        mut line: KernelSession,
        session: &DataPlaneSession,
    ) -> io::Result<KernelSession> {
        let of = |session: &DataPlaneSession| {
            (session.all_networks().collect::<Vec<_>>(), session.rate_up, session.rate_down)
        };
        if of(&line.session) != of(session) {
            let counted = self.netlink.traffic_counts(line.index)?;
            line.before = line.before.sum_with(counted);
            self.netlink.set_interface_traffic_rules(line.index, session)?;
        }
        if (line.session.mtu, line.session.clamp_mss) != (session.mtu, session.clamp_mss) {
            self.netlink.set_mtu_and_group(line.index, session.mtu, self.interface_group(session))?;
        }
        line.session = session.clone();
        Ok(line)
    }

    /// Ends a session. Nothing passes when this returns. The interface is removed later.
    fn end_session(&self, line: KernelSession) {
        drop(line.socket);
        self.ends.send_unit_to_reaper(line.unit);
    }

    fn remove(&mut self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        let usage = self.usage(number);
        if let Ok(Some(usage)) = &usage {
            let on_link = lock_unpoisoned(&self.table).usage(number).unwrap_or_default().spoofed;
            self.removed_usage =
                self.removed_usage.sum_with(DataPlaneUsage { spoofed: usage.spoofed - on_link, ..*usage });
        }
        if let Some(line) = self.lines.remove(&number) {
            self.end_session(line);
        }
        lock_unpoisoned(&self.table).remove(number);
        self.last_reported.remove(&number);
        usage
    }

    fn take_changed(&mut self) -> io::Result<Vec<(u16, DataPlaneUsage)>> {
        let numbers: Vec<u16> = self.lines.keys().copied().collect();
        let mut changed = Vec::new();
        for number in numbers {
            let Some(usage) = self.usage(number)? else { continue };
            if self.last_reported.insert(number, usage).unwrap_or_default() != usage {
                changed.push((number, usage));
            }
        }
        Ok(changed)
    }

    fn counters(&self) -> io::Result<DataPlaneCounters> {
        let mut all = lock_unpoisoned(&self.table).counters;
        let mut carried = self.removed_usage;
        for number in self.lines.keys() {
            let usage = self.usage(*number)?.unwrap_or_default();
            // The table counts the spoofed link-local packets.
            let on_link = lock_unpoisoned(&self.table).usage(*number).unwrap_or_default().spoofed;
            carried = carried.sum_with(DataPlaneUsage { spoofed: usage.spoofed - on_link, ..usage });
        }
        all.frames_in += carried.packets_in;
        all.frames_out += carried.packets_out;
        all.limited += carried.limited;
        all.spoofed += carried.spoofed;
        Ok(all)
    }
}

impl ForwardingEngine for KernelDataPlane {
    fn install(&self, session: &DataPlaneSession) -> io::Result<()> {
        let session = session.clone();
        self.run_task(move |state| state.install(&session))?
    }
    fn remove(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.run_task(move |state| state.remove(number))?
    }
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        self.run_task(move |state| state.usage(number))?
    }
    fn changed_usages(&self) -> io::Result<Vec<(u16, DataPlaneUsage)>> {
        self.run_task(KernelState::take_changed)?
    }
    fn counters(&self) -> io::Result<DataPlaneCounters> {
        self.run_task(|state| state.counters())?
    }
    fn session_interface(&self, number: u16) -> io::Result<Option<u32>> {
        self.run_task(move |state| state.lines.get(&number).map(|line| line.index))
    }
}

impl Drop for KernelDataPlane {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
