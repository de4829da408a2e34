//! MIH over UDP and TCP: compares the closed forms of `docs/explanation/mih.md` with simulated runs, and deterministic cases with
//! arithmetic.
//!
//! Mobile node and point of service have a link of 20 ms each way without a rate. In some cases they have an 802.11 cell
//! and two wired links, as in the study. Messages have 200 B and a period of 0.5 s. A response takes 0.2 s.

use crate::statistics::{ERRORS, compare_mean_with_theory, mean_and_error};
use crate::study::{parse_study_plan, simulate_metric};
use crate::{OracleFinding, VerificationOracle};
use usher_core::Duration;
use usher_scenario::{ClosedFormName, StudyPlan};

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "mih",
        name: "success",
        description: "share of MIH transactions over UDP that succeed, by loss: 1 - p, (1 - p)^2, 1 - p^3, \
                      and (1 - p^3)^2 for requests with MIH acknowledgement, less the effect of the \
                      standard's rule to give up",
        source: "docs/explanation/mih.md",
        run: check_mih_success,
    },
    VerificationOracle {
        group: "mih",
        name: "delay",
        description: "mean delay of those that succeed with MIH acknowledgement, by loss",
        source: "docs/explanation/mih.md",
        run: check_delay,
    },
    VerificationOracle {
        group: "mih",
        name: "overhead",
        description: "MIH packets for each message that carries information, with MIH acknowledgement, by loss",
        source: "docs/explanation/mih.md",
        run: check_overhead_by_loss,
    },
    VerificationOracle {
        group: "mih",
        name: "timeouts",
        description: "requests with MIH acknowledgement at 30 % loss, with timeouts below, near and above \
                      the whole delay: success below (1 - p^3)^2 by the effect of the rule to give up",
        source: "docs/explanation/mih.md",
        run: check_timeouts,
    },
    VerificationOracle {
        group: "mih",
        name: "limits",
        description: "MIH packets per message without loss: 2. If every acknowledgement comes after its \
                      timeout: 6 for an indication, and (3 + 3 + 3) / 2 for a request with an ignored \
                      response",
        source: "by hand; the limits are those of the NIST study of MIH's transport",
        run: check_limits,
    },
    VerificationOracle {
        group: "mih",
        name: "without-loss",
        description: "an indication through an 802.11 cell at 11 Mb/s and two wired links of 100 Mb/s and 10 \
                      ms: 20 ms and one access delay. That is DIFS 50 us, preamble 192 us, and 200 B with 8 \
                      of UDP, 40 of IPv6 and 36 of 802.11. Each wire carries 248 B, without framing. A \
                      request: both directions, and 200 ms",
        source: "IEEE 802.11-1999 section 9.2, 802.11b-1999 section 18, by hand",
        run: check_lossless_transactions,
    },
    VerificationOracle {
        group: "mih",
        name: "tcp",
        description: "mean delay and TCP segments of indications over TCP with a capped doubling timeout, \
                      against the model of one segment at a time, in its domain",
        source: "docs/explanation/mih.md, which says where the model holds",
        run: over_tcp,
    },
    VerificationOracle {
        group: "mih",
        name: "tcp-requests",
        description: "requests over TCP are slower than independent segments",
        source: "docs/explanation/mih.md",
        run: check_tcp_delay_bound,
    },
];

const REPLICATIONS: u32 = 24;
const MESSAGES: [&str; 2] = ["indication", "request"];
const LOSSES: [u32; 5] = [10, 20, 30, 40, 50];
/// Relative tolerance of TCP beyond random error, for full segments and rounded phases.
const SHARE: f64 = 0.02;

/// The parameters of a run.
#[derive(Clone, Copy)]
struct MihCase {
    message: &'static str,
    transport: &'static str,
    ack: bool,
    loss: u32,
    timeout_ms: u64,
    rto_max_ms: u64,
    seconds: u32,
}

const UDP: MihCase = MihCase {
    message: "indication",
    transport: "udp",
    ack: true,
    loss: 0,
    timeout_ms: 100,
    rto_max_ms: 1000,
    seconds: 300,
};

impl MihCase {
    fn build_plan(&self) -> Result<StudyPlan, String> {
        self.plan_over_network(&format!(
            "[hosts.mn]\n[hosts.pos]\n[links.lossy]\nbetween = [\"mn\", \"pos\"]\ndelay = \"20 ms\"\nloss = \"{} %\"\n\
             impaired_from = \"5 s\"\n",
            self.loss
        ))
    }

    fn plan_over_network(&self, network: &str) -> Result<StudyPlan, String> {
        let Self { message, transport, ack, timeout_ms, rto_max_ms, seconds, .. } = *self;
        parse_study_plan(&format!(
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

/// Returns the value of a form at a plan's point.
fn closed_form_at_plan(plan: &StudyPlan, form: ClosedFormName) -> Result<f64, String> {
    let point = plan.points.first().ok_or("the study has no point")?;
    usher_theory::closed_form_value(form, &point.scenario).ok_or(format!("{form} does not apply"))
}

/// Compares a metric with its form at each loss.
fn by_loss(
    name: &str,
    unit: &str,
    form: ClosedFormName,
    acks: &[bool],
) -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for (message, ack) in MESSAGES.into_iter().flat_map(|message| acks.iter().map(move |ack| (message, *ack)))
    {
        for loss in LOSSES {
            let case = MihCase { message, ack, loss, ..UDP };
            let plan = case.build_plan()?;
            let values = simulate_metric(&plan, name, REPLICATIONS)?;
            findings.push(compare_mean_with_theory(
                case.label(),
                unit,
                closed_form_at_plan(&plan, form)?,
                &values,
                0.05,
            ));
        }
    }
    Ok(findings)
}

fn check_mih_success() -> Result<Vec<OracleFinding>, String> {
    by_loss("success", "", ClosedFormName::MihSuccess, &[false, true])
}

fn check_delay() -> Result<Vec<OracleFinding>, String> {
    by_loss("delay.mean", "s", ClosedFormName::MihDelay, &[true])
}

fn check_overhead_by_loss() -> Result<Vec<OracleFinding>, String> {
    by_loss("mih.overhead", "packets", ClosedFormName::MihOverhead, &[true])
}

fn check_timeouts() -> Result<Vec<OracleFinding>, String> {
    let one = |timeout_ms| {
        let case = MihCase { message: "request", loss: 30, timeout_ms, seconds: 1000, ..UDP };
        let plan = case.build_plan()?;
        let bound = closed_form_at_plan(&plan, ClosedFormName::MihSuccessBound)?;
        let label = format!("{timeout_ms} ms, the bound being {bound:.6}");
        Ok(compare_mean_with_theory(
            label,
            "",
            closed_form_at_plan(&plan, ClosedFormName::MihSuccess)?,
            &simulate_metric(&plan, "success", REPLICATIONS)?,
            0.05,
        ))
    };
    [30, 50, 210, 1000].into_iter().map(one).collect()
}

/// Returns a metric of a single deterministic run.
fn single_run_metric(plan: &StudyPlan, name: &str) -> Result<f64, String> {
    simulate_metric(plan, name, 1)?.first().copied().ok_or(format!("the run has no {name}"))
}

fn check_limits() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for (message, timeout_ms, expected) in
        [("indication", 100, 2.0), ("request", 100, 2.0), ("indication", 10, 6.0), ("request", 10, 4.5)]
    {
        let obtained =
            single_run_metric(&MihCase { message, timeout_ms, ..UDP }.build_plan()?, "mih.overhead")?;
        findings.push(OracleFinding::expect_equal(
            format!("{message}s, {timeout_ms} ms"),
            expected,
            obtained,
        ));
    }
    Ok(findings)
}

/// The network of the study. Beacons are off, because they would delay one message in a hundred at random.
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

fn check_lossless_transactions() -> Result<Vec<OracleFinding>, String> {
    // In nanoseconds. A byte takes 8000 / 11 on the air, rounded up over the frame, and 80 on a wire.
    let air = 50_000 + 192_000 + (8_000 * (200 + 8 + 40 + 36_u64)).div_ceil(11);
    let wires = 2 * (10_000_000 + 80 * (200 + 8 + 40));
    let one_way = air + wires;
    let mut findings = Vec::new();
    for (message, expected) in [("indication", one_way), ("request", 2 * one_way + 200_000_000)] {
        let case = MihCase { message, ack: false, ..UDP };
        let obtained =
            Duration::from_secs_f64(single_run_metric(&case.plan_over_network(CELL)?, "delay.mean")?);
        let micros = |d: Duration| format!("{:.3} us", d.as_secs_f64() * 1e6);
        findings.push(OracleFinding::expect_equal(
            format!("an {message}").replace("an r", "a r"),
            micros(Duration::from_nanos(expected)),
            micros(obtained),
        ));
    }
    Ok(findings)
}

/// Compares a closed form with the mean of runs, with a tolerance for effects outside the model.
fn compare_to_form(case: String, unit: &str, theory: f64, values: &[f64]) -> OracleFinding {
    let (mean, error) = mean_and_error(values);
    let may = ERRORS * error + SHARE * theory;
    OracleFinding {
        case,
        expected: format!("{theory:.6} {unit}"),
        obtained: format!("{mean:.6} {unit}"),
        tolerance: format!(
            "{may:.6}, {ERRORS} standard errors of {} replications and {} %",
            values.len(),
            SHARE * 100.0
        ),
        agrees: (mean - theory).abs() <= may && error < 0.05 * theory,
    }
}

const fn mih_tcp_case(loss: u32, rto_max_ms: u64) -> MihCase {
    MihCase { transport: "tcp", ack: false, loss, rto_max_ms, seconds: 1000, ..UDP }
}

fn over_tcp() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for case in [
        mih_tcp_case(0, 1000),
        mih_tcp_case(10, 200),
        mih_tcp_case(10, 1000),
        mih_tcp_case(20, 300),
        mih_tcp_case(20, 500),
        mih_tcp_case(30, 200),
        mih_tcp_case(40, 200),
    ] {
        let plan = case.build_plan()?;
        for (name, form, unit) in [
            ("delay.mean", ClosedFormName::MihTcpDelay, "s"),
            ("tcp.per-mih-packet", ClosedFormName::MihTcpSegments, "segments"),
        ] {
            let values = simulate_metric(&plan, name, REPLICATIONS)?;
            let label = format!("{unit} at {} %, max RTO {} ms", case.loss, case.rto_max_ms);
            findings.push(compare_to_form(label, unit, closed_form_at_plan(&plan, form)?, &values));
        }
    }
    Ok(findings)
}

fn check_tcp_delay_bound() -> Result<Vec<OracleFinding>, String> {
    let one = |(loss, rto_max)| {
        let case = MihCase { message: "request", ..mih_tcp_case(loss, rto_max) };
        let plan = case.build_plan()?;
        let (bound, values) = (
            closed_form_at_plan(&plan, ClosedFormName::MihTcpDelay)?,
            simulate_metric(&plan, "delay.mean", REPLICATIONS)?,
        );
        let (mean, error) = mean_and_error(&values);
        Ok(OracleFinding {
            case: format!("{loss} %, max RTO {rto_max} ms"),
            expected: format!("{bound:.6} s or more"),
            obtained: format!("{mean:.6} s"),
            tolerance: format!(
                "{:.6}, {ERRORS} standard errors of {REPLICATIONS} replications",
                ERRORS * error
            ),
            agrees: mean >= bound - ERRORS * error,
        })
    };
    [(10, 200), (30, 300), (50, 1000)].into_iter().map(one).collect()
}
