//! Stations that move: coverage, scans, network entry by command, and link events.

use super::cell::{WimaxCell, WimaxStationState};
use super::config::{NetworkEntryTrigger, WimaxConfig};
use super::contention::ContentionAttempts;
use crate::radio::motion::{Position, Trajectory};
use crate::radio::{DropReason, LinkCommand, LinkDownReason, LinkEvent, RadioDirection};
use usher_core::Instant;
use usher_core::timer::TimerQueue;

/// A timer of a station. Timers of the same time expire in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum CoverageTimer {
    /// Stations in the cell from the start report it.
    Start,
    /// A station comes into reach.
    Enter,
    /// It goes beyond the threshold.
    Far,
    /// It goes out of reach.
    Leave,
    /// Its search for the base station ends.
    Searched,
}

/// A search for the base station.
#[derive(Clone, Copy, Debug)]
struct CellSearch {
    /// True if both were in reach of each other at its start.
    in_reach: bool,
    /// True if its outcome is reported.
    scans: bool,
    /// True if network entry follows success.
    connects: bool,
}

/// The link state of a station.
#[derive(Debug)]
pub(super) struct StationCoverage {
    pub(super) is_in_range: bool,
    /// True beyond the threshold and outbound.
    far: bool,
    leaves: Option<Instant>,
    /// True if it knows the downlink and its descriptors.
    synchronised: bool,
    search: Option<CellSearch>,
    /// True after a command to connect.
    pub(super) commanded: bool,
}

impl StationCoverage {
    pub(super) fn new(
        config: &WimaxConfig,
        timers: &mut TimerQueue<(CoverageTimer, u32)>,
        base_station: Position,
        number: u32,
        way: &Trajectory,
    ) -> Self {
        let mut reach = Self {
            is_in_range: true,
            far: false,
            leaves: None,
            synchronised: config.entry == NetworkEntryTrigger::Done,
            search: None,
            commanded: false,
        };
        let Some(radius) = config.radius else { return reach };
        let (enters, leaves) = way.circle_crossings(base_station, radius);
        let begins_inside = way.distance_at(base_station, Instant::ZERO) <= radius;
        // A station that leaves the cell without entering it starts inside. A station that does neither never crosses
        // the edge.
        reach.is_in_range = enters.is_none() && (leaves.is_some() || begins_inside);
        reach.synchronised &= reach.is_in_range;
        reach.leaves = leaves;
        let far = config.going_down.filter(|_| leaves.is_some()).map(|threshold| {
            // A station that never comes within the threshold moves away from its nearest point on.
            let (_, outward) = way.circle_crossings(base_station, threshold);
            outward.unwrap_or_else(|| way.closest_time(base_station))
        });
        for (at, timer) in
            [(enters, CoverageTimer::Enter), (far, CoverageTimer::Far), (leaves, CoverageTimer::Leave)]
        {
            if let Some(at) = at {
                timers.insert(at, (timer, number));
            }
        }
        reach
    }
}

impl WimaxCell {
    /// Applies a command to a station's link. Commands that do not fit its state are ignored and counted: a scan
    /// during a scan or network entry, a disconnection of an unconnected station. A station in the cell is found and
    /// connected at once.
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
                    self.start_commanded_entry(now, station);
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

    /// Returns the next link event, and its station.
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
        self.reaches.insert(until, (CoverageTimer::Searched, number));
        self.counters.scans += u64::from(scans);
    }

    fn start_commanded_entry(&mut self, now: Instant, number: u32) {
        self.stations[number as usize].reach.commanded = true;
        self.attempt_ranging(now, number, ContentionAttempts::default());
    }

    /// Handles a station's timer.
    pub(super) fn handle_coverage_timer(&mut self, now: Instant, timer: CoverageTimer, number: u32) {
        if timer == CoverageTimer::Start {
            for station in 0..self.stations.len() as u32 {
                if self.stations[station as usize].state.is_in() {
                    self.report_link_up(now, station);
                }
            }
            return;
        }
        let s = &mut self.stations[number as usize];
        match timer {
            CoverageTimer::Start => {}
            CoverageTimer::Enter => s.reach.is_in_range = true,
            CoverageTimer::Far => {
                s.reach.far = true;
                self.report_going_down(now, number);
            }
            CoverageTimer::Leave => {
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
            CoverageTimer::Searched => {
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
                        WimaxStationState::Outside => self.start_commanded_entry(now, number),
                        // An earlier packet has already started network entry.
                        WimaxStationState::Ranging(..) | WimaxStationState::Entering(_) => {}
                        WimaxStationState::Idle
                        | WimaxStationState::Requesting(..)
                        | WimaxStationState::Served => self.report_link_up(now, number),
                    },
                }
            }
        }
    }

    /// Reports that a station is in the cell.
    pub(super) fn report_link_up(&mut self, now: Instant, number: u32) {
        self.events.push_back((number, LinkEvent::Up));
        self.report_going_down(now, number);
    }
    /// Reports the time left of a station in the cell beyond the threshold.
    fn report_going_down(&mut self, now: Instant, number: u32) {
        let s = &self.stations[number as usize];
        if let (true, true, Some(leaves)) = (s.state.is_in(), s.reach.far, s.reach.leaves) {
            self.events.push_back((number, LinkEvent::GoingDown { time_left: leaves.duration_since(now) }));
        }
    }

    /// Takes a station out of the cell, or ends its entry. Drops its packets in queues and on the air.
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
        let up = s.up.drain().map(|handle| (RadioDirection::Up(number), handle));
        let mut lost: Vec<_> =
            up.chain(s.down.drain().map(|handle| (RadioDirection::Down(number), handle))).collect();
        self.arriving.retain(|(_, way, handle)| {
            let stays = *way != RadioDirection::Up(number) && *way != RadioDirection::Down(number);
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
