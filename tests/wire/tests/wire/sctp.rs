//! SCTP as tshark reads it, compared with hand arithmetic, counts and TCP.

use usher_wire_tests::{A_FEW, CapturedRun, authentication_study};

fn sctp_settings(policy: &str) -> String {
    format!(
        "[workload.diameter]\ntransport = \"sctp\"\nstreams = 8\nstream_policy = \"{policy}\"\nwatchdog = \"6 s\"\n"
    )
}

fn run_diameter(ip: &str, core: &str, policy: &str) -> CapturedRun {
    let text = authentication_study(ip, core, "", &format!("{A_FEW}\n{}", sctp_settings(policy)));
    CapturedRun::new(&text)
}

/// Returns the streams and U bits of the DATA chunks with Diameter-EAP requests.
fn request_streams(run: &CapturedRun) -> Vec<(String, String)> {
    let fields = ["sctp.data_sid", "sctp.data_u_bit"];
    let rows = run.tshark_fields("diameter.cmd.code == 268 && diameter.flags.request == 1", &fields);
    let first = |text: &str| text.split(',').next().unwrap_or_default().to_owned();
    rows.iter().map(|r| (first(&r[0]), first(&r[1]))).collect()
}

#[test]
fn tshark_reads_diameter_over_sctp_by_every_policy() {
    for (ip, policy) in [("v4", "one"), ("v4", "session"), ("v6", "session"), ("v4", "unordered")] {
        let run = run_diameter(ip, "", policy);
        run.assert_clean();
        let begun = run.metric("completed") as usize;
        assert_eq!((begun, run.metric("started") as usize), (24, 24), "{policy}");
        // Every packet is SCTP with a valid checksum. tshark recognises Diameter by its payload protocol
        // identifier.
        assert_eq!(run.frame_count("sctp"), run.frame_count(""));
        assert_eq!(run.frame_count("sctp.checksum.status == \"Good\""), run.frame_count("sctp"));
        assert_eq!(run.frame_count("diameter && sctp.data_payload_proto_id != 46"), 0);
        // INIT, INIT ACK, COOKIE ECHO, COOKIE ACK.
        for chunk in [1, 2, 10, 11] {
            assert_eq!(
                run.frame_count(&format!("sctp.chunk_type == {chunk}")),
                1,
                "{policy}: chunk type {chunk}"
            );
        }
        let unanswered = run.frame_count("diameter.flags.request == 1 && !diameter.answer_in");
        assert_eq!(unanswered, 0, "{policy}");
        let used = request_streams(&run);
        assert!(used.len() >= 2 * begun - 8, "{policy}: {}", used.len());
        let distinct: std::collections::BTreeSet<&str> = used.iter().map(|(s, _)| s.as_str()).collect();
        match policy {
            "one" => assert!(used.iter().all(|(s, u)| s == "0x0000" && u != "1" && u != "True"), "{used:?}"),
            // A lone session has the first slot of the NAS, and its stream.
            "session" => assert!(distinct.len() > 1, "{distinct:?}"),
            _ => assert!(used.iter().all(|(_, u)| u == "1" || u == "True"), "{used:?}"),
        }
    }
}

#[test]
fn tshark_finds_no_fault_under_loss_duplication_and_reordering() {
    let core = "loss = \"10 %\"\nduplicate = \"5 %\"\nreorder = \"10 %\"\nreorder_delay = \"30 ms\"";
    for policy in ["one", "session", "unordered"] {
        let run = run_diameter("v4", core, policy);
        run.assert_clean();
        assert!(run.metric("sctp.retransmissions") > 0.0);
        assert!(run.frame_count("sctp.sack_number_of_gap_blocks > 0") > 0, "{policy}");
        assert_eq!((run.metric("completed"), run.metric("failures")), (24.0, 0.0), "{policy}");
    }
}

#[test]
fn tshark_flags_damaged_packets() {
    let run = run_diameter("v4", "corrupt = \"30 %\"", "session");
    let damaged = run.frame_count("sctp.checksum.status == \"Bad\"");
    assert!(damaged > 10, "{damaged}");
    assert_eq!(run.frame_count("sctp.checksum.status == \"Bad\" && sctp.dstport == 3868"), 0);
}

/// Returns a study of two dialogues, of 200 B and 100 B, over an open association.
fn sctp_dialogue_study(settings: &str) -> String {
    usher_wire_tests::dialogue_study(
        &format!("[transport.sctp]\nheartbeat = \"off\"\n{settings}"),
        "transport = \"sctp\"\nrounds = [{ request = \"200 B\", answer = \"100 B\" }]\nrepeat = 2",
    )
}

fn to_nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

#[test]
fn a_dialogue_over_sctp_takes_what_its_packets_take() {
    let run = CapturedRun::new(&sctp_dialogue_study(""));
    run.assert_clean();
    // A request has 20 B of IP, 12 B of SCTP, 16 B of DATA and 200 B: 248 B, 198.4 us and 1984 us. The answer
    // carries its SACK of 16 B: 20 + 12 + 16 + 16 + 100 = 164 B, 1312 us and 131.2 us. With a delay of 22 ms:
    // 25.6256 ms. The second request carries the first answer's SACK: 264 B, 211.2 us and 2112 us. Its dialogue
    // takes 25.7664 ms.
    assert_eq!((run.metric("completed"), run.metric("failures")), (10.0, 0.0));
    let usual = 25_625_600 + 25_766_400;
    // Each side acknowledges its first data at once. In the first dialogue SACKs of 48 B precede the first
    // answer and the second request, as below. The second answer carries its request's SACK.
    let answered_at_once = 22_000_000 + 198_400 + 1_984_000 + 384_000 + 1_184_000 + 118_400;
    let behind_a_sack = 22_000_000 + 198_400 + 1_984_000 + 38_400 + (384_000 - 198_400) + 1_312_000 + 131_200;
    let first = answered_at_once + behind_a_sack;
    for (metric, expected) in
        [("delay.mean", (9 * usual + first) / 10), ("delay.p50", usual), ("delay.max", first)]
    {
        assert_eq!(to_nanoseconds(run.metric(metric)), expected, "{metric}");
    }
    // The last answer's SACK follows alone after 200 ms; the first dialogue has two more lone SACKs.
    assert_eq!((run.metric("packets.core"), run.metric("sctp.packets")), (5.2, 5.2));
    assert_eq!((run.metric("sctp.control"), run.metric("sctp.retransmissions")), (1.2, 0.0));
}

#[test]
fn without_delay_each_packet_is_acknowledged_at_once() {
    let run = CapturedRun::new(&sctp_dialogue_study("sack_delay = \"off\""));
    run.assert_clean();
    // The SACK of 48 B leaves before the answer of 148 B. The answer waits for it only on the slow hop, 384 us;
    // on the fast one it arrives 1184 us after the SACK's end. Request 2184.4 - 2 = 2182.4 us, SACK and answer
    // 384 + 1184 us and 118.4 us, delay 22 ms: 25.8688 ms. The answer's SACK leaves when the application writes
    // the second request, before it: 38.4 us on the fast hop. On the slow hop the SACK takes 384 us, and the
    // request arrives after 198.4 us of them: it waits 185.6 us.
    let first = 22_000_000 + 198_400 + 1_984_000 + 384_000 + 1_184_000 + 118_400;
    let second = first + 38_400 + (384_000 - 198_400);
    let (got, expected) = (to_nanoseconds(run.metric("delay.mean")), first + second);
    assert_eq!(got, expected, "{} ns off", got.abs_diff(expected));
    assert_eq!((run.metric("sctp.packets"), run.metric("sctp.control")), (8.0, 4.0));
}

#[test]
fn a_lossless_authentication_takes_the_expected_packets() {
    let arrivals = "arrivals = { kind = \"constant\", interval = \"8 s\", stagger = \"2 s\", start = \"2 s\", count = 4 }";
    let core = "";
    let quiet = "[workload.diameter]\nwatchdog = \"1000 s\"\n";
    let packets = |settings: &str, workload: &str| {
        let text = authentication_study("v4", core, settings, arrivals)
            .replace("duration = \"40 s\"", "duration = \"38 s\"\nwarmup = \"1 s\"");
        let run = CapturedRun::new(&text.replace("[capture]", &format!("{workload}[capture]")));
        assert_eq!(run.metric("completed"), 16.0);
        run.metric("packets.core")
    };
    // Two requests and two answers. With immediate acknowledgements, TCP acknowledges each alone. With delayed
    // ones, the next data carries each; only the last answer's is alone, as in SCTP.
    let at_once = "[transport.tcp]\ndelayed_ack = \"off\"";
    assert_eq!(packets(at_once, quiet), 8.0);
    assert_eq!(packets("[transport.tcp]\ndelayed_ack = \"200 ms\"", quiet), 5.0);
    let sctp = format!("{quiet}transport = \"sctp\"\n");
    assert_eq!(packets("[transport.sctp]\nheartbeat = \"off\"", &sctp), 5.0);
    assert_eq!(packets("[transport.sctp]\nheartbeat = \"off\"\nsack_delay = \"off\"", &sctp), 8.0);
    let radius = authentication_study("v4", core, "", arrivals).replace("\"diameter\"", "\"radius\"");
    assert_eq!(CapturedRun::new(&radius).metric("packets.core"), 4.0);
}

#[test]
fn one_stream_is_close_to_tcp_under_the_same_bounds() {
    let settings = "[transport.tcp]\nnagle = false\ncongestion = \"sack\"\nretransmissions = \"unlimited\"\n\
                    [transport.sctp]\nheartbeat = \"off\"\none_packet_after_timeout = false\nretransmissions = \"unlimited\"\npath_retransmissions = 1000\n";
    let arrivals = "arrivals = { kind = \"poisson\", rate = \"10 /s\", per = \"all\", start = \"1 s\" }";
    let mean = |transport: &str, loss: &str| {
        let core = format!("loss = \"{loss}\"");
        let text = authentication_study("v4", &core, settings, arrivals)
            .replace("count = 4", "count = 50")
            .replace("duration = \"40 s\"", "duration = \"2000 s\"")
            .replace("links = [\"core\"]", "")
            .replace(
                "[capture]",
                &format!(
                    "[workload.diameter]\ntransport = \"{transport}\"\nstream_policy = \"one\"\n[capture]"
                ),
            );
        let plan = usher_wire_tests::study_plan(&text);
        let point = &plan.points[0];
        let world =
            usher_runner::world::ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None)
                .unwrap();
        let metrics = world.run_to_end().unwrap().metrics;
        metrics.into_iter().find(|(name, _)| name == "delay.mean").unwrap().1
    };
    // After a timeout RFC 9260, 7.2.1 permits one packet in flight, and TCP one segment's size of small ones.
    // Here both have the same.
    for (loss, most) in [("1 %", 0.15), ("5 %", 0.15)] {
        let (tcp, sctp) = (mean("tcp", loss), mean("sctp", loss));
        // docs/explanation/sctp-and-tcp.md explains the rest. A packet of one chunk has 8 B more than TCP's: 12
        // + 16, not 20.
        println!("{loss}: TCP {tcp} s, SCTP {sctp} s, ratio {}", sctp / tcp);
        assert!((sctp / tcp - 1.0).abs() < most, "{loss}: TCP {tcp} s, SCTP {sctp} s");
    }
}

#[test]
fn an_authentication_over_diameter_takes_what_its_packets_take() {
    let arrivals = "arrivals = { kind = \"constant\", interval = \"8 s\", start = \"3 s\", count = 1 }";
    let text = authentication_study("v4", "", "[transport.sctp]\nheartbeat = \"off\"\n", arrivals)
        .replace("count = 4", "count = 1")
        .replace("links = [\"core\"]", "links = [\"access\", \"core\"]")
        .replace("[capture]", "[workload.diameter]\nwatchdog = \"1000 s\"\ntransport = \"sctp\"\n[capture]");
    let run = CapturedRun::new(&text);
    run.assert_clean();
    assert_eq!((run.metric("completed"), run.metric("failures")), (1.0, 0.0));
    let packets = run.captured_packets();
    let lengths = |filter: &str| -> Vec<u64> {
        let frames = run.tshark_fields(filter, &["frame.number"]);
        frames.iter().map(|f| packets[f[0].parse::<usize>().unwrap() - 1].bytes.len() as u64).collect()
    };
    // Start; request and response of Identity and of MD5; Success: each answers the previous one. A frame of
    // the access link has 4 B more on the wire than in the capture.
    let access = lengths("frame.interface_id == 0 && eap");
    // Diameter-EAP requests and answers, each with the SACK of the previous message; the last SACK is alone.
    let core = lengths("frame.interface_id == 1 && diameter.cmd.code == 268");
    assert_eq!((access.len(), core.len()), (5, 4), "{access:?} {core:?}");
    let start = lengths("frame.interface_id == 0 && eapol.type == 1");
    assert_eq!(start.len(), 1);
    // 10 Mb/s and 1.5 Mb/s: 800 ns and 5333 1/3 ns a byte. A packet's time is rounded to a nanosecond.
    let on_access: u64 = access.iter().chain(&start).map(|bytes| (bytes + 4) * 800).sum();
    let on_core: u64 = core.iter().map(|bytes| (bytes * 16_000 + 1) / 3 + 10_000_000).sum();
    for metric in ["delay.mean", "delay.max"] {
        let (got, expected) = (to_nanoseconds(run.metric(metric)), on_access + on_core);
        assert_eq!(got, expected, "{metric}: {access:?} {start:?} {core:?}");
    }
}
