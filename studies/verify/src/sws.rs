//! Silly windows: compares the closed form of `docs/explanation/silly-window.md` with arithmetic by hand and with the simulator's
//! TCP.
//!
//! Client and server are 10 ms apart, on a link without a rate. Requests have 5000 octets, written or read a few octets
//! at a time at 962 octets per second. The answer has one octet. Headers are 20 octets of IPv4 and 20 of TCP. The first
//! ten seconds, in which a reader's buffer fills, are not counted.

use crate::study::{parse_study_plan, simulate_metric};
use crate::{OracleFinding, VerificationOracle};
use usher_scenario::{ClosedFormName, StudyPlan};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "tcp",
        name: "silly-windows-form",
        description: "the closed form of the share of data in packets with data (tcp-data-share), for each \
                      cell of its table. The octets in a segment follow from the slow side's rate, a round \
                      trip of 20 ms and an acknowledgement delay of 200 ms",
        source: "docs/explanation/silly-window.md; one octet in 41 is Kim, Cha and Choi's, section 3.2; by hand",
        run: check_closed_form_data_share,
    },
    VerificationOracle {
        group: "tcp",
        name: "silly-windows",
        description: "the same shares from the run of a study: a slow writer and a slow reader of one octet \
                      at a time, with each avoidance",
        source: "docs/explanation/silly-window.md, by hand",
        run: check_simulated_data_share,
    },
];

/// Relative tolerance of runs: the last segment of a request is not full.
const SHARE: f64 = 0.02;
/// The same if segments wait for a delayed acknowledgement: each request's answer carries it early.
const EARLY: f64 = 0.04;

/// The slow side, its octets at a time, the remedies, and the resulting octets of a segment.
#[derive(Clone, Copy)]
struct SillyWindowCase {
    reader: bool,
    octets: u32,
    nagle: bool,
    delayed: bool,
    avoidance: bool,
    segment: f64,
}

const NONE: SillyWindowCase = SillyWindowCase {
    reader: false,
    octets: 1,
    nagle: false,
    delayed: false,
    avoidance: false,
    segment: 1.0,
};
const READER: SillyWindowCase = SillyWindowCase { reader: true, ..NONE };

/// At 962 octets per second, 20 ms are 19.24 octets and 220 ms 211.64. A reader's window update waits 200 ms from its
/// first read. Reads of one octet are 1.0395 ms apart: 1 + 192 of them; reads of ten 10.395 ms: 1 + 19. With silly
/// window avoidance, it announces segments of 536 octets, which is less than half of its buffer of 2144.
const CASES: [SillyWindowCase; 13] = [
    NONE,
    SillyWindowCase { octets: 50, segment: 50.0, ..NONE },
    SillyWindowCase { nagle: true, segment: 19.24, ..NONE },
    SillyWindowCase { nagle: true, octets: 50, segment: 50.0, ..NONE },
    SillyWindowCase { delayed: true, ..NONE },
    SillyWindowCase { nagle: true, delayed: true, segment: 211.64, ..NONE },
    SillyWindowCase { avoidance: true, ..NONE },
    READER,
    SillyWindowCase { nagle: true, segment: 19.24, ..READER },
    SillyWindowCase { delayed: true, segment: 193.0, ..READER },
    SillyWindowCase { delayed: true, octets: 10, segment: 200.0, ..READER },
    SillyWindowCase { nagle: true, delayed: true, segment: 193.0, ..READER },
    SillyWindowCase { avoidance: true, segment: 536.0, ..READER },
];

impl SillyWindowCase {
    fn label(&self) -> String {
        let who = if self.reader { "a reader" } else { "a writer" };
        let helps = [(self.nagle, "Nagle"), (self.delayed, "delayed ACK"), (self.avoidance, "avoidance")];
        let helps: Vec<&str> = helps.into_iter().filter(|&(on, _)| on).map(|(_, name)| name).collect();
        let helps = if helps.is_empty() { "nothing".to_owned() } else { helps.join(" and ") };
        format!("{who} of {} B, {helps}", self.octets)
    }

    fn build_plan(&self) -> Result<StudyPlan, String> {
        let (nagle, avoidance, octets) = (self.nagle, self.avoidance, self.octets);
        let delayed = if self.delayed { "200 ms" } else { "off" };
        let (reads, writes) = if self.reader {
            (format!("read_rate = \"7696 b/s\"\nread_size = \"{octets} B\""), String::new())
        } else {
            (String::new(), format!("write_rate = \"7696 b/s\"\nwrite_size = \"{octets} B\""))
        };
        parse_study_plan(&format!(
            r#"
[run]
warmup = "10 s"
duration = "15 s"
drain = "240 s"
[run.replications]
min = 1
max = 1
[hosts.client]
[hosts.server]
[links.core]
between = ["client", "server"]
delay = "10 ms"
[transport.tcp]
nagle = {nagle}
delayed_ack = "{delayed}"
silly_window_avoidance = {avoidance}
mss = "536 B"
receive_buffer = "2144 B"
initial_window = "4 segments"
{reads}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{{ request = "5000 B", answer = "1 B" }}]
arrivals = {{ kind = "constant", interval = "2500 ms" }}
give_up = "unlimited"
{writes}
"#
        ))
    }

    /// Returns the data fraction: 5000 octets in segments and one octet of answer, with 40 octets of headers each.
    fn data_fraction(&self) -> f64 {
        5001.0 / (5001.0 + 40.0 * (5000.0 / self.segment + 1.0))
    }
}

fn compare_fraction(case: &SillyWindowCase, obtained: f64, may: f64) -> OracleFinding {
    let share = case.data_fraction();
    OracleFinding {
        case: case.label(),
        expected: format!("{share:.6}"),
        obtained: format!("{obtained:.6}"),
        tolerance: if may < SHARE { "rounding".to_owned() } else { format!("{} %", may * 100.0) },
        agrees: (obtained / share - 1.0).abs() <= may,
    }
}

fn check_closed_form_data_share() -> Result<Vec<OracleFinding>, String> {
    let one = |case: &SillyWindowCase| {
        let plan = case.build_plan()?;
        let point = plan.points.first().ok_or("the study has no point")?;
        let form = usher_theory::closed_form_value(ClosedFormName::TcpDataShare, &point.scenario)
            .ok_or("the form does not apply")?;
        Ok(compare_fraction(case, form, 1e-9))
    };
    CASES.iter().map(one).collect()
}

fn check_simulated_data_share() -> Result<Vec<OracleFinding>, String> {
    let one = |case: &SillyWindowCase| {
        let shares = simulate_metric(&case.build_plan()?, "tcp.data-share", 1)?;
        let share = shares.first().ok_or("the study did not run")?;
        Ok(compare_fraction(case, *share, if case.nagle && case.delayed { EARLY } else { SHARE }))
    };
    CASES.iter().map(one).collect()
}
