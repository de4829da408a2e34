//! One machine on a live driver, until somebody says that it is to end.

use crate::jobs::{JobQueue, JobShare};
use crate::{Signals, Told, WorkDone, notify};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use usher_core::{Input, Instant, Job, ListenerId, Machine, NoJob, PortId, Work, WorkLabel};
use usher_live::{Clock, Driver, Listener, Mailbox, Role, SocketOptions, Sockets};

/// Why a service does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({what}): {error}{}", hint(address, error))]
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
fn hint(address: &SocketAddr, error: &io::Error) -> &'static str {
    let low = error.kind() == io::ErrorKind::PermissionDenied && address.port() < 1024;
    if low {
        "; ports below 1024 are for root, or a program with the capability CAP_NET_BIND_SERVICE"
    } else {
        ""
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> ServeError {
    move |error| ServeError::System { what, error }
}

/// Neither a core dump nor a debugger of the same user is to show the keys that a server holds. The limit alone does not
/// keep the system from handing a dump to a program.
///
/// # Errors
/// What the system says.
pub fn keep_memory_private() -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Listens for connections, of which nobody else has the address.
///
/// # Errors
/// [`ServeError::Listen`].
pub fn listen(what: &'static str, address: SocketAddr, id: ListenerId) -> Result<Listener, ServeError> {
    let options = SocketOptions { shared: false, ..SocketOptions::default() };
    let socket = usher_live::listen(address, &options);
    let socket = socket.map_err(|error| ServeError::Listen { address, what, error })?;
    Ok(Listener { id, socket, tls: None })
}

/// Jobs of several machines, each with the number of the one that asks. Hosts for which they are done are served in turn.
pub type MachineJobs<M> = JobQueue<Option<IpAddr>, (usize, Job<<M as Machine>::Job>)>;

/// Does a machine's job, on the thread of a helper.
type Helper<M> = Arc<dyn Fn(Job<<M as Machine>::Job>) -> <M as Machine>::Command + Send + Sync + 'static>;

/// Threads that do the jobs of machines.
pub struct HelperPool<M: Machine> {
    /// Answers with the command that a job is owed.
    helper: Helper<M>,
    /// How many jobs are done at a time.
    threads: usize,
    /// What waits for them.
    jobs: Arc<MachineJobs<M>>,
    /// What is answered to a job that finds no room.
    unable: fn(Job<M::Job>) -> Option<M::Command>,
}

impl<M: Machine> HelperPool<M> {
    /// So many threads, for a machine that bounds its jobs itself.
    pub fn new(threads: usize, helper: impl Fn(Job<M::Job>) -> M::Command + Send + Sync + 'static) -> Self {
        Self { helper: Arc::new(helper), threads, jobs: Arc::default(), unable: |_| None }
    }
    /// The same with a queue that is bounded, and what is answered to a job that finds no room there.
    #[must_use]
    pub fn bounded(self, jobs: Arc<MachineJobs<M>>, unable: fn(Job<M::Job>) -> Option<M::Command>) -> Self {
        Self { jobs, unable, ..self }
    }
}

/// Gives a machine a command; false once nobody takes any more.
pub type Teller<C> = Box<dyn Fn(C) -> bool + Send>;

/// Tells a machine of what happens elsewhere, on a thread of its own, until the program ends.
pub type Source<C> = Box<dyn FnOnce(Teller<C>) + Send>;

/// Gives a machine a frame that has come by a port; false: more wait already than may, or nobody takes any more, and it is lost.
pub type FrameTeller = Box<dyn Fn(PortId, FrameKind, Vec<u8>) -> bool + Send>;

/// What room a frame has that waits for its machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// That of sessions that are there.
    OfSession,
    /// That of all others.
    Other,
}

/// Sends a frame by a port, from the destination address on.
pub type FrameSender = Box<dyn FnMut(PortId, &[u8]) + Send>;

/// Ports of Ethernet, which are a host's own and not a driver's.
pub struct Frames {
    /// Sends frames.
    pub send: FrameSender,
    /// Takes what the frames that come are given to, once the machine is hosted.
    pub source: Box<dyn FnOnce(FrameTeller) + Send>,
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Frames")
    }
}

/// Frames of each kind that have come and wait for their machine, at most.
const FRAMES: usize = 16_384;

/// How many frames of each kind wait.
#[derive(Debug, Default)]
struct Room([AtomicUsize; 2]);

impl Room {
    const fn of(&self, kind: FrameKind) -> &AtomicUsize {
        &self.0[kind as usize]
    }
    /// One more; false: there is no room.
    fn take(&self, kind: FrameKind) -> bool {
        let free = self.of(kind).fetch_add(1, Ordering::Relaxed) < FRAMES;
        if !free {
            self.give_back(kind);
        }
        free
    }
    fn give_back(&self, kind: FrameKind) {
        self.of(kind).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether what a machine says is the last that is waited for.
pub type Until<M> = Box<dyn FnMut(&<M as Machine>::Event) -> bool + Send>;

/// A machine with what a live host needs to know of it.
pub struct Hosted<M: Machine> {
    /// What its threads are called.
    pub name: &'static str,
    /// The machine.
    pub machine: M,
    /// Its sockets.
    pub sockets: Sockets,
    /// Its ports of Ethernet, where it has some.
    pub frames: Option<Frames>,
    /// The clock that it goes by.
    pub clock: Clock,
    /// Do its jobs.
    pub helpers: HelperPool<M>,
    /// Hears what it says.
    pub said: Box<dyn FnMut(M::Event) + Send>,
    /// Whether it has said all that it was to say, and the program ends with it.
    pub over: Until<M>,
    /// What it has counted, by name; told in the log each minute in which it has changed, and at the end.
    pub counted: fn(&M) -> Vec<(&'static str, u64)>,
    /// Where its work is counted, where somebody asks for that.
    pub work: Option<WorkDone>,
    /// Reads the configuration again, for SIGHUP. `None`: the machine stays as it is.
    pub reload: Box<dyn FnMut() -> Option<M::Command>>,
    /// What else tells it something.
    pub sources: Vec<Source<M::Command>>,
    /// What it is told last of all; what it then sends is sent.
    pub farewell: Box<dyn FnOnce() -> Option<M::Command>>,
    /// Whether that takes a while, so that it ends when it is [`over`](Self::over); it ends at once otherwise.
    pub lingers: bool,
}

impl<M: Machine> fmt::Debug for Hosted<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often the log tells what was counted.
const COUNTED: Duration = Duration::from_secs(60);

enum Message<C> {
    Command(C),
    Frame(PortId, FrameKind, Vec<u8>),
    Count,
    Stop(Option<C>),
}

/// What hears what machines say.
struct Hears<M: Machine> {
    said: Box<dyn FnMut(M::Event) + Send>,
    over: Until<M>,
}

/// A machine on a driver, whose jobs go to others.
struct Served<M: Machine> {
    number: usize,
    machine: M,
    jobs: Arc<MachineJobs<M>>,
    unable: fn(Job<M::Job>) -> Option<M::Command>,
    /// The machines' mailboxes, once there are all.
    mailboxes: Arc<OnceLock<Arc<Mailboxes<M::Command>>>>,
    hears: Arc<Mutex<Hears<M>>>,
    counted: fn(&M) -> Vec<(&'static str, u64)>,
    told: Vec<(&'static str, u64)>,
    /// Where its work is counted, and what is not counted there yet.
    done: Option<WorkDone>,
    work: Vec<(WorkLabel, u64)>,
    /// Sends frames.
    sends: Option<FrameSender>,
    /// How many frames have come and are not taken up.
    waiting: Arc<Room>,
    lingers: bool,
    stopped: bool,
}

impl<M: Machine> Served<M> {
    /// Tells what was counted, where that is not what was told last.
    fn count(&mut self) {
        let mut counted = (self.counted)(&self.machine);
        counted.retain(|(_, n)| *n > 0);
        if counted != self.told {
            let all: Vec<String> = counted.iter().map(|(name, n)| format!("{name}={n}")).collect();
            tracing::info!(shard = self.number, counts = all.join(" "), "counted");
            self.told = counted;
        }
    }
}

impl<M: Machine<Command: Send + 'static>> Role for Served<M> {
    type Machine = M;
    type Message = Message<M::Command>;

    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn event(&mut self, _: Instant, event: M::Event) {
        // Whoever hears it may ask what was done until now.
        if let Some(done) = &self.done {
            done.add(self.work.drain(..));
        }
        let mut hears = self.hears.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped |= (hears.over)(&event);
        (hears.said)(event);
    }
    fn job(&mut self, _: Instant, job: Job<M::Job>) {
        let origin = job.origin.clone();
        let whose = JobShare { share: origin.host(), origin, ..JobShare::default() };
        let Some((number, refused)) = self.jobs.put(whose, (self.number, job)) else { return };
        // The machine is to bear that an answer does not come.
        if let (Some(command), Some(mailboxes)) = ((self.unable)(refused), self.mailboxes.get()) {
            mailboxes.answer(number, command);
        }
    }
    fn work(&mut self, work: Work) {
        if self.done.is_none() {
            return;
        }
        match self.work.iter_mut().find(|(label, _)| *label == work.label) {
            Some((_, units)) => *units += u64::from(work.units),
            None => self.work.push((work.label, work.units.into())),
        }
    }
    fn message(&mut self, now: Instant, message: Self::Message) {
        match message {
            // What was asked may have been given up meanwhile.
            Message::Command(command) => drop(self.machine.command(now, command)),
            Message::Frame(port, kind, data) => {
                self.waiting.give_back(kind);
                self.machine.handle(now, Input::Frame { port, data: &data });
            }
            Message::Count => self.count(),
            Message::Stop(farewell) => {
                let lingers = self.lingers && farewell.is_some();
                if let Some(command) = farewell {
                    // It ends whatever it says to that.
                    let _ = self.machine.command(now, command);
                }
                self.count();
                self.stopped |= !lingers;
            }
        }
    }
    fn frame(&mut self, port: PortId, frame: &[u8]) -> bool {
        self.sends.as_mut().map(|send| send(port, frame)).is_some()
    }
    fn stopped(&self) -> bool {
        self.stopped
    }
}

/// Which of several machines are told something, and what each.
pub type Share<C> = Arc<dyn Fn(C) -> Vec<(usize, C)> + Send + Sync>;

/// The machines' mailboxes, by their numbers.
struct Mailboxes<C> {
    all: Vec<Mailbox<Message<C>>>,
    share: Share<C>,
}

impl<C: Send + 'static> Mailboxes<C> {
    /// Gives a machine the answer to its job; one that has ended needs none.
    fn answer(&self, number: usize, command: C) {
        if let Some(mailbox) = self.all.get(number) {
            mailbox.send(Message::Command(command));
        }
    }
    /// False once one of those that are told takes nothing any more.
    fn tell(&self, command: C) -> bool {
        let told = (self.share)(command).into_iter();
        told.fold(true, |all, (number, command)| {
            let mailbox = self.all.get(number);
            mailbox.is_some_and(|mailbox| mailbox.send(Message::Command(command))) && all
        })
    }
    /// All end, each with what it is told last.
    fn stop(&self, farewell: Option<C>) {
        let mut last: Vec<Option<C>> = self.all.iter().map(|_| None).collect();
        for (number, command) in farewell.into_iter().flat_map(|command| (self.share)(command)) {
            if let Some(place) = last.get_mut(number) {
                *place = Some(command);
            }
        }
        for (mailbox, last) in self.all.iter().zip(last) {
            mailbox.send(Message::Stop(last));
        }
    }
}

/// Serves until a signal says to end. SIGHUP has the configuration read again.
///
/// # Errors
/// It could not begin, or a thread of it failed.
pub fn serve<M>(hosted: Hosted<M>) -> Result<(), ServeError>
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
    hosted: Hosted<M>,
    others: Vec<(M, Sockets)>,
    share: Share<M::Command>,
) -> Result<(), ServeError>
where
    M: Machine<Command: Send, Event: Send, Job: Send> + Send + 'static,
{
    let Hosted {
        name,
        machine,
        sockets,
        frames,
        clock,
        helpers,
        said,
        over,
        counted,
        work,
        mut reload,
        sources,
        farewell,
        lingers,
    } = hosted;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system("runtime"))?;
    let HelperPool { helper, threads, jobs, unable } = helpers;
    let told = Arc::new(OnceLock::new());
    let hears = Arc::new(Mutex::new(Hears { said, over }));
    let machines = std::iter::once((machine, sockets)).chain(others).enumerate();
    // Ports of Ethernet are the first machine's.
    let (mut sends, frames) = match frames {
        Some(Frames { send, source }) => (Some(send), Some(source)),
        None => (None, None),
    };
    let waiting = Arc::new(Room::default());
    let (drivers, all): (Vec<_>, Vec<_>) = machines
        .map(|(number, (machine, sockets))| {
            let (jobs, hears, mailboxes) = (jobs.clone(), hears.clone(), told.clone());
            let (sends, waiting) = (sends.take(), waiting.clone());
            let served = Served {
                number,
                machine,
                jobs,
                unable,
                mailboxes,
                hears,
                counted,
                told: Vec::new(),
                done: work.clone(),
                work: Vec::new(),
                sends,
                waiting,
                lingers,
                stopped: false,
            };
            Driver::new(served, sockets, clock)
        })
        .unzip();
    if let (Some(source), Some(first)) = (frames, all.first().cloned()) {
        source(Box::new(move |port, kind, data| {
            if !waiting.take(kind) {
                return false;
            }
            let taken = first.send(Message::Frame(port, kind, data));
            if !taken {
                waiting.give_back(kind);
            }
            taken
        }));
    }
    let mailboxes = Arc::new(Mailboxes { all, share });
    // No driver runs yet, and this is the only one who sets them.
    let _ = told.set(mailboxes.clone());
    for _ in 0..threads.max(1) {
        let (jobs, helper, mailboxes) = (jobs.clone(), helper.clone(), mailboxes.clone());
        let body = move || {
            while let Some((number, job)) = jobs.take() {
                mailboxes.answer(number, helper(job));
            }
        };
        drop(std::thread::Builder::new().name(format!("{name}-job")).spawn(body).map_err(system("thread"))?);
    }
    for source in sources {
        let mailboxes = mailboxes.clone();
        let body = move || source(Box::new(move |command| mailboxes.tell(command)));
        drop(std::thread::Builder::new().name(format!("{name}-told")).spawn(body).map_err(system("thread"))?);
    }
    let mut shards = Vec::new();
    for driver in drivers {
        let run = async move || driver.run().await.map(drop);
        let shard = usher_live::spawn(name, None, run);
        shards
            .push(shard.map_err(|e| ServeError::System { what: "the driver", error: io::Error::other(e) })?);
    }
    let told = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(system("signals"))?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "started");
        notify::ready();
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        let mut count = tokio::time::interval(COUNTED);
        loop {
            tokio::select! {
                _ = count.tick() => mailboxes.all.iter().for_each(|mailbox| {
                    mailbox.send(Message::Count);
                }),
                _ = tick.tick() => {
                    if shards.iter().any(usher_live::Shard::is_finished) {
                        break Ok(None);
                    }
                }
                told = signals.next() => match told {
                    Told::End => break Ok(Some(signals)),
                    Told::Reload => {
                        notify::reloading();
                        if let Some(command) = reload() {
                            mailboxes.tell(command);
                        }
                        notify::ready();
                    }
                },
            }
        }
    })?;
    if let Some(signals) = told {
        signals.end_by_the_next();
        notify::stopping();
        tracing::info!("stopping");
        mailboxes.stop(farewell());
    } else {
        // One has ended by itself, and the others end with it.
        mailboxes.stop(None);
    }
    let ended: Vec<_> = shards.into_iter().map(usher_live::Shard::join).collect();
    jobs.end();
    tracing::info!("stopped");
    let whole =
        ended.into_iter().try_for_each(|ended| ended.unwrap_or_else(|_| Err(io::Error::other("it failed"))));
    whole.map_err(system("the driver"))
}

/// A machine on a driver until it has said what is waited for.
struct Once<M: Machine, T> {
    machine: M,
    said: Box<dyn FnMut(M::Event) -> Option<T>>,
    found: Option<T>,
}

impl<M: Machine<Job = NoJob>, T> Role for Once<M, T> {
    type Machine = M;
    type Message = NoJob;

    fn machine(&mut self) -> &mut M {
        &mut self.machine
    }
    fn event(&mut self, _: Instant, event: M::Event) {
        if self.found.is_none() {
            self.found = (self.said)(event);
        }
    }
    fn job(&mut self, _: Instant, job: Job<NoJob>) {
        match job.what {}
    }
    fn message(&mut self, _: Instant, message: NoJob) {
        match message {}
    }
    fn stopped(&self) -> bool {
        self.found.is_some()
    }
}

/// Hosts a machine that was given something to do, until it has said what is waited for.
///
/// # Errors
/// The sockets cannot be taken into service.
pub fn once<M: Machine<Job = NoJob>, T>(
    machine: M,
    sockets: Sockets,
    clock: Clock,
    said: impl FnMut(M::Event) -> Option<T> + 'static,
) -> io::Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (driver, _) = Driver::new(Once { machine, said: Box::new(said), found: None }, sockets, clock);
    Ok(runtime.block_on(driver.run())?.found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_frames_leaves_sessions_that_are_there_their_room() {
        let room = Room::default();
        let taken = |kind, n: usize| (0..n).filter(|_| room.take(kind)).count();
        assert_eq!(taken(FrameKind::Other, 100_000), FRAMES);
        assert_eq!(taken(FrameKind::OfSession, FRAMES + 10), FRAMES);
        room.give_back(FrameKind::Other);
        assert_eq!((taken(FrameKind::OfSession, 5), taken(FrameKind::Other, 5)), (0, 1));
    }
}
