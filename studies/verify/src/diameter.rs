//! Diameter's two tables, as their RFCs print them, against those that the node runs.

use crate::{Finding, Oracle};
use usher_core::{Duration, Seed};
use usher_diameter::peer::watchdog::{self, Watchdog};
use usher_diameter::peer::{Line, automaton};

pub(crate) const ORACLES: &[Oracle] = &[
    Oracle {
        group: "diameter",
        name: "peer",
        about: "each line of the peer state machine: event, actions, next state",
        source: "RFC 6733 section 5.6",
        run: peer,
    },
    Oracle {
        group: "diameter",
        name: "election",
        about: "who wins an election: the one whose Origin-Host succeeds the other's, letter case ignored",
        source: "RFC 6733 section 5.6.4",
        run: election,
    },
    Oracle {
        group: "diameter",
        name: "watchdog",
        about: "each line of the watchdog: event, changes and actions, next state",
        source: "RFC 3539 appendix A",
        run: watchdog,
    },
    Oracle {
        group: "diameter",
        name: "watchdog-course",
        about: "a connection whose watchdogs go unanswered, is closed, comes back, and is in use again after three \
                answers",
        source: "RFC 3539 section 3.4.1, appendix A",
        run: course,
    },
    Oracle {
        group: "diameter",
        name: "watchdog-jitter",
        about: "Tw is 30 s, jittered by at most 2 s either way",
        source: "RFC 3539 section 3.4.1",
        run: jitter,
    },
];

const PEER: &str = "
Closed; Start; I-Snd-Conn-Req; Wait-Conn-Ack
Closed; R-Conn-CER; R-Accept, Process-CER, R-Snd-CEA; R-Open
Wait-Conn-Ack; I-Rcv-Conn-Ack; I-Snd-CER; Wait-I-CEA
Wait-Conn-Ack; I-Rcv-Conn-Nack; Cleanup; Closed
Wait-Conn-Ack; R-Conn-CER; R-Accept, Process-CER; Wait-Conn-Ack/Elect
Wait-Conn-Ack; Timeout; Error; Closed
Wait-I-CEA; I-Rcv-CEA; Process-CEA; I-Open
Wait-I-CEA; R-Conn-CER; R-Accept, Process-CER, Elect; Wait-Returns
Wait-I-CEA; I-Peer-Disc; I-Disc; Closed
Wait-I-CEA; I-Rcv-Non-CEA; Error; Closed
Wait-I-CEA; Timeout; Error; Closed
Wait-Conn-Ack/Elect; I-Rcv-Conn-Ack; I-Snd-CER, Elect; Wait-Returns
Wait-Conn-Ack/Elect; I-Rcv-Conn-Nack; R-Snd-CEA; R-Open
Wait-Conn-Ack/Elect; R-Peer-Disc; R-Disc; Wait-Conn-Ack
Wait-Conn-Ack/Elect; R-Conn-CER; R-Reject; Wait-Conn-Ack/Elect
Wait-Conn-Ack/Elect; Timeout; Error; Closed
Wait-Returns; Win-Election; I-Disc, R-Snd-CEA; R-Open
Wait-Returns; I-Peer-Disc; I-Disc, R-Snd-CEA; R-Open
Wait-Returns; I-Rcv-CEA; R-Disc; I-Open
Wait-Returns; R-Peer-Disc; R-Disc; Wait-I-CEA
Wait-Returns; R-Conn-CER; R-Reject; Wait-Returns
Wait-Returns; Timeout; Error; Closed
R-Open; Send-Message; R-Snd-Message; R-Open
R-Open; R-Rcv-Message; Process; R-Open
R-Open; R-Rcv-DWR; Process-DWR, R-Snd-DWA; R-Open
R-Open; R-Rcv-DWA; Process-DWA; R-Open
R-Open; R-Conn-CER; R-Reject; R-Open
R-Open; Stop; R-Snd-DPR; Closing
R-Open; R-Rcv-DPR; R-Snd-DPA; Closing
R-Open; R-Peer-Disc; R-Disc; Closed
I-Open; Send-Message; I-Snd-Message; I-Open
I-Open; I-Rcv-Message; Process; I-Open
I-Open; I-Rcv-DWR; Process-DWR, I-Snd-DWA; I-Open
I-Open; I-Rcv-DWA; Process-DWA; I-Open
I-Open; R-Conn-CER; R-Reject; I-Open
I-Open; Stop; I-Snd-DPR; Closing
I-Open; I-Rcv-DPR; I-Snd-DPA; Closing
I-Open; I-Peer-Disc; I-Disc; Closed
Closing; I-Rcv-DPA; I-Disc; Closed
Closing; R-Rcv-DPA; R-Disc; Closed
Closing; Timeout; Error; Closed
Closing; I-Peer-Disc; I-Disc; Closed
Closing; R-Peer-Disc; R-Disc; Closed
";

const WATCHDOG: &str = "
OKAY; Receive DWA; Pending = FALSE, SetWatchdog(); OKAY
OKAY; Receive non-DWA; SetWatchdog(); OKAY
SUSPECT; Receive DWA; Pending = FALSE, Failback(), SetWatchdog(); OKAY
SUSPECT; Receive non-DWA; Failback(), SetWatchdog(); OKAY
REOPEN; Receive DWA & NumDWA == 2; Pending = FALSE, NumDWA++, Failback(); OKAY
REOPEN; Receive DWA & NumDWA < 2; Pending = FALSE, NumDWA++; REOPEN
REOPEN; Receive non-DWA; Throwaway(); REOPEN
INITIAL; Receive DWA; Pending = FALSE, Throwaway(); INITIAL
INITIAL; Receive non-DWA; Throwaway(); INITIAL
DOWN; Receive DWA; Pending = FALSE, Throwaway(); DOWN
DOWN; Receive non-DWA; Throwaway(); DOWN
OKAY; Timer expires & !Pending; SendWatchdog(), SetWatchdog(), Pending = TRUE; OKAY
OKAY; Timer expires & Pending; Failover(), SetWatchdog(); SUSPECT
SUSPECT; Timer expires; CloseConnection(), SetWatchdog(); DOWN
INITIAL; Timer expires; AttemptOpen(), SetWatchdog(); INITIAL
DOWN; Timer expires; AttemptOpen(), SetWatchdog(); DOWN
REOPEN; Timer expires & !Pending; SendWatchdog(), SetWatchdog(), Pending = TRUE; REOPEN
REOPEN; Timer expires & Pending & NumDWA < 0; CloseConnection(), SetWatchdog(); DOWN
REOPEN; Timer expires & Pending & NumDWA >= 0; NumDWA = -1, SetWatchdog(); REOPEN
INITIAL; Connection up; SetWatchdog(); OKAY
DOWN; Connection up; NumDWA = 0, SendWatchdog(), SetWatchdog(), Pending = TRUE; REOPEN
OKAY; Connection down; CloseConnection(), Failover(), SetWatchdog(); DOWN
SUSPECT; Connection down; CloseConnection(), SetWatchdog(); DOWN
REOPEN; Connection down; CloseConnection(), SetWatchdog(); DOWN
";

/// Each line of a printed table against the one of this state and event, and what is in ours beyond it.
fn compare(printed: &str, ours: Vec<Line>) -> Vec<Finding> {
    let printed: Vec<Vec<&str>> =
        printed.trim().lines().map(|line| line.split("; ").collect::<Vec<_>>()).collect();
    let words = |line: &[&str]| format!("{} => {}", line[2], line[3]);
    let line = |state: &str, event: &str| {
        let of = |l: &&Line| l.state == state && l.event == event;
        ours.iter().find(of).map_or("no line".to_owned(), |l| words(&["", "", &l.actions.join(", "), l.next]))
    };
    let mut findings: Vec<Finding> = printed
        .iter()
        .map(|p| Finding::equal(format!("{}, {}", p[0], p[1]), words(p), line(p[0], p[1])))
        .collect();
    let more = |l: &&Line| printed.iter().all(|p| l.state != p[0] || l.event != p[1]);
    let more: Vec<String> = ours.iter().filter(more).map(|l| format!("{}, {}", l.state, l.event)).collect();
    let more = if more.is_empty() { "none".to_owned() } else { more.join("; ") };
    findings.push(Finding::equal("lines beyond the printed ones", "none", more));
    findings
}

fn peer() -> Result<Vec<Finding>, String> {
    Ok(compare(PEER, automaton::rows().collect()))
}

fn watchdog() -> Result<Vec<Finding>, String> {
    Ok(compare(WATCHDOG, watchdog::rows().collect()))
}

fn election() -> Result<Vec<Finding>, String> {
    let cases = [
        ("b.example", "A.example", true),
        ("A.example", "b.example", false),
        ("aa", "A", true),
        ("Node.example", "node.EXAMPLE", false),
    ];
    let case = |(local, remote, wins): (&str, &str, bool)| {
        let obtained = automaton::wins_election(local, remote);
        Finding::equal(format!("{local} against {remote}"), wins, obtained)
    };
    Ok(cases.map(case).to_vec())
}

fn course() -> Result<Vec<Finding>, String> {
    use watchdog::Event::{ConnectionDown, ConnectionUp, ReceiveDwa, TimerExpires};
    // Up; a watchdog is sent, goes unanswered (failover), goes unanswered still (closed); opened again, after
    // which a watchdog is sent at once and answered, and so two times more.
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
    let mut watchdog = Watchdog::default();
    let mut states = vec![watchdog.state().name()];
    for event in events {
        let _ = watchdog.step(event);
        states.push(watchdog.state().name());
    }
    let expected = "INITIAL OKAY OKAY SUSPECT DOWN DOWN DOWN REOPEN REOPEN REOPEN REOPEN REOPEN OKAY";
    Ok(vec![Finding::equal("", expected, states.join(" "))])
}

fn jitter() -> Result<Vec<Finding>, String> {
    let mut rng = Seed::new(1).secure("watchdog", 0);
    let (tw, by) = (Duration::from_secs(30), Duration::from_secs(2));
    let drawn: Vec<Duration> = (0..10_000).map(|_| watchdog::jittered(tw, by, &mut rng)).collect();
    let outside = drawn.iter().filter(|d| **d < tw - by || **d > tw + by).count();
    Ok(vec![Finding::equal("of 10000 draws outside 28 to 32 s", 0, outside)])
}
