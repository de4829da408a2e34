//! Checks of interfaces, BSSs and the IEEE 802.21 workloads between settings.

use super::{ScenarioCheck, keys};
use crate::model::{
    ArrivalSettings, Bss, HandoverWorkload, LossFrom, MihFunction, MihTimingChange, MihWorkload,
    TransportProtocol, message_name,
};
use usher_config::name_hint;
use usher_config::units::{Coordinate, Length, PositiveCount, QueueCapacity, Switch, TimeSpan};
use usher_mih::MessageId;
use usher_sim::radio::wifi::ConfigError;

/// Minimum size of an indication, request or response: the header, both MIHF identifiers and a transaction's unique
/// part.
const SMALLEST: u64 = 128;
/// Minimum size of a fragment.
const PIECE: u64 = 64;
/// Maximum size of an MIH message: the header's length field has 16 bits.
const LARGEST: u64 = 8 + 65_535;

impl ScenarioCheck<'_> {
    pub(super) fn check_interfaces(&mut self) {
        let scenario = self.scenario;
        for (name, host) in scenario.hosts.iter() {
            let at = |key: &str| keys!["hosts", name, key];
            let Some(owner) = &host.interface_of else {
                self.require(
                    host.is_mobile() || host.spread == Length::default(),
                    at("spread"),
                    "the host does not move: set velocity, or leave spread out",
                );
                continue;
            };
            if !self.require_host(owner, at("interface_of")) {
                continue;
            }
            let of = scenario.hosts.get(owner);
            self.require(
                owner != name && of.is_some_and(|of| of.interface_of.is_none()),
                at("interface_of"),
                format!("\"{owner}\" is an interface itself"),
            );
            let members = of.map_or(PositiveCount::ONE, |of| of.count);
            self.require(
                [PositiveCount::ONE, members].contains(&host.count),
                at("count"),
                format!("each member of \"{owner}\" has one such interface: leave count out"),
            );
            self.require(
                host.cpu.is_none(),
                at("cpu"),
                format!("an interface uses the processor of \"{owner}\": leave cpu out"),
            );
            for (own, key) in [
                (host.position != <[Coordinate; 2]>::default(), "position"),
                (host.is_mobile(), "velocity"),
                (host.departs != TimeSpan::default(), "departs"),
                (host.spread != Length::default(), "spread"),
            ] {
                self.require(!own, at(key), format!("an interface moves with \"{owner}\": leave this out"));
            }
        }
    }

    pub(super) fn check_bss(&mut self) {
        let scenario = self.scenario;
        for (name, bss) in scenario.bss.iter() {
            if scenario.links.get(name).is_some() || scenario.cells.get(name).is_some() {
                self.add_fault(
                    keys!["bss", name],
                    format!("a link or cell has the name \"{name}\" too: rename one of them"),
                );
            }
            self.check_medium(["bss", name, "access_point"], &bss.access_point, &bss.stations, bss.used);
            self.check_bss_settings(name, bss);
        }
    }

    fn check_bss_settings(&mut self, name: &str, bss: &Bss) {
        let at = |key: &str| keys!["bss", name, key];
        self.check_mtu(bss.mtu.bytes(), at("mtu"));
        self.require(
            !matches!(bss.queue, QueueCapacity::Bytes(_)),
            at("queue"),
            "a BSS's queues have limits in packets, not in bytes",
        );
        self.require(bss.retransmissions <= 255, at("retransmissions"), "must be at most 255");
        let none_beyond = bss.going_down.metres() >= bss.radius.metres();
        for (from, key) in
            [(bss.frame_loss_from, "frame_loss_from"), (bss.packet_loss_from, "packet_loss_from")]
        {
            self.require(
                from == LossFrom::Always || !none_beyond,
                at(key),
                "no station in range is farther away than going_down: make going_down less than radius, or set this to \
                 \"always\"",
            );
        }
        if let Switch::On(interval) = bss.beacons {
            self.require_positive(interval, at("beacons"));
        }
        let Err(why) = bss.wifi_config().check() else { return };
        let path = match why {
            // Skip this error: the type already checks probabilities.
            ConfigError::Probability(_) => return,
            ConfigError::Windows(..) => at("cw_min"),
            ConfigError::Coverage => at("going_down"),
            ConfigError::Preamble => at("preamble"),
            ConfigError::BasicRate => at("basic_rate"),
            ConfigError::Beacons => at("beacons"),
            ConfigError::Scan => at("scan"),
        };
        self.add_fault(path, why.to_string());
    }

    pub(super) fn check_mih(&mut self, mih: &MihWorkload) {
        let at = |key: &str| keys!["workload", key];
        if self.require_endpoint(&mih.mn, at("mn")) & self.require_endpoint(&mih.pos, at("pos")) {
            if mih.mn == mih.pos {
                self.add_fault(
                    at("pos"),
                    format!("\"{}\" has another role in this workload already", mih.pos),
                );
            } else {
                self.check_reachability(&mih.mn, &mih.pos, at("pos"));
            }
        }
        if let ArrivalSettings::Closed { .. } = mih.arrivals {
            self.add_fault(
                keys!["workload", "arrivals", "kind"],
                "MIH transactions do not wait for earlier ones: use \"poisson\" or \"constant\"",
            );
        }
        let size = mih.size.bytes();
        self.require(
            (SMALLEST..=LARGEST).contains(&size),
            at("size"),
            format!("{size} B is not between {SMALLEST} B and {LARGEST} B"),
        );
        if let Some(response) = mih.response_size {
            let size = response.bytes();
            self.require(
                mih.message.is_answered(),
                at("response_size"),
                "no user answers this message: leave this out, or set message = \"request\", \"candidate-query\" or \
                 \"information\"",
            );
            self.require(
                (SMALLEST..=LARGEST).contains(&size),
                at("response_size"),
                format!("{size} B is not between {SMALLEST} B and {LARGEST} B"),
            );
        }
        self.check_mih_function(mih.mih_function());
    }

    pub(super) fn check_handover(&mut self, handover: &HandoverWorkload) {
        let at = |key: &str| keys!["workload", key];
        let HandoverWorkload { mn, wlan, wimax, pos, target, correspondent, .. } = handover;
        let mut known = self.require_endpoint(mn, at("mn"));
        for (interface, key) in [(wlan, "wlan"), (wimax, "wimax")] {
            let own = self.require_host(interface, at(key));
            let of = self.scenario.hosts.get(interface).and_then(|host| host.interface_of.as_ref());
            self.require(
                !own || of == Some(mn),
                at(key),
                format!("\"{interface}\" is not an interface of \"{mn}\""),
            );
            known &= own && of == Some(mn);
        }
        self.require(wlan != wimax, at("wimax"), format!("\"{wimax}\" is the other interface already"));
        for (name, key) in [(pos, "pos"), (target, "target"), (correspondent, "correspondent")] {
            let there = self.require_endpoint(name, at(key));
            let other = name != mn;
            self.require(other, at(key), format!("\"{name}\" has another role in this workload already"));
            known &= there && other;
        }
        self.require(
            pos != target,
            at("target"),
            format!("\"{target}\" is the point of service of the old network already"),
        );
        if known {
            self.check_reachability(wlan, pos, at("pos"));
            self.check_reachability(wimax, target, at("target"));
            self.check_reachability(wlan, correspondent, at("correspondent"));
            self.check_reachability(wimax, correspondent, at("correspondent"));
            self.check_reachability(pos, target, at("target"));
            let members = |name| self.scenario.member_count(name).unwrap_or(1);
            let (nodes, ends) = (members(mn), members(correspondent));
            self.require(
                nodes == ends,
                at("correspondent"),
                format!("each mobile node needs its own correspondent, and there are {ends} for {nodes}"),
            );
        }
        let bss = self.scenario.bss_in_use().find(|(_, bss)| bss.stations == *wlan);
        let cell = self.scenario.cells_in_use().find(|(_, cell)| cell.stations == *wimax);
        if known {
            let message = |interface, of| format!("\"{interface}\" is not a station of any {of} in use");
            self.require(bss.is_some(), at("wlan"), message(wlan, "BSS"));
            self.require(cell.is_some(), at("wimax"), message(wimax, "cell"));
            let members = |name: &str| self.scenario.member_count(name).unwrap_or(1);
            let (here, there) = (members(pos), members(target));
            let attached = [bss.map(|(_, b)| &b.access_point), cell.map(|(_, c)| &c.base_station)];
            let shared = attached.into_iter().flatten().all(|name| here % members(name) == 0);
            self.require(
                here == there,
                at("target"),
                format!(
                    "each point of service of the old network needs its own target, and there are {there} for {here}"
                ),
            );
            self.require(
                shared,
                at("pos"),
                "all nodes of a point of service must share one access point and one base station",
            );
        }
        self.require_positive(handover.application.interval, keys!["workload", "application", "interval"]);
        let size = handover.application.size.bytes();
        self.require(
            (4..=65_000).contains(&size),
            keys!["workload", "application", "size"],
            format!("{size} B is not between 4 B and 65000 B"),
        );
        self.require_positive(handover.retry, at("retry"));
        self.check_mih_function(handover.mih_function());
    }

    /// Checks the settings of MIH functions.
    pub(super) fn check_mih_function(&mut self, function: MihFunction<'_>) {
        let at = |key: &str| keys!["workload", key];
        let largest = match function.transport {
            TransportProtocol::Udp => 65_507,
            _ => LARGEST,
        };
        let packet = function.max_message.bytes();
        self.require(
            (PIECE..=largest).contains(&packet),
            at("max_message"),
            format!("{packet} B is not between {PIECE} B and {largest} B"),
        );
        let timing = |parts: &[&str], key: &str| {
            let mut path = keys!["workload", "timing"];
            path.extend(parts.iter().chain([&key]).map(|&part| part.to_owned()));
            path
        };
        if let Switch::On(time) = function.transaction {
            self.require_positive(time, at("transaction"));
        }
        let common = function.timing.base_message_timing();
        self.require_positive(common.retransmission, timing(&[], "retransmission"));
        self.check_tries(common.retransmissions, timing(&[], "retransmissions"));
        if let Switch::On(response) = common.response {
            self.require_positive(response, timing(&[], "response"));
        }
        let services = function.timing.by_service.iter();
        let services = services.filter_map(|(name, change)| Some(("by_service", name, change?)));
        let messages = function.timing.by_message.iter().map(|(name, change)| ("by_message", name, change));
        for name in function.timing.by_message.names() {
            let known = MessageId::ALL.iter().map(|id| message_name(*id));
            if known.clone().all(|message| message != name) {
                let near = name_hint(name, known);
                self.add_fault(
                    timing(&["by_message"], name),
                    format!("there is no message \"{name}\"{near}"),
                );
            }
        }
        for (table, name, change) in services.chain(messages) {
            self.check_timing_change(change, |key| timing(&[table, name], key));
        }
    }

    fn check_timing_change(&mut self, change: &MihTimingChange, at: impl Fn(&str) -> Vec<String>) {
        if let Some(time) = change.retransmission {
            self.require_positive(time, at("retransmission"));
        }
        if let Some(n) = change.retransmissions {
            self.check_tries(n, at("retransmissions"));
        }
        if let Some(Switch::On(time)) = change.response {
            self.require_positive(time, at("response"));
        }
    }

    fn check_tries(&mut self, n: u32, path: Vec<String>) {
        self.require(n <= 255, path, format!("{n} is above 255"));
    }
}
