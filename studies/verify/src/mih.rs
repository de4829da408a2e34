//! MIH over UDP and TCP: the closed forms of `docs/mih.md` held against the simulator's runs, and what no chance is in
//! against arithmetic.
//!
//! Mobile node and point of service have one link of 20 ms each way without a rate, or an 802.11 cell and two wired links
//! as in the study. Messages have 200 B and come every 0.5 s; a request is answered after 0.2 s.

use crate::statistics::{ERRORS, mean, within};
use crate::study::{metric, plan};
use crate::{Finding, Oracle};
use usher_core::Duration;
use usher_scenario::{Form, Plan};

pub(crate) const ORACLES: &[Oracle] = &[
    Oracle {
        group: "mih",
        name: "success",
        about: "share of MIH transactions over UDP that succeed, by loss: 1 - p, (1 - p)^2, 1 - p^3, and for requests with \
                MIH acknowledgement what the standard's rule to give up makes of (1 - p^3)^2",
        source: "docs/mih.md",
        run: success,
    },
    Oracle {
        group: "mih",
        name: "delay",
        about: "mean delay of those that succeed with MIH acknowledgement, by loss",
        source: "docs/mih.md",
        run: delay,
    },
    Oracle {
        group: "mih",
        name: "overhead",
        about: "MIH packets for each message that carries information, with MIH acknowledgement, by loss",
        source: "docs/mih.md",
        run: overhead,
    },
    Oracle {
        group: "mih",
        name: "timeouts",
        about: "requests with MIH acknowledgement at 30 % loss and timeouts below the whole delay, near it and above: success \
                below (1 - p^3)^2 as far as the rule to give up takes it",
        source: "docs/mih.md",
        run: timeouts,
    },
    Oracle {
        group: "mih",
        name: "limits",
        about: "MIH packets per message without loss: 2; and where every acknowledgement comes after its timeout: 6 for an \
                indication, (3 + 3 + 3) / 2 for a request whose response is ignored",
        source: "by hand; the limits are those of the NIST study of MIH's transport",
        run: limits,
    },
    Oracle {
        group: "mih",
        name: "without-loss",
        about: "an indication through an 802.11 cell at 11 Mb/s and two wired links of 100 Mb/s and 10 ms: 20 ms and one \
                access delay, DIFS 50 us, preamble 192 us, and 200 B with 8 of UDP, 40 of IPv6 and 36 of 802.11; twice 248 B \
                on a wire, whose framing is left out. A request: both ways, and 200 ms",
        source: "IEEE 802.11-1999 section 9.2, 802.11b-1999 section 18, by hand",
        run: without_loss,
    },
    Oracle {
        group: "mih",
        name: "tcp",
        about: "mean delay of indications over TCP with a capped doubling timeout, and TCP segments for each, against the \
                model of one segment at a time, in its domain",
        source: "docs/mih.md, which says where the model holds",
        run: over_tcp,
    },
    Oracle {
        group: "mih",
        name: "tcp-requests",
        about: "requests over TCP are slower than segments that nothing waits for",
        source: "docs/mih.md",
        run: bound_over_tcp,
    },
];

const REPLICATIONS: u32 = 24;
const MESSAGES: [&str; 2] = ["indication", "request"];
const LOSSES: [u32; 5] = [10, 20, 30, 40, 50];
/// How far the simulator's TCP may be from its model beyond chance, as a share: for messages that find no room in a segment
/// and phases that are rounded.
const SHARE: f64 = 0.02;

/// What differs between the runs.
#[derive(Clone, Copy)]
struct Case {
    message: &'static str,
    transport: &'static str,
    ack: bool,
    loss: u32,
    timeout_ms: u64,
    rto_max_ms: u64,
    seconds: u32,
}

const UDP: Case = Case {
    message: "indication",
    transport: "udp",
    ack: true,
    loss: 0,
    timeout_ms: 100,
    rto_max_ms: 1000,
    seconds: 300,
};

impl Case {
    fn plan(&self) -> Result<Plan, String> {
        self.through(&format!(
            "[hosts.mn]\n[hosts.pos]\n[links.lossy]\nbetween = [\"mn\", \"pos\"]\ndelay = \"20 ms\"\nloss = \"{} %\"\n\
             impaired_from = \"5 s\"\n",
            self.loss
        ))
    }

    fn through(&self, network: &str) -> Result<Plan, String> {
        let Self { message, transport, ack, timeout_ms, rto_max_ms, seconds, .. } = *self;
        plan(&format!(
            r#"
[run]
duration = "{seconds} s"
warmup = "5 s"
drain = "2000 s"
ip = "v6"
[run.replications]
min = 2
max = 2
{network}
[transport.tcp]
delayed_ack = "off"
rto_initial = "200 ms"
rto_min = "200 ms"
rto_max = "{rto_max_ms} ms"
retransmissions = "unlimited"
mss = "1280 B"
[workload]
kind = "mih"
mn = "mn"
pos = "pos"
message = "{message}"
transport = "{transport}"
ack = {ack}
size = "200 B"
processing = "200 ms"
timing = {{ retransmission = "{timeout_ms} ms", retransmissions = 2 }}
arrivals = {{ kind = "constant", interval = "500 ms", start = "5 s" }}
"#
        ))
    }

    fn label(&self) -> String {
        let Self { message, ack, loss, .. } = *self;
        format!("{message}s {} acknowledgement, {loss} %", if ack { "with" } else { "without" })
    }
}

/// What a form gives for a plan's point.
fn theory(plan: &Plan, form: Form) -> Result<f64, String> {
    let point = plan.points.first().ok_or("the study has no point")?;
    usher_theory::value(form, &point.scenario).ok_or(format!("{form} does not apply"))
}

/// A metric against its form at each loss.
fn by_loss(name: &str, unit: &str, form: Form, acks: &[bool]) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (message, ack) in MESSAGES.into_iter().flat_map(|message| acks.iter().map(move |ack| (message, *ack)))
    {
        for loss in LOSSES {
            let case = Case { message, ack, loss, ..UDP };
            let plan = case.plan()?;
            let values = metric(&plan, name, REPLICATIONS)?;
            findings.push(within(case.label(), unit, theory(&plan, form)?, &values, 0.05));
        }
    }
    Ok(findings)
}

fn success() -> Result<Vec<Finding>, String> {
    by_loss("success", "", Form::MihSuccess, &[false, true])
}

fn delay() -> Result<Vec<Finding>, String> {
    by_loss("delay.mean", "s", Form::MihDelay, &[true])
}

fn overhead() -> Result<Vec<Finding>, String> {
    by_loss("mih.overhead", "packets", Form::MihOverhead, &[true])
}

fn timeouts() -> Result<Vec<Finding>, String> {
    let one = |timeout_ms| {
        let case = Case { message: "request", loss: 30, timeout_ms, seconds: 1000, ..UDP };
        let plan = case.plan()?;
        let bound = theory(&plan, Form::MihSuccessBound)?;
        let label = format!("{timeout_ms} ms, the bound being {bound:.6}");
        Ok(within(
            label,
            "",
            theory(&plan, Form::MihSuccess)?,
            &metric(&plan, "success", REPLICATIONS)?,
            0.05,
        ))
    };
    [30, 50, 210, 1000].into_iter().map(one).collect()
}

/// A metric of one run, in which there is no chance.
fn sure(plan: &Plan, name: &str) -> Result<f64, String> {
    metric(plan, name, 1)?.first().copied().ok_or(format!("the run has no {name}"))
}

fn limits() -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for (message, timeout_ms, expected) in
        [("indication", 100, 2.0), ("request", 100, 2.0), ("indication", 10, 6.0), ("request", 10, 4.5)]
    {
        let obtained = sure(&Case { message, timeout_ms, ..UDP }.plan()?, "mih.overhead")?;
        findings.push(Finding::equal(format!("{message}s, {timeout_ms} ms"), expected, obtained));
    }
    Ok(findings)
}

/// The network of the study; beacons, which would delay one message in a hundred by chance, are off.
const CELL: &str = r#"
[hosts.mn]
[hosts.ap]
[hosts.router]
[hosts.pos]
[bss.wlan]
access_point = "ap"
stations = "mn"
beacons = "off"
[links.access]
between = ["ap", "router"]
rate = "100 Mb/s"
delay = "10 ms"
[links.core]
between = ["router", "pos"]
rate = "100 Mb/s"
delay = "10 ms"
"#;

fn without_loss() -> Result<Vec<Finding>, String> {
    // In nanoseconds; a byte takes 8000 / 11 of them on the air, rounded up over the frame, and 80 on a wire.
    let air = 50_000 + 192_000 + (8_000 * (200 + 8 + 40 + 36_u64)).div_ceil(11);
    let wires = 2 * (10_000_000 + 80 * (200 + 8 + 40));
    let one_way = air + wires;
    let mut findings = Vec::new();
    for (message, expected) in [("indication", one_way), ("request", 2 * one_way + 200_000_000)] {
        let case = Case { message, ack: false, ..UDP };
        let obtained = Duration::from_secs_f64(sure(&case.through(CELL)?, "delay.mean")?);
        let micros = |d: Duration| format!("{:.3} us", d.as_secs_f64() * 1e6);
        findings.push(Finding::equal(
            format!("an {message}").replace("an r", "a r"),
            micros(Duration::from_nanos(expected)),
            micros(obtained),
        ));
    }
    Ok(findings)
}

/// A closed form against the mean of runs, with the tolerance for what it leaves out.
fn near(case: String, unit: &str, theory: f64, values: &[f64]) -> Finding {
    let (mean, error) = mean(values);
    let may = ERRORS * error + SHARE * theory;
    Finding {
        case,
        expected: format!("{theory:.6} {unit}"),
        obtained: format!("{mean:.6} {unit}"),
        tolerance: format!(
            "{may:.6}, {ERRORS} standard errors of {} replications and {} %",
            values.len(),
            SHARE * 100.0
        ),
        holds: (mean - theory).abs() <= may && error < 0.05 * theory,
    }
}

const fn over(loss: u32, rto_max_ms: u64) -> Case {
    Case { transport: "tcp", ack: false, loss, rto_max_ms, seconds: 1000, ..UDP }
}

fn over_tcp() -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for case in [
        over(0, 1000),
        over(10, 200),
        over(10, 1000),
        over(20, 300),
        over(20, 500),
        over(30, 200),
        over(40, 200),
    ] {
        let plan = case.plan()?;
        for (name, form, unit) in
            [("delay.mean", Form::MihTcpDelay, "s"), ("tcp.per-mih-packet", Form::MihTcpSegments, "segments")]
        {
            let values = metric(&plan, name, REPLICATIONS)?;
            let label = format!("{unit} at {} %, max RTO {} ms", case.loss, case.rto_max_ms);
            findings.push(near(label, unit, theory(&plan, form)?, &values));
        }
    }
    Ok(findings)
}

fn bound_over_tcp() -> Result<Vec<Finding>, String> {
    let one = |(loss, rto_max)| {
        let case = Case { message: "request", ..over(loss, rto_max) };
        let plan = case.plan()?;
        let (bound, values) = (theory(&plan, Form::MihTcpDelay)?, metric(&plan, "delay.mean", REPLICATIONS)?);
        let (mean, error) = mean(&values);
        Ok(Finding {
            case: format!("{loss} %, max RTO {rto_max} ms"),
            expected: format!("{bound:.6} s or more"),
            obtained: format!("{mean:.6} s"),
            tolerance: format!(
                "{:.6}, {ERRORS} standard errors of {REPLICATIONS} replications",
                ERRORS * error
            ),
            holds: mean >= bound - ERRORS * error,
        })
    };
    [(10, 200), (30, 300), (50, 1000)].into_iter().map(one).collect()
}
