//! `usher load --calibrate` and `usher plan`: from one server to the number of servers.

use crate::ours::{UsherServer, expect_exit};
use crate::run_usher;
use std::fs;
use std::path::{Path, PathBuf};
use usher_profile::StoreKind;
use usher_profile::testing::sample_profile_text;

/// Writes a profile of this version to a server's folder.
fn write_profile(ours: &UsherServer) -> PathBuf {
    let path = ours.path("profile.toml");
    fs::write(&path, sample_profile_text(env!("CARGO_PKG_VERSION"), StoreKind::Memory)).unwrap();
    path
}

/// Plans one method at a rate, and returns the JSON.
fn run_plan(profile: &Path, method: &str, rate: &str) -> serde_json::Value {
    plan_for(profile, method, rate, &[])
}

/// The same with more options.
fn plan_for(profile: &Path, method: &str, rate: &str, more: &[&str]) -> serde_json::Value {
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
    expect_exit(&[&words[..], more].concat(), 0).0
}

/// Even with lax targets, a server's scarcest resource limits its capacity: above it the queue grows without
/// bound.
#[test]
fn a_lax_target_plans_no_more_than_the_processor_has() {
    let ours = UsherServer::start(None);
    let profile = write_profile(&ours);
    for target in ["99 % within 10 s", "50 % within 1 min"] {
        let lax = plan_for(&profile, "pap", "10", &["--target", target]);
        let capacity = lax["capacity"]["interval"][1].as_f64().unwrap();
        let processor = lax["breaks_first"]["logins_per_s"].as_f64().unwrap();
        assert!(capacity <= processor && lax["limited_by"] == "processor", "{lax}");
    }
    // The plan reports a server that loses packets.
    let file = profile.display().to_string();
    let words = ["plan", "--profile", &file, "--mix", "pap=1", "--rate", "10", "--quick", "--loss", "40 %"];
    let said = expect_exit(&words, 1).1;
    assert!(
        said.contains("% of the logins succeed even at the lowest load") && said.contains("less loss"),
        "{said}"
    );
}

#[test]
fn what_a_login_costs_is_measured_and_planned_with_or_refused() {
    let ours = UsherServer::start(None);
    let written = ours.path("measured.toml");
    let (pid, config, to) =
        (ours.pid().to_string(), ours.file_text("aaa.toml"), written.display().to_string());
    let mut words =
        ours.login_arguments("eap", &["--mix", "pap=1,eap-md5=1", "--calibrate", &to, "--server-pid", &pid]);
    words.extend(["--server-config", &config, "--calibrate-hold", "400ms", "--no-libraries"]);
    let output = run_usher(&words);
    // An unoptimised program on a shared machine may fail to measure well. Then it must report that, and write
    // nothing.
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("calibrate again") && !written.exists(), "{said}");
        let each = said.contains("  pap at ") && said.contains("  eap-md5 at ");
        assert!(each || said.contains("of the logins succeeded"), "{said}");
        return;
    }
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |method: &str, what: &str| told["methods"][method][what].as_f64().unwrap();
    // An EAP-MD5 login has three messages: the identity, a Nak of the method proposed first, and the proof.
    let messages = ["pap", "eap-md5"].map(|method| of(method, "received_messages").round());
    assert_eq!(messages, [1.0, 3.0], "{told}");
    assert!(of("pap", "server_us") > 0.0 && of("eap-md5", "busy_us") > of("pap", "busy_us"), "{told}");
    let text = fs::read_to_string(&written).unwrap();
    assert!(text.contains("store = \"memory\"") && text.contains("\"radius.request\" = {"), "{text}");
    // Two loads at a steady rate, three in bursts.
    assert_eq!((text.matches("burst = 1,").count(), text.matches("burst = ").count()), (4, 10), "{text}");
    let planned = run_plan(&written, "pap", "10");
    let capacity = planned["capacity"]["logins_per_s"].as_f64().unwrap();
    let most = 1e6 / of("pap", "busy_us");
    assert!(capacity > 0.7 * most && capacity < 1.15 * most, "{capacity} of {most}");
}

#[test]
fn servers_are_planned_from_what_a_login_costs() {
    let ours = UsherServer::start(None);
    let profile = write_profile(&ours);
    let few = run_plan(&profile, "pap", "10");
    let capacity = few["capacity"]["logins_per_s"].as_f64().unwrap();
    // A message costs 10 µs and its share of a wake-up and a batch, up to 4 µs. Few logins leave an interval.
    let low = few["capacity"]["interval"][0].as_f64().unwrap();
    assert!(capacity > 0.5 * 1e6 / 14.0 && low < 1e6 / 10.0, "{few}");
    assert_eq!(
        (few["servers"].as_u64(), few["breaks_first"]["resource"].as_str()),
        (Some(1), Some("processor"))
    );
    let many = run_plan(&profile, "pap", &format!("{}", capacity * 5.0));
    assert!(matches!(many["servers"].as_u64(), Some(4..=7)), "{many}");
    let eap = run_plan(&profile, "eap-md5", "10");
    assert!(eap["capacity"]["logins_per_s"].as_f64().unwrap() < capacity, "{eap}");
    // Delay grows with load, and the busier level needs fewer servers.
    let points = many["points"].as_array().unwrap();
    let p99 = |at: usize| points[at]["delay_s"]["p99"]["mean"].as_f64().unwrap();
    assert!(p99(0) < p99(points.len() - 1), "{many}");
    let levels = many["levels"].as_array().unwrap();
    assert!(levels[0]["servers"].as_u64() > levels[1]["servers"].as_u64(), "{many}");
    assert_eq!(run_plan(&profile, "pap", "10"), few, "the same plan has the same answer");
}

#[test]
fn logins_over_diameter_are_planned_alone_and_beside_radius() {
    let ours = UsherServer::start(None);
    let profile = write_profile(&ours);
    let capacity = |planned: &serde_json::Value| planned["capacity"]["logins_per_s"].as_f64().unwrap();
    // A login costs two messages, of 18 µs over Diameter or 10 µs over RADIUS, and a digest of 2 µs, plus
    // wake-ups and batches.
    let diameter = capacity(&run_plan(&profile, "diameter-eap-md5", "10"));
    assert!(diameter > 0.5 * 1e6 / 46.0 && diameter < 1.05 * 1e6 / 38.0, "{diameter}");
    let radius = capacity(&run_plan(&profile, "eap-md5", "10"));
    let both = capacity(&run_plan(&profile, "eap-md5=1,diameter-eap-md5", "10"));
    assert!(diameter < both && both < radius, "{diameter} {both} {radius}");
    // The server's file may have no Diameter, and the method may not exist.
    let (profile, file) = (profile.display().to_string(), ours.file_text("aaa.toml"));
    let words = ["plan", "--profile", &profile, "--mix", "diameter-eap-md5=1", "--rate", "5"];
    let said = expect_exit(&[&words[..], &["--config", &file]].concat(), 2).1;
    assert!(said.contains("listen.diameter"), "{said}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let ours = UsherServer::start(None);
    let profile = write_profile(&ours);
    let text = fs::read_to_string(&profile).unwrap();
    let version = format!("program = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    let other = ours.path("other.toml");
    let refused = |text: &str, more: &[&str], part: &str| {
        fs::write(&other, text).unwrap();
        let file = other.display().to_string();
        let mut words = vec!["plan", "--profile", &file, "--rate", "5"];
        words.extend(more);
        let said = expect_exit(&words, 2).1;
        assert!(said.contains(part), "{said}");
    };
    let pap = ["--mix", "pap=1"];
    refused(&text.replace(&version, "program = \"0.0.1\""), &pap, "of usher 0.0.1 and this is usher");
    // Its costs may still be near enough for one who says so. The answer says it, too.
    let accepted = plan_for(&other, "pap", "5", &["--any-version"]);
    assert!(accepted["assumptions"].to_string().contains("The profile is of usher 0.0.1. "), "{accepted}");
    refused(&text, &["--mix", "eap-tls=1"], "no method \"eap-tls\"");
    refused(
        &text.replace("\"memory\"", "\"sqlite\""),
        &[&pap[..], &["--config", &ours.file_text("aaa.toml")]].concat(),
        "users were in sqlite and yours are in memory",
    );
    refused(
        &text.replace("\"radius.request\" =", "\"radius.requst\" ="),
        &pap,
        "no kind of work \"radius.requst\"",
    );
    refused(&text, &[&pap[..], &["--store-distance", "5 ms"]].concat(), "no store lookups");
    refused(&text, &[&pap[..], &["--peak", "0.5"]].concat(), "1 or more");
    refused(&text, &[], "the profile has pap, eap-md5");

    // A server without metrics cannot be calibrated, and neither can an unknown process.
    let config = ours.path("aaa.toml");
    let metrics = |line: &str| line == "[metrics]" || line.starts_with("listen = ");
    let text = fs::read_to_string(&config).unwrap();
    let without: String =
        text.lines().filter(|line| !metrics(line)).map(|line| format!("{line}\n")).collect();
    ours.write_private("without.toml", &without);
    let (pid, file, to) =
        (ours.pid().to_string(), ours.file_text("without.toml"), other.display().to_string());
    let words = ["--calibrate", &to, "--server-pid", &pid, "--server-config", &file];
    let said = expect_exit(&ours.login_arguments("radius", &words), 2).1;
    assert!(said.contains("add [metrics]"), "{said}");
    let said = expect_exit(&ours.login_arguments("radius", &["--calibrate", &to]), 2).1;
    assert!(said.contains("--server-pid"), "{said}");
}

/// A plan for a gateway uses the cost of an IKE_SA, without a server.
#[test]
fn gateways_are_planned_from_what_an_ike_sa_costs() {
    let folder = std::env::temp_dir().join(format!("usher-plan-ike-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("gateway.toml");
    let mut of_gateway = sample_profile_text(env!("CARGO_PKG_VERSION"), StoreKind::Memory);
    of_gateway = of_gateway.replace("[work]\n", "[work]\n\"ike.message\" = { user = \"10 us\", system = \"0 us\" }\n\"ike.key_exchange\" = { user = \"30 us\", system = \"0 us\" }\n");
    of_gateway.push_str(
        "[methods.ike-psk]\nreceived = { messages = 3.0, octets = 900.0 }\nsent = { messages = 3.0, octets = 900.0 }\n\
         server = { user = \"120 us\", system = \"0 us\" }\ngenerator = { user = \"200 us\", system = \"0 us\" }\n\
         units = { \"ike.message\" = 6.0, \"ike.key_exchange\" = 2.0 }\nloads = []\n",
    );
    fs::write(&path, of_gateway).unwrap();
    let planned = run_plan(&path, "ike-psk", "20000");
    // Six messages, with the deletion, and two operations cost 120 µs. A wake-up and a batch cost up to 4 µs
    // each.
    let capacity = planned["capacity"]["logins_per_s"].as_f64().unwrap();
    assert!(capacity > 0.6 * 1e6 / 132.0 && capacity < 1.1e6 / 120.0, "{planned}");
    assert_eq!(planned["breaks_first"]["resource"], "processor");
    assert!((3..=5).contains(&planned["servers"].as_u64().unwrap()), "{planned}");
    let path = path.display().to_string();
    let words = ["plan", "--profile", &path, "--mix", "ike-psk=1,pap=1", "--rate", "10", "--quick"];
    let mixed = run_usher(&words);
    let said = String::from_utf8_lossy(&mixed.stderr).into_owned();
    assert!(!mixed.status.success() && said.contains("planned alone"), "{said}");
    fs::remove_dir_all(&folder).unwrap();
}
