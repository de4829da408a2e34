//! The event loop: sockets, timers, applications and what they ask for.

use super::{Due, Hosts, Source};
use crate::error::Doing;
use crate::perf::{Sampled, Sampler};
use rustix::event::{Timespec, epoll};
use std::sync::atomic::Ordering;
use usher_core::{Duration, Instant};
use usher_live::{Clock, thread_cpu_time};
use usher_sim::{Application, Context, Delivery, Observer, Op};

/// How often it is looked whether a run is to end before its time.
const LOOK: Duration = Duration::from_millis(100);
/// A turn before most others, and behind the relay (sched(7)).
const NICE: i32 = -15;
/// Events taken from the kernel at a time.
const EVENTS: usize = 256;

/// When an application's turn began: by the thread's processor time, and where it is sampled by CLOCK_MONOTONIC.
#[derive(Clone, Copy)]
struct Turn {
    cpu: std::time::Duration,
    at_ns: u64,
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<A: Application, O: Observer<A::Report>> Hosts<A, O> {
    /// Runs until `until`, until the observer is done, or until it is told to stop. May be called again with a later time.
    pub fn run_until(&mut self, until: Instant) {
        let clock = match self.clock {
            Some(clock) => clock,
            None => self.begin(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        while self.failed.is_none() && !self.observer.is_done() && !self.stop.load(Ordering::Relaxed) {
            self.now = clock.now();
            if self.now >= until {
                return;
            }
            self.ring(clock);
            let next = self.due.first().map_or(Instant::FAR_FUTURE, |(at, _)| *at).min(until);
            self.now = clock.now();
            let wait = next.since(self.now).min(LOOK);
            let timeout = Timespec {
                tv_sec: (wait.as_nanos() / 1_000_000_000) as i64,
                tv_nsec: (wait.as_nanos() % 1_000_000_000) as i64,
            };
            events.clear();
            match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => self.failed = Err::<(), _>(e).doing(|| "wait for sockets".to_owned()).err(),
            }
            for event in &events {
                self.now = clock.now();
                let (number, flags) = (event.data.u64(), event.flags);
                let began = self.turn();
                let app = self.sources.get(&number).map(Source::app);
                // What an earlier event of the batch closed is gone.
                match self.sources.get(&number) {
                    Some(Source::Bound(_)) => self.receive_datagrams(number),
                    Some(Source::Listener(_)) => self.accept(number),
                    Some(Source::Stream(_)) => self.stream_event(number, flags),
                    Some(Source::AssocListener(_)) => self.accept_association(number),
                    Some(Source::Assoc(_)) => self.association_event(number, flags),
                    Some(Source::Frames(_)) => self.receive_frames(number),
                    None => {}
                }
                self.charge(app, began);
                if self.observer.is_done() {
                    return;
                }
            }
        }
    }

    fn begin(&mut self) -> Clock {
        // The kernel else lets a timer be 50 µs late, to wake up less often.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // No real-time turn: this thread and those that it starts also make namespaces and links, in which the kernel waits
        // for threads of its own that have none.
        let before = rustix::process::getpriority_process(None).ok();
        self.precision.preferred = rustix::process::setpriority_process(None, NICE).is_ok();
        self.nice = before.filter(|_| self.precision.preferred);
        if self.perf {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            self.sampler = u32::try_from(thread).ok().and_then(|tid| Sampler::start(Sampled::Thread(tid)));
        }
        let clock = Clock::start();
        self.clock = Some(clock);
        if let Err(error) = self.lab.start(clock, self.tap.take()) {
            self.failed = Some(error);
            return clock;
        }
        for app in 0..self.apps.len() as u32 {
            self.now = clock.now();
            let began = self.turn();
            self.deliver(app, Delivery::Start);
            self.charge(Some(app), began);
        }
        clock
    }

    /// Tells everybody whose time has come.
    fn ring(&mut self, clock: Clock) {
        while let Some(&(at, due)) = self.due.first()
            && at <= self.now
        {
            self.due.pop_first();
            let late = self.now.since(at).as_nanos();
            self.precision.timers += 1;
            self.precision.late_ns += late;
            self.precision.latest_ns = self.precision.latest_ns.max(late);
            let began = self.turn();
            let app = match due {
                Due::App(app) => Some(app),
                Due::Read(stream) => self.sources.get(&stream).map(Source::app),
            };
            match due {
                Due::App(app) => {
                    self.apps[app as usize].deadline = None;
                    self.deliver(app, Delivery::Timer);
                }
                Due::Read(stream) => self.slow_read(stream),
            }
            self.charge(app, began);
            self.now = clock.now();
        }
    }

    /// An application's turn begins.
    fn turn(&self) -> Turn {
        Turn { cpu: thread_cpu_time(), at_ns: if self.sampler.is_some() { monotonic() } else { 0 } }
    }

    /// Notes processor time that was an application's.
    fn charge(&mut self, app: Option<u32>, began: Turn) {
        let Some(app) = app else { return };
        if let Some(slot) = self.apps.get_mut(app as usize) {
            slot.processor += thread_cpu_time().saturating_sub(began.cpu);
            if self.sampler.is_some() {
                self.turns.push((began.at_ns, monotonic(), app));
            }
        }
    }

    /// Hands something to an application and carries out what it asks for. What comes of that for an application waits until
    /// it is carried out, so that a later wish is not overtaken by an earlier one.
    pub(super) fn deliver(&mut self, app: u32, delivery: Delivery) {
        self.later.push_back((app, delivery));
        if std::mem::replace(&mut self.delivering, true) {
            return;
        }
        while let Some((app, delivery)) = self.later.pop_front() {
            self.hand(app, delivery);
        }
        self.delivering = false;
    }

    fn hand(&mut self, app: u32, delivery: Delivery) {
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let slot = &mut self.apps[app as usize];
        slot.app.handle(&mut Context::new(self.now, self.epoch, &mut ops, &mut self.work), delivery);
        // What labels say that it costs is the simulator's affair: here it costs what it costs.
        self.work.clear();
        for op in ops.drain(..) {
            self.execute(app, op);
        }
        self.spare_ops.push(ops);
    }

    fn execute(&mut self, app: u32, op: Op<A::Report>) {
        match op {
            Op::Datagram { socket, to, port, payload } => self.send_datagram(app, socket, to, port, &payload),
            Op::Connect { conn, from, to, port } => self.connect(app, conn.into(), from, to, port),
            Op::Write { conn, payload } => self.write(app, conn.into(), payload),
            Op::Credit { conn, bytes } => self.credit(app, conn.into(), bytes),
            Op::Associate { assoc, from, to, port, streams } => {
                self.associate(app, assoc.into(), from, (to, port), streams);
            }
            Op::Send { assoc, message } => self.send_message(app, assoc.into(), message),
            Op::Shutdown { conn } if self.is_association(app, conn.into()) => {
                self.shutdown_association(app, conn.into());
            }
            Op::Shutdown { conn } => self.shutdown(app, conn.into()),
            Op::Abort { conn } if self.is_association(app, conn.into()) => {
                self.abort_association(app, conn.into());
            }
            Op::Abort { conn } => self.abort(app, conn.into()),
            Op::Frame { port, payload } => self.send_frame(app, port, &payload),
            // There is no radio whose link could do anything.
            Op::Link { .. } => self.counters.stale_operation += 1,
            // Packets go as they are: a study that protects them is refused before.
            Op::Protection(_) | Op::Protect(_) => self.counters.stale_operation += 1,
            // The kernel forwards by itself: a study whose roles do is refused before.
            Op::Forward(_) | Op::Session { .. } => self.counters.stale_operation += 1,
            Op::Owner { token, local, remote } => {
                let owner = self.owner(app, local, remote);
                self.deliver(app, Delivery::Owner { token, app: owner });
            }
            Op::Timer(at) => self.set_timer(app, at),
            Op::Report(report) => self.observer.report(self.now, app, report),
        }
    }

    fn set_timer(&mut self, app: u32, at: Option<Instant>) {
        let slot = &mut self.apps[app as usize];
        if slot.deadline == at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut slot.deadline, at) {
            self.due.remove(&(before, Due::App(app)));
        }
        if let Some(at) = at {
            self.due.insert((at, Due::App(app)));
        }
    }
}
