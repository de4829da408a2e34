//! Runs one machine on a live driver until a signal ends it.

use crate::jobs::{JobFairnessKey, JobQueue};
use crate::{
    EthernetPorts, FrameInput, FrameKind, FrameSender, ServiceSignals, ServiceTasks, ShardMailboxes,
    StopReason, WorkUnitCounters, run_until_stopped, start_runtime,
};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use usher_core::{
    Instant, JobRequest, LinkLayerPortId, ListenerId, Machine, MachineInput, NoJob, WorkLabel, WorkRecord,
};
use usher_live::{Driver, DriverRole, DriverSockets, DriverTcpListener, SocketOptions, SystemClock};

/// Why a service does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address is unavailable.
    #[error("cannot listen on {address} ({what}): {error}{}", port_hint(address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The use of the address.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// A thread, a socket or a signal handler is unavailable.
    #[error("{what}: {error}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
}

/// Returns a hint for privileged ports.
fn port_hint(address: &SocketAddr, error: &io::Error) -> &'static str {
    let low = error.kind() == io::ErrorKind::PermissionDenied && address.port() < 1024;
    if low { "; a port below 1024 needs root or the capability CAP_NET_BIND_SERVICE" } else { "" }
}

impl ServeError {
    /// The failure of an operation.
    #[must_use]
    pub const fn system(what: &'static str, error: io::Error) -> Self {
        Self::System { what, error }
    }
}

/// Converts an error of the system in this operation.
pub fn system_error(what: &'static str) -> impl FnOnce(io::Error) -> ServeError + Copy {
    move |error| ServeError::system(what, error)
}

/// Keeps a server's keys out of core dumps and away from debuggers of the same user. The core limit alone does not
/// stop the system from piping a dump to a program.
///
/// # Errors
/// An error of the system.
pub fn protect_memory() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Listens on an address that no other program can share.
///
/// # Errors
/// [`ServeError::Listen`].
pub fn bind_listener(
    what: &'static str,
    address: SocketAddr,
    id: ListenerId,
) -> Result<DriverTcpListener, ServeError> {
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let socket = usher_live::listen_tcp(address, &options);
    let socket = socket.map_err(|error| ServeError::Listen { address, what, error })?;
    Ok(DriverTcpListener { id, socket, tls: None })
}

/// Jobs of several machines, each with the index of its machine. Hosts take turns.
pub type MachineJobQueue<M> = JobQueue<Option<IpAddr>, (usize, JobRequest<<M as Machine>::Job>)>;

/// Does a job of a machine on a worker thread.
type JobWorker<M> =
    Arc<dyn Fn(JobRequest<<M as Machine>::Job>) -> <M as Machine>::Command + Send + Sync + 'static>;

/// Worker threads for the jobs of machines.
pub struct MachineWorkerPool<M: Machine> {
    /// Returns the command with the job's result.
    helper: JobWorker<M>,
    /// The number of concurrent jobs.
    threads: usize,
    /// The pending jobs.
    jobs: Arc<MachineJobQueue<M>>,
    /// Makes the result of a job that is refused because the queue is full.
    unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
}

impl<M: Machine> MachineWorkerPool<M> {
    /// Creates a pool for a machine that bounds its jobs itself.
    pub fn new(
        threads: usize,
        helper: impl Fn(JobRequest<M::Job>) -> M::Command + Send + Sync + 'static,
    ) -> Self {
        Self { helper: Arc::new(helper), threads, jobs: Arc::default(), unable: |_| None }
    }
    /// Bounds the queue. `unable` makes the result of a refused job.
    #[must_use]
    pub fn with_bounded_job_queue(
        self,
        jobs: Arc<MachineJobQueue<M>>,
        unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
    ) -> Self {
        Self { jobs, unable, ..self }
    }
}

/// Sends a command to a machine. False once the machine has ended.
pub type SendCommand<C> = Box<dyn Fn(C) -> bool + Send>;

/// A source of commands. It runs on a thread of its own until the program ends.
pub type CommandSource<C> = Box<dyn FnOnce(SendCommand<C>) + Send>;

/// Returns true at the event that ends the wait for a machine.
pub type StopCondition<M> = Box<dyn FnMut(&<M as Machine>::Event) -> bool + Send>;

/// A machine with all that a live host needs to run it.
pub struct HostedMachine<M: Machine> {
    /// The name of its threads.
    pub name: &'static str,
    /// The machine.
    pub machine: M,
    /// Its sockets.
    pub sockets: DriverSockets,
    /// Its Ethernet ports, if any.
    pub frames: Option<EthernetPorts>,
    /// Its clock.
    pub clock: SystemClock,
    /// The pool that does its jobs.
    pub helpers: MachineWorkerPool<M>,
    /// Receives its events.
    pub event_handler: Box<dyn FnMut(M::Event) + Send>,
    /// True at the machine's last event, after which the program ends.
    pub stop_condition: StopCondition<M>,
    /// Its counters by name. The log has them each minute if they have changed, and at the end.
    pub counted: fn(&M) -> Vec<(&'static str, u64)>,
    /// Accumulates its work, if a reader needs it.
    pub work: Option<WorkUnitCounters>,
    /// Reloads the configuration on SIGHUP. `None`: the machine keeps its configuration.
    pub reload: Box<dyn FnMut() -> Option<M::Command> + Send>,
    /// Further sources of commands.
    pub sources: Vec<CommandSource<M::Command>>,
    /// The last command. The transmissions that it causes still leave.
    pub farewell: Box<dyn FnOnce() -> Option<M::Command>>,
    /// True: wait for [`stop_condition`](Self::stop_condition) after the last command. False: end at once.
    pub waits_for_stop: bool,
}

impl<M: Machine> fmt::Debug for HostedMachine<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The seconds between two lines of the log with the counters.
const COUNTED: u32 = 60;

enum HostedMachineMessage<C> {
    Command(C),
    Frame(LinkLayerPortId, FrameKind, Vec<u8>),
    Count,
    Stop(Option<C>),
}

/// The handlers of machines' events.
struct MachineEventHandlers<M: Machine> {
    event_handler: Box<dyn FnMut(M::Event) + Send>,
    stop_condition: StopCondition<M>,
}

/// A machine on a driver, whose jobs go to a pool.
struct MachineRole<M: Machine> {
    number: usize,
    machine: M,
    jobs: Arc<MachineJobQueue<M>>,
    unable: fn(JobRequest<M::Job>) -> Option<M::Command>,
    mailboxes: MachineMailboxes<M::Command>,
    event_handlers: Arc<Mutex<MachineEventHandlers<M>>>,
    counted: fn(&M) -> Vec<(&'static str, u64)>,
    last_counts: Vec<(&'static str, u64)>,
    /// Accumulates its work, and holds the part that is not accumulated yet.
    done: Option<WorkUnitCounters>,
    work: Vec<(WorkLabel, u64)>,
    /// Sends frames.
    sends: Option<FrameSender>,
    /// The queue of received frames.
    frames: FrameInput,
    waits_for_stop: bool,
    stopped: bool,
}

impl<M: Machine> MachineRole<M> {
    /// Logs the counters if they have changed.
    fn log_changed_counters(&mut self) {
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
    type Message = HostedMachineMessage<M::Command>;

    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn on_event(&mut self, _: Instant, event: M::Event) {
        // Count the pending work now, because the event handler may read these counts.
        if let Some(done) = &self.done {
            done.add_work(self.work.drain(..));
        }
        let mut hears = self.event_handlers.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped |= (hears.stop_condition)(&event);
        (hears.event_handler)(event);
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<M::Job>) {
        let origin = job.origin.clone();
        let whose = JobFairnessKey { share: origin.host(), origin, ..JobFairnessKey::default() };
        let Some((number, refused)) = self.jobs.enqueue_job(whose, (self.number, job)) else { return };
        // If the refused job has no command to report it, the machine gets no result, which it must tolerate.
        if let Some(command) = (self.unable)(refused) {
            self.mailboxes.send(number, HostedMachineMessage::Command(command));
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
            // An error is ignored: the machine may have abandoned the request.
            HostedMachineMessage::Command(command) => drop(self.machine.handle_command(now, command)),
            HostedMachineMessage::Frame(port, kind, data) => {
                self.frames.release_frame_room(kind);
                self.machine.handle_input(now, MachineInput::Frame { port, data: &data });
            }
            HostedMachineMessage::Count => self.log_changed_counters(),
            HostedMachineMessage::Stop(farewell) => {
                let lingers = self.waits_for_stop && farewell.is_some();
                if let Some(command) = farewell {
                    // The result is ignored: the machine ends in any case.
                    let _ = self.machine.handle_command(now, command);
                }
                self.log_changed_counters();
                self.stopped |= !lingers;
            }
        }
    }
    fn send_frame(&mut self, port: LinkLayerPortId, frame: &[u8]) -> bool {
        self.sends.as_mut().map(|send| send(port, frame)).is_some()
    }
    fn is_stopped(&self) -> bool {
        self.stopped
    }
}

/// Selects the machines that receive a command, and the command of each.
pub type ShardRouter<C> = Arc<dyn Fn(C) -> Vec<(usize, C)> + Send + Sync>;

/// The mailboxes of machines.
type MachineMailboxes<C> = ShardMailboxes<HostedMachineMessage<C>>;

/// Sends a command to its machines. False once one of them has ended.
fn send_command<C>(mailboxes: &MachineMailboxes<C>, share: &ShardRouter<C>, command: C) -> bool {
    share(command).into_iter().fold(true, |all, (number, command)| {
        mailboxes.send(number, HostedMachineMessage::Command(command)) && all
    })
}

/// Ends all machines, each with the last command.
fn stop_machines<C>(mailboxes: &MachineMailboxes<C>, share: &ShardRouter<C>, farewell: Option<C>) {
    let mut last: Vec<Option<C>> = mailboxes.as_slice().iter().map(|_| None).collect();
    for (number, command) in farewell.into_iter().flat_map(|command| share(command)) {
        if let Some(place) = last.get_mut(number) {
            *place = Some(command);
        }
    }
    for (mailbox, last) in mailboxes.as_slice().iter().zip(last) {
        mailbox.send(HostedMachineMessage::Stop(last));
    }
}

/// Serves until a signal ends it. SIGHUP reloads the configuration.
///
/// # Errors
/// The service could not start, or one of its threads failed.
pub fn serve_machine<M>(hosted: HostedMachine<M>) -> Result<(), ServeError>
where
    M: Machine<Command: Send, Event: Send, Job: Send> + Send + 'static,
{
    serve_sharded_machines(hosted, Vec::new(), Arc::new(|command| vec![(0, command)]))
}

/// Serves with several machines, each on a thread with its own sockets. `hosted` has the sockets of machine 0, and
/// the others follow.
///
/// # Errors
/// The service could not start, or one of its threads failed.
pub fn serve_sharded_machines<M>(
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
    let runtime = start_runtime()?;
    let MachineWorkerPool { helper, threads, jobs, unable } = helpers;
    let mailboxes = MachineMailboxes::default();
    let hears = Arc::new(Mutex::new(MachineEventHandlers { event_handler: said, stop_condition: over }));
    let machines = std::iter::once((machine, sockets)).chain(others).enumerate();
    // Only the first of the machines gets the Ethernet ports.
    let (mut sends, frames) =
        frames.map_or_else(Default::default, |EthernetPorts { send, input }| (Some(send), input));
    let (drivers, all): (Vec<_>, Vec<_>) = machines
        .map(|(number, (machine, sockets))| {
            let (jobs, hears, mailboxes) = (jobs.clone(), hears.clone(), mailboxes.clone());
            let (sends, frames) = (sends.take(), frames.clone());
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
                frames,
                waits_for_stop: lingers,
                stopped: false,
            };
            Driver::new(served, sockets, clock)
        })
        .unzip();
    if let Some(first) = all.first().cloned() {
        frames.set_target(Box::new(move |port, kind, data| {
            first.send(HostedMachineMessage::Frame(port, kind, data))
        }));
    }
    mailboxes.set_mailboxes(all);
    let workers = (0..threads.max(1)).map(|_| {
        let (helper, mailboxes) = (helper.clone(), mailboxes.clone());
        move |(number, job): (usize, _)| {
            // A machine that has ended needs no result.
            mailboxes.send(number, HostedMachineMessage::Command(helper(job)));
        }
    });
    jobs.start_workers(&format!("{name}-job"), workers)?;
    for source in sources {
        let (mailboxes, share) = (mailboxes.clone(), share.clone());
        let body = move || source(Box::new(move |command| send_command(&mailboxes, &share, command)));
        drop(
            std::thread::Builder::new()
                .name(format!("{name}-told"))
                .spawn(body)
                .map_err(system_error("cannot start a thread"))?,
        );
    }
    let mut shards = Vec::new();
    for driver in drivers {
        let run = async move || driver.run().await.map(drop);
        let shard = usher_live::spawn_shard(name, None, run);
        shards.push(
            shard.map_err(|e| ServeError::System {
                what: "cannot start a shard",
                error: io::Error::other(e),
            })?,
        );
    }
    let started = || {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "started");
        Ok::<_, ServeError>(())
    };
    let (reloaded, counting, sharing) = (mailboxes.clone(), mailboxes.clone(), share.clone());
    let mut seconds = 0;
    let tasks = ServiceTasks {
        reload: Box::new(move || {
            if let Some(command) = reload() {
                send_command(&reloaded, &sharing, command);
            }
        }),
        tick: Box::new(move || {
            if seconds % COUNTED == 0 {
                for mailbox in counting.as_slice() {
                    mailbox.send(HostedMachineMessage::Count);
                }
            }
            seconds += 1;
        }),
    };
    let signals = ServiceSignals::listen_for_process_signals;
    match run_until_stopped(runtime, signals, &shards, started, tasks)? {
        StopReason::Signal => {
            tracing::info!("stopping");
            stop_machines(&mailboxes, &share, farewell());
        }
        // One machine has ended by itself, so end the others too.
        StopReason::ShardEnded => stop_machines(&mailboxes, &share, None),
    }
    let ended: Vec<_> = shards.into_iter().map(usher_live::Shard::join).collect();
    jobs.close_queue();
    tracing::info!("stopped");
    let whole = ended
        .into_iter()
        .try_for_each(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("its thread has panicked"))));
    whole.map_err(system_error("a shard has failed"))
}

/// A machine on a driver until an expected event.
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

/// Runs a machine with a task until its result arrives.
///
/// # Errors
/// The driver cannot use the sockets.
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
