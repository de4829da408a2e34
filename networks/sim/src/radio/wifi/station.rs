//! Stations: coverage, association, scans and link events.

use super::bss::{ACCESS_POINT, Bss, contender_index};
use super::config::{FrameLoss, WifiConfig};
use super::frame::{FrameKind, WifiFrame};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{LinkCommand, LinkDownReason, LinkEvent};
use usher_core::Instant;
use usher_core::timer::TimerQueue;

/// A timer of a station. Timers of the same time expire in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum WifiStationTimer {
    /// All stations report their initial state.
    Start,
    /// A station comes into reach.
    Enter,
    /// It comes within the threshold.
    Near,
    /// It goes beyond the threshold.
    Far,
    /// It goes out of reach.
    Leave,
    /// A scan enters its next phase.
    Scan,
    /// An association times out.
    Entry,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WifiStationState {
    Out,
    /// Waits for the authentication response.
    Authenticating {
        until: Instant,
    },
    /// Waits for the association response.
    Associating {
        until: Instant,
    },
    Associated,
}

/// The phase of a station's scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WifiScanPhase {
    /// On channels before the access point's.
    BeforeChannel,
    /// On the access point's channel since this time.
    Listening { since: Instant, has_heard_beacon: bool },
    /// On channels after it.
    AfterChannel { found: bool },
}

/// A station.
#[derive(Debug)]
pub(super) struct WifiStation {
    state: WifiStationState,
    in_reach: bool,
    /// True within the threshold.
    near: bool,
    /// When it comes within the threshold, and when it goes out of reach.
    nears: Option<Instant>,
    leaves: Option<Instant>,
    /// True if it knows the access point.
    detected: bool,
    /// Consecutive missed beacons without another frame.
    missed: u32,
    scan: Option<WifiScanPhase>,
    /// True if it associates after the scan.
    connects: bool,
}

impl WifiStation {
    pub(super) fn new(
        config: &WifiConfig,
        timers: &mut TimerQueue<(WifiStationTimer, u32)>,
        access_point: Position,
        number: u32,
        way: &Trajectory,
    ) -> Self {
        let mut crosses = |radius: f64, inward: WifiStationTimer, outward: WifiStationTimer| {
            let (enters, leaves) = way.circle_crossings(access_point, radius);
            for (at, timer) in [(enters, inward), (leaves, outward)] {
                if let Some(at) = at {
                    timers.insert(at, (timer, number));
                }
            }
            // A station that leaves the cell without entering it starts inside. A station that does neither never
            // crosses the edge.
            let stays = way.distance_at(access_point, Instant::ZERO) <= radius;
            (enters.is_none() && (leaves.is_some() || stays), enters, leaves)
        };
        let (in_reach, _, leaves) = crosses(config.radius, WifiStationTimer::Enter, WifiStationTimer::Leave);
        let (near, nears, _) = crosses(config.going_down, WifiStationTimer::Near, WifiStationTimer::Far);
        Self {
            state: if config.associated && in_reach {
                WifiStationState::Associated
            } else {
                WifiStationState::Out
            },
            in_reach,
            near,
            nears,
            leaves,
            detected: config.associated && in_reach,
            missed: 0,
            scan: None,
            connects: false,
        }
    }

    pub(super) fn is_associated(&self) -> bool {
        self.state == WifiStationState::Associated
    }
    /// True beyond the threshold.
    pub(super) const fn is_beyond_threshold(&self) -> bool {
        !self.near
    }
    /// True if it and the access point receive each other.
    pub(super) const fn can_exchange_frames(&self) -> bool {
        self.in_reach && matches!(self.scan, None | Some(WifiScanPhase::Listening { .. }))
    }
    /// Resets the count of missed beacons after a frame from the access point, even an acknowledgement.
    pub(super) const fn reset_missed_beacons(&mut self) {
        self.missed = 0;
    }
    /// True if a frame of this kind, to or from it, is accepted.
    pub(super) const fn accepts_frame(&self, kind: FrameKind) -> bool {
        match kind {
            FrameKind::Data { .. } => matches!(self.state, WifiStationState::Associated),
            FrameKind::Beacon | FrameKind::ProbeRequest | FrameKind::ProbeResponse => true,
            _ => matches!(
                self.state,
                WifiStationState::Authenticating { .. } | WifiStationState::Associating { .. }
            ),
        }
    }
    /// True if a beacon, received or missed, changes its state.
    const fn awaits_beacon(&self) -> bool {
        match (self.state, self.scan) {
            (_, Some(WifiScanPhase::Listening { has_heard_beacon: heard, .. })) => self.in_reach && !heard,
            (_, Some(_)) => false,
            (WifiStationState::Associated, None) => !self.in_reach,
            (_, None) => self.in_reach && !self.detected,
        }
    }
}

impl Bss {
    /// Applies a command to a station's link. Commands that do not fit its state are ignored and counted: a scan
    /// during a scan or an association, an association of an associated or associating station, a disconnection of an
    /// unconnected one. An association requested during a scan starts after it.
    pub fn command(&mut self, now: Instant, station: u32, command: LinkCommand) {
        self.handle_due_wifi_events(now);
        let Some(s) = self.stations.get_mut(station as usize) else {
            self.counters.ignored_commands += 1;
            return;
        };
        match (command, s.state) {
            (LinkCommand::Scan, WifiStationState::Out | WifiStationState::Associated) if s.scan.is_none() => {
                s.scan = Some(WifiScanPhase::BeforeChannel);
                self.contenders[contender_index(station) as usize].silent = true;
                let channels = u64::from(self.config.channel - 1);
                self.timers
                    .insert(now + self.config.min_channel_time * channels, (WifiStationTimer::Scan, station));
            }
            (LinkCommand::Connect, WifiStationState::Out) if s.scan.is_some() && !s.connects => {
                s.connects = true
            }
            (LinkCommand::Connect, WifiStationState::Out) if s.scan.is_none() => {
                self.start_association(now, station)
            }
            (LinkCommand::Disconnect, state) if state != WifiStationState::Out || s.connects => {
                self.take_link_down(station, LinkDownReason::Disconnected);
            }
            _ => self.counters.ignored_commands += 1,
        }
    }

    /// Handles a station's timer.
    pub(super) fn handle_station_timer(&mut self, now: Instant, timer: WifiStationTimer, station: u32) {
        if timer == WifiStationTimer::Start {
            return self.start_stations(now);
        }
        let s = &mut self.stations[station as usize];
        match timer {
            WifiStationTimer::Start => {}
            WifiStationTimer::Enter => {
                s.in_reach = true;
                self.detect_without_beacon(station);
            }
            WifiStationTimer::Near => s.near = true,
            WifiStationTimer::Far => {
                s.near = false;
                self.report_going_down(now, station);
            }
            WifiStationTimer::Leave => {
                s.in_reach = false;
                s.detected = false;
                if self.config.beacons.is_none() && s.is_associated() {
                    self.take_link_down(station, LinkDownReason::OutOfReach);
                }
            }
            WifiStationTimer::Scan => self.continue_channel_scan(now, station),
            WifiStationTimer::Entry => self.take_link_down(station, LinkDownReason::EntryFailed),
        }
    }

    fn start_stations(&mut self, now: Instant) {
        for station in 0..self.stations.len() as u32 {
            if self.stations[station as usize].is_associated() {
                self.counters.associations += 1;
                self.events.push_back((station, LinkEvent::Up));
                self.report_going_down(now, station);
            } else {
                self.detect_without_beacon(station);
            }
        }
    }

    /// Without beacons a station in reach detects the access point at once.
    fn detect_without_beacon(&mut self, station: u32) {
        let s = &self.stations[station as usize];
        if self.config.beacons.is_none() && s.in_reach && s.scan.is_none() {
            self.report_detected(station);
        }
    }
    fn report_detected(&mut self, station: u32) {
        let s = &mut self.stations[station as usize];
        if s.state == WifiStationState::Out && !s.detected {
            s.detected = true;
            self.events.push_back((station, LinkEvent::Detected));
        }
    }
    /// Reports the time left of an associated station beyond the threshold.
    fn report_going_down(&mut self, now: Instant, station: u32) {
        let s = &self.stations[station as usize];
        let goes =
            s.is_associated() && s.in_reach && s.is_beyond_threshold() && s.nears.is_none_or(|at| at <= now);
        if let Some(leaves) = s.leaves.filter(|_| goes) {
            self.events.push_back((station, LinkEvent::GoingDown { time_left: leaves.duration_since(now) }));
        }
    }

    /// Takes a station's link down, or ends its association attempt.
    fn take_link_down(&mut self, station: u32, why: LinkDownReason) {
        let s = &mut self.stations[station as usize];
        if let WifiStationState::Authenticating { until } | WifiStationState::Associating { until } = s.state
        {
            self.timers.remove(until, (WifiStationTimer::Entry, station));
        }
        s.state = WifiStationState::Out;
        s.connects = false;
        s.detected &= why != LinkDownReason::OutOfReach;
        self.events.push_back((station, LinkEvent::Down(why)));
        self.purge_station(station);
    }

    fn start_association(&mut self, now: Instant, station: u32) {
        let until = now + self.config.entry_timeout;
        let s = &mut self.stations[station as usize];
        s.connects = false;
        s.state = WifiStationState::Authenticating { until };
        self.timers.insert(until, (WifiStationTimer::Entry, station));
        self.send_management(now, contender_index(station), FrameKind::AuthenticationRequest, station);
    }

    /// Queues a management frame before all packets.
    fn send_management(&mut self, now: Instant, from: u32, kind: FrameKind, station: u32) {
        let contender = &mut self.contenders[from as usize];
        let waits = contender.queue.is_empty() && !contender.silent;
        contender.push_management_frame(WifiFrame::new(kind, station));
        if waits {
            self.join_contention(now, from);
        }
    }

    /// Handles a received management frame other than a beacon.
    pub(super) fn handle_management(&mut self, now: Instant, frame: WifiFrame) {
        let station = frame.station;
        let s = &mut self.stations[station as usize];
        match (frame.kind, s.state) {
            (FrameKind::ProbeRequest, _) => {
                self.send_management(now, ACCESS_POINT, FrameKind::ProbeResponse, station)
            }
            (FrameKind::ProbeResponse, _) => self.record_access_point_heard(station),
            (FrameKind::AuthenticationRequest, _) => {
                self.send_management(now, ACCESS_POINT, FrameKind::AuthenticationResponse, station);
            }
            (FrameKind::AuthenticationResponse, WifiStationState::Authenticating { until }) => {
                s.state = WifiStationState::Associating { until };
                self.send_management(now, contender_index(station), FrameKind::AssociationRequest, station);
            }
            (FrameKind::AssociationRequest, _) => {
                self.send_management(now, ACCESS_POINT, FrameKind::AssociationResponse, station);
            }
            (FrameKind::AssociationResponse, WifiStationState::Associating { until }) => {
                self.timers.remove(until, (WifiStationTimer::Entry, station));
                s.state = WifiStationState::Associated;
                s.detected = true;
                s.missed = 0;
                self.counters.associations += 1;
                self.events.push_back((station, LinkEvent::Up));
                self.report_going_down(now, station);
            }
            _ => {}
        }
    }

    /// Records that a scanning station received a frame of the access point.
    fn record_access_point_heard(&mut self, station: u32) {
        if let Some(WifiScanPhase::Listening { has_heard_beacon: heard, .. }) =
            &mut self.stations[station as usize].scan
        {
            *heard = true;
            self.report_detected(station);
        }
    }

    fn continue_channel_scan(&mut self, now: Instant, station: u32) {
        let s = &mut self.stations[station as usize];
        let number = contender_index(station) as usize;
        match s.scan {
            None => {}
            Some(WifiScanPhase::BeforeChannel) => {
                s.scan = Some(WifiScanPhase::Listening { since: now, has_heard_beacon: false });
                self.timers.insert(now + self.config.min_channel_time, (WifiStationTimer::Scan, station));
                self.send_probe(now, station);
            }
            Some(WifiScanPhase::Listening { since, has_heard_beacon: heard }) => {
                let longest = since + self.config.max_channel_time;
                if heard && now < longest {
                    self.timers.insert(longest, (WifiStationTimer::Scan, station));
                    return;
                }
                s.scan = Some(WifiScanPhase::AfterChannel { found: heard });
                let contender = &mut self.contenders[number];
                contender.silent = true;
                let keep = usize::from(contender.sending);
                let mut position = 0;
                contender.queue.retain(|frame| {
                    position += 1;
                    position <= keep || frame.kind != FrameKind::ProbeRequest
                });
                let channels = u64::from(self.config.channels - self.config.channel);
                self.timers
                    .insert(now + self.config.min_channel_time * channels, (WifiStationTimer::Scan, station));
            }
            Some(WifiScanPhase::AfterChannel { found }) => {
                s.scan = None;
                self.events.push_back((station, LinkEvent::Scanned { found }));
                let connects = s.connects;
                self.contenders[number].silent = false;
                if !self.contenders[number].queue.is_empty() {
                    self.join_contention(now, contender_index(station));
                }
                if connects {
                    self.start_association(now, station);
                }
                self.detect_without_beacon(station);
            }
        }
    }

    /// Sends the probe of a station on the access point's channel.
    fn send_probe(&mut self, now: Instant, station: u32) {
        let number = contender_index(station);
        let contender = &mut self.contenders[number as usize];
        contender.silent = false;
        contender.push_management_frame(WifiFrame::new(FrameKind::ProbeRequest, station));
        self.join_contention(now, number);
    }

    /// Queues the beacon at its target transmission time.
    pub(super) fn queue_beacon(&mut self, now: Instant) {
        let Some(interval) = self.config.beacons else { return };
        self.beacon_due = Some(now + interval).filter(|at| *at < Instant::FAR_FUTURE);
        let contender = &mut self.contenders[ACCESS_POINT as usize];
        if contender.queue.iter().take(2).any(|frame| frame.kind == FrameKind::Beacon) {
            return;
        }
        let waits = contender.queue.is_empty();
        contender.queue.insert(usize::from(contender.sending), WifiFrame::new(FrameKind::Beacon, 0));
        if waits {
            self.join_contention(now, ACCESS_POINT);
        }
    }

    /// True if a station awaits the next beacon.
    pub(super) fn is_beacon_awaited(&self) -> bool {
        let noise = self.config.frame_loss > 0.0 && self.config.frame_loss_of == FrameLoss::All;
        self.stations.iter().any(|s| noise && s.is_associated() || s.awaits_beacon())
    }

    /// Handles a transmitted beacon, with or without collision.
    pub(super) fn handle_sent_beacon(&mut self, alone: bool) {
        for station in 0..self.stations.len() as u32 {
            let s = &self.stations[station as usize];
            if !s.can_exchange_frames() && s.scan.is_some() {
                continue;
            }
            let hears =
                alone && s.can_exchange_frames() && !self.sample_noise_loss(station, FrameKind::Beacon);
            let s = &mut self.stations[station as usize];
            if hears {
                s.reset_missed_beacons();
                self.record_access_point_heard(station);
                self.report_detected(station);
            } else if s.is_associated() {
                s.missed += 1;
                if s.missed >= self.config.beacons_missed {
                    self.take_link_down(station, LinkDownReason::OutOfReach);
                }
            }
        }
    }
}
