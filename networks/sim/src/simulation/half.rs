//! A network in two halves, each run by a thread of its own: a conservative parallel simulation.
//!
//! Both threads build the whole network from the same description, and each runs the hosts of its half. Packets
//! on links between the halves are passed by value. These links have a delay; the smallest of them is the
//! lookahead. One half cannot affect the other sooner. So both run a window of that length, exchange the packets
//! that crossed, and continue. A window begins at the earliest event of both halves.
//!
//! The result is that of a single thread, in the same order. A single thread handles events of the same time in
//! the order of their insertion. So each event here carries its insertion time. A packet of the other half
//! carries the insertion time that it would have had: when it was sent or, behind another packet on its link,
//! when that one arrived. Events with equal times and insertion times are in order if they belong to one half or
//! to one link. Otherwise their order is unknown, and the run ends with [`HalfRunError::Undecided`].

use super::scope::{CrossHalfPacket, EventOrderKey, SimulationScope};
use super::{SimEvent, Simulation, SimulationBuilder};
use crate::addr::HostId;
use crate::app::{Application, ReportObserver};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use usher_core::{Duration, Instant};

/// A message between the halves.
#[derive(Debug)]
enum HalfSyncMessage {
    /// Crossing packets in the order of sending, and the time of the sender's earliest event.
    Meeting(Vec<CrossHalfPacket>, Instant),
    /// The first half has run this window. If its observer was done: the time and mark of that event.
    Ran(Option<(Instant, EventOrderKey)>),
    /// The run has ended for this reason.
    Ended(HalfRunError),
}

/// One end of the channel between the halves.
#[derive(Debug)]
pub struct HalfSyncChannel {
    to: Sender<HalfSyncMessage>,
    from: Receiver<HalfSyncMessage>,
}

impl HalfSyncChannel {
    /// Creates both ends, one for each half.
    pub fn channel_pair() -> [Self; 2] {
        let ((to_second, of_first), (to_first, of_second)) = (channel(), channel());
        [Self { to: to_second, from: of_second }, Self { to: to_first, from: of_first }]
    }
}

/// Why a half did not reach its time. The run has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HalfRunError {
    /// The order of two events at this time is unknown.
    #[error("at {}: the order of two events in the two halves is not known", .0.duration_since(Instant::ZERO))]
    Undecided(Instant),
    /// The other half has ended.
    #[error("the other half of the network has ended early")]
    OtherHalfEnded,
    /// The owner stopped the run by the flag of [`end_when`](Simulation::end_when).
    #[error("the run was stopped")]
    Stopped,
}

/// One of the two halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkHalfIndex {
    /// The first; its observer decides when the run is done.
    First,
    /// The second.
    Second,
}

/// How a network is divided.
#[derive(Clone, Debug)]
pub struct NetworkSplitPlan {
    /// True for each host of the first half.
    first: Arc<[bool]>,
    lookahead: Duration,
}

impl NetworkSplitPlan {
    /// Returns the half of a host.
    pub fn side_of(&self, host: HostId) -> NetworkHalfIndex {
        if self.first[host.0 as usize] { NetworkHalfIndex::First } else { NetworkHalfIndex::Second }
    }
    /// Returns the time before which one half cannot affect the other.
    pub const fn lookahead(&self) -> Duration {
        self.lookahead
    }
}

/// Half of a network; another thread runs the other half.
#[derive(Debug)]
pub struct HalfNetwork {
    halves: NetworkSplitPlan,
    side: NetworkHalfIndex,
    end: HalfSyncChannel,
    /// Crossing packets for the next exchange, and the first arrival of them.
    out: Vec<CrossHalfPacket>,
    earliest: Instant,
    /// Arrival of the last packet passed to the other half, by direction. Zero for none: links between the halves
    /// have a delay, so nothing arrives at zero.
    last: Vec<Instant>,
    /// The last handled event.
    before: (Instant, EventOrderKey, SimEvent),
}

impl SimulationScope for HalfNetwork {
    type Mark = EventOrderKey;
    #[inline(always)]
    fn mark_at(now: Instant) -> EventOrderKey {
        EventOrderKey::new(now, EventOrderKey::OWN)
    }
    #[inline]
    fn is_elsewhere(&self, host: HostId) -> bool {
        self.halves.side_of(host) != self.side
    }
    fn hand_over(&mut self, mut crossing: CrossHalfPacket) {
        let last = std::mem::replace(&mut self.last[crossing.direction as usize], crossing.arrives);
        if last != Instant::ZERO && last.as_nanos() >= crossing.mark.queue_position() {
            crossing.mark = EventOrderKey::new(last, EventOrderKey::FOLLOWS);
        }
        self.earliest = self.earliest.min(crossing.arrives);
        self.out.push(crossing);
    }
}

impl HalfNetwork {
    /// Sends a message. If the other half has ended, [`Self::receive_message`] returns the reason.
    fn send_message(&self, word: HalfSyncMessage) {
        let _ = self.end.to.send(word);
    }
    fn receive_message(&self) -> Result<HalfSyncMessage, HalfRunError> {
        match self.end.from.recv() {
            Ok(HalfSyncMessage::Ended(why)) => Err(why),
            Ok(word) => Ok(word),
            Err(_) => Err(HalfRunError::OtherHalfEnded),
        }
    }
    /// Checks that the next event certainly follows the last one; fails if their order is unknown.
    fn check_event_order(
        &mut self,
        at: Instant,
        mark: EventOrderKey,
        event: SimEvent,
    ) -> Result<(), HalfRunError> {
        let (before, last, what) = std::mem::replace(&mut self.before, (at, mark, event));
        if at == before && mark == last && !mark.is_decided(event, (last, what)) {
            return Err(HalfRunError::Undecided(at));
        }
        Ok(())
    }
}

impl<A: Application> SimulationBuilder<A> {
    /// Divides the network: the first half has these hosts and those joined to them by links without a delay.
    ///
    /// Returns `None` if that is the whole network, or if the network cannot be divided. Obstacles are radio,
    /// interfaces, outages, multihomed hosts, memory tracking, and TCP that depends on initial sequence numbers: all
    /// hosts draw these from one stream. Links that reorder or duplicate packets stay within a half.
    pub fn split_in_halves(&self, hosts: impl IntoIterator<Item = HostId>) -> Option<NetworkSplitPlan> {
        let whole = !self.cells.is_empty()
            || !self.interfaces.is_empty()
            || !self.outages.is_empty()
            || !self.multihomed.is_empty()
            || self.follow_memory
            || self.apps.iter().any(|app| app.transports.tcp.depends_on_initial_sequence());
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
        Some(NetworkSplitPlan { first: first.into(), lookahead })
    }

    /// Builds one of the two halves of the simulation, at time zero. Build the other from the same description.
    pub fn build_half<O>(
        self,
        observer: O,
        halves: NetworkSplitPlan,
        side: NetworkHalfIndex,
        end: HalfSyncChannel,
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
    /// Runs until `until`, in step with the other half, which must get the same call. With `to_its_end` the run ends
    /// at the event at which the first half's observer is done. The halves then take turns: the second runs nothing
    /// after that event.
    ///
    /// # Errors
    /// Both halves end, and their counters have no meaning.
    pub fn run_until(&mut self, until: Instant, to_its_end: bool) -> Result<(), HalfRunError> {
        self.start();
        let ran = self.run_lookahead_windows(until, to_its_end);
        if let Err(why) = ran
            && why != HalfRunError::OtherHalfEnded
        {
            self.extent.send_message(HalfSyncMessage::Ended(why));
        }
        ran
    }

    fn run_lookahead_windows(&mut self, until: Instant, to_its_end: bool) -> Result<(), HalfRunError> {
        loop {
            let from = self.exchange_crossing_packets()?;
            if from > until {
                self.now = self.now.max(until);
                return Ok(());
            }
            let end = from + self.extent.halves.lookahead;
            let last = Instant::from_nanos(end.as_nanos() - 1).min(until);
            match (to_its_end, self.extent.side) {
                (true, NetworkHalfIndex::Second) => {
                    if let HalfSyncMessage::Ran(Some((at, mark))) = self.extent.receive_message()? {
                        return self.run_until_event_mark(at, mark);
                    }
                    self.run_window(last)?;
                }
                (false, _) => self.run_window(last)?,
                (true, NetworkHalfIndex::First) => {
                    self.run_window(last)?;
                    let (at, mark, _) = self.extent.before;
                    let done = self.observer.is_done().then_some((at, mark));
                    self.extent.send_message(HalfSyncMessage::Ran(done));
                    if done.is_some() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Exchanges crossing packets. Returns the time of the earliest event of both halves.
    fn exchange_crossing_packets(&mut self) -> Result<Instant, HalfRunError> {
        let own = self.queue.next_time().unwrap_or(Instant::FAR_FUTURE);
        let earliest = std::mem::replace(&mut self.extent.earliest, Instant::FAR_FUTURE).min(own);
        let out = std::mem::take(&mut self.extent.out);
        self.extent.send_message(HalfSyncMessage::Meeting(out, earliest));
        let HalfSyncMessage::Meeting(mut packets, others) = self.extent.receive_message()? else {
            return Err(HalfRunError::OtherHalfEnded);
        };
        for CrossHalfPacket { direction, arrives, mark, damaged, packet } in packets.drain(..) {
            let packet = self.pool.insert(packet);
            self.directions[direction as usize].insert(arrives, damaged, packet, &mut self.pool);
            self.queue.push_ranked(arrives, SimEvent::Arrive(direction), mark);
        }
        // Keep the emptied vector, to reuse its allocation.
        self.extent.out = packets;
        Ok(earliest.min(others))
    }

    /// Handles all events until `last`, or until the observer is done.
    fn run_window(&mut self, last: Instant) -> Result<(), HalfRunError> {
        while let Some((at, event, mark)) = self.queue.pop_ranked_until(last) {
            self.extent.check_event_order(at, mark, event)?;
            self.handle_event(at, event);
            if self.observer.is_done() {
                // Fail if another event of the same time might belong before this one, because the order of the halves
                // is then undecided.
                let is_undecided = |(other, of): (SimEvent, EventOrderKey)| {
                    mark == of && !mark.is_decided(event, (of, other))
                };
                if self.queue.pending_now().any(is_undecided) {
                    return Err(HalfRunError::Undecided(at));
                }
                break;
            }
            if self.is_run_cancelled() {
                return Err(HalfRunError::Stopped);
            }
        }
        Ok(())
    }

    /// Handles all events before an event of the other half.
    fn run_until_event_mark(&mut self, end: Instant, last: EventOrderKey) -> Result<(), HalfRunError> {
        if let Some(before) = end.as_nanos().checked_sub(1) {
            self.run_window(Instant::from_nanos(before))?;
        }
        while let Some((at, event, mark)) = self.queue.pop_ranked_until(end) {
            if mark == last {
                return Err(HalfRunError::Undecided(at));
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

    /// Returns the division of the network.
    pub const fn halves(&self) -> &NetworkSplitPlan {
        &self.extent.halves
    }

    /// Returns the counters of link directions that leave hosts of this half, if not zero. A direction's number is
    /// twice its link's number, plus one from the second host to the first.
    pub fn direction_stats(&self) -> impl Iterator<Item = (u32, crate::link::LinkStats)> {
        let own = self.directions.iter().zip(0..).filter(|(d, _)| !self.extent.is_elsewhere(d.from));
        own.map(|(d, number)| (number, d.stats())).filter(|(_, stats)| stats.offered > 0)
    }
}
