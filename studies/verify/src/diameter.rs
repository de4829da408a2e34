//! Compares two state tables of Diameter, as printed in their RFCs, with those of the node.

use crate::{OracleFinding, VerificationOracle};
use usher_core::automaton::AutomatonDiagram;
use usher_core::{Duration, Seed};
use usher_diameter::peer::automaton::{self, PeerAutomaton};
use usher_diameter::peer::watchdog::{self, PeerWatchdog, WatchdogAutomaton};
use usher_diameter::vectors::{PEER, WATCHDOG};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "diameter",
        name: "peer",
        description: "each line of the peer state machine: event, actions, next state",
        source: "RFC 6733 section 5.6",
        run: check_peer_automaton,
    },
    VerificationOracle {
        group: "diameter",
        name: "election",
        description: "the winner of an election: the node with the greater Origin-Host, ignoring case",
        source: "RFC 6733 section 5.6.4",
        run: check_election,
    },
    VerificationOracle {
        group: "diameter",
        name: "watchdog",
        description: "each line of the watchdog: event, changes and actions, next state",
        source: "RFC 3539 appendix A",
        run: check_watchdog_automaton,
    },
    VerificationOracle {
        group: "diameter",
        name: "watchdog-course",
        description: "a connection with unanswered watchdogs: it closes, opens again, and is in use after \
                      three answers",
        source: "RFC 3539 section 3.4.1, appendix A",
        run: check_watchdog_events,
    },
    VerificationOracle {
        group: "diameter",
        name: "watchdog-jitter",
        description: "Tw is 30 s, jittered by at most 2 s either way",
        source: "RFC 3539 section 3.4.1",
        run: check_watchdog_jitter,
    },
];

/// Compares each line of a printed table with our transitions of its state and event, and reports our extra
/// transitions.
fn compare_diagram(printed: &str, ours: &AutomatonDiagram) -> Vec<OracleFinding> {
    let printed: Vec<Vec<&str>> =
        printed.trim().lines().map(|line| line.split("; ").collect::<Vec<_>>()).collect();
    let words = |line: &[&str]| format!("{} => {}", line[2], line[3]);
    let ours: Vec<Vec<String>> = (ours.lines.iter())
        .map(|line| line.to_string().split("; ").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let line = |state: &str, event: &str| {
        let of = |l: &&Vec<String>| l[0] == state && l[1] == event;
        ours.iter().find(of).map_or("no line".to_owned(), |l| words(&["", "", &l[2], &l[3]]))
    };
    let mut findings: Vec<OracleFinding> = printed
        .iter()
        .map(|p| OracleFinding::expect_equal(format!("{}, {}", p[0], p[1]), words(p), line(p[0], p[1])))
        .collect();
    let more = |l: &&Vec<String>| printed.iter().all(|p| l[0] != p[0] || l[1] != p[1]);
    let more: Vec<String> = ours.iter().filter(more).map(|l| format!("{}, {}", l[0], l[1])).collect();
    let more = if more.is_empty() { "none".to_owned() } else { more.join("; ") };
    findings.push(OracleFinding::expect_equal("lines that the standard does not print", "none", more));
    findings
}

fn check_peer_automaton() -> Result<Vec<OracleFinding>, String> {
    Ok(compare_diagram(PEER, &PeerAutomaton::DIAGRAM))
}

fn check_watchdog_automaton() -> Result<Vec<OracleFinding>, String> {
    Ok(compare_diagram(WATCHDOG, &WatchdogAutomaton::DIAGRAM))
}

fn check_election() -> Result<Vec<OracleFinding>, String> {
    let cases = [
        ("b.example", "A.example", true),
        ("A.example", "b.example", false),
        ("aa", "A", true),
        ("Node.example", "node.EXAMPLE", false),
    ];
    let case = |(local, remote, wins): (&str, &str, bool)| {
        let obtained = automaton::wins_election(local, remote);
        OracleFinding::expect_equal(format!("{local} against {remote}"), wins, obtained)
    };
    Ok(cases.map(case).to_vec())
}

fn check_watchdog_events() -> Result<Vec<OracleFinding>, String> {
    use watchdog::Event::{ConnectionDown, ConnectionUp, ReceiveDwa, TimerExpires};
    // Connection up; a watchdog is sent and unanswered (failover), and again unanswered (closed). After the connection
    // reopens, a watchdog is sent at once and answered, and twice more.
    let events = [
        ConnectionUp,
        TimerExpires,
        TimerExpires,
        TimerExpires,
        ConnectionDown,
        TimerExpires,
        ConnectionUp,
        ReceiveDwa,
        TimerExpires,
        ReceiveDwa,
        TimerExpires,
        ReceiveDwa,
    ];
    let mut watchdog = PeerWatchdog::default();
    let mut states = vec![watchdog.state().name()];
    for event in events {
        let _ = watchdog.apply_event(event);
        states.push(watchdog.state().name());
    }
    let expected = "INITIAL OKAY OKAY SUSPECT DOWN DOWN DOWN REOPEN REOPEN REOPEN REOPEN REOPEN OKAY";
    Ok(vec![OracleFinding::expect_equal("", expected, states.join(" "))])
}

fn check_watchdog_jitter() -> Result<Vec<OracleFinding>, String> {
    let mut rng = Seed::new(1).derive_secure_rng("watchdog", 0);
    let (tw, by) = (Duration::from_secs(30), Duration::from_secs(2));
    let drawn: Vec<Duration> = (0..10_000).map(|_| watchdog::sample_interval(tw, by, &mut rng)).collect();
    let outside = drawn.iter().filter(|d| **d < tw - by || **d > tw + by).count();
    Ok(vec![OracleFinding::expect_equal("draws outside 28 to 32 s, of 10000", 0, outside)])
}
