//! One machine on a live driver, until somebody says that it is to end.

use crate::jobs::{JobQueue, JobShare};
use crate::{SignalEvent, SignalListener, WorkDone, notify};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use usher_core::{
    Instant, JobRequest, ListenerId, Machine, MachineInput, NoJob, PortId, WorkLabel, WorkRecord,
};
use usher_live::{Driver, DriverListener, DriverRole, DriverSockets, Mailbox, SocketOptions, SystemClock};

/// Why a service does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({what}): {error}{}", port_hint(address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// For what.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
    /// A thread, a socket, a signal.
    #[error("{what}: {error}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        error: io::Error,
    },
}

/// What to do about a port that is not given to everybody.
fn port_hint(address: &SocketAddr, error: &io::Error) -> &'static str {
    let low = error.kind() == io::ErrorKind::PermissionDenied && address.port() < 1024;
    if low {
        "; ports below 1024 are for root, or a program with the capability CAP_NET_BIND_SERVICE"
    } else {
        ""
    }
}

fn system_error(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System { what, error }
}

/// Neither a core dump nor a debugger of the same user is to show the keys that a server holds. The limit alone does not
/// keep the system from handing a dump to a program.
///
/// # Errors
/// What the system says.
pub fn protect_memory() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Listens for connections, of which nobody else has the address.
///
/// # Errors
/// [`ServeError::Listen`].
pub fn bind_listener(
    what: &'static str,
    address: SocketAddr,
    id: ListenerId,
) -> Result<DriverListener, ServeError> {
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let socket = usher_live::listen_tcp(address, &options);
    let socket = socket.map_err(|error| ServeError::Listen { address, what, error })?;
    Ok(DriverListener { id, socket, tls: None })
}

/// Jobs of several machines, each with the number of the one that asks. Hosts for which they are done are served in turn.
pub type MachineJobs<M> = JobQueue<Option<IpAddr>, (usize, JobRequest<<M as Machine>::Job>)>;

/// Does a machine's job, on the thread of a helper.
type JobWorker<M> =
    Arc<dyn Fn(JobRequest<<M as Machine>::Job>) -> <M as Machine>::Command + Send + Sync + 'static>;

/// Threads that do the jobs of machines.
pub struct HelperPool<M: Machine> {
    /// Answers with the command that a job is owed.
    helper: JobWorker<M>,
    /// How many jobs are done at a time.
    threads: usize,
    /// What waits for them.
    jobs: Arc<MachineJobs<M>>,
    /// What is answered to a job that finds no room.
    unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
}

impl<M: Machine> HelperPool<M> {
    /// So many threads, for a machine that bounds its jobs itself.
    pub fn new(
        threads: usize,
        helper: impl Fn(JobRequest<M::Job>) -> M::Command + Send + Sync + 'static,
    ) -> Self {
        Self { helper: Arc::new(helper), threads, jobs: Arc::default(), unable: |_| None }
    }
    /// The same with a queue that is bounded, and what is answered to a job that finds no room there.
    #[must_use]
    pub fn with_queue(
        self,
        jobs: Arc<MachineJobs<M>>,
        unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
    ) -> Self {
        Self { jobs, unable, ..self }
    }
}

/// Gives a machine a command; false once nobody takes any more.
pub type SendCommand<C> = Box<dyn Fn(C) -> bool + Send>;

/// Tells a machine of what happens elsewhere, on a thread of its own, until the program ends.
pub type CommandSource<C> = Box<dyn FnOnce(SendCommand<C>) + Send>;

/// Gives a machine a frame that has come by a port; false: more wait already than may, or nobody takes any more, and it is lost.
pub type FrameHandler = Box<dyn Fn(PortId, FrameKind, Vec<u8>) -> bool + Send>;

/// What room a frame has that waits for its machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// That of sessions that are there.
    Session,
    /// That of all others.
    Other,
}

/// Sends a frame by a port, from the destination address on.
pub type FrameSender = Box<dyn FnMut(PortId, &[u8]) + Send>;

/// Ports of Ethernet, which are a host's own and not a driver's.
pub struct EthernetPorts {
    /// Sends frames.
    pub send: FrameSender,
    /// Takes what the frames that come are given to, once the machine is hosted.
    pub source: Box<dyn FnOnce(FrameHandler) + Send>,
}

impl fmt::Debug for EthernetPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frames")
    }
}

/// Frames of each kind that have come and wait for their machine, at most.
const FRAMES: usize = 16_384;

/// How many frames of each kind wait.
#[derive(Debug, Default)]
struct FrameQuota([AtomicUsize; 2]);

impl FrameQuota {
    const fn waiting_count(&self, kind: FrameKind) -> &AtomicUsize {
        &self.0[kind as usize]
    }
    /// One more; false: there is no room.
    fn try_reserve(&self, kind: FrameKind) -> bool {
        let free = self.waiting_count(kind).fetch_add(1, Ordering::Relaxed) < FRAMES;
        if !free {
            self.give_back(kind);
        }
        free
    }
    fn give_back(&self, kind: FrameKind) {
        self.waiting_count(kind).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether what a machine says is the last that is waited for.
pub type StopCondition<M> = Box<dyn FnMut(&<M as Machine>::Event) -> bool + Send>;

/// A machine with what a live host needs to know of it.
pub struct HostedMachine<M: Machine> {
    /// What its threads are called.
    pub name: &'static str,
    /// The machine.
    pub machine: M,
    /// Its sockets.
    pub sockets: DriverSockets,
    /// Its ports of Ethernet, where it has some.
    pub frames: Option<EthernetPorts>,
    /// The clock that it goes by.
    pub clock: SystemClock,
    /// Do its jobs.
    pub helpers: HelperPool<M>,
    /// Hears what it says.
    pub event_handler: Box<dyn FnMut(M::Event) + Send>,
    /// Whether it has said all that it was to say, and the program ends with it.
    pub stop_condition: StopCondition<M>,
    /// What it has counted, by name; told in the log each minute in which it has changed, and at the end.
    pub counted: fn(&M) -> Vec<(&'static str, u64)>,
    /// Where its work is counted, where somebody asks for that.
    pub work: Option<WorkDone>,
    /// Reads the configuration again, for SIGHUP. `None`: the machine stays as it is.
    pub reload: Box<dyn FnMut() -> Option<M::Command>>,
    /// What else tells it something.
    pub sources: Vec<CommandSource<M::Command>>,
    /// What it is told last of all; what it then sends is sent.
    pub farewell: Box<dyn FnOnce() -> Option<M::Command>>,
    /// Whether that takes a while, so that it ends when it is [`stop_condition`](Self::stop_condition); it ends at once otherwise.
    pub waits_for_stop: bool,
}

impl<M: Machine> fmt::Debug for HostedMachine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often the log tells what was counted.
const COUNTED: Duration = Duration::from_secs(60);

enum MachineMessage<C> {
    Command(C),
    Frame(PortId, FrameKind, Vec<u8>),
    Count,
    Stop(Option<C>),
}

/// What hears what machines say.
struct EventHandlers<M: Machine> {
    event_handler: Box<dyn FnMut(M::Event) + Send>,
    stop_condition: StopCondition<M>,
}

/// A machine on a driver, whose jobs go to others.
struct MachineRole<M: Machine> {
    number: usize,
    machine: M,
    jobs: Arc<MachineJobs<M>>,
    unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
    /// The machines' mailboxes, once there are all.
    mailboxes: Arc<OnceLock<Arc<MachineMailboxes<M::Command>>>>,
    event_handlers: Arc<Mutex<EventHandlers<M>>>,
    counted: fn(&M) -> Vec<(&'static str, u64)>,
    last_counts: Vec<(&'static str, u64)>,
    /// Where its work is counted, and what is not counted there yet.
    done: Option<WorkDone>,
    work: Vec<(WorkLabel, u64)>,
    /// Sends frames.
    sends: Option<FrameSender>,
    /// How many frames have come and are not taken up.
    waiting: Arc<FrameQuota>,
    waits_for_stop: bool,
    stopped: bool,
}

impl<M: Machine> MachineRole<M> {
    /// Tells what was counted, where that is not what was told last.
    fn log_counters(&mut self) {
        let mut counted = (self.counted)(&self.machine);
        counted.retain(|(_, n)| *n > 0);
        if counted != self.last_counts {
            let all: Vec<String> = counted.iter().map(|(name, n)| format!("{name}={n}")).collect();
            tracing::info!(shard = self.number, counts = all.join(" "), "counted");
            self.last_counts = counted;
        }
    }
}

impl<M: Machine<Command: Send + 'static>> DriverRole for MachineRole<M> {
    type Machine = M;
    type Message = MachineMessage<M::Command>;

    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn on_event(&mut self, _: Instant, event: M::Event) {
        // Whoever hears it may ask what was done until now.
        if let Some(done) = &self.done {
            done.add_work(self.work.drain(..));
        }
        let mut hears = self.event_handlers.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped |= (hears.stop_condition)(&event);
        (hears.event_handler)(event);
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<M::Job>) {
        let origin = job.origin.clone();
        let whose = JobShare { share: origin.host(), origin, ..JobShare::default() };
        let Some((number, refused)) = self.jobs.enqueue_job(whose, (self.number, job)) else { return };
        // The machine is to bear that an answer does not come.
        if let (Some(command), Some(mailboxes)) = ((self.unable)(refused), self.mailboxes.get()) {
            mailboxes.deliver_answer(number, command);
        }
    }
    fn on_work(&mut self, work: WorkRecord) {
        if self.done.is_none() {
            return;
        }
        match self.work.iter_mut().find(|(label, _)| *label == work.label) {
            Some((_, units)) => *units += u64::from(work.units),
            None => self.work.push((work.label, work.units.into())),
        }
    }
    fn on_message(&mut self, now: Instant, message: Self::Message) {
        match message {
            // What was asked may have been given up meanwhile.
            MachineMessage::Command(command) => drop(self.machine.handle_command(now, command)),
            MachineMessage::Frame(port, kind, data) => {
                self.waiting.give_back(kind);
                self.machine.handle_input(now, MachineInput::Frame { port, data: &data });
            }
            MachineMessage::Count => self.log_counters(),
            MachineMessage::Stop(farewell) => {
                let lingers = self.waits_for_stop && farewell.is_some();
                if let Some(command) = farewell {
                    // It ends whatever it says to that.
                    let _ = self.machine.handle_command(now, command);
                }
                self.log_counters();
                self.stopped |= !lingers;
            }
        }
    }
    fn send_frame(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.sends.as_mut().map(|send| send(port, frame)).is_some()
    }
    fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// Which of several machines are told something, and what each.
pub type ShardRouter<C> = Arc<dyn Fn(C) -> Vec<(usize, C)> + Send + Sync>;

/// The machines' mailboxes, by their numbers.
struct MachineMailboxes<C> {
    all: Vec<Mailbox<MachineMessage<C>>>,
    share: ShardRouter<C>,
}

impl<C: Send + 'static> MachineMailboxes<C> {
    /// Gives a machine the answer to its job; one that has ended needs none.
    fn deliver_answer(&self, number: usize, command: C) {
        if let Some(mailbox) = self.all.get(number) {
            mailbox.send(MachineMessage::Command(command));
        }
    }
    /// False once one of those that are told takes nothing any more.
    fn send_command(&self, command: C) -> bool {
        let told = (self.share)(command).into_iter();
        told.fold(true, |all, (number, command)| {
            let mailbox = self.all.get(number);
            mailbox.is_some_and(|mailbox| mailbox.send(MachineMessage::Command(command))) && all
        })
    }
    /// All end, each with what it is told last.
    fn stop_all(&self, farewell: Option<C>) {
        let mut last: Vec<Option<C>> = self.all.iter().map(|_| None).collect();
        for (number, command) in farewell.into_iter().flat_map(|command| (self.share)(command)) {
            if let Some(place) = last.get_mut(number) {
                *place = Some(command);
            }
        }
        for (mailbox, last) in self.all.iter().zip(last) {
            mailbox.send(MachineMessage::Stop(last));
        }
    }
}

/// Serves until a signal says to end. SIGHUP has the configuration read again.
///
/// # Errors
/// It could not begin, or a thread of it failed.
pub fn serve_machine<M>(hosted: HostedMachine<M>) -> Result<(), ServeError>
where
    M: Machine<Command: Send, Event: Send, Job: Send> + Send + 'static,
{
    serve_shards(hosted, Vec::new(), Arc::new(|command| vec![(0, command)]))
}

/// The same of several machines, each on a thread with sockets of its own: those of `hosted` are number 0, and the others follow.
///
/// # Errors
/// It could not begin, or a thread of it failed.
pub fn serve_shards<M>(
    hosted: HostedMachine<M>,
    others: Vec<(M, DriverSockets)>,
    share: ShardRouter<M::Command>,
) -> Result<(), ServeError>
where
    M: Machine<Command: Send, Event: Send, Job: Send> + Send + 'static,
{
    let HostedMachine {
        name,
        machine,
        sockets,
        frames,
        clock,
        helpers,
        event_handler: said,
        stop_condition: over,
        counted,
        work,
        mut reload,
        sources,
        farewell,
        waits_for_stop: lingers,
    } = hosted;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system_error("runtime"))?;
    let HelperPool { helper, threads, jobs, unable } = helpers;
    let told = Arc::new(OnceLock::new());
    let hears = Arc::new(Mutex::new(EventHandlers { event_handler: said, stop_condition: over }));
    let machines = std::iter::once((machine, sockets)).chain(others).enumerate();
    // Ports of Ethernet are the first machine's.
    let (mut sends, frames) = match frames {
        Some(EthernetPorts { send, source }) => (Some(send), Some(source)),
        None => (None, None),
    };
    let waiting = Arc::new(FrameQuota::default());
    let (drivers, all): (Vec<_>, Vec<_>) = machines
        .map(|(number, (machine, sockets))| {
            let (jobs, hears, mailboxes) = (jobs.clone(), hears.clone(), told.clone());
            let (sends, waiting) = (sends.take(), waiting.clone());
            let served = MachineRole {
                number,
                machine,
                jobs,
                unable,
                mailboxes,
                event_handlers: hears,
                counted,
                last_counts: Vec::new(),
                done: work.clone(),
                work: Vec::new(),
                sends,
                waiting,
                waits_for_stop: lingers,
                stopped: false,
            };
            Driver::new(served, sockets, clock)
        })
        .unzip();
    if let (Some(source), Some(first)) = (frames, all.first().cloned()) {
        source(Box::new(move |port, kind, data| {
            if !waiting.try_reserve(kind) {
                return false;
            }
            let taken = first.send(MachineMessage::Frame(port, kind, data));
            if !taken {
                waiting.give_back(kind);
            }
            taken
        }));
    }
    let mailboxes = Arc::new(MachineMailboxes { all, share });
    // No driver runs yet, and this is the only one who sets them.
    let _ = told.set(mailboxes.clone());
    for _ in 0..threads.max(1) {
        let (jobs, helper, mailboxes) = (jobs.clone(), helper.clone(), mailboxes.clone());
        let body = move || {
            while let Some((number, job)) = jobs.take_job() {
                mailboxes.deliver_answer(number, helper(job));
            }
        };
        drop(
            std::thread::Builder::new()
                .name(format!("{name}-job"))
                .spawn(body)
                .map_err(system_error("thread"))?,
        );
    }
    for source in sources {
        let mailboxes = mailboxes.clone();
        let body = move || source(Box::new(move |command| mailboxes.send_command(command)));
        drop(
            std::thread::Builder::new()
                .name(format!("{name}-told"))
                .spawn(body)
                .map_err(system_error("thread"))?,
        );
    }
    let mut shards = Vec::new();
    for driver in drivers {
        let run = async move || driver.run().await.map(drop);
        let shard = usher_live::spawn_shard(name, None, run);
        shards
            .push(shard.map_err(|e| ServeError::System { what: "the driver", error: io::Error::other(e) })?);
    }
    let told = runtime.block_on(async {
        let mut signals = SignalListener::start_listening().map_err(system_error("signals"))?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "started");
        notify::notify_ready();
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut count = tokio::time::interval(COUNTED);
        loop {
            tokio::select! {
                _ = count.tick() => mailboxes.all.iter().for_each(|mailbox| {
                    mailbox.send(MachineMessage::Count);
                }),
                _ = tick.tick() => {
                    if shards.iter().any(usher_live::Shard::is_finished) {
                        break Ok(None);
                    }
                }
                told = signals.next() => match told {
                    SignalEvent::End => break Ok(Some(signals)),
                    SignalEvent::Reload => {
                        notify::notify_reloading();
                        if let Some(command) = reload() {
                            mailboxes.send_command(command);
                        }
                        notify::notify_ready();
                    }
                },
            }
        }
    })?;
    if let Some(signals) = told {
        signals.end_by_the_next();
        notify::notify_stopping();
        tracing::info!("stopping");
        mailboxes.stop_all(farewell());
    } else {
        // One has ended by itself, and the others end with it.
        mailboxes.stop_all(None);
    }
    let ended: Vec<_> = shards.into_iter().map(usher_live::Shard::join).collect();
    jobs.close_queue();
    tracing::info!("stopped");
    let whole =
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("it failed"))));
    whole.map_err(system_error("the driver"))
}

/// A machine on a driver until it has said what is waited for.
struct OneShotRole<M: Machine, T> {
    machine: M,
    event_filter: Box<dyn FnMut(M::Event) -> Option<T>>,
    found: Option<T>,
}

impl<M: Machine<Job = NoJob>, T> DriverRole for OneShotRole<M, T> {
    type Machine = M;
    type Message = NoJob;

    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn on_event(&mut self, _: Instant, event: M::Event) {
        if self.found.is_none() {
            self.found = (self.event_filter)(event);
        }
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, _: Instant, message: NoJob) {
        match message {}
    }
    fn is_stopped(&self) -> bool {
        self.found.is_some()
    }
}

/// Hosts a machine that was given something to do, until it has said what is waited for.
///
/// # Errors
/// The sockets cannot be taken into service.
pub fn run_until_event<M: Machine<Job = NoJob>, T>(
    machine: M,
    sockets: DriverSockets,
    clock: SystemClock,
    said: impl FnMut(M::Event) -> Option<T> + 'static,
) -> io::Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (driver, _) =
        Driver::new(OneShotRole { machine, event_filter: Box::new(said), found: None }, sockets, clock);
    Ok(runtime.block_on(driver.run())?.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_frames_leaves_sessions_that_are_there_their_room() {
        let room = FrameQuota::default();
        let taken = |kind, n: usize| (0..n).filter(|_| room.try_reserve(kind)).count();
        assert_eq!(taken(FrameKind::Other, 100_000), FRAMES);
        assert_eq!(taken(FrameKind::Session, FRAMES + 10), FRAMES);
        room.give_back(FrameKind::Other);
        assert_eq!((taken(FrameKind::Session, 5), taken(FrameKind::Other, 5)), (0, 1));
    }
}
