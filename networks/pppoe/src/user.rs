//! User mode: packet sockets at the access interfaces and a TUN device, with a thread for each direction. Each thread
//! has its own table of sessions, so that neither waits for the other.

use crate::engine::{AccessPort, ForwardingEngine, SharedEventHandler};
use crate::forward::{ForwardingTable, HEADROOM, UpstreamVerdict};
use crate::session::{DataPlaneCounters, DataPlaneSession, DataPlaneUsage, SessionInstallError};
use crate::sys::{BATCH, FrameInbox, FrameOutbox};
use crate::{DataPlaneEvent, StartError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant as Clock;
use usher_core::Instant;
use usher_device::{
    JOINED, PacketCoalescer, PacketSegments, SegmentationOffloads, TunDevice, VNET_HEADER, VnetHeader,
};
use usher_esp::ip::IpPacket;

/// A message to a thread.
enum ForwardingWorkerMessage {
    Install(Box<DataPlaneSession>, Sender<Result<(), SessionInstallError>>),
    Remove(u16, Sender<Option<DataPlaneUsage>>),
    Usage(Vec<u16>, Sender<Vec<Option<DataPlaneUsage>>>),
    Changed(Sender<Vec<u16>>),
    Counters(Sender<DataPlaneCounters>),
    Stop,
}

/// The handle of a thread.
struct ForwardingWorker {
    messages: Sender<ForwardingWorkerMessage>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ForwardingWorker {
    fn send_request<T>(&self, message: impl FnOnce(Sender<T>) -> ForwardingWorkerMessage) -> Option<T> {
        let (answer, answered) = channel();
        self.send_message(message(answer))?;
        answered.recv().ok()
    }
    fn send_message(&self, message: ForwardingWorkerMessage) -> Option<()> {
        self.messages.send(message).ok()?;
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes()).ok().map(drop)
    }
}

impl Drop for ForwardingWorker {
    fn drop(&mut self) {
        let _ = self.send_message(ForwardingWorkerMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The threads of both directions.
pub(crate) struct UserSpaceDataPlane {
    up: ForwardingWorker,
    down: ForwardingWorker,
}

impl UserSpaceDataPlane {
    pub(crate) fn start(
        tun: TunDevice,
        ports: Arc<[AccessPort]>,
        hears: SharedEventHandler,
        seed: u64,
    ) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let other = tun.file.try_clone().map_err(system("cannot duplicate the descriptor of the device"))?;
        let addresses: Vec<[u8; 6]> = ports.iter().map(|port| port.interface.address).collect();
        let mtu = ports.iter().map(|port| port.interface.mtu as usize).max().unwrap_or(0);
        let forwarder = || ForwardingTable::new(addresses.clone(), seed);
        let offers = SegmentationOffloads { tcp: tun.tcp, udp: tun.udp };
        let (up_ports, up_hears, up_table) = (Arc::clone(&ports), hears.clone(), forwarder());
        let up = spawn_worker("pppoe-up", hears.clone(), move |common| UpstreamWorker {
            common,
            forwarder: up_table,
            device: tun.file,
            ports: up_ports,
            inbox: FrameInbox::new(mtu),
            joiner: PacketCoalescer::new(offers),
            event_handler: up_hears,
        })?;
        let table = forwarder();
        let down = spawn_worker("pppoe-down", hears, move |common| DownstreamWorker {
            common,
            forwarder: table,
            device: other,
            queues: ports.iter().map(|_| Vec::with_capacity(BATCH)).collect(),
            ports,
            read: vec![0; VNET_HEADER + JOINED],
            octets: vec![0; QUEUED],
            end: 0,
            outbox: FrameOutbox::new(),
        })?;
        Ok(Self { up, down })
    }
}

impl ForwardingEngine for UserSpaceDataPlane {
    fn install(&self, session: &DataPlaneSession) -> io::Result<()> {
        for worker in [&self.up, &self.down] {
            let session = Box::new(session.clone());
            match worker.send_request(|answer| ForwardingWorkerMessage::Install(session, answer)) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
                None => return Err(io::Error::other("the data plane has ended")),
            }
        }
        Ok(())
    }
    fn remove(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        let one = |worker: &ForwardingWorker| {
            worker.send_request(|answer| ForwardingWorkerMessage::Remove(number, answer)).flatten()
        };
        let (up, down) = (one(&self.up), one(&self.down));
        Ok(up.zip(down).map(|(up, down)| up.sum_with(down)))
    }
    fn usage(&self, number: u16) -> io::Result<Option<DataPlaneUsage>> {
        Ok(self.session_usages(vec![number]).pop().map(|(_, usage)| usage))
    }
    fn changed_usages(&self) -> io::Result<Vec<(u16, DataPlaneUsage)>> {
        let mut numbers: Vec<u16> = [&self.up, &self.down]
            .into_iter()
            .filter_map(|worker| worker.send_request(ForwardingWorkerMessage::Changed))
            .flatten()
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(self.session_usages(numbers))
    }
    fn counters(&self) -> io::Result<DataPlaneCounters> {
        let mut all = DataPlaneCounters::default();
        for worker in [&self.up, &self.down] {
            all.add(&worker.send_request(ForwardingWorkerMessage::Counters).unwrap_or_default());
        }
        Ok(all)
    }
}

impl UserSpaceDataPlane {
    /// Returns the usage of those sessions that are installed.
    fn session_usages(&self, numbers: Vec<u16>) -> Vec<(u16, DataPlaneUsage)> {
        let one = |worker: &ForwardingWorker| {
            worker
                .send_request(|answer| ForwardingWorkerMessage::Usage(numbers.clone(), answer))
                .unwrap_or_default()
        };
        let (up, down) = (one(&self.up), one(&self.down));
        let both = numbers.iter().zip(up.into_iter().zip(down));
        both.filter_map(|(number, (up, down))| Some((*number, up?.sum_with(down?)))).collect()
    }
}

/// The common parts of both threads.
struct WorkerContext {
    messages: Receiver<ForwardingWorkerMessage>,
    wake: Arc<OwnedFd>,
    clock: Clock,
}

impl WorkerContext {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
    /// Handles the pending messages; false: the thread must end. The sender may no longer wait for the reply.
    fn handle_messages(&self, forwarder: &mut ForwardingTable) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ForwardingWorkerMessage::Install(session, answer) => {
                    let _ = answer.send(forwarder.install(*session));
                }
                ForwardingWorkerMessage::Remove(number, answer) => {
                    let _ = answer.send(forwarder.remove(number));
                }
                ForwardingWorkerMessage::Usage(numbers, answer) => {
                    let usages = numbers.into_iter().map(|number| forwarder.usage(number));
                    drop(answer.send(usages.collect()));
                }
                ForwardingWorkerMessage::Changed(answer) => drop(answer.send(forwarder.take_changed())),
                ForwardingWorkerMessage::Counters(answer) => drop(answer.send(forwarder.counters)),
                ForwardingWorkerMessage::Stop => return false,
            }
        }
        true
    }
    /// Waits for events.
    fn wait_for_events(&self, for_what: &mut Vec<PollFd<'_>>) -> Result<(), String> {
        match poll(for_what, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("cannot wait for packets: {e}")),
        }
        // Reading resets the eventfd's counter. An error is ignored: reading fails if the counter is already zero.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }
}

/// The niceness of the threads (setpriority(2)). Processes that wait for packets must not preempt the thread that
/// forwards them at each packet.
const NICENESS: i32 = -10;
/// Idle polls before a thread sleeps. It yields the processor after each.
const MAX_IDLE_POLLS: u32 = 16;

/// The work of a thread.
trait ForwardingLoop: Send + 'static {
    /// Moves available packets; true if there were any.
    fn run_once(&mut self) -> Result<bool, String>;
    /// Handles the pending messages; false: the thread must end.
    fn handle_messages(&mut self) -> bool;
    /// Waits for packets or messages.
    fn wait_for_work(&self) -> Result<(), String>;
}

fn spawn_worker<W: ForwardingLoop>(
    name: &'static str,
    hears: SharedEventHandler,
    work: impl FnOnce(WorkerContext) -> W,
) -> Result<ForwardingWorker, StartError> {
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    let wake =
        Arc::new(wake.map_err(|e| StartError::System { what: "cannot create an eventfd", error: e.into() })?);
    let (messages, receiver) = channel();
    let mut work = work(WorkerContext { messages: receiver, wake: Arc::clone(&wake), clock: Clock::now() });
    let run = move || {
        // An error is ignored: without CAP_SYS_NICE or RLIMIT_NICE the niceness stays unchanged.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut idle = MAX_IDLE_POLLS;
        loop {
            let done = work.run_once().and_then(|busy| {
                idle = if busy { 0 } else { idle + 1 };
                match idle {
                    0 => Ok(()),
                    // Packets often arrive one by one. Waking this thread for each would cost the sender more than
                    // polling costs this thread.
                    1..MAX_IDLE_POLLS => {
                        std::thread::yield_now();
                        Ok(())
                    }
                    _ => work.wait_for_work(),
                }
            });
            if let Err(why) = done {
                return hears.send_event(DataPlaneEvent::Failed(why));
            }
            if !work.handle_messages() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let thread = Some(thread.map_err(|error| StartError::System { what: "cannot start a thread", error })?);
    Ok(ForwardingWorker { messages, wake, thread })
}

/// Forwards packets from hosts to the system.
struct UpstreamWorker {
    common: WorkerContext,
    forwarder: ForwardingTable,
    device: File,
    ports: Arc<[AccessPort]>,
    inbox: FrameInbox,
    joiner: PacketCoalescer,
    event_handler: SharedEventHandler,
}

impl ForwardingLoop for UpstreamWorker {
    fn run_once(&mut self) -> Result<bool, String> {
        let now = self.common.now();
        let Self { forwarder, device, ports, inbox, joiner, event_handler: hears, .. } = self;
        let (mut any, mut refused) = (false, 0);
        let mut write = |packet: &[u8]| {
            if rustix::io::write(&*device, packet).is_err() {
                refused += 1;
            }
        };
        for (number, port) in ports.iter().enumerate() {
            for socket in port.sockets() {
                match inbox.receive_batch(socket) {
                    Ok(0) => continue,
                    Ok(_) => any = true,
                    // The interface is down, but may come up again, so keep reading.
                    Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => continue,
                    Err(e) => return Err(format!("interface {} is gone: {e}", port.name)),
                }
                for octets in inbox.received_frames() {
                    let Some((head, frame)) = octets.split_first_chunk_mut() else { continue };
                    let head = VnetHeader::parse(head);
                    match forwarder.process_upstream(now, number, frame, head.has_partial_checksum()) {
                        UpstreamVerdict::Control => {
                            hears.send_event(DataPlaneEvent::Frame { port: number, data: frame.to_vec() })
                        }
                        UpstreamVerdict::Packet(range) => match head.complete_checksum(frame) {
                            Ok(()) => joiner.push(&frame[range], &mut write),
                            Err(_) => forwarder.counters.malformed += 1,
                        },
                        UpstreamVerdict::Dropped => {}
                    }
                }
            }
        }
        joiner.flush(&mut write);
        forwarder.counters.not_delivered += refused;
        Ok(any)
    }
    fn handle_messages(&mut self) -> bool {
        self.common.handle_messages(&mut self.forwarder)
    }
    fn wait_for_work(&self) -> Result<(), String> {
        let mut all = vec![PollFd::new(&*self.common.wake, PollFlags::IN)];
        all.extend(
            self.ports.iter().flat_map(AccessPort::sockets).map(|socket| PollFd::new(socket, PollFlags::IN)),
        );
        self.common.wait_for_events(&mut all)
    }
}

/// Octets of the queued frames: room for several of the longest packets that the kernel joins.
const QUEUED: usize = 1 << 19;
/// Maximum packets read from the device before the queues are sent.
const TURN: usize = BATCH;

/// Forwards packets from the system to hosts.
struct DownstreamWorker {
    common: WorkerContext,
    forwarder: ForwardingTable,
    device: File,
    ports: Arc<[AccessPort]>,
    /// The buffer for packets of the device.
    read: Vec<u8>,
    /// Queued frames, each with its virtio header.
    octets: Vec<u8>,
    end: usize,
    /// The ranges of each port's queued frames.
    queues: Vec<Vec<Range<usize>>>,
    outbox: FrameOutbox,
}

impl DownstreamWorker {
    /// Queues the frames of a packet.
    fn queue_packet(&mut self, now: Instant, octets: &mut [u8]) -> Option<()> {
        let (head, octets) = octets.split_first_chunk_mut()?;
        let head = VnetHeader::parse(head);
        let read = IpPacket::parse(octets).ok()?;
        let segments = PacketSegments::with_partial_checksum(head, octets, read)?;
        let lengths = (0..segments.segment_count()).map(|n| segments.len(n));
        let (all, longest) = (lengths.sum(), segments.len(0));
        let to = self.forwarder.process_downstream(
            now,
            octets,
            head.has_partial_checksum(),
            segments.segment_count(),
            all,
            longest,
        );
        let Some(to) = to else { return Some(()) };
        for n in 0..segments.segment_count() {
            let length = segments.len(n);
            if self.end + VNET_HEADER + HEADROOM + length > self.octets.len() {
                self.send_queued_frames();
            }
            let whole = self.end..self.end + VNET_HEADER + HEADROOM + length;
            let place = &mut self.octets[whole.clone()];
            let (first, place) = place.split_first_chunk_mut::<VNET_HEADER>()?;
            let (front, packet) = place.split_first_chunk_mut()?;
            to.write_session_headers(length, front);
            // The checksum is left to the interface, or to the kernel if the interface cannot compute it.
            *first = segments
                .write_segment_unfinished(n, head, octets, packet)
                .shift_header_offsets(HEADROOM as u16)
                .to_octets();
            self.end = whole.end;
            self.queues[to.port].push(whole);
        }
        Some(())
    }

    /// Moves the device's packets; true if there were any.
    fn forward_device_packets(&mut self, buf: &mut [u8]) -> Result<bool, String> {
        let mut any = false;
        let now = self.common.now();
        for _ in 0..TURN {
            let length = match rustix::io::read(&self.device, &mut *buf) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(e) => return Err(format!("the device is gone: {e}")),
            };
            any = true;
            if self.queue_packet(now, &mut buf[..length]).is_none() {
                self.forwarder.counters.malformed += 1;
            }
        }
        self.send_queued_frames();
        Ok(any)
    }

    /// Sends the queued frames.
    fn send_queued_frames(&mut self) {
        for (port, queue) in self.ports.iter().zip(&mut self.queues) {
            let mut rest = &queue[..];
            while !rest.is_empty() {
                match self.outbox.send_batch(&port.session, &self.octets, rest) {
                    Ok(sent) => {
                        self.forwarder.counters.frames_out += sent as u64;
                        rest = &rest[sent.clamp(1, rest.len())..];
                    }
                    // The interface's queue is full, or it is down: drop this frame, as a router does.
                    Err(_) => {
                        self.forwarder.counters.not_sent += 1;
                        rest = &rest[1..];
                    }
                }
            }
            queue.clear();
        }
        self.end = 0;
    }
}

impl ForwardingLoop for DownstreamWorker {
    fn run_once(&mut self) -> Result<bool, String> {
        let mut buf = std::mem::take(&mut self.read);
        let done = self.forward_device_packets(&mut buf);
        self.read = buf;
        done
    }
    fn handle_messages(&mut self) -> bool {
        self.common.handle_messages(&mut self.forwarder)
    }
    fn wait_for_work(&self) -> Result<(), String> {
        let wake = PollFd::new(&*self.common.wake, PollFlags::IN);
        self.common.wait_for_events(&mut vec![wake, PollFd::new(&self.device, PollFlags::IN)])
    }
}
