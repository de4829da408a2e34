//! `usher lab`: the machine's capabilities, and the remains of a killed lab.

use crate::place::TempDir;

#[test]
fn the_machine_is_checked_and_the_relay_measured() {
    let place = TempDir::new();
    let checked = place.run_usher(&["lab", "check", "--json", "--list", "list"]).with_code(0).stdout_json();
    assert_eq!(checked["able"], true);
    let names: Vec<&str> =
        checked["offers"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"network namespaces") && names.contains(&"SCTP"), "{names:?}");
    for (measured, rate) in checked["precision"].as_array().unwrap().iter().zip([1000_u64, 20_000]) {
        assert_eq!(measured["relay"]["delays"]["count"], rate);
        assert_eq!(measured["relay"]["overflowed"], 0);
        assert!(
            measured["programs"]["count"].as_u64().is_some_and(|came| came > 0 && came <= rate),
            "{measured}"
        );
        let median = measured["relay"]["delays"]["median"].as_f64().unwrap();
        assert!((0.0..0.005).contains(&median), "{measured}");
    }
    let people = place.run_usher(&["lab", "check", "--list", "list"]).with_code(0).out;
    assert!(people.contains("network namespaces") && people.contains("20000/s"), "{people}");
}

#[test]
fn what_was_left_is_removed_once() {
    let place = TempDir::new();
    let clean = || place.run_usher(&["lab", "clean", "--list", "list"]).with_code(0).out;
    // Another process may find the remains of other labs on this machine first.
    let removed =
        || clean().lines().filter(|line| line.starts_with("removed")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(removed(), [""; 0]);
    // A lab with this test's process id and another start time.
    let space = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/self/ns/pid").unwrap());
    let entry = format!("list/{space}-{}-1-0.json", std::process::id());
    place.write(&entry, r#"{"process":1,"name":"my study","hosts":[],"links":[]}"#);
    assert_eq!(place.run_usher(&["lab", "show", "--list", "list"]).with_code(0).out, "no lab is running\n");
    assert_eq!(removed(), ["removed the entry of a lab that was killed: my study"]);
    assert_eq!(removed(), [""; 0]);
    assert!(!place.path(&entry).exists());
    let left = place.run_usher(&["lab", "clean", "--json", "--list", "list"]).with_code(0).stdout_json();
    assert_eq!(left["labs"], serde_json::json!([]));
}
