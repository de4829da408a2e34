//! Checks of cells between settings.

use super::workloads::of_workload;
use super::{ScenarioCheck, keys};
use crate::model::{EapWorkload, WimaxCellSettings};
use usher_aaa::AuthMethod;
use usher_config::units::QueueCapacity;
use usher_sim::radio::wimax::ConfigError;

impl ScenarioCheck<'_> {
    pub(super) fn check_cells(&mut self) {
        let scenario = self.scenario;
        for (name, cell) in scenario.cells.iter() {
            if scenario.links.get(name).is_some() {
                self.add_fault(
                    keys!["cells", name],
                    format!("a link has the name \"{name}\" too: rename one of them"),
                );
            }
            self.check_medium(["cells", name, "base_station"], &cell.base_station, &cell.stations, cell.used);
            self.check_cell(name, cell);
        }
    }

    /// Checks the hosts of a cell or BSS. `[table, name, key]` is the setting that names its central host.
    pub(super) fn check_medium(
        &mut self,
        [table, name, key]: [&str; 3],
        base: &str,
        stations: &str,
        used: bool,
    ) {
        let both = self.require_endpoint(base, keys![table, name, key])
            & self.require_host(stations, keys![table, name, "stations"]);
        let what = key.replace('_', " ");
        if both && base == stations {
            self.add_fault(keys![table, name, "stations"], format!("\"{base}\" is the {what} already"));
        } else if both {
            let (Some((_, bases)), Some((_, members))) =
                (self.group_host_range(base), self.group_host_range(stations))
            else {
                return;
            };
            self.require(
                bases <= members,
                keys![table, name, key],
                format!("{bases} {what}s for {members} stations: some would have no station"),
            );
            if used {
                self.record_group_link(stations, base);
            }
        }
    }

    fn check_cell(&mut self, name: &str, cell: &WimaxCellSettings) {
        let at = |table: &str, key: &str| keys!["cells", name, table, key];
        self.check_mtu(cell.mtu.bytes(), keys!["cells", name, "mtu"]);
        self.require(
            !matches!(cell.queue, QueueCapacity::Bytes(_)),
            keys!["cells", name, "queue"],
            "a cell's queues have limits in packets, not in bytes",
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
            (cell.scan.descriptors, "scan", "descriptors"),
            (cell.requests.timeout, "requests", "timeout"),
            (cell.keys.challenge_timeout, "keys", "challenge_timeout"),
            (cell.keys.request_timeout, "keys", "request_timeout"),
            (cell.keys.key_timeout, "keys", "key_timeout"),
        ] {
            self.require_positive(time, at(table, key));
        }
        self.require(
            !(cell.entry.done && cell.entry.on_command),
            at("entry", "on_command"),
            "done puts stations into the cell from the start: set only one of done and on_command",
        );
        self.check_key_exchange(name, cell);
        match cell.wimax_config().check() {
            Err(why @ ConfigError::FrameTooShort(_)) if !cell.frame.duration.get().is_zero() => {
                self.add_fault(at("frame", "duration"), why.to_string());
            }
            Err(why @ ConfigError::SubframeFull(part)) => {
                self.add_fault(at("frame", &format!("{part}_symbols")), why.to_string());
            }
            Err(why @ ConfigError::Coverage) => {
                self.add_fault(keys!["cells", name, "going_down"], why.to_string());
            }
            // Other errors are already reported above, or the types exclude them.
            _ => {}
        }
    }

    /// Checks that the authentication derives keys, which the key exchange needs.
    fn check_key_exchange(&mut self, name: &str, cell: &WimaxCellSettings) {
        if !cell.keys.used {
            return;
        }
        let path = keys!["cells", name, "keys", "used"];
        let joins = |eap: &EapWorkload| eap.nas == cell.base_station && eap.stations == cell.stations;
        let authentication = self.scenario.eap_workloads().find(|(_, eap)| joins(eap));
        match authentication {
            Some((name, eap)) => self.require(
                eap.method != AuthMethod::EapMd5,
                path,
                format!(
                    "EAP-MD5 derives no key for traffic keys: set {} = \"eap-tls\"",
                    of_workload("workload.method", name)
                ),
            ),
            None => self.add_fault(
                path,
                format!(
                    "traffic keys need an authentication: {} must have kind = \"eap\", stations = \"{}\" and nas = \
                     \"{}\"",
                    if self.scenario.workloads.is_empty() { "the workload" } else { "a workload" },
                    cell.stations,
                    cell.base_station
                ),
            ),
        }
    }
}
