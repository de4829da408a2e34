//! Processor time, as the simulator charged it or as roles used it on a lab.

use super::measured::RunMetrics;
use super::network::{ProcessorSamplesByLibrary, ProcessorTimeByHost, RunNetwork};
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::time::Duration;
use usher_core::WorkLabel;
#[cfg(not(target_arch = "wasm32"))]
use usher_lab::CRYPTOGRAPHY;
use usher_scenario::metrics;
use usher_scenario::model::{Scenario, Workload};
use usher_sim::HostId;

/// Nanoseconds charged to a host, and their part for cryptography.
pub(super) type ChargedCpuTime = BTreeMap<HostId, [u64; 2]>;

/// Returns the time charged to hosts until now.
pub(super) fn read_charged_time(network: &RunNetwork, topology: &NetworkTopology) -> ChargedCpuTime {
    let hosts = topology.hosts.values().flatten();
    let of = |host: &HostId| {
        let busy = network.cpu_stats(*host)?.busy_ns;
        Some((*host, [busy, network.cpu_spent(*host, is_cryptography)]))
    };
    hosts.filter_map(of).collect()
}

/// Without a lab there are no samples.
#[cfg(target_arch = "wasm32")]
const CRYPTOGRAPHY: [&str; 0] = [];

/// Adds the metrics of all hosts with a processor. In the simulator it is the time charged since `charged_before`. On a
/// lab it is the time of each host's roles since `before`, including the kernel's work for their sends and receives.
pub(super) fn add_cpu_metrics(
    out: &mut RunMetrics,
    scenario: &Scenario,
    topology: &NetworkTopology,
    network: &RunNetwork,
    (before, charged_before): (&ProcessorTimeByHost, &ChargedCpuTime),
    sampled: Option<&ProcessorSamplesByLibrary>,
) {
    let completed = network.observer().completed_count() as f64;
    let of_ike = |workload: &Workload| matches!(workload, Workload::Ike(_));
    let each = completed > 0.0 && scenario.all_workloads().any(|(_, workload)| of_ike(workload));
    let (after, charged_after) = (network.processor_times(), read_charged_time(network, topology));
    for (name, host) in scenario.hosts.iter() {
        let Some(cpu) = &host.cpu else { continue };
        let members = topology.hosts.get(name).map_or(&[][..], Vec::as_slice);
        let all = network.now().as_secs_f64() * f64::from(cpu.cores.get()) * members.len() as f64;
        if network.is_lab() {
            if each {
                let sum = |of: &ProcessorTimeByHost| {
                    members.iter().filter_map(|host| of.get(host)).sum::<Duration>()
                };
                out.add_member_metric(name, metrics::BUSY, sum(&after).as_secs_f64() / all);
                let took = sum(&after).saturating_sub(sum(before)).as_secs_f64() / completed;
                out.add_member_metric(name, metrics::CPU, took);
                let groups = [metrics::CPU_CRYPTO, metrics::CPU_LIBC, metrics::CPU_KERNEL];
                for (metric, share) in groups.into_iter().zip(sample_fractions(members, sampled)) {
                    out.add_member_metric(name, metric, took * share);
                }
            }
            continue;
        }
        let stats: Vec<_> = members.iter().filter_map(|h| network.cpu_stats(*h)).collect();
        if stats.is_empty() {
            continue;
        }
        let busy: u64 = stats.iter().map(|s| s.busy_ns).sum();
        out.add_member_metric(name, metrics::BUSY, busy as f64 / 1e9 / all);
        if each {
            let sum = |of: &ChargedCpuTime, i: usize| {
                members.iter().filter_map(|h| of.get(h)).map(|n| n[i]).sum::<u64>()
            };
            let each = |i| (sum(&charged_after, i) - sum(charged_before, i)) as f64 / 1e9 / completed;
            out.add_member_metric(name, metrics::CPU, each(0));
            out.add_member_metric(name, metrics::CPU_CRYPTO, each(1));
        }
    }
}

/// Returns the shares of these hosts' samples in cryptography, in the C library and allocator, and in the kernel;
/// `None` without samples.
fn sample_fractions(members: &[HostId], sampled: Option<&ProcessorSamplesByLibrary>) -> Vec<f64> {
    let Some((_, seen)) = sampled else { return Vec::new() };
    let of = |is: &dyn Fn(&str) -> bool| {
        let own = seen.iter().filter(|((host, library), _)| members.contains(host) && is(library));
        own.map(|(_, n)| *n).sum::<u64>() as f64
    };
    let all = of(&|_| true);
    if all <= 0.0 {
        return Vec::new();
    }
    let crypto = of(&|library| CRYPTOGRAPHY.contains(&library));
    let libc = of(&|library| ["libc", "mimalloc"].contains(&library));
    let kernel = of(&|library| library == "kernel");
    [crypto, libc, kernel].map(|n| n / all).to_vec()
}

/// True if the work is purely cryptographic.
fn is_cryptography(label: WorkLabel) -> bool {
    use usher_ike::work as ike;
    let of_ike = [ike::PROTECT, ike::OPEN, ike::KEY_EXCHANGE, ike::DERIVE, ike::SIGN, ike::VERIFY];
    of_ike.contains(&label) || usher_crypto::work::WORK.contains(&label) || label == usher_eap::work::MD5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_divided_into_the_groups_of_a_host() {
        let seen = [
            ((HostId(0), "AWS-LC"), 30),
            ((HostId(0), "RustCrypto"), 10),
            ((HostId(0), "libc"), 15),
            ((HostId(0), "mimalloc"), 5),
            ((HostId(0), "kernel"), 20),
            ((HostId(0), "usher"), 20),
            ((HostId(1), "kernel"), 7),
        ];
        let sampled = ("cpu-clock", seen.into());
        assert_eq!(sample_fractions(&[HostId(0)], Some(&sampled)), [0.4, 0.2, 0.2]);
        assert_eq!(sample_fractions(&[HostId(1)], Some(&sampled)), [0.0, 0.0, 1.0]);
        assert_eq!(sample_fractions(&[HostId(2)], Some(&sampled)), [0.0; 0]);
        assert_eq!(sample_fractions(&[HostId(0)], None), [0.0; 0]);
    }
}
