//! `usher verify`.

use crate::place::TempDir;

#[test]
fn oracles_are_listed_run_and_shown() {
    let place = TempDir::new();
    let list = place.run_usher(&["verify", "--list"]).with_code(0).out;
    assert!(list.lines().any(|l| l.starts_with("radius/user-password ") && l.contains("RFC 2865")), "{list}");

    let said = place.run_usher(&["verify", "radius"]).with_code(0).out;
    for part in [
        "radius/response-authenticator: ",
        "source: RFC 2865 section 7, RFC 5997 section 6",
        "expected 86fe220e7624ba2a1005f6bf9b55e0b2\n          obtained 86fe220e7624ba2a1005f6bf9b55e0b2",
        "with code 2, as printed",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("FAILED") && said.ends_with(" checks passed\n"), "{said}");

    let json = place.run_usher(&["verify", "rfc5080", "--json"]).with_code(0).stdout_json();
    assert_eq!(json[0]["expected"], "0 s, 2 s, 6 s, 14 s");
    assert_eq!((&json[0]["group"], &json[0]["holds"]), (&"timing".into(), &true.into()));
    assert_eq!(json.as_array().unwrap().len(), 2);

    let none = place.run_usher(&["verify", "no such thing"]).with_code(2);
    assert!(none.err.contains("--list"), "{}", none.err);
}

#[test]
fn automata_are_printed_as_rows_graphs_and_objects() {
    let place = TempDir::new();
    let rows = place.run_usher(&["verify", "--automata", "watchdog"]).with_code(0).out;
    for line in [
        "diameter-watchdog (RFC 3539, appendix A), from INITIAL",
        "  OKAY; Timer expires & Pending; Failover(), SetWatchdog(); SUSPECT",
        "  INITIAL; cannot happen: Connection down (the connection was never up)",
    ] {
        assert!(rows.lines().any(|l| l == line), "{line}\n{rows}");
    }
    let dot = place.run_usher(&["verify", "--automata", "--dot"]).with_code(0).out;
    let all = place.run_usher(&["verify", "--automata", "--json"]).with_code(0).stdout_json();
    let all = all.as_array().unwrap();
    let graphs: Vec<&str> = dot.split_inclusive("\n}\n").map(str::trim_start).collect();
    assert_eq!((graphs.len(), all.len()), (16, 16));
    for (graph, object) in graphs.iter().zip(all) {
        assert!(graph.starts_with(&format!("digraph {} {{\n", object["name"])), "{graph}");
        let edges: Vec<(&str, &str)> = graph
            .lines()
            .filter_map(|l| l.trim().split_once(" -> "))
            .map(|(from, rest)| (from, rest.split_once(" [label=").map_or(rest, |(to, _)| to)))
            .collect();
        for row in object["rows"].as_array().unwrap() {
            let edge = (row["from"].to_string(), row["to"].to_string());
            assert!(edges.contains(&(&edge.0, &edge.1)), "{edge:?}\n{graph}");
        }
        assert_eq!(edges.len(), object["rows"].as_array().unwrap().len() + 1);
    }
    let none = place.run_usher(&["verify", "--automata", "no such thing"]).with_code(2);
    assert!(none.err.contains("--automata"), "{}", none.err);
}
