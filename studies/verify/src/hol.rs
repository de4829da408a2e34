//! Head-of-line delay: compares the closed forms of `docs/explanation/head-of-line.md` with a direct simulation of their model.
//! Also compares them with the simulator's transports, within the model's assumptions.

use crate::statistics::{ERRORS, compare_mean_with_theory, mean_and_error};
use crate::study::{parse_study_plan, simulate_metric};
use crate::wire::{MessageLinkConfig, MessageTransport, ScheduledWireMessage, simulate_planned_messages};
use crate::{OracleFinding, VerificationOracle};
use usher_core::impair::LossModel;
use usher_core::{Duration, Instant, Seed};
use usher_scenario::ClosedFormName;
use usher_sim::{sctp, tcp};
use usher_theory::hol::HeadOfLineModel;

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "hol",
        name: "model",
        description: "mean delay that losses add: the closed form against a simulation of its model, message \
                      by message",
        source: "docs/explanation/head-of-line.md",
        run: check_played_model,
    },
    VerificationOracle {
        group: "hol",
        name: "distribution",
        description: "the share of messages delivered within 0, 0.5, 1 and 1.5 repair times",
        source: "docs/explanation/head-of-line.md",
        run: check_delay_distribution,
    },
    VerificationOracle {
        group: "hol",
        name: "tcp",
        description: "the simulator's TCP with a fixed timeout, without fast retransmit, over one connection and over \
                several",
        source: "docs/explanation/head-of-line.md, which explains the tolerance beyond chance",
        run: over_tcp,
    },
    VerificationOracle {
        group: "hol",
        name: "sctp",
        description: "the simulator's SCTP with a fixed timeout, on one stream and on several of one association",
        source: "docs/explanation/head-of-line.md, which explains the tolerance beyond chance",
        run: over_sctp,
    },
    VerificationOracle {
        group: "hol",
        name: "study",
        description: "dialogues of a study over their clients' TCP connections, against hol-delay, the \
                      closed form in its figures",
        source: "docs/explanation/head-of-line.md",
        run: check_study_delay,
    },
];

const REPLICATIONS: u64 = 24;

/// Simulates the model. Returns the mean added delay in repair times, and the share of messages within each of
/// [`BOUNDS`].
fn simulate_hol_model(model: &HeadOfLineModel, seed: Seed, messages: u32) -> (f64, [f64; 4]) {
    let mut gaps = seed.derive_rng("gaps", 0);
    let mut losses = seed.derive_rng("losses", 0);
    let mut streams = seed.derive_rng("streams", 0);
    // Time by which all earlier messages of a stream are delivered.
    let mut clear = vec![0.0_f64; model.streams as usize];
    let (mut now, mut sum, mut shares) = (0.0, 0.0, [0.0; 4]);
    for _ in 0..messages {
        now -= libm::log(1.0 - gaps.sample_unit()) / (model.rate * model.repair);
        let mut repaired = now;
        while losses.sample_bool(model.loss) {
            repaired += 1.0;
        }
        let stream = &mut clear[streams.sample_below(u64::from(model.streams)) as usize];
        *stream = stream.max(repaired);
        let delay = *stream - now;
        sum += delay;
        for (share, bound) in shares.iter_mut().zip(BOUNDS) {
            *share += f64::from(u8::from(delay <= bound));
        }
    }
    let n = f64::from(messages);
    (sum / n, shares.map(|s| s / n))
}

/// Bounds of the added delay, in repair times.
const BOUNDS: [f64; 4] = [0.0, 0.5, 1.0, 1.5];

const fn hol_model(loss: f64, load: f64, streams: u32) -> HeadOfLineModel {
    HeadOfLineModel { rate: load, loss, repair: 1.0, streams }
}

fn check_played_model() -> Result<Vec<OracleFinding>, String> {
    let cases = [
        hol_model(0.01, 3.0, 1),
        hol_model(0.01, 3.0, 4),
        hol_model(0.1, 1.0, 1),
        hol_model(0.1, 20.0, 1),
        hol_model(0.1, 20.0, 8),
        hol_model(0.3, 5.0, 2),
    ];
    let one = |case: &HeadOfLineModel| {
        let means: Vec<f64> = (0..REPLICATIONS)
            .map(|r| simulate_hol_model(case, Seed::new(2).derive_seed("play", r), 20_000).0)
            .collect();
        compare_mean_with_theory(
            hol_case_label(case, "streams"),
            "repair times",
            case.mean_delay(),
            &means,
            0.05,
        )
    };
    Ok(cases.iter().map(one).collect())
}

fn hol_case_label(model: &HeadOfLineModel, of: &str) -> String {
    let HeadOfLineModel { rate, loss, repair, streams } = *model;
    let of = if streams == 1 { of.trim_end_matches('s') } else { of };
    format!("loss {} %, {} messages a repair time, {streams} {of}", loss * 100.0, rate * repair)
}

fn check_delay_distribution() -> Result<Vec<OracleFinding>, String> {
    let case = hol_model(0.1, 4.0, 2);
    let shares: Vec<[f64; 4]> = (0..REPLICATIONS)
        .map(|r| simulate_hol_model(&case, Seed::new(3).derive_seed("play", r), 20_000).1)
        .collect();
    let one = |i: usize| {
        let values: Vec<f64> = shares.iter().map(|s| s[i]).collect();
        compare_mean_with_theory(
            format!("within {} repair times", BOUNDS[i]),
            "",
            case.delay_distribution(BOUNDS[i]),
            &values,
            0.05,
        )
    };
    Ok((0..BOUNDS.len()).map(one).collect())
}

/// The fixed retransmission timeout.
const REPAIR: Duration = Duration::from_millis(100);
/// One-way delay: small compared with the timeout and the time between messages.
const DELAY: Duration = Duration::from_micros(10);
/// End of the set-up and beginning of loss.
const BEGIN: Instant = Instant::from_nanos(1_000_000_000);
/// Size in bytes: small, so that a window of one segment holds many messages.
const MESSAGE: u32 = 20;
const MESSAGES: u32 = 30_000;

/// Returns the mean added delay of the simulator's messages in repair times, by replication.
fn simulated_delays(model: &HeadOfLineModel, carrier: &MessageTransport) -> Result<Vec<f64>, String> {
    let way = MessageLinkConfig {
        rate: None,
        delay: DELAY,
        loss: LossModel::Bernoulli(model.loss),
        lossy_from: BEGIN,
        captures_packets: false,
    };
    let gap = REPAIR.mul_f64(1.0 / model.rate);
    let one = |replication| {
        let seed = Seed::new(4).derive_seed("hol", replication);
        let (mut gaps, mut lanes) = (seed.derive_rng("gaps", 0), seed.derive_rng("lanes", 0));
        let mut at = BEGIN;
        let plan: Vec<ScheduledWireMessage> = (0..MESSAGES)
            .map(|_| {
                at += gaps.sample_exponential(gap);
                ScheduledWireMessage {
                    send_at: at,
                    lane: lanes.sample_below(u64::from(model.streams)) as u32,
                    bytes: MESSAGE,
                }
            })
            .collect();
        let until = at + Duration::from_secs(60);
        let outcome = simulate_planned_messages(seed, carrier.clone(), &way, &plan, until)
            .map_err(|e| e.to_string())?;
        let mut sum = 0.0;
        for (planned, delivered) in plan.iter().zip(outcome.delivered) {
            let delivered = delivered.ok_or("a message was not delivered")?;
            sum += (delivered.duration_since(planned.send_at) - DELAY).as_secs_f64();
        }
        Ok(sum / f64::from(MESSAGES) / REPAIR.as_secs_f64())
    };
    (0..REPLICATIONS).map(one).collect()
}

/// Relative tolerance beyond random error, for overlapping losses.
const SHARE: f64 = 0.03;

/// Compares a closed form with simulated values.
fn compare_to_form(case: String, theory: f64, values: &[f64]) -> OracleFinding {
    let (mean, error) = mean_and_error(values);
    let may = ERRORS * error + SHARE * theory;
    OracleFinding {
        case,
        expected: format!("{theory:.6} repair times"),
        obtained: format!("{mean:.6} repair times"),
        tolerance: format!(
            "{may:.6}, {ERRORS} standard errors of {REPLICATIONS} replications and {} %",
            SHARE * 100.0
        ),
        agrees: (mean - theory).abs() <= may && error < 0.03 * theory,
    }
}

fn compare_simulation(model: &HeadOfLineModel, carrier: &MessageTransport) -> Result<OracleFinding, String> {
    let of = if matches!(carrier, MessageTransport::Tcp(..)) { "connections" } else { "streams" };
    Ok(compare_to_form(hol_case_label(model, of), model.mean_delay(), &simulated_delays(model, carrier)?))
}

fn over_tcp() -> Result<Vec<OracleFinding>, String> {
    let config = tcp::TcpConfig {
        nagle: false,
        delayed_ack: None,
        limited_transmit: false,
        dup_threshold: u8::MAX,
        initial_rto: REPAIR,
        min_rto: REPAIR,
        max_rto: REPAIR,
        max_retransmissions: None,
        ..tcp::TcpConfig::default()
    };
    let case = |streams| {
        compare_simulation(&hol_model(0.01, 3.0, streams), &MessageTransport::Tcp(streams, config.clone()))
    };
    [1, 2, 4].into_iter().map(case).collect()
}

fn over_sctp() -> Result<Vec<OracleFinding>, String> {
    let config = sctp::SctpConfig {
        sack_delay: None,
        rto_initial: REPAIR,
        rto_min: REPAIR,
        rto_max: REPAIR,
        max_association_retransmissions: None,
        max_path_retransmissions: u32::MAX,
        heartbeat_interval: None,
        ..sctp::SctpConfig::default()
    };
    let case = |streams: u16| {
        // Fast retransmission needs three later messages within the timeout, which is rare at this rate.
        compare_simulation(
            &hol_model(0.01, 0.5, u32::from(streams)),
            &MessageTransport::Sctp(streams, config.clone()),
        )
    };
    [1, 4].into_iter().map(case).collect()
}

fn check_study_delay() -> Result<Vec<OracleFinding>, String> {
    let text = |clients: u32| {
        format!(
            r#"
[run]
duration = "4000 s"
[run.replications]
min = 2
max = 2
[hosts.client]
count = {clients}
[hosts.server]
[links.lossy]
between = ["client", "server"]
delay = "10 us"
up = {{ loss = "1 %" }}
[transport.tcp]
nagle = false
delayed_ack = "off"
rto_initial = "100 ms"
rto_min = "100 ms"
rto_max = "100 ms"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{{ request = "20 B", answer = "20 B" }}]
give_up = "unlimited"
arrivals = {{ kind = "poisson", rate = "5 /s", start = "1 s" }}
"#
        )
    };
    let mut findings = Vec::new();
    for clients in [1, 4] {
        let plan = parse_study_plan(&text(clients))?;
        let scenario = &plan.points.first().ok_or("the study has no point")?.scenario;
        let theory = usher_theory::closed_form_value(ClosedFormName::HolDelay, scenario)
            .ok_or("the form does not apply")?;
        let delays = simulate_metric(&plan, "delay.mean", REPLICATIONS as u32)?;
        let delays: Vec<f64> = delays.into_iter().map(|s| s / REPAIR.as_secs_f64()).collect();
        let case = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
        findings.push(compare_to_form(case, theory / REPAIR.as_secs_f64(), &delays));
    }
    Ok(findings)
}
