//! Several workloads in one study.

use crate::services::metric_value;
use crate::{MetricMap, run_study};
use usher_scenario::{ClosedFormName, PlanOverrides, Study, StudyMode};

/// Stations of switches by RADIUS and of base stations by Diameter at one AAA server, and a dialogue over the same
/// link.
const SEVERAL: &str = r#"
title = "Several"
question = "Do they get on with each other?"
[run]
duration = "20 s"
replications = { metric = "delay.mean.wired" }
[hosts.office]
count = 4
[hosts.switch]
count = 2
address = "192.0.2.10"
[hosts.mobile]
count = 6
[hosts.base]
count = 2
address = "192.0.2.20"
[hosts.edge]
[hosts.server]
address = "192.0.2.1"
runs = "aaa"
[hosts.server.config]
reject_delay = "0 s"
listen = { auth = ["0.0.0.0:1812"], acct = [], diameter = ["0.0.0.0:3868"] }
methods = { order = ["eap-md5"] }
[[hosts.server.config.client]]
name = "switches"
prefix = "192.0.2.0/24"
secret = "a secret of 23 octets.."
[hosts.server.config.diameter]
identity = "aaa.example.org"
realm = "example.org"
[[hosts.server.config.diameter.peer]]
identity = "wireless-nas-0.example.org"
prefix = ["192.0.2.20"]
[[hosts.server.config.diameter.peer]]
identity = "wireless-nas-1.example.org"
prefix = ["192.0.2.21"]
[links.office]
between = ["office", "switch"]
[links.mobile]
between = ["mobile", "base"]
[links.uplink]
between = ["switch", "edge"]
delay = "1 ms"
[links.backhaul]
between = ["base", "edge"]
delay = "1 ms"
[links.core]
between = ["edge", "server"]
rate = "10 Mb/s"
delay = "10 ms"
[hosts.web]
[links.web]
between = ["web", "edge"]
delay = "5 ms"

[workloads.wired]
kind = "eap"
stations = "office"
nas = "switch"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = { kind = "constant", interval = "500 ms", stagger = "20 ms", count = 10 }

[workloads.wireless]
kind = "eap"
stations = "mobile"
nas = "base"
server = "server"
method = "eap-md5"
aaa = "diameter"
arrivals = { kind = "poisson", rate = "10 /s" }

[workloads.talk]
kind = "dialogue"
clients = "switch"
server = "web"
transport = "udp"
rounds = [{ request = "100 B", answer = "100 B" }]
arrivals = { kind = "poisson", rate = "10 /s" }
"#;

/// Returns one workload's metrics under the names that it would have alone.
fn workload_metrics(metrics: &MetricMap, workload: &str) -> MetricMap {
    let end = format!(".{workload}");
    let own = metrics.iter().filter_map(|(name, value)| Some((name.strip_suffix(&end)?.to_owned(), *value)));
    own.collect()
}

#[test]
fn each_workload_has_its_own_metrics() {
    let metrics = run_study(SEVERAL);
    assert!(!metrics.contains_key("delay.mean") && !metrics.contains_key("started"), "{metrics:?}");
    let [wired, wireless, talk] =
        ["wired", "wireless", "talk"].map(|workload| workload_metrics(&metrics, workload));
    assert_eq!(
        ["started", "completed", "rejected"].map(|name| metric_value(&wired, name)),
        [40.0, 40.0, 0.0]
    );
    let begun = metric_value(&wireless, "started");
    assert!((150.0..250.0).contains(&begun) && metric_value(&wireless, "completed") == begun, "{metrics:?}");
    assert_eq!((metric_value(&talk, "failures"), metric_value(&wireless, "failures")), (0.0, 0.0));
    // A round trip to the AAA server takes 22 ms, twice by EAP-MD5; to the other server 12 ms.
    for eap in [&wired, &wireless] {
        assert!((0.044..0.050).contains(&metric_value(eap, "delay.p50")), "{metrics:?}");
    }
    assert!((metric_value(&talk, "delay.p50") - 0.012).abs() < 0.000_1, "{metrics:?}");
    // Shared metrics belong to the run: rates divide by all completed dialogues.
    let completed: f64 =
        [&wired, &wireless, &talk].map(|workload| metric_value(workload, "completed")).iter().sum();
    assert!(metric_value(&metrics, "packets.core") * completed > 4.0 * (40.0 + begun), "{metrics:?}");
    assert_eq!(metrics, run_study(SEVERAL), "the same seed gives the same rows");
}

#[test]
fn a_workload_has_its_chance_whatever_stands_beside_it() {
    let all = run_study(SEVERAL);
    // Without the dialogue, which shares no link with them that has a queue.
    let (two, _) = SEVERAL.split_once("[workloads.talk]").unwrap();
    let fewer = run_study(two);
    for workload in ["wired", "wireless"] {
        assert_eq!(workload_metrics(&fewer, workload), workload_metrics(&all, workload));
    }
    // Another name gives other random streams: only its own arrivals differ if no link has a queue.
    let free = two.replace("rate = \"10 Mb/s\"\n", "");
    let (named, renamed) = (run_study(&free), run_study(&free.replace("wireless", "air")));
    assert_eq!(workload_metrics(&renamed, "wired"), workload_metrics(&named, "wired"));
    assert_ne!(metric_value(&renamed, "started.air"), metric_value(&named, "started.wireless"));
}

#[test]
fn one_workload_with_a_name_is_a_study_of_one() {
    let study = |workload: &str| {
        format!(
            "title = \"T\"\nquestion = \"Q?\"\n[run]\nduration = \"10 s\"\nreplications = {{ metric = \"tcp.segments\" }}\n\
             [hosts.node]\n[hosts.point]\n[links.a]\nbetween = [\"node\", \"point\"]\ndelay = \"3 ms\"\n[{workload}]\n\
             kind = \"mih\"\nmn = \"node\"\npos = \"point\"\ntransport = \"tcp\"\nmessage = \"indication\"\nsize = \"200 B\"\n\
             arrivals = {{ kind = \"poisson\", rate = \"3 /s\" }}\n"
        )
    };
    let closed = |text: &str| {
        let study = Study::parse("t", "t.toml", text).unwrap();
        let plan = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
        usher_theory::closed_form_value(ClosedFormName::RadiusDelay, &plan.points[0].scenario).unwrap()
    };
    assert!(metric_value(&run_study(&study("workloads.m")), "tcp.per-mih-packet") > 1.0);
    let eap = |workload: &str| {
        let (head, _) = SEVERAL.split_once("[workloads.wireless]").unwrap();
        let (metric, name) = ("delay.mean.wired", "[workloads.wired]");
        head.replace(metric, "tcp.segments").replace(name, &format!("[{workload}]"))
    };
    assert_eq!(closed(&eap("workloads.m")), closed(&eap("workload")));
}

#[test]
fn workloads_with_servers_of_their_own_share_a_host() {
    // One host is a RADIUS server to one workload, a Diameter server to another, and queries by IDENT.
    let text = SEVERAL.replace("runs = \"aaa\"\n", "");
    let (head, rest) = text.split_once("[hosts.server.config]").unwrap();
    let (_, links) = rest.split_once("[links.office]").unwrap();
    let ident = "[workloads.chat]\nkind = \"ident\"\nclients = \"switch\"\nserver = \"server\"\n\
                 arrivals = { kind = \"poisson\", rate = \"5 /s\" }\n";
    let metrics = run_study(&format!("{head}[links.office]{links}{ident}"));
    for workload in ["wired", "wireless", "talk"] {
        assert_eq!(metric_value(&metrics, &format!("failures.{workload}")), 0.0, "{metrics:?}");
    }
    assert_eq!(metric_value(&metrics, "failures.chat"), 1.0, "switches do not answer");
}
