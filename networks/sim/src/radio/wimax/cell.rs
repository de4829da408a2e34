//! The cell's machine.

use super::burst::{self, GRANT_MANAGEMENT, Queue};
use super::config::{ConfigError, DOWN_SLOT, Entry, Modulation, WimaxConfig};
use super::contention::{Contention, Outcome, Series};
use super::reach::{Reach, Timer};
use super::schedule::{Share, divide};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkDownReason, LinkEvent, Way};
use std::collections::VecDeque;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant, Rng};

usher_core::counters! {
    /// What happened in a cell.
    pub struct Counters {
        /// Frames whose maps announced a burst.
        frames,
        /// Stations that came in.
        entered,
        /// RNG-REQ said.
        ranging_attempts,
        /// Of them, said together with another's.
        ranging_collisions,
        /// Bandwidth requests said in an opportunity.
        requests,
        /// Of them, said together with another's.
        request_collisions,
        /// Requests on a burst.
        piggybacked,
        /// Uplink bursts granted.
        grants,
        /// Downlink bursts.
        downlink_bursts,
        /// Packets that arrived at a station.
        packets_down,
        /// Packets that arrived at the base station.
        packets_up,
        /// Octets of downlink bursts in use: packets, headers, checksums.
        octets_down,
        /// Octets of uplink bursts in use.
        octets_up,
        /// Dropped: the queue was full.
        queue_full,
        /// Dropped: lost on the air.
        lost,
        /// Dropped: the station was not heard.
        gave_up,
        /// Dropped: the station was out of reach, or not in and not to come in for a packet.
        out_of_reach,
        /// Scans begun.
        scans,
        /// Commands that did not fit their station's state.
        ignored_commands,
    }
}

/// Where a station stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not in the cell.
    Outside,
    /// Ranging, or waiting for RNG-RSP if there is a time.
    Ranging(Series, Option<Instant>),
    /// Heard, and on its way in until then.
    Entering(Instant),
    /// In, with nothing to send.
    Idle,
    /// Asking for bandwidth, or waiting for a grant if there is a time.
    Asking(Series, Option<Instant>),
    /// Granted a burst, with more to come for as long as it has something to send.
    Served,
}

impl State {
    pub(super) const fn is_in(self) -> bool {
        matches!(self, Self::Idle | Self::Asking(..) | Self::Served)
    }
}

#[derive(Debug)]
pub(super) struct Station {
    modulation: (Modulation, Modulation),
    pub(super) state: State,
    pub(super) reach: Reach,
    pub(super) down: Queue,
    pub(super) up: Queue,
    /// In the round of those that have something to receive.
    pub(super) in_round: bool,
    /// Octets that the base station knows to be wanted beyond those granted.
    pub(super) demand: u64,
    /// Octets granted in uplinks to come.
    pub(super) granted: u64,
}

/// A burst granted to a station.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    frame: u64,
    pub(super) station: u32,
    octets: u32,
}

/// A cell; see the [module](super).
#[derive(Debug)]
pub struct Cell {
    pub(super) config: WimaxConfig,
    rng: Rng,
    pub(super) stations: Vec<Station>,
    /// Stations inside for which something waits at the base station, in the order of their turns.
    pub(super) round: VecDeque<u32>,
    /// Stations that want a grant, in the order of their turns.
    pub(super) wanting: VecDeque<u32>,
    pub(super) grants: VecDeque<Grant>,
    pub(super) ranging: Contention,
    pub(super) requests: Contention,
    /// Ends of T3, of T16 and of network entry.
    pub(super) timers: TimerQueue<u32>,
    /// When stations come and leave, and have searched.
    pub(super) reaches: TimerQueue<(Timer, u32)>,
    /// When the base station first describes its channels.
    pub(super) descriptor_phase: Duration,
    /// The first frame not put together yet, and the first whose uplink has not been.
    next_frame: u64,
    next_uplink: u64,
    /// What is on the air or decoded, by time of arrival.
    pub(super) arriving: VecDeque<(Instant, Way, u32)>,
    dropped: VecDeque<(Way, u32, DropReason)>,
    pub(super) events: VecDeque<(u32, LinkEvent)>,
    pub(super) counters: Counters,
    shares: Vec<Share>,
    outcome: Outcome,
}

impl Cell {
    /// A cell with its base station here and stations that move so, all with the configured modulation. In a cell with
    /// a radius, stations that are in from the start say [`LinkEvent::Up`] at time zero.
    ///
    /// # Errors
    /// The configuration cannot be.
    pub fn new(
        config: WimaxConfig,
        rng: Rng,
        base_station: Position,
        stations: Vec<Trajectory>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut reaches = TimerQueue::new();
        if config.radius.is_some() && config.entry == Entry::Done {
            reaches.insert(Instant::ZERO, (Timer::Start, 0));
        }
        let mut station = |(i, way): (usize, &Trajectory)| {
            let reach = Reach::new(&config, &mut reaches, base_station, i as u32, way);
            Station {
                modulation: config.modulation,
                state: if config.entry == Entry::Done && reach.within { State::Idle } else { State::Outside },
                reach,
                down: Queue::default(),
                up: Queue::default(),
                in_round: false,
                demand: 0,
                granted: 0,
            }
        };
        Ok(Self {
            stations: stations.iter().enumerate().map(&mut station).collect(),
            reaches,
            config,
            rng,
            round: VecDeque::new(),
            wanting: VecDeque::new(),
            grants: VecDeque::new(),
            ranging: Contention::default(),
            requests: Contention::default(),
            timers: TimerQueue::new(),
            descriptor_phase: Duration::ZERO,
            next_frame: 0,
            next_uplink: 0,
            arriving: VecDeque::new(),
            dropped: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            shares: Vec::new(),
            outcome: Outcome::default(),
        })
    }

    /// Gives a station its own modulation, down and up.
    pub fn set_modulation(&mut self, station: u32, modulation: (Modulation, Modulation)) {
        if let Some(s) = self.stations.get_mut(station as usize) {
            s.modulation = modulation;
        }
    }
    /// Says how long after time zero the base station first describes its channels: at once, unless it is said.
    pub fn describe_from(&mut self, phase: Duration) {
        self.descriptor_phase = phase;
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Its settings.
    #[must_use]
    pub const fn config(&self) -> &WimaxConfig {
        &self.config
    }

    /// Offers a packet of `octets`, which the cell calls `handle` from here on: it comes back from exactly one of
    /// [`Self::poll_delivery`] and [`Self::poll_drop`]. Times must not go back. A station that is out of reach, or not in
    /// where it comes in on command only, gets and sends nothing; one that the cell does not have is not heard.
    pub fn send(&mut self, now: Instant, way: Way, octets: u32, handle: u32) {
        let (Way::Down(number) | Way::Up(number)) = way;
        let Some(station) = self.stations.get_mut(number as usize) else {
            self.drop_packet(way, handle, DropReason::GaveUp);
            return;
        };
        let lazily = self.config.entry == Entry::AtFirstPacket;
        if !(station.state.is_in() || lazily && station.reach.within) {
            self.drop_packet(way, handle, DropReason::OutOfReach);
            return;
        }
        let queue = match way {
            Way::Down(_) => &mut station.down,
            Way::Up(_) => &mut station.up,
        };
        if queue.len() >= self.config.queue {
            self.drop_packet(way, handle, DropReason::QueueFull);
            return;
        }
        queue.push(handle, octets);
        self.look_after(now, number);
    }

    pub(super) fn drop_packet(&mut self, way: Way, handle: u32, why: DropReason) {
        *match why {
            DropReason::QueueFull => &mut self.counters.queue_full,
            DropReason::Lost => &mut self.counters.lost,
            DropReason::GaveUp => &mut self.counters.gave_up,
            DropReason::OutOfReach => &mut self.counters.out_of_reach,
        } += 1;
        self.dropped.push_back((way, handle, why));
    }

    /// Lets a station that has something to send or to receive go for it.
    fn look_after(&mut self, now: Instant, number: u32) {
        let station = &mut self.stations[number as usize];
        match station.state {
            State::Outside if !(station.up.is_empty() && station.down.is_empty()) => {
                self.range(now, number, Series::default());
                return;
            }
            State::Outside | State::Ranging(..) | State::Entering(_) => return,
            State::Idle if !station.up.is_empty() => self.ask(now, number, Series::default()),
            State::Idle | State::Asking(..) | State::Served => {}
        }
        let station = &mut self.stations[number as usize];
        if !station.in_round && !station.down.is_empty() {
            station.in_round = true;
            if self.round.is_empty() && self.wanting.is_empty() {
                self.await_frame(now);
            }
            self.round.push_back(number);
        }
    }

    pub(super) fn range(&mut self, now: Instant, number: u32, series: Series) {
        match series.next(&self.config.ranging, &mut self.rng) {
            Some(series) => {
                self.stations[number as usize].state = State::Ranging(series, None);
                self.await_uplink(now);
                self.ranging.join(number, series);
            }
            None => self.leave(number, DropReason::GaveUp, LinkDownReason::EntryFailed),
        }
    }

    fn ask(&mut self, now: Instant, number: u32, series: Series) {
        match series.next(&self.config.request, &mut self.rng) {
            Some(series) => {
                self.stations[number as usize].state = State::Asking(series, None);
                self.await_uplink(now);
                self.requests.join(number, series);
            }
            None => {
                let station = &mut self.stations[number as usize];
                station.state = State::Idle;
                for handle in station.up.drain() {
                    self.counters.gave_up += 1;
                    self.dropped.push_back((Way::Up(number), handle, DropReason::GaveUp));
                }
            }
        }
    }

    /// Makes the next frame the first that begins at `now` or later, where frames were not counted through.
    fn await_frame(&mut self, now: Instant) {
        let first = now.as_nanos().div_ceil(self.config.frame.as_nanos());
        self.next_frame = self.next_frame.max(first);
    }
    /// Likewise for uplinks.
    fn await_uplink(&mut self, now: Instant) {
        if self.ranging.is_empty() && self.requests.is_empty() {
            let since = now.as_nanos().saturating_sub(self.config.uplink_offset().as_nanos());
            self.next_uplink = self.next_uplink.max(since.div_ceil(self.config.frame.as_nanos()));
        }
    }
    fn begin(&self, frame: u64) -> Instant {
        Instant::from_nanos(frame.saturating_mul(self.config.frame.as_nanos()))
    }
    fn uplink(&self, frame: u64) -> Instant {
        self.begin(frame) + self.config.uplink_offset()
    }
    fn frame_due(&self) -> Option<Instant> {
        let waits = !self.round.is_empty() || !self.wanting.is_empty();
        waits.then(|| self.begin(self.next_frame))
    }
    /// The next uplink in which something is said, by its frame.
    fn uplink_due(&self) -> Option<u64> {
        let contended = (!self.ranging.is_empty() || !self.requests.is_empty()).then_some(self.next_uplink);
        let granted = self.grants.front().map(|g| g.frame);
        contended.into_iter().chain(granted).min()
    }

    /// When to call [`Self::handle_timeout`] next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.front().map(|(at, ..)| *at);
        let uplink = self.uplink_due().map(|frame| self.uplink(frame));
        [arriving, self.timers.next(), self.reaches.next(), self.frame_due(), uplink]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does all that is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, (timer, number))) = self.reaches.pop_due(now) {
            self.expire_reach(now, timer, number);
        }
        while let Some((_, number)) = self.timers.pop_due(now) {
            self.expire(now, number);
        }
        if self.frame_due().is_some_and(|at| at <= now) {
            let frame = self.next_frame;
            self.next_frame += 1;
            self.put_together(frame);
        }
        if let Some(frame) = self.uplink_due().filter(|frame| self.uplink(*frame) <= now) {
            self.next_uplink = frame + 1;
            self.listen(now, frame);
        }
    }

    fn expire(&mut self, now: Instant, number: u32) {
        match self.stations[number as usize].state {
            State::Ranging(series, Some(_)) => self.range(now, number, series),
            State::Asking(series, Some(_)) => self.ask(now, number, series),
            State::Entering(_) => {
                self.counters.entered += 1;
                self.stations[number as usize].state = State::Idle;
                self.up(now, number);
                self.look_after(now, number);
            }
            _ => {}
        }
    }

    /// A frame begins: grants, downlink bursts.
    fn put_together(&mut self, frame: u64) {
        let up = self.grant(frame);
        let down = self.send_down(frame, up);
        self.counters.frames += u64::from(up + down > 0);
    }

    fn grant(&mut self, frame: u64) -> u32 {
        let (config, stations) = (&self.config, &self.stations);
        // As many as the map can announce beside one downlink burst.
        let room = config.downlink_slots() - burst::least(Modulation::Qpsk12);
        let most = config.uplink_slots() / burst::least(Modulation::Qpsk12);
        let mut bursts = (self.wanting.len() as u32).min(most);
        while config.overhead(1, bursts) > room {
            bursts -= 1;
        }
        let need = |number: u32| {
            let s = &stations[number as usize];
            let least = burst::least(s.modulation.1);
            // What remains of a packet takes a header again.
            (slots(s.demand, s.modulation.1).max(least), least)
        };
        divide(&mut self.wanting, bursts, config.uplink_slots(), need, &mut self.shares);
        for share in &self.shares {
            let station = &mut self.stations[share.station as usize];
            match station.state {
                State::Asking(_, Some(until)) => drop(self.timers.remove(until, share.station)),
                State::Asking(_, None) => self.requests.leave(share.station),
                _ => {}
            }
            station.state = State::Served;
            let octets = share.slots * station.modulation.1.octets_per_slot();
            station.granted += u64::from(octets);
            station.demand = station.demand.saturating_sub(u64::from(octets));
            if station.demand > 0 {
                self.wanting.push_back(share.station);
            }
            let frame = frame + u64::from(self.config.uplink_lead);
            self.grants.push_back(Grant { frame, station: share.station, octets });
            self.counters.grants += 1;
        }
        self.shares.len() as u32
    }

    fn send_down(&mut self, frame: u64, granted: u32) -> u32 {
        let (config, stations) = (&self.config, &self.stations);
        let total = config.downlink_slots();
        let least = burst::least(Modulation::Qpsk12);
        let mut bursts = (self.round.len() as u32).min(total / least);
        while bursts > 1 && config.overhead(bursts, granted) + bursts * least > total {
            bursts -= 1;
        }
        let overhead = config.overhead(bursts, granted);
        let need = |number: u32| {
            let s = &stations[number as usize];
            (slots(s.down.need(), s.modulation.0), burst::least(s.modulation.0))
        };
        let free = total.saturating_sub(overhead);
        divide(&mut self.round, bursts, free, need, &mut self.shares);
        let data = self.begin(frame) + self.config.symbol;
        let mut first = overhead;
        for share in &self.shares {
            let station = &mut self.stations[share.station as usize];
            let per_slot = station.modulation.0.octets_per_slot();
            let used = station.down.fill(share.slots * per_slot, 0, |handle, end| {
                let pairs = (first + end.div_ceil(per_slot)).div_ceil(self.config.downlink_subchannels);
                let at = data + self.config.symbols(pairs * DOWN_SLOT);
                if self.config.loss > 0.0 && self.rng.chance(self.config.loss) {
                    self.counters.lost += 1;
                    self.dropped.push_back((Way::Down(share.station), handle, DropReason::Lost));
                } else {
                    self.arriving.push_back((at, Way::Down(share.station), handle));
                }
            });
            first += share.slots;
            self.counters.octets_down += u64::from(used);
            station.in_round = !station.down.is_empty();
            if station.in_round {
                self.round.push_back(share.station);
            }
        }
        self.counters.downlink_bursts += self.shares.len() as u64;
        self.shares.len() as u32
    }

    /// An uplink begins: granted bursts, ranging, requests.
    fn listen(&mut self, now: Instant, frame: u64) {
        let end = self.uplink(frame) + self.config.symbols(self.config.uplink_symbols);
        while let Some(grant) = self.grants.pop_front_if(|g| g.frame <= frame) {
            self.send_up(grant, end);
        }
        let mut outcome = std::mem::take(&mut self.outcome);
        self.ranging.frame(self.config.ranging_opportunities, &mut outcome);
        self.counters.ranging_attempts += (outcome.heard.len() + outcome.collided.len()) as u64;
        self.counters.ranging_collisions += outcome.collided.len() as u64;
        for &(number, _) in &outcome.heard {
            let commanded = self.stations[number as usize].reach.commanded;
            let registration = if commanded { self.config.registration_frames } else { 0 };
            let frames = u64::from(self.config.entry_frames) + u64::from(registration);
            let until = self.begin(frame + frames).max(end);
            self.stations[number as usize].state = State::Entering(until);
            self.timers.insert(until, number);
        }
        for &(number, series) in &outcome.collided {
            let until = now + self.config.ranging_timeout;
            self.stations[number as usize].state = State::Ranging(series, Some(until));
            self.timers.insert(until, number);
        }
        self.requests.frame(self.config.request_opportunities, &mut outcome);
        self.counters.requests += (outcome.heard.len() + outcome.collided.len()) as u64;
        self.counters.request_collisions += outcome.collided.len() as u64;
        for &(number, _) in &outcome.heard {
            self.want(end, number);
        }
        for &(number, series) in outcome.heard.iter().chain(&outcome.collided) {
            let until = now + self.config.request_timeout;
            self.stations[number as usize].state = State::Asking(series, Some(until));
            self.timers.insert(until, number);
        }
        self.outcome = outcome;
    }

    /// The base station has heard at `now` how much a station has to send.
    fn want(&mut self, now: Instant, number: u32) {
        let station = &mut self.stations[number as usize];
        let known = station.demand > 0;
        station.demand = station.up.need().saturating_sub(station.granted);
        if station.demand > 0 && !known {
            if self.round.is_empty() && self.wanting.is_empty() {
                self.await_frame(now);
            }
            self.wanting.push_back(number);
        } else if station.demand == 0 && known {
            self.wanting.retain(|n| *n != number);
        }
    }

    fn send_up(&mut self, grant: Grant, end: Instant) {
        let number = grant.station;
        let station = &mut self.stations[number as usize];
        station.granted -= u64::from(grant.octets);
        let asks = station.up.need() > u64::from(grant.octets);
        let reserved = if asks { GRANT_MANAGEMENT } else { 0 };
        let used = station.up.fill(grant.octets, reserved, |handle, _| {
            if self.config.loss > 0.0 && self.rng.chance(self.config.loss) {
                self.counters.lost += 1;
                self.dropped.push_back((Way::Up(number), handle, DropReason::Lost));
            } else {
                self.arriving.push_back((end, Way::Up(number), handle));
            }
        });
        self.counters.octets_up += u64::from(used);
        self.counters.piggybacked += u64::from(asks);
        self.want(end, number);
        let station = &mut self.stations[number as usize];
        if station.state == State::Served && station.demand == 0 && station.granted == 0 {
            station.state = State::Idle;
        }
    }

    /// The next packet that has arrived by `now`, and where.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<(Way, u32)> {
        let (_, way, handle) = self.arriving.pop_front_if(|(at, ..)| *at <= now)?;
        match way {
            Way::Down(_) => self.counters.packets_down += 1,
            Way::Up(_) => self.counters.packets_up += 1,
        }
        Some((way, handle))
    }

    /// The next packet that will not arrive.
    pub fn poll_drop(&mut self) -> Option<(Way, u32, DropReason)> {
        self.dropped.pop_front()
    }
}

/// Slots for so many octets.
fn slots(octets: u64, modulation: Modulation) -> u32 {
    u32::try_from(octets.div_ceil(u64::from(modulation.octets_per_slot()))).unwrap_or(u32::MAX)
}
