//! Cells and basic service sets: links that share one medium.
//!
//! A link joins each station with its base station. It has ports, routes, captures and counters like any other,
//! but the cell decides when its packets arrive or are lost.

use super::{SimError, SimEvent, Simulation, SimulationBuilder, SimulationScope};
use crate::addr::HostId;
use crate::app::{AppDelivery, Application, ReportObserver};
use crate::link::{LinkConfig, LinkFraming, LinkId};
use crate::packet::{Packet, PacketBody, PacketRef};
use crate::radio::motion::{Position, Trajectory};
use crate::radio::wifi::{self, Bss, DATA_HEADER, WifiConfig};
use crate::radio::wimax::{self, PDU, WimaxCell, WimaxConfig};
use crate::radio::{DropReason, LinkCommand, LinkEvent, RadioDirection};
use std::collections::{BTreeMap, VecDeque};
use usher_core::{Duration, Instant};

/// Octets of the Ethernet header, which does not go on the air: a connection identifier replaces it.
const FRAME_HEADER: u32 = 14;

/// Returns the octets of a packet or frame on the air, without those that the medium adds.
fn octets_on_air(packet: &Packet) -> u32 {
    let header = if matches!(packet.body, PacketBody::Frame(_)) { FRAME_HEADER } else { 0 };
    packet.len.saturating_sub(header)
}

/// A cell or basic service set: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellId(u32);

/// The machine of a medium.
#[derive(Debug)]
enum RadioMedium {
    Wimax(Box<WimaxCell>),
    Wifi(Box<Bss>),
}

/// Calls the machine of either medium.
macro_rules! medium {
    ($medium:expr, $machine:ident => $call:expr) => {
        match $medium {
            RadioMedium::Wimax($machine) => $call,
            RadioMedium::Wifi($machine) => $call,
        }
    };
}

impl RadioMedium {
    /// Octets that the medium adds to a packet.
    const fn packet_overhead(&self) -> u32 {
        match self {
            Self::Wimax(_) => PDU,
            Self::Wifi(_) => DATA_HEADER,
        }
    }
}

/// A cell with its links.
#[derive(Debug)]
pub(super) struct RadioCell {
    medium: RadioMedium,
    /// The direction from the first station to the base station. The reverse follows, then those of the next station.
    first: u32,
    /// Link events not delivered yet.
    events: VecDeque<(u32, LinkEvent)>,
    /// The time of its one valid event in the event queue; far future if none.
    armed: Instant,
}

impl RadioCell {
    const fn direction_index(&self, way: RadioDirection) -> u32 {
        match way {
            RadioDirection::Up(station) => self.first + 2 * station,
            RadioDirection::Down(station) => self.first + 2 * station + 1,
        }
    }
    const fn station_direction(&self, direction: u32) -> RadioDirection {
        let number = direction - self.first;
        let station = number / 2;
        if number % 2 == 1 { RadioDirection::Down(station) } else { RadioDirection::Up(station) }
    }
}

/// Stations and the listeners to their link events.
#[derive(Debug, Default)]
pub(super) struct StationLinkRegistry {
    /// The cell of each station, and its number there.
    stations: BTreeMap<HostId, (u32, u32)>,
    /// Applications that receive the link events of a station, or of all stations of a base station or access point.
    listeners: BTreeMap<HostId, Vec<u32>>,
}

impl<A: Application> SimulationBuilder<A> {
    /// Joins stations with a base station by an 802.16 cell. Each station gets a link, whose first host it is, in the
    /// order of the stations. The links become the hosts' next ports. IP packets of up to `mtu` octets are sent
    /// unchanged. The Ethernet header of a frame does not go on the air, where a connection identifier replaces it;
    /// captures show a header with every packet.
    ///
    /// Place the stations first, by [`Self::set_host_trajectory`].
    ///
    /// # Errors
    /// [`SimError::Cell`].
    pub fn add_wimax_cell(
        &mut self,
        base_station: HostId,
        stations: &[HostId],
        config: &WimaxConfig,
        mtu: u32,
    ) -> Result<(CellId, Vec<LinkId>), SimError> {
        let number = self.cells.len() as u64;
        let (base, ways) = self.station_positions(base_station, stations);
        let mut cell = WimaxCell::new(*config, self.seed.derive_rng("cell", number), base, ways)?;
        let mut phase = self.seed.derive_rng("cell.descriptors", number);
        cell.set_descriptor_phase(phase.sample_duration(Duration::ZERO, config.descriptor_interval));
        Ok(self.add_radio_medium(base_station, stations, RadioMedium::Wimax(Box::new(cell)), mtu))
    }

    /// Joins stations with an access point by an 802.11 basic service set, like [`Self::add_wimax_cell`]. The Ethernet
    /// header of a frame does not go on the air, where an 802.11 header and LLC replace it.
    ///
    /// # Errors
    /// [`SimError::Bss`].
    pub fn add_wifi_bss(
        &mut self,
        access_point: HostId,
        stations: &[HostId],
        config: &WifiConfig,
        mtu: u32,
    ) -> Result<(CellId, Vec<LinkId>), SimError> {
        let rng = self.seed.derive_rng("bss", self.cells.len() as u64);
        let (base, ways) = self.station_positions(access_point, stations);
        let bss = Bss::new(*config, rng, base, ways)?;
        Ok(self.add_radio_medium(access_point, stations, RadioMedium::Wifi(Box::new(bss)), mtu))
    }

    /// Makes a link carry IP within PPPoE, like its framing setting. It must not be a station's link.
    pub fn set_pppoe_framing(&mut self, link: LinkId) {
        for direction in self.directions.iter_mut().skip(2 * link.0 as usize).take(2) {
            direction.framing = LinkFraming::Pppoe;
        }
    }

    fn station_positions(&self, base: HostId, stations: &[HostId]) -> (Position, Vec<Trajectory>) {
        let way = |host: &HostId| self.trajectories.get(host).copied().unwrap_or_default();
        (way(&base).start, stations.iter().map(way).collect())
    }

    /// Replaces the links between stations and their base station by a medium.
    fn add_radio_medium(
        &mut self,
        base_station: HostId,
        stations: &[HostId],
        medium: RadioMedium,
        mtu: u32,
    ) -> (CellId, Vec<LinkId>) {
        let number = self.cells.len() as u32;
        let first = self.directions.len();
        let link = LinkConfig { mtu, framing: LinkFraming::Ethernet, ..LinkConfig::default() };
        let links = stations.iter().map(|station| self.add_link(*station, base_station, &link)).collect();
        for direction in &mut self.directions[first..] {
            direction.extras_mut().cell = Some(number);
        }
        for (i, station) in (0..).zip(stations) {
            self.air.stations.insert(*station, (number, i));
        }
        let events = VecDeque::new();
        self.cells.push(RadioCell { medium, first: first as u32, events, armed: Instant::FAR_FUTURE });
        (CellId(number), links)
    }

    /// True if a host or interface is a station of a cell.
    pub fn is_station(&self, host: HostId) -> bool {
        self.air.stations.contains_key(&host)
    }

    /// Subscribes an application to link events. At its own host or interface, it gets the events of that station. At
    /// a base station or access point, it gets those of all stations except [`LinkEvent::Detected`] and
    /// [`LinkEvent::Scanned`], which the network cannot know.
    pub fn link_events(&mut self, app: u32, at: HostId) {
        self.air.listeners.entry(at).or_default().push(app);
    }
}

impl<A: Application, O, E: SimulationScope> Simulation<A, O, E> {
    /// Returns the counters of an 802.16 cell; `None` for another medium.
    pub fn cell_counters(&self, cell: CellId) -> Option<&wimax::CellCounters> {
        match &self.cells[cell.0 as usize].medium {
            RadioMedium::Wimax(cell) => Some(cell.counters()),
            RadioMedium::Wifi(_) => None,
        }
    }
    /// Returns the counters of an 802.11 basic service set; `None` for another medium.
    pub fn bss_counters(&self, cell: CellId) -> Option<&wifi::BssCounters> {
        match &self.cells[cell.0 as usize].medium {
            RadioMedium::Wimax(_) => None,
            RadioMedium::Wifi(bss) => Some(bss.counters()),
        }
    }
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    /// Arms the timers of cells that have events of their own.
    pub(super) fn start_cells(&mut self) {
        for number in 0..self.cells.len() as u32 {
            self.drain_radio_cell(number);
        }
    }

    /// Passes a packet to the cell of its direction.
    #[inline(never)]
    pub(super) fn send_packet_through_cell(&mut self, number: u32, index: u32, packet: PacketRef) {
        let direction = &mut self.directions[index as usize];
        let under_way = &mut self.pool[packet];
        under_way.damaged = false;
        let p = &under_way.packet;
        let frame = matches!(p.body, PacketBody::Frame(_));
        let within = if frame { 0 } else { direction.framing.overhead_within_frame() };
        let octets = octets_on_air(p) + within;
        let radio = &mut self.cells[number as usize];
        direction.count_offered(octets + radio.medium.packet_overhead(), p.is_background());
        let (way, handle) = (radio.station_direction(index), packet.to_index());
        medium!(&mut radio.medium, m => m.send(self.now, way, octets, handle));
        self.drain_radio_cell(number);
    }

    /// Applies an application's command to a link. Resulting events are delivered after this handler.
    #[inline(never)]
    pub(super) fn link_command(&mut self, app: u32, at: HostId, command: LinkCommand) {
        let ours = self.local_address(app, Some(at));
        match ours.and_then(|at| self.air.stations.get(&at).copied()) {
            Some((number, station)) => {
                let medium = &mut self.cells[number as usize].medium;
                medium!(medium, m => m.command(self.now, station, command));
                self.drain_radio_cell(number);
            }
            None => self.stats.stale_operation += u64::from(ours.is_some()),
        }
    }

    pub(super) fn handle_cell_timer(&mut self, number: u32) {
        let radio = &mut self.cells[number as usize];
        if radio.armed != self.now {
            return;
        }
        radio.armed = Instant::FAR_FUTURE;
        medium!(&mut radio.medium, m => m.handle_timeout(self.now));
        loop {
            let radio = &mut self.cells[number as usize];
            let arrived = medium!(&mut radio.medium, m => m.poll_delivery(self.now));
            let Some((way, handle)) = arrived else { break };
            let direction = radio.direction_index(way);
            self.handle_arrived_packet(direction, PacketRef::from_index(handle));
        }
        self.collect_events(number);
        while let Some((station, event)) = self.cells[number as usize].events.pop_front() {
            self.notify_link_listeners(number, station, event);
        }
        self.drain_radio_cell(number);
    }

    /// Delivers a link event to its listeners.
    fn notify_link_listeners(&mut self, number: u32, station: u32, event: LinkEvent) {
        let direction = self.cells[number as usize].direction_index(RadioDirection::Up(station));
        let (station, base) =
            (self.directions[direction as usize].from, self.directions[direction as usize].to);
        let private = matches!(event, LinkEvent::Detected | LinkEvent::Scanned { .. });
        for (at, hears) in [(station, true), (base, !private)] {
            let listeners = if hears { self.air.listeners.get(&at).cloned() } else { None };
            for app in listeners.unwrap_or_default() {
                if !self.hosts[self.apps[app as usize].host.0 as usize].down {
                    self.deliver(app, AppDelivery::Link { host: at, station, event });
                }
            }
        }
    }

    fn collect_events(&mut self, number: u32) {
        let radio = &mut self.cells[number as usize];
        while let Some(event) = medium!(&mut radio.medium, m => m.poll_link_event()) {
            if !self.air.listeners.is_empty() {
                radio.events.push_back(event);
            }
        }
    }

    /// Releases packets that a cell dropped, and arms its timer.
    fn drain_radio_cell(&mut self, number: u32) {
        let radio = &mut self.cells[number as usize];
        while let Some((way, handle, why)) = medium!(&mut radio.medium, m => m.poll_drop()) {
            let stats = &mut self.directions[radio.direction_index(way) as usize].extras_mut().stats;
            *match why {
                DropReason::QueueFull => &mut stats.queue_full,
                DropReason::Lost | DropReason::RetriesExhausted | DropReason::OutOfReach => &mut stats.lost,
            } += 1;
            let packet = PacketRef::from_index(handle);
            stats.dropped_bytes +=
                u64::from(octets_on_air(&self.pool[packet].packet) + radio.medium.packet_overhead());
            self.pool.release(packet);
        }
        self.collect_events(number);
        let radio = &mut self.cells[number as usize];
        // Pending link events need a time too: they are delivered by an event of the cell, while no application runs.
        let speaks = (!radio.events.is_empty()).then_some(self.now);
        let next = medium!(&radio.medium, m => m.poll_timeout()).into_iter().chain(speaks).min();
        if let Some(at) = next.map(|at| at.max(self.now)).filter(|at| *at < radio.armed) {
            radio.armed = at;
            self.schedule_event(at, SimEvent::Cell(number));
        }
    }
}
