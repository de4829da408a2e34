//! Accounting beside logins, from TOML to metrics.

use super::run_study;
use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

/// Returns a closed form of the one point of a study.
fn closed_form_value(name: ClosedFormName, text: &str) -> f64 {
    let study = Study::parse("test", "test.toml", text).unwrap();
    let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    usher_theory::closed_form_value(name, &plan.points[0].scenario).unwrap_or_else(|| panic!("no {name}"))
}

/// Stations on their NASs' hosts and a server 10 ms from them, with further settings in `workload`.
fn accounting_study(aaa: &str, nas: u32, link: &str, workload: &str) -> String {
    format!(
        r#"
title = "t"
question = "q"
[run]
duration = "100 s"
warmup = "100 s"
drain = "60 s"
[hosts.nas]
count = {nas}
[hosts.server]
[links.core]
between = ["nas", "server"]
delay = "10 ms"
{link}
[workload]
kind = "eap"
stations = "nas"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "{aaa}"
{workload}
"#
    )
}

/// One login at 101 s, with a session of 10 s.
const ONE_LOGIN: &str = r#"arrivals = { kind = "constant", interval = "900 s", start = "101 s", count = 1 }"#;
const FOUR_RECORDS: &str = r#"accounting = { used = true, session = "10 s", interim = "4 s" }"#;

#[test]
fn a_login_is_followed_by_the_records_of_its_session() {
    for aaa in ["radius", "diameter"] {
        let without = run_study(&accounting_study(aaa, 1, "", ONE_LOGIN));
        assert!(without.keys().all(|name| !name.starts_with("accounting.")), "{without:?}");
        let with = run_study(&accounting_study(aaa, 1, "", &format!("{ONE_LOGIN}\n{FOUR_RECORDS}")));
        // Start, Interim after 4 s and 8 s, Stop after 10 s; each is there and back in 20 ms.
        assert_eq!((with["completed"], with["accounting.records"]), (1.0, 4.0), "{aaa}");
        assert_eq!((with["accounting.lost"], with["accounting.late"]), (0.0, 0.0), "{aaa}");
        assert!((with["accounting.delay"] - 0.020).abs() < 1e-9, "{aaa}: {}", with["accounting.delay"]);
        assert_eq!(with["delay.mean"], without["delay.mean"], "{aaa}");
        if aaa == "radius" {
            assert_eq!(with["packets.core"] - without["packets.core"], 8.0);
            assert_eq!(with["retransmissions"], 0.0);
        }
        // Two or four records instead of four, without the octets of the omitted ones.
        let two = run_study(&accounting_study(
            aaa,
            1,
            "",
            &format!("{ONE_LOGIN}\n{}", FOUR_RECORDS.replace(", interim = \"4 s\"", "")),
        ));
        assert_eq!(two["accounting.records"], 2.0, "{aaa}");
        assert!(two["bytes.core"] < with["bytes.core"] && two["bytes.core"] > without["bytes.core"], "{aaa}");
        // A record that takes longer than the limit is late, not lost.
        let late = FOUR_RECORDS.replace("used", "late = \"19 ms\", used");
        let late = run_study(&accounting_study(aaa, 1, "", &format!("{ONE_LOGIN}\n{late}")));
        assert_eq!((late["accounting.late"], late["accounting.lost"]), (1.0, 0.0), "{aaa}");
    }
}

#[test]
fn where_traffic_keys_are_asked_for_a_session_begins_with_them() {
    let over = |keys: &str, arrivals: &str| {
        let text = accounting_study("radius", 1, "", &format!("{arrivals}\n{FOUR_RECORDS}"))
            .replace("[hosts.nas]", "[hosts.station]\ncount = 20\n[hosts.nas]")
            .replace("stations = \"nas\"", "stations = \"station\"")
            .replace("eap-md5", "eap-tls")
            .replace(
                "[links.core]",
                &format!("[cells.air]\nbase_station = \"nas\"\nstations = \"station\"\nentry = {{ done = true }}\n{keys}\n[links.core]"),
            );
        run_study(&text)
    };
    let keys = "keys = { used = true }";
    let with = over(keys, ONE_LOGIN);
    assert_eq!((with["completed"], with["accounting.records"], with["keys.failures"]), (20.0, 4.0, 0.0));
    // A station that never got keys has no session, and so no record.
    let none = over("keys = { used = true, challenge_timeout = \"1 ms\", challenge_tries = 1 }", ONE_LOGIN);
    assert_eq!((none["completed"], none["keys.failures"]), (0.0, 1.0), "{none:?}");
    assert!(none.keys().all(|name| !name.starts_with("accounting.")), "{none:?}");
    // One session for each station with keys, where only some get them.
    let some =
        "keys = { used = true, challenge_tries = 1, request_tries = 1, key_tries = 1 }\nloss = \"10 %\"";
    let poisson = "arrivals = { kind = \"poisson\", rate = \"2 /s\" }";
    let some = over(some, poisson);
    assert!(some["keys.failures"] > 0.2, "{some:?}");
    // After a lost Key-Reply the base station has keys and its station has none.
    assert!((4.0..4.8).contains(&some["accounting.records"]), "{some:?}");
}

const MANY: &str = r#"arrivals = { kind = "poisson", rate = "40 /s" }
wrong_credentials = "10 %""#;

#[test]
fn exponential_sessions_have_the_records_of_the_closed_form() {
    let law =
        r#"accounting = { used = true, interim = "5 s", session = { kind = "exponential", mean = "20 s" } }"#;
    let m = run_study(&accounting_study("radius", 40, "", &format!("{MANY}\n{law}")));
    let expected = closed_form_value(
        ClosedFormName::AccountingRecords,
        &accounting_study("radius", 40, "", &format!("{MANY}\n{law}")),
    );
    assert!((expected - 2.0 - 1.0 / (0.25f64.exp() - 1.0)).abs() < 1e-12, "{expected}");
    let (records, good) = (m["accounting.records"], m["completed"]);
    assert!((records / expected - 1.0).abs() < 0.04, "{records} for {expected}, of {good} logins");
    assert!(m["rejected"] > 200.0, "who is turned away has no session: {m:?}");
    assert_eq!(m["accounting.lost"], 0.0);
}

#[test]
fn a_login_with_records_has_the_packets_of_the_closed_form() {
    let login = r#"arrivals = { kind = "poisson", rate = "40 /s" }"#;
    for (accounting, expected) in [("", 4.0), ("accounting = { used = true, session = \"3 s\" }", 8.0)] {
        let text = accounting_study("radius", 40, "", &format!("{login}\n{accounting}"));
        assert_eq!(closed_form_value(ClosedFormName::RadiusPackets, &text), expected);
        let packets = run_study(&text)["packets.core"];
        assert!((packets / expected - 1.0).abs() < 0.01, "{packets} for {expected}");
    }
}

#[test]
fn without_a_second_try_as_many_are_lost_as_the_link_loses() {
    let once = "radius = { retransmission = { kind = \"fixed\", interval = \"1 s\", count = 1 } }\neap_retransmission = \"off\"\n\
                accounting = { used = true, session = \"3 s\" }";
    let m = run_study(&accounting_study("radius", 40, "loss = \"10 %\"", &format!("{MANY}\n{once}")));
    // Request and answer cross the link: 1 - 0.9^2.
    assert!((m["accounting.lost"] - 0.19).abs() < 0.02, "{}", m["accounting.lost"]);
    let again = once.replace("count = 1", "count = 5");
    let m = run_study(&accounting_study("radius", 40, "loss = \"10 %\"", &format!("{MANY}\n{again}")));
    assert!(m["accounting.lost"] < 0.002, "{}", m["accounting.lost"]);
    // Every fifth record takes at least a second more.
    let late = closed_form_value(
        ClosedFormName::AccountingDelay,
        &accounting_study("radius", 40, "loss = \"10 %\"", &format!("{MANY}\n{again}")),
    );
    assert!((late - (0.020 + 0.19 / 0.81)).abs() < 0.002, "{late}");
    assert!((m["accounting.delay"] - late).abs() < 0.03, "{}", m["accounting.delay"]);
    // TCP loses nothing while it delivers before its users give up.
    let m = run_study(&accounting_study("diameter", 40, "loss = \"1 %\"", &format!("{MANY}\n{once}")));
    assert_eq!(m["accounting.lost"], 0.0, "{m:?}");
}

#[test]
fn an_absent_server_loses_records_and_resumes_from_its_store() {
    let away = "[[outages]]\nhost = \"server\"\nfrom = \"130 s\"\nuntil = \"150 s\"\n[workload]";
    let law = "accounting = { used = true, interim = \"5 s\", session = \"20 s\", late = \"1 s\" }\n\
               radius = { retransmission = { kind = \"fixed\", interval = \"2 s\", count = 3 } }\nretry = \"2 s\"";
    let text = accounting_study("radius", 40, "", &format!("{MANY}\n{law}")).replace("[workload]", away);
    let m = run_study(&text);
    // An outage of 20 s of the 100 s loses the records of its first 14 to 16 s; the later ones are late.
    assert!((0.08..0.22).contains(&m["accounting.lost"]), "{}", m["accounting.lost"]);
    assert!(m["accounting.late"] > 0.0 && m["failures"] < 0.05, "{m:?}");
    assert_eq!(m, run_study(&text), "the same seed gives the same run");
}
