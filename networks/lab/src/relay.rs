//! The thread that stands in the middle of all links: it takes what hosts send from the kernel's ring, asks [`LinkTable`] what
//! becomes of it, and sends it on when it arrives.
//!
//! The kernel stamps a frame when it leaves its host, so a packet's time begins there, however late the relay wakes up. It
//! sleeps by the kernel's high-resolution timers until shortly before the next arrival, as shortly as the timers have shown
//! to be late, and watches the clock from there.
//!
//! A relay that was held up finds frames in the ring that left their hosts long ago. It sends nothing on whose time is later
//! than that of the frames it has taken, so that packets arrive in the order of their times, however late it is.

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

/// Frames that the ring holds until the relay takes them.
const SLOTS: usize = 4096;

/// Frames that are taken before what has arrived is looked for.
const AT_ONCE: usize = 64;

/// A turn before the hosts' threads, and behind those of the system (sched(7)).
const PRIORITY: i32 = 10;

/// How long before an arrival the relay wakes up: as late as timers were, within these.
const WAKE_BEFORE: [Duration; 2] = [Duration::from_micros(5), Duration::from_micros(200)];

/// The relay watches the clock for at most one part in so many of its time, and what of that it can have saved up: the
/// roles of a lab need the processor, too.
const WATCHING: u64 = 4;
const SAVED: Duration = Duration::from_millis(2);

/// How often the kernel is asked how many frames found no room.
const COUNTING: Duration = Duration::from_millis(50);

/// A stamp that is older than this is not of the clock that we know: somebody set the wall clock.
const OLDEST_STAMP: Duration = Duration::from_secs(1);

/// Nanoseconds: what is later is counted as this late.
pub(crate) const LATEST: u64 = 60_000_000_000;

/// How much later than they were to packets went on: seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct DelayStats {
    /// How many packets.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half were not later than this.
    pub median: f64,
    /// Nine tenths.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The last of all.
    pub max: f64,
}

/// Of nanoseconds.
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

/// What the relay did, for a run's record: where anything but `frames`, `delays` and `ignored` is not zero, the network was
/// not quite the one that was asked for.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct RelayReport {
    /// Whether it had its turn before all others (`SCHED_FIFO`).
    pub real_time: bool,
    /// Frames that hosts sent.
    pub frames: u64,
    /// What the relay itself added to the links' delays.
    pub delays: DelayStats,
    /// Frames that were no IP packets for one receiver, such as neighbour discovery: nobody got them.
    pub ignored: u64,
    /// Frames that were lost because the relay came too late to take them.
    pub overflowed: u64,
    /// Frames that the kernel did not take back, as when an interface is switched off.
    pub refused: u64,
    /// Frames that were longer than the link's MTU.
    pub truncated: u64,
    /// Frames whose checksum was left to hardware.
    pub unsummed: u64,
    /// Frames that were under way at the end.
    pub under_way: u64,
    /// Time for which it watched the clock, of the processor time that follows: seconds.
    pub watched: f64,
    /// Processor time of the relay's thread, in which the kernel receives what is sent on: seconds.
    pub processor: f64,
}

/// What the relay's thread and its owner share.
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
    /// Whoever held it only counted: there is nothing that could be half done.
    fn lock_state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A relay that runs.
#[derive(Debug)]
pub(crate) struct RelayHandle {
    shared: Arc<SharedRelay>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RelayHandle {
    /// Begins to relay in a namespace whose interfaces are those that `links` knows; frames are of at most `longest` octets.
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
            watch: SpinBudget::new(clock.now()),
        };
        let thread = std::thread::Builder::new()
            .name("lab-relay".to_owned())
            .spawn(move || relaying.run())
            .with_context(|| "start the relay's thread".to_owned())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What the links did so far.
    pub(crate) fn stats(&self) -> Vec<[usher_sim::LinkStats; 2]> {
        self.shared.lock_state().links.stats()
    }

    /// What the relay did so far.
    pub(crate) fn report(&self) -> RelayReport {
        self.shared.lock_state().current_report()
    }

    /// Ends it; what was under way is lost.
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

/// What is left of a relay: what the links did, what it did itself, where captures went.
pub(crate) type StoppedRelay = (Vec<[usher_sim::LinkStats; 2]>, RelayReport, Option<Box<dyn PacketTap>>);

impl Drop for RelayHandle {
    fn drop(&mut self) {
        // Its owner ends without having asked; there is nobody to tell.
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

/// The thread's own.
struct RelayThread {
    shared: Arc<SharedRelay>,
    ring: PacketRing,
    sender: FrameSender,
    clock: SystemClock,
    margin: Duration,
    watch: SpinBudget,
}

/// How long the clock may still be watched.
#[derive(Debug)]
struct SpinBudget {
    /// Nanoseconds; below zero what was watched beyond that, which is to be earned first.
    left: i64,
    /// Until when what was earned is in it.
    earned_until: Instant,
    /// All that was watched.
    spent: Duration,
}

impl SpinBudget {
    const fn new(now: Instant) -> Self {
        Self { left: SAVED.as_nanos() as i64, earned_until: now, spent: Duration::ZERO }
    }
    /// Whether it may be watched now; time that has passed earns some.
    fn may_spin(&mut self, now: Instant) -> bool {
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
        // Without the right to either it is a little less precise, and its report says so.
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
            self.wait_next(next)?;
        }
        shared.lock_state().report.overflowed += self.ring.take_overflow_count()?;
        Ok(())
    }

    /// Offers what hosts sent to their links, up to [`AT_ONCE`] frames; until when all that they sent has been offered.
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
        // The ring may hold more than was taken.
        if taken < AT_ONCE { before } else { before.min(last) }
    }

    /// Sends on what has arrived until then, up to [`AT_ONCE`] packets.
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

    /// Waits for a frame, for the end, or for the time of the next arrival.
    fn wait_next(&mut self, next: Option<Instant>) -> io::Result<()> {
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
                    match self.watch.may_spin(now) {
                        true if left <= self.margin => {
                            std::hint::spin_loop();
                            watching = Some(now);
                            continue;
                        }
                        true => Some((now, left - self.margin)),
                        // Its share of the processor is used up: it sleeps to the end.
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
                        self.adjust_margin(self.clock.now().duration_since(asked + span));
                    }
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A timer was this late: wake up as much earlier, and forget it slowly.
    fn adjust_margin(&mut self, by: Duration) {
        let slowly = self.margin - Duration::from_nanos(self.margin.as_nanos() / 64);
        self.margin = by.max(slowly).max(WAKE_BEFORE[0]).min(WAKE_BEFORE[1]);
    }
}

/// What our clock shows, and by how many nanoseconds the wall clock is ahead of it.
fn read_clocks(clock: &SystemClock) -> (Instant, i128) {
    const CLOSE: Duration = Duration::from_micros(2);
    let mut best = (Duration::MAX, Instant::ZERO, 0);
    // A thread that loses its turn between the two reads would take that time for a difference of the clocks.
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

/// When a frame left its host, by our clock.
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
        let mut watch = SpinBudget::new(at(0));
        let (mut now, mut watched, end) = (0, 0, 1_000_000);
        // Whoever would always like to.
        while now < end {
            if watch.may_spin(at(now)) {
                watch.spend(Duration::from_micros(10));
                watched += 10;
            }
            now += 10;
        }
        assert!((250_000..=252_100).contains(&watched), "{watched} of {end}");
        assert_eq!(watch.spent, Duration::from_micros(watched));
        // A pause earns no more than what may be saved.
        assert!(watch.may_spin(at(60 * end)));
        assert_eq!(watch.left, SAVED.as_nanos() as i64);
    }
}
