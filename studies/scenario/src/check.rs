//! Checks between settings: unknown names, hosts that cannot reach each other, contradictory values.

mod cells;
mod doubts;
mod ident;
mod idle;
mod ike;
mod mobility;
mod pppoe;
mod workloads;

pub(crate) use doubts::find_misleading_settings;
pub(crate) use idle::find_idle_settings;
use workloads::of_workload;

use crate::metrics;
use crate::model::{
    ArrivalSettings, BurstLength, CpuSettings, DialogueWorkload, EapWorkload, IpVersion, LinkLoss,
    LinkSettings, NasAaaProtocol, NasConnections, RadiusRetransmission, Scenario, SizeDistribution,
    TimeDistribution, TransportProtocol,
};
use crate::ports;
use crate::work;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_aaa::AuthMethod;
use usher_aaa::store::UserRows;
use usher_aaa_config::LoadedAaaConfig;
use usher_config::name_hint;
use usher_config::units::{Bound, ByteSize, PositiveCount, QueueCapacity, TimeSpan};
use usher_core::WorkLabel;
use usher_crypto::TlsVersion;
use usher_crypto::tls::TlsCredentials;
use usher_sim::HostId;

/// Kinds of work whose time passes while the processor does other work.
const OFF_PROCESSOR_WORK: [&str; 1] = [usher_profile::LOOKUP];
/// Limit of hosts in a scenario, over all groups.
const MAX_HOSTS: u64 = 2_000_000;

/// The path of a faulty setting, and the message.
pub(crate) type SettingFault = (Vec<String>, String);

/// Builds a path from its parts.
macro_rules! keys {
    ($($part:expr),+) => { vec![$($part.to_string()),+] };
}
pub(crate) use keys;

/// Returns all faults of a scenario.
pub(crate) fn check_scenario(scenario: &Scenario) -> Vec<SettingFault> {
    let mut check =
        ScenarioCheck { scenario, members: Vec::new(), workload: String::new(), findings: Vec::new() };
    check.check_run();
    check.check_hosts();
    check.check_links();
    check.check_cells();
    check.check_bss();
    check.check_transport();
    check.check_workloads();
    check.check_background();
    check.check_outages();
    check.findings
}

struct ScenarioCheck<'a> {
    scenario: &'a Scenario,
    /// By host, a representative of the hosts that it is linked with. Empty if there are too many hosts.
    members: Vec<u32>,
    /// The name of the workload under check; empty if it is the only one.
    workload: String,
    findings: Vec<SettingFault>,
}

impl<'s> ScenarioCheck<'s> {
    fn add_fault(&mut self, path: Vec<String>, message: impl Into<String>) {
        self.findings.push((path, message.into()));
    }

    fn require(&mut self, holds: bool, path: Vec<String>, message: impl Into<String>) {
        if !holds {
            self.add_fault(path, message);
        }
    }

    fn require_positive(&mut self, time: TimeSpan, path: Vec<String>) {
        self.require(!time.get().is_zero(), path, "must be above zero");
    }

    /// Formats a setting of the workload under check for messages.
    fn setting_name(&self, key: &str) -> String {
        of_workload(&format!("workload.{key}"), &self.workload)
    }

    /// The wildcard address of a host with a port, as a configuration writes it.
    fn wildcard_address(&self, port: u16) -> SocketAddr {
        match self.scenario.run.ip {
            IpVersion::V4 => (Ipv4Addr::UNSPECIFIED, port).into(),
            IpVersion::V6 => (Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }

    fn check_run(&mut self) {
        let run = &self.scenario.run;
        self.require_positive(run.duration, keys!["run", "duration"]);
        let r = &run.replications;
        let at = |key: &str| keys!["run", "replications", key];
        self.require(
            r.min <= r.max,
            at("min"),
            format!("min is {} and max is {}: min must not be above max", r.min.get(), r.max.get()),
        );
        self.require(r.precision.get() > 0.0, at("precision"), "must be above 0 %");
        let confidence = r.confidence.get();
        self.require(
            confidence > 0.0 && confidence < 1.0,
            at("confidence"),
            "must be above 0 % and below 100 %",
        );
        if let Some(message) = metrics::explain_unknown(&r.metric, self.scenario) {
            self.add_fault(at("metric"), message);
        }
        for (i, metric) in run.metrics.iter().enumerate() {
            if let Some(message) = metrics::explain_unknown(metric, self.scenario) {
                self.add_fault(keys!["run", "metrics", i], message);
            }
        }
    }

    fn check_hosts(&mut self) {
        self.require(!self.scenario.hosts.is_empty(), keys!["hosts"], "the study needs at least one host");
        self.check_interfaces();
        let members = |name| self.scenario.member_count(name).map_or(0, u64::from);
        let total: u64 = self.scenario.hosts.names().map(members).sum();
        if total > MAX_HOSTS {
            self.add_fault(
                keys!["hosts"],
                format!("{total} hosts are too many: at most {MAX_HOSTS} can be simulated"),
            );
        } else {
            self.members = (0..total as u32).collect();
        }
        let unknown = self.scenario.hosts.iter().flat_map(|(name, host)| {
            let of = |cpu: &'s CpuSettings| {
                let service = cpu.service.names().map(|label| ("service", label));
                service.chain(cpu.aside.names().map(|label| ("aside", label)))
            };
            let labels = host.cpu.iter().flat_map(of);
            labels
                .filter(|(_, label)| work::find_work_label(label).is_none())
                .map(move |(table, label)| (name.to_owned(), table, label.to_owned()))
        });
        for (name, table, label) in unknown.collect::<Vec<_>>() {
            let near = name_hint(&label, work::all_work_labels().map(WorkLabel::name));
            self.add_fault(
                keys!["hosts", name, "cpu", table, label],
                format!("there is no kind of work \"{label}\"{near}"),
            );
        }
        self.check_service_times();
        self.check_addresses();
    }

    /// Checks the addresses of hosts.
    fn check_addresses(&mut self) {
        let scenario = self.scenario;
        let mut known: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let v4 = scenario.run.ip == IpVersion::V4;
        let given = |name| scenario.hosts.get(name).and_then(|host| host.address);
        if self.members.is_empty() || !scenario.hosts.names().any(|name| given(name).is_some()) {
            return;
        }
        for (name, first) in scenario.numbered_groups() {
            let at = keys!["hosts", name, "address"];
            if let Some(address) = given(name).filter(|address| address.is_ipv4() != v4) {
                let version = if v4 { "v4" } else { "v6" };
                self.add_fault(at, format!("{address} does not fit run.ip = \"{version}\""));
                continue;
            }
            for member in 0..self.scenario.member_count(name).unwrap_or(0) {
                let own = scenario.hosts.get(name).and_then(|host| host.address_of(member));
                let address = match (own, given(name)) {
                    (Some(address), _) => address,
                    (None, None) => HostId(first.0 + member).ip_address(scenario.run.ip.into()),
                    (None, Some(first)) => {
                        self.add_fault(
                            at,
                            format!("the addresses after {first} do not suffice for the group"),
                        );
                        break;
                    }
                };
                if let Some(other) = known.insert(address, name) {
                    let hint = "; hosts without address have those of 10.0.0.0/8 (IPv6: fd00::/64) in the order of the \
                                file";
                    let hint = if given(other).is_none() || given(name).is_none() { hint } else { "" };
                    self.add_fault(at, format!("{address} is also an address of \"{other}\"{hint}"));
                    break;
                }
            }
        }
    }

    /// Checks the random service times.
    fn check_service_times(&mut self) {
        for (name, host) in self.scenario.hosts.iter() {
            for (label, law) in host.cpu.iter().flat_map(|cpu| cpu.service.iter()) {
                self.check_time_law(law, keys!["hosts", name, "cpu", "service", label]);
            }
            for (label, law) in host.cpu.iter().flat_map(|cpu| cpu.aside.iter()) {
                let at = keys!["hosts", name, "cpu", "aside", label];
                self.check_time_law(law, at.clone());
                let takes = host.cpu.as_ref().is_some_and(|cpu| cpu.service.get(label).is_some());
                self.require(
                    takes && OFF_PROCESSOR_WORK.contains(&label),
                    at,
                    format!(
                        "aside is only for {}, with a time in cpu.service too",
                        OFF_PROCESSOR_WORK.join(", ")
                    ),
                );
            }
        }
    }

    /// Returns the number of a group's first host, and the size of the group.
    fn group_host_range(&self, name: &str) -> Option<(u32, u32)> {
        let mut first = 0;
        for host in self.scenario.hosts.names() {
            let members = self.scenario.member_count(host)?;
            if host == name {
                return Some((first, members));
            }
            first = first.saturating_add(members);
        }
        None
    }

    /// Reports an unknown host; returns true if it is known.
    fn require_host(&mut self, name: &str, path: Vec<String>) -> bool {
        let known = self.scenario.hosts.get(name).is_some();
        if !known {
            let near = name_hint(name, self.scenario.hosts.names());
            self.add_fault(path, format!("there is no host \"{name}\"{near}"));
        }
        known
    }

    /// Reports a name that is no host, or a host that can have no role; returns true if there is no fault.
    fn require_endpoint(&mut self, name: &str, path: Vec<String>) -> bool {
        let owner = self.scenario.hosts.get(name).and_then(|host| host.interface_of.as_ref());
        if let Some(owner) = owner {
            self.add_fault(path, format!("\"{name}\" is an interface: name its host, \"{owner}\""));
            return false;
        }
        self.require_host(name, path)
    }

    fn find_representative(&mut self, host: u32) -> Option<u32> {
        let mut at = host;
        loop {
            let up = *self.members.get(at as usize)?;
            if up == at {
                return Some(at);
            }
            let next = *self.members.get(up as usize)?;
            self.members[at as usize] = next;
            at = next;
        }
    }

    fn check_links(&mut self) {
        let scenario = self.scenario;
        for (name, link) in scenario.links.iter() {
            let [a, b] = &link.between;
            let both = self.require_host(a, keys!["links", name, "between", 0])
                & self.require_host(b, keys!["links", name, "between", 1]);
            if both && a == b {
                self.add_fault(keys!["links", name, "between"], format!("both ends of the link are \"{a}\""));
            } else if both {
                self.record_group_link(a, b);
            }
            self.check_link(name, link);
        }
    }

    /// Records that the members of two groups are linked.
    fn record_group_link(&mut self, a: &str, b: &str) {
        let (Some((a, na)), Some((b, nb))) = (self.group_host_range(a), self.group_host_range(b)) else {
            return;
        };
        // If there are too many hosts, `members` is empty. That is reported elsewhere, so skip the groups here.
        if self.members.is_empty() {
            return;
        }
        for i in 0..na.max(nb) {
            if let (Some(x), Some(y)) =
                (self.find_representative(a + i % na), self.find_representative(b + i % nb))
            {
                self.members[x as usize] = y;
            }
        }
    }

    fn check_mtu(&mut self, mtu: u64, path: Vec<String>) {
        let smallest = match self.scenario.run.ip {
            IpVersion::V4 => 68,
            IpVersion::V6 => 1280,
        };
        self.require(
            (smallest..=65_535).contains(&mtu),
            path,
            format!("{mtu} B is not between {smallest} B and 65535 B, as IP needs"),
        );
    }

    fn check_link(&mut self, name: &str, link: &LinkSettings) {
        let mtu = link.mtu.bytes();
        self.check_mtu(mtu, keys!["links", name, "mtu"]);
        let losses =
            [("", Some(&link.loss)), ("up", link.up.loss.as_ref()), ("down", link.down.loss.as_ref())];
        for (side, loss) in losses {
            let mut path = keys!["links", name];
            path.extend((!side.is_empty()).then(|| side.to_owned()));
            path.push("loss".to_owned());
            match loss {
                Some(LinkLoss::Script { packets }) => {
                    path.push("packets".to_owned());
                    self.require(packets.is_sorted_by(|a, b| a < b), path, "the ordinals must ascend");
                }
                Some(LinkLoss::Burst { mean: BurstLength::Time(mean), .. }) => {
                    path.push("mean".to_owned());
                    self.require_positive(*mean, path);
                }
                Some(LinkLoss::TimedGilbertElliott { good_time, bad_time, .. }) => {
                    for (time, key) in [(good_time, "good_time"), (bad_time, "bad_time")] {
                        let mut path = path.clone();
                        path.push(key.to_owned());
                        self.require_positive(*time, path);
                    }
                }
                Some(LinkLoss::Burst { loss, mean: BurstLength::Packets(mean) }) => {
                    path.push("loss".to_owned());
                    let most = mean.get() / (mean.get() + 1.0);
                    let message = format!(
                        "bursts of {} packets can lose at most {:.1} % of all packets",
                        mean.get(),
                        most * 100.0
                    );
                    self.require(loss.get() <= most, path, message);
                }
                _ => {}
            }
        }
        for (side, queue) in [("", Some(link.queue)), ("up", link.up.queue), ("down", link.down.queue)] {
            let Some(QueueCapacity::Bytes(bytes)) = queue else { continue };
            let mut path = keys!["links", name];
            path.extend((!side.is_empty()).then(|| side.to_owned()));
            path.push("queue".to_owned());
            self.require(
                bytes >= mtu,
                path,
                format!("a queue of {bytes} B cannot hold a packet of the link's MTU, {mtu} B"),
            );
        }
    }

    fn check_transport(&mut self) {
        let tcp = &self.scenario.transport.tcp;
        let at = |key: &str| keys!["transport", "tcp", key];
        self.require_positive(tcp.rto_initial, at("rto_initial"));
        self.require_positive(tcp.rto_min, at("rto_min"));
        self.require_positive(tcp.reconnect, at("reconnect"));
        let (min, max) = (tcp.rto_min.get(), tcp.rto_max.get());
        self.require(min <= max, at("rto_min"), format!("{min} is above rto_max, {max}"));
        if let Some(mss) = tcp.mss {
            let bytes = mss.bytes();
            self.require(
                (1..=65_495).contains(&bytes),
                at("mss"),
                format!("{bytes} B is not between 1 B and 65495 B"),
            );
        }
        if let Some(size) = tcp.read_size {
            self.check_piece_size(size, at("read_size"));
        }
        let buffer = tcp.receive_buffer.bytes();
        self.require(
            (1..=1 << 30).contains(&buffer),
            at("receive_buffer"),
            format!("{buffer} B is not between 1 B and 1 GiB"),
        );
        if let Some(most) = tcp.receive_buffer_max.get().map(|most| most.bytes()) {
            self.require(
                (buffer..=1 << 30).contains(&most),
                at("receive_buffer_max"),
                format!("{most} B is not between receive_buffer, {buffer} B, and 1 GiB"),
            );
        }
        self.check_sctp();
    }

    /// Checks the size of an application's single read or write.
    fn check_piece_size(&mut self, size: ByteSize, path: Vec<String>) {
        let bytes = size.bytes();
        self.require((1..=1 << 30).contains(&bytes), path, format!("{bytes} B is not between 1 B and 1 GiB"));
    }

    fn check_sctp(&mut self) {
        let sctp = &self.scenario.transport.sctp;
        let at = |key: &str| keys!["transport", "sctp", key];
        for (time, key) in
            [(sctp.rto_initial, "rto_initial"), (sctp.rto_min, "rto_min"), (sctp.reconnect, "reconnect")]
        {
            self.require_positive(time, at(key));
        }
        let (min, max) = (sctp.rto_min.get(), sctp.rto_max.get());
        self.require(min <= max, at("rto_min"), format!("{min} is above rto_max, {max}"));
        if let Some(packet) = sctp.packet {
            let bytes = packet.bytes();
            self.require(
                (512..=65_495).contains(&bytes),
                at("packet"),
                format!("{bytes} B is not between 512 B and 65495 B"),
            );
        }
        if let Some(streams) = sctp.accepted_streams {
            let streams = streams.get();
            self.require(
                streams <= 65_535,
                at("accepted_streams"),
                format!("{streams} streams are too many: an SCTP association has at most 65535"),
            );
        }
        let buffer = sctp.receive_buffer.bytes();
        self.require(
            (1500..=1 << 30).contains(&buffer),
            at("receive_buffer"),
            format!("{buffer} B is not between 1500 B (RFC 9260) and 1 GiB"),
        );
        for (time, key) in [(sctp.sack_delay, "sack_delay"), (sctp.heartbeat, "heartbeat")] {
            if let Some(time) = time.get() {
                self.require_positive(time, at(key));
            }
        }
        if let Some(delay) = sctp.sack_delay.get() {
            let delay = delay.get();
            self.require(
                delay.as_millis() <= 500,
                at("sack_delay"),
                format!("{delay} is above the 500 ms that RFC 9260 allows"),
            );
        }
    }

    fn check_outages(&mut self) {
        for (i, outage) in self.scenario.outages.iter().enumerate() {
            self.require_endpoint(&outage.host, keys!["outages", i, "host"]);
            let (from, until) = (outage.from.get(), outage.until.get());
            self.require(
                from < until,
                keys!["outages", i, "until"],
                format!("{until} is not after from, {from}"),
            );
        }
    }

    /// Reports members of `from` that cannot reach their partner in `to`.
    fn check_reachability(&mut self, from: &str, to: &str, path: Vec<String>) {
        let (Some((a, na)), Some((b, nb))) = (self.group_host_range(from), self.group_host_range(to)) else {
            return;
        };
        if self.members.is_empty() {
            return;
        }
        for i in 0..na {
            if self.find_representative(a + i) != self.find_representative(b + i % nb) {
                let who =
                    |name, n: u32, i| if n == 1 { format!("\"{name}\"") } else { format!("\"{name}\" {i}") };
                let message = format!("no links lead from {} to {}", who(from, na, i), who(to, nb, i % nb));
                return self.add_fault(path, message);
            }
        }
    }

    fn check_eap(&mut self, eap: &EapWorkload) {
        let at = |key: &str| keys!["workload", key];
        let stations = self.require_endpoint(&eap.stations, at("stations"));
        let nas = self.require_endpoint(&eap.nas, at("nas"));
        let server = self.require_endpoint(&eap.server, at("server"));
        if stations && nas && eap.stations != eap.nas {
            self.check_reachability(&eap.stations, &eap.nas, at("nas"));
        }
        if nas && server {
            if eap.nas == eap.server || eap.stations == eap.server {
                self.add_fault(
                    at("server"),
                    format!("\"{}\" has another role in this workload already", eap.server),
                );
            } else {
                self.check_reachability(&eap.nas, &eap.server, at("server"));
            }
        }
        let realm = &eap.realm;
        self.require(
            !realm.is_empty()
                && realm.len() <= 200
                && realm.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-'),
            at("realm"),
            format!("\"{realm}\" is not a domain name"),
        );
        if let Some(time) = eap.eap_retransmission.get() {
            self.require_positive(time, at("eap_retransmission"));
        }
        if let Bound::Limited(time) = eap.give_up {
            self.require_positive(time, at("give_up"));
        }
        let tls = |key: &str| keys!["workload", "eap_tls", key];
        for (key, chain) in
            [("client_chain", eap.eap_tls.client_chain), ("server_chain", eap.eap_tls.server_chain)]
        {
            self.require(
                chain.get() <= 4,
                tls(key),
                format!("{} certificates are too many: chains have at most 4", chain.get()),
            );
        }
        let fragment = eap.eap_tls.fragment.bytes();
        self.require(
            (64..=4000).contains(&fragment),
            tls("fragment"),
            format!("{fragment} B is not between 64 B and 4000 B, which a RADIUS packet can carry"),
        );
        self.check_retransmission(&eap.radius.retransmission, keys!["workload", "radius", "retransmission"]);
        let watchdog = eap.diameter.watchdog.get();
        self.require(
            watchdog.as_secs() >= 6,
            keys!["workload", "diameter", "watchdog"],
            format!("{watchdog} is below the minimum of RFC 3539, 6 s"),
        );
        self.require_positive(eap.diameter.timeout, keys!["workload", "diameter", "timeout"]);
        let streams = eap.diameter.streams.get();
        self.require(
            streams <= 65_535,
            keys!["workload", "diameter", "streams"],
            format!("{streams} streams are too many: an SCTP association has at most 65535"),
        );
        if let NasConnections::Shared(n) = eap.diameter.connections {
            self.require(
                n.get() <= 1000,
                keys!["workload", "diameter", "connections"],
                format!("{} connections of a NAS are too many: at most 1000 are supported", n.get()),
            );
        }
        if let Some(time) = eap.retry.get() {
            self.require_positive(time, at("retry"));
        }
        self.check_accounting(eap);
        self.nas_tls(eap);
        self.check_eap_service(eap);
    }

    /// Checks the retransmission policy of a RADIUS client or a dialogue.
    fn check_retransmission(&mut self, policy: &RadiusRetransmission, path: Vec<String>) {
        let at = |key: &str| path.iter().cloned().chain([key.to_owned()]).collect();
        match policy {
            RadiusRetransmission::Rfc5080 { initial, jitter, .. } => {
                self.require_positive(*initial, at("initial"));
                self.require(
                    jitter.get() < 1.0,
                    at("jitter"),
                    "must be below 100 %, so that no interval can be zero",
                );
            }
            RadiusRetransmission::Fixed { interval, .. } => self.require_positive(*interval, at("interval")),
        }
    }

    fn nas_tls(&mut self, eap: &EapWorkload) {
        let at = keys!["workload", "tls"];
        let own = eap.aaa == NasAaaProtocol::Diameter
            && eap.uses_tls_transport()
            && eap.diameter.connections == NasConnections::PerSession;
        let message = format!(
            "with TLS the server must know the peer of each connection, so each session cannot have its own: {} must \
             be a number",
            self.setting_name("diameter.connections")
        );
        self.require(!own, keys!["workload", "diameter", "connections"], message);
        let both = eap.tls.certificate.is_some() == eap.tls.key.is_some();
        let belong = "certificate and key belong together: give both or neither";
        self.require(both, at, belong);
        let both = eap.eap_tls.certificate.is_some() == eap.eap_tls.key.is_some();
        self.require(both, keys!["workload", "eap_tls"], belong);
    }

    /// Checks that the service on the server's host, if any, serves the workload.
    fn check_eap_service(&mut self, eap: &EapWorkload) {
        let scenario = self.scenario;
        let server = &eap.server;
        let Some(loaded) = scenario.aaa_service(server).filter(|_| !self.members.is_empty()) else { return };
        let addresses = scenario.host_addresses();
        let first = |name: &str| scenario.numbered_groups().find(|(n, _)| *n == name).map(|(_, first)| first);
        let (Some(of_server), Some(of_nas)) = (first(server), first(&eap.nas)) else { return };
        let listen = &loaded.file.listen;
        let mut needed = vec![match eap.aaa {
            NasAaaProtocol::Radius => ("auth", &listen.auth, ports::RADIUS),
            NasAaaProtocol::Radsec => ("radsec", &listen.radsec, ports::RADSEC),
            NasAaaProtocol::Diameter if eap.uses_tls_transport() => {
                ("diameter_tls", &listen.diameter_tls, ports::DIAMETER_TLS)
            }
            NasAaaProtocol::Diameter if eap.diameter.transport == TransportProtocol::Sctp => {
                ("diameter_sctp", &listen.diameter_sctp, ports::DIAMETER)
            }
            NasAaaProtocol::Diameter => ("diameter", &listen.diameter, ports::DIAMETER),
        }];
        needed.extend((eap.aaa == NasAaaProtocol::Radius && eap.accounting.used).then_some((
            "acct",
            &listen.acct,
            ports::ACCOUNTING,
        )));
        for (key, listened, port) in needed {
            let reached = listened.iter().any(|at| addresses.is_reachable_at(of_server, at.ip()));
            let own = addresses.address_of(of_server);
            // An SCTP listener announces all its addresses to the peer, so it must name them instead of using the
            // wildcard.
            let such =
                if key == "diameter_sctp" { SocketAddr::new(own, port) } else { self.wildcard_address(port) };
            let message = format!(
                "other hosts cannot reach \"{server}\" by {key}, which the workload needs: in [listen] of its \
                 configuration, add an address to {key}, such as {key} = [\"{such}\"], or {own}"
            );
            self.require(reached, keys!["hosts", server, "config"], message);
        }
        self.check_tls_service(eap, loaded);
        if eap.aaa == NasAaaProtocol::Radius {
            for member in 0..scenario.member_count(&eap.nas).unwrap_or(0) {
                let nas = addresses.address_of(HostId(of_nas.0 + member));
                if loaded.longest_prefix_client(nas).is_none_or(|client| client.secret.is_none()) {
                    let message = format!(
                        "no [[client]] with a secret covers {nas}, an address of \"{}\": add one, or set \
                         hosts.{}.address",
                        eap.nas, eap.nas
                    );
                    self.add_fault(keys!["hosts", server, "config"], message);
                    break;
                }
            }
        }
        for (key, lines) in [("check", &eap.user.check), ("reply", &eap.user.reply)] {
            for (i, line) in lines.iter().enumerate() {
                let message =
                    format!("\"{line}\" is not ATTRIBUTE OPERATOR VALUE, such as \"Session-Timeout = 3600\"");
                let reads = usher_aaa_config::parse_row(line).is_some();
                self.require(reads, keys!["workload", "user", key, i], message);
            }
        }
        let rows =
            |lines: &[String]| lines.iter().filter_map(|line| usher_aaa_config::parse_row(line)).collect();
        let user =
            UserRows { check: rows(&eap.user.check), reply: rows(&eap.user.reply), groups: Vec::new() };
        if let Err(complaint) = usher_aaa::User::compile(&user, &loaded.dictionary) {
            self.add_fault(keys!["workload", "user"], complaint.to_string());
        }
        for (i, name) in eap.user.groups.iter().enumerate() {
            let known = loaded.file.group.iter().any(|group| group.name == *name);
            let message = format!("the configuration of \"{server}\" has no [[group]] \"{name}\"");
            self.require(known, keys!["workload", "user", "groups", i], message);
        }
    }

    /// Checks that stations and a service can complete a TLS handshake.
    fn check_tls_service(&mut self, eap: &EapWorkload, loaded: &LoadedAaaConfig) {
        let at = |key: &str| keys!["workload", key];
        let own = &eap.eap_tls;
        if eap.has_tls() {
            let proven = own.certificate.is_some() || eap.method != AuthMethod::EapTls;
            let message = "a server that is a service of its host does not know the built-in certificates: give PEM \
                           files, ca for its certificate and, for EAP-TLS, certificate and key of a user";
            self.require(proven && own.ca.is_some(), at("eap_tls"), message);
        }
        let inside =
            [(eap.has_tls(), own.version, "eap_tls"), (eap.uses_tls_transport(), eap.tls.version, "tls")];
        let Some(files) = &loaded.tls else { return };
        let key = TlsCredentials::from_pem(&files.certificate, files.key.0.as_bytes());
        for (_, _, table) in
            inside.into_iter().filter(|(used, version, _)| *used && *version == TlsVersion::Tls12)
        {
            let rsa = key.as_ref().is_ok_and(TlsCredentials::is_rsa);
            let message = "clients with TLS 1.2 accept only servers with RSA keys, and this server has another key: \
                           set \"1.3\"";
            self.require(rsa, keys!["workload", table, "version"], message);
        }
    }

    fn check_accounting(&mut self, eap: &EapWorkload) {
        let at = |key: &str| keys!["workload", "accounting", key];
        self.check_time_law(&eap.accounting.session, at("session"));
        if let TimeDistribution::Constant(time) = eap.accounting.session {
            self.require_positive(time, at("session"));
        }
        if let Some(time) = eap.accounting.interim.get() {
            self.require_positive(time, at("interim"));
        }
        let own =
            eap.aaa == NasAaaProtocol::Diameter && eap.diameter.connections == NasConnections::PerSession;
        self.require(
            !(eap.accounting.used && own),
            at("used"),
            format!(
                "accounting needs persistent connections, and each authentication has its own: {} must be a number",
                self.setting_name("diameter.connections")
            ),
        );
    }

    fn check_dialogue(&mut self, dialogue: &DialogueWorkload) {
        let at = |key: &str| keys!["workload", key];
        if self.require_endpoint(&dialogue.clients, at("clients"))
            & self.require_endpoint(&dialogue.server, at("server"))
        {
            if dialogue.clients == dialogue.server {
                self.add_fault(
                    at("server"),
                    format!("\"{}\" has another role in this workload already", dialogue.server),
                );
            } else {
                self.check_reachability(&dialogue.clients, &dialogue.server, at("server"));
            }
        }
        self.require(!dialogue.rounds.is_empty(), at("rounds"), "a dialogue needs at least one round");
        let largest = match dialogue.transport {
            TransportProtocol::Udp => 65_507,
            TransportProtocol::Tcp | TransportProtocol::Tls => 1 << 30,
            // A message must fit into the receiver's buffer.
            TransportProtocol::Sctp => self.scenario.transport.sctp.receive_buffer.bytes().min(1 << 30),
        };
        let streams = dialogue.streams.get();
        self.require(
            streams <= 65_535,
            at("streams"),
            format!("{streams} streams are too many: an SCTP association has at most 65535"),
        );
        for (i, round) in dialogue.rounds.iter().enumerate() {
            for (key, size) in [("request", &round.request), ("answer", &round.answer)] {
                self.check_size_law(size, largest, keys!["workload", "rounds", i, key]);
            }
        }
        self.check_piece_size(dialogue.write_size, at("write_size"));
        self.require(
            dialogue.transport == TransportProtocol::Tcp || dialogue.write_rate == Bound::Unlimited,
            at("write_rate"),
            "UDP and SCTP send whole messages: to write a request in pieces, set transport = \"tcp\"",
        );
        self.check_time_law(&dialogue.turnaround, at("turnaround"));
        self.check_time_law(&dialogue.think, at("think"));
        if let Some(policy) = dialogue.retransmission.radius_policy() {
            self.check_retransmission(&policy, keys!["workload", "retransmission"]);
        }
        let clients = u64::from(dialogue.per_host.get())
            * u64::from(self.scenario.member_count(&dialogue.clients).unwrap_or(0));
        self.require(
            dialogue.per_host == PositiveCount::ONE || clients <= MAX_HOSTS,
            at("per_host"),
            format!("{clients} clients are too many: at most {MAX_HOSTS} can be simulated"),
        );
        if let Bound::Limited(time) = dialogue.give_up {
            self.require_positive(time, at("give_up"));
        }
    }

    /// Checks the message size of a dialogue, at most `largest` bytes.
    fn check_size_law(&mut self, law: &SizeDistribution, largest: u64, mut path: Vec<String>) {
        let (least, most) = law.size_bounds();
        let fits = |bytes: u64| (1..=largest).contains(&bytes);
        match law {
            SizeDistribution::Constant(_) => {
                self.require(fits(most), path, format!("{most} B is not between 1 B and {largest} B"));
            }
            _ if most == 0 => self.add_fault(path, "expected at least one size of 1 B or more"),
            SizeDistribution::Uniform { .. } if least > most => {
                path.push("low".to_owned());
                self.add_fault(path, format!("{least} B is above high, {most} B"));
            }
            _ => self.require(
                fits(least) && fits(most),
                path,
                format!("{least} B to {most} B are not between 1 B and {largest} B"),
            ),
        }
    }

    fn check_time_law(&mut self, law: &TimeDistribution, mut path: Vec<String>) {
        if let TimeDistribution::Uniform { low, high } = law {
            path.push("low".to_owned());
            self.require(low <= high, path, format!("{} is above high, {}", low.get(), high.get()));
        }
    }

    /// Checks the arrivals. `needed` is true if dialogues start by arrivals only.
    fn check_arrivals(&mut self, arrivals: &ArrivalSettings, needed: bool) {
        let at = |key: &str| keys!["workload", "arrivals", key];
        let (start, limit, key) = match arrivals {
            ArrivalSettings::Poisson { start, limit, .. } => (start, limit, "limit"),
            ArrivalSettings::Constant { interval, start, count, .. } => {
                self.require_positive(*interval, at("interval"));
                (start, count, "count")
            }
            ArrivalSettings::Closed { pause, start, limit } => {
                self.check_time_law(pause, at("pause"));
                let longest = match pause {
                    TimeDistribution::Constant(time) | TimeDistribution::Exponential { mean: time } => *time,
                    TimeDistribution::Uniform { high, .. } => *high,
                };
                self.require_positive(longest, at("pause"));
                (start, limit, "limit")
            }
        };
        self.require(*limit != Some(0), at(key), "0 is impossible here: one or more");
        let run = &self.scenario.run;
        let end = run.warmup.get() + run.duration.get();
        self.require(
            start.get() < end || run.duration.get().is_zero() || !needed,
            at("start"),
            format!(
                "no dialogue would begin: {} is not before the end of the counted time, {end}",
                start.get()
            ),
        );
    }

    fn check_background(&mut self) {
        let scenario = self.scenario;
        let headers = match scenario.run.ip {
            IpVersion::V4 => 28,
            IpVersion::V6 => 48,
        };
        for (i, traffic) in scenario.background.iter().enumerate() {
            let at = |key: &str| keys!["background", i, key];
            if self.require_endpoint(&traffic.from, at("from")) & self.require_endpoint(&traffic.to, at("to"))
            {
                if traffic.from == traffic.to {
                    self.add_fault(at("to"), format!("\"{}\" cannot send to itself", traffic.to));
                } else {
                    self.check_reachability(&traffic.from, &traffic.to, at("to"));
                }
            }
            let size = traffic.packet.bytes();
            self.require(
                (headers..=65_535).contains(&size),
                at("packet"),
                format!("{size} B is not between the headers' {headers} B and 65535 B"),
            );
            if let Some(stop) = traffic.stop {
                self.require(
                    traffic.start < stop,
                    at("stop"),
                    format!("{} is not after start, {}", stop.get(), traffic.start.get()),
                );
            }
        }
        for (i, link) in scenario.capture.links.iter().enumerate() {
            if scenario.link_names().all(|name| name != link) {
                let near = name_hint(link, scenario.link_names());
                self.add_fault(keys!["capture", "links", i], format!("there is no link \"{link}\"{near}"));
            }
        }
    }
}

/// Returns names that occur more than once, with the index of each later occurrence.
pub(crate) fn find_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
    let mut seen = BTreeMap::new();
    names.enumerate().filter(|&(i, name)| *seen.entry(name).or_insert(i) != i).collect()
}
