//! The machine of a basic service set: packets and the frame exchange.

use super::config::{ConfigError, FrameLoss, LossFrom, WifiConfig};
use super::frame::{FrameKind, FrameTimes, InterframeSpaces, WifiFrame};
use super::medium::{FramesOnAir, MediumContender, WirelessMedium};
use super::station::{WifiStation, WifiStationTimer};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkEvent, RadioDirection};
use std::collections::VecDeque;
use usher_core::timer::{TimerQueue, earliest_deadline};
use usher_core::{Duration, Instant, SimulationRng};

usher_core::counters! {
    /// Counters of a basic service set, up to the latest time that it has received.
    pub struct BssCounters {
        /// Packets sent for the first time.
        data,
        /// Packets sent again.
        retries,
        /// Management frames sent, for the first time or again, without beacons.
        management,
        /// Beacons sent.
        beacons,
        /// Collisions: frames sent at the same time.
        collisions,
        /// Transmissions lost in collisions.
        collided,
        /// Acknowledgements sent.
        acks,
        /// Transmissions lost to noise.
        frame_losses,
        /// Packets that arrived at a station.
        packets_down,
        /// Packets that arrived at the access point.
        packets_up,
        /// Associations.
        associations,
        /// Commands that did not fit their station's state.
        ignored_commands,
        /// Dropped: the queue was full.
        queue_full,
        /// Dropped: lost beyond the MAC.
        packet_losses,
        /// Dropped: never acknowledged.
        given_up,
        /// Dropped: the station was out of reach, or not associated.
        out_of_reach,
    }
}

/// A basic service set; see the [module](super).
#[derive(Debug)]
pub struct Bss {
    pub(super) config: WifiConfig,
    pub(super) times: FrameTimes,
    pub(super) rng: SimulationRng,
    pub(super) stations: Vec<WifiStation>,
    /// The access point, then the stations.
    pub(super) contenders: Vec<MediumContender>,
    pub(super) medium: WirelessMedium,
    pub(super) timers: TimerQueue<(WifiStationTimer, u32)>,
    /// The next target beacon transmission time.
    pub(super) beacon_due: Option<Instant>,
    arriving: VecDeque<(Instant, RadioDirection, u32)>,
    dropped: VecDeque<(RadioDirection, u32, DropReason)>,
    pub(super) events: VecDeque<(u32, LinkEvent)>,
    pub(super) counters: BssCounters,
}

/// Index of the access point among the contenders.
pub(super) const ACCESS_POINT: u32 = 0;

/// Returns the index of a station among the contenders.
pub(super) const fn contender_index(station: u32) -> u32 {
    station + 1
}

impl Bss {
    /// Creates a basic service set with the access point at this position and these stations. Its first beacon is at
    /// a random time of the first beacon interval. Stations associated from the start report [`LinkEvent::Up`] at
    /// time zero.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(
        config: WifiConfig,
        mut rng: SimulationRng,
        access_point: Position,
        stations: Vec<Trajectory>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let phase = |interval: Duration| Instant::from_nanos(rng.sample_below(interval.as_nanos()));
        let beacon_due = config.beacons.map(phase);
        let mut timers = TimerQueue::new();
        timers.insert(Instant::ZERO, (WifiStationTimer::Start, 0));
        let station = |(i, way): (usize, Trajectory)| {
            WifiStation::new(&config, &mut timers, access_point, i as u32, &way)
        };
        let stations: Vec<_> = stations.into_iter().enumerate().map(station).collect();
        Ok(Self {
            times: config.frame_times(),
            contenders: (0..=stations.len()).map(|_| MediumContender::default()).collect(),
            config,
            rng,
            stations,
            medium: WirelessMedium::new(InterframeSpaces::new(config.slot)),
            timers,
            beacon_due,
            arriving: VecDeque::new(),
            dropped: VecDeque::new(),
            events: VecDeque::new(),
            counters: BssCounters::default(),
        })
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &BssCounters {
        &self.counters
    }
    /// Returns the settings.
    #[must_use]
    pub const fn config(&self) -> &WifiConfig {
        &self.config
    }

    /// Sends a packet of `octets` with the caller's number `handle`, which returns by exactly one of
    /// [`Self::poll_delivery`] and [`Self::poll_drop`]. Times must not decrease. Packets of an unknown or
    /// unassociated station are dropped.
    pub fn send(&mut self, now: Instant, way: RadioDirection, octets: u32, handle: u32) {
        self.handle_due_wifi_events(now);
        let (RadioDirection::Down(station) | RadioDirection::Up(station)) = way;
        if !self.stations.get(station as usize).is_some_and(WifiStation::is_associated) {
            self.drop_packet(way, handle, DropReason::OutOfReach);
            return;
        }
        let number = match way {
            RadioDirection::Down(_) => ACCESS_POINT,
            RadioDirection::Up(_) => contender_index(station),
        };
        let sender = &mut self.contenders[number as usize];
        if sender.packets >= self.config.queue {
            self.drop_packet(way, handle, DropReason::QueueFull);
            return;
        }
        sender.packets += 1;
        let was_empty = sender.queue.is_empty();
        sender.queue.push_back(WifiFrame::new(FrameKind::Data { handle, octets }, station));
        if was_empty {
            self.join_contention(now, number);
        }
    }

    /// Returns when to call [`Self::handle_timeout`]: the set has no output before. The next call of any kind catches
    /// up on invisible work.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let arriving = self.arriving.front().map(|(at, ..)| *at);
        let exchange = match &self.medium.on_air {
            Some(exchange) => Some(exchange.end),
            None => self.medium.earliest_start(&self.contenders).map(|first| self.exchange_end_from(first)),
        };
        let beacon = self.beacon_due.filter(|_| self.is_beacon_awaited()).map(|due| {
            let access_point = &self.contenders[ACCESS_POINT as usize];
            self.medium.earliest_send_time(access_point, due) + self.times.frame_duration(FrameKind::Beacon)
        });
        earliest_deadline([arriving, self.timers.next_deadline(), exchange, beacon])
    }

    /// Handles all events due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_due_wifi_events(now);
    }

    /// Returns the next packet that has arrived by `now`, with its direction.
    pub fn poll_delivery(&mut self, now: Instant) -> Option<(RadioDirection, u32)> {
        let (_, way, handle) = self.arriving.pop_front_if(|(at, ..)| *at <= now)?;
        Some((way, handle))
    }
    /// Returns the next lost packet.
    pub fn poll_drop(&mut self) -> Option<(RadioDirection, u32, DropReason)> {
        self.dropped.pop_front()
    }
    /// Returns the next link event, and its station.
    pub fn poll_link_event(&mut self) -> Option<(u32, LinkEvent)> {
        self.events.pop_front()
    }

    /// Handles all events due at `now` or earlier, in order.
    pub(super) fn handle_due_wifi_events(&mut self, now: Instant) {
        loop {
            let end = self.medium.on_air.as_ref().map(|exchange| exchange.end);
            let timer = self.timers.next_deadline();
            let beacon = self.beacon_due;
            let start = if end.is_none() { self.medium.earliest_start(&self.contenders) } else { None };
            let next = earliest_deadline([end, timer, beacon, start]);
            let Some(next) = next.filter(|next| *next <= now) else { return };
            if end == Some(next) {
                self.finish_exchange(next);
            } else if timer == Some(next) {
                if let Some((_, (timer, station))) = self.timers.pop_due(next) {
                    self.handle_station_timer(next, timer, station);
                }
            } else if beacon == Some(next) {
                self.queue_beacon(next);
            } else {
                self.start_exchange(next);
            }
        }
    }

    /// Handles a contender that now has a frame to send.
    pub(super) fn join_contention(&mut self, now: Instant, number: u32) {
        let contender = &mut self.contenders[number as usize];
        if self.medium.join_contention(contender, now) {
            self.draw_backoff(number);
        }
    }
    /// Draws a back-off from the window of its next frame.
    fn draw_backoff(&mut self, number: u32) {
        let contender = &mut self.contenders[number as usize];
        let attempts = contender.queue.front().map_or(0, |frame| frame.attempts);
        let window = self.config.contention_window(attempts);
        contender.backoff = Some(self.rng.sample_below(u64::from(window) + 1) as u32);
    }

    /// Returns the next exchange if no contender joins.
    fn next_exchange(&self) -> Option<FramesOnAir> {
        let first = self.medium.earliest_start(&self.contenders)?;
        let senders = self.medium.senders(&self.contenders, first).map(|(number, _)| number).collect();
        Some(FramesOnAir { senders, end: self.exchange_end_from(first) })
    }
    /// Returns the end of an exchange that starts at `first`.
    fn exchange_end_from(&self, first: Instant) -> Instant {
        let senders = self.medium.senders(&self.contenders, first);
        let ends = senders.filter_map(|(number, at)| {
            let frame = self.contenders[number as usize].queue.front()?;
            Some(at + self.times.frame_duration(frame.kind))
        });
        ends.max().unwrap_or(first)
    }

    /// Starts transmissions.
    fn start_exchange(&mut self, now: Instant) {
        let Some(exchange) = self.next_exchange() else { return };
        for &number in &exchange.senders {
            let contender = &mut self.contenders[number as usize];
            contender.sending = true;
            contender.backoff = None;
        }
        self.medium.on_air = Some(exchange);
        for number in 0..self.contenders.len() {
            let contender = &mut self.contenders[number];
            if !contender.sending && self.medium.freeze_backoff(contender, now) {
                self.draw_backoff(number as u32);
            }
        }
    }

    /// Ends the transmissions and decides their outcome.
    fn finish_exchange(&mut self, now: Instant) {
        let Some(exchange) = self.medium.on_air.take() else { return };
        let alone = exchange.senders.len() == 1;
        (self.medium.idle, self.medium.free) = (now, now + self.medium.gaps.eifs);
        if !alone {
            self.counters.collisions += 1;
            self.counters.collided += exchange.senders.len() as u64;
        }
        for &number in &exchange.senders {
            let contender = &mut self.contenders[number as usize];
            contender.sending = false;
            let Some(&frame) = contender.queue.front() else { continue };
            match frame.kind {
                FrameKind::Data { .. } if frame.attempts == 0 => self.counters.data += 1,
                FrameKind::Data { .. } => self.counters.retries += 1,
                FrameKind::Beacon => self.counters.beacons += 1,
                _ => self.counters.management += 1,
            }
            if frame.kind.is_broadcast() {
                if alone {
                    self.medium.free = now + self.medium.gaps.difs;
                }
                self.pop_first_frame(number);
                self.draw_backoff(number);
                if frame.kind == FrameKind::Beacon {
                    self.handle_sent_beacon(alone);
                } else {
                    self.contenders[number as usize].silent = true;
                    if alone && self.receive_wifi_frame(frame) {
                        self.handle_management(now, frame);
                    }
                }
            } else if alone && self.receive_wifi_frame(frame) {
                self.counters.acks += 1;
                self.stations[frame.station as usize].reset_missed_beacons();
                self.medium.idle = now + self.times.ack_duration();
                self.medium.free = self.medium.idle + self.medium.gaps.difs;
                self.pop_first_frame(number);
                self.draw_backoff(number);
                self.handle_acked_frame(now, number, frame);
            } else {
                self.handle_failed_frame(number, frame);
            }
        }
    }

    fn pop_first_frame(&mut self, number: u32) {
        let contender = &mut self.contenders[number as usize];
        if contender.queue.pop_front().is_some_and(|frame| frame.kind.is_data()) {
            contender.packets -= 1;
        }
    }

    /// True if a frame without collision is received.
    fn receive_wifi_frame(&mut self, frame: WifiFrame) -> bool {
        let station = &self.stations[frame.station as usize];
        if !station.can_exchange_frames() || !station.accepts_frame(frame.kind) {
            return false;
        }
        let lost = self.sample_noise_loss(frame.station, frame.kind);
        self.counters.frame_losses += u64::from(lost);
        !lost
    }
    /// True if noise destroys a frame of this kind between the access point and this station.
    pub(super) fn sample_noise_loss(&mut self, station: u32, kind: FrameKind) -> bool {
        let concerned = self.config.frame_loss_of == FrameLoss::All || kind.is_data();
        let here = concerned && self.is_there(self.config.frame_loss_from, station);
        here && self.config.frame_loss > 0.0 && self.rng.sample_bool(self.config.frame_loss)
    }
    /// True if the condition of a loss holds for a station.
    fn is_there(&self, from: LossFrom, station: u32) -> bool {
        match from {
            LossFrom::Always => true,
            LossFrom::GoingDown => self.stations[station as usize].is_beyond_threshold(),
        }
    }

    /// Handles an unacknowledged frame.
    fn handle_failed_frame(&mut self, number: u32, frame: WifiFrame) {
        let station = &self.stations[frame.station as usize];
        let hopeless = !station.accepts_frame(frame.kind);
        let tuned = station.can_exchange_frames();
        if let Some(first) = self.contenders[number as usize].queue.front_mut() {
            first.attempts = frame.attempts.saturating_add(1);
        }
        if hopeless || frame.attempts >= self.config.retransmissions {
            self.pop_first_frame(number);
            if let FrameKind::Data { handle, .. } = frame.kind {
                let why =
                    if tuned && !hopeless { DropReason::RetriesExhausted } else { DropReason::OutOfReach };
                self.drop_packet(frame_direction(number, frame.station), handle, why);
            }
        }
        self.draw_backoff(number);
    }

    /// Handles an acknowledged frame.
    fn handle_acked_frame(&mut self, now: Instant, number: u32, frame: WifiFrame) {
        let FrameKind::Data { handle, .. } = frame.kind else { return self.handle_management(now, frame) };
        let way = frame_direction(number, frame.station);
        let here = self.is_there(self.config.packet_loss_from, frame.station);
        if here && self.config.packet_loss > 0.0 && self.rng.sample_bool(self.config.packet_loss) {
            self.drop_packet(way, handle, DropReason::Lost);
            return;
        }
        match way {
            RadioDirection::Down(_) => self.counters.packets_down += 1,
            RadioDirection::Up(_) => self.counters.packets_up += 1,
        }
        self.arriving.push_back((now, way, handle));
    }

    fn drop_packet(&mut self, way: RadioDirection, handle: u32, why: DropReason) {
        *match why {
            DropReason::QueueFull => &mut self.counters.queue_full,
            DropReason::Lost => &mut self.counters.packet_losses,
            DropReason::RetriesExhausted => &mut self.counters.given_up,
            DropReason::OutOfReach => &mut self.counters.out_of_reach,
        } += 1;
        self.dropped.push_back((way, handle, why));
    }

    /// Drops the queues of and for a station that is no longer associated.
    pub(super) fn purge_station(&mut self, station: u32) {
        let mut packets = Vec::new();
        for number in [ACCESS_POINT, contender_index(station)] {
            let of = &self.stations[station as usize];
            let contender = &mut self.contenders[number as usize];
            let keep = usize::from(contender.sending);
            let (mut position, before) = (0, packets.len());
            contender.queue.retain(|frame| {
                position += 1;
                let stays = position <= keep || frame.station != station || of.accepts_frame(frame.kind);
                if let (false, FrameKind::Data { handle, .. }) = (stays, frame.kind) {
                    packets.push((frame_direction(number, station), handle));
                }
                stays
            });
            contender.packets -= packets.len() - before;
        }
        for (way, handle) in packets {
            self.drop_packet(way, handle, DropReason::OutOfReach);
        }
    }
}

/// Returns the direction of a station's frame that this contender sends.
const fn frame_direction(number: u32, station: u32) -> RadioDirection {
    if number == ACCESS_POINT { RadioDirection::Down(station) } else { RadioDirection::Up(station) }
}
