//! Workloads of IDENT, and several workloads together: their faults and places.

use crate::faults::RIGHT;
use usher_scenario::{PlanOverrides, Study, StudyMode};

#[test]
fn faults_of_a_workload_of_ident_name_their_place() {
    let (head, axes) = RIGHT.split_once("[[axes]]").unwrap();
    let (head, _) = head.split_once("[workload]").unwrap();
    let workload = "[workload]\nkind = \"ident\"\nclients = \"client\"\nserver = \"server\"\nusers = [\"ann\", \"bob\"]\n\
                    patience = \"30 s\"\narrivals = { kind = \"poisson\", rate = \"5 /s\" }\n";
    let right = format!("{head}{workload}[[axes]]{axes}");
    let found = |line: &str, other: &str| {
        assert!(right.contains(line), "{line}");
        let study = Study::parse("t", "t.toml", &right.replacen(line, other, 1));
        study.and_then(|study| study.check_plans()).map_err(|faults| faults.to_string().trim_end().to_owned())
    };
    assert_eq!(found("title", "title"), Ok(()));
    let table = [
        (
            "server = \"server\"",
            "server = \"client\"",
            "t.toml:16:10: workload.server: \"client\" has another role in this workload already",
        ),
        (
            "clients = \"client\"",
            "clients = \"cleint\"",
            "t.toml:15:11: workload.clients: there is no host \"cleint\"; did you mean \"client\"?",
        ),
        ("[\"ann\", \"bob\"]", "[]", "t.toml:17:9: workload.users: the workload needs at least one user"),
        ("\"bob\"", "\"ann\"", "t.toml:17:17: workload.users[1]: \"ann\" is listed twice"),
        (
            "\"bob\"",
            "\"b\\nb\"",
            "t.toml:17:17: workload.users[1]: \"b\\nb\" is not a user name that an IDENT response can hold",
        ),
        ("\"30 s\"", "\"0 s\"", "t.toml:18:12: workload.patience: must be above zero"),
        (
            "[hosts.server]",
            "runs = \"ident\"\n[hosts.server]",
            "t.toml:7:8: \"ident\" has no configuration: name its file, as config = \"ident.toml\", or write its keys \
             below [hosts.client.config]",
        ),
    ];
    for (line, other, expected) in table {
        assert_eq!(found(line, other).unwrap_err(), expected, "{other}");
    }
}

/// Two workloads side by side.
const SEVERAL: &str = r#"title = "T"
question = "Q?"
[run]
duration = "10 s"
replications = { metric = "delay.mean.b" }
[hosts.station]
[hosts.nas]
[hosts.client]
[hosts.server]
[hosts.other]
[links.a]
between = ["station", "nas"]
[links.b]
between = ["nas", "server"]
[links.c]
between = ["client", "server"]
[links.d]
between = ["client", "other"]
[workloads.a]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = { kind = "poisson", rate = "1 /s" }
[workloads.b]
kind = "dialogue"
clients = "client"
server = "other"
transport = "tcp"
rounds = [{ request = "200 B", answer = "200 B" }]
arrivals = { kind = "poisson", rate = "5 /s" }
"#;

/// The result for the two workloads with one text replaced.
fn check_with(text: &str, other: &str) -> Result<(), String> {
    assert!(SEVERAL.contains(text), "{text}");
    let study = Study::parse("t", "t.toml", &SEVERAL.replacen(text, other, 1));
    study.and_then(|study| study.check_plans()).map_err(|faults| faults.to_string().trim_end().to_owned())
}

#[test]
fn faults_of_several_workloads_name_the_workload() {
    assert_eq!(check_with("title", "title"), Ok(()));
    let eap = "[workloads.c]\nkind = \"eap\"\nstations = \"client\"\nnas = \"other\"\nserver = \"server\"\nmethod = \"eap-md5\"\n\
               aaa = \"radius\"\narrivals = { kind = \"poisson\", rate = \"1 /s\" }\n[workloads.b]";
    let talk = "[workloads.c]\nkind = \"dialogue\"\nclients = \"client\"\nserver = \"other\"\ntransport = \"tcp\"\n\
                rounds = [{ request = \"1 B\", answer = \"1 B\" }]\narrivals = { kind = \"poisson\", rate = \"1 /s\" }\n[workloads.b]";
    let table = [
        (
            "metric = \"delay.mean.b\"",
            "metric = \"delay.mean\"".to_owned(),
            "t.toml:5:27: run.replications.metric: each workload has its own \"delay.mean\": write \"delay.mean.a\"",
        ),
        (
            "rate = \"5 /s\"",
            "rate = \"5 /s\", limit = 0".to_owned(),
            "t.toml:33:55: workloads.b.arrivals.limit: 0 is impossible here: one or more",
        ),
        (
            "method = \"eap-md5\"",
            "method = \"eap-md5\"\ntls = { version = \"1.2\" }".to_owned(),
            "t.toml:25:1: workloads.a.tls: NAS and server do not use TLS: set workloads.a.aaa = \"radsec\", or \
             \"diameter\" with workloads.a.diameter.transport = \"tls\", or leave this out",
        ),
        (
            "[workloads.b]",
            talk.to_owned(),
            "t.toml:37:10: workloads.b.server: \"other\" already has a server of workload \"c\" at TCP port 7, which \
             this workload's server needs: name another host",
        ),
        (
            "[workloads.b]",
            eap.to_owned(),
            "t.toml:31:10: workloads.c.server: \"server\" already has a server of workload \"a\" at UDP port 1812, \
             which this workload's server needs: name another host",
        ),
        (
            "[workloads.b]",
            eap.replace("nas = \"other\"", "nas = \"nas\"")
                .replace("aaa = \"radius\"", "aaa = \"diameter\"")
                .replace("stations = \"client\"", "stations = \"station\""),
            "t.toml:29:12: workloads.c.stations: \"station\" already receives the frames of workload \"a\", and a \
             host's frames belong to one workload: name another host\nt.toml:30:7: workloads.c.nas: \"nas\" already \
             receives the frames of workload \"a\", and a host's frames belong to one workload: name another host",
        ),
        (
            "[workloads.b]",
            "[workloads.b_1]".to_owned(),
            "t.toml:5:27: run.replications.metric: there is no metric \"delay.mean.b\"; did you mean \
             \"delay.mean.a\"?\nt.toml:27:12: workloads.b_1: \"b_1\" must be 1 to 32 letters, digits and \"-\"",
        ),
        (
            "[workloads.b]",
            "[workload]".to_owned(),
            "t.toml:5:27: run.replications.metric: there is no metric \"delay.mean.b\"; did you mean \
             \"delay.mean.a\"?\nt.toml:27:2: workload: there is also [workloads.a]: give this workload a name too, as \
             [workloads.NAME]",
        ),
    ];
    for (text, other, expected) in table {
        assert_eq!(check_with(text, &other).unwrap_err(), expected, "{other}");
    }
    let carried = check_with("\"delay.mean.b\"", "\"tcp.per-mih-packet\"").unwrap_err();
    let expected =
        "metric: \"tcp.per-mih-packet\" needs a study with one workload, and this study has several";
    assert!(carried.ends_with(expected), "{carried}");
    let figure = "[[axes]]\nname = \"rate\"\nset = \"workloads.a.arrivals.rate\"\nvalues = [\"5 /s\", \"6 /s\"]\n[[figures]]\n\
                  name = \"f\"\ntitle = \"F\"\nx = \"rate\"\ny = \"delay.mean.a\"\nanalytic = \"radius-delay\"\n[workloads.b]";
    let form = check_with("[workloads.b]", figure).unwrap_err();
    let expected =
        "analytic: closed forms need a study with one workload, and this study has several: leave this out";
    assert!(form.ends_with(expected), "{form}");
    // Text of the user appears unchanged.
    let realm = check_with("aaa = \"radius\"", "aaa = \"radius\"\nrealm = \"my workload.org\"").unwrap_err();
    assert_eq!(realm, "t.toml:26:9: workloads.a.realm: \"my workload.org\" is not a domain name");
    let keys =
        "[cells.w]\nbase_station = \"nas\"\nstations = \"station\"\nkeys = { used = true }\n[workloads.a]";
    let keys = check_with("[workloads.a]", keys).unwrap_err();
    assert!(keys.contains(": set workloads.a.method = \"eap-tls\""), "{keys}");
    let (alone, _) = RIGHT.split_once("[workload]").unwrap();
    let faults = Study::parse("t", "t.toml", alone).unwrap_err().to_string();
    assert!(faults.contains("the study has no workload: write [workload] or [workloads.NAME]"), "{faults}");
}

#[test]
fn axes_and_overrides_reach_named_workloads() {
    let axis =
        "[[axes]]\nname = \"rate\"\nset = \"workloads.b.arrivals.rate\"\nvalues = [\"5 /s\", \"6 /s\"]\n";
    let study = Study::parse("t", "t.toml", &format!("{SEVERAL}{axis}")).unwrap();
    study.check_plans().unwrap();
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("workloads.a.method=eap-tls").unwrap();
    let plan = study.build_plan(StudyMode::Default, &overrides).unwrap();
    let rates =
        plan.points.iter().map(|p| format!("{:?}", p.scenario.workloads.get("b").unwrap().arrivals()));
    let rates: std::collections::BTreeSet<String> = rates.collect();
    assert_eq!(rates.len(), 2);
    overrides.add_setting("workloads.c.method=eap-tls").unwrap();
    let wrong = study.build_plan(StudyMode::Default, &overrides).unwrap_err().to_string();
    assert!(wrong.contains("there is no \"c\" in workloads"), "{wrong}");
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("workload.method=eap-tls").unwrap();
    let wrong = study.build_plan(StudyMode::Default, &overrides).unwrap_err().to_string();
    assert!(wrong.contains("the workloads of this study have names: workloads.a, workloads.b"), "{wrong}");
}

#[test]
fn ports_of_services_and_of_workloads_are_each_ones_own() {
    let aaa = "runs = \"aaa\"\n[hosts.other.config]\nlisten = { auth = [\"0.0.0.0:7\"], acct = [], diameter = [\"0.0.0.0:7\"] }\n\
               methods = { order = [\"eap-md5\"] }\n[hosts.other.config.diameter]\nidentity = \"a.example.org\"\nrealm = \"example.org\"\n\
               [[hosts.other.config.diameter.peer]]\nidentity = \"p.example.org\"\nprefix = [\"0.0.0.0/0\"]\n\
               [[hosts.other.config.client]]\nname = \"x\"\nprefix = \"0.0.0.0/0\"\nsecret = \"a secret of 23 octets..\"\n[links.a]";
    let ident = "runs = \"ident\"\n[hosts.other.config]\nlisten = [\"0.0.0.0:7\"]\n[links.a]";
    let both = "runs = [\"aaa\", \"ident\"]\n[hosts.other.config.ident]\nlisten = [\"0.0.0.0:1812\", \"10.0.0.5:3868\"]\n\
                [hosts.other.config.aaa]\nlisten = { auth = [\"0.0.0.0:1812\"], acct = [], diameter = [\"0.0.0.0:3868\"] }\n\
                methods = { order = [\"eap-md5\"] }\n[hosts.other.config.aaa.diameter]\nidentity = \"a.example.org\"\nrealm = \"example.org\"\n\
                [[hosts.other.config.aaa.diameter.peer]]\nidentity = \"p.example.org\"\nprefix = [\"0.0.0.0/0\"]\n\
                [links.a]";
    let named = "which this workload's server needs: name another host";
    let table = [
        (aaa.to_owned(), format!("\"other\" already runs \"aaa\" at TCP port 7, {named}")),
        (ident.to_owned(), format!("\"other\" already runs \"ident\" at TCP port 7, {named}")),
        (
            both.to_owned(),
            "hosts.other.runs: \"aaa\" already uses TCP port 3868, which \"ident\" needs too: give one of them another \
             port"
                .to_owned(),
        ),
        (ident.replace("\"ident\"", "[\"ident\", \"ident\"]"), "t.toml:11:18: \"ident\" is listed twice".to_owned()),
    ];
    for (other, expected) in table {
        let found = check_with("[links.a]", &other).unwrap_err();
        assert!(found.contains(&expected), "{other}: {found}");
    }
    let loopback = aaa.replace("0.0.0.0:7", "127.0.0.1:7");
    assert_eq!(check_with("[links.a]", &loopback), Ok(()), "which nobody else reaches");
    // A sole workload is checked as well.
    let server = "[hosts.server]\nruns = \"ident\"\n[hosts.server.config]\nlisten = [\"0.0.0.0:7\"]";
    let study = Study::parse("t", "t.toml", &RIGHT.replacen("[hosts.server]", server, 1));
    let found = study.and_then(|study| study.check_plans()).unwrap_err().to_string();
    assert!(found.contains(" workload.server: \"server\" already runs \"ident\" at TCP port 7"), "{found}");
}

#[test]
fn address_hints_have_the_required_version_and_port() {
    let server = |listen: &str| {
        format!(
            "[hosts.server]\nruns = \"aaa\"\n[hosts.server.config]\nlisten = {{ acct = [], {listen} }}\n\
             methods = {{ order = [\"eap-md5\"] }}\n[hosts.server.config.diameter]\nidentity = \"a.example.org\"\n\
             realm = \"example.org\"\n[[hosts.server.config.diameter.peer]]\nidentity = \"a-nas-0.example.org\"\n\
             prefix = [\"0.0.0.0/0\"]\n[[hosts.server.config.client]]\nname = \"x\"\nprefix = \"0.0.0.0/0\"\n\
             secret = \"a secret of 23 octets..\""
        )
    };
    for (ip, aaa, carrier, hint) in [
        ("v4", "radius", "auth", "0.0.0.0:1812"),
        ("v4", "diameter", "diameter", "0.0.0.0:3868"),
        ("v6", "diameter", "diameter", "[::]:3868"),
    ] {
        let others = if carrier == "auth" { "" } else { "auth = [], " };
        let listen = format!("{others}{carrier} = [\"127.0.0.1:9\"]");
        let text = SEVERAL
            .replacen("[hosts.server]", &server(&listen), 1)
            .replacen("aaa = \"radius\"", &format!("aaa = \"{aaa}\""), 1)
            .replacen("[run]", &format!("[run]\nip = \"{ip}\""), 1);
        let found =
            Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans()).unwrap_err().to_string();
        assert!(found.contains(&format!("such as {carrier} = [\"{hint}\"]")), "{found}");
    }
}

#[test]
fn two_handovers_have_correspondents_of_their_own() {
    let (_, handover) = usher_scenario::founding::founding_studies()
        .iter()
        .find(|study| study.name == "handover-mn")
        .and_then(|study| study.text.split_once("[workload]"))
        .unwrap();
    let (workload, _) = handover.split_once("\n[").unwrap();
    let both = format!("[workloads.x]{workload}\n[workloads.y]{workload}\n[workloads.a]");
    let found = check_with("[workloads.a]", &both).unwrap_err();
    let of_y = "workloads.y.correspondent: \"correspondent\" already has a server of workload \"x\" at UDP port 4191";
    assert!(found.contains(of_y), "{found}");
}
