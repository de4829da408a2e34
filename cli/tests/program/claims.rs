//! `usher claims`, and the claims in the folders of runs.

use crate::place::{STUDY, TempDir};
use std::collections::BTreeSet;

/// A small study with the name of a founding one, and the curves that claims need.
fn study_with_claims() -> String {
    STUDY
        .replace("axes.cases.\"TCP, plain\"", "axes.cases.\"Diameter/TCP\"")
        .replace("[axes.cases.UDP]", "[axes.cases.\"Diameter/SCTP, many streams\"]")
        .replace(
            "series = [\"protocol\"]",
            "series = [\"protocol\"]\nclaims = [\"aaa.hol.gap-5\", \"aaa.hol.widens\"]",
        )
}

#[test]
fn a_run_ends_in_its_claims() {
    let place = TempDir::new();
    place.write("aaa-hol.toml", &study_with_claims());
    for (jobs, out) in [("1", "one"), ("2", "two")] {
        place.run_usher(&["study", "run", "./aaa-hol.toml", "--jobs", jobs, "--out", out]).with_code(0);
    }
    let file = |out: &str| std::fs::read_to_string(place.path(out).join("claims.json")).unwrap();
    assert_eq!(file("one"), file("two"));
    let said = place.run_usher(&["claims", "one", "--json"]).with_code(0);
    assert_eq!(said.out, file("one"), "the command says what the run wrote");
    let list = said.stdout_json();
    let keys = BTreeSet::from(["id", "published", "ours", "low", "high", "verdict", "reason"]);
    for object in list.as_array().unwrap() {
        assert_eq!(object.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);
    }
    let of = |id: &str| list.as_array().unwrap().iter().find(|o| o["id"] == id);
    let gap = of("aaa.hol.gap-5").unwrap();
    assert!(
        gap["low"].as_f64() < gap["ours"].as_f64() && gap["ours"].as_f64() < gap["high"].as_f64(),
        "{gap}"
    );
    assert_eq!(of("aaa.hol.gap-19").unwrap()["verdict"], "not run");
    assert_eq!(of("aaa.surge"), None, "none of its studies is in the run");
    let report = std::fs::read_to_string(place.path("one/report.html")).unwrap();
    assert!(report.contains("Published claims") && report.contains("aaa.hol.widens"));

    let text = place.run_usher(&["claims", "one"]).with_code(0).out;
    assert!(text.starts_with("CLAIM") && text.contains("0.5 s") && text.contains("At 5 % loss"), "{text}");
}

#[test]
fn several_studies_end_in_one_list_and_one_report() {
    let place = TempDir::new();
    place.write("aaa-hol.toml", &study_with_claims());
    place.write(
        "aaa-many-nas.toml",
        &study_with_claims().replace("aaa.hol.gap-5\", \"aaa.hol.widens", "aaa.surge"),
    );
    let run = place
        .run_usher(&["study", "run", "./aaa-hol.toml", "./aaa-many-nas.toml", "--replications", "3"])
        .with_code(0);
    let folder = "out/aaa-hol+aaa-many-nas-default";
    assert_eq!(run.out.lines().last(), Some(&*format!("report of all: {folder}/report.html")));
    let file = std::fs::read_to_string(place.path(folder).join("claims.json")).unwrap();
    assert!(file.contains("\"aaa.hol.best\"") && file.contains("usher study run aaa-recovery"), "{file}");
    assert_eq!(place.run_usher(&["claims", folder, "--json"]).with_code(0).out, file);
    assert!(place.path(folder).join("figures/aaa-many-nas-delay.svg").exists());
    let newest = place.run_usher(&["claims"]).with_code(0);
    assert!(newest.err.contains(&format!("from {folder}/aaa-hol-default")), "{}", newest.err);
    assert!(newest.out.contains("aaa.congestion.crossover"), "without a folder all are listed");
    let taken = place.run_usher(&[
        "study",
        "run",
        "./aaa-hol.toml",
        "./aaa-many-nas.toml",
        "--out",
        &format!("{folder}/aaa-hol-default"),
    ]);
    assert!(taken.with_code(2).err.contains("choose another folder"));
}

#[test]
fn without_a_run_nothing_is_judged() {
    let place = TempDir::new();
    let none = place.run_usher(&["claims", "--json"]).with_code(0);
    for o in none.stdout_json().as_array().unwrap() {
        let id = o["id"].as_str().unwrap();
        // It uses only the document's own numbers.
        if id == "ike.cpu.formula" {
            assert_eq!(o["verdict"], "reproduced", "{o}");
            continue;
        }
        // Measurements on real sockets are in no study.
        let studied = ["pppoe.overhead", "pppoe.future"].contains(&id);
        let later = !studied && ["pppoe.", "ident."].iter().any(|one| id.starts_with(one));
        let verdict = if later { "not yet done" } else { "not run" };
        assert!(o["verdict"] == verdict && o["ours"].is_null(), "{o}");
    }
    assert!(none.err.contains("usher study run aaa --quick"), "{}", none.err);
    let nowhere = place.run_usher(&["claims", "nowhere"]).with_code(1);
    assert!(nowhere.err.contains("nowhere is not the folder of a run"), "{}", nowhere.err);
    place.write("mine.toml", STUDY);
    place.run_usher(&["study", "run", "mine.toml", "--quick", "--replications", "2"]).with_code(0);
    assert_eq!(std::fs::read_to_string(place.path("out/mine-quick/claims.json")).unwrap(), "[]\n");
    let other = place.run_usher(&["claims", "out/mine-quick"]).with_code(0);
    assert_eq!(other.out, "No published claim concerns these studies.\n");
}
