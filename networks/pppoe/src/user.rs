//! User mode: packet sockets at the access interfaces and a TUN device, with a thread for each way. Each has sessions of its own,
//! so that neither waits for the other.

use crate::forward::{Forwarder, HEADROOM, Upstream};
use crate::plane::{Carrier, Heard, Port};
use crate::session::{Counters, Session, SessionError, Usage};
use crate::sys::{BATCH, Inbox, Outbox};
use crate::{Event, StartError};
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
use usher_device::{Head, JOINED, Joiner, Offers, Segments, Tun, VNET_HEADER};
use usher_esp::ip::IpPacket;

/// What a thread is told.
enum Message {
    Install(Box<Session>, Sender<Result<(), SessionError>>),
    Remove(u16, Sender<Option<Usage>>),
    Usage(Vec<u16>, Sender<Vec<Option<Usage>>>),
    Changed(Sender<Vec<u16>>),
    Counters(Sender<Counters>),
    Stop,
}

/// A thread as others see it.
struct Worker {
    messages: Sender<Message>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn ask<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Option<T> {
        let (answer, answered) = channel();
        self.tell(message(answer))?;
        answered.recv().ok()
    }
    fn tell(&self, message: Message) -> Option<()> {
        self.messages.send(message).ok()?;
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes()).ok().map(drop)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.tell(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Both ways.
pub(crate) struct UserMode {
    up: Worker,
    down: Worker,
}

impl UserMode {
    pub(crate) fn start(tun: Tun, ports: Arc<[Port]>, hears: Heard, seed: u64) -> Result<Self, StartError> {
        let system = |what| move |error| StartError::System { what, error };
        let other = tun.file.try_clone().map_err(system("the device's second descriptor"))?;
        let addresses: Vec<[u8; 6]> = ports.iter().map(|port| port.interface.address).collect();
        let mtu = ports.iter().map(|port| port.interface.mtu as usize).max().unwrap_or(0);
        let forwarder = || Forwarder::new(addresses.clone(), seed);
        let offers = Offers { tcp: tun.tcp, udp: tun.udp };
        let (up_ports, up_hears, up_table) = (Arc::clone(&ports), hears.clone(), forwarder());
        let up = worker("pppoe-up", hears.clone(), move |common| Up {
            common,
            forwarder: up_table,
            device: tun.file,
            ports: up_ports,
            inbox: Inbox::new(mtu),
            joiner: Joiner::new(offers),
            hears: up_hears,
        })?;
        let table = forwarder();
        let down = worker("pppoe-down", hears, move |common| Down {
            common,
            forwarder: table,
            device: other,
            queues: ports.iter().map(|_| Vec::with_capacity(BATCH)).collect(),
            ports,
            read: vec![0; VNET_HEADER + JOINED],
            octets: vec![0; QUEUED],
            end: 0,
            outbox: Outbox::new(),
        })?;
        Ok(Self { up, down })
    }
}

impl Carrier for UserMode {
    fn install(&self, session: &Session) -> io::Result<()> {
        for worker in [&self.up, &self.down] {
            let session = Box::new(session.clone());
            match worker.ask(|answer| Message::Install(session, answer)) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::InvalidInput, error)),
                None => return Err(io::Error::other("the plane has ended")),
            }
        }
        Ok(())
    }
    fn remove(&self, number: u16) -> io::Result<Option<Usage>> {
        let one = |worker: &Worker| worker.ask(|answer| Message::Remove(number, answer)).flatten();
        let (up, down) = (one(&self.up), one(&self.down));
        Ok(up.zip(down).map(|(up, down)| up.plus(down)))
    }
    fn usage(&self, number: u16) -> io::Result<Option<Usage>> {
        Ok(self.usages(vec![number]).pop().map(|(_, usage)| usage))
    }
    fn changed(&self) -> io::Result<Vec<(u16, Usage)>> {
        let mut numbers: Vec<u16> = [&self.up, &self.down]
            .into_iter()
            .filter_map(|worker| worker.ask(Message::Changed))
            .flatten()
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(self.usages(numbers))
    }
    fn counters(&self) -> io::Result<Counters> {
        let mut all = Counters::default();
        for worker in [&self.up, &self.down] {
            all.add(&worker.ask(Message::Counters).unwrap_or_default());
        }
        Ok(all)
    }
}

impl UserMode {
    /// What these have carried that are there.
    fn usages(&self, numbers: Vec<u16>) -> Vec<(u16, Usage)> {
        let one = |worker: &Worker| {
            worker.ask(|answer| Message::Usage(numbers.clone(), answer)).unwrap_or_default()
        };
        let (up, down) = (one(&self.up), one(&self.down));
        let both = numbers.iter().zip(up.into_iter().zip(down));
        both.filter_map(|(number, (up, down))| Some((*number, up?.plus(down?)))).collect()
    }
}

/// What both threads have.
struct Common {
    messages: Receiver<Message>,
    wake: Arc<OwnedFd>,
    begun: Clock,
}

impl Common {
    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
    /// Does what it is told; false: it is to end. Who asked may have gone.
    fn obey(&self, forwarder: &mut Forwarder) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Install(session, answer) => drop(answer.send(forwarder.install(*session))),
                Message::Remove(number, answer) => drop(answer.send(forwarder.remove(number))),
                Message::Usage(numbers, answer) => {
                    let usages = numbers.into_iter().map(|number| forwarder.usage(number));
                    drop(answer.send(usages.collect()));
                }
                Message::Changed(answer) => drop(answer.send(forwarder.changed())),
                Message::Counters(answer) => drop(answer.send(forwarder.counters)),
                Message::Stop => return false,
            }
        }
        true
    }
    /// Waits until something comes.
    fn wait(&self, for_what: &mut Vec<PollFd<'_>>) -> Result<(), String> {
        match poll(for_what, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(format!("cannot wait for packets: {e}")),
        }
        // It counts; being read it is 0 again. Before that nothing is there to be read.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }
}

/// How nice its threads are to others (setpriority(2)): whoever waits for packets on this machine is not to take the processor from
/// the thread that brings them, for each of them.
const NICENESS: i32 = -10;
/// How often a thread looks in vain before it sleeps; it gives others its turn between.
const PATIENCE: u32 = 16;

/// A thread's work.
trait Work: Send + 'static {
    /// Moves what is there; whether something was.
    fn turn(&mut self) -> Result<bool, String>;
    /// Does what it is told; false: it is to end.
    fn obey(&mut self) -> bool;
    /// Waits.
    fn wait(&self) -> Result<(), String>;
}

fn worker<W: Work>(
    name: &'static str,
    hears: Heard,
    work: impl FnOnce(Common) -> W,
) -> Result<Worker, StartError> {
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
    let wake = Arc::new(wake.map_err(|e| StartError::System { what: "an eventfd", error: e.into() })?);
    let (messages, receiver) = channel();
    let mut work = work(Common { messages: receiver, wake: Arc::clone(&wake), begun: Clock::now() });
    let run = move || {
        // Without CAP_SYS_NICE, or a limit (RLIMIT_NICE) that lets it, it is as nice as the others.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut idle = PATIENCE;
        loop {
            let done = work.turn().and_then(|busy| {
                idle = if busy { 0 } else { idle + 1 };
                match idle {
                    0 => Ok(()),
                    // Whoever sends has packets coming one by one; being woken for each would cost it more than it takes us to look.
                    1..PATIENCE => {
                        std::thread::yield_now();
                        Ok(())
                    }
                    _ => work.wait(),
                }
            });
            if let Err(why) = done {
                return hears.say(Event::Failed(why));
            }
            if !work.obey() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    let thread = Some(thread.map_err(|error| StartError::System { what: "a thread", error })?);
    Ok(Worker { messages, wake, thread })
}

/// From hosts to the system.
struct Up {
    common: Common,
    forwarder: Forwarder,
    device: File,
    ports: Arc<[Port]>,
    inbox: Inbox,
    joiner: Joiner,
    hears: Heard,
}

impl Work for Up {
    fn turn(&mut self) -> Result<bool, String> {
        let now = self.common.now();
        let Self { forwarder, device, ports, inbox, joiner, hears, .. } = self;
        let (mut any, mut refused) = (false, 0);
        let mut write = |packet: &[u8]| {
            if rustix::io::write(&*device, packet).is_err() {
                refused += 1;
            }
        };
        for (number, port) in ports.iter().enumerate() {
            for socket in port.sockets() {
                match inbox.receive(socket) {
                    Ok(0) => continue,
                    Ok(_) => any = true,
                    // The interface was switched off; it may be switched on again.
                    Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => continue,
                    Err(e) => return Err(format!("interface {} is gone: {e}", port.name)),
                }
                for octets in inbox.received() {
                    let Some((head, frame)) = octets.split_first_chunk_mut() else { continue };
                    let head = Head::parse(head);
                    match forwarder.upstream(now, number, frame, head.partial()) {
                        Upstream::Control => hears.say(Event::Frame { port: number, data: frame.to_vec() }),
                        Upstream::Packet(range) => match head.complete(frame) {
                            Ok(()) => joiner.push(&frame[range], &mut write),
                            Err(_) => forwarder.counters.malformed += 1,
                        },
                        Upstream::Dropped => {}
                    }
                }
            }
        }
        joiner.flush(&mut write);
        forwarder.counters.not_delivered += refused;
        Ok(any)
    }
    fn obey(&mut self) -> bool {
        self.common.obey(&mut self.forwarder)
    }
    fn wait(&self) -> Result<(), String> {
        let mut all = vec![PollFd::new(&*self.common.wake, PollFlags::IN)];
        all.extend(
            self.ports.iter().flat_map(Port::sockets).map(|socket| PollFd::new(socket, PollFlags::IN)),
        );
        self.common.wait(&mut all)
    }
}

/// Octets of frames that wait to be sent together: some of the longest that the kernel joins.
const QUEUED: usize = 1 << 19;
/// Packets that are taken from the device before what waits is sent.
const TURN: usize = BATCH;

/// From the system to hosts.
struct Down {
    common: Common,
    forwarder: Forwarder,
    device: File,
    ports: Arc<[Port]>,
    /// Where a packet of the device is read.
    read: Vec<u8>,
    /// Frames that wait, one behind another, each with its head.
    octets: Vec<u8>,
    end: usize,
    /// Of each port its frames.
    queues: Vec<Vec<Range<usize>>>,
    outbox: Outbox,
}

impl Down {
    /// What becomes of a packet that was read.
    fn packet(&mut self, now: Instant, octets: &mut [u8]) -> Option<()> {
        let (head, octets) = octets.split_first_chunk_mut()?;
        let head = Head::parse(head);
        let read = IpPacket::parse(octets).ok()?;
        let segments = Segments::undone(head, octets, read)?;
        let lengths = (0..segments.count()).map(|n| segments.len(n));
        let (all, longest) = (lengths.sum(), segments.len(0));
        let to = self.forwarder.downstream(now, octets, head.partial(), segments.count(), all, longest);
        let Some(to) = to else { return Some(()) };
        for n in 0..segments.count() {
            let length = segments.len(n);
            if self.end + VNET_HEADER + HEADROOM + length > self.octets.len() {
                self.flush();
            }
            let whole = self.end..self.end + VNET_HEADER + HEADROOM + length;
            let place = &mut self.octets[whole.clone()];
            let (first, place) = place.split_first_chunk_mut::<VNET_HEADER>()?;
            let (front, packet) = place.split_first_chunk_mut()?;
            to.write(length, front);
            // The interface computes the checksum, or the kernel where it cannot.
            *first = segments.write_undone(n, head, octets, packet).behind(HEADROOM as u16).octets();
            self.end = whole.end;
            self.queues[to.port].push(whole);
        }
        Some(())
    }

    /// Moves what the device has; whether it had something.
    fn drain(&mut self, buf: &mut [u8]) -> Result<bool, String> {
        let mut any = false;
        let now = self.common.now();
        for _ in 0..TURN {
            let length = match rustix::io::read(&self.device, &mut *buf) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(e) => return Err(format!("the device is gone: {e}")),
            };
            any = true;
            if self.packet(now, &mut buf[..length]).is_none() {
                self.forwarder.counters.malformed += 1;
            }
        }
        self.flush();
        Ok(any)
    }

    /// Sends what waits.
    fn flush(&mut self) {
        for (port, queue) in self.ports.iter().zip(&mut self.queues) {
            let mut rest = &queue[..];
            while !rest.is_empty() {
                match self.outbox.send(&port.session, &self.octets, rest) {
                    Ok(sent) => {
                        self.forwarder.counters.frames_out += sent as u64;
                        rest = &rest[sent.clamp(1, rest.len())..];
                    }
                    // The interface's queue is full, or it is down: this one is lost, as on any router.
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

impl Work for Down {
    fn turn(&mut self) -> Result<bool, String> {
        let mut buf = std::mem::take(&mut self.read);
        let done = self.drain(&mut buf);
        self.read = buf;
        done
    }
    fn obey(&mut self) -> bool {
        self.common.obey(&mut self.forwarder)
    }
    fn wait(&self) -> Result<(), String> {
        let wake = PollFd::new(&*self.common.wake, PollFlags::IN);
        self.common.wait(&mut vec![wake, PollFd::new(&self.device, PollFlags::IN)])
    }
}
