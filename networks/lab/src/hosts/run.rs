//! The event loop: sockets, timers, applications and their operations.

use super::{LabHostTimer, LabHosts, SocketEventSource};
use crate::error::ErrorContext;
use crate::perf::{PerfSampler, SampleTarget};
use rustix::event::{Timespec, epoll};
use std::sync::atomic::Ordering;
use usher_core::{Duration, Instant};
use usher_live::{SystemClock, thread_cpu_time};
use usher_sim::{AppContext, AppDelivery, AppOperation, Application, ReportObserver};

/// The interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(100);
/// Priority over ordinary threads, and below the relay (sched(7)).
const NICE: i32 = -15;
/// The events taken from the kernel per call.
const EVENTS: usize = 256;

/// The start of an application's turn: the thread's processor time, and CLOCK_MONOTONIC if sampling.
#[derive(Clone, Copy)]
struct AppRunStart {
    cpu: std::time::Duration,
    at_ns: u64,
}

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Runs until `until`, until the observer is done, or until the stop flag. Can be called again with a later time.
    pub fn run_until(&mut self, until: Instant) {
        let clock = match self.clock {
            Some(clock) => clock,
            None => self.start_clock(),
        };
        let mut events = Vec::with_capacity(EVENTS);
        while self.failed.is_none() && !self.observer.is_done() && !self.stop.load(Ordering::Relaxed) {
            self.now = clock.now();
            if self.now >= until {
                return;
            }
            self.fire_due_events(clock);
            let next = self.due.first().map_or(Instant::FAR_FUTURE, |(at, _)| *at).min(until);
            self.now = clock.now();
            let wait = next.duration_since(self.now).min(LOOK);
            let timeout = Timespec {
                tv_sec: (wait.as_nanos() / 1_000_000_000) as i64,
                tv_nsec: (wait.as_nanos() % 1_000_000_000) as i64,
            };
            events.clear();
            match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => self.failed = Err::<(), _>(e).with_context(|| "wait for sockets".to_owned()).err(),
            }
            for event in &events {
                self.now = clock.now();
                let (number, flags) = (event.data.u64(), event.flags);
                let began = self.start_app_run();
                let app = self.sources.get(&number).map(SocketEventSource::app_index);
                // An earlier event of this batch may have closed the socket.
                match self.sources.get(&number) {
                    Some(SocketEventSource::Bound(_)) => self.receive_datagrams(number),
                    Some(SocketEventSource::Listener(_)) => self.accept_connections(number),
                    Some(SocketEventSource::Stream(_)) => self.stream_event(number, flags),
                    Some(SocketEventSource::AssocListener(_)) => self.accept_association(number),
                    Some(SocketEventSource::Assoc(_)) => self.handle_association_event(number, flags),
                    Some(SocketEventSource::Frames(_)) => self.receive_frames(number),
                    None => {}
                }
                self.charge_app_run(app, began);
                if self.observer.is_done() {
                    return;
                }
            }
        }
    }

    fn start_clock(&mut self) -> SystemClock {
        // By default the kernel delays timers by up to 50 µs to save wake-ups.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // No real-time priority: this thread and its children also create namespaces and links, in which the kernel
        // waits for threads without it.
        let before = rustix::process::getpriority_process(None).ok();
        self.precision.preferred = rustix::process::setpriority_process(None, NICE).is_ok();
        self.nice = before.filter(|_| self.precision.preferred);
        if self.perf {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            self.sampler =
                u32::try_from(thread).ok().and_then(|tid| PerfSampler::start(SampleTarget::Thread(tid)));
        }
        let clock = SystemClock::start();
        self.clock = Some(clock);
        if let Err(error) = self.lab.start_relay(clock, self.tap.take()) {
            self.failed = Some(error);
            return clock;
        }
        for app in 0..self.apps.len() as u32 {
            self.now = clock.now();
            let began = self.start_app_run();
            self.deliver_to_app(app, AppDelivery::Start);
            self.charge_app_run(Some(app), began);
        }
        clock
    }

    /// Fires all due timers.
    fn fire_due_events(&mut self, clock: SystemClock) {
        while let Some(&(at, due)) = self.due.first()
            && at <= self.now
        {
            self.due.pop_first();
            let late = self.now.duration_since(at).as_nanos();
            self.precision.timers += 1;
            self.precision.late_ns += late;
            self.precision.latest_ns = self.precision.latest_ns.max(late);
            let began = self.start_app_run();
            let app = match due {
                LabHostTimer::App(app) => Some(app),
                LabHostTimer::Read(stream) => self.sources.get(&stream).map(SocketEventSource::app_index),
            };
            match due {
                LabHostTimer::App(app) => {
                    self.apps[app as usize].deadline = None;
                    self.deliver_to_app(app, AppDelivery::Timer);
                }
                LabHostTimer::Read(stream) => self.slow_read(stream),
            }
            self.charge_app_run(app, began);
            self.now = clock.now();
        }
    }

    /// Starts an application's turn.
    fn start_app_run(&self) -> AppRunStart {
        AppRunStart { cpu: thread_cpu_time(), at_ns: if self.sampler.is_some() { monotonic_ns() } else { 0 } }
    }

    /// Charges an application for the processor time of its turn.
    fn charge_app_run(&mut self, app: Option<u32>, began: AppRunStart) {
        let Some(app) = app else { return };
        if let Some(slot) = self.apps.get_mut(app as usize) {
            slot.processor += thread_cpu_time().saturating_sub(began.cpu);
            if self.sampler.is_some() {
                self.turns.push((began.at_ns, monotonic_ns(), app));
            }
        }
    }

    /// Delivers input to an application and carries out its operations. Resulting deliveries wait until all are
    /// carried out, so that operations keep their order.
    pub(super) fn deliver_to_app(&mut self, app: u32, delivery: AppDelivery) {
        self.later.push_back((app, delivery));
        if std::mem::replace(&mut self.delivering, true) {
            return;
        }
        while let Some((app, delivery)) = self.later.pop_front() {
            self.handle_delivery(app, delivery);
        }
        self.delivering = false;
    }

    fn handle_delivery(&mut self, app: u32, delivery: AppDelivery) {
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let slot = &mut self.apps[app as usize];
        slot.app
            .handle_delivery(&mut AppContext::new(self.now, self.epoch, &mut ops, &mut self.work), delivery);
        // Discard work labels: they charge the simulated processor, while a lab uses real processor time.
        self.work.clear();
        for op in ops.drain(..) {
            self.execute_op(app, op);
        }
        self.spare_ops.push(ops);
    }

    fn execute_op(&mut self, app: u32, op: AppOperation<A::Report>) {
        match op {
            AppOperation::Datagram { socket, to, port, payload } => {
                self.send_datagram(app, socket, to, port, &payload)
            }
            AppOperation::Connect { conn, from, to, port } => {
                self.connect_stream(app, conn.into(), from, to, port)
            }
            AppOperation::Write { conn, payload } => self.write_stream(app, conn.into(), payload),
            AppOperation::Credit { conn, bytes } => self.add_stream_credit(app, conn.into(), bytes),
            AppOperation::Associate { assoc, from, to, port, streams } => {
                self.start_association(app, assoc.into(), from, (to, port), streams);
            }
            AppOperation::Send { assoc, message } => self.send_message(app, assoc.into(), message),
            AppOperation::Shutdown { conn } if self.is_association(app, conn.into()) => {
                self.shutdown_association(app, conn.into());
            }
            AppOperation::Shutdown { conn } => self.shut_down_stream(app, conn.into()),
            AppOperation::Abort { conn } if self.is_association(app, conn.into()) => {
                self.abort_association(app, conn.into());
            }
            AppOperation::Abort { conn } => self.abort_stream(app, conn.into()),
            AppOperation::Frame { port, payload } => self.send_frame(app, port, &payload),
            // A lab has no radio links, so this command is stale.
            AppOperation::Link { .. } => self.counters.stale_operation += 1,
            // A lab protects no packets. A study that protects them is rejected earlier.
            AppOperation::Protection(_) | AppOperation::Protect(_) => self.counters.stale_operation += 1,
            // The kernel forwards by itself: a study with forwarding roles is rejected earlier.
            AppOperation::Forward(_) | AppOperation::Session { .. } => self.counters.stale_operation += 1,
            AppOperation::Owner { token, local, remote } => {
                let owner = self.connection_owner(app, local, remote);
                self.deliver_to_app(app, AppDelivery::Owner { token, app: owner });
            }
            AppOperation::Timer(at) => self.set_timer(app, at),
            AppOperation::Report(report) => self.observer.handle_report(self.now, app, report),
        }
    }

    fn set_timer(&mut self, app: u32, at: Option<Instant>) {
        let slot = &mut self.apps[app as usize];
        if slot.deadline == at {
            return;
        }
        if let Some(before) = std::mem::replace(&mut slot.deadline, at) {
            self.due.remove(&(before, LabHostTimer::App(app)));
        }
        if let Some(at) = at {
            self.due.insert((at, LabHostTimer::App(app)));
        }
    }
}
