//! `usher load pppoe` against our concentrator over a veth link: setup rates, churn, echoes, a power cut, and
//! missed expectations.

use crate::namespace::NetworkNamespace;
use crate::place::{RunningProgram, TempDir, USHER, run_program};
use serde_json::Value;

const SITE: &str = r#"
[listen]
interfaces = ["lan"]
control = "pppoe.sock"
[service]
address = "10.0.0.1"
pools = ["all"]
[authentication]
protocols = ["mschapv2", "chap"]
[[pool]]
name = "all"
ranges = ["10.0.4.0/22"]
[[user]]
name = "ann"
password = "a long password"
[limits]
discovery_per_station = 100
sessions_per_station = 1
"#;

struct SubscriberTestNetwork {
    host: NetworkNamespace,
    temp_dir: TempDir,
    // Dropped before its namespace.
    _running: RunningProgram,
    _ac: NetworkNamespace,
}

impl SubscriberTestNetwork {
    fn new() -> Self {
        let (ac, host, place) = (NetworkNamespace::new(), NetworkNamespace::new(), TempDir::new());
        ac.run_ip(&["link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", host.name()]);
        for space in [&ac, &host] {
            space.run_ip(&["link", "set", "lan", "up"]);
        }
        place.write_private("pppoe.toml", SITE);
        let mut command = ac.command(USHER);
        command.args(["pppoe", "serve", "--config", "pppoe.toml"]);
        let running = place.start_program("ac", &mut command, "started");
        Self { host, temp_dir: place, _running: running, _ac: ac }
    }

    /// Returns a run's exit code, report and messages.
    fn run_load(&self, words: &[&str]) -> (Option<i32>, Value, String) {
        let mut command = self.host.command(USHER);
        command.args(["load", "pppoe", "lan", "--user", "ann", "--password", "a long password", "--json"]);
        // The load generator asks for confirmation if it cannot see the first process's namespace.
        command.arg("--yes");
        let done = command.args(words).current_dir(self.temp_dir.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), serde_json::from_slice(&done.stdout).unwrap_or_default(), said)
    }

    fn count_sessions(&self) -> usize {
        let words = ["pppoe", "sessions", "--json", "--config", "pppoe.toml"];
        let (_, said) = run_program(&self.temp_dir.path(""), USHER, &words, "");
        let value: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        value["sessions"].as_array().unwrap().len()
    }
}

#[test]
fn subscribers_connect_carry_echoes_and_survive_a_power_cut() {
    let cable = SubscriberTestNetwork::new();
    // Each session ends at once after its start; a fifth of the logins have a wrong password.
    let churn = ["--sessions", "20", "--count", "60", "--method", "mschapv2", "--wrong-share", "20%"];
    let (code, value, said) = cable.run_load(&churn);
    assert_eq!((code, value["succeeded"].as_u64()), (Some(0), Some(60)), "{said}{value:#}");
    assert!(value["expected_rejects"].as_u64().unwrap() > 0);
    assert!(value["setup"]["cps_avg"].as_f64().unwrap() > 0.0);
    // All sessions stay, carry echoes, lose power and reconnect.
    let out = cable.temp_dir.path("out");
    let rounds = ["--sessions", "100", "--concurrency", "100", "--keep", "--rounds", "2", "--power-cut"];
    let words = [
        &rounds[..],
        &["--stay", "1s", "--echo", "5", "--expect", "echo-lost < 5 %", "--expect", "cps-min > 1/s"],
        &["--expect", "failed <= 0", "--out", out.to_str().unwrap()],
    ];
    // Echoes in flight at the end count as lost. A busy machine may have more of them in one run, but not in
    // every run.
    let run_once = || {
        let _ = std::fs::remove_dir_all(&out);
        cable.run_load(&words.concat())
    };
    let (code, value, said) =
        (0..5).map(|_| run_once()).find(|(code, ..)| *code != Some(3)).unwrap_or_else(run_once);
    assert_eq!(code, Some(0), "{said}{value:#}");
    assert_eq!(value["setup"]["rounds"].as_array().unwrap().len(), 2);
    assert_eq!((&value["succeeded"], &value["failed"]), (&200.into(), &0.into()));
    let echoes = value["echoes"]["answered"].as_u64().unwrap();
    assert!(echoes > 100, "a hundred sessions of a second at least, five echoes a second: {echoes}");
    assert_eq!(cable.count_sessions(), 0, "in the end all were ended with a word");
    let report = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(report.contains("CPS (MIN:"), "the report says how fast");
    // A missed expectation has its own exit code.
    let (code, _, said) = cable.run_load(&["--sessions", "5", "--keep", "--expect", "cps > 1000000/s"]);
    assert!(code == Some(3) && said.contains("expected cps > 1000000/s"), "{said}");
}

#[test]
fn nobody_there_and_what_cannot_be_asked_is_said() {
    let (host, other, place) = (NetworkNamespace::new(), NetworkNamespace::new(), TempDir::new());
    host.run_ip(&["link", "add", "lan", "type", "veth", "peer", "name", "lan", "netns", other.name()]);
    host.run_ip(&["link", "set", "lan", "up"]);
    other.run_ip(&["link", "set", "lan", "up"]);
    let load = |words: &[&str]| {
        let mut command = host.command(USHER);
        command.args(["load", "pppoe"]).args(words).args(["--yes", "--user", "ann", "--password", "x"]);
        let done = command.current_dir(place.path("")).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = load(&["lan", "--attempts", "1", "--discovery", "200ms"]);
    assert!(code == Some(1) && said.contains("the first login failed (timeout)"), "{said}");
    let (code, said) = load(&["eth9"]);
    assert!(code == Some(1) && said.contains("eth9") && said.contains("no such interface"), "{said}");
    for wrong in [
        &["lan", "--rounds", "2"][..],
        &["lan", "--keep", "--ramp"],
        &["lan", "--sessions", "1", "--threads", "2"],
        &["lan", "--echo", "0"],
        &["lan", "--station", "03:00:00:00:00:00"],
    ] {
        let (code, said) = load(wrong);
        assert_eq!(code, Some(2), "{wrong:?}: {said}");
    }
}
