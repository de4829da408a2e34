//! What no single value shows about cells.

use super::{Check, keys};
use crate::model::Cell;
use crate::units::Queue;
use usher_sim::radio::wimax::ConfigError;

impl Check<'_> {
    pub(super) fn cells(&mut self) {
        let scenario = self.scenario;
        for (name, cell) in scenario.cells.iter() {
            if scenario.links.get(name).is_some() {
                self.fault(keys!["cells", name], format!("there is a link \"{name}\" as well"));
            }
            let (base, stations) = (&cell.base_station, &cell.stations);
            let both = self.host(base, keys!["cells", name, "base_station"])
                & self.host(stations, keys!["cells", name, "stations"]);
            if both && base == stations {
                let message = format!("\"{base}\" cannot be the base station as well");
                self.fault(keys!["cells", name, "stations"], message);
            } else if both {
                let (Some((_, bases)), Some((_, members))) = (self.group(base), self.group(stations)) else {
                    continue;
                };
                self.require(
                    bases <= members,
                    keys!["cells", name, "base_station"],
                    format!("{bases} base stations for {members} stations: some would have none"),
                );
                if cell.used {
                    self.join(stations, base);
                }
            }
            self.cell(name, cell);
        }
    }

    fn cell(&mut self, name: &str, cell: &Cell) {
        let at = |table: &str, key: &str| keys!["cells", name, table, key];
        self.mtu(cell.mtu.bytes(), keys!["cells", name, "mtu"]);
        self.require(
            !matches!(cell.queue, Queue::Bytes(_)),
            keys!["cells", name, "queue"],
            "a cell's queues are counted in packets",
        );
        for (table, start, end) in [
            ("entry", cell.entry.backoff_start, cell.entry.backoff_end),
            ("requests", cell.requests.backoff_start, cell.requests.backoff_end),
        ] {
            self.require(end <= 15, at(table, "backoff_end"), format!("{end} is above 15"));
            self.require(
                start <= end,
                at(table, "backoff_start"),
                format!("{start} is above backoff_end, {end}"),
            );
        }
        for (time, table, key) in [
            (cell.frame.duration, "frame", "duration"),
            (cell.frame.symbol, "frame", "symbol"),
            (cell.entry.timeout, "entry", "timeout"),
            (cell.requests.timeout, "requests", "timeout"),
        ] {
            self.positive(time, at(table, key));
        }
        match cell.config().check() {
            Err(why @ ConfigError::FrameTooShort(_)) if !cell.frame.duration.get().is_zero() => {
                self.fault(at("frame", "duration"), why.to_string());
            }
            Err(why @ ConfigError::NoRoom(part)) => {
                self.fault(at("frame", &format!("{part}_symbols")), why.to_string());
            }
            // The rest is reported above, or its type cannot hold it.
            _ => {}
        }
    }
}
