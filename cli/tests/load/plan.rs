//! `usher load --calibrate` and `usher plan`, from a server to the number of servers.

use crate::ours::{Ours, ends};
use crate::usher;
use std::fs;
use std::path::Path;

/// Calibrates passwords and EAP-MD5, in short.
fn calibrate(ours: &Ours, profile: &Path) -> serde_json::Value {
    let (pid, config, profile) =
        (ours.pid().to_string(), ours.file("aaa.toml"), profile.display().to_string());
    let mut words =
        ours.logins("eap", &["--mix", "pap=1,eap-md5=1", "--calibrate", &profile, "--server-pid", &pid]);
    words.extend(["--server-config", &config, "--calibrate-hold", "400ms", "--no-libraries"]);
    // On a busy machine a short measurement may tell nothing, and says so.
    let apart = |output: &std::process::Output| {
        output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("calibrate again")
    };
    let tries = std::iter::repeat_with(|| usher(&words)).take(5);
    let output = tries.skip_while(apart).next().expect("one of five measurements tells what a login costs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
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

#[test]
fn a_profile_is_measured_and_servers_are_planned_from_it() {
    let ours = Ours::start(None);
    let profile = ours.path("profile.toml");
    let told = calibrate(&ours, &profile);
    let of = |method: &str, what: &str| told["methods"][method][what].as_f64().unwrap();
    assert!(of("pap", "server_us") > 0.0, "{told}");
    // By EAP-MD5 a login is three messages: who it is, that the method proposed first is not wanted, and the proof.
    assert_eq!(
        (of("pap", "received_messages").round(), of("eap-md5", "received_messages").round()),
        (1.0, 3.0)
    );
    assert!(of("eap-md5", "busy_us") > of("pap", "busy_us"), "{told}");
    for method in ["pap", "eap-md5"] {
        assert!((0.5..=2.0).contains(&of(method, "accounted")), "{told}");
    }
    let text = fs::read_to_string(&profile).unwrap();
    assert!(text.contains("store = \"memory\"") && text.contains("\"radius.request\" = {"), "{text}");

    let few = plan(&profile, "pap", "10");
    let capacity = few["capacity"]["logins_per_s"].as_f64().unwrap();
    // What a core does at most, and no more; a server that is not slower than its work by half.
    let most = 1e6 / of("pap", "busy_us");
    assert!(capacity > 0.5 * most && capacity < 1.3 * most, "{capacity} of {most}");
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
    let profile = ours.path("profile.toml");
    calibrate(&ours, &profile);
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
