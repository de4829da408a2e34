//! `usher load` with FreeRADIUS and our server: every method and check, the printed output and the files.

mod freeradius;
mod mih;
mod ours;
#[path = "../program/own.rs"]
mod own;
mod plan;
mod slow;

use freeradius::{FreeRadius, SECRET};
use own::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Output};

fn run_usher(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.env_remove("USHER_SECRET").env_remove("USHER_PASSWORD");
    command.args(words).output().expect("usher runs")
}

/// Runs a load that must succeed, and returns its JSON.
fn run_load(words: &[&str]) -> Value {
    let output = run_usher(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

const USERS: [&str; 6] = ["--user", "user{}", "--password", "pw{}", "--users", "100"];
/// FreeRADIUS 3.2.1 adds a Message-Authenticator only to replies with EAP.
const OLD: &str = "--no-message-authenticator";

fn all_succeed(value: &Value, count: u64) {
    assert_eq!((&value["succeeded"], &value["failed"]), (&count.into(), &0.into()), "{value:#}");
}

#[test]
fn passwords_and_accounting_are_loaded_and_checked() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let acct = server.accounting_address();
    for method in ["pap", "chap", "mschapv2"] {
        let mut words = vec![
            "load", "radius", &at, "--secret", SECRET, OLD, "--method", method, "--count", "300", "--json",
        ];
        words.extend(USERS);
        words.extend(["--wrong-share", "20%"]);
        let value = run_load(&words);
        all_succeed(&value, 300);
        let rejects = value["expected_rejects"].as_u64().unwrap();
        assert!((20..120).contains(&rejects), "{method}: {rejects}");
        assert!(value["latency"]["p99_s"].as_f64().unwrap() > 0.0);
    }
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, OLD, "--count", "50", "--json"];
    words.extend(["--accounting", "--accounting-server", &acct, "--interims", "2"]);
    words.extend(USERS);
    let value = run_load(&words);
    all_succeed(&value, 50);
    assert_eq!(value["accounting_records"], 200);
    let mut words = vec![
        "load",
        "radius",
        &acct,
        "--secret",
        SECRET,
        "--method",
        "accounting",
        "--count",
        "60",
        "--json",
    ];
    words.extend(USERS);
    let value = run_load(&words);
    all_succeed(&value, 60);
    assert_eq!(value["accounting_records"], 120);
}

#[test]
fn an_open_loop_writes_a_report_and_tells_the_servers_cpu_time() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let (out, pid) = (server.folder.join("out"), server.pid().to_string());
    let mut words =
        vec!["load", "radius", &at, "--secret", SECRET, OLD, "--rate", "500", "--duration", "2s", "--json"];
    words.extend(["--server-pid", &pid, "--threads", "2", "--out", out.to_str().unwrap()]);
    words.extend(USERS);
    let value = run_load(&words);
    assert_eq!(value["failed"], 0, "{value:#}");
    let succeeded = value["succeeded"].as_u64().unwrap();
    assert!((850..1150).contains(&succeeded), "{succeeded} of about 1000");
    assert!(value["begin_lag"]["count"].as_u64() == Some(succeeded));
    assert!(value["server_process"]["cpu_s"].as_f64().is_some());
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Latency: one in N"), "the report has its figures");
    assert!(!page.contains(SECRET), "and no secret");
    let rows = std::fs::read_to_string(out.join("results.csv")).unwrap();
    assert!(rows.contains("throughput_per_s") && rows.contains("latency_p99_s"), "{rows}");
    for name in ["results.parquet", "results.json", "manifest.json", "figures/latency-distribution.svg"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn eap_methods_end_with_the_keys_of_both_sides() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let ca = server.folder.join("ca.pem");
    let ca = ca.to_str().unwrap();
    for method in [
        "md5",
        "gtc",
        "mschapv2",
        "peap-mschapv2",
        "peap-gtc",
        "ttls-pap",
        "ttls-chap",
        "ttls-mschap",
        "ttls-mschapv2",
        "ttls-eap-md5",
        "ttls-eap-gtc",
        "ttls-eap-mschapv2",
    ] {
        for version in ["1.2", "1.3"] {
            let tunnel = method.contains("peap") || method.contains("ttls");
            if !tunnel && version == "1.3" {
                continue;
            }
            let mut words =
                vec!["load", "eap", &at, "--secret", SECRET, "--method", method, "--count", "20", "--json"];
            words.extend(USERS);
            words.extend(["--concurrency", "4", "--ca", ca, "--tls-min", version, "--tls-max", version]);
            if tunnel {
                words.extend(["--anonymous", "anonymous"]);
            }
            all_succeed(&run_load(&words), 20);
        }
    }
}

#[test]
fn eap_tls_sends_its_chain() {
    for chain in [2, 4] {
        let server = FreeRadius::start("tls", chain);
        let at = server.auth_address();
        let (certificate, key) = server.client_certificate(chain);
        let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
        let ca = server.folder.join("ca.pem");
        for (version, fragment) in [("1.2", "1398"), ("1.3", "1398"), ("1.2", "500")] {
            let mut words =
                vec!["load", "eap", &at, "--secret", SECRET, "--method", "tls", "--count", "8", "--json"];
            words.extend([
                "--user",
                "user0",
                "--ca",
                ca.to_str().unwrap(),
                "--certificate",
                certificate,
                "--key",
                key,
            ]);
            words.extend([
                "--tls-min",
                version,
                "--tls-max",
                version,
                "--fragment",
                fragment,
                "--concurrency",
                "2",
            ]);
            all_succeed(&run_load(&words), 8);
        }
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_is_loaded() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let ends = |words: &[&str], code: i32| {
        let output = run_usher(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    };
    let fails = |words: &[&str], code: i32, part: &str| {
        let said = ends(words, code);
        assert!(said.contains(part), "{words:?}: {said}");
    };
    let user = ["--user", "user0", "--password", "wrong"];
    fails(&[&["load", "radius", &at, "--secret", SECRET, OLD][..], &user].concat(), 1, "rejected");
    let quick = ["--irt", "100ms", "--mrc", "2", "--mrd", "1s"];
    fails(&[&["load", "radius", &at, "--secret", "other"][..], &user, &quick].concat(), 1, "timeout");
    let right = ["--user", "user0", "--password", "pw0"];
    // A late reply is reported only if it arrives in time, so the timeout is raised step by step.
    let told_of = |irt: &&str| {
        let timers = ["--irt", irt, "--mrc", "2", "--mrd", "60s"];
        ends(&[&["load", "radius", &at, "--secret", SECRET][..], &right, &timers].concat(), 1).contains(OLD)
    };
    assert!(["100ms", "1s", "10s"].iter().any(told_of), "{OLD} is not proposed");
    fails(&[&["load", "radius", "192.0.2.1", "--secret", SECRET][..], &user].concat(), 2, "--yes");
    fails(&[&["load", "radius", &at][..], &user].concat(), 2, "--secret-file");
    fails(&["load", "radius", &at, "--secret", SECRET], 2, "--users-file");
    fails(
        &["load", "radius", &at, "--secret", SECRET, OLD, "--user", "a", "--password", "b", "--users", "3"],
        2,
        "{}",
    );
    fails(
        &[&["load", "eap", &at, "--secret", SECRET, "--method", "tls"][..], &user].concat(),
        2,
        "--certificate",
    );
    fails(
        &[&["load", "diameter", "127.0.0.1:1", "--peer", "aaa.example.org"][..], &user].concat(),
        1,
        "connection",
    );
}

#[test]
fn an_interrupt_ends_with_the_figures_so_far() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, OLD, "--duration", "1h", "--json"];
    words.extend(["--warmup", "0s"]);
    words.extend(USERS);
    let child = Command::new(env!("CARGO_BIN_EXE_usher"))
        .args(&words)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("usher runs");
    // More than the maximum in flight, and the trial login.
    wait_until("logins are counted", || server.accepted_logins() > 100);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["interrupted"], true);
    assert!(value["succeeded"].as_u64().unwrap() > 0);
}

#[test]
fn a_ramp_finds_the_knee() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, OLD, "--ramp", "--json"];
    words.extend(["--ramp-start", "50", "--ramp-most", "200", "--ramp-settle", "200ms", "--ramp-hold", "1s"]);
    // A limit that any machine meets.
    words.extend(["--ramp-p99", "60s", "--ramp-success", "95%"]);
    words.extend(USERS);
    let value = run_load(&words);
    let steps = value["ramp"]["steps"].as_array().unwrap();
    assert!(steps.len() >= 3, "{value:#}");
    let knee = value["ramp"]["knee_per_s"].as_f64().unwrap();
    assert!(knee >= 50.0);
    let at_knee = || steps.iter().filter(|s| s["rate"].as_f64() == Some(knee));
    let sum = |name: &str| at_knee().map(|s| s[name].as_u64().unwrap()).sum::<u64>();
    for name in ["begun", "succeeded", "failed", "cut_off"] {
        assert_eq!(
            value[name].as_u64(),
            Some(sum(name)),
            "{name} of the headline is that of the steps at the knee"
        );
    }
}

#[test]
fn methods_are_mixed_with_certificates_and_tunnels() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let (certificate, key) = server.client_certificate(2);
    let ca = server.folder.join("ca.pem");
    let mut words = vec!["load", "eap", &at, "--secret", SECRET, OLD, "--count", "100", "--json"];
    words.extend(["--mix", "pap=50,eap-tls=20,peap-mschapv2=20,eap-md5=10", "--concurrency", "8"]);
    words.extend(["--certificate", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    words.extend(["--ca", ca.to_str().unwrap(), "--anonymous", "anonymous"]);
    words.extend(USERS);
    let value = run_load(&words);
    all_succeed(&value, 100);
    let methods = value["methods"].as_array().unwrap();
    assert!(methods.len() == 4 && methods.iter().all(|m| m["succeeded"] == m["begun"]), "{value:#}");
}

#[test]
fn freeradius_is_loaded_from_many_access_servers() {
    let server = FreeRadius::start("md5", 2);
    let at = server.auth_address();
    let mut words =
        vec!["load", "eap", &at, "--secret", SECRET, OLD, "--method", "md5", "--count", "400", "--json"];
    words.extend(["--nas", "32", "--no-offload", "--concurrency", "64", "--expect", "failed <= 0"]);
    words.extend(USERS);
    all_succeed(&run_load(&words), 400);
}
