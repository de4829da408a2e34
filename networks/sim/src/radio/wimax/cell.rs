//! The machine of a cell.

use super::burst::{self, GRANT_MANAGEMENT, WimaxPacketQueue};
use super::config::{ConfigError, DOWN_SLOT, Modulation, NetworkEntryTrigger, WimaxConfig};
use super::contention::{ContentionAttempts, ContentionOutcome, ContentionQueue};
use super::coverage::{CoverageTimer, StationCoverage};
use super::schedule::{SlotAllocation, divide_slots};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkDownReason, LinkEvent, RadioDirection};
use std::collections::VecDeque;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant, SimulationRng};

usher_core::counters! {
    /// Counters of a cell.
    pub struct CellCounters {
        /// Frames whose maps announced a burst.
        frames,
        /// Stations that entered the network.
        entered,
        /// RNG-REQ sent.
        ranging_attempts,
        /// RNG-REQ lost in a collision.
        ranging_collisions,
        /// Bandwidth requests sent in an opportunity.
        requests,
        /// Bandwidth requests lost in a collision.
        request_collisions,
        /// Bandwidth requests sent on a burst.
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
        /// Dropped: the base station did not receive the station.
        gave_up,
        /// Dropped: the station was out of reach, or had not entered the network and does not enter it for a packet.
        out_of_reach,
        /// Scans begun.
        scans,
        /// Commands that did not fit their station's state.
        ignored_commands,
    }
}

/// The state of a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WimaxStationState {
    /// Not in the cell.
    Outside,
    /// Ranging; with a time, waiting for RNG-RSP until then.
    Ranging(ContentionAttempts, Option<Instant>),
    /// RNG-REQ was received; enters at this time.
    Entering(Instant),
    /// In the cell, with nothing to send.
    Idle,
    /// Requesting bandwidth; with a time, waiting for a grant until then.
    Requesting(ContentionAttempts, Option<Instant>),
    /// Has a grant, and gets further ones while it has data.
    Served,
}

impl WimaxStationState {
    pub(super) const fn is_in(self) -> bool {
        matches!(self, Self::Idle | Self::Requesting(..) | Self::Served)
    }
}

#[derive(Debug)]
pub(super) struct WimaxStation {
    modulation: (Modulation, Modulation),
    pub(super) state: WimaxStationState,
    pub(super) reach: StationCoverage,
    pub(super) down: WimaxPacketQueue,
    pub(super) up: WimaxPacketQueue,
    /// True if it is in the downlink round.
    pub(super) in_round: bool,
    /// Octets requested beyond those granted.
    pub(super) demand: u64,
    /// Octets granted in future uplinks.
    pub(super) granted: u64,
}

/// A burst granted to a station.
#[derive(Clone, Copy, Debug)]
pub(super) struct UplinkGrant {
    frame: u64,
    pub(super) station: u32,
    octets: u32,
}

/// A cell; see the [module](super).
#[derive(Debug)]
pub struct WimaxCell {
    pub(super) config: WimaxConfig,
    rng: SimulationRng,
    pub(super) stations: Vec<WimaxStation>,
    /// Stations with queued downlink packets, in the order of their turns.
    pub(super) round: VecDeque<u32>,
    /// Stations that need a grant, in the order of their turns.
    pub(super) wanting: VecDeque<u32>,
    pub(super) grants: VecDeque<UplinkGrant>,
    pub(super) ranging: ContentionQueue,
    pub(super) requests: ContentionQueue,
    /// Expirations of T3, T16 and network entry.
    pub(super) timers: TimerQueue<u32>,
    /// Coverage changes and ends of searches.
    pub(super) reaches: TimerQueue<(CoverageTimer, u32)>,
    /// Time of the first channel descriptors.
    pub(super) descriptor_phase: Duration,
    /// The first frame that is not built, and the first whose uplink is not.
    next_frame: u64,
    next_uplink: u64,
    /// Packets on the air or decoded, by time of arrival.
    pub(super) arriving: VecDeque<(Instant, RadioDirection, u32)>,
    dropped: VecDeque<(RadioDirection, u32, DropReason)>,
    pub(super) events: VecDeque<(u32, LinkEvent)>,
    pub(super) counters: CellCounters,
    shares: Vec<SlotAllocation>,
    outcome: ContentionOutcome,
}

impl WimaxCell {
    /// Creates a cell with the base station at this position and stations with these trajectories, all with the
    /// configured modulation. With a radius, stations in the cell from the start report [`LinkEvent::Up`] at time
    /// zero.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(
        config: WimaxConfig,
        rng: SimulationRng,
        base_station: Position,
        stations: Vec<Trajectory>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut reaches = TimerQueue::new();
        if config.radius.is_some() && config.entry == NetworkEntryTrigger::Done {
            reaches.insert(Instant::ZERO, (CoverageTimer::Start, 0));
        }
        let mut station = |(i, way): (usize, &Trajectory)| {
            let reach = StationCoverage::new(&config, &mut reaches, base_station, i as u32, way);
            WimaxStation {
                modulation: config.modulation,
                state: if config.entry == NetworkEntryTrigger::Done && reach.is_in_range {
                    WimaxStationState::Idle
                } else {
                    WimaxStationState::Outside
                },
                reach,
                down: WimaxPacketQueue::default(),
                up: WimaxPacketQueue::default(),
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
            ranging: ContentionQueue::default(),
            requests: ContentionQueue::default(),
            timers: TimerQueue::new(),
            descriptor_phase: Duration::ZERO,
            next_frame: 0,
            next_uplink: 0,
            arriving: VecDeque::new(),
            dropped: VecDeque::new(),
            events: VecDeque::new(),
            counters: CellCounters::default(),
            shares: Vec::new(),
            outcome: ContentionOutcome::default(),
        })
    }

    /// Sets a station's own modulation, downlink and uplink.
    pub fn set_modulation(&mut self, station: u32, modulation: (Modulation, Modulation)) {
        if let Some(s) = self.stations.get_mut(station as usize) {
            s.modulation = modulation;
        }
    }
    /// Sets the time of the first channel descriptors; the default is zero.
    pub fn set_descriptor_phase(&mut self, phase: Duration) {
        self.descriptor_phase = phase;
    }
    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &CellCounters {
        &self.counters
    }
    /// Returns the settings.
    #[must_use]
    pub const fn config(&self) -> &WimaxConfig {
        &self.config
    }

    /// Sends a packet of `octets` with the caller's number `handle`, which returns by exactly one of
    /// [`Self::poll_delivery`] and [`Self::poll_drop`]. Times must not decrease. Packets of a station out of reach,
    /// of an unknown one, or of one outside a cell with entry by command are dropped.
    pub fn send(&mut self, now: Instant, way: RadioDirection, octets: u32, handle: u32) {
        let (RadioDirection::Down(number) | RadioDirection::Up(number)) = way;
        let Some(station) = self.stations.get_mut(number as usize) else {
            self.drop_packet(way, handle, DropReason::RetriesExhausted);
            return;
        };
        let lazily = self.config.entry == NetworkEntryTrigger::AtFirstPacket;
        if !(station.state.is_in() || lazily && station.reach.is_in_range) {
            self.drop_packet(way, handle, DropReason::OutOfReach);
            return;
        }
        let queue = match way {
            RadioDirection::Down(_) => &mut station.down,
            RadioDirection::Up(_) => &mut station.up,
        };
        if queue.len() >= self.config.queue {
            self.drop_packet(way, handle, DropReason::QueueFull);
            return;
        }
        queue.push(handle, octets);
        self.serve_waiting_station(now, number);
    }

    pub(super) fn drop_packet(&mut self, way: RadioDirection, handle: u32, why: DropReason) {
        *match why {
            DropReason::QueueFull => &mut self.counters.queue_full,
            DropReason::Lost => &mut self.counters.lost,
            DropReason::RetriesExhausted => &mut self.counters.gave_up,
            DropReason::OutOfReach => &mut self.counters.out_of_reach,
        } += 1;
        self.dropped.push_back((way, handle, why));
    }

    /// Starts the entry, request or turn of a station with packets.
    fn serve_waiting_station(&mut self, now: Instant, number: u32) {
        let station = &mut self.stations[number as usize];
        match station.state {
            WimaxStationState::Outside if !(station.up.is_empty() && station.down.is_empty()) => {
                self.attempt_ranging(now, number, ContentionAttempts::default());
                return;
            }
            WimaxStationState::Outside | WimaxStationState::Ranging(..) | WimaxStationState::Entering(_) => {
                return;
            }
            WimaxStationState::Idle if !station.up.is_empty() => {
                self.request_bandwidth(now, number, ContentionAttempts::default())
            }
            WimaxStationState::Idle | WimaxStationState::Requesting(..) | WimaxStationState::Served => {}
        }
        let station = &mut self.stations[number as usize];
        if !station.in_round && !station.down.is_empty() {
            station.in_round = true;
            if self.round.is_empty() && self.wanting.is_empty() {
                self.skip_to_next_frame(now);
            }
            self.round.push_back(number);
        }
    }

    pub(super) fn attempt_ranging(&mut self, now: Instant, number: u32, series: ContentionAttempts) {
        match series.next_attempt(&self.config.ranging, &mut self.rng) {
            Some(series) => {
                self.stations[number as usize].state = WimaxStationState::Ranging(series, None);
                self.skip_to_next_uplink(now);
                self.ranging.add_station(number, series);
            }
            None => self.take_link_down(number, DropReason::RetriesExhausted, LinkDownReason::EntryFailed),
        }
    }

    fn request_bandwidth(&mut self, now: Instant, number: u32, series: ContentionAttempts) {
        match series.next_attempt(&self.config.request, &mut self.rng) {
            Some(series) => {
                self.stations[number as usize].state = WimaxStationState::Requesting(series, None);
                self.skip_to_next_uplink(now);
                self.requests.add_station(number, series);
            }
            None => {
                let station = &mut self.stations[number as usize];
                station.state = WimaxStationState::Idle;
                for handle in station.up.drain() {
                    self.counters.gave_up += 1;
                    self.dropped.push_back((
                        RadioDirection::Up(number),
                        handle,
                        DropReason::RetriesExhausted,
                    ));
                }
            }
        }
    }

    /// Skips to the first frame that begins at `now` or later.
    fn skip_to_next_frame(&mut self, now: Instant) {
        let first = now.as_nanos().div_ceil(self.config.frame.as_nanos());
        self.next_frame = self.next_frame.max(first);
    }
    /// Skips to the first uplink that begins at `now` or later.
    fn skip_to_next_uplink(&mut self, now: Instant) {
        if self.ranging.is_empty() && self.requests.is_empty() {
            let since = now.as_nanos().saturating_sub(self.config.uplink_offset().as_nanos());
            self.next_uplink = self.next_uplink.max(since.div_ceil(self.config.frame.as_nanos()));
        }
    }
    fn frame_start(&self, frame: u64) -> Instant {
        Instant::from_nanos(frame.saturating_mul(self.config.frame.as_nanos()))
    }
    fn uplink_start(&self, frame: u64) -> Instant {
        self.frame_start(frame) + self.config.uplink_offset()
    }
    fn next_due_frame_start(&self) -> Option<Instant> {
        let waits = !self.round.is_empty() || !self.wanting.is_empty();
        waits.then(|| self.frame_start(self.next_frame))
    }
    /// Returns the frame of the next uplink with a transmission.
    fn next_due_uplink_frame(&self) -> Option<u64> {
        let contended = (!self.ranging.is_empty() || !self.requests.is_empty()).then_some(self.next_uplink);
        let granted = self.grants.front().map(|g| g.frame);
        contended.into_iter().chain(granted).min()
    }

    /// Returns when to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.front().map(|(at, ..)| *at);
        let uplink = self.next_due_uplink_frame().map(|frame| self.uplink_start(frame));
        [
            arriving,
            self.timers.next_deadline(),
            self.reaches.next_deadline(),
            self.next_due_frame_start(),
            uplink,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Handles all events due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((_, (timer, number))) = self.reaches.pop_due(now) {
            self.handle_coverage_timer(now, timer, number);
        }
        while let Some((_, number)) = self.timers.pop_due(now) {
            self.handle_station_timeout(now, number);
        }
        if self.next_due_frame_start().is_some_and(|at| at <= now) {
            let frame = self.next_frame;
            self.next_frame += 1;
            self.build_wimax_frame(frame);
        }
        if let Some(frame) = self.next_due_uplink_frame().filter(|frame| self.uplink_start(*frame) <= now) {
            self.next_uplink = frame + 1;
            self.handle_uplink(now, frame);
        }
    }

    fn handle_station_timeout(&mut self, now: Instant, number: u32) {
        match self.stations[number as usize].state {
            WimaxStationState::Ranging(series, Some(_)) => self.attempt_ranging(now, number, series),
            WimaxStationState::Requesting(series, Some(_)) => self.request_bandwidth(now, number, series),
            WimaxStationState::Entering(_) => {
                self.counters.entered += 1;
                self.stations[number as usize].state = WimaxStationState::Idle;
                self.report_link_up(now, number);
                self.serve_waiting_station(now, number);
            }
            _ => {}
        }
    }

    /// Builds a frame: grants and downlink bursts.
    fn build_wimax_frame(&mut self, frame: u64) {
        let up = self.grant_uplinks(frame);
        let down = self.send_downlink_bursts(frame, up);
        self.counters.frames += u64::from(up + down > 0);
    }

    fn grant_uplinks(&mut self, frame: u64) -> u32 {
        let (config, stations) = (&self.config, &self.stations);
        // Reduce the grants to those that the map can announce if the frame also has one downlink burst.
        let room = config.downlink_slots() - burst::minimum_slots(Modulation::Qpsk12);
        let most = config.uplink_slots() / burst::minimum_slots(Modulation::Qpsk12);
        let mut bursts = (self.wanting.len() as u32).min(most);
        while config.map_overhead(1, bursts) > room {
            bursts -= 1;
        }
        let need = |number: u32| {
            let s = &stations[number as usize];
            let least = burst::minimum_slots(s.modulation.1);
            // The rest of a fragmented packet needs another header, so a grant has a minimum size.
            (slots_for(s.demand, s.modulation.1).max(least), least)
        };
        divide_slots(&mut self.wanting, bursts, config.uplink_slots(), need, &mut self.shares);
        for share in &self.shares {
            let station = &mut self.stations[share.station as usize];
            match station.state {
                WimaxStationState::Requesting(_, Some(until)) => {
                    self.timers.remove(until, share.station);
                }
                WimaxStationState::Requesting(_, None) => self.requests.remove_station(share.station),
                _ => {}
            }
            station.state = WimaxStationState::Served;
            let octets = share.slots * station.modulation.1.octets_per_slot();
            station.granted += u64::from(octets);
            station.demand = station.demand.saturating_sub(u64::from(octets));
            if station.demand > 0 {
                self.wanting.push_back(share.station);
            }
            let frame = frame + u64::from(self.config.uplink_lead);
            self.grants.push_back(UplinkGrant { frame, station: share.station, octets });
            self.counters.grants += 1;
        }
        self.shares.len() as u32
    }

    fn send_downlink_bursts(&mut self, frame: u64, granted: u32) -> u32 {
        let (config, stations) = (&self.config, &self.stations);
        let total = config.downlink_slots();
        let least = burst::minimum_slots(Modulation::Qpsk12);
        let mut bursts = (self.round.len() as u32).min(total / least);
        while bursts > 1 && config.map_overhead(bursts, granted) + bursts * least > total {
            bursts -= 1;
        }
        let overhead = config.map_overhead(bursts, granted);
        let need = |number: u32| {
            let s = &stations[number as usize];
            (slots_for(s.down.octets_needed(), s.modulation.0), burst::minimum_slots(s.modulation.0))
        };
        let free = total.saturating_sub(overhead);
        divide_slots(&mut self.round, bursts, free, need, &mut self.shares);
        let data = self.frame_start(frame) + self.config.symbol;
        let mut first = overhead;
        for share in &self.shares {
            let station = &mut self.stations[share.station as usize];
            let per_slot = station.modulation.0.octets_per_slot();
            let used = station.down.fill_burst(share.slots * per_slot, 0, |handle, end| {
                let pairs = (first + end.div_ceil(per_slot)).div_ceil(self.config.downlink_subchannels);
                let at = data + self.config.symbols_duration(pairs * DOWN_SLOT);
                if self.config.loss > 0.0 && self.rng.sample_bool(self.config.loss) {
                    self.counters.lost += 1;
                    self.dropped.push_back((RadioDirection::Down(share.station), handle, DropReason::Lost));
                } else {
                    self.arriving.push_back((at, RadioDirection::Down(share.station), handle));
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

    /// Handles an uplink: granted bursts, ranging, requests.
    fn handle_uplink(&mut self, now: Instant, frame: u64) {
        let end = self.uplink_start(frame) + self.config.symbols_duration(self.config.uplink_symbols);
        while let Some(grant) = self.grants.pop_front_if(|g| g.frame <= frame) {
            self.send_uplink_burst(grant, end);
        }
        let mut outcome = std::mem::take(&mut self.outcome);
        self.ranging.advance_contention_frame(self.config.ranging_opportunities, &mut outcome);
        self.counters.ranging_attempts += (outcome.successful.len() + outcome.collided.len()) as u64;
        self.counters.ranging_collisions += outcome.collided.len() as u64;
        for &(number, _) in &outcome.successful {
            let commanded = self.stations[number as usize].reach.commanded;
            let registration = if commanded { self.config.registration_frames } else { 0 };
            let frames = u64::from(self.config.entry_frames) + u64::from(registration);
            let until = self.frame_start(frame + frames).max(end);
            self.stations[number as usize].state = WimaxStationState::Entering(until);
            self.timers.insert(until, number);
        }
        for &(number, series) in &outcome.collided {
            let until = now + self.config.ranging_timeout;
            self.stations[number as usize].state = WimaxStationState::Ranging(series, Some(until));
            self.timers.insert(until, number);
        }
        self.requests.advance_contention_frame(self.config.request_opportunities, &mut outcome);
        self.counters.requests += (outcome.successful.len() + outcome.collided.len()) as u64;
        self.counters.request_collisions += outcome.collided.len() as u64;
        for &(number, _) in &outcome.successful {
            self.update_bandwidth_demand(end, number);
        }
        for &(number, series) in outcome.successful.iter().chain(&outcome.collided) {
            let until = now + self.config.request_timeout;
            self.stations[number as usize].state = WimaxStationState::Requesting(series, Some(until));
            self.timers.insert(until, number);
        }
        self.outcome = outcome;
    }

    /// Updates the base station's knowledge of a station's demand at `now`.
    fn update_bandwidth_demand(&mut self, now: Instant, number: u32) {
        let station = &mut self.stations[number as usize];
        let known = station.demand > 0;
        station.demand = station.up.octets_needed().saturating_sub(station.granted);
        if station.demand > 0 && !known {
            if self.round.is_empty() && self.wanting.is_empty() {
                self.skip_to_next_frame(now);
            }
            self.wanting.push_back(number);
        } else if station.demand == 0 && known {
            self.wanting.retain(|n| *n != number);
        }
    }

    fn send_uplink_burst(&mut self, grant: UplinkGrant, end: Instant) {
        let number = grant.station;
        let station = &mut self.stations[number as usize];
        station.granted -= u64::from(grant.octets);
        let asks = station.up.octets_needed() > u64::from(grant.octets);
        let reserved = if asks { GRANT_MANAGEMENT } else { 0 };
        let used = station.up.fill_burst(grant.octets, reserved, |handle, _| {
            if self.config.loss > 0.0 && self.rng.sample_bool(self.config.loss) {
                self.counters.lost += 1;
                self.dropped.push_back((RadioDirection::Up(number), handle, DropReason::Lost));
            } else {
                self.arriving.push_back((end, RadioDirection::Up(number), handle));
            }
        });
        self.counters.octets_up += u64::from(used);
        self.counters.piggybacked += u64::from(asks);
        self.update_bandwidth_demand(end, number);
        let station = &mut self.stations[number as usize];
        if station.state == WimaxStationState::Served && station.demand == 0 && station.granted == 0 {
            station.state = WimaxStationState::Idle;
        }
    }

    /// Returns the next packet that has arrived by `now`, with its direction.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<(RadioDirection, u32)> {
        let (_, way, handle) = self.arriving.pop_front_if(|(at, ..)| *at <= now)?;
        match way {
            RadioDirection::Down(_) => self.counters.packets_down += 1,
            RadioDirection::Up(_) => self.counters.packets_up += 1,
        }
        Some((way, handle))
    }

    /// Returns the next lost packet.
    pub fn poll_drop(&mut self) -> Option<(RadioDirection, u32, DropReason)> {
        self.dropped.pop_front()
    }
}

/// Returns the slots for these octets.
fn slots_for(octets: u64, modulation: Modulation) -> u32 {
    u32::try_from(octets.div_ceil(u64::from(modulation.octets_per_slot()))).unwrap_or(u32::MAX)
}
