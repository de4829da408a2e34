//! MIH messages between mobile nodes and points of service, from TOML to metrics.

use super::{MetricMap, run_study};
use usher_runner::world::ScenarioRun;
use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

/// A mobile node, a router and a point of service, 10 ms apart; the link at the mobile node loses packets.
fn mih_study(message: &str, transport: &str, loss: &str, duration: u32, more: &str) -> String {
    format!(
        r#"
title = "t"
question = "q"
[run]
duration = "{duration} s"
warmup = "5 s"
drain = "2000 s"
ip = "v6"
[hosts.mn]
[hosts.router]
[hosts.pos]
[links.near]
between = ["mn", "router"]
rate = "100 Mb/s"
delay = "10 ms"
loss = "{loss}"
impaired_from = "5 s"
[links.far]
between = ["router", "pos"]
rate = "100 Mb/s"
delay = "10 ms"
[transport.tcp]
delayed_ack = "off"
rto_min = "200 ms"
rto_max = "500 ms"
rto_initial = "500 ms"
retransmissions = "unlimited"
[transport.sctp]
sack_delay = "off"
rto_min = "200 ms"
rto_max = "500 ms"
rto_initial = "500 ms"
retransmissions = "unlimited"
path_retransmissions = 1000
heartbeat = "off"
[workload]
kind = "mih"
mn = "mn"
pos = "pos"
message = "{message}"
transport = "{transport}"
arrivals = {{ kind = "constant", interval = "500 ms", start = "5 s" }}
processing = "200 ms"
lifetime = "100 s"
{more}
"#
    )
}

/// Seconds that an MIH packet of this size takes over two links of 100 Mb/s, with UDP and IPv6 headers.
fn path_delay(octets: u32) -> f64 {
    2.0 * (0.01 + f64::from((octets + 48) * 8) / 100e6)
}

#[test]
fn without_loss_the_delays_are_those_of_hand_arithmetic() {
    let m = run_study(&mih_study("indication", "udp", "0 %", 100, ""));
    assert_eq!((m["started"], m["completed"], m["success"]), (200.0, 200.0, 1.0));
    assert!(
        (m["delay.mean"] - path_delay(200)).abs() < 1e-9 && (m["delay.max"] - path_delay(200)).abs() < 1e-9,
        "{m:?}"
    );
    assert_eq!((m["mih.overhead"], m["mih.packets"], m["mih.duplicates"]), (1.0, 1.0, 0.0));
    assert_eq!((m["packets.near"], m["sent.near"]), (1.0, 248.0 * 8.0 * 2.0));
    let m = run_study(&mih_study("request", "udp", "0 %", 100, ""));
    assert_eq!((m["started"], m["completed"]), (200.0, 200.0));
    assert!((m["delay.mean"] - 0.2 - 2.0 * path_delay(200)).abs() < 1e-9, "{m:?}");
    assert_eq!((m["mih.overhead"], m["mih.packets"]), (1.0, 2.0));
}

#[test]
fn with_acknowledgements_each_message_is_two_packets() {
    for (message, packets) in [("indication", 2.0), ("request", 4.0)] {
        let m = run_study(&mih_study(message, "udp", "0 %", 100, "ack = true"));
        assert_eq!((m["success"], m["mih.overhead"], m["mih.packets"]), (1.0, 2.0, packets), "{message}");
        assert_eq!((m["mih.retransmissions"], m["mih.late"]), (0.0, 0.0));
    }
}

#[test]
fn loss_shows_as_success_and_retransmissions() {
    let p: f64 = 0.3;
    let near = |share: f64, expected: f64| {
        // Some 8000 transactions: three and a half standard errors.
        let bound = 3.5 * (expected * (1.0 - expected) / 8000.0).sqrt();
        assert!((share - expected).abs() < bound, "{share} for {expected}");
    };
    let loss = "30 %";
    near(run_study(&mih_study("indication", "udp", loss, 4000, ""))["success"], 1.0 - p);
    near(run_study(&mih_study("request", "udp", loss, 4000, ""))["success"], (1.0 - p).powi(2));
    let m = run_study(&mih_study("indication", "udp", loss, 4000, "ack = true"));
    near(m["success"], 1.0 - p.powi(3));
    assert!(m["mih.overhead"] > 2.0 && m["mih.overhead"] < 6.0, "{m:?}");
    assert!(m["mih.retransmissions"] > 0.5 && m["delay.mean"] > path_delay(200) + 0.05, "{m:?}");
    let acked = run_study(&mih_study("request", "udp", loss, 4000, "ack = true"));
    assert!(acked["success"] < (1.0 - p.powi(3)).powi(2) + 0.02, "{acked:?}");
    assert!(acked["success"] > (1.0 - p).powi(2), "{acked:?}");
    let sum = acked["sent.near"] * (1.0 - p);
    assert!((acked["received.near"] / sum - 1.0).abs() < 0.03, "{acked:?}");
}

#[test]
fn a_lifetime_that_is_too_short_lets_duplicates_through() {
    let forgetful =
        mih_study("indication", "udp", "30 %", 1000, "ack = true").replace("\"100 s\"", "\"off\"");
    let m = run_study(&forgetful);
    assert!(m["mih.duplicates"] > 0.2, "{m:?}");
    let m = run_study(&mih_study("indication", "udp", "30 %", 1000, "ack = true"));
    assert_eq!(m["mih.duplicates"], 0.0);
    assert!(m["mih.memory"] > 150.0, "{m:?}");
}

#[test]
fn over_tcp_and_sctp_everything_arrives() {
    for (transport, packets) in [("tcp", "tcp.per-mih-packet"), ("sctp", "sctp.per-mih-packet")] {
        for message in ["indication", "request"] {
            let calm = run_study(&mih_study(message, transport, "0 %", 100, ""));
            assert_eq!((calm["success"], calm["mih.overhead"]), (1.0, 1.0), "{transport} {calm:?}");
            assert!((calm[packets] - 2.0).abs() < 0.02, "{transport} {calm:?}");
            let m = run_study(&mih_study(message, transport, "30 %", 1000, ""));
            assert_eq!(m["success"], 1.0, "{transport} {message} {m:?}");
            assert!(m["delay.mean"] > calm["delay.mean"] + 0.1, "{transport} {message} {m:?}");
            assert!(m[packets] > 2.2, "{transport} {message} {m:?}");
        }
    }
}

/// Requests fail for their user after 0.9 s, while TCP still has most of them in its queue.
#[test]
fn what_is_still_in_tcps_queue_counts() {
    let text = mih_study(
        "request",
        "tcp",
        "50 %",
        300,
        "ack = true\n[workload.timing]\nretransmission = \"300 ms\"\n",
    );
    let whole = run_study(&text);
    assert!(whole["success"] < 0.5, "{whole:?}");
    // Requests that failed are still answered: each costs three requests, their acknowledgements and three responses.
    assert!(whole["mih.late"] > 0.5 && whole["mih.overhead"] > 3.5, "{whole:?}");
    let cut = run_study(&text.replace("drain = \"2000 s\"", "drain = \"2 s\""));
    assert_eq!(whole["success"], cut["success"]);
    assert!(
        cut["mih.late"] < whole["mih.late"] && cut["mih.overhead"] < whole["mih.overhead"],
        "{cut:?} {whole:?}"
    );
}

/// With a timer below the processing time, a request whose acknowledgements are all lost fails, though its response comes.
#[test]
fn late_responses_may_be_accepted() {
    let short = "ack = true\ntransaction = \"60 s\"\n[workload.timing]\nretransmission = \"50 ms\"\n";
    let dropped = run_study(&mih_study("request", "udp", "40 %", 1000, short));
    assert!(dropped["mih.late"] > 0.05, "{dropped:?}");
    let accepted =
        run_study(&mih_study("request", "udp", "40 %", 1000, &format!("late_responses = true\n{short}")));
    assert_eq!(accepted["mih.late"], 0.0);
    // Request and response alone succeed with (1 - p³)²; a retransmitted request may also bring another response.
    let bound = (1.0 - 0.4_f64.powi(3)).powi(2);
    assert!(dropped["success"] < bound - 0.1, "{dropped:?}");
    assert!((accepted["success"] - bound).abs() < 0.03, "{accepted:?} {bound}");
}

#[test]
fn the_command_service_can_have_timers_of_its_own() {
    let slow = "ack = true\n[workload.timing]\nretransmission = \"100 s\"\n";
    let m = run_study(&mih_study("request", "udp", "30 %", 1000, slow));
    let own = format!("{slow}[workload.timing.by_service]\ncommand = {{ retransmission = \"100 ms\" }}\n");
    let quick = run_study(&mih_study("request", "udp", "30 %", 1000, &own));
    assert!(quick["delay.mean"] < m["delay.mean"] / 10.0, "{quick:?} {m:?}");
    let named =
        format!("{slow}[workload.timing.by_message.Link_Get_Parameters]\nretransmission = \"100 ms\"\n");
    assert_eq!(run_study(&mih_study("request", "udp", "30 %", 1000, &named)), quick);
}

#[test]
fn each_mobile_node_of_a_group_has_a_point_of_service() {
    let text = mih_study("request", "udp", "0 %", 100, "")
        .replace("[hosts.mn]", "[hosts.mn]\ncount = 6")
        .replace("[hosts.pos]", "[hosts.pos]\ncount = 2");
    let m = run_study(&text);
    assert_eq!((m["started"], m["success"]), (1200.0, 1.0));
}

#[test]
fn over_an_802_11_cell_the_access_delay_comes_in_addition() {
    let air = "[hosts.ap]\n[bss.air]\naccess_point = \"ap\"\nstations = \"mn\"\n[hosts.router]";
    let text = mih_study("indication", "udp", "0 %", 100, "")
        .replace("[hosts.router]", air)
        .replace("between = [\"mn\", \"router\"]", "between = [\"ap\", \"router\"]");
    let m = run_study(&text);
    assert_eq!((m["success"], m["packets.air"]), (1.0, 1.0));
    // The preamble and 248 octets at 11 Mb/s take at least 0.37 ms, DIFS and headers included less than 1 ms.
    let access = m["delay.p50"] - path_delay(200);
    assert!(access > 0.37e-3 && access < 1e-3, "{access}");
    // The MAC retransmits lost frames: they are late, but few are missing. A station that missed too many beacons in a
    // row reconnects.
    let lossy = run_study(&text.replace("stations = \"mn\"", "stations = \"mn\"\nframe_loss = \"30 %\""));
    assert!(lossy["success"] > 0.9 && lossy["delay.mean"] > m["delay.mean"] + 0.2e-3, "{lossy:?}");
    let lost = run_study(&text.replace("stations = \"mn\"", "stations = \"mn\"\npacket_loss = \"30 %\""));
    assert!(lost["success"] > 0.55 && lost["success"] < 0.85, "{lost:?}");
    assert!((lost["received.air"] / lost["sent.air"] - 0.7).abs() < 0.15, "{lost:?}");
}

#[test]
fn a_delivery_counts_whatever_happens_to_its_transaction() {
    let m = run_study(&mih_study("request", "udp", "0 %", 100, ""));
    assert!((m["mih.delivery"] - path_delay(200)).abs() < 1e-9, "{m:?}");
    let m = run_study(&mih_study("indication", "udp", "30 %", 1000, "ack = true"));
    assert!((m["mih.delivery"] - m["delay.mean"]).abs() < 1e-9, "{m:?}");
    // The request fails after 0.9 s, but stays in TCP's queue for much longer.
    let text = mih_study(
        "request",
        "tcp",
        "50 %",
        300,
        "ack = true\n[workload.timing]\nretransmission = \"300 ms\"\n",
    );
    let m = run_study(&text);
    assert!(m["success"] < 0.5 && m["mih.delivery"] > m["delay.mean"], "{m:?}");
}

/// A request and its response take four segments. They take three if the response carries the request's
/// acknowledgement, and two if the next request carries the response's. Indications wait if their acknowledgement comes
/// after the next indication.
#[test]
fn a_delayed_acknowledgement_travels_with_the_response() {
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("delack=0.1,0.25,0.4,0.5").unwrap();
    let plan = Study::open("mih-shared-segment").unwrap().build_plan(StudyMode::Quick, &overrides).unwrap();
    // 20.46 ms to the receiver, 20.3 ms for the acknowledgement back, and half a second between.
    let cycle = 0.0408 + 0.5;
    let expected = |message: &str, delay: &str| match (message, delay) {
        ("request", "0.25 s") => 1.5,
        ("request", "0.4 s" | "0.5 s") => 1.0,
        ("indication", "0.5 s") => 1.0 / cycle,
        _ => 2.0,
    };
    assert_eq!(plan.points.len(), 8);
    for point in &plan.points {
        let [message, delay] =
            ["message", "delack"].map(|axis| point.axis_setting(axis).unwrap().text.clone());
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
        let m: MetricMap = world.run_to_end().unwrap().metrics.into_iter().collect();
        let (segments, expected) = (m["tcp.per-mih-packet"], expected(&message, &delay));
        assert!((segments - expected).abs() < 0.015, "{message} {delay}: {segments}");
        let form = usher_theory::closed_form_value(ClosedFormName::MihTcpSegments, &point.scenario).unwrap();
        assert!((form - expected).abs() < 0.001, "{message} {delay}: {form} by the closed form");
        let waits = if (&message[..], &delay[..]) == ("indication", "0.5 s") { cycle / 2.0 } else { 0.0 };
        assert!((m["mih.delivery"] - 0.0205 - waits).abs() < 0.005, "{message} {delay}: {m:?}");
        let form = usher_theory::closed_form_value(ClosedFormName::MihTcpDelay, &point.scenario).unwrap();
        assert!(
            (m["delay.mean"] / form - 1.0).abs() < 0.01,
            "{message} {delay}: {form} by the closed form, {m:?}"
        );
    }
}

/// Late responses, fragmented responses and the MIH function's own responses, with MIH acknowledgements.
#[test]
fn messages_of_all_services_succeed_as_their_closed_form_has_it() {
    let parts = "response_size = \"4000 B\"\nmax_message = \"1000 B\"";
    for (message, processing, more) in [
        ("indication", "200 ms", ""),
        ("candidate-query", "660 ms", ""),
        ("information", "20 ms", parts),
        ("registration", "200 ms", ""),
    ] {
        for (timer, limit) in [("100 ms", 2), ("1 s", 2), ("50 ms", 4)] {
            let timing = format!(
                "{more}\nack = true\n[workload.timing]\nretransmission = \"{timer}\"\nretransmissions = {limit}"
            );
            let text = mih_study(message, "udp", "20 %", 2000, &timing)
                .replace("processing = \"200 ms\"", &format!("processing = \"{processing}\""));
            let m = run_study(&text);
            let plan = Study::parse("test", "test.toml", &text).unwrap();
            let plan = plan.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
            let form = |name| usher_theory::closed_form_value(name, &plan.points[0].scenario).unwrap();
            let (success, trials) = (form(ClosedFormName::MihSuccess), 4000.0);
            let bound = 4.0 * (success * (1.0 - success) / trials).sqrt() + 0.5 / trials;
            assert!(
                (m["success"] - success).abs() < bound,
                "{message} {timer}: {success}, and {}",
                m["success"]
            );
            for (name, metric) in
                [(ClosedFormName::MihDelay, "delay.mean"), (ClosedFormName::MihOverhead, "mih.overhead")]
            {
                let (form, ours) = (form(name), m[metric]);
                assert!((ours / form - 1.0).abs() < 0.04, "{message} {timer}: {metric} {ours}, and {form}");
            }
        }
    }
}

/// Asserts that a share of some thousand transactions is within its statistical error.
fn assert_fraction(share: f64, expected: f64, trials: f64) {
    let bound = 3.5 * (expected * (1.0 - expected) / trials).sqrt();
    assert!((share - expected).abs() < bound, "{share} for {expected}");
}

/// A query and a response of several kilobytes; the loss of any packet loses the response.
#[test]
fn an_information_query_is_answered_in_several_packets() {
    let more = "response_size = \"4000 B\"\nmax_message = \"1000 B\"";
    let calm = run_study(&mih_study("information", "udp", "0 %", 100, more));
    assert_eq!((calm["started"], calm["success"]), (200.0, 1.0), "{calm:?}");
    // The query, and the answer in packets of 1000 B with a header each.
    assert_eq!(calm["mih.packets"], 6.0, "{calm:?}");
    assert!(calm["delay.mean"] > 0.2 + 2.0 * path_delay(200) && calm["delay.mean"] < 0.243, "{calm:?}");
    let lossy = run_study(&mih_study("information", "udp", "10 %", 2000, more));
    assert_fraction(lossy["success"], 0.9_f64.powi(6), 4000.0);
    let acked = run_study(&mih_study("information", "udp", "10 %", 2000, &format!("{more}\nack = true")));
    assert!(acked["success"] > lossy["success"] + 0.2, "{acked:?}");
}

#[test]
fn candidate_queries_wait_for_a_scan_and_registrations_do_not() {
    let scan = mih_study("candidate-query", "udp", "0 %", 100, "")
        .replace("processing = \"200 ms\"", "processing = \"660 ms\"");
    let m = run_study(&scan);
    assert_eq!((m["started"], m["success"], m["mih.packets"]), (200.0, 1.0, 2.0), "{m:?}");
    assert!((m["delay.mean"] - 0.66 - 2.0 * path_delay(200)).abs() < 1e-9, "{m:?}");
    let m = run_study(&mih_study("registration", "udp", "0 %", 100, ""));
    assert_eq!((m["started"], m["success"], m["mih.packets"]), (200.0, 1.0, 2.0), "{m:?}");
    // The answer, which has few parameters, is shorter than 200 B.
    assert!(
        m["delay.mean"] > path_delay(100) + path_delay(64) && m["delay.mean"] < 2.0 * path_delay(200),
        "{m:?}"
    );
    assert_fraction(run_study(&mih_study("registration", "udp", "30 %", 2000, ""))["success"], 0.49, 4000.0);
}

#[test]
fn each_service_can_have_timers_of_its_own() {
    for (message, service, name) in [
        ("information", "information", "Get_Information"),
        ("registration", "management", "Register"),
        ("candidate-query", "command", "Net_HO_Candidate_Query"),
        ("indication", "event", "Link_Parameters_Report"),
    ] {
        let slow = "ack = true\n[workload.timing]\nretransmission = \"100 s\"\n";
        let m = run_study(&mih_study(message, "udp", "30 %", 1000, slow));
        let own =
            format!("{slow}[workload.timing.by_service]\n{service} = {{ retransmission = \"100 ms\" }}\n");
        let quick = run_study(&mih_study(message, "udp", "30 %", 1000, &own));
        assert!(quick["delay.mean"] < m["delay.mean"] / 10.0, "{message} {quick:?} {m:?}");
        let named = format!("{slow}[workload.timing.by_message.{name}]\nretransmission = \"100 ms\"\n");
        assert_eq!(run_study(&mih_study(message, "udp", "30 %", 1000, &named)), quick, "{message}");
    }
}

/// A response timer shorter than a scan retransmits pending requests; a longer one recovers losses without an
/// acknowledgement.
#[test]
fn a_response_timer_is_for_the_message_that_it_waits_for() {
    let with = |response: &str| {
        let more = format!(
            "transaction = \"30 s\"\n[workload.timing]\nresponse = \"{response}\"\nunanswered = \"retransmit\"\n"
        );
        run_study(
            &mih_study("candidate-query", "udp", "0 %", 200, &more)
                .replace("processing = \"200 ms\"", "processing = \"660 ms\""),
        )
    };
    let (short, long) = (with("300 ms"), with("1 s"));
    assert!(short["mih.retransmissions"] > 0.9, "{short:?}");
    assert_eq!((long["mih.retransmissions"], long["success"]), (0.0, 1.0), "{long:?}");
}

/// There are 4096 transaction identifiers, and an unanswered request keeps its own forever. The others come around
/// while the receiver remembers them, and messages that reuse them count as duplicates.
#[test]
fn without_a_transaction_timeout_identifiers_run_out() {
    let with = |timeout: &str| {
        let text = mih_study("request", "udp", "50 %", 4000, &format!("transaction = \"{timeout}\""));
        run_study(&text.replace("lifetime = \"100 s\"", "lifetime = \"1000 s\""))
    };
    let (none, some) = (with("off"), with("60 s"));
    assert_fraction(some["success"], 0.25, 8000.0);
    assert!(none["success"] < some["success"] - 0.02, "{none:?}");
    assert!(none["mih.memory"] >= 4096.0 && some["mih.memory"] < 3000.0, "{none:?} {some:?}");
}

/// The MAC's seven attempts reduce a frame loss of p to p^7. With lost beacons, a station also loses its link now and
/// then.
#[test]
fn frames_are_lost_before_the_macs_retransmissions() {
    let air = "[hosts.ap]\n[bss.air]\naccess_point = \"ap\"\nstations = \"mn\"\nframe_loss = \"70 %\"\n\
               frame_loss_of = \"data\"\n[hosts.router]";
    let text = mih_study("indication", "udp", "0 %", 2000, "")
        .replace("[hosts.router]", air)
        .replace("between = [\"mn\", \"router\"]", "between = [\"ap\", \"router\"]");
    let m = run_study(&text);
    assert_fraction(m["success"], 1.0 - 0.7_f64.powi(7), 4000.0);
    let all = run_study(&text.replace("frame_loss_of = \"data\"\n", ""));
    assert!(all["success"] < m["success"] - 0.1, "{all:?}");
    let later = run_study(&text.replace("\"data\"\n", "\"data\"\nframe_loss_from = \"going-down\"\n"));
    assert_eq!(later["success"], 1.0, "the node is at its access point");
}
