//! The hosts, and the time that all have in common.

use super::wire::{Arrival, End, Sent, What, Wire};
use crate::impair::ChannelConfig;
use crate::job::Job;
use crate::machine::{
    CloseReason, CommandError, ConnId, Input, ListenerId, Machine, MessageEvent, PortId, SocketId,
    StreamEvent, Transmit, Work,
};
use crate::output::Host;
use crate::time::{Duration, Instant, WallTime};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::any::Any;
use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};
use core::ops::{Index, IndexMut};

/// Which host of a [`Network`], and what machine it hosts.
#[derive(Debug)]
pub struct At<M> {
    /// Its number, from 0 in the order in which hosts were added.
    pub number: usize,
    machine: PhantomData<fn() -> M>,
}

impl<M> Clone for At<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for At<M> {}

/// The wall time at [`Instant::ZERO`] in every [`Network`], until it is set: 2026-01-01T00:00:00Z.
pub const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);

/// The number of no host.
const NOBODY: usize = usize::MAX;

type Answer<M> = Option<(Duration, <M as Machine>::Command)>;
type OnEvent<M> = Box<dyn FnMut(&<M as Machine>::Event) -> Answer<M>>;
type OnJob<M> = Box<dyn FnMut(Job<<M as Machine>::Job>) -> Answer<M>>;

struct Slot<M: Machine> {
    machine: M,
    events: Vec<(Instant, M::Event)>,
    on_event: OnEvent<M>,
    on_job: OnJob<M>,
}

/// A machine that is being drained, and the wire that takes what it sends.
struct Drain<'a, M: Machine> {
    slot: &'a mut Slot<M>,
    host: usize,
    wire: &'a mut Wire,
}

impl<M> Drain<'_, M>
where
    M: Machine<Command: 'static> + 'static,
{
    fn answer(&mut self, answer: Answer<M>) {
        let Some((after, command)) = answer else { return };
        if after.is_zero() {
            let done = self.slot.machine.command(self.wire.now, command);
            return done.expect("a machine takes the answer to what it said");
        }
        let host: At<M> = At { number: self.host, machine: PhantomData };
        self.wire.push(self.wire.now + after, self.host, told(host, command), Vec::new());
    }
}

/// Gives a machine a command. What asked for it may have gone away meanwhile.
fn told<M: Machine<Command: 'static> + 'static>(host: At<M>, command: M::Command) -> What {
    What::Deed(Box::new(move |net| {
        let _ = net.command(host, command);
    }))
}

impl<M> Host for Drain<'_, M>
where
    M: Machine<Command: 'static> + 'static,
{
    type Machine = M;
    fn machine(&mut self) -> &mut M {
        &mut self.slot.machine
    }
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>) {
        self.wire.send(self.host, transmit, core::mem::take(bytes));
    }
    fn event(&mut self, event: M::Event) {
        let answer = (self.slot.on_event)(&event);
        self.slot.events.push((self.wire.now, event));
        self.answer(answer);
    }
    fn work(&mut self, work: Work) {
        *self.wire.work.entry(work.label.name()).or_default() += work.units;
    }
    fn job(&mut self, job: Job<M::Job>) {
        let answer = (self.slot.on_job)(job);
        self.answer(answer);
    }
}

/// A host, whatever its machine is.
trait Hosted: Any {
    fn handle(&mut self, now: Instant, input: Input<'_>);
    fn drain(&mut self, host: usize, wire: &mut Wire);
    fn timeout(&mut self) -> Option<Instant>;
}

impl<M> Hosted for Slot<M>
where
    M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
{
    fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.machine.handle(now, input);
    }
    fn drain(&mut self, host: usize, wire: &mut Wire) {
        Drain { slot: self, host, wire }.drain(&mut Vec::new());
    }
    fn timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// Machines, and the network between them, in virtual time.
///
/// What a machine decides is carried out in its order. Datagrams, frames, streams and associations go by
/// [`Channel`](crate::impair::Channel)s, one in each direction between two hosts or on an address's own link; of streams
/// and associations nothing is lost or damaged there. What is due at one time happens in the order in which it was sent, and timers go off after it.
///
/// [`Index`] is the machine itself. What it decides when it is called so is carried out with the next run.
pub struct Network {
    hosts: Vec<Box<dyn Hosted>>,
    timers: HostTimers,
    wire: Wire,
}

/// The hosts' timers in their order, so that a step asks those alone that something happened to, and not a thousand.
#[derive(Default)]
struct HostTimers {
    /// By host: its timer when it was last asked.
    known: Vec<Option<Instant>>,
    order: BTreeSet<(Instant, usize)>,
    /// Hosts whose machines may have set their timers anew since.
    stale: BTreeSet<usize>,
}

impl HostTimers {
    fn set(&mut self, host: usize, at: Option<Instant>) {
        if let Some(before) = core::mem::replace(&mut self.known[host], at) {
            self.order.remove(&(before, host));
        }
        self.order.extend(at.map(|at| (at, host)));
    }
    /// The next of a host that is awake. Of those that are past, which are due now, the first host's comes first.
    fn next(&self, now: Instant, silent: &[bool]) -> Option<(Instant, usize)> {
        let past = self.order.range(..=(now, usize::MAX)).map(|(_, host)| *host);
        if let Some(host) = past.filter(|host| !silent[*host]).min() {
            return Some((now, host));
        }
        self.order.range((now, usize::MAX)..).find(|(_, host)| !silent[*host]).copied()
    }
}

impl Network {
    /// No hosts yet; `channel` is between each two that [`link`](Self::link) says nothing of.
    pub fn new(channel: ChannelConfig) -> Self {
        Self { hosts: Vec::new(), timers: HostTimers::default(), wire: Wire::new(channel) }
    }
    /// Adds a host. The first of its addresses is the one that it sends from where its machine leaves the choice.
    pub fn add<M>(&mut self, mut machine: M, addresses: &[IpAddr]) -> At<M>
    where
        M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
    {
        machine.set_epoch(self.wire.now, EPOCH);
        let on_job = |job: Job<_>| panic!("nobody does the job of token {}", job.token);
        let slot =
            Slot { machine, events: Vec::new(), on_event: Box::new(|_| None), on_job: Box::new(on_job) };
        self.timers.stale.insert(self.hosts.len());
        self.timers.known.push(None);
        self.hosts.push(Box::new(slot));
        self.wire.addresses.push(addresses.to_vec());
        self.wire.silent.push(false);
        self.wire.refusing.push(false);
        self.wire.certificates.push(None);
        At { number: self.hosts.len() - 1, machine: PhantomData }
    }
    /// Datagrams to this address are for this socket, and leave it from there. A socket may have several, and an address
    /// may be of several hosts (multicast). One that is not bound gets a port of its own when it sends.
    pub fn bind<M>(&mut self, host: At<M>, socket: SocketId, address: SocketAddr) {
        self.wire.bound.push((address, host.number, socket));
    }
    /// Connections and associations to this address are accepted here.
    pub fn listen<M>(&mut self, host: At<M>, listener: ListenerId, address: SocketAddr) {
        self.wire.listeners.insert(address, (host.number, listener));
    }
    /// Frames out of one of these ports come in by the others.
    pub fn join(&mut self, ports: &[(usize, PortId)]) {
        self.wire.segments.push(ports.to_vec());
    }
    /// What is between two hosts, in both directions.
    pub fn link<A, B>(&mut self, a: At<A>, b: At<B>, channel: &ChannelConfig) {
        self.wire.link(a.number, b.number, channel);
        self.wire.link(b.number, a.number, channel);
    }
    /// An address has a link of its own: what comes from it or goes to it takes this channel, whichever host is at the
    /// other end. Where both ends have one, it is the sender's.
    pub fn attach(&mut self, address: IpAddr, channel: &ChannelConfig) {
        self.wire.attach(address, channel);
    }
    /// Channels that are made from now on draw other chance with each seed (0 at the beginning).
    pub fn seed(&mut self, seed: u16) {
        self.wire.seed = seed;
    }
    /// What a channel would lose of streams and associations arrives this much later for each time that it would. It must
    /// not be one that loses all.
    pub fn resend(&mut self, after: Duration) {
        self.wire.resent = Some(after);
    }
    /// Connections that two hosts begin are as if each of them had shown this certificate (DER).
    pub fn show<M>(&mut self, host: At<M>, certificate: Option<&'static [u8]>) {
        self.wire.certificates[host.number] = certificate;
    }
    /// What streams carry arrives in pieces of so many octets.
    pub fn segment(&mut self, octets: usize) {
        self.wire.segment = octets;
    }
    /// No association gets more outbound streams than this.
    pub fn grant(&mut self, streams: u16) {
        self.wire.granted = streams;
    }

    /// Each thing that a machine wants done goes by this function first, with its number from 0 on; it may alter the
    /// octets. For each copy that is to arrive it gives how much later than by the channel alone; none: it is lost. Data
    /// of streams and in-order messages wait for what was sent before them.
    pub fn meddle(&mut self, how: impl FnMut(usize, &mut Sent) -> Vec<Duration> + 'static) {
        self.wire.meddler = Box::new(how);
    }
    /// The things with these numbers are lost.
    pub fn lose(&mut self, lost: &'static [usize]) {
        self.meddle(move |n, _| if lost.contains(&n) { Vec::new() } else { [Duration::ZERO].into() });
    }
    /// Whether the way between two hosts is cut. Datagrams and frames are lost meanwhile, streams and associations wait.
    pub fn sever<A, B>(&mut self, a: At<A>, b: At<B>, severed: bool) {
        self.wire.sever(a.number, b.number, severed);
    }
    /// Whether the link of an address is down. What goes from it or to it is lost meanwhile, of streams and associations
    /// too, and what is under way when it goes down.
    pub fn down(&mut self, address: IpAddr, down: bool) {
        if down {
            self.wire.down.insert(address);
        } else {
            self.wire.down.remove(&address);
        }
    }
    /// Whether a host hears, says and does nothing at all.
    pub fn silence<M>(&mut self, host: At<M>, silent: bool) {
        self.wire.silent[host.number] = silent;
    }
    /// Whether a host refuses connections and associations.
    pub fn refuse<M>(&mut self, host: At<M>, refusing: bool) {
        self.wire.refusing[host.number] = refusing;
    }
    /// All connections and associations that a host has are reset now; both sides hear it.
    pub fn cut<M>(&mut self, host: At<M>) {
        self.wire.cut(host.number);
    }

    /// All that is under way between hosts is lost.
    pub fn clear(&mut self) {
        self.wire.clear();
    }

    /// What a host does when its machine says something: it may give a command after this time. The event is kept
    /// nevertheless.
    pub fn on_event<M>(&mut self, host: At<M>, then: impl FnMut(&M::Event) -> Answer<M> + 'static)
    where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_event = Box::new(then);
    }
    /// Who does a host's jobs: the answer comes after this time. Without that a job is a panic.
    pub fn on_job<M>(&mut self, host: At<M>, then: impl FnMut(Job<M::Job>) -> Answer<M> + 'static)
    where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_job = Box::new(then);
    }

    /// What time it is.
    pub fn now(&self) -> Instant {
        self.wire.now
    }
    /// All that machines wanted done so far, as they wanted it.
    pub fn sent(&self) -> &[Sent] {
        &self.wire.sent
    }
    /// The connections and associations that a host has, each with the number of the host at its other end.
    pub fn connections<M>(&self, host: At<M>) -> impl Iterator<Item = (ConnId, usize)> {
        let own = self.wire.ends.iter().filter(move |((of, _), _)| *of == host.number);
        own.filter_map(|((_, id), conn)| Some((*id, conn.other?.0)))
    }
    /// What a machine has said since it was last taken, and when.
    pub fn events<M: Machine + 'static>(&self, host: At<M>) -> &[(Instant, M::Event)] {
        &self.slot(host).events
    }
    /// Takes what a machine has said.
    pub fn take<M: Machine + 'static>(&mut self, host: At<M>) -> Vec<(Instant, M::Event)> {
        core::mem::take(&mut self.slot_mut(host).events)
    }
    /// Takes what the machines have done, by its label.
    pub fn take_work(&mut self) -> BTreeMap<&'static str, u32> {
        core::mem::take(&mut self.wire.work)
    }
    /// The wall clock of a host is set.
    pub fn set_epoch<M: Machine + 'static>(&mut self, host: At<M>, epoch: WallTime) {
        let now = self.wire.now;
        self[host].set_epoch(now, epoch);
        self.drain(host.number);
    }
    /// Gives a machine a command, and carries out what it decides.
    ///
    /// # Errors
    /// The machine refuses it.
    pub fn command<M: Machine + 'static>(
        &mut self,
        host: At<M>,
        command: M::Command,
    ) -> Result<(), CommandError> {
        let now = self.wire.now;
        let done = self[host].command(now, command);
        self.drain(host.number);
        done
    }
    /// Gives a machine a command at this time, or now if that is past. It is nothing if the machine then refuses it.
    pub fn later<M>(&mut self, host: At<M>, at: Instant, command: M::Command)
    where
        M: Machine<Command: 'static> + 'static,
    {
        self.wire.push(at.max(self.wire.now), host.number, told(host, command), Vec::new());
    }
    /// Does this at that time, or now if that is past: faults, links that come and go.
    pub fn at(&mut self, at: Instant, deed: impl FnOnce(&mut Self) + 'static) {
        self.wire.push(at.max(self.wire.now), NOBODY, What::Deed(Box::new(deed)), Vec::new());
    }
    /// Gives a machine an input that nobody sent, and carries out what it decides.
    pub fn give<M>(&mut self, host: At<M>, input: Input<'_>) {
        self.feed(host.number, input);
    }

    /// When the next thing happens.
    pub fn due(&mut self) -> Option<Instant> {
        let timer = self.timer().map(|(at, _)| at);
        self.wire.next().into_iter().chain(timer).min()
    }
    /// Lets the next thing happen, and gives the number of the host that it happens to (`usize::MAX`: none in
    /// particular); `None`: nothing is due any more.
    pub fn step(&mut self) -> Option<usize> {
        let arrival = self.wire.next();
        match (arrival, self.timer()) {
            (Some(at), timer) if timer.is_none_or(|(timer, _)| at <= timer) => {
                self.wire.now = at.max(self.wire.now);
                let arrival = self.wire.pop()?;
                let host = arrival.host;
                self.arrive(arrival);
                Some(host)
            }
            (_, Some((at, host))) => {
                self.wire.now = at;
                self.feed(host, Input::Timeout);
                Some(host)
            }
            (_, None) => None,
        }
    }
    /// Time passes in which nobody does anything: what is due in it is late.
    pub fn pass(&mut self, time: Duration) {
        self.wire.now += time;
    }
    /// Lets everything happen until this moment, that included; one that is past is now.
    pub fn run_until(&mut self, until: Instant) {
        self.settle();
        while self.due().is_some_and(|at| at <= until) {
            self.step();
        }
        self.wire.now = until.max(self.wire.now);
    }
    /// Lets this much time pass.
    pub fn run(&mut self, time: Duration) {
        self.run_until(self.wire.now + time);
    }
    /// Lets everything happen until nothing is due any more.
    pub fn run_out(&mut self) {
        self.settle();
        while self.step().is_some() {}
    }
    /// Carries out what machines decided when they were called by themselves.
    pub fn settle(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.drain(host));
    }

    fn slot<M: Machine + 'static>(&self, host: At<M>) -> &Slot<M> {
        let slot: &dyn Any = &*self.hosts[host.number];
        slot.downcast_ref().expect("a host of this network")
    }
    fn slot_mut<M: Machine + 'static>(&mut self, host: At<M>) -> &mut Slot<M> {
        self.timers.stale.insert(host.number);
        let slot: &mut dyn Any = &mut *self.hosts[host.number];
        slot.downcast_mut().expect("a host of this network")
    }
    fn drain(&mut self, host: usize) {
        self.timers.stale.insert(host);
        self.hosts[host].drain(host, &mut self.wire);
    }
    fn feed(&mut self, host: usize, input: Input<'_>) {
        self.hosts[host].handle(self.wire.now, input);
        self.drain(host);
    }
    fn timer(&mut self) -> Option<(Instant, usize)> {
        while let Some(host) = self.timers.stale.pop_first() {
            let at = self.hosts[host].timeout();
            self.timers.set(host, at);
        }
        self.timers.next(self.wire.now, &self.wire.silent)
    }
    fn arrive(&mut self, Arrival { host, what, bytes }: Arrival) {
        if self.wire.silent.get(host) == Some(&true) || self.wire.is_dead(host, &what) {
            return;
        }
        let data = &bytes[..];
        match what {
            What::Datagram(path) => self.feed(host, Input::Datagram { path, data }),
            What::Frame(port) => self.feed(host, Input::Frame { port, data }),
            What::Up(id) => self.up((host, id)),
            What::Data(conn) => {
                for data in data.chunks(self.wire.segment) {
                    if self.wire.ends.contains_key(&(host, conn)) {
                        self.feed(host, Input::Stream { conn, event: StreamEvent::Data(data) });
                    }
                }
            }
            What::Message(assoc, stream, ppid) => {
                if self.wire.ends.contains_key(&(host, assoc)) {
                    self.feed(
                        host,
                        Input::Message { assoc, event: MessageEvent::Data { stream, ppid, data } },
                    );
                }
            }
            What::Closed(id, reason) => self.closed((host, id), reason),
            What::Deed(deed) => deed(self),
        }
    }
    /// An end hears that its connection is up; with the accepting one's word the other is on its way.
    fn up(&mut self, end: End) {
        let (host, id) = end;
        let Some(conn) = self.wire.ends.get(&end) else { return };
        let (remote, local, streams) = (conn.remote, Some(conn.local), conn.streams);
        let Some(other) = conn.other else { return };
        let certificate = self.wire.certificates[other.0];
        let listener = conn.listener;
        if listener.is_some() {
            self.wire.rise(end);
        }
        let input = match (streams, listener) {
            (Some(streams), Some(listener)) => {
                Input::Message { assoc: id, event: MessageEvent::Accepted { listener, remote, streams } }
            }
            (Some(streams), None) => {
                Input::Message { assoc: id, event: MessageEvent::Up { remote, streams } }
            }
            (None, Some(listener)) => {
                let event = StreamEvent::Accepted { listener, remote, local, certificate };
                Input::Stream { conn: id, event }
            }
            (None, None) => {
                Input::Stream { conn: id, event: StreamEvent::Connected { remote, local, certificate } }
            }
        };
        self.feed(host, input);
    }
    fn closed(&mut self, end: End, reason: CloseReason) {
        let Some(conn) = self.wire.ends.remove(&end) else { return };
        let input = match conn.streams {
            Some(_) => Input::Message { assoc: end.1, event: MessageEvent::Down(reason) },
            None => Input::Stream { conn: end.1, event: StreamEvent::Closed(reason) },
        };
        self.feed(end.0, input);
    }
}

impl<M: Machine + 'static> Index<At<M>> for Network {
    type Output = M;
    fn index(&self, host: At<M>) -> &M {
        &self.slot(host).machine
    }
}

impl<M: Machine + 'static> IndexMut<At<M>> for Network {
    fn index_mut(&mut self, host: At<M>) -> &mut M {
        &mut self.slot_mut(host).machine
    }
}
