//! The additional steps of `--on lab`: rights, the study's fitness, and differences of the kernel.

use crate::args::StudyRunArgs;
use crate::output::{CommandFailure, ConsoleOutput};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_lab::{KernelSettings, LabRegistry};
use usher_observe::manifest::{ManifestValue, RunHostInfo};
use usher_runner::sweep::{SweepEstimate, SweepResults};
use usher_runner::world::{LabRunSettings, sctp_config, tcp_config};
use usher_scenario::{StudyPlan, lab};

/// Returns how many replications run at once on `cores`. One core is left for the relays and the rest of the machine.
pub(super) fn default_job_count(cores: usize) -> usize {
    cores.saturating_sub(1).max(1)
}

/// Returns the lab's settings from the command line, and acquires the rights that the lab needs.
pub(super) fn lab_settings(
    run: &StudyRunArgs,
    stop: Arc<AtomicBool>,
) -> Result<LabRunSettings, CommandFailure> {
    let kernel = kernel_settings(run)?;
    usher_lab::acquire_rights().map_err(|e| CommandFailure::runtime_error(e.to_string()))?;
    let registry = LabRegistry::of_user().map_err(|e| CommandFailure::runtime_error(e.to_string()))?;
    Ok(LabRunSettings { registry, kernel, perf: run.perf, stop })
}

/// Returns the kernel settings from the command line.
pub(super) fn kernel_settings(run: &StudyRunArgs) -> Result<KernelSettings, CommandFailure> {
    let mut kernel = KernelSettings::default();
    for argument in &run.kernel {
        kernel.add_argument(argument).map_err(|e| CommandFailure::usage_error(format!("--kernel: {e}")))?;
    }
    Ok(kernel)
}

/// Returns why a plan cannot run on a lab, if it cannot.
pub(super) fn lab_incompatibility_reason(plan: &StudyPlan) -> Option<String> {
    let mut reasons: Vec<String> = Vec::new();
    for reason in plan.points.iter().flat_map(|point| lab::lab_obstacles(&point.scenario)) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if plan.points.iter().any(|point| lab::needs_sctp(&point.scenario)) && !usher_lab::has_sctp() {
        reasons.push(format!(
            "it has points over SCTP: {}; or omit those points with lab = [...] at the axis",
            usher_lab::SctpUnavailable
        ));
    }
    (!reasons.is_empty()).then(|| format!("{} cannot run on the lab: {}", plan.study, reasons.join("; ")))
}

/// Lists the study's transport settings that the kernel implements differently, each once.
pub(super) fn kernel_differences(plan: &StudyPlan) -> Vec<String> {
    let mut all = BTreeSet::new();
    for point in plan.points.iter().filter(|point| lab::needs_sctp(&point.scenario)) {
        let scenario = &point.scenario;
        let sctp = sctp_config(&scenario.transport.sctp, scenario.run.ip.into(), 1500);
        all.extend(usher_lab::unsupported_sctp_settings(&sctp).iter().map(ToString::to_string));
    }
    for point in plan.points.iter().filter(|point| lab::used_transports(&point.scenario).contains("tcp")) {
        let scenario = &point.scenario;
        let mtu = scenario.links.iter().map(|(_, link)| link.mtu.bytes() as u32).min().unwrap_or(1500);
        let tcp = tcp_config(&scenario.transport.tcp, scenario.run.ip.into(), mtu);
        let differing =
            usher_lab::unsupported_settings(&tcp).into_iter().chain(usher_lab::kernel_missing_settings(&tcp));
        all.extend(differing.map(|setting| setting.to_string()));
    }
    let hosts = plan.points.iter().flat_map(|point| point.scenario.hosts.iter());
    let charged = hosts
        .filter(|(_, host)| host.cpu.is_some())
        .map(|(name, _)| format!("hosts.{name}.cpu: the lab charges no work; the work takes its real time"));
    all.extend(charged);
    all.into_iter().collect()
}

/// Reports these differences.
pub(super) fn report_kernel_differences(output: &ConsoleOutput, plan: &StudyPlan) {
    for difference in kernel_differences(plan) {
        output.print_note(&format!("on the lab, {difference}"));
    }
}

/// Returns a plan's longest duration. A lab runs in real time.
pub(super) fn estimate_time(plan: &StudyPlan, jobs: usize) -> SweepEstimate {
    let times =
        plan.points.iter().map(|point| (&point.scenario.run.replications, lab::real_time(&point.scenario)));
    let (mut low, mut high, mut count) = (0.0, 0.0, 0.0);
    for (replications, time) in times {
        low += f64::from(replications.min.get()) * time;
        high += f64::from(replications.max.get()) * time;
        count += f64::from(replications.min.get());
    }
    let jobs = jobs.max(1) as f64;
    SweepEstimate {
        tried: 0,
        per_replication_s: low / f64::max(count, 1.0),
        low_s: low / jobs,
        high_s: high / jobs,
    }
}

/// Returns a mark that, beside the plan, ties a journal to the source of its rows.
pub(super) fn journal_source_suffix(kernel: &KernelSettings) -> String {
    let settings: String = kernel.sysctls.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!(" on lab, {}{settings}", RunHostInfo::detect().kernel)
}

/// Lists the replications whose network or timing deviated from the plan.
pub(super) fn disturbance_warnings(results: &SweepResults) -> Vec<String> {
    let count = |name: &str| results.facts.lab.sums.get(name).copied().unwrap_or(0.0);
    let (runs, disturbed, late) = (count("runs"), count("runs_disturbed"), count("runs_late"));
    let mut all = Vec::new();
    if disturbed > 0.0 {
        all.push(format!(
            "In {disturbed} of {runs} replications, the lab itself lost packets (manifest.json: \
             lab_relay_overflowed, lab_not_sent and others). Use fewer --jobs."
        ));
    }
    if late > 0.0 {
        all.push(format!(
            "In {late} of {runs} replications, the relay was more than 1 ms late with 1 % of the packets, or \
             a timer 20 ms late. The machine was busy with other work."
        ));
    }
    all
}

/// Returns the `perf` event that divided processor time among libraries, if one did.
fn sampled_by(results: &SweepResults) -> Option<&str> {
    results.facts.lab.sums.keys().find_map(|name| name.strip_prefix("sampled_by."))
}

/// Lists the processor time of each group of hosts by library, a line for each.
pub(super) fn describe_library_cpu_times(results: &SweepResults) -> Vec<String> {
    let sums = &results.facts.lab.sums;
    let Some(event) = sampled_by(results) else {
        return vec![
            "The processor time is not divided among libraries: Linux perf is missing or not permitted \
             (/proc/sys/kernel/perf_event_paranoid)."
                .to_owned(),
        ];
    };
    let by = match event {
        "cycles" => "the processor's cycle counter",
        _ => "the kernel's clock, since this machine has no cycle counter",
    };
    let mut all = vec![format!("Processor time by library, by samples of {by}:")];
    for (host, samples) in sums.iter().filter_map(|(name, n)| Some((name.strip_prefix("samples.")?, *n))) {
        let took = sums.get(&format!("processor_s.{host}")).copied().unwrap_or(0.0);
        let of = format!("library_s.{host}.");
        let mut parts: Vec<(&str, f64)> =
            sums.iter().filter_map(|(name, s)| Some((name.strip_prefix(of.as_str())?, *s))).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
        let whole: f64 = parts.iter().map(|(_, s)| s).sum();
        let shares: Vec<String> = parts
            .iter()
            .map(|(library, s)| format!("{library} {:.0} %", s * 100.0 / whole.max(1e-12)))
            .collect();
        all.push(format!("  {host}: {took:.2} s ({samples} samples): {}", shares.join(", ")));
    }
    all
}

/// Returns the manifest's facts about a run on a lab.
pub(super) fn lab_facts(
    plan: &StudyPlan,
    kernel: &KernelSettings,
    results: &SweepResults,
) -> Vec<(String, ManifestValue)> {
    let lab = &results.facts.lab;
    let settings: Vec<String> =
        kernel.sysctls.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut facts = vec![
        ("on".to_owned(), ManifestValue::from("lab")),
        ("clock".to_owned(), ManifestValue::from("CLOCK_MONOTONIC")),
        ("kernel_settings".to_owned(), ManifestValue::from(settings.join("; "))),
        ("kernel_differs".to_owned(), ManifestValue::from(kernel_differences(plan).join("; "))),
    ];
    for (late, of) in [("relay_late_s", "relay_packets"), ("timers_late_s", "timers")] {
        if let (Some(late_s), Some(of)) = (lab.sums.get(late), lab.sums.get(of)) {
            let name = late.replace("late_s", "late_mean_s");
            facts.push((
                format!("lab_{name}"),
                ManifestValue::from(if *of > 0.0 { late_s / of } else { 0.0 }),
            ));
        }
    }
    let told = lab.sums.iter().chain(&lab.most);
    facts.extend(told.map(|(name, value)| (format!("lab_{name}"), ManifestValue::from(*value))));
    facts
}
