//! Plans: their size, keys, seeds, hashes, and what overrides change.

use usher_scenario::model::{Direction, TransportProtocol, Workload};
use usher_scenario::{Mode, Overrides, Plan, Study, template};

fn study() -> Study {
    Study::parse("t", "t.toml", template()).unwrap_or_else(|e| panic!("{e}"))
}

fn overrides(set: &[&str]) -> Overrides {
    let mut overrides = Overrides::default();
    for argument in set {
        overrides.set(argument).unwrap();
    }
    overrides
}

fn plan(set: &[&str]) -> Plan {
    study().plan(Mode::Default, &overrides(set)).unwrap_or_else(|e| panic!("{e}"))
}

fn keys(plan: &Plan) -> Vec<&str> {
    plan.points.iter().map(|p| p.key.as_str()).collect()
}

#[test]
fn the_last_axis_varies_fastest_and_quick_takes_its_values() {
    let quick = study().plan(Mode::Quick, &Overrides::default()).unwrap();
    assert_eq!(
        keys(&quick),
        [
            "loss=0 %; transport=TCP",
            "loss=0 %; transport=UDP, every second",
            "loss=5 %; transport=TCP",
            "loss=5 %; transport=UDP, every second"
        ]
    );
    assert_eq!(quick.runs(), (8, 8));
    assert_eq!(quick.points[0].scenario.run.duration.get().as_secs(), 20);
    assert_eq!(plan(&[]).points.len(), 10);
    assert_eq!(plan(&[]).points[0].scenario.run.duration.get().as_secs(), 100);
    assert_eq!(quick.axes[0].values.iter().map(|v| v.number).collect::<Vec<_>>(), [Some(0.0), Some(5.0)]);
    assert_eq!(quick.axes[0].unit.as_deref(), Some("%"));
    assert_eq!(quick.axes[1].values[0].number, None);
}

#[test]
fn points_have_their_settings_in_place() {
    let plan = plan(&[]);
    for point in &plan.points {
        let loss = point.setting("loss").unwrap().number.unwrap() / 100.0;
        let link = point.scenario.links.get("core").unwrap();
        assert_eq!(link.channel(Direction::Up).loss.mean(), loss);
        assert_eq!(link.channel(Direction::Down).loss.mean(), loss);
        let Some(Workload::Dialogue(dialogue)) = &point.scenario.workload else { panic!("a dialogue") };
        let udp = point.setting("transport").unwrap().text.starts_with("UDP");
        assert_eq!(dialogue.transport == TransportProtocol::Udp, udp);
    }
}

#[test]
fn set_takes_new_values_names_with_commas_and_bare_numbers() {
    let set = plan(&["loss=1%, 3,7.5 %", "transport=UDP, every second"]);
    assert_eq!(
        keys(&set),
        [
            "loss=1 %; transport=UDP, every second",
            "loss=3 %; transport=UDP, every second",
            "loss=7.5 %; transport=UDP, every second"
        ]
    );
    let both = plan(&["loss=0 %", "transport=UDP, every second,TCP"]);
    assert_eq!(keys(&both), ["loss=0 %; transport=UDP, every second", "loss=0 %; transport=TCP"]);
    let path = plan(&["loss=0 %", "transport=TCP", "links.core.delay=30 ms", "hosts.client.count=3"]);
    assert_eq!(path.points[0].scenario.links.get("core").unwrap().delay.get().as_millis(), 30);
    assert_eq!(path.points[0].scenario.hosts.get("client").unwrap().count.get(), 3);
}

#[test]
fn wrong_overrides_are_told() {
    for (argument, message) in [
        ("los=1 %", "--set los: there is no axis \"los\"; did you mean \"loss\"?"),
        ("transport=TPC", "--set transport: there is no case \"TPC\"; did you mean \"TCP\"?"),
        ("loss=200 %", "links.core.loss: \"200 %\" is more than 100 %"),
        ("loss=1 %,1%", "--set loss: \"1 %\" is there twice"),
        ("links.core.loss=1 %", "--set links.core.loss: the axis \"loss\" varies it; write --set loss=…"),
        ("links.core.dely=1 ms", "unknown key \"dely\" in links.core; did you mean \"delay\"?"),
        (
            "links.core.delay=30",
            "links.core.delay: 30 where a time with its unit, such as \"10 ms\" is needed",
        ),
    ] {
        let faults = study().plan(Mode::Default, &overrides(&[argument])).unwrap_err();
        assert_eq!(faults.to_string(), message, "{argument}");
    }
    for argument in ["loss", "=1", "loss=", " = "] {
        assert!(Overrides::default().set(argument).is_err(), "{argument}");
    }
    let none = Overrides { replications: Some(0), ..Overrides::default() };
    assert!(study().plan(Mode::Default, &none).is_err());
}

#[test]
fn a_point_alone_is_the_point_of_the_sweep() {
    let sweep = plan(&[]);
    for point in &sweep.points {
        let arguments = point.arguments();
        let set: Vec<&str> = arguments.iter().filter(|a| *a != "--set").map(String::as_str).collect();
        let alone = plan(&set);
        let [one] = alone.points.as_slice() else { panic!("{}: {} points", point.key, alone.points.len()) };
        assert_eq!((&one.key, &one.scenario, one.seed(3)), (&point.key, &point.scenario, point.seed(3)));
    }
}

#[test]
fn points_share_their_chance_unless_an_axis_says_otherwise() {
    let shared = plan(&[]);
    assert!(shared.points.iter().all(|p| p.seed(0) == shared.points[0].seed(0)));
    assert_ne!(shared.points[0].seed(0), shared.points[0].seed(1));

    let text = template().replace("name = \"loss\"\n", "name = \"loss\"\ncommon_random_numbers = false\n");
    let own = Study::parse("t", "t.toml", &text).unwrap().plan(Mode::Default, &Overrides::default()).unwrap();
    for pair in own.points.windows(2) {
        let same = pair[0].setting("loss") == pair[1].setting("loss");
        assert_eq!(pair[0].seed(0) == pair[1].seed(0), same, "{} and {}", pair[0].key, pair[1].key);
    }
}

#[test]
fn seed_and_replications_can_be_given() {
    let given = Overrides { seed: Some(u64::MAX), replications: Some(4), ..Overrides::default() };
    let given = study().plan(Mode::Default, &given).unwrap();
    assert_eq!(given.points[0].scenario.run.seed, u64::MAX);
    assert_ne!(given.points[0].seed(0), plan(&[]).points[0].seed(0));
    assert_eq!(given.runs(), (40, 40));
}

#[test]
fn what_only_shows_the_rows_leaves_the_hash_as_it_is() {
    let hash = |text: &str| {
        let study = Study::parse("t", "t.toml", text).unwrap_or_else(|e| panic!("{e}"));
        study.plan(Mode::Default, &Overrides::default()).unwrap().hash
    };
    let (before, text) = (hash(template()), template());
    assert_eq!(hash(&format!("# Mine.\n{text}\n# The end.\n")), before);
    assert_eq!(hash(&text.replace("My study", "Another")), before);
    let axis = "name = \"loss\"\n";
    assert_eq!(hash(&text.replace("Loss on the core link", "Lost packets")), before);
    assert_eq!(hash(&text.replace(axis, &format!("{axis}full = [\"1 %\", \"2 %\"]\n"))), before);
    assert_eq!(hash(&text.replace("[capture]\nlinks = [\"core\"]\n", "")), before);
    assert_eq!(hash(&text.replace("[capture]", "[full]\nduration = \"999 s\"\n[capture]")), before);
    // The same values given otherwise.
    let given = |sets: &[&str]| plan(sets).hash;
    assert_eq!(given(&["loss=0 %,5 %,10 %"]), given(&["loss=0 %, 5 %, 10 %"]));
    for said in ["common_random_numbers = false\n", "relax = { from = \"5 %\", precision = \"50 %\" }\n"] {
        assert_ne!(hash(&text.replace(axis, &format!("{axis}{said}"))), before, "{said}");
    }
    assert_ne!(
        hash(&text.replace("\"workload.transport\" = \"tcp\"", "\"workload.transport\" = \"sctp\"")),
        before
    );
    assert_ne!(given(&["workload.give_up=9 s"]), plan(&[]).hash);
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
    let study = Study::parse("t", "t.toml", template()).unwrap();
    let plan = |sets: &[&str]| {
        let mut overrides = Overrides::default();
        sets.iter().for_each(|set| overrides.set(set).unwrap());
        study.plan(Mode::Default, &overrides)
    };
    let said = plan(&["workload.transport=sctp"]).unwrap_err().to_string();
    assert!(
        said.starts_with("--set workload.transport: the axis \"transport\" sets it to something else at \"TCP\"; leave that out"),
        "{said}"
    );
    let repeats = "workload.retransmission.interval=2 s";
    assert!(plan(&[repeats]).unwrap_err().to_string().contains("at \"UDP, every second\""));
    // Where the axis does not go there, nothing overrides it.
    assert!(plan(&["workload.give_up=9 s"]).is_ok());
    let own = Study::parse(
        "t",
        "t.toml",
        &template().replace("[axes.cases.\"TCP\"]\n\"workload.transport\" = \"tcp\"", "[axes.cases.\"TCP\"]"),
    );
    let mut overrides = Overrides::default();
    overrides.set("workload.transport=sctp").unwrap();
    overrides.set("transport=TCP").unwrap();
    assert!(own.unwrap().plan(Mode::Default, &overrides).is_ok());
}

#[test]
fn the_hash_tells_plans_apart() {
    let plain = plan(&[]);
    assert_eq!(plain, plan(&[]));
    let quick = study().plan(Mode::Quick, &Overrides::default()).unwrap();
    let seeded = study().plan(Mode::Default, &Overrides { seed: Some(1), ..Overrides::default() }).unwrap();
    let hashes = [&plain.hash, &quick.hash, &seeded.hash, &plan(&["loss=1 %"]).hash];
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
    let text = template().replace("# What is drawn.", &(axis("a", "delay") + &axis("b", "jitter")));
    let text = text.replace("series = [\"transport\"]", "series = [\"transport\", \"a\", \"b\"]");
    let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let faults = study.plan(Mode::Default, &Overrides::default()).unwrap_err();
    assert!(faults.to_string().ends_with("more than 100000 points"), "{faults}");
}

#[test]
fn sensitivity_takes_each_choice_in_turn_and_relaxes_where_the_axis_says() {
    let text = template().replace(
        "[[axes]]\nname = \"loss\"",
        "[sensitivity]\nduration = \"30 s\"\n\n[[choices]]\nname = \"delay\"\ndefault = \"as the template\"\n\
         [choices.cases]\n\"none\" = { \"links.core.delay\" = \"0 ms\" }\n\"long\" = { \"links.core.delay\" = \"100 ms\" }\n\n\
         [[axes]]\nsensitivity = [\"5 %\"]\nrelax = { from = \"5 %\", precision = \"50 %\" }\nname = \"loss\"",
    );
    let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let plan = study.plan(Mode::Sensitivity, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let variants: Vec<&str> =
        plan.points.iter().map(|p| p.setting("variant").unwrap().text.as_str()).collect();
    let expected = [["default"; 2], ["delay: none"; 2], ["delay: long"; 2]].concat();
    assert_eq!(variants, expected);
    let delays = plan.points.iter().map(|p| {
        assert_eq!(p.scenario.run.duration.get().as_secs(), 30);
        assert_eq!(p.scenario.run.replications.precision.get(), 0.5);
        p.scenario.links.get("core").unwrap().channel(Direction::Up).delay.as_millis()
    });
    assert_eq!(delays.skip(2).collect::<Vec<_>>(), [0, 0, 100, 100]);
    // The same chance for all: what differs is due to the choice.
    assert!(plan.points.iter().all(|p| p.seed(3) == plan.points[0].seed(3)));
    // Other modes know nothing of it, and a precision below the axis's bound stays.
    let plain = study.plan(Mode::Default, &Overrides::default()).unwrap();
    assert!(plain.points.iter().all(|p| p.setting("variant").is_none()));
    assert!(plain.points[0].scenario.run.replications.precision.get() < 0.5);
}
