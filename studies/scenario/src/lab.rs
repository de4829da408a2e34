//! The requirements of a study on a lab, the network of the kernel.

use crate::model::{NasAaaProtocol, Scenario, Workload};
use std::collections::BTreeSet;
use usher_core::TransportProtocol;

/// Returns the transports of a scenario's workloads, sorted by name.
pub fn used_transports(scenario: &Scenario) -> BTreeSet<&'static str> {
    let workloads = scenario.all_workloads().map(|(_, workload)| match workload {
        Workload::Dialogue(dialogue) => transport_name(dialogue.transport),
        Workload::Eap(eap) => match eap.aaa {
            NasAaaProtocol::Radius => "udp",
            NasAaaProtocol::Radsec => "tcp",
            NasAaaProtocol::Diameter => transport_name(eap.diameter.transport),
        },
        Workload::Ident(_) => "tcp",
        Workload::Ike(_) => "udp",
        Workload::Mih(mih) => transport_name(mih.transport),
        Workload::Pppoe(_) => "frames",
        Workload::Handover(handover) => transport_name(handover.transport),
    });
    workloads.collect()
}

const fn transport_name(transport: TransportProtocol) -> &'static str {
    match transport {
        TransportProtocol::Udp => "udp",
        TransportProtocol::Tcp | TransportProtocol::Tls => "tcp",
        TransportProtocol::Sctp => "sctp",
    }
}

/// Returns the obstacles to running a scenario on a lab, a sentence each.
pub fn lab_obstacles(scenario: &Scenario) -> Vec<String> {
    let mut all = Vec::new();
    let radio = scenario.cells_in_use().map(|(name, _)| ("cells", name, "802.16 cell"));
    let radio = radio.chain(scenario.bss_in_use().map(|(name, _)| ("bss", name, "802.11 cell")));
    for (table, name, what) in radio {
        all.push(format!(
            "{table}.{name} is an {what}, and a lab has no radio: set \"{table}.{name}.used\" = false in [lab], and \
             add a link in its place"
        ));
    }
    if scenario.all_workloads().any(|(_, workload)| matches!(workload, Workload::Handover(_))) {
        all.push("a lab has no radio: handovers run only on the simulator".to_owned());
    }
    if scenario.all_workloads().any(|(_, workload)| matches!(workload, Workload::Pppoe(_))) {
        all.push(
            "a lab carries no packets of PPPoE sessions: usher pppoe serve and benches/peers/pppoe-rate measure them"
                .to_owned(),
        );
    }
    let policy = |workload: &Workload| matches!(workload, Workload::Ike(ike) if ike.policy.is_some());
    if scenario.all_workloads().any(|(_, workload)| policy(workload)) {
        all.push("a lab negotiates CHILD_SAs but carries no packets by them: leave policy out".to_owned());
    }
    if !scenario.outages.is_empty() {
        all.push("hosts of a lab do not fail: leave [[outages]] out".to_owned());
    }
    if scenario.transport.tcp.receive_buffer.bytes() > i32::MAX as u64 / 2 {
        all.push("transport.tcp.receive_buffer is larger than the kernel's maximum".to_owned());
    }
    all
}

/// True if a scenario needs SCTP, which some kernels lack.
pub fn needs_sctp(scenario: &Scenario) -> bool {
    used_transports(scenario).contains("sctp")
}

/// Returns the longest duration of a replication in real time, in seconds.
pub fn real_time(scenario: &Scenario) -> f64 {
    let run = &scenario.run;
    [run.warmup, run.duration, run.drain].iter().map(|time| time.get().as_secs_f64()).sum()
}
