//! Runs with results known by hand arithmetic or from theory.

use usher_core::Instant;
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Study, StudyMode};
use usher_wire_tests::{CapturedPacket, CapturedRun, study_plan};

/// Returns the nanoseconds of `bytes` on a link of `mbps` Mb/s.
fn on_link(bytes: u64, mbps: u64) -> u64 {
    bytes * 8 * 1000 / mbps
}

fn to_nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn plain_dialogue_study(workload: &str) -> String {
    usher_wire_tests::dialogue_study("", workload)
}

#[track_caller]
fn assert_delay(run: &CapturedRun, expected: u64) {
    assert_eq!((run.metric("completed"), run.metric("failures")), (10.0, 0.0));
    for metric in ["delay.mean", "delay.p50", "delay.max"] {
        assert_eq!(to_nanoseconds(run.metric(metric)), expected, "{metric}");
    }
}

#[test]
fn a_dialogue_over_udp_takes_what_its_packets_take() {
    let run = CapturedRun::new(&plain_dialogue_study(
        "transport = \"udp\"\nrounds = [{ request = \"200 B\", answer = \"100 B\" }]\nturnaround = \"3 ms\"",
    ));
    // Request: 200 + 8 + 20 = 228 B, 182.4 us and 1824 us. Answer: 128 B, 1024 us and 102.4 us. Four link
    // delays: 1 + 10 + 10 + 1 ms. With the turnaround: 28.1328 ms.
    assert_delay(&run, 28_132_800);
    assert_eq!((run.metric("packets.access"), run.metric("packets.core")), (2.0, 2.0));
    assert_eq!(run.metric("bytes.core"), 356.0);
    run.assert_clean();
}

#[test]
fn framing_takes_its_time_on_a_link() {
    let text =
        plain_dialogue_study("transport = \"udp\"\nrounds = [{ request = \"200 B\", answer = \"100 B\" }]");
    let text = text.replace("[links.core]", "[links.core]\nframing = \"ethernet\"");
    // As before, without the turnaround, plus twice 18 B at 1 Mb/s: 288 us.
    assert_delay(&CapturedRun::new(&text), 25_132_800 + 288_000);
}

#[test]
fn a_datagram_in_fragments_takes_what_its_fragments_take() {
    let text =
        plain_dialogue_study("transport = \"udp\"\nrounds = [{ request = \"2000 B\", answer = \"100 B\" }]");
    let text = text.replace("[links.core]", "[links.core]\nmtu = \"576 B\"");
    let run = CapturedRun::new(&text);
    // The router fragments to at most 552 B (556 rounded down to eights). Cut as a whole, 2008 B would be 552,
    // 552, 552 and 352 B, with 20 B each: 2088 B, 16.704 ms. The access link carries 1500 and 548 B (1480 and
    // 528 of 2008). The router cuts the first at 552, 552 and 376, and forwards the second whole on arrival.
    // The core is busy from the arrival of the first piece: 1500 B at 10 Mb/s and 1 ms, then 572 + 572 + 396 +
    // 548 B at 1 Mb/s and 10 ms. The answer is as before: 1024 + 102.4 us and 11 ms.
    let there = on_link(1500, 10) + 1_000_000 + on_link(572 + 572 + 396 + 548, 1) + 10_000_000;
    assert_delay(&run, there + 12_126_400);
    assert_eq!(run.metric("packets.core"), 5.0);
    run.assert_clean();
}

#[test]
fn a_dialogue_on_an_open_tcp_connection_takes_its_segment_times() {
    let run = CapturedRun::new(&plain_dialogue_study(
        "transport = \"tcp\"\nrounds = [{ request = \"200 B\", answer = \"100 B\" }]\nrepeat = 2",
    ));
    // Request: 200 + 20 + 20 = 240 B, 192 us and 1920 us. Answer: 140 B, 1120 us and 112 us. With a delay of 22
    // ms: 25.344 ms, twice. The answer carries the acknowledgement of the request.
    assert_delay(&run, 2 * 25_344_000);
    // The second request acknowledges the first answer. The second answer's acknowledgement is alone.
    assert_eq!((run.metric("packets.core"), run.metric("tcp.segments")), (5.0, 5.0));
    assert_eq!((run.metric("tcp.acks"), run.metric("tcp.retransmissions")), (1.0, 0.0));
    run.assert_clean();
}

#[test]
fn a_dialogue_on_its_own_connection_takes_a_round_trip_more() {
    let run = CapturedRun::new(&plain_dialogue_study(
        "transport = \"tcp\"\nconnection = \"per-dialogue\"\nrounds = [{ request = \"200 B\", answer = \"100 B\" }]",
    ));
    let lengths = run.tshark_fields("frame.interface_id == 0 && tcp.flags.syn == 1", &["frame.len"]);
    assert_eq!(lengths.len(), 20);
    // With the MSS option a SYN has 20 + 24 = 44 B, 35.2 us and 352 us, and so has its answer. With a delay of
    // 22 ms: 22.7744 ms. The request ends the handshake. The rest is as on an open connection.
    assert!(lengths.iter().all(|l| l[0] == "44"), "{lengths:?}");
    let handshake = 22_000_000 + 2 * (35_200 + 352_000);
    let sizes = run.tshark_fields("tcp.stream == 0 && frame.interface_id == 0", &["frame.len"]);
    assert_eq!([&sizes[2][0], &sizes[3][0]], ["240", "140"]);
    assert_delay(&run, handshake + 25_344_000);
    run.assert_clean();
}

/// Returns a study of one station, its NAS and a server two hops away.
fn two_hop_study(core: &str, workload: &str) -> String {
    format!(
        r#"
[run]
duration = "60 s"
drain = "120 s"
[run.replications]
min = 1
max = 1
[hosts.station]
[hosts.nas]
[hosts.router]
[hosts.server]
[links.access]
between = ["station", "nas"]
rate = "10 Mb/s"
delay = "1 ms"
[links.core]
between = ["nas", "router"]
rate = "1 Mb/s"
delay = "10 ms"
{core}
[links.lan]
between = ["router", "server"]
rate = "100 Mb/s"
delay = "500 us"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
{workload}
[capture]
links = ["access", "core"]
"#
    )
}

#[test]
fn an_authentication_over_radius_takes_what_its_packets_take() {
    let arrivals = "aaa = \"radius\"\narrivals = { kind = \"constant\", interval = \"5 s\", start = \"1 s\", count = 10 }";
    let run = CapturedRun::new(&two_hop_study("", arrivals));
    let packets = run.captured_packets();
    let first: Vec<&CapturedPacket> =
        packets.iter().filter(|p| p.timestamp < Instant::from_nanos(5_000_000_000)).collect();
    let on =
        |interface: u32| first.iter().filter(move |p| p.interface == interface).map(|p| p.bytes.len() as u64);
    // Start; request and response of Identity and of MD5; Success: each answers the previous one. A frame is 4
    // B longer on the wire, by its check sequence.
    assert_eq!((on(0).count(), on(1).count()), (6, 4));
    let access: u64 = on(0).map(|bytes| on_link(bytes + 4, 10) + 1_000_000).sum();
    let core: u64 = on(1).map(|bytes| on_link(bytes, 1) + 10_000_000 + on_link(bytes, 100) + 500_000).sum();
    // All identities have the same length, so all authentications take the same time.
    assert_delay(&run, access + core);
    assert_eq!((run.metric("packets.core"), run.metric("packets.access")), (4.0, 6.0));
    let bytes: u64 = on(1).sum();
    assert_eq!(run.metric("bytes.core"), bytes as f64);
}

#[test]
fn rfc_5080_requests_leave_at_0_2_6_and_14_s_and_end_at_30_s() {
    let workload = "aaa = \"radius\"\ngive_up = \"100 s\"\n\
        arrivals = { kind = \"constant\", interval = \"1000 s\", start = \"1 s\", count = 1 }\n\
        [workload.radius]\nretransmission = { kind = \"rfc5080\", jitter = \"0 %\" }";
    let run = CapturedRun::new(&two_hop_study("loss = \"100 %\"", workload));
    let times = |interface, filter: &str| {
        let packets = run.captured_packets();
        let frames =
            run.tshark_fields(&format!("frame.interface_id == {interface} && {filter}"), &["frame.number"]);
        let at = |f: &Vec<String>| packets[f[0].parse::<usize>().unwrap() - 1].timestamp;
        frames.iter().map(at).collect::<Vec<_>>()
    };
    let requests = times(1, "radius.code == 1");
    let first = requests[0];
    let after: Vec<u64> = requests.iter().map(|at| at.duration_since(first).as_nanos()).collect();
    // RFC 5080, 2.2.1: IRT 2 s, doubled up to MRT 16 s. MRD 30 s ends the retransmissions.
    assert_eq!(after, [0, 2_000_000_000, 6_000_000_000, 14_000_000_000]);
    // The NAS reports the failure over one access link. The packet of 4 + 4 octets makes a frame of 22 B.
    let failure = times(0, "eap.code == 4");
    assert_eq!(failure.len(), 1);
    assert_eq!(failure[0].duration_since(first).as_nanos(), 30_000_000_000 + on_link(22 + 4, 10) + 1_000_000);
    assert_eq!(run.metric("completed"), 0.0);
    run.assert_clean();
}

#[test]
fn a_lossy_link_lets_its_share_of_messages_through() {
    let lossy = |loss: &str| {
        let text = plain_dialogue_study(
            "transport = \"udp\"\nrounds = [{ request = \"20 B\", answer = \"20 B\" }]\ngive_up = \"1 s\"",
        );
        let text = text.replace(
            "interval = \"1 s\", start = \"2 s\", count = 10",
            "interval = \"1 ms\", start = \"2 s\", count = 18000",
        );
        let run = CapturedRun::new(
            &text
                .replace("[links.core]", &format!("[links.core]\n{loss}"))
                .replace("links = [\"access\", \"core\"]", ""),
        );
        assert_eq!(run.metric("started"), 18_000.0);
        run.metric("completed") / 18_000.0
    };
    for (loss, through) in
        [("up = { loss = \"10 %\" }", 0.9), ("down = { loss = \"30 %\" }", 0.7), ("loss = \"20 %\"", 0.64)]
    {
        let seen = lossy(loss);
        // Four standard deviations of the mean of independent trials.
        let margin = 4.0 * (through * (1.0 - through) / 18_000.0_f64).sqrt();
        assert!((seen - through).abs() < margin, "{loss}: {seen}, not {through} +- {margin}");
        assert!(seen != 1.0);
    }
}

#[test]
fn the_mean_delay_at_a_link_is_that_of_an_m_d_1_queue() {
    let study = Study::open("dialogue-queue").unwrap();
    let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
    // Half the width of a two-sided confidence interval at 99.9 % for eight replications, in standard errors:
    // Student's t with seven degrees of freedom.
    const T: f64 = 5.408;
    const N: u32 = 8;
    for point in &plan.points {
        let load: f64 = point.settings[0].text.trim_end_matches(" /s").parse::<f64>().unwrap() / 1000.0;
        let delays: Vec<f64> = (0..N)
            .map(|r| {
                let result = ScenarioRun::new(&point.scenario, point.replication_seed(r), &[], None)
                    .unwrap()
                    .run_to_end()
                    .unwrap();
                result.metrics.iter().find(|(name, _)| name == "delay.mean").unwrap().1
            })
            .collect();
        let mean = delays.iter().sum::<f64>() / f64::from(N);
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / f64::from(N - 1);
        let half = T * (variance / f64::from(N)).sqrt();
        // Service takes 1 ms. The formula is Pollaczek and Khinchine's for constant service.
        let theory = 1e-3 * (1.0 + load / (2.0 * (1.0 - load)));
        assert!((mean - theory).abs() < half, "load {load}: {mean}, not {theory} +- {half}");
        assert!(half < 0.2 * theory, "load {load}: the interval of {half} tells little");
    }
    assert_eq!(plan.points.len(), 3);
}

#[test]
fn the_same_study_gives_the_same_packets() {
    let text = two_hop_study(
        "loss = \"20 %\"",
        "aaa = \"radius\"\narrivals = { kind = \"poisson\", rate = \"2 /s\" }",
    );
    let (a, b) = (CapturedRun::new(&text), CapturedRun::new(&text));
    assert_eq!(std::fs::read(a.capture_path()).unwrap(), std::fs::read(b.capture_path()).unwrap());
    assert!(!study_plan(&text).points.is_empty());
    let other = CapturedRun::new(&text.replace("duration = \"60 s\"", "duration = \"60 s\"\nseed = 2"));
    assert_ne!(std::fs::read(a.capture_path()).unwrap(), std::fs::read(other.capture_path()).unwrap());
}
