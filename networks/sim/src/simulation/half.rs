//! One network in two halves, each of which is run by a thread of its own.
//!
//! Both threads build the whole network from the same description, and each runs the hosts of its half. Packets on links
//! between the halves are handed over by value. Those links have a delay: what one half does is not felt by the other
//! before the least of them, the lookahead, has passed. So both run that long by themselves, meet, hand over what has
//! crossed, and go on (a conservative parallel simulation, whose windows begin at the earliest event of both).
//!
//! What happens is what happens in one thread, in the same order. In one thread events of the same time happen in the order
//! in which they were put in the queue, so that each event here says when that was, and those that come from the other half
//! when it would have been: as the packet was sent, or, where another is before it on its link, as that arrives. Events of
//! the same time that were put in the queue at the same time are in order if they are of one half, or of one link. If not their
//! order is not known, and the run ends with [`HalfError::Undecided`] rather than by a guess.

use super::{SimEvent, Simulation, SimulationBuilder};
use crate::addr::HostId;
use crate::app::{Application, ReportObserver};
use crate::link::PacketArrival;
use crate::packet::Packet;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use usher_core::{Duration, Instant};

/// How much of a network a simulation runs: a [`WholeNetwork`] or a [`HalfNetwork`].
pub trait NetworkExtent: Debug {
    /// What the event queue notes of an event beside its time.
    type Mark: Copy + PartialOrd + Debug;
    /// Of an event that is put in the queue now.
    fn mark_at(now: Instant) -> Self::Mark;
    /// Whether a host is run by another simulation.
    fn is_elsewhere(&self, host: HostId) -> bool;
    /// Hands a packet over to the simulation that runs its receiver.
    fn hand_over(&mut self, crossing: CrossingPacket);
}

/// All of a network.
#[derive(Clone, Copy, Debug)]
pub struct WholeNetwork;

impl NetworkExtent for WholeNetwork {
    type Mark = ();
    #[inline(always)]
    fn mark_at(_: Instant) {}
    #[inline(always)]
    fn is_elsewhere(&self, _: HostId) -> bool {
        false
    }
    #[inline(always)]
    fn hand_over(&mut self, _: CrossingPacket) {}
}

/// When an event was put in the queue, by which events of the same time are in order, and by what.
#[derive(Clone, Copy, Debug)]
pub struct EventMark(u64);

impl EventMark {
    /// By this half.
    const OWN: u64 = 0;
    /// By the sending of a packet in the other half; such are in the order of their sending.
    const SENT: u64 = 1;
    /// By the arrival of a packet that was sent in the other half, on the link that the next one is on.
    const FOLLOWS: u64 = 2;

    /// Nanoseconds of more than a century leave two bits free.
    fn new(queued: Instant, by: u64) -> Self {
        Self(queued.as_nanos() << 2 | by)
    }
    fn queued_at(self) -> u64 {
        self.0 >> 2
    }
    fn origin(self) -> u64 {
        self.0 & 3
    }
    /// Whether events of the same time and marks that are equal are in order. Those that follow others on their links are if the
    /// link is the same, whose packets arrive in the order of their sending.
    fn is_decided(self, event: SimEvent, other: (Self, SimEvent)) -> bool {
        self.origin() == other.0.origin() && (self.origin() != Self::FOLLOWS || event == other.1)
    }
}

impl PartialEq for EventMark {
    fn eq(&self, other: &Self) -> bool {
        self.queued_at() == other.queued_at()
    }
}

impl PartialOrd for EventMark {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.queued_at().partial_cmp(&other.queued_at())
    }
}

/// A packet on its way from one half to the other.
#[derive(Debug)]
pub struct CrossingPacket {
    direction: u32,
    arrives: Instant,
    mark: EventMark,
    damaged: bool,
    packet: Packet,
}

impl CrossingPacket {
    #[inline]
    pub(super) fn new(direction: u32, now: Instant, carried: PacketArrival, packet: Packet) -> Self {
        let PacketArrival { arrives, damaged, .. } = carried;
        Self { direction, arrives, mark: EventMark::new(now, EventMark::SENT), damaged, packet }
    }
}

/// What the halves tell each other.
#[derive(Debug)]
enum HalfMessage {
    /// What crosses, in the order of sending, and when the earliest event is that the sender knows of.
    Meeting(Vec<CrossingPacket>, Instant),
    /// The first half has run the present window; with the time and mark of the event at which its observer was done, if it
    /// was.
    Ran(Option<(Instant, EventMark)>),
    /// The run has ended for this reason.
    Ended(HalfError),
}

/// One of two ends by which the halves speak.
#[derive(Debug)]
pub struct HalfChannel {
    to: Sender<HalfMessage>,
    from: Receiver<HalfMessage>,
}

impl HalfChannel {
    /// One for each half.
    pub fn channel_pair() -> [Self; 2] {
        let ((to_second, of_first), (to_first, of_second)) = (channel(), channel());
        [Self { to: to_second, from: of_second }, Self { to: to_first, from: of_first }]
    }
}

/// Why a half did not come to its time. The run has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HalfError {
    /// Which of two events of this time is first is not known.
    #[error("at {}: which of two events of two halves happens first is not known", .0.duration_since(Instant::ZERO))]
    Undecided(Instant),
    /// The other half has ended.
    #[error("the other half of the network has ended early")]
    OtherHalfEnded,
    /// It was [given up](Simulation::end_when).
    #[error("it was given up")]
    Stopped,
}

/// Which half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfSide {
    /// The first, whose observer says when the run is done.
    First,
    /// The second.
    Second,
}

/// How a network is divided.
#[derive(Clone, Debug)]
pub struct NetworkHalves {
    /// Whether each host is of the first half.
    first: Arc<[bool]>,
    lookahead: Duration,
}

impl NetworkHalves {
    /// The half of a host.
    pub fn side_of(&self, host: HostId) -> HalfSide {
        if self.first[host.0 as usize] { HalfSide::First } else { HalfSide::Second }
    }
    /// What one half does is not felt by the other any sooner.
    pub const fn lookahead(&self) -> Duration {
        self.lookahead
    }
}

/// Half of a network, the other half of which another thread runs.
#[derive(Debug)]
pub struct HalfNetwork {
    halves: NetworkHalves,
    side: HalfSide,
    end: HalfChannel,
    /// What crosses at the next meeting, and when the first of it arrives.
    out: Vec<CrossingPacket>,
    earliest: Instant,
    /// When the last packet handed over arrives, by direction; zero for none: nothing arrives then, since links between halves
    /// have a delay.
    last: Vec<Instant>,
    /// The last event that happened.
    before: (Instant, EventMark, SimEvent),
}

impl NetworkExtent for HalfNetwork {
    type Mark = EventMark;
    #[inline(always)]
    fn mark_at(now: Instant) -> EventMark {
        EventMark::new(now, EventMark::OWN)
    }
    #[inline]
    fn is_elsewhere(&self, host: HostId) -> bool {
        self.halves.side_of(host) != self.side
    }
    fn hand_over(&mut self, mut crossing: CrossingPacket) {
        let last = std::mem::replace(&mut self.last[crossing.direction as usize], crossing.arrives);
        if last != Instant::ZERO && last.as_nanos() >= crossing.mark.queued_at() {
            crossing.mark = EventMark::new(last, EventMark::FOLLOWS);
        }
        self.earliest = self.earliest.min(crossing.arrives);
        self.out.push(crossing);
    }
}

impl HalfNetwork {
    /// If the other has ended, [`Self::receive_message`] says why.
    fn send_message(&self, word: HalfMessage) {
        let _ = self.end.to.send(word);
    }
    fn receive_message(&self) -> Result<HalfMessage, HalfError> {
        match self.end.from.recv() {
            Ok(HalfMessage::Ended(why)) => Err(why),
            Ok(word) => Ok(word),
            Err(_) => Err(HalfError::OtherHalfEnded),
        }
    }
    /// Notes what happens next; fails if it is not known that it does after what happened last.
    fn check_event_order(&mut self, at: Instant, mark: EventMark, event: SimEvent) -> Result<(), HalfError> {
        let (before, last, what) = std::mem::replace(&mut self.before, (at, mark, event));
        if at == before && mark == last && !mark.is_decided(event, (last, what)) {
            return Err(HalfError::Undecided(at));
        }
        Ok(())
    }
}

impl<A: Application> SimulationBuilder<A> {
    /// The network in two halves: the first has these hosts, and those that links without a delay join to them. `None` if that
    /// is all of them, or if the network has what cannot be divided: radio, interfaces, outages, multihomed hosts, memory that is
    /// followed, TCP whose behaviour has to do with its initial sequence numbers, which all hosts draw from one stream. Links on which
    /// packets pass others or arrive twice stay within a half.
    pub fn split_in_halves(&self, hosts: impl IntoIterator<Item = HostId>) -> Option<NetworkHalves> {
        let whole = !self.cells.is_empty()
            || !self.interfaces.is_empty()
            || !self.outages.is_empty()
            || !self.multihomed.is_empty()
            || self.follow_memory
            || self.apps.iter().any(|app| app.transports.tcp.depends_on_iss());
        if whole {
            return None;
        }
        let divides = |direction: u32| {
            let config = self.directions[direction as usize].channel.config();
            !config.delay.is_zero() && config.reorder == 0.0 && config.duplicate == 0.0
        };
        let mut first = vec![false; self.hosts.len()];
        let mut reached: Vec<HostId> = hosts.into_iter().collect();
        while let Some(host) = reached.pop() {
            if std::mem::replace(&mut first[host.0 as usize], true) {
                continue;
            }
            let ports = self.hosts[host.0 as usize].ports.as_slice();
            let joined = ports.iter().filter(|d| !divides(**d) || !divides(**d ^ 1));
            reached.extend(joined.map(|d| self.directions[*d as usize].to));
        }
        let crossing = self.directions.iter().filter(|d| first[d.from.0 as usize] != first[d.to.0 as usize]);
        let lookahead = crossing.map(|d| d.channel.config().delay).min()?;
        Some(NetworkHalves { first: first.into(), lookahead })
    }

    /// One of two halves of the finished simulation, at time zero. The other is to be built of the same description.
    pub fn build_half<O>(
        self,
        observer: O,
        halves: NetworkHalves,
        side: HalfSide,
        end: HalfChannel,
    ) -> Simulation<A, O, HalfNetwork> {
        let half = HalfNetwork {
            halves,
            side,
            end,
            out: Vec::new(),
            earliest: Instant::FAR_FUTURE,
            last: vec![Instant::ZERO; self.directions.len()],
            before: (Instant::FAR_FUTURE, HalfNetwork::mark_at(Instant::ZERO), SimEvent::Loopback),
        };
        self.build_of(observer, None, half)
    }
}

impl<A: Application, O: ReportObserver<A::Report>> Simulation<A, O, HalfNetwork> {
    /// Runs until `until`, in step with the other half, of which the same is asked at the same time. With `to_its_end` the run
    /// ends before that at the event at which the observer of the first half is done, and the halves take turns: the second
    /// does nothing that comes after that event.
    ///
    /// # Errors
    /// Both halves end, and what they have counted means nothing.
    pub fn run_until(&mut self, until: Instant, to_its_end: bool) -> Result<(), HalfError> {
        self.start();
        let ran = self.run_windows(until, to_its_end);
        if let Err(why) = ran
            && why != HalfError::OtherHalfEnded
        {
            self.extent.send_message(HalfMessage::Ended(why));
        }
        ran
    }

    fn run_windows(&mut self, until: Instant, to_its_end: bool) -> Result<(), HalfError> {
        loop {
            let from = self.exchange_crossings()?;
            if from > until {
                self.now = self.now.max(until);
                return Ok(());
            }
            let end = from + self.extent.halves.lookahead;
            let last = Instant::from_nanos(end.as_nanos() - 1).min(until);
            match (to_its_end, self.extent.side) {
                (true, HalfSide::Second) => {
                    if let HalfMessage::Ran(Some((at, mark))) = self.extent.receive_message()? {
                        return self.run_before(at, mark);
                    }
                    self.run_window(last)?;
                }
                (false, _) => self.run_window(last)?,
                (true, HalfSide::First) => {
                    self.run_window(last)?;
                    let (at, mark, _) = self.extent.before;
                    let done = self.observer.is_done().then_some((at, mark));
                    self.extent.send_message(HalfMessage::Ran(done));
                    if done.is_some() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Exchanges what crosses; answers when the earliest event of both halves is.
    fn exchange_crossings(&mut self) -> Result<Instant, HalfError> {
        let own = self.queue.next_time().unwrap_or(Instant::FAR_FUTURE);
        let earliest = std::mem::replace(&mut self.extent.earliest, Instant::FAR_FUTURE).min(own);
        let out = std::mem::take(&mut self.extent.out);
        self.extent.send_message(HalfMessage::Meeting(out, earliest));
        let HalfMessage::Meeting(mut packets, others) = self.extent.receive_message()? else {
            return Err(HalfError::OtherHalfEnded);
        };
        for CrossingPacket { direction, arrives, mark, damaged, packet } in packets.drain(..) {
            let packet = self.pool.insert(packet);
            self.directions[direction as usize].insert(arrives, damaged, packet, &mut self.pool);
            self.queue.push_ranked(arrives, SimEvent::Arrive(direction), mark);
        }
        // Its memory is used again.
        self.extent.out = packets;
        Ok(earliest.min(others))
    }

    /// Lets all happen that happens until `last`, or until the observer is done.
    fn run_window(&mut self, last: Instant) -> Result<(), HalfError> {
        while let Some((at, event, mark)) = self.queue.pop_ranked_until(last) {
            self.extent.check_event_order(at, mark, event)?;
            self.handle_event(at, event);
            if self.observer.is_done() {
                // What is to come at this time may have come before.
                let is_undecided =
                    |(other, of): (SimEvent, EventMark)| mark == of && !mark.is_decided(event, (of, other));
                if self.queue.pending_now().any(is_undecided) {
                    return Err(HalfError::Undecided(at));
                }
                break;
            }
            if self.is_given_up() {
                return Err(HalfError::Stopped);
            }
        }
        Ok(())
    }

    /// Lets all happen that happens before an event of the other half.
    fn run_before(&mut self, end: Instant, last: EventMark) -> Result<(), HalfError> {
        if let Some(before) = end.as_nanos().checked_sub(1) {
            self.run_window(Instant::from_nanos(before))?;
        }
        while let Some((at, event, mark)) = self.queue.pop_ranked_until(end) {
            if mark == last {
                return Err(HalfError::Undecided(at));
            }
            if mark > last {
                break;
            }
            self.extent.check_event_order(at, mark, event)?;
            self.handle_event(at, event);
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// How the network is divided.
    pub const fn halves(&self) -> &NetworkHalves {
        &self.extent.halves
    }

    /// What each link direction did whose packets leave hosts of this half, of those that did something: twice the number of the
    /// link, and one more for the direction from its second host to the first.
    pub fn direction_stats(&self) -> impl Iterator<Item = (u32, crate::link::LinkStats)> {
        let own = self.directions.iter().zip(0..).filter(|(d, _)| !self.extent.is_elsewhere(d.from));
        own.map(|(d, number)| (number, d.stats())).filter(|(_, stats)| stats.offered > 0)
    }
}
