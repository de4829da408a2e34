//! Silly windows: the closed form of `docs/silly-window.md` held against arithmetic by hand, and against the
//! simulator's TCP.
//!
//! Client and server are 10 ms apart, on a link without a rate. Requests of 5000 octets are written, or read, so many
//! octets at a time and 962 octets a second; the answer is one octet. Headers are 20 octets of IPv4 and 20 of TCP. The
//! first ten seconds, in which a reader's buffer fills by whole segments, do not count.

use crate::study::{metric, plan};
use crate::{Finding, Oracle};
use usher_scenario::{Form, Plan};

pub(crate) const ORACLES: &[Oracle] = &[
    Oracle {
        group: "tcp",
        name: "silly-windows-form",
        about: "the closed form of the share of data in packets with data (tcp-data-share), for each cell of its table: \
                octets in a segment from the slow side's rate, a round trip of 20 ms and an acknowledgement's delay of \
                200 ms",
        source: "docs/silly-window.md; one octet in 41 is Kim, Cha and Choi's, section 3.2; by hand",
        run: form,
    },
    Oracle {
        group: "tcp",
        name: "silly-windows",
        about: "the same shares of a study that runs: a slow writer and a slow reader of an octet at a time, with each \
                avoidance",
        source: "docs/silly-window.md, by hand",
        run: simulated,
    },
];

/// How far runs may be from the form, as a share of it: the last segment of a request is not full.
const SHARE: f64 = 0.02;
/// The same where a delayed acknowledgement is what a segment waits for: it rides on each request's answer, early.
const EARLY: f64 = 0.04;

/// Who is slow, octets at a time, what helps, and the octets of a segment that come of it.
#[derive(Clone, Copy)]
struct Case {
    reader: bool,
    octets: u32,
    nagle: bool,
    delayed: bool,
    avoidance: bool,
    segment: f64,
}

const NONE: Case =
    Case { reader: false, octets: 1, nagle: false, delayed: false, avoidance: false, segment: 1.0 };
const READER: Case = Case { reader: true, ..NONE };

/// With 962 octets a second, 20 ms are 19.24 octets and 220 ms 211.64. A reader's news of room waits 200 ms from its
/// first read on, and its reads of an octet are 1.0395 ms apart: 1 + 192 of them; of ten octets 10.395 ms: 1 + 19. Where it
/// avoids silly windows it tells of room by the segment of 536 octets, which is less than half of its buffer of 2144.
const CASES: [Case; 13] = [
    NONE,
    Case { octets: 50, segment: 50.0, ..NONE },
    Case { nagle: true, segment: 19.24, ..NONE },
    Case { nagle: true, octets: 50, segment: 50.0, ..NONE },
    Case { delayed: true, ..NONE },
    Case { nagle: true, delayed: true, segment: 211.64, ..NONE },
    Case { avoidance: true, ..NONE },
    READER,
    Case { nagle: true, segment: 19.24, ..READER },
    Case { delayed: true, segment: 193.0, ..READER },
    Case { delayed: true, octets: 10, segment: 200.0, ..READER },
    Case { nagle: true, delayed: true, segment: 193.0, ..READER },
    Case { avoidance: true, segment: 536.0, ..READER },
];

impl Case {
    fn label(&self) -> String {
        let who = if self.reader { "a reader" } else { "a writer" };
        let helps = [(self.nagle, "Nagle"), (self.delayed, "delayed ACK"), (self.avoidance, "avoidance")];
        let helps: Vec<&str> = helps.into_iter().filter(|&(on, _)| on).map(|(_, name)| name).collect();
        let helps = if helps.is_empty() { "nothing".to_owned() } else { helps.join(" and ") };
        format!("{who} of {} B, {helps}", self.octets)
    }

    fn plan(&self) -> Result<Plan, String> {
        let (nagle, avoidance, octets) = (self.nagle, self.avoidance, self.octets);
        let delayed = if self.delayed { "200 ms" } else { "off" };
        let (reads, writes) = if self.reader {
            (format!("read_rate = \"7696 b/s\"\nread_size = \"{octets} B\""), String::new())
        } else {
            (String::new(), format!("write_rate = \"7696 b/s\"\nwrite_size = \"{octets} B\""))
        };
        plan(&format!(
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

    /// 5000 octets in segments, one octet of answer, and 40 octets of headers on each.
    fn share(&self) -> f64 {
        5001.0 / (5001.0 + 40.0 * (5000.0 / self.segment + 1.0))
    }
}

fn finding(case: &Case, obtained: f64, may: f64) -> Finding {
    let share = case.share();
    Finding {
        case: case.label(),
        expected: format!("{share:.6}"),
        obtained: format!("{obtained:.6}"),
        tolerance: if may < SHARE { "rounding".to_owned() } else { format!("{} %", may * 100.0) },
        holds: (obtained / share - 1.0).abs() <= may,
    }
}

fn form() -> Result<Vec<Finding>, String> {
    let one = |case: &Case| {
        let plan = case.plan()?;
        let point = plan.points.first().ok_or("the study has no point")?;
        let form =
            usher_theory::value(Form::TcpDataShare, &point.scenario).ok_or("the form does not apply")?;
        Ok(finding(case, form, 1e-9))
    };
    CASES.iter().map(one).collect()
}

fn simulated() -> Result<Vec<Finding>, String> {
    let one = |case: &Case| {
        let shares = metric(&case.plan()?, "tcp.data-share", 1)?;
        let share = shares.first().ok_or("the study was not run")?;
        Ok(finding(case, *share, if case.nagle && case.delayed { EARLY } else { SHARE }))
    };
    CASES.iter().map(one).collect()
}
