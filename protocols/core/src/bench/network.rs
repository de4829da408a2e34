//! The network: its hosts and their common time.

use super::wire::{ArrivalKind, HostConnectionId, PendingArrival, SimulatedNetworkState, TransmitRecord};
use crate::impair::ChannelConfig;
use crate::job::JobRequest;
use crate::machine::{
    CloseReason, CommandError, ConnId, LinkLayerPortId, ListenerId, Machine, MachineInput,
    MessageAssociationEvent, SocketId, StreamEvent, Transmit, WorkRecord,
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

/// A host of a [`MachineNetwork`], with the type of its machine.
#[derive(Debug)]
pub struct NetworkHostHandle<M> {
    /// The number of the host, from 0 in the order of addition.
    pub number: usize,
    machine: PhantomData<fn() -> M>,
}

impl<M> Clone for NetworkHostHandle<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for NetworkHostHandle<M> {}

/// The wall time at [`Instant::ZERO`] in each [`MachineNetwork`], unless set: 2026-01-01T00:00:00Z.
pub const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);

/// A number without a host.
const NO_HOST: usize = usize::MAX;

type DelayedCommand<M> = Option<(Duration, <M as Machine>::Command)>;
type EventCallback<M> = Box<dyn FnMut(&<M as Machine>::Event) -> DelayedCommand<M>>;
type JobCallback<M> = Box<dyn FnMut(JobRequest<<M as Machine>::Job>) -> DelayedCommand<M>>;

struct HostTableEntry<M: Machine> {
    machine: M,
    events: Vec<(Instant, M::Event)>,
    on_event: EventCallback<M>,
    on_job: JobCallback<M>,
}

/// A machine while it is drained, and the wire that takes its transmissions.
struct HostOutputDrain<'a, M: Machine> {
    slot: &'a mut HostTableEntry<M>,
    host: usize,
    wire: &'a mut SimulatedNetworkState,
}

impl<M> HostOutputDrain<'_, M>
where
    M: Machine<Command: 'static> + 'static,
{
    fn send_answer(&mut self, answer: DelayedCommand<M>) {
        let Some((after, command)) = answer else { return };
        if after.is_zero() {
            let done = self.slot.machine.handle_command(self.wire.now, command);
            return done.expect("a machine takes the answer to what it said");
        }
        let host: NetworkHostHandle<M> = NetworkHostHandle { number: self.host, machine: PhantomData };
        self.wire.push_arrival(
            self.wire.now + after,
            self.host,
            command_as_arrival(host, command),
            Vec::new(),
        );
    }
}

/// Passes a command to a machine. The entry that it concerns may be gone by then.
fn command_as_arrival<M: Machine<Command: 'static> + 'static>(
    host: NetworkHostHandle<M>,
    command: M::Command,
) -> ArrivalKind {
    ArrivalKind::Action(Box::new(move |net| {
        let _ = net.send_command(host, command);
    }))
}

impl<M> MachineHost for HostOutputDrain<'_, M>
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

/// A host with a machine of any type.
trait TypeErasedHost: Any {
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>);
    fn drain_outputs(&mut self, host: usize, wire: &mut SimulatedNetworkState);
    fn poll_timeout(&mut self) -> Option<Instant>;
}

impl<M> TypeErasedHost for HostTableEntry<M>
where
    M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
{
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.machine.handle_input(now, input);
    }
    fn drain_outputs(&mut self, host: usize, wire: &mut SimulatedNetworkState) {
        HostOutputDrain { slot: self, host, wire }.drain_outputs(&mut Vec::new());
    }
    fn poll_timeout(&mut self) -> Option<Instant> {
        self.machine.poll_timeout()
    }
}

/// Machines and the network between them, in virtual time.
///
/// The network carries the outputs of a machine out in their order. Packets, frames, streams and associations pass
/// [`Channel`](crate::impair::Channel)s: one per direction between two hosts, or one on the link of an address. Streams
/// and associations suffer no loss or damage. Arrivals at the same time happen in the order of sending; timers expire
/// after them.
///
/// [`Index`] gives access to the machine itself. The next run carries out the outputs of a direct call.
pub struct MachineNetwork {
    hosts: Vec<Box<dyn TypeErasedHost>>,
    timers: HostTimers,
    wire: SimulatedNetworkState,
}

/// The timers of the hosts in order, so that a step polls only the hosts that changed.
#[derive(Default)]
struct HostTimers {
    /// The timer of each host when it was last polled.
    deadlines: Vec<Option<Instant>>,
    order: BTreeSet<(Instant, usize)>,
    /// Hosts whose machines may have changed their timers since.
    stale: BTreeSet<usize>,
}

impl HostTimers {
    fn set_timer(&mut self, host: usize, at: Option<Instant>) {
        if let Some(before) = core::mem::replace(&mut self.deadlines[host], at) {
            self.order.remove(&(before, host));
        }
        self.order.extend(at.map(|at| (at, host)));
    }
    /// Returns the next timer of a host that is not silent. A past timer is due now; among several the first host wins.
    fn next_timer(&self, now: Instant, silent: &[bool]) -> Option<(Instant, usize)> {
        let past = self.order.range(..=(now, usize::MAX)).map(|(_, host)| *host);
        if let Some(host) = past.filter(|host| !silent[*host]).min() {
            return Some((now, host));
        }
        self.order.range((now, usize::MAX)..).find(|(_, host)| !silent[*host]).copied()
    }
}

impl MachineNetwork {
    /// A network without hosts. `channel` is the default between two hosts; [`link_hosts`](Self::link_hosts) replaces
    /// it.
    pub fn new(channel: ChannelConfig) -> Self {
        Self { hosts: Vec::new(), timers: HostTimers::default(), wire: SimulatedNetworkState::new(channel) }
    }
    /// Adds a host. If its machine leaves the source address open, the host uses its first address.
    pub fn add_host<M>(&mut self, mut machine: M, addresses: &[IpAddr]) -> NetworkHostHandle<M>
    where
        M: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static,
    {
        machine.set_epoch(self.wire.now, EPOCH);
        let on_job = |job: JobRequest<_>| panic!("nobody does the job of token {}", job.token);
        let slot = HostTableEntry {
            machine,
            events: Vec::new(),
            on_event: Box::new(|_| None),
            on_job: Box::new(on_job),
        };
        self.timers.stale.insert(self.hosts.len());
        self.timers.deadlines.push(None);
        self.hosts.push(Box::new(slot));
        self.wire.addresses.push(addresses.to_vec());
        self.wire.silent.push(false);
        self.wire.refusing.push(false);
        self.wire.certificates.push(None);
        NetworkHostHandle { number: self.hosts.len() - 1, machine: PhantomData }
    }
    /// Binds a socket to an address, for sending and receiving. A socket may have several addresses. Several hosts may
    /// bind one address (multicast). An unbound socket gets its own port when it sends.
    pub fn bind_socket<M>(&mut self, host: NetworkHostHandle<M>, socket: SocketId, address: SocketAddr) {
        self.wire.bound.push((address, host.number, socket));
    }
    /// Accepts connections and associations to this address at the listener.
    pub fn add_listener<M>(&mut self, host: NetworkHostHandle<M>, listener: ListenerId, address: SocketAddr) {
        self.wire.listeners.insert(address, (host.number, listener));
    }
    /// Joins ports: a frame sent by a port arrives at all the others.
    pub fn join_ports_in_segment(&mut self, ports: &[(usize, LinkLayerPortId)]) {
        self.wire.segments.push(ports.to_vec());
    }
    /// Sets the channel between two hosts, for both directions.
    pub fn link_hosts<A, B>(
        &mut self,
        a: NetworkHostHandle<A>,
        b: NetworkHostHandle<B>,
        channel: &ChannelConfig,
    ) {
        self.wire.link_hosts(a.number, b.number, channel);
        self.wire.link_hosts(b.number, a.number, channel);
    }
    /// Gives an address a link of its own. Packets from and to it take this channel, whichever host is at the other
    /// end. If both ends have a link, the sender's counts.
    pub fn link_address(&mut self, address: IpAddr, channel: &ChannelConfig) {
        self.wire.link_address(address, channel);
    }
    /// Sets the seed (initially 0) of channels that are created from now on.
    pub fn set_channel_seed(&mut self, seed: u16) {
        self.wire.seed = seed;
    }
    /// Sets the retransmission delay. Stream and association data that the channel would lose arrives this much later
    /// for each loss. The channel must not lose everything.
    pub fn set_retransmission_delay(&mut self, after: Duration) {
        self.wire.resent = Some(after);
    }
    /// Sets the certificate (DER) that a host presents on connections.
    pub fn set_certificate<M>(&mut self, host: NetworkHostHandle<M>, certificate: Option<&'static [u8]>) {
        self.wire.certificates[host.number] = certificate;
    }
    /// Sets the size in octets of the pieces in which stream data arrives.
    pub fn set_segment_size(&mut self, octets: usize) {
        self.wire.segment = octets;
    }
    /// Limits the outbound streams of an association.
    pub fn limit_streams(&mut self, streams: u16) {
        self.wire.granted = streams;
    }

    /// Passes each network operation to this function first, with its number from 0. The function may change the
    /// octets.
    ///
    /// It returns one additional delay per copy that arrives; without any, the packet is lost. Stream data and in-order
    /// messages wait for earlier data.
    pub fn intercept_transmits(
        &mut self,
        how: impl FnMut(usize, &mut TransmitRecord) -> Vec<Duration> + 'static,
    ) {
        self.wire.meddler = Box::new(how);
    }
    /// Loses the operations with these numbers.
    pub fn drop_transmits(&mut self, lost: &'static [usize]) {
        self.intercept_transmits(
            move |n, _| if lost.contains(&n) { Vec::new() } else { [Duration::ZERO].into() },
        );
    }
    /// Cuts or restores the path between two hosts. Meanwhile datagrams and frames are lost; streams and associations
    /// wait.
    pub fn set_severed<A, B>(&mut self, a: NetworkHostHandle<A>, b: NetworkHostHandle<B>, severed: bool) {
        self.wire.set_severed(a.number, b.number, severed);
    }
    /// Sets the link of an address down or up. While it is down, everything from and to the address is lost, streams
    /// and associations included. So is everything in flight when it goes down.
    pub fn set_address_down(&mut self, address: IpAddr, down: bool) {
        if down {
            self.wire.down.insert(address);
        } else {
            self.wire.down.remove(&address);
        }
    }
    /// Makes a host silent: it receives, sends and does nothing.
    pub fn set_silent<M>(&mut self, host: NetworkHostHandle<M>, silent: bool) {
        self.wire.silent[host.number] = silent;
    }
    /// Makes a host refuse connections and associations.
    pub fn set_refusing_connections<M>(&mut self, host: NetworkHostHandle<M>, refusing: bool) {
        self.wire.refusing[host.number] = refusing;
    }
    /// Resets all connections and associations of a host now. Both ends receive the reset.
    pub fn reset_connections<M>(&mut self, host: NetworkHostHandle<M>) {
        self.wire.reset_connections(host.number);
    }

    /// Loses everything in flight between hosts.
    pub fn drop_in_flight(&mut self) {
        self.wire.drop_in_flight();
    }

    /// Sets the reaction to a machine's events: a command after this delay, or none. The event is recorded too.
    pub fn on_event<M>(
        &mut self,
        host: NetworkHostHandle<M>,
        then: impl FnMut(&M::Event) -> DelayedCommand<M> + 'static,
    ) where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_event = Box::new(then);
    }
    /// Sets the worker of a host: the result of a job returns after this delay. Without a worker a job panics.
    pub fn on_job<M>(
        &mut self,
        host: NetworkHostHandle<M>,
        then: impl FnMut(JobRequest<M::Job>) -> DelayedCommand<M> + 'static,
    ) where
        M: Machine + 'static,
    {
        self.slot_mut(host).on_job = Box::new(then);
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        self.wire.now
    }
    /// Returns all network operations so far, as the machines requested them.
    pub fn sent_transmits(&self) -> &[TransmitRecord] {
        &self.wire.sent
    }
    /// Returns the connections and associations of a host, each with the number of the host at the other end.
    pub fn connections<M>(&self, host: NetworkHostHandle<M>) -> impl Iterator<Item = (ConnId, usize)> {
        let own = self.wire.ends.iter().filter(move |((of, _), _)| *of == host.number);
        own.filter_map(|((_, id), conn)| Some((*id, conn.other?.0)))
    }
    /// Returns the events of a machine since they were last taken, with their times.
    pub fn recorded_events<M: Machine + 'static>(
        &self,
        host: NetworkHostHandle<M>,
    ) -> &[(Instant, M::Event)] {
        &self.host_table_entry(host).events
    }
    /// Takes the events of a machine.
    pub fn take_events<M: Machine + 'static>(
        &mut self,
        host: NetworkHostHandle<M>,
    ) -> Vec<(Instant, M::Event)> {
        core::mem::take(&mut self.slot_mut(host).events)
    }
    /// Takes the work of the machines, by label.
    pub fn take_work(&mut self) -> BTreeMap<&'static str, u32> {
        core::mem::take(&mut self.wire.work)
    }
    /// Sets the wall clock of a host.
    pub fn set_epoch<M: Machine + 'static>(&mut self, host: NetworkHostHandle<M>, epoch: WallTime) {
        let now = self.wire.now;
        self[host].set_epoch(now, epoch);
        self.drain_host(host.number);
    }
    /// Passes a command to a machine and carries out its outputs.
    ///
    /// # Errors
    /// If the machine refuses it.
    pub fn send_command<M: Machine + 'static>(
        &mut self,
        host: NetworkHostHandle<M>,
        command: M::Command,
    ) -> Result<(), CommandError> {
        let now = self.wire.now;
        let done = self[host].handle_command(now, command);
        self.drain_host(host.number);
        done
    }
    /// Passes a command to a machine at this time, or now if the time is past. A refusal is ignored.
    pub fn schedule_command<M>(&mut self, host: NetworkHostHandle<M>, at: Instant, command: M::Command)
    where
        M: Machine<Command: 'static> + 'static,
    {
        self.wire.push_arrival(
            at.max(self.wire.now),
            host.number,
            command_as_arrival(host, command),
            Vec::new(),
        );
    }
    /// Runs an action at this time, or now if the time is past: a fault, a link change.
    pub fn schedule_action(&mut self, at: Instant, deed: impl FnOnce(&mut Self) + 'static) {
        self.wire.push_arrival(
            at.max(self.wire.now),
            NO_HOST,
            ArrivalKind::Action(Box::new(deed)),
            Vec::new(),
        );
    }
    /// Passes an input without a sender to a machine, and carries out its outputs.
    pub fn inject_input<M>(&mut self, host: NetworkHostHandle<M>, input: MachineInput<'_>) {
        self.feed_input(host.number, input);
    }

    /// Returns the time of the next arrival or timer.
    pub fn next_due_time(&mut self) -> Option<Instant> {
        let timer = self.next_timer().map(|(at, _)| at);
        self.wire.next_arrival_time().into_iter().chain(timer).min()
    }
    /// Runs the next arrival or timer, and returns the number of its host (`usize::MAX`: no particular host). `None`:
    /// nothing is left.
    pub fn run_next_arrival_or_timer(&mut self) -> Option<usize> {
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
    /// Advances the time without running anything. Due arrivals and timers are then late.
    pub fn skip_time(&mut self, time: Duration) {
        self.wire.now += time;
    }
    /// Runs everything until this time, inclusive. A past time means now.
    pub fn run_until(&mut self, until: Instant) {
        self.drain_hosts();
        while self.next_due_time().is_some_and(|at| at <= until) {
            self.run_next_arrival_or_timer();
        }
        self.wire.now = until.max(self.wire.now);
    }
    /// Runs for this much time.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.wire.now + time);
    }
    /// Runs until nothing is due.
    pub fn run_until_nothing_is_due(&mut self) {
        self.drain_hosts();
        while self.run_next_arrival_or_timer().is_some() {}
    }
    /// Carries out the outputs of machines that were called directly.
    pub fn drain_hosts(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.drain_host(host));
    }

    fn host_table_entry<M: Machine + 'static>(&self, host: NetworkHostHandle<M>) -> &HostTableEntry<M> {
        let slot: &dyn Any = &*self.hosts[host.number];
        slot.downcast_ref().expect("a host of this network")
    }
    fn slot_mut<M: Machine + 'static>(&mut self, host: NetworkHostHandle<M>) -> &mut HostTableEntry<M> {
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
        if self.wire.silent.get(host) == Some(&true) || self.wire.arrival_link_is_down(host, &what) {
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
                        MachineInput::Message {
                            assoc,
                            event: MessageAssociationEvent::Data { stream, ppid, data },
                        },
                    );
                }
            }
            ArrivalKind::Closed(id, reason) => self.notify_closed((host, id), reason),
            ArrivalKind::Action(deed) => deed(self),
        }
    }
    /// Tells an end that its connection is up. The accepting end then informs the other end.
    fn notify_connected(&mut self, end: HostConnectionId) {
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
                event: MessageAssociationEvent::Accepted { listener, remote, streams },
            },
            (Some(streams), None) => {
                MachineInput::Message { assoc: id, event: MessageAssociationEvent::Up { remote, streams } }
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
    fn notify_closed(&mut self, end: HostConnectionId, reason: CloseReason) {
        let Some(conn) = self.wire.ends.remove(&end) else { return };
        let input = match conn.streams {
            Some(_) => MachineInput::Message { assoc: end.1, event: MessageAssociationEvent::Down(reason) },
            None => MachineInput::Stream { conn: end.1, event: StreamEvent::Closed(reason) },
        };
        self.feed_input(end.0, input);
    }
}

impl<M: Machine + 'static> Index<NetworkHostHandle<M>> for MachineNetwork {
    type Output = M;
    fn index(&self, host: NetworkHostHandle<M>) -> &M {
        &self.host_table_entry(host).machine
    }
}

impl<M: Machine + 'static> IndexMut<NetworkHostHandle<M>> for MachineNetwork {
    fn index_mut(&mut self, host: NetworkHostHandle<M>) -> &mut M {
        &mut self.slot_mut(host).machine
    }
}
