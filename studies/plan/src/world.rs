//! One step of load on the simulated server: logins at a rate, and their results.

use crate::deployment::{DiameterClientSettings, RadiusClientSettings, ServerDeployment};
use crate::gateway;
use crate::login::GeneratorLoginMethod;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_core::impair::{ChannelConfig, LossModel};
use usher_core::{Duration, Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_load::{
    DiameterConfig, GeneratorConfig, GeneratorEvent, LoadGenerator, LoadProtocolConfig, LoginArrivals,
    LoginPace, LoginStats, MethodShare, RadiusConfig,
};
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, ServerConfig};
use usher_runner::world::{
    AaaServiceInputs, HostAddress, MachineEventOrJob, MachineSockets, ServerRole, SimulatedAaaService,
    cpu_config, tcp_config,
};
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, ReportObserver, Simulation,
    SimulationBuilder, TransportConfig,
};

/// Time limit for logins at the end: longer than any retransmission (RFC 5080, 2.2.1: MRD 30 s).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);
/// Link attributes that a NAS sends (RFC 2865, 5.12, 5.6 and 5.41), as in `usher load eap`.
const FRAMED_MTU: u32 = 1_400;
const SERVICE_FRAMED: u32 = 2;
const PORT_WIRELESS: u32 = 19;
/// Maximum number of outstanding logins.
const OUTSTANDING: usize = 16_384;

/// The result of one step.
#[derive(Clone, Debug)]
pub struct LoadStepResult {
    /// Offered logins per second.
    pub rate: f64,
    /// The statistics of its logins.
    pub tally: LoginStats,
    /// Measured time in seconds of virtual time.
    pub measured_s: f64,
    /// The share of time in which the server's cores were busy, over warm-up, window and drain.
    pub busy: f64,
}

enum PlanHostApp {
    Server(Box<ServerRole>),
    Gateway(Box<gateway::GatewayHost>),
    Load(Box<GeneratorHost>),
}

/// The generator on its host.
struct GeneratorHost {
    generator: LoadGenerator,
    endpoint: MachineSockets,
}

/// The reports of a generator at its end.
enum GeneratorReport {
    /// The window is over; outstanding logins may end.
    Finished(Box<LoginStats>, Duration),
}

impl Application for PlanHostApp {
    type Report = GeneratorReport;

    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, GeneratorReport>, delivery: AppDelivery) {
        match self {
            Self::Server(server) => server.process_delivery(ctx, delivery),
            Self::Gateway(gateway) => gateway.handle_delivery(ctx, &delivery),
            Self::Load(load) => load.handle_delivery(ctx, &delivery),
        }
    }
}

impl GeneratorHost {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, GeneratorReport>, delivery: &AppDelivery) {
        self.endpoint.deliver_to_machine(ctx, &mut self.generator, delivery);
        self.endpoint.drain_outputs(ctx, &mut self.generator, |ctx, generator, word| match word {
            MachineEventOrJob::Event(GeneratorEvent::Finished) => {
                let measured = generator.measured_time(ctx.now());
                ctx.report(GeneratorReport::Finished(Box::new(generator.take_login_stats()), measured));
            }
            MachineEventOrJob::Job(job) => match job.job {},
        });
    }
}

/// Waits for the generators.
struct LoadStepObserver {
    /// Number of unfinished generators.
    awaited: usize,
    tally: LoginStats,
    measured: Duration,
}

impl ReportObserver<GeneratorReport> for LoadStepObserver {
    fn handle_report(&mut self, _: Instant, _: u32, report: GeneratorReport) {
        let GeneratorReport::Finished(tally, measured) = report;
        self.awaited = self.awaited.saturating_sub(1);
        self.tally.add(&tally);
        self.measured = self.measured.max(measured);
    }
    fn is_done(&self) -> bool {
        self.awaited == 0
    }
}

/// The duration of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadStepDuration {
    /// Before the window.
    pub warmup: Duration,
    /// The window.
    pub measurement_time: Duration,
}

/// Logs users in at the deployment's server at a rate, in virtual time.
///
/// # Errors
/// A sentence with the reason why the server cannot serve. Failures of logins are in the step.
pub fn run_load_step(
    deployment: &ServerDeployment,
    rate: f64,
    length: LoadStepDuration,
    seed: Seed,
) -> Result<LoadStepResult, String> {
    let (mut builder, server) = build_server_host(deployment, seed)?;
    let configs = generator_configs(deployment, rate, length)?;
    let mut loads = Vec::new();
    for (from, config) in configs {
        loads.push((add_client_host(&mut builder, deployment, server, from)?, config));
    }
    let addresses = Arc::new(builder.addresses().clone());
    let transports = Arc::new(TransportConfig {
        // RFC 3539, 3.2: Diameter disables Nagle's algorithm.
        tcp: Arc::new(tcp_config(
            &usher_scenario::model::TcpSettings { nagle: false, ..Default::default() },
            IpVersion::V4,
            1500,
        )),
        ..TransportConfig::default()
    });
    let at = |host: HostId| HostAddress { host, addresses: addresses.clone() };
    let own = seed.derive_seed("plan.server", 0);
    if deployment.ike {
        let (gateway, sockets) = gateway::GatewayHost::new(at(server), deployment.server, own)?;
        let app = builder.add_application(
            server,
            PlanHostApp::Gateway(Box::new(gateway)),
            Some(transports.clone()),
        );
        for (socket, port) in sockets {
            builder.bind_udp(app, socket, port).map_err(|e| e.to_string())?;
        }
    } else {
        place_server(&mut builder, deployment, (server, at(server)), own, &transports)?;
    }
    let awaited = loads.len();
    for (i, (load, config)) in loads.into_iter().enumerate() {
        let chance = seed.derive_secure_rng("plan.load", i as u64);
        let generator = LoadGenerator::new(config, Instant::ZERO, chance).map_err(|e| e.to_string())?;
        let role = GeneratorHost { generator, endpoint: MachineSockets::new(at(load)) };
        builder.add_application(load, PlanHostApp::Load(Box::new(role)), Some(transports.clone()));
    }
    let observed = LoadStepObserver { awaited, tally: LoginStats::default(), measured: Duration::ZERO };
    let mut sim: Simulation<PlanHostApp, LoadStepObserver> = builder.build(observed, None);
    // The generator's own time limit ends before this one.
    sim.run_until(
        Instant::ZERO + length.warmup + length.measurement_time + DRAIN_TIMEOUT + Duration::from_secs(1),
    );
    let busy_ns = sim.cpu_stats(server).map_or(0, |stats| stats.busy_ns);
    let time = sim.now().as_secs_f64() * f64::from(deployment.cpu.cores.get());
    let busy = busy_ns as f64 / 1e9 / time.max(1e-9);
    let observed = sim.observer_mut();
    if observed.awaited > 0 {
        return Err("the generator did not come to its end".to_owned());
    }
    let tally = std::mem::take(&mut observed.tally);
    Ok(LoadStepResult { rate, tally, measured_s: observed.measured.as_secs_f64(), busy })
}

/// Places the AAA server on its host.
fn place_server(
    builder: &mut SimulationBuilder<PlanHostApp>,
    deployment: &ServerDeployment,
    (server, at): (HostId, HostAddress),
    seed: Seed,
    transports: &Arc<TransportConfig>,
) -> Result<(), String> {
    let made = AaaServiceInputs {
        seed,
        wall: deployment.epoch,
        cpu: Some(&deployment.cpu),
        users: &deployment.rows,
        key_log: &KeyLog::new(),
    };
    let bound = SimulatedAaaService::new(&deployment.config, at, &made)?;
    let app =
        builder.add_application(server, PlanHostApp::Server(Box::new(bound.role)), Some(transports.clone()));
    for (port, socket) in bound.udp {
        builder.bind_udp(app, socket, port).map_err(|e| e.to_string())?;
    }
    for port in bound.tcp {
        builder.listen_tcp(app, port).map_err(|e| e.to_string())?;
    }
    for port in bound.sctp {
        builder.listen_sctp(app, port).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Builds the server's host.
fn build_server_host(
    deployment: &ServerDeployment,
    seed: Seed,
) -> Result<(SimulationBuilder<PlanHostApp>, HostId), String> {
    let mut builder = SimulationBuilder::new(IpVersion::V4, seed);
    let wrong = |e: usher_sim::SimError| e.to_string();
    let server = builder.add_host(Some(cpu_config(&deployment.cpu))).map_err(wrong)?;
    builder.set_address(server, deployment.server).map_err(wrong)?;
    builder.set_epoch(deployment.epoch);
    Ok((builder, server))
}

/// Adds a client host, with the network to the server.
fn add_client_host(
    builder: &mut SimulationBuilder<PlanHostApp>,
    deployment: &ServerDeployment,
    server: HostId,
    from: IpAddr,
) -> Result<HostId, String> {
    let wrong = |e: usher_sim::SimError| e.to_string();
    let load = builder.add_host(None).map_err(wrong)?;
    builder.set_address(load, from).map_err(wrong)?;
    let one_way = Duration::from_nanos(deployment.round_trip.get().as_nanos() / 2);
    let loss = if deployment.loss > 0.0 { LossModel::Bernoulli(deployment.loss) } else { LossModel::None };
    let channel = ChannelConfig { delay: one_way, loss, ..ChannelConfig::default() };
    let link = LinkConfig { up: channel.clone(), down: channel, ..LinkConfig::default() };
    builder.add_link(load, server, &link);
    Ok(load)
}

/// Returns the configurations of the generators: one each for RADIUS and Diameter if the mix has a method over it, with
/// its share of the rate.
fn generator_configs(
    deployment: &ServerDeployment,
    rate: f64,
    length: LoadStepDuration,
) -> Result<Vec<(IpAddr, GeneratorConfig)>, String> {
    let mut all = Vec::new();
    let weights: f64 = deployment.methods.iter().map(|m| m.weight).sum();
    let mut add = |from: IpAddr, diameter: bool, front: LoadProtocolConfig| {
        let methods = deployment.methods.iter().filter(|m| m.is_diameter() == diameter);
        let mix: Vec<MethodShare> = methods
            .map(|m| MethodShare { name: m.name.clone(), weight: m.weight, deniable: false })
            .collect();
        let share: f64 = mix.iter().map(|m| m.weight).sum::<f64>() / weights;
        all.push((from, generator_config(deployment, rate * share, length, mix, front)));
    };
    if let Some(side) = &deployment.radius {
        add(side.from, false, LoadProtocolConfig::Radius(radius_config(deployment, side)?));
    }
    if let Some(side) = &deployment.diameter {
        add(side.from, true, LoadProtocolConfig::Diameter(diameter_config(deployment, side)));
    }
    if deployment.ike {
        add(gateway::CLIENT, false, LoadProtocolConfig::Ike(gateway::initiator_config(deployment.server)?));
    }
    Ok(all)
}

fn diameter_config(deployment: &ServerDeployment, side: &DiameterClientSettings) -> DiameterConfig {
    let logins = deployment.logins.iter().filter_map(|login| match login {
        GeneratorLoginMethod::Diameter(login) => Some(login.clone()),
        GeneratorLoginMethod::Radius(_) | GeneratorLoginMethod::Ike => None,
    });
    let realm = side.host.split_once('.').map_or(side.host.as_str(), |(_, realm)| realm);
    DiameterConfig {
        address: SocketAddr::new(deployment.server, side.port),
        transport: side.transport,
        local: side.from,
        server: side.server.clone(),
        host: side.host.clone(),
        realm: realm.to_owned(),
        destination: side.realm.clone(),
        connections: 1,
        first: 0,
        logins: logins.collect(),
        accounting: None,
        anonymous: None,
        timeout: DRAIN_TIMEOUT,
    }
}

fn radius_config(deployment: &ServerDeployment, side: &RadiusClientSettings) -> Result<RadiusConfig, String> {
    let at = SocketAddr::new(deployment.server, side.port);
    let mut client =
        client::RadiusClientConfig::for_server(ServerConfig::new(at, SharedSecret::new(&side.secret)));
    client.max_sockets = 1024;
    let mut common = AttributeList::new();
    common.push_u32(kind::SERVICE_TYPE, SERVICE_FRAMED);
    common.push_u32(kind::NAS_PORT_TYPE, PORT_WIRELESS);
    common.push_u32(kind::FRAMED_MTU, FRAMED_MTU);
    common.push_text(kind::NAS_IDENTIFIER, "plan").map_err(|e| e.to_string())?;
    let logins = deployment.logins.iter().filter_map(|login| match login {
        GeneratorLoginMethod::Radius(login) => Some(login.clone()),
        GeneratorLoginMethod::Diameter(_) | GeneratorLoginMethod::Ike => None,
    });
    Ok(RadiusConfig {
        client,
        fleet: None,
        logins: logins.collect(),
        accounting: None,
        anonymous: None,
        common,
    })
}

fn generator_config(
    deployment: &ServerDeployment,
    rate: f64,
    length: LoadStepDuration,
    mix: Vec<MethodShare>,
    front: LoadProtocolConfig,
) -> GeneratorConfig {
    GeneratorConfig {
        pace: LoginPace::Open { rate, arrivals: LoginArrivals::Exponential },
        warmup: length.warmup,
        duration: Some(length.measurement_time),
        count: None,
        outstanding: OUTSTANDING,
        drain_timeout: DRAIN_TIMEOUT,
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: deployment.users.clone(),
        first: 0,
        step: 1,
        // With a single method, statistics by method would repeat the totals.
        mix: if mix.len() > 1 { mix } else { Vec::new() },
        front,
    }
}
