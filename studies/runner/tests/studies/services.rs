//! Services on the hosts of a study, each with its deployed configuration.

use crate::{MetricMap, run_study};
use std::path::PathBuf;
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, PlanPoint, Study, StudyMode};

/// Stations that log in at two NASes, which use the AAA service of "server".
pub(crate) fn service_study(server: &str, workload: &str) -> String {
    format!(
        r#"
title = "Services"
question = "Do they serve?"
[run]
duration = "20 s"
[hosts.station]
count = 4
[hosts.nas]
count = 2
address = "192.0.2.10"
[hosts.server]
address = "192.0.2.1"
runs = "aaa"
{server}
[links.access]
between = ["station", "nas"]
delay = "1 ms"
[links.core]
between = ["nas", "server"]
rate = "10 Mb/s"
delay = "10 ms"
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
{workload}
[workload.arrivals]
kind = "constant"
interval = "500 ms"
count = 30
"#
    )
}

const CONFIG: &str = r#"
[hosts.server.config]
reject_delay = "0 s"
listen = { auth = ["0.0.0.0:1645"], acct = ["192.0.2.1:1813"] }
methods = { order = ["eap-md5"] }
[[hosts.server.config.client]]
name = "switches"
prefix = "192.0.2.0/24"
secret = "a secret of 23 octets.."
"#;

pub(crate) fn metric_value(metrics: &MetricMap, name: &str) -> f64 {
    *metrics.get(name).unwrap_or_else(|| panic!("no {name} in {metrics:?}"))
}

/// Asserts that all 120 logins that began have completed.
pub(crate) fn all_in(metrics: &MetricMap) {
    let counts = ["started", "completed", "failures", "rejected"].map(|name| metric_value(metrics, name));
    assert_eq!(counts, [120.0, 120.0, 0.0, 0.0], "{metrics:?}");
}

#[test]
fn a_service_serves_by_its_own_configuration() {
    let radius = |config: &str| run_study(&service_study(config, "aaa = \"radius\""));
    let plain = radius(CONFIG);
    all_in(&plain);
    // Each of the four stations is looked up once; then its rows are cached.
    let slow = "[hosts.server.cpu.service]\n\"store.lookup\" = \"200 ms\"\n";
    let slowed = radius(&format!("{CONFIG}{slow}"));
    all_in(&slowed);
    assert!(metric_value(&slowed, "delay.max") > metric_value(&plain, "delay.max") + 0.19, "{slowed:?}");
    assert!(
        (metric_value(&slowed, "delay.p50") - metric_value(&plain, "delay.p50")).abs() < 0.001,
        "{slowed:?}"
    );
    // A server with its users in memory has no store lookups.
    let memory = radius(&format!("{CONFIG}[hosts.server.config.users]\nstore = \"memory\"\n{slow}"));
    all_in(&memory);
    assert_eq!(metric_value(&memory, "delay.max"), metric_value(&plain, "delay.max"));
}

#[test]
fn what_the_file_says_of_users_holds_for_stations() {
    let group = "[[hosts.server.config.group]]\nname = \"days\"\ncheck = [\"NAS-Port-Type == Virtual\"]\n";
    let config = format!("{CONFIG}{group}");
    let study = |user: &str| service_study(&config, &format!("aaa = \"radius\"\n[workload.user]\n{user}"));
    all_in(&run_study(&study("groups = [\"days\"]")));
    let rejected = run_study(&study("check = [\"NAS-Port-Type == Virtual\"]"));
    assert_eq!(metric_value(&rejected, "rejected"), 120.0, "{rejected:?}");
    // A pool of three addresses for four stations with lasting sessions.
    let pool = "[[hosts.server.config.pool]]\nname = \"guests\"\nranges = [\"198.51.100.1-198.51.100.3\"]\n";
    let accounting = "[workload.accounting]\nused = true\nsession = \"1000 s\"\n";
    let text = crate::services::service_study(
        &format!("{CONFIG}{pool}"),
        &format!("aaa = \"radius\"\n{accounting}[workload.user]\ncheck = [\"Pool-Name := guests\"]"),
    );
    let short = run_study(&text);
    assert!(metric_value(&short, "rejected") > 20.0 && metric_value(&short, "completed") >= 3.0, "{short:?}");
    assert_eq!(metric_value(&short, "accounting.lost"), 0.0);
}

#[test]
fn radsec_and_diameter_go_inside_tls() {
    let server = |workload: &str| {
        let text = service_study("", workload).replace("runs = \"aaa\"\n", "");
        run_study(&text)
    };
    let [udp, radsec, tcp, tls] = [
        "aaa = \"radius\"",
        "aaa = \"radsec\"",
        "aaa = \"diameter\"",
        "aaa = \"diameter\"\ndiameter = { transport = \"tls\" }",
    ]
    .map(server);
    for metrics in [&udp, &radsec, &tcp, &tls] {
        all_in(metrics);
    }
    // The handshake of each of the two NASs, and the overhead of TLS records.
    let octets = |metrics: &MetricMap| 120.0 * metric_value(metrics, "bytes.core");
    assert!(octets(&tls) - octets(&tcp) > 2.0 * 4000.0, "{tls:?}");
    assert!(octets(&radsec) - octets(&udp) > 2.0 * 4000.0, "{radsec:?}");
    assert_eq!(server("aaa = \"radsec\""), radsec, "TLS draws its keys anew, and nothing of it shows");
}

#[test]
fn a_service_passes_on_what_is_anothers() {
    let proxy = r#"
[[hosts.server.config.home_server]]
name = "home"
address = "198.51.100.7:1812"
secret = "a secret between the two"
[[hosts.server.config.realm]]
name = "example.org"
servers = ["home"]
[hosts.home]
address = "198.51.100.7"
runs = "aaa"
[hosts.home.config]
reject_delay = "0 s"
listen = { auth = ["0.0.0.0:1812"], acct = [] }
methods = { order = ["eap-md5"] }
[[hosts.home.config.client]]
name = "proxy"
prefix = "192.0.2.1"
nas = ["192.0.2.0/24"]
secret = "a secret between the two"
[links.away]
between = ["server", "home"]
delay = "30 ms"
"#;
    let near = run_study(&service_study(CONFIG, "aaa = \"radius\""));
    let far = run_study(&service_study(&format!("{CONFIG}{proxy}"), "aaa = \"radius\""));
    all_in(&far);
    // Two rounds of EAP-MD5, both ways.
    assert!(
        (metric_value(&far, "delay.p50") - metric_value(&near, "delay.p50") - 0.12).abs() < 0.002,
        "{far:?}"
    );
}

/// Files of a study in a folder of its own.
pub(crate) struct TempStudyDir(pub(crate) PathBuf);

impl TempStudyDir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("usher-services-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }
    pub(crate) fn open_study(&self) -> Result<Study, String> {
        Study::load(&self.0.join("study.toml")).map_err(|error| error.to_string())
    }
}

impl Drop for TempStudyDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_configuration_is_a_file_and_its_faults_have_its_lines() {
    let folder = TempStudyDir::new("file");
    let config = CONFIG.replace("hosts.server.config.", "").replace("[hosts.server.config]\n", "");
    folder.write_file("aaa.toml", &config);
    let text = service_study("config = \"aaa.toml\"", "aaa = \"radius\"");
    let axis =
        "[[axes]]\nname = \"limit\"\nset = \"hosts.server.config.limits.half_open\"\nvalues = [10, 20]\n";
    folder.write_file("study.toml", &format!("{text}{axis}"));
    let opened = folder.open_study().unwrap();
    let plan = opened.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    assert_eq!(plan.points.len(), 2);
    let inline = Study::parse("study", "study.toml", &service_study(CONFIG, "aaa = \"radius\"")).unwrap();
    let point = &inline.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap().points[0];
    let metrics = |point: &PlanPoint| {
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
        world.run_to_end().unwrap().metrics.into_iter().collect::<MetricMap>()
    };
    assert_eq!(metrics(&plan.points[0]), metrics(point), "a file says what the same keys say inline");
    let digest = opened.digest();
    folder.write_file("aaa.toml", &format!("{config}# more\n"));
    assert_ne!(folder.open_study().unwrap().digest(), digest, "it is part of the study");

    let said = |config: &str, text: &str| {
        folder.write_file("aaa.toml", config);
        folder.write_file("study.toml", text);
        folder.open_study().map(drop).unwrap_err()
    };
    let wrong = said(&config.replace("reject_delay", "reject_dealy"), &text);
    assert!(wrong.contains("aaa.toml:2:1: ") && wrong.contains("reject_delay"), "{wrong}");
    let missing = said(&config, &text.replace("aaa.toml", "other.toml"));
    assert!(missing.contains("study.toml:14:10: ") && missing.contains("other.toml"), "{missing}");
    let stranger = said(&config.replace("192.0.2.0/24", "198.51.100.0/24"), &text);
    assert!(stranger.contains("192.0.2.10") && stranger.contains("hosts.nas.address"), "{stranger}");
    let deaf = said(&config.replace("0.0.0.0:1645", "127.0.0.1:1645"), &text);
    assert!(deaf.contains("[listen]"), "{deaf}");
    let nothing = said(&config, &text.replace("config = \"aaa.toml\"", ""));
    assert!(nothing.contains("has no configuration"), "{nothing}");
    let unknown = said(&config, &text.replace("runs = \"aaa\"", "runs = \"aa\""));
    assert!(unknown.contains("did you mean \"aaa\""), "{unknown}");
    let taken = said(&config, &text.replace("address = \"192.0.2.1\"", "address = \"192.0.2.11\""));
    assert!(taken.contains("192.0.2.11 is also an address of"), "{taken}");
}
