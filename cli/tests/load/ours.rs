//! `usher load` with our own server: access servers, certificates, expectations, and its self-checks.

use crate::freeradius::new_folder;
use crate::own::{TEST_TIMEOUT, bound_command, own_socket, wait_or_fail, wait_until};
use crate::{run_load, run_usher};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SECRET: &str = "a secret of the tests";

/// A server with users `user0` to `user9` and passwords `pw0` to `pw9`, killed when dropped.
pub(crate) struct UsherServer {
    process: Child,
    folder: PathBuf,
    address: String,
}

impl UsherServer {
    pub(crate) fn start(pki: Option<&Path>) -> Self {
        let (folder, auth, metrics) = (new_folder(), own_socket(), own_socket());
        let tls = pki.map_or(String::new(), |pki| {
            let pki = pki.display();
            format!(
                "[tls]\ncertificate = \"{pki}/issued/aaa.example.crt\"\nkey = \"{pki}/issued/aaa.example.key\"\n\
                 ca = \"{pki}/ca.crt\"\n"
            )
        });
        let users = (0..10).map(|n| format!("[[user]]\nname = \"user{n}\"\npassword = \"pw{n}\"\n"));
        let config = format!(
            "shards = 1\nstate_dir = \"state\"\nreject_delay = \"0 s\"\n[listen]\nauth = [\"{auth}\"]\nacct = []\n\
             [metrics]\nlisten = \"{metrics}\"\n[[client]]\nname = \"tests\"\nprefix = \"127.0.0.0/8\"\nsecret = \"{SECRET}\"\n\
             [users]\nstore = \"memory\"\n{tls}{}",
            users.collect::<String>()
        );
        let file = folder.join("aaa.toml");
        fs::write(&file, config).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let process = bound_command(env!("CARGO_BIN_EXE_usher"))
            .args(["aaa", "serve", "--config", "aaa.toml"])
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let ours = Self { process, folder, address: auth.to_string() };
        let starts = || ours.log().contains("started");
        wait_or_fail(|| format!("the server does not start: {}", ours.log()), starts);
        ours
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }
    /// Returns the path of a file in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    pub(crate) fn file_text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
    /// Writes a file with a secret there.
    pub(crate) fn write_private(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Returns the arguments of a load, with more appended.
    pub(crate) fn login_arguments<'a>(&'a self, command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["load", command, &self.address, "--secret", SECRET, "--json"];
        words.extend(["--user", "user{}", "--password", "pw{}", "--users", "10"]);
        words.extend(more);
        words
    }

    /// Returns the arguments of a load of PAP logins, with more appended.
    fn pap_arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.login_arguments("radius", more)
    }

    /// Returns the number of accepted logins in its log.
    fn accepted_logins(&self) -> usize {
        self.log().matches(" accept user=").count()
    }
}

impl Drop for UsherServer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a load that must end with this code. Returns its JSON and standard error.
pub(crate) fn expect_exit(words: &[&str], code: i32) -> (Value, String) {
    let output = run_usher(words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    (serde_json::from_slice(&output.stdout).unwrap_or(Value::Null), said)
}

#[test]
fn expectations_decide_the_exit_code() {
    let ours = UsherServer::start(None);
    let met = ["--count", "500", "--expect", "p99 < 1000 s", "--expect", "failed < 0.1 %"];
    let (value, _) = expect_exit(&ours.pap_arguments(&met), 0);
    assert_eq!(value["expectations"][1]["met"], true);
    let unmet =
        ["--count", "500", "--expect", "failed <= 0", "--expect", "p50 < 1 us", "--expect", "knee > 1"];
    let (_, said) = expect_exit(&ours.pap_arguments(&unmet), 2);
    assert!(said.contains("needs --ramp"), "{said}");
    let (value, said) = expect_exit(&ours.pap_arguments(&unmet[..6]), 3);
    assert!(said.contains("expected p50 < 1 us, but it was: ") && !said.contains("failed"), "{said}");
    let all = value["expectations"].as_array().unwrap();
    assert_eq!((all[0]["met"].as_bool(), all[1]["met"].as_bool()), (Some(true), Some(false)));
    assert!(all[1]["found"].as_f64().unwrap() > 1e-6, "the results are told all the same");
    for (expectation, part) in [("p98 < 1 s", "Login latency: p50"), ("p99 < 100", "a time such as 100 ms")] {
        let (_, said) = expect_exit(&ours.pap_arguments(&["--expect", expectation]), 2);
        assert!(said.contains(part), "{said}");
    }
    let (_, said) = expect_exit(
        &ours.pap_arguments(&[
            "--no-check",
            "--count",
            "20",
            "--wrong-share",
            "100%",
            "--expect",
            "p99 < 1 s",
        ]),
        3,
    );
    assert!(said.contains("not measured"), "{said}");
}

#[test]
fn each_user_shows_its_own_certificate() {
    let work = new_folder();
    let pki = work.join("pki");
    let dir = pki.to_str().unwrap();
    let cert = |words: &[&str]| {
        let output = run_usher(&[&["aaa", "cert", "--dir", dir][..], words].concat());
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    cert(&["init", "--server", "aaa.example"]);
    (0..3).for_each(|n| cert(&["issue", &format!("user{n}")]));
    let ours = UsherServer::start(Some(&pki));
    let (ca, issued) = (format!("{dir}/ca.crt"), format!("{dir}/issued"));
    let (certificate, key) = (format!("{issued}/{{name}}.crt"), format!("{issued}/{{name}}.key"));
    let base = ["load", "eap", &ours.address, "--secret", SECRET, "--method", "tls", "--ca", &ca, "--json"];
    let users =
        ["--user", "user{}", "--users", "3", "--count", "30", "--wrong-share", "30%", "--concurrency", "2"];
    let value = run_load(&[&base[..], &users, &["--certificate", &certificate, "--key", &key]].concat());
    assert_eq!((&value["succeeded"], &value["failed"]), (&30.into(), &0.into()), "{value:#}");
    let refused = value["expected_rejects"].as_u64().unwrap();
    assert!((1..30).contains(&refused), "logins with another user's certificate are refused: {refused}");

    // With a file of users. user0 and user1 have swapped passwords.
    let csv = work.join("users.csv");
    let line = |user: u32, of: u32| format!("user{user},,pki/issued/user{of}.crt,pki/issued/user{of}.key\n");
    fs::write(&csv, line(0, 1) + &line(1, 0) + &line(2, 2)).unwrap();
    let file = ["--users-file", csv.to_str().unwrap(), "--no-check", "--count", "30", "--concurrency", "2"];
    let value = run_load(&[&base[..], &file].concat());
    assert_eq!((&value["succeeded"], &value["failures"]["rejected"]), (&10.into(), &20.into()), "{value:#}");

    let number = format!("{issued}/user{{}}.crt");
    let words =
        [&base[..], &["--user", "user{}", "--users", "4", "--certificate", &number, "--key", &key]].concat();
    assert!(expect_exit(&words, 2).1.contains("user3.crt"), "the file that is missing is named");
    let same = format!("{issued}/user0.crt");
    let one = ["--user", "user0", "--wrong-share", "10%", "--certificate", &same, "--key", &key];
    let words = [&base[..], &one].concat();
    assert!(
        expect_exit(&words, 2).1.contains("a certificate for each user"),
        "nobody else's certificate is there to be refused"
    );
    fs::remove_dir_all(work).unwrap();
}

#[test]
fn access_servers_have_sockets_and_addresses_of_their_own() {
    let ours = UsherServer::start(None);
    for more in
        [&["--no-offload"][..], &["--nas-address", "127.9.7.250", "--no-offload"], &["--threads", "2"]]
    {
        let words = ours
            .pap_arguments(&[&["--nas", "9", "--count", "900", "--concurrency", "64"][..], more].concat());
        let value = run_load(&words);
        assert_eq!(
            (&value["succeeded"], &value["trains"]),
            (&900.into(), &false.into()),
            "{more:?}: {value:#}"
        );
        let offload = if more.contains(&"--no-offload") { "false" } else { "true" };
        assert_eq!(value["settings"]["offload"], offload);
    }
    assert_eq!(run_load(&ours.pap_arguments(&["--count", "100"]))["trains"], true);
    let (_, said) = expect_exit(&ours.pap_arguments(&["--nas", "2", "--nas-address", "192.0.2.1"]), 2);
    assert!(said.contains("cannot send from 192.0.2.1"), "{said}");
    assert!(
        expect_exit(&ours.pap_arguments(&["--nas", "1", "--concurrency", "300"]), 2).1.contains("--nas 2")
    );
}

#[test]
fn methods_are_mixed_and_told_apart() {
    let ours = UsherServer::start(None);
    let base = [
        "load",
        "eap",
        &ours.address,
        "--secret",
        SECRET,
        "--user",
        "user{}",
        "--password",
        "pw{}",
        "--users",
        "10",
    ];
    let mix =
        ["--mix", "pap=60,eap-md5=30,eap-mschapv2=10", "--count", "1000", "--wrong-share", "10%", "--json"];
    let value = run_load(&[&base[..], &mix].concat());
    assert_eq!((&value["succeeded"], &value["failed"]), (&1000.into(), &0.into()), "{value:#}");
    let methods = value["methods"].as_array().unwrap();
    let begun: Vec<u64> = methods.iter().map(|m| m["begun"].as_u64().unwrap()).collect();
    assert_eq!((begun.len(), begun.iter().sum::<u64>()), (3, 1000));
    assert!(begun[0] > begun[1] && begun[1] > begun[2] && begun[2] > 30, "{begun:?}");
    assert_eq!(methods[1]["method"], "eap-md5");
    assert_eq!(value["method"], "pap 60 %, eap-md5 30 %, eap-mschapv2 10 %");
    // The load names methods that the server rejects before it starts.
    let (_, said) = expect_exit(&[&base[..], &["--mix", "pap=60,eap-gtc=40", "--count", "10"]].concat(), 1);
    assert!(said.contains("by eap-gtc"), "{said}");
    assert!(
        expect_exit(&[&base[..], &["--mix", "pap=60,leap=40"]].concat(), 2)
            .1
            .contains("unknown method \"leap\"")
    );
    let text = run_usher(&[&base[..], &["--mix", "pap=1,eap-md5=1", "--count", "50"]].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("method") && text.contains("eap-md5 50 %"), "{text}");
}

#[test]
fn what_an_interrupt_cuts_off_is_counted() {
    // This socket receives all requests and answers none.
    let silent = UdpSocket::bind(own_socket()).unwrap();
    silent.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let mut words = vec!["load", "radius", &at, "--secret", SECRET, "--json", "--user", "user"];
    words.extend(["--password", "pw", "--no-check", "--warmup", "0s", "--duration", "1h"]);
    words.extend(["--concurrency", "12", "--irt", "1000s", "--mrt", "0", "--mrd", "0"]);
    let child =
        Command::new(env!("CARGO_BIN_EXE_usher")).args(&words).stdout(Stdio::piped()).spawn().unwrap();
    let (mut octets, mut asked) = ([0; 4096], BTreeSet::new());
    while asked.len() < 12 {
        let length = silent.recv(&mut octets).expect("twelve ask");
        asked.insert(octets[..length].to_vec());
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["interrupted"], &value["begun"]), (&true.into(), &12.into()), "{value:#}");
    assert_eq!((&value["cut_off"], &value["failed"]), (&12.into(), &0.into()), "{value:#}");
}

#[test]
fn a_generator_that_cannot_keep_its_pace_says_so() {
    let ours = UsherServer::start(None);
    // Stops the generator for a second, on any machine.
    let stopped_for_a_second = |duration: &&str| {
        let before = ours.accepted_logins();
        let pace = ["--rate", "200", "--duration", duration, "--warmup", "0s", "--expect", "p99 < 1 us"];
        let mut child = Command::new(env!("CARGO_BIN_EXE_usher"))
            .args(ours.pap_arguments(&pace))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // More than the trial login.
        wait_until("it logs users in", || ours.accepted_logins() > before + 20);
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_secs(1));
        // If the load ended before this process was scheduled, the test repeats it.
        let runs = child.try_wait().unwrap().is_none();
        let _ = kill_process(Pid::from_child(&child), Signal::CONT);
        let output = child.wait_with_output().unwrap();
        runs.then_some(output)
    };
    let output = ["4s", "8s", "16s", "32s"].iter().find_map(stopped_for_a_second).expect("it is stopped");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["bound_only"], true, "{value:#}");
    assert_eq!(value["generator"]["limit"]["by"], "late", "{value:#}");
    assert!(said.contains("The generator was the limit"), "{said}");
    // An idle generator that keeps its processor is not busy. A wait for a processor does count; a thread that
    // is always ready to run measures it.
    let over = AtomicBool::new(false);
    let (easy, waited) = std::thread::scope(|scope| {
        let waits = scope.spawn(|| share_of_waiting(&over));
        let easy = run_load(&ours.pap_arguments(&["--rate", "20", "--duration", "2s", "--warmup", "200ms"]));
        over.store(true, Ordering::Relaxed);
        (easy, waits.join().unwrap())
    });
    let busy = easy["generator"]["busy_share"].as_f64().unwrap();
    assert!(busy < 1.0 - 0.1 * (1.0 - waited), "busy for {busy} where one waits for {waited} of the time");
}

/// Returns the share of time that this thread waits for a processor while it is ready to run.
fn share_of_waiting(over: &AtomicBool) -> f64 {
    // Nanoseconds on a processor, and of waits for one (Linux, Documentation/scheduler/sched-stats).
    let waited = || {
        let said = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        said.split_ascii_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e9
    };
    let (begun, before) = (Instant::now(), waited());
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
    (waited() - before) / begun.elapsed().as_secs_f64()
}

#[test]
fn latency_over_time_is_a_figure_and_a_series() {
    let ours = UsherServer::start(None);
    let out = ours.folder.join("out");
    let value =
        run_load(&ours.pap_arguments(&["--rate", "200", "--duration", "6s", "--out", out.to_str().unwrap()]));
    let course = value["course"].as_array().unwrap();
    let counted: Vec<&Value> = course.iter().filter(|i| i["counted"] == true).collect();
    assert!(counted.len() >= 5, "{value:#}");
    assert!(counted.iter().filter(|i| i["p99_s"].as_f64().is_some_and(|s| s > 0.0)).count() >= 5);
    let ended: u64 = counted.iter().map(|i| i["succeeded"].as_u64().unwrap()).sum();
    assert_eq!(Some(ended), value["succeeded"].as_u64(), "the series has all that the whole has");
    let rows = fs::read_to_string(out.join("results.csv")).unwrap();
    assert!(rows.starts_with("study,method,until_s,"), "{rows}");
    let timed = |l: &&str| l.contains(",latency_p99_s,") && !l.starts_with("load-radius,pap,,");
    assert!(rows.lines().filter(timed).count() >= 5, "{rows}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Latency, over the run"));
    assert!(fs::metadata(out.join("figures/latency-over-time.svg")).unwrap().len() > 1000);
}

#[test]
fn a_ramps_headline_is_its_knee_with_the_failures_of_its_steps() {
    let ours = UsherServer::start(None);
    // No server meets this limit: each step fails, and the headline says so. Arrivals are regular, since at
    // random times a step of 300 ms at 4 a second may have no login.
    let steps =
        ["--ramp", "--ramp-settle", "100ms", "--ramp-hold", "300ms", "--ramp-start", "4", "--regular"];
    let value = run_load(&ours.pap_arguments(&[&steps[..], &["--ramp-p99", "1us"]].concat()));
    assert_eq!(value["ramp"]["knee_per_s"], Value::Null, "{value:#}");
    let taken = value["ramp"]["steps"].as_array().unwrap();
    assert!(taken.iter().all(|s| s["kept_up"] == false) && value["begun"].as_u64().unwrap() > 0, "{value:#}");
    let mut most = ours.pap_arguments(
        &[&steps[..], &["--ramp-most", "30", "--ramp-p99", "60s", "--expect", "knee >= 30"]].concat(),
    );
    let value = run_load(&most);
    assert_eq!(
        (&value["ramp"]["knee_per_s"], &value["ramp"]["knee_beyond_limit"]),
        (&30.0.into(), &true.into())
    );
    let last = value["ramp"]["steps"].as_array().unwrap().last().unwrap();
    for name in ["begun", "succeeded", "failed", "cut_off"] {
        assert_eq!(value[name], last[name], "{name} of the headline is that of the step at the knee");
    }
    most.retain(|w| *w != "--json");
    let text = String::from_utf8_lossy(&run_usher(&most).stdout).into_owned();
    assert!(text.contains("Capacity: at least 30 logins a second") && text.contains("cut off"), "{text}");
}
