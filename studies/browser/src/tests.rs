//! Compares the module's replies with the program's rows, and tests its errors.

use super::*;
use usher_scenario::founding;

fn embedded_study(name: &str, set: &[&str]) -> EmbeddedStudy {
    let text = founding::find_founding_study(name).expect("a founding study").text.to_owned();
    let set = set.iter().map(|set| (*set).to_owned()).collect();
    EmbeddedStudy { study: name.to_owned(), text, mode: "quick".to_owned(), set, ..EmbeddedStudy::default() }
}

fn error_text(module: &mut BrowserModule, request: &str) -> String {
    let answer: serde_json::Value = serde_json::from_str(&module.answer_json(request)).unwrap();
    answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_point_alone_has_the_rows_that_it_has_in_its_study() {
    // Settings of the run apply to a point, except those of axes that the point sets.
    let carried = embedded_study("aaa-hol", &["run.duration=3 s", "run.warmup=1 s", "loss=0 %,5 %"]);
    let study = Study::parse(&carried.study, "aaa-hol.toml", &carried.text).unwrap();
    let mut overrides = PlanOverrides::default();
    carried.set.iter().for_each(|set| overrides.add_setting(set).unwrap());
    let plan = study.build_plan(StudyMode::Quick, &overrides).unwrap();
    let mut module = BrowserModule::default();
    let taken = module.handle_request(BrowserRequest::Study(carried)).unwrap();
    assert_eq!(taken, BrowserReply::Ready { version: env!("CARGO_PKG_VERSION").to_owned() });
    let runner = SimRunner::new(&plan, Vec::new());
    assert!(plan.points.len() > 10, "cases whose names have commas are among them");
    for point in plan.points.iter().filter(|point| point.settings[0].text == "5 %") {
        let key = GridPoint::new(point.settings.iter().map(|s| (s.axis.as_str(), s.text.as_str())));
        let settings: Vec<String> = point.settings.iter().map(|s| format!("{}={}", s.axis, s.text)).collect();
        let mut delays = Vec::new();
        for replication in 0..2 {
            let task = ReplicationTask { index: point.index, point: &key, replication, capture: None };
            let outcome = runner.run_task(task).unwrap();
            let answer =
                module.handle_request(BrowserRequest::Run { point: settings.clone(), replication }).unwrap();
            let BrowserReply::Rows { csv, estimates } = answer else { panic!("{answer:?}") };
            let rows = csv::parse_csv(&csv).unwrap();
            let defined: Vec<_> = outcome.metrics.into_iter().filter(|(_, value)| !value.is_nan()).collect();
            let told: Vec<_> = rows.iter().map(|row| (row.metric.to_string(), row.value)).collect();
            assert_eq!(told, defined, "{settings:?}, {replication}");
            assert!(rows.iter().all(|row| row.point == key && row.replication == replication));
            delays.extend(defined.iter().filter(|(name, _)| name == "delay.mean").map(|(_, value)| *value));
            let delay = estimates.iter().find(|e| e.metric == "delay.mean").unwrap();
            let right = MeanEstimate::from_values(&delays, 0.95);
            assert_eq!((delay.mean, delay.half_width, delay.n), (right.mean, right.half_width, right.n));
        }
    }
}

#[test]
fn what_makes_no_sense_is_answered_by_a_sentence() {
    let mut module = BrowserModule::default();
    assert!(error_text(&mut module, "{").contains("not a request"));
    assert!(error_text(&mut module, r#"{"stop":1}"#).contains("not a request"));
    let run = r#"{"run":{"point":[],"replication":0}}"#;
    assert_eq!(error_text(&mut module, run), "there is no study yet");
    let mut ask = |carried: EmbeddedStudy| module.handle_request(BrowserRequest::Study(carried)).unwrap_err();
    let good = embedded_study("aaa-hol", &[]);
    assert_eq!(ask(EmbeddedStudy { mode: "slow".into(), ..good.clone() }), "there is no mode \"slow\"");
    assert!(ask(EmbeddedStudy { text: "title = 1".into(), ..good.clone() }).contains("title"));
    let handshakes = [("eap".to_owned(), "0g".to_owned())].into();
    assert_eq!(ask(EmbeddedStudy { handshakes, ..good.clone() }), "\"eap\" is not a recorded handshake");
    module.handle_request(BrowserRequest::Study(good)).unwrap();
    assert!(error_text(&mut module, run).contains("points were requested"));
    assert!(error_text(&mut module, r#"{"run":{"point":["lss=1 %"],"replication":0}}"#).contains("lss"));
}
