//! The generator: a machine that logs users in, at a pace, and keeps the tally.
//!
//! ```text
//! Pace ─▶ Generator ─▶ front (access servers' clients by RADIUS or Diameter, EAP peers) ─▶ server
//!              └─ Tally: what came of it, by name
//! ```
//! It goes through a warm-up, whose logins are not counted, a window of measurement, and a time in which the
//! logins begun within the window come to their end; then it says [`Event::Finished`].

mod diameter;
mod either;
mod front;
mod ike;
mod login;
mod mih;
mod pppoe;
mod radius;

pub use diameter::{DiameterConfig, DiameterLogin};
pub use ike::{IkeConfig, IkeGatewayAuth, IkeLogin};
pub use mih::{MihConfig, MihRequest};
pub use pppoe::{EchoConfig, Hold, PppoeConfig, PppoeLogin};
pub(crate) use pppoe::{PORT, station_of};
pub use radius::{Accounting, Fleet, RadiusConfig, RadiusLogin};

use crate::pace::{Pace, Schedule};
use crate::tally::{Failure, Tally};
use crate::users::Users;
use either::Front;
use ike::IkeFront;
use login::{Sink, Start};
use mih::MihFront;
use pppoe::PppoeFront;
use std::sync::Arc;
use usher_core::timer::earliest;
use usher_core::{
    CommandError, Duration, Input, Instant, Machine, NoJob, OutputOf, Outputs, Rng, SecureRng, WallTime,
};

/// How long what stays to the end of a run may take to be ended.
const LEAVING: Duration = Duration::from_secs(3600);

/// How soon a login that found no room is tried again.
const RETRY: Duration = Duration::from_millis(5);

/// Between two idle inputs that are further apart the host slept, or did not get a processor.
const SPIN_GAP: Duration = Duration::from_micros(200);

/// What a generator is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// When logins begin.
    pub pace: Pace,
    /// How long logins are not counted, from the time at which the server can be reached.
    pub warmup: Duration,
    /// How long the window of measurement is; `None`: until it is told to stop or has begun `count` logins.
    pub duration: Option<Duration>,
    /// Logins to begin in the window.
    pub count: Option<u64>,
    /// Most logins under way at once in an open loop; those that are due beyond it wait, and their latency runs.
    pub outstanding: usize,
    /// How long the logins of the window are waited for after its end.
    pub patience: Duration,
    /// How much earlier than the next login of an open loop it asks to be woken: a host whose timer is coarse then
    /// asks again and again until the time has come. Zero in virtual time.
    pub spin: Duration,
    /// Which share of the logins has a wrong password, which the server must turn away.
    pub wrong_share: f64,
    /// Who logs in: from `first`, every `step`-th, around and around.
    pub users: Arc<Users>,
    /// The first user.
    pub first: usize,
    /// The step; 1 for all.
    pub step: usize,
    /// The methods of the front, with their shares; empty where there is one only.
    pub mix: Vec<Share>,
    /// How they log in.
    pub front: FrontConfig,
}

/// One of several methods.
#[derive(Clone, PartialEq, Debug)]
pub struct Share {
    /// What it is called in the results.
    pub name: String,
    /// Its weight among all, above 0.
    pub weight: f64,
    /// Whether a login can be made wrong, so that it must be turned away.
    pub deniable: bool,
}

/// How users log in.
#[derive(Clone, Debug)]
pub enum FrontConfig {
    /// Over RADIUS.
    Radius(RadiusConfig),
    /// Over Diameter.
    Diameter(DiameterConfig),
    /// By IKEv2, at a gateway.
    Ike(IkeConfig),
    /// No logins, but transactions between MIH functions.
    Mih(MihConfig),
    /// By PPPoE, at an access concentrator.
    Pppoe(PppoeConfig),
}

impl FrontConfig {
    /// How many methods of logging in there are.
    const fn methods(&self) -> usize {
        match self {
            Self::Radius(r) => r.logins.len(),
            Self::Diameter(d) => d.logins.len(),
            Self::Pppoe(p) => p.logins.len(),
            Self::Ike(i) => i.logins.len(),
            Self::Mih(_) => 1,
        }
    }
    /// The same with the `n`-th method only.
    #[must_use]
    pub fn only(&self, n: usize) -> Self {
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
    /// The same with initiators who ask so often whether the gateway lives, once they are in.
    #[must_use]
    pub fn probing(&self, probes: u32) -> Self {
        let mut probing = self.clone();
        if let Self::Ike(i) = &mut probing {
            i.probes = probes;
        }
        probing
    }
}

/// Why a generator cannot be made.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The clients.
    #[error(transparent)]
    Client(#[from] usher_access::ConfigError),
    /// A value out of its range.
    #[error("{0}")]
    Invalid(&'static str),
}

/// What a generator is told.
#[derive(Clone, Debug)]
pub enum Command {
    /// Go on at another pace from now on; a backlog is forgotten.
    Pace(Pace),
    /// Begin a window of measurement now. The tally should have been taken before.
    Measure,
    /// Begin no more logins; finish when those under way have ended.
    Stop,
    /// End the window here, as a step of a ramp does: what was meant to begin in it and has not ended is
    /// [`Failure::Overdue`] where that is longer ago than this, and cut off else. Logins go on, uncounted.
    Close(Duration),
    /// Forget all logins under way, without a word to anybody. Those of an open window are cut off.
    Abandon,
}

/// What a generator has to say, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// All is done: the tally is whole.
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The server cannot be reached yet.
    Connecting,
    Warm,
    Measuring,
    /// Until then those under way are waited for.
    Draining(Instant),
    /// What stays to the end is ended, until then at the latest.
    Leaving(Instant),
    Finished,
}

/// Why a login did not begin just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NotNow {
    /// No room: later.
    Full,
}

/// One generator; see the [module](self).
#[derive(Debug)]
pub struct Generator {
    config: Config,
    front: Front,
    rng: Rng,
    phase: Phase,
    since: Instant,
    schedule: Option<Schedule>,
    /// A login that is due and found no room.
    waiting: Option<(Start, Instant)>,
    /// Logins were due and there was no room for them.
    full: bool,
    /// Since when there has been room.
    room: Instant,
    /// How many windows there were.
    windows: u32,
    /// The last input, if it found nothing to do.
    idle: Option<Instant>,
    /// How long the host asked again and again whether a login's time has come.
    spun: Duration,
    next_user: usize,
    left: Option<u64>,
    sink: Sink,
    outputs: Outputs<Event>,
    told: bool,
}

impl Generator {
    /// A generator that begins at `start`. All chance is drawn from `rng`.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(config: Config, start: Instant, mut rng: SecureRng) -> Result<Self, ConfigError> {
        if config.users.is_empty() {
            return Err(ConfigError::Invalid("there is no user"));
        }
        if !(0.0..=1.0).contains(&config.wrong_share) {
            return Err(ConfigError::Invalid("the share of wrong passwords is not within 0 and 1"));
        }
        let methods = config.front.methods();
        if !config.mix.is_empty() && config.mix.len() != methods {
            return Err(ConfigError::Invalid("there are not as many shares as methods"));
        }
        if config.mix.is_empty() && methods > 1 {
            return Err(ConfigError::Invalid("several methods need their shares"));
        }
        if config.mix.iter().any(|s| !(s.weight.is_finite() && s.weight > 0.0)) || methods > 1000 {
            return Err(ConfigError::Invalid("a method's share is not above 0, or there are more than 1000"));
        }
        let model = usher_core::Seed::new(rng.next_u64()).stream("load", 0);
        let access =
            |setup, rng| Front::Access(Box::new(front::Front::new(setup, config.users.clone(), rng)));
        let front = match &config.front {
            FrontConfig::Radius(r) => access(r.setup(&mut rng)?, rng),
            FrontConfig::Diameter(d) => access(d.setup(start, &mut rng)?, rng),
            FrontConfig::Ike(i) => Front::Ike(Box::new(IkeFront::new(i.clone(), config.users.clone(), rng)?)),
            FrontConfig::Mih(m) => {
                let chance = usher_core::Seed::new(rng.next_u64()).stream("load.mih", 0);
                Front::Mih(Box::new(MihFront::new(m.clone(), start, chance)?))
            }
            FrontConfig::Pppoe(p) => {
                Front::Pppoe(Box::new(PppoeFront::new(p.clone(), config.users.clone(), rng)?))
            }
        };
        Ok(Self {
            front,
            rng: model,
            phase: Phase::Connecting,
            since: start,
            schedule: None,
            waiting: None,
            full: false,
            room: start,
            windows: 0,
            idle: None,
            spun: Duration::ZERO,
            next_user: config.first,
            left: None,
            sink: Sink { methods: config.mix.len(), ..Sink::default() },
            outputs: Outputs::default(),
            told: false,
            config,
        })
    }

    /// What came of the logins since the tally was last taken.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.sink.tally
    }
    /// Takes the tally; a new one begins.
    pub fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.sink.tally)
    }
    /// How long the window of measurement is so far.
    #[must_use]
    pub fn measured(&self, now: Instant) -> Duration {
        if self.windows == 0 {
            return Duration::ZERO;
        }
        self.sink.to.unwrap_or(now).min(now).since(self.sink.from)
    }
    /// True once the server is reached and logins begin.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.phase != Phase::Connecting
    }
    /// True within a window of measurement, and while its logins come to their end.
    #[must_use]
    pub const fn is_measuring(&self) -> bool {
        self.sink.window != 0
    }
    /// True when all is done.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }
    /// Logins under way.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.front.outstanding()
    }
    /// How long the host has asked again and again whether a login's time has come, while nothing was to be done: a
    /// processor's time that could be used otherwise.
    #[must_use]
    pub const fn spun(&self) -> Duration {
        self.spun
    }
    /// What the client counted: retransmissions, and answers that it dropped, by name.
    #[must_use]
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.front.counters()
    }

    /// Whether nothing is due.
    fn is_idle(&mut self, now: Instant) -> bool {
        let begins = self.waiting.is_some() || self.schedule.as_ref().is_some_and(|s| s.next() <= now);
        !begins && self.front.poll_timeout().is_none_or(|at| at > now)
    }

    fn measure(&mut self, now: Instant) {
        self.phase = Phase::Measuring;
        self.windows = self.windows.wrapping_add(1).max(1);
        self.sink.window = self.windows;
        self.sink.from = now;
        self.sink.to = self.config.duration.map(|d| now + d);
        self.left = self.config.count;
    }

    fn pace(&mut self, now: Instant) {
        self.waiting = None;
        self.schedule = match self.config.pace {
            Pace::Open { rate, arrivals } => Some(Schedule::new(rate, arrivals, now, &mut self.rng)),
            Pace::Closed { .. } => None,
        };
    }

    /// Ends the window where it is; see [`Command::Close`].
    fn close(&mut self, now: Instant, limit: Duration) {
        if self.phase != Phase::Measuring || self.sink.window == 0 {
            return;
        }
        let window = self.sink.window;
        let fate = |intended: Instant| (now.since(intended) > limit).then_some(Failure::Overdue);
        let sink = &mut self.sink;
        self.front.each(&mut |s| sink.left(s, fate(s.intended)));
        if let Some((start, _)) = self.waiting.take() {
            self.sink.left(&start, fate(start.intended));
        }
        if let Some(mut schedule) = self.schedule.take() {
            while schedule.next() <= now {
                let intended = schedule.advance(&mut self.rng);
                let method = self.method();
                let start = Start { intended, user: 0, wrong: false, window, method };
                self.sink.left(&start, fate(intended));
            }
            self.schedule = Some(schedule);
        }
        self.sink.to = Some(now);
        self.sink.window = 0;
        self.left = None;
    }

    /// Which method the next login has.
    fn method(&mut self) -> u16 {
        if self.config.mix.len() < 2 {
            return 0;
        }
        let all: f64 = self.config.mix.iter().map(|s| s.weight).sum();
        let mut at = self.rng.unit() * all;
        let last = self.config.mix.len() - 1;
        let found = self.config.mix.iter().position(|s| {
            at -= s.weight;
            at < 0.0
        });
        found.unwrap_or(last) as u16
    }

    /// Ends the window: what was due and could not begin is counted, the rest is waited for.
    fn stop(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Draining(_) | Phase::Leaving(_) | Phase::Finished) {
            return;
        }
        if self.sink.window == 0 {
            // What was measured, if anything was, was closed before.
            self.waiting = None;
            self.schedule = None;
            self.phase = Phase::Draining(now + self.config.patience);
            return;
        }
        let end = self.sink.to.filter(|to| *to < now).unwrap_or(now);
        self.sink.to = Some(end);
        if let Some((start, _)) = self.waiting.take() {
            self.sink.left(&start, Some(Failure::NotBegun));
        }
        let window = self.sink.window;
        if let Some(mut schedule) = self.schedule.take()
            && self.left != Some(0)
        {
            while schedule.next() < end {
                let intended = schedule.advance(&mut self.rng);
                let method = self.method();
                let start = Start { intended, user: 0, wrong: false, window, method };
                self.sink.left(&start, Some(Failure::NotBegun));
            }
        }
        self.phase = Phase::Draining(now + self.config.patience);
    }

    fn finish(&mut self, now: Instant) {
        let sink = &mut self.sink;
        self.front.each(&mut |s| sink.left(s, Some(Failure::Unfinished)));
        self.front.leave(now);
        self.phase = Phase::Leaving(now + LEAVING);
        self.left(now);
    }

    /// All is done once nothing is left to be ended.
    fn left(&mut self, now: Instant) {
        if let Phase::Leaving(until) = self.phase
            && (!self.front.is_leaving() || now >= until)
        {
            self.phase = Phase::Finished;
        }
    }

    /// Does what is due.
    fn pump(&mut self, now: Instant) {
        if self.phase == Phase::Connecting && self.front.ready() && now >= self.since {
            self.since = now;
            self.phase = Phase::Warm;
            self.pace(now);
        }
        if self.phase == Phase::Warm && now.since(self.since) >= self.config.warmup {
            self.measure(now);
        }
        if self.phase == Phase::Measuring {
            let over = self.sink.window != 0 && self.sink.to.is_some_and(|to| now >= to);
            self.begin_due(now, if over { self.sink.to } else { None });
            if over || self.left == Some(0) {
                if self.sink.to.is_none_or(|to| to > now) && self.left == Some(0) {
                    // By count, the window ends with its last login.
                    self.sink.to = None;
                    self.schedule = None;
                    self.phase = Phase::Draining(now + self.config.patience);
                } else {
                    self.stop(now);
                }
            }
        } else if self.phase == Phase::Warm {
            self.begin_due(now, None);
        }
        if let Phase::Draining(until) = self.phase
            && (self.outstanding() == 0 || now >= until)
        {
            if self.sink.to.is_none() {
                self.sink.to = Some(self.sink.last.max(self.sink.from));
            }
            self.finish(now);
        }
        self.left(now);
    }

    /// Begins the logins that are due, those before `end`.
    fn begin_due(&mut self, now: Instant, end: Option<Instant>) {
        let most = match self.config.pace {
            Pace::Closed { concurrency } => concurrency,
            Pace::Open { .. } => self.config.outstanding,
        };
        while self.left != Some(0) {
            if self.outstanding() >= most || !self.front.has_room() {
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
                self.room = now;
            }
            match self.front.begin(now, start, &mut self.sink) {
                Ok(()) => {
                    self.sink.begun(now, self.room, &start);
                    if start.window != 0
                        && let Some(left) = &mut self.left
                    {
                        *left -= 1;
                    }
                }
                Err(NotNow::Full) => {
                    self.full = true;
                    self.waiting = Some((start, now + RETRY));
                    return;
                }
            }
        }
        // Nobody waits for room.
        if core::mem::take(&mut self.full) {
            self.room = now;
        }
    }

    /// The login that is due, if one is.
    fn next_start(&mut self, now: Instant, end: Option<Instant>) -> Option<Start> {
        let intended = match &mut self.schedule {
            None if end.is_some() || matches!(self.config.pace, Pace::Open { .. }) => return None,
            None => now,
            Some(s) if s.next() > now || end.is_some_and(|e| s.next() >= e) => return None,
            Some(s) => s.advance(&mut self.rng),
        };
        let user = self.next_user;
        self.next_user += self.config.step;
        if self.next_user >= self.config.users.len() {
            self.next_user = self.config.first;
        }
        let method = self.method();
        let deniable = self.config.mix.get(usize::from(method)).is_none_or(|s| s.deniable);
        let wrong = self.config.wrong_share > 0.0 && self.rng.chance(self.config.wrong_share) && deniable;
        let window = if intended >= self.sink.from { self.sink.window } else { 0 };
        Some(Start { intended, user, wrong, window, method })
    }
}

impl Generator {
    /// Hears the front, does what is due, and hands on what the front wants done for that.
    fn settle(&mut self, now: Instant) {
        self.front.settle(now, &mut self.outputs, &mut self.sink);
        self.pump(now);
        self.front.settle(now, &mut self.outputs, &mut self.sink);
        // The last may have ended as soon as it began.
        if matches!(self.phase, Phase::Draining(_)) && self.outstanding() == 0 {
            self.pump(now);
            self.front.settle(now, &mut self.outputs, &mut self.sink);
        }
        self.left(now);
        if self.phase == Phase::Finished && !core::mem::replace(&mut self.told, true) {
            self.outputs.event(Event::Finished);
        }
    }
}

impl Machine for Generator {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        self.front.set_epoch(now, epoch);
    }

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        let idle = matches!(input, Input::Timeout) && self.is_idle(now);
        if idle && let Some(before) = self.idle {
            let gap = now.since(before);
            if gap <= SPIN_GAP {
                self.spun += gap;
            }
        }
        self.idle = idle.then_some(now);
        self.front.handle(now, input, &mut self.sink);
        self.settle(now);
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Pace(pace) => {
                self.config.pace = pace;
                if matches!(self.phase, Phase::Warm | Phase::Measuring) {
                    self.pace(now);
                }
            }
            Command::Measure => {
                if matches!(self.phase, Phase::Connecting | Phase::Leaving(_) | Phase::Finished) {
                    return Err(CommandError::WrongState("a window begins when the server is reached"));
                }
                self.measure(now);
                if self.schedule.is_none() {
                    self.pace(now);
                }
            }
            Command::Stop => {
                if self.phase == Phase::Measuring {
                    // What is due by now is no backlog.
                    self.begin_due(now, Some(now));
                }
                self.stop(now);
            }
            Command::Close(limit) => self.close(now, limit),
            Command::Abandon => {
                let sink = &mut self.sink;
                self.front.each(&mut |s| sink.left(s, None));
                self.front.abandon(now);
            }
        }
        self.settle(now);
        Ok(())
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let front = self.front.poll_timeout();
        let own = match self.phase {
            Phase::Connecting => self.front.ready().then_some(self.since),
            Phase::Warm | Phase::Measuring => {
                let turn = match self.phase {
                    Phase::Warm => Some(self.since + self.config.warmup),
                    _ => self.sink.to.filter(|_| self.sink.window != 0),
                };
                let room = self.front.has_room()
                    && match self.config.pace {
                        Pace::Closed { concurrency } => self.outstanding() < concurrency,
                        Pace::Open { .. } => self.outstanding() < self.config.outstanding,
                    };
                let begin = match (&self.waiting, &self.schedule) {
                    _ if !room => None,
                    (Some((_, retry)), _) => Some(*retry),
                    (None, Some(s)) => Some(s.next() - self.config.spin.min(s.next().since(Instant::ZERO))),
                    (None, None) => None,
                };
                earliest([turn, begin])
            }
            Phase::Draining(until) | Phase::Leaving(until) => Some(until),
            Phase::Finished => return None,
        };
        earliest([front, own])
    }
}

/// A password that is not this one, and as long.
fn alter<'a>(password: &[u8], room: &'a mut [u8; 128]) -> &'a [u8] {
    let length = password.len().clamp(1, 128);
    room[0] = b'x';
    room[..password.len().min(128)].copy_from_slice(&password[..password.len().min(128)]);
    room[length - 1] ^= 1;
    &room[..length]
}

#[cfg(test)]
mod tests;
