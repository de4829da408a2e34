//! Checks of the workload `pppoe` between settings.

use super::{ScenarioCheck, keys};
use crate::model::PppoeWorkload;
use usher_config::units::Bound;

/// Octets of the longest IP packet of a session with the default MRU (RFC 2516 §7).
const LONGEST: u64 = 1492;

impl ScenarioCheck<'_> {
    pub(super) fn check_pppoe(&mut self, pppoe: &PppoeWorkload) {
        let at = |key: &str| keys!["workload", key];
        let (stations, concentrator) = (&pppoe.stations, &pppoe.concentrator);
        if self.require_endpoint(stations, at("stations"))
            & self.require_endpoint(concentrator, at("concentrator"))
        {
            if stations == concentrator {
                self.add_fault(
                    at("concentrator"),
                    format!("\"{concentrator}\" has another role in this workload already"),
                );
            } else {
                self.check_access_link(pppoe);
            }
        }
        self.require(
            self.scenario.concentrator_service(concentrator).is_some() || !pppoe.used,
            at("concentrator"),
            format!(
                "\"{concentrator}\" does not run a concentrator: write runs = \"concentrator\" and config = \
                 \"pppoe.toml\" below [hosts.{concentrator}]"
            ),
        );
        let name = pppoe.user.len() + 8;
        self.require(
            (9..=253).contains(&name),
            at("user"),
            "a user name must have 1 to 245 octets, to leave room for a number".to_owned(),
        );
        self.require_positive(pppoe.discovery, at("discovery"));
        let times = [("hold", pppoe.hold.get()), ("keepalive", pppoe.keepalive.get())];
        for (key, time) in times {
            time.into_iter().for_each(|time| self.require_positive(time, at(key)));
        }
        if let Bound::Limited(time) = pppoe.give_up {
            self.require_positive(time, at("give_up"));
        }
    }

    /// Checks the access link. Frames use the first port of a station; cells come first, then links in the file's
    /// order.
    fn check_access_link(&mut self, pppoe: &PppoeWorkload) {
        let at = keys!["workload", "concentrator"];
        let scenario = self.scenario;
        let (stations, concentrator) = (&pppoe.stations, &pppoe.concentrator);
        let cell = scenario.cells_in_use().find(|(_, cell)| cell.stations == *stations);
        if let Some((name, _)) = cell {
            return self.add_fault(
                at,
                format!("PPPoE frames cannot cross the 802.16 cell \"{name}\": use a link or an 802.11 cell"),
            );
        }
        if let Some((name, bss)) = scenario.bss_in_use().find(|(_, bss)| bss.stations == *stations) {
            self.check_session_mtu(pppoe, bss.mtu.bytes(), keys!["bss", name, "mtu"]);
            self.require(
                bss.access_point == *concentrator,
                at,
                format!(
                    "the stations' access point \"{}\" does not forward frames: make it the concentrator",
                    bss.access_point
                ),
            );
            return;
        }
        let first = scenario.links.iter().find(|(_, link)| link.between.contains(stations));
        let Some((name, link)) = first else {
            return self
                .add_fault(at, format!("\"{stations}\" has no link: link it with \"{concentrator}\""));
        };
        self.require(
            link.between.contains(concentrator),
            at,
            format!(
                "the first link of \"{stations}\", \"{name}\", must lead to \"{concentrator}\": hosts do not \
                 forward frames"
            ),
        );
        self.check_session_mtu(pppoe, link.mtu.bytes(), keys!["links", name, "mtu"]);
    }

    fn check_session_mtu(&mut self, pppoe: &PppoeWorkload, mtu: u64, at: Vec<String>) {
        self.require(
            mtu <= LONGEST || !pppoe.used,
            at,
            format!("packets of {mtu} B do not fit into a session, which carries at most {LONGEST} B: write mtu = \
                     \"{LONGEST} B\""),
        );
    }
}
