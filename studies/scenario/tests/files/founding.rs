//! The founding studies, the templates and the published schema.

use usher_scenario::metrics::METRICS;
use usher_scenario::model::{
    ArrivalSettings, NasAaaProtocol, RadiusRetransmission, StreamPolicy, TransportProtocol, Workload,
};
use usher_scenario::{PlanOverrides, Study, StudyMode, TEMPLATES, founding, json_schema, work};

fn open_plan(name: &str, mode: StudyMode) -> usher_scenario::StudyPlan {
    Study::open(name)
        .unwrap_or_else(|e| panic!("{e}"))
        .build_plan(mode, &PlanOverrides::default())
        .unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn founding_studies_and_templates_are_valid_in_every_mode() {
    for study in founding::founding_studies() {
        let loaded = Study::parse(study.name, study.name, study.text).unwrap_or_else(|e| panic!("{e}"));
        loaded.check_plans().unwrap_or_else(|e| panic!("{e}"));
        assert!(!loaded.file().groups.is_empty(), "{} belongs to a group", study.name);
    }
    for template in TEMPLATES {
        let study =
            Study::parse(template.kind, template.kind, template.text).unwrap_or_else(|e| panic!("{e}"));
        study.check_plans().unwrap_or_else(|e| panic!("{e}"));
        let kind = format!("\nkind = \"{}\"\n", template.kind);
        assert!(template.text.contains(&kind), "{}", template.kind);
    }
}

/// Claims use the digest to recognize runs of a founding study.
#[test]
fn a_founding_studys_digest_is_that_of_its_runs() {
    for study in founding::founding_studies() {
        assert_eq!(study.digest(), Study::open(study.name).unwrap().digest(), "{}", study.name);
    }
    let named = |name: &str| founding::find_founding_study(name).unwrap();
    let [parallel, remote] = ["ike-parallel", "ike-remote"].map(named);
    let of_text = |text: &str| Study::parse("x", "x.toml", text).unwrap().digest();
    assert_eq!(remote.digest(), of_text(remote.text));
    // Its processors come from profiles, which the digest covers.
    assert_eq!(parallel.digest(), of_text(parallel.text));
}

#[test]
fn an_axis_of_one_hosts_metric_names_the_host() {
    let study = Study::open("ike-parallel").unwrap();
    let title =
        |name: &str| usher_scenario::metrics::find_metric(name, study.file()).unwrap().axis_title(name);
    assert_eq!(title("cpu.server"), "processor time of server, per completed dialogue");
    assert_eq!(title("busy.gateway"), "share of gateway's cores at work");
    assert_eq!(title("delay.mean"), "mean delay of the completed dialogues");
}

#[test]
fn every_file_of_the_founding_room_is_embedded() {
    let room = concat!(env!("CARGO_MANIFEST_DIR"), "/../founding");
    let mut files: Vec<String> = std::fs::read_dir(room)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
        .collect();
    files.sort();
    let mut embedded: Vec<&str> = founding::founding_studies().iter().map(|s| s.name).collect();
    embedded.sort_unstable();
    assert_eq!(files, embedded);
}

#[test]
fn groups_name_their_studies() {
    assert_eq!(
        founding::group_members("aaa"),
        [
            "aaa-hol",
            "aaa-nagle",
            "aaa-delack",
            "aaa-packets",
            "aaa-congestion",
            "aaa-many-nas",
            "aaa-recovery",
            "aaa-connections",
            "aaa-sws",
            "aaa-accounting",
            "aaa-keys"
        ]
    );
    let open = ["mih-timers", "mih-response", "mih-lifetime", "mih-services"];
    let closed = ["mih-udp", "mih-tcp", "mih-sctp", "mih-shared-segment"];
    let mih = founding::group_members("mih");
    assert_eq!(founding::group_members("plan"), ["eduroam-day", "ike-scale"]);
    assert_eq!(
        founding::group_members("ike"),
        ["ike-auth", "ike-ping", "ike-applications", "ike-remote", "ike-parallel", "ike-scale"]
    );
    assert_eq!(founding::group_members("pppoe"), ["pppoe-servers", "pppoe-wlan", "pppoe-many", "pppoe-aaa"]);
    assert!(mih.len() == 8 && closed.iter().chain(&open).all(|study| mih.contains(study)), "{mih:?}");
    assert_eq!(founding::group_members("beyond"), ["aaa-beyond", "aaa-advice", "aaa-sctp-delay"]);
    // A name is a study or a group, not both.
    assert!(founding::founding_studies().iter().all(|s| founding::group_members(s.name).is_empty()));
    assert_eq!(founding::group_members("bench"), ["bench-radius-100", "bench-tcp-100"]);
    assert!(founding::group_members("none").is_empty());
}

#[test]
fn head_of_line_crosses_loss_protocol_and_method() {
    let full = open_plan("aaa-hol", StudyMode::Default);
    assert_eq!(full.points.len(), 12 * 6 * 2);
    assert_eq!(open_plan("aaa-hol", StudyMode::Quick).points.len(), 6 * 6);
    let keys: std::collections::BTreeSet<&str> = full.points.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(keys.len(), full.points.len());
    let point = full
        .points
        .iter()
        .find(|p| p.key == "loss=5 %; protocol=RADIUS/UDP, every 3 s; method=eap-tls")
        .unwrap_or_else(|| panic!("{:?}", full.points.iter().map(|p| &p.key).collect::<Vec<_>>()));
    let Some(Workload::Eap(eap)) = &point.scenario.workload else { panic!("not EAP") };
    assert_eq!((eap.aaa, eap.method), (NasAaaProtocol::Radius, usher_aaa::AuthMethod::EapTls));
    let streams = full.points.iter().filter(|p| p.key.contains("SCTP, many streams")).map(|p| {
        let Some(Workload::Eap(eap)) = &p.scenario.workload else { panic!("not EAP") };
        (eap.diameter.transport, eap.diameter.streams.get(), eap.diameter.stream_policy)
    });
    let expected = (TransportProtocol::Sctp, 100, StreamPolicy::Session);
    assert_eq!(streams.collect::<Vec<_>>(), vec![expected; 24]);
    assert!(
        matches!(eap.radius.retransmission, RadiusRetransmission::Fixed { count, .. } if count.get() == 10)
    );
    assert_eq!(
        point
            .scenario
            .links
            .get("core")
            .unwrap()
            .channel_config(usher_scenario::model::ChannelDirection::Up)
            .loss
            .mean_loss_ratio(),
        0.05
    );
    assert_eq!(point.axis_setting("loss").and_then(|s| s.number), Some(5.0));
}

#[test]
fn both_congestion_causes_have_every_avoidance_in_both_networks() {
    let studies = [
        ("aaa-many-nas", "protocol", "Diameter/TCP"),
        ("aaa-recovery", "policy", "Diameter/TCP, reconnect after 1 s"),
    ];
    let networks = [("wired, today's stacks", 200, 0), ("802.16, ns-2's stacks", 100, 1)];
    let avoidances =
        [("none", false, false), ("Nagle", true, false), ("delayed ACK", false, true), ("both", true, true)];
    for (study, axis, protocol) in studies {
        for mode in [StudyMode::Quick, StudyMode::Default, StudyMode::Full] {
            let plan = open_plan(study, mode);
            for (network, delay, cells) in networks {
                for (avoidance, nagle, delayed) in avoidances {
                    let value = format!("{protocol}, {avoidance}");
                    let is = |p: &usher_scenario::PlanPoint, axis: &str, text: &str| {
                        p.axis_setting(axis).is_some_and(|s| s.text == text)
                    };
                    let here =
                        |p: &&usher_scenario::PlanPoint| is(p, axis, &value) && is(p, "network", network);
                    let all: Vec<_> = plan.points.iter().filter(here).collect();
                    assert!(all.len() >= 3, "{study} {network} {value}");
                    for point in all {
                        let tcp = &point.scenario.transport.tcp;
                        let waits = tcp.delayed_ack.get().map(|time| time.get().as_millis());
                        assert_eq!((tcp.nagle, waits), (nagle, delayed.then_some(delay)), "{}", point.key);
                        assert_eq!(point.scenario.cells_in_use().count(), cells, "{}", point.key);
                    }
                }
            }
        }
    }
}

#[test]
fn with_and_without_congestion_the_same_avoidances_are_compared() {
    let of = |study| {
        let axis = open_plan(study, StudyMode::Quick).axes.into_iter().find(|a| a.name == "avoidance");
        axis.map(|a| a.values.into_iter().map(|v| v.text).collect::<Vec<_>>())
    };
    assert_eq!(of("aaa-congestion"), of("aaa-packets"));
    assert_eq!(of("aaa-congestion").unwrap(), ["none", "Nagle", "delayed ACK", "both"]);
}

#[test]
fn as_in_the_document_no_mih_transaction_is_given_up() {
    for name in ["mih-udp", "mih-tcp", "mih-shared-segment", "mih-services", "handover-mn", "handover-net"] {
        for mode in [StudyMode::Quick, StudyMode::Default, StudyMode::Full] {
            for point in open_plan(name, mode).points {
                let limit = match &point.scenario.workload {
                    Some(Workload::Mih(mih)) => mih.transaction.get(),
                    Some(Workload::Handover(handover)) => handover.transaction.get(),
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(limit, None, "{name}: {}", point.key);
            }
        }
    }
    // Without acknowledgement there is no retransmission. Remembering a transaction would hide a later request with the
    // same number.
    for point in open_plan("mih-udp", StudyMode::Default).points {
        let Some(Workload::Mih(mih)) = &point.scenario.workload else { panic!("not MIH") };
        assert_eq!(mih.lifetime.get().is_some(), mih.ack, "{}", point.key);
    }
}

#[test]
fn the_yardsticks_make_as_many_transactions_as_they_say() {
    for (name, each) in [("bench-tcp-100", 10_000), ("bench-radius-100", 5_000)] {
        let plan = open_plan(name, StudyMode::Default);
        let [point] = plan.points.as_slice() else { panic!("{name} has one point") };
        assert_eq!((point.key.as_str(), plan.run_count_range()), ("-", (1, 1)));
        let Some(ArrivalSettings::Constant { interval, start, stagger, count, .. }) =
            point.scenario.workload.as_ref().and_then(Workload::arrivals)
        else {
            panic!("constant arrivals")
        };
        assert_eq!(*count, Some(each));
        assert_eq!(point.scenario.hosts.get("client").unwrap().count.get(), 100);
        let last = start.get() + stagger.get() * 99 + interval.get() * (each - 1);
        assert!(last < point.scenario.run.duration.get(), "{name}: {last}");
    }
}

/// Returns the rows of a page's table whose first column has this title.
fn page_table(page: &str, title: &str) -> Vec<String> {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once(&format!("| {title} |")).unwrap();
    table.lines().skip(2).take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
}

#[test]
fn what_is_called_a_share_is_one() {
    for metric in METRICS {
        // The load offered to a link may exceed its rate.
        let called = metric.about.starts_with("share of") && metric.name != "load";
        assert_eq!(metric.share, called, "{}", metric.name);
        assert!(!metric.share || metric.unit.is_empty(), "{}", metric.name);
    }
}

#[test]
fn pages_list_metrics_and_kinds_of_work_as_they_are_declared() {
    let metrics: Vec<String> = METRICS.iter().map(|metric| metric.documentation_row()).collect();
    assert!(
        page_table("reference/metrics.md", "metric") == metrics,
        "docs/reference/metrics.md should have\n{}\n",
        metrics.join("\n")
    );
    let work: Vec<String> = work::all_work_labels()
        .map(|label| {
            format!("| `{label}` | {} | {} |", label.unit(), label.description().trim_end_matches('.'))
        })
        .collect();
    assert!(
        page_table("reference/study-files.md", "kind of work") == work,
        "docs/reference/study-files.md should have\n{}\n",
        work.join("\n")
    );
}

#[test]
fn the_published_schema_is_the_codes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/study.schema.json");
    let schema = json_schema();
    if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        published == schema,
        "docs/study.schema.json is out of date; run this test with USHER_WRITE_SCHEMA=1"
    );
}

#[test]
fn the_guides_example_is_right() {
    let guide = include_str!("../../../../docs/tutorials/first-study.md");
    let example =
        guide.split("```toml\n").find(|part| part.starts_with("title")).and_then(|p| p.split("```").next());
    let study = Study::parse("guide", "guide", example.unwrap()).unwrap_or_else(|e| panic!("{e}"));
    study.check_plans().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap().points.len(), 10);
}
