//! The hosts, and the time that all have in common.

use super::wire::{ArrivalKind, ConnEnd, NetworkState, PendingArrival, SentTransmit};
use crate::impair::ChannelConfig;
use crate::job::JobRequest;
use crate::machine::{
    CloseReason, CommandError, ConnId, ListenerId, Machine, MachineInput, MessageEvent, PortId, SocketId,
    StreamEvent, Transmit, WorkRecord,
};
use crate::output::MachineHost;
use crate::time::{Duration, Instant, WallTime};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::any::Any;
use core::marker::PhantomData;
use core::net::{IpAddr, SocketAddr};
use core::ops::{Index, IndexMut};

/// Which host of a [`MachineNetwork`], and what machine it hosts.
#[derive(Debug)]
pub struct HostHandle<M> {
    /// Its number, from 0 in the order in which hosts were added.
    pub number: usize,
    machine: PhantomData<fn() -> M>,
}

impl<M> Clone for HostHandle<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for HostHandle<M> {}

/// The wall time at [`Instant::ZERO`] in every [`MachineNetwork`], until it is set: 2026-01-01T00:00:00Z.
pub const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);

/// The number of no host.
const NO_HOST: usize = usize::MAX;

type DelayedCommand<M> = Option<(Duration, <M as Machine>::Command)>;
type OnEvent<M> = Box<dyn FnMut(&<M as Machine>::Event) -> DelayedCommand<M>>;
type OnJob<M> = Box<dyn FnMut(JobRequest<<M as Machine>::Job>) -> DelayedCommand<M>>;

struct HostSlot<M: Machine> {
    machine: M,
    events: Vec<(Instant, M::Event)>,
    on_event: OnEvent<M>,
    on_job: OnJob<M>,
}

/// A machine that is being drained, and the wire that takes what it sends.
struct HostDrain<'a, M: Machine> {
    slot: &'a mut HostSlot<M>,
    host: usize,
    wire: &'a mut NetworkState,
}

impl<M> HostDrain<'_, M>
where
    M: Machine<Command: 'static> + 'static,
{
    fn send_answer(&mut self, answer: DelayedCommand<M>) {
        let Some((after, command)) = answer else { return };
        if after.is_zero() {
            let done = self.slot.machine.handle_command(self.wire.now, command);
            return done.expect("a machine takes the answer to what it said");
        }
        let host: HostHandle<M> = HostHandle { number: self.host, machine: PhantomData };
        self.wire.push_arrival(self.wire.now + after, self.host, deferred_command(host, command), Vec::new());
    }
}

/// Gives a machine a command. What asked for it may have gone away meanwhile.
fn deferred_command<M: Machine<Command: 'static> + 'static>(
    host: HostHandle<M>,
    command: M::Command,
) -> ArrivalKind {
    ArrivalKind::Action(Box::new(move |net| {
        let _ = net.send_command(host, command);
    }))
}

impl<M> MachineHost for HostDrain<'_, M>
where
    M: Machine<Command: 'static> + 'static,
{
    type Machine = M;
    fn machine(&mut self) -> &mut M {
        &mut self.slot.machine
    }
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>) {
        self.wire.send_transmit(self.host, transmit, core::mem::take(bytes));
    }
    fn handle_event(&mut self, event: M::Event) {
        let answer = (self.slot.on_event)(&event);
        self.slot.events.push((self.wire.now, event));
        self.send_answer(answer);
    }
    fn record_work(&mut self, work: WorkRecord) {
        *self.wire.work.entry(work.label.name()).or_default() += work.units;
    }
    fn start_job(&mut self, job: JobRequest<M::Job>) {
        let answer = (self.slot.on_job)(job);
        self.send_answer(answer);
    }
}

/// A host, whatever its machine is.
trait AnyHost: Any {
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>);
    fn drain_outputs(&mut self, host: usize, wire: &mut NetworkState);
    fn poll_timeout(&mut self) -> Option<Instant>;
}

impl<M> AnyHost for HostSlot<M>
where
    M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
{
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.machine.handle_input(now, input);
    }
    fn drain_outputs(&mut self, host: usize, wire: &mut NetworkState) {
        HostDrain { slot: self, host, wire }.drain_outputs(&mut Vec::new());
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
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
pub struct MachineNetwork {
    hosts: Vec<Box<dyn AnyHost>>,
    timers: HostTimers,
    wire: NetworkState,
}

/// The hosts' timers in their order, so that a step asks those alone that something happened to, and not a thousand.
#[derive(Default)]
struct HostTimers {
    /// By host: its timer when it was last asked.
    deadlines: Vec<Option<Instant>>,
    order: BTreeSet<(Instant, usize)>,
    /// Hosts whose machines may have set their timers anew since.
    stale: BTreeSet<usize>,
}

impl HostTimers {
    fn set_timer(&mut self, host: usize, at: Option<Instant>) {
        if let Some(before) = core::mem::replace(&mut self.deadlines[host], at) {
            self.order.remove(&(before, host));
        }
        self.order.extend(at.map(|at| (at, host)));
    }
    /// The next of a host that is awake. Of those that are past, which are due now, the first host's comes first.
    fn next_timer(&self, now: Instant, silent: &[bool]) -> Option<(Instant, usize)> {
        let past = self.order.range(..=(now, usize::MAX)).map(|(_, host)| *host);
        if let Some(host) = past.filter(|host| !silent[*host]).min() {
            return Some((now, host));
        }
        self.order.range((now, usize::MAX)..).find(|(_, host)| !silent[*host]).copied()
    }
}

impl MachineNetwork {
    /// No hosts yet; `channel` is between each two that [`link`](Self::link_hosts) says nothing of.
    pub fn new(channel: ChannelConfig) -> Self {
        Self { hosts: Vec::new(), timers: HostTimers::default(), wire: NetworkState::new(channel) }
    }
    /// Adds a host. The first of its addresses is the one that it sends from where its machine leaves the choice.
    pub fn add_host<M>(&mut self, mut machine: M, addresses: &[IpAddr]) -> HostHandle<M>
    where
        M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
    {
        machine.set_epoch(self.wire.now, EPOCH);
        let on_job = |job: JobRequest<_>| panic!("nobody does the job of token {}", job.token);
        let slot =
            HostSlot { machine, events: Vec::new(), on_event: Box::new(|_| None), on_job: Box::new(on_job) };
        self.timers.stale.insert(self.hosts.len());
        self.timers.deadlines.push(None);
        self.hosts.push(Box::new(slot));
        self.wire.addresses.push(addresses.to_vec());
        self.wire.silent.push(false);
        self.wire.refusing.push(false);
        self.wire.certificates.push(None);
        HostHandle { number: self.hosts.len() - 1, machine: PhantomData }
    }
    /// Datagrams to this address are for this socket, and leave it from there. A socket may have several, and an address
    /// may be of several hosts (multicast). One that is not bound gets a port of its own when it sends.
    pub fn bind_socket<M>(&mut self, host: HostHandle<M>, socket: SocketId, address: SocketAddr) {
        self.wire.bound.push((address, host.number, socket));
    }
    /// Connections and associations to this address are accepted here.
    pub fn add_listener<M>(&mut self, host: HostHandle<M>, listener: ListenerId, address: SocketAddr) {
        self.wire.listeners.insert(address, (host.number, listener));
    }
    /// Frames out of one of these ports come in by the others.
    pub fn join_ports(&mut self, ports: &[(usize, PortId)]) {
        self.wire.segments.push(ports.to_vec());
    }
    /// What is between two hosts, in both directions.
    pub fn link_hosts<A, B>(&mut self, a: HostHandle<A>, b: HostHandle<B>, channel: &ChannelConfig) {
        self.wire.link_hosts(a.number, b.number, channel);
        self.wire.link_hosts(b.number, a.number, channel);
    }
    /// An address has a link of its own: what comes from it or goes to it takes this channel, whichever host is at the
    /// other end. Where both ends have one, it is the sender's.
    pub fn link_address(&mut self, address: IpAddr, channel: &ChannelConfig) {
        self.wire.link_address(address, channel);
    }
    /// Channels that are made from now on draw other chance with each seed (0 at the beginning).
    pub fn set_seed(&mut self, seed: u16) {
        self.wire.seed = seed;
    }
    /// What a channel would lose of streams and associations arrives this much later for each time that it would. It must
    /// not be one that loses all.
    pub fn set_retransmission_delay(&mut self, after: Duration) {
        self.wire.resent = Some(after);
    }
    /// Connections that two hosts begin are as if each of them had shown this certificate (DER).
    pub fn set_certificate<M>(&mut self, host: HostHandle<M>, certificate: Option<&'static [u8]>) {
        self.wire.certificates[host.number] = certificate;
    }
    /// What streams carry arrives in pieces of so many octets.
    pub fn set_segment_size(&mut self, octets: usize) {
        self.wire.segment = octets;
    }
    /// No association gets more outbound streams than this.
    pub fn limit_streams(&mut self, streams: u16) {
        self.wire.granted = streams;
    }

    /// Each thing that a machine wants done goes by this function first, with its number from 0 on; it may alter the
    /// octets. For each copy that is to arrive it gives how much later than by the channel alone; none: it is lost. Data
    /// of streams and in-order messages wait for what was sent before them.
    pub fn intercept_transmits(
        &mut self,
        how: impl FnMut(usize, &mut SentTransmit) -> Vec<Duration> + 'static,
    ) {
        self.wire.meddler = Box::new(how);
    }
    /// The things with these numbers are lost.
    pub fn drop_transmits(&mut self, lost: &'static [usize]) {
        self.intercept_transmits(
            move |n, _| if lost.contains(&n) { Vec::new() } else { [Duration::ZERO].into() },
        );
    }
    /// Whether the way between two hosts is cut. Datagrams and frames are lost meanwhile, streams and associations wait.
    pub fn set_severed<A, B>(&mut self, a: HostHandle<A>, b: HostHandle<B>, severed: bool) {
        self.wire.set_severed(a.number, b.number, severed);
    }
    /// Whether the link of an address is down. What goes from it or to it is lost meanwhile, of streams and associations
    /// too, and what is under way when it goes down.
    pub fn set_address_down(&mut self, address: IpAddr, down: bool) {
        if down {
            self.wire.down.insert(address);
        } else {
            self.wire.down.remove(&address);
        }
    }
    /// Whether a host hears, says and does nothing at all.
    pub fn set_silent<M>(&mut self, host: HostHandle<M>, silent: bool) {
        self.wire.silent[host.number] = silent;
    }
    /// Whether a host refuses connections and associations.
    pub fn set_refusing<M>(&mut self, host: HostHandle<M>, refusing: bool) {
        self.wire.refusing[host.number] = refusing;
    }
    /// All connections and associations that a host has are reset now; both sides hear it.
    pub fn reset_connections<M>(&mut self, host: HostHandle<M>) {
        self.wire.reset_connections(host.number);
    }

    /// All that is under way between hosts is lost.
    pub fn drop_in_flight(&mut self) {
        self.wire.drop_in_flight();
    }

    /// What a host does when its machine says something: it may give a command after this time. The event is kept
    /// nevertheless.
    pub fn on_event<M>(
        &mut self,
        host: HostHandle<M>,
        then: impl FnMut(&M::Event) -> DelayedCommand<M> + 'static,
    ) where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_event = Box::new(then);
    }
    /// Who does a host's jobs: the answer comes after this time. Without that a job is a panic.
    pub fn on_job<M>(
        &mut self,
        host: HostHandle<M>,
        then: impl FnMut(JobRequest<M::Job>) -> DelayedCommand<M> + 'static,
    ) where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_job = Box::new(then);
    }

    /// What time it is.
    pub fn now(&self) -> Instant {
        self.wire.now
    }
    /// All that machines wanted done so far, as they wanted it.
    pub fn sent_transmits(&self) -> &[SentTransmit] {
        &self.wire.sent
    }
    /// The connections and associations that a host has, each with the number of the host at its other end.
    pub fn connections<M>(&self, host: HostHandle<M>) -> impl Iterator<Item = (ConnId, usize)> {
        let own = self.wire.ends.iter().filter(move |((of, _), _)| *of == host.number);
        own.filter_map(|((_, id), conn)| Some((*id, conn.other?.0)))
    }
    /// What a machine has said since it was last taken, and when.
    pub fn recorded_events<M: Machine + 'static>(&self, host: HostHandle<M>) -> &[(Instant, M::Event)] {
        &self.host_slot(host).events
    }
    /// Takes what a machine has said.
    pub fn take_events<M: Machine + 'static>(&mut self, host: HostHandle<M>) -> Vec<(Instant, M::Event)> {
        core::mem::take(&mut self.slot_mut(host).events)
    }
    /// Takes what the machines have done, by its label.
    pub fn take_work(&mut self) -> BTreeMap<&'static str, u32> {
        core::mem::take(&mut self.wire.work)
    }
    /// The wall clock of a host is set.
    pub fn set_epoch<M: Machine + 'static>(&mut self, host: HostHandle<M>, epoch: WallTime) {
        let now = self.wire.now;
        self[host].set_epoch(now, epoch);
        self.drain_host(host.number);
    }
    /// Gives a machine a command, and carries out what it decides.
    ///
    /// # Errors
    /// The machine refuses it.
    pub fn send_command<M: Machine + 'static>(
        &mut self,
        host: HostHandle<M>,
        command: M::Command,
    ) -> Result<(), CommandError> {
        let now = self.wire.now;
        let done = self[host].handle_command(now, command);
        self.drain_host(host.number);
        done
    }
    /// Gives a machine a command at this time, or now if that is past. It is nothing if the machine then refuses it.
    pub fn schedule_command<M>(&mut self, host: HostHandle<M>, at: Instant, command: M::Command)
    where
        M: Machine<Command: 'static> + 'static,
    {
        self.wire.push_arrival(
            at.max(self.wire.now),
            host.number,
            deferred_command(host, command),
            Vec::new(),
        );
    }
    /// Does this at that time, or now if that is past: faults, links that come and go.
    pub fn schedule_action(&mut self, at: Instant, deed: impl FnOnce(&mut Self) + 'static) {
        self.wire.push_arrival(
            at.max(self.wire.now),
            NO_HOST,
            ArrivalKind::Action(Box::new(deed)),
            Vec::new(),
        );
    }
    /// Gives a machine an input that nobody sent, and carries out what it decides.
    pub fn inject_input<M>(&mut self, host: HostHandle<M>, input: MachineInput<'_>) {
        self.feed_input(host.number, input);
    }

    /// When the next thing happens.
    pub fn next_due_time(&mut self) -> Option<Instant> {
        let timer = self.next_timer().map(|(at, _)| at);
        self.wire.next_arrival_time().into_iter().chain(timer).min()
    }
    /// Lets the next thing happen, and gives the number of the host that it happens to (`usize::MAX`: none in
    /// particular); `None`: nothing is due any more.
    pub fn run_next(&mut self) -> Option<usize> {
        let arrival = self.wire.next_arrival_time();
        match (arrival, self.next_timer()) {
            (Some(at), timer) if timer.is_none_or(|(timer, _)| at <= timer) => {
                self.wire.now = at.max(self.wire.now);
                let arrival = self.wire.pop_arrival()?;
                let host = arrival.host;
                self.process_arrival(arrival);
                Some(host)
            }
            (_, Some((at, host))) => {
                self.wire.now = at;
                self.feed_input(host, MachineInput::Timeout);
                Some(host)
            }
            (_, None) => None,
        }
    }
    /// Time passes in which nobody does anything: what is due in it is late.
    pub fn skip_time(&mut self, time: Duration) {
        self.wire.now += time;
    }
    /// Lets everything happen until this moment, that included; one that is past is now.
    pub fn run_until(&mut self, until: Instant) {
        self.drain_hosts();
        while self.next_due_time().is_some_and(|at| at <= until) {
            self.run_next();
        }
        self.wire.now = until.max(self.wire.now);
    }
    /// Lets this much time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.wire.now + time);
    }
    /// Lets everything happen until nothing is due any more.
    pub fn run_out(&mut self) {
        self.drain_hosts();
        while self.run_next().is_some() {}
    }
    /// Carries out what machines decided when they were called by themselves.
    pub fn drain_hosts(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.drain_host(host));
    }

    fn host_slot<M: Machine + 'static>(&self, host: HostHandle<M>) -> &HostSlot<M> {
        let slot: &dyn Any = &*self.hosts[host.number];
        slot.downcast_ref().expect("a host of this network")
    }
    fn slot_mut<M: Machine + 'static>(&mut self, host: HostHandle<M>) -> &mut HostSlot<M> {
        self.timers.stale.insert(host.number);
        let slot: &mut dyn Any = &mut *self.hosts[host.number];
        slot.downcast_mut().expect("a host of this network")
    }
    fn drain_host(&mut self, host: usize) {
        self.timers.stale.insert(host);
        self.hosts[host].drain_outputs(host, &mut self.wire);
    }
    fn feed_input(&mut self, host: usize, input: MachineInput<'_>) {
        self.hosts[host].handle_input(self.wire.now, input);
        self.drain_host(host);
    }
    fn next_timer(&mut self) -> Option<(Instant, usize)> {
        while let Some(host) = self.timers.stale.pop_first() {
            let at = self.hosts[host].poll_timeout();
            self.timers.set_timer(host, at);
        }
        self.timers.next_timer(self.wire.now, &self.wire.silent)
    }
    fn process_arrival(&mut self, PendingArrival { host, kind: what, bytes }: PendingArrival) {
        if self.wire.silent.get(host) == Some(&true) || self.wire.is_dead(host, &what) {
            return;
        }
        let data = &bytes[..];
        match what {
            ArrivalKind::Datagram(path) => self.feed_input(host, MachineInput::Datagram { path, data }),
            ArrivalKind::Frame(port) => self.feed_input(host, MachineInput::Frame { port, data }),
            ArrivalKind::Up(id) => self.notify_connected((host, id)),
            ArrivalKind::Data(conn) => {
                for data in data.chunks(self.wire.segment) {
                    if self.wire.ends.contains_key(&(host, conn)) {
                        self.feed_input(host, MachineInput::Stream { conn, event: StreamEvent::Data(data) });
                    }
                }
            }
            ArrivalKind::Message(assoc, stream, ppid) => {
                if self.wire.ends.contains_key(&(host, assoc)) {
                    self.feed_input(
                        host,
                        MachineInput::Message { assoc, event: MessageEvent::Data { stream, ppid, data } },
                    );
                }
            }
            ArrivalKind::Closed(id, reason) => self.notify_closed((host, id), reason),
            ArrivalKind::Action(deed) => deed(self),
        }
    }
    /// An end hears that its connection is up; with the accepting one's word the other is on its way.
    fn notify_connected(&mut self, end: ConnEnd) {
        let (host, id) = end;
        let Some(conn) = self.wire.ends.get(&end) else { return };
        let (remote, local, streams) = (conn.remote, Some(conn.local), conn.streams);
        let Some(other) = conn.other else { return };
        let certificate = self.wire.certificates[other.0];
        let listener = conn.listener;
        if listener.is_some() {
            self.wire.announce_connection(end);
        }
        let input = match (streams, listener) {
            (Some(streams), Some(listener)) => MachineInput::Message {
                assoc: id,
                event: MessageEvent::Accepted { listener, remote, streams },
            },
            (Some(streams), None) => {
                MachineInput::Message { assoc: id, event: MessageEvent::Up { remote, streams } }
            }
            (None, Some(listener)) => {
                let event = StreamEvent::Accepted { listener, remote, local, certificate };
                MachineInput::Stream { conn: id, event }
            }
            (None, None) => MachineInput::Stream {
                conn: id,
                event: StreamEvent::Connected { remote, local, certificate },
            },
        };
        self.feed_input(host, input);
    }
    fn notify_closed(&mut self, end: ConnEnd, reason: CloseReason) {
        let Some(conn) = self.wire.ends.remove(&end) else { return };
        let input = match conn.streams {
            Some(_) => MachineInput::Message { assoc: end.1, event: MessageEvent::Down(reason) },
            None => MachineInput::Stream { conn: end.1, event: StreamEvent::Closed(reason) },
        };
        self.feed_input(end.0, input);
    }
}

impl<M: Machine + 'static> Index<HostHandle<M>> for MachineNetwork {
    type Output = M;
    fn index(&self, host: HostHandle<M>) -> &M {
        &self.host_slot(host).machine
    }
}

impl<M: Machine + 'static> IndexMut<HostHandle<M>> for MachineNetwork {
    fn index_mut(&mut self, host: HostHandle<M>) -> &mut M {
        &mut self.slot_mut(host).machine
    }
}
