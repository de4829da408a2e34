//! The generator on real sockets: a thread for each share of the load, and a conductor that leads the threads through
//! warm-up, window and end, or along a ramp.

mod rounds;
mod stations;
mod steps;

use crate::cpu::{CpuTime, peak_memory};
use crate::generator::{
    ConfigError, GeneratorCommand, GeneratorConfig, GeneratorEvent, LoadGenerator, LoadProtocolConfig, PORT,
    SessionHoldTime,
};
use crate::limit::GeneratorLimitCause;
use crate::pace::{LoginArrivals, LoginPace};
use crate::ramp::{RampConfig, RampSearch, RampStep};
use crate::tally::{LoginFailure, LoginStats, quantile};
pub use rounds::{SessionSetupRates, SessionSetupRound};
use stations::{StationFrameRouter, StationInterfaceLink};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use thiserror::Error;
use usher_core::{Duration, Instant, JobRequest, LinkLayerPortId, Machine, MachineInput, NoJob, SecureRng};
use usher_crypto::tls::{ClientConfig, TlsError};
use usher_live::{
    Driver, DriverConfig, DriverCounterSnapshot, DriverCounters, DriverRole, DriverSockets, Mailbox,
    OutgoingConnectionSecurity, Shard, SystemClock, TlsClient, spawn_shard, thread_cpu_time,
};

/// Interval of the conductor's checks.
const TICK: StdDuration = StdDuration::from_millis(20);
/// Time limit for a thread's reply to the conductor. A thread that shares its processor with many programs may take seconds.
const ANSWER: StdDuration = StdDuration::from_secs(30);
/// Maximum delay of a thread's transmissions while it polls for the next login.
const SLICE: StdDuration = StdDuration::from_micros(100);
/// A warm-up that ends by command.
const UNLIMITED_WARM_UP: Duration = Duration::MAX;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct LoadRunPlan {
    /// The whole load, which threads divide.
    pub load: GeneratorConfig,
    /// Number of generating threads.
    pub threads: usize,
    /// The processors that threads are bound to, in order; empty for none.
    pub cores: Vec<usize>,
    /// A ramp in place of one window.
    pub ramp: Option<LoadRampPlan>,
    /// TLS for Diameter connections.
    pub tls: Option<ClientConfig>,
    /// True to send small messages of Diameter's associations at once (`SCTP_NODELAY`).
    pub sctp_nodelay: bool,
    /// The server's process, for its CPU time.
    pub server_pid: Option<u32>,
    /// Interval of progress reports.
    pub interval: Duration,
    /// Interval of the timeline in the results; a multiple of `interval`.
    pub timeline_interval: Duration,
    /// True to allow UDP segmentation offload.
    pub offload: bool,
    /// The interface of Ethernet stations, for PPPoE logins.
    pub interface: Option<String>,
    /// Number of rounds in which all stations set up and end their sessions.
    pub rounds: u32,
}

/// The rates and durations of a ramp.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadRampPlan {
    /// The search.
    pub search: RampConfig,
    /// The arrival process of logins.
    pub arrivals: LoginArrivals,
    /// Time at a rate before its measurement, and without logins after a failed rate.
    pub settle: Duration,
    /// Duration of the measurement.
    pub measurement_time: Duration,
}

/// The figures of an interval.
#[derive(Clone, Debug)]
pub struct LoadIntervalStats {
    /// Seconds from the start of the run to the end of the interval.
    pub at_s: f64,
    /// Its length in seconds.
    pub length_s: f64,
    /// True before the window of measurement, without counting.
    pub warming: bool,
    /// Outstanding logins at its end.
    pub outstanding: usize,
    /// The rate of a ramp's step.
    pub rate: Option<f64>,
    /// Successes in the interval, including logins that began earlier.
    pub completed: u64,
    /// Counted logins that ended in it with the right result.
    pub succeeded: u64,
    /// Counted logins that ended in it with a failure.
    pub failed: u64,
    /// Logins cut off at its end.
    pub cut_off: u64,
    /// The median latency in seconds.
    pub p50_s: Option<f64>,
    /// The 90th percentile of latency in seconds.
    pub p90_s: Option<f64>,
    /// The 99th percentile of latency in seconds.
    pub p99_s: Option<f64>,
    /// The maximum latency in seconds.
    pub max_s: Option<f64>,
    /// The 99th percentile of the generator's own lateness in seconds.
    pub own_lag_p99_s: Option<f64>,
}

impl LoadIntervalStats {
    /// Returns the share of right results among the logins that ended in it; 1 without any.
    #[must_use]
    pub fn success_ratio(&self) -> f64 {
        let ended = self.succeeded + self.failed;
        if ended == 0 { 1.0 } else { self.succeeded as f64 / ended as f64 }
    }
}

/// The resources that a server used.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServerResourceUsage {
    /// CPU time over the window.
    pub cpu: CpuTime,
    /// Logins that succeeded in it.
    pub completed: u64,
    /// Its peak resident memory in octets.
    pub peak_memory: Option<u64>,
}

impl ServerResourceUsage {
    /// Returns the CPU time for each login in milliseconds; `None` without logins.
    #[must_use]
    pub fn ms_per_login(&self) -> Option<f64> {
        (self.completed > 0).then(|| self.cpu.total_seconds() * 1e3 / self.completed as f64)
    }
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    /// The statistics of the window. For a ramp, of all steps at its knee, or of the lowest rate if none was sustained.
    pub tally: LoginStats,
    /// Measured time in seconds.
    pub measured_s: f64,
    /// Set if the generator was the limit: the result is then a bound of the server's performance.
    pub limit: Option<GeneratorLimitCause>,
    /// The largest share of time in which a generating thread ran or waited for a processor, without polling between
    /// logins. `None` for a ramp, whose steps have their own.
    pub busy: Option<f64>,
    /// The timeline.
    pub timeline: Vec<LoadIntervalStats>,
    /// The ramp, if there was one.
    pub ramp: Option<RampSearch>,
    /// The server's resources.
    pub server: Option<ServerResourceUsage>,
    /// CPU time of this process in the same interval.
    pub own_cpu_s: f64,
    /// The clients' counters by name.
    pub counters: Vec<(&'static str, u64)>,
    /// The drivers' counters.
    pub driver: DriverCounterSnapshot,
    /// The reason of connection failures in TLS.
    pub tls: FirstTlsFailure,
    /// Rounds of session setup.
    pub rounds: Vec<SessionSetupRound>,
    /// True if the user ended it early.
    pub interrupted: bool,
}

impl LoadOutcome {
    /// Returns the successes per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        if self.measured_s > 0.0 { self.tally.completed as f64 / self.measured_s } else { 0.0 }
    }
}

/// Observes a run.
pub trait LoadObserver {
    /// An interval has ended.
    fn on_interval(&mut self, _interval: &LoadIntervalStats) {}
    /// A step of a ramp has ended.
    fn on_step(&mut self, _step: &RampStep) {}
    /// True to end the run now with the results so far.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Ignores all progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLoadObserver;
impl LoadObserver for NoLoadObserver {}

/// The reason why a run did not take place.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A thread could not be started.
    #[error(transparent)]
    Thread(#[from] usher_live::ShardStartError),
    /// A thread's sockets failed.
    #[error("the sockets of a generator thread failed: {0}")]
    Sockets(std::io::Error),
    /// A thread ended or hangs.
    #[error(
        "a generator thread does not respond: the machine is too busy for this load, or the thread has failed"
    )]
    Lost,
    /// The interface of the stations cannot be used.
    #[error("cannot use the interface {name}: {error}")]
    Interface {
        /// Its name.
        name: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The server's process cannot be read.
    #[error("cannot read the CPU time of process {pid}: {error}")]
    Process {
        /// The process.
        pid: u32,
        /// The system's error.
        error: std::io::Error,
    },
    /// The connections were not established.
    #[error(
        "no connection to the server within {0} s: check its address and port, that it accepts this identity, and \
         that it supports the requested application{1}"
    )]
    Unreachable(u64, FirstTlsFailure),
    /// The first login, before all others, failed.
    #[error("the first login{} failed ({}): {}{}{tls}", method_suffix(.method), .failure.name(), .failure.explanation(),
        describe_dropped(.dropped))]
    First {
        /// Its failure.
        failure: LoginFailure,
        /// Its method, if there are several.
        method: Option<String>,
        /// Replies that the client dropped, by name.
        dropped: Vec<(&'static str, u64)>,
        /// The TLS error of the connection, if any.
        tls: FirstTlsFailure,
    },
}

/// The error of the first connection that TLS ended, if any; displayed on its own line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FirstTlsFailure(pub Option<TlsError>);

impl std::fmt::Display for FirstTlsFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            None => Ok(()),
            Some(TlsError::Failed(fault, said)) => {
                write!(f, "\n{} ({said})", fault.describe_with_peer_name("the server"))
            }
            Some(error) => write!(f, "\n{}", error.fault().describe_with_peer_name("the server")),
        }
    }
}

fn method_suffix(method: &Option<String>) -> String {
    method.as_ref().map_or_else(String::new, |m| format!(" by {m}"))
}

/// Describes the causes of dropped replies.
fn describe_dropped(dropped: &[(&'static str, u64)]) -> String {
    let mut text = String::new();
    for (name, n) in dropped {
        let Some(what) = usher_radius::client::drop_counter_advice(name) else { continue };
        let remedy = match *name {
            "missing_message_authenticator" => "; --no-message-authenticator accepts them",
            _ => "",
        };
        text.push_str(&format!("\n{n} replies were dropped: {what}{remedy}"));
    }
    text
}

/// A message of the conductor to a thread.
enum GeneratorThreadMessage {
    TakeFigures { answer: Sender<GeneratorThreadStats> },
    Command(GeneratorCommand),
    Frames(Vec<Vec<u8>>),
}

/// A thread's statistics since its last report.
struct GeneratorThreadStats {
    tally: LoginStats,
    outstanding: usize,
    measured: Duration,
    has_started: bool,
    measuring: bool,
    reading: ThreadCpuUsage,
}

/// The processor use of a thread up to a time.
#[derive(Clone, Copy)]
struct ThreadCpuUsage {
    taken_at: StdInstant,
    /// Time in which it ran or waited for a processor, without polling.
    busy: StdDuration,
}

impl ThreadCpuUsage {
    /// Reads this thread's use now; its generator polled for `spun`.
    fn read_thread_usage(spun: Duration) -> Self {
        // The fields are nanoseconds on a processor and in its queue (Linux, Documentation/scheduler/sched-stats).
        let said = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let mut fields = said.split_ascii_whitespace().map_while(|f| f.parse::<u64>().ok());
        let busy = match (fields.next(), fields.next()) {
            (Some(ran), Some(waited)) if ran > 0 => StdDuration::from_nanos(ran.saturating_add(waited)),
            _ => thread_cpu_time(),
        };
        Self { taken_at: StdInstant::now(), busy: busy.saturating_sub(to_std_duration(spun)) }
    }

    /// Returns the busy share of the time since `earlier`; `None` without elapsed time.
    fn busy_fraction(&self, earlier: &Self) -> Option<f64> {
        let time = self.taken_at.saturating_duration_since(earlier.taken_at).as_secs_f64();
        (time > 1e-3).then(|| self.busy.saturating_sub(earlier.busy).as_secs_f64() / time)
    }
}

struct ThreadLoadGenerator {
    generator: LoadGenerator,
    finished: Option<ThreadCpuUsage>,
    /// The link of its stations' frames.
    link: Option<StationInterfaceLink>,
}

impl ThreadLoadGenerator {
    fn take_thread_stats(&mut self, now: Instant) -> GeneratorThreadStats {
        GeneratorThreadStats {
            outstanding: self.generator.outstanding_logins(),
            measured: self.generator.measured_time(now),
            has_started: self.generator.has_begun_logins(),
            measuring: self.generator.is_measuring(),
            reading: ThreadCpuUsage::read_thread_usage(self.generator.spin_time()),
            tally: self.generator.take_login_stats(),
        }
    }
}

impl DriverRole for ThreadLoadGenerator {
    type Machine = LoadGenerator;
    type Message = GeneratorThreadMessage;

    fn machine(&mut self) -> &mut LoadGenerator {
        &mut self.generator
    }
    fn on_event(&mut self, _: Instant, event: GeneratorEvent) {
        let GeneratorEvent::Finished = event;
        self.finished = Some(ThreadCpuUsage::read_thread_usage(self.generator.spin_time()));
    }
    fn on_job(&mut self, _: Instant, job: JobRequest<NoJob>) {
        match job.job {}
    }
    fn on_message(&mut self, now: Instant, message: GeneratorThreadMessage) {
        match message {
            GeneratorThreadMessage::TakeFigures { answer } => {
                // A send error is ignored: if the conductor no longer waits, it has given up.
                let _ = answer.send(self.take_thread_stats(now));
            }
            GeneratorThreadMessage::Command(command) => {
                // The result is ignored: the generator rejects a command only before the server is reachable, and the
                // conductor waits for that.
                let _ = self.generator.handle_command(now, command);
            }
            GeneratorThreadMessage::Frames(frames) => {
                if let Some(link) = &self.link {
                    link.release_waiting_frames(frames.len());
                }
                for data in &frames {
                    self.generator.handle_input(now, MachineInput::Frame { port: PORT, data });
                }
            }
        }
    }
    fn send_frame(&mut self, _: LinkLayerPortId, frame: &[u8]) -> bool {
        self.link.as_mut().is_some_and(|link| link.send_frame(frame))
    }
    fn is_stopped(&self) -> bool {
        self.finished.is_some()
    }
}

struct GeneratorThread {
    mailbox: Mailbox<GeneratorThreadMessage>,
    shard: Shard<std::io::Result<ThreadLoadGenerator>>,
    counters: Arc<DriverCounters>,
}

/// Returns a part's first index and its length, at least one, of `whole` elements in a row.
fn thread_index_range(whole: usize, part: usize, parts: usize) -> (usize, usize) {
    let count = whole / parts + usize::from(part < whole % parts);
    (part * (whole / parts) + part.min(whole % parts), count.max(1))
}

/// Returns the configuration of one thread's share of the load.
fn generator_thread_config(plan: &LoadRunPlan, part: usize, warmup: Duration) -> GeneratorConfig {
    let parts = plan.threads;
    let whole = &plan.load;
    let mut load = whole.clone();
    load.pace = whole.pace.pace_per_thread(part, parts);
    load.outstanding = (whole.outstanding / parts).max(1);
    load.count = whole.count.map(|n| n / parts as u64 + u64::from((part as u64) < n % parts as u64));
    load.warmup = warmup;
    load.duration = None;
    // If there are fewer users than threads, threads share users.
    if whole.users.len() >= parts {
        (load.first, load.step) = (part, parts);
    }
    let of = |whole: usize| thread_index_range(whole, part, parts);
    match &mut load.front {
        LoadProtocolConfig::Diameter(d) => (d.first, d.connections) = of(d.connections),
        LoadProtocolConfig::Ike(i) => (i.first, i.initiators) = of(i.initiators),
        LoadProtocolConfig::Mih(m) => (m.first, m.functions) = of(m.functions),
        LoadProtocolConfig::Pppoe(p) => (p.first, p.stations) = of(p.stations),
        LoadProtocolConfig::Radius(r) => {
            if let Some(fleet) = &mut r.fleet {
                (fleet.first, fleet.count) = of(fleet.count);
            }
        }
    }
    load
}

/// Creates a random generator seeded by the system.
fn system_rng() -> SecureRng {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        // The empty hash of a new RandomState is as hard to guess as its random keys, which come from the system.
        part.copy_from_slice(&RandomState::new().build_hasher().finish().to_le_bytes());
    }
    SecureRng::from_seed(seed)
}

struct LoadRunController<'a> {
    plan: &'a LoadRunPlan,
    watch: &'a mut dyn LoadObserver,
    threads: Vec<GeneratorThread>,
    /// TLS of all threads' connections.
    tls: Option<TlsClient>,
    /// The interface of the stations.
    wire: Option<StationFrameRouter>,
    started_at: StdInstant,
    /// Time of the last progress report.
    last: StdInstant,
    timeline: Vec<LoadIntervalStats>,
    /// Statistics of the timeline's next interval, and its start.
    part: (LoginStats, StdInstant),
    total: LoginStats,
    rate: Option<f64>,
    interrupted: bool,
    /// The processor use of each thread, at the window's start and now.
    from: Vec<Option<ThreadCpuUsage>>,
    readings: Vec<Option<ThreadCpuUsage>>,
}

/// The statistics of all threads since the last report.
struct CombinedThreadStats {
    tally: LoginStats,
    outstanding: usize,
    measured: Duration,
    warming: bool,
}

impl<'a> LoadRunController<'a> {
    fn start_threads(
        plan: &'a LoadRunPlan,
        watch: &'a mut dyn LoadObserver,
        warmup: Duration,
    ) -> Result<Self, RunError> {
        let clock = SystemClock::start();
        let mut wire = plan.interface.as_deref().map(StationFrameRouter::open).transpose()?;
        let mut threads = Vec::new();
        let tls = plan.tls.clone().map(TlsClient::new);
        for part in 0..plan.threads {
            let generator =
                LoadGenerator::new(generator_thread_config(plan, part, warmup), clock.now(), system_rng())?;
            let outgoing = tls.clone().map(|tls| {
                Arc::new(move |_| OutgoingConnectionSecurity::Tls(tls.clone()))
                    as usher_live::ConnectionSecuritySelector
            });
            let mut settings =
                DriverConfig { offload: plan.offload, time_slice: SLICE, ..DriverConfig::default() };
            settings.associations.nodelay = plan.sctp_nodelay;
            let sockets = DriverSockets { outgoing, settings, ..DriverSockets::default() };
            let link = wire.as_ref().map(StationFrameRouter::new_link);
            let waiting = link.as_ref().map(StationInterfaceLink::waiting_count);
            let (driver, mailbox) =
                Driver::new(ThreadLoadGenerator { generator, finished: None, link }, sockets, clock);
            if let (Some(wire), Some(waiting)) = (&mut wire, waiting) {
                wire.add_frame_inbox(mailbox.clone(), waiting);
            }
            let counters = driver.counters();
            let core = plan.cores.get(part % plan.cores.len().max(1)).copied();
            let shard = spawn_shard(&format!("usher-load-{part}"), core, move || driver.run())?;
            threads.push(GeneratorThread { mailbox, shard, counters });
        }
        if let (Some(wire), LoadProtocolConfig::Pppoe(of)) = (&mut wire, &plan.load.front) {
            wire.start_listening(of, plan.threads)?;
        }
        let now = StdInstant::now();
        Ok(Self {
            plan,
            watch,
            threads,
            tls,
            wire,
            started_at: now,
            last: now,
            timeline: Vec::new(),
            part: (LoginStats::default(), now),
            from: vec![None; plan.threads],
            readings: vec![None; plan.threads],
            total: LoginStats::default(),
            rate: None,
            interrupted: false,
        })
    }

    fn send_commands(&self, command: impl Fn(usize) -> GeneratorCommand) {
        for (i, thread) in self.threads.iter().enumerate() {
            // A send error is ignored: a thread that has ended needs no commands.
            thread.mailbox.send(GeneratorThreadMessage::Command(command(i)));
        }
    }

    /// Collects the statistics of all threads since the last report; `None` for a thread that has ended.
    fn collect_thread_stats(&mut self) -> Result<Vec<Option<GeneratorThreadStats>>, RunError> {
        let asked: Vec<_> = self
            .threads
            .iter()
            .map(|thread| {
                let (answer, answers) = channel();
                thread.mailbox.send(GeneratorThreadMessage::TakeFigures { answer }).then_some(answers)
            })
            .collect();
        let answer = |answers: Option<std::sync::mpsc::Receiver<GeneratorThreadStats>>| match answers {
            None => Ok(None),
            Some(answers) => match answers.recv_timeout(ANSWER) {
                Ok(cut) => Ok(Some(cut)),
                // The thread ended between the request and its reply.
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => Ok(None),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Err(RunError::Lost),
            },
        };
        let cuts: Vec<Option<GeneratorThreadStats>> =
            asked.into_iter().map(answer).collect::<Result<_, _>>()?;
        for (cut, reading) in cuts.iter().zip(&mut self.readings) {
            if let Some(cut) = cut {
                *reading = Some(cut.reading);
            }
        }
        Ok(cuts)
    }

    /// Combines the statistics of all threads since the last report.
    fn combine_thread_stats(&mut self) -> Result<CombinedThreadStats, RunError> {
        let (tally, measured) = (LoginStats::default(), Duration::ZERO);
        let mut all = CombinedThreadStats { tally, outstanding: 0, measured, warming: false };
        let cuts: Vec<GeneratorThreadStats> = self.collect_thread_stats()?.into_iter().flatten().collect();
        // If no thread reports, all have ended, which they do only after their window, so none is warming up.
        all.warming = !cuts.is_empty();
        for cut in cuts {
            all.tally.add(&cut.tally);
            all.outstanding += cut.outstanding;
            all.measured = all.measured.max(cut.measured);
            all.warming &= !cut.measuring;
        }
        self.total.add(&all.tally);
        Ok(all)
    }

    /// Marks the start of a window.
    fn save_window_start_readings(&mut self) {
        self.from.clone_from(&self.readings);
    }

    /// Returns the largest busy share of a thread since the mark.
    fn busy_fraction(&self, now: &[Option<ThreadCpuUsage>]) -> Option<f64> {
        let shares =
            self.from.iter().zip(now).filter_map(|(from, now)| now.as_ref()?.busy_fraction(from.as_ref()?));
        shares.max_by(f64::total_cmp)
    }

    /// Reports the statistics since the last time; returns the measured time.
    fn report_interval(&mut self) -> Result<Duration, RunError> {
        let all = self.combine_thread_stats()?;
        let now = StdInstant::now();
        let shown = self.describe_interval(&all.tally, all.outstanding, all.warming, self.last, now);
        self.last = now;
        self.watch.on_interval(&shown);
        self.part.0.add(&all.tally);
        let length = now - self.part.1;
        if all.warming || length + TICK >= to_std_duration(self.plan.timeline_interval) {
            self.record_timeline_interval(all.outstanding, all.warming);
        }
        Ok(all.measured)
    }

    /// Ends an interval of the timeline.
    fn record_timeline_interval(&mut self, outstanding: usize, warming: bool) {
        let now = StdInstant::now();
        let (tally, since) = std::mem::replace(&mut self.part, (LoginStats::default(), now));
        let interval = self.describe_interval(&tally, outstanding, warming, since, now);
        self.timeline.push(interval);
    }

    fn describe_interval(
        &self,
        t: &LoginStats,
        outstanding: usize,
        warming: bool,
        since: StdInstant,
        now: StdInstant,
    ) -> LoadIntervalStats {
        LoadIntervalStats {
            at_s: (now - self.started_at).as_secs_f64(),
            length_s: (now - since).as_secs_f64(),
            warming,
            outstanding,
            rate: self.rate,
            completed: t.completed,
            succeeded: t.succeeded,
            failed: t.failed_total(),
            cut_off: t.cut_off,
            p50_s: quantile(&t.latency, 0.5),
            p90_s: quantile(&t.latency, 0.9),
            p99_s: quantile(&t.latency, 0.99),
            max_s: quantile(&t.latency, 1.0),
            own_lag_p99_s: quantile(&t.own_lag, 0.99),
        }
    }

    /// Waits and reports intervals, for this time or until all threads have ended; false after an interrupt.
    fn wait_for(&mut self, time: Option<StdDuration>) -> Result<bool, RunError> {
        let end = time.map(|t| StdInstant::now() + t);
        let interval = StdDuration::from_nanos(self.plan.interval.as_nanos());
        loop {
            let now = StdInstant::now();
            if end.is_some_and(|end| now >= end) || self.threads.iter().all(|t| t.shard.is_finished()) {
                return Ok(true);
            }
            if self.watch.is_interrupted() {
                self.interrupted = true;
                return Ok(false);
            }
            if now - self.last >= interval {
                self.report_interval()?;
            }
            let left = end.map_or(TICK, |end| end - now);
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Waits until every thread's server is reachable; false after an interrupt.
    fn wait_until_server_reachable(&mut self, patience: StdDuration) -> Result<bool, RunError> {
        let end = StdInstant::now() + patience;
        loop {
            let cuts = self.collect_thread_stats()?;
            // If there is no warm-up, counting has already begun, so keep these figures.
            for cut in cuts.iter().flatten() {
                self.total.add(&cut.tally);
                self.part.0.add(&cut.tally);
            }
            if cuts.iter().flatten().all(|c| c.has_started) {
                return Ok(true);
            }
            if self.watch.is_interrupted() {
                self.interrupted = true;
                return Ok(false);
            }
            if StdInstant::now() >= end {
                return Err(RunError::Unreachable(patience.as_secs(), self.tls_failure()));
            }
            std::thread::sleep(TICK);
        }
    }

    fn tls_failure(&self) -> FirstTlsFailure {
        FirstTlsFailure(self.tls.as_ref().and_then(TlsClient::first_fault).cloned())
    }

    /// Ends all threads and collects their last statistics.
    fn finish_run(mut self) -> Result<LoadOutcome, RunError> {
        let ended = self.threads.iter().all(|t| t.shard.is_finished());
        self.send_commands(|_| GeneratorCommand::Stop);
        let grace = if self.interrupted { Duration::from_secs(1) } else { self.plan.load.drain_timeout };
        let end = StdInstant::now() + StdDuration::from_nanos(grace.as_nanos());
        while StdInstant::now() < end && !self.threads.iter().all(|t| t.shard.is_finished()) {
            if !self.interrupted && self.watch.is_interrupted() {
                self.interrupted = true;
                break;
            }
            std::thread::sleep(TICK);
        }
        if self.interrupted {
            // Logins that are outstanding when the user interrupts have not failed, so they count as cut off.
            self.send_commands(|_| GeneratorCommand::Abandon);
        }
        let mut counters: Vec<(&'static str, u64)> = Vec::new();
        let (mut driver, mut measured, mut final_tally) =
            (DriverCounterSnapshot::default(), 0.0_f64, LoginStats::default());
        let now = Instant::FAR_FUTURE;
        let threads = std::mem::take(&mut self.threads);
        let mut readings = self.readings.clone();
        for (thread, reading) in threads.into_iter().zip(&mut readings) {
            let joined = thread.shard.join().map_err(|_| RunError::Lost)?;
            let mut host = joined.map_err(RunError::Sockets)?;
            driver.add(&thread.counters.read());
            measured = measured.max(host.generator.measured_time(now).as_secs_f64());
            final_tally.add(&host.generator.take_login_stats());
            if ended {
                // If the number of logins is given, the thread's window ends with the thread.
                *reading = host.finished;
            }
            for (i, (name, n)) in host.generator.counters().into_iter().enumerate() {
                match counters.get_mut(i) {
                    Some((_, sum)) => *sum += n,
                    None => counters.push((name, n)),
                }
            }
        }
        if let Some(wire) = self.wire.take() {
            counters.extend(wire.stop_and_take_frame_errors());
        }
        self.total.add(&final_tally);
        self.part.0.add(&final_tally);
        let busy = self.busy_fraction(&readings);
        self.record_timeline_interval(0, false);
        let tls = self.tls_failure();
        Ok(LoadOutcome {
            tally: self.total,
            measured_s: measured,
            limit: None,
            busy,
            timeline: self.timeline,
            ramp: None,
            server: None,
            own_cpu_s: 0.0,
            counters,
            driver,
            tls,
            rounds: Vec::new(),
            interrupted: self.interrupted,
        })
    }
}

fn to_std_duration(d: Duration) -> StdDuration {
    StdDuration::from_nanos(d.as_nanos())
}

/// Reads the CPU times of the server and of this process.
fn read_cpu_times(plan: &LoadRunPlan) -> Result<(Option<CpuTime>, CpuTime), RunError> {
    let read = |pid| CpuTime::for_process(pid).map_err(|error| RunError::Process { pid, error });
    Ok((plan.server_pid.map(read).transpose()?, read(std::process::id())?))
}

/// Runs a plan. A ramp's steps determine the duration, or else the load's `warmup`, `duration` and `count`.
///
/// # Errors
/// The run did not take place, or a thread was lost. Failures of logins are in the outcome.
pub fn run_load_plan(plan: &LoadRunPlan, watch: &mut dyn LoadObserver) -> Result<LoadOutcome, RunError> {
    if plan.threads == 0 {
        return Err(ConfigError::Invalid("the number of threads is 0; give at least 1").into());
    }
    match plan.ramp {
        Some(ramp) => steps::run_ramp(plan, ramp, watch),
        None if plan.rounds > 0 => rounds::run_load_rounds(plan, watch),
        None => run_window(plan, watch),
    }
}

fn run_window(plan: &LoadRunPlan, watch: &mut dyn LoadObserver) -> Result<LoadOutcome, RunError> {
    let warm = !plan.load.warmup.is_zero();
    let before = read_cpu_times(plan)?;
    let mut conductor =
        LoadRunController::start_threads(plan, watch, if warm { UNLIMITED_WARM_UP } else { Duration::ZERO })?;
    let mut going = conductor.wait_until_server_reachable(StdDuration::from_secs(10))?;
    let mut before = if warm { before } else { (before.0, read_cpu_times(plan)?.1) };
    conductor.save_window_start_readings();
    if going && warm {
        going = conductor.wait_for(Some(to_std_duration(plan.load.warmup)))?;
        before = read_cpu_times(plan)?;
        conductor.report_interval()?;
        conductor.save_window_start_readings();
        conductor.send_commands(|_| GeneratorCommand::Measure);
        conductor.last = StdInstant::now();
    }
    if going {
        conductor.wait_for(plan.load.duration.map(to_std_duration))?;
    }
    let after = read_cpu_times(plan)?;
    // Read the completed logins now: the CPU time belongs to them, while the last logins end later.
    conductor.report_interval()?;
    let completed = conductor.total.completed;
    let ended = conductor.threads.iter().all(|t| t.shard.is_finished());
    let mut outcome = conductor.finish_run()?;
    let completed = if ended { outcome.tally.completed } else { completed };
    outcome.limit = GeneratorLimitCause::judge_window(&outcome.tally, outcome.busy);
    outcome.own_cpu_s = after.1.delta_since(&before.1).total_seconds();
    outcome.server = after.0.zip(before.0).map(|(after, before)| ServerResourceUsage {
        cpu: after.delta_since(&before),
        completed,
        peak_memory: plan.server_pid.and_then(peak_memory),
    });
    Ok(outcome)
}

/// Logs one user in by each method before all others, so that wrong settings show at once by name.
///
/// # Errors
/// A login failed or could not be tried.
pub fn log_in_by_each_method(plan: &LoadRunPlan, watch: &mut dyn LoadObserver) -> Result<(), RunError> {
    if plan.load.mix.is_empty() {
        return log_in_by_method(plan, None, watch);
    }
    (0..plan.load.mix.len()).try_for_each(|i| log_in_by_method(plan, Some(i), watch))
}

fn log_in_by_method(
    plan: &LoadRunPlan,
    method: Option<usize>,
    watch: &mut dyn LoadObserver,
) -> Result<(), RunError> {
    let mut one = plan.clone();
    if let Some(i) = method {
        one.load.front = one.load.front.with_method(i);
        one.load.mix.clear();
    }
    one.threads = 1;
    (one.ramp, one.rounds) = (None, 0);
    one.server_pid = None;
    one.load.pace = LoginPace::Closed { concurrency: 1 };
    (one.load.count, one.load.duration, one.load.warmup) = (Some(1), None, Duration::ZERO);
    one.load.wrong_share = 0.0;
    match &mut one.load.front {
        LoadProtocolConfig::Radius(r) => {
            if let Some(fleet) = &mut r.fleet {
                fleet.count = 1;
            }
            if let Some(a) = &mut r.accounting {
                a.every = Duration::ZERO;
            }
        }
        LoadProtocolConfig::Ike(i) => i.initiators = 1,
        LoadProtocolConfig::Mih(m) => m.functions = 1,
        LoadProtocolConfig::Pppoe(p) => {
            (p.stations, p.session_hold, p.power_cut, p.echo) =
                (1, SessionHoldTime::For(Duration::ZERO), false, None);
        }
        LoadProtocolConfig::Diameter(d) => {
            d.connections = 1;
            if let Some(a) = &mut d.accounting {
                a.every = Duration::ZERO;
            }
        }
    }
    let outcome = run_window(&one, watch)?;
    match outcome.tally.failures().next() {
        Some((failure, _)) => {
            let dropped = outcome.counters.into_iter().filter(|(_, n)| *n > 0).collect();
            let method = method.and_then(|i| plan.load.mix.get(i)).map(|s| s.name.clone());
            Err(RunError::First { failure, method, dropped, tls: outcome.tls })
        }
        None => Ok(()),
    }
}
