//! Cells: links that share one medium.
//!
//! A cell's stations are linked with its base station as by links of their own, with ports, routes, captures and
//! counters as usual; only what becomes of a packet is the cell's to say.

use super::{Builder, Event, SimError, Simulation};
use crate::addr::HostId;
use crate::app::{Application, Observer};
use crate::link::{Framing, LinkConfig, LinkId};
use crate::packet::{Body, PacketRef};
use crate::radio::wimax::{Cell, Counters, PDU, WimaxConfig};
use crate::radio::{DropReason, Way};
use usher_core::Instant;

/// Octets of a frame that do not go on the air: a connection identifier stands for its header.
const FRAME_HEADER: u32 = 14;

/// A cell: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellId(u32);

/// A cell with its links.
#[derive(Debug)]
pub(super) struct Radio {
    cell: Cell,
    /// The direction from the first station to the base station; back follows, then the next station's two.
    first: u32,
    /// The time of the one valid event for it in the event queue; far future for none.
    armed: Instant,
}

impl Radio {
    const fn direction(&self, way: Way) -> u32 {
        match way {
            Way::Up(station) => self.first + 2 * station,
            Way::Down(station) => self.first + 2 * station + 1,
        }
    }
    const fn way(&self, direction: u32) -> Way {
        let (station, down) = ((direction - self.first) / 2, (direction - self.first) % 2 == 1);
        if down { Way::Down(station) } else { Way::Up(station) }
    }
}

impl<A: Application> Builder<A> {
    /// Joins stations with a base station by an 802.16 cell. Each station gets a link, whose first host it is, in the
    /// order of the stations; the links become the hosts' next ports. IP packets of up to `mtu` octets go as they are.
    /// Of a frame, the Ethernet header does not go on the air, where a connection identifier stands for it; captures
    /// show one with every packet.
    ///
    /// # Errors
    /// [`SimError::Cell`].
    pub fn cell(
        &mut self,
        base_station: HostId,
        stations: &[HostId],
        config: &WimaxConfig,
        mtu: u32,
    ) -> Result<(CellId, Vec<LinkId>), SimError> {
        let number = self.cells.len() as u32;
        let rng = self.seed.stream("cell", u64::from(number));
        let cell = Cell::new(*config, rng, stations.len() as u32)?;
        let first = self.directions.len();
        let link = LinkConfig { mtu, framing: Framing::Ethernet, ..LinkConfig::default() };
        let links = stations.iter().map(|station| self.link(*station, base_station, &link)).collect();
        for direction in &mut self.directions[first..] {
            direction.cell = number;
        }
        self.cells.push(Radio { cell, first: first as u32, armed: Instant::FAR_FUTURE });
        Ok((CellId(number), links))
    }
}

impl<A: Application, O> Simulation<A, O> {
    /// What happened in a cell.
    pub fn cell_counters(&self, cell: CellId) -> &Counters {
        self.cells[cell.0 as usize].cell.counters()
    }
}

impl<A: Application, O: Observer<A::Report>> Simulation<A, O> {
    /// Gives a packet to the cell that is its direction's medium.
    #[inline(never)]
    pub(super) fn send_by_cell(&mut self, index: u32, packet: PacketRef) {
        let direction = &mut self.directions[index as usize];
        let number = direction.cell;
        let under_way = &mut self.pool[packet];
        under_way.damaged = false;
        let p = &under_way.packet;
        let header = if matches!(p.body, Body::Frame(_)) { FRAME_HEADER } else { 0 };
        let octets = p.len.saturating_sub(header);
        direction.count(octets + PDU, p.is_background());
        let radio = &mut self.cells[number as usize];
        radio.cell.send(self.now, radio.way(index), octets, packet.number());
        self.settle_cell(number);
    }

    pub(super) fn cell_timer(&mut self, number: u32) {
        let radio = &mut self.cells[number as usize];
        if radio.armed != self.now {
            return;
        }
        radio.armed = Instant::FAR_FUTURE;
        radio.cell.handle_timeout(self.now);
        loop {
            let radio = &mut self.cells[number as usize];
            let Some((way, handle)) = radio.cell.poll_delivery(self.now) else { break };
            let direction = radio.direction(way);
            self.arrived(direction, PacketRef::of(handle));
        }
        self.settle_cell(number);
    }

    /// Frees what a cell dropped, and arms its timer.
    fn settle_cell(&mut self, number: u32) {
        let radio = &mut self.cells[number as usize];
        while let Some((way, handle, why)) = radio.cell.poll_drop() {
            let stats = &mut self.directions[radio.direction(way) as usize].stats;
            *match why {
                DropReason::QueueFull => &mut stats.queue_full,
                DropReason::Lost | DropReason::GaveUp | DropReason::OutOfReach => &mut stats.lost,
            } += 1;
            self.pool.release(PacketRef::of(handle));
        }
        if let Some(at) = radio.cell.poll_timeout().filter(|at| *at < radio.armed) {
            radio.armed = at;
            self.queue.push(at, Event::Cell(number));
        }
    }
}
