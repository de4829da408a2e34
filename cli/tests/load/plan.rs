//! `usher load --calibrate` and `usher plan`, from a server to the number of servers.

use crate::ours::{Ours, ends};
use crate::usher;
use std::fs;
use std::path::{Path, PathBuf};

/// What logins cost a server that knows its users itself.
const PROFILE: &str = r#"version = 1
program = "VERSION"
date = "2026-11-25"
[machine]
processor = "one"
cores = 2
kernel = "6.1.0"
[machine.reference]
rsa_2048_sign = "1000 /s"
ecdsa_p256_sign = "30000 /s"
md5 = "2000000 /s"
[configuration]
fingerprint = "00ff"
shards = 1
store = "memory"
cached = false
[wakeup]
user = "1 us"
system = "2 us"
[batch]
user = "0 us"
system = "1 us"
[work]
"radius.request" = { user = "6 us", system = "4 us" }
[methods.pap]
received = { messages = 1.0, octets = 60.0 }
sent = { messages = 1.0, octets = 38.0 }
server = { user = "7 us", system = "7 us" }
generator = { user = "9 us", system = "8 us" }
accounted = 1.0
units = { "radius.request" = 1.0 }
loads = []
[methods.eap-md5]
received = { messages = 2.0, octets = 160.0 }
sent = { messages = 2.0, octets = 138.0 }
server = { user = "14 us", system = "14 us" }
generator = { user = "19 us", system = "18 us" }
accounted = 1.0
units = { "radius.request" = 2.0 }
loads = []
"#;

/// The profile, as this version would have written it, in a server's folder.
fn profile(ours: &Ours) -> PathBuf {
    let path = ours.path("profile.toml");
    fs::write(&path, PROFILE.replace("VERSION", env!("CARGO_PKG_VERSION"))).unwrap();
    path
}

/// A plan for one method at a rate: its JSON.
fn plan(profile: &Path, method: &str, rate: &str) -> serde_json::Value {
    let (profile, mix) = (profile.display().to_string(), format!("{method}=1"));
    let words = [
        "plan",
        "--profile",
        &profile,
        "--mix",
        &mix,
        "--rate",
        rate,
        "--quick",
        "--logins",
        "300",
        "--json",
    ];
    ends(&words, 0).0
}

/// On a busy machine a short measurement may tell nothing of kinds of work: then that is said, and nothing is written.
#[test]
fn what_a_login_costs_is_measured_or_it_is_said_that_it_cannot_be() {
    let ours = Ours::start(None);
    let written = ours.path("measured.toml");
    let (pid, config, to) = (ours.pid().to_string(), ours.file("aaa.toml"), written.display().to_string());
    let mut words =
        ours.logins("eap", &["--mix", "pap=1,eap-md5=1", "--calibrate", &to, "--server-pid", &pid]);
    words.extend(["--server-config", &config, "--calibrate-hold", "400ms", "--no-libraries"]);
    let output = usher(&words);
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(1) {
        assert!(said.contains("calibrate again") && !written.exists(), "{said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |method: &str, what: &str| told["methods"][method][what].as_f64().unwrap();
    // By EAP-MD5 a login is three messages: who it is, that the method proposed first is not wanted, and the proof.
    let messages = ["pap", "eap-md5"].map(|method| of(method, "received_messages").round());
    assert_eq!(messages, [1.0, 3.0], "{told}");
    assert!(of("pap", "server_us") > 0.0 && of("eap-md5", "busy_us") > of("pap", "busy_us"), "{told}");
    let text = fs::read_to_string(&written).unwrap();
    assert!(text.contains("store = \"memory\"") && text.contains("\"radius.request\" = {"), "{text}");
}

#[test]
fn servers_are_planned_from_what_a_login_costs() {
    let ours = Ours::start(None);
    let profile = profile(&ours);
    let few = plan(&profile, "pap", "10");
    let capacity = few["capacity"]["logins_per_s"].as_f64().unwrap();
    // A message costs 10 µs and its share of a wake-up and a batch, which are up to 4 µs.
    assert!(capacity > 0.5 * 1e6 / 14.0 && capacity < 1e6 / 10.0, "{capacity}");
    assert_eq!(
        (few["servers"].as_u64(), few["breaks_first"]["resource"].as_str()),
        (Some(1), Some("processor"))
    );
    let many = plan(&profile, "pap", &format!("{}", capacity * 5.0));
    assert!(matches!(many["servers"].as_u64(), Some(4..=7)), "{many}");
    let eap = plan(&profile, "eap-md5", "10");
    assert!(eap["capacity"]["logins_per_s"].as_f64().unwrap() < capacity, "{eap}");
    // Delay grows with load, and the busier level needs fewer servers.
    let points = many["points"].as_array().unwrap();
    let p99 = |at: usize| points[at]["delay_s"]["p99"]["mean"].as_f64().unwrap();
    assert!(p99(0) < p99(points.len() - 1), "{many}");
    let levels = many["levels"].as_array().unwrap();
    assert!(levels[0]["servers"].as_u64() > levels[1]["servers"].as_u64(), "{many}");
    assert_eq!(plan(&profile, "pap", "10"), few, "the same plan has the same answer");
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let ours = Ours::start(None);
    let profile = profile(&ours);
    let text = fs::read_to_string(&profile).unwrap();
    let version = format!("program = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    let other = ours.path("other.toml");
    let refused = |text: &str, more: &[&str], part: &str| {
        fs::write(&other, text).unwrap();
        let file = other.display().to_string();
        let mut words = vec!["plan", "--profile", &file, "--rate", "5"];
        words.extend(more);
        let said = ends(&words, 2).1;
        assert!(said.contains(part), "{said}");
    };
    let pap = ["--mix", "pap=1"];
    refused(&text.replace(&version, "program = \"0.0.1\""), &pap, "of usher 0.0.1 and this is usher");
    refused(&text, &["--mix", "eap-tls=1"], "no method \"eap-tls\"");
    refused(
        &text.replace("\"memory\"", "\"sqlite\""),
        &[&pap[..], &["--config", &ours.file("aaa.toml")]].concat(),
        "users were in sqlite and yours are in memory",
    );
    refused(
        &text.replace("\"radius.request\" =", "\"radius.requst\" ="),
        &pap,
        "no kind of work \"radius.requst\"",
    );
    refused(&text, &[&pap[..], &["--store-distance", "5 ms"]].concat(), "not looked up in a store");
    refused(&text, &[&pap[..], &["--peak", "0.5"]].concat(), "1 or more");
    refused(&text, &[], "the profile has pap, eap-md5");

    // A server without metrics cannot be calibrated, and neither can an unknown process.
    let config = ours.path("aaa.toml");
    let metrics = |line: &str| line == "[metrics]" || line.starts_with("listen = ");
    let text = fs::read_to_string(&config).unwrap();
    let without: String =
        text.lines().filter(|line| !metrics(line)).map(|line| format!("{line}\n")).collect();
    ours.write_private("without.toml", &without);
    let (pid, file, to) = (ours.pid().to_string(), ours.file("without.toml"), other.display().to_string());
    let words = ["--calibrate", &to, "--server-pid", &pid, "--server-config", &file];
    let said = ends(&ours.logins("radius", &words), 2).1;
    assert!(said.contains("add [metrics]"), "{said}");
    let said = ends(&ours.logins("radius", &["--calibrate", &to]), 2).1;
    assert!(said.contains("--server-pid"), "{said}");
}
