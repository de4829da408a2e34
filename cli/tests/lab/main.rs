//! Studies on the lab, run by the program: the measurements on this machine's kernel compared with the simulator. The
//! lab measures the machine's own delays in the same run. Larger differences come from the network or the transport.
//!
//! Needs the lab's rights, as root has them. It runs in real time, so it is a separate test program.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use usher_lab::LabRegistry;

/// The timeout of a lab's start on a busy machine.
const LAB_START_TIMEOUT: Duration = Duration::from_secs(120);

/// Locks the lab among all processes until dropped. Two labs would compete for the processor.
fn lock_lab() -> File {
    let file = File::create(std::env::temp_dir().join("usher-lab-study-turn")).unwrap();
    file.lock().unwrap();
    file
}

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("usher-lab-study-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn run_usher(line: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_usher")).args(line).output().unwrap()
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Means of the simulator and of the kernel, by point and metric.
type MetricMeans = BTreeMap<(String, String), [f64; 2]>;

/// The number of links between hosts in these studies.
const HOPS: f64 = 3.0;

/// The results of a study on both.
struct LabComparison {
    means: MetricMeans,
    /// The mean machine delay of a message in seconds, as measured in the run: the wait for the relay at each link
    /// and for the receiving host.
    turn: f64,
}

impl LabComparison {
    /// Checks that a delay on the kernel matches the simulator. It must not be below the links' delay. The median may
    /// exceed the simulator's by a tenth, by `work` that the simulator does not charge, and by twice the mean machine
    /// delay of `messages`. By Markov's inequality, at most half of the dialogues exceed that.
    #[track_caller]
    fn check_delay(&self, point: &str, [sim, lab]: [f64; 2], least: f64, (messages, work): (f64, f64)) {
        let most = 1.1 * sim + work + 2.0 * messages * self.turn;
        assert!(
            lab > least * sim && lab < most,
            "{point}: {sim} s simulated, {lab} s on the kernel, where {most} s would do; a turn takes {} s",
            self.turn
        );
    }
}

/// Runs a study on both and reads the results.
fn compare_study(study: &str, sets: &[&str]) -> LabComparison {
    let _turn = lock_lab();
    let scratch = TempDir::new(study);
    let folder = scratch.0.display().to_string();
    let mut line = vec!["study", "run", study, "--on", "both", "--out", &folder];
    // Two at a time if there is little computation.
    line.extend(["--replications", "2", "--jobs", if study == "aaa-nagle" { "1" } else { "2" }]);
    line.extend(sets.iter().flat_map(|set| ["--set", set]));
    let done = run_usher(&line);
    assert!(done.status.success(), "{}\n{}", lossy_text(&done.stdout), lossy_text(&done.stderr));
    let manifest = std::fs::read_to_string(scratch.0.join("lab/manifest.json")).unwrap();
    assert!(manifest.contains("\"on\": \"lab\""), "{manifest}");
    let table = std::fs::read_to_string(scratch.0.join("agreement.csv")).unwrap();
    let line = |line: &str| {
        let (point, rest) = line.strip_prefix('"')?.split_once("\",")?;
        let mut fields = rest.split(',');
        let metric = fields.next()?.to_owned();
        let sim = fields.next()?.parse().ok()?;
        let lab = fields.nth(1)?.parse().ok()?;
        Some(((point.to_owned(), metric), [sim, lab]))
    };
    let late = manifest_facts(&scratch.0.join("lab"), "lab_");
    let turn = late["timers_late_mean_s"] + HOPS * late["relay_late_mean_s"];
    LabComparison { means: table.lines().skip(1).filter_map(line).collect(), turn }
}

/// Returns a metric at each point, in the order of names.
fn metric_means<'a>(means: &'a MetricMeans, metric: &'a str) -> impl Iterator<Item = (&'a str, [f64; 2])> {
    means.iter().filter(move |((_, m), _)| m == metric).map(|((point, _), both)| (point.as_str(), *both))
}

#[test]
fn kernel_logins_match_the_simulated_messages_and_delays() {
    let compared = compare_study(
        "aaa-hol",
        &["loss=0 %", "run.duration=15 s", "run.drain=5 s", "hosts.station.count=20"],
    );
    let means = &compared.means;
    // Messages between station and authenticator, and between authenticator and server.
    let messages = |point: &str| -> f64 {
        let over = |link| metric_means(means, link).find(|(at, _)| *at == point).unwrap().1[0];
        over("packets.wire") + over("packets.lan")
    };
    let mut points = 0;
    for (point, delays) in metric_means(means, "delay.p50") {
        points += 1;
        compared.check_delay(point, delays, 0.98, (messages(point), 0.0));
    }
    assert_eq!(points, 2, "{means:?}");
    for (point, [sim, lab]) in
        metric_means(means, "packets.core").filter(|(point, _)| point.contains("RADIUS"))
    {
        // A login in progress at the start or end of counting may count on either side.
        assert!((sim - lab).abs() < 0.2, "{point}: {sim} packets of a login simulated, {lab} on the kernel");
    }
    for (point, [_, lab]) in metric_means(means, "failures") {
        assert_eq!(lab, 0.0, "{point}");
    }
}

#[test]
fn messages_of_802_21_take_the_links_delays_on_the_kernel() {
    for study in ["mih-udp", "mih-tcp"] {
        let compared =
            compare_study(study, &["loss=0 %", "message=indication", "run.duration=10 s", "run.drain=2 s"]);
        let (point, delays) = metric_means(&compared.means, "delay.p50").next().unwrap();
        compared.check_delay(&format!("{study} {point}"), delays, 0.98, (1.0, 0.0));
        let (_, [_, success]) = metric_means(&compared.means, "success").next().unwrap();
        assert_eq!(success, 1.0, "{study}");
    }
}

#[test]
fn nagle_delays_dialogues_on_the_kernel_as_in_the_simulator() {
    let means =
        compare_study("aaa-nagle", &["nodes=37", "run.duration=8 s", "run.warmup=2 s", "run.drain=3 s"])
            .means;
    let of_both = |metric: &str| {
        ["=with Nagle", "=without Nagle"]
            .map(|nagle| metric_means(&means, metric).find(|(point, _)| point.contains(nagle)).unwrap().1)
    };
    // Messages wait for an acknowledgement, which takes longer than any machine delay, and then leave together.
    let ([with, without], [packets_with, packets_without]) = (of_both("delay.mean"), of_both("packets.core"));
    for (i, network) in ["simulator", "kernel"].into_iter().enumerate() {
        assert!(with[i] > 1.2 * without[i], "{network}: {with:?} s with, {without:?} s without");
        let [fewer, more] = [packets_with[i], packets_without[i]];
        assert!(fewer < 0.75 * more, "{network}: {fewer} packets with, {more} without");
    }
}

/// Returns the facts of a run's manifest whose names begin with `begin`.
fn manifest_facts(folder: &std::path::Path, begin: &str) -> BTreeMap<String, f64> {
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let mut all = BTreeMap::new();
    let mut look = vec![&manifest];
    while let Some(value) = look.pop() {
        for (name, value) in value.as_object().into_iter().flatten() {
            if let (Some(rest), Some(n)) = (name.strip_prefix(begin), value.as_f64()) {
                all.insert(rest.to_owned(), n);
            }
            look.push(value);
        }
    }
    all
}

/// EAP-TLS with real handshakes. Processor time is attributed to the cryptography library, and captures are decrypted
/// with their keys.
#[test]
fn perf_splits_cpu_time_by_library_and_captures_carry_keys() {
    let _turn = lock_lab();
    let scratch = TempDir::new("libraries");
    let folder = scratch.0.join("run");
    let out = folder.display().to_string();
    let mut line = vec![
        "study",
        "run",
        "aaa-hol",
        "--on",
        "lab",
        "--perf",
        "--pcap",
        "--out",
        &out,
        "--replications",
        "1",
    ];
    for set in [
        "loss=0 %",
        "protocol=RADIUS/UDP, RFC 5080",
        "method=eap-tls",
        "workload.eap_tls.handshake=real",
        // Enough samples for a share: 130 samples gave a result two standard deviations too low.
        "workload.arrivals.rate=12 /s",
        "run.duration=10 s",
        "run.drain=2 s",
        "hosts.station.count=10",
    ] {
        line.extend(["--set", set]);
    }
    let done = run_usher(&line);
    let said = lossy_text(&done.stdout) + &lossy_text(&done.stderr);
    assert!(done.status.success(), "{said}");
    let spent = manifest_facts(&folder, "lab_processor_s.");
    assert!(["station", "nas", "server"].iter().all(|host| spent[*host] > 0.0), "{spent:?}");
    let by = manifest_facts(&folder, "lab_sampled_by.");
    if by.is_empty() {
        assert!(said.contains("is not divided among libraries: Linux perf"), "{said}");
    } else {
        assert!(said.contains("Processor time by library, by samples of"), "{said}");
        let libraries = manifest_facts(&folder, "lab_library_s.");
        for (host, took) in spent.iter().filter(|(host, _)| *host != "router") {
            let of: f64 =
                libraries.iter().filter(|(name, _)| name.starts_with(host.as_str())).map(|(_, s)| s).sum();
            assert!((of - took).abs() < 1e-6 * took.max(1.0), "{host}: {libraries:?} {spent:?}");
        }
        // The share depends on how far the rest is optimised. Other cryptography takes almost no time.
        assert!(libraries["server.AWS-LC"] > 0.1 * spent["server"], "{libraries:?} {spent:?}");
        let other = libraries.get("server.RustCrypto").copied().unwrap_or_default();
        assert!(libraries["server.AWS-LC"] > 4.0 * other, "{libraries:?} {spent:?}");
    }
    let captures: Vec<PathBuf> = std::fs::read_dir(folder.join("captures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcapng"))
        .collect();
    assert_eq!(captures.len(), 1, "{captures:?}");
    // A block of secrets for tshark, with a line for each handshake.
    let capture = std::fs::read(&captures[0]).unwrap();
    let keys = capture.windows(14).filter(|octets| octets == b"CLIENT_RANDOM ").count();
    assert!(keys > 5, "{keys} handshakes have their keys");
}

/// The messages and octets match the simulation, and so does the time without charged work. Each role has processor
/// time.
#[test]
fn ikev2_on_the_kernel_sends_the_messages_of_the_simulator() {
    for way in ["MD5", "TLS-2-2", "certificates, RSA"] {
        let way = format!("way={way}");
        let compared = compare_study(
            "ike-auth",
            &[
                way.as_str(),
                "run.duration=5 s",
                "run.warmup=1 s",
                "run.drain=1 s",
                // On a busy machine, too, an IKE_SA ends before the next begins. So its last messages are not counted
                // for the next.
                "workload.arrivals.interval=1 s",
                "workload.lifetime=20 ms",
            ],
        );
        let means = &compared.means;
        let (_, started) = metric_means(means, "started").next().unwrap();
        assert!(started[0] == started[1] && started[0] >= 5.0, "{way}: {started:?}");
        assert_eq!(metric_means(means, "failures").next().unwrap().1, [0.0, 0.0], "{way}");
        for metric in ["ike.messages", "ike.initiator.bytes", "ike.gateway.bytes", "ike.radius-request.bytes"]
        {
            let (_, [sim, lab]) = metric_means(means, metric).next().unwrap();
            assert_eq!(sim, lab, "{way} {metric}");
        }
        let mut work = 0.0;
        for host in ["initiator", "responder", "server"] {
            let (_, [_, took]) = metric_means(means, &format!("cpu.{host}")).next().unwrap();
            assert!(
                (took > 1e-5 || host == "server") && took < 1.0,
                "{way} {host}: {took} s of processor time"
            );
            work += took;
        }
        // Each IKE message may be followed by one of RADIUS. The work may vary by half of the mean.
        let (_, [messages, _]) = metric_means(means, "ike.messages").next().unwrap();
        let (_, delays) = metric_means(means, "delay.p50").next().unwrap();
        compared.check_delay(&way, delays, 0.3, (2.0 * messages, 2.0 * work));
    }
}

#[test]
fn what_cannot_run_on_the_lab_is_refused_with_its_reason() {
    for (line, reason) in [
        (vec!["study", "run", "aaa-keys", "--on", "lab"], "cells.access.used"),
        (vec!["study", "run", "mih-sctp", "--on", "lab"], "bss.wlan.used"),
        (vec!["study", "run", "aaa-hol", "--on", "lab", "--kernel", "kernel.panic=1"], "not a sysctl"),
        (vec!["study", "run", "aaa-hol", "--kernel", "net.ipv4.tcp_sack=0"], "has no kernel"),
        (vec!["study", "run", "aaa-hol", "--on", "lab", "--quick"], "--quick"),
    ] {
        let done = run_usher(&line);
        let told = lossy_text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{line:?}: {told}");
        assert!(told.contains(reason), "{line:?}: {told}");
    }
}

#[test]
fn an_interrupted_run_leaves_a_resumable_folder_and_no_lab() {
    let _turn = lock_lab();
    let scratch = TempDir::new("interrupted");
    let folder = scratch.0.join("out");
    let line = ["study", "run", "mih-udp", "--on", "lab", "--set", "run.duration=60 s", "--out"];
    let run = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(line)
        .arg(&folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = run.id().to_string();
    let labs = || LabRegistry::of_user().unwrap().running_labs().unwrap();
    let is_there = || labs().iter().any(|lab| lab.process.to_string() == process);
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < LAB_START_TIMEOUT, "no lab is built");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
    let done = run.wait_with_output().unwrap();
    let told = lossy_text(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{told}");
    assert!(told.contains("--on lab") && !told.contains("failed:"), "{told}");
    let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
    assert!(manifest.contains("\"complete\": false"), "{manifest}");
    assert!(!is_there(), "{:?}", labs());
}
