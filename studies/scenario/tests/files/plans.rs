//! Plans: size, keys, seeds, hashes and overrides.

use usher_scenario::model::{ChannelDirection, TransportProtocol, Workload};
use usher_scenario::{PlanOverrides, Study, StudyMode, StudyPlan, default_template};

fn template_study() -> Study {
    Study::parse("t", "t.toml", default_template()).unwrap_or_else(|e| panic!("{e}"))
}

fn make_overrides(set: &[&str]) -> PlanOverrides {
    let mut overrides = PlanOverrides::default();
    for argument in set {
        overrides.add_setting(argument).unwrap();
    }
    overrides
}

fn template_plan(set: &[&str]) -> StudyPlan {
    template_study().build_plan(StudyMode::Default, &make_overrides(set)).unwrap_or_else(|e| panic!("{e}"))
}

fn point_keys(plan: &StudyPlan) -> Vec<&str> {
    plan.points.iter().map(|p| p.key.as_str()).collect()
}

#[test]
fn the_last_axis_varies_fastest_and_quick_takes_its_values() {
    let quick = template_study().build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
    assert_eq!(
        point_keys(&quick),
        [
            "loss=0 %; transport=TCP",
            "loss=0 %; transport=UDP, every second",
            "loss=5 %; transport=TCP",
            "loss=5 %; transport=UDP, every second"
        ]
    );
    assert_eq!(quick.run_count_range(), (8, 8));
    assert_eq!(quick.points[0].scenario.run.duration.get().as_secs(), 20);
    assert_eq!(template_plan(&[]).points.len(), 10);
    assert_eq!(template_plan(&[]).points[0].scenario.run.duration.get().as_secs(), 100);
    assert_eq!(quick.axes[0].values.iter().map(|v| v.number).collect::<Vec<_>>(), [Some(0.0), Some(5.0)]);
    assert_eq!(quick.axes[0].unit.as_deref(), Some("%"));
    assert_eq!(quick.axes[1].values[0].number, None);
}

#[test]
fn points_have_their_settings_in_place() {
    let plan = template_plan(&[]);
    for point in &plan.points {
        let loss = point.axis_setting("loss").unwrap().number.unwrap() / 100.0;
        let link = point.scenario.links.get("core").unwrap();
        assert_eq!(link.channel_config(ChannelDirection::Up).loss.mean_loss_ratio(), loss);
        assert_eq!(link.channel_config(ChannelDirection::Down).loss.mean_loss_ratio(), loss);
        let Some(Workload::Dialogue(dialogue)) = &point.scenario.workload else { panic!("a dialogue") };
        let udp = point.axis_setting("transport").unwrap().text.starts_with("UDP");
        assert_eq!(dialogue.transport == TransportProtocol::Udp, udp);
    }
}

#[test]
fn set_takes_new_values_names_with_commas_and_bare_numbers() {
    let set = template_plan(&["loss=1%, 3,7.5 %", "transport=UDP, every second"]);
    assert_eq!(
        point_keys(&set),
        [
            "loss=1 %; transport=UDP, every second",
            "loss=3 %; transport=UDP, every second",
            "loss=7.5 %; transport=UDP, every second"
        ]
    );
    let both = template_plan(&["loss=0 %", "transport=UDP, every second,TCP"]);
    assert_eq!(point_keys(&both), ["loss=0 %; transport=UDP, every second", "loss=0 %; transport=TCP"]);
    let path =
        template_plan(&["loss=0 %", "transport=TCP", "links.core.delay=30 ms", "hosts.client.count=3"]);
    assert_eq!(path.points[0].scenario.links.get("core").unwrap().delay.get().as_millis(), 30);
    assert_eq!(path.points[0].scenario.hosts.get("client").unwrap().count.get(), 3);
}

#[test]
fn wrong_overrides_are_told() {
    for (argument, message) in [
        ("los=1 %", "--set los: there is no axis \"los\"; did you mean \"loss\"?"),
        ("transport=TPC", "--set transport: there is no case \"TPC\"; did you mean \"TCP\"?"),
        ("loss=200 %", "links.core.loss: \"200 %\" is more than 100 %"),
        ("loss=1 %,1%", "--set loss: \"1 %\" is listed twice"),
        ("links.core.loss=1 %", "--set links.core.loss: the axis \"loss\" varies it: write --set loss=…"),
        ("links.core.dely=1 ms", "unknown key \"dely\" in links.core; did you mean \"delay\"?"),
        (
            "links.core.delay=30",
            "links.core.delay: found 30, expected a time with its unit, such as \"10 ms\"",
        ),
    ] {
        let faults =
            template_study().build_plan(StudyMode::Default, &make_overrides(&[argument])).unwrap_err();
        assert_eq!(faults.to_string(), message, "{argument}");
    }
    for argument in ["loss", "=1", "loss=", " = "] {
        assert!(PlanOverrides::default().add_setting(argument).is_err(), "{argument}");
    }
    let none = PlanOverrides { replications: Some(0), ..PlanOverrides::default() };
    assert!(template_study().build_plan(StudyMode::Default, &none).is_err());
}

#[test]
fn a_point_alone_is_the_point_of_the_sweep() {
    let sweep = template_plan(&[]);
    for point in &sweep.points {
        let arguments = point.set_arguments();
        let set: Vec<&str> = arguments.iter().filter(|a| *a != "--set").map(String::as_str).collect();
        let alone = template_plan(&set);
        let [one] = alone.points.as_slice() else { panic!("{}: {} points", point.key, alone.points.len()) };
        assert_eq!(
            (&one.key, &one.scenario, one.replication_seed(3)),
            (&point.key, &point.scenario, point.replication_seed(3))
        );
    }
}

#[test]
fn points_share_their_chance_unless_an_axis_says_otherwise() {
    let shared = template_plan(&[]);
    assert!(shared.points.iter().all(|p| p.replication_seed(0) == shared.points[0].replication_seed(0)));
    assert_ne!(shared.points[0].replication_seed(0), shared.points[0].replication_seed(1));

    let text =
        default_template().replace("name = \"loss\"\n", "name = \"loss\"\ncommon_random_numbers = false\n");
    let own = Study::parse("t", "t.toml", &text)
        .unwrap()
        .build_plan(StudyMode::Default, &PlanOverrides::default())
        .unwrap();
    for pair in own.points.windows(2) {
        let same = pair[0].axis_setting("loss") == pair[1].axis_setting("loss");
        assert_eq!(
            pair[0].replication_seed(0) == pair[1].replication_seed(0),
            same,
            "{} and {}",
            pair[0].key,
            pair[1].key
        );
    }
}

#[test]
fn seed_and_replications_can_be_given() {
    let given = PlanOverrides { seed: Some(u64::MAX), replications: Some(4), ..PlanOverrides::default() };
    let given = template_study().build_plan(StudyMode::Default, &given).unwrap();
    assert_eq!(given.points[0].scenario.run.seed, u64::MAX);
    assert_ne!(given.points[0].replication_seed(0), template_plan(&[]).points[0].replication_seed(0));
    assert_eq!(given.run_count_range(), (40, 40));
}

#[test]
fn what_only_shows_the_rows_leaves_the_hash_as_it_is() {
    let hash = |text: &str| {
        let study = Study::parse("t", "t.toml", text).unwrap_or_else(|e| panic!("{e}"));
        study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap().hash
    };
    let (before, text) = (hash(default_template()), default_template());
    assert_eq!(hash(&format!("# Mine.\n{text}\n# The end.\n")), before);
    assert_eq!(hash(&text.replace("My study", "Another")), before);
    let axis = "name = \"loss\"\n";
    assert_eq!(hash(&text.replace("Loss on the core link", "Lost packets")), before);
    assert_eq!(hash(&text.replace(axis, &format!("{axis}full = [\"1 %\", \"2 %\"]\n"))), before);
    assert_eq!(hash(&text.replace("[capture]\nlinks = [\"core\"]\n", "")), before);
    assert_eq!(hash(&text.replace("[capture]", "[full]\nduration = \"999 s\"\n[capture]")), before);
    // The same values, given in another way.
    let given = |sets: &[&str]| template_plan(sets).hash;
    assert_eq!(given(&["loss=0 %,5 %,10 %"]), given(&["loss=0 %, 5 %, 10 %"]));
    for said in ["common_random_numbers = false\n", "relax = { from = \"5 %\", precision = \"50 %\" }\n"] {
        assert_ne!(hash(&text.replace(axis, &format!("{axis}{said}"))), before, "{said}");
    }
    assert_ne!(
        hash(&text.replace("\"workload.transport\" = \"tcp\"", "\"workload.transport\" = \"sctp\"")),
        before
    );
    assert_ne!(given(&["workload.give_up=9 s"]), template_plan(&[]).hash);
    let figure = |y: &str| {
        format!(
            "{text}\n[[figures]]\nname = \"f\"\ntitle = \"F\"\nx = \"loss\"\ny = \"{y}\"\nseries = [\"transport\"]\n"
        )
    };
    assert_eq!(hash(&figure("delay.p95")), before);
    assert_ne!(hash(&figure("within(1 s)")), before, "a metric that only now is measured");
    assert_ne!(hash(&text.replace("\"10 ms\"", "\"11 ms\"")), before);
    assert_ne!(hash(&text.replace("\"5 %\", \"10 %\"", "\"5 %\", \"11 %\"")), before);
}

#[test]
fn a_setting_that_an_axis_decides_is_not_set_beside_it() {
    let study = Study::parse("t", "t.toml", default_template()).unwrap();
    let plan = |sets: &[&str]| {
        let mut overrides = PlanOverrides::default();
        sets.iter().for_each(|set| overrides.add_setting(set).unwrap());
        study.build_plan(StudyMode::Default, &overrides)
    };
    let said = plan(&["workload.transport=sctp"]).unwrap_err().to_string();
    assert!(
        said.starts_with(
            "--set workload.transport: the axis \"transport\" overrides it at \"TCP\": leave that value out"
        ),
        "{said}"
    );
    let repeats = "workload.retransmission.interval=2 s";
    assert!(plan(&[repeats]).unwrap_err().to_string().contains("at \"UDP, every second\""));
    // If the axis does not change this setting, it does not override it.
    assert!(plan(&["workload.give_up=9 s"]).is_ok());
    let own = Study::parse(
        "t",
        "t.toml",
        &default_template()
            .replace("[axes.cases.\"TCP\"]\n\"workload.transport\" = \"tcp\"", "[axes.cases.\"TCP\"]"),
    );
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("workload.transport=sctp").unwrap();
    overrides.add_setting("transport=TCP").unwrap();
    assert!(own.unwrap().build_plan(StudyMode::Default, &overrides).is_ok());
}

#[test]
fn the_hash_tells_plans_apart() {
    let plain = template_plan(&[]);
    assert_eq!(plain, template_plan(&[]));
    let quick = template_study().build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
    let seeded = template_study()
        .build_plan(StudyMode::Default, &PlanOverrides { seed: Some(1), ..PlanOverrides::default() })
        .unwrap();
    let hashes = [&plain.hash, &quick.hash, &seeded.hash, &template_plan(&["loss=1 %"]).hash];
    for (i, a) in hashes.iter().enumerate() {
        assert_eq!(a.len(), 64);
        assert!(hashes[..i].iter().all(|b| a != b));
    }
}

#[test]
fn a_plan_beyond_all_measure_is_refused() {
    let many: Vec<String> = (0..400).map(|i| format!("\"{i} ms\"")).collect();
    let axis = |name: &str, key: &str| {
        format!("[[axes]]\nname = \"{name}\"\nset = \"links.core.{key}\"\nvalues = [{}]\n", many.join(","))
    };
    let text = default_template().replace("# The figures.", &(axis("a", "delay") + &axis("b", "jitter")));
    let text = text.replace("series = [\"transport\"]", "series = [\"transport\", \"a\", \"b\"]");
    let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let faults = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap_err();
    assert!(faults.to_string().ends_with("more than 100000 points"), "{faults}");
}

#[test]
fn sensitivity_varies_each_choice_alone_and_relaxes_by_the_axis() {
    let text = default_template().replace(
        "[[axes]]\nname = \"loss\"",
        "[sensitivity]\nduration = \"30 s\"\n\n[[choices]]\nname = \"delay\"\ndefault = \"as the template\"\n\
         [choices.cases]\n\"none\" = { \"links.core.delay\" = \"0 ms\" }\n\"long\" = { \"links.core.delay\" = \"100 ms\" }\n\n\
         [[axes]]\nsensitivity = [\"5 %\"]\nrelax = { from = \"5 %\", precision = \"50 %\" }\nname = \"loss\"",
    );
    let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let plan =
        study.build_plan(StudyMode::Sensitivity, &PlanOverrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let variants: Vec<&str> =
        plan.points.iter().map(|p| p.axis_setting("variant").unwrap().text.as_str()).collect();
    let expected = [["default"; 2], ["delay: none"; 2], ["delay: long"; 2]].concat();
    assert_eq!(variants, expected);
    let delays = plan.points.iter().map(|p| {
        assert_eq!(p.scenario.run.duration.get().as_secs(), 30);
        assert_eq!(p.scenario.run.replications.precision.get(), 0.5);
        p.scenario.links.get("core").unwrap().channel_config(ChannelDirection::Up).delay.as_millis()
    });
    assert_eq!(delays.skip(2).collect::<Vec<_>>(), [0, 0, 100, 100]);
    // All points have the same seeds: a difference is due to the choice.
    assert!(plan.points.iter().all(|p| p.replication_seed(3) == plan.points[0].replication_seed(3)));
    // Other modes ignore it, and a precision below the axis's bound stays.
    let plain = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    assert!(plain.points.iter().all(|p| p.axis_setting("variant").is_none()));
    assert!(plain.points[0].scenario.run.replications.precision.get() < 0.5);
}
