//! Stations: where they are, whether they are associated, and what their links say.

use super::bss::{ACCESS_POINT, Bss, contender};
use super::config::{FrameLoss, WifiConfig};
use super::frame::{Frame, Kind};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{LinkCommand, LinkDownReason, LinkEvent};
use usher_core::Instant;
use usher_core::timer::TimerQueue;

/// What a time is for; of those at the same time the first here comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Timer {
    /// All stations say where they stand.
    Start,
    /// A station comes into reach.
    Enter,
    /// It comes nearer than the threshold.
    Near,
    /// It goes farther away than that.
    Far,
    /// It goes out of reach.
    Leave,
    /// A scan goes on to its next part.
    Scan,
    /// An association has taken too long.
    Entry,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Out,
    /// Has asked for authentication.
    Authenticating {
        until: Instant,
    },
    /// Has asked for association.
    Associating {
        until: Instant,
    },
    Associated,
}

/// Which part of a scan a station is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scan {
    /// On channels before the access point's.
    Before,
    /// On the access point's, having begun then.
    Listening { since: Instant, heard: bool },
    /// On channels after it.
    After { found: bool },
}

/// A station.
#[derive(Debug)]
pub(super) struct Station {
    state: State,
    in_reach: bool,
    /// Nearer than the threshold.
    near: bool,
    /// When it comes nearer than that, and when it goes out of reach.
    nears: Option<Instant>,
    leaves: Option<Instant>,
    /// It knows of the access point.
    detected: bool,
    /// Beacons in a row that it has not heard, nor anything else since.
    missed: u32,
    scan: Option<Scan>,
    /// It is to get associated after the scan.
    connects: bool,
}

impl Station {
    pub(super) fn new(
        config: &WifiConfig,
        timers: &mut TimerQueue<(Timer, u32)>,
        access_point: Position,
        number: u32,
        way: &Trajectory,
    ) -> Self {
        let mut crosses = |radius: f64, inward: Timer, outward: Timer| {
            let (enters, leaves) = way.crossings(access_point, radius);
            for (at, timer) in [(enters, inward), (leaves, outward)] {
                if let Some(at) = at {
                    timers.insert(at, (timer, number));
                }
            }
            // Who leaves without having come has been inside; who does neither stays where it is.
            let stays = way.distance(access_point, Instant::ZERO) <= radius;
            (enters.is_none() && (leaves.is_some() || stays), enters, leaves)
        };
        let (in_reach, _, leaves) = crosses(config.radius, Timer::Enter, Timer::Leave);
        let (near, nears, _) = crosses(config.going_down, Timer::Near, Timer::Far);
        Self {
            state: if config.associated && in_reach { State::Associated } else { State::Out },
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
        self.state == State::Associated
    }
    /// Farther away than the threshold.
    pub(super) const fn is_far(&self) -> bool {
        !self.near
    }
    /// It and the access point hear each other.
    pub(super) const fn is_tuned(&self) -> bool {
        self.in_reach && matches!(self.scan, None | Some(Scan::Listening { .. }))
    }
    /// It hears from the access point, be it an acknowledgement.
    pub(super) const fn hears(&mut self) {
        self.missed = 0;
    }
    /// A frame of this kind, from it or for it, is of use.
    pub(super) const fn wants(&self, kind: Kind) -> bool {
        match kind {
            Kind::Data { .. } => matches!(self.state, State::Associated),
            Kind::Beacon | Kind::ProbeRequest | Kind::ProbeResponse => true,
            _ => matches!(self.state, State::Authenticating { .. } | State::Associating { .. }),
        }
    }
    /// A beacon, heard or not, would be news.
    const fn awaits_beacon(&self) -> bool {
        match (self.state, self.scan) {
            (_, Some(Scan::Listening { heard, .. })) => self.in_reach && !heard,
            (_, Some(_)) => false,
            (State::Associated, None) => !self.in_reach,
            (_, None) => self.in_reach && !self.detected,
        }
    }
}

impl Bss {
    /// Tells a station's link what to do. A command that does not fit its state is ignored and counted: a scan during a
    /// scan or an association, an association of who is associated or about to be, the end of what is not. An association
    /// that is asked for during a scan begins after it.
    pub fn command(&mut self, now: Instant, station: u32, command: LinkCommand) {
        self.catch_up(now);
        let Some(s) = self.stations.get_mut(station as usize) else {
            self.counters.ignored_commands += 1;
            return;
        };
        match (command, s.state) {
            (LinkCommand::Scan, State::Out | State::Associated) if s.scan.is_none() => {
                s.scan = Some(Scan::Before);
                self.contenders[contender(station) as usize].silent = true;
                let channels = u64::from(self.config.channel - 1);
                self.timers.insert(now + self.config.min_channel_time * channels, (Timer::Scan, station));
            }
            (LinkCommand::Connect, State::Out) if s.scan.is_some() && !s.connects => s.connects = true,
            (LinkCommand::Connect, State::Out) if s.scan.is_none() => self.connect(now, station),
            (LinkCommand::Disconnect, state) if state != State::Out || s.connects => {
                self.leave(station, LinkDownReason::Disconnected);
            }
            _ => self.counters.ignored_commands += 1,
        }
    }

    /// A station's time has come.
    pub(super) fn expire(&mut self, now: Instant, timer: Timer, station: u32) {
        if timer == Timer::Start {
            return self.start(now);
        }
        let s = &mut self.stations[station as usize];
        match timer {
            Timer::Start => {}
            Timer::Enter => {
                s.in_reach = true;
                self.notice(station);
            }
            Timer::Near => s.near = true,
            Timer::Far => {
                s.near = false;
                self.forecast(now, station);
            }
            Timer::Leave => {
                s.in_reach = false;
                s.detected = false;
                if self.config.beacons.is_none() && s.is_associated() {
                    self.leave(station, LinkDownReason::OutOfReach);
                }
            }
            Timer::Scan => self.scan_on(now, station),
            Timer::Entry => self.leave(station, LinkDownReason::EntryFailed),
        }
    }

    fn start(&mut self, now: Instant) {
        for station in 0..self.stations.len() as u32 {
            if self.stations[station as usize].is_associated() {
                self.counters.associations += 1;
                self.events.push_back((station, LinkEvent::Up));
                self.forecast(now, station);
            } else {
                self.notice(station);
            }
        }
    }

    /// Without beacons a station that comes into reach knows it at once.
    fn notice(&mut self, station: u32) {
        let s = &self.stations[station as usize];
        if self.config.beacons.is_none() && s.in_reach && s.scan.is_none() {
            self.detect(station);
        }
    }
    fn detect(&mut self, station: u32) {
        let s = &mut self.stations[station as usize];
        if s.state == State::Out && !s.detected {
            s.detected = true;
            self.events.push_back((station, LinkEvent::Detected));
        }
    }
    /// An associated station beyond the threshold says when it will be gone.
    fn forecast(&mut self, now: Instant, station: u32) {
        let s = &self.stations[station as usize];
        let goes = s.is_associated() && s.in_reach && s.is_far() && s.nears.is_none_or(|at| at <= now);
        if let Some(leaves) = s.leaves.filter(|_| goes) {
            self.events.push_back((station, LinkEvent::GoingDown { within: leaves.since(now) }));
        }
    }

    /// The link of a station is no more, or has not come up.
    fn leave(&mut self, station: u32, why: LinkDownReason) {
        let s = &mut self.stations[station as usize];
        if let State::Authenticating { until } | State::Associating { until } = s.state {
            self.timers.remove(until, (Timer::Entry, station));
        }
        s.state = State::Out;
        s.connects = false;
        s.detected &= why != LinkDownReason::OutOfReach;
        self.events.push_back((station, LinkEvent::Down(why)));
        self.purge(station);
    }

    fn connect(&mut self, now: Instant, station: u32) {
        let until = now + self.config.entry_timeout;
        let s = &mut self.stations[station as usize];
        s.connects = false;
        s.state = State::Authenticating { until };
        self.timers.insert(until, (Timer::Entry, station));
        self.say(now, contender(station), Kind::AuthenticationRequest, station);
    }

    /// Sends a frame before all packets.
    fn say(&mut self, now: Instant, from: u32, kind: Kind, station: u32) {
        let contender = &mut self.contenders[from as usize];
        let waits = contender.queue.is_empty() && !contender.silent;
        contender.push_first(Frame::new(kind, station));
        if waits {
            self.join(now, from);
        }
    }

    /// A management frame other than a beacon is received.
    pub(super) fn heard(&mut self, now: Instant, frame: Frame) {
        let station = frame.station;
        let s = &mut self.stations[station as usize];
        match (frame.kind, s.state) {
            (Kind::ProbeRequest, _) => self.say(now, ACCESS_POINT, Kind::ProbeResponse, station),
            (Kind::ProbeResponse, _) => self.found(station),
            (Kind::AuthenticationRequest, _) => {
                self.say(now, ACCESS_POINT, Kind::AuthenticationResponse, station);
            }
            (Kind::AuthenticationResponse, State::Authenticating { until }) => {
                s.state = State::Associating { until };
                self.say(now, contender(station), Kind::AssociationRequest, station);
            }
            (Kind::AssociationRequest, _) => {
                self.say(now, ACCESS_POINT, Kind::AssociationResponse, station);
            }
            (Kind::AssociationResponse, State::Associating { until }) => {
                self.timers.remove(until, (Timer::Entry, station));
                s.state = State::Associated;
                s.detected = true;
                s.missed = 0;
                self.counters.associations += 1;
                self.events.push_back((station, LinkEvent::Up));
                self.forecast(now, station);
            }
            _ => {}
        }
    }

    /// A scanning station hears the access point.
    fn found(&mut self, station: u32) {
        if let Some(Scan::Listening { heard, .. }) = &mut self.stations[station as usize].scan {
            *heard = true;
            self.detect(station);
        }
    }

    fn scan_on(&mut self, now: Instant, station: u32) {
        let s = &mut self.stations[station as usize];
        let number = contender(station) as usize;
        match s.scan {
            None => {}
            Some(Scan::Before) => {
                s.scan = Some(Scan::Listening { since: now, heard: false });
                self.timers.insert(now + self.config.min_channel_time, (Timer::Scan, station));
                self.probe(now, station);
            }
            Some(Scan::Listening { since, heard }) => {
                let longest = since + self.config.max_channel_time;
                if heard && now < longest {
                    self.timers.insert(longest, (Timer::Scan, station));
                    return;
                }
                s.scan = Some(Scan::After { found: heard });
                let contender = &mut self.contenders[number];
                contender.silent = true;
                let keep = usize::from(contender.sending);
                let mut position = 0;
                contender.queue.retain(|frame| {
                    position += 1;
                    position <= keep || frame.kind != Kind::ProbeRequest
                });
                let channels = u64::from(self.config.channels - self.config.channel);
                self.timers.insert(now + self.config.min_channel_time * channels, (Timer::Scan, station));
            }
            Some(Scan::After { found }) => {
                s.scan = None;
                self.events.push_back((station, LinkEvent::Scanned { found }));
                let connects = s.connects;
                self.contenders[number].silent = false;
                if !self.contenders[number].queue.is_empty() {
                    self.join(now, contender(station));
                }
                if connects {
                    self.connect(now, station);
                }
                self.notice(station);
            }
        }
    }

    /// The station is on the access point's channel: the probe goes, then nothing.
    fn probe(&mut self, now: Instant, station: u32) {
        let number = contender(station);
        let contender = &mut self.contenders[number as usize];
        contender.silent = false;
        contender.push_first(Frame::new(Kind::ProbeRequest, station));
        self.join(now, number);
    }

    /// The target beacon transmission time.
    pub(super) fn announce(&mut self, now: Instant) {
        let Some(interval) = self.config.beacons else { return };
        self.beacon_due = Some(now + interval).filter(|at| *at < Instant::FAR_FUTURE);
        let contender = &mut self.contenders[ACCESS_POINT as usize];
        if contender.queue.iter().take(2).any(|frame| frame.kind == Kind::Beacon) {
            return;
        }
        let waits = contender.queue.is_empty();
        contender.queue.insert(usize::from(contender.sending), Frame::new(Kind::Beacon, 0));
        if waits {
            self.join(now, ACCESS_POINT);
        }
    }

    /// The next beacon is waited for by somebody.
    pub(super) fn beacon_matters(&self) -> bool {
        let noise = self.config.frame_loss > 0.0 && self.config.frame_loss_of == FrameLoss::All;
        self.stations.iter().any(|s| noise && s.is_associated() || s.awaits_beacon())
    }

    /// A beacon has been sent, alone or not.
    pub(super) fn beacon_sent(&mut self, alone: bool) {
        for station in 0..self.stations.len() as u32 {
            let s = &self.stations[station as usize];
            if !s.is_tuned() && s.scan.is_some() {
                continue;
            }
            let hears = alone && s.is_tuned() && !self.noise(station, Kind::Beacon);
            let s = &mut self.stations[station as usize];
            if hears {
                s.hears();
                self.found(station);
                self.detect(station);
            } else if s.is_associated() {
                s.missed += 1;
                if s.missed >= self.config.beacons_missed {
                    self.leave(station, LinkDownReason::OutOfReach);
                }
            }
        }
    }
}
