//! Scenarios on the simulator, from TOML to metrics.

use super::{MetricMap, run_study};
use usher_runner::world::ScenarioRun;
use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

const DIALOGUE: &str = r#"
title = "t"
question = "q"
[run]
duration = "100 s"
[hosts.client]
count = 4
[hosts.router]
[hosts.server]
[links.access]
between = ["client", "router"]
delay = "1 ms"
[links.core]
between = ["router", "server"]
delay = "9 ms"
"#;

fn run_dialogue(links: &str, workload: &str) -> MetricMap {
    run_study(&format!(
        "{DIALOGUE}{links}\n[workload]\nkind = \"dialogue\"\nclients = \"client\"\nserver = \"server\"\n{workload}"
    ))
}

const EVERY_SECOND: &str = r#"arrivals = { kind = "constant", interval = "1 s", start = "1 s", count = 20 }"#;

fn assert_close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value} for {expected}");
}

#[test]
fn every_dialogue_over_many_streams_is_answered() {
    // Regression test: the accepting side had ten streams for any requested number, and dialogues on further streams
    // failed.
    for streams in [1, 16, 100, 65_535] {
        let m = run_dialogue(
            "",
            &format!(
                "transport = \"sctp\"\nstreams = {streams}\n{EVERY_SECOND}\n\
                 rounds = [{{ request = \"300 B\", answer = \"200 B\" }}]"
            ),
        );
        assert_eq!((m["started"], m["failures"]), (80.0, 0.0), "{streams} streams");
    }
}

#[test]
fn who_must_send_by_a_stream_that_is_not_there_ends_the_run() {
    let text = format!(
        "{DIALOGUE}\n[transport.sctp]\naccepted_streams = 3\n[workload]\nkind = \"dialogue\"\nclients = \"client\"\n\
         server = \"server\"\ntransport = \"sctp\"\nstreams = 5\n{EVERY_SECOND}\n\
         rounds = [{{ request = \"300 B\", answer = \"200 B\" }}]"
    );
    let study = Study::parse("test", "test.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    let point = &plan.points[0];
    let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
    // The fourth dialogue of a client, which begins at 4 s, takes stream 3; its request takes 10 ms to the server.
    let error = world.run_to_end().unwrap_err().to_string();
    assert!(error.starts_with("4.01 s after the start, \"server\" had to send by an SCTP stream"), "{error}");
    assert!(error.contains("it has 3; raise transport.sctp.accepted_streams"), "{error}");
}

#[test]
fn rounds_of_different_sizes_share_a_connection() {
    // Eight dialogues of a client are under way at once: each takes 3 rounds of 20 ms and 2 x 3 s to think.
    let m = run_dialogue(
        "",
        &format!(
            "transport = \"tcp\"\nthink = \"3 s\"\n{EVERY_SECOND}\nrounds = [\n\
             {{ request = \"300 B\", answer = \"10 B\" }},\n\
             {{ request = \"7 B\", answer = \"900 B\" }},\n\
             {{ request = \"40 B\", answer = \"41 B\" }}]"
        ),
    );
    assert_eq!((m["started"], m["completed"]), (80.0, 80.0));
    assert_close(m["delay.mean"], 6.060);
}

#[test]
fn a_dialogue_with_its_own_connection_pays_for_opening_it() {
    let rounds = r#"rounds = [{ request = "200 B", answer = "200 B" }]"#;
    let own = format!("transport = \"tcp\"\nconnection = \"per-dialogue\"\n{rounds}\n{EVERY_SECOND}");
    let shared = format!("transport = \"tcp\"\n{rounds}\n{EVERY_SECOND}");
    assert_close(run_dialogue("", &own)["delay.mean"], 0.040);
    assert_close(run_dialogue("", &shared)["delay.mean"], 0.020);
}

#[test]
fn the_servers_turnaround_counts_into_the_delay() {
    let m = run_dialogue(
        "",
        &format!(
            "transport = \"udp\"\nturnaround = \"200 ms\"\nrepeat = 2\n{EVERY_SECOND}\n\
             rounds = [{{ request = \"20 B\", answer = \"20 B\" }}]"
        ),
    );
    assert_close(m["delay.mean"], 0.440);
    assert_eq!(m["packets.core"], 4.0);
}

#[test]
fn an_unanswered_request_is_sent_again_and_given_up() {
    let m = run_dialogue(
        "loss = \"100 %\"",
        &format!(
            "transport = \"udp\"\n{EVERY_SECOND}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
             retransmission = {{ kind = \"fixed\", interval = \"1 s\", count = 3 }}"
        ),
    );
    assert_eq!((m["started"], m["completed"], m["failures"]), (80.0, 0.0, 1.0));
    assert!(!m.contains_key("delay.mean"));
    // Half of the packets are lost; the 1 s timer delivers all of them in the end.
    let m = run_dialogue(
        "loss = \"50 %\"",
        &format!(
            "transport = \"udp\"\n{EVERY_SECOND}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
             retransmission = {{ kind = \"fixed\", interval = \"1 s\", count = 60 }}"
        ),
    );
    assert_eq!(m["completed"], 80.0);
    // An attempt succeeds with probability 1/4: three retransmissions on average.
    assert!((2.0..4.2).contains(&m["retransmissions"]), "{}", m["retransmissions"]);
}

/// One client sends one request, and its first transmissions are lost.
fn run_single_request(lost: &str, retransmission: &str) -> MetricMap {
    let text = DIALOGUE.replace("count = 4\n", "");
    run_study(&format!(
        "{text}up = {{ loss = {{ kind = \"script\", packets = [{lost}] }} }}\n[workload]\nkind = \"dialogue\"\n\
         clients = \"client\"\nserver = \"server\"\ntransport = \"udp\"\n\
         rounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
         arrivals = {{ kind = \"constant\", interval = \"1 s\", count = 1 }}\nretransmission = {retransmission}\n"
    ))
}

#[test]
fn a_dialogue_repeats_its_request_as_a_radius_client_does() {
    let plain = r#"{ kind = "rfc5080", jitter = "0 %" }"#;
    // IRT is 2 s, and each wait twice the last.
    assert_close(run_single_request("0", plain)["delay.mean"], 2.020);
    let m = run_single_request("0, 1, 2", plain);
    assert_close(m["delay.mean"], 14.020);
    assert_eq!(m["retransmissions"], 3.0);
    // The fifth transmission would leave 30 s after the first, which is MRD.
    assert_eq!(run_single_request("0, 1, 2, 3", plain)["failures"], 1.0);
    let patient = r#"{ kind = "rfc5080", jitter = "0 %", duration = "0 s" }"#;
    assert_close(run_single_request("0, 1, 2, 3", patient)["delay.mean"], 30.020);
    // MRC is 5.
    assert_eq!(run_single_request("0, 1, 2, 3, 4", patient)["failures"], 1.0);
    // MRT is 16 s: the sixth leaves 46 s after the first, not 62 s.
    let stubborn = r#"{ kind = "rfc5080", jitter = "0 %", duration = "0 s", count = 9 }"#;
    assert_close(run_single_request("0, 1, 2, 3, 4", stubborn)["delay.mean"], 46.020);
    // RAND varies each wait by at most a tenth.
    let jittered = run_single_request("0", "\"rfc5080\"")["delay.mean"];
    assert!((1.82..=2.22).contains(&jittered) && (jittered - 2.020).abs() > 1e-6, "{jittered}");
}

#[test]
fn clients_of_a_host_share_a_connection_with_a_loop_each() {
    for (transport, connections) in [("tcp", 4.0), ("sctp", 4.0)] {
        let text = DIALOGUE.replace("duration = \"100 s\"", "duration = \"10 s\"\nmemory = true");
        // Nagle's algorithm would delay data on a shared connection.
        let m = run_study(&format!(
            "{text}\n[transport.tcp]\nnagle = false\n[workload]\nkind = \"dialogue\"\nclients = \"client\"\nserver = \"server\"\nper_host = 5\n\
             transport = \"{transport}\"\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
             arrivals = {{ kind = \"closed\", pause = \"480 ms\", start = \"500 ms\" }}"
        ));
        // A cycle is 480 + 20 ms, the first at 0.98 s: nineteen for each of twenty clients in ten seconds.
        assert_eq!((m["started"], m["completed"]), (380.0, 380.0), "{transport}");
        assert_eq!(m["connections.server"], connections, "{transport}");
    }
    // The rate of all clients together does not depend on their distribution over hosts.
    let rate = |per_host: u32, per: &str| {
        run_dialogue(
            "",
            &format!(
                "transport = \"udp\"\nper_host = {per_host}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
                 arrivals = {{ kind = \"poisson\", rate = \"20 /s\", per = \"{per}\" }}"
            ),
        )["started"]
    };
    // Expected are 2000 and 16,000; four standard deviations either way.
    assert!((rate(2, "all") - 2000.0).abs() < 4.0 * 45.0);
    assert!((rate(2, "client") - 16_000.0).abs() < 4.0 * 127.0);
}

#[test]
fn sizes_that_vary_are_known_to_both_sides() {
    let sizes = r#"rounds = [{ request = { kind = "uniform", low = "1 B", high = "3 kB" }, answer = "7 B" },
        { request = "40 B", answer = { kind = "one-of", sizes = ["10 B", "10 B", "2 kB"] } },
        { request = { kind = "exponential", mean = "300 B", max = "1 kB" }, answer = "20 B" }]"#;
    let own = "transport = \"tcp\"\nconnection = \"per-dialogue\"";
    let again = "transport = \"udp\"\nretransmission = { kind = \"fixed\", interval = \"1 s\", count = 30 }";
    for (transport, loss) in [
        ("transport = \"tcp\"", "0 %"),
        ("transport = \"tcp\"", "3 %"),
        (own, "0 %"),
        (own, "3 %"),
        ("transport = \"udp\"", "0 %"),
        (again, "3 %"),
        ("transport = \"sctp\"", "0 %"),
        ("transport = \"sctp\"", "3 %"),
    ] {
        let m = run_dialogue(&format!("loss = \"{loss}\""), &format!("{transport}\n{sizes}\n{EVERY_SECOND}"));
        assert_eq!((m["started"], m["completed"]), (80.0, 80.0), "{transport} at {loss}");
        // 1500 + 7, 40 + 673 and 285 + 20 B on average, and the headers of three rounds there and back.
        let octets = m["bytes.core"];
        assert!((2200.0..4600.0).contains(&octets), "{octets} with {transport} at {loss}");
    }
}

#[test]
fn logins_within_a_time_are_counted_where_the_study_asks() {
    let workload = format!(
        "transport = \"udp\"\n{EVERY_SECOND}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
         retransmission = {{ kind = \"fixed\", interval = \"1 s\", count = 2 }}"
    );
    let plain = run_dialogue("loss = \"30 %\"", &workload);
    assert!(plain.keys().all(|name| !name.starts_with("within") && name != "delay.p99.9"));
    let asked = DIALOGUE.replace(
        "[run]\n",
        "[run]\nmetrics = [\"delay.p99.9\", \"within(19 ms)\", \"within(20 ms)\", \"within(2 s)\"]\n",
    );
    let m = run_study(&format!(
        "{asked}loss = \"30 %\"\n[workload]\nkind = \"dialogue\"\nclients = \"client\"\nserver = \"server\"\n{workload}"
    ));
    assert_eq!(m.len(), plain.len() + 4);
    assert!(plain.iter().all(|(name, value)| m[name] == *value), "what is asked for changes nothing else");
    assert_eq!(m["within(19 ms)"], 0.0);
    // Request and answer both arrive with 0.49; failures are within no time limit.
    assert!((0.3..0.7).contains(&m["within(20 ms)"]), "{}", m["within(20 ms)"]);
    assert_close(m["within(2 s)"], 1.0 - m["failures"]);
    assert!(m["failures"] > 0.0);
    assert_close(m["delay.p99.9"], 1.020);
}

#[test]
fn a_closed_loop_begins_anew_after_its_pause() {
    let m = run_dialogue(
        "",
        "transport = \"udp\"\nrounds = [{ request = \"20 B\", answer = \"20 B\" }]\n\
         arrivals = { kind = \"closed\", pause = \"980 ms\", limit = 40 }",
    );
    // A cycle is 980 + 20 ms; four clients make 40 in 10 s and stop there.
    assert_eq!((m["started"], m["completed"]), (40.0, 40.0));
}

#[test]
fn a_poisson_stream_has_its_rate_whatever_the_number_of_clients() {
    let m = run_dialogue(
        "",
        "transport = \"udp\"\nrounds = [{ request = \"20 B\", answer = \"20 B\" }]\n\
         arrivals = { kind = \"poisson\", rate = \"50 /s\" }",
    );
    // 5000 are expected; four standard deviations either way.
    assert!((m["started"] - 5000.0).abs() < 4.0 * 71.0, "{}", m["started"]);
}

#[test]
fn a_lost_connection_is_opened_again() {
    // From 10 s on all packets are lost; TCP gives up after two retransmissions, and the next connection too.
    let m = run_dialogue(
        "loss = \"100 %\"\nimpaired_from = \"10 s\"\n[transport.tcp]\nretransmissions = 2\nsyn_retransmissions = 1",
        &format!(
            "transport = \"tcp\"\n{EVERY_SECOND}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]\n\
             give_up = \"5 s\""
        ),
    );
    assert_eq!((m["started"], m["completed"]), (80.0, 36.0));
    assert_eq!(m["failures"], 44.0 / 80.0);
}

#[test]
fn a_slow_reader_fills_the_window_and_gets_everything() {
    // 100 kB at 80 kb/s take 10 s to read; the window tells the sender.
    let m = run_dialogue(
        "[transport.tcp]\nread_rate = \"80 kb/s\"\nreceive_buffer = \"8 kB\"",
        "transport = \"tcp\"\nrounds = [{ request = \"100 kB\", answer = \"1 B\" }]\n\
         arrivals = { kind = \"constant\", interval = \"50 s\", start = \"1 s\", count = 1 }\n\
         give_up = \"unlimited\"",
    );
    assert_eq!(m["completed"], 4.0);
    assert!((10.0..10.6).contains(&m["delay.mean"]), "{}", m["delay.mean"]);
}

#[test]
fn a_slow_writer_writes_its_requests_one_piece_at_a_time() {
    // Ten pieces, a tenth of a second apart. The last of the first request leaves 0.9 s after it began at 1 s, the
    // first of the second at 2 s.
    let m = run_dialogue(
        "[transport.tcp]\nnagle = false",
        "transport = \"tcp\"\nwrite_rate = \"800 b/s\"\nwrite_size = \"10 B\"\n\
         rounds = [{ request = \"100 B\", answer = \"10 B\" }]\n\
         arrivals = { kind = \"constant\", interval = \"500 ms\", start = \"1 s\", count = 2 }",
    );
    assert_eq!(m["completed"], 8.0);
    assert_close(m["delay.mean"], (0.92 + 1.42) / 2.0);
    assert_close(m["tcp.segment-size"], 10.0);
    assert_close(m["tcp.data-share"], 0.2);
}

#[test]
fn silly_windows_are_as_their_closed_form_has_them() {
    let study = Study::open("aaa-sws").unwrap_or_else(|faults| panic!("{faults}"));
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("octets=1 B,10 B,500 B").unwrap();
    let plan = study.build_plan(StudyMode::Quick, &overrides).unwrap();
    let mut formed = 0;
    for point in &plan.points {
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
        let m: MetricMap = world.run_to_end().unwrap().metrics.into_iter().collect();
        assert_eq!(m["failures"], 0.0, "{}", point.key);
        let Some(form) = usher_theory::closed_form_value(ClosedFormName::TcpDataShare, &point.scenario)
        else {
            continue;
        };
        formed += 1;
        let share = m["tcp.data-share"];
        // An answer carries the acknowledgement early, once for each request.
        let off =
            if point.key.contains("Nagle and delayed") || point.key.contains("all") { 0.04 } else { 0.02 };
        assert!((share / form - 1.0).abs() < off, "{}: {share}, and {form} by the closed form", point.key);
        if point.key.contains("octets=1 B; avoidance=none") {
            assert!((share * 41.0 - 1.0).abs() < 1e-3, "{}: {share} is not one in 41", point.key);
        }
    }
    assert_eq!(formed, 34, "of 36 points two have none: reads of 500 B, told late");
}

#[test]
fn background_traffic_loads_a_link_and_is_no_dialogues_packet() {
    let m = run_dialogue(
        "rate = \"1 Mb/s\"\n[[background]]\nfrom = \"router\"\nto = \"server\"\nrate = \"850 kb/s\"\npacket = \"1000 B\"",
        &format!(
            "transport = \"udp\"\n{EVERY_SECOND}\nrounds = [{{ request = \"20 B\", answer = \"20 B\" }}]"
        ),
    );
    assert!((m["load.core"] - 0.85).abs() < 0.01, "{}", m["load.core"]);
    assert_eq!(m["packets.core"], 2.0);
}

const EAP: &str = r#"
title = "t"
question = "q"
[run]
duration = "200 s"
[hosts.station]
count = 20
[hosts.nas]
[hosts.server]
cpu = { cores = 1, service = { "radius.request" = "10 ms", "diameter.request" = "10 ms" } }
[links.access]
between = ["station", "nas"]
delay = "1 ms"
[links.core]
between = ["nas", "server"]
delay = "10 ms"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
arrivals = { kind = "poisson", rate = "5 /s" }
"#;

#[test]
fn every_method_and_protocol_rejects_wrong_credentials() {
    for method in ["eap-md5", "eap-mschapv2", "eap-tls", "peap", "ttls"] {
        for aaa in ["radius", "radsec", "diameter"] {
            let settings = format!("method = \"{method}\"\naaa = \"{aaa}\"\nwrong_credentials = \"30 %\"\n");
            let text = EAP.replace("duration = \"200 s\"", "duration = \"20 s\"");
            let m = run_study(&format!("{text}{settings}"));
            if method == "peap" {
                assert_eq!(
                    run_study(&format!("{text}{settings}")),
                    m,
                    "TLS draws its keys anew, and nothing of it shows"
                );
            }
            assert_eq!(m["failures"], 0.0, "{method} over {aaa}");
            assert_eq!(m["completed"] + m["rejected"], m["started"]);
            let share = m["rejected"] / m["started"];
            assert!((0.1..0.5).contains(&share), "{share} with {method} over {aaa}");
        }
    }
}

#[test]
fn a_busy_server_makes_everybody_wait() {
    // Two requests of 10 ms each at 5 /s: a tenth of the core. At 40 /s it is four fifths, and they queue.
    let settings = "method = \"eap-md5\"\naaa = \"radius\"\n";
    let calm = run_study(&format!("{EAP}{settings}"));
    let busy = run_study(&format!("{}{settings}", EAP.replace("\"5 /s\"", "\"40 /s\"")));
    assert!((calm["busy.server"] - 0.1).abs() < 0.02, "{}", calm["busy.server"]);
    assert!((busy["busy.server"] - 0.8).abs() < 0.04, "{}", busy["busy.server"]);
    // Without a queue: two round trips and two services, six times over the access link.
    let alone = 2.0 * 0.020 + 2.0 * 0.010 + 6.0 * 0.001;
    assert!((alone..alone + 0.004).contains(&calm["delay.mean"]), "{}", calm["delay.mean"]);
    // Twenty stations form a closed loop: at most twenty requests wait.
    assert!((alone + 0.008..alone + 0.4).contains(&busy["delay.mean"]), "{}", busy["delay.mean"]);
}

#[test]
fn connections_cost_memory_and_share_what_a_loss_holds_up() {
    let base = EAP.replace("duration = \"200 s\"", "duration = \"100 s\"\nmemory = true");
    let with = |loss: &str, connections: &str| {
        let text = base.replace("delay = \"10 ms\"", &format!("delay = \"10 ms\"\nloss = \"{loss}\""));
        run_study(&format!(
            "{text}method = \"eap-md5\"\naaa = \"diameter\"\n[workload.diameter]\nconnections = {connections}\n"
        ))
    };
    let block = f64::from(usher_sim::tcp::TcpConnection::CONTROL_BLOCK);
    let [one, many, own] = ["1", "48", "\"per-session\""].map(|c| with("0 %", c));
    assert_eq!((one["connections.server"], one["connections.nas"]), (1.0, 1.0));
    assert_eq!((many["connections.server"], many["connections.nas"]), (48.0, 48.0));
    // Unacknowledged data is a few messages of some hundred octets each.
    assert!((block..block + 20_000.0).contains(&one["memory.server"]), "{}", one["memory.server"]);
    let more = many["memory.server"] - 48.0 * block;
    assert!((0.0..20_000.0).contains(&more), "{}", many["memory.server"]);
    assert!((2.0..48.0).contains(&own["connections.server"]), "{}", own["connections.server"]);
    assert!(
        own["packets.core"] > 1.5 * one["packets.core"],
        "{} {}",
        own["packets.core"],
        one["packets.core"]
    );
    assert_eq!([&one, &many, &own].map(|m| m["tcp.blocked"]), [0.0; 3]);
    let [one, many] = ["1", "48"].map(|c| with("5 %", c));
    assert!(one["tcp.blocked"] > 0.05, "{}", one["tcp.blocked"]);
    assert!(many["tcp.blocked"] < one["tcp.blocked"] / 4.0, "{} {}", many["tcp.blocked"], one["tcp.blocked"]);
    let without = run_study(&format!("{EAP}method = \"eap-md5\"\naaa = \"radius\"\n"));
    assert!(!without.contains_key("memory.server") && !without.contains_key("connections.server"));
}

#[test]
fn a_silent_server_is_a_failure_and_no_reject() {
    for aaa in ["radius", "diameter"] {
        let text =
            EAP.replace("delay = \"10 ms\"", "delay = \"10 ms\"\nloss = \"100 %\"\nimpaired_from = \"5 s\"");
        let text =
            text.replace("duration = \"200 s\"", "warmup = \"10 s\"\nduration = \"20 s\"\ndrain = \"200 s\"");
        let m = run_study(&format!("{text}method = \"eap-md5\"\naaa = \"{aaa}\"\n"));
        assert!(m["started"] > 0.0);
        assert_eq!((m["completed"], m["rejected"], m["failures"]), (0.0, 0.0, 1.0), "{aaa}");
    }
}

#[test]
fn the_delay_over_radius_is_that_of_the_closed_form() {
    let base = EAP.replace(
        "cpu = { cores = 1, service = { \"radius.request\" = \"10 ms\", \"diameter.request\" = \"10 ms\" } }",
        "",
    );
    let base = base.replace("delay = \"10 ms\"", "delay = \"10 ms\"\nloss = \"15 %\"");
    let base = base.replace("count = 20", "count = 1000").replace("\"200 s\"", "\"2000 s\"");
    for policy in ["\"rfc5080\"", "{ kind = \"fixed\", interval = \"1 s\", count = 30 }"] {
        let text = format!(
            "{base}method = \"eap-md5\"\naaa = \"radius\"\n[workload.radius]\nretransmission = {policy}\n"
        );
        let study = Study::parse("test", "test.toml", &text).unwrap_or_else(|faults| panic!("{faults}"));
        let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
        let point = &plan.points[0];
        let expected = usher_theory::closed_form_value(ClosedFormName::RadiusDelay, &point.scenario).unwrap();
        let means: Vec<f64> = (0..8)
            .map(|r| {
                let world = ScenarioRun::new(&point.scenario, point.replication_seed(r), &[], None).unwrap();
                world.run_to_end().unwrap().metrics.iter().find(|(name, _)| name == "delay.mean").unwrap().1
            })
            .collect();
        let estimate = usher_observe::stats::SampleMoments::from_values(means).estimate(0.999);
        assert!(estimate.contains(expected), "{expected} outside {estimate:?} with {policy}");
        assert!(estimate.half_width < 0.05 * expected, "{estimate:?} says little");
    }
}

#[test]
fn a_kind_of_work_that_nobody_does_is_a_fault() {
    let text =
        format!("{EAP}method = \"eap-md5\"\naaa = \"radius\"\n").replace("radius.request", "radius.requests");
    let faults = Study::parse("test", "test.toml", &text).unwrap_err().to_string();
    assert!(faults.contains("did you mean \"radius.request\"?"), "{faults}");
}
