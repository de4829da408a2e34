//! Every oracle holds, group by group, and a wrong one fails.

use usher_verify::{OracleCheck, OracleFinding, VerificationOracle, oracles, run_oracle};

#[track_caller]
fn assert_group_holds(group: &str) {
    let all = oracles();
    let checks: Vec<OracleCheck> = all.iter().filter(|o| o.group == group).flat_map(run_oracle).collect();
    assert!(!checks.is_empty(), "there is no group {group}");
    for check in &checks {
        let OracleFinding { expected, obtained, tolerance, .. } = &check.finding;
        println!("{}: {expected} | {obtained} | {tolerance}", check.label());
    }
    let failed: Vec<String> = checks.iter().filter(|c| !c.finding.agrees).map(OracleCheck::label).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

macro_rules! groups {
    ($($group:ident)*) => {
        $(#[test] fn $group() { assert_group_holds(stringify!($group)); })*

        #[test]
        fn every_group_has_its_test() {
            let tested = [$(stringify!($group)),*];
            for oracle in oracles() {
                assert!(tested.contains(&oracle.group), "add {} to the groups here", oracle.group);
            }
        }
    };
}
groups! { radius timing crypto eap queues channels tcp presets sctp hol mih diameter }

#[test]
fn names_are_unique_and_all_is_said() {
    let all = oracles();
    for (i, oracle) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|o| o.label() != oracle.label()), "{}", oracle.label());
        assert!(!oracle.description.is_empty() && !oracle.source.is_empty(), "{}", oracle.label());
        assert!(oracle.matches_filter(oracle.group) && oracle.matches_filter(oracle.name));
    }
}

#[test]
fn a_wrong_expectation_does_not_hold() {
    let oracle = |run| VerificationOracle { group: "wrong", name: "one", description: "a", source: "s", run };
    let seen = |run| run_oracle(&oracle(run));
    let wrong = seen(|| Ok(vec![OracleFinding::expect_equal("case", 4, 2 + 3)]));
    assert_eq!(wrong[0].label(), "wrong/one: case");
    assert!(!wrong[0].finding.agrees);
    for nothing in [seen(|| Ok(Vec::new())), seen(|| Err("no way".to_owned()))] {
        assert!(nothing.len() == 1 && !nothing[0].finding.agrees, "{nothing:?}");
    }
    assert!(seen(|| Ok(vec![OracleFinding::expect_octets("", &[1, 0xff], &[1, 0xff])]))[0].finding.agrees);
}
