//! Kernel mode: the kernel's own PPP over Ethernet. Each session has a socket (PPPoX), whose frames the kernel takes PPPoE off and puts
//! it on, and a network interface of PPP's that is connected to it; sources and rates are looked at by traffic control at that interface.
//! Discovery and PPP's control protocols are heard by packet sockets, as in the other modes.
//!
//! What is asked of the kernel is asked on one thread, which is in the network namespace in which the plane was begun.

mod filter;
mod traffic;

use crate::control::Listener;
use crate::forward::Forwarder;
use crate::interface::Netlink;
use crate::netfilter::nft;
use crate::plane::{Carrier, Heard, Port, locked};
use crate::session::{Counters, Session, SessionError, Usage};
use crate::sys::{self, Unit};
use crate::{Mode, StartError};
use filter::Step;
use socket2::{SockFilter, Socket};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use traffic::Counts;
use usher_core::Instant;

/// Octets of an interface's name, at most (linux/if.h, `IFNAMSIZ`).
const NAME: usize = 15;

/// A session as the kernel has it. The interface is gone with `unit`, and nothing passes without `socket`.
struct Line {
    session: Session,
    socket: Socket,
    unit: Unit,
    index: u32,
    /// What filters had counted that were replaced.
    before: Counts,
}

/// What the thread has.
struct State {
    ports: Arc<[Port]>,
    netlink: Netlink,
    names: Names,
    lines: BTreeMap<u16, Line>,
    /// What has come of control frames.
    table: Arc<Mutex<Forwarder>>,
    /// What was said last of each.
    said: BTreeMap<u16, Usage>,
    /// What sessions have carried that are gone.
    gone: Usage,
    /// Takes interfaces away, for which the kernel needs its time.
    ends: Ends,
}

/// How sessions' interfaces are called, and how the kernel tells them from others.
#[derive(Clone)]
struct Names {
    /// What stands before a session's number.
    stem: String,
    /// The table of nftables in which segment sizes are lowered.
    table: String,
    /// The group of interfaces whose segment sizes are lowered, and that of the others.
    clamped: u32,
    other: u32,
}

/// A thread that takes interfaces away.
struct Ends {
    units: Option<Sender<Ended>>,
    thread: Option<JoinHandle<()>>,
}

enum Ended {
    Unit(Unit),
    /// All before this are gone.
    Tell(Sender<()>),
}

impl Ends {
    fn begin() -> io::Result<Self> {
        let (units, ended) = channel();
        let run = move || {
            for one in ended {
                match one {
                    Ended::Unit(unit) => drop(unit),
                    Ended::Tell(done) => drop(done.send(())),
                }
            }
        };
        let thread = std::thread::Builder::new().name("pppoe-ends".to_owned()).spawn(run)?;
        Ok(Self { units: Some(units), thread: Some(thread) })
    }
    fn take(&self, unit: Unit) {
        let _ = self.units.as_ref().map(|units| units.send(Ended::Unit(unit)));
    }
    /// Waits until all are gone that were taken before.
    fn wait(&self) {
        let (done, told) = channel();
        let sent = self.units.as_ref().map(|units| units.send(Ended::Tell(done)));
        if matches!(sent, Some(Ok(()))) {
            let _ = told.recv();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.units.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Task = Box<dyn FnOnce(&mut State) + Send>;

/// The plane in this mode, until it is dropped.
pub(crate) struct KernelMode {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
    _listener: Listener,
}

fn refused(why: impl std::fmt::Display) -> StartError {
    let why = format!(
        "{why}; this needs a kernel with PPPoX (Debian's are, but for the cloud ones: `modprobe pppoe`), /dev/ppp, and root or \
         CAP_NET_ADMIN and CAP_NET_RAW; \"user\" carries packets on every kernel"
    );
    StartError::Mode { mode: Mode::Kernel, why }
}

fn attached(socket: &Socket, program: &[Step]) -> io::Result<()> {
    let steps: Vec<SockFilter> =
        program.iter().map(|step| SockFilter::new(step.code, step.jt, step.jf, step.k)).collect();
    socket.attach_filter(&steps)
}

/// Lowers the segment sizes that TCP announces to what the narrower of its two links carries, at interfaces of a group.
fn clamps(table: &str, group: u32) -> String {
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

impl KernelMode {
    /// `device`: how sessions' interfaces are called, with `%d` where the session's number is to stand; otherwise it follows.
    pub(crate) fn start(
        device: &str,
        ports: Arc<[Port]>,
        hears: Heard,
        seed: u64,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let stem = stem(device);
        if stem.len() + 5 > NAME {
            let why = format!("an interface's name has {NAME} octets: shorten device = \"{device}\"");
            return Err(StartError::Mode { mode: Mode::Kernel, why });
        }
        // Both are asked for once before anybody relies on them.
        sys::session_socket().map_err(|error| refused(format!("no socket of PPPoE: {error}")))?;
        Unit::open().map_err(|error| refused(format!("/dev/ppp: {error}")))?;
        // Groups nobody else has chosen: numbers of people are small.
        let clamped = seed as u32 | 0x4000_0001;
        let table = format!("usher_{}mss", stem.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        let names = Names { stem, table, clamped, other: clamped ^ 1 };
        let filters = nft(&clamps(&names.table, names.clamped));
        filters.map_err(|error| refused(format!("lowering segment sizes: {error}")))?;
        for port in &*ports {
            attached(&port.session, &filter::of_control()).map_err(system("a filter of frames"))?;
        }
        let addresses = ports.iter().map(|port| port.interface.address).collect();
        let forwarder = Arc::new(Mutex::new(Forwarder::new(addresses, seed)));
        let listener = Listener::begin(Arc::clone(&ports), hears, judge(Arc::clone(&forwarder)))?;
        let state = State {
            ports,
            netlink: Netlink::open().map_err(system("a socket of rtnetlink"))?,
            names,
            lines: BTreeMap::new(),
            table: Arc::clone(&forwarder),
            said: BTreeMap::new(),
            gone: Usage::default(),
            ends: Ends::begin().map_err(system("a thread"))?,
        };
        let (tasks, todo) = channel();
        let work = std::thread::Builder::new().name("pppoe-kernel".to_owned());
        let thread = work.spawn(move || run(state, &todo)).map_err(system("a thread"))?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread), _listener: listener })
    }

    fn ask<T: Send + 'static>(&self, what: impl FnOnce(&mut State) -> T + Send + 'static) -> io::Result<T> {
        let ended = || io::Error::other("the plane has ended");
        let (answer, answered) = channel();
        let task = move |state: &mut State| drop(answer.send(what(state)));
        self.tasks.as_ref().and_then(|tasks| tasks.send(Box::new(task)).ok()).ok_or_else(ended)?;
        answered.recv().map_err(|_| ended())
    }
}

/// What stands before a session's number in its interface's name.
pub(crate) fn stem(device: &str) -> String {
    match device.split_once("%d") {
        Some((before, _)) => before.to_owned(),
        None => format!("{device}-"),
    }
}

fn run(mut state: State, todo: &Receiver<Task>) {
    for task in todo {
        task(&mut state);
    }
    // All interfaces at once: one by one the kernel waits for each.
    for group in [state.names.clamped, state.names.other] {
        let _ = state.netlink.remove_group(group);
    }
    // What cannot be taken away now is replaced by the next that begins.
    let _ = nft(&format!("delete table inet {}\n", state.names.table));
}

/// What becomes of frames that no session's socket has: those of control protocols are heard if they may be.
fn judge(table: Arc<Mutex<Forwarder>>) -> impl FnMut(usize, &mut [u8]) -> bool + Send + 'static {
    move |port, frame| {
        // No limits stand in this table, and so time does not matter to it.
        locked(&table).upstream(Instant::ZERO, port, frame, true) == crate::forward::Upstream::Control
    }
}

impl State {
    fn usage(&self, number: u16) -> io::Result<Option<Usage>> {
        let Some(line) = self.lines.get(&number) else { return Ok(None) };
        let now = self.netlink.counted(line.index)?;
        let (octets_out, packets_out) = self.netlink.transmitted(line.index)?;
        let on_link = locked(&self.table).usage(number).unwrap_or_default().spoofed;
        Ok(Some(Usage {
            octets_in: line.before.octets_in + now.octets_in,
            packets_in: line.before.packets_in + now.packets_in,
            octets_out,
            packets_out,
            spoofed: line.before.spoofed + now.spoofed + on_link,
            limited: line.before.limited + now.limited,
        }))
    }

    fn install(&mut self, session: &Session) -> io::Result<()> {
        // It checks the session, and that nobody else has its networks.
        let unlimited = Session { rate_up: None, rate_down: None, clamp_mss: false, ..session.clone() };
        let wrong = |error: SessionError| io::Error::new(io::ErrorKind::InvalidInput, error);
        locked(&self.table).install(unlimited).map_err(wrong)?;
        let done = match self.lines.remove(&session.number) {
            Some(line) if (line.session.port, line.session.peer) == (session.port, session.peer) => {
                self.change(line, session)
            }
            Some(line) => {
                self.end(line);
                self.begin(session)
            }
            None => self.begin(session),
        };
        match done {
            Ok(line) => {
                self.lines.insert(session.number, line);
                Ok(())
            }
            Err(error) => {
                locked(&self.table).remove(session.number);
                Err(error)
            }
        }
    }

    fn group(&self, session: &Session) -> u32 {
        if session.clamp_mss { self.names.clamped } else { self.names.other }
    }

    fn begin(&mut self, session: &Session) -> io::Result<Line> {
        let port = self.ports.get(session.port).ok_or(io::ErrorKind::InvalidInput)?;
        let socket = sys::session_socket()?;
        attached(&socket, &filter::of_session())?;
        let name = format!("{}{}", self.names.stem, session.number);
        let unit = Unit::open()?;
        let make = || self.netlink.add_unit(&name, unit.descriptor(), session.mtu, self.group(session));
        let made = match make() {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                // The one of before may be on its way out.
                self.ends.wait();
                make()
            }
            made => made,
        };
        made?;
        let index = self.netlink.index(&name)?;
        self.netlink.shape(index, session)?;
        sys::connect_session(&socket, session.number, session.peer, &port.name)?;
        unit.carry(&socket)?;
        self.netlink.set_up(index)?;
        Ok(Line { session: session.clone(), socket, unit, index, before: Counts::default() })
    }

    fn change(&mut self, mut line: Line, session: &Session) -> io::Result<Line> {
        let of = |session: &Session| {
            (session.all_networks().collect::<Vec<_>>(), session.rate_up, session.rate_down)
        };
        if of(&line.session) != of(session) {
            let counted = self.netlink.counted(line.index)?;
            line.before = line.before.plus(counted);
            self.netlink.shape(line.index, session)?;
        }
        if (line.session.mtu, line.session.clamp_mss) != (session.mtu, session.clamp_mss) {
            self.netlink.set_mtu_and_group(line.index, session.mtu, self.group(session))?;
        }
        line.session = session.clone();
        Ok(line)
    }

    /// Nothing passes when this returns; the interface goes when the kernel can.
    fn end(&self, line: Line) {
        drop(line.socket);
        self.ends.take(line.unit);
    }

    fn remove(&mut self, number: u16) -> io::Result<Option<Usage>> {
        let usage = self.usage(number);
        if let Ok(Some(usage)) = &usage {
            let on_link = locked(&self.table).usage(number).unwrap_or_default().spoofed;
            self.gone = self.gone.plus(Usage { spoofed: usage.spoofed - on_link, ..*usage });
        }
        if let Some(line) = self.lines.remove(&number) {
            self.end(line);
        }
        locked(&self.table).remove(number);
        self.said.remove(&number);
        usage
    }

    fn changed(&mut self) -> io::Result<Vec<(u16, Usage)>> {
        let numbers: Vec<u16> = self.lines.keys().copied().collect();
        let mut changed = Vec::new();
        for number in numbers {
            let Some(usage) = self.usage(number)? else { continue };
            if self.said.insert(number, usage).unwrap_or_default() != usage {
                changed.push((number, usage));
            }
        }
        Ok(changed)
    }

    fn counters(&self) -> io::Result<Counters> {
        let mut all = locked(&self.table).counters;
        let mut carried = self.gone;
        for number in self.lines.keys() {
            let usage = self.usage(*number)?.unwrap_or_default();
            // What stays on the link is among the table's counts.
            let on_link = locked(&self.table).usage(*number).unwrap_or_default().spoofed;
            carried = carried.plus(Usage { spoofed: usage.spoofed - on_link, ..usage });
        }
        all.frames_in += carried.packets_in;
        all.frames_out += carried.packets_out;
        all.limited += carried.limited;
        all.spoofed += carried.spoofed;
        Ok(all)
    }
}

impl Carrier for KernelMode {
    fn install(&self, session: &Session) -> io::Result<()> {
        let session = session.clone();
        self.ask(move |state| state.install(&session))?
    }
    fn remove(&self, number: u16) -> io::Result<Option<Usage>> {
        self.ask(move |state| state.remove(number))?
    }
    fn usage(&self, number: u16) -> io::Result<Option<Usage>> {
        self.ask(move |state| state.usage(number))?
    }
    fn changed(&self) -> io::Result<Vec<(u16, Usage)>> {
        self.ask(State::changed)?
    }
    fn counters(&self) -> io::Result<Counters> {
        self.ask(|state| state.counters())?
    }
    fn interface(&self, number: u16) -> io::Result<Option<u32>> {
        self.ask(move |state| state.lines.get(&number).map(|line| line.index))
    }
}

impl Drop for KernelMode {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
