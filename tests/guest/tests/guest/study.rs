//! A study on the guest's kernel. Roles, study file and metrics are those of the simulator. The messages go over the
//! kernel's SCTP, through the lab's namespaces and relay.

use std::collections::BTreeMap;
use usher_guest_tests::{run_program, usher_program};

/// Means of the simulator and of the kernel, by point.
type MeansByPoint = BTreeMap<String, [f64; 2]>;

/// Runs the guest's study on both with these settings. Returns metrics of each point.
fn run_sim_and_lab(name: &str, metrics: &[&str], sets: &[&str]) -> BTreeMap<String, MeansByPoint> {
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/studies/diameter-sctp.toml");
    let (program, out) = (usher_program(), folder.join("out").display().to_string());
    let asked = [program.as_str(), "study", "run", study, "--on", "both", "--plain", "--jobs", "1"];
    let told = ["--replications", "1", "--out", &out];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    println!("{}", run_program(&folder, &[&asked[..], &told, &sets].concat()));
    let table = std::fs::read_to_string(folder.join("out/agreement.csv")).unwrap();
    let mut found = BTreeMap::<String, MeansByPoint>::new();
    for line in table.lines().skip(1) {
        let (point, rest) = line.strip_prefix('"').and_then(|l| l.split_once("\",")).expect("a point");
        let fields: Vec<&str> = rest.split(',').collect();
        if metrics.contains(&fields[0]) {
            let means = [1, 3].map(|at: usize| fields[at].parse().expect("a mean"));
            found.entry(fields[0].to_owned()).or_default().insert(point.to_owned(), means);
        }
    }
    found
}

/// One association, links of 50 ms: a login takes two round trips, and Nagle's algorithm adds part of an
/// acknowledgement's.
#[test]
fn logins_over_the_kernels_sctp_take_what_the_simulator_says() {
    // A namespace per station costs far more than its logins. So there are as few stations as concurrent logins.
    let stations = "hosts.station.count=100";
    let sets = ["loss=0 %", "streams=64", stations, "run.duration=8 s", "run.warmup=2 s", "run.drain=2 s"];
    // A busy machine may pause the guest in one run, but not in each.
    let mut all = Vec::new();
    let is_alike = (0..3).any(|attempt| {
        let name = format!("study-sctp-{attempt}");
        let found = run_sim_and_lab(&name, &["delay.mean", "sctp.packets", "completed"], &sets);
        let (delays, packets) = (found["delay.mean"].clone(), found["sctp.packets"].clone());
        assert_eq!(delays.len(), 2, "with Nagle's delay and without: {found:?}");
        let is_near = |of: &MeansByPoint| of.values().all(|[sim, lab]| (lab - sim).abs() <= 0.15 * sim);
        let costs = |which: usize| {
            let mut all: Vec<f64> = delays.values().map(|both| both[which]).collect();
            all.sort_by(f64::total_cmp);
            all[1] / all[0] > 1.05
        };
        let is_alike = is_near(&delays) && is_near(&packets) && costs(0) && costs(1);
        all.push((delays, packets));
        is_alike
    });
    assert!(
        is_alike,
        "delays and packets of a login, simulated and in the lab, where waiting costs on both: {all:?}"
    );
}
