//! The generator: a machine that logs users in at a pace and counts the results.
//!
//! ```text
//! Pace ─▶ Generator ─▶ front (access servers' clients by RADIUS or Diameter, EAP peers) ─▶ server
//!              └─ Tally: what came of it, by name
//! ```
//! It goes through a warm-up without counting, a window of measurement, and a time in which the logins of the window
//! end. Then it emits [`GeneratorEvent::Finished`].
//!
//! [`LoadGenerator`] implements [`Machine`], with four kinds of methods:
//! - Getters: the statistics of logins, the measured time, the number of outstanding logins, counters.
//! - A handler of input: datagrams, stream data and frames of the server.
//! - Commands ([`GeneratorCommand`]): another pace, a new window, a stop.
//! - Polls of outputs and of the next timeout.

mod api;
mod diameter;
mod either;
mod front;
mod ike;
mod login;
mod mih;
mod pppoe;
mod radius;

pub use api::{ConfigError, GeneratorCommand, GeneratorEvent};
pub use diameter::{DiameterConfig, DiameterLogin};
pub use ike::{IkeConfig, IkeGatewayAuth, IkeLogin};
pub use mih::{MihConfig, MihRequest};
pub(crate) use pppoe::{PORT, station_of};
pub use pppoe::{PppoeConfig, PppoeLogin, SessionEchoConfig, SessionHoldTime};
pub use radius::{GeneratorNasFleet, LoginAccounting, RadiusConfig, RadiusLogin};

use crate::pace::{LoginPace, LoginSchedule};
use crate::tally::{LoginFailure, LoginStats};
use crate::users::UserCredentialTable;
use either::ProtocolLoadClient;
use ike::IkeLoadClient;
use login::{LoginDeferral, LoginResultRecorder, LoginStart, RETRY};
use mih::MihLoadClient;
use pppoe::PppoeLoadClient;
use std::sync::Arc;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CommandError, Duration, Instant, Machine, MachineInput, MachineOutputOf, NoJob, OutputQueue, SecureRng,
    SimulationRng, WallTime,
};

/// Time limit for ending sessions at the end of a run.
const LEAVING: Duration = Duration::from_secs(3600);

/// A longer gap between two idle inputs means that the host slept or had no processor.
const SPIN_GAP: Duration = Duration::from_micros(200);

/// The configuration of a generator.
#[derive(Clone, Debug)]
pub struct GeneratorConfig {
    /// The pace of logins.
    pub pace: LoginPace,
    /// Time without counting, after the server becomes reachable.
    pub warmup: Duration,
    /// Duration of the window of measurement; `None`: until a stop or until `count` logins have begun.
    pub duration: Option<Duration>,
    /// Number of logins to begin in the window.
    pub count: Option<u64>,
    /// Maximum number of concurrent logins in an open loop. Further due logins wait, and their latency includes the
    /// wait.
    pub outstanding: usize,
    /// Time limit for the logins of the window after its end.
    pub drain_timeout: Duration,
    /// Lead of the timer before the next login of an open loop. A host with a coarse timer then polls until the exact
    /// time. Zero in virtual time.
    pub spin: Duration,
    /// The share of logins with a wrong password, which the server must reject.
    pub wrong_share: f64,
    /// The users: from `first`, every `step`-th, in a cycle.
    pub users: Arc<UserCredentialTable>,
    /// Index of the first user.
    pub first: usize,
    /// Step between users; 1 for all.
    pub step: usize,
    /// The methods of the front with their weights; empty if there is only one.
    pub mix: Vec<MethodShare>,
    /// The protocol and its configuration.
    pub front: LoadProtocolConfig,
}

/// One of several methods.
#[derive(Clone, PartialEq, Debug)]
pub struct MethodShare {
    /// Its name in the results.
    pub name: String,
    /// Its weight among all methods, above 0.
    pub weight: f64,
    /// True if a login can be wrong, so that the server must reject it.
    pub deniable: bool,
}

/// The protocol of logins.
#[derive(Clone, Debug)]
pub enum LoadProtocolConfig {
    /// Over RADIUS.
    Radius(RadiusConfig),
    /// Over Diameter.
    Diameter(DiameterConfig),
    /// IKEv2 at a gateway.
    Ike(IkeConfig),
    /// Transactions between MIH functions instead of logins.
    Mih(MihConfig),
    /// PPPoE at an access concentrator.
    Pppoe(PppoeConfig),
}

impl LoadProtocolConfig {
    /// Returns the number of login methods.
    const fn method_count(&self) -> usize {
        match self {
            Self::Radius(r) => r.logins.len(),
            Self::Diameter(d) => d.logins.len(),
            Self::Pppoe(p) => p.logins.len(),
            Self::Ike(i) => i.logins.len(),
            Self::Mih(_) => 1,
        }
    }
    /// Returns the configuration with the `n`-th method only.
    #[must_use]
    pub fn with_method(&self, n: usize) -> Self {
        let mut only = self.clone();
        match &mut only {
            Self::Radius(r) => r.logins = r.logins.get(n).cloned().into_iter().collect(),
            Self::Diameter(d) => d.logins = d.logins.get(n).cloned().into_iter().collect(),
            Self::Pppoe(p) => p.logins = p.logins.get(n).copied().into_iter().collect(),
            Self::Ike(i) => i.logins = i.logins.get(n).cloned().into_iter().collect(),
            Self::Mih(_) => {}
        }
        only
    }
    /// Returns the configuration with this number of liveness checks of each established IKE_SA.
    #[must_use]
    pub fn with_liveness_checks(&self, probes: u32) -> Self {
        let mut probing = self.clone();
        if let Self::Ike(i) = &mut probing {
            i.probes = probes;
        }
        probing
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GeneratorPhase {
    /// The server is not reachable yet.
    Connecting,
    Warm,
    Measuring,
    /// Outstanding logins may end until then.
    Draining(Instant),
    /// Remaining sessions are ended until then.
    Leaving(Instant),
    Finished,
}

/// A load generator: a machine that logs users in at a pace and counts the results.
#[derive(Debug)]
pub struct LoadGenerator {
    config: GeneratorConfig,
    front: ProtocolLoadClient,
    rng: SimulationRng,
    phase: GeneratorPhase,
    since: Instant,
    schedule: Option<LoginSchedule>,
    /// A due login without capacity.
    waiting: Option<(LoginStart, Instant)>,
    /// True if due logins had no capacity.
    full: bool,
    /// Time since which there is capacity.
    capacity_since: Instant,
    /// Number of windows so far.
    windows: u32,
    /// Time of the last input, if it was idle.
    idle: Option<Instant>,
    /// Total time of polling for a login's due time.
    spun: Duration,
    next_user: usize,
    left: Option<u64>,
    sink: LoginResultRecorder,
    outputs: OutputQueue<GeneratorEvent>,
    has_reported_end: bool,
}

impl LoadGenerator {
    /// Creates a generator that begins at `start`, with random numbers from `rng`.
    ///
    /// # Errors
    /// The configuration is inconsistent.
    pub fn new(config: GeneratorConfig, start: Instant, mut rng: SecureRng) -> Result<Self, ConfigError> {
        if config.users.is_empty() {
            return Err(ConfigError::Invalid("the number of users is 0; give at least 1"));
        }
        if !(0.0..=1.0).contains(&config.wrong_share) {
            return Err(ConfigError::Invalid("the share of wrong passwords is not between 0 and 1"));
        }
        let methods = config.front.method_count();
        if !config.mix.is_empty() && config.mix.len() != methods {
            return Err(ConfigError::Invalid("the number of shares differs from the number of methods"));
        }
        if config.mix.is_empty() && methods > 1 {
            return Err(ConfigError::Invalid("each of several methods needs a share"));
        }
        if config.mix.iter().any(|s| !(s.weight.is_finite() && s.weight > 0.0)) || methods > 1000 {
            return Err(ConfigError::Invalid(
                "the share of a method is not above 0, or there are more than 1000 methods",
            ));
        }
        let model = usher_core::Seed::new(rng.next_u64()).derive_rng("load", 0);
        let access = |setup, rng| {
            ProtocolLoadClient::Access(Box::new(front::AaaLoadClient::new(setup, config.users.clone(), rng)))
        };
        let front = match &config.front {
            LoadProtocolConfig::Radius(r) => access(r.build_setup(&mut rng)?, rng),
            LoadProtocolConfig::Diameter(d) => access(d.build_setup(start, &mut rng)?, rng),
            LoadProtocolConfig::Ike(i) => {
                ProtocolLoadClient::Ike(Box::new(IkeLoadClient::new(i.clone(), config.users.clone(), rng)?))
            }
            LoadProtocolConfig::Mih(m) => {
                let chance = usher_core::Seed::new(rng.next_u64()).derive_rng("load.mih", 0);
                ProtocolLoadClient::Mih(Box::new(MihLoadClient::new(m.clone(), start, chance)?))
            }
            LoadProtocolConfig::Pppoe(p) => ProtocolLoadClient::Pppoe(Box::new(PppoeLoadClient::new(
                p.clone(),
                config.users.clone(),
                rng,
            )?)),
        };
        Ok(Self {
            front,
            rng: model,
            phase: GeneratorPhase::Connecting,
            since: start,
            schedule: None,
            waiting: None,
            full: false,
            capacity_since: start,
            windows: 0,
            idle: None,
            spun: Duration::ZERO,
            next_user: config.first,
            left: None,
            sink: LoginResultRecorder { methods: config.mix.len(), ..LoginResultRecorder::default() },
            outputs: OutputQueue::default(),
            has_reported_end: false,
            config,
        })
    }

    /// Returns the statistics since they were last taken.
    #[must_use]
    pub const fn login_stats(&self) -> &LoginStats {
        &self.sink.tally
    }
    /// Takes the statistics and resets them.
    pub fn take_login_stats(&mut self) -> LoginStats {
        core::mem::take(&mut self.sink.tally)
    }
    /// Returns the duration of the window so far.
    #[must_use]
    pub fn measured_time(&self, now: Instant) -> Duration {
        if self.windows == 0 {
            return Duration::ZERO;
        }
        self.sink.to.unwrap_or(now).min(now).duration_since(self.sink.from)
    }
    /// True once the server is reachable and logins begin.
    #[must_use]
    pub fn has_begun_logins(&self) -> bool {
        self.phase != GeneratorPhase::Connecting
    }
    /// True during a window of measurement and while its logins end.
    #[must_use]
    pub const fn is_measuring(&self) -> bool {
        self.sink.window != 0
    }
    /// True after the run has finished.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.phase, GeneratorPhase::Finished)
    }
    /// Returns the number of outstanding logins.
    #[must_use]
    pub fn outstanding_logins(&self) -> usize {
        self.front.outstanding_logins()
    }
    /// Returns the total time in which the host polled for a login's due time without other work. The processor was
    /// free for other uses then.
    #[must_use]
    pub const fn spin_time(&self) -> Duration {
        self.spun
    }
    /// Returns the clients' counters, such as retransmissions and dropped replies, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.front.counters()
    }

    /// True if no work is due.
    fn is_idle(&mut self, now: Instant) -> bool {
        let begins = self.waiting.is_some() || self.schedule.as_ref().is_some_and(|s| s.next_time() <= now);
        !begins && self.front.poll_timeout().is_none_or(|at| at > now)
    }

    fn start_measurement_window(&mut self, now: Instant) {
        self.phase = GeneratorPhase::Measuring;
        self.windows = self.windows.wrapping_add(1).max(1);
        self.sink.window = self.windows;
        self.sink.from = now;
        self.sink.to = self.config.duration.map(|d| now + d);
        self.left = self.config.count;
    }

    fn apply_login_pace(&mut self, now: Instant) {
        self.waiting = None;
        self.schedule = match self.config.pace {
            LoginPace::Open { rate, arrivals } => {
                Some(LoginSchedule::new(rate, arrivals, now, &mut self.rng))
            }
            LoginPace::Closed { .. } => None,
        };
    }

    /// Closes the window now; see [`GeneratorCommand::Close`].
    fn close_measurement_window(&mut self, now: Instant, limit: Duration) {
        if self.phase != GeneratorPhase::Measuring || self.sink.window == 0 {
            return;
        }
        let window = self.sink.window;
        let fate =
            |intended: Instant| (now.duration_since(intended) > limit).then_some(LoginFailure::Overdue);
        let sink = &mut self.sink;
        self.front.for_each_login(&mut |s| sink.record_unfinished_login(s, fate(s.intended)));
        if let Some((start, _)) = self.waiting.take() {
            self.sink.record_unfinished_login(&start, fate(start.intended));
        }
        if let Some(mut schedule) = self.schedule.take() {
            while schedule.next_time() <= now {
                let intended = schedule.advance(&mut self.rng);
                let method = self.choose_method();
                let start = LoginStart { intended, user: 0, wrong: false, window, method };
                self.sink.record_unfinished_login(&start, fate(intended));
            }
            self.schedule = Some(schedule);
        }
        self.sink.to = Some(now);
        self.sink.window = 0;
        self.left = None;
    }

    /// Chooses the method of the next login.
    fn choose_method(&mut self) -> u16 {
        if self.config.mix.len() < 2 {
            return 0;
        }
        let all: f64 = self.config.mix.iter().map(|s| s.weight).sum();
        let mut at = self.rng.sample_unit() * all;
        let last = self.config.mix.len() - 1;
        let found = self.config.mix.iter().position(|s| {
            at -= s.weight;
            at < 0.0
        });
        found.unwrap_or(last) as u16
    }

    /// Ends the window: counts due logins that could not begin, and lets outstanding ones end.
    fn start_window_drain(&mut self, now: Instant) {
        if matches!(
            self.phase,
            GeneratorPhase::Draining(_) | GeneratorPhase::Leaving(_) | GeneratorPhase::Finished
        ) {
            return;
        }
        if self.sink.window == 0 {
            // An earlier command has already closed the measurement window.
            self.waiting = None;
            self.schedule = None;
            self.phase = GeneratorPhase::Draining(now + self.config.drain_timeout);
            return;
        }
        let end = self.sink.to.filter(|to| *to < now).unwrap_or(now);
        self.sink.to = Some(end);
        if let Some((start, _)) = self.waiting.take() {
            self.sink.record_unfinished_login(&start, Some(LoginFailure::NotBegun));
        }
        let window = self.sink.window;
        if let Some(mut schedule) = self.schedule.take()
            && self.left != Some(0)
        {
            while schedule.next_time() < end {
                let intended = schedule.advance(&mut self.rng);
                let method = self.choose_method();
                let start = LoginStart { intended, user: 0, wrong: false, window, method };
                self.sink.record_unfinished_login(&start, Some(LoginFailure::NotBegun));
            }
        }
        self.phase = GeneratorPhase::Draining(now + self.config.drain_timeout);
    }

    fn finish_login_drain(&mut self, now: Instant) {
        let sink = &mut self.sink;
        self.front.for_each_login(&mut |s| sink.record_unfinished_login(s, Some(LoginFailure::Unfinished)));
        self.front.start_leaving(now);
        self.phase = GeneratorPhase::Leaving(now + LEAVING);
        self.finish_run_if_closed(now);
    }

    /// Finishes the run once no session remains.
    fn finish_run_if_closed(&mut self, now: Instant) {
        if let GeneratorPhase::Leaving(until) = self.phase
            && (!self.front.is_leaving() || now >= until)
        {
            self.phase = GeneratorPhase::Finished;
        }
    }

    /// Advances the phase if it is due.
    fn advance_generator_phase(&mut self, now: Instant) {
        if self.phase == GeneratorPhase::Connecting && self.front.is_ready() && now >= self.since {
            self.since = now;
            self.phase = GeneratorPhase::Warm;
            self.apply_login_pace(now);
        }
        if self.phase == GeneratorPhase::Warm && now.duration_since(self.since) >= self.config.warmup {
            self.start_measurement_window(now);
        }
        if self.phase == GeneratorPhase::Measuring {
            let over = self.sink.window != 0 && self.sink.to.is_some_and(|to| now >= to);
            self.begin_due_logins(now, if over { self.sink.to } else { None });
            if over || self.left == Some(0) {
                if self.sink.to.is_none_or(|to| to > now) && self.left == Some(0) {
                    // If the number of logins is given, the window ends with the last login instead of at a fixed time.
                    self.sink.to = None;
                    self.schedule = None;
                    self.phase = GeneratorPhase::Draining(now + self.config.drain_timeout);
                } else {
                    self.start_window_drain(now);
                }
            }
        } else if self.phase == GeneratorPhase::Warm {
            self.begin_due_logins(now, None);
        }
        if let GeneratorPhase::Draining(until) = self.phase
            && (self.outstanding_logins() == 0 || now >= until)
        {
            if self.sink.to.is_none() {
                self.sink.to = Some(self.sink.last.max(self.sink.from));
            }
            self.finish_login_drain(now);
        }
        self.finish_run_if_closed(now);
    }

    /// Begins the logins that are due before `end`.
    fn begin_due_logins(&mut self, now: Instant, end: Option<Instant>) {
        let most = match self.config.pace {
            LoginPace::Closed { concurrency } => concurrency,
            LoginPace::Open { .. } => self.config.outstanding,
        };
        while self.left != Some(0) {
            if self.outstanding_logins() >= most || !self.front.has_room() {
                self.full = true;
                return;
            }
            let start = match self.waiting.take() {
                Some((start, retry)) if retry > now => {
                    self.waiting = Some((start, retry));
                    return;
                }
                Some((start, _)) => start,
                None => match self.next_start(now, end) {
                    Some(start) => start,
                    None => break,
                },
            };
            if core::mem::take(&mut self.full) {
                self.capacity_since = now;
            }
            match self.front.begin_login(now, start, &mut self.sink) {
                Ok(()) => {
                    self.sink.record_login_start(now, self.capacity_since, &start);
                    if start.window != 0
                        && let Some(left) = &mut self.left
                    {
                        *left -= 1;
                    }
                }
                Err(LoginDeferral::Full) => {
                    self.full = true;
                    self.waiting = Some((start, now + RETRY));
                    return;
                }
            }
        }
        // No login waits for capacity any more, so record since when capacity is available.
        if core::mem::take(&mut self.full) {
            self.capacity_since = now;
        }
    }

    /// Returns the due login, if any.
    fn next_start(&mut self, now: Instant, end: Option<Instant>) -> Option<LoginStart> {
        let intended = match &mut self.schedule {
            None if end.is_some() || matches!(self.config.pace, LoginPace::Open { .. }) => return None,
            None => now,
            Some(s) if s.next_time() > now || end.is_some_and(|e| s.next_time() >= e) => return None,
            Some(s) => s.advance(&mut self.rng),
        };
        let user = self.next_user;
        self.next_user += self.config.step;
        if self.next_user >= self.config.users.len() {
            self.next_user = self.config.first;
        }
        let method = self.choose_method();
        let deniable = self.config.mix.get(usize::from(method)).is_none_or(|s| s.deniable);
        let wrong =
            self.config.wrong_share > 0.0 && self.rng.sample_bool(self.config.wrong_share) && deniable;
        let window = if intended >= self.sink.from { self.sink.window } else { 0 };
        Some(LoginStart { intended, user, wrong, window, method })
    }
}

impl LoadGenerator {
    /// Handles the front's events, does due work, and passes on the front's outputs.
    fn drain_front_outputs(&mut self, now: Instant) {
        self.front.drain_outputs(now, &mut self.outputs, &mut self.sink);
        self.advance_generator_phase(now);
        self.front.drain_outputs(now, &mut self.outputs, &mut self.sink);
        // The last login may have ended immediately, so the phase may be over.
        if matches!(self.phase, GeneratorPhase::Draining(_)) && self.outstanding_logins() == 0 {
            self.advance_generator_phase(now);
            self.front.drain_outputs(now, &mut self.outputs, &mut self.sink);
        }
        self.finish_run_if_closed(now);
        if self.phase == GeneratorPhase::Finished && !core::mem::replace(&mut self.has_reported_end, true) {
            self.outputs.push_event(GeneratorEvent::Finished);
        }
    }
}

impl Machine for LoadGenerator {
    type Command = GeneratorCommand;
    type Event = GeneratorEvent;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.front.set_epoch(now, epoch);
    }

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        let idle = matches!(input, MachineInput::Timeout) && self.is_idle(now);
        if idle && let Some(before) = self.idle {
            let gap = now.duration_since(before);
            if gap <= SPIN_GAP {
                self.spun += gap;
            }
        }
        self.idle = idle.then_some(now);
        self.front.handle_input(now, input, &mut self.sink);
        self.drain_front_outputs(now);
    }

    fn handle_command(&mut self, now: Instant, command: GeneratorCommand) -> Result<(), CommandError> {
        match command {
            GeneratorCommand::Pace(pace) => {
                self.config.pace = pace;
                if matches!(self.phase, GeneratorPhase::Warm | GeneratorPhase::Measuring) {
                    self.apply_login_pace(now);
                }
            }
            GeneratorCommand::Measure => {
                if matches!(
                    self.phase,
                    GeneratorPhase::Connecting | GeneratorPhase::Leaving(_) | GeneratorPhase::Finished
                ) {
                    return Err(CommandError::WrongState("the load is not running"));
                }
                self.start_measurement_window(now);
                if self.schedule.is_none() {
                    self.apply_login_pace(now);
                }
            }
            GeneratorCommand::Stop => {
                if self.phase == GeneratorPhase::Measuring {
                    // Begin the logins that are due by now, so that they do not count as backlog.
                    self.begin_due_logins(now, Some(now));
                }
                self.start_window_drain(now);
            }
            GeneratorCommand::Close(limit) => self.close_measurement_window(now, limit),
            GeneratorCommand::Abandon => {
                let sink = &mut self.sink;
                self.front.for_each_login(&mut |s| sink.record_unfinished_login(s, None));
                self.front.abandon_logins(now);
            }
        }
        self.drain_front_outputs(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let front = self.front.poll_timeout();
        let own = match self.phase {
            GeneratorPhase::Connecting => self.front.is_ready().then_some(self.since),
            GeneratorPhase::Warm | GeneratorPhase::Measuring => {
                let turn = match self.phase {
                    GeneratorPhase::Warm => Some(self.since + self.config.warmup),
                    _ => self.sink.to.filter(|_| self.sink.window != 0),
                };
                let room = self.front.has_room()
                    && match self.config.pace {
                        LoginPace::Closed { concurrency } => self.outstanding_logins() < concurrency,
                        LoginPace::Open { .. } => self.outstanding_logins() < self.config.outstanding,
                    };
                let begin = match (&self.waiting, &self.schedule) {
                    _ if !room => None,
                    (Some((_, retry)), _) => Some(*retry),
                    (None, Some(s)) => Some(
                        s.next_time() - self.config.spin.min(s.next_time().duration_since(Instant::ZERO)),
                    ),
                    (None, None) => None,
                };
                earliest_deadline([turn, begin])
            }
            GeneratorPhase::Draining(until) | GeneratorPhase::Leaving(until) => Some(until),
            GeneratorPhase::Finished => return None,
        };
        earliest_deadline([front, own])
    }
}

#[cfg(test)]
mod tests;
