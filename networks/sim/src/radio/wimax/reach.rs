//! Stations that come and go: reach, scans, network entry on command, and what their links say.

use super::cell::{WimaxCell, WimaxStationState};
use super::config::{NetworkEntry, WimaxConfig};
use super::contention::AttemptSeries;
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkCommand, LinkDownReason, LinkEvent, StationDirection};
use usher_core::Instant;
use usher_core::timer::TimerQueue;

/// What a time is for; of those at the same time the first here comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ReachTimer {
    /// Stations that are in from the start say so.
    Start,
    /// A station comes into reach.
    Enter,
    /// It goes farther away than the threshold.
    Far,
    /// It goes out of reach.
    Leave,
    /// It has looked for the base station for as long as that takes.
    Searched,
}

/// How a station looks for the base station.
#[derive(Clone, Copy, Debug)]
struct CellSearch {
    /// It and the base station were in reach of each other when it began.
    in_reach: bool,
    /// The outcome is wanted.
    scans: bool,
    /// It is to come in if it finds it.
    connects: bool,
}

/// What a station's link knows.
#[derive(Debug)]
pub(super) struct StationReach {
    pub(super) is_in_range: bool,
    /// Farther away than the threshold, and going.
    far: bool,
    leaves: Option<Instant>,
    /// It knows the downlink and its descriptors.
    synchronised: bool,
    search: Option<CellSearch>,
    /// It was told to come in.
    pub(super) commanded: bool,
}

impl StationReach {
    pub(super) fn new(
        config: &WimaxConfig,
        timers: &mut TimerQueue<(ReachTimer, u32)>,
        base_station: Position,
        number: u32,
        way: &Trajectory,
    ) -> Self {
        let mut reach = Self {
            is_in_range: true,
            far: false,
            leaves: None,
            synchronised: config.entry == NetworkEntry::Done,
            search: None,
            commanded: false,
        };
        let Some(radius) = config.radius else { return reach };
        let (enters, leaves) = way.circle_crossings(base_station, radius);
        let begins_inside = way.distance_at(base_station, Instant::ZERO) <= radius;
        // Who leaves without having come has been inside; who does neither stays where it is.
        reach.is_in_range = enters.is_none() && (leaves.is_some() || begins_inside);
        reach.synchronised &= reach.is_in_range;
        reach.leaves = leaves;
        let far = config.going_down.filter(|_| leaves.is_some()).map(|threshold| {
            // Who never comes nearer than the threshold goes away from where it is nearest.
            let (_, outward) = way.circle_crossings(base_station, threshold);
            outward.unwrap_or_else(|| way.closest_time(base_station))
        });
        for (at, timer) in [(enters, ReachTimer::Enter), (far, ReachTimer::Far), (leaves, ReachTimer::Leave)]
        {
            if let Some(at) = at {
                timers.insert(at, (timer, number));
            }
        }
        reach
    }
}

impl WimaxCell {
    /// Tells a station's link what to do. A command that does not fit its state is ignored and counted: a scan during a
    /// scan or network entry, the end of what is not. Who is in is found and connected at once.
    pub fn command(&mut self, now: Instant, station: u32, command: LinkCommand) {
        let Some(s) = self.stations.get_mut(station as usize) else {
            self.counters.ignored_commands += 1;
            return;
        };
        let inside = s.state.is_in();
        match (command, &mut s.reach.search) {
            (LinkCommand::Scan, _) if inside => {
                self.events.push_back((station, LinkEvent::Scanned { found: true }));
            }
            (LinkCommand::Connect, _) if inside => self.events.push_back((station, LinkEvent::Up)),
            (LinkCommand::Connect, Some(search)) if !search.connects => search.connects = true,
            (LinkCommand::Scan, None) if s.state == WimaxStationState::Outside => {
                self.start_search(now, station, true)
            }
            (LinkCommand::Connect, None) if s.state == WimaxStationState::Outside => {
                if s.reach.synchronised {
                    self.come_in(now, station);
                } else {
                    self.start_search(now, station, false);
                }
            }
            (LinkCommand::Disconnect, search)
                if s.state != WimaxStationState::Outside || search.is_some_and(|search| search.connects) =>
            {
                if let Some(search) = search {
                    search.connects = false;
                }
                self.take_link_down(station, DropReason::OutOfReach, LinkDownReason::Disconnected);
            }
            _ => self.counters.ignored_commands += 1,
        }
    }

    /// The next thing that a station's link has to say.
    pub fn poll_link_event(&mut self) -> Option<(u32, LinkEvent)> {
        self.events.pop_front()
    }

    fn start_search(&mut self, now: Instant, number: u32, scans: bool) {
        let reach = &mut self.stations[number as usize].reach;
        reach.search = Some(CellSearch { in_reach: reach.is_in_range, scans, connects: !scans });
        let until = if reach.is_in_range {
            self.config.synchronised_at(now, self.descriptor_phase)
        } else {
            self.config.in_vain(now)
        };
        self.reaches.insert(until, (ReachTimer::Searched, number));
        self.counters.scans += u64::from(scans);
    }

    fn come_in(&mut self, now: Instant, number: u32) {
        self.stations[number as usize].reach.commanded = true;
        self.attempt_ranging(now, number, AttemptSeries::default());
    }

    /// A station's time has come.
    pub(super) fn expire_reach(&mut self, now: Instant, timer: ReachTimer, number: u32) {
        if timer == ReachTimer::Start {
            for station in 0..self.stations.len() as u32 {
                if self.stations[station as usize].state.is_in() {
                    self.report_link_up(now, station);
                }
            }
            return;
        }
        let s = &mut self.stations[number as usize];
        match timer {
            ReachTimer::Start => {}
            ReachTimer::Enter => s.reach.is_in_range = true,
            ReachTimer::Far => {
                s.reach.far = true;
                self.report_going_down(now, number);
            }
            ReachTimer::Leave => {
                s.reach.is_in_range = false;
                s.reach.synchronised = false;
                match s.state {
                    WimaxStationState::Outside => {}
                    WimaxStationState::Ranging(..) | WimaxStationState::Entering(_) => {
                        self.take_link_down(number, DropReason::OutOfReach, LinkDownReason::EntryFailed);
                    }
                    WimaxStationState::Idle
                    | WimaxStationState::Requesting(..)
                    | WimaxStationState::Served => {
                        self.take_link_down(number, DropReason::OutOfReach, LinkDownReason::OutOfReach);
                    }
                }
            }
            ReachTimer::Searched => {
                let Some(search) = s.reach.search.take() else { return };
                let found = search.in_reach && s.reach.is_in_range;
                s.reach.synchronised = found;
                if search.scans {
                    if found {
                        self.events.push_back((number, LinkEvent::Detected));
                    }
                    self.events.push_back((number, LinkEvent::Scanned { found }));
                }
                match (search.connects, found) {
                    (false, _) => {}
                    (true, false) => {
                        self.events.push_back((number, LinkEvent::Down(LinkDownReason::EntryFailed)));
                    }
                    (true, true) => match self.stations[number as usize].state {
                        WimaxStationState::Outside => self.come_in(now, number),
                        // A packet has been faster.
                        WimaxStationState::Ranging(..) | WimaxStationState::Entering(_) => {}
                        WimaxStationState::Idle
                        | WimaxStationState::Requesting(..)
                        | WimaxStationState::Served => self.report_link_up(now, number),
                    },
                }
            }
        }
    }

    /// A station is in, and says so.
    pub(super) fn report_link_up(&mut self, now: Instant, number: u32) {
        self.events.push_back((number, LinkEvent::Up));
        self.report_going_down(now, number);
    }
    /// Who is in and beyond the threshold says when it will be gone.
    fn report_going_down(&mut self, now: Instant, number: u32) {
        let s = &self.stations[number as usize];
        if let (true, true, Some(leaves)) = (s.state.is_in(), s.reach.far, s.reach.leaves) {
            self.events.push_back((number, LinkEvent::GoingDown { time_left: leaves.duration_since(now) }));
        }
    }

    /// A station is in no longer, or does not come in; what waits for it or is on the air is dropped.
    pub(super) fn take_link_down(&mut self, number: u32, drop: DropReason, why: LinkDownReason) {
        let s = &mut self.stations[number as usize];
        match s.state {
            WimaxStationState::Ranging(_, Some(at))
            | WimaxStationState::Requesting(_, Some(at))
            | WimaxStationState::Entering(at) => {
                self.timers.remove(at, number);
            }
            WimaxStationState::Ranging(_, None) => self.ranging.remove_station(number),
            WimaxStationState::Requesting(_, None) => self.requests.remove_station(number),
            WimaxStationState::Outside | WimaxStationState::Idle | WimaxStationState::Served => {}
        }
        s.state = WimaxStationState::Outside;
        s.reach.commanded = false;
        (s.demand, s.granted) = (0, 0);
        if std::mem::take(&mut s.in_round) {
            self.round.retain(|n| *n != number);
        }
        self.wanting.retain(|n| *n != number);
        self.grants.retain(|g| g.station != number);
        let up = s.up.drain().map(|handle| (StationDirection::Up(number), handle));
        let mut lost: Vec<_> =
            up.chain(s.down.drain().map(|handle| (StationDirection::Down(number), handle))).collect();
        self.arriving.retain(|(_, way, handle)| {
            let stays = *way != StationDirection::Up(number) && *way != StationDirection::Down(number);
            if !stays {
                lost.push((*way, *handle));
            }
            stays
        });
        for (way, handle) in lost {
            self.drop_packet(way, handle, drop);
        }
        self.events.push_back((number, LinkEvent::Down(why)));
    }
}
