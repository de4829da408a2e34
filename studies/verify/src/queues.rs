//! Queues at the simulator's links and processors, compared with queueing theory.

use crate::statistics::{compare_mean_with_theory, mean_and_error};
use crate::study::{parse_study_plan, simulate_metric};
use crate::{OracleFinding, VerificationOracle};
use std::collections::VecDeque;
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, Seed, SimulationRng, WorkRecord};
use usher_sim::{
    AppContext, AppDelivery, Application, BatchReceiveCost, CpuConfig, HostId, IpVersion, LinkConfig,
    Payload, ReportObserver, ServiceTime, SimError, Simulation, SimulationBuilder,
};
use usher_theory::queues::{ServerQueue, erlang_c};

usher_core::work_labels! {
    /// A customer served.
    JOB = "job" per "customer";
}

pub(crate) const ORACLES: &[VerificationOracle] = &[
    VerificationOracle {
        group: "queues",
        name: "mm1-link",
        description: "M/M/1: Poisson arrivals of packets of exponentially distributed size at a link; mean wait \
                ρs / (1 - ρ) with mean service s",
        source: "Kleinrock, Queueing Systems 1, 1975, section 3.2",
        run: check_mm1_link,
    },
    VerificationOracle {
        group: "queues",
        name: "md1-link",
        description: "M/D/1: Poisson arrivals of packets of one size at a link; mean wait ρs / (2 (1 - ρ)), of Pollaczek \
                and Khinchine",
        source: "Kleinrock, Queueing Systems 1, 1975, section 5.6",
        run: check_md1_link,
    },
    VerificationOracle {
        group: "queues",
        name: "mg1-cpu",
        description: "M/G/1 at a processor of one core, service uniform from 0 to 2s: mean wait ρs (1 + c²) / (2 (1 - ρ)) \
                with c² = 1/3",
        source: "Kleinrock, Queueing Systems 1, 1975, section 5.6",
        run: check_mg1_cpu,
    },
    VerificationOracle {
        group: "queues",
        name: "md1-cpu",
        description: "M/D/1 at a processor of one core: mean wait ρs / (2 (1 - ρ))",
        source: "Kleinrock, Queueing Systems 1, 1975, section 5.6",
        run: check_md1_cpu,
    },
    VerificationOracle {
        group: "queues",
        name: "mmc-cpu",
        description: "M/M/c at a processor of c cores with exponential service: mean wait C(c, ρc) s / (c (1 \
                      - ρ)), with the probability of waiting C by Erlang's second formula",
        source: "Kleinrock, Queueing Systems 1, 1975, section 3.5",
        run: check_mmc_cpu,
    },
    VerificationOracle {
        group: "queues",
        name: "mgc-cpu",
        description: "M/G/c at a processor of c cores: mean wait of M/M/c times (1 + c²) / 2, an \
                      approximation within 8 % here. Service is constant (c² = 0) or uniform from 0 to 2s \
                      (c² = 1/3)",
        source: "Allen, Probability, Statistics and Queueing Theory, 2nd ed. 1990, section 5.3 (Allen and Cunneen)",
        run: check_mgc_cpu,
    },
    VerificationOracle {
        group: "queues",
        name: "mmc-study",
        description: "M/M/c from a study file with random service times at the server: mean delay of a \
                      dialogue over a perfect link, service included",
        source: "Kleinrock, Queueing Systems 1, 1975, section 3.5",
        run: check_mmc_study,
    },
];

/// Mean service time of every queue.
const SERVICE: Duration = Duration::from_millis(1);
const REPLICATIONS: u64 = 24;
/// Customers of a replication's warm-up, which are not counted.
const WARM_UP: u64 = 2_000;
const COUNTED: u64 = 12_000;
/// Limit of the standard error, relative to its mean.
const WIDEST: f64 = 0.05;

/// Distribution of packet sizes.
#[derive(Clone, Copy, Debug)]
enum PacketSizeDistribution {
    Constant(u32),
    /// Exponential with this mean, headers included. A size below the headers becomes the headers' size.
    Exponential(u32),
}

/// Octets of the IPv4 and UDP headers.
const HEADERS: u32 = 28;
/// Bytes of a mean packet. Fewer than 3 in 10,000 exponential sizes are below the 28 bytes of headers and are rounded
/// up, by less than 28 bytes.
const MEAN_SIZE: u32 = 100_000;
/// Rate at which a mean packet takes [`SERVICE`].
const RATE: u64 = MEAN_SIZE as u64 * 8 * 1_000_000_000 / SERVICE.as_nanos();

#[derive(Debug)]
enum QueueApp {
    /// Sends datagrams after exponentially distributed gaps.
    Source {
        to: HostId,
        gap: Duration,
        size: PacketSizeDistribution,
        rng: SimulationRng,
        size_rng: SimulationRng,
    },
    /// Receives them.
    Sink,
}

/// A report: a packet of this many bytes was sent, or a packet arrived.
#[derive(Debug)]
enum QueueAppReport {
    Sent(u32),
    Arrived,
}

impl Application for QueueApp {
    type Report = QueueAppReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, QueueAppReport>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Source { to, gap, size, rng, size_rng }, AppDelivery::Start | AppDelivery::Timer) => {
                // No customer arrives at the start, when the first gap begins.
                if ctx.now() > Instant::ZERO {
                    let payload = match *size {
                        PacketSizeDistribution::Constant(bytes) => bytes,
                        PacketSizeDistribution::Exponential(mean) => {
                            let drawn = size_rng.sample_exponential(Duration::from_nanos(u64::from(mean)));
                            drawn.as_nanos() as u32
                        }
                    }
                    .saturating_sub(HEADERS);
                    ctx.report(QueueAppReport::Sent(payload + HEADERS));
                    ctx.send_datagram(0, *to, 7, Payload::with_length(payload));
                }
                ctx.set_timer(Some(ctx.now() + rng.sample_exponential(*gap)));
            }
            (Self::Sink, AppDelivery::Datagram { .. }) => {
                ctx.charge_work(WorkRecord { label: JOB, units: 1 });
                ctx.report(QueueAppReport::Arrived);
            }
            _ => {}
        }
    }
}

/// Sums the waits of packets at a link, which keeps packets in order.
#[derive(Debug)]
struct QueueWaitObserver {
    /// Nanoseconds per byte on the link; `None` if waits are not measured.
    per_byte: Option<u64>,
    in_flight: VecDeque<(Instant, u32)>,
    arrived: u64,
    nanoseconds: u64,
}

impl ReportObserver<QueueAppReport> for QueueWaitObserver {
    fn handle_report(&mut self, now: Instant, _: u32, report: QueueAppReport) {
        match report {
            QueueAppReport::Sent(bytes) => self.in_flight.push_back((now, bytes)),
            QueueAppReport::Arrived => {
                let Some((sent, bytes)) = self.in_flight.pop_front() else { return };
                self.arrived += 1;
                if let Some(per_byte) = self.per_byte.filter(|_| self.arrived > WARM_UP) {
                    self.nanoseconds += now.duration_since(sent).as_nanos() - u64::from(bytes) * per_byte;
                }
            }
        }
    }
    fn is_done(&self) -> bool {
        self.per_byte.is_some() && self.arrived >= WARM_UP + COUNTED
    }
}

/// Builds a source and a sink, a link at this rate between them, and a processor at the sink.
fn build_simulation(
    seed: Seed,
    load: f64,
    size: PacketSizeDistribution,
    rate: Option<u64>,
    cpu: Option<CpuConfig>,
) -> Result<(Simulation<QueueApp, QueueWaitObserver>, HostId), SimError> {
    let mut builder = SimulationBuilder::new(IpVersion::V4, seed);
    let (a, b) = (builder.add_host(None)?, builder.add_host(cpu)?);
    let channel = ChannelConfig { rate, ..Default::default() };
    builder.add_link(a, b, &LinkConfig { up: channel, mtu: u32::MAX, ..Default::default() });
    let gap = SERVICE.mul_f64(1.0 / load);
    let (rng, size_rng) = (seed.derive_rng("gaps", 0), seed.derive_rng("sizes", 0));
    builder.add_application(a, QueueApp::Source { to: b, gap, size, rng, size_rng }, None);
    let sink = builder.add_application(b, QueueApp::Sink, None);
    builder.bind_udp(sink, 0, 7)?;
    let per_byte = rate.map(|rate| 8_000_000_000 / rate);
    Ok((
        builder.build(
            QueueWaitObserver { per_byte, in_flight: VecDeque::new(), arrived: 0, nanoseconds: 0 },
            None,
        ),
        b,
    ))
}

fn queue_seed(label: &str, replication: u64) -> Seed {
    Seed::new(1).derive_seed(label, replication)
}

/// Returns the mean wait at a link in milliseconds, by replication.
fn simulate_link_waits(label: &str, load: f64, size: PacketSizeDistribution) -> Result<Vec<f64>, String> {
    let one = |replication| -> Result<f64, SimError> {
        let (mut sim, _) = build_simulation(queue_seed(label, replication), load, size, Some(RATE), None)?;
        sim.run_until(Instant::FAR_FUTURE);
        Ok(sim.observer().nanoseconds as f64 / COUNTED as f64 / 1e6)
    };
    (0..REPLICATIONS).map(|r| one(r).map_err(|e| e.to_string())).collect()
}

/// Returns the mean wait at a processor in milliseconds, by replication.
fn simulate_cpu_waits(label: &str, cores: u32, load: f64, service: ServiceTime) -> Result<Vec<f64>, String> {
    let one = |replication| -> Result<f64, String> {
        let cpu = CpuConfig {
            cores,
            queue: usize::MAX,
            service: vec![(JOB, service)],
            intake: BatchReceiveCost::default(),
        };
        let load = load * f64::from(cores);
        let seed = queue_seed(label, replication);
        let (mut sim, host) =
            build_simulation(seed, load, PacketSizeDistribution::Constant(HEADERS), None, Some(cpu))
                .map_err(|e| e.to_string())?;
        // The processor counts work when it begins, so read its counters at two times and subtract.
        let mut read = |customers: u64| {
            // The time per core is that of a queue with a single core, because a queue with more cores has as long a
            // memory.
            let time = SERVICE.mul_f64(customers as f64 * f64::from(cores) / load);
            sim.run_until(Instant::ZERO + time);
            sim.cpu_stats(host).ok_or("the host has no processor".to_owned())
        };
        let (before, after) = (read(WARM_UP)?, read(WARM_UP + COUNTED)?);
        let handled = (after.handled - before.handled) as f64;
        Ok((after.waited_ns - before.waited_ns) as f64 / handled / 1e6)
    };
    (0..REPLICATIONS).map(one).collect()
}

const LOADS: [f64; 3] = [0.3, 0.6, 0.8];

fn compare_waits_at_loads(
    theory: fn(f64) -> f64,
    waits: impl Fn(f64) -> Result<Vec<f64>, String>,
) -> Result<Vec<OracleFinding>, String> {
    let finding = |load: &f64| {
        Ok(compare_mean_with_theory(format!("load {load}"), "ms", theory(*load), &waits(*load)?, WIDEST))
    };
    LOADS.iter().map(finding).collect()
}

fn mm1_mean_wait(load: f64) -> f64 {
    load / (1.0 - load)
}
fn md1_mean_wait(load: f64) -> f64 {
    mm1_mean_wait(load) / 2.0
}

fn check_mm1_link() -> Result<Vec<OracleFinding>, String> {
    compare_waits_at_loads(mm1_mean_wait, |load| {
        simulate_link_waits("mm1", load, PacketSizeDistribution::Exponential(MEAN_SIZE))
    })
}

fn check_md1_link() -> Result<Vec<OracleFinding>, String> {
    compare_waits_at_loads(md1_mean_wait, |load| {
        simulate_link_waits("md1", load, PacketSizeDistribution::Constant(MEAN_SIZE))
    })
}

fn check_mg1_cpu() -> Result<Vec<OracleFinding>, String> {
    let uniform = ServiceTime::Uniform(Duration::ZERO, SERVICE * 2);
    compare_waits_at_loads(
        |load| md1_mean_wait(load) * 4.0 / 3.0,
        |load| simulate_cpu_waits("mg1", 1, load, uniform),
    )
}

fn check_md1_cpu() -> Result<Vec<OracleFinding>, String> {
    compare_waits_at_loads(md1_mean_wait, |load| {
        simulate_cpu_waits("md1", 1, load, ServiceTime::Constant(SERVICE))
    })
}

fn check_mmc_cpu() -> Result<Vec<OracleFinding>, String> {
    let mut findings = Vec::new();
    for (cores, load) in [(1, 0.6), (2, 0.7), (4, 0.8), (8, 0.85)] {
        let c = f64::from(cores);
        let theory = erlang_c(cores, load * c) / (c * (1.0 - load));
        let waits = simulate_cpu_waits("mmc", cores, load, ServiceTime::Exponential(SERVICE))?;
        let case = format!("{cores} cores, load {load}").replace("1 cores", "1 core");
        findings.push(compare_mean_with_theory(case, "ms", theory, &waits, WIDEST));
    }
    Ok(findings)
}

fn check_mmc_study() -> Result<Vec<OracleFinding>, String> {
    let text = |cores: u32, rate: f64| {
        format!(
            r#"
[run]
duration = "20 s"
warmup = "2 s"
[run.replications]
min = 2
max = 2
[hosts.client]
[hosts.server]
cpu = {{ cores = {cores}, service = {{ "dialogue.answer" = {{ kind = "exponential", mean = "1 ms" }} }} }}
[links.perfect]
between = ["client", "server"]
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "udp"
rounds = [{{ request = "20 B", answer = "20 B" }}]
arrivals = {{ kind = "poisson", rate = "{rate} /s" }}
"#
        )
    };
    let mut findings = Vec::new();
    for (cores, load) in [(1, 0.5), (3, 0.7)] {
        let c = f64::from(cores);
        let theory = 1.0 + erlang_c(cores, load * c) / (c * (1.0 - load));
        let delays = simulate_metric(
            &parse_study_plan(&text(cores, load * c * 1000.0))?,
            "delay.mean",
            REPLICATIONS as u32,
        )?;
        let delays: Vec<f64> = delays.into_iter().map(|s| s * 1e3).collect();
        let case = format!("{cores} cores, load {load}").replace("1 cores", "1 core");
        findings.push(compare_mean_with_theory(case, "ms", theory, &delays, WIDEST));
    }
    Ok(findings)
}

/// Relative tolerance of the approximation. That of Allen and Cunneen is exact for one core. It is within a few
/// hundredths for several, if service varies at most exponentially.
const APPROXIMATE: f64 = 0.08;

fn check_mgc_cpu() -> Result<Vec<OracleFinding>, String> {
    let uniform = ServiceTime::Uniform(Duration::ZERO, SERVICE * 2);
    let cases = [("constant", ServiceTime::Constant(SERVICE), 0.0), ("uniform", uniform, 1.0 / 3.0)];
    let mut findings = Vec::new();
    for (name, service, variation) in cases {
        for (cores, load) in [(2, 0.6), (2, 0.9), (4, 0.8)] {
            let each = SERVICE.as_secs_f64();
            let rate = load * f64::from(cores) / each;
            let queue = ServerQueue { service_variation: variation, ..ServerQueue::mmc(rate, each, cores) };
            let theory = queue.mean_wait() * 1e3;
            let waits = simulate_cpu_waits("mgc", cores, load, service)?;
            let (simulated, error) = mean_and_error(&waits);
            findings.push(OracleFinding {
                case: format!("{name}, {cores} cores, load {load}"),
                expected: format!("{theory:.4} ms"),
                obtained: format!("{simulated:.4} ms"),
                tolerance: format!("{} %", APPROXIMATE * 100.0),
                // A mean with a large error neither confirms nor refutes the theory, so the error must be small too.
                agrees: (simulated / theory - 1.0).abs() <= APPROXIMATE
                    && error <= APPROXIMATE / 2.0 * theory,
            });
        }
    }
    Ok(findings)
}
