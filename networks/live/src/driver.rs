//! The driver: runs one role on its sockets.

use crate::clock::WallClockMonitor;
use crate::mmsg::{BATCH, DatagramInbox, DatagramOutbox, OutgoingDatagram, ReceivedDatagram};
use crate::streams::ConnectionTable;
use crate::udp::DatagramSocket;
use crate::wake::{ReadyList, SocketTask};
use crate::{DriverConfig, DriverCounters, DriverRole, DriverSockets, Mailbox, SystemClock, bind_udp};
use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Sleep, sleep_until, timeout};
use usher_core::collections::HashMap;
use usher_core::{
    DatagramPath, Instant, JobRequest, Machine, MachineHost, MachineInput, SocketId, Transmit, WorkRecord,
};

/// Datagrams that the machine gets together. A group shares the cost of loading each step's code into the
/// first-level cache. A larger one would evict data from it.
const GROUP: usize = 8;

/// Fills a group.
const NO_DATAGRAM: (DatagramPath, &[u8]) = {
    let nobody = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    (DatagramPath { socket: SocketId::from_number(0), local: nobody, remote: nobody }, &[])
};

/// Runs a role: feeds its machine from sockets, mailbox and clock, and applies its outputs.
pub struct Driver<N: DriverRole> {
    node: N,
    sockets: DriverSockets,
    clock: SystemClock,
    mailbox: UnboundedReceiver<N::Message>,
    counters: Arc<DriverCounters>,
}

impl<N: DriverRole> Driver<N> {
    /// Creates a driver, to be [`run`](Self::run), and the mailbox of its role.
    #[must_use]
    pub fn new(node: N, sockets: DriverSockets, clock: SystemClock) -> (Self, Mailbox<N::Message>) {
        let (sender, mailbox) = unbounded_channel();
        (Self { node, sockets, clock, mailbox, counters: Arc::default() }, Mailbox(sender))
    }

    /// Returns the driver's counters, for other threads to read.
    #[must_use]
    pub fn counters(&self) -> Arc<DriverCounters> {
        Arc::clone(&self.counters)
    }

    /// Runs until the role is [stopped](DriverRole::is_stopped). It then sends queued data, closes connections and
    /// returns the role. The machine's initial outputs are applied first. It needs a runtime with one thread, as
    /// [`spawn_shard`](crate::spawn_shard) creates it.
    ///
    /// # Errors
    /// A socket could not be registered with the runtime. No input was served then.
    pub async fn run(self) -> io::Result<N> {
        let mut running = RunningDriver::new(self)?;
        let now = running.clock.now();
        running.follow_wall_clock(now);
        running.drain_machine(now);
        std::future::poll_fn(|cx| running.poll(cx)).await;
        let linger = running.settings.linger;
        // Limit the time of the last sends, because the kernel may accept no datagrams.
        let _ = timeout(linger, std::future::poll_fn(|cx| running.poll_send_queues(cx))).await;
        running.streams.close_all(linger).await;
        Ok(running.node)
    }
}

struct RunningDriver<N: DriverRole> {
    node: N,
    clock: SystemClock,
    settings: DriverConfig,
    counters: Arc<DriverCounters>,
    mailbox: UnboundedReceiver<N::Message>,
    messages: Vec<N::Message>,
    ready: ReadyList,
    tasks: Vec<SocketTask>,
    /// Sockets in the order of their first use; `None` if the bind failed.
    ports: Vec<Option<DatagramSocket>>,
    /// The machine's id of each socket.
    numbers: Vec<SocketId>,
    /// The index of each socket.
    port_indices: HashMap<SocketId, usize>,
    /// The index of the last socket used.
    recent: usize,
    inbox: Option<DatagramInbox>,
    outbox: DatagramOutbox,
    letters: Vec<OutgoingDatagram>,
    /// Buffers of sent datagrams, for reuse.
    spare: Vec<Vec<u8>>,
    buffer: Vec<u8>,
    /// Time of the machine's last input.
    now: Instant,
    wall: WallClockMonitor,
    streams: ConnectionTable,
    sleep: Pin<Box<Sleep>>,
    /// When `sleep` ends; `sleep` is not polled if this is the far future.
    armed: Instant,
}

impl<N: DriverRole> RunningDriver<N> {
    fn new(driver: Driver<N>) -> io::Result<Self> {
        let Driver { node, sockets, clock, mailbox, counters } = driver;
        let DriverSockets { udp, listeners, associations, outgoing, settings } = sockets;
        let ready = ReadyList::default();
        let (numbers, udp): (Vec<_>, Vec<_>) = udp.into_iter().unzip();
        let port = |(index, socket)| DatagramSocket::new(socket, index, &ready, settings.offload).map(Some);
        let ports = udp.into_iter().enumerate().map(port).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            node,
            clock,
            settings,
            streams: ConnectionTable::new(
                (listeners, associations),
                outgoing,
                settings,
                Arc::clone(&counters),
                &ready,
            )?,
            counters,
            mailbox,
            messages: Vec::with_capacity(BATCH),
            ready,
            tasks: Vec::new(),
            port_indices: numbers.iter().copied().zip(0..).collect(),
            numbers,
            recent: 0,
            ports,
            inbox: Some(DatagramInbox::new()),
            outbox: DatagramOutbox::new(),
            letters: Vec::with_capacity(BATCH),
            spare: Vec::with_capacity(BATCH),
            buffer: Vec::new(),
            now: Instant::ZERO,
            wall: WallClockMonitor::new(clock),
            sleep: Box::pin(sleep_until(tokio::time::Instant::now())),
            armed: Instant::FAR_FUTURE,
        })
    }

    /// Does a bounded part of all pending work; ready when the role has stopped.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ready.register_waker(cx.waker());
        self.follow_wall_clock(self.clock.now());
        let again = self.poll_mailbox(cx) | self.poll_connection_events(cx);
        let mut tasks = std::mem::take(&mut self.tasks);
        self.ready.take_ready_tasks(&mut tasks);
        for task in tasks.drain(..) {
            match task {
                SocketTask::Receive(index) => self.receive_datagrams(index),
                SocketTask::Send(index) => self.send_queued(index),
                SocketTask::Accept(index) => self.streams.accept_waiting(index, &self.node),
            }
        }
        self.tasks = tasks;
        // Send replies before the machine's slow work.
        self.flush_datagrams();
        let due = self.handle_timers(cx);
        self.flush_datagrams();
        if self.node.is_stopped() {
            return Poll::Ready(());
        }
        if due {
            // A machine that is due at once defers costly work, so that waiting datagrams go first. Let the runtime
            // poll its sockets, which it does not do at each wake-up.
            let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
        } else if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Passes the wall time to the machine if the clock was set or has drifted.
    fn follow_wall_clock(&mut self, now: Instant) {
        if let Some(epoch) = self.wall.poll_change(now) {
            self.node.machine().set_epoch(now, epoch);
            self.drain_machine(now);
        }
    }

    /// Handles a batch of mailbox messages; true if there may be more.
    fn poll_mailbox(&mut self, cx: &mut Context<'_>) -> bool {
        let mut messages = std::mem::take(&mut self.messages);
        // If there are no mailboxes, the channel is closed from the start. This does not mean that the driver must end.
        let came = matches!(self.mailbox.poll_recv_many(cx, &mut messages, BATCH), Poll::Ready(1..));
        for message in messages.drain(..) {
            self.counters.messages.increment();
            let now = self.clock.now();
            self.node.on_message(now, message);
            self.drain_machine(now);
        }
        self.messages = messages;
        came
    }

    /// Handles a batch of connection events; true if there may be more.
    fn poll_connection_events(&mut self, cx: &mut Context<'_>) -> bool {
        let mut notes = self.streams.poll_connection_notes(cx);
        let came = !notes.is_empty();
        for (conn, note) in notes.drain(..) {
            let now = self.clock.now();
            if self.streams.deliver_event(&mut self.node, now, conn, note) {
                self.drain_machine(now);
            }
        }
        self.streams.recycle_list(notes);
        came
    }

    /// Receives a batch of datagrams.
    fn receive_datagrams(&mut self, index: usize) {
        // The inbox is always present here, because only this function takes it, and it puts it back.
        let Some(mut inbox) = self.inbox.take() else { return };
        let port = self.ports.get_mut(index).and_then(Option::as_mut);
        let count = port.map_or(0, |port| port.receive_batch(&mut inbox, &self.counters));
        if count == 0 {
            self.inbox = Some(inbox);
            return;
        }
        self.counters.batches_in.increment();
        self.deliver_datagrams(index, &inbox);
        self.inbox = Some(inbox);
    }

    /// Passes received datagrams to the machine.
    fn deliver_datagrams(&mut self, index: usize, inbox: &DatagramInbox) {
        let mut received = inbox.datagrams();
        loop {
            let mut group = [NO_DATAGRAM; GROUP];
            let mut taken = 0;
            for received in received.by_ref() {
                let Some(path) = self.datagram_path(index, &received) else { continue };
                group[taken] = (path, received.data);
                taken += 1;
                if taken == GROUP {
                    break;
                }
            }
            if taken == 0 {
                break;
            }
            let now = self.clock.now();
            self.node.machine().handle_datagrams(now, &group[..taken]);
            self.drain_machine(now);
        }
    }

    /// Returns the path of a datagram; `None` if the machine must not get it.
    fn datagram_path(&mut self, index: usize, received: &ReceivedDatagram<'_>) -> Option<DatagramPath> {
        let port = self.ports.get(index)?.as_ref()?;
        let Some(remote) = received.remote else {
            self.counters.unknown_family.increment();
            return None;
        };
        if received.truncated {
            self.counters.truncated.increment();
            return None;
        }
        self.counters.datagrams_in.increment();
        self.counters.datagram_octets_in.add(received.data.len() as u64);
        let path = DatagramPath {
            socket: *self.numbers.get(index)?,
            local: port.local_address(received.local),
            remote,
        };
        if self.node.divert_datagram(path, received.data) {
            self.counters.diverted.increment();
            return None;
        }
        Some(path)
    }

    /// Handles the machine's timers while they are due and the time slice lasts, and arms the timer for the next.
    /// True if that one is due too.
    fn handle_timers(&mut self, cx: &mut Context<'_>) -> bool {
        let mut next = self.node.machine().poll_timeout();
        let begun = self.clock.now();
        let mut now = begun;
        while next.is_some_and(|at| at <= now) {
            self.counters.timeouts.increment();
            self.node.machine().handle_input(now, MachineInput::Timeout);
            self.drain_machine(now);
            next = self.node.machine().poll_timeout();
            now = self.clock.now();
            if u128::from(now.duration_since(begun).as_nanos()) >= self.settings.time_slice.as_nanos() {
                break;
            }
        }
        let Some(next) = next else { return false };
        if next <= now {
            return true;
        }
        // Keep an early timer: an extra wake-up is cheaper than a move at each change.
        if next < self.armed {
            let Some(at) = self.clock.system_instant(next) else { return false };
            self.sleep.as_mut().reset(at.into());
            self.armed = next;
        }
        if self.armed != Instant::FAR_FUTURE && self.sleep.as_mut().poll(cx).is_ready() {
            self.armed = Instant::FAR_FUTURE;
            return true;
        }
        false
    }

    /// Applies the machine's outputs and reports closed connections to it, until it has no more outputs.
    fn drain_machine(&mut self, now: Instant) {
        self.now = now;
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            MachineHost::drain_outputs(self, &mut buffer);
            if !self.streams.report_driver_closed_connection(&mut self.node, now) {
                break;
            }
        }
        self.buffer = buffer;
    }

    /// Sends the queued datagrams.
    fn flush_datagrams(&mut self) {
        if self.letters.is_empty() {
            return;
        }
        // The kernel can accept adjacent datagrams of the same length and addresses as one, so sort them.
        let key = |letter: &OutgoingDatagram| (letter.socket, letter.remote, Reverse(letter.data.len()));
        if self.letters.windows(2).any(|pair| key(&pair[0]) > key(&pair[1])) {
            self.letters.sort_by_key(key);
        }
        let mut letters = std::mem::take(&mut self.letters);
        for run in letters.chunk_by_mut(|a, b| a.socket == b.socket) {
            if !self.has_port(&run[0]) {
                self.counters.no_socket.add(run.len() as u64);
            } else if let Some(Some(port)) = self.ports.get_mut(run[0].socket) {
                port.send_or_queue(run, self.settings.datagram_queue, &mut self.outbox, &self.counters);
            }
        }
        self.spare.extend(letters.drain(..).map(|letter| letter.data));
        self.spare.truncate(BATCH);
        self.letters = letters;
    }

    /// Returns the index of this socket; an index past the end if there are too many.
    fn socket_index(&mut self, socket: SocketId) -> usize {
        if self.numbers.get(self.recent) == Some(&socket) {
            return self.recent;
        }
        if let Some(place) = self.port_indices.get(&socket) {
            self.recent = *place;
            return *place;
        }
        let place = self.ports.len();
        if place < self.settings.sockets {
            self.ports.push(None);
            self.numbers.push(socket);
            self.port_indices.insert(socket, place);
        }
        place
    }

    /// True if a datagram has a socket. A new number gets a socket of its own.
    fn has_port(&mut self, letter: &OutgoingDatagram) -> bool {
        let index = letter.socket;
        if matches!(self.ports.get(index), Some(Some(_))) {
            return true;
        }
        if index >= self.ports.len() {
            return false;
        }
        let any: IpAddr = match letter.remote {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = if letter.local.is_ipv4() == letter.remote.is_ipv4() {
            letter.local
        } else {
            SocketAddr::new(any, letter.local.port())
        };
        let offload = self.settings.offload;
        let port = bind_udp(local, &self.settings.ephemeral)
            .and_then(|socket| DatagramSocket::new(socket, index, &self.ready, offload));
        self.ports[index] = port.ok();
        self.ports[index].is_some()
    }

    fn send_queued(&mut self, index: usize) {
        if let Some(Some(port)) = self.ports.get_mut(index) {
            port.send_queued(&mut self.outbox, &self.counters);
        }
    }

    /// Sends queued datagrams; ready when all queues are empty.
    fn poll_send_queues(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ready.register_waker(cx.waker());
        let mut tasks = Vec::new();
        self.ready.take_ready_tasks(&mut tasks);
        for task in tasks {
            if let SocketTask::Send(index) = task {
                self.send_queued(index);
            }
        }
        if self.ports.iter().flatten().all(DatagramSocket::is_idle) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<N: DriverRole> MachineHost for RunningDriver<N> {
    type Machine = N::Machine;

    fn machine(&mut self) -> &mut N::Machine {
        self.node.machine()
    }

    fn transmit(&mut self, transmit: Transmit, buffer: &mut Vec<u8>) {
        match transmit {
            Transmit::Datagram { path } => {
                let DatagramPath { socket, local, remote } = path;
                let socket = self.socket_index(socket);
                let data = std::mem::replace(buffer, self.spare.pop().unwrap_or_default());
                self.letters.push(OutgoingDatagram { socket, local, remote, data });
                if self.letters.len() >= BATCH {
                    self.flush_datagrams();
                }
            }
            Transmit::Stream { conn, op } => self.streams.apply_operation(conn, op, buffer),
            Transmit::Message { assoc, op } => self.streams.operate_association(assoc, op, buffer),
            Transmit::Frame { port } => {
                if !self.node.send_frame(port, buffer) {
                    self.counters.unsupported.increment();
                }
            }
        }
    }

    fn handle_event(&mut self, event: <N::Machine as Machine>::Event) {
        self.node.on_event(self.now, event);
    }

    fn record_work(&mut self, work: WorkRecord) {
        self.node.on_work(work);
    }

    fn start_job(&mut self, job: JobRequest<<N::Machine as Machine>::Job>) {
        self.node.on_job(self.now, job);
    }
}
