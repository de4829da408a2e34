//! The relay thread in the middle of all links. It takes frames of hosts from the kernel's ring, passes them through
//! [`LinkTable`], and sends them on at their arrival time.
//!
//! The kernel stamps a frame when it leaves its host, so a packet's time is exact even if the relay wakes up late.
//! The relay sleeps by high-resolution timers until shortly before the next arrival, with a margin for their
//! lateness. Then it watches the clock.
//!
//! After a stall, the ring has frames that left their hosts earlier. The relay sends no packet that is due after the
//! frames it has taken. So packets arrive in order, however late it is.

use crate::error::{ErrorContext, LabError};
use crate::link::{ArrivedPacket, LinkTable, on_link};
use crate::namespace::NetworkNamespace;
use crate::sys::{self, FrameSender, PacketRing};
use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use usher_core::{Duration, Instant};
use usher_live::SystemClock;
use usher_sim::PacketTap;

/// The frames that the ring holds until the relay takes them.
const SLOTS: usize = 4096;

/// The frames taken before arrivals are sent.
const AT_ONCE: usize = 64;

/// Priority over the hosts' threads, and below those of the system (sched(7)).
const PRIORITY: i32 = 10;

/// The range of the wake-up margin before an arrival, which follows the lateness of timers.
const WAKE_BEFORE: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(200)];

/// The relay watches the clock for at most 1/4 of its time, with a bounded credit. The roles of a lab need the
/// processor too.
const WATCHING: u64 = 4;
const SAVED: Duration = Duration::from_millis(2);

/// The interval at which the kernel's count of dropped frames is read.
const COUNTING: Duration = Duration::from_millis(50);

/// An older stamp is of another clock: the wall clock was set.
const OLDEST_STAMP: Duration = Duration::from_secs(1);

/// Nanoseconds: greater delays count as this one.
pub(crate) const LATEST: u64 = 60_000_000_000;

/// The delay of packets beyond their arrival time, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct DelayStats {
    /// The number of packets.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The maximum.
    pub max: f64,
}

/// Converts a histogram of nanoseconds.
pub(crate) fn delay_stats(of: &Histogram<u64>) -> DelayStats {
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let at = |share| seconds(of.value_at_quantile(share));
    DelayStats {
        count: of.len(),
        mean: of.mean() / 1e9,
        median: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: seconds(of.max()),
    }
}

/// The relay's report for a run's record. If any field except `frames`, `delays`, `ignored` and the times is not
/// zero, the network deviated from the requested one.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct RelayReport {
    /// True if it had real-time priority (`SCHED_FIFO`).
    pub real_time: bool,
    /// Frames that hosts sent.
    pub frames: u64,
    /// The delay that the relay added to the links' delays.
    pub delays: DelayStats,
    /// Frames without an IP packet for one receiver, such as neighbor discovery. They were dropped.
    pub ignored: u64,
    /// Frames lost because the relay was too late to take them.
    pub overflowed: u64,
    /// Frames that the kernel rejected, such as after an interface was switched off.
    pub refused: u64,
    /// Frames longer than the link's MTU.
    pub truncated: u64,
    /// Frames whose checksum was left to hardware.
    pub unsummed: u64,
    /// Frames in flight at the end.
    pub under_way: u64,
    /// The time of watching the clock, included in `processor`: seconds.
    pub watched: f64,
    /// The processor time of the relay's thread, which includes the kernel's reception of forwarded packets: seconds.
    pub processor: f64,
}

/// The state shared by the relay's thread and its owner.
#[derive(Debug)]
struct RelayState {
    links: LinkTable,
    tap: Option<Box<dyn PacketTap>>,
    report: RelayReport,
    /// Nanoseconds.
    delays: Histogram<u64>,
}

#[derive(Debug)]
struct SharedRelay {
    state: Mutex<RelayState>,
    is_stopped: AtomicBool,
    wake: OwnedFd,
}

impl SharedRelay {
    /// A panicking holder only counted: the state is consistent.
    fn lock_state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running relay.
#[derive(Debug)]
pub(crate) struct RelayHandle {
    shared: Arc<SharedRelay>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RelayHandle {
    /// Starts the relay in a namespace with the interfaces of `links`. Frames have at most `longest` octets.
    pub(crate) fn start(
        namespace: &NetworkNamespace,
        links: LinkTable,
        longest: usize,
        clock: SystemClock,
        tap: Option<Box<dyn PacketTap>>,
    ) -> Result<Self, LabError> {
        let delays = Histogram::new_with_bounds(1, LATEST, 3).map_err(io::Error::other);
        let delays = delays.with_context(|| "count delays".to_owned())?;
        let report = RelayReport::default();
        let shared = Arc::new(SharedRelay {
            state: Mutex::new(RelayState { links, tap, report, delays }),
            is_stopped: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .with_context(|| "make the relay's event".to_owned())?,
        });
        let opened =
            namespace.run_inside(|| Ok((PacketRing::open(longest, SLOTS)?, FrameSender::open()?)))?;
        let (ring, sender): (PacketRing, FrameSender) =
            opened.map_err(|e: io::Error| e).with_context(|| "open the relay's packet sockets".to_owned())?;
        let relaying = RelayThread {
            shared: shared.clone(),
            ring,
            sender,
            clock,
            margin: WAKE_BEFORE[0],
            watch: BusyWaitBudget::new(clock.now()),
        };
        let thread = std::thread::Builder::new()
            .name("lab-relay".to_owned())
            .spawn(move || relaying.run())
            .with_context(|| "start the relay's thread".to_owned())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the statistics of the links so far.
    pub(crate) fn stats(&self) -> Vec<[usher_sim::LinkStats; 2]> {
        self.shared.lock_state().links.stats()
    }

    /// Returns the report so far.
    pub(crate) fn report(&self) -> RelayReport {
        self.shared.lock_state().current_report()
    }

    /// Stops the relay. Packets in flight are lost.
    pub(crate) fn stop(mut self) -> Result<StoppedRelay, LabError> {
        self.join_thread()?;
        let mut state = self.shared.lock_state();
        Ok((state.links.stats(), state.current_report(), state.tap.take()))
    }

    fn join_thread(&mut self) -> Result<(), LabError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.shared.is_stopped.store(true, Ordering::Release);
        rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes())
            .with_context(|| "end the relay".to_owned())?;
        thread.join().map_err(|_| LabError::Ended("relay"))?.with_context(|| "relay".to_owned())
    }
}

/// The outcome of a stopped relay: the links' statistics, the report and the tap.
pub(crate) type StoppedRelay = (Vec<[usher_sim::LinkStats; 2]>, RelayReport, Option<Box<dyn PacketTap>>);

impl Drop for RelayHandle {
    fn drop(&mut self) {
        // The result is ignored: the owner drops the relay without asking for its outcome.
        let _ = self.join_thread();
    }
}

impl RelayState {
    fn current_report(&self) -> RelayReport {
        let mut report = self.report;
        report.ignored = self.links.ignored;
        report.under_way = self.links.in_flight_count() as u64;
        report.delays = delay_stats(&self.delays);
        report
    }
}

/// The state of the thread.
struct RelayThread {
    shared: Arc<SharedRelay>,
    ring: PacketRing,
    sender: FrameSender,
    clock: SystemClock,
    margin: Duration,
    watch: BusyWaitBudget,
}

/// The budget for watching the clock.
#[derive(Debug)]
struct BusyWaitBudget {
    /// Nanoseconds. A negative value must be earned back first.
    left: i64,
    /// The time up to which credit was earned.
    earned_until: Instant,
    /// The total time of watching.
    spent: Duration,
}

impl BusyWaitBudget {
    const fn new(now: Instant) -> Self {
        Self { left: SAVED.as_nanos() as i64, earned_until: now, spent: Duration::ZERO }
    }
    /// Earns credit for the passed time. True if the clock may be watched now.
    fn earn_clock_watching_credit(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.earned_until).as_nanos() / WATCHING;
        self.left = self.left.saturating_add_unsigned(earned).min(SAVED.as_nanos() as i64);
        self.earned_until = now;
        self.left > 0
    }
    fn spend(&mut self, time: Duration) {
        self.spent += time;
        self.left = self.left.saturating_sub_unsigned(time.as_nanos());
    }
}

impl RelayThread {
    fn run(mut self) -> io::Result<()> {
        // Without the rights for real-time priority the relay is slightly less precise, and its report says so.
        let real_time = sys::real_time(PRIORITY).is_ok();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let shared = self.shared.clone();
        shared.lock_state().report.real_time = real_time;
        let mut sent = Vec::with_capacity(AT_ONCE);
        let mut counted = self.clock.now();
        while !shared.is_stopped.load(Ordering::Acquire) {
            let mut state = shared.lock_state();
            let now = self.clock.now();
            if now.duration_since(counted) >= COUNTING {
                counted = now;
                state.report.overflowed += self.ring.take_overflow_count()?;
            }
            let complete = self.take_frames(&mut state);
            self.pass_on(&mut state, complete, &mut sent);
            let next = state.links.next_arrival();
            state.report.watched = self.watch.spent.as_secs_f64();
            state.report.processor = usher_live::thread_cpu_time().as_secs_f64();
            drop(state);
            self.wait_for_frame_or_timer(next)?;
        }
        shared.lock_state().report.overflowed += self.ring.take_overflow_count()?;
        Ok(())
    }

    /// Offers up to [`AT_ONCE`] frames of hosts to their links. Returns the time up to which all frames have been
    /// offered.
    fn take_frames(&mut self, state: &mut RelayState) -> Instant {
        let before = self.clock.now();
        if !self.ring.has_frame() {
            return before;
        }
        let (now, ahead) = read_clocks(&self.clock);
        let RelayState { links, tap, report, .. } = state;
        let mut last = before;
        let taken = self.ring.take_frames(AT_ONCE, |frame| {
            report.frames += 1;
            if frame.truncated {
                report.truncated += 1;
                return;
            }
            report.unsummed += u64::from(frame.unsummed);
            let at = stamp_to_instant(frame.stamp, now, ahead);
            last = at;
            links.offer_frame(frame.interface, at, frame.octets, |point, at, octets| {
                if let Some(tap) = tap {
                    tap.capture_packet(at, point, true, octets);
                }
            });
        });
        // A full batch may have left frames in the ring, so only an incomplete batch proves that the ring was empty.
        if taken < AT_ONCE { before } else { before.min(last) }
    }

    /// Sends the packets that have arrived by then, at most [`AT_ONCE`].
    fn pass_on(&self, state: &mut RelayState, until: Instant, arrived: &mut Vec<ArrivedPacket>) {
        while arrived.len() < AT_ONCE
            && let Some(arrival) = state.links.pop_arrival(until)
        {
            arrived.push(arrival);
        }
        if arrived.is_empty() {
            return;
        }
        let frames = arrived.iter().filter(|a| !a.withheld).map(|a| (a.interface, &a.frame[..]));
        state.report.refused += self.sender.send_frames(frames);
        let done = self.clock.now();
        for arrival in arrived.drain(..) {
            state.delays.saturating_record(done.duration_since(arrival.due).as_nanos());
            if let (Some((point, framing)), Some(tap)) = (arrival.capture, &mut state.tap) {
                tap.capture_packet(done, point, false, on_link(&arrival.frame, framing));
            }
            state.links.recycle_frame(arrival.frame);
        }
    }

    /// Waits for a frame, the end, or the time of the next arrival.
    fn wait_for_frame_or_timer(&mut self, next: Option<Instant>) -> io::Result<()> {
        let mut watching: Option<Instant> = None;
        loop {
            let now = self.clock.now();
            if let Some(since) = watching.take() {
                self.watch.spend(now.duration_since(since));
            }
            if self.ring.has_frame() || self.shared.is_stopped.load(Ordering::Acquire) {
                return Ok(());
            }
            let timeout = match next {
                None => None,
                Some(due) => {
                    if due <= now {
                        return Ok(());
                    }
                    let left = due.duration_since(now);
                    match self.watch.earn_clock_watching_credit(now) {
                        true if left <= self.margin => {
                            std::hint::spin_loop();
                            watching = Some(now);
                            continue;
                        }
                        true => Some((now, left - self.margin)),
                        // The budget for busy waiting is used up, so sleep until the deadline instead of spinning
                        // before it.
                        false => Some((now, left)),
                    }
                }
            };
            let mut of = [
                PollFd::from_borrowed_fd(self.ring.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
            ];
            let span = timeout.map(|(_, span)| Timespec {
                tv_sec: i64::try_from(span.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
            });
            match poll(&mut of, span.as_ref()) {
                Ok(0) => {
                    if let Some((asked, span)) = timeout {
                        self.adjust_wake_margin(self.clock.now().duration_since(asked + span));
                    }
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets the margin after a late timer. It shrinks slowly.
    fn adjust_wake_margin(&mut self, by: Duration) {
        let slowly = self.margin - Duration::from_nanos(self.margin.as_nanos() / 64);
        self.margin = by.max(slowly).max(WAKE_BEFORE[0]).min(WAKE_BEFORE[1]);
    }
}

/// Returns our clock's time, and the wall clock's lead in nanoseconds.
fn read_clocks(clock: &SystemClock) -> (Instant, i128) {
    const CLOSE: Duration = Duration::from_micros(2);
    let mut best = (Duration::MAX, Instant::ZERO, 0);
    // Read several times: a preemption between the reads of two clocks would look like a difference between them.
    for _ in 0..4 {
        let before = clock.now();
        let wall = clock_gettime(ClockId::Realtime);
        let after = clock.now();
        let wall = i128::from(wall.tv_sec) * 1_000_000_000 + i128::from(wall.tv_nsec);
        let took = after.duration_since(before);
        if took < best.0 {
            let middle = before.as_nanos() + took.as_nanos() / 2;
            best = (took, after, wall - i128::from(middle));
        }
        if took <= CLOSE {
            break;
        }
    }
    (best.1, best.2)
}

/// Converts a frame's stamp to our clock.
fn stamp_to_instant(stamp: u64, now: Instant, ahead: i128) -> Instant {
    let at = i128::from(stamp) - ahead;
    let at = Instant::from_nanos(u64::try_from(at.max(0)).unwrap_or(u64::MAX));
    if at <= now && now.duration_since(at) <= OLDEST_STAMP { at } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_watched_for_a_quarter_of_the_time_at_most() {
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        let mut watch = BusyWaitBudget::new(at(0));
        let (mut now, mut watched, end) = (0, 0, 1_000_000);
        // A caller that always wants to watch.
        while now < end {
            if watch.earn_clock_watching_credit(at(now)) {
                watch.spend(Duration::from_micros(10));
                watched += 10;
            }
            now += 10;
        }
        assert!((250_000..=252_100).contains(&watched), "{watched} of {end}");
        assert_eq!(watch.spent, Duration::from_micros(watched));
        // A pause earns no more than the credit limit.
        assert!(watch.earn_clock_watching_credit(at(60 * end)));
        assert_eq!(watch.left, SAVED.as_nanos() as i64);
    }
}
